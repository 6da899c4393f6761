/* SPDX-License-Identifier: MIT */
#include "tools/memplan/published/megatron_runs.h"

/* NVIDIA/Megatron-LM at d98e8a64ddf34856e74b24714e3bedb2f5a39553, tests/functional_tests/test_cases: of each case the
 * arguments in model_config.yaml, and of golden_values_*.json (dev_dgx_h100, with AMPERE dev_dgx_a100 or lts_dgx_a100) the last values
 * of mem-allocated-bytes and mem-max-allocated-bytes. They are those of the last rank, so of the last stage. Cases of 8 GPUs; of a
 * release the number of GPUs is not published: 128, or 64, is the one at which its state comes out. Names without
 * "gpt3_mcore_te_", or "gpt3_". */
enum run_flag {
    MATH = 1 << 0, /* attention by products and softmax */
    DROPS = 1 << 1,
    ZERO1 = 1 << 2, /* the distributed optimizer */
    SP = 1 << 3,
    GATED = 1 << 4,
    BIAS = 1 << 5,
    RMS = 1 << 6,
    UNTIED = 1 << 7,
    QK_NORM = 1 << 8,
    RECOMPUTE = 1 << 9, /* every block */
    AMPERE = 1 << 10,
    ROTARY = 1 << 11,
    EXPERTS = 1 << 12,  /* 8, of which 2 */
    SHOWN = 1 << 13,    /* does what is not modelled */
    FSDP = 1 << 14,     /* Megatron's own, zero3 */
    FP8 = 1 << 15,      /* products, and weights that are gathered */
    ETP1 = 1 << 16,     /* experts are cut by --ep alone */
};

