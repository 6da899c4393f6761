#!/bin/sh
# SPDX-License-Identifier: MIT
#
# Goal: the same program, started by launch, mpirun, torchrun's or Slurm's environment, has the same weights as with ranks
# that are threads; input that cannot be right ends with status 2 and a message that names it; launch leaves nothing.
# Method: runs of train with a small model; environments as these launchers make them.
# usage: worlds.sh LAUNCH TRAIN POSTMORTEM SOURCE
set -u
. "$(dirname "$0")/../tap/tap.sh"
launch=$1 train=$2 postmortem=$3 text=$4/LICENSE
make_folder
shown="$work/out $work/err"
options="--model 2x32x2 --seq 16 --batch 1 --steps 5 --threads 1 --peak-seconds 0 --sample 0 --text $text"

# run COMMAND...: output in $work/out and $work/err, its status in $status
run()
{
    timeout 120 "$@" >"$work/out" 2>"$work/err" </dev/null
    status=$?
}

# as_world RANKS COMMAND: the command for each rank, with $rank in it; its outputs together, the first bad status
as_world()
{
    : >"$work/out" >"$work/err"
    pids=
    rank=0
    while [ $rank -lt "$1" ]; do
        export rank
        timeout 120 sh -c "$2" >>"$work/out" 2>>"$work/err" </dev/null &
        pids="$pids $!"
        rank=$((rank + 1))
    done
    status=0
    for pid in $pids; do
        wait "$pid" || status=$?
    done
}

hash_is() { grep -q "^weights_hash $1," "$work/out"; }
says() { grep -qF -- "$1" "$work/err"; }

port=$((21000 + $$ % 8000))

# Those that wait for a deadline of seconds run beside the others. beside NAME COMMAND...; then await NAME, as after run
beside()
{
    name=$1
    shift
    mkdir "$work/$name"
    (work=$work/$name && "$@" && exit "$status") &
    eval "pid_$name=$!"
}

await()
{
    eval "wait \$pid_$1"
    status=$?
    mv "$work/$1/out" "$work/$1/err" "$work"
}

beside missing run "$launch" -n 3 sh -c "[ \$EVENODD_RANK = 2 ] && exit 0; exec $train $options --join-timeout 4"
own_token=$(od -An -tx1 -N32 /dev/urandom | tr -d ' \n') other_token=$(od -An -tx1 -N32 /dev/urandom | tr -d ' \n')
beside other_token as_world 2 "export EVENODD_TOKEN=$own_token; [ \$rank = 1 ] && sleep 0.3 && export EVENODD_TOKEN=$other_token; \
    MASTER_ADDR=127.0.0.1 MASTER_PORT=$((port + 20)) RANK=\$rank WORLD_SIZE=2 exec $train $options --join-timeout 5"

# shellcheck disable=SC2086 # lists of options
run "$train" $options --ranks 3
threads=$(sed -n 's/^weights_hash \([0-9a-f]*\),.*/\1/p' "$work/out")
[ $status = 0 ] && [ -n "$threads" ]
result $? 'three ranks that are threads train'

# --- launchers
# shellcheck disable=SC2086
run "$launch" -n 3 "$train" $options
[ $status = 0 ] && hash_is "$threads"
result $? 'three processes by launch have the same weights'
grep -qx 'world: 3 processes on one machine by launch, collectives shared' "$work/out"
result $? 'and say how they reach each other'

as_world 3 "MASTER_ADDR=127.0.0.1 MASTER_PORT=$port RANK=\$rank WORLD_SIZE=3 LOCAL_RANK=\$rank LOCAL_WORLD_SIZE=3 \
    TORCHELASTIC_RUN_ID=none exec $train $options"
[ $status = 0 ] && hash_is "$threads"
result $? "torchrun's environment: the same weights"

