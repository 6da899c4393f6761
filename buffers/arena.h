/* SPDX-License-Identifier: MIT
 *
 * The reservations of a plan, on a device, with a life in two phases:
 *
 *     open   --- eo_arena_seal() -->  sealed
 *     take() allowed                  take() is a bug and aborts with the taker's name
 *
 * take() does not choose: the plan has said where each row lies; it checks that the row is inside its reservation and
 * counts. Rows may overlap (the plan proved that their lifetimes do not).
 */
#ifndef EO_BUFFERS_ARENA_H
#define EO_BUFFERS_ARENA_H

#include "streams/device.h"

enum { EO_ARENA_SPACES_MAX = 4 };

struct eo_arena {
    struct eo_device *device;
    void *base[EO_ARENA_SPACES_MAX];
    uint64_t bytes[EO_ARENA_SPACES_MAX];
    enum eo_memory_kind kinds[EO_ARENA_SPACES_MAX];
    uint32_t space_count;
    uint64_t reserved_bytes; /* the sum */
    uint64_t taken_count;    /* rows taken */
    bool sealed;
};

/* Reserves all spaces (zeroed and prefaulted), each of its kind of memory, or nothing. A space of 0 bytes is legal.
 * EO_ERR_NO_MEMORY. */
EO_NODISCARD eo_status eo_arena_init(struct eo_arena *arena, struct eo_device *device, const uint64_t *space_bytes,
                                     const enum eo_memory_kind *kinds, uint32_t space_count);
void eo_arena_fini(struct eo_arena *arena); /* any half-built state */

/* Aborts with `name` after seal, and for a row outside its reservation. NULL only in a space of 0 bytes. */
void *eo_arena_take(struct eo_arena *arena, const char *name, uint32_t space, uint64_t offset, uint64_t bytes);
void eo_arena_seal(struct eo_arena *arena);

/* What debug fills memory with: a signalling NaN as fp32, and in each half as bf16. */
#define EO_POISON UINT32_C(0x7fba7fba)

#endif
