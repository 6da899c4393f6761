#!/bin/sh
# SPDX-License-Identifier: MIT
#
# Goal: a meson project can take evenodd as a subproject.
# Method: the foreign project of tests/install/embed, with these sources below subprojects/ and nothing installed, is built and
# its tests are run; ours are not among them.
# usage: tests/install/subproject.sh SOURCE
set -u
. "$(dirname "$0")/../tap/tap.sh"
source=$1
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
log=$work/log
shown=$log
echo 1..3

cp -R "$source/tests/install/embed" "$work/host"
ours=$work/host/subprojects/evenodd
mkdir -p "$ours"
for part in base streams buffers runtime cluster layers tools include tests meson.build meson_options.txt; do
    cp -R "$source/$part" "$ours/"
done
{ PKG_CONFIG_PATH='' meson setup -Doptimization=0 "$work/build" "$work/host" --force-fallback-for=evenodd && ninja -C "$work/build"; } >"$log" 2>&1
result $? 'a host project configures and builds with evenodd as a subproject'
meson test -C "$work/build" --no-rebuild >"$log" 2>&1 && grep -q '^Ok: *2 ' "$log"
result $? 'its own two tests pass, and ours are not run'
[ -z "$(find "$work/build" -name 'unit_*')" ]
result $? 'our tests are not built'
