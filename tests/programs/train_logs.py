# SPDX-License-Identifier: MIT
#
# Goal: where people look for a run's numbers they find them: the log, a CSV table and TensorBoard's event files agree, also
#       after a resume; schedules reach the learning rate; early stopping ends all ranks at one step, and goes on as it was.
# Method: short runs of tiny. Event files are read by a reader of the record format of its own, and by the tensorboard package
#         where the python in EO_PEERS_PYTHON has it.
# usage: train_logs.py TRAIN LAUNCH
import csv
import fcntl
import glob
import json
import math
import os
import pty
import re
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "../tap"))
import peers
from tap import finish, result, skip

train, launch = (os.path.realpath(word) for word in sys.argv[1:])


def run(*words, front=(), text=("--text", "text")):
    options = [*text, "--model", "tiny", "--seq", "32", "--sample", "0", "--threads", "1", "--peak-seconds", "0"]
    return subprocess.run([*front, train, *options, *words], capture_output=True, text=True, check=False, timeout=120)


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def masked(data):
    crc = crc32c(data)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def fields(data):
    """The fields of a protocol-buffer message: (number, value)."""
    at = 0

    def varint():
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    while at < len(data):
        key = varint()
        kind = key & 7
        if kind == 0:
            value = varint()
        else:
            count = varint() if kind == 2 else {1: 8, 5: 4}[kind]
            value = data[at:at + count]
            at += count
        yield key >> 3, value


def events(folder):
    """(step, {tag: value}) of all files in their order; a START of a session removes later steps, as TensorBoard does."""
    found = []
    for path in sorted(glob.glob(os.path.join(folder, "events.out.tfevents.*"))):
        with open(path, "rb") as file:
            data = file.read()
        while data:
            count, check = struct.unpack("<QI", data[:12])
            assert masked(data[:8]) == check, "checksum of a length"
            body, data = data[12:12 + count], data[12 + count:]
            assert masked(body) == struct.unpack("<I", data[:4])[0], "checksum of a record"
            data = data[4:]
            event = dict(fields(body))
            if 7 in event and dict(fields(event[7]))[1] == 1:
                found = [old for old in found if old[0] < event[2]]
            values = {}
            for number, value in fields(event.get(5, b"")):
                assert number == 1
                scalar = dict(fields(value))
                values[scalar[1].decode()] = struct.unpack("<f", scalar[2])[0]
            if values:
                found.append((event[2], values))
    return found


def log_of(path):
    """Steps and validations: {step: line}."""
    with open(path, encoding="utf-8") as file:
        lines = [json.loads(line) for line in file]
    return ({line["step"]: line for line in lines if "step" in line},
            {line["validation"]["step"]: line["validation"]["loss"] for line in lines if "validation" in line}, lines[-1])


def close(a, b):
    return math.isclose(float(a), float(b), rel_tol=1e-5)


