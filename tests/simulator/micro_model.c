/* SPDX-License-Identifier: MIT */
#include "micro_model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "micro_rank.h"
#include "rows.h"
#include "tests/tap/threads.h"

const struct micro_layer micro_layers[MICRO_LAYERS] = {
    {"in", "in.weight", "in.bias", MICRO_IN, MICRO_WIDTH, 0, true},
    {"body.0", "body.0.weight", "body.0.bias", MICRO_WIDTH, MICRO_WIDTH, (MICRO_IN + 1) * MICRO_WIDTH, true},
    {"body.1", "body.1.weight", "body.1.bias", MICRO_WIDTH, MICRO_WIDTH,
     (MICRO_IN + 1) * MICRO_WIDTH + (MICRO_WIDTH + 1) * MICRO_WIDTH, true},
    {"out", "out.weight", "out.bias", MICRO_WIDTH, MICRO_OUT,
     (MICRO_IN + 1) * MICRO_WIDTH + 2 * (MICRO_WIDTH + 1) * MICRO_WIDTH, false},
};
const uint32_t micro_layer_of[MICRO_POSITIONS] = {0, 1, 2, 1, 3};

static void take_log(void *user, eo_log_level level, const char *text)
{
    struct run *run = user;
    char *log = run->result->log;
    (void)level;
    pthread_mutex_lock(&run->lock);
    const size_t used = strlen(log);
    if (used + 2 < sizeof(run->result->log))
        snprintf(log + used, sizeof(run->result->log) - used, "%s\n", text);
    pthread_mutex_unlock(&run->lock);
}

/* -- the description --------------------------------------------------------------------------------------------- */

static bool add_buffer(struct run *run, const char *kind, uint32_t position, uint32_t width, eo_moment first,
                       uint32_t *out)
{
    char name[32];
    snprintf(name, sizeof(name), "%s.%u", kind, position);
    return eo_model_add_buffer(run->model,
                               eo_buffer_params(.name = name, .bytes = 4u * MICRO_SAMPLES * width,
                                                .category = EO_CATEGORY_ACTIVATION, .first = first,
                                                .last = {EO_PASS_BACKWARD, position}),
                               out) == EO_OK;
}

static bool make_plan(struct run *run, uint32_t micro_batches, eo_plan **out)
{
    const struct micro_settings *settings = &run->settings;
    return eo_plan_create(out, run->model,
                          eo_plan_params(.rank_count = settings->ranks, .micro_batches = micro_batches,
                                         .dtype = settings->dtype, .reduce_dtype = settings->reduce_dtype,
                                         .float8_gather = settings->float8_gather, .float8_frozen = settings->float8_frozen,
                                         .strategy = settings->strategy,
                                         .shard_group = settings->shard_group, .offload_layers = settings->offload_layers,
                                         .offload_slots = settings->offload_slots,
                                         .offload_gradients = settings->offload_gradients,
                                         .late_updates = settings->late_updates,
                                         .separate_evict_stream = settings->separate_evict_stream,
                                         .optimizer = settings->optimizer,
                                         .separate_reduce_stream = settings->separate_reduce_stream,
                                         .norms_beside = settings->norms_beside, .norm_parts = settings->norm_parts,
                                         .separate_reservations = settings->world == MICRO_NCCL,
                                         .log = &run->log)) == EO_OK;
}

