/* SPDX-License-Identifier: MIT
 *
 * CUPTI, NVIDIA's profiling library: loaded when it is asked for, and never linked. It fills buffers of ours with records,
 * and hands them back on a thread of its own, or in a flush; from there they go into the log of activities.
 *
 * Its callbacks carry no pointer of the user's, so what they need is this file's own, for the whole process; CUPTI has one
 * user at a time anyway. Once loaded the library stays: it cannot be taken out again while CUDA is in use.
 */
#include "streams/trace/cupti.h"

#if defined(__has_include)
#if __has_include(<cupti.h>)
#define EO_HAS_CUPTI 1
#endif
#endif

#if defined(EO_HAS_CUPTI)

#include <cupti.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/check.h"
#include "base/library.h"
#include "base/log.h"
#include "eo_config.h"
#include "streams/device.h"

/* Newer libraries only append to their records. */
#if CUPTI_API_VERSION >= 130000
typedef CUpti_ActivityKernel10 kernel_record;
#else
typedef CUpti_ActivityKernel9 kernel_record;
#endif

enum { BUFFER_COUNT = 16, BUFFER_BYTES = 1 << 20, BUFFER_ALIGNMENT = 64 };

#define FUNCTIONS(X)                                                                                                  \
    X(cuptiGetVersion)                                                                                                \
    X(cuptiGetResultString)                                                                                           \
    X(cuptiActivityRegisterCallbacks)                                                                                 \
    X(cuptiActivityRegisterTimestampCallback)                                                                         \
    X(cuptiActivityEnable)                                                                                            \
    X(cuptiActivityDisable)                                                                                           \
    X(cuptiActivityFlushAll)                                                                                          \
    X(cuptiActivityGetNextRecord)                                                                                     \
    X(cuptiActivityGetNumDroppedRecords)                                                                              \
    X(cuptiActivityPushExternalCorrelationId)                                                                         \
    X(cuptiActivityPopExternalCorrelationId)

static struct {
#define DECLARE(name) __typeof__(&name) name;
    FUNCTIONS(DECLARE)
#undef DECLARE
} cupti;

static atomic_bool is_listening;
static pthread_mutex_t listener_mutex = PTHREAD_MUTEX_INITIALIZER;
static struct eo_activities *activities; /* NULL: nobody listens; what comes late is thrown away */

static void set_listener(struct eo_activities *listener)
{
    pthread_mutex_lock(&listener_mutex);
    activities = listener;
    pthread_mutex_unlock(&listener_mutex);
}

/* Runtime and driver calls are what names of operations hang on; their own records are thrown away. */
static const CUpti_ActivityKind kinds[] = {
    CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION, CUPTI_ACTIVITY_KIND_RUNTIME, CUPTI_ACTIVITY_KIND_DRIVER,
    CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL,    CUPTI_ACTIVITY_KIND_MEMCPY,  CUPTI_ACTIVITY_KIND_MEMCPY2,
    CUPTI_ACTIVITY_KIND_MEMSET,
};
enum { KIND_COUNT = sizeof(kinds) / sizeof(kinds[0]) };

/* -- buffers -------------------------------------------------------------------------------------------------------- */

static pthread_mutex_t buffers_mutex = PTHREAD_MUTEX_INITIALIZER;
static uint8_t *free_buffers[BUFFER_COUNT];
static uint32_t free_buffer_count, buffer_count;

static void CUPTIAPI give_buffer(uint8_t **buffer, size_t *size, size_t *record_count)
{
    pthread_mutex_lock(&buffers_mutex);
    *buffer = free_buffer_count ? free_buffers[--free_buffer_count] : NULL; /* none: CUPTI counts what it drops */
    pthread_mutex_unlock(&buffers_mutex);
    *size = *buffer ? BUFFER_BYTES : 0;
    *record_count = 0; /* as many as fit */
}

static void add_kernel(const kernel_record *record)
{
    eo_activities_add(activities, &(const struct eo_activity){
        .kind = EO_ACTIVITY_KERNEL, .name = record->name, .start_ns = record->start, .end_ns = record->end,
        .device = record->deviceId, .stream = record->streamId, .correlation = record->correlationId,
        .grid = {(uint32_t)record->gridX, (uint32_t)record->gridY, (uint32_t)record->gridZ},
        .block = {(uint32_t)record->blockX, (uint32_t)record->blockY, (uint32_t)record->blockZ},
        .in_graph = record->graphNodeId != 0});
}

