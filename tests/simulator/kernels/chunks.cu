/* SPDX-License-Identifier: MIT
 *
 * streams/cuda/kernels.cu, with chunks of any length: by its own launches one has a second tile only from 2^26 elements on.
 */
#include "streams/cuda/kernels.cu"

extern "C" cudaError_t kernels_chunks(double *chunks, float *to, const float *from, bool overwrite, uint64_t count,
                                      uint64_t chunk)
{
    const unsigned blocks = (unsigned)((count + chunk - 1) / chunk);
    chunks_kernel<float><<<blocks, THREADS>>>(chunks, to, from, overwrite, count, chunk);
    return cudaGetLastError();
}
