#!/bin/sh
# SPDX-License-Identifier: MIT
#
# Goal: blocks gathered and reduced by one collective have the bits of one by one; auto joins them where the link's latency
#       counts, and leaves them alone where it does not; its prediction is never slower than one by one.
# Method: a model of small blocks, planned and trained on simulated links, with a file of rates.
# usage: bucketing.sh TRAIN MEMPLAN
# shellcheck disable=SC2086 # lists of options
set -u
. "$(dirname "$0")/../tap/tap.sh"
train=$(realpath "$1") memplan=$(realpath "$2")
shown='out err'
enter_folder
seq 1 20000 >text
cat >rates.json <<'END_OF_RATES'
{"products_flops_per_s": 2e10, "memory_bytes_per_s": 8e9, "link_bytes_per_s": 1e10}
END_OF_RATES
job="--text text --model 8x64x4 --ranks 2 --threads 1 --batch 1 --seq 32"
run="$job --steps 4 --sample 0 --peak-seconds 0"
hash_of() { grep -o 'weights_hash [0-9a-f]*' out; }

"$train" $run >out 2>err && same=$(hash_of)
for options in '--bucketing 3,2' '--bucketing 8,8 --slots 1,1 --micro-batches 1' '--bucketing auto --rates rates.json --fabric 1,500' \
    '--bucketing 2,4 --recompute all --fabric 1,100'; do
    "$train" $run $options >out 2>err && [ -n "$same" ] && [ "$(hash_of)" = "$same" ]
    result $? "the weights of one by one: $options"
done
for strategy in zero2 zero1 ddp; do
    "$train" $run --strategy $strategy --micro-batches 2 --batch 1 >out 2>err && one=$(hash_of) &&
        "$train" $run --strategy $strategy --micro-batches 2 --batch 1 --bucketing 4,4 >out 2>err && [ "$(hash_of)" = "$one" ]
    result $? "$strategy: the same"
done

# What is predicted, and chosen.
worst=0 slower=0
for fabric in 10,5 10,50 10,500 1,5 1,500 0.1,5 0.1,500; do
    "$train" $job --plan --bucketing auto --rates rates.json --fabric $fabric >out 2>err || worst=1
    line=$(grep '^bucketing: ' out)
    case $line in
    *'one by one: '*) ;;
    *) slower=$((slower + $(echo "$line" | awk '{ for (i = 1; i < NF; i++) if ($(i + 1) == "s") t[++n] = $i } END { print (n != 2 || t[1] > t[2]) }'))) ;;
    esac
done
[ $worst = 0 ] && [ $slower = 0 ]
result $? 'links from 0.1 to 10 GB/s and 5 to 500 us: never slower than one by one in its own prediction'
"$train" $job --plan --bucketing auto --rates rates.json --fabric 10,500 >out 2>err && grep -q '^bucketing: [2-9] blocks in a gather' out
result $? 'with a latency of 500 us blocks are joined'
"$train" $job --plan --bucketing auto --rates rates.json >out 2>err && grep -q '^bucketing: one by one' out
result $? 'without latency they are not'
echo '{"products_flops_per_s": 5e11, "memory_bytes_per_s": 2e10, "link_bytes_per_s": 1e10}' >fast.json
"$train" --text text --model tiny --ranks 2 --threads 1 --batch 4 --seq 256 --slots 4,4 --dtype bf16 --plan --bucketing auto \
    --fabric 1,3000 --rates fast.json >out 2>err && grep -q '^bucketing: .* one by one; [0-9]\{1,3\}\.[0-9] MiB less$' out
result $? 'runs in place of many slots take less memory, and a line says so'
sed 's/}/, "link_latency_s": 500e-6}/' rates.json >slow.json
"$train" $job --plan --bucketing auto --rates slow.json >out 2>err && grep -q '^bucketing: [2-9] blocks in a gather' out
result $? 'the latency may stand in the file of rates'
"$train" $job --plan >out 2>err && most=$(sed -n 's/^  arena  *\([0-9]*\) .*/\1/p' out) &&
    "$train" $job --plan --bucketing auto --rates slow.json --budget "$most" >out 2>err &&
    [ "$(sed -n 's/^  arena  *\([0-9]*\) .*/\1/p' out)" -le "$most" ]
result $? 'with --budget the buffers for it lie within the budget'
"$train" $job --plan --bucketing auto --rates slow.json --budget 1GiB >out 2>err && grep -q '^budget: ' out && grep -q '^bucketing: ' out &&
    "$train" $job --plan --bucketing 1,4 --rates slow.json --budget 1GiB >out 2>err
