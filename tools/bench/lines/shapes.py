# SPDX-License-Identifier: MIT
"""Other shapes than those that speed was worked on: thin, deep, heads of odd sizes, a large vocabulary; against the peer."""
import json

from lines import ours, peers
from lines.measure import line, median, ratio
from lines.speed import speeds


def gpt2(layers, width, heads, vocabulary):
    return {"architectures": ["GPT2LMHeadModel"], "model_type": "gpt2", "n_layer": layers, "n_embd": width, "n_head": heads,
            "vocab_size": vocabulary, "n_positions": 1024}


def llama(layers, width, heads, kv_heads, mlp_width, vocabulary):
    return {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "num_hidden_layers": layers, "hidden_size": width,
            "num_attention_heads": heads, "num_key_value_heads": kv_heads, "intermediate_size": mlp_width,
            "vocab_size": vocabulary, "max_position_embeddings": 4096, "rms_norm_eps": 1e-5, "rope_theta": 500000.0,
            "hidden_act": "silu", "tie_word_embeddings": False}


# As the peer program has them by the same names: config.json, sequences a rank and step, tokens of each, steps.
SHAPES = {
    "gpt-thin": (gpt2(8, 64, 4, 256), 8, 64, 40),
    "gpt-deep": (gpt2(48, 128, 2, 256), 2, 128, 20),
    "gpt-h80": (gpt2(4, 640, 8, 32000), 2, 512, 4),
    "llama-h256": (llama(4, 512, 2, 1, 1408, 256), 2, 1024, 4),
    "llama-vocab": (llama(2, 256, 4, 2, 688, 128256), 2, 256, 4),
}


def shapes(context):
    """2 ranks x 1 thread, in both types. Tokens are of the default text, whose bytes every vocabulary has."""
    lines = []
    for name, (config, batch, seq, steps) in list(SHAPES.items())[:1 if context.quick else None]:
        path = context.path(f"{name}.json")
        with open(path, "w", encoding="utf-8") as file:
            json.dump(config, file)
        for dtype in ("fp32", "bf16"):
            makers = {"evenodd": lambda: ours.train(context, path, steps, "--ranks", "2", "--threads", "1", "--batch", str(batch),
                                                    "--seq", str(seq), "--dtype", dtype, data=())}
            if context.peers:
                peer_type = peers.type_for(context, dtype)
                makers["FSDP2"] = lambda: peers.fsdp2(context, name, batch, seq, steps, dtype=peer_type)
            results = context.in_turn(context.runs, makers)
            mine, what = speeds(results["evenodd"]), f"speed, {name} {dtype}, 2 x 1, batch {batch}, seq {seq}"
            if "FSDP2" not in results:
                lines.append(line("shapes", what, ">= 1.6 x FSDP2", f"{median(mine):.0f} tokens/s (ratio: --peers)", None,
                                  tokens_per_s=mine))
                continue
            theirs = speeds(results["FSDP2"])
            found = ratio(mine, theirs)
            lines.append(line("shapes", what, ">= 1.6 x FSDP2",
                              f"{found['ratio']:.2f} x ({median(mine):.0f} / {median(theirs):.0f} tokens/s; PyTorch in {peer_type})",
                              found["ratio"] >= 1.6, found, tokens_per_s=mine, fsdp2_tokens_per_s=theirs))
    return lines
