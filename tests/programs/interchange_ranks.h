/* SPDX-License-Identifier: MIT
 *
 * A model on several ranks, each a thread, for what is done outside of steps. Whatever fails ends the program with a
 * message.
 */
#ifndef EO_TESTS_PROGRAMS_INTERCHANGE_RANKS_H
#define EO_TESTS_PROGRAMS_INTERCHANGE_RANKS_H

#include <evenodd/layers.h>

struct ranks {
    eo_transformer_config config;
    uint32_t rank_count, seq; /* seq 0: 8 */
    eo_dtype dtype;
    eo_transformer *transformer;
    eo_plan *plan;
};

struct ranks_rank {
    const struct ranks *ranks;
    uint32_t rank;
    eo_team *team;
    eo_runtime *runtime;
};

/* The config with its defaults filled in; model and plan, for ranks_run as often as wanted. */
void ranks_init(struct ranks *ranks, const eo_transformer_config *config, uint32_t rank_count, eo_dtype dtype,
                uint32_t seq);
void ranks_fini(struct ranks *ranks);
const eo_model *ranks_model(const struct ranks *ranks);

/* `life` on every rank at once, in a world and runtimes made for it. */
void ranks_run(const struct ranks *ranks, void (*life)(void *user, struct ranks_rank *rank), void *user);

#endif
