# SPDX-License-Identifier: MIT
#
# Goal: train --pack documents and tokens that do not count compute what PyTorch does of the same documents one by one: the mean
#       of cross_entropy(ignore_index=-100) over the targets of all ranks and micro-batches, and its gradient's norm. A text's
#       last target is the token for its end, so a trained model ends it. Worlds, graphs of micro-batches and a resumed run agree.
# Method: a token file written here; models whose weights stay as they are (--lr 0), exported and read by transformers. Without a
#         python with torch and transformers (EO_PEERS_PYTHON) the comparison is left out, and says so.
# usage: packed_runs.py TRAIN
import json
import os
import random
import re
import struct
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "../tap"))
import peers
from tap import finish, result, skip

train = os.path.realpath(sys.argv[1])
has_torch = peers.enter("torch, transformers")
BOUNDARY, VOCABULARY, SEQ = 255, 256, 48


def make_documents():
    """Lists of (token, does it count); the prompt of every second document does not."""
    draw = random.Random(5)
    documents = []
    for number in range(40):
        length, prompt = draw.randrange(1, SEQ), draw.randrange(1, 20) if number % 2 else 0
        documents.append([(BOUNDARY, not prompt)] + [(draw.randrange(250), place >= prompt) for place in range(length)])
    return documents