as_world 3 "SLURM_PROCID=\$rank SLURM_NTASKS=3 SLURM_LOCALID=\$rank SLURM_STEP_TASKS_PER_NODE=3 SLURM_NODEID=0 \
    SLURM_STEP_ID=0 SLURM_JOB_ID=$$ SLURM_STEP_NODELIST=localhost exec $train $options"
[ $status = 0 ] && hash_is "$threads"
result $? "Slurm's environment: the same weights"

as_world 3 "PMI_RANK=\$rank PMI_SIZE=3 SLURM_PROCID=\$rank SLURM_NTASKS=3 SLURM_LOCALID=\$rank SLURM_STEP_TASKS_PER_NODE=3 \
    SLURM_NODEID=0 SLURM_STEP_ID=0 SLURM_JOB_ID=$$ SLURM_STEP_NODELIST=localhost exec $train $options"
[ $status = 0 ] && hash_is "$threads" && grep -q '^world: 3 processes on one machine by Slurm' "$work/out"
result $? "srun --mpi=pmi2, which says no local ranks of PMI's: they are Slurm's"

# Ranks that do not know of each other that they share a host meet over TCP.
(umask 077 && od -An -tx1 -N32 /dev/urandom | tr -d ' \n' >"$work/token")
as_world 3 "EVENODD_TOKEN_FILE=$work/token MASTER_ADDR=127.0.0.1 MASTER_PORT=$((port + 10)) RANK=\$rank WORLD_SIZE=3 \
    exec $train $options"
[ $status = 0 ] && hash_is "$threads"
result $? 'over TCP, with a token from a file: the same weights'

as_world 2 "MASTER_ADDR=127.0.0.1 MASTER_PORT=$((port + 30)) RANK=\$rank WORLD_SIZE=2 exec $train $options --insecure"
[ $status = 0 ] && says 'rendezvous at 127.0.0.1 is insecure: without a token'
result $? '--insecure does without one, and says what that means'
as_world 3 "EVENODD_TOKEN_FILE=$work/token PMI_RANK=\$rank PMI_SIZE=3 MPI_LOCALRANKID=\$rank MPI_LOCALNRANKS=3 exec $train $options"
[ $status = 0 ] && hash_is "$threads"
result $? "MPICH's environment: the same weights"

if command -v mpirun >/dev/null 2>&1 && mpirun --version 2>/dev/null | grep -q 'Open MPI'; then
    # shellcheck disable=SC2086
    OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 run mpirun --oversubscribe -n 3 "$train" $options
    [ $status = 0 ] && hash_is "$threads"
    result $? 'mpirun: the same weights'
else
    skip mpirun 'there is no Open MPI'
fi

# --- bad input
each() # SENTENCE MESSAGE RANKS COMMAND: status 2, and the message
{
    run "$launch" -n "$3" sh -c "$4"
    [ $status = 2 ] && says "$2"
    result $? "$1"
}

options2="--model 2x32x2 --batch 1 --steps 5 --threads 1 --peak-seconds 0 --sample 0 --text $text"
each 'plans that differ: the first field is named, with both values' '"seq" is 16 on rank 0 and 32 on rank 1' 2 \
    "exec $train $options2 --seq \$((16 * (EVENODD_RANK + 1)))"
each 'collectives mpi without an MPI are refused before it is loaded' 'start them with its mpirun or with srun --mpi=pmix' 2 \
    "unset PMIX_RANK OMPI_COMM_WORLD_RANK; exec $train $options --collectives mpi"
each 'a rank that cannot begin is named with its reason, and the others end' 'train: rank 1: --init /nonexistent: No such file or directory' 3 \
    "[ \$EVENODD_RANK = 1 ] && set -- --init /nonexistent; exec $train $options \"\$@\""
await missing
[ $status = 2 ] && says 'not all 3 ranks have come within 4.0 s: missing: rank 2'
result $? 'a rank that does not come is named'
each 'another number of ranks than the launcher started is refused' '--ranks is 4, but launch has started 2' 2 \
    "exec $train $options --ranks 4"
