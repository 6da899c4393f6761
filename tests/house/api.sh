#!/bin/sh
# SPDX-License-Identifier: MIT
#
# Goal: a program built against other headers does not link: each public call that creates or opens an object, or fills a struct that callers fill, bears the
# number of the API in its symbol.
# Method: a program names all these calls. Compiled with today's headers it needs symbols of the libraries alone; compiled
# with headers of another EO_API it needs none of them.
# usage: tests/house/api.sh SOURCE C_COMPILER NM LIBRARY...
set -u
source=$1 cc=$2 nm=$3
shift 3
. "$(dirname "$0")/../tap/tap.sh"
make_folder
shown=$work/log
echo 1..3

mkdir "$work/today"
cp -R "$source/include/evenodd" "$work/today/" 2>/dev/null
case $* in
*layers*) ;;
*) rm -f "$work/today/evenodd/layers.h" ;;
esac
cp -R "$work/today" "$work/other"
sed -i 's/^#define EO_API .*/#define EO_API 4711/' "$work/other/evenodd/common.h"

calls=$(cat "$work"/today/evenodd/*.h | sed -n 's/^EO_EXPORT.*[ *]\(eo_[a-z0-9_]*_\(create\|open\)\(_[a-z]*\)\{0,1\}\)(.*/\1/p
s/^EO_EXPORT.*[ *]\(eo_transformer_preset\)(.*/\1/p')
{
    (cd "$work/today" && printf '#include <%s>\n' evenodd/*.h)
    echo 'typedef void (*call)(void);'
    echo 'extern const call calls[];'
    echo "const call calls[] = {$(printf '(call)%s, ' $calls)};"
} >"$work/calls.c"

for library in "$@"; do
    case $library in
    *.so*) $nm -D --defined-only "$library" ;;
    *) $nm --extern-only --defined-only "$library" ;;
    esac
done 2>/dev/null | awk 'NF == 3 { print $3 }' | sort -u >"$work/defined"

needs() # HEADERS: the program's symbols
{
    $cc -std=c11 -c -I "$work/$1" -o "$work/$1.o" "$work/calls.c" >"$work/log" 2>&1 &&
        $nm -u "$work/$1.o" | awk '$2 ~ /^eo_/ { print $2 }' | sort -u >"$work/$1.needs" && [ -s "$work/$1.needs" ]
}

[ "$(printf '%s\n' "$calls" | grep -c .)" -ge 10 ] && needs today && needs other
result $? "$(printf '%s\n' "$calls" | grep -c .) calls create or open an object"
comm -23 "$work/today.needs" "$work/defined" >"$work/log" 2>&1 && [ -s "$work/today.needs" ] && [ ! -s "$work/log" ]
result $? 'a program of these headers finds them'
comm -12 "$work/other.needs" "$work/defined" >"$work/log" 2>&1 && [ -s "$work/other.needs" ] && [ ! -s "$work/log" ]
result $? 'a program of other headers finds none of them'
