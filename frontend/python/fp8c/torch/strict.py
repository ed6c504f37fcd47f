"""`strict`: a linear that no graph has is an error as soon as a gradient shows it.

A compile sees one graph. What dynamo leaves to PyTorch, behind a graph break or in a disabled region,
it never sees. So a strict compile has the linears' weights of the module that was compiled watched:
a gradient of a weight that no program reads is an error of that backward. Dynamo gives a backend no
module, so it is looked for among the callers; of a function that was compiled there is none, and only
`report` tells.
"""

from __future__ import annotations

import inspect
import threading
import weakref
from typing import Any, Callable

import torch

from . import private, scales
from .places import Unsupported
from .state import unwrap
from .uses import is_linear

explain: list[Callable[[torch.nn.Module, str], Any]] = []  # the report's row of a linear
_lock = threading.Lock()
_watched: dict[int, weakref.ref] = {}  # by id of a weight


def watch_caller() -> None:
    """Watch the module that is being compiled, if it can be found."""
    frame = inspect.currentframe()
    while frame is not None:
        module = frame.f_locals.get("self")
        if isinstance(module, torch.nn.Module) and private.is_compiled_module(module):
            _watch(unwrap(module))
            return
        frame = frame.f_back


def _watch(model: torch.nn.Module) -> None:
    for name, module in model.named_modules():
        weight = getattr(module, "_parameters", {}).get("weight")
        if weight is None or not is_linear(module):
            continue
        if not (weight.requires_grad and weight.is_leaf):  # FSDP's are views
            continue
        with _lock:
            known = _watched.get(id(weight))
            if known is not None and known() is weight:
                continue
            _watched[id(weight)] = weakref.ref(weight)
        weight.register_post_accumulate_grad_hook(_Watch(model, name))


class _Watch:
    """Looks at a weight when it has a gradient, until a program is known that reads it."""

    def __init__(self, model: torch.nn.Module, name: str) -> None:
        self._model, self._name, self._known = weakref.ref(model), name, False

    def __call__(self, weight: torch.Tensor) -> None:
        model = self._model()
        if self._known or model is None:
            return
        self._known = bool(scales.of_params([weight]))
        if not self._known:
            lost = explain[0](model, self._name)
            raise Unsupported(f"linear {lost.name}", f"{lost.reason} (strict)", lost.place)
