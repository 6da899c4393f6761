#!/bin/sh
# SPDX-License-Identifier: MIT
#
# Goal: no kernel uses local memory, which is the GPU's slow memory under another name: neither spilled registers nor an
#       array or argument whose index is known only when the kernel runs.
# Method: the assembler's own reports, as the build kept them. A kernel that does use local memory must be seen first.
# usage: tests/cuda/local_memory.sh NVCC REPORT...
set -u
. "$(dirname "$0")/../tap/tap.sh"
nvcc=$1
shift
make_folder

# A line "Function properties for NAME" or "Compiling entry function 'NAME'", and one "N bytes stack frame, N bytes spill ...".
users()
{
    awk '/Compiling entry function/ { name = $0; sub(/^[^\047]*\047/, "", name); sub(/\047.*/, "", name) }
         /bytes stack frame/ { kernels++; if ($1 + $5 + $9 > 0) print "  " name ": " $0 }
         END { if (!kernels) print "  no kernel was reported" }'
}

cat >"$work/canary.cu" <<'C'
struct pointers { const float *at[8]; };
__global__ void canary(float *out, const pointers all) { out[threadIdx.x] = *all.at[threadIdx.x % 8]; }
C
report=$("$nvcc" -arch=sm_90 -cubin -Xptxas=-v -o "$work/out.cubin" "$work/canary.cu" 2>&1)
offenders=$(printf '%s\n' "$report" | users)
show() { printf '%s\n' "$report"; }
printf '%s\n' "$offenders" | grep -q 'canary'
result $? 'a kernel that uses local memory is seen'

show() { printf '%s\n' "$offenders"; }
for file in "$@"; do
    offenders=$(users <"$file")
    name=${file##*/}
    [ -z "$offenders" ]
    result $? "${name%.txt}: no kernel uses local memory"
done
[ $# -ge 11 ]
result $? "$# files"
finish
