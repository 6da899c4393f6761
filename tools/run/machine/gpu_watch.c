/* SPDX-License-Identifier: MIT */
#include "tools/run/machine/gpu_watch.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/run/job.h"
#include "tools/shared/json_output.h"

static void catch_error(void *user, eo_log_level level, const char *text)
{
    struct tool_problem *problem = user;
    if (level == EO_LOG_ERROR)
        (void)tool_problem_set(problem, EO_ERR_UNSUPPORTED, "--cupti on: %s", text);
}

eo_status tool_gpu_watch_start(struct tool_gpu_watch *watch, const struct tool_options *options, struct tool_problem *problem)
{
    *watch = (struct tool_gpu_watch){0};
    if (!options->cupti)
        return EO_OK;
    const eo_log log = {.write = catch_error, .user = problem, .level = EO_LOG_ERROR};
    (void)tool_problem_set(problem, EO_ERR_NO_MEMORY, "--cupti on: no memory");
    return eo_gpu_profile_create(&watch->profile, &(const eo_gpu_profile_params){.library = options->cupti_library,
                                                                                 .log = &log});
}

void tool_gpu_watch_from_now(struct tool_gpu_watch *watch)
{
    watch->begin_ns = tool_now_ns();
}

void tool_gpu_watch_stop(struct tool_gpu_watch *watch)
{
    if (watch->profile && eo_gpu_profile_stop(watch->profile) < 0)
        fprintf(stderr, "CUPTI did not deliver all of its records; the report is incomplete\n");
}

void tool_gpu_watch_fini(struct tool_gpu_watch *watch)
{
    eo_gpu_profile_destroy(&watch->profile);
}

/* False: past the last. Those that do not count have no name. */
static bool get(const struct tool_gpu_watch *watch, uint64_t index, eo_gpu_activity *out)
{
    if (!watch->profile || eo_gpu_profile_get(watch->profile, index, out) < 0)
        return false;
    if (out->start_ns < watch->begin_ns || out->end_ns < out->start_ns)
        out->name = NULL;
    return true;
}

struct tool_gpu_sums tool_gpu_watch_sums(const struct tool_gpu_watch *watch)
{
    struct tool_gpu_sums sums = {0};
    eo_gpu_activity activity;
    if (watch->profile)
        (void)eo_gpu_profile_count(watch->profile, &sums.lost);
    for (uint64_t i = 0; get(watch, i, &activity); i++) {
        if (!activity.name)
            continue;
        sums.count[activity.kind]++;
        sums.seconds[activity.kind] += (double)(activity.end_ns - activity.start_ns) * 1e-9;
    }
    return sums;
}

/* _Z 3 abc ..., _ZL 3 abc ..., _ZN 3 abc 2 de E ...: the last name of those that follow one another. */
const char *tool_kernel_name(const char *name, char *out, size_t bytes)
{
    const char *at = name, *word = name;
    size_t length = strcspn(name, "(<");
    if (strncmp(at, "_Z", 2) == 0) {
        at += 2;
        const bool is_nested = *at == 'N';
        at += strspn(at, "NLK");
        while (isdigit((unsigned char)*at)) {
            char *end;
            const unsigned long count = strtoul(at, &end, 10);
            if (count > strlen(end))
                break;
            word = end;
            length = count;
            at = end + count;
            if (!is_nested)
                break;
            at += strspn(at, "LK");
        }
    }
    (void)snprintf(out, bytes, "%.*s", (int)(length < bytes ? length : bytes - 1), word);
    return out;
}

/* --- which way collectives took ------------------------------------------------------------------------------------ */

struct way {
    uint64_t nccl, symmetric, kernels, copies, peer_copies;
    uint32_t blocks_max;
    char kernel[96]; /* of NCCL, or ours: one of them */
};

