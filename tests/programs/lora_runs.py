# SPDX-License-Identifier: MIT
#
# Goal: train --lora trains adapters and nothing else, in the bytes that were planned, over ranks, types and settings; its exports are
#       PEFT's; the commands of docs/finetuning.md run.
# Method: small models of each family. Weights are compared as bytes of safetensors files. With a python in EO_PEERS_PYTHON that has
#         peft and transformers, PEFT loads the adapters, and its logits are compared with those of our merged weights.
# usage: lora_runs.py TRAIN MEMPLAN CHECKPOINT LAUNCH LOGITS SOURCE
import json
import math
import os
import re
import shlex
import struct
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "../tap"))
import peers
from tap import finish, result, skip

train, memplan, checkpoint, launch, logits, source = (os.path.realpath(word) for word in sys.argv[1:7])
QUICK = ["--seq", "32", "--sample", "0", "--peak-seconds", "0", "--threads", "1"]
TOKENS = [(7 * i * i + 3) % 256 for i in range(24)]
BOUND = 1e-5  # of logits about 1 large
PHI3 = "./phi3.json"  # its files have q, k and v in one tensor, and gate and up
MODELS = {"tiny": "c_attn", "llama-tiny": "q_proj+v_proj", "qwen3-tiny": "all-linear", "qwen2-tiny": "k_proj+o_proj+down_proj",
          "phi3": "qkv_proj+gate_up_proj+o_proj"}


def run(*words, **more):
    return subprocess.run(words, capture_output=True, text=True, check=False, timeout=600, **more)


def ran(*words):
    """A run of train with these words: its summary, or None."""
    if os.path.exists("log"):
        os.remove("log")
    done = run(train, *QUICK, "--log", "log", *words)
    if done.returncode:
        return {"error": done.stderr}
    with open("log", encoding="utf-8") as file:
        return json.loads(file.readlines()[-1])["summary"]


def tensors_of(folder, name):
    """Names, shapes and bytes of a safetensors file."""
    with open(os.path.join(folder, name), "rb") as file:
        data = file.read()
    length = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:8 + length])
    header.pop("__metadata__")
    return {key: (value["shape"], data[8 + length + value["data_offsets"][0]:8 + length + value["data_offsets"][1]])
            for key, value in header.items()}


def check_refusals():
    cases = [("of a layer that is none", "they have c_attn, c_proj, c_fc", "r=2,targets=q_proj"),
             ("of a rank that is too large", "at most 128 is possible", "r=200,targets=c_attn"),
             ("of rank 0", "--lora r is 0, too small", "r=0"), ("without a rank", "has no rank", "alpha=4"),
             ("with a word that is none", "has 'rank=4'", "rank=4"), ("with an alpha that is none", "--lora alpha is '-1'", "r=4,alpha=-1"),
             ("without targets", "has 'targets='", "r=4,targets="), ("with a name that is none", "has an empty name", "r=4,targets=c_attn+"),
             ("with two ranks", "has 'r=8' after another", "4,alpha=2,r=8"), ("with two lists", "has 'targets=c_attn' after another", "4,targets=c_fc,targets=c_attn")]
    for text, said, lora in cases:
        done = run(train, "--model", "tiny", "--lora", lora, "--steps", "1", *QUICK)
        result(done.returncode == 2 and said in done.stderr, f"adapters {text} are refused", [done.stderr])
    for text, said, words in [("dynamic memory", "--memory static", ["--memory", "dynamic:pool"]),
                              ("float8 gathers", "leave it out", ["--gather", "float8", "--dtype", "bf16"]),
                              ("Muon", "give --optimizer adamw", ["--optimizer", "muon"]),
                              ("a file of llm.c", "has no adapters", ["--export", "x.bin"]),
                              ("frozen matrices of another type", "give dtype or mxfp8", ["--frozen", "nf4"])]:
        done = run(train, "--model", "tiny", "--lora", "4", "--steps", "1", *QUICK, *words)
        result(done.returncode == 2 and said in done.stderr, f"adapters and {text} are refused", [done.stderr])
    done = run(train, "--model", "tiny", "--export", "x", "--export-merged", "--steps", "1", *QUICK)
    result(done.returncode == 2 and "needs --lora" in done.stderr, "--export-merged without adapters is refused", [done.stderr])
    done = run(train, "--model", "tiny", "--frozen", "mxfp8", "--steps", "1", *QUICK)
    result(done.returncode == 2 and "nothing is frozen" in done.stderr, "--frozen mxfp8 without adapters is refused", [done.stderr])


