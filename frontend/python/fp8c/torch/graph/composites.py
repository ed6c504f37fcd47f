"""Composites: what a model writes out in small ops, and the language has as one.

A pattern is a tuple: the op's name, then its operands. A string of capitals binds a node, a number
matches a number, `ANY` anything. `add` and `mul` match in both orders. Casts between floats are
looked through: Hugging Face's norms have them. The first op of a match becomes one ATen call, so
what PyTorch runs stays the same function; what nobody reads then is dropped.
"""

from __future__ import annotations

import math
from typing import Any, Callable, Mapping

import torch
import torch.fx

from .. import private
from .call import shape_of
from .text import same_shape

aten = private.aten

_NAMES = {
    "aten.add.Tensor": "add",
    "aten.add.Scalar": "add",
    "aten.mul.Tensor": "mul",
    "aten.mul.Scalar": "mul",
    "aten.div.Tensor": "div",
    "aten.div.Scalar": "div",
    "aten.sub.Tensor": "sub",
    "aten.pow.Tensor_Scalar": "pow",
    "aten.tanh.default": "tanh",
    "aten.erf.default": "erf",
    "aten.sigmoid.default": "sigmoid",
    "aten.rsqrt.default": "rsqrt",
    "aten.sqrt.default": "sqrt",
    "aten.mean.dim": "mean",
    "aten.matmul.default": "matmul",
    "aten.bmm.default": "matmul",
    "aten.softmax.int": "softmax",
    "aten.transpose.int": "transpose",
    "aten.reshape.default": "reshape",
    "aten.view.default": "reshape",
    "aten.expand.default": "expand",
    "aten.unsqueeze.default": "unsqueeze",
    "aten.where.self": "where",
    "aten.permute.default": "permute",
    "aten.dropout.default": "dropout",
    "aten.square.default": "square",
}
_FLOAT_CASTS = frozenset(
    {
        "aten.to.dtype",
        "aten.to.dtype_layout",
        "aten._to_copy.default",
        "aten.to.other",
        "aten.type_as.default",
    }
)
_COMMUTES = frozenset({"add", "mul"})

X = "X"
_CUBIC = ("mul", ("add", X, ("mul", ("pow", X, 3), 0.044715)), math.sqrt(2 / math.pi))
_FAST = ("mul", ("mul", X, math.sqrt(2 / math.pi)), ("add", ("mul", ("mul", X, 0.044715), X), 1))

GELU_TANH = [
    ("mul", ("mul", X, 0.5), ("add", ("tanh", _CUBIC), 1)),
    ("mul", ("mul", X, ("add", ("tanh", _CUBIC), 1)), 0.5),
    ("mul", ("mul", X, 0.5), ("add", ("tanh", _FAST), 1)),
]
GELU_ERF = [
    ("mul", ("mul", X, 0.5), ("add", ("erf", ("div", X, math.sqrt(2))), 1)),
    ("mul", ("mul", X, 0.5), ("add", ("erf", ("mul", X, math.sqrt(0.5))), 1)),
    ("mul", ("mul", X, ("add", ("erf", ("div", X, math.sqrt(2))), 1)), 0.5),
]
SILU = [("mul", X, ("sigmoid", X))]
RMS_NORM = [
    ("mul", "W", ("mul", X, ("rsqrt", ("add", ("mean", ("pow", X, 2)), "EPS")))),
    ("mul", "W", ("mul", X, ("rsqrt", ("add", ("mean", ("mul", X, X)), "EPS")))),
    ("mul", "W", ("div", X, ("sqrt", ("add", ("mean", ("pow", X, 2)), "EPS")))),
]
_SCORES = ("matmul", "Q", ("transpose", "K"))
_SCALED = [
    ("mul", _SCORES, "SCALE"),
    ("div", _SCORES, "DIVISOR"),
    _SCORES,
    ("matmul", ("mul", "Q", "SCALE"), ("transpose", "K")),
]
_CHOSEN = _SCALED + [("where", "SEEN", s, "HIDDEN") for s in _SCALED]
_WEIGHTS = [("softmax", s) for s in [("add", s, "M") for s in _CHOSEN] + _CHOSEN]
ATTENTION = [("matmul", w, "V") for w in _WEIGHTS] + [
    ("matmul", ("dropout", w), "V") for w in _WEIGHTS
]
HIDES = -1e30  # what hides a score adds less than this: no score of a model comes near


def strip(node: Any) -> Any:
    """A node behind casts between floats."""
    while isinstance(node, torch.fx.Node) and private.target_name(node) in _FLOAT_CASTS:
        source = node.args[0]
        a, b = private.fake_value(source), private.fake_value(node)
        if not (a.is_floating_point() and b.is_floating_point()):
            break
        node = source
    return node


