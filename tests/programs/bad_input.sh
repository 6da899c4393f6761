#!/bin/sh
# SPDX-License-Identifier: MIT
#
# Goal: bad input ends the tools with exit status 2, a message that says what is wrong, and nothing written.
# Method: each case runs in an empty folder and asks for a log and a trace there; the message must hold the words of the
#         case, and the folder must stay empty. A good run first shows that the same command writes when it may.
# usage: bad_input.sh TRAIN HEADTOHEAD LAUNCH
set -u
. "$(dirname "$0")/../tap/tap.sh"
train=$(realpath "$1") headtohead=$(realpath "$2") launch=$(realpath "$3")
make_folder
shown="$work/err $work/out"

# le32 N...: as 32-bit little-endian integers
le32()
{
    for number in "$@"; do
        # shellcheck disable=SC2059 # the format is made here
        printf "$(printf '\\%03o\\%03o\\%03o\\%03o' $((number & 255)) $((number >> 8 & 255)) $((number >> 16 & 255)) \
            $((number >> 24 & 255)))"
    done
}

zeros() { head -c "$1" /dev/zero; }

run() # PROGRAM ARGUMENTS: in an empty folder; leaves $code
{
    rm -rf "$work/run"
    mkdir "$work/run"
    (cd "$work/run" && "$@") >"$work/out" 2>"$work/err"
    code=$?
}

# refuse NAME WORDS ARGUMENTS...: of train
refuse()
{
    name=$1 words=$2
    shift 2
    run "$train" --log log.jsonl --trace trace.json "$@"
    check_refusal "$name" "$words"
}

check_refusal()
{
    if [ $code != 2 ]; then
        echo "# exit status $code, not 2" >>"$work/err"
        result 1 "$1"
    elif ! grep -qF -e "$2" "$work/err"; then
        echo "# the message does not have: $2" >>"$work/err"
        result 1 "$1"
    elif [ -n "$(ls -A "$work/run")" ]; then
        echo "# written: $(ls -A "$work/run")" >>"$work/err"
        result 1 "$1"
    else
        result 0 "$1"
    fi
}

text=$work/text
seq 1 2000 >"$text"
small="--text $text --model tiny --seq 32 --batch 1 --steps 2 --sample 0 --threads 1 --peak-seconds 0"

# shellcheck disable=SC2086 # a list of words, here and below
run "$train" --log log.jsonl --trace trace.json $small
[ $code = 0 ] && [ -s "$work/run/log.jsonl" ] && [ -s "$work/run/trace.json" ]
result $? 'a good run of the same kind is taken, and writes'

refuse 'an unknown option' "--wrong" --wrong $small
refuse 'an option that is nearly one' 'did you mean --warmup?' --wramup 3 $small
refuse 'an option with two letters swapped' 'did you mean --help?' --hepl
refuse 'an option with a value that is nearly one' 'did you mean --micro-batches?' --micro_batch=3 $small
refuse 'an option of other programs' 'did you mean --batch?' $small --batch-size 3
refuse 'an option behind one that has a value' '--nonsense: no such option' --text --nonsense2 $small --nonsense
refuse 'the beginning of several options' 'is ambiguous' $small --s 3
for program in train headtohead memplan checkpoint launch postmortem; do
    path=$(dirname "$train")/$program good=0
    "$path" --version >"$work/out" 2>"$work/err" && [ "$(cat "$work/out")" = "$program (evenodd) 0.1.0" ] || good=1
    "$path" -h >"$work/out" 2>"$work/err" && grep -q -e '-h, --help' "$work/out" || good=1
    "$path" --help >"$work/again" 2>"$work/err" && cmp -s "$work/out" "$work/again" || good=1
    run sh -c 'exec "$1" --help >/dev/full' x "$path"
    [ $code = 1 ] && grep -q 'standard output cannot be written' "$work/err" || good=1
    run "$path" --versoin
    [ $good = 0 ] && [ $code = 2 ] && grep -q 'did you mean --version?' "$work/err"
    result $? "$program: -h, --help (told where it cannot be written), --version, and a name that is nearly one"
done
for program in train headtohead memplan checkpoint launch; do
    "$(dirname "$train")/$program" --help 2>&1
done >"$work/out"
[ "$(grep -c -e '--ranks=N, --world=N' "$work/out")" = 5 ] && run "$launch" --world 2 true && [ $code = 0 ]
result $? '--ranks and --world are one option in all programs'
# --help sorts options by name, so a text cannot lean on the option before it in our table.
for program in train headtohead memplan checkpoint launch postmortem; do
    "$(dirname "$train")/$program" --help 2>&1
done | tr -s ' \n' ' ' >"$work/out"
echo >>"$work/out"
grep -q -e '--offload-gradients with --offload-layers' "$work/out" &&
    ! grep -qE -e '--[a-z-]+(=[^ ]+)? (\.\.\.|their|these|them|in these)[ :]|these layers| there too|file for them' "$work/out"
result $? '--help: the text of an option can be read alone'
run "$train" --wd 3
[ $code = 2 ] && ! grep -q 'did you mean' "$work/err"
result $? 'a name that shares no letter with any is near none'
run "$launch" -n 1 sh -c 'test "$1" = --versoin' x --versoin
result $code 'launch: options behind the program are its own'
"$train" --help >"$work/out" && grep -q 'qwen3-tiny' "$work/out" && grep -q -e '--learning-rate' "$work/out"
result $? 'all presets and other names of options are in --help'
refuse 'a Hub id as a model' 'Hub ids are not downloaded' --model Qwen/Qwen3-0.6B
refuse 'a Hub id as weights' 'Hub ids are not downloaded' --init openai-community/gpt2
refuse 'a name of the Hub as weights' 'names of the Hub are not downloaded' --init gpt2-not-here
refuse 'a word that belongs to no option' "'stray'" stray
refuse 'an unknown model' 'published models, such as llama-3.2-3b' --model huge
printf a >"$work/letter"
refuse 'a text of one letter, which is one token' ': 1 token to train on is shorter' --text "$work/letter" --model tiny
refuse 'text that is not there' 'No such file' --model tiny --text "$work/nothing"
refuse 'a token file that is not there' 'No such file' --model tiny --tokens "$work/nothing"
refuse 'a checkpoint that is not there' 'No such file' --model tiny --init "$work/nothing"
run "$train" $small --log nowhere/log.jsonl
check_refusal 'a log in a folder that is not there' 'cannot write to the folder'
run "$train" $small --trace /
check_refusal 'a trace that is a folder' 'is a folder'

