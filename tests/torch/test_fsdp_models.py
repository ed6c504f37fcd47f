"""FSDP2 with models of Hugging Face's classes, and the memory of a deep model between calls."""

from __future__ import annotations

import unittest
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

import fp8c.torch
import models
from ranks import mesh_of
from shards import batch, compile_blocks, jobs, loss_of, make, options, own, rounding, shard, step
from support import BackendTest, programs

MAKERS = {"llama": lambda: models.llama(None), "gpt2": models.gpt2}
LINEARS = {"llama": 15, "gpt2": 9}


def blocks_of(model: torch.nn.Module) -> torch.nn.ModuleList:
    return model.model.layers if hasattr(model, "model") else model.transformer.h


def tokens(ranks: int, length: int = 9) -> torch.Tensor:
    """A sequence a rank, and one more on the first."""
    return torch.randint(3, 61, (ranks + 1, length), generator=torch.Generator().manual_seed(11))


def part(ids: torch.Tensor, rank: int) -> dict[str, Any]:
    rows = ids[: 2] if rank == 0 else ids[rank + 1: rank + 2]
    return {"input_ids": rows, "labels": rows, "use_cache": False}


def built(name: str, how: str, recipe: str, sharded: bool, **given: Any) -> tuple[torch.nn.Module, Any]:
    """A model and what to call. how: "blocks" and the head are compiled one by one, or the "whole"."""
    model, _ = models.make(MAKERS[name])
    if how == "blocks":
        compile_blocks([*blocks_of(model), model.lm_head], recipe)
    if sharded:
        given.setdefault("mesh", mesh_of(dist.get_world_size()))
        for block in blocks_of(model):
            fully_shard(block, **given)
        fully_shard(model, **given)
    if how == "blocks":
        return model, model
    return model, torch.compile(model, backend=fp8c.torch.fp8c_backend, options=options(recipe))


def gradients(name: str, how: str) -> dict[str, float]:
    """Each gradient's error in units of its bound: see `test_gradients`."""
    ranks, me = dist.get_world_size(), dist.get_rank()
    ids = tokens(ranks)
    model, call = built(name, how, "f32", True)
    call(**part(ids, me)).loss.backward()
    assert fp8c.torch.report(model).counts() == {"f32": LINEARS[name]}
    own_gradients = {n: p.grad.full_tensor() for n, p in model.named_parameters()}
    torch._dynamo.reset()
    single, call = built(name, "blocks", "f32", False)
    total, sizes = {}, {}
    for rank in range(ranks):
        single.zero_grad()
        call(**part(ids, rank)).loss.backward()
        for n, p in single.named_parameters():
            total[n] = total.get(n, 0) + p.grad.double() / ranks
            sizes[n] = sizes.get(n, 0) + p.grad.double().abs() / ranks
    assert set(total) == set(own_gradients)
    found = {}
    for n, grad in own_gradients.items():
        error = (grad.double() - total[n]).abs()
        if how == "blocks":
            found[n] = float((error / (rounding(ranks) * sizes[n] + 2.0 ** -140)).max())
        else:
            found[n] = float(error.norm() / total[n].norm()) * 2 ** 18
    return found


def training(name: str, how: str, recipe: str, policy: bool, sharded: bool = True) -> dict[str, Any]:
    """Ten steps: the losses, the FP8 GEMMs that were run, what the report says."""
    given = {"mp_policy": MixedPrecisionPolicy(torch.bfloat16, torch.float32)} if policy else {}
    model, call = built(name, how, recipe, sharded, **given)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    ids, losses = tokens(dist.get_world_size()), []
    for _ in range(10):
        optimizer.zero_grad()
        loss = call(**part(ids, dist.get_rank())).loss
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    report = fp8c.torch.report(model)
    return {"losses": losses, "executed": report.fp8_gemms_executed, "counts": report.counts()}


# ---- memory ----

