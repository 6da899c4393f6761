#!/bin/sh
# SPDX-License-Identifier: MIT
#
# Goal: a meson project can take evenodd as a subproject.
# Method: the foreign project of tests/install/embed, with these sources below subprojects/ and nothing installed, is built and
# its tests are run; ours are not among them. It is configured with all that is found here, CUDA too; `short` then builds
# without CUDA, whose compiler takes as long as all others together. Suite slow builds with it.
# usage: tests/install/subproject.sh SOURCE short|all
set -u
. "$(dirname "$0")/../tap/tap.sh"
source=$1 how=$2
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
log=$work/log
shown=$log
echo 1..4

cp -R "$source/tests/install/embed" "$work/host"
ours=$work/host/subprojects/evenodd
mkdir -p "$ours"
for part in base streams buffers runtime cluster layers tools include tests meson.build meson_options.txt; do
    cp -R "$source/$part" "$ours/"
done
export PKG_CONFIG_PATH=''
meson setup -Doptimization=g "$work/build" "$work/host" --force-fallback-for=evenodd >"$log" 2>&1
result $? 'a host project configures with evenodd as a subproject'
{ [ "$how" = all ] || meson configure "$work/build" -Devenodd:cuda=disabled; } >"$log" 2>&1 && ninja -C "$work/build" >"$log" 2>&1
result $? 'it builds'
meson test -C "$work/build" --no-rebuild >"$log" 2>&1 && grep -q '^Ok: *2 ' "$log"
result $? 'its own two tests pass, and ours are not run'
[ -z "$(find "$work/build" -name 'unit_*')" ]
result $? 'our tests are not built'