refuse 'an unknown strategy' "'zero9'" --model tiny --text "$text" --strategy zero9
refuse 'groups of no size' "'hsdp:'" --model tiny --text "$text" --strategy hsdp:
refuse 'groups that do not divide the ranks' 'groups of 3 do not divide --ranks 4' --text "$text" --ranks 4 --strategy hsdp:3
refuse 'a strategy in dynamic memory' 'needs --memory static' --text "$text" --memory dynamic:pool --strategy ddp

# Sizes.
for option in ranks threads batch seq micro-batches steps head-chunks val-every; do
    refuse "--$option 0" "--$option is 0, too small" --text "$text" "--$option" 0
    refuse "--$option negative" "--$option is '-3'" --text "$text" "--$option" -3
    refuse "--$option that overflows" "too large" --text "$text" "--$option" 99999999999999999999999
    refuse "--$option beyond 32 bits" "too large" --text "$text" "--$option" 18446744073709551615
    refuse "--$option that is no number" "--$option is '3x'" --text "$text" "--$option" 3x
done
for option in lr beta1 eps weight-decay clip; do
    refuse "--$option negative" "--$option is '-1'" --text "$text" "--$option" -1
    refuse "--$option that is no number" "--$option is 'nan'" --text "$text" "--$option" nan
done
refuse 'heads that do not divide the width' '3 heads do not divide the width 100' --model 4x100x3
refuse 'a model of no layers' 'a size of 0' --model 0x64x2
refuse 'a layer too many with the embedding' 'at most 4095 blocks are possible' --model 4096x64x2 --seq 16 --text "$text"
refuse 'more pieces of the head than tokens' '--head-chunks 4: a micro-batch has only 3 tokens' --model tiny --text "$text" --seq 3 \
    --batch 1 --head-chunks 4
refuse 'Muon in dynamic memory' '--optimizer muon needs --memory static' --text "$text" --memory dynamic:pool --optimizer muon
refuse 'float8 from the host in dynamic memory' '--gather float8 with --dynamic-offload' --text "$text" --memory dynamic:pool \
    --dtype bf16 --gather float8 --dynamic-offload
refuse 'a sequence above the context' 'longer than the context' --model tiny --text "$text" --seq 257
# 80 TB: more than any machine that this will run on.
beyond="--model gpt2-xl --batch 4096 --seq 1024"
refuse 'more memory than there is: needed' 'MiB are needed' $beyond --text "$text"
refuse 'more memory than there is: available' 'MiB are available' $beyond --text "$text"
refuse 'more memory than there is: what would fit' 'would' $beyond --text "$text"
refuse 'more ranks than one process takes' 'at most 64' --ranks 65 --text "$text"

# Texts and token files.
printf 'short' >"$work/short"
refuse 'text shorter than a batch' 'shorter than a batch' --model tiny --text "$work/short"
: >"$work/empty"
refuse 'text that is empty' 'holds no text' --model tiny --text "$work/empty"
head -c 300 "$text" >"$work/few"
refuse 'held-back text shorter than a sequence' '--val-every' --model tiny --text "$work/few" --seq 64 --batch 1 \
    --val-every 1
{ le32 20240521 1 500 && zeros 2012; } >"$work/magic.bin"
refuse 'a token file with a wrong magic' 'begins with 20240521' --model tiny --tokens "$work/magic.bin"
{ le32 20240520 9 500 && zeros 2012; } >"$work/version.bin"
refuse 'a token file with a wrong version' 'version 9' --model tiny --tokens "$work/version.bin"
{ le32 20240520 1 500 && zeros 2011; } >"$work/length.bin"
refuse 'a token file with a wrong length' '2023 bytes' --model tiny --tokens "$work/length.bin"
le32 20240520 1 500 >"$work/header.bin"
refuse 'a token file that ends in its header' 'fewer than the header' --model tiny --tokens "$work/header.bin"
{ le32 20240520 1 500 && zeros 1012 && le32 65535 && zeros 996; } >"$work/vocabulary.bin"
refuse 'a token beyond the vocabulary' 'token 0 is 65535' --model tiny --tokens "$work/vocabulary.bin"
{ le32 20240520 1 500 && zeros 2012; } >"$work/tokens.bin"
refuse 'a token file shorter than a batch' 'shorter than a batch' --model tiny --tokens "$work/tokens.bin"
run "$train" --model tiny --tokens "$work/tokens.bin" --seq 32 --batch 1 --steps 2 --sample 4 --threads 1 \
    --peak-seconds 0
result $code 'a good token file is taken'
tokens="--model tiny --seq 32 --batch 1 --steps 2 --sample 0 --threads 1 --peak-seconds 0 --tokens $work/tokens.bin"
# shellcheck disable=SC2086
{
    run "$train" $tokens
    [ $code = 0 ] && grep -q 'tokens.bin, 500 tokens to train on, all of them$' "$work/out"
    result $? 'the data line says that all tokens are trained on'
    run "$train" $tokens --val-every 1
    [ $code = 0 ] && grep -q '450 tokens to train on; the last tenth, 50 tokens, held back for --val-every' "$work/out"
    result $? 'or that a tenth is held back'
    run "$train" $tokens "$work/tokens.bin" --val-every 1 --val-tokens "$work/tokens.bin"
    [ $code = 0 ] && grep -q ' and 1 more file, 1000 tokens to train on; held back: .*/tokens.bin, 500 tokens' "$work/out"
    result $? 'or which file'
}
refuse 'a second token file that is not there' 'No such file' --model tiny --tokens "$work/tokens.bin" "$work/nothing"

