/* SPDX-License-Identifier: MIT
 *
 * Rows of an arena, where the program has told of them (sim.h).
 */
#include "internal.h"

#include <inttypes.h>
#include <stdio.h>

uint32_t (*sim_rows_at)(const void *at, struct sim_row *out, uint32_t room);

const char *sim_row_fault(const struct sim_range *range, char *text, size_t text_bytes)
{
    struct sim_row rows[SIM_ROWS_AT_MAX];
    const uint32_t count = sim_rows_at ? sim_rows_at(range->at, rows, SIM_ROWS_AT_MAX) : 0;
    for (uint32_t i = 0; i < count; i++)
        if ((uintptr_t)range->at + range->bytes <= rows[i].to)
            return NULL;
    if (count == 0)
        return NULL;
    snprintf(text, text_bytes, "%" PRIu64 " bytes at %p go past the end of row %s, %" PRIu64 " bytes on", range->bytes,
             range->at, rows[0].name, (uint64_t)(rows[0].to - (uintptr_t)range->at));
    return text;
}
