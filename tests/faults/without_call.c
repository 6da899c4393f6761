/* SPDX-License-Identifier: MIT
 *
 * Runs a program where a system call is refused: io_uring_setup as in containers, io_uring_register as before Linux 5.6,
 * io_uring_enter by nothing but a fault, fallocate as on NFS before 4.2, clone3 as
 * by Docker before 20.10.10. usage: without_call CALL PROGRAM [ARGUMENTS]
 */
#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <linux/filter.h>
#include <linux/seccomp.h>

static const struct {
    const char *name;
    int number, error;
} calls[] = {
    {"io_uring_setup", SYS_io_uring_setup, EPERM},
    {"io_uring_register", SYS_io_uring_register, EINVAL},
    {"io_uring_enter", SYS_io_uring_enter, EIO},
    {"fallocate", SYS_fallocate, EOPNOTSUPP},
    {"clone3", SYS_clone3, EPERM},
};

int main(int argc, char **argv)
{
    size_t c = 0;
    while (argc > 2 && c < sizeof(calls) / sizeof(calls[0]) && strcmp(argv[1], calls[c].name) != 0)
        c++;
    if (argc < 3 || c == sizeof(calls) / sizeof(calls[0])) {
        fprintf(stderr, "usage: without_call CALL PROGRAM [ARGUMENTS]\n");
        return 126;
    }
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)calls[c].number, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (unsigned)calls[c].error),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    const struct sock_fprog program = {sizeof(filter) / sizeof(filter[0]), filter};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0) {
        perror("without_call");
        return 126;
    }
    execvp(argv[2], argv + 2);
    perror(argv[2]);
    return 127;
}
