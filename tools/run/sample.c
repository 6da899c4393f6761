/* SPDX-License-Identifier: MIT */
#include "tools/run/sample.h"

#include <math.h>
#include <stdlib.h>

#include "tools/run/machine/memory_check.h"

/* `uniform` in [0, 1). */
static int32_t draw(const float *logits, uint32_t vocabulary, double temperature, double uniform)
{
    double largest = logits[0], sum = 0;
    for (uint32_t v = 1; v < vocabulary; v++)
        largest = logits[v] > largest ? logits[v] : largest;
    for (uint32_t v = 0; v < vocabulary; v++)
        sum += exp((logits[v] - largest) / temperature);
    double left = uniform * sum;
    for (uint32_t v = 0; v < vocabulary; v++) {
        left -= exp((logits[v] - largest) / temperature);
        if (left < 0)
            return (int32_t)v;
    }
    return (int32_t)vocabulary - 1; /* rounding */
}

/* A sample on its way. */
struct draft {
    struct tool_job_rank *rank;
    const struct tool_sample_params *params;
    int32_t *out;
    uint32_t made;
    uint32_t first; /* of out: where what the next token sees begins */
    float *logits;
    eo_decoder *decoder; /* NULL: without a cache */
    eo_team *team;       /* of the decoder: the other ranks' threads have nothing to do */
};

static uint32_t token_count(const struct draft *d)
{
    return d->params->prompt_count + d->made;
}

/* Where a sequence is full the last half of it is the beginning of the next. */
static void move_window(struct draft *d)
{
    const uint32_t seq = d->rank->job->shape.seq;
    if (token_count(d) - d->first <= seq)
        return;
    d->first = token_count(d) - (seq + 1) / 2;
    if (d->decoder)
        eo_decoder_forget(d->decoder);
}

static eo_status next_logits(struct draft *d)
{
    const struct tool_job *job = d->rank->job;
    move_window(d);
    const int32_t *tokens = d->out + d->first;
    const uint32_t count = token_count(d) - d->first;
    if (!d->decoder)
        return eo_transformer_logits(job->transformer, d->rank->runtime, d->rank->team, tokens, count - 1, d->logits);
    const uint32_t known = eo_decoder_count(d->decoder);
    return eo_decoder_run(d->decoder, d->team ? d->team : d->rank->team, tokens + known, count - known, d->logits);
}

static eo_status draw_next(struct draft *d)
{
    const struct tool_sample_params *p = d->params;
    const uint32_t n = token_count(d);
    EO_TRY(next_logits(d));
    d->out[n] = draw(d->logits, p->vocabulary, p->temperature, (double)(tool_data_draw(p->seed, n) >> 11) * 0x1p-53);
    d->made++;
    return EO_OK;
}

static bool is_stopped(const struct tool_job *job)
{
    return job->stop && *job->stop;
}

/* True where any rank says so. */
static eo_status ask_all(struct tool_job_rank *rank, bool own, bool *any)
{
    double value = own;
    EO_TRY(tool_job_sum(rank, &value));
    *any = value > 0;
    return EO_OK;
}

/* Rank 0 alone; the others meet it ten times a second, for a signal may have come to one of them only. */
static eo_status draw_with_cache(struct draft *d)
{
    const uint64_t piece_ns = 100000000u;
    struct tool_job_rank *rank = d->rank;
    eo_status status = EO_OK;
    for (bool end = false; !end;) {
        const uint64_t begin_ns = tool_now_ns();
        while (rank->rank == 0 && status >= 0 && d->made < d->params->count && !is_stopped(rank->job) &&
               tool_now_ns() - begin_ns < piece_ns)
            status = draw_next(d);
        const bool is_done = rank->rank == 0 && (status < 0 || d->made == d->params->count);
        EO_TRY(ask_all(rank, is_done || is_stopped(rank->job), &end));
    }
    return status;
}

/* All ranks draw the same numbers from the same logits. */
static eo_status draw_without_cache(struct draft *d)
{
    bool end = false;
    while (d->made < d->params->count) {
        EO_TRY(ask_all(d->rank, is_stopped(d->rank->job), &end));
        if (end)
            return EO_OK;
        EO_TRY(draw_next(d));
    }
    return EO_OK;
}

/* Half of the memory that is left may be used up. All ranks come to the same. */
static eo_status make_decoder(struct draft *d, bool *has_cache)
{
    struct tool_job_rank *rank = d->rank;
    const struct tool_job *job = rank->job;
    const bool is_first = rank->rank == 0;
    const bool has_team = !job->options->place_threads; /* which stay where their rank is */
    const uint32_t threads = job->options->plan.threads * (has_team ? job->here_count : 1);
    const char *bound;
    bool lacks = tool_options_on_gpu(job->options) || d->params->without_cache ||
                 (is_first && eo_decoder_bytes(job->transformer, threads) > tool_process_memory_available(1, threads, &bound) / 2);
    *has_cache = false;
    EO_TRY(ask_all(rank, lacks, &lacks));
    if (lacks)
        return EO_OK;
    const eo_status status = eo_decoder_create(is_first ? &d->decoder : NULL, job->transformer, rank->runtime, threads);
    if (status < 0 && status != EO_ERR_NO_MEMORY)
        return status;
    EO_TRY(ask_all(rank, is_first && !d->decoder, &lacks));
    *has_cache = !lacks;
    if (is_first && !lacks && has_team && eo_team_create(&d->team, threads) < 0)
        d->team = NULL; /* more threads than there may be: the rank's own do */
    return EO_OK;
}

eo_status tool_sample(struct tool_job_rank *rank, const struct tool_sample_params *params, int32_t *out, uint32_t *made)
{
    bool has_cache;
    struct draft d = {.rank = rank, .params = params, .out = out};
    d.logits = malloc(rank->job->config.vocabulary * sizeof(*d.logits));
    if (!d.logits)
        return EO_ERR_NO_MEMORY;
    eo_status status = make_decoder(&d, &has_cache);
    if (status >= 0)
        status = has_cache ? draw_with_cache(&d) : draw_without_cache(&d);
    *made = d.made;
    eo_decoder_destroy(&d.decoder);
    eo_team_destroy(&d.team);
    free(d.logits);
    return status;
}
