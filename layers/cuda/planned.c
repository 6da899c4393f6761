/* SPDX-License-Identifier: MIT
 *
 * GPUs in a build without CUDA: a model for them is described and planned, with the bytes of any other build; nothing runs.
 */
#include "layers/checks.h"
#include "layers/cuda/scratch.h"
#include "layers/team.h"

static const struct eo_kernel_ops planned_ops = {EO_CUDA_PLANNED_OPS};
static const struct eo_kernel_ops *const planned_kernels[] = {&planned_ops, NULL};

static eo_status refuse(const eo_log *log)
{
    eo_layers_log(log, EO_LOG_ERROR, "team: no device \"cuda\": this build has no CUDA kernels; configure with -Dcuda=enabled "
                  "on a machine with the CUDA toolkit, or use \"cpu\"");
    return EO_ERR_UNSUPPORTED;
}

static eo_status refuse_team(eo_team **out, const eo_team_params *params)
{
    *out = NULL;
    return refuse(params->log);
}

const struct eo_team_backend eo_team_cuda_backend = {
    .device = "cuda", .kernels = planned_kernels, .load = refuse, .create = refuse_team};
