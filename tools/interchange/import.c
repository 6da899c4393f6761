/* SPDX-License-Identifier: MIT */
#include "tools/interchange/import.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tools/shared/open_file.h"
#include "tools/interchange/adapters.h"
#include "tools/interchange/foreign.h"
#include "tools/interchange/model_blocks.h"
#include "tools/interchange/safetensors_header.h"

#define REFUSE(...) tool_problem_set(problem, EO_ERR_INVALID, __VA_ARGS__)
#define NO_MEMORY() tool_problem_set(problem, EO_ERR_NO_MEMORY, "%s: no memory", import->path)

/* --- opening ------------------------------------------------------------------------------------------------------ */

static eo_status add_file(struct tool_import *import, const char *path, int file, uint32_t *index, struct tool_problem *problem)
{
    struct tool_import_file *files = realloc(import->files, (import->file_count + 1) * sizeof(*files));
    char *copy = strdup(path);
    if (files)
        import->files = files;
    if (!files || !copy) {
        free(copy);
        close(file);
        return NO_MEMORY();
    }
    *index = import->file_count;
    files[import->file_count++] = (struct tool_import_file){copy, file};
    return EO_OK;
}

static eo_status open_llmc(struct tool_import *import, struct tool_problem *problem)
{
    int file = -1;
    uint32_t index = 0;
    EO_TRY(tool_llmc_open(&import->llmc, &file, import->path, problem));
    import->config = import->llmc.config;
    return add_file(import, import->path, file, &index, problem);
}

static eo_status open_folder(struct tool_import *import, struct tool_problem *problem)
{
    struct tool_safetensors_check check;
    struct stat info;
    static const char *const model_pickles[] = {"pytorch_model.bin", "pytorch_model.bin.index.json", "consolidated.00.pth",
                                                NULL};
    char path[sizeof(import->path) + 32], why[200], hint[TOOL_FOREIGN_HINT_BYTES];
    snprintf(path, sizeof(path), "%s/config.json", import->path);
    if (stat(path, &info) != 0)
        return tool_problem_set(problem, EO_ERR_IO,
                                "%s: %s; a Hugging Face folder has a config.json beside its "
                                "model.safetensors; in a cache of the Hub it is one of those in snapshots",
                                path, strerror(errno));
    import->is_folder = true;
    import->model_config = malloc(sizeof(*import->model_config));
    import->headers = json_object();
    if (!import->model_config || !import->headers)
        return NO_MEMORY();
    EO_TRY(tool_model_config_load(import->model_config, path, NULL, 0, problem));
    if (!tool_model_config_runs(import->model_config, why, sizeof(why)))
        return tool_problem_set(problem, EO_ERR_UNSUPPORTED, "%s: this model of family %s cannot run: %s", path,
                                tool_config_family_name(import->model_config->family), why);
    EO_TRY(tool_model_config_transformer_exact(import->model_config, &import->config, problem));
    EO_TRY(tool_safetensors_collect(import->path, import->model_config, import->headers, &check, problem));
    if (check.has_pointers) /* the others are no help */
        return tool_problem_set(problem, EO_ERR_IO,
                                "%s: has pointers of Git LFS, and not the weights; get them with git lfs pull", import->path);
    if (!check.found)
        return tool_problem_set(problem, EO_ERR_IO,
                                "%s: has neither model.safetensors nor model.safetensors.index.json; no other format of "
                                "weights is read%s",
                                import->path, tool_foreign_folder_hint(import->path, model_pickles, hint));
    if (check.index_only)
        return tool_problem_set(problem, EO_ERR_IO, "%s: all %u files of its index are missing", import->path,
                                check.file_count);
    return EO_OK;
}

