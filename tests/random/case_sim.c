/* SPDX-License-Identifier: MIT
 *
 * Ranks on the simulated GPU: one that all share, one each, and through NCCL; by the case's seed.
 */
#include "tests/random/case_sim.h"

#include <string.h>

#include <evenodd/world_nccl.h>

#include "tests/random/case_calls.h"
#include "tests/simulator/cuda/sim.h"

enum { TIMEOUT_MS = 20000 };

static eo_nccl_id case_nccl_id;

static bool is_nccl(const struct random_case *c) { return c->seed % 3 == 2; }

static eo_status open_on_gpus(const struct random_case *c, eo_world **worlds)
{
    if (is_nccl(c))
        return eo_nccl_id_create(&case_nccl_id, NULL);
    return eo_world_create_local(worlds, eo_world_params(.rank_count = c->settings.rank_count, .device = "cuda",
                                                         .share_device = c->seed % 3 == 0, .timeout_ms = TIMEOUT_MS));
}

static eo_status join_on_gpus(const struct random_case *c, uint32_t rank, eo_world **world)
{
    static const char *const modes[] = {"plain", "registered"};
    if (!is_nccl(c))
        return EO_OK;
    return eo_world_create_nccl(world, &(const eo_world_nccl_params){
        .rank = rank, .rank_count = c->settings.rank_count, .id = &case_nccl_id, .device_index = rank,
        .mode = modes[c->seed / 3 % 2], .timeout_ms = TIMEOUT_MS,
        .launch_order_is_implicit = c->settings.separate_reduce_stream && c->seed / 6 % 2});
}

/* Those of `local` end after all ranks. */
static void leave_gpus(const struct random_case *c, uint32_t rank, eo_world **world)
{
    (void)rank;
    if (is_nccl(c))
        eo_world_destroy(world);
}

static void run_as_simulated(uint32_t count, void *(*main)(void *argument), void *const *arguments)
{
    sim_run_ranks(count, main, arguments);
}

static void resolve_and_call(const void *arguments)
{
    const struct case_call *call = arguments;
    const void *in[CASE_INPUTS];
    void *out[CASE_OUTPUTS];
    for (int i = 0; i < CASE_INPUTS; i++)
        in[i] = sim_at_read(call->in[i], call->in_bytes[i]);
    for (int i = 0; i < CASE_OUTPUTS; i++)
        out[i] = sim_at_write(call->out[i], call->out_bytes[i]);
    call->kernel(call, in, out);
}

static eo_status launch_on_gpu(const struct case_call *call, void *stream)
{
    struct sim_range ranges[CASE_INPUTS + CASE_OUTPUTS];
    for (int i = 0; i < CASE_INPUTS; i++)
        ranges[i] = SIM_READS(call->in[i], call->in_bytes[i]);
    for (int i = 0; i < CASE_OUTPUTS; i++)
        ranges[CASE_INPUTS + i] = SIM_WRITES(call->out[i], call->out_bytes[i]);
    const cudaError_t error = sim_kernel(call->name, stream, resolve_and_call, call, sizeof(*call), ranges,
                                         CASE_INPUTS + CASE_OUTPUTS);
    return error == cudaSuccess ? EO_OK : EO_ERR_DEVICE;
}

static const struct case_ranks on_gpus = {.open = open_on_gpus, .join = join_on_gpus, .leave = leave_gpus,
                                          .run = run_as_simulated, .launch = launch_on_gpu, .has_graphs = true, .resumes = true};

bool case_run_simulated(const struct random_case *c, struct case_outcome *out)
{
    sim_start(&(struct sim_config){.seed = c->seed, .device_count = CASE_RANKS_MAX, .quiet = true});
    const bool ran = case_run(c, &on_gpus, out);
    const uint32_t violations = sim_finish();
    if (ran && violations)
        snprintf(out->text, sizeof(out->text), "simulator: %s", sim_violation(0));
    return ran && !violations;
}
