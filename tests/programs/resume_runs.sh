#!/bin/sh
# SPDX-License-Identifier: MIT
#
# Goal: a run that is saved, stopped and resumed ends in the bits of one that was never interrupted, whatever it is
#       resumed with, and what cannot be resumed is refused before anything is done.
# Method: train as its users run it; weights_hash and the log are compared.
# usage: resume_runs.sh TRAIN CHECKPOINT|- [OPTION ...]
#        options go to train (--device cuda); without the checkpoint tool only what a device has a part in is tried
set -u
. "$(dirname "$0")/../tap/tap.sh"
train=$(realpath "$1") tool=$2 fixtures=$(realpath "$(dirname "$0")/../fixtures")
[ "$tool" = - ] || tool=$(realpath "$tool")
shift 2
shown='out err'
enter_folder

seq 1 4000 >text

model=2x32x2
run() # OPTION ...
{
    # shellcheck disable=SC2086 # a list of options
    "$train" --model $model --seq 16 --sample 0 --threads 1 --peak-seconds 0 --text text --steps 12 $extra "$@" \
        >out 2>err
}

hash() { sed -n 's/^weights_hash \([0-9a-f]*\).*/\1/p' out; }
losses() { grep '"loss"' "$1" | grep '"grad_norm"' | sed 's/,"lr".*//'; }

extra=$*

run --ranks 2 --batch 2 --log whole.jsonl --val-every 5
wanted=$(hash)
[ -n "$wanted" ]
result $? 'a run that is not interrupted'

run --ranks 2 --batch 2 --checkpoint saved --checkpoint-every 5 --log parts.jsonl --val-every 5 &&
    [ "$(hash)" = "$wanted" ] && [ "$(grep -c 'saved:.*the step lost .* ms' out)" = 3 ] &&
    [ "$(ls saved | tr '\n' ' ')" = 'step-000000000005 step-000000000010 step-000000000012 ' ]
result $? 'saving every 5 steps and at the end changes no bit, and tells what a step lost'
bytes_of() { wc -c <"$(find "$1" -name 'rank-00000*')"; }
told=$(sed -n 's/^step *\([0-9]*\) .* saved: \([0-9.]*\) MiB a rank; .* lost \([0-9.]*\) ms, .* in \([0-9]*\) ms$/\1 \2 \3 \4/p' out)
[ "$told" = "$(sed -n 's/.*"checkpoint":{"step":\([0-9]*\),"bytes":\([0-9]*\),"lost_s":\([^,]*\),"write_s":\([^}]*\)}.*/\1 \2 \3 \4/p' \
    parts.jsonl | awk '{ printf "%d %.1f %.1f %.0f\n", $1, $2 / 1048576, $3 * 1000, $4 * 1000 }')" ] &&
    [ "$(echo "$told" | cut -d ' ' -f 1 | tr '\n' ' ')" = '5 10 12 ' ] &&
    grep -q "\"step\":5,\"bytes\":$(bytes_of saved/step-000000000005)," parts.jsonl || { echo "$told" >>err; false; }
result $? 'what is told of a checkpoint is in the log, with the size of its file'

rm -rf saved/step-000000000012
run --ranks 2 --batch 2 --checkpoint saved --resume --log parts.jsonl --val-every 5 && [ "$(hash)" = "$wanted" ] &&
    grep -q 'resuming from saved/step-000000000010' out
result $? '--resume takes the newest one, and ends in the same bits'

run --ranks 2 --batch 2 --resume saved/step-000000000005 --log parts.jsonl --val-every 5 && [ "$(hash)" = "$wanted" ]
result $? '--resume DIR takes that one, and ends in the same bits'
grep -q '^ *step 6 *12$' out
result $? 'the curve of its losses names the steps that it ran'

