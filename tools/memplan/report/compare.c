/* SPDX-License-Identifier: MIT */
#include "tools/memplan/report/compare.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/plain_text.h"
#include "tools/shared/open_file.h"

enum { PLAN_BYTES_MAX = 64 << 20 }; /* what --json writes of the largest model is far smaller */

/* --- two plans ---------------------------------------------------------------------------------------------------- */

static eo_status load_plan(const char *path, json_t **out, struct tool_problem *problem)
{
    EO_TRY(tool_open_json(out, PLAN_BYTES_MAX, "--diff", path, problem));
    if (!json_is_array(json_object_get(*out, "rows")) || !json_is_object(json_object_get(*out, "categories"))) {
        json_decref(*out);
        *out = NULL;
        return tool_problem_set(problem, EO_ERR_INVALID, "%s: is not a plan of memplan --json", path);
    }
    return EO_OK;
}

/* As JSON, for a terminal; NULL: none. */
static char *dump_plain(const json_t *value)
{
    char *text = json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY);
    if (text)
        eo_text_clean(text);
    return text;
}

static void diff_value(FILE *out, const char *key, const json_t *a, const json_t *b, uint32_t *count)
{
    char what[256];
    if ((!a && !b) || json_equal(a, b)) /* to jansson two that are missing are not equal */
        return;
    (*count)++;
    char *x = dump_plain(a), *y = dump_plain(b);
    snprintf(what, sizeof(what), "%s", key);
    eo_text_clean(what);
    long long more;
    if (json_is_integer(a) && json_is_integer(b) &&
        !__builtin_sub_overflow(json_integer_value(b), json_integer_value(a), &more))
        fprintf(out, "  %-40s %16s -> %16s  %+lld\n", what, x ? x : "?", y ? y : "?", more);
    else
        fprintf(out, "  %-40s %16s -> %16s\n", what, x ? x : "-", y ? y : "-");
    free(x);
    free(y);
}

static json_t *rows_by_name(const json_t *plan)
{
    json_t *object = json_object(), *row;
    size_t i;
    json_array_foreach(json_object_get(plan, "rows"), i, row) {
        char key[256];
        const char *name = json_string_value(json_object_get(row, "name"));
        const char *kind = json_string_value(json_object_get(row, "class"));
        snprintf(key, sizeof(key), "%.120s (%.60s)", name ? name : "?", kind ? kind : "?");
        json_object_set(object, key, json_object_get(row, "bytes"));
    }
    return object;
}

static void diff_objects(FILE *out, const json_t *a, const json_t *b, uint32_t *count)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)a, key, value)
        diff_value(out, key, value, json_object_get(b, key), count);
    json_object_foreach((json_t *)b, key, value)
        if (!json_object_get(a, key))
            diff_value(out, key, NULL, value, count);
}

eo_status tool_memplan_diff(FILE *out, const char *path_a, const char *path_b, uint32_t *difference_count,
                            struct tool_problem *problem)
{
    static const char *const totals[] = {"parameters", "active_parameters", "rank_parameters", "arena_bytes",
                                         "lower_bound_bytes", "outside_bytes", "total_bytes"};
    json_t *a = NULL, *b = NULL;
    *difference_count = 0;
    eo_status status = load_plan(path_a, &a, problem);
    if (status >= 0)
        status = load_plan(path_b, &b, problem);
    if (status >= 0) {
        fprintf(out, "%s -> %s\n", path_a, path_b);
        diff_objects(out, json_object_get(a, "settings"), json_object_get(b, "settings"), difference_count);
        for (size_t i = 0; i < sizeof(totals) / sizeof(totals[0]); i++)
            diff_value(out, totals[i], json_object_get(a, totals[i]), json_object_get(b, totals[i]), difference_count);
        diff_objects(out, json_object_get(a, "categories"), json_object_get(b, "categories"), difference_count);
        json_t *x = rows_by_name(a), *y = rows_by_name(b);
        diff_objects(out, x, y, difference_count);
        json_decref(x);
        json_decref(y);
        fprintf(out, "%u difference%s\n", *difference_count, *difference_count == 1 ? "" : "s");
    }
    json_decref(a);
    json_decref(b);
    return status;
}

/* --- a run -------------------------------------------------------------------------------------------------------- */

struct verification {
    FILE *out;
    const struct tool_memplan *memplan;
    uint32_t compared, differences;
    bool *seen; /* by row */
    bool any_rows, is_log; /* is_log: some line is an object of a log */
};

