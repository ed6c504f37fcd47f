"""What fp8c reports: a status and a message, as an exception for each status."""
from __future__ import annotations

import contextlib
import re
import signal
import threading

from ._header import Status


class Error(Exception):
    """A call of fp8c failed.

    status: the status of the C API. message: what is wrong. place: (file, line, column) if the
    message is about a place in a text, else None."""
    status: Status = Status.ERR_INTERNAL

    def __init__(self, message: str):
        super().__init__(message)
        self.message = message

    @property
    def place(self) -> tuple[str, int, int] | None:
        m = re.match(r"(.*?):(\d+):(\d+): error: ", self.message)
        return (m[1], int(m[2]), int(m[3])) if m else None


class InputError(Error, ValueError):
    """The text, graph, option or data given is wrong."""
    status = Status.ERR_INPUT


class UnsupportedError(Error):
    """The input is well-formed, but this target or recipe can't do it."""
    status = Status.ERR_UNSUPPORTED


class OutOfMemoryError(Error, MemoryError):
    """An allocation failed."""
    status = Status.ERR_MEMORY


class FileError(Error, OSError):
    """A file or the system failed."""
    status = Status.ERR_IO


class LibraryError(Error):
    """A component (LLVM, oneDNN, the GPU's driver) is missing or refused."""
    status = Status.ERR_LIBRARY


class InternalError(Error):
    """A bug in fp8c."""
    status = Status.ERR_INTERNAL


class CancelledError(Error):
    """A callback asked to stop."""
    status = Status.ERR_CANCELLED


CLASSES: dict[int, type[Error]] = {
    cls.status: cls for cls in (InputError, UnsupportedError, OutOfMemoryError, FileError,
                                LibraryError, InternalError, CancelledError)}


class _Callbacks(threading.local):
    depth = 0  # how many callbacks of fp8c are running in this thread
    raised: BaseException | None = None  # what the last one raised


callbacks = _Callbacks()


class Unraisable:
    """The argument of sys.unraisablehook, for what a callback raised that C can't be told."""

    def __init__(self, exception: BaseException, where: object, what: str):
        self.exc_type, self.exc_value = type(exception), exception
        self.exc_traceback, self.object = exception.__traceback__, where
        self.err_msg = f"Exception ignored in {what} of fp8c"


def guarded(function, failed):
    """`function` as a callback of C: an exception gives C `failed`, and goes on in Python once
    the call has returned (`check` raises it)."""
    def call(*args):
        callbacks.depth += 1
        try:
            return function(*args)
        except BaseException as exception:  # nothing may cross C
            callbacks.raised = exception
            return failed
        finally:
            callbacks.depth -= 1
    return call


def raise_from(status: int, message: bytes | None) -> None:
    """Raise what a status means; what a callback raised comes first."""
    raised, callbacks.raised = callbacks.raised, None
    if raised is not None:
        raise raised
    text = (message or b"").decode("utf-8", "replace")
    text = text.removeprefix("error: ") or f"status {status} without a message"
    raise CLASSES.get(status, InternalError)(text)


# Those that end a program, or wake it; to ask for all 64 would take 90 us.
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGALRM, signal.SIGUSR1, signal.SIGUSR2)


@contextlib.contextmanager
def interruptible():
    """For calls with callbacks: what a handler of these signals raises meanwhile, or a callback, comes out at the end.
    Python runs handlers where the next callback begins, before its `try`; ctypes would print what they raise, and
    forget it."""
    def noting(handler):
        def note(*args):
            try:
                handler(*args)
            except BaseException as exception:
                callbacks.raised = exception
        return note
    held = []
    try:
        with contextlib.suppress(ValueError):  # the main thread of the main interpreter has the handlers
            for number in _SIGNALS:
                if callable(handler := signal.getsignal(number)):
                    signal.signal(number, note := noting(handler))
                    held.append((number, note, handler))
        yield
    finally:
        for number, note, handler in held:
            if signal.getsignal(number) is note:  # no callback has set another
                signal.signal(number, handler)
    if callbacks.raised is not None:
        raise_from(Status.ERR_CANCELLED, None)
