"""The memory of results and gradients on the CPU: it is used again once PyTorch has deleted them,
and never while somebody holds them. It is bounded, and it is given back."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading
import unittest
from typing import Any

import torch

import fp8c.torch
from support import BackendTest, batch_of, compiled, programs, regression, twin

MB = 1 << 20


class Wide(torch.nn.Module):
    """One weight of 48 MB, which C's malloc maps for itself, and whose product costs little."""

    def __init__(self) -> None:
        super().__init__()
        self.up = torch.nn.Linear(3072, 4096, bias=False)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = self.up(x)
        return y.square().mean(), y


class Several(torch.nn.Module):
    """A loss and a result that has a gradient, too."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = torch.nn.Linear(13, 24), torch.nn.Linear(24, 7)

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        logits = self.down(torch.tanh(self.up(x)))
        return torch.nn.functional.cross_entropy(logits, y), logits


def held(model: torch.nn.Module) -> int:
    """The bytes that the model's programs have for results and gradients."""
    return sum(lender.bytes for s in programs(model) for lender in s.bound._lenders.values())


def resident() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096


class Again(BackendTest):
    def test_same_memory(self) -> None:
        """A step has the memory of the step before, though others ask for as much in between."""
        model, x = Wide(), torch.ones(2, 3072)
        call, found = compiled(model), set()
        for _ in range(5):
            model.zero_grad()
            between = [torch.zeros(4096, 3072) for _ in range(2)]
            loss, y = call(x)
            loss.backward()
            found.add((loss.data_ptr(), y.data_ptr(), model.up.weight.grad.data_ptr()))
            del between, loss, y
        self.assertEqual(len(found), 1)

    def test_1000_steps(self) -> None:
        """Pointers stay for 1,000 steps, with an optimizer and with evaluations in between."""
        model, _ = regression()
        call = compiled(model, "delayed")
        optimizer = torch.optim.AdamW(model.parameters())
        found: set[tuple[int, ...]] = set()
        for step in range(1000):
            optimizer.zero_grad()
            call(**batch_of(seed=step)).backward()
            found.add(tuple(p.grad.data_ptr() for p in model.parameters()))
            optimizer.step()
            if step % 100 == 0:
                with torch.no_grad():
                    call(**batch_of(seed=step))
            if step == 10:
                before = held(model)
        self.assertEqual(len(found), 1)
        self.assertEqual(held(model), before)


class Held(BackendTest):
    """No later step writes to a tensor that somebody holds."""

    def keep_all(self, what: Any) -> None:
        """Hold the tensors of what(model, loss, logits) of 6 steps: no later step writes them."""
        model, call = self.model, self.call
        kept, copies = [], []
        for step in range(6):
            model.zero_grad()
            loss, logits = call(**batch_of(seed=step))
            loss.backward()
            kept.append(what(model, loss, logits))
            copies.append([t.detach().clone() for t in kept[-1]])
            del loss, logits
        for a, b in zip(kept, copies):
            for s, t in zip(a, b):
                self.assertTrue(torch.equal(s, t))
        addresses = [t.data_ptr() for tensors in kept for t in tensors]
        self.assertEqual(len(set(addresses)), len(addresses))

    def setUp(self) -> None:
        super().setUp()
        self.model = Several()
        self.call = compiled(self.model)

    def test_gradients(self) -> None:
        self.keep_all(lambda model, loss, logits: [p.grad for p in model.parameters()])

    def test_views(self) -> None:
        self.keep_all(lambda model, loss, logits: [model.up.weight.grad[3:5].t(), logits.detach()[1:, 2]])

    def test_results(self) -> None:
        """Loss and logits, with their graphs."""
        self.keep_all(lambda model, loss, logits: [loss, logits])

    def test_arrays(self) -> None:
        """An array of NumPy's over the memory, without the tensor."""
        self.keep_all(lambda model, loss, logits: [torch.from_numpy(logits.detach().numpy())])

    def test_saved_logits(self) -> None:
        """PyTorch saves logits for an op of its own; the next forward does not write to them."""
        eager = twin(self.model)
        for call in (self.call, eager):
            losses = [call(**batch_of(seed=i))[1].square().mean() for i in range(3)]
            for loss in reversed(losses):
                loss.backward()
        for p, q in zip(self.model.parameters(), eager.parameters()):
            torch.testing.assert_close(p.grad, q.grad)

    def test_hooks(self) -> None:
        """A hook that keeps gradients, and one after accumulation that takes them away."""
        seen: list[torch.Tensor] = []
        taken: list[torch.Tensor] = []
        self.model.up.weight.register_hook(seen.append)

        def take(p: torch.Tensor) -> None:
            taken.append(p.grad)
            p.grad = None

        self.model.down.weight.register_post_accumulate_grad_hook(take)
        self.keep_all(lambda model, loss, logits: [seen[-1], taken[-1]])

    def test_accumulation(self) -> None:
        """With set_to_none=False the first gradient stays, and later ones are added to it."""
        eager = twin(self.model)
        for call, model in ((self.call, self.model), (eager, eager)):
            addresses = set()
            for step in range(4):
                model.zero_grad(set_to_none=False)
                for micro in range(3):
                    call(**batch_of(seed=3 * step + micro))[0].backward()
                addresses.add(model.up.weight.grad.data_ptr())
            self.assertEqual(len(addresses), 1)
        for p, q in zip(self.model.parameters(), eager.parameters()):
            torch.testing.assert_close(p.grad, q.grad)

    def test_in_place(self) -> None:
        """What the caller writes into a gradient or a result changes no later step."""
        eager, found = twin(self.model), []
        for call, model in ((self.call, self.model), (eager, eager)):
            for step in range(3):
                model.zero_grad()
                loss, logits = call(**batch_of(seed=step))
                loss.backward()
                found.append([p.grad.clone() for p in model.parameters()])
                for p in model.parameters():
                    p.grad.fill_(float("nan"))
                logits.detach().fill_(float("nan"))
        for a, b in zip(found[:3], found[3:]):
            torch.testing.assert_close(a, b)

    def test_other_threads(self) -> None:
        """Other threads delete tensors; no step writes to those that they hold."""
        queue: list[list[torch.Tensor]] = []
        wrong: list[str] = []
        over = threading.Event()

        def consume() -> None:
            while not over.is_set() or queue:
                if queue:
                    a, b = queue.pop()
                    if not torch.equal(a, b):
                        wrong.append("a tensor that another thread held was written")

        threads = [threading.Thread(target=consume) for _ in range(2)]
        for thread in threads:
            thread.start()
        for step in range(200):
            self.model.zero_grad()
            loss, logits = self.call(**batch_of(seed=step))
            loss.backward()
            grad = self.model.up.weight.grad
            queue.append([grad, grad.clone()])
            queue.append([logits.detach(), logits.detach().clone()])
        over.set()
        for thread in threads:
            thread.join()
        self.assertEqual(wrong, [])


