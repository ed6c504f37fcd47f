"""store_frozen: the frozen linears of a model keep their weights as FP8 codes."""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import dataclass, field
from typing import Mapping, Sequence

import torch

from .. import private
from ..linears import is_linear
from .folder import Folder
from .grains import Grain, recipe_of
from .linear import StoredLinear
from .quantize import quantized, recipes_of


@dataclass(frozen=True)
class Stored:
    """What `store_frozen` did. stored: the linears in FP8, each with its recipe. left: the other linears,
    each with the reason."""

    stored: dict[str, str] = field(default_factory=dict)
    left: dict[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        lines = [f"linears stored in FP8: {len(self.stored)}"]
        lines += [f"  {name}: {recipe}" for name, recipe in self.stored.items()]
        return "\n".join(lines + [f"  {name}: left as it is ({why})" for name, why in self.left.items()])


def store_frozen(model: torch.nn.Module, recipe: str = "block", rules: Sequence[str] = (), *,
                 folder: str | os.PathLike | None = None) -> Stored:
    """Turn the frozen linears of a model into `StoredLinear`s, in place; -> what became of each linear.

    Stored are nn.Linears whose weight has requires_grad=False, and which recipe and rules have in FP8.
    Rules are those of the backend. Others are left as they are: trained ones, subclasses, and weights that
    another module has, too.

    folder: the weights are this folder's, with its codes and scales, bit for bit. Each parameter of the model
    is loaded from it, one at a time. A model on the device "meta" never has other values.

    ValueError, fp8c.InputError: nothing to store, an unknown recipe or rule, a folder that does not go with the
    model; then the model is as it was. ValueError: an Inf or a NaN in a weight, codes or scales that are no
    numbers; then linears before it may be stored.
    """
    model = private.unwrap(model)
    linears = {name: module for name, module in model.named_modules() if is_linear(module)}
    holders = Counter(id(one) for module in model.modules() for one in module._parameters.values())
    left = {name: why for name, module in linears.items() if (why := _why_left(module, holders))}
    if folder is not None:
        if rules or recipe != "block":
            raise ValueError("recipe and rules choose how weights are quantized; those of a folder are already")
        return _from_folder(model, linears, left, Folder(folder))
    recipes = recipes_of(list(linears), _checked(recipe), rules) if linears else {}
    left |= {name: "recipe and rules do not have it in FP8" for name in linears
             if name not in recipes and name not in left}
    chosen = {name: recipes[name] for name in linears if name not in left}
    _check_some(chosen, left)
    for name in chosen:
        if linears[name].weight.is_meta:
            raise ValueError(f"{name}.weight has no values: give a folder, or load the model first")
    for name, own in chosen.items():
        try:
            codes, scale, grain = quantized(linears[name].weight, own)
        except ValueError as error:
            raise ValueError(f"{name}.weight: {error}") from error
        StoredLinear.of(linears[name], codes, scale, grain, own)
    return Stored(chosen, left)


def _checked(recipe: str) -> str:
    """A recipe that has FP8. ValueError: it has not."""
    known = [grain.value for grain in Grain] + ["delayed"]
    if not isinstance(recipe, str) or (recipe.split() or [""])[0] not in known:
        raise ValueError(f"recipe {recipe!r} is none of {', '.join(known)}")
    return recipe


def _check_some(chosen: dict[str, str], left: dict[str, str]) -> None:
    if not chosen:
        why = "; ".join(f"{name}: {reason}" for name, reason in list(left.items())[:4])
        raise ValueError(f"no linear to store in FP8: {why or 'the model has no linear'}")


def _why_left(module: torch.nn.Module, holders: Mapping[int, int]) -> str:
    """Why a linear can't be stored; empty: it can."""
    if isinstance(module, StoredLinear):
        return "it is stored already"
    if type(module) is not torch.nn.Linear:
        return f"it is a {type(module).__name__}, no plain nn.Linear"
    weight = module.weight
    if weight.requires_grad:
        return "it is trained: an update needs values; call requires_grad_(False) on it"
    if type(weight) is not torch.nn.Parameter:
        return f"its weight is a {type(weight).__name__}: call store_frozen before weights are sharded"
    if holders[id(weight)] > 1:
        return "another module has the same weight"
    return ""


def _from_folder(model: torch.nn.Module, linears: dict[str, torch.nn.Module], left: dict[str, str],
                 folder: Folder) -> Stored:
    """Everything of a folder, once it is known to fit."""
    own = dict(model.named_parameters(remove_duplicate=False)) | {
        name: buffer for name, buffer in model.named_buffers(remove_duplicate=False)}
    wrong = [f"{name}.weight is FP8 there, but {left.get(name, 'it is no linear of the model')}"
             for name in folder.stored if name not in linears or name in left]
    sizes = {f"{name}.weight": folder.shape(f"{name}.weight") for name in folder.stored if name in linears}
    sizes |= {name: folder.shape(name) for name in folder.plain if name in own}
    wrong += [f"{name} is {size} there and {tuple(own[name].shape)} in the model" for name, size in sizes.items()
              if size != tuple(own[name].shape)]
    wrong += [f"{name} is no parameter of the model" for name in folder.plain if name not in own]
    given = {id(own[name]) for name in sizes}
    wrong += [f"{name} is not there" for name, one in model.named_parameters() if id(one) not in given]
    if wrong:
        more = f"; and {len(wrong) - 8} more" if len(wrong) > 8 else ""
        raise ValueError(f"{folder.path} does not go with the model: {'; '.join(wrong[:8])}{more}")
    chosen = {name: folder.stored[name].grain.value for name in linears if name in folder.stored}
    left |= {name: "the folder has its weight in values" for name in linears
             if name not in chosen and name not in left}
    _check_some(chosen, left)
    for name in chosen:
        codes, scale = folder.codes(name)
        device = linears[name].weight.device
        if device.type != "meta":
            codes, scale = codes.to(device), scale.to(device)
        grain = folder.stored[name].grain
        StoredLinear.of(linears[name], codes, scale, grain, recipe_of(grain, scale))
    for name in folder.plain:
        _load(model, name, own[name], folder.tensor(name))
    return Stored(chosen, left)


def _load(model: torch.nn.Module, name: str, into: torch.Tensor, value: torch.Tensor) -> None:
    """Give a parameter or a buffer its value. One on the device "meta" becomes a new one, wherever it is."""
    if not into.is_meta:
        with torch.no_grad():
            into.copy_(value)
        return
    new = value.to(into.dtype)
    if isinstance(into, torch.nn.Parameter):
        new = torch.nn.Parameter(new, requires_grad=into.requires_grad)
    for module in model.modules():
        for tensors in (module._parameters, module._buffers):
            tensors.update({key: new for key, one in tensors.items() if one is into})
