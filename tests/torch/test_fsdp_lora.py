"""LoRA, as peft makes it, with FSDP2: a frozen model in FP8, and adapters that are trained."""

from __future__ import annotations

import os
import tempfile
import unittest
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

import fp8c.torch
import models
from ranks import mesh_of
from shards import batch, compile_blocks, jobs, loss_of, make, options, own, rounding, shard
from support import BackendTest, programs
from test_fsdp_models import part, tokens

try:
    import peft
except ImportError:
    peft = None

LAYERS, RANK = 4, 3
ADAPTED = ("q_proj", "v_proj", "down_proj")
STEPS = 3


def adapted(layers: int = LAYERS) -> torch.nn.Module:
    """A Llama whose weights are frozen, with adapters. Both of an adapter's matrices are random: peft
    begins with zeros in one, and then the other has no gradient."""
    torch.manual_seed(0)
    model, _ = models.llama(None, layers=layers)
    return peft.get_peft_model(model, peft.LoraConfig(r=RANK, target_modules=list(ADAPTED), lora_dropout=0.0,
                                                      init_lora_weights=False))


def built(how: str, recipe: str, sharded: bool = True, model: Any = None, **given: Any
          ) -> tuple[torch.nn.Module, Any]:
    """A model and what to call. how: "blocks" and the head are compiled one by one, or the "whole"."""
    model = model or adapted()
    llama = model.get_base_model()
    if how == "blocks":
        compile_blocks([*llama.model.layers, llama.lm_head], recipe)
    if sharded:
        given.setdefault("mesh", mesh_of(dist.get_world_size()))
        for block in llama.model.layers:
            fully_shard(block, **given)
        fully_shard(model, **given)
    if how == "blocks":
        return model, model
    return model, torch.compile(model, backend=fp8c.torch.fp8c_backend, options=options(recipe))


def trainable(model: torch.nn.Module) -> dict[str, torch.nn.Parameter]:
    return {name: p for name, p in model.named_parameters() if p.requires_grad}


def steps(call: Any, model: torch.nn.Module, count: int, lr: float = 0.5) -> list[float]:
    """Steps of SGD, which has no state; -> the losses."""
    optimizer = torch.optim.SGD(trainable(model).values(), lr=lr)
    ids, losses = tokens(dist.get_world_size()), []
    for _ in range(count):
        optimizer.zero_grad()
        loss = call(**part(ids, dist.get_rank())).loss
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    return losses


def gradients(how: str) -> dict[str, Any]:
    """Each gradient's error in units of its bound, as in test_fsdp_models.py; and whose are there."""
    ranks, me = dist.get_world_size(), dist.get_rank()
    ids = tokens(ranks)
    model, call = built(how, "f32")
    call(**part(ids, me)).loss.backward()
    found = {n: p.grad.full_tensor() for n, p in model.named_parameters() if p.grad is not None}
    torch._dynamo.reset()
    single, call = built("blocks", "f32", sharded=False)
    total, sizes = {}, {}
    for rank in range(ranks):
        single.zero_grad()
        call(**part(ids, rank)).loss.backward()
        for n, p in trainable(single).items():
            total[n] = total.get(n, 0) + p.grad.double() / ranks
            sizes[n] = sizes.get(n, 0) + p.grad.double().abs() / ranks
    errors = {}
    for n, grad in found.items():
        error = (grad.double() - total[n]).abs()
        if how == "blocks":
            errors[n] = float((error / (rounding(ranks) * sizes[n] + 2.0 ** -140)).max())
        else:
            errors[n] = float(error.norm() / total[n].norm()) * 2 ** 18
    return {"errors": errors, "wanted": sorted(total), "zero": [n for n, g in total.items() if not g.any()]}


def training(how: str, recipe: str, policy: bool) -> dict[str, Any]:
    """Some steps: the losses, what the report says, and the GEMMs of each linear, by role."""
    given = {"mp_policy": MixedPrecisionPolicy(torch.bfloat16, torch.float32)} if policy else {}
    model, call = built(how, recipe, **given)
    losses = steps(call, model, 2 * STEPS)
    report = fp8c.torch.report(model)
    roles: dict[str, set[str]] = {}
    for one in programs(model):
        names = {linear.name: one.params[linear.name] for linear in one.bound.stage.linears}
        paths = {id(p): n for n, p in fp8c.torch.ranks.sharded.named_parameters(model)}
        for decision in one.bound.decisions():
            if decision.linear in names:
                path = paths[id(names[decision.linear])].removesuffix(".weight")
                roles.setdefault(path, set()).add(decision.role)
    wrong = [n for n, p in model.named_parameters() if (p.grad is None) == p.requires_grad]
    return {"losses": losses, "counts": report.counts(), "executed": report.fp8_gemms_executed,
            "roles": roles, "gradients": wrong}


def frozen_blocks(sharded: bool) -> dict[str, list[float]]:
    """The newest two amaxes of each operand behind two steps, where some blocks are all frozen. Their
    operands have equal names, and other amaxes."""
    model = make(4)
    with torch.no_grad():
        for i, block in enumerate(model):
            block.up.weight *= 3.0 ** i
            block.requires_grad_(i in (0, 2))
    x = [batch(i, 2) for i in range(3)]
    if sharded:
        call, x = shard(model, "blocks", "delayed"), [own(one) for one in x]
    else:
        compile_blocks(model, "delayed")
        call = model
    optimizer = torch.optim.SGD((p for p in model.parameters() if p.requires_grad), lr=1e-3)
    for one in x[:2]:
        optimizer.zero_grad()
        loss_of(call, one).backward()
        optimizer.step()
    call(x[2])  # pushes
    return {name: row[:2].tolist() for name, row in fp8c.torch.state_dict(model).items()}


