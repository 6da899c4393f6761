#!/bin/sh
# SPDX-License-Identifier: MIT
#
# Goal: `tools/dev test` tells what was left out, whole tests and parts of them, and refuses folders that tests cannot have.
# Method: a copy of the script in a folder of its own; meson, ninja and apt-get are scripts that note their words, or print what
# meson prints.
# usage: dev.sh SOURCE
set -u
. "$(dirname "$0")/../tap/tap.sh"
source=$1
make_folder
shown=$work/out
unset MESON_TESTTHREADS
mkdir -p "$work/plain/tools" "$work/in parts/tools" "$work/bin"
cp "$source/tools/dev" "$work/plain/tools/"
cp "$source/tools/dev" "$work/in parts/tools/"
cat >"$work/bin/meson" <<'END'
#!/bin/sh
case $1 in
--version) echo 9.0.0 ;;
setup) mkdir -p "$2" ;;
test)
    echo "$*" >"$NOTES/meson"
    mkdir -p "$3/meson-logs"
    printf '%s\n' '1..0 # SKIP there is no GPU' 'ok 1 - holds' 'ok 2 - another user # SKIP only root has one' \
        'ok 7 - another user # SKIP only root has one' 'ok - places::threads  # SKIP one core' >"$3/meson-logs/testlog.txt"
    printf '%s\n' 'Ok: 3' 'Expected Fail: 2' 'Fail: 0' 'Unexpected Pass: 0' 'Skipped: 1' 'Timeout: 0'
    ;;
esac
END
printf '#!/bin/sh\necho "$*" >"$NOTES/ninja"\n' >"$work/bin/ninja"
printf '#!/bin/sh\nexit 100\n' >"$work/bin/apt-get"
printf '#!/bin/sh\necho 3\n' >"$work/bin/nproc"
chmod +x "$work"/bin/*
export NOTES="$work" PATH="$work/bin:$PATH"

sh "$work/plain/tools/dev" test >"$work/out" 2>&1
status=$?
if grep -q 'cannot build without these\|need Criterion' "$work/out"; then
    skip_all 'this machine lacks what tools/dev needs'
fi
[ $status = 0 ] && [ "$(tail -n 1 "$work/out")" = '5 passed, 0 failed, 1 skipped' ] &&
    grep -qx 'skipped 1: there is no GPU' "$work/out"
result $? 'the last line counts tests; what they lacked stands before it'
grep -qx 'case skipped 2: another user: only root has one' "$work/out" &&
    grep -qx 'case skipped 1: places::threads: one core' "$work/out" && [ "$(grep -c '^case skipped' "$work/out")" = 2 ]
result $? '... and so do parts of tests that were left out'
grep -q -e ' -j [2-4]$' "$work/ninja" && grep -q -e ' --num-processes [3-5] ' "$work/meson"
result $? 'it runs as many tests and compilers as there are processors, and few more'

rm -f "$work/meson" "$work/ninja"
good=0
for words in 'setup --foo' 'build now' 'install --foo' 'carry --foo' 'format --foo' 'test --foo' 'sanitize --foo' 'fuzz nothing' 'page --foo' \
    'gpu --rehearse' 'unknown'; do
    # shellcheck disable=SC2086 # a list of words
    (cd "$work/plain" && sh tools/dev $words) >"$work/out" 2>&1
    [ $? = 2 ] && grep -q '^tools/dev: ' "$work/out" && [ ! -e "$work/meson" ] && [ ! -e "$work/ninja" ] || good=1
done
if command -v python3 >/dev/null 2>&1; then
    (cd "$source" && sh tools/dev bench --only nothing) >"$work/out" 2>&1
    [ $? = 2 ] && grep -q "'nothing' is not a line" "$work/out" && [ ! -e "$work/ninja" ] || good=1
fi
result $good 'a command line that is wrong ends with status 2, before anything is built'

refused() # WORDS: of the last run, which must not have come as far as meson
{
    [ $? = 1 ] && grep -q "^tools/dev: the tests do not run in a folder with a space in its name; .*'$1'" "$work/out" &&
        [ ! -e "$work/meson" ] && [ ! -e "$work/ninja" ]
}
rm -f "$work/meson" "$work/ninja"
sh "$work/in parts/tools/dev" test >"$work/out" 2>&1
refused "$work/in parts"
result $? 'sources below a name with a space are refused'
TMPDIR="$work/in parts" sh "$work/plain/tools/dev" test --full >"$work/out" 2>&1
refused "$work/in parts"
result $? 'so is such a TMPDIR'
finish
