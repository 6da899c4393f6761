#!/bin/sh
# SPDX-License-Identifier: MIT
#
# Goal: memplan is what train reserves, over many settings.
# Method: train runs (--log) or plans (--plan), and memplan --verify compares.
# usage: memplan_beside_train.sh MEMPLAN TRAIN PYTHON
set -u
. "$(dirname "$0")/memplan.sh"

# settings of a run: train's words, then memplan's. Rows of train --plan are compared by name; a training is one of its log.
both() # HOW TRAIN_WORDS MEMPLAN_WORDS
{
    if [ "$1" = plan ]; then
        # shellcheck disable=SC2086 # lists of words
        "$train" --plan $2 --threads 1 >log 2>err || return 1
    else
        # shellcheck disable=SC2086
        rm -f log
        "$train" --text text --steps 2 --sample 0 --peak-seconds 0 --threads 1 --log log $2 >/dev/null 2>err || return 1
    fi
    # shellcheck disable=SC2086
    run 0 ' 0 differences' --kernels cpu $3 --verify log
}

base='--dtype fp32 --seq 64'
for world in 1 2 3 4; do
    both log "--model tiny --ranks $world --seq 64 --batch 1" "--model tiny --world $world $base"
    result $? "tiny, trained on $world ranks, reserved what was planned"
done
both log '--model llama-tiny --ranks 2 --seq 64 --batch 2 --micro-batches 2 --recompute cheap --slots 1,1' \
    "--model llama-tiny --world 2 $base --batch 2 --micro-batches 2 --recompute cheap --slots 1,1"
result $? 'llama-tiny, trained with micro-batches, cheap recompute and one slot each, reserved what was planned'
both log '--model tiny --ranks 2 --seq 64 --batch 2 --granularity half --recompute all --head-chunks 3' \
    "--model tiny --world 2 $base --batch 2 --granularity half --recompute all --head-chunks 3"
result $? 'tiny, trained in halves with everything recomputed and the head in pieces, reserved what was planned'
both log '--model tiny --ranks 2 --seq 64 --batch 1 --dtype bf16 --reduce bf16' \
    '--model tiny --world 2 --seq 64 --dtype bf16 --reduce bf16'
result $? 'tiny, trained in bf16, reserved what was planned'
for world in 2 3; do
    for dtype in fp32 bf16; do # Muon keeps one array for matrices: rows of state of unlike length
        both log "--model tiny --ranks $world --seq 64 --batch 1 --optimizer muon --dtype $dtype" \
            "--model tiny --world $world --seq 64 --optimizer muon --dtype $dtype"
        result $? "tiny, trained by Muon in $dtype on $world ranks, reserved what was planned"
    done
done
run 1 'state' --kernels cpu --model tiny --world 3 --seq 64 --optimizer adamw --verify log
result $? 'what Muon trained is not what is planned for AdamW'
for strategy in zero3 zero2 hsdp:2; do
    both log "--model tiny --ranks 4 --seq 64 --batch 1 --dtype bf16 --gather float8 --strategy $strategy" \
        "--model tiny --world 4 --seq 64 --dtype bf16 --gather float8 --strategy $strategy" && grep -q 'every row by name' out
    result $? "$strategy, gathered in float8, reserved what was planned"
done
run 1 'weights.float8.block.0 ' --kernels cpu --model tiny --world 4 --seq 64 --strategy hsdp:2 --gather dtype --verify log
result $? 'without float8 the plan lacks rows of the run'

planned=0
for model in tiny small base gpt2 gpt2-medium llama-tiny llama-small qwen2-tiny qwen3-tiny; do
    for world in 1 2 5 8; do
        for more in '--recompute none' '--recompute 2 --micro-batches 3' '--recompute cheap --slots 3,2' \
            '--recompute all --granularity half --head-chunks 2' '--dtype bf16 --micro-batches 2'; do
            dtype=fp32
            case $more in *dtype*) dtype= ;; esac
            both plan "--model $model --ranks $world --seq 128 --batch 2 $more" \
                "--model $model --world $world --seq 128 --batch 2 ${dtype:+--dtype $dtype} $more" || break 3
            planned=$((planned + 1))
        done
    done