class Bounded(BackendTest):
    def test_given_back(self) -> None:
        """Memory is freed when calls no longer need it, by release_memory, and when the program
        ends."""
        before = resident()
        model, x = Wide(), torch.ones(2, 3072)
        call = compiled(model)

        def step() -> torch.Tensor:
            model.zero_grad()
            call(x)[0].backward()
            return model.up.weight.grad

        kept = [step() for _ in range(4)]
        self.assertGreaterEqual(held(model), 4 * 48 * MB)
        del kept
        for _ in range(130):
            step()
        self.assertLess(held(model), 49 * MB)
        fp8c.torch.release_memory(model)  # the gradient is the parameter's
        self.assertGreaterEqual(held(model), 48 * MB)
        model.zero_grad()
        fp8c.torch.release_memory(call)
        self.assertEqual(held(model), 0)
        last = step()
        copy = last.clone()
        del model, call
        torch._dynamo.reset()
        gc.collect()
        self.assertTrue(torch.equal(last, copy))  # it outlives the program
        del last, copy
        gc.collect()
        self.assertLess(resident() - before, 40 * MB)

    def test_dynamic_sizes(self) -> None:
        """When the batch changes its size, no more memory is held than for the largest."""
        model = Several()
        call = torch.compile(model, backend=fp8c.torch.fp8c_backend, dynamic=True,
                             options={"recipe": "f32", "strict": True})
        most = 0
        for batch in (600, 700, 800, 30, 800, 5, 800):
            model.zero_grad()
            loss, logits = call(**batch_of(batch))
            loss.backward()
            del loss, logits
            gc.collect()  # programs of smaller bounds
            most = held(model) if batch == 800 and not most else most
        self.assertEqual(held(model), most)


class Ends(unittest.TestCase):
    def test_interpreter(self) -> None:
        """The interpreter ends while gradients and results live, also in a thread that sleeps. (In
        one that computes, PyTorch's own ops abort.)"""
        script = ("import threading, time, torch, support\n"
                  "model, inputs = support.regression()\n"
                  "call = support.compiled(model)\n"
                  "def run():\n"
                  "    loss = call(**inputs)\n"
                  "    loss.backward()\n"
                  "    done.set()\n"
                  "    time.sleep(100)\n"
                  "done = threading.Event()\n"
                  "threading.Thread(target=run, daemon=True).start()\n"
                  "done.wait()\n"
                  "torch.kept = [call(**inputs)] + [p.grad for p in model.parameters()]\n"
                  "print('done')\n")
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
        self.assertEqual((done.returncode, done.stdout), (0, "done\n"), done.stderr[-2000:])


if __name__ == "__main__":
    unittest.main()
