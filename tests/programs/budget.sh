#!/bin/sh
# SPDX-License-Identifier: MIT
#
# Goal: a budget bounds the plan, more of it never makes the predicted step slower, and no bit changes; what is less than
#       the least possible is refused, with the least.
# Method: 20 budgets from the least to everything for GPT-2 and Llama, with a file of rates; some of them trained.
# usage: budget.sh TRAIN MEMPLAN LAUNCH SOURCE
set -u
. "$(dirname "$0")/../tap/tap.sh"
train=$(realpath "$1") memplan=$(realpath "$2") launch=$(realpath "$3") text=$(realpath "$4")/LICENSE
folder=$PWD
need_disk "$folder"
shown="out err"
enter_folder "$folder"
cat >rates.json <<'END'
{"products_flops_per_s": 1e11, "memory_bytes_per_s": 1e10, "disk_bytes_per_s": 1e9, "link_bytes_per_s": 1e10}
END
hash_of() { sed -n 's/^weights_hash \([0-9a-f]*\),.*/\1/p' "$1"; }
arena_of() { sed -n 's/^  arena  *\([0-9]*\) .*/\1/p' "$1"; }

for model in 4x64x2 llama-tiny; do
    job="--model $model --ranks 2 --threads 1 --batch 2 --seq 32 --dtype bf16 --text $text --rates rates.json"
    # shellcheck disable=SC2086 # lists of options, here and below
    "$train" $job --plan --budget 1 >out 2>err
    [ $? = 2 ]
    status=$?
    least=$(sed -n 's/.*the least is \([0-9]*\) .*/\1/p' err)
    [ $status = 0 ] && [ "${least:-0}" -gt 0 ]
    result $? "$model: one byte is refused, and the least is named: ${least:-}"
    "$train" $job --plan --budget $((least - 1)) >out 2>err
    [ $? = 2 ] && grep -q "the least is $least " err
    result $? "$model: one byte less than the least is refused"
    "$train" $job --plan --budget 1TiB >out 2>err
    most=$(arena_of out)
    bound=0 slower=0 before=1000000 i=0
    while [ $i -le 19 ]; do
        budget=$((least + (most - least) * i / 19))
        "$train" $job --plan --budget $budget >out 2>err || { bound=1; break; }
        [ "$(arena_of out)" -le $budget ] || bound=1
        now=$(sed -n 's/^budget: .*predicted \([0-9.]*\) s a step$/\1/p' out)
        slower=$(awk "BEGIN { print $slower + ($now > $before) }")
        before=$now i=$((i + 1))
    done
    [ $bound = 0 ] && [ $i = 20 ] && [ "$(arena_of out)" = "$most" ]
    result $? "$model: 20 budgets from $least to $most bytes bound their plans"
    [ "$slower" = 0 ]
    result $? "$model: no larger budget is predicted to be slower"
    "$train" ${job% --rates*} --steps 3 --sample 0 --peak-seconds 0 >out 2>err
    same=$(hash_of out)
    for part in 0 7 14; do
        "$train" $job --steps 3 --sample 0 --peak-seconds 0 --budget $((least + (most - least) * part / 19)) --log log.jsonl \
            >out 2>err && [ -n "$same" ] && [ "$(hash_of out)" = "$same" ] && tail -n 1 log.jsonl | grep -q '"predicted_step_s":0\.'
        result $? "$model: part $part of 19 gives the weights of everything in memory"
        rm -f log.jsonl
    done
done
sed 's/"disk_bytes_per_s": 1e9/"disk_bytes_per_s": 1/' rates.json >slow.json
"$train" --model 4x64x2 --ranks 2 --threads 1 --batch 2 --seq 32 --text "$text" --plan --rates slow.json --budget 2750000 >out 2>err &&
    grep -q '^budget: .* on disk .*predicted [1-9][0-9]\{5,\}\.[0-9]* s a step' out
result $? 'a disk of a byte a second is predicted to take days, not milliseconds'

