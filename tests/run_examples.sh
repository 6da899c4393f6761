#!/bin/sh
# SPDX-License-Identifier: MIT
#
# Goal: the programs of the documents do what is said of them, and leave nothing behind.
# Method: examples/line.c, README's, trains; linked with a rank that fails it ends at once, with a status. The example of processes
# runs as three ranks. Under the address sanitizer a leak is told on the standard error, and an exit status.
#         The perceptron's loss falls to a third, the adapter's to a hundredth, and C++ fits the same line. Muon's losses are
#         PyTorch's, which iterates in bf16; a training without Muon is another one from step 11 on.
#         Processes under evenodd-launch and under mpirun (over MPI, too) fit README's line and end in peace; where one fails, all end.
# usage: run_examples.sh LINE ITS_RANK_FAILS PROCESSES_EXAMPLE MLP LORA MUON ITS_LOSSES_IN_PYTORCH PROCESSES ITS_RANK_FAILS
#        LAUNCH|none MPIRUN|none [LINE_IN_CPP]
set -u
. "$(dirname "$0")/tap/tap.sh"
make_folder
shown="$work/out $work/err"

fits() # PROGRAM
{
    "$1" >"$work/out" 2>"$work/err" && grep -Eq '^sum of squared errors: [0-9.]+(e-[0-9]+)?$' "$work/out" && [ ! -s "$work/err" ]
}
fits "$1"
result $? "README's example fits its line"
if [ $# = 12 ]; then
    line=$(cat "$work/out")
    fits "${12}" && [ "$(cat "$work/out")" = "$line" ]
    result $? 'and so does the one in C++, with the same sum'
else
    skip 'the example in C++' 'no C++ compiler'
fi

"$4" >"$work/out" 2>"$work/err" && [ ! -s "$work/err" ] &&
    awk '/^step / { n++; first = n == 1 ? $4 : first; last = $4 } END { exit !(n >= 5 && first > 0 && last < first / 3) }' "$work/out"
result $? "the perceptron's loss falls to a third"
"$5" >"$work/out" 2>"$work/err" && [ ! -s "$work/err" ] && grep -qx 'W is as it was' "$work/out" &&
    awk '/^step / { n++; first = n == 1 ? $4 : first; last = $4 } END { exit !(n == 5 && first > 0 && last < first / 100) }' "$work/out"
result $? "the adapter's loss falls to a hundredth, and what is frozen stays"

# Each of PyTorch's lines, and the same step of ours.
"$6" >"$work/out" 2>"$work/err" && [ ! -s "$work/err" ] && grep '^step ' "$7" | paste - "$work/out" |
    awk '{ n += $2 == $6; far += ($4 - $8) ^ 2 > 1e-6 } END { exit !(n == 11 && NR == 11 && far == 0 && $8 < 0.15) }'
result $? "Muon's losses are PyTorch's to 0.001 over 100 steps"

began=$(date +%s)
"$2" >"$work/out" 2>"$work/err"
[ $? = 1 ] && [ ! -s "$work/out" ] && [ ! -s "$work/err" ] && [ $(($(date +%s) - began)) -lt 30 ]
result $? 'where a rank fails the other is told, and all is given back'

for rank in 0 1 2; do
    "$3" $rank 3 $$ >"$work/$rank" 2>>"$work/err" || echo "rank $rank: status $?" >>"$work/err" &
done
wait
cat "$work"/[0-2] >"$work/out"
[ "$(cat "$work/out")" = "$(printf 'rank 0 of 3\nrank 1 of 3\nrank 2 of 3')" ] && [ ! -s "$work/err" ]
result $? 'three processes of one host are three ranks'

starts() # LAUNCHER WORD...: two processes
{
    launcher=$1 name=$2
    shift 2
    if [ "$launcher" = none ]; then
        skip "processes under $name" "there is no $name"
        return
    fi
    "$launcher" -n 2 "$@" >"$work/out" 2>"$work/err" && grep -Eqx 'sum of squared errors: [0-9.]+(e-[0-9]+)?' "$work/out"
    result $? "two processes under $name${2:+, collectives $2}: they fit the line and end with status 0"
}
# As root, too, as in containers; and Open MPI has leaks of its own.
mpirun_starts()
{
    OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1 ASAN_OPTIONS=detect_leaks=0
    export OMPI_ALLOW_RUN_AS_ROOT OMPI_ALLOW_RUN_AS_ROOT_CONFIRM OMPI_MCA_rmaps_base_oversubscribe ASAN_OPTIONS
    starts "$1" mpirun "$program"
    starts "$1" mpirun "$program" mpi
}
program=$8 failing=$9
shift 9
starts "$1" launch "$program"
if [ "$1" = none ]; then
    skip 'a process that fails' 'there is no launch'
else
    began=$(date +%s)
    "$1" -n 2 "$failing" >"$work/out" 2>"$work/err"
    [ $? != 0 ] && [ ! -s "$work/out" ] && grep -q 'rank 1' "$work/err" && [ $(($(date +%s) - began)) -lt 30 ]
    result $? 'where a process fails the other ends at once'
fi
mpirun_starts "$2"
finish
