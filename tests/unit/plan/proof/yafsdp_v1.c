/* SPDX-License-Identifier: MIT */
#include "tests/unit/plan/proof/yafsdp_v1.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"

#define COMPUTE EO_STREAM_COMPUTE
#define COMM    EO_STREAM_COMM

enum { UNITS_MAX = 16, UNIT_BYTES = 4096, SUBJECT_REDUCED = 100, SUBJECT_DIVIDED = 200 };

/* Recorded at the end of an operation. */
struct event {
    char name[48]; /* of the operation, "": never recorded */
    eo_stream_id stream;
    uint32_t run, number;
};

/* Prepare and process streams: of weight buffers COMM and COMPUTE, of gradient buffers the reverse. */
struct buffer {
    uint32_t row;
    uint32_t owner, owner_micro_batch; /* a unit, or EO_NONE */
    struct event prepared, released;
};

struct machine {
    struct eo_hand *hand;
    uint32_t units, norms, micro_batches; /* `norms` is the number of the norm unit: the one after the last */
    uint32_t run, number;
    eo_list list;
    uint32_t master[UNITS_MAX + 1], shard[UNITS_MAX + 1], gradient[UNITS_MAX + 1];
    uint32_t norm_gradient[UNITS_MAX]; /* the parts of the norms' gradient buffer, by unit */
    struct buffer weights[2], norm_weights, gradients[2], norm_gradients;
    uint32_t staging;
    struct event pending[EO_STREAM_COUNT][EO_STREAM_COUNT]; /* waits put on a stream since its last operation */
    struct event last[EO_STREAM_COUNT];                     /* the end of a stream so far */
};

/* A stream does not go on before the event; of two events of one stream the later one says all. */
static void wait(struct machine *m, eo_stream_id stream, const struct event *event)
{
    struct event *pending = &m->pending[stream][event->stream];
    if (event->name[0] != '\0' && event->stream != stream && event->number >= pending->number)
        *pending = *event;
}

static struct eo_operation *operation(struct machine *m, eo_stream_id stream, eo_operation_kind kind,
                                      uint32_t micro_batch, const char *format, ...) EO_PRINTF(5, 6);
static struct eo_operation *operation(struct machine *m, eo_stream_id stream, eo_operation_kind kind,
                                      uint32_t micro_batch, const char *format, ...)
{
    struct event *end = &m->last[stream];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(end->name, sizeof(end->name), format, arguments);
    va_end(arguments);
    end->stream = stream;
    end->run = m->run;
    end->number = ++m->number;

    struct eo_operation *o = eo_hand_operation(m->hand, m->list, stream, end->name);
    o->kind = kind;
    o->micro_batch = micro_batch;
    for (int s = 0; s < EO_STREAM_COUNT; s++) {
        struct event *pending = &m->pending[stream][s];
        if (pending->name[0] == '\0')
            continue;
        EO_ASSERT(pending->run + 1 >= m->run);
        eo_hand_wait(m->hand, (eo_stream_id)s, pending->name, pending->run < m->run);
        *pending = (struct event){0};
    }
    return o;
}

static void by_step(struct machine *m, enum eo_access_mode mode, uint32_t row, uint32_t subject, int32_t offset)
{
    eo_hand_access(m->hand, mode, row, subject, offset);
}

static void by_micro_batch(struct machine *m, enum eo_access_mode mode, uint32_t row, uint32_t subject)
{
    eo_hand_access(m->hand, mode, row, subject, 0)->version_kind = EO_VERSION_MICRO_BATCH;
}

/* Casts to staging, which releases the gradient buffer, and reduces: over the shard at first, later in place and
 * added. */
