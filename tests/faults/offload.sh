#!/bin/sh
# SPDX-License-Identifier: MIT
#
# Goal: what lies on disk changes no weight; a disk that cannot serve is told, by name, and leaves nothing behind.
# Method: a small model with each layer, some or none offloaded; a preloaded library whose disk fails.
# io_uring has no call to preload for, so the program without_call refuses it there; that is also how containers are.
# The program cached looks at what the page cache holds of the file.
# usage: offload.sh LAUNCH TRAIN FAILING_DISK SOURCE WITHOUT_CALL CACHED
set -u
. "$(dirname "$0")/../tap/tap.sh"
launch=$(realpath "$1") train=$(realpath "$2") disk=$(realpath "$3") text=$(realpath "$4")/LICENSE without=$(realpath "$5")
cached=$(realpath "$6")
export ASAN_OPTIONS="${ASAN_OPTIONS:-}:verify_asan_link_order=0"
folder=$PWD
need_disk "$folder"
shown="out err"
enter_folder "$folder"
quiet="--model 3x64x2 --seq 32 --batch 2 --threads 1 --steps 4 --peak-seconds 0 --sample 0 --text $text"
hash_of() { sed -n 's/^weights_hash \([0-9a-f]*\),.*/\1/p' "$1"; }

# --- the same weights
while IFS='|' read -r ranks options more; do
    # shellcheck disable=SC2086 # lists of options, here and below
    timeout 120 "$train" --ranks "$ranks" $quiet $options >memory 2>err </dev/null &&
        timeout 120 "$train" --ranks "$ranks" $quiet $options $more >out 2>>err </dev/null &&
        [ -n "$(hash_of out)" ] && [ "$(hash_of out)" = "$(hash_of memory)" ]
    result $? "$ranks ranks, ${options:-fp32}: the weights of a run in memory with $more"
done <<'END'
2||--offload-layers all
2|--dtype bf16|--offload-layers all
3|--dtype bf16 --micro-batches 2|--offload-layers 2 --offload-slots 1
2|--dtype bf16 --no-prefetch|--offload-layers all --offload-slots 3
2|--strategy ddp|--offload-layers 1
2|--dtype bf16 --hash on|--offload-layers 3 --offload-slots 2 --offload-folder .
2|--strategy zero1 --dtype bf16|--offload-layers all --offload-gradients
1|--dtype bf16|--offload-layers all --offload-gradients
3|--strategy zero2|--offload-layers all --offload-gradients --offload-slots 1
4|--strategy hsdp:2 --dtype bf16|--offload-layers all --offload-gradients
2|--dtype bf16|--offload-layers all --late-updates
2|--dtype bf16 --hash on|--offload-layers all --late-updates
3|--dtype bf16 --micro-batches 2 --ema 0.9|--offload-layers 3 --offload-slots 1 --late-updates
1|--dtype bf16|--offload-layers all --offload-gradients --offload-slots 1 --late-updates
2|--strategy ddp|--offload-layers all --late-updates
4|--strategy hsdp:2 --dtype bf16 --gather float8|--offload-layers all --offload-gradients --late-updates
2|--model 6x64x2 --dtype bf16 --bucketing 2,1|--offload-activations 5 --offload-layers all --late-updates
2|--model 6x64x2|--offload-activations all
2|--model 6x64x2 --dtype bf16 --micro-batches 2 --recompute cheap|--offload-activations 5 --offload-layers all
1|--model 6x64x2 --dtype bf16 --granularity half|--offload-activations all --offload-slots 1 --offload-layers 3
3|--model 6x64x2 --strategy ddp --recompute 2|--offload-activations all --no-prefetch
2|--model 7x64x4 --granularity blocks:1 --ema 0.9|--offload-activations all --bucketing 2,2
END
timeout 120 "$train" --ranks 2 $quiet --dtype bf16 >memory 2>err &&
    timeout 120 "$launch" -n 2 "$train" $quiet --dtype bf16 --offload-layers all >out 2>>err &&
    [ "$(hash_of out)" = "$(hash_of memory)" ]