# Shorter in the middle of a run: told, and no bus error.
{ le32 20240520 1 500000 && zeros 1001012; } >"$work/shrinking.bin"
cp "$work/shrinking.bin" "$work/whole.bin"
for how in threads processes; do
    cp "$work/whole.bin" "$work/shrinking.bin"
    : >"$work/out"
    (
        cd "$work" || exit 1
        set -- "$train" --model tiny --tokens shrinking.bin --seq 32 --batch 1 --steps 1000000 --sample 0 --threads 1 \
            --peak-seconds 0
        [ $how = threads ] && exec "$@" --ranks 2
        exec "$launch" -n 2 "$@"
    ) >"$work/out" 2>"$work/err" </dev/null &
    pid=$!
    tries=0
    until grep -q '^step' "$work/out" || [ $tries -gt 200 ]; do
        tries=$((tries + 1))
        sleep 0.1
    done
    truncate -s 4096 "$work/shrinking.bin"
    wait $pid
    [ $? = 1 ] && grep -qE 'step [0-9]+, rank [01]: --tokens shrinking.bin: a part of it is no longer readable' "$work/err"
    result $? "a token file that is cut short while $how read it: status 1, told with its name"
done

# Checkpoints: (16 + 8) x 8 + 2 x (12 x 64 + 13 x 8) + 16 = 1952 values.
header() { le32 20240326 3 8 10 2 2 8 16 && zeros 992; }
{ header && zeros 7808; } >"$work/good.bin"
run "$train" --model init --init "$work/good.bin" --tokens "$work/tokens.bin" --batch 1 --steps 2 --sample 0 \
    --threads 1 --peak-seconds 0
result $code 'a good checkpoint is taken'
{ header && zeros 7804; } >"$work/truncated.bin"
refuse 'a checkpoint that is truncated' 'truncated' --model init --init "$work/truncated.bin" --text "$text"
refuse 'a checkpoint of another shape' 'has another shape' --model tiny --init "$work/good.bin" --text "$text"
{ header && zeros 4000 && le32 2143289344 && zeros 3804; } >"$work/nan.bin"
refuse 'a checkpoint with NaN' 'value 1000' --model init --init "$work/nan.bin" --text "$text"
{ le32 20240326 5 8 10 2 2 8 16 && zeros 8800; } >"$work/bf16.bin"
refuse 'a checkpoint whose header says bf16, and its size fp32' 'too long' --model init --init "$work/bf16.bin" --text "$text"
refuse 'a checkpoint of GPT-2 for a Llama' 'llama-tiny is another family' --model llama-tiny --init "$work/good.bin"

# Weights of others.
run "$train" --init "$work/good.bin" --tokens "$work/tokens.bin" --batch 1 --steps 2 --sample 0 --threads 1 \
    --peak-seconds 0 --export "$work/folder"
[ $code = 0 ] && [ -s "$work/folder/model.safetensors" ]
result $? 'a checkpoint of llm.c becomes a Hugging Face folder'
run "$train" --init "$work/folder" --tokens "$work/tokens.bin" --batch 1 --steps 2 --sample 0 --threads 1 \
    --peak-seconds 0 --export back.bin
