/* SPDX-License-Identifier: MIT */
#include <evenodd/gpu_profile.h>

#include <stdlib.h>

#include "base/check.h"
#include "base/log.h"
#include "streams/trace/activity.h"
#include "streams/device.h"

_Static_assert((int)EO_GPU_KERNEL == (int)EO_ACTIVITY_KERNEL && (int)EO_GPU_COPY == (int)EO_ACTIVITY_COPY &&
                   (int)EO_GPU_PEER_COPY == (int)EO_ACTIVITY_PEER_COPY && (int)EO_GPU_FILL == (int)EO_ACTIVITY_FILL,
               "kinds of activities are the same outside and inside");

enum { CAPACITY_DEFAULT = 1 << 18 };

struct eo_gpu_profile {
    const struct eo_profiler_ops *ops;
    struct eo_activities activities;
    bool has_activities, is_running, is_complete;
    eo_log log;
};

static eo_status start(eo_gpu_profile *profile, const eo_gpu_profile_params *params)
{
    profile->ops = eo_device_profiler("cuda");
    if (!profile->ops) {
        eo_log_write(&profile->log, EO_LOG_ERROR, "this build cannot report GPU activity: %s",
                     eo_device_is_known("cuda") ? "it was built without CUPTI's header (cupti.h of CUDA's toolkit)"
                                                : "it has no CUDA");
        return EO_ERR_UNSUPPORTED;
    }
    profile->has_activities = true;
    EO_TRY(eo_activities_init(&profile->activities, params->capacity ? params->capacity : CAPACITY_DEFAULT));
    EO_TRY(profile->ops->start(&profile->activities, params->library, &profile->log));
    profile->is_running = true;
    return EO_OK;
}

eo_status eo_gpu_profile_create(eo_gpu_profile **out, const eo_gpu_profile_params *params)
{
    if (!out)
        return EO_ERR_INVALID;
    *out = NULL;
    const eo_gpu_profile_params none = {0};
    eo_gpu_profile *profile = calloc(1, sizeof(*profile));
    if (!profile)
        return EO_ERR_NO_MEMORY;
    params = params ? params : &none;
    profile->log = params->log ? *params->log : (eo_log){0};
    const eo_status status = start(profile, params);
    if (status < 0)
        eo_gpu_profile_destroy(&profile);
    *out = profile;
    return status;
}

static eo_status stop(eo_gpu_profile *profile)
{
    if (!profile->is_running)
        return EO_OK;
    profile->is_running = false;
    const eo_status status = profile->ops->stop();
    eo_activities_link(&profile->activities);
    profile->is_complete = true;
    if (status < 0)
        eo_log_write(&profile->log, EO_LOG_ERROR, "CUPTI did not deliver all of its records; the report is incomplete");
    return status;
}

eo_status eo_gpu_profile_stop(eo_gpu_profile *profile)
{
    return profile ? stop(profile) : EO_ERR_INVALID;
}

uint64_t eo_gpu_profile_count(const eo_gpu_profile *profile, uint64_t *lost)
{
    if (lost)
        *lost = 0;
    if (!profile || !profile->is_complete)
        return 0;
    const struct eo_activities *log = &profile->activities;
    const uint64_t kept = log->count < log->capacity ? log->count : log->capacity;
    if (lost)
        *lost = log->lost + log->count - kept;
    return kept;
}

eo_status eo_gpu_profile_get(const eo_gpu_profile *profile, uint64_t index, eo_gpu_activity *out)
{
    if (!out || index >= eo_gpu_profile_count(profile, NULL))
        return EO_ERR_INVALID;
    const struct eo_activity *activity = &profile->activities.entries[index];
    *out = (eo_gpu_activity){
        .kind = (eo_gpu_activity_kind)activity->kind, .name = activity->name, .operation = activity->operation,
        .start_ns = activity->start_ns, .end_ns = activity->end_ns, .device = activity->device,
        .stream = activity->stream, .bytes = activity->bytes, .in_graph = activity->in_graph,
        .grid = {activity->grid[0], activity->grid[1], activity->grid[2]},
        .block = {activity->block[0], activity->block[1], activity->block[2]},
    };
    return EO_OK;
}

void eo_gpu_profile_destroy(eo_gpu_profile **profile)
{
    if (!profile || !*profile)
        return;
    if ((*profile)->is_running)
        (void)stop(*profile);
    if ((*profile)->has_activities)
        eo_activities_fini(&(*profile)->activities);
    free(*profile);
    *profile = NULL;
}
