/* SPDX-License-Identifier: MIT
 *
 * Teams of a GPU: what is made once, at start.
 */
#include "layers/cuda/internal.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/library.h"
#include "layers/cuda/kernels.h"
#include "layers/kernel_ops.h"

/* What is missing, and what to do: the first thing a user meets on a machine without a GPU. */
static eo_status find_device(struct eo_cuda_team *team, const eo_team_params *params)
{
    int count = 0;
    const cudaError_t error = cudaGetDeviceCount(&count);
    const char *advice = NULL;
    if (error == cudaErrorInsufficientDriver)
        advice = "the NVIDIA driver is missing, or older than this build's CUDA; install or update it";
    else if (error == cudaErrorNoDevice || (error == cudaSuccess && count == 0))
        advice = "no GPU is available to this process; see nvidia-smi and CUDA_VISIBLE_DEVICES";
    else if (error != cudaSuccess)
        advice = cudaGetErrorString(error);
    if (advice) {
        eo_layers_log(&team->log, EO_LOG_ERROR, "cuda: no team on a GPU: %s; or use device \"cpu\"", advice);
        return EO_ERR_UNSUPPORTED;
    }
    team->device = (int)(params->device_index % (uint32_t)count); /* as worlds count */
    struct cudaDeviceProp properties;
    CUDA_TRY(team, cudaGetDeviceProperties(&properties, team->device), "cudaGetDeviceProperties");
    memcpy(team->device_name, properties.name, sizeof(team->device_name) - 1);
    team->is_hopper = properties.major == 9 && properties.minor == 0;
    CUDA_TRY(team, cudaSetDevice(team->device), "cudaSetDevice");
    return EO_OK;
}

/* Not at their first use: that may be in a capture, or between two collectives. */
static eo_status load_kernels(struct eo_cuda_team *team)
{
    CUDA_TRY(team, eo_cuda_load_elementwise(), "loading kernels (elementwise)");
    CUDA_TRY(team, eo_cuda_load_embeddings(), "loading kernels (embeddings)");
    CUDA_TRY(team, eo_cuda_load_float8_rows(), "loading kernels (float8)");
    CUDA_TRY(team, eo_cuda_load_head_norms(), "loading kernels (norms of heads)");
    CUDA_TRY(team, eo_cuda_load_losses(), "loading kernels (losses)");
    CUDA_TRY(team, eo_cuda_load_norms(), "loading kernels (norms)");
    CUDA_TRY(team, eo_cuda_load_softmax(), "loading kernels (softmax)");
    return EO_OK;
}

static eo_status make_handles(struct eo_cuda_team *team, const eo_team_params *params)
{
    team->stream = params->stream;
    if (!params->stream) { /* products are measured without a runtime */
        CUDA_TRY(team, cudaStreamCreateWithFlags(&team->stream, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
        team->owns_stream = true;
    }
    BLAS_TRY(team, cublasLtCreate(&team->blas), "cublasLtCreate (libcublasLt)");
    CUDA_TRY(team, cudaMalloc(&team->workspace, EO_CUDA_WORKSPACE_BYTES), "cudaMalloc of the products' workspace");
    team->plans = calloc(EO_CUDA_PLANS_MAX, sizeof(team->plans[0]));
    if (!team->plans)
        return EO_ERR_NO_MEMORY;
    if (params->plan_cache) {
        team->plan_cache = strdup(params->plan_cache);
        if (!team->plan_cache)
            return EO_ERR_NO_MEMORY;
    }
    eo_cuda_plans_read(team);
    return EO_OK;
}

static void cuda_team_destroy(eo_team *base)
{
    struct eo_cuda_team *team = eo_cuda_team_of(base);
    if (team->blas) /* else it failed before there was anything on the device */
        (void)cudaStreamSynchronize(team->stream);
    if (team->plans)
        eo_cuda_plans_write(team);
    eo_cuda_attentions_release(team);
    if (team->blas)
        (void)cublasLtDestroy(team->blas);
    if (team->workspace)
        (void)cudaFree(team->workspace);
    if (team->owns_stream)
        (void)cudaStreamDestroy(team->stream);
    free(team->plan_cache);
    free(team->plans);
    free(team);
}

static eo_status cuda_team_create(eo_team **out, const eo_team_params *params)
{
    struct eo_cuda_team *team = calloc(1, sizeof(*team));
    if (!team)
        return EO_ERR_NO_MEMORY;
    team->base.backend = &eo_team_cuda_backend;
    team->base.owner = getpid();
    team->repeatable = params->repeatable;
    if (params->log)
        team->log = *params->log;
    eo_status status = eo_library_has_loader() ? find_device(team, params) : EO_OK;
    if (status == EO_OK)
        status = eo_cublaslt_load(&team->log); /* refused in a static program, which must not ask for the driver */
    if (status == EO_OK)
        status = load_kernels(team);
    if (status == EO_OK)
        status = make_handles(team, params);
    if (status < 0) {
        cuda_team_destroy(&team->base);
        return status;
    }
    eo_layers_log(&team->log, EO_LOG_INFO, "cuda: device %d, %s; cuBLASLt %zu with %d MiB of workspace", team->device,
                  team->device_name, cublasLtGetVersion(), EO_CUDA_WORKSPACE_BYTES >> 20);
    *out = &team->base;
    return EO_OK;
}

static uint64_t cuda_team_memory_bytes(const eo_team *team)
{
    (void)team;
    return EO_CUDA_WORKSPACE_BYTES;
}

static const struct eo_kernel_ops *const cuda_kernels[] = {&eo_kernels_cuda_ops, NULL};

const struct eo_team_backend eo_team_cuda_backend = {
    .device = "cuda",
    .kernels = cuda_kernels,
    .load = eo_cublaslt_load,
    .create = cuda_team_create,
    .destroy = cuda_team_destroy,
    .memory_bytes = cuda_team_memory_bytes,
    .measure = eo_cuda_product_measure,
};
