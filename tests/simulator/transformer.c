/* SPDX-License-Identifier: MIT */
#include "transformer.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hashing.h"
#include "layers/kernel_ops.h"
#include "rows.h"
#include "tests/simulator/cuda/sim.h"
#include "tests/tap/threads.h"

enum { SEQ = 9, BATCH = 2, VOCABULARY_MAX = 72 };

struct run {
    struct transformer_settings settings;
    struct transformer_result *result;
    eo_transformer *transformer;
    eo_plan *plan;
    eo_world *worlds[TRANSFORMER_RANKS_MAX];
    pthread_mutex_t lock;
    eo_log log;
};

struct rank {
    struct run *run;
    uint32_t rank;
    eo_team *team;
    eo_runtime *runtime;
};

/* The CPU's fast fp32 kernels sum in another order: what the simulated device is held against are the reference's. */
const struct eo_kernel_ops *__real_eo_team_backend_kernels(const struct eo_team_backend *backend, eo_dtype compute,
                                                           eo_dtype gradient);
const struct eo_kernel_ops *__wrap_eo_team_backend_kernels(const struct eo_team_backend *backend, eo_dtype compute,
                                                           eo_dtype gradient);
const struct eo_kernel_ops *__wrap_eo_team_backend_kernels(const struct eo_team_backend *backend, eo_dtype compute,
                                                           eo_dtype gradient)
{
    return backend == &eo_team_cpu_backend ? &eo_kernels_reference_ops
                                           : __real_eo_team_backend_kernels(backend, compute, gradient);
}

static void take_log(void *user, eo_log_level level, const char *text)
{
    struct run *run = user;
    char *kept = level == EO_LOG_ERROR ? run->result->error : run->result->warning;
    pthread_mutex_lock(&run->lock);
    if (kept[0] == '\0')
        snprintf(kept, sizeof(run->result->error), "%s", text);
    pthread_mutex_unlock(&run->lock);
}

