/* SPDX-License-Identifier: MIT */
#include "streams/shared/files.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "streams/cpu/memory_file.h"

enum { MAGIC = 0x65766f66, RETRY_MS = 5 };

/* What each end says first, with its file. */
struct note {
    uint32_t magic, rank;
};

bool eo_shared_is_gone(struct eo_group *group, uint32_t rank)
{
    const struct eo_shared_group *shared = group->shared;
    if (shared->pid_files[rank] < 0)
        return kill(shared->pids[rank], 0) != 0 && errno == ESRCH;
    struct pollfd file = {shared->pid_files[rank], POLLIN, 0};
    return poll(&file, 1, 0) == 1; /* an ended process, its parent may not have asked for it yet */
}

/* -- sockets ----------------------------------------------------------------------------------------------------- */

static bool passes_between(const struct eo_shared_files *files, uint32_t a, uint32_t b)
{
    return a != b && (a < files->first_givers || b < files->first_givers);
}

static int new_socket(void)
{
    return socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
}

/* Bound without a name it gets one of five digits, which no file has. */
static bool open_door(struct eo_shared_files *files)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    socklen_t bytes = sizeof(address);
    files->door = new_socket();
    if (files->door < 0 || bind(files->door, (struct sockaddr *)&address, sizeof(address.sun_family)) != 0 ||
        listen(files->door, EO_LOCAL_RANKS_MAX) != 0 ||
        getsockname(files->door, (struct sockaddr *)&address, &bytes) != 0)
        return false;
    const size_t length = bytes - offsetof(struct sockaddr_un, sun_path) - 1;
    if (length < 1 || length >= EO_DOOR_NAME_BYTES) {
        errno = EPROTO;
        return false;
    }
    memcpy(files->name, address.sun_path + 1, length);
    return true;
}

bool eo_shared_files_open(struct eo_shared_files *files, struct eo_group *group, uint32_t givers)
{
    const uint32_t rank = group->shared->rank, rank_count = group->params.rank_count;
    *files = (struct eo_shared_files){.group = group, .first_givers = givers, .door = -1};
    for (uint32_t r = 0; r < EO_LOCAL_RANKS_MAX; r++)
        files->peers[r] = -1;
    bool good = rank + 1 == rank_count || !passes_between(files, rank, rank_count - 1) || open_door(files);
    for (uint32_t r = 0; r < rank && good; r++)
        if (passes_between(files, rank, r))
            good = (files->peers[r] = new_socket()) >= 0;
    if (good)
        return true;
    const int error = errno;
    eo_shared_files_close(files);
    errno = error;
    return false;
}

void eo_shared_files_close(struct eo_shared_files *files)
{
    if (files->door >= 0)
        close(files->door);
    files->door = -1;
    for (uint32_t r = 0; r < EO_LOCAL_RANKS_MAX; r++) {
        if (files->peers[r] >= 0)
            close(files->peers[r]);
        files->peers[r] = -1;
    }
    while (files->caller_count > 0)
        close(files->callers[--files->caller_count]);
}

/* -- a meeting of two -------------------------------------------------------------------------------------------- */

enum progress { CALLS = 1, SAYS, HEARS, DONE }; /* who was called hears first */

struct hand_over {
    struct eo_shared_files *files;
    int mine;
    uint64_t bytes;
    int *taken;
    enum progress progress[EO_LOCAL_RANKS_MAX]; /* 0: nothing passes between the two, or it has not called yet */
    eo_status status;
    int error;
};

static void fail(struct hand_over *h, eo_status status, int error, const char *format, ...) EO_PRINTF(4, 5);
static void fail(struct hand_over *h, eo_status status, int error, const char *format, ...)
{
    va_list arguments;
    if (h->status < 0)
        return;
    va_start(arguments, format);
    vsnprintf(h->files->why, sizeof(h->files->why), format, arguments);
    va_end(arguments);
    h->status = status;
    h->error = error;
}

