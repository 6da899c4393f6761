/* SPDX-License-Identifier: MIT */
#include "tools/interchange/safetensors_header.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tools/interchange/elements.h"
#include "tools/interchange/foreign.h"
#include "tools/shared/json_output.h"
#include "tools/shared/open_file.h"

/* What a tensor's entry and an index' line take at most, in bytes and in values, and a header's rest, which is metadata. The
 * format allows 100 MB, and parsed it may be 50 times as large, so a header may have what the model's own tensors need. */
enum { ENTRY_BYTES_MAX = 384, ENTRY_VALUES_MAX = 16, HEADER_BYTES_MORE = 1 << 20, HEADER_VALUES_MORE = 1 << 16,
       HEADER_BYTES_MAX = 100000000 };

struct span {
    uint64_t begin, end;
    const char *name;
};

static const struct element_type {
    const char *name;
    uint32_t bits;
} element_types[] = {
    {"BOOL", 8},    {"U8", 8},      {"I8", 8},          {"F8_E4M3", 8},     {"F8_E5M2", 8}, {"F8_E8M0", 8},
    {"F8_E4M3FNUZ", 8}, {"F8_E5M2FNUZ", 8}, {"I16", 16}, {"U16", 16},       {"F16", 16},    {"BF16", 16},
    {"I32", 32},    {"U32", 32},    {"F32", 32},        {"C64", 64},        {"F64", 64},    {"I64", 64},
    {"U64", 64},    {"F6_E2M3", 6}, {"F6_E3M2", 6},     {"F4", 4},
};

#define REFUSE(...) tool_problem_set(problem, EO_ERR_INVALID, __VA_ARGS__)

static uint32_t bits_of(const char *type)
{
    for (size_t i = 0; type && i < sizeof(element_types) / sizeof(element_types[0]); i++)
        if (strcmp(type, element_types[i].name) == 0)
            return element_types[i].bits;
    return 0;
}

static bool take_unsigned(const json_t *value, uint64_t *out)
{
    if (!json_is_integer(value) || json_integer_value(value) < 0)
        return false;
    *out = (uint64_t)json_integer_value(value);
    return true;
}

/* One entry: type, shape and offsets agree, and lie in the file. */
static eo_status read_entry(const char *path, const char *name, const json_t *entry, uint64_t buffer_begin,
                            uint64_t buffer_bytes, json_t *tensors, struct span *span, struct tool_problem *problem)
{
    const json_t *shape = json_object_get(entry, "shape"), *offsets = json_object_get(entry, "data_offsets");
    const char *type = json_string_value(json_object_get(entry, "dtype"));
    const uint32_t bits = bits_of(type);
    if (!bits)
        return REFUSE("%s: tensor '%.100s' has unknown dtype '%.40s'", path, name, type ? type : "(none)");
    if (!json_is_array(shape) || !json_is_array(offsets) || json_array_size(offsets) != 2)
        return REFUSE("%s: tensor '%.100s' lacks its shape, or its two data_offsets", path, name);
    uint64_t elements = 1, begin = 0, end = 0;
    for (size_t i = 0; i < json_array_size(shape); i++) {
        uint64_t size = 0;
        if (!take_unsigned(json_array_get(shape, i), &size) || __builtin_mul_overflow(elements, size, &elements))
            return REFUSE("%s: tensor '%.100s' has an invalid shape, or one too large", path, name);
    }
    if (!take_unsigned(json_array_get(offsets, 0), &begin) || !take_unsigned(json_array_get(offsets, 1), &end) ||
        end < begin || end > buffer_bytes)
        return REFUSE("%s: tensor '%.100s' has offsets outside the file's %" PRIu64 " bytes of data", path, name,
                      buffer_bytes);
    uint64_t all_bits = 0;
    if (__builtin_mul_overflow(elements, (uint64_t)bits, &all_bits) || all_bits / 8 != end - begin || all_bits % 8)
        return REFUSE("%s: tensor '%.100s' has %" PRIu64 " elements of %s, but %" PRIu64 " bytes", path, name, elements,
                      type, end - begin);
    if (json_object_get(tensors, name))
        return REFUSE("%s: tensor '%.100s' is also in another file", path, name);
    json_t *copy = json_pack("{s:O, s:I, s:s, s:I, s:o}", "shape", shape, "bytes", (json_int_t)(end - begin), "dtype",
                             type, "at", (json_int_t)(buffer_begin + begin), "path", json_string_nocheck(path));
    if (!copy || json_object_set_new(tensors, name, copy) != 0)
        return tool_problem_set(problem, EO_ERR_NO_MEMORY, "%s: no memory", path);
    *span = (struct span){begin, end, name};
    return EO_OK;
}

