/* SPDX-License-Identifier: MIT
 *
 * memset and memcpy as the two instructions of WebAssembly that every browser has since 2021: the loops of emscripten's library
 * took a fifth of a page's first plan.
 */
#include <stddef.h>

void *memcpy(void *restrict to, const void *restrict from, size_t bytes)
{
    return __builtin_memcpy(to, from, bytes);
}

void *memset(void *to, int byte, size_t bytes)
{
    return __builtin_memset(to, byte, bytes);
}
