"""Ranks that train a model together compile the same graphs, or every rank hears which one does not.

FSDP2 and DDP exchange parameters and gradients. If one rank compiles another graph, or fails to compile
its own, the others wait in a collective that never comes. So at the first compile for some parameters
each rank tells the others what it has made, and none goes on before it knows of all. Later compiles for
the same parameters, as for another length, differ between ranks, and are not waited for.
"""

from __future__ import annotations

import json
import threading
import time
import weakref
from typing import Any, Sequence

import torch

from . import private
from .amaxes import groups_of
from .sharded import shard_of

_lock = threading.Lock()
_agreed: dict[tuple[int, ...], list[weakref.ref]] = {}  # by ids of parameters
_counts: dict[str, int] = {}  # how often each group of ranks has agreed on each module


class RanksDiffer(RuntimeError):
    """Another rank has compiled another graph, has failed, or has not answered. ranks: which."""

    def __init__(self, message: str, ranks: Sequence[int]):
        super().__init__(message)
        self.ranks = list(ranks)


class Agreement:
    """Around a compile, whose result it then compares:

        with Agreement(params, seconds) as agreement:
            ...
            agreement.what = "2 linears ..."   # what was made, in words that are equal if it is

    RanksDiffer, when the compile is over: another rank has made something else, or its compile has
    failed. If this rank's compile fails, the others hear that. Where no ranks share the parameters, or
    they have agreed before, nothing happens.
    """

    def __init__(self, params: Sequence[torch.Tensor], seconds: int, what: str = ""):
        self._seconds, self.what = seconds, what
        shards = [shard_of(param) for param in params]
        groups = groups_of(params, shards) or private.groups_of_ddp()
        self._ranks = private.ranks_of(groups)
        self._module = next((s.module for s in shards if s is not None), "")
        key = tuple(map(id, params))
        with _lock:
            known = _agreed.get(key)
            new = known is None or any(one() is not p for one, p in zip(known, params))
            self._waits = bool(params) and len(self._ranks) > 1 and new
            if self._waits:
                _agreed[key] = [weakref.ref(param) for param in params]
                name = f"{','.join(map(str, self._ranks))}/{self._module}"
                self._name = f"{name}/{_counts.get(name, 0)}"
                _counts[name] = _counts.get(name, 0) + 1

    def __enter__(self) -> Agreement:
        return self

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if not self._waits:
            return
        if error is None:
            self._hear({"made": self.what})
            return
        try:
            self._hear({"failed": f"{type(error).__name__}: {error}"})
        except RanksDiffer:
            pass  # the error itself goes on

    def _hear(self, own: dict[str, str]) -> None:
        """Tell the first rank, which hears all and tells all what it has heard."""
        me, first = torch.distributed.get_rank(), self._ranks[0]
        store = private.store(f"fp8c/{self._name}")
        store.set(str(me), json.dumps(own))
        if me == first:
            end = time.monotonic() + self._seconds
            told = {rank: private.wait_for(store, str(rank), end - time.monotonic())
                    for rank in self._ranks}
            store.set("all", json.dumps(told))
        else:
            # The first rank may be as late as any, and then waits for the others.
            heard = private.wait_for(store, "all", 2 * self._seconds + 10)
            if heard is None:
                raise RanksDiffer(self._text(f"rank {first} has told nothing of its compile within "
                                             f"{self._seconds} seconds"), [first])
            told = {int(rank): one for rank, one in json.loads(heard).items()}
        self._judge({rank: one and json.loads(one) for rank, one in told.items()})

    def _judge(self, told: dict[int, Any]) -> None:
        silent = [rank for rank, one in told.items() if one is None]
        if silent:
            raise RanksDiffer(self._text(f"{_names(silent)} compiled nothing within {self._seconds} "
                                         "seconds (option `timeout`)"), silent)
        failed = [rank for rank, one in told.items() if "failed" in one]
        if failed:
            raise RanksDiffer(self._text(f"rank {failed[0]} could not compile it: "
                                         f"{told[failed[0]]['failed']}"), failed)
        ways: dict[str, list[int]] = {}
        for rank, one in told.items():
            ways.setdefault(one["made"], []).append(rank)
        if len(ways) > 1:
            by_size = sorted(ways.items(), key=lambda way: -len(way[1]))
            texts = "; ".join(f"{_names(ranks)}: {what}" for what, ranks in by_size)
            raise RanksDiffer(self._text(f"ranks compiled different graphs: {texts}"),
                              [rank for _, ranks in by_size[1:] for rank in ranks])

    def _text(self, reason: str) -> str:
        return f"fp8c: {self._module or 'the model'}: {reason}"


def _names(ranks: Sequence[int]) -> str:
    return ("rank " if len(ranks) == 1 else "ranks ") + ", ".join(map(str, ranks))
