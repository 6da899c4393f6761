/* SPDX-License-Identifier: MIT
 *
 * Laws that every plan keeps: more work never takes less, arenas are close to their bound, odd configs end in a message.
 * EO_TEST_FULL=1 takes more of them.
 */
#include "tests/unit/tools/planned.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit/tools/chance.h"
#include "tools/memplan/plan/layers.h"
#include "tools/memplan/report/report.h"

static uint64_t bound(const struct tool_memplan_settings *s)
{
    struct tool_memplan memplan = planned(s);
    const uint64_t bytes = memplan.summary.lower_bound_bytes;
    tool_memplan_fini(&memplan);
    return bytes;
}

/* Goal: more sequences or tokens never take less, more recomputed blocks never more; padding is below one alignment a rank
 * and layer. Method: random models from seeds. */
Test(memplan, random_models_keep_the_laws, .timeout = 300)
{
    uint64_t state = 424242424242u;
    for (int round = 0; round < 60; round++) {
        static const char *const types[] = {"llama", "mistral", "qwen2", "qwen3", "mixtral", "gpt2"};
        const char *type = types[next_random(&state) % 6];
        const unsigned heads = 1u << next_random(&state) % 4, kv = heads >> next_random(&state) % 2, kept = kv ? kv : 1;
        const unsigned size = 2 * (1 + (unsigned)(next_random(&state) % 32)), width = heads * size;
        const unsigned layers = 1 + (unsigned)(next_random(&state) % 6), vocabulary = 3 + (unsigned)(next_random(&state) % 5000);
        char text[1024];
        if (strcmp(type, "gpt2") == 0)
            snprintf(text, sizeof(text), "{\"model_type\":\"gpt2\",\"n_layer\":%u,\"n_embd\":%u,\"n_head\":%u,\"vocab_size\":%u}",
                     layers, width, heads, vocabulary);
        else
            snprintf(text, sizeof(text), "{\"model_type\":\"%s\",\"num_hidden_layers\":%u,\"hidden_size\":%u,"
                     "\"num_attention_heads\":%u,\"num_key_value_heads\":%u,\"intermediate_size\":%u,\"vocab_size\":%u,"
                     "\"num_local_experts\":4,\"num_experts_per_tok\":2,\"head_dim\":%u,\"tie_word_embeddings\":%s}",
                     type, layers, width, heads, kept, 1 + (unsigned)(next_random(&state) % 300), vocabulary, size,
                     round % 2 ? "true" : "false");
        cr_assert_geq(tool_model_config_parse(&config, "random", text, strlen(text), NULL, 0, &problem), 0, "%s", problem.text);
        struct tool_memplan_settings s = setting(1 + (uint32_t)(next_random(&state) % 9), (uint32_t)next_random(&state) % 64);
        s.plan.seq = 1 + (uint32_t)(next_random(&state) % 64);
        s.plan.head_chunks = 1;
        struct tool_memplan memplan = planned(&s);
        const uint64_t base = memplan.summary.lower_bound_bytes;
        uint32_t count;
        struct tool_layer_line *lines = tool_layer_lines(&memplan, &count);
        const uint64_t align = 128; /* elements: 256 bytes of the smallest type */
        for (uint32_t i = 0; i < count; i++) {
            cr_assert_leq(lines[i].elements, lines[i].padded_elements);
            /* parameters begin on 16 elements each, and a layer has twelve at most */
            cr_assert_lt(lines[i].padded_elements, lines[i].elements + align * s.plan.ranks + 12 * 15, "%s of %s",
                         lines[i].name, text);
            cr_assert_eq(lines[i].padded_elements % (align * s.plan.ranks), 0);
        }
        free(lines);
        struct tool_lifetimes t;
        cr_assert_eq(tool_lifetimes_create(&t, &memplan), EO_OK);
        cr_assert_eq(t.peak_bytes, base, "%s", text);
        tool_lifetimes_fini(&t);
        tool_memplan_fini(&memplan);
        struct tool_memplan_settings more = s;
        more.plan.batch++;
        cr_assert_geq(bound(&more), base);
        more = s;
        more.plan.seq++;
        cr_assert_geq(bound(&more), base);
    }
}

/* Goal: gathers of blocks in float8 carry about half of what they do in bf16, buffers do not grow, and state does by a shard
 * of a byte an element. Method: published shapes over 8 and 64 ranks, from the public plan. */
