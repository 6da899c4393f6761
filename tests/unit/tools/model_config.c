/* SPDX-License-Identifier: MIT
 *
 * config.json: what published models have, and what hostile files come to.
 */
#include <criterion/criterion.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit/tools/chance.h"
#include "tools/interchange/config/model_config.h"

static struct tool_model_config config;
static struct tool_problem problem;

/* Parameters of published models; where their index says a total_size, it is twice this. */
static const struct {
    const char *name;
    uint64_t per_layer, total, active;
} published[] = {
    {"gpt2", 7087872, 124439808, 0},
    {"gpt2-medium", 12596224, 354823168, 0},
    {"gpt2-large", 19677440, 774030080, 0},
    {"gpt2-xl", 30740800, 1557611200, 0},
    {"tinyllama-1.1b", 44044288, 1100048384, 0},
    {"llama-65b", 809517056, 65285660672, 0},
    {"llama-2-7b", 202383360, 6738415616, 0},
    {"llama-2-13b", 317204480, 13015864320, 0},
    {"llama-34b", 692076544, 33743970304, 0},
    {"llama-2-70b", 855654400, 68976648192, 0},
    {"llama-3-8b", 218112000, 8030261248, 0},
    {"llama-3-70b", 855654400, 70553706496, 0},
    {"llama-3.1-405b", 3187703808, 405853388800, 0},
    {"llama-3.2-1b", 60821504, 1235814400, 0},
    {"llama-3.2-3b", 100669440, 3212749824, 0},
    {"mistral-7b", 218112000, 7241732096, 0},
    {"qwen2.5-0.5b", 14912384, 494032768, 0},
    {"qwen2.5-1.5b", 46797824, 1543714304, 0},
    {"qwen2-7b", 233057792, 7615616512, 0},
    {"qwen2-72b", 877684736, 72706203648, 0},
    {"qwen3-0.6b", 15730944, 596049920, 0},
    {"qwen3-8b", 192946432, 8190735360, 0},
    {"qwen3-32b", 487598336, 32762123264, 0},
    {"smollm3-3b", 78123008, 3075098624, 0},
    {"mixtral-8x7b", 1451270144, 46702792704, 12879925248},
    {"qwen3-30b-a3b", 623120640, 30532122624, 3353032704},
    {"qwen3-235b-a22b", 2487755008, 235093634560, 0},
};

/* Goal: families, grouped queries, tied heads, biases, norms of q and k, and experts count as published.
 * Method: a config.json a model, and names of the table beside them. The tensors' shapes must add up to the same. */
Test(model_config, published_models_have_their_parameters)
{
    for (size_t i = 0; i < sizeof(published) / sizeof(published[0]); i++) {
        char path[512];
        snprintf(path, sizeof(path), "%s/tests/fixtures/configs/%s.json", EO_SOURCE_ROOT, published[i].name);
        const char *const sources[] = {path, published[i].name};
        for (int s = 0; s < 2; s++) {
            cr_assert_geq(tool_model_config_load(&config, sources[s], NULL, 0, &problem), 0, "%s", problem.text);
            cr_assert_eq(tool_model_config_layer_parameters(&config, 0), published[i].per_layer, "%s", sources[s]);
            cr_assert_eq(tool_model_config_parameters(&config), published[i].total, "%s", sources[s]);
            if (strncmp(published[i].name, "llama-3.", 8) == 0)
                cr_assert(config.rope_scaling.kind == EO_ROPE_LLAMA3 && config.rope_scaling.original_context == 8192);
            cr_assert(!config.not_computed[0] && !config.unknown[0], "%s: %s, %s", sources[s], config.not_computed,
                      config.unknown);
            if (published[i].active)
                cr_assert_eq(tool_model_config_active_parameters(&config), published[i].active, "%s", sources[s]);
        }
        if (config.layer_count > 48 && config.expert_count)
            continue; /* 36,000 names */
        json_t *tensors = tool_model_config_tensors(&config), *shape;
        uint64_t sum = 0;
        cr_assert_eq(json_object_size(tensors), tool_model_config_tensor_count(&config), "%s", published[i].name);
        const char *name;
        json_object_foreach(tensors, name, shape) {
            uint64_t elements = 1;
            for (size_t d = 0; d < json_array_size(shape); d++)
                elements *= (uint64_t)json_integer_value(json_array_get(shape, d));
            sum += elements;
        }
        json_decref(tensors);
        cr_assert_eq(sum, published[i].total, "%s: tensors add up to %llu", published[i].name, (unsigned long long)sum);
    }
}

static eo_status parse(const char *text)
{
    problem.text[0] = '\0';
    return tool_model_config_parse(&config, "c.json", text, strlen(text), NULL, 0, &problem);
}

#define LLAMA "\"model_type\":\"llama\",\"vocab_size\":100,\"hidden_size\":64,\"num_attention_heads\":4," \
              "\"intermediate_size\":96"

