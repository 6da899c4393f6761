/* SPDX-License-Identifier: MIT */
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/check.h"
#include "eo_config.h"
#include "tests/random/case_calls.h"
#include "tests/random/case_runner.h"

/* What the ranks of a run share. */
struct case_world {
    const struct random_case *c;
    const struct case_ranks *ranks;
    eo_plan *plan;
    eo_world *worlds[CASE_RANKS_MAX];
    struct integer_model expected;
    struct case_verdict *verdict;
};

struct case_rank {
    struct case_world *world;
    uint32_t rank;
    eo_runtime *rt;
    bool recorded;
    uint32_t version;                 /* of the weights, between steps */
    uint64_t holds[CASE_BUFFERS_MAX]; /* the content that was written last */
};

static struct case_call call_of_case(const struct case_rank *self, const char *name,
                                     void (*kernel)(const struct case_call *, const void *const *, void *const *))
{
    const struct random_case *c = self->world->c;
    struct case_call call = {.name = name, .kernel = kernel, .c = c, .expected = &self->world->expected,
                             .verdict = self->world->verdict, .version = UINT32_MAX, .place.rank = self->rank};
    if (c->graph) {
        call.in[1] = eo_buffer(self->rt, c->buffer_count);
        call.in_bytes[1] = sizeof(uint32_t);
    }
    return call;
}

static eo_status launch_call(struct case_rank *self, const struct case_call *call)
{
    return self->world->ranks->launch(call, eo_runtime_stream(self->rt));
}

/* -- buffers ---------------------------------------------------------------------------------------------------------*/

static bool is_within(const struct random_case *c, const struct case_buffer *buffer, eo_moment now)
{
    const uint32_t moment = random_case_moment(c, now);
    if (buffer->saved && now.position != buffer->first.position)
        return false;
    return buffer->persistent || (random_case_moment(c, buffer->first) <= moment &&
                                  moment <= random_case_moment(c, buffer->last));
}

/* Fills a buffer at its first use, and else looks whether it holds what it was filled with. `content`: of an evaluation, or
 * 0: of a micro-batch. That of persistent ones is always the same. */
static eo_status use_buffer(struct case_rank *self, uint32_t index, const struct integer_place *place, uint64_t content)
{
    const struct case_buffer *buffer = &self->world->c->buffers[index];
    struct case_call call = call_of_case(self, "buffer", case_fill_buffer);
    void *at = eo_buffer(self->rt, index);
    if (!at) {
        case_complain(self->world->verdict, "buffers: buffer %u is not there", index);
        return EO_ERR_INVALID;
    }
    call.place = *place;
    call.buffer = index;
    call.content = buffer->persistent ? 1 : content;
    const uint64_t wanted = call.content ? call.content : case_content(place->step, place->micro_batch);
    if (self->holds[index] != wanted) {
        call.out[0] = at;
        call.out_bytes[0] = buffer->bytes;
    } else {
        call.kernel = case_look_at_buffer;
        call.in[0] = at;
        call.in_bytes[0] = buffer->bytes;
    }
    self->holds[index] = wanted;
    return launch_call(self, &call);
}

/* All that may be used in this pass. */
static eo_status use_buffers(struct case_rank *self, eo_pass pass, const struct integer_place *place)
{
    const struct random_case *c = self->world->c;
    const eo_moment now = {pass, place->position};
    for (uint32_t b = 0; b < c->buffer_count; b++) {
        const struct case_buffer *buffer = &c->buffers[b];
        if (!is_within(c, buffer, now)) {
            if (c->debug && !EO_DEBUG_ABORT && eo_buffer(self->rt, b))
                case_complain(self->world->verdict, "buffers: buffer %u is given out when it is not live", b);
            continue;
        }
        EO_TRY(use_buffer(self, b, place, 0));
    }
    return EO_OK;
}

/* In a forward-only run, at the moment that evenodd/model.h names. */
static eo_status use_evaluation_buffers(struct case_rank *self, uint32_t p, uint64_t content)
{
    const struct random_case *c = self->world->c;
    const eo_pass pass = c->positions[p].forward_in_backward ? EO_PASS_BACKWARD : EO_PASS_FORWARD;
    const struct integer_place place = {.rank = self->rank, .position = p};
    for (uint32_t b = 0; b < c->buffer_count; b++)
        if (is_within(c, &c->buffers[b], (eo_moment){pass, p}))
            EO_TRY(use_buffer(self, b, &place, content));
    return EO_OK;
}

