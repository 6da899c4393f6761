/* SPDX-License-Identifier: MIT
 *
 * Opening a checkpoint, and reading from it, whichever files a range lies in.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/check.h"
#include "base/hashing.h"
#include "base/sized.h"
#include "runtime/checkpoint/opened.h"
#include "streams/state8.h"

static eo_status tell(const struct eo_checkpoint *checkpoint, eo_status status, const struct checkpoint_error *error)
{
    if (status < 0)
        eo_log_write(&checkpoint->log, EO_LOG_ERROR, "%s", error->text[0] ? error->text : eo_status_text(status));
    return status;
}

/* -- finding -------------------------------------------------------------------------------------------------------*/

struct newest {
    bool found;
    uint64_t step, limit; /* below which it is looked for */
};

static void note_newest(void *user, uint64_t step, bool has_manifest)
{
    struct newest *newest = user;
    if (step < newest->limit && (!newest->found || step > newest->step)) {
        newest->found = true;
        newest->step = step;
    }
}

static eo_status copy_path(char *path, size_t path_bytes, const char *from, struct checkpoint_error *error)
{
    if (strlen(from) >= path_bytes)
        return eo_checkpoint_io_error(error, 0, "%.100s...: the path is too long", from);
    memcpy(path, from, strlen(from) + 1);
    return EO_OK;
}

static eo_status find_before(char *path, size_t path_bytes, uint64_t *step, const char *folder,
                             struct checkpoint_error *error)
{
    char found[CHECKPOINT_PATH_MAX];
    struct newest newest = {.limit = *step};
    const eo_status status = eo_checkpoint_list(folder, note_newest, &newest, error);
    if (status != EO_OK || !newest.found)
        return status < 0 ? status : EO_IN_PROGRESS;
    EO_TRY(eo_checkpoint_path(found, folder, newest.step, "", error));
    EO_TRY(copy_path(path, path_bytes, found, error));
    *step = newest.step;
    return EO_OK;
}

static eo_status find(char *path, size_t path_bytes, uint64_t *step, const char *folder,
                      struct checkpoint_error *error)
{
    char manifest_path[CHECKPOINT_PATH_MAX];
    struct checkpoint_manifest manifest;
    const int used = snprintf(manifest_path, sizeof(manifest_path), "%s/manifest", folder);
    if (used < 0 || used >= (int)sizeof(manifest_path))
        return eo_checkpoint_io_error(error, 0, "%.100s...: the path is too long", folder);
    if (access(manifest_path, F_OK) != 0)
        return errno == ENOENT || errno == ENOTDIR ? find_before(path, path_bytes, step, folder, error)
                                                   : eo_checkpoint_io_error(error, errno, "cannot read %s", manifest_path);
    EO_TRY(eo_checkpoint_read_manifest(&manifest, manifest_path, error));
    free(manifest.files);
    *step = manifest.step;
    return copy_path(path, path_bytes, folder, error);
}

static eo_status told(eo_status status, const struct checkpoint_error *error, const eo_log *log)
{
    if (status < 0)
        eo_log_write(log, EO_LOG_ERROR, "%s", error->text);
    return status;
}

eo_status eo_checkpoint_find(char *path, size_t path_bytes, uint64_t *step, const char *folder, const eo_log *log)
{
    struct checkpoint_error error = {""};
    uint64_t found = UINT64_MAX;
    if (!path || !folder)
        return EO_ERR_INVALID;
    if (path_bytes > 0)
        path[0] = '\0';
    const eo_status status = find(path, path_bytes, &found, folder, &error);
    if (status == EO_OK && step)
        *step = found;
    return told(status, &error, log);
}

eo_status eo_checkpoint_find_before(char *path, size_t path_bytes, uint64_t *step, const char *folder, const eo_log *log)
{
    struct checkpoint_error error = {""};
    if (!path || !step || !folder)
        return EO_ERR_INVALID;
    return told(find_before(path, path_bytes, step, folder, &error), &error, log);
}

/* -- opening -------------------------------------------------------------------------------------------------------*/

