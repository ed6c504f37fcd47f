"""Where a node of a graph comes from: the module, the file and the line. And what is said there."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from typing import Any, Sequence

import torch
import torch.fx

from . import private

_FRAME = re.compile(r'File "([^"]+)", line (\d+)')
_TORCH = os.path.dirname(torch.__file__) + os.sep


# Python's errors, as of a call that a rule was not written for: they cost the op, or the graph.
FAILURES = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    LookupError,
    RuntimeError,
    TypeError,
    ValueError,
)


@dataclass(frozen=True)
class Place:
    """A place in the model: the dotted path of the module, the file and the line of its code."""

    module: str = ""
    file: str = ""
    line: int = 0

    def __str__(self) -> str:
        where = f"{self.file}:{self.line}" if self.file else "unknown line"
        return f"{where} (module {self.module})" if self.module else where


class Unsupported(Exception):
    """fp8c lacks an op, or refuses it. The message has the op, the reason and the place."""

    def __init__(self, op: str, reason: str, place: Place | None = None) -> None:
        self.op, self.reason, self.place = op, reason, place or Place()
        super().__init__(f"{op}: {reason}, at {self.place}" if place else f"{op}: {reason}")


class Refused(Unsupported):
    """A node keeps its stage from being written."""

    def __init__(self, node: torch.fx.Node, reason: str) -> None:
        self.node = node
        super().__init__(private.target_name(node), reason, place_of(node))


def place_of(node: torch.fx.Node) -> Place:
    """The innermost module around a node, and the innermost line outside of PyTorch itself."""
    stack = private.module_stack(node)
    frames = _FRAME.findall(node.meta.get("stack_trace") or "")
    return _innermost([(file, int(line)) for file, line in frames], stack[-1][0] if stack else "")


def place_of_frames(frames: Sequence[Any]) -> Place:
    """The innermost line of a stack outside of PyTorch itself; outermost frames come first."""
    return _innermost([(frame.filename, frame.lineno) for frame in frames], "")


def _innermost(lines: Sequence[tuple[str, int]], module: str) -> Place:
    own = [line for line in lines if not line[0].startswith(_TORCH)] or lines
    return Place(module, *own[-1]) if own else Place(module)
