"""The table of rules: one row an ATen op. A row says what the op becomes, or why it can't.

A rule gets a `Call` and gives the value of the text (for split, chunk and unbind a list). It raises
`Unsupported` where this call can't be translated: such an op runs in PyTorch, between two stages,
and is reported. An op without a row does likewise. Ops on ids, masks and positions need no row: the
prologue runs them.
"""

from __future__ import annotations

import operator
from typing import Any, Callable

import torch
import torch.fx

from . import private
from . import rules_math as m
from . import rules_nn as n
from . import rules_shape as s
from .call import Call, Facts, LinearCall
from .places import Unsupported, place_of
from .text import Builder

Rule = Callable[[Call], Any]
_FAILURES = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    LookupError,
    RuntimeError,
    TypeError,
    ValueError,
)

RULES: dict[str, Rule] = {
    # Linears and products. A product of two activations is `matmul`, never `linear`.
    "aten.linear.default": n.linear,
    "aten.addmm.default": n.addmm,
    "aten.mm.default": n.product_of("self", "mat2"),
    "aten.matmul.default": n.product_of("self", "other"),
    "aten.bmm.default": n.product_of("self", "mat2"),
    "aten.baddbmm.default": n.baddbmm,
    "aten.conv2d.default": n.conv2d,
    # Attention, norms, activations, embedding, dropout, losses.
    "aten.scaled_dot_product_attention.default": n.attention,
    "aten.layer_norm.default": n.layer_norm,
    "aten.rms_norm.default": n.rms_norm,
    "aten.batch_norm.default": n.batch_norm,
    "aten.gelu.default": n.gelu,
    "aten.silu.default": m.unary("silu"),
    "aten.relu.default": m.unary("relu"),
    "aten.sigmoid.default": m.unary("sigmoid"),
    "aten.tanh.default": m.unary("tanh"),
    "aten.glu.default": n.glu,
    "aten.softplus.default": n.softplus,
    "aten.softmax.int": m.softmax,
    "aten._softmax.default": m.softmax,
    "aten.log_softmax.int": m.log_softmax,
    "aten.embedding.default": n.embedding,
    "aten.dropout.default": n.dropout,
    "aten.cross_entropy_loss.default": n.cross_entropy,
    "aten.mse_loss.default": n.distance(2),
    "aten.l1_loss.default": n.distance(1),
    # Pointwise.
    "aten.add.Tensor": m.binary("add"),
    "aten.add.Scalar": m.binary("add"),
    "aten.sub.Tensor": m.binary("sub"),
    "aten.sub.Scalar": m.binary("sub"),
    "aten.rsub.Scalar": m.reversed_sub,
    "aten.rsub.Tensor": m.reversed_sub,
    "aten.mul.Tensor": m.binary("mul"),
    "aten.mul.Scalar": m.binary("mul"),
    "aten.div.Tensor": m.divide,
    "aten.div.Scalar": m.divide,
    "aten.maximum.default": m.binary("max"),
    "aten.minimum.default": m.binary("min"),
    "aten.neg.default": m.unary("neg"),
    "aten.abs.default": m.unary("abs"),
    "aten.sqrt.default": m.unary("sqrt"),
    "aten.rsqrt.default": m.unary("rsqrt"),
    "aten.exp.default": m.unary("exp"),
    "aten.log.default": m.unary("log"),
    "aten.erf.default": m.unary("erf"),
    "aten.sin.default": m.unary("sin"),
    "aten.cos.default": m.unary("cos"),
    "aten.floor.default": m.unary("floor"),
    "aten.square.default": m.square,
    "aten.reciprocal.default": m.reciprocal,
    "aten.pow.Tensor_Scalar": m.power,
    "aten.clamp.default": m.clamp("min", "max"),
    "aten.clamp_min.default": m.clamp("min", None),
    "aten.clamp_max.default": m.clamp(None, "max"),
    "aten.where.self": m.where,
    "aten.where.ScalarOther": m.where,
    "aten.where.ScalarSelf": m.where,
    "aten.masked_fill.Scalar": m.masked_fill,
    "aten.masked_fill.Tensor": m.masked_fill,
    "aten.lt.Scalar": m.compare("lt"),
    "aten.lt.Tensor": m.compare("lt"),
    "aten.le.Scalar": m.compare("le"),
    "aten.le.Tensor": m.compare("le"),
    "aten.gt.Scalar": m.compare("lt", swap=True),
    "aten.gt.Tensor": m.compare("lt", swap=True),
    "aten.ge.Scalar": m.compare("le", swap=True),
    "aten.ge.Tensor": m.compare("le", swap=True),
    "aten.eq.Scalar": m.compare("eq"),
    "aten.eq.Tensor": m.compare("eq"),
    "aten.ne.Scalar": m.compare("eq", invert=True),
    "aten.ne.Tensor": m.compare("eq", invert=True),
    "aten.logical_and.default": m.logical("and"),
    "aten.logical_or.default": m.logical("or"),
    "aten.logical_not.default": m.logical("not"),
    "aten.__and__.Tensor": m.logical("and"),
    "aten.__or__.Tensor": m.logical("or"),
    "aten.bitwise_and.Tensor": m.logical("and"),
    "aten.bitwise_or.Tensor": m.logical("or"),
    "aten.bitwise_not.default": m.logical("not"),
    # Reductions.
    "aten.sum.dim_IntList": m.reduce("reduce_sum"),
    "aten.sum.default": m.reduce("reduce_sum"),
    "aten.mean.dim": m.reduce("mean"),
    "aten.mean.default": m.reduce("mean"),
    "aten.amax.default": m.reduce("reduce_max"),
    "aten.var.correction": m.variance(root=False),
    "aten.std.correction": m.variance(root=True),
    "aten.var.dim": m.variance(root=False),
    "aten.std.dim": m.variance(root=True),
    "aten.var.default": m.variance(root=False),
    "aten.std.default": m.variance(root=True),
    "aten.linalg_vector_norm.default": m.vector_norm("ord"),
    "aten.norm.ScalarOpt_dim": m.vector_norm("p"),
    # Fills.
    "aten.zeros_like.default": m.fill(0.0),
    "aten.ones_like.default": m.fill(1.0),
    "aten.full_like.default": m.fill(None),
    "aten.new_zeros.default": m.fill(0.0),
    "aten.new_ones.default": m.fill(1.0),
    "aten.new_full.default": m.fill(None),
    # Shapes.
    "aten.view.default": s.reshape,
    "aten.reshape.default": s.reshape,
    "aten._unsafe_view.default": s.reshape,
    "aten.view_as.default": s.reshape,
    "aten.flatten.using_ints": s.reshape,
    "aten.unflatten.int": s.reshape,
    "aten.unsqueeze.default": s.reshape,
    "aten.squeeze.default": s.reshape,
    "aten.squeeze.dim": s.reshape,
    "aten.squeeze.dims": s.reshape,
    "aten.permute.default": s.permute,
    "aten.transpose.int": s.transpose,
    "aten.t.default": s.transpose,
    "aten.mT.default": s.transpose,
    "aten.expand.default": s.expand,
    "aten.expand_as.default": s.expand,
    "aten.broadcast_to.default": s.expand,
    "aten.broadcast_tensors.default": s.expand_all,
    "aten.slice.Tensor": s.slice_,
    "aten.narrow.default": s.narrow,
    "aten.select.int": s.select,
    "aten.split.Tensor": s.pieces,
    "aten.split.sizes": s.pieces,
    "aten.split_with_sizes.default": s.pieces,
    "aten.chunk.default": s.pieces,
    "aten.unbind.int": s.pieces,
    "aten.index.Tensor": s.index,
    "aten.index_select.default": s.index_select,
    "aten.cat.default": s.concat,
    "aten.concat.default": s.concat,
    "aten.stack.default": s.stack,
    "aten.pad.default": s.pad,
    "aten.constant_pad_nd.default": s.pad,
    # No change of values.
    "aten.alias.default": s.same,
    "aten.clone.default": s.same,
    "aten.contiguous.default": s.same,
    "aten.lift_fresh_copy.default": s.same,
    "aten.detach.default": s.detach,
    "aten.to.dtype": s.cast,
    "aten.to.dtype_layout": s.cast,
    "aten.to.device": s.cast,
    "aten.to.other": s.cast,
    "aten._to_copy.default": s.cast,
    "aten.type_as.default": s.cast,
}

