#!/bin/sh
# SPDX-License-Identifier: MIT
#
# Goal: what train promises while it runs: its log, its trace, one result for any number of ranks and any memory mode, a
#       clean end at Ctrl-C, a full disk that is told and survived, a loss that is not finite named by step and layer.
# Method: short runs of tiny; the files are read by check_outputs.py.
# usage: train_runs.sh TRAIN HEADTOHEAD PYTHON CHECK
set -u
. "$(dirname "$0")/../tap/tap.sh"
train=$(realpath "$1") headtohead=$(realpath "$2") python=$3 check=$(realpath "$4")
shown='err out'
enter_folder

seq 1 4000 >text
quick="--text text --model tiny --seq 32 --sample 0 --threads 1 --peak-seconds 0"

# shellcheck disable=SC2086 # a list of words, here and below
"$train" $quick --steps 8 --batch 12 --ranks 1 --val-every 4 --log one.jsonl >out 2>err
result $? 'one rank trains'
"$python" "$check" log one.jsonl 8 >>out 2>>err
result $? 'the log has its fields in every line and in the summary'
"$train" $quick --steps 100 --batch 2 --micro-batches 3 --ranks 2 --seq 16 --peak-seconds 0.05 --log told.jsonl >out 2>err &&
    "$python" "$check" report out told.jsonl 2>>err
result $? 'the report, the summary and the steps of the log tell the same numbers'
for split in '2 6 1' '3 4 1' '4 3 1' '2 2 3'; do
    # shellcheck disable=SC2086
    set -- $split
    "$train" $quick --steps 8 --ranks "$1" --batch "$2" --micro-batches "$3" --val-every 4 --log other.jsonl \
        >out 2>err && "$python" "$check" same-losses one.jsonl other.jsonl >>out 2>>err
    result $? "$1 ranks with $2 sequences in $3 micro-batches have the losses of one rank"
done

"$train" $quick --steps 6 --ranks 2 --log static.jsonl --trace trace.json >out 2>err &&
    "$python" "$check" trace trace.json 2 >>out 2>>err
result $? 'the trace is one JSON document with both ranks and their streams'
for memory in dynamic:malloc dynamic:pool; do
    "$train" $quick --steps 6 --ranks 2 --memory $memory --log dynamic.jsonl >out 2>err &&
        "$python" "$check" same-weights static.jsonl dynamic.jsonl >>out 2>>err
    result $? "$memory ends with the bits of static"
done

"$train" $quick --steps 6 --ranks 2 --dtype bf16 --reduce bf16 --log static.jsonl >out 2>err &&
    grep -q 'computed in bf16, reduced in bf16' out && ! grep -q '^strategy' out
result $? 'training in bf16 says so'
"$train" $quick --steps 6 --ranks 2 --dtype bf16 --gather float8 --log narrow.jsonl >out 2>err &&
    grep -q 'computed in bf16, gathered in float8, reduced in fp32' out
result $? 'training with gathers in float8 says so'
for memory in dynamic:malloc dynamic:pool; do
    "$train" $quick --steps 6 --ranks 2 --dtype bf16 --gather float8 --memory $memory --log dynamic.jsonl >out 2>err &&
        "$python" "$check" same-weights narrow.jsonl dynamic.jsonl >>out 2>>err
    result $? "gathered in float8, $memory ends with the bits of static"
done
told=0
# shellcheck disable=SC2086 # words of options
while IFS='|' read -r strategy others words; do
    "$train" $quick --steps 1 --ranks 4 --reduce bf16 --strategy "$strategy" $others >out 2>err &&
        grep -q "reduced in $words, steps" out && grep -q 'kernels: those in plain C, a few times slower' out &&
        grep -q "^strategy $strategy: a copy of the weights lies in groups of " out || told=1
