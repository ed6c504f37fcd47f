"""Ranks that compile different graphs, fail, come late or die: every rank hears who and why, and none
hangs. And what may differ between ranks does not disturb them."""

from __future__ import annotations

import os
import time
import unittest
import unittest.mock
from typing import Any, Callable

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import CPUOffloadPolicy, fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel

import fp8c.torch
import models
from fp8c.torch import backend
from fp8c.torch.ranks import agreement
from fp8c.torch.run import bound
from ranks import Failed, free_port, mesh_of, outcomes, together
from support import BackendTest, programs

WIDTH, SHORT = 16, 3  # seconds


class Block(torch.nn.Module):
    def __init__(self, change: str = "") -> None:
        super().__init__()
        self.up, self.down = torch.nn.Linear(WIDTH, 40), torch.nn.Linear(40, WIDTH)
        self.more = torch.nn.Linear(WIDTH, WIDTH)
        self.change = change

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.up(x)
        if self.change == "break":
            torch._dynamo.graph_break()
        h = torch.relu(h) if self.change == "relu" else torch.nn.functional.gelu(h)
        h = self.down(h)
        y = (h if self.change == "twice" else x) + h
        return self.more(y) if self.change == "more" else y


class Named(torch.nn.Module):
    """Its input can be given by name. It computes with a buffer, and with the number of rows."""

    def __init__(self, change: str = "") -> None:
        super().__init__()
        self.a, self.b = Block(), Block(change)
        self.register_buffer("table", torch.linspace(0, 1, WIDTH))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.b(self.a(x + torch.cos(self.table)))
        return y / y.shape[0]


def make(change: str = "", blocks: int = 2) -> torch.nn.Sequential:
    torch.manual_seed(0)
    return torch.nn.Sequential(*(Block(change) for _ in range(blocks)))


def spread(model: Any, how: str, **options: Any) -> Any:
    """What to call: a model that FSDP2 shards block by block ("fsdp"), or that is compiled, then wrapped
    in DDP ("ddp"), or the blocks are compiled, then wrapped ("ddp blocks")."""
    options = {"recipe": "current", "timeout": 60, "strict": True, **options}
    if how == "ddp":
        model.compile(backend=fp8c.torch.fp8c_backend, options=options)
        return DistributedDataParallel(model, find_unused_parameters=True)
    for block in model:
        block.compile(backend=fp8c.torch.fp8c_backend, options=options)
        if how == "fsdp":
            fully_shard(block, mesh=mesh_of(dist.get_world_size()))
    if how == "fsdp":
        return fully_shard(model, mesh=mesh_of(dist.get_world_size()))
    return DistributedDataParallel(model, find_unused_parameters=True)


def batch(rows: int = 4) -> torch.Tensor:
    return torch.randn(rows, WIDTH, generator=torch.Generator().manual_seed(dist.get_rank()))


def step(call: Any, x: torch.Tensor | None = None) -> float:
    loss = call(batch() if x is None else x).square().mean()
    loss.backward()
    return float(loss.detach())


def on(rank: int, value: Any, other: Any) -> Any:
    """A value on one rank, another one on the others."""
    return value if dist.get_rank() == rank else other


def each(scenarios: list[tuple[Any, ...]]) -> list[Any]:
    """The outcome of each scenario, one after the other: (function, its arguments)."""
    found: list[Any] = []
    for name, *arguments in scenarios:
        torch._dynamo.reset()
        try:
            found.append(globals()[name](*arguments))
        except Exception as error:
            found.append(Failed(error))
    return found


# ---- what differs ----


def changed(how: str, change: str) -> float:
    """Rank 1 has another forward."""
    return step(spread(make(on(1, change, "")), how, strict=change != "break"))


def last_changed() -> float:
    """The last block of rank 1 has the ops of rank 0's, but they read other values."""
    model = make()
    model[-1].change = on(1, "twice", "")
    return step(spread(model, "ddp"))


def optioned(how: str, name: str, value: Any, **options: Any) -> float:
    """Rank 1 has another option."""
    return step(spread(make(), how, **options, **on(1, {name: value}, {})))


def frozen(how: str) -> float:
    """Rank 1 does not train one weight."""
    model = make()
    model[0].up.weight.requires_grad_(dist.get_rank() != 1)
    return step(spread(model, how))


