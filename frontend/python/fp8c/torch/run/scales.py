"""Scales: when histories are pushed, and how programs of one model share them.

A backward records the amaxes of its operands; a forward changes nothing. Histories are pushed once
an optimizer step, however many backwards came before. Who says that a step was:

    a hook of PyTorch's that runs after each step of any torch.optim.Optimizer
    update_scales(model), for optimizers that are none
    the versions and addresses of parameters, where neither of them spoke

The push itself waits for the next call of the program, so that nothing is done for one that is not
used again. A recompile (another shape, eval) is another program. Programs that share parameters are
a family: amaxes of one step are joined before each pushes them, and a program that has missed steps
takes the histories of those that have not, by operands' names.
"""

from __future__ import annotations

import itertools
import threading
import weakref
from typing import Any, Callable, Iterable, Protocol, Sequence

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook

from ..private import ranks_of, unwrap
from ..ranks import amaxes, gathered
from ..ranks.sharded import as_in_graphs
from .seen import Seen

AMAX, HISTORY, SCALE = "fp8.amax", "fp8.amax_history", "fp8.scale"
STATES = (HISTORY, AMAX, SCALE)

_of_param: dict[int, "weakref.WeakSet[Scales]"] = {}  # id of a parameter -> who reads it
_frozen: "weakref.WeakSet[Scales]" = weakref.WeakSet()  # who reads frozen parameters alone
_clock = itertools.count(1)
_guard = threading.RLock()
_hooked = False


loaders: list[Callable[["Scales"], None]] = []  # give new scales what was loaded for them before


class Bound(Protocol):
    """What this module asks of a program that is bound to its parameters (bound.py)."""
    program: Any
    stage: Any
    params: Sequence[torch.Tensor]
    settings: Any
    groups: Sequence[Any]
    device: torch.device
    place: Any

    def now(self) -> Any: ...
    def bind(self) -> Any: ...
    def settle(self, what: str) -> None: ...
    def follow_stream(self) -> None: ...
    def placed(self) -> Any: ...
    def can_run(self) -> bool: ...


