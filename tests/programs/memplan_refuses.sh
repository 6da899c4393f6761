#!/bin/sh
# SPDX-License-Identifier: MIT
#
# Goal: bad input ends with status 2, a message that holds the words of the case, and nothing written.
# usage: memplan_refuses.sh MEMPLAN TRAIN PYTHON
set -u
. "$(dirname "$0")/memplan.sh"
"$memplan" --model tiny --json >a.json

refuse() # NAME WORDS ARGUMENTS
{
    name=$1 words=$2
    shift 2
    rm -f written.svg written.html
    run 2 "$words" --svg written.svg --html written.html "$@" && [ ! -e written.svg ] && [ ! -e written.html ]
    result $? "$name"
}
refuse 'no model' '--model is missing'
refuse 'an unknown model' "'gpt9' is neither" --model gpt9
refuse 'a file that is not there' 'No such file' --model ./nothing.json
refuse 'an unknown option' '--wrong' --model tiny --wrong
refuse 'a verification with pictures' '--verify prints differences' --model tiny --verify nothing.jsonl
run 2 'stand alone' --diff one.json other.json --model tiny
result $? 'a difference of a model'
"$memplan" --model tiny --seq 32 --world 2 --strategy all --world 4 --strategy zero2 >twice 2>err &&
    "$memplan" --model tiny --seq 32 --world 4 --strategy zero2 >once 2>>err && [ -s once ] && cmp once twice >>err
result $? 'of an option that is given twice the last counts'
refuse 'a world of 0' '--ranks is 0' --model tiny --world 0
refuse 'a world that is no whole nodes' 'not a multiple of --gpus-per-node' --model tiny --world 12
refuse 'a group that does not divide the world' 'do not divide' --model tiny --world 8 --strategy hsdp:3
refuse 'groups of none' "'hsdp:0'" --model tiny --strategy hsdp:0
refuse 'an unknown strategy' "'zero9'" --model tiny --strategy zero9
refuse 'a sequence above the context' 'longer than the model' --model gpt2 --seq 2048
refuse 'an unknown device' 'not in the table' --model tiny --device C64
refuse 'bytes that are none' "'80 apples'" --model tiny --device-memory '80 apples'
refuse 'memory of a device without a unit' 'bytes with their unit' --model tiny --device-memory 80
refuse 'memory outside without a unit' 'bytes with their unit' --model tiny --outside 2
refuse 'headroom of no device' 'of what?' --model tiny --headroom 5%
refuse 'headroom of a whole device' 'less than all' --model tiny --device H100 --headroom 100%
refuse 'headroom larger than the device' 'leaves nothing' --model tiny --device H100 --headroom 100GiB
refuse 'more blocks to recompute than there are' 'the model has only 32 blocks' --model llama-3-8b --recompute 99
refuse 'gradients apart of a head of its own' 'the head has weights of its own' --model llama-3-8b --gradients-apart
refuse 'gradients apart of what is frozen' 'with --lora it is frozen' --model gpt2 --lora r=4 --gradients-apart
"$memplan" --model llama-3.2-1b --ranks 64 --pp 4 --batch 1 >whole 2>err &&
    "$memplan" --model llama-3.2-1b --ranks 64 --pp 4 --batch 1 --gradients-apart >apart 2>>err && cmp whole apart >>err
