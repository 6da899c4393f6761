#!/bin/sh
# SPDX-License-Identifier: MIT
#
# Goal: a run that resumes from a folder of checkpoints takes the newest that is whole: whatever is damaged, and wherever, it
# is named, all ranks take the same older one, the end has the bits of a run that nothing happened to, and neither a later
# save nor --keep is misled by what is damaged. Where none is whole, or the one that was named is not, nothing begins.
# Method: four checkpoints of one run, the last taken away, the last of the others spoiled in each way; ranks are threads or
# processes in turn.
# usage: last_good.sh LAUNCH TRAIN CHECKPOINT SOURCE SLOW_DISK
set -u
launch=$(realpath "$1") train=$(realpath "$2") checkpoint=$(realpath "$3") text=$(realpath "$4")/LICENSE
slow_disk=$(realpath "$5")
. "$(dirname "$0")/../tap/tap.sh"
turn=0
enter_folder
options="--model 2x32x2 --seq 16 --batch 1 --threads 1 --peak-seconds 0 --sample 0 --text $text --steps 40"

show() { find c; cat "$work/out" "$work/err"; }

# run COMMAND...: output in $work/out and $work/err, its status in $status
run()
{
    status=0
    timeout 120 "$@" >"$work/out" 2>"$work/err" </dev/null || status=$?
}

# run_by threads|processes OPTION...: three ranks
run_by()
{
    how=$1
    shift
    if [ "$how" = threads ]; then
        set -- "$train" --ranks 3 "$@"
    else
        set -- "$launch" -n 3 "$train" "$@"
    fi
    # shellcheck disable=SC2086 # a list of options
    run "$@" $options
}

says() { grep -qF -- "$1" "$work/err"; }
step() { printf 'step-%012d' "$1"; }
fresh() { rm -rf c && cp -r saved c; }

flip() # FILE BYTE
{
    byte=$(od -An -tu1 -j "$2" -N 1 "$1")
    # shellcheck disable=SC2059 # it makes the byte
    printf "\\$(printf %03o $((byte ^ 4)))" | dd of="$1" bs=1 seek="$2" conv=notrunc 2>/dev/null
}

run_by threads --checkpoint saved --checkpoint-every 10
hash=$(sed -n 's/^weights_hash \([0-9a-f]*\),.*/\1/p' "$work/out")
rm -rf "saved/$(step 40)"
size=$(wc -c <"saved/$(step 30)/rank-00001")
[ $status = 0 ] && [ -n "$hash" ] && [ "$(find saved -name 'step-*' | wc -l)" = 3 ] && [ "$size" -gt 30000 ]
result $? 'a run leaves checkpoints of steps 10, 20 and 30'

# Beside the rest: each read of rank 1 takes 150 ms, and all of its loading longer than ranks wait where they all come.
timeout 120 "$launch" -n 2 sh -c "[ \$EVENODD_RANK = 1 ] && export SLOW_READ_MS=150 CLOCK_AHEAD_S=3600 LD_PRELOAD=$slow_disk \
    ASAN_OPTIONS=\$ASAN_OPTIONS:verify_asan_link_order=0; \
    exec $train $options --resume saved/$(step 30) --rank-timeout 1 --join-timeout 3" \
    >"$work/slow.out" 2>"$work/slow.err" </dev/null &
slow=$!

# goes_back STEP WHAT FILE WORDS: the folder c is spoiled; the run goes on from STEP, and its own saves are good
goes_back()
{
    turn=$((turn + 1))
    how=$([ $((turn % 2)) = 0 ] && echo threads || echo processes)
    run_by "$how" --checkpoint c --checkpoint-every 10 --resume
    [ $status = 0 ] && grep -qx "resuming from c/$(step "$1"), step $1" "$work/out" &&
        [ "$(grep -cF -- "--resume: warning: c/$(step 30)/$3" "$work/err")" = 1 ] && says "$4" &&
        says "the run goes back to c/$(step "$1"): newer ones are damaged" &&
        grep -q "^weights_hash $hash," "$work/out" && [ -d "c/$(step 30).damaged" ] &&
        "$checkpoint" verify c >"$work/verified" 2>&1 && [ "$(grep -c ': good' "$work/verified")" = 4 ]
    result $? "$2 ($how): named, the run goes back to step $1, and ends in the same bits; its saves are good"
}