[ $code = 0 ] && [ "$(wc -c <"$work/run/back.bin")" = $((1024 + 4 * (1952 + (128 - 16) * 8))) ]
result $? 'and the folder a checkpoint of llm.c, with its vocabulary padded'
some="--tokens $work/tokens.bin --batch 1 --steps 2"
cp -r "$work/folder" "$work/wide_eps" && sed -i 's/"layer_norm_epsilon": [^,]*/"layer_norm_epsilon": 0.01/' "$work/wide_eps/config.json"
# shellcheck disable=SC2086
refuse 'an export to llm.c of norms with another epsilon' "epsilon is 1e-05, but this model's is 0.01" --init "$work/wide_eps" $some --export x.bin
refuse 'bytes for a model of a tokenizer' 'and the model'"'"'s own tokenizer' --init "$work/folder" --text "$text"
# What would take hours, or memory out of proportion.
truncate -s 1T "$work/words.json"
# shellcheck disable=SC2086
run timeout 20 "$train" $tokens --tokenizer "$work/words.json"
check_refusal 'a tokenizer of a terabyte' 'has 1099511627776 bytes; at most 268435456 are read'
{ printf '{"x":['; yes '{},' | head -n 1000000 | tr -d '\n'; printf '{}]}'; } >"$work/words.json"
# shellcheck disable=SC2086
run timeout 20 "$train" $tokens --tokenizer "$work/words.json"
check_refusal 'a tokenizer of a million empty objects' 'has about 5000009 values; at most 4194304 are read'
{ printf '{"x":['; yes '{},' | head -n 100000 | tr -d '\n'; printf '{}]}'; } >"$work/objects.json"
refuse 'a config of many empty objects' 'has about 500009 values; at most 65536 are read' --model "$work/objects.json" --text "$text"
refuse 'the default text for a model of a tokenizer' 'belongs to a tokenizer' --init "$work/good.bin"
seq 1 300 | gzip >"$work/text.gz"
refuse 'a text that is packed' 'packed by gzip' --model tiny --text "$work/text.gz"
sed 's/.*/{"text":"&"}/' "$text" >"$work/text.jsonl"
# shellcheck disable=SC2086
run "$train" --text "$work/text.jsonl" --model tiny --seq 32 --batch 1 --steps 1 --sample 0 --threads 1 --peak-seconds 0
[ $code = 0 ] && grep -q 'text.jsonl: trained on as it is' "$work/err"
result $? 'a text of JSON is warned of'
mkdir "$work/texts" && cp "$text" "$work/texts/small.txt" && truncate -s 65M "$work/texts/large.txt" && ln -s "$text" "$work/texts/link.txt"
# shellcheck disable=SC2086
run "$train" --text "$work/texts" --model tiny --seq 32 --batch 1 --steps 1 --sample 0 --threads 1 --peak-seconds 0
[ $code = 0 ] && grep -q 'warning: --text: links and files above 64 MiB of a folder are left out: 2, such as .*texts/large.txt; name' "$work/err"
result $? 'large files and links of a folder are told when they are left out'
rm "$work/texts/small.txt"
refuse 'a folder of links' 'holds no text: links and files above 64 MiB of a folder are left out: 2' --model tiny --text "$work/texts"
# shellcheck disable=SC2086 # lists of words
{
    refuse 'a folder for another model' 'has weights of a GPT-2' --model llama-tiny --init "$work/folder" --text "$text"
    refuse 'a folder of another shape' 'has another shape' --model tiny --init "$work/folder" --text "$text"
    refuse 'an export to a path that is taken' 'already exists' --init "$work/good.bin" $some --export "$work/folder"
    refuse 'an export to a folder in none' 'create it' --init "$work/good.bin" $some --export none/model
    refuse 'an export of a Llama to llm.c' 'this model has no place in it' --model llama-tiny --text "$text" --export x.bin
    refuse 'an export into the folder of checkpoints' 'both name both; give them a folder each' --model tiny --text "$text" \
        --checkpoint both --export both
    refuse 'an export of no name' '--export is empty' --text "$text" --export ''
    refuse 'an export in another type' "'fp16'" --text "$text" --export model --export-dtype fp16
    refuse 'a type of no export' 'need --export' --text "$text" --export-dtype bf16
    refuse 'files of no bytes' "--export-file-bytes is '0'" --text "$text" --export model --export-file-bytes 0
    refuse 'files of bytes that are no number' "'5X'" --text "$text" --export model --export-file-bytes 5X
    refuse 'several files of llm.c' "llm.c's format is one file" --model tiny --text "$text" --export x.bin --export-file-bytes 500M
    refuse 'several files of adapters' 'adapters are one file' --init "$work/folder" $some --lora 2 --export x --export-file-bytes 500M
}
mkdir "$work/bad"
cp "$work/folder/"* "$work/bad"
sed -i 's/"gelu_new"/"relu"/' "$work/bad/config.json"
# shellcheck disable=SC2086
refuse 'weights of another activation' 'config.json: its weights need activation_function relu, unknown to the layers' \
    --init "$work/bad" $some
# shellcheck disable=SC2086
run "$train" --model "$work/bad" $some --sample 0 --threads 1 --peak-seconds 0
[ $code = 0 ] && grep -q 'the layers ignore activation_function relu' "$work/err"
result $? 'what a config says and the layers do not compute is warned of, where there are no weights'
cp "$work/folder/config.json" "$work/bad"
sed -i 's/"n_embd": 8/"n_embd": 16/' "$work/bad/config.json"
refuse 'a folder whose config and tensors disagree' 'by the config' --init "$work/bad" --text "$text"
cp "$work/folder/config.json" "$work/bad"
head -c 2000 "$work/folder/model.safetensors" >"$work/bad/model.safetensors"
refuse 'a folder whose file is cut short' 'the header has' --init "$work/bad" --text "$text"
refuse 'a file of weights as --init' 'name its folder' --init "$work/bad/model.safetensors" --text "$text"
refuse 'a file of weights as --model' 'name its folder' --model "$work/bad/model.safetensors" --text "$text"
rm "$work/bad/model.safetensors"
refuse 'a folder without tensors' 'has neither model.safetensors nor' --init "$work/bad" --text "$text"
rm "$work/bad/config.json"
refuse 'a folder without a config' 'config.json: No such file' --init "$work/bad" --text "$text"

# Keys that change what weights compute: each is computed, refused, or told.
llama='"model_type":"llama","num_hidden_layers":1,"hidden_size":32,"num_attention_heads":4,"intermediate_size":48,
    "vocab_size":300,"max_position_embeddings":64'
llama3='"rope_type":"llama3","factor":8.0,"low_freq_factor":1.0,"high_freq_factor":4.0,"original_max_position_embeddings":16'
printf '{%s}' "$llama" >"$work/plain.json"
printf '{%s}' "$llama,\"rope_theta\":500000.0,\"rope_scaling\":{$llama3}" >"$work/scaled.json"
# shellcheck disable=SC2086
run "$train" --model "$work/scaled.json" $some --sample 0 --threads 1 --peak-seconds 0 --seq 32 --export "$work/llama"
[ $code = 0 ] && ! grep -q warning "$work/err" && grep -q '"rope_type": "llama3"' "$work/llama/config.json" &&
    grep -q '"original_max_position_embeddings": 16' "$work/llama/config.json"
result $? 'scaled positions are computed, and stand in the config of an export'
keys() # REST: of the weights in $work/llama
{
    printf '{%s}' "$llama$1" >"$work/llama/config.json"
}
# refuse_keys WORDS REST
refuse_keys()
{
    keys ",$2"
    # shellcheck disable=SC2086
    refuse "weights with ${2%%\}*}" "$1" --init "$work/llama" $some --seq 32
}
for kind in dynamic yarn longrope su proportional; do
    refuse_keys "rope_scaling of type $kind (of types linear and llama3 they do), unknown to the layers" \
        "\"rope_scaling\":{\"type\":\"$kind\",\"factor\":2.0}"
