/* SPDX-License-Identifier: MIT
 *
 * For tests whose ranks are threads.
 */
#ifndef EO_TESTS_TAP_THREADS_H
#define EO_TESTS_TAP_THREADS_H

#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

/* The body for each of an array's elements, on a thread of its own; returns when all have ended. */
static inline void run_as_threads(void *(*body)(void *element), void *array, uint32_t count, size_t element_bytes)
{
    pthread_t threads[64];
    for (uint32_t t = 0; t < count; t++) {
        if (t == sizeof(threads) / sizeof(threads[0]) ||
            pthread_create(&threads[t], NULL, body, (char *)array + t * element_bytes) != 0) {
            puts("Bail out! a thread cannot be made");
            exit(1);
        }
    }
    for (uint32_t t = 0; t < count; t++)
        pthread_join(threads[t], NULL);
}

#endif
