/* SPDX-License-Identifier: MIT */
#include "layers/kernel_table.h"

#include <stdatomic.h>
#include <string.h>

static bool runs_always(void)
{
    return true;
}

#if defined(__x86_64__)
static bool runs_avx2(void)
{
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
}

static bool runs_avx512(void)
{
    return runs_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
}
#endif

/* In order of preference. */
static const struct kernel_level {
    const struct eo_kernel_table *fp32, *bf16;
    bool (*runs)(void);
} levels[] = {
#if defined(__x86_64__)
    {&eo_kernels_avx512, &eo_kernels_avx512_bf16, runs_avx512},
    {&eo_kernels_avx2, &eo_kernels_avx2_bf16, runs_avx2},
#endif
    {&eo_kernels_plain, &eo_kernels_plain_bf16, runs_always},
};

/* Threads that ask first at the same time store the same pointer. */
static const struct kernel_level *_Atomic level_picked;

const struct eo_kernel_table *eo_kernels_of(eo_dtype dtype)
{
    const struct kernel_level *level = atomic_load_explicit(&level_picked, memory_order_relaxed);
    if (level == NULL) {
        level = levels;
        while (!level->runs())
            level++;
        atomic_store_explicit(&level_picked, level, memory_order_relaxed);
    }
    return dtype == EO_DTYPE_BF16 ? level->bf16 : level->fp32;
}

const struct eo_kernel_table *eo_kernels(void)
{
    return eo_kernels_of(EO_DTYPE_FP32);
}

static _Atomic bool reference_selected;

bool eo_kernels_reference_selected(void)
{
    return atomic_load_explicit(&reference_selected, memory_order_relaxed);
}

const char *eo_kernels_name(void)
{
    return eo_kernels_reference_selected() ? "reference" : eo_kernels()->name;
}

eo_status eo_kernels_select(const char *name)
{
    if (name == NULL)
        return EO_ERR_INVALID;
    if (strcmp(name, "reference") == 0) {
        atomic_store_explicit(&reference_selected, true, memory_order_relaxed);
        return EO_OK;
    }
    for (size_t level = 0; level < sizeof(levels) / sizeof(levels[0]); level++) {
        if (strcmp(levels[level].fp32->name, name) != 0)
            continue;
        if (!levels[level].runs())
            return EO_ERR_UNSUPPORTED;
        atomic_store_explicit(&level_picked, &levels[level], memory_order_relaxed);
        atomic_store_explicit(&reference_selected, false, memory_order_relaxed);
        return EO_OK;
    }
    return strcmp(name, "avx512") == 0 || strcmp(name, "avx2") == 0 ? EO_ERR_UNSUPPORTED : EO_ERR_INVALID;
}