/* -- weights and gradients -------------------------------------------------------------------------------------------*/

static uint64_t element_bytes(eo_dtype dtype) { return dtype == EO_DTYPE_BF16 ? 2 : 4; }

/* `version`: outside steps, else UINT32_MAX. */
static eo_status look_at_weights(struct case_rank *self, const struct integer_place *place, const eo_view *view,
                                 uint32_t version)
{
    const struct random_case *c = self->world->c;
    const struct case_layer *layer = &c->layers[c->positions[place->position].layer];
    for (uint32_t k = 0; view->weights && k < layer->parameter_count; k++) {
        struct case_call call = call_of_case(self, "look at weights", case_look_at_weights);
        call.version = version;
        call.place = *place;
        call.place.parameter = k;
        call.in[0] = view->weights[k];
        call.in_bytes[0] = layer->elements[k] * element_bytes(random_case_dtype(c, c->positions[place->position].layer, k));
        EO_TRY(launch_call(self, &call));
    }
    return EO_OK;
}

static eo_status give_gradients(struct case_rank *self, const struct integer_place *place, const eo_view *view)
{
    const struct random_case *c = self->world->c;
    const struct case_position *position = &c->positions[place->position];
    const struct case_layer *layer = &c->layers[position->layer];
    for (uint32_t k = 0; k < layer->parameter_count; k++) {
        struct case_call call = call_of_case(self, "gradients", case_give_gradients);
        if (!(position->gradients >> k & 1))
            continue;
        call.place = *place;
        call.place.parameter = k;
        if (view->weights) {
            call.in[0] = view->weights[k];
            call.in_bytes[0] = layer->elements[k] * element_bytes(random_case_dtype(c, position->layer, k));
        }
        call.out[0] = view->gradients[k];
        call.out_bytes[0] = layer->elements[k] * element_bytes(c->settings.reduce_dtype);
        EO_TRY(launch_call(self, &call));
    }
    return EO_OK;
}

static bool is_fp32(const struct random_case *c, uint32_t parameter)
{
    uint32_t l = 0;
    for (; parameter >= c->layers[l].parameter_count; l++)
        parameter -= c->layers[l].parameter_count;
    return c->layers[l].fp32 >> parameter & 1;
}

static void fold_shard(void *user, const eo_shard *shard)
{
    struct case_rank *self = user;
    for (uint32_t i = 0; i < shard->part_count; i++) {
        const eo_shard_part *part = &shard->parts[i];
        const bool is_split = !shard->weights && !is_fp32(self->world->c, part->parameter);
        struct case_call call = call_of_case(self, "optimizer", case_fold_weights);
        call.in[0] = shard->gradient + part->at;
        call.in_bytes[0] = part->count * sizeof(float);
        call.out[0] = shard->weights ? (void *)(shard->weights + part->at) : shard->weights_high + part->at;
        call.out[1] = is_split ? shard->weights_low + part->at : NULL;
        call.out_bytes[0] = part->count * (is_split ? sizeof(uint16_t) : sizeof(float));
        call.out_bytes[1] = is_split ? part->count * sizeof(uint16_t) : 0;
        if (launch_call(self, &call) < 0)
            case_complain(self->world->verdict, "optimizer: not launched");
    }
}

/* -- steps -----------------------------------------------------------------------------------------------------------*/

static eo_status run_micro_batch(struct case_rank *self, uint32_t step, uint32_t b)
{
    const struct random_case *c = self->world->c;
    struct integer_place place = {.step = step, .rank = self->rank, .micro_batch = b};
    const eo_view *view;
    for (uint32_t p = 0; p < c->position_count; p++) {
        place.position = p;
        if (c->positions[p].forward_in_backward)
            continue;
        EO_TRY(eo_forward_begin(self->rt, p, &view));
        EO_TRY(look_at_weights(self, &place, view, UINT32_MAX));
        EO_TRY(use_buffers(self, EO_PASS_FORWARD, &place));
        EO_TRY(eo_forward_end(self->rt, p));
    }
    for (uint32_t p = c->position_count; p-- > 0;) {
        place.position = p;
        EO_TRY(eo_backward_begin(self->rt, p, &view));
        EO_TRY(look_at_weights(self, &place, view, UINT32_MAX));
        EO_TRY(use_buffers(self, EO_PASS_RECOMPUTE, &place));
        if (!c->layers[c->positions[p].layer].frozen) {
            EO_TRY(eo_gradients_begin(self->rt, p, &view));
            EO_TRY(use_buffers(self, EO_PASS_BACKWARD, &place));
            EO_TRY(give_gradients(self, &place, view));
        }
        EO_TRY(eo_backward_end(self->rt, p));
    }
    return EO_OK;
}

