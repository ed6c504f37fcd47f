"""Rules for reading by index: rows of a table, which `embedding` reads."""

from __future__ import annotations

from ..call import Call
from ..text import Size, Value, broadcast_shape, inverse, product, tidy


def index(c: Call) -> Value:
    """x[:, i, j, ...], where tensors of integers index axes that are side by side."""
    x, indices = c.f32(c["self"]), list(c["indices"])
    at = [axis for axis, i in enumerate(indices) if i is not None]
    numbers = [indices[axis] for axis in at]
    if any(not isinstance(i, Value) or i.dtype not in ("i32", "i64") for i in numbers):
        raise c.refuse("an index is a mask, not integers")
    if at != list(range(at[0], at[0] + len(at))):
        raise c.refuse("the axes that it indexes are not side by side")
    first = [a for a in range(len(x.shape)) if a not in at]
    turned = c.b.transpose(x, at + first)
    row, rows = _row(c, numbers[0], turned.shape[0]), turned.shape[0]
    for i, size in zip(numbers[1:], turned.shape[1:]):
        row = c.b.op("mul", [row, c.whole(size)], row.shape, "i32")
        shape = broadcast_shape(row.shape, i.shape)
        row = c.b.op("add", [row, _row(c, i, size)], shape, "i32")
        rows = tidy(rows * size)
    found = _chosen(c, turned, len(at), rows, row)
    # the axes of the indices go where the indexed axes were
    count = len(row.shape)
    lead = at[0]
    perm = [count + a for a in range(lead)] + list(range(count))
    perm += [count + a for a in range(lead, len(first))]
    return c.b.reshape(c.b.transpose(found, perm), c.shape)


def _chosen(c: Call, x: Value, axes: int, rows: Size, row: Value) -> Value:
    """Rows of x by their numbers `row`. The first `axes` axes of x count as one axis of `rows` rows."""
    rest = x.shape[axes:]
    width = product(rest)
    table = c.b.reshape(x, (rows, width))
    found = c.b.op("embedding", [table, row], row.shape + (width,))
    return c.b.reshape(found, row.shape + rest)


def _along(c: Call, x: Value, axis: int, row: Value) -> Value:
    """x read along an axis at the indices `row`, which have one axis."""
    perm = [axis] + [i for i in range(len(x.shape)) if i != axis]
    found = _chosen(c, c.b.transpose(x, perm), 1, x.shape[axis], row)
    return c.b.transpose(found, inverse(perm))


def index_select(c: Call) -> Value:
    """Rows along one axis."""
    x = c.f32(c["self"])
    if not x.shape or len(c["index"].shape) != 1:
        raise c.refuse("its operand has no axes, or its index does not have one axis")
    axis = c["dim"] % len(x.shape)
    return _along(c, x, axis, _row(c, c["index"], x.shape[axis]))


def gather(c: Call) -> Value:
    """x[i, .., index[i, .., j, ..], ..]: single elements, by their places in the whole of x."""
    x, index = c.f32(c["self"]), c["index"]
    if not x.shape or c["sparse_grad"]:
        raise c.refuse("its operand has no axes, or its gradient is sparse")
    dim = c["dim"] % len(x.shape)
    count = product(x.shape)
    if isinstance(count, int) and count >= 1 << 31:
        raise c.refuse("an index would be no i32")
    place = None
    for axis in range(len(x.shape)):
        own = _row(c, index, x.shape[dim]) if axis == dim else c.b.index(index.shape, axis)
        step = c.whole(product(x.shape[axis + 1 :]))
        own = c.b.op("mul", [own, step], index.shape, "i32")
        place = own if place is None else c.b.op("add", [place, own], index.shape, "i32")
    table = c.b.reshape(x, (count, 1))
    return c.b.reshape(c.b.op("embedding", [table, place], index.shape + (1,)), c.shape)


def flip(c: Call) -> Value:
    """Axes from the last element to the first."""
    x = c.f32(c["self"])
    for axis in c["dims"]:
        axis %= len(x.shape)
        size = x.shape[axis]
        last = c.b.op("sub", [c.whole(size), c.whole(1)], (), "i32")
        row = c.b.op("sub", [last, c.b.index((size,), 0)], (size,), "i32")
        x = _along(c, x, axis, row)
    return x


def _row(c: Call, i: Value, size: Size) -> Value:
    """An index as i32; a negative one counts from the end."""
    i = c.b.cast(i, "i32")
    last = c.b.op("add", [i, c.whole(size)], i.shape, "i32")
    negative = c.b.op("lt", [i, c.whole(0)], i.shape, "bool")
    return c.b.op("select", [negative, last, i], i.shape, "i32")
