/* SPDX-License-Identifier: MIT
 *
 * Everything before the ranks start.
 */
#include "tools/job.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "tools/memory_check.h"

#ifndef EO_SOURCE_ROOT
#define EO_SOURCE_ROOT "."
#endif

/* A GPU wants larger products than a CPU's caches do. */
static const uint64_t logits_chunk_bytes = (uint64_t)32 << 20, logits_chunk_bytes_gpu = (uint64_t)512 << 20;

uint64_t eo_job_now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* --- log --------------------------------------------------------------------------------------------------------- */

static _Thread_local struct eo_log_catch *thread_catch;

static void keep_error(struct eo_log_catch *log_catch, const char *text)
{
    pthread_mutex_lock(&log_catch->mutex);
    const size_t used = strlen(log_catch->text);
    if (!strstr(log_catch->text, text))
        snprintf(log_catch->text + used, sizeof(log_catch->text) - used, "%s%s", used ? "; " : "", text);
    pthread_mutex_unlock(&log_catch->mutex);
}

static void catch_write(void *user, eo_log_level level, const char *text)
{
    struct eo_log_catch *log_catch = user ? user : thread_catch;
    if (level == EO_LOG_ERROR && log_catch)
        keep_error(log_catch, text);
    else if (level == EO_LOG_INFO)
        printf("%s\n", text);
    else
        fprintf(stderr, "%s: %s\n", program_invocation_short_name, text);
}

eo_log eo_job_log(struct eo_log_catch *log_catch)
{
    return (eo_log){.write = catch_write, .user = log_catch,
                    .level = log_catch && log_catch->tells ? EO_LOG_INFO : EO_LOG_WARN};
}

void eo_log_catch_take(struct eo_log_catch *log_catch, char *text, size_t bytes)
{
    pthread_mutex_lock(&log_catch->mutex);
    snprintf(text, bytes, "%s", log_catch->text);
    log_catch->text[0] = '\0';
    pthread_mutex_unlock(&log_catch->mutex);
}

void eo_log_catch_init(struct eo_log_catch *log_catch)
{
    *log_catch = (struct eo_log_catch){.tells = false};
    pthread_mutex_init(&log_catch->mutex, NULL);
}

void eo_log_catch_enter(struct eo_log_catch *log_catch)
{
    thread_catch = log_catch;
}

/* --- model and plan ---------------------------------------------------------------------------------------------- */

uint32_t eo_job_head_chunks(const struct eo_options *options, const eo_transformer_config *config, uint64_t tokens)
{
    const uint64_t element_bytes = options->dtype == EO_DTYPE_BF16 ? 2 : 4;
    const uint64_t logits_bytes = tokens * config->vocabulary * element_bytes;
    const uint64_t chunk_bytes = eo_options_on_gpu(options) ? logits_chunk_bytes_gpu : logits_chunk_bytes;
    const uint64_t chunks = (logits_bytes + chunk_bytes - 1) / chunk_bytes;
    return (uint32_t)(chunks < 1 ? 1 : chunks < tokens ? chunks : tokens);
}

static uint32_t seq_of(const struct eo_options *options, const eo_transformer_config *config)
{
    return options->seq ? options->seq : config->context < 256 ? config->context : 256;
}

eo_status eo_job_plan(const struct eo_options *options, const eo_transformer_config *config, const eo_log *log,
                      eo_transformer **transformer, eo_plan **plan)
{
    const uint32_t seq = seq_of(options, config);
    *plan = NULL;
    TOOLS_TRY(eo_transformer_create(transformer, eo_transformer_params(
        .config = *config, .batch = options->batch, .seq = seq, .recompute = options->recompute,
        .recompute_blocks = options->recompute_blocks,
        .head_chunks = options->head_chunks ? options->head_chunks
                                            : eo_job_head_chunks(options, config, (uint64_t)options->batch * seq),
        .thread_count = options->threads, .half_blocks = options->half_blocks, .dtype = options->dtype,
        .reduce_dtype = options->reduce_dtype, .device = options->device,
        .token_slots = options->graph ? options->micro_batches : 1, .log = log)));
    const eo_status status = eo_plan_create(plan, eo_transformer_model(*transformer), eo_plan_params(
        .rank_count = options->ranks, .micro_batches = options->micro_batches, .gather_slots = options->gather_slots,
        .gradient_slots = options->gradient_slots, .dtype = options->dtype, .reduce_dtype = options->reduce_dtype,
        .no_prefetch = options->no_prefetch, .strategy = options->strategy, .shard_group = options->shard_group,
        .log = log));
    if (status < 0)
        eo_transformer_destroy(transformer);
    return status;
}

