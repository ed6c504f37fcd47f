"""Formulas as one reads them: a value with Python's operators, each of which is an op of the text.

    def mish(c: Call) -> Value:
        x = of(c, "self")
        return (x * tanh(softplus(x))).value

Operands broadcast as in PyTorch. Comparisons give conditions for `where`. Where `where` does not
choose an operand, the operand's derivative must still be finite: it is multiplied by a gradient of 0,
and 0 times Inf is NaN.
"""

from __future__ import annotations

import math
from typing import Any, Sequence

from ..call import Call
from ..text import Builder, Shape, Value, broadcast_shape

Operand = Any  # X | float


class X:
    """A value of a formula."""

    __slots__ = ("b", "value")

    def __init__(self, builder: Builder, value: Value) -> None:
        self.b, self.value = builder, value

    @property
    def shape(self) -> Shape:
        return self.value.shape

    def op(self, name: str, *operands: Operand, dtype: str = "f32") -> "X":
        """An op of these operands. Its shape is the one that they broadcast to."""
        return _call(self.b, name, operands, dtype)

    def __add__(self, other: Operand) -> "X":
        return self.op("add", self, other)

    def __radd__(self, other: Operand) -> "X":
        return self.op("add", other, self)

    def __sub__(self, other: Operand) -> "X":
        return self.op("sub", self, other)

    def __rsub__(self, other: Operand) -> "X":
        return self.op("sub", other, self)

    def __mul__(self, other: Operand) -> "X":
        return self.op("mul", self, other)

    def __rmul__(self, other: Operand) -> "X":
        return self.op("mul", other, self)

    def __truediv__(self, other: Operand) -> "X":
        return self.op("div", self, other)

    def __rtruediv__(self, other: Operand) -> "X":
        return self.op("div", other, self)

    def __neg__(self) -> "X":
        return self.op("neg", self)

    def __lt__(self, other: Operand) -> "X":
        return self.op("lt", self, other, dtype="bool")

    def __le__(self, other: Operand) -> "X":
        return self.op("le", self, other, dtype="bool")

    def __gt__(self, other: Operand) -> "X":
        return self.op("lt", other, self, dtype="bool")

    def __ge__(self, other: Operand) -> "X":
        return self.op("le", other, self, dtype="bool")

    def equals(self, other: Operand) -> "X":
        return self.op("eq", self, other, dtype="bool")

    def __and__(self, other: "X") -> "X":
        return self.op("and", self, other, dtype="bool")

    def __or__(self, other: "X") -> "X":
        return self.op("or", self, other, dtype="bool")

    def __invert__(self) -> "X":
        return self.op("not", self, dtype="bool")

    def along(self, op: str, axes: Sequence[int]) -> "X":
        """A reduction, which leaves each of the axes with size 1."""
        if not axes:
            return self
        shape = tuple(1 if i in axes else s for i, s in enumerate(self.shape))
        last = list(axes) == [len(shape) - 1]
        return X(self.b, self.b.op(op, [self.value], shape, axes=None if last else list(axes)))


def _call(builder: Builder, name: str, operands: Sequence[Operand], dtype: str) -> X:
    values = [o.value if isinstance(o, X) else float(o) for o in operands]
    shape: Shape = ()
    for value in values:
        if isinstance(value, Value):
            shape = broadcast_shape(shape, value.shape)
    return X(builder, builder.op(name, values, shape, dtype))


def of(c: Call, name: str) -> X:
    """An argument of a call, as f32."""
    value = c.f32(c[name])
    return X(c.b, value if isinstance(value, Value) else c.b.full(value, ()))


def where(condition: X, a: Operand, b: Operand) -> X:
    return condition.op("select", condition, a, b)


def detached(x: X) -> X:
    """x, without a gradient."""
    return X(x.b, x.b.op("stop_gradient", [x.value], x.shape, x.value.dtype))


def exp(x: X) -> X:
    return x.op("exp", x)


def log(x: X) -> X:
    return x.op("log", x)


def tanh(x: X) -> X:
    return x.op("tanh", x)


def sqrt(x: X) -> X:
    return x.op("sqrt", x)


def absolute(x: X) -> X:
    """|x|, whose gradient at 0 is 0."""
    return x.op("abs", x)