static void reduce(struct machine *m, struct buffer *buffer)
{
    const uint32_t unit = buffer->owner, micro_batch = buffer->owner_micro_batch;
    wait(m, COMM, &buffer->prepared);
    operation(m, COMM, EO_OP_ACCUMULATE, micro_batch, "gradient cast of unit %u, %u", unit, micro_batch);
    if (unit == m->norms)
        for (uint32_t u = 0; u < m->units; u++)
            by_micro_batch(m, EO_READ, m->norm_gradient[u], u);
    else
        by_micro_batch(m, EO_READ, buffer->row, unit);
    by_micro_batch(m, EO_WRITE, m->staging, unit);
    buffer->released = m->last[COMM];

    operation(m, COMM, EO_OP_REDUCE_SCATTER, micro_batch, "reduce of unit %u, %u", unit, micro_batch);
    by_micro_batch(m, EO_READ, m->staging, unit);
    if (micro_batch == 0 || unit == m->norms) {
        by_micro_batch(m, EO_WRITE, m->gradient[unit], unit);
        return;
    }
    by_micro_batch(m, EO_WRITE, m->staging, SUBJECT_REDUCED + unit);
    operation(m, COMM, EO_OP_ACCUMULATE, micro_batch, "add of unit %u, %u", unit, micro_batch);
    by_micro_batch(m, EO_READ, m->staging, SUBJECT_REDUCED + unit);
    by_micro_batch(m, EO_UPDATE, m->gradient[unit], unit);
}

/* Start of preparation. False: the buffer holds the unit already. */
static bool claim(struct machine *m, struct buffer *buffer, eo_stream_id prepare, uint32_t unit, uint32_t micro_batch)
{
    if (buffer->owner == unit)
        return false;
    if (buffer->owner != EO_NONE && prepare == COMPUTE)
        reduce(m, buffer);
    wait(m, prepare, &buffer->released);
    buffer->owner = unit;
    buffer->owner_micro_batch = micro_batch;
    return true;
}

static void gather(struct machine *m, uint32_t unit, uint32_t micro_batch, const char *pass)
{
    struct buffer *buffer = unit == m->norms ? &m->norm_weights : &m->weights[unit % 2];
    if (claim(m, buffer, COMM, unit, micro_batch)) {
        if (unit == m->norms)
            operation(m, COMM, EO_OP_ALL_GATHER, EO_NONE, "gather of norms");
        else
            operation(m, COMM, EO_OP_ALL_GATHER, micro_batch, "gather of unit %u, %s %u", unit, pass, micro_batch);
        by_step(m, EO_READ, m->shard[unit], unit, 0);
        by_step(m, EO_WRITE, buffer->row, unit, 0);
        buffer->prepared = m->last[COMM];
    }
    wait(m, COMPUTE, &buffer->prepared);
}

static void start_step(struct machine *m, bool with_missing_edge)
{
    operation(m, COMPUTE, EO_OP_UPDATE, EO_NONE, "step-start cast");
    for (uint32_t unit = 0; unit <= m->norms; unit++) {
        by_step(m, EO_READ, m->master[unit], unit, 0);
        by_step(m, EO_WRITE, m->shard[unit], unit, 0);
    }
    if (with_missing_edge)
        wait(m, COMM, &m->last[COMPUTE]);
    m->weights[0].owner = m->weights[1].owner = m->norm_weights.owner = EO_NONE;
    gather(m, m->norms, 0, "");
}

static void forward(struct machine *m, uint32_t unit, uint32_t micro_batch)
{
    struct buffer *weights = &m->weights[unit % 2];
    gather(m, unit, micro_batch, "forward");
    operation(m, COMPUTE, EO_OP_FORWARD, micro_batch, "forward of unit %u, %u", unit, micro_batch);
    by_step(m, EO_READ, weights->row, unit, 0);
    by_step(m, EO_READ, m->norm_weights.row, m->norms, 0);
    weights->released = m->last[COMPUTE];
}

static void backward(struct machine *m, uint32_t unit, uint32_t micro_batch)
{
    struct buffer *weights = &m->weights[unit % 2], *gradients = &m->gradients[unit % 2];
    claim(m, gradients, COMPUTE, unit, micro_batch);
    claim(m, &m->norm_gradients, COMPUTE, m->norms, micro_batch);
    gather(m, unit, micro_batch, "backward");
    operation(m, COMPUTE, EO_OP_BACKWARD, micro_batch, "backward of unit %u, %u", unit, micro_batch);
    by_step(m, EO_READ, weights->row, unit, 0);
    by_step(m, EO_READ, m->norm_weights.row, m->norms, 0);
    by_micro_batch(m, EO_WRITE, gradients->row, unit);
    by_micro_batch(m, micro_batch == 0 ? EO_WRITE : EO_UPDATE, m->norm_gradient[unit], unit);
    weights->released = m->norm_weights.released = m->last[COMPUTE];
    gradients->prepared = m->norm_gradients.prepared = m->last[COMPUTE];
}

