/* SPDX-License-Identifier: MIT */
#include "tools/run/machine/trial.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "tools/planning/predict.h"
#include "tools/shared/clock.h"

enum { EMBEDDING, RECOMPUTED_BLOCK, BLOCK, HEAD, POSITIONS, BLOCKS = HEAD - RECOMPUTED_BLOCK };

enum {
    STEPS_MIN = 5, /* the first one finds everything cold, the timeline of the last may come too late: three count */
    STEPS_MAX = 64,
    LONG_ENOUGH_MS = 1200 /* more steps within that */
};

/* In less and less memory. The disk makes a step longer, but not the passes that count. */
static const struct trial_way {
    bool offloads;
    uint32_t slots;
} trial_ways[] = {{false, 2}, {false, 1}, {true, 2}, {true, 1}};

struct trial {
    const struct tool_trial *asked;
    const struct trial_way *way;
    bool on_gpu;
    struct tool_plan_settings settings;
    eo_transformer_config config;
    eo_log log;
    eo_transformer *transformer;
    eo_plan *plan;
    eo_plan_operation *operations; /* of the steady list */
    uint32_t operation_count;
    eo_world **worlds;
    struct trial_rank *ranks;
    pthread_mutex_t gate; /* held until all threads are there */
    bool broken;          /* they never will be */
    pthread_barrier_t barrier;
    atomic_bool done;
    uint64_t begin_ns;
};

struct trial_rank {
    struct trial *trial;
    uint32_t rank;
    pthread_t thread;
    eo_team *team;
    eo_runtime *runtime;
    int32_t *tokens, *positions;
    eo_timeline_record *records;
    uint64_t *durations_ns; /* by operation, then sample */
    uint32_t *sample_counts; /* by operation */
    eo_status status;
};

/* ---- what is run ------------------------------------------------------------------------------------------------- */

/* As the job, but for the number of its blocks and what memory decides. Pieces of the head keep their size. */
static void shape_trial(struct trial *t)
{
    const struct tool_plan_settings *settings = t->asked->settings;
    struct tool_plan_settings *s = &t->settings;
    t->config = *t->asked->config;
    t->config.layer_count = BLOCKS;
    *s = *settings;
    s->ranks = t->asked->ranks;
    s->strategy = EO_STRATEGY_ZERO3;
    s->shard_group = 0;
    s->micro_batches = 1;
    s->recompute = EO_RECOMPUTE_BLOCKS;
    s->recompute_blocks = 1; /* of two */
    s->half_blocks = s->graph = s->offload_gradients = s->late_updates = s->no_prefetch = false;
    s->unit_blocks = 0;
    s->unit_bytes = 0;
    s->offload_activations = 0;
    s->offload_layers = t->way->offloads ? UINT32_MAX : 0;
    s->offload_slots = t->way->offloads ? 1 : 0;
    s->gather_run = s->gradient_run = 0;
    s->gather_slots = s->gradient_slots = t->way->slots;
    s->float8_gather = s->float8_gather && s->ranks > 1;
    const uint64_t all = (uint64_t)settings->batch * settings->seq;
    if (all > TOOL_TRIAL_TOKENS && !t->on_gpu)
        s->batch = settings->seq < TOOL_TRIAL_TOKENS ? TOOL_TRIAL_TOKENS / settings->seq : 1;
    const uint64_t tokens = (uint64_t)s->batch * s->seq, pieces = (settings->head_chunks * tokens + all / 2) / all;
    s->head_chunks = pieces > 0 ? (uint32_t)pieces : 1;
}

static eo_status plan_trial(struct trial *t, const struct trial_way *way, const eo_log *log)
{
    t->way = way;
    shape_trial(t);
    struct tool_plan_params params = tool_plan_params_of(&t->settings, &t->config, log);
    eo_plan_summary summary;
    params.transformer.summed_loss = t->settings.packed;
    EO_TRY(eo_transformer_create(&t->transformer, &params.transformer));
    EO_TRY(eo_plan_create(&t->plan, eo_transformer_model(t->transformer), &params.plan));
    eo_plan_get_summary(t->plan, &summary);
    const uint64_t cache = way->offloads ? t->asked->disk_cache_bytes : 0, most = t->asked->most_bytes;
    return cache <= most && summary.arena_bytes <= most - cache ? EO_OK : EO_ERR_NO_MEMORY;
}

