/* SPDX-License-Identifier: MIT
 *
 * Weights outside the schedule: filled, visited, read and written by name; and sums over ranks. All of them leave the
 * schedule, so the next step runs the first-step list.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <stdio.h>
#include <string.h>

#include "base/arithmetic.h"
#include "base/check.h"
#include "base/mxfp8.h"
#include "runtime/internal.h"
#include "streams/bf16.h"

/* The part of a parameter that lies in this rank's shard: `count` elements from `from` on, at `at` in the shard. */
struct own_part {
    uint64_t from, at, count;
};

static struct own_part find_own_part(const struct eo_plan *plan, uint32_t rank, const struct plan_parameter *parameter)
{
    const struct plan_layer *layer = &plan->layers[parameter->layer];
    const uint64_t shard_begin = layer->layout.shard_count * rank;
    const uint64_t begin = eo_max_u64(shard_begin, parameter->offset);
    const uint64_t end = eo_min_u64(shard_begin + layer->layout.shard_count, parameter->offset + parameter->element_count);
    return begin < end ? (struct own_part){begin - parameter->offset, begin - shard_begin, end - begin} : (struct own_part){0};
}

static void split_values(uint16_t *high, int16_t *low, const float *values, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++)
        eo_bf16_split(values[i], &high[i], &low[i]);
}

/* A piece holds the values, and behind them both halves. */
static eo_status fill_split(struct eo_runtime *rt, uint16_t *own_high, int16_t *own_low, const struct own_part *part,
                            eo_produce_fn produce, void *user)
{
    const uint64_t room = rt->host.piece_bytes / (sizeof(float) + sizeof(uint16_t) + sizeof(int16_t));
    for (uint64_t done = 0; done < part->count;) {
        const uint64_t count = eo_min_u64(room, part->count - done);
        void *piece;
        EO_TRY(eo_host_piece(rt, &piece));
        float *values = piece;
        uint16_t *high = (uint16_t *)(values + room);
        int16_t *low = (int16_t *)(high + room);
        EO_TRY(produce(user, part->from + done, count, values));
        split_values(high, low, values, count);
        rt->device->ops->upload(rt->device, own_high + done, high, count * sizeof(*high));
        if (own_low)
            rt->device->ops->upload(rt->device, own_low + done, low, count * sizeof(*low));
        eo_host_piece_issued(rt);
        done += count;
    }
    return EO_OK;
}

/* A piece holds the values of some blocks, and behind them the blocks' elements and exponents. */
static eo_status fill_mxfp8(struct eo_runtime *rt, uint8_t *exponents, uint8_t *elements, const struct own_part *part,
                            eo_produce_fn produce, void *user)
{
    const uint64_t blocks = rt->host.piece_bytes / (EO_MXFP8_BLOCK * (sizeof(float) + 1) + 1), room = blocks * EO_MXFP8_BLOCK;
    for (uint64_t done = 0; done < part->count; done += room) {
        const uint64_t count = eo_min_u64(room, part->count - done);
        void *piece;
        EO_TRY(eo_host_piece(rt, &piece));
        float *values = piece;
        uint8_t *narrow = (uint8_t *)(values + room), *scales = narrow + room;
        EO_TRY(produce(user, part->from + done, count, values));
        for (uint64_t i = 0; i < count; i += EO_MXFP8_BLOCK)
            eo_mxfp8_narrow_block(&scales[i / EO_MXFP8_BLOCK], &narrow[i], &values[i], eo_min_u64(EO_MXFP8_BLOCK, count - i));
        rt->device->ops->upload(rt->device, elements + done, narrow, count);
        rt->device->ops->upload(rt->device, exponents + done / EO_MXFP8_BLOCK, scales, eo_mxfp8_blocks(count));
        eo_host_piece_issued(rt);
    }
    return EO_OK;
}

/* Into the run that the rank has of the parameter: it begins where the part does. */
static eo_status fill_frozen(struct eo_runtime *rt, const struct plan_parameter *parameter, const struct own_part *part,
                             eo_produce_fn produce, void *user)
{
    const struct layer_shard *shard = &rt->shards.layers[parameter->layer];
    const struct plan_float8_run *run = shard->narrow_runs;
    while (run->at != part->at)
        run++;
    uint8_t *narrow = shard->narrow, *elements = narrow + run->element_bytes;
    if (run->scale != EO_NONE)
        return fill_mxfp8(rt, narrow + run->narrow_bytes, elements, part, produce, user);
    if (rt->shards.split && !parameter->fp32)
        return fill_split(rt, (uint16_t *)(void *)elements, NULL, part, produce, user);
    return eo_host_fill(rt, (float *)(void *)elements, part->from, part->count, produce, user);
}

