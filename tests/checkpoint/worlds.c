/* SPDX-License-Identifier: MIT
 *
 * What was saved is what is loaded, to the bit, by any world; and the run goes on as if nothing had been between.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "saved_training.h"

enum { SAVED_AT = 3, ENDS_AT = 6 };

struct story {
    char folder[256], copy[256];
    uint64_t hash;  /* of the weights at the end, rank 0's */
    uint64_t saved; /* at SAVED_AT */
};

/* -- any world -----------------------------------------------------------------------------------------------------*/

static void undisturbed(struct saved_rank *self)
{
    struct story *story = self->shared;
    char blob[64] = "rank 0";
    blob[5] = (char)('0' + self->rank);
    saved_initialise(self);
    saved_steps(self, SAVED_AT);
    CHECK_THAT(self->gradients ==
               SAVED_AT * (self->settings->thaws ? 4 : 3)); /* each trained layer's, whatever the optimizer */
    CHECK_THAT(saved_save(self, story->folder, 0, blob, sizeof(blob)) == EO_OK);
    const uint64_t saved = saved_hash(self);
    saved_steps(self, ENDS_AT);
    const uint64_t hash = saved_hash(self);
    if (self->rank == 0) {
        story->hash = hash;
        story->saved = saved;
    }
}

static void resumed(struct saved_rank *self)
{
    const struct story *story = self->shared;
    CHECK_THAT(saved_load(self, story->folder) == EO_OK);
    CHECK_THAT(saved_hash(self) == story->saved);
    CHECK_THAT(saved_save(self, story->copy, 0, NULL, 0) == EO_OK);
    saved_steps(self, ENDS_AT);
    CHECK_THAT(saved_hash(self) == story->hash);
}

static void the_same_weights(struct saved_rank *self)
{
    const struct story *story = self->shared;
    CHECK_THAT(saved_load(self, story->folder) == EO_OK);
    CHECK_THAT(saved_hash(self) == story->saved);
}

/*
 * Goal: saved by one world, loaded by another, weights and optimizer state are the same bits.
 * Method: the loaded state is saved once more and both are compared; then both trainings go on, and must end alike.
 * Gradients come from rank 0 alone, so that no sum depends on the world.
 */
static void check_worlds(const struct saved_settings *saved, const struct saved_settings *loaded, uint32_t count)
{
    struct story story = {.hash = 0};
    saved_folder_make(story.folder, sizeof(story.folder));
    if (saved_run(saved, undisturbed, &story)) {
        const uint64_t arrays = saved_folder_hash(story.folder);
        CHECK_THAT(arrays != 0 && story.hash != 0 && story.hash != story.saved);
        for (uint32_t i = 0; i < count; i++) {
            saved_folder_make(story.copy, sizeof(story.copy));
            (void)saved_run(&loaded[i], resumed, &story);
            CHECK_THAT(saved->padding != loaded[i].padding || saved->fp32 || saved_folder_hash(story.copy) == arrays); /* gaps */
            saved_folder_remove(story.copy);
        }
    }
    saved_folder_remove(story.folder);
}

static void fp32_beside(void)
{
    static const eo_optimizer rules[] = {EO_OPTIMIZER_ADAMW, EO_OPTIMIZER_ADAMW8BIT, EO_OPTIMIZER_MUON};
    for (uint32_t r = 0; r < sizeof(rules) / sizeof(rules[0]); r++) {
        struct saved_settings beside[] = {
            {.ranks = 1}, {.ranks = 2}, {.ranks = 4, .padding = 77}, {.ranks = 8, .gather_slots = 1},
            {.ranks = 2, .strategy = EO_STRATEGY_DDP}, {.ranks = 4, .strategy = EO_STRATEGY_HSDP, .shard_group = 2},
            {.ranks = 3}, {.ranks = 3, .memory = EO_MEMORY_DYNAMIC_POOL}};
        const uint32_t count = sizeof(beside) / sizeof(beside[0]) - (rules[r] == EO_OPTIMIZER_MUON); /* for planned memory */
        for (uint32_t i = 0; i < count; i++) {
            beside[i].fp32 = beside[i].thaws = true;
            beside[i].dtype = EO_DTYPE_BF16;
            beside[i].optimizer = rules[r];
            beside[i].body_rows = 40;
            beside[i].ema = r == 0;
        }
        check_worlds(&beside[6], beside, count);
    }
    tap_case("parameters in fp32 beside split ones, saved by 3 ranks: whole on other ranks in other worlds, and the same bits");
    struct story story = {.hash = 0};
    struct saved_settings marked = {.ranks = 3, .dtype = EO_DTYPE_BF16, .thaws = true, .fp32 = true}, unmarked = marked;
    unmarked.fp32 = false;
    for (int turned = 0; turned < 2; turned++) {
        saved_folder_make(story.folder, sizeof(story.folder));
        CHECK_THAT(saved_run(turned ? &unmarked : &marked, undisturbed, &story));
        (void)saved_run(turned ? &marked : &unmarked, the_same_weights, &story);
        saved_folder_remove(story.folder);
    }
    tap_case("saved with parameters in fp32 beside split ones, loaded without, and the other way round: the same weights");
}

