/* SPDX-License-Identifier: MIT
 *
 * The kernels of the optimizers and of averages of weights against plain loops, bit by bit.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "tests/conformance/device/pairs.h"
#include "tests/conformance/ranks.h"
#include "streams/bf16.h"
#include "streams/state8.h"

static void update_plain(enum eo_rule rule, const struct eo_update_range *r, const struct eo_group_scalars *s, float scale,
                         uint32_t unknown)
{
    const float decay = s->weight_decay, correction1 = s->bias_correction1[unknown], correction2 = s->bias_correction2[unknown];
    for (uint64_t i = 0; i < r->count; i++) {
        const volatile float w = r->weights ? r->weights[i] : eo_bf16_join(r->high[i], r->low[i]);
        const volatile float g = r->gradient[i] * scale, before = r->first_moment[i], decayed = decay * w;
        const volatile float m1 = s->beta1 * before, m2 = (1.0f - s->beta1) * g, first = m1 + m2;
        volatile float change, m = first;
        if (rule == EO_RULE_ADAMW) {
            const volatile float v1 = s->beta2 * r->second_moment[i], v2 = (1.0f - s->beta2) * g, v3 = v2 * g, v = v1 + v3;
            const volatile float root = sqrtf(v / correction2) + s->eps;
            change = m / correction1 / root + decayed;
            r->second_moment[i] = v;
        } else if (rule == EO_RULE_SGD) {
            const volatile float sum = g + decayed;
            change = m = m1 + sum;
        } else if (rule == EO_RULE_MUON) {
            const volatile float k1 = s->momentum * before, k2 = (1.0f - s->momentum) * g;
            m = k1 + k2;
            change = r->second_moment[i] + decayed;
        } else if (rule == EO_RULE_DIRECTION) {
            const volatile float k1 = s->momentum * before, k2 = (1.0f - s->momentum) * g, next = k1 + k2,
                                 more = s->momentum * next;
            r->second_moment[i] = k2 + more;
            continue;
        } else {
            const volatile float k1 = s->beta2 * before, k2 = (1.0f - s->beta2) * g, sign = first > 0 ? 1 : first < 0 ? -1 : 0;
            m = k1 + k2;
            change = sign + decayed;
        }
        const volatile float step = s->learning_rate * change;
        r->first_moment[i] = m;
        if (r->weights)
            r->weights[i] = w - step;
        else
            eo_bf16_split(w - step, &r->high[i], &r->low[i]);
    }
}

/* Many ranges in one call, empty, short and long, whole and split, of groups, one of them frozen; after a step whose skipping
 * the host knew of, and after one it did not; then once with a norm that is not finite. */
