/* SPDX-License-Identifier: MIT
 *
 * CUDA's errors as statuses: mapped here and nowhere else.
 */
#ifndef EO_STREAMS_CUDA_ERRORS_H
#define EO_STREAMS_CUDA_ERRORS_H

#include <cuda_runtime_api.h>

#include <evenodd/log.h>
#include <evenodd/status.h>

/*
 * Logs the error, with the rank and what was being done, and clears it, or the next, innocent call reports it again.
 *
 * EO_OK            cudaSuccess
 * EO_IN_PROGRESS   cudaErrorNotReady; not logged
 * EO_ERR_NO_MEMORY
 * EO_ERR_DEVICE    all others
 */
eo_status eo_cuda_status(const eo_log *log, uint32_t rank, cudaError_t error, const char *operation);

/* Before a launch, whose error is read as the thread's last one: what the program has left unread is not the launch's. It is
 * cleared, and told as a warning, for nobody can read it any more; "not ready" is not told. A sticky one comes again. */
void eo_cuda_clear_unread(const eo_log *log, uint32_t rank);

/* cudaEventQuery and cudaStreamQuery; "not ready" is an answer and no error, so it is cleared: the next launch would report
 * it as its own. */
cudaError_t eo_cuda_query_event(cudaEvent_t event);
cudaError_t eo_cuda_query_stream(cudaStream_t stream);

/* The error has made the context useless: every later call of this process gives it again. */
bool eo_cuda_is_sticky(cudaError_t error);

/* What the error means beyond itself, to stand after its text; empty if the process can go on. */
const char *eo_cuda_consequence(cudaError_t error);

#endif
