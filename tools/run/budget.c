/* SPDX-License-Identifier: MIT */
#include "tools/run/budget.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "tools/run/machine/memory_check.h"
#include "tools/run/machine/trial.h"
#include "tools/planning/bucketing.h"

/* ---- rates ------------------------------------------------------------------------------------------------------ */

/* What the ranks tell each other. */
struct told {
    struct tool_rates rates;
    struct tool_kept_choice kept; /* rank 0's counts */
    uint64_t budget_bytes; /* 0: no budget */
    uint64_t is_available;
};

static double mib(uint64_t bytes)
{
    return (double)bytes / (1 << 20);
}

static double seconds_now(void)
{
    return (double)tool_now_ns() * 1e-9;
}

/* Of all threads of this process's ranks together. */
static double products_rate(eo_team *team, eo_dtype dtype)
{
    static const uint64_t size = 768;
    const eo_product product = {.dtype = dtype, .m = size, .n = size, .k = size, .transpose_b = true};
    double speed = 0;
    return eo_product_measure(team, &product, &speed) >= 0 ? speed : 0;
}

struct sweep {
    float *values;
    uint64_t count, parts;
    bool fills;
};

static void sweep_part(void *arg, uint32_t index)
{
    const struct sweep *sweep = arg;
    const uint64_t part = sweep->count / sweep->parts;
    float *values = sweep->values + index * part;
    for (uint64_t i = 0; i < part; i++)
        values[i] = sweep->fills ? 1.0f : values[i] * 0.5f + 1.0f;
}

/* Of a rank: nine tenths of the memory that is free now and that no process takes beside its plans; when this process
 * `has_grown` by measuring, it has taken that. EO_ERR_NO_MEMORY: none is free. */
static eo_status find_free(const struct tool_options *o, bool has_grown, uint64_t *bytes, struct tool_problem *problem)
{
    const char *bound = "";
    const uint64_t available =
        tool_process_memory_available(tool_options_processes(o), tool_options_process_threads(o), &bound);
    const uint64_t beside = tool_job_beside_plans(o), taken = has_grown ? 0 : beside;
    *bytes = available > taken ? (available - taken) / 10 * 9 / tool_options_host_ranks(o) : 0;
    return *bytes
               ? EO_OK
               : tool_problem_set(problem, EO_ERR_NO_MEMORY,
                                  "not enough memory for any plan: %.0f MiB are available%s, and the program and its threads "
                                  "take %.0f beside it; give fewer --threads, or more memory",
                                  mib(available), bound, mib(beside));
}

/* Read and written, beyond the caches where there is room for it. */
static double memory_rate(const eo_team *team, uint64_t free_bytes)
{
    enum { ROUNDS = 4, BYTES_MAX = 128 << 20 };
    const eo_parallel parallel = eo_team_parallel((eo_team *)team);
    struct sweep sweep = {.count = (free_bytes / 2 < BYTES_MAX ? free_bytes / 2 : BYTES_MAX) / sizeof(float),
                          .parts = parallel.thread_count ? parallel.thread_count : 1};
    double best = 0;
    const size_t bytes = sweep.count * sizeof(float);
    sweep.values = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0); /* a heap would keep it */
    if (sweep.values == MAP_FAILED)
        return 0;
    (void)madvise(sweep.values, bytes, MADV_HUGEPAGE); /* as a plan's memory; a wish */
    for (int round = 0; round < ROUNDS; round++) {
        /* The first makes pages, by the thread that uses them. A page that is read first is made twice, slowly. */
        sweep.fills = round == 0;
        const double begin = seconds_now();
        if (parallel.run)
            parallel.run(parallel.team, (uint32_t)sweep.parts, sweep_part, &sweep);
        else
            sweep_part(&sweep, 0);
        const double rate = 2.0 * (double)sweep.count * sizeof(float) / (seconds_now() - begin);
        best = round > 0 && rate > best ? rate : best;
    }
    munmap(sweep.values, bytes);
    return best;
}

static void keep_best(double *best, double found)
{
    *best = found > *best ? found : *best;
}

/* One rank's copies to and from disk. */
struct disk_stream {
    const char *folder;
    struct tool_log_catch log_catch;
    double bytes_per_s;
    eo_status status;
};

