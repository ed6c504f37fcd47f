"""Models that FSDP2 shards, and what tests of them share. A process starts slowly, so tests run several
jobs in the same processes:

    found = jobs(2, (gradients, "f32"), (training, "delayed"))    # a list a job: its result on each rank
"""

from __future__ import annotations

import gc
from typing import Any, Callable, Sequence

import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard

import fp8c.torch
from ranks import Failed, mesh_of, together

WIDTH, ROWS = 24, 5


class Block(torch.nn.Module):
    def __init__(self, width: int = WIDTH, inner: int = 56) -> None:
        super().__init__()
        self.norm = torch.nn.LayerNorm(width)
        self.up, self.down = torch.nn.Linear(width, inner), torch.nn.Linear(inner, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(torch.nn.functional.gelu(self.up(self.norm(x))))


def make(blocks: int = 3, seed: int = 0, **sizes: int) -> torch.nn.Sequential:
    torch.manual_seed(seed)
    return torch.nn.Sequential(*(Block(**sizes) for _ in range(blocks)))


def batch(step: int, ranks: int | None = None, rows: int = ROWS, width: int = WIDTH) -> torch.Tensor:
    """The rows of all ranks."""
    ranks = dist.get_world_size() if ranks is None else ranks
    return torch.randn(rows * ranks, width, generator=torch.Generator().manual_seed(step))


def own(x: torch.Tensor) -> torch.Tensor:
    """This rank's rows."""
    return x.chunk(dist.get_world_size())[dist.get_rank()]


def options(recipe: str, **given: Any) -> dict[str, Any]:
    return {"recipe": recipe, "strict": True, "timeout": 60, **given}


def compile_blocks(blocks: Any, recipe: str, **given: Any) -> None:
    """Compile each block by itself. `.compile()` of a module of PyTorch's own classes, such as a head, does
    nothing with PyTorch 2.11: dynamo leaves it to PyTorch, sharded or not."""
    how = {"backend": fp8c.torch.fp8c_backend, "options": options(recipe, **given)}
    for block in blocks:
        if type(block).__module__.startswith("torch."):
            block.forward = torch.compile(block.forward, **how)
        else:
            block.compile(**how)


def shard(model: torch.nn.Sequential, how: str, recipe: str, **given: Any) -> Any:
    """The model sharded block by block; -> what to call. how: "blocks", compiled one by one, or
    "whole", compiled afterwards."""
    given.setdefault("mesh", mesh_of(dist.get_world_size()))
    if how == "blocks":
        compile_blocks(model, recipe)
    for block in model:
        fully_shard(block, **given)
    fully_shard(model, **given)
    if how == "blocks":
        return model
    return torch.compile(model, backend=fp8c.torch.fp8c_backend, options=options(recipe))


def loss_of(call: Callable[..., torch.Tensor], x: torch.Tensor) -> torch.Tensor:
    """A loss that a model of blocks can lower: it predicts its input's rows, shifted."""
    return (call(x).float() - x.roll(1, 1)).square().mean()


def step(call: Any, optimizer: torch.optim.Optimizer, x: torch.Tensor) -> float:
    """One step of training on these rows; -> the loss."""
    optimizer.zero_grad()
    loss = loss_of(call, x)
    loss.backward()
    optimizer.step()
    return float(loss.detach())


def train(call: Any, model: torch.nn.Module, steps: int, lr: float = 1e-2, first: int = 0,
          optimizer: Any = None, width: int = WIDTH) -> list[float]:
    """Steps of AdamW, each on other rows; -> the losses."""
    optimizer = optimizer or torch.optim.AdamW(model.parameters(), lr=lr)
    return [step(call, optimizer, own(batch(first + i, width=width))) for i in range(steps)]


def whole(tensor: torch.Tensor) -> torch.Tensor:
    """All of a DTensor, or the tensor itself."""
    return tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor


def scales_of(model: torch.nn.Module) -> dict[str, list[float]]:
    return {name: row.tolist() for name, row in fp8c.torch.state_dict(model).items()}


def rounding(n: int) -> float:
    """The largest relative error of a sum of n terms in f32, to the sum of their sizes."""
    u = n * 2.0 ** -24
    return u / (1 - u)


def _one_by_one(work: Sequence[tuple[Any, ...]]) -> list[Any]:
    found = []
    for job, *args in work:
        torch._dynamo.reset()
        gc.collect()
        torch.manual_seed(0)
        try:
            found.append(job(*args))
        except BaseException as error:  # the other ranks may wait for this one: no job follows
            found.append(Failed(error))
            break
    return found


def jobs(n: int, *work: tuple[Any, ...], seconds: int = 500) -> list[list[Any]]:
    """What each job, a function with its arguments, has given on each of n ranks. AssertionError: one
    has failed; it has its traceback."""
    ranks = together(n, _one_by_one, work, seconds=seconds)
    for rank, found in enumerate(ranks):
        for job, result in zip(work, found):
            if isinstance(result, Failed):
                raise AssertionError(f"rank {rank}, {job[0].__name__}{job[1:]}: {result.text}")
    return [list(one) for one in zip(*ranks)]
