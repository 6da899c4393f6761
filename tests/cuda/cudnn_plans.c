/* SPDX-License-Identifier: MIT
 *
 * The attention graphs are ones that cuDNN has flash attention for, and their workspaces fit into what is placed for them.
 * Method: the plans of every shape are built by the real cuDNN for an H200 that is described by a text; a stand-in for the
 * driver's library must be found first (LD_LIBRARY_PATH). No GPU is needed, and nothing runs on one.
 *
 * Usage: cudnn_plans H200.json
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "layers/cuda/attention/graphs.h"
#include "layers/cuda/internal.h"

static void print_log(void *user, eo_log_level level, const char *text)
{
    (void)user, (void)level;
    printf("  %s\n", text);
}

static const eo_log test_log = {print_log, NULL, EO_LOG_DEBUG};

static cudnnBackendDescriptor_t read_properties(const char *path)
{
    static char text[65536];
    cudnnBackendDescriptor_t properties = NULL;
    FILE *file = fopen(path, "r");
    const size_t bytes = file ? fread(text, 1, sizeof(text), file) : 0;
    if (file)
        fclose(file);
    const bool good =
        bytes > 0 &&
        cudnnBackendCreateDescriptor(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR, &properties) == CUDNN_STATUS_SUCCESS &&
        cudnnBackendSetAttribute(properties, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR,
                                 (int64_t)bytes, text) == CUDNN_STATUS_SUCCESS &&
        cudnnBackendFinalize(properties) == CUDNN_STATUS_SUCCESS;
    return good ? properties : NULL;
}

struct plan_case {
    struct eo_attention_shape shape;
    uint32_t forward_operations, backward_operations;
};

/* q, k and v side by side in a row, as the models have them. */
static struct eo_attention_shape packed(uint32_t batch, uint32_t heads, uint32_t kv_heads, uint32_t seq, uint32_t size)
{
    const uint64_t row = (uint64_t)(heads + 2 * kv_heads) * size;
    return (struct eo_attention_shape){.batch = batch,
                                       .seq = seq,
                                       .head_count = heads,
                                       .kv_head_count = kv_heads,
                                       .head_size = size,
                                       .q_stride = row,
                                       .kv_stride = row,
                                       .out_stride = (uint64_t)heads * size};
}

/* `limit`: what the workspace may take. */
static int build(const char *name, void (*describe)(struct eo_cudnn_graph *, const struct eo_attention_shape *),
                 const struct eo_attention_shape *shape, cudnnBackendDescriptor_t properties, uint64_t limit,
                 uint32_t operations)
{
    static struct eo_cudnn_graph graph;
    struct eo_cudnn_plan plan;
    eo_cudnn_graph_begin(&graph, &test_log, name);
    describe(&graph, shape);
    const uint32_t described = graph.operation_count;
    const eo_status status = eo_cudnn_plan_build(&graph, properties, limit, &plan);
    eo_cudnn_graph_end(&graph);
    printf("%s, batch %u, heads %u/%u of %u, seq %u: %u operations, status %d, workspace %llu\n", name, shape->batch,
           shape->head_count, shape->kv_head_count, shape->head_size, shape->seq, described, status,
           (unsigned long long)plan.workspace_bytes);
    eo_cudnn_plan_release(&plan);
    return status == EO_OK && described == operations ? 0 : 1;
}

int main(int argc, char **argv)
{
    if (eo_cudnn_load(&test_log) < 0)
        return 2;
    cudnnBackendDescriptor_t properties = argc > 1 ? read_properties(argv[1]) : NULL;
    if (!properties) {
        fprintf(stderr, "usage: cudnn_plans H200.json (one whose keys are complete)\n");
        return 2;
    }
    const struct plan_case cases[] = {
        {packed(2, 16, 16, 1024, 64), 14, 22},  {packed(1, 25, 25, 1024, 64), 14, 22},
        {packed(1, 12, 12, 512, 96), 14, 22},   {packed(2, 32, 8, 4096, 128), 14, 24},
        {packed(4, 32, 4, 2048, 64), 14, 24},   {packed(1, 8, 8, 256, 128), 14, 22},
        {packed(1, 4, 2, 1000, 128), 14, 24},
    };
    const struct eo_types types = {EO_DTYPE_BF16, EO_DTYPE_FP32};
    int failures = 0;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const struct eo_attention_shape *s = &cases[i].shape;
        const uint64_t sums = 4 * (uint64_t)s->batch * s->head_count * s->seq * (1 + s->head_size);
        const uint64_t placed = eo_cuda_flash_scratch_of(s).total;
        failures += !eo_cuda_attention_cudnn_ops.supports(types, s) || placed < sums;
        failures += build("forward", eo_attention_graph_forward, s, properties, placed, cases[i].forward_operations);
        failures += build("backward", eo_attention_graph_backward, s, properties, placed - sums,
                          cases[i].backward_operations);
    }
    /* What must not work: less room than any plan takes; heads that no kernel has. */
    const struct eo_attention_shape odd = packed(1, 4, 4, 256, 20), grouped = packed(1, 4, 2, 256, 128);
    failures += build("backward", eo_attention_graph_backward, &grouped, properties, 255, 24) == 0;
    failures += eo_cuda_attention_cudnn_ops.supports(types, &odd);
    failures += build("forward", eo_attention_graph_forward, &odd, properties, 1 << 30, 14) == 0;
    cudnnBackendDestroyDescriptor(properties);
    printf("%s\n", failures == 0 ? "ok" : "FAILED");
    return failures != 0;
}
