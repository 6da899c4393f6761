# SPDX-License-Identifier: MIT
# shellcheck shell=sh
#
# For tests that are scripts, which source it before they go elsewhere: lines of TAP.
#
#     shown='out err'       files that tell more where something does not hold; or a function `show` of the script's own
#     result STATUS TEXT    what holds where STATUS is 0; else the files' last lines come before it
#     skip TEXT REASON
#     skip_all REASON       instead of all; ends the script
#     need_disk FOLDER      skip_all where it lies in memory
#     make_folder [WHERE]   $work, a folder of the script's own, in WHERE or among temporary ones; gone at its end
#     enter_folder [WHERE]  and goes there
#     finish                the plan
count=0 shown=
# The world is the script's own, whoever has started it.
unset EVENODD_RANK EVENODD_TOLD EVENODD_TOKEN EVENODD_TOKEN_FILE EVENODD_ADDRESS EVENODD_PORT MASTER_ADDR MASTER_PORT RANK WORLD_SIZE

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

need_disk()
{
    case $(stat -f -c %T "$1") in
    tmpfs | ramfs) skip_all "the folder of the build lies in memory: no disk to offload to" ;;
    esac
}

make_folder()
{
    work=$(mktemp -d ${1:+"$1/work.XXXXXX"}) || exit 1
    trap 'rm -rf "$work"' EXIT
}

enter_folder()
{
    make_folder "$@"
    cd "$work" || exit 1
}

finish() { echo "1..$count"; }
