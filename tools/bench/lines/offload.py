# SPDX-License-Identifier: MIT
"""A budget of memory: what it bounds, how well its steps are predicted, and what less memory costs."""
import os
import re

from lines import ours
from lines.measure import Missing, line, median, ratio
from lines.speed import BATCH, SEQ, model, speeds, steps

OPTIONS = ("--ranks", "2", "--threads", "1", "--batch", str(BATCH), "--seq", str(SEQ), "--dtype", "bf16")


def folder(context):
    """Of the offload file: beside the build, for the usual folder of temporary files may lie in memory."""
    return os.path.join(context.build)


def planned(context, budget):
    """What `train --plan` says of a budget: the arena in bytes, or the least that is possible."""
    command = [context.program("tools", "train"), "--model", model(context), "--tokens", ours.tokens(context, model(context)),
               *OPTIONS, "--offload-folder", folder(context), "--plan", "--budget", str(budget)]
    try:
        return int(re.search(r"^  arena +(\d+)", context.run(command), re.M).group(1))
    except Missing as missing:
        found = re.search(r"the least is (\d+)", str(missing))
        if not found:
            raise
        return int(found.group(1))


def run(context, budget, count):
    options = ("--budget", str(budget), "--offload-folder", folder(context)) if budget else ()
    return ours.train(context, model(context), count, *OPTIONS, *options)


def shape(context, what):
    return f"{model(context)} bf16, 2 x 1, batch {BATCH}, seq {SEQ}: {what}"


def budget(context):
    least, most = planned(context, 1), planned(context, "1TiB")
    count = 3 if context.quick else 10
    sizes = [least + (most - least) * i // (count - 1) for i in range(count)]

    def one(size):
        summary = run(context, size, steps(context))
        context.say(f"{size / 2**20:.0f} MiB: predicted {summary['predicted_step_s']:.2f} s, measured {summary['step_s']:.2f} s")
        return summary

    turns = context.in_turn(context.runs, {size: lambda size=size: one(size) for size in sizes})
    rows = [{"budget": size, "arena": max(s["arena_bytes"] for s in turns[size]),
             **{key: [s[key] for s in turns[size]] for key in ("predicted_step_s", "step_s", "io_bytes_per_step")},
             "wait_s": [s["wait_s"]["fetch"] for s in turns[size]]} for size in sizes]
    bound = max(row["arena"] / row["budget"] for row in rows)
    # Of one budget's turns each predicts its own run: the median of these ratios is the error of the prediction, while a
    # turn that the host disturbed says more of the host.
    errors = [abs(median([p / s for p, s in zip(row["predicted_step_s"], row["step_s"])]) - 1) for row in rows]
    rises = [median(b["step_s"]) / median(a["step_s"]) - 1 for a, b in zip(rows, rows[1:])]
    return [line("budget", shape(context, f"arena / budget, {count} budgets from {least / 2**20:.0f} to {most / 2**20:.0f} MiB"),
                 "<= 1", f"{bound:.4f} at most", bound <= 1, None, rows=rows),
            line("budget", shape(context, "predicted against measured step time"), "within 10 %, 5 % in the mean",
                 f"{100 * max(errors):.1f} % at most, {100 * sum(errors) / count:.1f} % in the mean",
                 max(errors) <= 0.1 and sum(errors) / count <= 0.05, None),
            line("budget", shape(context, "measured step time over growing budgets"), "never 5 % up",
                 f"{100 * max(rises):.1f} % up at most", max(rises) <= 0.05, None)]


def offload(context):
    half = planned(context, "1TiB") // 2
    least = planned(context, 1)
    size = max(half, least)
    results = context.in_turn(context.runs, {"half": lambda: run(context, size, steps(context)),
                                             "all": lambda: run(context, None, steps(context))})
    found = ratio(speeds(results["half"]), speeds(results["all"]))
    part = f"{size / 2**20:.0f} MiB a rank" + ("" if size == half else ", the least that is possible")
    return [line("offload", shape(context, "speed with half the memory over all in memory"), ">= 0.9 x (of gpt2-xl)",
                 f"{found['ratio']:.2f} x ({part}; {median(speeds(results['half'])):.0f} / "
                 f"{median(speeds(results['all'])):.0f} tokens/s)", None, found)]
