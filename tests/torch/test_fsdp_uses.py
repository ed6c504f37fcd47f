"""What people do with FSDP2, each beside FSDP2 without fp8c: the same weights after a few steps."""

from __future__ import annotations

import unittest
from typing import Any, Callable

import torch
import torch.distributed as dist
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.utils.checkpoint import checkpoint

from ranks import mesh_of
from shards import (ROWS, WIDTH, Block, batch, compile_blocks, jobs, loss_of, make, own, shard, step, train,
                    whole)
from support import BackendTest

Compile = Callable[[Any], None]  # of a list of blocks; it may do nothing
Values = dict[str, torch.Tensor]


def weights(model: torch.nn.Module) -> Values:
    return {name: whole(param.detach()).clone() for name, param in model.named_parameters()}


def gradients(model: torch.nn.Module) -> Values:
    return {name: whole(param.grad).clone() for name, param in model.named_parameters()
            if param.grad is not None}


def sgd(model: torch.nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD((p for p in model.parameters() if p.requires_grad), lr=0.05, momentum=0.5)


def sharded(model: torch.nn.Sequential, compiles: Compile, **given: Any) -> torch.nn.Sequential:
    given.setdefault("mesh", mesh_of(dist.get_world_size()))
    compiles(model)
    for block in model:
        fully_shard(block, **given)
    return fully_shard(model, **given)


# ---- the ways to train; each gives values that fp8c must not change ----

def accumulation(compiles: Compile, way: str) -> Values:
    """Three micro-batches a step. way: "no sync", "last backward" or "whole" (not resharded between)."""
    model = sharded(make(), compiles)
    optimizer = sgd(model)
    for i in range(2):
        for micro in range(3):
            last = micro == 2
            if way in ("no sync", "whole"):
                model.set_requires_gradient_sync(last)
            if way == "whole":
                model.set_reshard_after_backward(last)
            if way == "last backward":
                model.set_is_last_backward(last)
            loss_of(model, own(batch(10 * i + micro))).backward()
        optimizer.step()
        optimizer.zero_grad()
    return weights(model)


def plainly(compiles: Compile, reshard: Any = True, axes: tuple[int, ...] = (), **sizes: int) -> Values:
    """Three steps. axes: of the mesh."""
    mesh = mesh_of(*(axes or (dist.get_world_size(),)))
    model = sharded(make(**sizes), compiles, reshard_after_forward=reshard, mesh=mesh)
    train(model, model, 3, optimizer=sgd(model), width=sizes.get("width", WIDTH))
    return weights(model)


def policies(compiles: Compile, **given: Any) -> Values:
    """A mixed-precision policy; the dtype of what comes out is a value, too."""
    policy = MixedPrecisionPolicy(**given)
    model = sharded(make(), compiles, mp_policy=policy)
    x = own(batch(0))
    y = model(x if policy.cast_forward_inputs else x.to(policy.param_dtype))
    (y.float() - x.roll(1, 1)).square().mean().backward()
    assert {p.grad.dtype for p in model.parameters()} == {torch.float32}
    return {str(y.dtype): y.detach().float(), **gradients(model)}


class Checkpointed(Block):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return checkpoint(super().forward, x, use_reentrant=False)


class Around(torch.nn.Sequential):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self:
            x = checkpoint(block, x, use_reentrant=False)
        return x


def checkpointed(compiles: Compile, where: str) -> Values:
    """Activation checkpointing "inside" of blocks or "around" them."""
    torch.manual_seed(0)
    kind = Checkpointed if where == "inside" else Block
    model = sharded((Around if where == "around" else torch.nn.Sequential)(*(kind() for _ in range(3))),
                    compiles)
    train(model, model, 3, optimizer=sgd(model))
    return weights(model)


def frozen(compiles: Compile) -> Values:
    """The linears are frozen, the norms are not."""
    model = make()
    for name, param in model.named_parameters():
        param.requires_grad_("norm" in name)
    sharded(model, compiles)
    train(model, model, 3, optimizer=sgd(model))
    return weights(model)


def few_rows(compiles: Compile) -> Values:
    """Rank 0 has all rows but one, then one row, then none."""
    model = sharded(make(), compiles)
    optimizer, first = sgd(model), dist.get_rank() == 0
    for i, rows in enumerate((ROWS, 1, 0)):
        x = batch(i)[:rows] if first else batch(i)[rows:2 * ROWS]
        optimizer.zero_grad()
        (model(x) - x.roll(1, 1)).square().sum().backward()
        optimizer.step()
    return weights(model)


def ignored(compiles: Compile) -> Values:
    """The norms' weights stay plain; each rank's gradients of them are its own."""
    model = make()
    mesh = mesh_of(dist.get_world_size())
    plain = {p for name, p in model.named_parameters() if "norm.weight" in name}
    compiles(model)
    for block in model:
        fully_shard(block, mesh=mesh, ignored_params=plain)
    fully_shard(model, mesh=mesh, ignored_params=plain)
    train(model, model, 3, optimizer=sgd_of_both(model))
    moved = model[1].norm.weight
    with torch.no_grad():
        moved.data = moved.data.clone() * 1.5  # to another address, with the version it had
    train(model, model, 1, first=9, optimizer=sgd_of_both(model))
    return weights(model)


def sgd_of_both(model: torch.nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.05, foreach=False)


def clipped(compiles: Compile) -> Values:
    model = sharded(make(), compiles)
    optimizer = sgd(model)
    norms = []
    for i in range(3):
        optimizer.zero_grad()
        (10 * loss_of(model, own(batch(i)))).backward()
        norms.append(whole(torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)).detach())
        optimizer.step()
    return {"norms": torch.stack(norms), **weights(model)}


