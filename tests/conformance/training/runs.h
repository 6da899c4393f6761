/* SPDX-License-Identifier: MIT
 *
 * A whole training of a tiny transformer on ranks that are threads, or what test_use says, as a value: settings in,
 * losses, norms and a hash of the weights out. A run's batches depend on the step alone: 12 sequences, dealt over ranks
 * and micro-batches.
 */
#ifndef EO_TESTS_CONFORMANCE_TRAINING_RUNS_H
#define EO_TESTS_CONFORMANCE_TRAINING_RUNS_H

#include <evenodd/layers.h>

enum { TRAIN_SEQUENCES = 12, TRAIN_STEPS_MAX = 20, TRAIN_RANKS_MAX = 4 };

struct train_settings {
    eo_family family;
    uint32_t ranks, micro_batches, steps; /* [1, 1, 4] */
    uint32_t gather_slots, gradient_slots, threads;
    eo_memory memory;
    eo_strategy strategy;
    uint32_t shard_group; /* of hsdp */
    eo_dtype dtype, reduce_dtype;
    bool float8_gather;
    eo_optimizer optimizer;
    eo_recompute recompute;
    uint32_t recompute_blocks, head_chunks;
    uint32_t unit_blocks;
    bool half_blocks, debug, no_prefetch, separate_reduce_stream, separate_evict_stream, implicit_prefetch, evaluates, free_head, offload_gradients, late_updates;
    bool norms_beside, dynamic_offload;
    uint32_t reduce_inputs, offload_activations, offload_layers, offload_slots, gather_run, gradient_run;
    uint64_t delay_seed;
    double fabric_gigabytes_per_s, fabric_latency_us;
    void (*after_step)(uint32_t rank, uint32_t step); /* called by each rank's thread */
    bool twice; /* two runtimes at once, stepped in turn; both must come to the same */
};

struct train_result {
    uint32_t steps;
    double losses[TRAIN_STEPS_MAX], norms[TRAIN_STEPS_MAX];
    uint64_t weights_hash;
    uint64_t arena_bytes, planned_bytes, allocator_calls; /* of rank 0 */
};

/* Runs it. A call that fails is a failure of the current case, with its text. */
void train_run(const struct train_settings *settings, struct train_result *out);

/* Fails the current case where losses, norms or weights differ in a bit. */
void train_expect_same(const char *what, const struct train_result *a, const struct train_result *b);

/* Fails it where a loss differs by more than `tolerance`, relatively, or a norm by more than ten times that. */
void train_expect_near(const char *what, const struct train_result *a, const struct train_result *b,
                       double tolerance);
/* The same, with the norms' own. */
void train_expect_nearly(const char *what, const struct train_result *a, const struct train_result *b, double tolerance,
                         double norm_tolerance);

#endif
