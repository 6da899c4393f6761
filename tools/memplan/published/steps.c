/* SPDX-License-Identifier: MIT */
#include "tools/memplan/published/steps.h"

#include "tools/memplan/time/plan_time.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum source { YAFSDP, FSDP1, COMPOSER, IBM, IBM_COMPILED, TITAN, MEGATRON, SOURCE_COUNT };

static const struct {
    const char *name;
    enum tool_system system;
} sources[SOURCE_COUNT] = {
    [YAFSDP] = {"YaFSDP (its README)", TOOL_SYSTEM_EVENODD},
    [FSDP1] = {"FSDP (README of YaFSDP)", TOOL_SYSTEM_FSDP2},
    [COMPOSER] = {"FSDP (llm-foundry)", TOOL_SYSTEM_FSDP2},
    [IBM] = {"FSDP (IBM, PyTorch's blog)", TOOL_SYSTEM_FSDP2},
    [IBM_COMPILED] = {"FSDP (IBM, compiled)", TOOL_SYSTEM_FSDP2},
    [TITAN] = {"FSDP2 (torchtitan)", TOOL_SYSTEM_FSDP2},
    [MEGATRON] = {"Megatron-LM", TOOL_SYSTEM_MEGATRON},
};

static const struct {
    const char *name;
    struct { uint32_t layers, width, heads, kv_heads, mlp_width, vocabulary; } shape;
    bool gated, tied_head;
} models[] = {
    {"Llama-2-7B", {32, 4096, 32, 32, 11008, 32000}, 1, 0},
    {"Llama-2-13B", {40, 5120, 40, 40, 13824, 32000}, 1, 0},
    {"Llama-2-34B", {48, 8192, 64, 8, 22016, 32000}, 1, 0},
    {"Llama-2-70B", {80, 8192, 64, 8, 28672, 32000}, 1, 0},
    {"Llama-3-8B", {32, 4096, 32, 8, 14336, 128256}, 1, 0},
    {"Llama-3-70B", {80, 8192, 64, 8, 28672, 128256}, 1, 0},
    {"Llama-3.1-405B", {126, 16384, 128, 8, 53248, 128256}, 1, 0},
    {"MPT-125m", {12, 768, 12, 12, 3072, 50368}, 0, 1},
    {"MPT-350m", {24, 1024, 16, 16, 4096, 50368}, 0, 1},
    {"MPT-760m", {24, 1536, 12, 12, 6144, 50368}, 0, 1},
    {"MPT-1b", {24, 2048, 16, 16, 8192, 50368}, 0, 1},
    {"MPT-3b", {32, 2560, 20, 20, 10240, 50368}, 0, 1},
    {"MPT-7b", {32, 4096, 32, 32, 16384, 50368}, 0, 1},
    {"MPT-13b", {40, 5120, 40, 40, 20480, 50368}, 0, 1},
    {"MPT-30b", {48, 7168, 56, 56, 28672, 50368}, 0, 1},
    {"MPT-70b", {80, 8192, 64, 64, 32768, 50368}, 0, 1},
    {"GPT-22B", {48, 6144, 64, 64, 24576, 51200}, 0, 1},
    {"GPT-175B", {96, 12288, 96, 96, 49152, 51200}, 0, 1},
    {"GPT-530B", {105, 20480, 128, 128, 81920, 51200}, 0, 1},
    {"GPT-1T", {128, 25600, 160, 160, 102400, 51200}, 0, 1},
    {"GPT-7B", {32, 4096, 32, 8, 16384, 131200}, 0, 0},
};

/* Numbers of the first field: rows of published.csv (the reference of memplan), which has the sources; from 1001 on two of
 * NVIDIA/Megatron-LM's golden values (d98e8a64), gpt3_7b_tp4_pp1_memory_speed and gpt3_7b_tp1_pp4_memory_speed. Layouts of
 * rows 209 to 216 are those of arXiv 2205.05198, table 3. Seconds that were derived from tokens a second are rounded. */