static void any_world(void)
{
    static const struct saved_settings sizes[] = {
        {.ranks = 1}, {.ranks = 2}, {.ranks = 3}, {.ranks = 4}, {.ranks = 8},
        {.ranks = 2, .gather_slots = 1}, {.ranks = 3, .memory = EO_MEMORY_DYNAMIC_POOL},
        {.ranks = 2, .strategy = EO_STRATEGY_DDP}, {.ranks = 4, .strategy = EO_STRATEGY_HSDP, .shard_group = 2},
    };
    check_worlds(&(struct saved_settings){.ranks = 4}, sizes, sizeof(sizes) / sizeof(sizes[0]));
    tap_case("saved by 4 ranks, loaded by 1, 2, 3, 4 and 8, with other slots, memory and strategies: the same bits");

    static const struct saved_settings strategies[] = {
        {.ranks = 4, .strategy = EO_STRATEGY_ZERO2}, {.ranks = 3, .strategy = EO_STRATEGY_ZERO1},
        {.ranks = 4, .strategy = EO_STRATEGY_DDP}, {.ranks = 4, .strategy = EO_STRATEGY_HSDP, .shard_group = 2},
    };
    static const struct saved_settings others[] = {{.ranks = 3}, {.ranks = 2, .strategy = EO_STRATEGY_DDP}};
    for (uint32_t i = 0; i < sizeof(strategies) / sizeof(strategies[0]); i++)
        check_worlds(&strategies[i], others, 2);
    tap_case("saved under zero1, zero2, ddp and hsdp, loaded under others: the same bits");

    static const struct saved_settings halves[] = {
        {.ranks = 3, .dtype = EO_DTYPE_BF16}, {.ranks = 1, .dtype = EO_DTYPE_BF16},
        {.ranks = 2, .dtype = EO_DTYPE_BF16, .memory = EO_MEMORY_DYNAMIC_MALLOC},
    };
    check_worlds(&(struct saved_settings){.ranks = 4, .dtype = EO_DTYPE_BF16}, halves, 3);
    tap_case("split master weights are saved joined, and split again to the same bits");

    static const struct saved_settings thawed[] = {{.ranks = 2, .thaws = true, .states = 3}};
    check_worlds(&(struct saved_settings){.ranks = 3, .thaws = true, .states = 3}, thawed, 1);
    tap_case("three arrays of optimizer state, and no frozen layer");

    static const struct saved_settings lions[] = {
        {.ranks = 1, .optimizer = EO_OPTIMIZER_LION}, {.ranks = 4, .optimizer = EO_OPTIMIZER_LION, .padding = 77}};
    static const struct saved_settings rolling[] = {
        {.ranks = 3, .optimizer = EO_OPTIMIZER_SGD, .dtype = EO_DTYPE_BF16},
        {.ranks = 2, .optimizer = EO_OPTIMIZER_SGD, .dtype = EO_DTYPE_BF16, .memory = EO_MEMORY_DYNAMIC_POOL}};
    check_worlds(&(struct saved_settings){.ranks = 3, .optimizer = EO_OPTIMIZER_LION}, lions, 2);
    check_worlds(&(struct saved_settings){.ranks = 1, .optimizer = EO_OPTIMIZER_SGD, .dtype = EO_DTYPE_BF16}, rolling, 2);
    tap_case("the one array of SGD and of Lion");

    static const struct saved_settings narrow[] = {
        {.ranks = 1, .optimizer = EO_OPTIMIZER_ADAMW8BIT}, {.ranks = 2, .optimizer = EO_OPTIMIZER_ADAMW8BIT, .padding = 77},
        {.ranks = 8, .optimizer = EO_OPTIMIZER_ADAMW8BIT},
        {.ranks = 3, .optimizer = EO_OPTIMIZER_ADAMW8BIT, .memory = EO_MEMORY_DYNAMIC_MALLOC},
        {.ranks = 4, .optimizer = EO_OPTIMIZER_ADAMW8BIT, .strategy = EO_STRATEGY_HSDP, .shard_group = 2}};
    static const struct saved_settings narrow_halves[] = {
        {.ranks = 2, .optimizer = EO_OPTIMIZER_ADAMW8BIT, .dtype = EO_DTYPE_BF16}};
    check_worlds(&(struct saved_settings){.ranks = 3, .optimizer = EO_OPTIMIZER_ADAMW8BIT}, narrow, 5);
    check_worlds(&(struct saved_settings){.ranks = 4, .optimizer = EO_OPTIMIZER_ADAMW8BIT, .dtype = EO_DTYPE_BF16}, narrow_halves,
                 1);
    tap_case("state in 8 bits is saved by 3 ranks and loaded by 1, 2, 3, 4 and 8: the same bits");

    static const struct saved_settings muons[] = {
        {.ranks = 1, .body_rows = 40, .optimizer = EO_OPTIMIZER_MUON},
        {.ranks = 4, .body_rows = 40, .optimizer = EO_OPTIMIZER_MUON, .padding = 77},
        {.ranks = 2, .body_rows = 40, .optimizer = EO_OPTIMIZER_MUON, .strategy = EO_STRATEGY_DDP}};
    static const struct saved_settings muons_in_halves[] = {
        {.ranks = 2, .body_rows = 40, .optimizer = EO_OPTIMIZER_MUON, .dtype = EO_DTYPE_BF16}};
    check_worlds(&(struct saved_settings){.ranks = 3, .body_rows = 40, .optimizer = EO_OPTIMIZER_MUON}, muons, 3);
    check_worlds(&(struct saved_settings){.ranks = 3, .body_rows = 40, .optimizer = EO_OPTIMIZER_MUON, .dtype = EO_DTYPE_BF16},
                 muons_in_halves, 1);
    tap_case("Muon: the matrices' owners change with the world, and no bit does");

    static const struct saved_settings padded[] = {{.ranks = 1, .padding = 1000}, {.ranks = 3, .padding = 77},
                                                   {.ranks = 2, .dtype = EO_DTYPE_FP32}};
    check_worlds(&(struct saved_settings){.ranks = 2}, padded, 3);
    check_worlds(&(struct saved_settings){.ranks = 2, .padding = 1000}, padded, 3);
    tap_case("saved without paddings, loaded with some, and the other way round: the same bits");
}

