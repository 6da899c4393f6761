#!/bin/sh
# SPDX-License-Identifier: MIT
#
# Goal: what looks at a machine with a GPU starts on machines that lack CUDA's libraries, and writes its tokens there.
# Method: the loader's list of the program; a run without a GPU.
# usage: tests/gpu/probe.sh PROGRAM
set -u
. "$(dirname "$0")/../tap/tap.sh"
program=$1
make_folder
show() { printf '%s\n' "$needed"; }

command -v readelf >/dev/null 2>&1 || skip_all 'there is no readelf (binutils)'
needed=$(readelf -d "$program" 2>&1 | grep NEEDED)
printf '%s\n' "$needed" | grep -q 'libc\.so'
result $? 'the list of libraries is found'
[ -z "$(printf '%s\n' "$needed" | grep -E 'libcu|libnccl|libnv')" ]
result $? 'the loader needs no library of CUDA'

"$program" --tokens "$work/tokens" --count 100
[ $? = 0 ] && [ "$(wc -c <"$work/tokens")" = 1224 ]
result $? 'tokens are written: a head of 1024 bytes, and 100 of 2'

needed=$("$program" 2>&1)
printf '%s\n' "$needed" | grep -q '^{"driver": [0-9]*, "cuda": [1-9][0-9]*, "nccl": [0-9]*, "cublaslt": [0-9]*, "cudnn": [0-9]*'
result $? 'the versions of all libraries are told, 0 for those that are not there'
finish
