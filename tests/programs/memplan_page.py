# SPDX-License-Identifier: MIT
#
# Goal: the committed page (docs/memplan.html) is of these sources, and plans what memplan plans.
# Method: hashes of the sources stand in the page. The WebAssembly in it runs under node for more than 50 settings, good ones
#         and refused ones: status, JSON, reports and errors are memplan's, byte for byte. memplan --html writes that page
#         with its settings filled in. Words become controls and words again (memplan_settings.mjs). Without node a part is skipped, and says so.
# usage: memplan_page.py MEMPLAN SOURCE
import json
import os
import re
import resource
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "../tap"))
from tap import finish, result, skip

memplan, source = (os.path.realpath(word) for word in sys.argv[1:3])
page = os.path.join(source, "docs/memplan.html")
here = os.path.dirname(os.path.realpath(__file__))
node = shutil.which("node") or shutil.which("nodejs")

# A model of a family without a name in the table, and of one that has experts.
CONFIG = json.dumps({"model_type": "qwen2", "hidden_size": 896, "num_hidden_layers": 24, "num_attention_heads": 14,
                     "num_key_value_heads": 2, "intermediate_size": 4864, "vocab_size": 151936,
                     "max_position_embeddings": 32768, "tie_word_embeddings": True, "rms_norm_eps": 1e-6})
RATES = json.dumps({"products_flops_per_s": 98e9, "memory_bytes_per_s": 22.2e9, "disk_bytes_per_s": 0.63e9,
                    "link_bytes_per_s": 22.2e9, "link_latency_s": 3e-5})
DEVICES = json.dumps({"devices": [{"name": "card", "like": "H100", "memory_bytes": {"value": 30e9, "source": "a test"}}]})
FILES = {"config.json": CONFIG, "rates.json": RATES, "devices.json": DEVICES, "broken.json": '{"a": 1, "a": 2}', "empty.json": "{}"}
NAMED = """
--model llama-3-70b --ranks 1024 --device H100 --recompute all --time
--model llama-3-8b --ranks 8 --seq 8192 --device A100-80GB
--model llama-3-8b --ranks 8 --seq 8192 --device A100-80GB --headroom 20%
--model llama-3-8b --ranks 8 --device-memory 40GiB
--model llama-3-8b --ranks 16 --strategy zero2
--model llama-3-8b --ranks 16 --strategy zero1 --micro-batches 4
--model llama-3-8b --ranks 16 --strategy ddp --device H100
--model llama-3-8b --ranks 64 --strategy hsdp:8 --device H200 --time
--model llama-3-8b --recompute cheap
--model llama-3-8b --recompute 7 --device T4
--model llama-3-8b --recompute all --batch 4
--model llama-3-8b --granularity half
--model llama-3-8b --slots 3,2
--model llama-3-8b --gather float8
--model llama-3-8b --reduce bf16
--model llama-3-8b --dtype fp32
--model llama-3-8b --kernels cpu --threads 4
--model llama-3-8b --head-chunks 8 --graph --micro-batches 2
--model llama-3-8b --global-batch 512 --ranks 32
--model llama-3-8b --outside 1.9GiB --device H100-NVL
--model llama-3-8b --tokens 15T --price 2.5/h --device H100
--model llama-3-8b --time --device A100-80GB --network 12.5GB
--model gpt2
--model gpt2 --set n_embd=1024 --set n_head=16
--model gpt2-xl --set n_layer=6 --batch 4 --kernels cpu
--model gpt2 --batch 7 --seq 1000 --head-chunks 3
--model tiny --kernels cpu --seq 64 --micro-batches 3000
--model qwen3-8b --ranks 4
--model qwen3-30b-a3b --ranks 32
--model mixtral-8x7b --ranks 16 --device B200
--model llama-3.1-405b --ranks 16384 --recompute all --device H100
--model config.json
--model config.json --ranks 2 --seq 2048 --set num_hidden_layers=12
--system megatron --model llama-3-70b --ranks 64 --tp 4 --pp 4 --sequence-parallel --global-batch 64 --device H100
--system megatron --model llama-3-70b --ranks 64 --tp 8 --pp 2 --virtual-stages 5 --global-batch 256 --device H100 --time
--system megatron --model llama-3-70b --ranks 128 --tp 4 --pp 4 --cp 2 --recompute selective --global-batch 64
--system megatron --model mixtral-8x7b --ranks 64 --tp 2 --ep 8 --device H100
--system megatron --model gpt2-xl --ranks 8 --strategy ddp --recompute all
--system megatron --model config.json --ranks 8 --tp 2
--system fsdp2 --model llama-3-8b --ranks 64 --device A100-80GB --time
--system fsdp2 --model llama-3-8b --ranks 64 --tp 4 --recompute all
--system fsdp2 --model llama-3-8b --ranks 64 --recompute selective --tokens 1T --device H100
--system deepspeed --model llama-3-8b --ranks 64
--system deepspeed --model llama-3-8b --ranks 64 --strategy zero1 --device H100 --time
--system deepspeed --model mixtral-8x7b --ranks 64 --strategy zero2
--model llama-3-8b --fit max-batch --device H100
--model llama-3-70b --strategy all --ranks 64 --recompute all
--model llama-3-8b --ranks 12
--model llama-3-8b --recompute 99
--model llama-3-8b --seq 1000000
--model llama-3-8b --device-memory 80
--model llama-3-8b --device H900
--model llama-3-8b --price 2
--model llama-3-8b --tp 5 --system megatron --ranks 8
--model nothing-7b
--model gpt2 --set num_hidden_layer=40
--model llama-3-8b --strategy zero9
--system megatron --model llama-3-8b --ranks 64 --tp 3
--ranks 8
--model gpt2 --kernels cpu --ranks 2 --seq 512 --budget 750MiB --rates rates.json
--model gpt2 --kernels cpu --ranks 2 --seq 512 --budget 1GiB --rates rates.json --dtype fp32 --strategy zero2
--model gpt2 --kernels cpu --ranks 4 --seq 256 --micro-batches 2 --budget 600MiB --rates rates.json --threads 2
--model gpt2 --kernels cpu --ranks 2 --seq 512 --budget 1TiB --rates rates.json
--model 4x64x2 --kernels cpu --ranks 2 --seq 64 --budget 2800000B --rates rates.json --budget-may-change-bits
--model config.json --kernels cpu --ranks 8 --seq 512 --budget 900MiB --rates rates.json
--model llama-3-8b --ranks 8 --budget 40GB,128GB --rates rates.json
--model gpt2 --ranks 8 --seq 1024 --budget 2GiB,4GiB --rates rates.json --device H100
--model gpt2 --kernels cpu --ranks 2 --budget 1MiB --rates rates.json
--model gpt2 --ranks 8 --budget 2GiB --rates rates.json
--model gpt2 --ranks 8 --budget 2GiB
--model gpt2 --rates rates.json
--model gpt2 --kernels cpu --budget 2GiB --rates nothing.json
--model gpt2 --kernels cpu --budget 2GiB --rates broken.json
--model gpt2 --kernels cpu --budget 2GiB --rates empty.json
--model mixtral-8x7b --ranks 8 --budget 40GB,128GB --rates rates.json
--model llama-3-8b --devices devices.json --device card --time
--model llama-3-8b --devices rates.json --device card
""".strip().splitlines()



