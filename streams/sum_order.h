/* SPDX-License-Identifier: MIT
 *
 * The order in which squares are summed, the same on every device, so that norms have the same bits everywhere.
 * It follows from the number of elements alone:
 *
 *     chunk c     elements [c * chunk, (c + 1) * chunk); chunk = eo_sum_chunk(count), a multiple of the lanes
 *     lane j      of a chunk: elements j, j + lanes, j + 2 lanes ... one after the other, in double, from 0
 *     tree        lane[j] += lane[j + width] for j < width, width = lanes / 2, ... 2, 1: lane[0] is the chunk's sum
 *     the chunks' sums are summed in just this way: lane j takes chunks j, j + lanes ... and then the tree
 *
 * The square of a float is exact in double, so fused or not makes no difference. On a GPU a chunk is a block and a
 * lane a thread of a warp; on a CPU lanes are vectors.
 */
#ifndef EO_STREAMS_SUM_ORDER_H
#define EO_STREAMS_SUM_ORDER_H

#include <stdint.h>

enum {
    EO_SUM_LANES = 32,
    EO_SUM_CHUNK = 8192,
    EO_SUM_CHUNKS_MAX = 8192, /* longer arrays have longer chunks: the room for partial sums is fixed */
};

static inline uint64_t eo_sum_chunk(uint64_t count)
{
    const uint64_t even = count / EO_SUM_CHUNKS_MAX + (count % EO_SUM_CHUNKS_MAX != 0);
    const uint64_t whole = (even + EO_SUM_LANES - 1) / EO_SUM_LANES * EO_SUM_LANES;
    return whole > EO_SUM_CHUNK ? whole : EO_SUM_CHUNK;
}

/* Folds the lanes; lanes[0] is the sum. */
static inline double eo_sum_fold(double *lanes)
{
    for (uint32_t width = EO_SUM_LANES / 2; width > 0; width /= 2) {
        for (uint32_t lane = 0; lane < width; lane++)
            lanes[lane] += lanes[lane + width];
    }
    return lanes[0];
}

/* The sum of the chunks' sums. */
static inline double eo_sum_chunks(const double *chunks, uint64_t count)
{
    double lanes[EO_SUM_LANES] = {0};
    for (uint64_t i = 0; i < count; i++)
        lanes[i % EO_SUM_LANES] += chunks[i];
    return eo_sum_fold(lanes);
}

/* All of it in plain C, element by element, without room for partial sums. */
static inline double eo_sum_squares_plain(const float *values, uint64_t count)
{
    const uint64_t chunk = eo_sum_chunk(count);
    double chunk_lanes[EO_SUM_LANES] = {0};
    uint64_t index = 0;
    for (uint64_t begin = 0; begin < count; begin += chunk, index++) {
        const uint64_t end = count - begin < chunk ? count : begin + chunk;
        double lanes[EO_SUM_LANES] = {0};
        for (uint64_t i = begin; i < end; i++)
            lanes[(i - begin) % EO_SUM_LANES] += (double)values[i] * (double)values[i];
        chunk_lanes[index % EO_SUM_LANES] += eo_sum_fold(lanes);
    }
    return eo_sum_fold(chunk_lanes);
}

#endif
