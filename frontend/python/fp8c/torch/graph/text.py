"""The text of a function, built call by call.

    b = Builder()
    y = b.op("gelu", [b.op("linear", [x, w], shape, transpose_b=True, name="fc")], shape)

Equal calls are one value. Shape ops that undo each other are dropped at once: attention takes
[batch, positions, heads * size], so the transposes around it in a PyTorch model cancel. A size is
an int, or a sympy expression of dims that are bounds.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Any, Sequence

import sympy

from ..._header import MAX_RANK
from ..places import Unsupported

Size = Any  # int | sympy.Expr
Shape = tuple[Size, ...]
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.]*")


@dataclass(frozen=True, eq=False)
class Value:
    """A value of the text: `code` is how an operand names it. `op`, `operands`: its call's."""

    code: str
    shape: Shape
    dtype: str = "f32"
    op: str = ""
    operands: tuple["Value", ...] = ()
    perm: tuple[int, ...] = ()


def size_text(size: Size) -> str:
    """A size in the text's language. sympy's floor division is the text's `/` of integers."""
    if isinstance(size, int):
        return str(size)
    if size.is_Integer:
        return str(int(size))
    if size.is_Symbol:
        return str(size)
    if size.is_Add:
        return "(" + " + ".join(size_text(a) for a in size.args) + ")"
    if size.is_Mul:
        return "*".join(size_text(a) for a in size.args)
    name = type(size).__name__
    if name in ("FloorDiv", "CleanDiv", "IntTrueDiv"):
        return f"(({size_text(size.args[0])}) / ({size_text(size.args[1])}))"
    if name in ("Mod", "PythonMod"):
        return f"(({size_text(size.args[0])}) % ({size_text(size.args[1])}))"
    raise ValueError(f"the size {size} can't be written")


def product(sizes: Sequence[Size]) -> Size:
    total: Size = 1
    for size in sizes:
        total = total * size
    return tidy(total)


def tidy(size: Size) -> Size:
    """An int where an expression is a number."""
    if isinstance(size, int):
        return size
    size = sympy.expand(size)
    return int(size) if size.is_Integer else size


def same_shape(a: Sequence[Size], b: Sequence[Size]) -> bool:
    return len(a) == len(b) and all(tidy(x - y) == 0 for x, y in zip(a, b))


def broadcast_shape(a: Shape, b: Shape) -> Shape:
    """The shape that two operands broadcast to."""
    wide = max(len(a), len(b))
    a, b = (1,) * (wide - len(a)) + a, (1,) * (wide - len(b)) + b
    return tuple(y if x == 1 else x for x, y in zip(a, b))


def inverse(perm: Sequence[int]) -> list[int]:
    """The permutation that undoes another."""
    return [perm.index(i) for i in range(len(perm))]


def real_text(value: float) -> str:
    """A number as a literal operand."""
    if math.isnan(value):
        return "(nan)"
    if math.isinf(value):
        return "(inf)" if value > 0 else "(-inf)"
    return repr(value)


def attribute_text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (tuple, list)):
        return "[" + ", ".join(size_text(v) for v in value) + "]"
    if isinstance(value, (int, sympy.Expr)):
        return size_text(value)
    if isinstance(value, float):
        return real_text(value)
    if isinstance(value, Dtype):
        return value.name
    return (
        '"'
        + str(value)
        .replace("\\", "\\\\")
        .replace('"', '\\"')
        .replace("{", "\\{")
        .replace("}", "\\}")
        + '"'
    )


@dataclass(frozen=True)
class Dtype:
    """A dtype as an attribute's value, which stands without quotes."""

    name: str


def type_text(dtype: str, shape: Shape) -> str:
    return f"{dtype}[{', '.join(size_text(s) for s in shape)}]"


def param_name(path: str) -> str:
    """A parameter's name in the text. "self." stands before one that begins with a digit."""
    name = re.sub(r"[^A-Za-z0-9_.]", "_", path)
    return name if _NAME.fullmatch(name) else "self." + name


