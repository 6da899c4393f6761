/* SPDX-License-Identifier: MIT
 *
 * The list of a step's launches, as JSON: a line for the model, then one for each launch, in order of issue. The real
 * layers, runtime and plan run on a simulated GPU and record one step as a graph; the kernels note themselves instead of
 * running (launch_list.h), so models are as large as on a GPU, and no memory is touched.
 *
 *     step_launches --model gpt2-xl --batch 8 --seq 1024
 */
#include <evenodd/evenodd.h>
#include <evenodd/layers.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "layers/cuda/internal.h"
#include "tests/gpu/expect/launch_list.h"
#include "tests/gpu/gpu_program.h"
#include "tests/simulator/cuda/sim.h"

enum { STEPS = 3 /* the first, a steady one, and the one that is recorded */, SMALL_COPY_BYTES = 1 << 20 };

static eo_transformer_config config;
static eo_transformer *transformer;
static eo_plan *plan;
static eo_world *world;
static eo_runtime *runtime;
static cudaStream_t compute;
static bool listening;
static long long batch = 1, seq, fp32, reduce_bf16, chunks = 1;
static const char *model = "gpt2", *recompute = "none";

/* ---- what is noted ---- */

cudaError_t launch_note(cudaStream_t stream, struct launch l)
{
    if (!listening)
        return cudaSuccess;
    printf("{\"group\": \"%s\", \"kernel\": \"%s\", \"beside\": %s, \"read\": %llu, \"written\": %llu, \"must\": %llu, "
           "\"blocks\": %llu, \"threads\": %u, \"shared\": %u, \"round_trips\": %g, \"barriers\": %g, \"double_adds\": %g",
           l.group, l.kernel, stream == compute ? "false" : "true", (unsigned long long)l.read,
           (unsigned long long)l.written, (unsigned long long)l.must, (unsigned long long)l.blocks, l.threads,
           l.shared_bytes, l.round_trips, l.barriers, l.double_adds);
    if (l.flops > 0)
        printf(", \"m\": %llu, \"n\": %llu, \"k\": %llu, \"flops\": %.0f, \"backward\": %s, \"head_size\": %u",
               (unsigned long long)l.m, (unsigned long long)l.n, (unsigned long long)l.k, l.flops,
               l.backward ? "true" : "false", l.head_size);
    printf("}\n");
    return cudaSuccess;
}

static cudaError_t note_copy(const char *kernel, uint64_t read, uint64_t written, cudaStream_t stream)
{
    const bool collective = stream != compute;
    return launch_note(stream, (struct launch){
        .group = collective ? "gathers and reductions" : "other", .kernel = kernel, .read = read, .written = written,
        .must = read + written, .blocks = 1024, .threads = 256, .round_trips = 1});
}

/* Numbers of the runtime are small, and are copied; weights have no contents here. */
cudaError_t __real_cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind, cudaStream_t stream);
cudaError_t __wrap_cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind, cudaStream_t stream);
cudaError_t __wrap_cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind, cudaStream_t stream)
{
    if (kind == cudaMemcpyDeviceToDevice)
        (void)note_copy("copy", bytes, bytes, stream);
    return bytes <= SMALL_COPY_BYTES ? __real_cudaMemcpyAsync(to, from, bytes, kind, stream) : cudaSuccess;
}

cudaError_t __real_cudaMemsetAsync(void *memory, int value, size_t bytes, cudaStream_t stream);
cudaError_t __wrap_cudaMemsetAsync(void *memory, int value, size_t bytes, cudaStream_t stream);
cudaError_t __wrap_cudaMemsetAsync(void *memory, int value, size_t bytes, cudaStream_t stream)
{
    (void)note_copy("memset", 0, bytes, stream);
    return bytes <= SMALL_COPY_BYTES ? __real_cudaMemsetAsync(memory, value, bytes, stream) : cudaSuccess;
}

static const char *product_group(const struct eo_product_key *key)
{
    const uint64_t multiple = eo_kernels_cuda_ops.word_multiple, words = launch_div_up(config.vocabulary, multiple) * multiple;
    return key->batch > 1 ? "attention" : key->m == words || key->n == words || key->k == words ? "head" : "block products";
}

cublasStatus_t __wrap_eo_cuda_plan_run(struct eo_cuda_team *team, struct eo_product_plan *product, const void *a,
                                       const void *b, const void *added, void *c);
