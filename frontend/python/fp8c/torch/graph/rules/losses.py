"""Rules for losses."""

from __future__ import annotations

from typing import Callable

from ..call import Call
from ..text import Size, Value
from . import formulas as f
from .formulas import X, of, where
from .reductions import log_probabilities

REDUCTIONS = ("none", "mean", "sum")


def reduced(c: Call, loss: X) -> Value:
    """The losses of all elements, reduced as the call says."""
    reduction = REDUCTIONS[int(c["reduction"])]
    if reduction == "none":
        return loss.value
    op = "mean" if reduction == "mean" else "reduce_sum"
    return c.b.reshape(loss.along(op, range(len(loss.shape))).value, c.shape)


def cross_entropy(c: Call) -> Value:
    """cross_entropy_loss. Classes are in the second axis, here in the last."""
    logits, targets = c.f32(c["self"]), c["target"]
    classes = targets.dtype in ("i32", "i64")
    if len(logits.shape) == 1:
        logits = c.b.reshape(logits, (1,) + logits.shape)
        targets = c.b.reshape(targets, (1,) + targets.shape)
    elif len(logits.shape) > 2:
        last = [0] + list(range(2, len(logits.shape))) + [1]
        logits = c.b.transpose(logits, last)
        targets = targets if classes else c.b.transpose(targets, last)
    if not classes:
        return _soft(c, X(c.b, logits), X(c.b, c.f32(targets)))
    smoothing = float(c["label_smoothing"])
    if c.has("weight"):
        if smoothing:
            raise c.refuse("it has both weights of classes and label_smoothing")
        return _weighted(c, logits, targets)
    reduction = REDUCTIONS[int(c["reduction"])]
    y = c.b.op(
        "cross_entropy",
        [logits, targets],
        targets.shape if reduction == "none" else (),
        ignore=int(c["ignore_index"]),
        label_smoothing=smoothing or None,
        reduction=reduction if reduction != "mean" else None,
    )
    return c.b.reshape(y, c.shape)


def _soft(c: Call, logits: X, targets: X) -> Value:
    """Targets are probabilities. The mean is over all but the axis of classes."""
    smoothing = float(c["label_smoothing"])
    count = logits.shape[-1]
    if smoothing:
        if not isinstance(count, int):
            raise c.refuse("labels are smoothed over a dynamic number of classes")
        targets = targets * (1.0 - smoothing) + smoothing / count
    terms = targets * log_probabilities(logits)
    if c.has("weight"):
        terms = terms * of(c, "weight")
    losses = -terms.along("reduce_sum", [len(terms.shape) - 1])
    return c.b.reshape(reduced(c, losses), c.shape)


def _weighted(c: Call, logits: Value, targets: Value) -> Value:
    """Each row has the weight of its class; the mean is divided by the sum of the weights."""
    losses = c.b.op(
        "cross_entropy",
        [logits, targets],
        targets.shape,
        ignore=int(c["ignore_index"]),
        reduction="none",
    )
    return _mean_by_weight(c, X(c.b, losses), targets, logits.shape[-1])


def _mean_by_weight(c: Call, losses: X, targets: Value, classes: Size) -> Value:
    """Losses of rows times the weights of their classes. A row that is ignored has the weight 0."""
    row = c.b.cast(targets, "i32")
    ignored = X(c.b, c.b.op("eq", [row, c.whole(int(c["ignore_index"]))], row.shape, "bool"))
    each = where(ignored, 0.0, X(c.b, c.b.full(1.0, row.shape)))
    if c.has("weight"):
        table = c.b.reshape(c.f32(c["weight"]), (classes, 1))
        some = c.b.op("select", [ignored.value, c.whole(0), row], row.shape, "i32")
        found = c.b.op("embedding", [table, some], row.shape + (1,))
        each = where(ignored, 0.0, X(c.b, c.b.reshape(found, row.shape)))
    weighted = where(each.equals(0.0), 0.0, losses) * each
    if REDUCTIONS[int(c["reduction"])] != "mean":
        return c.b.reshape(reduced(c, weighted), c.shape)
    axes = range(len(row.shape))
    total = weighted.along("reduce_sum", axes) / each.along("reduce_sum", axes)
    return c.b.reshape(total.value, c.shape)