static void measure_stream(void *arg, uint32_t index)
{
    struct disk_stream *stream = (struct disk_stream *)arg + index;
    const eo_log log = tool_job_log(&stream->log_catch);
    stream->status = eo_storage_measure(stream->folder, &log, &stream->bytes_per_s);
}

/* Of all ranks together, which copy at one time: a disk gives several more than one. `fastest` keeps what was found before.
 * Without a team, of one. */
static eo_status measure_disk(const struct tool_options *o, eo_team *team, uint32_t ranks, double *fastest,
                              struct tool_problem *reason)
{
    enum { STREAMS_MAX = 4 }; /* for memory, and for disks that more would not make faster */
    struct disk_stream streams[STREAMS_MAX];
    const eo_parallel parallel = team ? eo_team_parallel(team) : (eo_parallel){0};
    const uint32_t count = !parallel.run ? 1 : ranks < STREAMS_MAX ? ranks : STREAMS_MAX;
    double sum = 0;
    eo_status status = EO_OK;
    for (uint32_t i = 0; i < count; i++) {
        streams[i] = (struct disk_stream){.folder = o->offload_folder};
        tool_log_catch_init(&streams[i].log_catch);
    }
    if (parallel.run)
        parallel.run(parallel.team, count, measure_stream, streams);
    else
        measure_stream(streams, 0);
    for (uint32_t i = 0; i < count && status >= 0; i++) {
        const struct disk_stream *stream = &streams[i];
        status = stream->status;
        sum += stream->bytes_per_s;
        if (status < 0)
            (void)tool_problem_set(reason, status, "%s",
                                   stream->log_catch.text[0] ? stream->log_catch.text : eo_status_text(status));
    }
    if (status >= 0)
        keep_best(fastest, sum);
    return status;
}

/* What is planned, and of which model. */
struct subject {
    eo_transformer_config config;
    struct tool_plan_settings settings;
};

static eo_status find_subject(const struct tool_options *o, struct subject *out, struct tool_problem *problem)
{
    out->settings = o->plan;
    EO_TRY(tool_job_config(o, &out->config, problem));
    tool_plan_settings_complete(&out->settings, &out->config, 256, tool_options_on_gpu(o));
    return tool_plan_settings_check(&out->settings, out->config.layer_count, out->config.tied_head, problem);
}

/* A model that cannot be made is told of later. Without a trial predictions take the rates. It takes no more memory than the
 * budget, or than there is. */
static eo_status try_out(const struct tool_options *o, uint32_t here, uint32_t device_index, uint64_t available,
                         struct tool_rates *out, struct tool_problem *problem)
{
    const eo_log silence = {0};
    struct subject subject;
    EO_TRY(find_subject(o, &subject, problem));
    const struct tool_trial trial = {.settings = &subject.settings,
                                     .config = &subject.config,
                                     .ranks = here,
                                     .device_index = device_index,
                                     .most_bytes = o->budget_bytes && o->budget_bytes < available ? o->budget_bytes : available,
                                     .place_threads = o->place_threads,
                                     .product_cache = o->plan_cache,
                                     .offload_folder = o->offload_folder,
                                     .may_offload = !tool_options_on_gpu(o) && out->disk_bytes_per_s > 0 &&
                                                    o->plan.optimizer != EO_OPTIMIZER_MUON, /* its plans refuse it */
                                     .disk_cache_bytes = (uint64_t)out->disk_cache_bytes};
    const eo_status status = tool_trial_run(&trial, &silence, out);
    if (status < 0)
        printf("budget: blocks were not tried out (%s); steps are predicted by the rates alone\n",
               status == EO_ERR_NO_MEMORY ? "two and the head need more memory" : eo_status_text(status));
    return EO_OK;
}

static eo_status check_rates(const struct tool_rates *rates, uint64_t free_bytes, struct tool_problem *problem)
{
    const char *lacks = tool_rates_lack(rates);
    return lacks ? tool_problem_set(
                       problem, EO_ERR_INVALID,
                       "--budget: %s could not be measured in the %.0f MiB that are free for a rank; give --rates FILE", lacks,
                       mib(free_bytes))
                 : EO_OK;
}

/* Memory for the page cache of a file here, whatever the rates say: it is really taken. A folder that does not serve is told by
 * who measures it. */
