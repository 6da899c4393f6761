# SPDX-License-Identifier: MIT
"""The steps of tools/bench/gpu.py, which runs this file: names with their seconds, the most important first, and a function
of that name for each. A step without enough time left is reported as not measured. Each part fits into 9 minutes."""
import functools
import glob
import itertools
import os
import re
import types

PARTS = [
    {"conformance": 110, "losses": 70, "ranks": 45, "modes": 75, "gpt2_xl": 230},
    {"llama_1b": 200, "llama_1b_4096": 200, "options": 120},
    {"memcheck": 130, "racecheck": 120, "kernels": 40, "profile": 70, "nccl_world": 150},
    {"attention": 50, "giveway": 50, "eager_graph": 90, "fixed_dynamic": 75, "nccl_sharing": 75, "budget": 150},
]
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.realpath(__file__)))))
PEAK_TFLOPS = 989
ALL_TYPES = {"fp32": "1e-4", "bf16": "2e-2"}  # and how far losses may be apart


def sizes(r):
    """small: models that the CPU trains too, and few steps of them; middle: one whose steps are timed."""
    known = {"small": ["tiny", "llama-tiny"], "seq": 64, "few": 20, "few_modes": 10, "middle": "gpt2", "middle_seq": 512,
             "many": 30, "vocabulary": 50257, "with_options": "llama-tiny", "option_steps": 20}
    if r.simulated != "no":  # as much as the simulator can carry
        known |= {"middle": "4x64x4", "middle_seq": 32, "many": 5, "vocabulary": 256, "few": 8, "with_options": "2x32x4",
                  "option_steps": 4}
    if r.simulated == "short":
        known |= {"small": ["2x32x4"], "seq": 16, "few": 4, "few_modes": 4, "middle": "2x32x4", "middle_seq": 16, "many": 4}
    return types.SimpleNamespace(**known)


# --- common to several steps


