"""The FP8 codes of a weight: made by a part of it, and turned back into a whole that has the same codes.

A stage scales a weight by its largest magnitudes (passes/scale/README.md, "Scales"). If those are known,
a rank can make the codes of its own rows. `decode` turns all codes into numbers g such that a stage
which quantizes g finds the amaxes, the scales and the codes of the weight w itself, bit for bit:

- Scales. The elements of a block with the largest code become the block's amax a, with their signs. So
  the amax of g is a, and the scale, which follows from a (and from earlier amaxes under `delayed`), is s.
- Their codes. a has the largest code.
- Other codes c become c / s, rounded to g's dtype. If that is a normal number, it differs from c / s by
  2^-8 of it (bf16) or 2^-23 (f32), and g * s from c by hardly more. A number within 2^-5 of c rounds to
  c. In f32 c / s is at least 2^-9 / FLT_MAX > 2^-138, and if it is no normal number the error is at most
  2^-150, which is 2^-12 of it. In bf16 it is a normal number for s up to 2^117, and so for amaxes from
  TINY on, or 0. Smaller amaxes are an error there.
- Rounding is monotonic, and other codes are less than that of a. So no other |g| is above a.
- Inf and NaN. The scale of such a block is 1. An Inf has the largest code, and becomes Inf again, which
  is the block's amax. A NaN stays a NaN; where there is one, the largest code stays what it is.

So the proof needs the amax itself, not only the scale: 448 * (1 / s) is seldom a.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

import torch

TINY = 2.0**-108  # the least amax of a bf16 weight, but 0
_FP8, _MAX = torch.float8_e4m3fn, 448.0
_FLT_MAX = torch.finfo(torch.float32).max
RECIPES = {"current": 0, "delayed": 0, "block": 128}  # the rows and columns of a block; 0: the tensor
_DEFAULTS = {"format": "", "fake": "", "margin": "0", "pow2": "false", "history": "16", "amax": "max"}


def name_of(recipe: str) -> str:
    """A recipe without its options."""
    return (recipe.partition("{")[0].split() or [""])[0]


@dataclass(frozen=True)
class Scaling:
    """How a recipe scales a weight. block: the rows and columns that share a scale; 0: all do. margin:
    powers of two below the format's maximum. pow2: scales are rounded down to powers of two. history:
    how many amaxes `delayed` looks at, the present one among them; 1: at the present one alone."""

    block: int = 0
    margin: int = 0
    pow2: bool = False
    history: int = 1

    @classmethod
    def of(cls, recipe: str) -> Scaling:
        """ValueError: under this recipe a weight has no codes that can travel."""
        name, given = name_of(recipe), dict(_DEFAULTS)
        if name in ("rowwise", "mxfp8"):
            raise ValueError(f"recipe {name!r} quantizes a weight along two axes, so one set of codes is "
                             f"not enough. Codes travel under {', '.join(RECIPES)}")
        if name not in RECIPES:
            raise ValueError(f"recipe {name!r} has no FP8 codes of weights. Codes travel under "
                             f"{', '.join(RECIPES)}")
        for key, value in re.findall(r"(\w+)\s*=\s*(\w+)", recipe):
            if key not in given:
                raise ValueError(f"recipe {name} has no option {key!r}")
            given[key] = value
        longest = 1 if name != "delayed" or given["amax"] == "most_recent" else int(given["history"])
        return cls(RECIPES[name], int(given["margin"]), given["pow2"] == "true", longest)

    def blocks(self, size: tuple[int, ...]) -> tuple[int, int]:
        """How many blocks a matrix of this size has along its axes."""
        if not self.block:
            return 1, 1
        return -(-size[0] // self.block), -(-size[1] // self.block)


def amaxes(rows: torch.Tensor, first: int, size: tuple[int, ...], scaling: Scaling) -> torch.Tensor:
    """i32 [blocks, blocks]: the largest |x| of each block as bits of f32, for which NaN > Inf > finite
    holds. rows: those of a matrix of this size from row `first` on. Blocks without such rows have 0."""
    down, across = scaling.blocks(size)
    found = torch.zeros(down, across, dtype=torch.int32, device=rows.device)
    if not rows.numel():
        return found
    bits = rows.float().abs().view(torch.int32)
    if not scaling.block:
        return bits.max().reshape(1, 1)
    step = scaling.block
    bits = torch.nn.functional.pad(bits, (0, across * step - size[1]))
    bits = bits.view(len(rows), across, step).amax(-1)
    begin, end = first // step, -(-(first + len(rows)) // step)
    bits = torch.nn.functional.pad(bits, (0, 0, first - begin * step, end * step - first - len(rows)))
    found[begin:end] = bits.view(end - begin, step, across).amax(1)
    return found


def scales(amax: torch.Tensor, scaling: Scaling, largest: float = 0.0) -> torch.Tensor:
    """f32, of amax's shape: what x is multiplied by before it is encoded. largest: the largest of the
    earlier amaxes that `delayed` looks at."""
    over = torch.clamp(amax, min=largest) if largest else amax
    top = torch.full_like(over, math.ldexp(_MAX, -scaling.margin))
    scale = (top / over).clamp(max=_FLT_MAX)
    if scaling.pow2:
        scale = (scale.view(torch.int32) & 0x7F800000).view(torch.float32)
    return torch.where(torch.isfinite(amax) & (over > 0), scale, torch.ones_like(scale))


def encode(rows: torch.Tensor, first: int, scale: torch.Tensor, scaling: Scaling) -> torch.Tensor:
    """u8: the E4M3 codes of rows of a matrix, from row `first` on."""
    scaled = rows.float() * _spread(scale, first, rows.shape, scaling)
    return scaled.clamp(-_MAX, _MAX).to(_FP8).view(torch.uint8)


def decode(codes: torch.Tensor, amax: torch.Tensor, scale: torch.Tensor, scaling: Scaling,
           dtype: torch.dtype) -> torch.Tensor:
    """The whole matrix for all of its codes: see the head of this file."""
    shape = codes.shape
    values = codes.view(_FP8).float()
    most = _spread(_largest(codes, scaling), 0, shape, scaling)
    bound = _spread(amax, 0, shape, scaling)
    is_top = (values.abs() == most) & ~bound.isnan()
    values = torch.where(is_top, torch.copysign(bound.expand(shape), values),
                         values / _spread(scale, 0, shape, scaling))
    return values.to(dtype)


def _largest(codes: torch.Tensor, scaling: Scaling) -> torch.Tensor:
    """f32 [blocks, blocks]: the largest magnitude of each block's codes that are no NaN."""
    bits = codes & 0x7F
    bits = torch.where(bits == 0x7F, torch.zeros_like(bits), bits).int()
    if not scaling.block:
        most = bits.max().reshape(1, 1)
    else:
        (down, across), step = scaling.blocks(codes.shape), scaling.block
        bits = torch.nn.functional.pad(bits, (0, across * step - codes.shape[1],
                                              0, down * step - codes.shape[0]))
        most = bits.view(down, step, across, step).amax((1, 3))
    return most.to(torch.uint8).view(_FP8).float()


def _spread(one: torch.Tensor, first: int, shape: tuple[int, ...], scaling: Scaling) -> torch.Tensor:
    """A number for each block as one for each element of the rows from `first` on, or for all."""
    if not scaling.block:
        return one
    down = torch.arange(first, first + shape[0], device=one.device) // scaling.block
    across = torch.arange(shape[1], device=one.device) // scaling.block
    return one[down][:, across]