static void count_cache(const struct tool_options *o, struct tool_rates *rates)
{
    const eo_log silence = {0};
    uint64_t bytes = 0;
    if (tool_options_on_gpu(o) || rates->disk_bytes_per_s == 0 ||
        eo_storage_cache_bytes(o->offload_folder, &silence, &bytes) < 0)
        return;
    rates->disk_cache_bytes = (double)bytes > rates->disk_cache_bytes ? (double)bytes : rates->disk_cache_bytes;
}

static eo_status measure_rates(const struct tool_options *o, struct tool_rates *out, struct tool_problem *no_disk,
                               struct tool_problem *problem)
{
    enum { ROUNDS = 3 };
    const uint32_t here = o->world_ranks ? 1 : o->plan.ranks;
    const uint64_t threads = (uint64_t)here * o->plan.threads;
    uint64_t free_bytes;
    struct tool_log_catch caught;
    EO_TRY(find_free(o, false, &free_bytes, problem));
    tool_log_catch_init(&caught);
    const eo_log log = tool_job_log(&caught);
    eo_team *team = NULL;
    const eo_status status = eo_team_create_on(
        &team,
        eo_team_params(.thread_count = threads < EO_TEAM_THREADS_MAX ? (uint32_t)threads : EO_TEAM_THREADS_MAX, .log = &log));
    if (status < 0)
        return tool_problem_set(problem, status, "--budget: no threads to measure this machine with: %s",
                                caught.text[0] ? caught.text : eo_status_text(status));
    /* Not all at one time, which another program may take for itself. */
    for (int round = 0; round < ROUNDS; round++) {
        keep_best(&out->products_flops_per_s, products_rate(team, o->plan.dtype) / here);
        if (o->plan.optimizer == EO_OPTIMIZER_MUON && o->plan.dtype != EO_DTYPE_FP32)
            keep_best(&out->fp32_products_flops_per_s, products_rate(team, EO_DTYPE_FP32) / here);
        keep_best(&out->memory_bytes_per_s, memory_rate(team, free_bytes) / here);
        if (!no_disk->text[0])
            (void)measure_disk(o, team, here, &out->disk_bytes_per_s, no_disk);
    }
    out->disk_bytes_per_s /= here;
    out->link_bytes_per_s = out->memory_bytes_per_s; /* ranks of one machine copy through it */
    eo_team_destroy(&team);
    count_cache(o, out);
    EO_TRY(check_rates(out, free_bytes, problem));
    EO_TRY(find_free(o, false, &free_bytes, problem));
    return try_out(o, here, 0, free_bytes, out, problem);
}

/* Of the first matrix of an MLP, for all tokens of a micro-batch. */
static double gpu_products_rate(eo_team *team, const struct subject *subject, eo_dtype dtype)
{
    const eo_product product = {.dtype = dtype, .m = (uint64_t)subject->settings.batch * subject->settings.seq,
                                .n = subject->config.mlp_width ? subject->config.mlp_width : 4 * subject->config.width,
                                .k = subject->config.width, .transpose_b = true};
    double speed = 0;
    return eo_product_measure(team, &product, &speed) >= 0 ? speed : 0;
}

static eo_status measure_gpu_products(const struct tool_options *o, uint32_t device_index, const eo_log *log,
                                      struct tool_rates *out, struct tool_problem *problem)
{
    struct subject subject;
    eo_team *team = NULL;
    EO_TRY(find_subject(o, &subject, problem));
    EO_TRY(eo_team_create_on(&team, eo_team_params(.device = o->plan.device, .device_index = device_index, .log = log)));
    out->products_flops_per_s = gpu_products_rate(team, &subject, o->plan.dtype);
    if (o->plan.optimizer == EO_OPTIMIZER_MUON && o->plan.dtype != EO_DTYPE_FP32)
        out->fp32_products_flops_per_s = gpu_products_rate(team, &subject, EO_DTYPE_FP32);
    eo_team_destroy(&team);
    return EO_OK;
}