/* -- an average of the weights --------------------------------------------------------------------------------------*/

static eo_status keep_first(void *user, const eo_parameter_info *parameter, const float *values)
{
    (void)parameter;
    *(float *)user += values[0];
    return EO_OK;
}

/* Of a checkpoint without one it begins as the weights; while it lies in their place nothing is saved or trained. */
static void begins_anew(struct saved_rank *self)
{
    const struct story *story = self->shared;
    float weights = 0, average = 0, back = 0;
    CHECK_THAT(saved_load(self, story->folder) == EO_OK);
    saved_steps(self, SAVED_AT + 1);
    CHECK_THAT(eo_weights_visit(self->runtime, keep_first, &weights) == EO_OK);
    CHECK_THAT(eo_weights_swap_ema(self->runtime) == EO_OK);
    CHECK_THAT(eo_weights_visit(self->runtime, keep_first, &average) == EO_OK);
    CHECK_THAT(average != weights && average != 0);
    CHECK_THAT(eo_step_begin(self->runtime) == EO_ERR_INVALID);
    CHECK_THAT(saved_save(self, story->copy, 0, NULL, 0) == EO_ERR_INVALID);
    CHECK_THAT(eo_weights_write(self->runtime, "body.bias", &back) == EO_ERR_INVALID);
    CHECK_THAT(saved_load(self, story->folder) == EO_OK);
    average = 0;
    CHECK_THAT(eo_weights_swap_ema(self->runtime) == EO_OK);
    CHECK_THAT(eo_weights_visit(self->runtime, keep_first, &average) == EO_OK);
    CHECK_THAT(eo_weights_swap_ema(self->runtime) == EO_OK);
    CHECK_THAT(eo_weights_visit(self->runtime, keep_first, &back) == EO_OK);
    CHECK_THAT(average == back && eo_step_begin(self->runtime) == EO_OK);
}