static const struct row {
    uint32_t number;
    enum source source;
    uint32_t model;
    const char *device;
    uint32_t ranks;
    struct { uint32_t tensor, pipeline, virtual_stages; } cut;
    struct { uint32_t seq, batch, micro_batches; } step;
    uint32_t recomputed_blocks;
    bool selective;
    uint32_t shard_group;
    double seconds;
} rows[] = {
    {0, YAFSDP, 0, "A100", 64, {1, 1, 1}, {2048, 1, 1}, 0, 0, 0, 0.81},
    {1, FSDP1, 0, "A100", 64, {1, 1, 1}, {2048, 1, 1}, 0, 0, 0, 0.9},
    {2, YAFSDP, 0, "A100", 64, {1, 1, 1}, {4096, 1, 1}, 0, 0, 0, 1.16},
    {3, FSDP1, 0, "A100", 64, {1, 1, 1}, {4096, 1, 1}, 0, 0, 0, 1.21},
    {4, YAFSDP, 0, "A100", 64, {1, 1, 1}, {8192, 1, 1}, 0, 0, 0, 2.23},
    {5, FSDP1, 0, "A100", 64, {1, 1, 1}, {8192, 1, 1}, 0, 0, 0, 2.29},
    {6, YAFSDP, 0, "A100", 128, {1, 1, 1}, {2048, 1, 1}, 0, 0, 0, 0.87},
    {7, FSDP1, 0, "A100", 128, {1, 1, 1}, {2048, 1, 1}, 0, 0, 0, 0.97},
    {8, YAFSDP, 0, "A100", 128, {1, 1, 1}, {4096, 1, 1}, 0, 0, 0, 1.19},
    {9, FSDP1, 0, "A100", 128, {1, 1, 1}, {4096, 1, 1}, 0, 0, 0, 1.22},
    {10, YAFSDP, 0, "A100", 128, {1, 1, 1}, {8192, 1, 1}, 0, 0, 0, 2.25},
    {11, FSDP1, 0, "A100", 128, {1, 1, 1}, {8192, 1, 1}, 0, 0, 0, 2.31},
    {12, YAFSDP, 1, "A100", 128, {1, 1, 1}, {2048, 1, 1}, 0, 0, 0, 1.55},
    {13, FSDP1, 1, "A100", 128, {1, 1, 1}, {2048, 1, 1}, 0, 0, 0, 1.76},
    {14, YAFSDP, 1, "A100", 128, {1, 1, 1}, {4096, 1, 1}, 0, 0, 0, 2.06},
    {15, FSDP1, 1, "A100", 128, {1, 1, 1}, {4096, 1, 1}, 0, 0, 0, 2.14},
    {16, YAFSDP, 2, "A100", 128, {1, 1, 1}, {2048, 1, 1}, 0, 0, 0, 3.39},
    {17, FSDP1, 2, "A100", 128, {1, 1, 1}, {2048, 1, 1}, 0, 0, 0, 4.27},
    {18, YAFSDP, 2, "A100", 256, {1, 1, 1}, {2048, 1, 1}, 0, 0, 0, 3.51},
    {19, FSDP1, 2, "A100", 256, {1, 1, 1}, {2048, 1, 1}, 0, 0, 0, 4.5},
    {20, YAFSDP, 2, "A100", 256, {1, 1, 1}, {4096, 1, 1}, 5, 0, 0, 5.33},
    {21, FSDP1, 2, "A100", 256, {1, 1, 1}, {4096, 1, 1}, 5, 0, 0, 5.81},
    {22, YAFSDP, 3, "A100", 256, {1, 1, 1}, {2048, 1, 1}, 10, 0, 0, 6.97},
    {23, FSDP1, 3, "A100", 256, {1, 1, 1}, {2048, 1, 1}, 10, 0, 0, 8.87},
    {24, YAFSDP, 3, "A100", 256, {1, 1, 1}, {4096, 1, 1}, 50, 0, 0, 11.07},
    {25, FSDP1, 3, "A100", 256, {1, 1, 1}, {4096, 1, 1}, 50, 0, 0, 11.93},
    {26, YAFSDP, 4, "A100", 64, {1, 1, 1}, {2048, 1, 1}, 0, 0, 0, 0.97},
    {27, FSDP1, 4, "A100", 64, {1, 1, 1}, {2048, 1, 1}, 0, 0, 0, 1.1},
    {28, YAFSDP, 4, "A100", 64, {1, 1, 1}, {4096, 1, 1}, 0, 0, 0, 1.36},
    {29, FSDP1, 4, "A100", 64, {1, 1, 1}, {4096, 1, 1}, 0, 0, 0, 1.48},
    {30, YAFSDP, 5, "A100", 256, {1, 1, 1}, {2048, 1, 1}, 20, 0, 0, 7.17},
    {31, FSDP1, 5, "A100", 256, {1, 1, 1}, {2048, 1, 1}, 20, 0, 0, 9.76},
    {33, TITAN, 4, "H100", 8, {1, 1, 1}, {8192, 2, 1}, 0, 1, 0, 2.45748},
    {36, TITAN, 4, "H100", 128, {1, 1, 1}, {8192, 2, 1}, 0, 1, 0, 2.5152},
    {65, TITAN, 4, "A100", 64, {1, 1, 1}, {8192, 1, 1}, 0, 1, 0, 2.75547},
    {66, TITAN, 5, "A100", 64, {1, 1, 1}, {8192, 1, 1}, 80, 0, 0, 24.7492},
    {68, TITAN, 5, "A100", 64, {1, 1, 1}, {8192, 1, 1}, 80, 0, 0, 25.3622},
    {69, TITAN, 1, "A100", 64, {1, 1, 1}, {4096, 2, 1}, 0, 0, 0, 3.78908},
    {70, TITAN, 1, "A100", 64, {1, 1, 1}, {4096, 2, 1}, 20, 0, 0, 4.28004},
    {72, TITAN, 3, "A100", 64, {1, 1, 1}, {4096, 1, 1}, 0, 1, 0, 11.538},
    {73, TITAN, 3, "A100", 64, {1, 1, 1}, {4096, 2, 1}, 80, 0, 0, 23.2068},
    {78, TITAN, 4, "H100", 8, {1, 1, 1}, {8192, 1, 1}, 0, 1, 0, 1.26031},
    {87, TITAN, 0, "H100", 8, {1, 1, 1}, {2048, 8, 1}, 32, 0, 0, 2.22912},
    {88, TITAN, 0, "H100", 8, {1, 1, 1}, {2048, 8, 1}, 0, 1, 0, 1.98594},
    {89, TITAN, 0, "H100", 8, {1, 1, 1}, {2048, 16, 1}, 0, 1, 0, 3.81023},
    {90, TITAN, 0, "H100", 8, {1, 1, 1}, {2048, 8, 1}, 0, 0, 0, 1.78087},
    {91, IBM, 0, "A100", 128, {1, 1, 1}, {4096, 2, 1}, 0, 0, 8, 2.214},
    {92, IBM, 0, "H100", 96, {1, 1, 1}, {4096, 2, 1}, 0, 0, 8, 1.092},
    {93, IBM, 1, "A100", 128, {1, 1, 1}, {4096, 2, 1}, 20, 1, 0, 4.551},
    {94, IBM, 1, "H100", 96, {1, 1, 1}, {4096, 2, 1}, 20, 1, 0, 2.156},
    {95, IBM, 2, "A100", 128, {1, 1, 1}, {4096, 2, 1}, 48, 0, 0, 11.703},
    {96, IBM, 2, "H100", 96, {1, 1, 1}, {4096, 2, 1}, 48, 0, 0, 5.285},
    {97, IBM, 3, "A100", 128, {1, 1, 1}, {4096, 2, 1}, 80, 0, 0, 22.141},
    {98, IBM, 3, "H100", 96, {1, 1, 1}, {4096, 2, 1}, 80, 0, 0, 10.24},
    {99, IBM_COMPILED, 0, "A100", 128, {1, 1, 1}, {4096, 2, 1}, 0, 0, 8, 1.8},
    {100, IBM_COMPILED, 0, "H100", 96, {1, 1, 1}, {4096, 2, 1}, 0, 0, 8, 0.853},
    {101, IBM_COMPILED, 1, "A100", 128, {1, 1, 1}, {4096, 2, 1}, 20, 1, 0, 3.81},
    {102, IBM_COMPILED, 1, "H100", 96, {1, 1, 1}, {4096, 2, 1}, 20, 1, 0, 1.689},
    {103, IBM_COMPILED, 2, "A100", 128, {1, 1, 1}, {4096, 2, 1}, 48, 0, 0, 9.99},
    {104, IBM_COMPILED, 2, "H100", 96, {1, 1, 1}, {4096, 2, 1}, 48, 0, 0, 4.477},
    {105, IBM_COMPILED, 3, "A100", 128, {1, 1, 1}, {4096, 2, 1}, 80, 0, 0, 19.98},
    {106, IBM_COMPILED, 3, "H100", 96, {1, 1, 1}, {4096, 2, 1}, 80, 0, 0, 9.204},
    {120, TITAN, 4, "H100", 32, {1, 1, 1}, {8192, 2, 1}, 0, 1, 0, 2.28635},
    {240, COMPOSER, 15, "H100", 512, {1, 1, 1}, {2048, 8, 1}, 80, 0, 0, 16.2685},
    {241, COMPOSER, 15, "H100", 256, {1, 1, 1}, {2048, 8, 1}, 80, 0, 0, 15.8187},
    {242, COMPOSER, 15, "H100", 128, {1, 1, 1}, {2048, 8, 1}, 80, 0, 0, 15.4783},
    {243, COMPOSER, 14, "H100", 512, {1, 1, 1}, {2048, 8, 1}, 48, 0, 0, 7.7431},
    {244, COMPOSER, 14, "H100", 256, {1, 1, 1}, {2048, 8, 1}, 48, 0, 0, 7.6257},
    {245, COMPOSER, 14, "H100", 128, {1, 1, 1}, {2048, 8, 1}, 48, 0, 0, 7.4502},
    {246, COMPOSER, 13, "H100", 512, {1, 1, 1}, {2048, 16, 1}, 40, 0, 0, 6.6161},
    {247, COMPOSER, 13, "H100", 256, {1, 1, 1}, {2048, 16, 1}, 40, 0, 0, 6.5679},
    {248, COMPOSER, 13, "H100", 128, {1, 1, 1}, {2048, 16, 1}, 40, 0, 0, 6.4502},
    {249, COMPOSER, 12, "H100", 512, {1, 1, 1}, {2048, 6, 1}, 0, 0, 0, 1.2706},
    {250, COMPOSER, 12, "H100", 256, {1, 1, 1}, {2048, 6, 1}, 0, 0, 0, 1.2143},
    {251, COMPOSER, 12, "H100", 128, {1, 1, 1}, {2048, 6, 1}, 0, 0, 0, 1.1731},
    {252, COMPOSER, 11, "H100", 512, {1, 1, 1}, {2048, 8, 1}, 0, 0, 0, 0.7563},
    {253, COMPOSER, 11, "H100", 256, {1, 1, 1}, {2048, 8, 1}, 0, 0, 0, 0.7195},
    {254, COMPOSER, 11, "H100", 128, {1, 1, 1}, {2048, 8, 1}, 0, 0, 0, 0.6995},
    {255, COMPOSER, 10, "H100", 512, {1, 1, 1}, {2048, 12, 1}, 0, 0, 0, 0.6169},
    {256, COMPOSER, 10, "H100", 256, {1, 1, 1}, {2048, 12, 1}, 0, 0, 0, 0.5775},
    {257, COMPOSER, 10, "H100", 128, {1, 1, 1}, {2048, 12, 1}, 0, 0, 0, 0.557},
    {258, COMPOSER, 15, "H100", 64, {1, 1, 1}, {2048, 8, 4}, 80, 0, 0, 63.0504},
    {259, COMPOSER, 15, "H100", 32, {1, 1, 1}, {2048, 2, 16}, 80, 0, 0, 74.2565},
    {260, COMPOSER, 14, "H100", 8, {1, 1, 1}, {8192, 1, 21}, 48, 0, 0, 124.301},
    {261, COMPOSER, 14, "H100", 8, {1, 1, 1}, {4096, 1, 21}, 48, 0, 0, 47.7237},
    {262, COMPOSER, 14, "H100", 32, {1, 1, 1}, {2048, 14, 3}, 48, 0, 0, 37.2666},
    {263, COMPOSER, 14, "H100", 16, {1, 1, 1}, {2048, 10, 3}, 48, 0, 0, 27.1491},
    {264, COMPOSER, 14, "H100", 8, {1, 1, 1}, {2048, 3, 21}, 48, 0, 0, 64.4234},
    {265, COMPOSER, 14, "H100", 8, {1, 1, 1}, {1024, 6, 21}, 48, 0, 0, 61.9117},
    {266, COMPOSER, 13, "H100", 8, {1, 1, 1}, {32768, 1, 3}, 40, 0, 0, 49.7364},
    {267, COMPOSER, 13, "H100", 8, {1, 1, 1}, {16384, 3, 3}, 40, 0, 0, 49.3969},
    {268, COMPOSER, 13, "H100", 8, {1, 1, 1}, {4096, 10, 3}, 40, 0, 0, 26.0477},
    {269, COMPOSER, 13, "H100", 64, {1, 1, 1}, {2048, 2, 1}, 0, 0, 0, 0.8533},
    {270, COMPOSER, 13, "H100", 32, {1, 1, 1}, {2048, 2, 1}, 0, 0, 0, 0.8513},
    {271, COMPOSER, 13, "H100", 16, {1, 1, 1}, {2048, 2, 1}, 0, 0, 0, 0.8592},
    {272, COMPOSER, 13, "H100", 8, {1, 1, 1}, {2048, 2, 1}, 0, 0, 0, 0.8548},
    {273, COMPOSER, 13, "H100", 8, {1, 1, 1}, {1024, 40, 3}, 40, 0, 0, 22.3322},
    {274, COMPOSER, 12, "H100", 8, {1, 1, 1}, {65536, 1, 2}, 32, 0, 0, 66.9845},
    {275, COMPOSER, 12, "H100", 8, {1, 1, 1}, {32768, 2, 2}, 32, 0, 0, 39.4944},
    {276, COMPOSER, 12, "H100", 8, {1, 1, 1}, {8192, 8, 2}, 32, 0, 0, 18.8997},
    {277, COMPOSER, 12, "H100", 8, {1, 1, 1}, {4096, 16, 2}, 32, 0, 0, 15.2204},
    {278, COMPOSER, 12, "H100", 8, {1, 1, 1}, {2048, 6, 1}, 0, 0, 0, 1.1546},
    {279, COMPOSER, 12, "H100", 8, {1, 1, 1}, {1024, 64, 2}, 32, 0, 0, 12.8458},
    {280, COMPOSER, 11, "H100", 8, {1, 1, 1}, {65536, 1, 2}, 32, 0, 0, 40.1769},
    {281, COMPOSER, 11, "H100", 8, {1, 1, 1}, {32768, 3, 6}, 32, 0, 0, 100.43},
    {282, COMPOSER, 11, "H100", 8, {1, 1, 1}, {16384, 1, 6}, 0, 0, 0, 8.8142},
    {283, COMPOSER, 11, "H100", 8, {1, 1, 1}, {8192, 3, 6}, 0, 0, 0, 8.8945},
    {284, COMPOSER, 11, "H100", 8, {1, 1, 1}, {4096, 5, 6}, 0, 0, 0, 5.8615},
    {285, COMPOSER, 11, "H100", 64, {1, 1, 1}, {2048, 6, 3}, 0, 0, 0, 1.6365},
    {286, COMPOSER, 11, "H100", 32, {1, 1, 1}, {2048, 6, 3}, 0, 0, 0, 1.6013},
    {287, COMPOSER, 11, "H100", 16, {1, 1, 1}, {2048, 10, 3}, 0, 0, 0, 2.5449},
    {288, COMPOSER, 11, "H100", 8, {1, 1, 1}, {1024, 20, 6}, 0, 0, 0, 4.5433},
    {289, COMPOSER, 11, "H100", 8, {1, 1, 1}, {512, 40, 6}, 0, 0, 0, 4.394},
    {290, COMPOSER, 10, "H100", 8, {1, 1, 1}, {65536, 1, 2}, 24, 0, 0, 23.8042},
    {291, COMPOSER, 10, "H100", 8, {1, 1, 1}, {32768, 1, 4}, 0, 0, 0, 10.8996},
    {292, COMPOSER, 10, "H100", 8, {1, 1, 1}, {16384, 2, 4}, 0, 0, 0, 6.6706},
    {293, COMPOSER, 10, "H100", 8, {1, 1, 1}, {8192, 3, 4}, 0, 0, 0, 3.3715},
    {294, COMPOSER, 10, "H100", 8, {1, 1, 1}, {4096, 7, 4}, 0, 0, 0, 2.9762},
    {295, COMPOSER, 10, "H100", 64, {1, 1, 1}, {2048, 20, 1}, 0, 0, 0, 0.9225},
    {296, COMPOSER, 10, "H100", 32, {1, 1, 1}, {2048, 20, 1}, 0, 0, 0, 0.9076},
    {297, COMPOSER, 10, "H100", 16, {1, 1, 1}, {2048, 20, 1}, 0, 0, 0, 0.8897},
    {298, COMPOSER, 10, "H100", 8, {1, 1, 1}, {2048, 14, 1}, 0, 0, 0, 0.6308},
    {299, COMPOSER, 10, "H100", 8, {1, 1, 1}, {1024, 18, 4}, 0, 0, 0, 1.5074},
    {300, COMPOSER, 10, "H100", 8, {1, 1, 1}, {512, 56, 4}, 0, 0, 0, 2.1939},
    {301, COMPOSER, 9, "H100", 8, {1, 1, 1}, {32768, 1, 2}, 0, 0, 0, 4.0227},
    {302, COMPOSER, 9, "H100", 8, {1, 1, 1}, {16384, 3, 2}, 0, 0, 0, 3.5342},
    {303, COMPOSER, 9, "H100", 8, {1, 1, 1}, {8192, 6, 2}, 0, 0, 0, 2.3504},
    {304, COMPOSER, 9, "H100", 8, {1, 1, 1}, {4096, 12, 2}, 0, 0, 0, 1.7725},
    {305, COMPOSER, 9, "H100", 32, {1, 1, 1}, {2048, 24, 1}, 0, 0, 0, 0.7231},
    {306, COMPOSER, 9, "H100", 16, {1, 1, 1}, {2048, 24, 1}, 0, 0, 0, 0.717},
    {307, COMPOSER, 9, "H100", 8, {1, 1, 1}, {2048, 24, 2}, 0, 0, 0, 1.5567},
    {308, COMPOSER, 9, "H100", 8, {1, 1, 1}, {1024, 48, 2}, 0, 0, 0, 1.251},
    {309, COMPOSER, 9, "H100", 8, {1, 1, 1}, {512, 96, 2}, 0, 0, 0, 1.1738},
    {317, COMPOSER, 15, "A100", 64, {1, 1, 1}, {2048, 8, 4}, 80, 0, 0, 159.637},
    {318, COMPOSER, 15, "A100", 32, {1, 1, 1}, {2048, 2, 16}, 80, 0, 0, 175.318},
    {319, COMPOSER, 14, "A100", 8, {1, 1, 1}, {8192, 1, 21}, 48, 0, 0, 299.577},
    {320, COMPOSER, 14, "A100", 8, {1, 1, 1}, {4096, 1, 21}, 48, 0, 0, 105.654},
    {321, COMPOSER, 14, "A100", 8, {1, 1, 1}, {2048, 3, 21}, 48, 0, 0, 140.817},
    {322, COMPOSER, 14, "A100", 8, {1, 1, 1}, {1024, 6, 21}, 48, 0, 0, 136.335},
    {323, COMPOSER, 14, "A100", 8, {1, 1, 1}, {512, 12, 21}, 48, 0, 0, 133.375},
    {324, COMPOSER, 13, "A100", 8, {1, 1, 1}, {32768, 1, 3}, 40, 0, 0, 96.6845},
    {325, COMPOSER, 13, "A100", 8, {1, 1, 1}, {16384, 3, 3}, 40, 0, 0, 102.99},
    {326, COMPOSER, 13, "A100", 8, {1, 1, 1}, {8192, 5, 3}, 40, 0, 0, 68.4473},
    {327, COMPOSER, 13, "A100", 8, {1, 1, 1}, {4096, 10, 3}, 40, 0, 0, 59.6432},
    {328, COMPOSER, 13, "A100", 8, {1, 1, 1}, {2048, 2, 3}, 0, 0, 0, 5.4321},
    {329, COMPOSER, 13, "A100", 8, {1, 1, 1}, {1024, 40, 3}, 40, 0, 0, 52.7184},
    {330, COMPOSER, 12, "A100", 8, {1, 1, 1}, {65536, 1, 2}, 32, 0, 0, 129.326},
    {331, COMPOSER, 12, "A100", 8, {1, 1, 1}, {32768, 2, 2}, 32, 0, 0, 78.3572},
    {332, COMPOSER, 12, "A100", 8, {1, 1, 1}, {16384, 4, 2}, 32, 0, 0, 53.4197},
    {333, COMPOSER, 12, "A100", 8, {1, 1, 1}, {8192, 8, 2}, 32, 0, 0, 40.8722},
    {334, COMPOSER, 12, "A100", 8, {1, 1, 1}, {4096, 16, 2}, 32, 0, 0, 35.5787},
    {335, COMPOSER, 12, "A100", 8, {1, 1, 1}, {2048, 6, 2}, 0, 0, 0, 5.2951},
    {336, COMPOSER, 12, "A100", 8, {1, 1, 1}, {1024, 64, 2}, 32, 0, 0, 30.0822},
    {337, COMPOSER, 11, "A100", 8, {1, 1, 1}, {65536, 1, 2}, 32, 0, 0, 74.1725},
    {338, COMPOSER, 11, "A100", 8, {1, 1, 1}, {32768, 3, 6}, 32, 0, 0, 194.702},
    {339, COMPOSER, 11, "A100", 8, {1, 1, 1}, {16384, 1, 6}, 0, 0, 0, 17.7793},
    {340, COMPOSER, 11, "A100", 8, {1, 1, 1}, {8192, 3, 6}, 0, 0, 0, 19.1604},
    {341, COMPOSER, 11, "A100", 8, {1, 1, 1}, {4096, 5, 6}, 0, 0, 0, 12.9932},
    {342, COMPOSER, 11, "A100", 8, {1, 1, 1}, {2048, 10, 2}, 0, 0, 0, 3.7886},
    {343, COMPOSER, 11, "A100", 8, {1, 1, 1}, {1024, 20, 6}, 0, 0, 0, 10.6111},
    {344, COMPOSER, 11, "A100", 8, {1, 1, 1}, {512, 40, 6}, 0, 0, 0, 10.1324},
    {345, COMPOSER, 10, "A100", 8, {1, 1, 1}, {65536, 1, 2}, 24, 0, 0, 43.0574},
    {346, COMPOSER, 10, "A100", 8, {1, 1, 1}, {32768, 1, 4}, 0, 0, 0, 20.8851},
    {347, COMPOSER, 10, "A100", 8, {1, 1, 1}, {16384, 2, 4}, 0, 0, 0, 13.1648},
    {348, COMPOSER, 10, "A100", 8, {1, 1, 1}, {8192, 3, 4}, 0, 0, 0, 7.116},
    {349, COMPOSER, 10, "A100", 8, {1, 1, 1}, {4096, 7, 4}, 0, 0, 0, 6.4406},
    {350, COMPOSER, 10, "A100", 8, {1, 1, 1}, {2048, 14, 4}, 0, 0, 0, 5.5908},
    {351, COMPOSER, 10, "A100", 8, {1, 1, 1}, {1024, 18, 4}, 0, 0, 0, 3.3343},
    {352, COMPOSER, 10, "A100", 8, {1, 1, 1}, {512, 56, 4}, 0, 0, 0, 4.9545},
    {353, COMPOSER, 9, "A100", 8, {1, 1, 1}, {65536, 1, 2}, 24, 0, 0, 31.6313},
    {354, COMPOSER, 9, "A100", 8, {1, 1, 1}, {32768, 1, 2}, 0, 0, 0, 7.4455},
    {355, COMPOSER, 9, "A100", 8, {1, 1, 1}, {16384, 3, 2}, 0, 0, 0, 6.8866},
    {356, COMPOSER, 9, "A100", 8, {1, 1, 1}, {8192, 6, 2}, 0, 0, 0, 4.6959},
    {357, COMPOSER, 9, "A100", 8, {1, 1, 1}, {4096, 12, 2}, 0, 0, 0, 3.5942},
    {358, COMPOSER, 9, "A100", 8, {1, 1, 1}, {2048, 24, 2}, 0, 0, 0, 3.0309},
    {359, COMPOSER, 9, "A100", 8, {1, 1, 1}, {1024, 48, 2}, 0, 0, 0, 3.3026},
    {360, COMPOSER, 9, "A100", 8, {1, 1, 1}, {512, 96, 2}, 0, 0, 0, 3.3384},
    {361, COMPOSER, 8, "A100", 8, {1, 1, 1}, {65536, 1, 2}, 0, 0, 0, 17.4197},
    {362, COMPOSER, 8, "A100", 8, {1, 1, 1}, {32768, 2, 2}, 0, 0, 0, 9.6004},
    {363, COMPOSER, 8, "A100", 8, {1, 1, 1}, {16384, 4, 2}, 0, 0, 0, 5.5634},
    {364, COMPOSER, 8, "A100", 8, {1, 1, 1}, {8192, 8, 2}, 0, 0, 0, 3.5842},
    {365, COMPOSER, 8, "A100", 8, {1, 1, 1}, {4096, 16, 2}, 0, 0, 0, 2.645},
    {366, COMPOSER, 8, "A100", 8, {1, 1, 1}, {2048, 32, 2}, 0, 0, 0, 2.2298},
    {367, COMPOSER, 8, "A100", 8, {1, 1, 1}, {1024, 64, 2}, 0, 0, 0, 2.0223},
    {368, COMPOSER, 8, "A100", 8, {1, 1, 1}, {512, 128, 2}, 0, 0, 0, 1.8905},
    {369, COMPOSER, 7, "A100", 8, {1, 1, 1}, {65536, 1, 2}, 0, 0, 0, 6.4351},
    {370, COMPOSER, 7, "A100", 8, {1, 1, 1}, {32768, 2, 2}, 0, 0, 0, 3.6002},
    {371, COMPOSER, 7, "A100", 8, {1, 1, 1}, {16384, 4, 2}, 0, 0, 0, 2.1831},
    {372, COMPOSER, 7, "A100", 8, {1, 1, 1}, {8192, 8, 2}, 0, 0, 0, 1.45},
    {373, COMPOSER, 7, "A100", 8, {1, 1, 1}, {4096, 16, 2}, 0, 0, 0, 1.1071},
    {374, COMPOSER, 7, "A100", 8, {1, 1, 1}, {2048, 40, 2}, 0, 0, 0, 1.1471},
    {375, COMPOSER, 7, "A100", 8, {1, 1, 1}, {2048, 32, 2}, 0, 0, 0, 0.9248},
    {376, COMPOSER, 7, "A100", 8, {1, 1, 1}, {1024, 64, 2}, 0, 0, 0, 0.8377},
    {377, COMPOSER, 7, "A100", 8, {1, 1, 1}, {512, 128, 2}, 0, 0, 0, 0.7911},
    {378, COMPOSER, 15, "A100", 128, {1, 1, 1}, {2048, 4, 1}, 80, 0, 0, 21.7574},
    {379, COMPOSER, 15, "A100", 64, {1, 1, 1}, {2048, 2, 1}, 80, 0, 0, 14.8339},
    {380, COMPOSER, 14, "A100", 128, {1, 1, 1}, {2048, 6, 1}, 48, 0, 0, 14.1951},
    {381, COMPOSER, 14, "A100", 32, {1, 1, 1}, {2048, 4, 1}, 48, 0, 0, 9.5565},
    {382, COMPOSER, 13, "A100", 8, {1, 1, 1}, {8192, 1, 16}, 40, 0, 0, 93.1405},
    {383, COMPOSER, 13, "A100", 8, {1, 1, 1}, {4096, 2, 16}, 40, 0, 0, 81.7284},
    {384, COMPOSER, 13, "A100", 128, {1, 1, 1}, {2048, 16, 1}, 40, 0, 0, 16.6148},
    {385, COMPOSER, 13, "A100", 64, {1, 1, 1}, {2048, 16, 1}, 40, 0, 0, 16.581},
    {386, COMPOSER, 13, "A100", 32, {1, 1, 1}, {2048, 14, 1}, 40, 0, 0, 14.3481},
    {387, COMPOSER, 13, "A100", 16, {1, 1, 1}, {2048, 10, 1}, 40, 0, 0, 10.2721},
    {388, COMPOSER, 13, "A100", 8, {1, 1, 1}, {2048, 4, 16}, 40, 0, 0, 78.5627},
    {389, COMPOSER, 13, "A100", 8, {1, 1, 1}, {1024, 8, 16}, 40, 0, 0, 75.8903},
    {390, COMPOSER, 13, "A100", 8, {1, 1, 1}, {512, 16, 16}, 40, 0, 0, 74.3249},
    {391, COMPOSER, 12, "A100", 8, {1, 1, 1}, {16384, 1, 4}, 32, 0, 0, 29.1303},
    {392, COMPOSER, 12, "A100", 8, {1, 1, 1}, {8192, 3, 4}, 32, 0, 0, 34.0476},
    {393, COMPOSER, 12, "A100", 8, {1, 1, 1}, {4096, 6, 4}, 32, 0, 0, 29.2028},
    {394, COMPOSER, 12, "A100", 128, {1, 1, 1}, {2048, 18, 1}, 32, 0, 0, 10.1749},
    {395, COMPOSER, 12, "A100", 64, {1, 1, 1}, {2048, 18, 1}, 32, 0, 0, 10.0561},
    {396, COMPOSER, 12, "A100", 32, {1, 1, 1}, {2048, 18, 1}, 32, 0, 0, 9.8962},
    {397, COMPOSER, 12, "A100", 16, {1, 1, 1}, {2048, 16, 1}, 32, 0, 0, 8.9895},
    {398, COMPOSER, 12, "A100", 8, {1, 1, 1}, {2048, 12, 4}, 32, 0, 0, 26.7167},
    {399, COMPOSER, 12, "A100", 8, {1, 1, 1}, {1024, 24, 4}, 32, 0, 0, 25.5062},
    {400, COMPOSER, 12, "A100", 8, {1, 1, 1}, {512, 48, 4}, 32, 0, 0, 25.2328},
    {401, COMPOSER, 11, "A100", 8, {1, 1, 1}, {32768, 1, 4}, 32, 0, 0, 44.356},
    {402, COMPOSER, 11, "A100", 8, {1, 1, 1}, {16384, 2, 8}, 32, 0, 0, 58.701},
    {403, COMPOSER, 11, "A100", 8, {1, 1, 1}, {8192, 1, 8}, 0, 0, 0, 9.167},
    {404, COMPOSER, 11, "A100", 8, {1, 1, 1}, {4096, 2, 8}, 0, 0, 0, 7.466},
    {405, COMPOSER, 11, "A100", 128, {1, 1, 1}, {2048, 6, 1}, 0, 0, 0, 1.2883},
    {406, COMPOSER, 11, "A100", 64, {1, 1, 1}, {2048, 6, 1}, 0, 0, 0, 1.262},
    {407, COMPOSER, 11, "A100", 32, {1, 1, 1}, {2048, 6, 1}, 0, 0, 0, 1.2394},
    {408, COMPOSER, 11, "A100", 16, {1, 1, 1}, {2048, 5, 1}, 0, 0, 0, 1.0502},
    {409, COMPOSER, 11, "A100", 8, {1, 1, 1}, {2048, 5, 8}, 0, 0, 0, 8.1391},
    {410, COMPOSER, 11, "A100", 8, {1, 1, 1}, {1024, 10, 8}, 0, 0, 0, 7.6334},
    {411, COMPOSER, 11, "A100", 8, {1, 1, 1}, {512, 20, 8}, 0, 0, 0, 7.2339},
    {412, COMPOSER, 10, "A100", 8, {1, 1, 1}, {32768, 1, 4}, 24, 0, 0, 25.7244},
    {413, COMPOSER, 10, "A100", 8, {1, 1, 1}, {16384, 1, 8}, 0, 0, 0, 13.4912},
    {414, COMPOSER, 10, "A100", 8, {1, 1, 1}, {8192, 2, 8}, 0, 0, 0, 9.7271},
    {415, COMPOSER, 10, "A100", 8, {1, 1, 1}, {4096, 4, 8}, 0, 0, 0, 7.7758},
    {416, COMPOSER, 10, "A100", 128, {1, 1, 1}, {2048, 10, 1}, 0, 0, 0, 1.0983},
    {417, COMPOSER, 10, "A100", 64, {1, 1, 1}, {2048, 10, 1}, 0, 0, 0, 1.0778},
    {418, COMPOSER, 10, "A100", 32, {1, 1, 1}, {2048, 10, 1}, 0, 0, 0, 1.3166},
    {419, COMPOSER, 10, "A100", 16, {1, 1, 1}, {2048, 8, 1}, 0, 0, 0, 0.8584},
    {420, COMPOSER, 10, "A100", 8, {1, 1, 1}, {2048, 8, 8}, 0, 0, 0, 6.8014},
    {421, COMPOSER, 10, "A100", 8, {1, 1, 1}, {1024, 16, 8}, 0, 0, 0, 6.2535},
    {422, COMPOSER, 10, "A100", 8, {1, 1, 1}, {512, 32, 8}, 0, 0, 0, 6.0174},
    {423, COMPOSER, 9, "A100", 8, {1, 1, 1}, {32768, 1, 4}, 24, 0, 0, 18.2475},
    {424, COMPOSER, 9, "A100", 8, {1, 1, 1}, {16384, 1, 4}, 0, 0, 0, 4.7099},
    {425, COMPOSER, 9, "A100", 8, {1, 1, 1}, {8192, 3, 4}, 0, 0, 0, 4.8891},
    {426, COMPOSER, 9, "A100", 8, {1, 1, 1}, {4096, 6, 4}, 0, 0, 0, 3.8009},
    {427, COMPOSER, 9, "A100", 128, {1, 1, 1}, {2048, 12, 1}, 0, 0, 0, 0.8492},
    {428, COMPOSER, 9, "A100", 64, {1, 1, 1}, {2048, 12, 1}, 0, 0, 0, 0.8375},
    {429, COMPOSER, 9, "A100", 32, {1, 1, 1}, {2048, 12, 1}, 0, 0, 0, 0.8289},
    {430, COMPOSER, 9, "A100", 16, {1, 1, 1}, {2048, 12, 1}, 0, 0, 0, 0.8301},
    {431, COMPOSER, 9, "A100", 8, {1, 1, 1}, {2048, 12, 4}, 0, 0, 0, 3.2579},
    {432, COMPOSER, 9, "A100", 8, {1, 1, 1}, {1024, 24, 4}, 0, 0, 0, 2.9413},
    {433, COMPOSER, 9, "A100", 8, {1, 1, 1}, {512, 48, 4}, 0, 0, 0, 2.8137},
    {434, COMPOSER, 8, "A100", 8, {1, 1, 1}, {32768, 1, 4}, 0, 0, 0, 9.7697},
    {435, COMPOSER, 8, "A100", 8, {1, 1, 1}, {16384, 2, 4}, 0, 0, 0, 5.7244},
    {436, COMPOSER, 8, "A100", 8, {1, 1, 1}, {8192, 4, 4}, 0, 0, 0, 3.7521},
    {437, COMPOSER, 8, "A100", 8, {1, 1, 1}, {4096, 8, 4}, 0, 0, 0, 2.7987},
    {438, COMPOSER, 8, "A100", 128, {1, 1, 1}, {2048, 18, 1}, 0, 0, 0, 0.7098},
    {439, COMPOSER, 8, "A100", 64, {1, 1, 1}, {2048, 18, 1}, 0, 0, 0, 0.6996},
    {440, COMPOSER, 8, "A100", 32, {1, 1, 1}, {2048, 18, 1}, 0, 0, 0, 0.6851},
    {441, COMPOSER, 8, "A100", 16, {1, 1, 1}, {2048, 18, 1}, 0, 0, 0, 0.6652},
    {442, COMPOSER, 8, "A100", 8, {1, 1, 1}, {2048, 16, 4}, 0, 0, 0, 2.3408},
    {443, COMPOSER, 8, "A100", 8, {1, 1, 1}, {1024, 32, 4}, 0, 0, 0, 2.0964},
    {444, COMPOSER, 8, "A100", 8, {1, 1, 1}, {512, 64, 4}, 0, 0, 0, 1.9774},
    {445, COMPOSER, 7, "A100", 8, {1, 1, 1}, {32768, 1, 4}, 0, 0, 0, 4.0143},
    {446, COMPOSER, 7, "A100", 8, {1, 1, 1}, {16384, 2, 3}, 0, 0, 0, 1.7717},
    {447, COMPOSER, 7, "A100", 8, {1, 1, 1}, {8192, 5, 3}, 0, 0, 0, 1.4147},
    {448, COMPOSER, 7, "A100", 8, {1, 1, 1}, {4096, 13, 3}, 0, 0, 0, 1.3871},
    {449, COMPOSER, 7, "A100", 128, {1, 1, 1}, {2048, 26, 1}, 0, 0, 0, 0.4296},
    {450, COMPOSER, 7, "A100", 64, {1, 1, 1}, {2048, 26, 1}, 0, 0, 0, 0.4252},
    {451, COMPOSER, 7, "A100", 32, {1, 1, 1}, {2048, 26, 1}, 0, 0, 0, 0.4189},
    {452, COMPOSER, 7, "A100", 16, {1, 1, 1}, {2048, 26, 1}, 0, 0, 0, 0.4079},
    {453, COMPOSER, 7, "A100", 8, {1, 1, 1}, {2048, 26, 3}, 0, 0, 0, 1.1717},
    {454, COMPOSER, 7, "A100", 8, {1, 1, 1}, {1024, 52, 3}, 0, 0, 0, 1.0772},
    {455, COMPOSER, 7, "A100", 8, {1, 1, 1}, {512, 104, 3}, 0, 0, 0, 1.0192},
    {209, MEGATRON, 16, "A100", 8, {8, 1, 1}, {2048, 4, 1}, 48, 0, 0, 1.42},
    {210, MEGATRON, 16, "A100", 8, {8, 1, 1}, {2048, 4, 1}, 0, 0, 0, 1.1},
    {211, MEGATRON, 17, "A100", 64, {8, 8, 3}, {2048, 1, 64}, 96, 0, 0, 18.13},
    {212, MEGATRON, 17, "A100", 64, {8, 8, 3}, {2048, 1, 64}, 0, 0, 0, 13.75},
    {213, MEGATRON, 18, "A100", 280, {8, 35, 3}, {2048, 1, 280}, 105, 0, 0, 49.05},
    {214, MEGATRON, 18, "A100", 280, {8, 35, 3}, {2048, 1, 280}, 0, 0, 0, 37.83},
    {215, MEGATRON, 19, "A100", 512, {8, 64, 1}, {2048, 1, 512}, 128, 0, 0, 94.42},
    {216, MEGATRON, 19, "A100", 512, {8, 64, 1}, {2048, 1, 512}, 0, 0, 0, 71.49},
    {50, TITAN, 5, "H100", 256, {8, 1, 1}, {8192, 16, 1}, 80, 0, 0, 27.4301},
    {56, TITAN, 4, "H100", 64, {8, 1, 1}, {8192, 12, 1}, 0, 1, 0, 2.80676},
    {75, TITAN, 6, "H100", 128, {8, 1, 1}, {8192, 2, 1}, 126, 0, 0, 18.789},
    {1001, MEGATRON, 20, "H100", 8, {4, 1, 1}, {8192, 2, 2}, 0, 0, 0, 1.11493},
    {1002, MEGATRON, 20, "H100", 8, {1, 4, 8}, {8192, 1, 4}, 0, 0, 0, 1.15105},
};