/* --- memory ------------------------------------------------------------------------------------------------------ */

/* Of one GPU: the ranks that share it, each with what its libraries take beside the plan. */
static uint64_t estimate_gpu(const struct eo_options *options, const eo_plan_summary *summary, uint32_t device_count)
{
    const uint64_t library_bytes = (uint64_t)64 << 20; /* workspace of the products, kernels loaded late */
    uint64_t rank_bytes = summary->arena_bytes - summary->space_bytes[EO_SPACE_HOST];
    if (options->memory != EO_MEMORY_STATIC)
        rank_bytes = summary->lower_bound_bytes + summary->lower_bound_bytes / 4;
    const uint32_t sharing = (eo_options_host_ranks(options) + device_count - 1) / device_count;
    return sharing * (rank_bytes + library_bytes);
}

uint64_t eo_job_estimate(const struct eo_options *options, const eo_plan_summary *summary, uint32_t device_count)
{
    if (eo_options_on_gpu(options))
        return estimate_gpu(options, summary, device_count);
    /* Outside the plan: program and libraries; stacks, packing buffers of the products, timelines. */
    const uint64_t process_bytes = (uint64_t)32 << 20, thread_bytes = (uint64_t)8 << 20;
    uint64_t rank_bytes = summary->arena_bytes;
    if (options->memory != EO_MEMORY_STATIC) /* copies, and what an allocator keeps and cannot use */
        rank_bytes = summary->lower_bound_bytes + summary->lower_bound_bytes / 4;
    if (options->saves) /* a copy of what is saved */
        rank_bytes += summary->category_bytes[EO_CATEGORY_MASTER] + summary->category_bytes[EO_CATEGORY_OPTIMIZER] +
                      summary->category_bytes[EO_CATEGORY_COMPUTE_SHARD];
    const uint32_t here = eo_options_host_ranks(options), processes = options->world_ranks ? here : 1;
    return processes * process_bytes + here * (rank_bytes + options->threads * thread_bytes);
}

static double mib(uint64_t bytes)
{
    return (double)bytes / (1 << 20);
}

static bool fits(const struct eo_job *job, const struct eo_options *options, const eo_transformer_config *config)
{
    const eo_log silence = {0};
    eo_transformer *transformer = NULL;
    eo_plan *plan = NULL;
    if (eo_job_plan(options, config, &silence, &transformer, &plan) < 0)
        return false;
    eo_plan_summary summary;
    eo_plan_get_summary(plan, &summary);
    eo_plan_destroy(&plan);
    eo_transformer_destroy(&transformer);
    return eo_job_estimate(options, &summary, job->device.device_count) <= job->available_bytes;
}

