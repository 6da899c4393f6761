# SPDX-License-Identifier: MIT
"""The dynamic mode against FSDP2 itself: collectives, allocations, live and copied bytes, speed.

FSDP2 is asked by tools/bench/peers/fsdp2_trace.py. Ours is asked by differences: what one block more adds to a step, and
what is live beyond what the plan knows to be no transport.
"""
import json

from lines import ours, peers, speed
from lines.measure import Missing, line, ratio

LAYERS = 4  # of tiny
SHAPE = ["--ranks", "2", "--threads", "1", "--batch", "4", "--seq", "256"]


def last_step(path):
    """Operations of rank 0 in the last step of a trace, in the order of issue."""
    with open(path, encoding="utf-8") as file:
        events = [e for e in json.load(file)["traceEvents"] if e["pid"] == 0 and "operation" in e.get("args", {})
                  and e.get("cat") != "wait"]
    if not events:
        raise Missing("the trace is empty")
    last = max(e["args"]["step"] for e in events)
    return sorted((e for e in events if e["args"]["step"] == last), key=lambda e: e["args"]["operation"])


def collectives_of(events):
    """Kind, FSDP2's name of the group, our name of the layer."""
    found = []
    for e in events:
        layer = e["name"].split(" of ")[-1]
        if e["cat"] in ("all-gather", "reduce-scatter") and not layer.startswith("norm"):
            group = layer.replace("block.", "blocks.") if layer.startswith("block.") else "root"
            found.append((e["cat"], group, layer))
    return found


def a_block(context):
    """What a block adds to a step: the difference of a model with one block more, less the model's own buffers."""
    found = []
    for layers in (LAYERS, LAYERS + 1):
        model = f"{layers}x128x4"
        summary = ours.train(context, model, 2, "--memory", "dynamic:pool", *SHAPE)
        buffers = ours.plan(context, "--model", model, *SHAPE).buffers()
        found.append((summary["allocator_calls_per_step"] / 2 - len(buffers),
                      summary["traffic"]["allocated_bytes_per_step"] - sum(row[2] for row in buffers),
                      summary["traffic"]["copied_bytes_per_step"]))
    return {name: b - a for name, a, b in zip(("allocations", "bytes", "copied"), *found)}


def moment(operation):
    """The place of a pass in a micro-batch: forward over all positions, then recompute and backward of each."""
    kind, _, name = operation.partition(" of ")
    names = ["embedding", *(f"block.{i}" for i in range(LAYERS)), "head"]
    if name not in names:
        return None
    place, back = names.index(name), len(names) + 2 * (len(names) - 1 - names.index(name))
    return {"forward": place, "recompute": back, "backward": back + 1}.get(kind)


def lives_at(lifetime, now):
    first, _, last = lifetime.partition(" ... ")
    return lifetime.startswith("always") or moment(first) <= now <= moment(last)


def live_transport(context, events, at):
    """Bytes live at the end of an operation that are not states, gradient shards or the model's own buffers."""
    plan = ours.plan(context, "--model", "tiny", *SHAPE)
    now = moment(at)
    reduced = [e["name"].split(" of ")[-1] for e in events[:[e["name"] for e in events].index(at)]
               if e["cat"] == "reduce-scatter"]
    shards = {"gradient." + layer.replace("head", "embedding") for layer in reduced}
    other = 0
    for name, category, size, lifetime in plan.rows:
        if category == "gradient shards":
            other += size if name in shards else 0
        elif category not in ("gather buffers", "gradient buffers") and lives_at(lifetime, now):
            other += size
    return next(e for e in events if e["name"] == at)["args"]["live_bytes"] - other


def against_fsdp2(context):
    if not context.peers:
        return [line("dynamic", "dynamic:pool against FSDP2", "the same", "(--peers)", None)]
    theirs = peers.torchrun(context, 2, "fsdp2_trace.py", "--model", "tiny")
    path = context.path("trace.json")
    ours.train(context, "tiny", 2, *SHAPE, "--memory", "dynamic:pool", "--trace", path)
    events = last_step(path)
    lines = [order_line(collectives_of(events), theirs)]
    mine, group, ranks = a_block(context), theirs["groups"]["blocks.1"], theirs["ranks"]
    size, copies = group["parameter_bytes"], group["copies"]
    # A copy reads and writes: a slice into the gather's output, all of it out of there, all gradients into one input.
    copied = 2 * size * (copies["copy-in"] / ranks + copies["copy-out"] + copies["chunk-cat"])
    # Ours keeps the tied embedding gathered from first to last use, and its gradient, as FSDP2 its root, which is not counted there.
    live = live_transport(context, events, "backward of block.1") - 2 * theirs["groups"]["root"]["parameter_bytes"]
    lines.append(line("dynamic", "allocations for transport, a block and step", "as FSDP2's",
                      f"{mine['allocations']:.0f} against {group['allocations']}",
                      mine["allocations"] == group["allocations"]))
    for what, a, b in (("bytes taken for transport, a block and step", mine["bytes"], group["bytes"]),
                       ("bytes copied, a block and step", mine["copied"], copied),
                       ("transport live in backward, at most", live, theirs["live_peak_bytes"])):
        lines.append(line("dynamic", what, "as FSDP2's, padding apart (1 %)",
                          f"{a / size:.3f} against {b / size:.3f} x a block's weights", abs(a / b - 1) <= 0.01,
                          None, evenodd_bytes=a, fsdp2_bytes=b, block_bytes=size))
    results = speed.sharded(context)
    found = ratio(speed.speeds(results["evenodd, dynamic:pool"]), speed.speeds(results["FSDP2"]))
    lines.append(line("dynamic", "speed of dynamic:pool, " + speed.shape(context, "2 ranks x 1 thread"), ">= 1 x FSDP2",
                      f"{found['ratio']:.2f} x", found["ratio"] >= 1, found))
    return lines


def order_line(mine, theirs):
    """FSDP2's root group holds the embedding, and the head by its tied weight: it is reduced once, as ours."""
    mine = [(kind, group) for kind, group, _ in mine]
    other = [(c["kind"], c["group"]) for c in theirs["collectives"] if c["kind"] != "all-reduce"]
    return line("dynamic", "collectives of a step: kind, group, order", "as FSDP2's",
                f"{len(mine)} against {len(other)}, {'the same order' if mine == other else 'NOT the same order'}",
                mine == other, None, evenodd=mine, fsdp2=other)
