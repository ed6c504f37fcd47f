"""Rules for reductions: sums, means, extremes, deviations, norms and softmax.

The language keeps a reduced axis with size 1; a rule drops it where PyTorch does.
"""

from __future__ import annotations

from typing import Any, Callable

from ..call import Call, axis_list, shape_of
from ..text import Size, Value, inverse, product
from . import formulas as f
from .formulas import X, of, where

Rule = Callable[[Call], Any]


def _axes(c: Call, x: X, name: str = "dim") -> list[int]:
    """The axes that a call reduces; without an argument all."""
    return axis_list(c[name] if name in c.nodes else None, len(x.shape))


def _floats(c: Call) -> X:
    """The operand of a call that gives floats."""
    if c.dtype != "f32":
        raise c.refuse("it reduces integers")
    return of(c, "self")


def reduce(op: str, axes: str = "dim") -> Rule:
    """A reduction over several axes."""

    def rule(c: Call) -> Value:
        x = _floats(c)
        return c.b.reshape(x.along(op, _axes(c, x, axes)).value, c.shape)

    return rule


def sum_of_numbers(c: Call) -> Value:
    """nansum: NaN counts as 0."""
    x = _floats(c)
    kept = where(f.is_nan(x), 0.0, x)
    return c.b.reshape(kept.along("reduce_sum", _axes(c, x)).value, c.shape)


def least(c: Call) -> Value:
    """amin: the maximum of -x, negated."""
    x = _floats(c)
    return c.b.reshape((-(-x).along("reduce_max", _axes(c, x))).value, c.shape)


def logsumexp(c: Call) -> Value:
    """log of the sum of e^x. The maximum is subtracted before and added after, unless it is infinite."""
    x = _floats(c)
    axes = _axes(c, x)
    top = f.detached(x.along("reduce_max", axes))
    top = where(top.op("isfinite", top, dtype="bool"), top, 0.0)
    total = f.exp(x - top).along("reduce_sum", axes)
    return c.b.reshape((f.log(total) + top).value, c.shape)


def _moments(c: Call) -> tuple[X, X]:
    """The mean and the variance along axes. `correction` (1 by default) is subtracted from the count."""
    x = of(c, "self")
    axes = _axes(c, x)
    count = product([x.shape[a] for a in axes])
    if not isinstance(count, int):
        raise c.refuse("the number of elements is dynamic")
    correction = 1.0
    if "unbiased" in c.nodes:
        correction = float(c["unbiased"])
    elif c.has("correction"):
        correction = float(c["correction"])
    mean = x.along("mean", axes)
    centred = x - mean
    variance = (centred * centred).along("mean", axes)
    if correction:
        rest = count - correction
        variance = variance * (count / rest if rest > 0 else float("nan" if count == 1 else "inf"))
    return mean, variance


def variance(root: bool) -> Rule:
    """The variance along axes, or its root."""

    def rule(c: Call) -> Value:
        found = _moments(c)[1]
        return c.b.reshape((f.safe_sqrt(found) if root else found).value, c.shape)

    return rule


def variance_and_mean(root: bool) -> Rule:
    """Both, as a list."""

    def rule(c: Call) -> list[Value]:
        mean, found = _moments(c)
        both = (f.safe_sqrt(found) if root else found, mean)
        shapes = [shape_of(fake) for fake in c.fake]
        return [c.b.reshape(one.value, shape) for one, shape in zip(both, shapes)]

    return rule


def vector_norm(order: str) -> Rule:
    """The norm of order 1, 2 or infinity. Where the norm of order 2 is 0 its gradient is 0, as in
    PyTorch."""

    def rule(c: Call) -> Value:
        x = of(c, "self")
        p = float(c[order]) if c.has(order) else 2.0
        axes = _axes(c, x)
        if p == 2.0:
            found = f.safe_sqrt((x * x).along("reduce_sum", axes))
        elif p == 1.0:
            found = f.absolute(x).along("reduce_sum", axes)
        elif p == float("inf"):
            found = f.absolute(x).along("reduce_max", axes)
        else:
            raise c.refuse(f"its order is {p}, not 1, 2 or infinity")
        return c.b.reshape(found.value, c.shape)

    return rule


def last_axis(c: Call, x: Value, axis: int, make: Callable[[Value], Value]) -> Value:
    """An op along an axis. For another axis than the last it stands between two transposes."""
    rank = len(x.shape)
    if not rank:
        raise c.refuse("its operand has no axes")
    axis %= rank
    perm = [i for i in range(rank) if i != axis] + [axis]
    return c.b.transpose(make(c.b.transpose(x, perm)), inverse(perm))


def softmax(c: Call) -> Value:
    x = c.f32(c["self"])
    return last_axis(c, x, c["dim"], lambda v: c.b.op("softmax", [v], v.shape))


def log_softmax(c: Call) -> Value:
    return last_axis(c, c.f32(c["self"]), c["dim"], lambda v: log_probabilities(X(c.b, v)).value)


def log_probabilities(x: X) -> X:
    """x - max - log(sum of e^(x - max)), along the last axis."""
    last = [len(x.shape) - 1]
    shifted = x - x.along("reduce_max", last)
    return shifted - f.log(f.exp(shifted).along("reduce_sum", last))


def mean_pool(c: Call) -> Value:
    """Adaptive average pooling over the last axes. Each result must be the mean of equally many."""
    x, sizes = of(c, "self"), list(c["output_size"])
    axes = range(len(x.shape) - len(sizes), len(x.shape))
    for axis, size in zip(axes, sizes):
        x = _pooled(c, x, axis, size)
    return x.value


def _pooled(c: Call, x: X, axis: int, size: Size) -> X:
    """The mean of each of `size` equal parts of an axis."""
    whole = x.shape[axis]
    if not isinstance(whole, int) or not isinstance(size, int) or whole % size:
        raise c.refuse(f"it can't cut {whole} elements into {size} equal parts")
    shape = x.shape[:axis] + (size, whole // size) + x.shape[axis + 1 :]
    parts = X(c.b, c.b.reshape(x.value, shape)).along("mean", [axis + 1])
    return X(c.b, c.b.reshape(parts.value, x.shape[:axis] + (size,) + x.shape[axis + 1 :]))


def average_pool(c: Call) -> Value:
    """Average pooling whose kernels do not overlap."""
    kernel = list(c["kernel_size"])
    stride, padding = list(c["stride"]) or kernel, list(c["padding"])
    if (
        stride != kernel
        or any(padding)
        or c["ceil_mode"]
        or (c.has("divisor_override") and c["divisor_override"] != product(kernel))
    ):
        raise c.refuse(
            "its stride is not its kernel's size, or it has padding, ceil_mode or a divisor"
        )
    x = of(c, "self")
    if len(kernel) < len(c.shape) - 2:
        kernel = kernel * (len(c.shape) - 2)
    for i, size in enumerate(kernel):
        axis = len(x.shape) - len(kernel) + i
        count = c.shape[axis]
        cut = c.b.slice(x.value, axis, 0, count * size)
        x = _pooled(c, X(c.b, cut), axis, count)
    return x.value
