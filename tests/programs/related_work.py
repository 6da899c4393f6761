# SPDX-License-Identifier: MIT
#
# Goal: every command of docs/related-work.md that runs on a CPU runs.
# Method: the commands are taken from its tables, in their order, and run in one empty folder. Training takes a short text.
# usage: related_work.py BUILD SOURCE
import os
import re
import shlex
import subprocess
import sys
import tempfile

build, source = (os.path.realpath(word) for word in sys.argv[1:])
PROGRAMS = {"train": "tools/train", "headtohead": "tools/headtohead", "memplan": "tools/memplan", "launch": "tools/launch",
            "mnist": "examples/mnist"}
tests = 0


def result(good, text, shown=()):
    """A line of TAP."""
    global tests
    tests += 1
    for line in () if good else shown:
        print("# " + line)
    print(f"{'ok' if good else 'not ok'} {tests} - {text}", flush=True)


def words_of(command):
    words = shlex.split(command)
    trains = "train" in words or words[0] == "headtohead"
    words = [os.path.join(build, PROGRAMS[word]) if word in PROGRAMS and at in (0, 3) else word for at, word in enumerate(words)]
    return words + (["--text", "text", "--peak-seconds", "0"] if trains else [])


with open(os.path.join(source, "docs/related-work.md"), encoding="utf-8") as page:
    rows = [line for line in page if line.startswith("| ")]
commands = []
for row in rows:
    for command in re.findall(r"`([^`]+)`", row):
        if command.split()[0] in PROGRAMS and " " in command and command not in commands:
            commands.append(command)
with tempfile.TemporaryDirectory() as folder:
    os.chdir(folder)
    os.symlink(os.path.join(source, "tests"), "tests")
    with open("text", "w", encoding="utf-8") as text:
        text.writelines(f"{number}\n" for number in range(1, 4001))
    for command in commands:
        done = subprocess.run(words_of(command), capture_output=True, text=True, check=False, timeout=120)
        result(done.returncode == 0, command, (done.stdout[-800:] + done.stderr[-800:]).split("\n"))
result(len(commands) >= 35, f"{len(commands)} commands, at least 35")
print(f"1..{tests}")
