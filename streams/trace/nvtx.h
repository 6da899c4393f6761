/* SPDX-License-Identifier: MIT
 *
 * Names for NVIDIA's profilers, where its header NVTX is there: streams, and ranges of the host's time in which an
 * operation was issued. Without a profiler a call is a test of a pointer.
 */
#ifndef EO_STREAMS_TRACE_NVTX_H
#define EO_STREAMS_TRACE_NVTX_H

void eo_nvtx_name_stream(void *stream, const char *name); /* a cudaStream_t */
void eo_nvtx_push(const char *name);
void eo_nvtx_pop(void);

#endif
