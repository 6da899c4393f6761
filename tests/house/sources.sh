#!/bin/sh
# SPDX-License-Identifier: MIT
#
# Goal: what the house promises about every file. It names its licence; the library never prints, exits
#       or reads the environment.
# Method: find and grep over the folders. Each check fails when it has nothing to look at.
# usage: tests/house/sources.sh SOURCE
set -u
. "$(dirname "$0")/../tap/tap.sh"
cd "$1" || exit 1

show() { printf '%s\n' "$offenders"; }

report() # TEXT FILES_SEEN OFFENDERS
{
    offenders=$3
    if [ "$2" = 0 ]; then
        result 1 "$1: there is nothing to look at"
    else
        [ -z "$3" ]
        result $? "$1 ($2 files)"
    fi
}

licensed=$(mktemp) || exit 1
trap 'rm -f "$licensed"' EXIT
folders='base streams buffers runtime cluster layers tools include tests examples .ci'
# shellcheck disable=SC2086 # a list of words
files=$(find $folders meson.build meson_options.txt -type f ! -name '*.pyc' ! -name '*.json' ! -name '*.jsonl' \
    ! -path '*/subprojects/*' ! -path 'tests/fuzz/corpus/*' ! -path 'tests/fixtures/checkpoints/*' ! -path 'tests/fixtures/digits/*' \
    ! -path 'tests/fixtures/llm.c/*' 2>/dev/null | LC_ALL=C sort)
file_count=$(printf '%s' "$files" | grep -c .)

# A file without one has no line that awk prints; two processes for each would take seconds.
bad=$([ -z "$files" ] || printf '%s\n' "$files" | tr '\n' '\0' |
    xargs -0 awk 'FNR <= 3 && /SPDX-License-Identifier: MIT/ { print FILENAME }' | LC_ALL=C sort -u >"$licensed" &&
    printf '%s\n' "$files" | LC_ALL=C comm -23 - "$licensed")
report 'every source names its licence in its first lines' "$file_count" "$bad"

library=$(find base streams buffers runtime cluster layers -type f -name '*.[ch]' 2>/dev/null)
library_count=$(printf '%s' "$library" | grep -c .)
# What follows a comment's opening is prose. The one abort is that of a failed assertion.
bad=$([ -z "$library" ] || printf '%s\n' "$library" | xargs grep -nE \
    '(^|[^A-Za-z0-9_])(printf|fprintf|puts|putchar|perror|exit|_exit|abort|getenv|secure_getenv|setenv)[[:space:]]*\(' |
    grep -vE '^[^:]*:[0-9]*:[[:space:]]*(/?\*|//)' | grep -vE '^base/check\.[ch]:')
report 'the library never prints, exits, aborts or reads the environment' "$library_count" "$bad"

# null_calls.c says that it is all of them; these have no pointer that could be NULL, or start another library.
calls=$(cat include/evenodd/*.h 2>/dev/null | sed -n 's/^EO_EXPORT.*[ *]\(eo_[a-z0-9_]*\)(.*/\1/p' |
    grep -vxE 'eo_mpi_(start|stop|abort)' | sort -u)
call_count=$(printf '%s' "$calls" | grep -c .)
bad=$(printf '%s\n' "$calls" | while read -r call; do
    [ -z "$call" ] || grep -q "$call(" tests/conformance/misuse/null_calls.c || echo "$call"
done)
report 'every public function is called with NULL by a test' "$call_count" "$bad"
finish