void eo_shard_join(const struct eo_runtime *rt, uint32_t layer, const uint16_t *high, const int16_t *low, uint64_t from,
                   uint64_t count, float *out)
{
    const struct layer_shard *shard = &rt->shards.layers[layer];
    for (uint64_t i = 0; i < count; i++)
        out[i] = eo_bf16_join(high[from + i], low ? low[i] : 0);
    for (uint32_t r = 0; r < shard->range_count && rt->plan->layers[layer].has_fp32; r++) {
        const struct shard_range *range = &shard->ranges[r];
        if (!rt->plan->groups[range->group].fp32)
            continue;
        const float *values = (const float *)(const void *)(high + range->offset);
        const uint64_t end = eo_min_u64(from + count, range->offset + 2 * range->count);
        for (uint64_t i = eo_max_u64(from, range->offset); i < end; i++)
            out[i - from] = i < range->offset + range->count ? values[i - range->offset] : 0;
    }
}

/* Frozen weights have no low half: in the dynamic mode too they are what they would be gathered as. */
struct rounded {
    eo_produce_fn produce;
    void *user;
};

static eo_status produce_rounded(void *user, uint64_t offset, uint64_t count, float *values)
{
    const struct rounded *rounded = user;
    EO_TRY(rounded->produce(rounded->user, offset, count, values));
    for (uint64_t i = 0; i < count; i++)
        values[i] = eo_bf16_to_float(eo_bf16_round(values[i]));
    return EO_OK;
}

static eo_status fill_own(struct eo_runtime *rt, const struct plan_parameter *p, eo_produce_fn produce, void *user)
{
    const struct own_part part = find_own_part(rt->plan, rt->shards.rank, p);
    const struct layer_shard *shard = &rt->shards.layers[p->layer];
    struct rounded rounded = {produce, user};
    rt->float8.stale = true;
    if (part.count == 0)
        return EO_OK;
    if (rt->plan->layers[p->layer].float8_frozen)
        return fill_frozen(rt, p, &part, produce, user);
    if (rt->shards.split && p->fp32)
        return eo_host_fill(rt, (float *)(void *)(shard->high + part.at), part.from, part.count, produce, user);
    if (rt->shards.split)
        EO_TRY(eo_offload_take(rt, p->layer, true));
    if (rt->shards.split)
        return fill_split(rt, shard->high + part.at, shard->low ? shard->low + part.at : NULL, &part, produce, user);
    if (rt->plan->params.dtype == EO_DTYPE_BF16 && rt->plan->layers[p->layer].frozen && !p->fp32)
        return eo_host_fill(rt, shard->weights + part.at, part.from, part.count, produce_rounded, &rounded);
    return eo_host_fill(rt, shard->weights + part.at, part.from, part.count, produce, user);
}

/* The callbacks are over, unless one of them or what lay between has failed. */
static void leave_callbacks(struct runtime_cursor *cursor)
{
    if (cursor->phase != PHASE_FAILED)
        cursor->phase = PHASE_IDLE;
}

/* For eo_runtime_error alone: the failure is the trainer's, which knows it, and the runtime is as before. `told`: the count of
 * errors before; what the callback was refused by this runtime says more. */
static eo_status callback_failed(struct eo_runtime *rt, const char *call, uint32_t told, eo_status status)
{
    if (rt->errors.count != told)
        return status;
    snprintf(rt->errors.text, sizeof(rt->errors.text), "rank %u: %s: the callback returned %d (%s)", rt->world->rank, call,
             (int)status, eo_status_text(status));
    return status;
}

