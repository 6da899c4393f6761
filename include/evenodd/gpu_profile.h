/* SPDX-License-Identifier: MIT
 *
 * What the GPUs of this process really ran: kernels, copies and fills, one by one, as NVIDIA's CUPTI tells them. Which
 * kernel of NCCL a collective became, or that it became none but copies, is known from here and from nowhere else.
 *
 *     create     loads CUPTI's library and begins to listen; from here on everything is slower
 *     stop       takes in what is still on its way; needs all work that is of interest to have ended
 *     get        the activities, after stop
 *
 * For the whole process, so one at a time; other profilers keep it away. A build without CUPTI's headers has it not.
 */
#ifndef EVENODD_GPU_PROFILE_H
#define EVENODD_GPU_PROFILE_H

#include <evenodd/common.h>
#include <evenodd/log.h>
#include <evenodd/status.h>

typedef struct eo_gpu_profile eo_gpu_profile;

typedef struct eo_gpu_profile_params {
    const char *library;       /* [CUPTI's own name, where the loader finds it] the file to load */
    uint32_t capacity;         /* [262144] activities that are kept: the latest */
    const eo_log *log;         /* [silence] copied */
} eo_gpu_profile_params;
#define eo_gpu_profile_params(...) EO_PARAMS(eo_gpu_profile_params, __VA_ARGS__)

typedef enum eo_gpu_activity_kind {
    EO_GPU_KERNEL,
    EO_GPU_COPY,      /* within a GPU, or between it and the host */
    EO_GPU_PEER_COPY, /* from one GPU to another */
    EO_GPU_FILL,
    EO_GPU_ACTIVITY_KIND_COUNT,
} eo_gpu_activity_kind;

typedef struct eo_gpu_activity {
    eo_gpu_activity_kind kind;
    const char *name;      /* of a kernel, as the linker knows it; else "copy", ... Lives as long as the profile */
    const char *operation; /* of the plan, in which it was issued; NULL: in none, or as part of a graph */
    uint64_t start_ns, end_ns; /* of the clock of eo_timeline_record */
    uint32_t device, stream;   /* CUPTI's number of the stream */
    uint32_t grid[3], block[3];
    uint64_t bytes;            /* of copies and fills */
    bool in_graph;
} eo_gpu_activity;

#ifdef __cplusplus
extern "C" {
#endif

/* EO_ERR_UNSUPPORTED: this build or this machine has no CUPTI, or a wrong one, or it is in use or not allowed: logged. */
#define eo_gpu_profile_create EO_OF_API(eo_gpu_profile_create)
EO_EXPORT EO_NODISCARD eo_status eo_gpu_profile_create(eo_gpu_profile **out, const eo_gpu_profile_params *params);
/* EO_ERR_DEVICE: not everything could be taken in: logged. */
EO_EXPORT EO_NODISCARD eo_status eo_gpu_profile_stop(eo_gpu_profile *profile);
/* How many there are; `lost`, which may be NULL: how many more there were. 0 before stop. */
EO_EXPORT uint64_t eo_gpu_profile_count(const eo_gpu_profile *profile, uint64_t *lost);
/* In no certain order. EO_ERR_INVALID: past the last. */
EO_EXPORT EO_NODISCARD eo_status eo_gpu_profile_get(const eo_gpu_profile *profile, uint64_t index, eo_gpu_activity *out);
/* Stops, where that was not done. */
EO_EXPORT void eo_gpu_profile_destroy(eo_gpu_profile **profile);

#ifdef __cplusplus
}
#endif

#endif
