"""A plan: what a call of a captured model does, in order.

    plan = partition(capture(gm, example_inputs))
    results = plan.run(args, run_stage)

`run` gives each value a name: the arguments of the call, the constants, the prologue's results,
then those of each step. `run_stage(stage, tensors)` runs one program and gives its results, in the
order of `stage.results`. It gets a tensor for each of `stage.inputs`, in that order, each
contiguous and of the port's dtype. It does not get the parameters: they are `plan.inputs[i].tensor` of
`stage.params`, or `args[i]` of this call.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any, Callable, Mapping, Sequence

import torch
import torch.fx

import fp8c

from .. import private
from ..places import Place
from .call import Linear
from .capture import Input, Output
from .text import Shape, size_text

_RESULT = re.compile(r": error: result '(\w+)'")  # an error about one
_TORCH = {
    "f32": torch.float32,
    "bf16": torch.bfloat16,
    "f16": torch.float16,
    "i32": torch.int32,
    "i64": torch.int64,
    "bool": torch.bool,
}


@dataclass
class Port:
    """An input or a result of a stage.

    name: in the text, without "%". value: the name of the value in the plan. gradient: whether a
    gradient is wanted (input), or a cotangent may come (result). crosses: whether the value goes from
    one stage to another because the graph was cut. rounded: whether bf16 has all of its values.
    """

    name: str
    value: str
    dtype: str
    shape: Shape
    gradient: bool = False
    crosses: bool = False
    rounded: bool = False

    @property
    def torch_dtype(self) -> torch.dtype:
        return _TORCH[self.dtype]

    def prepare(self, tensor: torch.Tensor) -> torch.Tensor:
        """The tensor as the port takes it: contiguous, of the port's dtype."""
        if tensor.dtype != self.torch_dtype:
            tensor = tensor.to(self.torch_dtype)
        return tensor.contiguous()


@dataclass
class Param:
    """A parameter of a stage: its name in the text, and the index of the plan's input. stored: it is FP8 codes,
    made under this recipe. scale: it is scales of such codes, and the text does not have it."""

    name: str
    index: int
    path: str
    requires_grad: bool
    stored: str = ""
    scale: bool = False


@dataclass
class Stage:
    """One module of fp8c. `text` is whole: `fp8c check` takes it.

    seed: whether the text has a last input `seed: i32[]`, which needs a new number at each call.
    `inputs` leaves it out. bounds: the dims that are bounds, by name, with their largest values.
    origins: the node that a line of the text is translated from, and the one of a result, by name.
    """

    text: str
    params: list[Param]
    inputs: list[Port]
    results: list[Port]
    linears: list[Linear]
    seed: bool = False
    bounds: dict[str, int] = field(default_factory=dict)
    origins: dict[int | str, Any] = field(default_factory=dict, repr=False)

    def origin(self, error: fp8c.Error) -> Any:
        """The node of the graph that an error about the text is about; None: it has no such place."""
        if error.place is None:
            return None
        named = _RESULT.search(error.message)
        return self.origins.get(named[1] if named else error.place[1])

    @property
    def gradients_of(self) -> list[str]:
        """The inputs whose gradients are wanted: the compile option of that name."""
        return [port.name for port in self.inputs if port.gradient]

    @property
    def frozen(self) -> list[str]:
        """The parameters whose gradients are not wanted: the compile option of that name."""
        return [param.name for param in self.params if not param.requires_grad and not param.scale]

    @property
    def stored(self) -> dict[str, str]:
        """The parameters that are FP8 codes, each with its recipe: the compile option `stored_weights`."""
        return {param.name: param.stored for param in self.params if param.stored}


@dataclass
class Eager:
    """Ops that fp8c lacks. PyTorch runs them, with gradients where `grad` is set."""

    module: torch.fx.GraphModule
    inputs: list[str]
    results: list[str]
    ops: list["EagerOp"]
    grad: bool = True


@dataclass(frozen=True)
class EagerOp:
    """An op that runs in PyTorch, with the reason and the place: what the report shows."""

    op: str
    reason: str
    place: Place

    def __str__(self) -> str:
        return f"{self.op}: {self.reason}, at {self.place}"


@dataclass
class Prologue:
    """What PyTorch computes first, without gradients: masks, positions, tables of cosines."""

    module: torch.fx.GraphModule
    inputs: list[str]
    results: list[str]


@dataclass
class Plan:
    """All of a captured model. See the head of this file.

    composites: how often each was recognised. kept: why blocks were not cut apart, if they were to be.
    """

    inputs: list[Input]
    constants: dict[str, torch.Tensor]
    prologue: list[Prologue]
    prologue_ops: list[str]
    steps: list[Stage | Eager]
    outputs: list[Output]
    composites: dict[str, int] = field(default_factory=dict)
    kept: list[str] = field(default_factory=list)

    @property
    def stages(self) -> list[Stage]:
        return [step for step in self.steps if isinstance(step, Stage)]

    @property
    def eager_ops(self) -> list[EagerOp]:
        """What runs in PyTorch between stages. Empty is what one wants."""
        return [op for step in self.steps if isinstance(step, Eager) for op in step.ops]

    @property
    def linears(self) -> list[Linear]:
        return [linear for stage in self.stages for linear in stage.linears]

    def sizes(self, args: Sequence[Any]) -> dict[str, int]:
        """The values that dynamic sizes have in a call, by symbol: what `Stage.bounds` bounds."""
        found: dict[str, int] = {}
        for one in self.inputs:
            pairs = [(one.fake, args[one.index])]
            if isinstance(one.fake, torch.Tensor):
                pairs = list(zip(one.fake.shape, args[one.index].shape))
            for size, value in pairs:
                expr = private.expression(size)
                if not isinstance(expr, int) and expr.is_Symbol:
                    found[str(expr)] = int(value)
        return found

    def prepare(self, args: Sequence[Any]) -> dict[str, Any]:
        """The values before the first step: arguments, constants and the prologue's results."""
        values: dict[str, Any] = {i.name: args[i.index] for i in self.inputs}
        values.update(self.constants)
        with torch.no_grad(), private.no_autocast():
            for part in self.prologue:
                results = part.module.forward(*[values[name] for name in part.inputs])
                values.update(zip(part.results, results, strict=True))
        return values

    def run(
        self,
        args: Sequence[Any],
        run_stage: Callable[[Stage, list[torch.Tensor]], Sequence[torch.Tensor]],
    ) -> list[Any]:
        """One call."""
        values = self.prepare(args)
        for step in self.steps:
            if isinstance(step, Stage):
                tensors = [port.prepare(values[port.value]) for port in step.inputs]
                for port in step.inputs:
                    if port.crosses:  # no other step reads it
                        del values[port.value]
                results = run_stage(step, tensors)
                del tensors
                values.update(zip((port.value for port in step.results), results, strict=True))
                continue
            with torch.set_grad_enabled(step.grad and torch.is_grad_enabled()):
                results = step.module(*(values[name] for name in step.inputs))
            values.update(zip(step.results, results, strict=True))
        return [self._result(out, values) for out in self.outputs]

    def _result(self, out: Output, values: Mapping[str, Any]) -> Any:
        if out.name is None:
            return out.value
        value = values[out.name]
        if out.name in self.constants and isinstance(value, torch.Tensor):
            value = value.clone()  # the caller may overwrite what it gets
        if isinstance(value, torch.Tensor) and out.dtype is not None and value.dtype != out.dtype:
            return value.to(out.dtype)
        return value


def port_text(port: Port) -> str:
    """A port as a function's head has it."""
    return f"%{port.name}: {port.dtype}[{', '.join(size_text(s) for s in port.shape)}]"
