/* SPDX-License-Identifier: MIT
 *
 * A Hugging Face folder: which tensor lies where, the headers of its files, the index, config.json. Tensors stand in the
 * model's order, one after the other; a new file begins where the next one would make it too large.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tools/interchange/adapters.h"
#include "tools/interchange/model_blocks.h"
#include "tools/interchange/safetensors_header.h"
#include "tools/shared/open_file.h"

#define NO_MEMORY() tool_problem_set(problem, EO_ERR_NO_MEMORY, "--export %s: no memory", export->path)

/* --- what lies where ---------------------------------------------------------------------------------------------- */

/* The config.json that will be written, read as anybody would: it must be the model's. */
static eo_status read_own_config(struct tool_export *export, const struct tool_export_model *model, eo_dtype dtype,
                                 struct tool_problem *problem)
{
    EO_TRY(tool_export_config_check(model, export->path, problem));
    struct tool_export_model named = *model;
    named.tokenizer = NULL; /* its ids play no part here, and it takes long to read */
    char *text = tool_json_text(0, tool_export_config, &(struct tool_export_config){&named, dtype});
    export->config = malloc(sizeof(*export->config));
    eo_status status = text && export->config ? EO_OK : NO_MEMORY();
    if (status >= 0)
        status = tool_model_config_parse(export->config, "config.json", text, strlen(text), NULL, 0, problem);
    free(text);
    return status;
}

/* Rows of the file's tensor that parameter k begins. */
static uint64_t rows_of(const struct tool_export *export, uint32_t k)
{
    uint64_t rows = export->tensors[k].rows + export->tensors[k].zero_rows;
    while (++k < export->tensor_count && export->tensors[k].goes_on)
        rows += export->tensors[k].rows + export->tensors[k].zero_rows;
    return rows;
}

static json_t *shape_of(const struct tool_export *export, uint32_t k)
{
    const struct tool_export_tensor *tensor = &export->tensors[k];
    if (tensor->dim_count < 2)
        return json_pack("[I]", (json_int_t)tensor->element_count);
    return tensor->transposed ? json_pack("[I, I]", (json_int_t)tensor->columns, (json_int_t)tensor->rows)
                              : json_pack("[I, I]", (json_int_t)rows_of(export, k), (json_int_t)tensor->columns);
}

/* Every name and shape that a reader will look for, and no other. */
static eo_status compare_names(const struct tool_export *export, struct tool_problem *problem)
{
    json_t *wanted = tool_model_config_tensors(export->config);
    eo_status status = wanted ? EO_OK : NO_MEMORY();
    for (uint32_t k = 0; status >= 0 && k < export->tensor_count; k++) {
        const char *name = tool_safetensors_plain_name(export->config, export->tensors[k].name);
        if (export->tensors[k].goes_on)
            continue;
        json_t *shape = shape_of(export, k);
        if (!json_equal(json_object_get(wanted, name), shape))
            status = tool_problem_set(problem, EO_ERR_UNSUPPORTED, "--export %s: '%s' has no place in a model of family %s",
                                      export->path, name, tool_config_family_name(export->config->family));
        json_object_del(wanted, name);
        json_decref(shape);
    }
    if (status >= 0 && json_object_size(wanted))
        status =
            tool_problem_set(problem, EO_ERR_UNSUPPORTED, "--export %s: the model lacks '%s' of family %s", export->path,
                             json_object_iter_key(json_object_iter(wanted)), tool_config_family_name(export->config->family));
    json_decref(wanted);
    return status;
}

