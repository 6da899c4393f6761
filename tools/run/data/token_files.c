/* SPDX-License-Identifier: MIT
 *
 * Token files.
 */
#include "tools/run/data/batches.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tools/shared/mapped_file.h"
#include "tools/shared/open_file.h"

enum {
    TOKENS_HEADER_BYTES = 1024,
    TOKENS_MAGIC_GPT2 = 20240520,
    TOKENS_VERSION_GPT2 = 1,
    TOKENS_MAGIC_LLAMA3 = 20240801,
    TOKENS_VERSION_LLAMA3 = 7,
    TAG_AT = 12,
    VOCABULARY_AT = 16,
    BOUNDARY_AT = 20,
    HASH_AT = 24,
    MARKS_AT = 32,
    END_AT = 36,
    HEAD_BYTES = 40, /* of the header, that say something */
};

struct token_header {
    int32_t magic, version;
    uint32_t count;
};

static bool has_tag(const char *header)
{
    static const char tag[4] = {'E', 'O', 'T', 'K'};
    return memcmp(header + TAG_AT, tag, sizeof(tag)) == 0;
}

/* Behind the tokens stands a bit for each. */
static bool has_marks(const char *header)
{
    uint32_t marks;
    memcpy(&marks, header + MARKS_AT, sizeof(marks));
    return has_tag(header) && marks == 1;
}

bool tool_data_has_marks(const struct tool_token_files *files)
{
    bool has = false;
    for (uint32_t i = 0; i <= files->path_count && !has; i++) {
        const char *path = i < files->path_count ? files->paths[i] : files->held_back;
        char head[HEAD_BYTES];
        const int file = path ? open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK) : -1;
        has = file >= 0 && pread(file, head, sizeof(head), 0) == (ssize_t)sizeof(head) && has_marks(head);
        if (file >= 0)
            close(file);
    }
    return has;
}

static eo_status check_header(const char *what, const struct token_header *header, bool marks, uint64_t file_bytes,
                              uint32_t *token_bytes, struct tool_problem *problem)
{
    if (header->magic != TOKENS_MAGIC_GPT2 && header->magic != TOKENS_MAGIC_LLAMA3)
        return tool_problem_set(problem, EO_ERR_INVALID,
                                "%s: begins with %d, but token files of llm.c begin with %d (GPT-2) or %d (Llama 3); make one "
                                "with tools/tokenize, or train on bytes with --text",
                                what, header->magic, TOKENS_MAGIC_GPT2, TOKENS_MAGIC_LLAMA3);
    const bool llama = header->magic == TOKENS_MAGIC_LLAMA3;
    const int32_t version = llama ? TOKENS_VERSION_LLAMA3 : TOKENS_VERSION_GPT2;
    if (header->version != version)
        return tool_problem_set(problem, EO_ERR_INVALID,
                                "%s: has version %d; only version %d is readable; make it again with tools/tokenize",
                                what, header->version, version);
    *token_bytes = llama ? 4 : 2;
    const uint64_t mark_bytes = marks ? ((uint64_t)header->count + 7) / 8 : 0;
    const uint64_t wanted = TOKENS_HEADER_BYTES + (uint64_t)header->count * *token_bytes + mark_bytes;
    if (file_bytes != wanted)
        return tool_problem_set(problem, EO_ERR_INVALID,
                                "%s: has %llu bytes, but its header's count of tokens, %u, takes %llu; it was cut off or "
                                "changed: copy or make it again",
                                what, (unsigned long long)file_bytes, header->count, (unsigned long long)wanted);
    return EO_OK;
}

uint32_t tool_data_token(const struct tool_data *data, uint64_t i)
{
    for (; i >= data->own_count && data->next; data = data->next)
        i -= data->own_count;
    switch (data->token_bytes) {
    case 1: return ((const uint8_t *)data->tokens)[i];
    case 2: return ((const uint16_t *)data->tokens)[i];
    default: return ((const uint32_t *)data->tokens)[i];
    }
}

int32_t tool_data_target(const struct tool_data *data, uint64_t i)
{
    const int32_t token = (int32_t)tool_data_token(data, i);
    for (; i >= data->own_count && data->next; data = data->next)
        i -= data->own_count;
    return data->counted && !(data->counted[i / 8] >> i % 8 & 1) ? -100 : token;
}