fresh && flip "c/$(step 30)/rank-00001" $((size * 2 / 5))
goes_back 20 'a bit of the weights' rank-00001 'checksum mismatch'
fresh && flip "c/$(step 30)/rank-00002" $((size * 4 / 5))
goes_back 20 'a bit of the optimizer state' rank-00002 'optimizer state'
fresh && flip "c/$(step 30)/rank-00000" $((size - 4000))
goes_back 20 "a bit of the trainer's bytes" rank-00000 "the trainer's bytes"
fresh && flip "c/$(step 30)/rank-00000" 8
goes_back 20 "a bit of a head's version" rank-00000 'version'
fresh && flip "c/$(step 30)/manifest" 40
goes_back 20 'a bit of the manifest' manifest 'damaged'
fresh && truncate -s $((size - 4096)) "c/$(step 30)/rank-00001"
goes_back 20 'a file that is cut off' rank-00001 'was cut off or changed'
fresh && rm "c/$(step 30)/rank-00002"
goes_back 20 'a file that is missing' rank-00002 'is missing'
fresh && rm "c/$(step 30)/manifest"
goes_back 20 'a manifest that is missing' manifest 'is missing'
fresh && flip "c/$(step 30)/rank-00001" $((size / 2)) && rm "c/$(step 20)/rank-00000"
goes_back 10 'the two newest' rank-00001 'checksum mismatch'

# Steps 28 and 35 stay: the damaged one of step 30 is none of two.
fresh && flip "c/$(step 30)/rank-00001" $((size / 2))
options="${options% --steps 40} --steps 35"
run_by threads --checkpoint c --checkpoint-every 7 --keep 2 --resume
options="${options% --steps 35} --steps 40"
[ $status = 0 ] && [ "$(echo c/*)" = "c/$(step 28) c/$(step 30).damaged c/$(step 35)" ]
result $? '--keep counts none that is damaged'

fresh && flip "c/$(step 30)/rank-00001" $((size / 2))
run_by threads --resume c
[ $status = 0 ] && says 'goes back' && grep -q "^weights_hash $hash," "$work/out" && [ -d "c/$(step 30)" ]
result $? 'in a folder that is only read nothing is renamed'

for how in threads processes; do
    run_by $how --resume "c/$(step 30)"
    [ $status = 2 ] && says "c/$(step 30)/rank-00001" && says 'checksum mismatch' && ! grep -q weights_hash "$work/out"
    result $? "a damaged one that was named ($how) ends with status 2"
done

for file in 10 20; do
    flip "c/$(step $file)/rank-00000" $((size / 3))
done
before=$(ls -R c)
for how in threads processes; do
    run_by $how --checkpoint c --checkpoint-every 10 --resume
    [ $status = 2 ] && says 'no checkpoint in c is whole' && [ "$(grep -c 'warning: c/step' "$work/err")" = 3 ] &&
        [ "$before" = "$(ls -R c)" ]
    result $? "where none is whole ($how) it ends with status 2, with each named, and nothing is written"
done

fresh
options="--model 3x32x2 ${options#--model * }"
run_by processes --checkpoint c --resume
[ $status = 2 ] && says 'is of another model' && ! says 'goes back'
result $? 'of another model is not damaged: it is refused'

wait "$slow"
status=$?
mv "$work/slow.out" "$work/out"
mv "$work/slow.err" "$work/err"
[ $status = 0 ] && grep -q '^weights_hash ' "$work/out"
result $? 'a rank that reads slowly is waited for'
finish
