/* SPDX-License-Identifier: MIT
 *
 * Packing goes by blocks of 4 x 4 units: four loads give units along k or across it, and a transposition in registers turns
 * one into the other where the packed form wants it.
 */
#include <string.h>

#include "layers/cpu/products/tiles.h"

#define INLINE static inline __attribute__((always_inline))

typedef uint32_t quad __attribute__((vector_size(16)));
typedef uint16_t halves __attribute__((vector_size(8)));

INLINE quad widened(const uint16_t *p)
{
    halves h;
    memcpy(&h, p, sizeof(h));
    return __builtin_convertvector(h, quad);
}

/* Four units of line `line`, from unit `unit` on. */
INLINE quad load_along(enum eo_units kind, const struct eo_pack *p, uint64_t line, uint64_t unit)
{
    if (kind == EO_UNITS_WIDENED)
        return widened((const uint16_t *)p->from + line * p->stride + unit) << 16;
    quad q;
    memcpy(&q, (const char *)p->from + line * p->stride * (kind == EO_UNITS_PAIRS ? 2 : 4) + unit * EO_UNIT_BYTES, sizeof(q));
    return q;
}

/* Unit `unit` of four lines. */
INLINE quad load_across(enum eo_units kind, const struct eo_pack *p, uint64_t line, uint64_t unit)
{
    if (kind == EO_UNITS_WIDENED)
        return widened((const uint16_t *)p->from + unit * p->stride + line) << 16;
    if (kind == EO_UNITS_PAIRS) {
        const uint16_t *even = (const uint16_t *)p->from + 2 * unit * p->stride + line;
        return widened(even) | widened(even + p->stride) << 16;
    }
    quad q;
    memcpy(&q, (const float *)p->from + unit * p->stride + line, sizeof(q));
    return q;
}

/* One element's bits; zero beyond the operand. */
static uint32_t element_bits(enum eo_units kind, const struct eo_pack *p, uint64_t line, uint64_t i)
{
    if (line >= p->lines || i >= p->k)
        return 0;
    const uint64_t at = p->along ? line * p->stride + i : i * p->stride + line;
    return kind == EO_UNITS_FP32 ? ((const uint32_t *)p->from)[at] : ((const uint16_t *)p->from)[at];
}

static quad load_edge(enum eo_units kind, const struct eo_pack *p, uint64_t line, uint64_t unit, bool along)
{
    quad q;
    for (uint64_t i = 0; i < 4; i++) {
        const uint64_t l = along ? line : line + i, u = along ? unit + i : unit;
        if (kind == EO_UNITS_PAIRS)
            q[i] = element_bits(kind, p, l, 2 * u) | element_bits(kind, p, l, 2 * u + 1) << 16;
        else
            q[i] = element_bits(kind, p, l, u) << (kind == EO_UNITS_WIDENED ? 16 : 0);
    }
    return q;
}

INLINE void transpose(quad q[4])
{
    const quad a = __builtin_shufflevector(q[0], q[1], 0, 4, 1, 5), b = __builtin_shufflevector(q[2], q[3], 0, 4, 1, 5);
    const quad c = __builtin_shufflevector(q[0], q[1], 2, 6, 3, 7), d = __builtin_shufflevector(q[2], q[3], 2, 6, 3, 7);
    q[0] = __builtin_shufflevector(a, b, 0, 1, 4, 5);
    q[1] = __builtin_shufflevector(a, b, 2, 3, 6, 7);
    q[2] = __builtin_shufflevector(c, d, 0, 1, 4, 5);
    q[3] = __builtin_shufflevector(c, d, 2, 3, 6, 7);
}

INLINE void pack_block(enum eo_units kind, uint32_t *to, uint64_t width, bool by_rows, const struct eo_pack *p, bool along,
                       uint64_t line, uint64_t unit, bool inside)
{
    quad q[4];
    for (uint64_t i = 0; i < 4; i++) {
        const uint64_t l = along ? line + i : line, u = along ? unit : unit + i;
        q[i] = !inside ? load_edge(kind, p, l, u, along) : along ? load_along(kind, p, l, u) : load_across(kind, p, l, u);
    }
    if (along != by_rows)
        transpose(q);
    for (uint64_t i = 0; i < 4; i++)
        memcpy(by_rows ? to + eo_pack_at(p, line + i, unit) : to + (unit + i) * width + line, &q[i], sizeof(q[i]));
}

INLINE void pack_all(enum eo_units kind, uint32_t *to, uint64_t width, bool by_rows, const struct eo_pack *p, bool along)
{
    const uint64_t whole_lines = p->lines / 4 * 4, whole_units = p->k / (kind == EO_UNITS_PAIRS ? 2 : 1) / 4 * 4;
    uint64_t unit = p->begin;
    for (; unit < whole_units && unit < p->end; unit += 4) {
        uint64_t line = 0;
        for (; line < whole_lines; line += 4)
            pack_block(kind, to, width, by_rows, p, along, line, unit, true);
        for (; line < width; line += 4)
            pack_block(kind, to, width, by_rows, p, along, line, unit, false);
    }
    for (; unit < p->end; unit += 4)
        for (uint64_t line = 0; line < width; line += 4)
            pack_block(kind, to, width, by_rows, p, along, line, unit, false);
}

#define EO_PACK_NAME eo_pack
#include "layers/cpu/products/pack_kinds.h"