result $? 'a budget with reductions that are joined'

# What a checkpoint keeps of it.
flat='--schedule constant --warmup 0'
"$train" $run $flat >out 2>err && same=$(hash_of)
again='bucketing of the checkpoint: [2-9],[2-9]; --bucketing changes it'
"$train" $run $flat --checkpoint kept --steps 2 --bucketing auto --rates slow.json >out 2>err &&
    "$train" $run $flat --checkpoint kept --resume >out 2>err && [ "$(grep -c "^$again\$" out)" = 1 ] && [ "$(hash_of)" = "$same" ] &&
    "$train" $job --checkpoint kept --resume --plan >out 2>err && grep -q "^$again\$" out && [ -n "$same" ]
result $? '--resume goes on with the bucketing of the checkpoint, says so, keeps it on, and has the weights of one by one'
"$train" $job --checkpoint kept --resume --plan --bucketing 1,1 >out 2>err && ! grep -q 'bucketing of' out &&
    "$train" $job --checkpoint kept --resume --plan --budget 1GiB --rates rates.json >out 2>err && grep -q '^bucketing: one by one' out
result $? '--bucketing, or a budget with other rates, changes it'
"$train" $job --checkpoint kept --resume --plan --bucketing auto >out 2>err && grep -q '^bucketing: [2-9] blocks in a gather' out
result $? '--bucketing auto chooses again by the rates of the checkpoint'

again='bucketing of the checkpoint: 2,3; --bucketing changes it'
"$train" $run $flat --checkpoint hand --steps 2 --bucketing 2,3 >out 2>err &&
    "$train" $run $flat --checkpoint hand --resume >out 2>err && grep -q "^$again\$" out && [ "$(hash_of)" = "$same" ] &&
    "$train" $job --checkpoint hand --resume --plan --budget 1GiB --rates rates.json >out 2>err && grep -q "^$again\$" out &&
    ! grep -q '^bucketing: ' out && grep -q -e '--bucketing 2,3$' out &&
    "$train" $run $flat --checkpoint hand --resume --steps 5 --bucketing 1,1 >out 2>err && ! grep -q 'bucketing of' out &&
    "$train" $job --checkpoint hand --resume --plan >out 2>err && ! grep -q bucketing out
result $? 'one given by hand is kept as well, within a budget too, until another is given'
joined='--text text --model 8x64x2 --seq 32 --batch 1 --threads 1 --ranks 2 --sample 0 --peak-seconds 0'
seq 1 4000 >text
# shellcheck disable=SC2086 # a list of options
"$train" $joined --steps 2 --bucketing 8,8 --checkpoint wide >out 2>err &&
    "$train" $joined --steps 4 --plan --checkpoint wide --resume --budget 5000000 --rates rates.json >out 2>err &&
    grep -q '^bucketing of the checkpoint, 8,8, is left out: the budget has no room' out && grep -q '^budget: 4.8 MiB' out &&
    "$train" $joined --steps 4 --plan --checkpoint wide --resume --slots 16,16 >out 2>err &&
    grep -q '^bucketing of the checkpoint, 8,8, is left out: it cannot be planned with' out
result $? '... or has no room, which is told'

"$memplan" --model gpt2 --kernels cpu --ranks 2 --batch 1 --seq 256 --json >out 2>err && one=$(grep -o '"arena_bytes": *[0-9]*' out | head -n 1) &&
    "$memplan" --model gpt2 --kernels cpu --ranks 2 --batch 1 --seq 256 --bucketing 2,2 --json >out 2>err && [ -n "$one" ] &&
    [ "$(grep -o '"arena_bytes": *[0-9]*' out | head -n 1)" != "$one" ]
result $? 'memplan counts the buffers'

refuse() # WHAT TEXT OPTION...
{
    what=$1 part=$2
    shift 2
    "$train" $run "$@" >out 2>err
    [ $? = 2 ] && grep -q -- "$part" err
    result $? "refused: $what"
}
refuse 'numbers that are none' 'bucketing is' --bucketing many
refuse 'more buffers than there may be' 'at most 64' --bucketing 40,1
refuse 'dynamic memory' 'memory static' --bucketing 2,2 --memory dynamic:pool
refuse 'gathers at their use' 'no-prefetch' --bucketing 2,2 --no-prefetch
refuse 'gradients that leave one by one' 'leave one by one' --bucketing 2,2 --offload-layers all --offload-gradients
sed 's/500e-6/-1/' slow.json >bad.json
refuse 'a latency below 0' 'link_latency_s' --bucketing auto --rates bad.json
finish
