# SPDX-License-Identifier: MIT
#
# Goal: command lines that nobody wrote: each ends with status 0, or is refused with one message that names an option. Options
#       that change no bit change none; a run reserves what memplan plans for its log; saved and resumed, as processes, and
#       within a budget it has the same weights. memplan's text, JSON and searches agree, and what it says to try can be given.
# Method: options are drawn from a seed, those that decide about bits apart from the others. A failure prints its lines.
# usage: random_lines.py TRAIN MEMPLAN LAUNCH FIRST_SEED COUNT
import collections
import json
import os
import random
import re
import struct
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "../tap"))
from tap import finish, result

train, memplan, launch = map(os.path.realpath, sys.argv[1:4])
first_seed, seed_count = map(int, sys.argv[4:6])
TIED = ("tiny", "qwen3-tiny", "./llama.json")
faults = []  # of the seed
compared = collections.Counter()  # runs that were not refused, by what was asked of them


class Draw(random.Random):
    def maybe(self, share, options, name, *values):
        """With this share of chance, one of the values; without any the option has none."""
        if self.random() < share:
            options[name] = self.choice(values) if values else None

    def strategy(self, ranks):
        return self.choice(["zero3", "zero2", "zero1", "ddp"] + [f"hsdp:{s}" for s in range(1, ranks + 1) if ranks % s == 0])


