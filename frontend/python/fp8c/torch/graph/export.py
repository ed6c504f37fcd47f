"""export_text: a PyTorch model as a module of fp8c, in text."""

from __future__ import annotations

import re
from typing import Any, Mapping, Sequence

from ..places import Unsupported
from .capture import Input, capture_module
from .partition import partition
from .plan import Plan
from .text import size_text


def export_text(
    model: Any,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    name: str = "model",
    dynamic: bool = False,
) -> str:
    """The module of a model at these arguments, which `fp8c check` and `fp8c compile` take.

    Parameters keep the names of `named_parameters()`, tied ones once; their values are not in the
    text. What PyTorch computes before the model's own layers, such as masks and positions, becomes
    inputs, and a comment at the head says how each is made. Unsupported: the model needs an op that
    fp8c lacks.
    """
    if isinstance(args, Mapping):
        args, kwargs = (), args
    plan = partition(capture_module(model, tuple(args), kwargs, dynamic), name)
    if plan.eager_ops:
        first = plan.eager_ops[0]
        raise Unsupported(first.op, first.reason, first.place)
    if len(plan.stages) != 1:
        raise Unsupported("export_text", "the model has nothing that fp8c computes")
    return _comment(plan) + plan.stages[0].text


def input_name(one: Input) -> str:
    """An argument's own name: `x` for dynamo's "L['x']"."""
    found = re.search(r"\['([^']*)'\]$", one.path)
    return found.group(1) if found else one.path


def _comment(plan: Plan) -> str:
    """What feeds each input of the text."""
    kinds = {
        i.name: f"the {'buffer' if i.kind == 'buffer' else 'argument'} {input_name(i)}"
        for i in plan.inputs
    }
    stage = plan.stages[0]
    lines = ["# Exported from PyTorch by fp8c.torch.export_text."]
    for port in stage.inputs:
        shape = ", ".join(size_text(s) for s in port.shape)
        origin = kinds.get(port.value)
        if origin is None:
            origin = (
                "a constant of the model" if port.value in plan.constants else "PyTorch's prologue"
            )
        lines.append(f"#   %{port.name}: {port.dtype}[{shape}]: {origin}")
    if stage.seed:
        lines.append("#   %seed: a new number for each call: dropout")
    return "\n".join(lines) + "\n"
