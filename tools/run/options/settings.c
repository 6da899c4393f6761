/* SPDX-License-Identifier: MIT
 *
 * What a run's results depend on, as JSON beside its weights: the model, the data and how far it was read, the schedule.
 */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/plain_text.h"
#include "tools/interchange/export/export.h"
#include "tools/run/checkpoint/kept_choice.h"
#include "tools/shared/weights_hash.h"

static bool has_marks(const struct tool_data *data)
{
    for (; data; data = data->next)
        if (data->counted)
            return true;
    return false;
}

/* A token here and there of so many from `begin` on, and whether it counts as a target. */
static uint64_t hash_samples(uint64_t hash, const struct tool_data *data, uint64_t begin, uint64_t count)
{
    enum { SAMPLES = 4096 };
    const bool marked = has_marks(data);
    for (uint64_t i = 0; i < SAMPLES && count; i++) {
        const uint64_t at = begin + count / SAMPLES * i + count % SAMPLES * i / SAMPLES;
        uint32_t token_bytes;
        const void *token = tool_data_at(data, at, &token_bytes);
        hash = tool_hash_more(hash, token, token_bytes);
        const uint8_t counts = marked ? (uint8_t)(tool_data_target(data, at) >= 0) : 0;
        hash = tool_hash_more(hash, &counts, marked);
    }
    return tool_hash_more(hash, &marked, marked);
}

/* Enough of the data to know it again: how much there is, and samples of it. A file of its own for what is held back changes
 * nothing of the training. */
static uint64_t data_hash(const struct tool_data *data)
{
    uint64_t hash = tool_hash_more(TOOL_HASH_START, &data->training_count, sizeof(data->training_count));
    for (const struct tool_data *file = data; data->is_packed && file; file = file->next) {
        const uint32_t cuts[] = {file->origin.boundary, file->origin.end, file->origin.ends_itself}; /* documents */
        hash = tool_hash_more(hash, cuts, sizeof(cuts));
    }
    return hash_samples(hash, data, 0, data->is_held_apart ? data->training_count : data->count);
}

uint64_t tool_job_held_back_hash(const struct tool_job *job)
{
    const struct tool_data *data = &job->data;
    const uint64_t count = data->count - data->training_count, cut[] = {count, job->shape.seq, data->is_packed};
    return hash_samples(tool_hash_more(TOOL_HASH_START, cut, sizeof(cut)), data, data->training_count, count);
}

/* job: NULL: without the special tokens of its tokenizer and data. */
static void describe_model(struct eo_json *json, const eo_transformer_config *c, const struct tool_model_config *origin,
                           const struct tool_plan_settings *settings, const struct tool_job *job)
{
    const struct tool_export_model model = {.config = *c,
                                            .origin = origin,
                                            .tokenizer = job ? job->options->tokenizer_path : NULL,
                                            .end_of_text = job ? tool_data_end_of_text(&job->data) : NULL};
    eo_json_write(json,
                  "'model': {'family': %s, 'layers': %u, 'width': %u, 'heads': %u, 'kv_heads': %u, 'head_size': %u,"
                  "'mlp_width': %u, 'vocabulary': %u, 'context': %u, 'tied_head': %i, 'norm_eps': %g, 'rope_theta': %g,"
                  "'qkv_bias': %i, 'qk_norm': %i, 'half_blocks': %i, 'unit_blocks': %u, 'published':",
                  c->family == EO_FAMILY_GPT2 ? "gpt2" : "llama", c->layer_count, c->width, c->head_count, c->kv_head_count,
                  c->head_size, c->mlp_width, c->vocabulary, c->context, c->tied_head, (double)c->norm_eps,
                  (double)c->rope_theta, c->qkv_bias, c->qk_norm, settings->half_blocks,
                  settings->unit_blocks > 1 ? settings->unit_blocks : 1);
    tool_export_published(json, &model);
    tool_export_rope(json, &c->rope_scaling, "rope_type");
    if (c->initial_deviation != 0)
        eo_json_write(json, "'initial_deviation': %g", (double)c->initial_deviation);
    if (c->unrotated_interval)
        eo_json_write(json, "'unrotated_interval': %u", c->unrotated_interval);
    if (settings->lora.rank)
        eo_json_write(json, "'lora': {'r': %u, 'alpha': %g, 'targets': %s}", settings->lora.rank, settings->lora.alpha,
                      settings->lora.targets);
    eo_json_write(json, "}");
}

