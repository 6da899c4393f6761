/* SPDX-License-Identifier: MIT
 *
 * Instances for tests of placement: the rows of a transformer's training step, made without the planner, and random
 * ones. Time points: 2n is the n-th compute operation, 2n + 1 lies between it and the next.
 *
 *     F(0) F(1) ... F(L)  B(head)  R(L) B(L) ... R(1) B(1)  B(0)  optimizer
 */
#ifndef EO_TESTS_UNIT_BUFFERS_PLACEMENT_INSTANCE_H
#define EO_TESTS_UNIT_BUFFERS_PLACEMENT_INSTANCE_H

#include <stdlib.h>
#include <string.h>

#include "buffers/placement.h"

struct instance {
    struct eo_placement placement;
    struct eo_placed_row *rows;
    struct eo_interval *intervals;
    uint32_t row_room, interval_count, interval_room;
};

/*
 * A check on the search, with which it shares no code but for what a row's bytes and points are (placement_bound.c):
 * the largest sum of bytes (each rounded up to align_bytes) live at one point, and that point. `always` and intervals
 * of rows as in buffers/placement.h, over any timeline.
 */
EO_NODISCARD eo_status eo_placement_lower_bound(const struct eo_placement *placement, uint64_t *bytes,
                                                uint32_t *time);

enum instance_space { INSTANCE_GATHER, INSTANCE_GRADIENT, INSTANCE_PRIVATE, INSTANCE_SPACES };

static inline void instance_init(struct instance *instance, uint32_t time_count, uint32_t space_count,
                                 uint32_t align_bytes)
{
    *instance = (struct instance){.placement = {.time_count = time_count,
                                                .space_count = space_count,
                                                .align_bytes = align_bytes}};
}

static inline void instance_fini(struct instance *instance)
{
    free(instance->rows);
    free(instance->intervals);
}

static inline void instance_add_row(struct instance *instance, uint32_t space, uint64_t bytes, bool always)
{
    if (instance->placement.row_count == instance->row_room) {
        instance->row_room = 2 * instance->row_room + 64;
        instance->rows = realloc(instance->rows, instance->row_room * sizeof(*instance->rows));
    }
    instance->rows[instance->placement.row_count++] = (struct eo_placed_row){
        .bytes = bytes, .space = space, .always = always, .interval_begin = instance->interval_count};
    instance->placement.rows = instance->rows;
}

/* One more interval of the row added last. */
static inline void instance_add_interval(struct instance *instance, uint32_t first, uint32_t last)
{
    if (instance->interval_count == instance->interval_room) {
        instance->interval_room = 2 * instance->interval_room + 64;
        instance->intervals = realloc(instance->intervals, instance->interval_room * sizeof(*instance->intervals));
    }
    instance->intervals[instance->interval_count++] = (struct eo_interval){first, last};
    instance->rows[instance->placement.row_count - 1].interval_count++;
    instance->placement.intervals = instance->intervals;
}

/* A row live from `first` to `last`, around the end of the step where last < first. */
static inline void instance_add(struct instance *instance, uint32_t space, uint64_t bytes, uint32_t first,
                                uint32_t last)
{
    instance_add_row(instance, space, bytes, false);
    if (first <= last) {
        instance_add_interval(instance, first, last);
    } else {
        instance_add_interval(instance, first, instance->placement.time_count - 1);
        instance_add_interval(instance, 0, last);
    }
}

struct transformer {
    char name[40]; /* not a pointer: parameters of a test travel to another process */
    uint32_t layers, rank_count;
    uint64_t width, mlp_width, vocabulary, tokens, head_tokens; /* head_tokens: of one chunk of the head */
    uint64_t weight_bytes;                                      /* of one gathered element */
    uint64_t value_bytes;                                       /* of one activation element */
    bool recompute;
};

