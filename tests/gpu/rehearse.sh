#!/bin/sh
# SPDX-License-Identifier: MIT
#
# Goal: on a machine that is lent `tools/dev gpu` runs as it is, with what travels there and nothing else.
# Method: the whole command in a copy of the tree as it would travel, with the folder that `tools/dev carry` fills, from an
#         empty folder, in an empty environment, with only those programs of the system that it may count on: no compiler,
#         no meson, no git. The programs that train are linked with the simulator in place of CUDA; those that want a GPU
#         are the real ones, and say that there is none. What rests on time is told to be not measured.
#         Limits are those of such a machine: 64 MiB of tree and folder, 8 files that come back; short ends within 540 s as
#         a command there, full takes as long as the simulator does.
# usage: rehearse.sh SOURCE BUILD REPORT [short]: short takes seconds, with the smallest models, and leaves out the
#        conformance on the simulator, which has tests of its own
#        rehearse.sh --targets: what has to be built before
set -eu

conformance='conformance_device=tests/simulator/sim_device conformance_cuda_kernels=tests/simulator/sim_cuda_kernels
    conformance_element_types=tests/programs/sim_element_types'
short_conformance='conformance_device=tests/conformance/conformance_device
    conformance_cuda_kernels=tests/conformance/conformance_cuda_kernels
    conformance_element_types=tests/conformance/conformance_element_types'
simulated='layer_gradients=tests/programs/sim_layer_gradients gpu_probe=tests/programs/sim_gpu_probe train=tests/programs/sim_train headtohead=tests/programs/sim_headtohead'
real='evenodd-launch=tools/evenodd-launch rank_share=tests/gpu/rank_share sdpa_check=tests/gpu/sdpa_check giveway=tests/gpu/giveway kernel_speed=tests/gpu/kernel_speed'
may_count_on='cat dirname env mkdir python3 rm sh sleep timeout'

if [ "${1:-}" = --targets ]; then
    for word in $conformance $short_conformance $simulated $real; do
        printf '%s\n' "${word#*=}"
    done
    exit 0
fi
source=$1 build=$2 report=$3 how=${4:-full}
minutes=60
[ "$how" = full ] || minutes=9
case $report in
/*) ;;
*) report=$(pwd -P)/$report ;;
esac
die() { printf 'tools/dev gpu --rehearse: %s\n' "$*" >&2; exit 2; }
: >>"$report" || die "cannot write $report"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM
mkdir "$work/tree" "$work/commands" "$work/empty" "$work/out" "$work/tmp"

# What travels: files that git knows or does not ignore; without git all but what is built.
if (cd "$source" && git ls-files -z --cached --others --exclude-standard --deduplicate) >"$work/files" 2>/dev/null; then
    (cd "$source" && tar --ignore-failed-read --null -T "$work/files" -cf - 2>/dev/null) | tar -xf - -C "$work/tree"
else
    (cd "$source" && tar --exclude='./build*' --exclude=./.git --exclude=./carry -cf - .) | tar -xf - -C "$work/tree"
fi
[ "$how" = full ] || conformance=$short_conformance
set --
for word in $conformance $simulated $real; do
    set -- "$@" "${word%%=*}=$build/${word#*=}"
done
# Programs with the simulator in them are larger, and travel nowhere.
EO_CARRY_MEGABYTES=80 "$source/tools/bench/carry" "$work/tree/carry" "$@"
megabytes=$(du -sm --apparent-size --exclude=carry "$work/tree" | cut -f 1)
[ "$megabytes" -le 12 ] || die "the tree has $megabytes MB, and 12 travel beside a folder of 52"
for command in $may_count_on; do
    path=$(command -v "$command") || die "there is no $command"
    [ "$command" != python3 ] || path=$(python3 -c 'import os, sys; print(os.path.realpath(sys.executable))') # it may be a script
    case $path in
    /*) ln -s "$path" "$work/commands/$command" ;; # not of those that the shell has itself
    esac
done

begun=$(date +%s)
code=0
(
    cd "$work/empty"
    exec env -i PATH="$work/commands" HOME="$work/empty" TMPDIR="$work/tmp" EO_SIM=gpus=1,mib=8192 OUT="$work/out" \
        timeout -k 5 $((minutes * 60 + 60)) sh "$work/tree/tools/dev" gpu --minutes $minutes --carry "$work/tree/carry" \
        --simulated "$how" "$work/out/report.txt"
) || code=$?
took=$(($(date +%s) - begun))
[ ! -f "$work/out/report.txt" ] || cat "$work/out/report.txt" >"$report"
[ $code = 0 ] || [ $code = 1 ] || die "status $code after $took s, and 0 or 1 is wanted"
[ $took -lt $((minutes * 60)) ] || die "it took $took s, and $minutes minutes were given"
[ "$(find "$work/out" -type f | wc -l)" -le 8 ] || die 'more than 8 files would have to come back'
[ -z "$(ls -A "$work/empty")" ] || die "it left files where it was run: $(ls -A "$work/empty")"
[ -z "$(ls -A "$work/tmp")" ] || die "it left temporary files: $(ls -A "$work/tmp")"
grep -q '^not measured ' "$report" || die 'nothing is told to be not measured, though there is no GPU'
printf 'rehearsed in %s s: %s\n' $took "$report"
exit $code
