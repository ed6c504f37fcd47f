"""What a rule is given: one ATen call, with the values of its operands in the text."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Callable, Sequence

import torch
import torch.fx

from .. import private
from ..places import Place, Unsupported, place_of
from .text import Builder, Dtype, Shape, Size, Value

TEXT_DTYPES = {
    torch.float32: "f32",
    torch.bfloat16: "bf16",
    torch.float16: "f16",
    torch.int32: "i32",
    torch.int64: "i64",
    torch.bool: "bool",
}


def inner_dtype(dtype: torch.dtype) -> str:
    """The dtype inside a text: every float is f32 there, and recipes round."""
    if dtype not in TEXT_DTYPES:
        raise Unsupported(str(dtype), "the language lacks this dtype")
    return "f32" if dtype.is_floating_point else TEXT_DTYPES[dtype]


def shape_of(fake: torch.Tensor) -> Shape:
    return tuple(private.expression(s) for s in fake.shape)


@dataclass
class Facts:
    """What the whole graph says about its nodes.

    weights: nodes that depend on parameters alone. differentiable: nodes that a gradient reaches.
    constants: known tensors. params: the dotted paths of parameters. streams: numbers of dropouts.
    proofs: what was found of constant masks. routers: products whose results a top-k reads. no_grad:
    nodes that run without gradients, and read what has one. stored: parameters that are FP8 codes, with
    their scales.
    """

    weights: set[torch.fx.Node] = field(default_factory=set)
    differentiable: set[torch.fx.Node] = field(default_factory=set)
    constants: dict[torch.fx.Node, torch.Tensor] = field(default_factory=dict)
    params: dict[torch.fx.Node, str] = field(default_factory=dict)
    streams: dict[torch.fx.Node, int] = field(default_factory=dict)
    proofs: dict[torch.fx.Node, bool | None] = field(default_factory=dict)
    routers: set[torch.fx.Node] = field(default_factory=set)
    no_grad: set[torch.fx.Node] = field(default_factory=set)
    stored: dict[torch.fx.Node, torch.fx.Node] = field(default_factory=dict)


@dataclass
class Linear:
    """A linear of a stage: its name (recipe rules match it), its place, and its weight's path ("": it is
    computed). router: a top-k reads its result."""

    name: str
    place: Place
    weight: str
    router: bool = False


class Call:
    """One ATen call. `call["weight"]` is an argument by its name in the op's schema."""

    def __init__(
        self,
        builder: Builder,
        node: torch.fx.Node,
        facts: Facts,
        value_of: Callable[[torch.fx.Node], Any],
        linears: list[Linear],
    ) -> None:
        self.b, self.node, self.facts, self.linears = builder, node, facts, linears
        self._value_of = value_of
        schema = node.target._schema
        self.nodes: dict[str, Any] = {}
        for index, argument in enumerate(schema.arguments):
            if index < len(node.args) and not argument.kwarg_only:
                self.nodes[argument.name] = node.args[index]
            elif argument.name in node.kwargs:
                self.nodes[argument.name] = node.kwargs[argument.name]
            else:
                self.nodes[argument.name] = (
                    argument.default_value if argument.has_default_value() else None
                )

    def __getitem__(self, name: str) -> Any:
        """An argument: a Value, a number, a list of these, or None."""
        return torch.fx.node.map_aggregate(self.nodes[name], self._one)

    def _one(self, item: Any) -> Any:
        if isinstance(item, torch.fx.Node):
            fake = private.fake_value(item)
            if isinstance(fake, (int, torch.SymInt)) and not isinstance(fake, bool):
                return private.expression(fake)
            return self._value_of(item)
        return item

    def has(self, name: str) -> bool:
        return name in self.nodes and self.nodes[name] is not None

    @property
    def fake(self) -> Any:
        return private.fake_value(self.node)

    @property
    def shape(self) -> Shape:
        """The result's shape."""
        return shape_of(self.fake)

    @property
    def dtype(self) -> str:
        """The result's dtype in the text."""
        return inner_dtype(self.fake.dtype)

    def refuse(self, reason: str) -> Unsupported:
        """The error that a rule raises where it can't translate the call."""
        return Unsupported(private.target_name(self.node), reason, place_of(self.node))

    def f32(self, item: Any) -> Any:
        """A value as f32; numbers stay."""
        if isinstance(item, Value):
            if item.dtype == "i64":
                item = self.b.cast(item, "i32")
            return self.b.cast(item, "f32")
        if not isinstance(item, (int, float)):  # a size that is dynamic
            return self.b.cast(self.whole(item), "f32")
        return float(item)

    def whole(self, number: Size) -> Value:
        """An integer of the text: i32 []."""
        return self.b.op("const", [], (), "i32", value=number, to=Dtype("i32"))

    def stopped(self, value: Value) -> Value:
        """A value, without a gradient."""
        if value.dtype not in ("f32", "bf16", "f16"):
            return value
        return self.b.op("stop_gradient", [value], value.shape, value.dtype)

    def own(self, name: str) -> Value:
        """A weight with the dtype that it has in memory: linears, norms and embedding take bf16."""
        value: Value = self[name]
        return value if value.dtype in ("f32", "bf16") else self.f32(value)

    def is_weight(self, name: str) -> bool:
        """Whether an argument depends on parameters alone."""
        return self.nodes.get(name) in self.facts.weights

    def constant(self, name: str) -> torch.Tensor | None:
        return self.facts.constants.get(self.nodes.get(name))

    def needs_grad(self, name: str) -> bool:
        return self.nodes.get(name) in self.facts.differentiable

    def seed(self) -> Value:
        """The seed of the stage's dropouts: an input that the caller changes at each call."""
        return Value("%seed", (), "i32", "seed")

    def linear_name(self, weight: str) -> str:
        """A linear's name in the text, and an entry in the list of linears.

        It is the module's path where the weight belongs to another module, as a tied one does, and
        else the weight's own name without ".weight".
        """
        node = self.nodes.get(weight)
        while node is not None and node not in self.facts.params:
            sources = [a for a in node.all_input_nodes if a not in self.facts.stored.values()]
            if len(sources) != 1:
                break
            node = sources[0]
        path = self.facts.params.get(node, "")
        place = place_of(self.node)
        own = path.removesuffix(".weight")
        name = own if not place.module or path.rpartition(".")[0] == place.module else place.module
        router = self.node in self.facts.routers
        self.linears.append(Linear(name or "linear", place, path, router))
        return name or "linear"


def axis_list(axes: Any, rank: int) -> list[int]:
    """Axes as numbers from 0 on; none: all."""
    if axes is None or (isinstance(axes, Sequence) and not axes):
        return list(range(rank))
    if isinstance(axes, int):
        axes = [axes]
    return sorted(a % rank for a in axes) if rank else []