static eo_status make_trial(struct trial *t, const eo_log *log)
{
    const size_t way_count = sizeof(trial_ways) / sizeof(trial_ways[0]);
    eo_status status = EO_ERR_NO_MEMORY;
    for (size_t w = 0; w < way_count && status == EO_ERR_NO_MEMORY; w++) {
        if (trial_ways[w].offloads && !t->asked->may_offload)
            break;
        eo_plan_destroy(&t->plan);
        eo_transformer_destroy(&t->transformer);
        status = plan_trial(t, &trial_ways[w], log);
    }
    EO_TRY(status);
    const uint32_t ranks = t->settings.ranks;
    t->operation_count = eo_plan_operation_count(t->plan, EO_LIST_STEADY);
    t->operations = calloc(t->operation_count, sizeof(*t->operations));
    t->worlds = calloc(ranks, sizeof(eo_world *));
    t->ranks = calloc(ranks, sizeof(*t->ranks));
    if (!t->operations || !t->worlds || !t->ranks)
        return EO_ERR_NO_MEMORY;
    for (uint32_t i = 0; i < t->operation_count; i++)
        EO_TRY(eo_plan_get_operation(t->plan, EO_LIST_STEADY, i, &t->operations[i]));
    return eo_world_create_local(t->worlds, eo_world_params(.rank_count = ranks, .device = t->settings.device,
                                                            .device_index = t->asked->device_index, .log = log));
}

static void free_trial(struct trial *t)
{
    for (uint32_t r = 0; t->worlds && r < t->settings.ranks; r++)
        eo_world_destroy(&t->worlds[r]);
    eo_plan_destroy(&t->plan);
    eo_transformer_destroy(&t->transformer);
    free(t->operations);
    free(t->worlds);
    free(t->ranks);
}

/* ---- a rank ------------------------------------------------------------------------------------------------------ */

static eo_status product_of_team(void *user, const eo_matrix_product *product)
{
    const struct trial_rank *rank = user;
    return eo_team_product(rank->team, product);
}

/* A GPU's team works on the stream of the runtime; the runtime of a CPU has the team's threads. */
static eo_status start_team(struct trial_rank *rank)
{
    const struct trial *t = rank->trial;
    return eo_team_create_on(&rank->team, eo_team_params(
        .device = t->settings.device, .thread_count = t->settings.threads, .device_index = t->asked->device_index + rank->rank,
        .stream = rank->runtime ? eo_runtime_stream(rank->runtime) : NULL, .plan_cache = t->asked->product_cache, .log = &t->log));
}

static eo_status start_rank(struct trial_rank *rank)
{
    const struct trial *t = rank->trial;
    const uint64_t tokens = (uint64_t)t->settings.batch * t->settings.seq;
    rank->tokens = calloc(tokens, sizeof(*rank->tokens));
    rank->positions = calloc(tokens, sizeof(*rank->positions));
    rank->records = calloc(t->operation_count, sizeof(*rank->records));
    rank->durations_ns = calloc((size_t)t->operation_count * STEPS_MAX, sizeof(*rank->durations_ns));
    rank->sample_counts = calloc(t->operation_count, sizeof(*rank->sample_counts));
    if (!rank->tokens || !rank->positions || !rank->records || !rank->durations_ns || !rank->sample_counts)
        return EO_ERR_NO_MEMORY;
    for (uint64_t i = 0; i < tokens; i++) { /* spread over the table, as real ones are */
        rank->tokens[i] = (int32_t)((i + 1) * 2654435761u % t->config.vocabulary);
        rank->positions[i] = (int32_t)(i % t->settings.seq);
    }
    if (!t->on_gpu)
        EO_TRY(start_team(rank));
    EO_TRY(eo_runtime_create(&rank->runtime,
                             eo_runtime_params(.plan = t->plan, .world = t->worlds[rank->rank], .product = product_of_team,
                                               .product_user = rank,
                                               .parallel = rank->team ? eo_team_parallel(rank->team) : (eo_parallel){0},
                                               .place_threads = t->asked->place_threads,
                                               .offload_folder = t->asked->offload_folder, .log = &t->log)));
    return t->on_gpu ? start_team(rank) : EO_OK;
}

static uint32_t find_operation(const struct trial *t, const eo_timeline_record *record)
{
    for (uint32_t i = 0; i < t->operation_count; i++)
        if (t->operations[i].kind == record->kind && strcmp(t->operations[i].name, record->name) == 0)
            return i;
    return UINT32_MAX;
}

/* Of a step that has ended, as a rule the last but one; one that is told twice counts twice. */
static void keep_timeline(struct trial_rank *rank)
{
    const struct trial *t = rank->trial;
    const uint32_t count = eo_runtime_timeline(rank->runtime, rank->records, t->operation_count);
    for (uint32_t i = 0; i < count; i++) {
        const eo_timeline_record *record = &rank->records[i];
        const uint32_t at = record->end_ns > record->start_ns && record->name ? find_operation(t, record) : UINT32_MAX;
        if (at != UINT32_MAX && rank->sample_counts[at] < STEPS_MAX)
            rank->durations_ns[(size_t)at * STEPS_MAX + rank->sample_counts[at]++] = record->end_ns - record->start_ns;
    }
}

