/* SPDX-License-Identifier: MIT
 *
 * How fast our own kernels are, one after the other: the time of a launch, and the bytes it must read and write over that time,
 * beside a copy of the device's. The shapes are those of a model's blocks (gpt2-xl's by default).
 */
#include <stdio.h>
#include <string.h>

#include "gpu_program.h"
#include "layers/cuda/kernels.h"
#include "streams/cuda/kernels.h"

enum { WARM_UP = 3, RUNS_MAX = 1000, TENSORS = 5 };

struct bed {
    long long rows, width, mlp, vocabulary, loss_rows, parameters, runs;
    cudaStream_t stream;
    char *tensors[TENSORS];                  /* rows x mlp elements of bf16, random */
    char *weights, *scratch, *logits;        /* weights: of the widest row */
    float *mean, *rstd, *losses, *large[2];  /* large: `parameters` floats each */
    double *sum, *chunks;
    int32_t *targets;
};

static const struct eo_types types = {.compute = EO_DTYPE_BF16, .gradient = EO_DTYPE_FP32};

/* ---- a kernel each ---- */

static cudaError_t norm_forward(struct bed *b, bool centered)
{
    return eo_cuda_norm_forward(&(struct eo_norm){
        .types = types, .centered = centered, .out = b->tensors[1], .mean = b->mean, .rstd = b->rstd, .residual = b->tensors[0],
        .weight = b->weights, .bias = centered ? b->weights : NULL, .eps = 1e-5F, .rows = (uint64_t)b->rows,
        .width = (uint64_t)b->width}, b->stream);
}

static cudaError_t norm_backward(struct bed *b, bool centered)
{
    return eo_cuda_norm_backward(&(struct eo_norm_gradient){
        .types = types, .centered = centered, .in_gradient = b->tensors[3], .skip_gradient = b->tensors[2],
        .out_gradient = b->tensors[1], .in = b->tensors[0], .weight = b->weights, .mean = b->mean, .rstd = b->rstd,
        .weight_gradient = b->large[0], .bias_gradient = centered ? b->large[1] : NULL, .rows = (uint64_t)b->rows,
        .width = (uint64_t)b->width, .scratch = b->scratch}, b->stream);
}

static cudaError_t layer_norm(struct bed *b) { return norm_forward(b, true); }
static cudaError_t rms_norm(struct bed *b) { return norm_forward(b, false); }
static cudaError_t layer_norm_backward(struct bed *b) { return norm_backward(b, true); }
static cudaError_t rms_norm_backward(struct bed *b) { return norm_backward(b, false); }

static cudaError_t gelu(struct bed *b)
{
    return eo_cuda_gelu_forward(&(struct eo_gelu){
        .types = types, .out = b->tensors[1], .in = b->tensors[0], .rows = (uint64_t)b->rows, .width = (uint64_t)b->mlp}, b->stream);
}

static struct eo_swiglu swiglu_of(struct bed *b)
{
    return (struct eo_swiglu){
        .types = types, .out = b->tensors[0], .gate = b->tensors[1], .up = b->tensors[2], .out_gradient = b->tensors[0],
        .gate_gradient = b->tensors[3], .up_gradient = b->tensors[4], .stride = (uint64_t)b->mlp, .rows = (uint64_t)b->rows,
        .width = (uint64_t)b->mlp};
}

static cudaError_t swiglu(struct bed *b)
{
    const struct eo_swiglu s = swiglu_of(b);
    return eo_cuda_swiglu_forward(&s, b->stream);
}

static cudaError_t swiglu_backward(struct bed *b)
{
    const struct eo_swiglu s = swiglu_of(b);
    return eo_cuda_swiglu_backward(&s, b->stream);
}

static cudaError_t column_sums(struct bed *b)
{
    return eo_cuda_column_sums(&(struct eo_column_sums){
        .types = types, .bias_gradient = b->large[0], .gradient = b->tensors[0], .stride = (uint64_t)b->mlp,
        .rows = (uint64_t)b->rows, .width = (uint64_t)b->mlp, .scratch = b->scratch}, b->stream);
}

static cudaError_t residual(struct bed *b)
{
    return eo_cuda_residual_add(&(struct eo_residual){
        .types = types, .output = b->tensors[0], .residual = b->tensors[1], .rows = (uint64_t)b->rows,
        .width = (uint64_t)b->width}, b->stream);
}

