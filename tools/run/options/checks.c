/* SPDX-License-Identifier: MIT
 *
 * Options that belong together, or that exclude each other; and defaults that depend on others.
 */
#include "tools/run/options/keys.h"

#include "tools/shared/arguments.h"

/* Groups and modes; how many ranks there are may be known from the environment alone: then the plan refuses groups. */
static void check_strategy(const struct argp_state *state, struct tool_options *o)
{
    if (o->plan.strategy == EO_STRATEGY_HSDP && tool_option_is_given(o, OPTION_RANKS) && o->plan.ranks % o->plan.shard_group)
        argp_error(state, "--strategy hsdp:%u: groups of %u do not divide --ranks %u", o->plan.shard_group, o->plan.shard_group,
                   o->plan.ranks);
    if (o->plan.strategy == EO_STRATEGY_ZERO3 || o->memory == EO_MEMORY_STATIC)
        return;
    if (tool_option_is_given(o, OPTION_MEMORY))
        argp_error(state, "--strategy %s needs --memory static: the dynamic modes are FSDP2's full sharding, zero3",
                   eo_strategy_name(o->plan.strategy));
    o->plan.strategy = EO_STRATEGY_ZERO3; /* a comparison's other side */
    o->plan.shard_group = 0;
}

static void check_device(const struct argp_state *state, struct tool_options *o)
{
    const bool on_gpu = tool_options_on_gpu(o);
    if (o->memory == EO_MEMORY_DYNAMIC_CACHING && !on_gpu)
        argp_error(state, "--memory dynamic:caching is a GPU's allocator; with --device cpu use dynamic:pool");
    if (o->plan.graph && !on_gpu)
        argp_error(state, "--graph on: a CPU has no graphs; leave it out, or use --device cuda");
    if (o->plan.graph && o->memory != EO_MEMORY_STATIC && tool_option_is_given(o, OPTION_MEMORY))
        argp_error(state, "--graph on needs --memory static: graphs need fixed addresses, and with %s they move",
                   tool_memory_name(o->memory));
    if ((o->cupti || o->cupti_library) && !on_gpu)
        argp_error(state, "--cupti needs --device cuda: it reports GPU activity");
    if (o->cupti_library && !o->cupti)
        argp_error(state, "--cupti-library needs --cupti on; add that, or leave it out");
    if (o->graph_times && tool_option_is_given(o, OPTION_GRAPH_TIMES) && !on_gpu)
        argp_error(state, "--graph-times on needs --device cuda: a CPU has no graphs, and always reports its times");
    if (o->plan_cache && !on_gpu)
        argp_error(state, "--product-cache needs --device cuda; leave it out");
    if (on_gpu && tool_option_is_given(o, OPTION_INSTRUCTION_SET))
        argp_error(state, "--instruction-set needs --device cpu; leave it out");
    if (o->plan.norms_beside && (!on_gpu || o->memory != EO_MEMORY_STATIC))
        argp_error(state, "--norms-beside needs --device cuda and --memory static; leave it out");
    if (o->repeatable && !on_gpu)
        argp_error(state, "--repeatable needs --device cuda: a CPU's bits are always the same");
    if (o->peak_tflops > 0 && !on_gpu)
        argp_error(state, "--peak-tflops needs --device cuda; a CPU's peak is measured (--peak-seconds)");
    if (on_gpu && tool_option_is_given(o, OPTION_FABRIC))
        argp_error(state, "--fabric needs --device cpu: a GPU uses its real link");
    if (!tool_option_is_given(o, OPTION_GRAPH))
        o->plan.graph = on_gpu;
    o->plan.graph = o->plan.graph && o->memory == EO_MEMORY_STATIC;
    if (on_gpu && o->plan.threads == 0)
        o->plan.threads = 1; /* they only issue work */
}

void tool_options_check_mode(const struct argp_state *state, const struct tool_options *o)
{
    const char *memory = tool_memory_name(o->memory);
    const bool is_static = o->memory == EO_MEMORY_STATIC;
    if (is_static && o->implicit_prefetch)
        argp_error(state, "--implicit-prefetch needs --memory dynamic:...; in static memory the plan decides the time of "
                   "gathers (--no-prefetch: at the weights' use)");
    if (is_static && tool_option_is_given(o, OPTION_REDUCE_INPUTS))
        argp_error(state, "--reduce-inputs needs --memory dynamic:...; in static memory --slots G,D sets the number of "
                   "gradient buffers");
    if (is_static && o->dynamic_offload)
        argp_error(state, "--dynamic-offload needs --memory dynamic:...; in static memory --offload-layers N sets what leaves");
    if (!is_static && tool_option_is_given(o, OPTION_SLOTS))
        argp_error(state, "--slots needs --memory static: %s takes buffers on demand (--reduce-inputs)", memory);
    if (o->graph_times && tool_option_is_given(o, OPTION_GRAPH_TIMES) && !o->plan.graph)
        argp_error(state, "--graph-times on needs steps as a graph (--graph on, --memory static)");
}