/* Goal: null is a default, whole numbers may be floats, and every default is listed. */
Test(model_config, nulls_and_floats_are_read_as_published_files_mean_them)
{
    cr_assert_geq(parse("{" LLAMA ",\"num_hidden_layers\":3.0,\"head_dim\":null,\"num_key_value_heads\":2.0}"), 0, "%s",
                  problem.text);
    cr_assert_eq(config.layer_count, 3);
    cr_assert_eq(config.head_size, 16);
    cr_assert_eq(config.kv_head_count, 2);
    cr_assert_not(config.tied_head);
    bool listed = false;
    for (uint32_t i = 0; i < config.default_count; i++)
        listed = listed || strncmp(config.defaults[i], "head_dim = 16", 13) == 0;
    cr_assert(listed);
    cr_assert_geq(parse("{\"model_type\":\"gpt2\",\"n_layer\":2,\"n_embd\":64,\"n_head\":4,\"vocab_size\":99}"), 0);
    cr_assert(config.tied_head);
    cr_assert_eq(config.mlp_width, 256);
    cr_assert_lt(parse("{\"model_type\":\"qwen3\",\"vocab_size\":100,\"hidden_size\":64,\"num_attention_heads\":4,"
                       "\"intermediate_size\":96,\"num_hidden_layers\":3}"), 0);
    cr_assert(strstr(problem.text, "num_key_value_heads is 32"), "%s", problem.text);
    cr_assert_geq(parse("{\"model_type\":\"qwen3\",\"vocab_size\":100,\"hidden_size\":64,\"num_attention_heads\":4,"
                        "\"intermediate_size\":96,\"num_hidden_layers\":3,\"num_key_value_heads\":null}"), 0);
    cr_assert(config.kv_head_count == 4 && config.head_size == 128);
    cr_assert_geq(parse("{\"text_config\":{" LLAMA ",\"num_hidden_layers\":3}}"), 0);
    static const char *const sets[] = {"num_hidden_layers=5", "tie_word_embeddings=true"};
    const char *text = "{" LLAMA ",\"num_hidden_layers\":3}";
    cr_assert_geq(tool_model_config_parse(&config, "c", text, strlen(text), sets, 2, &problem), 0);
    cr_assert(config.layer_count == 5 && config.tied_head);
}

/* Goal: the blocks of a SmolLM3 that have no rotary positions are those of its list, else of its interval, else each fourth. */
Test(model_config, blocks_without_rotary_positions_are_found)
{
#define SMOLLM3                                                                                   \
    "\"model_type\":\"smollm3\",\"vocab_size\":100,\"hidden_size\":64,\"num_attention_heads\":4," \
    "\"intermediate_size\":96,\"num_hidden_layers\":4"
    static const struct {
        const char *text;
        uint32_t interval;
    } cases[] = {
        {"{" SMOLLM3 "}", 4},
        {"{" SMOLLM3 ",\"no_rope_layer_interval\":3}", 3},
        {"{" SMOLLM3 ",\"no_rope_layer_interval\":1000000}", 0},
        {"{" SMOLLM3 ",\"no_rope_layer_interval\":5}", 0}, /* than which there are fewer blocks */
        {"{" SMOLLM3 ",\"no_rope_layer_interval\":3,\"no_rope_layers\":[1,0,1,0]}", 2},
        {"{" SMOLLM3 ",\"no_rope_layers\":[1,1,1,1,0]}", 0},
        {"{" SMOLLM3 ",\"no_rope_layers\":[0,0,0,0]}", 1},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        cr_assert_geq(parse(cases[i].text), 0, "%s", problem.text);
        cr_assert(config.unrotated_interval == cases[i].interval && !config.not_computed[0] && !config.window, "%s",
                  cases[i].text);
        cr_assert(config.tied_head && config.kv_head_count == 4 && config.rope_theta == 2e6);
    }
    cr_assert_geq(parse("{" SMOLLM3 ",\"no_rope_layers\":[1,0,0,1]}"), 0);
    cr_assert(strstr(config.not_computed, "no_rope_layers"), "%s", config.not_computed);
    cr_assert_geq(parse("{" SMOLLM3 ",\"no_rope_layers\":[1,0,0,1],\"rope_scaling\":{\"type\":\"yarn\",\"factor\":2.0}}"), 0);
    cr_assert(strstr(config.not_computed, "no_rope_layers") && strstr(config.not_computed, "yarn"), "%s", config.not_computed);
    cr_assert_lt(parse("{" SMOLLM3 ",\"no_rope_layers\":\"1,1,1,0\"}"), 0);
    cr_assert_lt(parse("{" SMOLLM3 ",\"no_rope_layers\":[]}"), 0);
    cr_assert_lt(parse("{" SMOLLM3 ",\"no_rope_layers\":[1,0,1]}"), 0);
    cr_assert(strstr(problem.text, "no_rope_layers is no list of 4 numbers"), "%s", problem.text);
    cr_assert_lt(parse("{" SMOLLM3 ",\"no_rope_layers\":[1,0,2,0]}"), 0);
    cr_assert(strstr(problem.text, "no_rope_layers[2] is neither 0 nor 1"), "%s", problem.text);
    cr_assert_geq(parse("{" SMOLLM3 ",\"use_sliding_window\":true,\"sliding_window\":64}"), 0);
    cr_assert_eq(config.window, 64);
    static const char slides[] =
        ",\"layer_types\":[\"full_attention\",\"sliding_attention\",\"full_attention\",\"full_attention\"],"
        "\"use_sliding_window\":false,\"sliding_window\":8}";
    char text[600];
    snprintf(text, sizeof(text), "{" SMOLLM3 "%s", slides);
    cr_assert_geq(parse(text), 0);
    cr_assert_eq(config.window, 8);
    cr_assert_geq(parse("{" SMOLLM3 ",\"use_sliding_window\":false,\"sliding_window\":8}"), 0);
    cr_assert_eq(config.window, 0);
    cr_assert_geq(parse("{" LLAMA ",\"num_hidden_layers\":4,\"no_rope_layers\":[1,0,1,0]}"), 0);
    cr_assert(strstr(config.not_computed, "no_rope_layers"), "%s", config.not_computed);
}

