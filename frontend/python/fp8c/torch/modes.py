"""The gradient mode and the autocast that hold at a place of dynamo's graph.

Calls in the graph set them: a piece of the graph that is cut out would lose those before it.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import Iterator, Sequence

import torch
import torch.fx

from . import private


@dataclass(frozen=True)
class Modes:
    """What holds at a place, beside what holds where the graph is called.

    grad: the gradient mode; None: the caller's. autocasts: the calls that entered those that are
    not left yet, outermost first.
    """

    grad: bool | None = None
    autocasts: tuple[torch.fx.Node, ...] = ()

    def after(self, node: torch.fx.Node) -> "Modes":
        """What holds behind a node."""
        grad = private.sets_grad(node)
        if grad is not None:
            return Modes(grad, self.autocasts)
        if private.autocast_entered(node) is not None:
            return Modes(self.grad, (*self.autocasts, node))
        left = private.autocast_left(node)
        if left is not None:
            return Modes(self.grad, tuple(one for one in self.autocasts if one is not left))
        return self

    @property
    def differentiates(self) -> bool:
        """Whether PyTorch records gradients at the place."""
        return torch.is_grad_enabled() if self.grad is None else self.grad

    @contextlib.contextmanager
    def entered(self) -> Iterator[None]:
        """A context with these modes. What is set within it ends with it."""
        with contextlib.ExitStack() as stack:
            for node in self.autocasts:
                stack.enter_context(torch.autocast(*private.autocast_entered(node) or ()))
            stack.enter_context(torch.set_grad_enabled(self.differentiates))
            yield


def modes_of(nodes: Sequence[torch.fx.Node]) -> dict[torch.fx.Node, Modes]:
    """The modes under which each node of a graph runs."""
    found, modes = {}, Modes()
    for node in nodes:
        found[node] = modes
        modes = modes.after(node)
    return found


def balanced(
    nodes: Sequence[torch.fx.Node], modes: dict[torch.fx.Node, Modes]
) -> list[list[torch.fx.Node]]:
    """The nodes cut where an autocast begins or ends whose other end lies elsewhere, and, where no
    gradients are recorded to begin with, at each change of that. What is left of the calls that
    set modes is what a capture understands."""
    inside = set(nodes)
    for i, node in enumerate(nodes):
        if not private.is_state_call(node):
            continue
        if private.sets_grad(node) is not None:
            stays = modes[nodes[0]].differentiates
        elif private.autocast_entered(node) is not None:
            stays = any(user in inside for user in node.users)
        else:
            stays = private.autocast_left(node) in inside
        if not stays:
            return balanced(nodes[:i], modes) + balanced(nodes[i + 1 :], modes)
    return [list(nodes)] if any(not private.is_state_call(node) for node in nodes) else []
