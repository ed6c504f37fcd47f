"""Attention under masks of large finite numbers, beside PyTorch's math in float64.

A query whose keys are all masked by one such number, as those of left padding are, gives every key
the same weight: beside the number a score is lost in rounding. With the least number of a dtype it
is so in every precision. With -1e9 it is so in f32, and not in f64: there the right gradient is
that of the softmax, in f64, of the scores that f32 rounds.
"""

from __future__ import annotations

import unittest
from typing import Any, Callable

import torch

import models
import numerics
import run_plan
import support

LEAST = torch.finfo(torch.float32).min


def four_axes(number: float) -> Callable[..., torch.Tensor]:
    """Left padding and causality as numbers to add. A padded position sees nothing else."""

    def mask(batch: int, length: int) -> torch.Tensor:
        seen = torch.ones(length, length, dtype=torch.bool).tril() & models.padding(batch, length).bool()[:, None, None]
        return torch.zeros(seen.shape).masked_fill(~seen, number)

    return mask


def llama(mask_of: Callable[..., torch.Tensor], **options: Any) -> models.ModelAndInputs:
    return models.make(lambda: models.llama(mask_of, length=11, **options))


def bert(**options: Any) -> models.ModelAndInputs:
    """Its last sequence is only padding."""
    return models.make(lambda: models.bert(mask_of=models.emptied, **options))


def off(
    own: dict[str, torch.Tensor], single: dict[str, torch.Tensor], exact: dict[str, torch.Tensor]
) -> list[str]:
    """Gradients that are further from float64's than twice eager f32's + 2e-7 of their norm; those
    that are 0, as a key's bias has, further than 1e-7 of the largest."""
    assert set(own) == set(exact)
    largest = max(float(g.norm()) for g in exact.values())
    wrong = []
    for key, value in exact.items():
        error, norm = float((own[key].double() - value).norm()), float(value.norm())
        bound = 2 * float((single[key].double() - value).norm()) + 2e-7 * norm
        if not error <= (bound if norm > 1e-12 * largest else 1e-7 * largest):
            wrong.append(f"{key} is off by {error:.3g}, the bound is {bound:.3g}, its norm {norm:.3g}")
    return wrong


class Masks(support.BackendTest):
    """Left-padded batches: at real depth, with attention as a call and written out."""

    def near(self, case: models.ModelAndInputs, exact: models.ModelAndInputs, masked: int) -> None:
        model, inputs = case
        plan, args = run_plan.captured_call(model, inputs)
        lines = [line for line in plan.stages[0].text.splitlines() if " = attention(" in line]
        self.assertEqual(sum(line.split(")")[0].count(",") > 2 for line in lines), masked, lines)
        loss = run_plan.run(plan, args)[0]
        loss64, gradients64 = numerics.eager(*exact, torch.float64)
        single = numerics.eager(*exact, torch.float32)[1]
        self.assertLess(abs(float(loss) - loss64), 1e-5)
        self.assertEqual(off(numerics.gradients(model, inputs, loss), single, gradients64), [])

    def test_llama(self) -> None:
        for layers in (2, 12):
            with self.subTest(layers):
                case = llama(four_axes(LEAST), layers=layers)
                self.near(case, case, layers)

    def test_llama_eager(self) -> None:
        """Its own masks. In float64 its softmax is f32's, so the other form stands for it."""
        self.near(
            llama(models.padding, attn_implementation="eager"), llama(four_axes(LEAST)), 2
        )

    def test_bert(self) -> None:
        for layers in (2, 12):
            for how in ("sdpa", "eager"):
                with self.subTest(layers, how=how):
                    case = bert(layers=layers, attn_implementation=how)
                    self.near(case, case, layers)

    def test_numbers(self) -> None:
        """Rows of one number, of two, of numbers above 0, and of those that bf16 and f16 end with."""
        generator = torch.Generator().manual_seed(3)

        def randn(*shape: int) -> torch.Tensor:
            return torch.randn(*shape, generator=generator)

        numbers = (-1e9, 1e9, LEAST, torch.finfo(torch.bfloat16).min, torch.finfo(torch.float16).min, -3e4)
        for length in (1, 33):
            q, k, v, dy = (randn(2, 4, length, 8) for _ in range(4))
            mask = torch.zeros(2, 1, length, length)
            for i in range(2 * length):
                row = mask[i // length, 0, i % length]
                row[:] = numbers[i % len(numbers)]
                if i // len(numbers) % 2:
                    row[length // 2 :] = 0

            def own(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, m: torch.Tensor) -> torch.Tensor:
                return torch.nn.functional.scaled_dot_product_attention(q, k, v, m)

            q32, k32, v32 = (x.clone().requires_grad_() for x in (q, k, v))
            y = support.compiled(own)(q32, k32, v32, mask)
            y.backward(dy)
            q64, k64, v64 = (x.double().requires_grad_() for x in (q, k, v))
            scores = q64 @ k64.transpose(2, 3) / 8**0.5 + mask.double()
            rounded = scores + (scores.float().double() - scores).detach()
            y64 = torch.softmax(rounded, 3) @ v64
            y64.backward(dy.double())
            # a score near 65504 may round to either neighbour, 2^-8 away, whose product with f32's
            # own error of a score is the chance of it: such elements are off by up to a part in 2^7
            for name, a, b in (("y", y, y64), ("dq", q32.grad, q64.grad), ("dk", k32.grad, k64.grad),
                               ("dv", v32.grad, v64.grad)):
                error = float((a.detach().double() - b.detach()).norm() / (b.detach().norm() + 1e-30))
                self.assertLess(error, 1e-3 if length > 1 else 1e-6, f"{length}: {name}")


if __name__ == "__main__":
    unittest.main()
