#!/bin/sh
# SPDX-License-Identifier: MIT
#
# Goal: what the programs say of a refusal is whole, true, fit for a terminal, and said once.
# Method: commands that are refused, with long paths, with words that are a terminal's commands, and from several ranks; where a
#         message names a limit or another option, that is tried.
# usage: messages.sh TRAIN HEADTOHEAD LAUNCH CHECKPOINT MEMPLAN POSTMORTEM
set -u
. "$(dirname "$0")/../tap/tap.sh"
train=$(realpath "$1") headtohead=$(realpath "$2") launch=$(realpath "$3") checkpoint=$(realpath "$4") memplan=$(realpath "$5")
postmortem=$(realpath "$6")
shown='out err'
enter_folder
seq 1 2000 >text
seq 1 9 >other
job="--text text --model tiny --seq 32 --batch 1 --threads 1"
small="$job --steps 2 --sample 0 --peak-seconds 0"

refused() # TEXT COMMAND...: status 2, and so one line begins, or ends where the text ends in $
{
    words=$1
    shift
    "$@" >out 2>err </dev/null
    [ $? = 2 ] && grep -q -- "$words" err
}

# --- the advice
# shellcheck disable=SC2086 # lists of options
{
    "$train" --model tiny --plan --head-chunks 512 >out 2>err &&
        refused '--head-chunks 513: a micro-batch has only 512 tokens' "$train" --model tiny --plan --head-chunks 513
    result $? '--head-chunks goes by the default --seq too, up to the limit that is told'
    good=0
    for option in '--late-updates' '--offload-slots 2' '--offload-gradients' '--offload-activations 1' '--offload-layers 1' \
        '--offload-folder .' '--late-updates --dynamic-offload'; do
        refused "${option%% *} needs --memory static" "$train" $job --plan --memory dynamic:pool $option || good=1
    done
    result $good 'planned offloading is refused in dynamic memory by that name, not told to want more of it'
    refused '--offload-layers with --optimizer muon' "$train" $job --plan --offload-layers 1 --optimizer muon &&
        refused '--offload-layers with --optimizer muon' "$memplan" --model tiny --offload-layers 1 --optimizer muon
    result $? 'options that do not go together are named as options'
    refused 'give a number from 0 to 0.9999999$' "$train" $job --plan --ema 1 && "$train" $job --plan --ema 0.9999999 >out 2>err
    result $? 'the limit that is told is one that is taken'
    refused 'needs --budget BYTES, the memory of a rank, or --bucketing auto' "$train" $job --plan --rates none.json
    result $? '--rates names both options that it belongs to'
    good=0
    for option in 'slots G:65,1' 'slots D:1,65' 'bucketing G:65,1' 'bucketing R:1,65' 'fabric GBPS:0,1' 'fabric US:1,-1' \
        'granularity blocks:N:blocks:0'; do
        value=${option##*:} name=${option%:*}
        [ "$name" != 'granularity blocks:N:blocks' ] || { name='granularity blocks:N' value=blocks:0; }
        refused "--$name is" "$train" $job --plan "--${name%% *}" "$value" || good=1
    done
    result $good 'of an option with parts the part is named'
    refused '--offload-folder none: No such file or directory; create it' "$train" $small --offload-layers 1 --offload-folder none &&
        refused '--offload-folder other: is not a folder' "$train" $small --offload-layers 1 --offload-folder other &&
        refused '--offload-folder none: No such' "$headtohead" $job --steps 4 --peak-seconds 0 --dynamic-offload --offload-layers 1 \
            --offload-folder none
    result $? 'a folder to offload to that is none is named by its option'
    refused '--flight-recorder none/f: cannot be created: .*; create its parent folder' "$train" $small --flight-recorder none/f &&
        refused '--log other/log: .*: Not a directory; choose another$' "$train" $small --log other/log
    result $? 'a folder is to be created only where there is none'
    refused '^memplan: --tokens: of which device; give --device, one of .*H200, B200, or another' "$memplan" --model tiny --tokens 1B &&
        refused '^memplan: --time: no rates are known of T4; ' "$memplan" --model tiny --time --device T4
    result $? 'what needs the rates of a device names all that have them'
    good=0
    for device in $(sed -n 's/.*one of \(.*\), or another.*/\1/p' err | tr -d ,); do
        "$memplan" --model tiny --time --device "$device" >out 2>>err || good=1
    done
    [ "${device:-}" = B200 ]
    result $((good + $?)) 'and each of them has'
    refused 'did you mean --label?' "$launch" -n 2 --lable true && refused "option '--grace' requires" "$launch" --grace &&
        grep -q '^launch: ' err
    result $? 'launch looks at options behind -n too, and its own name begins the line'

    echo '{"products_flops_per_s": 2e10, "memory_bytes_per_s": 8e9, "link_bytes_per_s": 1e10}' >rates.json && good=0
    for option in '--budget 1GiB' '--bucketing auto'; do
        refused "^train: ${option%% *}.*: no plan of this job can be made: .* no linear layer 'foo'" "$train" $job --plan $option --rates rates.json \
            --lora r=4,targets=foo || good=1
    done
    result $good 'a search that finds no plan says why'
    if (ulimit -v 200000 && "$train" $small >out 2>err); then
        "$train" $small --model 6x384x6 --steps 1 --hash off --export model >out 2>err &&
            (ulimit -v 200000 && refused 'no batch of this model fits: raise the limit$' "$train" $small --model init --init model)
        result $? 'no other model is advised where weights are given, and a limit is to be raised'
        (ulimit -v 200000 && refused 'no model fits: raise the limit$' "$train" --tokens text --model gpt2 --seq 32 --threads 1)
        result $? 'nor one without the tokens of the data'
    else
        skip 'another model, with little memory' 'this build takes more'
    fi

    # --- checkpoints
    "$train" $small --ranks 2 --checkpoint saved >out 2>err && cp -R saved cut && truncate -s 1000 cut/*/rank-00001 &&
        refused 'rank-00001 has 1000 bytes, but its head says [0-9]*: it was cut off or changed; use' "$checkpoint" verify cut &&
        rm cut/*/rank-00001 && refused 'rank-00001 is missing; use another checkpoint$' "$checkpoint" verify cut
    result $? 'of a file that is cut off or missing that is said, and what helps'
    refused '^checkpoint: cut/none: holds no checkpoint\|^checkpoint: .*cut/none: No such' "$checkpoint" verify cut/none && mkdir none &&
        refused '^checkpoint: none: holds no checkpoint; check the path$' "$checkpoint" reshard none to --ranks 2 &&
        refused "^checkpoint: 'list' is no command; give ls, " "$checkpoint" list saved &&
        refused '^checkpoint: give the checkpoint, or its folder' "$checkpoint" ls ''
    result $? 'checkpoint names the folder without one, and a word that is no command'

    "$train" $small --ranks 1 --steps 3 --resume saved --dtype bf16 >out 2>err && ! grep -q -e 'gather was' -e 'products was' -e 'frozen was' -e 'instruction-set was' err &&
        grep -q -- '--resume: dtype was "fp32", is "bf16" now' err &&
        refused 'of another model: it has .*; give --model, --granularity and --lora as that run did$' "$train" $small --ranks 1 \
            --steps 3 --resume saved --granularity half
    result $? '--resume tells of an option once, not of what follows from it, and what a model goes by'

    # --- a terminal
    escape=$(printf '\033[31mred\033[0m\r') newline=$(printf 'a\nb') good=0 lines=0
    for words in "$train --model" "$train --steps" "$train --text" "$train --strategy" "$train" "$train --log none/" "$launch -n" \
        "$launch -n 1" "$checkpoint verify" "$checkpoint" "$checkpoint convert $escape" "$postmortem" "$memplan --model" \
        "$memplan --set" "$memplan --device" "$headtohead --compare" "$headtohead --one-run" "$train --$escape" "$train --lora"; do
        for word in "$escape" "$newline"; do
            $words "$word" >out 2>err </dev/null
            [ $? -gt 1 ] && ! tr -d '\n' <err | grep -q '[[:cntrl:]]' || good=1
            lines=$((lines + $(grep -vc '^[a-z]*: \|^Try ' err)))
        done
    done
    [ "$good" = 0 ] && [ $lines = 0 ]
    result $? 'words of a command line are no commands to a terminal, and no lines of their own'
    long=$(printf '%60s' '' | sed 's/ /ä/g')
    refused "'xä*?'; give" "$train" --strategy "x$long" && iconv -f UTF-8 -t UTF-8 err >out
    result $? 'a word that is cut off stays UTF-8'

    # --- long paths
    deep=$(printf '%200s' '' | tr ' ' n)
    long=$PWD/$deep/$deep/$deep/$deep/$deep/$deep/$deep/$deep/$deep/$deep/$deep/$deep/$deep/$deep
    mkdir -p "$long/full" && cp text "$long/full" && good=0
    for words in "$train $small --text $long/no" "$train $small --log $long/no/log" "$train $small --resume $long" \
        "$train $small --export $long/no/model" "$train $small --checkpoint $long/no/saved" "$memplan --model $long/no" \
        "$train $small --offload-layers 1 --offload-folder $long/no" "$train $small --flight-recorder $long/no/f" \
        "$checkpoint verify $long/no" "$checkpoint reshard saved $long/no/to --ranks 1" "$postmortem $long/no"; do
        refused ' \(No such file or directory\|holds no checkpoint\|no folder\|create it\)' $words && grep -q nnn err || good=1
    done
    result $good 'a long path takes nothing from what is wrong with it'
    cp -R saved "$long/full" && truncate -s 1000 "$long"/full/saved/*/rank-00001 &&
        refused 'rank-00001 has 1000 bytes' "$checkpoint" verify "$long/full/saved" &&
        refused 'has 1000 bytes.*use another checkpoint\|is whole' "$train" $small --ranks 2 --steps 3 --resume "$long/full/saved"
    result $? 'nor does that of a checkpoint'
}

# --- once
alike() # TIMES TEXT COMMAND...: so often standard error has the text; leaves $status
{
    times=$1 words=$2
    shift 2
    "$@" >out 2>err </dev/null
    status=$?
    [ "$(grep -c -- "$words" err)" = "$times" ]
}
good=0
# shellcheck disable=SC2086
for words in '--wrong' '--steps 0' '--text none.txt' '--tokens text' '--log other' '--export nowhere/x' '--checkpoint nowhere/x/y' \
    '--resume nowhere' '--model mixtral-8x7b' '--collectives mpi' '--strategy hsdp:3' '--head-chunks 99' '--ranks 3' '--budget 1'; do
    alike 1 '^train: ' "$launch" -n 4 "$train" $small $words && [ $status = 2 ] &&
        [ "$(grep -c '^launch: rank [0-3] (process [0-9]*) ended with status 2$' err)" = 1 ] &&
        [ "$(grep -c '^launch: 3 other ranks ended with status 2$' err)" = 1 ] || { good=1 && cp err err.bad; }
done
[ ! -e err.bad ] || cp err.bad err
result $good 'what all ranks refuse is said once, and how they ended, too'
"$launch" -n 2 sh -c 'exec "$0" --wrong 2>errors.$EVENODD_RANK' "$train" >out 2>err
grep -q 'train: --wrong' errors.0 && grep -q 'train: --wrong' errors.1
result $? '... but by each that has a file of its own for it'
# shellcheck disable=SC2086,SC2016 # the rank's own
{
    alike 1 '^train: rank 2: --init none.bin: No such file' "$launch" -n 3 sh -c '[ $EVENODD_RANK = 2 ] && set -- "$@" --init none.bin; exec "$@"' - \
        "$train" $small && [ $status = 2 ]
    result $? 'what one rank refuses is said once, with its number'
    alike 2 '^train: --steps is' "$launch" -n 2 sh -c 'exec "$@" --steps x$EVENODD_RANK' - "$train" $job && [ $status = 2 ]
    result $? 'what differs is said by each'
    alike 2 '^train: --steps is' "$launch" -n 2 sh -c '"$@" --steps x; exec "$@" --steps x' - "$train" $job && [ $status = 2 ]
    result $? 'a rank that comes with the same again is heard again'
    alike 1 '^train: --offload-activations has no effect' "$launch" -n 3 "$train" $job --plan --offload-activations 1 &&
        [ $status = 0 ]
    result $? 'a warning is worth one line, and names the option'
    alike 1 '^launch: ./none: ' "$launch" -n 3 ./none && [ $status = 127 ]
    result $? 'a program that is not there is named once'
    mkdir -p kept && : >kept/step-000000000002.new
    alike 1 'cannot create the folder .*kept/step' "$train" $small --ranks 4 --checkpoint kept && [ $status = 1 ]
    result $? 'a checkpoint that none of the ranks could write is told once'
}
finish
