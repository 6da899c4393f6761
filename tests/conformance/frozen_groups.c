/* SPDX-License-Identifier: MIT
 *
 * Goal: steps that freeze a group leave nothing of it changed, also not the count of steps that AdamW corrects its state by, as
 * PyTorch's requires_grad_(False) does.
 * Method: a training whose steps freeze one group or the other, or are skipped, ends in the bits of a training without these
 * steps; on any number of ranks, beyond a checkpoint that another number of ranks loads, and where the host runs ahead of its
 * reports. So does one whose groups have other numbers behind the checkpoint, or are more.
 */
#include <evenodd/evenodd.h>

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/tap/tap.h"

enum { RANKS_MAX = 3, LAYERS = 2, PARAMETERS = 3, COUNT_MAX = 700, GROUPS = 2, GROUPS_MAX = 3 };

static const struct parameter {
    uint32_t layer, group;
    uint64_t count;
    bool no_weight_decay;
} parameters[PARAMETERS] = {{0, 0, 700, false}, {0, 1, 300, false}, {1, 1, 96, true}};

/* A group trains in a step or is frozen; a skipped step has a gradient that is not finite. */
static const struct step {
    bool trains[GROUPS], is_skipped;
} steps[] = {
    {{true, true}, false},
    {{true, false}, false},
    {{true, false}, true},
    {{false, true}, false},
    {{true, true}, true},
    {{false, false}, false},
    {{true, true}, false},
    {{true, false}, false},
    /* the checkpoint lies here: 2 steps have frozen the first group, 3 the second */
    {{false, true}, true},
    {{false, true}, false},
    {{true, true}, false},
};
enum { STEPS = sizeof(steps) / sizeof(steps[0]), SAVED = 8, APPLIED = 5 /* steps of each group */ };

struct variant {
    const char *name;
    eo_optimizer optimizer;
    eo_memory memory;
    bool no_reports, reshards;
    uint32_t ranks, ranks_later; /* of the steps before and behind the checkpoint */
    uint32_t groups_later[PARAMETERS]; /* of the parameters, behind it */
};

struct rank {
    const struct variant *variant;
    const eo_plan *plan;
    eo_world *world;
    const char *folder;
    uint32_t from, until; /* steps; plain ones: until = 0 */
    float (*weights)[COUNT_MAX];
};

static const char *device_name;
static uint32_t groups_now[PARAMETERS];
static char warning[500];

static void keep_warning(void *user, eo_log_level level, const char *text)
{
    (void)user;
    if (level == EO_LOG_WARN && strstr(text, "frozen"))
        snprintf(warning, sizeof(warning), "%s", text);
}

static const eo_log warnings = {.write = keep_warning, .level = EO_LOG_WARN};

static void must(eo_status status, const char *what)
{
    if (status >= 0)
        return;
    printf("Bail out! %s: %s\n", what, eo_status_text(status));
    exit(1);
}

/* Rank 0 alone gives one, so the sum has the same bits on any number of ranks. */
static void give_gradient(eo_runtime *rt, const struct parameter *p, uint32_t step, bool is_finite, void *to)
{
    float values[COUNT_MAX];
    for (uint64_t i = 0; i < p->count; i++)
        values[i] =
            eo_runtime_rank(rt) ? 0 : (float)((int)((i * 53 + 17 * step + p->count) % 97) - 48) / (float)(64 << step % 3);
    values[0] = is_finite ? values[0] : NAN;
    must(eo_runtime_upload(rt, to, values, p->count * sizeof(*values)), "gradient");
}

/* `numbers` say which gradients each group gets. */
static void passes(eo_runtime *rt, const uint32_t numbers[GROUPS], bool is_finite)
{
    const eo_view *view;
    must(eo_step_begin(rt), "begin");
    for (uint32_t l = 0; l < LAYERS; l++) {
        must(eo_forward_begin(rt, l, &view), "forward");
        must(eo_forward_end(rt, l), "forward");
    }
    for (uint32_t l = LAYERS; l-- > 0;) {
        must(eo_backward_begin(rt, l, &view), "backward");
        must(eo_gradients_begin(rt, l, &view), "gradients");
        for (uint32_t p = 0, k = 0; p < PARAMETERS; p++)
            if (parameters[p].layer == l)
                give_gradient(rt, &parameters[p], numbers[parameters[p].group], is_finite, view->gradients[k++]);
        must(eo_backward_end(rt, l), "backward");
    }
}

static void end_step(const struct rank *self, eo_runtime *rt, const struct step *step)
{
    eo_parameter_group groups[GROUPS_MAX] = {{0}};
    uint32_t count = 0;
    for (uint32_t p = 0; p < PARAMETERS; p++) {
        groups[groups_now[p]].frozen = !step->trains[parameters[p].group];
        count = groups_now[p] < count ? count : groups_now[p] + 1;
    }
    eo_step_report report;
    must(eo_step_end(rt,
                     eo_step_params(.learning_rate = 0.01f, .weight_decay = 0.1f, .groups = groups, .group_count = count,
                                    .on_not_finite = EO_SKIP),
                     self->variant->no_reports ? NULL : &report),
         "end");
}

