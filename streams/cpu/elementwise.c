/* SPDX-License-Identifier: MIT
 *
 * The element-wise operations of the device: cut into chunks whose number follows from the sizes alone, and spread
 * over the trainer's threads. Which thread takes which chunk changes no result.
 */
#include <float.h>
#include <math.h>
#include <string.h>

#include "base/arithmetic.h"
#include "streams/cpu/device.h"

#define CHUNK_ELEMENTS EO_CPU_CHUNK_ELEMENTS
#define CHUNK_BYTES    (CHUNK_ELEMENTS * 4)

void eo_cpu_run_chunks(struct eo_device *device, uint64_t chunk_count, void (*task)(void *arg, uint32_t index), void *arg)
{
    const struct eo_workers *workers = &device->params.workers;
    EO_ASSERT(chunk_count <= UINT32_MAX);
    if (workers->run && chunk_count > 1) {
        workers->run(workers->team, (uint32_t)chunk_count, task, arg);
        return;
    }
    for (uint32_t i = 0; i < chunk_count; i++)
        task(arg, i);
}

struct bytes_job {
    const struct eo_cpu_kernels *kernels;
    unsigned char *to;
    const unsigned char *from; /* NULL: fill with the pattern */
    uint32_t pattern;
    uint64_t bytes;
};

static void bytes_task(void *arg, uint32_t index)
{
    const struct bytes_job *job = arg;
    const uint64_t begin = index * CHUNK_BYTES;
    const uint64_t bytes = eo_min_u64(CHUNK_BYTES, job->bytes - begin);
    if (job->from && job->bytes >= EO_STREAM_BYTES)
        job->kernels->stream_copy(job->to + begin, job->from + begin, bytes);
    else if (job->from)
        memcpy(job->to + begin, job->from + begin, bytes);
    else if (job->pattern == 0)
        memset(job->to + begin, 0, bytes);
    else
        for (uint64_t i = 0; i < bytes; i += sizeof(job->pattern))
            memcpy(job->to + begin + i, &job->pattern, sizeof(job->pattern));
}

void eo_cpu_zero(struct eo_device *device, void *memory, uint64_t bytes)
{
    struct bytes_job job = {eo_cpu_of(device)->kernels, memory, NULL, 0, bytes};
    eo_cpu_run_chunks(device, eo_div_up(bytes, CHUNK_BYTES), bytes_task, &job);
}

void eo_cpu_fill(struct eo_device *device, void *memory, uint32_t pattern, uint64_t bytes)
{
    EO_ASSERT(bytes % sizeof(pattern) == 0);
    struct bytes_job job = {eo_cpu_of(device)->kernels, memory, NULL, pattern, bytes};
    eo_cpu_run_chunks(device, eo_div_up(bytes, CHUNK_BYTES), bytes_task, &job);
}

void eo_cpu_copy(struct eo_device *device, void *to, const void *from, uint64_t bytes)
{
    if (to == from)
        return;
    struct bytes_job job = {eo_cpu_of(device)->kernels, to, from, 0, bytes};
    eo_cpu_run_chunks(device, eo_div_up(bytes, CHUNK_BYTES), bytes_task, &job);
}

/* On a communication queue its worker alone. */
static eo_status copy_all(void *arguments)
{
    const struct bytes_job *job = arguments;
    memcpy(job->to, job->from, job->bytes);
    return EO_OK;
}

void eo_cpu_copy_on(struct eo_device *device, uint32_t queue, void *to, const void *from, uint64_t bytes)
{
    struct bytes_job job = {.to = to, .from = from, .bytes = bytes};
    if (queue == EO_QUEUE_COMPUTE)
        eo_cpu_copy(device, to, from, bytes);
    else
        eo_cpu_enqueue(device, queue, copy_all, &job, sizeof(job));
}

struct host_job {
    const struct eo_cpu_kernels *kernels;
    void *to;
    const void *from;
    uint64_t bytes;
    struct eo_span *span;
};

