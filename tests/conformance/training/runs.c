/* SPDX-License-Identifier: MIT */
#include "tests/conformance/training/runs.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/hashing.h"
#include "tests/conformance/ranks.h"
#include "runtime/world/internal.h"
#include "tests/tap/threads.h"

/* What the ranks of a run share. */
struct job {
    struct train_settings settings;
    eo_transformer *transformer;
    eo_plan *plan;
    eo_world *worlds[2][TRAIN_RANKS_MAX];
    struct train_result result;
    uint64_t hashes[2][TRAIN_RANKS_MAX];
};

struct rank {
    struct job *job;
    uint32_t rank;
    eo_team *team;
    eo_runtime *runtimes[2];
    int32_t *tokens, *targets;
};

static void write_log(void *user, eo_log_level level, const char *text)
{
    (void)user;
    (void)level;
    printf("# %s\n", text);
}

static const eo_log train_log = {.write = write_log, .level = EO_LOG_WARN};

/* Odd in every size: shards need padding, rows of matrices end within vectors. */
static eo_transformer_config config_of(const struct train_settings *s)
{
    if (s->family == EO_FAMILY_LLAMA)
        return (eo_transformer_config){.family = EO_FAMILY_LLAMA, .layer_count = 3, .width = 44, .head_count = 2,
                                       .kv_head_count = 1, .mlp_width = 51, .vocabulary = 67, .context = 9,
                                       .tied_head = false};
    return (eo_transformer_config){.family = EO_FAMILY_GPT2, .layer_count = 3, .width = 35, .head_count = 5,
                                   .mlp_width = 77, .vocabulary = 61, .context = 9, .tied_head = !s->free_head};
}

/* What rank 0 has to say fails the case; others fail for the same reason. */
static bool check(const struct rank *self, eo_status status, const char *call, const eo_runtime *runtime)
{
    if (status >= 0)
        return true;
    test_fail(NULL, __FILE__, __LINE__, "rank %u: %s: %s: %s", self->rank, call, eo_status_text(status),
              eo_runtime_error(runtime));
    return false;
}