static void check_budget(const struct argp_state *state, const struct tool_options *o)
{
    static const int chosen[] = {OPTION_RECOMPUTE,         OPTION_SLOTS,      OPTION_OFFLOAD_LAYERS, OPTION_OFFLOAD_SLOTS,
                                 OPTION_OFFLOAD_GRADIENTS, OPTION_LATE_UPDATES, OPTION_OFFLOAD_ACTIVATIONS,
                                 OPTION_HEAD_CHUNKS};
    const size_t count = sizeof(chosen) / sizeof(chosen[0]) - !o->budget_may_change_bits;
    if (!tool_option_is_given(o, OPTION_BUDGET)) {
        if ((tool_option_is_given(o, OPTION_RATES) && !o->bucketing_auto) || o->budget_may_change_bits)
            argp_error(state, "--%s needs --budget BYTES, the memory of a rank%s",
                       o->budget_may_change_bits ? "budget-may-change-bits" : "rates",
                       o->budget_may_change_bits ? "" : ", or --bucketing auto");
        return;
    }
    for (size_t i = 0; i < count; i++)
        if (tool_option_is_given(o, chosen[i]))
            argp_error(state, "--budget chooses --%s; leave one of them out", tool_option_name(chosen[i]));
    tool_option_check_budget(state, tool_options_on_gpu(o), o->budget_host_bytes);
    if (o->memory != EO_MEMORY_STATIC)
        argp_error(state, "--budget needs --memory static: it bounds what is planned");
}

static void check_bucketing(const struct argp_state *state, const struct tool_options *o)
{
    if (!tool_option_is_given(o, OPTION_BUCKETING))
        return;
    if (o->memory != EO_MEMORY_STATIC || o->plan.no_prefetch)
        argp_error(state, "--bucketing needs --memory static, and no --no-prefetch: the plan joins gathers ahead of their use");
    if (o->plan.gather_run * o->plan.gather_slots > 64 || o->plan.gradient_run * o->plan.gradient_slots > 64)
        argp_error(state, "--bucketing %u,%u with --slots %u,%u: a slot has a buffer for each block; at most 64 of each kind are "
                   "possible", o->plan.gather_run, o->plan.gradient_run, o->plan.gather_slots, o->plan.gradient_slots);
    if (o->bucketing_auto && tool_options_on_gpu(o) && (!o->rates_path || o->measures_rates))
        argp_error(state, "--bucketing auto with --device cuda needs --rates FILE.json: nothing measures the link of GPUs");
}

static void check_offload(const struct argp_state *state, struct tool_options *o)
{
    static const int planned[] = {OPTION_OFFLOAD_LAYERS, OPTION_OFFLOAD_SLOTS,       OPTION_OFFLOAD_GRADIENTS,
                                  OPTION_LATE_UPDATES,   OPTION_OFFLOAD_ACTIVATIONS, OPTION_OFFLOAD_FOLDER};
    const bool is_static = o->memory == EO_MEMORY_STATIC, is_other_side = !tool_option_is_given(o, OPTION_MEMORY);
    if (!is_static && o->dynamic_offload && is_other_side) { /* a comparison's, which has a plan for it on one side */
        o->plan.offload_layers = o->plan.offload_slots = o->plan.offload_activations = 0;
        o->plan.offload_gradients = o->plan.late_updates = false;
    }
    for (size_t i = 0; i < sizeof(planned) / sizeof(planned[0]) && !is_static && !is_other_side; i++)
        if (tool_option_is_given(o, planned[i]))
            argp_error(state, "--%s needs --memory static: what is offloaded is planned%s", tool_option_name(planned[i]),
                       o->dynamic_offload ? "" : " (in dynamic memory: --dynamic-offload)");
    tool_option_check_offload(state, &o->plan);
    if (tool_option_is_given(o, OPTION_OFFLOAD_FOLDER) && tool_options_on_gpu(o))
        argp_error(state, "--offload-folder needs --device cpu: with GPUs the host's memory takes what is offloaded");
}

