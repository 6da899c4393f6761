/* SPDX-License-Identifier: MIT */
#include "tools/launch_guard.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

struct told {
    uint32_t rank;
    pid_t group;
};

static void keep_guard(int from)
{
    static pid_t groups[EO_LAUNCH_RANKS_MAX];
    struct told told; /* written at once, so it is read at once */
    for (;;) {
        const ssize_t bytes = read(from, &told, sizeof(told));
        if (bytes == (ssize_t)sizeof(told) && told.rank < EO_LAUNCH_RANKS_MAX)
            groups[told.rank] = told.group;
        else if (bytes >= 0 || errno != EINTR)
            break;
    }
    for (uint32_t r = 0; r < EO_LAUNCH_RANKS_MAX; r++)
        if (groups[r] > 0)
            kill(-groups[r], SIGKILL);
    _exit(0);
}

bool eo_launch_guard_start(struct eo_launch_guard *guard)
{
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0)
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
    guard->pipe = ends[1];
    fcntl(guard->pipe, F_SETFL, O_NONBLOCK);
    return guard->pid > 0;
}

void eo_launch_guard_tell(struct eo_launch_guard *guard, uint32_t rank, pid_t group)
{
    const struct told told = {rank, group};
    if (write(guard->pipe, &told, sizeof(told)) < 0) {
        /* it was killed: the kernel still ends the ranks themselves */
    }
}

void eo_launch_guard_stop(struct eo_launch_guard *guard)
{
    close(guard->pipe);
    for (int i = 0; i < 200 && waitpid(guard->pid, NULL, WNOHANG) == 0; i++)
        usleep(1000);
}
