"""Rules for ops that move elements and compute nothing."""

from __future__ import annotations

from typing import Any

from .call import Call, inner_dtype, shape_of
from .text import Value, tidy


def same(c: Call) -> Value:
    """The operand itself."""
    return c["self"]


def detach(c: Call) -> Value:
    if c.needs_grad("self"):
        raise c.refuse("it cuts a gradient, which the language can't say")
    return c["self"]


def reshape(c: Call) -> Value:
    """Any op whose result has the same elements in the same order."""
    return c.b.reshape(c["self"], c.shape)


def expand(c: Call) -> Value:
    return c.b.broadcast(c["self"], c.shape)


def expand_all(c: Call) -> list[Value]:
    """broadcast_tensors: each to the shape of all."""
    return [c.b.broadcast(v, shape_of(fake)) for v, fake in zip(c["tensors"], c.fake)]


def permute(c: Call) -> Value:
    return c.b.transpose(c["self"], c["dims"])


def transpose(c: Call) -> Value:
    """Two axes change places; without arguments the last two."""
    x = c["self"]
    rank = len(x.shape)
    if rank < 2:
        return x
    first, second = (c["dim0"], c["dim1"]) if "dim0" in c.nodes else (-2, -1)
    perm = list(range(rank))
    perm[first % rank], perm[second % rank] = perm[second % rank], perm[first % rank]
    return c.b.transpose(x, perm)


def cast(c: Call) -> Value:
    """Between floats nothing: recipes round. From integers and bools to f32."""
    x: Value = c["self"]
    to = inner_dtype(c.fake.dtype)
    if x.dtype in ("f32", "bf16") or to == "bool":
        if to not in (x.dtype, "f32"):
            raise c.refuse("it makes integers of floats, or bools")
        return x
    return c.f32(x) if to == "f32" else c.b.cast(x, to)


def _bounds(c: Call, x: Value, axis: int, start: Any, length: Any) -> Value:
    return c.b.slice(x, axis, start, tidy(start + length))


def slice_(c: Call) -> Value:
    x = c["self"]
    axis = c["dim"] % len(x.shape)
    if c["step"] != 1:
        raise c.refuse(f"its step is {c['step']}, not 1")
    start = c["start"] or 0
    if isinstance(start, int) and start < 0:
        start = tidy(x.shape[axis] + start)
    return _bounds(c, x, axis, start, c.shape[axis])


def narrow(c: Call) -> Value:
    x = c["self"]
    axis = c["dim"] % len(x.shape)
    return _bounds(c, x, axis, c["start"], c["length"])


def select(c: Call) -> Value:
    x = c["self"]
    axis = c["dim"] % len(x.shape)
    index = c["index"]
    if isinstance(index, int) and index < 0:
        index = tidy(x.shape[axis] + index)
    return c.b.reshape(_bounds(c, x, axis, index, 1), c.shape)


def pieces(c: Call) -> list[Value]:
    """split, chunk and unbind: one slice a result. The results' shapes say where they are."""
    x = c["self"]
    axis = c["dim"] % len(x.shape)
    whole = len(c.fake[0].shape) == len(x.shape)
    found, start = [], 0
    for fake in c.fake:
        shape = shape_of(fake)
        length = shape[axis] if whole else 1
        piece = _bounds(c, x, axis, start, length)
        found.append(piece if whole else c.b.reshape(piece, shape))
        start = tidy(start + length)
    return found


def concat(c: Call) -> Value:
    values = [v for v in c["tensors"]]
    if c.dtype == "f32":
        values = [c.f32(v) for v in values]
    if len(values) == 1:
        return values[0]
    return c.b.op("concat", values, c.shape, values[0].dtype, axis=c["dim"] % len(c.shape))


def stack(c: Call) -> Value:
    axis = c["dim"] % len(c.shape)
    shape = c.shape[:axis] + (1,) + c.shape[axis + 1:]
    values = [c.b.reshape(c.f32(v) if c.dtype == "f32" else v, shape) for v in c["tensors"]]
    return values[0] if len(values) == 1 else c.b.op("concat", values, c.shape, values[0].dtype, axis=axis)


def pad(c: Call) -> Value:
    """Constants before and after, along each axis; a negative number cuts."""
    if c.has("mode") and c["mode"] != "constant":
        raise c.refuse(f"its mode is {c['mode']}")
    x = c.f32(c["self"])
    number = float(c["value"] or 0)
    amounts = list(c["pad"])
    for k in range(len(amounts) // 2):
        axis = len(x.shape) - 1 - k
        before, after = amounts[2 * k], amounts[2 * k + 1]
        x = c.b.slice(x, axis, max(-before, 0), tidy(x.shape[axis] - max(-after, 0)))
        parts = [x]
        for amount, place in ((before, 0), (after, len(parts) + 1)):
            if amount > 0:
                shape = x.shape[:axis] + (amount,) + x.shape[axis + 1:]
                parts.insert(place, c.b.full(number, shape))
        if len(parts) > 1:
            size = tidy(sum((p.shape[axis] for p in parts[1:]), parts[0].shape[axis]))
            x = c.b.op("concat", parts, x.shape[:axis] + (size,) + x.shape[axis + 1:], axis=axis)
    return x
