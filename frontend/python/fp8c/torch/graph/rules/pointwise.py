"""Rules for pointwise ops and fills."""

from __future__ import annotations

import math
from typing import Any, Callable

import torch

from ..call import Call
from ..text import Value
from . import formulas as f
from .activations import at_bound
from .formulas import X, of, where

Rule = Callable[[Call], Any]


def unary(op: str) -> Rule:
    """An f32 op of one operand."""
    return lambda c: c.b.op(op, [c.f32(c["self"])], c.shape)


def _pair(c: Call, a: Any, b: Any) -> tuple[Any, Any]:
    """Two operands of one dtype: i32 if both are integers, else f32."""
    if c.dtype == "i64":
        raise c.refuse("it computes with 64-bit integers")
    a, b = (c.b.cast(v, "i32") if isinstance(v, Value) and v.dtype == "i64" else v for v in (a, b))
    kinds = {v.dtype for v in (a, b) if isinstance(v, Value)}
    if kinds == {"i32"} and not any(isinstance(v, float) for v in (a, b)):
        return a, b
    return c.f32(a), c.f32(b)


def binary(op: str, first: str = "self", second: str = "other") -> Rule:
    """A pointwise op of two operands, tensors or numbers; `alpha` multiplies the second."""

    def rule(c: Call) -> Value:
        a, b = _pair(c, c[first], c[second])
        if c.has("alpha") and c["alpha"] != 1:
            b = (
                b * c["alpha"]
                if not isinstance(b, Value)
                else c.b.op("mul", [b, c["alpha"]], b.shape, b.dtype)
            )
        if op == "div":
            a, b = c.f32(a), c.f32(b)
        dtype = "i32" if isinstance(a, Value) and a.dtype == "i32" else "f32"
        if dtype == "f32" and c.dtype != "f32":
            raise c.refuse("it computes with integers")
        return c.b.op(op, [a, b], c.shape, dtype)

    return rule


def reversed_sub(c: Call) -> Value:
    """other - alpha self."""
    a, b = _pair(c, c["other"], c["self"])
    if c["alpha"] != 1:
        b = c.b.op("mul", [b, float(c["alpha"])], b.shape, b.dtype)
    return c.b.op(
        "sub", [a, b], c.shape, "i32" if isinstance(b, Value) and b.dtype == "i32" else "f32"
    )


def divide(c: Call) -> Value:
    """a / b, without rounding to an integer."""
    if c.has("rounding_mode"):
        raise c.refuse("it rounds the quotient")
    return binary("div")(c)


def _counted(c: Call, v: Any) -> Any:
    """A bool as 0 or 1; a number stays."""
    if isinstance(v, Value):
        return c.b.cast(v, "i32") if v.dtype == "bool" else v
    return int(v) if isinstance(v, bool) else v


def compare(op: str, swap: bool = False, invert: bool = False) -> Rule:
    """A comparison, made of `lt`, `le` or `eq`. swap: of its operands."""

    def rule(c: Call) -> Value:
        a, b = c["self"], c["other"]
        if any(isinstance(v, Value) and v.dtype == "bool" for v in (a, b)):
            a, b = (_counted(c, v) for v in (a, b))
        a, b = _pair(c, a, b)
        result = c.b.op(op, [b, a] if swap else [a, b], c.shape, "bool")
        return c.b.op("not", [result], c.shape, "bool") if invert else result

    return rule


def logical(op: str) -> Rule:
    def rule(c: Call) -> Value:
        values = [c[name] for name in ("self", "other") if name in c.nodes]
        if any(not isinstance(v, Value) or v.dtype != "bool" for v in values):
            raise c.refuse("its operands are not all bool")
        return c.b.op(op, values, c.shape, "bool")

    return rule


def power(c: Call) -> Value:
    """x^p for a number p."""
    p = c["exponent"]
    if not isinstance(p, (int, float)):
        raise c.refuse("the exponent is a tensor")
    return f.power(of(c, "self"), float(p)).value


def reciprocal(c: Call) -> Value:
    return c.b.op("div", [1.0, c.f32(c["self"])], c.shape)


def square(c: Call) -> Value:
    x = c.f32(c["self"])
    return c.b.op("mul", [x, x], c.shape)


def clamp(low: str | None, high: str | None) -> Rule:
    """x between two numbers, each of which may be missing."""

    def rule(c: Call) -> Value:
        x = of(c, "self")
        if c.dtype != "f32":
            raise c.refuse("it computes with integers")
        share = at_bound(_clamped, 0.0)
        for name, larger in ((low, True), (high, False)):
            if name is None or not c.has(name):
                continue
            bound = float(c[name])
            if share == 0.5:
                x = f.largest(x, bound) if larger else f.smallest(x, bound)
                continue
            keeps = (
                (x >= bound if share else x > bound)
                if larger
                else (x <= bound if share else x < bound)
            )
            x = where(keeps | f.is_nan(x), x, bound)
        return x.value

    return rule


