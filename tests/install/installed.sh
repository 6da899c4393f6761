# SPDX-License-Identifier: MIT
# shellcheck shell=sh
#
# For scripts of this folder, which source it: installs what is in $build below a folder of its own; from there on only
# pkg-config knows where it lies. The foreign project of tests/install/embed is built against it with make, meson and CMake, and
# run; so are the examples. Wanted: source build (host_build, where it is a subproject's) cc cxx kind (static or shared), work,
# log, and tap.sh. Leaves the current folder.
# shellcheck disable=SC2154 # who sources it has set these

# All lines of TAP in the log are ok, and there are some.
tap_passes() { grep -q '^ok ' "$log" && ! grep -q '^not ok ' "$log"; }

DESTDIR=$work/root meson install -C "${host_build:-$build}" --no-rebuild >"$log" 2>&1
result $? 'meson install'

pc=$(find "$work/root" -name evenodd.pc)
[ -n "$pc" ]
result $? 'evenodd.pc is installed'
PKG_CONFIG_PATH=$(dirname "$pc")
prefix=$(pkg-config --variable=prefix "$pc" 2>/dev/null)
lib=$(dirname "$PKG_CONFIG_PATH")
export PKG_CONFIG_PATH
[ "$kind" = static ] || export LD_LIBRARY_PATH="$lib"
version=$(sed -n "s/^ *version: '\(.*\)',$/\1/p" "$source/meson.build" | head -n 1)

for name in evenodd evenodd_layers; do
    if [ $name = evenodd_layers ] && [ ! -f "$lib/pkgconfig/$name.pc" ]; then
        skip "$name.pc" 'built without layers'
        continue
    fi
    pkg-config --modversion $name >"$log" 2>&1
    [ "$(cat "$log")" = "$version" ]
    result $? "$name.pc tells version $version"
    suffix=a
    [ "$kind" = static ] || suffix=so
    ls "$lib/lib$name".* >"$log" 2>&1
    [ -e "$lib/lib$name.$suffix" ]
    result $? "lib$name.$suffix is installed"
    if [ "$kind" = shared ] && command -v nm >/dev/null 2>&1; then
        sh "$source/tests/house/symbols.sh" nm "eo_=$lib/lib$name.so" >"$log" 2>&1 && tap_passes
        result $? "lib$name.so shows no symbols of others"
    fi
done

(cd "$source/include/evenodd" && ls ./*.h) >"$work/all"
[ -f "$lib/pkgconfig/evenodd_layers.pc" ] || sed -i '/layers\.h/d' "$work/all"
(cd "$prefix/include/evenodd" && ls ./*.h) >"$work/installed" 2>/dev/null
diff "$work/all" "$work/installed" >"$log" 2>&1 && [ -s "$work/all" ]
result $? 'the public headers are installed, and no others'

if command -v readelf >/dev/null 2>&1; then
    # shellcheck disable=SC2046,SC2086 # lists of words
    $cc -std=c11 -o "$work/line" "$source/examples/line.c" $(pkg-config --cflags --libs evenodd) >"$log" 2>&1 &&
        readelf -d "$work/line" $(ls "$prefix"/bin/evenodd-* "$lib"/*.so 2>/dev/null) >"$log" 2>&1
    grep -q 'NEEDED.*libc\.so' "$log" && ! grep -qE 'NEEDED.*(libcu|libnccl|libnv|libmpi|libstdc)' "$log"
    result $? 'nothing that is installed, or linked with it, needs a library of CUDA, of MPI, or of C++'
    # What docs/embedding.md names, and glibc's own.
    readelf -d "$work/line" 2>&1 | sed -n 's/.*NEEDED.*\[\(.*\)\]/\1/p' >"$log"
    [ -s "$log" ] && ! grep -vqE '^(lib(evenodd|sodium|uring|c|m|dl|rt|pthread)\.so|ld-linux)' "$log"
    result $? 'a program needs libsodium, the C library, and liburing where that was found'
else
    skip 'no library of CUDA is needed' 'there is no readelf'
fi

cp -R "$source/tests/install/embed" "$work/embed"
cd "$work/embed" || exit 1
if command -v make >/dev/null 2>&1; then
    make CC="$cc" embed >"$log" 2>&1 && ./embed >"$log" 2>&1 && tap_passes
    result $? 'the foreign project in C11, with make'
else
    skip 'the foreign project in C11, with make' 'there is no make'
fi
if [ "$cxx" = none ]; then
    skip 'the foreign project in C++17' 'no C++ compiler'
else
    { meson setup "$work/embed-meson" && meson test -C "$work/embed-meson"; } >"$log" 2>&1
    result $? 'the foreign project in C11 and C++17, with meson'
    if command -v cmake >/dev/null 2>&1; then
        compiler=${cc#ccache }
        { cmake -G Ninja -S . -B "$work/embed-cmake" -DCMAKE_C_COMPILER="${compiler%% *}" -DCMAKE_CXX_COMPILER="$cxx" &&
            cmake --build "$work/embed-cmake"; } >"$log" 2>&1 && "$work/embed-cmake/embed" >"$log" 2>&1 &&
            tap_passes && "$work/embed-cmake/embed_cpp" >"$log" 2>&1 && tap_passes
        result $? 'the foreign project with CMake, through pkg-config'
    else
        skip 'the foreign project with CMake' 'there is no cmake'
    fi
fi

for name in line mlp; do
    # shellcheck disable=SC2046
    $cc -std=c11 -Wall -Wextra -Wpedantic -Werror -o "$work/$name" "$source/examples/$name.c" \
        $(pkg-config --cflags --libs evenodd) -lm >"$log" 2>&1 && "$work/$name" >"$log" 2>&1 && [ -s "$log" ]
    result $? "examples/$name.c compiles without a warning, and runs"
done
if [ "$cxx" = none ]; then
    skip 'examples/cpp' 'no C++ compiler'
else
    # shellcheck disable=SC2046
    $cxx -std=c++17 -Wall -Wextra -Wpedantic -Werror -o "$work/line_cpp" "$source/examples/cpp/line.cpp" \
        $(pkg-config --cflags --libs evenodd) >"$log" 2>&1 && "$work/line_cpp" >"$log" 2>&1 && [ -s "$log" ]
    result $? 'examples/cpp/line.cpp compiles without a warning, and runs'
fi

if [ -f "$build/tools/evenodd-train" ]; then
    for program in evenodd-train evenodd-headtohead evenodd-memplan; do
        "$prefix/bin/$program" --help >"$log" 2>&1
        result $? "$program is installed and starts"
    done
else
    skip 'evenodd-train is installed' 'built without tools'
fi
(cd "$build/tools" 2>/dev/null && ls evenodd-*.1 2>/dev/null) >"$work/pages"
if [ -s "$work/pages" ]; then
    ls "$prefix/share/man/man1" 2>&1 | diff "$work/pages" - >"$log" 2>&1
    result $? 'man pages are installed'
else
    skip 'man pages are installed' 'built without help2man'
fi
