"""Partition: the classes of a captured graph's nodes, and the plan that they give.

    constants   depend on nothing that a call gives: computed now
    prologue    depend on ids, masks and buffers alone: PyTorch runs them first, without gradients
    stages      what fp8c runs
    eager       ops that fp8c lacks, or refuses: PyTorch runs them between two stages

Levels. A stage's node has the highest level of its operands, and one more after an eager operand.
An eager node has the highest level of its operands, and runs after the stage of that level. So a
stage never waits for itself, and there are as few stages as there are eager nodes in a row. What
depends on parameters alone, such as a weight that is reshaped, is computed in each stage that reads
it: a linear's weight stays a parameter.
"""

from __future__ import annotations

import operator
from dataclasses import dataclass
from typing import Any, Mapping

import torch
import torch.fx

import fp8c

from .. import private
from ..places import Refused, Unsupported, place_of
from ..weights.grains import CODES, DEQUANTIZED
from .call import TEXT_DTYPES, Facts, shape_of
from .capture import Captured, Input, name_results
from .composites import replace_composites
from .cuts import Cuts, cut
from .normalize import normalize
from .plan import Eager, EagerOp, Plan, Prologue, Stage
from .rules import apply
from .stage import StageWriter, inner_value
from .text import Builder, Value

_DROPS = frozenset({"aten.dropout.default", "aten.scaled_dot_product_attention.default"})
_CUT = frozenset(  # ops through which no gradient goes
    ["aten.detach.default"]
    + [f"aten.{op}.default" for op in ("zeros_like", "ones_like", "full_like")]
    + [f"aten.{op}.default" for op in ("new_zeros", "new_ones", "new_full")]
)
_CHOOSE = "aten.topk.default"
_PRODUCTS = frozenset(
    {"aten.linear.default", "aten.addmm.default", "aten.mm.default", "aten.matmul.default"}
)
CONSTANT, PROLOGUE, INPUT, STAGE, EAGER = range(5)


def partition(
    captured: Captured, name: str = "model", bounds: Mapping[str, int] | None = None
) -> Plan:
    """The plan of a captured model. It consumes the capture: the graph is rewritten in place.

    bounds: the largest values of sizes that are dynamic, by symbol (`Stage.bounds` names them). A
    size that is not named there has the value of the example. Sizes that the model takes to be
    equal may have symbols of their own, so bounds must be the sizes of a call that could be.
    """
    return Partitioner(captured, name, bounds).plan()


@dataclass(frozen=True)
class Cutting:
    """That a graph is cut into a stage a block. rounds: whether the recipe rounds activations. tied:
    whether several stages may read a parameter (cuts.py)."""

    rounds: bool
    tied: bool


class Partitioner:
    """Plans of one capture, each without the nodes that were refused before it."""

    def __init__(
        self,
        captured: Captured,
        name: str = "model",
        bounds: Mapping[str, int] | None = None,
        cutting: Cutting | None = None,
    ) -> None:
        """cutting: how the graph is cut into a stage a block. None: it is not."""
        normalize(captured.graph)
        self._composites = replace_composites(captured.graph, captured.constants)
        name_results(captured.graph, captured.outputs)
        self._captured, self._name, self._bounds = captured, name, bounds or {}
        self._cutting = cutting
        self._refused: dict[torch.fx.Node, str] = {}

    def plan(self) -> Plan:
        """The plan. A node that keeps its stage from being written runs in PyTorch."""
        while True:
            work = _Partition(
                self._captured,
                self._name,
                self._composites,
                self._bounds,
                self._refused,
                self._cutting,
            )
            try:
                return work.plan()
            except Refused as error:
                if error.node in self._refused:
                    raise
                self._refused[error.node] = error.reason

    def refuse(self, stage: Stage, error: fp8c.Error) -> bool:
        """Leave out the node that an error about a stage's text is about, so that the next plan has
        it run in PyTorch. False: the error names none that is left."""
        node = stage.origin(error)
        if node is None or node in self._refused:
            return False
        self._refused[node] = _first_line(error)
        return True


