/* SPDX-License-Identifier: MIT
 *
 * The options of train alone, beside those of tools/run/options.
 */
#include "tools/train/train.h"

#include "tools/shared/arguments.h"
#include "tools/shared/overwrite.h"

enum train_key {
    TRAIN_VAL_EVERY = 0x200, TRAIN_PATIENCE, TRAIN_LOG, TRAIN_CSV, TRAIN_TENSORBOARD, TRAIN_TRACE, TRAIN_SAMPLE, TRAIN_PLAN,
    TRAIN_VAL_TOKENS, TRAIN_HASH, TRAIN_LORA, TRAIN_INIT_ADAPTER, TRAIN_LOG_NORMS,
    TRAIN_FROZEN,
};

static const struct argp_option train_options[] = {
    {"lora", TRAIN_LORA, "r=R,...", 0,
     "freeze the model, and train low-rank adapters beside linear layers of its blocks: r=16,alpha=32,targets=q_proj+v_proj, or a "
     "rank alone [alpha: 2 x rank; targets: all-linear]. --export then writes them in PEFT's format", 3},
    {"frozen", TRAIN_FROZEN, "TYPE", 0,
     "with --lora: type of the blocks' frozen matrices: mxfp8, 8 bits and a scale for each 32 elements, or dtype: that of --dtype "
     "[dtype]", 3},
    {"init-adapter", TRAIN_INIT_ADAPTER, "DIR", 0, "with --lora: start from these adapters, a folder of PEFT, on the --init weights", 3},
    {.doc = "Output:", .group = 4},
    {"val-every", TRAIN_VAL_EVERY, "N", 0,
     "validation loss on 32 sequences of held-back data, the last tenth, every N steps [never]", 4},
    {"patience", TRAIN_PATIENCE, "N", 0,
     "with --val-every: end early, when N validation losses in a row are no lower than the lowest before [never]", 4},
    {"val-tokens", TRAIN_VAL_TOKENS, "FILE.bin", 0, "hold back this token file, and train on all of --tokens", 4},
    {"log", TRAIN_LOG, "FILE.jsonl", 0, "write the plan, a JSON object a step, and a summary", 4},
    {"csv", TRAIN_CSV, "FILE.csv", 0, "write a table with a row a step", 4},
    {"tensorboard", TRAIN_TENSORBOARD, "DIR", 0, "write an event file for TensorBoard in DIR", 4},
    {"log-norms", TRAIN_LOG_NORMS, NULL, 0, "with --log, --csv or --tensorboard: the gradient norm of each layer, too", 4},
    {"trace", TRAIN_TRACE, "FILE.json", 0, "write the activity of both streams in the last steps, for Perfetto or Chrome", 4},
    {"sample", TRAIN_SAMPLE, "N", 0, "bytes (tokens) of text to generate at the end, 0: none [160]", 4},
    {"plan", TRAIN_PLAN, NULL, 0, "print the plan, and stop", 4},
    {"hash", TRAIN_HASH, "WHEN", 0, "print a hash of all weights at the end: on or off (slow for a large model) [on]", 4},
    {0},
};

/* A file each. */
static void check_outputs(const struct argp_state *state, const struct train_settings *s)
{
    const struct tool_input outputs[] = {{"--log", s->logs.log},
                                         {"--csv", s->logs.csv},
                                         {"--trace", s->trace_path},
                                         {"--export", s->export.path},
                                         {"--product-cache", s->common.plan_cache}};
    for (size_t i = 0; i < sizeof(outputs) / sizeof(outputs[0]); i++)
        for (size_t k = 0; k < i; k++)
            if (tool_overwrite_is_same(outputs[k].path, outputs[i].path))
                argp_error(state, "%s and %s both name %s; give them a file each", outputs[k].option, outputs[i].option,
                           outputs[i].path);
}

/* A checkpoint's folder is made before the export's, and is not empty then. */
static void check_folders(const struct argp_state *state, const struct train_settings *s)
{
    const struct tool_input others[] = {{"--checkpoint", s->checkpoint.folder}, {"--tensorboard", s->logs.tensorboard}};
    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++)
        if (s->export.path &&
            (tool_job_is_same_folder(s->export.path, others[i].path) || tool_overwrite_is_same(s->export.path, others[i].path)))
            argp_error(state, "--export and %s both name %s; give them a folder each", others[i].option, others[i].path);
}

