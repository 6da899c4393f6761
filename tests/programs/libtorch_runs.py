# SPDX-License-Identifier: MIT
#
# Goal: examples/libtorch trains modules of libtorch, sharded over threads and over processes, with the losses of libtorch alone.
# Method: it is compiled against the libtorch in the package torch of the python in EO_PEERS_PYTHON, and the library of this build.
# usage: libtorch_runs.py SOURCE BUILD LAUNCH C++_COMPILER|none
import os
import re
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "../tap"))
from tap import finish, result, skip

source, build, launch, cxx = sys.argv[1:]
os.environ.update(PKG_CONFIG_PATH=build + "/meson-uninstalled", LD_LIBRARY_PATH=build)
python = os.environ.get("EO_PEERS_PYTHON", "")


def run(*command):
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=500)


def losses(done):
    return [float(loss) for loss in re.findall(r"^step \d+ loss ([0-9.]+)$", done.stdout, re.M)]


def check_losses(folder, torch):
    program = folder + "/sharded"
    words = run("pkg-config", "--cflags", "--libs", "evenodd").stdout.split()
    includes = ["-isystem", torch + "/include", "-isystem", torch + "/include/torch/csrc/api/include"]
    libraries = ["-L" + torch + "/lib", "-Wl,-rpath," + torch + "/lib", *words, "-Wl,--no-as-needed", "-ltorch", "-ltorch_cpu", "-lc10"]
    built = run(cxx, "-std=c++20", "-O0", "-Wall", "-Wextra", *includes, source + "/examples/libtorch/sharded.cpp", "-o", program,
                *libraries)
    result(built.returncode == 0 and not built.stderr, "the example is compiled without a warning", [built.stderr])
    plain = run(program, "plain")
    expected = losses(plain)
    result(len(expected) == 20 and expected[-1] < expected[0] - 0.05, "libtorch alone learns", [plain.stdout, plain.stderr])
    for name, done in ("threads", run(program)), ("processes", run(launch, "-n", "2", program)):
        own = losses(done)
        far = max((abs(a - b) for a, b in zip(own, expected)), default=1)
        print(f"# {name}: losses differ by {far:.1e} at most")
        result(done.returncode == 0 and len(own) == 20 and far < 1e-4, f"2 ranks that are {name} have its losses to 1e-4",
               [plain.stdout, done.stdout, done.stderr])


def main():
    found = run(python, "-c", "import torch; print(torch.__path__[0])") if python else None
    if found is None or found.returncode != 0:
        skip("examples/libtorch", "EO_PEERS_PYTHON names no python that has torch")
    elif cxx == "none" or run(cxx, "-std=c++20", "-fsyntax-only", "-x", "c++", "/dev/null").returncode != 0:
        skip("examples/libtorch", "no C++ compiler that knows C++20")
    else:
        with tempfile.TemporaryDirectory() as folder:
            check_losses(folder, found.stdout.strip())
    finish()


main()
