#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""PyTorch's own sharded training, on the model that evenodd trains: the peer to be measured against.

    python3 -m venv venv && venv/bin/pip install torch numpy
    venv/bin/torchrun --nproc-per-node 2 fsdp2.py --model gpt2 --mode fsdp2 --batch 4 --seq 256 --steps 8

GPT-2 of the standard shape (learned positions, pre-norm, tanh GELU, tied head) and Llama (RMSNorm, rotary positions,
SwiGLU, grouped queries; Qwen3 with head norms), written for speed the way a careful PyTorch user would: scaled_dot_product_attention, fused
AdamW, one fully_shard unit per block. On a CPU with gloo, on GPUs with NCCL. One JSON line at the end.
tokens_per_s counts the tokens of all ranks; peak_rss is of the largest rank, resident_bytes of all: pages of files count once.
"""
import argparse, json, os, resource, statistics, time
import torch, torch.nn as nn, torch.nn.functional as F, torch.distributed as dist

GPT2 = {  # layers, width, heads, vocabulary, context
    "tiny": (4, 128, 4, 256, 256),
    "small": (6, 384, 6, 256, 256),
    "gpt2": (12, 768, 12, 50257, 1024),
    "gpt2-medium": (24, 1024, 16, 50257, 1024),
    "gpt2-large": (36, 1280, 20, 50257, 1024),
    "gpt2-xl": (48, 1600, 25, 50257, 1024),
    "gpt-thin": (8, 64, 4, 256, 1024),  # from here on as lines/shapes.py has them
    "gpt-deep": (48, 128, 2, 256, 1024),
    "gpt-h80": (4, 640, 8, 32000, 1024),
}
LLAMA = {  # layers, width, heads, key/value heads, MLP width, vocabulary, tied head
    "llama-tiny": (4, 128, 4, 2, 352, 256, False),
    "llama-small": (6, 384, 6, 2, 1024, 256, False),
    "llama-1b": (16, 2048, 32, 8, 8192, 128256, True),
    "qwen3-small": (6, 384, 6, 2, 1024, 256, False),  # a norm of each head's queries and keys
    "llama-h256": (4, 512, 2, 1, 1408, 256, False),
    "llama-vocab": (2, 256, 4, 2, 688, 128256, False),
}
HEAD_SIZE = {"qwen3-small": 128}  # else width / heads


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.fc, self.out = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = self.qkv(self.ln_1(x)).view(b, t, 3, self.heads, c // self.heads).permute(2, 0, 3, 1, 4)
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(a.transpose(1, 2).reshape(b, t, c))
        return x + self.out(F.gelu(self.fc(self.ln_2(x)), approximate="tanh"))


def rotate(x, theta=500000.0):
    """Rotary positions of (batch, heads, tokens, size), halves rotated."""
    t, d = x.shape[-2:]
    angle = torch.arange(t, device=x.device)[:, None] * theta ** (-torch.arange(0, d, 2, device=x.device) / d)
    cos, sin = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
    a, b = x.chunk(2, -1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), -1)


class LlamaBlock(nn.Module):
    def __init__(self, width, heads, kv, mlp, size, head_norms):
        super().__init__()
        self.heads, self.kv, self.size = heads, kv, size
        self.norm_1, self.norm_2 = nn.RMSNorm(width, 1e-5), nn.RMSNorm(width, 1e-5)
        self.q_norm, self.k_norm = (nn.RMSNorm(size, 1e-5) if head_norms else nn.Identity() for _ in range(2))
        self.q = nn.Linear(width, heads * size, bias=False)
        self.k, self.v = (nn.Linear(width, kv * self.size, bias=False) for _ in range(2))
        self.proj = nn.Linear(heads * size, width, bias=False)
        self.gate, self.up = (nn.Linear(width, mlp, bias=False) for _ in range(2))
        self.out = nn.Linear(mlp, width, bias=False)

    def forward(self, x):
        b, t, c = x.shape
        h = self.norm_1(x)
        q = rotate(self.q_norm(self.q(h).view(b, t, self.heads, self.size)).transpose(1, 2))
        k = rotate(self.k_norm(self.k(h).view(b, t, self.kv, self.size)).transpose(1, 2))
        v = self.v(h).view(b, t, self.kv, self.size).transpose(1, 2)
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=self.heads != self.kv)
        x = x + self.proj(a.transpose(1, 2).reshape(b, t, -1))
        h = self.norm_2(x)
        return x + self.out(F.silu(self.gate(h)) * self.up(h))


class Model(nn.Module):
    def __init__(self, name):
        super().__init__()
        if name in GPT2:
            layers, width, heads, self.vocabulary, context = GPT2[name]
            tied = True
            self.wpe, self.norm = nn.Embedding(context, width), nn.LayerNorm(width)
            self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        else:
            layers, width, heads, kv, mlp, self.vocabulary, tied = LLAMA[name]
            self.wpe, self.norm = None, nn.RMSNorm(width, 1e-5)
            self.blocks = nn.ModuleList(LlamaBlock(width, heads, kv, mlp, HEAD_SIZE.get(name, width // heads),
                                                   name in HEAD_SIZE) for _ in range(layers))
        self.wte, self.head = nn.Embedding(self.vocabulary, width), nn.Linear(width, self.vocabulary, bias=False)
        if tied:
            self.head.weight = self.wte.weight
        for name, q in self.named_parameters():  # GPT-2's initialisation
            if q.dim() > 1:
                nn.init.normal_(q, std=0.02 / (2 * layers) ** 0.5 if name.endswith(("proj.weight", "out.weight")) else 0.02)
            elif name.endswith("bias"):
                nn.init.zeros_(q)

    def forward(self, tokens, targets):
        x = self.wte(tokens)
        if self.wpe is not None:
            x = x + self.wpe(torch.arange(tokens.shape[1], device=tokens.device))
        for block in self.blocks:
            x = block(x)
        logits = self.head(self.norm(x))
        return F.cross_entropy(logits.view(-1, logits.shape[-1]).float(), targets.reshape(-1))


def file_bytes():
    """Resident pages of files, PyTorch's libraries above all, that all ranks of a machine have in common."""
    with open("/proc/self/status", encoding="ascii") as status:
        return sum(int(line.split()[1]) * 1024 for line in status if line.startswith("RssFile:"))


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--model", default="gpt2", choices=[*GPT2, *LLAMA])
    p.add_argument("--mode", default="fsdp2", choices=["fsdp2", "fsdp1", "ddp", "single"], help="fsdp1 needs a GPU")
    p.add_argument("--dtype", default="fp32", choices=["fp32", "bf16"])
    p.add_argument("--batch", type=int, default=4, help="sequences a rank and step")
    p.add_argument("--seq", type=int, default=256)
    p.add_argument("--steps", type=int, default=8)
    p.add_argument("--warmup", type=int, default=2)
    p.add_argument("--threads", type=int, default=1, help="threads of a rank")
    p.add_argument("--text", help="a file of bytes as tokens [random tokens]")
    p.add_argument("--compile", action="store_true", help="torch.compile every block")
    p.add_argument("--recompute", action="store_true")
    a = p.parse_args()
    torch.set_num_threads(a.threads)
    cuda = torch.cuda.is_available()
    rank, world = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
    device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", 0))) if cuda else torch.device("cpu")
    if cuda:
        torch.cuda.set_device(device)
    if a.mode != "single":
        dist.init_process_group("nccl" if cuda else "gloo")
    torch.manual_seed(1)
    with device:  # made where it trains: a processor would take half a minute for the numbers of gpt2-xl
        model = Model(a.model)
    vocabulary = model.vocabulary
    parameters = sum(q.numel() for q in model.parameters())
    if a.recompute:
        from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import apply_activation_checkpointing
        apply_activation_checkpointing(model, check_fn=lambda m: isinstance(m, (Block, LlamaBlock)))
    if a.compile:
        for block in model.blocks:
            block.compile()
    autocast = False
    if a.mode == "fsdp2":
        from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
        mp = MixedPrecisionPolicy(torch.bfloat16, torch.float32) if a.dtype == "bf16" else MixedPrecisionPolicy()
        for block in model.blocks:
            fully_shard(block, mp_policy=mp)
        fully_shard(model, mp_policy=mp)
    elif a.mode == "fsdp1":
        from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, MixedPrecision
        from torch.distributed.fsdp.wrap import ModuleWrapPolicy
        mp = MixedPrecision(torch.bfloat16, torch.float32) if a.dtype == "bf16" else None
        model = FSDP(model, auto_wrap_policy=ModuleWrapPolicy({Block, LlamaBlock}), mixed_precision=mp, use_orig_params=True, device_id=device if cuda else None)
    elif a.mode == "ddp":
        model = nn.parallel.DistributedDataParallel(model)
        autocast = a.dtype == "bf16"
    else:
        autocast = a.dtype == "bf16"
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, fused=a.mode != "fsdp1")
    generator = torch.Generator().manual_seed(100 + rank)
    if a.text:
        data = torch.frombuffer(bytearray(open(a.text, "rb").read()), dtype=torch.uint8).long()

    def batch():
        if a.text:
            at = torch.randint(len(data) - a.seq - 1, (a.batch,), generator=generator)
            x = torch.stack([data[i:i + a.seq + 1] for i in at])
        else:
            x = torch.randint(vocabulary, (a.batch, a.seq + 1), generator=generator)
        return x[:, :-1].to(device), x[:, 1:].to(device)

    times, loss = [], None
    for step in range(a.steps + a.warmup):
        x, y = batch()
        if cuda:
            torch.cuda.synchronize()
        start = time.perf_counter()
        with torch.autocast(device.type, torch.bfloat16, enabled=autocast):
            loss = model(x, y)
        loss.backward()
        if a.mode == "fsdp1":
            model.clip_grad_norm_(1.0)
        else:
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        value = loss.item()
        if step >= a.warmup:
            times.append(time.perf_counter() - start)
    median = statistics.median(times)
    peak, files = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024, file_bytes()
    largest = torch.tensor([peak, files], dtype=torch.int64)
    own = torch.tensor([peak - files], dtype=torch.int64)
    if a.mode != "single":
        largest, own = largest.to(device), own.to(device)
        dist.all_reduce(largest, dist.ReduceOp.MAX)
        dist.all_reduce(own, dist.ReduceOp.SUM)
    peak, files = largest.tolist()
    if rank == 0:
        print(json.dumps({
            "mode": a.mode, "model": a.model, "parameters": parameters, "dtype": a.dtype, "ranks": world, "threads": a.threads,
            "batch": a.batch, "seq": a.seq, "compile": a.compile, "step_s_median": round(median, 4), "step_s_min": round(min(times), 4),
            "tokens_per_s": round(world * a.batch * a.seq / median, 1), "loss": round(value, 4), "peak_rss": peak,
            "resident_bytes": own.item() + files,
            "peak_device": torch.cuda.max_memory_allocated() if cuda else None, "torch": torch.__version__,
        }), flush=True)
    if a.mode != "single":
        dist.barrier()
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
