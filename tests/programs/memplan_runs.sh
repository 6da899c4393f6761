#!/bin/sh
# SPDX-License-Identifier: MIT
#
# Goal: memplan is what train reserves, over many settings; its exit statuses and messages are what a script can rely on.
# Method: train runs (--log) or plans (--plan) and memplan --verify compares; bad input must end with status 2, a message
#         that holds the words of the case, and nothing written.
# usage: memplan_runs.sh MEMPLAN TRAIN PYTHON
set -u
. "$(dirname "$0")/../tap/tap.sh"
memplan=$(realpath "$1") train=$(realpath "$2") python=$3
picture=$(realpath "$(dirname "$0")/../../docs/arena.svg")
enter_folder
shown="$work/out $work/err"

run() # STATUS WORDS ARGUMENTS
{
    status=$1 words=$2
    shift 2
    timeout 100 "$memplan" "$@" >"$work/out" 2>"$work/err"
    code=$?
    [ $code = "$status" ] || { echo "# exit status $code, not $status" >>"$work/err"; return 1; }
    cat "$work/out" "$work/err" | grep -qF -e "$words" || { echo "# it does not say: $words" >>"$work/err"; return 1; }
}

seq 1 4000 >text

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
END
[ $planned = 12 ]
result $? "--verify takes the settings from what train --plan prints ($planned of 12)"
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

# Exit statuses.
run 0 ': FITS, ' --model llama-3-8b --device H100
result $? 'what fits is 0'
run 1 'DOES NOT FIT' --model llama-3-70b --device H100
result $? 'what does not is 1'
run 0 'GiB left; batch' --model llama-3-8b --device H100 --fit max-batch
result $? 'a search gives its neighbour'
run 1 'nothing fits' --model llama-3-70b --device H100 --world 1 --fit max-batch && grep -q 'would fit: --ranks 16 --recompute all' out &&
    run 0 ': FITS, ' --model llama-3-70b --device H100 --ranks 16 --recompute all
result $? 'a search that finds nothing is 1, and says what would fit, which does'
run 1 'would fit: --recompute all' --model llama-3-8b --device A100-40GB --seq 8192 && run 0 ': FITS, ' --model llama-3-8b \
    --device A100-40GB --seq 8192 --recompute all
result $? 'what does not fit comes with what would'
run 0 'agrees' --published && [ "$(grep -c '^| .* | \(agrees\|shown\) |$' out)" -ge 50 ] && ! grep -q WRONG out
result $? 'published figures agree, at least 50 of them'
run 0 '' --model gpt2-xl --set n_layer=6 --batch 4 --kernels cpu --svg arena.svg && cmp "$picture" arena.svg >err 2>&1 &&
    grep -A1 '^</style>' arena.svg | tail -n 1 | grep -q '^<rect class="paper" width="100%" height="100%"/>$' # readers draw no CSS background
result $? "README's picture is what memplan draws, on paper of its own"
run 0 'roundup' --model qwen3-8b --explain
result $? 'formulae are shown with their numbers'
run 0 'roundup128(7 x 1000 / 3) x roundup64(50257) x 2' --model gpt2 --batch 7 --seq 1000 --head-chunks 3 --explain &&
    [ "$(awk '$1 == "head.logits" { print $4 }' out)" = $((2432 * 50304 * 2)) ]
result $? "a GPU's head: 64 words, 128 tokens of a piece; GPUs' kernels are planned in every build"
run 0 'planned, not run' --model mixtral-8x7b
result $? 'a family without kernels is said to be planned, not run'

# An answer in three lines, and a table that adds up.
cat >answer.py <<'END'
import re, subprocess, sys
memplan, words = sys.argv[1], sys.argv[2:]
done = subprocess.run([memplan] + words, stdout=subprocess.PIPE, text=True, check=False)
assert done.returncode < 2, words
lines = done.stdout.split("\n")
assert lines[3] == "" and all(lines[:3]) and max(map(len, lines[:3])) <= 100, lines[:4]
assert lines[1].startswith("peak") and re.match("(try|would fit): ", lines[2]), lines[:3]
rows = [line for line in lines[5:] if re.match(r"[a-z]+ +\d+ +\d+\.\d{3} +\d+\.\d  ", line)]
figures = [(int(row.split()[1]), float(row.split()[2])) for row in rows]
assert rows[-1].startswith("total") and len(rows) > 5 and max(map(len, rows)) <= 100, rows
assert sum(bytes_ for bytes_, _ in figures[:-1]) == figures[-1][0], figures
assert abs(sum(gib for _, gib in figures[:-1]) - figures[-1][1]) < 0.0005 * len(rows), figures
END
planned=0
while read -r words; do
    # shellcheck disable=SC2086 # a list of words
    "$python" answer.py "$memplan" $words >out 2>err || break
    planned=$((planned + 1))
