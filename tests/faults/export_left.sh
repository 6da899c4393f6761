#!/bin/sh
# SPDX-License-Identifier: MIT
#
# Goal: an export that is killed leaves nothing under its path, and what it leaves beside it the next one removes; what
# another run is writing, or what is not an export's, stays.
# Method: the first write of train takes for ever, and it is killed in it.
# usage: export_left.sh TRAIN SLOW_DISK
set -u
. "$(dirname "$0")/../tap/tap.sh"
train=$(realpath "$1") slow_disk=$(realpath "$2")
enter_folder
seq 1 2000 >text
partial=.evenodd-export-

show() { ls -R; cat out err; }

options="--model 2x32x2 --seq 16 --sample 0 --threads 1 --peak-seconds 0 --text text --steps 1"
# shellcheck disable=SC2086 # a list of options
export_to() { "$train" $options --export "$1" >out 2>err; }
left() { find . -name "$1$partial*" | wc -l; }

export_to whole && export_to whole.bin
result $? 'an export that nothing happens to'

for path in model model.bin; do
    # shellcheck disable=SC2086
    SLOW_DISK_MS=600000 LD_PRELOAD=$slow_disk ASAN_OPTIONS=${ASAN_OPTIONS-}:verify_asan_link_order=0 \
        "$train" $options --export $path >out 2>err &
    pid=$!
    while kill -0 $pid && ! grep -q '^slow disk: pwrite' err; do sleep 0.01; done
    kill -KILL $pid
    wait $pid
    [ $? = 137 ] && [ ! -e $path ] && [ "$(left $path)" = 1 ]
    result $? "$path: one that is killed leaves nothing under the path, and something beside it"
    export_to $path && [ "$(left $path)" = 0 ] && grep -q "removed .*/$path$partial[0-9]*, left by" err &&
        diff -r $path "whole${path#model}"
    result $? "$path: the next one removes that, and is whole"
    rm -r $path
done

mkdir adapters${partial}7 && touch adapters${partial}7/adapter_config.json adapters${partial}7/adapter_model.safetensors
# shellcheck disable=SC2086
"$train" $options --init whole --lora 2 --export adapters >out 2>err && [ "$(left adapters)" = 0 ] && grep -q "removed .*/adapters${partial}7" err
result $? 'what an export of adapters left is removed too'

mkdir model${partial}1 model${partial}2 model${partial}3 model$partial model${partial}4x amodel${partial}5 model${partial}6
touch model${partial}1/config.json model${partial}1/model-00001-of-00002.safetensors model${partial}2/mine model${partial}4x/config.json
if command -v flock >/dev/null; then
    mkfifo end
    touch model${partial}6/model.safetensors
    flock model${partial}3 flock model${partial}6/model.safetensors sh -c 'echo >locked; read -r _ <end' &
    while [ ! -e locked ]; do sleep 0.01; done
    export_to model && [ ! -e model${partial}1 ] && [ -e model${partial}2/mine ] && [ -d model${partial}3 ] &&
        [ -e model${partial}6/model.safetensors ] && [ -d model$partial ] &&
        [ -e model${partial}4x/config.json ] && [ -d amodel${partial}5 ]
    result $? 'one that a live process has locked stays, and so does what is not ours'
    echo >end
    wait
else
    skip 'one that is locked' 'there is no flock(1)'
fi

# Names that users may give.
export_to model.new-2 && echo notes >run.bin.new-20261127 && rm -rf model && export_to model && export_to run.bin &&
    [ -e model.new-2/model.safetensors ] && grep -q notes run.bin.new-20261127
result $? 'exports and files with names much like it stay'
export_to "model${partial}3"
[ $? = 2 ] && grep -q 'unfinished exports have such names' err
result $? 'the name of an unfinished export is refused'
export_to "$(printf '%0240d' 0)"
[ $? = 2 ] && grep -q 'choose a shorter name' err
result $? 'a name without room for that end is refused before the first step'
finish