each 'a token that is no token is refused' 'EVENODD_TOKEN in the environment is not 64 hexadecimal digits' 2 \
    "export EVENODD_TOKEN=secret; exec $train $options"
chmod 644 "$work/token"
each "a token's file that others can read is refused" 'is readable by others; chmod 600 it' 2 \
    "unset EVENODD_TOKEN; export EVENODD_TOKEN_FILE=$work/token; exec $train $options"
each 'ranks on several hosts and no address are refused' 'without the address of rank 0' 2 \
    "export EVENODD_LOCAL_RANKS=1 EVENODD_LOCAL_RANK=0; exec $train $options"
each 'a network without a token is refused' 'without a token' 2 \
    "unset EVENODD_TOKEN; export EVENODD_LOCAL_RANKS=1 EVENODD_LOCAL_RANK=0 MASTER_ADDR=192.0.2.1; exec $train $options"
each 'a rank that is no number is refused' "EVENODD_RANK in the environment is 'x'" 2 \
    "export EVENODD_RANK=x; exec $train $options"
as_world 2 "RANK=\$rank WORLD_SIZE=2 exec $train $options"
[ $status = 2 ] && [ "$(grep -c 'but MASTER_ADDR is not' "$work/err")" = 2 ]
result $? 'half of what torchrun sets is refused, and not taken for none'
await other_token
[ $status = 2 ] && says 'the tokens differ' && says 'it does not hold the token of this job'
result $? 'the wrong token is refused, and both sides say so'

# --- launch
run "$launch" -n 3 sh -c 'exit $((EVENODD_RANK == 1 ? 7 : 0))'
[ $status = 7 ] && says 'rank 1 (process ' && says 'ended with status 7'
result $? "launch ends with the status of the rank that failed, and names it"
run "$launch" -n 2 --grace 0 sh -c '[ $EVENODD_RANK = 1 ] && kill -SEGV $$; sleep 60 & sleep 60'
[ $status = 3 ] && says 'was killed by signal 11'
result $? 'a rank that a signal ended makes status 3, and the others end'
run "$launch" -n 2 --restarts 2 sh -c 'echo start $EVENODD_RESTART; exit 1'
[ $status = 1 ] && [ "$(grep -c 'start 2' "$work/out")" = 2 ] && says 'restart 2 of 2'
result $? 'it starts again as often as it was told'
run "$launch" -n 2 --restarts 2 sh -c 'echo start $EVENODD_RESTART; exit 2'
[ $status = 2 ] && ! grep -q 'start 1' "$work/out"
result $? 'but not after bad input'
run "$launch" -n 2 --restarts 2 /nonexistent
[ $status = 127 ] && ! says 'restart 1'
result $? 'nor where there is no such program'
timeout 60 "$launch" -n 2 --restarts 2 sh -c 'while :; do echo y; sleep 0.01; done' 2>"$work/err" | head -n 1 >"$work/out"
says 'was killed by signal 13' && ! says 'restart 1'
result $? 'nor where nobody reads what the ranks write'
run timeout -k 1 20 env --ignore-signal=CHLD "$launch" -n 2 sh -c 'exit $((3 * EVENODD_RANK))'
[ $status = 3 ]
result $? 'it sees its ranks end under a parent that ignores SIGCHLD'
run "$launch" -n 2 --label sh -c 'echo out $EVENODD_RANK; echo err $EVENODD_RANK >&2'
[ $status = 0 ] && grep -qx '\[1\] out 1' "$work/out" && grep -qx '\[0\] err 0' "$work/err"
result $? 'it puts the rank in front of each line'
run sh -c "exec $launch -n 1 --label echo out >/dev/full"
[ $status = 1 ] && says "the ranks' output cannot be written"
result $? 'labelled output that does not arrive is no success'
run sh -c "ulimit -f 1; exec $launch -n 1 sh -c 'exec yes >$work/yes'"
[ $status = 3 ] && says 'was killed by signal 25'
result $? 'its programs meet a limit on the size of files as ever'
lives() { for name; do kill -0 "$(cat "$work/$name")" 2>/dev/null && return 0; done; return 1; }
outlived() # REDIRECTIONS
{
    rm -f "$work"/pid-* "$work"/child-*
    # shellcheck disable=SC2016
    eval '"$launch" -n 2 sh -c '\''echo $$ >"$0/pid-$EVENODD_RANK"; sleep 600 & echo $! >"$0/child-$EVENODD_RANK"; wait'\'' "$work" \
        >"$work/out" 2>"$work/err" '"$1"' &'
    pid=$!
    while [ ! -s "$work/child-0" ] || [ ! -s "$work/child-1" ]; do sleep 0.02; done
    kill -KILL $pid
    wait $pid 2>/dev/null
    tries=0
    while lives pid-0 pid-1 child-0 child-1; do
        tries=$((tries + 1))
        [ $tries -lt 500 ] || break
        sleep 0.02
    done
    [ $tries = 500 ]
}
! outlived ''
result $? 'neither ranks nor what these have started outlive a launcher that is killed'
! outlived '<&- >&-'
result $? 'nor one whose standard input and output are closed'
"$launch" -n 2 sh -c 'trap "echo stop; exit 0" TERM; echo >'"$work"'/up-$EVENODD_RANK; while :; do sleep 0.05; done' \
    >"$work/out" 2>"$work/err" &
