#!/bin/sh
# SPDX-License-Identifier: MIT
#
# Goal: a meson project can take evenodd as a subproject.
# Method: the foreign project of tests/embed, with these sources below subprojects/ and nothing installed, is built and
# its tests are run; ours are not among them.
# usage: check_subproject.sh SOURCE
set -u
source=$1
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
log=$work/log
echo 1..3

report() # NUMBER STATUS TEXT
{
    if [ "$2" = 0 ]; then
        echo "ok $1 - $3"
    else
        sed 's/^/# /' "$log"
        echo "not ok $1 - $3"
    fi
}

cp -R "$source/tests/embed" "$work/host"
ours=$work/host/subprojects/evenodd
mkdir -p "$ours"
for part in base streams buffers runtime cluster layers tools include tests meson.build meson_options.txt; do
    cp -R "$source/$part" "$ours/"
done
{ PKG_CONFIG_PATH='' meson setup "$work/build" "$work/host" --force-fallback-for=evenodd && ninja -C "$work/build"; } >"$log" 2>&1
report 1 $? 'a host project configures and builds with evenodd as a subproject'
meson test -C "$work/build" --no-rebuild >"$log" 2>&1 && grep -q '^Ok: *2 ' "$log"
report 2 $? 'its own two tests pass, and ours are not run'
[ -z "$(find "$work/build" -name 'unit_*')" ]
report 3 $? 'our tests are not built'
