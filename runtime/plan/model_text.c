/* SPDX-License-Identifier: MIT
 *
 * A model and the settings of its plan as text, to be sent to us: all that a plan is made from.
 */
#include <inttypes.h>
#include <stdio.h>

#include "base/check.h"
#include "runtime/plan/model.h"

enum { PARAMETERS_A_LINE = 32 };

static void log_settings(const eo_log *log, const eo_plan_params *p)
{
    eo_log_write(log, EO_LOG_ERROR,
                 "settings: %u ranks, %s, groups of %u, %u micro-batches, slots %u,%u, dtype %d, reduce_dtype %d, %u "
                 "optimizer states of %s, align %u%s%s%s%s%s%s%s%s", p->rank_count, eo_strategy_name(p->strategy), p->shard_group,
                 p->micro_batches, p->gather_slots, p->gradient_slots, (int)p->dtype, (int)p->reduce_dtype,
                 p->optimizer_states, eo_optimizer_name(p->optimizer), p->align_bytes, p->no_prefetch ? ", no_prefetch" : "",
                 p->separate_reduce_stream ? ", separate_reduce_stream" : "",
                 p->separate_reservations ? ", separate_reservations" : "", p->float8_gather ? ", float8_gather" : "",
                 p->float8_frozen ? ", float8_frozen" : "",
                 p->ema ? ", ema" : "", p->norms_beside ? ", norms_beside" : "", p->norm_parts ? ", norm_parts" : "");
}

static void log_layer(const eo_log *log, const struct eo_model *model, uint32_t l)
{
    char text[PARAMETERS_A_LINE * 24] = "";
    uint32_t on_line = 0;
    size_t used = 0;
    eo_log_write(log, EO_LOG_ERROR, "layer %u '%s'%s", l, model->layers[l].name, model->layers[l].frozen ? ", frozen" : "");
    for (uint32_t p = 0; p <= model->parameter_count; p++) {
        const bool end = p == model->parameter_count;
        if (on_line > 0 && (end || on_line == PARAMETERS_A_LINE)) {
            eo_log_write(log, EO_LOG_ERROR, "  elements:%s", text);
            on_line = 0;
            used = 0;
        }
        if (end || model->parameters[p].layer != l)
            continue;
        used += (size_t)snprintf(text + used, sizeof(text) - used, " %" PRIu64 "%s", model->parameters[p].element_count,
                                 model->parameters[p].float8_gather ? "f8" : model->parameters[p].fp32 ? "f32" : "");
        on_line++;
    }
}

static void log_position(const eo_log *log, const struct eo_model *model, uint32_t p)
{
    const struct model_position *position = &model->positions[p];
    char gradients[64] = "";
    if (position->parameters)
        snprintf(gradients, sizeof(gradients), ", gradients to %u parameters", position->parameter_count);
    eo_log_write(log, EO_LOG_ERROR, "position %u: layer %u%s%s%s", p, position->layer,
                 position->forward_in_backward ? ", forward_in_backward" : "",
                 position->backward_without_weights ? ", backward_without_weights" : "", gradients);
}

static void log_buffer(const eo_log *log, const struct eo_model *model, uint32_t b)
{
    static const char *const passes[] = {"forward", "recompute", "backward"};
    const struct model_buffer *buffer = &model->buffers[b];
    if (buffer->persistent)
        eo_log_write(log, EO_LOG_ERROR, "buffer '%s': %" PRIu64 " bytes, persistent", buffer->name, buffer->bytes);
    else
        eo_log_write(log, EO_LOG_ERROR, "buffer '%s': %" PRIu64 " bytes, %s of %u to %s of %u", buffer->name, buffer->bytes,
                     passes[buffer->first.pass], buffer->first.position, passes[buffer->last.pass],
                     buffer->last.position);
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