eo_status tool_import_open(struct tool_import *import, const char *path, struct tool_problem *problem)
{
    struct stat info;
    *import = (struct tool_import){.is_folder = false};
    if (strlen(path) >= sizeof(import->path))
        return REFUSE("a path of %zu bytes is too long", strlen(path));
    snprintf(import->path, sizeof(import->path), "%s", path);
    const bool is_there = stat(path, &info) == 0, is_folder = is_there && S_ISDIR(info.st_mode);
    const char *end = strrchr(path, '.');
    if (!is_there && tool_model_path_hint(path)[0])
        return tool_problem_set(problem, EO_ERR_IO, "%s: %s%s", path, strerror(errno), tool_model_path_hint(path));
    if (!is_folder && end && (strcmp(end, ".safetensors") == 0 || strcmp(end, ".json") == 0))
        return REFUSE("%s: this is one file of a model; name its folder, with config.json and the weights", path);
    const eo_status status = is_folder ? open_folder(import, problem) : open_llmc(import, problem);
    if (status < 0)
        tool_import_fini(import);
    return status;
}

void tool_import_fini(struct tool_import *import)
{
    for (uint32_t i = 0; i < import->file_count; i++) {
        close(import->files[i].file);
        free(import->files[i].path);
    }
    free(import->files);
    free(import->tensors);
    free(import->model_config);
    json_decref(import->headers);
    *import = (struct tool_import){.is_folder = false};
}

/* --- against a model ---------------------------------------------------------------------------------------------- */

static uint32_t head_size(const eo_transformer_config *c)
{
    return c->head_size ? c->head_size : c->head_count ? c->width / c->head_count : 0;
}

/* Within what is lost in a decimal number of a config.json. */
static bool is_near(float a, float b)
{
    const float difference = a > b ? a - b : b - a;
    return difference <= 1e-6F * (a > b ? a : b);
}

/* The first size in which two models of a family differ. */
struct unlike {
    const char *what; /* NULL: they are alike */
    uint32_t a, b;
};

static struct unlike find_unlike(const eo_transformer_config *a, const eo_transformer_config *b)
{
    const struct unlike sizes[] = {
        {"layers", a->layer_count, b->layer_count},
        {"width", a->width, b->width},
        {"heads", a->head_count, b->head_count},
        {"key/value heads", a->kv_head_count, b->kv_head_count},
        {"head size", head_size(a), head_size(b)},
        {"vocabulary", a->vocabulary, b->vocabulary},
        {"context", a->context, b->context},
        {"MLP width", a->mlp_width, b->mlp_width},
        {"tied head", a->tied_head, b->tied_head},
        {"biases of q, k and v", a->qkv_bias, b->qkv_bias},
        {"norms of q and k", a->qk_norm, b->qk_norm},
        {"interval of blocks without rotary positions", a->unrotated_interval, b->unrotated_interval},
    };
    size_t i = 0;
    while (i < sizeof(sizes) / sizeof(sizes[0]) && sizes[i].a == sizes[i].b)
        i++;
    return i < sizeof(sizes) / sizeof(sizes[0]) ? sizes[i] : (struct unlike){NULL, 0, 0};
}

static bool has_same_scaling(const eo_transformer_config *one, const eo_transformer_config *other)
{
    const eo_rope_scaling *a = &one->rope_scaling, *b = &other->rope_scaling;
    return a->kind == b->kind && is_near(a->factor, b->factor) && is_near(a->low_freq_factor, b->low_freq_factor) &&
           is_near(a->high_freq_factor, b->high_freq_factor) && a->original_context == b->original_context;
}

/* The preset that computes the same, or the words that make one. */
static const char *matching_model(const eo_transformer_config *config)
{
    eo_transformer_config preset;
    for (uint32_t i = 0; eo_transformer_preset_name(i); i++)
        if (eo_transformer_preset(eo_transformer_preset_name(i), &preset) >= 0 && preset.family == config->family &&
            !find_unlike(&preset, config).what && is_near(preset.norm_eps, config->norm_eps) &&
            (config->family == EO_FAMILY_GPT2 || is_near(preset.rope_theta, config->rope_theta)) &&
            has_same_scaling(&preset, config))
            return eo_transformer_preset_name(i);
    return "init"; /* the shape of the file */
}

