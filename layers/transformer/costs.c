/* SPDX-License-Identifier: MIT
 *
 * What a micro-batch costs: its useful FLOPs, and its matrix products with the shapes the passes give them.
 */
#include "layers/transformer/internal.h"

/* The three products of a linear layer, as the passes of block.c and lm_head.c run them. */
struct product_names {
    const char *forward, *input_gradient, *weight_gradient;
};
#define PRODUCT_NAMES(name) {name ", forward", name ", input gradient", name ", weight gradient"}

static const struct product_names qkv_names = PRODUCT_NAMES("attention in");
static const struct product_names attention_out_names = PRODUCT_NAMES("attention out");
static const struct product_names mlp_in_names = PRODUCT_NAMES("MLP in");
static const struct product_names mlp_out_names = PRODUCT_NAMES("MLP out");
static const struct product_names adapter_names = PRODUCT_NAMES("adapters");
static const struct product_names head_names = PRODUCT_NAMES("head");

double eo_transformer_flops(const eo_transformer *transformer)
{
    if (!transformer)
        return 0;
    const eo_transformer_config *c = &transformer->params.config;
    const double width = c->width, tokens = (double)transformer->params.batch * transformer->params.seq;
    double multiplied = (double)c->vocabulary * width, low = 0;
    for (uint32_t kind = 0; kind < 2; kind++) {
        const struct half_shape *shape = &transformer->shape[kind];
        multiplied += (double)c->layer_count * width * ((double)shape->inner_width + shape->mid_width);
        for (uint32_t linear = 0; linear < HALF_LINEARS; linear++)
            if (shape->adapted[linear])
                low += (double)c->layer_count * transformer->params.lora.rank *
                       ((double)half_linear_in(transformer, shape, linear) + half_linear_out(transformer, shape, linear));
    }
    /* Forward, and the gradients of inputs and of weights: a frozen one has none. */
    return ((has_adapters(transformer) ? 4 : 6) * multiplied + 6 * low) * tokens + 6 * (double)c->layer_count * heads_width(transformer) * transformer->params.seq * tokens;
}

struct product_list {
    eo_product *products;
    uint32_t count, capacity;
    eo_dtype dtype;
};

static void add_product(struct product_list *list, eo_product product)
{
    if (product.per_micro_batch == 0)
        return;
    product.dtype = list->dtype;
    /* The same shape under the same name is one product (on a CPU Llama's key and value, gate and up). */
    for (uint32_t i = 0; i < list->count; i++) {
        eo_product *other = &list->products[i];
        if (other->name == product.name && other->m == product.m && other->n == product.n && other->k == product.k) {
            other->per_micro_batch += product.per_micro_batch;
            return;
        }
    }
    if (list->count < list->capacity)
        list->products[list->count++] = product;
}

/* How often its products run. */
struct product_counts {
    uint64_t forward, input_gradient, weight_gradient;
};

static void add_linear(struct product_list *list, const struct product_names *names, uint64_t rows, uint64_t out,
                       uint64_t in, struct product_counts counts)
{
    add_product(list, (eo_product){.name = names->forward, .m = rows, .n = out, .k = in, .transpose_b = true,
                                   .per_micro_batch = counts.forward});
    add_product(list, (eo_product){.name = names->input_gradient, .m = rows, .n = in, .k = out,
                                   .per_micro_batch = counts.input_gradient});
    add_product(list, (eo_product){.name = names->weight_gradient, .m = out, .n = in, .k = rows, .transpose_a = true,
                                   .per_micro_batch = counts.weight_gradient});
}

/* x A^T, then what it gives times B^T. */
static void add_adapters(struct product_list *list, const eo_transformer *t, const struct half_shape *shape)
{
    const uint64_t rows = (uint64_t)t->params.batch * t->params.seq, layers = t->params.config.layer_count;
    const struct product_counts counts = {layers + t->params.recompute_blocks, layers, layers};
    for (uint32_t linear = 0; linear < HALF_LINEARS; linear++)
        if (shape->adapted[linear]) {
            const uint64_t in = half_linear_in(t, shape, linear), out = half_linear_out(t, shape, linear);
            add_linear(list, &adapter_names, rows, t->params.lora.rank, in, counts);
            add_linear(list, &adapter_names, rows, out, t->params.lora.rank, counts);
        }
}

uint32_t eo_transformer_products(const eo_transformer *transformer, eo_product *products, uint32_t capacity)
{
    if (!transformer)
        return 0;
    const eo_transformer_params *p = &transformer->params;
    const uint64_t rows = (uint64_t)p->batch * p->seq, width = p->config.width, layers = p->config.layer_count;
    const bool frozen = has_adapters(transformer), later = transformer->first_trained > 0; /* than the first half */
    struct product_list list = {.products = products, .capacity = products ? capacity : 0, .dtype = p->dtype};
    for (uint32_t kind = 0; kind < 2; kind++) {
        const bool attention = kind == 0;
        const struct half_shape *shape = &transformer->shape[attention];
        for (uint32_t i = 0; i < shape->in_count; i += shape->in_joined[i])
            add_linear(&list, attention ? &qkv_names : &mlp_in_names, rows, half_product_width(shape, i), width,
                       (struct product_counts){layers + p->recompute_blocks, layers - (attention ? frozen : later), frozen ? 0 : layers});
        /* A recompute leaves out the product that ends the position. */
        const uint32_t units = p->half_blocks ? p->recompute_blocks : (p->recompute_blocks + p->unit_blocks - 1) / p->unit_blocks;
        const uint32_t left_out = attention && !p->half_blocks ? 0 : units;
        add_linear(&list, attention ? &attention_out_names : &mlp_out_names, rows, width, shape->mid_width,
                   (struct product_counts){layers + p->recompute_blocks - left_out, layers - (attention && later), frozen ? 0 : layers});
        add_adapters(&list, transformer, shape);
    }
    const uint64_t chunk = transformer->head.chunk_rows, last = rows % chunk;
    const struct product_counts chunks = {rows / chunk, rows / chunk, frozen ? 0 : rows / chunk};
    add_linear(&list, &head_names, chunk, transformer->head.words, width, chunks);
    if (last)
        add_linear(&list, &head_names, last, transformer->head.words, width, (struct product_counts){1, 1, !frozen});
    return list.count;
}