done <<'END'
--model llama-3-8b --device A100-80GB --seq 8192
--model llama-3-70b --device H100
--model llama-3-70b --ranks 64 --strategy hsdp:8 --device H100 --headroom 5% --micro-batches 4
--model llama-3-70b --device H100 --batch 16 --headroom 10%
--model llama-3-8b --device H100 --ranks 64 --strategy ddp --batch 64
--model gpt2 --strategy zero1
--model gpt2 --strategy ddp --micro-batches 2 --device-memory 8GiB
--model tiny --kernels cpu --dtype fp32
--model mixtral-8x7b --ranks 64 --granularity half
--model llama-3.1-405b --ranks 16384 --seq 131072 --device H200 --outside 3GiB
--model gpt2 --recompute all --batch 2
--model llama-3-8b --device H100 --fit max-batch
END
[ $planned = 12 ]
result $? "the answer is three lines of at most 100 columns, and so is its table, which adds up ($planned of 12)"
run 0 'FITS, 52.3 of 79.1 GiB, 26.9 spare' --model llama-3-8b --device A100-80GB --seq 8192 &&
    grep -q '^try: --recompute cheap 41.5 GiB, all 21.2; batch 2 lacks 7.7; 4 GPUs fit with 15.1 left$' out &&
    grep -q ' 8.03 B parameters' out && ! grep -q DeepSpeed out && run 0 DeepSpeed --model llama-3-8b --explain
result $? 'it says what to try; the rest is behind --explain'
for more in '--recompute cheap|41.5 of' '--recompute all|21.2 of' '--batch 2|7.7 lacking' '--ranks 4|15.1 spare'; do
    # shellcheck disable=SC2086 # a list of words
    "$memplan" --model llama-3-8b --device A100-80GB --seq 8192 ${more%|*} | head -n 1 | grep -q " ${more#*|}" || break
    more=
done
[ -z "$more" ]
result $? 'what it says to try comes out so'
"$memplan" --model llama-3-8b --ranks 16 >a && "$memplan" --model llama-3-8b --world 16 >b && cmp a b >err && [ -s a ]
result $? '--ranks and --world are one option'
"$train" --model tiny --plan --world 3 >a && "$train" --model tiny --plan --ranks 3 >b && cmp a b >err && grep -q 'ranks 3' a
result $? '... of train, too'
run 2 'the model has only 4 blocks' --model tiny --recompute 5 && ! "$train" --model tiny --plan --recompute 5 >out 2>err &&
    grep -q 'the model has only 4 blocks' err
result $? '... which refuses to recompute more blocks than there are, as memplan'
run 0 'FITS, ' --model llama-3-8b --device H100 --fit max-batch --headroom 15% && grep -q 'max-batch: batch 2 fits' out &&
    grep -q 'headroom 11.9' out && run 0 'max-batch: batch 3 fits' --model llama-3-8b --device H100 --fit max-batch
result $? 'headroom counts in a search'
run 0 'best: batch' --model llama-3-8b --device H100 --fit best && words=$(sed -n 's/^    \(--strategy.*\)/\1/p' out) &&
    head -n 1 out >a && "$memplan" --model llama-3-8b --device H100 $words | head -n 1 >b && cmp a b >>err && [ -n "$words" ]
result $? "the best of all is a command line ($words)"
small='--model llama-3.2-1b --set num_hidden_layers=4 --ranks 4 --gpus-per-node 2 --device A100-40GB --global-batch 16 --seq 2048'
small="$small --granularity block --time"
seconds_of() { sed -n 's/^time: \([0-9.]*\) s a step.*/\1/p' out; }
rounds=0
run 0 'best-layout: batch' $small --fit best-layout && best=$(seconds_of) && [ -n "$best" ] && grep -q 'by the clock' out &&
    words=$(sed -n 's/^    \(--.*--granularity .*\)/\1/p' out) && run 0 "$best s a step" $small $words &&
    for cut in '' '--tp 2' '--pp 2' '--tp 2 --pp 2' '--tp 4' '--pp 4'; do
        run 0 'best: batch' $small --fit best $cut && seconds_of | awk -v best="$best" '{ bad += $1 < best - 0.0005 } END { exit NR != 1 || bad }' || break
        rounds=$((rounds + 1))
    done && [ $rounds = 6 ]
result $? "no layout's best is faster than the best layout ($words)"
run 0 'by a rule' --model llama-3.2-1b --set num_hidden_layers=4 --device-memory 40GiB --fit best &&
    run 0 'by the clock' --model llama-3.2-1b --set num_hidden_layers=4 --device A100-40GB --fit best
