/* SPDX-License-Identifier: MIT */
#include "buffers/arena.h"

#include <inttypes.h>

#include "base/arithmetic.h"

eo_status eo_arena_init(struct eo_arena *arena, struct eo_device *device, const uint64_t *space_bytes,
                        const enum eo_memory_kind *kinds, uint32_t space_count)
{
    EO_ASSERT(space_count <= EO_ARENA_SPACES_MAX);
    *arena = (struct eo_arena){.device = device, .space_count = space_count};
    uint64_t total_bytes = 0;
    for (uint32_t space = 0; space < space_count; space++)
        EO_REQUIRE(&device->log, eo_checked_add(total_bytes, space_bytes[space], &total_bytes),
                   "arena: the sizes of its %" PRIu32 " spaces do not fit in 64 bits: make the model smaller",
                   space_count);
    for (uint32_t space = 0; space < space_count; space++) {
        if (space_bytes[space] == 0)
            continue;
        const eo_status status = device->ops->reserve(device, kinds[space], space_bytes[space], &arena->base[space]);
        if (status < 0) {
            eo_log_write(&device->log, EO_LOG_ERROR,
                         "arena: space %" PRIu32 " of %" PRIu64 " bytes could not be reserved (%" PRIu64
                         " of %" PRIu64 " bytes were): %s; use more ranks, a smaller batch or recompute",
                         space, space_bytes[space], arena->reserved_bytes, total_bytes, eo_status_text(status));
            arena->base[space] = NULL;
            eo_arena_fini(arena);
            return status;
        }
        arena->bytes[space] = space_bytes[space];
        arena->kinds[space] = kinds[space];
        arena->reserved_bytes += space_bytes[space];
    }
    return EO_OK;
}

void eo_arena_fini(struct eo_arena *arena)
{
    for (uint32_t space = arena->space_count; space-- > 0;)
        if (arena->base[space])
            arena->device->ops->release(arena->device, arena->kinds[space], arena->base[space],
                                        arena->bytes[space]);
    *arena = (struct eo_arena){0};
}

void *eo_arena_take(struct eo_arena *arena, const char *name, uint32_t space, uint64_t offset, uint64_t bytes)
{
    if (arena->sealed)
        eo_fatal("arena: '%s' takes %" PRIu64 " bytes from a sealed arena; all memory is placed before the first step, so give "
                 "it a row in the plan",
                 name, bytes);
    if (space >= arena->space_count)
        eo_fatal("arena: '%s' lies in space %" PRIu32 ", but there are %" PRIu32, name, space, arena->space_count);
    if (bytes > arena->bytes[space] || offset > arena->bytes[space] - bytes)
        eo_fatal("arena: '%s' (%" PRIu64 " bytes at offset %" PRIu64 ") is not inside space %" PRIu32 " of %" PRIu64
                 " bytes: plan and reservation disagree",
                 name, bytes, offset, space, arena->bytes[space]);
    arena->taken_count++;
    return arena->base[space] ? (char *)arena->base[space] + offset : NULL;
}

void eo_arena_seal(struct eo_arena *arena)
{
    arena->sealed = true;
}
