/* SPDX-License-Identifier: MIT */
#include "tools/memplan/plan/plan.h"

#include <stdio.h>
#include <string.h>

#include "tools/memplan/plan/layout.h"

enum { SEQ_MOST = 4096 }; /* where none is given */

struct caught {
    char text[1024];
    struct tool_memplan *memplan;
};

static void catch_line(void *user, eo_log_level level, const char *text)
{
    struct caught *caught = user;
    if (level == EO_LOG_ERROR)
        snprintf(caught->text, sizeof(caught->text), "%s", text);
    else if (level == EO_LOG_WARN)
        (void)tool_plan_warning(text, caught->memplan->warning, sizeof(caught->memplan->warning));
}

const eo_model *tool_memplan_model(const struct tool_memplan *memplan)
{
    return memplan->transformer ? eo_transformer_model(memplan->transformer) : memplan->described;
}

static void fill_in(struct tool_memplan_settings *s, const struct tool_model_config *config, const eo_transformer_config *shape)
{
    struct tool_plan_settings *p = &s->plan;
    s->on_gpu = s->on_gpu || strcmp(p->device, "cuda") == 0;
    tool_plan_settings_complete(p, shape, SEQ_MOST, s->on_gpu);
    if (p->recompute == EO_RECOMPUTE_BLOCKS && p->recompute_blocks > config->layer_count)
        p->recompute_blocks = config->layer_count;
    if (p->recompute == EO_RECOMPUTE_BLOCKS && p->recompute_blocks == 0)
        p->recompute = EO_RECOMPUTE_NONE;
}

static void tell_slice(struct tool_memplan *m)
{
    const struct tool_slice *s = &m->settings.slice;
    int used = snprintf(m->why_not, sizeof(m->why_not), "a rank's part beside groups of the trainer: tp %u%s, cp %u", s->tensor,
                        s->sequence_parallel ? " with sequence parallelism" : "", s->context);
    if (s->pipeline > 1)
        used += snprintf(m->why_not + used, sizeof(m->why_not) - (size_t)used,
                         ", stage %u of %u, the fullest, %u micro-batch%s in flight", s->stage + 1, s->pipeline, s->in_flight,
                         s->in_flight == 1 ? "" : "es");
    if (tool_slice_chunks(s) > 1)
        used += snprintf(m->why_not + used, sizeof(m->why_not) - (size_t)used, " of a chunk, %u chunks", s->virtual_stages);
    if (s->expert > 1)
        snprintf(m->why_not + used, sizeof(m->why_not) - (size_t)used, ", ep %u", s->expert);
}

static eo_status make_plan(struct tool_memplan *m, const struct tool_model_config *config, const eo_transformer_config *shape,
                           struct tool_scratch_memory *memory, const eo_log *log)
{
    const struct tool_slice *slice = &m->settings.slice;
    struct tool_plan_settings own = m->settings.plan;
    own.ranks /= (uint32_t)tool_slice_cuts(slice); /* that hold the same part */
    own.seq /= slice->context ? slice->context : 1;
    struct tool_plan_params params = tool_plan_params_of(&own, shape, log);
    params.plan.draft = m->settings.draft;
    m->runs = tool_model_config_runs(config, m->why_not, sizeof(m->why_not));
    if (m->runs && slice->pipeline <= 1 && !slice->sequence_parallel && (config->family != TOOL_CONFIG_GPT2 || tool_slice_is_whole(slice)))
        EO_TRY(eo_transformer_create(&m->transformer, &params.transformer));
    else
        EO_TRY(tool_memplan_describe(&m->described, config, &own, slice, memory, log));
    if (!tool_slice_is_whole(slice)) {
        m->runs = false;
        tell_slice(m);
    }
    return eo_plan_create(&m->plan, tool_memplan_model(m), &params.plan);
}

static eo_status check_settings(const struct tool_memplan_settings *s, const struct tool_model_config *config,
                                struct tool_problem *problem)
{
    if (s->plan.seq > config->context)
        return tool_problem_set(problem, EO_ERR_INVALID, "--seq %u is longer than the model's context of %u (%s)",
                                s->plan.seq, config->context, config->source);
    char why[200];
    if ((s->plan.unit_blocks > 1 || s->plan.unit_bytes) && !tool_model_config_runs(config, why, sizeof(why)))
        return tool_problem_set(problem, EO_ERR_UNSUPPORTED,
                                "--granularity blocks:N and size:BYTES work for models that run; %s is planned only (%s): give "
                                "block or half",
                                config->source, why);
    if (s->plan.lora.rank && !tool_model_config_runs(config, why, sizeof(why)))
        return tool_problem_set(problem, EO_ERR_UNSUPPORTED, "--lora works for models that run; %s is planned only (%s)",
                                config->source, why);
    return EO_OK;
}

static uint32_t in_flight_of(const struct tool_slice *slice)
{
    uint32_t all = 0;
    for (uint32_t chunk = 0; chunk < tool_slice_chunks(slice); chunk++)
        all += tool_slice_in_flight(slice, chunk);
    return all;
}

