/* SPDX-License-Identifier: MIT */
#include "tests/unit/plan/proof/interleavings.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"

enum { OPERATIONS_MAX = EO_INTERLEAVINGS_OPERATIONS_MAX, BYTES_MAX = EO_INTERLEAVINGS_BYTES_MAX };

/* What one byte holds. */
struct byte {
    uint32_t row, subject; /* row + 1, 0: nothing */
    int64_t version;
};

struct memory {
    struct byte bytes[BYTES_MAX];
};

/* One operation of one run. */
struct instance {
    const struct eo_operation *operation;
    uint32_t run;
    uint32_t place;                   /* how many operations of its stream come before it */
    uint32_t waited[EO_STREAM_COUNT]; /* how far each stream must have come */
};

struct search {
    const struct eo_schedule *schedule;
    struct instance instances[OPERATIONS_MAX];
    uint32_t count;
    const struct instance *streams[EO_STREAM_COUNT][OPERATIONS_MAX];
    uint32_t lengths[EO_STREAM_COUNT];
    struct memory *seen; /* by state */
    bool *visited;
    struct eo_interleavings *out;
};

/* To find the latest record, walk back through what was issued. */
static void bind_wait(struct search *search, struct instance *instance, uint32_t issued, int stream, bool lenient)
{
    const struct eo_operation *operation = instance->operation;
    for (uint32_t i = issued; i-- > 0;) {
        const struct instance *earlier = &search->instances[i];
        if (!earlier->operation->record || earlier->operation->id != operation->wait[stream])
            continue;
        if ((int)earlier->operation->stream != stream) {
            search->out->unknown_wait = true;
            return;
        }
        instance->waited[stream] = earlier->place + 1;
        if (operation->wait_previous_run[stream] ? earlier->run + 1 != instance->run : earlier->run != instance->run)
            search->out->unknown_wait = true;
        return;
    }
    if (!(lenient && operation->wait_previous_run[stream]))
        search->out->unknown_wait = true;
}

static void unroll(struct search *search, const eo_list *sequence, uint32_t sequence_count)
{
    for (uint32_t run = 0; run < sequence_count; run++) {
        const struct eo_operation_list *list = &search->schedule->lists[sequence[run]];
        for (uint32_t i = 0; i < list->count; i++) {
            EO_ASSERT(search->count < OPERATIONS_MAX);
            struct instance *instance = &search->instances[search->count];
            const struct eo_operation *operation = &list->operations[i];
            *instance = (struct instance){.operation = operation, .run = run};
            instance->place = search->lengths[operation->stream];
            for (int s = 0; s < EO_STREAM_COUNT; s++)
                if (operation->wait[s] != EO_NONE)
                    bind_wait(search, instance, search->count, s, run == 0 && sequence[0] == EO_LIST_FORWARD);
            search->streams[operation->stream][search->lengths[operation->stream]++] = instance;
            search->count++;
        }
    }
}

static bool share_a_byte(const struct eo_schedule *schedule, const struct eo_access *a, const struct eo_access *b)
{
    const struct eo_schedule_row *x = &schedule->rows[a->row], *y = &schedule->rows[b->row];
    for (uint64_t byte = x->address; byte < x->address + x->bytes; byte++)
        if (byte >= y->address && byte < y->address + y->bytes)
            return true;
    return false;
}

/* Two operations, or one with itself: then accesses to one row are left out. */
static bool conflict(const struct eo_schedule *schedule, const struct eo_operation *a, const struct eo_operation *b)
{
    for (uint32_t i = 0; i < a->access_count; i++) {
        for (uint32_t k = 0; k < b->access_count; k++) {
            const struct eo_access *x = &schedule->accesses[a->access_begin + i];
            const struct eo_access *y = &schedule->accesses[b->access_begin + k];
            if ((x->mode != EO_READ || y->mode != EO_READ) && !(a == b && x->row == y->row) &&
                share_a_byte(schedule, x, y))
                return true;
        }
    }
    return false;
}

static struct byte named(const struct search *search, const struct instance *instance, const struct eo_access *access)
{
    const uint32_t m = instance->operation->micro_batch == EO_NONE ? 0 : instance->operation->micro_batch;
    const int64_t scale = access->version_scale == 0 ? 1 : access->version_scale;
    const int64_t by_kind[] = {
        [EO_VERSION_STEP] = instance->run,
        [EO_VERSION_MICRO_BATCH] = scale * (instance->run * search->schedule->micro_batches + m),
        [EO_VERSION_FIXED] = 0,
    };
    return (struct byte){access->row + 1, access->subject, by_kind[access->version_kind] + access->version_offset};
}

