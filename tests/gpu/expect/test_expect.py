#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""tools/dev gpu --expect: the step's list of launches holds all of a model's work, and times follow from the file of rates.
Method: small models through the program that lists launches, counts by hand, and launches made up for one rate each.
usage: test_expect.py STEP_LAUNCHES EXPECT RATES"""
import importlib.util
import json
import subprocess
import sys

program, script, rates_file = sys.argv[1:4]
sys.dont_write_bytecode = True
spec = importlib.util.spec_from_file_location("expect", script)
expect = importlib.util.module_from_spec(spec)
spec.loader.exec_module(expect)
with open(rates_file, encoding="utf-8") as file:
    rates = json.load(file)
machine = expect.Machine(rates, "h200")
cases = 0


def case(good, what, why=""):
    """A line of TAP."""
    global cases
    cases += 1
    if not good and why != "":
        print(f"# {why}")
    print(f"{'ok' if good else 'not ok'} {cases} - {what}")


def listed(*words):
    """The list of a step."""
    return expect.launches_of(program, list(words))


def sums(launches, key, **wanted):
    """The sum of a key over the launches that have these values."""
    return sum(launch.get(key, 0) for launch in launches if all(launch.get(name) == value for name, value in wanted.items()))


LAYERS, WIDTH, WORDS, CONTEXT = 12, 768, 50257, 1024
head, gpt2 = listed("--model", "gpt2", "--batch", "2", "--seq", "256")
rows = 2 * 256
blocks = 6 * rows * LAYERS * 12 * WIDTH * WIDTH
case(sums(gpt2, "flops", group="block products") == blocks, "a block's products are all there",
     (sums(gpt2, "flops", group="block products"), blocks))
RUN_WORDS = -(-WORDS // 64) * 64  # as its products run
case(sums(gpt2, "flops", group="head") == 6 * rows * RUN_WORDS * WIDTH, "so are the head's")
attention = [launch for launch in gpt2 if launch["group"] == "attention"]
case(len(attention) == 2 * LAYERS and sum(l["flops"] for l in attention) == 3.5 * 2 * rows * 256 * WIDTH * LAYERS,
     "attention runs once forward and once backward in a block", len(attention))
case(head["useful_flops"] == blocks + 6 * rows * WORDS * WIDTH + 6 * LAYERS * WIDTH * 256 * rows,
     "useful FLOPs are those of train's MFU", head)
parameters = WORDS * WIDTH + CONTEXT * WIDTH + LAYERS * (12 * WIDTH * WIDTH + 13 * WIDTH) + 2 * WIDTH
updated = sums(gpt2, "must", group="AdamW") / 28
case(parameters <= updated < 1.001 * parameters, "AdamW goes once through every parameter", (updated, parameters))
norms = [launch for launch in gpt2 if launch["kernel"].startswith("norm_forward")]
case(len(norms) == 2 * LAYERS + 1, "two norms a block, and the last one", len(norms))
case(not [l for l in gpt2 if l["read"] + l["written"] == 0], "every launch touches memory")
case(all(launch["threads"] and launch["blocks"] for launch in gpt2 if not launch.get("flops")), "kernels have blocks and threads")

_, chunked = listed("--model", "gpt2", "--batch", "2", "--seq", "256", "--head-chunks", "4")
case(len([l for l in chunked if l["kernel"] == "cross_entropy_kernel"]) == 4, "the head in four pieces is four losses")
_, again = listed("--model", "gpt2", "--batch", "2", "--seq", "256", "--recompute", "cheap")
gelus, norms = ([l for l in again if l["kernel"] == kernel] for kernel in ("gelu_forward_kernel", "norm_forward_kernel"))
case(len(gelus) == 2 * LAYERS and len(norms) == 2 * LAYERS + 1, "a cheap recompute takes GELU again, and no norm",
     (len(gelus), len(norms)))
_, llama = listed("--model", "llama-tiny", "--batch", "2", "--seq", "32")
case({"rotate_kernel", "swiglu_forward_kernel", "swiglu_backward_kernel"} <= {l["kernel"] for l in llama},
     "Llama has its own kernels")
refused = subprocess.run([program, "--model", "gpt5"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False)
case(refused.returncode == 2 and b"gpt5" in refused.stderr, "an unknown model is named")

# Times. A launch of one block and nothing else is the gap; bytes go at the stream's rate; a full wave costs no more.
EMPTY = {"group": "", "kernel": "", "beside": False, "read": 0, "written": 0, "must": 0, "blocks": 1, "threads": 256, "shared": 0,
         "round_trips": 0, "barriers": 0, "double_adds": 0}
gap = rates["launch"]["gap_ns"]["value"] * 1e-9
stream = rates["machines"]["h200"]["hbm_bytes_per_s"]["value"] * rates["memory"]["stream"]["value"]
near = lambda a, b: abs(a - b) <= 1e-9 * abs(b)
case(near(machine.seconds(EMPTY), gap), "an empty launch takes the gap")
case(near(machine.seconds({**EMPTY, "read": 1e9, "written": 1e9}) - gap, 2e9 / stream), "bytes take the stream's time")
trip = rates["memory"]["round_trip_ns"]["value"] * 1e-9
case(near(machine.seconds({**EMPTY, "blocks": 8 * 132, "round_trips": 3}) - gap, 3 * trip) and
     near(machine.seconds({**EMPTY, "blocks": 16 * 132, "round_trips": 3}) - gap, 6 * trip), "waves follow each other")
case(machine.resident({**EMPTY, "shared": 100 << 10}) == 2 and machine.resident({**EMPTY, "threads": 32}) == 32,
     "shared memory and blocks limit what is resident")
plateau = rates["products"]["plateau"]["value"]
case(near(machine.product_share(128 * 132, 256), plateau), "whole waves of whole tiles reach the plateau")
case(machine.product_share(128 * 133, 256) < plateau, "one tile more costs a wave")
lines, totals = expect.expect(head, gpt2, machine)
case(near(totals["step_ms"], sum(machine.seconds(l) for l in gpt2 if not l["beside"]) * 1e3), "a step is the sum of its launches")
case(near(totals["mfu_percent"], head["useful_flops"] / totals["step_ms"] * 1e5 / 989e12), "MFU is of the peak")

# The target of docs/gpu.md, on paper, and what is left of bytes that a kernel of ours need not touch.
lines, totals = expect.expect(*listed("--model", "gpt2-xl", "--batch", "32", "--seq", "1024"), machine)
case(totals["mfu_percent"] >= 56, "gpt2-xl at batch 32 is expected at 56 % of the peak or more", totals)
above = [line["line"] for line in lines if line["line"] != "attention" and line["gigabytes"] > 1.1 * line["must_gigabytes"]]
case(not above, "no line but cuDNN's attention has more than 1.1 times the bytes of its operands", above)
print(f"1..{cases}")
sys.exit(0)
