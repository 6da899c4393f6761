/* SPDX-License-Identifier: MIT */
#include "tools/convert.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The first error that the library logged: a status alone says too little. */
struct first_error {
    pthread_mutex_t mutex;
    char text[1024];
};

static void keep_first(void *user, eo_log_level level, const char *text)
{
    struct first_error *error = user;
    pthread_mutex_lock(&error->mutex);
    if (level == EO_LOG_ERROR && !error->text[0])
        snprintf(error->text, sizeof(error->text), "%s", text);
    pthread_mutex_unlock(&error->mutex);
}

static eo_status failed(const struct first_error *error, const char *path, eo_status status, struct eo_problem *problem)
{
    return eo_problem_set(problem, status, "%s: %s", path, error->text[0] ? error->text : eo_status_text(status));
}

/* --- ours to others' ---------------------------------------------------------------------------------------------- */

static eo_status put_parameters(eo_checkpoint *checkpoint, const eo_model *model, struct eo_export *export,
                                struct eo_problem *problem)
{
    eo_checkpoint_info whole;
    eo_checkpoint_get_info(checkpoint, &whole);
    for (uint32_t k = 0; k < eo_model_parameter_count(model); k++) {
        eo_parameter_info info;
        eo_checkpoint_parameter saved;
        uint32_t index;
        TOOLS_TRY(eo_model_parameter(model, k, &info));
        if (eo_checkpoint_find_parameter(checkpoint, info.name, &index) < 0 ||
            eo_checkpoint_get_parameter(checkpoint, index, &saved) < 0 ||
            saved.info.element_count != info.element_count)
            return eo_problem_set(problem, EO_ERR_INVALID, "%s: has no '%s' of %llu elements; it is of another model",
                                  whole.path, info.name, (unsigned long long)info.element_count);
        float *values = malloc(info.element_count * sizeof(*values));
        if (!values)
            return eo_problem_set(problem, EO_ERR_NO_MEMORY, "%s: no memory for '%s'", whole.path, info.name);
        const eo_status status =
            eo_checkpoint_read(checkpoint, saved.info.layer, 0, saved.offset, info.element_count, values);
        if (status >= 0)
            eo_export_put(export, k, values);
        free(values);
        if (status < 0)
            return eo_problem_set(problem, status, "%s: '%s' cannot be read; tools/checkpoint verify says more", whole.path,
                                  info.name);
    }
    return EO_OK;
}

static eo_status write_model(eo_checkpoint *checkpoint, const struct eo_export_model *model,
                             const struct eo_export_settings *settings, struct eo_problem *problem)
{
    struct eo_export export;
    TOOLS_TRY(eo_export_check(settings, model, problem));
    TOOLS_TRY(eo_export_begin(&export, settings, model, problem));
    const eo_status status = put_parameters(checkpoint, model->model, &export, problem);
    if (status < 0) {
        eo_export_drop(&export);
        return status;
    }
    return eo_export_end(&export, problem);
}

eo_status eo_convert_to_files(eo_checkpoint *checkpoint, const eo_transformer_config *config,
                              const struct eo_export_settings *settings, struct eo_problem *problem)
{
    struct first_error error = {.mutex = PTHREAD_MUTEX_INITIALIZER};
    const eo_log log = {.write = keep_first, .user = &error, .level = EO_LOG_ERROR};
    eo_transformer *transformer;
    const eo_status created =
        eo_transformer_create(&transformer, eo_transformer_params(.config = *config, .seq = 1, .log = &log));
    if (created < 0)
        return failed(&error, settings->path, created, problem);
    const struct eo_export_model model = {.model = eo_transformer_model(transformer),
                                          .config = eo_transformer_get_params(transformer)->config};
    const eo_status status = write_model(checkpoint, &model, settings, problem);
    eo_transformer_destroy(&transformer);
    return status;
}

/* --- others' to ours ---------------------------------------------------------------------------------------------- */

struct saving {
    const struct eo_import *import;
    const eo_plan *plan;
    const char *folder;
    const void *blob;
    uint32_t blob_bytes;
    const eo_log *log;
};

struct saving_rank {
    const struct saving *saving;
    eo_world *world;
    pthread_t thread;
    eo_status status;
    struct eo_problem problem;
};

