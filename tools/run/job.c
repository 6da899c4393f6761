/* SPDX-License-Identifier: MIT
 *
 * Everything before the ranks start.
 */
#include "tools/run/job.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tools/run/machine/memory_check.h"
#include "tools/shared/overwrite.h"
#include "tools/shared/told.h"

#ifndef EO_SOURCE_ROOT
#define EO_SOURCE_ROOT "."
#endif

/* --- log --------------------------------------------------------------------------------------------------------- */

static _Thread_local struct tool_log_catch *thread_catch;

static void keep_error(struct tool_log_catch *log_catch, const char *text)
{
    pthread_mutex_lock(&log_catch->mutex);
    const size_t used = strlen(log_catch->text);
    if (!strstr(log_catch->text, text))
        snprintf(log_catch->text + used, sizeof(log_catch->text) - used, "%s%s", used ? "; " : "", text);
    pthread_mutex_unlock(&log_catch->mutex);
}

static void catch_write(void *user, eo_log_level level, const char *text)
{
    struct tool_log_catch *log_catch = user ? user : thread_catch;
    char own[1024];
    if (level == EO_LOG_ERROR && log_catch)
        keep_error(log_catch, text);
    else if (level == EO_LOG_INFO)
        printf("%s\n", text);
    else if (tool_told_never(text)) { /* a plan is made more than once, and by each rank */
        char line[1024];
        (void)eo_text_fit(line, sizeof(line), tool_plan_warning(text, own, sizeof(own)));
        eo_text_clean(line);
        fprintf(stderr, "%s: %s\n", program_invocation_short_name, line);
    }
}

eo_log tool_job_log(struct tool_log_catch *log_catch)
{
    return (eo_log){.write = catch_write, .user = log_catch,
                    .level = log_catch && log_catch->tells ? EO_LOG_INFO : EO_LOG_WARN};
}

void tool_log_catch_take(struct tool_log_catch *log_catch, char *text, size_t bytes)
{
    pthread_mutex_lock(&log_catch->mutex);
    snprintf(text, bytes, "%s", log_catch->text);
    log_catch->text[0] = '\0';
    pthread_mutex_unlock(&log_catch->mutex);
}

void tool_log_catch_init(struct tool_log_catch *log_catch)
{
    *log_catch = (struct tool_log_catch){.tells = false};
    pthread_mutex_init(&log_catch->mutex, NULL);
}

void tool_log_catch_enter(struct tool_log_catch *log_catch)
{
    thread_catch = log_catch;
}

/* --- model and plan ---------------------------------------------------------------------------------------------- */

static struct tool_plan_settings plan_settings_for(const struct tool_options *options, const eo_transformer_config *config)
{
    struct tool_plan_settings settings = options->plan;
    tool_plan_settings_complete(&settings, config, 256, tool_options_on_gpu(options));
    return settings;
}

eo_status tool_job_plan(const struct tool_options *options, const eo_transformer_config *config, const eo_log *log,
                        eo_transformer **transformer, eo_plan **plan)
{
    const struct tool_plan_settings settings = plan_settings_for(options, config);
    const struct tool_token_files files = {options->tokens_paths, options->tokens_path_count, options->val_tokens_path};
    struct tool_plan_params params = tool_plan_params_of(&settings, config, log);
    params.transformer.summed_loss = settings.packed || tool_data_has_marks(&files);
    *plan = NULL;
    EO_TRY(eo_transformer_create(transformer, &params.transformer));
    const eo_status status = eo_plan_create(plan, eo_transformer_model(*transformer), &params.plan);
    if (status < 0)
        eo_transformer_destroy(transformer);
    return status;
}

bool tool_job_sums_losses(const struct tool_job *job)
{
    return eo_transformer_get_params(job->transformer)->summed_loss;
}

void tool_job_plan_words(const struct tool_job *job, char text[TOOL_PLAN_WORDS_MAX])
{
    const struct tool_plan_settings settings = plan_settings_for(job->options, &job->config);
    tool_plan_settings_words(&settings, text);
}

/* --- memory ------------------------------------------------------------------------------------------------------ */