static eo_status copy_in_order(void *arguments)
{
    const struct host_job *job = arguments;
    const uint64_t start_ns = eo_now_ns();
    if (job->bytes >= EO_STREAM_BYTES)
        job->kernels->stream_copy(job->to, job->from, job->bytes);
    else
        memcpy(job->to, job->from, job->bytes);
    *job->span = (struct eo_span){job->span->ready_ns, start_ns, eo_now_ns()};
    return EO_OK;
}

void eo_cpu_copy_host(struct eo_device *device, uint32_t queue, void *to, const void *from, uint64_t bytes, bool to_host,
                      struct eo_span *span)
{
    const struct host_job job = {eo_cpu_of(device)->kernels, to, from, bytes, span};
    (void)to_host; /* it is all the host's */
    eo_cpu_enqueue(device, queue, copy_in_order, &job, sizeof(job));
}

struct cast_job {
    const struct eo_cpu_kernels *kernels;
    uint16_t *to;
    const float *from;
    uint64_t count;
};

static void cast_task(void *arg, uint32_t index)
{
    const struct cast_job *job = arg;
    const uint64_t begin = index * CHUNK_ELEMENTS;
    job->kernels->round_bf16(job->to + begin, job->from + begin, eo_min_u64(CHUNK_ELEMENTS, job->count - begin));
}

static eo_status cast_all(void *arguments)
{
    const struct cast_job *job = arguments;
    job->kernels->round_bf16(job->to, job->from, job->count);
    return EO_OK;
}

void eo_cpu_cast_bf16(struct eo_device *device, uint32_t queue, uint16_t *to, const float *from, uint64_t count)
{
    struct cast_job job = {eo_cpu_of(device)->kernels, to, from, count};
    if (queue == EO_QUEUE_COMPUTE)
        eo_cpu_run_chunks(device, eo_div_up(count, CHUNK_ELEMENTS), cast_task, &job);
    else
        eo_cpu_enqueue(device, queue, cast_all, &job, sizeof(job));
}

/* What becomes of an array, and from what; either or both of `to` and `partials` are there. */
struct sum_job {
    const struct eo_cpu_kernels *kernels;
    float *to;         /* NULL: `values` are summed as they are */
    const void *from;
    eo_dtype dtype;
    bool overwrite;
    const float *values;
    double *partials;
    uint64_t count, chunk;
    uint64_t chunk_count, chunks_a_task; /* of sums */
};

static void accumulate_chunk(const struct sum_job *job, uint64_t begin, uint64_t count)
{
    if (job->dtype == EO_DTYPE_BF16)
        job->kernels->widen_bf16(job->to + begin, (const uint16_t *)job->from + begin, !job->overwrite, count);
    else if (job->overwrite)
        memcpy(job->to + begin, (const float *)job->from + begin, count * sizeof(float));
    else
        job->kernels->accumulate(job->to + begin, (const float *)job->from + begin, count);
}

static void accumulate_task(void *arg, uint32_t index)
{
    const struct sum_job *job = arg;
    const uint64_t begin = index * job->chunk;
    accumulate_chunk(job, begin, eo_min_u64(job->chunk, job->count - begin));
}

void eo_cpu_accumulate(struct eo_device *device, float *to, const void *from, eo_dtype dtype, bool overwrite,
                       uint64_t count)
{
    struct sum_job job = {.kernels = eo_cpu_of(device)->kernels, .to = to, .from = from, .dtype = dtype,
                          .overwrite = overwrite, .count = count, .chunk = CHUNK_ELEMENTS};
    eo_cpu_run_chunks(device, eo_div_up(count, job.chunk), accumulate_task, &job);
}

static double chunk_squares(const struct sum_job *job, uint64_t begin, uint64_t count)
{
    if (job->to && job->dtype == EO_DTYPE_FP32 && !job->overwrite)
        return job->kernels->accumulate_sum_squares(job->to + begin, (const float *)job->from + begin, count);
    if (job->to)
        accumulate_chunk(job, begin, count);
    return job->kernels->sum_squares((job->to ? job->to : job->values) + begin, count);
}