static eo_status fill(void *user, uint64_t offset, uint64_t count, float *values)
{
    (void)user;
    for (uint64_t i = 0; i < count; i++)
        values[i] = (float)((offset + i) % 31) / 16;
    return EO_OK;
}

static void save(const struct rank *self, eo_runtime *rt)
{
    eo_saver *saver;
    must(eo_saver_create(&saver, eo_saver_params(.runtime = rt, .folder = self->folder)), "saver");
    must(eo_saver_begin(saver, NULL, 0), "save");
    must(eo_saver_wait(saver, NULL), "save");
    eo_saver_destroy(&saver);
}

static void load(const struct rank *self, eo_runtime *rt)
{
    char path[256];
    uint64_t step;
    eo_checkpoint *checkpoint;
    must(eo_checkpoint_find(path, sizeof(path), &step, self->folder, NULL), "find");
    must(eo_checkpoint_open(&checkpoint, path, NULL), "open");
    must(eo_checkpoint_load(checkpoint, rt), "load");
    eo_checkpoint_close(&checkpoint);
}

static void *train(void *arg)
{
    const struct rank *self = arg;
    static const struct step plain = {{true, true}, false};
    eo_runtime *rt;
    uint32_t next[GROUPS] = {0}; /* gradients */
    char name[32];
    must(eo_runtime_create(&rt, eo_runtime_params(.plan = self->plan, .world = self->world, .memory = self->variant->memory,
                                                  .log = &warnings)),
         "runtime");
    for (uint32_t p = 0; p < PARAMETERS && self->from == 0; p++)
        must(eo_weights_fill(rt, p, fill, NULL), "fill");
    if (self->from > 0)
        load(self, rt);
    for (uint32_t s = 0; s < self->until; s++) {
        const uint32_t frozen = 90 + s; /* another gradient, of no account */
        const uint32_t numbers[GROUPS] = {steps[s].trains[0] ? next[0] : frozen, steps[s].trains[1] ? next[1] : frozen};
        if (s >= self->from) {
            passes(rt, numbers, !steps[s].is_skipped);
            end_step(self, rt, &steps[s]);
        }
        for (uint32_t g = 0; g < GROUPS; g++)
            next[g] += steps[s].trains[g] && !steps[s].is_skipped;
    }
    for (uint32_t s = 0; s < APPLIED && self->until == 0; s++) {
        passes(rt, (const uint32_t[GROUPS]){s, s}, true);
        end_step(self, rt, &plain);
    }
    if (self->until > 0 && self->until < STEPS)
        save(self, rt);
    for (uint32_t p = 0; p < PARAMETERS; p++) {
        snprintf(name, sizeof(name), "p%u", p);
        must(eo_weights_read(rt, name, eo_runtime_rank(rt) == 0 ? self->weights[p] : NULL), "read");
    }
    eo_runtime_destroy(&rt);
    return NULL;
}

static eo_model *make_model(void)
{
    eo_model *model;
    char name[32];
    must(eo_model_create(&model, eo_model_params(.name = "frozen groups")), "model");
    for (uint32_t l = 0; l < LAYERS; l++) {
        snprintf(name, sizeof(name), "layer%u", l);
        must(eo_model_add_layer(model, eo_layer_params(.name = name), NULL), "layer");
    }
    for (uint32_t p = 0; p < PARAMETERS; p++) {
        const struct parameter *from = &parameters[p];
        snprintf(name, sizeof(name), "p%u", p);
        must(eo_model_add_parameter(model,
                                    eo_parameter_params(.layer = from->layer, .name = name, .dim_count = 1,
                                                        .group = groups_now[p], .dims = {from->count},
                                                        .no_weight_decay = from->no_weight_decay),
                                    NULL),
             "parameter");
    }
    for (uint32_t l = 0; l < LAYERS; l++)
        must(eo_model_add_position(model, eo_position_params(.layer = l), NULL), "position");
    return model;
}

static void run(const struct variant *v, const char *folder, uint32_t ranks, uint32_t from, uint32_t until,
                float weights[PARAMETERS][COUNT_MAX])
{
    pthread_t threads[RANKS_MAX];
    struct rank all[RANKS_MAX];
    eo_world *worlds[RANKS_MAX];
    for (uint32_t p = 0; p < PARAMETERS; p++)
        groups_now[p] = from > 0 ? v->groups_later[p] : parameters[p].group;
    eo_model *model = make_model();
    eo_plan *plan;
    must(eo_plan_create(&plan, model, eo_plan_params(.rank_count = ranks, .optimizer = v->optimizer)), "plan");
    must(eo_world_create_local(worlds, eo_world_params(.rank_count = ranks, .device = device_name, .share_device = true)),
         "world");
    for (uint32_t r = 0; r < ranks; r++) {
        all[r] = (struct rank){v, plan, worlds[r], folder, from, until, weights};
        if (pthread_create(&threads[r], NULL, train, &all[r]) != 0)
            exit(1);
    }
    for (uint32_t r = 0; r < ranks; r++)
        pthread_join(threads[r], NULL);
    for (uint32_t r = 0; r < ranks; r++)
        eo_world_destroy(&worlds[r]);
    eo_plan_destroy(&plan);
    eo_model_destroy(&model);
}