def roles_of(path: str) -> set[str]:
    """The GEMMs of a linear. The first layer's input comes from a frozen embedding, so it has no gradient:
    what reads it needs none (dgrad). A frozen weight has none (wgrad)."""
    first = ".layers.0.self_attn." in path and any(f".{one}_proj" in path for one in "qkv")
    roles = {"fprop"}
    if not first or "lora_B" in path:
        roles.add("dgrad")
    if "lora_" in path:
        roles.add("wgrad")
    return roles


def saved(folder: str, how: str) -> dict[str, Any]:
    """Train, save the adapters as peft does, and go on."""
    model, call = built(how, "delayed")
    before = {n: p.full_tensor().clone() for n, p in trainable(model).items()}
    steps(call, model, STEPS)
    state = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True, cpu_offload=True,
                                                                 ignore_frozen_params=True))
    scales = fp8c.torch.state_dict(model)
    if dist.get_rank() == 0:
        model.save_pretrained(folder, state_dict=state)
        torch.save(scales, os.path.join(folder, "scales"))
    dist.barrier()
    now = {n: p.full_tensor().clone() for n, p in trainable(model).items()}
    return {"adapters": {n: p.tolist() for n, p in now.items()},
            "moved": all(not torch.equal(before[n], p) for n, p in now.items()),
            "losses": steps(call, model, 2)}


def resumed(folder: str, how: str) -> dict[str, Any]:
    """Load the adapters into a model as it was at first, shard that, and go on."""
    base = adapted().unload()
    model = peft.PeftModel.from_pretrained(base, folder, is_trainable=True)
    adapters = {n: p.tolist() for n, p in trainable(model).items()}
    model, call = built(how, "delayed", model=model)
    fp8c.torch.load_state_dict(model, torch.load(os.path.join(folder, "scales")))
    return {"adapters": adapters, "losses": steps(call, model, 2)}


@unittest.skipIf(peft is None, "peft is not installed")
class Lora(BackendTest):
    def test_gradients(self) -> None:
        """In f32 each element of each adapter's gradient is within the bound of its sum in one process
        with the same rows (test_fsdp_models.py derives it), and frozen weights have no gradient."""
        ways = ("blocks", "whole")
        for how, ranks in zip(ways, jobs(2, *((gradients, how) for how in ways))):
            for rank, one in enumerate(ranks):
                with self.subTest(how, rank=rank):
                    self.assertEqual(len(one["wanted"]), LAYERS * len(ADAPTED) * 2)
                    self.assertEqual(sorted(one["errors"]), one["wanted"])
                    self.assertEqual(one["zero"], [])
                    self.assertLess(max(one["errors"].values()), 1.0, one)

    def test_training(self) -> None:
        """Every linear runs in FP8: those of the frozen model without a GEMM for their weights'
        gradients, and adapters of rank 3 with all. The programs have counted as many as that makes.
        Where the whole is compiled, the backward makes the logits again."""
        ways = [("blocks", "current", False), ("blocks", "block", True), ("whole", "delayed", True)]
        for way, ranks in zip(ways, jobs(2, *((training, *way) for way in ways))):
            for rank, one in enumerate(ranks):
                with self.subTest(way=way, rank=rank):
                    linears = LAYERS * (7 + 2 * len(ADAPTED)) + 1
                    self.assertEqual(one["counts"], {"FP8": linears})
                    self.assertEqual(one["roles"], {path: roles_of(path) for path in one["roles"]})
                    self.assertEqual(len(one["roles"]), linears)
                    each = sum(map(len, one["roles"].values())) + (way[0] == "whole")
                    self.assertEqual(one["executed"], 2 * STEPS * each)
                    self.assertEqual(one["gradients"], [])
                    self.assertLess(one["losses"][-1], one["losses"][0])

    def test_saving(self) -> None:
        """Adapters are saved by peft and FSDP2, and loaded before sharding, also by one process. With the
        scales of fp8c's state_dict the training goes on with the bits of the one that was not
        interrupted."""
        for how in ("blocks", "whole"):
            with self.subTest(how), tempfile.TemporaryDirectory() as folder:
                plain, again = jobs(2, (saved, folder, how), (resumed, folder, how))
                for one in plain:
                    self.assertTrue(one["moved"])
                    self.assertEqual(one["adapters"], plain[0]["adapters"])
                for one, other in zip(plain, again):
                    self.assertEqual(other["adapters"], one["adapters"])
                    self.assertEqual(other["losses"], one["losses"])


class Frozen(BackendTest):
    def test_frozen_blocks(self) -> None:
        """Under `delayed` a program whose weights are all frozen pushes its amaxes at each step, too. On
        two ranks they are those of one process that has all rows. (A rank's loss is the mean of its
        own rows, so its gradients are twice as large. The first step scales by a rank's own amaxes:
        FP8 rounds values otherwise, E5M2 by 2^-3 each. Amaxes of other blocks are three times as large.)"""
        one = frozen_blocks(False)
        self.assertEqual(len(one), 4 * 6)
        for name, row in one.items():
            self.assertGreater(min(row), 0.0, name)
        for two in jobs(2, (frozen_blocks, True))[0]:
            self.assertEqual(set(two), set(one))
            for name, row in two.items():
                times = 2.0 if name.endswith(":dy") else 1.0
                for a, b in zip(row, one[name]):
                    with self.subTest(name):
                        self.assertAlmostEqual(a / (times * b), 1.0, delta=0.05 if times == 1 else 0.4)


if __name__ == "__main__":
    unittest.main()