class Scales:
    """The scales of one program.

    pushed: when histories were pushed or taken; 0: never. pushes: how often they were pushed.
    steps: how often an optimizer has changed parameters; versions do not tell where it is a fused one.
    """

    def __init__(self, bound: Bound):
        self.bound = bound
        program = bound.program
        self.has_update = program.has("update_scales")
        self.has_prepare = program.has("prepare")
        names = program.variables
        self.delayed = HISTORY in names or SCALE in names
        self.elements = program.elements(HISTORY) if HISTORY in names else []
        self.seen = None
        if HISTORY in names:
            self.seen = Seen(lambda: self.read(HISTORY), self._aside if bound.device.type == "cuda" else None)
        self.dirty = self.stepped = False
        # Whether scales of weights may be others than those of the codes that have travelled.
        self.unsure = any(gathered.weight_of_gathered(param) is not None for param in bound.params)
        self.unprepared = False  # scales were loaded while FSDP had not gathered the weights
        self.pushed = self.pushes = self.steps = 0
        self.versions = bound.now()
        self.groups = bound.groups if self.elements and self.has_update else []
        self._amaxes = self._memory_of_amaxes() if self.groups else None
        self._places: tuple[tuple[int, ...], torch.Tensor] | None = None
        self.weights = {linear.name: linear.weight for linear in bound.stage.linears}
        by_path = {p.path: param for p, param in zip(bound.stage.params, bound.params)}
        self.params = {name: by_path.get(path) for name, path in self.weights.items()}
        _install_hook()
        with _guard:
            for param in bound.params:
                _of_param.setdefault(id(param), weakref.WeakSet()).add(self)
            if self.has_update and not any(param.requires_grad for param in bound.params):
                _frozen.add(self)
        if self.has_prepare:
            with bound.placed():
                program.run("prepare")
            with _guard:
                if any(s.due for s in self.family()):
                    self._push_family()
                self._catch_up()
        self._load_pending()
        self.look()

    # ---- what happens to a program ----

    def backward_ran(self) -> None:
        """Amaxes are waiting to be pushed."""
        self.dirty = True

    def step(self, changed: set[int]) -> None:
        """The optimizer has stepped. changed: ids of the parameters that had gradients."""
        self.stepped = True
        self.steps += any(id(param) in changed for param in self.bound.params)

    def take_amaxes(self, amaxes: torch.Tensor) -> None:
        """The amaxes of this step over all ranks. On another rank an operand may have seen values that
        it has not seen here."""
        self.amaxes.copy_(amaxes)
        if self.dirty or (self.bound.place.on_gpu and any(s.dirty for s in self.family())):
            return  # it takes the histories of the one that is pushed, and has nothing to push itself
        # On a GPU the host waits here for the answer, but only if this rank has run no backward of these
        # weights in the step.
        self.dirty = bool(amaxes.any())

    @property
    def amaxes(self) -> torch.Tensor:
        """The amaxes since the last push, where they lie: use them between `follow_stream` and the next
        run of the program."""
        if self._amaxes is None:
            self._amaxes = self._memory_of_amaxes()
        return self._amaxes

    def _memory_of_amaxes(self) -> torch.Tensor:
        return torch.from_dlpack(self.bound.program.tensor(AMAX))

    def places_in(self, places: tuple[int, ...]) -> torch.Tensor:
        """Numbers for its amaxes, on their device; they hardly ever change."""
        if self._places is None or self._places[0] != places:
            self._places = places, self.bound.place.upload(places, torch.int64)
        return self._places[1]

    @property
    def due(self) -> bool:
        """Whether a step is over whose amaxes were not pushed."""
        return self.dirty and (self.stepped or self.bound.now() != self.versions)

    def refresh(self) -> list[int]:
        """Before a call: bring parameters, histories and scales up to date. -> The versions of the
        parameters at that time (`Bound.now`)."""
        moved = self.bound.bind()
        versions = self.bound.now()
        if not self.has_prepare:
            return versions
        changed = moved or self.stepped or versions != self.versions
        if not changed and not self.unprepared and not self.unsure and not self._behind():
            return versions
        with _guard:
            if changed:
                self.stepped = True
                self._push_family()
            done = self._catch_up()
            if (self.stepped or self.unprepared) and not done:
                self._run("prepare")  # only weights have changed
            self.stepped = self.unprepared = self.unsure = False
            self.versions = versions
            if done:
                self.look()
            self._check_codes()
        return versions

    def _run(self, function: str) -> None:
        self.bound.settle("a parameter")
        with self.bound.placed():
            self.bound.program.run(function)

    def _push_family(self) -> None:
        """Push the amaxes of the step: those of each member that ran backward in it."""
        members = [s for s in self.family() if s.dirty and s.bound.can_run()]
        members += [self] if self.dirty else []
        if len(members) > 1:
            _join(members)
        now = tick()
        for one in members:
            if one is not self:  # `refresh` has bound its parameters
                one.bound.bind()
            if one.has_update:
                one._run("update_scales")
                one.pushes += 1
                if one.seen:
                    one.seen.pushed()
            one.dirty = one.stepped = False
            one.pushed = now
            one.versions = one.bound.now()

    def applies(self) -> bool:
        """Whether amaxes that are pushed now come into the histories: all are finite, also those of the
        weights that travel as codes."""
        weights = [w for w in map(gathered.weight_of_gathered, self.bound.params) if w is not None]
        return bool(self.read(AMAX).isfinite().all()) and all(bool(w.amax.isfinite().all()) for w in weights)

    def _behind(self) -> bool:
        return self.delayed and not self.dirty and any(s.pushed > self.pushed for s in self.family())

    def _catch_up(self) -> bool:
        """Take the histories of those that were pushed since; -> whether `prepare` has run."""
        if not self.delayed or self.dirty:
            return False
        newer = [s for s in self.family() if s.pushed > self.pushed and s.elements]
        newer = [s for s in newer if set(s.elements) & set(self.names()) and s.same_weights(self)]
        for one in sorted(newer, key=lambda s: s.pushed):
            self.bound.settle("a parameter")
            with self.bound.placed():
                one.bound.follow_stream()
                self.bound.program.carry_from(one.bound.program)
            self.pushed = one.pushed
        return bool(newer)

    def _check_codes(self) -> None:
        """Fp8GatherError: a weight has travelled as codes of another scale than the program has for it."""
        if not self.elements:
            return
        travel = [(i, gathered.weight_of_gathered(param)) for i, (param, operand)
                  in enumerate(map(self.key, self.elements)) if operand == "w" and param is not None]
        travel = [(i, weight) for i, weight in travel if weight is not None]
        scale = self.read(SCALE) if travel else None
        for i, weight in travel:
            gathered.same_scale(weight, scale[i])

    def names(self) -> list[str]:
        """The names of all operands with a scale, aliases too."""
        program = self.bound.program
        state = HISTORY if HISTORY in program.variables else SCALE
        found = []
        for i, name in enumerate(program.elements(state)):
            found += [name, *program.aliases(state, i)]
        return found

    def family(self) -> list["Scales"]:
        """The other programs that read one of these parameters under the same recipe."""
        found: dict[int, Scales] = {}
        for param in self.bound.params:
            for one in _of_param.get(id(param), ()):
                found[id(one)] = one
        found.pop(id(self), None)
        return [s for s in found.values() if s.bound.settings == self.bound.settings]

    def same_weights(self, other: "Scales") -> bool:
        """Whether linears of one name have one weight: names are relative to what was compiled."""
        return all(self.params[n] is other.params[n] for n in self.params.keys() & other.params.keys())

    @property
    def first(self) -> bool:
        """Whether an operand has seen no amax yet: then forward.first, which scales it by its own."""
        if self.seen:
            return self.seen.empty
        return self.delayed and self.pushed == 0  # a program for inference has scales without histories

    def look(self) -> None:
        """The histories were written. On a GPU this waits for the program."""
        if self.seen:
            self.seen.changed()

    def _aside(self) -> tuple[torch.Tensor, Callable[[], bool]]:
        """Begin to copy the histories of a program on a GPU (seen.py)."""
        histories = torch.from_dlpack(self.bound.program.tensor(HISTORY))
        copy = torch.empty(histories.shape, dtype=histories.dtype, pin_memory=True)
        copy.copy_(histories, non_blocking=True)
        arrived = torch.cuda.Event()
        arrived.record()
        return copy, arrived.query

    # ---- values ----

    def read(self, state: str) -> torch.Tensor:
        """A copy of a state."""
        variable = self.bound.program.variable(state)
        out = torch.empty(variable.type.shape, dtype=torch.float32)
        self.bound.program.read(state, out)
        return out

    def write(self, state: str, value: torch.Tensor) -> None:
        self.bound.settle("a scale")
        self.bound.program.write(state, value.contiguous())

    def key(self, element: str) -> tuple[Any, str]:
        """The weight and the operand that an element stands for; None: the weight is computed."""
        for name in sorted(self.params, key=len, reverse=True):
            if element.startswith(name + "."):
                param = self.params[name]
                return (param, element[len(name) + 1:]) if param is not None else (None, element)
        return None, element

    def _load_pending(self) -> None:
        """Take what load_state_dict left for these parameters."""
        for load in loaders:
            load(self)


