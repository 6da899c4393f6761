/* SPDX-License-Identifier: MIT
 *
 * Goal: a program that was written against the headers of API 2 compiles and runs against today's.
 * Method: it names every field of every struct that a trainer fills, once by name and once by place, reads those that it
 * is given, and trains as its README did. FROZEN: whoever has to change it has broken somebody's program; new fields go
 * to the end of their structs, and a zero in them means what was before.
 */
#include <evenodd/evenodd.h>
#if HAVE_LAYERS
#include <evenodd/layers.h>
#endif

#include <stdio.h>
#include <string.h>
#include <threads.h>

#pragma GCC diagnostic ignored "-Wmissing-field-initializers" /* what came later */

static int failures;

static void expect(bool holds, const char *what)
{
    failures += !holds;
    if (!holds)
        printf("# %s\n", what);
}

/* ---- places ---- */

static const uint32_t indices[] = {0};
static int anything;
static void take_text(void *user, eo_log_level level, const char *text) { (void)user; (void)level; (void)text; }
static void take_failure(void *user, const eo_rank_failure *failure) { (void)user; (void)failure; }
static void take_activity(void *user, char *text, size_t bytes) { (void)user; (void)text; (void)bytes; }
static void run(void *team, uint32_t count, void (*task)(void *arg, uint32_t index), void *arg)
{
    (void)team;
    for (uint32_t i = 0; i < count; i++)
        task(arg, i);
}
static void update(void *user, const eo_shard *shard) { (void)user; (void)shard; }

