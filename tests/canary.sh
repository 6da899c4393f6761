#!/bin/sh
# SPDX-License-Identifier: MIT
#
# Goal: the checks can fail, each for the reason it is there for.
# Method: a check is run on something that it must refuse. If it refuses with the expected line, this script fails,
# which meson expects (should_fail); if not, it succeeds, which meson reports as an unexpected pass.
# usage: canary.sh KIND SOURCE C_COMPILER NM
set -u
kind=$1 source=$2 cc=$3 nm=$4
here=$source/tests
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT

refuses() # EXPECTED_LINE SCRIPT [ARGS]: the line is a basic expression
{
    expected=$1
    shift
    if sh "$@" 2>&1 | grep "^$expected"; then
        exit 1
    fi
    echo "$kind got through: no line '$expected'"
    exit 0
}

house() # a copy of the sources, to be spoilt
{
    for folder in base streams buffers runtime cluster layers tools include tests .ci; do
        cp -R "$source/$folder" "$work/"
    done
    cp "$source/meson.build" "$source/meson_options.txt" "$work/"
}

case $kind in
headers-of-nothing) refuses 'not ok 1 - there are public headers' "$here/headers/check_headers.sh" "$work" "$cc" none ;;
header-that-needs-another)
    mkdir -p "$work/include/evenodd"
    printf '#ifndef EVENODD_A_H\n#define EVENODD_A_H\nuint32_t eo_a(void);\n#endif\n' >"$work/include/evenodd/a.h"
    refuses 'not ok [0-9]* - evenodd/a.h alone in c11' "$here/headers/check_headers.sh" "$work" "$cc" none
    ;;
includes-of-nothing) refuses 'not ok [0-9]* - base has sources' "$here/check_includes.sh" "$work" ;;
include-that-runs-up)
    house
    printf '#include "runtime/schedule.h"\n' >>"$work/base/check.c"
    refuses 'not ok [0-9]* - base includes only' "$here/check_includes.sh" "$work"
    ;;
include-past-the-public-headers)
    house
    printf '#include <base/check.h>\n' >"$work/layers/a.c"
    refuses 'not ok [0-9]* - layers includes only' "$here/check_includes.sh" "$work"
    ;;
symbols-of-nothing)
    ar rc "$work/libnothing.a"
    refuses 'not ok 1 - libnothing.a has symbols' "$here/check_symbols.sh" "$nm" "$work/libnothing.a"
    ;;
symbol-without-prefix)
    printf 'int eo_a(void) { return 0; }\nint helper(void) { return 0; }\n' >"$work/a.c"
    $cc -c -o "$work/a.o" "$work/a.c" && ar rc "$work/liba.a" "$work/a.o"
    refuses 'not ok 1 - all symbols of liba.a' "$here/check_symbols.sh" "$nm" "$work/liba.a"
    ;;
sources-of-nothing) refuses 'not ok 1 - .*nothing to look at' "$here/check_sources.sh" "$work" ;;
source-without-licence)
    house
    echo 'int eo_a;' >"$work/base/a.c"
    refuses 'not ok [0-9]* - every source names its licence' "$here/check_sources.sh" "$work"
    ;;
library-that-prints)
    house
    printf '/* SPDX-License-Identifier: MIT */\nvoid eo_a(void) { printf("a"); }\n' >"$work/buffers/a.c"
    refuses 'not ok [0-9]* - the library never prints' "$here/check_sources.sh" "$work"
    ;;
documents-of-nothing) refuses 'not ok [0-9]* - the code of docs' "$here/check_docs.sh" "$work" "$cc" ;;
document-that-is-outdated)
    mkdir "$work/docs"
    cp -R "$source/include" "$work/"
    sed 's/eo_step_begin/eo_step_start/' "$source/docs/embedding.md" >"$work/docs/embedding.md"
    refuses 'not ok [0-9]* - the code of docs' "$here/check_docs.sh" "$work" "$cc"
    ;;
names-that-are-twice)
    house
    cp "$work/base/check.h" "$work/streams/check.h"
    refuses 'not ok [0-9]* - file names are unique' "$here/check_sources.sh" "$work"
    ;;
*) echo "there is no canary '$kind'" ;;
esac
