/* SPDX-License-Identifier: MIT
 *
 * The list of backends.
 */
#include <string.h>

#include "layers/checks.h"
#include "layers/kernel_ops.h"

static const struct eo_team_backend *const backends[] = {
    &eo_team_cpu_backend,
    &eo_team_cuda_backend,
};

const struct eo_team_backend *eo_team_backend_find(const char *device, const char **reason)
{
    const char *name = device ? device : "cpu";
    for (size_t i = 0; i < sizeof(backends) / sizeof(backends[0]); i++)
        if (strcmp(backends[i]->device, name) == 0)
            return backends[i];
    *reason = "devices are \"cpu\" and \"cuda\"";
    return NULL;
}

const struct eo_kernel_ops *eo_team_backend_kernels(const struct eo_team_backend *backend, eo_dtype compute,
                                                    eo_dtype gradient)
{
    const struct eo_types types = {compute, gradient};
    for (const struct eo_kernel_ops *const *kernels = backend->kernels; *kernels; kernels++)
        if ((*kernels)->supports(types))
            return *kernels;
    return NULL;
}

eo_status eo_team_product(void *team, const eo_matrix_product *p)
{
    if (!p)
        return EO_ERR_INVALID;
    const struct eo_kernel_ops *kernels = eo_team_backend_kernels(eo_team_backend_of(team), EO_DTYPE_FP32, EO_DTYPE_FP32);
    return kernels->multiply(team, &(struct eo_multiply){
        .c = p->c, .c_stride = p->n, .m = p->m, .n = p->n, .k = p->k, .accumulate = p->accumulate,
        .a = {p->a, p->transpose_a ? p->m : p->k, p->transpose_a},
        .b = {p->b, p->transpose_b ? p->k : p->n, p->transpose_b},
    });
}

eo_status eo_team_ask(const char *device, const eo_log *log)
{
    const char *reason = NULL;
    const struct eo_team_backend *backend = eo_team_backend_find(device, &reason);
    if (!backend) {
        eo_layers_log(log, EO_LOG_ERROR, "team: no device \"%s\": %s", device, reason);
        return EO_ERR_UNSUPPORTED;
    }
    return backend->load ? backend->load(log) : EO_OK;
}

eo_status eo_team_create_on(eo_team **out, const eo_team_params *params)
{
    if (!out)
        return EO_ERR_INVALID;
    *out = NULL;
    if (!params)
        return EO_ERR_INVALID;
    eo_team_params filled = *params;
    const char *reason = NULL;
    const struct eo_team_backend *backend = eo_team_backend_find(params->device, &reason);
    if (!backend) {
        eo_layers_log(params->log, EO_LOG_ERROR, "team: no device \"%s\": %s", params->device, reason);
        return EO_ERR_UNSUPPORTED;
    }
    filled.device = backend->device;
    if (filled.thread_count == 0)
        filled.thread_count = 1;
    return backend->create(out, &filled);
}
