/* SPDX-License-Identifier: MIT
 *
 * Memory goes from process to process as open files, by SCM_RIGHTS over Unix sockets: a rank gets what another has handed
 * to it, and can open nothing else of that process, or of any other.
 *
 *     open       each rank makes its sockets: one that higher ranks call (its name is the kernel's choice), and one for
 *                each rank that it will call. Then all tell each other these names, and whether this went well
 *     hand over  a rank calls every lower one. Both ends look whose the other is (SO_PEERCRED): the process that was told,
 *                of this user. Then each says which rank it is, and hands over its file
 *     close      after a failure: only now the others learn of it, so that whose it is can be said before
 *
 * Taken is only a file of memory, as long as it was said to be and sealed at that: nobody can cut it short, under whose
 * pages a reader would then die.
 */
#ifndef EO_STREAMS_SHARED_FILES_H
#define EO_STREAMS_SHARED_FILES_H

#include "streams/shared/shared.h"

enum { EO_DOOR_NAME_BYTES = 8 };

struct eo_shared_files {
    struct eo_group *group;
    uint32_t first_givers; /* ranks 0 ... give a file: 1 or all */
    int door;              /* that higher ranks call; -1: none does */
    char name[EO_DOOR_NAME_BYTES];
    int peers[EO_LOCAL_RANKS_MAX]; /* -1: nothing passes between the two */
    int callers[EO_LOCAL_RANKS_MAX]; /* that have not said yet who they are */
    uint32_t caller_count;
    char why[400]; /* it failed */
};

/* Ranks 0 ... givers - 1 are to give a file. False: errno; nothing is open. */
bool eo_shared_files_open(struct eo_shared_files *files, struct eo_group *group, uint32_t givers);
/*
 * `names`: of all ranks. Hands over `mine` (-1: this rank gives none), and writes those of all others: of `bytes`, the
 * caller's to close, -1 where there is none. Blocks, within the group's deadline. After a failure none is open, and `why`
 * and errno say what it was.
 */
eo_status eo_shared_files_hand_over(struct eo_shared_files *files, char (*names)[EO_DOOR_NAME_BYTES], int mine,
                                    uint64_t bytes, int taken[EO_LOCAL_RANKS_MAX]);
void eo_shared_files_close(struct eo_shared_files *files);

/* Behind the text of an errno: "; raise the limit ...", or "". */
const char *eo_shared_remedy(int error);

/* Its process has ended. */
bool eo_shared_is_gone(struct eo_group *group, uint32_t rank);

#endif
