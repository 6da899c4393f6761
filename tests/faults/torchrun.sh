#!/bin/sh
# SPDX-License-Identifier: MIT
#
# Goal: ranks that PyTorch's torchrun starts have the weights of threads; after a rank is lost, --max-restarts goes on from
# the last checkpoint; a later start goes on with fewer ranks.
# Method: torchrun itself, of the python that EO_PEERS_PYTHON names; without it the test is skipped.
# usage: torchrun.sh TRAIN SOURCE
set -u
train=$1 text=$2/LICENSE
python=${EO_PEERS_PYTHON:-}
. "$(dirname "$0")/../tap/tap.sh"
{ [ -n "$python" ] && "$python" -c 'import torch.distributed.run' 2>/dev/null; } ||
    skip_all 'EO_PEERS_PYTHON names no python that has torch'
make_folder
options="--model 2x32x2 --seq 16 --batch 1 --threads 1 --peak-seconds 0 --sample 0 --text $text --steps 1000"

show() { { tail -n 20 "$work/out"; cat "$work/err"; } | tr '\r' '\n'; }
hash_in() { sed -n 's/^weights_hash \([0-9a-f]*\),.*/\1/p' "$1" | tail -n 1; } # FILE
torchrun() { timeout 280 "$python" -m torch.distributed.run --no-python "$@" </dev/null; }
# shellcheck disable=SC2086 # lists of options, here and below
threads() { "$train" $options "$@" >"$work/threads" 2>"$work/err" && hash_in "$work/threads"; }

three=$(threads --ranks 3)
# shellcheck disable=SC2086
torchrun --standalone --nproc-per-node 3 -- "$train" $options --log "$work/log.jsonl" >"$work/out" 2>"$work/err"
[ $? = 0 ] && [ -s "$work/log.jsonl" ] && [ -n "$three" ] && [ "$(hash_in "$work/out")" = "$three" ] &&
    grep -q '^world: 3 processes on one machine by torchrun, collectives shared' "$work/out"
result $? 'three ranks by torchrun have the weights of threads'

pid_of_rank()
{
    for pid in $(grep -lsaF "$work/run" /proc/[0-9]*/cmdline | tr -dc '0-9\n'); do
        [ "$(cat "/proc/$pid/comm" 2>/dev/null)" = "${train##*/}" ] &&
            tr '\0' '\n' <"/proc/$pid/environ" | grep -qx "RANK=$1" && echo "$pid"
    done
}
# shellcheck disable=SC2086
torchrun --standalone --max-restarts 1 --nproc-per-node 3 "$train" $options --checkpoint "$work/run" --checkpoint-every 100 \
    --resume >"$work/out" 2>"$work/err" &
job=$!
tries=0
until grep -q ' saved: ' "$work/out" 2>/dev/null || [ $tries -gt 1200 ]; do
    tries=$((tries + 1))
    sleep 0.05
done
kill -KILL "$(pid_of_rank 1)"
wait $job
[ $? = 0 ] && grep -qE '^train: rank [02]: rank 1 \(host .*\) is lost' "$work/err" && grep -q '^resuming from ' "$work/out" &&
    [ "$(hash_in "$work/out")" = "$three" ]
result $? 'a rank that is killed: --max-restarts goes on from the last checkpoint to the weights of an undisturbed run'

rm -r "$work"/run/step-*1000
cp -r "$work/run" "$work/again"
two=$(threads --ranks 2 --checkpoint "$work/again" --resume)
# shellcheck disable=SC2086
torchrun --standalone --nproc-per-node 2 "$train" $options --checkpoint "$work/run" --resume >"$work/out" 2>"$work/err"
[ $? = 0 ] && [ -n "$two" ] && [ "$two" != "$three" ] && grep -q '^resuming from ' "$work/out" &&
    [ "$(hash_in "$work/out")" = "$two" ]
result $? 'a later start goes on with two ranks, as two threads do from the same checkpoint'
finish
