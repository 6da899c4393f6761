#!/bin/sh
# SPDX-License-Identifier: MIT
#
# Runs nvcc. What the assembler says of each kernel's registers and memory goes to a file (tests/cuda/local_memory.sh reads it),
# all else to standard error.
# usage: nvcc.sh FILE NVCC WORD...
file=$1
shift
"$@" -Xptxas=-v 2>"$file"
status=$?
grep -v -e '^ptxas info' -e '^ *[0-9]* bytes stack frame' "$file" >&2
exit $status