/* The next smaller settings that fit, as words. */
static void advise(const struct eo_job *job, char *text, size_t bytes)
{
    struct eo_options smaller = *job->options;
    for (smaller.batch /= 2; smaller.batch >= 1; smaller.batch /= 2)
        if (fits(job, &smaller, &job->config)) {
            snprintf(text, bytes, "--batch %u would fit", smaller.batch);
            return;
        }
    smaller.recompute = EO_RECOMPUTE_BLOCKS;
    smaller.recompute_blocks = UINT32_MAX;
    for (smaller.batch = job->options->batch; smaller.batch >= 1; smaller.batch /= 2)
        if (fits(job, &smaller, &job->config)) {
            snprintf(text, bytes, "--batch %u with --recompute all would fit", smaller.batch);
            return;
        }
    smaller.batch = 1;
    /* Gather and gradient buffers are held by every rank: fewer ranks in one process take less. */
    const bool is_process = smaller.world_ranks != 0;
    smaller.ranks = is_process ? smaller.ranks : 1;
    if (!is_process && job->options->ranks > 1 && fits(job, &smaller, &job->config)) {
        snprintf(text, bytes, "--ranks 1 with --batch 1 --recompute all would fit");
        return;
    }
    static const char *const by_size[] = {"gpt2-large", "gpt2-medium", "gpt2", "base", "small", "tiny"};
    for (size_t i = 0; i < sizeof(by_size) / sizeof(by_size[0]); i++) {
        eo_transformer_config config;
        if (eo_transformer_preset(by_size[i], &config) >= 0 && (!smaller.seq || smaller.seq <= config.context) &&
            fits(job, &smaller, &config)) {
            snprintf(text, bytes, "no batch of this model fits; --model %s would, with %s--batch 1 --recompute all",
                     by_size[i], is_process ? "" : "--ranks 1 ");
            return;
        }
    }
    snprintf(text, bytes, "no model fits: end other programs, or use a larger machine%s",
             is_process ? ", or fewer ranks on each" : "");
}

/* The largest categories of a rank, as words. */
static void describe_categories(const eo_plan_summary *summary, char *text, size_t bytes)
{
    size_t used = 0;
    text[0] = '\0';
    for (int c = 0; c < EO_CATEGORY_COUNT; c++) {
        const uint64_t category_bytes = summary->category_bytes_at_peak[c];
        if (category_bytes >= summary->lower_bound_bytes / 50 && used < bytes)
            used += (size_t)snprintf(text + used, bytes - used, "%s%s %.0f", used ? ", " : "",
                                     eo_category_name((eo_category)c), mib(category_bytes));
    }
}

static eo_status check_gpu_memory(const struct eo_job *job, struct eo_problem *problem)
{
    char advice[256], categories[512];
    if (job->needed_bytes <= job->available_bytes)
        return EO_OK;
    advise(job, advice, sizeof(advice));
    describe_categories(&job->summary, categories, sizeof(categories));
    return eo_problem_set(problem, EO_ERR_NO_MEMORY,
                          "not enough GPU memory for --model %s with --ranks %u --batch %u --seq %u: %.0f MiB are "
                          "needed on a GPU (%.0f MiB a rank are planned; MiB by category: %s), %.0f of %.0f MiB are "
                          "free; %s", job->options->model_name, job->options->ranks, job->shape.batch, job->shape.seq,
                          mib(job->needed_bytes), mib(job->summary.arena_bytes), categories, mib(job->available_bytes),
                          mib(job->device.total_bytes), advice);
}

static eo_status check_memory(struct eo_job *job, struct eo_problem *problem)
{
    const char *bound = "";
    job->available_bytes =
        eo_options_on_gpu(job->options) ? job->device.free_bytes : eo_process_memory_available(&bound);
    job->needed_bytes = eo_job_estimate(job->options, &job->summary, job->device.device_count);
    if (eo_options_on_gpu(job->options))
        return check_gpu_memory(job, problem);
    if (job->needed_bytes <= job->available_bytes)
        return EO_OK;
    char advice[256];
    advise(job, advice, sizeof(advice));
    return eo_problem_set(problem, EO_ERR_NO_MEMORY,
                          "not enough memory for --model %s with --ranks %u --batch %u --seq %u: %.0f MiB are needed "
                          "(%.0f MiB a rank are planned, the rest is an estimate), %.0f MiB are available%s; %s",
                          job->options->model_name, job->options->ranks, job->shape.batch, job->shape.seq,
                          mib(job->needed_bytes), mib(job->summary.arena_bytes), mib(job->available_bytes), bound, advice);
}

/* --- data -------------------------------------------------------------------------------------------------------- */

