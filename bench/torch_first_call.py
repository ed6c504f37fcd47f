"""The first call of torch.compile and the steps after it: fp8c beside PyTorch's own backend.

usage: PYTHONPATH=frontend/python FP8C_LIBRARY=build/libfp8c.so python bench/torch_first_call.py
           [--model 4m|124m] [--turns 3] [--dtype f32|bf16] [--steps 5]

A GPT-2 of Hugging Face's classes, forward and backward. Each figure comes from a process of its own
with empty caches; the backends take turns. bf16: recipe bf16 beside autocast. The first call has
dynamo's part in both.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from typing import Any

SIZES = {"4m": {"n_layer": 4, "n_embd": 256, "n_head": 4, "vocab_size": 2048, "n_positions": 128},
         "124m": {}}
TOKENS = {"4m": (8, 128), "124m": (1, 128)}
BACKENDS = ("fp8c", "inductor")


def one(backend: str, model: str, dtype: str, steps: int) -> dict[str, float]:
    """Seconds of the first forward and backward, and the median of those after it."""
    import torch
    import transformers

    chosen: Any = backend
    if backend == "fp8c":
        import fp8c.torch

        chosen = fp8c.torch.fp8c_backend  # its name is known where the wheel is installed
    torch.manual_seed(0)
    network = transformers.GPT2LMHeadModel(transformers.GPT2Config(
        resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, **SIZES[model]))
    network.loss_type = "ForCausalLM"  # else transformers logs within the forward
    ids = torch.randint(network.config.vocab_size, TOKENS[model])
    options = {"recipe": dtype, "strict": True} if backend == "fp8c" else None
    call = torch.compile(network.train(), backend=chosen, options=options)
    seconds = []
    for _ in range(steps + 1):
        network.zero_grad()
        start = time.perf_counter()
        with torch.autocast("cpu", torch.bfloat16, enabled=dtype == "bf16" and backend != "fp8c"):
            loss = call(input_ids=ids, labels=ids, use_cache=False).loss
        loss.backward()
        seconds.append(time.perf_counter() - start)
    return {"first": seconds[0], "step": statistics.median(seconds[1:]), "loss": float(loss.detach())}


def in_process(backend: str, args: argparse.Namespace) -> dict[str, float]:
    """`one` in a process with caches of its own."""
    with tempfile.TemporaryDirectory() as caches:
        environment = dict(os.environ, FP8C_CACHE_DIR=caches, TORCHINDUCTOR_CACHE_DIR=caches)
        out = subprocess.run([sys.executable, __file__, "--one", backend, "--model", args.model,
                              "--dtype", args.dtype, "--steps", str(args.steps)],
                             env=environment, check=True, stdout=subprocess.PIPE, text=True)
    return json.loads(out.stdout.splitlines()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--model", choices=SIZES, default="4m")
    parser.add_argument("--dtype", choices=("f32", "bf16"), default="f32")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--one", choices=BACKENDS, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one:
        print(json.dumps(one(args.one, args.model, args.dtype, args.steps)))
        return
    found: dict[str, list[dict[str, float]]] = {backend: [] for backend in BACKENDS}
    for turn in range(args.turns):
        for backend in BACKENDS:
            figures = in_process(backend, args)
            found[backend].append(figures)
            print(f"turn {turn + 1}: {backend}: first call {figures['first']:.1f} s, then "
                  f"{figures['step'] * 1e3:.1f} ms; loss {figures['loss']:.4f}", flush=True)
    for what in ("first", "step"):
        ratios = [a[what] / b[what] for a, b in zip(found["fp8c"], found["inductor"])]
        print(f"{args.model} {args.dtype}: {what}: fp8c / inductor {statistics.median(ratios):.2f} "
              f"({min(ratios):.2f} to {max(ratios):.2f})")


if __name__ == "__main__":
    main()