eo_status tool_import_check(const struct tool_import *import, const char *model_name, const eo_transformer_config *config,
                            struct tool_problem *problem)
{
    const eo_transformer_config *file = &import->config, *model = config;
    if (file->family != model->family)
        return REFUSE("--init %s: has weights of a %s, but --model %s is another family%s; use --model init", import->path,
                      file->family == EO_FAMILY_GPT2 ? "GPT-2" : "Llama", model_name,
                      import->is_folder ? "" : " (llm.c's are GPT-2 checkpoints)");
    const struct unlike unlike = find_unlike(file, model);
    if (unlike.what)
        return REFUSE("--init %s: has another shape: %s %u, but --model %s has %u; use --model %s", import->path, unlike.what,
                      unlike.a, model_name, unlike.b, matching_model(file));
    if (!import->is_folder) /* these files do not say the rest */
        return EO_OK;
    const float model_eps = model->norm_eps == 0 ? 1e-5F : model->norm_eps; /* of LAYERSxWIDTHxHEADS: layers.h's default */
    const bool norms = is_near(file->norm_eps, model_eps);
    if (!norms || (file->family == EO_FAMILY_LLAMA && !is_near(file->rope_theta, model->rope_theta)))
        return REFUSE("--init %s: %s is %g, but --model %s has %g; use --model init", import->path,
                      norms ? "rope_theta" : "the norms' epsilon", (double)(norms ? file->rope_theta : file->norm_eps),
                      model_name, (double)(norms ? model->rope_theta : model_eps));
    if (!has_same_scaling(file, model))
        return REFUSE("--init %s: scales rotary positions differently from --model %s (rope_scaling); use --model init",
                      import->path, model_name);
    return EO_OK;
}

static eo_status find_file(struct tool_import *import, const char *path, uint32_t *index, struct tool_problem *problem)
{
    for (*index = 0; *index < import->file_count; (*index)++)
        if (strcmp(import->files[*index].path, path) == 0)
            return EO_OK;
    int file;
    EO_TRY(tool_open_input(&file, NULL, "", path, problem)); /* it was one when its header was read */
    return add_file(import, path, file, index, problem);
}

/* Names and shapes were held against the config: what is left is how it lies. */
static eo_status bind_header(struct tool_import *import, const json_t *entry, const eo_parameter_info *info,
                             struct tool_import_tensor *tensor, struct tool_problem *problem)
{
    const char *dtype = json_string_value(json_object_get(entry, "dtype"));
    const char *path = json_string_value(json_object_get(entry, "path"));
    const json_t *shape = json_object_get(entry, "shape");
    if (!dtype || !path)
        return REFUSE("--init %s: tensor '%s' is missing", import->path, info->name);
    if (!tool_element_find(dtype, &tensor->element))
        return REFUSE("%s: tensor '%s' has dtype %s; readable are F32, BF16 and F16", path, info->name, dtype);
    tensor->at = (uint64_t)json_integer_value(json_object_get(entry, "at"));
    tensor->transposed = !tool_is_adapter(info->name) && tool_safetensors_is_transposed(import->model_config, info->name);
    const uint64_t bytes = (uint64_t)json_integer_value(json_object_get(entry, "bytes"));
    const uint64_t first = (uint64_t)json_integer_value(json_array_get(shape, 0));
    const uint64_t wanted = info->dim_count == 2 && tensor->transposed ? info->dims[1] : info->dims[0];
    const uint64_t row_bytes = tensor->columns * tool_element_bytes(tensor->element);
    char fused[TOOL_FUSED_NAME_BYTES];
    uint64_t before;
    if (import->model_config && tool_fused_tensor(import->model_config, info->name, fused, &before) && info->dim_count == 2 &&
        bytes == first * row_bytes && before + tensor->rows <= first) {
        tensor->at += before * row_bytes;
    } else if (bytes != info->element_count * tool_element_bytes(tensor->element) ||
               json_array_size(shape) != info->dim_count || first != wanted)
        return REFUSE("%s: tensor '%s' has %llu bytes, but the model's has %llu elements in another shape", path,
                      info->name, (unsigned long long)bytes, (unsigned long long)info->element_count);
    return find_file(import, path, &tensor->file, problem);
}

static const char *table_name(const struct tool_import *import)
{
    return import->config.family == EO_FAMILY_GPT2 ? "wte.weight" : "model.embed_tokens.weight";
}

