/* SPDX-License-Identifier: MIT
 *
 * What a block of another system keeps of a token for its backward pass.
 */
#ifndef EO_TOOLS_MEMPLAN_SYSTEMS_ACTIVATIONS_H
#define EO_TOOLS_MEMPLAN_SYSTEMS_ACTIVATIONS_H

#include "tools/memplan/systems/systems.h"

static inline uint64_t tool_max_u64(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

uint64_t tool_rank_tokens(const struct tool_layout *layout);     /* of a micro-batch, on a rank */
uint64_t tool_sequence_split(const struct tool_layout *layout);  /* ranks that share norms and residuals */

/* Bytes of a token of a block that is not recomputed as a whole. */
uint64_t tool_block_bytes(const struct tool_shape *shape, const struct tool_system_settings *settings);
/* ... by torchtitan's selective recompute by operation. */
uint64_t tool_selective_bytes(const struct tool_shape *shape, const struct tool_layout *layout);

/* Of so many blocks in flight, each keeping so many bytes of a token; recomputed ones keep their inputs. */
uint64_t tool_kept_bytes(const struct tool_shape *shape, const struct tool_system_settings *settings, uint64_t blocks,
                         uint64_t block_bytes);
/* Of a token: what backward makes again of a block, or of a unit of blocks, at a time. */
uint64_t tool_again_bytes(const struct tool_shape *shape, const struct tool_system_settings *settings);

#endif
