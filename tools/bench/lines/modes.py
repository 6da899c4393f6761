# SPDX-License-Identifier: MIT
"""Static against dynamic memory by tools/headtohead, and what its runs say besides: idle time, and the plan's own
list with the measured times."""
from lines import ours, speed
from lines.measure import Missing, line, median

# Model, ranks: tiny at all rank counts, the others at two; gpt2-medium and above take minutes a step here (--cases).
CASES = (("tiny", 1), ("tiny", 2), ("tiny", 3), ("tiny", 4), ("llama-tiny", 2), ("small", 2), ("llama-small", 2),
         ("base", 2), ("gpt2", 2))
QUICK_CASES = (("tiny", 2),)
STEPS = {"tiny": 24, "llama-tiny": 24, "small": 6, "llama-small": 6}
STEPS_LARGE = 4  # the first is not counted
SMALL_RUNS_MORE = 5
BATCH = {"gpt2": 2}
BATCH_USUAL = 4
DYNAMIC = ("dynamic:malloc", "dynamic:pool")
CORES = 2  # of the machine that the promises are made for: more ranks than that share them


def case_text(cases):
    return ",".join(f"{model}:{ranks}" for model, ranks in cases)


def parse_cases(text):
    cases = []
    for word in text.split(","):
        model, _, ranks = word.partition(":")
        if not model or not ranks.isdigit() or ranks == "0":
            raise ValueError(f"'{word}' is not MODEL:RANKS")
        cases.append((model, int(ranks)))
    return tuple(cases)


def compared(context):
    """headtohead's JSON by case; a case that fails is kept as the reason."""
    return context.once("head to head", lambda: compare(context))


def compare(context):
    found = {}
    for model, ranks in context.cases or (QUICK_CASES if context.quick else CASES):
        threads = max(1, CORES // ranks)
        # Two turns of large models, more of small ones, whose short steps are more uneven.
        runs = context.runs + (SMALL_RUNS_MORE if model in STEPS and not context.quick else 0)
        steps = 6 if context.quick else STEPS.get(model, STEPS_LARGE)
        try:
            found[model, ranks] = ours.head_to_head(context, model, runs, "--ranks", str(ranks), "--threads",
                                                    str(threads), "--batch", str(BATCH.get(model, BATCH_USUAL)),
                                                    "--steps", str(steps))
        except Missing as missing:
            found[model, ranks] = missing
        context.say(f"compared {model}, {ranks} rank{'s' if ranks > 1 else ''}")
    return found


def each(context, name, make):
    """A line for each case, by make(what, modes)."""
    lines = []
    for (model, ranks), result in compared(context).items():
        what = f"{model}, {ranks} rank{'s' if ranks > 1 else ''}, batch {BATCH.get(model, BATCH_USUAL)}"
        if isinstance(result, Missing):
            lines.append(line(name, what, "", str(result), result))
        else:
            lines += make(what, result)
    return lines


def cause(static, dynamic):
    """Where the dynamic mode's time goes, beside where static's goes, a step and rank."""
    idle = [idle_s(mode) * 1e3 for mode in (static, dynamic)]
    return (f"{dynamic['allocator_calls_per_step']:.0f} allocator calls, "
            f"{dynamic['copied_bytes_per_step'] / 2**20:.1f} MiB copied, "
            f"{dynamic['page_faults_per_step'] - static['page_faults_per_step']:+.0f} page faults, "
            f"{idle[1] - idle[0]:+.1f} ms idle")


def modes(context):
    def make(what, result):
        lines, static = [], result["modes"]["static"]
        for name in DYNAMIC:
            dynamic = result["modes"][name]
            low, high = (1 / bound for bound in reversed(dynamic["ratio_spread"]))
            lines.append(line("modes", f"static / {name}, {what}", "spread not wholly above 1",
                              f"{1 / dynamic['ratio_to_static']:.3f} ({cause(static, dynamic)})", low <= 1,
                              {"low": low, "high": high, "runs": result["runs"]},
                              static_step_s=static["step_s_median"], dynamic_step_s=dynamic["step_s_median"],
                              peaks={n: {k: m[k] for k in ("live_peak_bytes", "reserved_peak_bytes",
                                                           "resident_peak_bytes")}
                                     for n, m in result["modes"].items()}))
        if not result["weights_equal"]:
            lines.append(line("modes", f"weights at the end, {what}", "equal", "not equal", False))
        return lines
    return each(context, "modes", make)


def idle_s(mode):
    return mode["idle_all_gather_s"] + mode["idle_reduce_scatter_s"] + mode["idle_norm_s"]


def run_step_s(run):
    return median(run["steps_s"])


def idle(context):
    def make(what, result):
        static = result["modes"]["static"]
        share = idle_s(static) / static["step_s_median"]
        shares = [sum(run["wait_s"].values()) / run_step_s(run) for run in static["runs"]]
        causes = ", ".join(f"{name} {1e3 * static[key]:.2f} ms" for name, key in (
            ("all-gather", "idle_all_gather_s"), ("reduce-scatter", "idle_reduce_scatter_s"), ("norm", "idle_norm_s")))
        return [line("idle", f"compute idle for collectives, no fabric, {what}", "<= 5 % of the step",
                     f"{100 * share:.1f} % ({causes})", share <= 0.05,
                     {"low": min(shares), "high": max(shares), "runs": len(shares)})]
    # The shape of the speed lines too, where they were run.
    main, _ = context.shared.get("gpt2 sharded", (None, None))
    runs = (main or {}).get("evenodd", [])
    shares = [ours.idle(run) / run["step_s"] for run in runs]
    lines = [line("idle", "compute idle for collectives, no fabric, " + speed.shape(context, "2 ranks x 1 thread"),
                  "<= 5 % of the step", f"{100 * median(shares):.1f} %", median(shares) <= 0.05,
                  {"low": min(shares), "high": max(shares), "runs": len(shares)})] if shares else []
    return lines + each(context, "idle", make)


def simulated(context):
    def make(what, result):
        static = result["modes"]["static"]
        if "measured_over_simulated" not in static:
            return [line("simulated", what, "<= 1.05", "headtohead simulated nothing", False)]
        value = static["measured_over_simulated"]
        ratios = [run["simulated_measured_s"] / run["simulated_s"] for run in static["runs"] if run["simulated_s"]]
        return [line("simulated", f"measured step / the plan's list with measured times, {what}", "<= 1.05",
                     f"{value:.3f}", value <= 1.05, {"low": min(ratios), "high": max(ratios), "runs": len(ratios)})]
    return each(context, "simulated", make)
