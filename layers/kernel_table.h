/* SPDX-License-Identifier: MIT
 *
 * The kernels of a level of the processor (avx512, avx2, plain): one thread's part of each. The files of layers/cpu/ with
 * the kernels' names split the work, the table's functions trust them. The same source (layers/cpu/levels/) is compiled for
 * each level, once in fp32 and once in bf16, so the levels differ in vector width and rounding only.
 *
 * Operands are as in kernel_ops.h, `void *` in the table's element type; `rows` are the rows of this part, and pointers
 * stand at its first row.
 */
#ifndef EO_LAYERS_KERNEL_TABLE_H
#define EO_LAYERS_KERNEL_TABLE_H

#include "layers/kernel_ops.h"

enum {
    EO_STRIP = 256,        /* columns that one task sums over all rows; a multiple of every vector width */
    EO_NORM_PARTS = 16,    /* parts of the rows; norm backward adds their sums in order */
    EO_QUERY_BLOCK = 64,   /* queries of one block of attention; a multiple of EO_TILE_ROWS */
    EO_KEY_CHUNK = 256,    /* keys that a block of queries takes at a time; a multiple of EO_QUERY_BLOCK and EO_TILE_PAD */
    EO_TILE_ROWS = 8,      /* attention's bounds are rounded to it; a multiple of every level's tile */
    EO_TILE_PAD = 32,      /* attention pads keys to it; a multiple of every level's panel */
    EO_HEAD_PAD = 16,      /* attention pads heads to it; a multiple of every level's vector width */
    EO_PRODUCT_BAND = 32,  /* rows, */
    EO_PRODUCT_PANEL = 32, /* columns */
    EO_PRODUCT_DEPTH = 64, /* and terms of a block of the reference product */
};

/* A strip of columns: all rows, `stride` elements apart; column sums go to `sums` (or NULL), in types.gradient.
 * types.compute is that of the kernel of kernel_ops.h. */
struct eo_strip {
    struct eo_types types;
    uint64_t rows, columns, stride;
    void *sums;
    bool accumulate;
};

/* Rows that are summed together: each leads to the next. */
#define EO_CHAIN_END UINT32_MAX

struct eo_norm_part {
    const void *in, *weight, *bias, *out_gradient, *skip_gradient;
    const float *mean, *rstd;
    void *in_gradient, *again;
    float *weight_sums, *bias_sums; /* [width] overwritten; bias_sums NULL and mean NULL: RMSNorm */
    uint64_t rows, width;
    bool fp32_weights;
};

/* RMSNorm of the heads of one weight. Backward: `out` goes from the gradient of out to that of in; sums[part][head_size]
 * of the weight's gradient, a part for every part_rows rows. */
struct eo_head_rows {
    const void *in, *weight;
    void *out;
    float *sums;
    uint64_t in_stride, out_stride, rows, part_rows;
    uint32_t head_count, head_size;
    float eps;
    bool fp32_weights;
};

/* One document and one query head (forward) or key/value head with its group of query heads (backward). Pointers
 * stand at the document's first token in the head(s); `scratch` is one thread's part. */
struct eo_attention_head {
    uint32_t seq, head_size, group;
    uint64_t q_stride, kv_stride, out_stride, statistic_stride; /* the last: from query head to query head */
    const void *q, *k, *v, *out_gradient, *saved_out;
    const float *saved_log_sum_exp;
    void *out, *q_gradient, *k_gradient, *v_gradient;
    float *log_sum_exp, *scratch;
};

/* Attention by products of pairs of bf16 (layers/cpu/attention_bf16.c). Scores are sums of products: [keys][EO_PANEL
 * queries], the keys a multiple of 4 from first_key on, the queries those from first_query on. */
struct eo_attention_weights {
    const float *scores;
    uint64_t keys, first_key, first_query;
    float scale;
    float *top, *sum;  /* [EO_PANEL] of the keys before, and of these: -infinity and 0 at first */
    float *correction; /* [EO_PANEL] what sums of the keys before are to be multiplied with: 1 at first */
    uint32_t *panel;   /* of B: exp(score x scale - top), zero where the query is before the key */
};

