"""A training step under DDP whose communication takes half of the backward's time: does it overlap?

usage: PYTHONPATH=frontend/python FP8C_LIBRARY=build/libfp8c.so python bench/torch_ddp.py
           [--recipe current] [--blocks 8] [--width 256] [--rounds 7] [--steps 4] [--json FILE]

Two processes train a GPT-2 with untied embeddings by gloo, each with one thread. No bytes travel: a
communication hook gives each bucket's future to a thread that sleeps, one bucket after the other as on one
wire, by the bucket's share of all bytes. All sleeps together are half of the backward's time, which is
measured first, with a hook that waits for nothing. The ratio is the time of a step with sleeps over one
without: 1 if all of the communication is hidden, and about 1.3 if nothing is. Four ways of compiling:

    whole     DDP(compiled model), option stages = "whole"
    blocks    DDP(compiled model): cut into a stage a block, which is the default under DDP
    each      each block compiled by itself
    compile   torch.compile(DDP(model))

Ways take turns, round by round; a round has a few steps with sleeps and as many without.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import queue
import statistics
import tempfile
import threading
import time
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import transformers

import fp8c.torch

WAYS = ("whole", "blocks", "each", "compile")
VOCABULARY, BATCH, LENGTH, BUCKET_MB = 1024, 4, 128, 2


def gpt2(blocks: int, width: int) -> torch.nn.Module:
    torch.manual_seed(0)
    model = transformers.GPT2LMHeadModel(transformers.GPT2Config(
        n_layer=blocks, n_embd=width, n_head=4, vocab_size=VOCABULARY, n_positions=LENGTH,
        resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, tie_word_embeddings=False))
    model.loss_type = "ForCausalLM"  # else transformers logs within the forward
    return model


class Wire:
    """A hook whose buckets travel one after the other, each for `seconds` by its share of `bytes`."""

    def __init__(self) -> None:
        self.seconds, self.bytes = 0.0, 1
        self.sent: list[float] = []  # when buckets were ready, in seconds of time.perf_counter
        self._queue: queue.Queue[Any] = queue.Queue()
        threading.Thread(target=self._work, daemon=True).start()

    def _work(self) -> None:
        while True:
            future, buffer, seconds = self._queue.get()
            time.sleep(seconds)
            future.set_result(buffer)

    def hook(self, _, bucket):  # type: ignore[no-untyped-def]  # PyTorch takes no annotations that are texts
        buffer = bucket.buffer()
        future: Any = torch.futures.Future()
        self.sent.append(time.perf_counter())
        self._queue.put((future, buffer, self.seconds * buffer.numel() * buffer.element_size() / self.bytes))
        return future


class Run:
    """A model compiled in one way, under DDP."""

    def __init__(self, way: str, given: argparse.Namespace):
        torch._dynamo.reset()
        self.model = gpt2(given.blocks, given.width)
        options = {"recipe": given.recipe, "strict": way != "each"}
        backend = {"backend": fp8c.torch.fp8c_backend, "options": options}
        if way == "each":
            for block in self.model.transformer.h:
                block.compile(**backend)
        elif way != "compile":
            options["stages"] = "whole" if way == "whole" else "auto"
            self.model.compile(**backend)
        ddp = torch.nn.parallel.DistributedDataParallel(self.model, bucket_cap_mb=BUCKET_MB)
        self.wire = Wire()
        ddp.register_comm_hook(None, self.wire.hook)
        self.wire.bytes = 4 * sum(p.numel() for p in self.model.parameters())
        self.call = torch.compile(ddp, **backend) if way == "compile" else ddp
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=1e-3)
        self.ids = torch.randint(VOCABULARY, (BATCH, LENGTH), generator=torch.Generator().manual_seed(1))
        self.seconds: dict[bool, list[float]] = {False: [], True: []}
        self.backward: list[float] = []
        self.first = 0.0

    def step(self, sleeps: float) -> tuple[float, float]:
        """The seconds of a step, without the optimizer, and of its backward."""
        self.optimizer.zero_grad()
        self.wire.seconds, self.wire.sent = sleeps, []
        dist.barrier()
        start = time.perf_counter()
        loss = self.call(input_ids=self.ids, labels=self.ids, use_cache=False).loss
        middle = time.perf_counter()
        loss.backward()
        end = time.perf_counter()
        self.optimizer.step()
        return end - start, end - middle


def work(rank: int, folder: str, given: argparse.Namespace) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=2,
                            timeout=datetime.timedelta(seconds=600))
    runs = {}
    for way in given.ways:
        runs[way] = run = Run(way, given)
        start = time.perf_counter()
        run.step(0.0)
        run.first = time.perf_counter() - start
        run.step(0.0)
    for _ in range(given.rounds):
        for run in runs.values():
            plain = [run.step(0.0) for _ in range(given.steps)]
            run.seconds[False].append(statistics.median(whole for whole, _ in plain))
            run.backward.append(statistics.median(backward for _, backward in plain))
            sleeps = run.backward[-1] / 2
            slept = [run.step(sleeps) for _ in range(given.steps)]
            run.seconds[True].append(statistics.median(whole for whole, _ in slept))
    rows = []
    for way, run in runs.items():
        ratios = [a / b for a, b in zip(run.seconds[True], run.seconds[False])]
        rows.append({"way": way, "ratio": statistics.median(ratios), "least": min(ratios), "most": max(ratios),
                     "step": statistics.median(run.seconds[False]) * 1e3,
                     "backward": statistics.median(run.backward) * 1e3, "first": run.first,
                     "buckets": len(run.wire.sent), "linears": fp8c.torch.report(run.model).counts()})
    if rank == 0:
        with open(f"{folder}/rows", "w") as file:
            json.dump(rows, file)
    dist.barrier()
    os._exit(0)


def main() -> None:
    parser = argparse.ArgumentParser(description="a step under DDP with a hook that sleeps")
    parser.add_argument("--recipe", default="current")
    parser.add_argument("--blocks", type=int, default=8)
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--steps", type=int, default=4, help="of each kind in a round")
    parser.add_argument("--ways", default=",".join(WAYS), type=lambda text: text.split(","))
    parser.add_argument("--json", help="also write the rows into this file")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        mp.start_processes(work, (folder, given), nprocs=2, start_method="spawn")
        with open(f"{folder}/rows") as file:
            rows = json.load(file)
    print(f"torch {torch.__version__}, {platform.machine()}, {os.cpu_count()} CPUs, load {os.getloadavg()[0]:.1f}; "
          f"recipe {given.recipe}, {given.blocks} blocks of {given.width}, {given.rounds} rounds")
    for row in rows:
        print(f"{row['way']:8} ratio {row['ratio']:.3f} ({row['least']:.3f} to {row['most']:.3f})  "
              f"step {row['step']:.0f} ms, backward {row['backward']:.0f} ms, first call {row['first']:.1f} s, "
              f"{row['buckets']} buckets, linears {row['linears']}")
    if given.json:
        with open(given.json, "w") as file:
            json.dump(rows, file, indent=1)


if __name__ == "__main__":
    main()