static eo_status run_step(struct trial_rank *rank)
{
    const struct trial *t = rank->trial;
    const eo_tokens tokens = {.tokens = rank->tokens, .targets = rank->tokens,
                              .positions = t->settings.packed ? rank->positions : NULL, .random = {.seed = 1}};
    const uint64_t counted = (uint64_t)t->settings.batch * t->settings.seq;
    double loss;
    EO_TRY(eo_step_begin(rank->runtime));
    EO_TRY(eo_transformer_micro_batch(t->transformer, rank->runtime, rank->team, &tokens, &loss));
    const eo_step_params params = {.learning_rate = 1e-6f, .beta1 = 0.9f, .beta2 = 0.95f, .eps = 1e-8f, .exact = true, .clip = 1,
                                   .weight = t->settings.packed ? (double)counted : 0};
    eo_step_report report;
    return eo_step_end(rank->runtime, &params, &report);
}

/* Rank 0's clock decides for all, between two barriers. Who fails comes to both as well. */
static eo_status run_steps(struct trial_rank *rank)
{
    struct trial *t = rank->trial;
    eo_status status = rank->status;
    for (uint32_t step = 0; !atomic_load(&t->done); step++) {
        if (status >= 0 && (status = run_step(rank)) < 0)
            eo_world_abort(t->worlds[rank->rank], "a step of a trial failed");
        if (status >= 0 && step > 1)
            keep_timeline(rank);
        pthread_barrier_wait(&t->barrier);
        const uint64_t spent_ns = tool_now_ns() - t->begin_ns;
        if (status < 0 || (rank->rank == 0 && step + 1 >= STEPS_MIN &&
                           (step + 1 == STEPS_MAX || spent_ns >= (uint64_t)LONG_ENOUGH_MS * 1000000)))
            atomic_store(&t->done, true);
        pthread_barrier_wait(&t->barrier);
    }
    return status;
}

static void free_rank(struct trial_rank *rank)
{
    free(rank->tokens);
    free(rank->positions);
    free(rank->records);
    free(rank->durations_ns);
    free(rank->sample_counts);
}

static void rank_life(struct trial_rank *rank)
{
    struct trial *t = rank->trial;
    rank->status = start_rank(rank);
    if (rank->status < 0)
        eo_world_abort(t->worlds[rank->rank], "a rank of a trial cannot start");
    pthread_barrier_wait(&t->barrier);
    if (rank->rank == 0)
        t->begin_ns = tool_now_ns();
    rank->status = run_steps(rank);
    if (t->on_gpu) /* before the stream that it works on */
        eo_team_destroy(&rank->team);
    eo_runtime_destroy(&rank->runtime);
    eo_team_destroy(&rank->team);
}

static void *rank_main(void *arg)
{
    struct trial_rank *rank = arg;
    pthread_mutex_lock(&rank->trial->gate);
    const bool broken = rank->trial->broken;
    pthread_mutex_unlock(&rank->trial->gate);
    if (!broken)
        rank_life(rank);
    return NULL;
}

static eo_status run_ranks(struct trial *t)
{
    const uint32_t count = t->settings.ranks;
    eo_status status = EO_OK;
    uint32_t made = 0;
    pthread_mutex_lock(&t->gate);
    for (; made < count && !t->broken; made++) {
        t->ranks[made] = (struct trial_rank){.trial = t, .rank = made};
        t->broken = pthread_create(&t->ranks[made].thread, NULL, rank_main, &t->ranks[made]) != 0;
    }
    made -= t->broken;
    pthread_mutex_unlock(&t->gate);
    for (uint32_t r = 0; r < made; r++)
        pthread_join(t->ranks[r].thread, NULL);
    if (t->broken)
        return EO_ERR_NO_MEMORY;
    for (uint32_t r = 0; r < count && status >= 0; r++)
        status = t->ranks[r].status;
    return status;
}

/* ---- what it took ------------------------------------------------------------------------------------------------ */