static eo_status file_path(const struct eo_checkpoint *checkpoint, uint32_t rank, char path[CHECKPOINT_PATH_MAX],
                           struct checkpoint_error *error)
{
    char name[EO_CHECKPOINT_FILE_MAX];
    eo_checkpoint_file_name(name, rank);
    const int used = snprintf(path, CHECKPOINT_PATH_MAX, "%s/%s", checkpoint->path, name);
    return used >= 0 && used < CHECKPOINT_PATH_MAX
               ? EO_OK
               : eo_checkpoint_io_error(error, 0, "%.100s...: the path is too long", checkpoint->path);
}

/* What all files of a checkpoint have in common. */
static bool is_of_the_same(const struct checkpoint_tables *a, const struct checkpoint_tables *b)
{
    return a->head->layer_count == b->head->layer_count && a->head->parameter_count == b->head->parameter_count &&
           a->head->optimizer_states == b->head->optimizer_states && a->head->has_ema == b->head->has_ema &&
           a->head->optimizer == b->head->optimizer && a->head->own_update == b->head->own_update &&
           a->head->dtype == b->head->dtype && a->head->model_hash == b->head->model_hash &&
           memcmp(a->layers, b->layers, a->head->layer_count * sizeof(*a->layers)) == 0 &&
           memcmp(a->parameters, b->parameters, a->head->parameter_count * sizeof(*a->parameters)) == 0;
}

static eo_status read_heads(struct eo_checkpoint *checkpoint, struct checkpoint_error *error)
{
    const struct checkpoint_manifest *manifest = &checkpoint->manifest;
    char path[CHECKPOINT_PATH_MAX];
    checkpoint->files = calloc(manifest->rank_count, sizeof(*checkpoint->files));
    if (!checkpoint->files)
        return EO_ERR_NO_MEMORY;
    for (uint32_t r = 0; r < manifest->rank_count; r++) {
        struct checkpoint_tables *file = &checkpoint->files[r];
        EO_TRY(file_path(checkpoint, r, path, error));
        const eo_status status = eo_checkpoint_read_head(file, path, error);
        if (status < 0) /* the manifest is of our version: a head of another one is damaged */
            return status == EO_ERR_UNSUPPORTED ? EO_ERR_IO : status;
        const struct checkpoint_head *head = file->head;
        if (head->head_hash != manifest->files[r].head_hash || head->file_bytes != manifest->files[r].bytes ||
            head->rank != r || head->rank_count != manifest->rank_count || head->step != manifest->step)
            return eo_checkpoint_io_error(error, 0, "%s belongs to another checkpoint than the manifest beside it", path);
        if (!is_of_the_same(file, &checkpoint->files[0]))
            return eo_checkpoint_io_error(error, 0, "%s belongs to another model than rank 0's file", path);
        checkpoint->bytes += head->file_bytes;
    }
    return EO_OK;
}

static uint64_t array_index(const struct eo_checkpoint *checkpoint, uint32_t layer, uint32_t array)
{
    return (uint64_t)layer * (1 + checkpoint->files[0].head->optimizer_states) + array;
}

/* Counted, then placed: files come in the order of ranks, so parts stand in the order of their offsets where ranks do. */
static eo_status index_parts(struct eo_checkpoint *checkpoint)
{
    const uint64_t arrays = array_index(checkpoint, checkpoint->files[0].head->layer_count, 0);
    uint64_t total = 0;
    uint64_t *next = calloc(arrays + 1, sizeof(*next));
    checkpoint->part_begin = calloc(arrays + 1, sizeof(*checkpoint->part_begin));
    for (uint32_t r = 0; r < checkpoint->manifest.rank_count; r++)
        total += checkpoint->files[r].head->section_count - 1;
    checkpoint->parts = calloc(total + 1, sizeof(*checkpoint->parts));
    if (!next || !checkpoint->part_begin || !checkpoint->parts) {
        free(next);
        return EO_ERR_NO_MEMORY;
    }
    for (int placing = 0; placing < 2; placing++) {
        for (uint32_t r = 0; r < checkpoint->manifest.rank_count; r++) {
            for (uint32_t s = 0; s + 1 < checkpoint->files[r].head->section_count; s++) {
                const struct checkpoint_section *section = &checkpoint->files[r].sections[s];
                const uint64_t at = array_index(checkpoint, section->layer, section->array);
                if (placing)
                    checkpoint->parts[next[at]++] = (struct checkpoint_part){r, s};
                else
                    checkpoint->part_begin[at + 1]++;
            }
        }
        for (uint64_t a = 0; !placing && a < arrays; a++) {
            checkpoint->part_begin[a + 1] += checkpoint->part_begin[a];
            next[a + 1] = checkpoint->part_begin[a + 1];
        }
    }
    free(next);
    return EO_OK;
}

