"""A graph of dynamo's in pieces, where some of its nodes can be captured in no way.

A torch.autograd.Function has a backward of its own, a region of vmap maps over activations, complex
numbers are not in the language: a trace would lose what these mean. PyTorch runs such nodes as they
are. The nodes between them, in the order of the program, are graphs of their own, which the backend
compiles as any other. Autograd connects the pieces.
"""

from __future__ import annotations

from typing import Any, Callable, Sequence

import torch
import torch.fx

from . import private
from .capture import vmap_regions
from .places import place_of
from .plan import EagerOp
from .refused import why_higher_order

Made = Callable[..., Any]


def apart(gm: torch.fx.GraphModule) -> dict[torch.fx.Node, str]:
    """The nodes that PyTorch has to run as they are, with the reasons. What is overwritten becomes a
    copy of its own first, so that no stage makes it."""
    found: dict[torch.fx.Node, str] = {}
    for node in list(gm.graph.nodes):
        if private.is_in_place(node) and node.args and isinstance(node.args[0], torch.fx.Node):
            found.update((n, "it writes in place what a view shares, or at random") for n in _written(gm, node))
    regions = vmap_regions(gm)
    for node in gm.graph.nodes:
        if node.op in ("placeholder", "output", "get_attr"):
            continue
        reason = why_higher_order(node)
        if private.target_name(node) == "_operator.getitem" and node.args[0] in found:
            reason = found[node.args[0]]  # pieces exchange tensors, not tuples of them
        if not reason and len(regions.get(node, ())) > 1:
            reason = "it is in a region of vmap"
        if not reason and any(_is_complex(n) for n in (node, *node.all_input_nodes)):
            reason = "it is of complex numbers"
        if reason:
            found[node] = reason
    return found


def _is_complex(node: torch.fx.Node) -> bool:
    fake = private.fake_value(node)
    return isinstance(fake, torch.Tensor) and fake.is_complex()


_VIEWS = frozenset({"_operator.getitem", "unsqueeze", "view", "expand", "transpose"})
_MAKERS = ("clone", "empty", "zeros", "ones", "full", "rand", "arange")


def _written(gm: torch.fx.GraphModule, node: torch.fx.Node) -> list[torch.fx.Node]:
    """A node that writes an index, a view or at random, with the views that it writes through and
    what makes their tensor. Others are no matter of this file: none."""
    views: list[torch.fx.Node] = []
    root = node.args[0]
    while private.target_name(root) in _VIEWS or private.is_in_place(root):
        views.append(root)
        root = root.args[0]
    if private.target_name(node) != "_operator.setitem" and not views and not private.is_random(node):
        return []
    if root.op == "placeholder":
        return [node, *views]
    first = views[-1] if views else node
    made = any(word in private.target_name(root) for word in _MAKERS)
    if not made or any(_reads(user) for user in _before(gm, root, first)):
        root = _copied(gm, root, first)
    return [node, *views, root]


def _before(
    gm: torch.fx.GraphModule, node: torch.fx.Node, end: torch.fx.Node
) -> list[torch.fx.Node]:
    """The users of a node that come before another one."""
    order = {one: i for i, one in enumerate(gm.graph.nodes)}
    return [user for user in node.users if order[user] < order[end]]


def _reads(node: torch.fx.Node) -> bool:
    """Whether a node may keep what it reads for its backward: it is neither a view nor a write."""
    return private.target_name(node) not in _VIEWS and not private.is_in_place(node)


def _copied(
    gm: torch.fx.GraphModule, root: torch.fx.Node, first: torch.fx.Node
) -> torch.fx.Node:
    """A copy of a value for all nodes from `first` on; the value itself where a view of it that was
    made before is a reader, too."""
    earlier = _before(gm, root, first)
    if any(private.target_name(user) in _VIEWS for user in earlier):
        return root
    later = [user for user in root.users if user not in earlier]
    with gm.graph.inserting_before(first):
        copy = gm.graph.call_method("clone", (root,))
    copy.meta = dict(root.meta)
    for user in later:
        user.replace_input_with(root, copy)
    return copy


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
        self._differentiable = self._reached()
        self.ops = [
            EagerOp(private.target_name(n), r, place_of(n))
            for n, r in alone.items()
            if private.target_name(n) != "_operator.getitem"
        ]
        self._steps = [
            self._step(run, make if run[0] not in alone else None) for run in self._runs(alone)
        ]

    def _reached(self) -> set[torch.fx.Node]:
        """The nodes that a gradient may reach. What dynamo says of the results of an
        autograd.Function does not tell."""
        found: set[torch.fx.Node] = set()
        for node in self._nodes:
            fake = private.fake_value(node) if node.op != "output" else None
            floats = not isinstance(fake, torch.Tensor) or fake.is_floating_point() or fake.is_complex()
            if node.op == "placeholder":
                if getattr(self._examples[node.name], "requires_grad", False):
                    found.add(node)
            elif floats and any(a in found for a in node.all_input_nodes):
                found.add(node)
        return found

    def _example(self, node: torch.fx.Node) -> Any:
        """A value as the backend takes it: an argument, or a fake tensor that has a gradient or not."""
        if node.name in self._examples:
            return self._examples[node.name]
        fake = private.fake_value(node)
        if not isinstance(fake, torch.Tensor):
            return fake
        wanted = node in self._differentiable and torch.is_grad_enabled()
        return fake.detach().requires_grad_(wanted)

    def _runs(self, alone: dict[torch.fx.Node, str]) -> list[list[torch.fx.Node]]:
        runs: list[list[torch.fx.Node]] = []
        for node in self._nodes:
            if node.op in ("placeholder", "output"):
                continue
            if not runs or (node in alone) != (runs[-1][-1] in alone):
                runs.append([])
            runs[-1].append(node)
        return runs

    def _step(
        self,
        run: list[torch.fx.Node],
        make: Callable[[torch.fx.GraphModule, Sequence[Any]], Made] | None,
    ) -> tuple[Made, list[str], list[str]]:
        """What computes a run of nodes, the names that it reads, and those of its results."""
        inside, graph = set(run), torch.fx.Graph()
        env: dict[torch.fx.Node, torch.fx.Node] = {}
        outside = dict.fromkeys(a for n in run for a in n.all_input_nodes if a not in inside)
        for node in outside:
            if node.op == "get_attr":
                env[node] = graph.get_attr(str(node.target))
            else:
                env[node] = graph.placeholder(node.name)
            env[node].meta = dict(node.meta)
        for node in run:
            env[node] = graph.node_copy(node, lambda n: env[n])
        results = [n for n in run if any(user not in inside for user in n.users)]
        graph.output(tuple(env[n] for n in results))
        part = torch.fx.GraphModule(self._gm, graph)
        inputs = [n for n in outside if n.op != "get_attr"]
        made: Made = part.forward
        if make is not None:
            made = make(part, [self._example(n) for n in inputs])
        return made, [n.name for n in inputs], [n.name for n in results]

    def __call__(self, *args: Any) -> Any:
        values = dict(zip(self._inputs, args, strict=True))
        for made, inputs, results in self._steps:
            values.update(zip(results, made(*(values[name] for name in inputs)), strict=True))
        return torch.fx.map_arg(self._output, lambda n: values[n.name])