done <<'END'
zero2|--micro-batches 2|bf16
zero1||bf16
zero1|--gradients-apart|bf16, in fp32 after local sums of a layer's gradients
zero1|--micro-batches 2|fp32, after local sums (written in bf16)
ddp||fp32, after local sums (written in bf16)
hsdp:2||bf16 within a group and fp32 over the replicas
END
result $told 'what a strategy adds up before it is reduced is fp32, whatever --reduce says, and train tells it'
for memory in dynamic:malloc dynamic:pool; do
    "$train" $quick --steps 6 --ranks 2 --dtype bf16 --reduce bf16 --memory $memory --log dynamic.jsonl >out 2>err &&
        "$python" "$check" same-weights static.jsonl dynamic.jsonl >>out 2>>err
    result $? "in bf16 too, $memory ends with the bits of static"
done

"$train" $quick --steps 2 --ranks 2 --offload-layers all --offload-folder . --log offloaded.jsonl >out 2>err &&
    mib=$(sed -n 's/^offload: \([0-9.]*\) MiB a rank on disk in \., read and written once a step$/\1/p' out) &&
    sed -n 's/.*"disk_bytes":\([0-9]*\),"io_bytes_per_step":\([0-9]*\).*/\1 \2/p' offloaded.jsonl |
    awk -v mib="$mib" '{ good = $2 == 2 * $1 && mib == sprintf("%.1f", $1 / 1048576) } END { exit !good }'
result $? 'bytes on disk are told, and moved twice a step'

"$train" --text text --model tiny --seq 32 --sample 0 --peak-seconds 0 --steps 2 --ranks 2 --threads "$(nproc)" \
    >out 2>err && grep -q 'warning: .*more threads than' err
result $? 'more threads than cores are warned of, and run'

await_steps() # STEPS in the log of $pid
{
    tries=0
    until [ "$(grep -sc '"step":' stopped.jsonl)" -ge "$1" ] 2>/dev/null; do
        tries=$((tries + 1))
        [ $tries -lt 600 ] && kill -0 $pid 2>/dev/null || return 1
        sleep 0.1
    done
}

# A step takes milliseconds: no end comes within the hour. (train keeps a few bytes for each step.) A shell starts what runs
# beside it with SIGINT ignored.
endless="$quick --steps 1000000 --batch 1 --log stopped.jsonl --ranks 2"
env --default-signal=INT "$train" $endless >out 2>err &
pid=$!
await_steps 5
kill -INT $pid
wait $pid
[ $? = 0 ] && grep -q 'interrupted after step' out && "$python" "$check" log stopped.jsonl >>out 2>>err &&
    "$python" "$check" left out 2>>err
result $? 'Ctrl-C ends after the current step, with the summary, and exit status 0; how long it would have taken is told'
rm stopped.jsonl
# The second one some time behind the first, within a step, for which the link is slow. `within` puts processes around train.
within=
twice() # SIGNAL SECONDS GIGABYTES_A_SECOND
{
    # shellcheck disable=SC2086 # a list of words
    env --default-signal=INT $within "$train" $endless --fabric "$3,0" >out 2>err &
    pid=$!
    until [ -s stopped.jsonl ] || ! kill -0 $pid 2>/dev/null; do sleep 0.05; done
    rank=$pid
    [ -z "$within" ] || rank=$(cat /proc/$pid/task/$pid/children)
    kill "-$1" $rank
    sleep "$2"
    kill "-$1" $rank
    timeout 30 tail --pid=$pid -f /dev/null || kill -KILL $pid
    wait $pid
    status=$?
    rm stopped.jsonl
}
twice TERM 0.1 0.003
[ $status = 0 ] && grep -q 'interrupted after step' out
result $? 'what a job sends to all of its processes, and a launcher sends on, is one SIGTERM'
twice INT 0.7 0.0001
[ $status = 130 ] && ! grep -q 'interrupted after step' out
result $? 'a second Ctrl-C ends at once'
within='unshare --pid --fork --kill-child --mount-proc'
if $within true 2>/dev/null; then
    twice INT 0.7 0.0001
    [ $status = 130 ] && ! grep -q 'interrupted after step' out
    result $? 'as the first process of a container, too'
else
    skip 'as the first process of a container, too' 'processes cannot have a space of their own here'
