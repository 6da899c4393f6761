/* SPDX-License-Identifier: MIT
 *
 * AdamW with its moments in 8 bits (streams/state8.h), for one instruction set: a part of streams/cpu/kernels_body.h.
 *
 * 16 bytes a weight pass through memory instead of 28, so here arithmetic counts, too: one division, and tables of eight floats.
 */

KERNEL_TARGET static inline __attribute__((always_inline)) KERNEL(f32)
    KERNEL(state8_values)(const uint8_t *codes, bool is_signed)
{
    static const float lows[2][8] = {EO_STATE8_UNSIGNED_LOW, EO_STATE8_SIGNED_LOW};
    static const float slopes[2][8] = {EO_STATE8_UNSIGNED_SLOPE, EO_STATE8_SIGNED_SLOPE};
    const KERNEL(s32) code = is_signed ? VECTOR_SIGNED_BYTES(codes) : VECTOR_BYTES(codes);
    const KERNEL(u32) turned = (KERNEL(u32))__builtin_convertvector(code + (is_signed ? 0 : 1), KERNEL(f32));
    const KERNEL(s32) b = (KERNEL(s32))(turned >> 23); /* the sign lies above what tables look at */
    const KERNEL(f32) cell = (KERNEL(f32))((turned & 0x7fffffu) | 0x3f800000u) - 1.0f;
    const KERNEL(u32) value = (KERNEL(u32))(VECTOR_LOOKUP(lows[is_signed], b) + VECTOR_LOOKUP(slopes[is_signed], b) * cell);
    const KERNEL(u32) sign = is_signed ? ~turned & 0x80000000u : turned & 0;
    return VECTOR_UNLESS_0(code, value | sign);
}

KERNEL_TARGET static inline __attribute__((always_inline)) void
    KERNEL(state8_codes)(uint8_t *codes, KERNEL(f32) value, bool is_signed, const struct state8_steps *steps)
{
    static const float scales[2][8] = {EO_STATE8_UNSIGNED_SCALE, EO_STATE8_SIGNED_SCALE};
    static const float shifts[2][8] = {EO_STATE8_UNSIGNED_SHIFT, EO_STATE8_SIGNED_SHIFT};
    static const float limits[2][8] = {EO_STATE8_UNSIGNED_LIMIT, EO_STATE8_SIGNED_LIMIT};
    const KERNEL(f32) size = (KERNEL(f32))((KERNEL(u32))value & 0x7fffffffu), below = {0};
    const KERNEL(s32) n = VECTOR_STEPS(size, steps);
    const KERNEL(f32) exact = VECTOR_MIN(size * VECTOR_LOOKUP(scales[is_signed], n) + VECTOR_LOOKUP(shifts[is_signed], n),
                                         VECTOR_LOOKUP(limits[is_signed], n));
    if (is_signed) {
        const KERNEL(u32) turned = (KERNEL(u32))exact | (~(KERNEL(u32))value & 0x80000000u);
        const KERNEL(s32) number = __builtin_convertvector(VECTOR_MIN((KERNEL(f32))turned, below + 127.0f), KERNEL(s32));
        *(KERNEL(s8) *)codes = __builtin_convertvector(number, KERNEL(s8));
    } else {
        const KERNEL(s32) number = __builtin_convertvector(exact, KERNEL(s32)) - 1;
        *(KERNEL(u8) *)codes = __builtin_convertvector(number & (KERNEL(s32))(size > 0.0f), KERNEL(u8));
    }
}

enum { KERNEL(ahead) = 4 * EO_STATE8_ELEMENTS }; /* elements: 512 and 1024 took 1.0 ns a weight, no prefetch 1.4, fp32 state 1.2 */

/* A block between its update and its rounding. */
struct KERNEL(moments) {
    float first[EO_STATE8_ELEMENTS], second[EO_STATE8_ELEMENTS];
    KERNEL(f32) largest[2]; /* of absolute values, in each lane */
    struct eo_state8 *to_first, *to_second;
};

/* Elements i ... of it; the scales are the blocks'. */
struct KERNEL(rounding) {
    const struct KERNEL(moments) *moments;
    const struct state8_steps *steps;
    float inverse1, inverse2;
};

KERNEL_TARGET static inline __attribute__((always_inline)) struct KERNEL(rounding)
    KERNEL(round_begin)(const struct KERNEL(moments) *moments, const struct state8_steps *steps)
{
    struct KERNEL(rounding) out = {.moments = moments, .steps = steps};
    moments->to_first->largest = eo_state8_scale(VECTOR_LARGEST(moments->largest[0]), &out.inverse1);
    moments->to_second->largest = eo_state8_scale(VECTOR_LARGEST(moments->largest[1]), &out.inverse2);
    return out;
}