/* Options that say nothing where they are given. */
static void check_together(const struct argp_state *state, const struct train_settings *s)
{
    tool_options_check_mode(state, &s->common);
    if (s->common.plan.optimizer == EO_OPTIMIZER_MUON && s->common.memory != EO_MEMORY_STATIC)
        argp_error(state, "--optimizer muon needs --memory static: its matrices travel as planned");
    if (s->common.plan.float8_gather && s->common.dynamic_offload)
        argp_error(state,
                   "--gather float8 with --dynamic-offload: what comes from the host is gathered as it lies there; leave "
                   "one of them out");
    if (s->common.plan.lora.rank && s->common.memory != EO_MEMORY_STATIC)
        argp_error(state, "--lora needs --memory static: frozen weights beside trained ones are planned");
    if (s->common.plan.lora.rank && s->common.plan.float8_gather)
        argp_error(state, "--lora with --gather float8: frozen weights beside trained ones are gathered in --dtype; leave it out");
    tool_option_check_frozen(state, &s->common.plan);
    tool_option_check_lora(state, &s->common.plan);
    if (s->common.adapter_path && (!s->common.plan.lora.rank || !s->common.init_path))
        argp_error(state, "--init-adapter needs --lora and --init: adapters stand beside a model's weights");
    if (s->export.merged && !s->common.plan.lora.rank)
        argp_error(state, "--export-merged needs --lora: without adapters the whole model is exported anyway");
    if (s->common.val_tokens_path && !s->common.tokens_paths)
        argp_error(state, "--val-tokens needs --tokens; of --text the last tenth is held back");
    if (s->common.val_tokens_path && !s->val_every)
        argp_error(state, "--val-tokens needs --val-every N, the number of steps between its losses");
    if (s->patience && !s->val_every)
        argp_error(state, "--patience needs --val-every N, the number of steps between the losses that it counts");
    if (s->common.plan.norm_parts && !s->logs.log && !s->logs.csv && !s->logs.tensorboard)
        argp_error(state, "--log-norms needs --log, --csv or --tensorboard, which show the norms");
    const char *idle = s->world->collectives ? "--collectives" : s->world->join_s > 0 ? "--join-timeout"
                       : s->world->insecure  ? "--insecure" : NULL;
    if (idle && !s->world->environment.launcher && !s->world->environment.is_alone)
        argp_error(state, "%s needs ranks as processes (launch -n N, mpirun, srun, torchrun); these are threads of one process",
                   idle);
}

static error_t parse_train_option(int key, char *text, struct argp_state *state)
{
    struct train_settings *settings = state->input;
    switch (key) {
    case ARGP_KEY_INIT:
        state->child_inputs[0] = &settings->common;
        state->child_inputs[1] = &settings->export;
        state->child_inputs[2] = &settings->checkpoint;
        state->child_inputs[3] = settings->world;
        return 0;
    case TRAIN_VAL_EVERY:
        settings->val_every = tool_option_count(state, "val-every", text, 1, 1000000000);
        return 0;
    case TRAIN_PATIENCE:
        settings->patience = tool_option_count(state, "patience", text, 1, 1000000000);
        return 0;
    case TRAIN_LORA: tool_option_lora(state, text, &settings->common.plan.lora); return 0;
    case TRAIN_FROZEN: settings->common.plan.float8_frozen = tool_option_frozen(state, text); return 0;
    case TRAIN_INIT_ADAPTER: settings->common.adapter_path = text; return 0;
    case TRAIN_VAL_TOKENS: settings->common.val_tokens_path = text; return 0;
    case TRAIN_LOG: settings->logs.log = text; return 0;
    case TRAIN_CSV: settings->logs.csv = text; return 0;
    case TRAIN_TENSORBOARD: settings->logs.tensorboard = text; return 0;
    case TRAIN_LOG_NORMS: settings->common.plan.norm_parts = true; return 0;
    case TRAIN_TRACE: settings->trace_path = text; return 0;
    case TRAIN_SAMPLE:
        settings->sample_count = (uint32_t)tool_option_count(state, "sample", text, 0, 1 << 20);
        return 0;
    case TRAIN_HASH:
        settings->no_hash = tool_option_choice(state, "hash", text, "on", "off");
        return 0;
    case TRAIN_PLAN: settings->common.plan_only = true; return 0;
    case ARGP_KEY_END:
        settings->common.saves = settings->checkpoint.folder != NULL;
        if (!settings->common.offload_folder)
            settings->common.offload_folder = settings->checkpoint.folder;
        check_outputs(state, settings);
        check_folders(state, settings);
        check_together(state, settings);
        if (settings->trace_path && !tool_option_given(&settings->common, "graph-times"))
            settings->common.graph_times = true;
        return 0;
    default: return ARGP_ERR_UNKNOWN;
    }
}

static const struct argp_child children[] = {{.argp = &tool_options_argp},
                                             {.argp = &tool_export_argp},
                                             {.argp = &tool_checkpoint_argp},
                                             {.argp = &tool_job_world_argp},
                                             {0}};
const struct argp tool_train_argp = {
    .options = train_options, .parser = parse_train_option, .children = children,
    .doc = "Trains a GPT, sharded over ranks, in memory placed before the first step.\vExit status: 0 done, or ended by a signal "
           "after the step in progress; 1 something failed (a step, a checkpoint, a log, a trace or an export); 2 refused "
           "input, or a damaged checkpoint; 3 a rank was lost.",
};
