#!/bin/sh
# SPDX-License-Identifier: MIT
#
# Goal: whatever a rank waits for, its job ends: who has not come is named, nobody waits for a deadline that is none, and
# what was started does not go on.
# Method: ranks of train that are made to wait, processes that do not end by themselves.
# usage: ends.sh LAUNCH TRAIN POSTMORTEM SOURCE SLOW_DISK WITHOUT_CALL
set -u
. "$(dirname "$0")/../tap/tap.sh"
ASAN_OPTIONS=${ASAN_OPTIONS:-}
export ASAN_OPTIONS
launch=$1 train=$2 postmortem=$3 text=$4/LICENSE slow_disk=$5 without=$6
make_folder
shown="$work/out $work/err"
options="--model 2x32x2 --seq 16 --batch 1 --threads 1 --peak-seconds 0 --sample 0"

# run COMMAND...: output in $work/out and $work/err, its status in $status
run()
{
    timeout -k 1 60 "$@" >"$work/out" 2>"$work/err" </dev/null
    status=$?
}

says() { grep -qF -- "$1" "$work/err"; }

# later NAME COMMAND...: a case that waits for something, beside the others; take NAME: what came of it
later()
{
    name=$1
    shift
    (
        timeout -k 1 60 "$@" >"$work/$name.out" 2>"$work/$name.err" </dev/null
        echo $? >"$work/$name.status"
    ) &
}

take()
{
    mv "$work/$1.out" "$work/out"
    mv "$work/$1.err" "$work/err"
    status=$(cat "$work/$1.status")
}

# What takes long is no loss: rank 0 writes an export, in one piece and to its end, for longer than any deadline. Nor does a
# wall clock that is set back keep it from its meetings.
later export "$launch" -n 2 sh -c "[ \$EVENODD_RANK = 0 ] && export SLOW_DISK_MS=3500 CLOCK_AHEAD_S=3600 LD_PRELOAD=$slow_disk \
    ASAN_OPTIONS=\$ASAN_OPTIONS:verify_asan_link_order=0; \
    exec $train $options --text $text --steps 2 --export $work/exported --rank-timeout 2 --join-timeout 3"
# Where ranks are threads, they go on to the sample.
later threads sh -c "export SLOW_DISK_MS=2500 LD_PRELOAD=$slow_disk ASAN_OPTIONS=\$ASAN_OPTIONS:verify_asan_link_order=0; \
    exec $train ${options%--sample 0*} ${options#*--sample 0} --ranks 2 --text $text --steps 2 --export $work/exported2 \
    --rank-timeout 1"

# A long log is continued, by rank 0, for longer than the other ranks wait in a collective.
mkdir "$work/logs"
run "$train" $options --ranks 2 --text "$text" --steps 2 --checkpoint "$work/long" --log "$work/logs/a" && cp "$work/logs/a" "$work/logs/b"
slow_log="export SLOW_FILE=$work/logs SLOW_DISK_MS=3500 LD_PRELOAD=$slow_disk ASAN_OPTIONS=\$ASAN_OPTIONS:verify_asan_link_order=0"
later log "$launch" -n 2 sh -c "[ \$EVENODD_RANK = 0 ] && $slow_log; \
    exec $train $options --text $text --steps 3 --resume $work/long --log $work/logs/a --rank-timeout 1 --join-timeout 2"
later log_of_threads sh -c "$slow_log; \
    exec $train $options --ranks 2 --text $text --steps 3 --resume $work/long --log $work/logs/b --rank-timeout 1"

mpi=false
if command -v mpirun >/dev/null 2>&1 && mpirun --version 2>/dev/null | grep -q 'Open MPI'; then
    mpi=true
    later finalize env OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 mpirun --oversubscribe -n 2 sh -c \
        "[ \$OMPI_COMM_WORLD_RANK = 1 ] && export SLOW_FINALIZE=1 LD_PRELOAD=$slow_disk \
        ASAN_OPTIONS=\$ASAN_OPTIONS:verify_asan_link_order=0; \
        $train $options --text $text --steps 2 --collectives mpi --rank-timeout 3; \
        s=\$?; echo \$s >$work/finalize-\$OMPI_COMM_WORLD_RANK; exit \$s"
fi

