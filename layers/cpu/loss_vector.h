/* SPDX-License-Identifier: MIT
 *
 * The sums of softmax at one level. Four running vectors each, so that one does not wait for the other.
 */
#ifndef EO_LAYERS_CPU_LOSS_VECTOR_H
#define EO_LAYERS_CPU_LOSS_VECTOR_H

static float row_max(const float *row, uint64_t count)
{
    vf max[4];
    for (int lane = 0; lane < 4; lane++)
        max[lane] = v_set(-INFINITY);
    uint64_t i = 0;
    for (; i + 4 * V <= count; i += 4 * V)
        for (int lane = 0; lane < 4; lane++)
            max[lane] = v_max(max[lane], v_load(row + i + (uint64_t)(lane * V)));
    float rest = v_max_element(v_max(v_max(max[0], max[1]), v_max(max[2], max[3])));
    for (; i < count; i++)
        rest = row[i] > rest ? row[i] : rest;
    return rest;
}

/* The first pass brings a row into the second-level cache; while the second computes, the next row is fetched. */
static void softmax_sum(float *row, const float *next, uint64_t count, bool exponentials, float *max, float *sum)
{
    *max = row_max(row, count);
    const vf m = v_set(*max);
    vf sums[4];
    for (int lane = 0; lane < 4; lane++)
        sums[lane] = v_set(0);
    uint64_t i = 0;
    for (; i + 4 * V <= count; i += 4 * V)
        for (int lane = 0; lane < 4; lane++) {
            const uint64_t at = i + (uint64_t)(lane * V);
            if (next != NULL)
                __builtin_prefetch(next + at, 0, 2);
            const vf e = v_exp(v_load(row + at) - m);
            sums[lane] += e;
            if (exponentials)
                v_store(row + at, e);
        }
    *sum = v_sum((sums[0] + sums[1]) + (sums[2] + sums[3]));
    for (; i < count; i += V) {
        const uint64_t left = count - i < V ? count - i : V;
        float e[V];
        v_store(e, v_exp(v_load_part(row + i, left) - m));
        for (uint64_t at = 0; at < left; at++)
            *sum += e[at];
        if (exponentials)
            memcpy(row + i, e, left * sizeof(float));
    }
}

#endif
