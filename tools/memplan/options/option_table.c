/* SPDX-License-Identifier: MIT */
#include "tools/memplan/options/options.h"

const struct argp_option tool_memplan_options[] = {
    {.doc = "Model:", .group = 1},
    {"model", KEY_MODEL, "PATH|NAME", 0,
     "a config.json of Hugging Face, a folder with one (its safetensors are checked too), "
     "or a known name; a wrong name lists them",
     1},
    {"set", KEY_SET, "KEY=VALUE", 0, "change a field of the config; repeatable", 1},
    {.doc = "Run:", .group = 2},
    {"ranks", KEY_WORLD, "N", 0, "number of ranks, one a GPU [8]", 2},
    {"world", 0, NULL, OPTION_ALIAS, NULL, 0},
    {"gpus-per-node", KEY_NODE, "N", 0, "GPUs of a node [8]", 2},
    {"strategy", KEY_STRATEGY, "NAME", 0,
     "sharding: ddp, zero1, zero2, zero3 or hsdp:S (zero3 in groups of S ranks; each "
     "group is a replica); all: zero3, beside a table of all [zero3]",
     2},
    {"batch", KEY_BATCH, "B", 0, "sequences in a micro-batch of a rank [1]", 2},
    {"seq", KEY_SEQ, "T", 0, "tokens in a sequence [4096, or the model's context]", 2},
    {"micro-batches", KEY_MICRO_BATCHES, "M", 0, "micro-batches in a step (gradient accumulation) [1]", 2},
    {"dtype", KEY_DTYPE, "TYPE", 0,
     "type of activations and gathered weights: bf16 or fp32; of other systems bf16, fp16 or fp8 [bf16]", 2},
    {"gather", KEY_GATHER, "TYPE", 0, "type of the blocks' matrices in all-gathers: float8, or dtype: that of --dtype [dtype]",
     2},
    {"products", KEY_PRODUCTS, "TYPE", 0, "type of the blocks' forward products: float8, or dtype: that of --dtype [dtype]", 2},
    {"norms", KEY_NORMS, "TYPE", 0,
     "type of the weights of norms beside bf16 matrices: fp32, or dtype: that of --dtype [dtype]", 2},
    {"reduce", KEY_REDUCE, "TYPE", 0, "type of gradients in their reduction: fp32 or bf16 [fp32]", 2},
    {"slots", KEY_SLOTS, "G,D", 0, "number of gather buffers and gradient buffers [2,2]", 2},
    {"bucketing", KEY_BUCKETING, "G,R", 0, "blocks that one all-gather brings, and that one reduce-scatter reduces [1,1]", 2},
    {"norms-beside", KEY_NORMS_BESIDE, NULL, 0, "the gradient norm's sums run beside backward passes, as with train", 2},
    {"gradients-apart", KEY_GRADIENTS_APART, NULL, 0,
     "reduce the gradient of a tied embedding twice, once for each use, as with train", 2},
    {"pack", KEY_PACK, "documents|none", 0, "with packed documents, as train --pack: their positions are planned [none]", 2},
    {"dropout", KEY_DROPOUT, "P", 0, "with dropout in the blocks, as train --dropout [0]", 2},
    {"ema", KEY_EMA, "DECAY", 0, "with a moving average of the weights, as train --ema keeps it [none]", 2},
    {"optimizer", KEY_OPTIMIZER, "NAME", 0, "adamw, adamw8bit, sgd, lion or muon [adamw]", 2},
    {"lora", KEY_LORA, "r=R,...", 0,
     "train adapters of this rank beside the blocks' products, as train --lora does; the rest is frozen. Of other systems: a "
     "rank "
     "alone",
     2},
    {"frozen", KEY_FROZEN, "TYPE", 0,
     "with --lora the type of the blocks' frozen matrices: mxfp8 (8 bits and scales), or dtype: that of --dtype; of other "
     "systems nf4 "
     "(QLoRA), or bf16 [dtype]",
     2},
    {"offload-layers", KEY_OFFLOAD_LAYERS, "N", 0,
     "optimizer state (with bf16 also the low halves of the weights) of N layers, or all, on disk, with GPUs in host memory "
     "[0]",
     2},
    {"offload-slots", KEY_OFFLOAD_SLOTS, "N", 0, "number of offloaded layers that are back at a time [2]", 2},
    {"offload-gradients", KEY_OFFLOAD_GRADIENTS, NULL, 0,
     "with --offload-layers: their gradients too, between reduction and update", 2},
    {"late-updates", KEY_LATE_UPDATES, NULL, 0, "with --offload-layers: update them in the next step's forward passes", 2},
    {"offload-activations", KEY_OFFLOAD_ACTIVATIONS, "N", 0,
     "what N blocks, or all, save for the backward pass on disk, with GPUs in host memory, between the passes [0]", 2},
    {"budget", KEY_BUDGET, "BYTES", 0,
     "choose recompute, slots and what is offloaded as train --budget does, by the speeds of --rates; of GPUs DEVICE,HOST", 2},
    {"budget-may-change-bits", KEY_MAY_CHANGE_BITS, NULL, 0, "with --budget: choose the pieces of the head too", 2},
    {"rates", KEY_RATES, "FILE.json", 0, "with --budget: speeds of a rank, as train takes them", 2},
    {"recompute", KEY_RECOMPUTE, "WHAT", 0,
     "recompute in backward (activation checkpointing): none, cheap (no matrix product), all, or the first N "
     "blocks [none]",
     2},
    {"granularity", KEY_GRANULARITY, "UNIT", 0,
     "unit of sharding: block, half (attention and MLP apart), blocks:N, or size:BYTES (blocks until their weights take so "
     "much) "
     "[block]",
     2},
    {"head-chunks", KEY_HEAD_CHUNKS, "N", 0, "pieces of the output layer's logits [as in train]", 2},
    {"kernels", KEY_KERNELS, "NAME", 0, "cuda or cpu: plan the scratch memory of these kernels [cuda]", 2},
    {"threads", KEY_THREADS, "N", 0, "threads of a rank, for CPU kernels [1]", 2},
    {"graph", KEY_GRAPH, NULL, 0, "plan steps as graphs: the tokens of all micro-batches of a step lie on the device", 2},
    {.doc = "Systems and layouts:", .group = 3},
    {"system", KEY_SYSTEM, "NAME", 0, "evenodd, or an estimate for megatron, megatron-fsdp, fsdp2 or deepspeed [evenodd]", 3},
    {"tp", KEY_TENSOR, "N", 0, "ranks that share each layer's products [1]", 3},
    {"pp", KEY_PIPELINE, "N", 0, "stages of a pipeline [1]", 3},
    {"cp", KEY_CONTEXT, "N", 0, "ranks that share each sequence [1]", 3},
    {"ep", KEY_EXPERT, "N", 0, "ranks that share the experts [1]", 3},
    {"etp", KEY_EXPERT_TENSOR, "N", 0, "ranks that share each expert [as --tp]", 3},
    {"virtual-stages", KEY_VIRTUAL_STAGES, "N", 0, "stages of each rank, interleaved [1]", 3},
    {"sequence-parallel", KEY_SEQUENCE_PARALLEL, NULL, 0, "tensor ranks share norms and residuals too; fsdp2 always does", 3},
    {"global-batch", KEY_GLOBAL_BATCH, "G", 0, "sequences of a step, of all ranks: sets --micro-batches", 3},
    {"state-dtype", KEY_STATE_DTYPE, "TYPE", 0, "of other systems' optimizer state: fp32 or bf16 [fp32]", 3},
    {"offload", KEY_OFFLOAD, "WHAT", 0,
     "of other systems: optimizer, or weights (and optimizer), to the host's memory; optimizer:disk, weights:disk", 3},
    {"compare", KEY_COMPARE, NULL, 0, "all systems side by side", 3},
    {"time", KEY_TIME, NULL, 0, "estimate the time of a step, on a --device with rates: A100-*, H100, H200, B200", 3},
    {"tokens", KEY_TOKENS, "N", 0, "estimate the days of a training on so many tokens: 15T, 300B (in train files of tokens)", 3},
    {"price", KEY_PRICE, "X", 0, "with --tokens: what the training costs, by the price of an hour of a GPU, as 2.5 or 2.5/h",
     3},
    {"network", KEY_NETWORK, "BYTES", 0,
     "for times: bytes a second from a GPU to other nodes [A100: 25GB, H100, H200, B200: 50GB]", 3},
    {.doc = "Machine:", .group = 4},
    {"device", KEY_DEVICE, "NAME", 0, "a GPU of the table; a wrong name lists them (in train cpu or cuda)", 4},
    {"devices", KEY_DEVICES, "FILE.json", 0, "devices and their rates besides those of the table, in its form", 4},
    {"device-memory", KEY_DEVICE_MEMORY, "BYTES", 0, "with a unit: 80GiB, 80GB, 85899345920B", 4},
    {"headroom", KEY_HEADROOM, "SHARE", 0, "keep so much of the device free, here and in every search: 5%, or bytes [0]", 4},
    {"outside", KEY_OUTSIDE, "BYTES", 0,
     "memory outside the plan: context, NCCL, libraries [published figures, named in the "
     "report]",
     4},
    {"fit", KEY_FIT, "WHAT", 0,
     "search the limit of a fit: max-batch, max-seq, min-gpus, min-recompute, best-strategy, "
     "max-layers, best (strategy, recompute, batch and granularity together, but for those that you give), or best-layout (with "
     "--global-batch: --tp and --pp, too)",
     4},
    {.doc = "Output:", .group = 5},
    {"json", KEY_JSON, NULL, 0, "the plan as JSON, on standard output", 5},
    {"csv", KEY_CSV, NULL, 0, "the plan's rows as CSV, on standard output", 5},
    {"svg", KEY_SVG, "FILE", 0, "write a picture of the arena through a step", 5},
    {"html", KEY_HTML, "FILE", 0, "write the planner as a page in one file, with these settings filled in", 5},
    {"explain", KEY_EXPLAIN, NULL, 0, "phases, layers, buffers, other projects, and every row's formula with its numbers", 5},
    {"diff", KEY_DIFF, "A.json B.json", 0, "compare two plans of --json; exit status 1 if they differ", 5},
    {"verify", KEY_VERIFY, "LOG", 0, "compare the plan with a log of train, or with the output of train --plan", 5},
    {"published", KEY_PUBLISHED, NULL, 0, "published figures of other projects beside predictions by formulae", 5},
    {0},
};

const char *tool_memplan_option_name(int key)
{
    for (const struct argp_option *row = tool_memplan_options; row->name || row->doc; row++)
        if (row->name && row->key == key)
            return row->name;
    return "";
}
