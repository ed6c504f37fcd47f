"""Weights of linears that FSDP2 gathers as FP8 codes, in processes that train together by gloo."""

from __future__ import annotations

import unittest
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

import fp8c.torch
from fp8c.torch import codes
from ranks import mesh_of, outcomes, together
from support import BackendTest
from test_fsdp import batch, make, options, own

SEED = 20261128


class Counted:
    """The bytes that this rank gives to all-gathers, and the all-reduces, while it is active."""

    def __init__(self) -> None:
        self.gathered = self.reduced = self.reduced_bytes = 0

    def __enter__(self) -> Counted:
        self._was: dict[str, Any] = {}
        for name in ("all_gather_into_tensor", "all_gather_single", "all_reduce"):
            if hasattr(dist, name):
                self._was[name] = getattr(dist, name)
                setattr(dist, name, self._wrap(name, self._was[name]))
        return self

    def __exit__(self, *_: Any) -> None:
        for name, function in self._was.items():
            setattr(dist, name, function)

    def _wrap(self, name: str, function: Any) -> Any:
        def counted(*args: Any, **kwargs: Any) -> Any:
            if name == "all_reduce":
                self.reduced += 1
                self.reduced_bytes += args[0].numel() * args[0].itemsize
            else:
                one = kwargs.get("input_tensor", args[1] if len(args) > 1 else None)
                self.gathered += one.numel() * one.itemsize
            return function(*args, **kwargs)

        return counted


def shard(model: Any, recipe: str, how: str = "blocks", fp8: bool = True, leave: Any = (), **given: Any) -> Any:
    given.setdefault("mesh", mesh_of(dist.get_world_size()))
    if fp8:
        fp8c.torch.shard_in_fp8(model, recipe, leave)
    for block in model:
        if how == "blocks":
            block.compile(backend=fp8c.torch.fp8c_backend, options=options(recipe))
        fully_shard(block, **given)
    fully_shard(model, **given)
    return model if how == "blocks" else torch.compile(
        model, backend=fp8c.torch.fp8c_backend, options=options(recipe))


def training(recipe: str, how: str, fp8: bool, steps: int, policy: bool, fused: bool = False,
             reshard: bool = True, micro: int = 1, width: int = 24) -> dict[str, Any]:
    """A training: the bits of its losses and weights, and what has travelled in the last step."""
    model = make(2)
    if policy:
        given: dict[str, Any] = {"mp_policy": MixedPrecisionPolicy(torch.bfloat16, torch.float32)}
    else:
        given = {}
    call = shard(model, recipe, how, fp8, reshard_after_forward=reshard, **given)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, fused=fused)
    losses = []
    for step in range(steps):
        with Counted() as counted:
            optimizer.zero_grad()
            for part in range(micro):
                x = own(batch(step * micro + part, dist.get_world_size()))
                loss = (call(x).float() - x.roll(1, 1)).square().mean()
                loss.backward()
                losses.append(float(loss.detach()))
            optimizer.step()
    weights = [p.full_tensor().detach().clone() for p in model.parameters()]
    report = fp8c.torch.report(model)
    return {"losses": losses, "weights": weights, "gathered": counted.gathered, "reduced": counted.reduced,
            "counts": report.counts(), "dtypes": {p.dtype for p in model.parameters()},
            "states": {v.dtype for s in optimizer.state.values() for k, v in s.items() if k != "step"},
            "text": str(report)}


