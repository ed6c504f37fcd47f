"""Programs: compiled modules that run on tensors of the caller's."""
from __future__ import annotations

import ctypes
import os
from typing import Any, Callable, Sequence

from . import _header as h
from ._handle import Handle, Owner
from ._native import lib
from .context import Context, default_context, encode
from .errors import interruptible, raise_from
from .figures import Figures
from ._options import compile_options
from .options import Options, open_options
from .records import Port, Witnessed, plain
from .tensors import Tensor, Views
from .variables import Variables, memory_of

INPUT, OUTPUT = h.Side.INPUT, h.Side.OUTPUT
FIRST, STATS = int(h.Forward.FIRST), int(h.Forward.STATS)


class Program(Figures, Variables):
    """A compiled module. Functions are named by name or index ("eval", "micro_step", "update",
    "prepare"; of a pair "forward", "backward", ...).

    Calls of several threads wait for one another. They release the GIL. A program keeps the
    tensors that are bound to it - those of the last call of each function, and those of variables -
    until others take their place, `release`, or its end."""

    def __init__(self, handle: Handle, context: Context):
        self._handle = handle
        self.context = context
        self._indices: dict[str | int, int] = {}
        self._bound: dict[int, Any] = {}  # function -> what its last call was given
        self._perhaps_bound: dict[int, Any] = {}  # the same of its last call that failed
        self._bound_variables = {}
        for index, name in enumerate(self.functions):
            self._indices[name] = self._indices[index] = index

    @classmethod
    def compile(cls, module: Any, **options: Any) -> "Program":
        """Compile a module. The options are those of `compile_options`: target, recipe, pair,
        inference, memory_share, ... Raises InputError, UnsupportedError, LibraryError; and
        CancelledError if the context's `progress` cancels."""
        made = compile_options(**options)
        parent, out = module._open(), ctypes.c_void_p()
        with interruptible():
            status = lib.compile(parent.ptr, ctypes.byref(made.struct), ctypes.byref(out))
            return cls._made(status, out, parent.keep, made, module.context)

    @classmethod
    def open(cls, path: str | os.PathLike, *, context: Context | None = None,
             **options: Any) -> "Program":
        """A program from a .f8x file. The options are those of `open_options`: target, threads,
        external, ..."""
        return cls._opened(os.fsencode(path), open_options(**options), context)

    @classmethod
    def open_bytes(cls, data: bytes, *, context: Context | None = None,
                   **options: Any) -> "Program":
        """`open` of the bytes of such a file."""
        made = open_options(**options)
        made.struct.bytes, made.struct.n_bytes = ctypes.cast(data, ctypes.c_void_p), len(data)
        return cls._opened(None, made, context)

    @classmethod
    def _opened(cls, path: bytes | None, made: Options, context: Context | None) -> "Program":
        context = context or default_context()
        parent, out = context._open(), ctypes.c_void_p()
        status = lib.program_open(parent.ptr, path, ctypes.byref(made.struct), ctypes.byref(out))
        return cls._made(status, out, parent, made, context)

    @classmethod
    def _made(cls, status: int, out: ctypes.c_void_p, parent: Handle, options: Options,
              context: Context) -> "Program":
        if status or not out.value:
            parent.check(status)
        handle = Handle(out.value, lib.program_destroy, context=parent.ptr,
                        keep=(parent, options.keep))
        return cls(handle, context)

    # ---- functions and ports ----

    @property
    def functions(self) -> list[str]:
        """The names of the functions, in their order."""
        handle = self._open()
        names: list[str] = []
        while name := handle.ask(lib.program_function_name, len(names)):
            names.append(name.decode())
        return names

    def index(self, function: str | int) -> int:
        """The index of a function. KeyError: there is none of that name."""
        return self._indices[function]

    def has(self, function: str) -> bool:
        return function in self._indices

    def ports(self, function: str | int, side: h.Side) -> list[Port]:
        """All ports of a side (INPUT or OUTPUT), for the values that dims have now."""
        return self._list(Port, lib.program_port, self.index(function), side)

    def inputs(self, function: str | int) -> list[Port]:
        """The inputs that the caller gives: those that carry no variable."""
        return [p for p in self.ports(function, INPUT) if p.variable < 0]

    def outputs(self, function: str | int) -> list[Port]:
        """The outputs that the caller gives memory for."""
        return [p for p in self.ports(function, OUTPUT) if p.variable < 0]

    # ---- calls ----

    def call(self, function: str | int, inputs: Sequence[Any] | Views = (),
             outputs: Sequence[Any] | Views | None = None) -> Sequence[Any] | Views:
        """Bind tensors to the ports of `inputs()` and `outputs()`, in their order, and run.

        Nothing is copied. A tensor has its port's dtype and shape, is contiguous, and lies in host
        memory or on the program's GPU; an output overlaps no other tensor. InputError says which
        port does not fit; nothing has run then. Dims that are bounds take their values from the
        shapes. Without `outputs` new Tensors are made. Gives the outputs. `Views` made once save
        the work of looking at each tensor again."""
        function = self._indices[function]
        return self._call(lib.program_call, (function,), function, inputs, outputs)

    def forward(self, saved: "Saved", inputs: Sequence[Any] | Views,
                outputs: Sequence[Any] | Views | None = None, *, first: bool = False,
                stats: bool = False) -> Sequence[Any] | Views:
        """`call` of forward, whose saved values `saved` takes: `outputs` are for the results
        alone. first: forward.first, if the program has it. stats: the one that watches, and so
        does its backward; after each of them `statistics(saved.function)` has the figures."""
        which = (FIRST if first else 0) | (STATS if stats else 0)
        name = self._of_pair("forward", which)
        result = self._call(lib.program_forward, (which, saved._address()),
                            self._indices.get(name, -1), inputs, outputs, hidden=_hidden(which))
        saved._which, saved.function = which, name
        return result

    def backward(self, saved: "Saved", inputs: Sequence[Any] | Views,
                 outputs: Sequence[Any] | Views | None = None) -> Sequence[Any] | Views:
        """`call` of the backward of the forward that `saved` holds. inputs: the cotangents, then
        the inputs of forward that backward reads. outputs: the gradients. Then `saved` is free."""
        name = self._of_pair("backward", saved._which)
        result = self._call(lib.program_backward, (saved._address(),), self._indices[name], inputs,
                            outputs, hidden=_hidden(saved._which))
        saved.function = name
        return result

    def _of_pair(self, half: str, which: int) -> str:
        """The name of a pair's function, as fp8c_program_forward chooses it."""
        end = ".stats" if which & STATS else ""
        first = f"{half}.first{end}"
        return first if which & FIRST and first in self._indices else half + end

    def _call(self, run: Any, before: tuple, function: int, inputs: Any, outputs: Any,
              hidden: Callable[[str], bool] | None = None) -> Any:
        handle = self._handle
        if handle is None:
            handle = self._open()
        ins = inputs if type(inputs) is Views else Views(inputs)
        if outputs is None:
            outputs = self._new_outputs(function, ins, hidden)
        outs = outputs if type(outputs) is Views else Views(outputs)
        if outs.read_only is not None:
            raise ValueError(f"output {outs.read_only} is read-only")
        if not handle.lock.acquire(False):
            handle.enter()
        try:
            status = run(handle.ptr, *before, ins.c, ins.n, outs.c, outs.n)
            if status:  # it may have bound them, or not
                self._perhaps_bound[function] = (ins, outs)
            else:
                self._bound[function] = (ins, outs)
        finally:
            handle.lock.release()
        if status:
            raise_from(status, lib.context_message(handle.context))
        return outputs

    def _new_outputs(self, function: int, ins: Views,
                     hidden: Callable[[str], bool] | None) -> list[Tensor]:
        if function < 0:
            return []
        self.fit(function, ins)
        return [Tensor.empty(*p.type) for p in self.outputs(function)
                if not (hidden and hidden(p.name))]

    def run(self, function: str | int) -> None:
        """Run a function on the tensors of its last call or on the program's own buffers."""
        self._open().call(lib.program_run, self._indices[function])

    def form(self, function: str | int) -> str:
        """The name of the function that a run of `function` runs now: micro_step.first in place of
        micro_step, while an amax history is empty (recipe `delayed`)."""
        index = ctypes.c_int32()
        self._open().call(lib.program_form, self._indices[function], ctypes.byref(index))
        return self.functions[index.value]

    def run_witnessed(self, function: str | int, judge: bool = True) -> list[Witnessed]:
        """Run a function step by step, and say of each value that a step writes whether it is right.
        Needs the option `witness`."""
        seen: list[Witnessed] = []

        def look(_user: Any, address: int) -> None:
            struct = h.Witnessed.from_address(address)
            seen.append(Witnessed(*(plain(getattr(struct, n)) for n in Witnessed._fields)))

        self._open().call(lib.program_run_witnessed, self._indices[function], judge,
                          h.WitnessFn(look), None)
        return seen

    def wait(self) -> None:
        """Wait for runs on a stream of the caller's, and raise what failed in them."""
        self._open().call(lib.program_wait)

    def buffer(self, function: str | int, side: h.Side, index: int) -> Tensor:
        """Port `index` of a side where it lies: the program's own buffer, or what is bound to it.
        TypeError: the program has dims that are bounds, whose buffers move; call it with
        tensors."""
        if self.dims():
            raise TypeError("the buffers of a program with bounds move when a dim changes: call it "
                            "with tensors")
        function = self._indices[function]
        handle, struct = self._open(), h.TensorView()
        handle.call(lib.program_port_view, function, side, index, ctypes.byref(struct))
        return memory_of(handle, struct, self._bound.get(function))

    def release(self, function: str | int) -> None:
        """Give up the tensors of a function's last call: its ports have the program's own buffers
        again."""
        function = self._indices[function]
        handle = self._open()
        for side in (INPUT, OUTPUT):
            for index, port in enumerate(self.ports(function, side)):
                if port.variable < 0:
                    handle.call(lib.program_bind, function, side, index, None)
        self._bound.pop(function, None)
        self._perhaps_bound.pop(function, None)

    def set_stream(self, stream: int) -> None:
        """Enqueue later runs on a CUstream, given as its address; 0: the program's own."""
        self._open().call(lib.program_set_stream, stream or None)

    # ---- dims that are bounds ----

    def set_dim(self, name: str, value: int) -> None:
        """Set the value of a dim that is a bound. Types of ports and figures are those of the new
        value, and tensors bound before are no longer bound."""
        self._open().call(lib.program_set_dim, encode(name), value)

    def fit(self, function: str | int, inputs: Sequence[Any] | Views) -> None:
        """Set all dims that the shapes of a function's inputs determine, as `call` does."""
        views = inputs if isinstance(inputs, Views) else Views(inputs)
        self._open().call(lib.program_fit, self._indices[function], views.c, views.n)

    def saved(self) -> "Saved":
        """A handle for what a forward saves for its backward."""
        return Saved(self)


def _hidden(which: int) -> Callable[[str], bool]:
    """Whether the caller of a pair's function gives no tensor for a result of that name."""
    if which & STATS:
        return lambda name: name.startswith("saved.") or name == "stats"
    return lambda name: name.startswith("saved.")


class Saved(Owner):
    """Memory for what one forward saves, until its backward has run; then it serves the next one.
    A program may have several, whose backwards come in any order."""

    def __init__(self, program: Program):
        handle, out = program._open(), ctypes.c_void_p()
        handle.call(lib.saved_create, ctypes.byref(out))
        self._handle = Handle(out.value, lib.saved_destroy, context=handle.context, keep=handle,
                              lock=handle.lock)
        self._which = 0  # of its forward: a sum of h.Forward
        self.function = ""  # what ran last with it: "forward", "backward.first.stats"

    def _address(self) -> int:
        handle = self._handle
        if handle is None:
            handle = self._open()
        return handle.ptr

    def drop(self) -> None:
        """Give up the forward that it holds, if any: its backward will not run."""
        self._open().ask(lib.saved_drop)

