/* SPDX-License-Identifier: MIT
 *
 * The runtime's own kernels, as C functions that launch them on a stream. Pointers are device memory unless said
 * otherwise; any count, 0 included; any alignment of the element, the vectors' own is faster. Results have the bits of
 * the CPU device's: the same IEEE operations in the same order, nothing fused, sums as streams/sum_order.h says.
 */
#ifndef EO_STREAMS_CUDA_KERNELS_H
#define EO_STREAMS_CUDA_KERNELS_H

#include <cuda_runtime_api.h>

#include "streams/device.h"
#include "streams/sum_order.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Loads every kernel on the current device: not loaded lazily, in the middle of a capture or between collectives.
 * cudaErrorNoKernelImageForDevice where none was built for its architecture. */
cudaError_t eo_cuda_kernels_load(void);

/* memory[i] = pattern, for bytes / 4 words */
cudaError_t eo_cuda_fill(void *memory, uint32_t pattern, uint64_t bytes, cudaStream_t stream);

/* to[i] = the bf16 nearest to from[i], ties away from zero, NaN stays NaN */
cudaError_t eo_cuda_cast_bf16(uint16_t *to, const float *from, uint64_t count, cudaStream_t stream);

/* to[i] += from[i], or = where `overwrite` */
cudaError_t eo_cuda_accumulate(float *to, const void *from, eo_dtype dtype, bool overwrite, uint64_t count,
                               cudaStream_t stream);

/* *out = sum of squares of values; chunks: room for EO_SUM_CHUNKS_MAX partial sums */
cudaError_t eo_cuda_sum_squares(double *out, double *chunks, const float *values, uint64_t count, cudaStream_t stream);

/* Both: accumulate, then the sum of squares of `to`. */
cudaError_t eo_cuda_accumulate_sum_squares(double *out, double *chunks, float *to, const void *from, eo_dtype dtype,
                                           bool overwrite, uint64_t count, cudaStream_t stream);

/* See eo_device_ops. `terms` is a host array, copied by the call. */
cudaError_t eo_cuda_norm_local(double *out, const struct eo_norm_term *terms, uint32_t count,
                               const struct eo_step_memory *step, const double *device_values, cudaStream_t stream);
cudaError_t eo_cuda_norm_sum(const double *gathered, uint32_t rank_count, const struct eo_step_memory *step,
                             cudaStream_t stream);

/* One launch: at most EO_CUDA_UPDATE_RANGES ranges; `ranges` is a host array, copied by the call. */
enum { EO_CUDA_UPDATE_RANGES = 48 };
cudaError_t eo_cuda_update_ranges(enum eo_rule rule, const struct eo_update_range *ranges, uint32_t range_count,
                                  const struct eo_step_memory *step, cudaStream_t stream);
/* state8.cu: of EO_RULE_ADAMW8BIT, as eo_cuda_update_ranges calls it. */
cudaError_t eo_cuda_state8_load(void); /* as eo_cuda_kernels_load */
cudaError_t eo_cuda_update_blocks(const struct eo_update_range *ranges, uint32_t range_count, const struct eo_step_memory *step,
                                  cudaStream_t stream);
cudaError_t eo_cuda_combine(float *out, const float *a, float x, const float *b, float y, const double *squares, uint64_t count,
                            cudaStream_t stream);
cudaError_t eo_cuda_average(const struct eo_average *average, enum eo_average_mode mode, const struct eo_update_scalars *scalars,
                            const struct eo_norm_result *norm, cudaStream_t stream);

/* float8.cu; at most EO_CUDA_FLOAT8_RUNS runs, host arrays, copied by the calls. `parts`: room for EO_CUDA_FLOAT8_PARTS words
 * a run. A run without elements gets no scale. */
enum { EO_CUDA_FLOAT8_RUNS = 48, EO_CUDA_FLOAT8_PARTS = 64 };
cudaError_t eo_cuda_float8_load(void); /* as eo_cuda_kernels_load */
cudaError_t eo_cuda_narrow(const struct eo_float8_run *runs, uint32_t run_count, uint32_t *parts, cudaStream_t stream);
cudaError_t eo_cuda_widen(const struct eo_float8_run *runs, uint32_t run_count, cudaStream_t stream);
cudaError_t eo_cuda_widen_mxfp8(const struct eo_mxfp8_run *runs, uint32_t run_count, cudaStream_t stream);

#ifdef __cplusplus
}
#endif

#endif