result $? 'the best is the fastest by the clock, where rates are known'
run 0 'time: ' --model llama-3-8b --ranks 64 --seq 2048 --device H100 --time --gather float8 &&
    narrow=$(sed -n 's/^time: \([0-9.]*\) s.*/\1/p' out) && run 0 'time: ' --model llama-3-8b --ranks 64 --seq 2048 --device H100 --time &&
    awk -v narrow="$narrow" '/^time: / { exit !(narrow < $2) }' out
result $? "evenodd's own gathers in float8 take less time: ${narrow:-}"
run 0 'x 4 micro-batches' --model llama-3-8b --ranks 8 --device H100 --global-batch 32 --batch 1 --fit best
result $? 'a global batch is kept'
run 0 'granularity half' --model llama-3-8b --device H100 --fit best --strategy zero2 --recompute all --granularity half \
    --batch 1 && grep -q -e '--strategy zero2 --recompute all --batch 1 --granularity half' out
result $? 'what is given is kept'

run 0 'min-gpus: ranks 4 fits' --model llama-3-70b --lora 16 --device H100 --fit min-gpus --seq 4096 --recompute all &&
    grep -q 'ranks 2 lacks' out && run 0 'min-gpus: ranks 2 fits' --model llama-3-8b --optimizer adamw8bit --seq 512 --recompute all \
    --device A6000 --fit min-gpus && grep -q 'ranks 1 lacks' out
result $? 'the fewest GPUs of a state that is smaller than AdamW'"'"'s'
run 0 'min-gpus: ranks 1 fits' --model tiny --kernels cpu --outside 0B --device-memory 50MiB --fit min-gpus &&
    run 1 'at any world size is too large' --model llama-3-70b --batch 64 --device H100 --fit min-gpus
result $? 'the widest world takes most of a small model; of a large one none fits'
run 0 'min-gpus: ranks 2 fits' --model llama-3-8b --device H100 --gpus-per-node 6 --fit min-gpus &&
    run 0 'min-gpus: ranks 16 fits' --model llama-3-8b --device H100 --strategy hsdp:16 --fit min-gpus
result $? 'the fewest GPUs go by nodes and groups, not by the default of --ranks'
run 0 'max-batch: batch 4 fits with 23.338 GiB left; batch 8 lacks' --model llama-3-8b --device H100 --global-batch 64 --seq 2048 \
    --fit max-batch && head -n 1 out | grep -q ' 2 x 8192 tokens' && run 0 ', 32 x 2048 tokens: ' --model llama-3-8b --device H100 \
    --global-batch 64 --seq 2048 --fit min-gpus && run 1 'is no 1 to 4096 micro-batches of' --model llama-3-70b \
    --device H100 --global-batch 63 --seq 2048 --recompute all --fit min-gpus --strategy hsdp:64
result $? 'a global batch is kept in searches for the batch and the world'
stages='--model llama-3-70b --ranks 40 --pp 5 --device H100 --strategy zero3 --recompute all --batch 1 --global-batch 40'
# shellcheck disable=SC2086 # a list of words
run 0 'best: batch 1 fits' $stages --tp 8 --virtual-stages 2 --sequence-parallel --granularity block --fit best --time &&
    run 0 '--pp 5 --strategy zero3 --recompute all --batch 1' $stages --fit best-layout &&
    run 0 'best-layout: batch' --model llama-3.2-1b --ranks 64 --global-batch 32 --device H100 --batch 1 --recompute none --fit best-layout
result $? 'the best of interleaved stages; of five stages; of a global batch that whole models cannot share'
run 0 'max-seq: seq 8192 fits' --model llama-3-8b --device H100 --cp 2 --fit max-seq && run 0 'max-seq: seq 27584 fits' --model \
    llama-3.2-1b --device A100-40GB --batch 8 --tp 2 --sequence-parallel --cp 4 --fit max-seq && grep -q 'seq 27592 lacks' out
result $? 'the longest sequence that its ranks share evenly'
run 2 'is not a multiple of --tp 4096 x --pp 4096 x --cp 4096 = 68719476736' --model llama-3-8b --tp 4096 --pp 4096 --cp 4096 \
    --global-batch 8 --device H100 --fit best
result $? 'groups of more ranks than 32 bits count'
run 2 '--seq 4096 is not a multiple of --cp 5' --model qwen3-8b --ranks 10 --gpus-per-node 10 --cp 5
result $? 'a sequence of its own choice is shared evenly, too'

# Other systems: estimates, in one contract.
run 0 'megatron tp4 pp4 dp4, 4096 tokens: FITS, 61.4 of 79.1 GiB (estimate)' --system megatron --model llama-3-70b --ranks 64 \
    --tp 4 --pp 4 --sequence-parallel --global-batch 64 --device H100 && grep -q '^meaning: allocated' out &&
    grep -q ', 16 micro-batches' out && head -n 3 out | awk 'length > 100 { exit 1 }'