def read(r, name):
    try:
        with open(os.path.join(r.work, name), encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""


def find(pattern, text):
    """What the first group has matched first, or nothing."""
    match = re.search(pattern, text, re.M)
    return match[1] if match else ""


def last(key, text):
    """The last value of that name in lines of JSON, as it stands there; or nothing."""
    return (re.findall(rf'"{key}": *"?([^",}}]*)', text) or [""])[-1]


def source_text(r):
    path = os.path.join(r.work, "text")
    if not os.path.exists(path):
        names = [name for folder in ("streams", "runtime", "layers") for name in sorted(glob.glob(f"{ROOT}/{folder}/*.c"))]
        with open(path, "wb") as file:
            for name in names:
                with open(name, "rb") as source:
                    file.write(source.read())
    return path


def train(r, name, seconds, words, hashed=False):
    """Of a model on text; its log is NAME.jsonl of the work folder."""
    log = os.path.join(r.work, name + ".jsonl")
    if os.path.exists(log):
        os.remove(log)
    return r.run(seconds, "train", "--text", source_text(r), "--sample", "0", "--peak-seconds", "0", "--hash",
                 "on" if hashed else "off", "--log", log, *words.split())


def has_trained(r, line, done):
    """A training that must run here: only its absence, and the end of the time, are no verdict."""
    if not done.ok:
        r.note("not measured" if done.status in (125, 127) else "fail", line, done.reason)
    return done.ok


def difference(a, b):
    """Of two numbers as text. No number is far from everything."""
    try:
        apart = abs(float(a) - float(b))
    except ValueError:
        return 1e9
    return apart if apart < 1e9 else 1e9


def expect_near(r, line, one, other, limit, steps):
    rows = [re.findall(r'"step": *\d+,.*"loss": *([^,}]*).*"grad_norm"', read(r, name + ".jsonl")) for name in (one, other)]
    pairs = list(itertools.zip_longest(*rows, fillvalue=""))
    most = max((difference(*pair) for pair in pairs), default=0)
    good = len(pairs) == steps and most <= float(limit)
    counted = f"{len(pairs)} steps" if good else f"{len(pairs)} steps (of {steps})"
    r.expect(good, line, f"losses of {counted} differ by {most:.3g} at most (limit {limit})", difference=most,
             limit=float(limit))


def expect_hash(r, line, name, base):
    found = last("weights_hash", read(r, name + ".jsonl"))
    good = found != "" and found == base
    r.expect(good, line, f"weights_hash {found or 'none'}{'' if good else f', and not {base}'}", weights_hash=found)


def count_ranks(ranks):
    return "1 rank" if ranks == 1 else f"{ranks} ranks"


# --- right


def conformance(r):
    s = sizes(r)
    r.tap("the device: kernels to the bit, memory, events, graphs, allocators", r.run(50, "conformance_device", "cuda"))
    r.tap("kernels, products and attention against the reference on the CPU", r.run(50, "conformance_cuda_kernels"))
    for model in ("tiny", "llama-tiny")[:1 if r.simulated == "short" else 2]:
        for dtype in ALL_TYPES:
            r.tap(f"gradient of every layer, {model} in {dtype}, against the CPU",
                  r.run(20, "layer_gradients", "--model", model, "--dtype", dtype, "--seq", str(s.seq * 3 // 2)))
    line = "trainings of all element types and memory modes, to the bit"
    if r.simulated == "full":
        r.note("not measured", line, "it takes minutes on the simulator; the test 'sim element types' runs it there")
        return
    r.tap(line,
          r.run(60, "conformance_element_types", env={"EO_TEST_DEVICE": "cuda"}))


def sanitize(r, tool):
    words = ["--tool", tool, "--error-exitcode", "9"]
    if tool == "racecheck":  # kernels of ours: others' are not ours to check, and take most of the time
        kernels = set()
        for name in glob.glob(f"{ROOT}/streams/cuda/*.cu") + glob.glob(f"{ROOT}/layers/cuda/kernels/*.cu"):
            with open(name, encoding="utf-8") as file:
                kernels.update(re.findall(r"[a-z0-9_]+_(?:kernel|units|single)\b", file.read()))
        words += [word for kernel in sorted(kernels) for word in ("--kernel-name", "kns=" + kernel)]
    else:  # calls that fail on purpose: missing memory, handles that a machine may not have
        words += ["--report-api-errors", "no"]

    def sanitized(how, line, seconds, program, *arguments):
        done = r.run(seconds, "compute-sanitizer", *words, r.program(program) or program, *arguments)
        if "device not supported" in done.text.lower():
            r.note("not measured", line, "compute-sanitizer does not support the GPU as it is given to this machine")
        else:
            how(line, done)

    sanitized(r.tap, f"{tool} of the device", 46, "conformance_device", "cuda")
    model = sizes(r).small[0]
    for graph in ("off", "on"):
        sanitized(r.judge, f"{tool} of train, {model}, 2 ranks, graph {graph}", 36, "train", "--text", source_text(r),
                  *f"--device cuda --model {model} --ranks 2 --batch 1 --seq 32 --steps 2 --sample 0 --peak-seconds 0 "
                  f"--hash off --graph {graph} --dtype bf16".split())


memcheck = functools.partial(sanitize, tool="memcheck")
racecheck = functools.partial(sanitize, tool="racecheck")


def losses(r):
    s = sizes(r)
    for model in s.small:
        for dtype, limit in ALL_TYPES.items():
            line = f"{model} in {dtype}, GPU against CPU"
            words = f"--model {model} --dtype {dtype} --ranks 1 --batch 2 --seq {s.seq} --steps {s.few}"
            if all(has_trained(r, line, train(r, device, 20, f"--device {device} {words}")) for device in ("cpu", "cuda")):
                expect_near(r, line, "cpu", "cuda", limit, s.few)


def ranks(r):
    """The same 4 sequences a step, dealt over the ranks."""
    s = sizes(r)
    for dtype, limit in ALL_TYPES.items():
        for count in (1, 2, 4):
            line = f"{count} ranks on one GPU against 1, {dtype}"
            good = has_trained(r, line, train(r, f"ranks{count}", 20, f"--device cuda --model {s.small[0]} --dtype {dtype} "
                                              f"--ranks {count} --batch {4 // count} --seq {s.seq} --steps {s.few}"))
            if count == 1 and not good:
                break
            if count != 1 and good:
                expect_near(r, line, "ranks1", f"ranks{count}", limit, s.few)


VARIANTS = [  # what else a training may be told, on both devices
    "--optimizer muon", "--optimizer lion", "--optimizer sgd", "--optimizer adamw8bit", "--micro-batches 2", "--dropout 0.1",
    "--recompute cheap", "--recompute all", "--ema 0.9", "--ranks 2 --strategy ddp", "--ranks 2 --strategy zero2",
    "--ranks 2 --granularity half", "--lora 4", "--model qwen3-tiny", "--dtype bf16 --norms fp32",
    "--dtype bf16 --ranks 2 --gather float8", "--dtype bf16 --lora 4 --frozen mxfp8",
]
ON_GPU = ["--norms-beside", "--offload-layers all --offload-gradients", "--offload-layers all --late-updates",
          "--offload-activations 2"]  # no bit changes


def options(r):
    """Options that other steps leave as they are: GPU against CPU; and those of memory, which change no bit."""
    s = sizes(r)
    for words in VARIANTS[:2] if r.simulated == "short" else VARIANTS:
        limit = ALL_TYPES["bf16" if "bf16" in words else "fp32"]
        all_words = (f"{'' if '--model' in words else f'--model {s.with_options}'} {'' if '--ranks' in words else '--ranks 1'} "
                     f"--batch 2 --seq {s.seq // 2} --steps {s.option_steps} {words}")
        if all(has_trained(r, words, train(r, device, 20, f"--device {device} {all_words}")) for device in ("cpu", "cuda")):
            expect_near(r, words, "cpu", "cuda", limit, s.option_steps)
    words = (f"--device cuda --dtype bf16 --model {s.with_options} --ranks 1 --batch 2 --seq {s.seq // 2} "
             f"--steps {s.option_steps}")
    line = "--products float8, which rounds to four bits, against bf16"
    both = (("bf16", ""), ("float8", " --products float8"))
    if all(has_trained(r, line, train(r, name, 20, words + more)) for name, more in both):
        expect_near(r, line, "bf16", "float8", "5e-2", s.option_steps)
    common = (f"--device cuda --model {s.with_options} --ranks 2 --batch 2 --seq {s.seq // 2} --steps {s.option_steps} "
              "--repeatable ")
    if not has_trained(r, "options of memory", train(r, "base", 20, common, hashed=True)):
        return
    base = last("weights_hash", read(r, "base.jsonl"))
    saved = f"--offload-layers all --checkpoint {os.path.join(r.work, 'in_place')} --checkpoint-every 4 --checkpoint-in-place"
    for words in [*ON_GPU, saved]:
        if has_trained(r, words, train(r, "mode", 20, common + words, hashed=True)):
            expect_hash(r, words, "mode", base)


def modes(r):
    """Every way of running the same training ends in the same bits."""
    s = sizes(r)
    for dtype in ALL_TYPES:
        words = (f"--device cuda --model {s.small[0]} --dtype {dtype} --ranks 2 --batch 2 --seq {s.seq} --steps {s.few_modes} "
                 "--repeatable --memory ")
        done = train(r, "base", 20, words + "static --graph off", hashed=True)
        base, calls = (last(key, read(r, "base.jsonl")) for key in ("weights_hash", "allocator_calls_per_step"))
        if not has_trained(r, f"modes in {dtype}", done):
            continue
        line = f"allocator calls in a step after the first, static, {dtype}"
        r.expect(calls != "" and float(calls) == 0, line, calls or "not told")
        for mode in ("static --graph off", "static --graph on", "dynamic:malloc", "dynamic:pool", "dynamic:caching"):
            line = f"{mode} against static --graph off, {dtype}"
            done = train(r, "mode", 20, words + mode, hashed=True)
            refused = find("(.*cannot run as a graph.*)", done.text) if mode.endswith("on") else ""
            if not has_trained(r, line, done):
                continue
            if refused:
                r.note("fail", line, refused)
            else:
                expect_hash(r, line, "mode", base)


# --- fast


def ours(r, name, model, seq, batch, *more):
    """Tokens per second, or the command that failed."""
    s, tokens, log = sizes(r), os.path.join(r.work, "tokens"), os.path.join(r.work, name + ".jsonl")
    if not os.path.exists(tokens):
        r.run(30, "gpu_probe", "--tokens", tokens, "--count", "4000000", "--vocabulary", str(s.vocabulary))
    return r.run(60, "train", "--tokens", tokens, "--product-cache", os.path.join(r.work, "products"), "--log", log,
                 *f"--device cuda --dtype bf16 --model {model} --ranks 1 --batch {batch} --seq {seq} --steps {s.few} "
                 f"--sample 0 --hash off --peak-seconds 0 --peak-tflops {PEAK_TFLOPS}".split(), *more)


def peer(r, model, seq, batch, *words):
    settings = f"--mode fsdp2 --dtype bf16 --model {model} --seq {seq} --batch {batch} --steps 12 --warmup 3"
    return r.run(90, "python3", f"{ROOT}/tools/bench/peers/fsdp2.py", *settings.split(), *words,
                 env={"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29511"})


def largest_batch(r, model, seq):
    """The largest whose plan leaves a twentieth of the free memory. Nothing runs on the GPU for it."""
    free = float(last("free_bytes", r.run(30, "gpu_probe", quiet=True).text) or 0)
    for batch in (32, 24, 16, 12, 8, 6, 4, 3, 2, 1):
        words = f"--plan --device cuda --dtype bf16 --model {model} --seq {seq} --ranks 1 --batch {batch}"
        plan = r.run(20, "train", *words.split(), quiet=True)
        if float(find(r"^ *arena  *(\d+) ", plan.text) or 1e18) < 0.95 * free:
            break
    return batch


def flops_of_token(model, seq):
    """Forward and backward: 6 x the weights that multiply, and causal attention."""
    if model == "gpt2-xl":
        return 6 * (48 * 12 * 1600 * 1600 + 50257 * 1600) + 6 * 48 * 1600 * seq
    if model == "llama-1b":
        return 6 * (16 * (2 * 2048 * 2048 + 2 * 2048 * 512 + 3 * 2048 * 8192) + 128256 * 2048) + 6 * 16 * 2048 * seq
    return 0


def has_torch(r):
    """PyTorch takes its time to come up: asked once."""
    if not hasattr(r, "torch"):
        r.torch = r.run(60, "python3", "-c", "import torch; assert torch.cuda.is_available()", quiet=True).ok
    return r.torch


def against(r, line, speed, done, wanted=None):
    theirs = last("tokens_per_s", done.text)
    if not done.ok or not theirs:
        r.note("not measured", line, "it failed, or was too slow to compile" if wanted else done.reason)
        return
    ratio = speed / float(theirs)
    status = "figure" if not wanted else "pass" if ratio >= wanted else "fail"
    lacking = f", and {wanted} is wanted" if status == "fail" else ""
    r.timed(status, line, f"{speed:.0f} tokens/s against {theirs}: {ratio:.3f} times{lacking}",
            tokens_per_s=speed, peer_tokens_per_s=float(theirs), ratio=round(ratio, 3))


def throughput(r, model, seq):
    """Ours and PyTorch's in turn on the same card, at the largest batch that both take."""
    what = f"{model}, seq {seq}, bf16, 1 rank"
    if r.simulated != "no":
        model, seq = sizes(r).middle, sizes(r).middle_seq
    batch, eager, compiled = largest_batch(r, model, seq), None, None
    if has_torch(r):
        eager = peer(r, model, seq, batch)
        while not eager.ok and "out of memory" in eager.text.lower() and batch > 1:
            batch //= 2
            eager = peer(r, model, seq, batch)
    if not has_trained(r, f"{what}: tokens/s", ours(r, "first", model, seq, batch)):
        return
    if eager and eager.ok:
        compiled = peer(r, model, seq, batch, "--compile")
    ours(r, "second", model, seq, batch)
    logs = [log for log in (read(r, "first.jsonl"), read(r, "second.jsonl")) if last("tokens_per_s", log)]
    speed = round(sum(float(last("tokens_per_s", log)) for log in logs) / len(logs))
    share = round(100 * speed * flops_of_token(model, seq) / (PEAK_TFLOPS * 1e12), 1)
    r.timed("figure", f"{what}: tokens/s", f"{speed} with batch {batch}", tokens_per_s=speed, batch=batch)
    r.timed("pass" if share >= 60 else "fail", f"{what}: MFU of {PEAK_TFLOPS} TFLOP/s", f"{share} %, 60 % are wanted",
            mfu_percent=share)
    memory(r, what, logs[-1], eager.text if eager else "")
    if not eager:
        r.note("not measured", f"{what}: against FSDP2", "there is no PyTorch with CUDA here")
    elif not compiled:
        r.note("not measured", f"{what}: against FSDP2", eager.reason)
    else:
        against(r, f"{what}: against FSDP2, eager", speed, eager)
        against(r, f"{what}: against FSDP2 with torch.compile", speed, compiled, 1.1)


def memory(r, what, log, peers):
    """Peak device memory: as planned, measured outside the plan, and the driver's figure (all three in train's summary); and
    the peer's."""
    planned, outside, peak = (int(last(f"device_{key}_bytes", log) or 0) for key in ("planned", "outside", "peak"))
    theirs, mib = last("peak_device", peers), 1 << 20
    line = f"{what}: plan + measured outside against the driver's figure"
    text = f"{planned / mib:.0f} MiB planned + {outside / mib:.0f} outside, the driver has {peak / mib:.0f} in use"
    if not peak:
        r.note("not measured", line, "train told no figure of the driver")
    else:
        good = abs((planned + outside) / peak - 1) <= 0.01
        r.expect(good, line, text + ("" if good else ": more than 1 % apart"), planned_bytes=planned, outside_bytes=outside,
                 peak_bytes=peak)
    line = f"{what}: peak device memory against FSDP2"
    if theirs in ("", "null"):
        r.note("not measured", line, "there is no figure of FSDP2")
    else:
        r.expect(planned < float(theirs), line, f"{planned} bytes planned, FSDP2 allocated {theirs}", planned_bytes=planned,
                 peer_bytes=float(theirs))


gpt2_xl = functools.partial(throughput, model="gpt2-xl", seq=1024)
llama_1b = functools.partial(throughput, model="llama-1b", seq=1024)
llama_1b_4096 = functools.partial(throughput, model="llama-1b", seq=4096)


def budget(r):
    """gpt2-xl with half of the GPU's memory: what is recomputed, and what goes to the host, the planner chooses."""
    s = sizes(r)
    model, seq, batch = ("gpt2-xl", 1024, 8) if r.simulated == "no" else (s.with_options, s.seq // 2, 2)
    words = f"--plan --device cuda --dtype bf16 --model {model} --seq {seq} --ranks 1 --batch {batch}"
    plan = r.run(20, "train", *words.split(), quiet=True)
    arena = int(find(r"^ *arena  *(\d+) ", plan.text) or 0)
    if not arena or not has_trained(r, "all in memory", ours(r, "whole", model, seq, batch)):
        return
    less = arena // 2 if r.simulated == "no" else arena * 4 // 5
    done = ours(r, "half", model, seq, batch, "--budget", f"{less},64GiB")
    if not has_trained(r, "half of the memory", done):
        return
    speeds = [float(last("tokens_per_s", read(r, f"{name}.jsonl")) or 0) for name in ("whole", "half")]
    step, predicted = (float(last(key, read(r, "half.jsonl")) or 0) for key in ("step_s_median", "predicted_step_s"))
    share = speeds[1] / speeds[0] if speeds[0] else 0
    r.timed("pass" if share >= 0.9 else "fail", f"{model}, batch {batch}, {less} bytes for {arena}",
            f"{share:.3f} of the tokens/s, 0.9 is wanted", tokens_per_s=speeds[1], whole_tokens_per_s=speeds[0])
    r.timed("figure", "predicted step against the measured one", f"{predicted:.4f} s for {step:.4f} s", predicted_s=predicted,
            step_s=step)


# --- order of kernels, and the experiments


def profile(r):
    """Kernels and copies by CUPTI, and the cost of the times of graphs."""
    s = sizes(r)
    words = f"--device cuda --dtype bf16 --model {s.middle} --ranks 2 --batch 4 --seq {s.middle_seq}"
    done = train(r, "profile", 30, f"{words} --steps 6 --cupti on")
    if done.ok:
        for collective in ("all-gather", "reduce-scatter"):
            r.note("figure", f"CUPTI: {collective} of 2 ranks on a GPU ran", find(rf"^  {collective}  *(.*)", done.text))
        found = re.findall(r"^  (kernels|copies|copies between GPUs|fills)  *(.*)", done.text, re.M)
        r.note("figure", "CUPTI: kernels and copies", "".join(f"{name} {rest};" for name, rest in found))
    else:
        r.judge("CUPTI: what the GPU ran", done)
    for times in ("off", "on"):
        line = f"steps as a graph, with their times {times}"
        done = train(r, f"times-{times}", 25, f"{words} --steps {s.many} --graph on --graph-times {times}")
        has_trained(r, line, done)
        speed = last("step_s_median", read(r, f"times-{times}.jsonl"))
        if speed:
            r.timed("figure", line, f"{speed} s a step (median of {s.many})", step_s=float(speed))
    r.write(*("    | " + row for row in re.findall("^  waiting for.*", done.text, re.M)))


def kernels(r):
    """How near our own kernels come to the memory's rate."""
    done = r.run(30, "kernel_speed")
    figures = re.findall(r'"kernel": "([^"]*)", "us": ([0-9.]*), .*"tb_per_s": ([0-9.]*)', done.text)
    if not done.ok or not figures:
        r.judge("kernels: times", done)
    for name, us, rate in figures if done.ok else []:
        r.note("figure", f"kernels: {name}", f"{us} us, {rate} TB/s", us=float(us), tb_per_s=float(rate))


def nccl_sharing(r):
    words = "--iterations 20 --seconds 25".split()
    for line, more in (("2 ranks of NCCL on one GPU", "--ranks 2 --mib 64"),
                       ("4 ranks of NCCL on one GPU", "--ranks 4 --mib 16"),
                       ("a rank that is killed is told to the others", "--ranks 4 --mib 16 --kill 1")):
        r.judge(f"E1: {line}", r.run(30, "rank_share", *more.split(), *words))


# Ranks, and options of theirs.
OVER_NCCL = [(2, "--graph off"), (2, "--graph on"), (4, "--graph on"), (4, "--strategy hsdp:2"), (2, "--strategy zero2"),
             (2, "--strategy ddp"), (2, "--granularity half"), (2, "--memory dynamic:pool"),
             (2, "--offload-layers all --late-updates")]


def nccl_world(r):
    """Trainings by ranks of real NCCL. They share the GPU, as nodes that NCCL reaches over the network of this machine: the
    communicators, registration and graphs are those of a cluster, the speed is not."""
    s = sizes(r)
    if r.simulated != "no":
        r.note("not measured", "training over NCCL", "the simulated NCCL joins no processes")
        return
    for dtype, limit in ALL_TYPES.items():
        words = (f"--device cuda --model {s.small[0]} --dtype {dtype} --seq {s.seq} --steps {s.few} --sample 0 "
                 f"--text {source_text(r)}")
        if not has_trained(r, f"1 rank, {dtype}", train(r, "alone", 20, f"{words} --ranks 1 --batch 4")):
            continue
        for ranks, more in OVER_NCCL:
            line, log = f"{ranks} ranks over NCCL against 1, {dtype}, {more}", os.path.join(r.work, "nccl.jsonl")
            if os.path.exists(log):
                os.remove(log)
            done = r.run(30, "evenodd-launch", "-n", str(ranks), "sh", "-c", 'NCCL_HOSTID=node-$EVENODD_RANK exec "$@"', "-",
                         r.program("train") or "train", *words.split(), "--batch", str(4 // ranks), *more.split(),
                         "--hash", "off", "--peak-seconds", "0", "--rank-timeout", "20", "--log", log,
                         env={"NCCL_LAUNCH_ORDER_IMPLICIT": "1", "NCCL_NVLS_ENABLE": "0"})
            if has_trained(r, line, done):
                expect_near(r, line, "alone", "nccl", limit, s.few)
    for graph in ("off", "on"):  # a rank is killed in the middle: the others end, and it is named
        line = f"3 ranks over NCCL, one killed, graph {graph}"
        if not r.program("evenodd-launch"):
            r.note("not measured", line, "there is no evenodd-launch")
            continue
        done = r.run(40, "sh", "-c", '"$@" & sleep 8; kill -9 "$(cat "$PIDS/pid.1")"; wait $!', "-",
                     r.program("evenodd-launch"), "-n", "3", "sh", "-c",
                     'echo $$ >"$PIDS/pid.$EVENODD_RANK"; NCCL_HOSTID=node-$EVENODD_RANK exec "$@"', "-",
                     r.program("train") or "train", *f"--device cuda --model {s.small[0]} --dtype bf16 --seq {s.seq} --batch 1 "
                     f"--steps 1000000 --sample 0 --hash off --peak-seconds 0 --rank-timeout 8 --graph {graph}".split(),
                     "--text", source_text(r), env={"NCCL_LAUNCH_ORDER_IMPLICIT": "1", "NCCL_NVLS_ENABLE": "0", "PIDS": r.work})
        named = "rank 1" in done.text and done.took < 30
        r.expect(not done.ok and not done.not_tried and named, line, done.reason)


def attention(r):
    names = ("--batch", "--heads", "--kv-heads", "--seq", "--head-size")
    for shape in ("1 4 4 256 64", "1 4 4 256 128", "1 8 2 512 128", "2 16 16 2048 128", "2 32 8 4096 128", "1 32 8 4096 64"):
        for way in ("auto", "blocks"):
            done = r.run(20, "sdpa_check", *itertools.chain(*zip(names, shape.split())), "--way", way)
            r.judge(f"E2: attention {shape} (batch, heads, of keys, tokens, size), {way}", done,
                    find("^  (forward.*)", done.text))
    r.judge("E2: attention in fp32", r.run(20, "sdpa_check", "--dtype", "fp32"))
    r.note("not measured", "E2: cuDNN's other form of backward, and a plan read from JSON", "the layers use neither")


def giveway(r):
    table = r.path.removesuffix(".txt") + "-giveway.csv"
    done = r.run(48, "giveway", "--iterations", "100", "--csv", table)
    ways = len(re.findall("^{", done.text, re.M))
    r.judge("E3: what gives way to what", done, f"{ways} ways, in the lines above and in {table}")


def host_time(r, s, count, graph):
    """The host's work for a step, without waits: as a graph it has to be below 1 ms."""
    host = last("host_s_median", read(r, f"graph-{graph}2.jsonl"))
    line = f"host time of a step, {s.middle}, {count_ranks(count)}, graph {graph}"
    if host and (graph == "off" or count != 1):
        r.timed("figure", line, f"{host} s (median of {s.many})", host_s=float(host))
    elif host:
        r.timed("pass" if float(host) < 1e-3 else "fail", line, f"{host} s (median of {s.many}), less than 1 ms is wanted",
                host_s=float(host))


def eager_graph(r):
    """In turn, so that neither always has the warmer card."""
    s = sizes(r)
    for count in (1, 2):
        what = f"E4: {s.middle}, {count_ranks(count)}"
        words = (f"--device cuda --dtype bf16 --model {s.middle} --ranks {count} --batch {8 // count} --seq {s.middle_seq} "
                 "--steps ")
        for turn, graph in itertools.product((1, 2), ("off", "on")):
            has_trained(r, f"{what}, graph {graph}", train(r, f"graph-{graph}{turn}", 20, f"{words}{s.many} --graph {graph}"))
        for graph in ("off", "on"):
            speed = last("step_s_median", read(r, f"graph-{graph}2.jsonl"))
            if speed:
                r.timed("figure", f"{what}, graph {graph}", f"{speed} s a step (median of {s.many})", step_s=float(speed))
        for graph in ("off", "on"):
            host_time(r, s, count, graph)
        for graph in ("off", "on"):  # bits: the timed runs take attention whose last bits differ
            has_trained(r, f"{what}, repeatable, graph {graph}",
                        train(r, f"bits-{graph}", 20, f"{words}{s.few} --graph {graph} --repeatable", hashed=True))
        base = last("weights_hash", read(r, "bits-off.jsonl"))
        if base and read(r, "bits-on.jsonl"):
            expect_hash(r, f"{what}, graph against eager after {s.few} steps", "bits-on", base)
    r.note("not measured", "E4: a graph without the priorities of its nodes", "train has no switch for it")


def fixed_dynamic(r):
    s = sizes(r)
    words = (f"--device cuda --dtype bf16 --model {s.middle} --seq {s.middle_seq} --steps {s.few} --runs 1 --peak-seconds 0 "
             "--ranks")
    for count, line in ((1, "E5: placed memory against dynamic"), (2, "E5: the same with 2 ranks on the GPU")):
        done = r.run(50 - 10 * count, "headtohead", *f"{words} {count} --batch {8 // count}".split(), "--text", source_text(r))
        r.judge(line, done, " ".join(find("^(step, median.*)", done.text).split()))
    for row in ("start delay of an all-gather", "start delay of a reduce-scatter", "blocks beside a collective / alone",
                "bytes copied a step and rank", "bytes cast a step and rank", "host time of a step, median"):
        found = find(f"^{re.escape(row)}(.*)", done.text)
        if found:
            r.timed("figure", f"E5, 2 ranks: {row}", " ".join(found.split()))
