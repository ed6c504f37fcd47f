"""Ops that PyTorch itself defines by other ops. A capture has those, for which there are rules.

Before autograd PyTorch keeps such an op whole. For the ops listed here the trace runs the definition
instead: each of its steps is an op that a stage may have. Not listed are ops whose definition has a
loop (LSTM) or depends on data: they stay whole.
"""

from __future__ import annotations

import functools
from typing import Any, Callable

from .. import private

PACKETS = """
    H absolute adjoint atleast_1d atleast_2d atleast_3d bilinear cartesian_prod chain_matmul clip column_stack concatenate
    cosine_embedding_loss cosine_similarity diag diff divide dsplit dstack fix fliplr flipud float_power
    frobenius_norm ger greater greater_equal hinge_embedding_loss hsplit hstack inner isclose kron
    less less_equal linalg_diagonal linalg_matmul linalg_matrix_norm linalg_multi_dot linalg_norm
    linalg_vecdot log_softmax logsumexp mH margin_ranking_loss matrix_H max meshgrid min moveaxis movedim
    multiply negative not_equal pairwise_distance positive ravel real reshape_as resolve_conj
    resolve_neg row_stack softmax special_erf special_exp2 special_expit special_expm1 special_log1p
    special_log_softmax special_logit special_logsumexp special_softmax special_xlogy square
    std std_mean subtract swapaxes swapdims tensor_split tensordot tile trapezoid trapz
    triplet_margin_loss true_divide unsafe_chunk var var_mean vsplit vstack
""".split()


@functools.cache
def definitions() -> dict[Any, Callable[..., Any]]:
    """What a trace runs in place of an op, by overload."""
    from .rules import RULES  # here alone: a capture needs no rules otherwise

    found: dict[Any, Callable[..., Any]] = {}
    for name in PACKETS:
        packet = getattr(private.aten, name, None)
        for overload in packet.overloads() if packet is not None else ():
            op = getattr(packet, overload)
            if str(op) not in RULES and private.is_composite(op):
                found[op] = _definition(op)
    return found


def _definition(op: Any) -> Callable[..., Any]:
    def run(*args: Any, **kwargs: Any) -> Any:
        return op.decompose(*args, **kwargs)

    return run