losses whole.jsonl >whole && losses parts.jsonl >parts && cmp -s whole parts && [ "$(wc -l <parts)" = 12 ] &&
    [ "$(grep -c '"plan"' parts.jsonl)" -ge 1 ] && [ "$(grep -c '"summary"' parts.jsonl)" = 1 ]
result $? 'the log goes on: each step once, with the same loss and norm'

run --ranks 2 --batch 2 --memory dynamic:pool --resume saved/step-000000000005 && [ "$(hash)" = "$wanted" ]
result $? 'resumed with another memory mode: the same bits'

run --ranks 2 --batch 2 --slots 3,1 --resume saved/step-000000000005 && [ "$(hash)" = "$wanted" ]
result $? 'resumed with other slots: the same bits'

run --ranks 2 --batch 2 --dropout 0.3 --checkpoint dropped --checkpoint-every 5
dropped=$(hash)
run --ranks 2 --batch 2 --dropout 0.3 --resume dropped/step-000000000005 && [ -n "$dropped" ] && [ "$(hash)" = "$dropped" ]
result $? 'resumed with dropout: the same masks, so the same bits'

for optimizer in sgd lion adamw8bit muon; do
    run --ranks 2 --batch 2 --optimizer $optimizer --checkpoint "$optimizer" --checkpoint-every 5
    kept=$(hash)
    run --ranks 2 --batch 2 --optimizer $optimizer --resume "$optimizer/step-000000000005" && [ -n "$kept" ] && [ "$(hash)" = "$kept" ]
    result $? "resumed with --optimizer $optimizer: the same bits"
done
! run --ranks 2 --batch 2 --optimizer sgd --resume lion/step-000000000005 && grep -q 'another optimizer: it is lion there, sgd here' err
result $? 'a checkpoint of another optimizer is refused by its name'

averaged() { grep '"validation"' "$1" | tail -n 1; }
run --ranks 2 --batch 2 --ema 0.8 --val-every 12 --checkpoint averages --checkpoint-every 5 --log ema.jsonl &&
    run --ranks 2 --batch 2 --ema 0.8 --val-every 12 --resume averages/step-000000000005 --log again.jsonl &&
    [ -n "$(averaged ema.jsonl)" ] && [ "$(averaged ema.jsonl)" = "$(averaged again.jsonl)" ]
result $? 'resumed with an average of the weights: its loss is the same'
run --ranks 2 --batch 2 --ema 0.8 --resume averages/step-000000000010 --export average && [ "$tool" = - ] ||
    { "$tool" convert averages averaged >out 2>err && grep -q 'the average of the weights' out && cmp average/model.safetensors averaged/model.safetensors; }
result $? '--export writes the average; so does evenodd-checkpoint convert'

run --ranks 2 --batch 2 --dtype bf16 --gather float8
narrow=$(hash)
run --ranks 2 --batch 2 --dtype bf16 --gather float8 --checkpoint narrow --checkpoint-every 5 &&
    run --ranks 2 --batch 2 --dtype bf16 --gather float8 --resume narrow/step-000000000005 && [ "$(hash)" = "$narrow" ] &&
    [ -n "$narrow" ]
result $? 'gathered in float8, a resumed run ends in the same bits'
run --ranks 2 --batch 2 --dtype bf16 --resume narrow/step-000000000005 && [ -n "$(hash)" ] && [ "$(hash)" != "$narrow" ] &&
    grep -q 'gather was "float8", is "bf16" now' err
result $? 'its checkpoint holds whole weights, so gathers may carry another type, which is told'

run --ranks 4 --batch 1 --resume saved/step-000000000005 && [ -n "$(hash)" ] && ! grep -q 'was .* now' err
result $? 'resumed by twice the ranks, with as many sequences a step: nothing to warn of'

