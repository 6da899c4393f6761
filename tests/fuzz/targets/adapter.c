/* SPDX-License-Identifier: MIT
 *
 * A folder of PEFT, of train --init-adapter: adapter_config.json and adapter_model.safetensors, a part each. The second's length is
 * made to fit. Held against the adapters of a GPT-2 of one layer; all that is bound is read.
 */
#include <string.h>

#include "tests/fuzz/fuzz.h"
#include "tools/interchange/adapters.h"
#include "tools/interchange/import.h"

const struct fuzz_limits fuzz_limits = {.megabytes = 128, .seconds = 5, .bytes = 4096};

enum { LENGTH_BYTES = 8, VALUES_MAX = 64 };
static const eo_lora lora = {.rank = 1, .alpha = 2, .targets = "attn.c_attn"};

static const char config_text[] =
    "{\"model_type\": \"gpt2\", \"n_layer\": 1, \"n_embd\": 2, \"n_head\": 1, \"vocab_size\": 3, \"n_positions\": 2}";

static const eo_model *model_of_target(void)
{
    static eo_transformer *transformer;
    const eo_transformer_config config = {.family = EO_FAMILY_GPT2, .layer_count = 1, .width = 2, .head_count = 1, .vocabulary = 3,
                                          .context = 2};
    if (!transformer)
        FUZZ_HOLDS(eo_transformer_create(&transformer, eo_transformer_params(.config = config, .lora = lora)) >= 0);
    return eo_transformer_model(transformer);
}

/* As it stands after the model's own weights were bound: without their files, which no adapter's need. */
static void open_base(struct tool_import *import, const eo_model *model)
{
    struct tool_problem problem = {""};
    *import = (struct tool_import){.path = "base", .is_folder = true, .tensor_count = eo_model_parameter_count(model)};
    import->model_config = malloc(sizeof(*import->model_config));
    import->tensors = calloc(import->tensor_count, sizeof(*import->tensors));
    FUZZ_HOLDS(import->model_config && import->tensors);
    FUZZ_HOLDS(tool_model_config_parse(import->model_config, "config.json", config_text, strlen(config_text), NULL, 0, &problem) >= 0);
    tool_model_config_transformer(import->model_config, &import->config);
    for (uint32_t k = 0; k < import->tensor_count; k++) {
        eo_parameter_info info;
        FUZZ_HOLDS(eo_model_parameter(model, k, &info) >= 0);
        const uint64_t rows = info.dim_count == 2 ? info.dims[0] : 1;
        import->tensors[k] = (struct tool_import_tensor){.name = info.name, .rows = rows, .columns = info.element_count / rows,
                                                         .is_absent = tool_is_adapter(info.name)};
    }
}

static void read_bound(const struct tool_import *import)
{
    float values[VALUES_MAX];
    struct tool_problem problem = {""};
    uint32_t adapters = 0;
    for (uint32_t k = 0; k < import->tensor_count; k++) {
        const struct tool_import_tensor *tensor = &import->tensors[k];
        const uint64_t count = tensor->rows * tensor->columns;
        FUZZ_HOLDS(!tensor->is_absent);
        if (!tool_is_adapter(tensor->name))
            continue;
        FUZZ_HOLDS(tensor->file < import->file_count && count <= VALUES_MAX);
        (void)fuzz_taken(tool_import_read(import, k, 0, count, values, &problem), problem.text);
        adapters++;
    }
    FUZZ_HOLDS(adapters == 2);
}

/* The tensors' head with the length that it has. */
static void write_tensors(const struct fuzz_part *tensors)
{
    uint8_t *file = (uint8_t *)fuzz_text(tensors->data, tensors->bytes);
    const uint8_t *end = tensors->bytes > LENGTH_BYTES ? memrchr(file + LENGTH_BYTES, '}', tensors->bytes - LENGTH_BYTES) : NULL;
    for (int i = 0; end && i < LENGTH_BYTES; i++)
        file[i] = (uint8_t)((uint64_t)(end + 1 - file - LENGTH_BYTES) >> (8 * i));
    (void)fuzz_file("adapter_model.safetensors", file, tensors->bytes);
    free(file);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct fuzz_part rest = {data, bytes}, config = {NULL, 0}, tensors = {NULL, 0};
    struct tool_problem problem = {""};
    struct tool_import import;
    const eo_model *model = model_of_target();
    (void)fuzz_next_part(&rest, &config);
    (void)fuzz_next_part(&rest, &tensors);
    (void)fuzz_file("adapter_config.json", config.data, config.bytes);
    write_tensors(&tensors);
    open_base(&import, model);
    if (fuzz_taken(tool_import_bind_adapters(&import, fuzz_folder(), model, &lora, &problem), problem.text))
        read_bound(&import);
    tool_import_fini(&import);
    return 0;
}
