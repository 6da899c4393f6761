/* SPDX-License-Identifier: MIT
 *
 * Structs given out to callers whose headers may be older or newer than the library: as much of them as both know.
 */
#ifndef EO_BASE_SIZED_H
#define EO_BASE_SIZED_H

#include <stddef.h>
#include <string.h>

/* What the caller knows more than the library becomes zero. NULL is taken. */
static inline void eo_give_sized(void *out, size_t out_bytes, const void *full, size_t full_bytes)
{
    const size_t known = out_bytes < full_bytes ? out_bytes : full_bytes;
    if (!out)
        return;
    memcpy(out, full, known);
    memset((char *)out + known, 0, out_bytes - known);
}

#endif
