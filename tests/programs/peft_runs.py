# SPDX-License-Identifier: MIT
#
# Goal: train --lora trains as PEFT with PyTorch does: losses and gradient norms of every step, and the adapters at the end, on
#       packed documents of several token files with prompts that do not count, over ranks and micro-batches, resumed by other ranks.
#       Adapters on a base in MXFP8 have PEFT's logits on the rounded base.
# Method: a step takes all rows, so that their order does not matter. PEFT starts from the exported adapters, and takes the documents
#         one by one. Needs a python with peft, transformers and torch: that of EO_PEERS_PYTHON, else it is skipped.
# usage: peft_runs.py TRAIN
import json
import math
import os
import random
import re
import struct
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "../tap"))
import peers
from tap import finish, result

train = os.path.realpath(sys.argv[1])
os.environ.update(HF_HUB_OFFLINE="1", TRANSFORMERS_VERBOSITY="error", HF_HUB_DISABLE_PROGRESS_BARS="1")
peers.enter_or_skip("peft, transformers, torch", "-W", "ignore")

import torch
import transformers
from peft import PeftModel
from safetensors.torch import load_file

SEQ, STEPS, WARMUP, LR, DECAY, BOUNDARY = 48, 6, 2, 0.01, 0.1, 255
MODELS = {"tiny": "c_attn+c_fc", "llama-tiny": "q_proj+v_proj+down_proj"}
FILES = ["a.bin", "b.bin", "c.bin"]


def run(*words):
    return subprocess.run([train, "--seq", str(SEQ), "--threads", "1", "--peak-seconds", "0", "--sample", "0", *map(str, words)],
                          capture_output=True, text=True, check=False, timeout=200)


