"""Modules: what is to be compiled, as text."""
from __future__ import annotations

import ctypes
import os
from typing import Any, Iterable, Mapping

from . import _header as h
from ._handle import Handle
from ._native import lib
from .builder import Builder
from .context import Context, default_context, encode
from .errors import interruptible
from ._options import CompileOptions, compile_options
from .options import writer
from .program import Program
from .records import ModuleInfo, record


class Module(Builder):
    """A module: made by `parse`, `load`, or `create` and calls. It belongs to one thread at a
    time, but several may compile it at once if none changes it. Programs do not depend on it."""

    def __init__(self, handle: Handle, context: Context):
        self._handle = handle
        self.context = context

    @classmethod
    def parse(cls, text: str, *, file: str = "<text>", dims: Mapping[str, int] | None = None,
              context: Context | None = None) -> "Module":
        """The module that a text describes (frontend/text/README.md has the language).

        dims: values for `dim` lines, by name; of a dim that is a bound, the bound. file: the name
        that messages show. Raises InputError, whose `place` is (file, line, column)."""
        context = context or default_context()
        parent = context._open()
        raw = text.encode("utf-8", "surrogateescape")
        given = dims or {}
        array = (h.Dim * max(len(given), 1))(*[h.Dim(name=encode(name), value=value)
                                               for name, value in given.items()])
        out = ctypes.c_void_p()
        parent.check(lib.module_parse(parent.ptr, raw, len(raw), encode(file), array, len(given),
                                      ctypes.byref(out)))
        return cls(Handle(out.value, lib.module_destroy, context=parent.ptr, keep=parent), context)

    @classmethod
    def load(cls, path: str | os.PathLike, *, dims: Mapping[str, int] | None = None,
             context: Context | None = None) -> "Module":
        """`parse` of a file."""
        with open(path, encoding="utf-8", errors="surrogateescape") as file:
            return cls.parse(file.read(), file=os.fspath(path), dims=dims, context=context)

    @classmethod
    def create(cls, name: str, *, context: Context | None = None) -> "Module":
        """An empty module, to be built by `param`, `function`, `optimizer` and `recipe`."""
        context = context or default_context()
        parent, out = context._open(), ctypes.c_void_p()
        parent.check(lib.module_create(parent.ptr, encode(name), ctypes.byref(out)))
        return cls(Handle(out.value, lib.module_destroy, context=parent.ptr, keep=parent), context)

    @property
    def name(self) -> str:
        return self.info().name

    def info(self) -> ModuleInfo:
        """Its name, how many parameters and elements it has, and what it says of steps."""
        struct = h.ModuleInfo()
        self._open().ask(lib.module_report, ctypes.byref(struct))
        return record(ModuleInfo, struct)

    def text(self) -> str:
        """The module in canonical form. Parsing that text gives the identical module."""
        parts: list[bytes] = []
        self._open().call(lib.module_print, writer(parts.append), None)
        return b"".join(parts).decode("utf-8", "surrogateescape")

    __str__ = text

    def parameters(self) -> tuple[int, int]:
        """The number of parameters, and the sum of their elements."""
        return self.info()[1:3]

    def dim(self, name: str) -> int:
        """The value of a dim, or its bound. KeyError: the module has no dim of that name."""
        value = self._open().ask(lib.module_dim, encode(name))
        if value < 0:
            raise KeyError(name)
        return value

    @property
    def accumulate(self) -> int:
        """How many micro-steps an update takes."""
        return self.info().accumulate

    @property
    def optimizer_steps(self) -> int:
        """The length of the optimizer's schedule; 0: the module declares none."""
        return self.info().optimizer_steps

    @property
    def needs_steps(self) -> bool:
        """Whether a compile needs `optimizer_steps`."""
        return bool(self.info().needs_steps)

    def rule(self, rule: str, origin: str | None = None) -> None:
        """Add a recipe rule after all others: what a text has after the word `recipe`, as
        '"h.*" wgrad = bf16'. origin: what messages call its place."""
        self._open().call(lib.module_rule, encode(rule), encode(origin))

    def check(self) -> None:
        """Check the whole module: every rule must match a linear."""
        self._open().call(lib.module_check)

    def compile(self, **options: Any) -> Program:
        """A program. The options are those of `compile_options`."""
        return Program.compile(self, **options)

    def compile_file(self, path: str | os.PathLike, options: Iterable[Mapping[str, Any]]) -> None:
        """Compile for each of `options` and write a .f8x file, whole or not at all. Each of them
        is a mapping of options of `compile_options`."""
        made = [compile_options(**o) for o in options]
        array = (CompileOptions * max(len(made), 1))(*[m.struct for m in made])
        handle = self._open()
        with interruptible():
            handle.check(lib.compile_file(handle.ptr, array, len(made), os.fsencode(path)))