def _clamped(x: torch.Tensor) -> torch.Tensor:
    return x.clamp(0.0, 1.0)


def clamp_tensors(c: Call) -> Value:
    """x between two tensors. Where the result is a bound, the bound gets the gradient."""
    x = of(c, "self")
    if c.has("min"):
        low = of(c, "min")
        x = where(f.is_nan(low), low, where(x < low, low, x))
    if c.has("max"):
        high = of(c, "max")
        x = where(f.is_nan(high), high, where(x > high, high, x))
    return x.value


def nan_to_num(c: Call) -> Value:
    """Numbers in place of NaN and the infinities: 0 and the greatest f32 of either sign by default."""
    x, most = of(c, "self"), torch.finfo(torch.float32).max
    numbers = [
        (f.is_nan(x), "nan", 0.0),
        (x.equals(math.inf), "posinf", most),
        (x.equals(-math.inf), "neginf", -most),
    ]
    for condition, name, number in numbers:
        x = where(condition, float(c[name]) if c.has(name) else number, x)
    return x.value


def chosen(c: Call) -> Value:
    """where: one operand or the other."""
    a, b = _pair(c, c["self"], c["other"])
    if not isinstance(a, Value) and not isinstance(b, Value):
        a = c.b.op("const", [], (), value=a)
    dtype = next(v.dtype for v in (a, b) if isinstance(v, Value))
    return c.b.op("select", [c["condition"], a, b], c.shape, dtype)


def masked_fill(c: Call) -> Value:
    x, number = _pair(c, c["self"], c["value"])
    return c.b.op("select", [c["mask"], number, x], c.shape, x.dtype)


def fill(number: float | None, argument: str = "fill_value") -> Rule:
    """A tensor of one number, which is `number` or an argument."""

    def rule(c: Call) -> Value:
        if c.dtype != "f32":
            raise c.refuse("it makes integers")
        return c.b.full(number if number is not None else float(c[argument]), c.shape)

    return rule


def formula_of(make: Callable[..., X], *names: str) -> Rule:
    """A rule of operands by name."""
    return lambda c: make(*(of(c, name) for name in names)).value


def lerp(c: Call) -> Value:
    """start + weight (end - start), from the nearer end, as PyTorch computes it."""
    start, end = of(c, "self"), of(c, "end")
    weight = of(c, "weight") if isinstance(c["weight"], Value) else float(c["weight"])
    if isinstance(weight, float):
        near = abs(weight) < 0.5
        made = start + (end - start) * weight if near else end - (end - start) * (1.0 - weight)
        return made.value
    near = f.absolute(weight) < 0.5
    return where(near, start + weight * (end - start), end - (end - start) * (1.0 - weight)).value


def addcmul(c: Call) -> Value:
    """self + value tensor1 tensor2."""
    a, b = of(c, "tensor1"), of(c, "tensor2")
    return (of(c, "self") + (a if c["value"] == 1 else a * float(c["value"])) * b).value


def addcdiv(c: Call) -> Value:
    """self + value tensor1 / tensor2."""
    a, b = of(c, "tensor1"), of(c, "tensor2")
    return (of(c, "self") + (a if c["value"] == 1 else a * float(c["value"])) / b).value


def sign(x: X) -> X:
    return f.detached(where(x > 0.0, 1.0, where(x < 0.0, -1.0, x)))


def log_add_exp(a: X, b: X) -> X:
    """log(e^a + e^b). The difference of two equal infinities would be NaN."""
    same = a.equals(b)
    apart = where(same, 0.0, a - b)
    return f.largest(a, b) + f.log1p(f.exp(-f.absolute(apart)))


def xlogy(a: X, b: X) -> X:
    """a log(b), and 0 where a is 0."""
    zero = a.equals(0.0) & ~f.is_nan(b)
    return where(zero, 0.0, a * f.log(where(zero, 1.0, b)))


def exp_of_base(c: Call) -> Value:
    """self^exponent, where self is a number."""
    base = float(c["self"])
    if not base > 0:
        raise c.refuse(f"its base is {base}")
    if base == 2:
        return f.exp2(of(c, "exponent")).value
    return f.exp(of(c, "exponent") * math.log(base)).value


def isfinite(c: Call) -> Value:
    return c.b.op("isfinite", [c.f32(c["self"])], c.shape, "bool")


def isinf(c: Call) -> Value:
    x = of(c, "self")
    return f.absolute(x).equals(float("inf")).value


def copied(c: Call) -> Value:
    """copy: the source, in the shape and dtype of self."""
    if c.dtype != "f32":
        raise c.refuse("it is of integers")
    return c.b.broadcast(c.f32(c["src"]), c.shape)
