"""Gates for FP8 under the backend: does a training that claims to use FP8 use it, and use it well?

The losses of a short run hardly tell, since almost any broken recipe trains. So the gates look at
what was executed (tests/shared/recipe/gates.h has the same ones, and more, for the library):

    count   a step executes the FP8 GEMMs that are planned: three for each linear, and the logits
            once more, which are never saved
    cover   each of these GEMMs has its operands, in the recipe's formats
    sqnr    of each operand: E4M3 at least 28 dB, E5M2 at least 22
    used    the largest code is at least half of the format's largest. A delayed scale is that of
            the largest amax of 16 steps, in which gradients shrink: 1/32. SQNR hardly sees a scale
            that is too small by a power of two, since FP8 has exponents
    gap     the mean of the losses is within 0.2% of bf16's, and the losses are not bf16's
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Callable
from unittest import mock

import torch

import fp8c
import fp8c.torch
import models
from fp8c.torch.run.scales import SCALE
from support import compiled, executed, loss_of, programs, train

LEAST = {"f8e4m3": 28.0, "f8e5m2": 22.0}
GEMMS = {"x": {"fprop", "wgrad"}, "w": {"fprop", "dgrad"}, "dy": {"dgrad", "wgrad"}}
STEPS = 4
Name = str | Callable[[], models.ModelAndInputs]


@dataclass
class Measured:
    """What a few steps of training did. operands: of the last step."""

    recipe: str
    losses: list[float]
    linears: int
    planned: int
    executed: int  # in the last step
    operands: list[fp8c.torch.Operand] = field(default_factory=list)

    def closed(self, bf16: list[float]) -> dict[str, str]:
        """The gates that are closed, by name, with what closes them. bf16: the losses under bf16."""
        gate = {"count": self._count(), "cover": self._cover(), "sqnr": self._sqnr(), "used": self._used(),
                "gap": self._gap(bf16)}
        return {name: why for name, why in gate.items() if why}

    def _count(self) -> str:
        wanted = 3 * self.linears
        good = self.planned == wanted and self.executed == wanted + 1
        return "" if good else (f"{self.planned} planned and {self.executed} executed for "
                                f"{self.linears} linears")

    def _cover(self) -> str:
        gradient = "f8e4m3" if self.recipe == "block" else "f8e5m2"
        seen: dict[tuple[str, str], set[str]] = {}
        for one in self.operands:
            if one.format == (gradient if one.operand == "dy" else "f8e4m3"):
                seen.setdefault((one.module, one.operand), set()).update(one.gemms.split(", "))
        whole = [key for key, gemms in seen.items() if gemms == GEMMS[key[1]]]
        return "" if len(whole) == 3 * self.linears else f"{len(whole)} operands for {self.linears} linears"

    def _sqnr(self) -> str:
        low = [f"{o.module} {o.operand} {o.sqnr:.1f}" for o in self.operands
               if o.format and not o.sqnr >= LEAST[o.format]]
        return ", ".join(low)

    def _used(self) -> str:
        least = 1 / 32 if self.recipe == "delayed" else 0.5
        return ", ".join(f"{o.module} {o.operand} {o.used:.4f}" for o in self.operands
                         if o.format and not o.used >= least)

    def _gap(self, bf16: list[float]) -> str:
        if self.losses == bf16:
            return "the losses are bf16's"
        gap = sum(self.losses) / sum(bf16) - 1
        return "" if abs(gap) <= 0.002 else f"gap {gap:+.2%}"


def measure(name: Name, recipe: str, spoil: Callable[[Any], None] | None = None) -> Measured:
    """Some steps of a model, as `models.make` makes it. spoil: called with its scales before the
    last of them."""
    torch._dynamo.reset()
    model, inputs = models.make(name)
    call = compiled(model, recipe, statistics=True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    losses = train(call, model, inputs, STEPS - 1, optimizer=optimizer)
    before = executed(model)
    optimizer.zero_grad()
    if spoil is not None:
        one = programs(model)[0]
        one.refresh()
        spoil(one)
    loss = loss_of(call(**inputs))
    loss.backward()
    losses.append(float(loss.detach()))
    report = fp8c.torch.report(model)
    return Measured(recipe, losses, len(report.linears), report.fp8_gemms_planned, executed(model) - before,
                    list(fp8c.torch.statistics(model)))


# ---- recipes broken on purpose ----


def compiled_as(other: str) -> Any:
    """Within it, programs are compiled under another recipe than the one that was asked for."""
    compile = fp8c.Module.compile

    def broken(module: fp8c.Module, **options: Any) -> fp8c.Program:
        return compile(module, **{**options, "recipe": other})

    return mock.patch.object(fp8c.Module, "compile", broken)


def no_scaling(name: Name, recipe: str) -> Measured:
    """Each scale is 1. Delayed scaling keeps its scales where a test can write them."""
    form = "e4m3" if recipe == "block" else "hybrid"
    with compiled_as(f"delayed {{format = {form}}}"):
        return measure(name, recipe, lambda one: one.write(SCALE, torch.ones_like(one.read(SCALE))))


def too_small(name: Name, recipe: str) -> Measured:
    """Each scale is 2^-8 of what it should be."""
    with compiled_as(f"{recipe} {{margin = 8}}"):
        return measure(name, recipe)


def skipped(name: Name, recipe: str) -> Measured:
    """Nothing is quantized."""
    with compiled_as("bf16"):
        return measure(name, recipe)


def not_multiplied(name: Name, recipe: str) -> Measured:
    """Operands are quantized, and their codes are multiplied as bf16."""
    with compiled_as(f"{recipe} {{fake = true}}"):
        return measure(name, recipe)
