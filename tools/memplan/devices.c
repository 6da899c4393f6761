/* SPDX-License-Identifier: MIT
 *
 * What a GPU has, and what of it no plan sees. Both are figures of others, each with where it comes from: a measured
 * figure of one's own machine goes before them (--device-memory, --outside).
 */
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "tools/memplan/plan.h"

#define GIB(x) ((uint64_t)((x) * 1073741824.0))

/* What a program was told that the device has (cudaMemGetInfo's total, as error messages print it); else the data sheet's
 * figure with 1 GB as 1e9 bytes, which is on the safe side. */
static const struct tool_device_memory devices[] = {
    {"A100-40GB", 40000000000u, "data sheet, 40 GB"},
    {"A100-80GB", GIB(79.15), "total capacity in messages of PyTorch"},
    {"H100", GIB(79.11), "total capacity in vllm-project/vllm#27508"},
    {"H100-NVL", GIB(93.00), "total capacity in ali-vilab/VACE#56"},
    {"H200", 141000000000u, "data sheet, 141 GB"},
    {"B200", GIB(178.35), "total memory in pytorch/ao#4002"},
    {"T4", GIB(14.75), "total capacity in hpcaitech/Open-Sora#697"},
    {"L40S", 48000000000u, "data sheet, 48 GB"},
    {"A6000", 48000000000u, "data sheet, 48 GB"},
    {"RTX-4090", 24000000000u, "data sheet, 24 GB"},
    {"RTX-3090", 24000000000u, "data sheet, 24 GB"},
};

const struct tool_device_memory *tool_device_memory_at(uint32_t index)
{
    return index < sizeof(devices) / sizeof(devices[0]) ? &devices[index] : NULL;
}

const struct tool_device_memory *tool_device_memory_find(const char *name)
{
    for (uint32_t i = 0; tool_device_memory_at(i); i++)
        if (strcasecmp(devices[i].name, name) == 0)
            return &devices[i];
    return NULL;
}

static const uint64_t context_bytes = (uint64_t)852 << 20; /* llm.c: 21,315 MiB of the device used, the rest allocated */
static const uint64_t nccl_bytes = (uint64_t)1485 << 20;   /* ml-engineering: 0.55 GiB before the first barrier, 2.00 after */
static const uint64_t workspace_bytes = (uint64_t)32 << 20; /* cuBLAS's own default on Hopper */

struct tool_outside tool_outside_default(const struct tool_memplan_settings *settings)
{
    if (!settings->on_gpu) /* as tools/train estimates: program, and 8 MiB a thread */
        return (struct tool_outside){.context_bytes = (uint64_t)32 << 20,
                                     .workspace_bytes = (uint64_t)settings->plan.threads * (8 << 20)};
    return (struct tool_outside){.context_bytes = context_bytes, .workspace_bytes = workspace_bytes,
                                 .nccl_bytes = settings->plan.ranks > 1 ? nccl_bytes : 0};
}

uint64_t tool_outside_bytes(const struct tool_outside *outside)
{
    return outside->context_bytes + outside->nccl_bytes + outside->workspace_bytes;
}

void tool_outside_text(const struct tool_memplan *memplan, char *text, size_t bytes)
{
    const struct tool_outside *o = &memplan->settings.outside;
    if (o->given)
        snprintf(text, bytes, "as given with --outside");
    else if (!memplan->settings.on_gpu)
        snprintf(text, bytes, "of the host: %llu MiB program, %llu MiB threads (estimate of tools/train)",
                 (unsigned long long)o->context_bytes >> 20, (unsigned long long)o->workspace_bytes >> 20);
    else
        snprintf(text, bytes, "%llu MiB context and libraries (llm.c's log: 21,315 MiB of the device used, less its own "
                 "allocations)%s, %llu MiB workspace of products (cuBLAS's default on Hopper)",
                 (unsigned long long)o->context_bytes >> 20,
                 o->nccl_bytes ? ", 1485 MiB NCCL (ml-engineering: 0.55 GiB before the first barrier, 2.00 after)" : "",
                 (unsigned long long)o->workspace_bytes >> 20);
}