KERNEL_TARGET static inline __attribute__((always_inline)) void
    KERNEL(round_some)(const struct KERNEL(rounding) *r, uint64_t i)
{
    const struct KERNEL(moments) *moments = r->moments;
    KERNEL(state8_codes)(moments->to_first->codes + i, *(const KERNEL(f32) *)(moments->first + i) * r->inverse1, true, &r->steps[1]);
    KERNEL(state8_codes)(moments->to_second->codes + i, *(const KERNEL(f32) *)(moments->second + i) * r->inverse2, false,
                         &r->steps[0]);
}

/*
 * The weights of a block, and the rounding of the one before: its arithmetic fills the time that roots and quotients take.
 * `split` is a constant of the caller's.
 */
KERNEL_TARGET static inline __attribute__((always_inline)) void
    KERNEL(update_block)(const struct eo_update_range *range, const struct eo_update_numbers *n, bool split, uint64_t at,
                         struct KERNEL(moments) *moments, const struct KERNEL(rounding) *before)
{
    struct eo_state8 *first = &range->first_blocks[at / EO_STATE8_ELEMENTS];
    struct eo_state8 *second = &range->second_blocks[at / EO_STATE8_ELEMENTS];
    const struct eo_state8_rule rule =
        eo_state8_rule(n->learning_rate, n->weight_decay, n->eps, n->bias_correction1, n->bias_correction2);
    const float rest1 = 1.0f - n->beta1, rest2 = 1.0f - n->beta2;
    const float kept1 = n->beta1 * first->largest, kept2 = n->beta2 * second->largest;
    float *weights = split ? NULL : range->weights + at;
    uint16_t *high = split ? range->high + at : NULL;
    int16_t *low = split ? range->low + at : NULL;
    const float *gradient = range->gradient + at;
    KERNEL(f32) most1 = {0}, most2 = {0};
    for (uint64_t i = 0; i < EO_STATE8_ELEMENTS; i += VECTOR_FLOATS) {
        __builtin_prefetch(gradient + i + KERNEL(ahead)); /* four streams and their pages: more than the processor follows */
        __builtin_prefetch(split ? (const void *)(high + i + KERNEL(ahead)) : (const void *)(weights + i + KERNEL(ahead)));
        if (split)
            __builtin_prefetch(low + i + KERNEL(ahead));
        const KERNEL(f32) w = split ? KERNEL(join)(high + i, low + i) : *(const KERNEL(f32) *)(weights + i);
        const KERNEL(f32) g = *(const KERNEL(f32) *)(gradient + i) * n->scale;
        const KERNEL(f32) m = kept1 * KERNEL(state8_values)(first->codes + i, true) + rest1 * g;
        const KERNEL(f32) v = kept2 * KERNEL(state8_values)(second->codes + i, false) + rest2 * g * g;
        const KERNEL(f32) result = rule.kept * w - rule.rate * m / (VECTOR_SQRT(v) + rule.eps);
        most1 = VECTOR_MAX((KERNEL(f32))((KERNEL(u32))m & 0x7fffffffu), most1);
        most2 = VECTOR_MAX(v, most2);
        *(KERNEL(f32) *)(moments->first + i) = m;
        *(KERNEL(f32) *)(moments->second + i) = v;
        KERNEL(round_some)(before, i);
        if (split)
            KERNEL(split)(high + i, low + i, result);
        else
            *(KERNEL(f32) *)(weights + i) = result;
    }
    moments->largest[0] = most1;
    moments->largest[1] = most2;
    moments->to_first = first;
    moments->to_second = second;
}

KERNEL_TARGET static inline __attribute__((always_inline)) void
    KERNEL(update_blocks)(const struct eo_update_range *range, const struct eo_update_numbers *numbers, bool split,
                          uint64_t begin, uint64_t count)
{
    const struct eo_update_numbers n = *numbers;
    struct state8_steps steps[2];
    state8_steps_make(steps);
    struct eo_state8 nowhere[2]; /* where what is before the first block goes */
    struct KERNEL(moments) moments[2];
    memset(&moments[1], 0, sizeof(moments[1]));
    moments[1].to_first = &nowhere[0];
    moments[1].to_second = &nowhere[1];
    uint32_t turn = 0;
    struct KERNEL(rounding) before;
    for (uint64_t at = begin; at < begin + count; at += EO_STATE8_ELEMENTS, turn ^= 1) {
        before = KERNEL(round_begin)(&moments[turn ^ 1], steps);
        KERNEL(update_block)(range, &n, split, at, &moments[turn], &before);
    }
    before = KERNEL(round_begin)(&moments[turn ^ 1], steps);
    for (uint64_t i = 0; i < EO_STATE8_ELEMENTS; i += VECTOR_FLOATS)
        KERNEL(round_some)(&before, i);
}

/* Whole blocks: ranges begin and end with them (runtime/plan/optimizers.h). */
KERNEL_TARGET static void KERNEL(adamw8bit)(const struct eo_update_range *range, const struct eo_update_numbers *numbers,
                                            uint64_t begin, uint64_t count)
{
    if (range->weights)
        KERNEL(update_blocks)(range, numbers, false, begin, count);
    else
        KERNEL(update_blocks)(range, numbers, true, begin, count);
}
