/* SPDX-License-Identifier: MIT
 *
 * The options that training programs share, as --help shows them.
 */
#include "tools/run/options/keys.h"

#include <stdlib.h>
#include <string.h>

/* A group's number orders --help; a row without key and name is a heading. */
const struct argp_option tool_option_table[] = {
    {.doc = "Model and data:", .group = 1},
    {"model", OPTION_MODEL, "MODEL", 0,
     "tiny, small, base (bytes), gpt2, gpt2-medium, gpt2-large, gpt2-xl, llama-tiny, llama-small (bytes), llama-1b, "
     "qwen2-tiny, qwen3-tiny (bytes); "
     "LAYERSxWIDTHxHEADS for another GPT-2 on bytes; a published model, such as llama-3.2-3b (memplan lists the names); "
     "a config.json of Hugging Face, or a folder with one; init for the shape of the --init weights [small; with --init: init]",
     1},
    {"text", OPTION_TEXT, "PATH...", 0,
     "train on the bytes of files or folders; the last tenth is held back [documents of this project, 190 KB]", 1},
    {"tokens", OPTION_TOKENS, "FILE.bin...", 0,
     "train on token files of tools/tokenize or llm.c, one after the other, in the given order (in memplan a number of tokens)",
     1},
    {"shuffle", OPTION_SHUFFLE, NULL, 0, "take the sequences of --tokens in an order drawn from --seed, another in each pass",
     1},
    {"pack", OPTION_PACK, "documents|none", 0,
     "fill each sequence with whole documents of --tokens, as far as they fit; none sees another. In an order drawn from "
     "--seed "
     "[none]",
     1},
    {"tokenizer", OPTION_TOKENIZER, "PATH", 0,
     "tokenizer.json, or a folder with one, of the --tokens: samples are text then [that in the folder of --init or --model]",
     1},
    {"init", OPTION_INIT, "PATH", 0,
     "start from a Hugging Face folder (config.json, safetensors), or a GPT-2 checkpoint of llm.c (FILE.bin)", 1},
    {.doc = "Ranks and memory:", .group = 2},
    {"ranks", OPTION_RANKS, "N", 0, "number of ranks to shard the model over [2; under a launcher the number of its ranks]", 2},
    {"world", 0, NULL, OPTION_ALIAS, NULL, 0},
    {"device", OPTION_DEVICE, "NAME", 0, "cpu or cuda (ranks share the available GPUs; in memplan a card's name) [cpu]", 2},
    {"dtype", OPTION_DTYPE, "TYPE", 0,
     "compute type of weights and activations: fp32 or bf16; master weights are fp32 in both [fp32]", 2},
    {"gather", OPTION_GATHER, "TYPE", 0,
     "type of the blocks' matrices in all-gathers: float8 (with --dtype bf16; about half the bytes, rounds weights to four "
     "significant bits), or dtype: that of --dtype [dtype]",
     2},
    {"products", OPTION_PRODUCTS, "TYPE", 0,
     "type of the blocks' forward products: float8 (--device cuda --dtype bf16; rounds activations and weights to four "
     "significant bits), or dtype: that of --dtype [dtype]",
     2},
    {"norms", OPTION_NORMS, "TYPE", 0,
     "type of the weights of norms beside bf16 matrices: fp32, or dtype: that of --dtype [dtype]", 2},
    {"reduce", OPTION_REDUCE, "TYPE", 0,
     "type of gradients in their reduction: fp32 or bf16 (fp32 anyway after local sums of "
     "a strategy) [fp32]",
     2},
    {"graph", OPTION_GRAPH, "WHEN", 0, "run steps as one graph: on or off [train --device cuda --memory static: on]", 2},
    {"graph-times", OPTION_GRAPH_TIMES, "WHEN", 0,
     "with graphs: time each operation, at the cost of a mark on the GPU for each: on or off [with --trace: on]", 2},
    {"cupti", OPTION_CUPTI, "WHEN", 0,
     "with --device cuda: report the GPU's actual kernels and copies, by NVIDIA's CUPTI, and add them to the trace; slows the "
     "run: on or off [off]",
     2},
    {"cupti-library", OPTION_CUPTI_LIBRARY, "FILE", 0, "load CUPTI from FILE [libcupti, wherever the loader finds it]", 2},
    {"product-cache", OPTION_PLAN_CACHE, "FILE", 0,
     "with --device cuda: keep the choice of product algorithms for the next run [timed in each run]", 2},
    {"repeatable", OPTION_REPEATABLE, NULL, 0,
     "with --device cuda: the same bits in every run, with slower attention and untimed products", 2},
    {"instruction-set", OPTION_INSTRUCTION_SET, "NAME", 0,
     "with --device cpu: compute with amx, avx512_bf16, avx512, avx2, plain or reference [the best that all ranks have]", 2},
    {"threads", OPTION_THREADS, "N", 0, "threads of each rank [available cores / ranks; 1 with --device cuda]", 2},
    {"memory", OPTION_MEMORY, "MODE", 0,
     "memory mode: static, dynamic:malloc, dynamic:pool or (with --device cuda) dynamic:caching [static]", 2},
    {"strategy", OPTION_STRATEGY, "NAME", 0,
     "state to shard: zero3 (everything), zero2 (gradients and optimizer state), zero1 (optimizer state), ddp (nothing), or "
     "hsdp:S (zero3 in groups of S ranks; each group is a replica) [zero3]",
     2},
    {"slots", OPTION_SLOTS, "G,D", 0, "number of gather buffers and gradient buffers [2,2]", 2},
    {"fabric", OPTION_FABRIC, "GBPS,US", 0, "simulated link: gigabytes a second, microseconds of latency", 2},
    {"recompute", OPTION_RECOMPUTE, "WHAT", 0,
     "recompute in backward (activation checkpointing): none, cheap (norms of heads, GELU on GPUs), all, or the first N blocks "
     "[none]", 2},
    {"head-chunks", OPTION_HEAD_CHUNKS, "N", 0,
     "pieces of the output layer's logits [so many that a piece takes at most 32 MiB in fp32, 64 MiB in bf16, 512 MiB on a "
     "GPU]", 2},
    {"granularity", OPTION_GRANULARITY, "UNIT", 0,
     "unit of sharding: block, half (attention and MLP apart), blocks:N, or size:BYTES (blocks until their weights take so "
     "much) "
     "[block]",
     2},
    {"norms-beside", OPTION_NORMS_BESIDE, NULL, 0,
     "with --device cuda: take the gradient norm's sums beside backward passes; the arena may grow", 2},
    {"gradients-apart", OPTION_GRADIENTS_APART, NULL, 0,
     "reduce the gradient of a tied embedding twice, once for each use: one collective more, for less memory where most is "
     "recomputed; the numbers are rounded otherwise",
     2},
    {"no-prefetch", OPTION_NO_PREFETCH, NULL, 0, "gather weights only at their use, for comparison", 2},
    {"budget", OPTION_BUDGET, "BYTES", 0,
     "memory of a rank (such as 4GiB, or available; of GPUs DEVICE,HOST): choose recompute, slots and what is offloaded for "
     "the "
     "fastest step within it; no bit changes",
     2},
    {"budget-may-change-bits", OPTION_MAY_CHANGE_BITS, NULL, 0, "with --budget: choose the pieces of the head too", 2},
    {"rates", OPTION_RATES, "FILE.json", 0,
     "with --budget or --bucketing auto: speeds of a rank; measure: at the start [measure; with --resume: those of the "
     "checkpoint]",
     2},
    {"bucketing", OPTION_BUCKETING, "G,R", 0,
     "blocks that one all-gather brings, and that one reduce-scatter reduces, with buffers for all of them; auto: what is "
     "predicted to be fastest, by --fabric or --rates [1,1]",
     2},
    {"offload-layers", OPTION_OFFLOAD_LAYERS, "N", 0,
     "keep optimizer state (with bf16 also the low halves of the weights) of N layers, or all, on disk, with GPUs in host "
     "memory [0]",
     2},
    {"offload-slots", OPTION_OFFLOAD_SLOTS, "N", 0, "number of offloaded layers that are back at a time for their update [2]",
     2},
    {"offload-gradients", OPTION_OFFLOAD_GRADIENTS, NULL, 0,
     "with --offload-layers: offload their gradients too, between reduction and update", 2},
    {"late-updates", OPTION_LATE_UPDATES, NULL, 0,
     "with --offload-layers: update them in the next step's forward passes, which hide their way from and to the disk", 2},
    {"offload-activations", OPTION_OFFLOAD_ACTIVATIONS, "N", 0,
     "keep what N blocks, or all, save for the backward pass on disk, with GPUs in host memory, between the passes [0]", 2},
    {"offload-folder", OPTION_OFFLOAD_FOLDER, "DIR", 0,
     "folder of the file with all that is offloaded; it has no name and ends with the run [that of --checkpoint, else the "
     "current one]",
     2},
    {"implicit-prefetch", OPTION_IMPLICIT_PREFETCH, NULL, 0, "dynamic memory: gather as FSDP2 does by default", 2},
    {"reduce-inputs", OPTION_REDUCE_INPUTS, "K", 0, "dynamic memory: reduce-scatter inputs in flight [1]", 2},
    {"dynamic-offload", OPTION_DYNAMIC_OFFLOAD, NULL, 0,
     "dynamic memory: shards, gradients and optimizer in host memory, as FSDP2's CPUOffloadPolicy", 2},
    {"place-threads", OPTION_PLACE_THREADS, NULL, 0, "bind ranks to cores and their memory to the nearest node", 2},
    {"peak-seconds", OPTION_PEAK_SECONDS, "S", 0, "time to measure the machine's matrix products [0.7]", 2},
    {"peak-tflops", OPTION_PEAK_TFLOPS, "X", 0,
     "with --device cuda: peak speed in the card's data sheet (H200, bf16, dense: 989), to print the utilisation", 2},
    {.doc = "Training:", .group = 3},
    {"batch", OPTION_BATCH, "B", 0, "sequences in a micro-batch of a rank [2]", 3},
    {"seq", OPTION_SEQ, "T", 0, "tokens in a sequence [256]", 3},
    {"micro-batches", OPTION_MICRO_BATCHES, "M", 0, "micro-batches in a step (gradient accumulation) [1]", 3},
    {"steps", OPTION_STEPS, "N", 0, "number of steps [train: 250, headtohead: 30]", 3},
    {"optimizer", OPTION_OPTIMIZER, "NAME", 0,
     "adamw, adamw8bit (its state in 8 bits), sgd (with momentum), lion or "
     "muon [adamw]",
     3},
    {"lr", OPTION_LR, "X", 0, "learning rate after warm-up [0.0006; sgd: 0.1; lion: 0.0001]", 3},
    {"learning-rate", 0, NULL, OPTION_ALIAS, NULL, 0},
    {"warmup", OPTION_WARMUP, "N", 0, "steps of warm-up, with a rising learning rate [a tenth, at most 20]", 3},
    {"schedule", OPTION_SCHEDULE, "NAME", 0,
     "learning rate after warm-up: cosine, linear, constant, wsd:F (constant, then a line over the last F of the steps; F "
     "[0.1]) "
     "or step:N,G (times G every N steps) [cosine]",
     3},
    {"min-lr", OPTION_MINIMUM_RATE, "X", 0, "learning rate at the end of cosine, linear and wsd [cosine: a tenth of --lr; 0]",
     3},
    {"beta1", OPTION_BETA1, "X", 0, "beta1 of AdamW and Lion [0.9]", 3},
    {"momentum", OPTION_MOMENTUM, "X", 0, "momentum of SGD [0.9], or of Muon's matrices [0.95]", 3},
    {"beta2", OPTION_BETA2, "X", 0, "beta2 of AdamW and Lion [0.95; lion: 0.99]", 3},
    {"eps", OPTION_EPS, "X", 0, "AdamW's epsilon [1e-8]", 3},
    {"weight-decay", OPTION_WEIGHT_DECAY, "X", 0,
     "weight decay, on matrices; sgd: added to the gradient [0.1; sgd: 0; lion: 0.6]", 3},
    {"clip", OPTION_CLIP, "X", 0, "largest norm of the gradient, 0: no limit [1]", 3},
    {"on-not-finite", OPTION_ON_NOT_FINITE, "WHAT", 0,
     "a step whose gradient is not finite: stop ends the run; skip lets it change nothing, and goes on [stop]", 3},
    {"dropout", OPTION_DROPOUT, "P", 0,
     "drop this share of what attention and MLP add to the stream; the masks are drawn anew for backward, from --seed, step "
     "and "
     "sequence [0]",
     3},
    {"ema", OPTION_EMA, "DECAY", 0,
     "keep a moving average of the weights (0.999): it is validated, sampled and exported in their place [none]", 3},
    {"seed", OPTION_SEED, "N", 0, "random seed of weights and data [1]", 3},
    {0},
};

const char *tool_option_name(int key)
{
    for (const struct argp_option *row = tool_option_table; row->name || row->doc; row++)
        if (row->key == key)
            return row->name;
    return NULL;
}

bool tool_option_is_given(const struct tool_options *options, int key)
{
    return options->given[key - OPTION_MODEL];
}

bool tool_option_given(const struct tool_options *options, const char *name)
{
    for (const struct argp_option *row = tool_option_table; row->name || row->doc; row++)
        if (row->name && strcmp(row->name, name) == 0)
            return tool_option_is_given(options, row->key);
    abort(); /* a name of ours */
}
