"""fp8c.torch.statistics: gates on every executed operand, broken recipes that they catch, and that
watching changes no bit."""

from __future__ import annotations

import math
import unittest
from typing import Any

import torch

import fp8c.torch
import gates
import models
from fp8c.torch.run.scales import STATES
from support import (BackendTest, batch_of, compiled, executed, gradients, loss_of, programs, regression,
                     train)

RECIPES = ("current", "delayed", "block")


def small() -> models.ModelAndInputs:
    return models.gpt2(layers=1)


class Gates(BackendTest):
    def test_gates(self) -> None:
        """Under each recipe, all linear GEMMs of the models are planned and executed in FP8, from
        operands that are well scaled, and the losses stay by bf16's without being equal."""
        for name in ("gpt2", "llama, padding", "bert"):
            bf16 = gates.measure(name, "bf16").losses
            for recipe in RECIPES:
                with self.subTest(name, recipe=recipe):
                    self.assertEqual(gates.measure(name, recipe).closed(bf16), {})

    def test_gates_catch_broken_recipes(self) -> None:
        """Each way to break a recipe is caught by the gates that can see it."""
        bf16 = gates.measure(small, "bf16").losses
        for broken, caught in ((gates.no_scaling, {"sqnr", "used"}), (gates.too_small, {"used"}),
                               (gates.skipped, {"count", "cover", "gap"}), (gates.not_multiplied, {"count"})):
            for recipe in RECIPES:
                with self.subTest(broken.__name__, recipe=recipe):
                    self.assertEqual(set(broken(small, recipe).closed(bf16)), caught)


