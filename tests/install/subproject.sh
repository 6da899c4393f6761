#!/bin/sh
# SPDX-License-Identifier: MIT
#
# Goal: a meson project can take evenodd as a subproject.
# Method: the foreign project of tests/install/embed, with these sources below subprojects/ and nothing installed, is built and
# its tests are run; ours are not among them. It has all that is found here, CUDA too, without layers and tools. The short run
# has shared libraries without CUDA, in without_cuda.sh.
# usage: tests/install/subproject.sh SOURCE
set -u
. "$(dirname "$0")/../tap/tap.sh"
source=$1
make_folder
log=$work/log
shown=$log
echo 1..4

. "$(dirname "$0")/host.sh"
make_host "$work/host"
meson setup -Doptimization=g "$work/build" "$work/host" --force-fallback-for=evenodd >"$log" 2>&1
result $? 'a host project configures with evenodd as a subproject'
ninja -C "$work/build" >"$log" 2>&1
result $? 'it builds'
meson test -C "$work/build" --no-rebuild >"$log" 2>&1 && grep -q '^Ok: *2 ' "$log"
result $? 'its own two tests pass, and ours are not run'
[ -z "$(find "$work/build" -name 'unit_*')" ]
result $? 'our tests are not built'
