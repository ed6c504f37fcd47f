"""Memory that programs work in: one arena for those that a thread compiles, and what is saved only once."""

from __future__ import annotations

import math
import subprocess
import sys
import threading
import unittest
from unittest import mock

import torch

import fp8c
from fp8c.torch.run import arenas
from fp8c.torch.run.arenas import arena_of
from fp8c.torch.run.device import Device
from support import BackendTest, compiled, programs

BYTES = {"f32": 4, "bf16": 2, "f16": 2, "i32": 4, "i64": 8}  # others: 1
CPU = Device(torch.device("cpu"))


def problem(width: int = 64) -> tuple[torch.nn.Module, torch.Tensor]:
    torch.manual_seed(3)
    model = torch.nn.Sequential(torch.nn.Linear(width, 4 * width), torch.nn.GELU(), torch.nn.Linear(4 * width, width))
    return model, torch.randn(256, width)


def in_thread(work) -> None:
    """Runs it in a new thread; its error is raised here."""
    errors = []

    def run() -> None:
        try:
            work()
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join(300)
    assert not thread.is_alive(), "a thread hangs"
    if errors:
        raise errors[0]


# A thread compiles and ends. What it had freed is overwritten, and other threads compile. The package is
# imported by the main thread, or by the first that compiles.
ENDED = """
import sys, threading
import torch
if sys.argv[1] == "main":
    import fp8c.torch

def compiles():
    import fp8c.torch
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.GELU(), torch.nn.Linear(16, 8))
    torch.compile(model, backend="fp8c", options={"strict": True})(torch.randn(4, 8)).sum().backward()

for _ in range(2):
    thread = threading.Thread(target=compiles)
    thread.start()
    thread.join(300)
    if thread.is_alive():
        sys.exit("a thread hangs")
    torch._dynamo.reset()
    junk = [b"A" * (n % 64) + b"%d" % n for n in range(200000)]
compiles()
print("compiled", len(junk))
"""


class Arenas(BackendTest):
    def test_one_for_all(self) -> None:
        """Training, evaluation and other sizes take as much as the largest; the gradients are right."""
        def steps() -> None:
            arena, sizes = arena_of(CPU), []
            self.assertEqual(arena.bytes, 0)
            model, x = problem()
            call = compiled(model, "f32")
            for rows in (32, 256, 64):
                with torch.no_grad():
                    call(x[:rows])
                model.zero_grad()
                call(x[:rows]).square().sum().backward()
                got = [p.grad.clone() for p in model.parameters()]
                model.zero_grad()
                model(x[:rows]).square().sum().backward()
                for p, gradient in zip(model.parameters(), got):
                    torch.testing.assert_close(gradient, p.grad, rtol=1e-4, atol=1e-3)
                sizes.append(arena.bytes)
                torch._dynamo.reset()
                call = compiled(model, "f32")
            self.assertGreater(sizes[0], 0)
            self.assertGreater(sizes[1], sizes[0])
            self.assertEqual(sizes[2], sizes[1])

        with mock.patch.object(arenas, "_arenas", arenas._Arenas()):
            steps()

    def test_of_a_thread(self) -> None:
        mine: list[fp8c.Arena] = []
        in_thread(lambda: mine.append(arena_of(CPU)))
        self.assertIsNot(mine[0], arena_of(CPU))
        self.assertIs(arena_of(CPU), arena_of(CPU))

    def test_threads_that_end(self) -> None:
        """The main thread compiles after others that have compiled and are gone."""
        for who in ("main", "thread"):
            with self.subTest(imported_by=who):
                done = subprocess.run([sys.executable, "-c", ENDED, who], text=True, timeout=600,
                                      stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
                self.assertEqual(done.returncode, 0, done.stdout)
                self.assertIn("compiled", done.stdout)

    def test_threads(self) -> None:
        """Programs of one arena in two threads wait for each other."""
        torch.manual_seed(0)
        calls = []
        for width in (32, 64):
            model, x = problem(width)
            call = compiled(model, "bf16")
            calls.append((call, x, call(x).detach().clone()))
            call(x).sum().backward()

        def many(call, x, want):
            def work() -> None:
                for _ in range(20):
                    result = call(x)
                    self.assertTrue(torch.equal(result, want))
                    result.sum().backward()
            return work

        other = threading.Thread(target=many(*calls[0]))
        other.start()
        in_thread(many(*calls[1]))
        other.join(300)
        self.assertFalse(other.is_alive())

    def test_saved_once(self) -> None:
        """What a forward saves is in its handle, and the program has no room of its own for it."""
        model, x = problem()
        call = compiled(model, "current")
        call(x).sum().backward()
        program = programs(model)[0].bound.program
        saved = sum(math.prod(p.type.shape) * BYTES.get(p.type.dtype, 1) for p in program.outputs("forward")
                    if p.name.startswith("saved."))
        self.assertGreater(saved, 0)
        self.assertLess(program.info().peak_bytes, 1.5 * saved)


if __name__ == "__main__":
    unittest.main()
