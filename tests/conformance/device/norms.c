/* SPDX-License-Identifier: MIT
 *
 * The kernels of gradient norms and clipping against plain loops, bit by bit.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/conformance/device/pairs.h"
#include "tests/conformance/ranks.h"
#include "streams/sum_order.h"

/* gathered: ranks times EO_NORM_VALUES. As streams/device.h says. */
static void norm_plain(struct eo_norm_result *out, const double *gathered, uint32_t ranks,
                       const struct eo_update_scalars *scalars)
{
    const double clip = (double)scalars->clip;
    double all[EO_NORM_VALUES] = {0};
    for (uint32_t r = 0; r < ranks; r++)
        for (int v = 0; v < EO_NORM_VALUES; v++)
            all[v] += gathered[r * EO_NORM_VALUES + (uint32_t)v];
    const double weight = all[EO_NORM_VALUES - 1], divisor = (weight > 0 ? weight : 1) * scalars->loss_scale;
    memset(out, 0, sizeof(*out));
    out->norm = sqrt(all[0]) / divisor;
    out->weight = weight;
    out->clip_factor = clip > 0 && out->norm > clip ? clip / (out->norm + 1e-6) : 1;
    out->gradient_scale = (float)(out->clip_factor / divisor);
    memcpy(out->values, all + 1, sizeof(out->values));
}

/* Terms of all parts, in an order that mixes them. */
static void local_norms(struct test_bed *bed)
{
    enum { LAYERS = 5, CLIPS = 300, COUNT = EO_NORM_VALUES + LAYERS + CLIPS, MOST = 1500 };
    static const uint32_t term_counts[] = {0, 1, 2, 319, 320, 321, MOST};
    const struct eo_device_ops *ops = bed->device->ops;
    struct eo_norm_term *terms = malloc(MOST * sizeof(*terms));
    struct eo_update_scalars scalars = {.values = {1, 2, 3, 4}, .weight = 5, .loss_scale = 1};
    const struct eo_step_memory from = {.scalars = &scalars};
    for (size_t c = 0; c < 2 * sizeof(term_counts) / sizeof(term_counts[0]); c++) {
        const uint32_t count = term_counts[c / 2], parts = c % 2 ? LAYERS + CLIPS : 0, numbers = EO_NORM_VALUES + parts;
        struct eo_step_memory step = test_bed_put_step(bed, &from, 0);
        step.layer_count = parts ? LAYERS : 0;
        step.clip_count = parts ? CLIPS : 0;
        struct pair partials = pair_make(bed, 9, count, 8, 0), values = pair_make(bed, 10, EO_STEP_VALUES, 8, 0);
        struct pair out = pair_make(bed, 11, 2 * COUNT, 8, 0);
        double *device_out = (double *)out.device, *want = (double *)out.plain;
        memset(want, 0, numbers * sizeof(*want));
        for (uint32_t i = 0; i < count; i++) {
            const uint32_t part = parts ? i * 7 % (parts + 1) : 0, into = part ? EO_NORM_VALUES - 1 + part : 0;
            terms[i] = (struct eo_norm_term){(const double *)partials.device + i, into};
            want[into] += ((const double *)partials.plain)[i];
        }
        want[EO_NORM_VALUES - 1] = scalars.weight;
        memcpy(want + numbers, want, numbers * sizeof(*want));
        ops->norm_local(bed->device, device_out, terms, count, &step, (const double *)values.device);
        ops->norm_local(bed->device, device_out + numbers, terms, count, &step, NULL);
        memset(terms, 0, MOST * sizeof(*terms)); /* valid during the call alone */
        for (int v = 0; v < EO_STEP_VALUES; v++) {
            want[1 + v] = scalars.values[v] + ((const double *)values.plain)[v];
            want[numbers + 1 + (uint32_t)v] = scalars.values[v];
        }
        pair_same(bed, &out, "norm_local", count);
        pair_same(bed, &values, "what was read", count);
        pair_same(bed, &partials, "what was read", count);
        test_bed_reset(bed);
    }
    free(terms);
}