/* As many chunks of the sum as are worth waking a thread. */
static void sum_squares_task(void *arg, uint32_t index)
{
    const struct sum_job *job = arg;
    const uint64_t first = index * job->chunks_a_task;
    const uint64_t end = eo_min_u64(first + job->chunks_a_task, job->chunk_count);
    for (uint64_t c = first; c < end; c++) {
        const uint64_t begin = c * job->chunk;
        job->partials[c] = chunk_squares(job, begin, eo_min_u64(job->chunk, job->count - begin));
    }
}

static void sum_squares(struct eo_device *device, double *out, struct sum_job *job)
{
    struct eo_cpu *cpu = eo_cpu_of(device);
    job->kernels = cpu->kernels;
    job->partials = cpu->partials;
    job->chunk = eo_sum_chunk(job->count);
    job->chunk_count = eo_div_up(job->count, job->chunk);
    job->chunks_a_task = eo_max_u64(CHUNK_ELEMENTS / job->chunk, 1);
    EO_ASSERT(job->chunk_count <= EO_SUM_CHUNKS_MAX);
    eo_cpu_run_chunks(device, eo_div_up(job->chunk_count, job->chunks_a_task), sum_squares_task, job);
    *out = eo_sum_chunks(cpu->partials, job->chunk_count);
}

struct squares_job {
    const struct eo_cpu_kernels *kernels;
    double *out;
    const float *values;
    uint64_t count;
    struct eo_span *span;
};

/* On a communication queue its worker alone, chunk after chunk: the room for their sums is the compute queue's. */
static eo_status squares_in_order(void *arguments)
{
    const struct squares_job *job = arguments;
    const uint64_t start_ns = eo_now_ns(), chunk = eo_sum_chunk(job->count);
    double lanes[EO_SUM_LANES] = {0};
    for (uint64_t c = 0; c * chunk < job->count; c++)
        lanes[c % EO_SUM_LANES] +=
            job->kernels->sum_squares(job->values + c * chunk, eo_min_u64(chunk, job->count - c * chunk));
    *job->out = eo_sum_fold(lanes);
    if (job->span)
        *job->span = (struct eo_span){job->span->ready_ns, start_ns, eo_now_ns()};
    return EO_OK;
}

void eo_cpu_sum_squares(struct eo_device *device, uint32_t queue, double *out, const float *values, uint64_t count,
                        struct eo_span *span)
{
    const uint64_t start_ns = eo_now_ns();
    if (queue != EO_QUEUE_COMPUTE) {
        const struct squares_job job = {eo_cpu_of(device)->kernels, out, values, count, span};
        eo_cpu_enqueue(device, queue, squares_in_order, &job, sizeof(job));
        return;
    }
    sum_squares(device, out, &(struct sum_job){.values = values, .count = count});
    if (span)
        *span = (struct eo_span){span->ready_ns, start_ns, eo_now_ns()};
}

void eo_cpu_accumulate_sum_squares(struct eo_device *device, double *out, float *to, const void *from, eo_dtype dtype,
                                   bool overwrite, uint64_t count)
{
    sum_squares(device, out, &(struct sum_job){.to = to, .from = from, .dtype = dtype, .overwrite = overwrite,
                                               .count = count});
}

void eo_cpu_norm_local(struct eo_device *device, double *out, const struct eo_norm_term *terms, uint32_t count,
                       const struct eo_step_memory *step, const double *device_values)
{
    memset(out, 0, eo_norm_count(step) * sizeof(*out));
    for (uint32_t i = 0; i < count; i++)
        out[terms[i].into] += *terms[i].partial;
    for (int v = 0; v < EO_STEP_VALUES; v++)
        out[1 + v] = device_values ? step->scalars->values[v] + device_values[v] : step->scalars->values[v];
    out[1 + EO_STEP_VALUES] = step->scalars->weight;
}

/* PyTorch's clip_grad_norm_ has the same 1e-6, so that runs can be compared. */
static double clip_factor(double norm, double clip)
{
    return clip > 0 && norm > clip ? clip / (norm + 1e-6) : 1;
}

