# SPDX-License-Identifier: MIT
"""Our own programs: training runs, plans and comparisons of the memory modes."""
import json
import os
import random
import re
import struct

from lines.measure import Missing, median

WARM_UP = 2  # steps that are not counted, as in the peer program


def vocabulary_of(model):
    """Of a preset, as far as a token file of 16 bits reaches; the small ones are on bytes."""
    return 50257 if model.startswith("gpt2") else 65536 if model == "llama-1b" else 256


def tokens(context, model, count=400_000):
    """A token file of llm.c's format with tokens from the whole vocabulary, as the peers train on. The project's own
    sources, which are the default, may change between two runs."""
    vocabulary = vocabulary_of(model)
    path = context.path(f"tokens-{vocabulary}.bin")
    if not os.path.exists(path):
        draw = random.Random(1)
        values = [draw.randrange(vocabulary) for _ in range(count)]
        with open(path, "wb") as file:
            file.write(struct.pack("<3i", 20240520, 1, count) + bytes(4 * 253))
            file.write(struct.pack(f"<{count}H", *values))
    return path


def train(context, model, steps, *options, peak_seconds=0, warm_up=WARM_UP, launcher=(), data=None):
    """Runs build/tools/train on a model: its log's summary, the steps' times and losses without the first ones, tokens/s.
    `data`: its options for the data; none of them means the default text."""
    log = context.path("train.jsonl")
    data = ("--tokens", tokens(context, model)) if data is None else data
    context.run([*launcher, context.program("tools", "train"), "--model", model, *data, "--steps", str(steps + warm_up),
                 "--sample", "0", "--log", log, "--peak-seconds", str(peak_seconds), *options])
    with open(log, encoding="utf-8") as file:
        rows = [json.loads(text) for text in file]
    summary = rows[-1]["summary"]
    counted = [row for row in rows if "step" in row][warm_up:]
    summary["times"] = [row["step_s"] for row in counted]
    summary["plan_fingerprint"] = rows[0]["plan"]["fingerprint"]
    summary["losses"] = [row["loss"] for row in counted]
    summary["step_s"] = median(summary["times"])
    summary["tokens_per_s"] = counted[0]["tokens_per_s"] * counted[0]["step_s"] / summary["step_s"]
    return summary


def idle(summary):
    """Seconds of a step that compute waited for collectives."""
    if "wait_s" not in summary:
        raise Missing("train's summary has no wait_s")
    return sum(summary["wait_s"].values())


class Plan:
    """What `train --plan` prints: the ratio to the lower bound, the collectives of a step, the rows."""

    ROW = re.compile(r"^  (\S+)  +(master weights|gradient shards|optimizer state|gather buffers|gradient buffers|"
                     r"activations|recompute and scratch|head|other)  +(\S+) +\d+ +(\d+)  (.*)")
    COLLECTIVE = re.compile(r"^ +\d+ +(all-gather|reduce-scatter) of (\S+), ([0-9.]+) MiB")

    def __init__(self, text):
        found = re.search(r"^  lower bound +(\d+)", text, re.M)
        arena = re.search(r"^  arena +(\d+)", text, re.M)
        if not found or not arena:
            raise Missing("train --plan prints no arena and lower bound")
        self.arena_bytes, self.lower_bound_bytes = int(arena.group(1)), int(found.group(1))
        self.collectives, self.rows = [], []  # rows: name, category, bytes, lifetime
        for row in text.splitlines():
            match = self.COLLECTIVE.match(row)
            if match:
                self.collectives.append((match.group(1), match.group(2), float(match.group(3)) * 2**20))
            match = self.ROW.match(row)
            if match and match.group(3) != "host":  # the dynamic mode's allocator does not serve the host
                self.rows.append((match.group(1), match.group(2), int(match.group(4)), match.group(5)))

    def buffers(self):
        """The model's own buffers that live for a part of a step."""
        return [row for row in self.rows if row[1] in ("activations", "recompute and scratch", "head")
                and not row[3].startswith("always")]

    def link_bytes(self, ranks, choose=lambda index, collective: True):
        """What a rank receives, in a step, through the chosen collectives."""
        return sum(c[2] * (ranks - 1) / ranks for i, c in enumerate(self.collectives) if choose(i, c))


def plan(context, *options):
    return Plan(context.run([context.program("tools", "train"), "--plan", *options]))


def head_to_head(context, model, runs, *options):
    """The JSON that build/tools/headtohead writes about a model."""
    path = context.path("headtohead.json")
    if os.path.exists(path):
        os.remove(path)
    try:
        context.run([context.program("tools", "headtohead"), "--model", model, "--tokens", tokens(context, model),
                     "--runs", str(runs), "--json", path, *options])
    except Missing:
        if not os.path.exists(path):  # runs that end with other weights are told in it
            raise
    with open(path, encoding="utf-8") as file:
        return json.load(file)
