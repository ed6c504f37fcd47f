"""FSDP2: sharded parameters, in processes that train together by gloo."""

from __future__ import annotations

import unittest
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

import fp8c.torch
from ranks import mesh_of, together
from support import BackendTest, programs

WIDTH, ROWS = 24, 5


class Block(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = torch.nn.LayerNorm(WIDTH)
        self.up, self.down = torch.nn.Linear(WIDTH, 56), torch.nn.Linear(56, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(torch.nn.functional.gelu(self.up(self.norm(x))))


def make(blocks: int = 3) -> torch.nn.Sequential:
    torch.manual_seed(0)
    return torch.nn.Sequential(*(Block() for _ in range(blocks)))


def batch(step: int, ranks: int) -> torch.Tensor:
    return torch.randn(ROWS * ranks, WIDTH, generator=torch.Generator().manual_seed(step))


def own(x: torch.Tensor) -> torch.Tensor:
    return x.chunk(dist.get_world_size())[dist.get_rank()]


def options(recipe: str) -> dict[str, Any]:
    return {"recipe": recipe, "strict": True, "timeout": 60}


def shard(model: torch.nn.Sequential, how: str, recipe: str, **given: Any) -> Any:
    """The model sharded block by block; -> what to call. how: "blocks", compiled one by one, or
    "whole", compiled afterwards."""
    given.setdefault("mesh", mesh_of(dist.get_world_size()))
    for block in model:
        if how == "blocks":
            block.compile(backend=fp8c.torch.fp8c_backend, options=options(recipe))
        fully_shard(block, **given)
    fully_shard(model, **given)
    if how == "blocks":
        return model
    return torch.compile(model, backend=fp8c.torch.fp8c_backend, options=options(recipe))


def gradients(how: str, reshard: bool) -> dict[str, float]:
    """Each gradient's distance from that of one process with all rows, over its length."""
    model, whole = make(), make()
    call = shard(model, how, "f32", reshard_after_forward=reshard)
    x = batch(0, dist.get_world_size())
    call(own(x)).square().mean().backward()
    whole(x).square().mean().backward()
    found = {}
    for (name, p), q in zip(model.named_parameters(), whole.parameters()):
        found[name] = float((p.grad.full_tensor() - q.grad).norm() / q.grad.norm())
    return found


def training(how: str, recipe: str, steps: int, policy: bool) -> dict[str, Any]:
    """The losses, the FP8 GEMMs that this rank has run, what the report says, and the scales."""
    model = make()
    given = {"mp_policy": MixedPrecisionPolicy(torch.bfloat16, torch.float32)} if policy else {}
    call = shard(model, how, recipe, **given)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    losses = []
    for step in range(steps):
        x = batch(step, dist.get_world_size())
        loss = (call(own(x)).float() - own(x).roll(1, 1)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    report = fp8c.torch.report(model)
    return {"losses": losses, "executed": report.fp8_gemms_executed, "counts": report.counts(),
            "scales": {k: v.tolist() for k, v in fp8c.torch.state_dict(model).items()},
            "programs": len(programs(model))}


class Fsdp(BackendTest):
    def test_gradients(self) -> None:
        """Sums of f32 in another order: within 2^-18 of one process's."""
        for ranks, how, reshard in ((2, "blocks", True), (2, "whole", False), (4, "whole", True)):
            with self.subTest(f"{ranks} {how} {reshard}"):
                for one in together(ranks, gradients, how, reshard):
                    self.assertLess(max(one.values()), 2 ** -18)

    def test_training(self) -> None:
        """Each rank runs its linears in FP8, and under `delayed` all ranks have the same scales."""
        for recipe, how, policy in (("delayed", "blocks", False), ("delayed", "whole", True),
                                    ("current", "blocks", True), ("block", "whole", False)):
            with self.subTest(f"{recipe} {how} {policy}"):
                results = together(2, training, how, recipe, 12, policy)
                for one in results:
                    self.assertLess(sum(one["losses"][-3:]), 0.7 * sum(one["losses"][:3]))
                    self.assertEqual(one["counts"], {"FP8": 6})
                    self.assertEqual(one["executed"], 12 * 17)  # the first block's input has no gradient
                self.assertEqual(results[0]["scales"], results[1]["scales"])
                self.assertEqual(len(results[0]["scales"]) > 1, recipe == "delayed")


if __name__ == "__main__":
    unittest.main()
