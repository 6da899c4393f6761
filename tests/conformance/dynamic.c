/* SPDX-License-Identifier: MIT
 *
 * The dynamic mode against FSDP2's own behaviour: the collectives and their order, the allocations, the live and the
 * copied bytes of uniform blocks, by formulas.
 *
 * Of a block of n elements in K parameters, on W ranks, everything in fp32 (so FSDP2's casts fall away, and what has 2n
 * bytes in bf16 has 4n; for bf16 see below):
 *
 *     forward    all-gather output 4n, K parameters 4n in all: 1 + K allocations; copies: own slice 4n/W, copy-out 4n
 *     backward   the same again, K gradients 4n, reduce-scatter input 4n, its output 4n/W: 3 + 2K allocations;
 *                copies: own slice, copy-out, and the gradients into the input, 4n
 *
 *     allocations a block a step     4 + 3K
 *     copied bytes, read and written 2 (3 x 4n + 2 x 4n/W) = 24n + 16n/W
 *     live in forward                gather outputs of this block and the next, parameters: 12n; without explicit
 *                                    prefetch 8n
 *     live in backward               gather output of the block before, parameters, gradients, and k reduce-scatter
 *                                    inputs in flight: 12n + 4n k, beside the gradient shards of the blocks behind it
 *
 * With weights in bf16 outputs and parameters have 2n. Each gather takes 2n/W more for the cast of its shard, which reads
 * 4n/W and writes 2n/W, and is dropped when the gather after it has ended, so two of them are live, or, without explicit
 * prefetch, one in forward. Gradients stay fp32 (so that the bits are those of static mode).
 *
 * Offloaded to the host (CPUOffloadPolicy): the same collectives; 4n/W to the device before each of the two gathers, 4n/W back
 * after the reduction, nothing of shards, gradients and state on the device between steps.
 *
 *     forward    AG 0, AG 1, ... AG U-1
 *     backward   AG U-1, AG U-2, RS U-1, AG U-3, RS U-2, ... AG 0, RS 1, RS 0
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <evenodd/evenodd.h>

#include "tests/conformance/ranks.h"
#include "tests/tap/threads.h"

enum { BLOCKS = 7, K = 9, RANKS_MAX = 4, STEPS = 4, RECORDS_MAX = 512 };

/* Multiples of 16, and a sum that is a multiple of 128 for each of 4 ranks: no padding. */
static const uint64_t sizes[K] = {256, 16, 1024, 48, 2048, 4096, 64, 512, 128};
static const uint64_t n = 8192;

struct scene {
    eo_plan *plan;
    eo_world *worlds[RANKS_MAX];
    uint32_t ranks;
    eo_memory memory;
    eo_dtype dtype;
    bool implicit, offload;
    uint32_t inputs;
    eo_runtime_stats after_create, before_last, after_last; /* of rank 0 */
    eo_timeline_record records[RECORDS_MAX];
    uint32_t record_count;
    char sequence[2048];
};

struct actor {
    struct scene *scene;
    uint32_t rank;
};

static void must(const eo_runtime *rt, eo_status status, const char *what)
{
    if (status >= 0)
        return;
    printf("Bail out! %s: %s\n", what, eo_runtime_error(rt));
    exit(1);
}

static void run_step(eo_runtime *rt)
{
    const eo_view *view;
    must(rt, eo_step_begin(rt), "begin");
    for (uint32_t p = 0; p < BLOCKS; p++) {
        must(rt, eo_forward_begin(rt, p, &view), "forward");
        must(rt, eo_forward_end(rt, p), "forward");
    }
    for (uint32_t p = BLOCKS; p-- > 0;) {
        must(rt, eo_backward_begin(rt, p, &view), "backward");
        must(rt, eo_gradients_begin(rt, p, &view), "gradients");
        for (uint32_t k = 0; k < K; k++)
            memset(view->gradients[k], 0, sizes[k] * sizeof(float));
        must(rt, eo_backward_end(rt, p), "backward");
    }
    must(rt, eo_step_end(rt, eo_step_params(.learning_rate = 0.1F), NULL), "end");
}

