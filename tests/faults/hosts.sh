#!/bin/sh
# SPDX-License-Identifier: MIT
#
# Goal: ranks on several hosts, started by mpirun, train over mpi to the bits of threads; what cannot be between hosts is
# refused; a rank or a host that is lost is named by all others, and the restarted job ends as if nothing had been.
# Method: hosts of lab.sh, which mpirun reaches through its agent for remote shells.
# usage: hosts.sh TRAIN SOURCE
set -u
here=$(dirname -- "$0")
train=$1 text=$2/LICENSE
mpirun --version 2>/dev/null | grep -q 'Open MPI' || { echo '1..0 # SKIP there is no Open MPI'; exit 0; }
. "$here/lab.sh"
lab_open 2
options="--model 2x32x2 --seq 16 --batch 1 --threads 1 --peak-seconds 0 --sample 0 --text $text --steps 300"
printf '10.78.0.1 slots=2\n10.78.0.2 slots=2\n' >"$work/hostfile"
printf '#!/bin/sh\nhost=${1##*.}\nshift\nexec %s/host $((host - 1)) sh -c "$*"\n' "$work" >"$work/agent"
chmod 755 "$work/agent"
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1

# over_hosts RANKS ARGUMENTS of train
over_hosts()
{
    ranks=$1
    shift
    # shellcheck disable=SC2086 # a list of options
    EVENODD_TOKEN_FILE=$work/token timeout 200 "$work/host" 0 mpirun -n "$ranks" --hostfile "$work/hostfile" --mca plm_rsh_agent "$work/agent" \
        --leave-session-attached -x MASTER_ADDR=10.78.0.1 -x EVENODD_TOKEN_FILE "$train" $options "$@" </dev/null
}

# begin RANKS ARGUMENTS: in the background, until it has written a checkpoint, into $work/run
begin()
{
    rm -rf "$work/run"
    : >"$work/out"
    over_hosts "$@" --checkpoint "$work/run" --checkpoint-every 20 --keep 100 >"$work/out" 2>"$work/err" &
    job=$!
    until_is has_saved
}

# shellcheck disable=SC2086
"$train" $options --ranks 4 >"$work/out" 2>"$work/err"
threads=$(hash_in "$work/out")
[ -n "$threads" ]
result $? 'four ranks that are threads train'

over_hosts 4 >"$work/out" 2>"$work/err"
status=$?
[ $status = 0 ] && grep -qx 'world: 4 processes on several machines by mpirun (Open MPI), collectives mpi' "$work/out" &&
    [ "$(hash_in "$work/out")" = "$threads" ]
result $? 'two hosts with two ranks each choose mpi, and have the same weights'

over_hosts 4 --collectives shared >"$work/out" 2>"$work/err"
status=$?
[ $status = 2 ] && says_that 'rank [0-9] \(process [0-9]+ on lab-1\) and rank 0 \(process [0-9]+ on lab-0\) are not on one machine'
result $? 'shared is refused between hosts, by the first rank that is elsewhere'

: >"$work/out"
for r in 0 1; do
    EVENODD_TOKEN_FILE=$work/token MASTER_ADDR=10.78.0.1 MASTER_PORT=29500 RANK=$r WORLD_SIZE=2 LOCAL_RANK=0 LOCAL_WORLD_SIZE=1 \
        "$work/host" $r "$train" $options >>"$work/out" 2>"$work/err-$r" &
    eval "pid_$r=$!"
done
wait "$pid_0"
status=$?
wait "$pid_1"
[ $? = 2 ] && [ $status = 2 ] && cat "$work/err-0" "$work/err-1" >"$work/err" &&
    says 'without GPUs this leaves collectives mpi, and Open MPI must find the ranks'
result $? "ranks on two hosts that no MPI has started are refused, and told what to start them with"

cp "$work/hosts" "$work/kept" && sed 's/^10.78.0.1 /127.0.1.1 /' "$work/kept" >"$work/hosts"
EVENODD_TOKEN_FILE=$work/token MASTER_ADDR=lab-0 RANK=0 WORLD_SIZE=2 LOCAL_RANK=0 LOCAL_WORLD_SIZE=1 \
    "$work/host" 0 "$train" $options >"$work/out" 2>"$work/err"
[ $? = 2 ] && says "on its own host 'lab-0' is 127.0.1.1 port"
result $? "a name of rank 0's host that leads nowhere from elsewhere (Debian's 127.0.1.1) is refused at once"
cat "$work/kept" >"$work/hosts"

for signal in KILL STOP; do
    begin 4 --rank-timeout 2
    kill -$signal "$(pid_of_rank 2)"
    wait $job
    status=$?
    [ $status != 0 ] && [ $status != 2 ] && all_gone &&
        [ "$(grep -cE '^train: rank [013]: rank 2 \(host lab-1, process [0-9]+\) (is lost|has not answered)' "$work/err")" = 3 ]
    result $? "SIG$signal: all others say which rank of which host, mpirun ends with a failure, and nothing is left"
done

for collectives in shared mpi; do
    for signal in KILL STOP; do
        : >"$work/out"
        # shellcheck disable=SC2086
        EVENODD_TOKEN_FILE=$work/token timeout 200 "$work/host" 0 mpirun -n 3 --oversubscribe "$train" $options --rank-timeout 2 \
            --collectives $collectives --checkpoint "$work/one-$collectives-$signal" --checkpoint-every 20 \
            >"$work/out" 2>"$work/err" </dev/null &
        job=$!
        until_is has_saved
        kill -$signal "$(pid_of_rank 1)"
        wait $job
        status=$?
        [ $status != 0 ] && [ $status != 2 ] && all_gone &&
            [ "$(grep -cE '^train: rank [02]: rank 1 \(host lab-0, process [0-9]+\) (is lost|has not answered)' "$work/err")" = 2 ]
        result $? "one machine, $collectives, SIG$signal: the same"
    done
done

over_hosts 4 --checkpoint "$work/run" --checkpoint-every 20 --resume >"$work/out" 2>"$work/err"
status=$?
[ $status = 0 ] && grep -q '^resuming from ' "$work/out" && [ "$(hash_in "$work/out")" = "$threads" ]
result $? 'started again it goes on from the last checkpoint, and ends with the weights of a run that nobody disturbed'

begin 4 --rank-timeout 2
lab_cut 1
until_is says 'train: rank 1: rank 2 (host lab-1' && until_is says 'train: rank 0: rank 2 (host lab-1'
result $? 'a host that is cut off: its first rank is named by those that are left'
kill -TERM $job 2>/dev/null # what mpirun makes of a host that does not answer is its own
for pid in $(pids_of_job); do kill -KILL "$pid" 2>/dev/null; done
wait $job
all_gone
lab_mend 1

rm -rf "$work/again" && cp -r "$work/run" "$work/again"
# shellcheck disable=SC2086
"$train" $options --ranks 3 --checkpoint "$work/again" --resume >"$work/out" 2>"$work/err"
three=$(hash_in "$work/out")
over_hosts 3 --checkpoint "$work/run" --resume >"$work/out" 2>"$work/err"
status=$?
[ $status = 0 ] && [ -n "$three" ] && [ "$three" != "$threads" ] && grep -q '^resuming from ' "$work/out" &&
    [ "$(hash_in "$work/out")" = "$three" ]
result $? 'and goes on with three ranks, as three threads do from the same checkpoint'
finish