fi
within=
"$train" $endless >out 2>err &
pid=$!
await_steps 5
kill -INT $pid
await_steps $(($(grep -c '"step":' stopped.jsonl) + 50))
goes_on=$?
kill -TERM $pid
wait $pid
[ $? = 0 ] && [ $goes_on = 0 ] && grep -q 'interrupted after step' out
result $? 'where SIGINT was ignored at the start it stays so, and SIGTERM ends'

for option in --log --trace; do
    "$train" $quick --steps 3 $option /dev/full >out 2>err
    [ $? = 1 ] && [ "$(grep -c 'cannot be written' err)" = 1 ] && grep -q weights_hash out
    result $? "a full disk under $option is told once, training goes on, and the exit status is 1"
done

"$train" $quick --steps 20 --lr 1e25 --clip 0 --log spoiled.jsonl >out 2>err
[ $? = 1 ] && grep -q 'step [0-9]*, rank [0-9]*: .*loss is .*(.*)' err && ! grep -q summary spoiled.jsonl
result $? 'a loss that is not finite ends with exit status 1, step and layer named'

"$train" $quick --steps 9 --lr 1e25 --clip 0 --on-not-finite skip --log spoiled.jsonl >out 2>err &&
    skips=$(grep -c '"skipped":true' spoiled.jsonl) && [ "$skips" -gt 2 ] &&
    grep -q "\"skipped_steps\":$skips," spoiled.jsonl && grep -q "$skips steps were not finite, and skipped" out
result $? '--on-not-finite skip goes on, and log, summary and report count the steps'
"$train" $quick --steps 12 --lr 1e18 --warmup 1 --on-not-finite skip >out 2>err && grep -q '11 steps were not finite' out &&
    [ "$(grep -c '| *\*' out)" = 1 ]
result $? 'skipped steps have no part in the curve'
"$train" $quick --steps 6 --log plain.jsonl >out 2>err &&
    "$train" $quick --steps 6 --on-not-finite skip --log given.jsonl >out 2>err &&
    "$python" "$check" same-weights plain.jsonl given.jsonl >>out 2>>err && grep -q '"skipped_steps":0,' given.jsonl
result $? '--on-not-finite skip changes no bit of a run without such a step'

"$train" $quick --steps 3 --log plain.jsonl >out 2>err
told=$?
for option in --beta1 --beta2 --eps; do
    "$train" $quick --steps 3 $option 0 --log given.jsonl >out 2>err || told=1
    ! "$python" "$check" same-weights plain.jsonl given.jsonl >>out 2>>err || told=1
done
result $told 'a 0 of --beta1, --beta2 or --eps is no default'

"$train" $quick --steps 6 --val-every 6 --export weights --log plain.jsonl >out 2>err &&
    "$train" $quick --steps 6 --val-every 6 --export average --ema 0.5 --log averaged.jsonl >out 2>err &&
    "$python" "$check" same-weights plain.jsonl averaged.jsonl >>out 2>>err &&
    ! cmp -s weights/model.safetensors average/model.safetensors &&
    [ "$(grep '"validation"' plain.jsonl)" != "$(grep '"validation"' averaged.jsonl)" ]
result $? '--ema changes no weight; validated and exported is the average'
! "$train" $quick --ema 0 >out 2>err && grep -q 'between 0 and 1' err
result $? '--ema 0 is refused'

for optimizer in sgd lion adamw8bit; do
    "$train" $quick --steps 30 --optimizer $optimizer --log given.jsonl >out 2>err &&
        "$train" $quick --steps 30 --optimizer $optimizer --memory dynamic:pool --log dynamic.jsonl >out 2>err &&
        "$python" "$check" same-weights given.jsonl dynamic.jsonl >>out 2>>err &&
        "$python" "$check" learns given.jsonl 0.3 >>out 2>>err
    result $? "--optimizer $optimizer learns, in both memory modes with the same bits"
done
"$train" $quick --steps 30 --optimizer muon --log given.jsonl >out 2>err && "$python" "$check" learns given.jsonl 0.3 >>out 2>>err &&
    "$train" $quick --steps 30 --optimizer muon --dtype bf16 --log given.jsonl >out 2>err &&
    "$python" "$check" learns given.jsonl 0.3 >>out 2>>err