def _first_line(error: fp8c.Error) -> str:
    """An error without the place, the line and the caret."""
    return error.message.splitlines()[0].partition(": error: ")[2]


def _differentiable(fake: torch.Tensor) -> bool:
    """Whether values of a tensor's dtype have gradients. PyTorch runs complex ones."""
    return fake.is_floating_point() or fake.is_complex()


class _Partition:
    """The work of `partition`, in the order of its methods."""

    def __init__(
        self,
        captured: Captured,
        name: str,
        composites: dict[str, int],
        bounds: Mapping[str, int],
        refused: Mapping[torch.fx.Node, str],
        cutting: Cutting | None,
    ) -> None:
        self.cutting = cutting
        self.cuts = Cuts({})
        self.captured, self.name, self.composites = captured, name, composites
        self.bounds, self.refused = bounds, refused
        self.nodes = list(captured.graph.nodes)
        self.inputs: dict[str, Input] = {i.name: i for i in captured.inputs}
        self.constants: dict[str, torch.Tensor] = dict(captured.constants)
        self.facts = Facts()
        self.classes: dict[torch.fx.Node, int] = {}
        self.levels: dict[torch.fx.Node, int] = {}
        self.uncut: dict[torch.fx.Node, int] = {}  # the levels if nothing were cut
        self.reasons: dict[torch.fx.Node, EagerOp] = {}
        self.no_grad: set[torch.fx.Node] = set()

    def plan(self) -> Plan:
        """All steps."""
        self._find_facts()
        self._find_routers()
        self._classify()
        self._level()
        prologue = []
        c = self.captured
        if c.prologue is not None:
            prologue.append(Prologue(c.prologue, c.prologue_inputs, c.prologue_results))
        second, ops = self._second_prologue()
        prologue += second
        steps = self._steps()
        read = {p.value for s in steps if isinstance(s, Stage) for p in s.inputs}
        read |= {n for s in steps if isinstance(s, Eager) for n in s.inputs}
        read |= {n for p in prologue for n in p.inputs} | {o.name for o in c.outputs}
        kept = {n: t for n, t in self.constants.items() if n in read}
        return Plan(
            c.inputs,
            kept,
            prologue,
            c.prologue_ops + ops,
            steps,
            c.outputs,
            self.composites,
            self.cuts.kept,
        )

    # ---- what is known about nodes ----

    def _find_facts(self) -> None:
        grad = self.captured.grad
        facts = self.facts
        for node in self.nodes:
            mode = private.sets_grad(node)
            if mode is not None:
                grad = mode and self.captured.grad
                continue
            if node.op == "placeholder":
                self._placeholder_facts(node, grad)
                continue
            if node.op == "get_attr":
                self._constant(node, getattr(self.captured.module, str(node.target)))
                continue
            if node.op != "call_function":
                continue
            feeding = node.all_input_nodes
            weights = [a for a in feeding if a in facts.weights]
            if weights and all(a in facts.weights or a in facts.constants for a in feeding):
                facts.weights.add(node)
            fake = private.fake_value(node)
            floats = not isinstance(fake, torch.Tensor) or _differentiable(fake)
            if not grad:
                self.no_grad.add(node)
                if any(a in facts.differentiable for a in feeding):
                    facts.no_grad.add(node)
            elif (
                floats
                and private.target_name(node) not in _CUT
                and any(a in facts.differentiable for a in feeding)
            ):
                facts.differentiable.add(node)
            if private.target_name(node) == DEQUANTIZED and self._is_stored(node):
                facts.stored[node.args[0]] = node.args[1]
            if private.target_name(node) in _DROPS:
                facts.streams[node] = len(facts.streams)

    def _is_stored(self, node: torch.fx.Node) -> bool:
        """Whether a stage can read codes where they are: FSDP2 may gather them in another dtype."""
        codes = node.args[0]
        return (
            all(a in self.facts.params for a in node.all_input_nodes)
            and private.fake_value(codes).dtype is CODES
        )

    def _placeholder_facts(self, node: torch.fx.Node, grad: bool) -> None:
        one = self.inputs.get(node.name)
        if one is None:
            if node.name in self.constants:
                self._constant(node, self.constants[node.name])
            return
        if one.kind in ("param", "scale"):
            self.facts.weights.add(node)
            self.facts.params[node] = one.path
        if grad and one.requires_grad:
            self.facts.differentiable.add(node)

    def _constant(self, node: torch.fx.Node, tensor: Any) -> None:
        if isinstance(tensor, torch.Tensor):
            self.facts.constants[node] = tensor
            self.constants[node.name] = tensor

    def _find_routers(self) -> None:
        """The products whose results a top-k reads, also through other ops: the last product before it."""
        queue = [n for n in self.nodes if private.target_name(n) == _CHOOSE]
        queue = [n.args[0] for n in queue]
        seen = set()
        while queue:
            node = queue.pop()
            if node in seen or node.op != "call_function":
                continue
            seen.add(node)
            if private.target_name(node) in _PRODUCTS:
                self.facts.routers.add(node)
            else:
                queue += node.all_input_nodes

    # ---- classes ----

    def _classify(self) -> None:
        builder, values = Builder(), {}
        for node in self.nodes:
            if node.op == "output" or private.sets_grad(node) is not None:
                continue
            if node.op in ("placeholder", "get_attr"):
                self.classes[node] = self._leaf_class(node)
                continue
            feeding = [self.classes[a] for a in node.all_input_nodes]
            highest = max(feeding, default=CONSTANT)
            if highest == CONSTANT and not private.is_random(node) and self._fold(node):
                continue
            if highest <= PROLOGUE:
                self.classes[node] = PROLOGUE
            elif node.target is operator.getitem and self.classes[node.args[0]] == EAGER:
                self.classes[node] = EAGER
            else:
                self.classes[node] = self._try(builder, node, values)
            self._keep_weight(node)

    def _keep_weight(self, node: torch.fx.Node) -> None:
        """A stage computes again what depends on parameters alone. PyTorch's results it can't, nor
        what depends on them."""
        weights = self.facts.weights
        ours = [a for a in node.all_input_nodes if a not in self.facts.constants]
        if self.classes[node] == EAGER or any(a not in weights for a in ours):
            weights.discard(node)

    def _leaf_class(self, node: torch.fx.Node) -> int:
        if node in self.facts.constants:
            return CONSTANT
        one = self.inputs.get(node.name)
        if one is None or one.kind in ("buffer", "size"):
            return PROLOGUE
        floats = isinstance(one.fake, torch.Tensor) and one.fake.is_floating_point()
        return STAGE if one.kind in ("param", "scale") else INPUT if floats else PROLOGUE

    def _fold(self, node: torch.fx.Node) -> bool:
        """Compute a constant now. One whose size is dynamic is the prologue's."""
        fake = private.fake_value(node)
        if not isinstance(fake, torch.Tensor) or any(not isinstance(s, int) for s in fake.shape):
            return False
        args, kwargs = torch.fx.map_arg((node.args, node.kwargs), lambda n: self.facts.constants[n])
        with torch.no_grad(), private.no_autocast():
            self._constant(node, node.target(*args, **kwargs))
        self.classes[node] = CONSTANT
        return True

    def _try(self, builder: Builder, node: torch.fx.Node, values: dict[torch.fx.Node, Any]) -> int:
        """STAGE if a rule takes the node. Else the prologue's, if no parameter and no gradient is
        involved, or an eager one."""

        def value_of(source: torch.fx.Node) -> Any:
            if source in self.facts.stored:
                return Value("%" + source.name, shape_of(private.fake_value(source)), "f32")
            if source not in values:
                values[source] = inner_value(source, "%" + source.name)
            return values[source]

        try:
            if node in self.refused:
                raise Unsupported(private.target_name(node), self.refused[node], place_of(node))
            values[node] = apply(builder, node, self.facts, value_of, [])
            return STAGE
        except Unsupported as error:
            if self._free(node):
                self._to_prologue(node)
                return PROLOGUE
            self.reasons[node] = EagerOp(private.target_name(node), error.reason, error.place)
            return EAGER

    def _free(self, node: torch.fx.Node) -> bool:
        """Whether neither a parameter nor a gradient nor an eager op is among what a node reads."""
        seen, queue = set(), [node]
        while queue:
            one = queue.pop()
            if one in seen:
                continue
            seen.add(one)
            if one in self.facts.weights or one in self.facts.differentiable or one in self.reasons:
                return False
            queue.extend(one.all_input_nodes)
        return True

    def _to_prologue(self, node: torch.fx.Node) -> None:
        for source in node.all_input_nodes:
            if source.op != "placeholder" and self.classes[source] == STAGE:
                self.classes[source] = PROLOGUE
                self._to_prologue(source)

    # ---- levels ----

    def _level(self) -> None:
        placed = {n for n in self.nodes if self._is_placed(n)}
        self.uncut = self.levels = self._levels(dict.fromkeys(placed, 0))
        if self.cutting is None or not self.captured.grad:
            return
        returned = {n for n in placed if any(u.op == "output" or self._apart(n, u) for u in n.users)}
        self.cuts = cut(
            self.nodes, placed, self.facts, returned, self.cutting.rounds, self.cutting.tied
        )
        self.levels = self._levels(self.cuts.segments)

    def _apart(self, node: torch.fx.Node, user: torch.fx.Node) -> bool:
        """Whether a value leaves its stage for this reader also where the graph is not cut."""
        return user in self.uncut and self.uncut[user] != self.uncut[node] or self.classes.get(user) == EAGER

    def _levels(self, segment: Mapping[torch.fx.Node, int]) -> dict[torch.fx.Node, int]:
        """The level of each node. Those of a segment are above those of the segments before it."""
        levels: dict[torch.fx.Node, int] = {}
        for number in range(max(segment.values(), default=0) + 1):
            first = max(levels.values(), default=-1) + 1
            for node in [n for n in self.nodes if segment.get(n) == number]:
                level = first
                for source in node.all_input_nodes:
                    if source in levels:
                        step = self.classes[node] == STAGE and self.classes[source] == EAGER
                        level = max(level, levels[source] + step)
                levels[node] = level
        return levels

    def _is_placed(self, node: torch.fx.Node) -> bool:
        """Whether a node is one of a step. What depends on parameters alone is in each that reads it."""
        if node.op == "placeholder" or self.classes.get(node) not in (STAGE, EAGER):
            return False
        return node not in self.facts.weights or any(user.op == "output" for user in node.users)

    # ---- the parts ----

    def _second_prologue(self) -> tuple[list[Prologue], list[str]]:
        """What is left for PyTorch after the trace, such as a mask made of a float input."""
        nodes = [
            n for n in self.nodes if n.op == "call_function" and self.classes.get(n) == PROLOGUE
        ]
        outputs = {o.name for o in self.captured.outputs}
        results = [n for n in nodes if n.name in outputs or any(self._reads(u, n) for u in n.users)]
        live = set(results)
        for node in reversed(nodes):
            if node in live:
                live.update(node.all_input_nodes)
        nodes = [n for n in nodes if n in live]
        if not nodes:
            return [], []
        module, inputs = self._module(nodes, results)
        return (
            [Prologue(module, inputs, [n.name for n in results])],
            [private.target_name(n) for n in nodes if private.is_tensor_call(n)],
        )

    def _reads(self, user: torch.fx.Node, node: torch.fx.Node) -> bool:
        """Whether a step needs a value of the prologue. A stage has sizes in its text."""
        kind = self.classes.get(user)
        return kind == EAGER or (
            kind == STAGE and isinstance(private.fake_value(node), torch.Tensor)
        )

    def _module(
        self, nodes: list[torch.fx.Node], results: list[torch.fx.Node]
    ) -> tuple[torch.fx.GraphModule, list[str]]:
        graph = torch.fx.Graph()
        inside = set(nodes)
        outside = dict.fromkeys(a for n in nodes for a in n.all_input_nodes if a not in inside)
        env = {node: graph.placeholder(node.name) for node in outside}
        for node in nodes:
            env[node] = graph.node_copy(node, lambda n: env[n])
        graph.output(tuple(env[n] for n in results))
        return torch.fx.GraphModule(self.captured.module, graph), [n.name for n in outside]

    def _steps(self) -> list[Stage | Eager]:
        steps: list[Stage | Eager] = []
        for level in range(max(self.levels.values(), default=-1) + 1):
            members = [n for n in self.nodes if self.levels.get(n) == level]
            own = [n for n in members if self.classes[n] == STAGE]
            if own:
                steps.append(self._stage(own, f"{self.name}.{level}" if level else self.name))
            steps += self._eager([n for n in members if self.classes[n] == EAGER])
        return steps

    def _used_outside(self, node: torch.fx.Node, inside: set[torch.fx.Node]) -> bool:
        return any(
            user.op == "output" or (user not in inside and user not in self.facts.weights)
            for user in node.users
        )

    def _crosses(self, node: torch.fx.Node) -> bool:
        """Whether a value goes from one stage to another because of a cut."""
        return any(self.levels.get(user, -1) > self.levels[node] for user in node.users)

    def _stage(self, nodes: list[torch.fx.Node], name: str) -> Stage:
        inside = set(nodes)
        results = [
            n
            for n in nodes
            if self._used_outside(n, inside) and isinstance(private.fake_value(n), torch.Tensor)
        ]
        order = {o.name: i for i, o in reversed(list(enumerate(self.captured.outputs)))}
        results.sort(key=lambda n: order.get(n.name, len(order)))
        dtypes = {
            o.name: TEXT_DTYPES.get(o.dtype, "f32")
            for o in self.captured.outputs
            if o.dtype is not None
        }
        crosses = {n: way for n, way in self.cuts.ways.items() if self._crosses(n)}
        writer = StageWriter(name.replace(".", "_"), self.facts, self.inputs, self.bounds, crosses)
        return writer.write(nodes, results, dtypes)

    def _eager(self, nodes: list[torch.fx.Node]) -> list[Eager]:
        """Eager nodes of one level. Those under no_grad are steps of their own."""
        runs: list[list[torch.fx.Node]] = []
        for node in nodes:
            if not runs or (node in self.no_grad) != (runs[-1][-1] in self.no_grad):
                runs.append([])
            runs[-1].append(node)
        steps = []
        for run in runs:
            inside = set(run)
            weights = self._weights_of(run)
            results = [
                n
                for n in run
                if self._used_outside(n, inside)
                and not isinstance(private.fake_value(n), (list, tuple))
            ]
            module, inputs = self._module(weights + run, results)
            ops = [self.reasons[n] for n in run if n in self.reasons]
            steps.append(
                Eager(
                    module, inputs, [n.name for n in results], ops, grad=run[0] not in self.no_grad
                )
            )
        return steps

    def _weights_of(self, nodes: list[torch.fx.Node]) -> list[torch.fx.Node]:
        """The calls on parameters alone that these nodes read, in order."""
        wanted: set[torch.fx.Node] = set()
        queue = list(nodes)
        while queue:
            for source in queue.pop().all_input_nodes:
                if (
                    source in self.facts.weights
                    and source.op == "call_function"
                    and source not in wanted
                ):
                    wanted.add(source)
                    queue.append(source)
        return [n for n in self.nodes if n in wanted]
