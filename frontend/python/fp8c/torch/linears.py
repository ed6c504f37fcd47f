"""Which modules are linears."""
from __future__ import annotations

import torch


def is_linear(module: torch.nn.Module) -> bool:
    """nn.Linear, its subclasses, and Hugging Face's Conv1D, which is a linear."""
    if isinstance(module, torch.nn.Linear):
        return True
    weight = getattr(module, "weight", None)
    return type(module).__name__ == "Conv1D" and isinstance(weight, torch.Tensor) and weight.dim() == 2
