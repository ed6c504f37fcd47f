"""Rules for ops that move elements and compute nothing."""

from __future__ import annotations

from typing import Any

from .call import Call, inner_dtype, shape_of
from .text import Dtype, Shape, Size, Value, product, tidy


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


def index(c: Call) -> Value:
    """x[i, j, ...] with tensors of numbers for the first axes: rows of a table, by embedding."""
    x, indices = c.f32(c["self"]), list(c["indices"])
    if any(not isinstance(i, Value) or i.dtype not in ("i32", "i64") for i in indices):
        raise c.refuse("it takes what a mask or a slice says, not numbers for the first axes")
    count = len(indices)
    row, rows = _row(c, indices[0], x.shape[0]), x.shape[0]
    for i, size in zip(indices[1:], x.shape[1:count]):
        shape = _wide(row.shape, i.shape)
        row = c.b.op(
            "mul",
            [row, c.b.op("const", [], (), "i32", value=size, to=Dtype("i32"))],
            row.shape,
            "i32",
        )
        row = c.b.op("add", [row, _row(c, i, size)], shape, "i32")
        rows = tidy(rows * size)
    width = product(x.shape[count:])
    found = c.b.op("embedding", [c.b.reshape(x, (rows, width)), row], row.shape + (width,))
    return c.b.reshape(found, c.shape)


def index_select(c: Call) -> Value:
    """Rows along one axis."""
    x, axis = c.f32(c["self"]), c["dim"] % len(c["self"].shape)
    perm = [axis] + [i for i in range(len(x.shape)) if i != axis]
    turned = c.b.transpose(x, perm)
    flat = c.b.reshape(turned, (turned.shape[0], product(turned.shape[1:])))
    row = _row(c, c["index"], x.shape[axis])
    found = c.b.op("embedding", [flat, row], row.shape + flat.shape[1:])
    back = [perm.index(i) for i in range(len(perm))]
    return c.b.transpose(c.b.reshape(found, row.shape + turned.shape[1:]), back)


def _row(c: Call, i: Value, size: Size) -> Value:
    """An index as i32; a negative one counts from the end."""
    i = c.b.cast(i, "i32")
    whole = c.b.op("const", [], (), "i32", value=size, to=Dtype("i32"))
    last = c.b.op("add", [i, whole], i.shape, "i32")
    zero = c.b.op("const", [], (), "i32", value=0, to=Dtype("i32"))
    return c.b.op("select", [c.b.op("lt", [i, zero], i.shape, "bool"), last, i], i.shape, "i32")


def _wide(a: Shape, b: Shape) -> Shape:
    return a if len(a) > len(b) or (len(a) == len(b) and all(y == 1 for y in b)) else b


def concat(c: Call) -> Value:
    values = [v for v in c["tensors"]]
    if c.dtype == "f32":
        values = [c.f32(v) for v in values]
    if len(values) == 1:
        return values[0]
    return c.b.op("concat", values, c.shape, values[0].dtype, axis=c["dim"] % len(c.shape))


def stack(c: Call) -> Value:
    axis = c["dim"] % len(c.shape)
    shape = c.shape[:axis] + (1,) + c.shape[axis + 1 :]
    values = [c.b.reshape(c.f32(v) if c.dtype == "f32" else v, shape) for v in c["tensors"]]
    return (
        values[0]
        if len(values) == 1
        else c.b.op("concat", values, c.shape, values[0].dtype, axis=axis)
    )


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
                shape = x.shape[:axis] + (amount,) + x.shape[axis + 1 :]
                parts.insert(place, c.b.full(number, shape))
        if len(parts) > 1:
            size = tidy(sum((p.shape[axis] for p in parts[1:]), parts[0].shape[axis]))
            x = c.b.op("concat", parts, x.shape[:axis] + (size,) + x.shape[axis + 1 :], axis=axis)
    return x