/* In static storage what lies between fields is zero. */
#define COMPARE(type, by_place, ...)                                                                                  \
    do {                                                                                                              \
        static type place = by_place, name = {__VA_ARGS__};                                                           \
        expect(memcmp(&place, &name, sizeof(type)) == 0, #type ": its fields have other places");                     \
    } while (0)
#define LIST(...) {__VA_ARGS__}

static const eo_log silence = {.write = take_text, .user = &anything, .level = EO_LOG_INFO};

static void places_of_core(void)
{
    COMPARE(eo_log, LIST(take_text, &anything, EO_LOG_WARN), .write = take_text, .user = &anything, .level = EO_LOG_WARN);
    COMPARE(eo_model_params, LIST("m", &silence), .name = "m", .log = &silence);
    COMPARE(eo_layer_params, LIST("l", true), .name = "l", .frozen = true);
    COMPARE(eo_parameter_params, LIST(1, "p", 2, {3, 4}, true), .layer = 1, .name = "p", .dim_count = 2, .dims = {3, 4},
            .no_weight_decay = true);
    COMPARE(eo_position_params, LIST(1, "q", true, true, indices, 1), .layer = 1, .name = "q", .forward_in_backward = true,
            .backward_without_weights = true, .parameters = indices, .parameter_count = 1);
    COMPARE(eo_buffer_params, LIST("b", 7, EO_CATEGORY_HEAD, {EO_PASS_RECOMPUTE, 1}, {EO_PASS_BACKWARD, 0}, true),
            .name = "b", .bytes = 7, .category = EO_CATEGORY_HEAD, .first = {EO_PASS_RECOMPUTE, 1},
            .last = {EO_PASS_BACKWARD, 0}, .persistent = true);
    COMPARE(eo_plan_params, LIST(8, EO_STRATEGY_HSDP, 4, 2, 3, 5, EO_DTYPE_BF16, EO_DTYPE_BF16, 1, 512, true, true, true,
            &silence), .rank_count = 8, .strategy = EO_STRATEGY_HSDP, .shard_group = 4, .micro_batches = 2, .gather_slots = 3,
            .gradient_slots = 5, .dtype = EO_DTYPE_BF16, .reduce_dtype = EO_DTYPE_BF16, .optimizer_states = 1,
            .align_bytes = 512, .no_prefetch = true, .separate_reduce_stream = true, .separate_reservations = true,
            .log = &silence);
    COMPARE(eo_world_params, LIST(2, 1000, 1.5, 2.5, "cpu", 3, true, &silence), .rank_count = 2, .timeout_ms = 1000,
            .fabric_gigabytes_per_s = 1.5, .fabric_latency_us = 2.5, .device = "cpu", .device_index = 3,
            .share_device = true, .log = &silence);
    COMPARE(eo_parallel, LIST(run, &anything, 2), .run = run, .team = &anything, .thread_count = 2);
    COMPARE(eo_runtime_params, LIST((const eo_plan *)(const void *)&anything, (eo_world *)(void *)&anything,
            EO_MEMORY_DYNAMIC_POOL, {run, &anything, 2}, update, &anything, (eo_flight_recorder *)(void *)&anything, true, true, 9, true, true, 3,
            &silence), .plan = (const eo_plan *)(const void *)&anything, .world = (eo_world *)(void *)&anything,
            .memory = EO_MEMORY_DYNAMIC_POOL, .parallel = {.run = run, .team = &anything, .thread_count = 2},
            .update = update, .update_user = &anything, .recorder = (eo_flight_recorder *)(void *)&anything,
            .place_threads = true, .debug = true, .delay_seed = 9, .graph_times = true, .dynamic_implicit_prefetch = true,
            .dynamic_reduce_inputs = 3, .log = &silence);
    COMPARE(eo_step_params, LIST(1, 2, 3, 4, 5, 6, {7, 8}), .learning_rate = 1, .beta1 = 2, .beta2 = 3, .eps = 4,
            .weight_decay = 5, .clip = 6, .values = {7, 8});
}

static void places_of_others(void)
{
    static const unsigned char token[EO_TOKEN_BYTES];
    COMPARE(eo_saver_params, LIST((eo_runtime *)(void *)&anything, "f", 2, 100, &silence),
            .runtime = (eo_runtime *)(void *)&anything, .folder = "f", .keep = 2, .blob_bytes_max = 100, .log = &silence);
    COMPARE(eo_flight_recorder_params, LIST("f", 1, 2, "h", 3, &silence), .path = "f", .rank = 1, .rank_count = 2, .host = "h",
            .run = 3, .log = &silence);
    COMPARE(eo_rendezvous_params, LIST(1, 4, 1, 2, "a", "29500", token, "j", "h", 100, 200, take_failure, take_activity,
            &anything, &silence), .rank = 1, .rank_count = 4, .local_rank = 1, .local_count = 2, .address = "a",
            .port = "29500", .token = token, .job = "j", .host = "h", .timeout_ms = 100, .silence_ms = 200,
            .failed = take_failure, .activity = take_activity, .user = &anything, .log = &silence);
    COMPARE(eo_world_join_params, LIST((eo_rendezvous *)(void *)&anything, "cpu", 1, "shared", "m", true, 100, 1.5, 2.5,
            &silence), .rendezvous = (eo_rendezvous *)(void *)&anything, .device = "cpu", .device_index = 1,
            .collectives = "shared", .mode = "m", .launch_order_is_implicit = true, .timeout_ms = 100,
            .fabric_gigabytes_per_s = 1.5, .fabric_latency_us = 2.5, .log = &silence);
    COMPARE(eo_world_mpi_params, LIST(&anything, "mpi", 100, &silence), .communicator = &anything, .collectives = "mpi",
            .timeout_ms = 100, .log = &silence);
    COMPARE(eo_world_nccl_params, LIST(1, 2, NULL, &anything, NULL, 3, "zero", 4, true, 100, &silence), .rank = 1,
            .rank_count = 2, .id = NULL, .communicator = &anything, .peers = NULL, .device_index = 3, .mode = "zero",
            .cta_max = 4, .launch_order_is_implicit = true, .timeout_ms = 100, .log = &silence);
    COMPARE(eo_gpu_profile_params, LIST("l", 5, &silence), .library = "l", .capacity = 5, .log = &silence);
#if HAVE_LAYERS
    COMPARE(eo_transformer_config, LIST(EO_FAMILY_LLAMA, 1, 2, 3, 4, 5, 6, 7, 8, true, 9, 10, true, true),
            .family = EO_FAMILY_LLAMA, .layer_count = 1, .width = 2, .head_count = 3, .kv_head_count = 4, .head_size = 5,
            .mlp_width = 6, .vocabulary = 7, .context = 8, .tied_head = true, .norm_eps = 9, .rope_theta = 10,
            .qkv_bias = true, .qk_norm = true);
    COMPARE(eo_transformer_params, LIST({EO_FAMILY_LLAMA}, 1, 2, EO_RECOMPUTE_CHEAP, 3, 4, 5, true, EO_DTYPE_BF16,
            EO_DTYPE_BF16, "cuda", 6, &silence), .config = {.family = EO_FAMILY_LLAMA}, .batch = 1, .seq = 2,
            .recompute = EO_RECOMPUTE_CHEAP, .recompute_blocks = 3, .head_chunks = 4, .thread_count = 5,
            .half_blocks = true, .dtype = EO_DTYPE_BF16, .reduce_dtype = EO_DTYPE_BF16, .device = "cuda",
            .token_slots = 6, .log = &silence);
    COMPARE(eo_team_params, LIST("cuda", 1, 2, &anything, "c", true, &silence), .device = "cuda", .thread_count = 1,
            .device_index = 2, .stream = &anything, .plan_cache = "c", .repeatable = true, .log = &silence);
    COMPARE(eo_product, LIST("p", 1, 2, 3, true, true, 4, EO_DTYPE_BF16), .name = "p", .m = 1, .n = 2, .k = 3,
            .transpose_a = true, .transpose_b = true, .per_micro_batch = 4, .dtype = EO_DTYPE_BF16);
#endif
}

/* ---- what a trainer is told ---- */

static void read_plan(const eo_plan *plan)
{
    eo_plan_summary s;
    eo_plan_row row;
    eo_plan_operation o;
    eo_plan_access access;
    eo_shard_range range;
    eo_plan_get_summary(plan, &s);
    expect(s.params.rank_count == 2 && s.element_count == 2 && s.row_count > 0 && s.operation_count > 0 && s.fingerprint,
           "the summary has its fields");
    expect(s.arena_bytes >= s.lower_bound_bytes && s.space_bytes[EO_SPACE_GATHER] <= s.arena_bytes &&
           s.category_bytes[EO_CATEGORY_MASTER] >= s.category_bytes_at_peak[EO_CATEGORY_MASTER], "and its bytes");
    expect(eo_plan_get_row(plan, 0, &row) == EO_OK && row.name[0] && row.category < EO_CATEGORY_COUNT &&
           row.space < EO_SPACE_COUNT && row.offset <= s.arena_bytes && row.bytes > 0 && (row.always_live || row.first[0]) &&
           (row.always_live || row.last[0]), "a row has its fields");
    expect(eo_plan_get_operation(plan, EO_LIST_STEADY, 0, &o) == EO_OK && o.kind < EO_OP_KIND_COUNT &&
           o.stream < EO_STREAM_COUNT && o.name[0] && o.wait_count <= EO_STREAM_COUNT && o.micro_batch == 0 &&
           o.dtype == EO_DTYPE_FP32 && (o.wait_count == 0 || o.waits[0] != UINT32_MAX || o.wait_previous_step[0]) &&
           (o.position == 0 || o.layer == 0) && o.bytes < UINT64_MAX, "an operation has its fields");
    expect(eo_plan_get_access(plan, EO_LIST_STEADY, 0, 0, &access) == EO_OK && access.row < s.row_count &&
           (access.reads || access.writes), "an access has its fields");
    expect(eo_plan_shard_range(plan, 0, 1, &range) == EO_OK && range.offset > 0 && range.count > 0 && range.replica == 0,
           "a range has its fields");
}

static void read_runtime(const eo_runtime *rt)
{
    eo_runtime_stats s;
    eo_timeline_record records[64];
    eo_runtime_get_stats(rt, &s);
    expect(s.steps == 300 && s.arena_bytes > 0 && s.live_peak_bytes == s.arena_bytes && s.reserved_peak_bytes > 0 &&
           s.collective_count > 0 && s.collective_bytes > 0 && s.step_ns > 0, "the statistics have their fields");
    expect(s.outside_bytes + s.allocator_calls + s.allocated_bytes + s.copied_bytes + s.cast_bytes < UINT64_MAX &&
           s.wait_ns[EO_WAIT_ALL_GATHER] + s.wait_ns[EO_WAIT_REDUCE_SCATTER] + s.wait_ns[EO_WAIT_NORM] + s.host_wait_ns <
           UINT64_MAX, "and the rest");
    const uint32_t count = eo_runtime_timeline(rt, records, 64);
    expect(count > 0 && records[0].name && records[0].kind < EO_OP_KIND_COUNT && records[0].stream < EO_STREAM_COUNT &&
           records[0].ready_ns <= records[0].start_ns && records[0].start_ns <= records[0].end_ns &&
           records[0].live_bytes < UINT64_MAX && records[0].operation < 1000, "a record has its fields");
}

/* ---- README's example, as it was ---- */

#define DO(call) if ((call) < 0) return printf("# failed: %s\n", #call), failures++
static eo_plan *plan;
static int rank_main(void *world)
{
    eo_runtime *rt;
    eo_step_report report;
    const eo_view *view;
    DO(eo_runtime_create(&rt, eo_runtime_params(.plan = plan, .world = world)));
    for (int step = 0; step < 300; step++) {
        const float x = (float)(step % 7 - 3) + 0.5f * (float)eo_world_rank(world);
        DO(eo_step_begin(rt));
        DO(eo_forward_begin(rt, 0, &view));
        const float *w = view->weights[0], error = w[0] * x + w[1] - (3 * x - 1);
        DO(eo_forward_end(rt, 0));
        DO(eo_backward_begin(rt, 0, &view));
        DO(eo_gradients_begin(rt, 0, &view));
        ((float *)view->gradients[0])[0] = error * x * eo_loss_scale(rt);
        ((float *)view->gradients[0])[1] = error * eo_loss_scale(rt);
        DO(eo_backward_end(rt, 0));
        DO(eo_step_end(rt, eo_step_params(.learning_rate = 0.05f, .values = {error * error}), &report));
    }
    if (eo_world_rank(world) == 0) {
        expect(report.values[0] < 1e-3 && report.step == 300 && report.gradient_norm < 1 && report.clip_factor == 1,
               "the line is fitted");
        read_runtime(rt);
    }
    eo_runtime_destroy(&rt);
    return 0;
}

static int train(void)
{
    eo_model *model;
    eo_world *worlds[2];
    thrd_t threads[2];
    DO(eo_model_create(&model, eo_model_params(.name = "a line")));
    DO(eo_model_add_layer(model, eo_layer_params(.name = "line"), NULL));
    DO(eo_model_add_parameter(model, eo_parameter_params(.name = "w", .dim_count = 1, .dims = {2}), NULL));
    DO(eo_model_add_position(model, eo_position_params(.layer = 0), NULL));
    DO(eo_plan_create(&plan, model, eo_plan_params(.rank_count = 2)));
    read_plan(plan);
    DO(eo_world_create_local(worlds, eo_world_params(.rank_count = 2)));
    for (int r = 0; r < 2; r++)
        thrd_create(&threads[r], rank_main, worlds[r]);
    for (int r = 0; r < 2; r++)
        thrd_join(threads[r], NULL);
    for (int r = 0; r < 2; r++)
        eo_world_destroy(&worlds[r]);
    eo_plan_destroy(&plan);
    eo_model_destroy(&model);
    return 0;
}

int main(void)
{
    places_of_core();
    places_of_others();
    printf("%s 1 - the fields of API 2 are where they were\n", failures ? "not ok" : "ok");
    const int before = failures;
    train();
    printf("%s 2 - a program of API 2 trains, and is told what it was\n1..2\n", failures != before ? "not ok" : "ok");
    return failures != 0;
}