def compare(steps, validations, name):
    """The table and the events against the log."""
    with open("run.csv", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    told = {int(row["step"]): row for row in rows if row["loss"]}
    held = {int(row["step"]): row["validation_loss"] for row in rows if row["validation_loss"]}
    good = told.keys() == steps.keys() and held.keys() == validations.keys() and len(rows) == len(told) + len(held)
    good = good and all(close(told[step][key], line[key]) for step, line in steps.items()
                        for key in ("loss", "grad_norm", "lr", "step_s", "tokens_per_s"))
    result(good and all(close(held[step], loss) for step, loss in validations.items()), f"{name}: the table is the log's", rows)
    seen = events("board")
    losses = {step: values["train/loss"] for step, values in seen if "train/loss" in values}
    rates = {step: values["train/learning_rate"] for step, values in seen if "train/learning_rate" in values}
    held = {step: values["validation/loss"] for step, values in seen if "validation/loss" in values}
    good = losses.keys() == rates.keys() == steps.keys() and held.keys() == validations.keys()
    result(good and all(close(losses[step], line["loss"]) and close(rates[step], line["lr"]) for step, line in steps.items()) and
           all(close(held[step], loss) for step, loss in validations.items()), f"{name}: the events are the log's", seen)


def check_logs():
    words = ("--steps", "9", "--val-every", "3", "--log", "run.jsonl", "--csv", "run.csv", "--tensorboard", "board")
    done = run(*words, "--checkpoint", "saved", "--checkpoint-every", "3")
    steps, validations, _ = log_of("run.jsonl")
    result(done.returncode == 0 and len(steps) == 9 and len(validations) == 3, "a run writes all three",
           (done.stdout + done.stderr).split("\n"))
    compare(steps, validations, "a run")
    done = run(*words, "--resume", "saved/step-000000000003")
    steps, validations, _ = log_of("run.jsonl")
    result(done.returncode == 0 and len(steps) == 9 and len(validations) == 3, "a run that is resumed continues all three",
           (done.stdout + done.stderr).split("\n"))
    compare(steps, validations, "resumed")
    script = ("from tensorboard.backend.event_processing.event_accumulator import EventAccumulator as E\n"
              "e = E('board'); e.Reload()\n"
              "print(*(f'{x.step}:{x.value:.6g}' for x in e.Scalars('train/loss')))")
    if not peers.has("tensorboard"):
        skip("tensorboard reads them", peers.lacks("tensorboard"))
        return
    read = subprocess.run([peers.python, "-c", script], capture_output=True, text=True, check=False)
    pairs = {int(word.split(":")[0]): float(word.split(":")[1]) for word in read.stdout.split()}
    result(pairs.keys() == steps.keys() and all(close(pairs[step], line["loss"]) for step, line in steps.items()),
           "tensorboard reads them", (read.stdout + read.stderr).split("\n"))


def contents(*paths):
    texts = []
    for path in paths:
        with open(path, encoding="utf-8") as file:
            texts.append(file.read())
    return texts


def have_grown(*paths):
    return all(os.path.exists(path) and os.path.getsize(path) > 2000 for path in paths)


def check_emptied():
    """As logrotate's copytruncate does it: lines then begin at the file's begin, and those before are elsewhere."""
    words = ("--steps", "1000000", "--log", "emptied.jsonl", "--csv", "emptied.csv")
    front = [sys.executable, "-c", "import os, signal, sys\n"
             "signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])\nos.execv(sys.argv[1], sys.argv[1:])"]
    command = [*front, train, "--text", "text", "--model", "tiny", "--seq", "32", "--batch", "1", "--sample", "0", "--threads", "1",
               "--peak-seconds", "0", *words]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as running:
        for _ in range(2):
            end = time.monotonic() + 60
            while time.monotonic() < end and running.poll() is None and not have_grown("emptied.jsonl", "emptied.csv"):
                time.sleep(0.02)
            os.truncate("emptied.jsonl", 0)
            os.truncate("emptied.csv", 0)
        time.sleep(0.2)
        running.send_signal(signal.SIGTERM)
        try:
            told = running.communicate(timeout=60)[1]
        except subprocess.TimeoutExpired:
            running.kill()
            told = "still running"
    log, table = contents("emptied.jsonl", "emptied.csv")
    steps = [] if "\0" in log + table else [json.loads(line) for line in log.splitlines()]
    result(running.returncode == 0 and steps and steps[0].get("step", 0) > 1 and table[:1].isdigit(),
           "logs that others empty have no holes; a SIGTERM that the parent had blocked ends the run", [told, log[:200], table[:200]])


def through_pipe(command, waits):
    """A pipe of 4096 bytes that is read late; its other end may have set it not to wait, as node does."""
    reader, writer = os.pipe()
    os.set_blocking(writer, waits)
    fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, 4096)
    with subprocess.Popen(command, stdout=writer, stderr=subprocess.PIPE, text=True) as running:
        os.close(writer)
        time.sleep(0.5)
        with os.fdopen(reader, encoding="utf-8") as out:
            text = out.read()
        told = running.communicate()[1]
    return running.returncode, text, told


def check_pipe_without_waiting():
    done, wanted = (through_pipe([train, "--help"], waits) for waits in (False, True))
    ranks = through_pipe([launch, "-n", "2", train, "--text", "text", "--model", "tiny", "--seq", "32", "--threads", "1", "--steps", "2",
                          "--sample", "0", "--peak-seconds", "0"], False)
    result(done == wanted and done[0] == 0 and len(done[1]) > 8192 and ranks[0] == 0 and ranks[1].count("weights_hash") == 1,
           "a full pipe that does not wait gets all the same, of several ranks too", [done[2], *ranks])