static bool is_process(int fd, pid_t pid, struct ucred *who)
{
    socklen_t bytes = sizeof(*who);
    return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, who, &bytes) == 0 && who->uid == geteuid() && (pid == 0 || who->pid == pid);
}

static void call(struct hand_over *h, uint32_t r, const char *name)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    struct ucred who = {0};
    const struct eo_group *group = h->files->group;
    const size_t length = strnlen(name, EO_DOOR_NAME_BYTES - 1);
    const socklen_t bytes = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + length);
    memcpy(address.sun_path + 1, name, length);
    if (connect(h->files->peers[r], (struct sockaddr *)&address, bytes) != 0) {
        if (errno != EAGAIN && errno != EINTR) /* more than it can take at one time */
            fail(h, EO_ERR_COMM, errno, "cannot reach rank %u, process %d: %s", r, (int)group->shared->pids[r],
                 strerror(errno));
        return;
    }
    if (!is_process(h->files->peers[r], group->shared->pids[r], &who)) {
        fail(h, EO_ERR_UNSUPPORTED, EPERM, "process %d of user %u listens in place of rank %u, process %d; start all ranks as "
             "one user, or use mpi", (int)who.pid, (unsigned)who.uid, r, (int)group->shared->pids[r]);
        return;
    }
    h->progress[r] = SAYS;
}

/* False: later. */
static bool say(struct hand_over *h, uint32_t r)
{
    struct note note = {MAGIC, h->files->group->shared->rank};
    struct iovec part = {&note, sizeof(note)};
    union {
        struct cmsghdr head;
        char room[CMSG_SPACE(sizeof(int))];
    } control = {0};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    if (h->mine >= 0) {
        message.msg_control = &control;
        message.msg_controllen = sizeof(control);
        struct cmsghdr *head = CMSG_FIRSTHDR(&message);
        *head = (struct cmsghdr){.cmsg_len = CMSG_LEN(sizeof(int)), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS};
        memcpy(CMSG_DATA(head), &h->mine, sizeof(int));
    }
    if (sendmsg(h->files->peers[r], &message, MSG_NOSIGNAL) >= 0)
        return true;
    if (errno != EAGAIN && errno != EINTR && errno != ETOOMANYREFS) /* so many files are on their way, of all ranks */
        fail(h, EO_ERR_COMM, errno, "cannot pass a file to rank %u: %s", r, strerror(errno));
    return false;
}

/* The file of a message. -1: there is none, or there are several, which are closed: room for one has room for two. */
static int take_one_file(struct msghdr *message)
{
    int file = -1;
    uint32_t count = 0;
    for (struct cmsghdr *head = CMSG_FIRSTHDR(message); head; head = CMSG_NXTHDR(message, head)) {
        if (head->cmsg_level != SOL_SOCKET || head->cmsg_type != SCM_RIGHTS)
            continue;
        for (size_t at = CMSG_LEN(0); at + sizeof(int) <= head->cmsg_len; at += sizeof(int)) {
            if (count++ > 0)
                close(file);
            memcpy(&file, (const char *)head + at, sizeof(int));
        }
    }
    if (count <= 1 && !(message->msg_flags & MSG_CTRUNC))
        return file;
    if (file >= 0)
        close(file);
    return -1;
}

/* One note, and the file with it. 0: there is none yet; -1: there will be none, errno. */
static int hear(int fd, struct note *note, int *file)
{
    struct iovec part = {note, sizeof(*note)};
    union {
        struct cmsghdr head;
        char room[CMSG_SPACE(sizeof(int))];
    } control = {0};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof(control)};
    *file = -1;
    const ssize_t got = recvmsg(fd, &message, MSG_CMSG_CLOEXEC);
    if (got < 0 && (errno == EAGAIN || errno == EINTR))
        return 0;
    if (got <= 0) {
        errno = got == 0 ? ECONNRESET : errno;
        return -1;
    }
    *file = take_one_file(&message);
    if (got == sizeof(*note) && note->magic == MAGIC && !(message.msg_flags & (MSG_CTRUNC | MSG_TRUNC)))
        return 1;
    if (*file >= 0)
        close(*file);
    *file = -1;
    errno = message.msg_flags & MSG_CTRUNC ? EMFILE : EPROTO; /* there was no number left for it */
    return -1;
}

