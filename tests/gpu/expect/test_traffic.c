/* SPDX-License-Identifier: MIT
 *
 * The bytes and blocks that tools/dev gpu --expect computes are those of the real kernels, and no kernel touches more than
 * 1.1 times the bytes of its operands. Method: shapes through the .cu files on the host, which count every address of global
 * memory once a launch, and through the functions that note launches; both lists must be the same. The bytes of all launches
 * of an operation, partial sums between them too, are held against its operands. The program takes the .cu files' names:
 * every kernel of theirs must have been counted.
 */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "layers/cuda/kernels.h"
#include "streams/cuda/collective_kernels.h"
#include "streams/cuda/kernels.h"
#include "streams/state8.h"
#include "tests/gpu/expect/launch_list.h"
#include "tests/simulator/kernels/alone.h"
#include "tests/simulator/kernels/kernels.h"
#include "tests/tap/tap.h"

enum { NOTED_MAX = 32, TENSORS_MAX = 64, KERNELS_MAX = 64 };

struct noted {
    char kernel[64];
    uint64_t read, written, blocks, must;
    uint32_t threads;
};

static struct list {
    struct noted at[NOTED_MAX];
    uint32_t count;
} real, expected;
static void *tensors[TENSORS_MAX];
static uint32_t tensor_count;
static char counted[KERNELS_MAX][64]; /* kernels whose bytes were held against their operands */
static uint32_t counted_count;

static void add(struct list *list, const char *kernel, struct noted noted)
{
    if (list->count == NOTED_MAX)
        abort();
    snprintf(noted.kernel, sizeof(noted.kernel), "%s", kernel);
    list->at[list->count++] = noted;
}

/* Every launch runs twice, in two orders of its threads, and is looked at once. */
static void count_traffic(const struct kernel_traffic *t)
{
    add(&real, t->name, (struct noted){.read = t->read_bytes, .written = t->written_bytes,
                                       .blocks = (uint64_t)t->grid[0] * t->grid[1] * t->grid[2],
                                       .threads = t->block[0] * t->block[1] * t->block[2]});
}

/* A fill by CUDA itself is no kernel of ours; the operands of what follows may be noted with it. */
static uint64_t fill_must;

cudaError_t launch_note(cudaStream_t stream, struct launch l)
{
    (void)stream;
    if (l.must == 0 && fill_must > 0)
        l.must = fill_must, fill_must = 0;
    if (strcmp(l.kernel, "memset") != 0)
        add(&expected, l.kernel,
            (struct noted){.read = l.read, .written = l.written, .blocks = l.blocks, .must = l.must, .threads = l.threads});
    else
        fill_must = l.must;
    return cudaSuccess;
}

static void *tensor(uint64_t bytes)
{
    void *memory = aligned_alloc(256, launch_div_up(bytes, 256) * 256);
    if (!memory || tensor_count == TENSORS_MAX)
        abort();
    memset(memory, 0, bytes);
    alone_allow(memory, bytes);
    return tensors[tensor_count++] = memory;
}

static void *matrix(eo_dtype dtype, uint64_t rows, uint64_t width)
{
    return tensor(launch_bytes(dtype, rows * width));
}

static void note_counted(const char *kernel)
{
    for (uint32_t i = 0; i < counted_count; i++)
        if (strcmp(counted[i], kernel) == 0)
            return;
    if (counted_count == KERNELS_MAX)
        abort();
    snprintf(counted[counted_count++], sizeof(counted[0]), "%s", kernel);
}

/* An operation's launches begin with the one that its operands are noted with. */
static void bound_operations(const char *what)
{
    for (uint32_t first = 0, end; first < real.count && first < expected.count; first = end) {
        uint64_t bytes = 0;
        for (end = first; end == first || (end < real.count && end < expected.count && expected.at[end].must == 0); end++) {
            bytes += real.at[end].read + real.at[end].written;
            note_counted(real.at[end].kernel);
        }
        CHECK(10 * bytes <= 11 * expected.at[first].must, "%s, %s: %llu bytes, %.3f of its operands", what,
              real.at[first].kernel, (unsigned long long)bytes, (double)bytes / (double)expected.at[first].must);
    }
}

