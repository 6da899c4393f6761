# SPDX-License-Identifier: MIT
# shellcheck shell=sh
#
# For tests that are scripts, which source it before they go elsewhere: lines of TAP.
#
#     shown='out err'       files that tell more where something does not hold
#     result STATUS TEXT    what holds where STATUS is 0; else the files' last lines come before it
#     skip TEXT REASON
#     finish                the plan
count=0 shown=

result()
{
    count=$((count + 1))
    if [ "$1" = 0 ]; then
        echo "ok $count - $2"
        return
    fi
    for shown_file in $shown; do
        [ ! -f "$shown_file" ] || tail -n 60 "$shown_file" | sed 's/^/# /'
    done
    echo "not ok $count - $2"
}

skip() { count=$((count + 1)); echo "ok $count - $1 # SKIP $2"; }

finish() { echo "1..$count"; }