/* A frozen copy of the project's documents: figures do not change with every commit. */
static eo_status load_default_text(struct eo_data *data, struct eo_problem *problem)
{
    static const char path[] = EO_SOURCE_ROOT "/tools/default_text.txt";
    const char *const paths[] = {path};
    if (access(path, R_OK) != 0)
        return eo_problem_set(problem, EO_ERR_IO, "the default text, %s, is not there any more; name files or folders with "
                              "--text", path);
    return eo_data_load_text(data, paths, 1, problem);
}

/* Bytes are tokens of a vocabulary that has them. What was trained on a tokenizer's knows nothing of bytes. */
static eo_status check_vocabulary(const struct eo_job *job, struct eo_problem *problem)
{
    const struct eo_options *o = job->options;
    if (o->tokens_paths)
        return EO_OK;
    if (o->init_path && job->config.vocabulary != 256)
        return eo_problem_set(problem, EO_ERR_INVALID, "--init %s: its vocabulary of %u is a tokenizer's, and --text gives "
                              "bytes, 0 to 255, which mean nothing to it; turn the text into a token file with the model's own "
                              "tokenizer (\"Token files\" in docs/interchange.md shows how), and train with --tokens FILE.bin",
                              o->init_path, job->config.vocabulary);
    if (job->config.vocabulary < 256)
        return eo_problem_set(problem, EO_ERR_INVALID, "--text: bytes need a vocabulary of 256, and the model has %u; "
                              "use --tokens", job->config.vocabulary);
    return EO_OK;
}

static eo_status load_data(struct eo_job *job, struct eo_problem *problem)
{
    const struct eo_options *o = job->options;
    const struct eo_token_files files = {o->tokens_paths, o->tokens_path_count, o->val_tokens_path};
    TOOLS_TRY(check_vocabulary(job, problem));
    if (o->tokens_paths)
        TOOLS_TRY(eo_data_map_files(&job->data, &files, job->config.vocabulary, job->val_every != 0, problem));
    else if (o->text_paths)
        TOOLS_TRY(eo_data_load_text(&job->data, o->text_paths, o->text_path_count, problem));
    else
        TOOLS_TRY(load_default_text(&job->data, problem));
    return eo_data_check(&job->data, &job->shape, job->val_every != 0, problem);
}

/* --- all of it --------------------------------------------------------------------------------------------------- */

static eo_status load_model_config(struct eo_job *job, struct eo_problem *problem)
{
    const char *name = job->options->model_name;
    char why[200];
    job->model_config = malloc(sizeof(*job->model_config));
    if (!job->model_config)
        return eo_problem_set(problem, EO_ERR_NO_MEMORY, "--model %s: no memory", name);
    TOOLS_TRY(eo_model_config_load(job->model_config, name, NULL, 0, problem));
    if (!eo_model_config_runs(job->model_config, why, sizeof(why)))
        return eo_problem_set(problem, EO_ERR_UNSUPPORTED, "--model %s: family %s as it is there can be planned "
                              "(memplan), not run: %s; GPT-2, Llama, Mistral, Qwen2 and Qwen3 run", name,
                              eo_config_family_name(job->model_config->family), why);
    if (job->options->init_path)
        return eo_model_config_transformer_exact(job->model_config, &job->config, problem);
    eo_model_config_transformer(job->model_config, &job->config);
    return EO_OK;
}

void eo_job_tell_model(const struct eo_job *job)
{
    const struct eo_model_config *c = job->model_config ? job->model_config : job->import.model_config;
    if (job->data.warning[0])
        fprintf(stderr, "%s: warning: %s\n", program_invocation_short_name, job->data.warning);
    for (uint32_t i = 0; c && i < c->default_count; i++)
        fprintf(stderr, "%s %s\n", i == 0 ? "the config does not say:" : "                        ", c->defaults[i]);
    if (c)
        eo_model_config_tell(c, c->source, job->options->init_path);
}