/* FNV-1a over the digits of its number; the rule was written before the first fit. */
static bool is_fitting(uint32_t number)
{
    char digits[16];
    uint32_t hash = 2166136261u;
    snprintf(digits, sizeof(digits), "%u", number);
    for (const char *c = digits; *c; c++)
        hash = (hash ^ (unsigned char)*c) * 16777619u;
    return (hash & 1) == 0;
}

/* YaFSDP's rows are those of evenodd's plans with the same settings: its buffers and its order. */
static double walked_seconds(uint32_t index, const struct row *r, const struct tool_shape *shape,
                             const struct tool_system_settings *settings, const struct tool_device_rates *rates)
{
    static const char *const presets[] = {"llama-2-7b", "llama-2-13b", "llama-34b", "llama-2-70b", "llama-3-8b", "llama-3-70b"};
    static double known[sizeof(rows) / sizeof(rows[0])];
    static struct tool_model_config config;
    struct tool_problem problem;
    struct tool_memplan plan;
    struct tool_step_time time = {0};
    if (known[index] > 0)
        return known[index];
    const struct tool_memplan_settings asked = {
        .plan = {.ranks = r->ranks, .strategy = EO_STRATEGY_ZERO3, .batch = r->step.batch, .seq = r->step.seq,
                 .micro_batches = r->step.micro_batches, .dtype = EO_DTYPE_BF16, .reduce_dtype = EO_DTYPE_FP32,
                 .gather_slots = 2, .gradient_slots = 2, .device = "cuda", .threads = 1,
                 .recompute = r->recomputed_blocks ? EO_RECOMPUTE_BLOCKS : EO_RECOMPUTE_NONE,
                 .recompute_blocks = r->recomputed_blocks},
        .gpus_per_node = 8};
    if (tool_model_config_load(&config, presets[r->model], NULL, 0, &problem) < 0)
        return 0;
    config.context = r->step.seq > config.context ? r->step.seq : config.context; /* Llama-2 with 8192 tokens */
    if (tool_memplan_create(&plan, &config, &asked, &problem) < 0)
        return 0;
    if (tool_plan_step_time(&time, &plan, shape, settings, rates, &tool_walk_rules) >= 0)
        known[index] = time.seconds;
    tool_memplan_fini(&plan);
    return known[index];
}