static cudaError_t cross_entropy(struct bed *b)
{
    return eo_cuda_cross_entropy(&(struct eo_loss){
        .types = types, .logits = b->logits, .losses = b->losses, .loss_sum = b->sum, .targets = b->targets,
        .stride = (uint64_t)b->vocabulary, .rows = (uint64_t)b->loss_rows, .vocabulary = (uint64_t)b->vocabulary, .scale = 1,
        .backward = true}, b->stream);
}

static cudaError_t sum_squares(struct bed *b)
{
    return eo_cuda_sum_squares(b->sum, b->chunks, b->large[0], (uint64_t)b->parameters, b->stream);
}

static cudaError_t accumulate(struct bed *b)
{
    return eo_cuda_accumulate(b->large[0], b->large[1], EO_DTYPE_FP32, false, (uint64_t)b->parameters, b->stream);
}

static cudaError_t copy(struct bed *b)
{
    return cudaMemcpyAsync(b->large[0], b->large[1], (size_t)b->parameters * 4, cudaMemcpyDeviceToDevice, b->stream);
}

/* ---- times ---- */

/* Bytes of operands: tensors of rows x width and rows x mlp, fp32 parameters, and logits. */
static const struct kernel {
    const char *name;
    cudaError_t (*launch)(struct bed *bed);
    int widths, mlps, parameters, logits;
} kernels[] = {
    {"copy of the device", copy, .parameters = 2},
    {"LayerNorm", layer_norm, .widths = 2},
    {"LayerNorm, backward", layer_norm_backward, .widths = 4},
    {"RMSNorm", rms_norm, .widths = 2},
    {"RMSNorm, backward", rms_norm_backward, .widths = 4},
    {"GELU", gelu, .mlps = 2},
    {"SwiGLU", swiglu, .mlps = 3},
    {"SwiGLU, backward", swiglu_backward, .mlps = 6},
    {"column sums", column_sums, .mlps = 1},
    {"residual sum", residual, .widths = 3},
    {"cross-entropy", cross_entropy, .logits = 2},
    {"accumulation", accumulate, .parameters = 3},
    {"sum of squares", sum_squares, .parameters = 1},
};

static double median_us(struct bed *b, const struct kernel *kernel)
{
    double us[RUNS_MAX];
    cudaEvent_t begin, end;
    GPU_TRY(cudaEventCreate(&begin));
    GPU_TRY(cudaEventCreate(&end));
    for (long long run = -WARM_UP; run < b->runs; run++) {
        float ms = 0;
        GPU_TRY(cudaEventRecord(begin, b->stream));
        GPU_TRY(kernel->launch(b));
        GPU_TRY(cudaEventRecord(end, b->stream));
        GPU_TRY(cudaEventSynchronize(end));
        GPU_TRY(cudaEventElapsedTime(&ms, begin, end));
        if (run >= 0)
            us[run] = 1e3 * (double)ms;
    }
    GPU_TRY(cudaEventDestroy(begin));
    GPU_TRY(cudaEventDestroy(end));
    return gpu_quantile(us, (size_t)b->runs, 0.5);
}

static void measure(struct bed *b, const struct kernel *kernel)
{
    const double us = median_us(b, kernel);
    const double elements = (double)b->rows * (double)(kernel->widths * b->width + kernel->mlps * b->mlp);
    const double bytes = 2 * (elements + (double)kernel->logits * (double)b->loss_rows * (double)b->vocabulary) +
                         4.0 * kernel->parameters * (double)b->parameters;
    printf("%-22s %9.1f us  %8.1f MB  %6.2f TB/s\n", kernel->name, us, bytes * 1e-6, bytes / us * 1e-6);
    printf("{\"kernel\": \"%s\", \"us\": %.1f, \"bytes\": %.0f, \"tb_per_s\": %.3f}\n", kernel->name, us, bytes, bytes / us * 1e-6);
}

/* ---- memory ---- */