/* Of an iteration the last one, `to` += G `from` or `from` G, leaves the signs of `from`. The others may be anything. */
static eo_status multiply_signs(void *user, const eo_matrix_product *product)
{
    struct case_rank *self = user;
    struct case_call call = call_of_case(self, "product", case_sign_product);
    call.out[0] = product->c;
    call.out_bytes[0] = product->m * product->n * sizeof(float);
    if (product->accumulate) {
        call.in[0] = product->m > product->n ? product->a : product->b;
        call.in_bytes[0] = call.out_bytes[0];
    }
    return launch_call(self, &call);
}

static bool is_near_root(double norm, double square) { return fabs(norm - sqrt(square)) <= 1e-6 * sqrt(square); }

static bool is_near(double value, double wanted) { return fabs(value - wanted) <= 1e-6 * wanted; }

/* Of the parameters that are clipped together. */
static double expected_factor(const struct case_rank *self, uint32_t step, uint32_t clip_group)
{
    const struct random_case *c = self->world->c;
    double squares = 0;
    for (uint32_t g = 0; g < CASE_GROUPS_MAX; g++)
        squares += c->clip_groups[g] == clip_group ? self->world->expected.group_norms[step][g] : 0;
    const double norm = sqrt(squares), clip = (double)c->clips[clip_group];
    return clip > 0 && norm > clip ? clip / (norm + 1e-6) : 1;
}

static void check_norm_parts(struct case_rank *self, uint32_t step, const eo_step_report *report)
{
    const struct integer_model *expected = &self->world->expected;
    const bool wanted = self->world->c->settings.norm_parts;
    if (report->layer_count != (wanted ? self->world->c->layer_count : 0) || (report->group_count != 0) != wanted ||
        report->group_count > CASE_GROUPS_MAX) {
        case_complain(self->world->verdict, "norms: step %u: of %u layers, %u groups", step, report->layer_count,
                      report->group_count);
        return;
    }
    for (uint32_t l = 0; l < report->layer_count; l++)
        if (!is_near_root(report->layer_norms[l], expected->layer_norms[step][l]))
            case_complain(self->world->verdict, "norms: step %u: of layer %u %.9g, not %.9g", step, l, report->layer_norms[l],
                          sqrt(expected->layer_norms[step][l]));
    for (uint32_t g = 0; g < report->group_count; g++)
        if (!is_near_root(report->group_norms[g].norm, expected->group_norms[step][g]) ||
            !is_near(report->group_norms[g].clip_factor, expected_factor(self, step, self->world->c->clip_groups[g])))
            case_complain(self->world->verdict, "norms: step %u: of group %u %.9g, not %.9g; factor %.9g, not %.9g", step, g,
                          report->group_norms[g].norm, sqrt(expected->group_norms[step][g]), report->group_norms[g].clip_factor,
                          expected_factor(self, step, self->world->c->clip_groups[g]));
}

static void check_report(struct case_rank *self, uint32_t step, const eo_step_report *report)
{
    const double norm = sqrt(self->world->expected.norms[step]);
    const bool skipped = self->world->c->skips >> step & 1;
    if (report->skipped != skipped)
        case_complain(self->world->verdict, "report: step %u was %sskipped", step, skipped ? "not " : "");
    if (skipped)
        return;
    double sum = 0;
    for (uint32_t r = 0; r < self->world->c->settings.rank_count; r++)
        sum += integer_value(step, r);
    if (report->values[0] != sum || fabs(report->gradient_norm - norm) > 1e-6 * norm)
        case_complain(self->world->verdict, "report: step %u: values %g, not %g; norm %.9g, not %.9g", step, report->values[0],
                      sum, report->gradient_norm, norm);
    if (!is_near(report->clip_factor, expected_factor(self, step, 0)))
        case_complain(self->world->verdict, "report: step %u: clip factor %.9g, not %.9g", step, report->clip_factor,
                      expected_factor(self, step, 0));
    check_norm_parts(self, step, report);
}

