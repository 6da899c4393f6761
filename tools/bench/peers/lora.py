#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Fine-tuning GPT-2 with PEFT's LoRA and PyTorch: the peer of train --lora.

    python3 -m venv venv && venv/bin/pip install torch transformers peft numpy
    venv/bin/python lora.py --save base && venv/bin/python lora.py --base base --batch 2 --seq 256 --steps 8 --threads 2

As a careful user of transformers runs it on a CPU: scaled_dot_product_attention, fused AdamW of the adapters alone, no dropout.
One JSON line at the end. --save writes the model that both sides start from: GPT-2's shape with random weights.
"""
import argparse
import json
import os
import resource
import statistics
import time

import torch
import transformers
from peft import LoraConfig, get_peft_model

WARM_UP = 2  # steps that are not counted


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--save", metavar="DIR")
    p.add_argument("--base", metavar="DIR")
    p.add_argument("--layers", type=int, default=12)
    p.add_argument("--dtype", choices=("fp32", "bf16"), default="fp32")
    for name, default in (("batch", 2), ("seq", 256), ("steps", 8), ("threads", 2), ("rank", 16)):
        p.add_argument(f"--{name}", type=int, default=default)
    a = p.parse_args()
    torch.manual_seed(1)
    torch.set_num_threads(a.threads)
    if a.save:
        transformers.GPT2LMHeadModel(transformers.GPT2Config(n_layer=a.layers)).save_pretrained(a.save)
        return
    dtype = torch.bfloat16 if a.dtype == "bf16" else torch.float32
    model = transformers.AutoModelForCausalLM.from_pretrained(a.base, dtype=dtype, attn_implementation="sdpa", use_cache=False,
                                                              resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0)
    model = get_peft_model(model, LoraConfig(r=a.rank, lora_alpha=2 * a.rank, target_modules=["c_attn"], fan_in_fan_out=True,
                                             task_type="CAUSAL_LM"))
    model.train()
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=2e-4, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
    times, loss = [], None
    for _ in range(a.steps + WARM_UP):
        tokens = torch.randint(model.config.vocab_size, (a.batch, a.seq + 1))
        begin = time.perf_counter()
        logits = model(input_ids=tokens[:, :-1]).logits
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1).float(), tokens[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(trained, 1.0)
        optimizer.step()
        times.append(time.perf_counter() - begin)
    step_s = statistics.median(times[WARM_UP:])
    print(json.dumps({"tokens_per_s": a.batch * a.seq / step_s, "step_s": step_s, "loss": float(loss), "threads": a.threads,
                      "trained": sum(parameter.numel() for parameter in trained), "torch": torch.__version__,
                      "peak_rss": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024, "pid": os.getpid()}))


if __name__ == "__main__":
    main()
