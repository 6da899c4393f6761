/* SPDX-License-Identifier: MIT
 *
 * Denormals cost a hundred cycles each, and a badly scaled model is full of them. Between begin and end the calling
 * thread, and the team in its runs, treat them as zero. Call it around the compute of a pass, and give end what begin
 * returned.
 */
#ifndef EO_LAYERS_DENORMALS_H
#define EO_LAYERS_DENORMALS_H

#include "base/float_mode.h"

static inline uint64_t eo_flush_denormals_begin(void)
{
    const uint64_t saved = eo_float_mode_get();
    eo_float_mode_set(saved | EO_FLOAT_MODE_FLUSH);
    return saved;
}

static inline void eo_flush_denormals_end(uint64_t saved)
{
    eo_float_mode_set(saved);
}

#endif
