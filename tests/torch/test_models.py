"""Whole models of Hugging Face's classes: what is captured, the text, and the gradients."""

from __future__ import annotations

import os
import subprocess
import tempfile
import unittest
from collections import Counter

import torch

import fp8c.torch
import models
import numerics
import run_plan
from fp8c.torch import capture_module, partition

FP8C = os.path.join(os.path.dirname(__file__), "../../build/fp8c")

LABELS = ["torch._C._nn.pad", "_operator.getitem", "contiguous", "view", "to"]
COSINES = [
    "_operator.getitem",
    "float",
    "expand",
    "to",
    "float",
    "_operator.matmul",
    "transpose",
    "torch.cat",
    "cos",
    "_operator.mul",
    "sin",
    "_operator.mul",
    "to",
    "to",
    "unsqueeze",
    "unsqueeze",
]
VMAP = "torch._functorch.predispatch."  # transformers makes causal masks with padding by vmap
CAUSAL = [
    "to",
    *[VMAP + "_add_batch_dim"] * 3,
    "new_ones",
    "le",
    "to",
    "__and__",
    "torch._ops.aten.index",
    "to",
    "__and__",
    *[VMAP + "_remove_batch_dim"] * 4,
    "_operator.getitem",
]
PADDING = ["_operator.getitem", "expand", "to", "_operator.sub", "to", "masked_fill"]
MEAN = ["unsqueeze", "expand", "float", "sum", "torch.clamp"]
# What PyTorch computes at each call of a model: the ops of the prologue, in any order.
PROLOGUES: dict[str, list[str]] = {
    "mlp": [],
    "gpt2": ["view", *LABELS],
    "gpt2, eager attention": ["view", *["_operator.getitem"] * 2, *LABELS, *["aten.where.self"] * 2],
    "llama": COSINES + LABELS,
    "llama, padding": CAUSAL + COSINES + LABELS,
    "bert": ["_operator.getitem", *PADDING, "view"],
    "minilm": [*["_operator.getitem"] * 2, "expand", *PADDING, *MEAN, *PADDING, *MEAN],
    "vit": ["to", "view"],
}


def check(text: str, *options: str) -> subprocess.CompletedProcess[str]:
    """What `fp8c check` says about a text."""
    with tempfile.NamedTemporaryFile("w", suffix=".f8") as file:
        file.write(text)
        file.flush()
        return subprocess.run([FP8C, "check", file.name, *options], capture_output=True, text=True)


class Capture(unittest.TestCase):
    """Each model is one stage, whose text fp8c takes."""

    def test_one_stage(self) -> None:
        for name in models.MODELS:
            with self.subTest(name):
                model, inputs = models.make(name)
                plan = partition(capture_module(model, (), inputs))
                self.assertEqual([str(op) for op in plan.eager_ops], [])
                self.assertEqual(len(plan.steps), 1)
                linears = {
                    n for n, m in model.named_modules() if type(m).__name__ in ("Linear", "Conv1D", "Conv2d")
                }
                self.assertEqual(
                    {li.place.module for li in plan.linears}, linears, "a linear is missing, or is not one"
                )
                for linear in plan.linears:
                    self.assertTrue(os.path.isfile(linear.place.file) and linear.place.line > 0, linear)
                done = check(plan.stages[0].text)
                self.assertEqual(done.returncode, 0, done.stderr)
                params = dict(model.named_parameters())
                for param in plan.stages[0].params:
                    self.assertIn(param.path, params)
                    self.assertIs(plan.inputs[param.index].tensor, params[param.path])
                if name in PROLOGUES:
                    self.assertEqual(Counter(plan.prologue_ops), Counter(PROLOGUES[name]))

    def test_dynamic(self) -> None:
        """Batch and length as bounds: the text holds for other sizes too."""
        for name in ("mlp", "gpt2", "llama, padding", "bert", "minilm", "vit"):
            with self.subTest(name):
                model, inputs = models.make(name)
                plan = partition(capture_module(model, (), inputs, dynamic=True))
                self.assertEqual([str(op) for op in plan.eager_ops], [])
                stage = plan.stages[0]
                self.assertTrue(stage.bounds)
                done = check(stage.text)
                self.assertEqual(done.returncode, 0, done.stderr)
                smaller = [f"-D{symbol}={bound - 1}" for symbol, bound in stage.bounds.items()]
                done = check(stage.text, *smaller)
                self.assertEqual(done.returncode, 0, done.stderr)

    def test_causal_is_proven(self) -> None:
        """A constant causal mask becomes `causal`; one that depends on padding stays an operand."""
        plan = partition(capture_module(*_call("gpt2")))
        self.assertNotIn("causal = false", plan.stages[0].text)
        self.assertEqual([p.dtype for p in plan.stages[0].inputs], ["i64", "i64", "i64"])
        plan = partition(capture_module(*_call("llama, padding")))
        self.assertIn("causal = false", plan.stages[0].text)
        self.assertIn("bool", [p.dtype for p in plan.stages[0].inputs])

    def test_composites(self) -> None:
        for name, found in (
            ("gpt2", {"gelu (tanh)": 2}),
            ("llama", {"rms_norm": 5}),
            ("llama, eager attention", {"rms_norm": 5, "attention": 2}),
            ("gpt2, eager attention", {"gelu (tanh)": 2, "attention": 2}),
            ("gpt2, dropout in eager attention", {"gelu (tanh)": 2, "attention": 2}),
        ):
            with self.subTest(name):
                self.assertEqual(partition(capture_module(*_call(name))).composites, found)

    def test_grouped_heads(self) -> None:
        """Llama's repeated keys and values are not repeated in the text."""
        text = partition(capture_module(*_call("llama"))).stages[0].text
        self.assertEqual(text.count("kv_heads = 2"), 2)
        self.assertNotIn("broadcast", text)

    def test_similarity_is_no_linear(self) -> None:
        """A product of two activations is `matmul`, so no recipe makes it FP8."""
        plan = partition(capture_module(*_call("minilm")))
        self.assertEqual(plan.stages[0].text.count("= matmul("), 1)

    def test_export_text(self) -> None:
        model, inputs = models.make("gpt2")
        text = fp8c.torch.export_text(model, kwargs=inputs)
        self.assertEqual(check(text).returncode, 0)
        self.assertIn("%input_ids: i64[2, 9]: PyTorch's prologue", text)
        self.assertEqual(
            sum(line.startswith("param ") for line in text.splitlines()), len(list(model.named_parameters()))
        )


