# SPDX-License-Identifier: MIT
"""Overlap on a simulated link that is as slow as the line asks for."""
from lines import ours
from lines.measure import line, median

RANKS, LATENCY_US = 2, 20.0
SHARES = (0.5, 0.9, 1.5)  # communication / compute


def model_and_shape(context):
    model, batch = ("small", "2") if context.quick else ("base", "4")
    return model, ["--batch", batch, "--seq", "256", "--ranks", str(RANKS), "--threads", "1"]


def link(plan, seconds):
    """The bandwidth in GB/s with which the plan's collectives take so long together."""
    left = seconds - len(plan.collectives) * LATENCY_US * 1e-6
    return plan.link_bytes(RANKS) / left / 1e9


def ends(plan, gigabytes_per_s):
    """Link time of the first gather of a step, which no compute can hide, and of its last reduction. In the steady
    list the first gather stands at the end, behind the update of its layer."""
    kinds = [kind for kind, _, _ in plan.collectives]
    last = len(kinds) - 1 - kinds[::-1].index("reduce-scatter")
    behind = [i for i, (_, name, _) in enumerate(plan.collectives) if i > last and name != "norms"]
    first = behind[0] if behind else 0
    return sum(LATENCY_US * 1e-6 + plan.link_bytes(RANKS, lambda i, _, at=at: i == at) / gigabytes_per_s / 1e9
               for at in (first, last))


def fabric(context):
    """Runs without a link stand between those with one: the bound follows the machine's speed at that time."""
    model, shape = model_and_shape(context)
    plan = ours.plan(context, "--model", model, *shape)
    counted = 2 if context.quick else 3

    def compute_of(run):
        return run["step_s"] - ours.idle(run)

    first = compute_of(ours.train(context, model, counted, *shape))
    context.say(f"compute {first:.3f} s a step, {plan.link_bytes(RANKS) / 1e9:.3f} GB received a rank and step")
    beside = {"prefetch off": ["--no-prefetch"], "slots 1,1": ["--slots", "1,1"],
              "dynamic:pool": ["--memory", "dynamic:pool"]}
    lines = []
    for share in SHARES:
        bandwidth = link(plan, share * first)
        slow = [*shape, "--fabric", f"{bandwidth:.6f},{LATENCY_US:g}"]
        found = context.in_turn(context.runs, {
            "no link": lambda: ours.train(context, model, counted, *shape),
            f"communication {share} x compute": lambda slow=slow: ours.train(context, model, counted, *slow)})
        free, linked = found.values()
        compute = median([compute_of(run) for run in free])
        communication = share * first  # what the link takes, whatever the machine does
        times = [time for run in linked for time in run["times"]]
        bound = 1.05 * max(compute, communication) + ends(plan, bandwidth)
        context.say(f"communication {share} x compute: {median(times):.3f} s, bound {bound:.3f} s")
        others = {name: ours.train(context, model, 1, *slow, *more, warm_up=1)["step_s"]
                  for name, more in beside.items()}
        more = ", ".join(f"{name} {value:.3f}" for name, value in others.items())
        lines.append(line("fabric", f"{model}, 2 ranks, communication {share} x compute ({bandwidth:.3f} GB/s)",
                          f"step <= {bound:.3f} s", f"{median(times):.3f} s ({more})", median(times) <= bound,
                          {"low": min(times), "high": max(times), "runs": len(times)}, compute_s=compute,
                          communication_s=communication, beside_s=others))
    return lines