python3 -c 'import struct, sys
head = struct.pack("<iii", 20240520, 1, 4000).ljust(1024, b"\0")
sys.stdout.buffer.write(head + struct.pack("<4000H", *(i * 7919 % 251 for i in range(4000))))' >tokens.bin
by_tokens="--model $model --tokens tokens.bin --sample 0 --threads 1 --peak-seconds 0 --ranks 2 --batch 2"
# shellcheck disable=SC2086 # lists of options
"$train" $by_tokens $extra --seq 16 --steps 2 --checkpoint read >out 2>err &&
    "$train" $by_tokens $extra --seq 32 --steps 3 --checkpoint read --resume >out 2>err &&
    grep -aqE '"origin_sequence": ?4[^0-9]' read/step-000000000003/rank-00000
result $? 'resumed with sequences of twice the length: 8 were read, so the fifth is next'

run --ranks 2 --batch 2 --dtype bf16 --reduce bf16 --norms fp32 --checkpoint wide --steps 1 &&
    run --ranks 2 --batch 2 --dtype bf16 --on-not-finite skip --resume wide && grep -q 'reduce was "bf16", is "fp32" now' err &&
    grep -q 'norms was "fp32", is "dtype" now' err && grep -q 'on-not-finite was "stop", is "skip" now' err
result $? 'resumed with other types of sums and norms: each difference is told'
run --ranks 3 --batch 1 --lr 0.01 --resume saved/step-000000000005 && grep -q 'sequences a step .* was 4, is 3 now' err &&
    grep -q 'lr was .* is 0.01' err
result $? 'resumed with other settings: each difference is told'
[ "$tool" = - ] || { run --ranks 2 --batch 2 --instruction-set plain --checkpoint plain &&
    run --ranks 2 --batch 2 --steps 13 --resume plain && { grep -q 'instruction-set was "plain", is "' err || grep -q 'kernels plain' out; }; }
result $? '... and another instruction set'

run --ranks 2 --batch 2 --checkpoint nothing-yet --resume && [ "$(hash)" = "$wanted" ] && grep -q 'from the start' out
result $? '--resume where there is no checkpoint yet starts, so that the same command can be run again'

refused() # WORDS OPTION ...
{
    words=$1
    shift
    run --ranks 2 --batch 2 "$@"
    [ $? = 2 ] && grep -q -- "$words" err && [ -z "$(hash)" ]
}

model=2x64x2
refused 'of another model: the dims of .* there, .* here' --resume saved
result $? 'a checkpoint of another model: status 2, with the first field that differs'
model=2x32x2

refused 'holds no checkpoint' --resume not-there
result $? '--resume DIR without a checkpoint in it: status 2'

cp -r saved/step-000000000005 damaged && mv damaged/rank-00001 aside
refused 'rank-00001 is missing' --resume damaged
result $? 'a file that is missing: status 2, with its name'

mv aside damaged/rank-00001
printf 'x' | dd of=damaged/rank-00001 bs=1 seek=20000 conv=notrunc 2>/dev/null
refused 'rank-00001: .* damaged between bytes' --resume damaged
result $? 'a damaged section: status 2, with file and section'

