/* SPDX-License-Identifier: MIT */
#include "tools/shared/weights_hash.h"

uint64_t tool_hash_more(uint64_t hash, const void *data, uint64_t bytes)
{
    const uint8_t *byte = data;
    for (uint64_t i = 0; i < bytes; i++)
        hash = (hash ^ byte[i]) * 0x100000001b3u;
    return hash;
}

static eo_status add_parameter(void *user, const eo_parameter_info *parameter, const float *values)
{
    uint64_t *hash = user;
    *hash = tool_hash_more(*hash, values, parameter->element_count * sizeof(*values));
    return EO_OK;
}

eo_status tool_weights_hash(eo_runtime *runtime, uint64_t *out)
{
    *out = TOOL_HASH_START;
    return eo_weights_visit(runtime, add_parameter, out);
}
