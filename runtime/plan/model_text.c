/* SPDX-License-Identifier: MIT
 *
 * A model and the settings of its plan as text, to be sent to us: all that a plan is made from.
 */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "runtime/plan/model.h"

enum { TEXT_BYTES = 800, ITEM_BYTES = 200 }; /* of a line, and the most of one thing on it */

/* Behind what is there. Where there is no room nothing more is written. */
static EO_PRINTF(3, 4) void add_text(char *text, size_t bytes, const char *format, ...)
{
    const size_t used = strlen(text);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text + used, bytes - used, format, arguments);
    va_end(arguments);
}

static void log_settings(const eo_log *log, const eo_plan_params *p)
{
    const struct {
        bool is_set;
        const char *name;
    } flags[] = {
        {p->no_prefetch, "no_prefetch"},
        {p->separate_reduce_stream, "separate_reduce_stream"},
        {p->separate_evict_stream, "separate_evict_stream"},
        {p->separate_reservations, "separate_reservations"},
        {p->float8_gather, "float8_gather"},
        {p->float8_frozen, "float8_frozen"},
        {p->ema, "ema"},
        {p->norms_beside, "norms_beside"},
        {p->gradients_apart, "gradients_apart"},
        {p->norm_parts, "norm_parts"},
        {p->offload_gradients, "offload_gradients"},
        {p->late_updates, "late_updates"},
        {p->draft, "draft"},
        {p->input_gradients, "input_gradients"},
    };
    char text[TEXT_BYTES] = "";
    if (p->gather_run > 1 || p->gradient_run > 1)
        add_text(text, sizeof(text), ", runs %u,%u", p->gather_run, p->gradient_run);
    if (p->offload_layers)
        add_text(text, sizeof(text), ", offload_layers %u, offload_slots %u", p->offload_layers, p->offload_slots);
    if (p->offload_activations)
        add_text(text, sizeof(text), ", offload_activations %u", p->offload_activations);
    for (size_t i = 0; i < sizeof(flags) / sizeof(flags[0]); i++)
        if (flags[i].is_set)
            add_text(text, sizeof(text), ", %s", flags[i].name);
    eo_log_write(log, EO_LOG_ERROR,
                 "settings: %u ranks, %s, groups of %u, %u micro-batches, slots %u,%u, dtype %d, reduce_dtype %d, %u "
                 "optimizer states of %s, align %u%s",
                 p->rank_count, eo_strategy_name(p->strategy), p->shard_group, p->micro_batches, p->gather_slots,
                 p->gradient_slots, (int)p->dtype, (int)p->reduce_dtype, p->optimizer_states, eo_optimizer_name(p->optimizer),
                 p->align_bytes, text);
}

/* Its elements, and in brackets all else that a plan is made from: 4096 (f8, frozen). */
static void add_parameter_text(char *text, size_t bytes, const struct model_parameter *p)
{
    char marks[ITEM_BYTES] = "";
    if (p->float8_gather)
        add_text(marks, sizeof(marks), ", f8");
    if (p->fp32)
        add_text(marks, sizeof(marks), ", f32");
    if (p->frozen)
        add_text(marks, sizeof(marks), ", frozen");
    if (p->joined)
        add_text(marks, sizeof(marks), ", joined");
    if (p->matrix)
        add_text(marks, sizeof(marks), ", matrix %" PRIu64 "x%" PRIu64, p->dims[0], p->dims[1]);
    if (p->no_weight_decay)
        add_text(marks, sizeof(marks), ", no decay");
    if (p->group)
        add_text(marks, sizeof(marks), ", group %u", p->group);
    if (p->padding)
        add_text(marks, sizeof(marks), ", padding %" PRIu64, p->padding);
    add_text(text, bytes, " %" PRIu64, p->element_count);
    if (marks[0])
        add_text(text, bytes, " (%s)", marks + 2);
}

static void log_layer(const eo_log *log, const struct eo_model *model, uint32_t l)
{
    char text[TEXT_BYTES] = "", parts[32] = "";
    if (model->layers[l].parts > 1)
        snprintf(parts, sizeof(parts), ", parts %u", model->layers[l].parts);
    eo_log_write(log, EO_LOG_ERROR, "layer %u '%s'%s%s", l, model->layers[l].name, model->layers[l].frozen ? ", frozen" : "",
                 parts);
    for (uint32_t p = 0; p <= model->parameter_count; p++) {
        const bool end = p == model->parameter_count;
        if (text[0] && (end || strlen(text) + ITEM_BYTES > sizeof(text))) {
            eo_log_write(log, EO_LOG_ERROR, "  elements:%s", text);
            text[0] = '\0';
        }
        if (!end && model->parameters[p].layer == l)
            add_parameter_text(text, sizeof(text), &model->parameters[p]);
    }
}

static void log_position(const eo_log *log, const struct eo_model *model, uint32_t p)
{
    const struct model_position *position = &model->positions[p];
    char gradients[64] = "";
    if (position->parameters)
        snprintf(gradients, sizeof(gradients), ", gradients to %u parameters", position->parameter_count);
    eo_log_write(log, EO_LOG_ERROR, "position %u: layer %u%s%s%s%s", p, position->layer,
                 position->forward_in_backward ? ", forward_in_backward" : "",
                 position->backward_without_weights ? ", backward_without_weights" : "",
                 position->adds_gradients ? ", adds_gradients" : "", gradients);
}

static void log_buffer(const eo_log *log, const struct eo_model *model, uint32_t b)
{
    static const char *const passes[] = {"forward", "recompute", "backward"};
    const struct model_buffer *buffer = &model->buffers[b];
    if (buffer->persistent)
        eo_log_write(log, EO_LOG_ERROR, "buffer '%s': %" PRIu64 " bytes, persistent", buffer->name, buffer->bytes);
    else
        eo_log_write(log, EO_LOG_ERROR, "buffer '%s': %" PRIu64 " bytes, %s of %u to %s of %u%s", buffer->name, buffer->bytes,
                     passes[buffer->first.pass], buffer->first.position, passes[buffer->last.pass], buffer->last.position,
                     buffer->saved ? ", saved" : "");
}

void eo_model_report(const eo_log *log, const struct eo_model *model, const eo_plan_params *params)
{
    eo_log_write(log, EO_LOG_ERROR, "this is a bug in evenodd; please report it with the lines above and below: model '%s'",
                 model->name);
    log_settings(log, params);
    for (uint32_t l = 0; l < model->layer_count; l++)
        log_layer(log, model, l);
    for (uint32_t p = 0; p < model->position_count; p++)
        log_position(log, model, p);
    for (uint32_t b = 0; b < model->buffer_count; b++)
        log_buffer(log, model, b);
}
