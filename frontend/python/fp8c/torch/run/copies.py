"""copy.deepcopy of a model: the copy's scales begin with the histories of the original.

The copy of a parameter gets what `load_state_dict` would give it: the state of the original's scales at
that time. The copy's programs, which are compiled later, begin with it. After that the copy and the
original do not affect each other.
"""

from __future__ import annotations

import threading

import torch

from .. import private
from . import scales, state
from .scales import Scales

_lock = threading.Lock()
_listens = False


def _listen(one: Scales) -> None:
    """Listen for copies once there is a program that keeps histories."""
    global _listens
    with _lock:
        if one.elements and not _listens:
            private.on_deepcopy(_copied)
            _listens = True


def _copied(param: torch.Tensor, copy: torch.Tensor) -> None:
    """Keep the state of a parameter's scales for its copy."""
    programs = [s for s in scales.of_params([param]) if s.elements]
    rows = state.pending_rows(param)
    with torch.device("cpu"):  # whatever the default device is
        for one in state.in_order(programs):
            for element, row in state.rows_of(one):
                owner, operand = one.key(element)
                if owner is param:
                    rows[operand] = row
                elif owner is None:  # the weight is computed: any parameter of the program has it
                    rows[":" + operand] = row
    if rows:
        state.leave(copy, rows, scales.tick())


scales.loaders.append(_listen)
