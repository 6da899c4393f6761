/* SPDX-License-Identifier: MIT */
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/check.h"
#include "tests/random/case_rank.h"

static bool is_near_root(double norm, double square) { return fabs(norm - sqrt(square)) <= 1e-6 * sqrt(square); }

static bool is_near(double value, double wanted) { return fabs(value - wanted) <= 1e-6 * wanted; }

/* Of the parameters that are clipped together. */
static double expected_factor(const struct case_rank *self, uint32_t step, uint32_t clip_group)
{
    const struct random_case *c = self->world->c;
    double squares = 0;
    for (uint32_t g = 0; g < CASE_GROUPS_MAX; g++)
        squares += c->clip_groups[g] == clip_group ? self->world->expected->group_norms[step][g] : 0;
    const double norm = sqrt(squares), clip = (double)c->clips[clip_group];
    return clip > 0 && norm > clip ? clip / (norm + 1e-6) : 1;
}

static void check_norm_parts(struct case_rank *self, uint32_t step, const eo_step_report *report)
{
    const struct integer_model *expected = self->world->expected;
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
    const double norm = sqrt(self->world->expected->norms[step]);
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

/* Betas of 0 are exact; AdamW of the default betas' kind takes the smallest instead, and so does Muon's momentum. */
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
    return (eo_step_params){.learning_rate = 2,
                            .beta1 = beta,
                            .beta2 = beta,
                            .exact = clips,
                            .momentum = c->settings.optimizer == EO_OPTIMIZER_MUON ? 1.2e-38f : 0,
                            .clip = c->clips[0],
                            .on_not_finite = c->skips ? EO_SKIP : EO_STOP,
                            .groups = groups,
                            .group_count = count,
                            .values = {integer_value(step, self->rank)}};
}

/* A step is recorded after one that ran in the ordinary way, and run again where nothing came between. */
static eo_status run_case_step(struct case_rank *self, uint32_t step)
{
    const struct random_case *c = self->world->c;
    eo_parameter_group groups[CASE_GROUPS_MAX];
    const eo_step_params params = step_params_of_case(self, step, groups);
    const bool follows = step > self->world->first_step && random_case_is_quiet(c, step), asks = random_hash(c->seed, 78, step) % 3 != 0;
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
            EO_TRY(case_micro_batch(self, step, b));
        EO_TRY(eo_step_end(self->rt, &params, wanted));
        self->recorded = self->recorded || graph;
    }
    if (asks)
        check_report(self, step, &report);
    self->version = INTEGER_BEFORE(step + 1);
    return EO_OK;
}

/* -- ranks -----------------------------------------------------------------------------------------------------------*/

static eo_status run_rank(struct case_rank *self)
{
    const struct random_case *c = self->world->c;
    EO_TRY(eo_runtime_create(&self->rt, eo_runtime_params(.plan = self->world->plan,
                                                          .world = self->world->worlds[self->rank], .memory = c->memory,
                                                          .debug = c->debug, .update_user = self,
                                                          .update = c->own_optimizer ? case_update : NULL,
                                                          .product = case_product, .product_user = self,
                                                          .dynamic_reduce_inputs = c->reduce_inputs,
                                                          .dynamic_implicit_prefetch = c->implicit_prefetch,
                                                          .zero_gradients = c->zero_gradients,
                                                          .delay_seed = c->delay_seed ? c->delay_seed + self->rank : 0)));
    EO_TRY(self->world->first_step ? case_load(self) : case_first_weights(self));
    self->version = INTEGER_BEFORE(self->world->first_step);
    for (uint32_t step = self->world->first_step; step <= c->step_count; step++) {
        if (step == self->world->end_step)
            return case_save(self);
        for (uint32_t a = 0; a < CASE_ACTIONS_MAX; a++)
            EO_TRY(case_action(self, step, a));
        if (step < c->step_count)
            EO_TRY(run_case_step(self, step));
    }
    self->version = INTEGER_IN(c->step_count);
    return case_visit(self);
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

const struct case_ranks case_threads = {.open = open_threads, .run = run_as_threads, .launch = case_launch_at_once,
                                        .resumes = true};

/* Its steps from `first` on; before step `end` all is saved. */
static void run_part_of_case(struct case_world *world, const eo_model *model, uint32_t first, uint32_t end)
{
    const struct random_case *c = world->c;
    world->first_step = first;
    world->end_step = end;
    eo_status status = eo_plan_create(&world->plan, model, &c->settings);
    if (status >= 0 && world->ranks->open)
        status = world->ranks->open(c, world->worlds);
    if (status >= 0)
        run_ranks_of_case(world);
    else
        case_complain(world->verdict, "not run: %s", eo_status_text(status));
    for (uint32_t r = 0; r < c->settings.rank_count; r++)
        eo_world_destroy(&world->worlds[r]);
    eo_plan_destroy(&world->plan);
}

/* Until the ranks change, and from there on. */
static void run_parts_of_case(struct case_world *world, const eo_model *model)
{
    struct random_case later = *world->c;
    if (later.resume_ranks == 0) {
        run_part_of_case(world, model, 0, UINT32_MAX);
        return;
    }
    later.settings.rank_count = later.resume_ranks;
    later.settings.shard_group = later.resume_group;
    random_case_settle(&later); /* of one rank nothing is gathered in float8 */
    case_folder_make();
    run_part_of_case(world, model, 0, later.resume_step);
    world->c = &later;
    if (!atomic_load(&world->verdict->is_told))
        run_part_of_case(world, model, later.resume_step, UINT32_MAX);
    case_folder_remove();
}

bool case_run(const struct random_case *c, const struct case_ranks *ranks, struct case_outcome *out)
{
    struct case_world *world = calloc(1, sizeof(*world));
    struct integer_model *expected = calloc(1, sizeof(*expected));
    struct case_verdict *verdict = mmap(NULL, sizeof(*verdict), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    struct random_case taken = *c;
    eo_model *model = NULL;
    if (!world || !expected || verdict == MAP_FAILED)
        eo_fatal("out of memory");
    taken.resume_ranks = ranks->resumes ? c->resume_ranks : 0;
    *world = (struct case_world){.c = &taken, .ranks = ranks, .expected = expected, .verdict = verdict};
    const bool trained = integer_model_train(expected, &taken);
    const eo_status status = trained ? random_case_model(c, NULL, &model) : EO_ERR_NO_MEMORY;
    if (status >= 0)
        run_parts_of_case(world, model);
    else
        case_complain(verdict, "not run: %s", eo_status_text(status));
    eo_model_destroy(&model);
    integer_model_end(expected);
    *out = verdict->outcome;
    munmap(verdict, sizeof(*verdict));
    free(expected);
    free(world);
    return out->text[0] == '\0';
}