class Builder:
    """The statements of one function. `origin` is noted of each: what it is translated from."""

    def __init__(self) -> None:
        self.origin: Any = None
        self._calls: list[tuple[Value, str, Any]] = []
        self._seen: dict[str, Value] = {}
        self._count = 0

    def op(
        self,
        name: str,
        operands: Sequence[Value | float],
        shape: Shape,
        dtype: str = "f32",
        /,
        **attributes: Any,
    ) -> Value:
        """A call. A number as an operand is a literal. Attributes that are None are left out."""
        if len(shape) > MAX_RANK:
            raise Unsupported(name, f"a value has {len(shape)} axes; the language has {MAX_RANK}")
        if any(isinstance(s, int) and s < 1 for s in shape):
            raise Unsupported(name, "a value has no elements")
        values = [self.literal(o) if isinstance(o, (int, float)) else o for o in operands]
        shown = [f"{k} = {attribute_text(v)}" for k, v in attributes.items() if v is not None]
        code = f"{name}({', '.join(v.code for v in values)})"
        if shown:
            code += " {" + ", ".join(shown) + "}"
        value = self._seen.get(code)
        if value is None:
            value = Value(
                f"%{self._count}",
                tuple(tidy(s) for s in shape),
                dtype,
                name,
                tuple(values),
                tuple(attributes.get("perm") or ()),
            )
            self._count += 1
            self._seen[code] = value
            self._calls.append((value, f"{value.code} = {code}", self.origin))
        return value

    def lines(self, results: Sequence[Value]) -> list[tuple[str, Any]]:
        """The calls that the results need, in order, each with its origin: not the transposes that
        cancelled."""
        live, queue = set(), list(results)
        while queue:
            value = queue.pop()
            if value not in live:
                live.add(value)
                queue.extend(value.operands)
        return [(line, origin) for value, line, origin in self._calls if value in live]

    def literal(self, number: float) -> Value:
        return Value(real_text(float(number)), (), "f32", "literal")

    def full(self, number: float, shape: Shape) -> Value:
        """A tensor of one number."""
        one = self.op("const", [], (), value=float(number))
        return self.broadcast(one, shape)

    def reshape(self, x: Value, shape: Sequence[Size]) -> Value:
        shape = tuple(shape)
        if x.op == "reshape":
            x = x.operands[0]
        if same_shape(x.shape, shape):
            return x
        return self.op("reshape", [x], shape, x.dtype, shape=shape)

    def transpose(self, x: Value, perm: Sequence[int]) -> Value:
        perm = tuple(p % len(x.shape) for p in perm)
        if x.op == "transpose":
            perm = tuple(x.perm[p] for p in perm)
            x = x.operands[0]
        if perm == tuple(range(len(perm))):
            return x
        return self.op("transpose", [x], tuple(x.shape[p] for p in perm), x.dtype, perm=perm)

    def slice(self, x: Value, axis: int, start: Size, stop: Size) -> Value:
        axis %= len(x.shape)
        if tidy(start) == 0 and tidy(stop - x.shape[axis]) == 0:
            return x
        shape = x.shape[:axis] + (tidy(stop - start),) + x.shape[axis + 1 :]
        return self.op("slice", [x], shape, x.dtype, axis=axis, start=start, stop=stop)

    def broadcast(self, x: Value, shape: Sequence[Size]) -> Value:
        shape = tuple(shape)
        if same_shape(x.shape, shape):
            return x
        return self.op("broadcast", [x], shape, x.dtype, shape=shape)

    def concat(self, parts: Sequence[Value], axis: int) -> Value:
        """The parts one after the other along an axis."""
        if len(parts) == 1:
            return parts[0]
        one = parts[0]
        size = tidy(sum((p.shape[axis] for p in parts[1:]), one.shape[axis]))
        shape = one.shape[:axis] + (size,) + one.shape[axis + 1 :]
        return self.op("concat", parts, shape, one.dtype, axis=axis)

    def padded(self, x: Value, axis: int, before: Size, after: Size, number: float = 0.0) -> Value:
        """x between constants along an axis."""
        parts = [x]
        for amount, place in ((before, 0), (after, 2)):
            if tidy(amount) != 0:
                shape = x.shape[:axis] + (amount,) + x.shape[axis + 1 :]
                parts.insert(place, self.full(number, shape))
        return self.concat(parts, axis)

    def index(self, shape: Shape, axis: int) -> Value:
        """i32 [shape]: the index along an axis."""
        axis %= len(shape)
        along = self.op("iota", [], (shape[axis],), "i32", shape=(shape[axis],))
        lead = (shape[axis],) + (1,) * (len(shape) - axis - 1)
        return self.broadcast(self.reshape(along, lead), shape)

    def cast(self, x: Value, dtype: str) -> Value:
        return x if x.dtype == dtype else self.op("cast", [x], x.shape, dtype, to=Dtype(dtype))
