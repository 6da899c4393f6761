#!/bin/sh
# SPDX-License-Identifier: MIT
#
# Goal: an exported folder has the tokenizer and the settings for generation of the model it was made from, to the byte; what
# cannot be copied is told and costs no weights.
# Method: a small model's folder gets files of these names, and is trained on; refusals by a pipe, a folder, a file too large.
# usage: export_companions.sh TRAIN CHECKPOINT
set -u
. "$(dirname "$0")/../tap/tap.sh"
train=$(realpath "$1")
checkpoint=$(realpath "$2")
enter_folder
show() { ls -lR; cat out err; }
seq 1 2000 >text
options="--seq 16 --sample 0 --threads 1 --peak-seconds 0 --steps 1"
copied='tokenizer.json tokenizer.model vocab.json tokenizer_config.json special_tokens_map.json added_tokens.json merges.txt
    chat_template.jinja generation_config.json'
# shellcheck disable=SC2086 # lists of options, here and below
run() { rm -rf new; "$train" $options "$@" --export new >out 2>err; }
same() { # FOLDER FILE...: new has these as FOLDER has them
    folder=$1
    shift
    for name; do cmp "$folder/$name" "new/$name" || return 1; done
}

run --model 2x32x2 --text text && mv new base && [ "$(ls base | wc -l)" = 2 ] && [ ! -s err ]
result $? 'a model without an origin: nothing but weights, and no word'

mkdir elsewhere && echo 'not mine' >base/README.md
for name in $copied; do
    echo "{\"of\": \"base, $name\"}" >base/$name
    echo "{\"of\": \"elsewhere, $name\"}" >elsewhere/$name
done
rm elsewhere/merges.txt
echo '{"model": {"type": "BPE", "vocab": {"a": 0, "b": 255}}, "decoder": {"type": "ByteLevel"}}' >elsewhere/tokenizer.json
run --init base --text text && same base $copied && [ ! -e new/README.md ]
result $? '--init: all of them, and no other file'
run --model base/config.json --text text && same base $copied
result $? '--model of a folder: the same'
run --init base --lora 2 --text text && [ "$(ls new)" = "$(printf 'adapter_config.json\nadapter_model.safetensors')" ]
result $? 'adapters have them in their base'
run --init base --lora 2 --export-merged --text text && same base $copied
result $? '--export-merged: all of them'

# 2000 tokens 0, in a file of llm.c's form
{ printf '\210\330\064\001\001\000\000\000\320\007\000\000' && head -c 5012 /dev/zero; } >tokens.bin
run --init base --tokens tokens.bin --tokenizer elsewhere && same elsewhere tokenizer.json tokenizer_config.json vocab.json &&
    same base generation_config.json && [ ! -e new/merges.txt ]
result $? '--tokenizer: its files, none of two tokenizers, and the settings of --init'
ids() { tr -d ' \n' <new/config.json | grep -o '"bos_token_id.*'; }
mv elsewhere/tokenizer_config.json kept.json
echo '{"bos_token": "a", "eos_token": {"content": "b"}, "pad_token": "none"}' >elsewhere/tokenizer_config.json
run --init base --tokens tokens.bin --tokenizer elsewhere && [ "$(ids)" = '"bos_token_id":0,"eos_token_id":255}' ] && [ ! -s err ]
result $? '... and its special tokens, where the config names none'
convert() { rm -rf new && "$checkpoint" convert ck new >out 2>err; }
run --init base --tokens tokens.bin --tokenizer elsewhere --checkpoint ck && convert && [ "$(ids)" = '"bos_token_id":0,"eos_token_id":255}' ]
result $? '... which a checkpoint keeps, too'
mkdir other && sed 's/"eos_token_id": null/"eos_token_id": [255, 256]/' base/config.json >other/config.json && cp base/model.safetensors other
echo '{"eos_token_id": 999, "bos_token_id": 0}' >other/generation_config.json
run --init other --tokens tokens.bin --tokenizer elsewhere/tokenizer.json && [ "$(ids)" = '"bos_token_id":0,"eos_token_id":255}' ] &&
    [ ! -e new/generation_config.json ] && [ "$(grep -c 'warning: other/.*config.json: names special tokens beyond .* of 256' err)" = 2 ]
result $? '... or some that the model does not have: a warning says so'
cp elsewhere/tokenizer.json elsewhere/mine.json
run --init base --tokens tokens.bin --tokenizer elsewhere/mine.json && [ "$(ids)" = '"bos_token_id":null,"eos_token_id":null}' ]
result $? 'a tokenizer by another name has none beside it'
rm elsewhere/mine.json
# the same tokens, with the words of tools/tokenize: 256 numbers, of which 7 stands between documents
divide() { { head -c 12 tokens.bin && printf "EOTK\\0\\001\\0\\0\\$1\\0\\0\\0" && tail -c +25 tokens.bin; } >"$2"; }
divide 007 documents.bin && divide 010 others.bin && rm -r ck
run --init base --tokens documents.bin --checkpoint ck && [ "$(ids)" = '"bos_token_id":null,"eos_token_id":7}' ] && convert &&
    [ "$(ids)" = '"bos_token_id":null,"eos_token_id":7}' ]
result $? 'without any, the token between documents ends a text; a checkpoint keeps it'
run --init base --tokens documents.bin others.bin && [ "$(ids)" = '"bos_token_id":null,"eos_token_id":null}' ]
result $? '... but none of several'
sed -i 's/\[255, 256\]/[254, 255]/' other/config.json
run --init other --tokens tokens.bin --tokenizer elsewhere && [ "$(ids)" = '"bos_token_id":0,"eos_token_id":[254,255]}' ]
result $? 'those of the config come first'
mv kept.json elsewhere/tokenizer_config.json && rm -r other
run --model 2x32x2 --tokens tokens.bin && grep -q 'gets no tokenizer: the run knows no folder with one' err
result $? 'tokens without a tokenizer: a line says so'

rm base/vocab.json base/merges.txt base/tokenizer.model base/added_tokens.json
mkfifo base/vocab.json && mkdir base/merges.txt && ln -s nowhere base/added_tokens.json && truncate -s 257M base/tokenizer.model
run --init base --text text && same base tokenizer.json generation_config.json && [ -s new/model.safetensors ] &&
    grep -q 'warning: base/vocab.json.*lacks it' err && grep -q 'warning: base/merges.txt.*lacks it' err &&
    grep -q 'warning: base/tokenizer.model: has 269484032 bytes.*lacks it' err &&
    [ ! -e new/vocab.json ] && [ ! -e new/merges.txt ] && [ ! -e new/tokenizer.model ] && [ ! -e new/added_tokens.json ]
result $? 'no regular file, or too large: told and left out'

printf 'version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9085657\n' >base/tokenizer.json
run --init base --text text && [ -s new/model.safetensors ] && [ ! -e new/tokenizer.json ] &&
    grep -q 'warning: base/tokenizer.json: is a pointer of Git LFS.*lacks it' err
result $? 'a pointer of Git LFS: told and left out'
! run --init base --tokens tokens.bin --tokenizer base && grep -q 'base/tokenizer.json: is a pointer of Git LFS' err
result $? '... and as the tokenizer of tokens refused'
cp elsewhere/tokenizer.json base

left=new.evenodd-export-7
mkdir $left && touch $left/model.safetensors
for name in $copied; do echo half >$left/$name; done
run --init base --text text && [ ! -e $left ] && grep -q "removed .*$left" err && same base tokenizer.json
result $? 'one that was killed with copies in it is removed by the next'
finish
