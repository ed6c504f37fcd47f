"""state_dict and load_state_dict: what scales have seen, apart from the model's own state.

    torch.save({"model": model.state_dict(), "fp8": fp8c.torch.state_dict(model)}, path)

A key is a parameter's name and an operand, "h.0.fc.weight:x". The value has the operand's history,
the amax since the last step and the scale, in this order. The model's own state_dict stays as it is
and needs no fp8c.
"""

from __future__ import annotations

import weakref
from typing import Any, Mapping

import torch

from . import scales
from .scales import AMAX, HISTORY, SCALE, Scales

Rows = dict[str, torch.Tensor]  # by operand
_pending: dict[int, tuple[weakref.ref, Rows, int]] = {}  # by id of a weight; the last: when
_pending_computed: dict[str, tuple[torch.Tensor, int]] = {}  # of linears whose weight is computed


def unwrap(model: torch.nn.Module) -> torch.nn.Module:
    """The model itself, without what torch.compile and DDP put around it."""
    while True:
        inner = getattr(model, "_orig_mod", None)
        if inner is None and isinstance(model, torch.nn.parallel.DistributedDataParallel):
            inner = model.module
        if inner is None:
            return model
        model = inner


def state_dict(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    """The state of the model's scales, by parameter and operand; empty where recipes keep none."""
    model = unwrap(model)
    names = {id(param): name for name, param in model.named_parameters()}
    found: dict[str, torch.Tensor] = {}
    programs = [s for s in scales.of_params(model.parameters()) if s.elements]
    for one in programs:  # a step that was not pushed yet is part of the state
        if one.stepped:
            one.refresh()
    for one in sorted(programs, key=lambda s: (s.pushed, s.dirty)):
        rows = torch.cat([one.read(HISTORY), one.read(AMAX)[:, None], one.read(SCALE)[:, None]], 1)
        for element, row in zip(one.elements, rows):
            param, operand = one.key(element)
            if param is None:
                found[f":{element}"] = row
            elif id(param) in names:
                found[f"{names[id(param)]}:{operand}"] = row
    return found


def load_state_dict(model: torch.nn.Module, state: Mapping[str, torch.Tensor]) -> None:
    """Give the model's scales a state; those of programs that are not compiled yet get theirs when
    they are. Load the model's own state first. ValueError: the model has no such parameter."""
    model = unwrap(model)
    params = dict(model.named_parameters())
    by_param: dict[int, Rows] = {}
    now = scales.tick()
    for key, row in state.items():
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
            _pending[id(param)] = (weakref.ref(param), by_param[id(param)], now)
    for one in scales.of_params(params.values()):
        one.dirty = one.stepped = False
        apply_pending(one)


def apply_pending(one: Scales) -> None:
    """Write what was loaded for the operands of a program, and make its scales from it."""
    if not one.elements or not (_pending or _pending_computed):
        return
    program = one.bound.program
    history, amax, scale = one.read(HISTORY), one.read(AMAX), one.read(SCALE)
    found = False
    for i, element in enumerate(one.elements):
        row = _row(*one.key(element), one.pushed)
        if row is None:
            continue
        found = True
        length = min(history.shape[1], row.numel() - 2)
        history[i].zero_()
        history[i, :length] = row[:length]
        amax[i], scale[i] = row[-2], row[-1]
    if not found:
        return
    for name, value in ((HISTORY, history), (AMAX, amax), (SCALE, scale)):
        one.write(name, value)
    program.run("prepare")
    one.pushed = scales.tick()
    one.dirty = bool((amax != 0).any())
    one.versions = one.bound.now()
    one._look()


def _row(param: Any, operand: str, pushed: int) -> torch.Tensor | None:
    """What was loaded for an operand, unless the program has newer histories."""
    if param is None:
        row, when = _pending_computed.get(operand, (None, 0))
        return row if when > pushed else None
    reference, rows, when = _pending.get(id(param), (None, {}, 0))
    known = reference is not None and reference() is param and when > pushed
    return rows.get(operand) if known else None


scales.loaders.append(apply_pending)
