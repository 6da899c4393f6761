#!/bin/sh
# SPDX-License-Identifier: MIT
#
# Goal: answers of memplan add up, its searches and estimates agree with each other and with what is published, and scripts can
#       rely on its exit statuses, JSON and CSV.
# usage: memplan_answers.sh MEMPLAN TRAIN PYTHON
set -u
. "$(dirname "$0")/memplan.sh"

# Exit statuses.
run 0 ': FITS, ' --model llama-3-8b --device H100
result $? 'what fits is 0'
run 1 'DOES NOT FIT' --model llama-3-70b --device H100
result $? 'what does not is 1'
run 0 'GiB left; batch' --model llama-3-8b --device H100 --fit max-batch
result $? 'a search gives its neighbour'
run 1 'nothing fits' --model llama-3-70b --device H100 --world 1 --fit max-batch && grep -q 'would fit: --ranks 128 (.*, --ranks 16 --recompute all (' out &&
    run 0 ': FITS, ' --model llama-3-70b --device H100 --ranks 128 && run 0 ': FITS, ' --model llama-3-70b --device H100 --ranks 16 \
    --recompute all
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
cat >formulae.py <<'END'
import math, re, subprocess, sys


def roundup(number, multiple):
    return -(-number // multiple) * multiple


def value(text):
    text = re.sub(r"roundup(\d+)\(([^()]*)\)", r"roundup(\2, \1)", text.replace(" x ", " * "))
    return eval(text.replace("ceil(", "math.ceil("))


words = sys.argv[2:]
lines = subprocess.run([sys.argv[1], *words, "--explain"], stdout=subprocess.PIPE, text=True, check=True).stdout.split("\n")
rows = [re.match(r"    (\S.*?) +\d+ x +(\d+)  \S[a-z ]*?  +.*?= (?!\d+, )(.*?)(, .*)?$", line) for line in lines]
wrong = [row.group(0) for row in rows if row and value(row.group(3)) != int(row.group(2))]
shards = [re.match(r"      \S.* (\d+) x S = roundup\((.*)\) / (\d+) = (\d+)$", line) for line in lines]
wrong += [row.group(0) for row in shards if row and roundup(*map(int, row.group(2).split(", "))) // int(row.group(3)) != int(row.group(4))]
total = sum(int(row.group(1)) * int(row.group(4)) for row in shards if row)
told = [int(number) for line in lines for number in re.findall(r"^      sum of S.*? = (\d+):", line)]
assert sum(map(bool, rows)) > 20 and sum(map(bool, shards)) > 1 and told and sum(told) == total and not wrong, (words, told, total, wrong)
END
explained=0
small='--model qwen3-0.6b --set num_hidden_layers=3 --ranks 8 --seq 512'
while read -r words; do
    # shellcheck disable=SC2086 # a list of words
    "$python" formulae.py "$memplan" $small $words >out 2>err || break
    explained=$((explained + 1))
done <<'END'
--strategy hsdp:2 --micro-batches 2
--strategy zero1 --micro-batches 2 --reduce bf16
--gather float8
--norms fp32 --granularity half
--lora 8 --frozen mxfp8 --recompute cheap
--optimizer adamw8bit --ema 0.9 --batch 3 --head-chunks 2
--optimizer muon --dropout 0.1
--kernels cpu --dtype fp32 --recompute all
--offload-layers all --offload-gradients
END
[ $explained = 9 ]
result $? "formulae come to the bytes of their rows ($explained of 9)"
# shellcheck disable=SC2086
run 0 "low halves 2 S and the optimizer's arrays, each in multiples of 4096" $small --offload-layers all --offload-gradients --explain &&
    grep -q 'gradients 4 S [0-9]*, optimizer 2 x 4 S [0-9]* (of offloaded layers their slots)$' out && ! grep -q 'offload.*= ' out
result $? 'offloaded state is no shard of its own'
# Two slots for 4 x 155583488 bytes of gradients, of which the tied head's are live; whole weights need none.
run 0 'would take 1.159 GiB all the time; with rows of their own 0.580 GiB of buffers are live at the peak, a saving of 0.580 GiB' \
    --model qwen3-0.6b --ranks 8 --seq 512 --strategy zero2 --explain && grep -q 'whole weights, .*: 1.110 GiB' out &&
    run 0 'whole weights, ' --model qwen3-0.6b --ranks 8 --seq 512 --strategy zero2 --lora 8 --explain && ! grep -q 'sets them' out
result $? 'weights that stay whole are no buffers'
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
# Nodes of 8, and a global batch, as the command line wants them.
run 1 'would fit: --ranks 24 (' --model gpt2 --ranks 3 --batch 2 --seq 128 --micro-batches 7 --slots 1,4 --outside 1GiB \
    --device-memory 1752306227B && shared='--model gpt2 --batch 4 --global-batch 24 --device-memory 3.5GB' &&
    run 1 'would fit: --ranks 4 --recompute all --batch 1 (3.2 GiB), a device' $shared --ranks 2 &&
    run 0 ': FITS, 3.2 of ' $shared --ranks 4 --recompute all --batch 1
result $? 'what would fit can be given so'
run 0 'FITS, 41.3 of 79.1 GiB, 37.9 spare' --model llama-3-8b --device A100-80GB --seq 8192 &&
    grep -q '^try: --recompute all 21.0 GiB; batch 2 fits with 13.8 left; 4 GPUs fit with 26.0 left$' out &&
    grep -q ' 8.03 B parameters' out && ! grep -q DeepSpeed out && run 0 DeepSpeed --model llama-3-8b --explain
result $? 'it says what to try; the rest is behind --explain'
run 0 'try: batch 9 ' --model llama-3-70b --ranks 64 --device H100 --batch 8 --recompute 79 &&
    run 0 'try: ' --system fsdp2 --model llama-3-8b --ranks 8 --recompute 31 && ! grep -q '^try:.* --pp 2' out
result $? 'it tries nothing that takes more'
run 0 'peak (backward, head): ' --model gpt2 --micro-batches 3 --ranks 2 --batch 8 &&
    run 0 'communication not hidden 0.000 s' --model llama-1b --device H100 --ranks 1 --batch 16 --time
result $? 'the place of the peak is a layer; a time is not below 0'
for more in '--recompute all|21.0 of' '--batch 2|13.8 spare' '--ranks 4|26.0 spare'; do
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
"$train" --model llama-tiny --plan --recompute cheap >out 2>err && grep -q -- '--recompute cheap saves nothing here' err &&
    "$train" --model qwen3-tiny --plan --recompute cheap >out 2>err && ! grep -q 'saves nothing' err &&
    run 0 'min-recompute: ' --model llama-3-8b --seq 8192 --batch 4 --device H100 --fit min-recompute && ! grep -q 'cheap' out &&
    run 0 ' --recompute cheap (no product again)' --model qwen3-8b --seq 8192 --batch 4 --device H100 --fit min-recompute &&
    run 0 '(cheap saves nothing here), all ' --model llama-3-8b --ranks 8 --recompute cheap &&
    run 0 'try: --recompute all ' --model qwen3-8b --ranks 8 --recompute cheap
result $? 'a cheap recompute is told where it saves nothing, and named where it saves something'
run 0 'FITS, ' --model llama-3-8b --device H100 --fit max-batch --headroom 15% && grep -q 'max-batch: batch 4 fits' out &&
    grep -q 'headroom 11.9' out && run 0 'max-batch: batch 5 fits' --model llama-3-8b --device H100 --fit max-batch
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
run 0 'max-batch: batch 4 fits with 10.630 GiB left; batch 8 lacks' --model llama-3-8b --device H100 --global-batch 64 --seq 4096 \
    --fit max-batch && head -n 1 out | grep -q ' 2 x 16384 tokens' && run 0 ', 32 x 2048 tokens: ' --model llama-3-8b --device H100 \
    --global-batch 64 --seq 2048 --fit min-gpus && run 1 'is no 1 to 4096 micro-batches of' --model llama-3-70b \
    --device H100 --global-batch 63 --seq 2048 --recompute all --fit min-gpus --strategy hsdp:64
result $? 'a global batch is kept in searches for the batch and the world'
stages='--model llama-3-70b --ranks 40 --pp 5 --device H100 --strategy zero3 --recompute all --batch 1 --global-batch 40'
# shellcheck disable=SC2086 # a list of words
run 0 'best: batch 1 fits' $stages --tp 8 --virtual-stages 2 --sequence-parallel --granularity block --fit best --time &&
    run 0 '--pp 5 --strategy zero3 --recompute all --batch 1' $stages --fit best-layout &&
    run 0 'best-layout: batch' --model llama-3.2-1b --ranks 64 --global-batch 32 --device H100 --batch 1 --recompute none --fit best-layout
result $? 'the best of interleaved stages; of five stages; of a global batch that whole models cannot share'
run 0 'best: batch 2 fits' --model llama-3-8b --ranks 8 --seq 512 --global-batch 16 --device-memory 21GiB --fit best
result $? 'of a global batch fewer micro-batches may fit where more do not'
run 0 'max-seq: seq 8192 fits' --model llama-3-8b --device H100 --cp 2 --fit max-seq && run 0 'max-seq: seq 40000 fits' --model \
    llama-3.2-1b --device A100-40GB --batch 8 --tp 2 --sequence-parallel --cp 4 --fit max-seq && grep -q 'seq 40008 lacks' out
result $? 'the longest sequence that its ranks share evenly'
run 0 'max-seq: seq 1000 fits with 0.000 GiB left; seq 1001 lacks' --model llama-3.2-1b --ranks 1 --slots 1,4 --products float8 \
    --reduce bf16 --device-memory 21261254144B --fit max-seq
result $? "a search does not count the host's memory"
pieces='--model gpt2 --ranks 4 --head-chunks 7 --device-memory 3GiB'
# shellcheck disable=SC2086 # a list of words
run 0 'max-seq: seq 1024 fits' --model gpt2 --ranks 4 --head-chunks 2 --device-memory 8GiB --fit max-seq &&
    run 0 'max-batch: batch 600 fits with ' $pieces --seq 3 --fit max-batch --recompute all --granularity half &&
    run 0 '--batch 600 ' $pieces --seq 3 --fit best && run 0 'max-layers: layers 127 fits' --model gpt2 --ranks 4 \
    --granularity blocks:3 --device-memory 8GiB --fit max-layers
result $? 'searches begin where pieces of the head have a token each, and units their blocks'
run 0 'max-batch: batch 297 fits' --model gpt2 --head-chunks 5000 --device-memory 80GiB --fit max-batch && run 0 'batch 260 fits' \
    --model llama-3-8b --head-chunks 64 --cp 4 --seq 32 --device-memory 24GiB --fit max-batch
result $? '... of a sequence of its own choice, or that ranks share'
run 1 'gpt2, 8 GPUs, zero3, 5120 tokens: DOES NOT FIT' --model gpt2 --head-chunks 5000 --device-memory 2GiB --fit max-batch &&
    grep -q 'nothing fits; batch 5 lacks' out && run 1 '8 GPUs, zero3, 5120 tokens: DOES NOT' --model gpt2 --head-chunks 5000 \
    --device-memory 2GiB --fit best && run 1 'llama-3-8b, 64 GPUs, zero3, 4096 tokens: DOES NOT FIT' --model llama-3-8b \
    --global-batch 64 --device-memory 6GiB --fit min-gpus && grep -q 'nothing fits; ranks 64 lacks' out
result $? 'where nothing fits the plan is that of the least that can be planned'
run 1 '8 GPUs, zero3, 4096 tokens: DOES NOT FIT, 19.6 of 6.0 GiB, 13.6 lacking' --model llama-3-8b --device-memory 6GiB --fit best &&
    grep -q 'best: nothing fits; batch 1 lacks 13.613 GiB' out && grep -q -e '--strategy zero3 --recompute 32 --batch 1 --granularity half' out &&
    run 1 '64 x H100, zero3 tp8: DOES NOT FIT' --model llama-3-8b --ranks 64 --global-batch 8 --device H100 --headroom 77GiB --fit best-layout &&
    run 1 'DOES NOT FIT, 12.7 of' --model llama-3-8b --device H100 --ranks 32 --pp 4 --virtual-stages 2 --global-batch 32 --headroom 78.9GiB \
        --fit best && run 2 'global-batch 4 is less than --batch 8' --model gpt2 --device H100 --fit min-gpus --global-batch 4 --batch 8
result $? '... with the settings of the nearest combination, where all are searched'
run 0 ' ddp: cannot be planned; zero' --model gpt2 --ranks 4 --gather float8 --device-memory 80GB --fit best-strategy
result $? 'a strategy that cannot be has no figures'
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
run 0 '  total               41.292        98.494        62.000        64.573        91.741' --compare --model llama-3-8b --seq 8192 &&
    run 0 '  total               36.796        92.469        50.653        30.716             -' --compare --model llama-3-70b --ranks 64 --tp 8 --micro-batches 4
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
run 0 'llama-3-70b, 64 x H100, zero3 tp4 pp4: FITS, 37.2 of 79.1 GiB, 41.9 spare (planned, not run)' --model llama-3-70b --ranks 64 \
    --tp 4 --pp 4 --sequence-parallel --global-batch 64 --device H100 &&
    grep -q 'stage 1 of 4, the fullest, 4 micro-batches in flight' out && run 0 '"in_flight": 4' --model llama-3-70b --ranks 64 --tp 4 \
    --pp 4 --sequence-parallel --global-batch 64 --device H100 --json && grep -q '"data_parallel": 4' out
result $? "a rank's part beside tensor and pipeline groups"
run 0 'llama-3-8b, 16 GPUs, zero3 tp2: ' --model llama-3-8b --ranks 16 --tp 2 --seq 4096 && run 0 '"arena_bytes"' --model llama-3-8b \
    --ranks 16 --tp 2 --seq 4096 --json && cp out part.json && run 0 '"arena_bytes"' --model llama-3-8b --ranks 8 --seq 4096 --json \
    --set num_attention_heads=16 --set num_key_value_heads=4 --set intermediate_size=7168 --set vocab_size=64128 --set head_dim=128 &&
    "$python" -c 'import json; a, b = json.load(open("part.json")), json.load(open("out")); assert a["rows"] == b["rows"] != []'
result $? '... is a smaller model: every row is that of a config of its size'
run 0 'max-batch: batch 1 fits with 24.158 GiB left; batch 2 lacks 8.917 GiB' --model llama-3-70b --ranks 64 --tp 2 --device H100 --fit \
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
run 2 "typo.json: device bare: 'host_bytes_per_sec' is no key of it; did you mean 'host_bytes_per_s'?" \
    --model gpt2 --devices typo.json --device bare
result $? 'a figure of a device by another name'
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
lines() { sed -n "s/^<path class=\"$1\" d=\"M[0-9.]* \([0-9.]*\)H.*/\1/p" plan.svg; }
run 0 ': FITS' --model gpt2 --world 4 --device-memory 8GiB --svg plan.svg && echo "$(lines room) $(lines arena)" >drawn &&
    run 1 'DOES NOT FIT' --model gpt2 --world 4 --device-memory 3GiB --svg plan.svg &&
    echo "$(lines room | tr '\n' ' ')$(lines arena)" >>drawn &&
    awk 'NR == 1 { good = NF == 2 && $1 < $2 } NR == 2 { good = good && NF == 3 && $1 > $3 } END { exit !good || NR != 2 }' drawn
result $? 'the picture has the room of the device: above what is planned where it fits, else below it, and in the arena too'
run 0 'of a step with 3 micro-batches in place of 3000' --kernels cpu --model tiny --seq 64 --micro-batches 3000 --svg plan.svg &&
    grep -q 'in place of 3000' plan.svg && [ "$(wc -c <plan.svg)" -lt 1000000 ]
result $? 'a step of very many micro-batches is shown by one of three, and says so'

# Speed: generous, for machines that do other things too.
start=$(date +%s%N)
"$memplan" --model llama-3.1-405b --world 16384 >out 2>err
end=$(date +%s%N)
[ $(((end - start) / 1000000)) -lt 5000 ]
result $? "405B on 16,384 ranks took $(((end - start) / 1000000)) ms"
finish
