/* SPDX-License-Identifier: MIT
 *
 * memplan is the runtime's planner: the same rows, and what is said about them holds. EO_TEST_FULL=1 takes larger models.
 */
#include <criterion/criterion.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/memplan/plan/block_rows.h"
#include "tools/memplan/plan/layers.h"
#include "tools/memplan/plan/parts.h"
#include "tools/memplan/published/published.h"
#include "tools/memplan/report/report.h"

static struct tool_model_config config;
static struct tool_problem problem;

static struct tool_memplan_settings settings_of(uint32_t world)
{
    return (struct tool_memplan_settings){.plan = {.ranks = world,
                                                   .strategy = EO_STRATEGY_ZERO3,
                                                   .batch = 1,
                                                   .seq = 128,
                                                   .micro_batches = 1,
                                                   .dtype = EO_DTYPE_BF16,
                                                   .reduce_dtype = EO_DTYPE_FP32,
                                                   .gather_slots = 2,
                                                   .gradient_slots = 2,
                                                   .device = "cpu",
                                                   .threads = 1},
                                          .gpus_per_node = 8};
}

static void load(const char *model)
{
    cr_assert_geq(tool_model_config_load(&config, model, NULL, 0, &problem), 0, "%s", problem.text);
}

static void plan(struct tool_memplan *out, const struct tool_memplan_settings *settings)
{
    cr_assert_geq(tool_memplan_create(out, &config, settings, &problem), 0, "%s", problem.text);
}

/* The n-th setting of a grid: slots, micro-batches, recompute, element types, pieces of the head, granularity. */
static struct tool_memplan_settings setting(uint32_t world, uint32_t n)
{
    struct tool_memplan_settings s = settings_of(world);
    static const uint32_t slots[][2] = {{2, 2}, {1, 1}, {3, 2}, {2, 1}};
    s.plan.gather_slots = slots[n % 4][0];
    s.plan.gradient_slots = slots[n % 4][1];
    s.plan.micro_batches = n / 4 % 2 ? 3 : 1;
    s.plan.recompute = n / 8 % 4 == 0 ? EO_RECOMPUTE_NONE : n / 8 % 4 == 1 ? EO_RECOMPUTE_CHEAP : EO_RECOMPUTE_BLOCKS;
    s.plan.recompute_blocks = n / 8 % 4 == 2 ? 1 : n / 8 % 4 == 3 ? UINT32_MAX : 0;
    s.plan.dtype = n / 3 % 2 ? EO_DTYPE_FP32 : EO_DTYPE_BF16;
    s.plan.reduce_dtype = s.plan.dtype == EO_DTYPE_BF16 && n / 5 % 2 ? EO_DTYPE_BF16 : EO_DTYPE_FP32;
    s.plan.float8_gather = s.plan.dtype == EO_DTYPE_BF16 && world > 1 && n % 5 < 3;
    s.plan.head_chunks = 1 + n % 3;
    s.plan.half_blocks = n / 7 % 2;
    s.plan.batch = 1 + n % 2;
    return s;
}

/* Goal: what memplan plans is what the runtime would, row by row. Method: the same model and plan made by the public API
 * alone, over a grid of settings, worlds of 1 to 8. That the runtime reserves it is seen by tests/programs/memplan_runs.sh. */
Test(memplan, rows_are_those_of_the_runtimes_plan, .timeout = 300)
{
    static const char *const models[] = {"tiny", "llama-tiny", "base", "gpt2", "qwen2-tiny", "qwen3-tiny"};
    uint32_t compared = 0;
    for (uint32_t m = 0; m < sizeof(models) / sizeof(models[0]); m++) {
        load(models[m]);
        eo_transformer_config shape;
        cr_assert_eq(eo_transformer_preset(models[m], &shape), EO_OK);
        for (uint32_t n = 0; n < 32; n++) {
            const struct tool_memplan_settings s = setting(1 + n % 8, n + 5 * m);
            struct tool_memplan memplan;
            eo_transformer *transformer;
            eo_plan *other;
            plan(&memplan, &s);
            const uint32_t blocks = s.plan.recompute_blocks < shape.layer_count ? s.plan.recompute_blocks : shape.layer_count;
            cr_assert_eq(eo_transformer_create(&transformer, eo_transformer_params(
                .config = shape, .batch = s.plan.batch, .seq = s.plan.seq, .recompute = s.plan.recompute,
                .recompute_blocks = blocks, .head_chunks = s.plan.head_chunks, .half_blocks = s.plan.half_blocks,
                .dtype = s.plan.dtype, .reduce_dtype = s.plan.reduce_dtype)), EO_OK);
            cr_assert_eq(eo_plan_create(&other, eo_transformer_model(transformer), eo_plan_params(
                .rank_count = s.plan.ranks, .micro_batches = s.plan.micro_batches, .gather_slots = s.plan.gather_slots,
                .gradient_slots = s.plan.gradient_slots, .dtype = s.plan.dtype, .reduce_dtype = s.plan.reduce_dtype,
                .float8_gather = s.plan.float8_gather, .norms_beside = memplan.summary.params.norms_beside)), EO_OK);
            eo_plan_summary summary;
            eo_plan_get_summary(other, &summary);
            cr_assert_eq(summary.fingerprint, memplan.summary.fingerprint, "%s, setting %u", models[m], n);
            cr_assert_eq(summary.arena_bytes, memplan.summary.arena_bytes);
            for (uint32_t r = 0; r < summary.row_count; r++, compared++) {
                eo_plan_row a, b;
                cr_assert_eq(eo_plan_get_row(other, r, &a), EO_OK);
                cr_assert_eq(eo_plan_get_row(memplan.plan, r, &b), EO_OK);
                cr_assert_str_eq(a.name, b.name);
                cr_assert(a.bytes == b.bytes && a.offset == b.offset && a.space == b.space);
            }
            eo_plan_destroy(&other);
            eo_transformer_destroy(&transformer);
            tool_memplan_fini(&memplan);
        }
    }
    cr_assert_gt(compared, 5000);
}

