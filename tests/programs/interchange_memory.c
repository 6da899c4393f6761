/* SPDX-License-Identifier: MIT
 *
 * Starting a model that no rank could hold. Goal: what a rank has resident until its shards are filled, from a seed or
 * from files, is its shards and two layers at most (in the static mode the arena, which was planned for training), on any
 * number of ranks; filling takes nothing beside; the values are the same on all.
 * Method: each rank is a process. What is resident is asked before its runtime was made and after its shards were filled,
 * pages that ranks share counted once among them; and the peak that the kernel has seen while they were filled. Both are
 * held against the bytes of its shards (weights, gradients, optimizer state) and of two layers. The first run's rank 0
 * exports what others start from.
 * usage: interchange_memory: TAP
 */
#include <evenodd/cluster.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/tap/tap.h"
#include "tools/interchange/export/export.h"
#include "tools/interchange/import.h"
#include "tools/shared/weights_hash.h"

enum { RANKS_MAX = 8, SEED = 5 };

/* 22 million parameters, 84 MiB in fp32. */
static const eo_transformer_config config = {.family = EO_FAMILY_GPT2, .layer_count = 12, .width = 384, .head_count = 6,
                                             .vocabulary = 256, .context = 64, .tied_head = true};

/* What ranks tell their parent, in memory that they share. */
static struct told {
    bool good;
    uint64_t hash, grown_bytes, filling_bytes, shard_bytes, layer_bytes, model_bytes, arena_bytes;
} *told;

static char folder[4000], path[sizeof(folder) + 16];

struct run {
    uint32_t rank_count;
    bool from_files, exports;
    eo_memory memory;
};

static void must(eo_status status, const char *what)
{
    if (status < 0) {
        fprintf(stderr, "# %s: %s\n", what, eo_status_text(status));
        exit(1);
    }
}

static uint64_t ask(const char *name, const char *format)
{
    char line[256];
    unsigned long long kib = 0;
    FILE *file = fopen(name, "r");
    while (file && fgets(line, sizeof(line), file) && sscanf(line, format, &kib) != 1)
        ;
    if (file)
        fclose(file);
    return kib * 1024;
}

static uint64_t peak_bytes(void)
{
    return ask("/proc/self/status", "VmHWM: %llu");
}

/* While all ranks stand here. */
static uint64_t resident_bytes(eo_rendezvous *rendezvous)
{
    char mine = 0, all[RANKS_MAX];
    must(eo_rendezvous_all_gather(rendezvous, &mine, 1, all), "barrier");
    const uint64_t bytes = ask("/proc/self/smaps_rollup", "Pss: %llu");
    must(eo_rendezvous_all_gather(rendezvous, &mine, 1, all), "barrier");
    return bytes;
}

/* The peak begins anew from what is resident now. */
static void forget_peak(void)
{
    FILE *file = fopen("/proc/self/clear_refs", "w");
    if (file) {
        fputs("5", file);
        fclose(file);
    }
}

static void write_log(void *user, eo_log_level level, const char *text)
{
    (void)level;
    fprintf(stderr, "# rank %u: %s\n", *(const uint32_t *)user, text);
}

static void tell_sizes(const eo_model *model, struct told *mine)
{
    eo_parameter_info info;
    uint64_t layers[64] = {0};
    for (uint32_t k = 0; k < eo_model_parameter_count(model); k++) {
        must(eo_model_parameter(model, k, &info), "parameter");
        layers[info.layer] += info.element_count * sizeof(float);
        mine->model_bytes += info.element_count * sizeof(float);
    }
    for (uint32_t l = 0; l < 64; l++)
        mine->layer_bytes = layers[l] > mine->layer_bytes ? layers[l] : mine->layer_bytes;
}

static void start(const struct run *run, const eo_transformer *transformer, eo_runtime *runtime)
{
    struct tool_problem problem = {""};
    struct tool_import import;
    if (!run->from_files) {
        must(eo_transformer_initialise(transformer, runtime, SEED), "initialise");
        return;
    }
    eo_status status = tool_import_open(&import, path, &problem);
    if (status >= 0)
        status = tool_import_bind(&import, eo_transformer_model(transformer), &problem);
    if (status >= 0)
        status = tool_import_load(&import, runtime, &problem);
    must(status, problem.text);
    tool_import_fini(&import);
}

