/* SPDX-License-Identifier: MIT
 *
 * A process beside the launcher that does nothing as long as this lives, and kills the ranks' process groups when it is
 * gone: PR_SET_PDEATHSIG reaches children alone, and a rank may be a script whose child is the program. It learns of the
 * end by a socket whose other end the launcher alone holds, and is in a session of its own, so that what ends the launcher
 * spares it.
 */
#ifndef EO_TOOLS_LAUNCH_GUARD_H
#define EO_TOOLS_LAUNCH_GUARD_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

enum { TOOL_LAUNCH_RANKS_MAX = 4096 };

struct tool_launch_guard {
    pid_t pid;
    int socket;
};

/* False: errno says why. */
bool tool_launch_guard_start(struct tool_launch_guard *guard);
/* Which group a rank is by now; 0: none. */
void tool_launch_guard_tell(struct tool_launch_guard *guard, uint32_t rank, pid_t group);
void tool_launch_guard_stop(struct tool_launch_guard *guard);

#endif