# --- the least is no more than what the options reach
for model in 9x256x2 12x256x2; do
    job="--model $model --ranks 2 --threads 1 --batch 2 --seq 32 --dtype bf16 --text $text --plan"
    # shellcheck disable=SC2086
    "$train" $job --rates rates.json --budget 1 >out 2>err
    least=$(sed -n 's/.*the least is \([0-9]*\) .*/\1/p' err)
    for more in '' --offload-gradients; do
        # shellcheck disable=SC2086
        "$train" $job --offload-layers all --offload-slots 1 --slots 1,1 --recompute all $more >out 2>err
        [ -n "$least" ] && [ "$least" -le "$(arena_of out)" ]
        result $? "$model: the least is no more than one buffer takes${more:+ with $more}"
    done
done
job="--model 4x64x2 --ranks 2 --threads 1 --batch 2 --seq 32 --text $text --steps 1 --sample 0 --peak-seconds 0"
"$train" $job --budget available >out 2>err && grep -q '^rates of a rank: products [1-9].*; tried out: a block [0-9.]*[1-9]' out &&
    grep -q '^budget: .*recompute none' out
result $? 'rates are measured, blocks are tried out, and what is available is enough for everything'
if (ulimit -v 170000 && "$train" --version >/dev/null 2>&1); then
    (ulimit -v 170000 && "$train" $job --ranks 1 --budget available >out 2>err) ||
        grep -q '^train: not enough memory for any plan: .*under the limit on address space' err
    result $? 'where little memory is available it is enough to measure in'
    little="--model small --ranks 1 --threads 1 --batch 1 --seq 64 --text $text --steps 1 --sample 0 --peak-seconds 0
        --budget available --offload-folder ."
    for rates in '--rates rates.json' ''; do
        trained=0 refused=0
        for limit in 240000 300000; do
            if (ulimit -v $limit && "$train" $little $rates >out 2>err); then
                trained=$((trained + 1))
            else
                grep -q ' are too few; the least is ' err || { refused=$limit; break; }
            fi
        done
        [ $refused = 0 ] && [ $trained -ge 1 ]
        result $? "what is available is enough for the plan that is chosen by it${rates:+, with rates}"
    done
    (ulimit -v 340000 && "$train" $little --rates rates.json --checkpoint saved >out 2>err) && [ -d saved/step-000000000001 ] &&
        grep -q "^budget: with all layers in memory a checkpoint's copy takes [1-9]" out && grep -q '^budget: .* layers on disk' out
    result $? 'where a checkpoint has no room for its copy, layers are on disk'
    (ulimit -v 500000 && "$train" $little --rates rates.json --checkpoint more >out 2>err) && [ -d more/step-000000000001 ] &&
        grep -q '^budget: .* recompute none' out && ! grep -q '^budget: .* on disk' out
    result $? 'where it has, all stay in memory'
    rm -rf saved more
    for options in '--budget available' '--budget available --offload-folder .' '--budget 60MiB'; do
        (ulimit -v 700000 && "$train" --model tiny --seq 32 --ranks 1 --threads 80 --text "$text" --plan $options >out 2>err)
        [ $? = 2 ] && grep -q '^train: not enough memory for any plan: .*the program and its threads take 672 beside it; give fewer' err
        result $? "refused: nothing is free beside the threads: $options"
    done
    world="$launch -n 2 sh limited.sh $train $(echo "$job" | sed 's/--ranks 2 //') --rates rates.json --budget available"
    # shellcheck disable=SC2016 # the rank's own
    echo '[ "$EVENODD_RANK" = 0 ] || ulimit -v $LIMIT; exec "$@"' >limited.sh
    LIMIT=unlimited $world >out 2>err && most=$(sed -n 's/^budget: \([0-9]*\)\.[0-9]* MiB a rank: .*/\1/p' out) &&
        LIMIT=600000 $world >out 2>err && least=$(sed -n 's/^budget: \([0-9]*\)\.[0-9]* MiB a rank: .*/\1/p' out) &&
        [ "${least:-0}" -gt 0 ] && [ "$least" -lt 586 ] && [ "${most:-0}" -ge "$least" ]
    result $? "of several processes the least that is available is the budget of all: ${least:-} of ${most:-} MiB"
    LIMIT=120000 $world >out 2>err
    [ $? = 2 ] && grep -q '^train: rank 1: not enough memory for any plan' err
    result $? 'refused by all: nothing is free for one of them'
