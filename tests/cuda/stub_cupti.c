/* SPDX-License-Identifier: MIT
 *
 * A CUPTI that makes its records up: for every name that is pushed a kernel, and a copy or a fill now and then, as a GPU
 * that runs each operation as soon as it is issued would give them. Loaded by name in tests of --cupti.
 * EO_STUB_CUPTI, words with commas: old (a version before the one that this is built for), busy (another profiler is at
 * work), small (there is no room for most records), engine (all-gathers are copies between GPUs).
 */
#include <cupti.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define API __attribute__((visibility("default")))

enum { RECORDS_MAX = 1 << 14, RECORD_BYTES = 512 };

#if CUPTI_API_VERSION >= 130000
typedef CUpti_ActivityKernel10 kernel_record;
#else
typedef CUpti_ActivityKernel9 kernel_record;
#endif

/* One that was made up and not handed over yet. */
struct made {
    union {
        CUpti_Activity any;
        kernel_record kernel;
        CUpti_ActivityMemcpyPtoP4 copy;
        CUpti_ActivityMemset4 fill;
        CUpti_ActivityExternalCorrelation link;
        char bytes[RECORD_BYTES];
    } record;
};

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static struct made *waiting;
static uint32_t waiting_count, enabled_count;
static size_t dropped_count;
static uint32_t correlation;
static CUpti_BuffersCallbackRequestFunc request;
static CUpti_BuffersCallbackCompleteFunc complete;
static CUpti_TimestampCallbackFunc clock_ns;

static bool is_asked(const char *word)
{
    const char *words = getenv("EO_STUB_CUPTI");
    return words && strstr(words, word);
}

API CUptiResult cuptiGetVersion(uint32_t *version)
{
    *version = is_asked("old") ? 12 : CUPTI_API_VERSION;
    return CUPTI_SUCCESS;
}

API CUptiResult cuptiGetResultString(CUptiResult result, const char **text)
{
    *text = result == CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED ? "CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED"
                                                                     : "another";
    return CUPTI_SUCCESS;
}

API CUptiResult cuptiActivityRegisterCallbacks(CUpti_BuffersCallbackRequestFunc on_request,
                                               CUpti_BuffersCallbackCompleteFunc on_complete)
{
    request = on_request;
    complete = on_complete;
    return is_asked("busy") ? CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED : CUPTI_SUCCESS;
}

API CUptiResult cuptiActivityRegisterTimestampCallback(CUpti_TimestampCallbackFunc function)
{
    clock_ns = function;
    return enabled_count ? CUPTI_ERROR_NOT_INITIALIZED : CUPTI_SUCCESS;
}

API CUptiResult cuptiActivityEnable(CUpti_ActivityKind kind)
{
    (void)kind;
    enabled_count++;
    if (!waiting)
        waiting = calloc(RECORDS_MAX, sizeof(*waiting));
    return waiting ? CUPTI_SUCCESS : CUPTI_ERROR_OUT_OF_MEMORY;
}

API CUptiResult cuptiActivityDisable(CUpti_ActivityKind kind)
{
    (void)kind;
    return enabled_count-- ? CUPTI_SUCCESS : CUPTI_ERROR_NOT_INITIALIZED;
}

static struct made *next_record(void)
{
    const uint32_t most = is_asked("small") ? 40 : RECORDS_MAX;
    if (waiting_count == most) {
        dropped_count++;
        return NULL;
    }
    struct made *made = &waiting[waiting_count++];
    memset(made, 0, sizeof(*made));
    return made;
}

static void make_kernel(const char *name, uint32_t blocks, uint64_t now)
{
    struct made *made = next_record();
    if (!made)
        return;
    kernel_record *k = &made->record.kernel;
    k->kind = CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL;
    k->name = name;
    k->start = now;
    k->end = now + 2000;
    k->streamId = 13;
    k->correlationId = correlation;
    k->gridX = (int32_t)blocks;
    k->gridY = k->gridZ = k->blockY = k->blockZ = 1;
    k->blockX = 512;
}

static void make_copy(uint64_t now)
{
    struct made *made = next_record();
    if (!made)
        return;
    CUpti_ActivityMemcpyPtoP4 *c = &made->record.copy;
    c->kind = CUPTI_ACTIVITY_KIND_MEMCPY2;
    c->start = now;
    c->end = now + 3000;
    c->bytes = 4096;
    c->streamId = 17;
    c->correlationId = correlation;
}

