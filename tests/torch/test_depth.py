"""Models as deep as real ones, and tiny otherwise: all linears are FP8, in one program each."""

from __future__ import annotations

import math
import unittest

import torch

import fp8c.torch
import gates
import models
import numerics
from support import BackendTest, compiled, executed, gradients, loss_of, train

LAYERS = 12
DEEP = {"bert": (lambda: models.bert(layers=LAYERS), 6 * LAYERS + 2),  # the head has two linears
        "llama": (lambda: models.llama(layers=LAYERS), 7 * LAYERS + 1)}

# Of the gradient with float64's, at least: see test_every_recipe. The errors that were measured are, in
# this order, 3e-7, 0.015, 0.13, 0.16, 0.09, 0.08 and 0.12.
COSINE = {
    "f32": 1 - 1e-12,
    "bf16": 0.9995,
    "current": 0.97,
    "delayed": 0.95,
    "rowwise": 0.984,
    "block": 0.988,
    "mxfp8": 0.973,
}


class Depth(BackendTest):
    def test_gates(self) -> None:
        """Every linear is FP8 (gates.py); losses are those of eager PyTorch in f32, within what the
        gate `gap` allows to bf16. In the first steps activations grow, and the largest of them are
        beyond an amax of the steps before: so `sqnr` is `current`'s gate alone."""
        for name, (make, linears) in DEEP.items():
            with self.subTest(name):
                torch._dynamo.reset()
                model, inputs = models.make(make)
                eager = train(model, model, inputs, gates.STEPS, lr=1e-3)
                bf16 = gates.measure(make, "bf16")
                for recipe, open_gates in (("delayed", {"sqnr"}), ("current", set())):
                    found = gates.measure(make, recipe)
                    self.assertEqual(found.linears, linears)
                    closed = found.closed(bf16.losses)
                    self.assertLessEqual(set(closed), open_gates, closed)
                    self.assertLess(abs(sum(found.losses) / sum(eager) - 1), 0.002)

    def test_every_recipe(self) -> None:
        """Two steps of training. Nothing is left to eager PyTorch, every linear is of the recipe's
        precision, and at each step the gradient of all parameters has the direction of float64's.

        A relative error r that is at a right angle to the gradient makes the cosine 1 - r^2 / 2. COSINE
        allows about twice the error of the worst of two seeds, two steps and both models."""
        for name, (make, linears) in DEEP.items():
            for recipe, least in COSINE.items():
                with self.subTest(name, recipe=recipe):
                    torch._dynamo.reset()
                    model, inputs = models.make(make)
                    call = compiled(model, recipe)
                    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
                    for _ in range(2):
                        exact, before = numerics.eager(model, inputs, torch.float64)[1], executed(model)
                        optimizer.zero_grad()
                        loss = loss_of(call(**inputs))
                        loss.backward()
                        self.assertTrue(math.isfinite(float(loss.detach())))
                        own = gradients(model)
                        self.assertEqual(set(own), set(exact))
                        a, b = (torch.cat([g[n].double().flatten() for n in exact]) for g in (own, exact))
                        self.assertTrue(bool(a.isfinite().all()))
                        self.assertGreater(float(torch.cosine_similarity(a, b, 0)), least)
                        fp8 = recipe not in ("f32", "bf16")
                        self.assertEqual(executed(model) - before, (3 * linears + 1) * fp8)
                        optimizer.step()
                    report = fp8c.torch.report(model)
                    self.assertEqual(report.counts(), {recipe if not fp8 else "FP8": linears})


if __name__ == "__main__":
    unittest.main()
