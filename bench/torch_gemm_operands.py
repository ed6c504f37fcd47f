"""Operands of a GEMM by distribution, as PyTorch takes them, and how far a result is off."""

from __future__ import annotations

import zlib
from dataclasses import dataclass

import torch
from torch_gemm_problems import Problem

DTYPES = {
    "f32": torch.float32,
    "bf16": torch.bfloat16,
    "f8e4m3": torch.float8_e4m3fn,
    "f8e5m2": torch.float8_e5m2,
}
INPUTS = ("normal", "uniform", "integers", "zeros")
ELEMENTS, CHUNK = 4096, 64
ROUNDING = {torch.float32: 2.0**-24, torch.bfloat16: 2.0**-8}  # half of a unit in the last place


def draw(inputs: str, seed: str, *shape: int) -> torch.Tensor:
    """Equal arguments give equal values, on the CPU in f32."""
    generator = torch.Generator().manual_seed(zlib.crc32(seed.encode()))
    if inputs == "normal":
        return torch.randn(*shape, generator=generator)
    if inputs == "uniform":
        return torch.rand(*shape, generator=generator).mul_(2).sub_(1)
    if inputs == "integers":
        return torch.randint(-4, 5, shape, generator=generator).float()
    return torch.zeros(*shape)


@dataclass
class Operand:
    """[R, K], R being m or n; `data` may lie transposed. `scale` has a row for `block[0]` rows, and a
    column for `block[1]` columns, of `data`; None: there is no scale."""

    data: torch.Tensor
    scale: torch.Tensor | None
    block: tuple[int, int]

    def rows(self, index: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        """Some rows, decoded, times their scales."""
        data = self.data
        if data.itemsize == 1:
            data = data.view(torch.uint8)[index].view(data.dtype)
        else:
            data = data[index]
        values = data.to(dtype)
        if self.scale is not None:
            scale = self.scale[index // self.block[0]].to(dtype)
            values *= scale.repeat_interleave(self.block[1], 1)[:, : values.shape[1]]
        return values


def block_of(p: Problem, second: bool) -> tuple[int, int]:
    """What a scale covers of an operand [R, K]. Of blocks a weight, the second operand of fprop and
    dgrad, has tiles."""
    rows, k = p.n if second else p.m, p.k
    if p.scaling == "row":
        return 1, k
    if p.scaling == "mx":
        return 1, 32
    if p.scaling == "block":
        return (128 if second and p.role != "wgrad" else 1), 128
    return rows, k


def largest(x: torch.Tensor, block: tuple[int, int]) -> torch.Tensor:
    """The largest magnitude of each block."""
    x = x.abs()
    for axis in (0, 1):
        if block[axis] > 1:
            x = torch.stack([part.amax(axis) for part in x.split(block[axis], axis)], axis)
    return x


def quantized(x: torch.Tensor, p: Problem, second: bool, exact: bool) -> Operand:
    """x in FP8. exact: it is representable as it is, so its scales are 1."""
    dtype = DTYPES[p.b if second else p.a]
    block, most = block_of(p, second), torch.finfo(dtype).max
    grid = largest(x, block)
    if exact:
        grid = torch.ones_like(grid)
    elif p.scaling == "mx":
        grid = torch.exp2(grid.log2().floor() - (8 if dtype == torch.float8_e4m3fn else 15))
    else:
        grid = grid / most
    spread = grid.repeat_interleave(block[0], 0)[: x.shape[0]].repeat_interleave(block[1], 1)[:, : x.shape[1]]
    return Operand((x / spread).clamp_(-most, most).to(dtype), grid, block)


def make(p: Problem, inputs: str, second: bool, turn: bool) -> Operand:
    """The operand as fp8c has it. turn: k is not contiguous."""
    rows, of = (p.n, p.b) if second else (p.m, p.a)
    x = draw(inputs, f"{p.text} {'ab'[second]}", rows, p.k)
    if p.fp8:
        operand = quantized(x, p, second, inputs in ("integers", "zeros"))
    else:
        operand = Operand(x.to(DTYPES[of]), None, (1, 1))
    if turn:
        operand.data = operand.data.t().contiguous().t()
    return operand


def decoded(operand: Operand, dtype: torch.dtype) -> Operand:
    """The same in f32 or bf16, stored the same way. A scale of the whole tensor is left out: it changes
    no time."""
    whole = operand.scale is not None and operand.scale.numel() == 1
    plain = Operand(operand.data, None if whole else operand.scale, operand.block)
    data = torch.empty_like(operand.data, dtype=dtype)
    for rows in torch.arange(data.shape[0]).split(1024):
        data[rows[0] : rows[-1] + 1] = plain.rows(rows, torch.float32)
    return Operand(data, None, (1, 1))


def swizzled(scale: torch.Tensor) -> torch.Tensor:
    """Scales of powers of two as E8M0 in the order of cuBLAS, "1D block scaling factors layout": tiles of
    128 rows by 4 columns, in which rows 32 apart are neighbours."""
    rows, columns = -(-scale.shape[0] // 128) * 128, -(-scale.shape[1] // 4) * 4
    bits = torch.zeros(rows, columns, dtype=torch.uint8)
    bits[: scale.shape[0], : scale.shape[1]] = (scale.log2() + 127).to(torch.uint8)
    tiles = bits.view(rows // 128, 4, 32, columns // 4, 4).permute(0, 3, 2, 1, 4)
    return tiles.contiguous().view(-1).view(torch.float8_e8m0fnu)


def scale_for_torch(operand: Operand, p: Problem) -> torch.Tensor:
    """The scales of [R, K] in the order in which torch._scaled_mm wants them; the second operand's are to
    be transposed then, but for MX."""
    assert operand.scale is not None
    scale = operand.scale
    if p.scaling == "tensor":
        return scale.view(())
    if p.scaling == "mx":
        return swizzled(scale)
    if p.scaling == "row":
        return scale
    if operand.block[0] == 1:
        return scale.t().contiguous().t()
    padded = torch.zeros(scale.shape[0], -(-scale.shape[1] // 4) * 4)
    padded[:, : scale.shape[1]] = scale
    return padded[:, : scale.shape[1]]


def error_of(
    a: Operand, b: Operand, c: torch.Tensor, bias: torch.Tensor | None, old: torch.Tensor | None
) -> float:
    """The largest |c - exact| / bound over 4,096 seeded elements (all, if there are fewer). At most 1 is
    right.

    exact is a sum in double. With u = 2^-24, S = sum |a||b| + |bias| + |old|, r half of a unit in the last
    place of c:

        bound = e + r (|exact| + e), e = (k + 4) u S

    A sum in f32 of k products, in any order, is off by at most k u S to first order (Higham 2002, section
    3.1); the addition of a bias or an old sum is one rounding more, and scales of f32 are at most three. A
    product that is rounded before the bias is added, too, may be above 1."""
    m, n = c.shape
    generator = torch.Generator().manual_seed(1)
    at = torch.randint(m * n, (ELEMENTS,), generator=generator) if m * n > ELEMENTS else torch.arange(m * n)
    k, worst = a.data.shape[1], 0.0
    for part in at.split(CHUNK):
        i, j = part // n, part % n
        x, y = a.rows(i, torch.float64), b.rows(j, torch.float64)
        exact, size = (x * y).sum(1), (x.abs_() * y.abs_()).sum(1)
        for more in (bias[j] if bias is not None else None, old[i, j] if old is not None else None):
            if more is not None:
                exact += more.double()
                size += more.double().abs()
        off = (c[i, j].double() - exact).abs()
        e = (k + 4) * 2.0**-24 * size
        bound = e + ROUNDING[c.dtype] * (exact.abs() + e)
        ratio = torch.where(off == 0, 0.0, off / bound)
        worst = max(worst, float(ratio.nan_to_num(nan=float("inf")).max()))
    return worst
