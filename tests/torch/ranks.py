"""Processes that train together on this machine, by gloo: what tests of several ranks share.

    results = together(2, train, "delayed")     # train("delayed") on each rank; their results
    outcomes(2, train, "delayed")               # the same, with the error of a rank that has failed

`train` is a function of a test file, at its top level: each process imports the file again.
"""

from __future__ import annotations

import datetime
import os
import pickle
import socket
import tempfile
import time
import traceback
from typing import Any, Callable

import torch
import torch.distributed as dist
import torch.multiprocessing as mp


class Failed:
    """What a rank raised. text: its traceback. kind, message: of the exception."""

    def __init__(self, error: BaseException):
        self.kind, self.message = type(error).__name__, str(error)
        self.text = "".join(traceback.format_exception(error))

    def __repr__(self) -> str:
        return f"{self.kind}: {self.message}"


def _process(rank: int, n: int, folder: str, seconds: int, function: Callable[..., Any],
             args: tuple[Any, ...]) -> None:
    torch.set_num_threads(1)
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(n))
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=n,
                            timeout=datetime.timedelta(seconds=seconds))
    try:
        result = function(*args)
    except BaseException as error:  # the parent has it
        result = Failed(error)
    with open(f"{folder}/{rank}.part", "wb") as file:
        pickle.dump(result, file)
    os.rename(f"{folder}/{rank}.part", f"{folder}/{rank}")
    os._exit(0)  # a rank does not wait for those that have failed


def outcomes(n: int, function: Callable[..., Any], *args: Any, seconds: int = 120) -> list[Any]:
    """The result of each of n ranks, or the Failed of a rank that raised. Whoever has not ended after
    `seconds` is killed: TimeoutError."""
    context = mp.get_context("spawn")
    with tempfile.TemporaryDirectory() as folder:
        made = [context.Process(target=_process, args=(rank, n, folder, seconds, function, args))
                for rank in range(n)]
        for process in made:
            process.start()
        end = time.monotonic() + seconds
        for process in made:
            process.join(max(end - time.monotonic(), 0.0))
        late = [rank for rank, process in enumerate(made) if process.is_alive()]
        for process in made:
            process.kill()
            process.join()
        if late:
            raise TimeoutError(f"ranks {late} had not ended after {seconds} seconds")
        results = []
        for rank, process in enumerate(made):
            path = f"{folder}/{rank}"
            if not os.path.exists(path):
                results.append(Failed(RuntimeError(f"rank {rank} died with {process.exitcode}")))
                continue
            with open(path, "rb") as file:
                results.append(pickle.load(file))
        return results


def together(n: int, function: Callable[..., Any], *args: Any, seconds: int = 120) -> list[Any]:
    """The result of each of n ranks. AssertionError: one has failed; it has its traceback."""
    results = outcomes(n, function, *args, seconds=seconds)
    for rank, result in enumerate(results):
        if isinstance(result, Failed):
            raise AssertionError(f"rank {rank}: {result.text}")
    return results


def free_port() -> int:
    """A port of this machine that nobody listens to."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def mesh_of(*sizes: int) -> Any:
    """A mesh of all ranks on the CPU."""
    names = ("replicate", "shard")[-len(sizes):]
    return dist.device_mesh.init_device_mesh("cpu", sizes, mesh_dim_names=names)
