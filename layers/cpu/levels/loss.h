/* SPDX-License-Identifier: MIT
 *
 * The sums of softmax at one level. Four running vectors each, so that one does not wait for the other.
 */
#ifndef EO_LAYERS_CPU_LEVELS_LOSS_H
#define EO_LAYERS_CPU_LEVELS_LOSS_H

INLINE float row_max(const element *row, uint64_t count)
{
    vf max[4];
    for (int lane = 0; lane < 4; lane++)
        max[lane] = v_set(-INFINITY);
    uint64_t i = 0;
    for (; i + 4 * V <= count; i += 4 * V)
        for (int lane = 0; lane < 4; lane++)
            max[lane] = v_max(max[lane], LOAD_WHOLE(row + i + (uint64_t)(lane * V)));
    float rest = v_max_element(v_max(v_max(max[0], max[1]), v_max(max[2], max[3])));
    for (; i < count; i++)
        rest = float_of(row[i]) > rest ? float_of(row[i]) : rest;
    return rest;
}

/* The first pass brings a row into the second-level cache; while the second computes, the next row is fetched. */
static void softmax_sum(const void *values, const void *next_values, uint64_t count, float *exponentials, float *max,
                        float *sum)
{
    const element *row = values, *next = next_values;
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
            const vf e = v_exp(LOAD_WHOLE(row + at) - m);
            sums[lane] += e;
            if (exponentials != NULL)
                v_store(exponentials + at, e);
        }
    *sum = v_sum((sums[0] + sums[1]) + (sums[2] + sums[3]));
    for (; i < count; i += V) {
        enum { whole = 0 };
        const uint64_t left = count - i < V ? count - i : V;
        float e[V];
        v_store(e, v_exp(LOAD(row + i) - m));
        for (uint64_t at = 0; at < left; at++)
            *sum += e[at];
        if (exponentials != NULL)
            memcpy(exponentials + i, e, left * sizeof(float));
    }
}

static void softmax_gradient(void *values, const float *exponentials, uint64_t count, float factor, uint64_t target, float less)
{
    element *row = values;
    const vf f = v_set(factor);
    const vf at_target = v_set(exponentials[target]) * f - v_set(less);
    FOR_VECTORS(i, count, STORE(row + i, LOAD(exponentials + i) * f););
    OF_POINTER(row, v_store_part, v_store_bf16_part)(row + target, at_target, 1);
}

#endif
