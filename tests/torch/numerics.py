"""Losses and gradients of a model by fp8c, by eager PyTorch, and by eager PyTorch in float64."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

import models
import run_plan


def gradients(model: torch.nn.Module, inputs: dict[str, Any], loss: torch.Tensor) -> dict[str, torch.Tensor]:
    """The gradients of parameters and of inputs that want one."""
    named = dict(model.named_parameters())
    named.update({k: v for k, v in inputs.items() if isinstance(v, torch.Tensor) and v.requires_grad})
    found = torch.autograd.grad(loss, list(named.values()), allow_unused=True)
    return {k: g for k, g in zip(named, found) if g is not None}


def loss_of(result: Any) -> torch.Tensor:
    return result if isinstance(result, torch.Tensor) else result.loss


def eager(
    model: torch.nn.Module, inputs: dict[str, Any], dtype: torch.dtype
) -> tuple[float, dict[str, torch.Tensor]]:
    """Loss and gradients of a copy of the model in another precision."""
    model = copy.deepcopy(model).to(dtype)
    inputs = {
        k: v.detach().to(dtype).requires_grad_(v.requires_grad)
        if isinstance(v, torch.Tensor) and v.is_floating_point()
        else v
        for k, v in inputs.items()
    }
    # PyTorch's fused kernel keeps the log of the softmax's sum in f32 beside the mask's numbers, and
    # loses it where all keys of a query are masked by the least number
    with sdpa_kernel(SDPBackend.MATH):
        loss = loss_of(model(**inputs))
        return float(loss), gradients(model, inputs, loss)


def compare(name: str, recipe: str = "f32", target: str = "cpu") -> list[str]:
    """What is wrong with a model's gradients in f32: ||g - g64|| above twice eager's + 1e-7 ||g64||."""
    model, inputs = models.make(name)
    plan, args = run_plan.captured_call(model, inputs)
    results = run_plan.run(plan, args, recipe, target)
    own = gradients(model, inputs, results[0])
    loss64, exact = eager(model, inputs, torch.float64)
    loss32, single = eager(model, inputs, torch.float32)
    wrong = []
    if abs(float(results[0]) - loss64) > 2 * abs(loss32 - loss64) + 2e-7 * abs(loss64):
        wrong.append(f"{name}: loss {float(results[0])!r}, in float64 {loss64!r}, eager {loss32!r}")
    if set(own) != set(exact):
        wrong.append(f"{name}: gradients of {sorted(set(own) ^ set(exact))} on one side only")
    for key in set(own) & set(exact):
        error = (own[key].double() - exact[key]).norm()
        bound = 2 * (single[key].double() - exact[key]).norm() + 1e-7 * exact[key].norm()
        if not bool(error <= bound):
            wrong.append(
                f"{name}: gradient of {key} is off by {float(error):.3g}, the bound is "
                f"{float(bound):.3g}, its norm {float(exact[key].norm()):.3g}"
            )
    return wrong