static int by_begin(const void *a, const void *b)
{
    const struct span *x = a, *y = b;
    if (x->begin != y->begin)
        return x->begin < y->begin ? -1 : 1;
    return (x->end > y->end) - (x->end < y->end);
}

/* Nothing overlaps, no hole, to the end of the file. */
static eo_status check_spans(const char *path, struct span *spans, size_t count, uint64_t buffer_bytes,
                             struct tool_problem *problem)
{
    uint64_t at = 0;
    if (count)
        qsort(spans, count, sizeof(*spans), by_begin);
    for (size_t i = 0; i < count; i++) {
        if (spans[i].begin != at)
            return REFUSE("%s: tensor '%.100s' begins at byte %" PRIu64 " of the data, %s", path, spans[i].name,
                          spans[i].begin, spans[i].begin < at ? "inside another one" : "after a hole");
        at = spans[i].end;
    }
    if (at != buffer_bytes)
        return REFUSE("%s: tensors end at byte %" PRIu64 " of the data, the file at %" PRIu64, path, at, buffer_bytes);
    return EO_OK;
}

static eo_status read_entries(const char *path, json_t *header, uint64_t buffer_begin, uint64_t buffer_bytes, json_t *tensors,
                              struct tool_problem *problem)
{
    const size_t size = json_object_size(header);
    struct span *spans = calloc(size + 1, sizeof(*spans));
    if (!spans)
        return tool_problem_set(problem, EO_ERR_NO_MEMORY, "%s: no memory", path);
    size_t count = 0;
    eo_status status = EO_OK;
    const char *name;
    json_t *entry;
    json_object_foreach(header, name, entry) {
        if (strcmp(name, "__metadata__") == 0)
            continue;
        status = json_is_object(entry)
            ? read_entry(path, name, entry, buffer_begin, buffer_bytes, tensors, &spans[count], problem)
            : REFUSE("%s: entry '%.100s' of the header is not an object", path, name);
        if (status < 0)
            break;
        count++;
    }
    if (status >= 0)
        status = check_spans(path, spans, count, buffer_bytes, problem);
    free(spans);
    return status;
}

static uint64_t header_limit(uint64_t tensor_count)
{
    const uint64_t tensors_most = (HEADER_BYTES_MAX - HEADER_BYTES_MORE) / ENTRY_BYTES_MAX;
    return tensor_count > tensors_most ? HEADER_BYTES_MAX : HEADER_BYTES_MORE + tensor_count * ENTRY_BYTES_MAX;
}

/* Parses no more values than so many tensors have. */
static eo_status parse_bounded(json_t **out, const char *path, bool is_index, const char *text, uint64_t bytes,
                               uint64_t tensor_count_max, struct tool_problem *problem)
{
    const uint64_t values = tool_json_values(text, bytes);
    json_error_t error;
    *out = NULL;
    if (values > HEADER_VALUES_MORE + tensor_count_max * ENTRY_VALUES_MAX)
        return REFUSE("%s: has about %" PRIu64 " values, more than a model of %" PRIu64 " tensors needs", path, values,
                      tensor_count_max);
    *out = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &error);
    return *out ? EO_OK : REFUSE("%s: %sline %d: %s", path, is_index ? "" : "header: ", error.line, error.text);
}