/* The sequence of collectives as text, "AG 0, AG 1, ..."; names live as long as the runtime. */
static void keep_sequence(struct scene *scene)
{
    char *text = scene->sequence;
    const size_t bytes = sizeof(scene->sequence);
    size_t used = 0;
    for (uint32_t i = 0; i < scene->record_count; i++) {
        const eo_timeline_record *record = &scene->records[i];
        const char *what = record->kind == EO_OP_ALL_GATHER       ? "AG"
                           : record->kind == EO_OP_REDUCE_SCATTER ? "RS"
                                                                  : NULL;
        if (what)
            used += (size_t)snprintf(text + used, bytes - used, "%s%s %s", used ? ", " : "", what,
                                     strstr(record->name, "block") + 5);
    }
}

static void *act(void *arg)
{
    const struct actor *self = arg;
    struct scene *scene = self->scene;
    eo_runtime *rt = NULL;
    eo_runtime_stats stats[3];
    must(rt, eo_runtime_create(&rt, eo_runtime_params(.plan = scene->plan, .world = scene->worlds[self->rank],
                                                      .memory = scene->memory,
                                                      .dynamic_implicit_prefetch = scene->implicit, .dynamic_offload = scene->offload,
                                                      .dynamic_reduce_inputs = scene->inputs)),
         "create");
    eo_runtime_get_stats(rt, &stats[0]);
    for (uint32_t step = 0; step < STEPS; step++) {
        if (step == STEPS - 1)
            eo_runtime_get_stats(rt, &stats[1]);
        run_step(rt);
    }
    eo_runtime_get_stats(rt, &stats[2]);
    if (self->rank == 0) {
        scene->after_create = stats[0];
        scene->before_last = stats[1];
        scene->after_last = stats[2];
        scene->record_count = eo_runtime_timeline(rt, scene->records, RECORDS_MAX);
        TEST_HOLDS(NULL, eo_runtime_timeline(rt, NULL, RECORDS_MAX) == 0);
        TEST_HOLDS(NULL, eo_runtime_get_report(rt, STEPS, NULL) == EO_ERR_INVALID);
        keep_sequence(scene);
    }
    eo_runtime_destroy(&rt);
    return NULL;
}

static void describe(struct scene *scene)
{
    char name[EO_NAME_MAX];
    eo_model *model;
    must(NULL, eo_model_create(&model, NULL), "model");
    for (uint32_t l = 0; l < BLOCKS; l++) {
        snprintf(name, sizeof(name), "block%u", l);
        must(NULL, eo_model_add_layer(model, eo_layer_params(.name = name), NULL), "layer");
        for (uint32_t k = 0; k < K; k++) {
            snprintf(name, sizeof(name), "p%u.%u", l, k);
            must(NULL, eo_model_add_parameter(model, eo_parameter_params(.layer = l, .name = name, .dim_count = 1,
                                                                         .dims = {sizes[k]}), NULL), "parameter");
        }
        must(NULL, eo_model_add_position(model, eo_position_params(.layer = l), NULL), "position");
    }
    must(NULL, eo_plan_create(&scene->plan, model, eo_plan_params(.rank_count = scene->ranks, .dtype = scene->dtype)), "plan");
    must(NULL, eo_world_create_local(scene->worlds, eo_world_params(.rank_count = scene->ranks)), "world");
    eo_model_destroy(&model);
}

static void run(struct scene *scene)
{
    struct actor actors[RANKS_MAX];
    describe(scene);
    for (uint32_t r = 0; r < scene->ranks; r++)
        actors[r] = (struct actor){scene, r};
    run_as_threads(act, actors, scene->ranks, sizeof(actors[0]));
    for (uint32_t r = 0; r < scene->ranks; r++)
        eo_world_destroy(&scene->worlds[r]);
    eo_plan_destroy(&scene->plan);
}

static uint64_t between(uint64_t before, uint64_t after)
{
    return after - before;
}