static eo_status choose_config(struct eo_job *job, struct eo_problem *problem)
{
    const struct eo_options *o = job->options;
    job->config = o->config;
    if (o->model_of_config)
        TOOLS_TRY(load_model_config(job, problem));
    if (!o->init_path)
        return EO_OK;
    TOOLS_TRY(eo_import_open(&job->import, o->init_path, problem));
    if (o->model_of_init)
        job->config = job->import.config;
    return eo_import_check(&job->import, o->model_name, &job->config, problem);
}

/* A GPU that is not there is known before data are read. */
static eo_status check_device(struct eo_job *job, const struct eo_log_catch *log_catch, struct eo_problem *problem)
{
    const eo_log log = eo_job_log(NULL);
    job->device.device_count = 1;
    if (!eo_options_on_gpu(job->options))
        return EO_OK;
    /* Said by nothing else: the library reads no environment, and CUDA does not tell what it has read. */
    const char *connections = getenv("CUDA_DEVICE_MAX_CONNECTIONS");
    if (connections && strcmp(connections, "1") == 0)
        return eo_problem_set(problem, EO_ERR_INVALID,
                              "CUDA_DEVICE_MAX_CONNECTIONS is 1: the GPU would take all streams through one queue, and "
                              "collectives would wait for products; unset it, or set it to 8 or more");
    /* To ask a GPU leaves a context on it: a process asks its own. */
    const uint32_t own = job->options->world_ranks ? job->options->host_rank : 0;
    const eo_status status = eo_device_ask(&job->device, job->options->device, own, &log);
    return status < 0 ? eo_problem_set(problem, status, "--device %s: %s", job->options->device,
                                       log_catch->text[0] ? log_catch->text : eo_status_text(status))
                      : EO_OK;
}

static eo_status prepare(struct eo_job *job, struct eo_log_catch *log_catch, struct eo_problem *problem)
{
    const struct eo_options *o = job->options;
    TOOLS_TRY(choose_config(job, problem));
    job->shape = (struct eo_batch_shape){.rank_count = o->ranks, .batch = o->batch, .seq = seq_of(o, &job->config),
                                         .micro_batches = o->micro_batches};
    if (job->shape.seq > job->config.context)
        return eo_problem_set(problem, EO_ERR_INVALID, "--seq %u is longer than the context of --model %s, which is "
                              "%u; give a shorter one", job->shape.seq, o->model_name, job->config.context);
    if (!o->plan_only) /* a plan needs no device */
        TOOLS_TRY(check_device(job, log_catch, problem));
    /* Also of the ranks, later: it finds the catch of the thread that calls. */
    const eo_log log = eo_job_log(NULL);
    const eo_status status = eo_job_plan(o, &job->config, &log, &job->transformer, &job->plan);
    if (status < 0)
        return eo_problem_set(problem, status, "%s",
                              log_catch->text[0] ? log_catch->text : eo_status_text(status));
    eo_plan_get_summary(job->plan, &job->summary);
    if (o->init_path)
        TOOLS_TRY(eo_import_bind(&job->import, eo_transformer_model(job->transformer), problem));
    if (o->plan_only)
        return EO_OK;
    TOOLS_TRY(check_memory(job, problem));
    return load_data(job, problem);
}

eo_status eo_job_prepare(struct eo_job *job, const struct eo_options *options, uint64_t val_every,
                         struct eo_problem *problem)
{
    *job = (struct eo_job){.options = options, .val_every = val_every};
    pthread_mutex_init(&job->failure_mutex, NULL);
    struct eo_log_catch log_catch;
    eo_log_catch_init(&log_catch);
    eo_log_catch_enter(&log_catch);
    const eo_status status = prepare(job, &log_catch, problem);
    eo_log_catch_enter(NULL);
    if (status < 0)
        eo_job_fini(job);
    return status;
}

void eo_job_fini(struct eo_job *job)
{
    eo_plan_destroy(&job->plan);
    eo_transformer_destroy(&job->transformer);
    eo_import_fini(&job->import);
    eo_data_fini(&job->data);
    free(job->ranks);
    free(job->model_config);
    job->ranks = NULL;
    job->model_config = NULL;
}
