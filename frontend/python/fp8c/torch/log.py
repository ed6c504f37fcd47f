"""The logger `fp8c.torch`, and what is said there once."""

from __future__ import annotations

import logging
import threading

LOGGER = logging.getLogger("fp8c.torch")
_said: set[str] = set()
_lock = threading.Lock()


def say_once(message: str) -> None:
    """Log a warning, unless it was logged before."""
    with _lock:
        if message in _said:
            return
        _said.add(message)
    LOGGER.warning("%s", message)
