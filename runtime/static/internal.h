/* SPDX-License-Identifier: MIT
 *
 * The static mode from inside.
 */
#ifndef EO_RUNTIME_STATIC_INTERNAL_H
#define EO_RUNTIME_STATIC_INTERNAL_H

#include "runtime/internal.h"
#include "runtime/plan/list/dead_rows.h"

struct static_state {
    struct eo_arena arena;
    void **rows;             /* by row of the plan */
    struct eo_event *events; /* by operation id: its latest record */
    eo_wait *wait_kinds;     /* by operation id: what waiting for it is booked under */
    eo_list list;
    uint32_t cursor;
    struct dead_rows dead[EO_LIST_COUNT];
    uint64_t *left; /* in debug mode, by parameter of a layer: what eo_static_note_left found */
};

static inline struct static_state *eo_static_state(const struct eo_runtime *rt)
{
    return rt->mode_state;
}

static inline const struct eo_operation_list *eo_static_list(const struct eo_runtime *rt)
{
    return &rt->plan->schedule.lists[eo_static_state(rt)->list];
}

/* memory.c */
eo_status eo_static_init(struct eo_runtime *rt);
void eo_static_fini(struct eo_runtime *rt); /* after a failed init, too */
/* In debug mode; before the operation's event: who waits for that may write there. */
void eo_static_poison_dead_rows(struct eo_runtime *rt, uint32_t operation);

/* written.c: in debug mode, before a pass with gradients ends; and when one begins that adds to those of another. */
eo_status eo_static_check_written(struct eo_runtime *rt, uint32_t position);
EO_NODISCARD eo_status eo_static_note_left(struct eo_runtime *rt, uint32_t position);

/* idle_memory.c: what lives in passes alone is free between steps. Not in debug mode, where it is full of poison. */
void *eo_static_idle_memory(struct eo_runtime *rt, uint64_t bytes);

/* operations.c: what stands before an operation; */
eo_status eo_static_wait(struct eo_runtime *rt, const struct eo_operation *o);
/* operations of other streams than the compute stream, with their index in the list; */
eo_status eo_static_issue_collective(struct eo_runtime *rt, const struct eo_operation *o, uint32_t index);
eo_status eo_static_issue_copy(struct eo_runtime *rt, const struct eo_operation *o, uint32_t index);
eo_status eo_static_issue_norm(struct eo_runtime *rt, const struct eo_operation *o, uint32_t index);
/* the runtime's own operations of the compute stream. */
eo_status eo_static_run_own(struct eo_runtime *rt, const struct eo_operation *o, uint32_t index);
eo_status eo_static_narrow(struct eo_runtime *rt, uint32_t layer);

#endif
