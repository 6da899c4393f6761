#!/bin/sh
# SPDX-License-Identifier: MIT
#
# Goal: whoever links us gets no name that is not ours: every global symbol begins with eo_.
# Method: nm on each library; a library without symbols fails.
# usage: check_symbols.sh NM LIBRARY...      or: check_symbols.sh --skip REASON
set -u
if [ "$1" = --skip ]; then
    echo "1..0 # SKIP $2"
    exit 0
fi
nm=$1
shift
count=0
for library in "$@"; do
    case $library in
    *.so*) dynamic=-D ;;
    *) dynamic= ;;
    esac
    count=$((count + 1))
    # Lines are "address type name"; the names of members and blank lines have fewer words.
    # shellcheck disable=SC2086 # $dynamic is one word or none
    names=$($nm $dynamic --extern-only --defined-only "$library" 2>/dev/null | awk 'NF == 3 { print $3 }' | sort -u)
    bad=$(printf '%s\n' "$names" | grep -v '^eo_')
    name=${library##*/}
    if [ -z "$names" ]; then
        echo "not ok $count - $name has symbols"
    elif [ -n "$bad" ]; then
        printf '%s\n' "$bad" | sed 's/^/# /'
        echo "not ok $count - all symbols of $name begin with eo_"
    else
        echo "ok $count - all $(printf '%s\n' "$names" | wc -l) symbols of $name begin with eo_"
    fi
done
[ $count != 0 ] || { echo 'not ok 1 - there is a library to look at'; count=1; }
echo "1..$count"
