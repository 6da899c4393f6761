# SPDX-License-Identifier: MIT
#
# Goal: the C files can be built by clang, for ARM (aarch64 Linux) and with another C library (musl), without a warning.
# Method: Debian's compiler for it takes each file as this build's compiler did, with its options for headers and optimization. The
#         other libraries' headers are this machine's. Nothing is linked or run. A file with an error is refused.
# usage: compilers.py SOURCE BUILD COMPILER PACKAGES ROOM...
import concurrent.futures
import json
import os
import shlex
import shutil
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "../tap"))
from tap import finish, result, skip_all

source, build = (os.path.realpath(word) for word in sys.argv[1:3])
name, packages, rooms = sys.argv[3], sys.argv[4], tuple(sys.argv[5:])
compiler = shutil.which(name)
if not compiler or subprocess.run([compiler, "-E", "-"], input="#include <stdio.h>\n", text=True, capture_output=True,
                                  check=False).returncode:
    skip_all(f"there is no {name} with a C library (Debian: {packages})")


def refused(options, path, text=None):
    """What the compiler says, "" where it takes the file."""
    done = subprocess.run([compiler, *options, "-Wall", "-Wextra", "-Wno-unused-parameter", "-Werror", "-ffp-contract=off",
                           "-idirafter", "/usr/include", "-idirafter", f"/usr/include/{os.uname().machine}-linux-gnu",
                           "-c", path, "-o", "/dev/null"], cwd=build, input=text, capture_output=True, text=True, check=False)
    return done.stderr or f"status {done.returncode}" if done.returncode else ""


options_of = {}
with open(os.path.join(build, "compile_commands.json"), encoding="utf-8") as file:
    for command in json.load(file):
        path = os.path.realpath(os.path.join(command["directory"], command["file"]))
        if path.endswith(".c") and os.path.relpath(path, source).startswith(rooms):
            words, kept = shlex.split(command["command"])[1:], []
            for at, word in enumerate(words):
                if word == "-isystem":
                    kept += words[at:at + 2]
                elif word.startswith(("-I", "-D", "-O", "-isystem", "-std=", "-fPIC")):
                    kept.append(word)
            options_of.setdefault(path, kept)

result(refused(["-x", "c", "-std=c11"], "-", "int f(void) { return eo_of_no_header(); }\n"), "a call of no header is refused")
with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
    said = [text for text in pool.map(lambda one: refused(one[1], one[0]), sorted(options_of.items())) if text]
result(options_of and not said, f"{len(options_of)} C files are taken without a warning", said[:5])
finish()
