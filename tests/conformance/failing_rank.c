/* SPDX-License-Identifier: MIT
 *
 * Linked with README's example: a call of one rank fails in its tenth step.
 */
#include <evenodd/evenodd.h>

eo_status __real_eo_backward_end(eo_runtime *runtime, uint32_t position);
eo_status __wrap_eo_backward_end(eo_runtime *runtime, uint32_t position);

eo_status __wrap_eo_backward_end(eo_runtime *runtime, uint32_t position)
{
    static int calls;
    return eo_runtime_rank(runtime) == 1 && ++calls == 10 ? EO_ERR_DEVICE : __real_eo_backward_end(runtime, position);
}