/* weight = exp(score x scale - log_sum_exp), slope = weight (weight_gradient - delta) */
struct eo_attention_slopes {
    const float *scores, *weight_gradients;
    uint64_t keys, first_key, first_query;
    float scale;
    const float *log_sum_exp, *delta; /* [EO_PANEL] */
    uint16_t *weight_rows, *slope_rows; /* of A, a row for each key */
    uint64_t row_stride;
    uint32_t *slope_panel; /* of B */
};

struct eo_kernel_table {
    const char *name;
    void (*add)(void *out, const void *a, const void *b, uint64_t count);
    void (*residual_add)(const struct eo_residual *part);
    void (*bias_add)(void *values, uint64_t stride, const void *bias, uint64_t rows, uint64_t width);
    void (*column_sums)(const struct eo_strip *strip, const void *values);
    /* Of the rows first, next[first] and so on up to EO_CHAIN_END; strip->rows is not read. */
    void (*chain_sums)(const struct eo_strip *strip, const void *values, const uint32_t *next, uint32_t first);
    void (*gelu_forward)(const struct eo_gelu *part);
    void (*gelu_backward)(const struct eo_strip *strip, const struct eo_gelu_gradient *part); /* pointers at the strip */
    void (*swiglu_forward)(const struct eo_swiglu *part);
    void (*swiglu_backward)(const struct eo_swiglu *part);
    void (*layernorm_forward)(const struct eo_norm *part);
    void (*layernorm_backward)(const struct eo_norm_part *part);
    void (*rmsnorm_forward)(const struct eo_norm *part);
    void (*rmsnorm_backward)(const struct eo_norm_part *part);
    void (*head_norm_forward)(const struct eo_head_rows *heads);
    void (*head_norm_backward)(const struct eo_head_rows *heads); /* sums [head_size] are those of these rows */
    void (*rotate)(const struct eo_rotation *part, uint64_t first_row); /* values stands at the first row of all */
    void (*dropout)(const struct eo_dropout *part, uint64_t first_row); /* operands stand at the first row of all */
    /* One row: its maximum, and the sum of exponentials of the distance from it, which are kept where there is a place for
     * them (or NULL). `next` is fetched ahead, or NULL. */
    void (*softmax_sum)(const void *row, const void *next, uint64_t count, float *exponentials, float *max, float *sum);
    /* The exponentials times a factor, over the row; at the target less `less`. In fp32 they may lie in the row. */
    void (*softmax_gradient)(void *row, const float *exponentials, uint64_t count, float factor, uint64_t target, float less);

    void (*attention_forward)(const struct eo_attention_head *head);
    void (*attention_backward)(const struct eo_attention_head *head);

    /* In fp32 alone. */
    /* The reference product's, for both element types: the same bits at every level. See products/vector.h. */
    void (*product_tile)(float *sums, const float *a, const float *b, uint64_t rows, uint64_t depth);

    /* In bf16 and AVX-512 alone: of attention by products of pairs. */
    bool (*attention_top)(const struct eo_attention_weights *w); /* raises the tops; whether any rose, with its correction */
    void (*attention_weights)(const struct eo_attention_weights *w);
    void (*attention_slopes)(const struct eo_attention_slopes *s);
    void (*attention_scale)(float *sums, uint64_t rows, const float *factors); /* [rows][EO_PANEL], a factor a column */
    float (*attention_dot)(const void *a, const void *b, uint64_t count);
    void (*attention_store)(void *to, uint64_t stride, const float *from, uint64_t from_stride, uint64_t rows,
                            uint64_t columns, float factor);
};

extern const struct eo_kernel_table eo_kernels_plain, eo_kernels_plain_bf16;
#if defined(__x86_64__)
extern const struct eo_kernel_table eo_kernels_avx2, eo_kernels_avx2_bf16;
extern const struct eo_kernel_table eo_kernels_avx512, eo_kernels_avx512_bf16;
#endif

/* The table in use: the best one this machine runs, unless eo_kernels_select chose another. */
const struct eo_kernel_table *eo_kernels_of(eo_dtype dtype);
const struct eo_kernel_table *eo_kernels(void); /* of fp32 */

/* Whether eo_kernels_select("reference") took the CPU away from these tables. */
bool eo_kernels_reference_selected(void);

#endif
