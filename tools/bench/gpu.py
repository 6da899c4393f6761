#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What `tools/dev gpu` runs: on a machine with a GPU the conformance programs, CUDA's sanitizers, the measurements and the
experiments, the most important first, each command with a time limit, all within 9 minutes, into one report. It needs
nothing from a network, and of Python the standard library only. The programs are those of a folder made by `tools/dev
carry` elsewhere, or are built here by meson. A step is left out if it does not fit into the time left; the end says how to
go on: --only adds to an existing report. The report is whole after every step.

The report is text with lines of JSON between it (they begin with {). Each line of the result is one of
    pass           it was run here, and held          figure         it was run here, and this is what it gave
    fail           it was run here, and did not       not measured   it was not run, and why
Exit status: 0 nothing failed, 1 something did, 2 nothing was run."""
import argparse
import glob
import gzip
import importlib.util
import json
import os
import re
import runpy
import shutil
import signal
import subprocess
import sys
import tempfile
import time

sys.dont_write_bytecode = True
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
FIRST_WORDS = "evenodd on a GPU: "
CUT_OFF, NO_TIME, NOT_THERE = 124, 125, 127


class Done:
    """A command that was run: its exit status or one of the three above, its output, and the reason of a failure."""

    def __init__(self, status, text, took=0, limit=0):
        self.status, self.text, self.took, self.ok = status, text, took, status == 0
        words = [line for line in text.split("\n") if line.strip() and not line.startswith("{")]
        self.reason = (f"cut off at its limit of {limit} s" if status == CUT_OFF else text if status == NO_TIME else
                       f"status {status}: {words[-1][:300] if words else ''}")
        # No verdict on us: the program is not here, there was no time, or it says itself (exit status 2) that it did not
        # try. An option that it does not take is a mistake of the steps.
        usage = re.search(r"^Try .*--help|is no option with a value it takes", text, re.M)
        self.not_tried = status in (NOT_THERE, NO_TIME) or (status == 2 and not usage)


class Report:
    """What the steps work with: they run commands, and note a line of the result for each."""

    def __init__(self, options, work):
        self.options, self.work, self.simulated, self.path = options, work, options.simulated, options.report
        self.patience = {"no": 1, "short": 2, "full": 6}[options.simulated]  # the simulator is slower than a GPU
        self.begun = time.monotonic()
        self.end = self.step_end = self.begun + 60 * options.minutes
        self.bin = self.libraries = self.step = self.before = self.why = ""
        self.body, self.summary = [], []
        self.counts = {"pass": 0, "fail": 0, "figure": 0, "not measured": 0}

    # --- the report

    def write(self, *lines):
        self.body += lines

    def seconds(self):
        return int(time.monotonic() - self.begun)

    def totals(self):
        return "{} passed, {} failed, {} figures, {} not measured, {} s".format(*self.counts.values(), self.seconds())

    def publish(self):
        """All that is known by now, with the lines of the result at the end: whole after every line, whenever the machine is
        taken away."""
        numbers = zip(("passed", "failed", "figures", "not_measured", "seconds"), (*self.counts.values(), self.seconds()))
        with open(self.path, "w", encoding="utf-8") as file:
            file.write(self.before + "\n".join([*self.body, "", "=== summary", *self.summary, self.totals(),
                                                json.dumps(dict(numbers)), ""]))

    def note(self, status, line, text, **members):
        """One line of the result. The members are its figures, for the line of JSON."""
        self.counts[status] += 1
        said = f"{status:<13} {line}: {text}"
        print(said, flush=True)
        self.summary.append(said)
        self.write(said, json.dumps({"step": self.step, "line": line, "status": status, "text": text,
                                     "at_s": self.seconds(), **members}))
        self.publish()

    def expect(self, holds, line, text, **members):
        self.note("pass" if holds else "fail", line, text, **members)

    def timed(self, status, line, text, **members):
        """A verdict that rests on time. A simulator has none."""
        if self.simulated != "no":
            status, text, members = "not measured", f"it wants a GPU (on the simulator: {text})", {}
        self.note(status, line, text, **members)

    def judge(self, line, done, text=""):
        """The verdict follows the exit status of a command."""
        if done.ok:
            self.note("pass", line, text or f"{done.took} s")
        else:
            self.note("not measured" if done.not_tried else "fail", line, done.reason)

    def tap(self, line, done):
        """The same for a program that prints TAP. Without a single case it is no pass."""
        good, bad = (re.findall(f"^{word}.*", done.text, re.M) for word in ("ok", "not ok"))
        skipped = re.search(r"^1\.\.0(?: *# *(.*))?", done.text, re.M)
        if skipped:
            self.note("not measured", line, skipped[1] or "")
        elif bad and not done.not_tried:
            self.note("fail", line, f"{len(bad)} of {len(good) + len(bad)} cases: {bad[0][:200]}")
        elif done.ok and not good:
            self.note("fail", line, done.reason)
        else:
            self.judge(line, done, f"{len(good)} cases, {done.took} s")

    # --- commands

    def program(self, name):
        """Its path among ours, or nothing."""
        for folder in ("", "tools", "tests/conformance", "tests/gpu", "tests/cuda", "tests/simulator"):
            path = os.path.join(self.bin, folder, name)
            if self.bin and os.path.isfile(path) and os.access(path, os.X_OK):
                return path
        return None

    def run(self, limit, name, *words, quiet=False, env=None):
        """Runs one of our programs by its name, or anything else, for `limit` seconds. The report gets the command and the
        end of its output, JSON whole, unless it is quiet."""
        limit *= self.patience
        path = self.program(name) or shutil.which(name)
        if not path:
            return Done(NOT_THERE, f"there is no {name}")
        left, in_time = round(min(self.end, self.step_end) - time.monotonic()), True
        no_time = Done(NO_TIME, f"no time was left of the {self.options.minutes} minutes")
        if left < 3:
            return no_time
        if limit > left:
            limit, in_time = left, self.step_end < self.end  # a step's own end is a limit of its own
        ours = path.startswith(os.path.join(self.bin, "")) or path.endswith("/compute-sanitizer")
        paths = {"LD_LIBRARY_PATH": self.libraries} if ours else {}  # CUDA's and the carried ones are for our programs alone
        status, text, took = execute(limit, [path, *words], {**paths, **(env or {})})
        done = Done(status, text, took, limit) if status != CUT_OFF or in_time else no_time
        if not quiet:
            lines = text.rstrip("\n").split("\n") if text else []
            self.write("", " ".join(["$", *(f"{key}={value}" for key, value in (env or {}).items()), name, *words]),
                       *("    | " + row[:400] for row in [row for row in lines if not row.startswith("{")][-40:]),
                       *[row for row in lines if row.startswith("{") and row.endswith("}")][:400],
                       f"    status {done.status}, {took} s of {limit}")
        return done

    # --- the machine and its programs

    def starts(self, folder):
        """Whether the programs of a folder find their libraries here; with a C++ library beside them, where there is none."""
        self.bin, spare = folder, os.path.realpath(os.path.join(folder, "../lib/spare"))
        for libraries in (self.libraries, f"{self.libraries}:{spare}" if os.path.isdir(spare) else None):
            probe = self.program("gpu_probe") or self.program("conformance_device")
            if not probe or libraries is None:
                return False
            self.libraries = libraries
            tries = [execute(60, words, {"LD_LIBRARY_PATH": libraries})
                     for words in ([probe], [self.program("train") or probe, "--help"])]
            if not any(status in (126, 127) for status, _, _ in tries):
                return True
            self.why = "\n".join(text for _, text, _ in tries).strip().split("\n")[-1]
        return False

    def unpack(self, folder):
        """The libraries of a carried folder, beside their compressed files."""
        for packed in glob.glob(os.path.join(folder, "**/*.gz"), recursive=True):
            plain = packed[: -len(".gz")]
            if not os.path.exists(plain):
                with gzip.open(packed) as source, open(plain + ".part", "wb") as target:
                    shutil.copyfileobj(source, target)
                os.rename(plain + ".part", plain)  # whole, or not there

    def find_programs(self):
        """Empty, or the reason why there are none."""
        carry, build = self.options.carry, os.path.join(ROOT, "build-gpu")
        if carry:
            self.write(f"The programs were built from commit {commit_of(carry)}.")
            self.libraries = ":".join(filter(None, [os.path.join(carry, "lib"), self.libraries]))
            try:
                self.unpack(os.path.join(carry, "lib"))
            except (OSError, EOFError) as error:
                self.write(f"The libraries of {carry} cannot be unpacked: {error}")
            if self.starts(os.path.join(carry, "bin")):
                return ""
            self.write(f"The programs of {carry} do not start here: {self.why or 'there is no probe'}. Building.")
        for command in (["meson", "setup", build, ROOT, "-Dcuda=enabled"], ["ninja", "-C", build]):
            if command[0] == "meson" and os.path.exists(os.path.join(build, "build.ninja")):
                continue
            status, text, _ = execute(600, command) if shutil.which(command[0]) else (NOT_THERE, f"there is no {command[0]}", 0)
            self.write(*text.rstrip("\n").split("\n")[-40 if status else -3:])
            if status:
                complain("no programs: no folder made by tools/dev carry that starts here, and the build failed: "
                         + self.body[-1])
                return "no programs: " + self.body[-1]
        return "" if self.starts(build) else "no programs: those built here do not start"

    def look(self):
        """Finds the programs and the GPU. Empty, or why no step can run."""
        options = self.options
        if not options.gpu:
            self.bin = os.path.join(options.carry or ROOT, "bin" if options.carry else "build")
            return ""
        if self.simulated == "no" and not has_gpu():
            complain("no GPU: this machine has no /dev/nvidia0, and nvidia-smi lists none")
            return "no GPU: this machine has no /dev/nvidia0, and nvidia-smi lists none"
        self.libraries = ":".join(filter(None, [*cuda_folders(), os.environ.get("LD_LIBRARY_PATH")]))
        why_not = self.find_programs()
        self.write(f"libraries of CUDA are looked for in {self.libraries}")
        if not why_not and self.program("gpu_probe"):
            self.step = "machine"
            done = self.run(60, "gpu_probe")
            why_not = "" if done.ok else done.reason
            if self.simulated == "no":
                self.run(20, "nvidia-smi", "--format=csv",
                         "--query-gpu=name,driver_version,memory.total,power.limit,clocks.sm,clocks.max.sm")
        return why_not

    # --- steps

    def run_step(self, step, seconds):
        """Each step has its own end; the rest of the whole time is a limit to all."""
        self.step_end = time.monotonic() + seconds * self.patience
        self.write("", f"=== {self.step} (at most {seconds} s)")
        try:
            step(self)
        except Exception as error:  # pylint: disable=broad-except # a mistake of one step does not hold up the others
            self.note("fail", self.step, f"the step itself broke: {type(error).__name__}: {error}")

    def run_steps(self, steps, functions, why_not):
        left = []
        for self.step, seconds in steps.items():
            minutes, rest = self.options.minutes, round(self.end - time.monotonic())
            if why_not:
                self.note("not measured", self.step, why_not)
            elif rest < max(10, seconds):
                left.append(self.step)
                self.note("not measured", self.step, f"no time was left of the {minutes} minutes" if rest < 10 else
                          f"it takes up to {seconds} s, and {rest} s were left of the {minutes} minutes")
            else:
                self.run_step(functions[self.step], seconds)
            self.publish()
        if left:
            self.write(f"To go on: tools/dev gpu --only {','.join(left)} {self.path}")
            print(self.body[-1])


def complain(text):
    print("tools/dev gpu: " + text, file=sys.stderr, flush=True)


def execute(limit, command, env=None):
    """Status, output with the errors last, for they say why, and seconds. Files, not pipes: a child that is left holds
    nothing up. The group of processes gets a signal at the limit, and 5 seconds later one that no program can refuse."""
    begun = time.monotonic()
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as errors:
        try:
            child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=errors, start_new_session=True,
                                     env={**os.environ, **(env or {})})
        except OSError as error:
            return 126, f"{command[0]}: {error.strerror}\n", 0
        status = None
        try:
            status = child.wait(limit)
        except subprocess.TimeoutExpired:
            os.killpg(child.pid, signal.SIGTERM)
            try:
                child.wait(5)
            except subprocess.TimeoutExpired:
                pass
        finally:
            if status is None:
                try:
                    os.killpg(child.pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
                child.wait()
        text = ""
        for file in (out, errors):
            file.seek(0)
            text += file.read().decode(errors="replace")
    took = int(time.monotonic() - begun)
    if status is None:
        return CUT_OFF, text + f"cut off at its limit of {limit} s\n", took
    return status if status >= 0 else 128 - status, text, took


def has_gpu():
    if glob.glob("/dev/nvidia[0-9]*") + glob.glob("/dev/nvidiactl") + glob.glob("/dev/dxg"):
        return True
    return bool(shutil.which("nvidia-smi")) and re.search("^GPU", execute(60, ["nvidia-smi", "-L"])[1], re.M) is not None


def cuda_folders():
    """CUDA's libraries lie in a toolkit, or come with Python's packages."""
    home, packages = os.environ.get("CUDA_HOME"), importlib.util.find_spec("nvidia")
    folders = [home + "/lib64"] if home else []
    folders += ["/usr/local/cuda/lib64", *sorted(glob.glob("/usr/local/cuda/targets/*/lib")), "/opt/cuda/lib64",
                "/usr/local/nvidia/lib64"]
    for package in packages.submodule_search_locations or [] if packages else []:
        folders += sorted(glob.glob(package + "/*/lib"))
    return [folder for folder in folders if os.path.isdir(folder)]


def commit_of(folder):
    """Of a carried folder, or of the sources."""
    try:
        if folder == ROOT:
            return subprocess.run(["git", "-C", ROOT, "rev-parse", "--short=12", "HEAD"], capture_output=True, text=True,
                                  check=True).stdout.strip()
        with open(os.path.join(folder, "commit"), encoding="utf-8") as file:
            return file.read().strip()
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def minutes_of(text):
    if not re.fullmatch("[0-9]{1,5}", text):
        raise argparse.ArgumentTypeError(f"'{text}' is not a number of minutes")
    return int(text)


def arguments():
    p = argparse.ArgumentParser(prog="tools/dev gpu", description=__doc__, allow_abbrev=False,
                                formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--carry", metavar="FOLDER", help="the programs are here, filled by tools/dev carry [carry, if there]")
    p.add_argument("--minutes", type=minutes_of, default=9, metavar="N", help="[9]")
    p.add_argument("--only", default="", metavar="NAME[,NAME]", help="these steps")
    p.add_argument("--list", action="store_true", help="name the steps")
    p.add_argument("--steps", default=os.path.join(ROOT, "tools/bench/lines/gpu.py"), metavar="FILE",
                   help="take the steps from another file: tries this command itself out")
    p.add_argument("--no-gpu", dest="gpu", action="store_false", help="go on without a GPU: the same")
    p.add_argument("--simulated", default="no", choices=("no", "full", "short"),
                   help="the programs are those of the simulator: no verdict on time is given")
    p.add_argument("report", nargs="?", default="gpu-report.txt", metavar="REPORT", help="[gpu-report.txt]")
    options = p.parse_args()
    if not os.access(options.steps, os.R_OK):
        p.error(f"--steps {options.steps} cannot be read")
    functions = runpy.run_path(options.steps)
    steps = {name: seconds for part in functions["PARTS"] for name, seconds in part.items()}
    for name in filter(None, options.only.split(",")):
        if name not in steps:
            p.error(f"--only: there is no step '{name}'; --list names them")
    if options.only:
        steps = {name: seconds for name, seconds in steps.items() if name in options.only.split(",")}
    if options.carry and not os.path.isdir(os.path.join(options.carry, "bin")):
        p.error(f"{options.carry} has no folder bin: make it with tools/dev carry")
    if not options.carry and os.path.isdir(os.path.join(ROOT, "carry/bin")) and options.gpu:
        options.carry = os.path.join(ROOT, "carry")
    options.carry = options.carry and os.path.realpath(options.carry)
    return p, options, steps, functions


def main():
    p, options, steps, functions = arguments()
    if options.list:
        for name, seconds in steps.items():
            print(f"{name:<24} at most {seconds} s")
        return 0
    try:
        with open(options.report, "a+", encoding="utf-8", errors="replace") as file:
            file.seek(0)
            before = file.read()
    except OSError:
        p.error(f"cannot write {options.report}")
    if before and not before.startswith(FIRST_WORDS):
        p.error(f"{options.report} is there and is no report of this command: name another file")
    os.environ["PATH"] = os.environ.get("PATH", "") + ":/usr/local/cuda/bin:/usr/local/cuda/compute-sanitizer"
    with tempfile.TemporaryDirectory() as work:
        report = Report(options, work)
        report.before = before + "\n" if before and options.only else ""
        commit = commit_of(ROOT)
        if commit == "unknown" and options.carry:
            commit = commit_of(options.carry)
        report.write(f"{FIRST_WORDS}{time.strftime('%Y-%m-%d %H:%M UTC', time.gmtime())}, commit {commit}, "
                     f"{options.minutes} minutes at most")
        if options.simulated != "no":
            report.write("On the simulator, not on a GPU: times say nothing.")
        try:
            report.run_steps(steps, functions, report.look())
        finally:
            report.publish()
    print(f"{report.totals()}; all of it is in {options.report}")
    counts = report.counts
    return 1 if counts["fail"] else 0 if counts["pass"] + counts["figure"] else 2


def stop(number, frame):
    sys.exit(130)


if __name__ == "__main__":
    signal.signal(signal.SIGINT, stop)
    signal.signal(signal.SIGTERM, stop)
    sys.exit(main())
