# SPDX-License-Identifier: MIT
#
# Goal: examples/mnist learns, as well as the same training in PyTorch; ranks and units of sharding change nothing but the order
#       of sums; damaged files are refused.
# Method: scikit-learn's digits, kept in tests/fixtures. The full run takes five seeds, and compares with PyTorch where the python
#         in EO_PEERS_PYTHON has it.
# usage: mnist_runs.py MNIST SOURCE
import os
import re
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "../tap"))
import peers
from tap import finish, result, skip

mnist, source = (os.path.realpath(word) for word in sys.argv[1:])
digits = os.path.join(source, "tests/fixtures/digits")
is_full = os.environ.get("EO_TEST_FULL") == "1"


def run(*words):
    return subprocess.run(words, capture_output=True, text=True, check=False, timeout=600)


def epochs_of(done):
    """(loss of the last step, test loss, accuracy in %) of each epoch."""
    return [tuple(map(float, found)) for found in
            re.findall(r"loss ([0-9.]+)   test loss ([0-9.]+)   accuracy ([0-9.]+) %", done.stdout)]


def check_learning():
    done = run(mnist, digits, "--epochs", "4")
    epochs = epochs_of(done)
    result(done.returncode == 0 and len(epochs) == 4 and epochs[-1][2] > 90, "four epochs come above 90 %", [done.stdout, done.stderr])
    for words in (["--ranks", "1"], ["--ranks", "4", "--unit", "0"], ["--ranks", "2", "--unit", "1000000"]):
        other = epochs_of(run(mnist, digits, "--epochs", "1", *words))
        near = other and all(abs(a - b) < 0.02 * abs(b) for a, b in zip(other[0][:2], epochs[0][:2]))
        result(near, "the same first epoch with " + " ".join(words), [other, epochs[:1]])


def check_accuracy():
    seeds = range(1, 6)
    own = [epochs_of(run(mnist, digits, "--seed", str(seed)))[-1][2] for seed in seeds]
    mean = sum(own) / len(own)
    print(f"# accuracy of five seeds: {own}, mean {mean:.2f} %")
    result(mean >= 97, "the mean accuracy of five seeds is at least 97 %", [own])
    if not peers.has("torch, numpy"):
        skip("PyTorch's is not better by more than 1 %", peers.lacks("torch"))
        return
    program = os.path.join(source, "examples/mnist/peer.py")
    peer = [float(run(peers.python, program, digits, str(seed)).stdout.split()[-2]) for seed in seeds]
    print(f"# PyTorch's: {peer}, mean {sum(peer) / len(peer):.2f} %")
    result(mean >= sum(peer) / len(peer) - 1, "PyTorch's is not better by more than 1 %", [own, peer])


def check_refusals():
    with tempfile.TemporaryDirectory() as work:
        for name in os.listdir(digits):
            with open(os.path.join(digits, name), "rb") as file:
                data = file.read()
            with open(os.path.join(work, name), "wb") as file:
                file.write(data)
        images = os.path.join(work, "train-images-idx3-ubyte")
        with open(images, "rb") as file:
            good = file.read()
        for name, data, wanted in (("cut off", good[:-1], "its length is not"), ("longer", good + b"x", "its length is not"),
                                   ("of another kind", b"\0\0\x08\x01" + good[4:], "is no IDX file"), ("empty", b"", "is no IDX file"),
                                   ("without images", good[:4] + bytes(4) + good[8:], "a dimension that is 0")):
            with open(images, "wb") as file:
                file.write(data)
            done = run(mnist, work)
            result(done.returncode == 2 and wanted in done.stderr, f"refused: images {name}", [done.stdout, done.stderr])
        with open(images, "wb") as file:
            file.write(good)
        with open(os.path.join(work, "t10k-labels-idx1-ubyte"), "r+b") as file:
            file.seek(8)
            file.write(b"\x0a")
        done = run(mnist, work)
        result(done.returncode == 2 and "label above 9" in done.stderr, "refused: a label of 10", [done.stderr])
    for words, wanted in ((["/no/such"], "No such file"), ([], "name the folder"), ([digits, "--batch", "9"], "not a multiple of --ranks"),
                          ([digits, "--batch", "4096"], "fewer than a step's"), ([digits, "--epochs", "none"], "--epochs is 'none'")):
        done = run(mnist, *words)
        result(done.returncode == 2 and wanted in done.stderr, "refused: " + " ".join(words), [done.stderr])


if is_full:
    check_accuracy()
else:
    check_learning()
    check_refusals()
finish()
