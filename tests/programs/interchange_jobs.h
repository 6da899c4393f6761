/* SPDX-License-Identifier: MIT
 *
 * For the parts of interchange: small models, weights that are a function of name and index, and ranks that write them to files
 * and start from those.
 */
#ifndef EO_TESTS_PROGRAMS_INTERCHANGE_JOBS_H
#define EO_TESTS_PROGRAMS_INTERCHANGE_JOBS_H

#include "tests/programs/interchange_ranks.h"
#include "tools/interchange/export/export.h"
#include "tools/interchange/import.h"

enum { FOLDER_BYTES = 32, PATH_BYTES = FOLDER_BYTES + 64, MODEL_COUNT = 8 };

/* A folder of the test's own, in which nothing is; a name in it; what was said last. */
extern char folder[FOLDER_BYTES], path[PATH_BYTES];
extern struct tool_problem problem;

void make_folder(void);
void remove_folder(void);
void empty_folder(void);

extern const eo_transformer_config gpt2, gpt2_wide, llama, llama_tied, qwen2, qwen3, llama3, linear, smollm3;
extern const struct known_model {
    const char *name;
    const eo_transformer_config *config;
} models[MODEL_COUNT];

struct job {
    struct tool_export_settings settings;
    const struct tool_import *import; /* NULL: values that tell their place */
    bool seeded;                      /* else */
    const struct tool_model_config *origin;
    eo_status exported;
    uint64_t hash;
};

float value_of(const char *name, uint64_t index);
eo_status produce(void *user, uint64_t offset, uint64_t count, float *values); /* `user`: the name */
struct tool_export_model model_of(const struct ranks *ranks);

/* The hash of the weights of these ranks. */
uint64_t run(const eo_transformer_config *config, uint32_t rank_count, eo_dtype dtype, struct job *job);
uint64_t export_from(const eo_transformer_config *config, uint32_t rank_count, const char *to, eo_dtype dtype,
                     uint64_t file_bytes);
/* What ranks have that start from the files. */
uint64_t import_to(const eo_transformer_config *config, uint32_t rank_count, const char *from, const char *to, eo_dtype dtype);

/* The files at `path` have these values, to a plain reader. */
void check_plain(const struct ranks *ranks, bool is_gpt2, eo_dtype dtype);
bool same_files(const char *a, const char *b);

#endif