static void updates(struct test_bed *bed, enum eo_rule rule)
{
    enum { RANGES = 101, GROUPS = 4 };
    const struct eo_device_ops *ops = bed->device->ops;
    struct eo_update_scalars scalars = {.skipped = 5, .group_count = GROUPS};
    struct eo_group_scalars groups[GROUPS];
    struct eo_group_result results[GROUPS];
    for (int g = 0; g < GROUPS; g++) {
        groups[g] = (struct eo_group_scalars){.learning_rate = 3e-4f * (float)(g + 1),
                                              .beta1 = 0.9f,
                                              .beta2 = g % 2 ? 0.95f : 0.99f,
                                              .eps = 1e-8f,
                                              .weight_decay = g % 2 ? 0.1f : 0,
                                              .bias_correction1 = {0.271f, 0.19f},
                                              .bias_correction2 = {0.142625f, 0.0975f},
                                              .frozen = g == 3,
                                              .momentum = 0.95f};
        results[g].gradient_scale = 0.37f / (float)(g + 1);
    }
    for (int round = 0; round < 3; round++) {
        const bool is_finite = round > 0;
        const uint32_t unknown = round == 2;
        struct eo_norm_result norm = {.gradient_scale = is_finite ? 0.37f : NAN, .skipped = scalars.skipped + unknown};
        const struct eo_step_memory step = test_bed_put_step(
            bed, &(struct eo_step_memory){.scalars = &scalars, .groups = groups, .norm = &norm, .results = results}, GROUPS);
        struct eo_update_range plain[RANGES], device[RANGES];
        struct pair pairs[RANGES][4], lows[RANGES];
        for (int r = 0; r < RANGES; r++) {
            const uint64_t count = r % 25 == 0 ? 40000 + (uint64_t)r : (uint64_t)r % 10 * 3, skew = r % 3 ? 0 : 4;
            const bool is_split = r % 2;
            const uint64_t salt = 20 + 5 * (uint64_t)r;
            for (int a = 0; a < 4; a++) {
                pairs[r][a] =
                    pair_make(bed, salt + (uint64_t)a, count, a == 0 && is_split ? 2 : 4, a == 0 && is_split ? skew / 2 : skew);
                float *values = (float *)pairs[r][a].plain;
                for (uint64_t i = 0; a == 2 && i < count; i++)
                    values[i] = fabsf(values[i]); /* second moments are */
                test_bed_put(bed, pairs[r][a].device, pairs[r][a].plain, pairs[r][a].bytes);
            }
            lows[r] = pair_make(bed, salt + 4, count, 2, skew / 2);
            device[r] = (struct eo_update_range){.first_moment = (float *)pairs[r][1].device,
                                                 .second_moment = (float *)pairs[r][2].device,
                                                 .gradient = (const float *)pairs[r][3].device,
                                                 .count = count,
                                                 .group = (uint32_t)r % 7 % GROUPS};
            plain[r] = (struct eo_update_range){.first_moment = (float *)pairs[r][1].plain,
                                                .second_moment = (float *)pairs[r][2].plain,
                                                .gradient = (const float *)pairs[r][3].plain,
                                                .count = count,
                                                .group = (uint32_t)r % 7 % GROUPS};
            if (is_split) {
                device[r].high = (uint16_t *)pairs[r][0].device;
                device[r].low = (int16_t *)lows[r].device;
                plain[r].high = (uint16_t *)pairs[r][0].plain;
                plain[r].low = (int16_t *)lows[r].plain;
            } else {
                device[r].weights = (float *)pairs[r][0].device;
                plain[r].weights = (float *)pairs[r][0].plain;
            }
        }
        ops->update(bed->device, rule, device, RANGES, &step);
        memset(device, 0, sizeof(device)); /* valid during the call alone */
        for (int r = 0; r < RANGES; r++) {
            const uint32_t g = plain[r].group;
            if (is_finite && !groups[g].frozen)
                update_plain(rule, &plain[r], &groups[g], results[g].gradient_scale, unknown);
            const char *what = is_finite ? "update" : "update without a norm";
            pair_same_weights(bed, &pairs[r][0], &lows[r], r % 2, what, plain[r].count);
            for (int a = 1; a < 4; a++)
                pair_same_floats(bed, &pairs[r][a], what, plain[r].count);
        }
        test_bed_reset(bed);
    }
    static const char *const names[EO_RULE_COUNT] = {"adamw", "sgd", "lion", "", "muon", "muon's direction"};
    char text[96];
    snprintf(text, sizeof(text), "%s has the bits of plain loops, and does nothing where the norm is not finite", names[rule]);
    test_report(text, 1);
}

static void moments_plain(struct eo_state8 *blocks, uint64_t at, bool is_signed, const float *moments)
{
    float largest = 0, inverse;
    for (uint64_t i = 0; i < EO_STATE8_ELEMENTS; i++)
        largest = fmaxf(largest, fabsf(moments[i]));
    struct eo_state8 *block = &blocks[at / EO_STATE8_ELEMENTS];
    block->largest = eo_state8_scale(largest, &inverse);
    for (uint64_t i = 0; i < EO_STATE8_ELEMENTS; i++)
        block->codes[i] = eo_state8_code(moments[i] * inverse, is_signed);
}

