/* SPDX-License-Identifier: MIT */
#include "tools/run/ranks/gather.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tools/run/machine/memory_check.h"
#include "tools/shared/overwrite.h"
#include "tools/logs/step_log.h"

enum { PIECE_BYTES = EO_EXCHANGE_MAX };

/* ---- figures ---- */

struct figures {
    eo_runtime_stats first, last;
    uint64_t step_count, told_ns, resident_bytes, traces;
};

bool tool_job_gather_figures(struct tool_job *job, bool traces)
{
    struct tool_job_world *world = job->together;
    if (!world)
        return traces;
    const uint32_t count = world->environment.rank_count;
    struct tool_job_rank *self = &job->ranks[0];
    if (!self->resident_bytes)
        self->resident_bytes = tool_process_resident_peak();
    const struct figures mine = {self->first, self->last, self->step_count, self->told_ns, self->resident_bytes, traces};
    struct figures *all = calloc(count, sizeof(*all));
    if (!all || eo_rendezvous_all_gather(world->rendezvous, &mine, sizeof(mine), all) < 0) {
        free(all);
        return false;
    }
    world->left_ns = tool_now_ns();
    for (uint32_t r = 1; r < count && job->first_rank == 0; r++) {
        job->ranks[r].first = all[r].first;
        job->ranks[r].last = all[r].last;
        job->ranks[r].step_count = all[r].step_count;
        job->ranks[r].told_ns = all[r].told_ns;
        job->ranks[r].resident_bytes = all[r].resident_bytes;
        job->told_count = r + 1;
    }
    traces = all[0].traces;
    free(all);
    return traces;
}

/* ---- clocks ---- */

struct clock {
    uint64_t left_ns; /* when this rank left the exchange of figures: all do at about the same time */
    char name[128];   /* of the running kernel, and of what it shows this process: where both are the same, so is the clock */
};

static void name_clock(char *out, size_t bytes)
{
    char boot[48] = "", offset[48] = "";
    FILE *file = fopen("/proc/sys/kernel/random/boot_id", "re");
    if (file) {
        if (!fgets(boot, sizeof(boot), file))
            boot[0] = '\0';
        fclose(file);
    }
    if (readlink("/proc/self/ns/time", offset, sizeof(offset) - 1) < 0)
        offset[0] = '\0'; /* an older kernel has none */
    snprintf(out, bytes, "%s%s", boot, offset);
}

/* To be added to this rank's times. */
static eo_status find_shift(struct tool_job_world *world, int64_t *shift_ns)
{
    struct clock mine = {.left_ns = world->left_ns}, *all = calloc(world->environment.rank_count, sizeof(*all));
    name_clock(mine.name, sizeof(mine.name));
    const eo_status status = all ? eo_rendezvous_all_gather(world->rendezvous, &mine, sizeof(mine), all)
                                 : EO_ERR_NO_MEMORY;
    *shift_ns = 0;
    if (status >= 0 && strcmp(mine.name, all[0].name) != 0)
        *shift_ns = (int64_t)(all[0].left_ns - mine.left_ns);
    free(all);
    return status;
}

/* ---- pieces ---- */

struct sender {
    json_t *document, *events; /* NULL: nothing to send */
    size_t next;
};

static void shift_times(json_t *events, int64_t shift_ns)
{
    size_t i;
    json_t *event;
    json_array_foreach(events, i, event) {
        const json_t *time = json_object_get(event, "ts");
        if (time && shift_ns)
            json_object_set_new(event, "ts", json_real(json_number_value(time) + (double)shift_ns * 1e-3));
    }
}

static eo_status open_sender(struct sender *s, const struct tool_trace_text *mine, uint32_t rank, struct tool_problem *problem)
{
    json_error_t error = {.text = "no traceEvents"};
    if (!mine->text)
        return EO_OK;
    s->document = json_loadb(mine->text, mine->bytes, 0, &error);
    s->events = json_object_get(s->document, "traceEvents");
    return json_is_array(s->events) ? EO_OK
                                    : tool_problem_set(problem, EO_ERR_INVALID,
                                                       "--trace: cannot read the events of rank %u: %s",
                                                       rank, error.text);
}