static eo_status read_header(const char *path, FILE *file, uint64_t file_bytes, uint64_t tensor_count_max, json_t *tensors,
                             uint64_t *tensor_bytes, struct tool_problem *problem)
{
    const uint64_t header_bytes_max = header_limit(tensor_count_max);
    unsigned char first[8];
    if (file_bytes < 10 || fread(first, 1, 8, file) != 8)
        return REFUSE("%s: has %" PRIu64 " bytes, fewer than any safetensors file", path, file_bytes);
    uint64_t bytes = 0;
    for (int i = 0; i < 8; i++)
        bytes |= (uint64_t)first[i] << (8 * i);
    if (bytes > header_bytes_max || bytes > file_bytes - 8)
        return REFUSE("%s: by its first 8 bytes the header has %" PRIu64 " bytes; the file has %" PRIu64 ", and a header of "
                      "this model at most %" PRIu64 "%s",
                      path, bytes, file_bytes, header_bytes_max, tool_foreign_file_hint(first));
    char *text = malloc(bytes + 1);
    if (!text)
        return tool_problem_set(problem, EO_ERR_NO_MEMORY, "%s: no memory for a header of %" PRIu64 " bytes", path, bytes);
    eo_status status = EO_OK;
    json_t *header = NULL;
    if (fread(text, 1, bytes, file) != bytes)
        status = tool_problem_set(problem, EO_ERR_IO, "%s: cannot be read: %s", path, strerror(errno));
    else if (bytes == 0 || text[0] != '{')
        status = REFUSE("%s: its header does not begin with '{'", path);
    else
        status = parse_bounded(&header, path, false, text, bytes, tensor_count_max, problem);
    free(text);
    if (status < 0)
        return status;
    *tensor_bytes += file_bytes - 8 - bytes;
    status = read_entries(path, header, 8 + bytes, file_bytes - 8 - bytes, tensors, problem);
    json_decref(header);
    if (status >= 0 && json_object_size(tensors) > tensor_count_max)
        return REFUSE("%s: brings the tensors to %zu, but the model has at most %" PRIu64, path, json_object_size(tensors),
                      tensor_count_max);
    return status;
}

eo_status tool_safetensors_read(const char *path, uint64_t tensor_count_max, json_t *tensors, uint64_t *tensor_bytes,
                                struct tool_problem *problem)
{
    struct stat info = {0};
    FILE *file;
    EO_TRY(tool_open_stream(&file, "", path, problem));
    const eo_status status =
        fstat(fileno(file), &info) != 0
            ? tool_problem_set(problem, EO_ERR_IO, "%s: %s", path, strerror(errno))
            : read_header(path, file, (uint64_t)info.st_size, tensor_count_max, tensors, tensor_bytes, problem);
    fclose(file);
    return status;
}

/* --- against a config --------------------------------------------------------------------------------------------- */

static bool ends_with(const char *text, const char *end)
{
    const size_t a = strlen(text), b = strlen(end);
    return a >= b && strcmp(text + a - b, end) == 0;
}

/* In files, but no parameter. */
static bool is_buffer(const struct tool_model_config *config, const char *name)
{
    if (config->family == TOOL_CONFIG_GPT2)
        return ends_with(name, ".attn.bias") || ends_with(name, ".attn.masked_bias");
    return ends_with(name, ".rotary_emb.inv_freq");
}

const char *tool_safetensors_plain_name(const struct tool_model_config *config, const char *name)
{
    static const char prefix[] = "transformer.";
    const bool strip = config->family == TOOL_CONFIG_GPT2 && strncmp(name, prefix, sizeof(prefix) - 1) == 0;
    return strip ? name + sizeof(prefix) - 1 : name;
}

bool tool_safetensors_is_transposed(const struct tool_model_config *config, const char *name)
{
    return config->family == TOOL_CONFIG_GPT2 &&
           (ends_with(name, ".c_attn.weight") || ends_with(name, ".c_proj.weight") || ends_with(name, ".c_fc.weight"));
}

