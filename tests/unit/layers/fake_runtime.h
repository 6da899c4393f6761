/* SPDX-License-Identifier: MIT
 *
 * A runtime of one rank that shards nothing, for testing models alone. It is strict where the real one has a debug mode:
 * - calls in the planned order only: anything else ends the test;
 * - a buffer is an allocation that lives from its first to its last pass, full of NaN at first (so that a sanitizer sees
 *   what uses it too early or too late, and so does every result);
 * - weights and gradients are copies of one pass; gradients begin as NaN, so that whatever a pass does not write shows.
 */
#ifndef EO_TESTS_UNIT_LAYERS_FAKE_RUNTIME_H
#define EO_TESTS_UNIT_LAYERS_FAKE_RUNTIME_H

#include <evenodd/evenodd.h>

/* The model must outlive it. Gradients of all passes are added up until fake_clear_gradients. */
eo_runtime *fake_create(const eo_model *model, float loss_scale);
/* Weights and gradients as the passes see them: in these types. What fake_weights and fake_gradients give stays fp32. */
void fake_set_types(eo_runtime *runtime, eo_dtype weights, eo_dtype gradients);
void fake_destroy(eo_runtime *runtime);
float *fake_weights(eo_runtime *runtime, uint32_t parameter);
float *fake_gradients(eo_runtime *runtime, uint32_t parameter);
void fake_clear_gradients(eo_runtime *runtime);

/* eo_weights_fill asks for pieces of at most this many elements; 0: all at once. */
void fake_set_fill_piece(eo_runtime *runtime, uint64_t elements);

/* Bytes of buffers alive at one time, at most. */
uint64_t fake_peak_bytes(const eo_runtime *runtime);

/* As behind eo_input_gradients_begin: eo_gradients_begin hands out a NULL for every gradient. */
void fake_set_inputs_alone(eo_runtime *runtime, bool inputs_alone);

/* Gives up the passes of a micro-batch that failed in its middle. */
void fake_restart(eo_runtime *runtime);

#endif