else
    skip 'little memory to measure in' 'this build takes more'
fi
"$train" $job --budget 100 >out 2>err
[ $? = 2 ] && grep -q '^budget: blocks were not tried out (two and the head need more memory)' out
result $? 'no trial takes more memory than the budget, and a line says so'
wide=$(echo "$job" | sed 's/4x64x2/3x256x2/')
"$train" $wide --budget 1 --rates rates.json >out 2>err
least=$(sed -n 's/.*the least is \([0-9]*\) .*/\1/p' err)
"$train" $wide --budget "$least" >out 2>err && grep -q '^rates of a rank: .*; tried out: a block [0-9.]*[1-9]' out
result $? 'in the least memory blocks are tried out with their optimizer on disk'

refuse() # WHAT TEXT OPTION...
{
    what=$1 part=$2
    shift 2
    # shellcheck disable=SC2086
    "$train" $job "$@" >out 2>err
    [ $? = 2 ] && grep -q -- "$part" err
    result $? "refused: $what"
}
# --- without a disk
quick="--model 4x64x2 --ranks 2 --threads 1 --batch 2 --seq 32 --text $text"
sed 's/"disk_bytes_per_s": 1e9, //' rates.json >memory.json
"$train" $quick --plan --rates memory.json --budget 1TiB >out 2>err && most=$(arena_of out) &&
    "$train" $quick --plan --rates rates.json --budget 2750000 >out 2>err && grep -q '^budget: .* on disk' out &&
    "$train" $quick --plan --rates memory.json --budget $((most - 1)) >out 2>err &&
    grep -q '^rates of a rank: .* no disk' out && ! grep -q 'on disk' out &&
    grep -q "^budget: only plans without a disk: memory.json has no 'disk_bytes_per_s'" out
result $? 'rates without a disk leave everything in memory, and a line says so'
"$train" $quick --plan --rates memory.json --budget 1000 >out 2>err
[ $? = 2 ] && grep -q "or a disk (disk_bytes_per_s of --rates; train's --offload-folder), takes less" err
result $? 'too little without a disk: one is named as a remedy'
if [ "$(stat -f -c %T /dev/shm 2>/dev/null)" = tmpfs ]; then
    for rates in '' "--rates $work/rates.json"; do
        # shellcheck disable=SC2086
        (cd /dev/shm && "$train" $quick --steps 1 --sample 0 --peak-seconds 0 $rates --budget 2750000) >out 2>err
        [ $? = 2 ] && grep -q "or a disk (disk_bytes_per_s of --rates; train's --offload-folder), takes less" err &&
            (cd /dev/shm && "$train" $quick --steps 1 --sample 0 --peak-seconds 0 $rates --budget $((most - 1))) >out 2>err &&
            [ "$(grep -c '^budget: only plans without a disk: .* lies in memory (tmpfs)' out)" = 1 ] && [ -n "$(hash_of out)" ]
        result $? "a current folder in memory: only plans without a disk${rates:+, with rates of one}"
        # shellcheck disable=SC2086
        "$train" $quick --steps 1 --sample 0 --peak-seconds 0 $rates --budget 2750000 --offload-folder /dev/shm >out 2>err
        [ $? = 2 ] && grep -q 'lies in memory (tmpfs)' err
        result $? "refused: a named folder in memory${rates:+, with rates}"
    done
    short="--model 2x256x2 --ranks 2 --threads 1 --batch 1 --seq 16 --text $text --steps 1 --sample 0 --peak-seconds 0"
    "$train" $short --rates memory.json --budget 1 >out 2>err
    least=$(sed -n 's/.*the least is \([0-9]*\) .*: .*slots 1,1;.*/\1/p' err)
    (cd /dev/shm && "$train" $short --budget "$least") >out 2>err && grep -q '^rates of a rank: .*; tried out: a block [0-9.]*[1-9]' out
    result $? 'in the least memory without a disk blocks are tried out with one gather and one gradient buffer'
else
    skip 'a current folder in memory' 'no tmpfs at /dev/shm'
fi

