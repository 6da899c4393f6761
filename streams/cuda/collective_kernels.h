/* SPDX-License-Identifier: MIT
 *
 * The kernels of the local collectives on CUDA. C functions that launch them, so that C files call them, and
 * so that a build without a GPU can put others in their place.
 */
#ifndef EO_STREAMS_CUDA_COLLECTIVE_KERNELS_H
#define EO_STREAMS_CUDA_COLLECTIVE_KERNELS_H

#include <stdint.h>

#include <cuda_runtime_api.h>

enum { EO_CUDA_SUM_INPUTS_MAX = 64 };

#ifdef __cplusplus
extern "C" {
#endif

/* Loads the kernels on the current device: not in the middle of a capture. */
cudaError_t eo_cuda_sum_load(void);

/*
 * out[i] = in[0][i] + in[1][i] + ... in this order, in fp32; the same bits as the CPU's sum_fp32 and sum_bf16. bf16:
 * widened, summed, rounded once, to nearest with ties away from zero. `out` may be any of the inputs, but not shifted.
 * `in` is a host array of in_count device pointers, read during the call.
 */
cudaError_t eo_cuda_sum_fp32(float *out, const float *const *in, uint32_t in_count, uint64_t count,
                             cudaStream_t stream);
cudaError_t eo_cuda_sum_bf16(uint16_t *out, const uint16_t *const *in, uint32_t in_count, uint64_t count,
                             cudaStream_t stream);

#ifdef __cplusplus
}
#endif

#endif
