"""The backend on a GPU: gradients, bits, streams, waits, addresses, memory. Without a GPU only what
stands for one is tested: which stream is named, and which tensors are copied."""

from __future__ import annotations

import copy
import os
import sys
import unittest
from types import SimpleNamespace
from unittest import mock

import torch
import torch.nn.functional as F
from torch import nn

import fp8c.torch
from fp8c.torch.bound import Bound
from fp8c.torch.plan import at_vectors
from support import compiled, gradients

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../bench"))
from gpu_torch import Block  # noqa: E402


class Model(nn.Module):
    def __init__(self, layers: int = 2, width: int = 128, outputs: int = 48):
        super().__init__()
        self.blocks = nn.ModuleList(Block(width, width // 32, gelu="none") for _ in range(layers))
        self.head = nn.Linear(width, outputs)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def problem(layers: int = 2, batch: int = 4, length: int = 64, width: int = 128) -> tuple[Model, torch.Tensor]:
    torch.manual_seed(5)
    return Model(layers, width).cuda(), torch.randn(batch, length, width, device="cuda")


def pass_of(call, model: nn.Module, x: torch.Tensor) -> dict[str, torch.Tensor]:
    model.zero_grad()
    y = call(x)
    y.square().mean().backward()
    return {"y": y.detach().clone(), **gradients(model)}


def worst(ours: dict[str, torch.Tensor], theirs: dict[str, torch.Tensor]) -> float:
    return max(float((ours[n].double() - theirs[n].double()).norm() / theirs[n].double().norm()) for n in theirs)


class StandIn(unittest.TestCase):
    def test_named_stream(self) -> None:
        """PyTorch's default stream, which it writes as 0, is CU_STREAM_LEGACY to fp8c."""
        named = []
        bound = Bound.__new__(Bound)
        bound.device, bound.program = torch.device("cuda", 0), SimpleNamespace(set_stream=named.append)
        for stream in (0, 4096):
            with mock.patch("torch.cuda.current_stream", return_value=SimpleNamespace(cuda_stream=stream)):
                bound.follow_stream()
        self.assertEqual(named, [1, 4096])

    def test_copied(self) -> None:
        for address, on_gpu, copied in ((64, True, False), (72, True, True), (72, False, False)):
            tensor = SimpleNamespace(is_cuda=on_gpu, data_ptr=lambda: address, clone=lambda: "a copy")
            self.assertEqual(at_vectors(tensor) == "a copy", copied, (address, on_gpu))


@unittest.skipUnless(torch.cuda.is_available(), "this machine has no GPU")
class Gpu(unittest.TestCase):
    def setUp(self) -> None:
        torch._dynamo.reset()

    def test_gradients(self) -> None:
        """Against PyTorch in double. f32 GEMMs round each product's sum; under the other recipes an
        operand keeps 8, 4 or 3 bits, and errors of two blocks add up."""
        for recipe, bound in (("f32", 1e-5), ("bf16", 2e-2), ("current", 0.2), ("delayed", 0.2), ("rowwise", 0.2),
                              ("block", 0.2)):
            with self.subTest(recipe):
                torch._dynamo.reset()
                model, x = problem()
                double = copy.deepcopy(model).double()
                theirs = pass_of(double, double, x.double())
                error = worst(pass_of(compiled(model, recipe), model, x), theirs)
                print(f"{recipe}: relative error of the worst gradient {error:.2e}")
                self.assertLess(error, bound)
                if recipe not in ("f32", "bf16"):
                    self.assertIn("linears: 9 FP8", str(fp8c.torch.report(model)))

    def test_streams(self) -> None:
        """On a stream of the caller's and on the default one the bits are the same, while kernels
        that are enqueued before the call still make its input."""
        model, x = problem()
        call = compiled(model, "current")
        pass_of(call, model, x)
        want = pass_of(call, model, x)
        heavy = torch.randn(4096, 4096, device="cuda")
        for stream in (torch.cuda.default_stream(), torch.cuda.Stream()):
            for _ in range(5):
                torch.cuda.synchronize()
                with torch.cuda.stream(stream):
                    late = torch.zeros_like(x)
                    made = heavy
                    for _ in range(10):
                        made = made @ heavy  # milliseconds
                    late.copy_(x)
                    got = pass_of(call, model, late)
                    late.fill_(7.0)  # after the call, on its stream
                torch.cuda.synchronize()
                for name, value in want.items():
                    self.assertTrue(torch.equal(got[name], value), f"{name} on {stream}")

    def test_no_wait(self) -> None:
        """A forward, a backward and a step of the optimizer return while the GPU still works."""
        for recipe in ("bf16", "current", "delayed"):
            with self.subTest(recipe):
                torch._dynamo.reset()
                model, x = problem(layers=4, batch=8, length=1024, width=1024)
                call = compiled(model, recipe)
                optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
                for _ in range(3):
                    pass_of(call, model, x)
                    optimizer.step()
                heavy = torch.randn(8192, 8192, device="cuda")
                waits = []
                for what in ("forward", "backward", "step"):
                    torch.cuda.synchronize()
                    for _ in range(20):
                        made = heavy @ heavy  # 20 of them take at least 20 ms
                    if what == "forward":
                        model.zero_grad()
                        loss = call(x).square().mean()
                    elif what == "backward":
                        loss.backward()
                    else:
                        optimizer.step()
                    end = torch.cuda.Event()
                    end.record()
                    if end.query():
                        waits.append(what)
                del made
                self.assertEqual(waits, [])

    def test_addresses(self) -> None:
        """An input at an address that is no multiple of 16 is copied."""
        model, x = problem()
        call = compiled(model, "bf16")
        want = pass_of(call, model, x)
        memory = torch.empty(x.numel() + 8, device="cuda")
        for offset in (1, 2, 3):
            odd = memory[offset:offset + x.numel()].view_as(x)
            odd.copy_(x)
            got = pass_of(call, model, odd)
            for name, value in want.items():
                self.assertTrue(torch.equal(got[name], value), name)

    def test_training(self) -> None:
        """Losses fall under each recipe, and memory is flat after the first steps."""
        for recipe in ("bf16", "current", "delayed"):
            with self.subTest(recipe):
                torch._dynamo.reset()
                model, x = problem()
                y = x[..., :48].roll(1, 1)
                call = compiled(model, recipe)
                optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
                losses, free = [], []
                for step in range(300):
                    optimizer.zero_grad()
                    loss = F.mse_loss(call(x), y)
                    loss.backward()
                    optimizer.step()
                    if step in (0, 99, 299):
                        losses.append(loss.item())
                        free.append(torch.cuda.mem_get_info()[0])
                print(f"{recipe}: losses {losses}, free memory {free}")
                self.assertLess(losses[2], 0.7 * losses[0])
                self.assertEqual(free[1], free[2])


if __name__ == "__main__":
    unittest.main()
