/* SPDX-License-Identifier: MIT
 *
 * A thread's floating-point mode: rounding, and whether denormals are flushed. Work that one thread does for another is
 * done in the mode of who asked for it, so that who runs it never shows in the result.
 *
 * All of it is inline: the layers use it, too.
 */
#ifndef EO_BASE_FLOAT_MODE_H
#define EO_BASE_FLOAT_MODE_H

#include <stdint.h>

/* Denormals are zero, as operands and as results. */
#if defined(__x86_64__)
#include <xmmintrin.h>
#define EO_FLOAT_MODE_FLUSH 0x8040
#elif defined(__aarch64__)
#define EO_FLOAT_MODE_FLUSH (1 << 24)
#else
#define EO_FLOAT_MODE_FLUSH 0
#endif

static inline uint64_t eo_float_mode_get(void)
{
#if defined(__x86_64__)
    return _mm_getcsr() & ~(uint32_t)_MM_EXCEPT_MASK; /* flags of what has happened are each thread's own */
#elif defined(__aarch64__)
    uint64_t mode;
    __asm__ volatile("mrs %0, fpcr" : "=r"(mode));
    return mode;
#else
    return 0;
#endif
}

static inline void eo_float_mode_set(uint64_t mode)
{
#if defined(__x86_64__)
    _mm_setcsr((uint32_t)mode | (_mm_getcsr() & _MM_EXCEPT_MASK));
#elif defined(__aarch64__)
    __asm__ volatile("msr fpcr, %0" : : "r"(mode));
#else
    (void)mode;
#endif
}

#endif
