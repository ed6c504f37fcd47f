"""merge_adapters: what peft's LoRA adapters add becomes part of weights that are stored as FP8 codes.

peft adds to `weight` itself, which is codes here. So a linear's values are made of its codes, the adapters'
deltas are added in f32, and fp8c quantizes the sum as it quantized the weight. What is known to go wrong is
looked for first. New codes are kept aside until all are made, so an error leaves the model as it was.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Iterator, Sequence

import torch

from .. import private
from ..linears import is_linear
from .grains import values_of
from .linear import StoredLinear
from .quantize import quantized

_DTYPES = (torch.float64, torch.float32, torch.bfloat16, torch.float16)
HEADS = ("module", "stored", "adapters", "delta/weight", "SQNR", "SQNR of delta")


@dataclass(frozen=True)
class MergedLinear:
    """A stored linear after its merge. name: its path in the merged model. stored: the recipe of its codes.
    adapters: those that were merged, in the order of their sum.

    delta: the norm of what they add, over that of the sum of weight and delta. sqnr: decibels of that sum over
    the error of the new codes' values. delta_sqnr: decibels of what the adapters add over the error of what was
    added; below 0 the rounding is larger than the adapters. NaN, with sqnr inf: they add zeros, and codes and
    scales keep their bits.
    """

    name: str
    stored: str
    adapters: tuple[str, ...]
    delta: float
    sqnr: float
    delta_sqnr: float


@dataclass(frozen=True)
class Merged:
    """What `merge_adapters` did. model: the model without adapters. linears: the stored linears that were
    merged, those first whose adapters suffered most from rounding. by_peft: the linears in values, which peft
    merged. left: those whose adapters were dropped, with the reason."""

    model: torch.nn.Module = field(repr=False, compare=False)
    linears: list[MergedLinear]
    by_peft: list[str] = field(default_factory=list)
    left: dict[str, str] = field(default_factory=dict)

    def __getitem__(self, name: str) -> MergedLinear:
        return next(one for one in self.linears if one.name == name)

    def __iter__(self) -> Iterator[MergedLinear]:
        return iter(self.linears)

    def __len__(self) -> int:
        return len(self.linears)

    def __str__(self) -> str:
        table = [HEADS, *map(_cells, self.linears)]
        widths = [max(map(len, column)) for column in zip(*table)]
        lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in table]
        lines += [f"{name}: merged by peft, in values" for name in self.by_peft]
        return "\n".join(lines + [f"{name}: not merged ({why})" for name, why in self.left.items()])


def _cells(one: MergedLinear) -> tuple[str, ...]:
    return (one.name, one.stored, ", ".join(one.adapters), f"{one.delta:.2%}", f"{one.sqnr:.1f} dB",
            "no change" if math.isnan(one.delta_sqnr) else f"{one.delta_sqnr:.1f} dB")


@dataclass(frozen=True)
class _Layer:
    """A LoRA layer of peft's, under its name in the model; its base layer; and its adapters that are merged,
    if any."""

    name: str
    lora: Any
    base: torch.nn.Module
    adapters: tuple[str, ...]


def merge_adapters(model: torch.nn.Module, adapter_names: Sequence[str] | None = None) -> Merged:
    """Merge peft's LoRA adapters into the model below them, stored linears included; -> its report, with the
    model that has no adapters any more.

    This is `merge_and_unload` of peft for a base of `store_frozen`. As there, the base model is changed in
    place, `adapter_names` are the active adapters unless given, and several are summed. The model that was
    passed has no adapters then, so a second call is an error. Nothing like `merge_adapter` is here: it promises
    `unmerge_adapter`, and rounding can't be undone.

    A stored linear gets the codes of its values plus the deltas (peft's get_delta_weight), summed in f32, with
    new scales, under the recipe that it was stored with. Codes and scales are written where they are. Linears
    in values are merged by peft. While it works, the new codes are held beside the old ones.

    ValueError, with the name of the module: an Inf or a NaN, adapters other than plain LoRA of linears (DoRA, a
    bias of the adapter, embeddings), adapters that are merged already or disabled, weights that are shared,
    sharded or on the device "meta". ValueError: no stored linear has an adapter, or no adapter has such a name.
    Then nothing is changed.
    """
    if isinstance(adapter_names, str):
        raise TypeError(f"adapter_names is a list of names, not {adapter_names!r}")
    tuner, base = _parts(private.unwrap(model))
    layers = _layers(base, None if adapter_names is None else list(adapter_names))
    _check_tuner(tuner)
    _check_copies(base, adapter_names, tuner is not None)
    left = {one.name: f"it has adapters {', '.join(one.lora.lora_A)}, none of which was asked for"
            for one in layers if not one.adapters}
    stored = [one for one in layers if one.adapters and isinstance(one.base, StoredLinear)]
    plain = [one for one in layers if one.adapters and not isinstance(one.base, StoredLinear)]
    if not stored:
        why = "; ".join(f"{name}: {reason}" for name, reason in list(left.items())[:4])
        raise ValueError("no adapter to merge into a linear that is stored in FP8"
                         + (f": {why}" if why else "; merge_and_unload of peft merges into values"))
    with torch.no_grad(), torch.autocast(stored[0].base.weight.device.type, enabled=False):
        for one in plain:
            _check_sum(one)
        made = [_requantized(one) for one in stored]
        _unload(tuner, base, layers, adapter_names)
        for one, (codes, scale, _) in zip(stored, made):
            if codes is not None:
                one.base.weight.detach().view(torch.uint8).copy_(codes.view(torch.uint8))
                one.base.scale.copy_(scale)
    rows = sorted((row for _, _, row in made), key=lambda row: (math.isnan(row.delta_sqnr), row.delta_sqnr))
    return Merged(base, rows, [one.name for one in plain], left)


def _parts(model: torch.nn.Module) -> tuple[Any, torch.nn.Module]:
    """peft's model of tuners, or None where adapters were injected without one; and the model below."""
    from peft.tuners.tuners_utils import BaseTuner

    tuners = [one for one in model.modules() if isinstance(one, BaseTuner)]
    if not tuners:
        return None, model
    if model is not tuners[0] and getattr(model, "base_model", None) is not tuners[0]:
        name = next(name for name, one in model.named_modules() if one is tuners[0])
        raise ValueError(f"{name.removesuffix('.base_model')} is a model of peft's: call merge_adapters on it, and "
                         "put the result in its place")
    if len(tuners) > 1:
        raise ValueError(f"{', '.join(type(one).__name__ for one in tuners)}: the model has models of peft's inside "
                         "each other")
    return tuners[0], tuners[0].model


def _check_tuner(tuner: Any) -> None:
    from peft.tuners.lora import LoraModel

    if tuner is not None and not isinstance(tuner, LoraModel):
        raise ValueError(f"the adapters are those of a {type(tuner).__name__}, and LoRA alone can be merged")


def _layers(base: torch.nn.Module, names: list[str] | None) -> list[_Layer]:
    """All layers with adapters. ValueError: one can't be merged, or no layer has an adapter of such a name."""
    from peft.tuners.tuners_utils import BaseTunerLayer

    shared = _Shared(base)
    found: list[_Layer] = []
    known: set[str] = set()
    for name, module in base.named_modules():
        if not isinstance(module, BaseTunerLayer):
            continue
        why = _why_not(module)
        if why:
            raise ValueError(f"{name}: {why}")
        known |= set(module.lora_A)
        chosen = module.active_adapters if names is None else names
        own = tuple(one for one in chosen if one in module.lora_A)
        why = next((why for one in own if (why := _why_not_adapter(module, one))), "") or \
            (_why_not_weight(module.base_layer) or shared.why(module) if own else "")
        if why:
            raise ValueError(f"{name}: {why}")
        found.append(_Layer(name, module, module.base_layer, own))
    unknown = [one for one in names or () if one not in known]
    if unknown:
        raise ValueError(f"no linear has an adapter {unknown[0]!r}: there are {', '.join(sorted(known)) or 'none'}")
    return found


def _why_not(layer: Any) -> str:
    """Why a layer of peft's can't be merged; empty: it can."""
    from peft.tuners.lora.layer import Linear

    if type(layer) is not Linear:
        kind = f"{type(layer).__module__.removeprefix('peft.tuners.')}.{type(layer).__name__}"
        return f"its adapter is a {kind}, and LoRA of linears alone can be merged"
    if layer.merged:
        return f"it has adapters that are merged already: {', '.join(layer.merged_adapters)}; call unmerge_adapter " \
               "first"
    if layer.disable_adapters:
        return "its adapters are disabled: call enable_adapter_layers first, or unload"
    if not isinstance(layer.base_layer, StoredLinear) and (
            not is_linear(layer.base_layer) or layer.base_layer.weight.dtype not in _DTYPES):
        return f"its base layer is a {type(layer.base_layer).__name__}, no linear in FP8 codes or in values"
    return ""


def _why_not_adapter(layer: Any, adapter: str) -> str:
    if adapter in layer.lora_variant or layer.use_dora.get(adapter):
        kind = type(layer.lora_variant.get(adapter)).__name__
        return f"adapter {adapter!r} is no plain LoRA ({kind}): keep it beside the base"
    if layer.lora_bias.get(adapter):
        return f"adapter {adapter!r} has a bias (lora_bias), which is not merged"
    parts = [layer.lora_A[adapter].weight, layer.lora_B[adapter].weight]
    if any(one.is_meta for one in parts):
        return f"adapter {adapter!r} is on the device \"meta\": load it first"
    if any(one.dtype not in _DTYPES for one in parts):
        return f"adapter {adapter!r} is {parts[0].dtype}, in which peft computes nothing: make it f32"
    if any(type(one) is not torch.nn.Parameter for one in parts):
        return f"adapter {adapter!r} is sharded: merge before fully_shard, or load it into a model of one process"
    return ""


def _tensors(base: Any) -> list[torch.Tensor]:
    """What a merge writes."""
    return [base.weight, base.scale] if isinstance(base, StoredLinear) else [base.weight]


def _why_not_weight(base: torch.nn.Module) -> str:
    for tensor in _tensors(base):
        if tensor.is_meta:
            return "its weight is on the device \"meta\": load it first"
        if type(tensor) not in (torch.nn.Parameter, torch.Tensor):
            return f"its weight is a {type(tensor).__name__}: merge before weights are sharded"
        if tensor.is_inference() and not torch.is_inference_mode_enabled():
            return "its weight was made under inference_mode: merge under it, too"
    return ""


class _Shared:
    """Which modules and tensors of a model have more than one place."""

    def __init__(self, model: torch.nn.Module) -> None:
        self._tensors: dict[Any, list[tuple[int, int, str]]] = {}  # by storage: first byte, end and name
        for name, module in model.named_modules():
            for key, tensor in (module._parameters | module._buffers).items():
                if type(tensor) in (torch.nn.Parameter, torch.Tensor) and tensor.layout is torch.strided \
                        and tensor.numel() and not tensor.is_meta:
                    storage, *bytes_ = self._place(tensor)
                    self._tensors.setdefault(storage, []).append((*bytes_, f"{name}.{key}"))
        self._holders = Counter(id(child) for module in model.modules() for child in module._modules.values())

    @staticmethod
    def _place(tensor: torch.Tensor) -> tuple[Any, int, int]:
        """The storage of a tensor, its first byte there, and its end."""
        reach = sum((size - 1) * step for size, step in zip(tensor.shape, tensor.stride())) + 1
        first = tensor.storage_offset() * tensor.element_size()
        return (tensor.device, tensor.untyped_storage().data_ptr()), first, first + reach * tensor.element_size()

    def why(self, layer: Any) -> str:
        """Why a merge would change more than this layer; empty: it would not."""
        if self._holders[id(layer)] > 1 or self._holders[id(layer.base_layer)] > 1:
            return "the model has the module in two places, and a merge would change both"
        for tensor in _tensors(layer.base_layer):
            storage, first, end = self._place(tensor)
            names = [name for a, b, name in self._tensors.get(storage, ()) if a < end and first < b]
            if len(names) > 1:
                return f"its weight is shared ({', '.join(names[:3])}), and a merge would change all of them"
        return ""


def _check_copies(base: torch.nn.Module, names: Sequence[str] | None, is_wrapped: bool) -> None:
    """Modules that were trained as copies (modules_to_save): peft puts that of the active adapter in place."""
    from peft.utils.other import AuxiliaryTrainingWrapper

    for name, module in base.named_modules():
        if not isinstance(module, AuxiliaryTrainingWrapper):
            continue
        if not is_wrapped:
            raise ValueError(f"{name}: it was trained as a copy (modules_to_save), and no PeftModel is around it")
        wanted = set(module.active_adapters if names is None else names) & set(getattr(module, "modules_to_save", ()))
        if wanted != set(module.active_adapters):
            raise ValueError(f"{name}: of its copies (modules_to_save) that of adapter "
                             f"{', '.join(module.active_adapters) or 'none'} is active, and other adapters are to be "
                             "merged: call set_adapter first")


def _deltas(layer: _Layer) -> Iterator[torch.Tensor]:
    """What each adapter adds, as peft computes it, in the dtype that peft gives it."""
    for adapter in layer.adapters:
        try:
            delta = layer.lora.get_delta_weight(adapter)
        except Exception as error:
            raise ValueError(f"{layer.name}: adapter {adapter!r}: {error}") from error
        if delta.shape != layer.base.weight.shape:
            raise ValueError(f"{layer.name}: adapter {adapter!r} adds a matrix of {tuple(delta.shape)} to one of "
                             f"{tuple(layer.base.weight.shape)}")
        if not bool(torch.isfinite(delta).all()):
            raise ValueError(f"{layer.name}: adapter {adapter!r} adds an Inf or a NaN")
        yield delta.to(layer.base.weight.device)


def _check_sum(layer: _Layer) -> None:
    """That peft's merge of a linear in values succeeds."""
    total = layer.base.weight.detach().clone()
    for delta in _deltas(layer):
        total += delta
    if not bool(torch.isfinite(total).all()):
        raise ValueError(f"{layer.name}: the merged weight would have an Inf or a NaN")


def _requantized(layer: _Layer) -> tuple[torch.Tensor | None, torch.Tensor | None, MergedLinear]:
    """The codes and scales of a stored weight with its deltas (None: they stay), and what rounding did."""
    linear: Any = layer.base
    old = linear.values()
    wanted, total = old.clone(), torch.zeros_like(old)
    for delta in _deltas(layer):
        wanted += delta
        total += delta
    if not bool(torch.isfinite(wanted).all()):
        raise ValueError(f"{layer.name}: the merged weight would have an Inf or a NaN")
    codes: torch.Tensor | None = None
    scale: torch.Tensor | None = None
    new = old
    if bool(total.any()):
        try:
            codes, scale, grain = quantized(wanted, linear.recipe)
        except ValueError as error:
            raise ValueError(f"{layer.name}: {error}") from error
        if grain is not linear.grain or scale.shape != linear.scale.shape:
            raise ValueError(f"{layer.name}: its scales are of {linear.grain.name.lower()}, and recipe "
                             f"{linear.recipe} makes some of {grain.name.lower()}")
        new = values_of(codes, scale, torch.float32)
    row = MergedLinear(layer.name, linear.recipe, layer.adapters, _ratio(_norm(total), _norm(wanted)),
                       _decibels(_norm(wanted), _norm(new - wanted)),
                       math.nan if codes is None else _decibels(_norm(total), _norm((new - old) - total)))
    return codes, scale, row


def _norm(tensor: torch.Tensor) -> float:
    return float(torch.linalg.vector_norm(tensor, dtype=torch.float64))


def _ratio(a: float, b: float) -> float:
    return a / b if b else math.inf if a else 0.0


def _decibels(signal: float, noise: float) -> float:
    """Of a signal over the noise."""
    if not noise:
        return math.inf
    return 20 * math.log10(signal / noise) if signal else -math.inf


def _unload(tuner: Any, base: torch.nn.Module, layers: list[_Layer], names: Sequence[str] | None) -> None:
    """Take the adapters out of the model, and have peft merge those of linears in values."""
    gone = layers if tuner is None else [one for one in layers if isinstance(one.base, StoredLinear)]
    try:
        for one in gone:
            _put(base, one.name, one.base)
        if tuner is not None:
            tuner.merge_and_unload(adapter_names=None if names is None else list(names))
            return
        for one in layers:
            if one.adapters and not isinstance(one.base, StoredLinear):
                one.lora.merge(adapter_names=list(one.adapters))
    except BaseException:
        for one in gone:
            _put(base, one.name, one.lora)
        raise
    if hasattr(base, "peft_config"):
        del base.peft_config
    if getattr(base, "_hf_peft_config_loaded", False):  # of transformers' add_adapter
        base._hf_peft_config_loaded = False


def _put(base: torch.nn.Module, name: str, module: torch.nn.Module) -> None:
    outer, _, last = name.rpartition(".")
    setattr(base.get_submodule(outer), last, module)
