#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What FSDP2 does in one step: its collectives in order, and what each group of parameters takes and copies.

    venv/bin/torchrun --nproc-per-node 2 fsdp2_trace.py --model tiny --batch 4 --seq 256

Goal: hold evenodd's dynamic mode against the real FSDP2, and not against a description of it.
Method: the third step of the peer program's model under PyTorch's profiler. Collectives, copies and allocations of
rank 0 are told from everything else by the ranges that FSDP2 itself names ("FSDP::all_gather (blocks.0)" and the
like); what gloo takes inside a collective is not counted. Gradients are allocated by autograd, outside those ranges:
one a parameter is counted. They are known, for what is live, by being freed inside the range of their reduction. The
live peak is of gathered outputs, parameters, gradients and inputs of reductions of the blocks; what a reduction puts
out is a gradient shard. One JSON line at the end.
"""
import argparse
import json
import os
import re
import sys

import torch
import torch.distributed as dist
from torch.profiler import ProfilerActivity, profile

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import fsdp2  # noqa: E402

COLLECTIVES = {"c10d::_allgather_base_": "all-gather", "c10d::_reduce_scatter_base_": "reduce-scatter",
               "c10d::allreduce_": "all-reduce"}
COPIES = {"fsdp::all_gather_copy_in": "copy-in", "fsdp::split_with_sizes_copy": "copy-out",
          "aten::split_with_sizes_copy": "copy-out", "fsdp::chunk_cat": "chunk-cat", "aten::_chunk_cat": "chunk-cat"}
TAKING = re.compile(r"FSDP::(all_gather|all_gather_copy_out|post_backward_reduce)\b")
GROUP = re.compile(r"\(([^)]*)\)")


def ranges_around(stack, now):
    """Drops what has ended from the stack of open ranges, which is then what encloses `now`."""
    while stack and stack[-1][1] <= now:
        stack.pop()
    return [name for name, _ in stack]


def group_of(names):
    for name in reversed(names):
        if name.startswith("FSDP::"):
            found = GROUP.search(name)
            return (found.group(1) if found else "") or "root"
    return None


def floats(shapes):
    """Elements of the largest tensor among the arguments."""
    counts = [0]
    for shape in shapes:
        if shape and all(isinstance(size, int) for size in shape):
            count = 1
            for size in shape:
                count *= size
            counts.append(count)
    return max(counts)


def allocations(events, found):
    """(time, identity, bytes) of the main thread's allocations and frees, which have negative bytes, from a tree."""
    for e in events:
        if e.typed[0].name == "Allocation":
            found.append((e.start_time_ns, e.typed[1].allocation_id, e.typed[1].alloc_size))
        allocations(e.children, found)
    return found


def live_peak(events, changes, sizes):
    """Of the blocks' transport; sizes are those of the blocks' collectives."""
    begin = [(e.start_ns(), 0, e) for e in events if e.name().startswith(("FSDP::", "c10d::"))]
    marks = sorted(begin + [(time, 1, (identity, size)) for time, identity, size in changes], key=lambda m: m[:2])
    stack, taken, moves = [], {}, []  # taken: identity -> (time, bytes)
    transport = set()
    for now, is_change, mark in marks:
        around = ranges_around(stack, now)
        if not is_change:
            stack.append((mark.name(), now + mark.duration_ns()))
            continue
        identity, size = mark
        group, inside = group_of(around) or "", any(n.startswith("c10d::") for n in around)
        reduces = any(n.startswith("FSDP::post_backward_reduce") for n in around)
        if size > 0:
            taken[identity] = (now, size)
            if group.startswith("blocks.") and not inside and any(TAKING.match(n) for n in around):
                if not reduces or size in sizes:
                    transport.add(identity)
        elif identity in taken:
            if reduces and group.startswith("blocks.") and not inside and -size < max(sizes):
                transport.add(identity)  # a gradient
            if identity in transport:
                moves += [taken[identity], (now, size)]
    live = peak = 0
    for _, size in sorted(moves):
        live += size
        peak = max(peak, live)
    return peak


def read(events):
    collectives, groups, stack = [], {}, []
    main = next(e.start_thread_id() for e in events if e.name().startswith("FSDP::"))
    for e in events:
        if e.start_thread_id() != main:
            continue
        name, now = e.name(), e.start_ns()
        around = ranges_around(stack, now)
        group = group_of(around)
        inside = any(n.startswith("c10d::") for n in around)
        if name == "[memory]":
            if e.nbytes() > 0 and not inside and any(TAKING.match(n) for n in around):
                entry = groups.setdefault(group, {"allocations": 0, "bytes": 0, "copies": {}})
                entry["allocations"] += 1
                entry["bytes"] += e.nbytes()
            continue
        if name in COLLECTIVES:
            collectives.append({"kind": COLLECTIVES[name], "group": group or "norm",
                                "bytes": 4 * floats(e.shapes())})
        elif name in COPIES and group and not any(n in COPIES for n in around):
            copies = groups.setdefault(group, {"allocations": 0, "bytes": 0, "copies": {}})["copies"]
            copies[COPIES[name]] = copies.get(COPIES[name], 0) + 1
        stack.append((name, now + e.duration_ns()))
    return collectives, groups


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--model", default="tiny", choices=[*fsdp2.GPT2, *fsdp2.LLAMA])
    p.add_argument("--batch", type=int, default=4)
    p.add_argument("--seq", type=int, default=256)
    a = p.parse_args()
    from torch.distributed.fsdp import fully_shard
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    torch.manual_seed(1)
    model = fsdp2.Model(a.model)
    for block in model.blocks:
        fully_shard(block)
    fully_shard(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, fused=True)
    tokens = torch.randint(model.vocabulary, (a.batch, a.seq + 1))

    def step():
        model(tokens[:, :-1], tokens[:, 1:]).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    step()
    step()
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True, record_shapes=True) as profiler:
        step()
    if dist.get_rank() == 0:
        events = sorted(profiler.profiler.kineto_results.events(), key=lambda e: (e.start_ns(), -e.duration_ns()))
        collectives, groups = read(events)
        parameters = {"root": [q for n, q in model.named_parameters() if not n.startswith("blocks.")]}
        for i, block in enumerate(model.blocks):
            parameters[f"blocks.{i}"] = list(block.parameters())
        for name, entry in groups.items():
            entry["parameters"] = len(parameters[name])
            entry["parameter_bytes"] = 4 * sum(q.numel() for q in parameters[name])
            entry["allocations"] += entry["parameters"]
            entry["bytes"] += entry["parameter_bytes"]
        sizes = {c["bytes"] for c in collectives if c["group"].startswith("blocks.")}
        changes = allocations(profiler.profiler.kineto_results.experimental_event_tree(), [])
        print(json.dumps({"model": a.model, "ranks": dist.get_world_size(), "torch": torch.__version__,
                          "live_peak_bytes": live_peak(events, changes, sizes), "collectives": collectives,
                          "groups": groups}), flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