if [ "$tool" != - ]; then # files and folders, in which no device has a part
    # What is not the run's own file: standard output as a pipe, or a file that already holds something; a link to the log.
    again="--model $model --seq 16 --sample 0 --threads 1 --peak-seconds 0 --text text --steps 12 --ranks 2 --batch 2 $extra"
    # shellcheck disable=SC2086 # lists of options
    timeout -s KILL 120 "$train" $again --resume saved/step-000000000005 --csv /dev/stdout 2>err | cat >out
    grep -q '^step,loss' out && [ "$(grep -c '^[0-9]*,[0-9]' out)" = 7 ] && [ "$(hash)" = "$wanted" ]
    result $? 'a table to standard output goes on there: nothing is read from it'
    head=$(head -n 1 parts.jsonl)
    echo "$head" >out
    # shellcheck disable=SC2086
    "$train" $again --resume saved/step-000000000005 --log out >>out 2>err
    [ "$(hash)" = "$wanted" ] && [ "$(head -n 1 out)" = "$head" ] && grep -q '^{"summary"' out
    result $? 'a log to standard output behind what a file holds: all stays'
    cp parts.jsonl real.jsonl && ln -s real.jsonl link.jsonl
    run --ranks 2 --batch 2 --resume saved/step-000000000005 --log link.jsonl && [ -L link.jsonl ] && losses real.jsonl | cmp -s - whole
    result $? 'a link to a log stays one'
    long=$(printf '%0245d' 0).jsonl # no other file can have a name beside it, and then take its place
    for cut in '{"step": 13, "lo' '{"plan":{"rows":[{"na'; do
        cp parts.jsonl "$long" && printf '%s' "$cut" >>"$long"
        run --ranks 2 --batch 2 --resume saved/step-000000000005 --log "$long" && losses "$long" | cmp -s - whole &&
            [ "$(grep -c '^{"plan"' "$long")" = 2 ] && [ "$(head -n 1 "$long")" = "$head" ] && ! grep -qF "$cut" "$long" || break
        cut=
    done
    [ -z "$cut" ]
    result $? 'a log that no other file can replace is continued in its place: what was trained again goes, the plan before stays'

    run --ranks 2 --batch 2 --checkpoint kept --checkpoint-every 2 --keep 2 &&
        [ "$(ls kept | tr '\n' ' ')" = 'step-000000000010 step-000000000012 ' ]
    result $? '--keep 2 leaves the newest two'

    # Whoever looks between, after a kill too, finds no half of a checkpoint under the name of a whole one. What is not ours stays.
    echo mine >kept/step-000000000010/notes && echo mine >kept/step-000000000003
    run --ranks 2 --batch 2 --steps 16 --checkpoint kept --checkpoint-every 2 --keep 2 --resume &&
        [ "$(ls kept | tr '\n' ' ')" = 'step-000000000003 step-000000000010.old step-000000000014 step-000000000016 ' ] &&
        [ "$(ls kept/*.old)" = notes ] && [ "$(cat kept/*.old/notes kept/*03 | tr '\n' ' ')" = 'mine mine ' ]
    result $? 'a checkpoint that --keep removes loses its name before its first file; what is not ours stays'

    mkdir taken && exec 8>taken/.lock && flock 8
    refused 'taken: another run writes checkpoints there' --checkpoint taken
    status=$?
    exec 8>&-
    [ $status = 0 ] && [ "$(ls taken)" = '' ] && run --ranks 2 --batch 2 --checkpoint taken
    result $? 'a folder that another run writes to is refused before the first step, and free when that one has ended'

    "$train" --model $model --seq 16 --sample 0 --threads 1 --peak-seconds 0 --text text --steps 1000000 --ranks 2 --batch 2 \
        --checkpoint moved --checkpoint-every 20 --keep 1 $extra >out 2>err &
    pid=$!
    soon() # COMMAND...: true within a minute
    {
        tries=0
        until "$@" 2>/dev/null; do
            tries=$((tries + 1))
            [ $tries -lt 600 ] || return 1
            sleep 0.1
        done
    }
    soon sh -c 'ls moved/step-*/manifest' >/dev/null && kill -STOP $pid && mv moved away && mkdir -p moved/step-000000000001 &&
        : >moved/step-000000000001/manifest && echo 'another process' >moved/.lock && exec 8<moved/.lock && flock -n 8 && kill -CONT $pid &&
        soon grep -q 'another run writes checkpoints there, since the folder of this one was moved' err
    status=$?
    kill -CONT $pid
    kill -TERM $pid
    wait $pid
    [ $? = 1 ] && [ $status = 0 ] && [ "$(ls moved)" = step-000000000001 ] && [ -f moved/step-000000000001/manifest ]
    status=$?
    exec 8>&-
    [ $status = 0 ]
    result $? 'a run whose folder was moved leaves alone what another run has there'
    rm -rf moved away

    flock taken/.lock sleep 1 &
    sleep 0.3
    run --ranks 2 --batch 2 --checkpoint taken --checkpoint-used --checkpoint-every 12 && grep -q 'taken: another run writes .*: waiting for its end' err
    result $? 'a run that is about to end is waited for'
    wait

    run --ranks 2 --batch 2 --resume saved --checkpoint beside && [ "$(hash)" = "$wanted" ] && [ -f beside/step-000000000012/manifest ]
    result $? '--resume from another folder, with no step left, saves all the same'

    # What this process may not read is no damage: root reads everything, so root is somebody else here.
    cp -r saved closed && newest=$(find closed -name 'step-*' | sort | tail -1) && chmod 000 "$newest/rank-00001"
    chmod 755 . && mkdir -m 777 elsewhere && as=
    [ "$(id -u)" != 0 ] || as='setpriv --reuid 65534 --clear-groups'
    if [ -n "$as" ] && ! $as test -x "$train"; then
        skip 'a checkpoint that may not be read' 'another user cannot run train here'
    else
        # shellcheck disable=SC2086 # a list of options
        (cd elsewhere && $as "$train" --model $model --seq 16 --sample 0 --threads 1 --peak-seconds 0 --text ../text --steps 12 $extra \
            --ranks 2 --batch 2 --resume ../closed) >out 2>err
        [ $? = 2 ] && grep -q 'rank-00001: Permission denied' err && ! grep -q damaged err && [ -d "$newest" ]
        result $? 'a checkpoint that may not be read ends the run, and is not passed over as damaged'
    fi

    # A folder cannot take a file's name; and a file cannot be larger than the limit.
    mkdir named && touch named/step-000000000004
    run --ranks 2 --batch 2 --checkpoint named --checkpoint-every 2
    [ $? = 1 ] && [ "$(hash)" = "$wanted" ] && [ "$(grep -c 'saved:' out)" = 5 ] && ! grep -q 'step  *4 / 12 *saved' out &&
        grep -q 'step-000000000004: Not a directory; earlier checkpoints are unchanged, training continues' err &&
        grep -q '1 of the .* could not be written, .* of step 4; the newest checkpoint there is named/step-000000000012' err
    result $? 'a checkpoint that cannot get its name is not said to be saved, and decides the exit status'

    (ulimit -f 16 && run --ranks 2 --batch 2 --checkpoint full)
    [ $? = 1 ] && [ "$(hash)" = "$wanted" ] && ! grep -q 'saved:' out && grep -q 'File too large' err &&
        grep -q 'of step 12; no checkpoint exists' err
    result $? 'a last checkpoint that cannot be written: exit status 1'

    : >out # the run before wrote steps, too
    (ulimit -f 16 && exec "$train" --model $model --seq 16 --sample 0 --threads 1 --peak-seconds 0 --text text \
        --steps 1000000 $extra --checkpoint full2 >out 2>err) &
    pid=$!
    while kill -0 $pid && ! grep -q 'step  ' out; do
        sleep 0.2
    done
    kill -TERM $pid
    wait $pid
    [ $? = 1 ] && grep -q 'interrupted after step' out && grep -q 'of the .* could not be written' err
    result $? 'nor after SIGTERM'

    rm -rf used && cp -r saved used && before=$(ls -lR used)
    refused 'used: holds checkpoints of another run, the newest is used/step-000000000012' --checkpoint used --seed 3 --keep 1 &&
        refused 'holds checkpoints of another run' --checkpoint used --resume kept && [ "$(ls -lR used)" = "$before" ]
    result $? 'a folder with checkpoints of another run: status 2, and they stay as they are'

    run --ranks 2 --batch 2 --checkpoint used --resume used/step-000000000005 && [ "$(hash)" = "$wanted" ] &&
        run --ranks 2 --batch 2 --checkpoint used --checkpoint-used --seed 3 && [ "$(hash)" != "$wanted" ]
    result $? 'with --checkpoint-used, or going on from one of them, it is taken'

    # Names in a folder of checkpoints that are no files: nothing is waited for, or read without end.
    mkfifo pipe
    limited() # OPTION ...: of a run that may hang
    {
        # shellcheck disable=SC2086
        timeout -k 2 30 "$train" --model $model --seq 16 --sample 0 --threads 1 --peak-seconds 0 --text text --steps 12 $extra \
            --ranks 2 --batch 2 "$@" >out 2>err
    }
    bad=0
    for what in pipe /dev/zero saved; do
        rm -rf special && cp -r saved special && ln -sf "$(realpath $what)" special/.lock
        limited --checkpoint special --resume
        [ $? = 2 ] && grep -q 'special/.lock: is not a regular file, so runs cannot lock the folder with it; remove it' err || bad=1
    done
    rm -rf special && cp -r saved special && rm special/.lock && mkfifo special/.lock
    limited --checkpoint special --resume
    [ $? = 2 ] && grep -q 'special/.lock: is not a regular file' err || bad=1
    result $bad 'a lock that is a pipe, or a link: status 2, and nothing waits'

    bad=0
    for name in manifest rank-00001; do
        for what in pipe /dev/zero; do
            rm -rf special && cp -r saved special && ln -sf "$(realpath $what)" special/step-000000000012/$name
            limited --resume special/step-000000000012
            [ $? = 2 ] && grep -q "$name" err || bad=1
            limited --resume special && [ "$(hash)" = "$wanted" ] && grep -q "$name" err || bad=1
        done
    done
    result $bad 'a manifest or a file of a rank that is a pipe or a device: status 2, or the checkpoint before'

    rm -rf special && mkdir -p special/step-000000000012.new && mkfifo special/step-000000000012.new/rank-00000 &&
        ln -s ../../text special/step-000000000012.new/rank-00001 && ln -s ../../text special/step-000000000012.new/manifest &&
        cp text text.before && limited --checkpoint special && [ "$(hash)" = "$wanted" ] && cmp -s text text.before &&
        [ -f special/step-000000000012/manifest ] && [ ! -L special/step-000000000012/manifest ]
    result $? 'what lies where a checkpoint is to be written is replaced, not written to'

    rm -rf special victim && mkdir special victim && echo mine >victim/manifest && echo mine >victim/rank-00000 &&
        ln -s ../victim special/step-000000000012.new && limited --checkpoint special
    [ $? = 1 ] && grep -q 'step-000000000012.new is a link; remove it' err && [ "$(ls victim)" = "$(printf 'manifest\nrank-00000')" ] &&
        [ "$(cat victim/manifest victim/rank-00000)" = "$(printf 'mine\nmine')" ] && [ ! -e special/step-000000000012 ]
    result $? 'a link to a folder where a checkpoint is to be written is refused, and nothing is written through it'

    "$tool" verify damaged >out 2>err
    [ $? = 2 ] && grep -q 'rank-00001: .* damaged' err && "$tool" verify saved >out 2>err &&
        [ "$(grep -c ': good' out)" = "$(ls saved | wc -l)" ] && "$tool" ls saved >out 2>err &&
        [ "$(grep -c 'zero3' out)" = "$(ls saved | wc -l)" ]
    result $? 'evenodd-checkpoint ls and verify tell the good from the damaged'
    for step in 5 10 12; do
        folder=saved/$(printf 'step-%012d' $step)
        mib=$(find "$folder" -name 'rank-*' -exec cat {} + | wc -c | awk '{ printf "%.1f", $1 / 1048576 }')
        echo "$folder step $step 2 ranks zero3 $(date -r "$folder/manifest" '+%Y-%m-%d %H:%M:%S') $mib MiB $folder"
    done >wanted.ls
    sed "s|^\(saved[^ ]*\) \(.*\) MiB .*|\1 \2 MiB \1|; s/  */ /g" out >told.ls
    cmp wanted.ls told.ls >>err && [ "$(grep -c 'gpt2: 0.0[0-9] million parameters in 3 layers, 2 states of adamw$' out)" = 3 ]
    result $? 'ls tells the step, the ranks, the time, the size and the model of each, in their order'
    "$tool" verify saved >out 2>err &&
        sed 's|^\(saved/[^ ]*\) .* zero3 [^ ]* [^ ]* \([0-9.]*\) MiB .*|\1: good, \2 MiB in 2 files|' wanted.ls |
        cmp - out >>err
    result $? 'verify tells the size and the files of each'
    mkdir nothing && "$tool" verify nothing >out 2>err
    [ $? = 2 ] && grep -q 'holds no checkpoint' err
    result $? 'verify of a folder without a checkpoint is no success'

    "$tool" reshard saved/step-000000000005 resharded --ranks 3 >out 2>err &&
        run --ranks 2 --batch 2 --resume resharded && [ "$(hash)" = "$wanted" ]
    result $? 'evenodd-checkpoint reshard: from other files the same bits'

    "$tool" reshard saved/step-000000000005 resharded --ranks 3 >out 2>err
    [ $? = 2 ] && grep -q 'already exists' err
    result $? 'evenodd-checkpoint reshard writes over nothing'

    mkdir held && exec 8>held/.lock && flock 8 && "$tool" reshard saved/step-000000000005 held --ranks 3 >out 2>err
    [ $? = 2 ] && grep -q 'held: another run writes checkpoints there' err && [ "$(ls held)" = '' ] &&
        "$tool" convert saved model0 >out 2>err && "$tool" convert model0 held --ranks 2 >out 2>err
    [ $? = 2 ] && grep -q 'held: another run writes checkpoints there' err && [ "$(ls held)" = '' ]
    status=$?
    exec 8>&-
    result $status 'nor does it, or convert, write into a folder that a run holds'

    "$tool" convert saved model >out 2>err && [ -f model/model.safetensors ] &&
        "$tool" convert model again --ranks 2 >out 2>err && "$tool" verify again >out 2>err &&
        "$tool" convert again model2 >out 2>err && cmp model/model.safetensors model2/model.safetensors
    result $? 'evenodd-checkpoint convert, to safetensors and back: the same bits'

    (ulimit -f 16 && exec "$tool" convert saved model3 >out 2>err)
    [ $? = 2 ] && grep -q 'File too large' err && ! ls -d model3*
    result $? 'convert says a limit on the size of files, and leaves nothing'

    "$tool" convert saved model3 --ranks 2 >out 2>err
    [ $? = 2 ] && grep -q -e '--ranks is for a checkpoint to write' err && "$tool" convert model again3 --dtype bf16 >out 2>err
    [ $? = 2 ] && grep -q -e '--dtype is for other formats' err && [ ! -e model3 ] && [ ! -e again3 ]
    result $? 'convert refuses an option of the other direction'

    # What computes the same is told apart all the same: a Mistral with ids of tokens, its layers whole and in halves. Its
    # rotary positions are scaled.
    mkdir mistral
    cat >mistral/config.json <<'END'
{"model_type": "mistral", "vocab_size": 256, "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
 "num_key_value_heads": 2, "head_dim": 16, "intermediate_size": 128, "max_position_embeddings": 64, "rms_norm_eps": 1e-5,
 "rope_theta": 10000.0, "rope_scaling": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0,
 "high_freq_factor": 4.0, "original_max_position_embeddings": 32},
 "hidden_act": "silu", "sliding_window": null, "tie_word_embeddings": false, "bos_token_id": 1,
 "eos_token_id": [2, 7]}