# --- the log's summary
cat >summary.awk <<'END'
function of(name) { return match($0, "\"" name "\":[^,}]*") ? substr($0, RSTART + length(name) + 3, RLENGTH - length(name) - 3) : "none" }
/"summary"/ { print of("disk_bytes") + 0, of("io_bytes_per_step") + 0, of("predicted_step_s"), of("exposed_io_s"), of("fetch") }
END
# shellcheck disable=SC2086
for options in '--rates rates.json --budget 2750000' '--offload-layers all --offload-gradients' '--offload-layers 1' ''; do
    rm -f log.jsonl
    "$train" $quick --plan $options >plan 2>err &&
        "$train" $quick --steps 5 --sample 0 --peak-seconds 0 $options --log log.jsonl >out 2>err &&
        awk -f summary.awk log.jsonl >summary && read -r disk moved predicted exposed fetch <summary &&
        [ "$disk" = "$(awk '/^  disk\./ { all += $(NF - 1) } END { print all + 0 }' plan)" ] && [ "$moved" = $((2 * disk)) ] &&
        [ "$exposed" = "$fetch" ] && case $options in
        *budget*) [ "$(printf %.3f "$predicted")" = "$(sed -n 's/^budget: .*predicted \([0-9.]*\) s a step$/\1/p' plan)" ] ;;
        *) [ "$predicted" = null ] ;;
        esac && awk "BEGIN { exit !($exposed == 0 || $disk > 0) }"
    result $? "the summary counts what is on disk, what a step moves, and the wait for it: ${options:-nothing}"
done

# --- other optimizers: their state on disk has the bits of that in memory, and its bytes are the plan's
# shellcheck disable=SC2086
for optimizer in adamw8bit lion sgd; do
    for dtype in fp32 bf16; do
        given="--optimizer $optimizer --dtype $dtype" held=1
        "$train" $quick --steps 4 --sample 0 --peak-seconds 0 $given >out 2>err && whole=$(hash_of out)
        for options in '--rates rates.json --budget 2320000' '--offload-layers all --offload-gradients' '--offload-layers 2'; do
            rm -f log.jsonl
            "$train" $quick --plan $given $options >plan 2>err &&
                "$train" $quick --steps 4 --sample 0 --peak-seconds 0 $given $options --log log.jsonl >out 2>err &&
                awk -f summary.awk log.jsonl >summary && read -r disk moved _ <summary && [ "$(hash_of out)" = "$whole" ] &&
                [ "$disk" = "$(awk '/^  disk\./ { all += $(NF - 1) } END { print all + 0 }' plan)" ] &&
                [ "$disk" -gt 0 ] && [ "$moved" = $((2 * disk)) ] &&
                tail -n 1 log.jsonl | grep -q "\"arena_bytes\":$(arena_of plan),\"planned_bytes\":$(arena_of plan)," || held=0
        done
        [ -n "$whole" ] && [ $held = 1 ]
        result $? "$optimizer, $dtype, on disk: the weights of everything in memory, planned bytes are measured ones"
    done
done

# --- kept in checkpoints
run() # OPTION...
{
    # shellcheck disable=SC2086
    "$train" $quick --seed 3 --schedule constant --sample 0 --peak-seconds 0 "$@" >out 2>err
}
choice_of() { sed -n 's/^\(budget: .* a rank\|choice of the checkpoint\): \(recompute [^;]*\);.*/\2/p' "$1"; }
run --steps 6 && whole=$(hash_of out) && run --steps 2 --rates rates.json --budget 2750000 --checkpoint saved && made=$(choice_of out)
[ -n "$whole" ] && [ -n "${made:-}" ] && [ "${made#*on disk}" != "$made" ]
result $? "a run by a budget: ${made:-}"
again="--checkpoint saved --resume"
# shellcheck disable=SC2086
run --steps 4 $again --log log.jsonl && [ "$(choice_of out)" = "$made" ] && [ "$(grep -c '^choice of the checkpoint' out)" = 1 ] &&
    tail -n 1 log.jsonl | grep -q '"disk_bytes":[1-9].*' && tail -n 1 log.jsonl | grep -q '"predicted_step_s":0\.'
