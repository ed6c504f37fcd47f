"""Rules for linears and products.

A product of an activation and a parameter is a linear, however it is written: FP8 recipes are for
it. A product of two activations is `matmul` or `batch_matmul`, which no recipe makes FP8.
"""

from __future__ import annotations

import string
from typing import Callable, Sequence

from ... import private
from ..call import Call
from ..text import Value, broadcast_shape, product, tidy


def as_linear(
    c: Call, x: Value, w: Value, bias: Value | None, weight: str, transposed: bool
) -> Value:
    """x w (or x w^T) + bias, where w depends on parameters alone."""
    if w.op == "transpose" and len(w.shape) == 2:
        w, transposed = w.operands[0], not transposed
    flat = x.shape[:-1]
    if x.op == "reshape" and tidy(x.operands[0].shape[-1] - x.shape[-1]) == 0:
        x = x.operands[0]  # rows that were joined for addmm
    shape = x.shape[:-1] + (w.shape[0] if transposed else w.shape[1],)
    fits = bias is not None and len(bias.shape) == 1 and tidy(bias.shape[0] - shape[-1]) == 0
    operands = [x, w, bias] if fits else [x, w]
    y = c.b.op(
        "linear",
        operands,
        shape,
        transpose_b=True if transposed else None,
        name=c.linear_name(weight),
    )
    y = c.b.reshape(y, flat + shape[-1:])
    return y if bias is None or fits else _plus(c, y, bias)


def _product(c: Call, x: Value, w: Value, bias: Value | None, transposed: bool) -> Value:
    """A product of two activations. It is never a linear, so no recipe makes it FP8."""
    shape = x.shape[:-1] + (w.shape[0] if transposed else w.shape[1],)
    if w.op == "transpose":
        w, transposed = w.operands[0], not transposed
    y = c.b.op("matmul", [x, w], shape, transpose_b=True if transposed else None)
    return y if bias is None else _plus(c, y, bias)


def _plus(c: Call, y: Value, bias: Value) -> Value:
    return c.b.op("add", [y, c.f32(bias)], broadcast_shape(y.shape, bias.shape))


def linear(c: Call) -> Value:
    """input weight^T + bias."""
    x, w = c.f32(c["input"]), c.own("weight")
    bias = c.own("bias") if c.has("bias") else None
    flat = c.b.reshape(x, (1,) + x.shape) if len(x.shape) == 1 else x
    if len(w.shape) != 2:
        raise c.refuse("the weight does not have two axes")
    if c.is_weight("weight"):
        y = as_linear(c, flat, w, bias, "weight", True)
    else:
        y = _product(c, flat, c.f32(w), None if bias is None else c.f32(bias), True)
    return c.b.reshape(y, c.shape)


def stored(c: Call) -> Value:
    """A weight that is stored as FP8 codes: linears read the codes."""
    if c.nodes["codes"] not in c.facts.stored:
        raise c.refuse("its codes are no FP8 parameter of the model")
    for user in c.node.users:
        if private.target_name(user) != "aten.linear.default" or user.args[1] is not c.node:
            raise c.refuse(f"{private.target_name(user)} reads a weight that is stored in FP8, and linears alone "
                           "read codes")
    return c["codes"]


def addmm(c: Call) -> Value:
    """beta self + alpha mat1 mat2."""
    alpha, beta = float(c["alpha"]), float(c["beta"])
    x, bias = c.f32(c["mat1"]), c.own("self")
    if alpha != 1 or beta != 1:
        y = _scaled(c, _matrices(c, x, "mat2", None), alpha)
        return y if beta == 0 else _plus(c, y, _scaled(c, c.f32(bias), beta))
    return _matrices(c, x, "mat2", bias)


def _matrices(c: Call, x: Value, second: str, bias: Value | None) -> Value:
    """x times the matrix that is the argument `second`, with a bias."""
    if c.is_weight(second):
        return as_linear(c, x, c.own(second), bias, second, False)
    return _product(c, x, c.f32(c[second]), bias, False)


def _scaled(c: Call, x: Value, factor: float) -> Value:
    return x if factor == 1 else c.b.op("mul", [x, factor], x.shape)


def product_of(first: str, second: str) -> Callable[[Call], Value]:
    """mm, matmul, bmm, mv and dot. Operands of more than two axes are batches of matrices."""

    def rule(c: Call) -> Value:
        weight = c.is_weight(second) and not c.is_weight(first)
        w = c.own(second) if weight else c.f32(c[second])
        if weight and len(w.shape) > 2 and product(w.shape[:-2]) == 1:
            w = c.b.reshape(w, w.shape[-2:])  # a batch of one, as einsum makes it
        if c.is_weight(first) and not c.is_weight(second) and len(c[first].shape) == 2:
            y = _weight_first(c, c.own(first), w, first)
            return c.b.reshape(y, c.shape)
        x = c.f32(c[first])
        flat = c.b.reshape(x, (1,) + x.shape) if len(x.shape) == 1 else x
        if len(w.shape) == 1:
            w = c.b.reshape(w, w.shape + (1,))
        if len(w.shape) > 2:
            y = batch(c, flat, w)
        elif weight:
            y = as_linear(c, flat, w, None, second, False)
        else:
            y = _product(c, flat, w, None, False)
        return c.b.reshape(y, c.shape)

    return rule


