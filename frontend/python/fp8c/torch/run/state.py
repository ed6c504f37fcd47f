"""state_dict and load_state_dict: what scales have seen, apart from the model's own state.

    torch.save({"model": model.state_dict(), "fp8": fp8c.torch.state_dict(model)}, path)

A key is a parameter's name and an operand, "h.0.fc.weight:x". The value has the operand's history,
the amax since the last step and the scale, in this order. The model's own state_dict stays as it is
and needs no fp8c.

torch.distributed.checkpoint loads into a state that is there already, but a model that was not called
yet has no programs, and so no scales. `ScalesState` gives it one value, of any size:

    state = {"model": ..., "optimizer": ..., "fp8": fp8c.torch.ScalesState(model)}
    torch.distributed.checkpoint.save(state, checkpoint_id=folder)      # or load
"""

from __future__ import annotations

import io
import weakref
from typing import Any, Iterator, Mapping, Sequence

import torch

from ..private import unwrap
from ..ranks import gathered
from ..ranks.sharded import home_of, named_parameters
from . import scales
from .scales import AMAX, HISTORY, SCALE, Scales

# A step is over whose amaxes are not pushed: that needs parameters that FSDP has not gathered now.
STEPPED = ":stepped"
Rows = dict[str, torch.Tensor]  # by operand
_pending: dict[int, tuple[weakref.ref, Rows, int]] = {}  # by id of a weight; the last: when
_pending_steps: set[int] = set()  # when states were loaded that have STEPPED
_pending_computed: dict[str, tuple[torch.Tensor, int]] = {}  # of linears whose weight is computed


