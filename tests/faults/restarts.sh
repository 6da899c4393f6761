#!/bin/sh
# SPDX-License-Identifier: MIT
#
# Goal: a job that loses a rank goes on by itself from the last checkpoint with fewer or more ranks: with the weights that
# were saved, and from there as a job that had that many ranks all along.
# Method: launch --restarts --restart-ranks; a rank kills itself when two more checkpoints are there. All ranks together
# take the same sequences in a step, so losses are those of a run that nobody disturbs; the run from the last restart on
# is made once more by threads, to the same bits.
# usage: restarts.sh LAUNCH TRAIN SOURCE SLOW_DISK CASE...
# a case is the ranks of each start, as 4,3,4, and /STRATEGY where wanted
set -u
. "$(dirname "$0")/../tap/tap.sh"
launch=$1 train=$2 text=$3/LICENSE slow_disk=$4
shift 4
make_folder
shown="$work/out $work/err"
common="--model 2x32x2 --seq 16 --batch 1 --threads 1 --peak-seconds 0 --sample 0 --text $text"
export train work slow_disk ASAN_OPTIONS="${ASAN_OPTIONS:-}"
export sequences=12 steps=40

# One of the ranks, by launch. A simulated link and a slow disk leave time for the blow: one rank alone has no link, and no
# save begins before the last has ended.
cat >"$work/rank" <<'END'
if [ "$EVENODD_RESTART" -lt "$restarts" ]; then
    set -- --fabric 1000,1000
    ASAN_OPTIONS=$ASAN_OPTIONS:verify_asan_link_order=0
    if [ "$EVENODD_RANK" = $(((EVENODD_RANKS - 1) * (1 - EVENODD_RESTART % 2))) ]; then
        saved() { ls "$work/checkpoints" 2>/dev/null | grep -c '^step-[0-9]*$'; }
        before=$(saved)
        (
            while kill -0 $$ && [ "$(saved)" -lt $((before + 2)) ]; do sleep 0.01; done
            kill -KILL $$
        ) 2>/dev/null &
    fi
    export SLOW_SYNC_MS=50 LD_PRELOAD="$slow_disk"
fi
# shellcheck disable=SC2086 # a list of options
exec "$train" $options --micro-batches $((sequences / EVENODD_RANKS)) --steps "$steps" --log "$work/log" \
    --checkpoint "$work/checkpoints" --checkpoint-every 4 --resume "$@"
END

hash_of() { sed -n 's/^weights_hash \([0-9a-f]*\),.*/\1/p' "$@"; }

# by_threads RANKS STEPS OPTION...: the weights_hash of a run whose ranks are threads
by_threads()
{
    ranks=$1 until=$2
    shift 2
    # shellcheck disable=SC2086
    "$train" $common --ranks "$ranks" --micro-batches $((sequences / ranks)) --steps "$until" "$@" 2>>"$work/err" | hash_of
}

losses() { sed -n 's/^{"step": *\([0-9]*\), *"loss": *\([0-9.]*\).*/\1 \2/p' "$1"; }

# loads CHECKPOINT STEP: any number of ranks, threads or processes, has the same weights after no step
loads()
{
    saved=$(by_threads 1 "$2" --resume "$1")
    [ -n "$saved" ] || return 1
    for ranks in 2 3 4; do
        [ "$(by_threads $ranks "$2" --resume "$1")" = "$saved" ] || return 1
    done
    # shellcheck disable=SC2086
    [ "$(timeout 120 "$launch" -n 3 "$train" $common --steps "$2" --resume "$1" 2>>"$work/err" | hash_of)" = "$saved" ]
}