/* NULL: the files do not have it. */
static const json_t *find_header(const struct tool_import *import, const char *name)
{
    char prefixed[TOOL_FUSED_NAME_BYTES + 16], fused[TOOL_FUSED_NAME_BYTES];
    uint64_t before;
    if (tool_fused_tensor(import->model_config, name, fused, &before))
        name = fused;
    const json_t *entry = json_object_get(import->headers, name);
    if (entry)
        return entry;
    /* Names come with a prefix and without; of a tied pair either name will do. */
    snprintf(prefixed, sizeof(prefixed), "transformer.%s", name);
    if (import->config.family == EO_FAMILY_GPT2)
        entry = json_object_get(import->headers, prefixed);
    else if (strncmp(name, "model.", 6) == 0)
        entry = json_object_get(import->headers, name + 6);
    return entry || !import->config.tied_head || strcmp(name, table_name(import)) != 0 ? entry
                                                                                       : find_header(import, "lm_head.weight");
}

/* Whether two tensors have the same bytes. */
static eo_status compare_tensors(struct tool_import *import, const json_t *a, const json_t *b, bool *same,
                                 struct tool_problem *problem)
{
    enum { PIECE = 1 << 20 };
    const json_t *entries[] = {a, b};
    int files[2];
    *same = json_equal(json_object_get(a, "shape"), json_object_get(b, "shape")) &&
            json_equal(json_object_get(a, "dtype"), json_object_get(b, "dtype"));
    for (int i = 0; i < 2; i++) {
        uint32_t index;
        EO_TRY(find_file(import, json_string_value(json_object_get(entries[i], "path")), &index, problem));
        files[i] = import->files[index].file;
    }
    char *pieces = malloc((size_t)2 * PIECE);
    if (!pieces)
        return NO_MEMORY();
    const uint64_t bytes = (uint64_t)json_integer_value(json_object_get(a, "bytes"));
    eo_status status = EO_OK;
    for (uint64_t done = 0; *same && status >= 0 && done < bytes; done += PIECE) {
        const uint64_t count = bytes - done < PIECE ? bytes - done : PIECE;
        for (int i = 0; i < 2 && status >= 0; i++)
            status = tool_read_at(files[i], json_string_value(json_object_get(entries[i], "path")), pieces + (size_t)i * PIECE,
                                  count, (uint64_t)json_integer_value(json_object_get(entries[i], "at")) + done, problem);
        *same = status >= 0 && memcmp(pieces, pieces + PIECE, count) == 0;
    }
    free(pieces);
    return status;
}

/* Files of a tied head may have it once more. With other values it is a head of its own, which a tied model would lose. */
static eo_status check_tied_head(struct tool_import *import, struct tool_problem *problem)
{
    const json_t *head = import->config.tied_head ? find_header(import, "lm_head.weight") : NULL;
    const json_t *words = find_header(import, table_name(import));
    bool same = true;
    if (head && words && head != words)
        EO_TRY(compare_tensors(import, head, words, &same, problem));
    return same ? EO_OK
                : REFUSE(
                      "--init %s: config.json ties the head to the embedding, but the files have an lm_head.weight with other "
                      "values; set tie_word_embeddings to false, or remove that tensor",
                      import->path);
}

eo_status tool_import_bind(struct tool_import *import, const eo_model *model, struct tool_problem *problem)
{
    if (import->is_folder)
        EO_TRY(check_tied_head(import, problem));
    const uint32_t count = eo_model_parameter_count(model);
    import->tensors = calloc(count ? count : 1, sizeof(*import->tensors));
    if (!import->tensors)
        return NO_MEMORY();
    import->tensor_count = count;
    for (uint32_t k = 0; k < count; k++) {
        eo_parameter_info info;
        struct tool_import_tensor *tensor = &import->tensors[k];
        EO_TRY(eo_model_parameter(model, k, &info));
        *tensor = (struct tool_import_tensor){
            .name = info.name, .element = import->llmc.element, .rows = info.dim_count == 2 ? info.dims[0] : 1};
        tensor->columns = info.element_count / tensor->rows;
        tensor->is_absent = tool_is_adapter(info.name);
        if (tensor->is_absent)
            continue;
        if (import->is_folder)
            EO_TRY(bind_header(import, find_header(import, info.name), &info, tensor, problem));
        else if (!tool_llmc_place(&import->llmc, info.name, &tensor->at))
            return REFUSE("--init %s: has no '%s'", import->path, info.name);
    }
    json_decref(import->headers);
    import->headers = NULL;
    return EO_OK;
}