Test(memplan, float8_halves_the_gathers_of_blocks)
{
    static const char *const models[] = {"gpt2", "llama-1b", "qwen3-0.6b"};
    for (uint32_t n = 0; n < 6; n++) {
        struct tool_memplan_settings s = settings_of(n % 2 ? 64 : 8);
        struct tool_memplan plain, float8;
        load(models[n / 2]);
        plain = planned(&s);
        s.plan.float8_gather = true;
        float8 = planned(&s);
        uint32_t count, same;
        uint64_t shards = 0;
        struct tool_layer_line *before = tool_layer_lines(&plain, &count), *after = tool_layer_lines(&float8, &same);
        cr_assert_eq(count, same);
        for (uint32_t l = 0; l < count; l++) {
            const bool block = strncmp(before[l].name, "block.", 6) == 0;
            const double ratio = (double)after[l].gather_bytes / (double)before[l].gather_bytes;
            cr_assert(block ? ratio > 0.5 && ratio < 0.53 : ratio == 1, "%s, %s: %g", models[n / 2], before[l].name, ratio);
            shards += block ? after[l].gather_bytes / s.plan.ranks : 0;
        }
        const uint64_t *a = plain.summary.category_bytes, *b = float8.summary.category_bytes;
        cr_assert_eq(b[EO_CATEGORY_COMPUTE_SHARD], a[EO_CATEGORY_COMPUTE_SHARD] + shards);
        cr_assert_lt((double)b[EO_CATEGORY_GATHER_BUFFER], 1.02 * (double)a[EO_CATEGORY_GATHER_BUFFER]);
        free(before);
        free(after);
        tool_memplan_fini(&plain);
        tool_memplan_fini(&float8);
    }
}

/* Goal: the lines of layers say what lies where also where parameters are frozen beside trained ones: all parameters are in one of
 * them, padding is below a block's own, and the shards' bytes are those of the plan. Method: random adapters of published shapes,
 * against the plan's categories; 33 bytes for 32 elements in MXFP8, and no fewer than the elements elsewhere. */
Test(memplan, lines_of_layers_count_frozen_and_trained_parameters_apart)
{
    static const char *const models[] = {"gpt2", "llama-1b", "qwen3-0.6b", "tiny"};
    for (uint32_t n = 0; n < 24; n++) {
        struct tool_memplan_settings s = settings_of(1 + n % 5);
        load(models[n % 4]);
        s.plan.dtype = n % 3 ? EO_DTYPE_BF16 : EO_DTYPE_FP32;
        s.plan.device = "cpu";
        s.on_gpu = false;
        s.plan.lora = (struct tool_lora){.rank = 1 + n % 17, .alpha = 8};
        s.plan.float8_frozen = n / 4 % 2;
        struct tool_memplan memplan = planned(&s);
        uint32_t count, parts = 0;
        struct tool_layer_line *lines = tool_layer_lines(&memplan, &count);
        uint64_t elements = 0, shards = 0, trained = 0;
        for (uint32_t i = 0; i < count; i++) {
            const struct tool_layer_line *line = &lines[i];
            elements += line->elements;
            shards += line->shard_bytes;
            trained += line->is_frozen ? 0 : line->padded_elements;
            parts += line->is_part;
            cr_assert_leq(line->elements + line->more_elements, line->padded_elements, "%s", line->name);
            cr_assert_leq(line->padded_elements, line->elements + line->more_elements + 128 * s.plan.ranks + 40 * 31, "%s", line->name);
            cr_assert_eq(line->is_mxfp8, s.plan.float8_frozen && line->is_part, "%s", line->name);
            const uint64_t least = line->padded_elements / s.plan.ranks * (line->is_mxfp8 ? 1 : eo_dtype_bytes(s.plan.dtype));
            cr_assert(line->shard_bytes >= least && (double)line->shard_bytes < 1.05 * (double)least + 8192, "%s", line->name);
            cr_assert_eq(line->gather_bytes, line->shard_bytes * s.plan.ranks);
        }
        const uint64_t *bytes = memplan.summary.category_bytes;
        cr_assert_eq(elements, memplan.summary.element_count);
        cr_assert_eq(shards, s.plan.dtype == EO_DTYPE_BF16 ? bytes[EO_CATEGORY_COMPUTE_SHARD]
                                                           : bytes[EO_CATEGORY_MASTER] + bytes[EO_CATEGORY_COMPUTE_SHARD]);
        cr_assert_eq(bytes[EO_CATEGORY_OPTIMIZER], trained / s.plan.ranks * 8);
        cr_assert_eq(parts, config.layer_count);
        free(lines);
        tool_memplan_fini(&memplan);
    }
}

Test(memplan, more_recomputed_blocks_never_take_more)
{
    static const char *const models[] = {"base", "qwen3-0.6b"};
    for (int m = 0; m < 2; m++) {
        load(models[m]);
        struct tool_memplan_settings s = settings_of(4);
        s.plan.recompute = EO_RECOMPUTE_BLOCKS;
        s.plan.batch = 4;
        uint64_t before = UINT64_MAX;
        for (s.plan.recompute_blocks = 1; s.plan.recompute_blocks <= config.layer_count; s.plan.recompute_blocks++) {
            const uint64_t bytes = bound(&s);
            cr_assert_leq(bytes, before, "%s, %u blocks", models[m], s.plan.recompute_blocks);
            before = bytes;
        }
    }
}

