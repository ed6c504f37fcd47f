"""The memory that FSDP2's parameters take with fp8c, beside FSDP2 alone. Both are compiled, FSDP2 alone by
backend "eager", so that what dynamo keeps is on both sides. Bytes are counted, not the resident set."""

from __future__ import annotations

import gc
import unittest
import warnings
from typing import Any, Iterable
from unittest import mock

import torch
import torch.distributed as dist
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

import fp8c.torch
from fp8c.torch import private
from fp8c.torch.run import bound
from fp8c.torch.run.arenas import arena_of
from fp8c.torch.run.device import Device
from ranks import mesh_of
from shards import batch, jobs, loss_of, make, options, own
from support import BackendTest, programs

WIDTH, INNER, LAYERS = 256, 769, 12  # the inner width is odd: ranks have other numbers of its rows
SMALL = 2 ** 13  # bytes: of seeds, and of what tests keep


def bytes_of(tensors: Iterable[torch.Tensor]) -> int:
    """The bytes of their storages, each counted once."""
    storages = {s._cdata: s.nbytes() for s in (t.untyped_storage() for t in tensors)}
    return sum(storages.values())


def local(tensor: torch.Tensor) -> torch.Tensor:
    return tensor._local_tensor if hasattr(tensor, "_local_tensor") else tensor


def of_params(model: torch.nn.Module) -> dict[str, int]:
    """What FSDP2 holds of the model: the rank's shards, what is gathered of them, and gradients."""
    gathered = [t for one, _ in private.fsdp2_params()
                for t in (getattr(one, "_unsharded_param", None), *one.all_gather_outputs) if t is not None]
    gradients = [local(p.grad) for p in model.parameters() if p.grad is not None]
    return {"shards": bytes_of(map(local, model.parameters())), "gathered": bytes_of(gathered),
            "gradients": bytes_of(gradients)}


def seen() -> int:
    """The bytes of all tensors that Python knows."""
    gc.collect()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of objects that warn if one asks for their class
        found = [x for x in gc.get_objects() if issubclass(type(x), torch.Tensor)]
    plain = [local(x) for x in found
             if type(x).__module__.startswith("torch") and "Fake" not in type(x).__name__]
    return bytes_of(x for x in plain if x.device.type == "cpu" and x.layout == torch.strided)


def measured(recipe: str, reshard: bool, policy: bool, layers: int = LAYERS, planted: bool = False
             ) -> dict[str, Any]:
    """The bytes that are held behind each forward and each step, and in the end. recipe: "eager" is FSDP2
    alone. planted: each program keeps a copy of its gathered parameters."""
    start = seen()
    found = trained(recipe, reshard, policy, layers, planted, start)
    torch._dynamo.reset()
    found["left"] = seen() - start
    return found


def trained(recipe: str, reshard: bool, policy: bool, layers: int, planted: bool, start: int
            ) -> dict[str, Any]:
    model = make(layers, width=WIDTH, inner=INNER)
    given: dict[str, Any] = {"mesh": mesh_of(dist.get_world_size()), "reshard_after_forward": reshard}
    if policy:
        given["mp_policy"] = MixedPrecisionPolicy(torch.bfloat16, torch.float32)
    for block in model:
        if recipe == "eager":
            block.compile(backend="eager")
        else:
            block.compile(backend=fp8c.torch.fp8c_backend, options=options(recipe))
        fully_shard(block, **given)
    fully_shard(model, **given)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    found: dict[str, Any] = {"forward": [], "step": []}
    kept: list[torch.Tensor] = []
    forward = bound.Bound.forward

    def keeping(self: Any, *args: Any) -> Any:
        kept.extend(p.detach().clone() for p in self.params)
        return forward(self, *args)

    def look(when: str) -> None:
        own_programs = [one.bound for one in programs(model)]
        found[when].append({
            **of_params(model), "seen": seen() - start,
            "held": max((one.program.info().held_bytes for one in own_programs), default=0),
            "backward": sum(lender.bytes for one in own_programs for side, lender in one._lenders.items()
                            if side == "backward")})

    with mock.patch.object(bound.Bound, "forward", keeping if planted else forward):
        for i in range(3):
            optimizer.zero_grad()
            loss = loss_of(model, own(batch(i, width=WIDTH)))
            look("forward")
            loss.backward()
            del loss
            optimizer.step()
            optimizer.zero_grad()
            look("step")
    found["arena"] = arena_of(Device(torch.device("cpu"))).bytes
    found["codes"] = min(p.numel() for p in model[0].parameters() if p.dim() == 2)
    return found


class Memory(BackendTest):
    def check(self, own_ranks: list[dict[str, Any]], alone: list[dict[str, Any]]) -> None:
        for one, other in zip(own_ranks, alone):
            for when in ("forward", "step"):
                for mine, theirs in zip(one[when], other[when]):
                    for what in ("shards", "gathered", "gradients"):
                        self.assertEqual(mine[what], theirs[what], (when, what))
                    self.assertLess(mine["seen"], theirs["seen"] + SMALL, when)
                    self.assertEqual(mine["backward"], 0)
                    self.assertLess(mine["held"], one["codes"])
            self.assertLess(one["left"], SMALL)
            self.assertLess(other["left"], SMALL)

    def test_beside_fsdp2_alone(self) -> None:
        """Behind each forward and each step the parameters' shards, what is gathered of them, and their
        gradients take the bytes that they take without fp8c, and tensors take no more, whether FSDP2
        reshards or not. A program holds less than the codes of one weight (histories, and what a
        forward saves), and no gradients. All programs work in one arena. When the model is gone, all of
        its memory is."""
        cases = [(recipe, *way) for way in ((True, False), (False, True)) for recipe in ("delayed", "eager")]
        found = jobs(2, *((measured, *case) for case in cases))
        for i in (0, 2):
            with self.subTest(cases[i]):
                self.check(found[i], found[i + 1])
        self.assertEqual({one["step"][-1]["gathered"] for one in found[0]}, {0})
        self.assertGreater(min(one["forward"][-1]["gathered"] for one in found[2]), 0)

    def test_few_layers(self) -> None:
        """The arena of 3 layers is that of 9. Copies of gathered parameters that are kept (planted) are
        seen."""
        way = (True, False)
        few, more, alone, planted = jobs(2, (measured, "block", *way, 3), (measured, "block", *way, 9),
                                         (measured, "eager", *way, 3), (measured, "block", *way, 3, True))
        self.check(few, alone)
        for one, other in zip(few, more):
            self.assertEqual(one["arena"], other["arena"])
            self.assertGreater(one["arena"], one["codes"])
        with self.assertRaises(AssertionError):
            self.check(planted, alone)


if __name__ == "__main__":
    unittest.main()