# A job that is stopped whole has waited for nobody meanwhile: rank 0 stands in a write to its log, rank 1 waits for it.
mkfifo "$work/log"
later stopped sh -c "
    exec 9<>$work/log
    $launch -n 2 sh -c 'echo \$\$ >$work/pid-\$EVENODD_RANK; exec $train $options --text $text --steps 3000 \\
        --log /dev/stdout --rank-timeout 2 >$work/log' &
    pid=\$!
    until [ -s $work/pid-0 ] && [ -s $work/pid-1 ]; do sleep 0.02; done
    sleep 1.5
    kill -STOP \$(cat $work/pid-0) \$(cat $work/pid-1) && : >$work/was-stopped
    sleep 3
    cat $work/log >$work/log.read 9>&- &
    kill -CONT \$(cat $work/pid-1)
    sleep 0.5
    kill -CONT \$(cat $work/pid-0)
    exec 9>&-
    wait \$pid"

# Nor has it saved anything meanwhile: rank 1 has the rest of its time to end after rank 0's failure.
later grace sh -c "
    $launch -n 2 --grace 4 sh -c '
        [ \$EVENODD_RANK = 0 ] && { until [ -s $work/saves ]; do sleep 0.02; done; exit 1; }
        trap \"\" TERM
        echo \$\$ >$work/saves
        until [ -e $work/continued ]; do sleep 0.1; done
        sleep 0.5
        : >$work/saved' &
    pid=\$!
    until [ -s $work/saves ]; do sleep 0.02; done
    sleep 0.5
    kill -STOP \$pid \$(cat $work/saves)
    sleep 5
    kill -CONT \$(cat $work/saves)
    : >$work/continued
    kill -CONT \$pid
    wait \$pid"

# Standard output that nobody reads for longer than any deadline: a full pipe, as behind a pager. Then somebody does.
unread() # NAME COMMAND...: $work/NAME.pipe is its standard output
{
    name=$1
    shift
    mkfifo "$work/$name.pipe"
    later "$name" sh -c "
        exec 9<>$work/$name.pipe
        timeout 2 head -c 65536 /dev/zero >&9
        \"\$@\" >$work/$name.pipe &
        pid=\$!
        sleep 5
        cat $work/$name.pipe >$work/$name.read 9>&- &
        exec 9>&-
        wait \$pid" sh "$@"
}
# shellcheck disable=SC2086
unread pager "$launch" -n 2 "$train" $options --text "$text" --steps 300 --rank-timeout 1 --join-timeout 3
# shellcheck disable=SC2086
unread pager_of_threads "$train" --ranks 2 $options --text "$text" --steps 300 --rank-timeout 1

# A file that never comes: rank 1 has joined, and stands in open() when the others compare plans.
cp "$text" "$work/never"
run "$launch" -n 3 sh -c "[ \$EVENODD_RANK = 1 ] && export SLOW_OPEN=$work/never LD_PRELOAD=$slow_disk \
    ASAN_OPTIONS=\$ASAN_OPTIONS:verify_asan_link_order=0 && exec $train $options --text $work/never --join-timeout 1; \
    exec $train $options --text $text --join-timeout 1"
[ $status = 3 ] && says 'train: rank 0: rank 1 (host ' && says 'has not reached a meeting of all ranks within 1.0 s' &&
    says 'train: rank 1: rank 1 (host ' && [ "$(grep -c 'rank 1 (host' "$work/err")" = 3 ]
result $? 'a rank that stands still before the first step is named by all, itself as well'

# Standard error that nobody reads: a full pipe.
mkfifo "$work/full"
exec 9<>"$work/full"
timeout 2 head -c 65536 /dev/zero >&9
run "$launch" -n 3 sh -c "[ \$EVENODD_RANK = 0 ] || exec 2>$work/full; [ \$EVENODD_RANK = 1 ] && set -- --init /nonexistent; \
    exec $train $options --text $text \"\$@\""
exec 9>&-
[ $status = 2 ] && says 'rank 0: another rank gave up: --init /nonexistent' && ! says 'was killed'
result $? 'ranks whose standard error takes nothing end, the one that gave up as well, and others know why'

# Output with labels that nobody reads: the launcher hears signals all the same, and passes on what is read late.
mkfifo "$work/label"
exec 9<>"$work/label"
for how in TERM 'INT INT'; do
    env --default-signal=INT "$launch" -n 2 --grace 1 --label yes >"$work/label" 2>"$work/err" </dev/null &
    pid=$!
    sleep 0.7
    for signal in $how; do kill -s "$signal" $pid; sleep 0.2; done
    tries=0
    while kill -0 $pid 2>/dev/null && [ $tries -lt 250 ]; do tries=$((tries + 1)); sleep 0.02; done
    [ $tries -lt 250 ] || kill -KILL $pid
    wait $pid
    [ $? != 137 ]
    result $? "launch --label whose output nobody reads ends by SIG${how% *}"
    timeout 0.3 cat "$work/label" >"$work/out" # makes room again
