"""DLPack capsules in both directions, unversioned and versioned (1.x), by ctypes alone."""
from __future__ import annotations

import ctypes
from typing import Any, Callable, Sequence

from . import _header as h

CPU, CUDA = 1, 2
VERSION = (1, 1)
READ_ONLY = 1  # a flag of versioned capsules
_OLD, _NEW = b"dltensor", b"dltensor_versioned"
_USED = b"used_dltensor_versioned"  # the name of a capsule whose tensor was taken

_Deleter = h.DeleterFn
_Versioned = h.ManagedTensor


class _Managed(ctypes.Structure):
    """DLManagedTensor."""
    _fields_ = [("tensor", h.TensorView), ("context", h.ptr), ("deleter", _Deleter)]


def _api(name: str, result: Any, *arguments: Any) -> Any:
    prototype = ctypes.PYFUNCTYPE(result, *arguments)
    return prototype((name, ctypes.pythonapi))


_new = _api("PyCapsule_New", ctypes.py_object, h.ptr, h.text, h.ptr)
_pointer = _api("PyCapsule_GetPointer", h.ptr, ctypes.py_object, h.text)
_rename = _api("PyCapsule_SetName", ctypes.c_int, ctypes.py_object, h.text)
_is = _api("PyCapsule_IsValid", ctypes.c_int, ctypes.py_object, h.text)
# In a destructor the capsule has no references, so it must not become an object of Python's.
_raw_pointer = _api("PyCapsule_GetPointer", h.ptr, h.ptr, h.text)
_raw_is = _api("PyCapsule_IsValid", ctypes.c_int, h.ptr, h.text)

_exported: dict[int, tuple] = {}  # address of a managed tensor -> what it needs to live


@_Deleter
def _forget(address):
    _exported.pop(address, None)


@_Deleter
def _destruct(capsule):
    for name in (_OLD, _NEW):  # one that was consumed has another name, and its consumer deletes
        if _raw_is(capsule, name):
            _exported.pop(_raw_pointer(capsule, name), None)


def export(view: h.TensorView, owner: Any, max_version: tuple[int, int] | None) -> Any:
    """A capsule of a tensor; `owner` lives until the consumer is done."""
    if max_version is not None and max_version[0] >= 1:
        managed: Any = _Versioned(*VERSION, None, _forget, 0, view)
        name = _NEW
    else:
        managed, name = _Managed(view, None, _forget), _OLD
    address = ctypes.addressof(managed)
    _exported[address] = (managed, view, owner)
    return _new(address, name, ctypes.cast(_destruct, h.ptr).value)


def give(addresses: Sequence[int], consumer: Callable[[Any], Any]) -> list[Any]:
    """Give managed tensors (versioned), by their addresses, to a consumer as capsules. -> What it
    returns for each. If it raises, the tensors that it has not taken are deleted."""
    made: list[Any] = []
    try:
        for address in addresses:
            capsule = None
            capsule = _new(address, _NEW, None)
            made.append(consumer(capsule))
    except BaseException:
        taken = len(made) + (capsule is not None and not _is(capsule, _NEW))
        if capsule is not None:
            _rename(capsule, _USED)  # the consumer may have kept it
        for address in addresses[taken:]:
            _Versioned.from_address(address).deleter(address)
        raise
    return made


def take(tensor: Any) -> tuple[h.TensorView, bool, Any]:
    """-> (the view of an object with __dlpack__, whether it is read-only, what keeps it alive)."""
    try:
        capsule = tensor.__dlpack__(max_version=VERSION)
    except TypeError:  # a producer from before DLPack 1.0
        capsule = tensor.__dlpack__()
    if _is(capsule, _NEW):
        new = _Versioned.from_address(_pointer(capsule, _NEW))
        if new.major != 1:
            raise BufferError(f"a DLPack tensor of version {new.major}.{new.minor}: 1.x is known")
        return h.TensorView.from_buffer_copy(new.tensor), bool(new.flags & READ_ONLY), capsule
    if not _is(capsule, _OLD):
        raise BufferError("__dlpack__ gave no capsule with a tensor that nobody has taken")
    old = _Managed.from_address(_pointer(capsule, _OLD))
    return h.TensorView.from_buffer_copy(old.tensor), False, capsule