result $? 'several stages have the gradients of a tied embedding apart, asked or not'
refuse 'a field that is nearly one' 'did you mean n_layer?' --model gpt2 --set n_layers=3
refuse 'a field of other families' 'did you mean num_hidden_layers?' --model llama-3-8b --set n_layer=3
run 2 'give --global-batch, and --device of A100, H100, H200 or B200' --model gpt2 --system megatron --fit best --device H100
result $? 'layouts without a global batch'
run 2 'megatron, megatron-fsdp and fsdp2 are searched' --model gpt2 --system deepspeed --fit best --device H100 --global-batch 64
result $? 'layouts of a system that has but one'
refuse 'a network of no time' 'give --time too' --model gpt2 --device H100 --network 50GB
refuse 'more micro-batches than a plan takes' 'give at most 4096' --model gpt2 --ranks 1 --global-batch 16777216
run 2 'x --seq is 137438953472 tokens; give at most' --model llama-3.1-405b --system megatron --batch 1048576 --seq 131072
result $? 'a batch out of range, of another system'
refuse 'the time on no device' 'give --device' --model gpt2 --time
refuse 'the time on a device without rates' 'no rates are known' --model gpt2 --time --device T4
run 2 'has no products in float8' --model gpt2 --system megatron --dtype fp8 --device A100-80GB --time
result $? 'the time of a type without rates'
refuse 'a price of nothing' 'give --tokens' --model gpt2 --price 2/h --device H100
refuse 'tokens that are none' "'15Q'" --model gpt2 --tokens 15Q --device H100
refuse 'an unknown system' "'deepmind'" --model tiny --system deepmind
run 2 'data parallelism alone' --model gpt2 --system deepspeed --tp 2
result $? 'groups of a system that is data-parallel alone'
run 2 'the model has no experts' --model llama-3-8b --ep 2
result $? 'experts of a model that has none'
run 2 'is no multiple of --tp 4' --model mixtral-8x7b --tp 4 --etp 2 --ep 3 --set num_local_experts=9 --ranks 24
result $? 'experts on ranks that hold other parts'
refuse 'virtual stages of no pipeline' 'give --pp' --model llama-3-8b --virtual-stages 2
run 2 'micro-batches in a multiple' --model llama-3-8b --pp 2 --virtual-stages 2 --micro-batches 3
result $? 'virtual stages without whole groups of micro-batches'
run 2 'give max-batch, max-seq, min-recompute' --model llama-3-8b --tp 2 --device H100 --fit min-gpus
result $? 'a search over parts'
run 0 'min-gpus: ranks 24 fits' --model llama-3-8b --ranks 6 --strategy hsdp:6 --device H100 --fit min-gpus
result $? 'the fewest GPUs of groups that do not divide the widest world'
run 2 'goes by time' --model llama-3-8b --device H100 --fit best-layout
result $? 'layouts of no global batch'
refuse 'parts, explained' "plan a rank's part" --model llama-3-8b --tp 2 --explain
refuse 'a sequence shared by one' 'give --tp' --model llama-3-8b --sequence-parallel
refuse 'a recompute of others' 'are of other systems' --model gpt2 --recompute selective
refuse 'modules that are none' 'core_attn, layernorm' --model gpt2 --recompute layernorm,ml
refuse 'a type of others' '--dtype fp8 is of other systems' --model gpt2 --dtype fp8
for words in '--state-dtype bf16' '--offload optimizer' '--frozen nf4'; do
    # shellcheck disable=SC2086 # a list of words
    refuse "$words of evenodd" 'is of other systems' --model gpt2 $words
done
refuse 'gradients that leave, added up' '--offload-gradients needs --micro-batches 1' --model gpt2 --offload-layers all \
    --offload-gradients --micro-batches 2
for option in '--offload-slots 1' --offload-gradients --late-updates; do
    # shellcheck disable=SC2086 # an option with its value
    refuse "$option of no layers" "${option% 1} needs --offload-layers N" --model gpt2 $option
done
refuse 'gradients that leave, joined' '--bucketing 1,3 with --offload-gradients' --model gpt2 --offload-layers all \
    --offload-gradients --bucketing 1,3
