"""Rules for norms, and for embedding and dropout."""

from __future__ import annotations

from typing import Sequence

from ..call import Call
from ..text import Size, Value, product

FLOAT32_EPS = 1.1920928955078125e-07  # torch.finfo(torch.float32).eps, rms_norm's default


def layer_norm(c: Call) -> Value:
    """Over the last axes, which are joined into one."""
    return _norm(c, "layernorm", ["weight", "bias"], [1.0, 0.0], float(c["eps"]))


def rms_norm(c: Call) -> Value:
    return _norm(c, "rmsnorm", ["weight"], [1.0], float(c["eps"]) if c.has("eps") else FLOAT32_EPS)


def _norm(c: Call, op: str, names: Sequence[str], absent: Sequence[float], eps: float) -> Value:
    x = c.f32(c["input"])
    count = len(c["normalized_shape"])
    size = product(x.shape[len(x.shape) - count :])
    flat = c.b.reshape(x, x.shape[: len(x.shape) - count] + (size,))
    operands = [flat]
    for name, number in zip(names, absent):
        operands.append(
            c.b.reshape(c.own(name), (size,)) if c.has(name) else c.b.full(number, (size,))
        )
    return c.b.reshape(c.b.op(op, operands, flat.shape, eps=eps), x.shape)


def _normalized(c: Call, x: Value) -> Value:
    """x with mean 0 and standard deviation 1 along the last axis."""
    size = (x.shape[-1],)
    ones, zeros = c.b.full(1.0, size), c.b.full(0.0, size)
    return c.b.op("layernorm", [x, ones, zeros], x.shape, eps=float(c["eps"]))


def _by_channel(c: Call, y: Value) -> Value:
    """y weight + bias, whose numbers belong to axis 1."""
    shape = (y.shape[1],) + (1,) * (len(y.shape) - 2)
    for name, op in (("weight", "mul"), ("bias", "add")):
        if c.has(name):
            y = c.b.op(op, [y, c.b.reshape(c.f32(c[name]), shape)], y.shape)
    return y


def group_norm(c: Call) -> Value:
    """Each group of channels of each image is a row."""
    return _in_groups(c, c["num_groups"])


def instance_norm(c: Call) -> Value:
    """Each channel of each image is a row."""
    if not c["use_input_stats"] or c.has("running_mean"):
        raise c.refuse("it has running statistics")
    return _in_groups(c, c["input"].shape[1])


def _in_groups(c: Call, groups: Size) -> Value:
    x = c.f32(c["input"])
    size = product(x.shape[1:])
    rows = c.b.reshape(x, (x.shape[0], groups, _quotient(c, size, groups)))
    return _by_channel(c, c.b.reshape(_normalized(c, rows), x.shape))


def _quotient(c: Call, size: Size, count: Size) -> Size:
    if not isinstance(size, int) or not isinstance(count, int):
        raise c.refuse("the image's size is dynamic")
    return size // count


def batch_norm(c: Call) -> Value:
    """Running statistics are read, as in eval, or there are none. A stage can't change them."""
    x = c.f32(c["input"])
    if not c["training"] and c.has("running_mean"):
        shape = (x.shape[1],) + (1,) * (len(x.shape) - 2)
        mean, variance = (c.b.reshape(c.f32(c[n]), shape) for n in ("running_mean", "running_var"))
        scale = c.b.op("rsqrt", [c.b.op("add", [variance, float(c["eps"])], shape)], shape)
        return _by_channel(c, c.b.op("mul", [c.b.op("sub", [x, mean], x.shape), scale], x.shape))
    if c.has("running_mean"):
        raise c.refuse("in training it changes its running statistics")
    perm = [1, 0] + list(range(2, len(x.shape)))
    turned = c.b.transpose(x, perm)
    rows = c.b.reshape(turned, (x.shape[1], product(turned.shape[1:])))
    return _by_channel(c, c.b.transpose(c.b.reshape(_normalized(c, rows), turned.shape), perm))


def embedding(c: Call) -> Value:
    if c["scale_grad_by_freq"] or c["sparse"]:
        raise c.refuse("scale_grad_by_freq and sparse gradients are not in the language")
    padding = c["padding_idx"]
    return c.b.op(
        "embedding",
        [c.own("weight"), c["indices"]],
        c.shape,
        padding=padding if padding >= 0 else None,
    )


def dropout(c: Call) -> Value:
    """Each dropout has a stream of its own, by its position in the graph."""
    x = c.f32(c["input"])
    if not c["train"] or c["p"] == 0:
        return x
    if c["p"] >= 1:
        return c.b.full(0.0, c.shape)
    return c.b.op(
        "dropout", [x, c.seed()], c.shape, p=float(c["p"]), stream=c.facts.streams[c.node]
    )