static const struct checkpoint_section *section_of(const struct eo_checkpoint *checkpoint,
                                                   const struct checkpoint_part *part)
{
    return &checkpoint->files[part->rank].sections[part->section];
}

/* Every element of every array is in one file, and in one only. Parts follow on one another, also behind the last element
 * (ranks save the padding of their ranges): find_part and read_array rely on it. */
static eo_status check_coverage(const struct eo_checkpoint *checkpoint, struct checkpoint_error *error)
{
    const struct checkpoint_tables *model = &checkpoint->files[0];
    for (uint32_t l = 0; l < model->head->layer_count; l++) {
        for (uint32_t a = 0; a <= model->head->optimizer_states; a++) {
            const uint64_t index = array_index(checkpoint, l, a), parts_end = checkpoint->part_begin[index + 1];
            const bool wanted = a == 0 || !model->layers[l].frozen;
            uint64_t end = 0, p = checkpoint->part_begin[index];
            for (; p < parts_end && section_of(checkpoint, &checkpoint->parts[p])->offset == end; p++)
                end += section_of(checkpoint, &checkpoint->parts[p])->count;
            if (p < parts_end || (wanted && end < model->layers[l].element_count))
                return eo_checkpoint_io_error(error, 0, "%s: the files do not hold all of layer %s: element %" PRIu64 " of "
                                              "array %u is missing or out of order", checkpoint->path,
                                              model->layers[l].name, end, a);
        }
    }
    return EO_OK;
}

static eo_status open_checkpoint(struct eo_checkpoint *checkpoint, const char *path, struct checkpoint_error *error)
{
    char manifest[CHECKPOINT_PATH_MAX];
    checkpoint->file = -1;
    checkpoint->chunk_index = UINT64_MAX;
    const int used = snprintf(manifest, sizeof(manifest), "%s/manifest", path);
    if (used < 0 || used >= (int)sizeof(manifest))
        return eo_checkpoint_io_error(error, 0, "%.100s...: the path is too long", path);
    snprintf(checkpoint->path, sizeof(checkpoint->path), "%s", path);
    checkpoint->chunk = aligned_alloc(CHECKPOINT_ALIGN, CHECKPOINT_CHUNK);
    if (!checkpoint->chunk)
        return EO_ERR_NO_MEMORY;
    EO_TRY(eo_checkpoint_read_manifest(&checkpoint->manifest, manifest, error));
    EO_TRY(read_heads(checkpoint, error));
    EO_TRY(index_parts(checkpoint));
    return check_coverage(checkpoint, error);
}

eo_status eo_checkpoint_open(eo_checkpoint **out, const char *path, const eo_log *log)
{
    struct checkpoint_error error = {""};
    if (!out)
        return EO_ERR_INVALID;
    *out = NULL;
    if (!path)
        return EO_ERR_INVALID;
    struct eo_checkpoint *checkpoint = calloc(1, sizeof(*checkpoint));
    if (!checkpoint)
        return EO_ERR_NO_MEMORY;
    checkpoint->log = log ? *log : (eo_log){0};
    const eo_status status = tell(checkpoint, open_checkpoint(checkpoint, path, &error), &error);
    if (status < 0)
        eo_checkpoint_close(&checkpoint);
    *out = checkpoint;
    return status;
}

void eo_checkpoint_close(eo_checkpoint **pointer)
{
    if (!pointer || !*pointer)
        return;
    struct eo_checkpoint *checkpoint = *pointer;
    for (uint32_t r = 0; checkpoint->files && r < checkpoint->manifest.rank_count; r++)
        eo_checkpoint_free_tables(&checkpoint->files[r]);
    if (checkpoint->file >= 0)
        close(checkpoint->file);
    free(checkpoint->files);
    free(checkpoint->manifest.files);
    free(checkpoint->parts);
    free(checkpoint->part_begin);
    free(checkpoint->chunk);
    free(checkpoint);
    *pointer = NULL;
}

/* -- what it is of -------------------------------------------------------------------------------------------------*/

