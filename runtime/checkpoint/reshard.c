/* SPDX-License-Identifier: MIT
 *
 * A checkpoint written once more for another number of ranks. File after file, in each layer after layer: never more
 * than a few megabytes are in memory.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/reserve.h"
#include "runtime/checkpoint/opened.h"

struct reshard {
    struct eo_checkpoint *from;
    uint32_t rank, rank_count;
};

/* Even shards, of whole blocks of alignment as a plan's are. */
static struct checkpoint_range even_range(const void *user, uint32_t layer)
{
    enum { BLOCK = 128 };
    const struct reshard *reshard = user;
    const uint32_t block = eo_checkpoint_block(reshard->from->files[0].head, 1);
    const uint64_t elements = reshard->from->files[0].layers[layer].element_count;
    const uint64_t count = eo_align_up(eo_div_up(elements, reshard->rank_count), eo_max_u64(BLOCK, block));
    return (struct checkpoint_range){count * reshard->rank, count};
}

static const void *read_part(void *user, const struct checkpoint_section *section, uint64_t at, uint64_t bytes,
                             void *piece, struct checkpoint_error *error)
{
    struct reshard *reshard = user;
    eo_status status;
    if (section->layer == CHECKPOINT_TRAINER) { /* it fits: no larger than CHECKPOINT_PIECE, see reshard_files */
        uint32_t blob_bytes = (uint32_t)bytes;
        status = eo_checkpoint_blob(reshard->from, 0, piece, &blob_bytes);
    } else {
        const uint64_t offset = eo_checkpoint_words(reshard->from->files[0].head, section->array, section->offset);
        status = eo_checkpoint_read_words(reshard->from, section->layer, section->array, offset + at / sizeof(float),
                                          bytes / sizeof(float), piece);
    }
    memset((char *)piece + bytes, 0, eo_align_up(bytes, CHECKPOINT_ALIGN) - bytes);
    error->text[0] = '\0'; /* it has been logged */
    return status < 0 ? NULL : piece;
}

static eo_status write_files(struct reshard *reshard, const char *folder, void *piece, struct checkpoint_error *error)
{
    const struct checkpoint_tables *model = &reshard->from->files[0];
    const uint32_t blob_bytes = (uint32_t)eo_checkpoint_blob_section(model)->bytes;
    eo_status status = EO_OK;
    for (reshard->rank = 0; reshard->rank < reshard->rank_count && status >= 0; reshard->rank++) {
        struct checkpoint_tables tables;
        EO_TRY(eo_checkpoint_make_tables(&tables, model, reshard->rank, reshard->rank_count, blob_bytes, even_range,
                                         reshard));
        memcpy(tables.head->strategy, "zero3", sizeof("zero3"));
        status = eo_checkpoint_write_file(folder, &tables, read_part, reshard, piece, error);
        if (status >= 0 && reshard->rank + 1 == reshard->rank_count)
            status = eo_checkpoint_commit(folder, &tables, 0, error);
        eo_checkpoint_free_tables(&tables);
    }
    return status;
}

/* Under the folder's lock. */
static eo_status reshard_files(struct reshard *reshard, const char *folder, struct checkpoint_error *error)
{
    const uint64_t step = reshard->from->manifest.step;
    EO_TRY(eo_checkpoint_check_free(folder, step, error));
    if (eo_checkpoint_blob_section(&reshard->from->files[0])->bytes > CHECKPOINT_PIECE)
        return eo_checkpoint_io_error(error, 0, "%s: too many trainer's bytes", reshard->from->path);
    void *piece = aligned_alloc(CHECKPOINT_ALIGN, CHECKPOINT_PIECE);
    if (!piece)
        return EO_ERR_NO_MEMORY;
    const eo_status status = write_files(reshard, folder, piece, error);
    free(piece);
    if (status < 0)
        eo_checkpoint_discard(folder, step);
    return status;
}

eo_status eo_checkpoint_reshard(eo_checkpoint *checkpoint, const char *folder, uint32_t rank_count, const eo_log *log)
{
    enum { RANKS_MOST = 1 << 20 };
    struct checkpoint_error error = {""};
    if (!checkpoint || !folder)
        return EO_ERR_INVALID;
    EO_REQUIRE(log, rank_count > 0 && rank_count <= RANKS_MOST, "a checkpoint has 1 to %d ranks, not %u",
               RANKS_MOST, rank_count);
    struct reshard reshard = {.from = checkpoint, .rank_count = rank_count};
    int lock = -1;
    sigset_t before;
    eo_size_limit_begin(&before); /* this is the caller's thread */
    eo_status status = eo_checkpoint_check_free(folder, checkpoint->manifest.step, &error); /* before anything is written */
    if (status >= 0)
        status = eo_checkpoint_lock(&lock, folder, log, &error);
    if (status >= 0)
        status = reshard_files(&reshard, folder, &error);
    eo_checkpoint_unlock(lock);
    eo_size_limit_end(&before);
    if (status < 0 && error.text[0])
        eo_log_write(log, EO_LOG_ERROR, "%s", error.text);
    return status;
}
