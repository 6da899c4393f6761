/* SPDX-License-Identifier: MIT
 *
 * Reading a file's head. Whatever lies there, nothing is believed before it is checked.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/hashing.h"
#include "base/plain_text.h"
#include "runtime/checkpoint/files.h"

struct head_check {
    const struct checkpoint_tables *tables;
    const char *path;
    struct checkpoint_error *error;
};

static eo_status bad_head(const struct head_check *check, const char *what, uint64_t index)
{
    return eo_checkpoint_io_error(check->error, 0, "%s: the head is damaged: %s (entry %" PRIu64 ")", check->path, what,
                                  index);
}

#define HEAD_HOLDS(condition, what, index)                                                                            \
    do {                                                                                                              \
        if (!(condition))                                                                                             \
            return bad_head(check, what, index);                                                                      \
    } while (0)

static bool is_text(const char *text, size_t room)
{
    const size_t length = strnlen(text, room);
    for (size_t i = 0; i < length; i++)
        if (eo_text_is_control((const unsigned char *)text + i))
            return false;
    return length > 0 && length < room;
}

static eo_status check_model(const struct head_check *check)
{
    const struct checkpoint_head *head = check->tables->head;
    uint64_t begin = 0, elements = 0;
    for (uint32_t l = 0; l < head->layer_count; l++) {
        const struct checkpoint_layer *layer = &check->tables->layers[l];
        uint64_t end = 0;
        HEAD_HOLDS(is_text(layer->name, sizeof(layer->name)) && layer->frozen <= 1, "a layer's name", l);
        HEAD_HOLDS(layer->parameter_count > 0 && begin + layer->parameter_count <= head->parameter_count,
                   "a layer's parameters", l);
        for (uint64_t p = begin; p < begin + layer->parameter_count; p++) {
            const struct checkpoint_parameter *parameter = &check->tables->parameters[p];
            uint64_t count = 1;
            HEAD_HOLDS(is_text(parameter->name, sizeof(parameter->name)) && parameter->layer == l &&
                           parameter->no_weight_decay <= 1 && parameter->group < EO_GROUPS_MAX,
                       "a parameter's name", p);
            HEAD_HOLDS(parameter->dim_count >= 1 && parameter->dim_count <= EO_DIMS_MAX, "a parameter's dims", p);
            for (uint32_t d = 0; d < parameter->dim_count; d++)
                HEAD_HOLDS(parameter->dims[d] > 0 && eo_checked_mul(count, parameter->dims[d], &count) &&
                               count <= UINT64_MAX / 64,
                           "a parameter's dims", p);
            HEAD_HOLDS(parameter->offset >= end && eo_checked_add(parameter->offset, count, &end) &&
                           end <= UINT64_MAX / 64,
                       "a parameter's place", p);
            elements += count;
            HEAD_HOLDS(elements <= UINT64_MAX / 64, "the number of elements", p);
        }
        HEAD_HOLDS(end == layer->element_count, "a layer's size", l);
        begin += layer->parameter_count;
    }
    HEAD_HOLDS(head->skipped <= head->step, "the number of skipped steps", 0);
    for (uint32_t g = 0; g < head->group_count; g++)
        HEAD_HOLDS(check->tables->frozen[g] <= head->step - head->skipped, "the number of steps that froze a group", g);
    HEAD_HOLDS(begin == head->parameter_count && elements == head->element_count, "the number of parameters", begin);
    return EO_OK;
}

static eo_status check_sections(const struct head_check *check)
{
    const struct checkpoint_head *head = check->tables->head;
    uint64_t at = head->head_bytes, chunk = 0;
    for (uint32_t s = 0; s < head->section_count; s++) {
        const struct checkpoint_section *section = &check->tables->sections[s];
        const bool is_blob = s + 1 == head->section_count;
        HEAD_HOLDS(is_blob ? section->layer == CHECKPOINT_TRAINER && section->array == 0 && section->offset == 0
                           : section->layer < head->layer_count && section->array <= head->optimizer_states,
                   "the kind of a section", s);
        const uint32_t block = is_blob ? 1 : eo_checkpoint_block(head, section->array);
        const uint64_t words = is_blob ? 0 : eo_checkpoint_words(head, section->array, section->count);
        HEAD_HOLDS(section->count <= head->file_bytes && section->offset <= UINT64_MAX / 64 &&
                       section->count % block == 0 && section->offset % block == 0 &&
                       section->bytes == (is_blob ? section->count : words * sizeof(float)) && section->bytes <= head->file_bytes,
                   "a section's size", s);
        HEAD_HOLDS(section->file_offset == at && section->chunk_begin == chunk &&
                       section->chunk_count == eo_div_up(section->bytes, CHECKPOINT_CHUNK),
                   "a section's place", s);
        at += eo_align_up(section->bytes, CHECKPOINT_ALIGN);
        chunk += section->chunk_count;
        HEAD_HOLDS(at <= head->file_bytes && chunk <= head->chunk_count, "a section's place", s);
    }
    HEAD_HOLDS(at == head->file_bytes && chunk == head->chunk_count, "the size of the file", head->section_count);
    return EO_OK;
}

static eo_status check_counts(const struct head_check *check, const struct checkpoint_head *head, uint64_t file_bytes)
{
    uint64_t least;
    if (head->file_bytes != file_bytes)
        return eo_checkpoint_io_error(check->error, 0,
                                      "%s has %" PRIu64 " bytes, but its head says %" PRIu64
                                      ": it was cut off or changed; use another checkpoint",
                                      check->path, file_bytes, head->file_bytes);
    HEAD_HOLDS(eo_checkpoint_head_bytes(head, &least) && head->head_bytes >= least &&
                   head->head_bytes <= CHECKPOINT_HEAD_MAX && head->head_bytes % CHECKPOINT_ALIGN == 0 &&
                   head->head_bytes <= file_bytes,
               "its size", head->head_bytes);
    HEAD_HOLDS(head->layer_count > 0 && head->parameter_count > 0 && head->section_count > 0 && head->rank < head->rank_count &&
                   head->optimizer_states <= EO_STATES_MAX + 1 && head->dtype <= EO_DTYPE_BF16 &&
                   head->has_ema <= (head->optimizer_states > 0) && head->optimizer < EO_OPTIMIZER_COUNT &&
                   head->own_update <= 1 && head->group_count <= EO_GROUPS_MAX && file_bytes <= INT64_MAX,
               "its numbers", head->rank);
    HEAD_HOLDS(is_text(head->model_name, sizeof(head->model_name)) && is_text(head->strategy, sizeof(head->strategy)),
               "its names", 0);
    return EO_OK;
}

static eo_status read_whole_head(struct checkpoint_tables *out, int file, const char *path,
                                 struct checkpoint_error *error)
{
    struct checkpoint_head first;
    struct stat info;
    if (fstat(file, &info) != 0)
        return eo_checkpoint_unreadable(error, errno, path);
    if (!S_ISREG(info.st_mode) || (uint64_t)info.st_size < sizeof(first))
        return eo_checkpoint_io_error(error, 0, "%s is not a checkpoint file, or was cut off", path);
    EO_TRY(eo_checkpoint_read_at(file, &first, sizeof(first), 0, path, error));
    if (memcmp(first.magic, CHECKPOINT_MAGIC, sizeof(first.magic)) != 0)
        return eo_checkpoint_io_error(error, 0, "%s is not a checkpoint file: it begins with other bytes", path);
    if (first.version != CHECKPOINT_VERSION) {
        (void)eo_checkpoint_io_error(error, 0, "%s has version %u of the format, but this library reads version %d; use a "
                                     "newer library", path, first.version, CHECKPOINT_VERSION);
        return EO_ERR_UNSUPPORTED;
    }
    const struct head_check check = {out, path, error};
    EO_TRY(check_counts(&check, &first, (uint64_t)info.st_size));
    struct checkpoint_head *head = aligned_alloc(CHECKPOINT_ALIGN, first.head_bytes);
    if (!head) {
        (void)eo_checkpoint_io_error(error, 0, "out of memory: the head of %s takes %u bytes", path, first.head_bytes);
        return EO_ERR_NO_MEMORY;
    }
    out->head = head; /* from here on the caller frees it */
    EO_TRY(eo_checkpoint_read_at(file, head, first.head_bytes, 0, path, error));
    if (memcmp(head, &first, sizeof(first)) != 0)
        return eo_checkpoint_io_error(error, 0, "%s is being written", path);
    head->head_hash = 0;
    if (eo_hash64(head, head->head_bytes) != first.head_hash)
        return eo_checkpoint_io_error(error, 0, "%s: the head is damaged: its checksum does not match; use another checkpoint",
                                      path);
    head->head_hash = first.head_hash;
    eo_checkpoint_set_tables(out, head);
    EO_TRY(check_model(&check));
    return check_sections(&check);
}

eo_status eo_checkpoint_read_head(struct checkpoint_tables *out, const char *path, struct checkpoint_error *error)
{
    *out = (struct checkpoint_tables){0};
    const int file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a pipe of that name does not hold us up */
    if (file < 0)
        return eo_checkpoint_unreadable(error, errno, path);
    const eo_status status = read_whole_head(out, file, path, error);
    close(file);
    if (status < 0)
        eo_checkpoint_free_tables(out);
    return status;
}
