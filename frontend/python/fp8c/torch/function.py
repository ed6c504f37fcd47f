"""Stages under autograd: forward and backward of a program pair as one torch.autograd.Function.

    Runner      a stage of a plan, for any parameters: each set of them has programs of its own
    StageCall   the autograd function

A forward leaves what its backward needs in a handle of fp8c (fp8c.Saved). The graph of autograd
holds the handle by a `Lease`; when the graph goes, the handle is free for the next forward.

HF's models return the logits beside the loss, but the logits' cotangent is hardly ever there. So a
stage whose first result is a loss is compiled for the loss's cotangent alone. If another one comes
after all, the forward runs again in a program for all cotangents, which later calls use at once.
"""

from __future__ import annotations

import operator
import threading
from typing import Any, Mapping, Sequence

import torch
from torch.autograd.function import once_differentiable

from . import private
from .bound import Bound, Lease
from .plan import Plan, Stage
from .settings import Settings

SEEDS = 2**31 - 1  # a seed of dropouts is an i32


def new_seed() -> int:
    """A seed of PyTorch's generator, which torch.manual_seed sets."""
    return int(torch.randint(SEEDS, ()).item())


def rounded(size: int) -> int:
    """A bound for a size: at most an eighth more, so that growing sizes need few programs."""
    step = max(1, 1 << max(size.bit_length() - 4, 0))
    return -(-size // step) * step


def _places(plan: Plan) -> dict[str, tuple[int, int | None]]:
    """Where a call shows the value of each symbol: an argument, and its axis if it is a tensor."""
    found: dict[str, tuple[int, int | None]] = {}
    for one in plan.inputs:
        sizes = [(None, one.fake)] if one.kind == "size" else list(enumerate(one.fake.shape))
        for axis, size in sizes:
            symbol = str(private.expression(size)) if isinstance(size, torch.SymInt) else ""
            if symbol.isidentifier():
                found.setdefault(symbol, (one.index, axis))
    return found


class Runner:
    """Runs one stage. Parameters are arguments of the call: dynamo may use one graph for several
    blocks of a model. Each set of parameters has programs and scales of its own."""

    def __init__(self, plan: Plan, stage: Stage, settings: Settings):
        self.plan, self.stage, self.settings = plan, stage, settings
        self.gradient = any(port.gradient for port in stage.results)
        self.all_cotangents = [p.name for p in stage.results if p.gradient]
        first = stage.results[0] if stage.results else None
        self.cotangents = ["loss"] if first is not None and first.name == "loss" \
            and first.gradient else self.all_cotangents
        self._sizes = {symbol: where for symbol, where in _places(plan).items() if symbol in stage.bounds}
        self.limits: dict[str, int] = {}
        self._bound: dict[tuple, Bound] = {}
        self._outgrown: list[Bound] = []
        self._last: Bound | None = None
        self._lock = threading.Lock()

    def params_of(self, args: Sequence[Any]) -> list[torch.Tensor]:
        return [args[p.index] for p in self.stage.params]

    def bound(self, params: Sequence[torch.Tensor], cotangents: Sequence[str],
              pair: bool = True) -> Bound:
        """The program of these parameters and cotangents; compiled when it is first asked for."""
        last = self._last
        if last is not None and last.cotangents == cotangents and last.pair == pair \
                and all(map(operator.is_, last.params, params)):
            return last
        key = (tuple(map(id, params)), tuple(cotangents), pair)
        with self._lock:
            found = self._bound.get(key)
            if found is None:
                found = Bound(self.stage, self.settings, list(params), list(cotangents), pair,
                              self.limits)
                self._bound[key] = found
            self._last = found
        return found

    @property
    def programs(self) -> list[Bound]:
        return list(self._bound.values()) + self._outgrown

    def sizes_of(self, args: Sequence[Any]) -> dict[str, int]:
        """The sizes of a call, by symbol."""
        return {symbol: args[index] if axis is None else args[index].shape[axis]
                for symbol, (index, axis) in self._sizes.items()}

    def example_sizes(self) -> dict[str, int]:
        """The sizes of the example, without a guard of dynamo's on them."""
        found = {}
        for symbol, (index, axis) in self._sizes.items():
            fake = self.plan.inputs[index].fake
            found[symbol] = private.symbols(fake if axis is None else fake.shape[axis])[symbol]
        return found

    def grow(self, sizes: Mapping[str, int]) -> None:
        """See to it that dims that are bounds can have these sizes. A size above its bound takes
        new programs; those before end when their last step is pushed."""
        if all(size <= self.limits.get(symbol, 0) for symbol, size in sizes.items()):
            return
        with self._lock:
            for symbol, size in sizes.items():
                if size > self.limits.get(symbol, 0):
                    self.limits[symbol] = rounded(size)
            # A forward that waits has its program by its lease. Histories are kept by those whose
            # step is not pushed, else by the one that was pushed last.
            old = self.programs
            self._outgrown = [b for b in old if b.scales.dirty] or \
                sorted(old, key=lambda b: b.scales.pushed)[-1:]
            self._bound, self._last = {}, None

    def __call__(self, tensors: Sequence[torch.Tensor], args: Sequence[Any], seed: int | None,
                 watch: int | None) -> Sequence[torch.Tensor]:
        """One call: the results, under autograd. watch: its number, if it is watched."""
        if self._sizes:
            self.grow(self.sizes_of(args))
        params = self.params_of(args)
        if not (self.gradient and torch.is_grad_enabled()):
            return self._evaluate(tensors, params, seed)
        results = StageCall.apply(self, seed, watch, len(tensors), *tensors, *params)
        return results

    def _evaluate(self, tensors: Sequence[torch.Tensor], params: Sequence[torch.Tensor],
                  seed: int | None) -> Sequence[torch.Tensor]:
        """A call without gradients. `eval` has no dropout, and under delayed scaling no scales
        before a first step: there it takes a pair, whose forward can do both."""
        if not self.stage.seed:
            bound = self.bound(params, [], pair=False)
            bound.scales.refresh()
            if not bound.scales.first:
                return bound.evaluate(tensors)
        return self.bound(params, []).forward_alone(tensors, seed)


class StageCall(torch.autograd.Function):
    """The forward and the backward of one stage."""

    @staticmethod
    def forward(ctx: Any, runner: Runner, seed: int | None, watch: int | None, n: int,
                *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        inputs, params = tensors[:n], tensors[n:]
        bound = runner.bound(params, runner.cotangents)
        lease = bound.lease(seed, watch)
        results = bound.forward(lease, inputs)
        ctx.set_materialize_grads(False)
        ctx.mark_non_differentiable(*[r for r, port in zip(results, runner.stage.results)
                                      if not port.gradient])
        # PyTorch itself sees that nobody overwrites the inputs, and frees them with the graph.
        ctx.save_for_backward(*inputs)
        ctx.runner, ctx.lease, ctx.params = runner, lease, params
        return tuple(results)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *cotangents: torch.Tensor | None) -> tuple[torch.Tensor | None, ...]:
        runner, lease, inputs = ctx.runner, ctx.lease, ctx.saved_tensors
        stage, given = runner.stage, dict(zip((p.name for p in runner.stage.results), cotangents))
        wanted = [name for name, value in given.items() if value is not None]
        bound = lease.bound
        if any(name not in bound.cotangents for name in wanted):
            lease = _again(runner, lease, inputs, ctx.params)
            bound = lease.bound
        gradients = bound.backward(lease, inputs, given)
        wants = ctx.needs_input_grad[4:]
        outer: list[torch.Tensor | None] = [gradients.get("d" + port.name) if want else None
                                            for port, want in zip(stage.inputs, wants)]
        outer += [gradients.get(p.name) if want else None
                  for p, want in zip(stage.params, wants[len(stage.inputs):])]
        return (None, None, None, None, *outer)


def _again(runner: Runner, lease: Lease, inputs: Sequence[torch.Tensor],
           params: Sequence[torch.Tensor]) -> Lease:
    """The forward in the program for all cotangents: the same inputs and seed, so the same bits."""
    lease.check()
    runner.cotangents = runner.all_cotangents
    bound = runner.bound(params, runner.all_cotangents)
    again = bound.lease(lease.seed, lease.watch)
    bound.forward(again, inputs)
    return again