/* Of one GPU: the ranks that share it, each with what its libraries take beside the plan. */
static uint64_t estimate_gpu(const struct tool_options *options, const eo_plan_summary *summary, uint32_t device_count)
{
    const uint64_t library_bytes = (uint64_t)64 << 20; /* workspace of the products, kernels loaded late */
    uint64_t rank_bytes = summary->arena_bytes - summary->space_bytes[EO_SPACE_HOST];
    if (options->memory != EO_MEMORY_STATIC)
        rank_bytes = summary->lower_bound_bytes + summary->lower_bound_bytes / 4;
    return tool_options_gpu_ranks(options, device_count) * (rank_bytes + library_bytes);
}

/* Program and libraries; stacks, packing buffers of the products, timelines. */
uint64_t tool_job_beside_plans(const struct tool_options *options)
{
    const uint64_t process_bytes = (uint64_t)32 << 20, thread_bytes = (uint64_t)8 << 20;
    return tool_options_processes(options) * process_bytes +
           (uint64_t)tool_options_host_ranks(options) * options->plan.threads * thread_bytes;
}

uint64_t tool_job_estimate(const struct tool_options *options, const eo_plan_summary *summary, uint32_t device_count)
{
    if (tool_options_on_gpu(options))
        return estimate_gpu(options, summary, device_count);
    uint64_t rank_bytes = summary->arena_bytes;
    if (options->memory != EO_MEMORY_STATIC) /* copies, and what an allocator keeps and cannot use */
        rank_bytes = summary->lower_bound_bytes + summary->lower_bound_bytes / 4;
    if (options->saves && !options->plan.offload_layers) /* a copy of what is saved */
        rank_bytes += summary->category_bytes[EO_CATEGORY_MASTER] + summary->category_bytes[EO_CATEGORY_OPTIMIZER] +
                      summary->category_bytes[EO_CATEGORY_COMPUTE_SHARD];
    return tool_job_beside_plans(options) + tool_options_host_ranks(options) * rank_bytes;
}

static double mib(uint64_t bytes)
{
    return (double)bytes / (1 << 20);
}

static bool fits(const struct tool_job *job, const struct tool_options *options, const eo_transformer_config *config)
{
    const eo_log silence = {0};
    eo_transformer *transformer = NULL;
    eo_plan *plan = NULL;
    if (tool_job_plan(options, config, &silence, &transformer, &plan) < 0)
        return false;
    eo_plan_summary summary;
    eo_plan_get_summary(plan, &summary);
    eo_plan_destroy(&plan);
    eo_transformer_destroy(&transformer);
    return tool_job_estimate(options, &summary, job->device.device_count) <= job->available_bytes;
}