static eo_status place_tensors(struct tool_export *export, uint64_t file_bytes, struct tool_problem *problem)
{
    export->files = calloc(export->tensor_count + 1, sizeof(*export->files));
    if (!export->files)
        return NO_MEMORY();
    export->file_count = 1;
    for (uint32_t k = 0; k < export->tensor_count; k++) {
        struct tool_export_tensor *tensor = &export->tensors[k];
        const uint64_t bytes =
            (tensor->element_count + tensor->zero_rows * tensor->columns) * tool_element_bytes(export->element);
        const uint64_t whole = rows_of(export, k) * tensor->columns * tool_element_bytes(export->element);
        struct tool_export_file *file = &export->files[export->file_count - 1];
        if (file->tensor_bytes && !tensor->goes_on && (whole > file_bytes || file->tensor_bytes > file_bytes - whole)) {
            export->file_count++;
            file++;
        }
        tensor->file = export->file_count - 1;
        tensor->at = file->tensor_bytes; /* of the tensors; the header comes before */
        file->tensor_bytes += bytes;
        export->bytes += bytes;
    }
    for (uint32_t f = 0; f < export->file_count; f++) {
        struct tool_export_file *file = &export->files[f];
        file->file = -1;
        if (export->file_count == 1)
            snprintf(file->name, sizeof(file->name), "%smodel.safetensors", export->has_adapters ? "adapter_" : "");
        else
            snprintf(file->name, sizeof(file->name), "model-%05" PRIu32 "-of-%05" PRIu32 ".safetensors", f + 1,
                     export->file_count);
    }
    return EO_OK;
}

eo_status tool_export_describe_folder(struct tool_export *export, const struct tool_export_settings *settings,
                                      const struct tool_export_model *model, struct tool_problem *problem)
{
    EO_TRY(read_own_config(export, model, settings->dtype, problem));
    if (export->has_adapters) { /* one file: no other is read */
        EO_TRY(tool_export_describe_adapters(export, model, problem));
        return place_tensors(export, UINT64_MAX, problem);
    }
    /* The published GPT-2 is the body alone, without a prefix; the head's place is beside the body. */
    const bool has_head = export->config->family == TOOL_CONFIG_GPT2 && !model->config.tied_head;
    for (uint32_t k = 0; k < export->tensor_count; k++) {
        eo_parameter_info info;
        struct tool_export_tensor *tensor = &export->tensors[k];
        EO_TRY(eo_model_parameter(model->model, k, &info));
        const bool has_prefix = has_head && strcmp(info.name, "lm_head.weight") != 0;
        snprintf(tensor->name, sizeof(tensor->name), "%s%s", has_prefix ? "transformer." : "", info.name);
        tensor->transposed = tool_safetensors_is_transposed(export->config, info.name);
        char fused[TOOL_FUSED_NAME_BYTES];
        uint64_t before;
        if (tool_fused_tensor(export->config, info.name, fused, &before)) {
            snprintf(tensor->name, sizeof(tensor->name), "%s", fused);
            tensor->goes_on = before > 0;
        }
    }
    EO_TRY(compare_names(export, problem));
    return place_tensors(export, settings->file_bytes, problem);
}

/* --- what stands before the tensors ------------------------------------------------------------------------------- */

struct header {
    const struct tool_export *export;
    uint32_t file;
};

static void write_tensors(struct eo_json *json, const void *user)
{
    const struct header *header = user;
    const struct tool_export *export = header->export;
    eo_json_write(json, "{'__metadata__': {'format': 'pt'}"); /* readers ask for it */
    for (uint32_t k = 0; k < export->tensor_count; k++) {
        const struct tool_export_tensor *tensor = &export->tensors[k];
        const uint64_t rows = rows_of(export, k), bytes = rows * tensor->columns * tool_element_bytes(export->element);
        if (tensor->file != header->file || tensor->goes_on)
            continue;
        eo_json_write(json, "%s: {'dtype': %s, 'shape': [", tensor->name, tool_element_name(export->element));
        if (tensor->dim_count < 2)
            eo_json_write(json, "%" PRIu64, tensor->element_count);
        else
            eo_json_write(json, "%" PRIu64 ", %" PRIu64, tensor->transposed ? tensor->columns : rows,
                          tensor->transposed ? rows : tensor->columns);
        eo_json_write(json, "], 'data_offsets': [%" PRIu64 ", %" PRIu64 "]}", tensor->at, tensor->at + bytes);
    }
    eo_json_write(json, "}");
}