static void add_to_way(struct way *way, const eo_gpu_activity *activity)
{
    if (activity->kind == EO_GPU_COPY || activity->kind == EO_GPU_PEER_COPY) {
        way->copies += activity->kind == EO_GPU_COPY;
        way->peer_copies += activity->kind == EO_GPU_PEER_COPY;
        return;
    }
    if (activity->kind != EO_GPU_KERNEL)
        return;
    const uint32_t blocks = activity->grid[0] * activity->grid[1] * activity->grid[2];
    way->nccl += strstr(activity->name, "ncclDevKernel") && !strstr(activity->name, "ncclSymkDevKernel");
    way->symmetric += strstr(activity->name, "ncclSymkDevKernel") != NULL;
    way->kernels++;
    if (blocks >= way->blocks_max) {
        way->blocks_max = blocks;
        (void)tool_kernel_name(activity->name, way->kernel, sizeof(way->kernel));
    }
}

/* Kernels of NCCL say themselves what they are of; others are of the operation that issued them. */
static bool is_of(const eo_gpu_activity *activity, const char *operation, const char *kernel)
{
    return (activity->kind == EO_GPU_KERNEL && strstr(activity->name, "nccl") && strstr(activity->name, kernel)) ||
           (activity->operation && strncmp(activity->operation, operation, strlen(operation)) == 0);
}

static void print_way(const struct tool_gpu_watch *watch, const char *operation, const char *kernel, FILE *out)
{
    struct way way = {0};
    eo_gpu_activity activity;
    for (uint64_t i = 0; get(watch, i, &activity); i++)
        if (activity.name && is_of(&activity, operation, kernel))
            add_to_way(&way, &activity);
    fprintf(out, "  %-16s ", operation);
    if (way.nccl + way.symmetric)
        fprintf(out, "by %s kernels of NCCL: %llu, such as %s, of at most %u blocks", way.symmetric ? "symmetric" : "plain",
                (unsigned long long)(way.nccl + way.symmetric), way.kernel, way.blocks_max);
    else if (way.kernels)
        fprintf(out, "by no kernel of NCCL; %llu others, such as %s, of at most %u blocks", (unsigned long long)way.kernels,
                way.kernel, way.blocks_max);
    else if (way.copies + way.peer_copies)
        fprintf(out, "by copies alone, no kernels");
    else
        fprintf(out, "not seen: none ran, or all were copies within graphs, without the name of an operation");
    if (way.copies + way.peer_copies)
        fprintf(out, "; %llu copies between GPUs, %llu within one", (unsigned long long)way.peer_copies,
                (unsigned long long)way.copies);
    fputc('\n', out);
}

/* --- for people ---------------------------------------------------------------------------------------------------- */

struct kernel_sum {
    const char *name; /* equal names are one pointer */
    uint64_t count;
    double seconds;
};

static int by_name(const void *a, const void *b)
{
    const char *x = ((const struct kernel_sum *)a)->name, *y = ((const struct kernel_sum *)b)->name;
    return strcmp(x, y);
}

static int by_seconds(const void *a, const void *b)
{
    const double x = ((const struct kernel_sum *)a)->seconds, y = ((const struct kernel_sum *)b)->seconds;
    return x > y ? -1 : x < y;
}

/* The kernels that took most, all of a name together. */
static void print_kernels(const struct tool_gpu_watch *watch, FILE *out)
{
    enum { SHOWN = 10 };
    const uint64_t most = eo_gpu_profile_count(watch->profile, NULL);
    struct kernel_sum *sums = calloc(most + 1, sizeof(*sums));
    eo_gpu_activity activity;
    uint64_t count = 0, kept = 0;
    for (uint64_t i = 0; sums && get(watch, i, &activity); i++)
        if (activity.name && activity.kind == EO_GPU_KERNEL)
            sums[count++] = (struct kernel_sum){activity.name, 1, (double)(activity.end_ns - activity.start_ns) * 1e-9};
    if (count)
        qsort(sums, count, sizeof(*sums), by_name);
    for (uint64_t i = 0; i < count; i++) {
        if (kept && strcmp(sums[kept - 1].name, sums[i].name) == 0) {
            sums[kept - 1].count++;
            sums[kept - 1].seconds += sums[i].seconds;
        } else {
            sums[kept++] = sums[i];
        }
    }
    if (kept)
        qsort(sums, kept, sizeof(*sums), by_seconds);
    for (uint64_t i = 0; i < kept && i < SHOWN; i++) {
        char name[96];
        fprintf(out, "  %10.3f ms in %6llu of %s\n", sums[i].seconds * 1e3, (unsigned long long)sums[i].count,
                tool_kernel_name(sums[i].name, name, sizeof(name)));
    }
    free(sums);
}

