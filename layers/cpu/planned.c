/* SPDX-License-Identifier: MIT
 *
 * CPUs in a build that only plans (the page of memplan): the bytes of any other build; nothing runs.
 */
#include "layers/cpu/planned.h"

#include "layers/checks.h"

static bool supports_fp32(struct eo_types types)
{
    return types.compute == EO_DTYPE_FP32 && types.gradient == EO_DTYPE_FP32;
}

static bool supports_bf16(struct eo_types types)
{
    return types.compute == EO_DTYPE_BF16;
}

static const struct eo_kernel_ops planned_fp32 = {EO_CPU_PLANNED_FP32_OPS, .supports = supports_fp32};
static const struct eo_kernel_ops planned_bf16 = {EO_CPU_PLANNED_BF16_OPS, .supports = supports_bf16};
static const struct eo_kernel_ops *const planned_cpu[] = {&planned_fp32, &planned_bf16, NULL};

static eo_status refuse_cpu(eo_team **out, const eo_team_params *params)
{
    *out = NULL;
    eo_layers_log(params->log, EO_LOG_ERROR, "team: this build only plans");
    return EO_ERR_UNSUPPORTED;
}

const struct eo_team_backend eo_team_cpu_backend = {.device = "cpu", .kernels = planned_cpu, .create = refuse_cpu};