def negative_log_likelihood(c: Call) -> Value:
    """-x[class] of each row, where x are logarithms of probabilities, classes in axis 1."""
    x, targets = c.f32(c["self"]), c["target"]
    rank = len(x.shape)
    if rank == 1:
        x, targets = c.b.reshape(x, (1,) + x.shape), c.b.reshape(targets, (1,))
    elif rank > 2:
        x = c.b.transpose(x, [0] + list(range(2, rank)) + [1])
    row = c.b.reshape(c.b.cast(targets, "i32"), targets.shape + (1,))
    number = c.b.reshape(c.b.index(x.shape[-1:], 0), (1,) * (len(x.shape) - 1) + x.shape[-1:])
    chosen = X(c.b, c.b.op("eq", [number, row], x.shape, "bool"))
    picked = where(chosen, X(c.b, x), 0.0).along("reduce_sum", [len(x.shape) - 1])
    losses = -X(c.b, c.b.reshape(picked.value, targets.shape))
    return _mean_by_weight(c, losses, targets, x.shape[-1])


def distance(make: Callable[[Call, X], X]) -> Callable[[Call], Value]:
    """A loss of the differences of two tensors."""
    return lambda c: reduced(c, make(c, of(c, "self") - of(c, "target")))


def squares(c: Call, d: X) -> X:
    return d * d


def sizes(c: Call, d: X) -> X:
    return f.absolute(d)


def smooth_l1(c: Call, d: X) -> X:
    """d^2 / (2 beta) below beta, |d| - beta / 2 above."""
    beta = float(c["beta"])
    size = f.absolute(d)
    if beta == 0:
        return size
    return where(size < beta, d * d * (0.5 / beta), size - 0.5 * beta)


def huber(c: Call, d: X) -> X:
    delta = float(c["delta"])
    size = f.absolute(d)
    return where(size <= delta, d * d * 0.5, (size - 0.5 * delta) * delta)


def binary_cross_entropy(c: Call) -> Value:
    """-w (t log x + (1 - t) log(1 - x)). As in PyTorch, a logarithm is at least -100, and x (1 - x), by
    which the gradient is divided, is at least 1e-12."""
    x, t = of(c, "self"), of(c, "target")
    low = f.detached(f.largest(f.log(x), -100.0))
    high = f.detached(f.largest(f.log1p(-x), -100.0))
    value = (t - 1.0) * high - t * low
    share = f.largest(x * (1.0 - x), 1e-12)
    slope = f.detached((x - t) / share)
    loss = value + slope * (x - f.detached(x))
    return reduced(c, loss * of(c, "weight") if c.has("weight") else loss)


def binary_cross_entropy_with_logits(c: Call) -> Value:
    """(1 - t) x + (1 + (p - 1) t) (log(1 + e^-|x|) + max(-x, 0)), where p is pos_weight."""
    x, t = of(c, "self"), of(c, "target")
    rest = -f.log_sigmoid(x)
    if c.has("pos_weight"):
        rest = rest * ((of(c, "pos_weight") - 1.0) * t + 1.0)
    loss = (1.0 - t) * x + rest
    return reduced(c, loss * of(c, "weight") if c.has("weight") else loss)


def kl_div(c: Call) -> Value:
    """t (log t - x), or e^t (t - x) where the target is a logarithm."""
    x, t = of(c, "self"), of(c, "target")
    if c["log_target"]:
        loss = f.exp(t) * (t - x)
    else:
        zero = t.equals(0.0)
        loss = where(zero, t * 0.0, t * f.log(where(zero, 1.0, t))) - t * x
    return reduced(c, loss)


def soft_margin(c: Call) -> Value:
    """log(1 + e^(-t x))."""
    return reduced(c, f.softplus(-(of(c, "target") * of(c, "self"))))


def poisson_nll(c: Call) -> Value:
    x, t = of(c, "input"), of(c, "target")
    if c["full"]:
        raise c.refuse("Stirling's term is not in the language")
    loss = f.exp(x) - t * x if c["log_input"] else x - t * f.log(x + float(c["eps"]))
    return reduced(c, loss)