static bool describe(struct run *run)
{
    const struct micro_settings *settings = &run->settings;
    bool good = eo_model_create(&run->model, eo_model_params(.name = "micro", .log = &run->log)) == EO_OK;
    for (uint32_t l = 0; good && l < MICRO_LAYERS; l++) {
        const struct micro_layer *layer = &micro_layers[l];
        good = eo_model_add_layer(run->model, eo_layer_params(.name = layer->name), NULL) == EO_OK &&
               eo_model_add_parameter(run->model,
                                      eo_parameter_params(.layer = l, .name = layer->weight, .dim_count = 2,
                                                          .dims = {layer->out, layer->in}, .float8_gather = true,
                                                          .matrix = layer->matrix,
                                                          .frozen = settings->float8_frozen && layer->matrix),
                                      NULL) == EO_OK &&
               eo_model_add_parameter(run->model,
                                      eo_parameter_params(.layer = l, .name = layer->bias, .dim_count = 1,
                                                          .dims = {layer->out}, .group = 1, .no_weight_decay = true),
                                      NULL) == EO_OK;
    }
    for (uint32_t p = 0; good && p < MICRO_POSITIONS; p++) {
        char name[16];
        snprintf(name, sizeof(name), "position.%u", p);
        good = eo_model_add_position(run->model,
                                     eo_position_params(.layer = micro_layer_of[p], .name = name,
                                                        .forward_in_backward = p == HEAD,
                                                        .backward_without_weights = p == 0), NULL) == EO_OK;
    }
    for (uint32_t p = 0; good && p < MICRO_POSITIONS; p++) {
        const uint32_t width = micro_layers[micro_layer_of[p]].out;
        const eo_moment written = {p == HEAD ? EO_PASS_RECOMPUTE : EO_PASS_FORWARD, p};
        const eo_moment gradient = {EO_PASS_RECOMPUTE, p + 1 < MICRO_POSITIONS ? p + 1 : p};
        good = add_buffer(run, "output", p, width, written, &run->outputs[p]) &&
               add_buffer(run, "gradient", p, width, gradient, &run->gradients[p]);
    }
    good = good && eo_model_add_buffer(run->model,
                                       eo_buffer_params(.name = "data", .persistent = true,
                                                        .category = EO_CATEGORY_OTHER,
                                                        .bytes = 4u * MICRO_SAMPLES * SAMPLE * settings->micro_batches),
                                       &run->data) == EO_OK;
    return good && make_plan(run, settings->micro_batches, &run->plan) &&
           (!settings->other_plan || make_plan(run, settings->micro_batches + 1, &run->other_plan));
}

static void *rank_main(void *argument)
{
    struct rank *self = argument;
    const struct micro_settings *settings = &self->run->settings;
    const bool simulated = strcmp(settings->device, "cuda") == 0;
    if (micro_rank_train(self) < 0 && self->world)
        eo_world_abort(self->world, "the trainer gives up");
    rows_forget(self->runtime);
    eo_runtime_destroy(&self->runtime);
    eo_world_nccl_info info;
    if (settings->world == MICRO_NCCL && simulated && self->world &&
        eo_world_nccl_get_info(self->world, &info) == EO_OK) {
        pthread_mutex_lock(&self->run->lock);
        self->run->result->must_exit |= info.must_exit;
        pthread_mutex_unlock(&self->run->lock);
    }
    if (settings->world == MICRO_NCCL && simulated)
        eo_world_destroy(&self->world);
    micro_rank_end(self);
    return NULL;
}

