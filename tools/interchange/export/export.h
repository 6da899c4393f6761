/* SPDX-License-Identifier: MIT
 *
 * Weights to files that others read: a Hugging Face folder (config.json and model.safetensors, or several files with an
 * index), or a GPT-2 checkpoint of llm.c where the path ends in ".bin".
 *
 * What is written has another name until all of it is on the disk: the path and ".evenodd-export-" and a number.
 * Whatever fails before takes it away again, so that under the path there is the whole model or nothing; what a run left that
 * was killed, the next export to the path does.
 */
#ifndef EO_TOOLS_INTERCHANGE_EXPORT_EXPORT_H
#define EO_TOOLS_INTERCHANGE_EXPORT_EXPORT_H

#include <argp.h>

#include "tools/interchange/llmc.h"
#include "tools/interchange/config/model_config.h"
#include "tools/shared/json_output.h"

struct tool_export_settings {
    const char *path;    /* NULL: nothing is exported */
    eo_dtype dtype;
    uint64_t file_bytes; /* of tensors in a safetensors file, unless one alone is larger */
    uint64_t given;
    bool merged;         /* adapters go into the weights that they stand beside */
};

#define TOOL_EXPORT_FILE_BYTES ((uint64_t)5 << 30)

/* For struct argp's children; its input is a struct tool_export_settings. */
extern const struct argp tool_export_argp;

/* What is to be written. */
struct tool_export_model {
    const eo_model *model;
    eo_transformer_config config;
    const struct tool_model_config *origin; /* NULL, or what the model was made from: its family, and ids of its tokens */
    const json_t *published; /* NULL, or what tool_export_published made of another one's origin: it comes first */
    const eo_lora *lora;     /* NULL, or what is trained are adapters (adapters.h): `model` has them alone; or, where they are */
    bool merged;             /* ... merged, it has none */
    const char *base;        /* of adapters: the path of their model; NULL: not known */
    const char *tokenizer;   /* NULL, or a tokenizer.json, or a folder with one; else what lies beside the origin's is copied */
    bool needs_tokenizer;    /* its tokens are no bytes */
    const uint32_t *end_of_text; /* NULL, or the token for it in the files that it was trained on */
};

struct tool_export_tensor {
    char name[EO_NAME_MAX + 48];
    uint32_t file;
    bool transposed;
    uint64_t at;            /* byte of the file */
    uint64_t rows, columns; /* as the model has it */
    uint32_t dim_count;
    uint64_t element_count;
    bool goes_on; /* with the rows of the file's tensor that the parameter before has begun */
    uint32_t parts, part; /* of an adapter of several layers: its columns in the file are those of so many parameters, this one's
                             are the part-th of them, and the others of its rows are 0. 0: the file has what the model has */
    uint64_t zero_rows;   /* behind its own */
};

struct tool_export {
    char path[4096], partial[4160];
    bool has_adapters;                /* and nothing else */
    bool is_folder, is_made;          /* is_made: under the partial name lies what is ours */
    int lock;                         /* on it, so that nobody else takes it away; -1: none */
    enum tool_element element;
    struct tool_llmc llmc;
    struct tool_model_config *config; /* of a folder */
    uint32_t file_count, tensor_count;
    struct tool_export_file {
        char name[48];
        int file;
        uint64_t tensor_bytes;
    } * files;
    struct tool_export_tensor *tensors; /* by the model's parameter */
    float *room;                      /* room_count values, and as many as they are written */
    uint64_t room_count;
    uint64_t bytes;                   /* of all tensors */
    eo_status status;                 /* the first failure's */
    struct tool_problem problem;
};

/*
 * Everything that can be judged before there are weights: kinds of model, names, folders, room on the disk. Writes
 * nothing; removes what exports to the same path have left that were killed. EO_ERR_INVALID, EO_ERR_UNSUPPORTED,
 * EO_ERR_IO, EO_ERR_NO_MEMORY.
 */
EO_NODISCARD eo_status tool_export_check(const struct tool_export_settings *settings, const struct tool_export_model *model,
                                         struct tool_problem *problem);

/* After begin each parameter is put once, whole, in any order; then end, whatever happened, which tells the first
 * failure. Not for several threads. */