static void live(const struct run *run, uint32_t rank, pid_t parent)
{
    const eo_log log = {.write = write_log, .user = &rank, .level = EO_LOG_ERROR};
    struct told *mine = &told[rank];
    eo_rendezvous *rendezvous;
    eo_transformer *transformer;
    eo_plan *plan;
    eo_world *world;
    eo_runtime *runtime;
    eo_plan_summary summary;
    char job[32];
    snprintf(job, sizeof(job), "memory-%ld-%u", (long)parent, run->rank_count);
    must(eo_rendezvous_create(&rendezvous, &(eo_rendezvous_params){
        .rank = rank, .rank_count = run->rank_count, .local_rank = rank, .local_count = run->rank_count, .job = job,
        .log = &log}), "rendezvous");
    must(eo_world_create_joined(&world, &(eo_world_join_params){.rendezvous = rendezvous, .log = &log}), "world");
    must(eo_transformer_create(&transformer, eo_transformer_params(.config = config, .seq = 8, .log = &log)), "model");
    must(eo_plan_create(&plan, eo_transformer_model(transformer), eo_plan_params(.rank_count = run->rank_count,
                                                                                 .log = &log)), "plan");
    tell_sizes(eo_transformer_model(transformer), mine);
    eo_plan_get_summary(plan, &summary);
    mine->arena_bytes = summary.arena_bytes;
    mine->shard_bytes = 4 * mine->model_bytes / run->rank_count; /* weight, gradient, two of the optimizer */
    const uint64_t before = resident_bytes(rendezvous);
    must(eo_runtime_create(&runtime, eo_runtime_params(.plan = plan, .world = world, .memory = run->memory, .log = &log)),
         "runtime");
    forget_peak();
    const uint64_t created = peak_bytes();
    start(run, transformer, runtime);
    mine->filling_bytes = peak_bytes() - created;
    mine->grown_bytes = resident_bytes(rendezvous) - before;
    must(tool_weights_hash(runtime, &mine->hash), "hash");
    if (run->exports) {
        struct tool_problem problem = {""};
        const struct tool_export_settings settings = {.path = path, .file_bytes = (uint64_t)20 << 20};
        const struct tool_export_model model = {.model = eo_transformer_model(transformer),
                                                .config = eo_transformer_get_params(transformer)->config};
        must(tool_export_weights(&settings, &model, runtime, rank == 0, NULL, &problem), problem.text);
    }
    eo_runtime_destroy(&runtime);
    eo_world_destroy(&world);
    eo_plan_destroy(&plan);
    eo_transformer_destroy(&transformer);
    eo_rendezvous_destroy(&rendezvous);
    mine->good = true;
}

static bool run_ranks(const struct run *run)
{
    pid_t children[RANKS_MAX];
    const pid_t parent = getpid();
    bool good = true;
    memset(told, 0, RANKS_MAX * sizeof(*told));
    fflush(stdout);
    for (uint32_t r = 0; r < run->rank_count; r++) {
        children[r] = fork();
        if (children[r] == 0) {
            alarm(100); /* nothing is left of a run that hangs */
            live(run, r, parent);
            _exit(0);
        }
    }
    for (uint32_t r = 0; r < run->rank_count; r++) {
        int status = 0;
        waitpid(children[r], &status, 0);
        good = good && status == 0 && told[r].good;
    }
    return good;
}

static double mib(uint64_t bytes)
{
    return (double)bytes / (1 << 20);
}

/* Of a rank. */
static struct told most_of(const struct run *run, bool *good, uint64_t *hash)
{
    struct told most = told[0];
    *hash = *hash ? *hash : told[0].hash;
    for (uint32_t r = 0; r < run->rank_count; r++) {
        most.grown_bytes += r ? told[r].grown_bytes : 0;
        most.filling_bytes = told[r].filling_bytes > most.filling_bytes ? told[r].filling_bytes : most.filling_bytes;
        *good = *good && told[r].hash == *hash;
    }
    most.grown_bytes /= run->rank_count; /* what ranks share is divided among them as it happens */
    return most;
}

int main(void)
{
    static const struct run runs[] = {
        {8, false, true, EO_MEMORY_STATIC},          {1, false, false, EO_MEMORY_STATIC},
        {2, false, false, EO_MEMORY_DYNAMIC_MALLOC}, {3, false, false, EO_MEMORY_DYNAMIC_MALLOC},
        {4, false, false, EO_MEMORY_STATIC},         {8, true, false, EO_MEMORY_DYNAMIC_MALLOC},
        {3, true, false, EO_MEMORY_STATIC},          {4, true, false, EO_MEMORY_DYNAMIC_MALLOC}};
    enum { RUN_COUNT = sizeof(runs) / sizeof(runs[0]) };
    const uint64_t beside = 4 << 20; /* timelines, pinned pieces, stacks, pages of libraries */
    uint64_t hash = 0;
    told = mmap(NULL, RANKS_MAX * sizeof(*told), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    const char *temporary = getenv("TMPDIR");
    snprintf(folder, sizeof(folder), "%s/evenodd-memory-XXXXXX", temporary ? temporary : "/tmp");
    if (told == MAP_FAILED || !mkdtemp(folder))
        return 1;
    snprintf(path, sizeof(path), "%s/model", folder);
    for (int i = 0; i < RUN_COUNT; i++) {
        const struct run *run = &runs[i];
        const bool is_static = run->memory == EO_MEMORY_STATIC;
        bool good = run_ranks(run);
        const struct told most = most_of(run, &good, &hash);
        const uint64_t bound = is_static ? most.arena_bytes : most.shard_bytes + 2 * most.layer_bytes;
        good = good && most.grown_bytes <= bound + beside && most.filling_bytes <= 2 * most.layer_bytes + beside;
        tap(good,
            "%u ranks from %s, %s: a rank grew by %.1f MiB (%.1f while it was filled); shards and two layers are %.1f + "
            "%.1f, its arena %.1f, the model's %.1f; weights_hash %016llx",
            run->rank_count, run->from_files ? "files" : "a seed", is_static ? "static" : "dynamic", mib(most.grown_bytes),
            mib(most.filling_bytes), mib(most.shard_bytes), mib(2 * most.layer_bytes), mib(most.arena_bytes),
            mib(4 * most.model_bytes), (unsigned long long)told[0].hash);
    }
    char command[sizeof(folder) + 16];
    snprintf(command, sizeof(command), "rm -rf '%s'", folder);
    return system(command) != 0 || tap_end();
}
