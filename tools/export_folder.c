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

#include "tools/export.h"
#include "tools/safetensors_header.h"

#define NO_MEMORY() eo_problem_set(problem, EO_ERR_NO_MEMORY, "--export %s: no memory", export->path)

/* --- what lies where ---------------------------------------------------------------------------------------------- */

/* The config.json that will be written, read as anybody would: it must be the model's. */
static eo_status read_own_config(struct eo_export *export, const struct eo_export_model *model, eo_dtype dtype,
                                 struct eo_problem *problem)
{
    char why[200];
    json_t *json = eo_export_config(model, dtype, why, sizeof(why));
    if (!json)
        return eo_problem_set(problem, EO_ERR_UNSUPPORTED, "--export %s: %s", export->path, why);
    char *text = json_dumps(json, JSON_COMPACT);
    json_decref(json);
    export->config = malloc(sizeof(*export->config));
    eo_status status = text && export->config ? EO_OK : NO_MEMORY();
    if (status >= 0)
        status = eo_model_config_parse(export->config, "config.json", text, strlen(text), NULL, 0, problem);
    free(text);
    return status;
}

static json_t *shape_of(const struct eo_export_tensor *tensor)
{
    if (tensor->dim_count < 2)
        return json_pack("[I]", (json_int_t)tensor->element_count);
    return tensor->transposed ? json_pack("[I, I]", (json_int_t)tensor->columns, (json_int_t)tensor->rows)
                              : json_pack("[I, I]", (json_int_t)tensor->rows, (json_int_t)tensor->columns);
}

/* Every name and shape that a reader will look for, and no other. */
static eo_status compare_names(const struct eo_export *export, struct eo_problem *problem)
{
    json_t *wanted = eo_model_config_tensors(export->config);
    eo_status status = wanted ? EO_OK : NO_MEMORY();
    for (uint32_t k = 0; status >= 0 && k < export->tensor_count; k++) {
        const char *name = eo_safetensors_plain_name(export->config, export->tensors[k].name);
        json_t *shape = shape_of(&export->tensors[k]);
        if (!json_equal(json_object_get(wanted, name), shape))
            status = eo_problem_set(problem, EO_ERR_UNSUPPORTED, "--export %s: '%s' has no place in a model of family %s",
                                    export->path, name, eo_config_family_name(export->config->family));
        json_object_del(wanted, name);
        json_decref(shape);
    }
    if (status >= 0 && json_object_size(wanted))
        status = eo_problem_set(problem, EO_ERR_UNSUPPORTED, "--export %s: the model lacks '%s' of family %s",
                                export->path, json_object_iter_key(json_object_iter(wanted)),
                                eo_config_family_name(export->config->family));
    json_decref(wanted);
    return status;
}

static eo_status place_tensors(struct eo_export *export, uint64_t file_bytes, struct eo_problem *problem)
{
    export->files = calloc(export->tensor_count + 1, sizeof(*export->files));
    if (!export->files)
        return NO_MEMORY();
    export->file_count = 1;
    for (uint32_t k = 0; k < export->tensor_count; k++) {
        struct eo_export_tensor *tensor = &export->tensors[k];
        const uint64_t bytes = tensor->element_count * eo_element_bytes(export->element);
        struct eo_export_file *file = &export->files[export->file_count - 1];
        if (file->tensor_bytes && (bytes > file_bytes || file->tensor_bytes > file_bytes - bytes)) {
            export->file_count++;
            file++;
        }
        tensor->file = export->file_count - 1;
        tensor->at = file->tensor_bytes; /* of the tensors; the header comes before */
        file->tensor_bytes += bytes;
        export->bytes += bytes;
    }
    for (uint32_t f = 0; f < export->file_count; f++) {
        struct eo_export_file *file = &export->files[f];
        file->file = -1;
        if (export->file_count == 1)
            snprintf(file->name, sizeof(file->name), "model.safetensors");
        else
            snprintf(file->name, sizeof(file->name), "model-%05" PRIu32 "-of-%05" PRIu32 ".safetensors", f + 1,
                     export->file_count);
    }
    return EO_OK;
}

eo_status eo_export_describe_folder(struct eo_export *export, const struct eo_export_settings *settings,
                                    const struct eo_export_model *model, struct eo_problem *problem)
{
    TOOLS_TRY(read_own_config(export, model, settings->dtype, problem));
    for (uint32_t k = 0; k < export->tensor_count; k++) {
        eo_parameter_info info;
        struct eo_export_tensor *tensor = &export->tensors[k];
        TOOLS_TRY(eo_model_parameter(model->model, k, &info));
        const bool in_body = export->config->family == EO_CONFIG_GPT2 && strcmp(info.name, "lm_head.weight") != 0;
        snprintf(tensor->name, sizeof(tensor->name), "%s%s", in_body ? "transformer." : "", info.name);
        tensor->transposed = eo_safetensors_is_transposed(export->config, info.name);
    }
    TOOLS_TRY(compare_names(export, problem));
    return place_tensors(export, settings->file_bytes, problem);
}