def check_llmc():
    """Adapters beside weights of llm.c, which have no config; what an adapter had and nothing here computes is told."""
    ran("--model", "tiny", "--steps", "1", "--export", "base.bin")
    words = ["--init", "base.bin", "--model", "tiny", "--lora", "r=4,targets=c_attn", "--steps", "1", "--lr", "0"]
    first = ran(*words, "--export", "of_llmc")
    again = ran(*words, "--init-adapter", "of_llmc")
    result(first.get("weights_hash") and first["weights_hash"] == again.get("weights_hash"),
           "adapters go on beside weights of llm.c", [first, again])
    with open("of_llmc/adapter_config.json", encoding="utf-8") as file:
        config = json.load(file)
    with open("of_llmc/adapter_config.json", "w", encoding="utf-8") as file:
        json.dump(config | {"lora_dropout": 0.05}, file)
    done = run(train, *QUICK, *words, "--init-adapter", "of_llmc")
    result(done.returncode == 0 and "lora_dropout 0.05 is not taken" in done.stderr, "an adapter's dropout is told", [done.stderr])


def write_packed():
    """A token file with the beginnings of documents, of 1 to 30 tokens."""
    tokens = [0 if i % 31 in (0, 7, 9, 22) else 1 + i * 7919 % 255 for i in range(1500)]
    with open("packed.bin", "wb") as file:
        file.write(struct.pack("<iiI4sIIQI", 20240520, 1, len(tokens), b"EOTK", 256, 0, 0, 0).ljust(1024, b"\0"))
        file.write(struct.pack(f"<{len(tokens)}H", *tokens))


def check_packed():
    """Adapters learn of packed documents, in the same bits after a resume and over processes."""
    words = ["--model", "llama-tiny", "--lora", "r=4,targets=q_proj+v_proj", "--tokens", "packed.bin", "--pack", "documents", "--batch", "1",
             "--steps", "6", "--lr", "0.01"]
    one, offloaded = ran(*words), ran(*words, "--offload-activations", "all", "--recompute", "all")
    ran(*words, "--checkpoint", "packed", "--checkpoint-every", "3")
    os.rename("packed/step-000000000006", "packed-six")
    resumed = ran(*words, "--resume", "packed")
    same = one.get("weights_hash") and one["weights_hash"] == resumed.get("weights_hash") == offloaded.get("weights_hash")
    result(same, "packed documents: offloaded, recomputed and resumed runs end in the same bits", [one, offloaded, resumed])
    plain = ran(*words[:-6], "--steps", "6", "--lr", "0.01")
    result("weights_hash" in plain and plain["weights_hash"] != one.get("weights_hash"), "and not in those of a stream", [plain])