result $? "Megatron's part of a rank, with what the figure means"
words=$(sed -n 's/^try: .*; \(--tp 8 --sequence-parallel\) 38.3.*/\1/p' out)
# shellcheck disable=SC2086 # a list of words
[ -n "$words" ] && run 0 'FITS, 38.3 of' --system megatron --model llama-3-70b --ranks 64 --tp 4 --pp 4 --global-batch 64 --device \
    H100 $words
result $? 'what it says to try comes out so'
run 0 'megatron-fsdp tp2 dp4, 8192 tokens: FITS, 44.7 of 79.1 GiB (estimate)' --system megatron-fsdp --model llama-3-8b --seq 8192 \
    --tp 2 --device H100 && run 0 "offloaded: 0.000 GiB of the host's memory, 16.827 GiB of disk" --system deepspeed --model \
    llama-3-8b --offload weights:disk && run 0 ', adamw8bit, state in bf16, LoRA of rank 16 on nf4, weights and optimizer on the host' \
    --system fsdp2 --model llama-3-8b --offload weights --lora 16 --frozen nf4 --optimizer adamw8bit --state-dtype bf16 &&
    run 0 'recompute 32 of 32 blocks in units of 4, fp8' --system megatron --model llama-3-8b --recompute uniform:4 --dtype fp8
result $? "settings of other systems' runs are told"
run 1 'DOES NOT FIT' --system megatron --model llama-3-8b --ranks 8 --seq 8192 --device H100
result $? 'an estimate that does not fit is 1'
run 1 'megatron cp2 dp32768: DOES NOT FIT, ' --system megatron --model llama-3.1-405b --ranks 65536 --cp 2 --seq 131072 --device \
    A100-80GB && head -n 3 out | awk 'length > 100 { exit 1 }' && grep -q 'batch 1 x 131072 tokens' out
result $? '... in lines of at most 100 columns, whatever its size'
run 0 '  total               52.286        98.494        62.000        64.573        91.741' --compare --model llama-3-8b --seq 8192 &&
    run 0 '  total               48.983        92.469        50.653        30.716             -' --compare --model llama-3-70b --ranks 64 --tp 8 --micro-batches 4
result $? 'systems stand side by side, and those without such a layout say so'
run 0 '  total  ' --compare --model llama-3-70b --ranks 8 --device-memory 10GiB && \
    "$memplan" --help | tr -s ' \n' ' ' | grep -q -e '--compare gives no verdict'
result $? '... and give no verdict, as --help says of the exit status'
"$memplan" --model llama-3-8b --system fsdp2 --ranks 16 --tp 2 --json --device H100 >estimate.json 2>err &&
    "$memplan" --model llama-3-8b --ranks 16 --json >plan.json 2>>err && "$python" - <<'END' >out 2>>err
import json
for name, keys in (("estimate.json", ("fits", "capacity_bytes", "memory_error")), ("plan.json", ("rows",))):
    answer = json.load(open(name))
    for key in keys + ("state_bytes", "activation_bytes", "peak_bytes", "memory_meaning", "parameters", "total_bytes"):
        assert key in answer, (name, key)
    assert answer["parameters"] <= answer["state_bytes"] < 1.1 * answer["parameters"], name
    assert 0 < answer["activation_bytes"] < answer["peak_bytes"] <= answer["total_bytes"], name
answer = json.load(open("estimate.json"))
assert sum(answer["parts_at_peak"].values()) == answer["peak_bytes"] == answer["total_bytes"] - answer["outside_bytes"]
assert answer["settings"]["data_parallel"] == 8
END
result $? 'the contract of JSON is that of all systems, and its sums are right'
run 0 '"micro_batches": 4' --model llama-3-8b --ranks 8 --batch 2 --global-batch 64 --json
result $? "a global batch sets evenodd's micro-batches, too"

run 0 'has no --recompute selective, block:N' --compare --model llama-3-8b --recompute block:2 && run 0 'has no --dtype fp16' \
    --compare --model llama-3-8b --dtype fp16 && run 0 'has no --state-dtype bf16, --offload' --compare --model llama-3-8b \
    --offload weights && run 0 'has no --state-dtype bf16' --compare --model llama-3-8b --state-dtype bf16
result $? "what evenodd does not have is told in its column"
run 2 "uniform:17: a stage's chunk has only 16 blocks" --model llama-3-8b --system megatron --pp 2 --recompute uniform:17 &&
    run 0 'try: --recompute all 62.5 GiB' --model llama-3-8b --system megatron --device H100 --recompute block:2 &&
    run 0 'FITS, 62.5 of' --model llama-3-8b --system megatron --device H100 --recompute all