/* The model's name of a tensor: a model without its head is saved without "model.", Qwen3-Embedding for one. */
static const char *name_in_model(const struct tool_model_config *config, const json_t *all, const char *name,
                                 char room[EO_NAME_MAX + 16])
{
    const char *plain = tool_safetensors_plain_name(config, name);
    if (json_object_get(all, plain))
        return plain;
    snprintf(room, EO_NAME_MAX + 16, "model.%s", plain);
    return json_object_get(all, room) ? room : plain;
}

/* Of a tied pair some files have the head alone: safetensors' own save_model keeps the first name in the alphabet. */
static bool has_head_alone(const struct tool_model_config *config, const json_t *tensors)
{
    static const char *const tables[] = {"wte.weight", "transformer.wte.weight", "embed_tokens.weight",
                                         "model.embed_tokens.weight"};
    for (size_t i = 0; i < sizeof(tables) / sizeof(tables[0]); i++)
        if (json_object_get(tensors, tables[i]))
            return false;
    return config->tied_head;
}

static eo_status compare(const char *folder, const struct tool_model_config *config, json_t *tensors, bool shapes,
                         struct tool_safetensors_check *out, struct tool_problem *problem)
{
    json_t *all = tool_model_config_tensors(config), *wanted = json_copy(all);
    if (!wanted) {
        json_decref(all);
        return tool_problem_set(problem, EO_ERR_NO_MEMORY, "%s: no memory", folder);
    }
    const bool head_alone = has_head_alone(config, tensors);
    const char *table = config->family == TOOL_CONFIG_GPT2 ? "wte.weight" : "model.embed_tokens.weight";
    eo_status status = EO_OK;
    const char *name;
    json_t *entry;
    json_object_foreach(tensors, name, entry) {
        char room[EO_NAME_MAX + 16], hint[TOOL_FOREIGN_HINT_BYTES];
        const char *plain = name_in_model(config, all, name, room);
        const bool is_copy = config->tied_head && strcmp(plain, "lm_head.weight") == 0;
        if (is_copy && head_alone)
            plain = table;
        json_t *shape = json_object_get(wanted, plain);
        if (is_buffer(config, plain) || (is_copy && !head_alone)) {
            out->buffer_count++;
            continue;
        }
        if (!shape) {
            status = json_object_get(all, plain)
                         ? REFUSE("%s: tensor '%.100s' is there twice, with a prefix and without", folder, name)
                         : REFUSE("%s: tensor '%.100s' does not belong to a model of this config%s", folder, name,
                                  tool_foreign_tensor_hint(name, all, hint));
            break;
        }
        if (shapes && !json_equal(shape, json_object_get(entry, "shape"))) {
            char *have = json_dumps(json_object_get(entry, "shape"), JSON_COMPACT);
            char *want = json_dumps(shape, JSON_COMPACT);
            const bool is_table = strcmp(plain, table) == 0 || strcmp(plain, "lm_head.weight") == 0;
            status = REFUSE("%s: tensor '%.100s' has shape %s, but %s by the config%s", folder, name, have ? have : "?",
                            want ? want : "?", tool_foreign_shape_hint(json_object_get(entry, "shape"), shape, is_table, hint));
            free(have);
            free(want);
            break;
        }
        out->tensor_count++;
        uint64_t elements = 1;
        for (size_t i = 0; i < json_array_size(shape); i++)
            elements *= (uint64_t)json_integer_value(json_array_get(shape, i));
        out->element_count += elements;
        json_object_del(wanted, plain);
    }
    if (status >= 0 && json_object_size(wanted))
        status = REFUSE("%s: of the config's tensors %zu %s missing, such as '%.100s'", folder, json_object_size(wanted),
                        json_object_size(wanted) == 1 ? "is" : "are", json_object_iter_key(json_object_iter(wanted)));
    json_decref(wanted);
    json_decref(all);
    return status;
}

/* More tensors than the model has, and so refused by their number: one is named. */
static eo_status name_surplus(eo_status status, const char *folder, const struct tool_model_config *config,
                              uint64_t tensor_count_max, json_t *tensors, struct tool_problem *problem)
{
    struct tool_safetensors_check unused = {0};
    return status < 0 && json_object_size(tensors) > tensor_count_max &&
                   compare(folder, config, tensors, false, &unused, problem) < 0
               ? EO_ERR_INVALID
               : status;
}

