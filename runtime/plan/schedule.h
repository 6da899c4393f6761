/* SPDX-License-Identifier: MIT
 *
 * A schedule: order as data. A list of operations on a few streams; what each reads and writes; what it waits for.
 * It is executed, simulated, drawn and proven; nothing decides anything at run time.
 *
 * List order is issue order. Operations of one stream run in list order. An operation waits for operations of other
 * streams by naming them; a wait binds to the latest record of the named operation issued before it: usually of the
 * same run of the list, else (previous_run) of the run before.
 */
#ifndef EO_RUNTIME_PLAN_SCHEDULE_H
#define EO_RUNTIME_PLAN_SCHEDULE_H

#include <evenodd/plan.h>

#define EO_NONE UINT32_MAX

enum eo_access_mode {
    EO_READ,
    EO_WRITE,  /* overwrites all of it, reads nothing */
    EO_UPDATE, /* reads the old content, leaves the new one */
};

/*
 * How a content's version follows from where an operation stands: in run s of the list (from 0), in micro-batch m,
 * with M micro-batches a run:
 *     EO_VERSION_STEP         s + offset
 *     EO_VERSION_MICRO_BATCH  (s * M + m) * scale + offset     (m = 0 where the operation has no micro-batch)
 *     EO_VERSION_FIXED        offset                           (frozen weights)
 */
enum eo_version_kind { EO_VERSION_STEP, EO_VERSION_MICRO_BATCH, EO_VERSION_FIXED };

/*
 * One access of an operation to a row. Content is named (subject, version): a gather buffer's subject is the layer
 * whose weights it holds. A read must find the content it names; a write leaves the content it names; an update must
 * find the version before (version - 1) of the same subject and leaves the version it names.
 */
struct eo_access {
    uint32_t row;
    uint32_t subject;
    int32_t version_offset;
    uint8_t mode;         /* enum eo_access_mode */
    uint8_t version_kind; /* enum eo_version_kind */
    uint16_t version_scale; /* 0 stands for 1 */
};

/* Ranks beside this one that take part in a collective, as bits: the others of its group, those of other replicas, or all; and
 * where some layers are shared by a part of the group, that part. GROUP is the rest of it then, and all of it both bits. */
enum eo_scope {
    EO_SCOPE_ALONE = 0, EO_SCOPE_GROUP = 1, EO_SCOPE_REPLICAS = 2, EO_SCOPE_WORLD = 3, EO_SCOPE_PART = 4, EO_SCOPE_COUNT = 8,
};

struct eo_operation {
    eo_operation_kind kind;
    eo_stream_id stream;
    uint32_t position, layer, micro_batch; /* EO_NONE where there is none */
    uint32_t access_begin, access_count;   /* into schedule.accesses */
    uint32_t id;                           /* names its event: the same operation has one id in every list */
    uint32_t wait[EO_STREAM_COUNT];        /* by the stream that is waited for: the id of an operation, or EO_NONE */
    bool wait_previous_run[EO_STREAM_COUNT];
    bool record;                           /* some operation waits for it */
    bool fused_norm;                       /* an accumulate that takes the norm partial too */
    bool in_place;                         /* a reduce-scatter that lands in its own buffer; an accumulate overwrites
                                              if `first_gradient` */
    bool whole;                            /* an accumulate of all of a gradient buffer into the layer's sum_row; a
                                              reduce-scatter of that row */
    bool gradient;                         /* an eviction of a gradient shard */
    bool saved;                            /* a fetch or eviction of a position's saved buffers */
    bool fence;                            /* a norm gather of nothing: who has passed it knows that all ranks have read
                                              what this one gave to the gather before */
    bool peers_read;                       /* an all-gather: what it reads, slower ranks may still read when it has ended */
    uint8_t scope;                         /* enum eo_scope, of collectives */
    bool with_frozen;                      /* an all-gather that brings the layer's frozen part too */
    bool first_gradient;                   /* the gradient shard holds nothing of this step yet */
    bool late;                             /* of the step before: an update in this step's forward passes, and its copies */
    bool descends;                         /* of a gather or reduction of several positions: the next ones are lower */
    uint8_t more;                          /* positions after `position` that go with it in one collective */
};

/* The positions of a collective, from 0 to `more`. */
static inline uint32_t eo_operation_position(const struct eo_operation *operation, uint32_t part)
{
    return operation->descends ? operation->position - part : operation->position + part;
}

struct eo_operation_list {
    struct eo_operation *operations;
    uint32_t count;
};

/* A row as the schedule sees it: addresses of all spaces in one line, so that overlap is a comparison. */
struct eo_schedule_row {
    const char *name;
    uint64_t address, bytes;
    bool initialised; /* holds (initial_subject, version 0) before the first run */
    uint32_t initial_subject;
    bool saved;  /* of the initialised ones: a checkpoint copies it */
    bool always; /* of the whole run: no other row lies there at any time, whoever touches it and when */
    bool trainers; /* a buffer that the trainer's passes read and write from `first` to `last`, in each micro-batch */
    eo_moment first, last;
};

struct eo_schedule {
    struct eo_operation_list lists[EO_LIST_COUNT];
    struct eo_access *accesses;
    uint32_t access_count;
    struct eo_schedule_row *rows;
    uint32_t row_count;
    uint32_t id_count; /* ids are 0 ... id_count - 1 */
    uint32_t micro_batches;
    /* Of a stream that is not compute: operations that may be issued and not have ended, as far as what compute has waited
     * for tells. Who issues them needs room for as many. */
    uint32_t queue_items[EO_STREAM_COUNT];
};

#endif
