"""Memory for results that are given away as DLPack tensors, used again once they are deleted."""
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
    """Lends host memory for the n results of a call, the same memory again and again.

        lender = fp8c.Lender(len(outputs))
        tensors = lender.lend(outputs, torch.from_dlpack)   # `outputs` is Views of host memory
        program.call("eval", inputs, outputs)

    A tensor's memory is lent again when the framework has deleted the tensor and all its views, and
    never before. For each result the lender keeps at most as many blocks of memory as were lent for
    it at one time. It frees blocks that 64 calls did not need; `trim()` and `close()` free all idle
    ones. Tensors may be deleted in any thread, and live on after the lender is closed."""

    def __init__(self, n: int, *, context: Context | None = None):
        parent, out = (context or default_context())._open(), ctypes.c_void_p()
        parent.check(lib.lender_create(parent.ptr, n, ctypes.byref(out)))
        self._handle = Handle(out.value, lib.lender_destroy, context=parent.ptr, keep=parent)
        self._made = (ctypes.c_void_p * max(n, 1))()
        self._n = n

    def lend(self, views: Views, consumer: Callable[[Any], Any]) -> list[Any]:
        """Lend memory for one tensor of each view, and set the address of each view. `consumer`
        takes one DLPack capsule, as `torch.from_dlpack` does. -> What it returns for each tensor.

        `views` has n views of contiguous host tensors; their dtypes and shapes may differ from call
        to call. Another number is a `ValueError`, another view an `InputError`. After an error,
        also one of the consumer, only what the consumer has taken is lent."""
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
        """The bytes of memory that the lender has, lent or idle."""
        return self._open().ask(lib.lender_bytes, 0)

    def trim(self) -> None:
        """Free idle memory."""
        self._open().ask(lib.lender_bytes, 1)