static void expected_sequence(char *text, size_t bytes)
{
    size_t used = 0;
    for (int i = 0; i < BLOCKS; i++)
        used += (size_t)snprintf(text + used, bytes - used, "AG %d, ", i);
    used += (size_t)snprintf(text + used, bytes - used, "AG %d, ", BLOCKS - 1);
    for (int i = BLOCKS - 1; i > 0; i--)
        used += (size_t)snprintf(text + used, bytes - used, "AG %d, RS %d, ", i - 1, i);
    snprintf(text + used, bytes - used, "RS 0");
}

/* The most that is live at the end of a forward, or of a backward pass, as the timeline has it. */
static uint64_t live_most(const struct scene *scene, eo_operation_kind kind)
{
    uint64_t most = 0;
    for (uint32_t i = 0; i < scene->record_count; i++)
        if (scene->records[i].kind == kind && scene->records[i].live_bytes > most)
            most = scene->records[i].live_bytes;
    return most;
}

static bool is_copy(const eo_timeline_record *record)
{
    return record->kind == EO_OP_COPY_OUT || record->kind == EO_OP_COPY_IN;
}

/* A pass waits for nothing when it is there; the copies before and behind it lie in no wait, of no operation. */
static void expect_copies(const struct scene *scene)
{
    uint32_t outs = 0, ins = 0, passes = 0, in_waits = 0;
    for (uint32_t i = 0; i < scene->record_count; i++) {
        const eo_timeline_record *record = &scene->records[i];
        outs += record->kind == EO_OP_COPY_OUT && record->end_ns > record->start_ns;
        ins += record->kind == EO_OP_COPY_IN && record->end_ns > record->start_ns;
        passes += record->kind == EO_OP_FORWARD || record->kind == EO_OP_RECOMPUTE || record->kind == EO_OP_BACKWARD;
        for (uint32_t k = 0; k < scene->record_count && record->stream == EO_STREAM_COMPUTE; k++) {
            const eo_timeline_record *copy = &scene->records[k];
            in_waits += is_copy(copy) && copy->end_ns > record->ready_ns && copy->start_ns < record->start_ns;
        }
    }
    TEST_EXPECT(NULL, outs == 2 * BLOCKS && ins == BLOCKS && passes == 3 * BLOCKS && in_waits == 0,
                "%u copies out, %u in, %u passes; %u copies are told as waits", outs, ins, passes, in_waits);
}

#define EXPECT_BYTES(what, found, wanted)                                                                             \
    TEST_EXPECT(NULL, (found) == (wanted), "%s: %" PRIu64 ", by the formula %" PRIu64, what, (uint64_t)(found),        \
                (uint64_t)(wanted))

/*
 * All of the above, for 2 and 4 ranks, both allocators and element types, one and two inputs, with and without explicit
 * prefetch.
 * Method: a step in the steady state; persistent memory is what was live after create.
 */
