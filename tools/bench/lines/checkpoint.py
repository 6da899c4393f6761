# SPDX-License-Identifier: MIT
"""Checkpoints: how fast they are written beside training, what training loses meanwhile, what resharding holds."""
import json
import mmap
import os
import re
import time

from lines import ours
from lines.measure import Missing, line, median, ratio

PIECE = 8 << 20
EVERY = 3


def disk_speed(context, folder, count):
    """Bytes a second of one file written from end to end, around the page cache where that is possible."""
    path = os.path.join(folder, "sequential")
    piece = mmap.mmap(-1, PIECE)
    piece.write(os.urandom(PIECE))
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
    try:
        file = os.open(path, flags | os.O_DIRECT, 0o600)
    except OSError:
        file = os.open(path, flags, 0o600)
    begin = time.monotonic()
    for _ in range(max(1, count // PIECE)):
        os.write(file, piece)
    os.fsync(file)
    seconds = time.monotonic() - begin
    os.close(file)
    os.unlink(path)
    return max(1, count // PIECE) * PIECE / seconds


def saving_run(context, model, options, folder):
    """One training that saves every few steps: bytes a second while writing, and what a step costs then."""
    log = context.path("saving.jsonl")
    steps = 2 + 3 * EVERY + 1
    context.run([context.program("tools", "train"), "--model", model, "--tokens", ours.tokens(context, model), "--steps",
                 str(steps), "--sample", "0", "--peak-seconds", "0", "--log", log, "--ranks", "2", "--threads", "1",
                 "--checkpoint", folder, "--checkpoint-every", str(EVERY), "--keep", "1", "--checkpoint-used", *options])
    with open(log, encoding="utf-8") as file:
        rows = [json.loads(text) for text in file]
    times = {row["step"]: row["step_s"] for row in rows if "loss" in row}
    saved = [row["checkpoint"] for row in rows if "checkpoint" in row]
    # Written while the next step runs; the last one is written when there is none.
    beside = [c for c in saved if c["step"] + 1 in times]
    busy = {c["step"] + 1 for c in beside}
    quiet = [seconds for step, seconds in times.items() if step > 2 and step not in busy]
    if not beside or not quiet:
        raise Missing("train's log has no checkpoints with steps behind them")
    return {"bytes": 2 * saved[0]["bytes"], "rate": median([2 * c["bytes"] / c["write_s"] for c in beside]),
            "lost_s": median([c["lost_s"] for c in beside]), "quiet_s": median(quiet),
            "busy_s": median([times[c["step"] + 1] + c["lost_s"] for c in beside])}


def peak_of(command):
    """Resident peak of a process in bytes."""
    null = os.open(os.devnull, os.O_WRONLY)
    actions = [(os.POSIX_SPAWN_DUP2, null, 1), (os.POSIX_SPAWN_DUP2, null, 2)]
    _, status, used = os.wait4(os.posix_spawn(command[0], command, os.environ, file_actions=actions), 0)
    os.close(null)
    if status != 0:
        raise Missing(f"{os.path.basename(command[0])} ended with status {status}")
    return used.ru_maxrss * 1024


def sizes(context, model, ranks):
    """What a rank has of a model of so many ranks: weights and optimizer state; and the largest block, in bytes."""
    text = context.run([context.program("tools", "train"), "--plan", "--model", model, "--ranks", str(ranks),
                        "--threads", "1", "--seq", "64", "--batch", "1"])
    shards, block = 0, 0
    for name, size in re.findall(r"^  (weights\.\S+|state\d\.\S+) +\D+ \d+ +(\d+)  ", text, re.MULTILINE):
        shards += int(size)
        if name.startswith("weights.block"):
            block = max(block, int(size) * ranks)
    return shards, block


def checkpoint(context):
    model = "tiny" if context.quick else "gpt2"
    options = ["--batch", "1", "--seq", "64"] if context.quick else ["--batch", "4", "--seq", "256"]
    folder = context.path("checkpoints")
    tool = context.program("tools", "checkpoint")
    count = (16 << 20) if context.quick else (1 << 30)
    results = context.in_turn(context.runs, {
        "disk": lambda: disk_speed(context, context.folder.name, count),
        "saving": lambda: saving_run(context, model, options, folder),
    })
    rates = [r["rate"] for r in results["saving"]]
    speed = ratio(rates, results["disk"])
    loss = median([r["busy_s"] / r["quiet_s"] - 1 for r in results["saving"]])
    lines = [
        line("checkpoint", f"{model} with optimizer state, written beside training", ">= 0.7 x the disk",
             f"{speed['ratio']:.2f} x ({median(rates) / 1e9:.2f} GB/s of {median(results['disk']) / 1e9:.2f})",
             speed["ratio"] >= 0.7, speed, results=results),
        line("checkpoint", "a step during which it is copied and written, against others", "< 1.05 x",
             f"{1 + loss:.3f} x (the copy: {1e3 * median([r['lost_s'] for r in results['saving']]):.0f} ms)", loss < 0.05),
    ]
    four, three = context.path("four"), context.path("three")
    context.run([tool, "reshard", folder, four, "--ranks", "4"])
    peak = peak_of([tool, "reshard", four, three, "--ranks", "3"])
    shards, block = sizes(context, model, 3)
    if not shards or not block:
        raise Missing("train --plan does not print the sizes of shards")
    lines.append(line("checkpoint", "reshard 4 -> 3, resident peak", "<= a rank's shards + 2 layers",
                      f"{peak / 2**20:.1f} MiB ({shards / 2**20:.0f} + {2 * block / 2**20:.0f})",
                      peak <= shards + 2 * block, None))
    # Loading holds a piece of a megabyte: beside a run of as many steps from fresh weights.
    common = [context.program("tools", "train"), "--model", model, "--tokens", ours.tokens(context, model), "--ranks", "3",
              "--threads", "1", "--batch", "1", "--seq", "64", "--sample", "0", "--peak-seconds", "0"]
    fresh = peak_of([*common, "--steps", "1"])
    loaded = peak_of([*common, "--steps", str(2 + 3 * EVERY + 2), "--resume", four])
    lines.append(line("checkpoint", "load by 3 ranks what 4 saved, resident beside a fresh start", "<= 2 layers",
                      f"{(loaded - fresh) / 2**20:+.1f} MiB of {fresh / 2**20:.0f}", loaded - fresh <= 2 * block, None))
    return lines
