/* SPDX-License-Identifier: MIT
 *
 * What the kernels of layers/cuda launch and touch. Operands are taken to be aligned, as in the plan.
 */
#include "layers/cuda/kernels.h"

#include "tests/gpu/expect/launch_list.h"

enum { WARP = 32, ROW_THREADS = 256, FINISH_COLUMNS = 32, FINISH_PARTS = 16, LOSS_THREADS = 512 };

static uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static uint64_t lanes_of(eo_dtype dtype, uint64_t width)
{
    const uint64_t lanes = dtype == EO_DTYPE_BF16 ? 8 : 4;
    return width % lanes == 0 ? lanes : 1;
}

static uint32_t row_threads(uint64_t packs, uint32_t most)
{
    return (uint32_t)least(launch_div_up(packs, WARP) * WARP, most);
}

/* Rows by pieces of a row, a pack of elements a thread. */
static cudaError_t by_rows(cudaStream_t stream, const char *group, const char *kernel, eo_dtype dtype, uint64_t rows,
                           uint64_t width, uint64_t read, uint64_t written)
{
    const uint64_t packs = width / lanes_of(dtype, width);
    const uint32_t threads = row_threads(packs, ROW_THREADS);
    return launch_note(stream, (struct launch){
        .group = group, .kernel = kernel, .read = read, .written = written, .must = read + written,
        .blocks = rows * launch_div_up(packs, threads), .threads = threads, .round_trips = 1});
}

/* columns.cuh: the sum of `parts` rows of partial sums, for `width` columns in all. */
static cudaError_t finish_columns(cudaStream_t stream, const char *group, eo_dtype dtype, uint64_t parts, uint64_t width)
{
    return launch_note(stream, (struct launch){
        .group = group, .kernel = "finish_columns_kernel", .read = parts * width * sizeof(float),
        .written = launch_bytes(dtype, width), .blocks = launch_div_up(width, FINISH_COLUMNS),
        .threads = FINISH_COLUMNS * FINISH_PARTS, .shared_bytes = FINISH_COLUMNS * FINISH_PARTS * sizeof(float),
        .round_trips = (double)launch_div_up(launch_div_up(parts, FINISH_PARTS), 8), .barriers = 1});
}

/* ---- elementwise.cu ---- */

cudaError_t eo_cuda_residual_add(const struct eo_residual *r, cudaStream_t stream)
{
    const uint64_t all = launch_bytes(r->types.compute, r->rows * r->width);
    return by_rows(stream, "residual sums", "residual_kernel", r->types.compute, r->rows, r->width,
                   2 * all + (r->bias ? launch_bytes(r->types.compute, r->width) : 0), all);
}

cudaError_t eo_cuda_scale(eo_dtype dtype, void *values, uint64_t count, float factor, cudaStream_t stream)
{
    enum { SCALE_THREADS = 256 };
    const uint64_t all = launch_bytes(dtype, count), packs = count / lanes_of(dtype, count);
    (void)values, (void)factor;
    return launch_note(stream, (struct launch){
        .group = "adapters", .kernel = "scale_kernel", .read = all, .written = all, .must = 2 * all,
        .blocks = launch_div_up(packs, SCALE_THREADS), .threads = SCALE_THREADS, .round_trips = 1});
}

cudaError_t eo_cuda_dropout(const struct eo_dropout *d, cudaStream_t stream)
{
    const uint64_t all = launch_bytes(d->types.compute, d->rows * d->width);
    return by_rows(stream, "dropout", "dropout_kernel", d->types.compute, d->rows, d->width,
                   (d->residual ? 2 : 1) * all + (d->bias ? launch_bytes(d->types.compute, d->width) : 0) +
                       sizeof(*d->place), all);
}

