# SPDX-License-Identifier: MIT
"""For tests that read results back in Python's libraries: the python that EO_PEERS_PYTHON names."""
import os
import subprocess
import sys

from tap import skip_all

python = os.environ.get("EO_PEERS_PYTHON", "")


def has(packages):
    """Whether it imports these, named with commas between them."""
    return python and subprocess.run([python, "-c", "import " + packages], capture_output=True, check=False).returncode == 0


def lacks(packages):
    return f"EO_PEERS_PYTHON names no python that has {packages}"


def enter(packages, *options):
    """The script goes on in that python, from its first line, with these options; False where it lacks one of the packages."""
    if "inside" not in sys.argv and has(packages):
        os.execv(python, [python, *options, os.path.realpath(sys.argv[0]), *sys.argv[1:], "inside"])
    return "inside" in sys.argv


def enter_or_skip(packages, *options):
    if not enter(packages, *options):
        skip_all(lacks(packages))