static const eo_plan_row *find_row(const eo_plan *other, uint32_t count, const eo_plan_row *like, eo_plan_row *row)
{
    for (uint32_t r = 0; r < count; r++)
        if (eo_plan_get_row(other, r, row) >= 0 && strcmp(row->name, like->name) == 0 && row->category == like->category)
            return row;
    return NULL;
}

/* Goal: families without kernels are described as the layers describe theirs. Method: a Llama and its like are described by memplan,
 * and their rows are held against those of the layers' own: all of them, by name, size and lifetime. */
Test(memplan, a_llama_described_here_has_the_rows_of_the_layers_llama, .timeout = 120)
{
    const eo_log silence = {0};
    static const char *const models[] = {"llama-tiny", "qwen2-tiny", "llama-1b", "qwen3-tiny", "llama-small"};
    const char *kernels[] = {"cpu", "cuda"};
    for (uint32_t n = 0; n < 60; n++) {
        struct tool_memplan_settings s = setting(1 + n % 8, n);
        struct tool_memplan memplan;
        s.plan.device = kernels[n % 2];
        if (strcmp(s.plan.device, "cuda") == 0 && s.plan.dtype != s.plan.reduce_dtype)
            s.plan.reduce_dtype = EO_DTYPE_FP32;
        load(models[n % 5]);
        plan(&memplan, &s);
        eo_model *described;
        eo_plan *other;
        cr_assert_eq(tool_memplan_describe(&described, &config, &memplan.settings.plan, &memplan.settings.slice, &silence), EO_OK);
        cr_assert_eq(eo_plan_create(&other, described, eo_plan_params(
            .rank_count = s.plan.ranks, .micro_batches = s.plan.micro_batches, .gather_slots = s.plan.gather_slots,
            .gradient_slots = s.plan.gradient_slots, .dtype = s.plan.dtype, .reduce_dtype = s.plan.reduce_dtype,
            .float8_gather = s.plan.float8_gather, .norms_beside = memplan.summary.params.norms_beside)), EO_OK);
        eo_plan_summary summary;
        eo_plan_get_summary(other, &summary);
        cr_assert_eq(summary.row_count, memplan.summary.row_count, "%s: %u rows, the layers have %u", models[n % 5],
                     summary.row_count, memplan.summary.row_count);
        cr_assert_eq(summary.lower_bound_bytes, memplan.summary.lower_bound_bytes);
        for (uint32_t r = 0; r < memplan.summary.row_count; r++) {
            eo_plan_row want, row;
            cr_assert_eq(eo_plan_get_row(memplan.plan, r, &want), EO_OK);
            cr_assert(find_row(other, summary.row_count, &want, &row), "no row %s", want.name);
            cr_assert_eq(row.bytes, want.bytes, "%s of %s (%s): %llu, the layers have %llu", want.name, models[n % 5],
                         s.plan.device, (unsigned long long)row.bytes, (unsigned long long)want.bytes);
            cr_assert_str_eq(row.first, want.first, "%s", want.name);
            cr_assert_str_eq(row.last, want.last, "%s", want.name);
        }
        eo_plan_destroy(&other);
        eo_model_destroy(&described);
        tool_memplan_fini(&memplan);
    }
}

static bool together(const struct tool_live_span *a, const struct tool_live_span *b)
{
    const bool wraps_a = a->first > a->last, wraps_b = b->first > b->last;
    if (wraps_a && wraps_b)
        return true;
    if (wraps_a)
        return b->last >= a->first || b->first <= a->last;
    if (wraps_b)
        return a->last >= b->first || a->first <= b->last;
    return a->first <= b->last && b->first <= a->last;
}

