/* SPDX-License-Identifier: MIT
 *
 * The file of products that were timed (--product-cache): what is read of it can be written and read again.
 */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "layers/cuda/internal.h"
#include "tests/fuzz/fuzz.h"

const struct fuzz_limits fuzz_limits = {.megabytes = 64, .seconds = 5, .bytes = 8192};

/* ---- what the file's reader asks for ---- */

size_t cublasLtGetVersion(void)
{
    return 130000;
}

void eo_layers_log(const eo_log *log, eo_log_level level, const char *format, ...)
{
    char text[1024];
    va_list arguments;
    va_start(arguments, format);
    FUZZ_HOLDS(vsnprintf(text, sizeof(text), format, arguments) > 0);
    va_end(arguments);
}

/* A small table, so that it is full at times. */
enum { PLACES = 8 };

struct eo_product_plan *eo_cuda_plan_find(struct eo_cuda_team *team, const struct eo_product_key *key)
{
    for (uint32_t i = 0; i < PLACES; i++)
        if (team->plans[i].state == EO_PLAN_NONE || memcmp(&team->plans[i].key, key, sizeof(*key)) == 0)
            return &team->plans[i];
    return NULL;
}

/* ---- */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static struct eo_product_plan first[EO_CUDA_PLANS_MAX], second[EO_CUDA_PLANS_MAX];
    struct eo_cuda_team team = {.device_name = "NVIDIA H200", .plans = first, .plans_changed = true};
    memset(first, 0, PLACES * sizeof(first[0]));
    memset(second, 0, PLACES * sizeof(second[0]));
    team.plan_cache = (char *)fuzz_file("products", data, bytes);
    eo_cuda_plans_read(&team);
    FUZZ_HOLDS(team.plan_count <= PLACES);
    eo_cuda_plans_write(&team);
    const uint32_t count = team.plan_count;
    team.plans = second;
    team.plan_count = 0;
    eo_cuda_plans_read(&team);
    FUZZ_HOLDS(team.plan_count == count);
    for (uint32_t i = 0; i < count; i++)
        FUZZ_HOLDS(memcmp(&first[i].key, &second[i].key, sizeof(first[i].key)) == 0 && first[i].fused == second[i].fused);
    return 0;
}