void tool_gpu_watch_print(const struct tool_gpu_watch *watch, FILE *out)
{
    static const char *const kinds[EO_GPU_ACTIVITY_KIND_COUNT] = {"kernels", "copies", "copies between GPUs", "fills"};
    if (!watch->profile)
        return;
    const struct tool_gpu_sums sums = tool_gpu_watch_sums(watch);
    fprintf(out, "\nGPU activity, by CUPTI");
    if (sums.lost)
        fprintf(out, " (the latest; %llu more are not kept)", (unsigned long long)sums.lost);
    fprintf(out, ":\n");
    for (int kind = 0; kind < EO_GPU_ACTIVITY_KIND_COUNT; kind++)
        fprintf(out, "  %-20s %8llu, %10.3f ms\n", kinds[kind], (unsigned long long)sums.count[kind],
                sums.seconds[kind] * 1e3);
    print_way(watch, "all-gather", "AllGather", out);
    print_way(watch, "reduce-scatter", "ReduceScatter", out);
    print_kernels(watch, out);
}

/* --- for Perfetto --------------------------------------------------------------------------------------------------- */

enum { PROCESS_OF_GPU_0 = 1000 }; /* ranks are the processes before */

static void name_gpu(struct eo_json *json, bool *is_named, uint32_t device, uint32_t first_gpu)
{
    enum { NAMED_MAX = 64 };
    char text[64];
    if (device >= NAMED_MAX || is_named[device])
        return;
    is_named[device] = true;
    (void)snprintf(text, sizeof(text), "GPU %u, by CUPTI", first_gpu + device);
    eo_json_write(json, "{'name': 'process_name', 'ph': 'M', 'pid': %u, 'tid': 0, 'args': {'name': %s}}",
                  PROCESS_OF_GPU_0 + first_gpu + device, text);
}

static void write_activity(struct eo_json *json, const eo_gpu_activity *a, uint32_t first_gpu)
{
    char name[96];
    eo_json_write(json, "{'name': %s, 'cat': %s, 'ph': 'X', 'pid': %u, 'tid': %u, 'ts': %.3f, 'dur': %.3f, 'args': {",
                  tool_kernel_name(a->name, name, sizeof(name)),
                  a->kind == EO_GPU_KERNEL ? "kernel"
                  : a->kind == EO_GPU_FILL ? "fill"
                                           : "copy",
                  PROCESS_OF_GPU_0 + first_gpu + a->device, a->stream, (double)a->start_ns * 1e-3,
                  (double)(a->end_ns - a->start_ns) * 1e-3);
    if (a->operation)
        eo_json_write(json, "'operation': %s", a->operation);
    if (a->kind == EO_GPU_KERNEL)
        eo_json_write(json, "'grid': [%u, %u, %u], 'block': [%u, %u, %u]", a->grid[0], a->grid[1], a->grid[2], a->block[0],
                      a->block[1], a->block[2]);
    else
        eo_json_write(json, "'bytes': %" PRIu64, a->bytes);
    eo_json_write(json, "'in_graph': %i}}", a->in_graph);
}

static void write_watched(struct eo_json *json, const void *user)
{
    const struct tool_gpu_watch *watch = user;
    eo_gpu_activity activity;
    bool is_named[64] = {false};
    eo_json_write(json, "{'traceEvents': [");
    for (uint64_t i = 0; get(watch, i, &activity); i++) {
        if (!activity.name)
            continue;
        name_gpu(json, is_named, activity.device, watch->first_gpu);
        write_activity(json, &activity, watch->first_gpu);
    }
    eo_json_write(json, "]}");
}

eo_status tool_gpu_watch_trace(const struct tool_gpu_watch *watch, struct tool_trace_text *out)
{
    out->text = tool_json_text(0, write_watched, watch);
    out->bytes = out->text ? strlen(out->text) : 0;
    return out->text ? EO_OK : EO_ERR_NO_MEMORY;
}