void tool_job_settings_of_import(struct eo_json *json, const void *user)
{
    const struct tool_import *import = user;
    eo_json_write(json, "{'program': 'evenodd-checkpoint'");
    describe_model(json, &import->config, import->model_config, &(struct tool_plan_settings){0}, NULL);
    eo_json_write(json, "}");
}

/* Absent: plain. False: a kind that this version does not know. */
static bool read_rope_scaling(const json_t *model, eo_rope_scaling *out)
{
    json_t *rope = json_object_get(model, "rope_scaling");
    const char *kind = NULL;
    double factor = 0, low = 0, high = 0;
    json_int_t original = 0;
    *out = (eo_rope_scaling){.kind = EO_ROPE_PLAIN};
    if (!rope)
        return true;
    if (json_unpack(rope, "{s:s, s:F, s?F, s?F, s?I}", "rope_type", &kind, "factor", &factor, "low_freq_factor", &low,
            "high_freq_factor", &high, "original_max_position_embeddings", &original) != 0 ||
        original < 0 || original > INT32_MAX || (strcmp(kind, "linear") != 0 && strcmp(kind, "llama3") != 0))
        return false;
    *out = (eo_rope_scaling){
        .kind = strcmp(kind, "linear") == 0 ? EO_ROPE_LINEAR : EO_ROPE_LLAMA3, .factor = (float)factor,
        .low_freq_factor = (float)low, .high_freq_factor = (float)high, .original_context = (uint32_t)original};
    return true;
}

/* Absent: none. */
static bool read_lora(const json_t *model, struct tool_lora *out)
{
    json_t *lora = json_object_get(model, "lora");
    const char *targets = "";
    json_int_t rank = 0;
    *out = (struct tool_lora){.rank = 0};
    if (lora && (json_unpack(lora, "{s:I, s:F, s:s}", "r", &rank, "alpha", &out->alpha, "targets", &targets) != 0 || rank < 1 ||
                 rank > INT32_MAX || strlen(targets) >= sizeof(out->targets)))
        return false;
    out->rank = (uint32_t)rank;
    snprintf(out->targets, sizeof(out->targets), "%s", targets);
    return true;
}

bool tool_job_settings_model(const json_t *settings, eo_transformer_config *config, struct tool_lora *lora, json_t **published)
{
    const char *family = NULL;
    json_int_t layers, width, heads, kv_heads, head_size, mlp_width, vocabulary, context, unrotated = 0;
    int tied, bias, norm;
    double eps, theta, deviation = 0; /* absent in older ones */
    json_t *model = json_object_get(settings, "model");
    if (!model || json_unpack(model, "{s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:b, s:F, s:F, s:b, s:b, s?F, s?I}",
                              "family", &family, "layers", &layers, "width", &width, "heads", &heads, "kv_heads", &kv_heads,
                              "head_size", &head_size, "mlp_width", &mlp_width, "vocabulary", &vocabulary, "context", &context,
                              "tied_head", &tied, "norm_eps", &eps, "rope_theta", &theta, "qkv_bias", &bias, "qk_norm", &norm,
                              "initial_deviation", &deviation, "unrotated_interval", &unrotated) != 0)
        return false;
    eo_rope_scaling rope_scaling;
    if (!read_rope_scaling(model, &rope_scaling) || !read_lora(model, lora))
        return false;
    const json_int_t counts[] = {layers, width, heads, kv_heads, head_size, mlp_width, vocabulary, context, unrotated};
    for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++)
        if (counts[i] < 0 || counts[i] > INT32_MAX)
            return false;
    *config = (eo_transformer_config){
        .family = strcmp(family, "gpt2") == 0 ? EO_FAMILY_GPT2 : EO_FAMILY_LLAMA,
        .layer_count = (uint32_t)layers,
        .width = (uint32_t)width,
        .head_count = (uint32_t)heads,
        .kv_head_count = (uint32_t)kv_heads,
        .head_size = (uint32_t)head_size,
        .mlp_width = (uint32_t)mlp_width,
        .vocabulary = (uint32_t)vocabulary,
        .context = (uint32_t)context,
        .tied_head = tied,
        .norm_eps = (float)eps,
        .rope_theta = (float)theta,
        .qkv_bias = bias,
        .qk_norm = norm,
        .rope_scaling = rope_scaling,
        .initial_deviation = (float)deviation,
        .unrotated_interval = (uint32_t)unrotated,
    };
    *published = json_incref(json_object_get(model, "published"));
    return true;
}