END
    bad=0 plain=$model model=mistral
    for granularity in block half; do
        rm -rf kept exported converted kept2 converted2
        run --granularity $granularity --checkpoint kept --export exported && "$tool" convert kept converted >out 2>err &&
            grep -q MistralForCausalLM exported/config.json && grep -q 7 exported/config.json &&
            grep -q llama3 exported/config.json &&
            diff -r exported converted >out 2>err && "$tool" convert converted kept2 --ranks 2 >out 2>err &&
            "$tool" convert kept2 converted2 >out 2>err && diff -r exported converted2 >out 2>err || bad=1
    done
    result $bad 'evenodd-checkpoint convert writes what --export writes, of half blocks too, and knows a Mistral again'

    # The same weights, of another model.
    run --granularity half --resume kept && ! grep -q warning err
    result $? 'resumed with the same model: not a word'
    mkdir other
    sed 's/"factor": 8.0/"factor": 4.0/; s/10000.0/20000.0/' mistral/config.json >other/config.json
    model=other
    run --granularity half --resume kept &&
        grep -q "warning: --resume: the model's rope_theta was 10000.0, is 20000.0 now" err &&
        grep -q "warning: --resume: the model's rope_scaling was {.*\"factor\":8.0.*, is {.*\"factor\":4.0.* now" err
    result $? 'resumed with other positions: warned of'

    # Weights that have a window of 16 tokens: the context is cut to it, with --init or without; a new model has no window.
    cp -r exported windowed
    python3 -c 'import json
