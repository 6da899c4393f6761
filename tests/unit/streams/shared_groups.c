/* SPDX-License-Identifier: MIT
 *
 * Goal: a group inside a group of processes may end while another thread reports a failure of the family. A communicator
 * that stays open keeps no other from being opened, however many come and go beside it. Stages lie on pages of any kernel.
 * A lock that is not given back keeps nobody for longer than a second, whatever becomes of the wall clock.
 * Method: a world of one process; a wrapped munmap reports the failure right after the inner group's segment is gone, and a
 * wrapped clock_gettime has a wall clock that is set back after each look at it.
 */
#include <criterion/criterion.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "streams/collective.h"
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

int __real_clock_gettime(clockid_t clock, struct timespec *now);
int __wrap_clock_gettime(clockid_t clock, struct timespec *now);

int __wrap_clock_gettime(clockid_t clock, struct timespec *now)
{
    const int result = __real_clock_gettime(clock, now);
    now->tv_sec += clock == CLOCK_REALTIME ? 3600 : 0;
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
    atomic_bool is_held, may_end;
};

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
    const struct eo_exchange exchange = {gather_alone, NULL};
    const struct eo_group_join join = {.rank = 0, .exchange = &exchange};
    struct held held = {.group = NULL};
    pthread_t thread;
    const struct eo_comm_ops *ops = eo_comm_find("shared");
    cr_assert_eq(ops->group_create(&held.group, &(const struct eo_group_params){.rank_count = 1, .join = &join}), EO_OK);
    cr_assert_eq(pthread_create(&thread, NULL, hold_lock, &held), 0);
    while (!held.is_held)
        nanosleep(&(const struct timespec){0, 1000000}, NULL);
    const uint64_t begin_ns = eo_now_ns();
    eo_local_lock(held.group);
    const uint64_t waited_ns = eo_now_ns() - begin_ns;
    eo_local_unlock(held.group);
    held.may_end = true;
    pthread_join(thread, NULL);
    cr_assert(waited_ns >= 900000000 && waited_ns < 2500000000, "waited for %.2f s", (double)waited_ns / 1e9);
    ops->group_release(held.group);
}