refuse 'more pieces of the head than tokens' '--head-chunks 7: a micro-batch has only 5 tokens' --model gpt2 --seq 5 --head-chunks 7
run 0 'note: --offload-activations has no effect' --model gpt2 --seq 16 --offload-activations 2
result $? 'activations that all stay in memory are told of'
refuse 'adapters of a layer that is none' 'they have c_attn, c_proj, c_fc' --model gpt2 --lora r=8,targets=q_proj
refuse 'adapters with Muon' 'give --optimizer adamw' --model gpt2 --lora 8 --optimizer muon
refuse 'adapters of a model that does not run' 'for models that run' --model deepseek-v3 --lora 8
run 2 'give a rank alone' --model llama-3-8b --system fsdp2 --lora r=8,targets=q_proj
result $? "another system's adapters of some layers are refused"
refuse 'a place to offload that is none' "'optimizer:tape'" --model gpt2 --system deepspeed --offload optimizer:tape
refuse 'two ways to say micro-batches' 'one of them is enough' --model gpt2 --micro-batches 2 --global-batch 64
refuse 'a global batch that cannot be' 'not a multiple of --batch 3 x 8' --model gpt2 --batch 3 --global-batch 64
for words in '--tp 3|not a multiple of --tp 3' '--pp 8 --ranks 8 --virtual-stages 3|does not divide the model' \
    '--ep 2|has no experts' '--recompute cheap|is evenodd' '--strategy zero3|takes zero1' '--fit max-batch|--fit best alone' \
    '--dtype fp32|in bf16, fp16 and fp8' '--etp 2|has no experts' '--recompute moe|has no experts' '--seq 1000000|longer than the model' '--tp 64 --ranks 64|heads'; do
    # shellcheck disable=SC2086 # a list of words
    run 2 "${words#*|}" --model llama-3-8b --system megatron ${words%|*}
    result $? "Megatron with ${words%|*}"
done
for refused in 'fsdp2 --recompute layernorm|--system fsdp2 takes none, selective, all or a number' \
    'fsdp2 --recompute block:2|takes none, selective, all or a number' 'fsdp2 --strategy zero2|--strategy: --system fsdp2 takes zero3' \
    'fsdp2 --offload optimizer|moves all state; give weights' 'fsdp2 --offload weights:disk|stage 3 alone does; give --system deepspeed' \
    'fsdp2 --ep 2|--ep: --system fsdp2 is planned without expert' 'fsdp2 --frozen nf4|nothing is frozen with --system fsdp2; give --lora' \
    'fsdp2 --gather float8|with --system fsdp2 give --dtype fp8' 'fsdp2 --strategy hsdp:8|--system fsdp2 takes zero3' \
    'deepspeed --cp 2|data parallelism alone; leave --tp, --pp' 'deepspeed --pp 2|deepspeed is planned without a pipeline' \
    'deepspeed --ep 2|deepspeed is planned without expert parallelism' \
    'deepspeed --sequence-parallel|and --sequence-parallel out' \
    'deepspeed --recompute uniform:2|--system deepspeed takes none, all' 'deepspeed --recompute selective|deepspeed takes none, all or a' \
    'deepspeed --strategy zero2 --offload weights|stage 3 alone moves weights; give --strategy zero3' \
    'deepspeed --strategy ddp --offload optimizer|ddp moves nothing; give --strategy zero3' \
    'deepspeed --strategy zero2 --offload optimizer:disk|stage 3 alone does' 'deepspeed --strategy hsdp:8|--system deepspeed takes' \
    'deepspeed --dtype fp8|deepspeed is planned in bf16 and fp16' 'deepspeed --gather float8|deepspeed give --dtype fp8' \
    'megatron-fsdp --offload optimizer|is planned without offloading' 'megatron-fsdp --lora 8|is planned without adapters' \
    'megatron-fsdp --pp 2|is planned without a pipeline' 'megatron-fsdp --dtype fp16|is planned in bf16 and fp8'; do
    # shellcheck disable=SC2086 # a list of words
    run 2 "${refused#*|}" --model llama-3-8b --system ${refused%|*}
    result $? "refused, and why: ${refused%|*}"
