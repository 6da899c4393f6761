/* SPDX-License-Identifier: MIT
 *
 * How processes become a group: through the exchange they tell each other where they are, map the segment of rank 0,
 * and from then on tell each other what there is to tell through that.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/check.h"
#include "base/machine.h"
#include "streams/shared/files.h"

enum { TIMEOUT_MS_DEFAULT = 60000, MAGIC = 0x65766f64, VERSION = 3 };

/* What decides whether ranks can be a group; compared field by field. */
struct hello {
    uint32_t magic, version, rank_count, rank;
    uint64_t segment_bytes; /* of the same build */
    struct eo_machine machine;
    int64_t pid;
    char host[64];
};

/* How far a rank came, and where it is called. */
struct told {
    int32_t status, error; /* an errno */
    char name[EO_DOOR_NAME_BYTES];
};

static void say_hello(struct hello *hello, uint32_t rank, uint32_t rank_count)
{
    memset(hello, 0, sizeof(*hello)); /* it travels, gaps included */
    *hello = (struct hello){.magic = MAGIC, .version = VERSION, .rank_count = rank_count, .rank = rank,
                            .segment_bytes = eo_shared_segment_bytes(rank_count), .pid = getpid()};
    eo_machine_read(&hello->machine);
    if (gethostname(hello->host, sizeof(hello->host) - 1) != 0)
        snprintf(hello->host, sizeof(hello->host), "?");
}

/* Every rank sees all hellos, so all come to the same end. */
static eo_status check_hellos(const struct hello *hellos, uint32_t rank, uint32_t rank_count, const eo_log *log)
{
    const struct hello *mine = &hellos[rank];
    for (uint32_t r = 0; r < rank_count; r++) {
        const struct hello *other = &hellos[r];
        EO_REQUIRE(log, other->magic == MAGIC && other->version == VERSION && other->segment_bytes == mine->segment_bytes,
                   "shared: rank %u runs another build of evenodd than rank %u", r, rank);
        EO_REQUIRE(log, other->rank_count == rank_count, "shared: rank %u has a world of %u ranks, rank %u of %u", r,
                   other->rank_count, rank, rank_count);
        EO_REQUIRE(log, other->rank == r, "shared: two ranks claim to be rank %u", other->rank);
    }
    for (uint32_t r = 0; r < rank_count; r++)
        EO_REQUIRE(log, hellos[r].machine.boot[0], "shared: rank %u (process %lld on %s) cannot identify its machine: "
                   "/proc/sys/kernel/random/boot_id cannot be read; mount /proc", r, (long long)hellos[r].pid,
                   hellos[r].host);
    for (uint32_t r = 0; r < rank_count; r++) {
        const struct hello *other = &hellos[r], *first = &hellos[0];
        if (eo_machine_visible(&first->machine, &other->machine))
            continue;
        eo_log_write(log, EO_LOG_ERROR,
                     "shared: rank %u (process %lld on %s) and rank 0 (process %lld on %s) are not %s; use mpi", r,
                     (long long)other->pid, other->host, (long long)first->pid, first->host,
                     eo_machine_same(&first->machine, &other->machine)
                         ? "in one container: they cannot see each other's processes or sockets" : "on one machine");
        return EO_ERR_UNSUPPORTED;
    }
    return EO_OK;
}

/* The first rank that failed decides, on all ranks alike. */
static eo_status agree(const struct told *all, uint32_t rank_count, const char *what, const eo_log *log)
{
    for (uint32_t r = 0; r < rank_count; r++) {
        if (all[r].status >= 0)
            continue;
        const int error = all[r].error;
        eo_log_write(log, EO_LOG_ERROR, "shared: rank %u could not %s: %s%s", r, what,
                     error ? strerror(error) : eo_status_text((eo_status)all[r].status), eo_shared_remedy(error));
        return (eo_status)all[r].status;
    }
    return EO_OK;
}