/* --- adapters ----------------------------------------------------------------------------------------------------- */

static bool says_nothing(const json_t *value)
{
    return !value || json_is_null(value) || json_is_false(value) || (json_is_object(value) && json_object_size(value) == 0) ||
           (json_is_array(value) && json_array_size(value) == 0) || (json_is_string(value) && json_string_length(value) == 0);
}

/* The first key that makes another computation of the same tensors, or more tensors; NULL: none. */
static const char *find_unknown(const json_t *config)
{
    static const char *const keys[] = {
        "use_rslora", "use_dora", "use_qalora", "use_bdlora", "lora_bias", "rank_pattern", "alpha_pattern", "modules_to_save",
        "layers_to_transform", "exclude_modules", "layer_replication", "target_parameters", "trainable_token_indices",
        "alora_invocation_tokens", "arrow_config", "kasa_config", "velora_config", "monteclora_config"};
    static const char *const of_another_base[] = {"pissa", "olora", "loftq", "corda", "lora_ga"};
    const char *bias = json_string_value(json_object_get(config, "bias"));
    const char *init = json_string_value(json_object_get(config, "init_lora_weights"));
    for (size_t k = 0; k < sizeof(keys) / sizeof(keys[0]); k++)
        if (!says_nothing(json_object_get(config, keys[k])))
            return keys[k];
    for (size_t k = 0; init && k < sizeof(of_another_base) / sizeof(of_another_base[0]); k++)
        if (strncmp(init, of_another_base[k], strlen(of_another_base[k])) == 0)
            return "init_lora_weights"; /* such a start changes the base, too */
    return bias && strcmp(bias, "none") != 0 ? "bias" : NULL;
}

/* A layer of Phi-3's files that is several here, with one adapter for all of them; NULL: there is none. */
static const char *find_joined(const struct tool_import *import, const json_t *config)
{
    size_t i;
    json_t *target;
    if (!import->model_config || import->model_config->family != TOOL_CONFIG_PHI3)
        return NULL;
    json_array_foreach(json_object_get(config, "target_modules"), i, target)
    {
        const char *name = json_string_value(target);
        if (name && (strcmp(name, "qkv_proj") == 0 || strcmp(name, "gate_up_proj") == 0))
            return name;
    }
    return NULL;
}

/* What is trained goes on as it was trained: another scale, or a kind of adapter that is not computed here, is refused. */
static eo_status read_adapter_config(struct tool_import *import, const char *folder, const eo_lora *lora,
                                     struct tool_problem *problem)
{
    char path[4200];
    const char *type = NULL;
    json_int_t rank = 0;
    double alpha = 0;
    snprintf(path, sizeof(path), "%s/adapter_config.json", folder);
    json_t *config;
    EO_TRY(tool_open_json(&config, 1 << 20, "--init-adapter", path, problem));
    eo_status status = EO_OK;
    const char *unknown = find_unknown(config), *joined = find_joined(import, config);
    if (json_unpack(config, "{s:s, s:I, s:F}", "peft_type", &type, "r", &rank, "lora_alpha", &alpha) != 0)
        status = REFUSE("--init-adapter %s: is no configuration of a LoRA by PEFT", path);
    else if (strcmp(type, "LORA") != 0)
        status = REFUSE("--init-adapter %s: adapters of type %.40s are not computed here; give a LoRA", path, type);
    else if (unknown)
        status = REFUSE("--init-adapter %s: an adapter with %s is not computed here; give one of r, lora_alpha and target_modules alone",
                        path, unknown);
    else if (joined)
        status = REFUSE(
            "--init-adapter %s: has one adapter for all of %s, which is several layers here, each with its own; go on from "
            "a checkpoint, with --resume",
            path, joined);
    else if (rank != lora->rank || !is_near((float)alpha, lora->alpha))
        status = REFUSE("--init-adapter %s: r is %lld and lora_alpha %g, but --lora has r=%u,alpha=%g; give the same", path,
                        (long long)rank, alpha, lora->rank, (double)lora->alpha);
    import->adapter_dropout = json_number_value(json_object_get(config, "lora_dropout"));
    json_decref(config);
    return status;
}

