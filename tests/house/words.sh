#!/bin/sh
# SPDX-License-Identifier: MIT
#
# Goal: documents stay easy to read: short sentences that name things by nouns.
# Method: of the words outside code blocks and tables, what, which, who, whose and that are at most 1.5 in 100. The README is
#         at most 150 lines and 1,200 words long.
# usage: words.sh SOURCE: README, CONTRIBUTING, SECURITY, CHANGELOG and docs of this folder; or words.sh DOCUMENT...
set -u
. "$(dirname "$0")/../tap/tap.sh"
[ ! -d "$1" ] || set -- "$1/README.md" "$1/CONTRIBUTING.md" "$1/SECURITY.md" "$1/CHANGELOG.md" "$1"/docs/*.md

# Words and clauses of one document.
measure()
{
    awk '
        /^```/ { code = !code; next }
        code || /^ *\|/ || /^    / { next }
        {
            gsub(/`[^`]*`/, " name ")
            gsub(/\]\([^)]*\)/, "] ")
            n = split(tolower($0), word, /[^a-z0-9\047]+/)
            for (i = 1; i <= n; i++)
                if (word[i] != "") {
                    words++
                    if (word[i] ~ /^(what|which|who|whose|that)$/)
                        clauses++
                }
        }
        END { printf "%d %d %.1f\n", words, clauses, words ? 100 * clauses / words : 0 }' "$1"
}

for document in "$@"; do
    # shellcheck disable=SC2046 # three numbers
    set -- $(measure "$document")
    text="${document##*/}: ${1:-0} words, ${3:-0} of 100 open a clause, at most 1.5"
    if [ "${1:-0}" -lt 20 ]; then
        result 1 "${document##*/} has words to count"
    else
        [ "$(echo "$3" | tr -d .)" -le 15 ]
        result $? "$text"
    fi
    case $document in
    *README.md)
        lines=$(wc -l <"$document") words=$(wc -w <"$document")
        [ "$lines" -le 150 ] && [ "$words" -le 1200 ]
        result $? "README: $lines lines, $words words; at most 150 and 1,200"
        ;;
    esac
done
finish
