"""Memory for results that are given away as DLPack's tensors, and used again once they are gone."""
from __future__ import annotations

import ctypes
from typing import Any, Callable

from . import dlpack
from ._handle import Handle, Owner
from ._native import lib
from .context import Context, default_context
from .errors import raise_from
from .tensors import Views


class Lender(Owner):
    """Lends host memory for the tensors of one side of a call, the same memory again and again.

        lender = fp8c.Lender(len(outputs))
        tensors = lender.lend(outputs, torch.from_dlpack)   # `outputs` is Views of host memory
        program.call("eval", inputs, outputs)

    A tensor's memory is lent again when the framework has deleted it, and never before: whoever
    holds the tensor, or a view of it, has it for himself. What was out at one time is kept, place
    by place; what 64 calls did not need, `trim()` and the lender's end give back. The end of a
    lender does not touch tensors that are out."""

    def __init__(self, n: int, *, context: Context | None = None):
        parent, out = (context or default_context())._open(), ctypes.c_void_p()
        parent.check(lib.lender_create(parent.ptr, n, ctypes.byref(out)))
        self._handle = Handle(out.value, lib.lender_destroy, context=parent.ptr, keep=parent)
        self._made = (ctypes.c_void_p * max(n, 1))()
        self._n = n

    def lend(self, views: Views, consumer: Callable[[Any], Any]) -> list[Any]:
        """Put each view of `views`, one for each tensor, on memory that nobody holds. -> What
        `consumer` (`torch.from_dlpack`, for instance) makes of the capsule of each."""
        if len(views) != self._n:
            raise ValueError(f"a lender for {self._n} tensors was asked for {len(views)}")
        handle, made = self._open(), self._made
        handle.enter()
        try:
            status = lib.lender_lend(handle.ptr, views.c, made)
            addresses = made[:self._n]
        finally:
            handle.lock.release()
        if status:
            raise_from(status, lib.context_message(handle.context))
        return dlpack.give(addresses, consumer)

    @property
    def bytes(self) -> int:
        """The bytes that it has, lent or idle."""
        return self._open().ask(lib.lender_bytes)

    def trim(self) -> None:
        """Give idle memory back to the system."""
        self._open().ask(lib.lender_trim)
