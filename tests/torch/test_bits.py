"""The same bits: the CPU's beside the reference interpreter's, and those of a training with dropout
however its forward is recomputed."""

from __future__ import annotations

import contextlib
import unittest
import unittest.mock
from typing import Any, Iterator

import torch
import torch.nn.functional as F

import fp8c
import fp8c.torch
import models
from support import BackendTest, compiled, gradients, loss_of, train, twin

DROPOUT = ("gpt2, dropout", "gpt2, dropout in eager attention", "bert, dropout")


@contextlib.contextmanager
def on(target: str) -> Iterator[list[str]]:
    """Programs are compiled for a target; -> the targets that they were compiled for."""
    plain, found = fp8c.Module.compile, []

    def compile_for(module: fp8c.Module, **options: Any) -> Any:
        found.append(target)
        return plain(module, **{**options, "target": target})

    with unittest.mock.patch.object(fp8c.Module, "compile", compile_for):
        yield found


def bits(tensor: torch.Tensor) -> torch.Tensor:
    """The bits of a float tensor, so that zeros have signs and NaNs are equal."""
    return (
        tensor.detach().contiguous().view({4: torch.int32, 2: torch.int16}[tensor.element_size()])
    )


class NoProducts(torch.nn.Module):
    """Everything but linears and attention: norms, activations, dropout, softmax, losses."""

    def __init__(self, dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        self.table = torch.nn.Embedding(23, 19, padding_idx=2)
        self.norms = torch.nn.ModuleList(torch.nn.LayerNorm(19) for _ in range(2))
        self.rms = torch.nn.RMSNorm(19, eps=1e-6)
        self.drop = torch.nn.Dropout(0.3)
        self.scale = torch.nn.Parameter(torch.randn(19))
        self.to(dtype)

    def forward(self, ids: torch.Tensor, x: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        h = self.norms[0](self.table(ids) + x)
        h = h + self.drop(F.gelu(h) * F.silu(self.rms(h)))
        h = h + F.gelu(h, approximate="tanh") * torch.sigmoid(h * self.scale)
        h = self.drop(F.relu(self.norms[1](h))) + torch.tanh(h)
        p = F.softmax(h, -1)
        spread = (p * torch.log(p + 1e-3)).sum(-1).mean() + torch.exp(-h.square()).mean()
        return (
            F.cross_entropy(h.flatten(0, 1).float(), labels.flatten(), ignore_index=-100) + spread
        )


class Reference(BackendTest):
    """DESIGN.md, "Codegen": the CPU's bits are the reference interpreter's, but for GEMM and
    attention."""

    def run_on(self, target: str, recipe: str, dtype: torch.dtype) -> dict[str, torch.Tensor]:
        """Two steps: losses and gradients."""
        torch._dynamo.reset()
        torch.manual_seed(1)
        model = NoProducts(dtype)
        ids, labels = torch.randint(23, (3, 7)), torch.randint(19, (3, 7))
        labels[0, :3] = -100
        found = {}
        with on(target) as targets:
            call = compiled(model, recipe)
            for step in range(2):
                x = torch.randn(3, 7, 19).mul_(3).to(dtype).requires_grad_()
                loss = call(ids, x, labels)
                loss.backward()
                found |= {f"loss {step}": loss, f"dx {step}": x.grad}
            self.assertEqual(set(targets), {target})
        report = fp8c.torch.report(model)
        self.assertEqual((report.eager_ops, report.breaks), ([], []))
        return found | gradients(model)

    def test_training(self) -> None:
        for recipe, dtype in (
            ("f32", torch.float32),
            ("bf16", torch.float32),
            ("bf16", torch.bfloat16),
        ):
            with self.subTest(recipe, dtype=dtype):
                cpu, reference = (self.run_on(t, recipe, dtype) for t in ("cpu", "reference"))
                self.assertEqual(set(cpu), set(reference))
                for name, value in cpu.items():
                    self.assertTrue(value.isfinite().all() and value.any(), name)
                    self.assertTrue(torch.equal(bits(value), bits(reference[name])), name)


class Dropout(BackendTest):
    """Models with dropout in training mode."""

    def gradients_of(self, name: str, seed: int, **options: Any) -> dict[str, torch.Tensor]:
        torch._dynamo.reset()
        model, inputs = models.make(name)
        call = compiled(model, "current", **options)
        torch.manual_seed(seed)
        loss = loss_of(call(**inputs))
        loss.backward()
        return {"loss": loss.detach(), **gradients(model)}

    def test_same_seed(self) -> None:
        """The seed of PyTorch's generator gives the bits; another one gives others."""
        for name in DROPOUT:
            with self.subTest(name):
                first = self.gradients_of(name, 5)
                self.equal(first, self.gradients_of(name, 5), name)
                self.assertNotEqual(float(first["loss"]), float(self.gradients_of(name, 6)["loss"]))

    def trained(
        self, name: str, checkpoint: bool = False, **options: Any
    ) -> dict[str, torch.Tensor]:
        """The parameters after three steps."""
        torch._dynamo.reset()
        model, inputs = models.make(name)
        if checkpoint:
            model.gradient_checkpointing_enable()
        call = compiled(model, "delayed", **options)
        torch.manual_seed(5)
        train(call, model, inputs, 3, lr=1e-3)
        return {n: p.detach().clone() for n, p in model.named_parameters()}

    def test_recomputation(self) -> None:
        """A mask is computed again with the same bits: in PyTorch's checkpoints, and within a
        budget."""
        for name in ("gpt2, dropout", "bert, dropout"):
            plain = self.trained(name)
            for what, options in (
                ("checkpointing", {"checkpoint": True}),
                ("a fifth", {"memory": 0.2}),
                ("both", {"checkpoint": True, "memory": 0.3}),
            ):
                with self.subTest(name, what=what):
                    self.equal(plain, self.trained(name, **options), what)

    def test_eval(self) -> None:
        """`eval` has no dropout: no seed changes a bit, and the loss is eager PyTorch's. Training
        mode has it, also under no_grad."""
        for name in DROPOUT:
            with self.subTest(name), torch.no_grad():
                torch._dynamo.reset()
                model, inputs = models.make(name)
                eager, call = twin(model).eval(), compiled(model)

                def losses() -> list[float]:
                    found = []
                    for seed in (1, 2, 1):
                        torch.manual_seed(seed)
                        found.append(float(loss_of(call(**inputs))))
                    return found

                one, other, again = losses()
                self.assertEqual(one, again)
                self.assertNotEqual(one, other)
                model.eval()
                found = losses()
                self.assertEqual(len(set(found)), 1)
                expected = float(loss_of(eager(**inputs)))
                self.assertAlmostEqual(found[0], expected, delta=1e-5)
                self.assertGreater(abs(one - expected), 1e-4)


if __name__ == "__main__":
    unittest.main()
