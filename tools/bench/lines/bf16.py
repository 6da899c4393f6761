# SPDX-License-Identifier: MIT
"""bf16 on CPUs: speed and memory against the peers and fp32, products, losses, heap calls. The targets of most lines are
for processors with AMX; elsewhere those lines show the figure."""
import json

from lines import ours, peers, small
from lines.measure import Missing, last_json, line, median, ratio
from lines.speed import BATCH, SEQ, model, ours_run, speeds, steps

BF16 = ("--dtype", "bf16")
LLAMA = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "num_hidden_layers": 6, "hidden_size": 384,
         "num_attention_heads": 6, "num_key_value_heads": 2, "intermediate_size": 1024, "vocab_size": 256,
         "max_position_embeddings": 4096, "rms_norm_eps": 1e-5, "rope_theta": 500000.0, "hidden_act": "silu",
         "tie_word_embeddings": False}  # llama-small, with a longer context
QWEN3 = {**LLAMA, "architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "head_dim": 128}


def measure_products(context, *options):
    return last_json(context.run([context.program("tests", "bench", "bench_products"), *options]))


def has_amx(context):
    """Of the tables that this machine runs, as the library sees it."""
    return "amx" in context.once("bf16 tables", lambda: measure_products(context, "1", "1", "64", "64"))["ways"]


def at_least(context, found, amx, other=None):
    """What is demanded of a ratio here, and whether it is met; `amx`, `other`: (limit, of what) with and without AMX."""
    target = amx if has_amx(context) else other
    if not target:
        return ("no target with AMX" if has_amx(context) else "not measured: no AMX"), None
    return f">= {target[0]:g} x {target[1]}", found["ratio"] >= target[0]


def sharded(context):
    """2 ranks x 1 thread, all that the chosen lines need, in turn."""
    chosen = context.chosen
    makers = {"evenodd bf16": lambda: ours_run(context, 2, 1, *BF16, peak_seconds=0)}
    if "bf16-share" in chosen:  # in a run of its own: the measurement takes memory
        makers["evenodd bf16, with peak"] = lambda: ours_run(context, 2, 1, *BF16, peak_seconds=1)
    if "bf16-fp32" in chosen:
        makers["evenodd fp32"] = lambda: ours_run(context, 2, 1)
    if context.peers and chosen & {"bf16-ranks", "bf16-resident"}:
        for dtype in (peers.type_for(context, "bf16"), *(["fp32"] if "bf16-ranks" in chosen else [])):
            makers[f"FSDP2 {dtype}"] = lambda dtype=dtype: peers.fsdp2(context, model(context), BATCH, SEQ, steps(context),
                                                                       dtype=dtype)
    return context.once("bf16 sharded", lambda: context.in_turn(context.runs, makers))


def shape(context, what):
    return f"{model(context)} bf16, {what}, batch {BATCH}, seq {SEQ}"


def compared(context, name, what, mine, theirs, amx, other=None, **detail):
    """A line of tokens/s against those of {name: tokens/s}; the targets' "of what" is one of these names, or "better"."""
    if not theirs:
        return line(name, what, at_least(context, {"ratio": 0}, amx, other)[0],
                    f"{median(mine):.0f} tokens/s (ratio: --peers)", None, tokens_per_s=mine, **detail)
    target = (amx if has_amx(context) else other) or amx
    best = max(theirs, key=lambda key: median(theirs[key])) if target[1].startswith("the better") else target[1]
    found = ratio(mine, theirs[best])
    demanded, good = at_least(context, found, amx, other)
    rest = ", ".join(f"{key} {median(values):.0f}" for key, values in theirs.items())
    return line(name, what, demanded, f"{found['ratio']:.2f} x {best} ({median(mine):.0f} tokens/s; {rest})", good, found,
                tokens_per_s=mine, peers_tokens_per_s=theirs, **detail)


def ranks(context):
    results = sharded(context)
    theirs = {key: speeds(results[key]) for key in ("FSDP2 bf16", "FSDP2 fp32") if key in results}
    return [compared(context, "bf16-ranks", "speed, " + shape(context, "2 ranks x 1 thread"),
                     speeds(results["evenodd bf16"]), theirs, (4, "FSDP2 bf16"), (1.6, "the better FSDP2"))]


def threads(context):
    makers = {"evenodd bf16, 1 rank x 2 threads": lambda: ours_run(context, 1, 2, *BF16)}
    if context.peers:
        dtype = peers.type_for(context, "bf16")
        for name, compiled in ((f"PyTorch {dtype}", False), (f"PyTorch {dtype} compiled", True)):
            makers[name] = lambda compiled=compiled: peers.single(context, model(context), BATCH, SEQ, steps(context), 2,
                                                                  dtype=dtype, compiled=compiled)
    results = context.in_turn(context.runs, makers)
    mine = speeds(results.pop("evenodd bf16, 1 rank x 2 threads"))
    return [compared(context, "bf16-threads", "speed, " + shape(context, "1 rank x 2 threads"), mine,
                     {key: speeds(runs) for key, runs in results.items()}, (3.5, "the better PyTorch"))]


def against_fp32(context):
    results = sharded(context)
    mine, fp32 = speeds(results["evenodd bf16"]), speeds(results["evenodd fp32"])
    found = ratio(mine, fp32)
    demanded, good = at_least(context, found, None, (0.9, "fp32"))
    return [line("bf16-fp32", "speed, " + shape(context, "2 x 1, over our fp32"), demanded,
                 f"{found['ratio']:.2f} x ({median(mine):.0f} / {median(fp32):.0f} tokens/s)", good, found,
                 tokens_per_s=mine, fp32_tokens_per_s=fp32)]


def resident(context):
    results = sharded(context)
    mine = [r["peak_rss_bytes"] for r in results["evenodd bf16"]]
    what, demanded = "resident peak, all ranks, " + shape(context, "2 x 1"), "<= 0.45 x FSDP2's"
    if context.peers and "FSDP2 bf16" not in results:
        raise Missing("PyTorch is too slow in bf16 here")
    if "FSDP2 bf16" not in results:
        return [line("bf16-resident", what, demanded, f"{median(mine) / 1e9:.2f} GB (ratio: --peers)", None, bytes=mine)]
    theirs = [r["resident_bytes"] for r in results["FSDP2 bf16"]]
    found = ratio(mine, theirs)
    return [line("bf16-resident", what, demanded,
                 f"{found['ratio']:.3f} x ({median(mine) / 1e9:.2f} / {median(theirs) / 1e9:.2f} GB)",
                 found["ratio"] <= 0.45, found, bytes=mine, fsdp2_bytes=theirs)]


def product_ways(context):
    """The tables in their order, the one in use first, and sgemm."""
    quick = ("1", "2", "128", "256")
    return context.once("bf16 products", lambda: measure_products(context, *(quick if context.quick else ("5", "2")))["ways"])


def share(context):
    """Useful FLOPs as train counts them, over the loops of both cores at the same time."""
    flops = []
    for summary in sharded(context)["evenodd bf16, with peak"]:
        if not summary.get("peak_share"):
            raise Missing("train's summary has no peak_share")
        flops.append(summary["peak_share"] * summary["peak_flops_per_s"] * summary["step_s_median"] / summary["step_s"])
    name, way = next(iter(product_ways(context).items()))
    peak = 1e9 * way["loop_all_gflops"]
    found = {"ratio": median(flops) / peak, "low": min(flops) / peak, "high": max(flops) / peak, "runs": len(flops)}
    good = found["ratio"] >= 0.18 if has_amx(context) else None
    alone = median(flops) / (2e9 * way["loop_gflops"])
    return [line("bf16-share", "useful FLOPs / loop's peak, " + shape(context, "2 x 1"),
                 ">= 18 %" if has_amx(context) else "not measured: no AMX",
                 f"{100 * found['ratio']:.1f} % of {peak / 1e9:.0f} GFLOP/s, {name} on 2 cores at once ({100 * alone:.1f} % "
                 "of twice one core alone)", good, found, flops_per_s=flops, peak_flops_per_s=peak)]


def parts(context):
    """Where the time of both cores goes, and what each part has to move for it. Shares may add up to more than 100 %:
    communication has threads of its own, beside those that compute."""
    program = context.program("tests", "bench", "bench_parts")
    counts = []
    for _ in range(context.runs):
        found = last_json(context.run([
            program, "--model", model(context), "--tokens", ours.tokens(context, model(context)), "--steps",
            str(steps(context) + 2), "--ranks", "2", "--threads", "1", "--batch", str(BATCH), "--seq", str(SEQ), "--lr", "0.0003",
            "--sample", "0", "--peak-seconds", "0", "--hash", "off", *BF16]))
        counts.append(found)
    found = min(counts, key=lambda run: run["step_s"])  # the least disturbed
    of_both = found["ranks"] * found["step_s"]
    lines = []
    for name, part in sorted(found["parts"].items(), key=lambda item: -item[1]["seconds"]):
        rates = [f"{part['bytes'] / 1e9:.3f} GB at {part['bytes'] / part['seconds'] / 1e9:.1f} GB/s"] if part["bytes"] else []
        rates += [f"{part['flops'] / part['seconds'] / 1e9:.0f} GFLOP/s"] if part["flops"] else []
        lines.append(line("bf16-parts", f"step of {model(context)}: {name}", "shown",
                          f"{100 * part['seconds'] / of_both:.1f} %, {1e3 * part['seconds']:.1f} ms: {', '.join(rates)}", None,
                          None, **part))
    rest = 1 - sum(part["seconds"] for part in found["parts"].values()) / of_both
    lines.append(line("bf16-parts", f"step of {model(context)}: all else", "shown",
                      f"{100 * rest:.1f} % of both cores' {1e3 * found['step_s']:.0f} ms", None, None, **{"runs": counts}))
    return lines


def products(context):
    ways = dict(product_ways(context))
    sgemm = ways.pop("sgemm")
    lines, of = [], " (small)" if context.quick else " of gpt2"
    for name, way in ways.items():
        over = way["gflops"] / way["loop_gflops"]
        target = name == "amx"
        demanded = (">= 1200 GFLOP/s, half of the loop" if target else "beside sgemm" if name.startswith("fp32") else
                    "a slower table" if has_amx(context) else "not measured: no AMX")
        lines.append(line("bf16-products", f"products{of}, one core, with packing: {name}", demanded,
                          f"{way['gflops']:.0f} GFLOP/s, {over:.2f} x the loop's {way['loop_gflops']:.0f}, "
                          f"{way['gflops'] / sgemm['gflops']:.2f} x sgemm's {sgemm['gflops']:.0f} in fp32; "
                          f"packing {100 * way['packing_share']:.1f} %; slowest "
                          f"{way['slowest_gflops']:.0f}, {way['slowest']}",
                          (way["gflops"] >= 1200 and over >= 0.5) if target else None, None, way=way, sgemm=sgemm))
    return lines


def of_config(context, name, model_name, config):
    """A shape of the peer program, as a config.json of ours."""
    lines = []
    path = context.path(f"{model_name}.json")
    with open(path, "w", encoding="utf-8") as file:
        json.dump(config, file)
    for seq in (128, 256) if context.quick else (1024, 4096):
        makers = {"evenodd bf16": lambda seq=seq: ours.train(context, path, steps(context), "--ranks", "2", "--threads", "1",
                                                             "--batch", "1", "--seq", str(seq), *BF16)}
        if context.peers:
            dtype = peers.type_for(context, "bf16")
            makers[f"FSDP2 {dtype}"] = lambda seq=seq: peers.fsdp2(context, model_name, 1, seq, steps(context), dtype=dtype)
        results = context.in_turn(context.runs, makers)
        mine = speeds(results.pop("evenodd bf16"))
        lines.append(compared(context, name, f"speed, {model_name} bf16, 2 x 1, batch 1, seq {seq}", mine,
                              {key: speeds(runs) for key, runs in results.items()}, (3.5, "the better FSDP2")))
    return lines


def llama(context):
    return of_config(context, "bf16-llama", "llama-small", LLAMA)


def qwen3(context):
    return of_config(context, "bf16-qwen3", "qwen3-small", QWEN3)


def levels(context):
    """On this machine, held to the instructions of lesser ones: evenodd and oneDNN alike."""
    lines, bounds = [], {"avx512": "AVX512_CORE", "avx2": "AVX2"}
    for name, bound in bounds.items():
        if name not in product_ways(context):
            continue
        makers = {dtype: lambda dtype=dtype, bound=bound: ours.train(
            context, model(context), steps(context), "--ranks", "2", "--threads", "1", "--batch", str(BATCH), "--seq", str(SEQ),
            "--dtype", dtype, launcher=("env", f"DNNL_MAX_CPU_ISA={bound}")) for dtype in ("bf16", "fp32")}
        results = context.in_turn(context.runs, makers)
        mine, fp32 = speeds(results["bf16"]), speeds(results["fp32"])
        found = ratio(mine, fp32)
        lines.append(line("bf16-levels", f"speed, {shape(context, '2 x 1, over our fp32')}, held to {name}", ">= 0.9 x fp32",
                          f"{found['ratio']:.2f} x ({median(mine):.0f} / {median(fp32):.0f} tokens/s)", found["ratio"] >= 0.9,
                          found, tokens_per_s=mine, fp32_tokens_per_s=fp32))
    return lines


def loss(context):
    """On the default text: the same data and seed in both types."""
    name, count, last = ("tiny", 20, 5) if context.quick else ("small", 200, 20)
    ends = {}
    for dtype in ("fp32", "bf16"):
        summary = ours.train(context, name, count, "--ranks", "2", "--threads", "1", "--dtype", dtype, data=(), warm_up=0)
        ends[dtype] = sum(summary["losses"][-last:]) / last
    apart = abs(ends["bf16"] / ends["fp32"] - 1)
    return [line("bf16-loss", f"loss of {name} after {count} steps, mean of {last}, bf16 against fp32", "within 1 %",
                 f"{100 * apart:.2f} % apart ({ends['bf16']:.4f}, fp32 {ends['fp32']:.4f})", apart <= 0.01, None, **ends)]


def calls(context):
    growth = small.heap_growth(context, *BF16)
    # That the counter sees what is there: the same run with the system's allocator.
    dynamic = small.heap_growth(context, *BF16, "--memory", "dynamic:malloc")
    sums = {who: sum(per.values()) for who, per in growth.items() if any(per.values())}
    total, seen = sum(sums.values()), sum(sum(per.values()) for per in dynamic.values())
    named = ", ".join(f"{who} {count:g}" for who, count in sorted(sums.items())) or "none"
    return [line("bf16-calls", "bf16: heap, mmap and brk calls of the process a step, all libraries", "0",
                 f"{total:g} (dynamic:malloc {seen:g}; callers: {named})", not sums and seen > 0, None, a_step=growth)]
