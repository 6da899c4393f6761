#!/bin/sh
# SPDX-License-Identifier: MIT
#
# Goal: a checkpoint that is written from where state lies has the bytes of its step, however slow its disk is; and nobody is
#       lost who waits for that disk.
# Method: a preloaded library whose first write to a file takes long, while steps go on that would change what is not written
#         yet. Files are compared with those of a run with everything in memory.
# usage: in_place.sh LAUNCH TRAIN SLOW_DISK SOURCE SIM_TRAIN|none
set -u
. "$(dirname "$0")/../tap/tap.sh"
launch=$(realpath "$1") train=$(realpath "$2") slow_disk=$(realpath "$3") text=$(realpath "$4")/LICENSE simulated=$5
folder=$PWD
[ "$simulated" = none ] || simulated=$(realpath "$simulated")
shown='err out'
enter_folder "$folder"
export SLOW_FILE=.new/rank-
export ASAN_OPTIONS="${ASAN_OPTIONS:-}:verify_asan_link_order=0"
options="--model 3x64x2 --seq 16 --batch 1 --threads 1 --peak-seconds 0 --sample 0 --text $text --steps 7 --schedule constant"

# has_bytes SAVED WANTED: of step 3, the first that is saved, and of the last
has_bytes() { diff -r "$1/step-000000000003" "$2/step-000000000003" && diff -r "$1/step-000000000007" "$2/step-000000000007"; }

# saves FOLDER COMMAND...: all its checkpoints, the first of them slowly
saves()
{
    saved=$1
    shift
    SLOW_DISK_MS=800 LD_PRELOAD=$slow_disk timeout 120 "$@" --checkpoint "$saved" --checkpoint-every 3 >out 2>err &&
        grep -q 'slow disk: pwrite' err
}

case $(stat -f -c %T .) in
tmpfs | ramfs) skip 'offloaded to a disk' 'the folder of the build lies in memory: no disk to offload to' ;;
*)
    for way in '--ranks 2 --dtype bf16' '--ranks 2 --strategy ddp' '--ranks 1 --dtype bf16 --late-updates'; do
        rm -rf memory saved
        # shellcheck disable=SC2086 # lists of options, here and below
        timeout 120 "$train" ${way% --late-updates} $options --checkpoint memory --checkpoint-every 3 >out 2>err &&
            saves saved "$train" $way $options --offload-layers all --rank-timeout 0.5 && has_bytes saved memory >>err
        result $? "on a disk, $way: the bytes of its step, though the disk takes longer than a lost rank may"
    done
    # Of ddp rank 0 writes all. The other has done at once, and waits in collectives.
    rm -rf memory saved
    timeout 120 "$train" --ranks 2 --strategy ddp $options --checkpoint memory --checkpoint-every 3 >out 2>err &&
        timeout 120 "$launch" -n 2 sh -c "[ \$EVENODD_RANK = 0 ] && export SLOW_DISK_MS=1700 LD_PRELOAD=$slow_disk; exec \"\$@\"" x \
            "$train" --strategy ddp $options --offload-layers all --rank-timeout 1 --checkpoint saved --checkpoint-every 3 >out 2>err &&
        grep -q 'slow disk: pwrite' err && has_bytes saved memory >>err
    result $? 'a process that waits for the disk of another for longer than for a lost one'
    ;;
esac

if [ "$simulated" = none ]; then
    skip 'offloaded to the memory of a host' 'this build has no CUDA'
else
    cuda="--device cuda --ranks 2 --dtype bf16"
    rm -rf memory saved
    # shellcheck disable=SC2086
    timeout 120 "$simulated" $cuda $options --checkpoint memory --checkpoint-every 3 >out 2>err
    result $? 'a run with everything on the simulated GPU'
    copied() { sed -n 's/^checkpoints in .* \([0-9.]*\) MiB a rank in host memory.*/\1/p' out; }
    whole=$(copied)
    while IFS='|' read -r way; do
        rm -rf saved
        # shellcheck disable=SC2086
        saves saved "$simulated" $cuda $options $way --checkpoint-in-place --rank-timeout 0.5 &&
            grep -q 'is written from where it lies' out && has_bytes saved memory >>err &&
            awk "BEGIN { exit !(0 < $(copied) && $(copied) < $whole) }"
        result $? "in host memory, $way: the bytes of its step, by a copy of $(copied) MiB, not $whole"
    done <<'END'
--graph on --offload-layers all
--graph on --offload-layers 2
--graph off --offload-layers all
--graph on --offload-layers all --late-updates --offload-gradients
END
    # Four fifths of the host's memory have room for what is offloaded, 0.9 MiB for each of two ranks, or not for that.
    for kib in 4000:in_place 2000:refused; do
        rm -rf saved
        echo "MemAvailable: ${kib%:*} kB" >meminfo
        # shellcheck disable=SC2086
        MEMINFO=meminfo LD_PRELOAD=$slow_disk timeout 120 "$simulated" $cuda $options --offload-layers all --checkpoint saved \
            --checkpoint-every 3 >out 2>err
        status=$?
        case ${kib#*:} in
        in_place) [ $status = 0 ] && grep -q 'is written from where it lies' out && has_bytes saved memory >>err ;;
        refused) [ $status != 0 ] && grep -q "the host's memory has no room for what is offloaded: .* of which at most 80 % are pinned" err ;;
        esac
        result $? "a host with ${kib%:*} KiB: ${kib#*:}"
    done
fi
finish
