"""Contexts: what modules and programs share - the kernel cache, the logger, the settings."""
from __future__ import annotations

import ctypes
import logging
import sys
import threading
from typing import Callable, Iterable

from . import _header as h
from ._handle import Handle, Owner
from ._native import lib
from .errors import InputError, OutOfMemoryError, Unraisable, callbacks, guarded
from .records import CacheInfo, Progress, record

_LEVELS = {h.LogLevel.WARNING: logging.WARNING, h.LogLevel.INFO: logging.INFO,
           h.LogLevel.DEBUG: logging.DEBUG}
LOGGER = logging.getLogger("fp8c")


def encode(text: str | bytes | None) -> bytes | None:
    """A text for C. A 0 in it would cut it short."""
    if text is None or isinstance(text, bytes):
        return text
    if "\0" in text:
        raise ValueError(f"a text for fp8c has a NUL: {text!r}")
    return text.encode("utf-8", "surrogateescape")


def array_of(texts: Iterable[str | bytes]) -> ctypes.Array:
    """Texts for C, as an array of pointers with room for one at least. None is no text."""
    encoded = [encode(x) for x in texts]
    if None in encoded:
        raise TypeError("a list of texts for fp8c has a None")
    return (ctypes.c_char_p * max(len(encoded), 1))(*encoded)


class Context(Owner):
    """Settings, the kernel cache, and the logger. Any number of threads may use one.

    What is made with a context keeps what it needs of it: close() and the end of the object only
    mean that nothing more is made with it. Each option stands for one of fp8c_context_options;
    None leaves it to its environment variable.

    cache_dir: the folder of the kernel cache; "": no cache. cache_bytes: the most that it holds;
    0: 1 GiB. tuning: the file of the tuning database; "": none. dump: a folder for what compiles
    make on their way. threads: of programs that do not say; 0: the CPUs this process may run on.
    gpu_library_path, cuda_home, cuda_path, python_env, home: where the GPU's libraries are.

    progress: called with a `Progress` during long calls, in the thread that called; a true result
    cancels the call (CancelledError), and so does an exception, which then comes out of the call.
    Ctrl-C cancels a compile in the same way, also without `progress`.

    logger: gets what fp8c logs; default: logging.getLogger("fp8c"). verbose: 0 warnings, 1 also
    what is done, 2 also details; None: what the logger takes when the context is made, or
    FP8C_VERBOSE if that is more.

    Raises InputError: an option is wrong. OutOfMemoryError."""

    def __init__(self, *, cache_dir: str | None = None, cache_bytes: int = 0,
                 tuning: str | None = None, dump: str | None = None, threads: int = 0,
                 gpu_library_path: str | None = None, cuda_home: str | None = None,
                 cuda_path: str | None = None, python_env: str | None = None,
                 home: str | None = None, progress: Callable[[Progress], object] | None = None,
                 logger: logging.Logger | None = None, verbose: int | None = None):
        logger = logger or LOGGER
        if verbose is None:
            verbose = 2 if logger.isEnabledFor(logging.DEBUG) else \
                1 if logger.isEnabledFor(logging.INFO) else 0
        elif verbose == 0:
            verbose = -1  # 0 would take the variable
        lines: list[str] = []
        log, told = _log(logger, lines), _progress(progress)
        texts = {"cache_dir": cache_dir, "tuning": tuning, "dump": dump,
                 "gpu_library_path": gpu_library_path, "cuda_home": cuda_home,
                 "cuda_path": cuda_path, "python_env": python_env, "home": home}
        options = h.ContextOptions(cache_bytes=cache_bytes, threads=threads, verbose=verbose,
                                   log=log, progress=told,
                                   **{k: encode(v) for k, v in texts.items()})
        out = ctypes.c_void_p()
        status = lib.context_create(ctypes.byref(options), ctypes.byref(out))
        if status or not out.value:  # there is no context that could hold the message
            error = OutOfMemoryError if status == h.Status.ERR_MEMORY else InputError
            raise error(lines[-1] if lines else "no memory for a context")
        lines.clear()
        self._handle = Handle(out.value, lib.context_destroy, keep=(log, told))

    def cache(self) -> CacheInfo:
        """The kernel cache: its folder, hits and misses of this context, its size; and the tuning
        database."""
        struct = h.CacheInfo()
        handle = self._open()
        handle.check(lib.context_cache(handle.ptr, ctypes.byref(struct)))
        return record(CacheInfo, struct)

    def tuning_database(self) -> str | None:
        """The tuning database that compiles of this context read; None: none."""
        return self.cache().tuning

    def abandon_files(self) -> None:
        """Remove the temporary files of all calls that are running, before the process ends. The
        context writes no file afterwards."""
        lib.context_abandon_files(self._open().ptr)


def _log(logger: logging.Logger, lines: list[str]):
    def write(_, level, text):
        callbacks.depth += 1
        try:
            line = text.decode("utf-8", "replace")
            if len(lines) < 100:
                lines.append(line)
            logger.log(_LEVELS.get(level, logging.DEBUG), "%s", line)
        except BaseException as exception:  # C can't be told: Python's hook is
            if isinstance(exception, KeyboardInterrupt):
                callbacks.raised = exception  # the next progress callback cancels
            else:
                sys.unraisablehook(Unraisable(exception, logger, "the log"))
        finally:
            callbacks.depth -= 1
    return h.LogFn(write)


def _progress(progress: Callable[[Progress], object] | None):
    def tell(_, address):
        if callbacks.raised is not None:
            raise callbacks.raised
        if progress is None:
            return 0  # Python has looked for signals by now
        return 1 if progress(record(Progress, h.Progress.from_address(address))) else 0
    return h.ProgressFn(guarded(tell, 1))


_default: Context | None = None
_making = threading.Lock()


def default_context() -> Context:
    """The context of calls that are given none: made when it is first asked for, with the
    environment's settings."""
    global _default
    with _making:
        if _default is None or _default.closed:
            _default = Context()
        return _default