cudaError_t eo_cuda_column_sums(const struct eo_column_sums *s, cudaStream_t stream)
{
    enum { SUM_ROWS = 8, SUM_COLUMNS = 32 };
    const uint64_t most = least(s->rows, EO_CUDA_COLUMN_PARTS), wanted = least(launch_div_up(s->rows, 8 * SUM_ROWS), most);
    const uint64_t part_rows = launch_div_up(s->rows, wanted), parts = launch_div_up(s->rows, part_rows);
    const uint64_t lanes = lanes_of(s->types.compute, s->width);
    const uint64_t read = launch_bytes(s->types.compute, s->rows * s->width);
    const cudaError_t error = launch_note(stream, (struct launch){
        .group = "column sums", .kernel = "column_sums_kernel", .read = read,
        .written = parts * s->width * sizeof(float), .must = read + launch_bytes(s->types.gradient, s->width),
        .blocks = launch_div_up(s->width, SUM_COLUMNS * lanes) * parts, .threads = SUM_COLUMNS * SUM_ROWS,
        .shared_bytes = (uint32_t)(SUM_COLUMNS * SUM_ROWS * (lanes + 1) * sizeof(float)),
        .round_trips = (double)launch_div_up(launch_div_up(part_rows, SUM_ROWS), 4), .barriers = 1});
    return error == cudaSuccess ? finish_columns(stream, "column sums", s->types.gradient, parts, s->width) : error;
}

cudaError_t eo_cuda_gelu_forward(const struct eo_gelu *g, cudaStream_t stream)
{
    const uint64_t all = launch_bytes(g->types.compute, g->rows * g->width);
    return by_rows(stream, "activations", "gelu_forward_kernel", g->types.compute, g->rows, g->width,
                   all + (g->bias ? launch_bytes(g->types.compute, g->width) : 0), all);
}

cudaError_t eo_cuda_swiglu_forward(const struct eo_swiglu *s, cudaStream_t stream)
{
    const uint64_t all = launch_bytes(s->types.compute, s->rows * s->width);
    return by_rows(stream, "activations", "swiglu_forward_kernel", s->types.compute, s->rows, s->width, 2 * all, all);
}

cudaError_t eo_cuda_swiglu_backward(const struct eo_swiglu *s, cudaStream_t stream)
{
    const uint64_t all = launch_bytes(s->types.compute, s->rows * s->width);
    return by_rows(stream, "activations", "swiglu_backward_kernel", s->types.compute, s->rows, s->width, 3 * all,
                   (s->out ? 3 : 2) * all);
}

cudaError_t eo_cuda_rotate(const struct eo_rotation *r, cudaStream_t stream)
{
    const uint64_t width = (uint64_t)r->head_count * r->head_size, all = launch_bytes(r->types.compute, r->rows * width);
    return by_rows(stream, "rotary positions", "rotate_kernel", r->types.compute, r->rows, width / 2,
                   all + (uint64_t)r->seq * r->head_size * sizeof(float), all);
}

cudaError_t eo_cuda_epilogue(const struct eo_multiply *p, cudaStream_t stream)
{
    const uint64_t all = launch_bytes(p->types.compute, p->m * p->n);
    const bool slope = p->epilogue == EO_EPILOGUE_GELU_GRADIENT;
    return by_rows(stream, "activations", "epilogue_kernel", p->types.compute, p->m, p->n,
                   all + (slope ? all : launch_bytes(p->types.compute, p->n)), all);
}

cudaError_t eo_cuda_check_finite(uint32_t *flag, const void *values, uint64_t count, eo_dtype dtype, cudaStream_t stream)
{
    (void)flag, (void)values;
    const uint64_t packs = count / lanes_of(dtype, count), bytes = launch_bytes(dtype, count);
    return launch_note(stream, (struct launch){
        .group = "other", .kernel = "finite_kernel", .read = bytes, .must = bytes,
        .blocks = least(launch_div_up(packs, ROW_THREADS), 1024), .threads = ROW_THREADS, .round_trips = 1});
}

/* ---- norms.cu ---- */

cudaError_t eo_cuda_norm_forward(const struct eo_norm *n, cudaStream_t stream)
{
    const eo_dtype dtype = n->types.compute;
    const uint64_t all = launch_bytes(dtype, n->rows * n->width), stats = (n->centered ? 2 : 1) * n->rows * sizeof(float);
    const uint64_t weights = launch_bytes(eo_norm_weight_dtype(n->types, n->fp32_weights), n->width) * (1 + n->centered);
    const uint64_t vectors = weights + (n->branch_bias != NULL) * launch_bytes(dtype, n->width);
    const uint64_t packs = n->width / lanes_of(dtype, n->width);
    const uint32_t threads = row_threads(launch_div_up(packs, 4), 512);
    const bool kept = packs <= 4 * (uint64_t)threads; /* else the written sums are read again */
    const uint64_t must = (n->branch ? 2 : 1) * all + vectors;
    const uint64_t read = must + (n->branch && !kept ? all : 0);
    const uint64_t written = (n->branch ? 2 : 1) * all + stats;
    return launch_note(stream, (struct launch){
        .group = "norms forward", .kernel = kept ? "norm_forward_kernel" : "norm_forward_wide_kernel",
        .read = read, .written = written, .must = must + written, .blocks = n->rows, .threads = threads,
        .round_trips = 2, .barriers = threads == WARP ? 0 : 1 + n->centered});
}

