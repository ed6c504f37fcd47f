"""Batches and lengths that vary from call to call: few graphs, right values, no exception."""

from __future__ import annotations

import gc
import random
import unittest
from collections import Counter
from typing import Any

import torch
from torch import nn

import fp8c.torch
import models
from fp8c.torch import backend
from fp8c.torch.run.function import PROGRAMS
from support import BackendTest, gradients, loss_of, programs, twin

SEED, SHAPES = 5, 40


def shapes(seed: int = SEED) -> list[tuple[int, int]]:
    """Batches of 1 to 6 and lengths of 3 to 29, all different."""
    every = [(batch, length) for batch in range(1, 7) for length in range(3, 30)]
    return random.Random(seed).sample(every, SHAPES)


def counted(graphs: Counter[Any], **options: Any) -> Any:
    """The backend, which counts graphs by the code that dynamo compiles: a function, or what of one
    comes after a break."""

    def counting(gm: torch.fx.GraphModule, examples: Any) -> Any:
        graphs[torch._guards.CompileContext.current_compile_id().frame_id] += 1
        return backend.fp8c_backend(gm, examples, options={"recipe": "f32", "strict": True, **options})

    return counting


def gpt2() -> nn.Module:
    """As transformers ships it, without a loss type: some versions warn where the loss begins, which
    ends a graph."""
    model, _ = models.gpt2()
    del model.loss_type
    return model


def inputs_of(batch: int, length: int, padded: bool) -> dict[str, Any]:
    """Tokens with labels. padded: the first sequence has padding on the left."""
    tokens = torch.randint(
        3, 61, (batch, length), generator=torch.Generator().manual_seed(31 * batch + length)
    )
    inputs: dict[str, Any] = {"input_ids": tokens, "labels": tokens, "use_cache": False}
    if padded:
        mask = torch.ones(batch, length, dtype=torch.long)
        mask[0, : min(batch, length - 2)] = 0
        inputs |= {"attention_mask": mask, "labels": tokens.masked_fill(mask == 0, -100)}
    return inputs


class Flattened(nn.Module):
    """Rows of logits and targets of another shape: their sizes have nothing to do with each other."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(8, 7)

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return nn.functional.cross_entropy(self.head(x).view(-1, 7), y.view(-1))


class Unflattened(nn.Module):
    """Ids are flattened before a lookup: the program sees their product alone."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.head = nn.Embedding(61, 8), nn.Linear(8, 7)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        batch, length = ids.shape
        x = self.table(ids.reshape(batch * length)).view(batch, length, 8)
        return self.head(x.mean(1)).square().sum()


class Parts(nn.Module):
    """Five inputs, each with two sizes of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(8, 7)

    def forward(self, *parts: torch.Tensor) -> torch.Tensor:
        return torch.stack([self.head(x).square().mean() for x in parts]).sum()


class Shapes(BackendTest):
    def right(self, call: Any, model: nn.Module, inputs: Any, whole: bool = True) -> None:
        """The loss is eager's; whole: and so are the gradients. inputs: by name, or in order."""
        named, ordered = (inputs, ()) if isinstance(inputs, dict) else ({}, inputs)
        eager = twin(model)
        loss, expected = loss_of(call(*ordered, **named)), loss_of(eager(*ordered, **named))
        self.assertLessEqual(float((loss - expected).detach().abs()), 1e-5 * float(expected.detach().abs()))
        if not whole:
            return
        model.zero_grad()
        loss.backward()
        expected.backward()
        own, exact = gradients(model), gradients(eager)
        self.assertEqual(set(own), set(exact))
        for name, value in exact.items():
            self.assertLessEqual(float((own[name] - value).norm()), 1e-5 * float(value.norm()) + 1e-7, name)

    def test_random_shapes(self) -> None:
        """40 shapes take at most 4 graphs of each function."""
        for name, make, padded in (("gpt2", gpt2, False), ("llama", lambda: models.llama()[0], True)):
            with self.subTest(name, seed=SEED):
                torch._dynamo.reset()
                torch.manual_seed(0)
                model, graphs = make().train(), Counter()
                call = torch.compile(model, backend=counted(graphs))
                for i, (batch, length) in enumerate(shapes()):
                    with self.subTest(name, batch=batch, length=length):
                        self.right(call, model, inputs_of(batch, length, padded), whole=i % 5 == 0)
                self.assertTrue(graphs)
                self.assertLessEqual(max(graphs.values()), 4, graphs)
                self.assertEqual(fp8c.torch.report(model).left_out, [])

    def test_bounds_that_belong_together(self) -> None:
        """Each size rounded up by itself gives 180 rows of logits and 176 targets."""
        model, graphs = Flattened(), Counter()
        call = torch.compile(model, backend=counted(graphs), dynamic=True)
        for rows, (batch, length) in ((2, (6, 29)), (3, (6, 17)), (5, (25, 28)), (4, (6, 30)), (2, (6, 29))):
            y = torch.arange(batch * length) % 7
            self.right(call, model, {"x": torch.randn(batch, length, 8), "y": y.view(rows, -1)})
        self.assertEqual(sum(graphs.values()), 1)

    def test_dims_that_no_shape_shows(self) -> None:
        """Their values are known by the call alone. Each takes a program, of which a few are kept."""
        model, graphs = Unflattened(), Counter()
        call = torch.compile(model, backend=counted(graphs))
        for batch, length in [(3, 4), (4, 3), (2, 6), (5, 7), (7, 5), (6, 2), (3, 4), (4, 9), (2, 6)]:
            self.right(call, model, {"ids": torch.arange(batch * length).view(batch, length) % 61})
        self.assertEqual(sum(graphs.values()), 2)  # the first has fixed sizes
        gc.collect()  # a program and its scales know each other
        self.assertEqual(len(programs(model)), 1 + PROGRAMS)

    def test_many_dims(self) -> None:
        """More sizes than a program can have as bounds."""
        model, graphs, chosen = Parts(), Counter(), random.Random(SEED)
        call = torch.compile(model, backend=counted(graphs))
        for _ in range(6):
            parts = [torch.randn(chosen.randint(2, 9), chosen.randint(2, 9), 8) for _ in range(5)]
            self.right(call, model, parts)
        self.assertLessEqual(sum(graphs.values()), 3)


class Scaled(torch.nn.Module):
    """Floats that dynamo holds dynamic: the embedding's norm_type, and the model's own factor."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.fc, self.factor = torch.nn.Embedding(11, 8), torch.nn.Linear(8, 8), 0.5

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.fc(self.table(ids)) * self.factor


class Dynamic(BackendTest):
    def test_floats(self) -> None:
        """`dynamic=True`: a float is a number of the text, and another one compiles again."""
        model = Scaled()
        call = torch.compile(model, backend=fp8c.torch.fp8c_backend, dynamic=True,
                             options={"recipe": "f32", "strict": True})
        for factor, rows in ((0.5, 3), (0.75, 3), (3.0, 2)):
            model.factor = factor
            ids = torch.arange(rows * 4).view(rows, 4) % 11
            torch.testing.assert_close(call(ids), model(ids))


if __name__ == "__main__":
    unittest.main()
