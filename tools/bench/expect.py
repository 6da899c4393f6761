#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What `tools/dev gpu --expect MODEL` prints: the time that a training step is expected to take on a GPU, line by line, before
any GPU has run it. The launches come from the step's own list (tests/gpu/expect/step_launches), their bytes and FLOPs from
the shapes, the rates from gpu_rates.json beside this file. --json gives the lines to compare a measured step with."""
import argparse
import json
import os
import signal
import subprocess
import sys

HERE = os.path.dirname(os.path.realpath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))


def value(entry):
    """A rate without its source."""
    return entry["value"]


class Machine:
    """Times of launches on one machine, by the file of rates."""

    def __init__(self, rates, name):
        if name not in rates["machines"]:
            sys.exit(f"expect: no machine '{name}'; the file of rates has {', '.join(rates['machines'])}")
        self.rates, machine = rates, rates["machines"][name]
        self.name = machine["name"]
        self.flops = value(machine["bf16_flops_per_s"])
        self.multiprocessors = value(machine["multiprocessors"])
        self.stream = value(machine["hbm_bytes_per_s"]) * value(rates["memory"]["stream"])
        self.gap = value(rates["launch"]["gap_ns"]) * 1e-9

    def product_share(self, m, n):
        """The share of the peak that a product with so many rows and columns reaches: with the best tile."""
        best = 0
        for rows, columns, rate in value(self.rates["products"]["tiles"]):
            tiles = -(-m // rows) * -(-n // columns)
            waves = -(-tiles // self.multiprocessors)
            best = max(best, rate * m * n / (waves * self.multiprocessors * rows * columns))
        return best * value(self.rates["products"]["plateau"])

    def attention_share(self, launch):
        """The same of attention."""
        kind = "backward" if launch["backward"] else "forward"
        return value(self.rates["attention"][kind + ("_128" if launch["head_size"] >= 128 else "")])

    def resident(self, launch):
        """Blocks of a kernel that a multiprocessor holds at a time."""
        limits, threads = self.rates["multiprocessor"], max(launch["threads"], 1)
        return max(1, min(value(limits["threads"]) // threads, value(limits["blocks"]),
                          value(limits["shared_bytes"]) // (launch["shared"] + 1024)))

    def seconds(self, launch):
        """A launch, and the gap before it."""
        streamed = (launch["read"] + launch["written"]) / self.stream
        if launch.get("flops"):
            share = self.product_share(launch["m"], launch["n"]) if launch["m"] else self.attention_share(launch)
            return self.gap + max(streamed, launch["flops"] / (self.flops * share))
        memory = self.rates["memory"]
        chain = (launch["round_trips"] * value(memory["round_trip_ns"]) + launch["barriers"] * value(memory["barrier_ns"]) +
                 launch["double_adds"] * value(memory["double_add_ns"])) * 1e-9
        waves = max(1, launch["blocks"] / (self.multiprocessors * self.resident(launch)))
        return self.gap + streamed + waves * chain


def expect(head, launches, machine):
    """The lines of the table, longest first, then those of the other streams; and the totals."""
    lines = {}
    for launch in launches:
        line = lines.setdefault((launch["beside"], launch["group"]), {
            "line": launch["group"], "beside": launch["beside"], "launches": 0, "gigabytes": 0, "must_gigabytes": 0,
            "teraflops": 0, "ms": 0, "kernels": []})
        line["launches"] += 1
        line["gigabytes"] += (launch["read"] + launch["written"]) * 1e-9
        line["must_gigabytes"] += launch["must"] * 1e-9
        line["teraflops"] += launch.get("flops", 0) * 1e-12
        line["ms"] += machine.seconds(launch) * 1e3
        if launch["kernel"] not in line["kernels"]:
            line["kernels"].append(launch["kernel"])
    rows = sorted(lines.values(), key=lambda line: (line["beside"], -line["ms"]))
    step = sum(line["ms"] for line in rows if not line["beside"])
    totals = {"machine": machine.name, "model": head["model"], "batch": head["batch"], "seq": head["seq"],
              "dtype": head["dtype"], "step_ms": step, "launches": sum(line["launches"] for line in rows if not line["beside"]),
              "tokens_per_s": head["batch"] * head["seq"] / step * 1e3,
              "mfu_percent": head["useful_flops"] / (step * 1e-3) / machine.flops * 100}
    return rows, totals


def print_table(rows, totals, first):
    """Text. `first`: the lines of the first expectation, where it was for this."""
    same = all(totals[key] == first[key] for key in ("model", "batch", "seq"))
    lines = first["lines_ms"] if same else {}
    print(f"Expected, not measured: {totals['model']}, batch {totals['batch']}, seq {totals['seq']}, {totals['dtype']}, one "
          f"{totals['machine']}: {totals['step_ms']:.1f} ms a step, {totals['tokens_per_s']:.0f} tokens/s, "
          f"{totals['mfu_percent']:.1f} % of the peak" +
          (f" (first expectation: {first['step_ms']} ms, {first['mfu_percent']} %)" if same else ""))
    print(f"{'':26} {'ms':>8} {'%':>5} {'launches':>8} {'GB':>8} {'/must':>6} {'TFLOP':>7}" + ("    first" if same else ""))
    for row in rows:
        share = 0 if row["beside"] else row["ms"] / totals["step_ms"] * 100
        ratio = row["gigabytes"] / row["must_gigabytes"] if row["must_gigabytes"] else 0
        print(f"{row['line'] + (', beside' if row['beside'] else ''):26} {row['ms']:8.2f} {share:5.1f} {row['launches']:8} "
              f"{row['gigabytes']:8.2f} {ratio:6.2f} {row['teraflops']:7.2f}" +
              (f" {lines[row['line']]:8.1f}" if row["line"] in lines else ""))


def launches_of(program, words):
    """The step's list, from the program or from a file that it wrote."""
    if os.path.isfile(program) and not os.access(program, os.X_OK):
        with open(program, encoding="utf-8") as file:
            text = file.read()
    else:
        done = subprocess.run([program, *words], stdout=subprocess.PIPE, check=False)
        if done.returncode:
            sys.exit(done.returncode)
        text = done.stdout.decode()
    lines = [json.loads(line) for line in text.split("\n") if line]
    if len(lines) < 2:
        sys.exit(f"expect: {program} gave no launches")
    return lines[0], lines[1:]