static int by_time(const void *a, const void *b)
{
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

/* Of all ranks and steps, in seconds; 0: it was never seen. */
struct spread {
    double least_s, median_s;
};

static eo_status spread_of(const struct trial *t, uint32_t operation, struct spread *out)
{
    uint64_t *all = calloc((size_t)t->settings.ranks * STEPS_MAX, sizeof(*all));
    uint32_t count = 0;
    if (!all)
        return EO_ERR_NO_MEMORY;
    for (uint32_t r = 0; r < t->settings.ranks; r++) {
        const struct trial_rank *rank = &t->ranks[r];
        for (uint32_t i = 0; i < rank->sample_counts[operation]; i++)
            all[count++] = rank->durations_ns[(size_t)operation * STEPS_MAX + i];
    }
    qsort(all, count, sizeof(*all), by_time);
    *out = (struct spread){0, 0};
    if (count)
        *out = (struct spread){(double)all[0] * 1e-9, (double)all[count / 2] * 1e-9};
    free(all);
    return EO_OK;
}

struct sums {
    double passes[POSITIONS][EO_OP_BACKWARD + 1];
    double update_s, update_elements, link_bytes_per_s;
};

static eo_status add_up(const struct trial *t, struct sums *out)
{
    *out = (struct sums){.update_s = 0};
    for (uint32_t i = 0; i < t->operation_count; i++) {
        const eo_plan_operation *o = &t->operations[i];
        eo_shard_range shard = {0};
        struct spread spread;
        EO_TRY(spread_of(t, i, &spread));
        const double seconds = spread.median_s;
        if (o->kind == EO_OP_FORWARD || o->kind == EO_OP_RECOMPUTE || o->kind == EO_OP_BACKWARD)
            out->passes[o->position][o->kind] += seconds;
        if (seconds > 0 && o->kind == EO_OP_UPDATE) {
            EO_TRY(eo_plan_shard_range(t->plan, o->layer, 0, &shard));
            out->update_s += seconds;
            out->update_elements += (double)shard.count;
        }
        /* Beside computing threads a collective waits for its turn on a processor; in the passes that time is counted. */
        if (seconds > 0 && (o->kind == EO_OP_ALL_GATHER || o->kind == EO_OP_REDUCE_SCATTER) &&
            (double)o->bytes / spread.least_s > out->link_bytes_per_s)
            out->link_bytes_per_s = (double)o->bytes / spread.least_s;
    }
    return EO_OK;
}

/* What a backward pass does before it needs the gradient buffer stands as recompute. */
static double backward_of(const double *passes)
{
    return passes[EO_OP_RECOMPUTE] + passes[EO_OP_BACKWARD];
}

static eo_status tell(const struct trial *t, struct tool_rates *rates)
{
    const double tokens = (double)t->settings.batch * t->settings.seq;
    struct tool_tried *tried = &rates->tried;
    struct sums sums;
    EO_TRY(add_up(t, &sums));
    const double *embedding = sums.passes[EMBEDDING], *head = sums.passes[HEAD], *block = sums.passes[BLOCK];
    const double *recomputed = sums.passes[RECOMPUTED_BLOCK], backward = backward_of(block), again = backward_of(recomputed);
    tried->block_forward_s = (block[EO_OP_FORWARD] + recomputed[EO_OP_FORWARD]) / 2 / tokens;
    tried->block_backward_s = backward / tokens;
    /* Less than a forward pass: what it leaves in the caches saves the backward pass some time. */
    tried->block_recompute_s = again > backward ? (again - backward) / tokens : 0;
    tried->head_s = (head[EO_OP_FORWARD] + backward_of(head)) / tokens;
    tried->embedding_forward_s = embedding[EO_OP_FORWARD] / tokens;
    tried->embedding_backward_s = backward_of(embedding);
    tried->update_s = sums.update_elements > 0 ? sums.update_s / sums.update_elements : 0;
    if (sums.link_bytes_per_s > 0 && t->settings.ranks > 1)
        rates->link_bytes_per_s = sums.link_bytes_per_s;
    return block[EO_OP_FORWARD] > 0 && block[EO_OP_BACKWARD] > 0 && again > 0 ? EO_OK : EO_ERR_UNSUPPORTED;
}

static eo_status try_out(struct trial *t, const eo_log *log)
{
    pthread_mutex_init(&t->gate, NULL);
    eo_status status = make_trial(t, log);
    if (status >= 0 && pthread_barrier_init(&t->barrier, NULL, t->settings.ranks) != 0)
        status = EO_ERR_NO_MEMORY;
    if (status < 0)
        return status;
    status = run_ranks(t);
    pthread_barrier_destroy(&t->barrier);
    return status;
}

eo_status tool_trial_run(const struct tool_trial *asked, const eo_log *log, struct tool_rates *rates)
{
    struct trial t = {.asked = asked, .log = *log, .on_gpu = strcmp(asked->settings->device, "cpu") != 0};
    struct tool_rates told = *rates;
    eo_status status = try_out(&t, log);
    if (status >= 0)
        status = tell(&t, &told);
    if (status >= 0) {
        tool_tried_shape(asked->settings, asked->config, told.tried.shape);
        *rates = told;
    }
    for (uint32_t r = 0; t.ranks && r < asked->ranks; r++)
        free_rank(&t.ranks[r]);
    pthread_mutex_destroy(&t.gate);
    free_trial(&t);
    return status;
}
