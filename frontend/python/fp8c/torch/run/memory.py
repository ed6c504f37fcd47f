"""Freeing the memory that programs on the CPU keep for results and gradients."""

from __future__ import annotations

import torch

from ..private import unwrap
from .scales import of_params


def release_memory(model: torch.nn.Module) -> None:
    """Free memory that a model's programs on the CPU keep for the next call: that of results and
    gradients which PyTorch has deleted. Tensors that are still held stay as they are. `model` may
    be what `torch.compile` returned. On a GPU PyTorch keeps such memory, and
    `torch.cuda.empty_cache` frees it."""
    for one in of_params(unwrap(model).parameters()):
        one.bound.release_memory()