def check_norms():
    """Of layers: their squares add up to that of the whole, in all three; and they change nothing."""
    words = ("--steps", "4", "--val-every", "2", "--log", "norms.jsonl")
    plain = run(*words)
    hash_of = lambda done: [line for line in done.stdout.split("\n") if line.startswith("weights_hash")]
    shown = ("--csv", "norms.csv", "--tensorboard", "norms_board", "--log-norms")
    done = run(*words, *shown, "--checkpoint", "norms", "--checkpoint-every", "2")
    steps, _, _ = log_of("norms.jsonl")
    sums = [close(math.hypot(*line["layer_norms"].values()), line["grad_norm"]) for line in steps.values()]
    result(done.returncode == 0 and len(steps) == 4 and all(sums) and hash_of(done)[0][:30] == hash_of(plain)[0][:30],
           "--log-norms: the norms of layers add up to that of all, and the weights keep their bits",
           (done.stdout + done.stderr).split("\n"))
    with open("norms.csv", encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if row["loss"]]
    seen = events("norms_board")
    good = len(rows) == 4
    for step, line in steps.items():
        for name, norm in line["layer_norms"].items():
            board = [values[f"norm/{name}"] for at, values in seen if at == step and f"norm/{name}" in values]
            good = good and close(rows[step - 1][f"norm.{name}"], norm) and len(board) == 1 and close(board[0], norm)
    result(good, "the table and the events have them too", rows)
    resume = ("--resume", "norms/step-000000000002")
    other, same = run(*words, *shown[:2], *resume), run(*words, *shown, *resume)
    result(other.returncode != 0 and "the run before wrote other columns; give --log-norms" in other.stderr and
           same.returncode == 0, "a table with other columns is not continued", (other.stderr + same.stderr).split("\n"))
    before = contents("norms.jsonl", "norms.csv")
    refused = [run(*words, *shown[:2], *resume), run(*words, *shown[:2], "--tensorboard", "/dev/fd")]
    result(all(done.returncode == 2 for done in refused) and contents("norms.jsonl", "norms.csv") == before and before[0].count("\n") > 5,
           "a run that is refused leaves the log and the table of the one before", [done.stderr for done in refused])
    done = run("--steps", "1", "--log-norms")
    result(done.returncode == 2 and "--log-norms needs --log, --csv or --tensorboard" in done.stderr,
           "--log-norms without a place for them is refused", done.stderr.split("\n"))


def check_schedules():
    wanted = {"linear": [0.5, 1, 1, 0.75, 0.5, 0.25], "constant": [0.5, 1, 1, 1, 1, 1],
              "wsd:0.5": [0.5, 1, 1, 1, 2 / 3, 1 / 3], "step:2,0.5": [0.5, 1, 1, 1, 0.5, 0.5],
              "cosine": [0.5, 1, *(0.1 + 0.45 * (1 + math.cos(math.pi * done / 4)) for done in range(4))]}
    for name, parts in wanted.items():
        done = run("--steps", "6", "--warmup", "2", "--lr", "0.001", "--schedule", name, "--log", "rates.jsonl")
        rates = [line["lr"] for line in log_of("rates.jsonl")[0].values()]
        result(done.returncode == 0 and all(close(rate, 0.001 * part) for rate, part in zip(rates, parts)),
               f"--schedule {name}", [rates, done.stderr])


