/* SPDX-License-Identifier: MIT
 *
 * Flash attention by cuDNN: plans built at start, run with packs of pointers. A model's tensors stay where they are, so a
 * pack is made the first time that its pointers are seen and found again in every step after it.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "layers/cuda/attention/graphs.h"
#include "layers/cuda/internal.h"

enum { PACKS_MAX = 1024, PACK_POINTERS = 16, CUDNN_LEAST = 90800 };

struct pack {
    cudnnBackendDescriptor_t descriptor; /* NULL: a free place */
    const void *pointers[PACK_POINTERS]; /* the workspace is the last */
};

struct cudnn_attention {
    struct eo_cudnn_plan forward, backward;
    struct eo_cuda_flash_scratch at; /* places in the scratch, in bytes */
    float scale, minus_infinity, one;    /* read by cuDNN through the packs */
    struct pack *packs;                  /* of both directions */
    uint32_t pack_count;
};

static eo_status check_cudnn(const struct eo_cuda_team *team, cudnnStatus_t status, const char *what)
{
    char reason[512] = "", text[640];
    if (status == CUDNN_STATUS_SUCCESS)
        return EO_OK;
    cudnnGetLastErrorString(reason, sizeof(reason));
    snprintf(text, sizeof(text), "%s %s", cudnnGetErrorString(status), reason);
    eo_cuda_tell(team, "cudnn", what, text);
    return status == CUDNN_STATUS_ALLOC_FAILED ? EO_ERR_NO_MEMORY : EO_ERR_DEVICE;
}

#define CUDNN_TRY(team, expression, what) EO_TRY(check_cudnn((team), (expression), (what)))

/* ---- plans ---- */

static eo_status device_properties(struct eo_cuda_team *team, cudnnBackendDescriptor_t *out)
{
    const int32_t device = team->device;
    CUDNN_TRY(team, cudnnBackendCreateDescriptor(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR, out),
              "making a device's description");
    CUDNN_TRY(team, cudnnBackendSetAttribute(*out, CUDNN_ATTR_DEVICEPROP_DEVICE_ID, CUDNN_TYPE_INT32, 1, &device),
              "naming the device");
    return check_cudnn(team, cudnnBackendFinalize(*out), "describing the device");
}

static eo_status build_plans(struct eo_cuda_team *team, const struct eo_attention_shape *shape,
                             struct cudnn_attention *state)
{
    struct eo_cudnn_graph graph;
    cudnnBackendDescriptor_t properties = NULL;
    eo_status status = device_properties(team, &properties);
    if (status == EO_OK) {
        eo_cudnn_graph_begin(&graph, &team->log, "attention forward");
        eo_attention_graph_forward(&graph, shape);
        status = eo_cudnn_plan_build(&graph, properties, state->at.workspace_limit, &state->forward);
        eo_cudnn_graph_end(&graph);
    }
    if (status == EO_OK) {
        eo_cudnn_graph_begin(&graph, &team->log, "attention backward");
        eo_attention_graph_backward(&graph, shape);
        status = eo_cudnn_plan_build(&graph, properties, state->at.workspace_limit, &state->backward);
        eo_cudnn_graph_end(&graph);
    }
    if (properties)
        (void)cudnnBackendDestroyDescriptor(properties);
    return status;
}

static void cudnn_release(struct eo_cuda_team *team, void *opaque)
{
    struct cudnn_attention *state = opaque;
    (void)team;
    for (uint32_t i = 0; state->packs && i < PACKS_MAX; i++)
        if (state->packs[i].descriptor)
            (void)cudnnBackendDestroyDescriptor(state->packs[i].descriptor);
    eo_cudnn_plan_release(&state->forward);
    eo_cudnn_plan_release(&state->backward);
    free(state->packs);
    free(state);
}

static eo_status need_handle(struct eo_cuda_team *team)
{
    if (team->cudnn)
        return EO_OK;
    cudnnHandle_t handle = NULL;
    CUDNN_TRY(team, cudnnCreate(&handle), "cudnnCreate");
    team->cudnn = handle;
    return check_cudnn(team, cudnnSetStream(handle, team->stream), "cudnnSetStream");
}

