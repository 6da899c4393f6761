/* SPDX-License-Identifier: MIT
 *
 * A transformer trained on a simulated GPU, held against the CPU's reference kernels and against other runs of its own.
 */
#ifndef EO_TESTS_SIMULATOR_LAYERS_COMPARE_H
#define EO_TESTS_SIMULATOR_LAYERS_COMPARE_H

#include "transformer.h"

enum { LAST = 2 }; /* step that all trainings have, for messages */

extern const char *lacks; /* of the simulated machine */
extern int architecture;  /* [90] */

/* A family, a type, ranks and micro-batches by the bits of a number. */
struct transformer_settings settings_of(uint32_t which);

struct transformer_result run_simulated(const struct transformer_settings *settings, uint64_t seed);
struct transformer_result run_reference(const struct transformer_settings *settings);
bool same_bits(const struct transformer_result *a, const struct transformer_result *b);
bool is_close(const struct transformer_result *device, const struct transformer_result *host,
              const struct transformer_settings *settings);
void check_close(const struct transformer_settings *settings, const struct transformer_result *device);
/* Another schedule, a graph, dynamic memory, recompute, halves of blocks: the same bits. */
void compare(const struct transformer_settings *settings, uint64_t seed);

/* layers_libraries.c */
void choice_of_epilogues(void);
void blocks_of_queries(void);
void no_cudnn(void);
void plans_of_logits(void);
void cudnn_cases(void);
void failures(void);
void errors_left_unread(void);
void plan_cache(void);

#endif
