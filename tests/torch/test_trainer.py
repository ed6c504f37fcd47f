"""Hugging Face's Trainer, with Accelerate: what it takes of a backend, and a training through it."""

from __future__ import annotations

import os
import tempfile
import unittest
import unittest.mock
from typing import Any

import accelerate
import torch
import transformers

import fp8c.torch
import models
from support import BackendTest, executed, twin

STEPS = 12


class Losses(transformers.TrainerCallback):
    """Keeps the loss of each step."""

    def __init__(self) -> None:
        self.found: list[float] = []

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **rest: Any) -> None:
        if "loss" in (logs or {}):
            self.found.append(logs["loss"])


def rows(count: int = 16, length: int = 9) -> list[dict[str, torch.Tensor]]:
    """Sequences that count upwards, so that there is something to learn."""
    starts = torch.arange(count)[:, None] * 3
    tokens = 3 + (starts + torch.arange(length)) % 50
    return [{"input_ids": row, "labels": row} for row in tokens]


class Trainer(BackendTest):
    def setUp(self) -> None:
        """TrainingArguments tells Accelerate of the backend by the environment."""
        super().setUp()
        environment = unittest.mock.patch.dict(os.environ)
        environment.start()
        self.addCleanup(environment.stop)

    def train(self, model: torch.nn.Module, **options: Any) -> list[float]:
        """The losses of STEPS steps of two micro-batches each."""
        model.config.use_cache = False
        losses = Losses()
        with tempfile.TemporaryDirectory() as folder:
            arguments = transformers.TrainingArguments(
                output_dir=folder,
                max_steps=STEPS,
                per_device_train_batch_size=4,
                gradient_accumulation_steps=2,
                learning_rate=1e-2,
                lr_scheduler_type="constant",
                logging_steps=1,
                logging_nan_inf_filter=False,
                save_strategy="no",
                report_to=[],
                use_cpu=True,
                disable_tqdm=True,
                seed=1,
                **options,
            )
            trainer = transformers.Trainer(
                model, arguments, train_dataset=rows(), callbacks=[losses]
            )
            trainer.remove_callback(transformers.PrinterCallback)
            trainer.train()
        self.assertEqual(len(losses.found), STEPS)
        return losses.found

    def test_losses(self) -> None:
        """compile_for_trainer trains in FP8, and as eager PyTorch does in f32 up to FP8's rounding;
        with recipe f32 the losses are eager's."""
        model, _ = models.make("gpt2")
        eager, single = twin(model), twin(model)
        fp8c.torch.compile_for_trainer(model, recipe="delayed", strict=True)
        fp8c.torch.compile_for_trainer(single, recipe="f32", strict=True)
        own, exact, expected = (self.train(one) for one in (model, single, eager))
        self.assertLess(expected[-1], 0.7 * expected[0])
        for step in range(STEPS):
            self.assertAlmostEqual(exact[step], expected[step], delta=1e-3)
            self.assertAlmostEqual(own[step], expected[step], delta=0.02 * expected[step])
        self.assertNotEqual(own, exact)
        report = fp8c.torch.report(model)
        self.assertEqual(report.counts(), {"FP8": 9})
        self.assertEqual(report.breaks, [])
        # a step has two micro-batches of 27 GEMMs, and one that is computed again in backward
        self.assertEqual(executed(model), STEPS * 2 * 28)
        self.assertEqual(fp8c.torch.report(single).counts(), {"f32": 9})

    def test_backends_names(self) -> None:
        """torch_compile_backend takes the names that Accelerate knows, and no other: neither by
        TrainingArguments nor by Accelerator. This is why compile_for_trainer is there."""
        torch._dynamo.register_backend(fp8c.torch.fp8c_backend, "fp8c-of-a-test")
        self.assertIn("fp8c-of-a-test", torch._dynamo.list_backends())
        for name in ("fp8c", "fp8c-of-a-test"):
            model, _ = models.make("gpt2")
            with self.subTest(name), self.assertRaisesRegex(ValueError, name.upper()):
                self.train(model, torch_compile_backend=name)
            with self.subTest(name), self.assertRaisesRegex(ValueError, name.upper()):
                accelerate.Accelerator(cpu=True, dynamo_backend=name)
        self.assertNotIn("FP8C", accelerate.utils.DynamoBackend.__members__)


if __name__ == "__main__":
    unittest.main()