bool tool_published_step_at(uint32_t index, struct tool_published_step *out)
{
    if (index >= sizeof(rows) / sizeof(rows[0]))
        return false;
    const struct row *r = &rows[index];
    const struct tool_shape shape = {.layers = models[r->model].shape.layers,
                                     .width = models[r->model].shape.width,
                                     .heads = models[r->model].shape.heads,
                                     .kv_heads = models[r->model].shape.kv_heads,
                                     .head_size = models[r->model].shape.width / models[r->model].shape.heads,
                                     .mlp_width = models[r->model].shape.mlp_width,
                                     .vocabulary = models[r->model].shape.vocabulary,
                                     .gated = models[r->model].gated,
                                     .tied_head = models[r->model].tied_head};
    const struct tool_system_settings settings = {
        .layout = {.ranks = r->ranks, .tensor = r->cut.tensor, .pipeline = r->cut.pipeline, .context = 1, .expert = 1,
                   .virtual_stages = r->cut.virtual_stages, .sequence_parallel = r->cut.tensor > 1, .batch = r->step.batch,
                   .seq = r->step.seq, .micro_batches = r->step.micro_batches},
        .strategy = r->source == MEGATRON ? EO_STRATEGY_ZERO1 : r->shard_group ? EO_STRATEGY_HSDP : EO_STRATEGY_ZERO3,
        .shard_group = r->shard_group,
        .run = {.selective = r->selective},
        .recomputed_blocks = r->recomputed_blocks};
    const bool small = r->source == COMPOSER && r->number >= 378; /* A100 of 40 GB: fitted with the rates of 80 GB */
    const struct tool_device_rates *rates = tool_device_rates_find(r->device[0] == 'A' ? "A100-80GB" : r->device);
    const double seconds = r->source == YAFSDP ? walked_seconds(index, r, &shape, &settings, rates)
                                               : tool_step_time(sources[r->source].system, &shape, &settings, rates, 8).seconds;
    *out = (struct tool_published_step){.source = sources[r->source].name,
                                        .model = models[r->model].name,
                                        .device = r->device,
                                        .number = r->number,
                                        .ranks = r->ranks,
                                        .seq = r->step.seq,
                                        .batch = r->step.batch,
                                        .tensor = r->cut.tensor,
                                        .pipeline = r->cut.pipeline,
                                        .micro_batches = r->step.micro_batches,
                                        .recomputed_blocks = r->recomputed_blocks,
                                        .selective = r->selective,
                                        .small_memory = small,
                                        .fitting = is_fitting(r->number),
                                        .told_alone = r->source != COMPOSER,
                                        .seconds = r->seconds,
                                        .estimated_seconds = seconds};
    return true;
}