static void behaves_as_fsdp2(uint32_t ranks, eo_memory memory, eo_dtype dtype, bool implicit, uint32_t inputs)
{
    struct scene scene = {.ranks = ranks, .memory = memory, .dtype = dtype, .implicit = implicit, .inputs = inputs};
    char expected[2048];
    run(&scene);
    const bool bf16 = dtype == EO_DTYPE_BF16;
    const uint64_t shard = 4 * n / ranks, full = bf16 ? 2 * n : 4 * n, cast = bf16 ? 2 * n / ranks : 0;
    const eo_runtime_stats *a = &scene.before_last, *b = &scene.after_last;

    expected_sequence(expected, sizeof(expected));
    TEST_EXPECT(NULL, strcmp(scene.sequence, expected) == 0, "the order of collectives is %s",
                scene.sequence);
    expect_copies(&scene);
    EXPECT_BYTES("collectives", between(a->collective_count, b->collective_count), 3 * BLOCKS + 1); /* and the norms' */
    EXPECT_BYTES("bytes of collectives", between(a->collective_bytes, b->collective_bytes), BLOCKS * (2 * full + 4 * n));

    EXPECT_BYTES("allocations and frees", between(a->allocator_calls, b->allocator_calls),
                 2 * BLOCKS * (4 + 3 * K + (bf16 ? 2 : 0)));
    EXPECT_BYTES("allocated bytes", between(a->allocated_bytes, b->allocated_bytes),
                 /* 2 gather outputs, 2 x parameters; gradients, input; output; 2 casts */
                 BLOCKS * (4 * full + 2 * 4 * n + shard + 2 * cast));
    EXPECT_BYTES("copied bytes", between(a->copied_bytes, b->copied_bytes),
                 BLOCKS * (4 * full + 8 * n + 4 * full / ranks + (bf16 ? 2 * (shard + cast) : 0)));

    const uint64_t persistent = scene.after_create.live_peak_bytes;
    TEST_EXPECT(NULL, persistent >= BLOCKS * 3 * shard && persistent < BLOCKS * 3 * shard + 1000,
                "%" PRIu64 " bytes live after create", persistent);
    EXPECT_BYTES("live in forward", live_most(&scene, EO_OP_FORWARD) - persistent, (implicit ? 2 * full + cast : 3 * full + 2 * cast));
    const uint64_t in_flight = 4 * n * inputs;
    EXPECT_BYTES("live in backward", b->live_peak_bytes - persistent, 2 * full + 4 * n + in_flight + (BLOCKS - 2) * shard + 2 * cast);
    TEST_HOLDS(NULL, b->reserved_peak_bytes >= b->live_peak_bytes);
}

static void offloads_as_fsdp2(uint32_t ranks, eo_memory memory, eo_dtype dtype)
{
    struct scene scene = {.ranks = ranks, .memory = memory, .dtype = dtype, .offload = true, .inputs = 1};
    char expected[2048];
    run(&scene);
    const uint64_t shard = 4 * n / ranks, full = dtype == EO_DTYPE_BF16 ? 2 * n : 4 * n;
    const eo_runtime_stats *a = &scene.before_last, *b = &scene.after_last;
    expected_sequence(expected, sizeof(expected));
    TEST_EXPECT(NULL, strcmp(scene.sequence, expected) == 0, "the order of collectives is %s", scene.sequence);
    EXPECT_BYTES("bytes of collectives", between(a->collective_bytes, b->collective_bytes), BLOCKS * (2 * full + 4 * n));
    EXPECT_BYTES("bytes between host and device", between(a->storage_bytes, b->storage_bytes), BLOCKS * 3 * shard);
    TEST_EXPECT(NULL, scene.after_create.live_peak_bytes < 1000, "%" PRIu64 " bytes live on the device after create",
                scene.after_create.live_peak_bytes);
    TEST_EXPECT(NULL, b->live_peak_bytes < 2 * full + 8 * n + 4 * shard + 1000, "%" PRIu64 " bytes live in a step",
                b->live_peak_bytes);
}

int main(void)
{
    for (uint32_t ranks = 2; ranks <= 4; ranks += 2)
        for (uint32_t c = 0; c < 16; c++)
            behaves_as_fsdp2(ranks, c & 1 ? EO_MEMORY_DYNAMIC_POOL : EO_MEMORY_DYNAMIC_MALLOC,
                             c & 8 ? EO_DTYPE_BF16 : EO_DTYPE_FP32, c & 2, 1 + c / 4 % 2);
    test_report("collectives, allocations, live and copied bytes are FSDP2's", 4);
    for (uint32_t c = 0; c < 8; c++)
        offloads_as_fsdp2(c & 4 ? 4 : 2, c & 1 ? EO_MEMORY_DYNAMIC_POOL : EO_MEMORY_DYNAMIC_MALLOC,
                          c & 2 ? EO_DTYPE_BF16 : EO_DTYPE_FP32);
    test_report("offloaded to the host: 12n/W bytes a block a step between host and device, the same collectives", 4);
    return tap_end();
}
