"""What the tests of the backend share."""

from __future__ import annotations

import copy
import unittest
from typing import Any, Callable

import torch
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes

import fp8c
import fp8c.torch
from fp8c.torch import backend
from fp8c.torch.run.scales import Scales, of_params

# What fp8c computes and PyTorch may not, within a call.
HEAVY = ("mm", "addmm", "bmm", "baddbmm", "linear", "matmul", "attention", "convolution",
         "embedding", "layer_norm", "native_layer_norm", "softmax", "gelu", "nll_loss")


class NothingHeavy(TorchDispatchMode):
    """Fails when PyTorch computes what fp8c should."""

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = function._schema.name.split("::")[1].strip("_")
        if any(name == h or name.startswith(h + "_") for h in HEAVY) or "attention" in name:
            raise AssertionError(f"PyTorch ran {function}")
        return function(*args, **(kwargs or {}))


def compiled(model: torch.nn.Module, recipe: str = "f32", **options: Any) -> Any:
    """A model under the backend, strict."""
    return torch.compile(model, backend=fp8c.torch.fp8c_backend,
                         options={"recipe": recipe, "strict": True, **options})


def watched(model: torch.nn.Module, recipe: str = "f32") -> Any:
    """The same, with an error where PyTorch computes something heavy in a call, but for the
    prologue. (Dynamo runs no compiled code under a dispatch mode, so the mode begins within it.)"""
    def watching(gm: Any, examples: Any) -> Any:
        made = backend.fp8c_backend(gm, examples, options={"recipe": recipe, "strict": True})

        prepare = made.plan.prepare

        def prologue(args: Any) -> Any:
            with _disable_current_modes():
                return prepare(args)

        made.plan.prepare = prologue

        def call(*args: Any) -> Any:
            with NothingHeavy():
                return made(*args)

        call.made = made
        return call

    return torch.compile(model, backend=watching)


def loss_of(result: Any) -> torch.Tensor:
    return result if isinstance(result, torch.Tensor) else result.loss


def gradients(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    return {n: p.grad.detach().clone() for n, p in model.named_parameters() if p.grad is not None}


def train(call: Callable[..., Any], model: torch.nn.Module, inputs: dict[str, Any], steps: int,
          lr: float = 1e-2, optimizer: Any = None) -> list[float]:
    """Steps of AdamW on one batch; -> the losses."""
    optimizer = optimizer or torch.optim.AdamW(model.parameters(), lr=lr)
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = loss_of(call(**inputs))
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    return losses


def programs(model: torch.nn.Module) -> list[Scales]:
    """The scales of the model's programs, those that train first."""
    return sorted(of_params(model.parameters()), key=lambda s: -len(s.bound.cotangents))


def executed(model: torch.nn.Module) -> int:
    """FP8 GEMMs that its programs have run."""
    return sum(s.bound.program.info().fp8_gemms_executed for s in programs(model))


class Regression(torch.nn.Module):
    """Two linears, a norm and a loss."""

    def __init__(self, width: int = 24) -> None:
        super().__init__()
        self.up = torch.nn.Linear(13, width)
        self.norm = torch.nn.LayerNorm(width)
        self.down = torch.nn.Linear(width, 7)

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        h = torch.nn.functional.gelu(self.norm(self.up(x)))
        return torch.nn.functional.cross_entropy(self.down(h), y)


def regression(seed: int = 0, batch: int = 6) -> tuple[Regression, dict[str, torch.Tensor]]:
    torch.manual_seed(seed)
    model = Regression()
    return model, batch_of(batch)


def batch_of(batch: int = 6, seed: int = 3) -> dict[str, torch.Tensor]:
    g = torch.Generator().manual_seed(seed)
    return {"x": torch.randn(batch, 13, generator=g), "y": torch.arange(batch) % 7}


class BackendTest(unittest.TestCase):
    """Each test begins without compiled graphs, and without graph breaks of those before."""

    def setUp(self) -> None:
        torch._dynamo.reset()
        torch._dynamo.utils.counters.clear()
        torch.manual_seed(0)

    def equal(self, a: dict[str, torch.Tensor], b: dict[str, torch.Tensor], what: str = "") -> None:
        """The same bits."""
        self.assertEqual(set(a), set(b), what)
        for name in a:
            self.assertTrue(torch.equal(a[name], b[name]), f"{what}: {name} differs")


def twin(model: torch.nn.Module) -> torch.nn.Module:
    return copy.deepcopy(model)
