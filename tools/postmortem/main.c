/* SPDX-License-Identifier: MIT
 *
 * What the ranks of a run did last, from the flight recorders they left: who has not entered which operation, and where
 * ranks first differ.
 */
#include <argp.h>
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <evenodd/evenodd.h>

#include "tools/shared/arguments.h"
#include "tools/shared/problem.h"

enum { RANKS_MAX = 65536, SHOWN_MAX = 8 };

struct ranks {
    eo_flight_log **logs; /* by rank; NULL: no file */
    eo_flight_info *infos;
    uint32_t rank_count, there;
    uint64_t run;    /* that they are of */
    int64_t made_ns; /* one of its files */
};

static void complain(void *user, eo_log_level level, const char *text)
{
    struct tool_problem problem;
    (void)tool_problem_set(&problem, EO_ERR_IO, "%s", text); /* it names files of the folder */
    fprintf(stderr, "%s: %s\n", program_invocation_short_name, problem.text);
}

/* What is left out is named; the rest is told all the same. */
static void leave_out(const eo_flight_info *info, const char *why)
{
    fprintf(stderr, "%s: left out: rank %u of %u (host %s, process %u): %s\n", program_invocation_short_name, info->rank,
            info->rank_count, info->host, info->process, why);
}

/* A file of another run than those before: the later one counts. True: this file's does. */
static bool begin_run(struct ranks *ranks, const eo_flight_info *info)
{
    eo_flight_log **logs = calloc(info->rank_count, sizeof(eo_flight_log *));
    eo_flight_info *infos = calloc(info->rank_count, sizeof(*infos));
    if (!logs || !infos) {
        free(logs);
        free(infos);
        return false;
    }
    for (uint32_t r = 0; r < ranks->rank_count; r++) {
        if (ranks->logs[r])
            leave_out(&ranks->infos[r], "of an earlier run");
        eo_flight_log_close(&ranks->logs[r]);
    }
    free(ranks->logs);
    free(ranks->infos);
    *ranks = (struct ranks){logs, infos, info->rank_count, 0, info->run, info->made_ns};
    return true;
}

static void add_file(struct ranks *ranks, const char *path, const eo_log *log)
{
    eo_flight_log *flight;
    if (eo_flight_log_open(&flight, path, log) < 0)
        return;
    const eo_flight_info info = eo_flight_log_info(flight);
    const bool makes_sense = info.rank_count >= 1 && info.rank_count <= RANKS_MAX && info.rank < info.rank_count;
    const bool is_other = !ranks->logs || info.run != ranks->run || info.rank_count != ranks->rank_count;
    if (!makes_sense)
        leave_out(&info, "no such rank");
    else if (ranks->logs && is_other && info.made_ns < ranks->made_ns)
        leave_out(&info, "of an earlier run");
    else if (is_other && !begin_run(ranks, &info))
        leave_out(&info, "no memory");
    else if (ranks->logs[info.rank])
        leave_out(&info, "a file of this rank was already read");
    else {
        ranks->logs[info.rank] = flight;
        ranks->infos[info.rank] = info;
        ranks->there++;
        return;
    }
    eo_flight_log_close(&flight);
}

static bool add_folder(struct ranks *ranks, const char *folder)
{
    const eo_log log = {.write = complain};
    DIR *entries = opendir(folder);
    bool any = false;
    struct tool_problem problem;
    if (!entries) {
        (void)tool_problem_set(&problem, EO_ERR_IO, "%s: %s; check the path", folder, strerror(errno));
        complain(NULL, EO_LOG_ERROR, problem.text);
        return false;
    }
    for (struct dirent *entry; (entry = readdir(entries));) {
        char path[4096];
        const char *end = strrchr(entry->d_name, '.');
        if (!end || strcmp(end, ".flight") != 0)
            continue;
        any = true;
        snprintf(path, sizeof(path), "%s/%s", folder, entry->d_name);
        add_file(ranks, path, &log);
    }
    closedir(entries);
    if (!any) {
        (void)tool_problem_set(&problem, EO_ERR_IO,
                               "%s holds no files of flight recorders (*.flight); train --flight-recorder DIR writes them",
                               folder);
        complain(NULL, EO_LOG_ERROR, problem.text);
    }
    return ranks->there > 0;
}

/* ---- a rank ---- */

static void time_text(const eo_flight_info *info, uint64_t ns, char *text, size_t bytes)
{
    int64_t wall;
    struct tm parts;
    if (__builtin_add_overflow(ns, info->clock_ns, &wall) || wall < 0) { /* the file says what it likes */
        snprintf(text, bytes, "an unknown time");
        return;
    }
    const time_t seconds = (time_t)(wall / 1000000000);
    gmtime_r(&seconds, &parts);
    const size_t used = strftime(text, bytes, "%H:%M:%S", &parts);
    snprintf(text + used, bytes - used, ".%03d", (int)(wall / 1000000 % 1000));
}

static bool newest(const struct ranks *ranks, uint32_t r, eo_flight_entry *entry)
{
    const eo_flight_info *info = &ranks->infos[r];
    return info->count > 0 && eo_flight_log_entry(ranks->logs[r], info->count - 1, entry);
}