/* What is not given is as usual with the optimizer. */
static void complete_optimizer(const struct argp_state *state, struct tool_options *o)
{
    static const struct {
        double learning_rate, beta2, weight_decay;
    } usual[EO_OPTIMIZER_COUNT] = {
        [EO_OPTIMIZER_ADAMW] = {0.0006, 0.95, 0.1},
        [EO_OPTIMIZER_SGD] = {0.1, 0, 0},
        [EO_OPTIMIZER_LION] = {0.0001, 0.99, 0.6},
        [EO_OPTIMIZER_ADAMW8BIT] = {0.0006, 0.95, 0.1},
        [EO_OPTIMIZER_MUON] = {0.0006, 0.95, 0.1},
    };
    const bool has_eps = o->plan.optimizer != EO_OPTIMIZER_SGD && o->plan.optimizer != EO_OPTIMIZER_LION;
    if (!has_eps && tool_option_is_given(o, OPTION_EPS))
        argp_error(state, "--eps is AdamW's; with --optimizer %s leave it out", eo_optimizer_name(o->plan.optimizer));
    const bool is_sgd = o->plan.optimizer == EO_OPTIMIZER_SGD, is_muon = o->plan.optimizer == EO_OPTIMIZER_MUON;
    if (is_sgd && (tool_option_is_given(o, OPTION_BETA1) || tool_option_is_given(o, OPTION_BETA2)))
        argp_error(state, "--beta1 and --beta2: SGD has none; with --optimizer sgd give --momentum");
    if (!is_sgd && !is_muon && tool_option_is_given(o, OPTION_MOMENTUM))
        argp_error(state, "--momentum is SGD's and Muon's; with --optimizer %s give --beta1",
                   eo_optimizer_name(o->plan.optimizer));
    if (!tool_option_is_given(o, OPTION_MOMENTUM))
        o->momentum = is_muon ? 0.95 : 0.9;
    if (is_muon && o->momentum <= 0)
        argp_error(state, "--momentum 0: Muon's directions are those of its momentum; give one above 0");
    if (is_sgd)
        o->beta1 = o->momentum;
    if (!tool_option_is_given(o, OPTION_LR))
        o->learning_rate = usual[o->plan.optimizer].learning_rate;
    if (!tool_option_is_given(o, OPTION_BETA2))
        o->beta2 = usual[o->plan.optimizer].beta2;
    if (!tool_option_is_given(o, OPTION_WEIGHT_DECAY))
        o->weight_decay = usual[o->plan.optimizer].weight_decay;
}

void tool_options_check_together(const struct argp_state *state, struct tool_options *o)
{
    complete_optimizer(state, o);
    check_device(state, o);
    check_strategy(state, o);
    if (o->text_paths && o->tokens_paths)
        argp_error(state, "--text and --tokens are both given; give one of them");
    if (o->tokenizer_path && !o->tokens_paths)
        argp_error(state, "--tokenizer needs --tokens; bytes of a text need none");
    if (o->plan.packed && !o->tokens_paths && !o->plan_only)
        argp_error(state, "--pack documents needs --tokens; a text has no documents");
    if (o->shuffle && !o->tokens_paths)
        argp_error(state, "--shuffle needs --tokens; places in a text are drawn anyway");
    if (o->init_path && !tool_option_is_given(o, OPTION_MODEL)) { /* the shape of the files, then */
        o->model_of_init = true;
        o->model_name = "init";
    }
    if (o->model_of_init && !o->init_path)
        argp_error(state, "--model init takes the shape of existing weights; name them with --init FILE.bin, or a folder");
    if (tool_option_is_given(o, OPTION_WARMUP) && o->warmup > o->steps)
        argp_error(state, "--warmup %llu is longer than the run of --steps %llu; give fewer",
                   (unsigned long long)o->warmup, (unsigned long long)o->steps);
    if (!tool_option_is_given(o, OPTION_WARMUP))
        o->warmup = o->steps / 10 < 20 ? o->steps / 10 : 20;
    if (o->minimum_rate > o->learning_rate)
        argp_error(state, "--min-lr %g is above --lr %g; give a smaller one", o->minimum_rate, o->learning_rate);
    if (tool_option_is_given(o, OPTION_MINIMUM_RATE) && !tool_schedule_has_minimum(&o->schedule))
        argp_error(state, "--min-lr belongs to --schedule cosine, linear and wsd; leave it out");
    check_budget(state, o);
    check_bucketing(state, o);
    if (o->plan.late_updates && o->plan.no_prefetch)
        argp_error(state, "--late-updates hides copies, which --no-prefetch leaves in view; leave one of them out");
    check_offload(state, o);
    if (o->plan.no_prefetch && o->memory != EO_MEMORY_STATIC && tool_option_is_given(o, OPTION_MEMORY))
        argp_error(state, "--no-prefetch needs --memory static; with %s use --implicit-prefetch", tool_memory_name(o->memory));
    if (o->memory != EO_MEMORY_STATIC) /* a comparison's other side */
        o->plan.no_prefetch = false;
    if (o->world_ranks && tool_option_is_given(o, OPTION_RANKS) && o->plan.ranks != o->world_ranks)
        argp_error(state, "--ranks is %u, but %s has started %u; leave --ranks out", o->plan.ranks, o->world_launcher,
                   o->world_ranks);
    if (o->world_ranks)
        o->plan.ranks = o->world_ranks;
    if (!o->plan_only && !o->world_ranks && o->plan.ranks > TOOL_RUN_RANKS_MAX)
        argp_error(state, "--ranks is %u, but at most %d run in one process (--plan takes more)", o->plan.ranks,
                   TOOL_RUN_RANKS_MAX);
    tool_option_check_gather(state, &o->plan);
    tool_option_check_products(state, &o->plan, "--device cuda");
    if (o->plan.threads == 0)
        o->plan.threads = tool_threads_of(tool_core_count(), tool_options_host_ranks(o));
}
