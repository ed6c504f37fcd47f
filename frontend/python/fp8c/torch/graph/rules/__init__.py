"""The table of rules, with a row for each ATen op: what it becomes, or why it is refused.

A rule gets a `Call` and gives the value of the text (for split, chunk and unbind a list). It raises
`Unsupported` where this call can't be translated: such an op runs in PyTorch, between two stages,
and is reported. So does an op without a row. Ops on ids, masks and positions need no row: the
prologue runs them.
"""

from __future__ import annotations

import math
import operator
from typing import Any, Callable

import torch
import torch.fx

from ... import private
from ...places import FAILURES, Unsupported, place_of
from ...weights.grains import DEQUANTIZED
from ..call import Call, Facts, Linear
from ..text import Builder, Value
from . import activations as a
from . import angles, attention, convolutions, formulas, indices, losses, norms
from . import linears as n
from . import pointwise as m
from . import reductions as r
from . import shapes as s

Rule = Callable[[Call], Any]


def _overloads(rule: Rule, packet: str, *overloads: str) -> dict[str, Rule]:
    return {f"aten.{packet}.{overload}": rule for overload in overloads}


RULES: dict[str, Rule] = {
    # Linears and products.
    "aten.linear.default": n.linear,
    DEQUANTIZED: n.stored,
    "aten.addmm.default": n.addmm,
    "aten.mm.default": n.product_of("self", "mat2"),
    "aten.matmul.default": n.product_of("self", "other"),
    "aten.bmm.default": n.product_of("self", "mat2"),
    "aten.mv.default": n.product_of("self", "vec"),
    "aten.dot.default": n.product_of("self", "tensor"),
    "aten.addmv.default": n.addmv,
    "aten.outer.default": n.outer,
    "aten.baddbmm.default": n.baddbmm,
    "aten.einsum.default": n.einsum,
    **_overloads(convolutions.patches, "conv1d", "default", "padding"),
    **_overloads(convolutions.patches, "conv2d", "default", "padding"),
    # Attention, norms, embedding, dropout.
    "aten.scaled_dot_product_attention.default": attention.attention,
    "aten.layer_norm.default": norms.layer_norm,
    "aten.rms_norm.default": norms.rms_norm,
    "aten.batch_norm.default": norms.batch_norm,
    "aten.group_norm.default": norms.group_norm,
    "aten.instance_norm.default": norms.instance_norm,
    "aten.embedding.default": norms.embedding,
    "aten.dropout.default": norms.dropout,
    # Losses.
    "aten.cross_entropy_loss.default": losses.cross_entropy,
    "aten.mse_loss.default": losses.distance(losses.squares),
    "aten.l1_loss.default": losses.distance(losses.sizes),
    "aten.smooth_l1_loss.default": losses.distance(losses.smooth_l1),
    "aten.huber_loss.default": losses.distance(losses.huber),
    "aten.binary_cross_entropy.default": losses.binary_cross_entropy,
    "aten.binary_cross_entropy_with_logits.default": losses.binary_cross_entropy_with_logits,
    **{f"aten.{op}.default": losses.negative_log_likelihood for op in ("nll_loss", "nll_loss_nd")},
    "aten.kl_div.default": losses.kl_div,
    "aten.soft_margin_loss.default": losses.soft_margin,
    "aten.poisson_nll_loss.default": losses.poisson_nll,
    # Activations.
    "aten.gelu.default": a.gelu,
    "aten.silu.default": m.unary("silu"),
    "aten.relu.default": m.unary("relu"),
    "aten.sigmoid.default": m.unary("sigmoid"),
    "aten.tanh.default": m.unary("tanh"),
    "aten.glu.default": a.glu,
    "aten.relu6.default": a.formula(a.relu6),
    "aten.hardtanh.default": a.hardtanh,
    "aten.hardsigmoid.default": a.formula(a.hardsigmoid),
    "aten.hardswish.default": a.formula(a.hardswish),
    "aten.mish.default": a.formula(a.mish),
    "aten.elu.default": a.elu,
    "aten.celu.default": a.celu,
    "aten.selu.default": a.formula(a.selu),
    "aten.leaky_relu.default": a.leaky_relu,
    "aten.prelu.default": a.prelu,
    "aten.threshold.default": a.threshold,
    "aten.softshrink.default": a.softshrink,
    "aten.hardshrink.default": a.hardshrink,
    "aten.softplus.default": a.softplus,
    "aten.log_sigmoid.default": a.formula(formulas.log_sigmoid),
    # Pointwise.
    **_overloads(m.binary("add"), "add", "Tensor", "Scalar"),
    **_overloads(m.binary("sub"), "sub", "Tensor", "Scalar"),
    **_overloads(m.reversed_sub, "rsub", "Tensor", "Scalar"),
    **_overloads(m.binary("mul"), "mul", "Tensor", "Scalar"),
    **_overloads(m.divide, "div", "Tensor", "Scalar"),
    "aten.maximum.default": m.binary("max"),
    "aten.minimum.default": m.binary("min"),
    "aten.neg.default": m.unary("neg"),
    "aten.abs.default": m.unary("abs"),
    "aten.sqrt.default": m.unary("sqrt"),
    "aten.rsqrt.default": m.unary("rsqrt"),
    "aten.exp.default": m.unary("exp"),
    "aten.expm1.default": a.formula(formulas.expm1),
    "aten.log.default": m.unary("log"),
    "aten.exp2.default": a.formula(formulas.exp2),
    "aten.log2.default": a.formula(lambda x: formulas.log(x) * (1 / math.log(2))),
    "aten.log10.default": a.formula(lambda x: formulas.log(x) * (1 / math.log(10))),
    "aten.log1p.default": a.formula(formulas.log1p),
    "aten.logaddexp.default": m.formula_of(m.log_add_exp, "self", "other"),
    "aten.erf.default": m.unary("erf"),
    "aten.sin.default": angles.rule_of("sin"),
    "aten.cos.default": angles.rule_of("cos"),
    "aten.floor.default": m.unary("floor"),
    "aten.ceil.default": a.formula(lambda x: -formulas.floor(-x)),
    "aten.trunc.default": a.formula(formulas.truncated),
    "aten.frac.default": a.formula(lambda x: x - formulas.detached(formulas.truncated(x))),
    "aten.round.default": a.formula(formulas.nearest),
    "aten.sign.default": a.formula(m.sign),
    "aten.sgn.default": a.formula(m.sign),
    "aten.square.default": m.square,
    "aten.reciprocal.default": m.reciprocal,
    "aten.pow.Tensor_Scalar": m.power,
    "aten.pow.Scalar": m.exp_of_base,
    "aten.lerp.Scalar": m.lerp,
    "aten.lerp.Tensor": m.lerp,
    "aten.addcmul.default": m.addcmul,
    "aten.addcdiv.default": m.addcdiv,
    "aten.xlogy.Tensor": m.formula_of(m.xlogy, "self", "other"),
    "aten.clamp.default": m.clamp("min", "max"),
    "aten.clamp_min.default": m.clamp("min", None),
    "aten.clamp_max.default": m.clamp(None, "max"),
    **{f"aten.{op}.Tensor": m.clamp_tensors for op in ("clamp", "clamp_min", "clamp_max")},
    "aten.nan_to_num.default": m.nan_to_num,
    **_overloads(m.chosen, "where", "self", "ScalarOther", "ScalarSelf"),
    **_overloads(m.masked_fill, "masked_fill", "Scalar", "Tensor"),
    **_overloads(m.compare("lt"), "lt", "Tensor", "Scalar"),
    **_overloads(m.compare("le"), "le", "Tensor", "Scalar"),
    **_overloads(m.compare("lt", swap=True), "gt", "Tensor", "Scalar"),
    **_overloads(m.compare("le", swap=True), "ge", "Tensor", "Scalar"),
    **_overloads(m.compare("eq"), "eq", "Tensor", "Scalar"),
    **_overloads(m.compare("eq", invert=True), "ne", "Tensor", "Scalar"),
    "aten.logical_and.default": m.logical("and"),
    "aten.logical_or.default": m.logical("or"),
    "aten.logical_not.default": m.logical("not"),
    "aten.__and__.Tensor": m.logical("and"),
    "aten.__or__.Tensor": m.logical("or"),
    "aten.bitwise_and.Tensor": m.logical("and"),
    "aten.bitwise_or.Tensor": m.logical("or"),
    "aten.bitwise_not.default": m.logical("not"),
    "aten.isnan.default": a.formula(formulas.is_nan),
    "aten.isfinite.default": m.isfinite,
    "aten.isinf.default": m.isinf,
    # Reductions.
    **_overloads(r.reduce("reduce_sum"), "sum", "dim_IntList", "default"),
    **_overloads(r.reduce("mean"), "mean", "dim", "default"),
    "aten.nansum.default": r.sum_of_numbers,
    "aten.amax.default": r.reduce("reduce_max"),
    "aten.max.default": r.reduce("reduce_max"),
    "aten.amin.default": r.least,
    "aten.min.default": r.least,
    "aten.logsumexp.default": r.logsumexp,
    **_overloads(r.variance(root=False), "var", "correction", "dim", "default"),
    **_overloads(r.variance(root=True), "std", "correction", "dim", "default"),
    "aten.var_mean.correction": r.variance_and_mean(root=False),
    "aten.std_mean.correction": r.variance_and_mean(root=True),
    "aten.linalg_vector_norm.default": r.vector_norm("ord"),
    **_overloads(r.vector_norm("p"), "norm", "ScalarOpt_dim", "Scalar"),
    "aten.softmax.int": r.softmax,
    "aten._softmax.default": r.softmax,
    "aten.log_softmax.int": r.log_softmax,
    "aten._log_softmax.default": r.log_softmax,
    **{f"aten.adaptive_avg_pool{d}d.default": r.mean_pool for d in (1, 2, 3)},
    **{f"aten.avg_pool{d}d.default": r.average_pool for d in (1, 2, 3)},
    # Fills.
    "aten.zeros_like.default": m.fill(0.0),
    "aten.ones_like.default": m.fill(1.0),
    "aten.full_like.default": m.fill(None),
    "aten.new_zeros.default": m.fill(0.0),
    "aten.new_ones.default": m.fill(1.0),
    "aten.new_full.default": m.fill(None),
    "aten.fill.Scalar": m.fill(None, "value"),
    "aten.copy.default": m.copied,
    "aten.tril.default": s.triangle(lower=True),
    "aten.triu.default": s.triangle(lower=False),
    # Shapes.
    "aten.view.default": s.reshape,
    "aten.reshape.default": s.reshape,
    "aten._unsafe_view.default": s.reshape,
    "aten.view_as.default": s.reshape,
    "aten.flatten.using_ints": s.reshape,
    "aten.unflatten.int": s.reshape,
    "aten.unsqueeze.default": s.reshape,
    **_overloads(s.reshape, "squeeze", "default", "dim", "dims"),
    "aten.permute.default": s.permute,
    "aten.transpose.int": s.transpose,
    "aten.t.default": s.transpose,
    "aten.mT.default": s.transpose,
    "aten.numpy_T.default": s.reverse,
    "aten.expand.default": s.expand,
    "aten.expand_as.default": s.expand,
    "aten.broadcast_to.default": s.expand,
    "aten.broadcast_tensors.default": s.expand_all,
    "aten.slice.Tensor": s.slice_,
    "aten.narrow.default": s.narrow,
    "aten.select.int": s.select,
    **_overloads(s.pieces, "split", "Tensor", "sizes"),
    "aten.split_with_sizes.default": s.pieces,
    "aten.chunk.default": s.pieces,
    "aten.unbind.int": s.pieces,
    "aten.index.Tensor": indices.index,
    "aten.index_select.default": indices.index_select,
    "aten.gather.default": indices.gather,
    "aten.flip.default": indices.flip,
    "aten.cat.default": s.concat,
    "aten.concat.default": s.concat,
    "aten.stack.default": s.stack,
    "aten.pad.default": s.pad,
    "aten.constant_pad_nd.default": s.pad,
    "aten.roll.default": s.roll,
    "aten.repeat.default": s.repeat,
    "aten.repeat_interleave.self_int": s.repeat_interleave,
    "aten.pixel_shuffle.default": s.pixel_shuffle,
    "aten.pixel_unshuffle.default": s.pixel_unshuffle,
    # No change of values.
    "aten.alias.default": s.same,
    "aten.clone.default": s.same,
    "aten.contiguous.default": s.same,
    "aten.lift_fresh_copy.default": s.same,
    "aten.detach.default": s.detach,
    **_overloads(s.cast, "to", "dtype", "dtype_layout", "device", "other"),
    "aten._to_copy.default": s.cast,
    "aten.type_as.default": s.cast,
}

