/* SPDX-License-Identifier: MIT
 *
 * Experiment 2: attention as the layers run it on a GPU, against the definition on the host; its speed, the memory it
 * takes, whether it gives the same bits again, and one run as a graph.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "eo_config.h"
#include "gpu_program.h"
#include "layers/cuda/internal.h"
#include "layers/kernel_ops.h"
#include "layers/team.h"
#include "sdpa_reference.h"

enum { RUNS_MAX = 1000 };
static const double limit_bf16 = 2e-2, limit_fp32 = 1e-3;

struct settings {
    long long batch, heads, kv_heads, seq, head_size, runs, repeats, rows;
    const char *dtype, *way;
};

struct check {
    const struct settings *settings;
    eo_team *team;
    const struct eo_cuda_attention_ops *way; /* the one that runs */
    bool is_asked_for;                       /* else the layers chose it */
    void *state;                             /* of a way that was asked for; it may have none */
    struct eo_attention attention;
    cudaStream_t stream;
    uint64_t rows, width, out_width; /* of the packed rows q | k | v, and of the output */
    uint64_t scratch_bytes;
    double prepare_s;
    void *kept[2]; /* host copies of one run: output, gradients */
};

static void need(eo_status status, const char *what)
{
    if (status >= 0)
        return;
    fprintf(stderr, "%s: %s\n", what, eo_status_text(status));
    exit(status == EO_ERR_UNSUPPORTED ? GPU_NOT_TRIED : GPU_FAILED);
}

static void *memory(uint64_t bytes)
{
    void *result = malloc(bytes ? bytes : 1);
    if (!result) {
        fprintf(stderr, "no memory for %llu bytes\n", (unsigned long long)bytes);
        exit(GPU_FAILED);
    }
    return result;
}

static void write_log(void *user, eo_log_level level, const char *text)
{
    (void)user;
    (void)level;
    fprintf(stderr, "%s\n", text);
}

/* --- tensors ------------------------------------------------------------------------------------------------------- */

static uint64_t element_bytes(const struct check *c)
{
    return eo_dtype_bytes(c->attention.types.compute);
}

static void *random_tensor(const struct check *c, uint64_t count, uint64_t seed)
{
    void *device, *host = memory(count * element_bytes(c));
    for (uint64_t i = 0; i < count; i++)
        eo_element_store(c->attention.types.compute, host, i, gpu_random(&seed));
    GPU_TRY(cudaMalloc(&device, count * element_bytes(c)));
    GPU_TRY(cudaMemcpy(device, host, count * element_bytes(c), cudaMemcpyHostToDevice));
    GPU_TRY(cudaDeviceSynchronize()); /* the copy may return before it has arrived, and our stream does not wait for it */
    free(host);
    return device;
}

/* A device tensor as fp32 on the host. */
static float *fetch(const struct check *c, const void *device, uint64_t count)
{
    float *result = memory(count * sizeof(float));
    void *host = memory(count * element_bytes(c));
    GPU_TRY(cudaMemcpy(host, device, count * element_bytes(c), cudaMemcpyDeviceToHost));
    for (uint64_t i = 0; i < count; i++)
        result[i] = eo_element_load(c->attention.types.compute, host, i);
    free(host);
    return result;
}

static void make_tensors(struct check *c, const struct eo_kernel_ops *kernels)
{
    const struct settings *s = c->settings;
    struct eo_attention *a = &c->attention;
    const uint64_t d = (uint64_t)s->head_size;
    c->rows = (uint64_t)s->batch * (uint64_t)s->seq;
    c->width = ((uint64_t)s->heads + 2 * (uint64_t)s->kv_heads) * d;
    c->out_width = (uint64_t)s->heads * d;
    a->shape = (struct eo_attention_shape){
        .batch = (uint32_t)s->batch, .seq = (uint32_t)s->seq, .head_count = (uint32_t)s->heads,
        .kv_head_count = (uint32_t)s->kv_heads, .head_size = (uint32_t)s->head_size, .q_stride = c->width,
        .kv_stride = c->width, .out_stride = c->out_width,
    };
    char *packed = random_tensor(c, c->rows * c->width, 11), *gradients;
    GPU_TRY(cudaMalloc((void **)&gradients, c->rows * c->width * element_bytes(c)));
    const uint64_t k_at = c->out_width * element_bytes(c), v_at = k_at + (uint64_t)s->kv_heads * d * element_bytes(c);
    a->q = packed;
    a->k = packed + k_at;
    a->v = packed + v_at;
    a->q_gradient = gradients;
    a->k_gradient = gradients + k_at;
    a->v_gradient = gradients + v_at;
    a->out_gradient = random_tensor(c, c->rows * c->out_width, 12);
    GPU_TRY(cudaMalloc(&a->out, c->rows * c->out_width * element_bytes(c)));
    GPU_TRY(cudaMalloc((void **)&a->log_sum_exp, (uint64_t)s->heads * c->rows * sizeof(float)));
    c->scratch_bytes = kernels->attention_scratch_bytes(a->types, &a->shape, 1);
    GPU_TRY(cudaMalloc(&a->scratch, c->scratch_bytes ? c->scratch_bytes : 1));
    c->kept[0] = memory(c->rows * c->out_width * element_bytes(c));
    c->kept[1] = memory(c->rows * c->width * element_bytes(c));
}

