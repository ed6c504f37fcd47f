"""Rules for attention."""

from __future__ import annotations

import torch

from ..call import Call
from ..text import Value, tidy
from .linears import batch


def attention(c: Call) -> Value:
    """scaled_dot_product_attention. The language has the heads side by side in the last axis.

    PyTorch's function drops wherever p is not 0, also in eval: there a model passes p = 0.
    """
    p = float(c["dropout_p"])
    if p >= 1:
        raise c.refuse("its dropout_p is 1: it drops everything")
    q, k, v = (c.f32(c[name]) for name in ("query", "key", "value"))
    rank = len(q.shape)
    if rank == 3:
        q, k, v = (c.b.reshape(x, (x.shape[0], 1) + x.shape[1:]) for x in (q, k, v))
    if len(q.shape) != 4:
        raise c.refuse(f"its operands have {rank} axes, not 3 or 4")
    batch, heads, positions, size = q.shape
    kv_heads = k.shape[1]
    if tidy(v.shape[3] - size) != 0:
        raise c.refuse("the heads of values and of queries have different sizes")
    causal, mask = bool(c["is_causal"]), None
    learns = c.has("attn_mask") and c.needs_grad("attn_mask")
    if learns or (c.has("scale") and not float(c["scale"]) > 0):
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
    """The mask with four axes, each of which has its full size or size 1."""
    mask: Value = c["attn_mask"]
    shape = (1,) * (4 - len(mask.shape)) + mask.shape
    return c.b.reshape(mask if mask.dtype == "bool" else c.f32(mask), shape)


def _written_out(c: Call, q: Value, k: Value, v: Value, p: float) -> Value:
    """Attention in small ops, for what the language's op lacks: a mask with a gradient, as T5's position
    bias, or a scale that is not positive."""
    if bool(c["is_causal"]) or tidy(q.shape[1] - k.shape[1]) != 0:
        raise c.refuse(
            "its mask needs a gradient or its scale is not positive, and it is causal or "
            "has groups of heads"
        )
    size = q.shape[3]
    scale = float(c["scale"]) if c.has("scale") else float(size) ** -0.5
    turned = c.b.transpose(k, (0, 1, 3, 2))
    scores = batch(c, q if scale == 1 else c.b.op("mul", [q, scale], q.shape), turned)
    if c.has("attn_mask"):
        mask = c["attn_mask"]
        if mask.dtype == "bool":
            scores = c.b.op("select", [mask, scores, float("-inf")], scores.shape)
        else:
            scores = c.b.op("add", [scores, c.f32(mask)], scores.shape)
    weights = c.b.op("softmax", [scores], scores.shape)
    if p:
        weights = c.b.op(
            "dropout", [weights, c.seed()], weights.shape, p=p, stream=c.facts.streams[c.node]
        )
    return c.b.reshape(batch(c, weights, v), c.shape)


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
