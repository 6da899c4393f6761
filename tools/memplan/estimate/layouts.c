/* SPDX-License-Identifier: MIT
 *
 * The fastest layouts of a system that fit: every one of a grid is estimated.
 */
#include <stdlib.h>
#include <string.h>

#include "tools/memplan/estimate/estimate.h"

enum { SHOWN = 8, TENSOR_MOST = 64, PIPELINE_MOST = 256, VIRTUAL_MOST = 8, BATCH_MOST = 16, RECOMPUTES = 3 };

struct candidate {
    struct tool_layout layout;
    uint32_t batch, recomputed_blocks;
    uint64_t total_bytes;
    struct tool_step_time step;
};

struct search {
    const struct tool_estimate_request *request;
    const struct tool_layouts_kept *kept;
    struct candidate best[SHOWN];
    uint32_t shown, tried, fitting;
};

/* Faster, or as fast with less memory. */
static bool is_better(const struct candidate *a, const struct candidate *b)
{
    return a->step.seconds < b->step.seconds || (a->step.seconds <= b->step.seconds && a->total_bytes < b->total_bytes);
}

static void keep(struct search *s, const struct candidate *c)
{
    uint32_t at = s->shown;
    while (at > 0 && is_better(c, &s->best[at - 1]))
        at--;
    if (at == SHOWN)
        return;
    const uint32_t after = s->shown < SHOWN ? s->shown - at : SHOWN - 1 - at;
    memmove(&s->best[at + 1], &s->best[at], after * sizeof(s->best[0]));
    s->best[at] = *c;
    s->shown += s->shown < SHOWN;
}

static void try_one(struct search *s, struct tool_estimate_request *r, struct tool_memplan_settings *asked, uint32_t recomputed)
{
    struct candidate c = {.layout = r->layout, .batch = asked->plan.batch, .recomputed_blocks = recomputed};
    struct tool_problem problem;
    struct tool_time_answer time;
    bool fits = false;
    asked->plan.recompute = recomputed ? EO_RECOMPUTE_BLOCKS : EO_RECOMPUTE_NONE;
    asked->plan.recompute_blocks = recomputed;
    if (tool_estimate_total(&c.total_bytes, &fits, r, &problem) < 0) /* no such layout */
        return;
    s->tried++;
    if (!fits || tool_estimate_time(&time, r, &problem) < 0)
        return;
    s->fitting++;
    c.step = time.step;
    keep(s, &c);
}

/* Batches and recompute of one cut. */
static void try_cut(struct search *s, struct tool_estimate_request *r, struct tool_memplan_settings *asked)
{
    const struct tool_plan_settings *given = &s->request->asked->plan;
    const uint32_t blocks = s->request->config->layer_count;
    for (uint32_t b = s->kept->batch ? given->batch : 1; b <= (s->kept->batch ? given->batch : BATCH_MOST); b *= 2) {
        asked->plan.batch = b;
        for (uint32_t n = 0; n < RECOMPUTES; n++) /* none, half, all */
            if (!s->kept->recompute)
                try_one(s, r, asked, blocks * n / (RECOMPUTES - 1));
        if (s->kept->recompute)
            try_one(s, r, asked,
                    given->recompute != EO_RECOMPUTE_BLOCKS ? 0
                    : given->recompute_blocks < blocks      ? given->recompute_blocks
                                                            : blocks); /* all */
    }
}

static void try_all(struct search *s)
{
    struct tool_memplan_settings asked = *s->request->asked;
    struct tool_estimate_request r = *s->request;
    const struct tool_layout *given = &s->request->layout;
    const uint32_t node = asked.gpus_per_node < TENSOR_MOST ? asked.gpus_per_node : TENSOR_MOST;
    r.asked = &asked;
    for (uint32_t t = s->kept->tensor ? given->tensor : 1; t <= (s->kept->tensor ? given->tensor : node); t *= 2)
        for (uint32_t p = s->kept->pipeline ? given->pipeline : 1; p <= (s->kept->pipeline ? given->pipeline : PIPELINE_MOST);
             p++)
            for (uint32_t v = s->kept->virtual_stages ? given->virtual_stages : 1;
                 v <= (s->kept->virtual_stages ? given->virtual_stages
                       : p > 1                 ? VIRTUAL_MOST
                                               : 1);
                 v++) {
                if (s->request->config->layer_count % (p * v))
                    continue;
                r.layout.tensor = t;
                r.layout.pipeline = p;
                r.layout.virtual_stages = v;
                r.layout.sequence_parallel = given->sequence_parallel || t > 1;
                try_cut(s, &r, &asked);
            }
}

static void print_words(FILE *out, const struct candidate *c)
{
    const struct tool_layout *l = &c->layout;
    fprintf(out, "--batch %u", c->batch);
    if (l->tensor > 1)
        fprintf(out, " --tp %u --sequence-parallel", l->tensor);
    if (l->pipeline > 1)
        fprintf(out, " --pp %u", l->pipeline);
    if (l->virtual_stages > 1)
        fprintf(out, " --virtual-stages %u", l->virtual_stages);
    if (c->recomputed_blocks)
        fprintf(out, " --recompute %u", c->recomputed_blocks);
    fputc('\n', out);
}

eo_status tool_estimate_layouts(FILE *out, const struct tool_estimate_request *request, const struct tool_layouts_kept *kept,
                                bool *found, struct tool_problem *problem)
{
    struct search s = {.request = request, .kept = kept};
    if (request->system == TOOL_SYSTEM_DEEPSPEED)
        return tool_problem_set(problem, EO_ERR_INVALID,
                                "--fit best: of other systems megatron, megatron-fsdp and fsdp2 are searched");
    if (request->global_batch == 0 || request->asked->capacity_bytes == 0 || !tool_device_rates_find(request->device))
        return tool_problem_set(problem, EO_ERR_INVALID,
                                "--fit best of another system: give --global-batch, and --device of A100, H100, "
                                "H200 or B200");
    try_all(&s);
    *found = s.shown > 0;
    fprintf(out, "%s, %u x %s, %s, %u sequences a step: %u layouts, %u fit\n", request->config->source,
            request->asked->plan.ranks, request->device, tool_system_name(request->system), request->global_batch, s.tried,
            s.fitting);
    for (uint32_t i = 0; i < s.shown; i++) {
        const struct candidate *c = &s.best[i];
        fprintf(out, "  %8.3f s %10.0f tokens/s  MFU %4.1f %%  %5.1f GiB  ", c->step.seconds, c->step.tokens_per_second,
                100 * c->step.mfu, tool_gib(c->total_bytes));
        print_words(out, c);
    }
    fprintf(out, "%s%s\n",
            s.shown ? "estimates of time and memory; near ones may change places"
                    : "nothing fits: give more GPUs, a shorter --seq, or blocks that stages divide",
            s.shown && request->asked->headroom_bytes == 0 ? "; --headroom 10% keeps room for the allocator" : "");
    return EO_OK;
}
