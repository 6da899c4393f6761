# SPDX-License-Identifier: MIT
#
# Goal: every row of docs/related-work.md has a command, unless it says that something is not here, and each that runs on a CPU runs.
# Method: the commands are taken from its tables, in their order, and run in one empty folder. Training takes a short text. Tests
#         are run by meson itself: the page may name those alone that are run before a push.
# usage: related_work.py BUILD SOURCE
import json
import os
import re
import shlex
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "../tap"))
from tap import finish, result

build, source = (os.path.realpath(word) for word in sys.argv[1:])
PROGRAMS = {"train": "tools/train", "headtohead": "tools/headtohead", "memplan": "tools/memplan", "launch": "tools/launch",
            "mnist": "examples/mnist"}


def words_of(command):
    words = shlex.split(command)
    trains = "train" in words or words[0] == "headtohead"
    words = [os.path.join(build, PROGRAMS[word]) if word in PROGRAMS and at in (0, 3) else word for at, word in enumerate(words)]
    return words + (["--text", "text", "--peak-seconds", "0"] if trains else [])


def check_tests(rows):
    """Their names stand in a meson.build or, made in a loop, in the build's list; the slow suites are not run before a push."""
    with open(os.path.join(build, "meson-info/intro-tests.json"), encoding="utf-8") as file:
        suites = {test["name"]: test["suite"] for test in json.load(file)}
    text = ""
    for folder, _, files in os.walk(os.path.join(source, "tests")):
        if "meson.build" in files:
            with open(os.path.join(folder, "meson.build"), encoding="utf-8") as file:
                text += file.read()
    names = [name for row in rows for command in re.findall(r"`(meson test -C build [^`]+)`", row) for name in shlex.split(command)[4:]]
    wrong = [name for name in names if f"'{name}'" not in text and name not in suites or
             any(suite.split(":")[-1] in ("slow", "seeds") for suite in suites.get(name, []))]
    result(len(names) >= 7 and not wrong, f"{len(names)} tests that the page names are run before a push", wrong)


with open(os.path.join(source, "docs/related-work.md"), encoding="utf-8") as page:
    rows = [line for line in page if line.startswith("| ")]
commands = []
bare = [row for row in rows if not re.search(r"\| (`[^|]+`|shown by) \|$|\| not here[^|]*\| none \|$", row.strip())]
result(not bare, "every row has its command; only what is not here has none", bare)
check_tests(rows)
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
finish()