cudaError_t eo_cuda_norm_backward(const struct eo_norm_gradient *n, cudaStream_t stream)
{
    const eo_dtype dtype = n->types.compute;
    const uint64_t all = launch_bytes(dtype, n->rows * n->width), stats = (n->centered ? 2 : 1) * n->rows * sizeof(float);
    const struct eo_cuda_norm_blocks b = eo_cuda_norm_blocks_of(n, lanes_of(dtype, n->width));
    const bool in_registers = b.sums == EO_CUDA_SUMS_IN_REGISTERS, in_memory = b.sums == EO_CUDA_SUMS_IN_MEMORY;
    const double turns = (double)launch_div_up(b.block_rows, b.groups);
    const uint64_t weights = launch_bytes(eo_norm_weight_dtype(n->types, n->fp32_weights), n->width);
    const uint64_t read = (n->skip_gradient ? 3 : 2) * all + stats + (n->again && n->centered ? 2 : 1) * weights;
    const uint64_t written = (n->again ? 2 : 1) * all;
    const uint64_t sums = (n->centered ? 2 : 1) * n->width;
    const uint64_t partials = n->weight_gradient ? b.blocks * sums * sizeof(float) : 0;
    const cudaError_t error = launch_note(stream, (struct launch){
        .group = "norms backward", .kernel = in_registers ? "norm_backward_rows_kernel" : "norm_backward_kernel",
        .read = read + (in_memory ? partials : 0), .written = written + partials,
        .must = read + written + (n->weight_gradient ? launch_bytes(n->types.gradient, sums) : 0), .blocks = b.blocks,
        .threads = b.threads * b.groups, .shared_bytes = b.shared_bytes + (in_registers ? 256 : 0),
        /* A row at a time. In registers: what is read, then the sum. Else what is summed, the sum, then skip and the rest again. */
        .round_trips = in_registers ? turns : 2 * turns, .barriers = turns + (b.groups > 1)});
    if (error != cudaSuccess || !n->weight_gradient)
        return error;
    return finish_columns(stream, "norms backward", n->types.gradient, b.blocks, sums);
}

/* ---- head_norms.cu: a warp a head ---- */

cudaError_t eo_cuda_head_norm_forward(const struct eo_head_norm *n, cudaStream_t stream)
{
    enum { WARPS = 8 };
    const uint64_t heads = n->head_count[0] + n->head_count[1];
    const uint64_t all = launch_bytes(n->types.compute, n->rows * (heads * n->head_size + n->copied));
    const uint64_t weights = launch_bytes(eo_norm_weight_dtype(n->types, n->fp32_weights), 2 * (uint64_t)n->head_size);
    return launch_note(stream, (struct launch){
        .group = "norms of heads", .kernel = "head_norm_forward_kernel", .read = all + weights, .written = all,
        .must = 2 * all + weights,
        .blocks = launch_div_up(n->rows * (heads + (n->copied != 0)), WARPS), .threads = WARPS * WARP, .round_trips = 2});
}

cudaError_t eo_cuda_head_norm_backward(const struct eo_head_norm_gradient *n, cudaStream_t stream)
{
    enum { WARPS = 16 };
    const uint64_t heads = n->head_count[0] + n->head_count[1], parts = eo_head_norm_parts(n->rows);
    const uint64_t all = launch_bytes(n->types.compute, n->rows * heads * n->head_size);
    const uint64_t sums = 2 * parts * n->head_size * sizeof(float);
    const uint64_t weights = launch_bytes(eo_norm_weight_dtype(n->types, n->fp32_weights), 2 * (uint64_t)n->head_size);
    return launch_note(stream, (struct launch){
        .group = "norms of heads", .kernel = "head_norm_backward_kernel", .read = 2 * all + weights, .written = all + sums,
        .must = 3 * all + weights, .blocks = parts, .threads = WARPS * WARP, .shared_bytes = 47 << 10,
        .round_trips = 3 * (double)launch_div_up(eo_head_norm_part_rows(n->rows) * heads, WARPS)});
}

