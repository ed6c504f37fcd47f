"""`strict`: a linear that no graph has is an error in the first backward that gives it a gradient.

A compile sees one graph. It never sees what dynamo leaves to PyTorch, behind a graph break or in a
disabled region. So under strict the weights of all linears of the compiled module have a hook: a
gradient of a weight that no program reads is an error. A weight that FSDP2 shards gets its gradient
without a hook: an optimizer's step looks at those first. Dynamo does not give a backend the module, so
it is looked for among the callers. If a function was compiled there is no module to find. Then only
`report` raises. A module of which dynamo leaves all to PyTorch never comes to a backend. It is watched
with the first graph of a module beside it, as of another block of the model.
"""

from __future__ import annotations

import inspect
import threading
import weakref
from dataclasses import replace
from typing import Any, Callable

import torch
from torch.optim.optimizer import register_optimizer_step_pre_hook

from . import private
from .linears import is_linear
from .places import Unsupported
from .private import unwrap
from .ranks.sharded import is_home
from .run import scales

explain: list[Callable[[torch.nn.Module, str], Any]] = []  # the report's row of a linear
_lock = threading.Lock()
_watched: dict[int, weakref.ref] = {}  # by id of a weight
_sharded: dict[int, tuple[weakref.ref, _Watch]] = {}  # those that FSDP2 shards
_hooked = False
_CALLS = {"__call__", "_wrapped_call_impl", "_call_impl", "forward"}  # of modules


def watch_caller(backend: Callable[..., Any]) -> None:
    """Watch the module that is being compiled, if it can be found. And watch the modules beside it that
    were compiled by themselves with this backend: one of them may have no graph at all."""
    frame, model, compiled = inspect.currentframe(), None, None
    while frame is not None:
        # Until Python 3.13 a frame keeps the locals that one asks it for, until it ends. Calls of modules end
        # soon; the caller's frame would keep a model that the caller deletes.
        module = frame.f_locals.get("self") if frame.f_code.co_name in _CALLS else None
        if isinstance(module, torch.nn.Module):
            model = module  # in the end the outermost
            if compiled is None and private.is_compiled_module(module):
                compiled = module
        frame = frame.f_back
    if model is None:
        return
    model = unwrap(model)
    if compiled is not None:
        _watch(unwrap(compiled), model)
    for module in model.modules():
        options = private.compiled_with(module, backend)
        if options is not None and options.get("strict"):
            _watch(module, model)


def _watch(module: torch.nn.Module, model: torch.nn.Module) -> None:
    """Watch the linears of a module that was compiled. model: it has the module; messages have its paths."""
    paths = (path for path, one in model.named_modules() if one is module)
    path = next(paths, "").replace("_orig_mod.", "")
    for name, linear in module.named_modules():
        weight = getattr(linear, "_parameters", {}).get("weight")
        if weight is None or not is_linear(linear):
            continue
        if not (weight.requires_grad and weight.is_leaf):  # FSDP's are views
            continue
        with _lock:
            known = _watched.get(id(weight))
            if known is not None and known() is weight:
                continue
            _watched[id(weight)] = weakref.ref(weight)
        watch = _Watch(module, name, path)
        if is_home(weight):
            _watch_steps(weight, watch)
        else:
            weight.register_post_accumulate_grad_hook(watch)


def _watch_steps(weight: torch.Tensor, watch: _Watch) -> None:
    """Look at a sharded weight before each step of an optimizer."""
    global _hooked
    with _lock:
        _sharded[id(weight)] = weakref.ref(weight), watch
        if not _hooked:
            register_optimizer_step_pre_hook(_before_step)
            _hooked = True


def _before_step(optimizer: Any, *_: Any) -> None:
    for group in optimizer.param_groups:
        for param in group["params"]:
            known, watch = _sharded.get(id(param), (None, None))
            if known is not None and known() is param and param.grad is not None:
                watch(param)


class _Watch:
    """The hook of a weight. It looks for a program that reads the weight, until there is one."""

    def __init__(self, model: torch.nn.Module, name: str, path: str) -> None:
        self._model, self._name, self._path, self._known = weakref.ref(model), name, path, False

    def __call__(self, weight: torch.Tensor) -> None:
        model = self._model()
        if self._known or model is None:
            return
        self._known = bool(scales.of_params([weight]))
        if not self._known:
            lost = explain[0](model, self._name)
            name = f"{self._path}.{lost.name}".strip(".")
            raise Unsupported(f"linear {name}", f"{lost.reason} (strict)", replace(lost.place, module=name))