/* --- what stands before the tensors ------------------------------------------------------------------------------- */

static json_t *header_of(const struct eo_export *export, uint32_t file)
{
    json_t *header = json_pack("{s:{s:s}}", "__metadata__", "format", "pt"); /* readers ask for it */
    for (uint32_t k = 0; header && k < export->tensor_count; k++) {
        const struct eo_export_tensor *tensor = &export->tensors[k];
        const uint64_t bytes = tensor->element_count * eo_element_bytes(export->element);
        if (tensor->file != file)
            continue;
        json_t *entry = json_pack("{s:s, s:o, s:[I, I]}", "dtype", eo_element_name(export->element), "shape",
                                  shape_of(tensor), "data_offsets", (json_int_t)tensor->at,
                                  (json_int_t)(tensor->at + bytes));
        if (!entry || json_object_set_new(header, tensor->name, entry) != 0) {
            json_decref(header);
            return NULL;
        }
    }
    return header;
}

/* Its length, and its text in a multiple of 8 bytes; from here on tensors know their place in the file. */
static eo_status write_header(struct eo_export *export, uint32_t f, const char *path, struct eo_problem *problem)
{
    json_t *header = header_of(export, f);
    char *text = header ? json_dumps(header, JSON_COMPACT) : NULL;
    json_decref(header);
    if (!text)
        return NO_MEMORY();
    const uint64_t length = strlen(text), padded = (length + 7) / 8 * 8;
    unsigned char first[8];
    for (int i = 0; i < 8; i++)
        first[i] = (unsigned char)(padded >> (8 * i));
    eo_status status = eo_write_at(export->files[f].file, path, first, 8, 0, problem);
    if (status >= 0)
        status = eo_write_at(export->files[f].file, path, text, length, 8, problem);
    if (status >= 0 && padded > length)
        status = eo_write_at(export->files[f].file, path, "       ", padded - length, 8 + length, problem);
    free(text);
    for (uint32_t k = 0; k < export->tensor_count; k++)
        if (export->tensors[k].file == f)
            export->tensors[k].at += 8 + padded;
    return status;
}

static eo_status write_json(const struct eo_export *export, const char *name, const json_t *json,
                            struct eo_problem *problem)
{
    char path[sizeof(export->partial) + 64];
    snprintf(path, sizeof(path), "%s/%s", export->partial, name);
    char *text = json ? json_dumps(json, JSON_INDENT(2) | JSON_REAL_PRECISION(9)) : NULL;
    if (!text)
        return NO_MEMORY();
    const int file = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    eo_status status = file < 0 ? eo_problem_set(problem, EO_ERR_IO, "%s: cannot be made: %s", path, strerror(errno))
                                : eo_write_at(file, path, text, strlen(text), 0, problem);
    if (status >= 0)
        status = eo_write_at(file, path, "\n", 1, strlen(text), problem);
    if (status >= 0 && fsync(file) != 0)
        status = eo_problem_set(problem, EO_ERR_IO, "%s: cannot be brought to the disk: %s", path, strerror(errno));
    free(text);
    if (file >= 0)
        close(file);
    return status;
}

static eo_status write_index(const struct eo_export *export, struct eo_problem *problem)
{
    json_t *map = json_object();
    for (uint32_t k = 0; map && k < export->tensor_count; k++)
        json_object_set_new(map, export->tensors[k].name,
                            json_string(export->files[export->tensors[k].file].name));
    json_t *index = map ? json_pack("{s:{s:I}, s:o}", "metadata", "total_size", (json_int_t)export->bytes, "weight_map",
                                    map) : NULL;
    const eo_status status = write_json(export, "model.safetensors.index.json", index, problem);
    json_decref(index);
    return status;
}

eo_status eo_export_write_headers(struct eo_export *export, const struct eo_export_model *model,
                                  struct eo_problem *problem)
{
    char path[sizeof(export->partial) + 64], why[200];
    for (uint32_t f = 0; f < export->file_count; f++) {
        snprintf(path, sizeof(path), "%s/%s", export->partial, export->files[f].name);
        export->files[f].file = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (export->files[f].file < 0)
            return eo_problem_set(problem, EO_ERR_IO, "%s: cannot be made: %s", path, strerror(errno));
        TOOLS_TRY(write_header(export, f, path, problem));
    }
    if (export->file_count > 1)
        TOOLS_TRY(write_index(export, problem));
    json_t *config = eo_export_config(model, export->element == EO_ELEMENT_BF16 ? EO_DTYPE_BF16 : EO_DTYPE_FP32, why,
                                      sizeof(why));
    const eo_status status = write_json(export, "config.json", config, problem);
    json_decref(config);
    return status;
}