result $? '--resume goes on with the choice of the checkpoint, and says so in a line'
# shellcheck disable=SC2086
run --steps 6 $again && [ "$(choice_of out)" = "$made" ] && [ "$(hash_of out)" = "$whole" ]
result $? 'so does the next one, with the weights of everything in memory'
while IFS='|' read -r options change; do
    # shellcheck disable=SC2086
    run --steps 6 --plan --resume saved $options && chosen=$(choice_of out) && [ "$chosen" != "$made" ] &&
        [ "$chosen" = "$(echo "$made" | sed "$change")" ]
    result $? "options count for more than the checkpoint: $options"
done <<'END'
--recompute 3|s/recompute [^,]*/recompute 3/
--slots 3,2|s/slots [0-9],[0-9]/slots 3,2/
--offload-layers 0|s/, [0-9] of .*//
--offload-layers 2 --offload-slots 1 --offload-folder .|s/, [0-9] of .*/, 2 of 5 layers on disk by 1 buffer/
END
# shellcheck disable=SC2086
run --steps 6 --plan --resume saved --budget 2750000 && [ "$(choice_of out)" = "$made" ] &&
    grep -q '^rates of a rank, of the checkpoint: products 100 GFLOP/s' out
result $? 'a budget chooses again, by the rates of the checkpoint'
run --steps 6 --plan --resume saved --budget 2750000 --rates measure && grep -q '^rates of a rank: products' out
result $? '... or by new ones'
run --steps 6 --resume saved/step-000000000004 --memory dynamic:malloc && ! grep -q '^choice' out && [ "$(hash_of out)" = "$whole" ]
result $? 'memory that is not planned has no use for it'
rm -r saved
run --steps 3 --checkpoint saved --recompute cheap && run --steps 6 --resume saved && ! grep -q '^choice' out &&
    [ "$(hash_of out)" = "$whole" ]
result $? 'a checkpoint without a choice, as they were before, is resumed without one'
run --steps 6 --resume saved --offload-folder .
[ $? = 2 ] && grep -q -- '--offload-folder needs --offload-layers' err
result $? 'refused: a folder for nothing'
rm -r saved

# --- memplan chooses alike
mkdir gpt2 llama
echo '{"model_type": "gpt2", "n_layer": 5, "n_embd": 64, "n_head": 2, "n_positions": 256, "vocab_size": 256}' >gpt2/config.json
cat >llama/config.json <<'END'
{"model_type": "llama", "num_hidden_layers": 14, "hidden_size": 64, "intermediate_size": 160, "num_attention_heads": 4,
 "num_key_value_heads": 2, "max_position_embeddings": 256, "vocab_size": 256, "rms_norm_eps": 1e-5}
END
for model in ./gpt2 ./llama; do
    plan="--model $model --ranks 2 --threads 1 --batch 2 --seq 32 --dtype bf16 --rates rates.json"
    # shellcheck disable=SC2086
    "$memplan" $plan --kernels cpu --budget 1 >out 2>err
    [ $? = 2 ] && sed 's/^[a-z]*: //' err >refused && ! "$train" $plan --plan --budget 1 >out 2>err && sed 's/^[a-z]*: //' err | cmp -s - refused
    result $? "$model: memplan refuses too little with the words of train"
    least=$(sed -n 's/.*the least is \([0-9]*\) .*/\1/p' refused)
    # shellcheck disable=SC2086
    "$train" $plan --plan --budget 1TiB >out 2>err && most=$(arena_of out)
    same=0 more=0 i=0
    for part in 0 1 3 7 12 18 20; do
        budget=$((least + (most - least) * part / 20))
        # shellcheck disable=SC2086
        "$train" $plan --plan --budget $budget >out 2>err && "$memplan" $plan --kernels cpu --budget $budget >said 2>err &&
            "$memplan" $plan --kernels cpu --budget $budget --json >json 2>err && grep -A 9 '^budget:' out >wanted || break
        sed -n 's/^  //; /^budget:/p; /would give/p' said >found
        more=$((more + $(grep -c 'would give' found)))
        sed -n '/^budget:/p; /would give/p' wanted | cmp -s - found && grep -q "\"arena_bytes\": $(arena_of out)" json &&
            same=$((same + 1))
        i=$((i + 1))
    done
    [ $same = 7 ] && [ $i = 7 ] && [ $more -gt 7 ]
    result $? "$model: memplan chooses as train does, within 7 budgets, and names the same larger ones"