done
[ $planned = 180 ]
result $? "$planned plans of train have memplan's rows, by name"
planned=0
for model in tiny llama-tiny qwen3-tiny; do
    for world in 2 6; do
        for strategy in ddp zero1 zero2 hsdp:2; do
            for more in '--recompute cheap --slots 3,2' '--recompute 2 --micro-batches 3 --granularity half' \
                '--recompute none --head-chunks 2 --slots 1,1 --micro-batches 2'; do
                more="$more --strategy $strategy"
                both plan "--model $model --ranks $world --seq 128 --batch 2 $more" \
                    "--model $model --world $world --seq 128 --batch 2 --dtype fp32 --gpus-per-node $world $more" || break 4
                planned=$((planned + 1))
            done
        done
    done
done
[ $planned = 72 ]
result $? "$planned plans of other strategies have memplan's rows, by name"
if [ -n "${EO_TEST_FULL:-}" ]; then # a step of each preset whose ranks fit into this machine; of the others the plan
    for model in tiny small base gpt2 gpt2-medium gpt2-large gpt2-xl llama-tiny llama-small llama-1b qwen2-tiny qwen3-tiny; do
        bytes=$("$memplan" --model $model --world 2 --seq 64 --dtype fp32 --kernels cpu --json |
            "$python" -c 'import json, sys; print(2 * json.load(sys.stdin)["arena_bytes"])')
        free=$(awk '/^MemAvailable/ { printf "%.0f", $2 * 1024 }' /proc/meminfo)
        how=plan
        [ "$bytes" -lt $((free / 10 * 4)) ] && how=log
        both $how "--model $model --ranks 2 --seq 64 --batch 1" "--model $model --world 2 --seq 64 --dtype fp32"
        result $? "$model on 2 ranks ($how, $((bytes >> 20)) MiB) is what was planned"
    done
fi
"$train" --plan --model gpt2 --ranks 4 --threads 1 --seq 128 >log
run 1 'planned' --kernels cpu --model gpt2 --world 4 --seq 128 --dtype fp32 --batch 3 --verify log
result $? 'another batch is a difference, and exit status 1'
sed 's/  39385600/  39385601/' log >spoiled
run 1 'weights.embedding, bytes' --kernels cpu --model gpt2 --world 4 --seq 128 --dtype fp32 --batch 2 --verify spoiled
result $? 'a byte in a row is a difference'

# A log's first line is the plan, which is compared like what --plan prints.
both log '--model tiny --ranks 2 --seq 64 --batch 1' "--model tiny --world 2 $base" && grep -q 'every row by name' out
result $? 'the rows of a log of train are compared by name'
spoil() # SED_EXPRESSION WORDS
{
    sed "1$1" log >spoiled
    ! cmp -s log spoiled && run 1 "$2" --kernels cpu --model tiny --world 2 $base --verify spoiled &&
        grep -q ' 1 difference$' out
}
spoil 's/\("name":"weights.block.1",[^}]*"bytes":\)/\11/' 'weights.block.1, bytes'
result $? 'bytes of a row of the log are a difference'
{ printf '\357\273\277' && cat log; } >spoiled
run 0 ', every row by name, 0 differences' --kernels cpu --model tiny --verify spoiled
result $? 'a mark of the byte order before the log is no part of it'
sed '1s/}/,/' log >spoiled
run 2 'spoiled: line 1 is no JSON' --kernels cpu --model tiny --world 2 $base --verify spoiled
result $? 'a line that is no JSON is refused by its number'
sed 1d log >spoiled
run 2 'spoiled: the log has no line with a plan' --kernels cpu --model tiny --world 2 $base --verify spoiled
result $? 'a log without a plan is no success'
{ cat log && printf '{"step":3,"lo'; } >spoiled
run 0 ', every row by name, 0 differences' --kernels cpu --model tiny --verify spoiled
result $? 'a last line that a killed run left is passed over'
spoil 's/\("name":"gradient.block.1",[^}]*"offset":\)/\11/' 'gradient.block.1, offset'
result $? 'the offset of a row of the log is a difference'
spoil 's/{"name":"state0.block.1"[^}]*},//' 'is only in the plan'
result $? 'a row that the log lacks is a difference'

