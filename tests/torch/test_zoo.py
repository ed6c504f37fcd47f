"""A tenth of the classes of the zoo, in f32: gradients beside float64, and no linear left out. zoo_table.py
measures all classes; ZOO.md is its last result."""

from __future__ import annotations

import importlib.util
import unittest

import fp8c.torch
import zoo
import zoo_table
from support import BackendTest

# Of each kind one: rotary positions, per-head norms, soft caps with windows and padding, alternating
# attention, an encoder with a decoder, images, and timm.
ROWS = (
    "GPTNeoX",
    "Qwen3",
    "Gemma2, left padding",
    "ModernBERT",
    "T5",
    "ViT",
    "timm vit",
)


def off(own: zoo_table.Gradients, name: str) -> list[str]:
    """The gradients that are off by more than twice eager's error + 1e-7 of their norm. A gradient that is
    0 but for rounding, as a key bias's, may be off by 1e-10 of the norm of all gradients."""
    exact, eager = zoo_table.exact(name), zoo_table.eager(name)
    whole = sum(float(value.norm()) ** 2 for value in exact.values()) ** 0.5
    wrong = []
    for key, value in exact.items():
        error = float((own[key] - value).norm())
        bound = 2 * float((eager[key] - value).norm()) + 1e-7 * max(float(value.norm()), 1e-3 * whole)
        if not error <= bound:
            wrong.append(f"{name}: gradient of {key} is off by {error:.3g}, the bound is {bound:.3g}")
    return wrong


class Zoo(BackendTest):
    def test_gradients(self) -> None:
        for name in ROWS:
            with self.subTest(name):
                if name.startswith("timm") and importlib.util.find_spec("timm") is None:
                    self.skipTest("timm is not installed")
                own, model = zoo_table.compiled(name, "f32")
                report = fp8c.torch.report(model)
                self.assertTrue(report.linears)
                self.assertEqual([str(one) for one in report.left_out], [])
                self.assertEqual(off(own, name), [])

    def test_the_bound_is_one(self) -> None:
        """bf16 does not stay within it."""
        own, _ = zoo_table.compiled("GPTNeoX", "bf16")
        self.assertGreater(len(off(own, "GPTNeoX")), 5)

    def test_every_row_is_made(self) -> None:
        """Each row has a model and inputs, and its weights are the seed's."""
        for name in zoo.MODELS:
            with self.subTest(name):
                if name.startswith("timm") and importlib.util.find_spec("timm") is None:
                    self.skipTest("timm is not installed")
                (model, inputs), (again, _) = zoo.make(name), zoo.make(name)
                self.assertTrue(inputs)
                self.equal(model.state_dict(), again.state_dict(), name)


if __name__ == "__main__":
    unittest.main()
