/* SPDX-License-Identifier: MIT
 *
 * What every public header needs: version, visibility, element types.
 */
#ifndef EVENODD_COMMON_H
#define EVENODD_COMMON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define EO_VERSION_MAJOR 0
#define EO_VERSION_MINOR 1
#define EO_VERSION_PATCH 0

/* Rises with every incompatible change of a header: programs built against other headers do not link. */
#define EO_API 3

#define EO_PASTE_(a, b) a##b
#define EO_PASTE(a, b) EO_PASTE_(a, b)

#if defined(__GNUC__)
#define EO_EXPORT __attribute__((visibility("default")))
#define EO_NODISCARD __attribute__((warn_unused_result))
#define EO_PRINTF(text, first) __attribute__((format(printf, text, first)))
#else
#define EO_EXPORT
#define EO_NODISCARD
#define EO_PRINTF(text, first)
#endif

/* The element types of weights and of reductions. Master weights, gradient shards and optimizer state are always fp32. */
typedef enum eo_dtype {
    EO_DTYPE_FP32 = 0,
    EO_DTYPE_BF16 = 1,
} eo_dtype;

#endif
