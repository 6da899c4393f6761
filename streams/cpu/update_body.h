/* SPDX-License-Identifier: MIT
 *
 * The optimizers' rules, for one instruction set: a part of streams/cpu/kernels_body.h. On a GPU: streams/cuda/kernels.cu.
 *
 *     adamw   m = beta1 m + (1 - beta1) g      w = w - lr (m / bc1 / (sqrt(v / bc2) + eps) + decay w)
 *             v = beta2 v + (1 - beta2) g g
 *     sgd     m = beta1 m + (g + decay w)      w = w - lr m
 *     lion    s = sign of beta1 m + (1 - beta1) g, 0 for 0 and NaN
 *             m = beta2 m + (1 - beta2) g      w = w - lr (s + decay w)
 *     muon    m = mu m + (1 - mu) g            w = w - lr (d + decay w)     of matrices; d is what the owner made of the
 *     direction, before: (1 - mu) g + mu (mu m + (1 - mu) g)
 *
 * 28 bytes a weight with two states, 20 with one, split weights the same: memory decides, so division and square root may be
 * the exact ones.
 */

struct KERNEL(updated) {
    KERNEL(f32) weight, first, second;
};

KERNEL_TARGET static inline __attribute__((always_inline)) struct KERNEL(updated)
    KERNEL(rule)(enum eo_rule which, const struct eo_update_numbers *n, struct KERNEL(updated) x, KERNEL(f32) gradient)
{
    const KERNEL(f32) g = gradient * n->scale;
    if (which == EO_RULE_ADAMW) {
        x.first = n->beta1 * x.first + (1.0f - n->beta1) * g;
        x.second = n->beta2 * x.second + (1.0f - n->beta2) * g * g;
        const KERNEL(f32) root = VECTOR_SQRT(x.second / n->bias_correction2);
        x.weight = x.weight - n->learning_rate * (x.first / n->bias_correction1 / (root + n->eps) + n->weight_decay * x.weight);
    } else if (which == EO_RULE_SGD) {
        x.first = n->beta1 * x.first + (g + n->weight_decay * x.weight);
        x.weight = x.weight - n->learning_rate * x.first;
    } else if (which == EO_RULE_MUON) {
        x.first = n->momentum * x.first + (1.0f - n->momentum) * g;
        x.weight = x.weight - n->learning_rate * (x.second + n->weight_decay * x.weight);
    } else if (which == EO_RULE_DIRECTION) {
        x.second = (1.0f - n->momentum) * g + n->momentum * (n->momentum * x.first + (1.0f - n->momentum) * g);
    } else {
        const KERNEL(f32) direction = n->beta1 * x.first + (1.0f - n->beta1) * g, none = {0};
        /* Comparisons give -1 where they hold. */
        const KERNEL(f32) sign = __builtin_convertvector((direction < none) - (direction > none), KERNEL(f32));
        x.first = n->beta2 * x.first + (1.0f - n->beta2) * g;
        x.weight = x.weight - n->learning_rate * (sign + n->weight_decay * x.weight);
    }
    return x;
}

static inline bool KERNEL(reads_second)(enum eo_rule which)
{
    return which == EO_RULE_ADAMW || which == EO_RULE_MUON;
}

static inline bool KERNEL(writes_second)(enum eo_rule which)
{
    return which == EO_RULE_ADAMW || which == EO_RULE_DIRECTION;
}

