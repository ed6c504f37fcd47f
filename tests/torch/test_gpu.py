"""The backend on a GPU: gradients, bits, streams, waits, addresses, memory. test_stand_in.py tests
without a GPU what is asked of one."""

from __future__ import annotations

import copy
import gc
import os
import sys
import unittest

import torch
import torch.nn.functional as F
from torch import nn

import fp8c.torch
from support import compiled, gradients, programs

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
        """Over 1,000 steps losses fall under each recipe, and memory is flat after the first 100: that of
        the device, and that of PyTorch's allocator, which has the program's."""
        for recipe in ("bf16", "current", "delayed"):
            with self.subTest(recipe):
                torch._dynamo.reset()
                model, x = problem()
                y = x[..., :48].roll(1, 1)
                call = compiled(model, recipe)
                optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
                losses, memory = [], []
                for step in range(1000):
                    optimizer.zero_grad()
                    loss = F.mse_loss(call(x), y)
                    loss.backward()
                    optimizer.step()
                    if step in (0, 99, 999):
                        losses.append(loss.item())
                        del loss
                        memory.append((torch.cuda.mem_get_info()[0], torch.cuda.memory_allocated()))
                    elif step == 100:
                        torch.cuda.reset_peak_memory_stats()
                    elif step == 200:
                        peak = torch.cuda.max_memory_allocated()
                print(f"{recipe}: losses {losses}, free and allocated memory {memory}")
                self.assertLess(losses[2], 0.7 * losses[0])
                self.assertEqual(memory[1], memory[2])
                self.assertEqual(torch.cuda.max_memory_allocated(), peak)

    def test_sync_debug_mode(self) -> None:
        """PyTorch itself synchronizes nowhere in a step, also with dropout and a slice as input. (What
        fp8c would wait for, test_no_wait sees.)"""
        for recipe in ("bf16", "current", "delayed"):
            with self.subTest(recipe):
                torch._dynamo.reset()
                model, x = problem()
                model = nn.Sequential(model, nn.Dropout(0.1)).train()
                memory = torch.empty(x.numel() + 8, device="cuda")
                odd = memory[1:1 + x.numel()].view_as(x)
                odd.copy_(x)
                call = compiled(model, recipe)
                optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)

                def step() -> None:
                    optimizer.zero_grad()
                    call(odd).square().mean().backward()
                    optimizer.step()

                for _ in range(3):
                    step()
                torch.cuda.set_sync_debug_mode("error")
                try:
                    for _ in range(5):
                        step()
                finally:
                    torch.cuda.set_sync_debug_mode("default")

    def test_allocator(self) -> None:
        """A program's memory is the allocator's, and goes back to it with the program."""
        model, x = problem()
        call = compiled(model, "current")
        pass_of(call, model, x)
        planned = sum(one.bound.program.info().peak_bytes for one in programs(model))
        self.assertGreater(planned, 0)
        gc.collect()
        before = torch.cuda.memory_allocated()
        del call
        torch._dynamo.reset()
        gc.collect()
        self.assertEqual(programs(model), [])
        self.assertGreaterEqual(before - torch.cuda.memory_allocated(), planned)

    def test_capture(self) -> None:
        """A call within torch.cuda.graph is refused, and the next call is as before."""
        model, x = problem()
        call = compiled(model, "current")
        with torch.no_grad():
            want = call(x).clone()
            with self.assertRaisesRegex(RuntimeError, "can't be captured by torch.cuda.graph"):
                with torch.cuda.graph(torch.cuda.CUDAGraph()):
                    call(x)
            torch.cuda.synchronize()
            self.assertTrue(torch.equal(call(x), want))

    @unittest.skipIf(torch.cuda.device_count() < 2, "this machine has one GPU")
    def test_another_device(self) -> None:
        """A model on cuda:1 while cuda:0 is current: the same bits, and cuda:0 stays current."""
        model, x = problem()
        want = pass_of(compiled(model, "current"), model, x)
        torch._dynamo.reset()
        model, x = copy.deepcopy(model).to("cuda:1"), x.to("cuda:1")
        got = pass_of(compiled(model, "current"), model, x)
        self.assertEqual(torch.cuda.current_device(), 0)
        for name, value in want.items():
            self.assertTrue(torch.equal(got[name].to(value.device), value), name)


if __name__ == "__main__":
    unittest.main()
