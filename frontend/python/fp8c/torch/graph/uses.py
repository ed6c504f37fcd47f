"""What reads a graph's parameters outside the linears of its stages.

The report needs this. If PyTorch runs an op that reads a weight, the report names that op. A parameter
that is read by a product which is no linear has a row, too.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Callable, Mapping, Sequence

import torch
import torch.fx

from .. import private
from ..places import Place, place_of
from .plan import Eager, EagerOp, Plan

# Products, by the last part of the op's name, with the positions of operands that are no weights.
_PRODUCTS = {
    "linear": (0, 2),
    "mm": (),
    "bmm": (),
    "matmul": (),
    "addmm": (0,),
    "baddbmm": (0,),
    "einsum": (),
}


@dataclass(frozen=True)
class Product:
    """A product that reads a parameter. batch: the parameter is several matrices."""

    place: Place
    batch: bool


@dataclass
class Uses:
    """By the parameters' positions among the arguments of the graph.

    lost: the first op run by PyTorch that reads it. products: the first product that reads it, whether
    PyTorch or a stage runs it.
    """

    lost: dict[int, EagerOp] = field(default_factory=dict)
    products: dict[int, Product] = field(default_factory=dict)


def uses_of(
    nodes: Sequence[torch.fx.Node],
    params: Mapping[str, int],
    eager: Callable[[torch.fx.Node], EagerOp | None],
    constants: Mapping[str, torch.Tensor] | None = None,
) -> Uses:
    """The uses of parameters in a graph. params: their positions, by the names of placeholders.
    eager: the op, if PyTorch runs the node, else None. What is computed from parameters and constants
    alone, as a transpose, counts as those parameters."""
    found = Uses()
    sources: dict[torch.fx.Node, frozenset[int]] = {}
    neutral = {n for n in nodes if n.op == "get_attr" or n.name in (constants or {})}
    for node in nodes:
        if node.op == "placeholder" and node.name in params:
            sources[node] = frozenset([params[node.name]])
        if node.op in ("placeholder", "get_attr", "output"):
            continue
        reads = {i for a in node.all_input_nodes for i in sources.get(a, ())}
        op = eager(node)
        if op is not None:
            for index in reads:
                found.lost.setdefault(index, op)
        for matrix in _matrices(node):
            own = sources.get(matrix, ())
            batch = private.fake_value(matrix).dim() > 2
            for index in own if len(own) == 1 else ():  # of several parameters it is a result
                found.products.setdefault(index, Product(place_of(node), batch))
        if reads and all(a in sources or a in neutral for a in node.all_input_nodes):
            sources[node] = frozenset(reads)
    return found


def uses_in_plan(plan: Plan, graph: torch.fx.Graph) -> Uses:
    """The uses of parameters in a captured graph that has this plan."""
    ops: dict[str, EagerOp] = {}
    for step in plan.steps:
        if isinstance(step, Eager):
            known = {(op.op, op.place): op for op in step.ops}
            for node in step.module.graph.nodes:
                op = known.get((private.target_name(node), place_of(node)))
                if op is not None and node.op == "call_function":
                    ops[node.name] = op
    params = {one.name: one.index for one in plan.inputs if one.kind == "param"}
    scales = {one.name: one.tensor for one in plan.inputs if one.kind == "scale"}
    return uses_of(list(graph.nodes), params, lambda node: ops.get(node.name), plan.constants | scales)


def _matrices(node: torch.fx.Node) -> list[torch.fx.Node]:
    """The matrices that a node multiplies; none: it is no product."""
    name = private.target_name(node)
    parts = name.split(".")
    short = parts[1] if parts[0] == "aten" and len(parts) > 1 else parts[-1]
    if short not in _PRODUCTS:
        return []
    apart = [node.args[i] for i in _PRODUCTS[short] if i < len(node.args)]
    fakes = {n: private.fake_value(n) for n in node.all_input_nodes if n not in apart}
    return [n for n, f in fakes.items() if isinstance(f, torch.Tensor) and f.dim() > 1]
