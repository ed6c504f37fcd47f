"""The memory that programs on the CPU keep for results and gradients: giving it back."""

from __future__ import annotations

import torch

from .scales import of_params
from .state import unwrap


def release_memory(model: torch.nn.Module) -> None:
    """Give the memory of results and gradients that PyTorch has deleted back to the system: on the
    CPU a model's programs keep it for the next call. What a tensor still holds stays as it is. On a
    GPU it is `torch.cuda.empty_cache` that does this."""
    for one in of_params(unwrap(model).parameters()):
        one.bound.release_memory()
