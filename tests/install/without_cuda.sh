#!/bin/sh
# SPDX-License-Identifier: MIT
#
# Goal: with -Dcuda=disabled nothing of CUDA is linked or loaded, and asking for a GPU says how to get one, with exit status 2.
# Nothing of MPI either, in any build, by who makes no world over it. A meson project can take evenodd as a subproject. And such
# shared libraries, installed, are all that a foreign project needs.
# Method: one build for all of it, of shared libraries and the tools, where CUDA may be or not, as the subproject of the foreign
# project of tests/install/embed, whose tests are run; the loader lists what they need, and what a training really has mapped
# is read while it runs. Then it is installed (installed.sh).
# usage: tests/install/without_cuda.sh SOURCE C_COMPILER CXX_COMPILER|none MEMPLAN_OF_ANOTHER_BUILD
set -u
. "$(dirname "$0")/../tap/tap.sh"
source=$1 cc=$2 cxx=$3 memplan=$4
make_folder
log=$work/log
shown=$log
. "$(dirname "$0")/host.sh"
names='libcuda|libcudart|libcublas|libcudnn|libnccl|libnvidia|libcupti|libmpi|libopen-'

make_host "$work/host"
# At -Og gcc warns of texts that are cut on purpose, and the host makes errors of warnings; our own builds judge them.
host_build=$work/build build=$work/build/subprojects/evenodd
{ CC=$cc meson setup "$host_build" "$work/host" --force-fallback-for=evenodd -Doptimization=g -Dpkgconfig.relocatable=true \
    -Devenodd:default_library=shared -Devenodd:cuda=disabled -Devenodd:layers=enabled -Devenodd:tools=enabled \
    -Devenodd:werror=false && ninja -C "$host_build"; } >"$log" 2>&1
result $? 'a build without CUDA, as a subproject of a host project'
meson test -C "$host_build" --no-rebuild >"$log" 2>&1 && grep -q '^Ok: *2 ' "$log"
result $? "the host's own two tests pass, and ours are not run"
[ -z "$(find "$host_build" -name 'unit_*')" ]
result $? 'our tests are not built'

for program in "$build/libevenodd.so" "$build/layers/libevenodd_layers.so" "$build/tools/train"; do
    ldd "$program"
done >"$log" 2>&1
grep -q libevenodd.so "$log" && ! grep -qE "$names" "$log"
result $? 'its libraries and programs need nothing of CUDA, nor of MPI'

planned=0
while read -r words; do
    # shellcheck disable=SC2086 # a list of words
    { "$build/tools/memplan" $words >"$work/here"; "$memplan" $words >"$work/there"; } 2>"$log"
    [ -s "$work/here" ] && cmp "$work/here" "$work/there" >>"$log" || break
    planned=$((planned + 1))
done <<'END'
--model gpt2 --batch 3 --json
--model llama-3-8b --seq 8192 --device A100-80GB --explain
--model qwen3-8b --ranks 16 --dtype bf16 --recompute cheap --granularity half --csv
--model mixtral-8x7b --ranks 64 --json
--model tiny --kernels cpu --dtype fp32 --csv
--model gpt2-xl --dtype fp32 --strategy zero2 --csv
END
[ $planned = 6 ]
result $? "memplan prints the same bytes as that of another build ($planned of 6)"

seq 1 4000 >"$work/text"
quick="--text $work/text --model tiny --seq 32 --threads 1 --sample 0 --peak-seconds 0"
# shellcheck disable=SC2086 # a list of words
"$build/tools/train" $quick --steps 1000000 --batch 1 --log "$work/steps" >"$log" 2>&1 &
pid=$!
tries=0
until [ -s "$work/steps" ] || [ $tries -gt 300 ] || ! kill -0 $pid 2>/dev/null; do
    sleep 0.1
    tries=$((tries + 1))
done
cp "/proc/$pid/maps" "$log" 2>/dev/null
kill $pid
wait $pid
grep -q libevenodd.so "$log" && ! grep -qE "$names" "$log"
result $? 'a training has nothing of CUDA in its memory, nor of MPI'

# shellcheck disable=SC2086
"$build/tools/train" $quick --device cuda >"$log" 2>&1
[ $? = 2 ] && grep -q -e '-Dcuda=enabled' "$log"
result $? 'train --device cuda says what to build, and ends with exit status 2'

kind=shared
. "$(dirname "$0")/installed.sh"
finish
