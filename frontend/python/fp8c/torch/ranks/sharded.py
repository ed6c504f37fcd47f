"""FSDP2: the parameters that graphs see, and those that the model and its optimizer have.

`fully_shard` makes each parameter a DTensor, of which a rank has a part: its *home*. For the time of a
forward, and again for a backward, FSDP2 gathers the whole into a plain parameter and puts that into the
module. A graph sees the *gathered* parameter alone. It is the same object in each call, but its memory
is freed after the forward and is elsewhere in the backward; and its version never rises. So a
parameter is what it is in graphs, and whether it has changed its home tells.
"""

from __future__ import annotations

import weakref
from typing import Any, Iterable, Iterator

import torch

from .. import private

# By id of a gathered parameter: itself, what FSDP2 knows of it, and its group. None keeps a model alive.
_known: dict[int, tuple[weakref.ref, weakref.ref, weakref.ref]] = {}


class Shard:
    """How FSDP2 shards one parameter.

    home: the DTensor that the model and the optimizer have. It may be replaced, as by `load_state_dict`.
    offload: whether its part lies in memory of the host while it is not gathered.
    groups: the process groups over which it is sharded, then those over which it is replicated: its
    data-parallel ranks.
    """

    def __init__(self, param: Any, group: Any):
        self._param, self._group = param, group

    @property
    def home(self) -> torch.Tensor:
        return self._param.sharded_param

    @property
    def gathered(self) -> torch.Tensor:
        """The parameter that graphs see; a DTensor, if tensor parallelism splits it, too."""
        return self._param._unsharded_param

    @property
    def offload(self) -> bool:
        return bool(self._param.offload_to_cpu)

    @property
    def groups(self) -> list[Any]:
        return private.data_parallel_groups(self._group)

    @property
    def module(self) -> str:
        """The path of the module whose parameters are gathered together; "": that of the root."""
        return self._group._module_fqn or ""

    def version(self) -> int:
        """A number that rises with each change of the home in place."""
        home = self.home
        return int(home._version + home._local_tensor._version)


def shard_of(param: torch.Tensor) -> Shard | None:
    """How a parameter of a graph is sharded; None: FSDP2 has not gathered it."""
    found = _found(param)
    if found is not None:
        return found
    _known.clear()  # of those that are gone
    for one, group in private.fsdp2_params():
        gathered = getattr(one, "_unsharded_param", None)
        if gathered is not None:
            _known[id(gathered)] = weakref.ref(gathered), weakref.ref(one), weakref.ref(group)
    return _found(param)


def _found(param: torch.Tensor) -> Shard | None:
    """What `_known` has of a parameter."""
    references = _known.get(id(param))
    if references is None:
        return None
    gathered, one, group = (reference() for reference in references)
    return Shard(one, group) if gathered is param and one is not None and group is not None else None


def is_home(param: torch.Tensor) -> bool:
    """Whether a model's parameter is a DTensor, as FSDP2 keeps it."""
    return hasattr(param, "_local_tensor")


def is_gathered(param: torch.Tensor) -> bool:
    """Whether a parameter of a graph has its memory now."""
    return param.numel() == 0 or param.untyped_storage().size() > 0


def home_of(param: torch.Tensor) -> torch.Tensor:
    """The parameter of the model that a graph's is gathered from, or itself."""
    if is_home(param):
        return param
    shard = shard_of(param)
    return param if shard is None else shard.home


def as_in_graphs(params: Iterable[torch.Tensor]) -> list[torch.Tensor]:
    """A model's parameters as graphs see them. One that was never gathered stays as it is."""
    gathered = {id(one.sharded_param): one._unsharded_param for one, _ in private.fsdp2_params()
                if getattr(one, "_unsharded_param", None) is not None}
    return [gathered.get(id(param), param) for param in params]


def gathered_params() -> list[torch.Tensor]:
    """All parameters that FSDP2 has gathered once, as graphs see them, in the order in which they were
    sharded."""
    found = (getattr(one, "_unsharded_param", None) for one, _ in private.fsdp2_params())
    return [param for param in found if param is not None]


def parameters(model: torch.nn.Module) -> list[torch.Tensor]:
    """`model.parameters()` as graphs see them."""
    return as_in_graphs(model.parameters())


def named_parameters(model: torch.nn.Module, remove_duplicate: bool = True
                     ) -> Iterator[tuple[str, torch.Tensor]]:
    """`model.named_parameters()` as graphs see them."""
    found = list(model.named_parameters(remove_duplicate=remove_duplicate))
    return zip((name for name, _ in found), as_in_graphs(param for _, param in found))