static void update8_plain(const struct eo_update_range *r, const struct eo_group_scalars *s, float scale)
{
    const volatile float both = sqrtf(s->bias_correction2[0]), lost = s->learning_rate * s->weight_decay, kept = 1.0f - lost;
    const volatile float corrected = s->learning_rate / s->bias_correction1[0], rate = corrected * both, eps = s->eps * both;
    for (uint64_t at = 0; at < r->count; at += EO_STATE8_ELEMENTS) {
        const struct eo_state8 *first = &r->first_blocks[at / EO_STATE8_ELEMENTS],
                               *second = &r->second_blocks[at / EO_STATE8_ELEMENTS];
        float m[EO_STATE8_ELEMENTS], v[EO_STATE8_ELEMENTS];
        for (uint64_t i = 0; i < EO_STATE8_ELEMENTS; i++) {
            const volatile float w = r->weights ? r->weights[at + i] : eo_bf16_join(r->high[at + i], r->low[at + i]);
            const volatile float g = r->gradient[at + i] * scale, m0 = s->beta1 * first->largest,
                                 v0 = s->beta2 * second->largest;
            const volatile float m1 = m0 * eo_state8_value(first->codes[i], true), m2 = (1.0f - s->beta1) * g, mean = m1 + m2;
            const volatile float v1 = v0 * eo_state8_value(second->codes[i], false), v2 = (1.0f - s->beta2) * g, v3 = v2 * g;
            const volatile float variance = v1 + v3, root = sqrtf(variance) + eps, up = rate * mean, step = up / root;
            const volatile float less = kept * w;
            m[i] = mean;
            v[i] = variance;
            if (r->weights)
                r->weights[at + i] = less - step;
            else
                eo_bf16_split(less - step, &r->high[at + i], &r->low[at + i]);
        }
        moments_plain(r->first_blocks, at, true, m);
        moments_plain(r->second_blocks, at, false, v);
    }
}

/* Ranges of whole blocks, none, one and many, whole and split, one of a frozen group; three steps, the last not finite. Some
 * gradients are zeros, tiny or large. */
static void updates_in_8_bits(struct test_bed *bed)
{
    enum { RANGES = 9, GROUPS = 2 };
    struct eo_update_scalars scalars = {.group_count = GROUPS};
    struct eo_group_scalars groups[GROUPS] = {{.learning_rate = 3e-4f,
                                               .beta1 = 0.9f,
                                               .beta2 = 0.95f,
                                               .eps = 1e-8f,
                                               .weight_decay = 0.1f,
                                               .bias_correction1 = {0.271f},
                                               .bias_correction2 = {0.142625f}},
                                              {.frozen = 1}};
    struct eo_group_result results[GROUPS] = {{0.37f}, {0.37f}};
    struct eo_update_range plain[RANGES], device[RANGES];
    struct pair weights[RANGES], lows[RANGES], gradients[RANGES], firsts[RANGES], seconds[RANGES];
    for (int r = 0; r < RANGES; r++) {
        const uint64_t count = (uint64_t)(r == 4 ? 100 : r % 4 * 3) * EO_STATE8_ELEMENTS, salt = 700 + 5 * (uint64_t)r;
        const uint64_t words = count / EO_STATE8_ELEMENTS * sizeof(struct eo_state8) / 4;
        weights[r] = pair_make(bed, salt, count, r % 2 ? 2 : 4, 0);
        lows[r] = pair_make(bed, salt + 1, count, 2, 0);
        gradients[r] = pair_make(bed, salt + 2, count, 4, 0);
        firsts[r] = pair_make(bed, salt + 3, words, 4, 0);
        seconds[r] = pair_make(bed, salt + 4, words, 4, 0);
        memset(firsts[r].plain, 0, words * 4);
        memset(seconds[r].plain, 0, words * 4);
        float *g = (float *)gradients[r].plain;
        for (uint64_t i = 0; i < count; i++)
            g[i] *= i % 7 == 0 ? 0 : i / EO_STATE8_ELEMENTS % 5 == 1 ? 1e-25f : powf(10, -(float)(i % 9));
        test_bed_put(bed, gradients[r].device, gradients[r].plain, gradients[r].bytes);
        test_bed_put(bed, firsts[r].device, firsts[r].plain, firsts[r].bytes);
        test_bed_put(bed, seconds[r].device, seconds[r].plain, seconds[r].bytes);
        plain[r] = (struct eo_update_range){.first_moment = (float *)firsts[r].plain,
                                            .second_moment = (float *)seconds[r].plain,
                                            .gradient = g,
                                            .count = count,
                                            .group = r == 7};
        device[r] = (struct eo_update_range){.first_moment = (float *)firsts[r].device,
                                             .second_moment = (float *)seconds[r].device,
                                             .gradient = (const float *)gradients[r].device,
                                             .count = count,
                                             .group = r == 7};
        if (r % 2) {
            plain[r].high = (uint16_t *)weights[r].plain, plain[r].low = (int16_t *)lows[r].plain;
            device[r].high = (uint16_t *)weights[r].device, device[r].low = (int16_t *)lows[r].device;
        } else {
            plain[r].weights = (float *)weights[r].plain;
            device[r].weights = (float *)weights[r].device;
        }
    }
    for (int round = 0; round < 3; round++) {
        struct eo_norm_result norm = {.gradient_scale = round < 2 ? 0.37f : NAN};
        const struct eo_step_memory step = test_bed_put_step(
            bed, &(struct eo_step_memory){.scalars = &scalars, .groups = groups, .norm = &norm, .results = results}, GROUPS);
        bed->device->ops->update(bed->device, EO_RULE_ADAMW8BIT, device, RANGES, &step);
        for (int r = 0; r < RANGES && round < 2; r++)
            if (plain[r].group == 0)
                update8_plain(&plain[r], &groups[0], 0.37f);
    }
    for (int r = 0; r < RANGES; r++) {
        pair_same_weights(bed, &weights[r], &lows[r], r % 2, "weights", plain[r].count);
        pair_same(bed, &gradients[r], "gradients", plain[r].count);
        pair_same(bed, &firsts[r], "first moments in 8 bits", plain[r].count);
        pair_same(bed, &seconds[r], "second moments in 8 bits", plain[r].count);
    }
    test_bed_reset(bed);
    test_report("adamw8bit has the bits of plain loops, and does nothing where the norm is not finite", 1);
}

