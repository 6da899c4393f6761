/* SPDX-License-Identifier: MIT */
#ifndef EO_TESTS_SIMULATOR_TWIN_LAYERS_H
#define EO_TESTS_SIMULATOR_TWIN_LAYERS_H

#include <stdbool.h>
#include <stdint.h>

extern uint32_t twin_files_loaded;    /* a bit for each file of kernels: all six when a team is there */
extern uint64_t twin_vocabulary;      /* rows of the model's token table, which its forward kernel is not told */
extern bool twin_attention_by_program; /* as on a GPU: by cuDNN where it has a plan, else by products over blocks of queries */

#endif
