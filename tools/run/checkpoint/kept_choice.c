/* SPDX-License-Identifier: MIT */
#include "tools/run/checkpoint/kept_choice.h"

#include <stdio.h>

enum { SLOTS_MAX = 64 }; /* of --slots, --offload-slots and --bucketing */

static void write_bucketing(struct eo_json *json, const struct tool_options *o)
{
    const bool is_chosen = o->bucketing_rates.products_flops_per_s > 0;
    const uint32_t gather = o->plan.gather_run ? o->plan.gather_run : 1, gradient = o->plan.gradient_run ? o->plan.gradient_run : 1;
    if (!is_chosen && gather == 1 && gradient == 1)
        return;
    eo_json_write(json, "'bucketing': {'gather_run': %u, 'gradient_run': %u", gather, gradient);
    if (is_chosen) {
        eo_json_write(json, "'rates':");
        tool_rates_write(json, &o->bucketing_rates);
    }
    eo_json_write(json, "}");
}

void tool_kept_choice_write(struct eo_json *json, const struct tool_options *o)
{
    const struct tool_plan_settings *s = &o->plan;
    write_bucketing(json, o);
    if (o->rates.products_flops_per_s == 0) /* nothing was chosen */
        return;
    eo_json_write(json,
                  "'choice': {'cheap_recompute': %i, 'recompute_blocks': %u, 'gather_slots': %u, 'gradient_slots': %u,"
                  "'offload_layers': %u, 'offload_slots': %u, 'offload_gradients': %i, 'late_updates': %i, 'offload_activations': %u, 'head_chunks': %u,"
                  "'rates':",
                  s->recompute == EO_RECOMPUTE_CHEAP, s->recompute_blocks, s->gather_slots, s->gradient_slots,
                  s->offload_layers, s->offload_slots, s->offload_gradients, s->late_updates,
                  s->offload_activations, o->head_is_chosen ? s->head_chunks : 0);
    tool_rates_write(json, &o->rates);
    eo_json_write(json, "}");
}

static bool is_number(json_int_t value, json_int_t least, json_int_t most)
{
    return value >= least && value <= most;
}

static void parse_bucketing(const json_t *settings, struct tool_kept_bucketing *out)
{
    json_int_t gather, gradient;
    struct tool_rates rates = {0};
    json_t *bucketing = json_object_get(settings, "bucketing"), *by = json_object_get(bucketing, "rates");
    if (bucketing && json_unpack(bucketing, "{s:I, s:I}", "gather_run", &gather, "gradient_run", &gradient) == 0 &&
        is_number(gather, 1, SLOTS_MAX) && is_number(gradient, 1, SLOTS_MAX) && !(by && tool_rates_parse(by, &rates)))
        *out = (struct tool_kept_bucketing){true, (uint32_t)gather, (uint32_t)gradient, rates};
}

/* An export has its origin's reach where the context was cut to the window. */
static uint32_t parse_window(const json_t *settings)
{
    const json_t *model = json_object_get(settings, "model"), *context = json_object_get(model, "context");
    const bool is_cut = json_is_object(json_object_get(json_object_get(model, "published"), "reach"));
    return is_cut && is_number(json_integer_value(context), 1, INT32_MAX) ? (uint32_t)json_integer_value(context) : 0;
}

