#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The checker of kernels can fail: each barrier, each bounds check and each look at an operand's alignment is taken out of the
.cu files in turn, and the tests of the kernels must object, or REDUNDANT says why nothing changes.

usage: mutate.py SOURCE BUILD COMPILER SCRATCH PROGRAM_OF_STREAMS PROGRAM_OF_LAYERS [WORD]

A changed file becomes a shared object that is loaded before the program's own (LD_PRELOAD). With WORD only mutants whose
text has it.
"""
import concurrent.futures
import os
import re
import subprocess
import sys
import threading

from compile import compile_for_host

# A file's kernels are also in what includes it. Of quads.cuh state8.cu reaches no end: its ranges are whole blocks.
FILES = {
    "streams/cuda/kernels.cu": ["tests/simulator/kernels/chunks.cu"], "streams/cuda/float8.cu": [], "streams/cuda/state8.cu": [],
    "streams/cuda/collective_kernels.cu": [],
    "layers/cuda/kernels/elementwise.cu": [], "layers/cuda/kernels/embeddings.cu": [], "layers/cuda/kernels/float8_rows.cu": [],
    "layers/cuda/kernels/head_norms.cu": [],
    "layers/cuda/kernels/losses.cu": [], "layers/cuda/kernels/norms.cu": [], "layers/cuda/kernels/softmax.cu": [],
    "streams/cuda/quads.cuh": ["tests/simulator/kernels/chunks.cu"],
    "layers/cuda/kernels/lanes.cuh": ["layers/cuda/kernels/norms.cu", "layers/cuda/kernels/softmax.cu"],
    "layers/cuda/kernels/columns.cuh": ["layers/cuda/kernels/elementwise.cu", "layers/cuda/kernels/norms.cu", "layers/cuda/kernels/head_norms.cu"],
}

# (file, mutated words, which of those in the file[, of which user]): why nothing changes without it.
REDUNDANT = {
    ("streams/cuda/kernels.cu", "if (threadIdx.x < EO_SUM_LANES)", 1): "saves work: other warps' sums go nowhere",
    ("streams/cuda/kernels.cu", "if (threadIdx.x < EO_SUM_LANES)", 2): "saves work: only thread 0 writes",
    ("streams/cuda/kernels.cu", "at < end", 1): "the tile behind the end is zeros",
    ("streams/cuda/kernels.cu", "if (is_lane)", 1): "saves work: other warps' sums go nowhere",
    ("streams/cuda/kernels.cu", "begin < count", 1): "no chunk is left behind the end",
    ("streams/cuda/float8.cu", "i < count", 1): "elements behind the end are zeros",
    ("streams/cuda/float8.cu", "if (threadIdx.x < 32)", 1): "saves work: only thread 0 writes",
    ("layers/cuda/kernels/embeddings.cu", "first < rows", 1): "no row is left to be looked at",
    ("layers/cuda/kernels/norms.cu", "all < end", 1): "rows behind the end are zeros, and none of them is written",
    ("layers/cuda/kernels/lanes.cuh", "__syncthreads();", 1, "layers/cuda/kernels/softmax.cu"):
        "a kernel of softmax sums once: nobody read before",
    ("layers/cuda/kernels/lanes.cuh", "first < N", 1, "layers/cuda/kernels/softmax.cu"): "softmax has no gradients of weights",
    ("layers/cuda/kernels/lanes.cuh", "first < N", 2, "layers/cuda/kernels/softmax.cu"): "softmax has no weights",
}

LIMIT = r"\b(?:count|width|rows|pairs|keys)\b"
BEYOND = r"(?:\w+\.)?\w+(?:\(\w+\))? >= (?:\w+\.)?(?:count|width|rows)"
WITHIN = r"\w+(?:\.\w+|\(\w+\))?(?: \+ \w+)? < (?:\w+\.)?(?:count|width|rows|seq|end)"
CHECKS = [
    (re.compile(r"__syncthreads\(\);"), ";"),
    (re.compile(r"__syncthreads_or\((\w+)\)"), r"\1"),
    (re.compile(rf"if \(([^;{{}}]*>=[^;{{}}]*{LIMIT}[^;{{}}]*)\)(?=(?: /\*[^\n]*)?\n\s*(?:return|continue);)"), "if (false)"),
    (re.compile(rf"if \((\w+(?:\.\w+|\(\w+\))?(?: \+ \w+(?:\.\w+)?)* <=? (?:\w+\.)?{LIMIT})\)"), "if (true)"),
    (re.compile(rf"if \((\w+ \+ \w+ <= {LIMIT}) && "), "if ("),
    # Not N, which the compiler knows.
    (re.compile(r"(?:(?<=[=(,+] )|(?<=\())(?!N < )((?:\w+\.)?\w+(?:\.x)?(?: [+%-] (?:\w+\.)?\w+)*"
                r" < (?:\w+\.)?\w+(?: / \d+)?) \?"), "true ?"),
    # One of several in a condition.
    (re.compile(rf"(?<= \|\| ){BEYOND}(?=\))"), "false"),
    (re.compile(rf"!\w+(?= \|\| {BEYOND}\))|threadIdx\.y != 0(?= \|\| {BEYOND}\))"), "false"),
    (re.compile(rf"(?:(?<=[(])|(?<=; )){WITHIN} && "), ""),
    (re.compile(rf" && {WITHIN}(?=[;)])"), ""),
    (re.compile(r"(?<=[(])\w+ > 0 && "), ""),
    (re.compile(r"(?<=[(])is_row && "), ""),
    (re.compile(r"if \(threadIdx\.y != 0\)(?=\n\s*return;)"), "if (false)"),
    (re.compile(r"if \(threadIdx\.y > 0\)"), "if (true)"),
    (re.compile(rf"(?<=bool is_row = ){WITHIN}(?=;)"), "true"),
    # A loop of threads goes a step too far.
    (re.compile(r"(?<=; )(\w+) < (\w+(?:\.\w+)?)(?=; \w+ \+= )"), r"\1 <= \2"),
    (re.compile(r"(?<=; )(\w+) < (end)(?=; \1\+\+)"), r"\1 <= \2"),
    (re.compile(r"if \((?:(?:threadIdx\.\w(?: % 32)?|lane) (?:<|==) \w+|is_lane)\)"), "if (true)"),
]


# Of what stands between a launch and loads of 16 bytes.
ALIGNED = re.compile(r"\baligned\((\w+(?:->[\w\[\]]+)?(?:, \w+->[\w\[\]]+)*)\)")
OPERAND = re.compile(r"\w+(?:->[\w\[\]]+)?")


def host_part(text):
    """Where launches begin: what follows runs on the host."""
    marks = [text.find(mark) for mark in ("/* --- launches", "static bool take_inputs(", "\n} /* namespace */\n\ncudaError_t", "---- on the host ----")]
    marks = [mark for mark in marks if mark >= 0]
    return min(marks) if marks else len(text)


def mutants(source):
    for file, users in FILES.items():
        with open(os.path.join(source, file), encoding="utf-8") as stream:
            text = stream.read()
        seen = {}
        found = [(match, match.expand(replacement)) for pattern, replacement in CHECKS
                 for match in pattern.finditer(text, 0, host_part(text))]
        if file.endswith(".cu"):
            found += [(operand, "nullptr") for call in ALIGNED.finditer(text)
                      for operand in OPERAND.finditer(text, call.start(1), call.end(1))]
        for match, replacement in found:
            changed = text[:match.start()] + replacement + text[match.end():]
            line = text.count("\n", 0, match.start()) + 1
            words = " ".join(match.group().split())
            seen[words] = seen.get(words, 0) + 1
            for user in users or [file]:
                yield {"file": file, "user": user, "line": line, "words": words, "text": changed,
                       "key": (file, words, seen[words])}


class Bench:
    def __init__(self, words):
        self.source, self.build, self.compiler, self.scratch, streams, layers = words
        self.programs = {"streams": streams, "tests": streams, "layers": layers}

    def shared_object(self, name, user, file=None, text=None):
        """`user` compiled, with this text in place of `file`."""
        folder = os.path.join(self.scratch, name)
        os.makedirs(folder, exist_ok=True)
        root = os.path.join(self.source, user)
        if file:
            path = os.path.join(folder, file)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "w", encoding="utf-8") as stream:
                stream.write(text)
            root = path if file == user else root
        host = os.path.join(self.source, "tests/simulator/kernels/host")
        options = ["-I" + each for each in (host, folder, self.source, os.path.join(self.source, "include"), self.build)]
        compile_for_host([self.compiler], root, os.path.join(folder, "mutant.o"), options)
        library = os.path.join(folder, "mutant.so")
        subprocess.run([self.compiler, "-shared", "-nostdlib", "-o", library, os.path.join(folder, "mutant.o")], check=True)
        return library

    def objections(self, library, user):
        """"" where the program passes."""
        environment = dict(os.environ, LD_PRELOAD=os.path.abspath(library))
        with subprocess.Popen([self.programs[user.split("/")[0]]], env=environment, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, errors="replace") as process:
            stop = threading.Timer(600, process.kill)
            stop.start()
            for line in process.stdout:
                if line.startswith(("# ", "not ok")): # the rest would say no more
                    process.kill()
                    stop.cancel()
                    return line.strip()
            stop.cancel()
        return f"exit status {process.returncode}" if process.returncode != 0 else ""

    def judge(self, number, mutant):
        library = self.shared_object(str(number), mutant["user"], mutant["file"], mutant["text"])
        return self.objections(library, mutant["user"])


def main(words):
    bench = Bench([os.path.abspath(word) if i != 2 else word for i, word in enumerate(words[:6])])
    chosen = [m for m in mutants(bench.source) if len(words) < 7 or words[6] in f"{m['user']} {m['file']} {m['words']}"]
    users = sorted({m["user"] for m in chosen})
    failed = 0
    for user in users:
        told = bench.objections(bench.shared_object("unchanged-" + os.path.basename(user), user), user)
        failed += told != ""
        print(f"{'not ok' if told else 'ok'} - {user} unchanged passes{': ' + told if told else ''}", flush=True)
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        for mutant, told in zip(chosen, pool.map(bench.judge, range(len(chosen)), chosen)):
            reason = REDUNDANT.get(mutant["key"]) or REDUNDANT.get(mutant["key"] + (mutant["user"],))
            good = bool(told) != bool(reason)
            failed += not good
            print(f"{'ok' if good else 'not ok'} - {mutant['user']} without '{mutant['words']}' of {mutant['file']}:{mutant['line']}: "
                  f"{told or reason or 'nobody objects'}", flush=True)
    count = len(users) + len(chosen)
    print(f"1..{count}")
    return 1 if failed or count < (1 if len(words) > 6 else 20) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
