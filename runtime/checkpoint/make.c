/* SPDX-License-Identifier: MIT
 *
 * A checkpoint of weights that come from elsewhere. File after file, in each layer after layer: never more than a few
 * megabytes are in memory.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/check.h"
#include "base/reserve.h"
#include "runtime/checkpoint/files.h"

struct making {
    const struct eo_plan *plan;
    uint32_t rank;
    eo_status (*produce)(void *user, uint32_t parameter, uint64_t offset, uint64_t count, float *values);
    void *user;
    const void *blob;
    eo_status status; /* the producer's own */
};

static struct checkpoint_range range_of(const void *user, uint32_t layer)
{
    const struct making *making = user;
    return eo_checkpoint_own_range(making->plan, layer, making->rank);
}

/* Elements [begin, begin + count) of a flat layer; what lies between parameters is zero. */
static eo_status produce_weights(struct making *making, uint32_t l, uint64_t begin, uint64_t count, float *values)
{
    const struct plan_layer *layer = &making->plan->layers[l];
    for (uint32_t k = 0; k < layer->parameter_count; k++) {
        const struct plan_parameter *parameter = &making->plan->parameters[layer->parameter_begin + k];
        const uint64_t first = eo_max_u64(begin, parameter->offset);
        const uint64_t end = eo_min_u64(begin + count, parameter->offset + parameter->element_count);
        if (first < end)
            EO_TRY(making->produce(making->user, parameter->model_index, first - parameter->offset, end - first,
                                   values + (first - begin)));
    }
    return EO_OK;
}

static const void *make_part(void *user, const struct checkpoint_section *section, uint64_t at, uint64_t bytes,
                             void *piece, struct checkpoint_error *error)
{
    struct making *making = user;
    memset(piece, 0, eo_align_up(bytes, CHECKPOINT_ALIGN)); /* the optimizer's state stays so */
    if (section->layer == CHECKPOINT_TRAINER)
        memcpy(piece, (const char *)making->blob + at, bytes);
    else if (section->array == 0 || section->array == 1 + making->plan->ema_state) /* EO_NONE: 0 again */
        making->status = produce_weights(making, section->layer, section->offset + at / sizeof(float),
                                         bytes / sizeof(float), piece);
    error->text[0] = '\0'; /* the producer has said it */
    return making->status < 0 ? NULL : piece;
}

static eo_status make_files(struct making *making, const char *folder, const struct checkpoint_tables *model,
                            uint32_t blob_bytes, void *piece, struct checkpoint_error *error)
{
    const uint32_t rank_count = making->plan->params.rank_count;
    eo_status status = EO_OK;
    for (making->rank = 0; making->rank < rank_count && status >= 0; making->rank++) {
        struct checkpoint_tables tables;
        EO_TRY(eo_checkpoint_make_tables(&tables, model, making->rank, rank_count, blob_bytes, range_of, making));
        status = eo_checkpoint_write_file(folder, &tables, make_part, making, piece, error);
        if (status >= 0 && making->rank + 1 == rank_count)
            status = eo_checkpoint_commit(folder, &tables, 0, error);
        eo_checkpoint_free_tables(&tables);
    }
    return making->status < 0 ? making->status : status;
}

/* Under the folder's lock. */
static eo_status make(struct making *making, const char *folder, uint32_t blob_bytes, struct checkpoint_error *error)
{
    struct checkpoint_tables model;
    EO_TRY(eo_checkpoint_check_free(folder, 0, error));
    EO_TRY(eo_checkpoint_describe_plan(&model, making->plan, false));
    void *piece = aligned_alloc(CHECKPOINT_ALIGN, CHECKPOINT_PIECE);
    const eo_status status =
        piece ? make_files(making, folder, &model, blob_bytes, piece, error) : EO_ERR_NO_MEMORY;
    free(piece);
    eo_checkpoint_free_tables(&model);
    if (status < 0)
        eo_checkpoint_discard(folder, 0);
    return status;
}

static eo_status make_locked(struct making *making, const char *folder, uint32_t blob_bytes, const eo_log *log,
                             struct checkpoint_error *error)
{
    struct stat info;
    int lock;
    const bool is_there = stat(folder, &info) == 0;
    EO_TRY(eo_checkpoint_check_free(folder, 0, error)); /* before anything is written */
    EO_TRY(eo_checkpoint_lock(&lock, folder, log, error));
    const eo_status status = make(making, folder, blob_bytes, error);
    if (status < 0 && !is_there)
        eo_checkpoint_remove_made(folder);
    eo_checkpoint_unlock(lock);
    return status;
}

eo_status eo_checkpoint_make(const eo_plan *plan, const char *folder,
                             eo_status (*produce)(void *user, uint32_t parameter, uint64_t offset, uint64_t count,
                                                  float *values),
                             void *user, const void *blob, uint32_t blob_bytes, const eo_log *log)
{
    struct checkpoint_error error = {""};
    if (!plan || !folder || !produce || (!blob && blob_bytes))
        return EO_ERR_INVALID;
    struct making making = {.plan = plan, .produce = produce, .user = user, .blob = blob};
    sigset_t before;
    eo_size_limit_begin(&before); /* this is the caller's thread */
    const eo_status status = make_locked(&making, folder, blob_bytes, log, &error);
    eo_size_limit_end(&before);
    if (status < 0 && error.text[0])
        eo_log_write(log, EO_LOG_ERROR, "%s", error.text);
    return status;
}
