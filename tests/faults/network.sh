#!/bin/sh
# SPDX-License-Identifier: MIT
#
# Goal: what happens to a network happens to no job silently: a cable that is pulled and a half-open connection are a lost
# rank, named on both sides of the cut; a slow link is none.
# Method: three ranks in network namespaces of their own, joined by pairs of virtual cables; needs root, else it is skipped.
# usage: network.sh MEMBER
set -u
member=$1
name=eo$$
. "$(dirname "$0")/../tap/tap.sh"
work=$(mktemp -d)

clean()
{
    for pid in ${pids:-}; do
        kill -KILL "$pid" 2>/dev/null
    done
    for r in 0 1 2; do
        ip netns del $name-$r 2>/dev/null
    done
    rm -rf "$work"
}
trap clean EXIT

for r in 0 1 2; do
    if ! ip netns add $name-$r 2>"$work/why"; then
        skip_all "no network namespaces: $(head -n 1 "$work/why") (needs root and iproute2)"
    fi
    ip -n $name-$r link set lo up
done
ip -n $name-0 addr add 10.77.0.1/32 dev lo
for r in 1 2; do
    if ! ip -n $name-0 link add to$r type veth peer name cable netns $name-$r 2>"$work/why"; then
        skip_all "no virtual cables: $(head -n 1 "$work/why")"
    fi
    ip -n $name-0 addr add 10.77.$r.1/24 dev to$r
    ip -n $name-0 link set to$r up
    ip -n $name-$r addr add 10.77.$r.2/24 dev cable
    ip -n $name-$r link set cable up
    ip -n $name-$r route add 10.77.0.1 via 10.77.$r.1
done

show() { for r in 0 1 2; do sed "s/^/$r: /" "$work/$r"; done; }

# until_says RANKS TEXT: waits until each of them has said it.
until_says()
{
    for r in $1; do
        tries=0
        until grep -q -- "$2" "$work/$r" 2>/dev/null; do
            tries=$((tries + 1))
            [ $tries -lt 3000 ] || return 1
            sleep 0.02
        done
    done
}

start() # SILENCE_MS
{
    pids=
    for r in 0 1 2; do
        : >"$work/$r"
        ip netns exec $name-$r "$member" $r 3 10.77.0.1 29500 "$1" >>"$work/$r" 2>&1 &
        pids="$pids $!"
        eval "pid_$r=$!"
    done
    until_says '0 1 2' exchanged
}

# A cable that is pulled: the root loses rank 2 and says so to rank 1; rank 2 loses the root.
start 3000 && ip -n $name-0 link set to2 down && until_says '0 1' 'told: rank 2 (host host-2, process' &&
    until_says 2 'told: rank 0 (host host-0, process' && grep -q 'has not answered for 3.0 s' "$work/1"
result $? 'a cable that is pulled: both sides name who is lost, and so does a rank that saw nothing of it'
wait
ip -n $name-0 link set to2 up
ip -n $name-2 route replace 10.77.0.1 via 10.77.2.1

# Half-open: rank 2 ends while its cable is out, so no word of it leaves.
start 3000 && ip -n $name-2 link set cable down && kill -KILL "$pid_2" && until_says '0 1' 'told: rank 2 (host host-2'
result $? 'a half-open connection: a rank that ends behind a pulled cable is named by all others'
wait
ip -n $name-2 link set cable up
ip -n $name-2 route replace 10.77.0.1 via 10.77.2.1

# Back in time: half the silence is no loss.
start 8000 && ip -n $name-0 link set to2 down && sleep 1 && ip -n $name-0 link set to2 up &&
    ip -n $name-2 route replace 10.77.0.1 via 10.77.2.1 && sleep 1 && kill -TERM "$pid_1" && until_says '0 1 2' 'ended in order'
result $? 'a cable that is out for a second only: nobody is lost'
for pid in $pids; do kill -KILL "$pid" 2>/dev/null; done
wait

if ip netns exec $name-2 tc qdisc add dev cable root netem delay 150ms rate 256kbit 2>"$work/why"; then
    start 8000 && kill -TERM "$pid_1" && until_says '0 1 2' 'ended in order'
    result $? 'a slow link (150 ms, 256 kbit/s): ranks join, exchange and leave'
    for pid in $pids; do kill -KILL "$pid" 2>/dev/null; done
    wait
elif ip netns exec $name-2 tc qdisc add dev cable root tbf rate 64kbit burst 2000 latency 500ms 2>"$work/why"; then
    start 8000 && kill -TERM "$pid_1" && until_says '0 1 2' 'ended in order'
    result $? 'a slow link (64 kbit/s): ranks join, exchange and leave'
    for pid in $pids; do kill -KILL "$pid" 2>/dev/null; done
    wait
else
    skip 'a slow link' "$(head -n 1 "$work/why")"
fi
finish
