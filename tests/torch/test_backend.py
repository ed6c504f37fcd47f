"""Models under torch.compile(backend="fp8c"): losses, gradients, what ran, recipes and their gates."""

from __future__ import annotations

import itertools
import unittest
from typing import Any

import torch

import fp8c.torch
import models
import numerics
from fp8c.torch.run.scales import HISTORY, SCALE
from support import (BackendTest, NothingHeavy, compiled, executed, gradients, loss_of, programs,
                     train, twin, watched)

MODELS = ("mlp", "gpt2", "llama, padding", "bert", "minilm", "vit")
FP8 = ("current", "delayed", "rowwise", "block", "mxfp8")


class Gradients(BackendTest):
    def test_models_in_f32(self) -> None:
        """Each gradient is at most twice as far from float64 as eager PyTorch's, or within
        `numerics.zeros`; nothing heavy runs in PyTorch; every linear is compiled."""
        for name in MODELS:
            with self.subTest(name):
                torch._dynamo.reset()
                model, inputs = models.make(name)
                exact = numerics.eager(model, inputs, torch.float64)[1]
                single = numerics.eager(model, inputs, torch.float32)[1]
                zero = numerics.zeros(model, inputs)
                loss = loss_of(watched(model)(**inputs))
                with NothingHeavy():
                    own = numerics.gradients(model, inputs, loss)
                self.assertEqual(set(own), set(exact))
                for key, value in own.items():
                    error = float((value.double() - exact[key]).norm())
                    bound = zero.get(key, float(2 * (single[key].double() - exact[key]).norm()
                                                + 1e-7 * exact[key].norm()))
                    self.assertLessEqual(error, bound, f"{name}: {key}")
                self.assertEqual(fp8c.torch.report(model).left_out, [])

    def test_gradients_that_are_0(self) -> None:
        """Over the weights of three seeds f32 keeps the bound of `numerics.zeros`, and bf16 does not."""
        for name, seed in itertools.product(("bert", "minilm", "vit"), range(3)):
            with self.subTest(name, seed=seed):
                model, inputs = models.make(name, seed)
                zero = numerics.zeros(model, inputs)
                self.assertEqual(len(zero), 2)
                for recipe, within in (("f32", True), ("bf16", False)):
                    torch._dynamo.reset()
                    own = twin(model)
                    loss_of(compiled(own, recipe)(**inputs)).backward()
                    for key, value in gradients(own).items():
                        if key in zero:
                            self.assertEqual(float(value.norm()) <= zero[key], within, f"{recipe} {key}")

    def test_training_in_f32(self) -> None:
        """20 steps of AdamW end where eager PyTorch's do."""
        model, inputs = models.make("gpt2")
        eager = twin(model)
        own = train(compiled(model), model, inputs, 20)
        other = train(eager, eager, inputs, 20)
        for a, b in zip(own, other):
            self.assertAlmostEqual(a, b, delta=2e-4 * abs(b))

    def test_logits_have_gradients(self) -> None:
        """A gradient of the logits too, beside that of the loss: the forward runs again for it."""
        model, inputs = models.make("gpt2")
        eager = twin(model)
        found = []
        for call in (compiled(model), eager):
            out = call(**inputs)
            (out.loss + out.logits.square().mean()).backward()
        for (name, p), q in zip(model.named_parameters(), eager.parameters()):
            found.append(float((p.grad - q.grad).norm() / q.grad.norm()))
        self.assertLess(max(found), 1e-5)

    def test_second_backward_is_refused(self) -> None:
        model, inputs = models.make("mlp")
        loss = compiled(model)(**inputs)
        loss.backward(retain_graph=True)
        with self.assertRaisesRegex(RuntimeError, "a second time"):
            loss.backward()

    def test_dropout_follows_manual_seed(self) -> None:
        model, inputs = models.make("mlp, dropout")
        call = compiled(model)
        call(**inputs)
        found = []
        for seed in (1, 1, 2):
            torch.manual_seed(seed)
            found.append([float(call(**inputs).detach()) for _ in range(2)])
        self.assertEqual(found[0], found[1])
        self.assertNotEqual(found[0], found[2])
        self.assertNotEqual(found[0][0], found[0][1])


def sqnr(value: torch.Tensor, exact: torch.Tensor) -> float:
    """dB of a gradient beside its error."""
    error = (value.double() - exact.double()).norm()
    return float(20 * torch.log10(exact.double().norm() / error.clamp_min(1e-30)))


