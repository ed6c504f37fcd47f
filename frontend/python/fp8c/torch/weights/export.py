"""A model's weights in FP8 as files that other stacks load, or fp8c: what `export_fp8` writes."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from dataclasses import dataclass
from typing import Any, Callable, Iterator, Sequence

import torch

import fp8c

from .. import private
from ..linears import is_linear
from .grains import BLOCK, Grain
from .linear import StoredLinear
from .quantize import quantized, recipes_of
from .store import Stored

FORMATS = ("hf-fp8", "native", "compressed-tensors", "modelopt")
MOST = 5 * 10**9  # bytes of tensors in a file
_VERSION = "1"  # of fp8c's files: `fp8c.version` in their metadata
_FUSED = (("q_proj", "k_proj", "v_proj"), ("gate_proj", "up_proj"))  # loaders make one linear of them


@dataclass(frozen=True)
class _Entry:
    """Tensors that are written together. bytes: about so many. make: makes them, by name."""

    bytes: int
    make: Callable[[], dict[str, torch.Tensor]]


def write_fp8(model: torch.nn.Module, out: str | os.PathLike, as_: str, recipe: str, rules: Sequence[str], most: int,
              inputs: Callable[[torch.nn.Module], dict[str, float]]) -> Stored:
    """export_fp8, which says what the arguments are. inputs: tells by the name of each linear's weight what its input
    is multiplied by under `delayed`."""
    model, path = private.unwrap(model), os.fspath(out)
    if as_ not in FORMATS:
        raise ValueError(f"format {as_!r} is none of {', '.join(FORMATS)}")
    if hasattr(model, "peft_config"):
        raise ValueError("the model has adapters of peft, which no format of FP8 weights has: export "
                         "model.unload(), and save the adapters by model.save_pretrained")
    if most <= 0:
        raise ValueError(f"most is {most}: give a number of bytes")
    if os.path.exists(path) and (as_ == "native" or not os.path.isdir(path) or os.listdir(path)):
        raise FileExistsError(f"{path} is there already")
    made, left = _chosen(model, recipe, rules, as_)
    if not made:
        raise ValueError("no linear is in FP8: " + ("; ".join(f"{n}: {why}" for n, why in list(left.items())[:4])
                                                    or "the model has none"))
    entries = list(_entries(model, made, as_))
    if as_ == "native":
        _write_file(path, entries, made)
    elif as_ == "hf-fp8":
        _write_folder(path, model, entries, made, most)
    else:
        factors = inputs(model)
        known = {name: factors[f"{name}.weight"] for name in made if f"{name}.weight" in factors}
        lacking = [name for name in made if name not in known and made[name].split()[0] in ("current", "delayed")]
        if as_ == "modelopt" and lacking:
            raise ValueError("modelopt has a scale for the input of each linear, where one scale is a weight's, and "
                             f"{lacking[0]} has none: train or evaluate under delayed first, or take another format")
        _convert(path, model, entries, made, known, as_, most)
    return Stored(made, left)


def _chosen(model: torch.nn.Module, recipe: str, rules: Sequence[str],
            as_: str) -> tuple[dict[str, str], dict[str, str]]:
    """The linears that are written in FP8, each with its recipe; and the others, with the reason."""
    linears = {name: module for name, module in model.named_modules() if is_linear(module)}
    recipes = recipes_of(list(linears), recipe, rules) if linears else {}
    holders: dict[int, int] = {}
    for module in model.modules():
        for one in module._parameters.values():
            holders[id(one)] = holders.get(id(one), 0) + 1
    made: dict[str, str] = {}
    left: dict[str, str] = {}
    for name, module in linears.items():
        if isinstance(module, StoredLinear):
            made[name] = module.grain.value
        elif not isinstance(module, torch.nn.Linear):
            left[name] = f"it is a {type(module).__name__}, whose weight lies [in, out]"
        elif holders[id(module.weight)] > 1:
            left[name] = "another module has the same weight"
        elif name not in recipes:
            left[name] = "recipe and rules do not have it in FP8"
        else:
            made[name] = recipes[name]
    if as_ == "hf-fp8":
        for name in [one for one in made if _is_ragged(linears, made, one)]:
            left[name] = "an axis above 128 that is no multiple of it, here or in a linear that loaders fuse it with"
        made = {name: one for name, one in made.items() if name not in left}
        for name, one in made.items():
            if one.split()[0] not in ("block", "current", "delayed"):
                raise ValueError(f"{name} has scales by {one}, and hf-fp8 has blocks alone: export as another format")
    elif as_ != "native":
        kinds = {"current" if one.split()[0] == "delayed" else one.split()[0]: name for name, one in made.items()}
        if len(kinds) > 1:
            both = " and ".join(f"{name} by {kind}" for kind, name in list(kinds.items())[:2])
            raise ValueError(f"{as_} has scales of one kind: {both}")
        if "" in made:
            raise ValueError(f"the model is one linear, whose weight has no name for {as_}: put it into a module")
    return made, left


def _is_ragged(linears: dict[str, torch.nn.Module], made: dict[str, str], name: str) -> bool:
    """Whether transformers would place the blocks of a linear wrong, or those of one that is fused with it."""
    outer, dot, own = name.rpartition(".")
    group = next((group for group in _FUSED if own in group), (own,))
    return any(one in made and any(size > BLOCK and size % BLOCK for size in linears[one].weight.shape)
               for one in (f"{outer}{dot}{other}" for other in group))


def _entries(model: torch.nn.Module, made: dict[str, str], as_: str) -> Iterator[_Entry]:
    """All tensors of a model, tied ones once, in the order of its state dict."""
    modules = dict(model.named_modules())
    seen: set[int] = set()
    for name, tensor in model.state_dict(keep_vars=True).items():
        path, _, last = name.rpartition(".")
        module = modules.get(path)
        stored = isinstance(module, StoredLinear)
        if id(tensor) in seen or (stored and last.startswith("weight_scale")):
            continue
        seen.add(id(tensor))
        if last == "weight" and path in made:
            yield _Entry(tensor.numel(), lambda m=module, p=path: _in_fp8(m, p, made[p], as_))
        elif last == "weight" and stored:
            yield _Entry(2 * tensor.numel(), lambda m=module, n=name: {n: m.values(_dtype_of(model)).cpu()})
        else:
            yield _Entry(tensor.numel() * tensor.element_size(),
                         lambda t=tensor, n=name: {n: t.detach().cpu().contiguous().clone()})


def _in_fp8(module: Any, path: str, recipe: str, as_: str) -> dict[str, torch.Tensor]:
    """The codes of a linear and its scales, under the names of the format."""
    if isinstance(module, StoredLinear):
        codes, scale, grain = module.weight.detach(), module.scale, module.grain
    else:
        try:
            codes, scale, grain = quantized(module.weight, recipe)
        except ValueError as error:
            raise ValueError(f"{path}.weight: {error}") from error
    if as_ == "hf-fp8" and grain is Grain.TENSOR:
        grain, scale = Grain.BLOCKS, scale.expand(Grain.BLOCKS.shape(codes.shape))
    prefix = f"{path}." if path else ""
    return {f"{prefix}weight": codes.cpu().contiguous(), f"{prefix}{grain.scale}": scale.cpu().contiguous().clone()}


def _dtype_of(model: torch.nn.Module) -> torch.dtype:
    """The dtype of what is not FP8."""
    kinds = (torch.float32, torch.bfloat16, torch.float16)
    return next((one.dtype for one in model.parameters() if one.dtype in kinds), torch.bfloat16)


def _metadata(made: dict[str, str]) -> dict[str, str]:
    """What a file of fp8c's own says of itself."""
    stored = json.dumps({f"{name}.weight" if name else "weight": one for name, one in made.items()})
    return {"format": "pt", "fp8c.version": _VERSION, "fp8c.stored": stored, "fp8c.library": fp8c.__version__}


