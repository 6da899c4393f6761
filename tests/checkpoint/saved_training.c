/* SPDX-License-Identifier: MIT */
#include "saved_training.h"

#include <dirent.h>
#include <ftw.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/hashing.h"
#include "runtime/internal.h"
#include "tests/tap/threads.h"

enum { POSITIONS = 5, LAYERS = 4 };

/* -- log -----------------------------------------------------------------------------------------------------------*/

static pthread_mutex_t log_mutex = PTHREAD_MUTEX_INITIALIZER;
static char log_text[8192];

static void keep_text(void *user, eo_log_level level, const char *text)
{
    pthread_mutex_lock(&log_mutex);
    const size_t used = strlen(log_text);
    snprintf(log_text + used, sizeof(log_text) - used, "%s\n", text);
    pthread_mutex_unlock(&log_mutex);
}

const eo_log saved_log = {.write = keep_text, .level = EO_LOG_WARN};

const char *saved_log_text(void)
{
    return log_text;
}

void saved_log_clear(void)
{
    pthread_mutex_lock(&log_mutex);
    log_text[0] = '\0';
    pthread_mutex_unlock(&log_mutex);
}

/* -- folders -------------------------------------------------------------------------------------------------------*/

void saved_folder_make(char *path, size_t bytes)
{
    const char *base = getenv("TMPDIR");
    snprintf(path, bytes, "%s/eo-checkpoint-XXXXXX", base ? base : "/tmp");
    if (!mkdtemp(path)) {
        perror(path);
        exit(1);
    }
}

static int remove_one(const char *path, const struct stat *info, int kind, struct FTW *where)
{
    return remove(path);
}

