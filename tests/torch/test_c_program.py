"""The backend beside the same program without PyTorch: the same text, options, parameters, inputs and
seed give the same bits, on the CPU and on a GPU. The other program has memory and a stream of its own,
and gets its values through host memory."""

from __future__ import annotations

import os
import sys
import unittest
import unittest.mock
from typing import Any

import torch
from torch import nn

import fp8c
import fp8c.torch
from fp8c.torch.run import bound as bound_module
from support import BackendTest, compiled, programs

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../bench"))
from gpu_torch import Block  # noqa: E402

STEPS = 3
NUMBERS = {"f32": torch.float32, "bf16": torch.bfloat16, "i32": torch.int32, "i64": torch.int64}
OPTIONS = ("recipe", "pair", "cotangents", "gradients_of", "frozen", "memory_share", "attention", "target", "device",
           "threads")


class Model(nn.Module):
    """Two blocks with dropout between them, and a head of an odd width."""

    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Block(width, width // 32, gelu="tanh") for _ in range(2))
        self.dropout, self.head = nn.Dropout(0.1), nn.Linear(width, 47)

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = self.dropout(block(x))
        return nn.functional.cross_entropy(self.head(x).view(-1, 47), y.view(-1))


class Other:
    """The same program, made of the same text by the same options, without PyTorch."""

    def __init__(self, text: str, options: dict[str, Any]):
        self.program = fp8c.Module.parse(text).compile(**{k: v for k, v in options.items() if k in OPTIONS})
        self.program.initialize(0)
        self.saved = self.program.saved()

    def step(self, params: dict[str, torch.Tensor], inputs: list[torch.Tensor], first: bool,
             stepped: bool) -> dict[str, torch.Tensor]:
        """Forward and backward: the loss and the gradients, by the names of ports. stepped: an optimizer
        has made these parameters."""
        program = self.program
        for name, value in params.items():
            program.write(name, value.contiguous())
        if program.has("update_scales" if stepped else "prepare"):
            program.run("update_scales" if stepped else "prepare")
        given = program.inputs("forward")
        out = [p for p in program.outputs("forward") if not p.name.startswith("saved.")]
        results = [torch.zeros(p.type.shape, dtype=NUMBERS[p.type.dtype]) for p in out]
        program.forward(self.saved, inputs, results, first=first)
        by_name = dict(zip((p.name for p in given), inputs))
        read = [p for p in program.inputs("backward") if not p.name.startswith("saved.")]
        cotangents = [torch.ones(p.type.shape) for p in read if p.name not in by_name]
        outs = program.outputs("backward")
        gradients = [torch.zeros(p.type.shape, dtype=NUMBERS[p.type.dtype]) for p in outs]
        program.backward(self.saved, cotangents + [by_name[p.name] for p in read if p.name in by_name], gradients)
        program.wait()
        return {"loss": results[0], **{p.name: g for p, g in zip(outs, gradients)}}


class CProgram(BackendTest):
    device = "cpu"

    def test_bits(self) -> None:
        for recipe in ("f32", "bf16", "current", "delayed", "block"):
            with self.subTest(recipe):
                torch._dynamo.reset()
                self.compare(recipe)

    def test_can_fail(self) -> None:
        """Another seed of dropout is seen."""
        with self.assertRaisesRegex(AssertionError, "f32, step 0: .* differs"):
            self.compare("f32", 1)

    def compare(self, recipe: str, other_seed: int = 0) -> None:
        torch.manual_seed(5)
        model = Model().to(self.device)
        x, y = torch.randn(3, 32, 64, device=self.device), torch.randint(47, (3, 32), device=self.device)
        compile_, made = fp8c.Module.compile, []

        def noting(module: fp8c.Module, **options: Any) -> fp8c.Program:
            made.append(options)
            return compile_(module, **options)

        seen: list[Any] = []
        forward = bound_module.Bound.forward

        def watching(bound: Any, lease: Any, inputs: Any) -> Any:
            bound.scales.refresh()
            params = {p.name: t.detach().cpu().clone() for p, t in zip(bound.stage.params, bound.params)}
            given = [t.detach().cpu().clone() for t in inputs]
            given += [torch.tensor(lease.seed + other_seed, dtype=torch.int32)] if bound.stage.seed else []
            seen.append((bound, params, given, bound.scales.first))
            return forward(bound, lease, inputs)

        with unittest.mock.patch.object(fp8c.Module, "compile", noting), \
                unittest.mock.patch.object(bound_module.Bound, "forward", watching):
            call = compiled(model, recipe)
            optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
            other = None
            for step in range(STEPS):
                optimizer.zero_grad()
                loss = call(x, y)
                loss.backward()
                bound, params, given, first = seen[-1]
                self.assertTrue(bound.stage.seed)
                other = other or Other(bound.stage.text, made[0])
                want = other.step(params, given, first, step > 0)
                ours = {p.name: t.grad.cpu() for p, t in zip(bound.stage.params, bound.params)}
                self.assertEqual(set(ours), set(want) - {"loss"})
                self.equal({"loss": loss.detach().cpu(), **ours}, want, f"{recipe}, step {step}")
                optimizer.step()
        self.assertEqual(len(programs(model)), 1)


@unittest.skipUnless(torch.cuda.is_available(), "this machine has no GPU")
class CProgramOnGpu(CProgram):
    device = "cuda"


if __name__ == "__main__":
    unittest.main()
