/* SPDX-License-Identifier: MIT
 *
 * Errors of a runtime, and memory of the device outside the plan.
 */
#include "runtime/internal.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/check.h"
#include "base/plain_text.h"
#include "eo_config.h"

/* Of the disk that steps need; "": it is well, and an EO_ERR_IO is of a file. */
static const char *disk_failure(const struct eo_runtime *rt)
{
    const struct eo_device *device = rt->device;
    return device && device->ops->storage_failure ? device->ops->storage_failure(device) : "";
}

/* Of a world's failure: in what two ranks at the norms of one step differ, by their labels (eo_norms_label). */
static const char *differing_norms(const char *failure)
{
    const char *mine = strstr(failure, EO_NORM_LABEL), *other = mine ? strstr(mine + 1, EO_NORM_LABEL) : NULL;
    const size_t step = mine ? strcspn(mine, ",") + 1 : 0;
    if (!other)
        return "";
    if (strncmp(mine, other, step) != 0)
        return "the ranks are at different steps (one alone loaded a checkpoint, or left a step out?): ";
    return strncmp(mine, other, step + strcspn(mine + step, ",")) != 0
               ? "the ranks gave eo_step_end different numbers (learning rate, betas, clip, groups ...): "
               : "before this step the ranks filled, wrote or loaded different weights (one rank alone?): ";
}

eo_status eo_runtime_fail(struct eo_runtime *rt, eo_status status, const char *format, ...)
{
    char *const text = rt->errors.text;
    rt->errors.count++;
    const size_t size = sizeof(rt->errors.text);
    const char *disk = status == EO_ERR_IO ? disk_failure(rt) : "";
    const size_t disk_bytes = disk[0] ? size / 2 : 0;
    va_list arguments;
    va_start(arguments, format);
    size_t used = (size_t)snprintf(text, size, "rank %u: ", rt->world->rank);
    used += eo_text_format(text + used, size - disk_bytes - used, format, arguments);
    va_end(arguments);
    if ((status == EO_ERR_COMM || status == EO_ERR_TIMEOUT) && used + 3 < size) {
        char failure[sizeof(rt->errors.text)];
        eo_world_failure(rt->world, failure, sizeof(failure));
        used += (size_t)snprintf(text + used, size - used, ": %s", differing_norms(failure));
        if (used < size)
            eo_world_failure(rt->world, text + used, size - used);
    }
    if (disk[0]) {
        used += (size_t)snprintf(text + used, size - used, ": ");
        (void)eo_text_fit(text + used, size - used, disk);
    }
    eo_log_write(&rt->log, EO_LOG_ERROR, "%s", text);
    if (status == EO_ERR_INVALID || status == EO_ERR_UNSUPPORTED) {
        if (EO_DEBUG_ABORT && status == EO_ERR_INVALID)
            eo_fatal("%s", text);
        return status;
    }
    rt->errors.is_not_finite = status == EO_ERR_NOT_FINITE;
    rt->cursor.phase = PHASE_FAILED;
    /* The others learn of it at once instead of waiting for this rank; all of them see a bad norm by themselves. Who cannot
     * read a checkpoint may have another one. */
    if (status == EO_ERR_NO_MEMORY || status == EO_ERR_DEVICE || disk[0])
        eo_world_abort(rt->world, text);
    return status;
}

/* Threads and devices are the parent's: what a forked child asks of them is never done. */
eo_status eo_runtime_check_process(struct eo_runtime *rt, const char *call)
{
    return rt->owner == getpid()
               ? EO_OK
               : eo_runtime_fail(rt, EO_ERR_INVALID, "%s: not in a forked child (process %d); the runtime is process %d's", call,
                                 (int)getpid(), (int)rt->owner);
}

eo_status eo_runtime_check_idle(struct eo_runtime *rt, const char *call)
{
    if (!rt)
        return EO_ERR_INVALID;
    EO_TRY(eo_runtime_check_process(rt, call));
    if (rt->cursor.phase == PHASE_FAILED)
        return eo_runtime_fail(rt, EO_ERR_INVALID, "%s: after an error only eo_runtime_destroy is possible", call);
    if (eo_cursor_caller(&rt->cursor))
        return eo_runtime_fail(rt, EO_ERR_INVALID, "%s: not from a callback of %s; call it when that has returned", call,
                               eo_cursor_caller(&rt->cursor));
    if (rt->cursor.phase != PHASE_IDLE)
        return eo_runtime_fail(rt, EO_ERR_INVALID, "%s works only between steps; end the step or evaluation first", call);
    return EO_OK;
}

const char *eo_runtime_error(const eo_runtime *runtime)
{
    return runtime ? runtime->errors.text : "";
}

/* The plan does not know of it. Ranks that share the device see each other's as well. */
void eo_runtime_log_outside(struct eo_runtime *rt, const char *what)
{
    uint64_t free_bytes = 0, total_bytes = 0;
    if (rt->device->ops->is_host_memory || rt->device->ops->available(rt->device, &free_bytes, &total_bytes) < 0)
        return;
    if (what && free_bytes < rt->memory.seen_free_bytes) {
        rt->stats.outside_bytes += rt->memory.seen_free_bytes - free_bytes;
        eo_log_write(&rt->log, EO_LOG_INFO, "rank %u: outside the plan: %.1f MiB of the device for %s", rt->world->rank,
                     (double)(rt->memory.seen_free_bytes - free_bytes) / (1 << 20), what);
    }
    rt->memory.seen_free_bytes = free_bytes;
}
