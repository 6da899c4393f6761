# SPDX-License-Identifier: MIT
"""Muon shared over ranks: the owners of matrices iterate side by side."""
from lines import ours
from lines.measure import line, median, ratio
from lines.speed import speeds, steps

SEQ, BATCH = 256, 6  # of all ranks


def muon(context):
    """2 ranks x 1 thread against 1 x 1 with the same sequences in all; AdamW's step tells what the iteration takes."""
    model = "2x256x4" if context.quick else "4x768x12"

    def run(optimizer, ranks):
        return ours.train(context, model, steps(context), "--ranks", str(ranks), "--threads", "1", "--batch", str(BATCH // ranks),
                          "--seq", str(SEQ), "--optimizer", optimizer)

    results = context.in_turn(context.runs, {"AdamW, 1 rank": lambda: run("adamw", 1), "Muon, 1 rank": lambda: run("muon", 1),
                                             "Muon, 2 ranks": lambda: run("muon", 2)})
    adamw, alone, shared = (speeds(results[name]) for name in ("AdamW, 1 rank", "Muon, 1 rank", "Muon, 2 ranks"))
    found = ratio(shared, alone)
    share = 1 - median(alone) / median(adamw)
    return [line("muon", f"speed, {model} fp32 by Muon, 2 ranks x 1 thread / 1 x 1", ">= 1.85 x",
                 f"{found['ratio']:.2f} x ({median(shared):.0f} / {median(alone):.0f} tokens/s); the iteration takes "
                 f"{100 * share:.0f} % of a step on 1 rank", found["ratio"] >= 1.85, found, adamw_tokens_per_s=adamw,
                 muon_tokens_per_s=alone, muon_2_ranks_tokens_per_s=shared)]
