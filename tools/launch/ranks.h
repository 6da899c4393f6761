/* SPDX-License-Identifier: MIT
 *
 * The ranks of one start: processes of a process group each, that are told who they are, watched until the last has
 * ended, and never outlive the launcher.
 *
 *     one ends badly     the others get `grace_s` seconds to say what they know of it; stopped ones get none
 *     the launcher ends  the kernel kills its children (PR_SET_PDEATHSIG), the guard their groups
 *     a rank's children  end with it: by its group, or, where they left that, because they become the launcher's
 *     nobody reads       what the ranks write stays in their pipes, and in ours; signals are heard all the same
 */
#ifndef EO_TOOLS_LAUNCH_RANKS_H
#define EO_TOOLS_LAUNCH_RANKS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "tools/launch/children.h"
#include "tools/launch/guard.h"

struct tool_launch_output {
    int fd; /* -1: closed, or not ours to pass on */
    char line[4096];
    uint32_t bytes;
};

struct tool_launch_rank {
    pid_t pid;
    bool ended, stopped, killed; /* killed: by us */
    int status;                  /* of wait */
    struct tool_launch_output output[2];
};

struct tool_launch {
    uint32_t rank_count; /* of the next start */
    uint32_t grace_s;
    bool label;
    char **command;
    bool interrupted;        /* a signal asked the launcher to end, */
    uint64_t interrupted_ns; /* first then */
    bool is_unread;   /* a rank wrote to a pipe that its reader has left */

    int signals; /* a signalfd */
    struct tool_launch_guard guard;
    struct tool_launch_children children;
    struct tool_launch_rank *ranks;
    uint64_t fail_ns; /* when the first rank ended badly; 0: none has */
    uint64_t looked_ns, grace_ns; /* since then: the last look, and the time in which this process ran */
    int told;                     /* where the ranks see what others have said (tools/shared/told.h) */
    uint32_t alike_counts[2];     /* ranks that ended as one before, which has been told: of bad input, not started */
};

/* Room for so many ranks: a start has as many, or fewer. */
bool tool_launch_init(struct tool_launch *launch, uint32_t ranks_most);
void tool_launch_fini(struct tool_launch *launch);

/* One start; returns the exit status. */
int tool_launch_run(struct tool_launch *launch, const char *token, uint32_t turn);
/* At the end: until what was passed on has been read. After a signal that asked for the end, a second at most. False: some
 * could not be written. */
bool tool_launch_await_reader(struct tool_launch *launch);
/* Between two starts; a signal that asks the launcher to end ends it. */
void tool_launch_pause(struct tool_launch *launch, uint32_t ms);

#endif
