"""FP8 under Accelerate's FSDP2 plugin: on each rank the report shows FP8, and the parameters are sharded
as asked, or the run fails with an error that names it.

Accelerate uses FSDP with accelerators alone: on CPUs it trains with DDP, and says nothing. So these tests
tell it that its processes are those of GPUs; all else is as it is there, over gloo."""

from __future__ import annotations

import os
import unittest
import unittest.mock
from typing import Any

import accelerate
import torch
import torch.distributed as dist
from accelerate.utils import DistributedType, FullyShardedDataParallelPlugin
from torch.distributed.tensor import Shard

import fp8c.torch
from ranks import Failed, together
from support import BackendTest, executed

OPTIONS = {"recipe": "current", "strict": True, "timeout": 60}


class Two(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = torch.nn.Linear(16, 48), torch.nn.Linear(48, 16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(torch.nn.functional.gelu(self.up(x)))


def as_on_gpus() -> Any:
    """A context in which Accelerate takes the processes for those of GPUs."""
    real = accelerate.PartialState.__init__

    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        real(self, *args, **kwargs)
        self.distributed_type = DistributedType.MULTI_GPU

    return unittest.mock.patch.object(accelerate.PartialState, "__init__", init)


def placed(model: torch.nn.Module) -> list[Any]:
    """How each parameter is sharded: by which axis, over how many ranks."""
    return [(type(p).__name__, *((one.dim for one in p.placements)
                                 if all(isinstance(one, Shard) for one in p.placements) else ["?"]),
             p.device_mesh.size()) for p in model.parameters() if hasattr(p, "placements")]


def prepared(model: Any, plugin: dict[str, Any], options: dict[str, Any], gpus: bool = True, **given: Any) -> Any:
    """An accelerator with the model and its optimizer."""
    accelerate.state.AcceleratorState._reset_state(True)
    with as_on_gpus() if gpus else unittest.mock.MagicMock():
        made = accelerate.Accelerator(cpu=None if gpus else True, fsdp_plugin=FullyShardedDataParallelPlugin(**plugin),
                                      **given)
    fp8c.torch.compile_for_trainer(model, **{**OPTIONS, **options})
    return (made, *made.prepare(model, torch.optim.SGD(model.parameters(), lr=0.1)))


def two(reshard: bool, gpus: bool, version: int, options: dict[str, Any]) -> dict[str, Any]:
    """Three steps of two linears."""
    torch.manual_seed(0)
    plugin = {"fsdp_version": version, "reshard_after_forward": reshard}
    accelerator, model, optimizer = prepared(Two(), plugin if version == 2 else {"fsdp_version": 1}, options, gpus)
    losses = []
    for step in range(3):
        x = torch.randn(8, 16, generator=torch.Generator().manual_seed(2 * step + dist.get_rank()))
        loss = (model(x) - x).square().mean()
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(float(loss.detach()))
    return {"counts": fp8c.torch.report(model).counts(), "executed": executed(model), "placed": placed(model),
            "losses": losses}


def each(scenarios: list[tuple[Any, ...]]) -> list[Any]:
    found: list[Any] = []
    os.environ.update(ACCELERATE_USE_CPU="true", MASTER_ADDR="localhost", MASTER_PORT="1", LOCAL_WORLD_SIZE="2")
    for name, *arguments in scenarios:
        torch._dynamo.reset()
        try:
            found.append(globals()[name](*arguments))
        except Exception as error:
            found.append(Failed(error))
    return found


class Accelerate(BackendTest):
    def test_two_linears(self) -> None:
        """Reshard on and off, two recipes: FP8 and sharding on each rank."""
        cases = [("two", reshard, True, 2, {"recipe": recipe}) for reshard in (True, False)
                 for recipe in ("current", "delayed")]
        for found in together(2, each, cases):
            for case, one in zip(cases, found):
                with self.subTest(str(case)):
                    self.assertNotIsInstance(one, Failed, getattr(one, "text", ""))
                    self.assertEqual(one["counts"], {"FP8": 2})
                    self.assertGreaterEqual(one["executed"], 3 * 5)
                    self.assertEqual(one["placed"], [("DTensor", 0, 2)] * 4)
                    self.assertLess(one["losses"][2], one["losses"][0])



if __name__ == "__main__":
    unittest.main()
