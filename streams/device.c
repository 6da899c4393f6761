/* SPDX-License-Identifier: MIT */
#include "streams/device.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "eo_config.h"
#include "streams/cpu/device.h"
#if EO_HAVE_CUDA
#include "streams/cuda/state.h"
#endif

static const struct eo_device_ops *const device_table[] = { /* in order of preference */
    &eo_device_cpu_ops,
#if EO_HAVE_CUDA
    &eo_device_cuda_ops,
#endif
};

static const struct eo_device_ops *find_device(const char *name)
{
    for (size_t i = 0; i < sizeof(device_table) / sizeof(device_table[0]); i++) {
        if (strcmp(device_table[i]->name, name) == 0)
            return device_table[i];
    }
    return NULL;
}

bool eo_device_is_known(const char *name)
{
    return find_device(name) != NULL;
}

bool eo_device_is_host(const char *name)
{
    const struct eo_device_ops *ops = find_device(name);
    return ops && ops->is_host_memory;
}

const struct eo_profiler_ops *eo_device_profiler(const char *name)
{
    const struct eo_device_ops *ops = find_device(name);
    return ops && ops->profiler ? ops->profiler() : NULL;
}

static eo_status check_device(const eo_log *log, const struct eo_device_params *params)
{
    EO_REQUIRE(log, params->queue_count >= 1 && params->queue_count <= EO_QUEUES_MAX,
               "device: %u queues; it has 1 to %u, the compute queue included", params->queue_count,
               (unsigned)EO_QUEUES_MAX);
    EO_REQUIRE(log, params->queue_count == 1 || params->ring_capacity > 0,
               "device: ring_capacity is 0; give the number of items for one communication queue");
    EO_REQUIRE(log, params->rank < params->rank_count, "device: rank %u of %u; ranks are 0 ... rank_count - 1",
               params->rank, params->rank_count);
    return EO_OK;
}

eo_status eo_device_create(struct eo_device **out, const char *name, const struct eo_device_params *params)
{
    *out = NULL;
    const struct eo_device_ops *ops = find_device(name);
    if (!ops) {
        eo_log_write(params->log, EO_LOG_ERROR, "device '%s' is not built in; this build has 'cpu'%s", name,
                     EO_HAVE_CUDA ? " and 'cuda'" : " alone; for GPUs build with -Dcuda=enabled");
        return EO_ERR_UNSUPPORTED;
    }
    EO_TRY(check_device(params->log, params));
    struct eo_device *device = calloc(1, sizeof(*device));
    if (!device)
        return EO_ERR_NO_MEMORY;
    device->ops = ops;
    if (params->log)
        device->log = *params->log;
    device->params = *params;
    device->params.log = &device->log;
    const eo_status status = ops->init(device);
    if (status < 0)
        eo_device_destroy(&device);
    *out = device;
    return status;
}

void eo_device_destroy(struct eo_device **device)
{
    if (!*device)
        return;
    (*device)->ops->fini(*device);
    free(*device);
    *device = NULL;
}
