/* SPDX-License-Identifier: MIT
 *
 * Goal: a group inside a group of processes may end while another thread reports a failure of the family. A communicator
 * that stays open keeps no other from being opened, however many come and go beside it. Stages lie on pages of any kernel.
 * A lock that is not given back keeps nobody for longer than a second, whatever becomes of the wall clock, and nobody goes on
 * without it because all stood still. Who cannot take another's file says why before the other sees an end.
 * Method: a world of one process; a wrapped munmap reports the failure right after the inner group's segment is gone, and a
 * wrapped clock_gettime has a wall clock that is set back after each look at it, and a monotonic one that leaps. A limit on
 * files leaves no number for the one that comes.
 */
#include <criterion/criterion.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "streams/collective.h"
#include "streams/cpu/memory_file.h"
#include "streams/shared/files.h"
#include "streams/shared/shared.h"

static const struct eo_comm_ops *shared_ops;
static struct eo_group *failing; /* when memory is unmapped; NULL: none is */
static uint32_t unmapped;

int __real_munmap(void *memory, size_t bytes);
int __wrap_munmap(void *memory, size_t bytes);

int __wrap_munmap(void *memory, size_t bytes)
{
    const int result = __real_munmap(memory, bytes);
    struct eo_group *group = failing;
    failing = NULL;
    if (group) {
        unmapped++;
        shared_ops->group_abort(group, 0, "it has had enough");
    }
    return result;
}

static atomic_int stood_still_s;

int __real_clock_gettime(clockid_t clock, struct timespec *now);
int __wrap_clock_gettime(clockid_t clock, struct timespec *now);

int __wrap_clock_gettime(clockid_t clock, struct timespec *now)
{
    const int result = __real_clock_gettime(clock, now);
    now->tv_sec += clock == CLOCK_REALTIME ? 3600 : stood_still_s;
    return result;
}

static eo_status gather_alone(void *user, const void *send, uint32_t bytes, void *recv)
{
    (void)user;
    memcpy(recv, send, bytes);
    return EO_OK;
}

Test(shared_groups, a_failure_beside_the_end_of_an_inner_group_finds_nothing_of_it)
{
    const struct eo_exchange exchange = {gather_alone, NULL};
    const struct eo_group_join join = {.rank = 0, .exchange = &exchange};
    struct eo_group *group = NULL, *first = NULL, *second = NULL;
    struct eo_group_place place;
    char text[256] = "";
    shared_ops = eo_comm_find("shared");
    cr_assert_eq(shared_ops->group_create(&group, &(const struct eo_group_params){.rank_count = 1, .join = &join}), EO_OK);
    cr_assert_eq(shared_ops->group_split(&first, &place, group, 0, 0, 0), EO_OK);
    cr_assert_eq(shared_ops->group_split(&second, &place, group, 0, 0, 0), EO_OK);
    failing = group;
    shared_ops->group_release(second);
    cr_assert_eq(unmapped, 1);
    shared_ops->group_failure(group, text, sizeof(text));
    cr_assert(strstr(text, "it has had enough"), "the failure is '%s'", text);
    shared_ops->group_release(first);
    shared_ops->group_release(group);
}

Test(shared_groups, a_communicator_that_stays_open_keeps_no_other_out)
{
    const struct eo_exchange exchange = {gather_alone, NULL};
    const struct eo_group_join join = {.rank = 0, .exchange = &exchange};
    const struct eo_device_params queues = {.queue_count = 2, .ring_capacity = 4, .rank_count = 1};
    struct eo_group *group = NULL;
    struct eo_device *device = NULL;
    struct eo_comm *comms[EO_SHARED_SLOTS] = {NULL};
    const struct eo_comm_ops *ops = eo_comm_find("shared");
    cr_assert_eq(eo_device_create(&device, "cpu", &queues), EO_OK);
    cr_assert_eq(ops->group_create(&group, &(const struct eo_group_params){.rank_count = 1, .timeout_ms = 50, .join = &join}), EO_OK);
    cr_assert_eq(ops->open(&comms[0], group, 0, device, EO_QUEUE_COMM, false), EO_OK);
    for (uint32_t i = 0; i < 3 * EO_SHARED_SLOTS; i++) {
        cr_assert_eq(ops->open(&comms[1], group, 0, device, EO_QUEUE_COMM, false), EO_OK, "communicator %u beside the first",
                     i);
        ops->close(comms[1]);
    }
    /* As many as there are slots, and no more. */
    for (uint32_t i = 1; i < EO_SHARED_SLOTS - 1; i++)
        cr_assert_eq(ops->open(&comms[i], group, 0, device, EO_QUEUE_COMM, false), EO_OK);
    cr_assert_eq(ops->open(&comms[EO_SHARED_SLOTS - 1], group, 0, device, EO_QUEUE_COMM, false), EO_ERR_TIMEOUT);
    for (uint32_t i = 0; i < EO_SHARED_SLOTS - 1; i++)
        ops->close(comms[i]);
    ops->group_release(group);
    eo_device_destroy(&device);
}

Test(shared_groups, stages_lie_on_whole_pages_of_any_kernel)
{
    const uint64_t page_bytes = 64 << 10;
    for (uint32_t rank_count = 1; rank_count <= EO_LOCAL_RANKS_MAX; rank_count++) {
        struct eo_shared_group shared = {.segment = (unsigned char *)(uintptr_t)page_bytes}; /* nobody looks into it */
        const struct eo_group group = {.params.rank_count = rank_count, .shared = &shared};
        cr_assert_eq((uintptr_t)eo_shared_stage(&group, 1, rank_count - 1, 1) % page_bytes, 0, "of %u ranks", rank_count);
        cr_assert_eq(eo_shared_segment_bytes(rank_count) % page_bytes, 0, "of %u ranks", rank_count);
    }
}

