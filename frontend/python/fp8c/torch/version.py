"""Which PyTorch this is: tested, untested (a small capture must work), or refused."""

from __future__ import annotations

import functools

import torch

from . import private
from .capture import capture_module
from .partition import partition
from .places import Unsupported


@functools.cache
def check() -> None:
    """Unsupported: this PyTorch lacks what capture needs. An untested one that works is logged."""
    _check(torch.__version__)


def _check(version: str) -> None:
    gone = private.missing()
    if gone:
        raise Unsupported("PyTorch " + version, "it lacks " + ", ".join(gone))
    number = ".".join(version.split(".")[:2])
    if number in private.TESTED:
        return
    from .backend import say_once
    say_once(f"fp8c was tested with PyTorch {' and '.join(private.TESTED)}, and this is {version}")