eo_status eo_weights_fill(eo_runtime *rt, uint32_t parameter, eo_produce_fn produce, void *user)
{
    EO_TRY(eo_runtime_check_idle(rt, "eo_weights_fill"));
    if (!produce)
        return eo_runtime_fail(rt, EO_ERR_INVALID, "eo_weights_fill needs a function to call");
    if (parameter >= rt->plan->parameter_count)
        return eo_runtime_fail(rt, EO_ERR_INVALID, "eo_weights_fill: no parameter %" PRIu32, parameter);
    EO_TRY(eo_ema_check(rt, "eo_weights_fill"));
    EO_TRY(eo_runtime_leave_schedule(rt, "eo_weights_fill or eo_weights_write"));
    eo_saver_await_layer(rt, EO_NONE);
    const uint32_t p = rt->plan->parameter_of_model[parameter];
    rt->steps.written[p] = true;
    rt->cursor.phase = PHASE_FILL;
    const uint32_t told = rt->errors.count;
    const eo_status status = fill_own(rt, &rt->plan->parameters[p], produce, user);
    leave_callbacks(&rt->cursor);
    return status < 0 && rt->cursor.phase != PHASE_FAILED ? callback_failed(rt, "eo_weights_fill", told, status) : status;
}

static eo_parameter_info parameter_info(const struct eo_plan *plan, const struct plan_parameter *parameter)
{
    eo_parameter_info info = {
        .name = parameter->name,
        .layer = plan->layers[parameter->layer].part_of == EO_NONE ? parameter->layer : plan->layers[parameter->layer].part_of,
        .dim_count = parameter->dim_count,
        .element_count = parameter->element_count,
        .no_weight_decay = plan->groups[parameter->group].no_weight_decay,
        .frozen = plan->layers[parameter->layer].frozen,
        .float8_gather = parameter->float8_gather,
        .group = plan->groups[parameter->group].group,
        .fp32 = parameter->fp32,
    };
    memcpy(info.dims, parameter->dims, sizeof(info.dims));
    return info;
}

/* Room for what the host cannot read where it lies. Of split weights: a whole layer, first its high halves alone. */
struct visit_room {
    float *values; /* NULL: none is needed */
    void *own;     /* of ordinary memory: where the plan has none to spare */
    void *piece;   /* of halves, from a device's memory */
};

static eo_status make_room(struct eo_runtime *rt, const struct plan_layer *layer, struct visit_room *room)
{
    uint64_t most = 1;
    for (uint32_t k = 0; k < layer->parameter_count; k++)
        most = eo_max_u64(most, rt->plan->parameters[layer->parameter_begin + k].element_count);
    *room = (struct visit_room){0};
    if (!rt->shards.split && rt->device->ops->is_host_memory)
        return EO_OK;
    const uint64_t bytes = (rt->shards.split ? layer->layout.padded_count : most) * sizeof(*room->values);
    room->values = rt->mode->idle_memory ? rt->mode->idle_memory(rt, bytes) : NULL;
    if (!room->values)
        room->values = room->own = malloc(bytes);
    if (rt->shards.split && !rt->device->ops->is_host_memory)
        room->piece = malloc(rt->host.piece_bytes);
    if (!room->values || (rt->shards.split && !rt->device->ops->is_host_memory && !room->piece))
        return eo_runtime_fail(rt, EO_ERR_NO_MEMORY, "out of memory: reading the weights of %s takes %llu bytes",
                               layer->name, (unsigned long long)bytes);
    return EO_OK;
}

static void join_half(float *values, const void *halves, uint64_t count, enum weight_half half)
{
    const uint16_t *high = halves;
    const int16_t *low = halves;
    for (uint64_t i = 0; i < count; i++) {
        uint32_t bits = half == HALF_HIGH ? (uint32_t)high[i] << 16 : 0;
        if (half == HALF_LOW) {
            memcpy(&bits, &values[i], sizeof(bits));
            values[i] = eo_bf16_join((uint16_t)(bits >> 16), low[i]);
        } else {
            memcpy(&values[i], &bits, sizeof(bits));
        }
    }
}

/* Of a whole layer, into values; both halves come through the same buffer, one after the other. */
static eo_status read_half(struct eo_runtime *rt, uint32_t l, enum weight_half half, const struct visit_room *room)
{
    const uint64_t count = rt->plan->layers[l].layout.padded_count;
    const uint64_t most = room->piece ? rt->host.piece_bytes / sizeof(uint16_t) : count;
    void *halves;
    EO_TRY(rt->mode->layer_gather(rt, l, half, &halves));
    for (uint64_t at = 0; at < count; at += most) {
        const uint64_t part = eo_min_u64(most, count - at);
        const void *from = (const uint16_t *)halves + at;
        if (room->piece)
            EO_TRY(eo_host_download(rt, room->piece, from, part * sizeof(uint16_t)));
        join_half(room->values + at, room->piece ? room->piece : from, part, half);
    }
    if (rt->mode->layer_release)
        rt->mode->layer_release(rt, l, halves);
    return EO_OK;
}