/* No two rows that are live at one time share a byte. */
static void check_no_overlap(const struct tool_memplan *memplan, const struct tool_lifetimes *t)
{
    const uint32_t rows = memplan->summary.row_count;
    const uint32_t count = t->span_count + rows;
    struct tool_live_span *spans = calloc(count, sizeof(*spans));
    uint64_t *bytes = calloc(rows, sizeof(*bytes));
    uint32_t used = t->span_count;
    memcpy(spans, t->spans, t->span_count * sizeof(*spans));
    for (uint32_t r = 0; r < rows; r++) {
        eo_plan_row row;
        cr_assert_eq(eo_plan_get_row(memplan->plan, r, &row), EO_OK);
        bytes[r] = row.bytes;
        if (row.always_live)
            spans[used++] = (struct tool_live_span){r, 0, t->point_count - 1};
    }
    for (uint32_t i = 0; i < used; i++)
        for (uint32_t k = i + 1; k < used; k++) {
            const uint32_t a = spans[i].row, b = spans[k].row;
            if (a != b && t->address[a] < t->address[b] + bytes[b] && t->address[b] < t->address[a] + bytes[a])
                cr_assert_not(together(&spans[i], &spans[k]), "rows %u and %u share addresses", a, b);
        }
    free(spans);
    free(bytes);
}

/* Goal: lifetimes worked out from the public list alone come to the planner's lower bound, and no two rows that are live
 * together overlap. Method: grid of settings; models that are run and models that are described. */
Test(memplan, lifetimes_made_again_come_to_the_lower_bound, .timeout = 300)
{
    static const char *const models[] = {"tiny", "llama-tiny", "gpt2", "qwen2.5-0.5b", "qwen3-0.6b", "mixtral-8x7b"};
    for (uint32_t m = 0; m < 6; m++) {
        load(models[m]);
        for (uint32_t n = 0; n < (m < 3 ? 32 : 8); n++) {
            const struct tool_memplan_settings s = setting(n % 5 == 4 ? 64 : 1 + n % 8, 3 * n + m);
            struct tool_memplan memplan;
            struct tool_lifetimes t;
            plan(&memplan, &s);
            cr_assert_eq(memplan.summary.element_count, tool_model_config_parameters(&config), "%s", models[m]);
            cr_assert_eq(tool_lifetimes_create(&t, &memplan), EO_OK);
            cr_assert_eq(t.peak_bytes, memplan.summary.lower_bound_bytes, "%s, setting %u: %llu, and the plan says %llu",
                         models[m], n, (unsigned long long)t.peak_bytes,
                         (unsigned long long)memplan.summary.lower_bound_bytes);
            check_no_overlap(&memplan, &t);
            tool_lifetimes_fini(&t);
            tool_memplan_fini(&memplan);
        }
    }
}

#define SMALL                                                                                                      \
    "\"num_hidden_layers\":4,\"hidden_size\":48,\"num_attention_heads\":6,\"num_key_value_heads\":2,\"head_dim\":10,"         \
    "\"intermediate_size\":40,\"vocab_size\":300,\"num_experts_per_tok\":2,"
#define SMALL_EXPERTS "\"moe_intermediate_size\":24,\"shared_expert_intermediate_size\":32,\"num_experts\":5"

/* Goal: what a block of a described family keeps is what its list of rows says, in every granularity and recompute; the model
 * has its parameters, and lifetimes made again come to the bound. Method: a small model of each family over a grid. */
Test(memplan, described_families_keep_what_their_lists_say, .timeout = 300)
{
    static const char *const texts[] = {
        "\"gemma2\"," SMALL "\"sliding_window\":32", "\"gemma3_text\"," SMALL "\"attention_bias\":true",
        "\"gpt_oss\"," SMALL "\"num_local_experts\":5", "\"olmo2\"," SMALL "\"tie_word_embeddings\":true",
        "\"deepseek_v3\"," SMALL "\"moe_intermediate_size\":24,\"n_routed_experts\":5,\"first_k_dense_replace\":1,"
        "\"q_lora_rank\":20,\"kv_lora_rank\":12,\"qk_nope_head_dim\":8,\"qk_rope_head_dim\":4,\"v_head_dim\":6",
        "\"qwen2_moe\"," SMALL SMALL_EXPERTS ",\"mlp_only_layers\":[1]",
        "\"qwen3_next\"," SMALL SMALL_EXPERTS ",\"linear_num_key_heads\":2,\"linear_num_value_heads\":4,"
        "\"linear_key_head_dim\":8,\"linear_value_head_dim\":6"};
    for (uint32_t n = 0; n < 7 * 12; n++) {
        char text[640];
        snprintf(text, sizeof(text), "{\"model_type\":%s}", texts[n % 7]);
        cr_assert_geq(tool_model_config_parse(&config, "small", text, strlen(text), NULL, 0, &problem), 0, "%s", problem.text);
        const struct tool_memplan_settings s = setting(1 + n % 3, 5 * n);
        struct tool_memplan memplan;
        struct tool_lifetimes t;
        plan(&memplan, &s);
        cr_assert(!memplan.runs && memplan.summary.element_count == tool_model_config_parameters(&config), "%s", text);
        cr_assert_eq(tool_lifetimes_create(&t, &memplan), EO_OK);
        cr_assert_eq(t.peak_bytes, memplan.summary.lower_bound_bytes, "%s, setting %u", text, n);
        check_no_overlap(&memplan, &t);
        tool_lifetimes_fini(&t);
        uint32_t found = 0, wanted = 0;
        for (uint32_t i = 0; i < config.layer_count; i++) {
            struct tool_block_row rows[TOOL_BLOCK_ROWS_MAX];
            const bool again = s.plan.recompute == EO_RECOMPUTE_BLOCKS && i < s.plan.recompute_blocks;
            const uint32_t count = tool_block_rows(&config, i, !again && s.plan.recompute == EO_RECOMPUTE_CHEAP, rows);
            wanted += count;
            for (uint32_t r = 0; r < memplan.summary.row_count * count; r++) {
                const struct tool_block_row *row = &rows[r % count];
                char name[EO_NAME_MAX];
                eo_plan_row planned;
                snprintf(name, sizeof(name), "block.%u.%s.%s", i, row->in_mlp ? "mlp" : "attention", row->name);
                if (eo_plan_get_row(memplan.plan, r / count, &planned) < 0 || strcmp(planned.name, name) != 0)
                    continue;
                const bool scratch = again || (row->cheap && s.plan.recompute == EO_RECOMPUTE_CHEAP);
                cr_assert_eq(planned.bytes, s.plan.batch * 128 * row->width * (row->bytes ? row->bytes : eo_dtype_bytes(s.plan.dtype)),
                             "%s of %s", name, text);
                cr_assert_eq(planned.category, scratch ? EO_CATEGORY_SCRATCH : EO_CATEGORY_ACTIVATION, "%s of %s", name, text);
                found++;
            }
        }
        cr_assert_eq(found, wanted, "%s: %u rows of %u", text, found, wanted);
        tool_memplan_fini(&memplan);
    }
}