/* While its results hold squares. */
static double norm_of_clip_group(const struct eo_step_memory *step, uint32_t clip_group, double divisor)
{
    double sum = 0;
    for (uint32_t g = 0; g < step->clip_count; g++)
        if (step->clips[g].clip_group == clip_group)
            sum += step->clip_results[g].norm;
    return sqrt(sum) / divisor;
}

static void clip_apart(const struct eo_step_memory *step, double divisor)
{
    struct eo_norm_result *out = step->norm;
    out->clip_factor = clip_factor(norm_of_clip_group(step, 0, divisor), step->scalars->clip);
    for (uint32_t c = 0; c < step->clip_count; c++) {
        const struct eo_clip_scalars *clip = &step->clips[c];
        step->clip_results[c].clip_factor = clip_factor(norm_of_clip_group(step, clip->clip_group, divisor), clip->clip);
    }
    if (isnan(out->gradient_scale))
        return;
    out->gradient_scale = (float)(out->clip_factor / divisor);
    for (uint32_t g = 0; g < step->scalars->group_count; g++)
        step->results[g].gradient_scale = (float)(step->clip_results[step->groups[g].clip].clip_factor / divisor);
}

/* In rank order. */
static double sum_of_ranks(const double *gathered, uint32_t rank_count, const struct eo_step_memory *step, uint32_t value)
{
    double sum = 0;
    for (uint32_t r = 0; r < rank_count; r++)
        sum += gathered[(size_t)r * eo_norm_count(step) + value];
    return sum;
}

static void norm_parts(const double *gathered, uint32_t rank_count, const struct eo_step_memory *step, double divisor)
{
    const uint32_t groups_begin = EO_NORM_VALUES + step->layer_count;
    for (uint32_t l = 0; l < step->layer_count; l++)
        step->layer_norms[l] = sqrt(sum_of_ranks(gathered, rank_count, step, EO_NORM_VALUES + l)) / divisor;
    for (uint32_t g = 0; g < step->clip_count; g++) {
        const double squares = sum_of_ranks(gathered, rank_count, step, groups_begin + g);
        step->clip_results[g] = (struct eo_clip_result){squares, step->norm->clip_factor};
    }
    if (step->scalars->clips_apart)
        clip_apart(step, divisor);
    for (uint32_t g = 0; g < step->clip_count; g++)
        step->clip_results[g].norm = sqrt(step->clip_results[g].norm) / divisor;
}

/* Infinite where floats may not hold the quotients, or their factor. */
static double norm_of(double squares, double divisor)
{
    const double norm = sqrt(squares) / divisor;
    return divisor < 1 && (norm > (double)FLT_MAX || 1 / divisor > (double)FLT_MAX) ? (double)INFINITY : norm;
}

/* All ranks add the same numbers in the same order, so they agree on the factor, and on whether to stop. */
void eo_cpu_norm_sum(struct eo_device *device, const double *gathered, uint32_t rank_count, const struct eo_step_memory *step)
{
    struct eo_norm_result *out = step->norm;
    double sums[EO_NORM_VALUES];
    for (uint32_t v = 0; v < EO_NORM_VALUES; v++)
        sums[v] = sum_of_ranks(gathered, rank_count, step, v);
    const double weight = sums[1 + EO_STEP_VALUES], divisor = (weight > 0 ? weight : 1) * step->scalars->loss_scale;
    const double norm = norm_of(sums[0], divisor);
    out->norm = norm;
    out->clip_factor = clip_factor(norm, step->scalars->clip);
    out->gradient_scale = isfinite(norm) ? (float)(out->clip_factor / divisor) : NAN;
    out->weight = weight;
    out->skipped += !isfinite(norm);
    memcpy(out->values, sums + 1, sizeof(out->values));
    for (uint32_t g = 0; g < step->scalars->group_count; g++)
        step->results[g].gradient_scale = out->gradient_scale;
    norm_parts(gathered, rank_count, step, divisor);
}

struct update_job {
    const struct eo_cpu_kernels *kernels;
    enum eo_rule rule;
    const struct eo_update_range *ranges;
    const struct eo_step_memory *step;
};

