# SPDX-License-Identifier: MIT
"""Lines that need no long run: plans, collectives, calls."""
import os

from lines import ours
from lines.measure import Missing, last_json, line, median

PRESETS = ("tiny", "small", "base", "gpt2", "gpt2-medium", "gpt2-large", "gpt2-xl", "llama-tiny", "llama-small",
           "llama-1b")


def arena(context):
    """Every preset, over ranks, micro-batches and recompute: planning needs no memory."""
    found = []
    for preset in PRESETS:
        for ranks in ("1", "2", "4", "8"):
            for more in ((), ("--micro-batches", "3"), ("--recompute", "cheap")):
                if context.quick and (ranks not in ("1", "2") or more):
                    continue
                plan = ours.plan(context, "--model", preset, "--ranks", ranks, "--threads", "1", *more)
                found.append((plan.arena_bytes / plan.lower_bound_bytes, f"{preset} over {ranks} {' '.join(more)}"))
    worst, above = max(found), sum(value > 1.05 for value, _ in found)
    return [line("arena", f"arena peak / lower bound, {len(found)} plans of {len(PRESETS)} presets", "<= 1.05",
                 f"{worst[0]:.4f} at most ({worst[1].strip()}), {above} above 1.05", worst[0] <= 1.05, None,
                 plans={what: value for value, what in found})]


def collectives(context):
    results = [last_json(context.run([context.program("tests", "conformance", "bench_collectives")]))
               for _ in range(1 if context.quick else context.runs + 1)]
    lines = []
    for name, key in (("all-gather", "all_gather_ratio"), ("reduce-scatter", "reduce_scatter_ratio")):
        values = [r[key] for r in results]
        lines.append(line("collectives", f"{name}, local, bytes moved a second", ">= 0.7 x copying",
                          f"{median(values):.2f} x", median(values) >= 0.7,
                          {"low": min(values), "high": max(values), "runs": len(values)}, results=results))
    return lines


def plan_time(context):
    result = last_json(context.run([context.program("tests", "bench", "bench_plan")]))
    growth = max(result["growth"], result["growth_batches"])
    return [line("plan", "plan and proof, 70B (80 layers), 1024 ranks, 8 micro-batches", "< 50 ms",
                 f"{result['plan_ms']:.1f} ms, {result['operations']} operations", result["plan_ms"] < 50, None,
                 **result),
            line("plan", "time an operation with twice the layers, twice the micro-batches", "linear: about 1 x",
                 f"{result['growth']:.2f} x, {result['growth_batches']:.2f} x", growth <= 1.3)]


def update(context):
    """Steps that are little else than the optimizer, in turns; a training's step hides more of it."""
    results = [last_json(context.run([context.program("tests", "bench", "bench_update")]))
               for _ in range(1 if context.quick else context.runs)]
    lines = []
    for what, key, bound in (("step with 20 parameter groups / with one", "groups_ratio", 1.01),
                             ("step that is skipped / that is not", "skipped_ratio", 1.0),
                             ("step with state in 8 bits / in fp32", "narrow_ratio", 1.0)):
        values = [r[key] for r in results]
        lines.append(line("update", what, f"<= {bound:.2f}", f"{median(values):.3f}", median(values) <= bound,
                          {"low": min(values), "high": max(values), "runs": len(values)}, results=results))
    return lines


def growth_of(context, options, counter):
    """Calls a step by caller and call: what a run of 20 steps makes more than one of 4."""
    counts = {}
    for steps in (4, 20):
        path = context.path("calls")
        context.run([*counter(path)[0], context.program("tools", "train"), "--steps", str(steps), *options],
                    environment=counter(path)[1])
        with open(path, encoding="utf-8") as file:
            counts[steps] = {(who, call): int(count) for who, call, count in (row.split() for row in file)}
    if not sum(counts[4].values()):
        raise Missing("the counter counted nothing")
    growth = {}
    for (who, call), count in counts[20].items():
        growth.setdefault(who, {})[call] = (count - counts[4].get((who, call), 0)) / 16
    return growth


def call_options(context):
    return ["--model", "tiny", "--tokens", ours.tokens(context, "tiny"), "--ranks", "2", "--threads", "1", "--seq", "64",
            "--sample", "0", "--peak-seconds", "0"]


def heap_growth(context, *more):
    """Heap and mapping calls a step, by caller."""
    library = context.program("tests", "bench", "libcount_calls.so")

    def counter(path):
        # By its bare name: a list of libraries to preload cannot hold a folder with spaces, that of folders can.
        return [], {"LD_PRELOAD": os.path.basename(library), "LD_LIBRARY_PATH": os.path.dirname(library),
                    "EO_COUNT_CALLS": path}

    return growth_of(context, [*call_options(context), *more], counter)


def calls(context):
    """By runs of different length: what grows with the number of steps is made by the steps. Heap and mapping calls
    are counted by caller, and memory system calls in the kernel, whoever makes them."""
    tracer = context.program("tests", "bench", "count_system_calls")
    growth = heap_growth(context)
    mine = sum(growth.get("train", {}).values())
    others = {who: sum(per.values()) for who, per in growth.items() if who != "train" and any(per.values())}
    named = ", ".join(f"{who} {count:g}" for who, count in sorted(others.items())) or "none"
    # That the counter sees what is there: the same run with the system's allocator.
    dynamic = heap_growth(context, "--memory", "dynamic:malloc")
    seen = sum(dynamic.get("train", {}).values())
    lines = [line("calls", "heap, mmap and brk calls of evenodd a step, all ranks", "0",
                  f"{mine:g} (dynamic:malloc {seen:g}; other libraries: {named})", mine == 0 and seen > 0, None,
                  a_step=growth)]
    try:
        growth = growth_of(context, call_options(context), lambda path: ([tracer, path], {}))
    except Missing as missing:
        return lines + [line("calls", "memory system calls of the process a step", "0: they do not grow",
                             f"not counted: {missing}", None)]
    system = sum(growth["process"].values())
    # How threads meet at start makes a call more or less; one that a step makes counts a whole.
    return lines + [line("calls", "memory system calls of the process a step, whoever makes them",
                         "0: they do not grow", f"{system:g}", system < 0.25, None, a_step=growth)]