class Recipes(BackendTest):
    """What each recipe does to gpt2: GEMMs counted, gradients between two gates, scales right.

    LOW: FP8 whose scales are right stays above. HIGH: nothing that was rounded to FP8 gets there;
    bf16 does. A scale that is 256 times too small hardly shows in the norm of an error, since FP8
    has exponents: so under delayed scaling the largest amax of each history, scaled, must be within
    a factor of 2 of the format's largest value.
    """

    LOW, HIGH = 16.0, 34.0
    LARGEST = {"x": 448.0, "w": 448.0, "dy": 57344.0}  # of the formats of the operands

    def measure(self, recipe: str, spoil: Any = None) -> tuple[list[float], list[float]]:
        """SQNR of the gradients of linears' weights, after three steps, against f32; and amaxes,
        scaled, as shares of the format's largest value."""
        torch._dynamo.reset()
        model, inputs = models.make("gpt2")
        call = compiled(model, recipe)
        train(call, model, inputs, 3, lr=1e-3)
        exact = numerics.eager(model, inputs, torch.float32)[1]
        model.zero_grad()
        if spoil is not None:
            one = programs(model)[0]
            one.refresh()
            spoil(one)
        loss_of(call(**inputs)).backward()
        own = gradients(model)
        one, shares = programs(model)[0], []
        if one.elements:
            largest = torch.tensor([self.LARGEST[e.rpartition(".")[2]] for e in one.elements])
            shares = (one.read(HISTORY).amax(1) * one.read(SCALE) / largest).tolist()
        return [sqnr(own[n], exact[n]) for n in own if n.endswith("weight") and "c_" in n], shares

    def passes(self, found: tuple[list[float], list[float]]) -> bool:
        gradients, shares = found
        return (min(gradients) > self.LOW and max(gradients) < self.HIGH
                and all(0.49 < share < 1.01 for share in shares))

    def test_gates(self) -> None:
        for recipe in FP8:
            with self.subTest(recipe):
                found = self.measure(recipe)
                self.assertTrue(self.passes(found), found)

    def test_gates_catch_broken_recipes(self) -> None:
        def ones(one: Any) -> None:
            one.write(SCALE, torch.ones_like(one.read(SCALE)))

        def small(one: Any) -> None:
            one.write(SCALE, one.read(SCALE) / 256)

        for name, recipe, spoil in (("no scaling", "delayed", ones), ("scale / 256", "delayed", small),
                                    ("quantization skipped", "bf16", None)):
            with self.subTest(name):
                found = self.measure(recipe, spoil)
                self.assertFalse(self.passes(found), found)

    def test_training(self) -> None:
        """Every GEMM of a linear is planned and executed in FP8, and the loss stays by bf16's."""
        model, inputs = models.make("gpt2")
        base = twin(model)
        bf16 = train(compiled(base, "bf16"), base, inputs, 20, lr=3e-3)
        self.assertEqual(executed(base), 0)
        for recipe in ("current", "delayed", "block"):
            with self.subTest(recipe):
                torch._dynamo.reset()
                own = twin(model)
                losses = train(compiled(own, recipe), own, inputs, 20, lr=3e-3)
                report = fp8c.torch.report(own)
                self.assertEqual(report.counts(), {"FP8": 9})
                self.assertEqual(report.fp8_gemms_planned, 27)
                # 27 GEMMs, and the logits once more in backward, which are never saved
                self.assertEqual(report.fp8_gemms_executed, 20 * 28)
                self.assertNotEqual(losses, bf16)
                for a, b in zip(losses, bf16):
                    self.assertAlmostEqual(a, b, delta=0.02 * abs(b))

    def test_rules(self) -> None:
        model, inputs = models.make("mlp")
        call = compiled(model, "current", rules=['"layers.3" = bf16', '"none.*" = bf16'])
        call(**inputs).backward()
        report = fp8c.torch.report(model)
        self.assertEqual([x.kind for x in report.linears], ["FP8", "bf16"])
        self.assertEqual(report.unused_rules, ['"none.*" = bf16'])

    def test_wrong_options(self) -> None:
        model, inputs = models.make("mlp")
        rules = ['"layers.3" = current']
        for options, word in (
            ({"recipe": "fp4"}, "recipe"),
            ({"speed": 1}, "speed"),
            ({"rules": "x"}, "rules"),
            ({"memory": 2}, "memory"),
            ({"statistics": -1}, "statistics"),
            ({"statistics": "x"}, "statistics"),
            ({"recipe": "bf16", "rules": rules}, "recipe bf16 overrides all rules"),
            ({"recipe": "f32", "rules": rules}, "recipe f32 overrides all rules"),
        ):
            torch._dynamo.reset()
            call = torch.compile(model, backend=fp8c.torch.fp8c_backend, options=options)
            with self.subTest(options), self.assertRaisesRegex(Exception, word):
                call(**inputs)


if __name__ == "__main__":
    unittest.main()
