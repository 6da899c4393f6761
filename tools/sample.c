/* SPDX-License-Identifier: MIT */
#include "tools/sample.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

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

static eo_status generate(struct eo_job_rank *rank, uint32_t prompt_count, uint32_t count, uint32_t vocabulary,
                          double temperature, uint64_t seed, int32_t *out, float *logits)
{
    const uint32_t seq = rank->job->shape.seq;
    memset(rank->tokens, 0, (size_t)rank->job->shape.batch * seq * sizeof(*rank->tokens));
    for (uint32_t n = prompt_count; n < prompt_count + count; n++) {
        const uint32_t window = n < seq ? n : seq;
        memcpy(rank->tokens, out + n - window, window * sizeof(*out));
        TOOLS_TRY(eo_transformer_logits(rank->job->transformer, rank->runtime, rank->team, rank->tokens, window - 1,
                                        logits));
        out[n] = draw(logits, vocabulary, temperature, (double)(eo_data_draw(seed, n) >> 11) * 0x1p-53);
    }
    return EO_OK;
}

eo_status eo_sample(struct eo_job_rank *rank, uint32_t prompt_count, uint32_t count, uint32_t vocabulary,
                    double temperature, uint64_t seed, int32_t *out)
{
    float *logits = malloc(rank->job->config.vocabulary * sizeof(*logits));
    if (!logits)
        return EO_ERR_NO_MEMORY;
    const eo_status status = generate(rank, prompt_count, count, vocabulary, temperature, seed, out, logits);
    free(logits);
    return status;
}
