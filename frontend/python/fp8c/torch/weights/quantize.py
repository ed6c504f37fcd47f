"""Which linears recipe and rules have in FP8, and the codes of a weight. fp8c itself says both."""

from __future__ import annotations

from typing import Sequence

import torch

import fp8c
from fp8c.tensors import View

from .grains import CODES, Grain

_CPU = (1, 0)  # DLPack's
_NAMES = {CODES: "f8e4m3", torch.float32: "f32", torch.float8_e8m0fnu: "f8e8m0"}
_TARGET = "reference"  # it makes no code


def recipes_of(linears: Sequence[str], recipe: str, rules: Sequence[str]) -> dict[str, str]:
    """The recipe that each linear's weight is in FP8 under; a linear that has none is left out. fp8c.InputError:
    no such recipe or rule, or a rule matches no linear."""
    n, rows = 16, [name or "linear" for name in linears]
    ports = ", ".join(f"%r{i}: f32[{n}, {n}]" for i in range(len(rows)))
    lines = ["module model", *(f"param w{i}: f32[{n}, {n}] zeros" for i in range(len(rows))),
             f"func forward(%x: f32[{n}, {n}]) -> ({ports}) {{"]
    lines += [f'  %y{i} = linear(%x, w{i}) {{transpose_b = true, name = "{name}"}}' for i, name in enumerate(rows)]
    lines += ["  return " + ", ".join(f"%y{i}" for i in range(len(rows))), "}", ""]
    module = fp8c.Module.parse("\n".join(lines))
    for rule in rules:
        module.rule(rule)
    program = module.compile(recipe=recipe, inference=True, plan_only=True, target=_TARGET)
    return {linears[rows.index(one.linear)]: one.scaling for one in program.decisions()
            if one.format_b.startswith("f8")}


def quantized(weight: torch.Tensor, recipe: str) -> tuple[torch.Tensor, torch.Tensor, Grain]:
    """The codes of a matrix, and its scales, on its device: bit for bit those that `fp8c export` writes.
    ValueError: the matrix has an Inf or a NaN, or the recipe's codes are not E4M3."""
    rows, columns = weight.shape
    text = (f"module one\nparam weight: f32[{rows}, {columns}] zeros\n"
            f"func forward(%x: f32[1, {columns}]) -> (%y: f32[1, {rows}]) {{\n"
            '  %r = linear(%x, weight) {transpose_b = true, name = "linear"}\n  return %r\n}\n')
    program = fp8c.Module.parse(text).compile(recipe=recipe, stored=recipe, inference=True, target=_TARGET,
                                              external="weight,weight_*")
    made, scales = program.variable("weight"), program.variable(program.stored()[0].scale_variable)
    if made.type.dtype != _NAMES[CODES]:
        raise ValueError(f"under recipe {recipe} it has codes of {made.type.dtype}, and E4M3 is stored")
    grain = Grain.MX if scales.type.dtype == _NAMES[Grain.MX.dtype] else \
        Grain.BLOCKS if scales.name.endswith(Grain.BLOCKS.scale) else \
        Grain.ROWS if scales.type.shape else Grain.TENSOR
    codes = torch.zeros(rows, columns, dtype=CODES)
    scale = torch.zeros(scales.type.shape, dtype=grain.dtype)
    for name, tensor in (("weight", codes), (scales.name, scale)):
        view = View(tensor.data_ptr(), _NAMES[tensor.dtype], tensor.shape, _CPU, tensor)
        program.bind_variable(name, view)
    program.quantize("weight", weight.detach().to("cpu", torch.float32).contiguous())
    if not bool(torch.isfinite(scale.to(torch.float32)).all()):
        raise ValueError("it has an Inf or a NaN")
    return codes.to(weight.device), scale.to(weight.device), grain
