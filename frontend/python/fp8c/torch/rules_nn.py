"""Rules for linears, products, attention, norms, activations, embedding, dropout and losses."""

from __future__ import annotations

from typing import Callable, Sequence

import torch

from .call import Call
from .text import Shape, Size, Value, product, tidy

FLOAT32_EPS = 1.1920928955078125e-07  # torch.finfo(torch.float32).eps, rms_norm's default


def _linear(
    c: Call, x: Value, w: Value, bias: Value | None, weight: str, transposed: bool
) -> Value:
    """x w (or x w^T) + bias, where w depends on parameters alone."""
    if w.op == "transpose" and len(w.shape) == 2:
        w, transposed = w.operands[0], not transposed
    flat = x.shape[:-1]
    if x.op == "reshape" and tidy(x.operands[0].shape[-1] - x.shape[-1]) == 0:
        x = x.operands[0]  # rows that were joined for addmm
    shape = x.shape[:-1] + (w.shape[0] if transposed else w.shape[1],)
    fits = bias is not None and len(bias.shape) == 1 and len(x.shape) > 0
    operands = [x, w, bias] if fits else [x, w]
    y = c.b.op(
        "linear",
        operands,
        shape,
        transpose_b=True if transposed else None,
        name=c.linear_name(weight),
    )
    y = c.b.reshape(y, flat + shape[-1:])
    if bias is not None and not fits:
        y = c.b.op("add", [y, c.f32(bias)], y.shape)
    return y


def _product(c: Call, x: Value, w: Value, bias: Value | None, transposed: bool) -> Value:
    """A product of two activations. It is never a linear, so no recipe makes it FP8."""
    shape = x.shape[:-1] + (w.shape[0] if transposed else w.shape[1],)
    if w.op == "transpose":
        w, transposed = w.operands[0], not transposed
    y = c.b.op("matmul", [x, w], shape, transpose_b=True if transposed else None)
    return y if bias is None else c.b.op("add", [y, bias], shape)


def linear(c: Call) -> Value:
    """input weight^T + bias."""
    x, w = c.f32(c["input"]), c.own("weight")
    bias = c.own("bias") if c.has("bias") else None
    flat = c.b.reshape(x, (1,) + x.shape) if len(x.shape) == 1 else x
    if len(w.shape) != 2:
        raise c.refuse("the weight has not two axes")
    if c.is_weight("weight"):
        y = _linear(c, flat, w, bias, "weight", True)
    else:
        y = _product(c, flat, c.f32(w), None if bias is None else c.f32(bias), True)
    return c.b.reshape(y, c.shape)


def addmm(c: Call) -> Value:
    """self + mat1 mat2."""
    if c["alpha"] != 1 or c["beta"] != 1:
        raise c.refuse("alpha or beta is not 1")
    x, bias = c.f32(c["mat1"]), c.own("self")
    if c.is_weight("mat2"):
        return _linear(c, x, c.own("mat2"), bias, "mat2", False)
    return _product(c, x, c.f32(c["mat2"]), c.f32(bias), False)


def product_of(first: str, second: str) -> Callable[[Call], Value]:
    """mm, matmul and bmm. Operands of more than two axes are batches of matrices."""

    def rule(c: Call) -> Value:
        x = c.f32(c[first])
        w = c.own(second) if c.is_weight(second) and len(c[second].shape) <= 2 else c.f32(c[second])
        flat = c.b.reshape(x, (1,) + x.shape) if len(x.shape) == 1 else x
        if len(w.shape) == 1:
            w = c.b.reshape(w, w.shape + (1,))
        if len(w.shape) > 2:
            y = _batch(c, flat, w)
        elif c.is_weight(second):
            y = _linear(c, flat, w, None, second, False)
        else:
            y = _product(c, flat, w, None, False)
        return c.b.reshape(y, c.shape)

    return rule