def _call(name: str) -> tuple[torch.nn.Module, tuple[()], dict[str, object]]:
    model, inputs = models.make(name)
    return model, (), inputs


class Precisions(unittest.TestCase):
    """bf16 models and autocast: the caller's dtypes stay, and linears read parameters as they are."""

    def test_bf16(self) -> None:
        model, inputs = models.make("gpt2")
        plan, args = run_plan.captured_call(model.bfloat16(), inputs)
        stage = plan.stages[0]
        self.assertEqual(plan.eager_ops, [])
        self.assertEqual([p.dtype for p in stage.results], ["f32", "bf16"])
        self.assertIn("param transformer.wte.weight: bf16", stage.text)
        self.assertEqual(stage.text.count("cast("), 1)  # of the logits
        expected = model(**inputs)
        loss, logits = run_plan.run(plan, args, recipe="bf16")
        self.assertEqual(logits.dtype, torch.bfloat16)
        self.assertLess(abs(float(loss) - float(expected.loss)), 0.02)
        loss.backward()
        self.assertEqual({p.grad.dtype for p in model.parameters()}, {torch.bfloat16})

    def test_autocast(self) -> None:
        """Autocast's casts are the recipe's business; results have the dtypes that it gives."""
        model, inputs = models.make("gpt2")
        with torch.autocast("cpu", torch.bfloat16):
            plan = partition(capture_module(model, (), inputs))
        self.assertEqual(plan.eager_ops, [])
        self.assertEqual([p.dtype for p in plan.stages[0].results], ["f32", "bf16"])
        self.assertEqual(check(plan.stages[0].text).returncode, 0)


class Gradients(unittest.TestCase):
    """Loss and every gradient in f32 beside float64: at most twice eager's error + 1e-7."""

    def test_gradients(self) -> None:
        for name in models.MODELS:
            if "dropout" in name:
                continue
            with self.subTest(name):
                self.assertEqual(numerics.compare(name), [])

    def test_scores(self) -> None:
        """minilm's loss takes differences of scores times 20. So most of every gradient's error
        comes from the rounding of 9 scores, and is a matter of luck. Over the weights of 12 seeds,
        nine gradients in ten are at most twice as far from float64 as eager's."""
        ratios: list[float] = []
        for seed in range(12):
            model, inputs = models.make("minilm", seed)
            plan, args = run_plan.captured_call(model, inputs)
            own = numerics.gradients(model, inputs, run_plan.run(plan, args)[0])
            exact = numerics.eager(model, inputs, torch.float64)[1]
            single = numerics.eager(model, inputs, torch.float32)[1]
            for key, value in exact.items():
                if float(value.norm()) > 1e-12:  # the gradient of a key's bias is 0
                    error = float((own[key].double() - value).norm())
                    ratios.append(error / float((single[key].double() - value).norm()))
        ratios.sort()
        middle, high = ratios[len(ratios) // 2], ratios[len(ratios) * 9 // 10]
        print(f"\n  minilm: errors over eager's, median {middle:.2f}, nine in ten below {high:.2f}")
        self.assertLess(high, 2.0)

    def test_dynamic(self) -> None:
        """A plan made for one batch and length runs a smaller one, with its gradients."""
        model, inputs = models.make("llama, padding")
        plan = partition(capture_module(model, (), inputs, dynamic=True))
        smaller = {k: v[:1, 2:] if isinstance(v, torch.Tensor) else v for k, v in inputs.items()}
        smaller["labels"] = smaller["input_ids"]
        args = run_plan.arguments(model, plan.inputs, smaller)
        loss = run_plan.run(plan, args)[0]
        own = numerics.gradients(model, smaller, loss)
        for key, exact in numerics.eager(model, smaller, torch.float64)[1].items():
            self.assertLess(float((own[key] - exact).norm()), 2e-6 * float(exact.norm()) + 1e-9, key)

    def test_dropout(self) -> None:
        """Another seed is another mask, the same seed the same; the gradient has the mask, too."""
        model, inputs = models.make("mlp, dropout")
        plan, args = run_plan.captured_call(model, inputs)
        self.assertTrue(plan.stages[0].seed)
        losses = [float(run_plan.run(plan, args, seed=seed)[0]) for seed in (1, 1, 2)]
        self.assertEqual(losses[0], losses[1])
        self.assertNotEqual(losses[0], losses[2])


if __name__ == "__main__":
    unittest.main()