#define LLAMA_2     "{" LLAMA ",\"num_hidden_layers\":2,"
#define LLAMA3_ROPE "\"rope_type\":\"llama3\",\"factor\":8,\"high_freq_factor\":4.0"

/* Goal: both forms of scaled positions are read. Method: what the transformers library makes of them. */
Test(model_config, scaled_positions_are_read_in_both_forms)
{
    static const struct {
        const char *text;
        double theta;
        eo_rope_scaling scaling;
    } cases[] = {
        {"\"rope_theta\":5e5}", 5e5, {.kind = EO_ROPE_PLAIN}},
        {"\"rope_scaling\":null,\"rope_parameters\":{\"rope_theta\":5e5,\"rope_type\":\"default\"}}", 5e5,
         {.kind = EO_ROPE_PLAIN}},
        {"\"rope_scaling\":{}}", 10000, {.kind = EO_ROPE_PLAIN}},
        {"\"rope_scaling\":{\"type\":\"linear\",\"factor\":2.5}}", 10000, {.kind = EO_ROPE_LINEAR, .factor = 2.5F}},
        {"\"rope_theta\":7,\"rope_scaling\":{" LLAMA3_ROPE ",\"low_freq_factor\":1,"
         "\"original_max_position_embeddings\":512}}", 7, {EO_ROPE_LLAMA3, 8, 1, 4, 512}},
        {"\"rope_parameters\":{" LLAMA3_ROPE ",\"low_freq_factor\":1,\"rope_theta\":7}}", 7, {EO_ROPE_LLAMA3, 8, 1, 4, 2048}},
        {"\"original_max_position_embeddings\":64,\"rope_scaling\":{" LLAMA3_ROPE ",\"low_freq_factor\":1}}", 10000,
         {EO_ROPE_LLAMA3, 8, 1, 4, 64}},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char text[512];
        snprintf(text, sizeof(text), "%s%s", LLAMA_2, cases[i].text);
        const eo_rope_scaling *s = &config.rope_scaling, *wanted = &cases[i].scaling;
        cr_assert_geq(parse(text), 0, "%s", problem.text);
        cr_assert_eq(config.rope_theta, cases[i].theta, "%s", text);
        cr_assert(s->kind == wanted->kind && s->factor == wanted->factor && s->low_freq_factor == wanted->low_freq_factor &&
                  s->high_freq_factor == wanted->high_freq_factor && s->original_context == wanted->original_context,
                  "%s", text);
        cr_assert(!config.not_computed[0] && !config.unknown[0], "%s: %s, %s", text, config.not_computed, config.unknown);
    }
}

/* Goal: windows count where a model of the family would have one. Method: by family, as the transformers library decides. */
Test(model_config, windows_are_those_of_the_family)
{
    static const struct {
        const char *family, *rest;
        uint32_t window;
    } cases[] = {
        {"mistral", "", 4096},
        {"mistral", ",\"sliding_window\":null", 0},
        {"mistral", ",\"sliding_window\":100", 100},
        {"mistral", ",\"sliding_window\":65536", 0}, /* as long as the context */
        {"mixtral", "", 0},
        {"llama", ",\"sliding_window\":100", 0},
        {"qwen2", ",\"sliding_window\":100", 0},
        {"qwen2", ",\"sliding_window\":100,\"use_sliding_window\":true", 0}, /* layers before the 29th have none */
        {"qwen3", ",\"sliding_window\":100,\"use_sliding_window\":true,\"max_window_layers\":2", 100},
        {"qwen3", ",\"sliding_window\":100,\"use_sliding_window\":true,\"max_window_layers\":3", 0},
        {"qwen3", ",\"use_sliding_window\":true,\"max_window_layers\":0", 4096},
        {"qwen3", ",\"sliding_window\":100,\"use_sliding_window\":true,\"layer_types\":[\"full_attention\","
                  "\"sliding_attention\"]", 100},
        {"qwen3", ",\"sliding_window\":100,\"use_sliding_window\":true,\"max_window_layers\":0,"
                  "\"layer_types\":[\"full_attention\"]", 0},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char text[512];
        snprintf(text, sizeof(text), "{\"model_type\":\"%s\",\"vocab_size\":9,\"hidden_size\":64,\"num_attention_heads\":8,"
                 "\"num_key_value_heads\":null,\"intermediate_size\":96,\"num_hidden_layers\":3,"
                 "\"max_position_embeddings\":65536%s}", cases[i].family, cases[i].rest);
        cr_assert_geq(parse(text), 0, "%s", problem.text);
        cr_assert_eq(config.window, cases[i].window, "%s: %u", text, config.window);
        cr_assert_eq(config.kv_head_count, 8, "%s: null means as many as heads, not %u", text, config.kv_head_count);
        cr_assert_str_empty(config.not_computed);
    }
}

