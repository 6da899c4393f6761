/* SPDX-License-Identifier: MIT
 *
 * Goal: no public function crashes on NULL. Getters answer 0, "" or an empty struct; what returns a status refuses.
 * Method: every function of the public headers is called with NULL for each pointer that it takes, and, where it has a
 * handle, once more with nothing but its result missing. tests/house/sources.sh compares the list with the headers.
 */
#include <stdio.h>
#include <string.h>

#include "tests/tap/tap.h"
#if HAVE_LAYERS
#include <evenodd/layers.h>
#else
#include <evenodd/evenodd.h>
#endif

static bool all_hold = true;

#define REFUSED(call) HOLDS((call) == EO_ERR_INVALID)
#define HOLDS(condition)                                                                                              \
    do {                                                                                                              \
        if (!(condition)) {                                                                                           \
            printf("# line %d: %s does not hold\n", __LINE__, #condition);                                            \
            all_hold = false;                                                                                         \
        }                                                                                                             \
    } while (0)

static bool is_zero(const void *data, size_t bytes)
{
    const unsigned char *byte = data;
    for (size_t i = 0; i < bytes; i++)
        if (byte[i])
            return false;
    return true;
}

/* What a getter leaves of a struct that was full of ones. */
#define CLEARED(type, call)                                                                                           \
    do {                                                                                                              \
        type out;                                                                                                     \
        memset(&out, 0x11, sizeof(out));                                                                              \
        call;                                                                                                         \
        HOLDS(is_zero(&out, sizeof(out)));                                                                            \
    } while (0)

static void report(const char *name)
{
    tap(all_hold, "%s with NULL", name);
    all_hold = true;
}

static void models(void)
{
    uint32_t index;
    eo_model *model = NULL;
    REFUSED(eo_model_create(NULL, NULL));
    HOLDS(eo_model_create(&model, NULL) == EO_OK); /* all of its params have defaults */
    REFUSED(eo_model_add_layer(NULL, eo_layer_params(.name = "a"), &index));
    REFUSED(eo_model_add_layer(model, NULL, &index));
    REFUSED(eo_model_add_parameter(NULL, NULL, NULL));
    REFUSED(eo_model_add_parameter(model, NULL, NULL));
    REFUSED(eo_model_add_position(NULL, NULL, NULL));
    REFUSED(eo_model_add_position(model, NULL, NULL));
    REFUSED(eo_model_add_buffer(NULL, NULL, NULL));
    REFUSED(eo_model_add_buffer(model, NULL, NULL));
    HOLDS(eo_model_layer_count(NULL) == 0 && eo_model_position_count(NULL) == 0 && eo_model_parameter_count(NULL) == 0 &&
          eo_model_element_count(NULL) == 0);
    HOLDS(strcmp(eo_model_position_name(NULL, 0), "none") == 0 && strcmp(eo_model_position_name(model, 0), "none") == 0);
    HOLDS(strcmp(eo_model_layer_name(NULL, 0), "none") == 0 && strcmp(eo_model_layer_name(model, UINT32_MAX), "none") == 0);
    REFUSED(eo_model_find_parameter(NULL, "a", &index));
    REFUSED(eo_model_find_parameter(model, NULL, &index));
    REFUSED(eo_model_find_parameter(model, "a", NULL));
    REFUSED(eo_model_parameter(NULL, 0, NULL));
    REFUSED(eo_model_parameter(model, 0, NULL));
    eo_model_destroy(&model);
    eo_model_destroy(&model);
    eo_model_destroy(NULL);
    report("models");
}

static eo_model *small_model(void)
{
    eo_model *model = NULL;
    uint32_t layer;
    HOLDS(eo_model_create(&model, NULL) == EO_OK && eo_model_add_layer(model, eo_layer_params(.name = "a"), &layer) == EO_OK &&
          eo_model_add_parameter(model, eo_parameter_params(.name = "p", .dim_count = 1, .dims = {7}), NULL) == EO_OK &&
          eo_model_add_position(model, eo_position_params(.layer = layer), NULL) == EO_OK);
    return model;
}

static void write_nothing(void *user, const char *text, size_t bytes)
{
    (void)user;
    (void)text;
    (void)bytes;
}

static void plans(const eo_model *model, const eo_plan *plan)
{
    eo_plan *made = NULL;
    uint64_t ns;
    REFUSED(eo_plan_create(NULL, model, eo_plan_params(.rank_count = 1)));
    REFUSED(eo_plan_create(&made, NULL, eo_plan_params(.rank_count = 1)));
    REFUSED(eo_plan_create(&made, model, NULL));
    CLEARED(eo_plan_summary, eo_plan_get_summary(NULL, &out));
    eo_plan_get_summary(plan, NULL);
    REFUSED(eo_plan_get_row(NULL, 0, NULL));
    REFUSED(eo_plan_get_row(plan, 0, NULL));
    HOLDS(eo_plan_operation_count(NULL, EO_LIST_STEADY) == 0 && eo_plan_operation_count(plan, (eo_list)-1) == 0);
    REFUSED(eo_plan_get_operation(NULL, EO_LIST_STEADY, 0, NULL));
    REFUSED(eo_plan_get_operation(plan, EO_LIST_STEADY, 0, NULL));
    REFUSED(eo_plan_get_access(NULL, EO_LIST_STEADY, 0, 0, NULL));
    REFUSED(eo_plan_get_access(plan, EO_LIST_STEADY, 0, 0, NULL));
    eo_plan_operation operation;
    eo_plan_access access;
    eo_shard_range range;
    REFUSED(eo_plan_get_operation(plan, (eo_list)-1, 0, &operation));
    REFUSED(eo_plan_get_access(plan, (eo_list)-1, 0, 0, &access));
    REFUSED(eo_plan_simulate(NULL, EO_LIST_STEADY, &ns, 1, &ns));
    REFUSED(eo_plan_simulate(plan, (eo_list)-1, &ns, 1, &ns));
    REFUSED(eo_plan_simulate(plan, EO_LIST_STEADY, NULL, 1, &ns));
    REFUSED(eo_plan_simulate(plan, EO_LIST_STEADY, &ns, 0, &ns));
    REFUSED(eo_plan_simulate(plan, EO_LIST_STEADY, &ns, 1, NULL));
    REFUSED(eo_plan_shard_range(NULL, 0, 0, &range));
    REFUSED(eo_plan_shard_range(plan, 1, 0, &range));
    REFUSED(eo_plan_shard_range(plan, 0, 1, &range));
    REFUSED(eo_plan_shard_range(NULL, 0, 0, NULL));
    REFUSED(eo_plan_shard_range(plan, 0, 0, NULL));
    REFUSED(eo_plan_shard_part(NULL, 0, 0, 0, NULL));
    REFUSED(eo_plan_shard_part(plan, 0, 0, 0, NULL));
    REFUSED(eo_plan_parameter_place(NULL, 0, NULL));
    REFUSED(eo_plan_parameter_place(plan, 0, NULL));
    REFUSED(eo_plan_get_row_sized(plan, 0, NULL, 0));
    REFUSED(eo_plan_get_operation_sized(plan, EO_LIST_STEADY, 0, NULL, 0));
    eo_plan_get_summary_sized(NULL, NULL, 0);
    REFUSED(eo_model_parameter_sized(NULL, 0, NULL, 0));
    HOLDS(strcmp(eo_strategy_name((eo_strategy)-1), "unknown") == 0);
    HOLDS(strcmp(eo_category_name((eo_category)-1), "unknown") == 0);
    HOLDS(strcmp(eo_operation_kind_name((eo_operation_kind)-1), "unknown") == 0);
    HOLDS(strcmp(eo_status_text((eo_status)-99), "unknown status") == 0);
    HOLDS(strcmp(eo_dtype_name((eo_dtype)-1), "unknown") == 0);
    char version[40];
    snprintf(version, sizeof(version), "%d.%d.%d", EO_VERSION_MAJOR, EO_VERSION_MINOR, EO_VERSION_PATCH);
    HOLDS(strcmp(eo_version(), version) == 0);
    eo_plan_print(NULL, write_nothing, NULL);
    eo_plan_print(plan, NULL, NULL);
    eo_plan_write_json(NULL, write_nothing, NULL);
    eo_plan_write_json(plan, NULL, NULL);
    eo_plan_destroy(&made);
    eo_plan_destroy(NULL);
    report("plans");
}

static void worlds(void)
{
    char text[8] = "before";
    eo_world *world = NULL;
    eo_device_rates rates;
    REFUSED(eo_device_ask(NULL, NULL, 0, NULL));
    REFUSED(eo_device_measure(NULL, "cuda", 0, NULL));
    REFUSED(eo_device_measure(&rates, NULL, 0, NULL));
    HOLDS(eo_device_measure(&rates, "cpu", 0, NULL) == EO_ERR_UNSUPPORTED && rates.memory_bytes_per_s == 0);
    REFUSED(eo_world_create_local(NULL, eo_world_params(.rank_count = 1)));
    REFUSED(eo_world_create_local(&world, NULL));
    REFUSED(eo_world_split(NULL, NULL, 0, 0));
    REFUSED(eo_world_split(&world, NULL, 0, 0));
    HOLDS(eo_world_rank(NULL) == 0 && eo_world_rank_count(NULL) == 0);
    eo_world_abort(NULL, NULL);
    eo_world_failure(NULL, NULL, 0);
    eo_world_failure(NULL, text, sizeof(text));
    HOLDS(text[0] == '\0');
    HOLDS(eo_world_create_local(&world, eo_world_params(.rank_count = 1)) == EO_OK);
    eo_world_failure(world, NULL, 10);
    REFUSED(eo_world_split(NULL, world, 0, 0));
    REFUSED(eo_world_nccl_get_info(world, NULL));
    REFUSED(eo_world_nccl_get_info(NULL, NULL));
    eo_world_abort(world, NULL);
    eo_world_destroy(&world);
    eo_world_destroy(&world);
    eo_world_destroy(NULL);
    REFUSED(eo_nccl_id_create(NULL, NULL));
    REFUSED(eo_nccl_peer_of(NULL, 0, NULL));
    REFUSED(eo_world_create_nccl(NULL, NULL));
    REFUSED(eo_world_create_nccl(&world, NULL));
    REFUSED(eo_world_create_mpi(NULL, NULL));
    REFUSED(eo_world_create_mpi(&world, NULL));
    report("worlds");
}

static void clusters(void)
{
    eo_rendezvous *rendezvous = NULL;
    eo_world *world = NULL;
    char byte = 0;
    REFUSED(eo_rendezvous_create(NULL, NULL));
    REFUSED(eo_rendezvous_create(&rendezvous, NULL));
    REFUSED(eo_rendezvous_all_gather(NULL, &byte, 1, &byte));
    eo_rendezvous_fail(NULL, EO_ERR_COMM, NULL);
    CLEARED(eo_rank_failure, HOLDS(!eo_rendezvous_failure(NULL, &out)));
    HOLDS(eo_rendezvous_rank(NULL) == 0 && eo_rendezvous_rank_count(NULL) == 0);
    HOLDS(eo_rendezvous_rank_info(NULL, 0).process == 0);
    HOLDS(eo_rendezvous_create(&rendezvous, eo_rendezvous_params(.rank = 0, .rank_count = 1)) == EO_OK);
    REFUSED(eo_rendezvous_all_gather(rendezvous, NULL, 1, &byte));
    REFUSED(eo_rendezvous_all_gather(rendezvous, &byte, 1, NULL));
    HOLDS(!eo_rendezvous_failure(rendezvous, NULL));
    REFUSED(eo_world_create_joined(NULL, eo_world_join_params(.rendezvous = rendezvous)));
    REFUSED(eo_world_create_joined(&world, NULL));
    REFUSED(eo_world_create_joined(&world, eo_world_join_params(.rendezvous = NULL)));
    eo_rendezvous_destroy(&rendezvous);
    eo_rendezvous_destroy(&rendezvous);
    eo_rendezvous_destroy(NULL);
    report("clusters");
}

static void no_runtime(void)
{
    const eo_view *view = NULL;
    eo_step_report step;
    double value = 0;
    float weight = 0;
    eo_timeline_record record;
    REFUSED(eo_runtime_create(NULL, NULL));
    eo_runtime_destroy(NULL);
    HOLDS(eo_runtime_error(NULL)[0] == '\0' && eo_runtime_device(NULL)[0] == '\0');
    REFUSED(eo_step_begin(NULL));
    REFUSED(eo_forward_begin(NULL, 0, &view));
    REFUSED(eo_forward_end(NULL, 0));
    REFUSED(eo_backward_begin(NULL, 0, &view));
    REFUSED(eo_gradients_begin(NULL, 0, &view));
    REFUSED(eo_backward_end(NULL, 0));
    REFUSED(eo_micro_batch_skip(NULL));
    REFUSED(eo_step_end(NULL, eo_step_params(.learning_rate = 1), &step));
    REFUSED(eo_step_capture(NULL));
    REFUSED(eo_step_replay(NULL, eo_step_params(.learning_rate = 1), &step));
    REFUSED(eo_runtime_get_report(NULL, 1, &step));
    REFUSED(eo_evaluation_begin(NULL));
    REFUSED(eo_evaluation_end(NULL));
    REFUSED(eo_input_gradients_begin(NULL));
    REFUSED(eo_input_gradients_end(NULL));
    HOLDS(!eo_step_values(NULL) && eo_runtime_rank(NULL) == 0 && !eo_runtime_plan(NULL) && !eo_runtime_stream(NULL));
    REFUSED(eo_runtime_upload(NULL, &value, &value, 1));
    REFUSED(eo_runtime_download(NULL, &value, &value, 1));
    eo_loss_scaler_update(NULL, NULL);
    REFUSED(eo_step_end_sized(NULL, NULL, NULL, 0));
    REFUSED(eo_step_replay_sized(NULL, NULL, NULL, 0));
    REFUSED(eo_runtime_get_report_sized(NULL, 1, NULL, 0));
    eo_runtime_get_stats_sized(NULL, NULL, 0);
    HOLDS(eo_runtime_timeline_sized(NULL, NULL, 1, 8) == 0);
    HOLDS(!(eo_loss_scale(NULL) > 0));
    HOLDS(!eo_buffer(NULL, 0) && !eo_view_is_stale(NULL, NULL) && !eo_view_weight(NULL, NULL, 0) &&
          !eo_view_gradient(NULL, NULL, 0));
    REFUSED(eo_sum(NULL, &value, 1));
    REFUSED(eo_weights_fill(NULL, 0, NULL, NULL));
    REFUSED(eo_weights_swap_ema(NULL));
    REFUSED(eo_weights_visit(NULL, NULL, NULL));
    REFUSED(eo_weights_read(NULL, "p", &weight));
    REFUSED(eo_weights_write(NULL, "p", &weight));
    CLEARED(eo_runtime_stats, eo_runtime_get_stats(NULL, &out));
    HOLDS(eo_runtime_timeline(NULL, &record, 1) == 0);
    eo_runtime_write_trace(NULL, write_nothing, NULL);
    report("no runtime");
}

static void runtimes(const eo_plan *plan)
{
    const eo_view *view = NULL;
    eo_world *world = NULL;
    eo_runtime *rt = NULL;
    double value = 0;
    HOLDS(eo_world_create_local(&world, eo_world_params(.rank_count = 1)) == EO_OK);
    REFUSED(eo_runtime_create(&rt, NULL));
    HOLDS(eo_runtime_create(&rt, eo_runtime_params(.plan = plan, .world = world, .debug = true)) == EO_OK);
    REFUSED(eo_step_end(rt, NULL, NULL));
    HOLDS(eo_step_begin(rt) == EO_OK);
    REFUSED(eo_forward_begin(rt, 0, NULL));
    HOLDS(eo_forward_begin(rt, 0, &view) == EO_OK && eo_forward_end(rt, 0) == EO_OK);
    REFUSED(eo_backward_begin(rt, 0, NULL));
    HOLDS(eo_backward_begin(rt, 0, &view) == EO_OK);
    REFUSED(eo_gradients_begin(rt, 0, NULL));
    HOLDS(eo_view_is_stale(rt, NULL) && !eo_view_weight(rt, NULL, 0) && !eo_view_gradient(rt, NULL, 0) &&
          !eo_view_weight(NULL, view, 1000));
    HOLDS(eo_gradients_begin(rt, 0, &view) == EO_OK);
    memset(view->gradients[0], 0, 7 * sizeof(float));
    HOLDS(eo_backward_end(rt, 0) == EO_OK);
    REFUSED(eo_step_end(rt, NULL, NULL));
    HOLDS(eo_step_end(rt, eo_step_params(.learning_rate = 1), NULL) == EO_OK);
    REFUSED(eo_runtime_upload(rt, NULL, &value, 1));
    REFUSED(eo_runtime_download(rt, &value, NULL, 1));
    REFUSED(eo_sum(rt, NULL, 1));
    REFUSED(eo_weights_fill(rt, 0, NULL, NULL));
    REFUSED(eo_weights_swap_ema(rt));
    REFUSED(eo_weights_visit(rt, NULL, NULL));
    REFUSED(eo_weights_read(rt, NULL, NULL));
    REFUSED(eo_weights_write(rt, "p", NULL));
    eo_runtime_get_stats(rt, NULL);
    HOLDS(eo_runtime_timeline(rt, NULL, 1) == 0);
    eo_runtime_write_trace(rt, NULL, NULL);
    eo_saver *saver = NULL;
    REFUSED(eo_saver_create(&saver, eo_saver_params(.runtime = rt, .folder = NULL)));
    REFUSED(eo_saver_create(NULL, eo_saver_params(.runtime = rt, .folder = "x")));
    REFUSED(eo_checkpoint_load(NULL, rt));
    eo_runtime_destroy(&rt);
    eo_world_destroy(&world);
    report("a runtime");
}

static void checkpoints(const eo_plan *plan)
{
    eo_checkpoint *checkpoint = NULL;
    eo_saver *saver = NULL;
    eo_saver_report report_of_saver;
    char path[64];
    uint64_t step = 0;
    uint32_t number = 0;
    float value;
    uint64_t copy_bytes = 1;
    HOLDS(!eo_saver_is_in_place(NULL, NULL) && !eo_saver_is_in_place(NULL, &copy_bytes) && copy_bytes == 0);
    HOLDS(eo_saver_bytes(NULL, 0, 0) == 0 && eo_saver_bytes(plan, 1000, 0) == 0);
    REFUSED(eo_saver_create(&saver, NULL));
    REFUSED(eo_saver_create(&saver, eo_saver_params(.folder = "x")));
    eo_saver_destroy(&saver);
    eo_saver_destroy(NULL);
    REFUSED(eo_saver_begin(NULL, NULL, 0));
    HOLDS(!(eo_saver_value(NULL) > 0) && eo_saver_error(NULL)[0] == '\0');
    REFUSED(eo_saver_poll(NULL, 0, &report_of_saver));
    REFUSED(eo_saver_wait(NULL, &report_of_saver));
    REFUSED(eo_checkpoint_find(NULL, 0, &step, "x", NULL));
    REFUSED(eo_checkpoint_find(path, sizeof(path), NULL, NULL, NULL));
    REFUSED(eo_checkpoint_find_before(path, sizeof(path), NULL, "x", NULL));
    REFUSED(eo_checkpoint_find_before(NULL, 0, &step, "x", NULL));
    REFUSED(eo_checkpoint_open(NULL, "x", NULL));
    REFUSED(eo_checkpoint_open(&checkpoint, NULL, NULL));
    eo_checkpoint_close(&checkpoint);
    eo_checkpoint_close(NULL);
    CLEARED(eo_checkpoint_info, eo_checkpoint_get_info(NULL, &out));
    eo_checkpoint_get_info(NULL, NULL);
    HOLDS(eo_checkpoint_optimizer(NULL) == EO_OPTIMIZER_ADAMW);
    REFUSED(eo_checkpoint_get_layer(NULL, 0, NULL));
    REFUSED(eo_checkpoint_get_parameter(NULL, 0, NULL));
    REFUSED(eo_checkpoint_get_parameter_sized(NULL, 0, NULL, 0));
    REFUSED(eo_checkpoint_find_parameter(NULL, NULL, NULL));
    REFUSED(eo_checkpoint_check(NULL, plan));
    REFUSED(eo_checkpoint_blob(NULL, 0, NULL, &number));
    REFUSED(eo_checkpoint_load(NULL, NULL));
    REFUSED(eo_checkpoint_read(NULL, 0, 0, 0, 1, &value));
    REFUSED(eo_checkpoint_verify(NULL));
    REFUSED(eo_checkpoint_verify_part(NULL, 0, 1));
    REFUSED(eo_checkpoint_reshard(NULL, "x", 1, NULL));
    REFUSED(eo_checkpoint_make(NULL, NULL, NULL, NULL, NULL, 0, NULL));
    REFUSED(eo_checkpoint_make(plan, NULL, NULL, NULL, NULL, 0, NULL));
    report("checkpoints");
}

static void recorders(void)
{
    eo_flight_recorder *recorder = NULL;
    eo_flight_log *flight = NULL;
    eo_flight_entry entry;
    char text[8] = "before";
    REFUSED(eo_flight_recorder_create(NULL, NULL));
    REFUSED(eo_flight_recorder_create(&recorder, NULL));
    eo_flight_recorder_destroy(NULL);
    eo_flight_recorder_last(NULL, NULL, 0);
    eo_flight_recorder_last(NULL, text, sizeof(text));
    HOLDS(text[0] == '\0');
    eo_flight_recorder_note(NULL, "note");
    HOLDS(eo_flight_recorder_create(&recorder, eo_flight_recorder_params(.rank_count = 1)) == EO_OK);
    eo_flight_recorder_last(recorder, NULL, 10);
    eo_flight_recorder_note(recorder, NULL);
    eo_flight_recorder_destroy(&recorder);
    REFUSED(eo_flight_log_open(NULL, "x", NULL));
    REFUSED(eo_flight_log_open(&flight, NULL, NULL));
    eo_flight_log_close(&flight);
    eo_flight_log_close(NULL);
    HOLDS(eo_flight_log_info(NULL).rank_count == 0);
    HOLDS(!eo_flight_log_entry(NULL, 0, &entry));
    REFUSED(eo_gpu_profile_create(NULL, NULL));
    REFUSED(eo_gpu_profile_stop(NULL));
    HOLDS(eo_gpu_profile_count(NULL, NULL) == 0);
    REFUSED(eo_gpu_profile_get(NULL, 0, NULL));
    eo_gpu_profile_destroy(NULL);
    report("recorders and profiles");
}

#if HAVE_LAYERS
static void layers(void)
{
    eo_transformer_config config;
    eo_transformer *transformer = NULL;
    eo_decoder *decoder = NULL;
    eo_team *team = NULL;
    double loss;
    float logit;
    REFUSED(eo_transformer_preset(NULL, &config));
    REFUSED(eo_transformer_preset("tiny", NULL));
    HOLDS(!eo_transformer_preset_name(1000));
    REFUSED(eo_team_create(NULL, 1));
    REFUSED(eo_team_create_on(NULL, eo_team_params(.thread_count = 1)));
    REFUSED(eo_team_create_on(&team, NULL));
    HOLDS(eo_team_ask(NULL, NULL) == EO_OK); /* the CPU */
    HOLDS(eo_team_ask("none", NULL) == EO_ERR_UNSUPPORTED);
    eo_team_destroy(&team);
    eo_team_destroy(NULL);
    HOLDS(eo_team_product(NULL, NULL) == EO_ERR_INVALID);
    HOLDS(eo_team_parallel(NULL).thread_count == 1 && eo_team_memory_bytes(NULL) == 0); /* the calling thread alone */
    REFUSED(eo_transformer_create(NULL, NULL));
    REFUSED(eo_transformer_create(&transformer, NULL));
    HOLDS(!eo_transformer_model(NULL) && !eo_transformer_get_params(NULL) && eo_transformer_kernels(NULL)[0] == '\0');
    REFUSED(eo_transformer_initialise(NULL, NULL, 1));
    REFUSED(eo_transformer_initialise_adapters(NULL, NULL, 1));
    HOLDS(!eo_transformer_is_adapter(NULL, 0));
    REFUSED(eo_transformer_prepare(NULL, NULL, NULL));
    REFUSED(eo_transformer_load(NULL, NULL, NULL));
    REFUSED(eo_transformer_micro_batch(NULL, NULL, NULL, NULL, &loss));
    REFUSED(eo_transformer_evaluate(NULL, NULL, NULL, NULL, &loss));
    REFUSED(eo_transformer_logits(NULL, NULL, NULL, NULL, 0, &logit));
    HOLDS(eo_decoder_bytes(NULL, 1) == 0 && eo_decoder_count(NULL) == 0);
    REFUSED(eo_decoder_create(&decoder, NULL, NULL, 1));
    REFUSED(eo_decoder_create(NULL, NULL, NULL, 1));
    REFUSED(eo_decoder_run(NULL, NULL, NULL, 1, &logit));
    REFUSED(eo_decoder_run(NULL, NULL, &(const int32_t){0}, 1, &logit));
    eo_decoder_forget(NULL);
    eo_decoder_destroy(&decoder);
    eo_decoder_destroy(NULL);
    HOLDS(!(eo_transformer_flops(NULL) > 0) && eo_transformer_products(NULL, NULL, 0) == 0);
    REFUSED(eo_product_measure(NULL, NULL, NULL));
    REFUSED(eo_storage_measure(NULL, NULL, NULL));
    REFUSED(eo_storage_cache_bytes(NULL, NULL, NULL));
    HOLDS(eo_transformer_preset("tiny", &config) == EO_OK &&
          eo_transformer_create(&transformer, eo_transformer_params(.config = config)) == EO_OK);
    REFUSED(eo_transformer_initialise(transformer, NULL, 1));
    REFUSED(eo_transformer_initialise_adapters(transformer, NULL, 1));
    REFUSED(eo_transformer_prepare(transformer, NULL, NULL));
    REFUSED(eo_transformer_load(transformer, NULL, NULL));
    REFUSED(eo_transformer_micro_batch(transformer, NULL, NULL, NULL, NULL));
    REFUSED(eo_transformer_evaluate(transformer, NULL, NULL, NULL, NULL));
    REFUSED(eo_transformer_logits(transformer, NULL, NULL, NULL, 0, NULL));
    REFUSED(eo_decoder_create(&decoder, transformer, NULL, 1));
    HOLDS(!decoder);
    HOLDS(eo_transformer_products(transformer, NULL, 100) == 0);
    eo_transformer_destroy(&transformer);
    eo_transformer_destroy(NULL);
    REFUSED(eo_kernels_select(NULL));
    HOLDS(eo_kernels_name()[0] != '\0');
    HOLDS(eo_kernels_at(0) && !eo_kernels_at(UINT32_MAX));
    report("layers");
}
#endif

int main(void)
{
    eo_model *model = small_model();
    eo_plan *plan = NULL;
    HOLDS(eo_plan_create(&plan, model, eo_plan_params(.rank_count = 1)) == EO_OK);
    models();
    plans(model, plan);
    worlds();
    clusters();
    no_runtime();
    runtimes(plan);
    checkpoints(plan);
    recorders();
#if HAVE_LAYERS
    layers();
#endif
    eo_plan_destroy(&plan);
    eo_model_destroy(&model);
    return tap_end();
}
