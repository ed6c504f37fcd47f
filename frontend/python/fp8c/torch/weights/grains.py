"""What a scale of stored FP8 codes covers, in each format's shapes; and the values of codes.

A value is its code times its scale, in f32, rounded to the dtype that is asked for. Codes are E4M3FN,
[out, in], and so are scales. frontend/formats/README.md has the names and shapes of each format.
"""

from __future__ import annotations

from enum import Enum

import torch
import torch.fx

from .. import private

CODES = torch.float8_e4m3fn
BLOCK, RUN = 128, 32  # of blocks, and of MX
SCALES = ("weight_scale_inv", "weight_scale")  # a scale's name beside its `weight`


class Grain(Enum):
    """What one scale covers: the tensor, an output, a block of 128 x 128, or 32 along the inputs. The value
    is the recipe of fp8c that scales a weight so."""

    TENSOR = "current"
    ROWS = "rowwise"
    BLOCKS = "block"
    MX = "mxfp8"

    @property
    def scale(self) -> str:
        """The name of the scales, beside `weight`."""
        return SCALES[0] if self is Grain.BLOCKS else SCALES[1]

    @property
    def dtype(self) -> torch.dtype:
        return torch.float8_e8m0fnu if self is Grain.MX else torch.float32

    def shape(self, size: torch.Size | tuple[int, ...]) -> tuple[int, ...]:
        """The shape of the scales of codes of this size."""
        out, across = size
        return {Grain.TENSOR: (), Grain.ROWS: (out, 1), Grain.BLOCKS: (-(-out // BLOCK), -(-across // BLOCK)),
                Grain.MX: (out, -(-across // RUN))}[self]


_MX_DTYPES = (torch.float8_e8m0fnu, torch.uint8)


def grain_of(dtype: torch.dtype, shape: tuple[int, ...], size: tuple[int, ...],
             like: Grain | None = None) -> Grain | None:
    """What scales of this type cover of codes of this size, in whichever format; None: they do not go
    together. like: what is expected, where several fit."""
    if dtype in _MX_DTYPES and shape == Grain.MX.shape(size):
        return Grain.MX
    if dtype is torch.uint8:
        return None
    if len(shape) == 4 and shape[1] == shape[3] == 1:  # ModelOpt's blocks
        shape = (shape[0], shape[2])
    fit = {Grain.TENSOR: ((), (1,)), Grain.BLOCKS: (Grain.BLOCKS.shape(size),),
           Grain.ROWS: ((size[0],), (size[0], 1))}
    found = [grain for grain, shapes in fit.items() if shape in shapes]
    return like if like in found else next(iter(found), None)


def own_scale(scale: torch.Tensor, size: tuple[int, ...], grain: Grain) -> torch.Tensor:
    """Scales of any format in the dtype and shape that fp8c gives them: the values stay."""
    if scale.dtype is torch.uint8:
        scale = scale.view(torch.float8_e8m0fnu)
    return scale.to(grain.dtype).reshape(grain.shape(size)).contiguous()


def recipe_of(grain: Grain, scale: torch.Tensor) -> str:
    """A recipe that makes such scales: of powers of two, if all of them are. scale: as `own_scale` gives it."""
    if grain is not Grain.MX and bool((torch.frexp(scale).mantissa == 0.5).all()):
        return f"{grain.value} {{pow2 = true}}"
    return grain.value


def values_of(codes: torch.Tensor, scale: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """What codes stand for. scale: as `own_scale` gives it."""
    values, rows, (height, width) = codes.to(torch.float32), scale.to(torch.float32), codes.shape
    if scale.dtype is torch.float8_e8m0fnu:
        values.mul_(rows.repeat_interleave(RUN, 1)[:, :width])
    elif scale.dim() == 2 and tuple(scale.shape) == Grain.BLOCKS.shape(codes.shape):
        rows, whole = rows.repeat_interleave(BLOCK, 1)[:, :width], height // BLOCK
        values[:whole * BLOCK].view(whole, BLOCK, width).mul_(rows[:whole, None])
        values[whole * BLOCK:].mul_(rows[-1])
    else:
        values.mul_(rows)
    return values.to(dtype)


@torch.library.custom_op("fp8c::dequantized", mutates_args=(),
                         schema="(Tensor codes, Tensor scale, ScalarType dtype) -> Tensor")
def dequantized(codes: torch.Tensor, scale: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """`values_of` as one op, so that a graph of dynamo's shows which weight is stored."""
    return values_of(codes, scale, dtype)


@dequantized.register_fake
def _(codes: torch.Tensor, scale: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    return torch.empty(codes.shape, dtype=dtype, device=codes.device)


DEQUANTIZED = "fp8c.dequantized.default"


def is_codes(node: torch.fx.Node) -> bool:
    """Whether a value of a graph is read as the codes of a stored weight alone."""
    return _is_operand(node, 0)


def is_scale(node: torch.fx.Node) -> bool:
    """Whether a value of a graph is read as the scales of a stored weight alone."""
    return _is_operand(node, 1)


def _is_operand(node: torch.fx.Node, index: int) -> bool:
    return bool(node.users) and all(private.target_name(user) == DEQUANTIZED and user.args[index] is node
                                    for user in node.users)
