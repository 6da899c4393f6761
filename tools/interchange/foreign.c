/* SPDX-License-Identifier: MIT */
#include "tools/interchange/foreign.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tools/shared/open_file.h"

static const char git_lfs[] = "version https://git-lfs.github.com/spec/";

const char *tool_foreign_file_hint(const void *first)
{
    static const char pickle[] = "; this is a file of PyTorch or NumPy: save the model as safetensors, as save_pretrained does";
    const unsigned char *bytes = first;
    return memcmp(bytes, "PK\3\4", 4) == 0 || (bytes[0] == 0x80 && bytes[1] <= 5 && bytes[1] >= 2) ? pickle
           : memcmp(bytes, git_lfs, 8) == 0 ? "; this is a pointer of Git LFS, not the file: get it with git lfs pull"
           : memcmp(bytes, "GGUF", 4) == 0  ? "; this is GGUF: take the safetensors that it was made from"
           : bytes[0] == '<'                ? "; this is a page of the web, not the file: download it again"
                                            : "";
}

bool tool_foreign_is_pointer(const char *path)
{
    char first[sizeof(git_lfs) - 1];
    struct tool_problem problem;
    int file;
    if (tool_open_input(&file, NULL, "", path, &problem) < 0)
        return false;
    const bool is_pointer = pread(file, first, sizeof(first), 0) == sizeof(first) && memcmp(first, git_lfs, sizeof(first)) == 0;
    close(file);
    return is_pointer;
}

const char *tool_foreign_folder_hint(const char *folder, const char *const *pickles, char hint[TOOL_FOREIGN_HINT_BYTES])
{
    hint[0] = '\0';
    for (size_t i = 0; pickles[i] && !hint[0]; i++) {
        char path[4608];
        struct stat info;
        snprintf(path, sizeof(path), "%s/%s", folder, pickles[i]);
        if (stat(path, &info) == 0)
            snprintf(hint, TOOL_FOREIGN_HINT_BYTES, "; %s is there, of pickles: save the model as safetensors, as save_pretrained does",
                     pickles[i]);
    }
    return hint;
}

/* Ends of names beside quantized matrices: of GPTQ and AWQ, MLX, compressed-tensors and FP8, bitsandbytes. */
static bool is_quantized(const char *name)
{
    static const char *const ends[] = {".qweight",      ".qzeros",       ".g_idx",        ".scales",
                                       ".biases",       "weight_scale",  "_scale_inv",    ".input_scale",
                                       "weight_packed", ".weight_shape", "absmax",        "quant_map",
                                       ".SCB",          "_scale_2",      "_zero_point"};
    for (size_t i = 0; i < sizeof(ends) / sizeof(ends[0]); i++)
        if (strlen(name) > strlen(ends[i]) && strcmp(name + strlen(name) - strlen(ends[i]), ends[i]) == 0)
            return true;
    return strstr(name, ".quant_state.");
}

/* Where a name of the model begins, as wrappers save them with a prefix of their own: data parallelism, PEFT, and others. */
static size_t prefix_length(const char *name, const json_t *wanted)
{
    for (const char *dot = strchr(name, '.'); dot; dot = strchr(dot + 1, '.'))
        if (json_object_get(wanted, dot + 1))
            return (size_t)(dot + 1 - name);
    return 0;
}

const char *tool_foreign_tensor_hint(const char *name, const json_t *wanted, char hint[TOOL_FOREIGN_HINT_BYTES])
{
    static const char *const wrappers[] = {"_orig_mod.", "_fsdp_wrapped_module.", "_checkpoint_wrapped_module."};
    const size_t prefix = prefix_length(name, wanted);
    hint[0] = '\0';
    if (is_quantized(name))
        snprintf(hint, TOOL_FOREIGN_HINT_BYTES, "; the weights are quantized: take those before that, in F32, BF16 or F16");
    else if (prefix && prefix < 60)
        snprintf(hint, TOOL_FOREIGN_HINT_BYTES, "; take '%.*s' off the names", (int)prefix, name);
    for (size_t i = 0; !hint[0] && i < sizeof(wrappers) / sizeof(wrappers[0]); i++)
        if (strstr(name, wrappers[i]))
            snprintf(hint, TOOL_FOREIGN_HINT_BYTES, "; take '%s' out of the names", wrappers[i]);
    return hint;
}

const char *tool_foreign_shape_hint(const json_t *shape, const json_t *wanted, bool is_table,
                                    char hint[TOOL_FOREIGN_HINT_BYTES])
{
    const json_int_t rows = json_integer_value(json_array_get(shape, 0));
    hint[0] = '\0';
    if (json_array_size(shape) && rows == 0)
        snprintf(hint, TOOL_FOREIGN_HINT_BYTES, "; it is empty: the program that saved it had not gathered its shards");
    else if (is_table && rows > json_integer_value(json_array_get(wanted, 0)) &&
             json_equal(json_array_get(shape, 1), json_array_get(wanted, 1)))
        snprintf(hint, TOOL_FOREIGN_HINT_BYTES,
                 "; a padded vocabulary is read with vocab_size %" JSON_INTEGER_FORMAT " in config.json", rows);
    return hint;
}
