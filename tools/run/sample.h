/* SPDX-License-Identifier: MIT
 *
 * Text from the trained model: token after token, drawn with a temperature. Rank 0 takes a copy of the weights and a cache of
 * keys and values, in host memory beside the plan, and goes on alone; where kernels are a GPU's, or that memory is not there,
 * all ranks run all tokens again for each new one, to the same logits up to rounding.
 */
#ifndef EO_TOOLS_RUN_SAMPLE_H
#define EO_TOOLS_RUN_SAMPLE_H

#include "tools/run/job.h"

struct tool_sample_params {
    uint32_t prompt_count, count; /* out[0 ... prompt_count) is given, `count` more are wanted */
    uint32_t vocabulary;          /* tokens from here on are never drawn */
    double temperature;
    uint64_t seed;
    bool without_cache;           /* for comparison */
};

/*
 * Collective. *made: how many were drawn, on rank 0; fewer than `count` where a signal came (job->stop of any rank), which is
 * looked at for each token. Behind as many tokens as a sequence has, the next one sees the last half of them.
 */
EO_NODISCARD eo_status tool_sample(struct tool_job_rank *rank, const struct tool_sample_params *params, int32_t *out,
                                   uint32_t *made);

#endif
