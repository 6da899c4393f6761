/* SPDX-License-Identifier: MIT
 *
 * Goal: a program built against earlier headers, whose structs were shorter, is not overrun by what the library gives out; and
 * one of later headers finds zeros in what the library does not know.
 * Method: what such programs call is the sized function of each call, with the size their headers had. Each gets every size
 * from nothing to more than today's, between guards. The structs of the header before the first growth stand below: FROZEN.
 * Of those that a program fills the sizes do, with the number of the API that has them.
 */
#include <evenodd/layers.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/conformance/ranks.h"
#include "runtime/plan/internal.h"
#include "tests/unit/plan/models.h"
#include "tests/conformance/written_out.h"

/* ---- the headers before ---- */

struct old_step_report {
    double gradient_norm, clip_factor, values[4];
    uint64_t step;
};

struct old_parameter_info {
    const char *name;
    uint32_t layer, dim_count;
    uint64_t dims[4], element_count, padding;
    bool no_weight_decay, frozen, float8_gather;
};

struct old_runtime_stats {
    uint64_t steps, arena_bytes, outside_bytes, live_peak_bytes, reserved_peak_bytes, allocator_calls, allocated_bytes,
        copied_bytes, cast_bytes, collective_count, collective_bytes, wait_ns[4], host_wait_ns, step_ns, storage_bytes;
};

struct old_timeline_record {
    uint32_t operation;
    eo_operation_kind kind;
    eo_stream_id stream;
    const char *name;
    uint64_t ready_ns, start_ns, end_ns, live_bytes;
};

struct old_plan_row {
    const char *name;
    eo_category category;
    eo_space space;
    uint64_t offset, bytes;
    bool always_live;
    char first[128], last[128];
};

struct old_checkpoint_parameter {
    uint64_t offset;
    struct old_parameter_info info;
};

