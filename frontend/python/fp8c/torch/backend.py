"""The backend of torch.compile: what the entry point `torch_dynamo_backends` names.

    torch.compile(model, backend="fp8c", options={"recipe": "current", "strict": True})

It captures dynamo's graph, partitions it, and gives back a function that runs the plan. Where
`strict` is off, a graph that can't be compiled runs in PyTorch; that is logged once, and the report
has it.
"""

from __future__ import annotations

import itertools
import logging
import threading
import weakref
from dataclasses import dataclass, field
from typing import Any, Callable, Mapping, Sequence

import torch
import torch.fx

import fp8c

from .capture import capture
from .function import Runner, new_seed
from .partition import partition
from .places import Place, Unsupported, place_of
from .plan import Plan, Stage
from .selftest import check_version
from .settings import Settings

LOGGER = logging.getLogger("fp8c.torch")
_LINEARS = ("linear", "addmm", "aten.mm", "conv1d", "conv2d")  # ops that have weights


@dataclass
class Compiled:
    """A graph of dynamo's and what became of it.

    plan: None: PyTorch runs all of it, because of `reason`. traced: the modules that it has, by
    the ids of their parameters.
    """

    settings: Settings
    plan: Plan | None = None
    runners: list[Runner] = field(default_factory=list)
    reason: str = ""
    place: Place = Place()
    modules: set[str] = field(default_factory=set)
    params: list[torch.Tensor] = field(default_factory=list)


class Function:
    """What dynamo calls. It has the record of the graph, so both live as long."""

    def __init__(self, compiled: Compiled, plan: Plan):
        self.compiled, self.plan = compiled, plan
        self._runners = {id(stage): r for stage, r in zip(plan.stages, compiled.runners, strict=True)}
        self._seeds = any(stage.seed for stage in plan.stages)
        self._calls = itertools.count()

    def __call__(self, *args: Any) -> list[Any]:
        seed = new_seed() if self._seeds else None
        watch: int | None = None
        if self.compiled.settings.statistics and torch.is_grad_enabled():
            call = next(self._calls)
            watch = call if self.compiled.settings.watches(call) else None

        def run_stage(stage: Stage, tensors: Sequence[torch.Tensor]) -> Sequence[torch.Tensor]:
            return self._runners[id(stage)](tensors, args, seed, watch)

        return self.plan.run(args, run_stage)


class Eager:
    """A graph that PyTorch runs as it is."""

    def __init__(self, compiled: Compiled, gm: torch.fx.GraphModule):
        self.compiled, self.gm = compiled, gm

    def __call__(self, *args: Any) -> Any:
        return self.gm.forward(*args)


_known: "weakref.WeakSet[Function | Eager]" = weakref.WeakSet()
_said: set[str] = set()
_lock = threading.Lock()


def fp8c_backend(gm: torch.fx.GraphModule, example_inputs: Sequence[Any], *,
                 options: Mapping[str, Any] | None = None, mode: str | None = None) -> Callable[..., Any]:
    """Compile a graph. ValueError: an option is wrong. Unsupported, fp8c.Error: `strict` is on, and
    something can't be compiled."""
    if mode is not None:
        raise ValueError(f"backend fp8c has no modes ({mode!r}); it has options")
    settings = Settings.of(options)
    check_version()
    compiled = Compiled(settings, modules=_modules(gm), params=_params(example_inputs))
    try:
        plan = partition(capture(gm, example_inputs))
        if settings.strict:
            _refuse_eager(plan)
        compiled.plan = plan
        compiled.runners = [Runner(plan, stage, settings) for stage in plan.stages]
        _compile_now(compiled, example_inputs)
        made: Function | Eager = Function(compiled, plan)
    except (Unsupported, fp8c.UnsupportedError) as error:
        if settings.strict:
            raise
        compiled.plan, compiled.runners = None, []
        compiled.reason, compiled.place = _reason(error)
        say_once(f"a graph runs in PyTorch, not in fp8c: {error}")
        made = Eager(compiled, gm)
    for op in compiled.plan.eager_ops if compiled.plan is not None else ():
        say_once(f"PyTorch runs {op}")
    with _lock:
        _known.add(made)
    return made


def known() -> list[Compiled]:
    """All graphs that were compiled and still live."""
    with _lock:
        return [one.compiled for one in _known]


def say_once(message: str) -> None:
    """Log a warning, unless it was logged before."""
    with _lock:
        if message in _said:
            return
        _said.add(message)
    LOGGER.warning("%s", message)


def _reason(error: Exception) -> tuple[str, Place]:
    if isinstance(error, Unsupported):
        return f"{error.op}: {error.reason}", error.place
    return str(error), Place()


def _refuse_eager(plan: Plan) -> None:
    """Unsupported: PyTorch would run a linear."""
    for op in plan.eager_ops:
        if any(name in op.op for name in _LINEARS):
            raise Unsupported(op.op, op.reason, op.place)


def _compile_now(compiled: Compiled, example_inputs: Sequence[Any]) -> None:
    """Compile the programs of real parameters: errors come out of the compile, not of a call."""
    if not all(isinstance(p, torch.nn.Parameter) for p in compiled.params):
        return
    for runner in compiled.runners:
        runner.grow(runner.example_sizes())
        params = runner.params_of(example_inputs)
        if runner.gradient and torch.is_grad_enabled():
            runner.bound(params, runner.cotangents)


def _modules(gm: torch.fx.GraphModule) -> set[str]:
    """The dotted paths of the modules that a graph has calls of."""
    return {place_of(node).module for node in gm.graph.nodes if node.op == "call_function"}


def _params(examples: Sequence[Any]) -> list[torch.Tensor]:
    return [e for e in examples if isinstance(e, torch.nn.Parameter)]
