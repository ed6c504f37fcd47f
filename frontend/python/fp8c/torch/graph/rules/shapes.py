"""Rules for ops that move elements and compute nothing."""

from __future__ import annotations

from typing import Any, Callable

from ..call import Call, inner_dtype, shape_of
from ..text import Size, Value, product, tidy


def same(c: Call) -> Value:
    """The operand itself."""
    return c["self"]


def detach(c: Call) -> Value:
    return c.stopped(c["self"]) if c.needs_grad("self") else c["self"]


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


def reverse(c: Call) -> Value:
    """x.T: the axes from the last to the first."""
    return c.b.transpose(c["self"], range(len(c["self"].shape))[::-1])


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
    """Between floats it does nothing: recipes round. Else to f32, to bool, or between integers."""
    x: Value = c["self"]
    to = inner_dtype(c.fake.dtype)
    if x.dtype == "i64" and to != "bool":
        raise c.refuse("it is of 64-bit integers")
    if to == "bool" and x.dtype != "bool":
        zero = c.whole(0) if x.dtype in ("i32", "i64") else 0.0
        x = c.b.cast(x, "i32") if x.dtype == "i64" else x
        same = c.b.op("eq", [x, zero], x.shape, "bool")
        return c.b.op("not", [same], x.shape, "bool")
    if x.dtype in ("f32", "bf16"):
        if to not in (x.dtype, "f32"):
            raise c.refuse("it makes integers of floats")
        return x
    return c.f32(x) if to == "f32" else c.b.cast(x, to)


def _bounds(c: Call, x: Value, axis: int, start: Any, length: Any) -> Value:
    return c.b.slice(x, axis, start, tidy(start + length))


def slice_(c: Call) -> Value:
    x = c["self"]
    axis = c["dim"] % len(x.shape)
    start = c["start"] or 0
    if isinstance(start, int) and start < 0:
        start = tidy(x.shape[axis] + start)
        if isinstance(start, int):
            start = max(start, 0)
    if c["step"] != 1:
        return _every(c, x, axis, start, c.shape[axis], c["step"])
    return _bounds(c, x, axis, start, c.shape[axis])


def _every(c: Call, x: Value, axis: int, start: Size, count: Size, step: int) -> Value:
    """Every `step`-th element from `start` on: the first of each group. The last group may be cut."""
    end = tidy(start + count * step)
    over = tidy(end - x.shape[axis])
    if not isinstance(over, int):
        raise c.refuse("its step is not 1, along an axis whose size is dynamic")
    if over > 0:
        last = tidy(end - step)
        one = c.b.slice(x, axis, last, tidy(last + 1))
        if tidy(count - 1) == 0:
            return one
        rest = _every(c, x, axis, start, tidy(count - 1), step)
        return c.b.concat([rest, one], axis)
    x = c.b.slice(x, axis, start, end)
    groups = c.b.reshape(x, x.shape[:axis] + (count, step) + x.shape[axis + 1 :])
    return c.b.reshape(
        c.b.slice(groups, axis + 1, 0, 1), c.shape[:axis] + (count,) + c.shape[axis + 1 :]
    )


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
    """split, chunk and unbind: a slice for each result. The results' shapes say where it is."""
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


def _parts(c: Call, name: str = "tensors") -> list[Value]:
    """Tensors to join, in the result's dtype. PyTorch ignores tensors of shape [0], and so does this."""
    parts = [c.f32(v) if c.dtype == "f32" else v for v in c[name]]
    kept = [p for p in parts if len(p.shape) != 1 or p.shape[0] != 0]
    return kept or parts


def concat(c: Call) -> Value:
    return c.b.concat(_parts(c), c["dim"] % len(c.shape))


def stack(c: Call) -> Value:
    axis = c["dim"] % len(c.shape)
    shape = c.shape[:axis] + (1,) + c.shape[axis + 1 :]
    return c.b.concat([c.b.reshape(v, shape) for v in _parts(c)], axis)


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
        x = c.b.padded(x, axis, max(before, 0), max(after, 0), number)
    return x


def roll(c: Call) -> Value:
    """What leaves an axis at its end comes in at its beginning."""
    x, axes, shifts = c["self"], list(c["dims"]), list(c["shifts"])
    if not axes:
        x, axes = c.b.reshape(x, (product(x.shape),)), [0]
    for axis, shift in zip(axes, shifts):
        axis %= len(x.shape)
        size = x.shape[axis]
        if not isinstance(size, int) or not isinstance(shift, int):
            raise c.refuse("the axis, or the shift, is dynamic")
        cut = size - shift % size
        if cut != size:
            parts = [c.b.slice(x, axis, cut, size), c.b.slice(x, axis, 0, cut)]
            x = c.b.concat(parts, axis)
    return c.b.reshape(x, c.shape)


def repeat(c: Call) -> Value:
    """The whole tensor repeated along each axis."""
    x, counts = c["self"], list(c["repeats"])
    x = c.b.reshape(x, (1,) * (len(counts) - len(x.shape)) + x.shape)
    for axis, count in enumerate(counts):
        if count != 1:
            x = _repeated(c, x, axis, count, before=True)
    return x


def repeat_interleave(c: Call) -> Value:
    """Each element repeated."""
    x, count = c["self"], c["repeats"]
    if not c.has("dim"):
        x = c.b.reshape(x, (product(x.shape),))
    axis = c["dim"] % len(x.shape) if c.has("dim") else 0
    return _repeated(c, x, axis, count, before=False)


def _repeated(c: Call, x: Value, axis: int, count: Size, before: bool) -> Value:
    """An axis repeated, as a whole (before) or element by element."""
    lead, size, rest = x.shape[:axis], x.shape[axis], x.shape[axis + 1 :]
    thin = lead + ((1, size) if before else (size, 1)) + rest
    wide = lead + ((count, size) if before else (size, count)) + rest
    x = c.b.broadcast(c.b.reshape(x, thin), wide)
    return c.b.reshape(x, lead + (tidy(size * count),) + rest)


def triangle(lower: bool) -> Callable[[Call], Value]:
    """tril and triu: 0 beyond a diagonal of the last two axes."""

    def rule(c: Call) -> Value:
        x = c.f32(c["self"])
        if c.dtype != "f32":
            raise c.refuse("it computes with integers")
        shape = x.shape[-2:]
        row, column = c.b.index(shape, 0), c.b.index(shape, 1)
        row = c.b.op("add", [row, c.whole(c["diagonal"])], shape, "i32")
        seen = [column, row] if lower else [row, column]
        return c.b.op("select", [c.b.op("le", seen, shape, "bool"), x, 0.0], x.shape)

    return rule


def pixel_shuffle(c: Call) -> Value:
    """[.., C r r, H, W] -> [.., C, H r, W r]."""
    x, r = c.f32(c["self"]), c["upscale_factor"]
    lead, (h, w) = x.shape[:-3], x.shape[-2:]
    n, channels = product(lead), x.shape[-3] // (r * r)
    cells = c.b.reshape(x, (n, channels, r, r, h, w))
    return c.b.reshape(c.b.transpose(cells, (0, 1, 4, 2, 5, 3)), c.shape)


def pixel_unshuffle(c: Call) -> Value:
    """[.., C, H r, W r] -> [.., C r r, H, W]."""
    x, r = c.f32(c["self"]), c["downscale_factor"]
    lead, (h, w) = x.shape[:-3], c.shape[-2:]
    cells = c.b.reshape(x, (product(lead), x.shape[-3], h, r, w, r))
    return c.b.reshape(c.b.transpose(cells, (0, 1, 3, 5, 2, 4)), c.shape)
