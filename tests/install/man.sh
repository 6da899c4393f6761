#!/bin/sh
# SPDX-License-Identifier: MIT
#
# Goal: each installed program has a man page with all its options.
# Method: the pages of the build, beside --help of the program that lies beside each.
# usage: man.sh PAGE...
set -u
. "$(dirname "$0")/../tap/tap.sh"
make_folder
shown=$work/lacking

for page in "$@"; do
    name=${page##*/}
    "${page%.1}" --help | grep -oE '^ +(-[a-zA-Z], )?--[a-z0-9-]+' | sed 's/.*--/--/' | sort -u >"$work/options"
    sed 's/\\-/-/g; s/\\f[A-Z]//g' "$page" | grep -oE -e '--[a-z0-9-]+' | sort -u | comm -23 "$work/options" - >"$work/lacking"
    [ "$(wc -l <"$work/options")" -ge 3 ] && [ ! -s "$work/lacking" ] && grep -q '^\.SH SYNOPSIS' "$page" &&
        grep -A 1 '^\.SH NAME' "$page" | grep -q "^${name%.1} .* [a-z]"
    result $? "$name has a name, a synopsis and all $(wc -l <"$work/options") options"
done
[ $count = 6 ]
result $? 'six programs have one'
finish
