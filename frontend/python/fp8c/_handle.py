"""Handles: the C objects behind Python's, and when they are destroyed.

A Handle destroys its C object when nothing refers to it any more: neither the Python object, nor
a call that is running, nor a view of the object's memory, nor a child. So closing an object gives
up one reference and can't pull memory from under anyone. A child's handle keeps its parent's.

A program belongs to one thread at a time. Its handle has a lock, which its calls take and which it
shares with the handles of what its forwards saved.
"""
from __future__ import annotations

import threading
import weakref
from collections import deque
from typing import Any, Callable

from ._native import lib
from .errors import callbacks, raise_from

_later: deque = deque()  # C objects to be destroyed when their lock is free


class Handle:
    """ptr: the C object. lock: of the program it belongs to, or its own. context: the address of
    its fp8c_context, whose messages are its own. keep: what must outlive the C object."""
    __slots__ = ("ptr", "lock", "context", "keep", "__weakref__")

    def __init__(self, ptr: int | None, destroy: Callable[[int], None], *,
                 context: int | None = None, keep: Any = None, lock: threading.Lock | None = None):
        assert ptr, "a call that was OK gave no object"
        self.ptr = ptr
        self.lock = lock or threading.Lock()
        self.context = context or ptr
        self.keep = keep
        # At the interpreter's end nothing is destroyed: a daemon thread may still use it.
        weakref.finalize(self, _release, destroy, ptr, self.lock, keep).atexit = False
        if _later:
            drain()

    def enter(self) -> None:
        """Take the lock, for a call."""
        if not self.lock.acquire(False):
            if callbacks.depth:  # this thread may have it, and would wait for itself
                raise RuntimeError("a callback of fp8c uses an object that is in use")
            self.lock.acquire()

    def check(self, status: int) -> None:
        """Raise the Error of a status that is not OK."""
        if status:
            raise_from(status, lib.context_message(self.context))

    def call(self, function: Callable[..., int], *args: Any) -> None:
        """function(ptr, *args) under the lock; a status that is not OK is raised."""
        self.enter()
        try:
            status = function(self.ptr, *args)
        finally:
            self.lock.release()
        if status or callbacks.raised is not None:
            raise_from(status, lib.context_message(self.context))

    def ask(self, function: Callable[..., Any], *args: Any) -> Any:
        """function(ptr, *args) under the lock, for functions that return no status."""
        self.enter()
        try:
            return function(self.ptr, *args)
        finally:
            self.lock.release()


def _release(destroy: Callable[[int], None], ptr: int, lock: threading.Lock, keep: Any) -> None:
    # Python's collector may call this anywhere, also within a callback, where fp8c must not be
    # called for an object in use.
    if callbacks.depth or not lock.acquire(False):
        _later.append((destroy, ptr, lock, keep))
        return
    try:
        destroy(ptr)
    finally:
        lock.release()


def drain() -> None:
    """Destroy what could not be destroyed when it was given up."""
    for _ in range(len(_later)):
        try:
            item = _later.popleft()
        except IndexError:
            return
        _release(*item)


class Closed(ValueError):
    """An object was used after its close()."""


class Owner:
    """Base of the objects that have a handle. `with` closes them."""
    _handle: Handle | None = None

    def _open(self) -> Handle:
        handle = self._handle
        if handle is None:
            raise Closed(f"this {type(self).__name__} is closed")
        return handle

    def close(self) -> None:
        """Give the object up; closing it again does nothing. Its memory goes with its last view."""
        self._handle = None
        if _later:
            drain()

    @property
    def closed(self) -> bool:
        return self._handle is None

    def __enter__(self):
        return self

    def __exit__(self, *exception) -> None:
        self.close()