def check_bytes():
    """Planned = reserved, no call of an allocator, and memplan plans the same, for settings of all kinds."""
    wrong = []
    settings = ["", "--dtype bf16 --ranks 3 --micro-batches 2", "--recompute cheap --granularity half", "--recompute all --ranks 1",
                "--dtype bf16 --recompute 2 --strategy zero2 --granularity blocks:2", "--strategy ddp --dropout 0.1 --ema 0.99",
                "--ranks 4 --strategy hsdp:2 --micro-batches 2 --bucketing 2,2", "--offload-layers all --dtype bf16 --reduce bf16",
                "--tokens packed.bin --pack documents --offload-activations all", "--offload-activations 2 --recompute cheap",
                "--tokens packed.bin --pack documents --dtype bf16 --micro-batches 2 --recompute all", "--offload-activations all --dtype bf16",
                "--frozen mxfp8 --ranks 3 --micro-batches 2", "--frozen mxfp8 --dtype bf16 --recompute all --granularity half --strategy ddp",
                "--frozen mxfp8 --dtype bf16 --norms fp32 --ranks 4 --strategy hsdp:2 --bucketing 2,2 --offload-layers all", "--frozen mxfp8 --ranks 1",
                "--frozen mxfp8 --dtype bf16 --granularity blocks:2 --slots 3,1 --offload-activations all --no-prefetch",
                "--frozen mxfp8 --ranks 3 --strategy zero2 --micro-batches 2", "--frozen mxfp8 --dtype bf16 --strategy zero1 --granularity half",
                "--frozen mxfp8 --strategy zero2 --dtype bf16 --reduce bf16 --offload-layers all --late-updates --recompute cheap",
                "--frozen mxfp8 --strategy zero1 --optimizer adamw8bit --no-prefetch --micro-batches 2",
                "--instruction-set reference --dtype bf16", "--instruction-set reference --granularity half --recompute cheap"]
    for number, words in enumerate(settings):
        model = list(MODELS)[number % 4]
        summary = ran("--model", model, "--lora", f"r=4,targets={MODELS[model]}", "--steps", "3", *words.split())
        if "error" in summary or summary["arena_bytes"] != summary["planned_bytes"] or summary["allocator_calls_per_step"]:
            wrong.append((model, words, summary))
            continue
        if "reference" in words:  # memplan plans for the fast kernels
            continue
        done = run(memplan, "--model", model, "--verify", "log")
        if done.returncode or "0 differences" not in done.stdout:
            wrong.append((model, words, done.stdout, done.stderr))
    result(not wrong, f"{len(settings)} settings: planned = reserved bytes, as memplan plans them, and no allocation in a step", wrong)
    full, lora = (ran("--model", "small", "--batch", "1", "--ranks", "1", "--steps", "1", *words) for words in ([], ["--lora", "4"]))
    result(lora["arena_bytes"] < 0.5 * full["arena_bytes"], "adapters take less than half the memory of a full training", [full, lora])


def check_same_training():
    """Ranks, processes, recompute and a resumed run train the same."""
    words = ["--model", "llama-tiny", "--lora", "r=4,targets=q_proj+v_proj+up_proj", "--steps", "6", "--lr", "0.01"]
    one = ran(*words)
    again = ran(*words, "--recompute", "all")
    result(one["weights_hash"] == again["weights_hash"], "recompute changes no bit", [one, again])
    ran(*words, "--checkpoint", "saved", "--checkpoint-every", "3")
    os.rename("saved/step-000000000006", "six")
    resumed = ran(*words, "--resume", "saved")
    result(one["weights_hash"] == resumed.get("weights_hash"), "a resumed run ends in the same bits", [one, resumed])
    done = run(launch, "-n", "2", train, *QUICK, *words)
    result(one["weights_hash"] in done.stdout, "processes train as threads do", [done.stdout, done.stderr])
    done = run(train, *QUICK, *words, "--export", "direct")
    converted = run(checkpoint, "convert", "six", "converted")
    same = not converted.returncode and not done.returncode and tensors_of("direct", "adapter_model.safetensors") == tensors_of(
        "converted", "adapter_model.safetensors")
    result(same, "checkpoint convert writes the adapters that train exports", [converted.stderr, done.stderr])