/* The oldest collective that was issued and has not ended: what the communication stream stands in. UINT64_MAX: none. */
static uint64_t open_collective(const struct ranks *ranks, uint32_t r, eo_flight_entry *entry)
{
    const eo_flight_info *info = &ranks->infos[r];
    for (uint64_t i = info->first; i < info->count; i++)
        if (eo_flight_log_entry(ranks->logs[r], i, entry) && entry->collective && entry->end_ns == 0)
            return i;
    return UINT64_MAX;
}

static void tell_rank(const struct ranks *ranks, uint32_t r)
{
    const eo_flight_info *info = &ranks->infos[r];
    eo_flight_entry entry;
    char when[32];
    printf("rank %u (host %s, process %u)%s: ", r, info->host, info->process, info->finished ? " ended in order" : "");
    if (info->note[0])
        printf("in %s; ", info->note);
    if (!newest(ranks, r, &entry)) {
        printf("no operation\n");
        return;
    }
    if (entry.issued_ns) {
        time_text(info, entry.issued_ns, when, sizeof(when));
        printf("last step %" PRIu64 ", %s, %s at %s", entry.step, entry.name, entry.end_ns ? "done, begun" : "begun", when);
    } else {
        printf("last step %" PRIu64 ", %s", entry.step, entry.name);
    }
    if (info->steps > entry.step) /* as graphs, without entries */
        printf("; %" PRIu64 " steps finished", info->steps);
    const uint64_t open = open_collective(ranks, r, &entry);
    if (open != UINT64_MAX && open + 1 != info->count)
        printf("; no end yet of %s of step %" PRIu64, entry.name, entry.step);
    printf("\n");
}

/* ---- all ---- */

static void list_ranks(const struct ranks *ranks, const bool *in, char *text, size_t bytes)
{
    size_t used = 0;
    uint32_t count = 0, shown = 0;
    text[0] = '\0';
    for (uint32_t r = 0; r < ranks->rank_count; r++)
        count += in[r];
    for (uint32_t r = 0; r < ranks->rank_count && used + 32 < bytes; r++)
        if (in[r] && shown++ < SHOWN_MAX)
            used += (size_t)snprintf(text + used, bytes - used, "%s%u", used ? ", " : count == 1 ? "rank " : "ranks ", r);
    if (count > SHOWN_MAX)
        snprintf(text + used, bytes - used, " and %u more", count - SHOWN_MAX);
}

/* The n-th operation of every rank is the same one, or something is wrong. */
static void tell_difference(const struct ranks *ranks)
{
    uint64_t first = 0, end = UINT64_MAX;
    /* One file of many ranks has millions of entries at most, but for each of them all ranks would be too much. */
    uint32_t *there = malloc(ranks->there * sizeof(*there)), count = 0;
    for (uint32_t r = 0; there && r < ranks->rank_count; r++)
        if (ranks->logs[r]) {
            there[count++] = r;
            first = ranks->infos[r].first > first ? ranks->infos[r].first : first;
            end = ranks->infos[r].count < end ? ranks->infos[r].count : end;
        }
    bool differ = false;
    for (uint64_t i = first; i < end && count > 1 && !differ; i++) {
        eo_flight_entry a, b;
        if (!eo_flight_log_entry(ranks->logs[there[0]], i, &a))
            continue;
        for (uint32_t k = 1; k < count && !differ; k++) {
            const uint32_t r = there[k];
            differ = eo_flight_log_entry(ranks->logs[r], i, &b) && (a.step != b.step || strcmp(a.name, b.name) != 0);
            if (differ)
                printf("ranks first differ at operation %" PRIu64 ": rank %u has step %" PRIu64
                       ", %s; rank %u has step %" PRIu64 ", %s\n",
                       i, there[0], a.step, a.name, r, b.step, b.name);
        }
    }
    free(there);
    if (count == 0)
        printf("no memory\n");
    else if (!differ && end > first)
        printf("operations %" PRIu64 " ... %" PRIu64 " are the same on all ranks\n", first, end - 1);
    else if (!differ)
        printf("the ranks are too far apart for the recorders: no operation is in all of them\n");
}

/* The first collective that some rank stands in. UINT64_MAX: none. */
static uint64_t first_open(const struct ranks *ranks)
{
    uint64_t where = UINT64_MAX;
    eo_flight_entry entry;
    for (uint32_t r = 0; r < ranks->rank_count; r++) {
        const uint64_t open = ranks->logs[r] ? open_collective(ranks, r, &entry) : UINT64_MAX;
        where = open < where ? open : where;
    }
    return where;
}

/* The first collective that the slowest rank has not entered, and some rank has. UINT64_MAX: none. */
static uint64_t first_not_entered(const struct ranks *ranks)
{
    uint64_t slowest = UINT64_MAX, where = UINT64_MAX;
    eo_flight_entry entry;
    for (uint32_t r = 0; r < ranks->rank_count; r++)
        if (ranks->logs[r] && ranks->infos[r].count < slowest)
            slowest = ranks->infos[r].count;
    for (uint32_t r = 0; r < ranks->rank_count; r++) {
        const uint64_t end = !ranks->logs[r] ? 0 : ranks->infos[r].count < where ? ranks->infos[r].count : where;
        for (uint64_t i = ranks->logs[r] && ranks->infos[r].first > slowest ? ranks->infos[r].first : slowest; i < end; i++)
            if (eo_flight_log_entry(ranks->logs[r], i, &entry) && entry.collective) {
                where = i;
                break;
            }
    }
    return where;
}

