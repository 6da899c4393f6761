/* SPDX-License-Identifier: MIT
 *
 * The timeline: its ring, and that what it writes is JSON that says what happened.
 */
#include "streams/trace/timeline.h"

#include <criterion/criterion.h>
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit/written.h"

/* A reader of JSON (RFC 8259) that only says where a value ends; NULL where the text is none. */
static const char *skip_value(const char *c);

static const char *skip_space(const char *c)
{
    while (*c == ' ' || *c == '\n' || *c == '\t' || *c == '\r')
        c++;
    return c;
}

static const char *skip_string(const char *c)
{
    if (*c++ != '"')
        return NULL;
    for (; *c != '"'; c++) {
        if ((unsigned char)*c < 0x20)
            return NULL;
        if (*c != '\\')
            continue;
        c++;
        if (*c == 'u') {
            for (int i = 1; i <= 4; i++) {
                if (!isxdigit((unsigned char)c[i]))
                    return NULL;
            }
            c += 4;
        } else if (!*c || !strchr("\"\\/bfnrt", *c)) {
            return NULL;
        }
    }
    return c + 1;
}

static const char *skip_number(const char *c)
{
    char *end;
    if (*c != '-' && !isdigit((unsigned char)*c))
        return NULL;
    (void)strtod(c, &end);
    return end == c ? NULL : end;
}

static const char *skip_members(const char *c, char end, bool named)
{
    c = skip_space(c);
    if (*c == end)
        return c + 1;
    for (;;) {
        if (named) {
            c = skip_string(skip_space(c));
            if (!c || *(c = skip_space(c)) != ':')
                return NULL;
            c++;
        }
        c = skip_value(c);
        if (!c)
            return NULL;
        c = skip_space(c);
        if (*c == end)
            return c + 1;
        if (*c++ != ',')
            return NULL;
    }
}

static const char *skip_value(const char *c)
{
    c = skip_space(c);
    switch (*c) {
    case '{':
        return skip_members(c + 1, '}', true);
    case '[':
        return skip_members(c + 1, ']', false);
    case '"':
        return skip_string(c);
    default:
        return skip_number(c);
    }
}

static void assert_json(const struct written *output)
{
    const char *end = skip_value(output->text);
    cr_assert(end && *skip_space(end) == '\0', "not JSON:\n%s", output->text);
}

static uint32_t occurrences(const char *text, const char *part)
{
    uint32_t count = 0;
    for (const char *at = strstr(text, part); at; at = strstr(at + 1, part))
        count++;
    return count;
}

static struct eo_timeline_entry *add(struct eo_timeline *timeline, const char *name, uint32_t queue, uint64_t ready,
                                     uint64_t start, uint64_t end)
{
    struct eo_timeline_entry *entry = eo_timeline_add(timeline);
    entry->name = name;
    entry->category = "compute";
    entry->queue = queue;
    entry->span = (struct eo_span){ready, start, end};
    return entry;
}

/* The reader must refuse what is none, or the other tests say nothing. */
Test(timeline, the_reader_of_the_tests_refuses_what_is_no_json)
{
    static const char *const bad[] = {"", "{", "[1,]", "{\"a\" 1}", "[1 2]", "\"\\x\"", "\"\n\"", "{\"a\":1}}", "[.5]"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        const char *end = skip_value(bad[i]);
        cr_expect(!end || *end != '\0', "%s", bad[i]);
    }
    cr_expect_not_null(skip_value("{\"a\":[1,-2.5,\"\\u0041\\\"\"],\"b\":{}}"));
}

/*
 * Goal: the ring keeps the last entries, zeroed when they are taken, and takes no memory for them.
 * Method: more entries than it holds, each with its number.
 */
Test(timeline, keeps_the_latest_entries)
{
    enum { CAPACITY = 5, ADDED = 13 };
    struct eo_timeline timeline;
    struct written output = {.used = 0};
    cr_assert_eq(eo_timeline_init(&timeline, CAPACITY), EO_OK);
    for (uint32_t i = 0; i < ADDED; i++) {
        struct eo_timeline_entry *entry = eo_timeline_add(&timeline);
        cr_expect_eq(entry->operation, 0);
        cr_expect_eq(entry->span.end_ns, 0);
        cr_expect_eq(entry, &timeline.entries[i % CAPACITY]);
        *entry = (struct eo_timeline_entry){.name = "op", .category = "c", .operation = 100 + i,
                                            .span = {1000 * i + 1, 1000 * i + 1, 1000 * i + 5}};
    }
    cr_expect_eq(timeline.count, ADDED);
    eo_timeline_write(&timeline, 0, take_written, &output);
    assert_json(&output);
    const char *previous = output.text;
    for (uint32_t i = 0; i < ADDED; i++) {
        char key[40];
        snprintf(key, sizeof(key), "\"operation\":%u,", 100 + i);
        const char *at = strstr(output.text, key);
        cr_expect_eq(at != NULL, i >= ADDED - CAPACITY, "operation %u", 100 + i);
        cr_expect(!at || at > previous, "oldest first");
        previous = at ? at : previous;
    }
    eo_timeline_fini(&timeline);
}