# The settings of the run are in its log.
planned=0
while read -r more; do
    # shellcheck disable=SC2086 # a list of words
    "$train" --plan --model tiny --threads 1 $more >log 2>err && run 0 ' 0 differences' --model tiny --verify log &&
        grep -q 'every row by name' out && ! grep -q otherwise out || break
    planned=$((planned + 1))
done <<'END'
--ranks 2 --seq 64 --batch 3
--ranks 4 --seq 32 --dtype bf16 --reduce bf16 --strategy hsdp:2 --micro-batches 2
--ranks 3 --seq 48 --strategy zero2 --slots 1,1 --recompute cheap --head-chunks 3
--world 12 --seq 48 --recompute 2 --granularity half --no-prefetch
--ranks 2 --seq 64 --device cuda --dtype bf16 --graph on
--ranks 2 --seq 64 --dtype bf16 --ema 0.999 --dropout 0.1
--ranks 4 --seq 64 --dtype bf16 --gather float8
--ranks 2 --seq 64 --optimizer sgd
--ranks 2 --seq 64 --dtype bf16 --optimizer lion --offload-layers all
--ranks 3 --seq 64 --dtype bf16 --optimizer adamw8bit --offload-layers all
--ranks 3 --seq 64 --optimizer adamw8bit --ema 0.99
--ranks 3 --seq 64 --dtype bf16 --optimizer muon
--ranks 2 --seq 64 --lora 4
--ranks 3 --seq 64 --dtype bf16 --lora r=4,alpha=2 --frozen mxfp8 --offload-layers 2
END
[ $planned = 14 ]
result $? "--verify takes the settings from what train --plan prints ($planned of 14); names of rows may hold spaces"
both log '--model tiny --ranks 2 --seq 64 --batch 2 --strategy zero1' '--model tiny' && grep -q 'every row by name' out
result $? 'and from a log'
cp log second && both log '--model tiny --ranks 1 --seq 32 --batch 1' '--model tiny' && cat second >>log &&
    run 0 ', every row by name, 0 differences' --model tiny --verify log && mv second log
result $? 'of a log that two runs have written to the last plan is compared'
run 1 'said otherwise than the log: --batch 3 (the log: 2), --dtype bf16 (the log: fp32)' --model tiny --batch 3 --dtype bf16 \
    --verify log && head -n 1 out | grep -q '^said otherwise' && grep -q '^  .*planned' out
result $? 'what is said otherwise than the log is told before any row'
sed 's/"settings":"--ranks/"settings":"--rancs/' log >spoiled
run 2 "'--rancs', which is no option" --model tiny --verify spoiled
result $? 'a log with settings that nobody knows'

# Strategies: trained on 4 ranks, and held against the plan by name.
for strategy in ddp zero1 zero2 hsdp:2; do
    both log "--model tiny --ranks 4 --seq 64 --batch 1 --micro-batches 2 --strategy $strategy" \
        "--model tiny --world 4 $base --micro-batches 2 --strategy $strategy" && grep -q 'every row by name' out
    result $? "$strategy, trained on 4 ranks, reserved what was planned"
done
run 1 'weights.block.0, bytes' --kernels cpu --model tiny --world 4 $base --micro-batches 2 --strategy zero3 --verify log
result $? 'another strategy is a difference'
both log '--model tiny --ranks 2 --seq 64 --batch 1 --memory dynamic:pool' "--model tiny --world 2 $base" &&
    grep -q 'reserved no arena; only its plan is compared' out && grep -q 'every row by name' out
