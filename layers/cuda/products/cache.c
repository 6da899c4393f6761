/* SPDX-License-Identifier: MIT
 *
 * The file of plans that were chosen by timing. Text:
 *
 *     evenodd product plans 1
 *     device NVIDIA H200
 *     cublaslt 130000
 *     plan <the key's fields> fused <0 or 1> algorithm <8 numbers>
 *
 * Numbers are hexadecimal. An algorithm is what this very version of cuBLASLt on this very kind of device made of it, so
 * a file of another one is not used. With a file the same algorithms run every time: the same bits.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "layers/cuda/internal.h"

static const char file_title[] = "evenodd product plans 1";

enum { LINE_BYTES = 2048, ALGORITHM_WORDS = sizeof(cublasLtMatmulAlgo_t) / sizeof(uint64_t) };

static bool read_words(char **text, uint64_t *words, int count)
{
    for (int i = 0; i < count; i++) {
        char *end;
        errno = 0;
        words[i] = strtoull(*text, &end, 16);
        if (end == *text || errno != 0)
            return false;
        *text = end;
    }
    return true;
}

static bool read_label(char **text, const char *label)
{
    const size_t bytes = strlen(label);
    if (strncmp(*text, label, bytes) != 0)
        return false;
    *text += bytes;
    return true;
}

static bool read_plan(char *line, struct eo_product_plan *plan)
{
    uint64_t fused;
    *plan = (struct eo_product_plan){.state = EO_PLAN_READ, .timed = true};
    if (!read_label(&line, "plan ") || !read_words(&line, (uint64_t *)&plan->key, EO_PRODUCT_KEY_FIELDS) ||
        !read_label(&line, " fused ") || !read_words(&line, &fused, 1) || !read_label(&line, " algorithm ") ||
        !read_words(&line, plan->algorithm.data, ALGORITHM_WORDS) || fused > 1)
        return false;
    plan->fused = fused == 1;
    return *line == '\n' && plan->key.epilogue <= EO_EPILOGUE_BIAS_GRADIENT;
}

static void write_head(char *head, size_t bytes, const struct eo_cuda_team *team)
{
    snprintf(head, bytes, "%s\ndevice %s\ncublaslt %zu\n", file_title, team->device_name, cublasLtGetVersion());
}

/* The first lines must be what we would write today. */
static bool head_is_ours(FILE *file, const struct eo_cuda_team *team)
{
    char wanted[512], line[LINE_BYTES];
    write_head(wanted, sizeof(wanted), team);
    for (const char *next = wanted; *next != '\0'; next += strlen(line)) {
        if (!fgets(line, sizeof(line), file) || strncmp(line, next, strlen(line)) != 0)
            return false;
    }
    return true;
}

void eo_cuda_plans_read(struct eo_cuda_team *team)
{
    struct stat info;
    /* A pipe of that name is not waited for. */
    const int descriptor = team->plan_cache ? open(team->plan_cache, O_RDONLY | O_CLOEXEC | O_NONBLOCK) : -1;
    FILE *file = descriptor >= 0 ? fdopen(descriptor, "r") : NULL;
    if (!file) {
        if (descriptor >= 0)
            close(descriptor);
        return;
    }
    char line[LINE_BYTES];
    bool good = fstat(descriptor, &info) == 0 && S_ISREG(info.st_mode) && head_is_ours(file, team);
    while (good && fgets(line, sizeof(line), file)) {
        struct eo_product_plan plan;
        good = read_plan(line, &plan);
        struct eo_product_plan *place = good ? eo_cuda_plan_find(team, &plan.key) : NULL;
        if (place && place->state == EO_PLAN_NONE) {
            *place = plan;
            team->plan_count++;
        }
    }
    fclose(file);
    if (good)
        eo_layers_log(&team->log, EO_LOG_INFO, "cuda: %u product plans from %s", team->plan_count, team->plan_cache);
    else
        eo_layers_log(&team->log, EO_LOG_WARN,
                      "cuda: %s belongs to another device or cuBLASLt, or is damaged; missing plans are timed again",
                      team->plan_cache);
}

/* The text of a plan. LINE_BYTES hold all of its numbers. */
_Static_assert(64 + 17 * (EO_PRODUCT_KEY_FIELDS + ALGORITHM_WORDS) < LINE_BYTES, "a plan does not fit into a line");

static size_t add_words(char *line, size_t at, const uint64_t *words, int count)
{
    for (int i = 0; i < count; i++)
        at += (size_t)snprintf(line + at, LINE_BYTES - at, " %" PRIx64, words[i]);
    return at;
}

static bool write_plan(FILE *file, const struct eo_product_plan *plan)
{
    char line[LINE_BYTES] = "plan";
    size_t at = add_words(line, strlen(line), (const uint64_t *)&plan->key, EO_PRODUCT_KEY_FIELDS);
    at += (size_t)snprintf(line + at, sizeof(line) - at, " fused %d algorithm", plan->fused);
    at = add_words(line, at, plan->algorithm.data, ALGORITHM_WORDS);
    line[at++] = '\n';
    return fwrite(line, 1, at, file) == at;
}

/* Whole or not at all: several ranks may write, the last one's file stays. */
void eo_cuda_plans_write(struct eo_cuda_team *team)
{
    if (!team->plan_cache || !team->plans_changed)
        return;
    char head[512];
    char *name = malloc(strlen(team->plan_cache) + 64);
    if (!name)
        return;
    sprintf(name, "%s.%ld.%llx", team->plan_cache, (long)getpid(), (unsigned long long)(uintptr_t)team);
    FILE *file = fopen(name, "wxe");
    bool good = file != NULL;
    write_head(head, sizeof(head), team);
    good = good && fwrite(head, 1, strlen(head), file) == strlen(head);
    for (uint32_t i = 0; i < EO_CUDA_PLANS_MAX && good; i++)
        if (team->plans[i].timed)
            good = write_plan(file, &team->plans[i]);
    if (file)
        good = fclose(file) == 0 && good;
    good = good && rename(name, team->plan_cache) == 0;
    if (!good) {
        eo_layers_log(&team->log, EO_LOG_WARN, "cuda: cannot write product plans to %s: %s", team->plan_cache,
                      strerror(errno));
        if (file)
            remove(name);
    }
    team->plans_changed = team->plans_changed && !good;
    free(name);
}