/* -- while the group lives --------------------------------------------------------------------------------------- */

static struct eo_local_line *shared_line_at(const struct eo_group *group, uint32_t k)
{
    return k < EO_SHARED_SLOTS ? eo_shared_line(group, k) : NULL;
}

static void shared_wake(struct eo_group *group)
{
    for (uint32_t slot = 0; slot < EO_SHARED_SLOTS; slot++)
        eo_gate_notify(&eo_shared_line(group, slot)->gate);
}

static void shared_drop(struct eo_group *group)
{
    struct eo_shared_group *shared = group->shared;
    for (uint32_t r = 0; r < group->params.rank_count; r++)
        if (shared->pid_files[r] >= 0)
            close(shared->pid_files[r]);
    if (shared->segment)
        munmap(shared->segment, shared->segment_bytes);
    free(shared);
    group->shared = NULL;
}

eo_status eo_shared_tell(struct eo_group *group, const char *label, const void *send, uint32_t bytes, void *recv)
{
    struct eo_local_end *end = &group->shared->control;
    EO_ASSERT(bytes <= EO_SHARED_BLOB_BYTES);
    memcpy(eo_shared_stage(group, 0, end->rank, end->sequence + 1), send, bytes);
    eo_local_enter(end, &(const struct eo_local_post){.kind = EO_LOCAL_BARRIER, .label = label});
    const eo_status status = eo_local_meet(end, false, eo_now_ns());
    for (uint32_t r = 0; status >= 0 && r < group->params.rank_count; r++)
        memcpy((char *)recv + r * bytes, eo_shared_stage(group, 0, r, end->sequence), bytes);
    eo_local_leave(end);
    return status;
}

/* -- joining ----------------------------------------------------------------------------------------------------- */

/* A group of which this process is `rank`, without its segment. */
static eo_status make_group(struct eo_group **out, const struct eo_group_params *params, uint32_t rank,
                            const pid_t *pids, struct eo_group *root)
{
    struct eo_shared_group *shared = calloc(1, sizeof(*shared));
    if (!shared || eo_local_group_make(out, params, root) < 0) {
        free(shared);
        *out = NULL;
        return EO_ERR_NO_MEMORY;
    }
    struct eo_group *group = *out;
    atomic_store(&group->references, 1);
    if (group->params.timeout_ms == 0)
        group->params.timeout_ms = TIMEOUT_MS_DEFAULT;
    group->params.join = NULL; /* the caller's, for the time of the call */
    group->shared = shared;
    group->drop = shared_drop;
    shared->rank = rank;
    for (uint32_t r = 0; r < params->rank_count; r++) {
        shared->pids[r] = pids[r];
        shared->pid_files[r] = (int)syscall(SYS_pidfd_open, pids[r], 0); /* Linux 5.3 */
    }
    return EO_OK;
}

static eo_status status_of(int error)
{
    return error == ENOMEM ? EO_ERR_NO_MEMORY : EO_ERR_IO;
}

/* Rank 0 makes it, *fd; all make what they need to hand it over. */
static struct told make_segment(struct eo_group *group, struct eo_shared_files *files, int *fd)
{
    struct eo_shared_group *shared = group->shared;
    struct told told = {0};
    if (shared->rank == 0) {
        shared->segment = eo_shared_segment_make(group->params.rank_count, group->root == group, fd);
        if (!shared->segment)
            return (struct told){.status = status_of(errno), .error = errno};
        shared->segment_bytes = eo_shared_segment_bytes(group->params.rank_count);
        if (group->root == group)
            eo_fabric_init(&eo_shared_common_of(shared->segment)->fabric, group->params.fabric_gigabytes_per_s,
                           group->params.fabric_latency_us);
    }
    if (!eo_shared_files_open(files, group, 1))
        return (struct told){.status = status_of(errno), .error = errno};
    memcpy(told.name, files->name, sizeof(told.name));
    return told;
}

