"""Ranks that train a model together compile the same graphs, or every rank hears which one does not.

FSDP2 and DDP exchange parameters and gradients. If one rank compiles another graph, or fails to compile
its own, the others wait in a collective that never comes. So at the first compile for some parameters
each rank tells the others what it has made, and none goes on before it knows of all. Later compiles for
the same parameters, as for another length or for an evaluation, differ between ranks, and are not
waited for.

They talk by the store of torch.distributed: a rank writes one key, the first rank reads all of them and
writes a verdict, which each reads. So n ranks need about 3 n requests and n times the words of one
graph, once for each sharded module.
"""

from __future__ import annotations

import json
import re
import threading
import weakref
import zlib
from collections import Counter
from typing import Any, Sequence

import torch

from .. import private
from .amaxes import given_group
from .sharded import shard_of

VERDICT = "verdict"
_LAYERS = frozenset(
    "linear layernorm rmsnorm softmax gelu silu relu sigmoid tanh dropout embedding attention "
    "cross_entropy matmul batch_matmul".split()
)  # ops that no size adds or takes away
_NUMBER = r"\d+(?:\.\d+)?(?:e[-+]?\d+)?"
_lock = threading.Lock()
_agreed: dict[int, weakref.ref] = {}  # by id: parameters that an agreement was about
_counts: dict[str, int] = {}  # how often each group of ranks has agreed on each module
_now = threading.local()  # .outer: the agreement that this thread is in


class RanksDiffer(RuntimeError):
    """Another rank has compiled another graph, has failed, or has not answered. ranks: which."""

    def __init__(self, message: str, ranks: Sequence[int]):
        super().__init__(message)
        self.ranks = list(ranks)


class Agreement:
    """Around a compile, whose result it then compares:

        with Agreement(params, seconds) as agreement:
            ...
            agreement.tell(["recipe current", "linear up", ...], ["ops of checksum 7"], bounds=False)

    What is told is equal if the same was made. The second list is compared only if no rank tells of
    bounds, that is of sizes that are dynamic: a rank that has met other sizes before this compile has
    some, and then a mask is an operand, or the number of rows a value.

    RanksDiffer, when the compile is over: another rank has made something else, or its compile has
    failed. If this rank's compile fails, the others hear that. After either, the next compile agrees
    anew. Nothing happens where no ranks share the parameters, or where they have agreed on all of them
    before. DDP's ranks agree on what is trained: an evaluation may run on one rank alone. A compile
    within another one is a part of that. known: whether the ranks have agreed, now or before, or will by
    the one around it.
    """

    def __init__(self, params: Sequence[torch.Tensor], seconds: int):
        self._params, self._seconds = params, seconds
        self._what: list[str] = []
        self._sized: list[str] = []
        self._bounds = False
        shards = [shard_of(param) for param in params]
        groups = next((one.groups for one in shards if one is not None), [])
        if not groups and torch.is_grad_enabled() and any(param.requires_grad for param in params):
            groups = private.groups_of_ddp() or given_group(params)
        self._ranks = private.ranks_of(groups)
        self._module = next((one.module for one in shards if one is not None), "")
        self._outer: Agreement | None = getattr(_now, "outer", None)
        with _lock:
            new = any(_known(param) is not param for param in params)
            self._waits = len(self._ranks) > 1 and new and self._outer is None
            if self._waits:
                ranks = zlib.crc32(repr(self._ranks).encode())
                name = f"fp8c/{len(self._ranks)}.{ranks:08x}/{self._module}"
                self._name = f"{name}/{_counts.get(name, 0)}"
                _counts[name] = _counts.get(name, 0) + 1
        self.known = bool(params) and not new or self._outer is not None

    @property
    def told(self) -> bool:
        """Whether anything was told."""
        return bool(self._what or self._sized)

    def tell(self, what: Sequence[str], sized: Sequence[str], bounds: bool) -> None:
        """Add to what was made."""
        self._what += what
        self._sized += sized
        self._bounds = self._bounds or bounds

    def __enter__(self) -> Agreement:
        _now.outer = self._outer or self
        return self

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        _now.outer = self._outer
        if self._outer is not None:
            self._outer.tell(self._what, self._sized, self._bounds)
        if not self._waits:
            return
        if error is not None:
            self._fail(error)
            return
        self._hear()
        with _lock:
            for key in [key for key, one in _agreed.items() if one() is None]:
                del _agreed[key]
            _agreed.update({id(param): weakref.ref(param) for param in self._params})
        self.known = True

    def _hear(self) -> None:
        """Tell the others what was made, and hear what they all think of it. Whose time is over decides,
        unless another rank has."""
        me, first = torch.distributed.get_rank(), self._ranks[0]
        try:
            store = private.store(self._name)
            store.set(str(me), json.dumps([self._what, self._sized, self._bounds]))
            wanted = [str(rank) for rank in self._ranks] if me == first else [VERDICT]
            there = private.wait_for(store, wanted, self._seconds)
            verdict = self._decide(store, {}) if me == first or not there else store.get(VERDICT)
        except RuntimeError as error:  # DistError, which older versions lack
            reason = ("the store of torch.distributed, which rank 0 or the launcher keeps, does not answer: "
                      + private.first_line(error))
            raise RanksDiffer(self._text(reason), [0]) from error
        found = json.loads(verdict)
        if found:
            raise RanksDiffer(self._text(found["reason"]), found["ranks"])

    def _fail(self, error: BaseException) -> None:
        """Tell the others that this rank's compile has failed. Its process may end by the error, and the
        store with it, so the others may hear it first."""
        me = torch.distributed.get_rank()
        try:
            store = private.store(self._name)
            self._decide(store, {"reason": f"rank {me} could not compile it: {type(error).__name__}: {error}",
                                 "ranks": [me]})
            store.set(str(me), json.dumps([[], [], False]))
            private.wait_for(store, [str(rank) for rank in self._ranks], self._seconds)
        except RuntimeError:
            pass  # the error itself goes on

    def _decide(self, store: Any, verdict: dict[str, Any]) -> bytes:
        """Write the verdict, or the one that follows from what the ranks have told; -> the one that was
        written first."""
        return store.compare_set(VERDICT, "", json.dumps(verdict or self._judge(store)))

    def _judge(self, store: Any) -> dict[str, Any]:
        """What is wrong, and with which ranks; empty: all have made the same."""
        keys = [str(rank) for rank in self._ranks]
        if not store.check(keys):
            silent = [rank for rank, key in zip(self._ranks, keys) if not store.check([key])]
            return {"reason": f"{names_of(silent)} compiled nothing within {self._seconds} seconds "
                    "(option `timeout`)", "ranks": silent}
        ways: dict[tuple[str, ...], list[int]] = {}
        told = [json.loads(one) for one in store.multi_get(keys)]
        bounds = any(one[2] for one in told)
        for rank, (what, sized, _) in zip(self._ranks, told):
            ways.setdefault(tuple(what if bounds else what + sized), []).append(rank)
        if len(ways) == 1:
            return {}
        by_size = sorted(ways.items(), key=lambda way: -len(way[1]))
        return {"reason": "ranks compiled different graphs: " + _differences(by_size),
                "ranks": [rank for _, ranks in by_size[1:] for rank in ranks]}

    def _text(self, reason: str) -> str:
        return f"fp8c: {self._module or 'the model'}: {reason}"


