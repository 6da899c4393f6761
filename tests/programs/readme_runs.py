# SPDX-License-Identifier: MIT
#
# Goal: what README.md prints is what the programs print.
# Method: the command of the first block runs for two steps; the block's lines are among those that it prints, in this order:
#         words and planned figures to the letter, the loss of the first step to rounding; times, speeds and later losses are
#         any number.
#         Commands that are printed with "$" run as they stand.
# usage: readme_runs.py TRAIN SOURCE
import os
import re
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "../tap"))
from tap import finish, result

train, source = sys.argv[1:]
readme = open(source + "/README.md", encoding="utf-8").read().split("\n")


def run(words):
    done = subprocess.run([train] + words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    return done.stdout.split("\n")


def block(first):
    """The indented lines from the one that begins with these words; empty lines between them too."""
    begin = next((i for i, line in enumerate(readme) if line.startswith("    " + first)), None)
    lines = []
    for line in readme[begin:] if begin is not None else []:
        if line and not line.startswith("    "):
            break
        lines.append(line[4:])
    return lines


def plain(lines):
    """Without what differs from run to run, machine to machine, and with the number of steps."""
    out = []
    for line in lines:
        if re.match(r"\s+-?\d+\.\d+ \|", line) or re.match(r"\s+\+-+$", line) or re.match(r"\s+step 1\s+\d+$", line):
            continue  # the curve
        line = re.sub(r"kernels \w+", "kernels K", line)
        line = re.sub(r"step +\d+ / \d+   loss +[\d.]+ +\d+ tokens/s(   +\d+ % of peak)?   left [\d:]+", "step", line)
        line = re.sub(r"^loss: .*", "loss", line)
        line = re.sub(r"\d+ GFLOP/s", "N GFLOP/s", line)
        line = re.sub(r"[\d.]+ MiB resident", "N MiB resident", line)
        line = re.sub(r"[\d.]+ ms.*", "N ms", line)
        if line.strip() and line != "..." and (line != "step" or out[-1:] != ["step"]):
            out.append(re.sub(r"\s+", " ", line).rstrip())
    return out


def losses(lines):
    """First and last, as the line "loss:" has them."""
    for line in lines:
        match = re.match(r"\s*loss: ([\d.]+) in the first step, ([\d.]+) at the end", line)
        if match:
            return float(match.group(1)), float(match.group(2))
    return 0.0, 0.0


wanted = block("rank 0: ")
got = run("--threads 1 --steps 2 --sample 0 --peak-seconds 0.05".split())
got = got[:next((i for i, line in enumerate(got) if line.startswith("weights_hash")), len(got))]
printed = iter(plain(got))
lacking = [line for line in plain(wanted) if line not in printed]  # each looks on after the line found before it
result(len(plain(wanted)) >= 7 and not lacking, "the first block is what train prints", ["not printed: " + line for line in lacking] + got)
result(losses(wanted)[0] > 0 and abs(losses(wanted)[0] - losses(got)[0]) < 0.002,
       f"the loss of its first step is {losses(got)[0]}", wanted)

commands = [line[4:] for line in readme if line.startswith("    $ build/tools/train ")]
for command in commands:
    wanted = block(command)
    got = run(command.split()[2:])
    good = all(a > 0 and abs(a - b) < 0.002 for a, b in zip(losses(wanted), losses(got)))
    result(good, command[2:] + ": first and last loss", wanted + got)
result(len(commands) > 0, "there are commands to run")
finish()
