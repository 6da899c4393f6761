# SPDX-License-Identifier: MIT
# shellcheck shell=sh
#
# For tests of memplan: a folder of the script's own with a text, and a run held to its exit status and words.
# usage: SCRIPT MEMPLAN TRAIN PYTHON
. "$(dirname "$0")/../tap/tap.sh"
# shellcheck disable=SC2034 # the script's
memplan=$(realpath "$1") train=$(realpath "$2") python=$3
# shellcheck disable=SC2034
picture=$(realpath "$(dirname "$0")/../../docs/arena.svg")
enter_folder
# shellcheck disable=SC2034
shown="$work/out $work/err"
seq 1 4000 >text

run() # STATUS WORDS ARGUMENTS
{
    status=$1 words=$2
    shift 2
    timeout 100 "$memplan" "$@" >"$work/out" 2>"$work/err"
    code=$?
    [ $code = "$status" ] || { echo "# exit status $code, not $status" >>"$work/err"; return 1; }
    cat "$work/out" "$work/err" | grep -qF -e "$words" || { echo "# it does not say: $words" >>"$work/err"; return 1; }
}
