# SPDX-License-Identifier: MIT
# shellcheck shell=sh
#
# For scripts of this folder, which source it: the foreign project of tests/install/embed in FOLDER, with these sources below
# subprojects/. Wanted: source. From there on nothing that is installed is found.
# shellcheck disable=SC2154 # who sources it has set it
make_host() # FOLDER
{
    cp -R "$source/tests/install/embed" "$1"
    mkdir -p "$1/subprojects/evenodd/docs"
    for part in base streams buffers runtime cluster layers tools include tests meson.build meson_options.txt \
        docs/memplan.html; do
        cp -R "$source/$part" "$1/subprojects/evenodd/$part"
    done
    export PKG_CONFIG_PATH=''
}