cublasStatus_t __wrap_eo_cuda_plan_run(struct eo_cuda_team *team, struct eo_product_plan *product, const void *a,
                                       const void *b, const void *added, void *c)
{
    const struct eo_product_key *key = &product->key;
    const enum eo_epilogue epilogue = product->fused ? (enum eo_epilogue)key->epilogue : EO_EPILOGUE_NONE;
    const eo_dtype value_type = eo_product_value_type(key);
    const uint64_t out = launch_bytes((eo_dtype)key->result, key->m * key->n);
    uint64_t read = launch_bytes((eo_dtype)key->compute, (key->m + key->n) * key->k), written = out;
    (void)a, (void)b, (void)added, (void)c;
    if (key->accumulate)
        read += out;
    if (epilogue == EO_EPILOGUE_BIAS)
        read += launch_bytes(value_type, key->n);
    if (epilogue == EO_EPILOGUE_BIAS_GRADIENT)
        written += eo_product_bias_bytes(key);
    if (epilogue == EO_EPILOGUE_GELU_GRADIENT)
        read += launch_bytes(value_type, key->m * key->n);
    (void)launch_note(team->stream, (struct launch){
        .group = product_group(key), .kernel = "cublasLtMatmul", .read = key->batch * read, .written = key->batch * written,
        .must = key->batch * (read + written), .m = key->m, .n = key->n, .k = key->k,
        .flops = 2.0 * (double)key->m * (double)key->n * (double)key->k * (double)key->batch});
    return CUBLAS_STATUS_SUCCESS;
}

/* ---- attention by cuDNN, without cuDNN: a way of its name ---- */

static bool cudnn_supports(struct eo_types types, const struct eo_attention_shape *shape)
{
    return types.compute == EO_DTYPE_BF16 && shape->head_size % 8 == 0 && shape->head_size <= 256;
}

static eo_status no_plan(struct eo_cuda_team *team, struct eo_types types, const struct eo_attention_shape *shape, void **state)
{
    (void)team, (void)types, (void)shape;
    *state = NULL;
    return EO_OK;
}

static void no_release(struct eo_cuda_team *team, void *state)
{
    (void)team, (void)state;
}

/* Backward: five products for forward's two; the gradient of queries is summed in fp32 first. */
static eo_status note_attention(const struct eo_cuda_team *team, const struct eo_attention *attention, bool backward)
{
    const struct eo_attention_shape *s = &attention->shape;
    const uint64_t rows = (uint64_t)s->batch * s->seq, sums = rows * s->head_count * sizeof(float);
    const uint64_t q = launch_bytes(EO_DTYPE_BF16, rows * s->head_count * s->head_size);
    const uint64_t kv = launch_bytes(EO_DTYPE_BF16, 2 * rows * s->kv_head_count * s->head_size), q_sum = 2 * q;
    const double flops = 2.0 * (double)rows * s->seq * s->head_count * s->head_size * (backward ? 2.5 : 1);
    const uint64_t read = backward ? 3 * q + kv + sums : q + kv, written = backward ? q + kv : q + sums;
    (void)launch_note(team->stream, (struct launch){
        .group = "attention", .kernel = backward ? "attention backward" : "attention forward",
        .read = read + (backward ? q_sum : 0), .written = written + (backward ? q_sum : 0), .must = read + written,
        .flops = flops, .backward = backward, .head_size = s->head_size});
    return EO_OK;
}

static eo_status forward(struct eo_cuda_team *team, void *state, const struct eo_attention *attention)
{
    (void)state;
    return note_attention(team, attention, false);
}

static eo_status backward(struct eo_cuda_team *team, void *state, const struct eo_attention *attention)
{
    (void)state;
    return note_attention(team, attention, true);
}

const struct eo_cuda_attention_ops eo_cuda_attention_cudnn_ops = {
    .name = "cuDNN, noted", .supports = cudnn_supports, .prepare = no_plan,
    .release = no_release, .forward = forward, .backward = backward,
};

/* ---- the step ---- */

static void say(void *user, eo_log_level level, const char *text)
{
    (void)user, (void)level;
    fprintf(stderr, "step_launches: %s\n", text);
}

static const eo_log errors = {say, NULL, EO_LOG_ERROR};

#define MUST(call)                                                                                                    \
    do {                                                                                                              \
        const eo_status must_status = (call);                                                                         \
        if (must_status < 0) {                                                                                        \
            fprintf(stderr, "step_launches: %s: %s %s\n", #call, eo_status_text(must_status),                         \
                    runtime ? eo_runtime_error(runtime) : "");                                                        \
            exit(GPU_FAILED);                                                                                         \
        }                                                                                                             \
    } while (0)

static eo_transformer_params transformer_params(void)
{
    eo_transformer_params p = {.config = config, .batch = (uint32_t)batch, .seq = (uint32_t)seq,
                               .head_chunks = (uint32_t)chunks, .dtype = fp32 ? EO_DTYPE_FP32 : EO_DTYPE_BF16,
                               .reduce_dtype = reduce_bf16 ? EO_DTYPE_BF16 : EO_DTYPE_FP32, .device = "cuda", .log = &errors};
    if (strcmp(recompute, "cheap") == 0)
        p.recompute = EO_RECOMPUTE_CHEAP;
    if (strcmp(recompute, "blocks") == 0) {
        p.recompute = EO_RECOMPUTE_BLOCKS;
        p.recompute_blocks = config.layer_count;
    }
    return p;
}