static eo_status check_vocabulary(const struct tool_data *data, const char *what, uint32_t vocabulary,
                                  struct tool_problem *problem)
{
    for (uint64_t i = 0; i < data->count; i++)
        if (tool_data_token(data, i) >= vocabulary)
            return tool_problem_set(problem, EO_ERR_INVALID,
                                    "%s: token %llu is %u, outside the model's vocabulary of %u; choose a --model with the "
                                    "vocabulary of the file",
                                    what, (unsigned long long)i, tool_data_token(data, i), vocabulary);
    return EO_OK;
}

static struct tool_token_origin read_origin(const char *header)
{
    struct tool_token_origin origin = {.is_known = has_tag(header)};
    if (!origin.is_known)
        return origin;
    memcpy(&origin.vocabulary, header + VOCABULARY_AT, sizeof(origin.vocabulary));
    memcpy(&origin.boundary, header + BOUNDARY_AT, sizeof(origin.boundary));
    memcpy(&origin.tokenizer_hash, header + HASH_AT, sizeof(origin.tokenizer_hash));
    uint32_t end; /* and one */
    memcpy(&end, header + END_AT, sizeof(end));
    origin.ends_itself = end > 0;
    origin.end = end > 0 ? end - 1 : origin.boundary;
    return origin;
}

/* A model may have more tokens than its tokenizer: rows are added for alignment. */
static eo_status check_origin(const struct tool_token_origin *origin, const char *what, uint32_t vocabulary,
                              struct tool_problem *problem)
{
    if (origin->is_known && origin->vocabulary > vocabulary)
        return tool_problem_set(problem, EO_ERR_INVALID,
                                "%s: was made with a tokenizer of %u tokens, but the model has a vocabulary of %u; choose a "
                                "--model with that of the file",
                                what, origin->vocabulary, vocabulary);
    return EO_OK;
}

static eo_status map_file(struct tool_data *data, int file, uint64_t file_bytes, const char *what, uint32_t vocabulary,
                          struct tool_problem *problem)
{
    if (file_bytes < TOKENS_HEADER_BYTES)
        return tool_problem_set(problem, EO_ERR_INVALID,
                                "%s: has %llu bytes, fewer than the header's %d; it is not a token file of llm.c, or was cut "
                                "off",
                                what, (unsigned long long)file_bytes, TOKENS_HEADER_BYTES);
    EO_TRY(tool_map_file(&data->map, file, file_bytes, what, problem));
    data->map_bytes = file_bytes;
    struct token_header header;
    memcpy(&header, data->map, sizeof(header));
    const bool marks = has_marks(data->map);
    EO_TRY(check_header(what, &header, marks, file_bytes, &data->token_bytes, problem));
    data->origin = read_origin(data->map);
    EO_TRY(check_origin(&data->origin, what, vocabulary, problem));
    data->tokens = (const char *)data->map + TOKENS_HEADER_BYTES;
    data->count = data->own_count = header.count;
    data->counted = marks ? (const uint8_t *)data->tokens + data->own_count * data->token_bytes : NULL;
    EO_TRY(check_vocabulary(data, what, vocabulary, problem));
    return tool_map_check(problem);
}

/* `option`: that named the file. */
static eo_status map_tokens(struct tool_data *data, const char *option, const char *path, uint32_t vocabulary, bool hold_back,
                            struct tool_problem *problem)
{
    struct tool_data mapped = {0};
    char what[512];
    uint64_t file_bytes;
    int file;
    EO_TRY(tool_open_input(&file, &file_bytes, option, path, problem));
    snprintf(what, sizeof(what), "%s %s", option, path);
    const eo_status status = map_file(&mapped, file, file_bytes, what, vocabulary, problem);
    close(file);
    if (status < 0) {
        tool_data_fini(&mapped);
        return status;
    }
    mapped.training_count = mapped.count - (hold_back ? mapped.count / 10 : 0);
    mapped.file_count = 1;
    *data = mapped;
    return EO_OK;
}

eo_status tool_data_map_tokens(struct tool_data *data, const char *path, uint32_t vocabulary, bool hold_back,
                               struct tool_problem *problem)
{
    return map_tokens(data, "--tokens", path, vocabulary, hold_back, problem);
}