static void take_file(struct hand_over *h, uint32_t r, int file)
{
    h->taken[r] = file;
    if ((file >= 0) != (r < h->files->first_givers))
        fail(h, EO_ERR_COMM, EPROTO, "rank %u passed %s", r, file >= 0 ? "an unexpected file" : "no file");
    else if (file >= 0 && !eo_memory_file_is(file, h->bytes))
        fail(h, EO_ERR_COMM, EPROTO, "rank %u passed a file other than sealed memory of %llu bytes", r,
             (unsigned long long)h->bytes);
}

/* -- all of them ------------------------------------------------------------------------------------------------- */

static void hear_peer(struct hand_over *h, uint32_t r)
{
    struct note note;
    int file;
    const int heard = hear(h->files->peers[r], &note, &file);
    if (heard < 0)
        fail(h, EO_ERR_COMM, errno, "rank %u, process %d, passed no file: %s", r, (int)h->files->group->shared->pids[r],
             strerror(errno));
    if (heard <= 0)
        return;
    take_file(h, r, file);
    h->progress[r] = DONE;
    if (note.rank != r)
        fail(h, EO_ERR_COMM, EPROTO, "in place of rank %u is rank %u", r, note.rank);
}

const char *eo_shared_remedy(int error)
{
    return error == EMFILE   ? "; raise the limit on open files (ulimit -n)"
           : error == ENFILE ? "; the system has reached its limit on open files (fs.file-max)"
           : error == EFBIG  ? "; raise the limit on file sizes (ulimit -f)"
                             : "";
}

/* Whoever calls and is of another user is sent away. So many at a time: who calls on and on must not keep this rank here. */
static void answer_door(struct hand_over *h)
{
    struct ucred who;
    for (uint32_t i = 0; i < EO_LOCAL_RANKS_MAX; i++) {
        const int fd = accept4(h->files->door, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd < 0 && (errno == ECONNABORTED || errno == EINTR))
            continue;
        if (fd < 0 && errno != EAGAIN)
            fail(h, EO_ERR_IO, errno, "cannot accept another rank's call: %s", strerror(errno));
        if (fd < 0)
            return;
        if (is_process(fd, 0, &who) && h->files->caller_count < EO_LOCAL_RANKS_MAX)
            h->files->callers[h->files->caller_count++] = fd;
        else
            close(fd);
    }
}

static void hear_caller(struct hand_over *h, uint32_t i)
{
    const struct eo_group *group = h->files->group;
    struct note note;
    struct ucred who;
    int file;
    const int fd = h->files->callers[i], heard = hear(fd, &note, &file), error = errno;
    if (heard == 0)
        return;
    for (uint32_t r = group->shared->rank + 1; r < group->params.rank_count && heard < 0; r++)
        if (h->progress[r] == 0 && passes_between(h->files, r, group->shared->rank) &&
            is_process(fd, group->shared->pids[r], &who)) {
            fail(h, EO_ERR_COMM, error, "rank %u, process %d, passed no file: %s", r, (int)who.pid, strerror(error));
            return; /* the connection ends when the group knows why: the other rank would say less */
        }
    h->files->callers[i] = h->files->callers[--h->files->caller_count];
    if (heard > 0 && note.rank < group->params.rank_count && note.rank > group->shared->rank &&
        passes_between(h->files, note.rank, group->shared->rank) && h->progress[note.rank] == 0 &&
        is_process(fd, group->shared->pids[note.rank], &who)) {
        h->files->peers[note.rank] = fd;
        h->progress[note.rank] = SAYS;
        take_file(h, note.rank, file);
        return;
    }
    if (file >= 0)
        close(file);
    close(fd);
}