/* Ranks that share a GPU share its speeds. What is offloaded goes over its link to the host, for which the disk's rate stands. */
static eo_status measure_gpu(const struct tool_options *o, const struct tool_job_world *world, struct tool_rates *out,
                             struct tool_problem *problem)
{
    const uint32_t here = o->world_ranks ? 1 : o->plan.ranks, first = world ? world->environment.local_rank : 0;
    struct tool_log_catch log_catch;
    eo_device_facts facts;
    eo_device_rates rates;
    tool_log_catch_init(&log_catch);
    const eo_log log = tool_job_log(&log_catch);
    eo_status status = eo_device_ask(&facts, o->plan.device, first, &log);
    if (status >= 0)
        status = eo_device_measure(&rates, o->plan.device, first, &log);
    if (status >= 0)
        status = measure_gpu_products(o, first, &log, out, problem);
    if (status < 0)
        return tool_problem_set(problem, status, "--budget: the GPU's speeds could not be measured: %s; without a GPU give --rates "
                                "FILE", log_catch.text[0] ? log_catch.text : eo_status_text(status));
    const uint32_t sharers = (here + facts.device_count - 1) / facts.device_count;
    out->products_flops_per_s /= sharers;
    out->fp32_products_flops_per_s /= sharers;
    out->memory_bytes_per_s = out->link_bytes_per_s = rates.memory_bytes_per_s / sharers;
    out->disk_bytes_per_s = rates.host_bytes_per_s / sharers;
    EO_TRY(try_out(o, here, first, facts.free_bytes / 10 * 9 / sharers, out, problem));
    return check_rates(out, facts.free_bytes / sharers, problem);
}

/* A folder that is named now has a disk, whatever the run before had. */
static bool uses_kept_rates(const struct tool_options *o, const struct tool_kept_choice *kept)
{
    return kept->is_there && !o->rates_path && !o->measures_rates &&
           (kept->rates.disk_bytes_per_s > 0 || !tool_option_given(o, "offload-folder"));
}

/* Without a disk that serves, where nobody has named one, all stays in memory; `no_disk` becomes the reason. */
static eo_status find_rates(const struct tool_options *o, const struct tool_kept_choice *kept,
                            const struct tool_job_world *world, struct tool_rates *out, struct tool_problem *no_disk,
                            struct tool_problem *problem)
{
    double unused = 0;
    const bool is_named = tool_option_given(o, "offload-folder");
    if (!o->rates_path && !uses_kept_rates(o, kept) && tool_options_on_gpu(o)) {
        EO_TRY(measure_gpu(o, world, out, problem));
    } else if (!o->rates_path && !uses_kept_rates(o, kept)) {
        EO_TRY(measure_rates(o, out, no_disk, problem));
    } else {
        *out = kept->rates;
        if (o->rates_path)
            EO_TRY(tool_rates_read(o->rates_path, out, problem));
        if (out->disk_bytes_per_s == 0)
            (void)tool_problem_set(no_disk, EO_OK, "%s has no 'disk_bytes_per_s'",
                                   o->rates_path ? o->rates_path : "the checkpoint");
        else if (!o->plan_only && !is_named && !tool_options_on_gpu(o) && measure_disk(o, NULL, 1, &unused, no_disk) < 0)
            out->disk_bytes_per_s = 0;
        if (!o->plan_only) /* which touches no disk */
            count_cache(o, out);
    }
    if (out->disk_bytes_per_s > 0 || !is_named)
        return EO_OK;
    return tool_problem_set(problem, EO_ERR_INVALID, "--budget: the disk of --offload-folder cannot be used: %s",
                            no_disk->text);
}

/* Of the slowest rank in each, and of what is available the least; what was given is to be the same. */
static eo_status agree(struct tool_job_world *world, const struct tool_options *o, struct told *own, struct tool_problem *problem)
{
    if (!world)
        return EO_OK;
    const uint32_t count = world->environment.rank_count;
    struct told *all = calloc(count, sizeof(*all));
    eo_status status = all ? eo_rendezvous_all_gather(world->rendezvous, own, sizeof(*own), all) : EO_ERR_NO_MEMORY;
    if (status < 0) {
        free(all);
        return tool_problem_set(problem, status, "the ranks could not compare their speeds: %s", eo_status_text(status));
    }
    for (uint32_t r = 0; r < count && status >= 0; r++) {
        const bool differs = all[r].is_available != all[0].is_available ||
                             (!o->budget_available && all[r].budget_bytes != all[0].budget_bytes);
        if (differs)
            status = tool_problem_set(problem, EO_ERR_INVALID, "the ranks were started differently: ranks 0 and %u have another "
                                      "--budget; start all with the same model, data and options", r);
        own->budget_bytes = all[r].budget_bytes < own->budget_bytes ? all[r].budget_bytes : own->budget_bytes;
        tool_rates_slower(&own->rates, &all[r].rates);
    }
    own->kept = all[0].kept;
    free(all);
    return status;
}

