/* SPDX-License-Identifier: MIT
 *
 * Goal: a group inside a group of processes may end while another thread reports a failure of the family.
 * Method: a world of one process; a wrapped munmap reports the failure right after the inner group's segment is gone.
 */
#include <criterion/criterion.h>
#include <string.h>
#include <sys/mman.h>

#include "streams/collective.h"

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
