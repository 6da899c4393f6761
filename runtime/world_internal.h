/* SPDX-License-Identifier: MIT
 *
 * A world from inside: a rank's end of a group of collectives.
 */
#ifndef EO_RUNTIME_WORLD_INTERNAL_H
#define EO_RUNTIME_WORLD_INTERNAL_H

#include <evenodd/world.h>

#include "streams/collective.h"

struct eo_world {
    uint32_t rank, rank_count;
    char device[16]; /* its name */
    uint32_t device_index;
    const struct eo_comm_ops *ops;
    struct eo_group *group;
    eo_log log;
};

#endif