def check_frozen():
    """Of a whole training of a block nothing changes but the adapters: a merged export differs where they stand alone."""
    for model, targets in MODELS.items():
        run(train, "--model", PHI3 if model == "phi3" else model, "--steps", "2", "--lr", "0.01", "--export", f"base-{model}", *QUICK)
        words = ["--init", f"base-{model}", "--lora", f"r=4,alpha=6,targets={targets}", "--steps", "8", "--lr", "0.02", *QUICK]
        plain = run(train, *words, "--export", f"adapter-{model}")
        merged = run(train, *words, "--export", f"merged-{model}", "--export-merged")
        if plain.returncode or merged.returncode:
            result(False, f"{model} is exported", [plain.stderr, merged.stderr])
            continue
        before, after = (tensors_of(f"{kind}-{model}", "model.safetensors") for kind in ("base", "merged"))
        changed = sorted(name for name in before if before[name] != after[name])
        names = targets.split("+") if targets != "all-linear" else [part + "_proj" for part in ("q", "k", "v", "o", "gate", "up", "down")]
        expected = sorted(name for name in before if any(name.endswith(f".{part}.weight") for part in names))
        result(changed == expected and before.keys() == after.keys(), f"{model}: {targets} alone change", [changed, expected])
        adapters = tensors_of(f"adapter-{model}", "adapter_model.safetensors")
        modules = sorted({re.sub(r"^base_model\.model\.(.*)\.lora_[AB]\.weight$", r"\1.weight", name) for name in adapters})
        with open(f"adapter-{model}/adapter_config.json", encoding="utf-8") as file:
            config = json.load(file)
        parts = 3 if model == "phi3" else 1  # of qkv_proj; all others have its rank, for many readers know one alone
        one = (config["r"], config["lora_alpha"], config["rank_pattern"], config["alpha_pattern"]) == (4 * parts, 6 * parts, {}, {})
        expected = ["transformer." * (model == "tiny") + name for name in expected]  # PEFT's are those of the module tree
        result(modules == expected and one and all(shape[".lora_B." in name] == 4 * parts for name, (shape, _) in adapters.items()),
               f"{model}: adapters have PEFT's names, and one rank", [modules, expected, config])
    done = run(train, "--init", "base-phi3", "--lora", "r=4,targets=q_proj+o_proj", "--steps", "1", "--export", "part", *QUICK)
    result(done.returncode == 2 and "add qkv_proj to its targets" in done.stderr, "phi3: an adapter of a part of a tensor is refused",
           [done.stderr])


def in_mxfp8(data):
    """Floats as bytes, each block of 32 rounded by the formula: to four significant bits, and no finer than 2^-9 of the scale."""
    values = struct.unpack(f"<{len(data) // 4}f", data)
    rounded = []
    for begin in range(0, len(values), 32):
        block = values[begin:begin + 32]
        largest, scale = max(map(abs, block)), 2.0 ** -100
        while largest / scale > 448:
            scale *= 2
        units = [max(scale * 2.0 ** -9, 2.0 ** (math.frexp(value)[1] - 4)) for value in block]
        rounded += [math.copysign(round(value / unit) * unit, value) for value, unit in zip(block, units)]  # ties to even
    return struct.pack(f"<{len(rounded)}f", *rounded)