enum bound { EXACT, UPPER = 1 /* what depends on the data is an upper bound */, FEW_ROWS = 2 /* a single block's, which has partial sums too */ };

static void compare(const char *what, unsigned bound)
{
    const bool upper = bound & UPPER;
    CHECK(real.count == expected.count && real.count > 0, "%s: %u launches, expected %u", what, real.count, expected.count);
    for (uint32_t i = 0; i < real.count && i < expected.count; i++) {
        const struct noted *a = &real.at[i], *b = &expected.at[i];
        const bool same = a->read == b->read && a->written == b->written;
        const bool below = upper && a->read <= b->read && a->written <= b->written;
        CHECK(strcmp(a->kernel, b->kernel) == 0 && a->blocks == b->blocks && a->threads == b->threads,
              "%s: %s of %llu x %u, expected %s of %llu x %u", what, a->kernel, (unsigned long long)a->blocks, a->threads,
              b->kernel, (unsigned long long)b->blocks, b->threads);
        CHECK(same || below, "%s, %s: %llu bytes read, %llu written; expected %llu and %llu", what, a->kernel,
              (unsigned long long)a->read, (unsigned long long)a->written, (unsigned long long)b->read,
              (unsigned long long)b->written);
    }
    CHECK(alone_objections() == 0, "%s: %s", what, alone_objection());
    if (!(bound & FEW_ROWS))
        bound_operations(what);
    real.count = expected.count = 0;
    alone_allow_nothing();
    while (tensor_count > 0)
        free(tensors[--tensor_count]);
}