def group_on_one(how: str) -> float:
    """Rank 1 alone was given a group for amaxes."""
    model = make()
    if dist.get_rank() == 1:
        fp8c.torch.set_amax_group(model, dist.group.WORLD)
    return step(spread(model, how, recipe="delayed"))


def planted(how: str, strict: bool, nth: int) -> list[Any]:
    """On rank 1 the n-th program can't be compiled. Then the model is used again."""
    call, real, count = spread(make(), how, strict=strict), bound.Bound._compile, [0]

    def fails(*args: Any) -> Any:
        count[0] += 1
        if count[0] == nth and dist.get_rank() == 1:
            raise RuntimeError("planted")
        return real(*args)

    with unittest.mock.patch.object(bound.Bound, "_compile", fails):
        try:
            first: Any = step(call)
        except Exception as error:
            first = Failed(error)
    dist.barrier()
    call.zero_grad()
    again = spread(make(), how, strict=strict) if how == "fsdp" else call
    return [first, step(again), count[0]]


def late(rank: int) -> float:
    """A rank comes after the other one has given up."""
    call = spread(make(), "ddp", timeout=SHORT)
    if dist.get_rank() == rank:
        time.sleep(2 * SHORT)
    return step(call)


def dies(how: str) -> float:
    """Rank 1 ends before its compile."""
    call = spread(make(), how, timeout=SHORT)
    if dist.get_rank() == 1:
        os._exit(3)
    return step(call)


def store_dies(port: int) -> float:
    """Rank 0, which keeps the store, ends before its compile."""
    rank = dist.get_rank()
    dist.destroy_process_group()
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=2)
    call = spread(make(), "ddp", timeout=60)
    if rank == 0:
        time.sleep(1)
        os._exit(3)
    return step(call)


# ---- what no rank can compile ----


def parallel(sharded: bool, strict: bool) -> Any:
    """Tensor parallelism alone, or in a mesh with FSDP2."""
    sizes, names = ((1, 2), ("dp", "tp")) if sharded else ((2,), ("tp",))
    mesh = init_device_mesh("cpu", sizes, mesh_dim_names=names)
    model = make()
    for block in model:
        parallelize_module(block, mesh["tp"], {"up": ColwiseParallel(), "down": RowwiseParallel()})
        block.compile(backend=fp8c.torch.fp8c_backend, options={"strict": strict, "timeout": 60})
        if sharded:
            fully_shard(block, mesh=mesh["dp"])
    step(model, torch.ones(4, WIDTH))
    return [one.reason for one in fp8c.torch.report(model).linears if one.name.endswith("up")]


def offloaded() -> float:
    model, policy = make(), CPUOffloadPolicy(pin_memory=False)
    for block in model:
        block.compile(backend=fp8c.torch.fp8c_backend, options={"strict": True, "timeout": 60})
        fully_shard(block, mesh=mesh_of(2), offload_policy=policy)
    return step(model)


# ---- groups that change ----


def smaller_group() -> list[float]:
    """Behind the forward FSDP2 shards over two ranks instead of four, and gathers from these two in the
    backward. -> The distance of each gradient from that of one process."""
    model, whole = make(), make()
    for block in (*model, *whole):
        block.more.requires_grad_(False)
    for block in model:
        block.compile(backend=fp8c.torch.fp8c_backend, options={"recipe": "f32", "strict": True})
        fully_shard(block, mesh=mesh_of(4), reshard_after_forward=2)
    fully_shard(model, mesh=mesh_of(4))
    step(model)
    for rank in range(4):
        x = torch.randn(4, WIDTH, generator=torch.Generator().manual_seed(rank))
        (whole(x).square().mean() / 4).backward()
    return [float((p.grad.full_tensor() - q.grad).norm() / q.grad.norm())
            for p, q in zip(model.parameters(), whole.parameters()) if p.requires_grad]


def later_group(how: str) -> float:
    """A group for amaxes between forward and backward."""
    model = make()
    loss = spread(model, how, recipe="delayed")(batch()).square().mean()
    fp8c.torch.set_amax_group(model, dist.group.WORLD)
    loss.backward()
    return float(loss.detach())


