"""FP8 weights of a folder of safetensors files, in any of the formats of frontend/formats/README.md, read
one tensor at a time."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from typing import Any

import torch

from .grains import CODES, SCALES, Grain, grain_of, own_scale

_INDEX = "model.safetensors.index.json"
_DTYPES = {"F8_E4M3": CODES, "F8_E8M0": torch.float8_e8m0fnu, "U8": torch.uint8, "F32": torch.float32,
           "BF16": torch.bfloat16, "F16": torch.float16}
# What serving has beside weights: scales of inputs, and of a cache of keys and values.
_OTHERS = ("input_scale", "k_scale", "v_scale", "q_scale")


@dataclass(frozen=True)
class Kept:
    """A weight that a folder has as codes. scale: the name of its scales."""

    module: str
    scale: str
    grain: Grain


class Folder:
    """The files of a folder, or one file. ValueError: what it has can't be read as FP8 weights."""

    def __init__(self, path: str | os.PathLike) -> None:
        from safetensors import safe_open  # only here is it needed

        self.path = os.fspath(path)
        self._files = [safe_open(file, framework="pt") for file in _files_of(self.path)]
        self._of = {name: file for file in self._files for name in file.keys()}
        self.stored = {one.module: one for one in map(self._kept, self._of) if one is not None}
        scales = {one.scale for one in self.stored.values()}
        others = tuple(f".{other}" for other in _OTHERS)
        self.plain = [name for name in self._of if name not in scales and not name.endswith(others)
                      and name.removesuffix(".weight") not in self.stored]

    def shape(self, name: str) -> tuple[int, ...]:
        return tuple(self._of[name].get_slice(name).get_shape())

    def tensor(self, name: str) -> torch.Tensor:
        return self._of[name].get_tensor(name)

    def codes(self, module: str) -> tuple[torch.Tensor, torch.Tensor]:
        """The codes of a weight, and its scales as fp8c has them. ValueError: some are no numbers."""
        kept = self.stored[module]
        codes = self.tensor(f"{module}.weight")
        scale = own_scale(self.tensor(kept.scale), tuple(codes.shape), kept.grain)
        values = scale.to(torch.float32)
        if not bool((torch.isfinite(values) & (values > 0)).all()):
            raise ValueError(f"{self.path}: {kept.scale} has a scale that is zero, negative, Inf or NaN")
        if bool(((codes.view(torch.uint8) & 0x7F) == 0x7F).any()):
            raise ValueError(f"{self.path}: {module}.weight has codes that are NaN")
        return codes, scale

    def _dtype(self, name: str) -> Any:
        text = self._of[name].get_slice(name).get_dtype()
        return _DTYPES.get(text, text)

    def _kept(self, name: str) -> Kept | None:
        """What is known of a tensor that is a weight's codes; None: it is none."""
        if not name.endswith(".weight") or self._dtype(name) is not CODES:
            return None
        module, size = name.removesuffix(".weight"), self.shape(name)
        scale = next((f"{module}.{one}" for one in SCALES if f"{module}.{one}" in self._of), None)
        if scale is None:
            raise ValueError(f"{self.path}: {name} is FP8 and has no scale beside it")
        like = Grain.BLOCKS if scale.endswith(Grain.BLOCKS.scale) else Grain.ROWS
        grain = grain_of(self._dtype(scale), self.shape(scale), size, like) if len(size) == 2 else None
        if grain is None:
            raise ValueError(f"{self.path}: {scale} of shape {self.shape(scale)} does not go with {name} of "
                             f"shape {size}")
        return Kept(module, scale, grain)


def _files_of(path: str) -> list[str]:
    """The safetensors files of a path."""
    if os.path.isfile(path):
        return [path]
    index = os.path.join(path, _INDEX)
    if os.path.exists(index):
        with open(index, encoding="utf-8") as file:
            names = sorted(set(json.load(file)["weight_map"].values()))
    else:
        names = sorted(n for n in os.listdir(path) if n.endswith(".safetensors"))
    if not names:
        raise ValueError(f"{path} has no safetensors file")
    return [os.path.join(path, name) for name in names]
