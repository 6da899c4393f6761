/* SPDX-License-Identifier: MIT
 *
 * Writes that fail leave nothing, and places that cannot be written are told before training. Method: files that may not grow
 * beyond a size, for every size.
 */
#include <criterion/criterion.h>
#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "tests/programs/interchange_jobs.h"

static int count_entries(const char *where)
{
    DIR *open = opendir(where);
    int count = 0;
    cr_assert(open);
    while (readdir(open))
        count++;
    closedir(open);
    return count - 2;
}

/* Nothing more than `limit` bytes goes into a file, as on a disk that is full. */
static void limit_files(rlim_t limit)
{
    const struct rlimit value = {limit, RLIM_INFINITY};
    cr_assert_eq(setrlimit(RLIMIT_FSIZE, &value), 0);
}

static void fail_at_every_size(const char *to, eo_dtype dtype, uint64_t file_bytes, rlim_t whole)
{
    int failed = 0;
    for (rlim_t limit = 0; limit < whole; limit += whole / 97 + 1, failed++) {
        struct job job = {.settings = {.path = to, .dtype = dtype, .file_bytes = file_bytes}};
        limit_files(limit);
        run(&gpt2, 2, EO_DTYPE_FP32, &job);
        limit_files(RLIM_INFINITY);
        cr_assert_eq(job.exported, EO_ERR_IO, "%d of %d bytes are enough", (int)limit, (int)whole);
        cr_assert(strstr(problem.text, "File too large"), "%s", problem.text);
        cr_assert_eq(count_entries(folder), 0, "something is left of a write that failed at %d", (int)limit);
    }
    cr_assert_gt(failed, 50);
}

static rlim_t largest_file(const char *where)
{
    char command[512];
    unsigned long size = 0;
    snprintf(command, sizeof(command), "find %s -type f -printf '%%s\\n' | sort -n | tail -n 1", where);
    FILE *pipe = popen(command, "r");
    cr_assert(pipe && fscanf(pipe, "%lu", &size) == 1);
    pclose(pipe);
    return size;
}

Test(interchange, a_write_that_fails_anywhere_leaves_nothing)
{
    char file[sizeof(path) + 8];
    snprintf(file, sizeof(file), "%s.bin", path);
    const struct { const char *to; eo_dtype dtype; uint64_t file_bytes;
    } cases[] = {{path, EO_DTYPE_FP32, TOOL_EXPORT_FILE_BYTES}, {path, EO_DTYPE_BF16, 2000},
                 {file, EO_DTYPE_FP32, TOOL_EXPORT_FILE_BYTES}};
    signal(SIGXFSZ, SIG_IGN);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        export_from(&gpt2, 2, cases[i].to, cases[i].dtype, cases[i].file_bytes);
        const rlim_t whole = largest_file(folder);
        empty_folder();
        fail_at_every_size(cases[i].to, cases[i].dtype, cases[i].file_bytes, whole);
    }
}

static void refuse_place(const char *to, const char *words)
{
    struct ranks ranks;
    ranks_init(&ranks, &gpt2, 1, EO_DTYPE_FP32, 0);
    const struct tool_export_model model = model_of(&ranks);
    const struct tool_export_settings settings = {.path = to, .file_bytes = TOOL_EXPORT_FILE_BYTES};
    cr_assert_lt(tool_export_check(&settings, &model, &problem), 0, "%s is taken", to);
    cr_assert(strstr(problem.text, words), "%s", problem.text);
    ranks_fini(&ranks);
}

Test(interchange, a_place_that_cannot_be_written_is_told_before_training)
{
    char inner[sizeof(path) + 32];
    struct ranks ranks;
    ranks_init(&ranks, &gpt2, 1, EO_DTYPE_FP32, 0);
    const struct tool_export_model model = model_of(&ranks);
    struct tool_export_settings settings = {.path = path, .file_bytes = TOOL_EXPORT_FILE_BYTES};
    cr_assert_eq(mkdir(path, 0700), 0);
    cr_assert_eq(tool_export_check(&settings, &model, &problem), EO_OK, "an empty folder: %s", problem.text);
    export_from(&gpt2, 1, path, EO_DTYPE_FP32, TOOL_EXPORT_FILE_BYTES);
    refuse_place(path, "already exists");
    snprintf(inner, sizeof(inner), "%s/none/model", path);
    refuse_place(inner, "create it");
    snprintf(inner, sizeof(inner), "%s/config.json/model", path);
    refuse_place(inner, "create it");
    ranks_fini(&ranks);
}

static void put_all(struct tool_export *export, const eo_model *model)
{
    for (uint32_t k = 0; k < eo_model_parameter_count(model); k++) {
        eo_parameter_info info;
        cr_assert_eq(eo_model_parameter(model, k, &info), EO_OK);
        float *values = malloc(info.element_count * sizeof(*values));
        produce((void *)(uintptr_t)info.name, 0, info.element_count, values);
        tool_export_put(export, k, values);
        free(values);
    }
}

Test(interchange, a_name_that_is_taken_meanwhile_costs_no_weights)
{
    char inner[sizeof(path) + 32];
    struct tool_export export;
    struct ranks ranks;
    ranks_init(&ranks, &gpt2, 1, EO_DTYPE_FP32, 0);
    const struct tool_export_model model = model_of(&ranks);
    const struct tool_export_settings settings = {.path = path, .file_bytes = TOOL_EXPORT_FILE_BYTES};
    cr_assert_eq(tool_export_begin(&export, &settings, &model, &problem), EO_OK, "%s", problem.text);
    put_all(&export, model.model);
    snprintf(inner, sizeof(inner), "%s/other", path);
    cr_assert_eq(mkdir(path, 0700), 0);
    cr_assert_eq(mkdir(inner, 0700), 0);
    cr_assert_eq(tool_export_end(&export, &problem), EO_ERR_IO);
    const char *where = strstr(problem.text, "all of it is in ");
    cr_assert(where, "%s", problem.text);
    tool_export_remove_left(folder, path); /* the next export does not take it for one that was killed */
    snprintf(path, sizeof(path), "%s", where + strlen("all of it is in "));
    check_plain(&ranks, true, EO_DTYPE_FP32);
    ranks_fini(&ranks);
}
