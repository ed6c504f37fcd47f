"""A stand-in for a GPU and its streams, for machines that have none.

    call, gpu = on_gpu(model, inputs, "delayed")     # the model as it runs on the GPU
    with gpu, gpu.stream(4096):
        call()[0].backward()
    gpu.events                                       # what was done, on which stream and device

Within `with gpu` tensors say that they lie on cuda:1 and torch.cuda has streams, devices and an
allocator. What fp8c.torch does there is recorded. Programs are those of the CPU, so that the values are
real: each stands for one of a GPU and keeps what it was compiled with.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
from types import SimpleNamespace
from typing import Any, Callable, Iterator, NamedTuple
from unittest import mock

import torch
from torch.overrides import TorchFunctionMode

import fp8c
from fp8c.torch import backend
from fp8c.torch.run import device
from fp8c.torch.run.bound import Bound
from fp8c.torch.run.function import Runner

INDEX = 1  # the GPU's; the current device is 0 until somebody changes it
RUNS = ("forward", "backward", "call", "run", "carry_from")  # what a program enqueues
WAITS = ("read", "write", "wait")  # what the host waits in
# Methods of a tensor that bring values to the host.
_READS = {getattr(torch.Tensor, n) for n in ("item", "tolist", "cpu", "numpy", "__bool__", "__float__", "__int__")}
_FACTORIES = (torch.tensor, torch.randint, torch.empty, torch.zeros, torch.ones, torch.arange, torch.full)


class Event(NamedTuple):
    """what: a method of a program, or a function of PyTorch's. stream: the one that it is enqueued on, as
    the program or PyTorch was told. current: PyTorch's. device: the current one."""

    what: str
    stream: int
    current: int
    device: int
    detail: Any = None


class Gpu(TorchFunctionMode):
    """The GPU. addresses: how often a tensor's address was asked for. waits: what the host would have
    waited in. held: the allocator's blocks, by address. no_cudnn: what a compile that wants cuDNN says."""

    def __init__(self) -> None:
        super().__init__()
        self.events: list[Event] = []
        self.waits: list[str] = []
        self.addresses = 0
        self.capturing = False
        self.memory = 1 << 30
        self.no_cudnn = ""
        self.held: dict[int, tuple[int, int, Any]] = {}  # bytes, stream, what is alive
        self.device, self.now = 0, 0
        self._host: dict[int, torch.Tensor] = {}
        self._pinned: set[int] = set()
        self._patches = contextlib.ExitStack()

    # ---- what a test does ----

    @contextlib.contextmanager
    def stream(self, number: int) -> Iterator[None]:
        """The current stream is this one. 0: PyTorch's default stream."""
        before, self.now = self.now, number
        try:
            yield
        finally:
            self.now = before

    def clear(self) -> None:
        self.events, self.waits, self.addresses = [], [], 0

    def of(self, *names: str) -> list[Event]:
        return [e for e in self.events if e.what in names]

    def note(self, what: str, stream: int | None = None, detail: Any = None) -> None:
        self.events.append(Event(what, self.now if stream is None else stream, self.now, self.device, detail))

    # ---- torch.cuda ----

    def __enter__(self) -> "Gpu":
        for name, value in (("current_stream", lambda _=None: SimpleNamespace(cuda_stream=self.now)),
                            ("device", self._guard), ("is_current_stream_capturing", lambda: self.capturing),
                            ("caching_allocator_alloc", self._allocate), ("caching_allocator_delete", self._delete)):
            self._patches.enter_context(mock.patch(f"torch.cuda.{name}", value))
        self._patches.enter_context(mock.patch.object(Bound, "backward", self._within(Bound.backward)))
        self._patches.enter_context(mock.patch.object(device, "_CUDA", 1))  # views are of host memory
        self._patches.enter_context(mock.patch.object(fp8c.Module, "compile", self._compiling(fp8c.Module.compile)))
        return super().__enter__()

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        self._patches.close()

    @contextlib.contextmanager
    def _guard(self, which: torch.device) -> Iterator[None]:
        before, self.device = self.device, which.index
        try:
            yield
        finally:
            self.device = before

    def _allocate(self, size: int, which: torch.device, stream: int) -> int:
        if size > self.memory - sum(n for n, _, _ in self.held.values()):
            raise torch.OutOfMemoryError("CUDA out of memory.")
        block = ctypes.create_string_buffer(size + 512)
        address = (ctypes.addressof(block) + 511) & ~511
        self.held[address] = size, stream, block
        return address

    def _delete(self, address: int) -> None:
        del self.held[address]

    # ---- fp8c ----

    def _within(self, backward: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any) -> Any:  # PyTorch has switched the mode off for Tensor.backward
            TorchFunctionMode.__enter__(self)
            try:
                return backward(*args)
            finally:
                TorchFunctionMode.__exit__(self, None, None, None)
        return call

    def _compiling(self, compile_: Callable[..., Any]) -> Callable[..., Any]:
        def compile_for_gpu(module: fp8c.Module, **options: Any) -> Any:
            own = {k: v for k, v in options.items() if k not in ("target", "device", "device_alloc", "device_free")}
            if own.pop("attention") != "own" and self.no_cudnn:
                raise fp8c.LibraryError(self.no_cudnn)
            return Program(self, compile_(module, **own), options)
        return compile_for_gpu

    # ---- tensors ----

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        if function == torch.Tensor.device.__get__:
            return torch.device("cpu") if id(args[0]) in self._host else torch.device("cuda", INDEX)
        if function == torch.Tensor.is_cuda.__get__:
            return id(args[0]) not in self._host
        if function is torch.Tensor.data_ptr:
            self.addresses += 1
            return function(*args)
        if function in _READS and id(args[0]) not in self._host:
            self.waits.append(function.__name__)
        if function is torch.Tensor.to and isinstance(args[1], torch.device) and args[1].type == "cuda":
            return self._uploaded(args[0], kwargs)
        if function in _FACTORIES:
            return self._made(function, args, kwargs)
        return function(*args, **kwargs)

    def _uploaded(self, tensor: torch.Tensor, kwargs: dict[str, Any]) -> torch.Tensor:
        if id(tensor) not in self._host:
            return tensor
        if not (kwargs.get("non_blocking") and id(tensor) in self._pinned):
            self.waits.append("a copy from pageable memory")
        self.note("upload")
        return tensor.clone()

    def _made(self, function: Any, args: Any, kwargs: dict[str, Any]) -> torch.Tensor:
        where, pinned = kwargs.pop("device", None), kwargs.pop("pin_memory", False)
        on_gpu = where is not None and torch.device(where).type == "cuda"
        if on_gpu and function is torch.tensor:
            self.waits.append("a copy from pageable memory")
        made = function(*args, **kwargs)
        if on_gpu:
            self.note(function.__name__)
        else:
            self._host[id(made)] = made
            if pinned:
                self._pinned.add(id(made))
        return made