static eo_status fill_other(void *user, uint64_t offset, uint64_t count, float *values)
{
    for (uint64_t i = 0; i < count; i++)
        values[i] = 9;
    return EO_OK;
}

/* As the weights before the first step, whatever was saved or looked at before these were filled. */
static void begins_late(struct saved_rank *self)
{
    struct story *story = self->shared;
    uint64_t hash;
    for (int late = 0; late < 3; late++) { /* in one runtime: a checkpoint without one lets it begin anew */
        CHECK_THAT(saved_load(self, story->folder) == EO_OK);
        for (uint32_t p = 0; late && p < eo_model_parameter_count(self->model); p++)
            CHECK_THAT(eo_weights_fill(self->runtime, p, fill_other, NULL) == EO_OK);
        CHECK_THAT(late != 1 || saved_save(self, story->copy, 0, NULL, 0) == EO_OK);
        for (int swaps = 0; late == 2 && swaps < 2; swaps++)
            CHECK_THAT(eo_weights_swap_ema(self->runtime) == EO_OK);
        saved_initialise(self);
        saved_steps(self, SAVED_AT + 2);
        hash = saved_hash(self);
        if (self->rank == 0 && late == 0)
            story->hash = hash;
        CHECK_THAT(self->rank != 0 || hash == story->hash);
    }
}

static void an_average(void)
{
    static const struct saved_settings sizes[] = {
        {.ranks = 1, .ema = true}, {.ranks = 2, .ema = true, .padding = 77}, {.ranks = 8, .ema = true},
        {.ranks = 3, .ema = true, .memory = EO_MEMORY_DYNAMIC_POOL},
        {.ranks = 4, .ema = true, .strategy = EO_STRATEGY_HSDP, .shard_group = 2},
    };
    static const struct saved_settings halves[] = {{.ranks = 2, .ema = true, .dtype = EO_DTYPE_BF16}};
    check_worlds(&(struct saved_settings){.ranks = 3, .ema = true}, sizes, sizeof(sizes) / sizeof(sizes[0]));
    check_worlds(&(struct saved_settings){.ranks = 3, .ema = true, .dtype = EO_DTYPE_BF16}, halves, 1);
    tap_case("an average of the weights is saved by 3 ranks and loaded by 1, 2, 3, 4 and 8: the same bits");

    struct story story = {.hash = 0};
    saved_folder_make(story.folder, sizeof(story.folder));
    saved_folder_make(story.copy, sizeof(story.copy));
    if (saved_run(&(struct saved_settings){.ranks = 2}, undisturbed, &story))
        (void)saved_run(&(struct saved_settings){.ranks = 3, .ema = true, .dtype = EO_DTYPE_BF16}, begins_anew, &story);
    tap_case("without one in the checkpoint it begins as the weights; in their place it is neither trained nor saved");
    (void)saved_run(&(struct saved_settings){.ranks = 3, .ema = true}, begins_late, &story);
    (void)saved_run(&(struct saved_settings){.ranks = 3, .ema = true, .dtype = EO_DTYPE_BF16}, begins_late, &story);
    tap_case("it begins as the weights before the first step, also where others were saved or looked at before");
    saved_folder_remove(story.folder);
    saved_folder_remove(story.copy);
}

/* -- another optimizer's state --------------------------------------------------------------------------------------*/

static void saves_own(struct saved_rank *self)
{
    const struct story *story = self->shared;
    saved_initialise(self);
    saved_steps(self, 1);
    CHECK_THAT(saved_save(self, story->folder, 0, NULL, 0) == EO_OK);
}

