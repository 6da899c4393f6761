/* SPDX-License-Identifier: MIT
 *
 * All kernels of one level and element type, and their table. Included by avx512.c, avx2.c and plain.c, which set EO_LEVEL,
 * EO_LEVEL_NAME, EO_LEVEL_TABLE and the target of the compiler; for bf16 by avx512_bf16.c and its like, with EO_ELEMENT_BF16.
 */
#ifndef EO_LAYERS_CPU_LEVELS_LEVEL_H
#define EO_LAYERS_CPU_LEVELS_LEVEL_H

#include "layers/cpu/levels/vector.h"

#include "layers/cpu/levels/elementwise.h"
#include "layers/cpu/levels/dropout.h"
#include "layers/cpu/levels/norm.h"
#include "layers/cpu/levels/loss.h"
#include "layers/cpu/levels/attention.h"
#ifndef EO_ELEMENT_BF16
#include "layers/cpu/products/vector.h"
#elif EO_LEVEL == 512
#include "layers/cpu/products/tiles.h"
#include "layers/cpu/levels/attention_bf16.h"
#endif

const struct eo_kernel_table EO_LEVEL_TABLE = {
    .name = EO_LEVEL_NAME,
    .add = add,
    .residual_add = residual_add,
    .bias_add = bias_add,
    .column_sums = column_sums,
    .chain_sums = chain_sums,
    .gelu_forward = gelu_forward,
    .gelu_backward = gelu_backward,
    .swiglu_forward = swiglu_forward,
    .swiglu_backward = swiglu_backward,
    .layernorm_forward = layernorm_forward,
    .layernorm_backward = layernorm_backward,
    .rmsnorm_forward = rmsnorm_forward,
    .rmsnorm_backward = rmsnorm_backward,
    .head_norm_forward = head_norm_forward,
    .head_norm_backward = head_norm_backward,
    .rotate = rotate,
    .dropout = dropout,
    .softmax_sum = softmax_sum,
    .softmax_gradient = softmax_gradient,
    .attention_forward = attention_forward,
    .attention_backward = attention_backward,
#ifndef EO_ELEMENT_BF16
    .product_tile = product_tile,
#elif EO_LEVEL == 512
    .attention_top = attention_top,
    .attention_weights = attention_weights,
    .attention_slopes = attention_slopes,
    .attention_scale = attention_scale,
    .attention_dot = attention_dot,
    .attention_store = attention_store,
#endif
};

#endif
