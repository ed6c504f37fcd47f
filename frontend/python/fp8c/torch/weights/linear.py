"""A linear whose weight is stored as FP8 codes with scales."""

from __future__ import annotations

from typing import Any, Callable, Mapping

import torch
from torch.nn import functional

from .grains import CODES, SCALES, Grain, dequantized, grain_of, own_scale


class StoredLinear(torch.nn.Linear):
    """An nn.Linear whose `weight` is FP8 codes, with their scales beside it: `weight_scale_inv` for blocks of
    128 x 128, else `weight_scale`. `store_frozen` makes it of an nn.Linear.

    In eager mode it computes with the values of the codes, in the dtype of its input. Between a forward
    and its backward autograd keeps the codes alone. The weight has no gradient; bias and input have.

    recipe: with its options, what the codes were made under.
    """

    recipe: str
    compute_dtype = torch.float32  # of adapters; else peft casts them, also their first values, to that of `weight`

    def __init__(self, *_: Any, **__: Any) -> None:
        raise TypeError("fp8c.torch.store_frozen makes StoredLinears of a model's linears")

    @classmethod
    def of(cls, linear: torch.nn.Linear, codes: torch.Tensor, scale: torch.Tensor, grain: Grain,
           recipe: str) -> StoredLinear:
        """Turn a linear into a stored one, in place: hooks, and who refers to the module, stay. scale: as
        `own_scale` gives it."""
        linear.__class__ = cls
        linear.recipe = recipe
        linear.weight = torch.nn.Parameter(codes, requires_grad=False)
        linear.register_buffer(grain.scale, scale)
        return linear

    @property
    def scale(self) -> torch.Tensor:
        """The scales, under whichever name."""
        return next(self._buffers[name] for name in SCALES if name in self._buffers)

    @property
    def grain(self) -> Grain:
        """What a scale covers."""
        if Grain.BLOCKS.scale in self._buffers:
            return Grain.BLOCKS
        scale = self.scale
        return Grain.MX if scale.dtype is Grain.MX.dtype else Grain.ROWS if scale.dim() else Grain.TENSOR

    def values(self, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        """What the codes stand for: the weight."""
        return dequantized(self.weight, self.scale, dtype)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.weight.requires_grad:
            raise RuntimeError("a StoredLinear's weight is FP8 codes, which can't be trained: call "
                               "requires_grad_(False) on it")
        if torch.compiler.is_compiling():
            return functional.linear(x, dequantized(self.weight, self.scale, x.dtype), _like(self.bias, x))
        if torch.is_autocast_enabled(x.device.type):
            x = x.to(torch.get_autocast_dtype(x.device.type))
        return _Product.apply(x, self.weight, self.scale, _like(self.bias, x))

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, stored={self.grain.value}"

    def _apply(self, fn: Callable[[torch.Tensor], torch.Tensor], recurse: bool = True) -> StoredLinear:
        """`.to()`, `.bfloat16()` and the like move codes and scales, and never convert them."""
        codes, scale = self.weight.dtype, self.scale

        def moved(tensor: torch.Tensor) -> torch.Tensor:
            if tensor.dtype is not codes and tensor is not scale:
                return fn(tensor)
            bits = torch.int32 if tensor.dtype is torch.float32 else torch.uint8
            return fn(tensor.view(bits)).view(tensor.dtype)

        return super()._apply(moved, recurse)

    def _load_from_state_dict(self, state_dict: Mapping[str, Any], prefix: str, local_metadata: Any, strict: bool,
                              missing_keys: list[str], unexpected_keys: list[str], error_msgs: list[str]) -> None:
        """Scales of other formats are taken, too. Weights that are no codes, and scales that cover something
        else, are errors: they would be copied as if they were codes."""
        weight, name = state_dict.get(prefix + "weight"), self.grain.scale
        given = next((prefix + one for one in SCALES if prefix + one in state_dict), None)
        state = dict(state_dict)
        if weight is not None and weight.dtype is not CODES:
            error_msgs.append(f"{prefix}weight is {weight.dtype}, not FP8 codes: load it before store_frozen, or "
                              "load codes with their scale")
            return
        if weight is not None and given is not None:
            scale = state.pop(given)
            grain = grain_of(scale.dtype, tuple(scale.shape), tuple(self.weight.shape), self.grain)
            if grain is not self.grain:
                covers = grain.name.lower() if grain else f"a shape that does not fit, {tuple(scale.shape)}"
                error_msgs.append(f"{given} is of {covers}, and {prefix}{name} of {self.grain.name.lower()}: "
                                  "give store_frozen the recipe that the codes were made with")
                return
            state[prefix + name] = own_scale(scale, tuple(self.weight.shape), grain)
        super()._load_from_state_dict(state, prefix, local_metadata, strict, missing_keys, unexpected_keys,
                                      error_msgs)


class _Product(torch.autograd.Function):
    """x W^T + bias, of which autograd keeps W's codes."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, codes: torch.Tensor, scale: torch.Tensor,
                bias: torch.Tensor | None) -> torch.Tensor:
        ctx.save_for_backward(codes, scale)
        return functional.linear(x, dequantized(codes, scale, x.dtype), bias)

    @staticmethod
    def backward(ctx: Any, dy: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        codes, scale = ctx.saved_tensors
        dx = dy @ dequantized(codes, scale, dy.dtype) if ctx.needs_input_grad[0] else None
        return dx, None, None, dy.flatten(0, -2).sum(0) if ctx.needs_input_grad[3] else None


def _like(bias: torch.Tensor | None, x: torch.Tensor) -> torch.Tensor | None:
    return None if bias is None else bias.to(x.dtype)