pid=$!
while [ ! -e "$work/up-0" ] || [ ! -e "$work/up-1" ]; do sleep 0.02; done
kill -TERM $pid
wait $pid
[ $? = 0 ] && [ "$(grep -c stop "$work/out")" = 2 ]
result $? 'signals go to all ranks'
rm "$work"/up-*
# A shell starts what runs beside it with SIGINT ignored.
# One child for all the time: a shell that waits for a stopped child to exec (vfork) is not in state T.
env --default-signal=INT "$launch" -n 2 sh -c 'sleep 600 & trap "echo stop; kill $!; exit 0" INT
    echo $$ >'"$work"'/up-$EVENODD_RANK; while :; do wait $!; done' \
    >"$work/out" 2>"$work/err" &
pid=$!
while [ ! -s "$work/up-0" ] || [ ! -s "$work/up-1" ]; do sleep 0.02; done
state_of() { sed 's/.*) \(.\).*/\1/' "/proc/$1/stat"; }
all_are() { for p in $pid $(cat "$work/up-0" "$work/up-1"); do [ "$(state_of "$p")" = T ] && echo T || echo -; done | grep -c "$1"; }
await() { tries=0; while [ "$(all_are T)" != "$1" ] && [ $tries -lt 500 ]; do tries=$((tries + 1)); sleep 0.02; done; }
kill -TSTP $pid
await 3
stopped=$(all_are T)
kill -CONT $pid
await 0
[ "$stopped" = 3 ] && [ "$(all_are T)" = 0 ]
result $? 'SIGTSTP stops the ranks with their launcher, and they go on with it'
kill -STOP $(cat "$work/up-0" "$work/up-1")
await 2
kill -INT $pid
wait $pid
[ $? = 0 ] && [ "$(grep -c stop "$work/out")" = 2 ]
result $? 'ranks that are stopped are woken to end by SIGINT'
rm "$work"/up-*
env --default-signal=INT "$launch" -n 2 --grace 0 sh -c 'trap "sleep 1; echo stop; exit 0" INT
    echo >'"$work"'/up-$EVENODD_RANK; while :; do sleep 0.05; done' >"$work/out" 2>"$work/err" &
