/* SPDX-License-Identifier: MIT
 *
 * Where rows cut the address line, and which segments belong to rows of the whole run.
 */
#include "runtime/plan/proof/shadow.h"

#include <stdlib.h>

#include "base/check.h"

static int compare_edges(const void *a, const void *b)
{
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

/* The segment that begins at `edge`, which is one of the edges. */
static uint32_t segment_at(const uint64_t *edges, uint32_t edge_count, uint64_t edge)
{
    uint32_t low = 0, high = edge_count;
    while (high - low > 1) {
        const uint32_t middle = low + (high - low) / 2;
        if (edges[middle] <= edge)
            low = middle;
        else
            high = middle;
    }
    return low;
}

void eo_proof_cut_segments(struct proof *proof)
{
    const struct eo_schedule *schedule = proof->schedule;
    uint32_t edge_count = 0;
    for (uint32_t row = 0; row < schedule->row_count; row++) {
        const struct eo_schedule_row *r = &schedule->rows[row];
        EO_ASSERT(r->bytes <= UINT64_MAX - r->address);
        proof->edges[edge_count++] = r->address;
        proof->edges[edge_count++] = r->address + r->bytes;
    }
    qsort(proof->edges, edge_count, sizeof(proof->edges[0]), compare_edges);
    uint32_t kept = 0;
    for (uint32_t i = 0; i < edge_count; i++)
        if (kept == 0 || proof->edges[i] != proof->edges[kept - 1])
            proof->edges[kept++] = proof->edges[i];

    for (uint32_t i = 0; i < kept; i++)
        proof->segments[i].content = (struct eo_content){.row = EO_NONE, .subject = EO_NONE};
    for (uint32_t row = 0; row < schedule->row_count; row++) {
        const struct eo_schedule_row *r = &schedule->rows[row];
        proof->row_begin[row] = segment_at(proof->edges, kept, r->address);
        proof->row_end[row] = segment_at(proof->edges, kept, r->address + r->bytes);
        for (uint32_t i = proof->row_begin[row]; r->initialised && i < proof->row_end[row]; i++)
            proof->segments[i].content = (struct eo_content){.row = row, .subject = r->initial_subject};
    }
}

/* Rows of the whole run own their segments; no other row has any of these. */
void eo_proof_check_owners(struct proof *proof)
{
    const struct eo_schedule *schedule = proof->schedule;
    for (uint32_t row = 0; row < schedule->row_count; row++)
        for (uint32_t i = proof->row_begin[row]; schedule->rows[row].always && i < proof->row_end[row]; i++)
            if (proof->owner[i] == 0)
                proof->owner[i] = row + 1;
    for (uint32_t row = 0; row < schedule->row_count && !proof->stopped; row++) {
        for (uint32_t i = proof->row_begin[row]; i < proof->row_end[row]; i++) {
            if (proof->owner[i] == 0 || proof->owner[i] == row + 1)
                continue;
            eo_proof_report_shared(proof, proof->owner[i] - 1, row);
            break; /* once a row, not once a segment */
        }
    }
}