/* --- runs ---------------------------------------------------------------------------------------------------------- */

static eo_status forward(struct check *c)
{
    return c->is_asked_for ? c->way->forward(eo_cuda_team_of(c->team), c->state, &c->attention)
                           : eo_cuda_attention_forward(c->team, &c->attention);
}

static eo_status backward(struct check *c)
{
    return c->is_asked_for ? c->way->backward(eo_cuda_team_of(c->team), c->state, &c->attention)
                           : eo_cuda_attention_backward(c->team, &c->attention);
}

static void clear(struct check *c)
{
    GPU_TRY(cudaMemsetAsync(c->attention.out, 0xff, c->rows * c->out_width * element_bytes(c), c->stream));
    GPU_TRY(cudaMemsetAsync(c->attention.q_gradient, 0xff, c->rows * c->width * element_bytes(c), c->stream));
}

static void prepare(struct check *c)
{
    struct eo_cuda_team *team = eo_cuda_team_of(c->team);
    const double start = gpu_now_s();
    if (strcmp(c->settings->way, "auto") == 0) {
        need(eo_cuda_attention_prepare(c->team, &c->attention), "attention");
        c->way = team->attentions[0]->ops;
    } else {
        c->is_asked_for = true;
        c->way = &eo_cuda_attention_blocks_ops;
#if EO_HAVE_CUDNN
        if (strcmp(c->settings->way, "cudnn") == 0)
            c->way = &eo_cuda_attention_cudnn_ops;
#endif
        if (!c->way->supports(c->attention.types, &c->attention.shape)) {
            fprintf(stderr, "%s does not take this shape and type\n", c->way->name);
            exit(GPU_NOT_TRIED);
        }
        need(c->way->prepare(team, c->attention.types, &c->attention.shape, &c->state), c->way->name);
    }
    c->prepare_s = gpu_now_s() - start;
}

static void keep(struct check *c)
{
    GPU_TRY(cudaStreamSynchronize(c->stream));
    GPU_TRY(cudaMemcpy(c->kept[0], c->attention.out, c->rows * c->out_width * element_bytes(c),
                       cudaMemcpyDeviceToHost));
    GPU_TRY(cudaMemcpy(c->kept[1], c->attention.q_gradient, c->rows * c->width * element_bytes(c),
                       cudaMemcpyDeviceToHost));
}

/* Whether output [0] and gradients [1] have the bits that were kept. */
static void compare_bits(struct check *c, bool same[2])
{
    const uint64_t bytes[2] = {c->rows * c->out_width * element_bytes(c), c->rows * c->width * element_bytes(c)};
    const void *device[2] = {c->attention.out, c->attention.q_gradient};
    GPU_TRY(cudaStreamSynchronize(c->stream));
    for (int i = 0; i < 2; i++) {
        void *host = memory(bytes[i]);
        GPU_TRY(cudaMemcpy(host, device[i], bytes[i], cudaMemcpyDeviceToHost));
        same[i] = same[i] && memcmp(host, c->kept[i], bytes[i]) == 0;
        free(host);
    }
}

static struct sdpa_errors errors_of(struct check *c)
{
    const struct eo_attention_shape *s = &c->attention.shape;
    const uint64_t k_at = c->out_width, v_at = k_at + (uint64_t)s->kv_head_count * s->head_size;
    float *packed = fetch(c, c->attention.q, c->rows * c->width);
    float *gradients = fetch(c, c->attention.q_gradient, c->rows * c->width);
    float *out = fetch(c, c->attention.out, c->rows * c->out_width);
    float *out_gradient = fetch(c, c->attention.out_gradient, c->rows * c->out_width);
    float *log_sum_exp = memory((uint64_t)s->head_count * c->rows * sizeof(float));
    GPU_TRY(cudaMemcpy(log_sum_exp, c->attention.log_sum_exp, (uint64_t)s->head_count * c->rows * sizeof(float),
                       cudaMemcpyDeviceToHost));
    const struct sdpa_host host = {
        .shape = *s, .q = packed, .k = packed + k_at, .v = packed + v_at, .out_gradient = out_gradient, .out = out,
        .log_sum_exp = log_sum_exp, .q_gradient = gradients, .k_gradient = gradients + k_at,
        .v_gradient = gradients + v_at,
    };
    const struct sdpa_errors errors = sdpa_compare(&host, (uint32_t)c->settings->rows);
    free(packed);
    free(gradients);
    free(out);
    free(out_gradient);
    free(log_sum_exp);
    return errors;
}

