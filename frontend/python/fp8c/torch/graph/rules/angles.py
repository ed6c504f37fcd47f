"""Sine and cosine of any f32. The language's `sin` and `cos` are exact only for angles up to 2^21.

A large angle is first reduced to less than one turn, as Payne and Hanek do: |x| is a sum of pieces of
12 bits, q_k 2^a_k. The fraction of 2^a_k / (2 pi) is known to 36 bits, in three parts of 12. So each
product of a piece and a part has 24 bits and is exact in f32. Its whole turns are dropped.
"""

from __future__ import annotations

import functools
import math
from typing import Callable

import sympy

from ..call import Call
from ..text import Value
from . import formulas as f
from .formulas import X, of, where

_FAR = 2.0**20
_BITS = 12
_LOWEST = -4  # the exponent of the lowest piece: the last bit of an f32 above _FAR is 2^-3
_PIECES = 11  # up to 2^128


@functools.cache
def _turns(exponent: int) -> tuple[float, float, float]:
    """The fraction of 2^exponent / (2 pi), in three parts of 12 bits."""
    bits = int(sympy.floor(sympy.Rational(2) ** (exponent + 3 * _BITS) / (2 * sympy.pi)))
    mask = (1 << _BITS) - 1
    return tuple(
        float((bits >> _BITS * (2 - i)) & mask) * 2.0 ** (-_BITS * (i + 1)) for i in range(3)
    )


def _reduced(x: X) -> X:
    """x minus whole turns, for a finite x of _FAR and more in magnitude."""
    rest, turns = f.absolute(x), None
    for piece in reversed(range(_PIECES)):
        exponent = _LOWEST + _BITS * piece
        q = f.floor(rest * 2.0**-exponent)
        rest = rest - q * 2.0**exponent
        high, mid, low = _turns(exponent)
        first = q * high
        part = (first - f.floor(first)) + (q * mid + q * low)
        turns = part if turns is None else turns + part
    angle = (turns - f.nearest(turns)) * (2 * math.pi)
    return where(x < 0.0, -angle, angle)


def rule_of(op: str) -> Callable[[Call], Value]:
    """The rule of sin or cos. The gradient is the op's own."""

    def rule(c: Call) -> Value:
        x = of(c, "self")
        near = f.detached(_reduced(x)) + (x - f.detached(x))
        return x.op(op, where(f.absolute(x) > _FAR, near, x)).value

    return rule