def baddbmm(c: Call) -> Value:
    """beta self + alpha batch1 batch2."""
    y = _batch(c, c.f32(c["batch1"]), c.f32(c["batch2"]))
    if c["alpha"] != 1:
        y = c.b.op("mul", [y, float(c["alpha"])], y.shape)
    if c["beta"] == 0:
        return y
    bias = c.f32(c["self"])
    if c["beta"] != 1:
        bias = c.b.op("mul", [bias, float(c["beta"])], bias.shape)
    return c.b.op("add", [y, bias], c.shape)


def _batch(c: Call, x: Value, w: Value) -> Value:
    """The products of two batches of matrices, which is never a linear."""
    rows, columns = x.shape[-2], w.shape[-1]
    x, turned_x = _untransposed(x)
    w, turned_w = _untransposed(w)
    lead = _broadcast(x.shape[:-2], w.shape[:-2])
    return c.b.op(
        "batch_matmul",
        [x, w],
        lead + (rows, columns),
        transpose_a=turned_x or None,
        transpose_b=turned_w or None,
    )


def _untransposed(x: Value) -> tuple[Value, bool]:
    """x, and whether its last two axes change places; then x is without that transpose."""
    last = len(x.shape)
    if x.op == "transpose" and x.perm == tuple(range(last - 2)) + (last - 1, last - 2):
        return x.operands[0], True
    return x, False


def _broadcast(a: Shape, b: Shape) -> Shape:
    wide = max(len(a), len(b))
    a, b = (1,) * (wide - len(a)) + a, (1,) * (wide - len(b)) + b
    return tuple(y if x == 1 else x for x, y in zip(a, b))


def conv2d(c: Call) -> Value:
    """A convolution of patches that do not overlap is a linear: ViT cuts images so.

    x [N, C, h p, w q] -> [N h, w, C p q], in two steps, for six axes are too many.
    """
    x, weight = c.f32(c["input"]), c.own("weight")
    out, channels, p, q = weight.shape
    if c["groups"] != 1 or any(d != 1 for d in c["dilation"]) or any(v != 0 for v in c["padding"]):
        raise c.refuse("only patches are taken: no groups, dilation or padding")
    stride = list(c["stride"]) * (2 if len(c["stride"]) == 1 else 1)
    if stride != [p, q] or len(x.shape) != 4:
        raise c.refuse(f"its stride {stride} is not its kernel's size {[p, q]}: patches overlap")
    n, _, high, wide = x.shape
    if not isinstance(high, int) or not isinstance(wide, int):
        raise c.refuse("the image's size is dynamic")
    h, w = high // p, wide // q
    x = c.b.slice(c.b.slice(x, 2, 0, h * p), 3, 0, w * q)
    rows = c.b.transpose(c.b.reshape(x, (n, channels, h, p, w * q)), (0, 2, 1, 3, 4))
    cells = c.b.transpose(c.b.reshape(rows, (tidy(n * h), channels * p, w, q)), (0, 2, 1, 3))
    flat = c.b.reshape(cells, (n, h * w, channels * p * q))
    matrix = c.b.reshape(weight, (out, channels * p * q))
    if not c.is_weight("weight"):
        raise c.refuse("its weight is no parameter")
    bias = c.own("bias") if c.has("bias") else None
    y = _linear(c, flat, matrix, bias, "weight", True)
    return c.b.reshape(c.b.transpose(y, (0, 2, 1)), c.shape)