_Atomic uint32_t *case_replays;

/* Betas of 0 are exact; AdamW of the default betas' kind takes the smallest instead. */
static eo_step_params step_params_of_case(const struct case_rank *self, uint32_t step, eo_parameter_group *groups)
{
    const struct random_case *c = self->world->c;
    const uint32_t count = random_case_groups(c);
    bool clips = c->settings.optimizer != EO_OPTIMIZER_ADAMW;
    for (uint32_t g = 0; g < count; g++) {
        groups[g] = (eo_parameter_group){.clip_group = c->clip_groups[g]};
        groups[g].clip = groups[g].clip_group ? c->clips[groups[g].clip_group] : 0;
    }
    for (uint32_t i = 0; i < CASE_CLIPS_MAX; i++)
        clips = clips || c->clips[i] > 0;
    const float beta = clips ? 0 : 1.2e-38f;
    return (eo_step_params){.learning_rate = 2, .beta1 = beta, .beta2 = beta, .exact = clips, .clip = c->clips[0],
                            .on_not_finite = c->skips ? EO_SKIP : EO_STOP, .groups = groups, .group_count = count,
                            .values = {integer_value(step, self->rank)}};
}

/* A step is recorded after one that ran in the ordinary way, and run again where nothing came between. */
static eo_status run_case_step(struct case_rank *self, uint32_t step)
{
    const struct random_case *c = self->world->c;
    eo_parameter_group groups[CASE_GROUPS_MAX];
    const eo_step_params params = step_params_of_case(self, step, groups);
    const bool follows = step > 0 && random_case_is_quiet(c, step), asks = random_hash(c->seed, 78, step) % 3 != 0;
    const bool graph = c->graph && self->world->ranks->has_graphs && follows;
    eo_step_report report, *wanted = asks ? &report : NULL;
    if (c->graph)
        EO_TRY(eo_runtime_upload(self->rt, eo_buffer(self->rt, c->buffer_count), &step, sizeof(step)));
    if (graph && self->recorded && random_hash(c->seed, 79, step) % 4 != 0) {
        EO_TRY(eo_step_replay(self->rt, &params, wanted));
        if (case_replays)
            atomic_fetch_add(case_replays, 1);
    } else {
        if (graph)
            EO_TRY(eo_step_capture(self->rt));
        EO_TRY(eo_step_begin(self->rt));
        for (uint32_t b = 0; b < c->settings.micro_batches; b++)
            EO_TRY(run_micro_batch(self, step, b));
        EO_TRY(eo_step_end(self->rt, &params, wanted));
        self->recorded = self->recorded || graph;
    }
    if (asks)
        check_report(self, step, &report);
    self->version = INTEGER_BEFORE(step + 1);
    return EO_OK;
}

/* -- between steps ---------------------------------------------------------------------------------------------------*/

static eo_status run_evaluation(struct case_rank *self, uint64_t content)
{
    const struct random_case *c = self->world->c;
    const eo_view *view;
    EO_TRY(eo_evaluation_begin(self->rt));
    for (uint32_t p = 0; p < c->position_count; p++) {
        const struct integer_place place = {.rank = self->rank, .position = p};
        EO_TRY(eo_forward_begin(self->rt, p, &view));
        EO_TRY(look_at_weights(self, &place, view, self->version));
        EO_TRY(use_evaluation_buffers(self, p, content));
        EO_TRY(eo_forward_end(self->rt, p));
    }
    return eo_evaluation_end(self->rt);
}

static eo_status sum_of_ranks(struct case_rank *self)
{
    const double count = self->world->c->settings.rank_count;
    double values[16];
    for (int i = 0; i < 16; i++)
        values[i] = i + self->rank;
    EO_TRY(eo_sum(self->rt, values, 16));
    for (int i = 0; i < 16; i++)
        if (values[i] != i * count + count * (count - 1) / 2)
            case_complain(self->world->verdict, "sum: value %d is %g", i, values[i]);
    return EO_OK;
}

