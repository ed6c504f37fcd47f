"""Hugging Face's Trainer and Accelerate, whose `torch_compile_backend` takes no foreign names."""

from __future__ import annotations

from typing import Any

import torch

from .backend import fp8c_backend
from .settings import Settings


def compile_for_trainer(model: torch.nn.Module, **options: Any) -> torch.nn.Module:
    """Compile a model in place, before a Trainer or Accelerator is made with it; -> the model.

    The model keeps its class, which Trainer looks at, and the names of its parameters. Leave
    `torch_compile` of TrainingArguments alone. The options are those of the backend.
    """
    Settings.of(options)
    model.compile(backend=fp8c_backend, options=options)
    return model
