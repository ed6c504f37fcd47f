"""Writes one stage: the text of a module, with what feeds its ports."""

from __future__ import annotations

import re
from typing import Any, Mapping, Sequence

import torch
import torch.fx

from .. import private
from ..places import Refused, Unsupported, place_of
from ..weights.grains import grain_of
from .call import TEXT_DTYPES, Facts, Linear, inner_dtype, shape_of
from .capture import Input
from .cuts import ROUNDED
from .plan import Param, Port, Stage, port_text
from .rules import apply
from .text import Builder, Value, param_name, type_text

_INPUT_NAME = re.compile(r"\['([A-Za-z_][A-Za-z0-9_]*)'\]$")


def inner_value(node: torch.fx.Node, code: str) -> Any:
    """A node's value as an operand named `code`, by its shape and dtype alone."""
    fake = private.fake_value(node)
    if not isinstance(fake, torch.Tensor):
        raise Unsupported(private.target_name(node), "an operand is no tensor", place_of(node))
    return Value(code, shape_of(fake), inner_dtype(fake.dtype))


class StageWriter:
    """The module of some nodes of a graph."""

    def __init__(
        self,
        name: str,
        facts: Facts,
        inputs: Mapping[str, Input],
        bounds: Mapping[str, int],
        crosses: Mapping[torch.fx.Node, str],
    ) -> None:
        """crosses: how values go from one stage to another where a graph is cut (cuts.py)."""
        self.bounds, self.crosses = bounds, crosses
        self.name, self.facts, self.named = name, facts, inputs
        self.builder = Builder()
        self.values: dict[torch.fx.Node, Any] = {}
        self.params: dict[torch.fx.Node, Param] = {}
        self.ports: dict[torch.fx.Node, Port] = {}
        self.calls: list[Linear] = []
        self.names = {"seed", "loss", "stats"}
        self.reached: set[torch.fx.Node] = set()

    def write(
        self,
        nodes: Sequence[torch.fx.Node],
        results: Sequence[torch.fx.Node],
        dtypes: Mapping[str, str],
    ) -> Stage:
        """The stage of `nodes`. `dtypes` says which dtype the caller expects of a result."""
        self.reached = self._reached(results)
        for node in nodes:
            self.builder.origin = node
            try:
                self.values[node] = apply(
                    self.builder, node, self.facts, self._value_of, self.calls
                )
            except Unsupported as error:
                raise Refused(node, error.reason) from error
        ports, returned = [], []
        for node in results:
            self.builder.origin = node
            fake = private.fake_value(node)
            if fake.dtype not in TEXT_DTYPES:
                raise Refused(node, f"its result is {fake.dtype}, which the language lacks")
            dtype = dtypes.get(node.name, TEXT_DTYPES[fake.dtype])
            value, way = self.values[node], self.crosses.get(node)
            if way is not None:
                dtype = "f32"
            if way == ROUNDED:
                value = self.builder.cast(value, "bf16")
            value = self.builder.cast(value, dtype)
            first = not ports and dtype == "f32" and not value.shape
            ports.append(
                Port(
                    "loss" if first else self._unique(node.name),
                    node.name,
                    dtype,
                    shape_of(fake),
                    node in self.facts.differentiable,
                    way is not None,
                    way == ROUNDED,
                )
            )
            returned.append(value)
        made = self.builder.lines(returned)
        lines = [line for line, _ in made]
        seed = any("%seed" in line for line in lines)
        inputs = list(self.ports.values())
        dims = self._dims(lines, inputs + ports)
        text = self._text(inputs, ports, lines, [v.code for v in returned], seed, dims)
        first = text.count("\n") - 1 - len(made)  # the line of the first call: two follow the last
        origins: dict[int | str, Any] = {first + i: node for i, (_, node) in enumerate(made)}
        origins |= {port.name: node for port, node in zip(ports, results, strict=True)}
        return Stage(text, list(self.params.values()), inputs, ports, self.calls, seed, dims, origins)

    def _reached(self, results: Sequence[torch.fx.Node]) -> set[torch.fx.Node]:
        """The nodes to which a gradient of a result goes. A parameter that is read only through
        detach or no_grad has no gradient. Zeros would not do: an optimizer takes them for a gradient."""
        found, queue = set(), list(results)
        while queue:
            node = queue.pop()
            if node in self.facts.differentiable and node not in found:
                found.add(node)
                queue.extend(node.all_input_nodes)
        return found

    def _dims(self, lines: Sequence[str], ports: Sequence[Port]) -> dict[str, int]:
        """The dims that are bounds, with their largest values."""
        words = set(re.findall(r"[A-Za-z_][A-Za-z0-9_]*", " ".join(lines)))
        for port in ports:
            words.update(
                str(symbol)
                for size in port.shape
                if not isinstance(size, int)
                for symbol in size.free_symbols
            )
        found = {}
        for one in self.named.values():
            for size in one.fake.shape if isinstance(one.fake, torch.Tensor) else [one.fake]:
                for symbol, example in private.symbols(size).items():
                    if symbol in words:
                        found[symbol] = self.bounds.get(symbol, example)
                        if found[symbol] < 1:
                            raise Unsupported(f"the size {symbol}", "it is dynamic and may be 0")
        return found

    def _unique(self, name: str) -> str:
        name = re.sub(r"[^A-Za-z0-9_]", "_", name)
        while name in self.names:
            name += "_"
        self.names.add(name)
        return name

    def _value_of(self, node: torch.fx.Node) -> Any:
        """The value of an operand: of this stage, of a parameter, or a new port."""
        if node not in self.values:
            if node in self.facts.params:
                self.values[node] = self._param(node)
            elif node in self.facts.weights:
                self.values[node] = apply(
                    self.builder, node, self.facts, self._value_of, self.calls
                )
            else:
                self.values[node] = self._literal(node) or self._port(node)
        return self.values[node]

    def _param(self, node: torch.fx.Node) -> Value:
        one = self.named[node.name]
        name = param_name(one.path)
        if node in self.facts.stored:
            return self._stored(node, name)
        self.params[node] = Param(name, one.index, one.path, node in self.reached)
        return Value(name, shape_of(one.fake), TEXT_DTYPES[one.fake.dtype])

    def _stored(self, node: torch.fx.Node, name: str) -> Value:
        """A parameter that is FP8 codes. Its values are f32 in the text; its scales the program adds."""
        one, scale = self.named[node.name], self.named[self.facts.stored[node].name]
        size = tuple(one.fake.shape)
        grain = grain_of(scale.fake.dtype, tuple(scale.fake.shape), size)
        suffix = grain.scale.removeprefix("weight")
        self.params[node] = Param(name, one.index, one.path, False, grain.value)
        self.params[self.facts.stored[node]] = Param(name + suffix, scale.index, scale.path, False, scale=True)
        return Value(name, shape_of(one.fake), "f32")

    def _literal(self, node: torch.fx.Node) -> Value | None:
        """A constant of one number needs no port."""
        tensor = self.facts.constants.get(node)
        if tensor is None or not tensor.is_floating_point() or not tensor.numel():
            return None
        number = tensor.reshape(-1)[0]
        if not bool((tensor == number).all()):
            return None
        return self.builder.full(float(number), shape_of(private.fake_value(node)))

    def _port(self, node: torch.fx.Node) -> Value:
        value = inner_value(node, "")
        one = self.named.get(node.name)
        found = _INPUT_NAME.search(one.path) if one is not None and one.kind == "input" else None
        name = self._unique(found.group(1) if found else node.name)
        way = self.crosses.get(node)
        dtype = "f32" if way is not None else TEXT_DTYPES[private.fake_value(node).dtype]
        rounded = way == ROUNDED
        port = Port(name, node.name, dtype, value.shape, node in self.reached, way is not None, rounded)
        self.ports[node] = port
        outer = Value("%" + name, value.shape, dtype)
        return self.builder.cast(outer, "f32") if value.dtype == "f32" else outer

    def _text(
        self,
        inputs: Sequence[Port],
        results: Sequence[Port],
        body: Sequence[str],
        returned: Sequence[str],
        seed: bool,
        dims: Mapping[str, int],
    ) -> str:
        lines = [f"module {re.sub(r'[^A-Za-z0-9_.]', '_', self.name)}", ""]
        lines += [f"dim {symbol} <= {largest}" for symbol, largest in dims.items()]
        for node, param in self.params.items():
            fake = self.named[node.name].fake
            dtype = "f32" if param.stored else TEXT_DTYPES.get(fake.dtype)
            if not param.scale:
                lines.append(f"param {param.name}: {type_text(dtype, shape_of(fake))} zeros")
        heads = [port_text(p) for p in inputs] + (["%seed: i32[]"] if seed else [])
        lines += [
            "",
            f"func forward({', '.join(heads)}) -> ({', '.join(port_text(p) for p in results)}) {{",
        ]
        lines += ["  " + line for line in body]
        lines += [f"  return {', '.join(returned)}", "}", ""]
        return "\n".join(lines)