cudaError_t eo_cuda_head_norm_weights(const struct eo_head_norm_weights *w, cudaStream_t stream)
{
    cudaError_t error = cudaSuccess;
    for (int k = 0; k < 2 && error == cudaSuccess; k++)
        error = finish_columns(stream, "norms of heads", w->types.gradient, eo_head_norm_parts(w->rows), w->head_size);
    return error;
}

/* ---- embeddings.cu ---- */

cudaError_t eo_cuda_embedding_forward(const struct eo_embedding *e, cudaStream_t stream)
{
    const uint64_t all = launch_bytes(e->types.compute, e->rows * e->width);
    const uint64_t positions = e->position_table ? launch_bytes(e->types.compute, (uint64_t)e->seq * e->width) : 0;
    return by_rows(stream, "embedding", "embedding_kernel", e->types.compute, e->rows, e->width,
                   all + positions + e->rows * sizeof(int32_t), all);
}

/* The rows of a word are read one after the other by its block: RUN stands for the most frequent word's. Words without rows
 * are zeros, or with `adds` left alone. The two gradients are sums in two orders, and each must read its rows. */
cudaError_t eo_cuda_embedding_backward(const struct eo_embedding_gradient *e, cudaStream_t stream)
{
    enum { THREADS = 256, UNROLLED = 8, RUN_BYTES = 8 };
    const eo_dtype dtype = e->types.compute, gradient = e->types.gradient;
    const uint64_t all = launch_bytes(dtype, e->rows * e->width), ids = e->rows * sizeof(int32_t);
    const uint64_t packs = e->width / lanes_of(dtype, e->width), hit = least(e->rows, e->vocabulary);
    const uint64_t table = launch_bytes(gradient, (e->adds ? hit : e->vocabulary) * e->width),
                   most_rows = launch_div_up(e->rows, 32);
    const uint64_t added = e->adds ? table : 0;
    const uint64_t positions = e->position_gradient ? launch_bytes(gradient, e->positions * e->width) : 0;
    const uint32_t threads = row_threads(packs, ROW_THREADS);
    launch_note(stream, (struct launch){.group = "embedding",
                                        .kernel = "memset",
                                        .written = e->vocabulary * RUN_BYTES,
                                        .must = table + added + all + ids,
                                        .blocks = 1024,
                                        .threads = THREADS});
    launch_note(stream, (struct launch){.group = "embedding", .kernel = "order_kernel", .read = ids,
                                        .written = ids + hit * RUN_BYTES, .blocks = launch_div_up(e->rows, THREADS),
                                        .threads = THREADS, .round_trips = (double)launch_div_up(e->rows, THREADS),
                                        .barriers = 2 * (double)launch_div_up(e->rows, THREADS)});
    const cudaError_t error =
        launch_note(stream, (struct launch){.group = "embedding",
                                            .kernel = "token_gradient_kernel",
                                            .read = all + ids + added + e->vocabulary * RUN_BYTES,
                                            .written = table,
                                            .blocks = e->vocabulary * launch_div_up(packs, threads),
                                            .threads = threads,
                                            .round_trips = 1 + (double)hit / (double)e->vocabulary *
                                                                   (2 + (double)most_rows / UNROLLED / 16)});
    if (error != cudaSuccess || !positions)
        return error;
    return launch_note(stream, (struct launch){
        .group = "embedding", .kernel = "position_gradient_kernel", .read = all, .written = positions, .must = all + positions,
        .blocks = e->positions * launch_div_up(packs, threads), .threads = threads,
        .round_trips = (double)(e->rows / e->seq)});
}

/* ---- losses.cu ---- */

cudaError_t eo_cuda_cross_entropy(const struct eo_loss *l, cudaStream_t stream)
{
    const uint64_t all = launch_bytes(l->types.compute, l->rows * l->vocabulary), row = l->rows * sizeof(float);
    const uint64_t row_packs = launch_div_up(l->vocabulary, lanes_of(l->types.compute, l->stride));
    const uint32_t threads = row_threads(row_packs, LOSS_THREADS);
    const double packs = (double)launch_div_up(row_packs, threads);
    launch_note(stream, (struct launch){
        .group = "head", .kernel = "cross_entropy_kernel", .read = all + row, .written = (l->backward ? all : 0) + row,
        .must = (l->backward ? 2 : 1) * all + 2 * row + sizeof(double), .blocks = l->rows, .threads = threads,
        .round_trips = l->backward ? 2 * packs : packs, .barriers = 2});
    return launch_note(stream, (struct launch){
        .group = "head", .kernel = "loss_sum_kernel", .read = row + sizeof(double), .written = sizeof(double), .blocks = 1,
        .threads = 1024, .round_trips = (double)launch_div_up(l->rows, 1024), .barriers = 10});
}