static void make_fill(uint64_t now)
{
    struct made *made = next_record();
    if (!made)
        return;
    CUpti_ActivityMemset4 *f = &made->record.fill;
    f->kind = CUPTI_ACTIVITY_KIND_MEMSET;
    f->start = now;
    f->end = now + 100;
    f->bytes = 64;
    f->streamId = 13;
    f->correlationId = correlation;
}

static void make_link(uint64_t id)
{
    struct made *made = next_record();
    if (!made)
        return;
    CUpti_ActivityExternalCorrelation *link = &made->record.link;
    link->kind = CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION;
    link->externalKind = CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0;
    link->externalId = id;
    link->correlationId = correlation;
}

API CUptiResult cuptiActivityPushExternalCorrelationId(CUpti_ExternalCorrelationKind kind, uint64_t id)
{
    const char *name = (const char *)(uintptr_t)id;
    const uint64_t now = clock_ns();
    if (kind != CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0)
        return CUPTI_ERROR_INVALID_PARAMETER;
    pthread_mutex_lock(&mutex);
    correlation++;
    make_link(id);
    if (strncmp(name, "all-gather of", 13) == 0 && is_asked("engine"))
        make_copy(now);
    else if (strncmp(name, "all-gather of", 13) == 0)
        make_kernel("_Z31ncclDevKernel_AllGather_RING_LL24ncclDevKernelArgsStorageILm4096EE", 4, now);
    else if (strncmp(name, "reduce-scatter", 14) == 0)
        make_kernel("_Z43ncclDevKernel_ReduceScatter_Sum_f32_RING_LL24ncclDevKernelArgsStorageILm4096EE", 5, now);
    else
        make_kernel("_ZN7evenodd3sum12sum_in_orderEPfPKf", 132, now);
    if (correlation % 8 == 0)
        make_fill(now);
    pthread_mutex_unlock(&mutex);
    return CUPTI_SUCCESS;
}

API CUptiResult cuptiActivityPopExternalCorrelationId(CUpti_ExternalCorrelationKind kind, uint64_t *last)
{
    *last = 0;
    return kind == CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0 ? CUPTI_SUCCESS : CUPTI_ERROR_INVALID_PARAMETER;
}

/* Buffers of what has been made up; record after record, each of RECORD_BYTES. */
API CUptiResult cuptiActivityFlushAll(uint32_t flag)
{
    (void)flag;
    for (;;) {
        uint8_t *buffer = NULL;
        size_t bytes = 0, most = 0, used = 0;
        pthread_mutex_lock(&mutex);
        const bool has_records = waiting_count > 0;
        pthread_mutex_unlock(&mutex);
        if (!has_records)
            return CUPTI_SUCCESS;
        request(&buffer, &bytes, &most);
        if (!buffer)
            return CUPTI_ERROR_OUT_OF_MEMORY;
        pthread_mutex_lock(&mutex);
        while (waiting_count > 0 && used + RECORD_BYTES <= bytes) {
            memcpy(buffer + used, &waiting[--waiting_count], RECORD_BYTES);
            used += RECORD_BYTES;
        }
        pthread_mutex_unlock(&mutex);
        complete(NULL, 0, buffer, bytes, used);
    }
}

API CUptiResult cuptiActivityGetNextRecord(uint8_t *buffer, size_t valid_bytes, CUpti_Activity **record)
{
    uint8_t *next = *record ? (uint8_t *)*record + RECORD_BYTES : buffer;
    if (next + RECORD_BYTES > buffer + valid_bytes)
        return CUPTI_ERROR_MAX_LIMIT_REACHED;
    *record = (CUpti_Activity *)(void *)next;
    return CUPTI_SUCCESS;
}

API CUptiResult cuptiActivityGetNumDroppedRecords(CUcontext context, uint32_t stream, size_t *count)
{
    (void)context;
    (void)stream;
    pthread_mutex_lock(&mutex);
    *count = dropped_count;
    dropped_count = 0;
    pthread_mutex_unlock(&mutex);
    return CUPTI_SUCCESS;
}