static uint64_t next_random(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

static uint64_t bound(const struct tool_memplan_settings *s)
{
    struct tool_memplan memplan;
    plan(&memplan, s);
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
        struct tool_memplan memplan;
        plan(&memplan, &s);
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
        plan(&plain, &s);
        s.plan.float8_gather = true;
        plan(&float8, &s);
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
            struct tool_memplan memplan;
            plan(&memplan, &s);
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

/* Goal: a step too long to be shown has the phases of one with three micro-batches. Method: lengths that are still shown as
 * they are, against three, with every recompute and two strategies: the same sums, and the same bound. */
Test(memplan, micro_batches_between_the_first_and_the_last_are_alike)
{
    static const eo_strategy strategies[] = {EO_STRATEGY_ZERO3, EO_STRATEGY_ZERO2};
    static const eo_recompute recomputes[] = {EO_RECOMPUTE_NONE, EO_RECOMPUTE_CHEAP, EO_RECOMPUTE_BLOCKS};
    load("llama-tiny");
    for (int n = 0; n < 6; n++) {
        struct tool_memplan_settings s = settings_of(4);
        struct tool_memplan many, three;
        struct tool_lifetimes a, b;
        s.plan.strategy = strategies[n % 2];
        s.plan.recompute = recomputes[n / 2];
        s.plan.recompute_blocks = 2;
        s.plan.micro_batches = 40;
        plan(&many, &s);
        s.plan.micro_batches = TOOL_LIFETIMES_MICRO_BATCHES;
        plan(&three, &s);
        cr_assert_eq(tool_lifetimes_create(&a, &many), EO_OK);
        cr_assert_eq(tool_lifetimes_create(&b, &three), EO_OK);
        cr_assert_eq(many.summary.lower_bound_bytes, three.summary.lower_bound_bytes);
        cr_assert_eq(a.forward_end.bytes, b.forward_end.bytes);
        for (int p = 0; p < TOOL_PHASE_COUNT; p++) {
            cr_assert_eq(a.phases[p].bytes, b.phases[p].bytes, "%s, setting %d", tool_phase_name((enum tool_phase)p), n);
            cr_assert_eq(memcmp(a.phases[p].category_bytes, b.phases[p].category_bytes, sizeof(a.phases[p].category_bytes)), 0);
        }
        tool_lifetimes_fini(&a);
        tool_lifetimes_fini(&b);
        tool_memplan_fini(&many);
        tool_memplan_fini(&three);
    }
}

/* Goal: an arena far above its bound is explained by the two rows beside its largest hole. Method: no such plan is known, so
 * the bound of one with a hole is told to be smaller than it is. */
Test(memplan, a_report_names_the_pair_that_costs_more_than_5_percent)
{
    load("llama-3-8b");
    struct tool_memplan_settings s = settings_of(8);
    s.plan.seq = 8192;
    struct tool_memplan memplan;
    struct tool_lifetimes lifetimes;
    plan(&memplan, &s);
    cr_assert_gt(memplan.summary.arena_bytes, memplan.summary.lower_bound_bytes);
    cr_assert_eq(tool_lifetimes_create(&lifetimes, &memplan), EO_OK);
    for (int told = 0; told < 2; told++) {
        char *text = NULL;
        size_t bytes = 0;
        FILE *out = open_memstream(&text, &bytes);
        tool_report_plan(out,
                         &(struct tool_memplan_view){
                             .config = &config, .memplan = &memplan, .shown = &memplan, .lifetimes = &lifetimes, .asked = &s});
        fclose(out);
        const char *pair = strstr(text, "lies between");
        cr_assert_eq(pair != NULL, told, "%s", text);
        free(text);
        memplan.summary.lower_bound_bytes = memplan.summary.arena_bytes / 12 * 10;
    }
    tool_lifetimes_fini(&lifetimes);
    tool_memplan_fini(&memplan);
}

Test(memplan, published_figures_agree)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *out = open_memstream(&text, &bytes);
    const uint32_t wrong = tool_published_print(out);
    fclose(out);
    cr_assert_eq(wrong, 0, "%s", text);
    uint32_t lines = 0;
    for (const char *c = text; *c; c++)
        lines += *c == '\n';
    cr_assert_geq(lines, 2 + 7 + 3 + 3 + 4 + 2 * 16);
    free(text);
}

/* Terms of two rows of the sixteen: shards, buffers, activations, head, scratch. */
Test(memplan, yafsdp_rules_give_its_terms)
{
    load("llama-2-7b");
    struct tool_yafsdp_estimate e = tool_yafsdp_estimate(&config, 64, 2048, UINT64_MAX);
    cr_assert_eq(e.unit_elements, 202375168);
    cr_assert_eq(e.norm_elements, 266240);
    cr_assert_eq(e.shard_bytes, 1895179392);
    cr_assert_eq(e.buffer_bytes, 2429566976);
    cr_assert_eq(e.activations_full_bytes, 8632401920);
    cr_assert_eq(e.activations_cheap_bytes, 6115819520);
    cr_assert_eq(e.head_bytes, 164626432);
    cr_assert_eq(e.scratch_bytes, 185597952);
    load("llama-2-70b");
    e = tool_yafsdp_estimate(&config, 256, 4096, (uint64_t)(77.15 * 1073741824.0));
    cr_assert_eq(e.least_recompute_full, 24);
    cr_assert_eq(e.least_recompute_cheap, 0);
}

/* Goal: an answer fits, its neighbour does not. Method: each search, then plans of both. */
Test(memplan, answers_of_searches_fit_and_their_neighbours_do_not, .timeout = 300)
{
    static const enum tool_fit_kind kinds[] = {TOOL_FIT_MAX_BATCH, TOOL_FIT_MAX_SEQ, TOOL_FIT_MIN_GPUS, TOOL_FIT_MIN_RECOMPUTE,
                                               TOOL_FIT_MAX_LAYERS};
    for (int k = 0; k < 5; k++) {
        load("gpt2");
        struct tool_memplan_settings s = settings_of(4);
        s.plan.seq = 512;
        s.plan.batch = kinds[k] == TOOL_FIT_MIN_RECOMPUTE ? 6 : 2;
        s.capacity_bytes = kinds[k] == TOOL_FIT_MAX_SEQ ? 1100000000 : 1300000000;
        struct tool_fit fit;
        cr_assert_geq(tool_fit_search(&fit, kinds[k], &config, &s, NULL, &problem), 0, "%s", problem.text);
        cr_assert(fit.found && fit.neighbour.known, "%s", tool_fit_name(kinds[k]));
        struct tool_memplan memplan;
        plan(&memplan, &s);
        cr_assert(memplan.fits && memplan.total_bytes == fit.answer.total_bytes, "%s", tool_fit_name(kinds[k]));
        tool_memplan_fini(&memplan);
        cr_assert_gt(fit.neighbour.total_bytes, s.capacity_bytes, "%s", tool_fit_name(kinds[k]));
        if (kinds[k] != TOOL_FIT_MIN_GPUS && kinds[k] != TOOL_FIT_MIN_RECOMPUTE)
            cr_assert_eq(fit.neighbour.value, fit.answer.value + 1, "%s", tool_fit_name(kinds[k]));
    }
}

/*
 * Every strategy is planned by the planner that executes it, and held against what memory must be.
 * Method: rows and bytes of tool_memplan_create against eo_plan_create with the same settings; the largest sum of live
 * bytes, made again from the list, is the lower bound; the search takes the strategy that receives least and fits, and
 * its neighbour does not fit.
 */
Test(memplan, strategies_are_planned_as_they_run)
{
    load("tiny");
    for (int k = 0; k < EO_STRATEGY_COUNT; k++) {
        for (uint32_t batches = 1; batches <= 2; batches++) {
            struct tool_memplan_settings s = settings_of(4);
            struct tool_memplan memplan;
            struct tool_lifetimes lifetimes;
            eo_plan *plan;
            eo_plan_summary summary;
            s.plan.strategy = (eo_strategy)k;
            s.plan.shard_group = 2;
            s.plan.micro_batches = batches;
            cr_assert_eq(tool_memplan_create(&memplan, &config, &s, &problem), EO_OK, "%s", problem.text);
            cr_assert_eq(eo_plan_create(&plan, tool_memplan_model(&memplan),
                                        &(eo_plan_params){.rank_count = 4,
                                                          .strategy = s.plan.strategy,
                                                          .shard_group = k == EO_STRATEGY_HSDP ? 2 : 0,
                                                          .dtype = s.plan.dtype,
                                                          .reduce_dtype = s.plan.reduce_dtype,
                                                          .micro_batches = batches,
                                                          .gather_slots = s.plan.gather_slots,
                                                          .gradient_slots = s.plan.gradient_slots}),
                         EO_OK);
            eo_plan_get_summary(plan, &summary);
            cr_assert_eq(summary.fingerprint, memplan.summary.fingerprint);
            cr_assert_eq(tool_lifetimes_create(&lifetimes, &memplan), EO_OK);
            cr_assert_eq(lifetimes.peak_bytes, summary.lower_bound_bytes, "%s", eo_strategy_name(s.plan.strategy));
            tool_lifetimes_fini(&lifetimes);
            eo_plan_destroy(&plan);
            tool_memplan_fini(&memplan);
        }
    }
}

Test(memplan, the_best_strategy_receives_least_of_those_that_fit)
{
    struct tool_strategy_column columns[TOOL_STRATEGY_COLUMNS];
    load("gpt2");
    struct tool_memplan_settings s = settings_of(16);
    const uint32_t count = tool_strategy_columns(columns, &config, &s);
    cr_assert_eq(count, TOOL_STRATEGY_COLUMNS);
    tool_strategy_sort(columns, count);
    uint32_t refused = 0;
    for (uint32_t c = 0; c < count; c++) {
        struct tool_fit fit;
        struct tool_memplan_settings t = s;
        t.capacity_bytes = columns[c].total_bytes;
        cr_assert_eq(tool_fit_search(&fit, TOOL_FIT_BEST_STRATEGY, &config, &t, NULL, &problem), EO_OK);
        cr_assert(fit.found && fit.answer.total_bytes <= t.capacity_bytes);
        uint32_t first = 0;
        while (columns[first].total_bytes > t.capacity_bytes)
            first++;
        cr_assert_eq(t.plan.strategy, columns[first].strategy, "%s", columns[first].name);
        cr_assert_eq(fit.neighbour.known, first > 0);
        refused += fit.neighbour.known && fit.neighbour.total_bytes > t.capacity_bytes;
    }
    cr_assert_gt(refused, 0);
    for (uint32_t c = 0; c + 1 < count; c++)
        cr_assert_leq(columns[c].between_bytes, columns[c + 1].between_bytes);
}

/* Goal: the parts of the answer add up to the bytes of a GPU, whatever is planned. Method: grid of settings and strategies; the
 * parts against the total, which is made of the plan's own spaces. */
Test(memplan, the_parts_at_the_peak_add_up_to_the_total)
{
    static const char *const models[] = {"tiny", "llama-tiny", "qwen3-tiny", "mixtral-8x7b"};
    static const char *const kernels[] = {"cpu", "cuda"};
    for (uint32_t n = 0; n < 160; n++) {
        struct tool_memplan_settings s = setting(8, n);
        struct tool_memplan memplan;
        uint64_t parts[TOOL_PART_COUNT], sum = 0;
        load(models[n % 4]);
        s.plan.strategy = (eo_strategy)(n / 4 % EO_STRATEGY_COUNT);
        s.plan.shard_group = s.plan.strategy == EO_STRATEGY_HSDP ? 4 : 0;
        s.plan.float8_gather = s.plan.float8_gather && s.plan.strategy != EO_STRATEGY_DDP; /* gathers nothing */
        s.plan.device = kernels[n / 2 % 2];
        if (n / 2 % 2)
            s.plan.reduce_dtype = EO_DTYPE_FP32;
        plan(&memplan, &s);
        tool_parts_of(&memplan, parts);
        for (int p = 0; p < TOOL_PART_COUNT; p++) {
            cr_assert_lt(parts[p], memplan.total_bytes + 1, "%s of setting %u", tool_part_name((enum tool_part)p), n);
            sum += parts[p];
        }
        cr_assert_eq(sum, memplan.total_bytes, "setting %u: %llu, and the total is %llu", n, (unsigned long long)sum,
                     (unsigned long long)memplan.total_bytes);
        tool_memplan_fini(&memplan);
    }
}

/* The best plan of all: every strategy, group, recompute, batch and granularity is tried. False: none fits. */
static bool try_all(const struct tool_memplan_settings *given, const struct tool_best_kept *kept, uint32_t batch_most,
                    struct tool_best_cost *best)
{
    static const struct {
        eo_strategy strategy;
        uint32_t group;
    } strategies[] = {{EO_STRATEGY_DDP, 0},  {EO_STRATEGY_ZERO1, 0}, {EO_STRATEGY_ZERO2, 0}, {EO_STRATEGY_ZERO3, 0},
                      {EO_STRATEGY_HSDP, 2}, {EO_STRATEGY_HSDP, 4},  {EO_STRATEGY_HSDP, 8}};
    enum { STRATEGIES = sizeof(strategies) / sizeof(strategies[0]) };
    bool found = false;
    uint32_t largest = 0;
    for (uint32_t i = 0; i < 2 * STRATEGIES * (config.layer_count + 2) * batch_most; i++) {
        struct tool_memplan_settings s = *given;
        const uint32_t strategy = i % STRATEGIES, rest = i / STRATEGIES / 2;
        const uint32_t again = rest % (config.layer_count + 2), batch = 1 + rest / (config.layer_count + 2);
        struct tool_memplan memplan;
        if ((kept->batch && batch != given->plan.batch) ||
            (kept->strategy && strategies[strategy].strategy != given->plan.strategy))
            continue;
        if (!kept->batch && batch > largest + 3)
            break; /* larger ones take more */
        s.plan.strategy = strategies[strategy].strategy;
        s.plan.shard_group = strategies[strategy].group;
        s.plan.half_blocks = i / STRATEGIES % 2;
        s.plan.recompute = again == 0 ? EO_RECOMPUTE_NONE : again == 1 ? EO_RECOMPUTE_CHEAP : EO_RECOMPUTE_BLOCKS;
        s.plan.recompute_blocks = again < 2 ? 0 : again - 1;
        s.plan.batch = batch;
        if (tool_memplan_create(&memplan, &config, &s, &problem) < 0)
            continue;
        const struct tool_best_cost cost = tool_best_cost_of(&memplan, &config, kept->clock);
        if (memplan.fits && (!found || tool_best_compare(&cost, best) < 0))
            *best = cost;
        found = found || memplan.fits;
        largest = memplan.fits && batch > largest ? batch : largest;
        tool_memplan_fini(&memplan);
    }
    cr_assert(kept->batch || largest < batch_most, "a batch of %u fits: not all were tried", largest);
    return found;
}

/* Goal: --fit best finds what trying everything finds. Method: models of four blocks or fewer, so that quarters of the blocks
 * are all of them, and wide enough for bytes to count; by the rule and by the clock; against capacities from where nothing fits, with batch or strategy
 * given, too. The answers must differ, or nothing was weighed. */
Test(memplan, the_best_is_what_trying_everything_finds, .timeout = 300)
{
    static const char *const texts[] = {
        "{\"model_type\":\"gpt2\",\"n_layer\":2,\"n_embd\":1024,\"n_head\":16,\"vocab_size\":2000}",
        "{\"model_type\":\"llama\",\"num_hidden_layers\":4,\"hidden_size\":512,\"num_attention_heads\":8,"
        "\"num_key_value_heads\":8,\"intermediate_size\":1536,\"vocab_size\":4000}"};
    static const struct tool_estimate_request clock = {
        .system = TOOL_SYSTEM_EVENODD, .strategy_given = true, .device = "A100-80GB",
        .layout = {.tensor = 1, .pipeline = 1, .context = 1, .expert = 1, .virtual_stages = 1}};
    uint32_t found = 0, not_found = 0, strategies = 0, recomputes = 0;
    for (uint32_t n = 0; n < 16; n++) {
        const struct tool_best_kept kept = {.batch = n % 6 == 4, .strategy = n % 6 == 5, .clock = n < 8 ? NULL : &clock};
        struct tool_memplan_settings s = settings_of(16);
        struct tool_best_cost best = {0}, cost;
        struct tool_memplan memplan;
        struct tool_fit fit;
        cr_assert_eq(tool_model_config_parse(&config, "a text", texts[n % 2], strlen(texts[n % 2]), NULL, 0, &problem), EO_OK);
        s.plan.seq = 256;
        s.plan.head_chunks = 1;
        s.plan.strategy = EO_STRATEGY_ZERO2;
        s.plan.batch = 2;
        s.plan.micro_batches = n % 4 >= 2 ? 8 : 1; /* what is reduced for each: hsdp's own strength */
        s.outside = (struct tool_outside){.given = true};
        plan(&memplan, &s);
        s.capacity_bytes = memplan.total_bytes * (4 + n % 8) / 10;
        s.headroom_bytes = n % 3 ? 0 : s.capacity_bytes / 20;
        tool_memplan_fini(&memplan);
        const bool fits = try_all(&s, &kept, 20, &best);
        cr_assert_eq(tool_fit_search(&fit, TOOL_FIT_BEST, &config, &s, &kept, &problem), EO_OK);
        cr_assert_eq(fit.found, fits, "capacity %u", n);
        *(fits ? &found : &not_found) += 1;
        if (!fits)
            continue;
        plan(&memplan, &s);
        cost = tool_best_cost_of(&memplan, &config, kept.clock);
        cr_assert(memplan.fits && tool_best_compare(&cost, &best) == 0,
                  "capacity %u: %s takes %g ns a token in batches of %u, the best %g in batches of %u", n, fit.note,
                  cost.token_ns, cost.batch, best.token_ns, best.batch);
        strategies |= 1u << s.plan.strategy;
        recomputes |= 1u << s.plan.recompute;
        tool_memplan_fini(&memplan);
    }
    cr_assert(found >= 4 && not_found > 0, "%u found, %u not", found, not_found);
    cr_assert(strategies & 1u << EO_STRATEGY_HSDP && (strategies & (strategies - 1)) && (recomputes & (recomputes - 1)),
              "one kind of answers: strategies %x, recomputes %x", strategies, recomputes);
}

/* Goal: a field that follows another does so where nobody has fixed it; a key that does not exist is refused with the nearest.
 * Method: presets of the layers, published shapes and texts, with sets. */
Test(memplan, fields_follow_those_that_are_set)
{
    static const struct {
        const char *model, *sets[2];
        uint32_t mlp_width, kv_heads, head_size, fixed;
    } cases[] = {
        {"gpt2", {"n_embd=1024", "n_head=16"}, 4096, 16, 64, 0},
        {"gpt2", {"n_embd=1024", "n_inner=3000"}, 3000, 0, 0, 0},
        {"{\"model_type\":\"gpt2\",\"n_layer\":2,\"n_embd\":64,\"n_head\":4,\"n_inner\":256,\"vocab_size\":99}",
         {"n_embd=128"},
         256,
         4,
         32,
         1},
        {"{\"model_type\":\"gpt2\",\"n_layer\":2,\"n_embd\":64,\"n_head\":4,\"n_inner\":256,\"vocab_size\":99}",
         {"n_embd=128", "n_inner=null"},
         512,
         4,
         32,
         0},
        {"llama-2-7b", {"num_attention_heads=64"}, 11008, 32, 64, 1},
        {"llama-2-7b", {"num_attention_heads=64", "num_key_value_heads=null"}, 11008, 64, 64, 0},
        {"llama-3-8b", {"hidden_size=8192"}, 14336, 8, 256, 0},
        {"llama-3.2-1b", {"hidden_size=4096"}, 8192, 8, 64, 1},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const char *model = cases[i].model;
        const uint32_t count = cases[i].sets[1] ? 2 : 1;
        const eo_status status =
            model[0] == '{' ? tool_model_config_parse(&config, "a text", model, strlen(model), cases[i].sets, count, &problem)
                            : tool_model_config_load(&config, model, cases[i].sets, count, &problem);
        if (i == 1) { /* 12 heads do not divide 1024 */
            cr_assert_eq(status, EO_ERR_INVALID);
            continue;
        }
        cr_assert_eq(status, EO_OK, "%s", problem.text);
        cr_assert(config.mlp_width == cases[i].mlp_width && config.kv_head_count == cases[i].kv_heads &&
                      config.head_size == cases[i].head_size && config.fixed_count == cases[i].fixed,
                  "case %zu: MLP %u, %u heads of keys, heads of %u, %u fixed", i, config.mlp_width, config.kv_head_count,
                  config.head_size, config.fixed_count);
    }
    static const char *const wrong[][3] = {{"gpt2", "n_layers=3", "did you mean n_layer?"},
                                           {"llama-3-8b", "n_layer=3", "did you mean num_hidden_layers?"},
                                           {"gpt2", "hidden_size=64", "did you mean n_embd?"},
                                           {"llama-3-8b", "num_key_values_heads=3", "did you mean num_key_value_heads?"},
                                           {"mixtral-8x7b", "num_experts_per_token=1", "did you mean num_experts_per_tok?"}};
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        cr_assert_eq(tool_model_config_load(&config, wrong[i][0], &wrong[i][1], 1, &problem), EO_ERR_INVALID);
        cr_assert(strstr(problem.text, wrong[i][2]), "%s", problem.text);
    }
}

/* Goal: figures of others follow their rules. Method: DeepSpeed's of Mixtral, whose module of experts is one leaf; Megatron's
 * activations by hand, with and without recompute. */
Test(memplan, figures_of_others_follow_their_rules)
{
    load("mixtral-8x7b");
    const struct tool_deepspeed_estimate d = tool_deepspeed_estimate(&config, 64);
    cr_assert_eq(d.largest_elements, 8u * 3 * 14336 * 4096);
    cr_assert_float_eq(tool_gib(d.zero3_bytes), 17.5, 0.05);
    load("llama-2-7b");
    const uint64_t tokens = 2 * 4096, h = 4096, f = 11008, once = 8 * tokens + tokens * h + 4 * tokens * (h + 32000);
    cr_assert_eq(tool_megatron_estimate(&config, 8, 2, 4096, 0).activation_bytes, 32 * tokens * (18 * h + 4 * f) + once);
    cr_assert_eq(tool_megatron_estimate(&config, 8, 2, 4096, 32).activation_bytes, 32 * tokens * 2 * h + once);
    cr_assert_eq(tool_megatron_estimate(&config, 8, 2, 4096, 8).activation_bytes,
                 24 * tokens * (18 * h + 4 * f) + 8 * tokens * 2 * h + once);
}
