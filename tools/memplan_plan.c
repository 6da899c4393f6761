/* SPDX-License-Identifier: MIT */
#include "tools/memplan_plan.h"

#include <stdio.h>
#include <string.h>

#include "tools/job.h"

struct caught {
    char text[1024];
};

static void catch_error(void *user, eo_log_level level, const char *text)
{
    struct caught *caught = user;
    if (level == EO_LOG_ERROR)
        snprintf(caught->text, sizeof(caught->text), "%s", text);
}

const char *eo_memplan_default_kernels(void)
{
    static const char *found;
    if (found)
        return found;
    const eo_log silence = {0};
    eo_transformer *probe = NULL;
    eo_transformer_params params = {.seq = 8, .dtype = EO_DTYPE_BF16, .device = "cuda", .log = &silence};
    found = "cpu";
    if (eo_transformer_preset("tiny", &params.config) >= 0 && eo_transformer_create(&probe, &params) >= 0)
        found = "cuda";
    eo_transformer_destroy(&probe);
    return found;
}

const eo_model *eo_memplan_model(const struct eo_memplan *memplan)
{
    return memplan->transformer ? eo_transformer_model(memplan->transformer) : memplan->described;
}

static void fill_in(struct eo_memplan_settings *s, const struct eo_model_config *config)
{
    s->on_gpu = s->on_gpu || strcmp(s->kernels, "cuda") == 0;
    if (s->seq == 0)
        s->seq = config->context < 4096 ? config->context : 4096;
    eo_transformer_config shape;
    eo_model_config_transformer(config, &shape);
    if (s->head_chunks == 0)
        s->head_chunks = eo_job_head_chunks(&(struct eo_options){.device = s->on_gpu ? "cuda" : "cpu", .dtype = s->dtype},
                                            &shape,
                                            (uint64_t)s->batch * s->seq);
    if (s->recompute == EO_RECOMPUTE_BLOCKS && s->recompute_blocks > config->layer_count)
        s->recompute_blocks = config->layer_count;
    if (s->recompute == EO_RECOMPUTE_BLOCKS && s->recompute_blocks == 0)
        s->recompute = EO_RECOMPUTE_NONE;
}

static eo_status describe(struct eo_memplan *m, const struct eo_model_config *config, const eo_log *log)
{
    const struct eo_memplan_settings *s = &m->settings;
    m->runs = eo_model_config_runs(config, m->why_not, sizeof(m->why_not));
    if (!m->runs)
        return eo_memplan_describe(&m->described, config, s, log);
    eo_transformer_config shape;
    eo_model_config_transformer(config, &shape);
    return eo_transformer_create(&m->transformer, eo_transformer_params(
        .config = shape, .batch = s->batch, .seq = s->seq, .recompute = s->recompute,
        .recompute_blocks = s->recompute_blocks, .head_chunks = s->head_chunks, .thread_count = s->threads,
        .half_blocks = s->half_blocks, .dtype = s->dtype, .reduce_dtype = s->reduce_dtype, .device = s->kernels,
        .token_slots = s->graph ? s->micro_batches : 1, .log = log));
}

static eo_status check_settings(const struct eo_memplan_settings *s, const struct eo_model_config *config,
                                struct eo_problem *problem)
{
    if (s->seq > config->context)
        return eo_problem_set(problem, EO_ERR_INVALID, "--seq %u is longer than the model's context, which is %u (%s)",
                              s->seq, config->context, config->source);
    return EO_OK;
}

eo_status eo_memplan_create(struct eo_memplan *out, const struct eo_model_config *config,
                            const struct eo_memplan_settings *settings, struct eo_problem *problem)
{
    struct caught caught = {.text = ""};
    const eo_log log = {.write = catch_error, .user = &caught, .level = EO_LOG_ERROR};
    *out = (struct eo_memplan){.settings = *settings};
    struct eo_memplan_settings *s = &out->settings;
    fill_in(s, config);
    TOOLS_TRY(check_settings(s, config, problem));
    eo_status status = describe(out, config, &log);
    if (status >= 0)
        status = eo_plan_create(&out->plan, eo_memplan_model(out), &(eo_plan_params){
            .rank_count = s->world, .micro_batches = s->micro_batches, .gather_slots = s->gather_slots,
            .gradient_slots = s->gradient_slots, .dtype = s->dtype, .reduce_dtype = s->reduce_dtype, .strategy = s->strategy,
            .shard_group = s->strategy == EO_STRATEGY_HSDP ? s->hsdp_group : 0, .log = &log});
    if (status < 0) {
        eo_memplan_fini(out);
        return eo_problem_set(problem, status, "%s: %s", config->source,
                              caught.text[0] ? caught.text : eo_status_text(status));
    }
    eo_plan_get_summary(out->plan, &out->summary);
    out->device_bytes = out->summary.arena_bytes - out->summary.space_bytes[EO_SPACE_HOST];
    if (!s->on_gpu)
        out->device_bytes = out->summary.arena_bytes; /* all of it is the host's */
    if (!s->outside.given)
        s->outside = eo_outside_default(s);
    out->outside_bytes = eo_outside_bytes(&s->outside);
    out->total_bytes = out->device_bytes + out->outside_bytes;
    out->fits = s->capacity_bytes == 0 || out->total_bytes <= s->capacity_bytes;
    return EO_OK;
}

void eo_memplan_fini(struct eo_memplan *memplan)
{
    eo_plan_destroy(&memplan->plan);
    eo_transformer_destroy(&memplan->transformer);
    eo_model_destroy(&memplan->described);
}