def optimizers(compiles: Compile, **given: Any) -> Values:
    """AdamW as its options say, on DTensors; its first steps are as large as lr in each element, so
    beside the weights the losses are compared."""
    model = sharded(make(), compiles)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, eps=1e-3, **given)
    return {"losses": torch.tensor(train(model, model, 4, optimizer=optimizer)), **weights(model)}


def evaluated(compiles: Compile, reshard: bool = True) -> Values:
    """Evaluation between steps, and before the first."""
    model = sharded(make(), compiles, reshard_after_forward=reshard)
    optimizer, seen = sgd(model), []
    for i in range(3):
        model.eval()
        with torch.no_grad():
            seen.append(loss_of(model, own(batch(50))))
        if not reshard:
            for block in model:
                block.reshard()
        model.train()
        step(model, optimizer, own(batch(i)))
    return {"losses": torch.stack(seen), **weights(model)}


def two(compiles: Compile) -> Values:
    """Two models take turns, with the same graphs; then one of them trains alone."""
    models = [sharded(make(seed=seed), compiles) for seed in (1, 2)]
    made = [sgd(model) for model in models]
    for i in range(2):
        losses = [loss_of(model, own(batch(i))) for model in models]
        for one in made:
            one.zero_grad()
        sum(losses).backward()
        for one in made:
            one.step()
    step(models[1], made[1], own(batch(9)))
    return {f"{i}.{name}": value for i, model in enumerate(models)
            for name, value in weights(model).items()}