/* Their boundaries may differ: tool_data_pack alone asks for one. */
static bool is_same_tokenizer(const struct tool_token_origin *a, const struct tool_token_origin *b)
{
    return a->is_known == b->is_known && a->vocabulary == b->vocabulary && a->tokenizer_hash == b->tokenizer_hash;
}

/* Behind the last of them. */
static eo_status append_file(struct tool_data *data, const char *option, const char *path, uint32_t vocabulary,
                             struct tool_problem *problem)
{
    struct tool_data *more = calloc(1, sizeof(*more)), *last = data;
    if (!more)
        return tool_problem_set(problem, EO_ERR_NO_MEMORY, "%s %s: no memory", option, path);
    const eo_status status = map_tokens(more, option, path, vocabulary, false, problem);
    if (status < 0) {
        free(more);
        return status;
    }
    const bool agree = is_same_tokenizer(&more->origin, &data->origin);
    while (last->next)
        last = last->next;
    last->next = more;
    if (!agree)
        return tool_problem_set(problem, EO_ERR_INVALID,
                                "%s %s: was made with another tokenizer than the file before it, or says nothing of one; make "
                                "both with one",
                                option, path);
    data->count += more->count;
    return EO_OK;
}

/* Of the tokens [first, end). Where there are none at all, tool_data_check says so. */
static bool none_counts(const struct tool_data *data, uint64_t first, uint64_t end)
{
    for (uint64_t i = first; i < end; i++)
        if (tool_data_target(data, i) >= 0)
            return false;
    return first < end;
}

/* A training without would end with a loss of nothing. What a validation draws is tool_data_check's. */
static eo_status check_counted(const struct tool_data *data, const struct tool_token_files *files, struct tool_problem *problem)
{
    const bool trains = !none_counts(data, 0, data->training_count);
    if (trains && (!files->held_back || !none_counts(data, data->training_count, data->count)))
        return EO_OK;
    return tool_problem_set(problem, EO_ERR_INVALID,
                            "%s %s: none of the tokens counts in the loss; tools/tokenize marked all as prompts, or as said by "
                            "others than the assistant",
                            trains ? "--val-tokens" : "--tokens", trains ? files->held_back : files->paths[0]);
}

static eo_status append_files(struct tool_data *data, const struct tool_token_files *files, uint32_t vocabulary, bool hold_back,
                              struct tool_problem *problem)
{
    for (uint32_t i = 1; i < files->path_count; i++)
        EO_TRY(append_file(data, "--tokens", files->paths[i], vocabulary, problem));
    data->file_count = files->path_count;
    data->training_count = data->count - (hold_back && !files->held_back ? data->count / 10 : 0);
    data->is_held_apart = files->held_back != NULL;
    if (files->held_back)
        EO_TRY(append_file(data, "--val-tokens", files->held_back, vocabulary, problem));
    return check_counted(data, files, problem);
}

eo_status tool_data_map_files(struct tool_data *data, const struct tool_token_files *files, uint32_t vocabulary, bool hold_back,
                              struct tool_problem *problem)
{
    struct tool_data mapped;
    EO_TRY(tool_data_map_tokens(&mapped, files->paths[0], vocabulary, false, problem));
    const eo_status status = append_files(&mapped, files, vocabulary, hold_back, problem);
    if (status < 0)
        tool_data_fini(&mapped);
    else
        *data = mapped;
    return status;
}

const void *tool_data_at(const struct tool_data *data, uint64_t index, uint32_t *token_bytes)
{
    for (; index >= data->own_count && data->next; data = data->next)
        index -= data->own_count;
    *token_bytes = data->token_bytes;
    return (const char *)data->tokens + index * data->token_bytes;
}

void tool_data_fini(struct tool_data *data)
{
    for (struct tool_data *next = data->next, *after; next; next = after) {
        after = next->next;
        tool_unmap_file(next->map, next->map_bytes);
        free(next);
    }
    tool_packing_fini(&data->training);
    tool_packing_fini(&data->held_back);
    free(data->owned);
    tool_unmap_file(data->map, data->map_bytes);
    *data = (struct tool_data){0};
}