result $? 'processes have them too'
bf16=$(hash_of memory)
for call in io_uring_setup io_uring_register fallocate; do
    timeout 120 "$without" $call "$train" --ranks 2 $quiet --dtype bf16 --offload-layers all >out 2>err &&
        [ "$(hash_of out)" = "$(hash_of memory)" ] && { [ $call = fallocate ] || grep -q 'io_uring is refused here' out; }
    result $? "and so has a system without the call $call"
done

# --- checkpoints
saved="--ranks 2 $quiet --dtype bf16 --checkpoint saved --schedule constant"
timeout 120 "$train" $saved --steps 3 --offload-layers all >out 2>err && cp -r saved again &&
    timeout 120 "$train" $saved --steps 6 --resume >memory 2>>err && rm -r saved && mv again saved &&
    timeout 120 "$train" $saved --steps 6 --resume --offload-layers 2 >out 2>>err &&
    [ -n "$(hash_of out)" ] && [ "$(hash_of out)" = "$(hash_of memory)" ]
result $? 'a checkpoint of what is on disk goes on in memory, and on disk again'
rm -rf saved again

echo '{"products_flops_per_s": 1e11, "memory_bytes_per_s": 1e10, "disk_bytes_per_s": 1e9, "link_bytes_per_s": 1e10}' >rates.json
timeout 60 "$train" --ranks 2 $quiet --plan --rates rates.json --budget 1 >out 2>err
least=$(sed -n 's/.*the least is \([0-9]*\) .*/\1/p' err)
timeout 120 "$train" --ranks 2 $quiet --schedule constant >memory 2>err &&
    timeout 120 "$launch" -n 2 "$train" $quiet --schedule constant --steps 2 --rates rates.json --budget "$least" \
        --checkpoint saved >out 2>>err && choice=$(sed -n 's/^budget: .* a rank: \(.* on disk.*\); .*MiB.*/\1/p' out) &&
    timeout 120 "$launch" -n 2 "$train" $quiet --schedule constant --resume saved >out 2>>err && [ -n "$choice" ] &&
    [ "$(grep -c "^choice of the checkpoint: $choice; " out)" = 1 ] && [ "$(hash_of out)" = "$(hash_of memory)" ]
result $? 'processes go on with the choice that a budget made for them'
rm -rf saved

"$train" --ranks 2 $quiet --offload-layers all --checkpoint saved --plan >out 2>err && [ ! -e saved ]
result $? 'a plan alone makes no folder'

# A model whose copies take 72 MiB together. The room for what passes takes 12.
large="--ranks 2 --model 2x512x4 --seq 16 --batch 1 --threads 1 --steps 3 --peak-seconds 0 --sample 0 --text $text --schedule constant"
resident_of() { tail -n 1 "$1" | sed -n 's/.*"peak_rss_bytes":\([0-9]*\).*/\1/p'; }
export MALLOC_PERTURB_=0 # meson's: all that is allocated would be touched
for type in fp32 bf16; do
    timeout 120 "$train" $large --dtype $type --offload-layers all --log plain >memory 2>err &&
        timeout 120 "$train" $large --dtype $type --offload-layers all --log saving --checkpoint saved --checkpoint-every 1 >out 2>>err &&
        grep -q 'without a copy$' out && [ -n "$(hash_of out)" ] && [ "$(hash_of out)" = "$(hash_of memory)" ] &&
        [ "$(resident_of saving)" -lt $(($(resident_of plain) + (20 << 20))) ]
    result $? "$type: a checkpoint of what is on disk takes no memory for it: $(resident_of plain) bytes, $(resident_of saving) with"
    timeout 120 "$train" $large --dtype $type --checkpoint copied --checkpoint-every 1 >out 2>err
    diff -r -x .lock saved copied >cmp.out 2>&1
    result $? "$type: and its files are those of a run in memory"
    rm -rf saved
    timeout 120 "$train" $large --dtype $type --offload-layers all --late-updates --checkpoint saved --checkpoint-every 1 >out 2>err &&
        diff -r -x .lock saved copied >cmp.out 2>&1
    result $? "$type: with late updates, too: a checkpoint has those of its step"
    timeout 120 "$train" $large --dtype $type --offload-layers all --log loading --resume saved/step-000000000002 >out 2>err &&
        [ "$(hash_of out)" = "$(hash_of memory)" ] && [ "$(resident_of loading)" -lt $(($(resident_of plain) + (20 << 20))) ]
    result $? "$type: resumed, it has the weights of the run that went on, and takes no more memory either"
    rm -rf saved copied plain saving loading cmp.out
