#!/bin/sh
# SPDX-License-Identifier: MIT
#
# Makes llm.c's train_gpt2.c sharded, and trains with it on this machine.
#
#     run.sh FOLDER [RANKS]
#
# FOLDER is a clone of llm.c, with the model and the data that its dev/download_starter_pack.sh brings; where there is no such
# folder, llm.c is cloned into it. Its files stay as they are: what is patched is another file, train_gpt2_sharded.c.
# CC, CFLAGS, PKG_CONFIG and LAUNCH may be set.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
commit=f1e2ace651495b74ae22d45d1723443fd00ecd3a # the patch is of it; later ones do as long as it applies

die() { printf 'run.sh: %s\n' "$*" >&2; exit 1; }

[ $# = 1 ] || [ $# = 2 ] || die 'usage: run.sh FOLDER [RANKS]'
folder=$1 ranks=${2:-2}
case $ranks in
    1 | 2 | 4) ;;
    *) die "$ranks ranks: llm.c takes 4 sequences a step, so there are 1, 2 or 4 ranks" ;;
esac
if [ ! -e "$folder" ]; then
    git clone https://github.com/karpathy/llm.c "$folder"
    git -C "$folder" checkout -q $commit
fi
cd "$folder"
[ -f train_gpt2.c ] || die "$folder: there is no train_gpt2.c; name a clone of llm.c, or a folder that is not there yet"
[ -f gpt2_124M.bin ] || die "$folder: there is no gpt2_124M.bin; run dev/download_starter_pack.sh there"

patch -s -o train_gpt2_sharded.c train_gpt2.c "$here/sharded.patch" || die "$folder: the patch does not apply; check out $commit"
# shellcheck disable=SC2046,SC2086 # lists of words
${CC:-cc} ${CFLAGS:--O3 -march=native -fopenmp -DOMP -w} -I"$here" -o train_gpt2_sharded train_gpt2_sharded.c \
    $(${PKG_CONFIG:-pkg-config} --cflags --libs evenodd) -lm
processors=$(($(nproc) / ranks))
OMP_NUM_THREADS=${OMP_NUM_THREADS:-$((processors > 0 ? processors : 1))}
export OMP_NUM_THREADS
exec "${LAUNCH:-evenodd-launch}" -n "$ranks" ./train_gpt2_sharded
