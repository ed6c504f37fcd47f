"""A training step of PyTorch through fp8c, under each recipe, beside torch.compile's own backend.

usage: PYTHONPATH=frontend/python FP8C_LIBRARY=build/libfp8c.so python bench/torch_step.py
           [--models gpt2,bert,llama] [--recipes f32,bf16,...] [--turns 20] [--threads N] [--json FILE]

Models of Hugging Face's classes: 4 layers, 256 wide, batches of 4 x 128 tokens. A step is forward,
backward and an update by AdamW. Every run has a copy of the model; all are in one process and take
turns, after two steps that are not counted. Inductor runs in f32, and in bf16 by autocast. The
ratio of a recipe is its median time over that of Inductor: recipe f32 beside f32, all others beside
bf16. Below 1 fp8c is faster.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import time
from typing import Any, Callable

import torch
import transformers

import fp8c.torch

RECIPES = ("f32", "bf16", "current", "delayed", "rowwise", "block", "mxfp8")
LAYERS, WIDTH, HEADS, VOCABULARY, BATCH, LENGTH = 4, 256, 4, 2048, 4, 128


def gpt2() -> torch.nn.Module:
    model = transformers.GPT2LMHeadModel(transformers.GPT2Config(
        n_layer=LAYERS, n_embd=WIDTH, n_head=HEADS, vocab_size=VOCABULARY, n_positions=LENGTH,
        resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0))
    model.loss_type = "ForCausalLM"  # else transformers logs within the forward
    return model


def bert() -> torch.nn.Module:
    return transformers.BertForMaskedLM(transformers.BertConfig(
        num_hidden_layers=LAYERS, hidden_size=WIDTH, num_attention_heads=HEADS,
        intermediate_size=4 * WIDTH, vocab_size=VOCABULARY, max_position_embeddings=LENGTH,
        hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0))


def llama() -> torch.nn.Module:
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(
        num_hidden_layers=LAYERS, hidden_size=WIDTH, num_attention_heads=HEADS,
        num_key_value_heads=HEADS // 2, intermediate_size=704, vocab_size=VOCABULARY,
        max_position_embeddings=LENGTH))


MODELS: dict[str, Callable[[], torch.nn.Module]] = {"gpt2": gpt2, "bert": bert, "llama": llama}


def inputs_of(name: str) -> dict[str, Any]:
    ids = torch.randint(VOCABULARY, (BATCH, LENGTH), generator=torch.Generator().manual_seed(1))
    if name == "bert":  # every seventh token is to be found
        hidden = torch.arange(LENGTH)[None] % 7 == 3
        return {"input_ids": ids.masked_fill(hidden, 3), "labels": ids.masked_fill(~hidden, -100)}
    return {"input_ids": ids, "labels": ids, "use_cache": False}


class Run:
    """A model under one backend, with its optimizer, and the seconds of its steps."""

    def __init__(self, name: str, backend: str, precision: str):
        torch.manual_seed(0)
        self.name, self.backend, self.precision = name, backend, precision
        self.model, self.inputs = MODELS[name]().train(), inputs_of(name)
        own = {"backend": fp8c.torch.fp8c_backend, "options": {"recipe": precision, "strict": True}}
        self.call = torch.compile(self.model, **(own if backend == "fp8c" else {"backend": backend}))
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-3)
        self.autocast = backend != "fp8c" and precision == "bf16"
        self.seconds: list[float] = []
        self.loss = 0.0

    def step(self) -> None:
        start = time.perf_counter()
        self.optimizer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16, enabled=self.autocast):
            loss = self.call(**self.inputs).loss
        loss.backward()
        self.optimizer.step()
        self.seconds.append(time.perf_counter() - start)
        self.loss = float(loss.detach())

    @property
    def peer(self) -> tuple[str, str]:
        """Inductor's run in the same precision; FP8 is mixed precision, as bf16 is."""
        return "inductor", "f32" if self.precision == "f32" else "bf16"


def measured(name: str, recipes: list[str], turns: int) -> list[dict[str, Any]]:
    """A row for each run of a model."""
    torch._dynamo.reset()
    torch._dynamo.config.recompile_limit = 64  # runs share the code of the model's class
    wanted = {"f32" if recipe == "f32" else "bf16" for recipe in recipes}
    runs = [Run(name, "inductor", precision) for precision in sorted(wanted, reverse=True)]
    runs += [Run(name, "fp8c", recipe) for recipe in recipes]
    for turn in range(turns + 2):
        for run in runs:
            run.step()
            if turn < 2:
                run.seconds.clear()
    middle = {(run.backend, run.precision): statistics.median(run.seconds) for run in runs}
    rows = []
    for run in runs:
        mine = middle[run.backend, run.precision]
        rows.append({"model": name, "backend": run.backend, "precision": run.precision,
                     "milliseconds": mine * 1e3, "least": min(run.seconds) * 1e3,
                     "ratio": mine / middle[run.peer], "loss": run.loss,
                     "parameters": sum(p.numel() for p in run.model.parameters())})
        if run.backend == "fp8c":
            rows[-1]["linears"] = fp8c.torch.report(run.model).counts()
    return rows


def machine() -> dict[str, Any]:
    """What the figures depend on."""
    cpu = platform.processor() or platform.machine()
    if os.path.exists("/proc/cpuinfo"):
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            cpu = next((line.partition(":")[2].strip() for line in file
                        if line.startswith("model name")), cpu)
    return {"cpu": cpu, "cores": len(os.sched_getaffinity(0)), "threads": torch.get_num_threads(),
            "torch": torch.__version__, "transformers": transformers.__version__}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--recipes", default=",".join(RECIPES))
    parser.add_argument("--turns", type=int, default=20)
    parser.add_argument("--threads", type=int, help="of PyTorch, and so of fp8c")
    parser.add_argument("--json", metavar="FILE", help="write the machine and all rows there")
    args = parser.parse_args()
    names, recipes = args.models.split(","), args.recipes.split(",")
    unknown = [*(set(names) - set(MODELS)), *(set(recipes) - set(RECIPES))]
    if unknown or args.turns < 1:
        parser.error(f"unknown: {', '.join(unknown)}" if unknown else "--turns must be at least 1")
    if args.threads:
        torch.set_num_threads(args.threads)
    here = machine()
    print(f"{here['cpu']}, {here['cores']} cores, {here['threads']} threads; "
          f"torch {here['torch']}, transformers {here['transformers']}; {args.turns} turns")
    rows = []
    for name in names:
        found = measured(name, recipes, args.turns)
        rows += found
        print(f"\n{name}, {found[0]['parameters'] / 1e6:.1f} million parameters\n"
              f"{'backend':9} {'precision':9} {'ms':>9} {'least':>9}  of Inductor's {'loss':>8}")
        for row in found:
            print(f"{row['backend']:9} {row['precision']:9} {row['milliseconds']:9.2f} "
                  f"{row['least']:9.2f}  {row['ratio']:13.3f} {row['loss']:8.4f}", flush=True)
    if args.json:
        with open(args.json, "w", encoding="utf-8") as file:
            json.dump({"machine": here, "turns": args.turns, "rows": rows}, file, indent=1)
            file.write("\n")


if __name__ == "__main__":
    main()
