"""The memory in which programs work: one arena for all that a thread compiles for a device.

Programs of a model, as those for training, for evaluation and for other shapes, run one after the other.
So the arena is as large as the largest of them, not as all together. If programs of one arena are called
in several threads, or on several streams, a run waits for the other; programs that different threads
compile have different arenas, and run at the same time.
"""

from __future__ import annotations

import threading

import torch

import fp8c

from .device import Device


class _Arenas(threading.local):
    def __init__(self) -> None:
        self.of: dict[torch.device, fp8c.Arena] = {}


_arenas = _Arenas()


def arena_of(place: Device) -> fp8c.Arena:
    """The arena for programs that this thread compiles for a device. It lives while the thread does, or a
    program in it. On a GPU its memory is of PyTorch's allocator."""
    found = _arenas.of.get(place.device)
    if found is None:
        found = _arenas.of[place.device] = fp8c.Arena(**place.memory())
    return found