/* Copies and fills begin with the same members but one; a name and a kind each. */
#define ADD_TRANSFER(record, what, text)                                                                              \
    eo_activities_add(activities, &(const struct eo_activity){                                                        \
        .kind = (what), .name = (text), .start_ns = (record)->start, .end_ns = (record)->end,                         \
        .device = (record)->deviceId, .stream = (record)->streamId, .correlation = (record)->correlationId,           \
        .bytes = (record)->bytes, .in_graph = (record)->graphNodeId != 0})

static void add_copy(const CUpti_ActivityMemcpy5 *record)
{
    const char *name = record->copyKind == CUPTI_ACTIVITY_MEMCPY_KIND_HTOD   ? "copy from the host"
                       : record->copyKind == CUPTI_ACTIVITY_MEMCPY_KIND_DTOH ? "copy to the host"
                                                                             : "copy";
    ADD_TRANSFER(record, EO_ACTIVITY_COPY, name);
}

static void add_record(const CUpti_Activity *record)
{
    switch ((int)record->kind) {
    case CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL:
    case CUPTI_ACTIVITY_KIND_KERNEL: add_kernel((const kernel_record *)record); break;
    case CUPTI_ACTIVITY_KIND_MEMCPY: add_copy((const CUpti_ActivityMemcpy5 *)record); break;
    case CUPTI_ACTIVITY_KIND_MEMCPY2:
        ADD_TRANSFER((const CUpti_ActivityMemcpyPtoP4 *)record, EO_ACTIVITY_PEER_COPY, "copy between GPUs");
        break;
    case CUPTI_ACTIVITY_KIND_MEMSET:
        ADD_TRANSFER((const CUpti_ActivityMemset4 *)record, EO_ACTIVITY_FILL, "fill");
        break;
    case CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION: {
        const CUpti_ActivityExternalCorrelation *link = (const CUpti_ActivityExternalCorrelation *)record;
        if (link->externalKind == CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0 && link->externalId)
            eo_activities_add_link(activities, link->correlationId, (const char *)(uintptr_t)link->externalId);
        break;
    }
    default: break;
    }
}

static void CUPTIAPI take_buffer(CUcontext context, uint32_t stream, uint8_t *buffer, size_t size, size_t valid_bytes)
{
    CUpti_Activity *record = NULL;
    size_t dropped = 0;
    (void)size;
    pthread_mutex_lock(&listener_mutex);
    while (activities && valid_bytes && cupti.cuptiActivityGetNextRecord(buffer, valid_bytes, &record) == CUPTI_SUCCESS)
        add_record(record);
    if (activities && cupti.cuptiActivityGetNumDroppedRecords(context, stream, &dropped) == CUPTI_SUCCESS && dropped)
        eo_activities_add_lost(activities, dropped);
    pthread_mutex_unlock(&listener_mutex);
    pthread_mutex_lock(&buffers_mutex);
    free_buffers[free_buffer_count++] = buffer;
    pthread_mutex_unlock(&buffers_mutex);
}

/* Once made they stay: CUPTI may hold some for as long as the process lives. */
static eo_status make_buffers(void)
{
    for (; buffer_count < BUFFER_COUNT; buffer_count++) {
        uint8_t *buffer = aligned_alloc(BUFFER_ALIGNMENT, BUFFER_BYTES);
        if (!buffer)
            return EO_ERR_NO_MEMORY;
        free_buffers[free_buffer_count++] = buffer;
    }
    return EO_OK;
}

/* -- the library ---------------------------------------------------------------------------------------------------- */

static eo_status refuse(const eo_log *log, CUptiResult result, const char *call)
{
    const char *text = NULL;
    (void)cupti.cuptiGetResultString(result, &text);
    eo_log_write(log, EO_LOG_ERROR, "CUPTI: %s: %s (%d)%s", call, text ? text : "failed", (int)result,
                 result == CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED
                     ? ": another profiler is running; run without it"
                 : result == CUPTI_ERROR_INSUFFICIENT_PRIVILEGES
                     ? ": the driver restricts profiling to administrators; see NVreg_RestrictProfilingToAdminUsers"
                     : "");
    return EO_ERR_UNSUPPORTED;
}

