"""FSDP2: sharded parameters, in processes that train together by gloo."""

from __future__ import annotations

import unittest
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.fsdp import MixedPrecisionPolicy

import fp8c.torch
from shards import batch, jobs, make, own, scales_of, shard, train
from support import BackendTest


def gradients(how: str, reshard: bool) -> dict[str, float]:
    """Each gradient's distance from that of one process with all rows, over its length."""
    model, whole = make(), make()
    call = shard(model, how, "f32", reshard_after_forward=reshard)
    x = batch(0)
    call(own(x)).square().mean().backward()
    whole(x).square().mean().backward()
    found = {}
    for (name, p), q in zip(model.named_parameters(), whole.parameters()):
        found[name] = float((p.grad.full_tensor() - q.grad).norm() / q.grad.norm())
    return found


def training(how: str, recipe: str, steps: int, policy: bool) -> dict[str, Any]:
    """The losses, the FP8 GEMMs that this rank has run, what the report says, and the scales."""
    model = make()
    given = {"mp_policy": MixedPrecisionPolicy(torch.bfloat16, torch.float32)} if policy else {}
    call = shard(model, how, recipe, **given)
    losses = train(call, model, steps)
    report = fp8c.torch.report(model)
    return {"losses": losses, "executed": report.fp8_gemms_executed, "counts": report.counts(),
            "scales": scales_of(model)}


class Fsdp(BackendTest):
    def test_gradients(self) -> None:
        """Sums of f32 in another order than eager PyTorch's, in one process with all rows at once: within
        2^-18. test_fsdp_models.py has the derived bound."""
        for ranks, ways in ((2, [("blocks", True), ("whole", False)]), (4, [("whole", True)])):
            for way, found in zip(ways, jobs(ranks, *((gradients, *way) for way in ways))):
                for one in found:
                    with self.subTest(ranks=ranks, way=way):
                        self.assertLess(max(one.values()), 2 ** -18)

    def test_training(self) -> None:
        """Each rank runs its linears in FP8, and under `delayed` all ranks have the same scales."""
        ways = [("blocks", "delayed", False), ("whole", "delayed", True), ("blocks", "current", True),
                ("whole", "block", False)]
        found = jobs(2, *((training, how, recipe, 12, policy) for how, recipe, policy in ways))
        for way, results in zip(ways, found):
            with self.subTest(way):
                for one in results:
                    self.assertLess(sum(one["losses"][-3:]), 0.7 * sum(one["losses"][:3]))
                    self.assertEqual(one["counts"], {"FP8": 6})
                    self.assertEqual(one["executed"], 12 * 18)  # three a linear: norms need dgrad, too
                self.assertEqual(results[0]["scales"], results[1]["scales"])
                self.assertEqual(len(results[0]["scales"]) > 1, way[1] == "delayed")


if __name__ == "__main__":
    unittest.main()