void eo_checkpoint_get_info(const eo_checkpoint *checkpoint, eo_checkpoint_info *out)
{
    if (!out)
        return;
    *out = (eo_checkpoint_info){0};
    if (!checkpoint)
        return;
    const struct checkpoint_head *head = checkpoint->files[0].head;
    *out = (eo_checkpoint_info){
        .path = checkpoint->path,
        .model_name = head->model_name,
        .strategy = head->strategy,
        .step = head->step,
        .rank_count = head->rank_count,
        .dtype = (eo_dtype)head->dtype,
        .optimizer_states = head->optimizer_states,
        .layer_count = head->layer_count,
        .parameter_count = head->parameter_count,
        .element_count = head->element_count,
        .bytes = checkpoint->bytes,
        .own_update = head->own_update,
    };
}

eo_optimizer eo_checkpoint_optimizer(const eo_checkpoint *checkpoint)
{
    return checkpoint ? (eo_optimizer)checkpoint->files[0].head->optimizer : EO_OPTIMIZER_ADAMW;
}

eo_status eo_checkpoint_get_layer(const eo_checkpoint *checkpoint, uint32_t layer, eo_checkpoint_layer *out)
{
    if (!checkpoint || !out || layer >= checkpoint->files[0].head->layer_count)
        return EO_ERR_INVALID;
    const struct checkpoint_layer *from = &checkpoint->files[0].layers[layer];
    *out = (eo_checkpoint_layer){.name = from->name, .frozen = from->frozen, .element_count = from->element_count};
    return EO_OK;
}

eo_status eo_checkpoint_get_parameter_sized(const eo_checkpoint *checkpoint, uint32_t parameter, eo_checkpoint_parameter *out,
                                            size_t out_bytes)
{
    if (!checkpoint || !out || parameter >= checkpoint->files[0].head->parameter_count)
        return EO_ERR_INVALID;
    const struct checkpoint_parameter *from = &checkpoint->files[0].parameters[parameter];
    eo_checkpoint_parameter full = {
        .info = {.name = from->name,
                 .layer = from->layer,
                 .dim_count = from->dim_count,
                 .element_count = 1,
                 .no_weight_decay = from->no_weight_decay,
                 .frozen = checkpoint->files[0].layers[from->layer].frozen,
                 .group = from->group},
        .offset = from->offset,
    };
    for (uint32_t d = 0; d < from->dim_count; d++)
        full.info.element_count *= full.info.dims[d] = from->dims[d];
    eo_give_sized(out, out_bytes, &full, sizeof(full));
    return EO_OK;
}

eo_status eo_checkpoint_find_parameter(const eo_checkpoint *checkpoint, const char *name, uint32_t *out)
{
    if (!checkpoint || !name || !out)
        return EO_ERR_INVALID;
    for (uint32_t p = 0; p < checkpoint->files[0].head->parameter_count; p++) {
        if (strcmp(checkpoint->files[0].parameters[p].name, name) == 0) {
            *out = p;
            return EO_OK;
        }
    }
    return EO_ERR_INVALID;
}

/* -- reading -------------------------------------------------------------------------------------------------------*/

static eo_status open_file(struct eo_checkpoint *checkpoint, uint32_t rank, const char *path,
                           struct checkpoint_error *error)
{
    if (checkpoint->file >= 0 && checkpoint->file_rank == rank)
        return EO_OK;
    if (checkpoint->file >= 0)
        close(checkpoint->file);
    checkpoint->file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    checkpoint->file_rank = rank;
    return checkpoint->file >= 0 ? EO_OK : eo_checkpoint_unreadable(error, errno, path);
}