/* Its length, and its text in a multiple of 8 bytes; from here on tensors know their place in the file. */
static eo_status write_header(struct tool_export *export, uint32_t f, const char *path, struct tool_problem *problem)
{
    char *text = tool_json_text(0, write_tensors, &(struct header){export, f});
    if (!text)
        return NO_MEMORY();
    const uint64_t length = strlen(text), padded = (length + 7) / 8 * 8;
    unsigned char first[8];
    for (int i = 0; i < 8; i++)
        first[i] = (unsigned char)(padded >> (8 * i));
    eo_status status = tool_write_at(export->files[f].file, path, first, 8, 0, problem);
    if (status >= 0)
        status = tool_write_at(export->files[f].file, path, text, length, 8, problem);
    if (status >= 0 && padded > length)
        status = tool_write_at(export->files[f].file, path, "       ", padded - length, 8 + length, problem);
    free(text);
    for (uint32_t k = 0; k < export->tensor_count; k++)
        if (export->tensors[k].file == f)
            export->tensors[k].at += 8 + padded;
    return status;
}

static eo_status write_json(const struct tool_export *export, const char *name,
                            void (*write)(struct eo_json *json, const void *user), const void *user,
                            struct tool_problem *problem)
{
    char path[sizeof(export->partial) + 64];
    snprintf(path, sizeof(path), "%s/%s", export->partial, name);
    char *text = tool_json_text(2, write, user);
    if (!text)
        return NO_MEMORY();
    const int file = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    eo_status status = file < 0 ? tool_problem_set(problem, EO_ERR_IO, "%s: cannot be created: %s", path, strerror(errno))
                                : tool_write_at(file, path, text, strlen(text), 0, problem);
    if (status >= 0)
        status = tool_write_at(file, path, "\n", 1, strlen(text), problem);
    if (status >= 0 && !tool_sync(file))
        status = tool_problem_set(problem, EO_ERR_IO, "%s: cannot be synced to disk: %s", path, strerror(errno));
    free(text);
    if (file >= 0)
        close(file);
    return status;
}

static void write_index(struct eo_json *json, const void *user)
{
    const struct tool_export *export = user;
    eo_json_write(json, "{'metadata': {'total_size': %" PRIu64 "}, 'weight_map': {", export->bytes);
    for (uint32_t k = 0; k < export->tensor_count; k++)
        if (!export->tensors[k].goes_on)
            eo_json_write(json, "%s: %s", export->tensors[k].name, export->files[export->tensors[k].file].name);
    eo_json_write(json, "}}");
}

eo_status tool_export_write_headers(struct tool_export *export, const struct tool_export_model *model,
                                    struct tool_problem *problem)
{
    char path[sizeof(export->partial) + 64];
    for (uint32_t f = 0; f < export->file_count; f++) {
        snprintf(path, sizeof(path), "%s/%s", export->partial, export->files[f].name);
        export->files[f].file = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (export->files[f].file < 0)
            return tool_problem_set(problem, EO_ERR_IO, "%s: cannot be created: %s", path, strerror(errno));
        if (f == 0)
            EO_TRY(tool_export_lock_file(export, problem));
        EO_TRY(write_header(export, f, path, problem));
    }
    if (export->file_count > 1)
        EO_TRY(write_json(export, "model.safetensors.index.json", write_index, export, problem));
    if (export->has_adapters)
        return write_json(export, "adapter_config.json", tool_export_adapter_config,
                          &(struct tool_export_adapters){export, model}, problem);
    const eo_dtype dtype = export->element == TOOL_ELEMENT_BF16 ? EO_DTYPE_BF16 : EO_DTYPE_FP32;
    EO_TRY(write_json(export, "config.json", tool_export_config, &(struct tool_export_config){model, dtype}, problem));
    return tool_export_copy_companions(export, model, problem);
}
