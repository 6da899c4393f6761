/* SPDX-License-Identifier: MIT
 *
 * Copies and kernels, on the compute queue. Failures are noted, and told by the next wait.
 */
#include "base/arithmetic.h"
#include "base/check.h"
#include "streams/cuda/kernels.h"
#include "streams/cuda/parts.h"

static cudaStream_t compute_of(const struct eo_device *device)
{
    return eo_cuda_of(device)->streams[EO_QUEUE_COMPUTE];
}

#define NOTE_LAUNCH(device, launch, operation)                       \
    do {                                                             \
        eo_cuda_clear_unread(&(device)->log, (device)->params.rank); \
        (void)eo_cuda_note((device), (launch), (operation));         \
    } while (0)

static void copy_bytes(struct eo_device *device, uint32_t queue, void *to, const void *from, uint64_t bytes,
                       enum cudaMemcpyKind kind, const char *operation)
{
    EO_ASSERT(queue < device->params.queue_count);
    if (bytes > 0 && to != from)
        (void)eo_cuda_note(device, cudaMemcpyAsync(to, from, bytes, kind, eo_cuda_of(device)->streams[queue]), operation);
}

void eo_cuda_upload(struct eo_device *device, void *to, const void *from_host, uint64_t bytes)
{
    copy_bytes(device, EO_QUEUE_COMPUTE, to, from_host, bytes, cudaMemcpyHostToDevice, "upload");
}

void eo_cuda_download(struct eo_device *device, void *to_host, const void *from, uint64_t bytes)
{
    copy_bytes(device, EO_QUEUE_COMPUTE, to_host, from, bytes, cudaMemcpyDeviceToHost, "download");
}

void eo_cuda_copy(struct eo_device *device, uint32_t queue, void *to, const void *from, uint64_t bytes)
{
    copy_bytes(device, queue, to, from, bytes, cudaMemcpyDeviceToDevice, "copy");
}

void eo_cuda_copy_host(struct eo_device *device, uint32_t queue, void *to, const void *from, uint64_t bytes, bool to_host,
                       struct eo_span *span)
{
    EO_ASSERT(queue < device->params.queue_count);
    eo_cuda_stamp(device, queue, &span->start_ns);
    (void)eo_cuda_note(device, cudaMemcpyAsync(to, from, bytes, to_host ? cudaMemcpyDeviceToHost : cudaMemcpyHostToDevice,
                                               eo_cuda_of(device)->streams[queue]),
                       to_host ? "a gradient to host memory" : "a shard from host memory");
    eo_cuda_stamp(device, queue, &span->end_ns);
}

void eo_cuda_zero(struct eo_device *device, void *memory, uint64_t bytes)
{
    if (bytes > 0)
        (void)eo_cuda_note(device, cudaMemsetAsync(memory, 0, bytes, compute_of(device)), "zero");
}

void eo_cuda_fill_memory(struct eo_device *device, void *memory, uint32_t pattern, uint64_t bytes)
{
    EO_ASSERT(bytes % sizeof(pattern) == 0);
    NOTE_LAUNCH(device, eo_cuda_fill(memory, pattern, bytes, compute_of(device)), "fill");
}

void eo_cuda_cast(struct eo_device *device, uint32_t queue, uint16_t *to, const float *from, uint64_t count)
{
    EO_ASSERT(queue < device->params.queue_count);
    NOTE_LAUNCH(device, eo_cuda_cast_bf16(to, from, count, eo_cuda_of(device)->streams[queue]), "cast to bf16");
}

void eo_cuda_add(struct eo_device *device, float *to, const void *from, eo_dtype dtype, bool overwrite,
                 uint64_t count)
{
    NOTE_LAUNCH(device, eo_cuda_accumulate(to, from, dtype, overwrite, count, compute_of(device)), "accumulate");
}

void eo_cuda_squares(struct eo_device *device, uint32_t queue, double *out, const float *values, uint64_t count,
                     struct eo_span *span)
{
    struct eo_cuda *cuda = eo_cuda_of(device);
    EO_ASSERT(queue < device->params.queue_count);
    if (span)
        eo_cuda_stamp(device, queue, &span->start_ns);
    NOTE_LAUNCH(device,
                eo_cuda_sum_squares(out, cuda->chunks + (size_t)queue * EO_SUM_CHUNKS_MAX, values, count, cuda->streams[queue]),
                "sum of squares");
    if (span)
        eo_cuda_stamp(device, queue, &span->end_ns);
}