def sharded_late(between: bool) -> float:
    """FSDP2 shards a model that was called before, behind its backward or between forward and backward."""
    model = make(blocks=1)
    model[0].compile(backend=fp8c.torch.fp8c_backend, options={"timeout": 60})
    loss = model(batch()).square().mean()
    if not between:
        loss.backward()
    fully_shard(model[0], mesh=mesh_of(2))
    if between:
        loss.backward()
    step(model)
    return float(model[0].up.weight.grad.full_tensor().norm())


# ---- what may differ ----


def lengths(how: str) -> list[int]:
    """Rank 1 gets other numbers of rows from the second step on, and then compiles again."""
    model = make()
    call = spread(model, how, timeout=SHORT)
    for rows in (4, 6, 7, 4):
        step(call, batch(on(1, rows, 4)))
    return [len(programs(model)), agreements()]


def first_batch(how: str, rows: int) -> float:
    """Rank 1's first batch has another number of rows."""
    return step(spread(make(), how, timeout=60), batch(on(1, rows, 4)))


def evaluated(when: str) -> float:
    """Rank 0 alone evaluates: before training the model itself ("module", with gradients) or the wrapped
    model ("before"), or after a step ("after")."""
    model = make()
    call = spread(model, "ddp", timeout=SHORT)
    if when == "after":
        step(call)
    if dist.get_rank() == 0:
        with torch.set_grad_enabled(when == "module"):
            (call.module if when == "module" else call)(batch())
    step(call)
    return step(call)


def evaluated_by_name(*rows: int, change: str = "") -> float:
    """Before training rank 0 evaluates the model itself, with inputs by name and of these numbers of rows:
    then dynamo has forgotten the names, or its graph has a dynamic size. change: of rank 1's forward."""
    torch.manual_seed(0)
    model = Named(on(1, change, ""))
    call = spread(model, "ddp", timeout=SHORT)
    if dist.get_rank() == 0:
        for n in rows:
            model(x=batch(n))
    loss = call(x=batch()).square().mean()
    loss.backward()
    return float(loss.detach())


def language_model(kind: str, *lengths: int) -> float:
    """Before training rank 0 evaluates texts of these lengths. With one of another length than in training,
    the causal mask becomes an operand; with one of the same, the graph is made anew for DDP."""
    model, inputs = models.make(kind)
    call = spread(model, "ddp", strict=False)
    ids = inputs["input_ids"]
    if dist.get_rank() == 0:
        with torch.set_grad_enabled(ids.shape[1] in lengths):
            for n in lengths:
                model(input_ids=ids[:, :n], labels=ids[:, :n], use_cache=False)
    loss = call(input_ids=ids, labels=ids, use_cache=False).loss
    loss.backward()
    return float(loss.detach())


def evaluated_and_changed() -> float:
    """Rank 0's graph has a dynamic size; rank 1 has another forward."""
    return evaluated_by_name(7, change="relu")


def two_models(how: str) -> int:
    """Two models with modules of equal names."""
    calls = [spread(make(), how) for _ in range(2)]
    for _ in range(2):
        for call in calls:
            step(call)
    return agreements()


def accumulated() -> int:
    call = spread(make(), "ddp")
    with call.no_sync():
        step(call)
    step(call)
    return agreements()


def agreements() -> int:
    """How many there were in this process."""
    return sum(agreement._counts.values())


def in_group() -> Any:
    """Ranks 0 and 2 train together; rank 1 does something else. Then rank 2 has another recipe."""
    group = dist.new_group([0, 2])
    if dist.get_rank() == 1:
        return None
    found: list[Any] = []
    for recipe in ("current", on(2, "block", "current")):
        torch._dynamo.reset()
        model = make()
        model.compile(backend=fp8c.torch.fp8c_backend, options={"recipe": recipe, "timeout": 60})
        try:
            found.append(step(DistributedDataParallel(model, process_group=group)))
        except Exception as error:
            found.append(Failed(error))
    return found


def hybrid(how: str) -> Any:
    """Rank 3 of a mesh of 2 x 2 has another recipe in its second block, or it has not."""
    model, mesh = make(), mesh_of(2, 2)
    for i, block in enumerate(model):
        recipe = on(3, "block", "current") if i and how == "differs" else "current"
        block.compile(backend=fp8c.torch.fp8c_backend, options={"recipe": recipe, "timeout": 60})
        fully_shard(block, mesh=mesh)
    return step(fully_shard(model, mesh=mesh))