static bool within(const struct sdpa_errors *e, double limit)
{
    return e->out <= limit && e->log_sum_exp <= limit && e->q_gradient <= limit && e->k_gradient <= limit &&
           e->v_gradient <= limit;
}

/* Median milliseconds of one direction, after a fifth as many runs to warm up. */
static double time_ms(struct check *c, eo_status (*direction)(struct check *c))
{
    static double times[RUNS_MAX];
    cudaEvent_t begin, end;
    GPU_TRY(cudaEventCreate(&begin));
    GPU_TRY(cudaEventCreate(&end));
    for (int i = 0; i < (int)c->settings->runs / 5; i++)
        need(direction(c), "attention");
    for (int i = 0; i < (int)c->settings->runs; i++) {
        float ms = 0;
        GPU_TRY(cudaEventRecord(begin, c->stream));
        need(direction(c), "attention");
        GPU_TRY(cudaEventRecord(end, c->stream));
        GPU_TRY(cudaEventSynchronize(end));
        GPU_TRY(cudaEventElapsedTime(&ms, begin, end));
        times[i] = (double)ms;
    }
    GPU_TRY(cudaEventDestroy(begin));
    GPU_TRY(cudaEventDestroy(end));
    return gpu_quantile(times, (size_t)c->settings->runs, 0.5);
}

/* Forward and backward as one graph, launched once. */
static void run_captured(struct check *c)
{
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    clear(c);
    GPU_TRY(cudaStreamBeginCapture(c->stream, cudaStreamCaptureModeThreadLocal));
    need(forward(c), "attention, captured");
    need(backward(c), "attention, captured");
    GPU_TRY(cudaStreamEndCapture(c->stream, &graph));
    GPU_TRY(cudaGraphInstantiateWithFlags(&exec, graph, 0));
    GPU_TRY(cudaGraphLaunch(exec, c->stream));
    GPU_TRY(cudaStreamSynchronize(c->stream));
    GPU_TRY(cudaGraphExecDestroy(exec));
    GPU_TRY(cudaGraphDestroy(graph));
}

static void create(struct check *c)
{
    static const eo_log log = {.write = write_log, .level = EO_LOG_INFO};
    const struct eo_team_backend *backend = eo_team_backend_find("cuda", &(const char *){NULL});
    c->attention.types = (struct eo_types){
        .compute = strcmp(c->settings->dtype, "fp32") == 0 ? EO_DTYPE_FP32 : EO_DTYPE_BF16, .gradient = EO_DTYPE_FP32};
    if (!backend) {
        fprintf(stderr, "the layers were built without CUDA\n");
        exit(GPU_NOT_TRIED);
    }
    GPU_TRY(cudaStreamCreateWithFlags(&c->stream, cudaStreamNonBlocking));
    need(eo_team_create_on(&c->team, eo_team_params(.device = "cuda", .stream = c->stream, .log = &log)), "a team");
    const struct eo_kernel_ops *kernels =
        eo_team_backend_kernels(backend, c->attention.types.compute, c->attention.types.gradient);
    need(kernels ? EO_OK : EO_ERR_UNSUPPORTED, "kernels");
    make_tensors(c, kernels);
}