#define TRY(call)                                                                                                     \
    do {                                                                                                              \
        const eo_status try_status = (call);                                                                          \
        if (try_status < 0)                                                                                           \
            return give_up(self, #call, try_status);                                                                  \
    } while (0)

static eo_status give_up(struct rank *self, const char *call, eo_status status)
{
    char text[512];
    snprintf(text, sizeof(text), "rank %u: %.80s: %s: %.200s", self->rank, call, eo_status_text(status),
             self->runtime ? eo_runtime_error(self->runtime) : "");
    take_log(self->run, EO_LOG_ERROR, text);
    self->run->result->status = status;
    return status;
}

static eo_transformer_config config_of(const struct transformer_settings *s)
{
    eo_transformer_config config = {.family = s->family, .layer_count = 2, .context = SEQ};
    if (s->family == EO_FAMILY_LLAMA) {
        config.width = s->odd_widths ? 44 : 32;
        config.head_count = s->odd_widths ? 2 : 4;
        config.kv_head_count = s->odd_widths ? 1 : 2;
        config.qkv_bias = s->qkv_bias;
        config.qk_norm = s->qk_norm;
        config.rope_scaling = s->rope_scaling;
        config.head_size = s->qk_norm ? (s->odd_widths ? 26 : 16) : 0;
        config.mlp_width = s->odd_widths ? 51 : 48;
        config.vocabulary = s->odd_widths ? 67 : 64;
    } else {
        config.width = s->odd_widths ? 35 : 32;
        config.head_count = s->odd_widths ? 5 : 4;
        config.mlp_width = s->odd_widths ? 77 : 64;
        config.vocabulary = s->odd_widths ? 61 : 64;
    }
    return config;
}

static void make_tokens(const struct rank *self, uint32_t step, uint32_t micro_batch, int32_t *tokens, int32_t *targets)
{
    const uint32_t vocabulary = eo_transformer_get_params(self->run->transformer)->config.vocabulary;
    uint32_t token = (step * 31 + micro_batch * 17 + self->rank * 7) % vocabulary;
    for (uint32_t i = 0; i < BATCH * SEQ; i++) {
        tokens[i] = (int32_t)token;
        token = (token * 7 + 3 + i % 2) % vocabulary;
        targets[i] = (int32_t)token;
    }
}

/* Documents of 4 and SEQ - 4 tokens; the last of each has no target, nor has every fifth. */
static void pack(const struct rank *self, int32_t *targets, int32_t *positions)
{
    for (int32_t i = 0; i < BATCH * SEQ; i++) {
        const int32_t at = i % SEQ;
        positions[i] = at < 4 ? at : at - 4;
        if (self->run->settings.packed && (at == 3 || at == SEQ - 1 || i % 5 == 0))
            targets[i] = -100;
    }
}

static double counted(const int32_t *targets)
{
    double count = 0;
    for (int i = 0; i < BATCH * SEQ; i++)
        count += targets[i] >= 0;
    return count;
}

/* *weight: the targets that count. */
static eo_status load(struct rank *self, uint32_t step, double *weight)
{
    int32_t tokens[BATCH * SEQ], targets[BATCH * SEQ], positions[BATCH * SEQ];
    *weight = 0;
    for (uint32_t m = 0; m < self->run->settings.micro_batches; m++) {
        make_tokens(self, step, m, tokens, targets);
        pack(self, targets, positions);
        *weight += counted(targets);
        TRY(eo_transformer_load(self->run->transformer, self->runtime,
                                &(eo_tokens){.tokens = tokens, .targets = targets, .slot = m, .positions = positions}));
    }
    return EO_OK;
}

static eo_status micro_batches(struct rank *self)
{
    for (uint32_t m = 0; m < self->run->settings.micro_batches; m++) {
        if (self->run->settings.leaves_error && cudaSetDevice(99) == cudaSuccess)
            return EO_ERR_INVALID;
        TRY(eo_transformer_micro_batch(self->run->transformer, self->runtime, self->team, &(eo_tokens){.slot = m}, NULL));
    }
    return EO_OK;
}

static eo_status one_step(struct rank *self, uint32_t step)
{
    struct run *run = self->run;
    eo_step_params settings = {.learning_rate = 0.01F, .weight_decay = 0.1F, .clip = 0.5F}, *params = &settings;
    eo_step_report report = {0};
    double weight;
    const bool capture = run->settings.graph && step + 2 == run->settings.steps;
    if (load(self, step, &weight) < 0)
        return EO_ERR_INVALID;
    settings.weight = run->settings.packed ? weight : 0;
    if (run->settings.graph && step + 1 == run->settings.steps) {
        TRY(eo_step_replay(self->runtime, params, &report));
    } else {
        if (capture)
            TRY(eo_step_capture(self->runtime));
        TRY(eo_step_begin(self->runtime));
        if (micro_batches(self) < 0)
            return EO_ERR_INVALID;
        TRY(eo_step_end(self->runtime, params, &report));
    }
    if (self->rank == 0) {
        run->result->losses[step] = report.values[0] / (report.weight > 0 ? report.weight : 1);
        run->result->norms[step] = report.gradient_norm;
    }
    return EO_OK;
}

static eo_status evaluate(struct rank *self)
{
    int32_t tokens[BATCH * SEQ], targets[BATCH * SEQ], positions[BATCH * SEQ];
    float logits[VOCABULARY_MAX];
    double loss = 0;
    make_tokens(self, 99, 0, tokens, targets);
    pack(self, targets, positions);
    TRY(eo_transformer_evaluate(self->run->transformer, self->runtime, self->team,
                                &(eo_tokens){.tokens = tokens, .targets = targets, .positions = positions}, &loss));
    if (self->run->settings.packed)
        loss /= counted(targets);
    for (uint32_t position = 1; position < SEQ; position += 3)
        TRY(eo_transformer_logits(self->run->transformer, self->runtime, self->team, tokens, position, logits));
    if (self->rank == 0) {
        self->run->result->evaluation = loss;
        self->run->result->first_logit = logits[0];
    }
    return EO_OK;
}

static eo_status hash_weights(void *user, const eo_parameter_info *parameter, const float *values)
{
    struct rank *self = user;
    const uint64_t name = eo_hash64_more(1, parameter->name, strlen(parameter->name));
    if (self->rank == 0) /* in any order: frozen ones come behind the trained ones of their layer */
        self->run->result->weights += eo_hash64_more(name, values, parameter->element_count * sizeof(*values));
    return EO_OK;
}

static eo_status product(void *user, const eo_matrix_product *p)
{
    const struct rank *self = user;
    return eo_team_product(self->team, p);
}

static eo_status train(struct rank *self)
{
    struct run *run = self->run;
    const struct transformer_settings *s = &run->settings;
    TRY(eo_runtime_create(&self->runtime, eo_runtime_params(.plan = run->plan, .world = run->worlds[self->rank],
                                                            .memory = s->memory,
                                                            .product = product, .product_user = self,
                                                            .debug = s->debug && s->memory == EO_MEMORY_STATIC,
                                                            .log = &run->log)));
    rows_follow(self->runtime);
    TRY(eo_team_create_on(&self->team, eo_team_params(.device = s->device, .stream = eo_runtime_stream(self->runtime),
                                                      .plan_cache = s->plan_cache, .log = &run->log)));
    TRY(eo_transformer_initialise(run->transformer, self->runtime, 7));
    TRY(eo_transformer_prepare(run->transformer, self->runtime, self->team));
    float logits[VOCABULARY_MAX];
    if (s->evaluates) /* behind the text no token has been yet */
        TRY(eo_transformer_logits(run->transformer, self->runtime, self->team, &(int32_t){3}, 0, logits));
    for (uint32_t step = 0; step < s->steps; step++)
        if (one_step(self, step) < 0)
            return EO_ERR_INVALID;
    if (s->evaluates && evaluate(self) < 0)
        return EO_ERR_INVALID;
    TRY(eo_weights_visit(self->runtime, hash_weights, self));
    return EO_OK;
}

static void *rank_main(void *argument)
{
    struct rank *self = argument;
    if (train(self) < 0)
        eo_world_abort(self->run->worlds[self->rank], "the trainer gives up");
    eo_team_destroy(&self->team);
    rows_forget(self->runtime);
    eo_runtime_destroy(&self->runtime);
    return NULL;
}

static eo_status describe(struct run *run)
{
    const struct transformer_settings *s = &run->settings;
    const eo_transformer_params params = {
        .config = config_of(s), .batch = BATCH, .recompute = s->recompute, .recompute_blocks = 1,
        .head_chunks = s->head_chunks, .half_blocks = s->half_blocks, .unit_blocks = s->unit_blocks, .dtype = s->dtype,
        .reduce_dtype = s->reduce_dtype, .device = s->device, .token_slots = s->micro_batches, .log = &run->log,
        .lora = s->lora, .packed = s->packed, .summed_loss = s->packed, .seq = s->float8_products ? SEQ - 1 : SEQ,
        .float8_products = s->float8_products, .fp32_norms = s->fp32_norms};
    const eo_status status = eo_transformer_create(&run->transformer, &params);
    if (status < 0)
        return status;
    return eo_plan_create(&run->plan, eo_transformer_model(run->transformer),
                          eo_plan_params(.rank_count = s->ranks, .micro_batches = s->micro_batches, .dtype = s->dtype,
                                         .reduce_dtype = s->reduce_dtype, .optimizer = s->optimizer,
                                         .float8_frozen = s->float8_frozen, .log = &run->log));
}

void transformer_train(const struct transformer_settings *given, struct transformer_result *out)
{
    static struct rank ranks[TRANSFORMER_RANKS_MAX];
    struct run run = {.settings = *given, .result = out, .lock = PTHREAD_MUTEX_INITIALIZER};
    struct transformer_settings *s = &run.settings;
    *out = (struct transformer_result){.weights = 1};
    run.log = (eo_log){take_log, &run, EO_LOG_WARN};
    s->ranks = s->ranks ? s->ranks : 1;
    s->micro_batches = s->micro_batches ? s->micro_batches : 1;
    s->steps = s->steps ? s->steps : 3;
    out->status = describe(&run);
    if (out->status == EO_OK)
        out->status = eo_world_create_local(run.worlds, eo_world_params(.rank_count = s->ranks, .device = s->device,
                                                                        .share_device = true, .timeout_ms = 20000,
                                                                        .log = &run.log));
    const uint32_t started = out->status == EO_OK ? s->ranks : 0;
    const bool simulated = strcmp(s->device, "cuda") == 0;
    void *arguments[TRANSFORMER_RANKS_MAX];
    for (uint32_t r = 0; r < started; r++) {
        ranks[r] = (struct rank){.run = &run, .rank = r};
        arguments[r] = &ranks[r];
    }
    if (!simulated)
        run_as_threads(rank_main, ranks, started, sizeof(ranks[0]));
    else if (started > 0)
        sim_run_ranks(started, rank_main, arguments);
    for (uint32_t r = 0; r < s->ranks; r++)
        eo_world_destroy(&run.worlds[r]);
    eo_plan_destroy(&run.plan);
    eo_transformer_destroy(&run.transformer);
}