static const struct run {
    const char *name;
    struct { uint32_t layers, width, heads, kv_heads, mlp_width, vocabulary; } model;
    struct { uint32_t ranks, tensor, pipeline, context, expert, virtual_stages; } cut;
    struct { uint32_t batch, seq, micro_batches; } step;
    uint32_t flags;
    uint64_t allocated, peak;
} runs[] = {
    {"tp1_pp1_dist_optimizer_no_mmap_bin_files",
     {12, 512, 8, 8, 2048, 50257}, {8, 1, 1, 1, 1, 1}, {4, 1024, 1},
     MATH | DROPS | ZERO1 | BIAS, 581489664, 4702430720},
    {"tp1_pp1_resume_torch_dist_dist_optimizer",
     {12, 512, 8, 8, 2048, 50257}, {8, 1, 1, 1, 1, 1}, {4, 1024, 1},
     DROPS | ZERO1 | BIAS, 581489664, 2691792384},
    {"tp1_pp1_resume_torch_dist_dist_optimizer_no_mmap_bin_files",
     {12, 512, 8, 8, 2048, 50257}, {8, 1, 1, 1, 1, 1}, {4, 1024, 1},
     DROPS | ZERO1 | BIAS | AMPERE, 552128512, 2711714304},
    {"tp1_pp1_resume_torch_dist_uniform_full_recompute",
     {12, 512, 8, 8, 2048, 50257}, {8, 1, 1, 1, 1, 1}, {4, 1024, 1},
     DROPS | BIAS | RECOMPUTE, 1259751936, 2561334272},
    {"tp1_pp1_uniform_full_recompute",
     {12, 512, 8, 8, 2048, 50257}, {8, 1, 1, 1, 1, 1}, {4, 1024, 1},
     MATH | DROPS | BIAS | RECOMPUTE | AMPERE, 1232487936, 2534070272},
    {"tp1_pp2_cp4_a2a_p2p",
     {12, 512, 8, 8, 2048, 50257}, {8, 1, 2, 4, 1, 1}, {4, 1024, 8},
     SP | BIAS | AMPERE, 829378048, 1250505728},
    {"tp1_pp2_resume_torch_dist_rope_embeddings",
     {12, 512, 8, 8, 2048, 50257}, {8, 1, 2, 1, 1, 1}, {4, 1024, 2},
     DROPS | BIAS | ROTARY, 919557120, 2598238208},
    {"tp1_pp2_rope_embeddings",
     {12, 512, 8, 8, 2048, 50257}, {8, 1, 2, 1, 1, 1}, {4, 1024, 2},
     MATH | DROPS | BIAS | AMPERE | ROTARY, 886001664, 3570001920},
    {"tp1_pp4_disable_bias_linear",
     {12, 512, 8, 8, 2048, 50257}, {8, 1, 4, 1, 1, 1}, {4, 1024, 4},
     MATH | DROPS | AMPERE, 718931456, 2685510144},
    {"tp1_pp4_resume_torch_dist_disable_bias_linear",
     {12, 512, 8, 8, 2048, 50257}, {8, 1, 4, 1, 1, 1}, {4, 1024, 4},
     DROPS, 747244032, 2211948544},
    {"tp1_pp4_resume_torch_dist_swiglu",
     {12, 512, 8, 8, 1344, 50257}, {8, 1, 4, 1, 1, 1}, {4, 1024, 4},
     DROPS | GATED | BIAS, 745732608, 2211485184},
    {"tp1_pp4_swiglu",
     {12, 512, 8, 8, 1344, 50257}, {8, 1, 4, 1, 1, 1}, {4, 1024, 4},
     MATH | DROPS | GATED | BIAS | AMPERE, 717420032, 2684785152},
    {"tp1_pp4_untie_embeddings_and_outputs",
     {12, 512, 8, 8, 2048, 50257}, {8, 1, 4, 1, 1, 1}, {4, 1024, 4},
     MATH | DROPS | BIAS | UNTIED | AMPERE, 719180288, 2685758976},
    {"tp1_pp4_vp1",
     {12, 512, 8, 8, 2048, 50257}, {8, 1, 4, 1, 1, 3}, {4, 1024, 4},
     MATH | DROPS | BIAS, 776656384, 4161191424},
    {"tp1_pp4_vp1_dist_optimizer_overlap_grad_reduce",
     {12, 512, 8, 8, 2048, 50257}, {8, 1, 4, 1, 1, 3}, {4, 1024, 4},
     MATH | DROPS | ZERO1 | BIAS | AMPERE, 522845696, 3912607232},
    {"tp1_pp4_vp1_resume_torch_dist",
     {12, 512, 8, 8, 2048, 50257}, {8, 1, 4, 1, 1, 3}, {4, 1024, 4},
     DROPS | BIAS, 763220480, 2643299328},
    {"tp1_pp4_vp1_resume_torch_dist_dist_optimizer_overlap_grad_reduce",
     {12, 512, 8, 8, 2048, 50257}, {8, 1, 4, 1, 1, 3}, {4, 1024, 4},
     DROPS | ZERO1 | BIAS, 551148032, 2432144384},
    {"tp1_pp4_vp1_tunable_overlap",
     {12, 512, 8, 8, 2048, 50257}, {8, 1, 4, 1, 1, 3}, {4, 1024, 5},
     SHOWN | MATH | DROPS | BIAS, 759682560, 4622615552},
    {"tp2_pp1_resume_torch_dist_cp2",
     {12, 512, 8, 8, 2048, 50257}, {8, 2, 1, 2, 1, 1}, {4, 1024, 4},
     SP | BIAS, 691715584, 1233807360},
    {"tp2_pp2",
     {12, 512, 8, 8, 2048, 50257}, {8, 2, 2, 1, 1, 1}, {4, 1024, 4},
     MATH | DROPS | BIAS | AMPERE, 487096832, 1900158464},
    {"tp2_pp2_cp2",
     {12, 512, 8, 8, 2048, 50258}, {8, 2, 2, 2, 1, 1}, {4, 1024, 8},
     SP | BIAS, 510689792, 935253504},
    {"tp2_pp2_resume_torch_dist",
     {12, 512, 8, 8, 2048, 50257}, {8, 2, 2, 1, 1, 1}, {4, 1024, 4},
     DROPS | BIAS, 517243392, 1428171264},
    {"tp2_pp2_cross_entropy_loss_fusion",
     {12, 512, 8, 8, 2048, 50257}, {8, 2, 2, 1, 1, 1}, {4, 1024, 4},
     SHOWN | DROPS | BIAS, 514359808, 1837640192},
    {"tp4_pp1_dist_optimizer_overlap_grad_reduce",
     {12, 512, 8, 8, 2048, 50257}, {8, 4, 1, 1, 1, 1}, {4, 1024, 4},
     MATH | DROPS | ZERO1 | BIAS | AMPERE, 269842944, 1515628032},
    {"tp4_pp1_qk_layernorm_test_mode",
     {12, 512, 8, 8, 2048, 50257}, {8, 4, 1, 1, 1, 1}, {4, 1024, 4},
     MATH | DROPS | BIAS | QK_NORM | AMPERE, 368387584, 1643008512},
    {"tp4_pp1_resume_torch_dist_dist_optimizer_overlap_grad_reduce",
     {12, 512, 8, 8, 2048, 50257}, {8, 4, 1, 1, 1, 1}, {4, 1024, 4},
     DROPS | ZERO1 | BIAS, 299204096, 1042465280},
    {"tp4_pp2_resume_torch_dist_reshard_8x1xNone",
     {12, 512, 8, 8, 2048, 50257}, {8, 4, 2, 1, 1, 1}, {4, 1024, 8},
     DROPS | ZERO1 | BIAS, 311828992, 844288512},
    {"7b_tp4_pp1_memory_speed",
     {32, 4096, 32, 8, 16384, 131074}, {8, 4, 1, 1, 1, 1}, {2, 8192, 2},
     DROPS | ZERO1 | BIAS | UNTIED, 20663519232, 57143791616},
    {"7b_tp1_pp4_memory_speed",
     {32, 4096, 32, 8, 16384, 131074}, {8, 1, 4, 1, 1, 8}, {1, 8192, 4},
     DROPS | ZERO1 | BIAS | UNTIED, 24808996864, 60720852992},
    {"15b_8t_release",
     {32, 6144, 48, 8, 24576, 256000}, {128, 8, 1, 1, 1, 1}, {4, 4096, 18},
     ZERO1 | SP | UNTIED | ROTARY, 13269043200, 28160194560},
    {"mixtral_8x22b_tp2pp8ep8vpp1_release",
     {56, 6144, 48, 8, 16384, 32000}, {128, 2, 8, 1, 8, 1}, {1, 4096, 32},
     ZERO1 | EXPERTS | SP | GATED | RMS | UNTIED | ROTARY, 23002929152, 28533706752},
    {"mixtral_8x7b_alltoall_tp2pp4ep4_release",
     {32, 4096, 32, 8, 14336, 256000}, {128, 2, 4, 1, 4, 1}, {1, 4096, 64},
     ZERO1 | EXPERTS | SP | GATED | RMS | UNTIED | ROTARY, 17703634944, 25603858432},
    {"mixtral_8x7b_tp1pp4ep8vpp8_release", /* its arguments have --tensor-model-parallel-size 2 */
     {32, 4096, 32, 8, 14336, 32000}, {64, 2, 4, 1, 8, 8}, {1, 4096, 32},
     ZERO1 | EXPERTS | SP | GATED | RMS | UNTIED | ROTARY | ETP1, 19743387648, 35505844224},
    {"tp2_zp_z3_resume_fsdp_dtensor",
     {12, 512, 8, 8, 2048, 50257}, {8, 2, 1, 1, 1, 1}, {4, 1024, 2},
     DROPS | BIAS | FSDP, 246999552, 1469652992},
    {"weekly_mcore_tp4_cp2_current_scaling_native_fp8_tp_sp_cp_tp_overlap",
     {12, 512, 8, 8, 2048, 50257}, {8, 4, 1, 2, 1, 1}, {2, 1024, 64},
     DROPS | ZERO1 | SP | BIAS | RMS | FP8, 300733952, 425122816},
    {"weekly_mcore_tp2_pp2_current_scaling_native_fp8_tp_pp_sp_tp_overlap", /* buffers of overlapped tensor parallelism */
     {12, 512, 8, 8, 2048, 50257}, {8, 2, 2, 1, 1, 1}, {2, 1024, 32},
     SHOWN | DROPS | ZERO1 | SP | BIAS | RMS | FP8, 476258816, 883747328},
};

