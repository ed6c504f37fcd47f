"""Makes a captured ATen graph easier to read: nothing in place, no call that changes nothing."""

from __future__ import annotations

from typing import Any

import torch
import torch.fx

from .. import private
from ..places import Unsupported, place_of
from .call import shape_of
from .text import same_shape

_SAME_IF_SHAPE = frozenset(
    {
        "aten.view.default",
        "aten.reshape.default",
        "aten._unsafe_view.default",
        "aten.expand.default",
        "aten.expand_as.default",
        "aten.slice.Tensor",
        "aten.squeeze.default",
        "aten.squeeze.dim",
        "aten.flatten.using_ints",
        "aten.alias.default",
        "aten.contiguous.default",
        "aten.clone.default",
        "aten.lift_fresh_copy.default",
        "aten.view_as.default",
        "aten.to.dtype",
        "aten.to.dtype_layout",
        "aten.to.device",
        "aten.to.other",
        "aten._to_copy.default",
        "aten.type_as.default",
    }
)


_LAYOUT = frozenset({"aten.contiguous.default", "aten.clone.default"})


def normalize(graph: torch.fx.Graph) -> None:
    """All of it, in this order; then what nobody uses is dropped."""
    out_of_place(graph)
    drop_unchanged(graph)
    cast_integers(graph)
    for node in reversed(list(graph.nodes)):
        if (
            node.op in ("call_function", "get_attr")
            and not node.users
            and private.sets_grad(node) is None
        ):
            graph.erase_node(node)


def out_of_place(graph: torch.fx.Graph) -> None:
    """x.add_(y) becomes add(x, y), which later readers of x get.

    That holds where x is no input and no view of x is read afterwards: else it is refused.
    """
    order = {node: i for i, node in enumerate(graph.nodes)}
    for node in list(graph.nodes):
        if node.op != "call_function" or not private.is_in_place(node):
            continue
        target = node.args[0]
        name = private.target_name(node)
        pure = _pure_version(node)
        if pure is None:
            raise Unsupported(
                name, "it writes in place, and no such op without that is known", place_of(node)
            )
        if target.op == "placeholder":
            raise Unsupported(name, f"it writes the input {target.name} in place", place_of(node))
        later = [u for u in target.users if order[u] > order[node]]
        if _is_view(target) or any(_is_view(u) and u is not node for u in target.users):
            raise Unsupported(name, "it writes in place what a view shares", place_of(node))
        node.target = pure
        for user in later:
            user.replace_input_with(target, node)


def _pure_version(node: torch.fx.Node) -> Any:
    packet, _, overload = private.target_name(node).removeprefix("aten.").partition(".")
    found = getattr(private.aten, packet.removesuffix("_"), None) if packet.endswith("_") else None
    pure = getattr(found, overload, None) if found is not None else None
    same = pure is not None and len(pure._schema.arguments) == len(node.target._schema.arguments)
    return pure if same else None


def _is_view(node: torch.fx.Node) -> bool:
    target = node.target
    if not private.is_overload(target):
        return False
    return any(
        r.alias_info is not None and not r.alias_info.is_write for r in target._schema.returns
    )


def drop_unchanged(graph: torch.fx.Graph) -> None:
    """Remove calls that give their operand: equal shapes, dtypes and devices; dropout of 0."""
    for node in list(graph.nodes):
        if private.target_name(node) == "aten.cat.default":
            _drop_empty(node)
        if (
            node.op != "call_function"
            or not node.args
            or not isinstance(node.args[0], torch.fx.Node)
        ):
            continue
        name, source = private.target_name(node), node.args[0]
        if name == "aten.dropout.default":
            if node.args[1] == 0 or not node.args[2]:
                node.replace_all_uses_with(source)
            continue
        a, b = private.fake_value(source), private.fake_value(node)
        if (
            name in _SAME_IF_SHAPE
            and isinstance(a, torch.Tensor)
            and a.dtype == b.dtype
            and a.device == b.device
            and same_shape(shape_of(a), shape_of(b))
            and (name not in _LAYOUT or a.stride() == b.stride())
        ):
            node.replace_all_uses_with(source)


def cast_integers(graph: torch.fx.Graph) -> None:
    """An i64 operand of an op on floats gets a cast of its own, to the dtype that PyTorch promotes it
    to. So the prologue casts what it computes: a stage would go through i32, where it saturates."""
    for node in list(graph.nodes):
        if node.op != "call_function" or not private.is_pointwise(node):
            continue
        fakes = {n: private.fake_value(n) for n in node.all_input_nodes}
        tensors = {n: f for n, f in fakes.items() if isinstance(f, torch.Tensor)}
        result = private.fake_value(node)
        if not isinstance(result, torch.Tensor):
            continue
        floats = [f for f in (result, *tensors.values()) if f.is_floating_point()]
        for source, fake in tensors.items():
            if floats and fake.dtype == torch.int64:
                with graph.inserting_before(node):
                    cast = graph.call_function(
                        private.aten._to_copy.default, (source,), {"dtype": floats[0].dtype}
                    )
                cast.meta = {**node.meta, "val": fake.to(floats[0].dtype)}
                node.replace_input_with(source, cast)


def _drop_empty(node: torch.fx.Node) -> None:
    """A cache that is still empty is nothing to concatenate."""
    parts = [
        p for p in node.args[0] if not any(size == 0 for size in shape_of(private.fake_value(p)))
    ]
    if len(parts) == 1:
        node.replace_all_uses_with(parts[0])
    elif parts:
        node.args = (parts, *node.args[1:])