done

# --- the page cache: nothing of a file that is accessed past it, a bounded part of another
bound=$((16 << 20))
held_of() { sed -n 's/^cached \([0-9]*\) of .*/\1/p' "$1"; }
# At each look, of a file larger than the bound.
holds_at_most() { awk '{ exit !($2 <= most && $4 + 0 > 1.5 * size && $5 > 100) }' most="$1" size=$bound held; }
buffered="env EO_NO_DIRECT=1 LD_PRELOAD=$disk"
for type in fp32 bf16; do
    options="$large --dtype $type --offload-layers all --steps 6"
    # shellcheck disable=SC2086
    timeout 120 "$cached" held "$train" $options >memory 2>err && holds_at_most 0 && ! grep -q 'page cache' memory
    result $? "$type: the page cache holds nothing of what is accessed past it: $(cat held)"
    while IFS='|' read -r way more; do
        # shellcheck disable=SC2086
        timeout 120 "$cached" held env LD_PRELOAD="$disk" $way "$train" $options $more >out 2>err && holds_at_most $bound &&
            [ "$(held_of held)" -gt 0 ] && [ -n "$(hash_of out)" ] && [ "$(hash_of out)" = "$(hash_of memory)" ] &&
            [ "$(grep -c 'by the page cache, which holds at most 16 MiB' out)" = 1 ]
        result $? "$type, $way: ... and at most 16 MiB of another${more:+, with checkpoints}: $(cat held)"
        rm -rf saved
    done <<'END'
EO_NO_DIRECT=1|
EO_NO_DIRECT=1|--checkpoint saved --checkpoint-every 2
EO_DIRECT_ALIGN=16384|
END
done
# shellcheck disable=SC2086
for rates in '' '--rates rates.json'; do
    $buffered timeout 120 "$train" $large --dtype bf16 $rates --budget 1KiB >out 2>err
    [ $? = 2 ] && least=$(sed -n 's/.*the least is \([0-9]*\) (.* MiB, 16.0 of them page cache): .* on disk.*/\1/p' err) &&
        [ -n "$least" ] &&
        $buffered timeout 120 "$train" $large --dtype bf16 $rates --budget "$least" --log log.jsonl >out 2>err &&
        grep -q ' and 16.0 MiB of page cache, predicted' out && grep -q '^rates of a rank: .* by 16.0 MiB of page cache' out &&
        [ "$(tail -n 1 log.jsonl | sed -n 's/.*"arena_bytes":\([0-9]*\),.*/\1/p')" -le $((least - bound)) ]
    result $? "a budget counts the page cache of a file that needs it: $least bytes at least${rates:+, with rates}"
    rm -f log.jsonl
done
# shellcheck disable=SC2086
$buffered timeout 120 "$train" $large --dtype bf16 --rates rates.json --budget 1TiB >out 2>err &&
    grep '^budget: ' out | grep -qv 'page cache'
result $? '... and none where nothing lies on disk'
rm -f held

# --- a plan that says what it takes
timeout 120 "$train" --ranks 2 $quiet --offload-layers all --log log.jsonl >out 2>err &&
    grep -q '^offload: .* MiB a rank on disk' out && grep -q 'waiting for the disk' out &&
    tail -n 1 log.jsonl | grep -q '"disk_bytes":[1-9]' && tail -n 1 log.jsonl | grep -q '"io_bytes_per_step":[1-9]' &&
    tail -n 1 log.jsonl | grep -q '"fetch":'
