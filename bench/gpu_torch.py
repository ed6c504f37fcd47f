#!/usr/bin/env python3
"""The models of bench_gpu in PyTorch: torch.compile, autocast to bf16, f32 parameters, fused AdamW.

The same sizes, batch, data and optimizer as frontend/models/gpt2_124m.f8 and mpt_1b.f8 with bench_gpu's
batches; the median of the rounds, after a few steps that are not counted. Writes the records that
bench/README.md describes, one JSON object a line.

Recipes: bf16, and where torchao is installed its float8 training with one scale for a tensor
(tensorwise) or for each row (rowwise); the head stays bf16, as in ours. fp8c-RECIPE compiles the same
model by torch.compile's backend fp8c, under RECIPE with the head in bf16; the optimizer is the same.
te-RECIPE has Transformer Engine's TransformerLayer for blocks, which runs as it is: torch.compile gets
the head and the loss alone. Its recipes have the defaults of that library.

usage: gpu_torch.py [--rounds N] [--recipe RECIPE | --table] gpt2|gpt2-even|mpt ...

--table runs each recipe in a process of its own and prints a table: tokens a second, also over those of
Inductor's bf16, the milliseconds of a step, and the peak of PyTorch's allocator. A line "skipped: ..."
names each recipe that can't run here. Exit code 77: none can.
"""
import argparse
import importlib.util
import json
import statistics
import subprocess
import sys
import time

import torch
import torch.nn.functional as F
from torch import nn

SIZES = {
    "gpt2": dict(name="gpt2_124m", B=16, T=1024, C=768, H=12, L=12, V=50257, gelu="tanh", lr=6e-4),
    "gpt2-even": dict(name="gpt2_124m_v50304", B=16, T=1024, C=768, H=12, L=12, V=50304, gelu="tanh", lr=6e-4),
    "mpt": dict(name="mpt_1b", B=8, T=2048, C=2048, H=16, L=24, V=50368, gelu="none", lr=2e-4),
}
RECIPES = ["bf16", "tensorwise", "rowwise", "fp8c-bf16", "fp8c-delayed", "fp8c-current", "te-bf16", "te-delayed",
           "te-current"]
PARAMETERS = {"gpt2": 124439808, "gpt2-even": 124475904, "mpt": 1315950592}