class Program:
    """A program that notes what it is asked to do. options: of its compile."""

    def __init__(self, gpu: Gpu, program: fp8c.Program, options: dict[str, Any]):
        self._gpu, self.program, self.options, self.stream = gpu, program, options, 0

    def set_stream(self, stream: int) -> None:
        self._gpu.note("set_stream", stream)
        self.stream = stream

    def __getattr__(self, name: str) -> Any:
        value = getattr(self.program, name)
        if name not in RUNS + WAITS:
            return value

        def noted(*args: Any, **kwargs: Any) -> Any:
            if name in WAITS:
                self._gpu.waits.append(name)
            self._gpu.note(name, self.stream, _detail(name, args))
            with torch._C.DisableTorchFunction():
                return value(*[a.program if isinstance(a, Program) else a for a in args], **kwargs)

        return noted


def _detail(name: str, args: tuple[Any, ...]) -> Any:
    """Of an event: the name of a function, or the addresses of a call's inputs."""
    if name == "run":
        return args[0]
    return [view.c.data for view in args[1].views] if name in ("forward", "backward", "call") else None


def on_gpu(model: torch.nn.Module, inputs: dict[str, Any], recipe: str, gpu: Gpu | None = None,
           **options: Any) -> tuple[Callable[..., Any], Gpu]:
    """A model's only graph, as it runs on the GPU. A call may be given other inputs of the same types."""
    made: list[tuple[Any, list[Any]]] = []

    def capturing(gm: Any, examples: Any) -> Any:
        function = backend.fp8c_backend(gm, examples, options={"recipe": recipe, "strict": True, **options})

        def call(*args: Any) -> Any:
            made.append((function, list(args)))
            return function(*args)

        return call

    torch.compile(model, backend=capturing)(**inputs)
    function, args = made[0]
    compiled = function.compiled
    compiled.runners = [Runner(function.plan, stage, compiled.settings) for stage in function.plan.stages]
    function._runners = {id(runner.stage): runner for runner in compiled.runners}
    compiled.note(args)
    made.clear()
    torch._dynamo.reset()
    gc.collect()  # the programs of the CPU

    def call(**others: Any) -> list[Any]:
        given = [next((new for name, new in others.items() if old is inputs[name]), old) for old in args]
        return function(*given)

    call.function = function
    return call, gpu or Gpu()