static double plain_factor(double norm, double clip)
{
    return clip > 0 && norm > clip ? clip / (norm + 1e-6) : 1;
}

/* Norms by layer and by group of 3 ranks; groups 1 and 4 are clipped together, 3 for itself, the others with the step's. */
static void norms_in_parts(struct test_bed *bed, bool apart, double first)
{
    enum { LAYERS = 300, CLIPS = 5, GROUPS = 7, RANKS = 3, COUNT = EO_NORM_VALUES + LAYERS + CLIPS };
    static const uint32_t clip_groups[CLIPS] = {0, 9, 0, 255, 9};
    static const float clips[CLIPS] = {3, 2, 3, 0.25f, 2};
    struct eo_update_scalars scalars = {.clip = 3, .loss_scale = 1.5, .group_count = GROUPS, .clips_apart = apart};
    struct eo_group_scalars groups[GROUPS] = {0};
    struct eo_clip_scalars clip_scalars[CLIPS];
    struct eo_norm_result result = {0};
    struct eo_group_result results[GROUPS] = {0};
    double gathered[RANKS * COUNT], sums[COUNT] = {0}, layer_norms[LAYERS], got_layers[LAYERS];
    struct eo_clip_result want[CLIPS], got_clips[CLIPS];
    for (int i = 0; i < RANKS * COUNT; i++)
        gathered[i] = 0.3 + i % 1000 / 7.0;
    gathered[COUNT] = first;
    for (int i = 0; i < RANKS * COUNT; i++)
        sums[i % COUNT] += gathered[i];
    const double divisor = sums[EO_NORM_VALUES - 1] * scalars.loss_scale, *squares = sums + EO_NORM_VALUES + LAYERS;
    const double norm = sqrt(sums[0]) / divisor;
    double step_squares = 0;
    for (int g = 0; g < GROUPS; g++)
        groups[g].clip = (uint32_t)g % CLIPS;
    for (int l = 0; l < LAYERS; l++)
        layer_norms[l] = sqrt(sums[EO_NORM_VALUES + l]) / divisor;
    for (int c = 0; c < CLIPS; c++) {
        double together = 0;
        for (int d = 0; d < CLIPS; d++)
            together += clip_groups[d] == clip_groups[c] ? squares[d] : 0;
        clip_scalars[c] = (struct eo_clip_scalars){clip_groups[c], clips[c]};
        want[c].norm = sqrt(squares[c]) / divisor;
        want[c].clip_factor = apart ? plain_factor(sqrt(together) / divisor, clips[c]) : plain_factor(norm, scalars.clip);
        step_squares += clip_groups[c] == 0 ? squares[c] : 0;
    }
    struct eo_step_memory step = test_bed_put_step(
        bed, &(struct eo_step_memory){.scalars = &scalars, .groups = groups, .norm = &result, .results = results}, GROUPS);
    step.layer_count = LAYERS;
    step.clip_count = CLIPS;
    step.clips = test_bed_take(bed, sizeof(clip_scalars), 0);
    step.layer_norms = test_bed_take(bed, sizeof(layer_norms), 0);
    step.clip_results = test_bed_take(bed, sizeof(want), 0);
    double *device_gathered = test_bed_take(bed, sizeof(gathered), 0);
    test_bed_put(bed, step.clips, clip_scalars, sizeof(clip_scalars));
    test_bed_put(bed, device_gathered, gathered, sizeof(gathered));
    bed->device->ops->norm_sum(bed->device, device_gathered, RANKS, &step);
    test_bed_get(bed, &result, step.norm, sizeof(result));
    test_bed_get(bed, results, step.results, sizeof(results));
    test_bed_get(bed, got_layers, step.layer_norms, sizeof(got_layers));
    test_bed_get(bed, got_clips, step.clip_results, sizeof(got_clips));
    const double factor = plain_factor(apart ? sqrt(step_squares) / divisor : norm, scalars.clip);
    TEST_HOLDS(NULL, memcmp(got_layers, layer_norms, sizeof(layer_norms)) == 0);
    for (int g = 0; g < GROUPS; g++)
        TEST_HOLDS(NULL, isfinite(first) ? results[g].gradient_scale == (float)(want[g % CLIPS].clip_factor / divisor)
                                         : isnan(results[g].gradient_scale));
    TEST_HOLDS(NULL, isfinite(first) ? result.gradient_scale == (float)(factor / divisor) : isnan(result.gradient_scale));
    TEST_HOLDS(NULL, !isfinite(first) || (result.norm == norm && result.clip_factor == factor));
    TEST_HOLDS(NULL, !isfinite(first) || memcmp(got_clips, want, sizeof(want)) == 0);
    test_bed_reset(bed);
}