static void loads_own(struct saved_rank *self)
{
    const struct story *story = self->shared;
    CHECK_THAT(saved_load(self, story->folder) == (self->settings->updates ? EO_OK : EO_ERR_INVALID));
    CHECK_THAT(self->settings->updates ||
               strstr(eo_runtime_error(self->runtime), "there it is the trainer's own (eo_runtime_params.update), here adamw"));
}

static void own_updates(void)
{
    struct story story = {.hash = 0};
    saved_folder_make(story.folder, sizeof(story.folder));
    (void)saved_run(&(struct saved_settings){.ranks = 2, .updates = true}, saves_own, &story);
    (void)saved_run(&(struct saved_settings){.ranks = 1, .updates = true}, loads_own, &story);
    (void)saved_run(&(struct saved_settings){.ranks = 1}, loads_own, &story);
    saved_folder_remove(story.folder);
    tap_case("state of the trainer's own optimizer is not taken for AdamW's");
}

/* -- the trainer's bytes, the step, one step twice -----------------------------------------------------------------*/

static void saves_again(struct saved_rank *self)
{
    struct story *story = self->shared;
    CHECK_THAT(saved_load(self, story->folder) == EO_OK);
    CHECK_THAT(saved_save(self, story->folder, 1, "new", 3) == EO_OK);
}

static void bytes_of_the_trainer(void)
{
    struct story story = {.hash = 0};
    char path[512], blob[64];
    uint64_t step = 0;
    eo_checkpoint *checkpoint = NULL;
    saved_folder_make(story.folder, sizeof(story.folder));
    (void)saved_run(&(struct saved_settings){.ranks = 3}, undisturbed, &story);
    CHECK_THAT(eo_checkpoint_find(path, sizeof(path), &step, story.folder, &saved_log) == EO_OK && step == SAVED_AT);
    CHECK_THAT(eo_checkpoint_open(&checkpoint, path, &saved_log) == EO_OK);
    for (uint32_t r = 0; checkpoint && r < 3; r++) {
        uint32_t bytes = sizeof(blob);
        CHECK_THAT(eo_checkpoint_blob(checkpoint, r, blob, &bytes) == EO_OK && bytes == sizeof(blob));
        CHECK_THAT(strncmp(blob, "rank ", 5) == 0 && blob[5] == (char)('0' + r));
    }
    eo_checkpoint_close(&checkpoint);
    const uint64_t arrays = saved_folder_hash(story.folder);

    /* The same step once more, by fewer ranks: it takes the place of the old one. */
    (void)saved_run(&(struct saved_settings){.ranks = 2}, saves_again, &story);
    CHECK_THAT(saved_count_entries(story.folder, "") == 1);
    CHECK_THAT(eo_checkpoint_open(&checkpoint, path, &saved_log) == EO_OK);
    uint32_t bytes = sizeof(blob);
    CHECK_THAT(checkpoint && eo_checkpoint_blob(checkpoint, 1, blob, &bytes) == EO_OK && bytes == 3);
    eo_checkpoint_close(&checkpoint);
    CHECK_THAT(saved_folder_hash(story.folder) == arrays);
    saved_folder_remove(story.folder);
    tap_case("the trainer's bytes of each rank come back; a step that is saved twice replaces the old one whole");
}

/* -- resharding ----------------------------------------------------------------------------------------------------*/