static eo_status load(const char *library, const eo_log *log)
{
    char usual[32], problem[600], other[600];
    (void)snprintf(usual, sizeof(usual), "libcupti.so.%d", CUDA_VERSION / 1000);
    void *handle = eo_library_open(library ? library : usual, library ? NULL : EO_CUDA_FOLDER, RTLD_NOW | RTLD_LOCAL, problem,
                                   sizeof(problem));
    if (!handle && !library)
        handle = eo_library_open("libcupti.so", NULL, RTLD_NOW | RTLD_LOCAL, other, sizeof(other));
    if (!handle) {
        eo_log_write(log, EO_LOG_ERROR, "CUPTI: cannot load %s: %s; it comes with CUDA's toolkit: add its folder to "
                     "LD_LIBRARY_PATH, or name the file", library ? library : usual, problem);
        return EO_ERR_UNSUPPORTED;
    }
#define FIND(name)                                                                                                    \
    *(void **)&cupti.name = dlsym(handle, #name);                                                                     \
    if (!cupti.name) {                                                                                                \
        eo_log_write(log, EO_LOG_ERROR, "CUPTI: %s has no %s; it is another library, or too old",                     \
                     library ? library : usual, #name);                                                               \
        return EO_ERR_UNSUPPORTED;                                                                                    \
    }
    FUNCTIONS(FIND)
#undef FIND
    uint32_t version = 0;
    const CUptiResult result = cupti.cuptiGetVersion(&version);
    if (result != CUPTI_SUCCESS)
        return refuse(log, result, "cuptiGetVersion");
    if (version < CUPTI_API_VERSION) {
        eo_log_write(log, EO_LOG_ERROR, "CUPTI: the library has version %u, but this build is for %u, with other records; use "
                     "the library of this build's toolkit", version, CUPTI_API_VERSION);
        return EO_ERR_UNSUPPORTED;
    }
    eo_log_write(log, EO_LOG_INFO, "CUPTI: version %u (built for %u)", version, CUPTI_API_VERSION);
    return EO_OK;
}

static eo_status listen(const eo_log *log)
{
    CUptiResult result = cupti.cuptiActivityRegisterCallbacks(give_buffer, take_buffer);
    if (result != CUPTI_SUCCESS)
        return refuse(log, result, "cuptiActivityRegisterCallbacks");
    result = cupti.cuptiActivityRegisterTimestampCallback(eo_now_ns); /* so that times are those of the timeline */
    if (result != CUPTI_SUCCESS)
        return refuse(log, result, "cuptiActivityRegisterTimestampCallback");
    for (int k = 0; k < KIND_COUNT; k++) {
        result = cupti.cuptiActivityEnable(kinds[k]);
        if (result == CUPTI_SUCCESS)
            continue;
        while (k-- > 0)
            (void)cupti.cuptiActivityDisable(kinds[k]);
        return refuse(log, result, "cuptiActivityEnable");
    }
    return EO_OK;
}

static eo_status profiler_start(struct eo_activities *into, const char *library, const eo_log *log)
{
    if (atomic_load(&is_listening)) {
        eo_log_write(log, EO_LOG_ERROR, "CUPTI: a profile of this process is already under way; run one at a time");
        return EO_ERR_UNSUPPORTED;
    }
    EO_TRY(load(library, log));
    EO_TRY(make_buffers());
    set_listener(into);
    const eo_status status = listen(log);
    if (status < 0)
        set_listener(NULL);
    atomic_store(&is_listening, status >= 0);
    return status;
}

static eo_status profiler_stop(void)
{
    if (!atomic_exchange(&is_listening, false))
        return EO_OK;
    CUptiResult result = cupti.cuptiActivityFlushAll(0);
    for (int k = 0; k < KIND_COUNT; k++)
        (void)cupti.cuptiActivityDisable(kinds[k]);
    const CUptiResult rest = cupti.cuptiActivityFlushAll(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED); /* half-full buffers too */
    set_listener(NULL);
    if (result == CUPTI_SUCCESS)
        result = rest;
    return result == CUPTI_SUCCESS ? EO_OK : EO_ERR_DEVICE;
}

void eo_cuda_profiler_push(const char *name)
{
    if (atomic_load_explicit(&is_listening, memory_order_relaxed))
        (void)cupti.cuptiActivityPushExternalCorrelationId(CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0,
                                                           (uint64_t)(uintptr_t)name);
}

void eo_cuda_profiler_pop(void)
{
    uint64_t last;
    if (atomic_load_explicit(&is_listening, memory_order_relaxed))
        (void)cupti.cuptiActivityPopExternalCorrelationId(CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0, &last);
}

void eo_cuda_profiler_flush(void)
{
    if (atomic_load(&is_listening))
        (void)cupti.cuptiActivityFlushAll(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED);
}

const struct eo_profiler_ops *eo_cuda_profiler(void)
{
    static const struct eo_profiler_ops ops = {.start = profiler_start, .stop = profiler_stop};
    return &ops;
}

#else

const struct eo_profiler_ops *eo_cuda_profiler(void)
{
    return NULL;
}

void eo_cuda_profiler_push(const char *name)
{
}

void eo_cuda_profiler_pop(void)
{
}

void eo_cuda_profiler_flush(void)
{
}

#endif
