/* SPDX-License-Identifier: MIT
 *
 * Shapes of published models as their config.json gives them, less what does not decide memory. GPT-2's four are presets
 * of the layers.
 */
#include <string.h>

#include "tools/interchange/config/model_config.h"

#define LLAMA3_ROPE(factor)                                                                                           \
    "{\"rope_type\":\"llama3\",\"factor\":" factor ",\"low_freq_factor\":1.0,\"high_freq_factor\":4.0,"                 \
    "\"original_max_position_embeddings\":8192}"

static const struct model_preset {
    const char *name, *text;
} model_presets[] = {
    {"tinyllama-1.1b", "{\"model_type\":\"llama\",\"vocab_size\":32000,\"hidden_size\":2048,\"num_hidden_layers\":22,"
                       "\"num_attention_heads\":32,\"num_key_value_heads\":4,\"intermediate_size\":5632,"
                       "\"max_position_embeddings\":2048,\"tie_word_embeddings\":false,\"rms_norm_eps\":1e-05}"},
    {"llama-65b", "{\"model_type\":\"llama\",\"vocab_size\":32000,\"hidden_size\":8192,\"num_hidden_layers\":80,"
                  "\"num_attention_heads\":64,\"num_key_value_heads\":64,\"intermediate_size\":22016,"
                  "\"max_position_embeddings\":2048,\"tie_word_embeddings\":false,\"rms_norm_eps\":1e-05}"},
    {"llama-2-7b", "{\"model_type\":\"llama\",\"vocab_size\":32000,\"hidden_size\":4096,\"num_hidden_layers\":32,"
                   "\"num_attention_heads\":32,\"num_key_value_heads\":32,\"intermediate_size\":11008,"
                   "\"max_position_embeddings\":4096,\"tie_word_embeddings\":false,\"rms_norm_eps\":1e-05}"},
    {"llama-2-13b", "{\"model_type\":\"llama\",\"vocab_size\":32000,\"hidden_size\":5120,\"num_hidden_layers\":40,"
                    "\"num_attention_heads\":40,\"num_key_value_heads\":40,\"intermediate_size\":13824,"
                    "\"max_position_embeddings\":4096,\"tie_word_embeddings\":false,\"rms_norm_eps\":1e-05}"},
    {"llama-34b", "{\"model_type\":\"llama\",\"vocab_size\":32000,\"hidden_size\":8192,\"num_hidden_layers\":48,"
                  "\"num_attention_heads\":64,\"num_key_value_heads\":8,\"intermediate_size\":22016,"
                  "\"max_position_embeddings\":4096,\"tie_word_embeddings\":false,\"rms_norm_eps\":1e-05}"},
    {"llama-2-70b", "{\"model_type\":\"llama\",\"vocab_size\":32000,\"hidden_size\":8192,\"num_hidden_layers\":80,"
                    "\"num_attention_heads\":64,\"num_key_value_heads\":8,\"intermediate_size\":28672,"
                    "\"max_position_embeddings\":4096,\"tie_word_embeddings\":false,\"rms_norm_eps\":1e-05}"},
    {"llama-3-8b", "{\"model_type\":\"llama\",\"vocab_size\":128256,\"hidden_size\":4096,\"num_hidden_layers\":32,"
                   "\"num_attention_heads\":32,\"num_key_value_heads\":8,\"intermediate_size\":14336,"
                   "\"max_position_embeddings\":8192,\"tie_word_embeddings\":false,\"rms_norm_eps\":1e-05,"
                   "\"rope_theta\":500000.0}"},
    {"llama-3-70b", "{\"model_type\":\"llama\",\"vocab_size\":128256,\"hidden_size\":8192,\"num_hidden_layers\":80,"
                    "\"num_attention_heads\":64,\"num_key_value_heads\":8,\"intermediate_size\":28672,"
                    "\"max_position_embeddings\":8192,\"tie_word_embeddings\":false,\"rms_norm_eps\":1e-05,"
                    "\"rope_theta\":500000.0}"},
    {"llama-3.1-405b", "{\"model_type\":\"llama\",\"vocab_size\":128256,\"hidden_size\":16384,\"num_hidden_layers\":126,"
                       "\"num_attention_heads\":128,\"num_key_value_heads\":8,\"intermediate_size\":53248,"
                       "\"max_position_embeddings\":131072,\"tie_word_embeddings\":false,\"rms_norm_eps\":1e-05,"
                       "\"rope_theta\":500000.0,\"rope_scaling\":" LLAMA3_ROPE("8.0") "}"},
    {"llama-3.2-1b", "{\"model_type\":\"llama\",\"vocab_size\":128256,\"hidden_size\":2048,\"num_hidden_layers\":16,"
                     "\"num_attention_heads\":32,\"num_key_value_heads\":8,\"intermediate_size\":8192,"
                     "\"max_position_embeddings\":131072,\"tie_word_embeddings\":true,\"rms_norm_eps\":1e-05,\"head_dim\":64,"
                     "\"rope_theta\":500000.0,\"rope_scaling\":" LLAMA3_ROPE("32.0") "}"},
    {"llama-3.2-3b", "{\"model_type\":\"llama\",\"vocab_size\":128256,\"hidden_size\":3072,\"num_hidden_layers\":28,"
                     "\"num_attention_heads\":24,\"num_key_value_heads\":8,\"intermediate_size\":8192,"
                     "\"max_position_embeddings\":131072,\"tie_word_embeddings\":true,\"rms_norm_eps\":1e-05,\"head_dim\":128,"
                     "\"rope_theta\":500000.0,\"rope_scaling\":" LLAMA3_ROPE("32.0") "}"},
    {"smollm3-3b", "{\"model_type\":\"smollm3\",\"vocab_size\":128256,\"hidden_size\":2048,\"num_hidden_layers\":36,"
                   "\"num_attention_heads\":16,\"num_key_value_heads\":4,\"intermediate_size\":11008,"
                   "\"max_position_embeddings\":65536,\"tie_word_embeddings\":true,\"rms_norm_eps\":1e-06,"
                   "\"rope_theta\":5000000.0,\"no_rope_layer_interval\":4}"},
    {"mistral-7b", "{\"model_type\":\"mistral\",\"vocab_size\":32000,\"hidden_size\":4096,\"num_hidden_layers\":32,"
                   "\"num_attention_heads\":32,\"num_key_value_heads\":8,\"intermediate_size\":14336,"
                   "\"max_position_embeddings\":32768,\"tie_word_embeddings\":false,\"rms_norm_eps\":1e-05}"},
    {"qwen2.5-0.5b",
     "{\"model_type\":\"qwen2\",\"vocab_size\":151936,\"hidden_size\":896,\"num_hidden_layers\":24,"
     "\"num_attention_heads\":14,\"num_key_value_heads\":2,\"intermediate_size\":4864,"
     "\"max_position_embeddings\":32768,\"tie_word_embeddings\":true,\"rms_norm_eps\":1e-06,\"rope_theta\":1000000.0}"},
    {"qwen2.5-1.5b",
     "{\"model_type\":\"qwen2\",\"vocab_size\":151936,\"hidden_size\":1536,\"num_hidden_layers\":28,"
     "\"num_attention_heads\":12,\"num_key_value_heads\":2,\"intermediate_size\":8960,"
     "\"max_position_embeddings\":131072,\"tie_word_embeddings\":true,\"rms_norm_eps\":1e-06,\"rope_theta\":1000000.0}"},
    {"qwen2-7b",
     "{\"model_type\":\"qwen2\",\"vocab_size\":152064,\"hidden_size\":3584,\"num_hidden_layers\":28,"
     "\"num_attention_heads\":28,\"num_key_value_heads\":4,\"intermediate_size\":18944,"
     "\"max_position_embeddings\":131072,\"tie_word_embeddings\":false,\"rms_norm_eps\":1e-06,\"rope_theta\":1000000.0}"},
    {"qwen2-72b",
     "{\"model_type\":\"qwen2\",\"vocab_size\":152064,\"hidden_size\":8192,\"num_hidden_layers\":80,"
     "\"num_attention_heads\":64,\"num_key_value_heads\":8,\"intermediate_size\":29568,"
     "\"max_position_embeddings\":32768,\"tie_word_embeddings\":false,\"rms_norm_eps\":1e-06,\"rope_theta\":1000000.0}"},
    {"qwen3-0.6b", "{\"model_type\":\"qwen3\",\"vocab_size\":151936,\"hidden_size\":1024,\"num_hidden_layers\":28,"
                   "\"num_attention_heads\":16,\"num_key_value_heads\":8,\"intermediate_size\":3072,"
                   "\"max_position_embeddings\":40960,\"tie_word_embeddings\":true,\"rms_norm_eps\":1e-06,\"rope_theta\":"
                   "1000000.0,\"head_dim\":128}"},
    {"qwen3-8b",
     "{\"model_type\":\"qwen3\",\"vocab_size\":151936,\"hidden_size\":4096,\"num_hidden_layers\":36,"
     "\"num_attention_heads\":32,\"num_key_value_heads\":8,\"intermediate_size\":12288,"
     "\"max_position_embeddings\":40960,\"tie_word_embeddings\":false,\"rms_norm_eps\":1e-06,\"rope_theta\":1000000.0,"
     "\"head_dim\":128}"},
    {"qwen3-32b",
     "{\"model_type\":\"qwen3\",\"vocab_size\":151936,\"hidden_size\":5120,\"num_hidden_layers\":64,"
     "\"num_attention_heads\":64,\"num_key_value_heads\":8,\"intermediate_size\":25600,"
     "\"max_position_embeddings\":40960,\"tie_word_embeddings\":false,\"rms_norm_eps\":1e-06,\"rope_theta\":1000000.0,"
     "\"head_dim\":128}"},
    {"mixtral-8x7b", "{\"model_type\":\"mixtral\",\"vocab_size\":32000,\"hidden_size\":4096,\"num_hidden_layers\":32,"
                     "\"num_attention_heads\":32,\"num_key_value_heads\":8,\"intermediate_size\":14336,"
                     "\"max_position_embeddings\":32768,\"tie_word_embeddings\":false,\"rms_norm_eps\":1e-05,"
                     "\"num_local_experts\":8,\"num_experts_per_tok\":2}"},
    {"qwen3-30b-a3b", "{\"model_type\":\"qwen3_moe\",\"vocab_size\":151936,\"hidden_size\":2048,\"num_hidden_layers\":48,"
                      "\"num_attention_heads\":32,\"num_key_value_heads\":4,\"intermediate_size\":6144,"
                      "\"max_position_embeddings\":40960,\"tie_word_embeddings\":false,\"rms_norm_eps\":1e-06,\"rope_theta\":"
                      "1000000.0,\"head_dim\":128,"
                      "\"moe_intermediate_size\":768,\"num_experts\":128,\"num_experts_per_tok\":8,\"decoder_sparse_step\":1,"
                      "\"mlp_only_layers\":[]}"},
    {"qwen3-235b-a22b",
     "{\"model_type\":\"qwen3_moe\",\"vocab_size\":151936,\"hidden_size\":4096,\"num_hidden_layers\":94,"
     "\"num_attention_heads\":64,\"num_key_value_heads\":4,\"intermediate_size\":12288,"
     "\"max_position_embeddings\":40960,\"tie_word_embeddings\":false,\"rms_norm_eps\":1e-06,\"rope_theta\":1000000.0,\"head_"
     "dim\":128,"
     "\"moe_intermediate_size\":1536,\"num_experts\":128,\"num_experts_per_tok\":8,\"decoder_sparse_step\":1,"
     "\"mlp_only_layers\":[]}"},
    {"phi-3-mini",
     "{\"model_type\":\"phi3\",\"vocab_size\":32064,\"hidden_size\":3072,\"num_hidden_layers\":32,"
     "\"num_attention_heads\":32,\"num_key_value_heads\":32,\"intermediate_size\":8192,"
     "\"max_position_embeddings\":4096,\"tie_word_embeddings\":false,\"rms_norm_eps\":1e-05,\"sliding_window\":2047}"},
    {"phi-3-medium",
     "{\"model_type\":\"phi3\",\"vocab_size\":32064,\"hidden_size\":5120,\"num_hidden_layers\":40,"
     "\"num_attention_heads\":40,\"num_key_value_heads\":10,\"intermediate_size\":17920,"
     "\"max_position_embeddings\":4096,\"tie_word_embeddings\":false,\"rms_norm_eps\":1e-05,\"sliding_window\":2047}"},
    {"phi-4", "{\"model_type\":\"phi3\",\"vocab_size\":100352,\"hidden_size\":5120,\"num_hidden_layers\":40,"
              "\"num_attention_heads\":40,\"num_key_value_heads\":10,\"intermediate_size\":17920,"
              "\"max_position_embeddings\":16384,\"tie_word_embeddings\":false,\"rms_norm_eps\":1e-05,"
              "\"rope_theta\":250000.0}"},
    {"gemma-2-2b",
     "{\"model_type\":\"gemma2\",\"vocab_size\":256000,\"hidden_size\":2304,\"num_hidden_layers\":26,"
     "\"num_attention_heads\":8,\"num_key_value_heads\":4,\"head_dim\":256,\"intermediate_size\":9216,"
     "\"max_position_embeddings\":8192,\"sliding_window\":4096,\"query_pre_attn_scalar\":256,"
     "\"attn_logit_softcapping\":50.0,\"final_logit_softcapping\":30.0,\"hidden_activation\":\"gelu_pytorch_tanh\","
     "\"tie_word_embeddings\":true,\"rms_norm_eps\":1e-06}"},
    {"gemma-2-9b",
     "{\"model_type\":\"gemma2\",\"vocab_size\":256000,\"hidden_size\":3584,\"num_hidden_layers\":42,"
     "\"num_attention_heads\":16,\"num_key_value_heads\":8,\"head_dim\":256,\"intermediate_size\":14336,"
     "\"max_position_embeddings\":8192,\"sliding_window\":4096,\"query_pre_attn_scalar\":256,"
     "\"attn_logit_softcapping\":50.0,\"final_logit_softcapping\":30.0,\"hidden_activation\":\"gelu_pytorch_tanh\","
     "\"tie_word_embeddings\":true,\"rms_norm_eps\":1e-06}"},
    {"gemma-2-27b",
     "{\"model_type\":\"gemma2\",\"vocab_size\":256000,\"hidden_size\":4608,\"num_hidden_layers\":46,"
     "\"num_attention_heads\":32,\"num_key_value_heads\":16,\"head_dim\":128,\"intermediate_size\":36864,"
     "\"max_position_embeddings\":8192,\"sliding_window\":4096,\"query_pre_attn_scalar\":144,"
     "\"attn_logit_softcapping\":50.0,\"final_logit_softcapping\":30.0,\"hidden_activation\":\"gelu_pytorch_tanh\","
     "\"tie_word_embeddings\":true,\"rms_norm_eps\":1e-06}"},
    {"gemma-3-1b", "{\"model_type\":\"gemma3_text\",\"vocab_size\":262144,\"hidden_size\":1152,\"num_hidden_layers\":26,"
                   "\"num_attention_heads\":4,\"num_key_value_heads\":1,\"head_dim\":256,\"intermediate_size\":6912,"
                   "\"max_position_embeddings\":32768,\"sliding_window\":512,\"sliding_window_pattern\":6,"
                   "\"query_pre_attn_scalar\":256,\"rope_theta\":1000000.0,\"rope_local_base_freq\":10000.0,"
                   "\"hidden_activation\":\"gelu_pytorch_tanh\",\"tie_word_embeddings\":true,\"rms_norm_eps\":1e-06}"},
    {"gemma-3-4b", "{\"model_type\":\"gemma3_text\",\"vocab_size\":262208,\"hidden_size\":2560,\"num_hidden_layers\":34,"
                   "\"num_attention_heads\":8,\"num_key_value_heads\":4,\"head_dim\":256,\"intermediate_size\":10240,"
                   "\"max_position_embeddings\":131072,\"sliding_window\":1024,\"sliding_window_pattern\":6,"
                   "\"query_pre_attn_scalar\":256,\"rope_theta\":1000000.0,\"rope_local_base_freq\":10000.0,"
                   "\"hidden_activation\":\"gelu_pytorch_tanh\",\"tie_word_embeddings\":true,\"rms_norm_eps\":1e-06}"},
    {"gemma-3-12b", "{\"model_type\":\"gemma3_text\",\"vocab_size\":262208,\"hidden_size\":3840,\"num_hidden_layers\":48,"
                    "\"num_attention_heads\":16,\"num_key_value_heads\":8,\"head_dim\":256,\"intermediate_size\":15360,"
                    "\"max_position_embeddings\":131072,\"sliding_window\":1024,\"sliding_window_pattern\":6,"
                    "\"query_pre_attn_scalar\":256,\"rope_theta\":1000000.0,\"rope_local_base_freq\":10000.0,"
                    "\"hidden_activation\":\"gelu_pytorch_tanh\",\"tie_word_embeddings\":true,\"rms_norm_eps\":1e-06}"},
    {"gemma-3-27b", "{\"model_type\":\"gemma3_text\",\"vocab_size\":262208,\"hidden_size\":5376,\"num_hidden_layers\":62,"
                    "\"num_attention_heads\":32,\"num_key_value_heads\":16,\"head_dim\":128,\"intermediate_size\":21504,"
                    "\"max_position_embeddings\":131072,\"sliding_window\":1024,\"sliding_window_pattern\":6,"
                    "\"query_pre_attn_scalar\":168,\"rope_theta\":1000000.0,\"rope_local_base_freq\":10000.0,"
                    "\"hidden_activation\":\"gelu_pytorch_tanh\",\"tie_word_embeddings\":true,\"rms_norm_eps\":1e-06}"},
    {"gpt-oss-20b",
     "{\"model_type\":\"gpt_oss\",\"vocab_size\":201088,\"hidden_size\":2880,\"num_hidden_layers\":24,"
     "\"num_attention_heads\":64,\"num_key_value_heads\":8,\"head_dim\":64,\"intermediate_size\":2880,"
     "\"num_local_experts\":32,\"num_experts_per_tok\":4,\"max_position_embeddings\":131072,\"sliding_window\":128,"
     "\"attention_bias\":true,\"rope_theta\":150000.0,\"rope_scaling\":{\"rope_type\":\"yarn\",\"factor\":32.0,"
     "\"beta_fast\":32.0,\"beta_slow\":1.0,\"original_max_position_embeddings\":4096,\"truncate\":false},"
     "\"swiglu_limit\":7.0,\"tie_word_embeddings\":false,\"rms_norm_eps\":1e-05}"},
    {"gpt-oss-120b",
     "{\"model_type\":\"gpt_oss\",\"vocab_size\":201088,\"hidden_size\":2880,\"num_hidden_layers\":36,"
     "\"num_attention_heads\":64,\"num_key_value_heads\":8,\"head_dim\":64,\"intermediate_size\":2880,"
     "\"num_local_experts\":128,\"num_experts_per_tok\":4,\"max_position_embeddings\":131072,\"sliding_window\":128,"
     "\"attention_bias\":true,\"rope_theta\":150000.0,\"rope_scaling\":{\"rope_type\":\"yarn\",\"factor\":32.0,"
     "\"beta_fast\":32.0,\"beta_slow\":1.0,\"original_max_position_embeddings\":4096,\"truncate\":false},"
     "\"swiglu_limit\":7.0,\"tie_word_embeddings\":false,\"rms_norm_eps\":1e-05}"},
    {"deepseek-v3",
     "{\"model_type\":\"deepseek_v3\",\"vocab_size\":129280,\"hidden_size\":7168,\"num_hidden_layers\":61,"
     "\"num_attention_heads\":128,\"num_key_value_heads\":128,\"q_lora_rank\":1536,\"kv_lora_rank\":512,"
     "\"qk_nope_head_dim\":128,\"qk_rope_head_dim\":64,\"v_head_dim\":128,\"intermediate_size\":18432,"
     "\"moe_intermediate_size\":2048,\"n_routed_experts\":256,\"n_shared_experts\":1,\"num_experts_per_tok\":8,"
     "\"first_k_dense_replace\":3,\"moe_layer_freq\":1,\"n_group\":8,\"topk_group\":4,\"topk_method\":\"noaux_tc\","
     "\"scoring_func\":\"sigmoid\",\"norm_topk_prob\":true,\"routed_scaling_factor\":2.5,"
     "\"max_position_embeddings\":163840,\"rope_theta\":10000.0,\"rope_scaling\":{\"type\":\"yarn\",\"factor\":40,"
     "\"beta_fast\":32,\"beta_slow\":1,\"mscale\":1.0,\"mscale_all_dim\":1.0,"
     "\"original_max_position_embeddings\":4096},\"tie_word_embeddings\":false,\"rms_norm_eps\":1e-06}"},
    {"moonlight-16b-a3b",
     "{\"model_type\":\"deepseek_v3\",\"vocab_size\":163840,\"hidden_size\":2048,\"num_hidden_layers\":27,"
     "\"num_attention_heads\":16,\"num_key_value_heads\":16,\"q_lora_rank\":null,\"kv_lora_rank\":512,"
     "\"qk_nope_head_dim\":128,\"qk_rope_head_dim\":64,\"v_head_dim\":128,\"intermediate_size\":11264,"
     "\"moe_intermediate_size\":1408,\"n_routed_experts\":64,\"n_shared_experts\":2,\"num_experts_per_tok\":6,"
     "\"first_k_dense_replace\":1,\"moe_layer_freq\":1,\"n_group\":1,\"topk_group\":1,"
     "\"routed_scaling_factor\":2.446,\"max_position_embeddings\":8192,\"rope_theta\":50000.0,"
     "\"tie_word_embeddings\":false,\"rms_norm_eps\":1e-05}"},
    {"qwen1.5-moe-a2.7b",
     "{\"model_type\":\"qwen2_moe\",\"vocab_size\":151936,\"hidden_size\":2048,\"num_hidden_layers\":24,"
     "\"num_attention_heads\":16,\"num_key_value_heads\":16,\"intermediate_size\":5632,"
     "\"moe_intermediate_size\":1408,\"shared_expert_intermediate_size\":5632,\"num_experts\":60,"
     "\"num_experts_per_tok\":4,\"decoder_sparse_step\":1,\"max_position_embeddings\":8192,"
     "\"use_sliding_window\":false,\"qkv_bias\":true,\"rope_theta\":1000000.0,\"tie_word_embeddings\":false,"
     "\"rms_norm_eps\":1e-06}"},
    {"qwen2-57b-a14b", "{\"model_type\":\"qwen2_moe\",\"vocab_size\":151936,\"hidden_size\":3584,\"num_hidden_layers\":28,"
                       "\"num_attention_heads\":28,\"num_key_value_heads\":4,\"intermediate_size\":18944,"
                       "\"moe_intermediate_size\":2560,\"shared_expert_intermediate_size\":20480,\"num_experts\":64,"
                       "\"num_experts_per_tok\":8,\"decoder_sparse_step\":1,\"max_position_embeddings\":131072,"
                       "\"use_sliding_window\":false,\"qkv_bias\":true,\"rope_theta\":1000000.0,\"tie_word_embeddings\":false,"
                       "\"rms_norm_eps\":1e-06}"},
    {"qwen3-next-80b-a3b",
     "{\"model_type\":\"qwen3_next\",\"vocab_size\":151936,\"hidden_size\":2048,\"num_hidden_layers\":48,"
     "\"num_attention_heads\":16,\"num_key_value_heads\":2,\"head_dim\":256,\"linear_num_key_heads\":16,"
     "\"linear_num_value_heads\":32,\"linear_key_head_dim\":128,\"linear_value_head_dim\":128,"
     "\"linear_conv_kernel_dim\":4,\"full_attention_interval\":4,\"intermediate_size\":5120,"
     "\"moe_intermediate_size\":512,\"shared_expert_intermediate_size\":512,\"num_experts\":512,"
     "\"num_experts_per_tok\":10,\"decoder_sparse_step\":1,\"mlp_only_layers\":[],\"norm_topk_prob\":true,"
     "\"max_position_embeddings\":262144,\"partial_rotary_factor\":0.25,\"rope_theta\":10000000.0,"
     "\"attention_bias\":false,\"tie_word_embeddings\":false,\"rms_norm_eps\":1e-06}"},
    {"olmo-2-7b", "{\"model_type\":\"olmo2\",\"vocab_size\":100352,\"hidden_size\":4096,\"num_hidden_layers\":32,"
                  "\"num_attention_heads\":32,\"num_key_value_heads\":32,\"intermediate_size\":11008,"
                  "\"max_position_embeddings\":4096,\"attention_bias\":false,\"rope_theta\":500000.0,"
                  "\"tie_word_embeddings\":false,\"rms_norm_eps\":1e-06}"},
    {"olmo-2-13b", "{\"model_type\":\"olmo2\",\"vocab_size\":100352,\"hidden_size\":5120,\"num_hidden_layers\":40,"
                   "\"num_attention_heads\":40,\"num_key_value_heads\":40,\"intermediate_size\":13824,"
                   "\"max_position_embeddings\":4096,\"attention_bias\":false,\"rope_theta\":500000.0,"
                   "\"tie_word_embeddings\":false,\"rms_norm_eps\":1e-06}"},
    {"olmo-2-32b", "{\"model_type\":\"olmo2\",\"vocab_size\":100352,\"hidden_size\":5120,\"num_hidden_layers\":64,"
                   "\"num_attention_heads\":40,\"num_key_value_heads\":8,\"intermediate_size\":27648,"
                   "\"max_position_embeddings\":4096,\"attention_bias\":false,\"rope_theta\":500000.0,"
                   "\"tie_word_embeddings\":false,\"rms_norm_eps\":1e-06}"},
    {"mixtral-8x22b", "{\"model_type\":\"mixtral\",\"vocab_size\":32000,\"hidden_size\":6144,\"num_hidden_layers\":56,"
                      "\"num_attention_heads\":48,\"num_key_value_heads\":8,\"intermediate_size\":16384,"
                      "\"max_position_embeddings\":65536,\"tie_word_embeddings\":false,\"rms_norm_eps\":1e-05,"
                      "\"rope_theta\":1000000.0,\"num_local_experts\":8,\"num_experts_per_tok\":2}"},
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
