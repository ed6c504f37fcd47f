"""Weights of linears that FSDP2 gathers as FP8 codes, in processes that train together by gloo."""

from __future__ import annotations

import copy
import tempfile
import unittest
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

import fp8c.torch
from fp8c.torch.ranks import codes
from ranks import mesh_of, together
from shards import batch, make, options, own
from support import BackendTest

SEED = 20261128


class Counted:
    """The bytes that this rank gives to all-gathers, and the all-reduces, while it is active."""

    def __init__(self) -> None:
        self.gathers = self.gathered = self.reduced = self.reduced_bytes = 0

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
                self.gathers += 1
                self.gathered += one.numel() * one.itemsize
            return function(*args, **kwargs)

        return counted


def shard(model: Any, recipe: str, how: str = "blocks", fp8: bool = True, **given: Any) -> Any:
    """The model sharded block by block; -> what to call."""
    given.setdefault("mesh", mesh_of(dist.get_world_size()))
    if fp8:
        fp8c.torch.shard_in_fp8(model, recipe)
    for block in model:
        if how == "blocks":
            block.compile(backend=fp8c.torch.fp8c_backend, options=options(recipe))
        fully_shard(block, **given)
    fully_shard(model, **given)
    return model if how == "blocks" else torch.compile(
        model, backend=fp8c.torch.fp8c_backend, options=options(recipe))


def training(recipe: str, how: str, fp8: bool, steps: int, policy: bool, fused: bool = False,
             reshard: bool = True, micro: int = 1, decay: float = 20.0) -> dict[str, Any]:
    """A training: the bits of its losses and weights, and what has travelled in the last step. decay: of
    the weights; they shrink, so that a history has larger amaxes than the present."""
    model = make(2)
    given = {"mp_policy": MixedPrecisionPolicy(torch.bfloat16, torch.float32)} if policy else {}
    call = shard(model, recipe, how, fp8, reshard_after_forward=reshard, **given)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, fused=fused, weight_decay=decay)
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
            "gathers": counted.gathers, "reduced_bytes": counted.reduced_bytes,
            "counts": report.counts(), "dtypes": {p.dtype for p in model.parameters()},
            "states": {v.dtype for s in optimizer.state.values() for k, v in s.items() if k != "step"},
            "text": str(report)}


def both(*args: Any, **kwargs: Any) -> list[dict[str, Any]]:
    """A training whose weights travel as codes, and one whose weights travel as they are."""
    recipe, how, *rest = args
    return [training(recipe, how, fp8, *rest, **kwargs) for fp8 in (True, False)]


