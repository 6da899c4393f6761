#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The same training in PyTorch, on one rank: peer.py FOLDER SEED [EPOCHS]. Prints the accuracy after each epoch.

Network, optimizer, schedule, data and batches are those of mnist.c; the random numbers are PyTorch's.
"""
import sys

import numpy
import torch
import torch.nn.functional as F


def read(folder, part):
    with open(f"{folder}/{part}-images-idx3-ubyte", "rb") as file:
        data = file.read()
    count, height, width = numpy.frombuffer(data[4:16], ">u4")
    pixels = numpy.frombuffer(data[16:], numpy.uint8).reshape(count, 1, height, width).astype(numpy.float32)
    with open(f"{folder}/{part}-labels-idx1-ubyte", "rb") as file:
        labels = numpy.frombuffer(file.read()[8:], numpy.uint8).astype(numpy.int64)
    return torch.from_numpy((pixels / 255 - 0.1307) / 0.3081), torch.from_numpy(labels)


class Net(torch.nn.Module):
    def __init__(self, side):
        super().__init__()
        self.conv1 = torch.nn.Conv2d(1, 32, 3)
        self.conv2 = torch.nn.Conv2d(32, 64, 3)
        self.fc1 = torch.nn.Linear(64 * ((side - 4) // 2) ** 2, 128)
        self.fc2 = torch.nn.Linear(128, 10)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.conv2(F.relu(self.conv1(x)))), 2)
        x = torch.flatten(F.dropout(x, 0.25, self.training), 1)
        x = F.dropout(F.relu(self.fc1(x)), 0.5, self.training)
        return F.log_softmax(self.fc2(x), 1)


def main():
    folder, seed, epochs = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]) if len(sys.argv) > 3 else 14
    torch.manual_seed(seed)
    torch.set_num_threads(1)
    (images, labels), (tests, answers) = read(folder, "train"), read(folder, "t10k")
    net = Net(images.shape[-1])
    optimizer = torch.optim.Adadelta(net.parameters(), lr=1.0)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.7)
    for _ in range(epochs):
        net.train()
        order = torch.randperm(len(images))
        for i in range(len(images) // 64):
            batch = order[i * 64:i * 64 + 64]
            optimizer.zero_grad()
            F.nll_loss(net(images[batch]), labels[batch]).backward()
            optimizer.step()
        schedule.step()
        net.eval()
        with torch.no_grad():
            right = (net(tests).argmax(1) == answers).float().mean().item()
        print(f"accuracy {100 * right:.2f} %", flush=True)


if __name__ == "__main__":
    main()