/* A link to nothing is said to be one when it is opened. */
static bool is_there(const char *path, struct tool_safetensors_check *out)
{
    struct stat info;
    const bool is_pointer = tool_foreign_is_pointer(path);
    out->has_pointers = out->has_pointers || is_pointer;
    return !is_pointer && lstat(path, &info) == 0;
}

static eo_status read_shards(const char *folder, const char *index_path, const json_t *map, uint64_t tensor_count_max,
                             json_t *tensors, struct tool_safetensors_check *out, struct tool_problem *problem)
{
    json_t *files = json_object();
    const char *name;
    json_t *file;
    eo_status status = files ? EO_OK : tool_problem_set(problem, EO_ERR_NO_MEMORY, "%s: no memory", folder);
    json_object_foreach((json_t *)map, name, file) {
        const char *shard = json_string_value(file);
        if (!shard || strchr(shard, '/') || shard[0] == '\0' || shard[0] == '.' || strlen(shard) > 255)
            status = REFUSE("%s: the file of '%.100s' is '%.100s', not a plain name of a file beside it", index_path,
                            name, shard ? shard : "(no string)");
        else if (json_object_set_new(files, shard, json_true()) != 0)
            status = tool_problem_set(problem, EO_ERR_NO_MEMORY, "%s: no memory", folder);
        if (status < 0)
            break;
    }
    uint32_t there = 0;
    char path[4608];
    if (status >= 0)
        json_object_foreach(files, name, file) {
            snprintf(path, sizeof(path), "%s/%s", folder, name);
            there += is_there(path, out);
        }
    out->file_count = (uint32_t)json_object_size(files);
    if (status >= 0 && there != 0 && there != out->file_count)
        status = REFUSE("%s: names %u file%s; of these only %u %s there%s", index_path, out->file_count,
                        tool_plural(out->file_count), there, there == 1 ? "is" : "are",
                        out->has_pointers ? "; get those that are pointers of Git LFS with git lfs pull" : "");
    out->index_only = there == 0;
    if (status >= 0 && there)
        json_object_foreach(files, name, file) {
            snprintf(path, sizeof(path), "%s/%s", folder, name);
            status = tool_safetensors_read(path, tensor_count_max, tensors, &out->bytes, problem);
            if (status < 0)
                break;
        }
    json_decref(files);
    return status;
}

/* Each tensor is where the index says, and none is there that it does not name. Buffers, which are not read, may differ. */
static eo_status compare_places(const char *index_path, const struct tool_model_config *config, const json_t *map,
                                json_t *tensors, struct tool_problem *problem)
{
    const char *name;
    json_t *value;
    json_object_foreach((json_t *)map, name, value) {
        const char *path = json_string_value(json_object_get(json_object_get(tensors, name), "path"));
        const char *slash = path ? strrchr(path, '/') : NULL;
        if (is_buffer(config, name))
            continue;
        if (!slash)
            return REFUSE("%s: tensor '%.100s' is in none of its files", index_path, name);
        if (strcmp(slash + 1, json_string_value(value)) != 0)
            return REFUSE("%s: tensor '%.100s' should be in %.100s, but is in %.100s", index_path, name,
                          json_string_value(value), slash + 1);
    }
    json_object_foreach(tensors, name, value)
    {
        if (!json_object_get(map, name) && !is_buffer(config, name))
            return REFUSE("%s: does not name tensor '%.100s' of %s", index_path, name,
                          json_string_value(json_object_get(value, "path")));
    }
    return EO_OK;
}

static eo_status read_index(json_t **out, const char *path, uint64_t tensor_count_max, struct tool_problem *problem)
{
    uint64_t bytes;
    int file;
    *out = NULL;
    EO_TRY(tool_open_input(&file, &bytes, "", path, problem));
    const uint64_t most = header_limit(tensor_count_max);
    char *text = bytes <= most ? malloc(bytes + 1) : NULL;
    eo_status status = EO_OK;
    if (bytes > most)
        status = REFUSE("%s: has %" PRIu64 " bytes, but an index of this model has at most %" PRIu64, path, bytes, most);
    else if (!text)
        status = tool_problem_set(problem, EO_ERR_NO_MEMORY, "%s: no memory", path);
    else
        status = tool_read_at(file, path, text, bytes, 0, problem);
    close(file);
    if (status >= 0)
        status = parse_bounded(out, path, true, text, bytes, tensor_count_max, problem);
    free(text);
    return status;
}