/* Of the rows of a source and device in a half; a device of NULL: all. */
static void print_group(FILE *out, const char *source, const char *device, bool fitting)
{
    struct tool_published_step s;
    uint32_t count = 0;
    double sum = 0, most = 0;
    for (uint32_t i = 0; tool_published_step_at(i, &s); i++) {
        if (s.fitting != fitting || (source && s.source != source) || (device && s.device[0] != device[0]))
            continue;
        const double error = 100 * fabs(s.estimated_seconds / s.seconds - 1);
        sum += error;
        most = fmax(most, error);
        count++;
    }
    if (count)
        fprintf(out, "| %s%s%s | %s | %u | %.1f %% | %.1f %% |\n", source ? source : "all", device ? ", " : "",
                device ? device : "", fitting ? "fitted" : "the other", count, sum / count, most);
}

/* The targets: of all rows of a source, in both halves, 5 % on average and 10 % each. */
static void print_target(FILE *out, enum source source)
{
    struct tool_published_step s;
    uint32_t count = 0;
    double sum = 0, most = 0;
    for (uint32_t i = 0; tool_published_step_at(i, &s); i++) {
        if (s.source != sources[source].name)
            continue;
        const double error = 100 * fabs(s.estimated_seconds / s.seconds - 1);
        sum += error;
        most = fmax(most, error);
        count++;
    }
    fprintf(out, "%s, all %u rows: %.1f %% on average, %.1f %% at most; target 5 %% and 10 %%: %s\n", sources[source].name, count,
            sum / count, most, sum <= 5 * count && most <= 10 ? "met" : "missed");
}