/* Goal: families that are planned are read as the transformers library reads them: which blocks have a window or linear attention,
 * which have experts. Method: cases by hand; 1 is a window, 2 linear. */
Test(model_config, blocks_of_planned_families_differ_as_published)
{
    static const struct {
        const char *text, *mixers;
        uint32_t window;
    } cases[] = {
        {"\"gemma2\",\"num_hidden_layers\":5", "10101", 4096},
        {"\"gemma2\",\"num_hidden_layers\":3,\"sliding_window\":null", "000", 0},
        {"\"gemma2\",\"num_hidden_layers\":3,\"max_position_embeddings\":4096", "000", 0}, /* as long as the context */
        {"\"gemma3_text\",\"num_hidden_layers\":8,\"sliding_window\":512", "11111011", 512},
        {"\"gemma3_text\",\"num_hidden_layers\":4,\"sliding_window_pattern\":2", "1010", 4096},
        {"\"gpt_oss\",\"num_hidden_layers\":4", "1010", 128},
        {"\"gpt_oss\",\"num_hidden_layers\":2,\"layer_types\":[\"full_attention\",\"sliding_attention\"]", "01", 128},
        {"\"qwen2_moe\",\"num_hidden_layers\":3", "000", 0},
        {"\"qwen2_moe\",\"num_hidden_layers\":5,\"use_sliding_window\":true,\"max_window_layers\":3", "10100", 4096},
        {"\"qwen3_next\",\"num_hidden_layers\":5", "22202", 0},
        {"\"qwen3_next\",\"num_hidden_layers\":4,\"full_attention_interval\":2", "2020", 0},
        {"\"deepseek_v3\",\"num_hidden_layers\":2", "00", 0},
        {"\"olmo2\",\"num_hidden_layers\":2", "00", 0},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char text[512], mixers[16] = "";
        snprintf(text, sizeof(text), "{\"model_type\":%s}", cases[i].text);
        cr_assert_geq(parse(text), 0, "%s", problem.text);
        for (uint32_t l = 0; l < config.layer_count; l++)
            mixers[l] = (char)('0' + config.mixers[l]);
        cr_assert_str_eq(mixers, cases[i].mixers, "%s: %s", text, mixers);
        cr_assert_eq(config.window, cases[i].window, "%s: %u", text, config.window);
        cr_assert(!config.not_computed[0] && !config.unknown[0], "%s: %s, %s", text, config.not_computed, config.unknown);
    }
    cr_assert_geq(
        parse("{\"model_type\":\"gpt_oss\",\"num_attention_heads\":32,\"num_key_value_heads\":null,\"head_dim\":null}"), 0,
        "%s", problem.text);
    cr_assert(config.kv_head_count == 32 && config.head_size == 2880 / 32);
    cr_assert_geq(parse("{\"model_type\":\"deepseek_v3\",\"first_k_dense_replace\":2,\"n_shared_experts\":3}"), 0);
    cr_assert(!tool_config_has_experts(&config, 1) && tool_config_has_experts(&config, 2));
    cr_assert(config.shared_width == 3 * 2048 && config.head_size == 192 && config.kv_head_count == 128);
    cr_assert_geq(
        parse("{\"model_type\":\"qwen2_moe\",\"num_hidden_layers\":6,\"decoder_sparse_step\":3,\"mlp_only_layers\":[5]}"), 0,
        "%s", problem.text);
    for (uint32_t l = 0; l < 6; l++) /* the third of each three, but the last */
        cr_assert_eq(tool_config_has_experts(&config, l), l == 2, "%u", l);
}

