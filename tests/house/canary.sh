#!/bin/sh
# SPDX-License-Identifier: MIT
#
# Goal: the checks can fail, each for the reason it is there for.
# Method: a check is run on something that it must refuse. If it refuses with the expected line, this script fails,
# which meson expects (should_fail); if not, it succeeds, which meson reports as an unexpected pass. Status 99 is an error
# whatever is expected: the check was not even run.
# usage: canary.sh KIND SOURCE C_COMPILER NM
set -u
work='' refused=no
ended()
{
    status=$?
    rm -rf "$work"
    [ $refused = yes ] || [ $status = 0 ] || exit 99
}
trap ended EXIT
kind=$1 source=$2 cc=$3 nm=$4
here=$source/tests/house
work=$(mktemp -d) || exit

refuses() # EXPECTED_LINE SCRIPT [ARGS]: the line is a basic expression
{
    expected=$1
    shift
    if sh "$@" 2>&1 | grep "^$expected"; then
        refused=yes
        exit 1
    fi
    echo "$kind got through: no line '$expected'"
    exit 0
}

house() # a copy of the sources, to be spoilt
{
    for folder in base streams buffers runtime cluster layers tools include tests examples .ci; do
        cp -R "$source/$folder" "$work/"
    done
    cp "$source/meson.build" "$source/meson_options.txt" "$work/"
}

case $kind in
headers-of-nothing) refuses 'not ok 1 - there are public headers' "$here/headers.sh" "$work" "$cc" none ;;
header-that-needs-another)
    mkdir -p "$work/include/evenodd"
    printf '#ifndef EVENODD_A_H\n#define EVENODD_A_H\nuint32_t eo_a(void);\n#endif\n' >"$work/include/evenodd/a.h"
    refuses 'not ok [0-9]* - evenodd/a.h alone in c11' "$here/headers.sh" "$work" "$cc" none
    ;;
includes-of-nothing) refuses 'not ok [0-9]* - base has sources' "$here/includes.sh" "$work" ;;
include-that-runs-up)
    house
    printf '#include "runtime/plan/schedule.h"\n' >>"$work/base/check.c"
    refuses 'not ok [0-9]* - base includes only' "$here/includes.sh" "$work"
    ;;
include-past-the-public-headers)
    house
    printf '#include <base/check.h>\n' >"$work/layers/a.c"
    refuses 'not ok [0-9]* - layers includes only' "$here/includes.sh" "$work"
    ;;
symbols-of-nothing)
    ar rc "$work/libnothing.a"
    refuses 'not ok 1 - libnothing.a has symbols' "$here/symbols.sh" "$nm" "eo_=$work/libnothing.a"
    ;;
symbol-without-prefix)
    printf 'int eo_a(void) { return 0; }\nint helper(void) { return 0; }\n' >"$work/a.c"
    $cc -c -o "$work/a.o" "$work/a.c" && ar rc "$work/liba.a" "$work/a.o"
    refuses 'not ok 1 - all [0-9]* symbols of liba.a' "$here/symbols.sh" "$nm" "eo_=$work/liba.a"
    ;;
symbol-with-the-prefix-of-others)
    printf 'int tool_a(void) { return 0; }\nint eo_a(void) { return 0; }\n' >"$work/a.c"
    $cc -c -o "$work/a.o" "$work/a.c" && ar rc "$work/libtools.a" "$work/a.o"
    refuses 'not ok 1 - all [0-9]* symbols of libtools.a' "$here/symbols.sh" "$nm" "tool_=$work/libtools.a"
    ;;
api-of-nothing) refuses 'not ok 1 - 0 calls' "$here/api.sh" "$work" "$cc" "$nm" "$work/libnothing.a" ;;
call-without-api)
    cp -R "$source/include" "$work/"
    rm "$work/include/evenodd/layers.h"
    sed -i '/#define eo_plan_create/d' "$work/include/evenodd/plan.h"
    printf '#include <evenodd/evenodd.h>\neo_status eo_plan_create(eo_plan **o, const eo_model *m, const eo_plan_params *p) { return EO_OK; }\n' \
        >"$work/a.c"
    $cc -c -I "$work/include" -o "$work/a.o" "$work/a.c" && ar rc "$work/liba.a" "$work/a.o"
    refuses 'not ok 3 - a program of other headers' "$here/api.sh" "$work" "$cc" "$nm" "$work/liba.a"
    ;;
sources-of-nothing) refuses 'not ok 1 - .*nothing to look at' "$here/sources.sh" "$work" ;;
source-without-licence)
    house
    echo 'int eo_a;' >"$work/base/a.c"
    refuses 'not ok [0-9]* - every source names its licence' "$here/sources.sh" "$work"
    ;;
library-that-prints)
    house
    printf '/* SPDX-License-Identifier: MIT */\nvoid eo_a(void) { printf("a"); }\n' >"$work/buffers/a.c"
    refuses 'not ok [0-9]* - the library never prints' "$here/sources.sh" "$work"
    ;;
documents-of-nothing) refuses 'not ok [0-9]* - the code of docs' "$here/docs.sh" "$work" "$cc" ;;
document-that-is-outdated)
    mkdir "$work/docs"
    cp -R "$source/include" "$work/"
    sed 's/eo_step_begin/eo_step_start/' "$source/docs/embedding.md" >"$work/docs/embedding.md"
    refuses 'not ok [0-9]* - the code of docs' "$here/docs.sh" "$work" "$cc"
    ;;
example-that-differs)
    house
    cp -R "$source/docs" "$source"/*.md "$work/"
    sed -i 's/0.05f/0.06f/' "$work/examples/line.c"
    refuses "not ok [0-9]* - README's example is examples/line.c" "$here/docs.sh" "$work" "$cc"
    ;;
link-to-nowhere)
    house
    cp -R "$source/docs" "$source"/*.md "$work/"
    echo 'See [the place](docs/nowhere.md).' >>"$work/SECURITY.md"
    refuses '# SECURITY.md: docs/nowhere.md is not there' "$here/docs.sh" "$work" "$cc"
    ;;
file-that-has-moved)
    house
    cp -R "$source/docs" "$source"/*.md "$work/"
    sed -i 's,`tests/programs/bad_input.sh`,`tests/programs/wrong_input.sh`,' "$work/SECURITY.md"
    refuses '# SECURITY.md: `tests/programs/wrong_input.sh` is no file of the tree' "$here/docs.sh" "$work" "$cc"
    ;;
words-of-nothing) refuses 'not ok 1 - README.md has words to count' "$here/words.sh" "$work" ;;
words-of-clauses)
    sed 's/^A \|^The /That which says what the reader who came /' "$source/CONTRIBUTING.md" >"$work/CONTRIBUTING.md"
    refuses 'not ok 1 - CONTRIBUTING.md: .* open a clause' "$here/words.sh" "$work/CONTRIBUTING.md"
    ;;
readme-that-is-long)
    sed 's/^$/\n/' "$source/README.md" >"$work/README.md"
    refuses 'not ok 2 - README: ' "$here/words.sh" "$work/README.md"
    ;;
*) echo "there is no canary '$kind'" ;;
esac