pid=$!
while [ ! -e "$work/up-0" ] || [ ! -e "$work/up-1" ]; do sleep 0.02; done
kill -INT $pid
sleep 0.2
kill -INT $pid
wait $pid
[ $? = 0 ] && [ "$(grep -c stop "$work/out")" = 2 ]
result $? 'a SIGINT sent twice at once, as by timeout, is one'
rm "$work"/up-*
# By nohup, and SIGINT and SIGQUIT by this shell.
(trap '' HUP TSTP && exec "$launch" -n 2 --grace 0 sh -c 'echo >'"$work"'/up-$EVENODD_RANK; sleep 0.5; echo through') \
    >"$work/out" 2>"$work/err" &
pid=$!
while [ ! -e "$work/up-0" ] || [ ! -e "$work/up-1" ]; do sleep 0.02; done
for signal in HUP INT QUIT TSTP; do kill -s $signal $pid; done
sleep 0.2
kill -CONT $pid
wait $pid
[ $? = 0 ] && [ "$(grep -c through "$work/out")" = 2 ]
result $? 'signals that were ignored when launch was started stay ignored'
if command -v script >/dev/null; then
    run timeout 20 script -qec "stty tostop && '$launch' -n 2 echo through" /dev/null
    [ $status = 0 ] && [ "$(grep -c through "$work/out")" = 2 ]
    result $? 'a terminal that stops writers in the background lets ranks write'
else
    skip 'a terminal that stops writers in the background' 'no script'
fi
run "$launch" -n 0 true
[ $status = 2 ] && run "$launch" -n 2 && [ $status = 2 ]
result $? 'launch refuses what makes no sense with status 2'

# --- flight recorder
# shellcheck disable=SC2086
run "$launch" -n 2 "$train" $options --flight-recorder "$work/flight"
[ $status = 0 ] && run "$postmortem" "$work/flight" && [ $status = 0 ] && grep -q '^rank 1 (host .*) ended in order' "$work/out" &&
    grep -q 'the same on all ranks' "$work/out"
result $? 'postmortem of a run that ended in order says so'
run "$postmortem" "$work/nothing"
[ $status = 2 ] && mkdir "$work/empty" && run "$postmortem" "$work/empty" && [ $status = 2 ] && says 'holds no files'
result $? 'postmortem of nothing is refused'
head -c 5000 "$work/flight/rank-00000.flight" >"$work/empty/cut.flight"
run "$postmortem" "$work/empty"
[ $status = 2 ] && says 'truncated'
result $? 'postmortem of a file that is cut short is refused'
rm "$work/empty/cut.flight"
cp "$work/flight/rank-00000.flight" "$work/empty/"
printf '\033[2J' | dd of="$work/empty/rank-00000.flight" bs=1 seek=32 conv=notrunc 2>/dev/null # in the host's name
printf '\377\377\377\377\377\377\377\177' | dd of="$work/empty/rank-00000.flight" bs=1 seek=96 conv=notrunc 2>/dev/null # the clock
run "$postmortem" "$work/empty"
[ $status = 0 ] && grep -q 'rank 0 (host ?\[2J' "$work/out" && grep -q 'at an unknown time$' "$work/out"
result $? 'a time that cannot be and commands to a terminal are nothing that postmortem prints'
mkdir "$work/flight/restart-1"
cp "$work/flight/rank-00001.flight" "$work/flight/restart-1/rank-00001.flight"
# shellcheck disable=SC2086
run "$train" $options --ranks 1 --flight-recorder "$work/flight"
[ $status = 0 ] && [ -e "$work/flight/rank-00000.flight" ] && [ ! -e "$work/flight/rank-00001.flight" ] &&
    [ ! -e "$work/flight/restart-1" ]
result $? 'what an earlier job with more ranks or restarts has left in the folder goes'
# shellcheck disable=SC2086
run "$train" $options --flight-recorder "$text"
[ $status = 2 ] && says "--flight-recorder $text: is not a folder; name one"
result $? 'a flight recorder that can have no folder is refused'
finish