/* As many whole events as fit, with commas between them; "": there are no more. */
static void next_piece(struct sender *s, char piece[PIECE_BYTES])
{
    size_t used = 0;
    bool fits = true;
    memset(piece, 0, PIECE_BYTES);
    while (fits && s->next < json_array_size(s->events)) {
        char *text = tool_json_text(0, tool_json_value, json_array_get(s->events, s->next));
        const size_t bytes = text ? strlen(text) : 0;
        fits = used + bytes + sizeof(",\n") <= PIECE_BYTES;
        if (fits && bytes)
            used += (size_t)snprintf(piece + used, PIECE_BYTES - used, "%s%s", used ? ",\n" : "", text);
        s->next += fits || used == 0; /* an event that fits no piece is left out */
        fits = fits || used == 0;
        free(text);
    }
}

/* ---- the file, rank 0's ---- */

static void write_pieces(FILE *file, const char (*pieces)[PIECE_BYTES], uint32_t count, bool *is_first)
{
    for (uint32_t r = 0; r < count; r++) {
        if (!pieces[r][0])
            continue;
        fprintf(file, "%s%s", *is_first ? "\n" : ",\n", pieces[r]);
        *is_first = false;
    }
}

/* Also with a file that cannot be made: the others send all the same. */
static eo_status exchange_pieces(struct tool_job_world *world, struct sender *sender, FILE *file)
{
    const uint32_t count = world->environment.rank_count;
    char (*all)[PIECE_BYTES] = calloc(count, PIECE_BYTES), mine[PIECE_BYTES];
    eo_status status = all ? EO_OK : EO_ERR_NO_MEMORY;
    bool more = true, is_first = true;
    while (status >= 0 && more) {
        next_piece(sender, mine);
        status = eo_rendezvous_all_gather(world->rendezvous, mine, sizeof(mine), all);
        more = false;
        for (uint32_t r = 0; status >= 0 && r < count; r++)
            more = more || all[r][0];
        if (status >= 0 && file)
            write_pieces(file, (const char (*)[PIECE_BYTES])all, count, &is_first);
    }
    free(all);
    return status;
}

static eo_status hand_over(struct tool_job_world *world, const struct tool_trace_text *mine, const char *path,
                           struct tool_problem *problem)
{
    struct sender sender = {0};
    int64_t shift_ns;
    eo_status status = find_shift(world, &shift_ns);
    if (status < 0)
        return tool_problem_set(problem, status, "--trace: cannot ask the ranks: %s", eo_status_text(status));
    const eo_status own = open_sender(&sender, mine, world->environment.rank, problem);
    shift_times(sender.events, shift_ns);
    FILE *file = NULL;
    eo_status written = world->environment.rank == 0 ? tool_overwrite_open(&file, "--trace", path, problem) : EO_OK;
    if (file)
        fputs("{\"displayTimeUnit\":\"ms\",\"traceEvents\":[", file);
    status = exchange_pieces(world, &sender, file);
    json_decref(sender.document);
    if (file) {
        fputs("\n]}\n", file);
        written = tool_end_file(file, "--trace", path, status >= 0, problem);
    }
    if (status < 0)
        return tool_problem_set(problem, status, "--trace: cannot ask the ranks: %s", eo_status_text(status));
    return written < 0 ? written : own;
}

eo_status tool_job_write_trace(struct tool_job *job, const struct tool_trace_text *texts, uint32_t count, const char *path,
                               struct tool_problem *problem)
{
    struct tool_trace_text mine = {0};
    const eo_status merged = count ? tool_trace_merge(texts, count, &mine.text, problem) : EO_OK;
    eo_status status = merged;
    mine.bytes = mine.text ? strlen(mine.text) : 0;
    if (job->together && job->shape.rank_count <= TOOL_TRACE_RANKS_MAX)
        status = hand_over(job->together, &mine, path, problem);
    else if (merged >= 0 && job->first_rank == 0)
        status = tool_write_file("--trace", path, mine.text, mine.bytes, problem);
    free(mine.text);
    return merged < 0 ? merged : status;
}