static void end_step(struct machine *m)
{
    const uint32_t last = m->micro_batches - 1;
    struct buffer *const order[] = {&m->gradients[1], &m->gradients[0], &m->norm_gradients};
    m->norm_gradients.owner_micro_batch = last;
    for (int i = 0; i < 3; i++) {
        reduce(m, order[i]);
        order[i]->owner = EO_NONE;
    }
    wait(m, COMPUTE, &m->last[COMM]);
    operation(m, COMPUTE, EO_OP_ACCUMULATE, last, "divide");
    for (uint32_t unit = 0; unit <= m->norms; unit++) {
        by_micro_batch(m, EO_READ, m->gradient[unit], unit);
        by_step(m, EO_WRITE, m->gradient[unit], SUBJECT_DIVIDED + unit, 0);
    }
    operation(m, COMPUTE, EO_OP_UPDATE, EO_NONE, "optimizer");
    for (uint32_t unit = 0; unit <= m->norms; unit++) {
        by_step(m, EO_READ, m->gradient[unit], SUBJECT_DIVIDED + unit, 0);
        by_step(m, EO_UPDATE, m->master[unit], unit, 1);
    }
}

static uint32_t row(struct machine *m, uint32_t subject, const char *format, uint32_t unit)
{
    char name[32];
    const uint64_t address = (uint64_t)m->hand->schedule.row_count * UNIT_BYTES;
    snprintf(name, sizeof(name), "%s%u", format, unit);
    return eo_hand_row(m->hand, name, address, UNIT_BYTES, subject);
}

static void lay_out(struct machine *m)
{
    for (uint32_t unit = 0; unit <= m->norms; unit++) {
        m->master[unit] = row(m, unit, "master.", unit);
        m->shard[unit] = row(m, EO_NONE, "shard.", unit);
        m->gradient[unit] = row(m, EO_NONE, "gradient.", unit);
        if (unit < m->units)
            m->norm_gradient[unit] = row(m, EO_NONE, "norm-gradient.", unit);
    }
    for (uint32_t parity = 0; parity < 2; parity++) {
        m->weights[parity] = (struct buffer){.row = row(m, EO_NONE, "W", parity), .owner = EO_NONE};
        m->gradients[parity] = (struct buffer){.row = row(m, EO_NONE, "D", parity), .owner = EO_NONE};
    }
    m->norm_weights = (struct buffer){.row = row(m, EO_NONE, "norm-weights.", 0), .owner = EO_NONE};
    m->norm_gradients = (struct buffer){.row = EO_NONE, .owner = EO_NONE}; /* its rows are norm_gradient[] */
    m->staging = row(m, EO_NONE, "staging.", 0);
}

struct eo_hand *eo_yafsdp_v1_create(uint32_t units, uint32_t micro_batches, bool with_missing_edge)
{
    static const eo_list lists[] = {EO_LIST_FIRST, EO_LIST_STEADY, EO_LIST_FORWARD};
    struct machine m = {.units = units, .norms = units, .micro_batches = micro_batches};
    EO_ASSERT(units > 2 && units <= UNITS_MAX);
    m.hand = eo_hand_create(micro_batches);
    if (m.hand == NULL)
        return NULL;
    lay_out(&m);
    for (; m.run < 3; m.run++) {
        m.list = lists[m.run];
        start_step(&m, with_missing_edge);
        for (uint32_t micro_batch = 0; micro_batch < micro_batches; micro_batch++) {
            for (uint32_t unit = 0; unit < units; unit++)
                forward(&m, unit, micro_batch);
            for (uint32_t unit = units; unit-- > 0;)
                backward(&m, unit, micro_batch);
        }
        end_step(&m);
    }
    return m.hand;
}