static eo_status cudnn_prepare(struct eo_cuda_team *team, struct eo_types types,
                               const struct eo_attention_shape *shape, void **out)
{
    (void)types;
    EO_TRY(eo_cudnn_load(&team->log)); /* here, so that fp32 models never load it */
    if (cudnnGetVersion() < CUDNN_LEAST) {
        eo_layers_log(&team->log, EO_LOG_WARN,
                      "cudnn: version %zu is loaded, but %d (9.8.0) or newer is needed: older ones cannot describe a device, and "
                      "before 9.6 do not zero the sum of the query's gradient; attention runs as products",
                      cudnnGetVersion(), (int)CUDNN_LEAST);
        return EO_ERR_UNSUPPORTED;
    }
    EO_TRY(need_handle(team));
    if (shape->seq % 128 != 0 && cudnnGetVersion() < 91600) {
        eo_layers_log(&team->log, EO_LOG_WARN,
                      "cudnn: version %zu computes sequences wrongly if 128 does not divide them (%u); attention runs as "
                      "products",
                      cudnnGetVersion(), shape->seq);
        return EO_ERR_UNSUPPORTED;
    }
    struct cudnn_attention *state = calloc(1, sizeof(*state));
    if (!state)
        return EO_ERR_NO_MEMORY;
    state->at = eo_cuda_flash_scratch_of(shape);
    state->scale = 1.0f / sqrtf((float)shape->head_size);
    state->minus_infinity = -INFINITY;
    state->one = 1;
    state->packs = calloc(PACKS_MAX, sizeof(state->packs[0]));
    eo_status status = state->packs ? build_plans(team, shape, state) : EO_ERR_NO_MEMORY;
    if (status < 0) {
        cudnn_release(team, state);
        return status;
    }
    eo_layers_log(&team->log, EO_LOG_DEBUG, "cudnn: %zu, workspace forward %llu bytes, backward %llu",
                  cudnnGetVersion(), (unsigned long long)state->forward.workspace_bytes,
                  (unsigned long long)state->backward.workspace_bytes);
    *out = state;
    return EO_OK;
}

/* ---- runs ---- */

static const int64_t forward_ids[] = {
    EO_ATTENTION_Q,   EO_ATTENTION_K,           EO_ATTENTION_V,
    EO_ATTENTION_OUT, EO_ATTENTION_LOG_SUM_EXP, EO_ATTENTION_SCALE,
    EO_ATTENTION_MINUS_INFINITY,
};
static const int64_t backward_ids[] = {
    EO_ATTENTION_Q,
    EO_ATTENTION_K,
    EO_ATTENTION_V,
    EO_ATTENTION_OUT,
    EO_ATTENTION_LOG_SUM_EXP,
    EO_ATTENTION_SCALE,
    EO_ATTENTION_MINUS_INFINITY,
    EO_ATTENTION_OUT_GRADIENT,
    EO_ATTENTION_Q_GRADIENT,
    EO_ATTENTION_K_GRADIENT,
    EO_ATTENTION_V_GRADIENT,
    EO_ATTENTION_ONE,
    EO_ATTENTION_DOT_SUM,
    EO_ATTENTION_Q_SUM,
};
enum {
    FORWARD_IDS = sizeof(forward_ids) / sizeof(forward_ids[0]),
    BACKWARD_IDS = sizeof(backward_ids) / sizeof(backward_ids[0]),
};
_Static_assert((int)BACKWARD_IDS < (int)PACK_POINTERS, "a pack has no room for the workspace");

