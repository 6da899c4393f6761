/* SPDX-License-Identifier: MIT
 *
 * Every combination of kind, form and orientation compiled by itself. Included behind pack_all; EO_PACK_NAME is the function.
 */
INLINE void pack_kind(enum eo_units kind, uint32_t *to, uint64_t width, bool by_rows, const struct eo_pack *p)
{
    if (by_rows)
        p->along ? pack_all(kind, to, width, true, p, true) : pack_all(kind, to, width, true, p, false);
    else
        p->along ? pack_all(kind, to, width, false, p, true) : pack_all(kind, to, width, false, p, false);
}

void EO_PACK_NAME(enum eo_units kind, void *to, uint64_t width, bool by_rows, const struct eo_pack *pack)
{
    const struct eo_pack p = *pack; /* a copy: stores to `to` cannot change it, so it stays in registers */
    switch (kind) {
    case EO_UNITS_FP32:
        pack_kind(EO_UNITS_FP32, to, width, by_rows, &p);
        break;
    case EO_UNITS_PAIRS:
        pack_kind(EO_UNITS_PAIRS, to, width, by_rows, &p);
        break;
    case EO_UNITS_WIDENED:
        pack_kind(EO_UNITS_WIDENED, to, width, by_rows, &p);
        break;
    }
}