done
"$launch" -n 2 --label seq 30000 >"$work/label" 2>"$work/err" </dev/null &
pid=$!
sleep 1
exec 8<"$work/label" # while 9 is open: no writer is waited for, should the launcher have ended
cat <&8 >"$work/out" 9>&- &
exec 8<&- 9>&-
wait $pid
[ $? = 0 ] && wait $! && [ "$(grep -a -c '^\[[01]\] 30000$' "$work/out")" = 2 ] && [ "$(wc -l <"$work/out")" = 60000 ]
result $? 'and passes on all of what is read late'

if ! command -v pkill >/dev/null 2>&1; then
    skip 'a killed guard, and processes that ranks have left behind' 'there is no pkill (procps)'
else
    # The process that waits for a killed launcher may itself be killed.
    "$launch" -n 2 sh -c 'sleep 0.7' >"$work/out" 2>"$work/err" </dev/null &
    pid=$!
    sleep 0.2
    pkill -KILL -P $pid -x launch-guard
    killed=$?
    wait $pid
    [ $? = 0 ] && [ $killed = 0 ]
    result $? 'a launcher whose guard was killed ends in order'

    # What ranks leave behind: more than one read of /proc/self/task/*/children tells.
    run "$launch" -n 4 sh -c "i=0; while [ \$i -lt 200 ]; do i=\$((i + 1)); setsid sleep 97.\$\$ & done; echo \$\$"
    left=0
    while read -r pid; do
        pgrep -f "^sleep 97.$pid\$" >>"$work/err" && left=1
    done <"$work/out"
    [ $status = 0 ] && [ "$(wc -l <"$work/out")" = 4 ] && [ $left = 0 ]
    result $? 'launch ends hundreds of processes that ranks have left behind'

    # The shell's own child is the launcher's from the start.
    run sh -c "sleep 30 & echo \$! >$work/own; exec $launch -n 1 sh -c 'setsid sleep 98.\$\$ & echo \$\$'"
    [ $status = 0 ] && kill "$(cat "$work/own")" && ! pgrep -f "^sleep 98.$(cat "$work/out")\$"
    result $? 'but no process that a shell had started before it became the launcher'
fi

# Open files.
run sh -c "ulimit -n 14; exec $launch -n 8 $train $options --text $text --steps 2 --join-timeout 1"
[ $status != 0 ] && [ $status -lt 124 ] && says 'Too many open files; raise the limit on open files (ulimit -n)'
result $? 'a limit on open files that is too low is named'
# One of these is met when rank 0 hands over the group's memory.
opened=0 waited=0 unnamed=0
for limit in 20 24 28 32 36; do
    run sh -c "ulimit -n $limit; exec $launch -n 8 $train $options --text $text --steps 2 --join-timeout 2 --rank-timeout 2"
    says 'rank 0 could not open the memory of the group: Too many open files; raise the limit' && opened=1
    says 'has not reached' && waited=1 && break
    ! grep -q 'Too many open files$\|a file could not be read or written' "$work/err" || unnamed=1
done
[ $opened = 1 ] && [ $waited = 0 ]
result $? 'and nobody waits for the rank that met it, or takes others for lost'
[ $unnamed = 0 ]
result $? 'ranks that share its memory only later name it, too'
run sh -c "ulimit -S -n 14; exec $launch -n 8 $train $options --text $text --steps 2"
[ $status = 0 ]
result $? 'a soft limit is raised to the hard one'

run sh -c "ulimit -n 20; exec $launch -n 16 --label --restarts 2 true"
[ "$(grep 'cannot start rank .*: Too many open files' "$work/err" | uniq | wc -l)" = 1 ] &&
    [ "$(grep -c 'cannot start' "$work/err")" = 3 ]
result $? 'a restart has as many files as the start before'

run sh -c "ulimit -f 1; exec $launch -n 2 $train $options --text $text --steps 2"
[ $status != 0 ] && says 'File too large' && ! says 'by signal'
result $? 'a limit on the size of files is said, and no signal ends a rank for it'

# A C library that does not know clone3 takes clone.
run "$without" clone3 "$train" $options --text "$text" --steps 2 --ranks 2
[ $status = 0 ] || { says 'the thread of rank 0: Operation not permitted; a filter of system calls refuses clone3: ' &&
    run "$without" clone3 "$launch" -n 2 "$train" $options --text "$text" --steps 2 && says 'update Docker'; }