class Codes(unittest.TestCase):
    """What decode gives has the amaxes, the scales and the codes of the weight."""

    def holds(self, w: torch.Tensor, scaling: codes.Scaling, largest: float = 0.0) -> None:
        amax = codes.amaxes(w, 0, w.shape, scaling)
        scale = codes.scales(amax.view(torch.float32), scaling, largest)
        made = codes.encode(w, 0, scale, scaling)
        again = codes.decode(made, amax.view(torch.float32), scale, scaling, w.dtype)
        found = codes.amaxes(again, 0, w.shape, scaling)
        nan = amax.view(torch.float32).isnan()
        self.assertTrue(torch.equal(amax[~nan], found[~nan]))
        self.assertTrue(found.view(torch.float32)[nan].isnan().all())
        self.assertTrue(torch.equal(scale, codes.scales(found.view(torch.float32), scaling, largest)))
        twice = codes.encode(again, 0, scale, scaling)
        is_nan = (made & 0x7F) == 0x7F
        self.assertTrue(torch.equal(made[~is_nan], twice[~is_nan]))
        self.assertTrue(((twice[is_nan] & 0x7F) == 0x7F).all())

    def test_all_codes(self) -> None:
        """All 256 codes under many scales, powers of two among them, in both dtypes."""
        print(f"seed {SEED}")
        generator = torch.Generator().manual_seed(SEED)
        every = torch.arange(256, dtype=torch.uint8)
        every = every[(every & 0x7F) != 0x7F].view(torch.float8_e4m3fn).float()
        one = codes.Scaling()
        for dtype, low in ((torch.float32, -149), (torch.bfloat16, -107)):
            for i in range(4000):
                exponent = float(torch.randint(low, 119, (), generator=generator))
                factor = 2.0**exponent * (1.0 if i % 4 == 0 else float(1 + torch.rand((), generator=generator)))
                w = (every.double() * factor).float().to(dtype)
                self.holds(w.view(2, -1), one, 0.0 if i % 3 else float(3 * w.float().abs().max()))

    def test_random(self) -> None:
        """Random weights, with zeros, Inf and NaN, of odd sizes, in parts as in one."""
        print(f"seed {SEED}")
        generator = torch.Generator().manual_seed(SEED)
        recipes = ("current", "block", "current {pow2 = true}", "current {margin = 2}",
                   "block {pow2 = true}", "delayed")

        def number(most: int) -> int:
            return int(torch.randint(1, most, (), generator=generator))

        for i in range(600):
            scaling = codes.Scaling.of(recipes[i % 6])
            n, k = (number(300), number(300)) if i % 3 == 0 else (number(40), number(40))
            w = torch.randn(n, k, generator=generator)
            w *= torch.exp2(3 * torch.randn(n, k, generator=generator)) * 2.0 ** (number(190) - 95)
            w = w.clamp(-3e38, 3e38)
            if i % 7 == 0:
                w[0, 0] = torch.inf
            if i % 11 == 0:
                w[-1, -1] = torch.nan
            if i % 13 == 0:
                w[:, : k // 2] = 0
            w = w.bfloat16() if i % 2 else w
            self.holds(w, scaling, 3 * float(w.abs().max()) if i % 6 == 5 and w.isfinite().all() else 0.0)
            amax = codes.amaxes(w, 0, w.shape, scaling)
            scale = codes.scales(amax.view(torch.float32), scaling)
            for ranks in (2, 3, 5):
                rows = -(-n // ranks)
                parts = [(r * rows, w[r * rows:(r + 1) * rows]) for r in range(ranks)]
                found = torch.stack([codes.amaxes(p, first, w.shape, scaling) for first, p in parts])
                self.assertTrue(torch.equal(found.amax(0), amax))
                made = torch.cat([codes.encode(p, first, scale, scaling) for first, p in parts if len(p)])
                self.assertTrue(torch.equal(made, codes.encode(w, 0, scale, scaling)))

    def test_needs_the_amax(self) -> None:
        """Codes over the scale alone do not have the amax: the proof needs it."""
        w = torch.linspace(-1, 1, 1000).view(1, -1)
        one, lost = codes.Scaling(), 0
        for i in range(100):
            x = w * (1 + i / 100)
            amax = codes.amaxes(x, 0, x.shape, one).view(torch.float32)
            scale = codes.scales(amax, one)
            values = codes.encode(x, 0, scale, one).view(torch.float8_e4m3fn).float() * (1 / scale)
            lost += int(values.abs().max() != amax)
        self.assertGreater(lost, 0)


class Gathered(BackendTest):
    def test_same_bits(self) -> None:
        """Losses and weights have the bits of a training whose weights travel as they are."""
        for ranks, recipe, how, policy, fused, reshard, micro in (
                (2, "current", "blocks", False, False, True, 1),
                (2, "current", "whole", True, True, False, 2),
                (3, "block", "blocks", True, False, True, 1),
                (2, "block {pow2 = true}", "whole", False, True, True, 2)):
            with self.subTest(f"{ranks} {recipe} {how} {policy} {fused} {reshard} {micro}"):
                args = (8, policy, fused, reshard, micro)
                given = together(ranks, training, recipe, how, True, *args)
                plain = together(ranks, training, recipe, how, False, *args)
                for one, other in zip(given, plain):
                    self.assertEqual(one["losses"], other["losses"])
                    for a, b in zip(one["weights"], other["weights"]):
                        self.assertTrue(torch.equal(a, b))
                    self.assertEqual(one["counts"], {"FP8": 4})
                    self.assertEqual(one["reduced"], 1)
                    self.assertLess(one["gathered"], 0.7 * other["gathered"])
                    self.assertEqual(one["dtypes"] | one["states"], {torch.float32})


if __name__ == "__main__":
    unittest.main()