result $? 'bytes on disk, bytes of a step and the wait for them are told'

EO_SLOW_WRITE_MS=20 LD_PRELOAD=$disk timeout 120 "$without" io_uring_setup "$train" --ranks 1 $quiet --offload-layers all \
    --offload-slots 1 --offload-gradients --log slow.jsonl >out 2>err &&
    awk '/waiting for the disk/ { disk = $5 } /waiting for reduce-scatter/ { sum = $4 } END { exit !(disk > 10 * sum) }' out &&
    tail -n 1 slow.jsonl | sed -n 's/.*"exposed_io_s":\([0-9.]*\).*/\1/p' | awk '{ found = 1; slow = $1 > 0.02 } END { exit !(found && slow) }'
result $? 'on one rank, waits for evicted gradients are waits for the disk'

# --- a disk that cannot serve
refuse() # WHAT TEXT OPTION...
{
    what=$1 text_of=$2
    shift 2
    timeout 60 "$train" --ranks 2 $quiet --offload-layers all "$@" >out 2>err
    [ $? = 2 ] && grep -q -- "$text_of" err
    result $? "refused: $what"
}
if [ "$(stat -f -c %T /dev/shm 2>/dev/null)" = tmpfs ]; then
    refuse 'a folder in memory' 'lies in memory (tmpfs)' --offload-folder /dev/shm
else
    skip 'a folder in memory' 'no tmpfs at /dev/shm'
fi
refuse 'a folder that is not there' 'No such file or directory' --offload-folder nowhere
mkdir closed && chmod 500 closed
if touch closed/file 2>/dev/null; then
    skip 'a folder that is read-only' 'root writes everywhere'
else
    refuse 'a folder that is read-only' 'Permission denied' --offload-folder closed
fi
export EO_DISK_FREE=100000
LD_PRELOAD=$disk timeout 60 "$train" --ranks 2 $quiet --offload-layers all >out 2>err
[ $? = 2 ] && grep -q 'has no room: .* MiB needed by each of 2 ranks, 0.1 MiB free' err
result $? 'refused: a disk that is full'
LD_PRELOAD=$disk timeout 60 "$train" --ranks 2 $quiet --budget 1TiB >out 2>err &&
    [ "$(grep -c '^budget: only plans without a disk: .* has no room: 96.0 MiB needed' out)" = 1 ] && [ -n "$(hash_of out)" ]
result $? 'a budget without room to measure the disk: only plans without one'
LD_PRELOAD=$disk timeout 60 "$train" --ranks 2 $quiet --budget 1TiB --offload-folder . >out 2>err
[ $? = 2 ] && grep -q 'the disk of --offload-folder cannot be used: .* has no room' err
result $? 'refused: the same where the folder is named'
timeout 60 "$launch" -n 2 sh -c "[ \$EVENODD_RANK = 0 ] || export LD_PRELOAD=$disk; exec \"\$@\"" x \
    "$train" $quiet --budget 1TiB >out 2>err &&
    [ "$(grep -c '^budget: only plans without a disk: another rank has none' out)" = 1 ] && [ -n "$(hash_of out)" ]
result $? 'and so where one of several processes has no room'
export EO_DISK_FREE=2000000
LD_PRELOAD=$disk timeout 60 "$train" --ranks 2 $quiet --offload-layers all >out 2>err
result $? 'no rank takes from a disk before all have looked at it: 80 % of it are enough'
unset EO_DISK_FREE
for call in WRITE READ; do
    LD_PRELOAD=$disk timeout 60 "$without" io_uring_setup "$launch" -n 2 sh -c "[ \$EVENODD_RANK = 0 ] || export EO_FAIL_$call=12; exec \"\$@\"" x \
        "$train" $quiet --steps 20 --offload-layers all >out 2>err
    [ $? = 1 ] && grep -q 'rank 1: cannot .* the offload file in the offload folder .*: Input/output error' err
    result $? "an error of the disk ($call) in a step ends all ranks, and rank 1 is named"