done
refuse 'no memory to fit into' 'the capacity is missing' --model tiny --fit max-batch
refuse 'a batch out of range' 'batch x seq' --model gpt2 --batch 1048576 --seq 1024
refuse 'one slot count' '--slots' --model tiny --slots 2
refuse 'a set that is none' 'KEY=VALUE' --model tiny --set n_layer
refuse 'a set that cannot be' 'n_head, 5, does not divide' --model tiny --set n_head=5
run 2 'neither the summary' --model tiny --verify text
result $? 'a log that holds nothing'
mkfifo pipe
ln -s /dev/zero zeros
run 2 'pipe: is not a file, but a pipe' --model tiny --verify pipe
result $? 'a log that is a pipe'
run 2 'zeros: is not a file, but a device' --model tiny --verify zeros
result $? 'a log that is a device'
for other in pipe zeros; do
    run 2 "$other: is not a file, but a" --diff a.json $other
    result $? "a plan to compare that is a $other"
done
run 2 'svg pipe: is not a file, but a pipe' --model tiny --svg pipe
result $? 'a picture into a pipe'
echo '{"model_type":"bert"}' >config.json
refuse 'a family that is not known' "'bert', an unknown family; known families" --model .
head -c 104857600 /dev/zero >model.safetensors
echo '{"model_type":"gpt2","n_layer":2,"n_embd":64,"n_head":4,"vocab_size":99}' >config.json
refuse 'safetensors that are 100 MB of nothing' 'does not begin with' --model .
head -c 104857600 /dev/zero | tr '\0' 7 >model.safetensors
refuse 'safetensors that are 100 MB of no header' 'by its first 8 bytes' --model .
echo '{"model_type":"gpt2","n_layer":1000,"n_embd":64,"n_head":4,"vocab_size":99}' >config.json
"$python" -c 'import struct, sys
body = b"{\"a\":[" + b"[]," * 2000000 + b"[]]}"
sys.stdout.buffer.write(struct.pack("<Q", len(body)) + body)' >model.safetensors
refuse 'a header of lists, which would be 50 times as large when it is parsed' 'values, more than a model of' --model .
rm -f model.safetensors
experts='"hidden_size":64,"num_attention_heads":4,"num_key_value_heads":2,"head_dim":16,"moe_intermediate_size":16'
experts="$experts,\"intermediate_size\":64,\"num_experts_per_tok\":2,\"vocab_size\":300"
echo "{\"model_type\":\"qwen3_moe\",\"num_hidden_layers\":4096,\"num_experts\":65536,$experts}" >config.json
refuse 'more experts in all than any model has' '4096 layers of 65536 experts are 268435456 experts' --model .
echo "{\"model_type\":\"qwen3_moe\",\"num_hidden_layers\":4096,\"num_experts\":2,$experts}" >config.json
refuse 'more layers than a plan takes' 'at most 4094 blocks are' --model .
refuse 'more layers than a plan takes, in halves' 'at most 2047 blocks are' --model . --granularity half \
    --set num_hidden_layers=2048
head -c 5000000 /dev/zero >config.json
refuse 'a config larger than any' 'larger than' --model .
rm -f config.json
mkfifo pipe.json
refuse 'a pipe' 'is not a file' --model ./pipe.json
run 2 'config.json' --model .
result $? 'a folder without a config'
run 2 'folder' --model tiny --svg nowhere/plan.svg
result $? 'a picture into a folder that is not there'
echo '{"model_type": "gpt2", "n_layer": 1, "n_embd": 64, "n_head": 4, "vocab_size": 301}' >mine.json
cp mine.json kept.json
for option in --svg --html; do
    run 2 "$option ./mine.json: already exists and is not a p" --model ./mine.json $option ./mine.json &&
        cmp mine.json kept.json >>err
    result $? "a config is not written over by $option"
done
(ulimit -f 8 && run 2 'File too large' --model tiny --json --svg cut.svg --html cut.html) && [ ! -e cut.html ]
result $? 'a limit on the size of files is said, and leaves no half file'
finish