def main():
    """The command."""
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # `| head` is no error
    parser = argparse.ArgumentParser(prog="tools/dev gpu --expect", description=__doc__)
    parser.add_argument("model")
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--seq", type=int, default=0, help="[the model's context]")
    parser.add_argument("--recompute", default="none", choices=["none", "cheap", "blocks"])
    parser.add_argument("--head-chunks", type=int, default=1)
    parser.add_argument("--fp32", action="store_true")
    parser.add_argument("--reduce-bf16", action="store_true")
    parser.add_argument("--machine", default="h200")
    parser.add_argument("--rates", default=os.path.join(HERE, "gpu_rates.json"))
    parser.add_argument("--json", action="store_true", help="one line of JSON for each line, and one for the totals")
    parser.add_argument("--launches", default=os.path.join(ROOT, "build/tests/gpu/step_launches"),
                        help="the program that lists a step's launches, or a file with its list")
    options = parser.parse_args()
    with open(options.rates, encoding="utf-8") as file:
        rates = json.load(file)
    words = ["--model", options.model, "--batch", str(options.batch), "--seq", str(options.seq), "--recompute",
             options.recompute, "--head-chunks", str(options.head_chunks), "--fp32", str(int(options.fp32)), "--reduce-bf16",
             str(int(options.reduce_bf16))]
    rows, totals = expect(*launches_of(options.launches, words), Machine(rates, options.machine))
    if options.json:
        for row in rows:
            print(json.dumps({"expected": row["line"], **row}))
        print(json.dumps({"expected_totals": totals}))
    else:
        print_table(rows, totals, rates["first_expectation"])


if __name__ == "__main__":
    main()
