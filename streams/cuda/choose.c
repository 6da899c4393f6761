/* SPDX-License-Identifier: MIT
 *
 * Which GPU, and whether this build runs on it. Every way in which it may not has a text of its own, and is
 * EO_ERR_UNSUPPORTED: nothing is broken, and nothing was begun.
 */
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/library.h"
#include "eo_config.h"
#include "streams/cuda/kernels.h"
#include "streams/cuda/parts.h"

static int major_of(int version)
{
    return version / 1000;
}

static int minor_of(int version)
{
    return version % 1000 / 10;
}

static eo_status count_devices(const struct eo_device *device, int *count)
{
    const eo_log *log = &device->log;
    int driver = 0, runtime = 0;
    *count = 0;
    if (!eo_library_has_loader()) {
        eo_log_write(log, EO_LOG_ERROR,
                     "rank %u: device cuda: this program is linked statically, and loads no driver. Link it dynamically, or use "
                     "device cpu",
                     device->params.rank);
        return EO_ERR_UNSUPPORTED;
    }
    (void)cudaDriverGetVersion(&driver); /* 0: there is none */
    (void)cudaRuntimeGetVersion(&runtime);
    const cudaError_t error = cudaGetDeviceCount(count);
    if (error != cudaSuccess)
        (void)cudaGetLastError();
    if (driver == 0) {
        eo_log_write(log, EO_LOG_ERROR,
                     "rank %u: device cuda: this machine has no NVIDIA driver (libcuda.so.1). Install one for CUDA "
                     "%d.%d or newer, or use device cpu",
                     device->params.rank, major_of(runtime), minor_of(runtime));
        return EO_ERR_UNSUPPORTED;
    }
    if (error == cudaErrorInsufficientDriver) {
        eo_log_write(log, EO_LOG_ERROR,
                     "rank %u: device cuda: the driver supports CUDA up to %d.%d, but this build needs %d.%d. Install a newer "
                     "driver, or build with an older CUDA",
                     device->params.rank, major_of(driver), minor_of(driver), major_of(runtime), minor_of(runtime));
        return EO_ERR_UNSUPPORTED;
    }
    if (error == cudaErrorNoDevice || (error == cudaSuccess && *count == 0)) {
        eo_log_write(log, EO_LOG_ERROR,
                     "rank %u: device cuda: the driver (CUDA %d.%d) finds no GPU. Check nvidia-smi and CUDA_VISIBLE_DEVICES",
                     device->params.rank, major_of(driver), minor_of(driver));
        return EO_ERR_UNSUPPORTED;
    }
    return eo_cuda_status(log, device->params.rank, error, "cudaGetDeviceCount");
}

/* The kernels are loaded here, and not lazily: in a capture or between collectives that may stop everything. */
static eo_status load_kernels(struct eo_device *device, int major, int minor)
{
    const struct eo_cuda *cuda = eo_cuda_of(device);
    cudaError_t error = eo_cuda_kernels_load();
    error = error == cudaSuccess ? eo_cuda_float8_load() : error;
    error = error == cudaSuccess ? eo_cuda_state8_load() : error;
    if (error == cudaErrorNoKernelImageForDevice || error == cudaErrorInvalidDeviceFunction) {
        (void)cudaGetLastError();
        eo_log_write(&device->log, EO_LOG_ERROR,
                     "rank %u: device cuda: GPU %d (%s) has compute capability %d.%d, but this build is for sm_%s. Build with "
                     "-Dgpu_archs=%d%d, or with -Dgpu_archs=all",
                     device->params.rank, cuda->device, cuda->name, major, minor, EO_GPU_ARCHS, major, minor);
        return EO_ERR_UNSUPPORTED;
    }
    return eo_cuda_status(&device->log, device->params.rank, error, "loading the kernels");
}

eo_status eo_cuda_choose(struct eo_device *device)
{
    struct eo_cuda *cuda = eo_cuda_of(device);
    const uint32_t rank = device->params.rank;
    int count = 0, major = 0, minor = 0, driver = 0, runtime = 0;
    EO_TRY(count_devices(device, &count));
    cuda->device = (int)(device->params.device_index % (uint32_t)count);
    device->count = (uint32_t)count;

    struct cudaDeviceProp properties;
    memset(&properties, 0, sizeof(properties));
    cuda->context_before = eo_cuda_context();
    EO_CUDA_TRY(device, "cudaSetDevice", cudaSetDevice(cuda->device));
    EO_CUDA_TRY(device, "cudaGetDeviceProperties", cudaGetDeviceProperties(&properties, cuda->device));
    EO_CUDA_TRY(device, "cudaDeviceGetAttribute",
                cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, cuda->device));
    EO_CUDA_TRY(device, "cudaDeviceGetAttribute",
                cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, cuda->device));
    (void)snprintf(cuda->name, sizeof(cuda->name), "%.63s", properties.name);
    EO_TRY(load_kernels(device, major, minor));

    uint64_t free_bytes = 0, total_bytes = 0;
    EO_TRY(eo_cuda_available(device, &free_bytes, &total_bytes));
    cuda->used_at_start_bytes = total_bytes - free_bytes;
    (void)cudaDriverGetVersion(&driver);
    (void)cudaRuntimeGetVersion(&runtime);
    eo_log_write(&device->log, EO_LOG_INFO,
                 "rank %u: device cuda, GPU %d of %d: %s, compute capability %d.%d, %.1f GiB, CUDA %d.%d, driver for "
                 "%d.%d",
                 rank, cuda->device, count, cuda->name, major, minor, (double)total_bytes / (1 << 30),
                 major_of(runtime), minor_of(runtime), major_of(driver), minor_of(driver));
    eo_log_write(&device->log, EO_LOG_INFO,
                 "rank %u: outside the plan: %.0f MiB of the GPU were in use before the first reservation (CUDA's context, the "
                 "kernels, other processes)",
                 rank, (double)cuda->used_at_start_bytes / (1 << 20));
    return EO_OK;
}