/* Measuring leaves heaps and stacks behind. Read when all ranks have measured: until then they hold memory for it. */
static eo_status bound_by_available(struct tool_job_world *world, const struct tool_options *o, struct told *told,
                                    struct tool_problem *problem)
{
    const uint32_t count = world ? world->environment.rank_count : 1;
    uint64_t own = 0, *all = calloc(count, sizeof(*all));
    eo_status status = all ? find_free(o, true, &own, problem)
                           : tool_problem_set(problem, EO_ERR_NO_MEMORY, "--budget: no memory for the ranks' answers");
    if (status >= 0 && world) {
        status = eo_rendezvous_all_gather(world->rendezvous, &own, sizeof(own), all);
        if (status < 0)
            (void)tool_problem_set(problem, status, "the ranks could not compare their memory: %s", eo_status_text(status));
    } else if (status >= 0) {
        all[0] = own;
    }
    for (uint32_t r = 0; r < count && status >= 0; r++)
        told->budget_bytes = all[r] < told->budget_bytes ? all[r] : told->budget_bytes;
    free(all);
    return status;
}

/* ---- the choice ------------------------------------------------------------------------------------------------- */

static void take(struct tool_options *o, const struct tool_budget_option *option, const struct tool_rates *rates)
{
    const uint32_t head_chunks = o->plan.head_chunks;
    tool_budget_take(&o->plan, &option->settings);
    o->head_is_chosen = option->changes_bits;
    if (!option->changes_bits) /* may stay open */
        o->plan.head_chunks = head_chunks;
    o->rates = *rates;
}

/* What a rank's checkpoints take beside its plan: a copy of all that they save, unless layers lie on disk. */
static eo_status find_copy(const struct tool_options *o, const eo_transformer_config *config,
                           const struct tool_budget_option *option, uint64_t *bytes, struct tool_problem *problem)
{
    const eo_log silence = {0};
    struct tool_options own = *o;
    eo_transformer *transformer = NULL;
    eo_plan *plan = NULL;
    eo_plan_summary summary;
    take(&own, option, &o->rates);
    const eo_status status = tool_job_plan(&own, config, &silence, &transformer, &plan);
    if (status < 0)
        return tool_problem_set(problem, status, "--budget: the plan that was chosen: %s", eo_status_text(status));
    eo_plan_get_summary(plan, &summary);
    eo_plan_destroy(&plan);
    eo_transformer_destroy(&transformer);
    *bytes = (tool_job_estimate(&own, &summary, 1) - tool_job_beside_plans(&own)) / tool_options_host_ranks(&own) -
             summary.arena_bytes;
    return EO_OK;
}

/* What is available has to hold a checkpoint's copy too, which only plans with all layers in memory need: the largest budget
 * whose choice fits with its copy. Less the copy fits in any case. request->bytes becomes what plans may take. */
static eo_status find_with_copy(const struct tool_options *o, const struct subject *subject,
                                struct tool_budget_request *request, bool tells, struct tool_budget_choice *choice,
                                struct tool_problem *problem)
{
    enum { ROUNDS = 6 };
    uint64_t copy_bytes = 0;
    EO_TRY(find_copy(o, &subject->config, &choice->chosen, &copy_bytes, problem));
    if (tells && copy_bytes)
        printf("budget: with all layers in memory a checkpoint's copy takes %.1f MiB a rank beside the plan\n",
               mib(copy_bytes));
    const uint64_t available = request->bytes, rest = available > copy_bytes ? available - copy_bytes : 1;
    if (copy_bytes == 0 || choice->chosen.memory_bytes <= rest) {
        request->bytes = copy_bytes ? rest : available;
        return EO_OK;
    }
    uint64_t fits = rest, exceeds = available;
    for (int round = 0; round < ROUNDS; round++) {
        request->bytes = fits + (exceeds - fits) / 2;
        const bool is_good = tool_budget_find(&subject->settings, &subject->config, request, choice, problem) < 0 ||
                             choice->chosen.settings.offload_layers || choice->chosen.memory_bytes <= rest;
        *(is_good ? &fits : &exceeds) = request->bytes;
    }
    request->bytes = fits;
    EO_TRY(tool_budget_find(&subject->settings, &subject->config, request, choice, problem));
    request->bytes = choice->chosen.settings.offload_layers ? available : rest;
    return EO_OK;
}

