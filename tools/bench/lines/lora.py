# SPDX-License-Identifier: MIT
"""Fine-tuning with adapters: GPT-2 with LoRA of rank 16 on c_attn, against PEFT with PyTorch from the same files."""
from lines import ours, peers
from lines.measure import Missing, last_json, line, median, ratio

BATCH, SEQ, THREADS, TARGET, SLOWEST = 2, 256, 2, 1.5, 0.9


def base(context):
    """The model that both sides start from, in a folder."""
    def make():
        folder = context.path("lora-base")
        peers.about(context)
        try:
            context.run([peers.python(context), peers.script(context, "lora.py"), "--save", folder, "--layers",
                         "2" if context.quick else "12"])
        except Missing as missing:
            raise Missing(f"{missing}; the line needs peft and transformers beside torch") from None
        return folder
    return context.once("lora base", make)


def mine(context, dtype, *more):
    options = ["--lora", "r=16,targets=c_attn", "--ranks", "1", "--threads", str(THREADS), "--batch", str(BATCH), "--seq", str(SEQ),
               "--dtype", dtype, "--lr", "0.0002", *more]
    start = ["--init", base(context)] if context.peers and not more else []
    summary = ours.train(context, "init" if start else "tiny" if context.quick else "gpt2", steps(context), *start, *options,
                         data=("--tokens", ours.tokens(context, "gpt2")) if start or not context.quick else None)
    if summary["arena_bytes"] != summary["planned_bytes"]:
        raise Missing(f"{summary['planned_bytes']} bytes were planned, and {summary['arena_bytes']} reserved")
    return summary


def steps(context):
    return 2 if context.quick else 8


def theirs(context, dtype):
    return last_json(context.run([peers.python(context), peers.script(context, "lora.py"), "--base", base(context), "--batch",
                                  str(BATCH), "--seq", str(SEQ), "--threads", str(THREADS), "--steps", str(steps(context)), "--dtype", dtype],
                                 environment={"OMP_NUM_THREADS": str(THREADS), "HF_HUB_OFFLINE": "1",
                                              "TRANSFORMERS_VERBOSITY": "error", "PYTHONDONTWRITEBYTECODE": "1"}))


def of_type(context, dtype):
    what = f"LoRA r=16 on c_attn of gpt2, {dtype}, batch {BATCH}, seq {SEQ}, 1 rank x {THREADS} threads"
    makers = {"evenodd": lambda: mine(context, dtype)}
    if context.peers:
        base(context)
        peer_type = peers.type_for(context, dtype)
        makers["PEFT"] = lambda: theirs(context, peer_type)
    results = context.in_turn(context.runs, makers)
    speeds = [run["tokens_per_s"] for run in results["evenodd"]]
    planned = results["evenodd"][0]["planned_bytes"]
    demanded = f">= {TARGET:g} x PEFT's tokens/s"
    if "PEFT" not in results:
        return line("lora", what, demanded, f"{median(speeds):.0f} tokens/s (ratio: --peers)", None, tokens_per_s=speeds)
    other = [run["tokens_per_s"] for run in results["PEFT"]]
    found = ratio(speeds, other)
    return line("lora", what, demanded, f"{found['ratio']:.2f} x ({median(speeds):.0f} / {median(other):.0f} tokens/s; PyTorch in {peer_type})",
                found["ratio"] >= TARGET, found, tokens_per_s=speeds, peft_tokens_per_s=other, planned_bytes=planned,
                peft_resident_bytes=[run["peak_rss"] for run in results["PEFT"]])


def lora(context):
    return [of_type(context, dtype) for dtype in ("fp32", "bf16")]


def in_8_bits(context, dtype):
    """The base in MXFP8 against the base in `dtype`, in pairs."""
    makers = {frozen: lambda frozen=frozen: mine(context, dtype, "--frozen", frozen) for frozen in ("mxfp8", "dtype")}
    results = context.in_turn(context.runs, makers)
    speeds = {frozen: [run["tokens_per_s"] for run in results[frozen]] for frozen in results}
    reserved = {frozen: results[frozen][0]["arena_bytes"] for frozen in results}
    found = ratio(speeds["mxfp8"], speeds["dtype"])
    what = f"LoRA r=16 on c_attn of gpt2, {dtype}, batch {BATCH}, seq {SEQ}, 1 rank x {THREADS} threads: base in MXFP8 over base in {dtype}"
    return line("frozen", what, f">= {SLOWEST:g} x the tokens/s", f"{found['ratio']:.2f} x ({median(speeds['mxfp8']):.0f} / "
                f"{median(speeds['dtype']):.0f} tokens/s), {reserved['mxfp8'] / 1e6:.0f} / {reserved['dtype'] / 1e6:.0f} MB reserved",
                found["ratio"] >= SLOWEST, found, tokens_per_s=speeds, arena_bytes=reserved)


def frozen(context):
    return [in_8_bits(context, dtype) for dtype in ("fp32", "bf16")]
