/* SPDX-License-Identifier: MIT */
#include "micro_model.h"

#include <nccl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "micro_kernels.h"
#include "rows.h"
#include "streams/trace/timeline.h"

static const struct {
    const char *name, *weight, *bias;
    uint32_t in, out, offset;
    bool matrix;
} layers[MICRO_LAYERS] = {
    {"in", "in.weight", "in.bias", MICRO_IN, MICRO_WIDTH, 0, true},
    {"body.0", "body.0.weight", "body.0.bias", MICRO_WIDTH, MICRO_WIDTH, (MICRO_IN + 1) * MICRO_WIDTH, true},
    {"body.1", "body.1.weight", "body.1.bias", MICRO_WIDTH, MICRO_WIDTH,
     (MICRO_IN + 1) * MICRO_WIDTH + (MICRO_WIDTH + 1) * MICRO_WIDTH, true},
    {"out", "out.weight", "out.bias", MICRO_WIDTH, MICRO_OUT,
     (MICRO_IN + 1) * MICRO_WIDTH + 2 * (MICRO_WIDTH + 1) * MICRO_WIDTH, false},
};
static const uint32_t layer_of[MICRO_POSITIONS] = {0, 1, 2, 1, 3};
enum { HEAD = MICRO_POSITIONS - 1, SAMPLE = MICRO_IN + MICRO_OUT };

struct run {
    struct micro_settings settings;
    struct micro_result *result;
    eo_model *model;
    eo_plan *plan, *other_plan /* of the last rank, or NULL */;
    eo_nccl_id id;
    eo_world *worlds[MICRO_RANKS_MAX];
    uint32_t outputs[MICRO_POSITIONS], gradients[MICRO_POSITIONS], data;
    pthread_mutex_t lock;
    eo_log log;
};

struct rank {
    struct run *run;
    uint32_t rank;
    ncclComm_t communicator; /* of the caller's own making, or NULL */
    eo_world *world;
    eo_runtime *runtime;
    bool on_host, captures;
    void *stream;
};

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

static void take_log(void *user, eo_log_level level, const char *text)
{
    struct run *run = user;
    char *log = run->result->log;
    (void)level;
    pthread_mutex_lock(&run->lock);
    const size_t used = strlen(log);
    if (used + 2 < sizeof(run->result->log))
        snprintf(log + used, sizeof(run->result->log) - used, "%s\n", text);
    pthread_mutex_unlock(&run->lock);
}

/* -- the description --------------------------------------------------------------------------------------------- */

static bool add_buffer(struct run *run, const char *kind, uint32_t position, uint32_t width, eo_moment first,
                       uint32_t *out)
{
    char name[32];
    snprintf(name, sizeof(name), "%s.%u", kind, position);
    return eo_model_add_buffer(run->model,
                               eo_buffer_params(.name = name, .bytes = 4u * MICRO_SAMPLES * width,
                                                .category = EO_CATEGORY_ACTIVATION, .first = first,
                                                .last = {EO_PASS_BACKWARD, position}),
                               out) == EO_OK;
}

static bool make_plan(struct run *run, uint32_t micro_batches, eo_plan **out)
{
    const struct micro_settings *settings = &run->settings;
    return eo_plan_create(out, run->model,
                          eo_plan_params(.rank_count = settings->ranks, .micro_batches = micro_batches,
                                         .dtype = settings->dtype, .reduce_dtype = settings->reduce_dtype,
                                         .float8_gather = settings->float8_gather, .float8_frozen = settings->float8_frozen,
                                         .strategy = settings->strategy,
                                         .shard_group = settings->shard_group, .offload_layers = settings->offload_layers,
                                         .offload_slots = settings->offload_slots,
                                         .offload_gradients = settings->offload_gradients,
                                         .late_updates = settings->late_updates,
                                         .optimizer = settings->optimizer,
                                         .separate_reduce_stream = settings->separate_reduce_stream,
                                         .norms_beside = settings->norms_beside, .norm_parts = settings->norm_parts,
                                         .separate_reservations = settings->world == MICRO_NCCL,
                                         .log = &run->log)) == EO_OK;
}