cudaError_t eo_cuda_loss_add(double *to, const double *loss, double factor, cudaStream_t stream)
{
    (void)to, (void)loss, (void)factor;
    return launch_note(stream, (struct launch){.group = "other", .kernel = "loss_add_kernel", .read = 16, .written = 8,
                                               .must = 24, .blocks = 1, .threads = 1, .round_trips = 1});
}

/* ---- softmax.cu: attention by products over blocks of queries ---- */

/* Scores of keys after the query are not read; their weights are written, as zeros. */
static uint64_t seen_scores(const struct eo_cuda_softmax *s)
{
    uint64_t seen = 0;
    for (uint32_t query = 0; query < s->queries; query++)
        seen += least(s->first + query + 1, s->keys);
    return seen * s->heads;
}

static cudaError_t softmax(cudaStream_t stream, const struct eo_cuda_softmax *s, const char *kernel, uint64_t read,
                           uint64_t written, uint64_t width, uint32_t passes)
{
    const uint32_t threads = row_threads(width, ROW_THREADS);
    return launch_note(stream, (struct launch){
        .group = "attention", .kernel = kernel, .read = read, .written = written, .must = read + written,
        .blocks = (uint64_t)s->heads * s->queries, .threads = threads,
        .round_trips = passes * (double)launch_div_up(s->keys, threads), .barriers = passes - 1});
}

cudaError_t eo_cuda_softmax_forward(const struct eo_cuda_softmax *s, cudaStream_t stream)
{
    const uint64_t rows = (uint64_t)s->heads * s->queries;
    return softmax(stream, s, "softmax_forward_kernel", seen_scores(s) * sizeof(float),
                   launch_bytes(s->dtype, rows * s->keys) + rows * sizeof(float), s->keys, 3);
}

cudaError_t eo_cuda_softmax_backward(const struct eo_cuda_softmax_gradient *g, cudaStream_t stream)
{
    const struct eo_cuda_softmax *s = &g->softmax;
    const uint64_t rows = (uint64_t)s->heads * s->queries;
    return softmax(stream, s, "softmax_backward_kernel",
                   2 * seen_scores(s) * sizeof(float) + launch_bytes(s->dtype, 2 * rows * g->head_size) + rows * sizeof(float),
                   launch_bytes(s->dtype, 2 * rows * s->keys), s->keys > g->head_size ? s->keys : g->head_size, 2);
}

cudaError_t eo_cuda_narrow_rows(void *to, uint64_t stride, const float *from, uint64_t rows, uint64_t width,
                                eo_dtype dtype, cudaStream_t stream)
{
    (void)to, (void)stride, (void)from;
    const uint64_t read = rows * width * sizeof(float), written = launch_bytes(dtype, rows * width);
    const uint32_t threads = row_threads(width, ROW_THREADS);
    return launch_note(stream, (struct launch){
        .group = "attention", .kernel = "narrow_rows_kernel", .read = read, .written = written, .must = read + written,
        .blocks = rows * launch_div_up(width, threads), .threads = threads, .round_trips = 1});
}

/* ---- float8_rows.cu: a block a row ---- */

cudaError_t eo_cuda_float8_rows(const struct eo_multiply *p, cudaStream_t stream)
{
    enum { FLOAT8_THREADS = 128 };
    const uint64_t rows = p->m + p->n, read = launch_bytes(EO_DTYPE_BF16, rows * p->k);
    const uint64_t written = rows * p->k + rows * sizeof(float);
    return launch_note(stream, (struct launch){
        .group = "block products", .kernel = "float8_rows_kernel", .read = read, .written = written, .must = read + written,
        .blocks = rows, .threads = FLOAT8_THREADS, .shared_bytes = FLOAT8_THREADS / WARP * sizeof(uint32_t), .round_trips = 2,
        .barriers = 1});
}

#define LOADED(name) cudaError_t eo_cuda_load_##name(void) { return cudaSuccess; }
LOADED(elementwise)
LOADED(embeddings)
LOADED(float8_rows)
LOADED(head_norms)
LOADED(losses)
LOADED(norms)
LOADED(softmax)
