/* SPDX-License-Identifier: MIT
 *
 * A checkpoint into a runtime, however both are sharded: each rank reads what is its own.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/arithmetic.h"
#include "base/check.h"
#include "runtime/checkpoint/opened.h"
#include "runtime/internal.h"

/* -- is it of this model? ------------------------------------------------------------------------------------------*/

static void dims_text(const uint64_t *dims, uint32_t count, char *text, size_t bytes)
{
    size_t used = 0;
    for (uint32_t d = 0; d < count && used < bytes; d++)
        used += (size_t)snprintf(text + used, bytes - used, "%s%" PRIu64, d ? " x " : "", dims[d]);
}

#define SAME(condition, ...)                                                                                          \
    do {                                                                                                              \
        if (!(condition)) {                                                                                           \
            (void)eo_checkpoint_io_error(error, 0, __VA_ARGS__);                                                      \
            return EO_ERR_INVALID;                                                                                    \
        }                                                                                                             \
    } while (0)

static eo_status check_parameter(const struct eo_checkpoint *checkpoint, const struct plan_parameter *wanted,
                                 const struct checkpoint_parameter *is, struct checkpoint_error *error)
{
    char there[96], here[96];
    SAME(strcmp(is->name, wanted->name) == 0, "%s is of another model: parameter %s there, %s here", checkpoint->path,
         is->name, wanted->name);
    dims_text(is->dims, is->dim_count, there, sizeof(there));
    dims_text(wanted->dims, wanted->dim_count, here, sizeof(here));
    SAME(strcmp(there, here) == 0, "%s is of another model: the dims of %s are %s there, %s here", checkpoint->path,
         is->name, there, here);
    return EO_OK;
}

static eo_status check_layer(const struct eo_checkpoint *checkpoint, const struct eo_plan *plan, uint32_t l,
                             struct checkpoint_error *error)
{
    const struct checkpoint_tables *model = &checkpoint->files[0];
    const struct checkpoint_layer *is = &model->layers[l];
    const struct plan_layer *wanted = &plan->layers[l];
    const uint32_t begin = wanted->parameter_begin; /* the same in both: the layers before have been compared */
    SAME(strcmp(is->name, wanted->name) == 0, "%s is of another model: layer %u is %s there, %s here",
         checkpoint->path, l, is->name, wanted->name);
    const uint32_t common = is->parameter_count < wanted->parameter_count ? is->parameter_count : wanted->parameter_count;
    for (uint32_t k = 0; k < common; k++)
        EO_TRY(check_parameter(checkpoint, &plan->parameters[begin + k], &model->parameters[begin + k], error));
    SAME(is->parameter_count == wanted->parameter_count, "%s is of another model: layer %s has %u parameters there, %u here",
         checkpoint->path, is->name, is->parameter_count, wanted->parameter_count);
    SAME(is->frozen == wanted->frozen, "%s is of another model: layer %s is %s there, %s here", checkpoint->path, is->name,
         is->frozen ? "frozen" : "trained", wanted->frozen ? "frozen" : "trained");
    return EO_OK;
}

/* Parameters from `first` on that are joined, and so share blocks of state. */
static uint32_t joined_count(const struct eo_plan *plan, const struct plan_layer *layer, uint32_t first)
{
    const uint32_t end = layer->parameter_begin + layer->parameter_count;
    uint32_t count = 1;
    while (first + count < end && plan->parameters[first + count].joined)
        count++;
    return count;
}

/* Where state lies in blocks these begin with parameters, and parameters that share some lie alike in both. */
static eo_status check_blocks(const struct eo_checkpoint *checkpoint, const struct eo_plan *plan,
                              const struct plan_layer *layer, uint32_t block, struct checkpoint_error *error)
{
    const struct checkpoint_parameter *is = checkpoint->files[0].parameters;
    const uint32_t end = layer->parameter_begin + layer->parameter_count;
    for (uint32_t p = layer->parameter_begin, count; block > 1 && p < end; p += count) {
        count = joined_count(plan, layer, p);
        const struct plan_parameter *first = &plan->parameters[p];
        SAME(is[p].offset % block == 0 && is[p + count - 1].offset - is[p].offset == first[count - 1].offset - first->offset,
             "%s: the optimizer's blocks of %s lie otherwise than in this model; join the same parameters "
             "(eo_parameter_params.joined)",
             checkpoint->path, first->name);
    }
    return EO_OK;
}