def write_inputs():
    draw = random.Random(5)
    with open("text", "w", encoding="utf-8") as file:
        file.writelines(f"{i}\n" for i in range(4000))
    counted = [(255 if draw.random() < 0.05 else draw.randrange(250), draw.random() < 0.8) for _ in range(8000)]
    bits = bytearray(len(counted) // 8)
    for place, (_, counts) in enumerate(counted):
        bits[place // 8] |= counts << place % 8
    with open("tokens.bin", "wb") as file:
        file.write(struct.pack("<iiI4sIIQI", 20240520, 1, len(counted), b"EOTK", 256, 255, 0, 1).ljust(1024, b"\0"))
        file.write(struct.pack(f"<{len(counted)}H", *(token for token, _ in counted)) + bits)
    with open("llama.json", "w", encoding="utf-8") as file:
        json.dump({"model_type": "llama", "num_hidden_layers": 3, "hidden_size": 40, "num_attention_heads": 5,
                   "num_key_value_heads": 1, "intermediate_size": 77, "vocab_size": 257, "tie_word_embeddings": True}, file)
    with open("rates.json", "w", encoding="utf-8") as file:
        json.dump({"products_flops_per_s": 4e10, "memory_bytes_per_s": 9e9, "link_bytes_per_s": 4e9, "disk_bytes_per_s": 6e8}, file)


def draw_bits(draw):
    """Options that decide about the weights."""
    ranks = draw.choice([1, 2, 2, 3, 4])
    options = {"model": draw.choice([*TIED, "llama-tiny", "qwen2-tiny"]), "ranks": ranks, "seq": draw.choice([2, 8, 17, 32]),
               "batch": draw.choice([1, 2, 3]), "steps": draw.choice([2, 3, 4])}
    draw.maybe(0.3, options, "micro-batches", 2, 3)
    if draw.random() < 0.4:
        options |= {"dtype": "bf16", "instruction-set": "plain"}
        draw.maybe(0.3, options, "norms", "fp32")
    draw.maybe(0.2, options, "reduce", "bf16")
    draw.maybe(0.4, options, "strategy", draw.strategy(ranks))
    draw.maybe(0.3, options, "granularity", "half", "blocks:2", "size:100KiB")
    draw.maybe(0.2, options, "head-chunks", 2)
    draw.maybe(0.4, options, "optimizer", "adamw8bit", "sgd", "lion", "muon")
    if draw.random() < 0.25:
        options["lora"] = draw.choice(["2", "r=3,alpha=2"])
        draw.maybe(0.4, options, "frozen", "mxfp8")
        if options.get("optimizer") == "muon":
            del options["optimizer"]
    elif options["model"] in TIED:
        draw.maybe(0.3, options, "gradients-apart")
    draw.maybe(0.2, options, "dropout", 0.3)
    draw.maybe(0.2, options, "clip", 0, 0.1)
    draw.maybe(0.2, options, "seed", 0, 2**64 - 1)
    draw.maybe(0.3, options, "schedule", "linear", "constant", "wsd:0.5", "step:2,0.1")
    draw.maybe(0.2, options, "on-not-finite", "skip")
    if draw.random() < 0.3:
        options |= {"tokens": "tokens.bin", "val-every": 2}
        draw.maybe(0.6, options, "pack", "documents")
    else:
        options["text"] = "text"
    return options


def draw_free(draw, bits):
    """Options that change no bit of the weights."""
    options = {}
    plain = bits.get("strategy", "zero3") == "zero3" and bits.get("optimizer") != "muon" and "lora" not in bits
    draw.maybe(0.5, options, "recompute", "cheap", "all", "1")
    if plain and draw.random() < 0.25:
        options["memory"] = draw.choice(["dynamic:malloc", "dynamic:pool"])
        draw.maybe(0.3, options, "dynamic-offload")
        draw.maybe(0.3, options, "implicit-prefetch")
    else:
        draw.maybe(0.4, options, "slots", "1,1", "3,1", "1,4")
        draw.maybe(0.3, options, *draw.choice([("no-prefetch",), ("bucketing", "2,1", "3,1"), ("bucketing", "1,3")]))
        if bits.get("optimizer") != "muon":
            draw.maybe(0.4, options, "offload-layers", "all", 1, 3)
        if "offload-layers" in options:
            draw.maybe(0.4, options, "offload-slots", 1, 3)
            draw.maybe(0.4, options, "late-updates")
            draw.maybe(0.4, options, "offload-gradients")
        draw.maybe(0.3, options, "offload-activations", "all", 1)
    draw.maybe(0.2, options, "val-every", 2)
    if "tokens" in bits:  # what is held back is no training data, then
        options["val-every"] = bits["val-every"]
    draw.maybe(0.2, options, "ema", 0.9)
    draw.maybe(0.2, options, "log-norms")
    draw.maybe(0.2, options, "trace", "trace.json")
    return options


def words(options):
    return [word for name, value in options.items() for word in (f"--{name}", "" if value is None else str(value)) if word]


def fault(line, what, shown=""):
    faults.append(f"{what}: {' '.join(line)}\n{shown}")


def run(*line):
    try:
        done = subprocess.run(line, capture_output=True, text=True, check=False, timeout=100)
    except subprocess.TimeoutExpired:
        fault(line, "hangs")
        return None
    told = {text for text in re.findall("^(?:train|memplan): .*", done.stderr, re.M) if not re.search("warning|another rank", text)}
    if done.returncode == 2 and (len(told) != 1 or not re.search("--|[a-z]_[a-z]", *told)):  # each process tells it
        fault(line, "refused without one message that names an option", done.stderr)
    if done.returncode not in (0, 1 if line[0] == memplan else 0, 2):
        fault(line, f"status {done.returncode}", done.stderr)
    return done


def train_with(options, *before, log="log"):
    """Its weights and losses, and the log; None where it is refused."""
    line = [*before, train, *words({"threads": 1, "sample": 0, "peak-seconds": 0, "log": log} | options)]
    if "resume" not in options and os.path.exists(log):
        os.unlink(log)
    done = run(*line)
    if not done or done.returncode:
        return None
    with open(log, encoding="utf-8") as file:
        records = [json.loads(record) for record in file]
    summary, plan = records[-1].get("summary", {}), [record["plan"] for record in records if "plan" in record][-1]
    steps = [record for record in records if "grad_norm" in record]
    if [step["step"] for step in steps] != list(range(1, options["steps"] + 1)):
        fault(line, "steps of the log", steps)
    if not options.get("memory", "static").startswith("dynamic") and summary.get("arena_bytes") != plan["arena_bytes"]:
        fault(line, "it reserves other bytes than planned", summary)
    verified = run(memplan, "--model", options["model"], "--verify", log)
    if not verified or " 0 differences" not in verified.stdout:
        fault(line, "memplan --verify", verified and verified.stdout)
    return {"hash": summary.get("weights_hash"), "losses": [step["loss"] for step in steps], "arena": plan["arena_bytes"],
            "line": line}


def compare(what, one, other):
    compared[what] += other is not None
    if other and (other["hash"] != one["hash"] or any(abs(a - b) > 1e-9 * abs(a) for a, b in zip(one["losses"], other["losses"]))):
        fault(other["line"], what, " ".join(one["line"]))


def check_training(draw):
    bits = draw_bits(draw)
    whole = train_with(bits)
    if not whole:
        return
    for _ in range(2):
        options = bits | draw_free(draw, bits)
        compare("other weights", whole, train_with(options))
        planned = run(train, "--plan", *words({"log": "none", "threads": 1} | options))
        if not planned or planned.returncode:
            continue
        with open("plan", "w", encoding="utf-8") as file:
            file.write(planned.stdout)
        if " 0 differences" not in run(memplan, "--model", bits["model"], "--verify", "plan").stdout:
            fault(planned.args, "memplan --verify of a plan")
    at = draw.randrange(1, bits["steps"])
    if train_with(bits | {"checkpoint": "saved", "checkpoint-every": at}, log="parts"):
        compare("resumed: other weights", whole,
                train_with(bits | draw_free(draw, bits) | {"resume": f"saved/step-{at:012d}"}, log="parts"))
    several = {name: value for name, value in (bits | draw_free(draw, bits)).items() if name != "ranks"}
    compare("as processes: other weights", whole, train_with(several, launch, "-n", str(bits["ranks"])))
    if "head-chunks" not in bits and "gradients-apart" not in bits:
        few = bits | {"rates": "rates.json", "budget": "1KiB"}
        least = int(re.search(r"the least is (\d+)", run(train, *words(few)).stderr).group(1))
        for bytes_ in least, draw.randrange(least, max(least, whole["arena"]) + 1):
            within = train_with(few | {"budget": f"{bytes_}B"})
            compare("within a budget: other weights", whole, within)
            if not within or within["arena"] > bytes_:
                fault(words(few), f"a budget of {bytes_}")


def check_plan(draw):
    """A plan, what it says to try, and a search with its neighbour."""
    ranks = draw.choice([1, 2, 3, 6, 8, 24, 64])
    options = {"model": draw.choice(["gpt2", "llama-1b", "llama-3-8b", "qwen3-0.6b"]), "ranks": ranks, "seq": draw.choice([100, 512])}
    draw.maybe(0.5, options, "batch", 2, 3)
    draw.maybe(0.3, options, "strategy", draw.strategy(ranks))
    draw.maybe(0.3, options, "recompute", "cheap", "all", "3")
    draw.maybe(0.3, options, "slots", "1,1", "1,4")
    draw.maybe(0.3, options, "optimizer", "adamw8bit", "sgd", "muon")
    draw.maybe(0.2, options, "lora", "8")
    draw.maybe(0.2, options, "head-chunks", 2, 7)
    draw.maybe(0.2, options, "ema", 0.9)
    draw.maybe(0.3, options, "global-batch", ranks * options.get("batch", 1) * draw.choice([1, 3]))
    if options.get("optimizer") == "muon":
        options.pop("lora", None)
    plan = run(memplan, *words(options), "--json")
    if plan.returncode == 2:
        return
    total = json.loads(plan.stdout)["total_bytes"]
    options["device-memory"] = f"{int(total * draw.choice([0.7, 0.9, 1, 1.1, 1.7]))}B"
    text = run(memplan, *words(options))
    if not re.search(rf"^total +{total} ", text.stdout, re.M):
        fault(text.args, "the text has another total than JSON", total)
    tries = text.stdout.split("\n")[2]
    wanted = [(way, 0) for way in re.findall(r"(?:would fit: |\), )(--\S[^(]*) \(", tries)]
    wanted += [(f"--batch {count}", outcome == "lacks") for count, outcome in re.findall(r"batch (\d+) (fits|lacks)", tries)]
    wanted += [(f"--ranks {count}", outcome[:3] != "fit") for count, outcome in re.findall(r"(\d+) GPUs? (fits?|lacks?)", tries)]
    search, option = draw.choice([("max-batch", "batch"), ("max-seq", "seq"), ("min-gpus", "ranks"), ("min-recompute", "recompute")])
    found = run(memplan, *words(options), "--fit", search)
    if found.returncode > text.returncode and search != "min-gpus":  # not each world is tried
        fault(found.args, "it finds nothing, but what is given fits", found.stdout)
    wanted += [(f"--{option} {value}", outcome == "lacks")
               for value, outcome in re.findall(rf"[:;] {option} (\d+) (fits with|lacks)", found.stdout) if found.returncode == 0]
    for way, status in wanted:
        names = re.findall("--([a-z-]+)", way)
        again = run(memplan, *words({name: value for name, value in options.items() if name not in names}), *way.split())
        if again.returncode != status:
            fault(again.args, f"status {again.returncode} after '{way}'", f"{' '.join(found.args)}\n{tries}\n{again.stderr}")


for seed in range(first_seed, first_seed + seed_count):
    for check in check_training, check_plan:
        with tempfile.TemporaryDirectory() as work:
            os.chdir(work)
            write_inputs()
            check(Draw(seed))
            os.chdir("/")
    result(not faults, f"lines of seed {seed}", faults)
    faults.clear()
if seed_count > 5:
    result(len(compared) == 4 and min(compared.values()) > 0, "not all is refused", [dict(compared)])
finish()
