#!/bin/sh
# SPDX-License-Identifier: MIT
#
# Goal: the options of train do under processes what they do where ranks are threads: the same weights with any strategy,
#       memory mode and schedule, and what is written (log, trace, weights, plan, report) is of all ranks.
# Method: a small model, each set of options once with --ranks and once under launch.
# usage: options_worlds.sh LAUNCH TRAIN HEADTOHEAD PYTHON CHECK SOURCE
set -u
. "$(dirname "$0")/../tap/tap.sh"
launch=$(realpath "$1") train=$(realpath "$2") headtohead=$(realpath "$3") python=$4 check=$(realpath "$5")
text=$(realpath "$6")/LICENSE
shown="threads out err"
enter_folder
options="--model 2x32x2 --seq 16 --batch 1 --threads 1 --text $text"
quiet="$options --steps 4 --peak-seconds 0 --sample 0"

# both RANKS OPTION...: with threads into threads and THREADS, with processes into out; err is of both
both()
{
    ranks=$1
    shift
    timeout 120 "$train" --ranks "$ranks" "$@" >threads 2>err </dev/null &&
        timeout 120 "$launch" -n "$ranks" "$train" "$@" >out 2>>err </dev/null
}
hash_of() { sed -n 's/^weights_hash \([0-9a-f]*\),.*/\1/p' "$1"; }
same() { [ -n "$(hash_of out)" ] && [ "$(hash_of out)" = "$(hash_of threads)" ]; }

# --- the same weights
while IFS='|' read -r ranks more; do
    # shellcheck disable=SC2086 # lists of options, here and below
    both "$ranks" $quiet $more && same
    result $? "$ranks processes have the weights of threads with $more"
done <<'END'
4|--strategy hsdp:2 --micro-batches 2
4|--strategy hsdp:2 --dtype bf16 --reduce bf16
3|--strategy zero2 --slots 1,2
3|--strategy zero1 --micro-batches 2
2|--strategy ddp --reduce bf16
2|--memory dynamic:malloc
2|--memory dynamic:pool --implicit-prefetch --reduce-inputs 2
2|--memory dynamic:pool --dynamic-offload
2|--granularity half --head-chunks 2 --recompute all --no-prefetch
2|--fabric 1,5 --place-threads --schedule constant --clip 0 --seed 7
END

# --- what rank 0 tells
both 2 $options --steps 5 --peak-seconds 0 --val-every 2 --sample 20 && same
status=$?
for file in threads out; do # speeds and times differ, and so does memory
    grep -v -e tokens/s -e ' ms' -e resident -e '^world: ' -e 'time of a step' $file >$file.plain
done
[ $status = 0 ] && diff threads.plain out.plain >>err && [ "$(grep -c held-back out)" = 2 ]
result $? 'validation, sample, loss curve and memory are told once, and as with threads'
! grep -q 'compute  *-' threads out
result $? 'what a validation waits for is no part of a step'
timeout 120 "$launch" -n 2 "$train" $options --plan >out 2>err && timeout 120 "$train" --ranks 2 $options --plan >threads 2>>err &&
    cmp threads out >>err
result $? 'the plan is printed once'
both 3 $quiet --log log.jsonl && "$python" "$check" log log.jsonl 4 >>err 2>&1
result $? 'the log has its fields'
grep -q 'largest of 3 processes' out && grep -q 'waiting for the norm' out
result $? 'memory and times of all ranks are told'
timeout 120 "$launch" -n 2 "$train" $options --steps 1 --sample 0 --peak-seconds 0.1 >out 2>err && grep -q 'all ranks at once: [1-9]' out
result $? 'the peak is of all ranks'

# Rank 1 gets the signal, and rank 0 samples. Nothing tells when a sample begins: on a busy machine the signal may come before.
signal_in_sample() # SECONDS after the last step
{
    : >out # the run before has such a step
    timeout 60 "$launch" -n 2 sh -c 'echo $$ >pid-$EVENODD_RANK; exec "$@"' x "$train" $options --steps 1 --peak-seconds 0 \
        --sample 1000000 >out 2>err </dev/null &
    pid=$!
    tries=0
    until grep -q 'step     1 / 1' out || [ $tries -gt 600 ]; do
        tries=$((tries + 1))
        sleep 0.05
    done
    sleep "$1"
    kill -TERM "$(cat pid-1)"
    wait $pid
}
for seconds in 0.2 1 4; do
    signal_in_sample $seconds
    status=$?
    grep -q '^interrupted after step' out || break
