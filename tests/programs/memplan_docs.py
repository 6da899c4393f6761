# SPDX-License-Identifier: MIT
#
# Goal: the commands of memplan in the documents run, and print what stands below them.
# Method: indented lines that begin with build/tools/, or with $ and the program, are run in an empty folder, in their order;
#         other indented lines, up to the next such command or text, must be among the lines printed, in this order, but for
#         "...". What stands below "$ cat FILE" is in that file. Headings end a command's block.
# usage: memplan_docs.py BUILD SOURCE
import os
import re
import shlex
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "../tap"))
from tap import finish, result

build, source = (os.path.realpath(word) for word in sys.argv[1:])


def commands_of(page):
    """Pairs of a command and the lines that it is said to print."""
    pairs, follows = [], False
    with open(os.path.join(source, page), encoding="utf-8") as file:
        lines = file.read().split("\n")
    for line in lines:
        command = re.match(r"    (?:build/tools/|\$ )((?:memplan|train|cat) .*)", line)
        if command:
            pairs.append((command[1], []))
            follows = True
        elif line.startswith("    $ "):
            follows = False
        elif line.startswith("    ") and follows and line != "    ...":
            pairs[-1][1].append(line[4:])
        elif line:
            follows = False
    return [pair for pair in pairs if not pair[0].startswith("train") or "--plan" in pair[0]]


with tempfile.TemporaryDirectory() as folder:
    os.makedirs(os.path.join(folder, "build"))
    os.symlink(os.path.join(build, "tools"), os.path.join(folder, "build/tools"))
    os.makedirs(os.path.join(folder, "docs"))
    for page, least in (("docs/memplan.md", 9), ("README.md", 2), ("docs/offload.md", 6)):
        pairs = commands_of(page)
        for command, wanted in pairs:
            if command.startswith("cat "):
                with open(os.path.join(folder, command[4:]), "w", encoding="utf-8") as out:
                    out.write("\n".join(wanted) + "\n")
                continue
            words = shlex.split("build/tools/" + command.split(">")[0])
            done = subprocess.run(words, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False)
            if ">" in command:
                with open(os.path.join(folder, command.split(">")[1].strip()), "w", encoding="utf-8") as out:
                    out.write(done.stdout)
            printed = iter(done.stdout.split("\n"))
            lacking = [line for line in wanted if line not in printed]
            result(done.returncode == 0 and not lacking, f"{page}: {command}", ["not printed: " + line for line in lacking] +
                   (done.stdout + done.stderr).split("\n"))
        result(len(pairs) >= least, f"{page} has {len(pairs)} commands, at least {least}")
finish()
