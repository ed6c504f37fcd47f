"""Models as deep as real ones, and tiny otherwise: all linears are FP8, in one program each."""

from __future__ import annotations

import unittest

import torch

import fp8c.torch
import gates
import models
from support import BackendTest, compiled, executed, loss_of, train, twin

LAYERS = 12
DEEP = {"bert": (lambda: models.bert(layers=LAYERS), 6 * LAYERS + 2),  # the head has two linears
        "llama": (lambda: models.llama(layers=LAYERS), 7 * LAYERS + 1)}


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

    def test_one_program(self) -> None:
        """Nothing is left to eager PyTorch, under any recipe, and a gradient has eager's direction."""
        for name, (make, linears) in DEEP.items():
            for recipe, least in (("f32", 0.999999), ("delayed", 0.9), ("current", 0.9)):
                with self.subTest(name, recipe=recipe):
                    torch._dynamo.reset()
                    model, inputs = models.make(make)
                    other = twin(model)
                    call = compiled(model, recipe)
                    loss_of(call(**inputs)).backward()
                    loss_of(other(**inputs)).backward()
                    report = fp8c.torch.report(model)
                    self.assertEqual((len(report.linears), report.left_out), (linears, []))
                    fp8 = recipe != "f32"
                    self.assertEqual(executed(model), (3 * linears + 1) * fp8)
                    own, right = (torch.cat([p.grad.flatten() for p in m.parameters()]) for m in (model, other))
                    self.assertGreater(float(torch.cosine_similarity(own, right, 0)), least)


if __name__ == "__main__":
    unittest.main()
