# SPDX-License-Identifier: MIT
"""Running programs in turn, and what is said about repeated measurements: medians, ratios with their spread."""
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time


class Missing(Exception):
    """A figure cannot be measured here, with the reason."""


class Context:
    """What the lines share: where things are, how much is asked for, and runs that several lines read."""

    def __init__(self, root, build, runs, quick, peers):
        self.root, self.build, self.runs, self.quick, self.peers = root, build, runs, quick, peers
        self.begin = time.monotonic()
        self.folder = tempfile.TemporaryDirectory(prefix="evenodd-bench-")
        self.shared = {}

    def say(self, text):
        print(f"[{time.monotonic() - self.begin:5.0f} s] {text}", file=sys.stderr, flush=True)

    def once(self, key, make):
        """The value of make(), computed at the first call with this key; a failure is remembered as well."""
        if key not in self.shared:
            try:
                self.shared[key] = (make(), None)
            except Missing as missing:
                self.shared[key] = (None, missing)
        value, missing = self.shared[key]
        if missing:
            raise missing
        return value

    def program(self, *path):
        found = os.path.join(self.build, *path)
        if not os.access(found, os.X_OK):
            raise Missing(f"{found} is not built")
        return found

    def path(self, name):
        return os.path.join(self.folder.name, name)

    def run(self, command, timeout=900, environment=None):
        """Runs to the end and returns what it printed; a program that fails is a line that could not be measured."""
        environment = {**os.environ, **(environment or {})}
        program = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment,
                                   errors="replace")
        try:
            output, errors = program.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            end(program)
            raise Missing(f"{os.path.basename(command[0])} took longer than {timeout} s") from None
        except BaseException:
            program.kill()
            raise
        if program.returncode != 0:
            words = " ".join(errors.strip().splitlines()[-3:]) or "no message"
            raise Missing(f"{os.path.basename(command[0])} ended with status {program.returncode}: {words[:400]}")
        return output

    def in_turn(self, runs, makers):
        """Calls each of the named makers `runs` times, in an order that turns round from run to run, so that a
        machine that becomes slower or faster treats all alike. Returns {name: [values]}."""
        results = {name: [] for name in makers}
        for run in range(runs):
            names = list(makers) if run % 2 == 0 else list(reversed(makers))
            for name in names:
                begin = time.monotonic()
                results[name].append(makers[name]())
                self.say(f"run {run + 1} of {runs}: {name}, {time.monotonic() - begin:.0f} s")
        return results


def end(program):
    """By the signal that torchrun passes on to its ranks, which have sessions of their own; else by the one that it cannot."""
    program.terminate()
    try:
        program.wait(timeout=60)
    except subprocess.TimeoutExpired:
        program.kill()
        program.wait()
    program.stdout.close()
    program.stderr.close()


def median(values):
    return statistics.median(values)


def ratio(upper, lower):
    """Of two lists measured in turn: the ratio of the medians, and the smallest and largest ratio of a turn."""
    each = [u / l for u, l in zip(upper, lower)]
    return {"ratio": median(upper) / median(lower), "low": min(each), "high": max(each), "runs": len(each)}


def last_json(text):
    """The last line of a program's output that is a JSON object."""
    for line in reversed(text.strip().splitlines()):
        if line.startswith("{"):
            try:
                return json.loads(line)
            except json.JSONDecodeError:
                continue
    raise Missing("the program printed no JSON")


def line(name, what, demanded, measured, good, spread=None, **detail):
    """A line of the table. `good` is True, False, None where there is nothing to compare with, or the Missing that
    kept it from being measured."""
    return {"line": name, "what": what, "demanded": demanded, "measured": measured, "spread": spread,
            "verdict": "failed" if isinstance(good, Missing) else {True: "pass", False: "short", None: "shown"}[good],
            "detail": detail}