#define CALL(call)                                                                                                   \
    do {                                                                                                              \
        if (!check(self, call, #call, runtime))                                                                       \
            return false;                                                                                             \
    } while (0)

static eo_status hash_weights(void *user, const eo_parameter_info *parameter, const float *values)
{
    uint64_t *hash = user;
    *hash = eo_hash64_more(*hash, values, parameter->element_count * sizeof(*values));
    return EO_OK;
}

/* Sequence k of a run; the tokens follow from each other, so that there is something to learn. */
static void make_sequence(uint32_t k, uint32_t vocabulary, uint32_t length, int32_t *tokens, int32_t *targets)
{
    uint32_t token = (uint32_t)(test_hash(5, 0, k) % vocabulary);
    for (uint32_t t = 0; t < length; t++) {
        const uint32_t next = (token * 7 + 3 + (uint32_t)(test_hash(6, k, t) % 3)) % vocabulary;
        tokens[t] = (int32_t)token;
        targets[t] = (int32_t)next;
        token = next;
    }
}

static bool run_step(struct rank *self, uint32_t which, uint32_t step)
{
    const struct job *job = self->job;
    const struct train_settings *s = &job->settings;
    const eo_transformer_params *params = eo_transformer_get_params(job->transformer);
    eo_runtime *runtime = self->runtimes[which];
    double sum = 0;
    CALL(eo_step_begin(runtime));
    for (uint32_t m = 0; m < s->micro_batches; m++) {
        for (uint32_t b = 0; b < params->batch; b++)
            make_sequence(step * TRAIN_SEQUENCES + (m * s->ranks + self->rank) * params->batch + b,
                          params->config.vocabulary, params->seq, self->tokens + b * params->seq,
                          self->targets + b * params->seq);
        double loss = 0;
        const eo_tokens tokens = {.tokens = self->tokens, .targets = self->targets};
        CALL(eo_transformer_micro_batch(job->transformer, runtime, self->team, &tokens, &loss));
        sum += loss;
    }
    eo_step_report report;
    eo_step_params step_params = {.learning_rate = 3e-3F, .weight_decay = 0.1F, .clip = 0.7F};
    step_params.values[0] = sum / s->micro_batches / s->ranks;
    CALL(eo_step_end(runtime, &step_params, &report));
    if (s->evaluates && step % 2 == 0) {
        const eo_tokens tokens = {.tokens = self->tokens, .targets = self->targets};
        double loss;
        CALL(eo_transformer_evaluate(job->transformer, runtime, self->team, &tokens, &loss));
    }
    if (self->rank != 0)
        return true;
    struct train_result *out = &self->job->result;
    if (which == 1)
        TEST_EXPECT(NULL, out->losses[step] == report.values[0] && out->norms[step] == report.gradient_norm,
                    "two runtimes at once differ in step %u", step);
    out->losses[step] = report.values[0];
    out->norms[step] = report.gradient_norm;
    return true;
}

static bool run_rank(struct rank *self)
{
    struct job *job = self->job;
    const struct train_settings *s = &job->settings;
    const uint32_t copies = s->twice ? 2 : 1;
    eo_runtime *runtime = NULL;
    CALL(eo_team_create(&self->team, s->threads));
    for (uint32_t c = 0; c < copies; c++) {
        CALL(eo_runtime_create(&self->runtimes[c],
                                eo_runtime_params(.plan = job->plan, .world = job->worlds[c][self->rank],
                                                  .memory = s->memory, .parallel = eo_team_parallel(self->team),
                                                  .debug = s->debug, .delay_seed = s->delay_seed,
                                                  .dynamic_implicit_prefetch = s->implicit_prefetch,
                                                  .dynamic_reduce_inputs = s->reduce_inputs,
                                                  .dynamic_offload = s->dynamic_offload, .log = &train_log)));
        runtime = self->runtimes[c];
        CALL(eo_transformer_initialise(job->transformer, runtime, 11));
    }
    for (uint32_t step = 0; step < s->steps; step++)
        for (uint32_t c = 0; c < copies; c++) {
            if (!run_step(self, c, step))
                return false;
            if (s->after_step)
                s->after_step(self->rank, step);
        }
    for (uint32_t c = 0; c < copies; c++) {
        job->hashes[c][self->rank] = 1;
        runtime = self->runtimes[c];
        CALL(eo_weights_visit(runtime, hash_weights, &job->hashes[c][self->rank]));
    }
    if (self->rank == 0) {
        eo_runtime_stats stats;
        eo_runtime_get_stats(self->runtimes[0], &stats);
        job->result.arena_bytes = stats.arena_bytes;
        job->result.allocator_calls = stats.allocator_calls;
    }
    return true;
}

static struct rank rank_of(struct job *job, uint32_t rank)
{
    struct rank self = {.job = job, .rank = rank};
    self.tokens = calloc((size_t)TRAIN_SEQUENCES * 9, sizeof(int32_t));
    self.targets = calloc((size_t)TRAIN_SEQUENCES * 9, sizeof(int32_t));
    if (!self.tokens || !self.targets) {
        puts("Bail out! no memory");
        exit(1);
    }
    return self;
}

static void *rank_main(void *arg)
{
    struct rank *self = arg;
    if (!run_rank(self))
        for (int c = 0; c < 2; c++)
            if (self->job->worlds[c][self->rank])
                eo_world_abort(self->job->worlds[c][self->rank], "its test failed");
    for (int c = 0; c < 2; c++)
        eo_runtime_destroy(&self->runtimes[c]);
    eo_team_destroy(&self->team);
    return NULL;
}

static bool make_worlds(struct job *job)
{
    const struct train_settings *s = &job->settings;
    const struct rank nobody = {0}, *self = &nobody;
    const eo_runtime *runtime = NULL;
    for (uint32_t c = 0; c < (s->twice ? 2 : 1); c++)
        CALL(eo_world_create_local(job->worlds[c],
                                    eo_world_params(.rank_count = s->ranks,
                                                    .fabric_gigabytes_per_s = s->fabric_gigabytes_per_s,
                                                    .fabric_latency_us = s->fabric_latency_us, .log = &train_log)));
    return true;
}

static bool describe(struct job *job)
{
    struct train_settings *s = &job->settings;
    const struct rank nobody = {0}, *self = &nobody;
    const eo_runtime *runtime = NULL;
    CALL(eo_transformer_create(&job->transformer,
                                eo_transformer_params(.config = config_of(s),
                                                      .batch = TRAIN_SEQUENCES / s->ranks / s->micro_batches,
                                                      .recompute = s->recompute,
                                                      .recompute_blocks = s->recompute_blocks,
                                                      .head_chunks = s->head_chunks, .thread_count = s->threads,
                                                      .half_blocks = s->half_blocks, .unit_blocks = s->unit_blocks, .dtype = s->dtype,
                                                      .reduce_dtype = s->reduce_dtype, .log = &train_log)));
    CALL(eo_plan_create(&job->plan, eo_transformer_model(job->transformer),
                        eo_plan_params(.rank_count = s->ranks, .micro_batches = s->micro_batches,
                                       .gather_slots = s->gather_slots, .gradient_slots = s->gradient_slots, .dtype = s->dtype,
                                       .reduce_dtype = s->reduce_dtype, .offload_layers = s->offload_layers,
                                       .offload_activations = s->offload_activations,
                                       .offload_slots = s->offload_slots, .offload_gradients = s->offload_gradients,
                                       .late_updates = s->late_updates,
                                       .gather_run = s->gather_run, .gradient_run = s->gradient_run,
                                       .no_prefetch = s->no_prefetch, .float8_gather = s->float8_gather,
                                       .strategy = s->strategy, .shard_group = s->shard_group,
                                       .separate_reduce_stream = s->separate_reduce_stream,
                                       .separate_evict_stream = s->separate_evict_stream,
                                       .norms_beside = s->norms_beside, .optimizer = s->optimizer,
                                       .log = &train_log)));
    return true;
}

static void run_threads(struct job *job)
{
    struct rank ranks[TRAIN_RANKS_MAX] = {{0}};
    for (uint32_t r = 0; r < job->settings.ranks; r++)
        ranks[r] = rank_of(job, r);
    run_as_threads(rank_main, ranks, job->settings.ranks, sizeof(ranks[0]));
    for (uint32_t r = 0; r < job->settings.ranks; r++) {
        free(ranks[r].tokens);
        free(ranks[r].targets);
    }
}

/* The group that the test has made is the world's. */
static void process_body(struct test_rank *self)
{
    struct job *job = self->shared;
    struct eo_world world = {.rank = self->rank, .rank_count = self->rank_count, .device = "cpu", .ops = self->ops,
                             .group = self->group, .log = train_log};
    struct rank rank = rank_of(job, self->rank);
    job->worlds[0][self->rank] = &world;
    rank_main(&rank);
    job->worlds[0][self->rank] = NULL;
    free(rank.tokens);
    free(rank.targets);
}

void train_run(const struct train_settings *settings, struct train_result *out)
{
    struct job *job = test_shared(sizeof(*job)); /* of ranks that are processes as well */
    struct train_settings *s = &job->settings;
    *s = *settings;
    s->ranks = s->ranks ? s->ranks : 1;
    s->micro_batches = s->micro_batches ? s->micro_batches : 1;
    s->steps = s->steps ? s->steps : 4;
    s->threads = s->threads ? s->threads : 1;
    job->result = (struct train_result){.steps = s->steps};
    const bool are_threads = test_kind() == TEST_LOCAL;
    if (describe(job) && (!are_threads || make_worlds(job))) {
        eo_plan_summary summary;
        eo_plan_get_summary(job->plan, &summary);
        job->result.planned_bytes = summary.arena_bytes;
        if (are_threads)
            run_threads(job);
        else
            test_run_ranks(&(const struct test_settings){.rank_count = s->ranks, .shared = job}, process_body);
        job->result.weights_hash = job->hashes[0][0];
        for (uint32_t c = 0; c < (s->twice ? 2 : 1); c++)
            for (uint32_t r = 0; r < s->ranks; r++)
                TEST_EXPECT(NULL, job->hashes[c][r] == job->result.weights_hash || test_kind() == TEST_STARTED,
                            "rank %u sees other weights", r);
    }
    for (uint32_t c = 0; c < 2; c++)
        for (uint32_t r = 0; r < s->ranks; r++)
            eo_world_destroy(&job->worlds[c][r]);
    eo_plan_destroy(&job->plan);
    eo_transformer_destroy(&job->transformer);
    test_spread(&job->result, sizeof(job->result));
    *out = job->result;
    munmap(job, sizeof(*job));
}

void train_expect_same(const char *what, const struct train_result *a, const struct train_result *b)
{
    for (uint32_t i = 0; i < a->steps; i++)
        TEST_EXPECT(NULL, a->losses[i] == b->losses[i] && a->norms[i] == b->norms[i],
                    "%s: step %u: loss %.17g and %.17g, norm %.17g and %.17g", what, i, a->losses[i], b->losses[i],
                    a->norms[i], b->norms[i]);
    TEST_EXPECT(NULL, a->weights_hash == b->weights_hash, "%s: the weights differ", what);
}

void train_expect_near(const char *what, const struct train_result *a, const struct train_result *b, double tolerance)
{
    train_expect_nearly(what, a, b, tolerance, 10 * tolerance);
}

void train_expect_nearly(const char *what, const struct train_result *a, const struct train_result *b, double tolerance,
                         double norm_tolerance)
{
    for (uint32_t i = 0; i < a->steps; i++) {
        const double loss = fabs(a->losses[i] - b->losses[i]) / fabs(a->losses[i]);
        const double norm = fabs(a->norms[i] - b->norms[i]) / fabs(a->norms[i]);
        TEST_EXPECT(NULL, loss <= tolerance && norm <= norm_tolerance, "%s: step %u: loss %.9g and %.9g, norm %.9g and %.9g",
                    what, i, a->losses[i], b->losses[i], a->norms[i], b->norms[i]);
    }
}