def _known(param: torch.Tensor) -> torch.Tensor | None:
    """The parameter that an agreement was about, whose id this one has."""
    reference = _agreed.get(id(param))
    return reference() if reference is not None else None


def _differences(ways: Sequence[tuple[Sequence[str], Sequence[int]]]) -> str:
    """What the ranks of each way have that not all have."""
    common = set.intersection(*(set(what) for what, _ in ways))
    texts = []
    for what, ranks in ways:
        own = [part for part in what if part not in common]
        texts.append(f"{names_of(ranks)}: {', '.join(own) or 'nothing more'}")
    return "; ".join(texts)


def layers_of(texts: Sequence[str]) -> list[str]:
    """How many of the ops of the texts are of each kind that a layer has: equal for all sizes."""
    ops = Counter(re.findall(r"^  %\w+ = (\w+)\(", "".join(texts), re.MULTILINE))
    return [f"{ops[op]} {op}" for op in sorted(_LAYERS & ops.keys())]


def ops_of(texts: Sequence[str]) -> str:
    """The ops of the texts of stages, and what each of them reads: equal if ranks compute the same.
    Names of values are left out, which mean nothing. So are numbers and sizes, which
    follow a rank's inputs, whether they are bounds or not."""
    text, numbers = "".join(texts), {}
    dims = re.findall(r"^dim (\w+) <= ", text, re.MULTILINE)
    text = re.sub(r"^(module|dim) .*\n", "", text, flags=re.MULTILINE)
    text = re.sub(r"%(\w+)", lambda found: f"%v{numbers.setdefault(found[1], len(numbers))}", text)
    text = re.sub(rf"\[[^]]*\]|\b(?:{'|'.join([_NUMBER, *dims])})\b", "", text)
    return re.sub(r"(?<== )[-+*/%() ]+(?=[,}])", "", text)  # what is left of an expression of sizes


def names_of(ranks: Sequence[int]) -> str:
    """Ranks in words."""
    return ("rank " if len(ranks) == 1 else "ranks ") + ", ".join(map(str, ranks))