def tick() -> int:
    """A number that is larger than all before."""
    return next(_clock)


def set_amax_group(model: torch.nn.Module, group: Any) -> None:
    """Exchange the amaxes of `delayed` over the ranks of a torch.distributed process group at each
    optimizer step. Call it on every rank before the model's first call.

    For FSDP2 the group is known. Another one may have more ranks, as where tensor parallelism splits a
    weight, but it has to have all data-parallel ranks: with fewer, ranks would quantize differently.
    ValueError: a program is compiled already. RuntimeError, in the first call: ranks are missing.
    """
    params = list(unwrap(model).parameters())
    if of_params(params):
        raise ValueError("set_amax_group comes before the model's first call")
    amaxes.give(params, group)


def _join(members: Sequence[Scales]) -> None:
    """Give each the largest amax that any of them saw of an operand."""
    keys = {id(one): [(id(k[0]), k[1]) for k in map(one.key, one.bound.program.elements(AMAX))]
            for one in members if AMAX in one.bound.program.variables}
    members = [one for one in members if keys.get(id(one))]
    if members:
        with members[0].bound.place.current():
            largest = amaxes.largest_of(members, keys)
            for one in members:
                one.amaxes.copy_(largest[id(one)])


def _earlier(weight: gathered.Weight) -> float | None:
    """The largest earlier amax from which the scale of a weight under `delayed` will follow in the next
    call; None: no program has a history of it. A step is pushed then, whose newest amax is the present."""
    count = weight.weights.scaling.history
    rows = [(one, i) for one in of_params([weight.param.sharded_param]) if one.elements
            for i, key in enumerate(map(one.key, one.elements))
            if key[1] == "w" and key[0] is not None and gathered.weight_of_gathered(key[0]) is weight]
    if not rows:
        return None
    newest, i = max(rows, key=lambda row: row[0].pushed)
    due = [one for one, _ in rows if one.due]
    if any(one.applies() for one in due):
        count -= 1
    return float(newest.read(HISTORY)[i, :count].amax()) if count else 0.0


gathered.earlier.append(_earlier)


def of_params(params: Iterable[torch.Tensor]) -> list[Scales]:
    """The scales of all programs that read one of these parameters of a model."""
    found: dict[int, Scales] = {}
    for param in as_in_graphs(params):
        for one in _of_param.get(id(param), ()):
            if any(p is param for p in one.bound.params):  # an id may have been used again
                found[id(one)] = one
    return list(found.values())


def _install_hook() -> None:
    """One hook for all optimizers. Fused ones write parameters without raising their versions."""
    global _hooked
    with _guard:
        if not _hooked:
            register_optimizer_step_post_hook(_after_step)
            _hooked = True


def _after_step(optimizer: Any, *_: Any) -> None:
    _step([p for group in optimizer.param_groups for p in group["params"]])


def _step(params: Sequence[torch.Tensor]) -> None:
    programs = of_params(params)
    frozen = _beside(programs)
    amaxes.exchange(params, programs, frozen)
    in_graphs = as_in_graphs(params) if programs else []
    changed = {id(seen) for seen, param in zip(in_graphs, params) if param.grad is not None}
    for one in programs:
        one.step(changed)
    for one in frozen:
        one.stepped |= one.dirty


def _beside(programs: Sequence[Scales]) -> list[Scales]:
    """The programs that no optimizer tells of a step, since all their weights are frozen, as those of a
    head beside adapters. A step of any optimizer whose programs have amaxes of the same ranks is
    theirs, too."""
    if not _frozen:
        return []
    ranks = {tuple(ranks_of(one.groups)) for one in programs}
    with _guard:
        return [one for one in _frozen if tuple(ranks_of(one.groups)) in ranks and one not in programs]


def update_scales(model: torch.nn.Module) -> None:
    """Say that an optimizer step of this model is over. Only for optimizers that are no
    torch.optim.Optimizer: those say it themselves. A second call without a backward in between
    pushes nothing."""
    params = list(model.parameters())
    gathered.stepped(params)
    _step(params)