def state_dict(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    """The state of the model's scales, by parameter and operand; empty where recipes keep none."""
    model = unwrap(model)
    names = {id(param): name for name, param in named_parameters(model)}
    found: dict[str, torch.Tensor] = {}
    programs = [s for s in scales.of_params(model.parameters()) if s.elements]
    if any(s.due and not s.bound.can_run() for s in programs):
        found[STEPPED] = torch.ones(1)
    for one in in_order(programs):
        for element, row in rows_of(one):
            param, operand = one.key(element)
            if param is None:
                found[f":{element}"] = row
            elif id(param) in names:
                found[f"{names[id(param)]}:{operand}"] = row
    for name, param in model.named_parameters():  # loaded, and no program has taken it yet
        if not scales.of_params([param]):
            rows, when = _left_for(home_of(param))
            found |= {f"{name}:{operand}": row for operand, row in rows.items()}
            if when in _pending_steps:
                found[STEPPED] = torch.ones(1)
    return found


def scales_of_inputs(model: torch.nn.Module) -> dict[str, float]:
    """By the name of a linear's weight: what `delayed` multiplies its input by before it is rounded to codes. Linears
    whose inputs no step has seen are left out."""
    model = unwrap(model)
    names = {id(param): name for name, param in named_parameters(model)}
    found: dict[str, float] = {}
    for one in in_order([s for s in scales.of_params(model.parameters()) if s.elements]):
        factors, seen = one.read(SCALE), one.read(HISTORY).amax(1) > 0
        for i, element in enumerate(one.elements):
            for name in [element, *one.bound.program.aliases(HISTORY, i)]:
                param, operand = one.key(name)
                if operand == "x" and param is not None and id(param) in names and seen[i]:
                    found[names[id(param)]] = float(factors[i])
    return found


class ScalesState:
    """The scales of a model for torch.distributed.checkpoint: a Stateful. All ranks have the same; save
    them behind an optimizer step, since before it a rank knows its own amaxes alone."""

    def __init__(self, model: torch.nn.Module):
        self._model = model

    def state_dict(self) -> dict[str, bytes]:
        file = io.BytesIO()
        torch.save(state_dict(self._model), file)
        return {"scales": file.getvalue()}

    def load_state_dict(self, state: Mapping[str, bytes]) -> None:
        """Load the model's own state first. ValueError: as `load_state_dict`."""
        load_state_dict(self._model, torch.load(io.BytesIO(state["scales"]), weights_only=True))


def in_order(programs: Sequence[Scales]) -> list[Scales]:
    """The scales of programs, with the newest last. A step that is not pushed yet is part of the state,
    so it is pushed first."""
    for one in programs:
        if one.stepped and one.bound.can_run():
            with one.bound.placed():
                one.refresh()
    return sorted(programs, key=lambda s: (s.pushed, s.dirty))


def rows_of(one: Scales) -> Iterator[tuple[str, torch.Tensor]]:
    """The state of each operand of a program."""
    rows = torch.cat([one.read(HISTORY), one.read(AMAX)[:, None], one.read(SCALE)[:, None]], 1)
    return zip(one.elements, rows)


def load_state_dict(model: torch.nn.Module, state: Mapping[str, torch.Tensor]) -> None:
    """Give the model's scales a state; those of programs that are not compiled yet get theirs when
    they are. Load the model's own state first. ValueError: the model has no such parameter."""
    model = unwrap(model)
    params = dict(model.named_parameters())
    by_param: dict[int, Rows] = {}
    now = scales.tick()
    if STEPPED in state:
        _pending_steps.add(now)
    gathered.stale(params.values())
    for key, row in state.items():
        if key == STEPPED:
            continue
        name, _, operand = key.rpartition(":")
        if not isinstance(row, torch.Tensor) or row.dim() != 1 or row.numel() < 3:
            raise ValueError(f"{key!r} is no state of a scale")
        if name and name not in params:
            raise ValueError(f"the state has scales of {name!r}, and the model has no such parameter")
        if name:
            by_param.setdefault(id(params[name]), {})[operand] = row
        else:
            _pending_computed[operand] = (row, now)
    for param in params.values():
        if id(param) in by_param:
            leave(home_of(param), by_param[id(param)], now)
    for one in scales.of_params(params.values()):
        one.dirty = one.stepped = False
        apply_pending(one)


def leave(param: torch.Tensor, rows: Rows, now: int) -> None:
    """Keep the state of a parameter's operands for the programs that will be compiled with it."""
    key = id(param)

    def gone(reference: weakref.ref) -> None:
        if _pending.get(key, (None,))[0] is reference:
            del _pending[key]

    _pending[key] = (weakref.ref(param, gone), rows, now)


def _left_for(param: torch.Tensor) -> tuple[Rows, int]:
    """What `leave` keeps for a parameter, and since when."""
    reference, rows, when = _pending.get(id(param), (None, {}, 0))
    return (rows, when) if reference is not None and reference() is param else ({}, 0)


def pending_rows(param: torch.Tensor) -> Rows:
    """What `leave` keeps for a parameter."""
    return dict(_left_for(param)[0])


def apply_pending(one: Scales) -> None:
    """Write what was loaded for the operands of a program, and make its scales from it."""
    if not one.elements or not (_pending or _pending_computed):
        return
    program = one.bound.program
    history, amax, scale = one.read(HISTORY), one.read(AMAX), one.read(SCALE)
    found = []
    for i, element in enumerate(one.elements):
        row, when = _row(*one.key(element), one)
        if row is None:
            continue
        found.append(when)
        length = min(history.shape[1], row.numel() - 2)
        history[i].zero_()
        history[i, :length] = row[:length]
        amax[i], scale[i] = row[-2], row[-1]
    if not found:
        return
    for name, value in ((HISTORY, history), (AMAX, amax), (SCALE, scale)):
        one.write(name, value)
    if one.bound.can_run():
        with one.bound.placed():
            program.run("prepare")
    else:
        one.unprepared = True
    one.unsure = True  # whoever has codes that travel compares scales again
    one.pushed = min(found)  # no newer than its oldest row: others may still take what is left for them
    one.dirty = bool((amax != 0).any())
    one.stepped = one.dirty and not _pending_steps.isdisjoint(found)
    one.versions = one.bound.now()
    one.look()


def _row(param: Any, operand: str, one: Scales) -> tuple[torch.Tensor | None, int]:
    """What was loaded for an operand, unless the program has newer histories, and when. param: None:
    the weight is computed."""
    if param is not None:
        return _left(param, operand, one.pushed)
    row, when = _pending_computed.get(operand, (None, 0))
    if row is not None and when >= one.pushed:
        return row, when
    left = (_left(param, ":" + operand, one.pushed) for param in one.bound.params)
    return next((found for found in left if found[0] is not None), (None, 0))


def _left(param: torch.Tensor, operand: str, pushed: int) -> tuple[torch.Tensor | None, int]:
    rows, when = _left_for(home_of(param))
    return (rows.get(operand), when) if when >= pushed else (None, 0)


def _earlier(weight: gathered.Weight) -> float | None:
    """The largest earlier amax of a weight in what was loaded before a program was compiled with it."""
    _, rows, when = _pending.get(id(weight.param.sharded_param), (None, {}, 0))
    rows = pending_rows(weight.param.sharded_param)
    if "w" not in rows:
        return None
    stepped = when in _pending_steps and any(float(row[-2]) != 0 for row in rows.values())
    count = weight.weights.scaling.history - stepped
    return float(rows["w"][:-2][:count].amax()) if count else 0.0


scales.loaders.append(apply_pending)
gathered.earlier.append(_earlier)