static eo_status choose(struct tool_options *o, struct told *told, bool tells, struct tool_budget_option *chosen,
                        struct tool_problem *problem)
{
    struct tool_budget_choice choice;
    struct subject subject;
    char text[TOOL_RATES_TEXT_MAX];
    EO_TRY(find_subject(o, &subject, problem));
    struct tool_budget_request request = {told->budget_bytes, o->budget_host_bytes, told->rates, o->budget_may_change_bits};
    EO_TRY(tool_budget_find(&subject.settings, &subject.config, &request, &choice, problem));
    if (o->budget_available && o->saves)
        EO_TRY(find_with_copy(o, &subject, &request, tells, &choice, problem));
    take(o, &choice.chosen, &told->rates);
    *chosen = choice.chosen;
    told->budget_bytes = request.bytes;
    if (!tells)
        return EO_OK;
    tool_rates_text(&told->rates, tool_options_on_gpu(o), text, sizeof(text));
    printf("rates of a rank%s: %s\n", uses_kept_rates(o, &told->kept) ? ", of the checkpoint" : "", text);
    tool_budget_print(stdout, "", &choice, &request);
    return EO_OK;
}

/* What cannot be planned so (another model's) is told later, without it. */
static eo_status go_on(struct tool_options *o, const struct tool_kept_choice *kept, bool tells,
                       struct tool_budget_option *chosen, struct tool_problem *problem)
{
    const eo_log silence = {0};
    struct tool_problem unused;
    struct tool_budget_option option;
    struct subject subject;
    char text[TOOL_BUDGET_TEXT_MAX];
    if (o->memory != EO_MEMORY_STATIC)
        return EO_OK;
    EO_TRY(find_subject(o, &subject, problem));
    const uint32_t head_chunks = subject.settings.head_chunks;
    tool_kept_choice_apply(kept, o, &subject.settings);
    if (tool_plan_settings_check(&subject.settings, subject.config.layer_count, subject.config.tied_head, &unused) < 0 ||
        tool_budget_evaluate(&subject.settings, &subject.config, &kept->rates, false, &silence, &option) < 0)
        return EO_OK;
    option.changes_bits = subject.settings.head_chunks != head_chunks;
    take(o, &option, &kept->rates);
    *chosen = option;
    tool_budget_text(&option, text, sizeof(text));
    if (tells)
        printf("choice of the checkpoint: %s; %.1f MiB a rank, predicted %.3f s a step; --budget, --recompute, --slots and "
               "--offload-layers change it\n",
               text, mib(option.arena_bytes), option.step_s);
    return EO_OK;
}

/* A simulated link is known. Each rank receives all of a buffer but its own part. */
static void take_fabric(const struct tool_options *o, struct tool_rates *rates)
{
    if (o->fabric_gigabytes_per_s == 0)
        return;
    const double group = o->plan.ranks;
    rates->link_bytes_per_s = o->fabric_gigabytes_per_s * 1e9 * (group > 1 ? group / (group - 1) : 1);
    rates->link_latency_s = o->fabric_latency_us * 1e-6;
}

static bool is_chosen(const struct tool_kept_bucketing *kept)
{
    return kept->is_there && kept->rates.products_flops_per_s > 0;
}

static eo_status choose_bucketing(struct tool_options *o, const struct told *told, bool tells,
                                  struct tool_budget_option *chosen, struct tool_problem *problem)
{
    struct tool_bucketing_choice choice;
    const bool keeps = is_chosen(&told->kept.bucketing) && !o->rates_path && !o->measures_rates;
    struct tool_rates rates = keeps ? told->kept.bucketing.rates : told->rates;
    struct subject subject;
    EO_TRY(find_subject(o, &subject, problem));
    o->bucketing_rates = rates;
    take_fabric(o, &rates);
    EO_TRY(tool_bucketing_choose(&subject.settings, &subject.config, &rates, told->budget_bytes, &choice, problem));
    o->plan.gather_run = subject.settings.gather_run;
    o->plan.gradient_run = subject.settings.gradient_run;
    if (chosen->step_s > 0)
        *chosen = choice.chosen;
    if (tells)
        tool_bucketing_print(stdout, &choice);
    return EO_OK;
}

