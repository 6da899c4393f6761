/* SPDX-License-Identifier: MIT
 *
 * For the parts of misuse: a model, its plan and a world of ranks that are threads, and steps on them.
 */
#ifndef EO_TESTS_CONFORMANCE_MISUSE_MISUSE_H
#define EO_TESTS_CONFORMANCE_MISUSE_MISUSE_H

#include <stdatomic.h>
#include <string.h>

#include <evenodd/evenodd.h>

#include "tests/conformance/ranks.h"
#include "tests/unit/plan/models.h"

enum { LAYERS = 6, WORLD_MAX = 4 };

struct scene {
    eo_model *model;
    eo_plan *plan;
    eo_world *worlds[WORLD_MAX];
    uint32_t ranks;
    eo_memory memory;
    bool debug, zero_gradients;
    eo_status statuses[WORLD_MAX];
    char texts[WORLD_MAX][512];
    _Atomic uint32_t turn;
};

/* A rank of a scene, on a thread of its own. */
struct actor {
    struct scene *scene;
    uint32_t rank;
    void (*play)(struct actor *self);
};

/* What the machine says that is free; 0: the truth. */
extern uint64_t memory_available;

/* Of the scenes that are opened next; hsdp in two groups. */
extern eo_strategy strategy;

void must(eo_status status, const char *what); /* or the program ends */

void open_scene(struct scene *scene, const char *model, uint32_t ranks, uint32_t timeout_ms);
void close_scene(struct scene *scene);
eo_status open_runtime(struct scene *scene, uint32_t rank, eo_runtime **out);
/* Runs play on each rank. A minute is more than any of them may take. */
void run_ranks(struct scene *scene, void (*play)(struct actor *self));

/* Only the first element of a layer's matrix gets a gradient. */
void write_gradients(const eo_view *view, float value);
void clear_gradients(const struct scene *scene, uint32_t position, const eo_view *view);
eo_status forward_pass(eo_runtime *rt, uint32_t p);
eo_status backward_pass(const struct scene *scene, eo_runtime *rt, uint32_t p, float gradient);
/* All passes of a step, with another gradient at one position (LAYERS: at none); and with the step's end. */
eo_status passes(const struct scene *scene, eo_runtime *rt, uint32_t bad_position, float bad);
eo_status whole_step(const struct scene *scene, eo_runtime *rt);

/* Weights from a parameter's index and an element's place alone. */
eo_status fill(void *user, uint64_t offset, uint64_t count, float *values);
void fill_all(const struct scene *scene, eo_runtime *rt);
uint64_t hash_of(eo_runtime *rt);

/* The call is refused, in words that have this part, and they are logged. */
#define REFUSED(rt, call, part)                                                                                       \
    do {                                                                                                              \
        eo_test_text[0] = '\0';                                                                                       \
        TEST_EXPECT(NULL, (call) == EO_ERR_INVALID, "%s is taken", #call);                                            \
        TEST_EXPECT(NULL, strstr(eo_runtime_error(rt), part), "%s: '%s' does not say '%s'", #call,                    \
                    eo_runtime_error(rt), part);                                                                      \
        TEST_EXPECT(NULL, strcmp(eo_test_text, eo_runtime_error(rt)) == 0, "%s: not logged", #call);                  \
    } while (0)

/* numbers.c */
void refuse_step_params(eo_runtime *rt); /* at eo_step_end */
void exact_step_params(void);
void small_divisors(void);
void numbers_that_update_does_not_see(void);
void numbers_that_nobody_reads(void);

/* order.c */
void wrong_order(eo_memory memory);
void destroyed_too_early(void);
void positions_of_one_name(void);
void frozen_layer(void);
void late_views_and_buffers(void);
void written_behind_buffers(void);

/* gradients.c */
void gradients_beside(bool zero_gradients);
void gradients_of_no_use(void);
void overwritten_sums(void);
void written_weights(eo_memory memory);
void added_gradients(eo_dtype dtype);
void other_micro_batches(void);
void zeroed_gradients(void);

/* create.c */
void plans_that_do_not_fit(void);
void plan_destroyed_first(void);
void worlds_that_cannot_be(void);
void what_this_device_has_not(void);

/* ranks.c */
void different_plans(void);
void one_cannot_begin(void);
void one_never_creates(void);
void one_evaluates_alone(void);
void one_never_joins(void);
void own_cause_is_told(void);
void memory_for_one(void);
void one_is_refused(void);
void other_numbers(eo_memory memory);
void other_counts(void);
void one_writes_alone(eo_memory memory);
void different_weights(eo_memory memory);
void one_gives_up(eo_memory memory);
void one_gives_up_inside(void);
void one_stays_away(void);
void two_ways(void);
void forked_child(void);
void not_finite(eo_memory memory);
void not_finite_from(bool debug);
void no_place_to_offload(void);

/* products.c */
void failing_product(void);

/* weights.c */
void weights_round_trip(uint32_t ranks, eo_memory memory);
void calls_from_callbacks(eo_memory memory);

#endif