def _write_file(path: str, entries: list[_Entry], made: dict[str, str]) -> None:
    from safetensors.torch import save_file

    tensors = {name: one for entry in entries for name, one in entry.make().items()}
    handle, temporary = tempfile.mkstemp(prefix=os.path.basename(path) + ".", suffix=".tmp",
                                         dir=os.path.dirname(path) or ".")
    os.close(handle)
    try:
        save_file(tensors, temporary, _metadata(made))
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


def _write_files(folder: str, entries: list[_Entry], most: int, metadata: dict[str, str]) -> None:
    """The entries in files of at most `most` bytes, with an index if there are several."""
    from safetensors.torch import save_file

    files: list[list[_Entry]] = [[]]
    for entry in entries:
        if files[-1] and sum(one.bytes for one in files[-1]) + entry.bytes > most:
            files.append([])
        files[-1].append(entry)
    where: dict[str, str] = {}
    total = 0
    for number, own in enumerate(files, 1):
        name = "model.safetensors" if len(files) == 1 else f"model-{number:05}-of-{len(files):05}.safetensors"
        tensors = {key: one for entry in own for key, one in entry.make().items()}
        save_file(tensors, os.path.join(folder, name), metadata)
        where |= dict.fromkeys(tensors, name)
        total += sum(one.numel() * one.element_size() for one in tensors.values())
    if len(files) > 1:
        _write_json(folder, "model.safetensors.index.json", {"metadata": {"total_size": total}, "weight_map": where})


