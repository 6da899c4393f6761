#!/bin/sh
# SPDX-License-Identifier: MIT
#
# Goal: whatever a rank waits for, its job ends: who has not come is named, nobody waits for a deadline that is none, and
# what was started does not go on.
# Method: ranks of train that are made to wait, processes that do not end by themselves.
# usage: ends.sh LAUNCH TRAIN SOURCE
set -u
launch=$1 train=$2 text=$3/LICENSE
count=0
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
unset EVENODD_RANK EVENODD_TOKEN EVENODD_TOKEN_FILE EVENODD_ADDRESS EVENODD_PORT MASTER_ADDR MASTER_PORT RANK WORLD_SIZE
options="--model 2x32x2 --seq 16 --batch 1 --threads 1 --peak-seconds 0 --sample 0"

result() # STATUS SENTENCE
{
    count=$((count + 1))
    if [ "$1" = 0 ]; then
        echo "ok $count - $2"
    else
        echo "not ok $count - $2"
        sed 's/^/# /' "$work/out" "$work/err"
    fi
}

# run COMMAND...: output in $work/out and $work/err, its status in $status
run()
{
    timeout -k 1 60 "$@" >"$work/out" 2>"$work/err" </dev/null
    status=$?
}

says() { grep -qF -- "$1" "$work/err"; }

# A file that never comes: rank 1 has joined, and stands in open() when the others compare plans.
mkfifo "$work/fifo"
run "$launch" -n 3 sh -c "[ \$EVENODD_RANK = 1 ] && exec $train $options --text $work/fifo --join-timeout 1; \
    exec $train $options --text $text --join-timeout 1"
[ $status = 3 ] && says 'train: rank 0: rank 1 (host ' && says 'has not come within 1.0 s to where all ranks wait' &&
    says 'train: rank 1: rank 1 (host ' && [ "$(grep -c 'rank 1 (host' "$work/err")" = 3 ]
result $? 'a rank that stands still before the first step is named by all, itself as well'
echo "1..$count"
