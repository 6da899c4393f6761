#!/bin/sh
# SPDX-License-Identifier: MIT
#
# Goal: the house holds. A folder includes what stands below it and nothing above; layers and tools are clients.
# Method: every #include line of a folder that names a header of ours is held against what that folder may see.
# usage: tests/house/includes.sh SOURCE
set -u
. "$(dirname "$0")/../tap/tap.sh"
source=$1
show() { printf '%s\n' "$bad"; }

# Headers of ours are those in quotes, and those in angle brackets that begin with a folder of ours.
ours='^[^:]*:[0-9]*:[[:space:]]*#[[:space:]]*include[[:space:]]*("|<(evenodd|base|streams|buffers|runtime|cluster|layers|tools|tests|eo_config))'

check() # FOLDER ALLOWED: an extended expression for the beginning of the name
{
    files=$(find "$source/$1" -type f \( -name '*.c' -o -name '*.h' -o -name '*.cu' -o -name '*.cuh' -o -name '*.inc' -o -name '*.cpp' \) 2>/dev/null | wc -l)
    lines=$(cd "$source" 2>/dev/null && grep -rnE --include='*.[ch]' --include='*.cpp' --include='*.cu' --include='*.cuh' --include='*.inc' '#[[:space:]]*include' "$1" 2>/dev/null |
        grep -E "$ours")
    bad=$(printf '%s' "$lines" | grep -vE "include[[:space:]]*[<\"]($2)")
    if [ "$files" = 0 ] || [ -z "$lines" ]; then
        result 1 "$1 has sources with includes to look at"
    else
        [ -z "$bad" ]
        result $? "$1 includes only what stands below it ($(printf '%s\n' "$lines" | wc -l) lines)"
    fi
}

# A room may see itself, what the line names, and nothing else of ours. A folder with rooms is checked as a whole, too.
low='eo_config\.h|evenodd/(common|status|log)\.h|base/'
device="$low|streams/(device|bf16|gate|state8|sum_order)\.h"
planner="$low|buffers/|streams/(device|state8)\.h|evenodd/"
check include             'evenodd/'
check base                "$low"
check streams             "$low|streams/"
check streams/cpu         "$device|streams/cpu/"
check streams/cuda        "$device|streams/(cuda/|cpu/(affinity|available)\.h|nccl/calls\.h|trace/(cupti|nvtx)\.h)"
check streams/local       "$device|streams/(collective|exchange|fabric|patience|transports)\.h|streams/(cpu/|cuda/(state|collective_kernels)\.h|local/)"
check streams/shared      "$device|streams/(collective|patience|exchange|transports)\.h|streams/(cpu|local|shared)/"
check streams/mpi         "$device|streams/(collective|patience|exchange|transports)\.h|streams/(cpu|mpi)/"
check streams/nccl        "$device|streams/(collective|patience|exchange|transports)\.h|streams/(cuda/state\.h|nccl/)"
check streams/trace       "$device|streams/trace/"
check buffers             "$low|streams/device\.h|buffers/"
check cluster             "$low|cluster/|evenodd/cluster\.h"
check runtime             "$low|streams/|buffers/|runtime/|evenodd/"
check runtime/plan        "$planner|runtime/plan/"
check runtime/flight      "$planner|streams/trace/|runtime/(plan|flight)/"
check runtime/world       "$planner|streams/|runtime/world/"
check runtime/static      "$planner|streams/|runtime/(internal\.h|plan/|static/)"
check runtime/dynamic     "$planner|streams/|runtime/(internal\.h|plan/|dynamic/)"
check runtime/checkpoint  "$planner|streams/|runtime/(internal\.h|plan/|checkpoint/)"
# Six headers of base/ for the layers, and four for the programs: all of it is inline, so a shared library hides nothing of it.
layer='evenodd/|base/(library|float8|float_mode|pause|processors|thread)\.h|layers/(kernel_ops|kernel_table|denormals|team|element|checks|split)\.h'
check layers              'evenodd/|base/(library|float8|float_mode|pause|processors|thread)\.h|layers/'
check layers/reference    "$layer|layers/reference/"
check layers/cpu          "$layer|layers/(cpu|reference)/"
check layers/cuda         "$layer|layers/cuda/"
check layers/transformer  "$layer|layers/transformer/"
client='evenodd/|base/(json_writer|plain_text|processors|thread)\.h'
check tools/shared        "$client|tools/shared/"
check tools/planning      "$client|tools/(shared|planning)/"
check tools/interchange   "$client|tools/(shared|interchange)/"
check tools/logs          "$client|tools/(shared|logs)/"
check tools/run           "$client|tools/(shared|planning|interchange|logs|run)/"
check tools/run/data      "$client|tools/shared/|tools/run/data/"
check tools/train         "$client|tools/(shared|planning|interchange|logs|run|train)/"
check tools/headtohead    "$client|tools/(shared|planning|logs|run|headtohead)/|tools/headtohead_page\.h"
check tools/memplan       "$client|tools/(shared|planning|interchange|memplan)/|tools/memplan_(page|devices)\.h"
planning="$client|tools/(shared|planning|interchange)/|tools/memplan/plan/"
check tools/memplan/plan  "$planning|tools/memplan_devices\.h"
check tools/memplan/systems "$planning|tools/memplan/systems/"
check tools/memplan/time  "$planning|tools/memplan/(systems|time)/"
check tools/memplan/estimate "$planning|tools/memplan/(systems|time|estimate)/"
check tools/memplan/search "$planning|tools/memplan/(systems|time|estimate|search)/"
check tools/memplan/published "$planning|tools/memplan/(systems|time|published)/"
check tools/memplan/report "$planning|tools/memplan/(systems|time|estimate|search|report)/"
check tools/memplan/options "$planning|tools/memplan/(systems|time|estimate|search|report|options)/"
check tools/memplan/web   "$client|tools/(shared|planning|interchange|memplan)/"
check tools/checkpoint    "$client|tools/(shared|interchange)/|tools/run/checkpoint/checkpoint\.h"
check tools/launch        "$client|tools/(shared|launch)/"
check tools/postmortem    "$client|tools/shared/"
check examples            'evenodd/|(idx|network|\.\./update_rules)\.h'
check tests/install/embed 'evenodd/|embed'
finish