def check_mxfp8():
    """A base in MXFP8 is the file's, rounded by the formula, for all numbers of ranks, in processes, and from and to checkpoints."""
    targets, still = MODELS["llama-tiny"], ["--lr", "0", "--weight-decay", "0", *QUICK]
    words = ["--init", "base-llama-tiny", "--lora", f"r=4,targets={targets}", "--frozen", "mxfp8"]
    plain = tensors_of("base-llama-tiny", "model.safetensors")
    wanted = {name: (shape, in_mxfp8(data) if name.endswith("_proj.weight") else data) for name, (shape, data) in plain.items()}
    result(plain != wanted and any(plain[name] == wanted[name] for name in plain), "the formula rounds the blocks' matrices alone")
    wrong = []
    for ranks in (1, 2, 3):
        done = run(train, *words, *still, "--steps", "2", "--ranks", str(ranks), "--checkpoint", f"still-{ranks}", "--export", f"rounded-{ranks}",
                   "--export-merged")
        if done.returncode or tensors_of(f"rounded-{ranks}", "model.safetensors") != wanted:
            wrong.append((ranks, done.stderr))
    for strategy in ("zero2", "zero1", "ddp", "hsdp:2"):
        done = run(train, *words, *still, "--steps", "2", "--ranks", "2", "--strategy", strategy, "--export", f"rounded-{strategy}",
                   "--export-merged")
        if done.returncode or tensors_of(f"rounded-{strategy}", "model.safetensors") != wanted:
            wrong.append((strategy, done.stderr))
    done = run(launch, "-n", "2", train, *words, *still, "--steps", "2", "--export", "rounded-processes", "--export-merged")
    if done.returncode or tensors_of("rounded-processes", "model.safetensors") != wanted:
        wrong.append(("processes", done.stdout, done.stderr))
    result(not wrong, "frozen in mxfp8: the base is that of the formula, over 1, 2 and 3 ranks, with all strategies, and over processes", wrong)
    wrong = []
    for frozen, ranks in (("mxfp8", 3), ("dtype", 1)):
        done = run(train, "--model", "llama-tiny", *words[2:-1], frozen, *still, "--steps", "4", "--ranks", str(ranks), "--resume", "still-2",
                   "--export", f"resumed-{frozen}", "--export-merged")
        if done.returncode or tensors_of(f"resumed-{frozen}", "model.safetensors") != wanted:
            wrong.append((frozen, done.stdout, done.stderr))
    result(not wrong, "its checkpoint is read by other ranks, and by a base in fp32, to the same bits", wrong)
    words = ["--model", "llama-tiny", *words[2:], "--steps", "6", "--lr", "0.01"]
    one, again = ran(*words), ran(*words, "--recompute", "all", "--granularity", "half")
    ran(*words, "--checkpoint", "saved-mxfp8", "--checkpoint-every", "3", "--offload-layers", "all")
    os.rename("saved-mxfp8/step-000000000006", "six-mxfp8")
    resumed = ran(*words, "--resume", "saved-mxfp8")
    same = one.get("weights_hash") and one["weights_hash"] == again.get("weights_hash") == resumed.get("weights_hash")
    result(same, "frozen in mxfp8: recomputed and resumed runs end in the same bits", [one, again, resumed])


def check_continued():
    """Adapters that were exported are read to the bit; those of other targets, ranks or scales are refused."""
    for model, targets in list(MODELS.items())[:2]:
        lora = f"r=4,alpha=6,targets={targets}"
        words = ["--init", f"base-{model}", "--init-adapter", f"adapter-{model}", "--steps", "1", *QUICK]
        done = run(train, *words, "--lora", lora, "--lr", "0", "--weight-decay", "0", "--ranks", "3", "--export", f"again-{model}")
        same = not done.returncode and tensors_of(f"again-{model}", "adapter_model.safetensors") == tensors_of(
            f"adapter-{model}", "adapter_model.safetensors")
        result(same, f"{model}: --init-adapter goes on from the exported adapters", [done.stderr])
        wrong = [run(train, *words, "--lora", other) for other in
                 (lora.replace("r=4", "r=5"), lora.replace("alpha=6", "alpha=8"), "r=4,alpha=6", f"r=4,alpha=6,targets={targets[:6]}")]
        wrong = [one for one in (wrong[:3] if model == "tiny" else wrong) if one.returncode != 2 or "--init-adapter" not in one.stderr]
        result(not wrong, f"{model}: adapters of another rank, scale or targets are refused", [one.stderr for one in wrong])
    for rank in "4", "12":
        done = run(train, "--init", "base-phi3", "--init-adapter", "adapter-phi3", "--lora", f"r={rank},targets=all-linear", "--steps", "1", *QUICK)
        result(done.returncode == 2 and "has one adapter for all of qkv_proj" in done.stderr, f"phi3: joined adapters are refused, r={rank}",
               [done.stderr])
    done = run(train, "--model", "tiny", "--lora", "4", "--init-adapter", "adapter-tiny", "--steps", "1", *QUICK)
    result(done.returncode == 2 and "needs --lora and --init" in done.stderr, "adapters without their model are refused", [done.stderr])


