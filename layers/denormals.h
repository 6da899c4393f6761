/* SPDX-License-Identifier: MIT
 *
 * Denormals cost a hundred cycles each, and a badly scaled model is full of them. Between begin and end the calling
 * thread, and the team in its runs, treat them as zero. Call it around the compute of a pass, and give end what begin
 * returned.
 */
#ifndef EO_LAYERS_DENORMALS_H
#define EO_LAYERS_DENORMALS_H

#include <stdint.h>

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

static inline uint32_t eo_flush_denormals_begin(void)
{
#if defined(__x86_64__)
    const uint32_t saved = _mm_getcsr();
    _mm_setcsr(saved | 0x8040); /* flush to zero, denormals are zero */
    return saved;
#else
    return 0;
#endif
}

static inline void eo_flush_denormals_end(uint32_t saved)
{
#if defined(__x86_64__)
    _mm_setcsr(saved);
#else
    (void)saved;
#endif
}

#endif