result $? "units of more blocks than a stage has; what all of them would take"

# What an answer says of its error is what the table has.
"$memplan" --published >published.txt 2>err && "$memplan" --system fsdp2 --model llama-3-8b >fsdp2.txt 2>>err && "$python" - <<'END' >out 2>>err
import re
rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in open("published.txt") if "| FSDP2 (not ours) |" in line]
active = [row for row in rows if row[6] == "max active"]
below = sorted(round(-float(row[5].split()[0])) for row in active)
times = [float(row[3]) / float(row[2]) for row in rows if row[6] == "max reserved"]
said = re.search(r"^error: (.*)", open("fsdp2.txt").read(), re.M).group(1)
assert said.startswith("%d and %d %% below two published runs; nine others reserved %.2f to %.2f times it" %
                       (*below, min(times), max(times))) and len(active) == 2 and len(times) == 9, (said, below, times)
END
result $? "FSDP2's error is that of the published runs"

# Beside groups of the trainer: a rank's part, planned.
run 0 'llama-3-70b, 64 x H100, zero3 tp4 pp4: FITS, 44.1 of 79.1 GiB, 35.0 spare (planned, not run)' --model llama-3-70b --ranks 64 \
    --tp 4 --pp 4 --sequence-parallel --global-batch 64 --device H100 &&
    grep -q 'stage 1 of 4, the fullest, 4 micro-batches in flight' out && run 0 '"in_flight": 4' --model llama-3-70b --ranks 64 --tp 4 \
    --pp 4 --sequence-parallel --global-batch 64 --device H100 --json && grep -q '"data_parallel": 4' out
result $? "a rank's part beside tensor and pipeline groups"
run 0 'llama-3-8b, 16 GPUs, zero3 tp2: ' --model llama-3-8b --ranks 16 --tp 2 --seq 4096 && run 0 '"arena_bytes"' --model llama-3-8b \
    --ranks 16 --tp 2 --seq 4096 --json && cp out part.json && run 0 '"arena_bytes"' --model llama-3-8b --ranks 8 --seq 4096 --json \
    --set num_attention_heads=16 --set num_key_value_heads=4 --set intermediate_size=7168 --set vocab_size=64128 --set head_dim=128 &&
    "$python" -c 'import json; a, b = json.load(open("part.json")), json.load(open("out")); assert a["rows"] == b["rows"] != []'
result $? '... is a smaller model: every row is that of a config of its size'
run 0 'max-batch: batch 1 fits with 5.642 GiB left; batch 2 lacks 45.979 GiB' --model llama-3-70b --ranks 64 --tp 2 --device H100 --fit \
    max-batch
result $? '... and is searched'

# Time and price.
run 0 'training: 1e+12 tokens take 248.5 days on 64 GPUs and cost 954349 at 2.5 an hour and GPU' --system megatron --model \
    llama-3-70b --ranks 64 --tp 4 --pp 4 --sequence-parallel --global-batch 64 --device H100 --tokens 1T --price 2.5/h &&
    grep -q '^time: 5.629 s a step, 46570 tokens/s, MFU 31.9 %; bound by products' out
result $? "the time and the price of a training"
run 0 'time: 0.80' --model llama-2-7b --ranks 64 --device A100-80GB --seq 2048 --time && "$memplan" --model llama-2-7b \
    --ranks 64 --device A100-80GB --seq 2048 --time --json >plan.json 2>err && "$memplan" --model gpt2 --json >plain.json && "$python" - <<'END' >out 2>>err
import json
timed, plain = json.load(open("plan.json")), json.load(open("plain.json"))
for key in ("step_seconds", "tokens_per_second", "mfu", "bound_by", "exposed_comm_seconds"):
    assert timed[key] and plain[key] is None, key
assert timed["days"] is None and timed["cost"] is None
assert abs(timed["tokens_per_second"] * timed["step_seconds"] - 64 * 2048) < 1
END
result $? "the time of evenodd's own plans; null where it is not asked for"

run 0 'communication not hidden 0.30' --model llama-2-7b --ranks 64 --device A100-80GB --seq 2048 --time --network 25GB &&
    run 0 'bound by communication' --model llama-2-7b --ranks 64 --device A100-80GB --seq 2048 --time --network 5GB
result $? 'a slow network shows'
printf '{"devices": [{"name": "mine", "like": "H100", "memory_bytes": {"value": 5e10, "source": "a test"},\n' >own.json
printf '"product_flops": {"value": 4945e11, "source": "half"}}]}\n' >>own.json
run 0 '8 x mine, zero3, 4096 tokens: FITS, ' --model llama-3-8b --seq 4096 --device mine --devices own.json --time &&
    grep -q ' of 46.6 GiB, ' out && slow=$(sed -n 's/^time: \([0-9.]*\) s.*/\1/p' out) &&
    run 0 'time: ' --model llama-3-8b --seq 4096 --device H100 --devices own.json --time &&
    awk -v slow="$slow" '/^time: / { exit !(slow > 1.5 * $2 && slow < 2.1 * $2) }' out