eo_status eo_checkpoint_read_chunk(struct eo_checkpoint *checkpoint, uint32_t rank,
                                   const struct checkpoint_section *section, uint32_t chunk,
                                   struct checkpoint_error *error)
{
    const struct checkpoint_tables *file = &checkpoint->files[rank];
    const uint64_t index = (uint64_t)section->chunk_begin + chunk, at = (uint64_t)chunk * CHECKPOINT_CHUNK;
    const uint64_t bytes =
        eo_min_u64(CHECKPOINT_CHUNK, eo_align_up(section->bytes - at, CHECKPOINT_ALIGN));
    char path[CHECKPOINT_PATH_MAX];
    if (checkpoint->chunk_index == index && checkpoint->chunk_rank == rank)
        return EO_OK;
    EO_TRY(file_path(checkpoint, rank, path, error));
    EO_TRY(open_file(checkpoint, rank, path, error));
    checkpoint->chunk_index = UINT64_MAX;
    EO_TRY(eo_checkpoint_read_at(checkpoint->file, checkpoint->chunk, bytes, section->file_offset + at, path, error));
    if (eo_hash64(checkpoint->chunk, bytes) != file->chunk_hashes[index]) {
        char what[EO_NAME_MAX + 64];
        eo_checkpoint_section_text(file, section, what, sizeof(what));
        return eo_checkpoint_io_error(error, 0, "%s: %s: damaged between bytes %" PRIu64 " and %" PRIu64 " of the file "
                                      "(checksum mismatch); use another checkpoint", path, what,
                                      section->file_offset + at, section->file_offset + at + bytes - 1);
    }
    checkpoint->chunk_index = index;
    checkpoint->chunk_rank = rank;
    return EO_OK;
}

/* Bytes [from, from + count) of a section. */
static eo_status read_section(struct eo_checkpoint *checkpoint, uint32_t rank,
                              const struct checkpoint_section *section, uint64_t from, uint64_t count, void *out,
                              struct checkpoint_error *error)
{
    for (uint64_t done = 0; done < count;) {
        const uint64_t at = from + done, inside = at % CHECKPOINT_CHUNK;
        const uint64_t part = eo_min_u64(count - done, CHECKPOINT_CHUNK - inside);
        EO_TRY(eo_checkpoint_read_chunk(checkpoint, rank, section, (uint32_t)(at / CHECKPOINT_CHUNK), error));
        memcpy((char *)out + done, checkpoint->chunk + inside, part);
        done += part;
    }
    return EO_OK;
}

/* The first part that ends behind `offset`: parts are one after the other. */
static uint64_t find_part(const struct eo_checkpoint *checkpoint, uint64_t begin, uint64_t end, uint64_t offset)
{
    while (begin < end) {
        const uint64_t middle = begin + (end - begin) / 2;
        const struct checkpoint_section *section = section_of(checkpoint, &checkpoint->parts[middle]);
        if (section->offset + section->count <= offset)
            begin = middle + 1;
        else
            end = middle;
    }
    return begin;
}

static eo_status read_array(struct eo_checkpoint *checkpoint, uint32_t layer, uint32_t array, uint64_t offset, uint64_t count,
                            void *words, struct checkpoint_error *error)
{
    const struct checkpoint_head *head = checkpoint->files[0].head;
    const uint64_t index = array_index(checkpoint, layer, array), end = checkpoint->part_begin[index + 1];
    const uint64_t block = eo_checkpoint_block(head, array), block_words = eo_checkpoint_words(head, array, block);
    uint64_t done = 0;
    for (uint64_t p = find_part(checkpoint, checkpoint->part_begin[index], end, offset / block_words * block);
         p < end && done < count; p++) {
        const struct checkpoint_section *section = section_of(checkpoint, &checkpoint->parts[p]);
        const uint64_t from = offset + done - eo_checkpoint_words(head, array, section->offset);
        const uint64_t part = eo_min_u64(count - done, section->bytes / sizeof(float) - from);
        EO_TRY(read_section(checkpoint, checkpoint->parts[p].rank, section, from * sizeof(float), part * sizeof(float),
                            (float *)words + done, error));
        done += part;
    }
    memset((float *)words + done, 0, (count - done) * sizeof(float));
    return EO_OK;
}

eo_status eo_checkpoint_read_words(struct eo_checkpoint *checkpoint, uint32_t layer, uint32_t array, uint64_t offset,
                                   uint64_t count, void *words)
{
    struct checkpoint_error error = {""};
    return tell(checkpoint, read_array(checkpoint, layer, array, offset, count, words, &error), &error);
}