static eo_status check(const struct eo_checkpoint *checkpoint, const struct eo_plan *plan, struct checkpoint_error *error)
{
    const struct checkpoint_head *head = checkpoint->files[0].head;
    const uint32_t states = plan->params.optimizer_states;
    SAME(head->layer_count == plan->layer_count, "%s is of another model: it has %u layers there, %u here",
         checkpoint->path, head->layer_count, plan->layer_count);
    for (uint32_t l = 0; l < plan->layer_count; l++)
        EO_TRY(check_layer(checkpoint, plan, l, error));
    SAME(states == 0 || head->optimizer == (uint32_t)plan->params.optimizer, "%s is of another optimizer: it is %s there, %s here",
         checkpoint->path, eo_optimizer_name((eo_optimizer)head->optimizer), eo_optimizer_name(plan->params.optimizer));
    SAME(states == 0 || states == head->optimizer_states - head->has_ema,
         "%s is of another optimizer: it has %u arrays of state there, %u here", checkpoint->path,
         head->optimizer_states - head->has_ema, states);
    for (uint32_t l = 0; l < plan->layer_count; l++)
        for (uint32_t k = 0; !plan->layers[l].frozen && k < states; k++)
            EO_TRY(check_blocks(checkpoint, plan, &plan->layers[l], eo_checkpoint_block(head, 1 + k), error));
    return EO_OK;
}

eo_status eo_checkpoint_check(const eo_checkpoint *checkpoint, const eo_plan *plan)
{
    struct checkpoint_error error = {""};
    if (!checkpoint || !plan)
        return EO_ERR_INVALID;
    const eo_status status = check(checkpoint, plan, &error);
    if (status < 0)
        eo_log_write(&checkpoint->log, EO_LOG_ERROR, "%s", error.text);
    return status;
}

/* -- loading -------------------------------------------------------------------------------------------------------*/

struct load {
    struct eo_checkpoint *checkpoint;
    uint32_t layer, array;
    uint64_t offset; /* of the array's elements, in the checkpoint's layer: its paddings may be others */
};

static eo_status produce(void *user, uint64_t offset, uint64_t count, float *values)
{
    const struct load *load = user;
    return eo_checkpoint_read(load->checkpoint, load->layer, load->array, load->offset + offset, count, values);
}

static eo_status load_weights(struct eo_checkpoint *checkpoint, struct eo_runtime *rt)
{
    for (uint32_t p = 0; p < rt->plan->parameter_count; p++) {
        const struct plan_parameter *parameter = &rt->plan->parameters[p];
        struct load load = {checkpoint, parameter->layer, 0, checkpoint->files[0].parameters[p].offset};
        EO_TRY(eo_weights_fill(rt, parameter->model_index, produce, &load));
    }
    return EO_OK;
}

static eo_status produce_words(void *user, uint64_t offset, uint64_t count, float *words)
{
    const struct load *load = user;
    return eo_checkpoint_read_words(load->checkpoint, load->layer, load->array, load->offset + offset, count, words);
}

/* Of an element of a shard, in array k of its state; NULL: of Muon's matrices there is nothing in the second. */
static float *state_at(struct eo_runtime *rt, uint32_t l, uint32_t k, uint64_t element, uint64_t words)
{
    const struct layer_shard *shard = &rt->shards.layers[l];
    if (!eo_plan_is_sparse(&rt->plan->layers[l], k))
        return shard->state[k] + words;
    for (uint32_t i = 0; i < shard->range_count; i++) {
        const struct shard_range *range = &shard->ranges[i];
        if (!rt->plan->groups[range->group].matrix && element >= range->offset && element - range->offset < range->count)
            return shard->state[k] + range->second + (element - range->offset);
    }
    return NULL;
}

/* The runtime's array k of state from the checkpoint's `array`: whole blocks, which begin with parameters in both. */
static eo_status load_state(struct eo_checkpoint *checkpoint, struct eo_runtime *rt, uint32_t l, uint32_t k, uint32_t array)
{
    const struct checkpoint_range own = eo_checkpoint_state_range(rt->plan, l, rt->world->rank);
    const struct plan_layer *layer = &rt->plan->layers[l];
    const struct checkpoint_head *head = checkpoint->files[0].head;
    const uint32_t block = eo_checkpoint_block(head, array);
    for (uint32_t p = layer->parameter_begin, count; p < layer->parameter_begin + layer->parameter_count; p += count) {
        count = block > 1 ? joined_count(rt->plan, layer, p) : 1;
        const struct plan_parameter *parameter = &rt->plan->parameters[p], *last = &parameter[count - 1];
        const uint64_t begin = eo_max_u64(own.offset, parameter->offset);
        const uint64_t end = eo_min_u64(own.offset + own.count, eo_align_up(last->offset + last->element_count, block));
        const uint64_t there = checkpoint->files[0].parameters[p].offset; /* check_blocks has compared them */
        if (begin >= end)
            continue;
        EO_TRY(eo_offload_take(rt, l, true));
        float *to = state_at(rt, l, k, begin - own.offset, eo_checkpoint_words(head, array, begin - own.offset));
        if (!to)
            continue;
        struct load load = {checkpoint, l, array, eo_checkpoint_words(head, array, there + (begin - parameter->offset))};
        EO_TRY(eo_host_fill(rt, to, 0, eo_checkpoint_words(head, array, end - begin), produce_words, &load));
    }
    return EO_OK;
}