static eo_status make_pack(struct eo_cuda_team *team, const void *const pointers[PACK_POINTERS], const int64_t *ids,
                           int64_t count, cudnnBackendDescriptor_t *out)
{
    cudnnBackendDescriptor_t d = NULL;
    const void *workspace = pointers[PACK_POINTERS - 1];
    CUDNN_TRY(team, cudnnBackendCreateDescriptor(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, &d), "making a pack of pointers");
    *out = d;
    CUDNN_TRY(team, cudnnBackendSetAttribute(d, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, count, ids),
              "a pack's ids");
    CUDNN_TRY(team,
              cudnnBackendSetAttribute(d, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, count, pointers),
              "a pack's pointers");
    CUDNN_TRY(team,
              cudnnBackendSetAttribute(d, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &workspace),
              "a pack's workspace");
    return check_cudnn(team, cudnnBackendFinalize(d), "a pack of pointers");
}

static uint64_t hash_of(const void *const pointers[PACK_POINTERS])
{
    uint64_t hash = 0;
    for (int i = 0; i < PACK_POINTERS; i++) {
        hash = (hash ^ (uintptr_t)pointers[i]) * 0x9e3779b97f4a7c15u;
        hash ^= hash >> 31;
    }
    return hash;
}

/* More sets of pointers than a model has come from memory that moves: from then on packs live for one call only. */
static eo_status run(struct eo_cuda_team *team, struct cudnn_attention *state, struct eo_cudnn_plan *plan,
                     const void *const pointers[PACK_POINTERS], const int64_t *ids, int64_t count)
{
    uint32_t place = (uint32_t)(hash_of(pointers) % PACKS_MAX);
    while (state->packs[place].descriptor &&
           memcmp(state->packs[place].pointers, pointers, sizeof(state->packs[place].pointers)) != 0)
        place = (place + 1) % PACKS_MAX;
    cudnnBackendDescriptor_t descriptor = state->packs[place].descriptor;
    const bool is_new = descriptor == NULL, kept = !is_new || state->pack_count < PACKS_MAX / 2;
    eo_status status = is_new ? make_pack(team, pointers, ids, count, &descriptor) : EO_OK;
    if (status == EO_OK)
        status = check_cudnn(team, cudnnBackendExecute(team->cudnn, plan->plan, descriptor),
                             plan == &state->forward ? "attention forward" : "attention backward");
    if (is_new && kept && status == EO_OK) {
        memcpy(state->packs[place].pointers, pointers, sizeof(state->packs[place].pointers));
        state->packs[place].descriptor = descriptor;
        state->pack_count++;
    } else if (is_new && descriptor) {
        (void)cudnnBackendDestroyDescriptor(descriptor);
    }
    return status;
}

static eo_status cudnn_forward(struct eo_cuda_team *team, void *opaque, const struct eo_attention *a)
{
    struct cudnn_attention *state = opaque;
    const void *const pointers[PACK_POINTERS] = {
        a->q, a->k, a->v, a->out, a->log_sum_exp, &state->scale, &state->minus_infinity,
        [PACK_POINTERS - 1] = (char *)a->scratch + state->at.workspace,
    };
    return run(team, state, &state->forward, pointers, forward_ids, FORWARD_IDS);
}

static eo_status cudnn_backward(struct eo_cuda_team *team, void *opaque, const struct eo_attention *a)
{
    struct cudnn_attention *state = opaque;
    char *scratch = a->scratch;
    const void *const pointers[PACK_POINTERS] = {
        a->q, a->k, a->v, a->out, a->log_sum_exp, &state->scale, &state->minus_infinity,
        a->out_gradient, a->q_gradient, a->k_gradient, a->v_gradient, &state->one,
        scratch + state->at.dot_sum, scratch + state->at.q_sum,
        [PACK_POINTERS - 1] = scratch + state->at.workspace,
    };
    return run(team, state, &state->backward, pointers, backward_ids, BACKWARD_IDS);
}

static void cudnn_close(struct eo_cuda_team *team)
{
    if (team->cudnn)
        (void)cudnnDestroy(team->cudnn);
    team->cudnn = NULL;
}

const struct eo_cuda_attention_ops eo_cuda_attention_cudnn_ops = {
    .name = "cuDNN",
    .repeatable = false,
    .supports = eo_cuda_flash_supports,
    .prepare = cudnn_prepare,
    .release = cudnn_release,
    .forward = cudnn_forward,
    .backward = cudnn_backward,
    .close = cudnn_close,
};