static void resharding(void)
{
    struct story story = {.hash = 0};
    char path[512];
    eo_checkpoint *checkpoint = NULL;
    saved_folder_make(story.folder, sizeof(story.folder));
    (void)saved_run(&(struct saved_settings){.ranks = 4, .dtype = EO_DTYPE_BF16}, undisturbed, &story);
    const uint64_t arrays = saved_folder_hash(story.folder);
    CHECK_THAT(eo_checkpoint_find(path, sizeof(path), NULL, story.folder, &saved_log) == EO_OK);
    CHECK_THAT(eo_checkpoint_open(&checkpoint, path, &saved_log) == EO_OK);
    static const uint32_t counts[] = {1, 3, 8};
    for (uint32_t i = 0; checkpoint && i < 3; i++) {
        eo_checkpoint *other = NULL;
        eo_checkpoint_info info = {0};
        saved_folder_make(story.copy, sizeof(story.copy));
        CHECK_THAT(eo_checkpoint_reshard(checkpoint, story.copy, counts[i], &saved_log) == EO_OK);
        CHECK_THAT(saved_folder_hash(story.copy) == arrays);
        CHECK_THAT(eo_checkpoint_find(path, sizeof(path), NULL, story.copy, &saved_log) == EO_OK);
        CHECK_THAT(eo_checkpoint_open(&other, path, &saved_log) == EO_OK);
        if (other)
            eo_checkpoint_get_info(other, &info);
        CHECK_THAT(info.rank_count == counts[i] && info.step == SAVED_AT);
        eo_checkpoint_close(&other);
        CHECK_THAT(eo_checkpoint_reshard(checkpoint, story.copy, counts[i], &saved_log) == EO_ERR_IO); /* it is there */
        CHECK_THAT(saved_folder_hash(story.copy) == arrays);
        saved_folder_remove(story.copy);
    }
    CHECK_THAT(eo_checkpoint_reshard(checkpoint, story.folder, 0, &saved_log) == EO_ERR_INVALID);
    eo_checkpoint_close(&checkpoint);
    saved_folder_remove(story.folder);
    tap_case("resharded from 4 to 1, 3 and 8: the same bits, and what is there is not written over");
}

/* -- a checkpoint of numbers ---------------------------------------------------------------------------------------*/

static float made_number(uint32_t parameter, uint64_t element)
{
    return (float)(1 + element % 10000 + 10000 * (uint64_t)parameter);
}

static eo_status make_numbers(void *user, uint32_t parameter, uint64_t offset, uint64_t count, float *values)
{
    const uint32_t *fails_at = user;
    for (uint64_t i = 0; i < count; i++)
        values[i] = made_number(parameter, offset + i);
    return parameter == *fails_at ? EO_ERR_NO_MEMORY : EO_OK;
}

static bool has_numbers(eo_checkpoint *checkpoint, const eo_model *model, uint32_t p)
{
    eo_parameter_info info;
    eo_checkpoint_parameter made;
    uint32_t index;
    if (eo_model_parameter(model, p, &info) < 0 || eo_checkpoint_find_parameter(checkpoint, info.name, &index) < 0 ||
        eo_checkpoint_get_parameter(checkpoint, index, &made) < 0 || made.info.element_count != info.element_count ||
        memcmp(made.info.dims, info.dims, sizeof(info.dims)) != 0)
        return false;
    float *values = malloc(info.element_count * sizeof(*values));
    bool same = values && eo_checkpoint_read(checkpoint, info.layer, 0, made.offset, info.element_count, values) == EO_OK;
    for (uint64_t i = 0; same && i < info.element_count; i++)
        same = values[i] == made_number(p, i);
    free(values);
    return same;
}

/* Nothing but one argument. */
static void refuses_what_misses(const eo_plan *plan, eo_checkpoint *checkpoint, const char *folder)
{
    eo_checkpoint_info info;
    eo_checkpoint_layer layer;
    eo_checkpoint_parameter parameter;
    uint64_t step = UINT64_MAX;
    float value = 0;
    uint32_t index, bytes = sizeof(value), fails_at = UINT32_MAX;
    char path[8];
    eo_checkpoint_get_info(checkpoint, &info);
    CHECK_THAT(eo_checkpoint_make(NULL, folder, make_numbers, &fails_at, NULL, 0, NULL) == EO_ERR_INVALID);
    CHECK_THAT(eo_checkpoint_make(plan, NULL, make_numbers, &fails_at, NULL, 0, NULL) == EO_ERR_INVALID);
    CHECK_THAT(eo_checkpoint_make(plan, folder, NULL, NULL, NULL, 0, NULL) == EO_ERR_INVALID);
    CHECK_THAT(eo_checkpoint_reshard(checkpoint, NULL, 1, NULL) == EO_ERR_INVALID);
    CHECK_THAT(eo_checkpoint_find_before(path, sizeof(path), &step, NULL, NULL) == EO_ERR_INVALID);
    CHECK_THAT(eo_checkpoint_get_layer(NULL, 0, &layer) == EO_ERR_INVALID);
    CHECK_THAT(eo_checkpoint_get_layer(checkpoint, 0, NULL) == EO_ERR_INVALID);
    CHECK_THAT(eo_checkpoint_get_layer(checkpoint, info.layer_count, &layer) == EO_ERR_INVALID);
    CHECK_THAT(eo_checkpoint_get_parameter(NULL, 0, &parameter) == EO_ERR_INVALID);
    CHECK_THAT(eo_checkpoint_get_parameter(checkpoint, 0, NULL) == EO_ERR_INVALID);
    CHECK_THAT(eo_checkpoint_get_parameter(checkpoint, info.parameter_count, &parameter) == EO_ERR_INVALID);
    CHECK_THAT(eo_checkpoint_find_parameter(NULL, "body", &index) == EO_ERR_INVALID);
    CHECK_THAT(eo_checkpoint_find_parameter(checkpoint, NULL, &index) == EO_ERR_INVALID);
    CHECK_THAT(eo_checkpoint_find_parameter(checkpoint, "none", &index) == EO_ERR_INVALID);
    CHECK_THAT(eo_checkpoint_read(checkpoint, 0, 0, 0, 1, NULL) == EO_ERR_INVALID);
    CHECK_THAT(eo_checkpoint_read(NULL, 0, 0, 0, 1, &value) == EO_ERR_INVALID);
    CHECK_THAT(eo_checkpoint_blob(checkpoint, 0, &value, NULL) == EO_ERR_INVALID);
    CHECK_THAT(eo_checkpoint_blob(checkpoint, 0, NULL, &bytes) == EO_ERR_INVALID);
    CHECK_THAT(eo_checkpoint_verify_part(checkpoint, 2, 2) == EO_ERR_INVALID);
    CHECK_THAT(eo_checkpoint_check(checkpoint, NULL) == EO_ERR_INVALID);
    CHECK_THAT(eo_checkpoint_load(checkpoint, NULL) == EO_ERR_INVALID);
}