done
refuse_keys 'rope_parameters of type yarn' '"rope_parameters":{"rope_type":"yarn","rope_theta":10000.0,"factor":2.0}'
refuse_keys 'rope_parameters {"full_attention"' '"rope_parameters":{"full_attention":{"rope_theta":1e6}}'
refuse_keys 'partial_rotary_factor 0.5' '"partial_rotary_factor":0.5'
refuse_keys 'partial_rotary_factor 0.5' '"rope_parameters":{"rope_theta":10000.0,"partial_rotary_factor":0.5}'
refuse_keys 'hidden_act gelu' '"hidden_act":"gelu"'
refuse_keys 'final_logit_softcapping 30.0, attention_multiplier 0.5' '"final_logit_softcapping":30.0,"attention_multiplier":0.5'
refuse_keys 'query_pre_attn_scalar 256' '"query_pre_attn_scalar":256'
refuse_keys 'embedding_multiplier 12' '"embedding_multiplier":12'
refuse_keys 'quantization_config {"quant_method"' '"quantization_config":{"quant_method":"fp8"}'
refuse_keys 'biases of q, k and v only' '"mlp_bias":true'
refuse_keys 'rope_scaling.factor is 0.5; a number of at least 1' '"rope_scaling":{"type":"linear","factor":0.5}'
refuse_keys 'rope_scaling.high_freq_factor is missing' '"rope_scaling":{"rope_type":"llama3","factor":8,"low_freq_factor":1}'
refuse_keys 'rope_theta is 10000 but rope_parameters.rope_theta is 5' '"rope_theta":10000.0,"rope_parameters":{"rope_theta":5}'
refuse_keys 'has rope_type default and type linear; both name' '"rope_scaling":{"rope_type":"default","type":"linear","factor":2.0}'
refuse_keys 'both name the same' '"rope_scaling":{"type":"linear","factor":2.0},"rope_parameters":{"rope_type":"yarn"}'
keys ",\"rope_scaling\":{$llama3},\"attention_multiplier\":0.35355339,\"hidden_act\":\"swish\",\"logits_scaling\":1,
    \"attention_dropout\":0.1,\"shiny_gate\":true,\"empty\":null"
# shellcheck disable=SC2086
run "$train" --init "$work/llama" $some --seq 32 --sample 0 --threads 1 --peak-seconds 0
[ $code = 0 ] && grep -q 'unknown keys, ignored: shiny_gate; if' "$work/err" &&
    grep -q 'dropout of the config is not taken: attention_dropout 0.1; train --dropout P' "$work/err" && [ "$(grep -c warning "$work/err")" = 1 ]
result $? 'a key that is not known is warned of, dropout is told, what says the same in other words is taken'
# shellcheck disable=SC2086
# shellcheck disable=SC2086
refuse 'other positions than those of --model' 'scales rotary positions differently from --model' --init "$work/llama" $some \
    --seq 32 --model "$work/plain.json"
# A window shorter than the context: up to there it is the same model.
sed -i 's/"llama",/"mistral","sliding_window":32,"num_key_value_heads":4,/' "$work/llama/config.json"
# shellcheck disable=SC2086
refuse 'sequences longer than the window of the weights' '--seq 33 is longer than the context' --init "$work/llama" $some \
    --seq 33
# shellcheck disable=SC2086
run "$train" --init "$work/llama" $some --seq 32 --sample 0 --threads 1 --peak-seconds 0 --export "$work/cut"
[ $code = 0 ] && grep -q 'the context is 32 here, not 64: sliding_window 32' "$work/err" &&
    grep -q '"max_position_embeddings": 64' "$work/cut/config.json" && grep -q '"sliding_window": 32' "$work/cut/config.json"
result $? 'a window cuts the context of the weights, and is told; the export has both as they were'

# A head of its own under a config of a tied one; and a copy of the embedding, which many files have.
python3 - "$work" <<'END'
import json, os, shutil, struct, sys
os.chdir(sys.argv[1])
config = json.load(open("llama/config.json")) | {"tie_word_embeddings": True}
data = open("llama/model.safetensors", "rb").read()
length = struct.unpack("<Q", data[:8])[0]
header, body = json.loads(data[8:8 + length]), data[8 + length:]
words = header["model.embed_tokens.weight"]
begin, end = words["data_offsets"]
begin_head, end_head = header["lm_head.weight"]["data_offsets"]
for name, head in ("copied", body[begin:end]), ("untied", body[begin:end - 1] + b"\x3f"):
    os.mkdir(name)
    json.dump(config, open(f"{name}/config.json", "w"))
    with open(f"{name}/model.safetensors", "wb") as file:
        file.write(data[:8 + length] + body[:begin_head] + head + body[end_head:])
END
# shellcheck disable=SC2086
run "$train" --init "$work/copied" $some --seq 32 --sample 0 --threads 1 --peak-seconds 0
[ $code = 0 ]
result $? 'a copy of the embedding as the head of a tied model is taken'
# shellcheck disable=SC2086
refuse 'a head of its own in a tied model' 'an lm_head.weight with other values' --init "$work/untied" $some --seq 32