c = json.load(open("windowed/config.json")); c["sliding_window"] = 16; json.dump(c, open("windowed/config.json", "w"))'
    window() # FOLDER: of its config.json
    {
        python3 -c 'import json, sys
c = json.load(open(sys.argv[1] + "/config.json")); print(c["sliding_window"], c["max_position_embeddings"])' "$1"
    }
    rm -rf kept converted
    model=init
    run --init windowed --checkpoint kept --checkpoint-every 6 && cp -r kept/step-000000000006 six && wanted=$(hash) &&
        "$tool" convert windowed begun >out 2>err
    bad=$? model=windowed
    for from in six begun; do
        rm -rf again2 exported converted
        run --resume $from --checkpoint again2 --export exported && grep -q 'the context is 16 here, not 64' err &&
            ! grep -q warning err && { [ $from = begun ] || [ "$(hash)" = "$wanted" ]; } &&
            "$tool" convert again2 converted >out 2>err && [ "$(window exported), $(window converted)" = '16 64, 16 64' ] || bad=1
        run --seq 17 --resume $from
        [ $? = 2 ] && grep -q -e '--seq 17 is longer than the context of --model windowed, 16' err || bad=1
    done
    result $bad 'weights with a sliding window keep it without --init, and longer sequences are refused'
    rm -rf exported kept
    run --seq 17 --checkpoint kept --checkpoint-every 6 && grep -q 'warning: .*ignore sliding_window 16' err &&
        run --seq 17 --resume kept/step-000000000006 --export exported && grep -q 'ignore sliding_window 16' err &&
        [ "$(window exported)" = 'None 64' ]
    result $? 'a new model has none: its run is resumed without, too'
    model=$plain

    # A checkpoint of this version's first days: its checksums are XXH64 with seed 0, and stay that.
    "$tool" verify "$fixtures/checkpoints/of-0.1" >out 2>err && "$tool" convert "$fixtures/checkpoints/of-0.1" of-0.1 >out 2>err &&
        [ "$(sha256sum <of-0.1/model.safetensors)" = '9e8f4f4a4825dba9b75782497d6dfbec36002e2e5415efb1d98b0eed1400f99c  -' ]
    result $? 'a checkpoint of an earlier build is whole, and its weights are the same bits'

    "$tool" nonsense saved >out 2>err
    [ $? = 2 ] && "$tool" ls not-there >out 2>err
    [ $? = 2 ] && "$tool" ls saved more words >out 2>err
    [ $? = 2 ]
    result $? 'evenodd-checkpoint refuses what it does not know'
fi
finish
