# SPDX-License-Identifier: MIT
#
# Goal: a run reads the sequences of several token files one by one, each once in a pass, whatever ranks, batches and micro-batches
#       share them; resumed in the middle of a pass, by other ranks, it goes on with the next one.
# Method: a model that does not change (--lr 0) has a loss of its own for each sequence. One rank tells them one by one; every step
#         of other runs has the mean of those that are due. Documents have equal lengths here, so that rows of them weigh the same.
# usage: data_places.py TRAIN
import json
import os
import random
import shutil
import struct
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "../tap"))
from tap import finish, result

train = os.path.realpath(sys.argv[1])
FILES = {"a.bin": 320, "b.bin": 112, "c.bin": 320}
SEQUENCES = 46  # of 16 tokens in these files, with a target behind the last
DOCUMENT, ONES = 8, 100


def write_files():
    draw = random.Random(3)
    for name, count in FILES.items():
        tokens = [255 if i % DOCUMENT == 0 else draw.randrange(250) for i in range(count)]
        with open(name, "wb") as file:
            file.write(struct.pack("<iiI4sIIQI", 20240520, 1, count, b"EOTK", 256, 255, 0, 0).ljust(1024, b"\0"))
            file.write(struct.pack(f"<{count}H", *tokens))


def run(mode, steps, shape, *words):
    """Losses of the steps of a run, or what it said."""
    ranks, batch, micro_batches = shape
    done = subprocess.run([train, "--model", "2x32x2", "--seq", "16", "--threads", "1", "--peak-seconds", "0", "--sample", "0", "--lr", "0",
                           "--weight-decay", "0", "--tokens", *FILES, *mode, "--steps", str(steps), "--ranks", str(ranks), "--batch",
                           str(batch), "--micro-batches", str(micro_batches), "--log", "log", *words], capture_output=True, text=True,
                          check=False, timeout=200)
    if done.returncode:
        return done.stderr
    with open("log", encoding="utf-8") as file:
        return {line["step"]: line["loss"] for line in map(json.loads, file) if "loss" in line}


def check(name, mode, period):
    told = run(mode, ONES, (1, 1, 1))
    if not isinstance(told, dict):
        result(False, f"{name}: sequences one by one", [told])
        return
    ones = [told[k + 1] for k in range(ONES)]
    passes = [sorted(ones[:period]), sorted(ones[period:2 * period])]
    same = len(set(passes[0])) == period and all(abs(a - b) < 1e-4 for a, b in zip(*passes))
    result(same and (ones[:period] != ones[period:2 * period]) == bool(mode), f"{name}: a pass has each of {period} sequences once",
           [len(set(passes[0])), ones])
    for chain in ([(3, (2, 3, 1)), (4, (3, 1, 2)), (5, (1, 5, 1)), (2, (4, 2, 1))], [(2, (1, 7, 1)), (5, (4, 1, 1)), (4, (2, 3, 2))]):
        wrong, step, k = [], 0, 0
        shutil.rmtree("saved", ignore_errors=True)
        for count, shape in chain:
            losses = run(mode, step + count, shape, "--checkpoint", "saved", *(["--resume"] if step else []))
            sequences = shape[0] * shape[1] * shape[2]
            for step in range(step + 1, step + count + 1):
                wanted = sum(ones[k:k + sequences]) / sequences
                good = isinstance(losses, dict) and step in losses and abs(losses[step] - wanted) < 2e-5 * wanted
                wrong += [] if good else [(step, k, shape, wanted, losses)]
                k += sequences
        shapes = ", ".join("x".join(map(str, shape)) for _, shape in chain)
        result(not wrong and k > period, f"{name}: resumed with ranks x batch x micro-batches {shapes}: no sequence is left out or read twice",
               wrong[:3])


with tempfile.TemporaryDirectory() as work:
    os.chdir(work)
    write_files()
    check("in order", [], SEQUENCES)
    check("shuffled", ["--shuffle"], SEQUENCES)
    check("packed", ["--pack", "documents"], sum(FILES.values()) // DOCUMENT // 2)
    os.chdir("/")
finish()