def match(pattern: Any, node: Any, found: dict[str, Any]) -> bool:
    """Whether a node has this form. `found` gets what the capitals stand for."""
    node = strip(node)
    if isinstance(pattern, str):
        if pattern in found:
            return found[pattern] is node or (
                not isinstance(node, torch.fx.Node) and found[pattern] == node
            )
        found[pattern] = node
        return True
    if isinstance(pattern, (int, float)):
        return isinstance(node, (int, float)) and math.isclose(node, pattern, rel_tol=1e-6)
    if not isinstance(node, torch.fx.Node) or _NAMES.get(private.target_name(node)) != pattern[0]:
        return False
    if node.kwargs.get("alpha", 1) != 1 or node.kwargs.get("rounding_mode") is not None:
        return False
    operands = pattern[1:]
    orders = [node.args[: len(operands)]]
    if pattern[0] in _COMMUTES:
        orders.append(orders[0][::-1])
    for order in orders:
        trial = dict(found)
        if len(order) == len(operands) and all(match(p, a, trial) for p, a in zip(operands, order)):
            found.clear()
            found.update(trial)
            return True
    return False


def _shape(node: Any) -> tuple[Any, ...]:
    return shape_of(private.fake_value(node))


def _gelu(approximate: str) -> Callable[..., bool]:
    def replace(graph: torch.fx.Graph, node: torch.fx.Node, found: dict[str, Any], _: Any) -> bool:
        return _put(graph, node, aten.gelu.default, (found[X],), {"approximate": approximate})

    return replace


def _silu(graph: torch.fx.Graph, node: torch.fx.Node, found: dict[str, Any], _: Any) -> bool:
    return _put(graph, node, aten.silu.default, (found[X],))


def _rms_norm(graph: torch.fx.Graph, node: torch.fx.Node, found: dict[str, Any], _: Any) -> bool:
    """Only over the last axis, with a weight of its size."""
    x, w, eps = found[X], found["W"], found["EPS"]
    if (
        not isinstance(eps, float)
        or not isinstance(w, torch.fx.Node)
        or not isinstance(x, torch.fx.Node)
    ):
        return False
    if not same_shape(_shape(w), _shape(x)[-1:]):
        return False
    mean = _find(node, "mean")
    if mean is None or list(mean.args[1]) not in ([-1], [len(_shape(x)) - 1]) or not _keeps(mean):
        return False
    return _put(graph, node, aten.rms_norm.default, (x, list(private.fake_value(w).shape), w, eps))


def _keeps(mean: torch.fx.Node) -> bool:
    return bool(mean.args[2] if len(mean.args) > 2 else mean.kwargs.get("keepdim", False))


def _find(node: torch.fx.Node, name: str) -> torch.fx.Node | None:
    """The nearest node of this kind among what a node computes from."""
    queue, seen = [node], set()
    while queue:
        one = queue.pop(0)
        if _NAMES.get(private.target_name(one)) == name:
            return one
        if one not in seen and len(seen) < 40:
            seen.add(one)
            queue.extend(one.all_input_nodes)
    return None


def _attention(
    graph: torch.fx.Graph,
    node: torch.fx.Node,
    found: dict[str, Any],
    constants: Mapping[str, torch.Tensor],
) -> bool:
    """Written-out attention, where it is what scaled_dot_product_attention computes."""
    q, k, v = found["Q"], found["K"], found["V"]
    if any(not isinstance(t, torch.fx.Node) or len(_shape(t)) != 4 for t in (q, k, v)):
        return False
    if not same_shape(_shape(q)[:2], _shape(k)[:2]) or not same_shape(_shape(k), _shape(v)):
        return False
    softmax, dropped = strip(node.args[0]), 0.0
    if private.target_name(softmax) == "aten.dropout.default":
        softmax, dropped = strip(softmax.args[0]), float(softmax.args[1])
    if softmax.args[1] not in (-1, 3):
        return False
    product = _find(strip(softmax.args[0]), "matmul")
    if product is None or not _turns(strip(product.args[1]), k):
        return False
    scale = found.get("SCALE", 1.0)
    if "DIVISOR" in found:
        divisor = _number(found["DIVISOR"], constants)
        if not divisor:
            return False
        scale = 1.0 / divisor
    mask = found.get("M")
    if "SEEN" in found:
        mask = _chosen(graph, node, found, constants)
        if mask is None:
            return False
    if not isinstance(scale, (int, float)) or scale == 0:
        return False
    if mask is not None and (not isinstance(mask, torch.fx.Node) or not same_last(mask, q, k)):
        return False
    return _put(
        graph,
        node,
        aten.scaled_dot_product_attention.default,
        (q, k, v, mask, dropped),
        {"scale": float(scale)},
    )


def _turns(node: Any, k: torch.fx.Node) -> bool:
    """Whether a node is k with its last two axes changed."""
    return (
        _NAMES.get(private.target_name(node)) == "transpose"
        and sorted(a % 4 for a in node.args[1:3]) == [2, 3]
        and strip(node.args[0]) is k
    )