def floor(x: X) -> X:
    return x.op("floor", x)


def largest(a: Operand, b: Operand) -> X:
    """The greater one. Equal ones share the gradient."""
    one = a if isinstance(a, X) else b
    return one.op("max", a, b)


def smallest(a: Operand, b: Operand) -> X:
    one = a if isinstance(a, X) else b
    return one.op("min", a, b)


_SMALL = 2.0**-6  # below it four terms of a series are exact to 2^-26 of the sum


def log1p(x: X) -> X:
    """log(1 + x), also where 1 + x rounds x away."""
    small = absolute(x) < _SMALL
    near = where(small, x, 0.0)
    series = near * (1.0 - near * (0.5 - near * (1 / 3 - near * 0.25)))
    return where(small, series, log(1.0 + where(small, 0.0, x)))


def expm1(x: X) -> X:
    """e^x - 1, also where e^x rounds x away."""
    small = absolute(x) < _SMALL
    near = where(small, x, 0.0)
    series = near * (1.0 + near * (0.5 + near * (1 / 6 + near * (1 / 24))))
    return where(small, series, exp(where(small, 0.0, x)) - 1.0)


def softplus(x: X) -> X:
    """log(1 + e^x) = max(x, 0) + log(1 + e^-|x|); the gradient at 0 is 1/2."""
    return largest(x, 0.0) + log1p(exp(-absolute(x)))


def log_sigmoid(x: X) -> X:
    return smallest(x, 0.0) - log1p(exp(-absolute(x)))


def safe_sqrt(x: X) -> X:
    """The square root of x >= 0. Its gradient at 0 is 0, as in PyTorch's norms and standard deviations."""
    zero = x.equals(0.0)
    return where(zero, 0.0, sqrt(where(zero, 1.0, x)))


def is_nan(x: X) -> X:
    return ~x.equals(x)


def truncated(x: X) -> X:
    """x without its fraction."""
    return where(x < 0.0, -floor(-x), floor(x))


def nearest(x: X) -> X:
    """The nearest integer; of two that are as near, the even one. Each step is exact, also where a
    recipe rounds it to bf16: a value that has a fraction is below 2^7 there."""
    size = absolute(x)
    below = floor(size)
    rest = size - below
    half = below * 0.5
    up = (rest > 0.5) | (rest.equals(0.5) & ~half.equals(floor(half)))
    rounded = where(up, below + 1.0, below)
    return detached(where(x < 0.0, -rounded, rounded))


def integer_power(x: X, n: int) -> X:
    """x^n for n >= 1, by squaring."""
    result: X | None = None
    while n:
        if n & 1:
            result = x if result is None else result * x
        n >>= 1
        if n:
            x = x * x
    assert result is not None
    return result


def power(x: X, p: float) -> X:
    """x^p, for any number p: NaN where x < 0 and p is no integer."""
    if p == 0:
        return where(x.equals(x), 1.0, 1.0)
    if math.isinf(p) or math.isnan(p):
        raise ValueError(f"the exponent is {p}")
    if p < 0:
        return x.op("rsqrt", x) if p == -0.5 else power(1.0 / x, -p)
    whole = int(math.floor(p))
    rest = p - whole
    if whole > 1 << 16:
        raise ValueError(f"the exponent is {p}")
    if rest == 0:
        return integer_power(x, whole)
    root = sqrt(x) if rest == 0.5 else exp(rest * log(x))
    if not whole:
        return root
    # at 0 the root's gradient is infinite, and the power's is 0
    zero = x.equals(0.0)
    safe = where(zero, 1.0, x)
    root = sqrt(safe) if rest == 0.5 else exp(rest * log(safe))
    return where(zero, 0.0, integer_power(safe, whole) * root)


def exp2(x: X) -> X:
    """2^x = 2^n e^((x - n) log 2), where n is the integer nearest to x. 2^n is exact, and |x - n| is at
    most 1/2, so the exponential loses no digits."""
    whole = nearest(smallest(largest(x, -1e4), 1e4))  # an infinity has no rest
    rest = exp((x - whole) * math.log(2))
    power_of_2 = exp(whole * math.log(2)) * (1 + 2.0**-10)
    return rest * detached(power_of_2.op("pow2_floor", power_of_2))
