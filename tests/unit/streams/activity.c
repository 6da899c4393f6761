/* SPDX-License-Identifier: MIT
 *
 * The log of what a GPU ran: the latest activities are kept and the rest counted, names are the log's own copies, and an
 * activity finds the operation that issued it by its call's number, whatever order they came in; in a graph it has none.
 */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "streams/trace/activity.h"

static void add(struct eo_activities *log, const char *name, uint32_t correlation, bool in_graph)
{
    eo_activities_add(log, &(const struct eo_activity){.name = name, .correlation = correlation, .in_graph = in_graph});
}

Test(activity, the_latest_are_kept)
{
    struct eo_activities log;
    cr_assert_eq(eo_activities_init(&log, 4), EO_OK);
    for (uint32_t i = 0; i < 10; i++)
        add(&log, "kernel", i, false);
    cr_assert_eq(log.count, 10);
    for (uint32_t i = 0; i < 4; i++)
        cr_assert_geq(log.entries[i].correlation, 6);
    eo_activities_fini(&log);
}

Test(activity, names_are_copies_and_equal_names_are_one)
{
    struct eo_activities log;
    char name[16] = "first";
    cr_assert_eq(eo_activities_init(&log, 8), EO_OK);
    add(&log, name, 0, false);
    strcpy(name, "second");
    add(&log, name, 1, false);
    add(&log, "first", 2, false);
    add(&log, NULL, 3, false);
    cr_assert_str_eq(log.entries[0].name, "first");
    cr_assert_str_eq(log.entries[1].name, "second");
    cr_assert_eq(log.entries[2].name, log.entries[0].name);
    cr_assert_not_null(log.entries[3].name);
    eo_activities_fini(&log);
}

Test(activity, operations_are_found_by_the_call_that_issued)
{
    struct eo_activities log;
    cr_assert_eq(eo_activities_init(&log, 8), EO_OK);
    add(&log, "a", 7, false);
    eo_activities_add_link(&log, 9, "forward of block.1");
    eo_activities_add_link(&log, 7, "all-gather of block.0");
    add(&log, "b", 9, false);
    add(&log, "c", 8, false);
    add(&log, "d", 9, true);
    eo_activities_link(&log);
    cr_assert_str_eq(log.entries[0].operation, "all-gather of block.0");
    cr_assert_str_eq(log.entries[1].operation, "forward of block.1");
    cr_assert_null(log.entries[2].operation);
    cr_assert_null(log.entries[3].operation);
    eo_activities_fini(&log);
}

Test(activity, more_names_than_there_is_room_for)
{
    struct eo_activities log;
    char name[400];
    cr_assert_eq(eo_activities_init(&log, 2), EO_OK);
    memset(name, 'x', sizeof(name));
    for (uint32_t i = 0; i < 40000; i++) {
        const int digits = snprintf(name, sizeof(name), "%08u", i);
        name[digits] = 'x';
        name[sizeof(name) - 1] = '\0';
        add(&log, name, i, false);
    }
    cr_assert_eq(log.count, 40000);
    cr_assert_str_eq(log.entries[1].name, "one of too many names");
    add(&log, "00000000", 0, false); /* the log still works */
    cr_assert_not_null(log.entries[0].name);
    eo_activities_fini(&log);
}