/* By the rules of all layouts; and what a trainer beside evenodd can do. */
static eo_status check_slice(struct tool_memplan_settings *s, const struct tool_model_config *config, struct tool_problem *problem)
{
    struct tool_slice *c = &s->slice;
    const struct tool_shape shape = tool_shape_of(config);
    const struct tool_layout layout = {.ranks = s->plan.ranks,
                                       .tensor = c->tensor,
                                       .pipeline = c->pipeline,
                                       .context = c->context,
                                       .expert = c->expert ? c->expert : 1,
                                       .expert_tensor = c->expert_tensor,
                                       .virtual_stages = tool_slice_chunks(c),
                                       .sequence_parallel = c->sequence_parallel,
                                       .batch = s->plan.batch,
                                       .seq = s->plan.seq,
                                       .micro_batches = s->plan.micro_batches};
    EO_TRY(tool_layout_check(&layout, &shape, problem));
    if (tool_slice_expert_parts(c) == 0)
        return tool_problem_set(problem, EO_ERR_INVALID, "--etp %u x --ep %u is no multiple of --tp %u: ranks with one expert have "
                                "other parts of the layer around it", c->expert_tensor, c->expert, c->tensor);
    if (s->plan.strategy == EO_STRATEGY_HSDP && s->plan.ranks / tool_slice_cuts(c) % s->plan.shard_group)
        return tool_problem_set(problem, EO_ERR_INVALID,
                                "--strategy hsdp:%u: groups of %u do not divide the %u ranks that hold the "
                                "same part",
                                s->plan.shard_group, s->plan.shard_group, (uint32_t)(s->plan.ranks / tool_slice_cuts(c)));
    c->micro_batches = s->plan.micro_batches;
    c->in_flight = in_flight_of(c);
    return EO_OK;
}

/* Of a stage that is chosen. */
static eo_status plan_stage(struct tool_memplan *out, const struct tool_model_config *config,
                            const struct tool_memplan_settings *settings, struct tool_scratch_memory *memory,
                            struct tool_problem *problem)
{
    struct caught caught = {.memplan = out};
    const eo_log log = {.write = catch_line, .user = &caught, .level = EO_LOG_WARN};
    *out = (struct tool_memplan){.settings = *settings};
    struct tool_memplan_settings *s = &out->settings;
    eo_transformer_config shape;
    struct tool_model_config cut;
    if (s->plan.seq == 0)
        s->plan.seq = config->context < SEQ_MOST ? config->context : SEQ_MOST;
    const bool tied_head = config->tied_head;
    if (!tool_slice_is_whole(&s->slice)) {
        EO_TRY(check_slice(s, config, problem));
        tool_slice_config(&cut, config, &s->slice);
        config = &cut;
    }
    tool_model_config_transformer(config, &shape);
    EO_TRY(tool_plan_settings_check(&s->plan, config->layer_count, tied_head, problem));
    s->plan.gradients_apart = s->plan.gradients_apart && config->tied_head; /* of several stages they always are */
    EO_TRY(check_settings(s, config, problem));
    fill_in(s, config, &shape);
    const eo_status status = make_plan(out, config, &shape, memory, &log);
    if (status < 0) {
        tool_memplan_fini(out);
        return tool_problem_set(problem, status, "%s: %s", config->source,
                                caught.text[0] ? caught.text : eo_status_text(status));
    }
    eo_plan_get_summary(out->plan, &out->summary);
    out->device_bytes = out->summary.arena_bytes - out->summary.space_bytes[EO_SPACE_HOST];
    if (!s->on_gpu)
        out->device_bytes = out->summary.arena_bytes; /* all of it is the host's */
    if (!s->outside.given)
        s->outside = tool_outside_default(s);
    out->outside_bytes = tool_outside_bytes(&s->outside);
    out->total_bytes = out->device_bytes + out->outside_bytes;
    out->fits = s->capacity_bytes == 0 || out->total_bytes <= tool_usable_bytes(s);
    return EO_OK;
}

eo_status tool_memplan_create(struct tool_memplan *out, const struct tool_model_config *config,
                              const struct tool_memplan_settings *settings, struct tool_problem *problem)
{
    struct tool_scratch_memory memory = {0};
    return tool_memplan_create_next(out, config, settings, &memory, problem);
}

/* A stage between the second and the last has as many blocks as the second, for as many micro-batches or fewer. Recompute
 * begins with the first blocks, so it may take more; then the plan in full says so, which comes before an answer. */
static bool is_like_second(struct tool_slice slice, uint32_t micro_batches)
{
    const uint32_t stage = slice.stage;
    slice.micro_batches = micro_batches;
    const uint32_t here = in_flight_of(&slice);
    slice.stage = 1;
    return stage > 1 && stage + 1 < slice.pipeline && here <= in_flight_of(&slice);
}

eo_status tool_memplan_create_next(struct tool_memplan *out, const struct tool_model_config *config,
                                   const struct tool_memplan_settings *settings, struct tool_scratch_memory *memory,
                                   struct tool_problem *problem)
{
    struct tool_memplan_settings one = *settings;
    const uint32_t stages = settings->slice.pipeline > 1 ? settings->slice.pipeline : 1;
    if (stages == 1)
        one.slice.stage = 0;
    if (one.slice.stage != TOOL_SLICE_FULLEST)
        return plan_stage(out, config, &one, memory, problem);
    *out = (struct tool_memplan){0};
    for (uint32_t stage = 0; stage < stages; stage++) {
        struct tool_memplan m;
        one.slice.stage = stage;
        if (one.draft && is_like_second(one.slice, one.plan.micro_batches))
            continue;
        const eo_status status = plan_stage(&m, config, &one, memory, problem);
        if (status >= 0 && m.total_bytes <= out->total_bytes) {
            tool_memplan_fini(&m);
            continue;
        }
        tool_memplan_fini(out);
        if (status < 0)
            return status;
        *out = m;
    }
    return EO_OK;
}

void tool_memplan_fini(struct tool_memplan *memplan)
{
    eo_plan_destroy(&memplan->plan);
    eo_transformer_destroy(&memplan->transformer);
    eo_model_destroy(&memplan->described);
}