class Differ(BackendTest):
    def each(self, n: int, scenarios: list[tuple[Any, ...]]) -> list[list[Any]]:
        """By scenario: the outcome of each rank."""
        return list(zip(*together(n, each, scenarios, seconds=300)))

    def raises(self, outcome: Any, message: str) -> None:
        self.assertIsInstance(outcome, Failed, f"expected: {message}")
        self.assertRegex(outcome.text, "RanksDiffer")
        self.assertRegex(outcome.message, message)

    def test_graphs(self) -> None:
        """Another forward, recipe, rule, frozen weight or group on rank 1: both ranks say so."""
        cases = []
        for how in ("fsdp", "ddp"):
            cases += [
                (("changed", how, "more"), r"rank 0: [^;]*; rank 1: linear .*more"),
                (("changed", how, "relu"), r"rank 0: \d gelu, 1 stages with ops of .*; rank 1: \d relu"),
                (("changed", how, "break"), r"rank 0: .*linear .*down.*; rank 1: "),
                (("optioned", how, "recipe", "block"), "rank 0: recipe current; rank 1: recipe block\n"),
                (("optioned", how, "rules", ['"*up" = bf16']), 'rank 0: nothing more; rank 1: rule "[*]up" = bf16'),
            ]
        cases.append((("last_changed",), r"rank 0: 1 stages with ops of \w+ (\w+); rank 1: .*ops"))
        cases.append((("evaluated_and_changed",), r"rank 0: 2 gelu; rank 1: 1 gelu, 1 relu\n"))
        # DDP itself refuses ranks that train different parameters.
        cases.append((("frozen", "fsdp"), "rank 0: nothing more; rank 1: frozen .*up.weight"))
        cases.append((("group_on_one", "ddp"), "rank 0: amaxes of its own rank; rank 1: amaxes of ranks 0, 1"))
        for (case, message), outcome in zip(cases, self.each(2, [case for case, _ in cases])):
            for rank in range(2):
                with self.subTest(f"{case} {rank}"):
                    self.raises(outcome[rank], "ranks compiled different graphs: .*" + message)

    def test_failures(self) -> None:
        """A program that rank 1 can't compile: the first one, or that of the second block, which has the
        graph of the first. Rank 0 hears it, and both can go on."""
        cases = [("planted", how, True, nth) for how in ("fsdp", "ddp", "ddp blocks") for nth in (1, 2)
                 if how != "ddp" or nth == 1]
        for case, (zero, one) in zip(cases, self.each(2, cases)):
            with self.subTest(str(case)):
                self.raises(zero[0], r"rank 1 could not compile it: RuntimeError: planted")
                self.assertRegex(one[0].message, "planted")
                self.assertNotRegex(one[0].text, "RanksDiffer")
                self.assertIsInstance(zero[1], float)
                self.assertIsInstance(one[1], float)

    def test_fallback(self) -> None:
        """Without strict PyTorch runs rank 1's graph."""
        cases = [("planted", how, False, 1) for how in ("fsdp", "ddp")]
        for case, outcome in zip(cases, self.each(2, cases)):
            for one in outcome:
                with self.subTest(str(case)):
                    self.raises(one[0], "rank 1: PyTorch runs the graph .*planted")
                    self.assertIsInstance(one[1], float)

    def test_options(self) -> None:
        """An option that rank 1 alone has wrong."""
        for outcome in self.each(2, [("optioned", how, "recipe", "fp7") for how in ("fsdp", "ddp")]):
            self.raises(outcome[0], "rank 1 could not compile it: ValueError: recipe 'fp7' is none of")
            self.assertRegex(outcome[1].message, "recipe 'fp7' is none of")

    def test_late(self) -> None:
        """A late rank, also if it is the one that collects what all have made."""
        for rank, outcome in enumerate(self.each(2, [("late", 0), ("late", 1)])):
            for one in outcome:
                self.raises(one, rf"rank {rank} compiled nothing within {SHORT} seconds \(option `timeout`\)")

    def test_dead(self) -> None:
        zero, one = outcomes(2, dies, "ddp")
        self.raises(zero, f"rank 1 compiled nothing within {SHORT} seconds")
        self.assertRegex(one.message, "rank 1 died with 3")

    def test_dead_store(self) -> None:
        zero, one = outcomes(2, store_dies, free_port())
        self.raises(one, "the store of torch.distributed, which rank 0 or the launcher keeps, does not answer")
        self.assertRegex(zero.message, "rank 0 died with 3")

    def test_groups(self) -> None:
        """A group that is not the default one, and a mesh of 2 x 2."""
        zero, one, two = together(3, in_group)
        self.assertIsNone(one)
        for found in (zero, two):
            self.assertIsInstance(found[0], float)
            self.raises(found[1], "rank 0: recipe current; rank 2: recipe block\n")
        good, bad = self.each(4, [("hybrid", "same"), ("hybrid", "differs")])
        for rank in range(4):
            self.assertIsInstance(good[rank], float, good[rank])
            self.raises(bad[rank], "1: ranks compiled .*: ranks 0, 1, 2: recipe current; rank 3: recipe block\n")