int main(int argc, char **argv)
{
    struct settings s = {.batch = 1, .heads = 4, .kv_heads = 0, .seq = 256, .head_size = 64, .runs = 100,
                         .repeats = 10, .rows = 96, .dtype = "bf16", .way = "auto"};
    const struct gpu_option options[] = {
        {.name = "batch", .least = 1, .most = 1024, .value = &s.batch},
        {.name = "heads", .least = 1, .most = 256, .value = &s.heads},
        {.name = "kv-heads", .least = 0, .most = 256, .value = &s.kv_heads},
        {.name = "seq", .least = 1, .most = 65536, .value = &s.seq},
        {.name = "head-size", .least = 1, .most = 512, .value = &s.head_size},
        {.name = "runs", .least = 1, .most = RUNS_MAX, .value = &s.runs},
        {.name = "repeats", .least = 1, .most = 1000, .value = &s.repeats},
        {.name = "rows", .least = 1, .most = 65536, .value = &s.rows},
        {.name = "dtype", .text = &s.dtype},
        {.name = "way", .text = &s.way},
    };
    gpu_options(argc, argv, options, sizeof(options) / sizeof(options[0]),
                "attention on a GPU against the definition; --dtype bf16|fp32, --way auto|cudnn|blocks");
    if (s.kv_heads == 0)
        s.kv_heads = s.heads;
    if (s.heads % s.kv_heads != 0) {
        fprintf(stderr, "--kv-heads %lld does not divide --heads %lld\n", s.kv_heads, s.heads);
        return GPU_NOT_TRIED;
    }
    gpu_need_device();
    struct check c = {.settings = &s};
    create(&c);
    prepare(&c);

    clear(&c);
    need(forward(&c), "attention");
    need(backward(&c), "attention");
    keep(&c);
    const double limit = c.attention.types.compute == EO_DTYPE_FP32 ? limit_fp32 : limit_bf16;
    const struct sdpa_errors errors = errors_of(&c);
    bool same[2] = {true, true}, captured_same[2] = {true, true};
    for (int i = 0; i < (int)s.repeats; i++) {
        clear(&c);
        need(forward(&c), "attention");
        need(backward(&c), "attention");
        compare_bits(&c, same);
    }
    run_captured(&c);
    compare_bits(&c, captured_same);
    const struct sdpa_errors captured = errors_of(&c);
    const double forward_ms = time_ms(&c, forward), backward_ms = time_ms(&c, backward);
    /* Two products forward and five backward, of which causal attention needs half. */
    const double product = (double)s.batch * (double)s.heads * (double)s.seq * (double)s.seq * (double)s.head_size;
    const double forward_tflops = 2 * product / forward_ms * 1e-9, backward_tflops = 5 * product / backward_ms * 1e-9;

    const bool repeats = same[0] && captured_same[0] && (!c.way->repeatable || (same[1] && captured_same[1]));
    const bool held = within(&errors, limit) && within(&captured, limit) && repeats;
    printf("attention by %s, %s, %lld x %lld tokens, %lld heads (%lld of keys) of %lld:\n", c.way->name, s.dtype,
           s.batch, s.seq, s.heads, s.kv_heads, s.head_size);
    printf("  largest error over largest value, of %llu rows: out %.2e, log-sum-exp %.2e, dq %.2e, dk %.2e, dv %.2e "
           "(limit %.0e)\n", (unsigned long long)errors.row_count, errors.out, errors.log_sum_exp, errors.q_gradient,
           errors.k_gradient, errors.v_gradient, limit);
    printf("  forward %.3f ms, %.0f TFLOP/s; backward %.3f ms, %.0f TFLOP/s; plans made in %.2f s; scratch %.1f MiB\n",
           forward_ms, forward_tflops, backward_ms, backward_tflops, c.prepare_s,
           (double)c.scratch_bytes / (1 << 20));
    printf("  the same bits in %lld runs: forward %s, backward %s; as a graph: forward %s, backward %s%s\n", s.repeats,
           same[0] ? "yes" : "NO", same[1] ? "yes" : "no", captured_same[0] ? "yes" : "NO",
           captured_same[1] ? "yes" : "no", c.way->repeatable ? "" : " (backward's order is not promised)");
    printf("{\"experiment\": \"E2\", \"way\": \"%s\", \"dtype\": \"%s\", \"batch\": %lld, \"heads\": %lld, "
           "\"kv_heads\": %lld, \"seq\": %lld, \"head_size\": %lld, \"out_error\": %.3e, \"dq_error\": %.3e, "
           "\"dk_error\": %.3e, \"dv_error\": %.3e, \"forward_ms\": %.4f, \"backward_ms\": %.4f, "
           "\"forward_tflops\": %.1f, \"backward_tflops\": %.1f, \"scratch_bytes\": %llu, \"plan_s\": %.3f, "
           "\"forward_repeats\": %s, \"backward_repeats\": %s, \"held\": %s}\n",
           c.way->name, s.dtype, s.batch, s.heads, s.kv_heads, s.seq, s.head_size, errors.out, errors.q_gradient,
           errors.k_gradient, errors.v_gradient, forward_ms, backward_ms, forward_tflops, backward_tflops,
           (unsigned long long)c.scratch_bytes, c.prepare_s, same[0] ? "true" : "false", same[1] ? "true" : "false",
           held ? "true" : "false");
    return held ? GPU_HELD : GPU_FAILED;
}
