/* SPDX-License-Identifier: MIT
 *
 * Runs a program and counts the memory system calls of all its threads, whoever makes them:
 *
 *     count_system_calls FILE PROGRAM ...
 *
 * A filter in the kernel stops the program at these calls alone; everything else runs at full speed. FILE gets a line
 * for each call: "process mmap 12". Exits as the program does; 125 where tracing is not allowed.
 */
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static const struct {
    const char *name;
    int number;
} calls[] = {{"mmap", SYS_mmap}, {"munmap", SYS_munmap}, {"mremap", SYS_mremap}, {"brk", SYS_brk}};
enum { CALL_COUNT = sizeof(calls) / sizeof(calls[0]), CANNOT_TRACE = 125 };

static void start(char **command)
{
    struct sock_filter code[2 + 2 * CALL_COUNT];
    unsigned short length = 0;
    code[length++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr));
    for (unsigned c = 0; c < CALL_COUNT; c++) {
        code[length++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)calls[c].number, 0, 1);
        code[length++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRACE | (c + 1));
    }
    code[length++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    const struct sock_fprog program = {.len = length, .filter = code};
    if (ptrace(PTRACE_TRACEME, 0, NULL, NULL) != 0 || raise(SIGSTOP) != 0 ||
        prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0)
        _exit(CANNOT_TRACE);
    execvp(command[0], command);
    fprintf(stderr, "count_system_calls: %s: %s\n", command[0], strerror(errno));
    _exit(127);
}

/* Until the first process has ended; its exit status. */
static int follow(pid_t child, unsigned long *counts)
{
    for (;;) {
        int status;
        const pid_t thread = waitpid(-1, &status, __WALL);
        if (thread < 0)
            return CANNOT_TRACE;
        if (!WIFSTOPPED(status)) {
            if (thread == child)
                return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
            continue;
        }
        long forwarded = WSTOPSIG(status);
        if (status >> 8 == (SIGTRAP | PTRACE_EVENT_SECCOMP << 8)) {
            unsigned long which = 0;
            ptrace(PTRACE_GETEVENTMSG, thread, NULL, &which);
            if (which >= 1 && which <= CALL_COUNT)
                counts[which - 1]++;
        }
        if (status >> 16 || forwarded == SIGSTOP || forwarded == SIGTRAP) /* events, and new threads */
            forwarded = 0;
        ptrace(PTRACE_CONT, thread, NULL, (void *)forwarded);
    }
}

int main(int argc, char **argv)
{
    if (argc < 3) {
        fprintf(stderr, "usage: count_system_calls FILE PROGRAM ...\n");
        return 2;
    }
    unsigned long counts[CALL_COUNT] = {0};
    const pid_t child = fork();
    if (child == 0)
        start(argv + 2);
    int status;
    if (child < 0 || waitpid(child, &status, 0) != child || !WIFSTOPPED(status) ||
        ptrace(PTRACE_SETOPTIONS, child, NULL,
               (void *)(PTRACE_O_TRACESECCOMP | PTRACE_O_TRACECLONE | PTRACE_O_TRACEFORK | PTRACE_O_TRACEVFORK |
                        PTRACE_O_EXITKILL)) != 0) {
        fprintf(stderr, "count_system_calls: tracing is not allowed here\n");
        return CANNOT_TRACE;
    }
    ptrace(PTRACE_CONT, child, NULL, NULL);
    const int result = follow(child, counts);
    FILE *file = fopen(argv[1], "we");
    if (!file) {
        fprintf(stderr, "count_system_calls: %s: %s\n", argv[1], strerror(errno));
        return 2;
    }
    for (int c = 0; c < CALL_COUNT; c++)
        fprintf(file, "process %s %lu\n", calls[c].name, counts[c]);
    fclose(file);
    return result;
}
