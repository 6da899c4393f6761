/* SPDX-License-Identifier: MIT
 *
 * Documents packed into rows of a fixed length, each document in as few pieces as it needs:
 *
 *     row   [ document 7           | document 2     | 31, its second piece | padding ]
 *
 * A document begins at the last of several boundary tokens in a row; those before it end the document before. Inputs are its
 * tokens but the last, targets those behind them. A text has no token of its own for the end: its last token is an input too,
 * and the boundary behind it the target. So a model learns to end texts, and no document sees another. Pieces go where the
 * least room is left that takes them, the longest first: the rows follow from the tokens and the length alone.
 */
#ifndef EO_TOOLS_RUN_DATA_PACKING_H
#define EO_TOOLS_RUN_DATA_PACKING_H

#include "tools/shared/problem.h"

struct tool_data;

struct tool_piece {
    uint64_t begin;        /* its first token */
    uint32_t length : 31;  /* inputs */
    uint32_t is_ended : 1; /* its last target is the boundary, whatever stands behind */
    uint32_t next;         /* of the row; UINT32_MAX: the last */
};

struct tool_packing {
    struct tool_piece *pieces;
    uint32_t *rows; /* a row's first piece */
    uint64_t piece_count, row_count, document_count, input_count;
};

/* Of the tokens [first, end). No document of two tokens: no row. EO_ERR_NO_MEMORY, EO_ERR_INVALID. */
EO_NODISCARD eo_status tool_packing_make(struct tool_packing *out, const struct tool_data *data, uint64_t first, uint64_t end,
                                         uint32_t seq, struct tool_problem *problem);
void tool_packing_fini(struct tool_packing *packing);

/* seq of each. Padding has no targets (-100), and is a document. */
void tool_packing_row(const struct tool_packing *packing, const struct tool_data *data, uint64_t row, uint32_t seq,
                      int32_t *tokens, int32_t *targets, int32_t *positions);

#endif
