/* SPDX-License-Identifier: MIT */
#include "tools/planning/reduction_text.h"

#include <stdio.h>

enum { TYPES = EO_DTYPE_BF16 + 1 };

void tool_reduction_text(const eo_plan *plan, char *text, size_t bytes)
{
    uint32_t scattered[TYPES] = {0}, over_replicas = 0;
    eo_plan_summary summary;
    eo_plan_get_summary(plan, &summary);
    for (uint32_t i = 0; i < eo_plan_operation_count(plan, EO_LIST_STEADY); i++) {
        eo_plan_operation o;
        if (eo_plan_get_operation(plan, EO_LIST_STEADY, i, &o) < 0)
            continue;
        if (o.kind == EO_OP_REDUCE_SCATTER)
            scattered[o.dtype]++;
        over_replicas += o.kind == EO_OP_ALL_REDUCE; /* of what was added up: fp32 */
    }
    const char *said = "bf16";
    if (summary.params.reduce_dtype == EO_DTYPE_FP32)
        said = "fp32";
    else if (scattered[EO_DTYPE_BF16] && over_replicas)
        said = "bf16 within a group and fp32 over the replicas";
    else if (scattered[EO_DTYPE_BF16] && scattered[EO_DTYPE_FP32])
        said = "bf16, in fp32 after local sums of a layer's gradients";
    else if (scattered[EO_DTYPE_FP32] || over_replicas)
        said = "fp32, after local sums (written in bf16)";
    snprintf(text, bytes, "%s", said);
}