/* FNV-1a over the name: an even sum is the half that constants may be fitted on. */
static bool is_fitting(const char *name)
{
    uint32_t hash = 2166136261u;
    for (; *name; name++)
        hash = (hash ^ (unsigned char)*name) * 16777619u;
    return (hash & 1) == 0;
}

static struct tool_shape shape_of(const struct run *r)
{
    const bool experts = r->flags & EXPERTS, bias = r->flags & BIAS, drops = r->flags & DROPS;
    return (struct tool_shape){.layers = r->model.layers,
                               .width = r->model.width,
                               .heads = r->model.heads,
                               .kv_heads = r->model.kv_heads,
                               .head_size = r->model.width / r->model.heads,
                               .mlp_width = r->model.mlp_width,
                               .vocabulary = r->model.vocabulary,
                               .positions = r->flags & ROTARY ? 0 : r->step.seq,
                               .norm_tensors = r->flags & RMS ? 1 : 2,
                               .tied_head = !(r->flags & UNTIED),
                               .gated = r->flags & GATED,
                               .qkv_bias = bias,
                               .out_bias = bias,
                               .mlp_bias = bias,
                               .qk_norm = r->flags & QK_NORM,
                               .drops_residual = drops,
                               .drops_attention = drops,
                               .experts = experts ? 8 : 0,
                               .experts_per_token = experts ? 2 : 0,
                               .expert_width = experts ? r->model.mlp_width : 0};
}