static void compare_parameter(struct case_rank *self, uint32_t parameter, const float *values)
{
    const struct random_case *c = self->world->c;
    uint32_t l = 0, k = parameter;
    while (k >= c->layers[l].parameter_count)
        k -= c->layers[l++].parameter_count;
    for (uint32_t i = 0; i < c->layers[l].elements[k]; i++) {
        const int32_t want = self->world->expected.weights[self->version][l][k][i];
        if (values[i] == (float)want)
            continue;
        case_complain(self->world->verdict, "weights: rank %u: before step %u element %u of parameter %u.%u is %.9g, not %d",
                      self->rank, self->version / 2, i, l, k, (double)values[i], want);
        return;
    }
}

static void visit_parameter(void *user, const eo_parameter_info *info, const float *values)
{
    struct case_rank *self = user;
    uint32_t l, parameter;
    if (sscanf(info->name, "layer%u.%u", &l, &parameter) != 2)
        case_complain(self->world->verdict, "weights: parameter '%s' was visited", info->name);
    while (l-- > 0)
        parameter += self->world->c->layers[l].parameter_count;
    compare_parameter(self, parameter, values);
}

struct new_weights {
    const struct random_case *c;
    uint32_t layer, parameter; /* as they are at first */
    uint32_t step;             /* or as they are replaced then, if not UINT32_MAX */
};

static void give_new_weights(void *user, uint64_t offset, uint64_t count, float *values)
{
    const struct new_weights *of = user;
    for (uint64_t i = 0; i < count; i++)
        values[i] = (float)(of->step == UINT32_MAX ? integer_first_weight(of->c, of->layer, of->parameter, offset + i)
                                                   : integer_replaced_weight(of->c, of->step, offset + i));
}

static eo_status fill_weights(struct case_rank *self)
{
    struct new_weights of = {.c = self->world->c, .step = UINT32_MAX};
    uint32_t index = 0;
    for (of.layer = 0; of.layer < of.c->layer_count; of.layer++)
        for (of.parameter = 0; of.parameter < of.c->layers[of.layer].parameter_count; of.parameter++)
            EO_TRY(eo_weights_fill(self->rt, index++, give_new_weights, &of));
    return EO_OK;
}

/* Not all ranks want what is read. */
static eo_status read_parameter(struct case_rank *self, uint32_t step, bool writes)
{
    const struct random_case *c = self->world->c;
    const uint32_t parameter = random_case_parameter(c, step);
    uint32_t l = 0, k = parameter;
    char name[EO_NAME_MAX];
    while (k >= c->layers[l].parameter_count)
        k -= c->layers[l++].parameter_count;
    snprintf(name, sizeof(name), "layer%u.%u", l, k);
    const bool wants = writes || random_hash(c->seed, self->rank, step) % 3 != 0;
    float *values = calloc(c->layers[l].elements[k], sizeof(*values));
    if (!values)
        return EO_ERR_NO_MEMORY;
    eo_status status = eo_weights_read(self->rt, name, wants ? values : NULL);
    if (status >= 0 && wants)
        compare_parameter(self, parameter, values);
    if (status >= 0 && writes)
        status = eo_weights_write(self->rt, name, values);
    free(values);
    return status;
}

static eo_status run_action(struct case_rank *self, uint32_t step, uint32_t index)
{
    struct new_weights of = {.c = self->world->c, .step = step};
    switch (self->world->c->actions[step][index]) {
    case CASE_EVALUATES:
        return run_evaluation(self, 1000 + 8 * step + index);
    case CASE_SUMS:
        return sum_of_ranks(self);
    case CASE_VISITS:
        return eo_weights_visit(self->rt, visit_parameter, self);
    case CASE_READS:
        return read_parameter(self, step, false);
    case CASE_WRITES:
        return read_parameter(self, step, true);
    case CASE_REPLACES:
        self->version = INTEGER_IN(step);
        return eo_weights_fill(self->rt, random_case_parameter(of.c, step), give_new_weights, &of);
    default:
        return EO_OK;
    }
}

/* -- ranks -----------------------------------------------------------------------------------------------------------*/

