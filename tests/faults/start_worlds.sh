#!/bin/sh
# SPDX-License-Identifier: MIT
#
# Goal: ranks that are processes and were started differently end before the first step with status 2 and the name of what
#       differs, whatever it is: an option that decides what they do together, or the weights that each begins with. Nothing
#       is written then.
# Method: train under launch, one rank with options of its own.
# usage: start_worlds.sh LAUNCH TRAIN SOURCE
set -u
. "$(dirname "$0")/../tap/tap.sh"
launch=$(realpath "$1") train=$(realpath "$2") text=$(realpath "$3")/LICENSE
shown="out err"
enter_folder
shared="--model 2x32x2 --seq 16 --batch 1 --threads 1 --peak-seconds 0 --text $text"
options="$shared --steps 4"

# apart RANK0_OPTIONS RANK1_OPTIONS: two ranks; what they share is in $options
apart()
{
    # shellcheck disable=SC2016,SC2086 # the shell under launch has the rank
    timeout 120 "$launch" -n 2 sh -c '[ $EVENODD_RANK = 0 ] && more=$1 || more=$2; shift 2; exec "$@" $more' x "$1" "$2" \
        "$train" $options >out 2>err </dev/null
    status=$?
}
refused() # MESSAGE
{
    [ $status = 2 ] && grep -qF -- "$1" err && ! grep -q '^step ' out
}

# --- options that decide which calls the ranks make together
while IFS='|' read -r first second message; do
    rm -rf log.jsonl saved.* weights
    apart "--sample 0 --log log.jsonl $first" "--sample 0 $second"
    refused "$message" && [ "$(ls)" = "$(printf 'err\nout')" ]
    result $? "refused, and nothing written: $first | $second"
done <<'END'
|--export weights|"--export" is "not given" on rank 0 and "weights" on rank 1
--val-every 2||"--val-every" is 2 on rank 0 and 0 on rank 1
--checkpoint saved.0|--checkpoint saved.1|"--checkpoint" is "saved.0" on rank 0 and "saved.1" on rank 1
--checkpoint saved.0||"--checkpoint" is "saved.0" on rank 0 and "not given" on rank 1
--checkpoint c --checkpoint-every 2|--checkpoint c --checkpoint-every 3|"--checkpoint-every" is 2 on rank 0 and 3 on rank 1
--checkpoint saved.0 --resume|--checkpoint saved.0|"--resume" is true on rank 0 and false on rank 1
|--memory dynamic:pool|"--memory" is "static" on rank 0 and "dynamic:pool" on rank 1
|--plan|"--plan" is false on rank 0 and true on rank 1
|--hash off|"--hash" is "on" on rank 0 and "off" on rank 1
|--on-not-finite skip|"on-not-finite" is "stop" on rank 0 and "skip" on rank 1
--lr 0.1|--lr 0.2|"lr" is 0.1 on rank 0 and 0.2 on rank 1
END
apart '--sample 7' '--sample 8'
refused '"--sample" is 7 on rank 0 and 8 on rank 1'
result $? 'refused: --sample 7 | --sample 8'

# --- data with one name on two hosts
mkdir -p host.0 host.1
python3 - <<'END'
import struct
def write(path, count, boundary=0xffffffff, marks=None):
    head = struct.pack("<iiI4sIIQI", 20240520, 1, count, b"EOTK", 256, boundary, 7, marks is not None).ljust(1024, b"\0")
    with open(path, "wb") as file:
        file.write(head + struct.pack(f"<{count}H", *(i * 7919 % 251 + 1 for i in range(count))) + (marks or b""))
for host, count, marks in (0, 2000, None), (1, 3000, b"\x55" * 250):
    write(f"host.{host}/train.bin", 2000)
    write(f"host.{host}/val.bin", count)
    write(f"host.{host}/marked.bin", 2000, marks=marks)
END
while IFS='|' read -r names message; do
    # shellcheck disable=SC2016 # the shell under launch has the rank
    timeout 120 "$launch" -n 2 sh -c 'cd host.$EVENODD_RANK; exec "$@"' x "$train" --model 2x32x2 --seq 16 --batch 1 --threads 1 \
        --peak-seconds 0 --steps 4 --sample 0 $names >out 2>err </dev/null
    status=$?
    refused "$message"
    result $? "refused: copies that differ: $names"
done <<'END'
--tokens train.bin --val-tokens val.bin --val-every 2|"data held back (samples)" is "
--tokens marked.bin|"data" is "
END
rm -rf host.0 host.1