def _number(item: Any, constants: Mapping[str, torch.Tensor]) -> float | None:
    """A number, also as a constant tensor of one element."""
    if isinstance(item, torch.fx.Node):
        tensor = constants.get(item.name)
        return float(tensor) if tensor is not None and tensor.numel() == 1 else None
    return float(item) if isinstance(item, (int, float)) else None


def _chosen(
    graph: torch.fx.Graph,
    node: torch.fx.Node,
    found: dict[str, Any],
    constants: Mapping[str, torch.Tensor],
) -> torch.fx.Node | None:
    """where(seen, s, hidden) + m, as a mask that is added to s.

    It is where(seen, m, m + hidden): next to so low a number, s is lost in rounding.
    """
    seen, hidden, mask = found["SEEN"], found["HIDDEN"], found.get("M")
    number = _number(hidden, constants)
    if number is None or number > HIDES or not isinstance(hidden, torch.fx.Node):
        return None
    with graph.inserting_before(node):
        if mask is None:
            mask, low = _call(graph, node, aten.mul.Tensor, hidden, 0.0), hidden
        else:
            low = _call(graph, node, aten.add.Tensor, mask, hidden)
        return _call(graph, node, aten.where.self, seen, mask, low)


def _call(graph: torch.fx.Graph, at: torch.fx.Node, target: Any, *args: Any) -> torch.fx.Node:
    """A new call, with its fake value."""
    new = graph.call_function(target, args)
    new.meta = dict(at.meta)
    new.meta["val"] = target(
        *[private.fake_value(a) if isinstance(a, torch.fx.Node) else a for a in args]
    )
    return new


def same_last(mask: torch.fx.Node, q: torch.fx.Node, k: torch.fx.Node) -> bool:
    """Whether a mask broadcasts to the scores without more axes than they have."""
    whole = _shape(q)[:3] + (_shape(k)[2],)
    own = _shape(mask)
    tail = whole[len(whole) - len(own) :]
    return len(own) <= 4 and all(a == 1 or same_shape((a,), (b,)) for a, b in zip(own, tail))


def _put(
    graph: torch.fx.Graph,
    node: torch.fx.Node,
    target: Any,
    args: tuple[Any, ...],
    kwargs: dict[str, Any] | None = None,
) -> bool:
    """Put a call in a node's place. The result keeps its dtype and its place in the model."""
    with graph.inserting_before(node):
        new = graph.call_function(target, args, kwargs or {})
    new.meta = dict(node.meta)
    node.replace_all_uses_with(new)
    return True


def _repeated_heads(graph: torch.fx.Graph) -> None:
    """Keys and values repeated for groups of queries: attention takes them unrepeated."""
    for node in list(graph.nodes):
        if private.target_name(node) != "aten.scaled_dot_product_attention.default":
            continue
        k, v = _unrepeated(node.args[1]), _unrepeated(node.args[2])
        if k is not None and v is not None and same_shape(_shape(k), _shape(v)):
            node.args = (node.args[0], k, v) + tuple(node.args[3:])
            node.kwargs = {**node.kwargs, "enable_gqa": True}


def _unrepeated(node: Any) -> torch.fx.Node | None:
    """x, where a node is reshape(expand(unsqueeze(x, 2))): each head several times in a row."""
    found: dict[str, Any] = {}
    if not match(("reshape", ("expand", ("unsqueeze", X))), node, found):
        return None
    x, expand = found[X], strip(node.args[0]) if isinstance(node, torch.fx.Node) else None
    own, wide, flat = _shape(x), _shape(expand), _shape(node)
    if len(own) != 4 or len(wide) != 5 or len(flat) != 4 or strip(expand.args[0]).args[1] % 5 != 2:
        return None
    fits = same_shape(wide[:2] + wide[3:], own) and same_shape(flat[2:], own[2:])
    return x if fits and same_shape((flat[1],), (own[1] * wide[2],)) else None


RULES: list[tuple[str, list[Any], Callable[..., bool]]] = [
    ("gelu (tanh)", GELU_TANH, _gelu("tanh")),
    ("gelu (erf)", GELU_ERF, _gelu("none")),
    ("rms_norm", RMS_NORM, _rms_norm),
    ("attention", ATTENTION, _attention),
    ("silu", SILU, _silu),
]


def replace_composites(
    graph: torch.fx.Graph, constants: Mapping[str, torch.Tensor] | None = None
) -> dict[str, int]:
    """Replace what is recognised. Gives how often each composite was.

    constants: the values of placeholders that no call changes.
    """
    counts: dict[str, int] = {}
    for node in list(graph.nodes):
        if node.op != "call_function":
            continue
        for name, patterns, replace in RULES:
            for pattern in patterns:
                found: dict[str, Any] = {}
                if match(pattern, node, found) and replace(graph, node, found, constants or {}):
                    counts[name] = counts.get(name, 0) + 1
                    break
            else:
                continue
            break
    _repeated_heads(graph)
    for node in reversed(list(graph.nodes)):
        if node.op == "call_function" and not node.users and private.sets_grad(node) is None:
            graph.erase_node(node)
    return counts