static void step_peers(struct hand_over *h, char (*names)[EO_DOOR_NAME_BYTES])
{
    const uint32_t rank = h->files->group->shared->rank;
    for (uint32_t r = 0; r < h->files->group->params.rank_count; r++) {
        if (h->progress[r] == CALLS)
            call(h, r, names[r]);
        if (h->progress[r] == SAYS && say(h, r))
            h->progress[r] = r < rank ? HEARS : DONE;
        if (h->progress[r] == HEARS)
            hear_peer(h, r);
    }
}

/* The first rank with which it is not over; rank_count: there is none. */
static uint32_t first_left(const struct hand_over *h)
{
    const struct eo_shared_files *files = h->files;
    const uint32_t rank = files->group->shared->rank, rank_count = files->group->params.rank_count;
    for (uint32_t r = 0; r < rank_count; r++)
        if (passes_between(files, rank, r) && h->progress[r] != DONE)
            return r;
    return rank_count;
}

/* Sleeps until something comes, or for a moment where this rank has to try again. */
static void await_any(struct hand_over *h)
{
    struct pollfd polls[2 * EO_LOCAL_RANKS_MAX + 1];
    uint32_t count = 0;
    int ms = 50;
    polls[count++] = (struct pollfd){h->files->door, POLLIN, 0};
    for (uint32_t i = 0; i < h->files->caller_count; i++)
        polls[count++] = (struct pollfd){h->files->callers[i], POLLIN, 0};
    for (uint32_t r = 0; r < h->files->group->params.rank_count; r++) {
        if (h->progress[r] == CALLS || h->progress[r] == SAYS)
            ms = RETRY_MS;
        if (h->progress[r] == HEARS)
            polls[count++] = (struct pollfd){h->files->peers[r], POLLIN, 0};
    }
    (void)poll(polls, count, ms);
}

eo_status eo_shared_files_hand_over(struct eo_shared_files *files, char (*names)[EO_DOOR_NAME_BYTES], int mine,
                                    uint64_t bytes, int taken[EO_LOCAL_RANKS_MAX])
{
    struct eo_group *group = files->group;
    const uint32_t rank = group->shared->rank, rank_count = group->params.rank_count;
    const uint64_t limit_ns = group->params.timeout_ms * UINT64_C(1000000);
    struct eo_stopwatch waited = eo_stopwatch_start();
    struct hand_over h = {.files = files, .mine = mine, .bytes = bytes, .taken = taken};
    uint32_t left;
    for (uint32_t r = 0; r < rank_count; r++) {
        taken[r] = -1;
        h.progress[r] = r < rank && passes_between(files, rank, r) ? CALLS : 0;
    }
    while (h.status >= 0 && (left = first_left(&h)) < rank_count) {
        step_peers(&h, names);
        if (files->door >= 0)
            answer_door(&h);
        for (uint32_t i = files->caller_count; i-- > 0;)
            hear_caller(&h, i);
        step_peers(&h, names);
        if (h.status < 0 || (left = first_left(&h)) == rank_count)
            break;
        if (eo_shared_is_gone(group, left))
            fail(&h, EO_ERR_COMM, ESRCH, "rank %u is gone: its process has ended", left);
        else if (eo_stopwatch_look(&waited, EO_LOOK_NS_MAX) >= limit_ns)
            fail(&h, EO_ERR_TIMEOUT, ETIMEDOUT, "rank %u has passed no file within %u ms", left, group->params.timeout_ms);
        else
            await_any(&h);
    }
    for (uint32_t r = 0; r < rank_count && h.status < 0; r++) {
        if (h.progress[r] == CALLS) { /* nobody is to wait for this rank: its end of the connection closes */
            h.progress[r] = 0;
            call(&h, r, names[r]);
        }
        if (taken[r] >= 0)
            close(taken[r]);
        taken[r] = -1;
    }
    errno = h.error;
    return h.status;
}