result $? 'a file of devices: half the products take nearly twice the time'
rates=$(for rate in product_flops hbm_bytes_per_s node_bytes_per_s network_bytes_per_s host_bytes_per_s; do
    printf '"%s": {"value": 1e12, "source": "a test"}, ' $rate; done)
shares=$(for share in product_share attention_share flash_share; do printf '"%s": {"value": 0.5, "source": "a test"}, ' $share; done)
printf '{"devices": [{"name": "bare", %s %s "memory_bytes": {"value": 5e10, "source": "a test"}}]}\n' "$rates" "$shares" >bare.json
sed 's/"host_bytes_per_s"/"host_bytes_per_sec"/' bare.json >typo.json
refuse 'a figure of a device by another name' "typo.json: device bare: 'host_bytes_per_sec' is no key of it; did you mean 'host_bytes_per_s'?" \
    --model gpt2 --devices typo.json --device bare
run 0 'time: ' --model gpt2 --device bare --devices bare.json --time &&
    run 2 'fp32_flops of --device bare is not known' --model gpt2 --optimizer muon --device bare --devices bare.json --time
result $? 'the time of Muon on a device without a rate for fp32'
run 2 'has no list "devices"' --model tiny --devices plain.json --device mine
result $? 'a file of devices that is none'
run 2 "'mine' is not in the table: A100" --model tiny --device mine
result $? 'a device of no file'
run 0 '  step, s              0.623         0.516         0.679         0.679         0.679' --compare --model llama-3-8b --ranks 64 --device H100 --time
result $? 'systems stand side by side in time, too'
run 0 'megatron, 256 sequences a step: 768 layouts, 243 fit' --system megatron --model llama-3-70b --ranks 64 --global-batch 256 \
    --device H100 --headroom 10% --fit best && words=$(sed -n '2s/.*GiB  //p' out) && seconds=$(awk 'NR == 2 { print $1 }' out) &&
    [ "$(awk '/ tokens\/s / && $1 >= last { count++; last = $1 } END { print count }' last=0 out)" = 8 ] &&
    run 0 "time: $seconds s a step" --system megatron --model llama-3-70b --ranks 64 --global-batch 256 --device H100 --headroom \
        10% --time $words
result $? "the fastest layouts that fit, in their order; the first comes out so ($words)"
run 0 '--tp 8' --system megatron --model llama-3-70b --ranks 64 --global-batch 64 --device H100 --fit best --tp 8 --recompute all &&
    ! grep ' tokens/s ' out | grep -v -q -e '--tp 8 .*--recompute 80'
result $? '... keeps what is given'
run 1 'nothing fits' --system megatron --model llama-3.1-405b --ranks 64 --global-batch 64 --device H100 --fit best
result $? '... and where none fits, is 1'

seconds_with() # ARGUMENTS: of a step
{
    "$memplan" --device H100 --time --json "$@" 2>err | "$python" -c 'import json, sys; print(json.load(sys.stdin)["step_seconds"])'
}
for again in none 20 60 all; do
    seconds_with --model llama-3-70b --ranks 64 --tp 4 --pp 4 --sequence-parallel --global-batch 64 --recompute $again
done >out
awk '{ bad += $1 < last * (NR == 2 ? 1.02 : 1); last = $1 } END { exit bad || NR != 4 }' out
result $? 'blocks of the first stages that are made again take time'
for cut in 1 64; do
    seconds_with --system megatron --model qwen3-235b-a22b --ranks 512 --pp 2 --recompute all --ep $cut
done >out
awk 'NR == 1 { whole = $1 } NR == 2 { good = $1 < whole } END { exit !good }' out
result $? 'experts on ranks of their own send fewer weights'
seconds_with --system fsdp2 --model gpt2-xl --ranks 1 --batch 16 >out && awk '{ exit !($1 > 0.4 && $1 < 0.45) }' out
result $? 'one GPU alone is not charged for shards'

# Never a wrong plan in silence.
echo '{"model_type":"gpt2","n_layer":3,"n_embd":96,"n_head":6,"vocab_size":301,"n_inner":384,"embd_pdrop":0.1,
    "resid_pdrop":0.1,"attn_pdrop":0.0,"logit_scale":3,"colour":"red"}' >noted.json
run 0 "the config's dropout (embd_pdrop 0.1, resid_pdrop 0.1) is not taken; --dropout P" --model ./noted.json --batch 1024 &&
    grep -q 'elsewhere masks take 0.656 GiB$' out