def check_early_stop():
    words = ("--steps", "60", "--val-every", "2", "--patience", "2", "--lr", "0.5", "--schedule", "constant", "--warmup", "0")
    done = run(*words, "--log", "early.jsonl", "--checkpoint", "early", "--checkpoint-every", "2")
    steps, validations, last = log_of("early.jsonl")
    lowest = min(validations, key=validations.get)
    summary = last["summary"]
    result(done.returncode == 0 and "ended early after step" in done.stdout and summary["ended_early"] is True and
           len(steps) == lowest + 4 < 60 and summary["lowest_validation_step"] == lowest and summary["interrupted"] is False,
           "a run ends when two losses in a row are no lower than the lowest", (done.stdout + done.stderr).split("\n"))
    for saved in sorted(glob.glob("early/step-*")):
        again = run(*words, "--log", "again.jsonl", "--resume", saved)
        with open("again.jsonl", encoding="utf-8") as file:
            other = json.loads(file.readlines()[-1])["summary"]
        result(again.returncode == 0 and other["weights_hash"] == summary["weights_hash"] and other["ended_early"] is True and
               other["lowest_validation_step"] == lowest, f"resumed from {saved}, it ends at the same step",
               (again.stdout + again.stderr).split("\n"))
    done = run(*words, "--log", "processes.jsonl", front=(launch, "-n", "2"))
    with open("processes.jsonl", encoding="utf-8") as file:
        other = json.loads(file.readlines()[-1])["summary"]
    result(done.returncode == 0 and other["weights_hash"] == summary["weights_hash"], "ranks as processes end at the same step",
           (done.stdout + done.stderr).split("\n"))


def check_stopped_early_stop():
    """Every step is saved and validated, so the signal comes between the two, whenever it comes."""
    words = ("--steps", "400", "--val-every", "1", "--patience", "60", "--lr", "0.5", "--schedule", "constant", "--warmup", "0")
    done = run(*words, "--log", "unstopped.jsonl")
    steps, validations, _ = log_of("unstopped.jsonl")
    lowest = min(validations, key=validations.get)
    saves = ("--checkpoint", "stopped", "--checkpoint-every", "1", "--keep", "2", "--log", "stopped.jsonl", "--resume")
    options = ["--text", "text", "--model", "tiny", "--seq", "32", "--sample", "0", "--threads", "1", "--peak-seconds", "0"]
    run("--steps", "1", *words[2:], *saves)  # so that the run that is stopped goes on itself
    with subprocess.Popen([train, *options, *words, *saves], stdout=subprocess.PIPE, text=True) as first:
        for line in iter(first.stdout.readline, ""):
            if re.search(r"step +(\d+) / 400   validation loss", line) and int(line.split()[1]) > lowest:
                first.terminate()
                break
        told = first.stdout.read()
    shutil.copytree("stopped", "kept")
    step = str(max(log_of("stopped.jsonl")[0]))
    # With no step behind it, and again, when a checkpoint has the loss.
    made = [run("--steps", step, *words[2:], *saves, "--csv", "stopped.csv").stdout.count("   validation loss") for _ in range(2)]
    shutil.rmtree("stopped")
    os.rename("kept", "stopped")  # as if killed before the next checkpoint
    again = run(*words, *saves, "--csv", "stopped.csv")
    with open("stopped.csv", encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if row["validation_loss"]]
    lines = open("stopped.jsonl", encoding="utf-8").read().split("\n")
    result(done.returncode == 0 and f"interrupted after step {step} of 400" in told and again.returncode == 0 and
           log_of("stopped.jsonl")[0].keys() == steps.keys() and log_of("stopped.jsonl")[1] == validations and
           sum('"validation"' in line for line in lines) == len(validations) and made == [1, 0] and
           [int(row["step"]) for row in rows] == list(range(int(step), len(steps) + 1)),
           "a run stopped between a checkpoint and a validation has the losses on held-back data, and the end, of one that was not",
           [lowest, len(steps), len(log_of("stopped.jsonl")[0]), told[-300:], again.stdout[-300:] + again.stderr])


def write_tokens(path, tokens):
    with open(path, "wb") as file:
        file.write(struct.pack("<iiI", 20240520, 1, len(tokens)).ljust(1024, b"\0") + struct.pack(f"<{len(tokens)}H", *tokens))


