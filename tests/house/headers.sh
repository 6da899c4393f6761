#!/bin/sh
# SPDX-License-Identifier: MIT
#
# Goal: a user may include any public header alone and first, in C11 and in C++17, with all warnings as errors.
# Method: for each header, a program of two lines (it twice, so that the guard is seen to work) is compiled.
# usage: check_headers.sh SOURCE C_COMPILER CXX_COMPILER|none
set -u
. "$(dirname "$0")/../tap/tap.sh"
source=$1 cc=$2 cxx=$3
show() { printf '%s\n' "$output"; }

output=
headers=$(cd "$source/include" 2>/dev/null && find evenodd -name '*.h' | LC_ALL=C sort)
if [ -z "$headers" ]; then
    result 1 "there are public headers in $source/include"
    finish
    exit 1
fi

compile() # LANGUAGE STANDARD COMPILER HEADER
{
    strict=
    [ "$1" != c++ ] || strict='-Wold-style-cast -Wzero-as-null-pointer-constant'
    # shellcheck disable=SC2086 # a list of words
    output=$(printf '#include <%s>\n#include <%s>\n' "$4" "$4" | $3 -x "$1" "-std=$2" -Wall -Wextra -Wpedantic -Wundef \
        -Wconversion -Wsign-conversion $strict -Werror -fsyntax-only -I "$source/include" - 2>&1)
    result $? "$4 alone in $2"
}

for header in $headers; do
    compile c c11 "$cc" "$header"
    if [ "$cxx" = none ]; then
        skip "$header alone in c++17" 'no C++ compiler'
    else
        compile c++ c++17 "$cxx" "$header"
    fi
    output=
    guard=$(printf '%s' "$header" | LC_ALL=C tr 'a-z/.' 'A-Z__')
    grep -qx "#define $guard" "$source/include/$header"
    result $? "the guard of $header spells its path"
done
finish