# Models of a config.json.
model() # TEXT: becomes the model of $work/model
{
    mkdir -p "$work/model"
    printf '%s\n' "$1" >"$work/model/config.json"
}
dense='"num_hidden_layers":2,"hidden_size":64,"num_attention_heads":4,"num_key_value_heads":2,"intermediate_size":172'
dense="$dense,\"vocab_size\":300"
words="--text $text --seq 32 --batch 1 --steps 2 --sample 0 --threads 1 --peak-seconds 0"
model "{\"model_type\":\"llama\",$dense}"
# shellcheck disable=SC2086
run "$train" --model "$work/model" $words --log log.jsonl
[ $code = 0 ] && [ -s "$work/run/log.jsonl" ]
result $? 'a good config.json is taken'
refuse 'a config.json of a Llama for a checkpoint of GPT-2' 'GPT-2 checkpoints' --model "$work/model" --init "$work/good.bin"
refuse 'a sequence above the context of a config.json' 'longer than the context' --model "$work/model" --seq 4096
refuse 'a config.json that is not there' 'No such file' --model "$work/nothing.json"
refuse 'a folder without a config.json' 'config.json: No such file' --model "$work/run"
model "{\"model_type\":\"llama\",\"attention_bias\":true,$dense}"
refuse 'a config that does not run' 'but cannot run: the layers of Llama have biases of q, k and v only' \
    --model "$work/model"
run "$headtohead" --json out.json --html out.html --model "$work/model"
check_refusal 'headtohead: a config that does not run' 'cannot run'
model "{\"model_type\":\"mixtral\",$dense}"
refuse 'a model with experts' 'have no experts' --model "$work/model"
run "$train" --plan --model "$work/model"
check_refusal 'a plan of a family that does not run' 'can be planned (memplan), but cannot run'
refuse 'a published family that does not run' 'no experts' --model qwen3-30b-a3b
model '{"model_type":"bert"}'
refuse 'a family that is not known' "'bert', an unknown family" --model "$work/model"
model "{\"model_type\":\"llama\",$dense"
refuse 'a config.json that ends too soon' 'config.json: line' --model "$work/model"
model '{"model_type":"llama","hidden_size":64}'
refuse 'a config.json that lacks a size' 'is missing' --model "$work/model/config.json"
model "{\"model_type\":\"gpt2\",\"n_layer\":2,\"n_embd\":64,\"n_head\":5,\"vocab_size\":300}"
refuse 'a config.json whose heads do not divide the width' 'n_head, 5, does not divide' --model "$work/model"
mkfifo "$work/pipe.json"
refuse 'a config.json that is a pipe' 'is not a file' --model "$work/pipe.json"

# What is no file is not waited for, nor read without end: nobody has the pipe's other end.
mkfifo "$work/pipe"
ln -s /dev/zero "$work/zeros"
ln -s "$work/pipe" "$work/link"
special() # NAME WORDS ARGUMENTS...: of train, with a limit of time
{
    name=$1 words=$2
    shift 2
    run timeout -k 2 20 "$train" "$@"
    check_refusal "$name" "$words"
}
for option in --tokens --text --init --model; do
    model='--model tiny'
    [ $option != --model ] || model=
    # shellcheck disable=SC2086
    {
        special "$option: a pipe" "$work/pipe: is not a file, but a pipe" $model $option "$work/pipe"
        special "$option: a link to a device" "$work/zeros: is not a file, but a device" $model $option "$work/zeros"
    }
done
for option in --log --trace; do
    # shellcheck disable=SC2086
    special "$option: a link to a pipe" "$option $work/link: is not a file, but a pipe" $small $option "$work/link"
done
for part in config.json model.safetensors model.safetensors.index.json; do
    for other in pipe zeros; do
        rm -rf "$work/bad" && cp -r "$work/folder" "$work/bad"
        [ $part != model.safetensors.index.json ] || rm "$work/bad/model.safetensors"
        ln -sf "$work/$other" "$work/bad/$part"
        special "--init: $part is a link to a $other" "$part: is not a file, but a" --init "$work/bad" --text "$text"
    done
done
# shellcheck disable=SC2086
run timeout 60 "$train" $small --log /dev/null
result $code '/dev/null takes the log'
# shellcheck disable=SC2086,SC2094
"$train" $small --log /dev/stdout 2>"$work/err" | cat >"$work/out"
grep -q '^{"summary"' "$work/out" && grep -q '^weights_hash' "$work/out"
result $? 'a log to /dev/stdout, which is a pipe'
# shellcheck disable=SC2086
"$train" $small --log /dev/stdout >"$work/out" 2>"$work/err"
grep -q '^{"summary"' "$work/out" && grep -q '^weights_hash' "$work/out" && grep -q '^{"plan"' "$work/out"
result $? 'and to one that is a file'

# Options that do not go together.
# shellcheck disable=SC2086
{
    run "$train" --model gpt2-xl --ranks 7 --recompute 3 $small --ranks 1 --recompute none --lr 3 --learning-rate 0.5 --log log.jsonl
    [ $code = 0 ] && grep -q '^tiny: .* 1 rank x 1 thread,' "$work/out" && grep -q '"lr":0.5,' "$work/run/log.jsonl" &&
        grep -q '^step: 1 sequence x 32 tokens a rank' "$work/out"
    result $? 'of an option that is given twice the last counts; one of a thing is no plural'
}
refuse 'text and tokens' '--text and --tokens' --text "$text" --tokens "$work/tokens.bin"
refuse 'the shape of no checkpoint' '--init FILE.bin' --model init
refuse 'a warm-up longer than the run' '--warmup' --steps 5 --warmup 6
refuse 'prefetch of the plan in dynamic memory' '--no-prefetch' --memory dynamic:pool --no-prefetch
refuse 'late updates of nothing' '--late-updates needs --offload-layers' --late-updates
refuse 'late updates without prefetches' 'leave one of them out' --late-updates --offload-layers all --no-prefetch
refuse 'gradients that leave, added up' '--offload-gradients needs --micro-batches 1' --offload-layers all --offload-gradients \
    --micro-batches 2