/* Goal: an empty timeline is JSON too, and names its process and threads. */
Test(timeline, without_entries_is_json)
{
    struct eo_timeline timeline;
    struct written output = {.used = 0};
    cr_assert_eq(eo_timeline_init(&timeline, 4), EO_OK);
    eo_timeline_write(&timeline, 3, take_written, &output);
    assert_json(&output);
    cr_expect_eq(occurrences(output.text, "\"rank 3\""), 1);
    cr_expect_eq(occurrences(output.text, "\"compute\""), 1);
    cr_expect_eq(occurrences(output.text, "\"communication\""), 1);
    cr_expect_eq(occurrences(output.text, "\"reduction\""), 1);
    cr_expect_eq(occurrences(output.text, "\"ph\":\"X\""), 0);
    eo_timeline_fini(&timeline);
}

/*
 * Goal: times to the nanosecond; a wait before compute is a slice of its own, one before a collective is not; what has
 * not ended is left out.
 * Method: one entry of each kind, the text searched for what must and what must not be there.
 */
Test(timeline, writes_slices_and_waits)
{
    struct eo_timeline timeline;
    struct written output = {.used = 0};
    cr_assert_eq(eo_timeline_init(&timeline, 10), EO_OK);
    add(&timeline, "forward", EO_QUEUE_COMPUTE, 1000001, 1002001, 1502003);
    add(&timeline, "at once", EO_QUEUE_COMPUTE, 2000000, 2000000, 2500000);
    add(&timeline, "gather", EO_QUEUE_COMM, 1000, 5000, 9000)->live_bytes = 4096;
    add(&timeline, "unfinished", EO_QUEUE_COMM, 1000, 0, 0);
    eo_timeline_write(&timeline, 7, take_written, &output);
    assert_json(&output);
    cr_expect_eq(occurrences(output.text, "\"name\":\"wait\""), 1, "%s", output.text);
    cr_expect_eq(occurrences(output.text, "\"ts\":1000.001,\"dur\":2.000"), 1, "the wait");
    cr_expect_eq(occurrences(output.text, "\"before\":\"forward\""), 1);
    cr_expect_eq(occurrences(output.text, "\"ts\":1002.001,\"dur\":500.002"), 1, "the work");
    cr_expect_eq(occurrences(output.text, "\"name\":\"gather\",\"cat\":\"compute\",\"ph\":\"X\",\"pid\":7,\"tid\":1,"
                                          "\"ts\":5.000,\"dur\":4.000"), 1);
    cr_expect_eq(occurrences(output.text, "\"live_bytes\":4096,\"waited_us\":4.000"), 1);
    cr_expect_eq(occurrences(output.text, "live_bytes"), 1, "where nobody measured it, it is not 0: %s", output.text);
    cr_expect_eq(occurrences(output.text, "unfinished"), 0);
    eo_timeline_fini(&timeline);
}

/*
 * Goal: whatever a user calls a layer, the file stays JSON, and its text is there.
 * Method: quotes, backslashes, control characters, good and bad UTF-8, no name at all.
 */
Test(timeline, escapes_names)
{
    static const char *const names[][2] = {
        {"a \"quoted\" name", "\"a \\\"quoted\\\" name\""},
        {"back\\slash", "\"back\\\\slash\""},
        {"line\nend\x01", "\"line\\u000aend\\u0001\""},
        {"gr\xc3\xb6\xc3\x9f" "e \xe2\x82\xac \xf0\x9f\x98\x80", "\"gr\xc3\xb6\xc3\x9f" "e \xe2\x82\xac \xf0\x9f\x98\x80\""},
        {"bad\xff utf \xc3", "\"bad\\ufffd utf \\ufffd\""},
        {"long \xc0\xaf surrogate \xed\xa0\x80", "\"long \\ufffd\\ufffd surrogate \\ufffd\\ufffd\\ufffd\""},
        {NULL, "\"name\":\"\""},
    };
    struct eo_timeline timeline;
    cr_assert_eq(eo_timeline_init(&timeline, 10), EO_OK);
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        add(&timeline, names[i][0], EO_QUEUE_COMPUTE, 1, 1, 2);
    struct written output = {.used = 0};
    eo_timeline_write(&timeline, 0, take_written, &output);
    assert_json(&output);
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        cr_expect_eq(occurrences(output.text, names[i][1]), 1, "%s in\n%s", names[i][1], output.text);
    eo_timeline_fini(&timeline);
}