void micro_train(const struct micro_settings *given, struct micro_result *out)
{
    static struct rank ranks[MICRO_RANKS_MAX];
    struct run run = {.settings = *given, .result = out, .lock = PTHREAD_MUTEX_INITIALIZER};
    struct micro_settings *settings = &run.settings;
    memset(out, 0, sizeof(*out));
    run.log = (eo_log){take_log, &run, EO_LOG_ERROR};
    settings->device = settings->device ? settings->device : "cpu";
    settings->steps = settings->steps ? settings->steps : 4;
    settings->micro_batches = settings->micro_batches ? settings->micro_batches : 2;
    settings->timeout_ms = settings->timeout_ms ? settings->timeout_ms : 20000;
    const bool simulated = strcmp(settings->device, "cuda") == 0, nccl = simulated && settings->world == MICRO_NCCL;
    eo_status status = describe(&run) ? EO_OK : EO_ERR_INVALID;
    if (status == EO_OK && nccl)
        status = eo_nccl_id_create(&run.id, &run.log);
    if (status == EO_OK && !nccl)
        status = eo_world_create_local(run.worlds, eo_world_params(.rank_count = settings->ranks,
                                                                   .device = settings->device,
                                                                   .share_device = settings->world == MICRO_ONE_GPU,
                                                                   .timeout_ms = settings->timeout_ms,
                                                                   .log = &run.log));
    out->status[0] = status;
    void *arguments[MICRO_RANKS_MAX];
    for (uint32_t r = 0; r < settings->ranks; r++) {
        ranks[r] = (struct rank){.run = &run, .rank = r, .world = run.worlds[r]};
        arguments[r] = &ranks[r];
    }
    if (status == EO_OK && simulated)
        sim_run_ranks(settings->ranks, rank_main, arguments);
    else if (status == EO_OK)
        run_as_threads(rank_main, ranks, settings->ranks, sizeof(ranks[0]));
    for (uint32_t r = 0; r < settings->ranks; r++)
        eo_world_destroy(&run.worlds[r]);
    eo_plan_destroy(&run.plan);
    eo_plan_destroy(&run.other_plan);
    eo_model_destroy(&run.model);
}

bool micro_same(const struct micro_result *a, const struct micro_result *b)
{
    for (int step = 0; step < MICRO_STEPS_MAX; step++)
        if (a->has_report[step] && b->has_report[step] &&
            (memcmp(&a->losses[step], &b->losses[step], sizeof(double)) != 0 ||
             memcmp(&a->norms[step], &b->norms[step], sizeof(double)) != 0 ||
             memcmp(a->layer_norms[step], b->layer_norms[step], sizeof(a->layer_norms[step])) != 0 ||
             memcmp(a->group_norms[step], b->group_norms[step], sizeof(a->group_norms[step])) != 0))
            return false;
    return memcmp(a->weights, b->weights, sizeof(a->weights)) == 0;
}

eo_status micro_status(const struct micro_result *result)
{
    for (int r = 0; r < MICRO_RANKS_MAX; r++)
        if (result->status[r] < 0)
            return result->status[r];
    return EO_OK;
}

const char *micro_error(const struct micro_result *result)
{
    for (int r = 0; r < MICRO_RANKS_MAX; r++)
        if (result->status[r] < 0)
            return result->error[r][0] ? result->error[r] : result->log;
    return "";
}

const struct micro_result *micro_reference(const struct micro_settings *settings)
{
    static struct {
        struct micro_settings settings;
        struct micro_result result;
    } kept[512];
    static uint32_t count;
    const struct micro_settings wanted = {.ranks = settings->ranks, .dtype = settings->dtype,
                                          .strategy = settings->strategy, .shard_group = settings->shard_group,
                                          .reduce_dtype = settings->reduce_dtype, .steps = settings->steps,
                                          .float8_gather = settings->float8_gather, .norm_parts = settings->norm_parts,
                                          .float8_frozen = settings->float8_frozen, .micro_batches = settings->micro_batches, .optimizer = settings->optimizer,
                                          .waits_each_step = true};
    for (uint32_t i = 0; i < count; i++) {
        const struct micro_settings *s = &kept[i].settings;
        if (s->ranks == wanted.ranks && s->dtype == wanted.dtype && s->reduce_dtype == wanted.reduce_dtype &&
            s->float8_gather == wanted.float8_gather && s->float8_frozen == wanted.float8_frozen && s->norm_parts == wanted.norm_parts &&
            s->strategy == wanted.strategy && s->shard_group == wanted.shard_group && s->steps == wanted.steps &&
            s->micro_batches == wanted.micro_batches && s->optimizer == wanted.optimizer)
            return &kept[i].result;
    }
    if (count == sizeof(kept) / sizeof(kept[0]))
        abort();
    kept[count].settings = wanted;
    micro_train(&wanted, &kept[count].result);
    return &kept[count++].result;
}