def memory(recipe: str) -> dict[str, Any]:
    """What is held between calls of a model of 12 layers, in bytes. least: the elements of the smallest
    matrix, which are the bytes of its codes."""
    model = make(12, width=256, inner=768)
    call = shard(model, "blocks", recipe)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    held, gathered, lent = [], [], []

    def look() -> None:
        for one in programs(model):
            held.append(one.bound.program.info().held_bytes)
            gathered.extend(p.untyped_storage().size() for p in one.bound.params)
            lent.extend(lender.bytes for side, lender in one.bound._lenders.items() if side == "backward")

    for i in range(3):
        optimizer.zero_grad()
        loss = loss_of(call, own(batch(i, width=256)))
        look()
        loss.backward()
        optimizer.step()
        look()
    least = min(p.numel() for p in model[0].parameters() if p.dim() == 2)
    return {"held": held, "gathered": gathered, "lent": lent, "programs": len(programs(model)),
            "least": least}


class Models(BackendTest):
    def test_gradients(self) -> None:
        """In f32, on two and four ranks, each element of each gradient within a bound of its sum in one
        process with the same rows.

        FSDP2 gives (g_1 + ... + g_n) / n, where g_r is the gradient of rank r's rows. One process
        computes the same g_r, bit by bit: its programs are the same, and so are their inputs. So what
        differs is the sum in f32, in any order, and the division, n roundings in all. By Higham's bound
        the error of an element is at most n u / (1 - n u) times (|g_1| + ... + |g_n|) / n, with
        u = 2^-24. The sum in one process is made in f64.

        If the whole is compiled after sharding, dynamo cuts the graph elsewhere: the head and the loss
        are in one program, which rounds otherwise than PyTorch's loss. Then the error's norm is within
        2^-18 of the gradient's, that is 64 u."""
        every = [(name, how) for name in MAKERS for how in ("blocks", "whole")]
        for ranks, ways in ((2, every), (4, [every[0], every[-1]])):
            for way, found in zip(ways, jobs(ranks, *((gradients, *way) for way in ways))):
                for rank, one in enumerate(found):
                    with self.subTest(ranks=ranks, way=way, rank=rank):
                        self.assertLess(max(one.values()), 1.0, one)

    def test_training(self) -> None:
        """Every linear is FP8 on each rank, and runs as often as without FSDP2. Where the whole is
        compiled, the head and the loss are in one program, whose backward makes the logits again."""
        ways = [("llama", "blocks", "delayed", False), ("llama", "whole", "current", True),
                ("gpt2", "blocks", "block", True), ("gpt2", "whole", "delayed", False)]
        found = jobs(2, *((training, *way) for way in ways),
                     (training, "llama", "blocks", "delayed", False, False),
                     (training, "gpt2", "blocks", "block", False, False))
        wanted = {"llama": found[-2][0]["executed"], "gpt2": found[-1][0]["executed"]}
        for (name, *way), ranks in zip(ways, found):
            for one in ranks:
                with self.subTest(name, way=way):
                    self.assertLess(one["losses"][-1], 0.8 * one["losses"][0])
                    self.assertEqual(one["counts"], {"FP8": LINEARS[name]})
                    self.assertEqual(one["executed"], wanted[name] + 10 * (way[0] == "whole"))

    def test_memory(self) -> None:
        """Between calls no program of 12 layers holds a parameter, its codes or its gradient: FSDP2's
        storages are empty, what a program holds is less than the codes of one weight, and gradients
        are PyTorch's memory. (The resident set says little: compiled programs and dynamo are in it.)"""
        recipes = ("delayed", "bf16")
        for recipe, ranks in zip(recipes, jobs(4, *((memory, recipe) for recipe in recipes))):
            for one in ranks:
                with self.subTest(recipe):
                    self.assertEqual(one["programs"], 12)
                    self.assertEqual(set(one["gathered"]), {0})
                    self.assertEqual(sum(one["lent"]), 0)
                    self.assertLess(max(one["held"]), one["least"])


if __name__ == "__main__":
    unittest.main()