result $? '--optimizer muon learns, in fp32 and bf16'
! "$train" $quick --optimizer muon --memory dynamic:pool >out 2>err && grep -q 'muon needs --memory static' err &&
    ! "$train" $quick --optimizer muon --offload-layers all >out 2>err && grep -q -e '--offload-layers with --optimizer muon' err
result $? 'what muon cannot do yet is refused'
"$train" $quick --steps 60 --log plain.jsonl >out 2>err &&
    "$train" $quick --steps 60 --optimizer adamw8bit --log given.jsonl >out 2>err &&
    "$python" "$check" near-losses plain.jsonl given.jsonl 0.01 >>out 2>>err &&
    ! "$python" "$check" same-weights plain.jsonl given.jsonl >>out 2>>err
result $? 'state in 8 bits: the loss after 60 steps is within 1 % of fp32 state'
"$train" $quick --steps 3 --optimizer sgd --momentum 0 --log given.jsonl >out 2>err &&
    "$train" $quick --steps 3 --optimizer sgd --log plain.jsonl >out 2>err &&
    ! "$python" "$check" same-weights plain.jsonl given.jsonl >>out 2>>err
result $? '--momentum is of SGD'
for momentum in '' '--momentum 0.95' '--momentum 0.5' '--beta1 0.5'; do
    "$train" $quick --steps 3 --optimizer muon $momentum >out 2>err && grep -o 'weights_hash [0-9a-f]*' out >>hashes
done
[ "$(sort hashes | uniq | wc -l)" = 3 ] && [ "$(sed -n 1p hashes)" = "$(sed -n 2p hashes)" ]
result $? "--momentum is of Muon's matrices, 0.95 unless given; --beta1 of the rest"
! "$train" $quick --momentum 0.9 >out 2>err && grep -q "SGD's and Muon's; with --optimizer adamw give --beta1" err &&
    ! "$train" $quick --optimizer sgd --beta1 0.9 >out 2>err && grep -q 'give --momentum' err &&
    ! "$train" $quick --optimizer muon --momentum 0 >out 2>err && grep -q 'give one above 0' err
result $? 'refused: a momentum of none, and of others'
! "$train" $quick --optimizer lion --eps 1e-8 >out 2>err && grep -q "AdamW's; with --optimizer lion leave it out" err &&
    ! "$train" $quick --optimizer nadam >out 2>err && grep -q 'adamw, adamw8bit, sgd, lion or muon' err
result $? 'an unknown optimizer, and a number that it has not, are refused'

"$train" $quick --steps 4 --dropout 0.2 --log dropped.jsonl >out 2>err &&
    "$train" $quick --steps 4 --dropout 0.2 --recompute all --log again.jsonl >out 2>err &&
    "$python" "$check" same-weights dropped.jsonl again.jsonl >>out 2>>err &&
    ! "$python" "$check" same-weights dropped.jsonl plain.jsonl >>out 2>>err
result $? '--dropout: a recompute draws the same masks'
loss() { sed -n 's/^{"step":1,"loss":\([0-9]*\.[0-9]\{4\}\).*/\1/p' "$1"; }
for shape in '--ranks 1 --batch 4' '--ranks 4 --batch 1' '--ranks 1 --batch 2 --micro-batches 2'; do
    "$train" $quick --steps 1 --dropout 0.5 $shape --log shaped.jsonl >out 2>err && loss shaped.jsonl
done | uniq >losses
[ "$(wc -l <losses)" = 1 ] && [ -s losses ]
result $? '--dropout: the same masks on other ranks, batches and micro-batches'

"$train" $quick --steps 2 --hash off --log no_hash.jsonl >out 2>err && grep -q '^weights_hash off' out &&
    grep -q '"weights_hash":null' no_hash.jsonl && ! "$train" $quick --steps 2 --hash maybe >out 2>err && grep -q 'give on or off' err
