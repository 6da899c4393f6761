# SPDX-License-Identifier: MIT
# shellcheck shell=sh
#
# For tests that are scripts, which source it before they go elsewhere: lines of TAP.
#
#     shown='out err'       files that tell more where something does not hold; or a function `show` of the script's own
#     result STATUS TEXT    what holds where STATUS is 0; else the files' last lines come before it
#     skip TEXT REASON
#     skip_all REASON       instead of all; ends the script
#     finish                the plan
count=0 shown=

show()
{
    for shown_file in $shown; do
        [ ! -f "$shown_file" ] || tail -n 60 "$shown_file"
    done
}

result()
{
    count=$((count + 1))
    if [ "$1" = 0 ]; then
        echo "ok $count - $2"
    else
        show | sed 's/^/# /'
        echo "not ok $count - $2"
    fi
}

skip() { count=$((count + 1)); echo "ok $count - $1 # SKIP $2"; }

skip_all() { echo "1..0 # SKIP $*"; exit 0; }

finish() { echo "1..$count"; }
