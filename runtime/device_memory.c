/* SPDX-License-Identifier: MIT
 *
 * A look at a device before anything is reserved on it.
 */
#include "base/check.h"
#include "runtime/world/internal.h"
#include "streams/device.h"

eo_status eo_device_ask(eo_device_facts *out, const char *device, uint32_t device_index, const eo_log *log)
{
    if (!out)
        return EO_ERR_INVALID;
    *out = (eo_device_facts){0};
    struct eo_device *opened = NULL;
    EO_TRY(eo_device_create(&opened, device ? device : "cpu", &(struct eo_device_params){
        .queue_count = 1, .rank_count = 1, .device_index = device_index, .log = log}));
    const eo_status status = opened->ops->available(opened, &out->free_bytes, &out->total_bytes);
    out->device_count = opened->count ? opened->count : 1;
    eo_device_destroy(&opened);
    return status;
}
