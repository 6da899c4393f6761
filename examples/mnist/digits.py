#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Writes scikit-learn's digits (1797 images of 8 x 8, part of the package) as MNIST's four IDX files: digits.py FOLDER

Every fifth image is for the test. The images are those of "Optical Recognition of Handwritten Digits", E. Alpaydin and C. Kaynak,
UCI Machine Learning Repository.
"""
import os
import struct
import sys

import numpy
from sklearn.datasets import load_digits


def write(path, head, values):
    with open(path, "wb") as file:
        file.write(struct.pack(f">{len(head)}I", *head))
        file.write(values.astype(numpy.uint8).tobytes())


def main():
    if len(sys.argv) != 2:
        sys.exit("usage: digits.py FOLDER")
    folder = sys.argv[1]
    os.makedirs(folder, exist_ok=True)
    digits = load_digits()
    pixels = numpy.rint(digits.images * (255 / 16))
    held = numpy.arange(len(pixels)) % 5 == 4
    for part, chosen in (("train", ~held), ("t10k", held)):
        images, labels = pixels[chosen], digits.target[chosen]
        write(os.path.join(folder, part + "-images-idx3-ubyte"), (0x803, *images.shape), images)
        write(os.path.join(folder, part + "-labels-idx1-ubyte"), (0x801, len(labels)), labels)


if __name__ == "__main__":
    main()