def make_documents():
    """Lists of (token, does it count), in three files: the prompt of every second document does not."""
    draw, documents = random.Random(7), []
    for number in range(40):
        length, prompt = draw.randrange(1, SEQ), draw.randrange(1, 20) if number % 2 else 0
        documents.append([(BOUNDARY, not prompt)] + [(draw.randrange(60), place >= prompt) for place in range(length)])
    for name, part in zip(FILES, (documents[:13], documents[13:29], documents[29:])):
        marked = [pair for document in part for pair in document]
        bits = bytearray((len(marked) + 7) // 8)
        for place, (_, counts) in enumerate(marked):
            bits[place // 8] |= counts << place % 8
        with open(name, "wb") as file:
            file.write(struct.pack("<iiI4sIIQI", 20240520, 1, len(marked), b"EOTK", 256, BOUNDARY, 0, 1).ljust(1024, b"\0"))
            file.write(struct.pack(f"<{len(marked)}H", *(token for token, _ in marked)) + bits)
    return [document + [(BOUNDARY, True)] * document[0][1] for document in documents]  # as packed: texts end


def peft_model(base, adapter, trains=False):
    model = transformers.AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32, attn_implementation="eager")
    return PeftModel.from_pretrained(model, adapter, is_trainable=trains).eval()


def of_peft(model, documents):
    """Loss and gradient norm of each step; the model is trained."""
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(parameters, betas=(0.9, 0.95), eps=1e-8, weight_decay=DECAY)
    counted, told = sum(counts for document in documents for _, counts in document[1:]), []
    for step in range(STEPS):
        optimizer.zero_grad()
        total = 0
        for document in documents:
            tokens = torch.tensor([[token for token, _ in document]])
            labels = torch.tensor([token if counts else -100 for token, counts in document[1:]])
            loss = torch.nn.functional.cross_entropy(model(tokens[:, :-1]).logits[0], labels, ignore_index=-100, reduction="sum") / counted
            loss.backward()
            total += loss.item()
        norm = torch.nn.utils.clip_grad_norm_(parameters, 1.0).item()
        done = (step - WARMUP) / (STEPS - WARMUP)
        level = (step + 1) / WARMUP if step < WARMUP else 0.1 + 0.45 * (1 + math.cos(math.pi * done))
        optimizer.param_groups[0]["lr"] = LR * level
        optimizer.step()
        told.append((total, norm))
    model.save_pretrained("theirs")
    return told


def compare(name, told, adapter, done):
    with open("log", encoding="utf-8") as file:
        steps = {line["step"]: line for line in map(json.loads, file) if "loss" in line}
    if done.returncode or sorted(steps) != list(range(1, STEPS + 1)):
        result(False, f"{name}: {STEPS} steps", [done.stdout, done.stderr, steps])
        return
    loss = max(abs(steps[i + 1]["loss"] / told[i][0] - 1) for i in range(STEPS))
    norm = max(abs(steps[i + 1]["grad_norm"] / told[i][1] - 1) for i in range(STEPS))
    ours, theirs = (load_file(folder + "/adapter_model.safetensors") for folder in (adapter, "theirs"))
    far = max((ours[key] - theirs[key]).abs().max().item() for key in ours) if ours.keys() == theirs.keys() else 1
    result(loss < 1e-6 and norm < 1e-4 and far < 5e-4,
           f"{name}: losses differ from PEFT's by {loss:.1e}, norms by {norm:.1e}, of themselves; adapters by {far:.1e}", [told, steps])


def check_training(model, targets, documents):
    lora = ["--lora", f"r=4,alpha=6,targets={targets}", "--tokens", *FILES, "--pack", "documents"]
    first = ["--init", "base-" + model, *lora, "--steps", 1, "--lr", 0, "--weight-decay", 0, "--ranks", 1, "--export", "start-" + model]
    run("--model", model, "--text", __file__, "--steps", 3, "--export", "base-" + model)
    rows = int(re.search(r" in (\d+) rows", run(*first, "--batch", 1).stdout).group(1))
    told = of_peft(peft_model("base-" + model, "start-" + model, True), documents)
    common = [*lora, "--steps", STEPS, "--warmup", WARMUP, "--lr", LR, "--weight-decay", DECAY, "--log", "log"]
    begin = ["--init", "base-" + model, "--init-adapter", "start-" + model, *common]
    done = run(*begin, "--ranks", 2, "--batch", rows // 2, "--checkpoint", "saved-" + model, "--checkpoint-every", 3, "--export", "two-" + model)
    compare(f"{model}, 2 ranks", told, "two-" + model, done)
    done = run("--model", model, *common, "--ranks", 4, "--batch", rows // 8, "--micro-batches", 2, "--resume",
               f"saved-{model}/step-{3:012}", "--export", "four-" + model)
    compare(f"{model}, resumed by 4 ranks with 2 micro-batches", told, "four-" + model, done)
    result(rows % 8 == 0 and told[-1][0] < told[0][0] - 0.05, f"{model}: all {rows} rows are a step, and the loss falls", [told])


def check_mxfp8():
    """Adapters on the rounded base, in PEFT, against the merged export."""
    words = ["--init", "base-llama-tiny", "--lora", "4", "--frozen", "mxfp8", "--tokens", *FILES, "--pack", "documents", "--steps", 4, "--lr", 0.02]
    runs = [run(*words, "--lr", 0, "--weight-decay", 0, "--export", "rounded", "--export-merged"), run(*words, "--export", "adapters"),
            run(*words, "--export", "merged", "--export-merged")]
    if any(one.returncode for one in runs):
        result(False, "mxfp8: exports", [one.stderr for one in runs])
        return
    tokens = torch.tensor([[(7 * i * i + 3) % 256 for i in range(40)]])
    with torch.no_grad():
        merged = transformers.AutoModelForCausalLM.from_pretrained("merged", dtype=torch.float32)(tokens).logits
        far, plain = ((peft_model(base, "adapters")(tokens).logits - merged).abs().max().item() for base in ("rounded", "base-llama-tiny"))
    result(far < 1e-5 < plain, f"mxfp8: PEFT's logits on the rounded base differ from the merged model's by {far:.1e}", [plain])


with tempfile.TemporaryDirectory() as work:
    os.chdir(work)
    torch.set_num_threads(1)
    written = make_documents()
    for own_model, own_targets in MODELS.items():
        check_training(own_model, own_targets, written)
    check_mxfp8()
    os.chdir("/")
finish()