bool tool_megatron_run_at(uint32_t index, struct tool_megatron_run *out)
{
    if (index >= sizeof(runs) / sizeof(runs[0]))
        return false;
    const struct run *r = &runs[index];
    const enum tool_system system = r->flags & FSDP ? TOOL_SYSTEM_MEGATRON_FSDP : TOOL_SYSTEM_MEGATRON;
    const struct tool_shape shape = shape_of(r);
    const struct tool_system_settings settings = {
        .layout = {.ranks = r->cut.ranks,
                   .tensor = r->cut.tensor,
                   .pipeline = r->cut.pipeline,
                   .context = r->cut.context,
                   .expert = r->cut.expert,
                   .virtual_stages = r->cut.virtual_stages,
                   .sequence_parallel = r->flags & SP,
                   .batch = r->step.batch,
                   .seq = r->step.seq,
                   .micro_batches = r->step.micro_batches,
                   .vocabulary_multiple = 128,
                   .expert_tensor = r->flags & ETP1 ? 1 : 0},
        .strategy = r->flags & FSDP ? EO_STRATEGY_ZERO3 : r->flags & ZERO1 ? EO_STRATEGY_ZERO1 : EO_STRATEGY_DDP,
        .run = {.precision = r->flags & FP8 ? TOOL_PRECISION_FP8 : TOOL_PRECISION_BF16, .float8_weights = r->flags & FP8},
        .math_attention = r->flags & MATH,
        .recomputed_blocks = r->flags & RECOMPUTE ? r->model.layers : 0,
        .workspace_bytes = r->flags & AMPERE ? TOOL_WORKSPACES_AMPERE : TOOL_WORKSPACES_HOPPER,
    };
    const struct tool_system_estimate e =
        tool_system_stage(system, &shape, &settings, r->cut.pipeline - 1);
    *out = (struct tool_megatron_run){.name = r->name,
                                      .system = system,
                                      .fitting = is_fitting(r->name),
                                      .held = !(r->flags & SHOWN),
                                      .allocated_bytes = r->allocated,
                                      .peak_bytes = r->peak,
                                      .estimated_allocated_bytes = e.state_bytes + settings.workspace_bytes,
                                      .estimated_peak_bytes = e.peak_bytes};
    return true;
}