def native(words, folder):
    done = subprocess.run([memplan, *words], capture_output=True, text=True, check=False, cwd=folder)
    err = re.sub(r"^\S+: \d+ plans, at .*\n", "", done.stderr, flags=re.M)  # a slow search says where it is
    return {"status": done.returncode, "out": done.stdout, "err": err}


def in_page(file, cases):
    done = subprocess.run([node, os.path.join(here, "memplan_page.mjs"), file], capture_output=True, text=True, check=False,
                          input=json.dumps([{"words": words, "files": FILES} for words in cases]))
    return json.loads(done.stdout) if done.returncode == 0 else done.stderr


def check_answers(folder):
    cases = [line.split() + ["--json"] for line in NAMED] + [line.split() for line in NAMED[::6]]
    answers = in_page(page, cases)
    if isinstance(answers, str):
        result(False, "the page's WebAssembly runs under node", [answers])
        return
    different = []
    for words, answer in zip(cases, answers):
        wanted = native(words, folder)
        different += [f"{key} of {' '.join(words)}: {answer[key]!r:.120} and not {wanted[key]!r:.120}"
                      for key in wanted if answer[key] != wanted[key]]
    result(not different, f"the page answers {len(cases)} command lines as memplan does, {len(NAMED)} of them with --json",
           different[:6])
    statuses = [answer["status"] for answer in answers]
    result(all(statuses.count(status) >= 3 for status in (0, 1, 2)), "some fit, some do not, some are refused", [statuses])
    times = [answer["ms"] for answer in in_page(page, [cases[0]] * 12)]
    timed = min(times)
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
    for _ in range(12):
        native(cases[0], folder)
    own = (resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before) / 12 * 1000
    print(f"# a plan of 70B on 1,024 ranks took {timed:.0f} ms, the first {times[0]:.0f}; the target is 100; the program has "
          f"{own:.0f} ms of processor time")
    result(timed < 1000, "a plan of 70B on 1,024 ranks does not take ten times the target")


