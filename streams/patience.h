/* SPDX-License-Identifier: MIT
 *
 * How long a rank waits for others in a collective: its group's timeout. While ranks save what updates must not change yet, one
 * may keep the others waiting for its disk: for that time they wait longer. A lost rank is noticed as soon as ever, but for one
 * that only stands still.
 *
 * Of the process: its ranks save together.
 */
#ifndef EO_STREAMS_PATIENCE_H
#define EO_STREAMS_PATIENCE_H

#include "streams/collective.h"

/* By so many milliseconds, of several at a time the longest, until the last has ended. Each is to be ended, with the same
 * number; 0 is none. */
void eo_patience_begin(uint32_t ms);
void eo_patience_end(uint32_t ms);

uint32_t eo_patience_ms(const struct eo_group_params *params);

static inline uint64_t eo_patience_ns(const struct eo_group_params *params)
{
    return eo_patience_ms(params) * UINT64_C(1000000);
}

#endif