static void makes_numbers(struct saved_rank *self)
{
    struct story *story = self->shared;
    const uint32_t count = eo_model_parameter_count(self->model);
    uint32_t fails_at = count - 1;
    char path[512], new_folder[300];
    eo_checkpoint *checkpoint = NULL;
    if (self->rank != 0)
        return;
    CHECK_THAT(eo_checkpoint_make(self->plan, story->folder, make_numbers, &fails_at, NULL, 1, &saved_log) == EO_ERR_INVALID);
    CHECK_THAT(eo_checkpoint_make(self->plan, story->folder, make_numbers, &fails_at, NULL, 0, &saved_log) == EO_ERR_NO_MEMORY);
    CHECK_THAT(eo_checkpoint_find(path, sizeof(path), NULL, story->folder, &saved_log) == EO_IN_PROGRESS); /* it stays */
    snprintf(new_folder, sizeof(new_folder), "%s/new", story->folder);
    CHECK_THAT(eo_checkpoint_make(self->plan, new_folder, make_numbers, &fails_at, NULL, 0, &saved_log) == EO_ERR_NO_MEMORY);
    CHECK_THAT(access(new_folder, F_OK) != 0);
    fails_at = count;
    CHECK_THAT(eo_checkpoint_make(self->plan, story->folder, make_numbers, &fails_at, NULL, 0, &saved_log) == EO_OK);
    CHECK_THAT(eo_checkpoint_find(path, sizeof(path), NULL, story->folder, &saved_log) == EO_OK);
    CHECK_THAT(eo_checkpoint_open(&checkpoint, path, &saved_log) == EO_OK);
    for (uint32_t p = 0; checkpoint && p < count; p++)
        CHECK_THAT(has_numbers(checkpoint, self->model, p));
    if (checkpoint)
        refuses_what_misses(self->plan, checkpoint, new_folder);
    eo_checkpoint_close(&checkpoint);
}

static void made_of_numbers(void)
{
    for (uint32_t ranks = 1; ranks <= 3; ranks += 2) {
        struct story story = {.hash = 0};
        saved_folder_make(story.folder, sizeof(story.folder));
        (void)saved_run(&(struct saved_settings){.ranks = ranks, .padding = 40}, makes_numbers, &story);
        saved_folder_remove(story.folder);
    }
    tap_case("a checkpoint made of numbers has each parameter's, for 1 and 3 ranks; a producer's failure leaves none");
}

void checkpoint_world_cases(void)
{
    any_world();
    fp32_beside();
    an_average();
    own_updates();
    bytes_of_the_trainer();
    resharding();
    made_of_numbers();
}