result $? "dropout is warned of, with its masks' bytes" # (1 + 2 x 3) x 1024 x 1024 x 96
run 0 "the config's dropout (embd_pdrop 0.1) is not taken" --model ./noted.json --batch 1024 --dropout 0.1 &&
    grep -q 'elsewhere masks take 0.094 GiB$' out
result $? '... but of the residual stream with --dropout'
grep -q 'the layers do not compute it: logit_scale 3' out && grep -q 'unknown keys of the config: colour' out
result $? 'so is what the layers do not compute, and what nobody knows'
"$memplan" --model ./noted.json --json >out 2>err && grep -q 'is not taken' err && grep -q 'colour' err && ! grep -q 'note:' out
result $? '... beside JSON on standard error'
run 0 'the config fixes n_inner = 384 (by default 4 x n_embd)' --model ./noted.json --set n_embd=192 && run 0 'n_inner = 768' \
    --model ./noted.json --set n_embd=192 --set n_inner=null && run 0 'n_inner = 1024' --model tiny --set n_embd=256
result $? 'a field that follows another does, unless the config fixes it, which is told'
run 0 'full of 32 layers' --model llama-3-8b --recompute all --explain && run 0 'full of 0 layers' --model llama-3-8b --explain &&
    run 0 'largest leaf 1409286144: ' --model mixtral-8x7b --ranks 64 --explain && grep -q 'ZeRO-3 17.483 GiB' out
result $? 'figures of others follow their rules'

run 0 "qwen3_moe, 30.5 B parameters (3.35 B for a token), 879 M in a rank's part of it, bf16" --model qwen3-30b-a3b --ranks 64 \
    --ep 8 --pp 8 --seq 4096 && run 0 '"rank_parameters": 878996992' --model qwen3-30b-a3b --ranks 64 --ep 8 --pp 8 --seq 4096 --json &&
    grep -q '"parameters": 30532122624' out && run 0 'gpt2, 124 M parameters, bf16' --model gpt2
result $? "the model's parameters stand beside those of a rank's part"

# JSON, CSV, diff.
"$memplan" --model gpt2 --world 4 --device-memory 8GiB --json >a.json 2>err
"$memplan" --model gpt2 --world 8 --device-memory 8GiB --json >b.json 2>>err
"$python" - <<'END' >out 2>>err
import json
plan = json.load(open("a.json"))
for key in ("schema", "parameters", "arena_bytes", "lower_bound_bytes", "outside_bytes", "total_bytes", "capacity_bytes", "fits",
            "categories", "rows", "fit"):
    assert key in plan, key
assert plan["total_bytes"] == plan["arena_bytes"] + plan["outside_bytes"] - (plan["host_bytes"] if plan["settings"]["on_gpu"] else 0)
assert sum(plan["categories_at_peak"].values()) == plan["lower_bound_bytes"]
assert sum(plan["parts_at_peak"].values()) == plan["total_bytes"]
for row in plan["rows"]:
    assert set(row) == {"name", "class", "space", "bytes", "offset", "first", "last"}
END
result $? 'the JSON has its fields, and its sums are right'
run 0 '0 differences' --diff a.json a.json
result $? 'a plan does not differ from itself'
run 1 'world' --diff a.json b.json
result $? 'plans that differ are told apart, and exit status 1'
"$memplan" --model gpt2 --world 4 --tp 2 --json >c.json 2>>err
run 1 rank_parameters --diff a.json c.json && grep -q '^  rank_parameters  *124439808 ->  *6[0-9]* ' out && ! grep -q '^  parameters' out
result $? "--diff shows the parameters of a rank's part"
# Names with ESC, BEL and U+009B, as a file has them and as JSON can write them.
escape=$(printf '\033') bell=$(printf '\007') csi=$(printf '\302\233')
plain() { ! LC_ALL=C grep -q "[$escape$bell]\|$csi" out err; }
names=x${escape}y${bell}z$csi escaped='x\u001by\u0007z\u009b'
printf '{"plan": {"rows": [{"name": "%s", "category": "weights", "offset": 0, "bytes": 1}]}}\n' "$escaped" >hostile
run 1 'x?y?z?? ' --kernels cpu --model tiny --verify hostile && plain && printf 'settings: --%s\n' "$names" >hostile &&
    run 2 'x?y?z??' --model tiny --verify hostile && plain && printf '{"settings": "--%s"}\n' "$escaped" >hostile &&
    run 2 'x?y?z??' --model tiny --verify hostile && plain
result $? 'rows and settings of a log do not command the terminal'
printf '{"settings": {"%s": "%s"}, "categories": {"%s": 1}, "rows": [{"name": "%s", "class": "%s"}]}\n' \
    "$escaped" "$escaped" "$escaped" "$escaped" "$escaped" >hostile