#define SAME_PLACE(old, new, field) \
    _Static_assert(offsetof(struct old, field) == offsetof(new, field), #new "." #field " has moved: raise EO_API")
SAME_PLACE(old_step_report, eo_step_report, step);
SAME_PLACE(old_parameter_info, eo_parameter_info, padding);
SAME_PLACE(old_parameter_info, eo_parameter_info, float8_gather);
SAME_PLACE(old_checkpoint_parameter, eo_checkpoint_parameter, offset);
SAME_PLACE(old_checkpoint_parameter, eo_checkpoint_parameter, info);
SAME_PLACE(old_runtime_stats, eo_runtime_stats, wait_ns);
SAME_PLACE(old_runtime_stats, eo_runtime_stats, storage_bytes);
SAME_PLACE(old_timeline_record, eo_timeline_record, live_bytes);
SAME_PLACE(old_plan_row, eo_plan_row, always_live);
SAME_PLACE(old_plan_row, eo_plan_row, last);

/* ---- what a program fills ---- */

#define FILLED(type, bytes) \
    _Static_assert(sizeof(type) == (bytes), #type " has grown: raise EO_API, and write its new size here")
_Static_assert(EO_API == 11, "the sizes below are those of EO_API 11: write those of today, and the number");
FILLED(eo_buffer_params, 40);
FILLED(eo_flight_recorder_params, 40);
FILLED(eo_gpu_profile_params, 24);
FILLED(eo_layer_params, 16);
FILLED(eo_model_params, 16);
FILLED(eo_parameter_params, 88);
FILLED(eo_plan_params, 96);
FILLED(eo_position_params, 40);
FILLED(eo_rendezvous_params, 104);
FILLED(eo_runtime_params, 160);
FILLED(eo_saver_params, 40);
FILLED(eo_step_params, 112);
FILLED(eo_team_params, 48);
FILLED(eo_transformer_params, 184);
FILLED(eo_world_join_params, 80);
FILLED(eo_world_mpi_params, 32);
FILLED(eo_world_nccl_params, 72);
FILLED(eo_world_params, 48);

/* ---- every size ---- */

enum { MORE = 24, GUARD = 0xa5, ROOM = 4096 };

struct asked {
    eo_runtime *rt;
    const eo_plan *plan;
    const eo_model *model;
    const eo_checkpoint *checkpoint;
};

static void give_report(const struct asked *a, void *out, size_t bytes)
{
    must(eo_runtime_get_report_sized(a->rt, STEPS, out, bytes), "report", a->rt);
}

static void give_stats(const struct asked *a, void *out, size_t bytes)
{
    eo_runtime_get_stats_sized(a->rt, out, bytes);
}

static void give_record(const struct asked *a, void *out, size_t bytes)
{
    TEST_HOLDS(NULL, eo_runtime_timeline_sized(a->rt, out, 1, bytes) == 1);
}

static void give_summary(const struct asked *a, void *out, size_t bytes)
{
    eo_plan_get_summary_sized(a->plan, out, bytes);
}

static void give_row(const struct asked *a, void *out, size_t bytes)
{
    must(eo_plan_get_row_sized(a->plan, 1, out, bytes), "row", NULL);
}

static void give_operation(const struct asked *a, void *out, size_t bytes)
{
    must(eo_plan_get_operation_sized(a->plan, EO_LIST_STEADY, 2, out, bytes), "operation", NULL);
}

static void give_parameter(const struct asked *a, void *out, size_t bytes)
{
    must(eo_model_parameter_sized(a->model, 1, out, bytes), "parameter", NULL);
}

static void give_saved_parameter(const struct asked *a, void *out, size_t bytes)
{
    must(eo_checkpoint_get_parameter_sized(a->checkpoint, 1, out, bytes), "parameter of a checkpoint", NULL);
}

static eo_status make_zeros(void *user, uint32_t parameter, uint64_t offset, uint64_t count, float *values)
{
    memset(values, 0, count * sizeof(*values));
    return EO_OK;
}

/* In a folder that is gone when this returns. */
static void open_checkpoint(eo_checkpoint **checkpoint, const eo_plan *plan)
{
    char folder[] = "/tmp/evenodd-structs-XXXXXX", path[64], command[64];
    must(mkdtemp(folder) ? EO_OK : EO_ERR_IO, "a folder", NULL);
    must(eo_checkpoint_make(plan, folder, make_zeros, NULL, NULL, 0, &eo_test_log), "make a checkpoint", NULL);
    must(eo_checkpoint_find(path, sizeof(path), NULL, folder, &eo_test_log), "find it", NULL);
    must(eo_checkpoint_open(checkpoint, path, &eo_test_log), "open it", NULL);
    snprintf(command, sizeof(command), "rm -r %s", folder);
    must(system(command) == 0 ? EO_OK : EO_ERR_IO, "remove it", NULL);
}

static void check_sizes(const struct asked *asked, void (*give)(const struct asked *, void *, size_t), size_t full_bytes,
                        const char *what)
{
    static unsigned char full[ROOM], guarded[ROOM + MORE];
    memset(full, 0, sizeof(full));
    give(asked, full, full_bytes);
    for (size_t bytes = 0; bytes <= full_bytes + MORE; bytes++) {
        memset(guarded, GUARD, sizeof(guarded));
        give(asked, guarded, bytes);
        bool same = memcmp(guarded, full, bytes < full_bytes ? bytes : full_bytes) == 0;
        for (size_t i = full_bytes; i < bytes; i++)
            same = same && guarded[i] == 0;
        for (size_t i = bytes; i < sizeof(guarded); i++)
            same = same && guarded[i] == GUARD;
        TEST_EXPECT(NULL, same, "%s in %d bytes of %d", what, (int)bytes, (int)full_bytes);
    }
}

/* Records of an earlier header lie closer together. */
static void check_records(eo_runtime *rt)
{
    eo_timeline_record today[3];
    unsigned char earlier[3 * 32 + MORE];
    memset(earlier, GUARD, sizeof(earlier));
    TEST_HOLDS(NULL, eo_runtime_timeline(rt, today, 3) == 3);
    TEST_HOLDS(NULL, eo_runtime_timeline_sized(rt, (eo_timeline_record *)(void *)earlier, 3, 32) == 3);
    for (int i = 0; i < 3; i++)
        TEST_HOLDS(NULL, memcmp(earlier + 32 * i, &today[i], 32) == 0);
    for (size_t i = 3 * 32; i < sizeof(earlier); i++)
        TEST_HOLDS(NULL, earlier[i] == GUARD);
}

/* A step of a program that knows the old report. */
static void check_step_end(const struct scene *scene, eo_runtime *rt)
{
    struct {
        struct old_step_report report;
        unsigned char guard[MORE];
    } given;
    memset(&given, GUARD, sizeof(given));
    must(eo_step_begin(rt), "begin", rt);
    for (uint32_t b = 0; b < scene->plan->params.micro_batches; b++)
        must(eo_micro_batch_skip(rt), "skip a micro-batch", rt);
    must(eo_step_end_sized(rt, eo_step_params(.learning_rate = 1), (eo_step_report *)(void *)&given.report,
                           sizeof(given.report)), "end", rt);
    TEST_HOLDS(NULL, given.report.step == STEPS + 1 && given.report.clip_factor == 1);
    for (size_t i = 0; i < MORE; i++)
        TEST_HOLDS(NULL, given.guard[i] == GUARD);
}

int main(void)
{
    struct scene scene = {.model = eo_plan_model("tied"), .settings = {.rank_count = 1, .log = &eo_test_log}};
    eo_runtime *rt;
    plan_anew(&scene);
    must(eo_world_create_local(scene.worlds, eo_world_params(.log = &eo_test_log)), "world", NULL);
    must(eo_runtime_create(&rt, eo_runtime_params(.plan = scene.plan, .world = scene.worlds[0], .log = &eo_test_log)), "create",
         NULL);
    fill(rt, scene.plan);
    for (uint32_t step = 0; step < STEPS; step++)
        run_step(rt, &scene, 0, step);
    eo_checkpoint *checkpoint;
    open_checkpoint(&checkpoint, scene.plan);
    const struct asked asked = {rt, scene.plan, scene.model, checkpoint};
    check_sizes(&asked, give_report, sizeof(eo_step_report), "eo_step_report");
    check_sizes(&asked, give_stats, sizeof(eo_runtime_stats), "eo_runtime_stats");
    check_sizes(&asked, give_record, sizeof(eo_timeline_record), "eo_timeline_record");
    check_sizes(&asked, give_summary, sizeof(eo_plan_summary), "eo_plan_summary");
    check_sizes(&asked, give_row, sizeof(eo_plan_row), "eo_plan_row");
    check_sizes(&asked, give_operation, sizeof(eo_plan_operation), "eo_plan_operation");
    check_sizes(&asked, give_parameter, sizeof(eo_parameter_info), "eo_parameter_info");
    check_sizes(&asked, give_saved_parameter, sizeof(eo_checkpoint_parameter), "eo_checkpoint_parameter");
    eo_checkpoint_close(&checkpoint);
    test_report("structs of every size: no byte more is written, and what is not known is zero", 1);
    check_records(rt);
    check_step_end(&scene, rt);
    test_report("a program of earlier headers takes a step, and reads a timeline", 1);
    eo_runtime_destroy(&rt);
    eo_world_destroy(&scene.worlds[0]);
    eo_plan_destroy(&scene.plan);
    eo_model_destroy(&scene.model);
    return tap_end();
}
