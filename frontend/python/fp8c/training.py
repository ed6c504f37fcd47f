"""Training runs as `fp8c train` has them, step by step."""
from __future__ import annotations

import ctypes
import json
import logging
import os
import threading
from typing import Any, Callable, Iterator, Mapping, Sequence

from . import _header as h
from ._handle import Handle, Owner
from ._native import lib
from ._options import compile_options
from .context import Context, default_context, encode
from .errors import callbacks, guarded, interruptible
from .module import Module
from .program import Program
from .records import TrainingResult, TrainingStep, record

Paths = str | os.PathLike | Sequence[str | os.PathLike]


class Training(Owner):
    """A training run. Iterating over it trains, a step at a time, and then saves:

        with fp8c.Training(module, "tokens.bin", recipe="delayed", steps=1000, run="my-run") as training:
            for step in training:
                print(step.step, step.loss)
        print(training.result.final_loss)

    module: None, with `resume`: that of the run. data: files of tokens. batches: instead, {input: file of rows}.
    validation: files to hold out instead of the last tenth of the data; with batches, {input: file}. weights:
    files of safetensors whose values the parameters begin with; ignore and allow_missing: patterns of names; map:
    {name in the files: name of the parameter}, both with stars. say: gets
    lines for people (else the logger "fp8c" does). record: gets the records of `train --json`, each as a dict.
    Other keywords: those of fp8c_training_options (fp8c_train.h), and of `compile_options` those that it names.
    A guard that ends the run is a CancelledError. `with` saves at its end too; after an exception it closes the
    training instead."""

    def __init__(self, module: Module | None = None, data: Paths = (), *,
                 batches: Mapping[str, str | os.PathLike] | None = None,
                 validation: Paths | Mapping[str, str | os.PathLike] = (), tokens: str | None = None,
                 weights: Paths = (), ignore: Sequence[str] = (), map: Mapping[str, str] | None = None,
                 allow_missing: Sequence[str] = (), steps: int = 0, stop_at: int = 0, eval_every: int = 0,
                 seed: int | None = None,
                 run: str | os.PathLike | None = None, resume: str | os.PathLike | None = None,
                 save_every: int = 0, keep: int = 0, checksum_every: int = 0, fingerprint_every: int = 0,
                 guard: str | None = None, every: int = 0, dump_steps: str | None = None,
                 calibrate: int = 0, error_budget: float = 0.0,
                 say: Callable[[str], object] | None = None,
                 record: Callable[[dict], object] | None = None,
                 context: Context | None = None, **compile: Any):
        made = compile_options(**compile)
        self.context = context or (module.context if module is not None else default_context())
        self._stops = threading.Event()
        self._functions = self._callbacks(say or logging.getLogger("fp8c").warning, record)
        lists = {"data": _files(data), "batches": _files(batches or {}), "validation": _files(validation),
                 "weights": _files(weights), "ignore": _files(ignore), "map": _files(map or {}),
                 "allow_missing": _files(allow_missing)}
        texts = {"tokens": tokens, "guard": guard, "dump_steps": dump_steps}
        folders = {name: os.fsencode(path) for name, path in (("run", run), ("resume", resume)) if path is not None}
        struct = h.TrainingOptions(
            compile=ctypes.addressof(made.struct), steps=steps, stop_at=stop_at, eval_every=eval_every,
            seed=seed if seed is not None else 0 if resume is not None else 1, save_every=save_every, keep=keep,
            checksum_every=checksum_every, fingerprint_every=fingerprint_every, every=every, calibrate=calibrate,
            error_budget=error_budget, **self._functions, **folders,
            **{name: encode(text) for name, text in texts.items() if text is not None},
            **{name: ctypes.addressof(array) for name, array in lists.items() if len(array)},
            **{"n_" + name: len(array) for name, array in lists.items()})
        parent, out = self.context._open(), ctypes.c_void_p()
        of = module._open() if module is not None else None
        try:
            with interruptible():
                parent.check(lib.training_create(parent.ptr, of.ptr if of else None, ctypes.byref(struct),
                                                 ctypes.byref(out)))
                # It keeps no callbacks: they may refer to this object, which then could never go.
                self._handle = Handle(out.value, lib.training_destroy, context=parent.ptr, keep=(parent, made.keep))
        except BaseException:
            self.close()
            raise

    def _callbacks(self, say: Callable[[str], object], told: Callable[[dict], object] | None) -> dict[str, Any]:
        stops = self._stops
        def stopped(_):
            return 1 if stops.is_set() or callbacks.raised is not None else 0
        functions = {"say": h.TextFn(guarded(lambda _, text: say(text.decode("utf-8", "replace")), None)),
                     "stop": h.StopFn(stopped)}
        if told is not None:
            functions["record"] = h.TextFn(guarded(lambda _, text: told(json.loads(text)), None))
        return functions

    def __iter__(self) -> Iterator[TrainingStep]:
        """The steps that are left. After the last one the run is saved."""
        while (step := self.step()) is not None:
            yield step
        self.end()

    def step(self) -> TrainingStep | None:
        """Trains one step. None: none was left."""
        out = h.TrainingStep()
        self._call(lib.training_run, ctypes.byref(out))
        return record(TrainingStep, out) if out.step else None

    def stop(self) -> None:
        """No step follows. Any thread, and a callback, may call it."""
        self._stops.set()

    def end(self) -> None:
        """Saves the checkpoint of the last step in the folder. Calling it again does nothing."""
        self._call(lib.training_end)

    def _call(self, function: Callable[..., int], *args: Any) -> None:
        with interruptible():
            self._open().call(function, *args)

    @property
    def result(self) -> TrainingResult:
        """What there is of the run so far."""
        out = h.TrainingResult()
        self._open().ask(lib.training_report, ctypes.byref(out))
        return record(TrainingResult, out)

    @property
    def program(self) -> Program:
        """The program, to read its variables or save them between steps. It belongs to the training."""
        handle = self._open()
        ptr = handle.ask(lib.training_program)
        return Program(Handle(ptr, _nothing, context=handle.context, keep=handle, lock=handle.lock), self.context)

    def __exit__(self, kind: Any = None, *exception: Any) -> None:
        if kind is not None:
            self.close()
        elif not self.closed:
            self.end()


def _nothing(_: int) -> None:
    """The training destroys its program."""


def _files(given: Any) -> Any:
    """An array of texts: paths, or NAME=PATH of a mapping."""
    if isinstance(given, Mapping):
        paths = [encode(name) + b"=" + os.fsencode(path) for name, path in given.items()]
    else:
        paths = [os.fsencode(p) for p in ([given] if isinstance(given, (str, os.PathLike)) else given)]
    return (ctypes.c_char_p * len(paths))(*paths)
