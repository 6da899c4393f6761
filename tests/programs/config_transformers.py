#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Parameters, names and shapes of models are those of the transformers library.

Goal: for each config.json of tests/fixtures/configs, and for variants of them, our count of parameters and our list of
tensors are what the transformers library has on meta tensors, in the names of its saved files.
Method: what the library has is committed (parameters, number of tensors, a hash over the sorted list), so that every build
compares; where EO_PEERS_PYTHON names a python with the library, it is made again, and the lists are compared by tensor.
usage: config_transformers.py CONFIG_TENSORS tests/fixtures/config_tensors.json [--write]; the configs lie in configs beside it
"""
import hashlib
import json
import os
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "../tap"))
import peers
import tap
from tap import finish, result, skip

# A fixture, and what is changed: fields that decide tensors, where published models use one value of them.
# None: the field is left out.
VARIANTS = {
    "deepseek-v3, biases": ("moonlight-16b-a3b", dict(attention_bias=True, q_lora_rank=64, num_hidden_layers=3)),
    "deepseek-v3, all dense": ("moonlight-16b-a3b", dict(first_k_dense_replace=3, num_hidden_layers=3)),
    "deepseek-v3, tied": ("moonlight-16b-a3b", dict(first_k_dense_replace=0, num_hidden_layers=2, tie_word_embeddings=True)),
    "gemma-2, biases, untied": ("gemma-2-2b", dict(attention_bias=True, tie_word_embeddings=False, num_hidden_layers=2)),
    "gemma-3, biases": ("gemma-3-1b", dict(attention_bias=True, num_hidden_layers=2)),
    "gpt-oss, no biases": ("gpt-oss-20b", dict(attention_bias=False, num_hidden_layers=2)),
    "olmo-2, biases, tied": ("olmo-2-32b", dict(attention_bias=True, tie_word_embeddings=True, num_hidden_layers=2)),
    "qwen2-moe, dense layers": ("qwen1.5-moe-a2.7b", dict(num_hidden_layers=6, decoder_sparse_step=2, mlp_only_layers=[1],
                                                          qkv_bias=False)),
    "qwen3-next, listed layers": ("qwen3-next-80b-a3b", dict(
        num_hidden_layers=4, layer_types=["full_attention", "linear_attention", "linear_attention", "full_attention"],
        mlp_only_layers=[2], linear_num_value_heads=16, linear_conv_kernel_dim=2, attention_bias=True)),
    "phi-3, few heads": ("phi-3-mini", dict(num_hidden_layers=2, num_key_value_heads=4, tie_word_embeddings=True)),
    "qwen3-moe, dense layers": ("qwen3-30b-a3b", dict(num_hidden_layers=4, mlp_only_layers=[0], attention_bias=True)),
    "qwen3-moe, experts as version 5 saves them": ("qwen3-30b-a3b", dict(num_hidden_layers=2, num_experts=None,
                                                                         num_local_experts=16)),
    "mixtral, experts under their other name": ("mixtral-8x7b", dict(num_hidden_layers=2, num_local_experts=None,
                                                                     num_experts=16)),
    "gpt-oss, experts under their other name": ("gpt-oss-20b", dict(num_hidden_layers=2, num_local_experts=None,
                                                                    num_experts=16)),
    "deepseek-v3, experts under their other name": ("moonlight-16b-a3b", dict(num_hidden_layers=2, n_routed_experts=None,
                                                                              num_local_experts=16)),
    "gpt-2 under Llama's names": ("gpt2", dict(n_layer=None, n_embd=None, n_head=None, n_positions=None, n_ctx=None,
                                               num_hidden_layers=2, hidden_size=64, num_attention_heads=4,
                                               max_position_embeddings=128)),
    "llama, biases": ("llama-3.2-1b", dict(num_hidden_layers=2, attention_bias=True, mlp_bias=True)),
}
# The family's defaults, where a file says nothing but its layers.
BARE = ["gemma2", "gemma3_text", "gpt_oss", "deepseek_v3", "qwen2_moe", "qwen3_next", "olmo2"]
# These have them as parts of larger models.
PARTS = ["gpt2", "llama", "mistral", "qwen2", "qwen3", "mixtral", "qwen3_moe", "phi3", "smollm3"]


def configs(folder):
    found = {name[:-5]: json.load(open(os.path.join(folder, name)))
             for name in sorted(os.listdir(folder)) if name.endswith(".json")}
    for name, (base, changes) in VARIANTS.items():
        found[name] = {key: value for key, value in {**found[base], **changes}.items() if changes.get(key, key) is not None}
    for family in BARE + PARTS:
        found[f"{family} by default"] = {"model_type": family, "num_hidden_layers": 4}
    return found


def summary(parameters, tensors):
    text = json.dumps(tensors, sort_keys=True, separators=(",", ":"))
    return {"parameters": parameters, "tensors": len(tensors), "sha256": hashlib.sha256(text.encode()).hexdigest()}


def inside(path):
    """In the python that has transformers: a JSON line a model."""
    import torch
    import transformers
    from transformers.core_model_loading import revert_weight_conversion

    transformers.logging.set_verbosity_error()
    for name, fields in json.load(open(path)).items():
        config = transformers.CONFIG_MAPPING[fields["model_type"]].from_dict(fields)
        with torch.device("meta"):
            model = transformers.AutoModelForCausalLM.from_config(config)
        saved = revert_weight_conversion(model, model.state_dict())
        if config.tie_word_embeddings:
            del saved["lm_head.weight"]
        print(json.dumps({"name": name, "parameters": sum(p.numel() for p in model.parameters()),
                          "tensors": {key.removeprefix("transformer."): list(value.shape) for key, value in saved.items()}}),
              flush=True)


def main():
    program, known_path = os.path.abspath(sys.argv[1]), sys.argv[2]
    folder = os.path.join(os.path.dirname(known_path), "configs")
    known = json.load(open(known_path)) if os.path.exists(known_path) else {}

    def ours_of(model):
        run = subprocess.run([program, model], capture_output=True, text=True)
        return json.loads(run.stdout) if run.returncode == 0 else {"error": run.stderr}

    with tempfile.TemporaryDirectory() as work:
        models, ours = configs(folder), {}
        for name, fields in models.items():
            path = os.path.join(work, "config.json")
            with open(path, "w") as file:
                json.dump({"text_config": fields} if name.removesuffix(" by default") in PARTS else fields, file)
            ours[name] = ours_of(path)
            if "error" in ours[name]:
                result(False, f"{name} is read", [ours[name]["error"]])
                del ours[name]
        wrong = [f"{name}: {ours[name]['parameters']} parameters, {len(ours[name]['tensors'])} tensors; {known.get(name)}"
                 for name in ours if summary(ours[name]["parameters"], ours[name]["tensors"]) != known.get(name)]
        result(not wrong, f"{len(ours)} models have the transformers library's parameters, names and shapes, as committed",
               wrong)
        wrong = [name for name in ours if len(ours[name]["tensors"]) != ours[name]["count"]]
        result(ours and not wrong, "the number of tensors is that of the list", wrong)
        named = {name: ours_of(name) for name in ours if name not in VARIANTS and "default" not in name}
        wrong = [name for name in named if named[name].get("tensors") != ours[name]["tensors"]]
        result(named and not wrong, f"{len(named)} names are models like their files", wrong)
        wrong = [f"{name}: {ours[name]['unknown']} {ours[name]['not_computed']}" for name in ours
                 if ours[name]["unknown"] or ours[name]["not_computed"]]
        result(not wrong, "no key of theirs is passed over", wrong)
        if not peers.has("transformers, torch"):
            skip("the same, made again by the library", peers.lacks("it"))
            return finish()
        with open(os.path.join(work, "all.json"), "w") as file:
            json.dump(models, file)
        with subprocess.Popen([peers.python, os.path.abspath(__file__), "--inside", os.path.join(work, "all.json")],
                              stdout=subprocess.PIPE, text=True) as run:
            made = {}
            for line in run.stdout:
                theirs = json.loads(line)
                name, tensors = theirs["name"], theirs["tensors"]
                mine = ours.get(name, {"parameters": 0, "tensors": {}})
                made[name] = summary(theirs["parameters"], tensors)
                differ = [f"{key}: ours {mine['tensors'].get(key)}, theirs {tensors.get(key)}"
                          for key in sorted({**tensors, **mine["tensors"]}) if tensors.get(key) != mine["tensors"].get(key)]
                result(not differ and mine["parameters"] == theirs["parameters"],
                       f"{name}: {theirs['parameters']} parameters in {len(tensors)} tensors",
                       [f"ours {mine['parameters']}", *differ])
        result(list(made) == list(models), "the library made all of them")
        if "--write" in sys.argv and tap.failed <= 1:  # the comparison with what was committed
            with open(known_path, "w") as file:
                json.dump(made, file, indent=1)
                file.write("\n")
        result(made == known, "it makes what is committed")
        finish()


if __name__ == "__main__":
    if sys.argv[1:2] == ["--inside"]:
        inside(sys.argv[2])
    else:
        main()
