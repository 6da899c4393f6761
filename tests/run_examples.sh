#!/bin/sh
# SPDX-License-Identifier: MIT
#
# Goal: the programs of the documents do what is said of them, and leave nothing behind.
# Method: README's example trains; linked with a rank that fails it ends at once, with a status. The example of processes
# runs as three ranks. Under the address sanitizer a leak is told on the standard error, and an exit status.
# usage: run_examples.sh README_EXAMPLE ITS_RANK_FAILS PROCESSES_EXAMPLE
set -u
. "$(dirname "$0")/tap.sh"
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
shown="$work/out $work/err"

"$1" >"$work/out" 2>"$work/err" && grep -Eq '^sum of squared errors: [0-9.]+(e-[0-9]+)?$' "$work/out" && [ ! -s "$work/err" ]
result $? "README's example fits its line"

began=$(date +%s)
"$2" >"$work/out" 2>"$work/err"
[ $? = 1 ] && [ ! -s "$work/out" ] && [ ! -s "$work/err" ] && [ $(($(date +%s) - began)) -lt 30 ]
result $? 'where a rank fails the other is told, and all is given back'

for rank in 0 1 2; do
    "$3" $rank 3 >"$work/$rank" 2>>"$work/err" || echo "rank $rank: status $?" >>"$work/err" &
done
wait
cat "$work"/[0-2] >"$work/out"
[ "$(cat "$work/out")" = "$(printf 'rank 0 of 3\nrank 1 of 3\nrank 2 of 3')" ] && [ ! -s "$work/err" ]
result $? 'three processes of one host are three ranks'
finish