static eo_status save(const struct saving *saving, eo_runtime *runtime, struct eo_problem *problem)
{
    eo_saver *saver;
    eo_saver_report report;
    TOOLS_TRY(eo_import_load(saving->import, runtime, problem));
    TOOLS_TRY(eo_saver_create(&saver, &(eo_saver_params){
        .runtime = runtime, .folder = saving->folder, .blob_bytes_max = saving->blob_bytes, .log = saving->log}));
    eo_status status = eo_saver_begin(saver, saving->blob, saving->blob_bytes);
    if (status >= 0)
        status = eo_saver_wait(saver, &report);
    if (status < 0)
        eo_problem_set(problem, status, "%s: %s", saving->folder, eo_saver_error(saver));
    eo_saver_destroy(&saver);
    return status;
}

static void *rank_main(void *arg)
{
    struct saving_rank *rank = arg;
    const struct saving *saving = rank->saving;
    eo_runtime *runtime = NULL;
    rank->status = eo_runtime_create(&runtime, eo_runtime_params(.plan = saving->plan, .world = rank->world,
                                                                 .log = saving->log));
    if (rank->status >= 0)
        rank->status = save(saving, runtime, &rank->problem);
    if (rank->status < 0) /* the others would wait */
        eo_world_abort(rank->world, rank->problem.text[0] ? rank->problem.text : eo_status_text(rank->status));
    eo_runtime_destroy(&runtime);
    return NULL;
}

static eo_status run_ranks(const struct saving *saving, uint32_t rank_count, struct first_error *error,
                           struct eo_problem *problem)
{
    eo_world **worlds = calloc(rank_count, sizeof(eo_world *));
    struct saving_rank *ranks = calloc(rank_count, sizeof(*ranks));
    eo_status status = worlds && ranks ? eo_world_create_local(worlds, eo_world_params(.rank_count = rank_count,
                                                                                       .log = saving->log))
                                       : EO_ERR_NO_MEMORY;
    uint32_t started = 0, cause = 0;
    if (status < 0)
        status = failed(error, saving->folder, status, problem);
    for (; status >= 0 && started < rank_count; started++) {
        ranks[started] = (struct saving_rank){.saving = saving, .world = worlds[started]};
        if (pthread_create(&ranks[started].thread, NULL, rank_main, &ranks[started]) != 0) {
            eo_world_abort(worlds[started], "a thread cannot be started");
            status = eo_problem_set(problem, EO_ERR_NO_MEMORY, "the thread of rank %u cannot be started", started);
            break;
        }
    }
    for (uint32_t r = 0; r < started; r++)
        pthread_join(ranks[r].thread, NULL);
    /* That a rank is gone is what others find of the one that says why. */
    for (uint32_t r = 0; r < started; r++)
        if (ranks[r].status < 0 && (ranks[cause].status >= 0 || ranks[cause].status == EO_ERR_COMM))
            cause = r;
    if (status >= 0 && started && ranks[cause].status < 0) {
        status = ranks[cause].status;
        if (ranks[cause].problem.text[0])
            *problem = ranks[cause].problem;
        else
            status = failed(error, saving->folder, status, problem);
    }
    for (uint32_t r = 0; worlds && r < rank_count; r++)
        eo_world_destroy(&worlds[r]);
    free(worlds);
    free(ranks);
    return status;
}

eo_status eo_convert_from_files(struct eo_import *import, const char *folder, uint32_t rank_count, const void *blob,
                                uint32_t blob_bytes, struct eo_problem *problem)
{
    struct first_error error = {.mutex = PTHREAD_MUTEX_INITIALIZER};
    const eo_log log = {.write = keep_first, .user = &error, .level = EO_LOG_ERROR};
    struct saving saving = {.folder = folder, .blob = blob, .blob_bytes = blob_bytes, .log = &log};
    eo_transformer *transformer = NULL;
    eo_plan *plan = NULL;
    eo_status status =
        eo_transformer_create(&transformer, eo_transformer_params(.config = import->config, .seq = 1, .log = &log));
    if (status >= 0)
        status = eo_plan_create(&plan, eo_transformer_model(transformer), eo_plan_params(.rank_count = rank_count,
                                                                                         .log = &log));
    if (status < 0) {
        eo_transformer_destroy(&transformer);
        return failed(&error, folder, status, problem);
    }
    saving.import = import;
    saving.plan = plan;
    status = eo_import_bind(import, eo_transformer_model(transformer), problem);
    if (status >= 0)
        status = run_ranks(&saving, rank_count, &error, problem);
    eo_plan_destroy(&plan);
    eo_transformer_destroy(&transformer);
    return status;
}
