#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The stand-in of CUDA's header (host/cuda_runtime_api.h) says what the real one says.

usage: stand_in.py COMPILER ROOT SCRATCH INCLUDE_OF_CUDA

Of every enumerator, function, structure and type in the stand-in the value, signature or layout is printed by a program that
is compiled against each of the two headers. Both print the same, or the test names the line; copies of the stand-in with one
error each are refused. What kernels alone can call (shuffles, atomics) is NVCC's to check: it compiles the same .cu files.
"""
import os
import re
import subprocess
import sys

PARTS = {"cudaFuncAttributes"} # has one of the real one's fields
FEWEST = 40

PROBE = """
#include <cuda_runtime_api.h>
#ifndef EO_TESTS_SIMULATOR_KERNELS_HOST_CUDA_RUNTIME_API_H // the real one
#include <vector_functions.h>
#endif
#include <cstdio>
#include <typeinfo>
#define NUMBER(what, value) printf("%s: %lld\\n", what, (long long)(value));
#define TYPE(what, ...) printf("%s: %s\\n", what, typeid(__VA_ARGS__).name());
int main() {
"""


def facts(text):
    """Statements of the program."""
    for block in re.findall(r"enum \w+ \{(.*?)\}", text, re.S):
        for name in re.findall(r"\b(cuda\w+) = \d+", block):
            yield f'NUMBER("{name}", {name}) TYPE("type of {name}", decltype({name}))'
    for name in re.findall(r"^typedef .*?\b(cuda\w+);$|^\} (cuda\w+);$", text, re.M):
        yield f'TYPE("{"".join(name)}", {"".join(name)})'
    for name in re.findall(r"^(?:const )?\w+ \*?(cuda\w+)\(", text, re.M) + re.findall(r"^static inline \w+ (make_\w+)\(", text, re.M):
        yield f'TYPE("{name}", decltype({name}))'
    for name, fields in re.findall(r"^struct (?:alignas\(\d+\) )?(?!kernel_)(\w+) \{\n(.*?)^\}", text, re.M | re.S):
        if name not in PARTS:
            yield f'NUMBER("size of {name}", sizeof({name})) NUMBER("alignment of {name}", alignof({name}))'
        for field in re.findall(r"\b(\w+)(?=[,;])", "\n".join(line for line in fields.split("\n") if "(" not in line)):
            yield f'TYPE("type of {name}.{field}", decltype({name}::{field}))'
            if name not in PARTS:
                yield f'NUMBER("place of {name}.{field}", offsetof({name}, {field}))'


def printed(compiler, scratch, name, statements, includes):
    """By the program, or None where it cannot be compiled."""
    source, program = os.path.join(scratch, name + ".cc"), os.path.join(scratch, name)
    with open(source, "w", encoding="utf-8") as stream:
        stream.write(PROBE + "\n".join(statements) + "\n}\n")
    command = [compiler, "-std=c++17", "-O1", "-w", "-Wno-invalid-offsetof"] + ["-I" + path for path in includes] + ["-o", program, source]
    if subprocess.run(command, check=False).returncode != 0:
        return None
    return subprocess.run([program], check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines()


def compare(ours, theirs):
    """Lines that differ."""
    if ours is None or theirs is None:
        return [f"does not compile with {'the stand-in' if ours is None else 'the real header: a name that it does not have?'}"]
    return [f"{a}, in CUDA's header {b.split(': ', 1)[1]}" for a, b in zip(ours, theirs) if a != b]


ERRORS = [("a value", "cudaErrorIllegalAddress = 700", "cudaErrorIllegalAddress = 701"),
          ("a signature", "cudaMemsetAsync(void *memory, int value,", "cudaMemsetAsync(void *memory, long value,"),
          ("an alignment", "struct alignas(8) ushort4", "struct alignas(4) ushort4"),
          ("an order of fields", "unsigned x, y, z, w;", "unsigned y, x, z, w;")]


def main(compiler, root, scratch, real):
    os.makedirs(scratch, exist_ok=True)
    host = os.path.join(root, "tests/simulator/kernels/host")
    with open(os.path.join(host, "cuda_runtime_api.h"), encoding="utf-8") as stream:
        text = stream.read()
    statements = list(facts(text))
    theirs = printed(compiler, scratch, "real", statements, [real])
    wrong = compare(printed(compiler, scratch, "stand-in", statements, [host, root]), theirs)
    for line in wrong:
        print("# " + line)
    failed = bool(wrong) or len(statements) < FEWEST
    print(f"{'not ok' if failed else 'ok'} 1 - {len(statements)} facts of the stand-in are those of CUDA's header")
    for number, (what, right, spoiled) in enumerate(ERRORS, 2):
        folder = os.path.join(scratch, f"error-{number}")
        os.makedirs(folder, exist_ok=True)
        with open(os.path.join(folder, "cuda_runtime_api.h"), "w", encoding="utf-8") as stream:
            stream.write(text.replace(right, spoiled))
        found = compare(printed(compiler, scratch, f"spoiled-{number}", statements, [folder, root]), theirs)
        good = right in text and bool(found) and not found[0].startswith("does not compile")
        failed |= not good
        print(f"{'ok' if good else 'not ok'} {number} - {what} that is wrong is found{': ' + found[0] if found else ''}")
    print(f"1..{1 + len(ERRORS)}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
