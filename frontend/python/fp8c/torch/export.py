"""export_fp8: a model's weights in FP8 as files that other stacks load, or fp8c."""

from __future__ import annotations

import os
from typing import Sequence

import torch

from .run.state import scales_of_inputs
from .weights.export import MOST, write_fp8
from .weights.store import Stored


def export_fp8(model: torch.nn.Module, out: str | os.PathLike, as_: str = "hf-fp8", *, recipe: str = "block",
               rules: Sequence[str] = (), most: int = MOST) -> Stored:
    """Write a model's weights with those of its linears in FP8; -> what became of each linear.

    as_: "hf-fp8", "compressed-tensors" or "modelopt", a new folder with a config.json, which transformers and vLLM
    load; or "native", a file that `fp8c eval`, `run` and `train --weights` take. Stored linears keep their codes and
    scales, bit for bit. Others are quantized as recipe and rules say. Where one scale is a weight's,
    "compressed-tensors" and "modelopt" get the scales of inputs that `delayed` has, if it has all of them. most: bytes
    of tensors in a file of a folder.

    ValueError: another format, scales that the format does not have (of several kinds; modelopt's, where one scale is
    a weight's, need scales of inputs), no linear in FP8, an Inf or a NaN, adapters of peft. FileExistsError: there is
    something at `out`. Then nothing is written.
    """
    return write_fp8(model, out, as_, recipe, rules, most, scales_of_inputs)
