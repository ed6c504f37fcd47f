"""The figures of watched values.

frontend/python/generate.py writes this file from frontend/figures.def: change those."""
from __future__ import annotations

from typing import NamedTuple

from . import _header as h


class CStatistic(h.Structure):
    _fields_ = [("struct_size", h.size), ("name", h.text), ("linear", h.text), ("operand", h.text),
                ("recipe", h.text), ("format", h.text), ("granularity", h.char * 48),
                ("what_if", h.i32), ("elements", h.i64), ("gemms", h.text), ("aliases", h.texts),
                ("amin", h.f64), ("amax", h.f64), ("range", h.f64), ("nonfinite", h.i64),
                ("underflow", h.f64), ("overflow", h.f64), ("mse", h.f64), ("cosine", h.f64),
                ("sqnr", h.f64), ("scale", h.f64), ("scale_wanted", h.f64), ("used", h.f64)]


class Statistic(NamedTuple):
    """fp8c_statistic. x is the value, d the value quantized and dequantized. Figures of codes and of d are
    NaN where it is not quantized.

    amin: the smallest |x| that is not 0; NaN if all are 0
    amax: the largest |x|
    range: log2(amax / amin): binades
    nonfinite: how many are NaN or Inf
    underflow: the share of elements that are not 0 but quantized to 0
    overflow: the share of elements too large to round to the format's maximum, so that they
        saturate
    mse: the mean of (d - x)^2
    cosine: sum of x d / sqrt(sum of x^2 * sum of d^2)
    sqnr: 10 log10(sum of x^2 / sum of (d - x)^2): decibels; E4M3 gives 31, E5M2 25
    scale: what x is multiplied by; NaN where there is a scale for each row or block
    scale_wanted: the scale that the value's own amax asks for; NaN as scale, and under a scale of
        1
    used: the largest |code| as a share of the format's maximum: how much of its range is in use. A
        scale that is 256 times too small shows here, and hardly in sqnr"""
    name: str
    linear: str
    operand: str
    recipe: str | None
    format: str | None
    granularity: str
    what_if: int
    elements: int
    gemms: str
    aliases: tuple[str, ...]
    amin: float
    amax: float
    range: float
    nonfinite: int
    underflow: float
    overflow: float
    mse: float
    cosine: float
    sqnr: float
    scale: float
    scale_wanted: float
    used: float
