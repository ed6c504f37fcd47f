"""Nothing is copied, memory is flat, and what a call costs beside the pair itself."""

from __future__ import annotations

import time
import unittest

import torch

import fp8c.torch
import models
from support import BackendTest, batch_of, compiled, loss_of, programs, regression, train


def resident() -> int:
    """Bytes of this process in memory."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096


class ZeroCopy(BackendTest):
    def test_addresses(self) -> None:
        """A variable's memory is the parameter's, in every program; a gradient is what backward
        wrote, and autograd takes it over as it is."""
        model, inputs = models.make("gpt2")
        call = compiled(model, "delayed")
        train(call, model, inputs, 1)
        model.eval()
        with torch.no_grad():
            call(**inputs)
        model.train()
        named = {id(p): p for p in model.parameters()}
        self.assertEqual(len(programs(model)), 2)
        for one in programs(model):
            bound = one.bound
            for param, tensor in zip(bound.stage.params, bound.params):
                self.assertIn(id(tensor), named)
                self.assertEqual(bound.program.tensor(param.name).address, tensor.data_ptr())
        model.zero_grad(set_to_none=True)
        loss_of(call(**inputs)).backward()
        bound = programs(model)[0].bound
        ports = next(iter(bound._views.values()))
        written = {name: view.c.data for name, view in zip(ports.gradients, ports.backward_out.views)}
        for param, tensor in zip(bound.stage.params, bound.params):
            self.assertEqual(written[param.name], tensor.grad.data_ptr(), param.name)

    def test_inputs(self) -> None:
        model, inputs = regression()
        compiled(model)(**inputs)
        ports = next(iter(programs(model)[0].bound._views.values()))
        names = [p.name for p in programs(model)[0].bound.stage.inputs]
        self.assertEqual(ports.forward_in[names.index("x")].c.data, inputs["x"].data_ptr())

    def test_flat_memory(self) -> None:
        """1,000 steps leave the resident memory where it was after 50."""
        model, _ = regression()
        call = compiled(model, "delayed")
        optimizer = torch.optim.AdamW(model.parameters())
        for step in range(1000):
            train(call, model, batch_of(seed=step), 1, optimizer=optimizer)
            if step == 50:
                before = resident()
        self.assertLess(resident() - before, 2 << 20)

    def test_cost(self) -> None:
        """A call under autograd and its backward beside the same program's forward and backward."""
        model, inputs = models.make("gpt2")
        call = compiled(model, "current")
        train(call, model, inputs, 2)
        bound = programs(model)[0].bound
        ports, saved = next(iter(bound._views.values())), bound.program.saved()
        kept = [torch.zeros(v.shape, dtype={"f32": torch.float32, "i32": torch.int32}[v.dtype])
                for side in (ports.forward_in, ports.forward_out, ports.backward_in, ports.backward_out)
                for v in side.views]
        views = [v for side in (ports.forward_in, ports.forward_out, ports.backward_in, ports.backward_out)
                 for v in side.views]

        def pair() -> None:
            for view, tensor in zip(views, kept):
                view.c.data = tensor.data_ptr()
            bound.program.forward(saved, ports.forward_in, ports.forward_out)
            bound.program.backward(saved, ports.backward_in, ports.backward_out)

        def whole() -> None:
            loss_of(call(**inputs)).backward()

        best = {}
        for _ in range(30):
            for name, run in (("pair", pair), ("call", whole)):
                start = time.perf_counter()
                run()
                best[name] = min(best.get(name, 1e9), time.perf_counter() - start)
        print(f"\n  tiny gpt2: the pair {best['pair'] * 1e3:.2f} ms, a call {best['call'] * 1e3:.2f} ms")
        self.assertLess(best["call"], best["pair"] * 1.03 + 5e-3)


if __name__ == "__main__":
    unittest.main()