result $? 'a filter that refuses threads is named, not a limit'

# The ranks of one host meet under a name that follows from the token.
run "$launch" -n 2 sh -c "[ \$EVENODD_RANK = 1 ] && export EVENODD_TOKEN=$(od -An -tx1 -N32 /dev/urandom | tr -d ' \n'); \
    exec $train $options --text $text --join-timeout 0.5"
[ $status = 2 ] && says 'or has another token, job, address or port' && says 'missing: rank 1'
result $? 'another token within a host is among the reasons that are named'

# Flight recorders: files of an earlier run, and one that is none, beside those of the last one.
run "$launch" -n 3 sh -c "exec $train $options --text $text --steps 2 --flight-recorder $work/earlier"
run "$launch" -n 2 sh -c "exec $train $options --text $text --steps 2 --flight-recorder $work/flight"
cp "$work/earlier/rank-00002.flight" "$work/flight"
head -c 8192 /dev/zero >"$work/flight/rank-00007.flight"
run "$postmortem" "$work/flight"
[ $status = 0 ] && [ "$(grep -c '^rank . (host .*) ended in order' "$work/out")" = 2 ] &&
    says 'left out: rank 2 of 3 (host ' && says 'rank-00007.flight: not a flight recorder'
result $? 'postmortem tells of the last run, and names what it leaves out'

wait
take export
[ $status = 0 ] && [ -s "$work/exported/model.safetensors" ] && says 'slow disk: pwrite' && says 'slow disk: fsync'
result $? 'an export that takes longer than all deadlines is written'
take threads
[ $status = 0 ] && cmp "$work/exported/model.safetensors" "$work/exported2/model.safetensors" >>"$work/err" &&
    says 'slow disk: fsync' && grep -q '^weights_hash' "$work/out"
result $? 'by ranks that are threads, too, which go on together'
for name in log log_of_threads; do
    take $name
    [ $status = 0 ] && says 'slow disk: fsync' && grep -q '^weights_hash' "$work/out"
    result $? "a log is continued for longer than all deadlines: $name"
done
take pager
[ $status = 0 ] && grep -qa '^weights_hash' "$work/pager.read"
result $? 'standard output that is read late ends nothing, and all of it comes'
take pager_of_threads
[ $status = 0 ] && grep -qa '^weights_hash' "$work/pager_of_threads.read"
result $? 'nor where ranks are threads'
take stopped
[ $status = 0 ] && [ -e "$work/was-stopped" ]
result $? 'a job that was stopped whole for longer than the deadline goes on'
take grace
[ $status = 1 ] && [ -e "$work/saved" ] && ! says 'was killed'
result $? 'a rank that saves after a failure has the time in which launch ran, not that in which all was stopped'
if $mpi; then
    OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 mpirun --oversubscribe -n 2 sh -c \
        "echo \$\$ >$work/mpi-\$OMPI_COMM_WORLD_RANK; \
        exec $train $options --text $text --steps 1000000 >/dev/null 2>$work/err-\$OMPI_COMM_WORLD_RANK" \
        >"$work/out" 2>"$work/err" </dev/null &
    pid=$!
    while [ ! -s "$work/mpi-0" ] || [ ! -s "$work/mpi-1" ]; do sleep 0.02; done
    sleep 1
    kill -KILL $pid
    wait $pid 2>/dev/null
    tries=0
    while [ $tries -lt 500 ] && { kill -0 "$(cat "$work/mpi-0")" || kill -0 "$(cat "$work/mpi-1")"; } 2>/dev/null; do
        tries=$((tries + 1))
        sleep 0.02
    done
    kill -KILL "$(cat "$work/mpi-0")" "$(cat "$work/mpi-1")" 2>/dev/null
    cat "$work/err-0" "$work/err-1" >"$work/err"
    [ $tries -lt 500 ] && says 'the parent of this process, has ended'
    result $? 'ranks do not outlive an mpirun that is killed'
    # The rank's own status: mpirun's is another's where PMIx 4.2.2 crashes at mpirun's end after a failure, as it
    # does about once in a hundred times under load.
    take finalize
    [ $status != 0 ] && grep -qsx 3 "$work/finalize-0" "$work/finalize-1" && says 'MPI_Finalize does not return'
    result $? 'a rank that never comes to MPI_Finalize keeps nobody'
else
    skip MPI_Finalize 'there is no Open MPI'
fi
finish
