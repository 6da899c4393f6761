#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The transformers library and ours read each other's folders, and compute the same logits.

Method: train exports a model of each family after two steps, transformers loads it strictly; then transformers makes a
model of each family with weights by chance, in each of three element types, and ours starts from it. Logits of all
positions are compared, in fp32, with a bound that stands far below what a wrong weight makes. Scaled rotary positions go
both ways too, in the form of transformers 5 and in the one of before.
usage: interchange_transformers.py TRAIN LOGITS; with a python in EO_PEERS_PYTHON that has transformers and torch
"""
import json
import os
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "../tap"))
import peers
import tap
from tap import finish, result

TOKENS = [(7 * i * i + 3) % 256 for i in range(24)]
BOUND = 2e-5  # of logits about 1 large
MODELS = ["tiny", "llama-tiny", "qwen2-tiny", "qwen3-tiny"]
# Of a head's four pairs llama3 keeps the first, blends the second and divides the others.
THETA = 1000.0
SCALINGS = {
    "linear": {"rope_type": "linear", "factor": 2.5},
    "llama3": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
               "original_max_position_embeddings": 64},
}
SHAPE = dict(hidden_size=48, num_hidden_layers=2, num_attention_heads=6, num_key_value_heads=2, intermediate_size=80,
             vocab_size=256, max_position_embeddings=128)

FILES = {"phi3": SHAPE, "smollm3": dict(SHAPE, no_rope_layer_interval=2)}


def in_form(scaling, old):
    return {"rope_theta": THETA, "rope_scaling": scaling} if old else {"rope_parameters": {"rope_theta": THETA, **scaling}}


def small(family):
    """Settings that differ from a family's defaults, as much as possible."""
    common = dict(hidden_size=48, num_hidden_layers=2, num_attention_heads=6, num_key_value_heads=2,
                  intermediate_size=80, vocab_size=256, max_position_embeddings=64)
    if family == "GPT2":
        return dict(n_embd=48, n_layer=2, n_head=3, vocab_size=256, n_positions=64, layer_norm_epsilon=3e-5)
    if family == "Qwen3":
        return dict(common, head_dim=20, rms_norm_eps=2e-6, tie_word_embeddings=True)
    if family == "Mistral":
        return dict(common, head_dim=8, sliding_window=None, rms_norm_eps=2e-6)
    if family == "Phi3":
        return dict(common, rms_norm_eps=2e-6, pad_token_id=None, eos_token_id=None, bos_token_id=None)
    if family == "SmolLM3":
        return dict(common, rms_norm_eps=2e-6, no_rope_layers=[1, 0], pad_token_id=None, eos_token_id=None, bos_token_id=None,
                    tie_word_embeddings=False)
    return dict(common, rms_norm_eps=2e-6, tie_word_embeddings=family == "Qwen2")


def inside(work):
    """In the python that has transformers: prints a JSON line a question."""
    import torch
    import transformers

    transformers.logging.set_verbosity_error()
    print(json.dumps({"versions": [transformers.__version__, torch.__version__]}))

    def logits(folder):
        model, info = transformers.AutoModelForCausalLM.from_pretrained(folder, output_loading_info=True,
                                                                        dtype=torch.float32)
        with torch.no_grad():
            rows = model(torch.tensor([TOKENS])).logits[0].tolist()
        wrong = [key for key in info if info[key]]
        return {"logits": rows, "wrong": wrong, "class": type(model).__name__}

    for name in [*MODELS, *FILES]:
        print(json.dumps({"name": name, **logits(os.path.join(work, name))}))
    for family in ["GPT2", "Llama", "Mistral", "Qwen2", "Qwen3", "SmolLM3", "Phi3"]:
        for dtype in ["float32", "bfloat16", "float16"]:
            torch.manual_seed(len(family) + len(dtype))
            config = getattr(transformers, family + "Config")(**small(family))
            model = getattr(transformers, family + ("LMHeadModel" if family == "GPT2" else "ForCausalLM"))(config)
            for parameter in model.parameters():  # biases and norms too
                torch.nn.init.normal_(parameter, 0.3 if parameter.dim() == 1 else 0, 0.15)
            name = f"their-{family}-{dtype}"
            model.to(getattr(torch, dtype)).save_pretrained(os.path.join(work, name), max_shard_size="40KB")
            print(json.dumps({"name": name, **logits(os.path.join(work, name))}))
    for kind in SCALINGS:
        print(json.dumps({"name": f"ours-{kind}", **logits(os.path.join(work, f"ours-{kind}"))}))
    for kind, scaling in SCALINGS.items():
        config = transformers.LlamaConfig(**SHAPE, rope_parameters={"rope_theta": THETA, **scaling})
        torch.manual_seed(len(kind))
        model = transformers.LlamaForCausalLM(config)
        for parameter in model.parameters():
            torch.nn.init.normal_(parameter, 0, 0.3)
        for old in False, True:
            folder = os.path.join(work, f"their-{kind}-{'old' if old else 'new'}")
            model.save_pretrained(folder)
            with open(os.path.join(folder, "config.json")) as file:
                saved = {key: value for key, value in json.load(file).items() if not key.startswith("rope")}
            answer = {"name": os.path.basename(folder)}
            for positions in {}, in_form(scaling, old):  # without first, to see that it shows
                with open(os.path.join(folder, "config.json"), "w") as file:
                    json.dump({**saved, **(positions or {"rope_theta": THETA})}, file)
                answer["plain"] = answer.get("logits")
                answer.update(logits(folder))
            print(json.dumps(answer))


