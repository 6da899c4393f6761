#!/bin/sh
# SPDX-License-Identifier: MIT
#
# Goal: what replays corpora can fail: an input that ends the target, hangs it or takes too much memory is named, and the
#       others are still told of.
# Method: a target that is wrong on purpose, on inputs that make it so.
# usage: tests/fuzz/driver.sh FUZZ_CANARY [sanitized]
set -u
# shellcheck source=tests/tap/tap.sh
. "$(dirname "$0")/../tap/tap.sh"
canary=$1
make_folder
mkdir "$work/corpus" "$work/none"
for word in abort crash good grow hang; do
    printf %s $word >"$work/corpus/$word"
done
# shellcheck disable=SC2034 # of tap.sh
shown=$work/out
"$canary" "$work/corpus" >"$work/out" 2>/dev/null
for line in 'not ok 1 - abort' 'not ok 2 - crash' 'ok 3 - good' 'not ok 5 - hang' '1..5'; do
    grep -qx "$line" "$work/out"
    result $? "a corpus with bad inputs: '$line'"
done
if [ "${2:-}" = sanitized ]; then
    skip "a corpus with bad inputs: 'not ok 4 - grow'" 'the sanitizer has memory of its own'
else
    grep -qx 'not ok 4 - grow' "$work/out"
    result $? "a corpus with bad inputs: 'not ok 4 - grow'"
fi
"$canary" "$work/none" >"$work/out" 2>/dev/null
grep -q '^not ok' "$work/out"
result $? 'a corpus of nothing is a failure'
finish
