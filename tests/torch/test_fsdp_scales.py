"""FSDP2: scales that all ranks share, and checkpoints of them that another number of ranks loads."""

from __future__ import annotations

import os
import tempfile
import unittest
from typing import Any
from unittest import mock

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.fsdp import fully_shard

import fp8c.torch
from fp8c.torch.ranks import amaxes
from ranks import mesh_of, outcomes
from shards import (ROWS, WIDTH, batch, compile_blocks, jobs, loss_of, make, own, rounding, scales_of, shard,
                    step)
from support import BackendTest, compiled, programs

ALL = 4 * ROWS  # the rows of a step, whatever the number of ranks


def adam(model: torch.nn.Module) -> torch.optim.Optimizer:
    return torch.optim.AdamW(model.parameters(), lr=1e-2)


# ---- checkpoints ----

class App:
    """The model and its optimizer as PyTorch's guide to torch.distributed.checkpoint has them."""

    def __init__(self, model: torch.nn.Module, optimizer: torch.optim.Optimizer):
        self.model, self.optimizer = model, optimizer

    def state_dict(self) -> dict[str, Any]:
        model, optimizer = get_state_dict(self.model, self.optimizer)
        return {"model": model, "optimizer": optimizer}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        set_state_dict(self.model, self.optimizer, model_state_dict=state["model"],
                       optim_state_dict=state["optimizer"])