static struct eo_update_numbers numbers_of(const struct eo_step_memory *step, uint32_t group)
{
    const struct eo_group_scalars *g = &step->groups[group];
    const uint64_t unknown = step->norm->skipped - step->scalars->skipped;
    EO_ASSERT(unknown < EO_STEPS_UNKNOWN);
    return (struct eo_update_numbers){g->learning_rate, g->beta1, g->beta2, g->eps, g->weight_decay,
                                     g->bias_correction1[unknown], g->bias_correction2[unknown],
                                     step->results[group].gradient_scale, g->momentum};
}

/* All ranges in one run of the team: many are shorter than a chunk. */
static void update_task(void *arg, uint32_t index)
{
    const struct update_job *job = arg;
    const struct eo_update_range *range = job->ranges;
    uint64_t chunk = index;
    while (chunk >= eo_div_up(range->count, CHUNK_ELEMENTS)) {
        chunk -= eo_div_up(range->count, CHUNK_ELEMENTS);
        range++;
    }
    if (job->step->groups[range->group].frozen)
        return;
    const uint64_t begin = chunk * CHUNK_ELEMENTS;
    const struct eo_update_numbers numbers = numbers_of(job->step, range->group);
    job->kernels->update[job->rule](range, &numbers, begin, eo_min_u64(CHUNK_ELEMENTS, range->count - begin));
}

void eo_cpu_update(struct eo_device *device, enum eo_rule rule, const struct eo_update_range *ranges, uint32_t range_count,
                   const struct eo_step_memory *step)
{
    struct update_job job = {eo_cpu_of(device)->kernels, rule, ranges, step};
    uint64_t chunk_count = 0;
    if (isnan(step->norm->gradient_scale))
        return;
    for (uint32_t i = 0; i < range_count; i++)
        chunk_count += eo_div_up(ranges[i].count, CHUNK_ELEMENTS);
    eo_cpu_run_chunks(device, chunk_count, update_task, &job);
}

struct combine_job {
    float *out;
    const float *a, *b;
    float x, y;
    uint64_t count;
};

static void combine_task(void *arg, uint32_t index)
{
    const struct combine_job *job = arg;
    const uint64_t begin = index * CHUNK_ELEMENTS, end = eo_min_u64(begin + CHUNK_ELEMENTS, job->count);
    const float *a = job->a, *b = job->b, x = job->x, y = job->y;
    float *out = job->out;
    for (uint64_t i = begin; !b && i < end; i++)
        out[i] = x * a[i];
    for (uint64_t i = begin; b && i < end; i++)
        out[i] = x * a[i] + y * b[i];
}

void eo_cpu_combine(struct eo_device *device, float *out, const float *a, float x, const float *b, float y,
                    const double *squares, uint64_t count)
{
    const float factor = squares ? (float)(1 / fmax(sqrt(*squares), 1e-7)) : 1;
    struct combine_job job = {out, a, b, factor * x, factor * y, count};
    eo_cpu_run_chunks(device, eo_div_up(count, CHUNK_ELEMENTS), combine_task, &job);
}

struct average_job {
    const struct eo_cpu_kernels *kernels;
    const struct eo_average *all;
    enum eo_average_mode mode;
    float rest;
};

static void average_task(void *arg, uint32_t index)
{
    const struct average_job *job = arg;
    const uint64_t begin = (uint64_t)index * CHUNK_ELEMENTS;
    job->kernels->average(job->all, job->mode, job->rest, begin, eo_min_u64(CHUNK_ELEMENTS, job->all->count - begin));
}

void eo_cpu_average(struct eo_device *device, const struct eo_average *average, enum eo_average_mode mode,
                    const struct eo_update_scalars *scalars, const struct eo_norm_result *norm)
{
    const bool updates = mode == EO_AVERAGE_UPDATE;
    if (updates && isnan(norm->gradient_scale))
        return;
    struct average_job job = {eo_cpu_of(device)->kernels, average, mode, updates ? 1.0f - scalars->ema_decay : 0};
    eo_cpu_run_chunks(device, eo_div_up(average->count, CHUNK_ELEMENTS), average_task, &job);
}
