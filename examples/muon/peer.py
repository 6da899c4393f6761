#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The training of muon.c in PyTorch, on one rank: prints the same lines. torch.optim.Muon iterates in bf16, evenodd in fp32.

    python3 examples/muon/peer.py > tests/fixtures/muon/losses.txt
"""
import numpy
import torch

SHAPES, POINTS, STEPS = [(24, 8), (48, 24), (24, 48), (1, 24)], 2 * 64, 100


def spread(numbers):
    n = numpy.asarray(numbers, numpy.uint32)
    n = (n ^ (n >> 16)) * numpy.uint32(0x7FEB352D)
    n = (n ^ (n >> 15)) * numpy.uint32(0x846CA68B)
    return torch.from_numpy(((n ^ (n >> 16)) >> 8).astype(numpy.float32) * numpy.float32(2**-23) - 1)


def main():
    torch.set_num_threads(1)
    weights = [torch.nn.Parameter((spread(numpy.arange(out * wide) + 100000 * l) / wide**0.5).reshape(out, wide))
               for l, (out, wide) in enumerate(SHAPES)]
    biases = [torch.nn.Parameter(torch.zeros(out)) for out, _ in SHAPES]
    adamw = dict(lr=0.01, betas=(0.9, 0.95), eps=1e-8)
    optimizers = [torch.optim.Muon(weights[1:3], lr=0.01, momentum=0.95, weight_decay=0.1, adjust_lr_fn="match_rms_adamw"),
                  torch.optim.AdamW([{"params": [weights[0], weights[3]], "weight_decay": 0.1},
                                     {"params": biases, "weight_decay": 0}], **adamw)]
    for step in range(STEPS):
        x = spread(0x40000000 + step * POINTS * 8 + numpy.arange(POINTS * 8)).reshape(POINTS, 8)
        at = x
        for l in range(4):
            at = torch.nn.functional.linear(at, weights[l], biases[l])
            at = torch.tanh(at) if l < 3 else at
        loss = ((at[:, 0] - (torch.sin(3 * x[:, 0]) + x[:, 1] * x[:, 2])) ** 2).mean()
        for optimizer in optimizers:
            optimizer.zero_grad()
        loss.backward()
        for optimizer in optimizers:
            optimizer.step()
        if step % 10 == 0 or step + 1 == STEPS:
            print(f"step {step + 1} loss {loss.item():.6f}")


if __name__ == "__main__":
    main()