static inline void instance_transformer(struct instance *instance, const struct transformer *model)
{
    const uint32_t layers = model->layers;
    const uint32_t head = layers + 1;                       /* operation B(head) */
    const uint32_t embedding_backward = head + 2 * layers + 1, optimizer = embedding_backward + 1;
    const uint32_t operation_count = optimizer + layers + 2; /* a norm, and AdamW of each layer but the head */
    instance_init(instance, 2 * operation_count, INSTANCE_SPACES, 256);
    const uint64_t attention = 4 * model->width * model->width + 4 * model->width;
    const uint64_t block = attention + 2 * model->width * model->mlp_width + 5 * model->width + model->mlp_width;
    const uint64_t edge = model->width * model->vocabulary;
    const uint64_t all = block * layers + edge;
#define F(i) (2 * (i))
#define R(i) (2 * (head + 1 + 2 * (layers - (i))))
#define B(i) (2 * (head + 2 + 2 * (layers - (i))))
#define ADAMW(i) (2 * (optimizer + 1 + (i)))
    /* What is always there. */
    for (int k = 0; k < 4; k++)
        instance_add_row(instance, INSTANCE_PRIVATE, 4 * all / model->rank_count, true);
    if (model->weight_bytes != 4)
        instance_add_row(instance, INSTANCE_GATHER, model->weight_bytes * all / model->rank_count, true);
    for (uint32_t i = 0; i <= layers; i++)
        instance_add_row(instance, INSTANCE_PRIVATE, 8, true);
    /* Slots: the even one from AdamW of block 2 (gathered for the next step), the odd one from block 1. */
    instance_add(instance, INSTANCE_GATHER, model->weight_bytes * block, ADAMW(1) + 1, B(1));
    instance_add(instance, INSTANCE_GATHER, model->weight_bytes * block, ADAMW(2) + 1, B(2));
    instance_add(instance, INSTANCE_GRADIENT, model->weight_bytes * block, B(layers), B(1) + 3);
    instance_add(instance, INSTANCE_GRADIENT, model->weight_bytes * block, B(layers - 1), B(2) + 5);
    /* The edges. */
    instance_add(instance, INSTANCE_GATHER, model->weight_bytes * edge, ADAMW(0) + 1, F(0));
    instance_add(instance, INSTANCE_GATHER, model->weight_bytes * edge, F(layers - 1) + 1, 2 * head);
    instance_add(instance, INSTANCE_GRADIENT, model->weight_bytes * edge, 2 * head, B(layers - 1) - 1);
    instance_add(instance, INSTANCE_GRADIENT, model->weight_bytes * edge, 2 * embedding_backward,
                 2 * embedding_backward + 3);
    instance_add(instance, INSTANCE_PRIVATE, model->head_tokens * model->vocabulary * model->value_bytes, 2 * head,
                 2 * head);
    instance_add(instance, INSTANCE_PRIVATE, model->tokens * 8, F(0), 2 * embedding_backward);
    instance_add(instance, INSTANCE_PRIVATE, model->tokens * model->width * 4, 2 * embedding_backward,
                 2 * embedding_backward);
    /* Residual stream: the input of block i, and its gradient. */
    const uint64_t value = model->tokens * model->value_bytes, width = model->width, wide = model->mlp_width;
    for (uint32_t i = 1; i <= layers + 1; i++) {
        instance_add(instance, INSTANCE_PRIVATE, value * width, F(i - 1), i <= layers ? B(i) : 2 * head);
        instance_add(instance, INSTANCE_PRIVATE, value * width, i <= layers ? B(i) : 2 * head, B(i - 1));
    }
    for (uint32_t i = 1; i <= layers; i++) {
        const uint64_t kept[] = {value * width,     value * 3 * width,  value * width,     value * width,
                                 value * width,     value * wide,       value * wide,      model->tokens * 4,
                                 model->tokens * 4, model->tokens * 48, model->tokens * 4, model->tokens * 4};
        for (size_t k = 0; k < sizeof(kept) / sizeof(kept[0]); k++) {
            if (model->recompute) {
                instance_add(instance, INSTANCE_PRIVATE, kept[k], F(i), F(i));
                instance_add(instance, INSTANCE_PRIVATE, kept[k], R(i), B(i));
            } else {
                instance_add(instance, INSTANCE_PRIVATE, kept[k], F(i), B(i));
            }
        }
        instance_add(instance, INSTANCE_PRIVATE, 1 << 20, F(i), F(i));
        const uint64_t scratch[] = {value * wide, value * 3 * width, value * width, value * width, 1 << 20};
        for (size_t k = 0; k < sizeof(scratch) / sizeof(scratch[0]); k++)
            instance_add(instance, INSTANCE_PRIVATE, scratch[k], B(i), B(i));
    }
#undef F
#undef R
#undef B
#undef ADAMW
}

/* xorshift64*, so that a seed gives the same instance everywhere. */
static inline uint64_t instance_random(uint64_t *state, uint64_t below)
{
    *state ^= *state >> 12;
    *state ^= *state << 25;
    *state ^= *state >> 27;
    return (*state * UINT64_C(0x2545f4914f6cdd1d) >> 33) % below;
}

static inline void instance_make_random(struct instance *instance, uint64_t seed)
{
    uint64_t state = seed * 2 + 1;
    for (int k = 0; k < 8; k++)
        (void)instance_random(&state, 2);
    const uint32_t time_count = 1 + (uint32_t)instance_random(&state, 30);
    const uint32_t space_count = 1 + (uint32_t)instance_random(&state, EO_PLACEMENT_SPACES_MAX);
    instance_init(instance, time_count, space_count, 1u << instance_random(&state, 9));
    const uint32_t row_count = (uint32_t)instance_random(&state, 60);
    for (uint32_t row = 0; row < row_count; row++) {
        instance_add_row(instance, (uint32_t)instance_random(&state, space_count), instance_random(&state, 5000),
                         instance_random(&state, 10) == 0);
        /* None, one, or several, in any order, overlapping or not. */
        const uint64_t interval_count = instance_random(&state, 8) == 0 ? instance_random(&state, 5) : 1;
        for (uint64_t k = 0; k < interval_count; k++) {
            const uint32_t first = (uint32_t)instance_random(&state, time_count);
            instance_add_interval(instance, first, first + (uint32_t)instance_random(&state, time_count - first));
        }
    }
}

#endif