static void *filled(uint64_t count, eo_dtype dtype)
{
    enum { PIECE = 1 << 20 };
    static union { uint16_t halves[PIECE]; float floats[PIECE]; } piece;
    const uint64_t size = dtype == EO_DTYPE_BF16 ? 2 : 4;
    uint64_t state = 88172645463325252u;
    char *memory;
    GPU_TRY(cudaMalloc((void **)&memory, count * size));
    for (uint64_t i = 0; i < PIECE; i++) {
        const float value = gpu_random(&state);
        uint32_t bits;
        memcpy(&bits, &value, sizeof(bits));
        if (dtype == EO_DTYPE_BF16)
            piece.halves[i] = (uint16_t)(bits >> 16);
        else
            piece.floats[i] = value;
    }
    for (uint64_t at = 0; at < count; at += PIECE)
        GPU_TRY(cudaMemcpy(memory + at * size, &piece, (count - at < PIECE ? count - at : PIECE) * size, cudaMemcpyHostToDevice));
    return memory;
}

static void make_bed(struct bed *b)
{
    const uint64_t widest = (uint64_t)(b->mlp > b->width ? b->mlp : b->width), rows = (uint64_t)b->rows;
    for (int t = 0; t < TENSORS; t++)
        b->tensors[t] = filled(rows * widest, EO_DTYPE_BF16);
    for (int i = 0; i < 2; i++)
        b->large[i] = filled((uint64_t)b->parameters > 2 * widest ? (uint64_t)b->parameters : 2 * widest, EO_DTYPE_FP32);
    b->weights = filled(widest, EO_DTYPE_BF16);
    b->logits = filled((uint64_t)b->loss_rows * (uint64_t)b->vocabulary, EO_DTYPE_BF16);
    b->mean = filled(rows, EO_DTYPE_FP32);
    b->rstd = filled(rows, EO_DTYPE_FP32);
    b->losses = filled((uint64_t)b->loss_rows, EO_DTYPE_FP32);
    const uint64_t norms = eo_cuda_norm_scratch_bytes(rows, (uint64_t)b->width), sums = eo_cuda_column_scratch_bytes(rows, widest);
    b->scratch = filled((norms > sums ? norms : sums) / 4, EO_DTYPE_FP32);
    b->sum = filled(2, EO_DTYPE_FP32);
    b->chunks = filled(2 * EO_SUM_CHUNKS_MAX, EO_DTYPE_FP32);
    GPU_TRY(cudaMalloc((void **)&b->targets, (uint64_t)b->loss_rows * sizeof(int32_t)));
    GPU_TRY(cudaMemset(b->targets, 0, (uint64_t)b->loss_rows * sizeof(int32_t)));
    GPU_TRY(cudaStreamCreateWithFlags(&b->stream, cudaStreamNonBlocking));
    GPU_TRY(cudaDeviceSynchronize());
}

int main(int argc, char **argv)
{
    struct bed bed = {.rows = 32768, .width = 1600, .mlp = 6400, .vocabulary = 50304, .loss_rows = 4096,
                      .parameters = 30740800, .runs = 30};
    const struct gpu_option options[] = {
        {.name = "rows", .least = 1, .most = 1 << 20, .value = &bed.rows},
        {.name = "width", .least = 1, .most = 1 << 20, .value = &bed.width},
        {.name = "mlp", .least = 1, .most = 1 << 20, .value = &bed.mlp},
        {.name = "vocabulary", .least = 1, .most = 1 << 20, .value = &bed.vocabulary},
        {.name = "loss-rows", .least = 1, .most = 1 << 20, .value = &bed.loss_rows},
        {.name = "parameters", .least = 1, .most = 1 << 30, .value = &bed.parameters},
        {.name = "runs", .least = 1, .most = RUNS_MAX, .value = &bed.runs},
    };
    gpu_options(argc, argv, options, sizeof(options) / sizeof(options[0]), "times of our kernels, in bf16");
    gpu_need_device();
    make_bed(&bed);
    printf("%lld rows of %lld and %lld, %lld of %lld logits, %lld parameters; median of %lld\n", bed.rows, bed.width, bed.mlp,
           bed.loss_rows, bed.vocabulary, bed.parameters, bed.runs);
    for (size_t k = 0; k < sizeof(kernels) / sizeof(kernels[0]); k++)
        measure(&bed, &kernels[k]);
    return GPU_HELD;
}
