"""The gradient mode and the autocast that hold at a place of dynamo's graph.

Calls in the graph set them. A piece that is cut out of the graph does not have the calls before it.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import Iterator, Sequence

import torch
import torch.fx

from .. import private


@dataclass(frozen=True)
class Modes:
    """What the graph has set at a place; the rest is as the caller has it.

    grad: the gradient mode; None: the caller's. autocasts: the nodes that entered the autocasts which
    hold there, outermost first.
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
    """The nodes in parts that a capture understands. They are cut where an autocast begins or ends
    whose other end is not among the nodes. If the first node records no gradients, they are also cut
    at each change of the gradient mode. The call at a cut is dropped: `modes` has what it set."""
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