/* Goal: flops of attention's core follow windows, low ranks and linear attention. Method: by hand. */
Test(model_config, cores_of_attention_are_counted_by_block)
{
    const double w = 4096, s = 8192;
    cr_assert_geq(parse("{\"model_type\":\"gemma2\",\"num_hidden_layers\":2}"), 0);
    cr_assert_eq(tool_model_config_core_flops(&config, 8192), 2 * 2048 * s + 4 * 2048 * (w - w * w / (2 * s)));
    cr_assert_eq(tool_model_config_core_flops(&config, 1000), 2 * 2 * 2048 * 1000.0); /* shorter than the window */
    cr_assert_geq(parse("{\"model_type\":\"deepseek_v3\",\"num_hidden_layers\":1}"), 0);
    cr_assert_eq(tool_model_config_core_flops(&config, 8192), 128 * (192 + 128) * s);
    cr_assert_geq(parse("{\"model_type\":\"qwen3_next\",\"num_hidden_layers\":4}"), 0);
    cr_assert_eq(tool_model_config_core_flops(&config, 8192), 3 * 6.0 * 32 * 128 * 128 + 2 * 16 * 256 * s);
}

/* Goal: what a plan of the language alone leaves out is told. Method: a file of several parts, quantized weights, modules
 * behind the last block, and keys of other families. */
Test(model_config, other_parts_of_a_model_are_told)
{
    cr_assert_geq(parse("{\"model_type\":\"gemma3\",\"architectures\":[\"Gemma3ForConditionalGeneration\"],\"vision_config\":{},"
                        "\"mm_tokens_per_image\":256,\"torch_dtype\":\"bfloat16\",\"shiny\":1,\"tie_word_embeddings\":false,"
                        "\"text_config\":{\"model_type\":\"gemma3_text\",\"hidden_size\":2560}}"), 0, "%s", problem.text);
    cr_assert(config.width == 2560 && config.vocabulary == 262208 && config.stored_bytes == 2 && !config.tied_head);
    cr_assert_str_eq(config.not_computed, "vision_config");
    cr_assert_str_eq(config.unknown, "shiny");
    cr_assert(config.files_differ[0]);
    /* sizes outside, a class of its own, and what text_config leaves out */
    cr_assert_geq(
        parse("{\"model_type\":\"voxtral\",\"hidden_size\":3072,\"text_config\":{\"model_type\":\"llama\",\"hidden_size\":"
              "3072,\"num_hidden_layers\":30,\"architectures\":[\"VLlama3ForCausalLM\"]}}"),
        0, "%s", problem.text);
    cr_assert(config.width == 3072 && config.layer_count == 30 && config.head_count == 32 && config.vocabulary == 32000);
    cr_assert_str_empty(config.unknown);
    cr_assert_lt(parse("{\"model_type\":\"llama\",\"hidden_size\":7,\"num_attention_heads\":2,\"num_hidden_layers\":1,\"vocab_"
                       "size\":9,\"text_config\":{" LLAMA "}}"),
                 0);
    cr_assert(strstr(problem.text, "hidden_size is 7;"), "a text's own text_config is none: %s", problem.text);
    cr_assert_geq(parse("{\"model_type\":\"deepseek_v3\",\"num_nextn_predict_layers\":1,\"sliding_window\":4096,"
                        "\"quantization_config\":{\"quant_method\":\"fp8\"}}"), 0, "%s", problem.text);
    cr_assert(strstr(config.not_computed, "num_nextn_predict_layers 1") && strstr(config.not_computed, "quantization_config"),
              "%s", config.not_computed);
    cr_assert_str_eq(config.unknown, "sliding_window");
    cr_assert(config.files_differ[0]);
    static const char *const typo[] = {"kv_lora_rnak=256"}, *const other[] = {"n_embd=256"};
    const char *text = "{\"model_type\":\"deepseek_v3\"}";
    cr_assert_lt(tool_model_config_parse(&config, "c", text, strlen(text), typo, 1, &problem), 0);
    cr_assert(strstr(problem.text, "did you mean kv_lora_rank?"), "%s", problem.text);
    cr_assert_lt(tool_model_config_parse(&config, "c", text, strlen(text), other, 1, &problem), 0);
    cr_assert(strstr(problem.text, "did you mean hidden_size?"), "%s", problem.text);
}

/* Goal: a field under transformers' other name of it is that field, in files and in sets. Method: files of one name, of both,
 * and of both with two values. */