static struct told map_segment(struct eo_group *group, struct eo_shared_files *files, const struct told *root, int fd)
{
    struct eo_shared_group *shared = group->shared;
    const uint64_t bytes = eo_shared_segment_bytes(group->params.rank_count);
    char names[EO_LOCAL_RANKS_MAX][EO_DOOR_NAME_BYTES] = {{0}};
    int taken[EO_LOCAL_RANKS_MAX];
    memcpy(names[0], root->name, sizeof(names[0]));
    const eo_status status = eo_shared_files_hand_over(files, names, fd, bytes, taken);
    if (status < 0) {
        const int error = errno;
        eo_log_write(&group->log, EO_LOG_ERROR, "shared: rank %u: %s", shared->rank, files->why);
        return (struct told){.status = status, .error = error};
    }
    if (shared->rank == 0)
        return (struct told){0};
    shared->segment = eo_shared_map(taken[0], bytes, true);
    const int error = errno;
    close(taken[0]);
    if (!shared->segment)
        return (struct told){.status = status_of(error), .error = error};
    shared->segment_bytes = bytes;
    return (struct told){0};
}

/* From here on ranks meet. */
static void begin(struct eo_group *group)
{
    struct eo_shared_group *shared = group->shared;
    if (group->root == group)
        group->common = eo_shared_common_of(shared->segment);
    group->line_at = shared_line_at;
    group->wake = shared_wake;
    group->is_gone = eo_shared_is_gone;
    shared->control = (struct eo_local_end){.group = group, .line = eo_shared_line(group, 0), .rank = shared->rank};
}

struct teller {
    struct eo_group *parent;            /* a split: through its control line */
    const struct eo_exchange *exchange; /* else */
};

static eo_status tell(const struct teller *teller, const void *send, uint32_t bytes, void *recv)
{
    return teller->parent ? eo_shared_tell(teller->parent, "split of a group", send, bytes, recv)
                          : teller->exchange->all_gather(teller->exchange->user, send, bytes, recv);
}

/* `first`: the new group's rank 0 among those that the teller reaches, `count` in all. Collective over these; `group` is
 * NULL for who comes into none. */
static eo_status join_segment(struct eo_group *group, const struct teller *teller, uint32_t first, uint32_t count,
                              const eo_log *log)
{
    struct told mine = {0}, all[EO_LOCAL_RANKS_MAX];
    struct eo_shared_files files = {.door = -1};
    int fd = -1;
    if (group)
        mine = make_segment(group, &files, &fd);
    eo_status status = tell(teller, &mine, sizeof(mine), all);
    if (status >= 0)
        status = agree(all, count, "make the memory of the group", log);
    if (status >= 0) {
        const struct told mapped = group ? map_segment(group, &files, &all[first], fd) : (struct told){0};
        if (group)
            eo_shared_files_close(&files); /* where it went wrong, nobody is to wait for an answer at this rank's door */
        status = tell(teller, &mapped, sizeof(mapped), all);
        if (status >= 0)
            status = agree(all, count, "open the memory of the group", log);
    }
    if (group && mine.status >= 0)
        eo_shared_files_close(&files);
    if (fd >= 0)
        close(fd); /* who was to have it has */
    if (status >= 0 && group)
        begin(group);
    return status;
}