void tool_published_steps_print(FILE *out)
{
    struct tool_published_step s;
    fprintf(out, "| step | GPUs | tokens | estimated s | published s | error | half |\n|---|---:|---:|---:|---:|---:|---|\n");
    for (uint32_t i = 0; tool_published_step_at(i, &s); i++)
        if (s.told_alone)
            fprintf(out, "| %s %s tp%u pp%u, row %u | %u %s | %u x %u | %.3f | %.3f | %+.1f %% | %s |\n", s.source, s.model,
                    s.tensor, s.pipeline, s.number, s.ranks, s.device, s.batch, s.seq, s.estimated_seconds, s.seconds,
                    100 * (s.estimated_seconds / s.seconds - 1), s.fitting ? "fitted" : "the other");
    fprintf(out, "\n| steps | half | rows | mean error | at most |\n|---|---|---:|---:|---:|\n");
    for (int fitting = 0; fitting < 2; fitting++) {
        print_group(out, NULL, NULL, fitting);
        for (int source = 0; source < SOURCE_COUNT; source++) {
            print_group(out, sources[source].name, "A100", fitting);
            print_group(out, sources[source].name, "H100", fitting);
        }
    }
    fputc('\n', out);
    print_target(out, YAFSDP);
    print_target(out, FSDP1);
}