done
"$train" $quick --steps 2 --sample 0 --peak-seconds 0 --rates rates.json --budget 2750000 --log log.jsonl >out 2>err
echo '{"model_type": "gpt2", "n_layer": 4, "n_embd": 64, "n_head": 2, "n_positions": 256, "vocab_size": 256}' >gpt2/config.json
"$memplan" --model ./gpt2 --verify log.jsonl >out 2>err && grep -q '"space": *"disk"\|disk\.' log.jsonl
result $? 'memplan --verify takes from a log what a budget chose'
rm -f log.jsonl
plan_refused() # WHAT TEXT OPTION...
{
    what=$1 part=$2
    shift 2
    "$memplan" --model ./gpt2 "$@" >out 2>err
    [ $? = 2 ] && grep -q -- "$part" err
    result $? "memplan refuses $what"
}
plan_refused 'a budget without rates' '--budget needs --rates' --kernels cpu --budget 1GiB
plan_refused 'rates without a budget' '--rates needs --budget' --kernels cpu --rates rates.json
plan_refused 'one size with a GPU'"'"'s kernels' 'DEVICE,HOST' --budget 1GiB --rates rates.json
plan_refused 'two sizes with those of a CPU' 'one size' --kernels cpu --budget 1GiB,1GiB --rates rates.json
plan_refused 'a setting that the budget chooses' 'leave --slots out' --kernels cpu --budget 1GiB --rates rates.json --slots 1,1
plan_refused 'another search' 'leave --fit out' --kernels cpu --budget 1GiB --rates rates.json --fit max-batch --device-memory 1GiB
for wrong in 's/"disk_bytes_per_s"/"disk_bytes_per_second"/' 's/}/, "tried": {"shapes": "x"}}/' 's/}/, "pcie": 1}/'; do
    sed "$wrong" rates.json >wrong.json
    case $wrong in *disk*) told="'disk_bytes_per_second' is no key of it; did you mean 'disk_bytes_per_s'?" ;; *) told="no" ;; esac
    plan_refused "rates with a key of no meaning: $wrong" "wrong.json.*$told" --kernels cpu --budget 1GiB --rates wrong.json
done
sed 's/}/, "about": "a machine"}/' rates.json >about.json
"$memplan" --model ./gpt2 --kernels cpu --budget 1GiB --rates about.json >out 2>err
result $? 'rates may say what they are of'
plan_refused 'rates that are no file' 'nowhere.json' --kernels cpu --budget 1GiB --rates nowhere.json

# --- pieces of the head
mkdir head
echo '{"model_type": "gpt2", "n_layer": 2, "n_embd": 32, "n_head": 2, "n_positions": 256, "vocab_size": 2048}' >head/config.json
plan="--model ./head --ranks 2 --threads 1 --batch 4 --seq 64 --dtype bf16 --rates rates.json"
# shellcheck disable=SC2086
"$train" $plan --plan --budget 1 >out 2>err
least=$(sed -n 's/.*the least is \([0-9]*\) .*/\1/p' err)
# shellcheck disable=SC2086
"$train" $plan --plan --budget 1 --budget-may-change-bits >out 2>err
fewer=$(sed -n 's/.*the least is \([0-9]*\) .*, head in [0-9]* pieces; .*/\1/p' err)
[ "${least:-0}" -gt "${fewer:-$least}" ]
result $? "pieces of the head take less: ${fewer:-} bytes in place of ${least:-}"
budget=$(((least + ${fewer:-0}) / 2)) pieces=
# shellcheck disable=SC2086
"$train" $plan --plan --budget $budget --budget-may-change-bits >out 2>err && [ "$(arena_of out)" -le $budget ] &&
    pieces=$(sed -n 's/^budget: .*, head in \([0-9]*\) pieces; .*/\1/p' out) && [ "${pieces:-0}" -gt 1 ] &&
    "$memplan" $plan --kernels cpu --budget $budget --budget-may-change-bits >said 2>err &&
    [ "$(sed -n '/^  budget:/{s/^  //;p;}' said)" = "$(grep '^budget:' out)" ] && grep -q "head in $pieces pieces, cpu kernels" said