static void compare_number(struct verification *v, const char *what, uint64_t planned, uint64_t run)
{
    v->compared++;
    if (planned == run)
        return;
    v->differences++;
    fprintf(v->out, "  %-40s planned %" PRIu64 ", the run has %" PRIu64 ", %+" PRId64 "\n", what, planned, run,
            (int64_t)(run - planned));
}

static void compare_row(struct verification *v, const char *name, const char *category, uint64_t offset, uint64_t bytes)
{
    v->any_rows = true;
    for (uint32_t r = 0; r < v->memplan->summary.row_count; r++) {
        eo_plan_row row;
        if (v->seen[r] || eo_plan_get_row(v->memplan->plan, r, &row) < 0 || strcmp(row.name, name) != 0 ||
            strcmp(eo_category_name(row.category), category) != 0)
            continue;
        char what[EO_NAME_MAX * 2 + 16];
        v->seen[r] = true;
        snprintf(what, sizeof(what), "%s, bytes", name);
        compare_number(v, what, row.bytes, bytes);
        snprintf(what, sizeof(what), "%s, offset", name);
        compare_number(v, what, row.offset, offset);
        return;
    }
    v->differences++;
    char plain[EO_NAME_MAX * 2];
    snprintf(plain, sizeof(plain), "%s", name);
    eo_text_clean(plain);
    fprintf(v->out, "  %-40s is only in the run, %" PRIu64 " bytes\n", plain, bytes);
}

/* "  name   category   space   offset   bytes  live", in the columns of train --plan; name and category may hold spaces. */
static void take_printed_row(struct verification *v, const char *line)
{
    const char *begin = line + strspn(line, " ");
    char name[EO_NAME_MAX * 2];
    for (int c = 0; c < EO_CATEGORY_COUNT; c++) {
        const char *kind = eo_category_name((eo_category)c);
        for (const char *at = strstr(line, kind); at; at = strstr(at + 1, kind)) { /* names hold such words too */
            unsigned long long offset, bytes;
            char space[16];
            if (at <= begin || at[-1] != ' ' || sscanf(at + strlen(kind), " %15s %llu %llu", space, &offset, &bytes) != 3 ||
                (strcmp(space, "gather") && strcmp(space, "gradient") && strcmp(space, "private") && strcmp(space, "host") &&
                 strcmp(space, "disk")))
                continue;
            int length = (int)(at - begin);
            while (begin[length - 1] == ' ')
                length--;
            snprintf(name, sizeof(name), "%.*s", length, begin);
            compare_row(v, name, kind, offset, bytes);
            return;
        }
    }
}

static bool take_number(const json_t *object, const char *key, uint64_t *out)
{
    const json_t *value = json_object_get(object, key);
    if (!json_is_integer(value))
        return false;
    *out = (uint64_t)json_integer_value(value);
    return true;
}

static void take_json_line(struct verification *v, const json_t *line)
{
    const eo_plan_summary *s = &v->memplan->summary;
    const json_t *summary = json_object_get(line, "summary"), *plan = json_object_get(line, "plan");
    uint64_t number;
    if (take_number(summary, "planned_bytes", &number))
        compare_number(v, "planned_bytes", s->arena_bytes, number);
    if (take_number(summary, "arena_bytes", &number) && number == 0)
        fprintf(v->out, "  the run's memory was dynamic: it reserved no arena; only its plan is compared\n");
    else if (take_number(summary, "arena_bytes", &number))
        compare_number(v, "arena_bytes (reserved)", s->arena_bytes, number);
    if (take_number(summary, "lower_bound_bytes", &number))
        compare_number(v, "lower_bound_bytes", s->lower_bound_bytes, number);
    size_t i;
    json_t *row;
    json_array_foreach(json_object_get(plan, "rows"), i, row) {
        const char *name = json_string_value(json_object_get(row, "name"));
        const char *kind = json_string_value(json_object_get(row, "category"));
        uint64_t offset = 0, bytes = 0;
        if (name && kind && take_number(row, "offset", &offset) && take_number(row, "bytes", &bytes))
            compare_row(v, name, kind, offset, bytes);
    }
}

/* A line without the mark of a byte order that some programs put before the first. */
static char *past_mark(char *line)
{
    static const char mark[] = "\xef\xbb\xbf";
    return strncmp(line, mark, strlen(mark)) == 0 ? line + strlen(mark) : line;
}

static bool is_plan_line(const char *line)
{
    static const char begin[] = "{\"plan\":";
    return strncmp(line, begin, strlen(begin)) == 0;
}