class Tied(torch.nn.Module):
    """An embedding whose weight is the head's, with an odd number of rows, and a weight of one row."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = torch.nn.Embedding(61, WIDTH)
        self.block = Block()
        self.head = torch.nn.Linear(WIDTH, 61, bias=False)
        self.gate = torch.nn.Linear(WIDTH, 1)
        self.head.weight = self.embed.weight

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.block(self.embed(x))
        return torch.nn.functional.cross_entropy(self.head(h * self.gate(h).sigmoid()), x.flip(0))


def tied(compiles: Compile) -> Values:
    torch.manual_seed(0)
    model = Tied()
    compiles([model])
    fully_shard(model, mesh=mesh_of(dist.get_world_size()))
    optimizer = sgd(model)
    ids = torch.randint(61, (7 * dist.get_world_size(),), generator=torch.Generator().manual_seed(3))
    for _ in range(3):
        optimizer.zero_grad()
        model(own(ids)).backward()
        optimizer.step()
    return weights(model)


def stepped_between(fused: bool) -> tuple[str, int]:
    """What a backward says whose forward was before a step of an optimizer, and by how much the step
    raised versions."""
    model = make(2)
    shard(model, "blocks", "current")
    homes, x = list(model.parameters()), own(batch(0))
    optimizer = torch.optim.AdamW(homes, lr=1e-3, fused=fused)
    waiting = model(x).square().mean()
    model(x).square().mean().backward()
    before = sum(home._version + home._local_tensor._version for home in homes)
    optimizer.step()
    raised = sum(home._version + home._local_tensor._version for home in homes) - before
    optimizer.zero_grad()
    try:
        waiting.backward()
    except RuntimeError as error:
        return str(error), raised
    return "", raised


# ---- a way beside FSDP2 alone ----

def both(way: Callable[..., Values], given: dict[str, Any], recipe: str = "f32",
         strict: bool = True) -> dict[str, float]:
    """How far each value is from what FSDP2 gives without fp8c, over its length. The second run's
    reference is the same way in eager PyTorch."""
    mine = way(lambda blocks: compile_blocks(blocks, recipe, strict=strict), **given)
    torch._dynamo.reset()
    theirs = way(lambda blocks: None, **given)
    assert set(mine) == set(theirs), set(mine) ^ set(theirs)
    return {name: float((mine[name].double() - one.double()).norm() / one.double().norm())
            for name, one in theirs.items()}


WAYS: dict[str, tuple[Callable[..., Values], dict[str, Any]]] = {
    "accumulation, no sync": (accumulation, {"way": "no sync"}),
    "accumulation, last backward": (accumulation, {"way": "last backward"}),
    "accumulation, not resharded": (accumulation, {"way": "whole"}),
    "no reshard": (plainly, {"reshard": False}),
    "odd": (plainly, {"width": 23, "inner": 57}),
    "checkpoint inside": (checkpointed, {"where": "inside"}),
    "checkpoint around": (checkpointed, {"where": "around"}),
    "frozen": (frozen, {}),
    "ignored": (ignored, {}),
    "clipped": (clipped, {}),
    "fused": (optimizers, {"fused": True}),
    "foreach": (optimizers, {"foreach": True}),
    "evaluated": (evaluated, {}),
    "evaluated, no reshard": (evaluated, {"reshard": False}),
    "two": (two, {}),
    "tied": (tied, {}),
}
BF16 = {"param_dtype": torch.bfloat16, "reduce_dtype": torch.float32}
POLICIES = {
    "bf16": BF16,
    "output": {**BF16, "output_dtype": torch.float32},
    "inputs": {**BF16, "cast_forward_inputs": False},
}
FOUR = {
    "hsdp": (plainly, {"axes": (2, 2)}),
    "reshard to two": (plainly, {"reshard": 2}),
    "odd": (plainly, {"width": 23, "inner": 57}),
    "tied": (tied, {}),
}


class Uses(BackendTest):
    def check(self, found: dict[str, list[dict[str, float]]], least: float) -> None:
        for name, ranks in found.items():
            for rank, one in enumerate(ranks):
                with self.subTest(name, rank=rank):
                    self.assertLess(max(one.values()), least, one)

    def test_two_ranks(self) -> None:
        """Within 2^-16 of eager PyTorch's weights."""
        found = jobs(2, *((both, *way) for way in WAYS.values()))
        self.check(dict(zip(WAYS, found)), 2 ** -16)

    def test_four_ranks(self) -> None:
        """The same on four ranks: a 2x2 mesh, a forward's parameters kept on two ranks, ranks without
        a row of a weight."""
        found = jobs(4, *((both, *way) for way in FOUR.values()))
        self.check(dict(zip(FOUR, found)), 2 ** -16)

    def test_policies(self) -> None:
        """Mixed precision: bf16 parameters, gradients reduced in f32. Each rounds at other places, so
        values are within a few roundings of bf16, 2^-9 each, of eager PyTorch's."""
        found = jobs(2, *((both, policies, given, "bf16") for given in POLICIES.values()))
        self.check(dict(zip(POLICIES, found)), 2 ** -6)

    def test_step_between(self) -> None:
        """A backward through parameters that have changed since its forward is an error, also where a
        fused optimizer raises no version."""
        foreach, fused = jobs(2, (stepped_between, False), (stepped_between, True))
        for kind, ranks in (("foreach", foreach), ("fused", fused)):
            for said, raised in ranks:
                with self.subTest(kind):
                    self.assertEqual(raised > 0, kind == "foreach")
                    self.assertIn("was modified between a forward and its backward", said)

    def test_few_rows(self) -> None:
        """One row on a rank; none: PyTorch runs the graph of the rank that has none."""
        found = jobs(2, (both, few_rows, {}, "f32", False))
        self.check({"few rows": found[0]}, 2 ** -16)


if __name__ == "__main__":
    unittest.main()