static void find_absent(const struct ranks *ranks, uint64_t where, bool *absent)
{
    for (uint32_t r = 0; r < ranks->rank_count; r++)
        absent[r] = !ranks->logs[r] || ranks->infos[r].count <= where;
}

static bool has_any(const struct ranks *ranks, const bool *in)
{
    bool any = false;
    for (uint32_t r = 0; r < ranks->rank_count; r++)
        any = any || in[r];
    return any;
}

/* With the ranks that have entered it and, if `ends_known`, not left it. */
static void tell_collective(const struct ranks *ranks, uint64_t where, const bool *absent, bool *inside, bool ends_known)
{
    char text[256];
    eo_flight_entry entry, what = {0};
    for (uint32_t r = 0; r < ranks->rank_count; r++) {
        const bool entered = !absent[r] && eo_flight_log_entry(ranks->logs[r], where, &entry);
        inside[r] = entered && (!ends_known || entry.end_ns == 0);
        what = inside[r] ? entry : what;
    }
    const bool any_absent = has_any(ranks, absent);
    list_ranks(ranks, absent, text, sizeof(text));
    printf("%s %s entered %s of step %" PRIu64, any_absent ? text : "all ranks",
           !any_absent         ? "have"
           : strchr(text, ',') ? "have not"
                               : "has not",
           what.name, what.step);
    list_ranks(ranks, inside, text, sizeof(text));
    const bool several = strchr(text, ',');
    printf("; %s %s %s\n", text,
           any_absent && ends_known ? several ? "are" : "is"
           : several                ? "have"
                                    : "has",
           !any_absent  ? "no end of it yet"
           : ends_known ? "in it"
                        : "entered it");
}

/* On a CPU the end of a collective is noted when it ends, so the oldest without one is where ranks stand. Ends on a GPU are
 * noted after the step: there all of it is without, and the operations issued last tell more. */
static void tell_missing(const struct ranks *ranks)
{
    const uint64_t open = first_open(ranks), next = first_not_entered(ranks);
    bool *absent = calloc(ranks->rank_count, sizeof(*absent)), *inside = calloc(ranks->rank_count, sizeof(*inside));
    if (absent && inside && open != UINT64_MAX)
        find_absent(ranks, open, absent);
    if (!absent || !inside)
        printf("no memory\n");
    else if (open == UINT64_MAX)
        printf("no rank is in a collective\n");
    else if (has_any(ranks, absent) || next == UINT64_MAX)
        tell_collective(ranks, open, absent, inside, true);
    else {
        find_absent(ranks, next, absent);
        tell_collective(ranks, next, absent, inside, false);
        memset(absent, 0, ranks->rank_count * sizeof(*absent));
        tell_collective(ranks, open, absent, inside, true);
    }
    free(absent);
    free(inside);
}

static void tell_all(const struct ranks *ranks)
{
    bool *lacking = calloc(ranks->rank_count, sizeof(*lacking));
    char text[256];
    for (uint32_t r = 0; r < ranks->rank_count; r++)
        if (ranks->logs[r])
            tell_rank(ranks, r);
        else if (lacking)
            lacking[r] = true;
    if (lacking && ranks->there < ranks->rank_count) {
        list_ranks(ranks, lacking, text, sizeof(text));
        printf("no file of %s\n", text);
    }
    free(lacking);
    printf("\n");
    tell_missing(ranks);
    tell_difference(ranks);
}

static error_t parse(int key, char *text, struct argp_state *state)
{
    const char **folder = state->input;
    switch (key) {
    case ARGP_KEY_ARG:
        if (*folder)
            argp_error(state, "name one folder only");
        *folder = text;
        return 0;
    case ARGP_KEY_NO_ARGS: argp_error(state, "name the folder of train --flight-recorder"); return 0;
    default: return ARGP_ERR_UNKNOWN;
    }
}

int main(int argc, char **argv)
{
    struct ranks ranks = {0};
    const char *folder = NULL;
    const struct argp argp = {.parser = parse, .args_doc = "DIR",
                              .doc = "Reports the last operations of each rank of a run, from the flight recorders in DIR: "
                                     "missing ranks of a collective, and the first difference between ranks."};
    tool_arguments_parse(&argp, &(struct tool_arguments){.argc = argc, .argv = argv}, &folder);
    const bool good = add_folder(&ranks, folder);
    if (good)
        tell_all(&ranks);
    for (uint32_t r = 0; r < ranks.rank_count; r++)
        eo_flight_log_close(&ranks.logs[r]);
    free(ranks.logs);
    free(ranks.infos);
    return tool_output_end(good ? TOOL_EXIT_OK : TOOL_EXIT_BAD_INPUT);
}