# --- weights that a run begins with
for seed in 1 2; do
    # shellcheck disable=SC2086 # lists of options
    timeout 120 "$train" --ranks 2 $options --sample 0 --seed $seed --export weights.$seed >out 2>err || break
done
cp -r weights.1 weights.copy
apart "--sample 0 --init weights.1" "--sample 0"
refused '"--init (its content)" is "'
result $? 'refused: --init on one rank'
apart "--sample 0 --init weights.1" "--sample 0 --init weights.2"
refused '"--init (its content)" is "'
result $? 'refused: --init with other weights of the same shape'
apart "--sample 0 --init weights.1" "--sample 0 --init weights.copy"
[ $status = 0 ] && grep -q '^weights_hash ' out
result $? 'a copy of the same weights under another path is the same'
for seed in 1 2; do
    # shellcheck disable=SC2086 # lists of options
    timeout 120 "$train" --ranks 2 $options --sample 0 --seed $seed --checkpoint saved.$seed --checkpoint-every 2 \
        >out 2>err || break
done
cp -r saved.1 saved.copy
options="$shared --sample 0 --steps 6"
apart '--resume saved.1' '--resume saved.2'
refused 'rank 0 and rank 1 find different checkpoints of step 4: their manifests differ'
result $? 'refused: --resume from folders with checkpoints of two trainings'
apart '--resume saved.1/step-000000000002' '--resume saved.2/step-000000000002'
refused 'rank 0 and rank 1 find different checkpoints of step 2: their manifests differ'
result $? 'refused: --resume with checkpoints of two trainings'
apart '--resume saved.1/step-000000000002' '--resume saved.1/step-000000000004'
refused 'rank 0 and rank 1 find checkpoints of different steps'
result $? 'refused: --resume with checkpoints of two steps'
apart '--resume saved.1' '--resume saved.1/step-000000000004'
refused 'rank 1 was given a checkpoint, but rank 0 a folder of them'
result $? 'refused: --resume with a checkpoint and with a folder'
mkdir -p host.0 host.1
cp -r saved.1 host.0/run
# shellcheck disable=SC2016,SC2086 # lists of options
timeout 120 "$launch" -n 2 sh -c 'cd host.$EVENODD_RANK && exec "$@"' x "$train" $options --checkpoint run --resume >out 2>err
status=$?
refused '--resume: rank 0 finds a checkpoint, but rank 1 none' && [ ! -e host.1/run ]
result $? 'refused: --resume with a folder that is another one on each host'
apart '--resume saved.1' '--resume saved.copy'
[ $status = 0 ] && grep -q '^weights_hash ' out
result $? 'a copy of the same checkpoints under another path is the same'

# --- weights that cannot be loaded, found by one rank while the others have theirs
damage() # FILE BYTE
{
    printf '\377\377\377\377' | dd of="$1" bs=1 seek="$2" conv=notrunc 2>/dev/null
}
unloadable() # MESSAGE OPTION...: refused under launch, and with threads; nothing is begun again, and the log stays as it is
{
    message=$1
    shift
    echo '{"step":1,"grad_norm":1.0,"of":"an earlier run"}' >log.jsonl
    # shellcheck disable=SC2086 # lists of options
    timeout 120 "$launch" -n 2 --restarts 2 "$train" $options --log log.jsonl "$@" >out 2>err </dev/null
    status=$?
    refused "$message" && ! grep -q 'restart 1' err && [ "$(cat log.jsonl)" = '{"step":1,"grad_norm":1.0,"of":"an earlier run"}' ] || return 1
    # shellcheck disable=SC2086 # lists of options
    timeout 120 "$train" --ranks 2 $options --log log.jsonl "$@" >out 2>err </dev/null
    status=$?
    refused "$message" && [ "$(cat log.jsonl)" = '{"step":1,"grad_norm":1.0,"of":"an earlier run"}' ]
}
damage saved.1/step-000000000004/rank-00001 "$(($(wc -c <saved.1/step-000000000004/rank-00001) / 2))"
unloadable 'step-000000000004/rank-00001: ' --resume saved.1/step-000000000004
result $? 'a damaged checkpoint ends all with status 2, is not tried again, and the log stays'
damage weights.1/model.safetensors "$(($(wc -c <weights.1/model.safetensors) - 4))"
unloadable 'the weights are damaged' --init weights.1
result $? 'weights that are no numbers end all with status 2, are not tried again, and the log stays'
# shellcheck disable=SC2016 # the shell under launch has the rank
timeout 120 "$launch" -n 2 sh -c 'exit $((EVENODD_RANK + 1))' >out 2>err
[ $? = 2 ]
result $? "launch: that a rank's input was refused counts before that one failed"
finish
