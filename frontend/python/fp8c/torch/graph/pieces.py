"""A graph of dynamo's in pieces, between nodes that can't be captured.

A torch.autograd.Function has a backward of its own, a region of vmap maps over activations, complex
numbers are not in the language: a trace would lose the meaning of these. PyTorch runs such nodes as they
are. The nodes between them, in the order of the program, are graphs of their own, which the backend
compiles as any other. Autograd connects the pieces. Each is compiled, and runs, under the gradient
mode and the autocast that hold at its place.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Callable, Sequence

import torch
import torch.fx

from .. import private
from ..places import place_of
from .capture import vmap_regions
from .modes import Modes, balanced, modes_of
from .plan import EagerOp
from .refused import why_higher_order

Made = Callable[..., Any]


def apart(gm: torch.fx.GraphModule) -> dict[torch.fx.Node, str]:
    """The nodes that PyTorch has to run as they are, with the reasons. This changes the graph: a value
    that is overwritten is copied first, where that gives the same results. So a stage can compute it."""
    found = dict.fromkeys(
        _Writes(gm).apart(), "its memory is written through a view, by index or with random numbers"
    )
    regions = vmap_regions(gm)
    for node in gm.graph.nodes:
        if node.op in ("placeholder", "output", "get_attr") or private.is_state_call(node):
            continue
        reason = why_higher_order(node)
        if private.target_name(node) == "_operator.getitem" and node.args[0] in found:
            reason = found[node.args[0]]  # pieces exchange tensors, not tuples of them
        if not reason and len(regions.get(node, ())) > 1:
            reason = "it is in a region of vmap"
        if not reason and any(_is_complex(n) for n in (node, *node.all_input_nodes)):
            reason = "it has complex numbers"
        if reason:
            found[node] = reason
    return found


def _is_complex(node: torch.fx.Node) -> bool:
    fake = private.fake_value(node)
    return isinstance(fake, torch.Tensor) and fake.is_complex()


_MAKERS = ("clone", "empty", "zeros", "ones", "full", "rand", "arange")


class _Writes:
    """Writes into an index, through a view, or at random. A stage gives its results in memory of
    their own, so whatever shares the memory that is written must be PyTorch's, too.

    _base: for each node the operand whose memory it shares, as PyTorch's fake tensors tell it.
    """

    def __init__(self, gm: torch.fx.GraphModule) -> None:
        self._graph = gm.graph
        self._order: dict[torch.fx.Node, float] = {n: i for i, n in enumerate(gm.graph.nodes)}
        memory = {node: private.memory_of(node) for node in gm.graph.nodes}
        self._base = {
            node: next((a for a in node.all_input_nodes if memory[a] & memory[node]), None)
            for node in gm.graph.nodes
        }

    def apart(self) -> list[torch.fx.Node]:
        """All nodes that PyTorch has to run for the sake of a write."""
        writes = [n for n in self._order if private.is_in_place(n) and n.args]
        return [
            node
            for write in writes
            if isinstance(write.args[0], torch.fx.Node)
            for node in self._of(write)
            if node.op != "placeholder"
        ]

    def _of(self, write: torch.fx.Node) -> list[torch.fx.Node]:
        chain, root = self._chain(write.args[0])
        views = [n for n in chain if not private.is_in_place(n)]
        if not (
            views or private.target_name(write) == "_operator.setitem" or private.is_random(write)
        ):
            return []  # it overwrites a whole value, which a trace understands
        first = min([write, *chain], key=self._order.__getitem__)
        earlier = [n for n in self._sharing(root) if n not in chain and self._before(n, write)]
        seen_later = any(self._before(write, user) for n in earlier for user in n.users)
        if root.op == "placeholder" or seen_later:
            return [root, *self._sharing(root), write]
        made = any(word in private.target_name(root) for word in _MAKERS)
        read = any(self._before(u, first) and self._base[u] is not root for u in root.users)
        if not made or read:
            root = self._copied(root, first)
        return [root, *chain, write]

    def _before(self, a: torch.fx.Node, b: torch.fx.Node) -> bool:
        return self._order[a] < self._order[b]

    def _chain(self, node: torch.fx.Node) -> tuple[list[torch.fx.Node], torch.fx.Node]:
        """The nodes from a view up to the one that made its memory, without it; and that one."""
        chain = []
        while (base := self._base[node]) is not None:
            chain.append(node)
            node = base
        return chain, node

    def _sharing(self, root: torch.fx.Node) -> list[torch.fx.Node]:
        """The other nodes that share the memory of one that made it."""
        return [n for n in self._order if n is not root and self._chain(n)[1] is root]

    def _copied(self, root: torch.fx.Node, first: torch.fx.Node) -> torch.fx.Node:
        """A copy of a value for all nodes from `first` on."""
        with self._graph.inserting_before(first):
            copy = self._graph.call_method("clone", (root,))
        copy.meta = dict(root.meta)
        self._order[copy] = self._order[first] - 0.5
        self._base[copy] = None
        for user in list(root.users):
            if user is not copy and not self._before(user, first):
                user.replace_input_with(root, copy)
                if self._base[user] is root:
                    self._base[user] = copy
        return copy


@dataclass
class _Run:
    """Nodes one after another that PyTorch runs (alone), or that are a graph of their own."""

    nodes: list[torch.fx.Node]
    alone: bool
    modes: Modes


@dataclass
class _Step:
    """What computes a run, the names that it reads, those of its results, and those that nothing
    reads after it."""

    made: Made
    modes: Modes
    inputs: list[str]
    results: list[str]
    dead: list[str]


class Pieces:
    """What dynamo calls: the pieces in their order. `ops`: what PyTorch runs of them."""

    def __init__(
        self,
        gm: torch.fx.GraphModule,
        examples: Sequence[Any],
        alone: dict[torch.fx.Node, str],
        make: Callable[[torch.fx.GraphModule, Sequence[Any]], Made],
    ) -> None:
        self._nodes = [n for n in gm.graph.nodes if n.op != "get_attr"]
        self._inputs = [n.name for n in self._nodes if n.op == "placeholder"]
        self._output = next(n for n in self._nodes if n.op == "output").args[0]
        self._gm, self._examples = gm, dict(zip(self._inputs, examples, strict=True))
        self._modes = modes_of(self._nodes)
        self._differentiable = self._reached()
        self.ops = [
            EagerOp(private.target_name(n), r, place_of(n))
            for n, r in alone.items()
            if private.target_name(n) != "_operator.getitem"
        ]
        self._steps = [self._step(run, None if run.alone else make) for run in self._runs(alone)]
        self._find_dead()

    def _reached(self) -> set[torch.fx.Node]:
        """The nodes that a gradient may reach. The graph's fake tensors do not tell: those of the results
        of an autograd.Function may be wrong."""
        found: set[torch.fx.Node] = set()
        for node in self._nodes:
            fake = private.fake_value(node) if node.op != "output" else None
            floats = (
                not isinstance(fake, torch.Tensor) or fake.is_floating_point() or fake.is_complex()
            )
            if node.op == "placeholder":
                if getattr(self._examples[node.name], "requires_grad", False):
                    found.add(node)
            elif floats and self._modes[node].differentiates:
                if any(a in found for a in node.all_input_nodes):
                    found.add(node)
        return found

    def _example(self, node: torch.fx.Node) -> Any:
        """A value as the backend takes it: an argument, or a fake tensor with its `requires_grad`."""
        if node.name in self._examples:
            return self._examples[node.name]
        fake = private.fake_value(node)
        if not isinstance(fake, torch.Tensor):
            return fake
        return fake.detach().requires_grad_(node in self._differentiable)

    def _runs(self, alone: dict[torch.fx.Node, str]) -> list[_Run]:
        """The nodes in runs, each under modes that hold where it begins."""
        runs: list[_Run] = []
        for node in self._nodes:
            last, mine, modes = runs[-1] if runs else None, node in alone, self._modes[node]
            if node.op in ("placeholder", "output"):
                continue
            if private.is_state_call(node):
                if last is not None and not last.alone:
                    last.nodes.append(node)
                continue
            if last is None or last.alone != mine or (mine and last.modes != modes):
                runs.append(_Run([], mine, modes))
            runs[-1].nodes.append(node)
        found = []
        for run in runs:
            parts = [run.nodes] if run.alone else balanced(run.nodes, self._modes)
            found += [_Run(part, run.alone, self._modes[part[0]]) for part in parts]
        return found

    def _step(
        self, run: _Run, make: Callable[[torch.fx.GraphModule, Sequence[Any]], Made] | None
    ) -> _Step:
        """The step that computes a run."""
        nodes = run.nodes
        inside, graph = set(nodes), torch.fx.Graph()
        env: dict[torch.fx.Node, torch.fx.Node] = {}
        outside = dict.fromkeys(a for n in nodes for a in n.all_input_nodes if a not in inside)
        for node in outside:
            if node.op == "get_attr":
                env[node] = graph.get_attr(str(node.target))
            else:
                env[node] = graph.placeholder(node.name)
            env[node].meta = dict(node.meta)
        for node in nodes:
            env[node] = graph.node_copy(node, lambda n: env[n])
        results = [n for n in nodes if any(user not in inside for user in n.users)]
        graph.output(tuple(env[n] for n in results))
        part = torch.fx.GraphModule(self._gm, graph)
        inputs = [n for n in outside if n.op != "get_attr"]
        made: Made = part.forward
        if make is not None:
            with run.modes.entered():
                made = make(part, [self._example(n) for n in inputs])
        return _Step(made, run.modes, [n.name for n in inputs], [n.name for n in results], [])

    def _find_dead(self) -> None:
        """Note with each step the names that nothing reads after it."""
        seen = {node.name for node in _nodes_in(self._output)}
        for step in reversed(self._steps):
            step.dead = [
                name for name in dict.fromkeys(step.inputs + step.results) if name not in seen
            ]
            seen.update(step.dead)

    def __call__(self, *args: Any) -> Any:
        values = dict(zip(self._inputs, args, strict=True))
        for step in self._steps:
            with step.modes.entered():
                results = step.made(*(values[name] for name in step.inputs))
            values.update(zip(step.results, results, strict=True))
            del results  # the next step runs without what is dead
            for name in step.dead:
                del values[name]
        return torch.fx.map_arg(self._output, lambda n: values[n.name])


def _nodes_in(arguments: Any) -> list[torch.fx.Node]:
    """The nodes among arguments."""
    found: list[torch.fx.Node] = []
    torch.fx.map_arg(arguments, lambda n: found.append(n) or n)
    return found