static void perform(struct search *search, const struct instance *instance, struct memory *memory)
{
    const struct eo_schedule *schedule = search->schedule;
    const struct memory before = *memory;
    for (uint32_t i = 0; i < instance->operation->access_count; i++) {
        const struct eo_access *access = &schedule->accesses[instance->operation->access_begin + i];
        const struct eo_schedule_row *row = &schedule->rows[access->row];
        const struct byte after = named(search, instance, access);
        struct byte wanted = after;
        if (access->mode == EO_UPDATE)
            wanted.version--;
        for (uint64_t byte = row->address; byte < row->address + row->bytes; byte++) {
            const struct byte *found = &before.bytes[byte];
            if (access->mode != EO_WRITE &&
                (found->row != wanted.row || found->subject != wanted.subject || found->version != wanted.version))
                search->out->stale = true;
            if (access->mode != EO_READ)
                memory->bytes[byte] = after;
        }
    }
}

static uint32_t state_of(const struct search *search, const uint32_t *done)
{
    uint32_t state = 0;
    for (int s = 0; s < EO_STREAM_COUNT; s++)
        state = state * (search->lengths[s] + 1) + done[s];
    return state;
}

static void visit(struct search *search, const uint32_t *done, const struct memory *memory)
{
    const uint32_t state = state_of(search, done);
    if (search->visited[state]) {
        if (memcmp(&search->seen[state], memory, sizeof(*memory)) != 0)
            search->out->diverged = true;
        return;
    }
    search->visited[state] = true;
    search->seen[state] = *memory;
    search->out->states++;

    const struct instance *enabled[EO_STREAM_COUNT] = {NULL};
    for (int s = 0; s < EO_STREAM_COUNT; s++) {
        if (done[s] == search->lengths[s])
            continue;
        enabled[s] = search->streams[s][done[s]];
        for (int w = 0; w < EO_STREAM_COUNT; w++)
            if (enabled[s] != NULL && enabled[s]->waited[w] > done[w])
                enabled[s] = NULL;
    }
    for (int s = 0; s < EO_STREAM_COUNT; s++)
        for (int other = s + 1; other < EO_STREAM_COUNT; other++)
            if (enabled[s] != NULL && enabled[other] != NULL &&
                conflict(search->schedule, enabled[s]->operation, enabled[other]->operation))
                search->out->race = true;
    for (int s = 0; s < EO_STREAM_COUNT; s++) {
        if (enabled[s] == NULL)
            continue;
        uint32_t next[EO_STREAM_COUNT];
        memcpy(next, done, sizeof(next));
        next[s]++;
        struct memory after = *memory;
        perform(search, enabled[s], &after);
        visit(search, next, &after);
    }
}

eo_status eo_interleavings_explore(const struct eo_schedule *schedule, const eo_list *sequence,
                                   uint32_t sequence_count, struct eo_interleavings *out)
{
    struct search search = {.schedule = schedule, .out = out};
    *out = (struct eo_interleavings){0};
    unroll(&search, sequence, sequence_count);
    for (uint32_t i = 0; i < search.count; i++)
        if (conflict(schedule, search.instances[i].operation, search.instances[i].operation))
            out->race = true;

    uint32_t states = 1;
    for (int s = 0; s < EO_STREAM_COUNT; s++)
        states *= search.lengths[s] + 1;
    search.seen = calloc(states, sizeof(search.seen[0]));
    search.visited = calloc(states, sizeof(search.visited[0]));
    const eo_status status = search.seen != NULL && search.visited != NULL ? EO_OK : EO_ERR_NO_MEMORY;
    if (status == EO_OK) {
        struct memory memory;
        const uint32_t done[EO_STREAM_COUNT] = {0};
        memset(&memory, 0, sizeof(memory)); /* compared as bytes */
        for (uint32_t row = 0; row < schedule->row_count; row++) {
            const struct eo_schedule_row *r = &schedule->rows[row];
            EO_ASSERT(r->address + r->bytes <= BYTES_MAX);
            for (uint64_t byte = r->address; r->initialised && byte < r->address + r->bytes; byte++)
                memory.bytes[byte] = (struct byte){row + 1, r->initial_subject, 0};
        }
        visit(&search, done, &memory);
    }
    free(search.seen);
    free(search.visited);
    return status;
}
