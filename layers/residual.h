/* SPDX-License-Identifier: MIT
 *
 * The sum that ends a position's last half: output = input + product + bias, in one pass through memory.
 */
#ifndef EO_LAYERS_RESIDUAL_H
#define EO_LAYERS_RESIDUAL_H

#include "layers/team.h"

/* output[row][column] += residual[row][column] + bias[column]; bias may be NULL. Element-wise, any number of threads. */
void eo_residual_add(eo_team *team, float *output, const float *residual, const float *bias, uint64_t rows,
                     uint64_t width);

#endif
