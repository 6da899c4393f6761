/* SPDX-License-Identifier: MIT
 *
 * Text from the trained model: token after token, drawn with a temperature from the logits of a forward-only run.
 */
#ifndef EO_TOOLS_SAMPLE_H
#define EO_TOOLS_SAMPLE_H

#include "tools/job.h"

/*
 * Continues out[0 ... prompt_count) to out[0 ... prompt_count + count). Collective: all ranks compute the same logits
 * and draw the same numbers, so they agree without a word. Tokens from `vocabulary` on are never drawn.
 */
EO_NODISCARD eo_status eo_sample(struct eo_job_rank *rank, uint32_t prompt_count, uint32_t count, uint32_t vocabulary,
                                 double temperature, uint64_t seed, int32_t *out);

#endif