done
[ $status = 0 ] && grep -qE '^interrupted after [0-9]+ of 1000000 tokens' out
result $? 'a signal to one rank ends the sample of rank 0'

# Only one of them gets the signal; all end after the same step, and say so.
timeout 120 "$launch" -n 2 sh -c 'echo $$ >pid-$EVENODD_RANK; exec "$@"' x "$train" $options --steps 1000000 --peak-seconds 0 --log stopped.jsonl \
    >out 2>err </dev/null &
pid=$!
tries=0
while [ "$(grep -c '"step":' stopped.jsonl 2>/dev/null)" -lt 3 ] 2>/dev/null || [ ! -s stopped.jsonl ]; do
    tries=$((tries + 1))
    [ $tries -lt 600 ] && kill -0 $pid 2>/dev/null || break
    sleep 0.05
done
kill -INT "$(cat pid-1)"
wait $pid
[ $? = 0 ] && grep -q 'interrupted after step' out && "$python" "$check" log stopped.jsonl >>err 2>&1
result $? 'a signal to one rank ends all after the current step, and rank 0 says so'

# Two processors of ours that are no two threads of one core: cores are shared out.
first='' second=''
for topology in $(ls -d /sys/devices/system/cpu/cpu[0-9]*/topology | sort -V); do
    processor=${topology%/topology} processor=${processor##*cpu}
    taskset -c "$processor" true 2>/dev/null || continue
    if [ -z "$first" ]; then
        first=$processor core=$(cat "$topology/thread_siblings_list")
    elif [ "$(cat "$topology/thread_siblings_list")" != "$core" ]; then
        second=$processor
        break
    fi
done
# Bound apart by their launcher, each rank keeps what is its own; else they share. Rank 0's processors are told.
if [ -n "$second" ] && "$train" $quiet --ranks 1 --place-threads | grep -q placed; then
    both=$first,$second
    [ $((first + 1)) != "$second" ] || both=$first-$second
    for way in shared apart; do
        processors=$second
        [ $way = apart ] || processors=$first,$second
        timeout 120 "$launch" -n 2 sh -c '[ $EVENODD_RANK = 0 ] || set -- taskset -c '"$processors"' "$@"
            exec taskset -c '"$first,$second"' "$@"' x "$train" $quiet --place-threads >out-$way 2>>err
    done
    cp out-apart out
    grep -qx "rank 0: threads and memory placed on processors $first" out-shared &&
        grep -qx "rank 0: threads and memory placed on processors $both" out-apart
    result $? 'threads are placed within the processors that a rank does not share'
else
    skip 'threads are placed' 'one core, no taskset, or no hwloc'
fi

# --- unlike processors: an instruction set that all ranks have
lacks='[ $EVENODD_RANK = 0 ] || export DNNL_MAX_CPU_ISA=SSE41; exec "$@"'
timeout 120 "$train" --ranks 2 $quiet --dtype bf16 --instruction-set plain >threads 2>err &&
    timeout 120 "$launch" -n 2 sh -c "$lacks" x "$train" $quiet --dtype bf16 >out 2>>err && same && grep -q 'kernels plain' out
status=$?
if "$train" --instruction-set sse9 2>&1 | grep -q 'it has plain, reference'; then
    skip 'a rank without an instruction set' 'this processor has plain alone'
else
    [ $status = 0 ] && grep -q '^instruction set: plain on all ranks, because rank 1 (host .*) has no a[mv]x' out
    result $? 'all ranks compute with what the oldest processor has, and it is named'
fi
for type in fp32 bf16; do # a run in bf16 tries the instruction sets first
    muon="$quiet --strategy ddp --optimizer muon --dtype $type"
    # shellcheck disable=SC2086 # a list of options
    timeout 120 "$train" --ranks 2 $muon --instruction-set plain >threads 2>err &&
        timeout 120 "$launch" -n 2 sh -c "$lacks" x "$train" $muon >out 2>>err && same
    result $? "and so do their products in fp32, Muon's too, of a run in $type"
done
other='[ $EVENODD_RANK = 0 ] || set -- "$@" --instruction-set reference; exec "$@"'
timeout 120 "$launch" -n 2 sh -c "$other" x "$train" $quiet --instruction-set plain >out 2>err
[ $? = 2 ] && grep -q 'no instruction set in common: rank 1 (host .*) does not have plain' err
result $? 'ranks that are given different instruction sets are refused'

# --- files
both 3 $quiet --export weights.out
mv weights.out weights.processes && timeout 120 "$train" --ranks 3 $quiet --export weights.out >threads 2>>err &&
    diff -r weights.out weights.processes >>err 2>&1
result $? 'exported weights are the same bytes'

timeout 120 "$launch" -n 3 "$train" $quiet --trace trace.json >out 2>err && "$python" "$check" trace trace.json 3 >>err 2>&1
result $? 'the trace is one document with all ranks and their streams'
timeout 120 "$launch" -n 2 "$train" $quiet --trace /dev/full >out 2>err
[ $? = 1 ] && grep -q -- '--trace /dev/full: cannot be written' err && [ -n "$(hash_of out)" ] && ! grep -q 'gave up' err
result $? 'a trace that cannot be written is told, the run ends in order, and only its rank fails'
timeout 120 "$launch" -n 2 "$train" $quiet --trace /nonexistent/trace.json >out 2>err
[ $? = 2 ] && grep -q '/nonexistent/trace.json' err
result $? 'a trace that cannot be made is refused before the run'
timeout 120 "$launch" -n 2 "$headtohead" --model 2x32x2 >out 2>err
[ $? = 2 ] && grep -q 'launch has started 2 of it' err && [ ! -s out ]
result $? 'a comparison, which has its ranks in one process, is refused'
if (ulimit -v 200000 && "$train" --version >/dev/null 2>&1); then
    both 4 $quiet && hash_of threads >all
    (ulimit -v 240000 && timeout 120 "$launch" -n 4 "$train" $quiet >out 2>err) && [ "$(hash_of out)" = "$(cat all)" ]
    result $? 'a limit on addresses is of each process, not of all of them together'
    (ulimit -v 240000 && timeout 120 "$train" --ranks 4 $quiet >out 2>err) && [ "$(hash_of out)" = "$(cat all)" ]
    result $? 'ranks as threads share a heap under a limit on addresses'
    (ulimit -v 160000 && timeout 120 "$train" --ranks 8 $quiet >out 2>err)
    [ $? = 2 ] && grep -q 'MiB are available under the limit on address space' err
    result $? 'stacks count under a limit on addresses'
else
    skip 'a limit on addresses' 'this build takes more'
fi
if unshare --mount sh -c 'mount -t tmpfs none /proc' 2>/dev/null; then
    timeout 120 "$launch" -n 2 unshare --mount sh -c 'mount -t tmpfs none /proc; exec "$@"' x "$train" $quiet >out 2>err
    { [ $? = 2 ] || grep -q 'LeakSanitizer has' err; } && # it ends otherwise without /proc, where it finds no options either
        grep -q 'rank 0 .* cannot identify its machine: .*; mount /proc' err
    result $? 'ranks without /proc are told that they lack it'
    timeout 120 unshare --mount sh -c 'mount -t tmpfs none /proc; exec "$@"' x "$headtohead" $options --steps 4 --peak-seconds 0 \
        >out 2>err
    [ $? = 1 ] && grep -q 'cannot start itself by /proc/self/exe: .*; mount /proc' err
    result $? 'so is a comparison, which starts itself'
else
    skip 'ranks without /proc' 'not root'
fi
if unshare --time --fork --monotonic 100000 true 2>/dev/null; then
    timeout 120 "$launch" -n 2 sh -c '[ $EVENODD_RANK = 0 ] || set -- unshare --time --fork --monotonic 100000 "$@"; exec "$@"' x \
        "$train" $quiet --trace trace.json >out 2>err && "$python" "$check" clocks trace.json 1000 >>err 2>&1
    result $? 'times of a rank with another clock are moved to those of rank 0'
else
    skip 'times of a rank with another clock' 'no time namespaces here, or not root'
fi
finish