class Refused(BackendTest):
    def test_on_every_rank(self) -> None:
        """Tensor parallelism, alone and with FSDP2, and offload: each rank says so, under strict as an
        error, else in the report."""
        tensor = r"up.weight: it is a DTensor, which tensor parallelism .* splits over ranks: leave it out"
        cases = [(("parallel", sharded, strict), tensor) for sharded in (False, True) for strict in (True, False)]
        cases.append((("offloaded",), r"up.weight: FSDP2 keeps it in .*: leave out offload_policy"))
        for rank, found in enumerate(together(2, each, [case for case, _ in cases])):
            for (case, message), outcome in zip(cases, found):
                with self.subTest(f"{case} {rank}"):
                    if case[0] == "parallel" and not case[2]:
                        self.assertEqual(len(outcome), 2)
                        for reason in outcome:
                            self.assertRegex(reason, message)
                    else:
                        self.assertIsInstance(outcome, Failed)
                        self.assertRegex(outcome.message, message)

    def test_groups_that_change(self) -> None:
        """FSDP2 may gather from fewer ranks in the backward: gradients are right. A group for amaxes can't
        be given behind the first call. A model that was called may be sharded, then called again."""
        for found in together(4, smaller_group):
            self.assertLess(max(found), 2 ** -18)
        cases = [("later_group", "fsdp"), ("later_group", "ddp"), ("sharded_late", False), ("sharded_late", True)]
        for fsdp, ddp, behind, between in together(2, each, cases):
            for one in (fsdp, ddp):
                self.assertRegex(one.message, "set_amax_group comes before the model's first call")
            self.assertGreater(behind, 0.0)
            self.assertGreater(between, 0.0)  # as in PyTorch, the first backward's gradients are lost


class Same(BackendTest):
    def test_may_differ(self) -> None:
        """Nothing waits for a rank that has no reason to compile: with a timeout of a few seconds all of
        this would fail."""
        cases = [("lengths", "fsdp"), ("lengths", "ddp"), ("evaluated", "module"), ("evaluated", "before"),
                 ("evaluated", "after"), ("evaluated_by_name", 4), ("evaluated_by_name", 7),
                 ("evaluated_by_name", 4, 6, 7),
                 ("two_models", "fsdp"), ("two_models", "ddp"), ("accumulated",),
                 *(("first_batch", how, rows) for how in ("fsdp", "ddp") for rows in (1, 2, 7))]
        self.none_fails(cases)

    def test_language_models(self) -> None:
        """Rank 0 alone evaluates texts before training, of the same length or of others."""
        self.none_fails([("language_model", kind, *lengths) for kind in ("gpt2", "llama")
                         for lengths in ((9,), (7, 8))])

    def none_fails(self, cases: list[tuple[Any, ...]]) -> None:
        for rank, found in enumerate(together(2, each, cases, seconds=300)):
            for case, outcome in zip(cases, found):
                with self.subTest(f"{case} {rank}"):
                    self.assertNotIsInstance(outcome, Failed, outcome)

    def test_one_rank(self) -> None:
        """Of one rank, and without torch.distributed, nothing is asked."""
        self.assertEqual(together(1, two_models, "fsdp"), [0])
        self.assertFalse(dist.is_initialized())
        model = make()
        model.compile(backend=fp8c.torch.fp8c_backend, options={"timeout": 1})
        model(torch.randn(4, WIDTH)).sum().backward()
        self.assertEqual(agreements(), 0)


if __name__ == "__main__":
    unittest.main()
