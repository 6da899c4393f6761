/* SPDX-License-Identifier: MIT
 *
 * Small models made by hand, each for something that a planner can get wrong, and the settings to plan them with.
 */
#ifndef EO_TESTS_UNIT_PLAN_MODELS_H
#define EO_TESTS_UNIT_PLAN_MODELS_H

#include <evenodd/evenodd.h>

struct plan_model {
    const char *name;
    void (*describe)(eo_model *model);
};

/* Ends with an entry without a name. */
extern const struct plan_model eo_plan_models[];

/* A model of this list, or one of `blocks` equal blocks between a larger embedding and a larger head. */
eo_model *eo_plan_model(const char *name);
eo_model *eo_plan_model_of_blocks(uint32_t blocks);

/* Whether it has frozen matrices that may lie in MXFP8. */
bool eo_plan_freezes_matrices(const eo_model *model);

/* What was logged last, by any model or plan made with eo_test_log. */
extern char eo_test_text[1024];
extern const eo_log eo_test_log;

/* The n-th of the settings every small model is planned with, false past the last: slots, micro-batches, element types
 * and switches; rank_count is left to the caller. */
bool eo_plan_settings(uint32_t n, eo_plan_params *out);

/* Whether EO_TEST_FULL asks for everything. */
bool eo_test_full(void);

#endif
