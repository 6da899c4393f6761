/* SPDX-License-Identifier: MIT */
#include "tools/launch/children.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tools/shared/clock.h"

enum { ORPHANS_SECONDS = 5 };

static FILE *open_children(void)
{
    char path[64];
    snprintf(path, sizeof(path), "/proc/self/task/%d/children", (int)getpid());
    return fopen(path, "re");
}

bool tool_launch_children_keep(struct tool_launch_children *children)
{
    int pid;
    bool good = true;
    FILE *list = open_children();
    while (good && list && fscanf(list, "%d", &pid) == 1) {
        pid_t *kept = realloc(children->kept, (children->kept_count + 1) * sizeof(*kept));
        good = kept != NULL;
        if (good) {
            children->kept = kept;
            kept[children->kept_count++] = pid;
        }
    }
    if (list)
        fclose(list);
    return good;
}

static bool is_kept_child(const struct tool_launch_children *children, pid_t pid)
{
    for (uint32_t i = 0; i < children->kept_count; i++)
        if (children->kept[i] == pid)
            return true;
    return false;
}

void tool_launch_children_forget(struct tool_launch_children *children, pid_t pid)
{
    for (uint32_t i = 0; i < children->kept_count; i++)
        if (children->kept[i] == pid)
            children->kept[i] = children->kept[--children->kept_count];
}

/* False: there are none to be killed. */
static bool kill_children(const struct tool_launch_children *children)
{
    int pid;
    bool any = false;
    FILE *list = open_children();
    while (list && fscanf(list, "%d", &pid) == 1)
        if (!is_kept_child(children, pid)) {
            any = true;
            kill(pid, SIGKILL);
        }
    if (list)
        fclose(list);
    return any;
}

/* Processes that ranks have left behind are our children by now; those of these become ours when they end. */
void tool_launch_children_end(struct tool_launch_children *children)
{
    const uint64_t end_ns = tool_now_ns() + ORPHANS_SECONDS * UINT64_C(1000000000);
    while (kill_children(children)) {
        usleep(1000);
        for (pid_t pid; (pid = waitpid(-1, NULL, WNOHANG)) > 0;)
            tool_launch_children_forget(children, pid);
        if (tool_now_ns() < end_ns)
            continue;
        fprintf(stderr, "%s: processes started by ranks do not end; see ps --ppid %d\n",
                program_invocation_short_name, (int)getpid());
        return;
    }
}
