# SPDX-License-Identifier: MIT
#
# Goal: examples/llm.c makes a sharded trainer of llm.c's train_gpt2.c by a patch of few lines: on 1, 2 and 4 ranks its losses,
#       of steps and of validation, and its samples are those of the program before. Wrong folders and ranks are refused.
# Method: llm.c's file, as it is in tests/fixtures, is built and run as it is; run.sh patches, builds and runs copies. The model
#         is a small one of random numbers. Ranks shuffle alike here, for llm.c's take a seed each and so other text.
# usage: llmc_runs.py SOURCE BUILD LAUNCH CC
import os
import random
import re
import shutil
import struct
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "../tap"))
from tap import finish, result

source, build, launch = (os.path.realpath(word) for word in sys.argv[1:4])
cc = sys.argv[4].split()
example = os.path.join(source, "examples/llm.c")


def write(path, header, rest):
    with open(path, "wb") as file:
        file.write(struct.pack("<256i", *header, *[0] * (256 - len(header))) + rest)


def write_model(path, length=64, vocabulary=256, blocks=3, heads=4, wide=32):
    """llm.c's checkpoint, version 3: 16 tensors, those of blocks stacked."""
    numbers, square = random.Random(2), wide * wide
    sizes = [vocabulary * wide, length * wide, *(blocks * n for n in (wide, wide, 3 * square, 3 * wide, square, wide, wide, wide,
                                                                      4 * square, 4 * wide, 4 * square, wide)), wide, wide]
    norms = (2, 8, 14)
    values = [float(i in norms) + numbers.gauss(0, 0.1) for i, size in enumerate(sizes) for _ in range(size)]
    write(path, [20240326, 3, length, vocabulary, blocks, heads, wide, vocabulary], struct.pack(f"<{len(values)}f", *values))


def write_tokens(path, count, seed):
    numbers = random.Random(1)
    words = [[numbers.randrange(256) for _ in range(numbers.randrange(3, 9))] for _ in range(40)]
    numbers, tokens = random.Random(seed), []
    while len(tokens) < count:
        tokens += numbers.choice(words)
    write(path, [20240520, 1, count], struct.pack(f"<{count}H", *tokens[:count]))


def make(folder):
    shutil.copytree(os.path.join(source, "tests/fixtures/llm.c"), folder)
    os.makedirs(folder + "/dev/data/tinyshakespeare")
    loader = folder + "/llmc/dataloader.h"
    with open(loader, encoding="utf-8") as file:
        text = file.read()
    with open(loader, "w", encoding="utf-8") as file:
        file.write(text.replace("42 + process_rank", "42"))
    write_model(folder + "/gpt2_124M.bin")
    write_tokens(folder + "/dev/data/tinyshakespeare/tiny_shakespeare_train.bin", 4096, 3)
    write_tokens(folder + "/dev/data/tinyshakespeare/tiny_shakespeare_val.bin", 2048, 4)
    write(folder + "/gpt2_tokenizer.bin", [20240328, 2, 256, 0], b"".join(bytes([1, 65 + i % 26]) for i in range(256)))


def run(*words, **more):
    environment = {**os.environ, "CC": " ".join(cc), "CFLAGS": "-O2 -w", "LAUNCH": launch, "OMP_NUM_THREADS": "1",
                   "PKG_CONFIG_PATH": build + "/meson-uninstalled", "LD_LIBRARY_PATH": build}
    return subprocess.run(words, capture_output=True, text=True, check=False, timeout=300, env=environment, **more)


def losses(text):
    return [(what, float(loss)) for what, loss in re.findall(r"(train|val) loss ([0-9.]+)", text)]


def samples(text):
    return re.findall(r"generating:\n---\n(.*)\n---", text)


def check_losses(folder):
    built = run(*cc, "-O2", "-w", "-o", "plain", "train_gpt2.c", "-lm", cwd=folder)
    plain = run("./plain", cwd=folder)
    expected = losses(plain.stdout)
    result(built.returncode == 0 and len(expected) == 46 and len(samples(plain.stdout)) == 2 and expected[-1][1] < expected[1][1],
           "llm.c's train_gpt2.c trains as it is", [built.stderr, plain.stdout, plain.stderr])
    for ranks in (1, 2, 4):
        done = run(example + "/run.sh", folder, str(ranks))
        own = losses(done.stdout)
        far = max((abs(a[1] - b[1]) for a, b in zip(own, expected)), default=1)
        print(f"# {ranks} ranks: losses differ by {far:.1e} at most")
        result(done.returncode == 0 and f"ranks: {ranks}\n" in done.stdout and [w for w, _ in own] == [w for w, _ in expected] and
               far < 1e-5 and samples(done.stdout) == samples(plain.stdout) and not done.stderr,
               f"patched, on {ranks} ranks, it has the same losses to 1e-5 and the same samples", [own, expected, done.stderr])


def check_patch(folder):
    with open(example + "/sharded.patch", encoding="utf-8") as file:
        lines = file.read().split("\n")
    added = sum(line.startswith("+") and not line.startswith("+++") for line in lines)
    removed = sum(line.startswith("-") and not line.startswith("---") for line in lines)
    with open(folder + "/train_gpt2.c", "rb") as one, open(source + "/tests/fixtures/llm.c/train_gpt2.c", "rb") as other:
        same = one.read() == other.read()
    result((added, removed) == (20, 10) and f"{added} lines added, {removed} left out" in "\n".join(lines) and same,
           "the patch adds 20 lines and leaves out 10, and the folder's own file stays as it is", [added, removed])


def check_refusals(folder, work):
    for words, text in (((folder, "3"), "1, 2 or 4 ranks"), ((work, "2"), "there is no train_gpt2.c"), ((), "usage")):
        done = run(example + "/run.sh", *words)
        result(done.returncode == 1 and text in done.stderr, f"refused: {text}", [done.stdout, done.stderr])
    with open(folder + "/train_gpt2.c", "w", encoding="utf-8") as file:
        file.write("int main(void) { return 0; }\n")
    done = run(example + "/run.sh", folder)
    result(done.returncode == 1 and "the patch does not apply" in done.stderr, "refused: another file", [done.stdout, done.stderr])


with tempfile.TemporaryDirectory() as work:
    make(work + "/llm.c")
    check_losses(work + "/llm.c")
    check_patch(work + "/llm.c")
    check_refusals(work + "/llm.c", work)
finish()
