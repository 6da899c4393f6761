#!/bin/sh
# SPDX-License-Identifier: MIT
#
# Goal: with -Dcudnn=disabled a build for GPUs needs nothing of cuDNN, plans the same bytes, and trains.
# Method: a build of its own; its programs' libraries and symbols; memplan plans one model with it and with this build's
# memplan; the simulated GPU runs the programs.
# usage: tests/install/without_cudnn.sh SOURCE C_COMPILER MEMPLAN_WITH_CUDNN
set -u
. "$(dirname "$0")/../tap/tap.sh"
source=$1 cc=$2 memplan=$3
make_folder
log=$work/log build=$work/build
shown=$log
echo 1..4

{ CC=$cc meson setup "$build" "$source" -Dcuda=enabled -Dcudnn=disabled -Dgpu_archs=90 -Dtools=enabled -Dtests=enabled &&
    ninja -C "$build" tools/train tools/memplan tests/programs/sim_train && ! grep -q 'warning:' "$log"; } >"$log" 2>&1
result $? 'a build without cuDNN, and without a warning'

for program in train memplan; do
    ldd "$build/tools/$program"
done >"$log" 2>&1
grep -q libc.so "$log" && ! grep -q libcudnn "$log" && {
    nm "$build/tools/train" >"$log" 2>&1
    grep -q cudaMalloc "$log" && ! grep -qi cudnn "$log"
}
result $? 'its programs have CUDA in them, and nothing of cuDNN'

plan='--model gpt2 --world 1 --seq 1024 --batch 4 --kernels cuda --csv'
# shellcheck disable=SC2086 # a list of words
{ "$build/tools/memplan" $plan >"$work/without" && "$memplan" $plan >"$work/with"; } 2>"$log"
[ -s "$work/with" ] && cmp "$work/without" "$work/with" >>"$log"
result $? 'memplan plans the same bytes'

seq 1 4000 >"$work/text"
"$build/tests/programs/sim_train" --device cuda --text "$work/text" --model tiny --seq 32 --batch 1 --steps 4 --sample 0 \
    --log "$work/steps" >"$log" 2>&1 && [ "$(wc -l <"$work/steps")" -ge 5 ]
result $? 'it trains on a simulated GPU'
