# SPDX-License-Identifier: MIT
"""The peers: PyTorch in a Python environment of its own, run in turn with ours."""
import os
import subprocess

from lines.measure import Missing, last_json


def python(context):
    """A python that has torch: of EO_PEERS_PYTHON, or of the folder .peers, which is made when it is missing."""
    return context.once("python", lambda: find_python(context))


def find_python(context):
    given = os.environ.get("EO_PEERS_PYTHON")
    folder = os.path.join(context.root, ".peers")
    path = given or os.path.join(folder, "bin", "python")
    if not given and not has_torch(path):
        context.say("setting up PyTorch in .peers (once; a large download)")
        more = os.environ.get("EO_PEERS_PIP_ARGS", "").split()  # such as the index of builds without CUDA
        try:
            subprocess.run(["python3", "-m", "venv", folder], check=True, stdout=subprocess.DEVNULL)
            subprocess.run([path, "-m", "pip", "install", "--quiet", "torch", "numpy", *more], check=True)
        except (OSError, subprocess.CalledProcessError) as error:
            raise Missing(f"PyTorch could not be installed into {folder}: {error}") from None
    if not has_torch(path):
        raise Missing(f"{path} cannot import torch; name a python with torch in EO_PEERS_PYTHON")
    return path


def has_torch(path):
    try:
        return subprocess.run([path, "-c", "import torch, numpy"], capture_output=True, check=False).returncode == 0
    except OSError:
        return False


def about(context):
    """Version, whether it is a build with CUDA, and what importing it adds to a process, pages of files also by themselves."""
    return context.once("about torch", lambda: last_json(context.run([python(context), "-c", """
import json
def resident(*keys):
    return sum(int(line.split()[1]) * 1024 for line in open("/proc/self/status") if line.startswith(keys))
before, files = resident("VmRSS:"), resident("RssFile:")
import torch
print(json.dumps({"torch": torch.__version__, "cuda": torch.version.cuda, "import_bytes": resident("VmRSS:") - before,
                  "import_file_bytes": resident("RssFile:") - files}))
"""])))


def type_for(context, dtype):
    """The type in which PyTorch trains beside ours in `dtype`: fp32 in place of bf16 where it multiplies bf16 at less than a
    tenth of fp32's speed, as on processors with AVX2 alone. A step of gpt2 takes minutes there."""
    about(context)  # sets the environment up, and is not part of a run
    return "fp32" if dtype == "bf16" and context.once("PyTorch's bf16", lambda: bf16_share(context)) < 0.1 else dtype


def bf16_share(context):
    """Speed of a product in bf16 over that in fp32, of one thread."""
    share = last_json(context.run([python(context), "-c", """
import time, torch
def seconds(dtype):
    a = torch.ones(256, 256, dtype=dtype)
    a @ a
    begin = time.perf_counter()
    a @ a
    return time.perf_counter() - begin
print('{"share": %g}' % (min(seconds(torch.float32) for _ in range(5)) / min(seconds(torch.bfloat16) for _ in range(5))))
"""], environment={"OMP_NUM_THREADS": "1"}))["share"]
    if share < 0.1:
        context.say(f"PyTorch multiplies bf16 at {share:.2f} x fp32's speed here: it trains in fp32")
    return share


def script(context, name):
    return os.path.join(context.root, "tools", "bench", "peers", name)


def torchrun(context, ranks, name, *options):
    environment = {"OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1", "TORCH_CPP_LOG_LEVEL": "ERROR"}
    return last_json(context.run([python(context), "-m", "torch.distributed.run", "--standalone", "--nproc-per-node",
                                  str(ranks), script(context, name), *options], environment=environment))


def type_options(dtype, compiled):
    return ["--dtype", dtype, *(["--compile"] if compiled else [])]


def fsdp2(context, model, batch, seq, steps, mode="fsdp2", ranks=2, dtype="fp32", compiled=False):
    """A run of the peer program over ranks of one thread each."""
    return torchrun(context, ranks, "fsdp2.py", "--model", model, "--mode", mode, "--batch", str(batch), "--seq", str(seq),
                    "--steps", str(steps), "--threads", "1", *type_options(dtype, compiled))


def single(context, model, batch, seq, steps, threads, dtype="fp32", compiled=False):
    """A run without sharding, in one process."""
    return last_json(context.run([python(context), script(context, "fsdp2.py"), "--model", model, "--mode", "single",
                                  "--batch", str(batch), "--seq", str(seq), "--steps", str(steps), "--threads",
                                  str(threads), *type_options(dtype, compiled)], environment={"OMP_NUM_THREADS": str(threads)}))