Test(model_config, aliases_are_the_fields_they_name)
{
    static const struct {
        const char *text;
        uint32_t experts;
    } cases[] = {
        {"\"qwen3_moe\",\"moe_intermediate_size\":96,\"num_local_experts\":16", 16},
        {"\"qwen3_moe\",\"moe_intermediate_size\":96,\"num_experts\":16", 16},
        {"\"qwen3_moe\",\"moe_intermediate_size\":96,\"num_experts\":null,\"num_local_experts\":16.0", 16},
        {"\"qwen3_moe\",\"moe_intermediate_size\":96,\"num_experts\":16,\"num_local_experts\":16.0", 16},
        {"\"mixtral\",\"num_experts\":16", 16},
        {"\"gpt_oss\",\"num_experts\":32", 32},
        {"\"gpt_oss\",\"num_experts\":null", 128},
        {"\"deepseek_v3\",\"num_local_experts\":128", 128},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char text[512];
        snprintf(text, sizeof(text),
                 "{\"model_type\":%s,\"vocab_size\":9,\"hidden_size\":64,\"num_attention_heads\":8,"
                 "\"num_key_value_heads\":8,\"intermediate_size\":96,\"num_experts_per_tok\":4,\"num_hidden_layers\":2}",
                 cases[i].text);
        cr_assert_geq(parse(text), 0, "%s", problem.text);
        cr_assert_eq(config.expert_count, cases[i].experts, "%s: %u", text, config.expert_count);
        cr_assert(!config.not_computed[0] && !config.unknown[0], "%s: %s, %s", text, config.not_computed, config.unknown);
    }
    const char *text = "{\"model_type\":\"gpt2\",\"num_hidden_layers\":2,\"hidden_size\":64,\"num_attention_heads\":4,"
                       "\"vocab_size\":9,\"max_position_embeddings\":2048}";
    static const char *const sets[] = {"hidden_size=32", "n_layer=3"};
    cr_assert_geq(tool_model_config_parse(&config, "c", text, strlen(text), sets, 2, &problem), 0, "%s", problem.text);
    cr_assert(config.context == 2048 && config.width == 32 && config.mlp_width == 128 && config.layer_count == 3);
    static const char *const layers[] = {"num_hidden_layers=4"};
    cr_assert_geq(tool_model_config_parse(&config, "c", text, strlen(text), layers, 1, &problem), 0, "%s", problem.text);
    cr_assert_eq(config.layer_count, 4);
    cr_assert_str_empty(config.unknown);
    cr_assert_lt(parse("{\"model_type\":\"mixtral\",\"num_experts\":16,\"num_local_experts\":8}"), 0);
    cr_assert(strstr(problem.text, "num_experts is 16 but num_local_experts is 8"), "%s", problem.text);
    cr_assert_geq(parse("{\"model_type\":\"deepseek_v3\",\"num_mtp_layers\":1}"), 0);
    cr_assert_str_eq(config.not_computed, "num_nextn_predict_layers 1");
}

/* Goal: no key is passed over. Method: names by chance, and control characters, which no terminal gets. */
Test(model_config, keys_that_are_not_known_are_listed)
{
    char text[8192];
    size_t used = (size_t)snprintf(text, sizeof(text), "%s\"shiny\":1,\"a\\u001b[31m\\u009b\":2,\"gone\":null", LLAMA_2);
    cr_assert_geq(parse(strcat(text, "}")), 0, "%s", problem.text);
    cr_assert_str_eq(config.unknown, "shiny, a?[31m??");
    for (int i = 0; i < 200; i++)
        used += (size_t)snprintf(text + used, sizeof(text) - used, ",\"key_number_%d\":0", i);
    cr_assert_geq(parse(strcat(text, "}")), 0, "%s", problem.text);
    cr_assert(strlen(config.unknown) < sizeof(config.unknown) && strstr(config.unknown, ", ..."), "%s", config.unknown);
    static const char *const neutral[] = {
        ("{\"text_config\":{\"model_type\":\"qwen3_moe\",\"use_qk_norm\":true,\"qkv_bias\":false,"
         "\"shared_expert_intermediate_size\":0}}"),
        "{\"text_config\":{\"model_type\":\"llama\",\"is_llama_config\":true,\"rope_interleaved\":false}}",
        "{\"text_config\":{\"model_type\":\"phi3\",\"lm_head_bias\":false,\"full_attn_mod\":1,\"interpolate_factor\":1}}",
    };
    for (int i = 0; i < 3; i++) {
        cr_assert_geq(parse(neutral[i]), 0, "%s", problem.text);
        cr_assert(!config.not_computed[0] && !config.unknown[0], "%s: %s, %s", neutral[i], config.not_computed, config.unknown);
    }
    cr_assert_geq(
        parse("{\"text_config\":{\"model_type\":\"qwen3\",\"use_qk_norm\":false,\"qkv_bias\":true,\"lm_head_bias\":true}}"), 0);
    cr_assert_str_eq(config.not_computed, "use_qk_norm false, qkv_bias true, lm_head_bias true");
    cr_assert_geq(parse("{\"model_type\":\"gpt2\",\"n_layer\":2,\"n_embd\":64,\"n_head\":4,\"vocab_size\":99,"
                        "\"activation_function\":\"gelu_pytorch_tanh\",\"resid_pdrop\":0.1,\"embd_pdrop\":0.0}"), 0);
    cr_assert_str_empty(config.not_computed);
    char text_of[TOOL_CONFIG_DROPOUT_BYTES_MAX];
    tool_model_config_dropouts(&config, 0, text_of);
    cr_assert_str_eq(text_of, "resid_pdrop 0.1");
    tool_model_config_dropouts(&config, 0.1, text_of);
    cr_assert_str_empty(text_of, "--dropout does what the config asks for");
    cr_assert_geq(parse("{\"model_type\":\"gpt2\",\"n_layer\":2,\"n_embd\":64,\"n_head\":4,\"vocab_size\":99,"
                        "\"activation_function\":7,\"scale_attn_by_inverse_layer_idx\":true,\"scale_attn_weights\":false}"), 0);
    cr_assert_str_eq(config.not_computed, "activation_function 7, scale_attn_by_inverse_layer_idx true, "
                     "scale_attn_weights false");
}