struct held {
    struct eo_group *group;
    pthread_t thread;
    atomic_bool is_held, may_end;
};

/* A group whose lock the thread has taken. */
static void open_held(struct held *held, void *(*holder)(void *user))
{
    const struct eo_exchange exchange = {gather_alone, NULL};
    const struct eo_group_join join = {.rank = 0, .exchange = &exchange};
    const struct eo_group_params params = {.rank_count = 1, .join = &join};
    *held = (struct held){.group = NULL};
    cr_assert_eq(eo_comm_find("shared")->group_create(&held->group, &params), EO_OK);
    cr_assert_eq(pthread_create(&held->thread, NULL, holder, held), 0);
    while (!held->is_held)
        nanosleep(&(const struct timespec){0, 1000000}, NULL);
}

static void close_held(struct held *held)
{
    pthread_join(held->thread, NULL);
    eo_comm_find("shared")->group_release(held->group);
}

static void *hold_lock(void *user)
{
    struct held *held = user;
    eo_local_lock(held->group);
    held->is_held = true;
    for (int i = 0; i < 300 && !held->may_end; i++)
        nanosleep(&(const struct timespec){0, 10000000}, NULL);
    eo_local_unlock(held->group);
    return NULL;
}

Test(shared_groups, a_lock_that_is_not_given_back_is_waited_for_for_a_second)
{
    struct held held;
    open_held(&held, hold_lock);
    const uint64_t begin_ns = eo_now_ns();
    eo_local_lock(held.group);
    const uint64_t waited_ns = eo_now_ns() - begin_ns;
    eo_local_unlock(held.group);
    held.may_end = true;
    cr_assert(waited_ns >= 900000000 && waited_ns < 2500000000, "waited for %.2f s", (double)waited_ns / 1e9);
    close_held(&held);
}

static void *hold_lock_while_all_stand_still(void *user)
{
    struct held *held = user;
    eo_local_lock(held->group);
    held->is_held = true;
    nanosleep(&(const struct timespec){0, 50000000}, NULL);
    stood_still_s = 1000;
    nanosleep(&(const struct timespec){0, 100000000}, NULL);
    held->may_end = true;
    eo_local_unlock(held->group);
    return NULL;
}

Test(shared_groups, a_lock_is_waited_for_after_all_stood_still)
{
    struct held held;
    open_held(&held, hold_lock_while_all_stand_still);
    eo_local_lock(held.group);
    cr_expect(held.may_end, "its owner has it still");
    eo_local_unlock(held.group);
    close_held(&held);
}

enum { FILE_BYTES = 1 << 16 };

static struct eo_group pair_member(struct eo_shared_group *shared, uint32_t rank, pid_t other)
{
    *shared = (struct eo_shared_group){.rank = rank, .pid_files = {-1, -1}};
    shared->pids[rank] = getpid();
    shared->pids[1 - rank] = other;
    return (struct eo_group){.params = {.rank_count = 2, .timeout_ms = 20000}, .shared = shared};
}

/* Rank 1: calls rank 0, and tells when it has heard something. */
static void hand_over_and_tell(char (*names)[EO_DOOR_NAME_BYTES], int tell)
{
    struct eo_shared_group shared;
    struct eo_group group = pair_member(&shared, 1, getppid());
    struct eo_shared_files files;
    int taken[EO_LOCAL_RANKS_MAX];
    const int own = eo_memory_file_make("rank 1", FILE_BYTES);
    if (own < 0 || !eo_shared_files_open(&files, &group, 2) ||
        eo_shared_files_hand_over(&files, names, own, FILE_BYTES, taken) >= 0 || write(tell, "", 1) != 1)
        _exit(1);
    _exit(0);
}

static bool has_told(int fd, int ms)
{
    struct pollfd told = {fd, POLLIN, 0};
    return poll(&told, 1, ms) == 1;
}

Test(shared_groups, who_has_no_number_for_a_file_keeps_the_connection_until_it_has_said_so)
{
    struct eo_shared_group shared;
    struct eo_group group = pair_member(&shared, 0, 0);
    struct eo_shared_files files;
    struct rlimit limit;
    char names[EO_LOCAL_RANKS_MAX][EO_DOOR_NAME_BYTES] = {{0}};
    int told[2], taken[EO_LOCAL_RANKS_MAX], status = 1;
    const int own = eo_memory_file_make("rank 0", FILE_BYTES);
    cr_assert(own >= 0 && pipe(told) == 0 && eo_shared_files_open(&files, &group, 2));
    memcpy(names[0], files.name, sizeof(names[0]));
    const pid_t child = fork();
    if (child == 0)
        hand_over_and_tell(names, told[1]);
    shared.pids[1] = child;
    usleep(100000);            /* until it has called, and said what it has to say */
    const int next = dup(own); /* the number of the connection; there is none behind it */
    cr_assert(next >= 0 && close(next) == 0 && getrlimit(RLIMIT_NOFILE, &limit) == 0);
    limit.rlim_cur = (rlim_t)next + 1;
    cr_assert_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
    cr_expect_lt(eo_shared_files_hand_over(&files, names, own, FILE_BYTES, taken), 0);
    cr_expect(strstr(files.why, "Too many open files"), "%s", files.why);
    cr_expect(!has_told(told[0], 200), "the other rank sees an end before the group knows why");
    eo_shared_files_close(&files);
    cr_expect(has_told(told[0], 10000) && waitpid(child, &status, 0) == child && status == 0);
    close(own);
}
