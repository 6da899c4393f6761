/* SPDX-License-Identifier: MIT
 *
 * streams/cuda/kernels.cu, with chunks of any length, and any number of them: by its own launches a chunk has a second tile
 * only from 2^26 elements on, and so many chunks that they fill one only from 2^24 elements on.
 */
#include "streams/cuda/kernels.cu"

extern "C" cudaError_t kernels_chunks(double *chunks, float *to, const float *from, bool overwrite, uint64_t count,
                                      uint64_t chunk)
{
    const unsigned blocks = (unsigned)((count + chunk - 1) / chunk);
    chunks_kernel<float><<<blocks, THREADS>>>(chunks, to, from, overwrite, count, chunk);
    return cudaGetLastError();
}

extern "C" cudaError_t kernels_sum_chunks(double *out, const double *chunks, uint32_t count)
{
    sum_chunks_kernel<<<1, THREADS>>>(out, chunks, count);
    return cudaGetLastError();
}
