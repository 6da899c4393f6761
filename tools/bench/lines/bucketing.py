# SPDX-License-Identifier: MIT
"""Blocks joined in collectives by the model of cost (--bucketing auto), against one by one, on simulated links."""
import json
import os
import tempfile

from lines import ours
from lines.measure import line, median, ratio

SHAPE = ["--batch", "1", "--seq", "32", "--ranks", "2", "--threads", "1"]
MODEL = "24x64x4"
# gigabytes a second, microseconds; whether latency is most of what a collective takes
LINKS = ((10, 5, False), (10, 50, False), (10, 500, True), (1, 500, True), (0.1, 5, False), (0.1, 500, True))
RATES = {"products_flops_per_s": 2e10, "memory_bytes_per_s": 8e9, "link_bytes_per_s": 8e9}


def bucketing(context):
    counted = 10 if context.quick else 40
    lines = []
    with tempfile.TemporaryDirectory() as folder:
        rates = os.path.join(folder, "rates.json")
        with open(rates, "w", encoding="utf-8") as file:
            json.dump(RATES, file)
        for speed, latency, dominates in LINKS:
            options = [*SHAPE, "--fabric", f"{speed},{latency}"]
            found = context.in_turn(context.runs, {
                "one by one": lambda options=options: ours.train(context, MODEL, counted, *options),
                "auto": lambda options=options: ours.train(context, MODEL, counted, *options, "--bucketing", "auto",
                                                           "--rates", rates)})
            alone, joined = (median([time for run in runs for time in run["times"]]) for runs in found.values())
            turns = ratio(*([median(run["times"]) for run in runs] for runs in found.values()))
            least = 1.1 if dominates else 0.99
            is_same = len({run["plan_fingerprint"] for runs in found.values() for run in runs}) == 1
            measured = f"{alone / joined:.2f}x ({alone * 1e3:.1f} ms, {joined * 1e3:.1f} ms)"
            context.say(f"{speed} GB/s, {latency} us: {alone * 1e3:.1f} ms one by one, {joined * 1e3:.1f} ms by auto")
            lines.append(line("bucketing", f"{MODEL}, 2 ranks, {speed} GB/s, {latency} us: speed of --bucketing auto",
                              f">= {least}x", measured + (": one by one was chosen, the same plan" if is_same else ""),
                              is_same and not dominates or alone >= least * joined, turns, alone_s=alone, joined_s=joined))
    return lines
