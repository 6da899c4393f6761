/* SPDX-License-Identifier: MIT
 *
 * `shared`: ranks are processes of one machine, meet as those of `local` do, and read each other's memory directly.
 *
 *     segment    one a group, a file without a name that all have mapped: the first failure, and slots for lines; a
 *                line's slot has a stage for each rank and parity behind it
 *     region     a reservation of each rank that all others have mapped, to read: what register_memory was told of.
 *                The same sizes on all ranks, so a place is a region and an offset, the same number everywhere
 *     hidden     memory that lies in no region: passes through the stages in pieces, a meeting each
 *
 * Nothing has a name in the file system, so nothing is left behind by processes that are killed. Files are handed from
 * process to process (streams/shared/files.h), which asks for one user, one space of process numbers and one network.
 */
#ifndef EO_STREAMS_SHARED_SHARED_H
#define EO_STREAMS_SHARED_SHARED_H

#include <sys/types.h>

#include "streams/local/cpu.h"

enum {
    EO_SHARED_SLOTS = 17,              /* the first is the group's own; as many as communicators are open at a time */
    EO_SHARED_STAGE_BYTES = 256 << 10, /* a multiple of 64 ranks' vectors */
    EO_SHARED_REGIONS_MAX = 15,
    EO_SHARED_BLOB_BYTES = 128,        /* of a rank, in one eo_shared_tell */
};

struct eo_shared_region {
    const unsigned char *own; /* NULL: free */
    uint64_t bytes;
    uint32_t users; /* communicators that were told of it */
    const unsigned char *ranks[EO_LOCAL_RANKS_MAX];
};

/* This process's end of a group. */
struct eo_shared_group {
    uint32_t rank;
    unsigned char *segment;
    uint64_t segment_bytes;
    struct eo_local_end control; /* of slot 0: this rank's thread alone uses it */
    uint64_t opened;             /* communicators, ever */
    pid_t pids[EO_LOCAL_RANKS_MAX];
    int pid_files[EO_LOCAL_RANKS_MAX]; /* -1: the kernel has none */
    struct eo_shared_region regions[EO_SHARED_REGIONS_MAX];
};

struct eo_shared_comm {
    uint32_t slot;
    uint32_t regions; /* by bit: those that it was told of */
};

/* streams/shared/segment.c */
uint64_t eo_shared_segment_bytes(uint32_t rank_count);
/* A new segment, its file in *fd; NULL when there is no room. `is_root`: what a family has in common is its own. */
unsigned char *eo_shared_segment_make(uint32_t rank_count, bool is_root, int *fd);
struct eo_local_common *eo_shared_common_of(unsigned char *segment);
struct eo_local_line *eo_shared_line(const struct eo_group *group, uint32_t slot);
void eo_shared_line_reset(struct eo_local_line *line, uint32_t rank_count, uint64_t index);
unsigned char *eo_shared_stage(const struct eo_group *group, uint32_t slot, uint32_t rank, uint64_t sequence);
/* Maps a file that was taken; NULL with errno. */
unsigned char *eo_shared_map(int fd, uint64_t bytes, bool may_write);

/* streams/shared/join.c */
eo_status eo_shared_group_create(struct eo_group **out, const struct eo_group_params *params);
eo_status eo_shared_group_split(struct eo_group **out, struct eo_group_place *place, struct eo_group *parent,
                                uint32_t rank, uint32_t color, uint32_t key);
/* recv[r * bytes ...] = what rank r tells. Blocks, within the group's deadline. */
eo_status eo_shared_tell(struct eo_group *group, const char *label, const void *send, uint32_t bytes, void *recv);

#endif
