/* SPDX-License-Identifier: MIT
 *
 * A moment in a loop that looks for something again and again: tens of nanoseconds, which the core's other thread has.
 *
 * All of it is inline: the layers use it, too.
 */
#ifndef EO_BASE_PAUSE_H
#define EO_BASE_PAUSE_H

static inline void eo_spin_pause(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("isb"); /* most cores have one thread, and pass over `yield` at once */
#endif
}

#endif