result $? 'the log of a dynamic run, which reserves nothing, is held against its plan'
run 0 'strategies, each planned' --kernels cpu --model tiny --world 16 --strategy all && grep -q 'hsdp:8 *zero3' out
result $? 'all strategies stand side by side'
run 0 'best-strategy: strategy zero1 fits' --kernels cpu --model tiny --world 4 --device-memory 80GiB --fit best-strategy
result $? 'what fits with the least to receive is the best strategy'

# Models of a config.json: train and memplan read the same file, to the same plan.
mkdir gpt2 llama mistral qwen2 qwen3
echo '{"model_type":"gpt2","n_layer":3,"n_embd":96,"n_head":6,"vocab_size":301,"n_positions":160}' >gpt2/config.json
echo '{"model_type":"llama","num_hidden_layers":2,"hidden_size":64,"num_attention_heads":4,"num_key_value_heads":2,
    "intermediate_size":172,"vocab_size":300,"tie_word_embeddings":true}' >llama/config.json
echo '{"architectures":["MistralForCausalLM"],"num_hidden_layers":2,"hidden_size":128,"num_attention_heads":16,
    "intermediate_size":344,"vocab_size":515,"sliding_window":4096,"rms_norm_eps":1e-5}' >mistral/config.json
echo '{"model_type":"qwen2","num_hidden_layers":2,"hidden_size":64,"num_attention_heads":4,"intermediate_size":172,
    "num_key_value_heads":2,"vocab_size":300}' >qwen2/config.json
echo '{"model_type":"qwen3","num_hidden_layers":2,"hidden_size":64,"num_attention_heads":4,"intermediate_size":172,
    "num_key_value_heads":2,"head_dim":24,"vocab_size":300}' >qwen3/config.json
planned=0
for model in gpt2/config.json llama llama/config.json ./mistral qwen2 qwen3; do
    for world in 1 3 4; do
        for more in '' '--recompute all --micro-batches 2' '--recompute cheap --slots 1,2 --head-chunks 2'; do
            both plan "--model ./$model --ranks $world --seq 48 --batch 2 $more" \
                "--model ./$model --world $world --seq 48 --batch 2 --dtype fp32 $more" &&
                grep -q 'every row by name' out || break 3
            planned=$((planned + 1))
        done
    done
done
[ $planned = 54 ]
result $? "$planned plans of train for a config.json have memplan's rows, by name"
for model in gpt2 llama qwen2 qwen3 mistral; do
    both log "--model ./$model --ranks 2 --seq 64 --batch 2" "--model ./$model --world 2 $base --batch 2" &&
        grep -q 'every row by name' out
    result $? "a $model of a config.json, trained, reserved what was planned"
    "$memplan" --model ./$model --kernels cpu | sed -n 's/^note: the config leaves unset: //p; s/^ \{31\}\([^ ]\)/\1/p' >said
    "$train" --model ./$model --plan 2>err >out && sed -n 's/^the config leaves unset: //p; s/^ \{25\}//p' err >out &&
        [ -s said ] && cmp -s said out
    result $? "what the $model's config left out is listed once by train, as by memplan"
done
# The last of them was mistral, with a window shorter than its context.
grep -q 'warning: .*ignore sliding_window 4096' err && "$train" --model ./llama --plan 2>err >out &&
    ! grep -q warning err
result $? "a field that the layers do not compute is warned of, where it is there"
tr -d '\n' <llama/config.json | sed 's/}$/,"rope_scaling":{"type":"yarn","factor":4.0}}/' >yarn.json
"$memplan" --model ./yarn.json >out 2>err && "$train" --model ./yarn.json --plan >out 2>err &&
    grep -q 'ignore rope_scaling of type yarn' err
result $? "positions that the layers do not compute are planned all the same"
both plan '--model llama-3-8b --ranks 8 --seq 512 --dtype bf16' '--model llama-3-8b --world 8 --seq 512 --batch 2'
result $? "a published model has one plan by its name, too"
both plan '--model qwen3-8b --ranks 8 --seq 512 --recompute cheap' '--model qwen3-8b --world 8 --seq 512 --batch 2 --dtype fp32 --recompute cheap'
result $? "so has one with norms of q and k"
finish