/* In place of both: a copy, an update, a swap; whole and split, with a tail and askew. */
static void averages(struct test_bed *bed)
{
    const struct eo_device_ops *ops = bed->device->ops;
    const struct eo_update_scalars scalars = {.ema_decay = 0.9f};
    static const uint64_t sizes[] = {0, 1, 5, 64, 4099, 70001};
    for (uint32_t way = 0; way < 6 * 2 * 4; way++) {
        const uint64_t count = sizes[way / 8], skew = way % 3 ? 0 : 4;
        const bool is_split = way % 2, is_finite = way / 2 % 4 != 3;
        const enum eo_average_mode mode = (enum eo_average_mode)(is_finite ? way / 2 % 4 : EO_AVERAGE_UPDATE);
        const struct eo_norm_result norm = {.gradient_scale = is_finite ? 0.5f : NAN};
        struct eo_update_scalars *device_scalars = test_bed_take(bed, sizeof(scalars), 0);
        struct eo_norm_result *device_norm = test_bed_take(bed, sizeof(norm), 0);
        test_bed_put(bed, device_scalars, &scalars, sizeof(scalars));
        test_bed_put(bed, device_norm, &norm, sizeof(norm));
        struct pair weights = pair_make(bed, 3 + way, count, is_split ? 2 : 4, is_split ? skew / 2 : skew);
        struct pair low = pair_make(bed, 5 + way, count, 2, skew / 2), average = pair_make(bed, 7 + way, count, 4, skew);
        test_bed_put(bed, weights.device, weights.plain, weights.bytes);
        test_bed_put(bed, low.device, low.plain, low.bytes);
        test_bed_put(bed, average.device, average.plain, average.bytes);
        struct eo_average all = {.average = (float *)average.device, .count = count};
        all.weights = is_split ? NULL : (float *)weights.device;
        all.high = is_split ? (uint16_t *)weights.device : NULL;
        all.low = is_split ? (int16_t *)low.device : NULL;
        ops->average(bed->device, &all, mode, device_scalars, device_norm);
        for (uint64_t i = 0; i < count && is_finite; i++) {
            uint16_t *high = (uint16_t *)weights.plain + i;
            int16_t *rest = (int16_t *)low.plain + i;
            float *w = (float *)weights.plain + i, *a = (float *)average.plain + i;
            const volatile float weight = is_split ? eo_bf16_join(*high, *rest) : *w, before = *a, apart = weight - before;
            const volatile float more = (1.0f - scalars.ema_decay) * apart;
            *a = mode == EO_AVERAGE_UPDATE ? before + more : weight;
            if (mode == EO_AVERAGE_SWAP && is_split)
                eo_bf16_split(before, high, rest);
            else if (mode == EO_AVERAGE_SWAP)
                *w = before;
        }
        pair_same_floats(bed, &average, "average", count);
        pair_same_weights(bed, &weights, &low, is_split, "weights beside the average", count);
        test_bed_reset(bed);
    }
    test_report("averages of weights begin, follow and change places as plain loops say", 1);
}

void test_device_updates(struct test_bed *bed)
{
    for (int rule = 0; rule < EO_RULE_COUNT; rule++)
        if (rule != EO_RULE_ADAMW8BIT)
            updates(bed, (enum eo_rule)rule);
    updates_in_8_bits(bed);
    averages(bed);
}
