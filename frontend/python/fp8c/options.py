"""Options as structs for C: those of a compile (_options.py has the keywords) and of opening a file."""
from __future__ import annotations

import ctypes
import sys
from typing import Any, Callable

from . import _header as h
from .context import encode
from .errors import Unraisable, callbacks, guarded


class Options:
    """A struct for C, and what must live as long as it or as the program made with it."""

    def __init__(self, struct: Any, keep: list):
        self.struct = struct
        self.keep = keep


def fill(struct: Any, given: dict[str, Any]) -> Options:
    """A struct of options from keywords, with what must live as long."""
    given, kept = dict(given), []
    if given.get("write") is not None:
        write = given["write"]
        given["write"] = writer(lambda raw: write(raw.decode("utf-8", "surrogateescape")))
    if given.get("calibration") is not None:
        kept.append(given["calibration"])
        given["calibration"] = given["calibration"]._open().ptr
    if given.get("stored_weights"):
        weights = given["stored_weights"]
        array = (h.StoredAs * len(weights))(
            *[h.StoredAs(name=encode(n), recipe=encode(r)) for n, r in weights.items()])
        given["stored_weights"], given["n_stored_weights"] = ctypes.addressof(array), len(weights)
        kept.append(array)
    else:
        given.pop("stored_weights", None)
    if given.get("arena") is not None:
        kept.append(given["arena"])
        given["arena"] = given["arena"]._open().ptr
    comm = given["comm"]
    given["stream"] = given["stream"] or None
    given["comm"] = ctypes.addressof(comm) if comm is not None else None
    _device_memory(given, kept)
    kept += [comm, given.get("write")]
    return Options(struct(**_fields(given)), kept)


def open_options(*, target: str | None = None, threads: int = 0, profile: bool = False,
                 device: int = 0, no_device: bool = False, stream: int = 0,
                 device_alloc: Callable[[int], int] | None = None,
                 device_free: Callable[[int, int], object] | None = None,
                 external: str | None = None, comm: h.Comm | None = None) -> Options:
    """fp8c_open_options by keyword; as in `_options.compile_options`."""
    return fill(h.OpenOptions, locals())


def arena_options(device_alloc: Callable[[int], int] | None,
                  device_free: Callable[[int, int], object] | None) -> Options:
    """fp8c_arena_options by keyword."""
    given, kept = {"device_alloc": device_alloc, "device_free": device_free}, []
    _device_memory(given, kept)
    return Options(h.ArenaOptions(**_fields(given)), kept)


def _fields(given: dict[str, Any]) -> dict[str, Any]:
    """Values for fields; None leaves a field zero."""
    return {k: encode(v) if isinstance(v, str) else v for k, v in given.items() if v is not None}


def writer(write: Any) -> Any:
    """fp8c_write_fn for a function that takes bytes. The call it is for must keep it."""
    def receive(_, address, size):
        write(ctypes.string_at(address, size))
        return 0
    return h.WriteFn(guarded(receive, 1))


def _device_memory(given: dict[str, Any], kept: list) -> None:
    """The caller's allocator, as functions of C that live as long as the program. An exception in
    device_alloc comes out of the call. One in device_free goes to sys.unraisablehook: Python's
    collector may have ended the program, and then there is no call. While either runs, no other object
    of fp8c's is destroyed."""
    alloc, free = given["device_alloc"], given["device_free"]
    if alloc is not None:
        def allocate(_, size):
            callbacks.depth += 1
            try:
                return alloc(size) or None
            except BaseException as exception:
                callbacks.raised = exception
                return None
            finally:
                callbacks.depth -= 1
        given["device_alloc"] = h.DeviceAllocFn(allocate)
    if free is not None:
        def give_back(_, address, size):
            callbacks.depth += 1
            try:
                free(address, size)
            except BaseException as exception:
                sys.unraisablehook(Unraisable(exception, free, "device_free"))
            finally:
                callbacks.depth -= 1
        given["device_free"] = h.FreeFn(give_back)
    kept += [given["device_alloc"], given["device_free"]]