def check_other_validation():
    """What was seen of one text says nothing of another: then the count begins anew, and is told so; a checkpoint has its own step's
    loss, so that a run killed behind it lacks none."""
    write_tokens("train.bin", [number % 7 for number in range(4000)])
    write_tokens("easy.bin", [number % 7 for number in range(400)])
    write_tokens("hard.bin", [number * number * 7919 % 251 for number in range(400)])

    def go(*words, seq="32"):
        common = ["--model", "tiny", "--sample", "0", "--threads", "1", "--peak-seconds", "0", "--tokens", "train.bin", "--val-every", "2",
                  "--patience", "2", "--checkpoint", "other"]
        return subprocess.run([train, *common, "--seq", seq, *words], capture_output=True, text=True, check=False, timeout=120)

    done = go("--val-tokens", "easy.bin", "--steps", "4", "--checkpoint-every", "2")
    seen = []
    for name in os.listdir("other/step-000000000002") if done.returncode == 0 else []:
        with open("other/step-000000000002/" + name, "rb") as file:
            seen += re.findall(rb'"seen_step":\s*(\d+)', file.read())
    result(set(seen) == {b"2"}, "a checkpoint knows the loss on held-back data of its own step", [seen, done.stderr])
    told = "the lowest loss and the count of --patience begin anew"
    for name, words, seq, anew in (("the same", ["--val-tokens", "easy.bin"], "32", False), ("another file", ["--val-tokens", "hard.bin"], "32", True),
                                   ("another --seq", ["--val-tokens", "easy.bin"], "16", True)):
        done = go(*words, "--steps", "6", "--lr", "0.5", "--log", "anew.jsonl", "--resume", "other/step-000000000004", seq=seq)
        with open("anew.jsonl", encoding="utf-8") as file:
            lowest = json.loads(file.readlines()[-1])["summary"]["lowest_validation_step"] if done.returncode == 0 else 0
        os.remove("anew.jsonl")
        result((told in done.stderr) == anew and (lowest == 6) == anew and lowest > 0, f"held-back data of a run that goes on: {name}",
               [lowest, done.stderr])


def check_sample():
    """Without a tokenizer tokens are told by their numbers: the end of the data, and those behind it."""
    write_tokens("line.bin", [number % 251 for number in range(4000)])
    done = run("--tokens", "line.bin", "--steps", "1", "--sample", "5", text=())
    told = re.search(r"\nsample, after 16 given tokens \(up to the mark\):\n([\d ]+) \|> ([\d ]+) \n", done.stdout)
    given, made = ([int(word) for word in words.split()] for words in (told.groups() if told else ("", "")))
    result(given == [number % 251 for number in range(3984, 4000)] and len(made) == 5 and len(set(made)) > 1,
           "a sample of numbers is that of the tokens", (done.stdout + done.stderr).split("\n"))


def check_terminal():
    """A terminal has one line of progress, written over; a loss on held-back data has a line of its own."""
    options = ["--text", "text", "--model", "tiny", "--seq", "32", "--sample", "0", "--threads", "1", "--peak-seconds", "0", "--steps", "3"]
    ours, its = pty.openpty()
    with subprocess.Popen([train, *options, "--val-every", "3"], stdout=its, stderr=subprocess.DEVNULL) as running:
        os.close(its)
        text = b""
        try:
            while part := os.read(ours, 65536):
                text += part
        except OSError:  # the end, as Linux tells it
            pass
    os.close(ours)
    line = r"\rstep     {} / 3   loss [^\r\n]* left \d+:\d\d\033\[K"
    wanted = line.format(1) + f"({line.format(2)})?" + line.format(3) + r"\r\033\[Kstep     3 / 3   validation loss [\d.]+ \(held-back text\)\r\n"
    result(running.returncode == 0 and re.search(wanted, text.decode()) is not None, "a terminal has one line of progress", [text])


def check_neighbours():
    """A table that is continued leaves a file beside it as it is."""
    words = ("--steps", "2", "--checkpoint", "beside", "--csv", "beside.csv")
    run(*words)
    with open("beside.csv.new", "w", encoding="utf-8") as file:
        file.write("notes\n")
    os.chmod("beside.csv", 0o640)
    before = set(os.listdir("."))
    done = run("--steps", "3", *words[2:], "--resume")
    after = set(os.listdir("."))
    result(done.returncode == 0 and after == before and os.stat("beside.csv").st_mode & 0o777 == 0o640 and
           os.stat("beside.csv.new").st_size == 6, "a table that is continued keeps its rights, and files beside it", [done.stderr, before ^ after])


def open_files(process):
    """Where they lie; a file that is closed meanwhile is none."""
    for name in os.listdir(f"/proc/{process}/fd"):
        try:
            yield os.readlink(f"/proc/{process}/fd/{name}")
        except FileNotFoundError:
            pass