refuse 'a clip that is no number of fp32' "--clip is '1e-50', too small: in fp32 it is 0" --clip 1e-50
refuse 'a momentum that is none' "--momentum is '1e-50', too small" --optimizer muon --momentum 1e-50
refuse 'an average that is none' "--ema is '1e-60', too small" --ema 1e-60
refuse 'dynamic offloading in static memory' '--dynamic-offload needs --memory dynamic' --dynamic-offload
refuse 'prefetch of dynamic memory in static memory' '--implicit-prefetch needs --memory dynamic' --implicit-prefetch
refuse 'reductions of dynamic memory in static memory' '--reduce-inputs needs --memory dynamic' --reduce-inputs 2
refuse 'slots in dynamic memory' '--slots needs --memory static' --memory dynamic:pool --slots 1,1
refuse 'collectives of processes for threads' 'needs ranks as processes' --collectives nccl
refuse 'a meeting of processes for threads' '--join-timeout needs ranks as processes' --join-timeout 5
refuse 'strangers among threads' '--insecure needs ranks as processes' --insecure
refuse 'times of graphs on a CPU' '--graph-times on needs --device cuda' --graph-times on
refuse 'a library for what is off' '--cupti-library needs --cupti on' --device cuda --cupti-library x.so
refuse 'held-back tokens that are not there' "--val-tokens $work/nothing: No such file" --model tiny \
    --tokens "$work/tokens.bin" --val-tokens "$work/nothing" --val-every 1
refuse 'held-back tokens beyond the vocabulary' "--val-tokens $work/vocabulary.bin: token 0 is 65535" --model tiny \
    --tokens "$work/tokens.bin" --val-tokens "$work/vocabulary.bin" --val-every 1
refuse 'held-back tokens that are never looked at' 'needs --val-every' --tokens "$work/tokens.bin" --val-tokens "$work/tokens.bin"
refuse 'held-back tokens beside a text' '--val-tokens needs --tokens' --text "$text" --val-tokens "$work/tokens.bin" --val-every 1
refuse 'a shuffled text' '--shuffle needs --tokens' --text "$text" --shuffle
refuse 'an unknown memory mode' "'dynamic'" --memory dynamic
refuse 'an unknown schedule' "'exponential'" --schedule exponential
refuse 'a schedule without its numbers' "'step'; step takes N,G" --schedule step
refuse 'a least learning rate above the largest' '--min-lr 0.5 is above' --min-lr 0.5 --lr 0.1
refuse 'a least learning rate of a constant one' 'belongs to --schedule' --min-lr 0.0001 --schedule constant
refuse 'an unknown recompute' "'some'" --recompute some
refuse 'an unknown granularity' "'third'" --granularity third
refuse 'units of more blocks than there are' 'the model has only' --granularity blocks:1000
refuse 'units of no bytes' '--granularity size:0' --granularity size:0
refuse 'one slot count' '--slots' --slots 2
refuse 'slots of zero' 'too small' --slots 0,2
refuse 'an unknown device' "'tpu'" --device tpu
refuse 'an unknown element type' "'fp16'" --dtype fp16
refuse 'an unknown type of reductions' "'int8'" --reduce int8
refuse 'an unknown type of gathers' "'int8'" --gather int8
refuse 'float8 beside fp32' '--gather float8 needs --dtype bf16' --gather float8
refuse 'float8 for one rank' 'with --ranks 1 no weights are gathered' --gather float8 --dtype bf16 --ranks 1
refuse 'float8 without gathers' 'with --strategy ddp' --gather float8 --dtype bf16 --strategy ddp
refuse 'an instruction set that this machine lacks' 'plain, reference' --instruction-set sse9
refuse 'an instruction set for a GPU' 'instruction-set needs --device cpu' --device cuda --instruction-set plain
refuse 'graphs on a CPU' 'has no graphs' --graph on
refuse 'graphs of memory that moves' '--graph on needs --memory static' --device cuda --memory dynamic:pool --graph on
refuse "a GPU's allocator on a CPU" 'dynamic:pool' --memory dynamic:caching
refuse 'a simulated link between GPUs' '--fabric' --device cuda --fabric 10,10
if [ ! -e /dev/nvidiactl ]; then
    # shellcheck disable=SC2086
    refuse 'a GPU that is not there: named' 'cuda' --device cuda $small
    # shellcheck disable=SC2086
    refuse 'a GPU that is not there: what to do' 'cpu' --device cuda $small
else
    skip 'a GPU that is not there' 'there is one'
fi
export CUDA_DEVICE_MAX_CONNECTIONS=1
# shellcheck disable=SC2086
refuse 'one queue for all streams of a GPU' 'CUDA_DEVICE_MAX_CONNECTIONS' --device cuda $small
unset CUDA_DEVICE_MAX_CONNECTIONS
refuse 'half a fabric' '--fabric' --fabric 10
refuse 'a fabric without speed' '--fabric' --fabric 0,10
run "$train" $small --log same --trace same
check_refusal 'log and trace in one file' 'a file each'

# Files that are there already.
keep() # NAME WORDS FILE PROGRAM ARGUMENTS...: refused, and FILE is as it was
{
    name=$1 words=$2 file=$3
    shift 3
    cp "$file" "$work/before"
    run "$@"
    if ! cmp -s "$file" "$work/before"; then
        echo "# $file is not as it was" >>"$work/err"
        result 1 "$name"
    else
        check_refusal "$name" "$words"
    fi
}
cp "$text" "$work/notes.txt"
mkdir "$work/texts"
seq 1 2000 >"$work/texts/one"
"$train" $small --log "$work/ours.jsonl" --trace "$work/ours.json" >/dev/null 2>&1
cp "$work/ours.jsonl" "$work/texts/run.jsonl"
few="--text $text --model tiny --seq 32 --batch 1 --steps 4 --threads 1 --runs 1"
with_text="--model tiny --seq 32 --batch 1 --steps 2 --sample 0 --threads 1 --peak-seconds 0"
keep 'a log over the text that is trained on' 'already exists and is not a log of train' "$text" "$train" $small --log "$text"
keep 'a log over any other file' 'is not overwritten' "$work/notes.txt" "$train" $small --log "$work/notes.txt"
keep 'a log over a trace' 'is not a log of train' "$work/ours.json" "$train" $small --log "$work/ours.json"
keep 'a trace over a text' 'is not a trace' "$work/notes.txt" "$train" $small --trace "$work/notes.txt"
keep 'a log of ours that is trained on' 'is also read by --text' "$work/ours.jsonl" \
    "$train" --text "$work/ours.jsonl" $with_text --log "$work/ours.jsonl"