run 1 'x?y?z??' --diff hostile a.json && plain && run 1 'x?y?z??' --diff a.json hostile && plain
result $? 'nor do keys and values of plans that are compared'
printf '{"devices": [{"name": "%s", "memory_bytes": {"value": 1e9, "source": "%s"}}]}\n' "$escaped" "$escaped" >hostile
run 1 'x?y?z??' --model gpt2 --device 'x?y?z??' --devices hostile --explain && plain
result $? 'nor do names and sources of devices'
{ printf '{"rows":['; yes '{},' | head -n 1000000 | tr -d '\n'; printf '{}], "categories": {}}'; } >hostile
run 2 'values; at most 1048576 are read' --diff hostile a.json
result $? 'a plan of a million empty objects is refused before it takes the memory of them'
run 0 'name,class,space,bytes,offset,first,last' --model tiny --csv
result $? 'rows come as CSV'
for model in moonlight-16b-a3b qwen3-next-80b-a3b; do
    run 0 'planned, not run' --model $model --set num_hidden_layers=4 --ranks 8 --seq 256 --recompute cheap --explain &&
        head -n 1 out | grep -q 'not run' && grep -q 'block.*b s N e = .*, N = ' out && ! grep -q 'block.*of the runtime itself' out
    result $? "$model: the first line says that it is not run; each row of a block has its width"
    run 0 'planned, not run; device' --model $model --set num_hidden_layers=4 --ranks 8 --seq 256 --device H100 --compare --time &&
        run 0 '(estimate)' --model $model --ranks 64 --seq 4096 --device H100 --system megatron --ep 64 --time
    result $? '... beside the estimates of other systems, with its experts cut'
done
run 0 'zero3 ep8: ' --model mixtral-8x7b --ranks 8 --seq 512 --ep 8 && grep -q 'planned, not run' out &&
    run 0 'zero3 pp2 v4: ' --model mixtral-8x7b --ranks 8 --seq 512 --pp 2 --virtual-stages 4 --global-batch 32 &&
    run 0 'zero3 tp4 pp2: ' --model gpt2-medium --ranks 16 --tp 4 --pp 2 --sequence-parallel --global-batch 16
result $? 'experts, interleaved stages and parts of a GPT-2 are planned, and said not to run'
"$memplan" --model gpt2 --world 4 --svg plan.svg >out 2>err && "$python" -c 'import sys, xml.dom.minidom
titles = xml.dom.minidom.parse("plan.svg").getElementsByTagName("title")
assert len(titles) > 100, len(titles)' 2>>err
result $? 'the picture is well-formed, and names its rectangles'
run 0 'of a step with 3 micro-batches in place of 3000' --kernels cpu --model tiny --seq 64 --micro-batches 3000 --svg plan.svg &&
    grep -q 'in place of 3000' plan.svg && [ "$(wc -c <plan.svg)" -lt 1000000 ]
result $? 'a step of very many micro-batches is shown by one of three, and says so'

# Bad input: status 2, a message, nothing written.
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
refuse 'a field that is nearly one' 'did you mean n_layer?' --model gpt2 --set n_layers=3
refuse 'a field of other families' 'did you mean num_hidden_layers?' --model llama-3-8b --set n_layer=3
run 2 'give --global-batch' --model gpt2 --system megatron --fit best --device H100
result $? 'layouts without a global batch'
run 2 'are searched' --model gpt2 --system deepspeed --fit best --device H100 --global-batch 64
result $? 'layouts of a system that has but one'
refuse 'a network of no time' 'give --time too' --model gpt2 --device H100 --network 50GB
refuse 'more micro-batches than a plan takes' 'give at most 4096' --model gpt2 --ranks 1 --global-batch 16777216
run 2 'batch x seq' --model llama-3.1-405b --system megatron --batch 1048576 --seq 131072
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
run 0 'note: offload_activations has no effect' --model gpt2 --seq 16 --offload-activations 2
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
    '--ep 2|has no experts' '--recompute cheap|is evenodd' '--strategy zero3|takes zero1' '--fit max-batch|--fit is of evenodd' \
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
(ulimit -f 8 && run 2 'File too large' --model tiny --json --svg cut.svg --html cut.html) && [ ! -e cut.html ]
result $? 'a limit on the size of files is said, and leaves no half file'

# Speed: generous, for machines that do other things too.
start=$(date +%s%N)
"$memplan" --model llama-3.1-405b --world 16384 >out 2>err
end=$(date +%s%N)
[ $(((end - start) / 1000000)) -lt 5000 ]
result $? "405B on 16,384 ranks took $(((end - start) / 1000000)) ms"
finish
