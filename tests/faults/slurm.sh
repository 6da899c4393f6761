#!/bin/sh
# SPDX-License-Identifier: MIT
#
# Goal: under Slurm ranks train on one node and over two to the bits of threads; a rank that is lost is named, the step ends
# with nothing left; a batch script goes on from the last checkpoint, by requeue or by itself, also with fewer tasks.
# Method: a cluster of Slurm's own daemons on hosts of lab.sh, with a key and a configuration of this test.
# usage: slurm.sh TRAIN SOURCE
set -u
here=$(dirname -- "$0")
train=$(realpath "$1") text=$(realpath "$2")/LICENSE
for program in slurmctld slurmd srun sbatch scontrol munged; do
    PATH=$PATH:/usr/sbin command -v $program >/dev/null 2>&1 ||
        { echo "1..0 # SKIP there is no $program (slurmctld, slurmd, slurm-client, munge)"; exit 0; }
done
export PATH="$PATH:/usr/sbin"
. "$here/lab.sh"
lab_open 2
options="--model 2x32x2 --seq 16 --batch 1 --threads 1 --peak-seconds 0 --sample 0 --text $text --steps 300"

# --- the cluster
head -c 1024 /dev/urandom >"$work/munge.key"
chmod 400 "$work/munge.key"
mkdir "$work/state" "$work/spool-lab-0" "$work/spool-lab-1" "$work/tmp-lab-0" "$work/tmp-lab-1"
# Hosts share the files of this machine, so what Slurm keeps a node in has the node's name (%n).
cat >"$work/slurm.conf" <<END
ClusterName=lab
SlurmctldHost=lab-0
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=cred_expire=5,socket=$work/munge.socket
StateSaveLocation=$work/state
SlurmdSpoolDir=$work/spool-%n
TmpFS=$work/tmp-%n
SlurmctldPidFile=$work/slurmctld.pid
SlurmdPidFile=$work/slurmd-%n.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SlurmdParameters=config_overrides
ReturnToService=2
NodeName=lab-0,lab-1 CPUs=4 State=UNKNOWN
PartitionName=all Nodes=lab-0,lab-1 Default=YES MaxTime=INFINITE State=UP
END
echo 'CgroupPlugin=cgroup/v1' >"$work/cgroup.conf" # not used: only so that none is looked for
export SLURM_CONF="$work/slurm.conf"
munged --force --foreground --key-file="$work/munge.key" --socket="$work/munge.socket" --pid-file="$work/munged.pid" \
    --seed-file="$work/munged.seed" >"$work/daemons" 2>&1 &
daemons="$daemons $!"
until_is test -S "$work/munge.socket"
"$work/host" 0 slurmctld -D >>"$work/daemons" 2>&1 &
daemons="$daemons $!"
for n in 0 1; do
    "$work/host" $n slurmd -D -N lab-$n >>"$work/daemons" 2>&1 &
    daemons="$daemons $!"
done
two_idle() { [ "$("$work/host" 0 sinfo -h -N -o %t 2>/dev/null | grep -c idle)" = 2 ]; }
if ! until_is two_idle; then
    sed 's/^/# /' "$work/daemons"
    echo "not ok 1 - Slurm's daemons run"
    echo '1..1'
    exit 1
fi

in_job() { EVENODD_TOKEN_FILE=$work/token "$work/host" 0 timeout 200 "$@" </dev/null >"$work/out" 2>"$work/err"; }
two_nodes='--nodes=2 --ntasks-per-node=2 --mpi=pmix'

# --- steps
# shellcheck disable=SC2086 # lists of options, here and below
"$train" $options --ranks 4 >"$work/out" 2>"$work/err"
threads=$(hash_in "$work/out")
[ -n "$threads" ]
result $? 'four ranks that are threads train'

# shellcheck disable=SC2086
in_job srun --nodes=1 --ntasks=4 "$train" $options
[ $? = 0 ] && grep -qx 'world: 4 processes on one machine by Slurm, collectives shared' "$work/out" &&
    [ "$(hash_in "$work/out")" = "$threads" ]
result $? 'srun, one node: shared, and the same weights'

