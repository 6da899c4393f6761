#!/bin/sh
# SPDX-License-Identifier: MIT
#
# Goal: the house holds. A folder includes what stands below it and nothing above; layers and tools are clients.
# Method: every #include line of a folder that names a header of ours is held against what that folder may see.
# usage: check_includes.sh SOURCE
set -u
source=$1
count=0

# Headers of ours are those in quotes, and those in angle brackets that begin with a folder of ours.
ours='^[^:]*:[0-9]*:[[:space:]]*#[[:space:]]*include[[:space:]]*("|<(evenodd|base|streams|buffers|runtime|cluster|layers|tools|tests|eo_config))'

check() # FOLDER ALLOWED: an extended expression for the beginning of the name
{
    count=$((count + 1))
    files=$(find "$source/$1" -type f \( -name '*.c' -o -name '*.h' -o -name '*.cu' -o -name '*.cuh' -o -name '*.inc' \) 2>/dev/null | wc -l)
    lines=$(cd "$source" 2>/dev/null && grep -rnE --include='*.[ch]' --include='*.cu' --include='*.cuh' --include='*.inc' '#[[:space:]]*include' "$1" 2>/dev/null |
        grep -E "$ours")
    bad=$(printf '%s' "$lines" | grep -vE "include[[:space:]]*[<\"]($2)")
    if [ "$files" = 0 ] || [ -z "$lines" ]; then
        echo "not ok $count - $1 has sources with includes to look at"
    elif [ -n "$bad" ]; then
        printf '%s\n' "$bad" | sed 's/^/# /'
        echo "not ok $count - $1 includes only what stands below it"
    else
        echo "ok $count - $1 includes only what stands below it ($(printf '%s\n' "$lines" | wc -l) lines)"
    fi
}

low='eo_config\.h|evenodd/(common|status|log)\.h|base/'
check include         'evenodd/'
check base            "$low"
check streams         "$low|streams/"
check buffers         "$low|streams/|buffers/"
check cluster         "$low|cluster/|evenodd/cluster\.h"
check runtime         "$low|streams/|buffers/|runtime/|evenodd/"
check layers          'evenodd/|layers/'
check tools           'evenodd/|tools/'
check tests/embed     'evenodd/|embed'
echo "1..$count"
