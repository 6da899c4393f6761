# SPDX-License-Identifier: MIT
#
# A lab for tests: hosts that are namespaces of this machine. Each has a name, a network, processes and a boot of its own, so
# nothing on it can tell that the others are not elsewhere; a switch joins them. Sourced by tests; needs root.
#
#     lab_open COUNT        lab-0 at 10.78.0.1, lab-1 at 10.78.0.2, ...; where that cannot be, the test is skipped
#     "$work/host" N ...    runs a command on host N
#     lab_cut N, lab_mend N pulls its cable, and puts it back
#     pid_of_rank R         of the processes that were given this test's token (which the test itself does not export)
#     all_gone              none of these is left, nor memory of theirs (a while is given)
#
# shellcheck shell=sh
. "$(dirname "$0")/../tap/tap.sh"
work=$(mktemp -d)
name=eol$$
host_count=0
daemons= # ended with the lab

lab_close()
{
    for pid in $daemons $(pids_of_job); do
        kill -KILL "$pid" 2>/dev/null
    done
    wait 2>/dev/null
    while [ $host_count -gt 0 ]; do
        host_count=$((host_count - 1))
        ip netns del $name-$host_count 2>/dev/null
    done
    ip netns del $name 2>/dev/null
    rm -rf "$work" /dev/shm/vader_segment.lab-[0-9]*
}

make_host() # N
{
    ip netns add "$name-$1" && host_count=$(($1 + 1)) && ip -n "$name-$1" link set lo up &&
        ip -n $name link add "port$1" type veth peer name eth0 netns "$name-$1" &&
        ip -n $name link set "port$1" master switch up &&
        ip -n "$name-$1" addr add "10.78.0.$(($1 + 1))/24" dev eth0 && ip -n "$name-$1" link set eth0 up &&
        cat /proc/sys/kernel/random/uuid >"$work/boot-$1" && echo "10.78.0.$(($1 + 1)) lab-$1" >>"$work/hosts"
}

lab_open() # COUNT
{
    trap lab_close EXIT
    trap 'exit 1' HUP INT PIPE TERM
    echo '127.0.0.1 localhost' >"$work/hosts"
    cat >"$work/host" <<END
#!/bin/sh
n=\$1
shift
exec ip netns exec $name-\$n unshare --uts --pid --fork --kill-child --mount --mount-proc sh -c '
    hostname lab-'\$n' && mount --bind $work/boot-'\$n' /proc/sys/kernel/random/boot_id &&
    mount --bind $work/hosts /etc/hosts && { "\$@" & wait \$!; }' sh "\$@"
END
    chmod 755 "$work/host"
    { ip netns add $name && ip -n $name link add switch type bridge && ip -n $name link set switch up; } 2>"$work/why" ||
        skip_all "no network namespaces: $(head -n 1 "$work/why") (needs root and iproute2)"
    while [ $host_count -lt "$1" ]; do
        make_host $host_count 2>"$work/why" || skip_all "no virtual cables: $(head -n 1 "$work/why")"
    done
    "$work/host" 0 true 2>"$work/why" || skip_all "no namespaces for hosts: $(head -n 1 "$work/why")"
    (umask 077 && od -An -tx1 -N32 /dev/urandom | tr -d ' \n' >"$work/token")
}

lab_cut() { ip -n $name link set "port$1" down; }
lab_mend() { ip -n $name link set "port$1" up; }

pids_of_job() { grep -lsaF "EVENODD_TOKEN_FILE=$work/token" /proc/[0-9]*/environ | tr -dc '0-9\n'; }

pid_of_rank() # R
{
    for pid in $(pids_of_job); do
        [ "$(cat "/proc/$pid/comm" 2>/dev/null)" = "${train##*/}" ] || continue
        tr '\0' '\n' <"/proc/$pid/environ" 2>/dev/null | grep -qxE "(OMPI_COMM_WORLD_RANK|SLURM_PROCID|RANK)=$1" && echo "$pid"
    done | head -n 1
}

# until_is COMMAND...: waits until it succeeds; a minute at most.
until_is()
{
    tries=0
    until "$@"; do
        tries=$((tries + 1))
        [ $tries -lt 1200 ] || return 1
        sleep 0.05
    done
}

# MPI's segments bear the host's name. Those of Open MPI's vader remain where srun kills ranks, and where mpirun crashes after
# a failure (docs/clusters.md).
no_job() { [ -z "$(pids_of_job)" ] && ! ls /dev/shm | grep "lab-[0-9]" | grep -qv '^vader_segment'; }
all_gone() { until_is no_job; }
has_saved() { grep -qE '[0-9] +saved: ' "$work/out"; }

show() { { tail -n 20 "$work/out"; cat "$work/err"; } | tr '\r' '\n'; }

# run COMMAND...: output in $work/out and $work/err, its status in $status
run()
{
    timeout 200 "$@" >"$work/out" 2>"$work/err" </dev/null
    status=$?
}

hash_in() { sed -n 's/^weights_hash \([0-9a-f]*\),.*/\1/p' "$1" | tail -n 1; } # FILE
says() { grep -qF -- "$1" "$work/err"; }
says_that() { grep -qE -- "$1" "$work/err"; }