class Tied(torch.nn.Module):
    """An embedding, a head that shares its weight, linears, one of them frozen, a norm, and a head that
    stays in bf16."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = torch.nn.Embedding(33, 24)
        self.norm = torch.nn.LayerNorm(24)
        self.first, self.second = torch.nn.Linear(24, 301, bias=False), torch.nn.Linear(301, 24)
        self.out, self.tied = torch.nn.Linear(24, 5), torch.nn.Linear(24, 33, bias=False)
        self.tied.weight = self.embed.weight
        self.second.weight.requires_grad_(False)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.embed(ids)
        x = x + self.second(torch.relu(self.first(self.norm(x))))
        return self.tied(x).square().mean() + self.out(x).square().mean()


def mixed(recipe: str, fp8: bool) -> dict[str, Any]:
    torch.manual_seed(0)
    model = Tied()
    names = fp8c.torch.shard_in_fp8(model, recipe, ["ou*"]) if fp8 else []
    model = copy.deepcopy(model)
    given = options(recipe) | {"rules": ['"out" = bf16']}
    model.compile(backend=fp8c.torch.fp8c_backend, options=given)
    fully_shard(model, mesh=mesh_of(dist.get_world_size()))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    losses = []
    for step in range(4):
        ids = torch.randint(33, (6, 7), generator=torch.Generator().manual_seed(step))
        with Counted() as counted:
            loss = model(own(ids))
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        losses.append(float(loss.detach()))
    with torch.no_grad():
        losses.append(float(model(own(ids))))
    model.reshard()
    report = fp8c.torch.report(model)
    return {"names": names, "losses": losses, "gathered": counted.gathered,
            "weights": [p.full_tensor().detach().clone() for p in model.parameters()],
            "report": {one.name: one.fp8_gather for one in report.linears}, "text": str(report)}


def both_mixed(recipe: str) -> list[dict[str, Any]]:
    return [mixed(recipe, fp8) for fp8 in (True, False)]


def saved(recipe: str, folder: str) -> dict[str, Any]:
    """A training that is saved and goes on, and one that begins with what was saved, by two ways."""
    import torch.distributed.checkpoint as dcp

    def made(seed: int) -> tuple[Any, Any]:
        model = make(1)
        shard(model, recipe)
        with torch.no_grad():
            for p in model.parameters():
                p.mul_(seed)
        return model, torch.optim.SGD(model.parameters(), lr=0.1, weight_decay=2.0)

    def steps(model: Any, optimizer: Any, first: int) -> list[float]:
        losses = []
        for step in range(first, first + 3):
            x = own(batch(step, dist.get_world_size()))
            loss = (model(x) - x.roll(1, 1)).square().mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            losses.append(float(loss.detach()))
        return losses

    model, optimizer = made(1)
    steps(model, optimizer, 0)
    state = model.state_dict()
    kinds = {type(v._local_tensor).__name__ for v in state.values()}
    dcp.save({"model": state}, checkpoint_id=f"{folder}/dcp")
    path = f"{folder}/{dist.get_rank()}.pt"
    torch.save({"model": state, "fp8": fp8c.torch.state_dict(model)}, path)
    went_on = steps(model, optimizer, 3)
    found = {"kinds": kinds, "dtypes": {v.dtype for v in state.values()}, "on": went_on}
    scales = torch.load(path)["fp8"]
    for way in ("dcp", "torch"):
        model, optimizer = made(3)
        if way == "dcp":
            own_state = model.state_dict()
            dcp.load({"model": own_state}, checkpoint_id=f"{folder}/dcp")
        else:
            own_state = torch.load(path)["model"]
        model.load_state_dict(own_state)
        fp8c.torch.load_state_dict(model, scales)
        found[way] = steps(model, optimizer, 3)
    model, optimizer = made(3)
    steps(model, optimizer, 0)  # compiled before it is loaded
    model.load_state_dict(torch.load(path)["model"])
    fp8c.torch.load_state_dict(model, scales)
    found["late"] = steps(model, optimizer, 3)
    return found


def wrong_uses() -> dict[str, str]:
    """What each wrong use says."""
    found = {}

    def says(name: str, function: Any) -> None:
        try:
            function()
            found[name] = ""
        except Exception as error:
            while error.__cause__ is not None:
                error = error.__cause__
            found[name] = str(error)

    def run(model: Any, recipe: str = "current", **given: Any) -> Any:
        for block in model:
            block.compile(backend=fp8c.torch.fp8c_backend,
                          options={"recipe": recipe, "strict": False, "timeout": 60} | given)
            fully_shard(block, mesh=mesh)
        loss = model(own(batch(0, 2))).square().mean()
        loss.backward()
        torch.optim.SGD(model.parameters(), lr=0.1).step()

    mesh = mesh_of(2)
    for recipe in ("bf16", "f32", "rowwise", "mxfp8", "current {history = 2}".replace("history", "depth")):
        says(recipe, lambda: fp8c.torch.shard_in_fp8(make(1), recipe))
    says("pattern", lambda: fp8c.torch.shard_in_fp8(make(1), "current", ["head"]))
    says("none", lambda: fp8c.torch.shard_in_fp8(torch.nn.LayerNorm(4)))
    model = make(1)
    fp8c.torch.shard_in_fp8(model)
    says("twice", lambda: fp8c.torch.shard_in_fp8(model))
    model = make(1)
    fully_shard(model, mesh=mesh)
    says("after", lambda: fp8c.torch.shard_in_fp8(model))
    model = make(1)
    fp8c.torch.shard_in_fp8(model, "current")
    says("recipe", lambda: run(model, "block"))
    model = make(1)
    fp8c.torch.shard_in_fp8(model, "current")
    says("rule", lambda: run(model, rules=['"*up" dgrad = bf16']))
    model = make(1)
    model[0].forward = lambda x: model[0].down(model[0].up(x) + model[0].up.weight.sum())
    fp8c.torch.shard_in_fp8(model, "current")
    says("read", lambda: run(model))
    model = make(1)
    fp8c.torch.shard_in_fp8(model, "current")
    model[0].compile = lambda **_: None  # PyTorch runs it
    says("eager", lambda: run(model))
    model = make(1)
    fp8c.torch.shard_in_fp8(model, "current")
    model[0].compile(backend=fp8c.torch.fp8c_backend, options=options("current"))
    says("unsharded", lambda: model(batch(0, 1)))
    model = make(1)
    fp8c.torch.shard_in_fp8(model, "current")
    given = MixedPrecisionPolicy(torch.float16, torch.float32)
    says("f16", lambda: (fully_shard(model, mesh=mesh, mp_policy=given), model(own(batch(0, 2)))))
    model = make(1)
    with torch.no_grad():
        model[0].up.weight.mul_(1e-36)
    fp8c.torch.shard_in_fp8(model, "current")
    given = MixedPrecisionPolicy(torch.bfloat16, torch.float32)
    says("tiny", lambda: (fully_shard(model, mesh=mesh, mp_policy=given), model(own(batch(0, 2)))))
    return found


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
            for i in range(1200):
                exponent = float(torch.randint(low, 119, (), generator=generator))
                mantissa = 1.0 if i % 4 == 0 else float(1 + torch.rand((), generator=generator))
                factor = 2.0**exponent * mantissa
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

        for i in range(240):
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
    def same(self, one: dict[str, Any], other: dict[str, Any]) -> None:
        self.assertEqual(one["losses"], other["losses"])
        for a, b in zip(one["weights"], other["weights"], strict=True):
            self.assertTrue(torch.equal(a, b))

    def test_same_bits(self) -> None:
        """Losses and weights have the bits of a training whose weights travel as they are. One all-reduce
        a step is for amaxes of weights; `delayed` has one for those of the histories."""
        for ranks, recipe, how, policy, fused, reshard, micro in (
                (2, "current", "whole", True, True, False, 2),
                (3, "block {pow2 = true}", "blocks", True, False, True, 1),
                (2, "delayed {history = 3}", "blocks", False, False, True, 2)):
            with self.subTest(f"{ranks} {recipe} {how} {policy} {fused} {reshard} {micro}"):
                for given, plain in together(ranks, both, recipe, how, 7, policy, fused, reshard, micro,
                                             seconds=400):
                    self.same(given, plain)
                    self.assertEqual(given["counts"], {"FP8": 4})
                    self.assertEqual(given["reduced"], 1 + ("delayed" in recipe))
                    per_gather = -(-56 // ranks) * 24 + -(-24 // ranks) * 56  # elements of weights
                    elements = per_gather * plain["gathers"]
                    travel = (2 if policy else 4) * elements - plain["gathered"] + given["gathered"]
                    self.assertLess(travel + given["reduced_bytes"], 0.55 * 2 * elements)
                    self.assertEqual(given["dtypes"] | given["states"], {torch.float32})
                    self.assertEqual(given["text"].count("gathered as FP8 codes"), 4)

    def test_mixed(self) -> None:
        """Tied weights, embeddings, norms and what is left travel as before; a frozen weight as codes.
        Codes are a quarter of the bytes of f32. Blocks of 128 rows lie on two ranks."""
        for given, plain in together(2, both_mixed, "block", seconds=400):
            self.same(given, plain)
            self.assertEqual(given["names"], ["first", "second"])
            self.assertEqual(given["report"], {"first": True, "second": True, "out": False, "tied": False})
            self.assertEqual(plain["text"].count("gathered as"), 0)
            codes_of = 151 * 24 + 12 * 301  # a rank's rows, padded
            self.assertEqual(plain["gathered"] - given["gathered"], 3 * codes_of)

    def test_saved(self) -> None:
        """What is saved is the weight in high precision, in plain tensors; and a training that begins with
        it goes on as the other did."""
        with tempfile.TemporaryDirectory() as folder:
            for one in together(2, saved, "delayed {history = 4}", folder, seconds=400):
                self.assertEqual(one["kinds"], {"Tensor"})
                self.assertEqual(one["dtypes"], {torch.float32})
                self.assertEqual(one["dcp"], one["on"])
                self.assertEqual(one["torch"], one["on"])
                self.assertEqual(one["late"], one["on"])

    def test_wrong_use(self) -> None:
        said = together(2, wrong_uses, seconds=400)[0]
        texts = {"bf16": "'bf16' has no FP8", "f32": "'f32' has no FP8", "rowwise": "two axes",
                 "mxfp8": "two axes", "current {depth = 2}": "no option 'depth'",
                 "pattern": "matches no linear", "none": "no linear", "twice": "in FP8 already",
                 "after": "before fully_shard", "recipe": "give shard_in_fp8 the same",
                 "rule": "dgrad of linear up", "read": "0.up.weight travels in FP8",
                 "eager": "0.up.weight travels in FP8", "unsharded": "not to fully_shard",
                 "f16": "torch.float16", "tiny": "below"}
        for name, text in texts.items():
            with self.subTest(name):
                self.assertIn(text, said[name])

    def test_long(self) -> None:
        """100 steps, whose loss falls."""
        args = ("current", "whole", True, 100, True, False, True, 1, 0.0)
        for one in together(2, training, *args, seconds=400):
            self.assertLess(sum(one["losses"][-10:]), 0.7 * sum(one["losses"][:10]))


if __name__ == "__main__":
    unittest.main()