static bool describe(struct run *run)
{
    const struct micro_settings *settings = &run->settings;
    bool good = eo_model_create(&run->model, eo_model_params(.name = "micro", .log = &run->log)) == EO_OK;
    for (uint32_t l = 0; good && l < MICRO_LAYERS; l++) {
        good = eo_model_add_layer(run->model, eo_layer_params(.name = layers[l].name), NULL) == EO_OK &&
               eo_model_add_parameter(run->model,
                                      eo_parameter_params(.layer = l, .name = layers[l].weight, .dim_count = 2,
                                                          .dims = {layers[l].out, layers[l].in}, .float8_gather = true,
                                                          .matrix = layers[l].matrix,
                                                          .frozen = settings->float8_frozen && layers[l].matrix),
                                      NULL) == EO_OK &&
               eo_model_add_parameter(run->model,
                                      eo_parameter_params(.layer = l, .name = layers[l].bias, .dim_count = 1,
                                                          .dims = {layers[l].out}, .group = 1, .no_weight_decay = true),
                                      NULL) == EO_OK;
    }
    for (uint32_t p = 0; good && p < MICRO_POSITIONS; p++) {
        char name[16];
        snprintf(name, sizeof(name), "position.%u", p);
        good = eo_model_add_position(run->model,
                                     eo_position_params(.layer = layer_of[p], .name = name,
                                                        .forward_in_backward = p == HEAD,
                                                        .backward_without_weights = p == 0), NULL) == EO_OK;
    }
    for (uint32_t p = 0; good && p < MICRO_POSITIONS; p++) {
        const uint32_t width = layers[layer_of[p]].out;
        const eo_moment written = {p == HEAD ? EO_PASS_RECOMPUTE : EO_PASS_FORWARD, p};
        const eo_moment gradient = {EO_PASS_RECOMPUTE, p + 1 < MICRO_POSITIONS ? p + 1 : p};
        good = add_buffer(run, "output", p, width, written, &run->outputs[p]) &&
               add_buffer(run, "gradient", p, width, gradient, &run->gradients[p]);
    }
    good = good && eo_model_add_buffer(run->model,
                                       eo_buffer_params(.name = "data", .persistent = true,
                                                        .category = EO_CATEGORY_OTHER,
                                                        .bytes = 4u * MICRO_SAMPLES * SAMPLE * settings->micro_batches),
                                       &run->data) == EO_OK;
    return good && make_plan(run, settings->micro_batches, &run->plan) &&
           (!settings->other_plan || make_plan(run, settings->micro_batches + 1, &run->other_plan));
}

/* -- numbers ----------------------------------------------------------------------------------------------------- */

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
    return (struct micro_call){.name = name, .samples = MICRO_SAMPLES, .in_width = layers[layer_of[position]].in,
                               .out_width = layers[layer_of[position]].out, .weights = self->run->settings.dtype,
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
    const uint32_t outputs = MICRO_SAMPLES * layers[layer_of[p]].out;
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
        TRY(eo_weights_read(self->runtime, layers[0].weight, NULL));
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
        for (uint32_t i = 0; i < layers[l].in * layers[l].out; i++)
            values[i] = 0.3f * number(1, layers[l].offset + i);
        TRY(eo_weights_write(self->runtime, layers[l].weight, values));
        for (uint32_t i = 0; i < layers[l].out; i++)
            values[i] = 0.1f * number(2, layers[l].offset + i);
        TRY(eo_weights_write(self->runtime, layers[l].bias, values));
    }
    return EO_OK;
}