def _beside(path: str) -> str:
    """A new folder beside `path`, an absolute one, to be removed or renamed."""
    return tempfile.mkdtemp(prefix=os.path.basename(path) + ".", suffix=".tmp", dir=os.path.dirname(path))


def _write_folder(path: str, model: torch.nn.Module, entries: list[_Entry], made: dict[str, str], most: int) -> None:
    path = os.path.abspath(path)
    folder = _beside(path)
    try:
        _write_files(folder, entries, most, {"format": "pt"})
        _write_config(folder, model, made)
        os.chmod(folder, 0o755)
        os.rename(folder, path)
    except BaseException:
        shutil.rmtree(folder)
        raise


def _convert(path: str, model: torch.nn.Module, entries: list[_Entry], made: dict[str, str],
             inputs: dict[str, float], as_: str, most: int) -> None:
    """Lets fp8c make the format of a folder with its own names and the model's config. inputs: the scales of linears'
    inputs, as `delayed` has them in one state."""
    path = os.path.abspath(path)
    folder = _beside(path)
    try:
        metadata = _metadata(made)
        if inputs:
            metadata["fp8c.elements"] = json.dumps({"fp8.scale": [f"{name}.x" for name in inputs]})
            state = {"fp8c.state.fp8.scale": torch.tensor(list(inputs.values()))}
            entries = [_Entry(4 * len(inputs), lambda: state), *entries]
        _write_files(folder, entries, most, metadata)
        _write_json(folder, "config.json", _config_of(model, folder))
        try:
            fp8c.convert_weights(folder, as_, path, most=most)
        except fp8c.Error as error:  # the folder is gone when the message is read
            raise type(error)(error.message.replace(folder, path)) from None
    finally:
        shutil.rmtree(folder)


def _config_of(model: torch.nn.Module, folder: str) -> dict[str, Any]:
    """The model's own config, where it has one."""
    if not hasattr(getattr(model, "config", None), "save_pretrained"):
        return {}
    model.config.save_pretrained(folder)
    with open(os.path.join(folder, "config.json"), encoding="utf-8") as file:
        config = json.load(file)
    config.setdefault("architectures", [type(model).__name__])
    if "torch_dtype" not in config:
        config.setdefault("dtype", str(_dtype_of(model)).removeprefix("torch."))
    return config


def _write_config(folder: str, model: torch.nn.Module, made: dict[str, str]) -> None:
    """The model's own config, and which modules are not in FP8."""
    config = _config_of(model, folder)
    skipped = [name for name, module in model.named_modules()
               if name not in made and isinstance(weight := getattr(module, "weight", None), torch.Tensor)
               and weight.dim() == 2]
    config["quantization_config"] = {"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic",
                                     "weight_block_size": [BLOCK, BLOCK], "modules_to_not_convert": skipped}
    _write_json(folder, "config.json", config)


def _write_json(folder: str, name: str, what: Any) -> None:
    with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
        json.dump(what, file, indent=2)
        file.write("\n")
