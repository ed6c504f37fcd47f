"""Rules for pointwise ops, reductions and fills."""

from __future__ import annotations

from typing import Any, Callable

from .call import Call, axis_list
from .text import Value, product

Rule = Callable[[Call], Any]


def unary(op: str) -> Rule:
    """An f32 op of one operand."""
    return lambda c: c.b.op(op, [c.f32(c["self"])], c.shape)


def _pair(c: Call, a: Any, b: Any) -> tuple[Any, Any]:
    """Two operands of one dtype: the result's where it is f32, else their own."""
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


def compare(op: str, swap: bool = False, invert: bool = False) -> Rule:
    """A comparison, from `lt`, `le` and `eq`."""

    def rule(c: Call) -> Value:
        a, b = c["self"], c["other"]
        if any(isinstance(v, Value) and v.dtype == "bool" for v in (a, b)):
            raise c.refuse("it compares bools")
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
    """x^p for the exponents that products and roots give."""
    x, p = c.f32(c["self"]), c["exponent"]
    if not isinstance(p, (int, float)):
        raise c.refuse("the exponent is a tensor")
    if p == 0.5:
        return c.b.op("sqrt", [x], c.shape)
    if p == -0.5:
        return c.b.op("rsqrt", [x], c.shape)
    if p == int(p) and 1 <= abs(p) <= 4:
        result = x
        for _ in range(abs(int(p)) - 1):
            result = c.b.op("mul", [result, x], c.shape)
        return result if p > 0 else c.b.op("div", [1.0, result], c.shape)
    raise c.refuse(f"the exponent {p} is none of 0.5, -0.5 and 1 to 4")


def reciprocal(c: Call) -> Value:
    return c.b.op("div", [1.0, c.f32(c["self"])], c.shape)


def square(c: Call) -> Value:
    x = c.f32(c["self"])
    return c.b.op("mul", [x, x], c.shape)


def clamp(low: str | None, high: str | None) -> Rule:
    """Between two bounds, each of which may be missing."""

    def rule(c: Call) -> Value:
        x = c.f32(c["self"])
        for name, op in ((low, "max"), (high, "min")):
            if name is not None and c.has(name):
                x = c.b.op(op, [x, c.f32(c[name])], c.shape)
        return x

    return rule


def where(c: Call) -> Value:
    a, b = _pair(c, c["self"], c["other"])
    if not isinstance(a, Value) and not isinstance(b, Value):
        a = c.b.op("const", [], (), value=a)
    dtype = next(v.dtype for v in (a, b) if isinstance(v, Value))
    return c.b.op("select", [c["condition"], a, b], c.shape, dtype)


def masked_fill(c: Call) -> Value:
    x, number = _pair(c, c["self"], c["value"])
    return c.b.op("select", [c["mask"], number, x], c.shape, x.dtype)


def reduce(op: str, axes: str = "dim") -> Rule:
    """A reduction over several axes. The language keeps a reduced axis with size 1."""

    def rule(c: Call) -> Value:
        x = c["self"]
        if c.dtype != "f32":
            raise c.refuse("it reduces integers")
        x = c.f32(x)
        along = axis_list(c[axes] if axes in c.nodes else None, len(x.shape))
        return c.b.reshape(_reduced(c, op, x, along), c.shape)

    return rule


def _reduced(c: Call, op: str, x: Value, axes: list[int]) -> Value:
    if not axes:
        return x
    shape = tuple(1 if i in axes else s for i, s in enumerate(x.shape))
    if axes == [len(x.shape) - 1]:
        return c.b.op(op, [x], shape)
    return c.b.op(op, [x], shape, axes=axes)


def variance(root: bool) -> Rule:
    """The variance along axes, written out; `correction` (1) is subtracted from the count."""

    def rule(c: Call) -> Value:
        x = c.f32(c["self"])
        axes = axis_list(c["dim"] if "dim" in c.nodes else None, len(x.shape))
        count = product([x.shape[a] for a in axes])
        if not isinstance(count, int):
            raise c.refuse("the number of elements is dynamic")
        correction = 1
        if "unbiased" in c.nodes:
            correction = int(c["unbiased"])
        elif c.has("correction"):
            correction = c["correction"]
        centred = c.b.op("sub", [x, _reduced(c, "mean", x, axes)], x.shape)
        squares = c.b.op("mul", [centred, centred], x.shape)
        result = _reduced(c, "mean", squares, axes)
        if correction:
            result = c.b.op("mul", [result, count / (count - correction)], result.shape)
        if root:
            result = c.b.op("sqrt", [result], result.shape)
        return c.b.reshape(result, c.shape)

    return rule


def vector_norm(order: str) -> Rule:
    """The Euclidean norm. Its gradient is 0 where it is 0, as in PyTorch."""

    def rule(c: Call) -> Value:
        if c.has(order) and c[order] != 2:
            raise c.refuse(f"the order is {c[order]}, not 2")
        x = c.f32(c["self"])
        axes = axis_list(c["dim"], len(x.shape))
        total = _reduced(c, "reduce_sum", c.b.op("mul", [x, x], x.shape), axes)
        zero = c.b.op("eq", [total, 0.0], total.shape, "bool")
        safe = c.b.op("sqrt", [c.b.op("select", [zero, 1.0, total], total.shape)], total.shape)
        return c.b.reshape(c.b.op("select", [zero, 0.0, safe], total.shape), c.shape)

    return rule


def last_axis(c: Call, x: Value, axis: int, make: Callable[[Value], Value]) -> Value:
    """An op along the last axis, for another axis between two transposes."""
    rank = len(x.shape)
    axis %= max(rank, 1)
    perm = [i for i in range(rank) if i != axis] + [axis]
    back = [perm.index(i) for i in range(rank)]
    return c.b.transpose(make(c.b.transpose(x, perm)), back)


def softmax(c: Call) -> Value:
    x = c.f32(c["self"])
    return last_axis(c, x, c["dim"], lambda v: c.b.op("softmax", [v], v.shape))


def log_softmax(c: Call) -> Value:
    """x - max - log(sum of e^(x - max))."""

    def make(v: Value) -> Value:
        one = v.shape[:-1] + (1,)
        shifted = c.b.op("sub", [v, c.b.op("reduce_max", [v], one)], v.shape)
        total = c.b.op("reduce_sum", [c.b.op("exp", [shifted], v.shape)], one)
        return c.b.op("sub", [shifted, c.b.op("log", [total], one)], v.shape)

    return last_axis(c, c.f32(c["self"]), c["dim"], make)


def fill(number: float | None) -> Rule:
    """A tensor of one number, which is `number` or the argument `fill_value`."""

    def rule(c: Call) -> Value:
        if c.dtype != "f32":
            raise c.refuse("it makes integers")
        return c.b.full(number if number is not None else float(c["fill_value"]), c.shape)

    return rule