/* The next smaller settings that fit, as words; `bound`: what bounds the memory, or "". */
static void advise(const struct tool_job *job, const char *bound, char *text, size_t bytes)
{
    struct tool_options smaller = *job->options;
    for (smaller.plan.batch /= 2; smaller.plan.batch >= 1; smaller.plan.batch /= 2)
        if (fits(job, &smaller, &job->config)) {
            snprintf(text, bytes, "--batch %u would fit", smaller.plan.batch);
            return;
        }
    smaller.plan.recompute = EO_RECOMPUTE_BLOCKS;
    smaller.plan.recompute_blocks = UINT32_MAX;
    for (smaller.plan.batch = job->options->plan.batch; smaller.plan.batch >= 1; smaller.plan.batch /= 2)
        if (fits(job, &smaller, &job->config)) {
            snprintf(text, bytes, "--batch %u with --recompute all would fit", smaller.plan.batch);
            return;
        }
    smaller.plan.batch = 1;
    /* Gather and gradient buffers are held by every rank: fewer ranks in one process take less. */
    const bool is_process = smaller.world_ranks != 0;
    smaller.plan.ranks = is_process ? smaller.plan.ranks : 1;
    if (!is_process && job->options->plan.ranks > 1 && fits(job, &smaller, &job->config)) {
        snprintf(text, bytes, "--ranks 1 with --batch 1 --recompute all would fit");
        return;
    }
    static const char *const by_size[] = {"gpt2-large", "gpt2-medium", "gpt2", "base", "small", "tiny"};
    const bool is_fixed = job->options->init_path != NULL; /* by the weights */
    for (size_t i = 0; i < sizeof(by_size) / sizeof(by_size[0]) && !is_fixed; i++) {
        eo_transformer_config config;
        if (eo_transformer_preset(by_size[i], &config) >= 0 && (!smaller.plan.seq || smaller.plan.seq <= config.context) &&
            (!job->options->tokens_paths || config.vocabulary >= job->config.vocabulary) && fits(job, &smaller, &config)) {
            snprintf(text, bytes, "no batch of this model fits; --model %s would, with %s--batch 1 --recompute all",
                     by_size[i], is_process ? "" : "--ranks 1 ");
            return;
        }
    }
    snprintf(text, bytes, "no %s fits: %s%s", is_fixed ? "batch of this model" : "model",
             bound[0] ? "raise the limit" : "end other programs, or use a larger machine",
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

static eo_status check_gpu_memory(const struct tool_job *job, struct tool_problem *problem)
{
    char advice[256], categories[512];
    if (job->needed_bytes <= job->available_bytes)
        return EO_OK;
    advise(job, "", advice, sizeof(advice));
    describe_categories(&job->summary, categories, sizeof(categories));
    return tool_problem_set(problem, EO_ERR_NO_MEMORY,
                            "not enough GPU memory for --model %s with --ranks %u --batch %u --seq %u: %.0f MiB are "
                            "needed on a GPU (%.0f MiB a rank are planned; MiB by category: %s), %.0f of %.0f MiB are "
                            "free; %s",
                            job->options->model_name, job->options->plan.ranks, job->shape.batch, job->shape.seq,
                            mib(job->needed_bytes), mib(job->summary.arena_bytes), categories, mib(job->available_bytes),
                            mib(job->device.total_bytes), advice);
}

static eo_status check_memory(struct tool_job *job, struct tool_problem *problem)
{
    const char *bound = "";
    job->available_bytes = tool_options_on_gpu(job->options)
                               ? job->device.free_bytes
                               : tool_process_memory_available(tool_options_processes(job->options),
                                                               tool_options_process_threads(job->options), &bound);
    job->needed_bytes = tool_job_estimate(job->options, &job->summary, job->device.device_count);
    if (tool_options_on_gpu(job->options))
        return check_gpu_memory(job, problem);
    /* A budget of what is available has left room for what the program has taken of it since: that counts once. */
    const uint64_t taken_bytes = job->options->budget_available ? tool_job_beside_plans(job->options) : 0;
    if (job->needed_bytes - taken_bytes <= job->available_bytes)
        return EO_OK;
    char advice[256];
    advise(job, bound, advice, sizeof(advice));
    return tool_problem_set(problem, EO_ERR_NO_MEMORY,
                            "not enough memory for --model %s with --ranks %u --batch %u --seq %u: %.0f MiB are needed "
                            "(%.0f MiB a rank are planned, the rest is an estimate), %.0f MiB are available%s; %s",
                            job->options->model_name, job->options->plan.ranks, job->shape.batch, job->shape.seq,
                            mib(job->needed_bytes), mib(job->summary.arena_bytes), mib(job->available_bytes), bound, advice);
}

/* --- data -------------------------------------------------------------------------------------------------------- */

/* A frozen copy of the project's documents: figures do not change with every commit. */
static eo_status load_default_text(struct tool_data *data, struct tool_problem *problem)
{
    static const char path[] = EO_SOURCE_ROOT "/tools/run/default_text.txt";
    const char *const paths[] = {path};
    if (access(path, R_OK) != 0)
        return tool_problem_set(problem, EO_ERR_IO,
                                "the default text, %s, is missing; name files or folders with --text",
                                path);
    return tool_data_load_text(data, paths, 1, problem);
}

/* Bytes are tokens of a vocabulary that has them. What was trained on a tokenizer's knows nothing of bytes. */
static eo_status check_vocabulary(const struct tool_job *job, struct tool_problem *problem)
{
    const struct tool_options *o = job->options;
    if (o->tokens_paths)
        return EO_OK;
    if (o->init_path && job->config.vocabulary != 256)
        return tool_problem_set(
            problem, EO_ERR_INVALID,
            "--init %s: its vocabulary of %u belongs to a tokenizer, but --text gives bytes, 0 to 255, without meaning for it; "
            "turn the text into a token file with tools/tokenize and the model's own tokenizer (\"Token files\" in "
            "docs/interchange.md), and train with --tokens FILE.bin",
            o->init_path, job->config.vocabulary);
    if (job->config.vocabulary < 256)
        return tool_problem_set(problem, EO_ERR_INVALID,
                                "--text: bytes need a vocabulary of 256, but the model has %u; use --tokens",
                                job->config.vocabulary);
    return EO_OK;
}

enum { TOKENIZER_PATH_MAX = 4096 };

/* In the folder that --init or --model names, itself or by a file in it. */
static bool find_tokenizer(char path[TOKENIZER_PATH_MAX], const char *named)
{
    struct stat info;
    if (!named)
        return false;
    const bool is_file = stat(named, &info) == 0 && !S_ISDIR(info.st_mode);
    const char *slash = strrchr(named, '/'), *folder = is_file && !slash ? "." : named;
    const int length = (int)(is_file && slash ? slash - named : (ptrdiff_t)strlen(folder));
    return snprintf(path, TOKENIZER_PATH_MAX, "%.*s/tokenizer.json", length, folder) < TOKENIZER_PATH_MAX &&
           access(path, R_OK) == 0;
}

/* One that was not asked for may be of any kind. */
static eo_status load_tokenizer(struct tool_job *job, struct tool_problem *problem)
{
    const struct tool_options *o = job->options;
    const char *named[] = {o->init_path, o->model_name};
    char path[TOKENIZER_PATH_MAX];
    if (o->tokenizer_path)
        return tool_tokenizer_load(&job->tokenizer, "--tokenizer", o->tokenizer_path, problem);
    for (int i = 0; i < 2; i++)
        if (find_tokenizer(path, named[i])) {
            if (tool_tokenizer_load(&job->tokenizer, i == 0 ? "--init" : "--model", path, problem) < 0)
                fprintf(stderr, "%s: warning: %s\n", program_invocation_short_name, problem->text);
            return EO_OK;
        }
    return EO_OK;
}

static eo_status check_tokenizer(const struct tool_job *job, struct tool_problem *problem)
{
    const struct tool_options *o = job->options;
    const struct tool_token_origin *origin = &job->data.origin;
    if (!origin->tokenizer_hash || !job->tokenizer.hash || origin->tokenizer_hash == job->tokenizer.hash)
        return EO_OK;
    char path[TOKENIZER_PATH_MAX] = "";
    (void)(find_tokenizer(path, o->init_path) || find_tokenizer(path, o->model_name));
    return tool_problem_set(problem, EO_ERR_INVALID,
                            "--tokens %s: was made with another tokenizer than %s (tokenizer.json: %016llx in the file, "
                            "%016llx here); make it again with tools/tokenize --tokenizer %s",
                            o->tokens_paths[0], o->tokenizer_path ? "that of --tokenizer" : "the model's",
                            (unsigned long long)origin->tokenizer_hash, (unsigned long long)job->tokenizer.hash,
                            o->tokenizer_path ? o->tokenizer_path : path);
}

static eo_status load_data(struct tool_job *job, struct tool_problem *problem)
{
    const struct tool_options *o = job->options;
    const struct tool_token_files files = {o->tokens_paths, o->tokens_path_count, o->val_tokens_path};
    EO_TRY(check_vocabulary(job, problem));
    if (o->tokens_paths)
        EO_TRY(tool_data_map_files(&job->data, &files, job->config.vocabulary, job->val_every != 0, problem));
    else if (o->text_paths)
        EO_TRY(tool_data_load_text(&job->data, o->text_paths, o->text_path_count, problem));
    else
        EO_TRY(load_default_text(&job->data, problem));
    if (o->tokens_paths) {
        EO_TRY(load_tokenizer(job, problem));
        EO_TRY(check_tokenizer(job, problem));
    }
    job->data.is_shuffled = o->shuffle;
    if (o->plan.packed)
        EO_TRY(tool_data_pack(&job->data, job->shape.seq, problem));
    return tool_data_check(&job->data, &job->shape, job->val_every != 0, problem);
}

/* --- all of it --------------------------------------------------------------------------------------------------- */

/* Weights of its own, or those of the checkpoint that was made from such. */
static bool keeps_window(const struct tool_job *job)
{
    const struct tool_options *o = job->options;
    return o->init_path || (job->model_config && job->model_config->window && job->model_config->window == o->kept_window);
}

static eo_status load_model_config(struct tool_job *job, struct tool_problem *problem)
{
    const char *name = job->options->model_name;
    char why[200];
    job->model_config = malloc(sizeof(*job->model_config));
    if (!job->model_config)
        return tool_problem_set(problem, EO_ERR_NO_MEMORY, "--model %s: no memory", name);
    EO_TRY(tool_model_config_load(job->model_config, name, NULL, 0, problem));
    if (!tool_model_config_runs(job->model_config, why, sizeof(why)))
        return tool_problem_set(problem, EO_ERR_UNSUPPORTED,
                                "--model %s: this model of family %s can be planned (memplan), but cannot run: %s; GPT-2, "
                                "Llama, Mistral, Qwen2, Qwen3, SmolLM3 and Phi-3 run",
                                name, tool_config_family_name(job->model_config->family), why);
    if (keeps_window(job))
        return tool_model_config_transformer_exact(job->model_config, &job->config, problem);
    tool_model_config_transformer(job->model_config, &job->config);
    return EO_OK;
}

void tool_job_tell_model(const struct tool_job *job)
{
    const struct tool_model_config *c = job->model_config ? job->model_config : job->import.model_config;
    if (job->data.warning[0])
        fprintf(stderr, "%s: warning: %s\n", program_invocation_short_name, job->data.warning);
    for (uint32_t i = 0; c && i < c->default_count; i++)
        fprintf(stderr, "%s %s\n", i == 0 ? "the config leaves unset:" : "                        ", c->defaults[i]);
    if (c)
        tool_model_config_tell(c, c->source, keeps_window(job), job->options->plan.dropout);
    if (job->options->plan.recompute == EO_RECOMPUTE_CHEAP && !job->config.qk_norm &&
        !tool_recomputes_gelu(&job->config, &job->options->plan))
        fprintf(stderr, "%s: --recompute cheap saves nothing here: what is cheap of this model is not kept in any case\n",
                program_invocation_short_name);
    if (job->import.adapter_dropout > 0)
        fprintf(stderr, "%s: %s: lora_dropout %g is not taken: adapters are trained without dropout of their own\n",
                program_invocation_short_name, job->options->adapter_path, job->import.adapter_dropout);
}

static eo_status choose_config(struct tool_job *job, struct tool_problem *problem)
{
    const struct tool_options *o = job->options;
    job->config = o->config;
    if (o->model_of_config)
        EO_TRY(load_model_config(job, problem));
    if (!o->init_path)
        return EO_OK;
    const eo_status opened = tool_import_open(&job->import, o->init_path, problem);
    if (opened < 0) {
        const struct tool_problem own = *problem;
        return tool_problem_set(problem, opened, "%s%s", strncmp(own.text, "--", 2) == 0 ? "" : "--init ", own.text);
    }
    if (o->model_of_init)
        job->config = job->import.config;
    return tool_import_check(&job->import, o->model_name, &job->config, problem);
}

eo_status tool_job_config(const struct tool_options *options, eo_transformer_config *out, struct tool_problem *problem)
{
    struct tool_job job = {.options = options};
    const eo_status status = choose_config(&job, problem);
    *out = job.config;
    tool_import_fini(&job.import);
    free(job.model_config);
    return status;
}

/* A GPU that is not there is known before data are read. */
static eo_status check_device(struct tool_job *job, const struct tool_log_catch *log_catch, struct tool_problem *problem)
{
    const eo_log log = tool_job_log(NULL);
    job->device.device_count = 1;
    if (!tool_options_on_gpu(job->options))
        return EO_OK;
    /* Said by nothing else: the library reads no environment, and CUDA does not tell what it has read. */
    const char *connections = getenv("CUDA_DEVICE_MAX_CONNECTIONS");
    if (connections && strcmp(connections, "1") == 0)
        return tool_problem_set(problem, EO_ERR_INVALID,
                                "CUDA_DEVICE_MAX_CONNECTIONS is 1: all streams of the GPU would share one queue, and "
                                "collectives would wait for products; unset it, or set it to 8 or more");
    /* To ask a GPU leaves a context on it: a process asks its own. */
    const uint32_t own = job->options->world_ranks ? job->options->host_rank : 0;
    eo_status status = eo_device_ask(&job->device, job->options->plan.device, own, &log);
    const eo_status libraries = eo_team_ask(job->options->plan.device, &log); /* all that lacks is told at once */
    if (status >= 0)
        status = libraries;
    const char *why = log_catch->text[0] ? log_catch->text : eo_status_text(status);
    if (status >= 0)
        return EO_OK;
    if (strncmp(why, "rank 0: device ", 15) == 0) /* so it says, whatever rank asks */
        return tool_problem_set(problem, status, "--%s", why + 8);
    return tool_problem_set(problem, status, "--device %s: %s", job->options->plan.device, why);
}

/* Nothing makes it; what is not named is the folder of --checkpoint, or the current one. */
static eo_status check_offload_folder(const struct tool_options *o, struct tool_problem *problem)
{
    struct stat info;
    if (!tool_option_given(o, "offload-folder"))
        return EO_OK;
    if (stat(o->offload_folder, &info) != 0)
        return tool_problem_set(problem, EO_ERR_IO, "--offload-folder %s: %s; create it, or choose another", o->offload_folder,
                                strerror(errno));
    return tool_check_folder("--offload-folder", o->offload_folder, problem);
}

static eo_status prepare(struct tool_job *job, struct tool_log_catch *log_catch, struct tool_problem *problem)
{
    const struct tool_options *o = job->options;
    EO_TRY(choose_config(job, problem));
    const struct tool_plan_settings settings = plan_settings_for(o, &job->config);
    job->shape = (struct tool_batch_shape){
        .rank_count = o->plan.ranks, .batch = o->plan.batch, .seq = settings.seq, .micro_batches = o->plan.micro_batches};
    if (job->shape.seq > job->config.context)
        return tool_problem_set(problem, EO_ERR_INVALID,
                                "--seq %u is longer than the context of --model %s, %u; give a shorter one",
                                job->shape.seq, o->model_name, job->config.context);
    if (!o->plan_only) { /* a plan needs no device */
        EO_TRY(check_device(job, log_catch, problem));
        EO_TRY(check_offload_folder(o, problem));
    }
    /* Also of the ranks, later: it finds the catch of the thread that calls. */
    EO_TRY(tool_plan_settings_check(&settings, job->config.layer_count, job->config.tied_head, problem));
    const eo_log log = tool_job_log(NULL);
    const eo_status status = tool_job_plan(o, &job->config, &log, &job->transformer, &job->plan);
    if (status < 0)
        return tool_problem_set(problem, status, "%s", log_catch->text[0] ? log_catch->text : eo_status_text(status));
    eo_plan_get_summary(job->plan, &job->summary);
    if (o->init_path)
        EO_TRY(tool_import_bind(&job->import, eo_transformer_model(job->transformer), problem));
    if (o->adapter_path)
        EO_TRY(tool_import_bind_adapters(&job->import, o->adapter_path, eo_transformer_model(job->transformer),
                                         &eo_transformer_get_params(job->transformer)->lora, problem));
    if (o->plan_only)
        return EO_OK;
    EO_TRY(check_memory(job, problem));
    return load_data(job, problem);
}

eo_status tool_job_prepare(struct tool_job *job, const struct tool_options *options, uint64_t val_every,
                           struct tool_problem *problem)
{
    *job = (struct tool_job){.options = options, .val_every = val_every};
    pthread_mutex_init(&job->failure_mutex, NULL);
    struct tool_log_catch log_catch;
    tool_log_catch_init(&log_catch);
    tool_log_catch_enter(&log_catch);
    const eo_status status = prepare(job, &log_catch, problem);
    tool_log_catch_enter(NULL);
    if (status < 0)
        tool_job_fini(job);
    return status;
}

void tool_job_fini(struct tool_job *job)
{
    eo_plan_destroy(&job->plan);
    eo_transformer_destroy(&job->transformer);
    tool_import_fini(&job->import);
    tool_data_fini(&job->data);
    tool_tokenizer_fini(&job->tokenizer);
    free(job->ranks);
    free(job->model_config);
    job->ranks = NULL;
    job->model_config = NULL;
}