def check_html(folder):
    """The page that memplan writes is the committed one, but for what was asked."""
    asked = re.compile(r'id="asked">(.*)</script>')
    with open(page, encoding="utf-8") as file:
        committed = file.read()
    budget = "--model gpt2 --kernels cpu --ranks 2 --seq 512 --budget 750MiB --rates rates.json".split()
    for words, files in ((["--model", "llama-3-8b", "--device", "h100", "--set", "hidden_act=</script>"], {}),
                         (["--model", "config.json", "--ranks", "4", "--headroom=5%", "--device", "H100"], {"config": CONFIG}),
                         (["--system", "megatron", "--model", "gpt2", "--ranks", "8", "--tp", "2"], {}),
                         (["--model", "llama-3-8b", "--ranks", "8", "--tp", "2"], {}),
                         (budget, {"rates": RATES}),
                         ("--model gpt2 --devices devices.json --device card".split(), {"devices": DEVICES})):
        done = native([*words, "--html", "plan.html", *(["--json"] if files else [])], folder)
        try:
            with open(os.path.join(folder, "plan.html"), encoding="utf-8") as file:
                written = file.read()
            filled = json.loads(asked.search(written).group(1))
            left = asked.sub("", written) == asked.sub("", committed)
            given = [word for words_of in words for word in words_of.split("=", 1)] if "--headroom=5%" in words else words
            texts = {kind: json.loads(text) for kind, text in filled["files"].items() if text}
            good = left and texts == {kind: json.loads(text) for kind, text in files.items()} and sorted(filled["words"]) == sorted(given)
            result(good, f"--html writes the page with its settings: {' '.join(words)}", [filled, left, done["err"]])
        except (OSError, ValueError, AttributeError) as error:
            result(False, f"--html writes the page: {' '.join(words)}", [error, done["err"]])
    done = native(["--model", "llama-3-8b", "--device", "H100", "--fit", "max-batch", "--global-batch", "64",
                   "--gpus-per-node", "4", "--gather", "float8", "--html", "plan.html"], folder)
    with open(os.path.join(folder, "plan.html"), encoding="utf-8") as file:
        words = json.loads(asked.search(file.read()).group(1))["words"]
    found = re.search(r"max-batch: batch (\d+)", done["out"])
    result(found and words[words.index("--batch") + 1] == found.group(1) and "--fit" not in words,
           "of a search the page has what was found", [words, done["out"]])
    again = native([*words, "--json"], folder)
    result(again["status"] == 0 and "--gather" in words and "--gpus-per-node" in words, "and it is a command line", [words, again["err"]])


def check_settings():
    """Words come back as they went in, from memplan --html and from a link; of a table no JSON is asked."""
    kept = ["--model gpt2 --device-memory " + size for size in ("4GiB", "4.5GiB", "24GB", "500GiB", "100MiB", "24.25GiB", "80")]
    kept += ["--model gpt2 --device H100 --time" + more for more in (
        "", " --headroom 5%", " --headroom 5000000000B", " --headroom 2GB", f" --headroom {85010153472 - 40 * 2**30}B")]
    kept += ["--model gpt2 --ranks 16 --system megatron --fit best", "--model gpt2 --ranks 16 --compare", "--model gpt2 --fit max-batch"]
    cases = [{"asked": {"words": words.split(), "files": {}}} for words in kept]
    cases += [{"hash": "#" + words.replace("%", "%25").replace(" ", "+")} for words in kept] + [{"hash": "#--model+gpt2+%E0%A"}]
    done = subprocess.run([node, os.path.join(here, "memplan_settings.mjs"), os.path.join(source, "tools/memplan/web")],
                          capture_output=True, text=True, check=False, input=json.dumps(cases))
    if done.returncode:
        result(False, "the page's settings run under node", [done.stderr])
        return
    answers = json.loads(done.stdout)
    different = [f"{words}: {answer}" for words, answer in zip(kept * 2, answers)
                 if sorted(answer["command"].split()) != sorted(words.split()) or answer["problem"]]
    result(not different, f"the page keeps the words of {len(answers) - 1} links and pages", different)
    tables = [words for words, answer in zip(kept, answers) if not any("--json" in asked for asked in answer["questions"])]
    result(tables == kept[-3:-1], "it asks for JSON but where memplan prints a table", tables)
    result("This link is cut" in answers[-1]["problem"] and "--model" in answers[-1]["command"],
           "a link that is cut is told, and the page begins with other settings", [answers[-1]])


def check_sources(folder):
    build = os.path.join(source, "tools/memplan/web/build.py")
    stale = subprocess.run([sys.executable, build, "--stale", page], capture_output=True, text=True, check=False)
    result(stale.returncode == 0, "the committed page is of these sources",
           [*stale.stdout.splitlines()[:8], stale.stderr, "make it anew: tools/dev page --commit (CONTRIBUTING.md)"])
    # The canary: of another source the page is said to be stale.
    other = os.path.join(folder, "other.html")
    with open(page, encoding="utf-8") as file:
        text = re.sub(r"^\w{12} runtime/plan/plan.c$", "0" * 12 + " runtime/plan/plan.c", file.read(), flags=re.M)
    with open(other, "w", encoding="utf-8") as file:
        file.write(text)
    stale = subprocess.run([sys.executable, build, "--stale", other], capture_output=True, text=True, check=False)
    result(stale.returncode == 1 and "runtime/plan/plan.c" in stale.stdout, "a page of other sources is found", [stale.stdout])
    outside = text.replace("http://www.w3.org/2000/svg", "")
    result("http://" not in outside and "https://" not in outside, "the page names nothing on a network")
    result(len(text) < 300000, f"the page is small: {len(text)} bytes")


with tempfile.TemporaryDirectory() as work:
    for name, content in FILES.items():
        with open(os.path.join(work, name), "w", encoding="utf-8") as file_of_page:
            file_of_page.write(content)
    check_sources(work)
    check_html(work)
    if node:
        check_answers(work)
        check_settings()
    else:
        skip("the page answers as memplan does", "there is no node")
finish()