# Ops that are known and have no row, with the reason. Any other one is "fp8c has no op for it".
REFUSED: dict[str, str] = {
    "aten.group_norm.default": "group norm is not in the language",
    "aten.cumsum.default": "cumulative sums are not in the language",
    "aten.sort.default": "sorting is not in the language",
    "aten.topk.default": "sorting is not in the language",
    "aten.gather.default": "gathers of activations are not in the language",
    "aten.einsum.default": "einsum is not in the language; write matmul or linear",
    "aten.nonzero.default": "its result's shape depends on data",
    "aten.item.default": "it gives data to Python",
    "aten._local_scalar_dense.default": "it gives data to Python",
}


def apply(
    builder: Builder,
    node: torch.fx.Node,
    facts: Facts,
    value_of: Callable[[torch.fx.Node], Any],
    linears: list[LinearCall],
) -> Any:
    """The value of a node in the text, or Unsupported."""
    if node.target is operator.getitem:
        return value_of(node.args[0])[node.args[1]]
    name = private.target_name(node)
    rule = RULES.get(name)
    if rule is None:
        raise Unsupported(name, REFUSED.get(name, "fp8c has no op for it"), place_of(node))
    try:
        return rule(Call(builder, node, facts, value_of, linears))
    except Unsupported as error:
        if error.place.file or error.place.module:
            raise
        raise Unsupported(name, error.reason, place_of(node)) from None
    except _FAILURES as error:  # a call that the rule was not written for costs this op alone
        raise Unsupported(
            name, f"its rule failed: {type(error).__name__}: {error}", place_of(node)
        ) from error
