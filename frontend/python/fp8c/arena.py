"""Memory in which several programs run, one at a time."""
from __future__ import annotations

import ctypes
from typing import Callable

from ._handle import Handle, Owner
from ._native import lib
from .context import Context, default_context
from .options import arena_options


class Arena(Owner):
    """An arena for programs of one context and one device, as large as the program that needs most.

        arena = fp8c.Arena()
        train = module.compile(pair=True, arena=arena)
        evaluate = other.compile(inference=True, arena=arena)

    A run waits for runs of other programs with the same arena, in whatever thread. A program with an
    arena has its variables, ports and saved values to itself. Its `info` leaves the arena's bytes out.
    device_alloc(bytes) -> address or 0, device_free(address, bytes): who gives the memory on a GPU;
    those of the programs do not count for it. The memory lives as long as a program that has it."""

    def __init__(self, *, context: Context | None = None,
                 device_alloc: Callable[[int], int] | None = None,
                 device_free: Callable[[int, int], object] | None = None):
        parent, out = (context or default_context())._open(), ctypes.c_void_p()
        made = arena_options(device_alloc, device_free)
        parent.check(lib.arena_create(parent.ptr, ctypes.byref(made.struct), ctypes.byref(out)))
        self._handle = Handle(out.value, lib.arena_destroy, context=parent.ptr,
                              keep=(parent, made.keep))

    @property
    def bytes(self) -> int:
        """The bytes of memory that it holds now."""
        return lib.arena_bytes(self._open().ptr)
