"""DDP: gradients come while the backward runs, with the bits of one stage; in processes by gloo."""

from __future__ import annotations

import contextlib
import types
import unittest
import unittest.mock
from typing import Any, Callable

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import fp8c.torch
import models
from fp8c.torch import backend
from fp8c.torch.run.bound import Bound
import ranks
from support import BackendTest

ROWS, SECONDS = 3, 300
Bits = dict[str, torch.Tensor]


def gpt2(layers: int = 3, tied: bool = False) -> models.ModelAndInputs:
    return models.gpt2(layers=layers, batch=2 * ROWS, tie_word_embeddings=tied)


def share(inputs: dict[str, Any]) -> dict[str, Any]:
    """The rows of this rank."""
    rank, n = dist.get_rank(), dist.get_world_size()
    return {k: v.chunk(n)[rank] if isinstance(v, torch.Tensor) else v for k, v in inputs.items()}


def small_buckets(model: torch.nn.Module, **options: Any) -> DistributedDataParallel:
    """DDP with buckets of a few parameters. PyTorch's DDPOptimizer refuses buckets below its first
    one's size, so that is made small, too."""
    dist._DEFAULT_FIRST_BUCKET_BYTES = 2048
    return DistributedDataParallel(model, bucket_cap_mb=0.01, **options)


def wrapped(order: str, model: torch.nn.Module, recipe: str, stages: str = "auto", **options: Any) -> Any:
    """What to call. order: whether the model is compiled first or wrapped first."""
    given: dict[str, Any] = {"recipe": recipe, "strict": True, "timeout": 60, "stages": stages}
    if order == "compile, wrap":
        model.compile(backend=fp8c.torch.fp8c_backend, options=given)
        return small_buckets(model, **options)
    return torch.compile(small_buckets(model, **options), backend=fp8c.torch.fp8c_backend, options=given)


def gradients(model: torch.nn.Module) -> Bits:
    return {n: p.grad.clone() for n, p in model.named_parameters() if p.grad is not None}


def stages_of(model: torch.nn.Module) -> list[int]:
    """The numbers of stages of a model's graphs."""
    own = {id(p) for p in model.parameters()}
    return [len(one.plan.stages) for one in backend.known()
            if one.plan is not None and any(id(p) in own for p in one.params)]


def trained(order: str, recipe: str, stages: str, steps: int = 2, **options: Any
            ) -> tuple[list[float], Bits, list[int]]:
    """The losses and the last gradients of a rank, and its stages."""
    model, inputs = models.make(gpt2)
    call = wrapped(order, model, recipe, stages, **options)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = call(**share(inputs)).loss
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    return losses, gradients(model), stages_of(model)


def against_one_stage(order: str, recipe: str, options: dict[str, Any]) -> list[str]:
    """What differs of a training that is cut from one that is not; the cut has a stage a block."""
    whole = trained("compile, wrap", recipe, "whole", **options)
    torch._dynamo.reset()
    cut = trained(order, recipe, "auto", **options)
    found = [name for name in whole[1] if not torch.equal(whole[1][name], cut[1][name])]
    found += [] if whole[0] == cut[0] else ["losses"]
    found += [] if (whole[2], cut[2]) == ([1], [4]) else [f"stages {whole[2]}, {cut[2]}"]
    return found


def events(stages: str) -> list[str]:
    """When this rank's buckets are ready, and when a stage's backward begins."""
    model, inputs = models.make(gpt2)
    call = wrapped("compile, wrap", model, "current", stages)
    heard: list[str] = []

    def hook(_, bucket):  # type: ignore[no-untyped-def]  # PyTorch takes no annotations that are texts
        heard.append("bucket")
        future: Any = torch.futures.Future()
        future.set_result(bucket.buffer())
        return future

    call.register_comm_hook(None, hook)
    run = Bound.backward

    def backward(self: Any, *args: Any) -> Any:
        heard.append("backward")
        return run(self, *args)

    for _ in range(2):  # DDP arranges buckets anew after the first step
        heard.clear()
        with unittest.mock.patch.object(Bound, "backward", backward):
            call(**share(inputs)).loss.backward()
    return heard


def accumulated(order: str, recipe: str, cut: bool) -> Bits:
    """The gradients of three micro-batches, of which the last one synchronizes."""
    model, inputs = models.make(gpt2)
    call = wrapped(order, model, recipe, "auto" if cut else "whole")
    ddp = call if isinstance(call, DistributedDataParallel) else call._orig_mod
    for i in range(3):
        with ddp.no_sync() if i < 2 else contextlib.nullcontext():
            call(**share({k: v.roll(i, 1) if isinstance(v, torch.Tensor) else v
                          for k, v in inputs.items()})).loss.backward()
    return gradients(model)