void test_device_norms(struct test_bed *bed)
{
    enum { GROUPS = 3 };
    const struct eo_device_ops *ops = bed->device->ops;
    struct eo_update_scalars scalars = {
        .clip = 0.5f, .values = {1, 2, 3, 4}, .weight = 5, .loss_scale = 1, .group_count = GROUPS};
    struct eo_group_scalars groups[GROUPS] = {0};
    struct eo_norm_result result = {.skipped = 7};
    struct eo_group_result results[GROUPS] = {0};
    const struct eo_step_memory from = {.scalars = &scalars, .groups = groups, .norm = &result, .results = results};
    local_norms(bed);
    for (int apart = 0; apart < 2; apart++) {
        norms_in_parts(bed, apart, 0.25);
        norms_in_parts(bed, apart, (double)NAN);
    }
    for (int round = 0; round < 10; round++) {
        double gathered[3 * EO_NORM_VALUES];
        for (int i = 0; i < 3 * EO_NORM_VALUES; i++)
            gathered[i] = 0.3 + i / 7.0;
        for (int r = 0; r < 3 && round != 4; r++) /* weights */
            gathered[r * EO_NORM_VALUES + EO_NORM_VALUES - 1] = 0;
        gathered[EO_NORM_VALUES] = round == 1 ? (double)NAN : round == 2 ? (double)INFINITY : gathered[EO_NORM_VALUES];
        for (int r = 0; r < 3 && round >= 6; r++)
            gathered[r * EO_NORM_VALUES] = round < 8 ? 0 : 1e77;
        const double scales[] = {1,   1,       1,     1,   1.5,
                                 1.5, 2.9e-39, 3e-39, 0.5, 1}; /* floats hold the inverse of the second small one */
        scalars.loss_scale = (float)scales[round];
        scalars.clip = round == 3 ? 0.0f : 0.5f;
        struct eo_norm_result got, want;
        const struct eo_step_memory step = test_bed_put_step(bed, &from, GROUPS);
        double *device_gathered = test_bed_take(bed, sizeof(gathered), 0);
        test_bed_put(bed, device_gathered, gathered, sizeof(gathered));
        ops->norm_sum(bed->device, device_gathered, 3, &step);
        test_bed_get(bed, &got, step.norm, sizeof(got));
        test_bed_get(bed, results, step.results, sizeof(results));
        norm_plain(&want, gathered, 3, &scalars);
        TEST_HOLDS(NULL, memcmp(got.values, want.values, sizeof(got.values)) == 0);
        if (round == 1 || round == 2 || round == 6 || round == 8) {
            TEST_HOLDS(NULL, isnan(got.gradient_scale) && !isfinite(got.norm) && got.skipped == 8);
        } else {
            TEST_HOLDS(NULL, got.norm == want.norm && got.clip_factor == want.clip_factor && got.weight == want.weight);
            TEST_HOLDS(NULL, got.gradient_scale == want.gradient_scale && got.skipped == 7);
            for (int g = 0; g < GROUPS; g++)
                TEST_HOLDS(NULL, results[g].gradient_scale == want.gradient_scale);
        }
        test_bed_reset(bed);
    }
    test_report("norms have the bits of plain loops, and say when they are not finite", 1);
}
