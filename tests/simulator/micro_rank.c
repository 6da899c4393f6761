/* SPDX-License-Identifier: MIT */
#include "micro_rank.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "micro_kernels.h"
#include "rows.h"
#include "streams/trace/timeline.h"

#define TRY(call)                                                                                                     \
    do {                                                                                                              \
        const eo_status try_status = (call);                                                                          \
        if (try_status < 0)                                                                                           \
            return fail(self, #call, try_status);                                                                     \
    } while (0)

static eo_status fail(struct rank *self, const char *call, eo_status status)
{
    struct micro_result *result = self->run->result;
    if (result->status[self->rank] == EO_OK) {
        result->status[self->rank] = status;
        snprintf(result->error[self->rank], sizeof(result->error[self->rank]), "rank %u: %.60s: %s: %.300s", self->rank,
                 call, eo_status_text(status), self->runtime ? eo_runtime_error(self->runtime) : "");
    }
    return status;
}

static float number(uint64_t salt, uint64_t index)
{
    uint64_t z = salt * 0x9e3779b97f4a7c15u + index * 0xd1b54a32d192ed03u + 1;
    z = (z ^ (z >> 32)) * 0xd6e8feb86659fd93u;
    z = (z ^ (z >> 32)) * 0xd6e8feb86659fd93u;
    return (float)((z ^ (z >> 32)) >> 40) / 8388608.0f - 1.0f;
}

/* All micro-batches of a step: inputs and targets. */
static eo_status put_data(struct rank *self, uint32_t step)
{
    const struct micro_settings *settings = &self->run->settings;
    float data[8 * MICRO_SAMPLES * SAMPLE];
    const uint32_t count = settings->micro_batches * MICRO_SAMPLES * SAMPLE;
    for (uint32_t i = 0; i < count; i++)
        data[i] = number(100 + self->rank, step * 10000u + i);
    TRY(eo_runtime_upload(self->runtime, eo_buffer(self->runtime, self->run->data), data, count * sizeof(float)));
    return EO_OK;
}

/* -- passes ------------------------------------------------------------------------------------------------------ */

static float *input_of(struct rank *self, uint32_t position, uint32_t micro_batch)
{
    if (position > 0)
        return eo_buffer(self->runtime, self->run->outputs[position - 1]);
    return (float *)eo_buffer(self->runtime, self->run->data) + micro_batch * MICRO_SAMPLES * SAMPLE;
}

static struct micro_call call_of(const struct rank *self, const char *name, uint32_t position)
{
    return (struct micro_call){.name = name, .samples = MICRO_SAMPLES, .in_width = micro_layers[micro_layer_of[position]].in,
                               .out_width = micro_layers[micro_layer_of[position]].out, .weights = self->run->settings.dtype,
                               .gradients = self->run->settings.reduce_dtype, .bends = position != HEAD};
}

static void reads(struct micro_call *call, int i, const void *at, uint64_t count, eo_dtype dtype)
{
    call->in[i] = at;
    call->in_bytes[i] = count * (dtype == EO_DTYPE_BF16 ? 2 : 4);
}

static void writes(struct micro_call *call, int i, void *at, uint64_t count, eo_dtype dtype)
{
    call->out[i] = at;
    call->out_bytes[i] = count * (dtype == EO_DTYPE_BF16 ? 2 : 4);
}

static eo_status forward(struct rank *self, uint32_t p, uint32_t micro_batch, const eo_view *view)
{
    struct micro_call call = call_of(self, "forward", p);
    call.kernel = micro_forward;
    reads(&call, 0, view->weights[0], call.in_width * call.out_width, call.weights);
    reads(&call, 1, view->weights[1], call.out_width, call.weights);
    reads(&call, 2, input_of(self, p, micro_batch), call.samples * call.in_width, EO_DTYPE_FP32);
    writes(&call, 0, eo_buffer(self->runtime, self->run->outputs[p]), call.samples * call.out_width, EO_DTYPE_FP32);
    return micro_run(&call, self->on_host, self->stream);
}

static eo_status loss(struct rank *self, uint32_t micro_batch)
{
    struct micro_call call = call_of(self, "loss", HEAD);
    call.kernel = micro_loss;
    call.scale = eo_loss_scale(self->runtime);
    const float *data = eo_buffer(self->runtime, self->run->data);
    reads(&call, 0, eo_buffer(self->runtime, self->run->outputs[HEAD]), call.samples * call.out_width, EO_DTYPE_FP32);
    reads(&call, 1, data + micro_batch * MICRO_SAMPLES * SAMPLE + MICRO_SAMPLES * MICRO_IN, MICRO_SAMPLES * MICRO_OUT,
          EO_DTYPE_FP32);
    writes(&call, 0, eo_buffer(self->runtime, self->run->gradients[HEAD]), call.samples * call.out_width, EO_DTYPE_FP32);
    writes(&call, 1, eo_step_values(self->runtime), 2, EO_DTYPE_FP32); /* one double */
    return micro_run(&call, self->on_host, self->stream);
}

static eo_status backward_input(struct rank *self, uint32_t p, const eo_view *view)
{
    const uint32_t outputs = MICRO_SAMPLES * micro_layers[micro_layer_of[p]].out;
    float *dy = eo_buffer(self->runtime, self->run->gradients[p]);
    struct micro_call call = call_of(self, "bend_gradient", p);
    call.kernel = micro_bend_gradient;
    reads(&call, 0, eo_buffer(self->runtime, self->run->outputs[p]), outputs, EO_DTYPE_FP32);
    writes(&call, 0, dy, outputs, EO_DTYPE_FP32);
    if (p != HEAD)
        TRY(micro_run(&call, self->on_host, self->stream));
    if (p == 0)
        return EO_OK;
    call = call_of(self, "input_gradient", p);
    call.kernel = micro_input_gradient;
    reads(&call, 0, view->weights[0], call.in_width * call.out_width, call.weights);
    reads(&call, 1, dy, outputs, EO_DTYPE_FP32);
    writes(&call, 0, eo_buffer(self->runtime, self->run->gradients[p - 1]), call.samples * call.in_width, EO_DTYPE_FP32);
    return micro_run(&call, self->on_host, self->stream);
}

static eo_status backward_weights(struct rank *self, uint32_t p, uint32_t micro_batch, const eo_view *view)
{
    struct micro_call call = call_of(self, "weight_gradient", p);
    call.kernel = micro_weight_gradient;
    reads(&call, 0, input_of(self, p, micro_batch), call.samples * call.in_width, EO_DTYPE_FP32);
    reads(&call, 1, eo_buffer(self->runtime, self->run->gradients[p]), call.samples * call.out_width, EO_DTYPE_FP32);
    if (view->gradients[0]) /* else it is frozen */
        writes(&call, 0, view->gradients[0], call.in_width * call.out_width, call.gradients);
    writes(&call, 1, view->gradients[1], call.out_width, call.gradients);
    return micro_run(&call, self->on_host, self->stream);
}

static eo_status micro_batch(struct rank *self, uint32_t m)
{
    const eo_view *view;
    for (uint32_t p = 0; p < HEAD; p++) {
        TRY(eo_forward_begin(self->runtime, p, &view));
        TRY(forward(self, p, m, view));
        TRY(eo_forward_end(self->runtime, p));
    }
    for (uint32_t p = MICRO_POSITIONS; p-- > 0;) {
        TRY(eo_backward_begin(self->runtime, p, &view));
        if (p == HEAD) {
            TRY(forward(self, p, m, view));
            TRY(loss(self, m));
        }
        TRY(backward_input(self, p, view));
        TRY(eo_gradients_begin(self->runtime, p, &view));
        TRY(backward_weights(self, p, m, view));
        TRY(eo_backward_end(self->runtime, p));
    }
    return EO_OK;
}

/* -- steps ------------------------------------------------------------------------------------------------------- */

/* Times are of one clock, so an operation ends after it began, begins after the one issued before on its stream, and has
 * ended before now. A time that was not taken is 0, or that of another operation. */
static void check_timeline(struct rank *self, uint32_t step)
{
    enum { RECORDS = 512, SLACK_NS = 2000 /* times are floats of milliseconds */ };
    eo_timeline_record records[RECORDS];
    struct micro_result *result = self->run->result;
    uint64_t last_ns[4] = {0};
    const uint32_t count = eo_runtime_timeline(self->runtime, records, RECORDS);
    const uint64_t now_ns = eo_now_ns() + SLACK_NS;
    pthread_mutex_lock(&self->run->lock);
    for (uint32_t i = 0; i < count && i < RECORDS && !result->timeline[0]; i++) {
        const eo_timeline_record *r = &records[i];
        uint64_t *last = &last_ns[(uint32_t)r->stream % 4];
        if (r->start_ns == 0 || r->end_ns == 0)
            continue;
        const char *wrong = r->end_ns + SLACK_NS < r->start_ns ? "ends before it begins"
                            : r->start_ns + SLACK_NS < *last   ? "begins before the one issued before it"
                            : r->end_ns > now_ns               ? "ends later than now"
                                                               : NULL;
        if (wrong)
            snprintf(result->timeline, sizeof(result->timeline), "rank %u, step %u, %s (%u): %s: %llu to %llu ns, before %llu, now %llu",
                     self->rank, step, r->name, r->operation, wrong, (unsigned long long)r->start_ns,
                     (unsigned long long)r->end_ns, (unsigned long long)*last, (unsigned long long)now_ns);
        *last = r->start_ns;
    }
    pthread_mutex_unlock(&self->run->lock);
}

static eo_status evaluate(struct rank *self)
{
    const eo_view *view;
    TRY(eo_evaluation_begin(self->runtime));
    for (uint32_t p = 0; p < MICRO_POSITIONS; p++) {
        TRY(eo_forward_begin(self->runtime, p, &view));
        TRY(forward(self, p, 0, view));
        TRY(eo_forward_end(self->runtime, p));
    }
    TRY(eo_evaluation_end(self->runtime));
    return EO_OK;
}

/* What a capture was asked for must not be recorded when the schedule was left meanwhile. */
static eo_status leave_after_capture(struct rank *self)
{
    double sum = 1;
    TRY(eo_step_capture(self->runtime));
    if (self->run->settings.leaves == MICRO_EVALUATES)
        TRY(evaluate(self));
    else if (self->run->settings.leaves == MICRO_SUMS)
        TRY(eo_sum(self->runtime, &sum, 1));
    else
        TRY(eo_weights_read(self->runtime, micro_layers[0].weight, NULL));
    if (eo_step_begin(self->runtime) != EO_ERR_INVALID ||
        !strstr(eo_runtime_error(self->runtime), "cannot be recorded: an evaluation"))
        return fail(self, "a step is recorded that gathers what others find", EO_ERR_INVALID);
    return EO_OK;
}

static void keep_norms(struct micro_result *result, uint32_t step, const eo_step_report *report)
{
    result->norms[step] = report->gradient_norm;
    for (uint32_t l = 0; l < report->layer_count; l++)
        result->layer_norms[step][l] = report->layer_norms[l];
    for (uint32_t g = 0; g < report->group_count; g++)
        result->group_norms[step][g] = report->group_norms[g];
}

static eo_status one_step(struct rank *self, uint32_t step, bool *captured)
{
    const struct micro_settings *settings = &self->run->settings;
    struct micro_result *result = self->run->result;
    const bool reports = settings->waits_each_step || step + 1 == settings->steps;
    const bool apart = settings->norm_parts && step % 3 != 1;
    const eo_parameter_group groups[MICRO_GROUPS] = {{0}, {.clip_group = apart ? 7 : 0, .clip = apart ? 0.02f : 0}};
    const eo_step_params *params = eo_step_params(.learning_rate = 0.01f + 0.001f * (float)step, .weight_decay = 0.1f,
                                                  .clip = 0.3f, .groups = groups, .group_count = MICRO_GROUPS);
    eo_step_report report = {0}, *wanted = reports ? &report : NULL;
    TRY(put_data(self, step));
    const bool replays = *captured && step != settings->ordinary_step;
    const bool capture = settings->graph && step == (settings->leaves ? 3 : 2); /* the second is of the steady list */
    if (replays) {
        TRY(eo_step_replay(self->runtime, params, wanted));
    } else {
        if (settings->graph && settings->leaves && step == 2)
            TRY(leave_after_capture(self));
        if (capture)
            TRY(eo_step_capture(self->runtime));
        self->captures = capture;
        TRY(eo_step_begin(self->runtime));
        for (uint32_t m = 0; m < settings->micro_batches; m++) {
            const eo_status status = micro_batch(self, m);
            if (status < 0)
                return status;
        }
        TRY(eo_step_end(self->runtime, params, wanted));
        *captured = *captured || capture;
    }
    if (reports && !self->on_host)
        check_timeline(self, step);
    if (self->rank == 0) {
        result->graphs += replays || capture;
        result->has_report[step] = reports;
        result->losses[step] = report.values[0];
        keep_norms(result, step, &report);
    }
    return EO_OK;
}

static eo_status put_weights(struct rank *self)
{
    float values[MICRO_WIDTH * MICRO_WIDTH];
    for (uint32_t l = 0; l < MICRO_LAYERS; l++) {
        for (uint32_t i = 0; i < micro_layers[l].in * micro_layers[l].out; i++)
            values[i] = 0.3f * number(1, micro_layers[l].offset + i);
        TRY(eo_weights_write(self->runtime, micro_layers[l].weight, values));
        for (uint32_t i = 0; i < micro_layers[l].out; i++)
            values[i] = 0.1f * number(2, micro_layers[l].offset + i);
        TRY(eo_weights_write(self->runtime, micro_layers[l].bias, values));
    }
    return EO_OK;
}

static eo_status get_weights(struct rank *self)
{
    for (uint32_t l = 0; l < MICRO_LAYERS; l++) {
        float *weight = self->run->result->weights + micro_layers[l].offset;
        float *bias = weight + micro_layers[l].in * micro_layers[l].out;
        TRY(eo_weights_read(self->runtime, micro_layers[l].weight, self->rank == 0 ? weight : NULL));
        TRY(eo_weights_read(self->runtime, micro_layers[l].bias, self->rank == 0 ? bias : NULL));
    }
    return EO_OK;
}

/* As a program has one that trained by other means before: blocking, and its own. */
static eo_status make_communicator(struct rank *self)
{
    ncclUniqueId id;
    memcpy(&id, &self->run->id, sizeof(id));
    if (cudaSetDevice((int)self->rank) != cudaSuccess ||
        ncclCommInitRank(&self->communicator, (int)self->run->settings.ranks, id, (int)self->rank) != ncclSuccess)
        return EO_ERR_COMM;
    return EO_OK;
}

/* After the world it must still be there, and idle. */
void micro_rank_end(struct rank *self)
{
    int count = 0;
    if (!self->communicator)
        return;
    if (ncclCommCount(self->communicator, &count) != ncclSuccess || (uint32_t)count != self->run->settings.ranks ||
        ncclCommFinalize(self->communicator) != ncclSuccess || ncclCommDestroy(self->communicator) != ncclSuccess)
        (void)fail(self, "the communicator that was given is not what it was", EO_ERR_COMM);
    self->communicator = NULL;
}

static eo_status product(void *user, const eo_matrix_product *p)
{
    const struct rank *self = user;
    if (self->captures && self->run->settings.refuses_product && self->rank + 1 == self->run->settings.ranks)
        return EO_ERR_UNSUPPORTED;
    struct micro_call call = {.name = "product", .kernel = micro_product, .samples = (uint32_t)p->m, .out_width = (uint32_t)p->n,
                              .in_width = (uint32_t)p->k, .transpose_a = p->transpose_a, .transpose_b = p->transpose_b,
                              .accumulate = p->accumulate};
    reads(&call, 0, p->a, p->m * p->k, EO_DTYPE_FP32);
    reads(&call, 1, p->b, p->k * p->n, EO_DTYPE_FP32);
    writes(&call, 0, p->c, p->m * p->n, EO_DTYPE_FP32);
    return micro_run(&call, self->on_host, self->stream);
}

eo_status micro_rank_train(struct rank *self)
{
    struct run *run = self->run;
    const struct micro_settings *settings = &run->settings;
    const bool nccl = settings->world == MICRO_NCCL && strcmp(settings->device, "cuda") == 0;
    if (nccl && settings->own_communicator)
        TRY(make_communicator(self));
    if (nccl)
        TRY(eo_world_create_nccl(&self->world, &(const eo_world_nccl_params){
            .rank = self->rank, .rank_count = settings->ranks, .id = self->communicator ? NULL : &run->id,
            .communicator = self->communicator, .device_index = self->rank, .mode = settings->mode, .timeout_ms = settings->timeout_ms, .log = &run->log,
            .launch_order_is_implicit = settings->separate_reduce_stream && !settings->explicit_order}));
    TRY(eo_runtime_create(&self->runtime, eo_runtime_params(.plan = run->other_plan && self->rank + 1 == settings->ranks
                                                                        ? run->other_plan : run->plan,
                                                            .world = self->world,
                                                            .memory = settings->memory, .debug = settings->debug,
                                                            .graph_times = settings->graph_times,
                                                            .dynamic_implicit_prefetch = settings->implicit_prefetch,
                                                            .dynamic_reduce_inputs = settings->reduce_inputs,
                                                            .product = settings->optimizer == EO_OPTIMIZER_MUON && !settings->no_product ? product : NULL,
                                                            .product_user = self,
                                                            .dynamic_offload = settings->dynamic_offload,
                                                            .recorder = settings->recorders[self->rank],
                                                            .log = &run->log)));
    rows_follow(self->runtime);
    self->stream = eo_runtime_stream(self->runtime);
    self->on_host = strcmp(eo_runtime_device(self->runtime), "cpu") == 0;
    TRY(put_weights(self));
    bool captured = false;
    for (uint32_t step = 0; step < settings->steps; step++) {
        if (settings->evaluates && step == 1 && !settings->graph) {
            const eo_status status = evaluate(self);
            if (status < 0)
                return status;
        }
        const eo_status status = one_step(self, step, &captured);
        if (status < 0)
            return status;
        if (settings->after_step)
            settings->after_step(settings->user, self->rank, step, self->runtime);
    }
    double sums[2] = {self->rank + 1, 0.5};
    TRY(eo_sum(self->runtime, sums, 2));
    if (sums[0] != settings->ranks * (settings->ranks + 1) / 2.0 || sums[1] != 0.5 * settings->ranks)
        return fail(self, "eo_sum is wrong", EO_ERR_INVALID);
    return get_weights(self);
}
