/* SPDX-License-Identifier: MIT
 *
 * Random models and settings as data: a seed makes one, eo_model_add_... are called from it, and it can be changed and
 * printed. Every case is legal: it must be planned, proven and trained.
 */
#ifndef EO_TESTS_RANDOM_GENERATOR_H
#define EO_TESTS_RANDOM_GENERATOR_H

#include <evenodd/evenodd.h>
#include <stdio.h>

enum { CASE_LAYERS_MAX = 200, CASE_PARAMETERS_MAX = 3, CASE_BUFFERS_MAX = 24, CASE_RANKS_MAX = 7,
       CASE_STEPS_MAX = 6, CASE_ACTIONS_MAX = 3, CASE_GROUPS_MAX = 4, CASE_CLIPS_MAX = 3,
       CASE_MATRIX_LARGE = 25 };

/* What a trainer does between two steps, before the first and after the last. */
enum case_action {
    CASE_NOTHING,
    CASE_EVALUATES,
    CASE_SUMS,
    CASE_VISITS,   /* all weights are compared */
    CASE_READS,    /* one parameter is */
    CASE_WRITES,   /* one is read and written again as it was */
    CASE_REPLACES, /* one gets other numbers */
    CASE_ACTION_COUNT,
    CASE_FINDS_INPUTS = CASE_ACTION_COUNT, /* in place of an evaluation: gradients of inputs alone */
};

struct case_layer {
    bool frozen;
    uint32_t parameter_count;
    uint32_t elements[CASE_PARAMETERS_MAX];
    uint32_t frozen_parts; /* bit k: the k-th parameter is frozen beside the others */
    uint32_t fp32;   /* bit k: the k-th parameter's weights are fp32 in a plan of bf16 */
    uint32_t float8; /* bit k: the k-th parameter may be gathered in float8, which holds its small numbers exactly */
    uint32_t groups[CASE_PARAMETERS_MAX]; /* of parameters, for norms by group */
    uint32_t matrix; /* bit k: the k-th parameter is one of CASE_MATRIX_LARGE columns and no more rows, or in `tall` the other way */
    uint32_t tall;
    uint32_t parts; /* of the group, which hold different layers of this shape; 0 and 1: the group has one. Planned only */
};

struct random_case;
/* Of the weights of a layer's k-th parameter as passes see them. */
eo_dtype random_case_dtype(const struct random_case *c, uint32_t layer, uint32_t k);

struct case_position {
    uint32_t layer;
    bool forward_in_backward, backward_without_weights;
    bool adds;          /* this use adds its gradients to those of the layer's next */
    uint32_t gradients; /* bit k: this use gives a gradient to the layer's k-th parameter */
};

struct case_buffer {
    uint32_t bytes;
    eo_moment first, last;
    bool persistent, saved; /* saved: touched by the passes of one position alone */
};

struct random_case {
    uint64_t seed;
    uint32_t layer_count, position_count, buffer_count;
    struct case_layer layers[CASE_LAYERS_MAX];
    struct case_position positions[CASE_LAYERS_MAX];
    struct case_buffer buffers[CASE_BUFFERS_MAX];
    eo_plan_params settings; /* without a log */
    eo_memory memory;        /* of a run, as what follows */
    bool debug, own_optimizer;
    uint64_t delay_seed;
    uint32_t reduce_inputs; /* of the dynamic modes, as what follows */
    bool implicit_prefetch;
    bool zero_gradients;
    bool graph;         /* where the device has graphs: a step is recorded, and run again. Adds a buffer, the step's number */
    float clips[CASE_CLIPS_MAX];           /* 0: off; the first is the step's, the others are of clip groups */
    uint32_t clip_groups[CASE_GROUPS_MAX]; /* into clips */
    uint32_t skips;     /* bit k: a gradient of step k is not finite, and the step changes nothing */
    uint32_t resume_ranks, resume_group, resume_step; /* before that step all is saved, and so many ranks (hsdp: in such groups) go
                                                         on with it; 0: the ranks of before do */
    uint32_t step_count;
    uint8_t actions[CASE_STEPS_MAX + 1][CASE_ACTIONS_MAX]; /* enum case_action, before each step and after the last */
};

/* splitmix64 of three words: numbers that depend on nothing else. */
uint64_t random_hash(uint64_t a, uint64_t b, uint64_t c);

void random_case_make(struct random_case *out, uint64_t seed);
/* With layers that are shared by a part of the group. */
void random_case_make_with_parts(struct random_case *out, uint64_t seed);
/* As many small layers in a row, two ranks (hsdp: four), one use each: for what only depth shows. */
void random_case_make_deep(struct random_case *out, uint32_t layers, eo_strategy strategy);

/* Without what its other settings refuse: float8 where no gather could carry it, Muon with dynamic memory, ... */
void random_case_settle(struct random_case *c);

eo_status random_case_model(const struct random_case *c, const eo_log *log, eo_model **out);
/* Before step `step`: nothing happens; the parameter (of the model) that an action is about. */
bool random_case_is_quiet(const struct random_case *c, uint32_t step);
uint32_t random_case_parameter(const struct random_case *c, uint32_t step);
/* Those that run step `step`. */
uint32_t random_case_ranks(const struct random_case *c, uint32_t step);
/* The groups of the model's parameters: one more than the last. */
uint32_t random_case_groups(const struct random_case *c);
/* The steps that are skipped spoil the gradient of the first use that gives one. false: none does. */
bool random_case_spoils(const struct random_case *c, uint32_t *position, uint32_t *parameter);
void random_case_print(const struct random_case *c, FILE *out);

/* Place of a moment in a micro-batch: forward(0 ... P-1), then recompute and backward of P-1 ... 0. */
uint32_t random_case_moment(const struct random_case *c, eo_moment moment);

#endif
