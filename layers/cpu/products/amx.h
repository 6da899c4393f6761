/* SPDX-License-Identifier: MIT
 *
 * The few instructions of AMX that the products use. With EO_AMX_EMULATED their meaning in plain C, for tests on any
 * processor, from Intel's Software Developer's Manual (LDTILECFG, TDPBF16PS, TILELOADD, TILELOADDT1, TILESTORED, TILEZERO).
 * The emulation rounds sums at other places, within the bounds of any order.
 */
#ifndef EO_LAYERS_CPU_PRODUCTS_AMX_H
#define EO_LAYERS_CPU_PRODUCTS_AMX_H

#include <stdint.h>
#include <string.h>

/* What LDTILECFG reads. */
struct amx_config {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
};
_Static_assert(sizeof(struct amx_config) == 64, "LDTILECFG reads 64 bytes");

#if defined(EO_AMX_EMULATED)

#define EO_AMX_TABLE eo_tiles_amx_emulated
extern const struct eo_tiles eo_tiles_amx_emulated;

static _Thread_local struct {
    struct amx_config config;
    uint32_t tile[8][16][16];
} amx;

static inline void amx_load_config(const struct amx_config *config)
{
    memset(&amx, 0, sizeof(amx));
    amx.config = *config;
}

/* Without a configuration the instructions fault; rows that are none count for no product here. */
static inline void amx_stored(const void *memory) { (void)memory; }

static inline void amx_release(void) { memset(&amx, 0, sizeof(amx)); }

static inline void amx_zero(int t) { memset(amx.tile[t], 0, sizeof(amx.tile[t])); }

static inline void amx_load(int t, const void *from, uint64_t stride)
{
    amx_zero(t);
    for (uint64_t row = 0; row < amx.config.rows[t]; row++)
        memcpy(amx.tile[t][row], (const char *)from + row * stride, amx.config.row_bytes[t]);
}

static inline void amx_load_once(int t, const void *from, uint64_t stride) { amx_load(t, from, stride); }

static inline void amx_store(int t, void *to, uint64_t stride)
{
    for (uint64_t row = 0; row < amx.config.rows[t]; row++)
        memcpy((char *)to + row * stride, amx.tile[t][row], amx.config.row_bytes[t]);
}

static inline float amx_element(uint32_t unit, int half)
{
    const uint32_t bits = half ? unit & 0xffff0000u : unit << 16;
    float x;
    memcpy(&x, &bits, sizeof(x));
    return x;
}

static inline void amx_dot_bf16(int to, int a, int b)
{
    for (int row = 0; row < amx.config.rows[to]; row++)
        for (int column = 0; column < amx.config.row_bytes[to] / 4; column++) {
            float even = 0, odd = 0, sum;
            for (int i = 0; i < amx.config.row_bytes[a] / 4; i++) {
                even += amx_element(amx.tile[a][row][i], 0) * amx_element(amx.tile[b][i][column], 0);
                odd += amx_element(amx.tile[a][row][i], 1) * amx_element(amx.tile[b][i][column], 1);
            }
            memcpy(&sum, &amx.tile[to][row][column], sizeof(sum));
            sum += even + odd;
            memcpy(&amx.tile[to][row][column], &sum, sizeof(sum));
        }
}

#else

#define EO_AMX_TABLE eo_tiles_amx

/* gcc 12 tells the compiler that LDTILECFG reads 8 bytes, and that TILELOADD reads none: what was stored before would not have
 * to be there. */
static inline void amx_stored(const void *memory)
{
    __asm__ volatile("" : : "r"(memory) : "memory");
}

/* Macros: the compiler wants the tiles' numbers as constants. */
#define amx_load_config(config)      (amx_stored(config), _tile_loadconfig(config))
#define amx_release()                _tile_release()
#define amx_zero(t)                  _tile_zero(t)
#define amx_load(t, from, stride)    _tile_loadd(t, from, (long)(stride))
#define amx_load_once(t, from, stride) _tile_stream_loadd(t, from, (long)(stride)) /* leaves the first-level cache to others */
#define amx_store(t, to, stride)     _tile_stored(t, to, (long)(stride))
#define amx_dot_bf16(to, a, b)       _tile_dpbf16ps(to, a, b)

#endif

#endif