def check_unknown_adapters():
    """What PEFT computes in another way is refused by its key; what says nothing is not."""
    with open("adapter-llama-tiny/adapter_config.json", encoding="utf-8") as file:
        plain = json.load(file)
    words = [train, "--init", "base-llama-tiny", "--init-adapter", "odd", "--lora", f"r=4,alpha=6,targets={MODELS['llama-tiny']}", "--steps", "1",
             *QUICK]
    wrong = []
    os.makedirs("odd")
    for more in ({"use_rslora": True}, {"use_dora": True}, {"bias": "all"}, {"rank_pattern": {"q_proj": 2}}, {"alpha_pattern": {"q_proj": 2}},
                 {"modules_to_save": ["lm_head"]}, {"layers_to_transform": [0]}, {"exclude_modules": "x"}, {"lora_bias": True},
                 {"alora_invocation_tokens": [1]}, {"init_lora_weights": "pissa_niter_4"}, {"peft_type": "LOHA"},
                 {"use_rslora": False, "modules_to_save": None, "exclude_modules": [], "bias": "none", "init_lora_weights": True, "rank_pattern": {}}):
        with open("odd/adapter_config.json", "w", encoding="utf-8") as file:
            json.dump({**plain, **more}, file)
        with open("adapter-llama-tiny/adapter_model.safetensors", "rb") as source, open("odd/adapter_model.safetensors", "wb") as to:
            to.write(source.read())
        done, key = run(*words), next(iter(more))
        good = done.returncode == 0 if len(more) > 1 else done.returncode == 2 and ("LOHA" if key == "peft_type" else f"with {key} is") in done.stderr
        wrong += [] if good else [(more, done.returncode, done.stderr)]
    result(not wrong, "adapters that PEFT computes in another way are refused by their key", wrong)
    with open("odd/adapter_model.safetensors", "rb") as file:
        data = file.read()
    length = struct.unpack("<Q", data[:8])[0]
    wrong = []
    for name in "embed_tokens.weight", "layers.0.mlp.up_proj.lora_A.weight":  # PEFT saves the first on its own, of a larger vocabulary
        more = {f"base_model.model.model.{name}": {"dtype": "F32", "shape": [1], "data_offsets": [len(data) - 8 - length, len(data) - 4 - length]}}
        header = json.dumps({**json.loads(data[8:8 + length]), **more}).encode()
        with open("odd/adapter_model.safetensors", "wb") as file:
            file.write(struct.pack("<Q", len(header)) + header + data[8 + length:] + bytes(4))
        done = run(*words)
        wrong += [] if done.returncode == 2 and f"model.{name}'" in done.stderr else [done.stderr]
    os.rename("odd/adapter_model.safetensors", "odd/adapter_model.bin")
    done = run(*words)
    wrong += [] if done.returncode == 2 and "adapter_model.bin is there, of pickles" in done.stderr else [done.stderr]
    result(not wrong, "tensors beside the adapters are named, and a pickle", wrong)


INSIDE = """
import json, sys, warnings
import torch
from peft import PeftModel
from transformers import AutoModelForCausalLM
for name in sys.argv[2:]:
    base = AutoModelForCausalLM.from_pretrained("base-" + name, dtype=torch.float32)
    with torch.no_grad():
        plain = base(torch.tensor([json.loads(sys.argv[1])])).logits[0]
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            model = PeftModel.from_pretrained(base, "adapter-" + name)
        rows = model(torch.tensor([json.loads(sys.argv[1])])).logits[0]
    missing = [str(one.message) for one in said if "adapter" in str(one.message)]
    print(json.dumps({"name": name, "logits": rows.tolist(), "moved": (rows - plain).abs().max().item(), "missing": missing}))
"""


def check_peft():
    if not peers.has("peft, transformers"):
        skip("PEFT's logits", peers.lacks("peft and transformers"))
        return
    done = run(peers.python, "-c", INSIDE, json.dumps(TOKENS), *MODELS,
               env=dict(os.environ, HF_HUB_OFFLINE="1", OMP_NUM_THREADS="1"))
    answers = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    result(len(answers) == len(MODELS), "PEFT loads the adapters", [done.stderr])
    for answer in answers:
        ours = run(logits, f"merged-{answer['name']}", "2", *map(str, TOKENS)).stdout
        rows = [[float(word) for word in row.split()] for row in ours.splitlines()]
        most = max(abs(a - b) for mine, other in zip(rows, answer["logits"]) for a, b in zip(mine, other))
        largest = max(abs(b) for row in answer["logits"] for b in row)
        good = len(rows) == len(TOKENS) and most <= BOUND * max(1, largest) and answer["moved"] > 1e-3 and not answer["missing"]
        result(good, f"{answer['name']}: PEFT's logits differ from ours by {most:.1e} of {largest:.2g}", [answer["missing"]])


