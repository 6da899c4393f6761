#!/bin/sh
# SPDX-License-Identifier: MIT
#
# Goal: CUDA's libraries are loaded when a GPU is asked for, and not before: programs start and train without them, say what
# is missing when they are told to use a GPU, and can be linked statically.
# Method: the build is installed below a folder of its own. An auditor of the loader hides libraries from programs
# (tests/install/hide.c), so this holds on machines with them and without. Static programs show no interpreter.
# usage: tests/install/libraries.sh SOURCE BUILD C_COMPILER FOLDER: of CUDA's libraries; none: the build has no CUDA
set -u
. "$(dirname "$0")/../tap/tap.sh"
source=$1 build=$2 cc=$3 cuda=$4
make_folder
log=$work/log
shown=$log
not_built="this build has no CUDA: its toolkit was not found, or -Dcuda=disabled"

DESTDIR=$work/root meson install -C "$build" --no-rebuild >"$log" 2>&1
pc=$(find "$work/root" -name evenodd.pc)
PKG_CONFIG_PATH=$(dirname "${pc:-.}")
export PKG_CONFIG_PATH
compile() # PROGRAM SOURCE [--static]
{
    # shellcheck disable=SC2046,SC2086 # lists of words
    $cc -std=c11 ${3:+-static} "$source/$2" -o "$work/$1" $(pkg-config ${3:-} --cflags --libs evenodd) >>"$log" 2>&1
}
compile line examples/line.c && compile gpu_asks tests/install/gpu_asks.c
result $? 'foreign programs compile as README says'

cuda_libraries='libcudart libcuda.so libnccl libcublas libcudnn libcupti'
hide() # AUDITOR WORDS
{
    $cc -shared -fPIC -D_GNU_SOURCE -DHIDDEN="\"$2\"" -o "$work/$1.so" "$source/tests/install/hide.c" >>"$log" 2>&1
}
hide cuda "$cuda_libraries" && hide all "$cuda_libraries libstdc++ libhwloc" && hide driver libcuda.so && hide c libc.so.6
result $? 'libraries can be hidden'
! LD_AUDIT=$work/c.so "$work/line" >"$log" 2>&1 && grep -q 'libc.so.6' "$log"
result $? 'a program does not start without the C library: hiding hides'

LD_AUDIT=$work/all.so "$work/line" >"$log" 2>&1 && grep -q '^sum of squared errors' "$log"
result $? "README's example trains without any of them, and without a C++ library"

seq 1 4000 >"$work/text"
train() # AUDITOR OPTIONS...
{
    auditor=$work/$1.so
    shift
    LD_AUDIT=$auditor "$build/tools/train" --text "$work/text" --model tiny --seq 32 --batch 1 --threads 1 --steps 2 --sample 0 \
        --peak-seconds 0 "$@" >"$log" 2>&1
}
if [ -x "$build/tools/train" ]; then
    train cuda && grep -q '^loss: ' "$log" && LD_AUDIT=$work/cuda.so "$build/tools/memplan" --model gpt2 >"$log" 2>&1
    result $? 'train trains on the CPU, and memplan plans, without any of CUDA'
else
    skip 'train trains on the CPU' 'built without tools'
fi

if [ "$cuda" = none ]; then
    for name in 'without libraries' 'without a driver' 'NCCL'; do
        skip "asked for a GPU, $name" "$not_built"
    done
else
    train cuda --device cuda
    [ $? = 2 ] && grep -q 'no NVIDIA driver.*Install one' "$log" &&
        grep -q 'cuBLASLt cannot be loaded: .*libcublasLt\.so\.[0-9]*: cannot open.*install it.*LD_LIBRARY_PATH' "$log"
    result $? 'train --device cuda names the driver and the library, and ends with exit status 2'

    if ls "$cuda"/libcublasLt.so.[0-9]* >/dev/null 2>&1; then
        train driver --device cuda
        [ $? = 2 ] && grep -q 'no NVIDIA driver' "$log" && ! grep -q 'cannot be loaded' "$log"
        result $? 'where the driver alone is missing, that is all that is said'
    else
        skip 'asked for a GPU, without a driver alone' "there is no libcublasLt.so.N in '$cuda'"
    fi
    LD_AUDIT=$work/cuda.so "$work/gpu_asks" >"$log" 2>&1 && grep -q '^id: not supported' "$log" &&
        grep -q 'NCCL cannot be loaded: .*libnccl\.so\.2: cannot open.*LD_LIBRARY_PATH' "$log"
    result $? 'a foreign program that asks for NCCL is told its name, and what to do'
fi

# Static programs. What Debian has no static library of cannot be in them: oneDNN, so evenodd_layers.
echo 'int main(void) { return 0; }' >"$work/probe.c"
# shellcheck disable=SC2046 # a list of words
if ! $cc -static "$work/probe.c" -o "$work/probe" $(pkg-config --static --libs libsodium) >"$log" 2>&1; then
    skip 'a static link' "no static C library or libsodium here: $(tail -n 1 "$log")"
else
    : >"$log"
    compile line_static examples/line.c --static && compile gpu_asks_static tests/install/gpu_asks.c --static
    result $? 'a static link'
    readelf -l "$work/line_static" >"$log" 2>&1 && grep -q LOAD "$log" && ! grep -q INTERP "$log"
    result $? 'it is static'
    "$work/line_static" >"$log" 2>&1 && grep -q '^sum of squared errors' "$log"
    result $? "README's example trains, linked statically"
    "$work/gpu_asks_static" >"$log" 2>&1 && if [ "$cuda" != none ]; then
        [ "$(grep -c 'linked statically' "$log")" = 2 ]
    else
        grep -q -e '-Dcuda=enabled' "$log"
    fi
    result $? 'a static program that asks for a GPU is told why it gets none'
fi
finish