/* Block by block. */
static eo_status read_state8(struct eo_checkpoint *checkpoint, uint32_t layer, uint32_t array, uint64_t offset, uint64_t count,
                             float *values)
{
    const uint64_t words = eo_checkpoint_words(checkpoint->files[0].head, array, EO_STATE8_ELEMENTS);
    for (uint64_t done = 0; done < count;) {
        struct eo_state8 block;
        const uint64_t first = (offset + done) % EO_STATE8_ELEMENTS, part = eo_min_u64(count - done, EO_STATE8_ELEMENTS - first);
        EO_TRY(eo_checkpoint_read_words(checkpoint, layer, array, (offset + done) / EO_STATE8_ELEMENTS * words, words, &block));
        for (uint64_t i = 0; i < part; i++)
            values[done + i] = eo_state8_value(block.codes[first + i], array == 1) * block.largest;
        done += part;
    }
    return EO_OK;
}

eo_status eo_checkpoint_read(eo_checkpoint *checkpoint, uint32_t layer, uint32_t array, uint64_t offset, uint64_t count,
                             float *values)
{
    if (!checkpoint || !values)
        return EO_ERR_INVALID;
    const struct checkpoint_head *head = checkpoint->files[0].head;
    EO_REQUIRE(&checkpoint->log,
               layer < head->layer_count && array <= head->optimizer_states && offset <= UINT64_MAX - count,
               "%s: no array %u of layer %u", checkpoint->path, array, layer);
    if (eo_checkpoint_block(head, array) == 1)
        return eo_checkpoint_read_words(checkpoint, layer, array, offset, count, values);
    return read_state8(checkpoint, layer, array, offset, count, values);
}

eo_status eo_checkpoint_blob(eo_checkpoint *checkpoint, uint32_t rank, void *data, uint32_t *bytes)
{
    struct checkpoint_error error = {""};
    if (!checkpoint || !bytes || (*bytes && !data))
        return EO_ERR_INVALID;
    EO_REQUIRE(&checkpoint->log, rank < checkpoint->manifest.rank_count, "%s has %u ranks, and no rank %u",
               checkpoint->path, checkpoint->manifest.rank_count, rank);
    const struct checkpoint_section *section = eo_checkpoint_blob_section(&checkpoint->files[rank]);
    EO_REQUIRE(&checkpoint->log, section->bytes <= *bytes,
               "%s: rank %u: the trainer's %" PRIu64 " bytes do not fit into %u", checkpoint->path, rank,
               section->bytes, *bytes);
    *bytes = (uint32_t)section->bytes;
    return tell(checkpoint, read_section(checkpoint, rank, section, 0, section->bytes, data, &error), &error);
}

/* Chunks [begin, end) of a section. */
static eo_status verify_chunks(struct eo_checkpoint *checkpoint, uint32_t rank,
                               const struct checkpoint_section *section, uint64_t begin, uint64_t end)
{
    eo_status status = EO_OK;
    for (uint64_t c = begin; c < end && status >= 0; c++) {
        struct checkpoint_error error = {""};
        status = tell(checkpoint, eo_checkpoint_read_chunk(checkpoint, rank, section, (uint32_t)c, &error), &error);
    }
    return status;
}

/* Of all chunks, file after file, the `part`th piece: who reads one piece reads files from front to back. */
eo_status eo_checkpoint_verify_part(eo_checkpoint *checkpoint, uint32_t part, uint32_t part_count)
{
    eo_status first = EO_OK;
    uint64_t total = 0, before = 0;
    if (!checkpoint || part >= part_count)
        return EO_ERR_INVALID;
    for (uint32_t r = 0; r < checkpoint->manifest.rank_count; r++)
        total += checkpoint->files[r].head->chunk_count;
    const uint64_t begin = total / part_count * part + total % part_count * part / part_count;
    const uint64_t end = total / part_count * (part + 1) + total % part_count * (part + 1) / part_count;
    for (uint32_t r = 0; r < checkpoint->manifest.rank_count; r++) {
        for (uint32_t s = 0; s < checkpoint->files[r].head->section_count; s++) {
            const struct checkpoint_section *section = &checkpoint->files[r].sections[s];
            const uint64_t from = eo_max_u64(begin, before), to = eo_min_u64(end, before + section->chunk_count);
            const eo_status status =
                from < to ? verify_chunks(checkpoint, r, section, from - before, to - before) : EO_OK;
            first = first < 0 ? first : status;
            before += section->chunk_count;
        }
    }
    return first;
}

eo_status eo_checkpoint_verify(eo_checkpoint *checkpoint)
{
    return eo_checkpoint_verify_part(checkpoint, 0, 1);
}
