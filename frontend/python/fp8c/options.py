"""The options of a compile and of opening a file, as keywords."""
from __future__ import annotations

import ctypes
from typing import Any, Callable, Mapping

from . import _header as h
from .context import encode
from .errors import callbacks, guarded


class Options:
    """A struct for C, and what must live as long as it or as the program made with it."""

    def __init__(self, struct: Any, keep: list):
        self.struct = struct
        self.keep = keep


def compile_options(
        *, target: str | None = None, recipe: str | None = None, threads: int = 0,
        no_fuse: bool = False, inference: bool = False, pair: bool = False, profile: bool = False,
        lr: float = 0.0, optimizer_steps: int = 0, keep: str | None = None,
        print_after: str | None = None, write: Callable[[str], object] | None = None,
        no_device: bool = False, device: int = 0, listings: bool = False, text_only: bool = False,
        stream: int = 0, device_alloc: Callable[[int], int] | None = None,
        device_free: Callable[[int, int], object] | None = None, attention: str | None = None,
        calibration: Any = None, stored: str | None = None,
        stored_weights: Mapping[str, str] | None = None, memory_bytes: int = 0,
        memory_share: float = 0.0, checkpoint: str | None = None, recompute: str | None = None,
        plan_only: bool = False, values: str | None = None, observe: bool = False,
        cotangents: str | None = None, gradients_of: str | None = None,
        add_gradients: bool = False, train_step: bool = False, external: str | None = None,
        stats: str | None = None, stats_recipe: str | None = None, dump: str | None = None,
        comm: h.Comm | None = None, ranks: int = 0, zero: int = 0,
        reduce_dtype: str | None = None, reduce_at: str | None = None,
        reduce_order: str | None = None, witness: bool = False,
        frozen: str | None = None) -> Options:
    """fp8c_compile_options by keyword: fp8c.h says what each does. The ones most used:

    target: "cpu" (default), "reference", "cuda", or an architecture as "sm_90a". recipe: "bf16"
    (default), "f32", "delayed", "current", "block", ... with options, as "block {pow2 = true}".
    inference: only `eval`. pair: `forward` and `backward` for a loop of the caller's, with
    gradients_of, cotangents, frozen (name patterns), add_gradients and train_step. memory_bytes or
    memory_share: a budget, kept by recomputing. external: name patterns of variables and ports
    that get no memory from fp8c.

    Python's own: write gets text (str). device_alloc(bytes) -> address or 0, device_free(address,
    bytes). stored_weights: {parameter: recipe}. stream: the address of a CUstream. comm: a struct
    whose callbacks the caller keeps alive, as fp8c_mpi_comm fills it."""
    kept: list = []
    given = dict(locals())
    given.pop("kept")
    if write is not None:
        given["write"] = writer(lambda raw: write(raw.decode("utf-8", "surrogateescape")))
    given["calibration"] = calibration._open().ptr if calibration is not None else None
    given["stream"] = stream or None
    weights = stored_weights or {}
    array = (h.StoredAs * max(len(weights), 1))(
        *[h.StoredAs(name=encode(n), recipe=encode(r)) for n, r in weights.items()])
    given["stored_weights"] = ctypes.addressof(array) if weights else None
    given["n_stored_weights"] = len(weights)
    given["comm"] = ctypes.addressof(comm) if comm is not None else None
    _device_memory(given, kept)
    kept += [array, comm, given["write"], calibration]
    return Options(h.CompileOptions(**_fields(given)), kept)


def open_options(*, target: str | None = None, threads: int = 0, profile: bool = False,
                 device: int = 0, no_device: bool = False, stream: int = 0,
                 device_alloc: Callable[[int], int] | None = None,
                 device_free: Callable[[int, int], object] | None = None,
                 external: str | None = None, comm: h.Comm | None = None) -> Options:
    """fp8c_open_options by keyword; as in `compile_options`."""
    kept: list = []
    given = dict(locals())
    given.pop("kept")
    given["stream"] = stream or None
    given["comm"] = ctypes.addressof(comm) if comm is not None else None
    _device_memory(given, kept)
    kept.append(comm)
    return Options(h.OpenOptions(**_fields(given)), kept)


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
    device_alloc comes out of the call."""
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
        given["device_free"] = h.FreeFn(lambda _, address, size: free(address, size))
    kept += [given["device_alloc"], given["device_free"]]
