#!/bin/sh
# SPDX-License-Identifier: MIT
#
# Goal: what `meson install` leaves behind is all that a foreign project needs.
# Method: installed.sh, of BUILD itself (`static`), or of a build of its own with those options (`shared`). The short run has
# `static`, and shared libraries without CUDA, in without_cuda.sh; `shared` with all that is found here is suite slow's.
# usage: tests/install/install.sh SOURCE BUILD C_COMPILER CXX_COMPILER|none static|shared [MESON_OPTION...]
set -u
. "$(dirname "$0")/../tap/tap.sh"
source=$1 build=$2 cc=$3 cxx=$4 kind=$5
shift 5
make_folder
log=$work/log
shown=$log

if [ "$kind" = shared ]; then
    build=$work/build
    { CC=$cc meson setup "$build" "$source" -Ddefault_library=shared -Doptimization=g -Dtests=disabled "$@" && ninja -C "$build"; } \
        >"$log" 2>&1
    result $? 'a build of shared libraries'
fi
. "$(dirname "$0")/installed.sh"
finish
