"""Losses and gradients of a model by fp8c, by eager PyTorch, and by eager PyTorch in float64."""

from __future__ import annotations

import copy
from typing import Any
from unittest import mock

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


def widened(model: torch.nn.Module, inputs: dict[str, Any]) -> tuple[torch.nn.Module, dict[str, Any]]:
    """A copy of the model and of its inputs in float64."""
    return copy.deepcopy(model).double(), {
        k: v.detach().double() if isinstance(v, torch.Tensor) and v.is_floating_point() else v
        for k, v in inputs.items()
    }


def zeros(model: torch.nn.Module, inputs: dict[str, Any]) -> dict[str, float]:
    """Bounds of the norms of gradients that are truly 0: those of the biases of `key` linears, under f32.

    A key's bias adds the same number to all scores of a query, which softmax does not see. So the
    gradient, the sum of dk over n rows (a row is a key of a sequence), is 0, and f32's is rounding alone:
    a bound that takes its size from the gradient, or from what eager PyTorch's rounding happens to leave,
    says nothing. The sum of dk vanishes for any q, k, v and do, so only what is rounded after them counts:

        ds_ij = p_ij (dp_ij - delta_i)      dk_j = scale sum_i ds_ij q_i      db = sum_j dk_j

    with dp_ij = do_i v_j, delta_i = do_i o_i, u = 2^-24, and T keys and queries of D numbers. As
    codegen/reference/judge.c derives, p_ij is off by a factor of at most

        w = 2 (e + 2 u (A + 1)) + (T + 4) u,  e = (D + 3) u A,  A >= |score|, |logsumexp|

    and dk_j by (w + (2 D + 8 + T) u) of its sum of magnitudes: D for each of dp and delta, T for the sum
    over i. The sum over rows adds n u. The magnitudes of dp_ij and of delta_i are |do_i| |v_j| and
    sum_j p_ij |do_i| |v_j|, number by number, so those of all terms of db are together

        m = 2 scale sum_i |q_i| sum_j p_ij sum_d |do_id| |v_jd|

    over the queries of all heads and sequences. The bound is (w + (2 D + 8 + T + n) u) ||m||. It is taken
    at float64's q, k, v and do: f32's differ by a few u of their size, which changes it by as much.
    AssertionError: float64's own gradient is larger than the same bound with u = 2^-53, so it is not 0."""
    model, inputs = widened(model, inputs)
    calls: dict[str, list[Any]] = {}
    attention, current = torch.nn.functional.scaled_dot_product_attention, [""]

    def kept(q: Any, k: Any, v: Any, attn_mask: Any = None, **options: Any) -> torch.Tensor:
        out = attention(q, k, v, attn_mask=attn_mask, **options)
        out.retain_grad()
        calls.setdefault(current[0], []).append((q, k, v, attn_mask, options, out))
        return out

    named = {n.rpartition(".")[0]: n for n, one in model.named_modules()
             if n.endswith("key") and isinstance(one, torch.nn.Linear) and one.bias is not None}
    for name, key in named.items():
        model.get_submodule(name).register_forward_pre_hook(
            lambda *_, key=key: current.__setitem__(0, key + ".bias"))
    with sdpa_kernel(SDPBackend.MATH), mock.patch.object(
            torch.nn.functional, "scaled_dot_product_attention", kept):
        loss_of(model(**inputs)).backward()
    found = {}
    for name in (key + ".bias" for key in named.values()):
        with torch.no_grad():
            relative, magnitudes = _rounded(calls[name])
        norm = float(magnitudes.norm())
        assert float(model.get_parameter(name).grad.norm()) <= relative * norm * 2.0 ** -53, name
        found[name] = relative * norm * 2.0 ** -24
    return found


def _rounded(calls: list[Any]) -> tuple[float, torch.Tensor]:
    """Of the attentions that read a key linear: the bound's factor in units of u, and m for each element
    of the bias."""
    worst, rows, total = 0.0, 0, torch.zeros(())
    for q, k, v, mask, options, out in calls:
        assert not options.get("is_causal") and not options.get("dropout_p"), "not needed so far"
        batch, heads, queries, size = q.shape
        keys, scale = k.shape[2], options.get("scale") or size ** -0.5
        scores = scale * q @ k.transpose(2, 3)
        if mask is not None:
            scores = scores.masked_fill(~mask, -torch.inf) if mask.dtype == torch.bool else scores + mask
        p, longest = scores.softmax(-1), max(queries, keys)
        largest = max(float(scale * q.norm(dim=-1).max() * k.norm(dim=-1).max()),
                      float(scores.logsumexp(-1).abs().max()))
        score = (size + 3) * largest
        weight = 2 * (score + 2 * (largest + 1)) + longest + 4
        worst = max(worst, weight + 2 * size + 8 + longest)
        rows += batch * keys
        spread = (p * (out.grad.abs() @ v.abs().transpose(2, 3))).sum(-1, keepdim=True)
        terms = (2 * scale * q.abs() * spread).sum((0, 2))  # [heads, size]
        total = total + terms.flatten()
    return worst + rows, total


def compare(name: str, recipe: str = "f32", target: str = "cpu") -> list[str]:
    """What is wrong with a model's gradients in f32: ||g - g64|| above twice eager's + 1e-7 ||g64||, or
    above the bound of `zeros`."""
    model, inputs = models.make(name)
    plan, args = run_plan.captured_call(model, inputs)
    results = run_plan.run(plan, args, recipe, target)
    own = gradients(model, inputs, results[0])
    zero = zeros(model, inputs)
    loss64, exact = eager(model, inputs, torch.float64)
    loss32, single = eager(model, inputs, torch.float32)
    wrong = []
    if abs(float(results[0]) - loss64) > 2 * abs(loss32 - loss64) + 2e-7 * abs(loss64):
        wrong.append(f"{name}: loss {float(results[0])!r}, in float64 {loss64!r}, eager {loss32!r}")
    if set(own) != set(exact):
        wrong.append(f"{name}: gradients of {sorted(set(own) ^ set(exact))} on one side only")
    for key in set(own) & set(exact):
        error = (own[key].double() - exact[key]).norm()
        bound = zero.get(key, 2 * (single[key].double() - exact[key]).norm() + 1e-7 * exact[key].norm())
        if not bool(error <= bound):
            wrong.append(
                f"{name}: gradient of {key} is off by {float(error):.3g}, the bound is "
                f"{float(bound):.3g}, its norm {float(exact[key].norm()):.3g}"
            )
    return wrong
