/* SPDX-License-Identifier: MIT
 *
 * Other names for the functions that note launches, so that a program can have the real ones beside them.
 */
#ifndef EO_TESTS_GPU_EXPECT_EXPECTED_NAMES_H
#define EO_TESTS_GPU_EXPECT_EXPECTED_NAMES_H

#define eo_cuda_residual_add            expected_residual_add
#define eo_cuda_scale                   expected_scale
#define eo_cuda_dropout                 expected_dropout
#define eo_cuda_column_sums             expected_column_sums
#define eo_cuda_gelu_forward            expected_gelu_forward
#define eo_cuda_swiglu_forward          expected_swiglu_forward
#define eo_cuda_swiglu_backward         expected_swiglu_backward
#define eo_cuda_rotate                  expected_rotate
#define eo_cuda_epilogue                expected_epilogue
#define eo_cuda_check_finite            expected_check_finite
#define eo_cuda_norm_forward            expected_norm_forward
#define eo_cuda_norm_backward           expected_norm_backward
#define eo_cuda_head_norm_forward       expected_head_norm_forward
#define eo_cuda_head_norm_backward      expected_head_norm_backward
#define eo_cuda_head_norm_weights       expected_head_norm_weights
#define eo_cuda_embedding_forward       expected_embedding_forward
#define eo_cuda_embedding_backward      expected_embedding_backward
#define eo_cuda_cross_entropy           expected_cross_entropy
#define eo_cuda_loss_add                expected_loss_add
#define eo_cuda_softmax_forward         expected_softmax_forward
#define eo_cuda_softmax_backward        expected_softmax_backward
#define eo_cuda_narrow_rows             expected_narrow_rows
#define eo_cuda_load_elementwise        expected_load_elementwise
#define eo_cuda_load_embeddings         expected_load_embeddings
#define eo_cuda_float8_rows             expected_float8_rows
#define eo_cuda_load_float8_rows        expected_load_float8_rows
#define eo_cuda_load_head_norms         expected_load_head_norms
#define eo_cuda_load_losses             expected_load_losses
#define eo_cuda_load_norms              expected_load_norms
#define eo_cuda_load_softmax            expected_load_softmax
#define eo_cuda_kernels_load            expected_kernels_load
#define eo_cuda_sum_load                expected_sum_load
#define eo_cuda_fill                    expected_fill
#define eo_cuda_cast_bf16               expected_cast_bf16
#define eo_cuda_accumulate              expected_accumulate
#define eo_cuda_sum_squares             expected_sum_squares
#define eo_cuda_accumulate_sum_squares  expected_accumulate_sum_squares
#define eo_cuda_norm_local              expected_norm_local
#define eo_cuda_norm_sum                expected_norm_sum
#define eo_cuda_update_ranges           expected_update_ranges
#define eo_cuda_combine                 expected_combine
#define eo_cuda_average                 expected_average
#define eo_cuda_float8_load             expected_float8_load
#define eo_cuda_state8_load             expected_state8_load
#define eo_cuda_narrow                  expected_narrow
#define eo_cuda_widen                   expected_widen
#define eo_cuda_widen_mxfp8             expected_widen_mxfp8
#define eo_cuda_sum_fp32                expected_sum_fp32
#define eo_cuda_sum_bf16                expected_sum_bf16

#endif