static eo_status run_rank(struct case_rank *self)
{
    const struct random_case *c = self->world->c;
    EO_TRY(eo_runtime_create(&self->rt, eo_runtime_params(.plan = self->world->plan,
                                                          .world = self->world->worlds[self->rank], .memory = c->memory,
                                                          .debug = c->debug, .update_user = self,
                                                          .update = c->own_optimizer ? fold_shard : NULL,
                                                          .product = multiply_signs, .product_user = self,
                                                          .dynamic_reduce_inputs = c->reduce_inputs,
                                                          .dynamic_implicit_prefetch = c->implicit_prefetch,
                                                          .zero_gradients = c->zero_gradients,
                                                          .delay_seed = c->delay_seed ? c->delay_seed + self->rank : 0)));
    EO_TRY(fill_weights(self));
    for (uint32_t step = 0; step <= c->step_count; step++) {
        for (uint32_t a = 0; a < CASE_ACTIONS_MAX; a++)
            EO_TRY(run_action(self, step, a));
        if (step < c->step_count)
            EO_TRY(run_case_step(self, step));
    }
    self->version = INTEGER_IN(c->step_count);
    return eo_weights_visit(self->rt, visit_parameter, self);
}

static void *case_rank_main(void *argument)
{
    struct case_rank *self = argument;
    const struct case_ranks *ranks = self->world->ranks;
    eo_world **world = &self->world->worlds[self->rank];
    eo_status status = ranks->join ? ranks->join(self->world->c, self->rank, world) : EO_OK;
    if (status >= 0)
        status = run_rank(self);
    if (status < 0) {
        case_complain(self->world->verdict, "calls: rank %u: %s: %s", self->rank, eo_status_text(status),
                      self->rt ? eo_runtime_error(self->rt) : "no runtime");
        if (*world)
            eo_world_abort(*world, "its part of the case failed");
    }
    eo_runtime_destroy(&self->rt);
    if (ranks->leave)
        ranks->leave(self->world->c, self->rank, world);
    return NULL;
}

static void run_ranks_of_case(struct case_world *world)
{
    const uint32_t count = world->c->settings.rank_count;
    struct case_rank *ranks = calloc(count, sizeof(*ranks));
    void *arguments[CASE_RANKS_MAX];
    if (!ranks)
        eo_fatal("out of memory");
    for (uint32_t r = 0; r < count; r++) {
        ranks[r].world = world;
        ranks[r].rank = r;
        arguments[r] = &ranks[r];
    }
    world->ranks->run(count, case_rank_main, arguments);
    free(ranks);
}

static eo_status open_threads(const struct random_case *c, eo_world **worlds)
{
    return eo_world_create_local(worlds, eo_world_params(.rank_count = c->settings.rank_count));
}

static void run_as_threads(uint32_t count, void *(*main)(void *argument), void *const *arguments)
{
    pthread_t threads[CASE_RANKS_MAX];
    for (uint32_t r = 0; r < count; r++)
        if (pthread_create(&threads[r], NULL, main, arguments[r]) != 0)
            eo_fatal("no thread for rank %u", r);
    for (uint32_t r = 0; r < count; r++)
        pthread_join(threads[r], NULL);
}

const struct case_ranks case_threads = {.open = open_threads, .run = run_as_threads, .launch = case_launch_at_once};

bool case_run(const struct random_case *c, const struct case_ranks *ranks, struct case_outcome *out)
{
    struct case_world *world = calloc(1, sizeof(*world));
    struct case_verdict *verdict = mmap(NULL, sizeof(*verdict), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    eo_model *model = NULL;
    eo_status status = EO_ERR_NO_MEMORY;
    if (!world || verdict == MAP_FAILED)
        eo_fatal("out of memory");
    *world = (struct case_world){.c = c, .ranks = ranks, .verdict = verdict};
    if (integer_model_train(&world->expected, c))
        status = random_case_model(c, NULL, &model);
    if (status >= 0)
        status = eo_plan_create(&world->plan, model, &c->settings);
    if (status >= 0 && ranks->open)
        status = ranks->open(c, world->worlds);
    if (status >= 0)
        run_ranks_of_case(world);
    else
        case_complain(verdict, "not run: %s", eo_status_text(status));
    for (uint32_t r = 0; r < c->settings.rank_count; r++)
        eo_world_destroy(&world->worlds[r]);
    eo_plan_destroy(&world->plan);
    eo_model_destroy(&model);
    integer_model_end(&world->expected);
    *out = verdict->outcome;
    munmap(verdict, sizeof(*verdict));
    free(world);
    return out->text[0] == '\0';
}
