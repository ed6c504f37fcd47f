"""Amaxes over data-parallel ranks: under `delayed` the ranks of a model have the same scales.

A rank sees the amaxes of its own rows. At the end of a step the ranks exchange them, and each gives its
histories the largest: so all ranks quantize alike, as one process with all rows would. All operands of
an optimizer travel in one exchange. Operands of `current` are scaled by a rank's own values, weights by
those of the whole weight, which every rank gathers: there is nothing to exchange.

Who the data-parallel ranks are, FSDP2 knows. For other models `set_amax_group` says so; without it a
rank keeps its own amaxes.
"""

from __future__ import annotations

import weakref
from typing import Any, Callable, Hashable, Iterable, Mapping, Protocol, Sequence

import torch

from .. import private
from .sharded import Shard, as_in_graphs, gathered_params, home_of

_given: dict[int, tuple[weakref.ref, Any]] = {}  # by id of a model's parameter: its group
Key = tuple[int, str]  # the position of a weight among the optimizer's parameters, and the operand


class Program(Protocol):
    """What this module asks of the scales of a program (scales.py)."""
    bound: Any
    groups: Sequence[Any]
    elements: Sequence[str]

    @property
    def amaxes(self) -> torch.Tensor: ...
    def key(self, element: str) -> tuple[Any, str]: ...
    def take_amaxes(self, amaxes: torch.Tensor) -> None: ...
    def places_in(self, places: tuple[int, ...]) -> torch.Tensor: ...


def give(params: Iterable[torch.Tensor], group: Any) -> None:
    """Exchange amaxes of the programs of these parameters over this group."""
    for param in params:
        _given[id(param)] = weakref.ref(param, lambda _, key=id(param): _given.pop(key, None)), group


def groups_of(params: Sequence[torch.Tensor], shards: Sequence[Shard | None]) -> list[Any]:
    """The process groups over which amaxes of a program with these parameters are exchanged, one after
    the other; none: they are the rank's own. RuntimeError: a group that was given lacks ranks."""
    sharded = next((shard.groups for shard in shards if shard is not None), [])
    for group in given_group(params):
        lacks = sorted(set(private.ranks_of(sharded)) - set(private.ranks_of([group])))
        if lacks:
            raise RuntimeError(
                f"fp8c: the group of set_amax_group has the ranks {private.ranks_of([group])}, but "
                f"FSDP2 shards this model over the ranks {private.ranks_of(sharded)}: "
                f"{', '.join(map(str, lacks))} would have other scales")
        return [group]
    return sharded


def given_group(params: Sequence[torch.Tensor]) -> list[Any]:
    """The process group that `set_amax_group` gave for some of these parameters; none: it gave none."""
    for param in params:
        home = home_of(param)
        reference, group = _given.get(id(home), (None, None))
        if reference is not None and reference() is home:
            return [group]
    return []


def exchange(params: Iterable[torch.Tensor], programs: Sequence[Program], frozen: Sequence[Program] = ()
             ) -> None:
    """At the end of an optimizer's step: give its programs the largest amaxes of all ranks. Every rank
    calls this, with its own parts of the same parameters in the same order. frozen: programs that read
    none of these parameters."""
    position = {id(param): i for i, param in enumerate(as_in_graphs(params))}
    theirs = {id(param) for one in frozen if one.groups for param in one.bound.params}
    for param in _in_order() if theirs else []:
        if id(param) in theirs:
            position.setdefault(id(param), len(position))
    by_groups: dict[tuple[int, ...], list[Program]] = {}
    groups: dict[tuple[int, ...], list[Any]] = {}
    for one in [*programs, *frozen]:
        if one.groups:
            ranks = tuple(private.ranks_of(one.groups))
            by_groups.setdefault(ranks, []).append(one)
            groups[ranks] = one.groups
    for ranks in sorted(by_groups):
        _exchange(by_groups[ranks], groups[ranks], position)


def _in_order() -> list[torch.Tensor]:
    """The parameters whose data-parallel ranks are known, as graphs see them. They were sharded, or given
    a group, in the same order on every rank."""
    given = [param for param in (reference() for reference, _ in list(_given.values())) if param is not None]
    return [*gathered_params(), *as_in_graphs(given)]


def _exchange(members: Sequence[Program], groups: Sequence[Any], position: dict[int, int]) -> None:
    keys = {id(one): _keys(one, position) for one in members}

    def over_ranks(largest: torch.Tensor) -> None:
        for group in groups:
            torch.distributed.all_reduce(largest, torch.distributed.ReduceOp.MAX, group=group)

    with members[0].bound.place.current():
        largest = largest_of(members, keys, over_ranks)
        for one in members:
            one.take_amaxes(largest[id(one)])


def largest_of(members: Sequence[Program], keys: Mapping[int, Sequence[Hashable]],
               then: Callable[[torch.Tensor], None] = lambda _: None) -> dict[int, torch.Tensor]:
    """The largest amaxes that any of some programs saw, for each of them by its id. keys: what its amaxes
    stand for. then: is given all of them before. All of it is enqueued on the current stream."""
    for one in members:
        one.bound.follow_stream()  # the program's work on another stream comes first
    place = {key: i for i, key in enumerate(sorted({k for own in keys.values() for k in own}))}
    device = members[0].amaxes.device
    at = {id(one): one.places_in(tuple(place[k] for k in keys[id(one)])) for one in members}
    largest = torch.zeros(len(place), device=device)
    for one in members:
        # A NaN has no place in an order; an Inf stands for both, and update_scales skips either.
        seen = one.amaxes.nan_to_num(nan=torch.inf, posinf=torch.inf).to(device)
        largest.scatter_reduce_(0, at[id(one)].to(device), seen, "amax")
    then(largest)
    return {id(one): largest.to(one.amaxes.device)[at[id(one)]] for one in members}


def _keys(one: Program, position: dict[int, int]) -> list[Key]:
    """What the elements of a program's amaxes stand for, alike on every rank. A weight may be none of
    this optimizer's: frozen, computed or another optimizer's. Its operands go by their own names, beside
    the first parameter that is."""
    first = min(position.get(id(param), len(position)) for param in one.bound.params)
    found = []
    for element in one.elements:
        param, operand = one.key(element)
        known = position.get(id(param))
        found.append((first, ":" + element) if known is None else (known, operand))
    return found