one_case() # RANKS,RANKS... STRATEGY
{
    name="$(echo "$1" | sed 's/,/, then /g') ranks${2:+, $2}"
    first=${1%%,*} last=${1##*,} restarts=$(echo "$1" | tr -cd , | wc -c) options="$common${2:+ --strategy $2}"
    export restarts options
    rm -rf "$work/checkpoints" "$work/log" "$work/undisturbed"
    status=0
    timeout 120 "$launch" -n "$first" --restarts "$restarts" --restart-ranks "${1#*,}" sh "$work/rank" \
        >"$work/out" 2>"$work/err" </dev/null || status=$?
    [ $status = 0 ] && grep -q "restart $restarts of $restarts, with $last rank" "$work/err" &&
        [ "$(grep -c '^resuming from ' "$work/out")" = "$restarts" ] && grep -q "^[^ ]*: .*, $last rank" "$work/out"
    result $? "$name: each start has the ranks that it is to have, and goes on from a checkpoint"

    from=$(sed -n 's/^resuming from \(.*\), step [0-9]*$/\1/p' "$work/out" | tail -n 1)
    step=$(sed -n 's/^resuming from .*, step \([0-9]*\)$/\1/p' "$work/out" | tail -n 1)
    loads "$from" "$step"
    result $? "$name: the checkpoint is loaded to the same bits by 1, 2, 3 and 4 ranks, and by processes"
    hash=$(hash_of "$work/out")
    [ -n "$hash" ] && [ "$hash" = "$(by_threads "$last" $steps --resume "$from" ${2:+--strategy "$2"})" ]
    result $? "$name: the weights at the end are those of $last that are threads and go on from there"

    by_threads "$first" $steps --log "$work/undisturbed" >/dev/null
    losses "$work/log" >"$work/a"
    losses "$work/undisturbed" >"$work/b"
    paste "$work/a" "$work/b" | awk -v steps=$steps '
        { d = $2 - $4; if ($1 != $3 || $1 != NR || d > 1e-5 * $4 || -d > 1e-5 * $4) { print "# " $0; bad = 1 } }
        END { exit bad || NR != steps }' >>"$work/err"
    result $? "$name: every step is there once, with the loss of the run that nobody disturbs"
}

# --- launch
# shellcheck disable=SC2016
"$launch" -n 2 --restarts 3 --restart-ranks 1,3 sh -c 'echo $EVENODD_RESTART $EVENODD_RANK/$EVENODD_RANKS; exit 1' \
    2>"$work/err" | sort >"$work/out"
printf '%s\n' 0\ 0/2 0\ 1/2 1\ 0/1 2\ 0/3 2\ 1/3 2\ 2/3 3\ 0/3 3\ 1/3 3\ 2/3 | cmp -s - "$work/out" &&
    [ "$(sed -n 's/^launch: restart //p' "$work/err" | tr '\n' ';')" = \
        '1 of 3, with 1 rank instead of 2;2 of 3, with 3 ranks instead of 1;3 of 3;' ]
result $? 'each restart has its number of ranks, and the last one named holds for those that follow'
bad=0
for ranks in 0 x '1,' ',1' '' 1,2,3 99999; do
    "$launch" -n 2 --restarts 2 --restart-ranks "$ranks" true >"$work/out" 2>"$work/err"
    [ $? = 2 ] && grep -q -e '--restart-ranks' "$work/err" || bad=1
done
result $bad 'numbers of ranks that make no sense are refused with status 2'
# shellcheck disable=SC2086,SC2016
"$launch" -n 1 --restarts 1 sh -c '"$train" "$@" && [ $EVENODD_RESTART = 1 ]' x $common --steps 2 \
    --flight-recorder "$work/flight" >"$work/out" 2>"$work/err"
[ -s "$work/flight/rank-00000.flight" ] && [ -s "$work/flight/restart-1/rank-00000.flight" ] &&
    [ ! -e "$work/flight/rank-00001.flight" ]
result $? 'a job of one rank has one rank, and a flight recorder for each start'

# --- jobs
for ranks in "$@"; do
    strategy=${ranks#"${ranks%%/*}"}
    one_case "${ranks%%/*}" "${strategy#/}"
done
finish