done
saved="--ranks 2 $quiet --steps 12 --dtype bf16 --schedule constant --offload-layers all"
# From there on: where it met a checkpoint's read alone, the steps would go on.
EO_FAIL_READ=150+ LD_PRELOAD=$disk timeout 60 "$without" io_uring_setup "$train" $saved --checkpoint saved --checkpoint-every 2 >out 2>err
[ $? = 1 ] && grep -q 'cannot read the offload file' err && timeout 60 "$train" $saved --resume saved >out 2>>err &&
    timeout 60 "$train" $saved >memory 2>>err && [ -n "$(hash_of out)" ] && [ "$(hash_of out)" = "$(hash_of memory)" ]
result $? 'after an error of the disk the last checkpoint goes on to the same weights'
rm -rf saved
if timeout 60 "$train" --ranks 2 $quiet --offload-layers all 2>err | grep -q 'a thread reads and writes'; then
    skip 'so does one of io_uring itself' 'io_uring is refused here, or the folder takes no direct access'
else
    timeout 60 "$without" io_uring_enter "$train" --ranks 2 $quiet --offload-layers all >out 2>err
    [ $? = 1 ] && grep -q 'rank [01]: cannot .* the offload file in the offload folder .*: Input/output error' err
    result $? 'so does one of io_uring itself'
fi

# --- other jobs
# shellcheck disable=SC2086
timeout 120 "$train" --ranks 2 $quiet --dtype bf16 --offload-layers all >other 2>err &
timeout 120 "$train" --ranks 2 $quiet --dtype bf16 --offload-layers all >out 2>>err
wait $!
[ "$(hash_of out)" = "$(hash_of other)" ] && [ "$(hash_of out)" = "$bf16" ] && [ -n "$bf16" ]
result $? 'two jobs in one folder have the weights of one alone'
mkdir ended
# shellcheck disable=SC2086
"$train" --ranks 2 $quiet --steps 100000 --offload-layers all --offload-folder ended --log ended.jsonl >out 2>err &
victim=$!
for _ in $(seq 300); do
    [ "$(wc -l 2>/dev/null <ended.jsonl || echo 0)" -gt 3 ] && break
    sleep 0.1
done
kill -KILL $victim && steps=$(grep -c '"step"' ended.jsonl)
wait $victim 2>/dev/null
[ "${steps:-0}" -gt 0 ] && [ -z "$(ls -A ended)" ]
result $? 'a killed job leaves no file behind'

# --- where a file cannot be made without a name
offloaded="--ranks 2 $quiet --dtype bf16 --offload-layers all --offload-folder named"
count_full() { find named -type f -size +0 | wc -l; } # of the others none has a byte
count_removed() # FILE
{
    awk '/that killed jobs had left in the offload folder named$/ { sub(/.*removed /, ""); all += $1 } END { print all + 0 }' "$1"
}
mkdir named named/evenodd-offload-folder.tmp
: >named/evenodd-offload-backup
: >named/evenodd-offload-backup.tmp # which others can read: not of ours
: >kept
chmod 600 kept named/evenodd-offload-backup
chmod 644 named/evenodd-offload-backup.tmp
ln -s ../kept named/evenodd-offload-abcdef.tmp
ln kept named/evenodd-offload-ghijkl.tmp
ls -A named >others
export EO_NO_TMPFILE=1
# shellcheck disable=SC2086
LD_PRELOAD=$disk timeout 60 "$train" $offloaded >out 2>err && [ "$(hash_of out)" = "$bf16" ] && ls -A named | cmp -s - others &&
    ! grep -q removed err
result $? 'a file system without unnamed files serves, and keeps the files of others'
# shellcheck disable=SC2086
EO_KILL_AT_UNLINK=1 LD_PRELOAD=$disk timeout 60 "$train" $offloaded >out 2>err
[ $? = 137 ] && dead=$(($(ls -A named | wc -l) - $(wc -l <others))) && [ $dead -gt 0 ]
result $? "a job that is killed before it took its file's name away leaves it: ${dead:-}"
# shellcheck disable=SC2086
EO_KEEP_NAMES=1 LD_PRELOAD=$disk "$train" $offloaded --steps 100000 --log named.jsonl >other 2>err &
victim=$!
for _ in $(seq 300); do
    [ "$(wc -l 2>/dev/null <named.jsonl || echo 0)" -gt 3 ] && break
    sleep 0.1