# Ops that are known and have no row, with the reason. Any other one is "fp8c has no op for it".
REFUSED: dict[str, str] = {
    "aten.cumsum.default": "cumulative sums are not in the language",
    "aten.sort.default": "sorting is not in the language",
    "aten.topk.default": "sorting is not in the language",
    "aten.nonzero.default": "its result's shape depends on data",
    "aten.item.default": "it gives a tensor's value to Python",
    "aten._local_scalar_dense.default": "it gives a tensor's value to Python",
}


def apply(
    builder: Builder,
    node: torch.fx.Node,
    facts: Facts,
    value_of: Callable[[torch.fx.Node], Any],
    linears: list[Linear],
) -> Any:
    """The value of a node in the text, or Unsupported."""
    if node.target is operator.getitem:
        return value_of(node.args[0])[node.args[1]]
    name = private.target_name(node)
    rule = RULES.get(name)
    if rule is None:
        raise Unsupported(name, REFUSED.get(name, "fp8c has no op for it"), place_of(node))
    call = Call(builder, node, facts, value_of, linears)
    try:
        made = rule(call)
        if node in facts.no_grad:
            return torch.fx.node.map_aggregate(
                made, lambda v: call.stopped(v) if isinstance(v, Value) else v
            )
        return made
    except Unsupported as error:
        if error.place.file or error.place.module:
            raise
        raise Unsupported(name, error.reason, place_of(node)) from None
    except FAILURES as error:  # a call that the rule was not written for costs this op alone
        raise Unsupported(
            name, f"its rule failed: {type(error).__name__}: {error}", place_of(node)
        ) from error