def main():
    train, ours = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2])
    if not peers.has("transformers, torch"):
        tap.skip_all(peers.lacks("transformers and torch"))

    with tempfile.TemporaryDirectory() as work:
        with open(os.path.join(work, "text"), "w") as file:
            file.write("".join(f"{i} " for i in range(3000)))
        for name, config in FILES.items():
            with open(os.path.join(work, f"{name}.json"), "w") as file:
                json.dump({"model_type": name, **config}, file)
        for name in [*MODELS, *FILES]:
            subprocess.run([train, "--model", name if name in MODELS else f"./{name}.json", "--text", "text", "--seq", "32", "--batch", "1", "--steps", "2",
                            "--ranks", "2", "--threads", "1", "--sample", "0", "--peak-seconds", "0", "--lr", "0.01",
                            "--export", name], cwd=work, check=True, capture_output=True)
        for kind, scaling in SCALINGS.items():
            config = {"model_type": "llama", **SHAPE, **in_form(scaling, kind == "linear")}
            with open(os.path.join(work, f"{kind}.json"), "w") as file:
                json.dump(config, file)
            subprocess.run([train, "--model", f"./{kind}.json", "--text", "text", "--seq", "32", "--steps", "2", "--ranks",
                            "2", "--threads", "1", "--sample", "0", "--peak-seconds", "0", "--lr", "0.1", "--export",
                            f"ours-{kind}"], cwd=work, check=True, capture_output=True)
        environment = dict(os.environ, HF_HUB_OFFLINE="1", OMP_NUM_THREADS="1")
        theirs = subprocess.run([peers.python, os.path.abspath(__file__), "--inside", work], capture_output=True, text=True,
                                env=environment)
        result(theirs.returncode == 0, "transformers loads what was exported", [theirs.stderr])
        for line in theirs.stdout.splitlines():
            answer = json.loads(line)
            if "versions" in answer:
                print("# transformers {}, torch {}".format(*answer["versions"]))
                continue
            name = answer["name"]
            run = subprocess.run([ours, os.path.join(work, name), "3", *map(str, TOKENS)], capture_output=True, text=True)
            rows = [[float(word) for word in row.split()] for row in run.stdout.splitlines()]
            if run.returncode or len(rows) != len(TOKENS):
                result(False, f"{name}: ours reads it", [run.stderr])
                continue
            most = max(abs(a - b) for mine, other in zip(rows, answer["logits"]) for a, b in zip(mine, other))
            largest = max(abs(b) for row in answer["logits"] for b in row)
            same = max(range(256), key=rows[-1].__getitem__) == max(range(256), key=answer["logits"][-1].__getitem__)
            result(most <= BOUND * max(1, largest) and same and not answer["wrong"],
                   f"{name} ({answer['class']}): logits up to {largest:.2g} differ by {most:.1e} at most",
                   [f"keys that did not fit: {answer['wrong']}"])
            if "plain" in answer:
                shows = max(abs(a - b) for one, other in zip(answer["plain"], answer["logits"]) for a, b in zip(one, other))
                result(shows > 1000 * BOUND, f"{name}: plain positions would give others, by {shows:.1e}")
        result(tap.count == 1 + len(MODELS) + len(FILES) + 21 + 2 + 4 * 2, "every model was compared")
    finish()


if __name__ == "__main__":
    if sys.argv[1] == "--inside":
        inside(sys.argv[2])
    else:
        main()