static uint64_t sequences_of_a_step(const struct tool_job *job)
{
    return (uint64_t)job->shape.rank_count * job->shape.batch * job->shape.micro_batches;
}

/* "seed" and the like are texts: JSON's numbers have a sign. */
/* with_tokens: and the special tokens that its export would have. They change nothing of the training. */
static void write_settings(struct eo_json *json, const struct tool_job *job, bool with_tokens)
{
    const struct tool_options *o = job->options;
    char lora[TOOL_LORA_TEXT_MAX], seed[24], schedule[TOOL_SCHEDULE_TEXT_MAX];
    snprintf(seed, sizeof(seed), "%" PRIu64, o->seed);
    eo_json_write(json, "{'program': 'evenodd-train'");
    describe_model(json, &job->config, job->model_config ? job->model_config : job->import.model_config, &o->plan,
                   with_tokens ? job : NULL);
    tool_kept_choice_write(json, o);
    eo_json_write(
        json,
        "'origin_step': %" PRIu64 ", 'origin_sequence': %" PRIu64
        ", 'settings': {'seed': %s, 'shuffle': %i, 'pack': %i, 'data': %016" PRIx64 ", 'seq': %u, 'sequences': %" PRIu64
        ", 'steps': %" PRIu64 ", 'warmup': %" PRIu64
        ", 'lr': %g, 'schedule': %s, 'min-lr': %g, 'beta1': %g, 'beta2': %g, 'eps': %g, 'weight-decay': %g, 'clip': %g,"
        "'lora': %s, 'dropout': %g, 'optimizer': %s, 'momentum': %g, 'ema': %g, 'dtype': %s, 'reduce': %s, 'norms': %s, "
        "'on-not-finite': %s, "
        "'gather': %s, 'products': %s, 'frozen': %s, 'gradients-apart': %i, 'instruction-set': %s}}",
        job->data.origin_step, job->data.origin_sequence, seed, job->data.is_shuffled, job->data.is_packed,
        data_hash(&job->data), job->shape.seq, sequences_of_a_step(job), o->steps, o->warmup, o->learning_rate,
        tool_schedule_text(&o->schedule, schedule), o->minimum_rate >= 0 ? o->minimum_rate : NAN, o->beta1, o->beta2, o->eps,
        o->weight_decay, o->clip, o->plan.lora.rank ? tool_lora_text(&o->plan.lora, lora) : NULL, o->plan.dropout,
        eo_optimizer_name(o->plan.optimizer), o->plan.optimizer == EO_OPTIMIZER_MUON ? o->momentum : NAN, o->plan.ema_decay,
        eo_dtype_name(o->plan.dtype), eo_dtype_name(o->plan.reduce_dtype), o->plan.fp32_norms ? "fp32" : "dtype",
        o->skips ? "skip" : "stop", tool_gather_text(&o->plan), tool_product_text(&o->plan), tool_frozen_text(&o->plan),
        o->plan.gradients_apart, eo_transformer_kernels(job->transformer));
}

void tool_job_settings(struct eo_json *json, const void *user)
{
    write_settings(json, user, false);
}

void tool_job_settings_kept(struct eo_json *json, const void *user)
{
    write_settings(json, user, true);
}

eo_status tool_job_settings_read(eo_checkpoint *checkpoint, json_t **out)
{
    char text[TOOL_JOB_SETTINGS_MAX];
    uint32_t bytes = sizeof(text);
    *out = NULL;
    EO_TRY(eo_checkpoint_blob(checkpoint, 0, text, &bytes));
    *out = json_loadb(text, bytes, 0, NULL);
    return EO_OK;
}

static void print_value(FILE *out, const json_t *value)
{
    char *text = json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT | JSON_REAL_PRECISION(7));
    if (text)
        eo_text_clean(text);
    fputs(text ? text : "none", out);
    free(text);
}

