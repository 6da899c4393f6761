/* SPDX-License-Identifier: MIT */
#ifndef EO_STREAMS_TRACE_CUPTI_H
#define EO_STREAMS_TRACE_CUPTI_H

#include "streams/trace/activity.h"

const struct eo_profiler_ops *eo_cuda_profiler(void); /* NULL: CUPTI's header was not there */

/* What the calling thread issues from now on belongs to `name`, which stays until a flush. Nothing without a profiler. */
void eo_cuda_profiler_push(const char *name);
void eo_cuda_profiler_pop(void);
/* Names that were pushed are about to go. */
void eo_cuda_profiler_flush(void);

#endif