done
[ "$(count_removed err)" = "$dead" ] && [ "$(count_full)" = 2 ] && [ "$(ls -A named | wc -l)" = $(($(wc -l <others) + 2)) ]
result $? 'the next job removes it, and tells so'
# shellcheck disable=SC2086
LD_PRELOAD=$disk timeout 60 "$train" $offloaded >out 2>err && [ "$(hash_of out)" = "$bf16" ] && ! grep -q removed err &&
    [ "$(count_full)" = 2 ] && kill -0 $victim
result $? 'the named files of a job that runs stay'
kill -KILL $victim
wait $victim 2>/dev/null
unset EO_NO_TMPFILE
# shellcheck disable=SC2086
timeout 60 "$train" $offloaded >out 2>err && [ "$(hash_of out)" = "$bf16" ] && [ "$(count_removed err)" = 2 ] &&
    ls -A named | cmp -s - others
result $? '... until it is killed: any job removes them'
rm -r named kept others

# --- a disk that has odd ways
EO_SHORT_MOVES=8192 LD_PRELOAD=$disk timeout 60 "$without" io_uring_setup "$train" --ranks 2 $quiet --dtype bf16 --offload-layers all \
    >out 2>err && [ "$(hash_of out)" = "$bf16" ] && [ -n "$bf16" ]
result $? 'reads and writes that stop short go on'
for call in 1 2; do
    EO_INTERRUPT_FALLOCATE=$call LD_PRELOAD=$disk timeout 60 "$train" --ranks 2 $quiet --dtype bf16 --offload-layers all >out 2>err &&
        [ "$(hash_of out)" = "$bf16" ]
    result $? "a signal during reservation $call"
done
for align in 4096 16384; do
    EO_DIRECT_ALIGN=$align LD_PRELOAD=$disk timeout 60 "$train" --ranks 2 $quiet --dtype bf16 --offload-layers all >out 2>err &&
        [ "$(hash_of out)" = "$bf16" ] && [ "$(grep -c 'takes no direct access' out)" = $((align > 4096)) ]
    result $? "a disk with blocks of $align bytes"
done
damaged='rank [01]: cannot read the offload file in .* (checksum mismatch)'
EO_FLIP_READ=20 LD_PRELOAD=$disk timeout 60 "$without" io_uring_setup "$train" --ranks 2 $quiet --offload-layers all --steps 20 >out 2>err
[ $? = 1 ] && grep -q "$damaged" err
result $? 'a block of other bytes than were written ends the run'

# The file has no name, but a place under /proc. All of it: what a buffer holds just then is written anew.
: >out # the run before has steps, too
"$train" --ranks 1 --model 8x64x2 --seq 32 --batch 2 --threads 1 --steps 1000000 --peak-seconds 0 --sample 0 --text "$text" \
    --offload-layers all --offload-slots 1 >out 2>err &
victim=$!
for _ in $(seq 600); do
    grep -q '^step' out && break
    sleep 0.1
done
kill -STOP $victim
file=
for link in /proc/$victim/fd/*; do
    case $(readlink "$link") in "$work"/*'(deleted)') file=$link ;; esac
done
[ -n "$file" ] && dd if=/dev/urandom of="$file" bs=64k count=$(($(stat -L -c %s "$file") / 65536 - 1)) conv=notrunc 2>/dev/null
written=$?
kill -CONT $victim
wait $victim
[ $? = 1 ] && [ $written = 0 ] && grep -q "$damaged" err
result $? 'and so does a file that somebody else wrote to, by io_uring'
[ -z "$(find . -name 'evenodd-offload*')" ]
result $? 'no file is left'
finish