class Block(nn.Module):
    def __init__(self, C, H, gelu):
        super().__init__()
        self.H, self.gelu = H, gelu
        self.ln_1, self.ln_2 = nn.LayerNorm(C), nn.LayerNorm(C)
        self.qkv, self.proj = nn.Linear(C, 3 * C), nn.Linear(C, C)
        self.up, self.down = nn.Linear(C, 4 * C), nn.Linear(4 * C, C)

    def forward(self, x):
        B, T, C = x.shape
        q, k, v = self.qkv(self.ln_1(x)).view(B, T, 3, self.H, C // self.H).permute(2, 0, 3, 1, 4)
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(a.transpose(1, 2).reshape(B, T, C))
        return x + self.down(F.gelu(self.up(self.ln_2(x)), approximate=self.gelu))


def te_block(C, H, gelu):
    """Block's parameters in Transformer Engine's layer. Its GELU is the one by tanh."""
    from transformer_engine.pytorch import TransformerLayer
    return TransformerLayer(C, 4 * C, H, hidden_dropout=0.0, attention_dropout=0.0, self_attn_mask_type="causal",
                            fuse_qkv_params=True, attn_input_format="bshd", activation="gelu")


class Model(nn.Module):
    def __init__(self, B, T, C, H, L, V, gelu, block=Block, **_):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(V, C), nn.Parameter(torch.empty(T, C))
        self.blocks = nn.ModuleList(block(C, H, gelu) for _ in range(L))
        self.ln_f = nn.LayerNorm(C)
        for name, p in self.named_parameters():
            if p.dim() > 1:
                into_residual = any(n in name for n in ("proj", "down", "fc2"))
                nn.init.normal_(p, std=0.02 / (2 * L) ** 0.5 if into_residual else 0.02)
            elif name.endswith("bias"):
                nn.init.zeros_(p)

    def forward(self, tokens, targets):
        x = self.wte(tokens) + self.wpe
        for block in self.blocks:
            x = block(x)
        return self.loss(x, targets)

    def loss(self, x, targets):
        logits = F.linear(self.ln_f(x), self.wte.weight)
        return F.cross_entropy(logits.view(-1, logits.shape[-1]).float(), targets.view(-1))


def batch(number, B, T, V):
    """bench_gpu.c's fill_batch."""
    words, mask = min(V, 8192), (1 << 64) - 1
    rows = []
    for b in range(B):
        x, before, last, row = ((number * 1000003 + b) * 0x9E3779B97F4A7C15 + 1) & mask, 0, 1, []
        for _ in range(T + 1):
            x ^= (x << 13) & mask
            x ^= x >> 7
            x ^= (x << 17) & mask
            row.append(last)
            before, last = last, (before * 7 + last * 3 + 11) % words if x % 8 else x // 8 % words
        rows.append(row)
    ids = torch.tensor(rows, device="cuda")
    return ids[:, :-1].contiguous(), ids[:, 1:].contiguous()


def report(name, value, unit):
    print(json.dumps({"event": "bench", "name": name, "value": value, "unit": unit}), flush=True)


def in_float8(model, recipe):
    from torchao.float8 import Float8LinearConfig, convert_to_float8_training
    return convert_to_float8_training(model, config=Float8LinearConfig.from_recipe_name(recipe))


def in_fp8c(model, recipe):
    import fp8c.torch
    options = {"recipe": recipe, "strict": True}
    if recipe != "bf16":
        options["rules"] = ['"wte" = bf16']  # the head
    return torch.compile(model, backend=fp8c.torch.fp8c_backend, options=options)


def in_te(model, recipe):
    import transformer_engine.pytorch as te
    from transformer_engine.common.recipe import DelayedScaling, Float8CurrentScaling
    scaling = {"bf16": None, "delayed": DelayedScaling(), "current": Float8CurrentScaling()}[recipe]
    model.loss = torch.compile(model.loss)

    def call(tokens, targets):
        x = model.wte(tokens) + model.wpe
        with te.autocast(enabled=scaling is not None, recipe=scaling):
            for block in model.blocks:
                x = block(x)
        return model.loss(x, targets)
    return call


def compile_model(model, recipe):
    """The model as a call for a step's forward, under a recipe."""
    of, _, name = recipe.rpartition("-")
    if of == "fp8c":
        return in_fp8c(model, name)
    if of == "te":
        return in_te(model, name)
    return torch.compile(model if recipe == "bf16" else in_float8(model, recipe))


def bench(which, rounds, recipe):
    s = SIZES[which]
    torch.manual_seed(1)
    torch.cuda.reset_peak_memory_stats()
    with torch.device("cuda"):
        model = Model(**s, block=te_block if recipe.startswith("te-") else Block)
    parameters = sum(p.numel() for p in model.parameters())
    assert parameters == PARAMETERS[which], f"{parameters} parameters, not {PARAMETERS[which]}"
    compiled = compile_model(model, recipe)
    ours = recipe.startswith("fp8c-")
    decay = [p for p in model.parameters() if p.dim() > 1]
    rest = [p for p in model.parameters() if p.dim() <= 1]
    optimizer = torch.optim.AdamW(
        [{"params": decay, "weight_decay": 0.1}, {"params": rest, "weight_decay": 0.0}],
        lr=s["lr"], betas=(0.9, 0.95), eps=1e-8, fused=True)
    tokens, targets = batch(0, s["B"], s["T"], s["V"])

    def step():
        with torch.autocast("cuda", dtype=torch.bfloat16, enabled=not ours):  # fp8c casts by its recipe
            loss = compiled(tokens, targets)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss

    start = time.perf_counter()
    for _ in range(5):
        loss = step()
    torch.cuda.synchronize()
    warm = time.perf_counter() - start
    seconds = []
    for _ in range(rounds):
        start = time.perf_counter()
        loss = step()
        torch.cuda.synchronize()
        seconds.append(time.perf_counter() - start)
    assert torch.isfinite(loss), "the loss is not finite"
    middle = statistics.median(seconds)
    report(f"{s['name']}_torch_tokens_per_second_{recipe}", s["B"] * s["T"] / middle, "tokens/s")
    report(f"{s['name']}_torch_step_{recipe}", middle * 1e3, "ms")
    report(f"{s['name']}_torch_peak_memory_{recipe}", torch.cuda.max_memory_allocated() / 2**30, "GiB")
    report(f"{s['name']}_torch_warm_up_seconds_{recipe}", warm, "s")


LIBRARIES = {"tensorwise": "torchao", "rowwise": "torchao", "te": "transformer_engine", "fp8c": "fp8c"}
SECONDS = 300  # for a recipe


def why_not():
    """Why nothing can run here; empty: it can."""
    return "" if torch.cuda.is_available() else "PyTorch sees no GPU"


def run_alone(recipe, which, rounds):
    """The figures of a recipe, run in a process of its own, by name; or why there are none."""
    library = LIBRARIES.get(recipe, LIBRARIES.get(recipe.partition("-")[0]))
    if library and importlib.util.find_spec(library) is None:
        return {}, f"python3 has no {library}"
    command = [sys.executable, __file__, "--rounds", str(rounds), "--recipe", recipe, which]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS)
    except subprocess.TimeoutExpired:
        return {}, f"it took more than {SECONDS} s"
    found = {}
    for line in done.stdout.splitlines():
        if line.startswith("{"):
            record = json.loads(line)
            name = record["name"].removeprefix(SIZES[which]["name"] + "_torch_")
            found[name.removesuffix("_" + recipe)] = record["value"]
    last = (done.stderr.strip().splitlines() or ["no message"])[-1]
    return found, f"exit code {done.returncode}: {last}" if done.returncode else ""


def table(which, rounds):
    """Print the table of a model. -> Whether all recipes whose libraries are here have run."""
    rows, ok, base = [], True, None
    for recipe in RECIPES:
        found, error = run_alone(recipe, which, rounds)
        if error:
            missing = error.startswith("python3 has no")
            ok = ok and missing
            print(f"{'skipped' if missing else 'FAILED'}: {which} {recipe}: {error}", flush=True)
            continue
        base = found["tokens_per_second"] if recipe == "bf16" else base
        rows.append((recipe, found))
    print(f"{which:12} {'tokens/s':>10} {'of bf16':>8} {'step':>10} {'peak':>10}")
    for recipe, found in rows:
        of_bf16 = f"{found['tokens_per_second'] / base:8.3f}" if base else f"{'-':>8}"
        print(f"{recipe:12} {found['tokens_per_second']:10.0f} {of_bf16} {found['step']:7.1f} ms "
              f"{found['peak_memory']:6.2f} GiB")
    return ok


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--rounds", type=int, default=10)
    p.add_argument("--recipe", choices=RECIPES, default="bf16")
    p.add_argument("--table", action="store_true")
    p.add_argument("models", nargs="+", choices=sorted(SIZES))
    args = p.parse_args()
    if args.table:
        if why_not():
            print(f"skipped: {' '.join(args.models)}: {why_not()}")
            sys.exit(77)
        sys.exit(not all([table(which, args.rounds) for which in args.models]))
    torch.set_float32_matmul_precision("high")
    for which in args.models:
        bench(which, args.rounds, args.recipe)
        torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