def attention(c: Call) -> Value:
    """scaled_dot_product_attention. The language has the heads side by side in the last axis.

    PyTorch's function drops in eval, too, where p is not 0; a model gives it 0 there.
    """
    p = float(c["dropout_p"])
    if p >= 1:
        raise c.refuse("it drops everything")
    q, k, v = (c.f32(c[name]) for name in ("query", "key", "value"))
    rank = len(q.shape)
    if rank == 3:
        q, k, v = (c.b.reshape(x, (x.shape[0], 1) + x.shape[1:]) for x in (q, k, v))
    if len(q.shape) != 4:
        raise c.refuse(f"its operands have {rank} axes, not 3 or 4")
    batch, heads, positions, size = q.shape
    kv_heads = k.shape[1]
    if tidy(v.shape[3] - size) != 0:
        raise c.refuse("values have another size than queries")
    causal, mask = bool(c["is_causal"]), None
    if c.has("attn_mask") and c.needs_grad("attn_mask"):
        return _written_out(c, q, k, v, p)
    if c.has("attn_mask"):
        node = c.nodes["attn_mask"]
        if node not in c.facts.proofs:
            c.facts.proofs[node] = causal_constant(c.constant("attn_mask"))
        proven = c.facts.proofs[node]
        if proven is None:
            mask = _mask(c, q, k)
        elif proven:
            causal = True
    flat = [
        c.b.reshape(
            c.b.transpose(x, (0, 2, 1, 3)), (x.shape[0], x.shape[2], tidy(x.shape[1] * x.shape[3]))
        )
        for x in (q, k, v)
    ]
    operands = flat + ([mask] if mask else []) + ([c.seed()] if p else [])
    y = c.b.op(
        "attention",
        operands,
        flat[0].shape,
        heads=heads,
        kv_heads=kv_heads if kv_heads != heads else None,
        causal=None if causal else False,
        scale=float(c["scale"]) if c.has("scale") else None,
        dropout=p or None,
        stream=c.facts.streams[c.node] if p else None,
    )
    return c.b.reshape(
        c.b.transpose(c.b.reshape(y, (batch, positions, heads, size)), (0, 2, 1, 3)), c.shape
    )


def _mask(c: Call, q: Value, k: Value) -> Value:
    """The mask with four axes, each whole or of size 1."""
    mask: Value = c["attn_mask"]
    shape = (1,) * (4 - len(mask.shape)) + mask.shape
    return c.b.reshape(mask if mask.dtype == "bool" else c.f32(mask), shape)


def _written_out(c: Call, q: Value, k: Value, v: Value, p: float) -> Value:
    """Attention whose mask learns, as T5's positions do: the op's mask has no gradient."""
    if bool(c["is_causal"]) or tidy(q.shape[1] - k.shape[1]) != 0:
        raise c.refuse("its mask needs a gradient, and it is causal or has groups of heads")
    size = q.shape[3]
    scale = float(c["scale"]) if c.has("scale") else float(size) ** -0.5
    turned = c.b.transpose(k, (0, 1, 3, 2))
    scores = _batch(c, q if scale == 1 else c.b.op("mul", [q, scale], q.shape), turned)
    scores = c.b.op("add", [scores, c.f32(c["attn_mask"])], scores.shape)
    weights = c.b.op("softmax", [scores], scores.shape)
    if p:
        weights = c.b.op(
            "dropout", [weights, c.seed()], weights.shape, p=p, stream=c.facts.streams[c.node]
        )
    return c.b.reshape(_batch(c, weights, v), c.shape)


def causal_constant(mask: torch.Tensor | None) -> bool | None:
    """True: a constant mask says what `causal` says. False: it hides nothing. None: neither."""
    if mask is None or mask.dim() < 2:
        return None
    if mask.dtype == torch.bool:
        seen, hidden = mask, ~mask
    else:
        seen, hidden = mask == 0, mask <= torch.finfo(mask.dtype).min
        if not bool((seen | hidden).all()):
            return None
    if bool(seen.all()):
        return False
    rows, columns = mask.shape[-2:]
    causal = torch.ones(rows, columns, dtype=torch.bool, device=mask.device).tril()
    return True if bool((seen == causal).all()) else None


def layer_norm(c: Call) -> Value:
    """Over the last axes, which become one."""
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


