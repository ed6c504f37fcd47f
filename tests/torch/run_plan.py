"""Runs a plan with the C binding, with autograd through its stages. For tests alone."""

from __future__ import annotations

import inspect
from typing import Any, Sequence

import numpy
import torch

import fp8c
from fp8c.torch.graph.capture import Input, capture_module
from fp8c.torch.graph.partition import partition
from fp8c.torch.graph.plan import Plan, Stage

_DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16}


class Pair:
    """A stage compiled as a pair, with the parameters written into it."""

    def __init__(
        self, stage: Stage, plan: Plan, args: Sequence[Any], recipe: str, target: str, seed: int
    ) -> None:
        self.stage = stage
        module = fp8c.Module.parse(stage.text)
        self.program = module.compile(
            pair=True, recipe=recipe, target=target, gradients_of=",".join(stage.gradients_of) or None
        )
        for symbol, value in plan.sizes(args).items():
            if symbol in stage.bounds:
                self.program.set_dim(symbol, value)
        self.program.initialize(1)
        self.params = [args[p.index] for p in stage.params]
        for param, tensor in zip(stage.params, self.params):
            self.program.bind_variable(param.name, tensor.detach())
        self.seed = numpy.array(seed, dtype=numpy.int32)
        self.given: list[Any] = []

    def forward(self, tensors: Sequence[torch.Tensor]) -> tuple[torch.Tensor, ...]:
        """The results; what backward needs is kept in `saved`."""
        program, stage = self.program, self.stage
        self.given = [t.detach() for t in tensors]
        inputs = self.given + ([self.seed] if stage.seed else [])
        results = [
            torch.empty(tuple(real.type[1]), dtype=p.torch_dtype)
            for p, real in zip(stage.results, program.outputs("forward"))
        ]
        self.results = results
        self.saved = program.saved()
        program.forward(self.saved, inputs, results, first=True)
        return tuple(results)

    def backward(self, cotangents: Sequence[torch.Tensor | None]) -> dict[str, torch.Tensor]:
        """Gradients by the names of ports and parameters."""
        program, stage = self.program, self.stage
        known = {p.name: t for p, t in zip(stage.inputs, self.given)}
        known["seed"] = self.seed
        for port, result, cotangent in zip(stage.results, self.results, cotangents):
            known["d" + port.name] = torch.zeros_like(result) if cotangent is None else cotangent.contiguous()
        inputs = [known[p.name] for p in program.inputs("backward") if not p.name.startswith("saved.")]
        ports = program.outputs("backward")
        outputs = [torch.empty(tuple(p.type[1]), dtype=_DTYPES[p.type[0]]) for p in ports]
        program.backward(self.saved, inputs, outputs)
        return {p.name: t for p, t in zip(ports, outputs)}


class _Run(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, pair: Pair, count: int, *tensors: torch.Tensor) -> Any:
        ctx.pair, ctx.count = pair, count
        results = pair.forward(tensors[:count])
        ctx.mark_non_differentiable(*[r for r, p in zip(results, pair.stage.results) if not p.gradient])
        return results

    @staticmethod
    def backward(ctx: Any, *cotangents: Any) -> Any:
        found = ctx.pair.backward(cotangents)
        inputs = [found.get("d" + p.name) if p.gradient else None for p in ctx.pair.stage.inputs]
        return (None, None, *inputs, *[found.get(p.name) for p in ctx.pair.stage.params])


def run(
    plan: Plan, args: Sequence[Any], recipe: str = "f32", target: str = "cpu", seed: int = 7
) -> list[Any]:
    """One call of a plan, whose results autograd can go back through."""

    def run_stage(stage: Stage, tensors: list[torch.Tensor]) -> Sequence[torch.Tensor]:
        pair = Pair(stage, plan, args, recipe, target, seed)
        return _Run.apply(pair, len(tensors), *tensors, *pair.params)

    return plan.run(args, run_stage)


def captured_call(model: torch.nn.Module, inputs: dict[str, Any]) -> tuple[Plan, list[Any]]:
    """The plan of a model, and the arguments of one call of it."""
    captured = capture_module(model, (), inputs)
    args = arguments(model, captured.inputs, inputs)
    return partition(captured), args


def arguments(model: torch.nn.Module, wanted: Sequence[Input], inputs: dict[str, Any]) -> list[Any]:
    """What a call gives a captured function: parameters, and the caller's own by their names."""
    bound = dict(inspect.signature(model.forward).bind_partial(**inputs).arguments)
    bound.update(bound.pop("kwargs", {}))

    def named(path: str) -> Any:
        return next(v for k, v in bound.items() if f"['{k}']" in path)

    found = []
    for one in wanted:
        if one.kind == "size":  # "L['x'].size()[0]"
            found.append(named(one.path).shape[int(one.path.rpartition("[")[2][:-1])])
        else:
            found.append(one.tensor if one.tensor is not None else named(one.path))
    return found
