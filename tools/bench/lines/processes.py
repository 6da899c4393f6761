# SPDX-License-Identifier: MIT
"""Ranks that are processes: their collectives beside Open MPI's own, and a training beside one whose ranks are threads."""
import shutil

from lines import ours, peers
from lines.measure import Missing, last_json, line, median, ratio
from lines.speed import model, ours_run, shape, speeds

# What is compared, its key in the program's JSON, and how much faster than Open MPI it is to be.
KINDS = (("all-gather", "all_gather", 0.95), ("all-gather in place", "all_gather_in_place", 0.95),
         ("reduce-scatter", "reduce_scatter", 3))


def collectives(context):
    mpirun = shutil.which("mpirun")
    if not mpirun:
        raise Missing("no mpirun")
    command = [mpirun, "-n", "2", "--oversubscribe", context.program("tests", "conformance", "bench_processes")]
    root = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    results = [last_json(context.run(command, environment=root)) for _ in range(1 if context.quick else context.runs + 1)]
    size = f"{results[0]['whole_bytes'] / 2**20:.0f} MiB a rank, 2 processes"
    lines = []
    for name, key, least in KINDS:
        mine, theirs = ([r[f"{side}_{key}_ms"] for r in results] for side in ("shared", "open_mpi"))
        found = ratio(theirs, mine)
        messages = median([r[f"mpi_{key}_ms"] for r in results])
        lines.append(line("processes", f"{name}, shared, {size}", f">= {least} x Open MPI",
                          f"{found['ratio']:.2f} x ({median(mine):.2f} / {median(theirs):.2f} ms; over mpi {messages:.2f})",
                          found["ratio"] >= least, found, results=results))
    return lines


def launched(context):
    """As ours_run, with a process for each rank."""
    launch = [context.program("tools", "evenodd-launch"), "-n", "2"]
    return ours.train(context, model(context), 1 if context.quick else 4, "--threads", "1", "--batch", "4", "--seq",
                      "256", "--lr", "0.0003", launcher=launch)


def speed(context):
    makers = {"processes": lambda: launched(context), "threads": lambda: ours_run(context, 2, 1)}
    if context.peers:
        peers.about(context)
        makers["FSDP2"] = lambda: peers.fsdp2(context, model(context), 4, 256, 1 if context.quick else 4)
    results = context.in_turn(context.runs, makers)
    mine = speeds(results["processes"])
    found = ratio(mine, speeds(results["threads"]))
    what = "speed, " + shape(context, "2 processes x 1 thread")
    lines = [line("speed-processes", what, ">= 0.97 x ranks that are threads",
                  f"{found['ratio']:.3f} x ({median(mine):.0f} / {median(speeds(results['threads'])):.0f} tokens/s)",
                  found["ratio"] >= 0.97, found, tokens_per_s=mine)]
    if "FSDP2" in results:
        theirs = ratio(mine, speeds(results["FSDP2"]))
        lines.append(line("speed-processes", what, ">= 1.5 x FSDP2", f"{theirs['ratio']:.2f} x", theirs["ratio"] >= 1.5,
                          theirs))
    return lines