def as_one_process(order: str, options: dict[str, Any]) -> float:
    """The largest distance of a gradient from that of one process with all rows, over its length."""
    model, inputs = models.make(gpt2)
    eager, _ = models.make(gpt2)
    call = wrapped(order, model, "f32", **options)
    call(**share(inputs)).loss.backward()
    eager(**inputs).loss.backward()
    return max(float((p.grad - q.grad).norm() / q.grad.norm())
               for p, q in zip(model.parameters(), eager.parameters()))


class Unused(torch.nn.Module):
    """A branch that only some calls take."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = torch.nn.ModuleList(
            torch.nn.Sequential(torch.nn.LayerNorm(12), torch.nn.Linear(12, 12)) for _ in range(4))

    def forward(self, x: torch.Tensor, skip: bool) -> torch.Tensor:
        for i, block in enumerate(self.blocks):
            if not (skip and i == 1):
                x = x + block(x)
        return x


class Shared(torch.nn.Module):
    """Three blocks that all read one learned bias, which a linear computes."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = Unused().blocks
        self.bias = torch.nn.Linear(12, 12)

    def forward(self, x: torch.Tensor) -> Any:
        bias = None
        for block in self.blocks:
            x = x + block(x)
            bias = self.bias(x) if bias is None else bias
            x = x + bias
        return types.SimpleNamespace(loss=x.square().mean())

    @classmethod
    def make(cls) -> models.ModelAndInputs:
        return cls(), {"x": torch.randn(5, 12, generator=torch.Generator().manual_seed(1))}


def unused() -> list[bool]:
    """Which blocks have gradients other than zero, of a call that skips one block."""
    torch.manual_seed(0)
    model = Unused()
    call = wrapped("compile, wrap", model, "f32", find_unused_parameters=True)
    for skip in (False, True):
        model.zero_grad()
        call(torch.randn(5, 12), skip).square().mean().backward()
    return [block[1].weight.grad is not None and bool(block[1].weight.grad.any()) for block in model.blocks]


def scales(group: bool, steps: int = 3) -> tuple[dict[str, list[float]], list[float]]:
    """The scales of `delayed`, and the losses, where one rank has an activation that is far larger."""
    model, inputs = models.make(gpt2)
    with torch.no_grad():  # rows of this rank alone have these tokens
        model.transformer.wte.weight[5] *= 30.0
    ids = share(inputs)["input_ids"].clone()
    ids[ids == 5] = 6
    ids[:, 0] = 5 if dist.get_rank() else 6
    if group:
        fp8c.torch.set_amax_group(model, dist.group.WORLD)
    call = wrapped("compile, wrap", model, "delayed")
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = call(input_ids=ids, labels=ids, use_cache=False).loss
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    return {k: v.tolist() for k, v in fp8c.torch.state_dict(model).items()}, losses


def around_backend(strict: bool) -> dict[str, int]:
    """A function around the backend, which PyTorch's DDPOptimizer does not see through."""
    model, inputs = models.make(gpt2)

    def around(gm: Any, examples: Any) -> Any:
        return fp8c.torch.fp8c_backend(gm, examples, options={"recipe": "current", "strict": strict, "timeout": 60})

    call = torch.compile(small_buckets(model), backend=around)
    call(**share(inputs)).loss.backward()
    return fp8c.torch.report(model).counts()


def together(function: Callable[..., Any], *args: Any) -> list[Any]:
    return ranks.together(2, function, *args, seconds=SECONDS)


