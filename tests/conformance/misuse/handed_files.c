/* SPDX-License-Identifier: MIT
 *
 * Goal: what a process maps because another one said so is memory that this one has made, sealed and handed over, and
 * nothing else: no file of the user's, no memory that can be cut short under its reader. Who is none of the ranks gets
 * nothing and keeps nobody waiting.
 * Method: two ranks that hand over files; one gives what it must not, is not the process that it was said to be, stays
 * away, or a stranger of another user calls first.
 */
#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "streams/cpu/memory_file.h"
#include "streams/shared/files.h"
#include "tests/tap/tap.h"
#include "tests/tap/threads.h"

enum { BYTES = 3 << 12, OTHER_USER = 65534, NO_OTHER_USER = 4 };

struct rank {
    struct eo_group *group; /* no more of it than handing over needs */
    struct eo_shared_group shared;
    struct eo_shared_files files;
    int mine, taken[EO_LOCAL_RANKS_MAX];
    eo_status status;
};

static struct rank ranks[2];
static char names[2][EO_DOOR_NAME_BYTES];

static void *hand_over(void *arg)
{
    struct rank *r = arg;
    r->status = eo_shared_files_hand_over(&r->files, names, r->mine, BYTES, r->taken);
    eo_shared_files_close(&r->files);
    return NULL;
}

static void prepare(uint32_t givers)
{
    memset(ranks, 0, sizeof(ranks));
    for (uint32_t r = 0; r < 2; r++) {
        ranks[r].group = calloc(1, sizeof(struct eo_group));
        if (!ranks[r].group)
            exit(1);
        ranks[r].group->params = (struct eo_group_params){.rank_count = 2, .timeout_ms = 5000};
        ranks[r].group->shared = &ranks[r].shared;
        ranks[r].shared = (struct eo_shared_group){.rank = r, .pids = {getpid(), getpid()}, .pid_files = {-1, -1}};
        ranks[r].mine = -1;
        if (!eo_shared_files_open(&ranks[r].files, ranks[r].group, givers))
            exit(1);
        memcpy(names[r], ranks[r].files.name, sizeof(names[r]));
    }
}

static void run(void)
{
    run_as_threads(hand_over, ranks, 2, sizeof(ranks[0]));
}

static void end(void)
{
    for (uint32_t r = 0; r < 2; r++) {
        free(ranks[r].group);
        if (ranks[r].mine >= 0)
            close(ranks[r].mine);
        for (uint32_t k = 0; k < 2 && ranks[r].status >= 0; k++)
            if (ranks[r].taken[k] >= 0)
                close(ranks[r].taken[k]);
    }
}

static bool has(const char *text)
{
    return strstr(ranks[1].files.why, text) != NULL;
}

static void good_files(void)
{
    char byte = 0;
    prepare(2);
    for (uint32_t r = 0; r < 2; r++) {
        ranks[r].mine = eo_memory_file_make("evenodd test", BYTES);
        byte = (char)('a' + r);
        if (pwrite(ranks[r].mine, &byte, 1, BYTES - 1) != 1)
            exit(1);
    }
    run();
    bool good = ranks[0].status == EO_OK && ranks[1].status == EO_OK && ranks[0].taken[0] < 0 && ranks[1].taken[1] < 0;
    for (uint32_t r = 0; r < 2 && good; r++)
        good = pread(ranks[r].taken[1 - r], &byte, 1, BYTES - 1) == 1 && byte == 'a' + 1 - (int)r;
    tap(good, "each of two ranks gets the memory of the other");
    tap(good && ftruncate(ranks[0].taken[1], 1) != 0 && errno == EPERM && ftruncate(ranks[0].mine, 1) != 0 && errno == EPERM,
        "and neither can cut it short");
    end();
}

/* Of rank 0, who makes what all others map and write. */
static void bad_file(const char *what, int fd)
{
    prepare(1);
    ranks[0].mine = fd;
    run();
    tap(ranks[1].status == EO_ERR_COMM && ranks[1].taken[0] < 0 && has("a file other than sealed memory of 12288 bytes"),
        "%s is not taken: %s", what, ranks[1].files.why);
    end();
}

