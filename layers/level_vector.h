/* SPDX-License-Identifier: MIT
 *
 * All kernels of one level and their table. Included by level_*.c, which set EO_LEVEL, EO_LEVEL_NAME, EO_LEVEL_TABLE
 * and the target of the compiler.
 */
#ifndef EO_LAYERS_LEVEL_VECTOR_H
#define EO_LAYERS_LEVEL_VECTOR_H

#include "layers/vector.h"

#include "layers/elementwise_vector.h"
#include "layers/norm_vector.h"
#include "layers/loss_vector.h"
#include "layers/attention_vector.h"
#include "layers/product_vector.h"

const struct eo_kernel_table EO_LEVEL_TABLE = {
    .name = EO_LEVEL_NAME,
    .add = add,
    .bias_add = bias_add,
    .column_sums = column_sums,
    .gelu_forward = gelu_forward,
    .gelu_backward = gelu_backward,
    .swiglu_forward = swiglu_forward,
    .swiglu_backward = swiglu_backward,
    .layernorm_forward = layernorm_forward,
    .layernorm_again = layernorm_again,
    .layernorm_backward = layernorm_backward,
    .rmsnorm_forward = rmsnorm_forward,
    .rmsnorm_again = rmsnorm_again,
    .rmsnorm_backward = rmsnorm_backward,
    .head_norm_forward = head_norm_forward,
    .head_norm_backward = head_norm_backward,
    .rope = rope,
    .attention_forward = attention_forward,
    .attention_backward = attention_backward,
    .softmax_sum = softmax_sum,
    .scale = scale,
    .product_tile = product_tile,
};

#endif
