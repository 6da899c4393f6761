#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Compiles a .cu file for the host.

usage: compile.py [--depfile FILE] COMPILER [WORD ...] -- INPUT OUTPUT [OPTION ...]

The options are the preprocessor's. Four forms of CUDA C++ are rewritten after it:

    __shared__ alignas(16) float tile[8][32];   ->  auto &tile = kernel_shared<float[8][32], 16, ID>();
    void __launch_bounds__(256) kernel(...)     ->  void kernel(...)
    __global__ void kernel(const runs all, ...) ->  void kernel(const runs &all, ...)
    kernel<T><<<grid, block>>>(a, b);           ->  kernel_call_of("kernel", kernel<T>, 256, kernel_config(grid, block))(a, b);

The compiler's own instrumentation for ThreadSanitizer calls a function before every load and store, and that of UBSan one
where an address is not aligned to its type. These calls, and those of memcpy and memset, get other names in the assembly
text, so that they reach the checker (check.c) in every build.
"""
import os
import re
import subprocess
import sys

OPTIMIZE = ["-std=c++17", "-O1", "-w", "-fPIC", "-fno-exceptions", "-fno-rtti", "-fno-threadsafe-statics",
            "-fno-strict-aliasing", "-ffp-contract=off", "-fno-asynchronous-unwind-tables",
            # One load of the source stays one load: wider ones would have an alignment of their own.
            "-fno-tree-vectorize", "-fno-tree-slp-vectorize", "-fsanitize=thread,alignment"]

SHARED = re.compile(r"(extern\s+)?__shared__\s+(?:alignas\((\d+)\)\s+)?([\w:<> ]+?)\s*\b(\w+)\s*((?:\[[^\]]*\]\s*)*);")


def rewrite_shared(text):
    ids = iter(range(1, 1 << 30))

    def one(match):
        is_dynamic, align, kind, name, dimensions = match.groups()
        if is_dynamic:
            return f"{kind} *const {name} = ({kind} *)kernel_shared_dynamic();"
        return f"auto &{name} = kernel_shared<{kind}{dimensions}, {align or 1}, {next(ids)}>();"

    text = SHARED.sub(one, text)
    if "__shared__" in text:
        rest = text[text.index("__shared__"):][:100]
        raise SystemExit(f"compile.py: a form of __shared__ that is not known: {rest!r}")
    return text


def closing(text, at):
    """Behind the parenthesis that closes the one at `at`."""
    depth = 0
    while True:
        depth += (text[at] == "(") - (text[at] == ")")
        at += 1
        if depth == 0:
            return at


def take_launch_bounds(text):
    """The text without them, and the threads that each kernel was compiled for at most, as the source says it. A second bound,
    blocks of a multiprocessor, is about registers."""
    done, out, bounds = 0, [], {}
    for match in re.finditer(r"\b__launch_bounds__\s*(?=\()", text):
        end = closing(text, match.end())
        words = text[match.end() + 1:end - 1].split(",")[0]
        bounds[re.match(r"\s*(\w+)\s*\(", text[end:]).group(1)] = words
        out.append(text[done:match.start()])
        done = end
    return "".join(out) + text[done:], bounds


PARAMETER = re.compile(r"\bconst (\w+) (\w+)(?=\s*[,)])")


def rewrite_parameters(text):
    """Structures are passed by reference: a copy of 4 KB a thread takes longer than most kernels."""
    done, out = 0, []
    for match in re.finditer(r"\b__global__\b", text):
        begin = text.index("(", match.end())
        end = closing(text, begin)
        out += [text[done:match.start()], text[match.end():begin], PARAMETER.sub(r"const \1 &\2", text[begin:end])]
        done = end
    return "".join(out) + text[done:]


def callee_before(text, end):
    """Where the kernel's name begins, with its template arguments, that ends at `end`."""
    at = len(text[:end].rstrip())
    if text[at - 1] == ">":
        depth = 0
        while True:
            at -= 1
            depth += (text[at] == ">") - (text[at] == "<")
            if depth == 0:
                break
    return re.search(r"\w+\s*$", text[:at]).start()


def rewrite_launches(text):
    text, bounds = take_launch_bounds(text)
    text = rewrite_parameters(text)
    done, out = 0, []
    for match in re.finditer(r"<<<(.*?)>>>", text, re.S):
        begin = callee_before(text, match.start())
        callee = text[begin:match.start()].strip()
        name = re.match(r"\w+", callee).group()
        most = bounds.get(name, "KERNEL_THREADS_MAX")
        out += [text[done:begin], f'kernel_call_of("{name}", {callee}, {most}, kernel_config({match.group(1)}))']
        done = match.end()
    return "".join(out) + text[done:]


def run(command, text=None):
    result = subprocess.run(command, input=text, text=True, stdout=subprocess.PIPE)
    if result.returncode != 0:
        raise SystemExit(result.returncode)
    return result.stdout


def compile_for_host(compiler, source, output, options, depfile=None):
    command = compiler + ["-x", "c++", "-E", "-std=c++17", "-D_GNU_SOURCE"] + options
    if depfile:
        command += ["-MD", "-MF", depfile, "-MT", output]
    text = run(command + [source])
    text = rewrite_launches(rewrite_shared(text))
    assembly = run(compiler + ["-x", "c++-cpp-output", "-S", "-o", "-", "-"] + OPTIMIZE, text)
    assembly = re.sub(r"\b__(tsan|ubsan)_", r"kernel_\1_", assembly)
    assembly = re.sub(r"\b(memcpy|memmove|memset)\b(?=@PLT|\s*$)", r"kernel_\1", assembly, flags=re.M)
    run(compiler + ["-x", "assembler", "-c", "-o", output, "-"], assembly)


def main(words):
    depfile = None
    if words[:1] == ["--depfile"]:
        depfile, words = words[1], words[2:]
    split = words.index("--")
    compile_for_host(words[:split], words[split + 1], words[split + 2], words[split + 3:], depfile)


if __name__ == "__main__":
    main(sys.argv[1:])