EO_NODISCARD eo_status tool_export_begin(struct tool_export *export, const struct tool_export_settings *settings,
                                         const struct tool_export_model *model, struct tool_problem *problem);
void tool_export_put(struct tool_export *export, uint32_t parameter, const float *values);
EO_NODISCARD eo_status tool_export_end(struct tool_export *export, struct tool_problem *problem);

/* Takes away what was written. */
void tool_export_drop(struct tool_export *export);

/* Where ranks wait for each other: a sum over all of them. */
struct tool_export_meeting {
    eo_status (*sum)(void *user, double *value);
    void *user;
};

/*
 * The weights of a runtime, layer by layer. Collective, between steps; one rank writes, for as long as it takes. `meeting`
 * is NULL where nothing follows that has a deadline. A failure to write is that rank's alone: EO_OK on the others.
 */
EO_NODISCARD eo_status tool_export_weights(const struct tool_export_settings *settings, const struct tool_export_model *model,
                                           eo_runtime *runtime, bool writes, const struct tool_export_meeting *meeting,
                                           struct tool_problem *problem);

/* --- between the files of this part ------------------------------------------------------------------------------- */

/* partial.c: the partial name, and whether a path is such a name; a lock on what has just been made under it; and away with
 * those that nobody has locked. */
void tool_export_name_partial(struct tool_export *export);
bool tool_export_is_partial(const char *path);
EO_NODISCARD eo_status tool_export_lock(struct tool_export *export, struct tool_problem *problem);
EO_NODISCARD eo_status tool_export_lock_file(struct tool_export *export, struct tool_problem *problem);
void tool_export_remove_left(const char *parent, const char *path);

/* companions.c: the names of all files beside the weights, up to NULL; and copies of the tokenizer and of
 * generation_config.json, where there are some. One that cannot be read is left out, with a word on standard error. */
const char *const *tool_export_other_names(void);
EO_NODISCARD eo_status tool_export_copy_companions(const struct tool_export *export, const struct tool_export_model *model,
                                                   struct tool_problem *problem);
/* Its folder, which ends with '/', of --tokenizer's path; false: there is none, or what lies beside it is of another one. */
bool tool_export_tokenizer_folder(char *folder, size_t bytes, const char *tokenizer);
/* The caller's; NULL: no such file, or no JSON. */
json_t *tool_export_open_companion(const char *folder, const char *name);

/* folder.c: the config, where each tensor lies and what the files are called; then what stands before tensors. */
EO_NODISCARD eo_status tool_export_describe_folder(struct tool_export *export, const struct tool_export_settings *settings,
                                                   const struct tool_export_model *model, struct tool_problem *problem);
EO_NODISCARD eo_status tool_export_write_headers(struct tool_export *export, const struct tool_export_model *model,
                                                 struct tool_problem *problem);

/* token_ids.c: the members bos_token_id, eos_token_id and pad_token_id, of `origin` (NULL is taken) or the tokenizer.
 * names_pad: where none is known, null. */
void tool_export_ids(struct eo_json *json, const struct tool_export_model *model, const json_t *origin, bool names_pad);
/* Whether the vocabulary has all special tokens that a config.json, or settings for generation, name. */
bool tool_export_ids_fit(const json_t *config, uint32_t vocabulary);

/*
 * config.c: what a config.json says and the model's numbers do not, to be kept with its weights: which family it is
 * of, where several compute the same, and the ids of special tokens.
 */
void tool_export_published(struct eo_json *json, const struct tool_export_model *model);

/* config.c: the member rope_scaling of a config.json, where positions are scaled; else nothing. Linear scaling stands
 * under this key. */
void tool_export_rope(struct eo_json *json, const eo_rope_scaling *scaling, const char *linear_key);

/* config.c: a config.json; `config` is a struct tool_export_config. Check comes before: EO_ERR_UNSUPPORTED. */
struct tool_export_config {
    const struct tool_export_model *model;
    eo_dtype dtype;
};
EO_NODISCARD eo_status tool_export_config_check(const struct tool_export_model *model, const char *path,
                                                struct tool_problem *problem);
void tool_export_config(struct eo_json *json, const void *config);

#endif
