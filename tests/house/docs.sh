#!/bin/sh
# SPDX-License-Identifier: MIT
#
# Goal: the documents do not drift from the headers.
# Method: the C blocks of docs/embedding.md, one after the other, and README's example are compiled with warnings as
# errors; README's example is examples/line.c, word for word; links to files of the tree must lead somewhere; a file of
# sources in backticks is the end of a path of the tree; no marks of a merge are left; what follows evenodd-checkpoint is one of its commands; the
# number of the API is the headers'.
# usage: tests/house/docs.sh SOURCE C_COMPILER
set -u
. "$(dirname "$0")/../tap/tap.sh"
source=$1 cc=$2
make_folder
shown=$work/log
echo 1..8

blocks() { awk '/^```c$/ { inside = 1; next } /^```$/ { inside = 0 } inside' "$1" 2>/dev/null; }

compiles() # FILE: it has code, and the compiler takes it. A page shows functions that it does not call.
{
    [ "$(wc -l <"$1")" -ge 10 ] || { echo 'no code found' >"$work/log"; return 1; }
    $cc -std=c11 -Wall -Wextra -Wpedantic -Wno-unused-function -Werror -fsyntax-only -I "$source/include" "$1" \
        >"$work/log" 2>&1
}

blocks "$source/docs/embedding.md" >"$work/embedding.c"
compiles "$work/embedding.c"
result $? 'the code of docs/embedding.md compiles'
blocks "$source/README.md" >"$work/readme.c"
compiles "$work/readme.c" && [ "$(wc -l <"$work/readme.c")" -le 40 ]
result $? "README's example has at most 40 lines and compiles"
sed '1,/^ \*\/$/d' "$source/examples/line.c" 2>/dev/null | diff "$work/readme.c" - >"$work/log" 2>&1 && [ -s "$work/readme.c" ]
result $? "README's example is examples/line.c"

pages=$(cd "$source" 2>/dev/null && find README.md CONTRIBUTING.md SECURITY.md CHANGELOG.md docs -name '*.md' 2>/dev/null)
links=0
: >"$work/log"
for page in $pages; do
    for link in $(grep -o '](\([^)#: ]*\)[)#]' "$source/$page" | sed 's/^](//; s/[)#]$//'); do
        links=$((links + 1))
        [ -e "$(dirname "$source/$page")/$link" ] || echo "$page: $link is not there" >>"$work/log"
    done
done
[ $links != 0 ] && [ ! -s "$work/log" ]
result $? "links between the documents lead somewhere ($links links)"

# `proof/turns.c` behind the path of a neighbour is enough; headers of C are not ours.
(cd "$source" 2>/dev/null && find . -type f -path './[a-z.]*/*' ! -path './build*' ! -path './.git/*') >"$work/files"
named=0
: >"$work/log"
for page in $pages; do
    for file in $(grep -o '`[a-z0-9][a-z0-9_./-]*\.\(c\|h\|cu\|sh\|py\|mjs\)`' "$source/$page" | tr -d '`' | grep -v '^std[a-z]*\.h$' | sort -u); do
        named=$((named + 1))
        grep -q "/$file\$" "$work/files" || echo "$page: \`$file\` is no file of the tree" >>"$work/log"
    done
done
[ $named != 0 ] && [ ! -s "$work/log" ]
result $? "files named in the documents are there ($named names)"

# shellcheck disable=SC2086 # a list of names
(cd "$source" 2>/dev/null && [ -n "$pages" ] && ! grep -nE '^(<<<<<<<|=======$|>>>>>>>)' $pages) >"$work/log" 2>&1
result $? 'no document holds the marks of a merge'

commands=" $(grep 'commands\[\] =' "$source/tools/checkpoint/main.c" 2>/dev/null | grep -o '"[a-z]*"' | tr -d '"' | tr '\n' ' ')"
# shellcheck disable=SC2086 # a list of names
named=$(cd "$source" 2>/dev/null && [ -n "$pages" ] && grep -oh 'evenodd-checkpoint [a-z][a-z]*' $pages | sed 's/.* //' | sort -u)
: >"$work/log"
for word in $named; do
    case $commands in
    *" $word "*) ;;
    *) echo "evenodd-checkpoint $word is no command; there are$commands" >>"$work/log" ;;
    esac
done
[ -n "$named" ] && [ ! -s "$work/log" ]
result $? 'commands of evenodd-checkpoint in the documents are there'

api=$(sed -n 's/^#define EO_API //p' "$source/include/evenodd/common.h" 2>/dev/null)
grep -m 1 -ho 'eo_plan_create_api[0-9]*\|API [0-9][0-9]*' "$source/docs/embedding.md" "$source/CHANGELOG.md" >"$work/log" 2>&1
[ -n "$api" ] && [ "$(sort -u "$work/log" | tr '\n' ' ')" = "API $api eo_plan_create_api$api " ]
result $? 'the changelog and docs/embedding.md name the API of the headers'