def _weight_first(c: Call, w: Value, x: Value, weight: str) -> Value:
    """w x, for each matrix x: the transpose of the linear x^T w^T."""
    if len(x.shape) == 1:
        return as_linear(c, c.b.reshape(x, (1,) + x.shape), w, None, weight, True)
    rank = len(x.shape)
    turned = list(range(rank - 2)) + [rank - 1, rank - 2]
    return c.b.transpose(as_linear(c, c.b.transpose(x, turned), w, None, weight, True), turned)


def outer(c: Call) -> Value:
    a, b = c.f32(c["self"]), c.f32(c["vec2"])
    column = c.b.reshape(a, a.shape + (1,))
    return c.b.op("mul", [column, c.b.reshape(b, (1,) + b.shape)], c.shape)


def addmv(c: Call) -> Value:
    """beta self + alpha mat vec."""
    x, v = c.f32(c["mat"]), c.f32(c["vec"])
    y = _product(c, x, c.b.reshape(v, v.shape + (1,)), None, False)
    y = _scaled(c, c.b.reshape(y, c.shape), float(c["alpha"]))
    return y if c["beta"] == 0 else _plus(c, y, _scaled(c, c.f32(c["self"]), float(c["beta"])))


def baddbmm(c: Call) -> Value:
    """beta self + alpha batch1 batch2."""
    y = batch(c, c.f32(c["batch1"]), c.f32(c["batch2"]))
    y = _scaled(c, y, float(c["alpha"]))
    return y if c["beta"] == 0 else _plus(c, y, _scaled(c, c.f32(c["self"]), float(c["beta"])))


def batch(c: Call, x: Value, w: Value) -> Value:
    """The products of two batches of matrices, which is never a linear."""
    rows, columns = x.shape[-2], w.shape[-1]
    x, turned_x = _untransposed(x)
    w, turned_w = _untransposed(w)
    lead = broadcast_shape(x.shape[:-2], w.shape[:-2])
    return c.b.op(
        "batch_matmul",
        [x, w],
        lead + (rows, columns),
        transpose_a=turned_x or None,
        transpose_b=turned_w or None,
    )


def _untransposed(x: Value) -> tuple[Value, bool]:
    """x without a transpose of its last two axes, and whether there was one."""
    last = len(x.shape)
    if x.op == "transpose" and x.perm == tuple(range(last - 2)) + (last - 1, last - 2):
        return x.operands[0], True
    return x, False


def _axes_of(equation: str, ranks: Sequence[int]) -> tuple[list[str], str]:
    """The axes of each operand of an einsum and of its result, a letter each: "..." stands for the
    axes that have none, which are the same from the last one on."""
    left, arrow, right = equation.replace(" ", "").partition("->")
    terms = left.split(",")
    counts = [rank - len(t.replace("...", "")) for t, rank in zip(terms, ranks) if "..." in t]
    free = [x for x in string.ascii_letters if x not in equation][: max(counts, default=0)]
    rest = ["".join(free[len(free) + len(t.replace("...", "")) - rank :]) for t, rank in zip(terms, ranks)]
    if not arrow:
        letters = left.replace(",", "").replace(".", "")
        right = "..." + "".join(sorted(x for x in letters if letters.count(x) == 1))
    spelled = [t.replace("...", more) for t, more in zip(terms, rest)]
    return spelled, right.replace("...", "".join(free))


def einsum(c: Call) -> Value:
    """A contraction of two operands: a linear where one is a parameter and no axis is a batch."""
    operands = list(c.nodes["tensors"])
    terms, right = _axes_of(c["equation"], [len(v.shape) for v in c["tensors"]])
    if len(terms) != 2 or any(len(set(t)) != len(t) for t in terms):
        raise c.refuse("it does not have two operands, or an operand has an axis twice")
    a, b = terms
    if any((x in a) != (x in b) and x not in right for x in a + b):
        raise c.refuse("it sums an axis that only one operand has")
    first, second = ("first", operands[0]), ("second", operands[1])
    c.nodes |= dict((first, second))
    if c.is_weight("first") and not c.is_weight("second"):
        a, b, first, second = b, a, second, first
    x, weight = c.f32(c[first[0]]), c.is_weight(second[0])
    both = [i for i in a if i in b and i in right]
    summed = [i for i in b if i in a and i not in right]
    rows, columns = [i for i in a if i not in b], [i for i in b if i not in a]
    sizes = {i: s for i, s in zip(b, c[second[0]].shape)} | {i: s for i, s in zip(a, x.shape)}

    def ordered(value: Value, axes: str, groups: Sequence[Sequence[str]], kept: int) -> Value:
        """The axes in this order, and those of each group but the first `kept` joined."""
        value = c.b.transpose(value, [axes.index(i) for g in groups for i in g])
        shape = [sizes[i] for g in groups[:kept] for i in g]
        shape += [product([sizes[i] for i in g]) for g in groups[kept:]]
        return c.b.reshape(value, shape)

    if weight and not both:
        w, turned = c.own(second[0]), list(b) == columns + summed
        w = ordered(w, b, [columns, summed] if turned else [summed, columns], 0)
        y = as_linear(c, ordered(x, a, [rows, summed], 1), w, None, second[0], turned)
    else:
        w = ordered(c.f32(c[second[0]]), b, [both, summed, columns], 1)
        y = batch(c, ordered(x, a, [both, rows, summed], 1), w)
    found = both + rows + columns
    y = c.b.reshape(y, [sizes[i] for i in found])
    return c.b.transpose(y, [found.index(i) for i in right])