result $? '--hash off leaves the hash of the weights out'

"$train" $quick --steps 1 >out 2>err && [ "$(grep -c '| *\*$' out)" = 1 ] &&
    grep -q '^loss: \([0-9.]*\) in the first step, \1 at the end$' out
result $? 'the curve of a single step is a point'

"$train" $quick --plan --log plan.jsonl >out 2>err && grep -q 'lower bound' out && [ ! -e plan.jsonl ]
result $? '--plan prints the plan and writes nothing'

"$train" --text text --model tiny --seq 32 --threads 1 --peak-seconds 0 --steps 2 --sample 20 >out 2>err &&
    grep -q '^sample, after 16 given' out
result $? 'a sample is generated'

# The sample is longer than a sequence, so the cache is begun anew several times.
for model in tiny qwen3-tiny; do
    options="--text text --model $model --seq 32 --threads 1 --peak-seconds 0 --steps 2 --sample 90"
    "$train" $options >out 2>err && EO_TEST_SAMPLE_WITHOUT_CACHE=1 "$train" $options >plain 2>>err &&
        sed -n '/^sample/,/^weights_hash/p' out >out.sample && sed -n '/^sample/,/^weights_hash/p' plain >plain.sample &&
        [ -s out.sample ] && cmp out.sample plain.sample >>err
    result $? "$model: the sample with a cache of keys and values is the one without"
done
# Then the threads of all ranks compute, with scratch for each of them.
"$train" --text text --model small --dtype bf16 --ranks 2 --seq 32 --threads 1 --peak-seconds 0 --steps 1 --sample 20 >out 2>err &&
    grep -q '^sample, after 16 given' out
result $? 'two ranks generate a sample in bf16'

# Hours of sample: the signal comes when steps are over. One rank of processes is enough.
interrupt_sample() # NAME COMMAND...
{
    name=$1
    shift
    for seconds in 0.2 1 4; do # nothing tells when a sample begins: on a busy machine the signal may come before
        : >out # the run before has such a step
        "$@" >out 2>err &
        pid=$!
        tries=0
        until grep -q 'step     1 / 1' out || [ $tries -gt 600 ]; do
            tries=$((tries + 1))
            sleep 0.05
        done
        sleep $seconds
        kill -TERM $pid
        # timeout would not see a child of this shell
        tries=0
        while kill -0 $pid 2>/dev/null && [ $tries -lt 200 ]; do
            tries=$((tries + 1))
            sleep 0.05
        done
        [ $tries -lt 200 ] || kill -KILL $pid
        wait $pid
        status=$?
        grep -q '^interrupted after step' out || break
    done
    [ $status = 0 ] && grep -qE '^interrupted after [0-9]+ of 1000000 tokens' out && grep -q weights_hash out
    result $? "$name"
}
long="--text text --model tiny --seq 32 --threads 1 --peak-seconds 0 --steps 1 --sample 1000000"
interrupt_sample 'a signal while text is sampled ends the run in order, with what there is' "$train" $long
EO_TEST_SAMPLE_WITHOUT_CACHE=1
export EO_TEST_SAMPLE_WITHOUT_CACHE
interrupt_sample 'without a cache too' "$train" $long
unset EO_TEST_SAMPLE_WITHOUT_CACHE

for every in 0 2 6; do # none, between steps, and behind the last one too
    "$train" $quick --ranks 2 --steps 6 --memory dynamic:malloc --dynamic-offload $([ $every = 0 ] || echo --val-every $every) --log validated-$every.jsonl \
        >>out 2>>err
done
"$python" "$check" traffic validated-0.jsonl validated-2.jsonl validated-6.jsonl 2>>err && grep -q 'waiting for host memory' out
result $? 'allocations and bytes of a step are without those of validations, and its waits for offloaded gradients are told'

