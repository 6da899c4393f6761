# SPDX-License-Identifier: MIT
"""gpt2 against the peers: speed, share of the peak, memory."""
from lines import ours, peers
from lines.measure import Missing, line, median, ratio

BATCH, SEQ = 4, 256


def model(context):
    return "small" if context.quick else "gpt2"


def steps(context):
    return 1 if context.quick else 4


def ours_run(context, ranks, threads, *options, peak_seconds=0):
    return ours.train(context, model(context), steps(context), "--ranks", str(ranks), "--threads", str(threads),
                      "--batch", str(BATCH), "--seq", str(SEQ), "--lr", "0.0003", *options, peak_seconds=peak_seconds)


def sharded(context):
    """2 ranks x 1 thread, all that the chosen lines need, in turn."""
    chosen = context.chosen
    makers = {"evenodd": lambda: ours_run(context, 2, 1, peak_seconds=1 if context.quick else 3)}
    if context.peers:
        if chosen & {"speed-ranks", "resident", "dynamic"}:
            peers.about(context)  # sets the environment up, and is not part of a run
            makers["FSDP2"] = lambda: peers.fsdp2(context, model(context), BATCH, SEQ, steps(context))
        if "dynamic" in chosen:
            makers["evenodd, dynamic:pool"] = lambda: ours_run(context, 2, 1, "--memory", "dynamic:pool")
    return context.once("gpt2 sharded", lambda: context.in_turn(context.runs, makers))


def speeds(results):
    return [result["tokens_per_s"] for result in results]


def shape(context, what):
    return f"{model(context)} fp32, {what}, batch {BATCH}, seq {SEQ}"


def speed_ranks(context):
    results = sharded(context)
    mine = speeds(results["evenodd"])
    what = "speed, " + shape(context, "2 ranks x 1 thread")
    if "FSDP2" not in results:
        return [line("speed-ranks", what, ">= 1.6 x FSDP2", f"{median(mine):.0f} tokens/s (ratio: --peers)", None,
                     tokens_per_s=mine)]
    theirs = speeds(results["FSDP2"])
    found = ratio(mine, theirs)
    return [line("speed-ranks", what, ">= 1.6 x FSDP2",
                 f"{found['ratio']:.2f} x ({median(mine):.0f} / {median(theirs):.0f} tokens/s)",
                 found["ratio"] >= 1.6, found, tokens_per_s=mine, fsdp2_tokens_per_s=theirs)]


def speed_threads(context):
    makers = {"evenodd, 1 rank x 2 threads": lambda: ours_run(context, 1, 2)}
    if context.peers:
        peers.about(context)
        makers["PyTorch, 2 threads"] = lambda: peers.single(context, model(context), BATCH, SEQ, steps(context), 2)
    results = context.in_turn(context.runs, makers)
    mine = speeds(results["evenodd, 1 rank x 2 threads"])
    what = "speed, " + shape(context, "1 rank x 2 threads")
    if not context.peers:
        return [line("speed-threads", what, ">= 1.2 x PyTorch", f"{median(mine):.0f} tokens/s (ratio: --peers)", None,
                     tokens_per_s=mine)]
    theirs = speeds(results["PyTorch, 2 threads"])
    found = ratio(mine, theirs)
    return [line("speed-threads", what, ">= 1.2 x PyTorch",
                 f"{found['ratio']:.2f} x ({median(mine):.0f} / {median(theirs):.0f} tokens/s)",
                 found["ratio"] >= 1.2, found, tokens_per_s=mine, pytorch_tokens_per_s=theirs)]


def peak_share(context):
    """The peak is measured by train itself, just before its steps, in the same process."""
    shares, peaks = [], []
    for summary in sharded(context)["evenodd"]:
        if not summary.get("peak_share"):
            raise Missing("train's summary has no peak_share")
        shares.append(summary["peak_share"] * summary["step_s_median"] / summary["step_s"])
        peaks.append(summary["peak_flops_per_s"] / 1e9)
    return [line("peak-share", "useful FLOPs / peak of the step's own products, " + shape(context, "2 x 1"), ">= 85 %",
                 f"{100 * median(shares):.1f} % of {median(peaks):.0f} GFLOP/s", median(shares) >= 0.85,
                 {"low": min(shares), "high": max(shares), "runs": len(shares)}, shares=shares, peak_gflops=peaks)]


def resident(context):
    results = sharded(context)  # a process holds all ranks of ours, and one rank of FSDP2's
    mine = [r["peak_rss_bytes"] for r in results["evenodd"]]
    what, demanded, gigabytes = "resident peak, all ranks", "<= 0.5 x FSDP2's", f"{median(mine) / 1e9:.2f} GB"
    if "FSDP2" not in results:
        return [line("resident", what, demanded, f"{gigabytes} (ratio: --peers)", None, bytes=mine)]
    theirs = [r["resident_bytes"] for r in results["FSDP2"]]
    found, about = ratio(mine, theirs), peers.about(context)
    # As a user meets it: with all that PyTorch's libraries take, and, for those who hold them apart, without.
    without = median(mine) / (median(theirs) - 2 * about["import_bytes"] + about["import_file_bytes"])
    return [line("resident", what, demanded,
                 f"{found['ratio']:.3f} x ({gigabytes} / {median(theirs) / 1e9:.2f} GB; {without:.3f} x "
                 f"without the {about['import_bytes'] / 1e6:.0f} MB a rank of importing torch)",
                 found["ratio"] <= 0.5, found, bytes=mine, fsdp2_bytes=theirs,
                 ratio_without_import=without, torch=about)]
