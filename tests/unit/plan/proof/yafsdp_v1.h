/* SPDX-License-Identifier: MIT
 *
 * The step of YaFSDP's first version as data: two weight buffers and two gradient buffers by parity, an fp32 staging
 * buffer, the norms as a unit of their own, a cast of the whole master shard at step start; waits are those of its
 * buffers' two events, `prepared` and `released`, and no others.
 */
#ifndef EO_TESTS_UNIT_PLAN_PROOF_YAFSDP_V1_H
#define EO_TESTS_UNIT_PLAN_PROOF_YAFSDP_V1_H

#include "tests/unit/plan/proof/hand_schedule.h"

/*
 * Lists: the first step, the steady step, and in the place of the forward list the step after that, which must be
 * like the steady one. `with_missing_edge`: the communication stream waits for the cast before it gathers the norms.
 * free() releases the result; NULL when memory is out.
 */
struct eo_hand *eo_yafsdp_v1_create(uint32_t units, uint32_t micro_batches, bool with_missing_edge);

#endif
