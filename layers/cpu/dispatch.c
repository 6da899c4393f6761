/* SPDX-License-Identifier: MIT */
#include "layers/cpu/kernels.h"
#include "layers/cpu/products/tiles.h"
#include "layers/kernel_table.h"

#include <stdatomic.h>
#include <string.h>

#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

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

/* Leaf 7, subleaf 1, EAX: AVX512_BF16. */
static bool runs_avx512_bf16(void)
{
    uint32_t a = 0, b = 0, c = 0, d = 0;
    return runs_avx512() && __get_cpuid_count(7, 1, &a, &b, &c, &d) && a & 1u << 5;
}

/* Leaf 7, EDX: AMX-BF16, AMX-TILE. The kernel keeps the tiles of a thread only after the process has asked (Linux 5.16). */
static bool runs_amx(void)
{
    enum { REQUEST_COMPONENT = 0x1023, TILE_DATA = 18 };
    uint32_t a = 0, b = 0, c = 0, d = 0;
    return runs_avx512() && __get_cpuid_count(7, 0, &a, &b, &c, &d) && d & 1u << 22 && d & 1u << 24 &&
           syscall(SYS_arch_prctl, REQUEST_COMPONENT, TILE_DATA) == 0;
}
#endif

/* In order of preference. The first two differ in their products of bf16 alone. */
static const struct kernel_level {
    const char *name;
    const struct eo_kernel_table *fp32, *bf16;
    const struct eo_tiles *fp32_tiles, *bf16_tiles;
    bool (*runs)(void);
} levels[] = {
#if defined(__x86_64__)
    {"amx", &eo_kernels_avx512, &eo_kernels_avx512_bf16, &eo_tiles_fp32_avx512, &eo_tiles_amx, runs_amx},
    {"avx512_bf16", &eo_kernels_avx512, &eo_kernels_avx512_bf16, &eo_tiles_fp32_avx512, &eo_tiles_avx512_bf16, runs_avx512_bf16},
    {"avx512", &eo_kernels_avx512, &eo_kernels_avx512_bf16, &eo_tiles_fp32_avx512, &eo_tiles_bf16_avx512, runs_avx512},
    {"avx2", &eo_kernels_avx2, &eo_kernels_avx2_bf16, &eo_tiles_fp32_avx2, &eo_tiles_bf16_avx2, runs_avx2},
#endif
    {"plain", &eo_kernels_plain, &eo_kernels_plain_bf16, &eo_tiles_fp32_plain, &eo_tiles_bf16_plain, runs_always},
};
enum { LEVEL_COUNT = sizeof(levels) / sizeof(levels[0]) };

/* Threads that ask first at the same time store the same pointer. */
static const struct kernel_level *_Atomic level_picked;

static const struct kernel_level *level_in_use(void)
{
    const struct kernel_level *level = atomic_load_explicit(&level_picked, memory_order_relaxed);
    if (level == NULL) {
        level = levels;
        while (!level->runs())
            level++;
        atomic_store_explicit(&level_picked, level, memory_order_relaxed);
    }
    return level;
}

const struct eo_kernel_table *eo_kernels_of(eo_dtype dtype)
{
    return dtype == EO_DTYPE_BF16 ? level_in_use()->bf16 : level_in_use()->fp32;
}

const struct eo_kernel_table *eo_kernels(void)
{
    return eo_kernels_of(EO_DTYPE_FP32);
}

const struct eo_tiles *eo_tiles_of(eo_dtype dtype)
{
    return dtype == EO_DTYPE_BF16 ? level_in_use()->bf16_tiles : level_in_use()->fp32_tiles;
}

static _Atomic bool reference_selected;

bool eo_kernels_reference_selected(void)
{
    return atomic_load_explicit(&reference_selected, memory_order_relaxed);
}

const char *eo_kernels_name(void)
{
    return eo_kernels_reference_selected() ? "reference" : level_in_use()->name;
}

const char *eo_kernels_at(uint32_t index)
{
    for (size_t level = 0; level < LEVEL_COUNT; level++)
        if (levels[level].runs() && index-- == 0)
            return levels[level].name;
    return index == 0 ? "reference" : NULL;
}

eo_status eo_kernels_select(const char *name)
{
    if (name == NULL)
        return EO_ERR_INVALID;
    if (strcmp(name, "reference") == 0) {
        atomic_store_explicit(&reference_selected, true, memory_order_relaxed);
        return EO_OK;
    }
    for (size_t level = 0; level < LEVEL_COUNT; level++) {
        if (strcmp(levels[level].name, name) != 0)
            continue;
        if (!levels[level].runs())
            return EO_ERR_UNSUPPORTED;
        atomic_store_explicit(&level_picked, &levels[level], memory_order_relaxed);
        eo_product_bound(name);
        atomic_store_explicit(&reference_selected, false, memory_order_relaxed);
        return EO_OK;
    }
    static const char *const elsewhere[] = {"amx", "avx512_bf16", "avx512", "avx2"};
    for (size_t i = 0; i < sizeof(elsewhere) / sizeof(elsewhere[0]); i++)
        if (strcmp(elsewhere[i], name) == 0)
            return EO_ERR_UNSUPPORTED;
    return EO_ERR_INVALID;
}