def batch_norm(c: Call) -> Value:
    """With running statistics, as in eval. In training it changes them, which a stage can't."""
    if c["training"] or not c.has("running_mean"):
        raise c.refuse("in training it changes its running statistics")
    x = c.f32(c["input"])
    shape = (x.shape[1],) + (1,) * (len(x.shape) - 2)
    mean, variance = (
        c.b.reshape(c.f32(c[name]), shape) for name in ("running_mean", "running_var")
    )
    scale = c.b.op("rsqrt", [c.b.op("add", [variance, float(c["eps"])], shape)], shape)
    y = c.b.op("mul", [c.b.op("sub", [x, mean], x.shape), scale], x.shape)
    for name, op in (("weight", "mul"), ("bias", "add")):
        if c.has(name):
            y = c.b.op(op, [y, c.b.reshape(c.f32(c[name]), shape)], x.shape)
    return y


def gelu(c: Call) -> Value:
    return c.b.op("gelu", [c.f32(c["self"])], c.shape, approximate=str(c["approximate"]))


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


REDUCTIONS = ("none", "mean", "sum")


def cross_entropy(c: Call) -> Value:
    """cross_entropy_loss with class indices. Classes are in the second axis, here in the last."""
    if c.has("weight"):
        raise c.refuse("weights of classes are not in the language")
    logits, targets = c.f32(c["self"]), c["target"]
    if targets.dtype not in ("i32", "i64"):
        raise c.refuse("its targets are probabilities, not class indices")
    if len(logits.shape) == 1:
        logits, targets = c.b.reshape(logits, (1,) + logits.shape), c.b.reshape(targets, (1,))
    elif len(logits.shape) > 2:
        rank = len(logits.shape)
        logits = c.b.transpose(logits, [0] + list(range(2, rank)) + [1])
    reduction = REDUCTIONS[int(c["reduction"])]
    shape: Shape = targets.shape if reduction == "none" else ()
    smoothing = float(c["label_smoothing"])
    y = c.b.op(
        "cross_entropy",
        [logits, targets],
        shape,
        ignore=int(c["ignore_index"]),
        label_smoothing=smoothing or None,
        reduction=reduction if reduction != "mean" else None,
    )
    return c.b.reshape(y, c.shape)


def distance(power: int) -> Callable[[Call], Value]:
    """mse_loss (2) and l1_loss (1)."""

    def rule(c: Call) -> Value:
        a, b = c.f32(c["self"]), c.f32(c["target"])
        wide = max(a.shape, b.shape, key=len)
        d = c.b.op("sub", [a, b], wide)
        d = c.b.op("mul", [d, d], wide) if power == 2 else c.b.op("abs", [d], wide)
        reduction = REDUCTIONS[int(c["reduction"])]
        if reduction == "none":
            return d
        one = tuple(1 for _ in wide)
        total = (
            c.b.op(
                "mean" if reduction == "mean" else "reduce_sum",
                [d],
                one,
                axes=list(range(len(wide))),
            )
            if wide
            else d
        )
        return c.b.reshape(total, c.shape)

    return rule


def glu(c: Call) -> Value:
    """The first half times the sigmoid of the second."""
    x = c.f32(c["self"])
    axis = c["dim"] % len(x.shape)
    half: Size = c.shape[axis]
    gate = c.b.op("sigmoid", [c.b.slice(x, axis, half, tidy(2 * half))], c.shape)
    return c.b.op("mul", [c.b.slice(x, axis, 0, half), gate], c.shape)


def softplus(c: Call) -> Value:
    """max(x, 0) + log(1 + e^-|x|): exact for large x."""
    if c["beta"] != 1 or c["threshold"] != 20:
        raise c.refuse("beta or threshold is not the default")
    x = c.f32(c["self"])
    small = c.b.op("exp", [c.b.op("neg", [c.b.op("abs", [x], x.shape)], x.shape)], x.shape)
    rest = c.b.op("log", [c.b.op("add", [small, 1.0], x.shape)], x.shape)
    return c.b.op("add", [c.b.op("relu", [x], x.shape), rest], x.shape)