#define BOTH(name, ...)                                                                                               \
    do {                                                                                                              \
        extern __typeof__(eo_cuda_##name) expected_##name;                                                            \
        CHECK(eo_cuda_##name(__VA_ARGS__, NULL) == cudaSuccess && expected_##name(__VA_ARGS__, NULL) == cudaSuccess,   \
              "%s fails", #name);                                                                                     \
    } while (0)

static void elementwise(eo_dtype d, uint64_t rows, uint64_t width)
{
    const struct eo_types types = {d, EO_DTYPE_FP32};
    void *a = matrix(d, rows, width), *b = matrix(d, rows, width), *c = matrix(d, rows, width), *bias = matrix(d, 1, width);
    BOTH(residual_add, &(struct eo_residual){.types = types, .output = a, .residual = b, .bias = bias, .rows = rows,
                                             .width = width});
    eo_random_place *place = tensor(sizeof(*place));
    BOTH(dropout, &(struct eo_dropout){.types = types, .out = a, .in = a, .residual = b, .bias = bias, .place = place,
                                       .rows = rows, .width = width, .seq = 7, .probability = 0.5f});
    BOTH(gelu_forward, &(struct eo_gelu){.types = types, .out = a, .in = b, .rows = rows, .width = width});
    const struct eo_swiglu swiglu = {.types = types, .out = a, .gate = b, .up = c, .out_gradient = a, .gate_gradient = b,
                                     .up_gradient = c, .stride = width, .rows = rows, .width = width};
    BOTH(swiglu_forward, &swiglu);
    BOTH(swiglu_backward, &swiglu);
    struct eo_multiply epilogue = {.types = types, .c = a, .c_stride = width, .m = rows, .n = width, .bias = bias, .aux = b,
                                   .aux_stride = width};
    for (epilogue.epilogue = EO_EPILOGUE_BIAS; epilogue.epilogue <= EO_EPILOGUE_GELU_GRADIENT; epilogue.epilogue++)
        BOTH(epilogue, &epilogue);
    compare("element-wise", EXACT);
}

static void sums_and_norms(eo_dtype d, uint64_t rows, uint64_t width, bool centered)
{
    const struct eo_types types = {d, EO_DTYPE_FP32};
    void *a = matrix(d, rows, width), *b = matrix(d, rows, width), *c = matrix(d, rows, width), *e = matrix(d, rows, width);
    void *weight = matrix(d, 1, width), *bias = matrix(d, 1, width);
    void *branch_bias = matrix(d, 1, width), *scratch = tensor(eo_cuda_norm_scratch_bytes(rows, width));
    void *column_scratch = tensor(eo_cuda_column_scratch_bytes(rows, width));
    float *mean = tensor(rows * 4), *rstd = tensor(rows * 4);
    void *dw = matrix(EO_DTYPE_FP32, 1, width), *db = matrix(EO_DTYPE_FP32, 1, width);
    BOTH(column_sums, &(struct eo_column_sums){.types = types, .bias_gradient = db, .gradient = a, .rows = rows, .width = width,
                                               .scratch = column_scratch});
    struct eo_norm norm = {.types = types, .centered = centered, .out = b, .mean = centered ? mean : NULL, .rstd = rstd,
                           .residual = a, .weight = weight, .bias = centered ? bias : NULL, .eps = 1e-5F, .rows = rows,
                           .width = width};
    BOTH(norm_forward, &norm);
    norm.sum = c, norm.branch = e, norm.branch_bias = branch_bias;
    BOTH(norm_forward, &norm);
    struct eo_norm_gradient gradient = {.types = types, .centered = centered, .in_gradient = b, .skip_gradient = b,
                                        .out_gradient = c, .in = a, .weight = weight, .mean = centered ? mean : NULL,
                                        .rstd = rstd, .weight_gradient = dw, .bias_gradient = centered ? db : NULL,
                                        .rows = rows, .width = width, .scratch = scratch};
    BOTH(norm_backward, &gradient);
    gradient.again = c, gradient.bias = bias;
    BOTH(norm_backward, &gradient);
    gradient.skip_gradient = NULL;
    BOTH(norm_backward, &gradient);
    compare("sums and norms", rows < 40 ? FEW_ROWS : EXACT);
}

/* Sums in memory where `width` is large. Frozen weights have none. */
static void norm_backward(eo_dtype d, uint64_t rows, uint64_t width, bool frozen)
{
    void *a = matrix(d, rows, width), *b = matrix(d, rows, width), *c = matrix(d, rows, width), *weight = matrix(d, 1, width);
    void *gradient = matrix(d, 1, width);
    float *rstd = tensor(rows * 4);
    BOTH(norm_backward, &(struct eo_norm_gradient){
        .types = {d, d}, .in_gradient = b, .out_gradient = c, .in = a, .weight = weight, .rstd = rstd,
        .weight_gradient = frozen ? NULL : gradient, .rows = rows, .width = width,
        .scratch = tensor(eo_cuda_norm_scratch_bytes(rows, width))});
    compare("norm backward", EXACT);
}

/* Rows that are read again. Their sums with a branch are, too: 1.25 times the bytes. */
static void wide_norm_forward(eo_dtype d, uint64_t rows, uint64_t width)
{
    BOTH(norm_forward, &(struct eo_norm){.types = {d, d}, .out = matrix(d, rows, width), .rstd = tensor(rows * 4),
                                         .residual = matrix(d, rows, width), .weight = matrix(d, 1, width), .eps = 1e-5F,
                                         .rows = rows, .width = width});
    compare("wide norm forward", EXACT);
}

static void heads(eo_dtype d)
{
    enum { ROWS = 8192, HEADS = 4, KV = 2, SIZE = 64, SEQ = 100 };
    const struct eo_types types = {d, EO_DTYPE_FP32};
    const uint64_t width = (HEADS + KV) * SIZE;
    void *in = matrix(d, ROWS, width), *out = matrix(d, ROWS, width), *weight[2] = {matrix(d, 1, SIZE), matrix(d, 1, SIZE)};
    float *sums = tensor(2 * eo_head_norm_parts(ROWS) * SIZE * 4), *table = tensor(SEQ * SIZE * 4);
    void *dw[2] = {tensor(SIZE * 4), tensor(SIZE * 4)};
    BOTH(rotate, &(struct eo_rotation){.types = types, .values = in, .stride = width, .table = table, .rows = ROWS, .seq = SEQ,
                                       .head_count = HEADS, .head_size = SIZE});
    BOTH(head_norm_forward, &(struct eo_head_norm){.types = types, .out = out, .in = in, .weight = {weight[0], weight[1]},
        .in_stride = width, .out_stride = width, .rows = ROWS, .head_count = {HEADS, KV}, .head_size = SIZE, .eps = 1e-5F});
    BOTH(head_norm_backward, &(struct eo_head_norm_gradient){.types = types, .gradient = out, .in = in,
        .weight = {weight[0], weight[1]}, .stride = width, .in_stride = width, .rows = ROWS, .head_count = {HEADS, KV},
        .head_size = SIZE, .eps = 1e-5F, .sums = sums});
    BOTH(head_norm_weights, &(struct eo_head_norm_weights){.types = types, .weight_gradient = {dw[0], dw[1]}, .sums = sums,
                                                           .rows = ROWS, .head_size = SIZE});
    compare("heads", EXACT);
}

static void float8_operands(void)
{
    enum { M = 64, N = 48, K = 1616 };
    const struct eo_multiply product = {
        .types = {EO_DTYPE_BF16, EO_DTYPE_FP32}, .float8 = true, .m = M, .n = N, .k = K,
        .a = {matrix(EO_DTYPE_BF16, M, K), K, false}, .b = {matrix(EO_DTYPE_BF16, N, K), K, true},
        .scratch = tensor(eo_cuda_float8_scratch_bytes(M, N, K))};
    BOTH(float8_rows, &product);
    compare("operands of a float8 product", EXACT);
}

static void ends_of_a_model(eo_dtype d)
{
    enum { ROWS = 300, SEQ = 100, WIDTH = 264, WORDS = 500, STRIDE = 512 };
    const struct eo_types types = {d, EO_DTYPE_FP32};
    int32_t *tokens = tensor(ROWS * 4);
    void *table = matrix(d, WORDS, WIDTH), *positions = matrix(d, SEQ, WIDTH), *out = matrix(d, ROWS, WIDTH);
    void *dt = matrix(EO_DTYPE_FP32, WORDS, WIDTH), *dp = matrix(EO_DTYPE_FP32, SEQ, WIDTH);
    void *scratch = tensor(eo_cuda_embedding_scratch_bytes(ROWS, WIDTH, WORDS)), *logits = matrix(d, ROWS, STRIDE);
    float *losses = tensor(ROWS * 4);
    double *loss = tensor(sizeof(double)), *sum = tensor(sizeof(double));
    for (int32_t i = 0; i < ROWS; i++)
        tokens[i] = i * 7 % WORDS;
    BOTH(embedding_forward, &(struct eo_embedding){.types = types, .out = out, .tokens = tokens, .token_table = table,
                                                   .position_table = positions, .rows = ROWS, .width = WIDTH, .seq = SEQ});
    BOTH(loss_add, sum, loss, 1);
    compare("the first layer", EXACT);
    for (int adds = 0; adds < 2; adds++) {
        tokens = tensor(ROWS * 4), out = matrix(d, ROWS, WIDTH), dt = matrix(EO_DTYPE_FP32, WORDS, WIDTH);
        dp = matrix(EO_DTYPE_FP32, SEQ, WIDTH), scratch = tensor(eo_cuda_embedding_scratch_bytes(ROWS, WIDTH, WORDS));
        for (int32_t i = 0; i < ROWS; i++)
            tokens[i] = i * 7 % WORDS;
        BOTH(embedding_backward, &(struct eo_embedding_gradient){.types = types,
                                                                 .token_gradient = dt,
                                                                 .position_gradient = dp,
                                                                 .out_gradient = out,
                                                                 .tokens = tokens,
                                                                 .rows = ROWS,
                                                                 .width = WIDTH,
                                                                 .vocabulary = WORDS,
                                                                 .positions = SEQ,
                                                                 .seq = SEQ,
                                                                 .adds = adds,
                                                                 .scratch = scratch});
        compare("the gradient of the first layer", UPPER);
    }
    tokens = tensor(ROWS * 4), logits = matrix(d, ROWS, STRIDE), losses = tensor(ROWS * 4), loss = tensor(sizeof(double));
    for (int backward = 0; backward < 2; backward++)
        BOTH(cross_entropy, &(struct eo_loss){.types = types, .logits = logits, .losses = losses, .loss_sum = loss,
            .targets = tokens, .stride = STRIDE, .rows = ROWS, .vocabulary = WORDS, .scale = 1, .backward = backward});
    compare("the loss", EXACT);
}

/* Attention by products: a block of queries in the middle of a sequence. */
static void softmax(eo_dtype d)
{
    enum { HEADS = 2, QUERIES = 40, FIRST = 80, KEYS = 128, SIZE = 64, ROWS = HEADS * QUERIES };
    void *out = matrix(d, QUERIES, HEADS * SIZE), *out_gradient = matrix(d, QUERIES, HEADS * SIZE);
    void *narrow = matrix(d, 70, 300);
    float *wide = tensor(70 * 300 * 4);
    const struct eo_cuda_softmax s = {
        .scores = tensor((uint64_t)ROWS * KEYS * 4), .weights = matrix(d, ROWS, KEYS), .log_sum_exp = tensor(ROWS * 4),
        .log_sum_exp_stride = QUERIES, .heads = HEADS, .queries = QUERIES, .first = FIRST, .keys = KEYS, .scale = 1, .dtype = d};
    const struct eo_cuda_softmax_gradient g = {
        .softmax = s, .weights_gradient = tensor((uint64_t)ROWS * KEYS * 4), .scores_gradient = matrix(d, ROWS, KEYS),
        .out = out, .out_gradient = out_gradient, .out_stride = HEADS * SIZE, .out_head_stride = SIZE, .head_size = SIZE};
    BOTH(softmax_forward, &s);
    BOTH(softmax_backward, &g);
    BOTH(narrow_rows, narrow, 300, wide, 70, 300, d);
    compare("softmax", EXACT);
}

static struct eo_step_memory step_memory(void)
{
    const struct eo_step_memory step = {.scalars = tensor(sizeof(*step.scalars)), .groups = tensor(sizeof(*step.groups)),
                                        .norm = tensor(sizeof(*step.norm)), .results = tensor(sizeof(*step.results))};
    *step.scalars = (struct eo_update_scalars){.loss_scale = 1, .group_count = 1};
    *step.groups = (struct eo_group_scalars){.bias_correction1 = {1, 1}, .bias_correction2 = {1, 1}};
    *step.norm = (struct eo_norm_result){.gradient_scale = 1};
    step.results->gradient_scale = 1;
    return step;
}

uint32_t launch_group_count(const struct eo_step_memory *step)
{
    return step->scalars->group_count;
}

static void norm_of_gradients(uint32_t partial_count, uint32_t rank_count)
{
    const struct eo_step_memory step = step_memory();
    double *partials = tensor(partial_count * sizeof(double)), *out = tensor(EO_NORM_VALUES * sizeof(double));
    double *gathered = tensor(rank_count * EO_NORM_VALUES * sizeof(double)), *values = tensor(EO_STEP_VALUES * 8);
    struct eo_norm_term *terms = calloc(partial_count, sizeof(*terms));
    if (!terms)
        abort();
    for (uint32_t i = 0; i < partial_count; i++)
        terms[i].partial = partials + i;
    BOTH(norm_local, out, terms, partial_count, &step, values);
    BOTH(norm_sum, gathered, rank_count, &step);
    compare("norm of the gradients", EXACT);
    free(terms);
}

static void norm_in_parts(uint32_t layer_count, uint32_t clip_count, uint32_t rank_count)
{
    struct eo_step_memory step = step_memory();
    step.layer_count = layer_count;
    step.clip_count = clip_count;
    step.clips = tensor(clip_count * sizeof(*step.clips));
    step.layer_norms = tensor(layer_count * sizeof(*step.layer_norms));
    step.clip_results = tensor(clip_count * sizeof(*step.clip_results));
    double *gathered = tensor(rank_count * eo_norm_count(&step) * sizeof(double));
    BOTH(norm_sum, gathered, rank_count, &step);
    compare("norms by layer and by group", EXACT);
}

static void update(uint64_t count, bool split)
{
    float *gradient = tensor(count * 4), *m = tensor(count * 4), *v = tensor(count * 4);
    uint16_t *high = tensor(count * 2);
    int16_t *low = tensor(count * 2);
    double *chunks = tensor(EO_SUM_CHUNKS_MAX * sizeof(double)), *out = tensor(8 * sizeof(double));
    uint32_t *flag = tensor(sizeof(*flag));
    BOTH(fill, v, 0, count * 4);
    BOTH(check_finite, flag, gradient, count, EO_DTYPE_FP32);
    BOTH(check_finite, flag, high, count, EO_DTYPE_BF16);
    BOTH(cast_bf16, high, gradient, count);
    BOTH(accumulate, m, gradient, EO_DTYPE_FP32, false, count);
    BOTH(accumulate, m, high, EO_DTYPE_BF16, true, count);
    BOTH(sum_squares, out, chunks, gradient, count);
    BOTH(accumulate_sum_squares, out, chunks, m, high, EO_DTYPE_BF16, false, count);
    BOTH(sum_fp32, m, (const float *const[]){m, v, gradient}, 3, count);
    BOTH(sum_bf16, high, (const uint16_t *const[]){high, (uint16_t *)low}, 2, count);
    compare("sums of gradients", EXACT);
    static const char *const titles[EO_RULE_COUNT] = {"AdamW", "SGD", "Lion", "AdamW, 8 bits", "Muon", "Muon's direction"};
    for (int rule = 0; rule < EO_RULE_COUNT; rule++) {
        const struct eo_step_memory step = step_memory();
        const uint64_t whole = rule == EO_RULE_ADAMW8BIT ? count / EO_STATE8_ELEMENTS * EO_STATE8_ELEMENTS : count;
        const struct eo_update_range range = {
            .weights = split ? NULL : tensor(count * 4), .high = tensor(count * 2), .low = tensor(count * 2),
            .first_moment = tensor(count * 4), .second_moment = tensor(count * 4), .gradient = tensor(count * 4), .count = whole};
        BOTH(update_ranges, (enum eo_rule)rule, &range, 1, &step);
        /* Beside the arrays: the scalars. */
        if (real.count == 1 && real.at[0].read > expected.at[0].read && real.at[0].read - expected.at[0].read <= 128)
            real.at[0].read = expected.at[0].read;
        compare(titles[rule], EXACT);
    }
    float *sum = tensor(count * 4), *first = tensor(count * 4), *second = tensor(count * 4);
    double *squares = tensor(sizeof(*squares));
    BOTH(combine, sum, first, 2, second, 3, NULL, count);
    BOTH(combine, sum, sum, 2, NULL, 0, squares, count);
    compare("sums of matrices", EXACT);
    const struct eo_step_memory step = step_memory();
    const struct eo_average average = {.weights = split ? NULL : tensor(count * 4), .high = tensor(count * 2),
                                       .low = tensor(count * 2), .average = tensor(count * 4), .count = count};
    BOTH(average, &average, EO_AVERAGE_SWAP, step.scalars, step.norm);
    compare("average of the weights", EXACT);
}

static void float8(uint64_t count)
{
    uint16_t *wide = tensor(count * 2), *vector = tensor(96 * 2), *other = tensor(count * 2);
    uint8_t *wire = tensor(2 * count + 96 * 2);
    float *scales = tensor(2 * sizeof(float));
    uint32_t *parts = tensor(3 * EO_CUDA_FLOAT8_PARTS * sizeof(uint32_t));
    const struct eo_float8_run three[] = {{wide, wire, &scales[0], count}, {vector, wire + count, NULL, 96},
                                          {other, wire + count + 96 * 2, &scales[1], count}};
    BOTH(narrow, three, 3, parts);
    BOTH(widen, three, 3);
    compare("float8", EXACT);
    uint8_t *exponents = tensor((count + 31) / 32), *elements = tensor(count);
    const struct eo_mxfp8_run frozen[] = {{tensor(count * 4), elements, exponents, count, EO_DTYPE_FP32},
                                          {tensor(count * 2), tensor(count), tensor((count + 31) / 32), count, EO_DTYPE_BF16},
                                          {tensor(96 * 4), tensor(96 * 4), NULL, 96, EO_DTYPE_FP32},
                                          {tensor(96 * 2), tensor(96 * 2), NULL, 96, EO_DTYPE_BF16}};
    BOTH(widen_mxfp8, frozen, 4);
    compare("MXFP8", EXACT);
}

/* The name after __global__: the last word before a parenthesis that is not __launch_bounds__'s. */
static void find_kernels(const char *path)
{
    static char text[1 << 16];
    FILE *file = fopen(path, "r");
    const size_t bytes = file ? fread(text, 1, sizeof(text) - 1, file) : 0;
    if (file)
        fclose(file);
    text[bytes] = '\0';
    uint32_t found = 0;
    for (const char *at = strstr(text, "__global__"); at; at = strstr(at, "__global__")) {
        at += strlen("__global__");
        const char *bounds = strstr(at, "__launch_bounds__("), *open = strchr(at, '(');
        if (bounds && bounds < open)
            open = strchr(strchr(bounds, ')'), '(');
        const char *name = open;
        while (name && (isalnum((unsigned char)name[-1]) || name[-1] == '_'))
            name--;
        if (!name || name == open)
            continue;
        found++;
        bool is_counted = false;
        for (uint32_t i = 0; i < counted_count; i++)
            is_counted = is_counted || (strlen(counted[i]) == (size_t)(open - name) && strncmp(counted[i], name, (size_t)(open - name)) == 0);
        CHECK(is_counted, "%s: nobody has counted the bytes of %.*s", path, (int)(open - name), name);
    }
    CHECK(found > 0, "%s: no kernel found", path);
}

int main(int argc, char **argv)
{
    if (eo_cuda_load_elementwise() || eo_cuda_load_embeddings() || eo_cuda_load_head_norms() || eo_cuda_load_losses() ||
        eo_cuda_load_norms() || eo_cuda_load_softmax() || eo_cuda_load_float8_rows() || eo_cuda_kernels_load() ||
        eo_cuda_float8_load() || eo_cuda_state8_load() || eo_cuda_sum_load())
        abort();
    kernel_on_traffic = count_traffic;
    float8_operands();
    for (int d = 0; d < 2; d++) {
        const eo_dtype dtype = d ? EO_DTYPE_BF16 : EO_DTYPE_FP32;
        elementwise(dtype, 70, 264);
        elementwise(dtype, 20, 35);
        heads(dtype);
        ends_of_a_model(dtype);
        softmax(dtype);
    }
    tap_case("element-wise kernels, heads, embeddings, losses and softmax");
    for (int centered = 0; centered < 2; centered++) {
        sums_and_norms(EO_DTYPE_BF16, 1024, 264, centered); /* 37 blocks, or 77 */
        sums_and_norms(EO_DTYPE_BF16, 40, 264, centered);
        sums_and_norms(EO_DTYPE_BF16, 160, 2056, centered); /* 288 threads a block */
        sums_and_norms(EO_DTYPE_FP32, 300, 35, centered);
        sums_and_norms(EO_DTYPE_FP32, 40, 2600, centered); /* two packs a thread, or shared memory */
        sums_and_norms(EO_DTYPE_FP32, 40, 6148, centered); /* centered: sums in memory, of two blocks */
        sums_and_norms(EO_DTYPE_BF16, 5, 8800, centered);
    }
    wide_norm_forward(EO_DTYPE_FP32, 20, 12292);
    norm_backward(EO_DTYPE_FP32, 20, 12292, false); /* of two blocks */
    norm_backward(EO_DTYPE_FP32, 9, 12292, true);
    norm_backward(EO_DTYPE_BF16, 9, 264, true);
    norm_backward(EO_DTYPE_BF16, 9, 8800, true);
    tap_case("sums of columns and norms");
    update(20000, true);
    update(1003, false);
    norm_of_gradients(3, 2);
    norm_of_gradients(800, 9);
    norm_in_parts(5, 3, 4);
    tap_case("sums and norm of gradients, and AdamW");
    float8(64 * 2048);
    float8(64 * 1008);
    tap_case("weights to float8 and back");
    for (int i = 1; i < argc; i++)
        find_kernels(argv[i]);
    CHECK(argc > 1, "no files with kernels were given");
    tap_case("every kernel's bytes were counted, and are at most 1.1 times its operands'");
    return tap_end();
}