/* The number of the last run's line with its plan; 0: none. A log that each run has written to has the others' too. */
static unsigned long long find_last_plan(FILE *file)
{
    char *line = NULL;
    size_t capacity = 0;
    unsigned long long last = 0;
    for (unsigned long long number = 1; getline(&line, &capacity, file) > 0; number++)
        last = is_plan_line(past_mark(line)) ? number : last;
    free(line);
    rewind(file);
    return last;
}

/* A last line without an end was cut off with its run. */
static eo_status read_lines(struct verification *v, FILE *file, const char *path, struct tool_problem *problem)
{
    const unsigned long long first = find_last_plan(file);
    char *room = NULL;
    size_t capacity = 0;
    eo_status status = EO_OK;
    for (unsigned long long number = 1; status >= 0 && getline(&room, &capacity, file) > 0; number++) {
        json_error_t error;
        const char *line = past_mark(room);
        const bool is_object = line[0] == '{';
        json_t *object = is_object ? json_loads(line, 0, &error) : NULL;
        if (is_object && !object)
            eo_text_clean(error.text);
        if (is_object && !object && strchr(line, '\n'))
            status =
                tool_problem_set(problem, EO_ERR_INVALID, "--verify %s: line %llu is no JSON: %s", path, number, error.text);
        v->is_log = v->is_log || object;
        if (object && number >= first)
            take_json_line(v, object);
        else if (line[0] == ' ')
            take_printed_row(v, line);
        json_decref(object);
    }
    free(room);
    return status;
}

bool tool_memplan_logged_settings(const char *path, char words[TOOL_PLAN_WORDS_MAX])
{
    static const char mark[] = "settings: ";
    FILE *file;
    struct tool_problem problem;
    char *line = NULL;
    size_t capacity = 0;
    words[0] = '\0';
    if (tool_open_stream(&file, "--verify", path, &problem) < 0)
        return false;
    while (getline(&line, &capacity, file) > 0) {
        const char *text = past_mark(line);
        if (words[0] != '\0' && !is_plan_line(text)) /* the last plan's count */
            continue;
        json_t *object = text[0] == '{' ? json_loads(text, 0, NULL) : NULL;
        const char *found = json_string_value(json_object_get(object, "settings"));
        if (!object && strncmp(text, mark, strlen(mark)) == 0)
            found = text + strlen(mark);
        if (found)
            snprintf(words, TOOL_PLAN_WORDS_MAX, "%.*s", (int)strcspn(found, "\n"), found);
        json_decref(object);
    }
    eo_text_clean(words);
    free(line);
    fclose(file);
    return true;
}

eo_status tool_memplan_verify(FILE *out, const char *path, const struct tool_memplan *memplan, uint32_t *difference_count,
                              struct tool_problem *problem)
{
    *difference_count = 0;
    FILE *file;
    EO_TRY(tool_open_stream(&file, "--verify", path, problem));
    struct verification v = {.out = out, .memplan = memplan,
                             .seen = calloc(memplan->summary.row_count + 1, sizeof(*v.seen))};
    eo_status status = v.seen ? read_lines(&v, file, path, problem)
                              : tool_problem_set(problem, EO_ERR_NO_MEMORY, "--verify %s: no memory", path);
    for (uint32_t r = 0; status >= 0 && v.any_rows && r < memplan->summary.row_count; r++) {
        eo_plan_row row;
        if (v.seen[r] || eo_plan_get_row(memplan->plan, r, &row) < 0)
            continue;
        v.differences++;
        fprintf(out, "  %-40s is only in the plan, %" PRIu64 " bytes\n", row.name, row.bytes);
    }
    fclose(file);
    free(v.seen);
    if (status >= 0 && v.compared == 0 && v.differences == 0)
        status = tool_problem_set(problem, EO_ERR_INVALID,
                                  "--verify %s: holds neither the summary of a log of train nor the rows of train --plan",
                                  path);
    if (status >= 0 && v.is_log && !v.any_rows)
        status = tool_problem_set(problem, EO_ERR_INVALID,
                                  "--verify %s: the log has no line with a plan; give a whole log of train", path);
    if (status >= 0)
        fprintf(out, "verify %s: %u figures compared%s, %u difference%s\n", path, v.compared,
                v.any_rows ? ", every row by name" : "", v.differences, v.differences == 1 ? "" : "s");
    *difference_count = v.differences;
    return status;
}