bool tool_kept_choice_parse(const json_t *settings, struct tool_kept_choice *out)
{
    json_int_t blocks, gather, gradient, layers, slots, pieces, activations = 0; /* of earlier checkpoints: none */
    int is_cheap, gradients, late = 0;
    json_t *choice = json_object_get(settings, "choice");
    struct tool_rates rates;
    *out = (struct tool_kept_choice){.is_there = false};
    parse_bucketing(settings, &out->bucketing);
    out->window = parse_window(settings);
    if (!choice ||
        json_unpack(choice, "{s:b, s:I, s:I, s:I, s:I, s:I, s:b, s:I, s?I, s?b}", "cheap_recompute", &is_cheap, "recompute_blocks",
                    &blocks, "gather_slots", &gather, "gradient_slots", &gradient, "offload_layers", &layers, "offload_slots",
                    &slots, "offload_gradients", &gradients, "head_chunks", &pieces, "offload_activations", &activations,
                    "late_updates", &late) != 0)
        return false;
    const bool is_good = is_number(blocks, 0, UINT32_MAX) && !(is_cheap && blocks) && is_number(gather, 1, SLOTS_MAX) &&
                         is_number(gradient, 1, SLOTS_MAX) && is_number(layers, 0, UINT32_MAX) &&
                         is_number(slots, 0, layers ? SLOTS_MAX : 0) && (layers || !(gradients || late)) &&
                         is_number(pieces, 0, INT32_MAX) && is_number(activations, 0, UINT32_MAX);
    if (!is_good || tool_rates_parse(json_object_get(choice, "rates"), &rates))
        return false;
    *out = (struct tool_kept_choice){.is_there = true,
                                     .recompute = is_cheap ? EO_RECOMPUTE_CHEAP
                                                  : blocks ? EO_RECOMPUTE_BLOCKS
                                                           : EO_RECOMPUTE_NONE,
                                     .recompute_blocks = (uint32_t)blocks,
                                     .gather_slots = (uint32_t)gather,
                                     .gradient_slots = (uint32_t)gradient,
                                     .offload_layers = (uint32_t)layers,
                                     .offload_slots = (uint32_t)slots,
                                     .offload_gradients = gradients,
                                     .late_updates = late,
                                     .offload_activations = (uint32_t)activations,
                                     .head_chunks = (uint32_t)pieces,
                                     .rates = rates,
                                     .bucketing = out->bucketing,
                                     .window = out->window};
    return true;
}

/* Damage is told later, by who loads it. */
static bool read_choice(const char *path, struct tool_kept_choice *out)
{
    const eo_log silence = {0};
    eo_checkpoint *checkpoint;
    json_t *settings = NULL;
    eo_status status = eo_checkpoint_open(&checkpoint, path, &silence);
    if (status >= 0)
        status = tool_job_settings_read(checkpoint, &settings);
    eo_checkpoint_close(&checkpoint);
    (void)tool_kept_choice_parse(settings, out);
    json_decref(settings);
    return status >= 0;
}

void tool_kept_choice_find(const struct tool_checkpoint_options *options, struct tool_kept_choice *out)
{
    const eo_log silence = {0};
    const char *folder = options->resume_path ? options->resume_path : options->folder;
    char path[TOOL_JOB_PATH_MAX];
    uint64_t step = UINT64_MAX;
    *out = (struct tool_kept_choice){.is_there = false};
    if (!options->resume)
        return;
    if (tool_job_is_checkpoint(folder)) {
        (void)read_choice(folder, out);
        return;
    }
    while (eo_checkpoint_find_before(path, sizeof(path), &step, folder, &silence) == EO_OK && !read_choice(path, out))
        ;
}

void tool_kept_choice_apply(const struct tool_kept_choice *kept, const struct tool_options *o,
                            struct tool_plan_settings *settings)
{
    if (!tool_option_given(o, "recompute")) {
        settings->recompute = kept->recompute;
        settings->recompute_blocks = kept->recompute_blocks;
    }
    if (!tool_option_given(o, "slots")) {
        settings->gather_slots = kept->gather_slots;
        settings->gradient_slots = kept->gradient_slots;
    }
    if (kept->head_chunks && !tool_option_given(o, "head-chunks") &&
        kept->head_chunks <= (uint64_t)settings->batch * settings->seq)
        settings->head_chunks = kept->head_chunks;
    if (!tool_option_given(o, "offload-activations"))
        settings->offload_activations = kept->offload_activations;
    if (tool_option_given(o, "offload-layers"))
        return;
    settings->offload_layers = kept->offload_layers;
    settings->offload_slots = kept->offload_slots;
    settings->offload_gradients = kept->offload_gradients && settings->micro_batches == 1;
    settings->late_updates = kept->late_updates && !settings->no_prefetch;
}