static eo_status bind_adapters(struct tool_import *import, const char *folder, json_t *tensors, const eo_model *model,
                               struct tool_problem *problem)
{
    for (uint32_t k = 0; k < import->tensor_count; k++) {
        struct tool_import_tensor *tensor = &import->tensors[k];
        eo_parameter_info info;
        char name[EO_NAME_MAX + 48];
        EO_TRY(eo_model_parameter(model, k, &info));
        if (!tensor->is_absent)
            continue;
        snprintf(name, sizeof(name), "base_model.model.%s%s", import->config.family == EO_FAMILY_GPT2 ? "transformer." : "", info.name);
        const json_t *entry = json_object_get(tensors, name);
        if (!entry)
            return REFUSE("--init-adapter %s: has no '%s'; give --lora the targets of its adapter_config.json", folder, name);
        EO_TRY(bind_header(import, entry, &info, tensor, problem));
        tensor->is_absent = false;
        json_object_del(tensors, name);
    }
    const char *surplus = json_object_iter_key(json_object_iter(tensors));
    return !surplus ? EO_OK
           : tool_is_adapter(surplus)
               ? REFUSE("--init-adapter %s: has '%.100s', but --lora does not; give it the targets of its adapter_config.json",
                        folder, surplus)
               : REFUSE(
                     "--init-adapter %s: has '%.100s', a layer trained whole and not computed here; give an adapter without it",
                     folder, surplus);
}

eo_status tool_import_bind_adapters(struct tool_import *import, const char *folder, const eo_model *model, const eo_lora *lora,
                                    struct tool_problem *problem)
{
    static const char *const adapter_pickles[] = {"adapter_model.bin", NULL};
    char path[4200], hint[TOOL_FOREIGN_HINT_BYTES];
    uint64_t bytes;
    struct stat info;
    json_t *tensors = json_object();
    if (!tensors)
        return NO_MEMORY();
    snprintf(path, sizeof(path), "%s/adapter_model.safetensors", folder);
    eo_status status = read_adapter_config(import, folder, lora, problem);
    if (status >= 0 && stat(path, &info) != 0)
        status = tool_problem_set(problem, EO_ERR_IO, "%s: %s%s", path, strerror(errno),
                                  tool_foreign_folder_hint(folder, adapter_pickles, hint));
    if (status >= 0)
        status = tool_safetensors_read(path, import->tensor_count, tensors, &bytes, problem);
    if (status >= 0)
        status = bind_adapters(import, folder, tensors, model, problem);
    json_decref(tensors);
    return status;
}

/* --- loading ------------------------------------------------------------------------------------------------------ */

struct filling {
    const struct tool_import *import;
    uint32_t parameter;
    eo_status status; /* of the read, whose problem is set */
    struct tool_problem *problem;
};

static eo_status fill(void *user, uint64_t offset, uint64_t count, float *values)
{
    struct filling *filling = user;
    filling->status = tool_import_read(filling->import, filling->parameter, offset, count, values, filling->problem);
    return filling->status;
}

eo_status tool_import_load(const struct tool_import *import, eo_runtime *runtime, struct tool_problem *problem)
{
    for (uint32_t k = 0; k < import->tensor_count; k++) {
        if (import->tensors[k].is_absent)
            continue;
        struct filling filling = {.import = import, .parameter = k, .status = EO_OK, .problem = problem};
        const eo_status status = eo_weights_fill(runtime, k, fill, &filling);
        EO_TRY(filling.status);
        if (status < 0)
            return tool_problem_set(problem, status, "%s", eo_runtime_error(runtime));
    }
    return EO_OK;
}
