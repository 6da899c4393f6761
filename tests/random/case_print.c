/* SPDX-License-Identifier: MIT */
#include "tests/random/generator.h"

static void print_settings(const struct random_case *c, FILE *out)
{
    static const char *const memories[] = {"static", "malloc", "pool", "caching"};
    const eo_plan_params *s = &c->settings;
    fprintf(out, "# seed %llu: %s, %u ranks, %u micro-batches, slots %u,%u, weights %s, reductions %s, states %u",
            (unsigned long long)c->seed, eo_strategy_name(s->strategy), s->rank_count, s->micro_batches, s->gather_slots,
            s->gradient_slots, s->float8_gather ? "bf16 gathered in float8" : s->dtype ? "bf16" : "fp32", s->reduce_dtype ? "bf16" : "fp32", s->optimizer_states);
    if (s->shard_group)
        fprintf(out, ", groups of %u", s->shard_group);
    if (s->align_bytes)
        fprintf(out, ", align %u", s->align_bytes);
    if (s->offload_layers)
        fprintf(out, ", %u layers offloaded by %u%s%s", s->offload_layers, s->offload_slots,
                s->offload_gradients ? " with gradients" : "", s->late_updates ? ", late updates" : "");
    if (s->offload_activations)
        fprintf(out, ", saved buffers of %u positions offloaded", s->offload_activations);
    if (s->gather_run > 1 || s->gradient_run > 1)
        fprintf(out, ", runs %u,%u", s->gather_run, s->gradient_run);
    if (c->memory != EO_MEMORY_STATIC)
        fprintf(out, ", memory %s with %u reductions", memories[c->memory], c->reduce_inputs);
    if (c->delay_seed)
        fprintf(out, ", delays %llu", (unsigned long long)c->delay_seed);
    const struct {
        bool is_set;
        const char *name;
    } flags[] = {{s->no_prefetch, "no prefetch"},
                 {s->separate_reduce_stream, "reduce stream"},
                 {s->separate_evict_stream, "evict stream"},
                 {s->norms_beside, "norms beside"},
                 {s->gradients_apart, "gradients apart"},
                 {s->separate_reservations, "reservations"},
                 {c->implicit_prefetch, "implicit prefetch"},
                 {c->debug, "debug"},
                 {c->own_optimizer, "own optimizer"},
                 {c->zero_gradients, "zero gradients"},
                 {c->graph, "graph"},
                 {s->norm_parts, "norms by layer and group"},
                 {s->ema, "average"},
                 {s->input_gradients, "gradients of inputs"}};
    for (size_t f = 0; f < sizeof(flags) / sizeof(flags[0]); f++)
        if (flags[f].is_set)
            fprintf(out, ", %s", flags[f].name);
    if (s->optimizer != EO_OPTIMIZER_ADAMW)
        fprintf(out, ", optimizer %s", eo_optimizer_name(s->optimizer));
    if (c->resume_ranks)
        fprintf(out, ", from step %u on %u ranks in groups of %u", c->resume_step, c->resume_ranks, c->resume_group);
    fprintf(out, ", clips %g, %g, %g; of groups %u %u %u %u", (double)c->clips[0], (double)c->clips[1], (double)c->clips[2],
            c->clip_groups[0], c->clip_groups[1], c->clip_groups[2], c->clip_groups[3]);
    fputs("\n", out);
}

static void print_steps(const struct random_case *c, FILE *out)
{
    static const char *const actions[] = {"",     "evaluation",     "sum",     "visit",
                                          "read", "read and write", "replace", "inputs alone"};
    fprintf(out, "#   steps:");
    for (uint32_t s = 0; s <= c->step_count; s++) {
        for (uint32_t a = 0; a < CASE_ACTIONS_MAX; a++)
            if (c->actions[s][a] != CASE_NOTHING)
                fprintf(out, " (%s)", actions[c->actions[s][a]]);
        if (s < c->step_count)
            fprintf(out, " %u%s", s, c->skips >> s & 1 ? " is skipped" : "");
    }
    fputs("\n", out);
}

void random_case_print(const struct random_case *c, FILE *out)
{
    static const char *const passes[] = {"forward", "recompute", "backward"};
    print_settings(c, out);
    print_steps(c, out);
    for (uint32_t l = 0; l < c->layer_count; l++) {
        fprintf(out, "#   layer %u:", l);
        for (uint32_t k = 0; k < c->layers[l].parameter_count; k++)
            fprintf(out, " %u (group %u)%s%s%s", c->layers[l].elements[k], c->layers[l].groups[k],
                    !(c->layers[l].matrix >> k & 1) ? "" : c->layers[l].tall >> k & 1 ? " (tall matrix)" : " (matrix)",
                    c->layers[l].float8 >> k & 1 ? " (float8)" : c->layers[l].fp32 >> k & 1 ? " (fp32)" : "",
                    c->layers[l].frozen_parts >> k & 1 ? " (frozen)" : "");
        fprintf(out, "%s", c->layers[l].frozen ? ", frozen" : "");
        if (c->layers[l].parts)
            fprintf(out, ", %u parts", c->layers[l].parts);
        fputs("\n", out);
    }
    for (uint32_t p = 0; p < c->position_count; p++)
        fprintf(out, "#   position %u: layer %u, gradients %x%s%s%s\n", p, c->positions[p].layer, c->positions[p].gradients,
                c->positions[p].adds ? ", added" : "", c->positions[p].forward_in_backward ? ", forward in backward" : "",
                c->positions[p].backward_without_weights ? ", backward without weights" : "");
    for (uint32_t b = 0; b < c->buffer_count; b++) {
        const struct case_buffer *buffer = &c->buffers[b];
        if (buffer->persistent)
            fprintf(out, "#   buffer %u: %u bytes, persistent\n", b, buffer->bytes);
        else
            fprintf(out, "#   buffer %u: %u bytes, %s of %u to %s of %u%s\n", b, buffer->bytes, passes[buffer->first.pass],
                    buffer->first.position, passes[buffer->last.pass], buffer->last.position, buffer->saved ? ", saved" : "");
    }
}
