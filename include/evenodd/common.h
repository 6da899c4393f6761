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

/* Rises with every incompatible change of a header. It is in the names of all calls to create or open an object, and of
 * eo_transformer_preset, so that programs built against other headers do not link. */
#define EO_API 11

#define EO_PASTE_(a, b) a##b
#define EO_PASTE(a, b) EO_PASTE_(a, b)
#define EO_OF_API(name) EO_PASTE(name##_api, EO_API)

/* In inline functions: C++ programs may refuse C's casts (-Wold-style-cast). */
#ifdef __cplusplus
#define EO_CAST(type, value) static_cast<type>(value)
#else
#define EO_CAST(type, value) ((type)(value))
#endif

/* Parameters in place: eo_plan_create(&plan, model, eo_plan_params(.rank_count = 8)). In C++ a value, and one assigns its
 * fields. */
#ifdef __cplusplus
#define EO_PARAMS(type, ...) type{__VA_ARGS__}
#else
#define EO_PARAMS(type, ...) (&(const type){__VA_ARGS__})
#endif

#if defined(__GNUC__)
#define EO_EXPORT __attribute__((visibility("default")))
#define EO_NODISCARD __attribute__((warn_unused_result))
#define EO_PRINTF(text, first) __attribute__((format(printf, text, first)))
#else
#define EO_EXPORT
#define EO_NODISCARD
#define EO_PRINTF(text, first)
#endif

/*
 * Structs that the library gives out may grow at their end without a new EO_API. So a call that fills one has the caller's
 * size of it: call() of the header is a line of the caller's own program, and the library's function is call_sized(). It
 * writes no byte more. A caller of newer headers than the library finds zeros in what the library does not know.
 */
#define EO_CALLER static inline

/* "0.1.0": of the library; EO_VERSION_... are the headers'. */
#ifdef __cplusplus
extern "C"
#endif
EO_EXPORT const char *eo_version(void);

/* The element types of weights and of reductions. Master weights, gradient shards and optimizer state are always fp32. */
typedef enum eo_dtype {
    EO_DTYPE_FP32 = 0,
    EO_DTYPE_BF16 = 1,
    EO_DTYPE_FLOAT8 = 2, /* e4m3 with scales: of gathers alone (eo_plan_params.float8_gather) */
} eo_dtype;

static inline uint64_t eo_dtype_bytes(eo_dtype dtype)
{
    return dtype == EO_DTYPE_FLOAT8 ? 1 : dtype == EO_DTYPE_BF16 ? 2 : 4;
}

static inline const char *eo_dtype_name(eo_dtype dtype)
{
    return dtype == EO_DTYPE_FP32     ? "fp32"
           : dtype == EO_DTYPE_BF16   ? "bf16"
           : dtype == EO_DTYPE_FLOAT8 ? "float8"
                                      : "unknown";
}

/* What the library updates weights by (eo_plan_params.optimizer; docs/optimizers.md has the rules). */
typedef enum eo_optimizer {
    EO_OPTIMIZER_ADAMW,
    EO_OPTIMIZER_SGD,  /* with momentum: eo_step_params.beta1 */
    EO_OPTIMIZER_LION,
    EO_OPTIMIZER_ADAMW8BIT, /* AdamW, its state in 8 bits: a byte and a 64th for each moment */
    EO_OPTIMIZER_MUON, /* of parameters with `matrix` (evenodd/model.h); of all others AdamW */
    EO_OPTIMIZER_COUNT,
} eo_optimizer;

static inline const char *eo_optimizer_name(eo_optimizer optimizer)
{
    return optimizer == EO_OPTIMIZER_ADAMW  ? "adamw"
           : optimizer == EO_OPTIMIZER_SGD  ? "sgd"
           : optimizer == EO_OPTIMIZER_LION ? "lion"
           : optimizer == EO_OPTIMIZER_ADAMW8BIT ? "adamw8bit"
           : optimizer == EO_OPTIMIZER_MUON ? "muon"
                                            : "unknown";
}

#endif