void saved_folder_remove(const char *path)
{
    (void)nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

/* -- the model -----------------------------------------------------------------------------------------------------*/

static bool add_model(eo_model *model, const struct saved_settings *s)
{
    const uint32_t rows = s->body_rows ? s->body_rows : 301;
    const char *body = s->body ? s->body : "body";
    const struct {
        const char *layer;
        bool frozen;
        uint64_t dims[2];
    } layers[LAYERS] = {
        {"input", false, {7, 13}}, {body, false, {rows, 1000}}, {"fixed", !s->thaws, {13, 50}}, {"head", false, {13, 5}},
    };
    static const uint32_t uses[POSITIONS] = {0, 1, 2, 1, 3};
    char name[64];
    eo_status status = EO_OK;
    for (uint32_t l = 0; l < LAYERS && status >= 0; l++) {
        status = eo_model_add_layer(model, eo_layer_params(.name = layers[l].layer, .frozen = layers[l].frozen), NULL);
        snprintf(name, sizeof(name), "%s.weight", layers[l].layer);
        if (status >= 0)
            status = eo_model_add_parameter(model, &(const eo_parameter_params){
                .layer = l, .name = name, .dim_count = 2, .dims = {layers[l].dims[0], layers[l].dims[1]},
                .matrix = l < 3, .fp32 = s->fp32 && l == 2,
                .padding = l == 1 ? s->padding : 0}, NULL);
        snprintf(name, sizeof(name), "%s.bias", layers[l].layer);
        if (status >= 0)
            status = eo_model_add_parameter(model,
                                            &(const eo_parameter_params){.layer = l,
                                                                         .name = name,
                                                                         .dim_count = 1,
                                                                         .dims = {layers[l].dims[0]},
                                                                         .no_weight_decay = !s->joined,
                                                                         .fp32 = s->fp32,
                                                                         .joined = l == 1 && s->joined,
                                                                         .padding = l == 3 ? s->padding : 0},
                                            NULL);
    }
    for (uint32_t p = 0; p < POSITIONS && status >= 0; p++) {
        snprintf(name, sizeof(name), "use%u", p);
        status = eo_model_add_position(model, eo_position_params(.layer = uses[p], .name = name), NULL);
    }
    return status >= 0;
}

/* A number in (-1, 1) of 11 bits, so that bf16 and sums have room. */
static float number(uint64_t a, uint64_t b, uint64_t c)
{
    const uint64_t words[] = {a, b, c};
    return (float)((int)(eo_hash64(words, sizeof(words)) % 255) - 127) / 128.0f;
}

static eo_status produce(void *user, uint64_t offset, uint64_t count, float *values)
{
    const uint32_t *parameter = user;
    for (uint64_t i = 0; i < count; i++)
        values[i] = number(1000, *parameter, offset + i) + 1.0f / 3;
    return EO_OK;
}

void saved_initialise(struct saved_rank *self)
{
    for (uint32_t p = 0; p < eo_model_parameter_count(self->model); p++)
        CHECK_THAT(eo_weights_fill(self->runtime, p, produce, &p) == EO_OK);
}

static void write_gradients(struct saved_rank *self, uint32_t position, const eo_view *view)
{
    static const uint32_t layer_of[POSITIONS] = {0, 1, 2, 1, 3};
    const uint64_t step = self->runtime->steps.finished + 1;
    for (uint32_t k = 0; k < view->parameter_count; k++) {
        eo_parameter_info info;
        float *values = view->gradients[k];
        CHECK_THAT(eo_model_parameter(self->model, 2 * layer_of[position] + k, &info) == EO_OK);
        for (uint64_t i = 0; i < info.element_count; i++)
            values[i] = self->rank == 0 ? number(step, 16 * position + k, i % 257) / 64 : 0;
        if (self->breaks)
            values[0] = NAN;
    }
}

static eo_status run_passes(struct saved_rank *self)
{
    eo_runtime *rt = self->runtime;
    const eo_view *view;
    eo_status status = EO_OK;
    for (uint32_t p = 0; p < POSITIONS && status >= 0; p++) {
        status = eo_forward_begin(rt, p, &view);
        if (status >= 0)
            status = eo_forward_end(rt, p);
    }
    for (uint32_t p = POSITIONS; p-- > 0 && status >= 0;) {
        const bool is_trained = p != 2 || self->settings->thaws;
        status = eo_backward_begin(rt, p, &view);
        if (status >= 0 && is_trained) {
            status = eo_gradients_begin(rt, p, &view);
            if (status >= 0)
                write_gradients(self, p, view);
        }
        if (status >= 0)
            status = eo_backward_end(rt, p);
    }
    return status;
}

eo_status saved_step(struct saved_rank *self, double value, double *sum)
{
    eo_step_report report = {0};
    eo_status status = eo_step_begin(self->runtime);
    if (status >= 0)
        status = run_passes(self);
    if (status >= 0)
        status = eo_step_end(self->runtime,
                             eo_step_params(.learning_rate = 0.01f, .weight_decay = 0.1f, .ema_decay = self->settings->ema ? 0.75f : 0,
                                            .values = {value}), &report);
    *sum = report.values[0];
    return status;
}

void saved_steps(struct saved_rank *self, uint64_t until)
{
    double sum;
    while (self->runtime->steps.finished < until && saved_step(self, 0, &sum) >= 0)
        ;
    CHECK_THAT(self->runtime->steps.finished == until);
}

eo_status saved_step_with(struct saved_rank *self, eo_saver *saver, eo_saver_report *report)
{
    double sum = 0;
    CHECK_THAT(saved_step(self, eo_saver_value(saver), &sum) >= 0);
    return eo_saver_poll(saver, sum, report);
}

eo_status saved_step_late(struct saved_rank *self, eo_saver *saver, uint64_t late, eo_saver_report *report)
{
    double sum = 0;
    eo_step_report before;
    CHECK_THAT(saved_step(self, eo_saver_value(saver), &sum) >= 0);
    CHECK_THAT(eo_runtime_get_report(self->runtime, self->runtime->steps.finished - late, &before) == EO_OK);
    return eo_saver_poll(saver, before.values[0], report);
}

static eo_status add_to_hash(void *user, const eo_parameter_info *parameter, const float *values)
{
    uint64_t *hash = user;
    const uint64_t words[] = {*hash, eo_hash64(values, parameter->element_count * sizeof(*values))};
    *hash = eo_hash64(words, sizeof(words));
    return EO_OK;
}

uint64_t saved_hash(struct saved_rank *self)
{
    uint64_t hash = 0;
    CHECK_THAT(eo_weights_visit(self->runtime, add_to_hash, &hash) == EO_OK);
    for (int swaps = 0; self->settings->ema && swaps < 2; swaps++) { /* the average too */
        CHECK_THAT(eo_weights_swap_ema(self->runtime) == EO_OK);
        CHECK_THAT(swaps || eo_weights_visit(self->runtime, add_to_hash, &hash) == EO_OK);
    }
    return hash;
}

/* -- saving and loading --------------------------------------------------------------------------------------------*/

eo_status saved_save(struct saved_rank *self, const char *folder, uint32_t keep, const void *blob, uint32_t bytes)
{
    eo_saver *saver;
    eo_saver_report report;
    eo_status status = eo_saver_create(&saver, eo_saver_params(.runtime = self->runtime, .folder = folder, .keep = keep,
                                                               .log = self->log));
    if (status >= 0)
        status = eo_saver_begin(saver, blob, bytes);
    if (status >= 0)
        status = eo_saver_wait(saver, &report);
    eo_saver_destroy(&saver);
    return status;
}

eo_status saved_load(struct saved_rank *self, const char *folder)
{
    char path[4096];
    eo_checkpoint *checkpoint;
    eo_status status = eo_checkpoint_find(path, sizeof(path), NULL, folder, self->log);
    if (status != EO_OK)
        return status < 0 ? status : EO_ERR_IO;
    status = eo_checkpoint_open(&checkpoint, path, self->log);
    if (status >= 0)
        status = eo_checkpoint_load(checkpoint, self->runtime);
    eo_checkpoint_close(&checkpoint);
    return status;
}

static uint64_t hash_arrays(eo_checkpoint *checkpoint)
{
    eo_checkpoint_info info;
    eo_checkpoint_get_info(checkpoint, &info);
    uint64_t hash = info.step;
    for (uint32_t l = 0; l < info.layer_count; l++) {
        eo_checkpoint_layer layer;
        CHECK_THAT(eo_checkpoint_get_layer(checkpoint, l, &layer) == EO_OK);
        float *values = malloc(layer.element_count * sizeof(*values));
        for (uint32_t a = 0; a <= (layer.frozen ? 0 : info.optimizer_states); a++) {
            CHECK_THAT(eo_checkpoint_read(checkpoint, l, a, 0, layer.element_count, values) == EO_OK);
            const uint64_t words[] = {hash, eo_hash64(values, layer.element_count * sizeof(*values))};
            hash = eo_hash64(words, sizeof(words));
        }
        free(values);
    }
    return hash;
}

uint64_t saved_folder_hash(const char *folder)
{
    char path[4096];
    eo_checkpoint *checkpoint = NULL;
    if (eo_checkpoint_find(path, sizeof(path), NULL, folder, &saved_log) != EO_OK ||
        eo_checkpoint_open(&checkpoint, path, &saved_log) < 0)
        return 0;
    const uint64_t hash = hash_arrays(checkpoint);
    eo_checkpoint_close(&checkpoint);
    return hash;
}

/* -- ranks ---------------------------------------------------------------------------------------------------------*/

struct rank_thread {
    struct saved_rank rank;
    void (*body)(struct saved_rank *self);
    bool started;
};

static void own_update(void *user, const eo_shard *shard)
{
    (void)user, (void)shard;
}

static void count_gradient(void *user, const eo_shard *shard)
{
    struct saved_rank *self = user;
    self->gradients += shard->gradient != NULL;
}

static void *rank_main(void *arg)
{
    struct rank_thread *self = arg;
    const eo_status status =
        eo_runtime_create(&self->rank.runtime, eo_runtime_params(.plan = self->rank.plan, .world = self->rank.world,
                                                                 .memory = self->rank.settings->memory, .log = self->rank.log,
                                                                 .update = self->rank.settings->updates ? own_update : NULL,
                                                                 .gradient = count_gradient, .gradient_user = &self->rank));
    self->started = status >= 0;
    if (self->started)
        self->body(&self->rank);
    if (self->rank.runtime && self->rank.runtime->cursor.phase == PHASE_FAILED && !self->rank.breaks) /* which all ranks see */
        eo_world_abort(self->rank.world, eo_runtime_error(self->rank.runtime));
    eo_runtime_destroy(&self->rank.runtime);
    return NULL;
}

static bool run_threads(const struct saved_settings *s, eo_model *model, eo_plan *plan,
                        void (*body)(struct saved_rank *self), void *shared)
{
    eo_world *worlds[SAVED_RANKS_MAX];
    struct rank_thread threads[SAVED_RANKS_MAX];
    bool good = true;
    if (eo_world_create_local(worlds, eo_world_params(.rank_count = s->ranks, .timeout_ms = 20000, .log = &saved_log)) < 0)
        return false;
    for (uint32_t r = 0; r < s->ranks; r++)
        threads[r] = (struct rank_thread){.rank = {.settings = s,
                                                   .rank = r,
                                                   .model = model,
                                                   .plan = plan,
                                                   .world = worlds[r],
                                                   .log = &saved_log,
                                                   .shared = shared},
                                          .body = body};
    run_as_threads(rank_main, threads, s->ranks, sizeof(threads[0]));
    for (uint32_t r = 0; r < s->ranks; r++) {
        good = good && threads[r].started;
        eo_world_destroy(&worlds[r]);
    }
    return good;
}

bool saved_run(const struct saved_settings *s, void (*body)(struct saved_rank *self), void *shared)
{
    eo_model *model;
    eo_plan *plan = NULL;
    bool good = eo_model_create(&model, eo_model_params(.name = "test", .log = &saved_log)) >= 0 && add_model(model, s) &&
                eo_plan_create(&plan, model, eo_plan_params(
                    .rank_count = s->ranks, .strategy = s->strategy, .shard_group = s->shard_group,
                    .gather_slots = s->gather_slots, .dtype = s->dtype, .optimizer_states = s->states, .ema = s->ema,
                    .optimizer = s->optimizer,
                    .log = &saved_log)) >= 0;
    good = good && run_threads(s, model, plan, body, shared);
    if (!good)
        tap_note(__FILE__, __LINE__, "the ranks did not start: %s", saved_log_text());
    eo_plan_destroy(&plan);
    eo_model_destroy(&model);
    return good;
}

uint32_t saved_count_entries(const char *folder, const char *suffix)
{
    uint32_t count = 0;
    DIR *list = opendir(folder);
    for (const struct dirent *entry = list ? readdir(list) : NULL; entry; entry = readdir(list))
        count += strncmp(entry->d_name, "step-", 5) == 0 && strcmp(strchr(entry->d_name, '\0') - strlen(suffix), suffix) == 0;
    if (list)
        closedir(list);
    return count;
}
