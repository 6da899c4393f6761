#!/bin/sh
# SPDX-License-Identifier: MIT
#
# Goal: processes with GPUs are brought together as far as NCCL: what would make it hang is told before, with status 2.
# Method: train on simulated GPUs, one process a rank. The simulated NCCL joins ranks of one process only, so a world of two
# ends at its deadline: that it comes there shows that the id and the peers have travelled.
# usage: nccl_worlds.sh LAUNCH SIM_TRAIN
set -u
. "$(dirname "$0")/../tap/tap.sh"
launch=$1 train=$2
out=$(mktemp)
trap 'rm -f "$out"' EXIT
shown="$out"
options='--device cuda --model tiny --seq 32 --steps 2 --sample 0 --peak-seconds 0'

# shellcheck disable=SC2086 # a list of options
EO_SIM=gpus=1 timeout 120 "$launch" -n 2 "$train" $options >"$out" 2>&1
[ $? = 2 ] && grep -q 'ranks 0 and 1 are both on GPU' "$out"
result $? 'two ranks on one GPU are named, and all end with status 2'
# As where a launcher shows each its own: the memory of a GPU is one rank's. One takes 634 MiB.
# shellcheck disable=SC2086
EO_SIM=gpus=1,mib=1000 timeout 120 "$launch" -n 2 "$train" $options --batch 512 >"$out" 2>&1
[ $? = 2 ] && grep -q 'ranks 0 and 1 are both on GPU' "$out" &&
    ! EO_SIM=gpus=1,mib=1000 "$train" $options --batch 512 --ranks 2 >"$out" 2>&1 && grep -q 'of 1000 MiB are free' "$out"
result $? 'a rank of a process has its GPU for itself, while threads may share one'
# shellcheck disable=SC2086
EO_SIM=gpus=1 timeout 120 "$launch" -n 2 sh -c 'NCCL_HOSTID=node-$EVENODD_RANK exec "$@"' - "$train" $options --rank-timeout 3 \
    >"$out" 2>&1
[ $? = 3 ] && grep -q 'a rank does not take part' "$out"
result $? 'ranks that NCCL_HOSTID puts on two nodes may share a GPU'
# shellcheck disable=SC2086
EO_SIM=gpus=2 timeout 120 "$launch" -n 2 "$train" $options --rank-timeout 3 >"$out" 2>&1
[ $? = 3 ] && grep -q 'a rank does not take part' "$out"
result $? 'ranks with a GPU each go on to NCCL, whose wait has a deadline, and all end with status 3'
# shellcheck disable=SC2086
EO_SIM=gpus=2 timeout 120 "$launch" -n 2 sh -c '[ $EVENODD_RANK = 1 ] && export EO_SIM=no_gpu; exec "$@"' - "$train" $options \
    >"$out" 2>&1
[ $? = 2 ] && grep -q ': rank 1: --device cuda: the driver .* finds no GPU' "$out"
result $? 'a rank without a GPU ends all with status 2 and its reason'
for rank in 0 1; do
    # shellcheck disable=SC2086
    EO_SIM=gpus=2 timeout 120 "$launch" -n 2 sh -c '[ $EVENODD_RANK = '$rank' ] && export EO_SIM=gpus=2,lacks=nccl; exec "$@"' - \
        "$train" $options >"$out" 2>&1
    [ $? = 2 ] && grep -q 'NCCL cannot be loaded' "$out"
    result $? "where rank $rank cannot load NCCL, all end with status 2 and the reason"
done
# A newer one, so that each rank on its own has what it needs.
# shellcheck disable=SC2086
EO_SIM=gpus=2 timeout 120 "$launch" -n 2 sh -c '[ $EVENODD_RANK = 1 ] && export EO_SIM=gpus=2,nccl=23907; exec "$@"' - \
    "$train" $options >"$out" 2>&1
[ $? = 2 ] && grep -q 'rank 0 has NCCL [0-9.]*, rank 1 (.*) has 2.39.7; load the same version on all ranks' "$out"
result $? 'a rank with another version of NCCL is named with both versions, and all end with status 2'
finish
