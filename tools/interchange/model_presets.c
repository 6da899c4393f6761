/* SPDX-License-Identifier: MIT
 *
 * Shapes of published models as their config.json gives them, less what does not decide memory. GPT-2's four are presets
 * of the layers.
 */
#include <string.h>

#include "tools/interchange/model_config.h"

#define LLAMA3_ROPE(factor)                                                                                           \
    "{\"rope_type\":\"llama3\",\"factor\":" factor ",\"low_freq_factor\":1.0,\"high_freq_factor\":4.0,"                 \
    "\"original_max_position_embeddings\":8192}"

static const struct model_preset {
    const char *name, *text;
} model_presets[] = {
    {"tinyllama-1.1b",
     "{\"model_type\":\"llama\",\"vocab_size\":32000,\"hidden_size\":2048,\"num_hidden_layers\":22,"
     "\"num_attention_heads\":32,\"num_key_value_heads\":4,\"intermediate_size\":5632,"
     "\"max_position_embeddings\":2048,\"tie_word_embeddings\":false,\"rms_norm_eps\":1e-05}"},
    {"llama-65b",
     "{\"model_type\":\"llama\",\"vocab_size\":32000,\"hidden_size\":8192,\"num_hidden_layers\":80,"
     "\"num_attention_heads\":64,\"num_key_value_heads\":64,\"intermediate_size\":22016,"
     "\"max_position_embeddings\":2048,\"tie_word_embeddings\":false,\"rms_norm_eps\":1e-05}"},
    {"llama-2-7b",
     "{\"model_type\":\"llama\",\"vocab_size\":32000,\"hidden_size\":4096,\"num_hidden_layers\":32,"
     "\"num_attention_heads\":32,\"num_key_value_heads\":32,\"intermediate_size\":11008,"
     "\"max_position_embeddings\":4096,\"tie_word_embeddings\":false,\"rms_norm_eps\":1e-05}"},
    {"llama-2-13b",
     "{\"model_type\":\"llama\",\"vocab_size\":32000,\"hidden_size\":5120,\"num_hidden_layers\":40,"
     "\"num_attention_heads\":40,\"num_key_value_heads\":40,\"intermediate_size\":13824,"
     "\"max_position_embeddings\":4096,\"tie_word_embeddings\":false,\"rms_norm_eps\":1e-05}"},
    {"llama-34b",
     "{\"model_type\":\"llama\",\"vocab_size\":32000,\"hidden_size\":8192,\"num_hidden_layers\":48,"
     "\"num_attention_heads\":64,\"num_key_value_heads\":8,\"intermediate_size\":22016,"
     "\"max_position_embeddings\":4096,\"tie_word_embeddings\":false,\"rms_norm_eps\":1e-05}"},
    {"llama-2-70b",
     "{\"model_type\":\"llama\",\"vocab_size\":32000,\"hidden_size\":8192,\"num_hidden_layers\":80,"
     "\"num_attention_heads\":64,\"num_key_value_heads\":8,\"intermediate_size\":28672,"
     "\"max_position_embeddings\":4096,\"tie_word_embeddings\":false,\"rms_norm_eps\":1e-05}"},
    {"llama-3-8b",
     "{\"model_type\":\"llama\",\"vocab_size\":128256,\"hidden_size\":4096,\"num_hidden_layers\":32,"
     "\"num_attention_heads\":32,\"num_key_value_heads\":8,\"intermediate_size\":14336,"
     "\"max_position_embeddings\":8192,\"tie_word_embeddings\":false,\"rms_norm_eps\":1e-05,"
     "\"rope_theta\":500000.0}"},
    {"llama-3-70b",
     "{\"model_type\":\"llama\",\"vocab_size\":128256,\"hidden_size\":8192,\"num_hidden_layers\":80,"
     "\"num_attention_heads\":64,\"num_key_value_heads\":8,\"intermediate_size\":28672,"
     "\"max_position_embeddings\":8192,\"tie_word_embeddings\":false,\"rms_norm_eps\":1e-05,"
     "\"rope_theta\":500000.0}"},
    {"llama-3.1-405b",
     "{\"model_type\":\"llama\",\"vocab_size\":128256,\"hidden_size\":16384,\"num_hidden_layers\":126,"
     "\"num_attention_heads\":128,\"num_key_value_heads\":8,\"intermediate_size\":53248,"
     "\"max_position_embeddings\":131072,\"tie_word_embeddings\":false,\"rms_norm_eps\":1e-05,"
     "\"rope_theta\":500000.0,\"rope_scaling\":" LLAMA3_ROPE("8.0") "}"},
    {"llama-3.2-1b",
     "{\"model_type\":\"llama\",\"vocab_size\":128256,\"hidden_size\":2048,\"num_hidden_layers\":16,"
     "\"num_attention_heads\":32,\"num_key_value_heads\":8,\"intermediate_size\":8192,"
     "\"max_position_embeddings\":131072,\"tie_word_embeddings\":true,\"rms_norm_eps\":1e-05,\"head_dim\":64,"
     "\"rope_theta\":500000.0,\"rope_scaling\":" LLAMA3_ROPE("32.0") "}"},
    {"llama-3.2-3b",
     "{\"model_type\":\"llama\",\"vocab_size\":128256,\"hidden_size\":3072,\"num_hidden_layers\":28,"
     "\"num_attention_heads\":24,\"num_key_value_heads\":8,\"intermediate_size\":8192,"
     "\"max_position_embeddings\":131072,\"tie_word_embeddings\":true,\"rms_norm_eps\":1e-05,\"head_dim\":128,"
     "\"rope_theta\":500000.0,\"rope_scaling\":" LLAMA3_ROPE("32.0") "}"},
    {"mistral-7b",
     "{\"model_type\":\"mistral\",\"vocab_size\":32000,\"hidden_size\":4096,\"num_hidden_layers\":32,"
     "\"num_attention_heads\":32,\"num_key_value_heads\":8,\"intermediate_size\":14336,"
     "\"max_position_embeddings\":32768,\"tie_word_embeddings\":false,\"rms_norm_eps\":1e-05}"},
    {"qwen2.5-0.5b",
     "{\"model_type\":\"qwen2\",\"vocab_size\":151936,\"hidden_size\":896,\"num_hidden_layers\":24,"
     "\"num_attention_heads\":14,\"num_key_value_heads\":2,\"intermediate_size\":4864,"
     "\"max_position_embeddings\":32768,\"tie_word_embeddings\":true,\"rms_norm_eps\":1e-05}"},
    {"qwen2.5-1.5b",
     "{\"model_type\":\"qwen2\",\"vocab_size\":151936,\"hidden_size\":1536,\"num_hidden_layers\":28,"
     "\"num_attention_heads\":12,\"num_key_value_heads\":2,\"intermediate_size\":8960,"
     "\"max_position_embeddings\":131072,\"tie_word_embeddings\":true,\"rms_norm_eps\":1e-05}"},
    {"qwen2-7b",
     "{\"model_type\":\"qwen2\",\"vocab_size\":152064,\"hidden_size\":3584,\"num_hidden_layers\":28,"
     "\"num_attention_heads\":28,\"num_key_value_heads\":4,\"intermediate_size\":18944,"
     "\"max_position_embeddings\":131072,\"tie_word_embeddings\":false,\"rms_norm_eps\":1e-05}"},
    {"qwen2-72b",
     "{\"model_type\":\"qwen2\",\"vocab_size\":152064,\"hidden_size\":8192,\"num_hidden_layers\":80,"
     "\"num_attention_heads\":64,\"num_key_value_heads\":8,\"intermediate_size\":29568,"
     "\"max_position_embeddings\":32768,\"tie_word_embeddings\":false,\"rms_norm_eps\":1e-05}"},
    {"qwen3-0.6b",
     "{\"model_type\":\"qwen3\",\"vocab_size\":151936,\"hidden_size\":1024,\"num_hidden_layers\":28,"
     "\"num_attention_heads\":16,\"num_key_value_heads\":8,\"intermediate_size\":3072,"
     "\"max_position_embeddings\":40960,\"tie_word_embeddings\":true,\"rms_norm_eps\":1e-05,\"head_dim\":128}"},
    {"qwen3-8b",
     "{\"model_type\":\"qwen3\",\"vocab_size\":151936,\"hidden_size\":4096,\"num_hidden_layers\":36,"
     "\"num_attention_heads\":32,\"num_key_value_heads\":8,\"intermediate_size\":12288,"
     "\"max_position_embeddings\":40960,\"tie_word_embeddings\":false,\"rms_norm_eps\":1e-05,"
     "\"head_dim\":128}"},
    {"qwen3-32b",
     "{\"model_type\":\"qwen3\",\"vocab_size\":151936,\"hidden_size\":5120,\"num_hidden_layers\":64,"
     "\"num_attention_heads\":64,\"num_key_value_heads\":8,\"intermediate_size\":25600,"
     "\"max_position_embeddings\":40960,\"tie_word_embeddings\":false,\"rms_norm_eps\":1e-05,"
     "\"head_dim\":128}"},
    {"mixtral-8x7b",
     "{\"model_type\":\"mixtral\",\"vocab_size\":32000,\"hidden_size\":4096,\"num_hidden_layers\":32,"
     "\"num_attention_heads\":32,\"num_key_value_heads\":8,\"intermediate_size\":14336,"
     "\"max_position_embeddings\":32768,\"tie_word_embeddings\":false,\"rms_norm_eps\":1e-05,"
     "\"num_local_experts\":8,\"num_experts_per_tok\":2}"},
    {"qwen3-30b-a3b",
     "{\"model_type\":\"qwen3_moe\",\"vocab_size\":151936,\"hidden_size\":2048,\"num_hidden_layers\":48,"
     "\"num_attention_heads\":32,\"num_key_value_heads\":4,\"intermediate_size\":6144,"
     "\"max_position_embeddings\":40960,\"tie_word_embeddings\":false,\"rms_norm_eps\":1e-05,\"head_dim\":128,"
     "\"moe_intermediate_size\":768,\"num_experts\":128,\"num_experts_per_tok\":8,\"decoder_sparse_step\":1,"
     "\"mlp_only_layers\":[]}"},
    {"qwen3-235b-a22b",
     "{\"model_type\":\"qwen3_moe\",\"vocab_size\":151936,\"hidden_size\":4096,\"num_hidden_layers\":94,"
     "\"num_attention_heads\":64,\"num_key_value_heads\":4,\"intermediate_size\":12288,"
     "\"max_position_embeddings\":40960,\"tie_word_embeddings\":false,\"rms_norm_eps\":1e-05,\"head_dim\":128,"
     "\"moe_intermediate_size\":1536,\"num_experts\":128,\"num_experts_per_tok\":8,\"decoder_sparse_step\":1,"
     "\"mlp_only_layers\":[]}"},
};

const char *tool_model_preset_text(const char *name)
{
    for (size_t i = 0; i < sizeof(model_presets) / sizeof(model_presets[0]); i++)
        if (strcmp(name, model_presets[i].name) == 0)
            return model_presets[i].text;
    return NULL;
}

const char *tool_model_preset_name(uint32_t index)
{
    return index < sizeof(model_presets) / sizeof(model_presets[0]) ? model_presets[index].name : NULL;
}
