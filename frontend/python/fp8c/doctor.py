"""What this machine has, what it can do, what is missing and which packages have it."""
from __future__ import annotations

import ctypes
import os
import warnings
from typing import NamedTuple

from . import _header as h
from . import _native
from ._handle import Handle, Owner
from ._native import lib
from .context import Context, default_context
from .records import Component, Fact, TargetReport, each, plain


class SelfTest(NamedTuple):
    result: h.TestResult
    seconds: float
    detail: str | None


class Doctor(Owner):
    """Looks for everything that fp8c can use, as a program would; libraries that it finds stay
    loaded. cpu_only: look only at what target "cpu" uses."""

    def __init__(self, context: Context | None = None, *, cpu_only: bool = False):
        parent, out = (context or default_context())._open(), ctypes.c_void_p()
        options = h.DoctorOptions(cpu_only=cpu_only)
        parent.check(lib.doctor_create(parent.ptr, ctypes.byref(options), ctypes.byref(out)))
        self._handle = Handle(out.value, lib.doctor_destroy, context=parent.ptr, keep=parent)

    def components(self) -> list[Component]:
        """Libraries: their state, version, place, and the packages that have them."""
        found = each(Component, lib.doctor_component, self._open().ptr)
        return [c._replace(state=h.ComponentState(c.state)) for c in found]

    def facts(self) -> list[Fact]:
        """The CPU, memory, GPUs, the cache, and environment variables that have an effect."""
        return list(each(Fact, lib.doctor_fact, self._open().ptr))

    def targets(self) -> list[TargetReport]:
        """For each target whether it can be compiled for and run here, and if not, why."""
        return list(each(TargetReport, lib.doctor_target, self._open().ptr))

    def test(self, target: int) -> SelfTest:
        """Compile a small module for target number `target`, run it, and compare its bits."""
        struct = h.SelfTest()
        self._open().call(lib.doctor_test, target, ctypes.byref(struct))
        return SelfTest(h.TestResult(struct.result), struct.seconds, plain(struct.detail))


def warn_of_missing() -> None:
    """Warn of what target "cpu" lacks on this machine. Where the loader's cache has all of it, as
    on most machines, that takes well below a millisecond, and nothing is loaded."""
    if os.environ.get("FP8C_NO_WARNING") or not _native.missing():
        return
    with Context(cache_dir="", tuning="") as context, Doctor(context, cpu_only=True) as doctor:
        lacking = [c for c in doctor.components() if c.state != h.ComponentState.OK]
    for c in lacking:
        warnings.warn(f"fp8c can't compile for the CPU: {c.name} ({c.enables}) is missing or does "
                      f"not load: {c.problem}. {c.get} has it", RuntimeWarning, stacklevel=3)