keep 'a log of ours that lies in a folder of texts' 'is also read by --text' "$work/texts/run.jsonl" \
    "$train" --text "$work/texts" $with_text --log "$work/texts/run.jsonl"
keep 'a log over a token file' 'is not overwritten' "$work/tokens.bin" \
    "$train" --tokens "$work/tokens.bin" $with_text --log "$work/tokens.bin"
keep 'a log over a config.json' 'is not overwritten' "$work/folder/config.json" \
    "$train" $small --log "$work/folder/config.json"
keep 'an export over a text' 'already exists' "$work/notes.txt" "$train" $small --export "$work/notes.txt"
keep 'a resumed log over a text' 'is not a log of train' "$work/notes.txt" \
    "$train" $small --resume "$work/none" --log "$work/notes.txt"
keep "headtohead's figures over a text" 'is not a comparison' "$work/notes.txt" "$headtohead" $few --json "$work/notes.txt"
keep "headtohead's page over a text" 'is not a page' "$work/notes.txt" "$headtohead" $few --html "$work/notes.txt"
ln "$work/ours.jsonl" "$work/link.jsonl"
run "$train" $small --log ./same --trace "../run/same"
check_refusal 'log and trace in one file, named in two ways' 'a file each'
run "$train" $small --log "$work/ours.jsonl" --trace "$work/ours.json"
[ $code = 0 ] && grep -q 'ours.jsonl: replacing an older log of train' "$work/err" &&
    grep -q 'ours.json: replacing an older trace' "$work/err" && [ "$(grep -c '"summary"' "$work/ours.jsonl")" = 1 ]
result $? 'a log and a trace of an earlier run are replaced, and that is said'
: >"$work/made"
run "$train" $small --log "$work/made" --trace /dev/null
[ $code = 0 ] && [ -s "$work/made" ] && [ ! -s "$work/err" ]
result $? 'an empty file becomes a log, and /dev/null takes a trace'
"$train" $small --log /dev/stdout --trace /dev/stdout >"$work/out" 2>"$work/err"
[ $? = 0 ] && grep -q '^tiny: ' "$work/out" && grep -q '^{"summary"' "$work/out" && grep -q '"traceEvents"' "$work/out"
result $? 'standard output takes a log and a trace, and loses nothing where it is a file'

# The comparison.
refuse_head() # NAME WORDS ARGUMENTS
{
    name=$1 words=$2
    shift 2
    run "$headtohead" --json out.json --html out.html "$@"
    check_refusal "$name" "$words"
}
refuse_head 'headtohead: an unknown model' 'is unknown' --model huge
refuse_head 'headtohead: a memory mode' 'leave it out' --memory static
refuse_head 'headtohead: an unknown variant' "'zero4' is no variant" --compare zero3,zero4
refuse_head 'headtohead: one variant' 'give at least two' --compare zero3
refuse_head 'headtohead: a variant twice' 'names ddp twice' --compare ddp,zero3,ddp
refuse_head 'headtohead: a variant of no bytes' "'auto-wrap:' is no variant" --compare zero3,auto-wrap:
refuse_head 'headtohead: a strategy beside one that is compared' 'set by ddp in --compare' --compare ddp,zero3 --strategy zero1
for option in '--bucketing 2,1' '--optimizer muon' '--offload-activations all --offload-folder .' '--offload-layers 1 --offload-folder .' \
    '--gather float8 --dtype bf16 --dynamic-offload'; do
    refuse_head "headtohead: dynamic memory with $option" "headtohead: ${option%% *}" $option --text "$text" --model tiny --seq 32
    ! grep -q '^run 1' "$work/out"
    result $? 'before the first run'
done
refuse_head 'headtohead: graphs on a CPU' 'has no graphs' --graph on
if [ ! -e /dev/nvidiactl ]; then
    refuse_head 'headtohead: a GPU that is not there' 'cuda' --device cuda --text "$text" --model tiny --seq 32 --batch 1
else
    skip 'headtohead: a GPU that is not there' 'there is one'
fi
refuse_head 'headtohead: no runs' '--runs is 0' --runs 0
refuse_head 'headtohead: text that is not there' 'No such file' --model tiny --text "$work/nothing"
refuse_head 'headtohead: more memory than there is' 'available' $beyond --text "$text"

# What was printed and did not arrive.
# shellcheck disable=SC2086
"$train" $small >/dev/full 2>"$work/err"
[ $? = 1 ] && grep -q 'standard output cannot be written' "$work/err"
result $? 'output to a full disk is no success'
for streams in 1 2 '0 1 2'; do
    # shellcheck disable=SC2086
    (cd "$work/run" && for fd in $streams; do eval "exec $fd>&-"; done && exec "$train" $small --log log.jsonl --csv table.csv) \
        >"$work/out" 2>"$work/err"
    [ $? = "$(case $streams in *1*) echo 1 ;; *) echo 0 ;; esac)" ] && [ -s "$work/run/log.jsonl" ] &&
        ! grep -v '^{' "$work/run/log.jsonl" >>"$work/err" && ! grep -v , "$work/run/table.csv" >>"$work/err"
    result $? "of closed streams ($streams) nothing goes into the files of a run, and lost output is no success"
done
finish