def write_tokens(path, documents):
    marked = [pair for document in documents for pair in document]
    bits = bytearray((len(marked) + 7) // 8)
    for place, (_, counts) in enumerate(marked):
        bits[place // 8] |= counts << place % 8
    with open(path, "wb") as file:
        file.write(struct.pack("<iiI4sIIQI", 20240520, 1, len(marked), b"EOTK", VOCABULARY, BOUNDARY, 0, 1).ljust(1024, b"\0"))
        file.write(struct.pack(f"<{len(marked)}H", *(token for token, _ in marked)) + bits)


def run(*words, status=0, tokens="tokens.bin"):
    done = subprocess.run([train, "--seq", str(SEQ), "--threads", "1", "--peak-seconds", "0", "--sample", "0", "--weight-decay", "0",
                           "--tokens", tokens, *map(str, words)], capture_output=True, text=True, check=False, timeout=200)
    if done.returncode != status:
        result(False, "train " + " ".join(map(str, words)), [done.stdout[-500:], done.stderr])
    return done


def steps_of(log):
    with open(log, encoding="utf-8") as file:
        return [record for record in map(json.loads, file) if "step" in record and "loss" in record]


def hash_of(done):
    return re.search(r"weights_hash (\S+),", done.stdout).group(1)


def of_torch(folder, documents):
    """Mean loss and norm of its gradient, a document at a time."""
    import torch
    import transformers
    torch.set_num_threads(1)
    model = transformers.AutoModelForCausalLM.from_pretrained(folder).float().eval()
    documents = [document + [(BOUNDARY, True)] * document[0][1] for document in documents]  # texts end; after prompts nothing is added
    counted = sum(counts for document in documents for _, counts in document[1:])
    total = 0
    for document in documents:
        if len(document) < 2:
            continue
        tokens = torch.tensor([[token for token, _ in document]])
        labels = torch.tensor([token if counts else -100 for token, counts in document[1:]])
        logits = model(tokens[:, :-1]).logits[0]
        loss = torch.nn.functional.cross_entropy(logits, labels, ignore_index=-100, reduction="sum") / counted
        loss.backward()
        total += loss.item()
    return total, sum((p.grad.double() ** 2).sum().item() for p in model.parameters() if p.grad is not None) ** 0.5


def near(a, b, tolerance):
    return abs(a - b) <= tolerance * abs(b)


def check_model(model, documents):
    plan = run("--model", model, "--pack", "documents", "--batch", 1, "--ranks", 1, "--steps", 1)
    rows = int(re.search(r"(\d+) documents in (\d+) rows", plan.stdout).group(2))
    one = ["--model", model, "--pack", "documents", "--lr", 0, "--steps", 1, "--clip", 0]
    run(*one, "--batch", rows, "--ranks", 1, "--log", model + ".log", "--export", model)
    whole = steps_of(model + ".log")[0]
    if has_torch:
        loss, norm = of_torch(model, documents)
        result(near(whole["loss"], loss, 1e-5) and near(whole["grad_norm"], norm, 1e-4),
               f"{model}: loss and gradient are PyTorch's of the documents one by one ({whole['loss']:.7g}, {whole['grad_norm']:.6g})",
               [whole, loss, norm])
    else:
        skip(f"{model} is held against PyTorch", "no torch in EO_PEERS_PYTHON")
    return rows, whole


def check_worlds(model, rows, whole):
    """The same rows, shared in other ways: rows of two ranks have other numbers of targets, micro-batches too."""
    shares = [(ranks, micro) for ranks, micro in ((2, 1), (1, rows), (3, 1), (2, 2)) if rows % (ranks * micro) == 0]
    for ranks, micro in shares:
        log = f"{ranks}-{micro}.log"
        run("--model", model, "--pack", "documents", "--lr", 0, "--steps", 1, "--clip", 0, "--ranks", ranks, "--micro-batches", micro,
            "--batch", rows // ranks // micro, "--log", log)
        step = steps_of(log)[0]
        result(near(step["loss"], whole["loss"], 1e-6) and near(step["grad_norm"], whole["grad_norm"], 1e-5),
               f"{model}: {ranks} ranks, {micro} micro-batches: the mean is over all targets of the step", [step, whole])


def check_resume(model):
    common = ["--model", model, "--pack", "documents", "--batch", 2, "--ranks", 2, "--schedule", "constant", "--val-every", 3]
    whole = run(*common, "--steps", 6)
    run(*common, "--steps", 3, "--checkpoint", "ck")
    again = run(*common, "--steps", 6, "--checkpoint", "ck", "--resume")
    result(hash_of(again) == hash_of(whole), f"{model}: a resumed run ends in the bits of the whole one", [again.stdout[-500:]])


def check_ends():
    """Texts of one word: every second target is an end."""
    write_tokens("ends.bin", [[(BOUNDARY, True), (7, True)], [(BOUNDARY, True), (7, True)]] * 40)
    done = run("--model", "tiny", "--pack", "documents", "--batch", 1, "--ranks", 1, "--steps", 40, "--lr", 0.01, "--log", "ends.log",
               "--export", "ends", tokens="ends.bin")
    result("80 documents in 4 rows, 16.7 % padding" in done.stdout and steps_of("ends.log")[-1]["loss"] < 0.05,
           "each text has one target more than it has words", [done.stdout[:900], steps_of("ends.log")[-1]])
    if has_torch:
        import torch
        import transformers
        model = transformers.AutoModelForCausalLM.from_pretrained("ends").float().eval()
        with torch.no_grad():
            end = model(torch.tensor([[BOUNDARY, 7]])).logits[0, -1].softmax(-1)[BOUNDARY].item()
        result(end > 0.9, f"the trained model ends a text: by PyTorch P(end) is {end:.3f}", [end])


def check_speed():
    """Tokens a second count no padding."""
    done = run("--model", "tiny", "--pack", "documents", "--batch", 2, "--ranks", 2, "--steps", 2, "--log", "speed.log")
    padding = float(re.search(r"([0-9.]+) % padding", done.stdout)[1]) / 100
    step = steps_of("speed.log")[-1]
    result(padding > 0.01 and near(step["tokens_per_s"] * step["step_s"], 2 * 2 * SEQ * (1 - padding), 0.01),
           "tokens a second count no padding", [step, padding])


def check_stream(documents):
    """Without --pack the same file is a stream; its marks count as well."""
    run("--model", "tiny", "--lr", 0, "--steps", 1, "--clip", 0, "--batch", 4, "--ranks", 2, "--micro-batches", 2, "--log", "s.log",
        "--export", "stream")
    step = steps_of("s.log")[0]
    if not has_torch:
        return
    import torch
    import transformers
    stream = [pair for document in documents for pair in document][:16 * SEQ + 1]
    model = transformers.AutoModelForCausalLM.from_pretrained("stream").float().eval()
    tokens = torch.tensor([token for token, _ in stream[:-1]]).view(16, SEQ)
    labels = torch.tensor([token if counts else -100 for token, counts in stream[1:]])
    with torch.no_grad():
        loss = torch.nn.functional.cross_entropy(model(tokens).logits.view(-1, VOCABULARY), labels, ignore_index=-100).item()
    result(near(step["loss"], loss, 1e-5), f"a stream with prompts: the loss is PyTorch's ({loss:.7g})", [step])


def check_refusals():
    for words, wanted in ((["--pack", "some"], "--pack"), (["--pack", "documents", "--batch", 900], "fewer than --batch 900")):
        done = run("--model", "tiny", "--steps", 1, *words, status=2)
        result(wanted in done.stderr, "refused: " + " ".join(map(str, words)), [done.stderr])


with tempfile.TemporaryDirectory() as work:
    os.chdir(work)
    written = make_documents()
    write_tokens("tokens.bin", written)
    for name in ("tiny", "llama-tiny", "qwen3-tiny"):
        row_count, first_step = check_model(name, written)
        if name != "qwen3-tiny":
            check_worlds(name, row_count, first_step)
    check_resume("tiny")
    check_ends()
    check_speed()
    check_stream(written)
    check_refusals()
finish()
