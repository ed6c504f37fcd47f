"""What was decided for a program, and figures: the part of Program that only asks."""
from __future__ import annotations

import ctypes
from typing import Any, Iterator

from . import _header as h
from ._handle import Owner
from ._native import lib
from .records import (Choice, Decision, Device, Info, Memory, Pass, Peak, ProgramDim, Remat,
                      Statistic, Step, Stored, TensorUse, each, record)


class Figures(Owner):
    """Each method gives the records of fp8c.h (fp8c.records), as they are now."""

    def index(self, function: str | int) -> int:
        raise NotImplementedError

    def _list(self, cls: Any, ask: Any, *before: Any) -> list[Any]:
        handle = self._open()
        handle.enter()
        try:
            return list(each(cls, ask, handle.ptr, *before))
        finally:
            handle.lock.release()

    def _one(self, cls: Any, struct: Any, ask: Any, *before: Any) -> Any:
        self._open().call(ask, *before, ctypes.byref(struct))
        return record(cls, struct)

    @property
    def target(self) -> str:
        """The target compiled for: "cpu", "sm_90a"."""
        return self._open().ask(lib.program_target).decode()

    def info(self) -> Info:
        """Memory planned and allocated, GEMMs and kernels executed since the program was made."""
        struct = h.Info()
        self._open().ask(lib.program_info, ctypes.byref(struct))
        return record(Info, struct)

    def decisions(self) -> list[Decision]:
        """One for each GEMM of a linear: its format, its scaling, and why."""
        return self._list(Decision, lib.program_decision)

    def steps(self, function: str | int) -> list[Step]:
        """The steps of a function's plan; seconds with the option `profile`."""
        return self._list(Step, lib.program_step, self.index(function))

    def choices(self) -> list[Choice]:
        """How problems are computed, and whether the tuning database chose that."""
        return self._list(Choice, lib.program_choice)

    def passes(self) -> list[Pass]:
        """The passes of the compile, with their seconds."""
        return self._list(Pass, lib.program_pass)

    def peak(self, function: str | int) -> Peak:
        """The arena of a function at its peak."""
        return self._one(Peak, h.Peak(), lib.program_peak, self.index(function))

    def memory(self, function: str | int) -> list[Memory]:
        """Bytes by category at that peak."""
        return self._list(Memory, lib.program_memory, self.index(function))

    def in_memory(self, function: str | int) -> list[TensorUse]:
        """What is in memory at that peak, the biggest first."""
        return self._list(TensorUse, lib.program_tensor, self.index(function))

    def remat(self, *, memory_bytes: int = 0, memory_share: float = 0.0) -> Remat:
        """What a budget would change, which needs `plan_only`. Without one: what the budget or the
        patterns of the compile changed."""
        return self._one(Remat, h.Remat(), lib.program_remat, memory_bytes, memory_share)

    def dims(self) -> list[ProgramDim]:
        """The dims that are bounds, with their values now."""
        return self._list(ProgramDim, lib.program_dims)

    def values(self) -> list[tuple[int, ...]]:
        """The sets of values of these dims for which the program has a plan."""
        n = len(self.dims())
        return list(self._values(n))

    def _values(self, n: int) -> Iterator[tuple[int, ...]]:
        handle, index = self._open(), 0
        row = (h.i64 * h.MAX_BOUNDS)()
        while not handle.ask(lib.program_values, index, row):
            yield tuple(row[:n])
            index += 1

    def stored(self) -> list[Stored]:
        """The weights that `stored` made FP8."""
        return self._list(Stored, lib.program_stored)

    def statistics(self, function: str | int = "micro_step.stats") -> list[Statistic]:
        """The figures of what `stats` names, as the last run of the function left them."""
        return self._list(Statistic, lib.program_statistic, self.index(function))

    def gpu(self) -> Device:
        """The GPU the program runs on. InputError: it runs on none."""
        return self._one(Device, h.Device(), lib.program_device)