/* At most a vector: its end may lie behind the arrays'. */
KERNEL_TARGET static inline __attribute__((always_inline)) void
    KERNEL(update_few)(enum eo_rule which, const struct eo_update_range *range, const struct eo_update_numbers *numbers,
                       uint64_t at, uint64_t count)
{
    float weights[VECTOR_FLOATS] = {0}, first[VECTOR_FLOATS] = {0}, second[VECTOR_FLOATS] = {0}, gradient[VECTOR_FLOATS] = {0};
    const size_t bytes = count * sizeof(float);
    for (uint64_t i = 0; i < count; i++)
        weights[i] = range->weights ? range->weights[at + i] : eo_bf16_join(range->high[at + i], range->low[at + i]);
    memcpy(first, range->first_moment + at, bytes);
    memcpy(gradient, range->gradient + at, bytes);
    if (KERNEL(reads_second)(which))
        memcpy(second, range->second_moment + at, bytes);
    const struct KERNEL(updated) x = {*(const KERNEL(f32) *)weights, *(const KERNEL(f32) *)first, *(const KERNEL(f32) *)second};
    const struct KERNEL(updated) y = KERNEL(rule)(which, numbers, x, *(const KERNEL(f32) *)gradient);
    if (KERNEL(writes_second)(which))
        memcpy(range->second_moment + at, &y.second, bytes);
    if (which == EO_RULE_DIRECTION)
        return;
    memcpy(range->first_moment + at, &y.first, bytes);
    if (range->weights)
        memcpy(range->weights + at, &y.weight, bytes);
    for (uint64_t i = 0; !range->weights && i < count; i++)
        eo_bf16_split(y.weight[i], &range->high[at + i], &range->low[at + i]);
}

/* `which` is a constant of the caller's, so each of them is a loop of its own. */
KERNEL_TARGET static inline __attribute__((always_inline)) void
    KERNEL(update)(enum eo_rule which, const struct eo_update_range *range, const struct eo_update_numbers *numbers,
                   uint64_t begin, uint64_t count)
{
    const struct eo_update_numbers n = *numbers; /* no store of the loop changes them */
    const bool split = !range->weights, updates = which != EO_RULE_DIRECTION;
    const bool has_second = KERNEL(reads_second)(which), makes_second = KERNEL(writes_second)(which);
    float *w = split ? NULL : range->weights + begin;
    uint16_t *high = split ? range->high + begin : NULL;
    int16_t *low = split ? range->low + begin : NULL;
    float *m = range->first_moment + begin, *v = has_second || makes_second ? range->second_moment + begin : NULL;
    const float *gradient = range->gradient + begin;
    uint64_t i = 0;
    for (; i + VECTOR_FLOATS <= count; i += VECTOR_FLOATS) {
        struct KERNEL(updated) x = {.first = *(const KERNEL(f32) *)(m + i)};
        x.weight = split ? KERNEL(join)(high + i, low + i) : *(const KERNEL(f32) *)(w + i);
        if (has_second)
            x.second = *(const KERNEL(f32) *)(v + i);
        x = KERNEL(rule)(which, &n, x, *(const KERNEL(f32) *)(gradient + i));
        if (makes_second)
            *(KERNEL(f32) *)(v + i) = x.second;
        if (!updates)
            continue;
        *(KERNEL(f32) *)(m + i) = x.first;
        if (split)
            KERNEL(split)(high + i, low + i, x.weight);
        else
            *(KERNEL(f32) *)(w + i) = x.weight;
    }
    if (i < count)
        KERNEL(update_few)(which, range, &n, begin + i, count - i);
}

KERNEL_TARGET static void KERNEL(adamw)(const struct eo_update_range *range, const struct eo_update_numbers *numbers,
                                        uint64_t begin, uint64_t count)
{
    KERNEL(update)(EO_RULE_ADAMW, range, numbers, begin, count);
}

KERNEL_TARGET static void KERNEL(sgd)(const struct eo_update_range *range, const struct eo_update_numbers *numbers,
                                      uint64_t begin, uint64_t count)
{
    KERNEL(update)(EO_RULE_SGD, range, numbers, begin, count);
}

KERNEL_TARGET static void KERNEL(lion)(const struct eo_update_range *range, const struct eo_update_numbers *numbers,
                                       uint64_t begin, uint64_t count)
{
    KERNEL(update)(EO_RULE_LION, range, numbers, begin, count);
}

KERNEL_TARGET static void KERNEL(muon)(const struct eo_update_range *range, const struct eo_update_numbers *numbers,
                                       uint64_t begin, uint64_t count)
{
    KERNEL(update)(EO_RULE_MUON, range, numbers, begin, count);
}

KERNEL_TARGET static void KERNEL(direction)(const struct eo_update_range *range, const struct eo_update_numbers *numbers,
                                            uint64_t begin, uint64_t count)
{
    KERNEL(update)(EO_RULE_DIRECTION, range, numbers, begin, count);
}
