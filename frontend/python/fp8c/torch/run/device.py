"""Where a program runs: the CPU, or a GPU with the stream and the memory that PyTorch uses there.

On a GPU nothing is the program's own:

    stream   the one that is current when a call begins. Autograd runs a backward on the stream of its
             forward, so that one is current there, too. Nothing waits for it
    memory   of PyTorch's caching allocator, so that `torch.cuda.max_memory_allocated` counts it, and
             what a program gives back serves PyTorch's tensors. fp8c waits for its work before it
             frees memory, so a block may be used on another stream than the one it was allocated on
    device   the current one while a program is called; the caller's is current again afterwards

All tensors that fp8c.torch makes itself are made and used on the current stream, so none of them
needs `record_stream`. For an input that was made on another stream the rule is that of any op of
PyTorch's: who makes the call waits for that stream before it and calls `record_stream` on the input.
"""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, Iterator, Sequence

import torch

from ..places import Unsupported

_STREAM_LEGACY = 1  # CU_STREAM_LEGACY
_CPU, _CUDA = 1, 2  # DLPack's
CPU_KIND = (_CPU, 0)
_NOTHING = nullcontext()


class Device:
    """The CPU. kind: DLPack's (type, id)."""

    on_gpu = False

    def __init__(self, device: torch.device):
        self.device = device
        self.kind = CPU_KIND

    def options(self, threads: int) -> dict[str, Any]:
        """The options of a compile for it."""
        return {"threads": threads}

    def memory(self) -> dict[str, Any]:
        """Who gives memory there, as options of a compile and of an arena."""
        return {}

    def current(self) -> AbstractContextManager[Any]:
        """Within it the device is the current one. RuntimeError: a call is not possible now."""
        return _NOTHING

    def stream(self) -> int | None:
        """The stream that PyTorch uses now, as fp8c takes it; None: there are no streams."""
        return None

    def upload(self, values: Any, dtype: torch.dtype) -> torch.Tensor:
        """A number or a list of numbers as a tensor there."""
        return torch.tensor(values, dtype=dtype)


class Gpu(Device):
    """One GPU."""

    on_gpu = True

    def __init__(self, device: torch.device):
        self.device = torch.device(device.type, device.index or 0)
        self.kind = (_CUDA, self.device.index)

    def options(self, threads: int) -> dict[str, Any]:
        return {"target": "cuda", "device": self.device.index, **self.memory()}

    def memory(self) -> dict[str, Any]:
        memory = Memory(self.device)
        return {"device_alloc": memory.alloc, "device_free": memory.free}

    @contextmanager
    def current(self) -> Iterator[None]:
        with torch.cuda.device(self.device):
            refuse_capture()
            yield

    def stream(self) -> int | None:
        # PyTorch writes 0 for its default stream; to fp8c 0 is a stream of the program's own, which
        # does not wait for that one.
        return torch.cuda.current_stream(self.device).cuda_stream or _STREAM_LEGACY

    def upload(self, values: Any, dtype: torch.dtype) -> torch.Tensor:
        # From pageable memory the copy would wait for the stream. PyTorch's allocator of pinned memory
        # uses a block again only when the copy is over.
        return torch.tensor(values, dtype=dtype, pin_memory=True).to(self.device, non_blocking=True)


class Memory:
    """Device memory for one program, of PyTorch's caching allocator. The methods are callbacks of C. They
    hold what they need, so they work as long as the program, in any thread."""

    def __init__(self, device: torch.device):
        self._device = device
        self._allocate, self._delete = torch.cuda.caching_allocator_alloc, torch.cuda.caching_allocator_delete
        self._finalizing = sys.is_finalizing

    def alloc(self, size: int) -> int:
        """Memory of this many bytes for the current stream; 0: there is none, and fp8c says for what it
        was wanted."""
        try:
            stream = torch.cuda.current_stream(self._device).cuda_stream
            return int(self._allocate(size, self._device, stream))
        except torch.OutOfMemoryError:
            return 0

    def free(self, address: int, size: int) -> None:
        """Give memory back. In any thread: PyTorch knows its device and stream by the address."""
        if self._finalizing():
            return  # it goes with the process, and PyTorch may be gone
        self._delete(address)


def device_of(tensors: Sequence[torch.Tensor]) -> Device:
    """The one device of the tensors. Unsupported: there are several, or fp8c has no such target."""
    found = {t.device for t in tensors}
    if len(found) > 1:
        raise Unsupported("a stage", f"its tensors are on several devices: {', '.join(map(str, found))}")
    device = found.pop() if found else torch.device("cpu")
    if device.type == "cpu":
        return Device(device)
    if device.type == "cuda":
        return Gpu(device)
    raise Unsupported(f"device {device}", "fp8c runs on the CPU and on CUDA devices")


def refuse_capture() -> None:
    """RuntimeError: the current stream of the current GPU is being captured."""
    if torch.cuda.is_current_stream_capturing():
        raise RuntimeError(
            "fp8c: a call of a model that fp8c compiled can't be captured by torch.cuda.graph: its programs "
            "launch CUDA graphs of their own, and the host decides at each call whether scales change. "
            "Leave this call out of the capture; fp8c needs no CUDA graph around it")
