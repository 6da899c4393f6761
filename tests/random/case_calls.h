/* SPDX-License-Identifier: MIT
 *
 * What the trainer of a random case computes, as kernels: called at once on the CPU, enqueued on a GPU.
 */
#ifndef EO_TESTS_RANDOM_CASE_CALLS_H
#define EO_TESTS_RANDOM_CASE_CALLS_H

#include <stdatomic.h>

#include "tests/random/case_runner.h"
#include "tests/random/integer_model.h"

enum { CASE_INPUTS = 2, CASE_OUTPUTS = 2 };

/* What all ranks of a run see; ranks that are processes too. */
struct case_verdict {
    atomic_bool is_told;
    struct case_outcome outcome;
};

struct case_call {
    const char *name;
    void (*kernel)(const struct case_call *call, const void *const *in, void *const *out);
    const struct random_case *c;
    const struct integer_model *expected;
    struct case_verdict *verdict;
    const void *in[CASE_INPUTS]; /* the last: the step's number, where it lies in device memory; or NULL */
    uint64_t in_bytes[CASE_INPUTS];
    void *out[CASE_OUTPUTS];
    uint64_t out_bytes[CASE_OUTPUTS];
    struct integer_place place;
    uint32_t version; /* of the weights, outside steps; or UINT32_MAX */
    uint32_t buffer;
    uint64_t content; /* of a buffer, outside micro-batches; or 0 */
};

/* The first complaint of all ranks is kept. */
void case_complain(struct case_verdict *verdict, const char *format, ...) EO_PRINTF(2, 3);

/* in: the weights of a parameter */
void case_look_at_weights(const struct case_call *call, const void *const *in, void *const *out);
/* in: its weights, or NULL; out: its gradients */
void case_give_gradients(const struct case_call *call, const void *const *in, void *const *out);
/* out, in: a buffer */
void case_fill_buffer(const struct case_call *call, const void *const *in, void *const *out);
void case_look_at_buffer(const struct case_call *call, const void *const *in, void *const *out);
/* in: the gradient of a shard; out: its weights, or both halves */
void case_fold_weights(const struct case_call *call, const void *const *in, void *const *out);

/* in: a matrix of Muon's, or NULL: a product that nothing depends on; out: its signs */
void case_sign_product(const struct case_call *call, const void *const *in, void *const *out);

/* On the CPU. */
eo_status case_launch_at_once(const struct case_call *call, void *stream);

/* What a buffer holds in a micro-batch. */
static inline uint64_t case_content(uint32_t step, uint32_t micro_batch) { return 10 + 8 * (uint64_t)step + micro_batch; }

#endif
