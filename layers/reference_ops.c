/* SPDX-License-Identifier: MIT
 *
 * The table "reference": the kernels of reference_kernels.h, split over a team.
 */
#include "layers/reference_kernels.h"

static bool supports(struct eo_types types)
{
    (void)types;
    return true;
}

const struct eo_kernel_ops eo_kernels_reference_ops = {.name = "reference", .fused_epilogues = true, .supports = supports};