def parts(model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    return {"app": App(model, optimizer), "fp8": fp8c.torch.ScalesState(model)}


def go_on(call: Any, model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    """Three more steps: the scales behind the first forward, the losses of all rows, the weights."""
    scales, losses = {}, []
    for i in range(3):
        optimizer.zero_grad()
        loss = loss_of(call, own(batch(7 + i, 1, ALL)))
        if not scales:
            scales = scales_of(model)
        loss.backward()
        optimizer.step()
        mean = loss.detach().clone() / dist.get_world_size()
        dist.all_reduce(mean)
        losses.append(float(mean))
    return {"scales": scales, "losses": losses,
            "weights": [p.full_tensor().tolist() for p in model.parameters()]}


def saved(folder: str, how: str) -> dict[str, Any]:
    """Train, save behind a step, and go on as if nothing had been."""
    model = make()
    call, optimizer = shard(model, how, "delayed"), adam(model)
    for i in range(4):
        step(call, optimizer, own(batch(i, 1, ALL)))
    assert any(s.due and not s.bound.can_run() for s in programs(model))  # a step is not pushed yet
    dcp.save(parts(model, optimizer), checkpoint_id=folder)
    return go_on(call, model, optimizer)


def resumed(folder: str, how: str, again: str = "") -> dict[str, Any]:
    """Load into another model, and go on. again: where the state is saved and loaded again first, before
    any program is compiled."""
    model, other = make(seed=1), make(seed=2)
    call, optimizer = shard(model, how, "delayed"), adam(model)
    dcp.load(parts(model, optimizer), checkpoint_id=folder)
    if again:
        dcp.save(parts(model, optimizer), checkpoint_id=again)
        model = make(seed=3)
        call, optimizer = shard(model, how, "delayed"), adam(model)
        dcp.load(parts(model, optimizer), checkpoint_id=again)
    fp8c.torch.load_state_dict(other, {})  # another model's state is not this one's
    return go_on(call, model, optimizer)


# ---- the same scales ----

def shared(exchanged: bool) -> dict[str, Any]:
    """The scales behind some steps, on rows that are larger on later ranks."""
    def alone(*_: Any) -> None: ...

    model = make()
    call, optimizer = shard(model, "blocks", "delayed"), adam(model)
    with mock.patch.object(amaxes, "exchange", amaxes.exchange if exchanged else alone):
        for i in range(3):
            step(call, optimizer, own(batch(i)) * (1 + dist.get_rank()))
        call(own(batch(9)))  # pushes
    return scales_of(model)


def one_process(choose: str) -> dict[str, tuple[list[float], list[float]]]:
    """For each operand, its history here and in one process that has all rows. choose: the parameters of
    the optimizers: "all", "norms" with frozen linears, or "two" optimizers."""
    found = []
    for ranks in (dist.get_world_size(), 1):
        model = make()
        with torch.no_grad():
            for i, block in enumerate(model):  # operands of one name have other amaxes
                block.up.weight *= 3.0 ** i
        norms = [p for name, p in model.named_parameters() if "norm" in name]
        if choose == "norms":
            for name, param in model.named_parameters():
                param.requires_grad_("norm" in name)
        call = shard(model, "blocks", "delayed") if ranks > 1 else compiled(model, "delayed")
        params = list(model.parameters())
        groups = {"all": [params], "norms": [norms], "two": [params[0::2], params[1::2]]}[choose]
        if ranks > 1 and choose == "norms":
            groups = [[p for name, p in model.named_parameters() if "norm" in name]]
        if ranks > 1 and choose == "two":
            params = list(model.parameters())
            groups = [params[0::2], params[1::2]]
        made = [torch.optim.SGD(one, lr=1e-3) for one in groups]
        for i in range(2):
            x = batch(i, dist.get_world_size())
            loss = loss_of(call, own(x) if ranks > 1 else x)
            loss.backward()
            for one in made:
                one.step()
                one.zero_grad()
        call(own(batch(9)) if ranks > 1 else batch(9, dist.get_world_size()))  # pushes
        found.append(fp8c.torch.state_dict(model))
    assert set(found[0]) == set(found[1]), set(found[0]) ^ set(found[1])
    return {name: (found[0][name][:2].tolist(), found[1][name][:2].tolist()) for name in found[0]}


def not_finite(value: float) -> dict[str, Any]:
    """One rank has rows that are not finite in one step, whose gradients are then thrown away."""
    model = make()
    call, optimizer = shard(model, "blocks", "delayed"), adam(model)
    seen = []
    for i in range(3):
        x = own(batch(i)).clone()
        if i == 1 and dist.get_rank() == 1:
            x[0, 0] = value
        optimizer.zero_grad()
        loss_of(call, x).backward()
        for param in model.parameters():
            param.grad = torch.zeros_like(param) if i == 1 else param.grad
        optimizer.step()
        call(own(batch(9)))  # pushes
        seen.append(scales_of(model))
    return {"seen": seen}


def evaluated(evaluations: int) -> dict[str, Any]:
    """Steps with evaluations between them: other programs, which take the histories over."""
    model = make()
    call, optimizer = shard(model, "blocks", "delayed"), adam(model)
    losses = []
    for i in range(4):
        losses.append(step(call, optimizer, own(batch(i))))
        for rows in range(4, 4 + evaluations):
            model.eval()
            with torch.no_grad():
                call(own(batch(50, rows=rows)))
            model.train()
    call(own(batch(9)))
    return {"losses": losses, "scales": scales_of(model)}


def moved() -> float:
    """A plain parameter beside sharded ones, which gets other memory with other values: the error of
    the next result, over its length."""
    model, mesh = make(1), mesh_of(dist.get_world_size())
    compile_blocks(model, "current")
    fully_shard(model[0], mesh=mesh, ignored_params={model[0].up.weight})
    x = own(batch(0))
    for times in (1.0, 1e4):
        model[0].up.weight.data = model[0].up.weight.data * times
        y = model[0](x).detach()
    torch._dynamo.reset()
    twin = make(1)
    with torch.no_grad():
        twin[0].up.weight *= 1e4
        wanted = twin[0](x)
    return float((y - wanted).norm() / wanted.norm())


def lacking_group() -> None:
    """A group of this rank alone."""
    model = make()
    call = shard(model, "blocks", "delayed")
    alone = [dist.new_group([rank]) for rank in range(dist.get_world_size())]
    fp8c.torch.set_amax_group(model, alone[dist.get_rank()])
    call(own(batch(0)))


def given_group(given: bool) -> dict[str, Any]:
    """A model that is not sharded, with or without a group for its amaxes."""
    model = make()
    if given:
        fp8c.torch.set_amax_group(model, dist.group.WORLD)
    call, optimizer = compiled(model, "delayed"), adam(model)
    for i in range(2):
        loss_of(call, own(batch(i))).backward()
        for param in model.parameters():
            dist.all_reduce(param.grad)
        optimizer.step()
        optimizer.zero_grad()
    call(own(batch(9)))
    return scales_of(model)


class Scales(BackendTest):
    def test_the_same_on_all_ranks(self) -> None:
        """All ranks have the scales of the largest amaxes. If each keeps its own (planted), they differ:
        so this test can fail."""
        equal, planted, given, left = jobs(2, (shared, True), (shared, False), (given_group, True),
                                           (given_group, False))
        self.assertEqual(equal[0], equal[1])
        self.assertGreater(len(equal[0]), 12)
        self.assertNotEqual(planted[0], planted[1])
        self.assertEqual(given[0], given[1])
        self.assertNotEqual(left[0], left[1])

    def test_one_process(self) -> None:
        """An operand's amax is that of one process with all rows, also where its weight is frozen or
        belongs to another optimizer. A rank's loss is the mean of its own rows, so its gradients are as
        many times larger as there are ranks. The first step scales activations and gradients by a rank's
        own amaxes, so FP8 rounds values otherwise, E5M2 by 2^-3 each. Amaxes of other operands are
        three times as large, or larger."""
        ways = ("all", "norms", "two")
        for way, ranks in zip(ways, jobs(2, *((one_process, way) for way in ways))):
            for rank in ranks:
                for name, (own_history, wanted) in rank.items():
                    with self.subTest(way, operand=name):
                        times = 2.0 if name.endswith(":dy") else 1.0
                        for a, b in zip(own_history, wanted):
                            self.assertAlmostEqual(a / (times * b), 1.0, delta=0.05 if times == 1 else 0.4)

    def test_not_finite(self) -> None:
        """A NaN or an Inf on one rank: no rank pushes that step's amax of the operands that it reached,
        and later steps go on."""
        for value, ranks in zip((float("nan"), float("inf")),
                                jobs(2, (not_finite, float("nan")), (not_finite, float("inf")))):
            with self.subTest(value):
                self.assertEqual(ranks[0], ranks[1])
                first, bad, last = ranks[0]["seen"]
                for name, row in first.items():
                    if not name.endswith(":w"):  # those are of the whole weight, on every rank
                        self.assertEqual(row[:16], bad[name][:16], name)
                self.assertNotEqual(bad, last)
                self.assertTrue(all(torch.tensor(row).isfinite().all() for row in last.values()))

    def test_evaluation(self) -> None:
        """Evaluations between steps change no bit of the training."""
        plain, between = jobs(2, (evaluated, 0), (evaluated, 2))
        self.assertEqual(plain, between)

    def test_plain_parameter_that_moves(self) -> None:
        """It is scaled by its new values: with the old scale its codes would saturate, and the error
        would be near 1. FP8 rounds operands by 2^-4 at most."""
        for error in jobs(2, (moved,))[0]:
            self.assertLess(error, 0.1)

    def test_lacking_group(self) -> None:
        for rank, one in enumerate(outcomes(2, lacking_group)):
            self.assertIn(f"the group of set_amax_group has the ranks [{rank}], but FSDP2 shards this model "
                          f"over the ranks [0, 1]: {1 - rank} would have other scales", repr(one))


class Checkpoints(BackendTest):
    def test_resume(self) -> None:
        """Saved on two ranks behind a step whose amaxes are not pushed. Resumed on two, with the bits of
        the run that was not interrupted, also after the state was saved again before any call. Resumed
        on four: the same scales; the next loss is the mean of the same values in another order, the
        later ones come from weights that differ by that."""
        for how in ("blocks", "whole"):
            with self.subTest(how), tempfile.TemporaryDirectory() as folder:
                path, again = os.path.join(folder, "a"), os.path.join(folder, "b")
                plain, two = jobs(2, (saved, path, how), (resumed, path, how, again))
                self.assertEqual(two, plain)
                four = jobs(4, (resumed, path, how))[0]
                for one in four:
                    self.assertEqual(one["scales"], plain[0]["scales"])
                    self.assertAlmostEqual(one["losses"][0] / plain[0]["losses"][0], 1.0,
                                           delta=rounding(ALL * WIDTH))
                    for a, b in zip(one["losses"], plain[0]["losses"]):
                        self.assertAlmostEqual(a / b, 1.0, delta=1e-3)


if __name__ == "__main__":
    unittest.main()