static eo_status load(struct eo_checkpoint *checkpoint, struct eo_runtime *rt)
{
    const struct checkpoint_head *head = checkpoint->files[0].head;
    const struct eo_plan *plan = rt->plan;
    const bool has_ema = head->has_ema && plan->ema_state != EO_NONE; /* else it begins as the weights */
    rt->ema = (struct runtime_ema){.is_begun = has_ema};
    EO_TRY(load_weights(checkpoint, rt));
    for (uint32_t l = 0; l < plan->layer_count; l++) {
        for (uint32_t k = 0; !plan->layers[l].frozen && k < plan->params.optimizer_states; k++)
            EO_TRY(load_state(checkpoint, rt, l, k, 1 + k));
        if (!plan->layers[l].frozen && has_ema)
            EO_TRY(load_state(checkpoint, rt, l, plan->ema_state, head->optimizer_states));
    }
    return EO_OK;
}

/* A group's steps that froze it are those of its parameters' group there, which may have another number. Where its parameters
 * come from several the most are taken: then AdamW's next updates are rather too small than too large. */
static void load_frozen_counts(const struct eo_checkpoint *checkpoint, struct eo_runtime *rt)
{
    const struct eo_plan *plan = rt->plan;
    const struct checkpoint_tables *there = &checkpoint->files[0];
    for (uint32_t group = 0; group < plan->trainer_group_count; group++) {
        uint64_t least = UINT64_MAX, most = 0;
        for (uint32_t p = 0; p < plan->parameter_count; p++) {
            const struct plan_parameter *parameter = &plan->parameters[p];
            const uint32_t before = there->parameters[p].group;
            const uint64_t count = before < there->head->group_count ? there->frozen[before] : 0;
            if (plan->layers[parameter->layer].frozen || plan->groups[parameter->group].group != group)
                continue;
            least = eo_min_u64(least, count);
            most = eo_max_u64(most, count);
        }
        for (uint32_t g = 0; g < plan->group_count; g++)
            rt->steps.frozen[g] = plan->groups[g].group == group ? most : rt->steps.frozen[g];
        if (least < most && rt->world->rank == 0)
            eo_log_write(&rt->log, EO_LOG_WARN,
                         "%s: the parameters of group %u were in groups that %" PRIu64 " to %" PRIu64
                         " steps have frozen; their first updates may be too small. Keep such groups apart",
                         checkpoint->path, group, least, most);
    }
}

eo_status eo_checkpoint_load(eo_checkpoint *checkpoint, eo_runtime *rt)
{
    EO_TRY(eo_runtime_check_idle(rt, "eo_checkpoint_load"));
    if (!checkpoint)
        return eo_runtime_fail(rt, EO_ERR_INVALID, "eo_checkpoint_load: checkpoint is NULL; was eo_checkpoint_open's status looked at?");
    struct checkpoint_error error = {""};
    const eo_status fits = check(checkpoint, rt->plan, &error); /* of this rank alone: before what all do together */
    if (fits < 0)
        return eo_runtime_fail(rt, fits, "%s; weights alone come by name: eo_weights_fill, with eo_checkpoint_read as its producer",
                               error.text);
    if (rt->plan->params.optimizer_states > 0 && checkpoint->files[0].head->own_update && !rt->params.update)
        return eo_runtime_fail(rt, EO_ERR_INVALID,
                               "%s is of another optimizer: there it is the trainer's own "
                               "(eo_runtime_params.update), here %s",
                               checkpoint->path, eo_optimizer_name(rt->plan->params.optimizer));
    EO_TRY(eo_runtime_leave_schedule(rt, "eo_checkpoint_load"));
    eo_saver_await_layer(rt, EO_NONE);
    rt->steps.written[rt->plan->parameter_count] = true;
    RUNTIME_TRY(rt, load(checkpoint, rt), "cannot load the checkpoint %s", checkpoint->path);
    EO_TRY(eo_host_finish_steps(rt, rt->steps.finished));
    rt->steps.finished = checkpoint->manifest.step;
    rt->steps.skipped = checkpoint->files[0].head->skipped - rt->steps.skipped_here; /* may wrap: it is their sum that counts */
    load_frozen_counts(checkpoint, rt);
    return EO_OK;
}
