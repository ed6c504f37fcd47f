"""Rules for activations, as formulas.

At kinks the gradients are those of PyTorch's backward kernels, so the conditions are the same. Where
versions of PyTorch differ in the gradient at a bound, `at_bound` asks the version that runs.
"""

from __future__ import annotations

import functools
from typing import Callable

import torch

from ... import private
from ..call import Call
from ..text import Value, tidy
from . import formulas as f
from .formulas import X, of, where

Rule = Callable[[Call], Value]


def formula(make: Callable[[X], X], name: str = "self") -> Rule:
    """A rule of one operand."""
    return lambda c: make(of(c, name)).value


@functools.cache
def at_bound(function: Callable[[torch.Tensor], torch.Tensor], x: float) -> float:
    """The gradient that PyTorch gives a function at x: 0, 1/2 or 1."""
    with torch.enable_grad(), private.no_modes():
        at = torch.tensor([x], requires_grad=True)
        return float(torch.autograd.grad(function(at).sum(), at)[0])


def relu6(x: X) -> X:
    return _between(x, 0.0, 6.0)


def _between(x: X, low: float, high: float) -> X:
    """x, at least `low` and at most `high`. At a bound and beyond it the gradient is 0."""
    outside = f.detached(f.smallest(f.largest(x, low), high))
    return where((x > low) & (x < high), x, outside)


def hardtanh(c: Call) -> Value:
    return _between(of(c, "self"), float(c["min_val"]), float(c["max_val"])).value


def hardsigmoid(x: X) -> X:
    return _between(x + 3.0, 0.0, 6.0) * (1 / 6)


def hardswish(x: X) -> X:
    """x relu6(x + 3) / 6."""
    low, high = (at_bound(torch.nn.functional.hardswish, v) for v in (-3.0, 3.0))
    below = x < -3.0 if low else x <= -3.0
    above = x >= 3.0 if high == 1.0 else x > 3.0
    inside = where(below | above, 0.0, x)
    return where(below, x * 0.0, where(above, x, inside * (inside + 3.0) * (1 / 6)))


def mish(x: X) -> X:
    return x * f.tanh(f.softplus(x))


def elu(c: Call) -> Value:
    x, alpha = of(c, "self"), float(c["alpha"])
    scale, inner = float(c["scale"]), float(c["input_scale"])
    return _elu(x, alpha, scale, inner).value


def _elu(x: X, alpha: float, scale: float, inner: float) -> X:
    low = where(x > 0.0, 0.0, x)
    return where(x > 0.0, x * scale, f.expm1(low * inner) * (alpha * scale))


def celu(c: Call) -> Value:
    alpha = float(c["alpha"])
    return _elu(of(c, "self"), alpha, 1.0, 1.0 / alpha).value


def selu(x: X) -> X:
    """With the constants of Klambauer et al., Self-Normalizing Neural Networks, appendix A1."""
    return _elu(x, 1.6732632423543772, 1.0507009873554805, 1.0)


def leaky_relu(c: Call) -> Value:
    x = of(c, "self")
    return where(x > 0.0, x, x * float(c["negative_slope"])).value


def prelu(c: Call) -> Value:
    """The weight has one number, or one for each channel (axis 1)."""
    x, w = of(c, "self"), of(c, "weight")
    if len(w.shape) == 1 and len(x.shape) > 2 and w.shape[0] != 1:
        w = X(c.b, c.b.reshape(w.value, w.shape + (1,) * (len(x.shape) - 2)))
    return where(x > 0.0, x, x * w).value


def threshold(c: Call) -> Value:
    x = of(c, "self")
    return where(x <= float(c["threshold"]), float(c["value"]), x).value  # NaN stays


def softshrink(c: Call) -> Value:
    x, lambd = of(c, "self"), float(c["lambd"])
    return where(x > lambd, x - lambd, where(x < -lambd, x + lambd, x * 0.0)).value


def hardshrink(c: Call) -> Value:
    x, lambd = of(c, "self"), float(c["lambd"])
    return where((x <= lambd) & (x >= -lambd), 0.0, x).value


def softplus(c: Call) -> Value:
    """log(1 + e^(beta x)) / beta; x itself where beta x is above the threshold."""
    x, beta = of(c, "self"), float(c["beta"])
    y = f.softplus(x * beta) / beta if beta != 1 else f.softplus(x)
    return where(x * beta > float(c["threshold"]), x, y).value


def glu(c: Call) -> Value:
    """The first half times the sigmoid of the second."""
    x = c.f32(c["self"])
    axis = c["dim"] % len(x.shape)
    half = c.shape[axis]
    gate = c.b.op("sigmoid", [c.b.slice(x, axis, half, tidy(2 * half))], c.shape)
    return c.b.op("mul", [c.b.slice(x, axis, 0, half), gate], c.shape)


def gelu(c: Call) -> Value:
    return c.b.op("gelu", [c.f32(c["self"])], c.shape, approximate=str(c["approximate"]))
