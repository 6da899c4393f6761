/* SPDX-License-Identifier: MIT */
#include "tools/launch/guard.h"

#include <errno.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

struct told {
    uint32_t rank;
    pid_t group;
};

static void keep_guard(int from)
{
    static pid_t groups[TOOL_LAUNCH_RANKS_MAX];
    struct told told; /* written at once, so it is read at once */
    for (;;) {
        const ssize_t bytes = read(from, &told, sizeof(told));
        if (bytes == (ssize_t)sizeof(told) && told.rank < TOOL_LAUNCH_RANKS_MAX)
            groups[told.rank] = told.group;
        else if (bytes >= 0 || errno != EINTR)
            break;
    }
    for (uint32_t r = 0; r < TOOL_LAUNCH_RANKS_MAX; r++)
        if (groups[r] > 0)
            kill(-groups[r], SIGKILL);
    _exit(0);
}

bool tool_launch_guard_start(struct tool_launch_guard *guard)
{
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0)
        return false;
    guard->pid = fork();
    if (guard->pid == 0) {
        prctl(PR_SET_NAME, "launch-guard");
        (void)setsid();
        close(ends[1]);
        for (int fd = 0; fd < 3; fd++) /* who reads what the launcher says waits for their end */
            close(fd);
        keep_guard(ends[0]);
    }
    close(ends[0]);
    guard->socket = ends[1];
    return guard->pid > 0;
}

void tool_launch_guard_tell(struct tool_launch_guard *guard, uint32_t rank, pid_t group)
{
    const struct told told = {rank, group};
    /* A socket and no pipe: where the guard was killed, that would be the launcher's end by SIGPIPE. The kernel still ends
     * the ranks themselves. */
    (void)send(guard->socket, &told, sizeof(told), MSG_NOSIGNAL | MSG_DONTWAIT);
}

void tool_launch_guard_stop(struct tool_launch_guard *guard)
{
    close(guard->socket);
    for (int i = 0; i < 200 && waitpid(guard->pid, NULL, WNOHANG) == 0; i++)
        usleep(1000);
}
