#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The figures that evenodd promises, measured here: a table, and JSON.

Each line of the table names what is demanded, what was measured, and whether that is enough. Runs that are compared
alternate; figures are medians, and a ratio comes with the smallest and largest ratio of a turn.
"""
import argparse
import json
import os
import platform
import sys
import time

sys.dont_write_bytecode = True
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
import rates  # noqa: E402
from lines import bf16, bucketing, checkpoint, dynamic, fabric, faults, lora, modes, muon, offload, processes, shapes, small, speed  # noqa: E402
from lines.measure import Context, Missing, line  # noqa: E402

# In the order in which they are run: quick ones first. Lines of one module share their runs.
LINES = {
    "plan": small.plan_time,
    "update": small.update,
    "arena": small.arena,
    "calls": small.calls,
    "collectives": small.collectives,
    "processes": processes.collectives,
    "faults": faults.faults,
    "bf16-calls": bf16.calls,
    "bf16-products": bf16.products,
    "speed-ranks": speed.speed_ranks,
    "peak-share": speed.peak_share,
    "resident": speed.resident,
    "bf16-ranks": bf16.ranks,
    "bf16-fp32": bf16.against_fp32,
    "bf16-resident": bf16.resident,
    "bf16-share": bf16.share,
    "bf16-parts": bf16.parts,
    "checkpoint": checkpoint.checkpoint,
    "dynamic": dynamic.against_fsdp2,
    "budget": offload.budget,
    "offload": offload.offload,
    "speed-threads": speed.speed_threads,
    "bf16-threads": bf16.threads,
    "bf16-llama": bf16.llama,
    "bf16-qwen3": bf16.qwen3,
    "bf16-levels": bf16.levels,
    "bf16-loss": bf16.loss,
    "shapes": shapes.shapes,
    "speed-processes": processes.speed,
    "modes": modes.modes,
    "idle": modes.idle,
    "simulated": modes.simulated,
    "fabric": fabric.fabric,
    "bucketing": bucketing.bucketing,
    "lora": lora.lora,
    "frozen": lora.frozen,
    "muon": muon.muon,
}
LOAD_QUIET = 0.5


def arguments():
    p = argparse.ArgumentParser(prog="tools/dev bench", description=__doc__,
                                formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--peers", action="store_true",
                   help="run PyTorch in turn with ours (about 20 minutes in all on 2 cores, 15 without). Its Python "
                        "is named by EO_PEERS_PYTHON, or set up in .peers; EO_PEERS_PIP_ARGS goes to pip")
    p.add_argument("--quick", action="store_true", help="small models and few runs: a check, without figures")
    p.add_argument("--runs", type=int, metavar="R", help="turns of each comparison [2; with --quick 1]")
    p.add_argument("--only", metavar="LINE,...", help="of " + ", ".join(LINES))
    p.add_argument("--cases", metavar="MODEL:RANKS,...", help="models and ranks to compare the memory modes on "
                                                               f"[{modes.case_text(modes.CASES)}]")
    p.add_argument("--device-file", metavar="FILE", help="measure this machine for memplan --devices, and nothing else")
    p.add_argument("--json", metavar="FILE", help="[bench.json in the build folder]")
    p.add_argument("--build", default=os.path.join(ROOT, "build"), metavar="DIR", help="[build]")
    p.add_argument("--look", action="store_true", help=argparse.SUPPRESS)  # at the arguments, and nothing else
    a = p.parse_args()
    chosen = a.only.split(",") if a.only else list(LINES)
    for name in chosen:
        if name not in LINES:
            p.error(f"--only: '{name}' is not a line; there are {', '.join(LINES)}")
    a.runs = a.runs if a.runs is not None else 1 if a.quick else 2
    if a.runs < 1:
        p.error("--runs is at least 1")
    try:
        a.cases = modes.parse_cases(a.cases) if a.cases else None
    except ValueError as error:
        p.error(f"--cases: {error}")
    a.json = a.json or os.path.join(a.build, "bench.json")
    if a.look:
        sys.exit(0)
    if not os.access(os.path.dirname(os.path.abspath(a.json)), os.W_OK):
        p.error(f"--json {a.json}: its folder cannot be written to")
    return a, [name for name in LINES if name in chosen]


def machine():
    name = platform.machine()
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            name = next(row.split(":", 1)[1].strip() for row in file if row.startswith("model name"))
    except (OSError, StopIteration):
        pass
    return {"processor": name, "cores": len(os.sched_getaffinity(0)), "system": platform.platform(),
            "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")}


def spread_text(spread):
    if not spread or spread["runs"] < 2:
        return ""
    return f"{spread['low']:.3f} ... {spread['high']:.3f}"


def table(rows):
    columns = [("line", [r["line"] for r in rows]), ("figure", [r["what"] for r in rows]),
               ("demanded", [r["demanded"] for r in rows]), ("measured", [r["measured"] for r in rows]),
               ("lowest ... highest", [spread_text(r["spread"]) for r in rows]), ("", [r["verdict"] for r in rows])]
    widths = [max(len(text) for text in [head, *texts]) for head, texts in columns]
    for row in range(-2, len(rows)):
        cells = [head if row == -2 else "-" * width if row == -1 else texts[row]
                 for (head, texts), width in zip(columns, widths)]
        print("  ".join(cell.ljust(width) for cell, width in zip(cells, widths)).rstrip())


def main():
    a, chosen = arguments()
    if a.device_file:
        rates.write(a.device_file, os.path.abspath(a.build), machine())
        return 0
    context = Context(ROOT, os.path.abspath(a.build), a.runs, a.quick, a.peers)
    context.chosen, context.cases = set(chosen), a.cases
    load = os.getloadavg()[0]
    if load > LOAD_QUIET:
        context.say(f"warning: the machine is busy (load {load:.1f}): do not trust the times below")
    rows = []
    for name in chosen:
        context.say(name)
        try:
            rows += LINES[name](context)
        except Missing as missing:
            rows.append(line(name, "could not be measured", "", str(missing), missing))
            context.say(f"{name}: {missing}")
        except KeyboardInterrupt:
            context.say("interrupted; the results so far follow")
            break
    result = {"schema": 1, "taken": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), "machine": machine(),
              "load_at_start": load, "quick": a.quick, "peers": a.peers, "runs": a.runs,
              "seconds": time.monotonic() - context.begin, "lines": rows}
    if "python" in context.shared:
        result["torch"] = context.shared.get("about torch", (None, None))[0]
    with open(a.json, "w", encoding="utf-8") as file:
        json.dump(result, file, indent=1)
        file.write("\n")
    sys.stderr.flush()
    table(rows)
    counts = {verdict: sum(r["verdict"] == verdict for r in rows) for verdict in ("pass", "short", "shown", "failed")}
    quick = "; --quick: these are not the promised shapes" if a.quick else ""
    print(f"{counts['pass']} pass, {counts['short']} short, {counts['shown']} shown, {counts['failed']} not measured; "
          f"details in {a.json}{quick}")
    return 1 if counts["failed"] else 0


if __name__ == "__main__":
    sys.exit(main())