/* The sequences that were read before the first step of this run: the next one follows, whatever a step takes now. */
static void go_on_in_data(struct tool_job *job, const json_t *saved, json_int_t sequences)
{
    const json_int_t step = json_integer_value(json_object_get(saved, "origin_step"));
    const json_int_t origin = json_integer_value(json_object_get(saved, "origin_sequence"));
    if (step < 0 || origin < 0 || sequences <= 0 || (uint64_t)step > job->first_step)
        return;
    const uint64_t old_seq = (uint64_t)json_integer_value(json_object_get(json_object_get(saved, "settings"), "seq")),
                   seq = job->shape.seq;
    const uint64_t read = (uint64_t)origin + (job->first_step - (uint64_t)step) * (uint64_t)sequences;
    const bool moves = !job->data.is_text && old_seq > 0 && old_seq != seq; /* token files are counted in sequences */
    if ((uint64_t)sequences == sequences_of_a_step(job) && !moves) {        /* as if nothing had been between */
        job->data.origin_step = (uint64_t)step;
        job->data.origin_sequence = (uint64_t)origin;
    } else {
        job->data.origin_step = job->first_step;
        job->data.origin_sequence = moves ? (uint64_t)ceil((double)read * (double)old_seq / (double)seq) : read;
    }
}

/* What weights of the same shapes are computed with; a number that is 0 is a default. */
static void compare_models(const json_t *mine, const json_t *old)
{
    static const char *const names[] = {"heads",      "kv_heads",     "head_size",         "norm_eps",
                                        "rope_theta", "rope_scaling", "unrotated_interval"};
    enum { DEFAULTED = 5 }; /* the last ones are left out where there is no such thing */
    const char *family = json_string_value(json_object_get(mine, "family"));
    const size_t count = family && strcmp(family, "gpt2") == 0 ? 4 : sizeof(names) / sizeof(names[0]);
    for (size_t i = 0; old && i < count; i++) {
        json_t *now = json_object_get(mine, names[i]), *before = json_object_get(old, names[i]);
        const bool has_default =
            i < DEFAULTED && json_is_number(now) && (json_number_value(now) == 0 || json_number_value(before) == 0);
        if (now == before || has_default || json_equal(now, before))
            continue;
        fprintf(stderr, "%s: warning: --resume: the model's %s was ", program_invocation_short_name, names[i]);
        print_value(stderr, before);
        fputs(", is ", stderr);
        print_value(stderr, now);
        fputs(" now: with the same weights this is another model\n", stderr);
    }
}

/* "gather" and the like say the type of --dtype where they have none of their own: one that follows is no change of theirs. Each
 * type has instruction sets of its own. */
static bool follows_dtype(const char *name, const json_t *before, const json_t *now, const json_t *old, const json_t *mine)
{
    if (strcmp(name, "instruction-set") == 0)
        return !json_equal(json_object_get(old, "dtype"), json_object_get(mine, "dtype"));
    return strcmp(name, "dtype") != 0 && json_is_string(before) && json_equal(before, json_object_get(old, "dtype")) &&
           json_equal(now, json_object_get(mine, "dtype"));
}

void tool_job_settings_compare(struct tool_job *job, const json_t *saved, bool tells)
{
    char *text = tool_json_text(0, tool_job_settings, job);
    json_t *mine = text ? json_loads(text, 0, NULL) : NULL, *old = json_object_get(saved, "settings");
    const char *name;
    json_t *value;
    if (tells)
        compare_models(json_object_get(mine, "model"), json_object_get(saved, "model"));
    json_object_foreach(json_object_get(mine, "settings"), name, value) {
        const json_t *before = json_object_get(old, name);
        if (!tells || !before || json_equal(value, (json_t *)before) ||
            follows_dtype(name, before, value, old, json_object_get(mine, "settings")))
            continue;
        fprintf(stderr, "%s: --resume: %s was ", program_invocation_short_name,
                strcmp(name, "data") == 0        ? "the data"
                : strcmp(name, "sequences") == 0 ? "the number of sequences a step (ranks x batch x micro-batches)"
                                                 : name);
        print_value(stderr, before);
        fputs(", is ", stderr);
        print_value(stderr, value);
        fputs(" now: the run continues differently from the one before\n", stderr);
    }
    if (!tool_early_stop_read(&job->early_stop, saved) && tells)
        fprintf(stderr, "%s: --resume: the held-back data or --seq has changed: the lowest loss and the count of --patience begin anew\n",
                program_invocation_short_name);
    go_on_in_data(job, saved, json_integer_value(json_object_get(old, "sequences")));
    json_decref(mine);
    free(text);
}
