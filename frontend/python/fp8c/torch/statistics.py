"""statistics(model): what FP8 did to each operand of the linears, in the last call that was watched.

    call = torch.compile(model, backend="fp8c", options={"recipe": "current", "statistics": 100})
    ...
    print(fp8c.torch.statistics(model))

A watched call runs functions of the program that compute these figures beside what they compute
anyway, so its results have the bits of any other call.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Iterator

import torch

from fp8c.records import Statistic

from .graph.plan import Linear
from .private import unwrap
from .report import graphs_of, linears_of
from .run.bound import Bound


@dataclass(frozen=True)
class Operand:
    """One operand of a linear's GEMMs: what was quantized, and what became of it.

    module: the linear's path in the model. operand: "x" (the activation), "w" (the weight) or "dy"
    (the gradient). part: of a linear that is computed in parts, as a head is, the number of the
    part. gemms: which of the linear's GEMMs read it, of fprop, dgrad and wgrad. format: of the
    codes, "f8e4m3" or "f8e5m2"; "": it is not quantized, and figures of codes are NaN. granularity:
    what a scale covers, as "tensor" or "block(1,128)".

    sqnr: decibels of the values over those of the error; 31 is what E4M3 gives, 25 E5M2. underflow,
    overflow: shares of the elements that became 0, or were too large for the format. used: the
    largest code as a share of the format's largest; a scale that is too small shows here. scale: what
    values are multiplied by, and scale_wanted: what this value's own amax asks for; NaN where there
    are several scales. amax: the largest |value|. nonfinite: how many values are NaN or Inf.

    call: the number of the graph's call, from 0 on.
    """

    module: str
    operand: str
    part: int
    gemms: str
    format: str
    granularity: str
    sqnr: float
    underflow: float
    overflow: float
    used: float
    scale: float
    scale_wanted: float
    amax: float
    nonfinite: int
    elements: int
    call: int


HEADS = ("module", "operand", "GEMMs", "format", "scale of", "SQNR", "under", "over", "used", "scale", "amax")


@dataclass(frozen=True)
class Statistics:
    """The operands of all linears, in the order of the model's modules."""

    operands: list[Operand]

    def __iter__(self) -> Iterator[Operand]:
        return iter(self.operands)

    def __len__(self) -> int:
        return len(self.operands)

    def of(self, module: str) -> list[Operand]:
        """The operands of one linear."""
        return [one for one in self.operands if one.module == module]

    def __str__(self) -> str:
        if not self.operands:
            return 'no call was watched: compile with options={"statistics": 100}, and run backward'
        table = [HEADS, *map(_cells, self.operands)]
        widths = [max(map(len, column)) for column in zip(*table)]
        return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip()
                         for row in table)


def _cells(one: Operand) -> tuple[str, ...]:
    name = f"{one.operand}.{one.part}" if one.part else one.operand
    codes = ("", "", "", "", "") if not one.format else (
        f"{one.sqnr:.1f} dB", f"{one.underflow:.2%}", f"{one.overflow:.2%}", f"{one.used:.0%}",
        "" if math.isnan(one.scale) else f"{one.scale:.4g}")
    return (one.module, name, one.gemms, one.format or "not FP8", one.granularity, *codes,
            f"{one.amax:.4g}")


def statistics(model: torch.nn.Module) -> Statistics:
    """What FP8 did to each operand in the last watched call whose backward has run."""
    model = unwrap(model)
    latest: dict[str, Bound] = {}
    found: dict[str, list[Operand]] = {}
    for owner, bound, linear in linears_of(model, graphs_of(model)):
        before = latest.get(owner)
        if bound.watched is None or (before is not None and before.watched_at > bound.watched_at):
            continue
        latest[owner] = bound
        found[owner] = [made for figure in bound.figures
                        if (made := _operand(bound, owner, linear, figure)) is not None]
    order = {name: i for i, (name, _) in enumerate(model.named_modules())}
    names = sorted(found, key=lambda name: order.get(name, len(order)))
    return Statistics([one for name in names for one in sorted(found[name], key=_rank)])


def _rank(one: Operand) -> tuple[int, int, str]:
    return ("x", "w", "dy").index(one.operand), one.part, one.gemms


def _operand(bound: Bound, owner: str, linear: Linear, s: Statistic) -> Operand | None:
    """The figure as this linear has it; None: it is of others, or of codes that are stored, whose figures are
    those of numbers without their scales."""
    name = next((name for name in (s.name, *s.aliases) if _linear_of(bound, name) == linear.name), None)
    if name is None or bound.watched is None:
        return None
    if s.operand == "w" and not s.format and any(p.path == linear.weight and p.stored for p in bound.stage.params):
        return None
    rest = name[len(linear.name) + 1:].split(".")
    part = int(rest[1]) if len(rest) > 1 and rest[1].isdigit() else 0
    return Operand(owner, s.operand, part, s.gemms, s.format or "", s.granularity, s.sqnr, s.underflow,
                   s.overflow, s.used, s.scale, s.scale_wanted, s.amax, s.nonfinite, s.elements,
                   bound.watched)


def _linear_of(bound: Bound, name: str) -> str:
    """The linear that a value's name begins with: the longest, for one may begin with another's."""
    return max((x.name for x in bound.stage.linears if name.startswith(x.name + ".")), key=len, default="")