result $? "a budget that may change bits cuts the head in ${pieces:-} pieces, in memplan too"
# shellcheck disable=SC2086
"$train" $plan --plan --budget 1TiB --budget-may-change-bits >out 2>err && ! grep -q '^budget: .*head' out
result $? 'where memory is enough, it does not'
job="${plan% --rates*} --text $text --seed 3 --schedule constant --sample 0 --peak-seconds 0"
# shellcheck disable=SC2086
"$train" $job --steps 4 --head-chunks $pieces >out 2>err && whole=$(hash_of out) &&
    "$train" $job --steps 2 --rates rates.json --budget $budget --budget-may-change-bits --checkpoint saved >out 2>err &&
    "$train" $job --steps 4 --resume saved >out 2>err && grep -q "^choice of the checkpoint: .*, head in $pieces pieces;" out &&
    [ -n "$whole" ] && [ "$(hash_of out)" = "$whole" ]
result $? 'a checkpoint keeps them: the weights of --head-chunks from the start'
rm -rf saved
job="--model 4x64x2 --ranks 2 --threads 1 --batch 2 --seq 32 --text $text --steps 1 --sample 0 --peak-seconds 0"
refuse 'leave to change bits without a budget' '--budget-may-change-bits needs --budget' --budget-may-change-bits
refuse 'pieces that the budget chooses' '--budget chooses --head-chunks' --budget 1GiB --head-chunks 2 --budget-may-change-bits
plan_refused 'pieces that the budget chooses' 'leave --head-chunks out' --kernels cpu --budget 1GiB --rates rates.json \
    --head-chunks 2 --budget-may-change-bits

# Muon's iteration is in fp32, and its layers stay in memory.
predicted_of() { sed -n 's/^budget: .*predicted \([0-9.]*\) s a step$/\1/p' "$1"; }
job="--model 4x64x2 --ranks 2 --threads 1 --batch 2 --seq 32 --dtype bf16 --text $text --optimizer muon"
sed 's/}/, "fp32_products_flops_per_s": 1e8}/' rates.json >fp32.json
"$train" $job --plan --budget 1GiB --rates rates.json >out 2>err && fast=$(predicted_of out) &&
    "$train" $job --plan --budget 1GiB --rates fp32.json >out 2>err && slow=$(predicted_of out) &&
    grep -q 'products in fp32 0 GFLOP/s' out && awk "BEGIN { exit !(0 < $fast && 10 * $fast < $slow) }"
result $? "Muon by a rate of fp32 products of its own: ${fast:-} s becomes ${slow:-}"
"$train" $job --plan --budget 1 --rates rates.json >out 2>err
[ $? = 2 ] && grep -q 'the least is' err && ! grep -q 'layers on disk' err
result $? "with Muon no layer goes to the disk"
"$train" $job --steps 1 --sample 0 --peak-seconds 0 --budget 100 >out 2>err
[ $? = 2 ] && grep -q '^budget: blocks were not tried out (two and the head need more memory)' out
result $? "nor do blocks that are tried out"
"$train" $job --plan --budget 1GiB >out 2>err && grep -q '^rates of a rank: .*, products in fp32 [1-9]' out
result $? "and bf16 measures products in fp32 too"

"$train" --model tiny --ranks 2 --threads 520 --batch 1 --seq 16 --text "$text" --plan --budget 1GiB >out 2>err &&
    grep -q '^rates of a rank: ' out
result $? "ranks with more threads than one team may have are measured with as many"

refuse 'a budget that is no size' "'lots'" --budget lots
refuse 'a budget of nothing' 'above 0' --budget 0
refuse 'a setting that the budget chooses' '--budget chooses --recompute' --budget 1GiB --recompute all
refuse 'a budget of memory that is not planned' 'memory static' --budget 1GiB --memory dynamic:malloc
refuse 'rates without a budget' '--rates needs --budget' --rates rates.json
echo '{"products_flops_per_s": 1e11}' >few.json
refuse 'rates that lack one' "'memory_bytes_per_s' is missing" --budget 1GiB --rates few.json
refuse 'rates that are no file' 'nowhere.json' --budget 1GiB --rates nowhere.json
finish