# shellcheck disable=SC2086
in_job srun $two_nodes "$train" $options
[ $? = 0 ] && grep -qx 'world: 4 processes on several machines by Slurm, collectives mpi' "$work/out" &&
    [ "$(hash_in "$work/out")" = "$threads" ]
result $? 'srun, two nodes: mpi, and the same weights'

# shellcheck disable=SC2086
in_job srun --mpi=none --nodes=2 --ntasks-per-node=2 "$train" $options
[ $? = 2 ] && says 'start them with its mpirun or with srun --mpi=pmix'
result $? 'two nodes without PMIx are refused, and told what is missing'

for signal in KILL STOP; do
    : >"$work/out" # has_saved looks at it
    # shellcheck disable=SC2086
    in_job srun $two_nodes --kill-on-bad-exit=1 "$train" $options --rank-timeout 2 \
        --checkpoint "$work/run-$signal" --checkpoint-every 20 &
    job=$!
    until_is has_saved
    kill -$signal "$(pid_of_rank 2)"
    wait $job
    status=$?
    [ $status -ge 3 ] && all_gone &&
        [ "$(grep -cE '^train: rank [013]: rank 2 \(host lab-1, process [0-9]+\) (is lost|has not answered)' "$work/err")" = 3 ]
    result $? "SIG$signal: all others say which rank of which node, srun ends with status 3 or that of the signal, nothing is left"
done

# --- batch scripts
# batch NAME TEXT: `go` in it is the step; its folder is $work/NAME
batch()
{
    mkdir "$work/$1"
    {
        printf '#!/bin/sh\n#SBATCH --nodes=2 --ntasks-per-node=2 --requeue --open-mode=append\n'
        printf 'go() { srun --mpi=pmix --kill-on-bad-exit=1 "$@" %s %s ' "$train" "$options"
        printf -- '--checkpoint run --checkpoint-every 20 --resume; }\n%s\n' "$2"
    } >"$work/$1/job"
    : >"$work/out"
    id=$(cd "$work/$1" && EVENODD_TOKEN_FILE=$work/token "$work/host" 0 sbatch --parsable -o "$work/out" -e "$work/err" job)
}
job_says() { "$work/host" 0 scontrol show job -o "$id" | grep -qE "$1"; }
lose_rank() { until_is has_saved && kill -KILL "$(pid_of_rank 1)"; }

batch requeue '
go
status=$?
case $status in
0 | 2) exit $status ;; # done; refused, and would be again
esac
[ "${SLURM_RESTART_COUNT:-0}" -lt 3 ] && scontrol requeue "$SLURM_JOB_ID"
exit $status'
lose_rank && until_is job_says 'JobState=(COMPLETED|FAILED)' && job_says 'JobState=COMPLETED .* Restarts=1 ' &&
    says 'rank 1 (host lab-0' && grep -q '^resuming from run/step-' "$work/out" && [ "$(hash_in "$work/out")" = "$threads" ]
result $? 'a batch script that requeues its job: it goes on from the last checkpoint to the weights of an undisturbed run'

batch alone 'go'
lose_rank && until_is job_says 'JobState=(COMPLETED|FAILED)' && job_says 'JobState=FAILED .* Restarts=0 '
result $? '#SBATCH --requeue alone starts nothing again when a rank is lost: that is for nodes that fail'

batch itself '
go || { cp -r run again; go --nodes=2 --ntasks=3 --ntasks-per-node=2; }'
lose_rank && until_is job_says 'JobState=(COMPLETED|FAILED)' && job_says 'JobState=COMPLETED .* Restarts=0 ' &&
    resumed=$(hash_in "$work/out") && cp "$work/out" "$work/kept" &&
    "$train" $options --ranks 3 --checkpoint "$work/itself/again" --resume >"$work/out" 2>>"$work/err" &&
    [ -n "$resumed" ] && [ "$resumed" != "$threads" ] && [ "$resumed" = "$(hash_in "$work/out")" ]
result $? 'a script that starts the step again with three tasks: it goes on as three threads do from the same checkpoint'
all_gone
result $? 'nothing is left'
finish
