"""Opens libfp8c.so: the file FP8C_LIBRARY names, else the one in this package.

A library of another version is refused. libfp8c.so opens LLVM and oneDNN when it compiles for the
CPU; `missing` says beforehand that they are not there.
"""
from __future__ import annotations

import ctypes
import os
from types import SimpleNamespace

from . import _header as h

LIBRARY = "libfp8c.so"
# Each component that target "cpu" needs, with the file names that libfp8c.so looks for.
CPU_FILES = {"LLVM 19": ("libLLVM.so.19.1", "libLLVM-19.so.1", "libLLVM-19.so"),
             "oneDNN 2": ("libdnnl.so.2",)}


def _open() -> tuple[ctypes.CDLL, str]:
    path = os.environ.get("FP8C_LIBRARY") or os.path.join(os.path.dirname(__file__), LIBRARY)
    if os.sep in path:  # another name is the loader's to find
        path = os.path.abspath(path)
    try:
        return ctypes.CDLL(path), path
    except OSError as error:
        raise ImportError(f"{path} can't be loaded: {error}. An installed wheel of fp8c has it; in "
                          "the source tree set FP8C_LIBRARY to build/libfp8c.so") from error


def _version(library: ctypes.CDLL, path: str) -> None:
    try:
        text = library.fp8c_version
    except AttributeError as error:
        raise ImportError(f"{path} is not libfp8c: it has no fp8c_version") from error
    text.restype = ctypes.c_char_p
    found, wanted = (text() or b"?").decode(), ".".join(map(str, h.VERSION))
    if found != wanted:
        raise ImportError(f"{path} is libfp8c {found}, and this package is for libfp8c {wanted}: "
                          "install the two together")


def _functions(library: ctypes.CDLL, path: str) -> SimpleNamespace:
    functions = SimpleNamespace()
    for name, (result, *arguments) in h.FUNCTIONS.items():
        try:
            function = getattr(library, "fp8c_" + name)
        except AttributeError as error:
            raise ImportError(f"{path} has no fp8c_{name}, which this package calls: install the "
                              "two together") from error
        function.restype, function.argtypes = result, arguments
        setattr(functions, name, function)
    return functions


def missing() -> list[str]:
    """The components of CPU_FILES whose files the loader would not find, without loading any: a
    look at LD_LIBRARY_PATH and at the loader's cache. It can err; fp8c.doctor() does not."""
    try:
        with open("/etc/ld.so.cache", "rb") as file:
            cache = file.read()
    except OSError:
        cache = b""
    folders = [f for f in os.environ.get("LD_LIBRARY_PATH", "").split(":") if f]
    folders += ["/lib", "/usr/lib", "/lib64", "/usr/lib64"]
    return [name for name, files in CPU_FILES.items()
            if not any(f.encode() + b"\0" in cache for f in files)
            and not any(os.path.exists(os.path.join(d, f)) for d in folders for f in files)]


_library, PATH = _open()
_version(_library, PATH)
lib = _functions(_library, PATH)
