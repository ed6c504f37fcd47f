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
from typing import Any, Sequence

import torch
from torch.autograd.function import once_differentiable

import fp8c

from ..graph.dims import Dims, Sizes
from ..graph.plan import Plan, Port, Stage
from ..settings import Settings
from .bound import Bound, Lease

SEEDS = 2**31 - 1  # a seed of dropouts is an i32
PROGRAMS = 4  # kept at most for the same parameters and cotangents, each for other sizes


def new_seed() -> int:
    """A seed of PyTorch's generator, which torch.manual_seed sets."""
    return int(torch.randint(SEEDS, ()).item())


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
        self.dims = Dims(plan, stage)
        self._limits: dict[str, int] = {}  # the largest sizes so far, rounded
        self._rounds = True
        self._bound: dict[tuple, list[Bound]] = {}
        self._outgrown: list[Bound] = []
        self._last: Bound | None = None
        self._lock = threading.Lock()

    def params_of(self, args: Sequence[Any]) -> list[torch.Tensor]:
        return [args[p.index] for p in self.stage.params]

    def bound(self, params: Sequence[torch.Tensor], cotangents: Sequence[str], sizes: Sizes,
              pair: bool = True) -> Bound:
        """The program of these parameters and cotangents, which can have these sizes; compiled when
        it is first asked for."""
        last = self._last
        if last is not None and last.cotangents == cotangents and last.pair == pair \
                and all(map(operator.is_, last.params, params)) \
                and self.dims.fit(sizes, last.limits):
            return last
        key = (tuple(map(id, params)), tuple(cotangents), pair)
        with self._lock:
            programs = self._bound.setdefault(key, [])
            found = next((b for b in programs if self.dims.fit(sizes, b.limits)), None)
            if found is None:
                found = self._compile(list(params), list(cotangents), sizes, pair)
                gone = [b for b in programs if self.dims.fit(b.limits, found.limits)]
                gone = gone or programs[: max(len(programs) + 1 - PROGRAMS, 0)]
                programs[:] = [b for b in programs if b not in gone] + [found]
                self._retire(gone)
            self._last = found
        return found

    def _compile(self, params: list[torch.Tensor], cotangents: list[str], sizes: Sizes,
                 pair: bool) -> Bound:
        """A new program. Its limits may have to agree: two symbols may be the size of one axis, such as
        the rows of logits and the number of labels. Rounding each by itself can break that, and the
        compile fails. Then this call's own sizes are the limits, now and for all later programs."""
        def made(limits: Sizes) -> Bound:
            return Bound(self.stage, self.settings, params, cotangents, pair, self.dims, limits)

        if self._rounds:
            self._limits = self.dims.grown(self._limits, sizes)
            try:
                return made(self._limits)
            except fp8c.InputError:
                if self._limits == sizes:
                    raise
        found = made(sizes)
        self._rounds = False
        return found

    def _retire(self, gone: Sequence[Bound]) -> None:
        """Let go of programs. A forward that waits for its backward holds its program by its lease. Kept
        are the programs with a step that is not pushed yet, else the one pushed last, for their
        histories; and the one watched last, for its figures."""
        old = [*self._outgrown, *gone]
        scaled = [b for b in old if b.scales.elements]
        kept = [b for b in scaled if b.scales.dirty] or \
            sorted(scaled, key=lambda b: b.scales.pushed)[-1:]
        watched = sorted((b for b in old if b.figures), key=lambda b: b.watched_at)[-1:]
        self._outgrown = kept + [b for b in watched if b not in kept]

    @property
    def programs(self) -> list[Bound]:
        return [b for programs in self._bound.values() for b in programs] + self._outgrown

    def __call__(self, tensors: Sequence[torch.Tensor], args: Sequence[Any], seed: int | None,
                 watch: int | None) -> Sequence[torch.Tensor]:
        """One call: the results, under autograd. watch: its number, if it is watched."""
        sizes = self.dims.sizes(args)
        params = self.params_of(args)
        if not (self.gradient and torch.is_grad_enabled()):
            return self._evaluate(tensors, params, sizes, seed)
        results = StageCall.apply(self, seed, watch, sizes, len(tensors), *tensors, *params)
        return results

    def _evaluate(self, tensors: Sequence[torch.Tensor], params: Sequence[torch.Tensor],
                  sizes: Sizes, seed: int | None) -> Sequence[torch.Tensor]:
        """A call without gradients. `eval` has no dropout, and under delayed scaling no scales
        before a first step: there it takes a pair, whose forward can do both."""
        if not self.stage.seed:
            bound = self.bound(params, [], sizes, pair=False)
            bound.scales.refresh()
            if not bound.scales.first:
                return bound.evaluate(tensors)
        return self.bound(params, [], sizes).forward_alone(tensors, seed)


