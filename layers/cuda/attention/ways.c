/* SPDX-License-Identifier: MIT */
#include "layers/cuda/internal.h"

const struct eo_cuda_attention_ops *const eo_cuda_attention_ways[] = {
#if defined(EO_LAYERS_CUDNN)
    &eo_cuda_attention_cudnn_ops,
#endif
    &eo_cuda_attention_blocks_ops,
    NULL,
};