static int unsealed(void)
{
    const int fd = memfd_create("unsealed", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    return fd >= 0 && ftruncate(fd, BYTES) == 0 ? fd : -1;
}

static int of_the_user(void)
{
    char path[] = "/tmp/handed-XXXXXX";
    const int fd = mkstemp(path);
    unlink(path);
    return fd >= 0 && ftruncate(fd, BYTES) == 0 ? fd : -1;
}

static int open_files(void)
{
    int count = 0;
    for (int fd = 0; fd < 1024; fd++)
        count += fcntl(fd, F_GETFD) >= 0;
    return count;
}

/* Rank 1, which hands over so many files with one note. */
static void hand_over_many(int *socket_out, int count)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    uint32_t note[2] = {0x65766f66, 1};
    struct iovec part = {note, sizeof(note)};
    union {
        struct cmsghdr head;
        char room[CMSG_SPACE(4 * sizeof(int))];
    } control = {0};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = &control,
                             .msg_controllen = CMSG_SPACE((size_t)count * sizeof(int))};
    const int fd = socket(AF_UNIX, SOCK_SEQPACKET, 0), files[4] = {fd, fd, fd, fd};
    const socklen_t bytes = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + strlen(names[0]));
    control.head = (struct cmsghdr){.cmsg_len = CMSG_LEN((size_t)count * sizeof(int)), .cmsg_level = SOL_SOCKET,
                                    .cmsg_type = SCM_RIGHTS};
    memcpy(CMSG_DATA(&control.head), files, (size_t)count * sizeof(int));
    memcpy(address.sun_path + 1, names[0], strlen(names[0]));
    if (connect(fd, (struct sockaddr *)&address, bytes) != 0 || sendmsg(fd, &message, 0) < 0)
        exit(1);
    *socket_out = fd;
}

static void several_files(int count)
{
    int caller;
    prepare(2);
    eo_shared_files_close(&ranks[1].files);
    ranks[0].mine = eo_memory_file_make("evenodd test", BYTES);
    ranks[0].group->params.timeout_ms = 1000;
    const int before = open_files() - 1; /* the door is closed in the end */
    hand_over_many(&caller, count);
    hand_over(&ranks[0]);
    close(caller);
    const int after = open_files();
    tap(ranks[0].status == EO_ERR_COMM && after == before, "of %d files at once none is taken, and none stays open: %s, %d "
        "more", count, ranks[0].files.why, after - before);
    end();
}

static void other_processes(void)
{
    prepare(1);
    ranks[0].mine = eo_memory_file_make("evenodd test", BYTES);
    ranks[1].shared.pids[0] = getppid();
    ranks[0].group->params.timeout_ms = 300;
    run();
    tap(ranks[1].status == EO_ERR_UNSUPPORTED && has("listens in place of rank 0"),
        "a process that is not the rank's is given nothing and believed nothing: %s", ranks[1].files.why);
    tap(ranks[0].status < 0 && strstr(ranks[0].files.why, "passed no file"), "and the other side does not wait: %s",
        ranks[0].files.why);
    end();
    prepare(1);
    ranks[0].mine = eo_memory_file_make("evenodd test", BYTES);
    ranks[0].shared.pids[1] = getppid();
    ranks[0].group->params.timeout_ms = 300;
    run();
    tap(ranks[0].status == EO_ERR_TIMEOUT && ranks[1].status < 0 && ranks[1].taken[0] < 0,
        "a caller that is not the rank's process gets nothing: %s", ranks[1].files.why);
    end();
}

/* Calls, says that it is rank 1, and waits for what it gets; its status: 1 something, or NO_OTHER_USER. */
static _Noreturn void call_as_other(int ready)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    const uint32_t note[2] = {0x65766f66, 1};
    char room[100];
    const int fd = socket(AF_UNIX, SOCK_SEQPACKET, 0);
    memcpy(address.sun_path + 1, names[0], strlen(names[0]));
    const socklen_t bytes = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + strlen(names[0]));
    if (setuid(OTHER_USER) != 0)
        _exit(NO_OTHER_USER);
    if (connect(fd, (struct sockaddr *)&address, bytes) != 0 || send(fd, note, sizeof(note), 0) < 0)
        _exit(3);
    (void)!write(ready, "", 1);
    _exit(recv(fd, room, sizeof(room), 0) > 0);
}

static void other_user(void)
{
    static const char name[] = "a process of another user that calls first gets nothing and keeps nobody waiting";
    int ready[2], status = -1;
    char byte;
    if (geteuid() != 0) {
        tap_skip(name, "only root has another user at hand");
        return;
    }
    prepare(1);
    ranks[0].mine = eo_memory_file_make("evenodd test", BYTES);
    if (pipe(ready) != 0)
        exit(1);
    const pid_t stranger = fork();
    if (stranger == 0)
        call_as_other(ready[1]);
    close(ready[1]);
    const bool has_called = read(ready[0], &byte, 1) == 1;
    run();
    waitpid(stranger, &status, 0);
    if (!has_called && WIFEXITED(status) && WEXITSTATUS(status) == NO_OTHER_USER)
        tap_skip(name, "root is the only user here");
    else
        tap(status == 0 && ranks[0].status == EO_OK && ranks[1].status == EO_OK, "%s", name);
    end();
    close(ready[0]);
}

int main(void)
{
    good_files();
    bad_file("a file of the user's", of_the_user());
    bad_file("memory that can be cut short", unsealed());
    bad_file("memory of another size", eo_memory_file_make("evenodd test", BYTES / 2));
    several_files(2);
    several_files(4);
    other_processes();
    other_user();
    return tap_end();
}
