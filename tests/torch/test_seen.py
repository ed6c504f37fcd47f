"""Whether a history is empty: the same answers as a look at each push gives, with fewer looks. On a GPU a
look makes the host wait; a copy that nobody waits for is stood in for here."""

from __future__ import annotations

import random
import unittest
from types import SimpleNamespace
from unittest import mock

import torch

from fp8c.torch.run import bound
from fp8c.torch.run.device import Gpu
from fp8c.torch.run.scales import HISTORY, Scales
from fp8c.torch.run.seen import Seen, pushes_left
from support import BackendTest, compiled, programs, regression, train


class Histories:
    """Histories that are pushed, newest first, and asynchronous copies of them."""

    def __init__(self, operands: int, length: int, draw: random.Random, arrives: float):
        self.now, self.draw, self.arrives = torch.zeros(operands, length), draw, arrives
        self.copies = 0

    def push(self, amaxes: torch.Tensor) -> None:
        self.now = torch.cat([amaxes[:, None], self.now[:, :-1]], 1)

    def aside(self):
        self.copies += 1
        return self.now.clone(), lambda: self.draw.random() < self.arrives

    def empty(self) -> bool:
        return any(not (row > 0).any() or bool(row.isnan().any()) for row in self.now)


class SeenTest(unittest.TestCase):
    def test_random_pushes(self) -> None:
        """Against a look at each push: with zeros, NaNs, pushes that were skipped and writes in between."""
        for seed in range(200):
            draw = random.Random(seed)
            length = draw.choice((1, 2, 3, 16))
            h = Histories(draw.choice((1, 3)), length, draw, draw.choice((0.0, 0.3, 1.0)))
            seen = Seen(lambda: h.now, draw.choice((None, h.aside)))
            seen.changed()
            zeros = draw.choice((0.0, 0.3, 0.9))
            for step in range(60):
                what = draw.random()
                if what < 0.03:
                    h.now = draw.choice((torch.zeros_like(h.now), h.now.flip(1), h.now * torch.nan))
                    seen.changed()
                else:
                    if what > 0.1:
                        h.push(torch.tensor([0.0 if draw.random() < zeros else 1.5 for _ in h.now]))
                    seen.pushed()
                self.assertEqual(seen.empty, h.empty(), f"seed {seed}, push {step}")

    def test_pushes_left(self) -> None:
        for rows, want in (([[0, 0, 0]], -1), ([[1, 0, 0]], 2), ([[0, 0, 2]], 0), ([[1, 1, 1], [0, 3, 3]], 1),
                           ([[1, 0, 0], [0, 0, 0]], -1), ([[torch.nan, 1, 1]], -1)):
            self.assertEqual(pushes_left(torch.tensor(rows, dtype=torch.float32)), want, rows)
        self.assertGreaterEqual(pushes_left(torch.zeros(0, 16)), 0)

    def test_looks(self) -> None:
        """Copies that arrive by the next push: no look after the first steps. Without copies: one look in as
        many pushes as a history has entries. While an operand is empty: one a push."""
        for copies, silent, most in ((True, 0, 2), (False, 0, 8), (True, 50, 52)):
            h = Histories(2, 16, random.Random(1), 1.0)
            seen = Seen(lambda: h.now, h.aside if copies else None)
            seen.changed()
            for step in range(100):
                h.push(torch.tensor([1.0, 0.0 if step < silent else 1.0]))
                seen.pushed()
                self.assertEqual(seen.empty, step < silent)
            self.assertLessEqual(seen.looks, most, (copies, silent))


class Training(BackendTest):
    def test_reads(self) -> None:
        """40 steps read the histories in the first of them, and then once in 16."""
        model, inputs = regression()
        call = compiled(model, "delayed")
        reads = []
        read = Scales.read

        def noted(self: Scales, state: str) -> torch.Tensor:
            reads.append(state)
            return read(self, state)

        with mock.patch.object(Scales, "read", noted):
            train(call, model, inputs, 40)
        self.assertLessEqual(reads.count(HISTORY), 5)
        self.assertFalse(programs(model)[0].first)

    def test_reads_with_copies(self) -> None:
        """As on a GPU, where copies arrive while the steps go on."""
        def aside(self: Scales):
            return self.read(HISTORY), lambda: True

        model, inputs = regression()
        call = compiled(model, "delayed")
        train(call, model, inputs, 3)
        one = programs(model)[0]
        one.refresh()
        one.seen._aside = aside.__get__(one)
        looks = one.seen.looks
        train(call, model, inputs, 100)
        self.assertEqual(one.seen.looks, looks)
        self.assertEqual(one.pushes, 102)


class Seed(unittest.TestCase):
    def test_in_host_memory(self) -> None:
        """Also a program on a GPU gets the seed from the host: fp8c sends it along without a copy."""
        ports = [SimpleNamespace(name=n, type=SimpleNamespace(dtype=d, shape=s))
                 for n, d, s in (("x", "f32", (2,)), ("seed", "i32", ()))]
        stage = SimpleNamespace(seed=True, bounds=None, results=[])
        place, program = Gpu(torch.device("cuda", 1)), SimpleNamespace(inputs=lambda f: ports, outputs=lambda f: [])
        made = bound._Ports(SimpleNamespace(stage=stage, place=place, device=place.device, pair=True,
                                            cotangents=[], program=program), [])
        self.assertEqual([(v.c.device.type, v.c.device.id) for v in made.forward_in.views], [(2, 1), (1, 0)])
        self.assertEqual(bound._seed_tensor(2**31 - 1).device.type, "cpu")


if __name__ == "__main__":
    unittest.main()