class StageCall(torch.autograd.Function):
    """The forward and the backward of one stage."""

    @staticmethod
    def forward(ctx: Any, runner: Runner, seed: int | None, watch: int | None,
                sizes: Sizes, n: int, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        inputs, params = tensors[:n], tensors[n:]
        bound = runner.bound(params, runner.cotangents, sizes)
        lease = bound.lease(seed, watch)
        results = bound.forward(lease, inputs)
        ctx.set_materialize_grads(False)
        ctx.mark_non_differentiable(*[r for r, port in zip(results, runner.stage.results)
                                      if not port.gradient])
        # PyTorch itself sees that nobody overwrites the inputs, and frees them with the graph.
        again = bound.cotangents != runner.all_cotangents  # then `_again` may need all inputs
        kept = bound.reread(inputs) | ({p.name for p in runner.stage.inputs} if again else set())
        ctx.save_for_backward(*[_saved(port, x, port.name in kept)
                                for port, x in zip(runner.stage.inputs, inputs)])
        ctx.runner, ctx.lease, ctx.params, ctx.sizes = runner, lease, params, sizes
        return tuple(results)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *cotangents: torch.Tensor | None) -> tuple[torch.Tensor | None, ...]:
        runner, lease = ctx.runner, ctx.lease
        inputs = [x.to(port.torch_dtype) for port, x in zip(runner.stage.inputs, ctx.saved_tensors)]
        stage, given = runner.stage, dict(zip((p.name for p in runner.stage.results), cotangents))
        wanted = [name for name, value in given.items() if value is not None]
        bound = lease.bound
        if any(name not in bound.cotangents for name in wanted):
            lease = _again(runner, lease, inputs, ctx.params, ctx.sizes)
            bound = lease.bound
        gradients = bound.backward(lease, inputs, given)
        wants = ctx.needs_input_grad[5:]
        outer: list[torch.Tensor | None] = [gradients.get("d" + port.name) if want else None
                                            for port, want in zip(stage.inputs, wants)]
        outer += [gradients.get(p.name) if want else None
                  for p, want in zip(stage.params, wants[len(stage.inputs):])]
        return (None, None, None, None, None, *outer)


def _saved(port: Port, x: torch.Tensor, kept: bool) -> torch.Tensor:
    """An input as a backward's inputs keep it. What comes from the stage before, because the graph was
    cut, is kept in bf16 if that is exact, and not at all if no backward reads it: then a tensor
    without memory stands for it."""
    if not port.crosses:
        return x
    if not kept:
        return x.new_empty(()).expand(x.shape)
    return x.bfloat16() if port.rounded else x


def _again(runner: Runner, lease: Lease, inputs: Sequence[torch.Tensor],
           params: Sequence[torch.Tensor], sizes: Sizes) -> Lease:
    """The forward in the program for all cotangents: the same inputs and seed, so the same bits."""
    lease.check()
    runner.cotangents = runner.all_cotangents
    bound = runner.bound(params, runner.all_cotangents, sizes)
    again = bound.lease(lease.seed, lease.watch)
    bound.forward(again, inputs)
    return again