static eo_status get_weights(struct rank *self)
{
    for (uint32_t l = 0; l < MICRO_LAYERS; l++) {
        float *weight = self->run->result->weights + layers[l].offset, *bias = weight + layers[l].in * layers[l].out;
        TRY(eo_weights_read(self->runtime, layers[l].weight, self->rank == 0 ? weight : NULL));
        TRY(eo_weights_read(self->runtime, layers[l].bias, self->rank == 0 ? bias : NULL));
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
static void end_communicator(struct rank *self)
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

static eo_status train(struct rank *self)
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

static void *rank_main(void *argument)
{
    struct rank *self = argument;
    const struct micro_settings *settings = &self->run->settings;
    const bool simulated = strcmp(settings->device, "cuda") == 0;
    if (train(self) < 0 && self->world)
        eo_world_abort(self->world, "the trainer gives up");
    rows_forget(self->runtime);
    eo_runtime_destroy(&self->runtime);
    eo_world_nccl_info info;
    if (settings->world == MICRO_NCCL && simulated && self->world &&
        eo_world_nccl_get_info(self->world, &info) == EO_OK) {
        pthread_mutex_lock(&self->run->lock);
        self->run->result->must_exit |= info.must_exit;
        pthread_mutex_unlock(&self->run->lock);
    }
    if (settings->world == MICRO_NCCL && simulated)
        eo_world_destroy(&self->world);
    end_communicator(self);
    return NULL;
}

void micro_train(const struct micro_settings *given, struct micro_result *out)
{
    static struct rank ranks[MICRO_RANKS_MAX];
    struct run run = {.settings = *given, .result = out, .lock = PTHREAD_MUTEX_INITIALIZER};
    struct micro_settings *settings = &run.settings;
    pthread_t threads[MICRO_RANKS_MAX];
    memset(out, 0, sizeof(*out));
    run.log = (eo_log){take_log, &run, EO_LOG_ERROR};
    settings->device = settings->device ? settings->device : "cpu";
    settings->steps = settings->steps ? settings->steps : 4;
    settings->micro_batches = settings->micro_batches ? settings->micro_batches : 2;
    settings->timeout_ms = settings->timeout_ms ? settings->timeout_ms : 20000;
    const bool simulated = strcmp(settings->device, "cuda") == 0, nccl = simulated && settings->world == MICRO_NCCL;
    eo_status status = describe(&run) ? EO_OK : EO_ERR_INVALID;
    if (status == EO_OK && nccl)
        status = eo_nccl_id_create(&run.id, &run.log);
    if (status == EO_OK && !nccl)
        status = eo_world_create_local(run.worlds, eo_world_params(.rank_count = settings->ranks,
                                                                   .device = settings->device,
                                                                   .share_device = settings->world == MICRO_ONE_GPU,
                                                                   .timeout_ms = settings->timeout_ms,
                                                                   .log = &run.log));
    out->status[0] = status;
    void *arguments[MICRO_RANKS_MAX];
    for (uint32_t r = 0; r < settings->ranks; r++) {
        ranks[r] = (struct rank){.run = &run, .rank = r, .world = run.worlds[r]};
        arguments[r] = &ranks[r];
        if (status == EO_OK && !simulated && pthread_create(&threads[r], NULL, rank_main, &ranks[r]) != 0)
            abort();
    }
    if (status == EO_OK && simulated)
        sim_run_ranks(settings->ranks, rank_main, arguments);
    for (uint32_t r = 0; status == EO_OK && !simulated && r < settings->ranks; r++)
        pthread_join(threads[r], NULL);
    for (uint32_t r = 0; r < settings->ranks; r++)
        eo_world_destroy(&run.worlds[r]);
    eo_plan_destroy(&run.plan);
    eo_plan_destroy(&run.other_plan);
    eo_model_destroy(&run.model);
}

bool micro_same(const struct micro_result *a, const struct micro_result *b)
{
    for (int step = 0; step < MICRO_STEPS_MAX; step++)
        if (a->has_report[step] && b->has_report[step] &&
            (memcmp(&a->losses[step], &b->losses[step], sizeof(double)) != 0 ||
             memcmp(&a->norms[step], &b->norms[step], sizeof(double)) != 0 ||
             memcmp(a->layer_norms[step], b->layer_norms[step], sizeof(a->layer_norms[step])) != 0 ||
             memcmp(a->group_norms[step], b->group_norms[step], sizeof(a->group_norms[step])) != 0))
            return false;
    return memcmp(a->weights, b->weights, sizeof(a->weights)) == 0;
}

eo_status micro_status(const struct micro_result *result)
{
    for (int r = 0; r < MICRO_RANKS_MAX; r++)
        if (result->status[r] < 0)
            return result->status[r];
    return EO_OK;
}

const char *micro_error(const struct micro_result *result)
{
    for (int r = 0; r < MICRO_RANKS_MAX; r++)
        if (result->status[r] < 0)
            return result->error[r][0] ? result->error[r] : result->log;
    return "";
}

const struct micro_result *micro_reference(const struct micro_settings *settings)
{
    static struct {
        struct micro_settings settings;
        struct micro_result result;
    } kept[512];
    static uint32_t count;
    const struct micro_settings wanted = {.ranks = settings->ranks, .dtype = settings->dtype,
                                          .strategy = settings->strategy, .shard_group = settings->shard_group,
                                          .reduce_dtype = settings->reduce_dtype, .steps = settings->steps,
                                          .float8_gather = settings->float8_gather, .norm_parts = settings->norm_parts,
                                          .float8_frozen = settings->float8_frozen, .micro_batches = settings->micro_batches, .optimizer = settings->optimizer,
                                          .waits_each_step = true};
    for (uint32_t i = 0; i < count; i++) {
        const struct micro_settings *s = &kept[i].settings;
        if (s->ranks == wanted.ranks && s->dtype == wanted.dtype && s->reduce_dtype == wanted.reduce_dtype &&
            s->float8_gather == wanted.float8_gather && s->float8_frozen == wanted.float8_frozen && s->norm_parts == wanted.norm_parts &&
            s->strategy == wanted.strategy && s->shard_group == wanted.shard_group && s->steps == wanted.steps &&
            s->micro_batches == wanted.micro_batches && s->optimizer == wanted.optimizer)
            return &kept[i].result;
    }
    if (count == sizeof(kept) / sizeof(kept[0]))
        abort();
    kept[count].settings = wanted;
    micro_train(&wanted, &kept[count].result);
    return &kept[count++].result;
}
