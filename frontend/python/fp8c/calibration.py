"""Recipe "auto": recipes chosen by measured error and cost."""
from __future__ import annotations

import ctypes
from typing import Any

from ._handle import Handle, Owner
from ._native import lib
from .errors import interruptible
from .module import Module
from ._options import compile_options
from .options import writer
from .program import Program
from .records import Candidate, Trial, each


class Calibration(Owner):
    """Give the variables of `program` values; then for each of a few batches call its micro_step
    and `observe`. A compile with recipe="auto" and calibration=this then chooses for each GEMM.

    error_budget: the relative error of a GEMM's result; 0: 0.1. The options are those of
    `compile_options`, of the program to come."""

    def __init__(self, module: Module, *, error_budget: float = 0.0, **options: Any):
        made = compile_options(**options)
        parent, out = module._open(), ctypes.c_void_p()
        with interruptible():
            parent.check(lib.calibration_create(parent.ptr, ctypes.byref(made.struct), error_budget,
                                                ctypes.byref(out)))
            self._handle = Handle(out.value, lib.calibration_destroy, context=parent.context,
                                  keep=(parent.keep, made.keep))
        self._module = module

    @property
    def program(self) -> Program:
        """The program to run; it belongs to the calibration."""
        handle = self._open()
        ptr = handle.ask(lib.calibration_program)
        return Program(Handle(ptr, _nothing, context=handle.context, keep=handle,
                              lock=handle.lock), self._module.context)

    def observe(self) -> None:
        """Measure what the last micro_step sampled."""
        self._open().call(lib.calibration_observe)

    def trials(self) -> list[tuple[Trial, list[Candidate]]]:
        """What was tried for each GEMM of each linear; candidate 0 is bf16."""
        ptr = self._open().ptr
        return [(t, list(each(Candidate, lib.calibration_candidate, ptr, i)))
                for i, t in enumerate(each(Trial, lib.calibration_trial, ptr))]

    def rules(self) -> str:
        """What was chosen, as lines for the end of a module's text."""
        parts: list[bytes] = []
        self._open().call(lib.calibration_rules, writer(parts.append), None)
        return b"".join(parts).decode()


def _nothing(_: int) -> None:
    """The calibration destroys its program."""