void eo_cuda_add_squares(struct eo_device *device, double *out, float *to, const void *from, eo_dtype dtype,
                         bool overwrite, uint64_t count)
{
    NOTE_LAUNCH(
        device,
        eo_cuda_accumulate_sum_squares(out, eo_cuda_of(device)->chunks, to, from, dtype, overwrite, count, compute_of(device)),
        "accumulate, sum of squares");
}

void eo_cuda_local_norm(struct eo_device *device, double *out, const struct eo_norm_term *terms, uint32_t count,
                        const struct eo_step_memory *step, const double *device_values)
{
    NOTE_LAUNCH(device, eo_cuda_norm_local(out, terms, count, step, device_values, compute_of(device)), "norm of a rank");
}

void eo_cuda_sum_norms(struct eo_device *device, const double *gathered, uint32_t rank_count,
                       const struct eo_step_memory *step)
{
    NOTE_LAUNCH(device, eo_cuda_norm_sum(gathered, rank_count, step, compute_of(device)), "norm of all ranks");
}

void eo_cuda_update(struct eo_device *device, enum eo_rule rule, const struct eo_update_range *ranges,
                    uint32_t range_count, const struct eo_step_memory *step)
{
    for (uint32_t done = 0; done < range_count; done += EO_CUDA_UPDATE_RANGES) {
        const uint32_t left = range_count - done;
        const uint32_t count = left < EO_CUDA_UPDATE_RANGES ? left : (uint32_t)EO_CUDA_UPDATE_RANGES;
        NOTE_LAUNCH(device, eo_cuda_update_ranges(rule, ranges + done, count, step, compute_of(device)), "update");
    }
}

void eo_cuda_combine_all(struct eo_device *device, float *out, const float *a, float x, const float *b, float y,
                         const double *squares, uint64_t count)
{
    NOTE_LAUNCH(device, eo_cuda_combine(out, a, x, b, y, squares, count, compute_of(device)), "sum of matrices");
}

void eo_cuda_average_all(struct eo_device *device, const struct eo_average *average, enum eo_average_mode mode,
                         const struct eo_update_scalars *scalars, const struct eo_norm_result *norm)
{
    NOTE_LAUNCH(device, eo_cuda_average(average, mode, scalars, norm, compute_of(device)), "average of the weights");
}

_Static_assert((uint64_t)EO_CUDA_FLOAT8_RUNS * EO_CUDA_FLOAT8_PARTS * sizeof(uint32_t) <= EO_SUM_CHUNKS_MAX * sizeof(double),
               "the room for partial sums serves for parts of runs");

void eo_cuda_narrow_runs(struct eo_device *device, const struct eo_float8_run *runs, uint32_t run_count)
{
    uint32_t *parts = (uint32_t *)eo_cuda_of(device)->chunks;
    for (uint32_t done = 0; done < run_count; done += EO_CUDA_FLOAT8_RUNS)
        NOTE_LAUNCH(
            device,
            eo_cuda_narrow(runs + done, (uint32_t)eo_min_u64(run_count - done, EO_CUDA_FLOAT8_RUNS), parts, compute_of(device)),
            "weights to float8");
}

void eo_cuda_widen_runs(struct eo_device *device, const struct eo_float8_run *runs, uint32_t run_count)
{
    for (uint32_t done = 0; done < run_count; done += EO_CUDA_FLOAT8_RUNS)
        NOTE_LAUNCH(device,
                    eo_cuda_widen(runs + done, (uint32_t)eo_min_u64(run_count - done, EO_CUDA_FLOAT8_RUNS), compute_of(device)),
                    "weights from float8");
}

void eo_cuda_widen_mxfp8_runs(struct eo_device *device, const struct eo_mxfp8_run *runs, uint32_t run_count)
{
    for (uint32_t done = 0; done < run_count; done += EO_CUDA_FLOAT8_RUNS)
        NOTE_LAUNCH(
            device,
            eo_cuda_widen_mxfp8(runs + done, (uint32_t)eo_min_u64(run_count - done, EO_CUDA_FLOAT8_RUNS), compute_of(device)),
            "weights from MXFP8");
}