static eo_status check_index(const char *folder, const char *path, const struct tool_model_config *config,
                             uint64_t tensor_count_max, json_t *tensors, struct tool_safetensors_check *out,
                             struct tool_problem *problem)
{
    json_t *root;
    EO_TRY(read_index(&root, path, tensor_count_max, problem));
    uint64_t total = 0;
    const json_t *map = json_object_get(root, "weight_map");
    const json_t *size = json_object_get(json_object_get(root, "metadata"), "total_size");
    eo_status status = EO_OK;
    if (!json_is_object(map))
        status = REFUSE("%s: has no weight_map", path);
    if (status >= 0)
        status = name_surplus(read_shards(folder, path, map, tensor_count_max, tensors, out, problem), folder, config,
                              tensor_count_max, tensors, problem);
    if (status >= 0 && !out->index_only)
        status = compare_places(path, config, map, tensors, problem);
    if (status >= 0)
        status = compare(folder, config, out->index_only ? (json_t *)map : tensors, !out->index_only, out, problem);
    const uint64_t expected = tool_model_config_parameters(config) * config->stored_bytes;
    /* Where the files are there, they say it themselves: other programs leave an old number here. */
    if (status >= 0 && out->index_only && take_unsigned(size, &total)) {
        out->bytes = total;
        /* Buffers are counted in: fewer bytes than the parameters have is wrong, more is not without them. */
        if (expected && (total < expected || (total > expected && out->buffer_count == 0)))
            status = REFUSE("%s: metadata.total_size is %" PRIu64 ", but %" PRIu64 " parameters of %u bytes are %" PRIu64,
                            path, total, expected / config->stored_bytes, config->stored_bytes, expected);
    }
    json_decref(root);
    return status;
}

eo_status tool_safetensors_collect(const char *folder, const struct tool_model_config *config, json_t *tensors,
                                   struct tool_safetensors_check *out, struct tool_problem *problem)
{
    *out = (struct tool_safetensors_check){0};
    char path[4608];
    eo_status status = EO_OK;
    /* There may be buffers as well, two a block, and a tied head. */
    const uint64_t count = tool_model_config_tensor_count(config) + 2 * (uint64_t)config->layer_count + 1;
    /* As transformers does, which leaves the index of an earlier model where it saves one file. */
    snprintf(path, sizeof(path), "%s/model.safetensors", folder);
    if (is_there(path, out)) {
        out->found = true;
        out->file_count = 1;
        status = name_surplus(tool_safetensors_read(path, count, tensors, &out->bytes, problem), folder, config, count, tensors,
                              problem);
        return status < 0 ? status : compare(folder, config, tensors, true, out, problem);
    }
    const bool is_pointer = out->has_pointers;
    out->has_pointers = false; /* of its files */
    snprintf(path, sizeof(path), "%s/model.safetensors.index.json", folder);
    if (is_there(path, out)) {
        out->found = true;
        status = check_index(folder, path, config, count, tensors, out, problem);
    } else {
        out->has_pointers |= is_pointer;
    }
    return status;
}

eo_status tool_safetensors_check(const char *folder, const struct tool_model_config *config, struct tool_safetensors_check *out,
                                 struct tool_problem *problem)
{
    *out = (struct tool_safetensors_check){0};
    if (config->files_differ[0])
        return EO_OK;
    json_t *tensors = json_object();
    if (!tensors)
        return tool_problem_set(problem, EO_ERR_NO_MEMORY, "%s: no memory", folder);
    const eo_status status = tool_safetensors_collect(folder, config, tensors, out, problem);
    json_decref(tensors);
    return status;
}