/* Goal: the arena lies within 5 % of its lower bound for every preset and published model.
 * Method: worlds of 8 and 64; the short run takes models up to 10 billion parameters. */
Test(memplan, arenas_are_within_5_percent_of_their_bound, .timeout = 600)
{
    const bool full = getenv("EO_TEST_FULL") != NULL;
    uint32_t seen = 0;
    for (uint32_t i = 0; i < 64; i++) {
        const char *name = i < 32 ? eo_transformer_preset_name(i) : tool_model_preset_name(i - 32);
        if (!name) {
            i = i < 32 ? 31 : 64;
            continue;
        }
        load(name);
        if (!full && tool_model_config_parameters(&config) > 10000000000u)
            continue;
        for (uint32_t w = 0; w < 2; w++) {
            struct tool_memplan_settings s = settings_of(w ? 64 : 8);
            s.plan.seq = config.context < 2048 ? config.context : 2048;
            s.plan.device = "cuda";
            struct tool_memplan memplan = planned(&s);
            cr_assert_leq((double)memplan.summary.arena_bytes, 1.05 * (double)memplan.summary.lower_bound_bytes,
                          "%s on %u: %llu against %llu", name, s.plan.ranks, (unsigned long long)memplan.summary.arena_bytes,
                          (unsigned long long)memplan.summary.lower_bound_bytes);
            tool_memplan_fini(&memplan);
            seen++;
        }
    }
    cr_assert_geq(seen, 30);
}

/* Goal: a config that is taken ends in a plan or in a message, however large or odd its fields. Method: fields of published
 * models set to values at and beyond every bound, from a seed; each that is taken is planned. */
Test(memplan, odd_configs_end_in_a_plan_or_a_message, .timeout = 1200)
{
    static const char *const models[] = {"llama-3-8b", "qwen2.5-0.5b", "qwen3-0.6b", "mixtral-8x7b", "gpt2", "qwen3-30b-a3b",
                                         "moonlight-16b-a3b", "qwen3-next-80b-a3b", "gpt-oss-20b", "gemma-3-1b"};
    static const char *const fields[] = {"kv_lora_rank", "linear_num_value_heads", "sliding_window",
                                         "hidden_size", "num_attention_heads", "num_key_value_heads", "head_dim",
                                         "intermediate_size", "vocab_size", "num_hidden_layers", "n_embd", "n_head", "n_inner",
                                         "max_position_embeddings", "n_positions", "num_experts", "moe_intermediate_size"};
    static const char *const values[] = {"1", "2", "3", "7", "64", "1000", "65535", "65536", "1048576", "16777216",
                                         "1073741824", "0", "-1", "null", "2.5"};
    uint64_t state = 987654321u;
    uint32_t planned = 0, refused = 0;
    const int rounds = getenv("EO_TEST_FULL") ? 2000 : 400;
    for (int round = 0; round < rounds; round++) {
        char sets[3][64];
        const char *list[3];
        for (int i = 0; i < 3; i++) {
            snprintf(sets[i], sizeof(sets[i]), "%s=%s", fields[next_random(&state) % (sizeof(fields) / sizeof(fields[0]))],
                     values[next_random(&state) % (sizeof(values) / sizeof(values[0]))]);
            list[i] = sets[i];
        }
        const char *model = models[next_random(&state) % (sizeof(models) / sizeof(models[0]))];
        const uint32_t world = 1u << next_random(&state) % 8;
        problem.text[0] = '\0';
        eo_status status = tool_model_config_load(&config, model, list, 1 + (uint32_t)(next_random(&state) % 3), &problem);
        struct tool_memplan memplan;
        if (status >= 0) {
            struct tool_memplan_settings s = setting(world, (uint32_t)(next_random(&state) % 64));
            s.plan.seq = config.context < 128 ? config.context : 128;
            status = tool_memplan_create(&memplan, &config, &s, &problem);
        }
        if (status < 0) {
            refused++;
            cr_assert(problem.text[0], "%s, %s, %s, %s: refused without a word", model, sets[0], sets[1], sets[2]);
            continue;
        }
        planned++;
        cr_assert(memplan.summary.lower_bound_bytes > 0 && memplan.summary.arena_bytes >= memplan.summary.lower_bound_bytes,
                  "%s, %s, %s, %s", model, sets[0], sets[1], sets[2]);
        tool_memplan_fini(&memplan);
    }
    cr_assert(planned > 50 && refused > 50, "%u planned, %u refused", planned, refused);
}
