# SPDX-License-Identifier: MIT
"""Ranks that are killed or stopped: how soon all others say which one it was, and how soon no process is left."""
import os

from lines.measure import last_json, line

CASES = 50
# In words, and how many processes compute beside for each core.
LOADS = (("nothing beside", 0), ("two busy processes a core beside", 2))
# The program's key, in words, and the deadline in seconds that comes first.
KINDS = (("ended", "a rank killed (SIGKILL, SIGSEGV)", 0), ("stopped", "a rank stopped, deadline 2 s", 2))
# The program's key, in words, and within how many seconds.
DEEDS = (("told", "named by all others", 1), ("ended", "no process left", 5))


def measure(context, spinners):
    text = context.path("text")
    with open(text, "w", encoding="utf-8") as file:
        file.write("a rank is lost, and the others say which one it was\n" * 200)
    program = context.program("tests", "faults", "bench_faults")
    folder = context.path("flight")
    return last_json(context.run([program, context.program("tools", "launch"), context.program("tools", "train"), folder, text,
                                  "5" if context.quick else str(CASES), str(spinners)], timeout=1800))


def faults(context):
    lines = []
    for words, a_core in LOADS:
        result = measure(context, a_core * len(os.sched_getaffinity(0)))
        for kind, what, deadline_s in KINDS:
            found = result[kind]
            for key, deed, most_s in DEEDS:
                median_ms, worst_ms = found[f"{key}_median_ms"], found[f"{key}_worst_ms"]
                lines.append(line("faults", f"{what}, {words}: {deed}", f"< {most_s + deadline_s} s",
                                  f"{median_ms:.0f} ms, worst of {found['cases']} {worst_ms:.0f} ms",
                                  worst_ms < 1000 * (most_s + deadline_s), None, **found))
    return lines
