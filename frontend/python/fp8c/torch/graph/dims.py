"""The sizes of a stage that are dynamic: how a call and a program find their values.

A call shows each size by an argument: an int, or an axis of size `s0` or `2*s0 + 1`. A program finds
its dims in the shapes of its own inputs. These may show less: labels that are flattened beforehand
have an axis `s0*s1`. If a text has `s0` and `s1` only in this product, one of them stands for the
product, and the other is 1. A dim that no shape shows is fixed: each of its values takes a program of
its own. A module has at most MAX_BOUNDS bounds; dims beyond that are fixed, too.
"""

from __future__ import annotations

import math
import re
from typing import Any, Mapping, NamedTuple, Sequence

import sympy
import torch

from ..._header import MAX_BOUNDS
from .. import private
from .plan import Plan, Stage
from .text import product, size_text, tidy

Sizes = Mapping[str, int]  # by symbol


class Shown(NamedTuple):
    """Where a call shows a symbol: an argument, its axis if it is a tensor, and the size there."""

    index: int
    axis: int | None
    scale: int
    offset: int

    def of(self, args: Sequence[Any]) -> int:
        arg = args[self.index]
        return ((arg if self.axis is None else arg.shape[self.axis]) - self.offset) // self.scale


def linear(size: Any) -> tuple[str, int, int] | None:
    """The symbol, the scale and the offset of a size of one symbol, as `2*s0 + 1`; else None."""
    if isinstance(size, int) or len(size.free_symbols) != 1:
        return None
    symbol = next(iter(size.free_symbols))
    size = sympy.expand(size)
    scale, offset = size.coeff(symbol, 1), size.coeff(symbol, 0)
    if not (scale.is_Integer and offset.is_Integer and scale != 0):
        return None
    if tidy(size - scale * symbol - offset) != 0:  # such as a floor division
        return None
    return str(symbol), int(scale), int(offset)


def rounded(size: int) -> int:
    """A bound for a size: at most an eighth more, so that growing sizes need few programs."""
    step = max(1, 1 << max(size.bit_length() - 4, 0))
    return -(-size // step) * step


class Dims:
    """The dims of a stage that are bounds.

    text: the stage's, in which one dim stands for each product. examples: the sizes in the example;
    to read them here adds no guard of dynamo's. fixed: dims that are no bounds in this text.
    """

    def __init__(self, plan: Plan, stage: Stage):
        self.examples: dict[str, int] = {}
        self._shown: dict[str, Shown] = {}
        self._find(plan, stage)
        axes = [size for port in stage.inputs for size in port.shape if not isinstance(size, int)]
        known = {found[0] for found in map(linear, axes) if found is not None}
        self.text = stage.text
        self._products: list[list[str]] = []
        for size in axes:
            self._merge(size, known)
        bounds = re.findall(r"^dim (\w+) <= ", self.text, flags=re.M)
        shown = [name for name in bounds if name in known][:MAX_BOUNDS]
        self.fixed = set(bounds) - set(shown)
        for name in self.fixed:
            self.text = self.text.replace(f"dim {name} <= ", f"dim {name} = ", 1)

    def _find(self, plan: Plan, stage: Stage) -> None:
        for one in plan.inputs:
            sizes = [(None, one.fake)] if one.kind == "size" else list(enumerate(one.fake.shape))
            for axis, size in sizes:
                found = linear(private.expression(size)) if isinstance(size, torch.SymInt) else None
                if found is not None and found[0] in stage.bounds and found[0] not in self._shown:
                    self._shown[found[0]] = Shown(one.index, axis, *found[1:])
                    self.examples[found[0]] = private.symbols(size)[found[0]]

    def _merge(self, size: Any, known: set[str]) -> None:
        """One dim for a product, if the text has its symbols only in this product."""
        factors = [a for a in size.args if not a.is_Integer] if size.is_Mul else []
        names = [str(f) for f in factors if f.is_Symbol]
        if (
            len(names) < 2
            or len(names) < len(factors)
            or known & set(names)
            or not set(names) <= set(self._shown)
        ):
            return
        written = re.compile(rf"(?<!\w){re.escape(size_text(product(factors)))}(?!\w)")
        lines = [line for line in self.text.splitlines() if not line.startswith("dim ")]
        left = set(re.findall(r"\w+", written.sub("", "\n".join(lines))))
        if left & set(names):
            return
        for name in names[1:]:
            self.text = re.sub(rf"^dim {name} <= \d+$", f"dim {name} = 1", self.text, flags=re.M)
        self._products.append(names)
        known.update(names)

    def sizes(self, args: Sequence[Any]) -> dict[str, int]:
        """The sizes of a call."""
        return {symbol: shown.of(args) for symbol, shown in self._shown.items()}

    def fit(self, sizes: Sizes, limits: Sizes) -> bool:
        """Whether a program with these limits can have these sizes."""
        return all(
            size <= limits.get(symbol, 0) and (symbol not in self.fixed or size == limits[symbol])
            for symbol, size in sizes.items()
        )

    def grown(self, limits: Sizes, sizes: Sizes) -> dict[str, int]:
        """Limits for these sizes, too. They are rounded up, so that they seldom have to grow."""
        return {
            symbol: size
            if symbol in self.fixed
            else limits[symbol]
            if size <= limits.get(symbol, 0)
            else rounded(size)
            for symbol, size in sizes.items()
        }

    def bounds(self, limits: Sizes) -> dict[str, int]:
        """The bounds of the text's dims."""
        found = dict(limits)
        for first, *others in self._products:
            found[first] *= math.prod(found.pop(name) for name in others)
        return found