/* Goal: what cannot be is refused with the file, the field and its value. */
Test(model_config, what_cannot_be_is_refused_by_field_and_value)
{
    static const struct {
        const char *text, *words;
    } cases[] = {
        {"", "c.json"},
        {"[1]", "not an object"},
        {"{\"model_type\":\"gemma2\",\"head_dim\":7}", "head_dim is 7"},
        {"{\"model_type\":\"gemma3_text\",\"layer_types\":[\"full_attention\"]}", "layer_types is no list of 26 words"},
        {"{\"model_type\":\"gemma3_text\",\"sliding_window_pattern\":0}", "sliding_window_pattern is 0"},
        {"{\"model_type\":\"qwen3_next\",\"num_hidden_layers\":1,\"layer_types\":[\"sliding_attention\"]}",
         "layer_types[0] is 'sliding_attention'; this family has full_attention and linear_attention"},
        {"{\"model_type\":\"qwen3_next\",\"linear_num_key_heads\":3}", "linear_num_key_heads is 3"},
        {"{\"model_type\":\"deepseek_v3\",\"kv_lora_rank\":0}", "kv_lora_rank is 0"},
        {"{\"model_type\":\"deepseek_v3\",\"kv_lora_rank\":\"512\"}", "kv_lora_rank is \"512\""},
        {"{\"model_type\":\"deepseek_v3\",\"first_k_dense_replace\":-1}", "first_k_dense_replace is -1"},
        {"{\"model_type\":\"deepseek_v3\",\"n_shared_experts\":65536}", "n_shared_experts is 65536"},
        {"{\"model_type\":\"deepseek_v3\",\"num_experts_per_tok\":300}", "there are only 256 experts"},
        {"{\"model_type\":\"gpt_oss\",\"num_attention_heads\":7}", "num_key_value_heads is 8"},
        {"{\"model_type\":\"qwen2_moe\",\"mlp_only_layers\":[24]}", "mlp_only_layers is 24"},
        {"{\"model_type\":\"mamba\"}", "'mamba', an unknown family; known families"},
        {"{\"model_type\":7}", "not a string"},
        {"{\"architectures\":[\"T5ForConditionalGeneration\"]}",
         "architectures[0] is 'T5ForConditionalGeneration', an unknown"},
        {"{\"model_type\":\"vlm\",\"text_config\":{\"model_type\":\"mamba\"}}", "text_config.model_type is 'mamba'"},
        {"{}", "model_type and architectures are both missing"},
        {"{\"model_type\":\"llama\",\"architectures\":[\"GPT2LMHeadModel\"]}",
         "GPT2LMHeadModel; for llama it is LlamaForCausalLM; if it "
         "computes the same, leave architectures out (memplan: --set architectures=null)"},
        {"{" LLAMA "}", "num_hidden_layers is missing; evenodd takes no default for it (transformers takes 32)"},
        {"{" LLAMA ",\"num_hidden_layers\":null}", "num_hidden_layers is missing"},
        {"{" LLAMA ",\"num_hidden_layers\":0}", "num_hidden_layers is 0"},
        {"{" LLAMA ",\"num_hidden_layers\":-1}", "num_hidden_layers is -1"},
        {"{" LLAMA ",\"num_hidden_layers\":2.5}", "num_hidden_layers is 2.5"},
        {"{" LLAMA ",\"num_hidden_layers\":\"3\"}", "num_hidden_layers is \"3\""},
        {"{" LLAMA ",\"num_hidden_layers\":99999999999}", "num_hidden_layers is 99999999999"},
        {"{" LLAMA ",\"num_hidden_layers\":1e300}", "num_hidden_layers is 1"},
        {"{" LLAMA ",\"num_hidden_layers\":99999999999999999999999999}", "num_hidden_layers is 1"},
        {"{" LLAMA ",\"num_hidden_layers\":-99999999999999999999999999}", "num_hidden_layers is -1"},
        {"{\"model_type\":\"nemotron_h\",\"time_step_limit\":[0.0, Infinity]}", "model_type is 'nemotron_h'"},
        {"{\"model_type\":\"NaN\",\"a\":[-Infinity,NaN]}", "model_type is 'NaN'"},
        {"{\"model_type\":\"\\\"NaN\\\\\",\"a\":NaN}", "model_type is '\"NaN\\'"},
        {"{\"a\":Infinity,\n\"b\":}", "line 2"},
        {"{\"a\":NaNo}", "line 1"},
        {"{" LLAMA ",\"num_hidden_layers\":2,\"num_hidden_layers\":3}", "duplicate"},
        {"{" LLAMA ",\"num_hidden_layers\":2,\"num_key_value_heads\":3}", "num_key_value_heads is 3"},
        {"{" LLAMA ",\"num_hidden_layers\":2,\"head_dim\":7}", "head_dim is 7"},
        {"{" LLAMA ",\"num_hidden_layers\":2,\"tie_word_embeddings\":1}", "tie_word_embeddings is 1"},
        {"{" LLAMA ",\"num_hidden_layers\":2,\"rms_norm_eps\":-1}", "rms_norm_eps is -1"},
        {"{" LLAMA ",\"num_hidden_layers\":2,\"rms_norm_eps\":1e-50}", "rms_norm_eps is 1"},
        {"{" LLAMA ",\"num_hidden_layers\":2,\"initializer_range\":0}", "initializer_range is 0"},
        {LLAMA_2 "\"rope_scaling\":7}", "rope_scaling is 7; an object or null"},
        {LLAMA_2 "\"rope_scaling\":{\"type\":7}}", "rope_scaling.rope_type is missing; a string"},
        {LLAMA_2 "\"rope_scaling\":{\"rope_type\":[]}}", "rope_scaling.rope_type is []; a string"},
        {LLAMA_2 "\"rope_scaling\":{\"type\":\"linear\"}}", "rope_scaling.factor is missing"},
        {LLAMA_2 "\"rope_scaling\":{\"type\":\"linear\",\"factor\":\"8\"}}", "rope_scaling.factor is \"8\""},
        {LLAMA_2 "\"rope_parameters\":{" LLAMA3_ROPE ",\"low_freq_factor\":4}}", "high_freq_factor is 4.0; more than low"},
        {LLAMA_2 "\"rope_parameters\":{" LLAMA3_ROPE ",\"low_freq_factor\":0}}", "low_freq_factor is 0; a number above 0"},
        {LLAMA_2 "\"rope_parameters\":{" LLAMA3_ROPE ",\"low_freq_factor\":1,"
                 "\"original_max_position_embeddings\":1.5}}",
         "original_max_position_embeddings is 1.5"},
        {LLAMA_2 "\"rope_parameters\":{\"rope_theta\":-1}}", "rope_parameters.rope_theta is -1"},
        {LLAMA_2 "\"rope_theta\":\"x\"}", "rope_theta is \"x\""},
        {LLAMA_2 "\"rope_theta\":1e-50}", "rope_theta is 1"},
        {LLAMA_2 "\"rope_parameters\":{\"rope_theta\":1e-50}}", "rope_parameters.rope_theta is 1"},
        {"{\"model_type\":\"gpt2\",\"n_layer\":2,\"n_embd\":65,\"n_head\":4,\"vocab_size\":9}", "does not divide"},
        {"{\"model_type\":\"gpt2\",\"n_layer\":2,\"n_embd\":64,\"n_head\":4,\"vocab_size\":9,\"n_positions\":8,\"n_ctx\":9}",
         "n_positions is 8 but n_ctx is 9"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        cr_assert_lt(parse(cases[i].text), 0, "%s is taken", cases[i].text);
        cr_assert(strstr(problem.text, cases[i].words), "%s: '%s'", cases[i].text, problem.text);
    }
    cr_assert_geq(parse(LLAMA_2 "\"rope_theta\":Infinity,\"model_max_length\":1000000000000000019884624838656}"), 0, "%s",
                  problem.text);
    cr_assert(config.layer_count == 2 && config.rope_theta == 10000);
    cr_assert_str_eq(config.unknown, "model_max_length");
    cr_assert(strstr(config.defaults[0], "Infinity"), "%s", config.defaults[0]);
    char *deep = malloc(200001);
    memset(deep, '[', 100000);
    memset(deep + 100000, ']', 100000);
    deep[200000] = '\0';
    cr_assert_lt(parse(deep), 0);
    free(deep);
}

/* Goal: a config.json of any kind ends in a config or in a message. Method: mutations of good ones, from seeds. */
Test(model_config, mutated_configs_end_in_a_config_or_a_message, .timeout = 120)
{
    uint64_t state = 88172645463325252u;
    uint32_t taken = 0, refused = 0;
    char text[4096];
    for (int round = 0; round < 20000; round++) {
        const char *name = tool_model_preset_name((uint32_t)(next_random(&state) % 22));
        snprintf(text, sizeof(text), "%s", tool_model_preset_text(name));
        const size_t bytes = mutate_json(text, strlen(text), sizeof(text), &state);
        problem.text[0] = '\0';
        if (tool_model_config_parse(&config, "fuzz", text, bytes, NULL, 0, &problem) >= 0) {
            taken++;
            cr_assert(config.layer_count >= 1 && config.width >= 1 && config.head_count % config.kv_head_count == 0);
        } else {
            refused++;
            cr_assert(problem.text[0], "refused without a word: %.*s", (int)bytes, text);
        }
    }
    cr_assert(taken > 100 && refused > 1000, "%u taken, %u refused", taken, refused);
}