static void reshard(const char *folder, const char *other, uint32_t ranks)
{
    char path[256];
    uint64_t step;
    eo_checkpoint *checkpoint;
    must(eo_checkpoint_find(path, sizeof(path), &step, folder, NULL), "find");
    must(eo_checkpoint_open(&checkpoint, path, NULL), "open");
    must(eo_checkpoint_reshard(checkpoint, other, ranks, NULL), "reshard");
    eo_checkpoint_close(&checkpoint);
}

/* Parameters of two groups in one: the larger count is taken for all, and that is said. */
static void joins_groups(void)
{
    char folder[] = "/tmp/evenodd-frozen-XXXXXX", command[80];
    static float weights[PARAMETERS][COUNT_MAX];
    static const struct variant joined = {.optimizer = EO_OPTIMIZER_ADAMW, .groups_later = {0, 0, 0}};
    if (!mkdtemp(folder))
        exit(1);
    run(&joined, folder, 1, 0, SAVED, weights);
    CHECK(!warning[0], "'%s'", warning);
    run(&joined, folder, 2, SAVED, SAVED, weights);
    CHECK(strstr(warning, "the parameters of group 0 were in groups that 2 to 3 steps have frozen"), "'%s'", warning);
    warning[0] = '\0';
    run(&joined, folder, 1, SAVED, SAVED, weights); /* what was saved since has one count */
    CHECK(!warning[0], "'%s'", warning);
    snprintf(command, sizeof(command), "rm -rf %s", folder);
    CHECK_THAT(system(command) == 0);
}

int main(void)
{
    static const struct variant all[] = {
        {"AdamW", EO_OPTIMIZER_ADAMW, EO_MEMORY_STATIC, false, true, 1, 3, {0, 1, 1}},
        {"AdamW, without reports", EO_OPTIMIZER_ADAMW, EO_MEMORY_STATIC, true, false, 2, 2, {0, 1, 1}},
        {"AdamW, memory from a pool", EO_OPTIMIZER_ADAMW, EO_MEMORY_DYNAMIC_POOL, false, false, 2, 1, {0, 1, 1}},
        {"AdamW in 8 bits", EO_OPTIMIZER_ADAMW8BIT, EO_MEMORY_STATIC, false, false, 3, 2, {0, 1, 1}},
        {"AdamW, groups with other numbers later", EO_OPTIMIZER_ADAMW, EO_MEMORY_STATIC, false, true, 2, 2, {1, 0, 0}},
        {"AdamW, a group that is two later", EO_OPTIMIZER_ADAMW, EO_MEMORY_STATIC, false, false, 2, 1, {0, 1, 2}},
    };
    device_name = getenv("EO_TEST_DEVICE");
    for (size_t n = 0; n < sizeof(all) / sizeof(all[0]); n++) {
        static float weights[PARAMETERS][COUNT_MAX], plain[PARAMETERS][COUNT_MAX];
        char folder[] = "/tmp/evenodd-frozen-XXXXXX", other[] = "/tmp/evenodd-frozen-XXXXXX", command[80], text[160];
        if (!mkdtemp(folder) || !mkdtemp(other))
            return 1;
        run(&all[n], folder, all[n].ranks, 0, SAVED, weights);
        if (all[n].reshards)
            reshard(folder, other, all[n].ranks_later);
        run(&all[n], all[n].reshards ? other : folder, all[n].ranks_later, SAVED, STEPS, weights);
        run(&all[n], folder, 1, 0, 0, plain);
        for (uint32_t p = 0; p < PARAMETERS; p++)
            if (memcmp(weights[p], plain[p], parameters[p].count * sizeof(float)) != 0)
                tap_note(__FILE__, __LINE__, "p%u: %.9g and %.9g; without frozen steps %.9g and %.9g", p, (double)weights[p][0],
                         (double)weights[p][1], (double)plain[p][0], (double)plain[p][1]);
        CHECK(!warning[0], "'%s'", warning);
        snprintf(command, sizeof(command), "rm -rf %s %s", folder, other);
        if (system(command) != 0)
            tap_note(__FILE__, __LINE__, "cannot remove %s", folder);
        snprintf(text, sizeof(text), "%s: steps that freeze a group are none for it, beyond a checkpoint too", all[n].name);
        tap_case(text);
    }
    joins_groups();
    tap_case("groups that are one later, with other counts of frozen steps: that is said, once");
    return tap_end();
}
