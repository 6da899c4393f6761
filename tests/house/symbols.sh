#!/bin/sh
# SPDX-License-Identifier: MIT
#
# Goal: no library brings names of others: every global symbol begins with the prefix of its kind, eo_ or tool_.
# Method: nm on each library; a library without symbols fails.
# usage: tests/house/symbols.sh NM PREFIX=LIBRARY...      or: tests/house/symbols.sh --skip REASON
set -u
. "$(dirname "$0")/../tap/tap.sh"
[ "$1" != --skip ] || skip_all "$2"
nm=$1
shift
show() { printf '%s\n' "$bad"; }

for word in "$@"; do
    prefix=${word%%=*} library=${word#*=}
    case $library in
    *.so*) dynamic=-D ;;
    *) dynamic= ;;
    esac
    # Lines are "address type name"; the names of members and blank lines have fewer words.
    # shellcheck disable=SC2086 # $dynamic is one word or none
    names=$($nm $dynamic --extern-only --defined-only "$library" 2>/dev/null | awk 'NF == 3 { print $3 }' | sort -u)
    bad=$(printf '%s\n' "$names" | grep -v "^$prefix")
    name=${library##*/}
    if [ -z "$names" ]; then
        result 1 "$name has symbols"
    else
        [ -z "$bad" ]
        result $? "all $(printf '%s\n' "$names" | wc -l) symbols of $name begin with $prefix"
    fi
done
[ $count != 0 ] || result 1 'there is a library to look at'
finish