eo_status eo_shared_group_create(struct eo_group **out, const struct eo_group_params *params)
{
    const struct eo_group_join *join = params->join;
    const uint32_t rank_count = params->rank_count;
    *out = NULL;
    EO_REQUIRE(params->log, join && join->exchange && join->exchange->all_gather,
               "shared: ranks as processes need an exchange to find each other");
    EO_REQUIRE(params->log, rank_count >= 1 && rank_count <= EO_LOCAL_RANKS_MAX && join->rank < rank_count,
               "shared: rank %u of %u; one machine can have 1 to %u processes; start fewer, with more threads each, or use mpi",
               join->rank, rank_count, (unsigned)EO_LOCAL_RANKS_MAX);
    struct hello mine, all[EO_LOCAL_RANKS_MAX];
    _Static_assert(sizeof(mine) <= EO_EXCHANGE_BYTES_MAX, "a hello is a small blob");
    say_hello(&mine, join->rank, rank_count);
    const struct teller teller = {NULL, join->exchange};
    EO_TRY(tell(&teller, &mine, sizeof(mine), all));
    EO_TRY(check_hellos(all, join->rank, rank_count, params->log));
    pid_t pids[EO_LOCAL_RANKS_MAX];
    for (uint32_t r = 0; r < rank_count; r++)
        pids[r] = (pid_t)all[r].pid;
    struct eo_group *group;
    EO_TRY(make_group(&group, params, join->rank, pids, NULL));
    const eo_status status = join_segment(group, &teller, 0, rank_count, &group->log);
    if (status < 0) {
        eo_local_group_release(group);
        return status;
    }
    *out = group;
    return EO_OK;
}

/* -- splitting --------------------------------------------------------------------------------------------------- */

struct answer {
    uint32_t color, key;
};

/* The parent's ranks of our color, by key and then by rank. */
static uint32_t find_members(const struct answer *answers, uint32_t count, uint32_t color, uint32_t *members)
{
    uint32_t found = 0;
    for (uint32_t r = 0; r < count; r++) {
        if (answers[r].color != color)
            continue;
        uint32_t at = found++;
        for (; at > 0 && answers[members[at - 1]].key > answers[r].key; at--)
            members[at] = members[at - 1];
        members[at] = r;
    }
    return found;
}

/* Its place in the family. */
static eo_status make_member(struct eo_group **out, struct eo_group *parent, const uint32_t *members,
                             const struct eo_group_place *place)
{
    pid_t pids[EO_LOCAL_RANKS_MAX];
    for (uint32_t i = 0; i < place->rank_count; i++)
        pids[i] = parent->shared->pids[members[i]];
    struct eo_group_params params = parent->params;
    params.rank_count = place->rank_count;
    EO_TRY(make_group(out, &params, place->rank, pids, parent->root));
    atomic_fetch_add(&parent->root->references, 1); /* the new group's own */
    eo_local_lock(parent);
    (*out)->next = parent->root->next;
    parent->root->next = *out;
    eo_local_unlock(parent);
    return EO_OK;
}

eo_status eo_shared_group_split(struct eo_group **out, struct eo_group_place *place, struct eo_group *parent,
                                uint32_t rank, uint32_t color, uint32_t key)
{
    *out = NULL;
    *place = (struct eo_group_place){0};
    EO_REQUIRE(&parent->log, rank == parent->shared->rank, "split: rank %u is not the rank of this process, %u", rank,
               parent->shared->rank);
    const uint32_t count = parent->params.rank_count;
    struct answer answers[EO_LOCAL_RANKS_MAX];
    EO_TRY(eo_shared_tell(parent, "split of a group", &(const struct answer){color, key}, sizeof(answers[0]), answers));
    uint32_t members[EO_LOCAL_RANKS_MAX] = {0};
    struct eo_group *group = NULL;
    struct eo_group_place found = {0, find_members(answers, count, color, members)};
    while (members[found.rank] != rank)
        found.rank++;
    if (color != EO_GROUP_NO_COLOR && make_member(&group, parent, members, &found) < 0)
        return eo_local_fail(parent, EO_ERR_NO_MEMORY, "rank %u: out of memory for a group inside the group", rank);
    const struct teller teller = {parent, NULL};
    const eo_status status = join_segment(group, &teller, members[0], count, &parent->log);
    if (status < 0) {
        eo_local_group_release(group);
        return status;
    }
    if (group)
        *place = found;
    *out = group;
    return EO_OK;
}