static void leave_out(const struct tool_kept_bucketing *kept, bool tells, const char *why)
{
    if (tells)
        printf("bucketing of the checkpoint, %u,%u, is left out: %s; --bucketing changes it\n", kept->gather_run, kept->gradient_run,
               why);
}

/* As go_on. */
static eo_status go_on_joined(struct tool_options *o, const struct tool_kept_bucketing *kept, bool tells,
                              struct tool_problem *problem)
{
    const eo_log silence = {0};
    struct subject subject;
    struct tool_options joined = *o;
    eo_transformer *transformer = NULL;
    eo_plan *plan;
    if (o->memory != EO_MEMORY_STATIC || o->plan.no_prefetch) {
        leave_out(kept, tells, "it is for planned memory with prefetch");
        return EO_OK;
    }
    EO_TRY(find_subject(o, &subject, problem));
    joined.plan.gather_run = kept->gather_run;
    joined.plan.gradient_run = kept->gradient_run;
    const eo_status status = tool_job_plan(&joined, &subject.config, &silence, &transformer, &plan);
    eo_plan_destroy(&plan);
    eo_transformer_destroy(&transformer);
    if (status < 0) {
        leave_out(kept, tells, "it cannot be planned with these options");
        return EO_OK;
    }
    o->plan.gather_run = kept->gather_run;
    o->plan.gradient_run = kept->gradient_run;
    o->bucketing_rates = kept->rates;
    if (tells)
        printf("bucketing of the checkpoint: %u,%u; --bucketing changes it\n", kept->gather_run, kept->gradient_run);
    return EO_OK;
}

eo_status tool_job_budget(struct tool_options *o, const struct tool_checkpoint_options *checkpoint,
                          struct tool_job_world *world, bool tells, struct tool_budget_option *chosen,
                          struct tool_problem *problem)
{
    struct tool_problem no_disk = {.text = ""};
    struct told told = {.budget_bytes = o->budget_bytes, .is_available = o->budget_available};
    tool_kept_choice_find(checkpoint, &told.kept);
    o->kept_window = told.kept.window;
    if (o->budget_available)
        EO_TRY(find_free(o, false, &told.budget_bytes, problem));
    if (!told.budget_bytes && o->bucketing_auto) /* what needs no disk */
        (void)tool_problem_set(&no_disk, EO_OK, "not asked for");
    if (told.budget_bytes || o->bucketing_auto)
        EO_TRY(find_rates(o, &told.kept, world, &told.rates, &no_disk, problem));
    EO_TRY(agree(world, o, &told, problem)); /* of ranks without one too: all make the same exchanges */
    o->kept_window = told.kept.window;
    if (o->budget_available)
        EO_TRY(bound_by_available(world, o, &told, problem));
    if (told.budget_bytes && tells && told.rates.disk_bytes_per_s == 0)
        printf("budget: only plans without a disk: %s\n", no_disk.text[0] ? no_disk.text : "another rank has none");
    const bool has_bucketing = told.kept.bucketing.is_there && !tool_option_given(o, "bucketing");
    const bool chooses_again = told.budget_bytes && is_chosen(&told.kept.bucketing); /* a new budget: as much of it as fits */
    if (has_bucketing && !chooses_again)
        EO_TRY(go_on_joined(o, &told.kept.bucketing, tells, problem));
    eo_status status = told.budget_bytes ? choose(o, &told, tells, chosen, problem) : EO_OK;
    if (status < 0 && has_bucketing && (o->plan.gather_run > 1 || o->plan.gradient_run > 1)) {
        leave_out(&told.kept.bucketing, tells, "the budget has no room for it");
        o->plan.gather_run = o->plan.gradient_run = 1;
        status = choose(o, &told, tells, chosen, problem);
    }
    EO_TRY(status);
    if (!told.budget_bytes && told.kept.is_there)
        EO_TRY(go_on(o, &told.kept, tells, chosen, problem));
    if (o->bucketing_auto || (has_bucketing && chooses_again))
        EO_TRY(choose_bucketing(o, &told, tells, chosen, problem));
    if (told.budget_bytes)
        return EO_OK;
    if (tool_option_given(o, "offload-folder") && !tool_plan_settings_offload(&o->plan))
        return tool_problem_set(problem, EO_ERR_INVALID,
                                "--offload-folder needs --offload-layers N, the number of layers on "
                                "disk, --offload-activations N, or --budget BYTES");
    return EO_OK;
}