static void *train(void *unused)
{
    eo_team *team = NULL;
    const uint64_t count = (uint64_t)batch * (uint64_t)seq;
    int32_t *tokens = calloc(count, sizeof(*tokens));
    const eo_tokens given = {.tokens = tokens, .targets = tokens};
    if (!tokens)
        exit(GPU_FAILED);
    MUST(eo_runtime_create(&runtime, eo_runtime_params(.plan = plan, .world = world, .log = &errors)));
    compute = eo_runtime_stream(runtime);
    MUST(eo_team_create_on(&team, eo_team_params(.device = "cuda", .stream = compute, .log = &errors)));
    MUST(eo_transformer_prepare(transformer, runtime, team));
    MUST(eo_transformer_load(transformer, runtime, &given));
    for (int step = 0; step < STEPS; step++) {
        eo_step_report report;
        listening = step == STEPS - 1;
        if (listening)
            MUST(eo_step_capture(runtime));
        MUST(eo_step_begin(runtime));
        MUST(eo_transformer_micro_batch(transformer, runtime, team, &(eo_tokens){.slot = 0}, NULL));
        MUST(eo_step_end(runtime, eo_step_params(.learning_rate = 1e-4F, .weight_decay = 0.1F, .clip = 1), &report));
        listening = false;
    }
    eo_team_destroy(&team);
    eo_runtime_destroy(&runtime);
    free(tokens);
    return unused;
}

/* Nothing is behind the addresses here. A model has two: with weight decay, and without. */
uint32_t launch_group_count(const struct eo_step_memory *step)
{
    (void)step;
    return 2;
}

int main(int argc, char **argv)
{
    const struct gpu_option options[] = {
        {.name = "model", .text = &model}, {.name = "batch", .least = 1, .most = 4096, .value = &batch},
        {.name = "seq", .least = 0, .most = 1 << 20, .value = &seq}, {.name = "fp32", .least = 0, .most = 1, .value = &fp32},
        {.name = "reduce-bf16", .least = 0, .most = 1, .value = &reduce_bf16},
        {.name = "head-chunks", .least = 1, .most = 64, .value = &chunks}, {.name = "recompute", .text = &recompute}};
    void *arguments[1] = {NULL};
    gpu_options(argc, argv, options, sizeof(options) / sizeof(options[0]),
                "The launches of a training step, one rank, as JSON; nothing runs. seq 0: the model's context.");
    if (eo_transformer_preset(model, &config) < 0) {
        fprintf(stderr, "step_launches: no model '%s'; the presets are those of train --help\n", model);
        return GPU_NOT_TRIED;
    }
    if (strcmp(recompute, "none") != 0 && strcmp(recompute, "cheap") != 0 && strcmp(recompute, "blocks") != 0) {
        fprintf(stderr, "step_launches: --recompute is none, cheap or blocks, not '%s'\n", recompute);
        return GPU_NOT_TRIED;
    }
    seq = seq ? seq : config.context;
    sim_start(&(struct sim_config){.seed = 1, .policy = SIM_EAGER, .device_count = 1, .untouched = true,
                                   .device_bytes = (uint64_t)1 << 37});
    const eo_transformer_params params = transformer_params();
    MUST(eo_transformer_create(&transformer, &params));
    MUST(eo_plan_create(&plan, eo_transformer_model(transformer),
                        eo_plan_params(.rank_count = 1, .micro_batches = 1, .dtype = params.dtype,
                                       .reduce_dtype = params.reduce_dtype, .norms_beside = true, .log = &errors)));
    MUST(eo_world_create_local(&world, eo_world_params(.rank_count = 1, .device = "cuda", .timeout_ms = 60000,
                                                       .log = &errors)));
    printf("{\"model\": \"%s\", \"batch\": %lld, \"seq\": %lld, \"dtype\": \"%s\", \"useful_flops\": %.0f}\n", model, batch,
           seq, fp32 ? "fp32" : "bf16", eo_transformer_flops(transformer));
    sim_run_ranks(1, train, arguments);
    eo_world_destroy(&world);
    eo_plan_destroy(&plan);
    eo_transformer_destroy(&transformer);
    const uint32_t objections = sim_finish();
    if (objections)
        fprintf(stderr, "step_launches: the simulator objects %u times, first: %s\n", objections, sim_violation(0));
    return objections ? GPU_FAILED : 0;
}
