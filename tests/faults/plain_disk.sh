#!/bin/sh
# SPDX-License-Identifier: MIT
#
# Goal: a file system that can do less than others serves all the same: one that does not know its size, as many in user space,
#       or cannot be asked to write what it holds back. An error of the disk is told as one, and a full one cuts no line.
# Method: a small model, and a preloaded library in the disk's place. Another error of the same call still counts.
# usage: plain_disk.sh TRAIN CHECKPOINT FAILING_DISK SOURCE
set -u
. "$(dirname "$0")/../tap/tap.sh"
train=$(realpath "$1") checkpoint=$(realpath "$2") disk=$(realpath "$3") text=$(realpath "$4")/LICENSE
shown="out err"
enter_folder "$PWD"
export ASAN_OPTIONS="${ASAN_OPTIONS-}:verify_asan_link_order=0"
options="--model 2x32x2 --seq 16 --threads 1 --peak-seconds 0 --sample 0 --text $text"
# shellcheck disable=SC2086 # lists of options
plain() { env "$1" LD_PRELOAD="$disk" timeout 120 "$train" $options $more >out 2>err; }

more="--steps 2 --export whole"
plain LC_ALL=C
result $? 'a disk that can do all'

more="--steps 2 --export sizeless --offload-layers all"
case $(stat -f -c %T .) in
tmpfs | ramfs) more="--steps 2 --export sizeless" ;;
esac
plain EO_NO_SIZE=1 && cmp sizeless/model.safetensors whole/model.safetensors
result $? 'one that does not know its size takes exports and what is offloaded'

for number in 22 95; do # EINVAL, EOPNOTSUPP
    more="--steps 2 --checkpoint c$number --checkpoint-every 1 --log log$number --export e$number"
    plain EO_NO_SYNC=$number && more="--steps 3 --checkpoint c$number --log log$number --resume" && plain EO_NO_SYNC=$number &&
        "$checkpoint" verify c$number >out 2>err && cmp e$number/model.safetensors whole/model.safetensors &&
        grep -q '^{"step": *1,' log$number && grep -q '^{"step": *3,' log$number
    result $? "one without a call to sync (errno $number) takes checkpoints, logs and exports"
done
mkdir c5
more="--steps 2 --checkpoint c5 --checkpoint-every 2"
plain EO_NO_SYNC=5
[ $? = 1 ] && grep -q 'cannot sync .* to disk: Input/output error' err
result $? 'but one that fails to sync has not saved'
more="--steps 2 --export e5"
plain EO_NO_SYNC=5
[ $? != 0 ] && [ ! -e e5 ] && grep -q 'cannot be synced to disk: Input/output error' err
result $? 'nor exported'

for limit in 2 3; do # blocks of a file at most
    (
        ulimit -f $limit
        # shellcheck disable=SC2086
        timeout 120 "$train" $options --steps 300 --log full.log --csv full.csv >/dev/null 2>err
    )
    [ "$(grep -c 'cannot be written: .* training continues without it' err)" = 2 ] && [ -z "$(tail -c 1 full.log | tr -d '\n')" ] &&
        [ -s full.csv ] && [ -z "$(tail -c 1 full.csv | tr -d '\n')" ] && [ -z "$(sed '/}$/d' full.log)" ]
    result $? "a full disk leaves no part of a line in logs ($limit blocks)"
done

more="--steps 1 --budget 1GiB --rates rates.json"
echo '{"products_flops_per_s": 98e9, "memory_bytes_per_s": 22e9, "disk_bytes_per_s": 6e8, "link_bytes_per_s": 22e9}' >rates.json
plain EO_FAIL_READ_OF=/rates.json
[ $? != 0 ] && grep -q 'rates.json: Input/output error' err
result $? 'what the disk does not give is no error of the file'
finish
