"""`strict` with FSDP2: a linear that no graph has raises in the first backward, or at the first step of an
optimizer, on every rank."""

from __future__ import annotations

import unittest
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

import fp8c.torch
from ranks import mesh_of
from shards import WIDTH, Block, batch, compile_blocks, jobs, loss_of, make, options, own
from support import BackendTest

gelu = torch.nn.functional.gelu


class Disabled(Block):
    """Dynamo is kept out of its second linear."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.last(gelu(self.up(self.norm(x))))

    @torch.compiler.disable
    def last(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(x)


class Broken(Block):
    """A graph break in a loop: dynamo gives up the function, and its linears with it."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.first(x)
        for _ in range(2):
            torch._dynamo.graph_break()
            h = gelu(h)
        return x + self.down(h)

    def first(self, x: torch.Tensor) -> torch.Tensor:
        return self.up(self.norm(x))


class Whole(Block):
    """Dynamo is kept out of all of it."""

    @torch.compiler.disable
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x)


class Loop(torch.nn.Module):
    """Sharded blocks in a loop, where dynamo ends the function, and a head of PyTorch's class behind it."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = torch.nn.ModuleList(Block() for _ in range(2))
        self.head = torch.nn.Linear(WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = block(x)
        return self.head(x)


KINDS = {"disabled": Disabled, "broken": Broken, "whole": Whole}


def made(kind: str) -> tuple[torch.nn.Module, Any]:
    """A model, and its blocks: the second one is of this kind."""
    torch.manual_seed(0)
    if kind == "loop":
        model = Loop()
        return model, model.blocks
    model = make(3)
    if kind in KINDS:
        model[1] = KINDS[kind]()
    return model, model


def trained(kind: str, how: str, sharded: bool = True, reshard: bool = True, policy: bool = False,
            micro: int = 1) -> tuple[str, str]:
    """When a training raises, and what it says. how: "blocks" compiled one by one, or the "whole". micro:
    batches that are accumulated without synchronization."""
    model, blocks = made(kind)
    if how == "blocks":
        compile_blocks(blocks, "current")
    if sharded:
        given: dict[str, Any] = {"mesh": mesh_of(dist.get_world_size()), "reshard_after_forward": reshard}
        if policy:
            given["mp_policy"] = MixedPrecisionPolicy(torch.bfloat16, torch.float32)
        for block in blocks:
            fully_shard(block, **given)
        fully_shard(model, **given)
    call = model
    if how == "whole":
        call = torch.compile(model, backend=fp8c.torch.fp8c_backend, options=options("current"))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    at = ""
    try:
        for i in range(micro):
            if sharded:
                model.set_requires_gradient_sync(i == micro - 1)
            at = "forward"
            loss = loss_of(call, own(batch(i)) if sharded else batch(i, 1))
            at = "backward"
            loss.backward()
        at = "step"
        optimizer.step()
    except fp8c.torch.Unsupported as error:
        return at, str(error)
    return "", ""


REASON = "no graph has it: it was never traced"
DISABLED = "dynamo ended a graph: Skip inlining `torch.compiler.disable()`d function"


class Strict(BackendTest):
    def test_lost_linears(self) -> None:
        """A linear behind a graph break or in a disabled region, and a head behind a loop of sharded
        blocks: PyTorch has gathered their weights when the first graph is compiled, so they raise in the
        backward. The weights of a block that has no graph are DTensors then: they raise in the step, or in
        the second backward if FSDP2 keeps them gathered. Casts and accumulation change nothing. The
        message has the linear's path in the model, also where blocks are compiled one by one."""
        cases = {
            ("disabled", "blocks"): ("backward", "linear 1.down: " + REASON, DISABLED),
            ("disabled", "whole"): ("backward", "linear 1.down: " + REASON, DISABLED),
            ("disabled", "blocks", True, False, True, 2): ("backward", "linear 1.down: " + REASON, DISABLED),
            ("broken", "blocks"): ("backward", "linear 1.down: " + REASON, ""),
            ("broken", "whole"): ("backward", "linear 1.down: " + REASON, ""),
            ("loop", "whole"): ("backward", "linear head: " + REASON, ""),
            ("whole", "blocks"): ("step", "linear 1.up: torch.compiler.disable keeps all of it out", ""),
            ("whole", "whole"): ("step", "linear 1.up: torch.compiler.disable keeps 1 out", ""),
            ("whole", "blocks", True, False, True, 2):
                ("backward", "linear 1.down: torch.compiler.disable keeps all of it out", ""),
        }
        for case, ranks in zip(cases, jobs(2, *((trained, *case) for case in cases))):
            at, what, why = cases[case]
            for rank, (when, said) in enumerate(ranks):
                with self.subTest(case, rank=rank):
                    self.assertEqual(when, at, said)
                    self.assertTrue(said.startswith(what), said)
                    self.assertIn(why, said)
                    self.assertIn("(strict)", said)

    def test_nothing_lost(self) -> None:
        """Models whose linears all have graphs raise nothing; nor does a head that is in no module that
        was compiled."""
        cases = [("", "blocks"), ("", "whole"), ("loop", "blocks")]
        for case, ranks in zip(cases, jobs(2, *((trained, *case) for case in cases))):
            with self.subTest(case):
                self.assertEqual(ranks, [("", "")] * 2)

    def test_not_sharded(self) -> None:
        """Without FSDP2 a block that has no graph raises in the backward."""
        for how in ("blocks", "whole"):
            with self.subTest(how):
                torch._dynamo.reset()
                at, said = trained("whole", how, sharded=False)
                self.assertEqual(at, "backward", said)
                self.assertIn("linear 1.down: torch.compiler.disable keeps ", said)

    def test_other_backends(self) -> None:
        """A block that was compiled with another backend, or without strict, is none of strict's."""
        for backend, given in (("eager", None), (fp8c.torch.fp8c_backend, options("current", strict=False))):
            with self.subTest(backend):
                torch._dynamo.reset()
                model, _ = made("whole")
                for i, block in enumerate(model):
                    one = (backend, given) if i == 1 else (fp8c.torch.fp8c_backend, options("current"))
                    block.compile(backend=one[0], options=one[1])
                loss_of(model, batch(0, 1)).backward()
                self.assertIsNotNone(model[1].down.weight.grad)


if __name__ == "__main__":
    unittest.main()