def check_planned(asked, command):
    """memplan with these words plans the bytes that the page's command reserves."""
    words = shlex.split(command)[1:]
    done = run(train, *words[:words.index("--steps")], "--steps", "1", "--sample", "0", "--peak-seconds", "0", "--log", "page.jsonl")
    planned = json.loads(run(memplan, *asked, "--json").stdout)["arena_bytes"]
    with open("page.jsonl", encoding="utf-8") as file:
        reserved = json.loads(file.readlines()[-1])["summary"]["arena_bytes"]
    os.remove("page.jsonl")
    result(planned == reserved, f"... which reserves these bytes: {command}", [planned, reserved, done.stderr])


def check_document():
    """The commands of docs/finetuning.md, in a folder with a model and a text."""
    with open(os.path.join(source, "docs/finetuning.md"), encoding="utf-8") as file:
        page = file.read()
    commands = re.findall(r"^    \$ (.*)$", page, re.M)
    python = re.findall(r"```python\n(.*?)```", page, re.S)
    has_peers = peers.has("peft, transformers, tokenizers, pyarrow, jinja2, numpy")
    os.mkdir("page")
    os.chdir("page")
    with open("text.txt", "w", encoding="utf-8") as file:
        file.write("".join(f"{i * 7919 % 1009} ranks share a model of {i} layers. " for i in range(600)))
    run(train, "--model", "llama-tiny", "--text", "text.txt", "--steps", "2", "--export", "model", *QUICK)
    if has_peers:
        run(peers.python, "-c", "import tokenizers; from tokenizers import models, pre_tokenizers, decoders\n"
            "t = tokenizers.Tokenizer(models.BPE({c: i for i, c in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet())[:255])}, []))\n"
            "t.add_special_tokens(['<|endoftext|>']); t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False); t.decoder = decoders.ByteLevel()\n"
            "t.save('model/tokenizer.json')")
    else:  # a token file of bytes
        text = open("text.txt", "rb").read()
        with open("train.bin", "wb") as file:
            file.write(struct.pack("<256i", 20240520, 1, len(text), *[0] * 253) + struct.pack(f"<{len(text)}H", *text))
    tokenize = [peers.python, os.path.join(source, "tools/tokenize")]
    programs = {"train": [train], "memplan": [memplan], "tools/tokenize": tokenize}
    result(len(commands) == 7 and len(python) == 1, "docs/finetuning.md has its commands", commands)
    for command in commands:
        words = shlex.split(command)
        if words[0] == "tools/tokenize" and not has_peers:
            skip(f"{command}", peers.lacks("its packages"))
            continue
        done = run(*programs[words[0]], *words[1:])
        result(done.returncode == 0, command, [done.stdout, done.stderr])
        if words[0] == "memplan":
            check_planned(words[1:], next(other for other in commands if other.startswith("train") and
                                          ("--frozen" in other) == ("--frozen" in command)))
    if has_peers:
        done = run(peers.python, "-c", python[0], env=dict(os.environ, HF_HUB_OFFLINE="1"))
        result(done.returncode == 0, "its Python loads the adapters", [done.stderr])


with tempfile.TemporaryDirectory() as work:
    os.chdir(work)
    with open(PHI3, "w", encoding="utf-8") as file:
        json.dump({"model_type": "phi3", "vocab_size": 256, "hidden_size": 48, "num_hidden_layers": 2, "num_attention_heads": 6,
                   "num_key_value_heads": 2, "intermediate_size": 80, "max_position_embeddings": 64}, file)
    write_packed()
    check_refusals()
    check_llmc()
    check_bytes()
    check_packed()
    check_same_training()
    check_frozen()
    check_mxfp8()
    check_continued()
    check_unknown_adapters()
    check_peft()
    check_document()
    os.chdir("/")
finish()