class Watching(BackendTest):
    def run_steps(self, name: str, recipe: str, **options: Any) -> dict[str, torch.Tensor]:
        """The losses, the last gradients, the parameters, scales and amaxes of four steps."""
        torch._dynamo.reset()
        model, inputs = models.make(name)
        call = compiled(model, recipe, **options)
        found = {"losses": torch.tensor(train(call, model, inputs, 4, lr=1e-3))}
        found |= {f"grad {k}": v for k, v in gradients(model).items()}
        found |= {k: v.detach().clone() for k, v in model.named_parameters()}
        for one in programs(model):
            found |= {k: one.read(k) for k in STATES if k in one.bound.program.variables}
        found["executed"] = torch.tensor(executed(model))
        return found

    def test_same_bits(self) -> None:
        """Steps of which some are watched have the bits of those of which none is."""
        for name, recipe, memory in (("gpt2", "current", 0.0), ("gpt2, dropout", "delayed", 0.0),
                                     ("gpt2", "delayed", 0.5), ("llama, padding", "block", 0.0)):
            with self.subTest(name, recipe=recipe, memory=memory):
                plain = self.run_steps(name, recipe, memory=memory)
                self.equal(plain, self.run_steps(name, recipe, memory=memory, statistics=2), recipe)

    def test_every_so_many_calls(self) -> None:
        """Calls 0, 3 and 6 are watched, and figures are there once their backward has run."""
        model, inputs = regression()
        call = compiled(model, "current", statistics=3)
        self.assertIn("no call was watched", str(fp8c.torch.statistics(model)))
        loss = call(**inputs)
        self.assertEqual(len(fp8c.torch.statistics(model)), 0)
        loss.backward()
        seen = [next(iter(fp8c.torch.statistics(model))).call]
        for _ in range(6):
            with torch.no_grad():  # no backward can follow, so it does not count
                call(**inputs)
            call(**inputs).backward()
            seen.append(next(iter(fp8c.torch.statistics(model))).call)
        self.assertEqual(seen, [0, 0, 0, 3, 3, 3, 6])
        for option in (0, False):
            torch._dynamo.reset()
            model, inputs = regression()
            compiled(model, "current", statistics=option)(**inputs).backward()
            self.assertEqual(len(fp8c.torch.statistics(model)), 0)

    def test_first_steps_of_delayed(self) -> None:
        """The first forward of delayed scaling scales by the operands' own amaxes, and is watched."""
        model, inputs = regression()
        call = compiled(model, "delayed", statistics=True)
        call(**inputs).backward()
        first = fp8c.torch.statistics(model)
        self.assertEqual([(o.module, o.operand) for o in first],
                         [(module, operand) for module in ("up", "down") for operand in ("x", "w", "dy")])
        for one in first:
            self.assertAlmostEqual(one.scale / one.scale_wanted, 1, places=5)

    def test_figures(self) -> None:
        """Of a linear's x and w, beside PyTorch's own arithmetic on the same tensors."""
        torch.manual_seed(1)
        model = torch.nn.Linear(40, 24)
        x = torch.randn(16, 40)
        compiled(model, "current", statistics=True)(x).square().sum().backward()
        for operand, value in (("x", x), ("w", model.weight.detach())):
            one = next(o for o in fp8c.torch.statistics(model).of("") if o.operand == operand)
            scale = 448 / value.abs().max()
            back = (value * scale).to(torch.float8_e4m3fn).float() / scale
            sqnr = 10 * math.log10(float(value.square().sum() / (back - value).square().sum()))
            self.assertEqual(one.amax, float(value.abs().max()))
            self.assertAlmostEqual(one.scale, float(scale), delta=1e-5 * float(scale))
            self.assertAlmostEqual(one.sqnr, sqnr, places=2)
            self.assertEqual((one.used, one.underflow, one.overflow, one.nonfinite), (1.0, 0.0, 0.0, 0))
            self.assertEqual((one.elements, one.granularity), (value.numel(), "tensor"))

    def test_which_tensor_which_layer(self) -> None:
        """A weight that loses its small elements shows as that weight of that layer. Linears that
        read one value have it each."""
        model, inputs = models.make("llama, padding")
        with torch.no_grad():
            spoiled = model.get_parameter("model.layers.1.mlp.up_proj.weight")
            spoiled[0, 0] = 1e4
        call = compiled(model, "current", statistics=True)
        loss_of(call(**inputs)).backward()
        found = fp8c.torch.statistics(model)
        lost = [(o.module, o.operand) for o in found if o.underflow > 0.5]
        self.assertEqual(lost, [("model.layers.1.mlp.up_proj", "w")])
        attention = "model.layers.0.self_attn."
        shared = [next(o.amax for o in found.of(attention + name) if o.operand == "x")
                  for name in ("q_proj", "k_proj", "v_proj")]
        self.assertEqual(len(set(shared)), 1)
        self.assertRegex(str(found), r"model\.layers\.1\.mlp\.up_proj +w +fprop, dgrad +f8e4m3 +tensor")

    def test_linears_that_are_not_fp8(self) -> None:
        model, inputs = regression()
        call = compiled(model, "current", statistics=True, rules=['"down" = bf16'])
        call(**inputs).backward()
        found = fp8c.torch.statistics(model)
        self.assertEqual({o.format for o in found.of("down")}, {""})
        self.assertTrue(all(math.isnan(o.sqnr) and o.amax > 0 for o in found.of("down")))
        self.assertEqual({o.format for o in found.of("up")}, {"f8e4m3", "f8e5m2"})
        self.assertIn("not FP8", str(found))

    def test_another_shape(self) -> None:
        """A recompile for another batch watches on, and the figures are the newest program's."""
        model, inputs = regression()
        call = compiled(model, "delayed", statistics=True)
        for batch in (6, 9, 12):
            call(**batch_of(batch)).backward()
            x = next(o for o in fp8c.torch.statistics(model).of("up") if o.operand == "x")
            self.assertEqual(x.elements, batch * 13)

    def test_gradients_of_all_results(self) -> None:
        """A loss and logits with gradients: the forward that runs again is watched as well."""
        model, inputs = models.make(small)
        out = compiled(model, "current", statistics=True)(**inputs)
        (out.loss + out.logits.square().mean()).backward()
        found = fp8c.torch.statistics(model)
        self.assertEqual(len({(o.module, o.operand) for o in found}), 3 * 5)


if __name__ == "__main__":
    unittest.main()
