"""Rules for convolutions. Convolutions of patches that do not overlap are linears. Short ones along one
axis, with a filter for each channel, are sums of a few products. PyTorch runs all others."""

from __future__ import annotations

from ..call import Call
from ..text import Value, tidy
from .linears import as_linear, batch


def patches(c: Call) -> Value:
    """A convolution of one or two axes whose kernel is its stride, in groups or not.

    x [N, C, h p, w q] -> patches [N, h w, C p q]; what is left at the end of an axis is cut off. The
    product with the weight [O, C p q] is a linear, or with groups one product for each group. One
    axis is treated as two, the first of size 1.
    """
    x, weight = c.f32(c["input"]), c.own("weight")
    if _is_short(c, x, weight):
        return _short(c, x, c.f32(weight))
    if not c.is_weight("weight"):
        raise c.refuse("its weight is not computed from parameters alone")
    spatial = len(weight.shape) - 2
    kernel = list(weight.shape[2:])
    stride, dilation = (_each(c[name], spatial) for name in ("stride", "dilation"))
    if spatial > 2 or any(_each(c["padding"], spatial)):
        raise c.refuse("it has padding, or more than two axes")
    if stride != kernel or any(d != 1 and k != 1 for d, k in zip(dilation, kernel)):
        raise c.refuse(f"its stride {stride} is not its kernel's size {kernel}: patches overlap")
    batched = len(x.shape) == spatial + 2
    n, images = (x.shape[0], x.shape[2:]) if batched else (1, x.shape[1:])
    if any(not isinstance(size, int) for size in images):
        raise c.refuse("the image's size is dynamic")
    groups, out, channels = c["groups"], weight.shape[0], weight.shape[1]
    p, q = ([1] + kernel)[-2:]
    high, wide = ((1,) + tuple(images))[-2:]
    h, w = high // p, wide // q
    x = c.b.reshape(x, (n, groups * channels, high, wide))
    x = c.b.slice(c.b.slice(x, 2, 0, h * p), 3, 0, w * q)
    cells = c.b.reshape(x, (n, groups, channels, h, p, w, q))
    cells = c.b.transpose(cells, (1, 0, 3, 5, 2, 4, 6))
    flat = c.b.reshape(cells, (groups, n, h * w, channels * p * q))
    matrix = c.b.reshape(weight, (out, channels * p * q))
    bias = c.own("bias") if c.has("bias") else None
    if groups == 1:
        y = as_linear(c, c.b.reshape(flat, flat.shape[1:]), matrix, bias, "weight", True)
    else:
        y = _grouped(c, flat, matrix, groups)
        if bias is not None:
            y = c.b.op("add", [y, c.f32(bias)], y.shape)
    return c.b.reshape(c.b.transpose(y, (0, 2, 1)), c.shape)


_SHORT = 8  # the most taps of a filter that is written out


def _is_short(c: Call, x: Value, weight: Value) -> bool:
    """Whether each channel has a filter of its own, with few taps, as Mamba's have."""
    depthwise = len(weight.shape) == 3 and weight.shape[1] == 1 and c["groups"] == weight.shape[0]
    return (
        depthwise
        and len(x.shape) == 3
        and weight.shape[2] <= _SHORT
        and not isinstance(c["padding"], str)
        and _each(c["stride"], 1) == [1]
    )


def _short(c: Call, x: Value, w: Value) -> Value:
    """x [N, C, L], w [C, 1, K]: the sum over k of x, shifted by k, times w[:, 0, k]."""
    padding, step = _each(c["padding"], 1)[0], _each(c["dilation"], 1)[0]
    x = c.b.padded(x, 2, padding, padding)
    length, total = c.shape[2], None
    for k in range(w.shape[2]):
        tap = c.b.reshape(c.b.slice(w, 2, k, k + 1), (w.shape[0], 1))
        shifted = c.b.slice(x, 2, k * step, tidy(k * step + length))
        term = c.b.op("mul", [shifted, tap], c.shape)
        total = term if total is None else c.b.op("add", [total, term], c.shape)
    if c.has("bias"):
        bias = c.b.reshape(c.f32(c["bias"]), (w.shape[0], 1))
        total = c.b.op("add", [total, bias], c.shape)
    return total


def _grouped(c: Call, x: Value, w: Value, groups: int) -> Value:
    """x [G, N, P, K], w [G M, K] -> [N, P, G M]: a product for each group, which is never FP8."""
    _, n, places, k = x.shape
    rows = c.b.reshape(x, (groups, tidy(n * places), k))
    parts = c.b.reshape(c.f32(w), (groups, w.shape[0] // groups, k))
    y = batch(c, rows, c.b.transpose(parts, (0, 2, 1)))
    y = c.b.transpose(c.b.reshape(y, (groups, n, places, w.shape[0] // groups)), (1, 2, 0, 3))
    return c.b.reshape(y, (n, places, w.shape[0]))


def _each(value: object, count: int) -> list[int]:
    """An argument for each axis. "valid" is no padding."""
    if value == "valid":
        return [0] * count
    if isinstance(value, str):
        return [-1] * count
    found = list(value) if isinstance(value, (list, tuple)) else [value]
    return found * (count if len(found) == 1 else 1)