"$headtohead" --text text --model tiny --seq 32 --threads 1 --steps 6 --runs 2 --json h.json --html h.html >out 2>err
result $? 'headtohead runs all modes to the same weights'
"$python" "$check" comparison h.json h.html 2 out >>out 2>>err
result $? 'its JSON has the figures of every mode and run, its page stands alone'
"$headtohead" --text text --model 2x32x4 --seq 16 --threads 1 --steps 4 --runs 1 --offload-layers all --offload-folder . \
    --dynamic-offload --json o.json >out 2>err && "$python" "$check" offload o.json >>out 2>>err && grep -q '^All runs end with the same weights' out && grep -q '^offloaded of a rank  *0\.[0-9]* MiB  *0\.[0-9]* MiB' out
result $? 'headtohead --dynamic-offload beside layers that are offloaded by plan'
"$headtohead" --text text --model tiny --seq 32 --threads 1 --steps 9 --runs 1 --lr 1e25 --clip 0 >out 2>err
[ $? = 1 ] && grep -q 'step [0-9]*, rank [0-9]*: .*loss is .*(.*)' err && ! grep -q '^All runs' out
result $? 'a run of headtohead that fails is told, and ends it with exit status 1'
variants=ddp,zero2,zero3,one-unit,blocks:2,auto-wrap:1MiB,dynamic:malloc
"$headtohead" --text text --model tiny --seq 32 --threads 1 --steps 6 --runs 1 --compare $variants --json v.json --html v.html \
    >out 2>err && ! grep -q null out && "$python" "$check" variants v.json v.html $variants >>out 2>>err
result $? 'headtohead --compare: strategies and units side by side, with what each sends'
"$headtohead" --text text --model tiny --seq 32 --threads 1 --steps 4 --runs 1 --optimizer muon --compare zero2,zero3 --json m.json \
    --html m.html >out 2>err && "$python" "$check" muon v.json m.json m.html >>out 2>>err
result $? 'headtohead counts what Muon sends, and its page has colours for it'
"$headtohead" --text text --model 2x32x4 --seq 16 --threads 1 --steps 4 --ranks 4 --runs 1 --compare zero3,ddp,hsdp:2 --json s.json \
    >out 2>err && "$python" "$check" sent s.json 2>>err
result $? 'what groups send is within them, and over them'
counted='--text text --model tiny --seq 32 --threads 1 --steps 4 --dtype bf16'
"$headtohead" $counted --runs 1 --json b.json >out 2>err
told=$?
for memory in static dynamic:malloc dynamic:pool; do
    "$train" $counted --sample 0 --peak-seconds 0 --memory $memory --log counted.jsonl >out 2>err &&
        "$python" "$check" counts out counted.jsonl b.json $memory 2>>err || told=1
done
result $told 'train counts bytes, collectives and calls as headtohead does'
# Beside what is planned a run takes as much where the plan is tight: weights are read in memory of the plan that is free then.
echo '{"model_type": "gpt2", "n_layer": 4, "n_embd": 256, "n_head": 4, "vocab_size": 50257, "n_positions": 256}' >wide.json
for recompute in none all; do
    "$train" --model ./wide.json --text text --dtype bf16 --ranks 2 --threads 1 --batch 4 --seq 256 --steps 1 --sample 0 \
        --peak-seconds 0 --recompute $recompute >out 2>err &&
        awk '/^  planned /{ planned = $2 } /^  process, all ranks/ { print $4 - 2 * planned }' out >>beside
done
awk '{ mib[NR] = $1 } END { exit !(NR == 2 && mib[2] - mib[1] < 40) }' beside || { cat beside >>err; false; }
result $? 'a tight plan has room to read the weights of a tied embedding in'
"$headtohead" --text text --model tiny --seq 32 --threads 1 --steps 1000000 >out 2>err &
pid=$!
tries=0 run=
until run=$(cat /proc/$pid/task/$pid/children) && [ "$run" ] || [ $tries = 200 ]; do tries=$((tries + 1)); sleep 0.05; done
kill -KILL $pid
wait $pid
until ! kill -0 $run 2>/dev/null || [ $tries = 200 ]; do tries=$((tries + 1)); sleep 0.05; done
[ "$run" ] && [ $tries -lt 200 ]
result $? 'no run outlives a headtohead that is killed'
finish