/* Of a parameter with fp32 each pair of halves is one value. */
static void join_pairs(float *values, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++) {
        uint32_t pair[2];
        memcpy(pair, values + 2 * i, sizeof(pair));
        const uint32_t bits = (pair[1] & 0xffff0000) | pair[0] >> 16;
        memcpy(values + i, &bits, sizeof(bits));
    }
}

typedef eo_status (*visit_fn)(void *user, const eo_parameter_info *parameter, const float *values);

/* Whom gathered parameters go to, until it refuses one: the other ranks' gathers are waited for all the same. */
struct visiting {
    visit_fn visit;
    void *user;
    eo_status status;
};

/* One layer gathered, its parameters visited: all of them, or one. No barrier: others may already be at the next
 * layer. */
static eo_status visit_gathered(struct eo_runtime *rt, uint32_t l, const struct plan_parameter *only, struct visit_room *room,
                                struct visiting *visiting)
{
    const struct plan_layer *layer = &rt->plan->layers[l];
    const bool split = rt->shards.split;
    void *weights = NULL;
    if (split) {
        EO_TRY(read_half(rt, l, HALF_HIGH, room));
        if (!layer->frozen)
            EO_TRY(read_half(rt, l, HALF_LOW, room));
    } else {
        EO_TRY(rt->mode->layer_gather(rt, l, HALF_WHOLE, &weights));
    }
    for (uint32_t k = 0; k < layer->parameter_count; k++) {
        const struct plan_parameter *parameter = &rt->plan->parameters[layer->parameter_begin + k];
        if (only && parameter != only)
            continue;
        const eo_parameter_info info = parameter_info(rt->plan, parameter);
        const float *values = (split ? room->values : (const float *)weights) + parameter->offset;
        if (!split && room->values) {
            EO_TRY(eo_host_download(rt, room->values, values, parameter->element_count * sizeof(float)));
            values = room->values;
        }
        if (split && parameter->fp32)
            join_pairs(room->values + parameter->offset, parameter->element_count);
        if (visiting->status >= 0)
            visiting->status = visiting->visit(visiting->user, &info, values);
    }
    if (!split && rt->mode->layer_release)
        rt->mode->layer_release(rt, l, weights);
    return EO_OK;
}

static eo_status visit_layer(struct eo_runtime *rt, uint32_t l, const struct plan_parameter *only, struct visiting *visiting)
{
    struct visit_room room;
    rt->comms.quiet = false;
    eo_status status = make_room(rt, &rt->plan->layers[l], &room);
    if (status >= 0)
        status = visit_gathered(rt, l, only, &room, visiting);
    free(room.own);
    free(room.piece);
    return status;
}

static eo_status visit_all(struct eo_runtime *rt, struct visiting *visiting)
{
    for (uint32_t l = 0; l < rt->plan->layer_count && rt->plan->layers[l].part_of == EO_NONE; l++) {
        EO_TRY(visit_layer(rt, l, NULL, visiting));
        if (rt->plan->layers[l].frozen_part != EO_NONE)
            EO_TRY(visit_layer(rt, rt->plan->layers[l].frozen_part, NULL, visiting));
    }
    return EO_OK;
}

eo_status eo_weights_visit(eo_runtime *rt, visit_fn visit, void *user)
{
    EO_TRY(eo_runtime_check_idle(rt, "eo_weights_visit"));
    if (!visit)
        return eo_runtime_fail(rt, EO_ERR_INVALID, "eo_weights_visit needs a function to call");
    EO_TRY(eo_runtime_leave_schedule(rt, "eo_weights_visit"));
    struct visiting visiting = {visit, user, EO_OK};
    const uint32_t told = rt->errors.count;
    rt->cursor.phase = PHASE_VISIT;
    const eo_status status = visit_all(rt, &visiting);
    leave_callbacks(&rt->cursor);
    EO_TRY(status);
    EO_TRY(eo_runtime_quiesce(rt, "eo_weights_visit"));
    return visiting.status < 0 ? callback_failed(rt, "eo_weights_visit", told, visiting.status) : EO_OK;
}

