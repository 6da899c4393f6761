# SPDX-License-Identifier: MIT
"""tools/dev bench --device-file FILE: what this machine reaches, in the form of tools/memplan/plan/devices.json, for memplan --devices.

One rank takes all cores, in bf16. On a GPU the products are those of a training's own shapes; its other figures are those of
the table's device of that name.
"""
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile

UNITS = {"": 1.0, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}


def run(*command):
    done = subprocess.run(command, capture_output=True, text=True, check=False, errors="replace")
    if done.returncode:
        sys.exit(f"bench: {os.path.basename(command[0])} failed: {done.stderr.strip()[-400:]}")
    return done.stdout + done.stderr


def rate(text, name):
    """'products 247 GFLOP/s, memory 23.3 GB/s, ...' in units a second; None: it has none."""
    found = re.search(rf"{name} ([0-9.]+) ([kMGT]?)(?:FLOP|B)/s", text)
    return float(found.group(1)) * UNITS[found.group(2)] if found else None


def figure(value, source):
    return {"value": float(f"{value:.4g}"), "source": source}


def of_processor(build, name, memory_bytes):
    cores = str(len(os.sched_getaffinity(0)))
    with tempfile.TemporaryDirectory(prefix="evenodd-rates-", dir=".") as folder:
        text = run(os.path.join(build, "tools", "train"), "--model", "tiny", "--ranks", "1", "--threads", cores, "--dtype", "bf16",
                   "--steps", "1", "--budget", "1GiB", "--offload-folder", folder)
    line = next((row for row in text.splitlines() if row.startswith("rates of a rank:")), None)
    if not line:
        sys.exit("bench: train printed no rates")
    products, memory, link = (rate(line, what) for what in ("products", "memory", "link"))
    source = f"measured by tools/dev bench --device-file, {cores} cores"
    return {"name": name, "memory_bytes": {"value": memory_bytes, "source": "memory of the machine"},
            "product_flops": figure(products, source), "hbm_bytes_per_s": figure(memory, source),
            "node_bytes_per_s": figure(link, source), "network_bytes_per_s": figure(link, "not measured: as inside the machine"),
            "host_bytes_per_s": figure(rate(line, "disk") or memory, source + (": its disk" if rate(line, "disk") else "")),
            "product_share": figure(1, "product_flops are reached ones"),
            "attention_share": figure(1, "not measured: as products"), "flash_share": figure(1, "not measured: as products")}


def of_gpu(build, name, gpu):
    with tempfile.TemporaryDirectory(prefix="evenodd-rates-") as folder:
        log = os.path.join(folder, "log")
        run(os.path.join(build, "tools", "train"), "--model", "gpt2", "--device", "cuda", "--ranks", "1", "--dtype", "bf16",
            "--batch", "8", "--steps", "5", "--log", log)
        with open(log, encoding="utf-8") as file:
            flops = [json.loads(row)["summary"]["peak_flops_per_s"] for row in file if '"summary"' in row][-1]
    like = next((known for known in ("H200", "H100", "A100-80GB") if known.split("-")[0] in gpu), None)
    if not like:
        sys.exit(f"bench: no rates are known of a GPU like '{gpu}'; write a file by hand: tools/memplan/plan/devices.json has the form")
    return {"name": name, "like": like, "product_flops": figure(flops, "measured by tools/dev bench --device-file: products of gpt2"),
            "product_share": figure(1, "product_flops are reached ones")}


def write(path, build, machine):
    gpu = ""
    if shutil.which("nvidia-smi"):
        gpu = run("nvidia-smi", "--query-gpu=name", "--format=csv,noheader").splitlines()[0]
    name = "this-gpu" if gpu else "this-machine"
    row = of_gpu(build, name, gpu) if gpu else of_processor(build, name, machine["memory_bytes"])
    text = {"about": f"Measured on {gpu or machine['processor']}, {machine['system']}; memplan --devices takes this file.",
            "devices": [row]}
    with open(path, "w", encoding="utf-8") as file:
        json.dump(text, file, indent=1)
        file.write("\n")
    print(f"{path}: device {name}; memplan --devices {path} --device {name}{'' if gpu else ' --kernels cpu'} --time")