class Ddp(BackendTest):
    def test_order(self) -> None:
        """DDP hears gradients of a block before the backward of the blocks before it begins: a whole
        model's all come after its one backward."""
        for one in together(events, "auto"):
            self.assertEqual(one.count("backward"), 4)  # of three blocks and the head
            ends = [i for i, what in enumerate(one) if what == "backward"]
            for a, b in zip(ends[1:], ends[2:]):  # the head's gradients do not fill a bucket
                self.assertIn("bucket", one[a:b], one)
        for one in together(events, "whole"):
            self.assertEqual(one.count("backward"), 1)
            self.assertEqual(one[0], "backward")

    def test_bits(self) -> None:
        """A cut changes no bit of a loss or a gradient, and torch.compile(DDP) is the same."""
        for order, recipe, options in (
            ("compile, wrap", "f32", {}),
            ("compile, wrap", "current", {"gradient_as_bucket_view": True}),
            ("wrap, compile", "delayed", {}),
            ("wrap, compile", "block", {"static_graph": True}),
        ):
            with self.subTest(f"{order} {recipe} {options}"):
                for one in together(against_one_stage, order, recipe, options):
                    self.assertEqual(one, [])

    def test_one_process(self) -> None:
        """Sums of f32 in another order: within 2^-18 of one process's."""
        for order, options in (("compile, wrap", {"static_graph": True}),
                               ("wrap, compile", {"find_unused_parameters": True})):
            with self.subTest(f"{order} {options}"):
                for one in together(as_one_process, order, options):
                    self.assertLess(one, 2 ** -18)

    def test_accumulation(self) -> None:
        for order in ("compile, wrap", "wrap, compile"):
            cut = together(accumulated, order, "current", True)
            whole = together(accumulated, order, "current", False)
            for a, b in zip(cut, whole):
                self.equal(a, b, order)
            self.equal(cut[0], cut[1], "ranks")

    def test_unused_parameters(self) -> None:
        for one in together(unused):
            self.assertEqual(one, [True, False, True, True])

    def test_scales(self) -> None:
        """Under `delayed` ranks have scales of their own, or the same ones with a group."""
        apart, alike = together(scales, False), together(scales, True)
        self.assertNotEqual(apart[0][0], apart[1][0])
        self.assertEqual(alike[0][0], alike[1][0])
        self.assertGreater(len(alike[0][0]), 1)

    def test_function_around_backend(self) -> None:
        """Then PyTorch cuts graphs at its buckets: the report says that, and strict raises."""
        for one in together(around_backend, False):
            self.assertEqual(set(one), {"not compiled"})
        for one in ranks.outcomes(2, around_backend, True, seconds=SECONDS):
            self.assertIsInstance(one, ranks.Failed)
            self.assertRegex(one.message, "DDPOptimizer cuts the graph")


class Cut(BackendTest):
    """The option `stages`, in one process."""

    def run_with(self, make: Callable[[], models.ModelAndInputs], recipe: str, stages: str, strict: bool = True
                 ) -> tuple[Bits, list[int], torch.nn.Module]:
        torch._dynamo.reset()
        model, inputs = models.make(make)
        call = torch.compile(model, backend=fp8c.torch.fp8c_backend,
                             options={"recipe": recipe, "strict": strict, "stages": stages})
        call(**inputs).loss.backward()
        return gradients(model), stages_of(model), model

    def test_bits(self) -> None:
        """A cut changes no bit, under any recipe, also with dropout, and BERT is not cut; but of a
        weight that two stages read: autograd adds its two gradients."""
        for name, make, recipes, stages in (
            ("gpt2, 12 layers", lambda: gpt2(12), ("current",), 13),
            ("gpt2, tied", lambda: gpt2(2, tied=True), ("f32", "delayed"), 3),
            ("gpt2, dropout", lambda: models.gpt2(0.1, 0.1, tie_word_embeddings=False), ("current",), 3),
            ("gpt2, one odd sequence", lambda: models.gpt2(batch=1, length=7, tie_word_embeddings=False),
             ("mxfp8", "rowwise"), 3),
            ("llama", models.llama, ("f32", "bf16", "current", "block"), 3),
            ("bert", lambda: models.bert(tie_word_embeddings=False), ("current",), 1),
        ):
            for recipe in recipes:
                with self.subTest(f"{name} {recipe}"):
                    whole, one, model = self.run_with(make, recipe, "whole")
                    cut, several, _ = self.run_with(make, recipe, "blocks", strict=False)
                    self.assertEqual((one, several), ([1], [stages]))
                    tied = model.get_output_embeddings().weight is model.get_input_embeddings().weight
                    names = {n for n, p in model.named_parameters()
                             if tied and p is model.get_input_embeddings().weight}
                    for n in names:
                        torch.testing.assert_close(cut.pop(n), whole.pop(n), rtol=1e-5, atol=1e-6)
                    self.equal(cut, whole, name)

    def test_blocks_that_stay_together(self) -> None:
        """What all blocks read keeps them together: strict raises if `stages` asks for blocks."""
        self.assertEqual(self.run_with(Shared.make, "f32", "blocks", strict=False)[1], [2])
        with self.assertRaisesRegex(Exception, "blocks can't be cut apart: .* is read by several blocks"):
            self.run_with(Shared.make, "f32", "blocks")
        with self.assertRaisesRegex(ValueError, "stages 'many' is none of auto, whole, blocks"):
            fp8c.torch.fp8c_backend(torch.fx.GraphModule({}, torch.fx.Graph()), [], options={"stages": "many"})


if __name__ == "__main__":
    unittest.main()