static const struct plan_parameter *find_parameter(const struct eo_plan *plan, const char *name)
{
    for (uint32_t p = 0; name && p < plan->parameter_count; p++)
        if (strcmp(plan->parameters[p].name, name) == 0)
            return &plan->parameters[p];
    return NULL;
}

struct wanted {
    const char *name;
    float *values;
};

static eo_status copy_wanted(void *user, const eo_parameter_info *parameter, const float *values)
{
    const struct wanted *wanted = user;
    if (wanted->values && strcmp(parameter->name, wanted->name) == 0)
        memcpy(wanted->values, values, parameter->element_count * sizeof(float));
    return EO_OK;
}

eo_status eo_weights_read(eo_runtime *rt, const char *name, float *values)
{
    EO_TRY(eo_runtime_check_idle(rt, "eo_weights_read"));
    const struct plan_parameter *parameter = find_parameter(rt->plan, name);
    if (!parameter)
        return eo_runtime_fail(rt, EO_ERR_INVALID, "no parameter '%s'", name ? name : "(null)");
    EO_TRY(eo_runtime_leave_schedule(rt, "eo_weights_read"));
    static const struct plan_parameter nothing; /* gathered with the others all the same */
    struct wanted wanted = {name, values};
    struct visiting visiting = {copy_wanted, &wanted, EO_OK};
    EO_TRY(visit_layer(rt, parameter->layer, values ? parameter : &nothing, &visiting));
    return eo_runtime_quiesce(rt, "eo_weights_read");
}

static eo_status copy_given(void *user, uint64_t offset, uint64_t count, float *values)
{
    memcpy(values, (const float *)user + offset, count * sizeof(float));
    return EO_OK;
}

eo_status eo_weights_write(eo_runtime *rt, const char *name, const float *values)
{
    EO_TRY(eo_runtime_check_idle(rt, "eo_weights_write"));
    const struct plan_parameter *parameter = find_parameter(rt->plan, name);
    if (!parameter || !values)
        return eo_runtime_fail(rt, EO_ERR_INVALID, "no parameter '%s', or no values for it", name ? name : "(null)");
    return eo_weights_fill(rt, parameter->model_index, copy_given, (void *)values);
}

eo_status eo_sum(eo_runtime *rt, double *values, uint32_t count)
{
    EO_TRY(eo_runtime_check_idle(rt, "eo_sum"));
    if (!values)
        return eo_runtime_fail(rt, EO_ERR_INVALID, "eo_sum: values is NULL");
    EO_TRY(eo_runtime_leave_schedule(rt, "eo_sum"));
    const uint64_t bytes = EO_NORM_VALUES * sizeof(double);
    for (uint32_t begin = 0; begin < count; begin += EO_NORM_VALUES) {
        const uint32_t part = (uint32_t)eo_min_u64(count - begin, EO_NORM_VALUES);
        double mine[EO_NORM_VALUES] = {0}, others[EO_NORM_VALUES], sums[EO_NORM_VALUES] = {0};
        rt->comms.quiet = false;
        memcpy(mine, values + begin, part * sizeof(double));
        snprintf(rt->update.sum_label, sizeof(rt->update.sum_label), "sum of %u values", count);
        EO_TRY(eo_host_upload(rt, rt->update.norm_local, mine, bytes));
        EO_TRY(eo_runtime_gather(rt, rt->comms.world, rt->update.norm_gathered, rt->update.norm_local, bytes,
                                 rt->update.sum_label, EO_WAIT_NORM));
        for (uint32_t r = 0; r < rt->world->rank_count; r++) {
            EO_TRY(eo_host_download(rt, others, rt->update.norm_gathered + (size_t)r * EO_NORM_VALUES, bytes));
            for (uint32_t v = 0; v < part; v++)
                sums[v] += others[v];
        }
        memcpy(values + begin, sums, part * sizeof(double));
        EO_TRY(eo_runtime_quiesce(rt, "eo_sum")); /* nobody reads norm_local any more */
    }
    return EO_OK;
}