def check_killed():
    """A run that is killed while it continues a log, which takes as long as the log is, leaves the log as it was, and no file."""
    words = ("--steps", "2", "--checkpoint", "killed/saved", "--log", "killed/log")
    os.mkdir("killed")
    run(*words)
    try:
        os.close(os.open("killed", os.O_TMPFILE | os.O_WRONLY, 0o600))
    except OSError as error:
        skip("a run killed while it continues a log leaves nothing", f"no file without a name here: {error}")
        return
    with open("killed/log", "a", encoding="utf-8") as file:
        file.writelines('{"step": 1, "loss": 5.5}\n' for _ in range(1000000))
    before = set(os.listdir("killed"))
    options = ["--text", "text", "--model", "tiny", "--seq", "32", "--sample", "0", "--threads", "1", "--peak-seconds", "0"]
    with subprocess.Popen([train, *options, *words, "--resume"], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as going:
        is_copying = False
        while going.poll() is None and not is_copying:
            is_copying = any("/killed/#" in path or "/killed/log." in path for path in open_files(going.pid))
        going.kill()
    after = set(os.listdir("killed"))
    result(is_copying and after == before and os.path.getsize("killed/log") > 25000000, "a run killed while it continues a log leaves nothing",
           [is_copying, before ^ after])


def check_other_programs():
    """A table is numbers to a data frame, whatever happened; and goes on after another program has saved it."""
    words = ("--csv", "spoiled.csv", "--log-norms", "--checkpoint", "spoiled", "--checkpoint-every", "3")
    done = run("--steps", "6", "--lr", "1e25", "--clip", "0", "--on-not-finite", "skip", *words)
    with open("spoiled.csv", encoding="utf-8") as file:
        text = file.read()
    values = set(text.replace("\n", ",").split(",")[:-1])
    odd = {value for value in values if re.search("nan|inf", value, re.I)}
    result(done.returncode == 0 and odd and odd <= {"NaN", "Inf", "-Inf"}, "a loss that is not finite is a number by its name in data frames",
           [done.stderr, odd])
    for end in "\n", "\r\n":
        with open("spoiled.csv", "w", encoding="utf-8", newline=end) as file:
            file.write(text)
        done = run("--steps", "4", "--on-not-finite", "skip", *words, "--resume", "spoiled/step-000000000003")
        with open("spoiled.csv", encoding="utf-8", newline="") as file:
            again = file.read()
        kept = "".join(line for line in text.splitlines(True)[:4])
        result(done.returncode == 0 and again.startswith(kept) and again.count("\n") == 5 and "\r" not in again,
               f"such a table is continued, with lines that end in {end!r}", [done.stderr, again[-200:]])


def check_refusals():
    with open("other.csv", "w", encoding="utf-8") as file:
        file.write("name,price\n")
    for words, wanted in ((("--csv", "other.csv"), "other.csv: already exists and is not a table of train"),
                          (("--csv", "text"), "already exists and is not a table of train"),
                          (("--csv", "a", "--log", "a"), "both name a"),
                          (("--tensorboard", "other.csv"), "other.csv: is not a folder"),
                          (("--tensorboard", "no/such"), "no/such: cannot be created"),
                          (("--patience", "3"), "--patience needs --val-every"),
                          (("--patience", "0", "--val-every", "1"), "--patience")):
        done = run("--steps", "1", *words)
        result(done.returncode == 2 and re.search(re.escape(wanted), done.stderr) is not None, "refused: " + " ".join(words),
               [done.stderr])
    done = run("--steps", "3", "--csv", "/dev/full")
    result(done.returncode == 1 and done.stderr.count("cannot be written") == 1, "a full disk under --csv is told once, and the exit status is 1", [done.stderr])


with tempfile.TemporaryDirectory() as work:
    os.chdir(work)
    with open("text", "w", encoding="utf-8") as out:
        out.writelines(f"{number}\n" for number in range(1, 4001))
    check_logs()
    check_norms()
    check_emptied()
    check_pipe_without_waiting()
    check_schedules()
    check_early_stop()
    check_stopped_early_stop()
    check_other_validation()
    check_sample()
    check_terminal()
    check_neighbours()
    check_killed()
    check_other_programs()
    check_refusals()
finish()
