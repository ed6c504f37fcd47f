"""FSDP2 gathers weights of linears as FP8 codes: half of the bytes of bf16.

    fp8c.torch.shard_in_fp8(model, "current")      # before fully_shard
    for block in model.blocks:
        block.compile(backend="fp8c", options={"recipe": "current"})
        fully_shard(block)

A rank keeps its part of a weight in high precision, for the optimizer. When FSDP2 gathers the weight,
each rank encodes its part, and the codes travel, one byte an element. `codes.decode` makes of them a
plain parameter whose codes, quantized again by a stage, are those of the weight itself. So a step has
the bits of one without this, which `codes.py` proves.

The scale of a weight needs the largest |x| over all ranks. All weights of a model have theirs exchanged
at once, after each optimizer step: one all-reduce of 4 bytes a weight (`block`: 4 bytes for each 128 x
128 elements), in the first gather that follows. A block may lie on several ranks.

Whatever reads such a weight other than as FP8 codes of this recipe would compute with rounded numbers.
That is an error: `check` looks at stages, `refuse` at what PyTorch runs.
"""

from __future__ import annotations

import copy
import fnmatch
import re
from typing import Any, Callable, Iterable, Mapping, Sequence

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook

from .. import private
from ..linears import is_linear
from . import codes
from .codes import Scaling
from .sharded import is_home, shard_of

# Who knows the largest earlier amax from which a weight's scale follows under `delayed`: the first that
# gives no None.
earlier: list[Callable[["Weight"], "float | None"]] = []


class Fp8GatherError(Exception):
    """A weight travels as FP8 codes, and something needs it otherwise."""


class Weights:
    """The weights of one model that travel as codes of one recipe.

    changed: an optimizer has stepped, or scales were loaded, since the amaxes were exchanged."""

    def __init__(self, recipe: str):
        self.recipe, self.scaling = recipe, Scaling.of(recipe)
        self.members: list[Weight] = []
        self.changed = True

    def exchange(self) -> None:
        """Give each weight its amaxes over all ranks, and the scales that follow. Every rank that has
        a part of them calls this."""
        found = {id(w): (one, group) for one, group in private.fsdp2_params()
                 if (w := weight_of(one.sharded_param)) is not None and w.weights is self}
        by_group: dict[tuple[int, ...], list[Weight]] = {}
        for weight in self.members:
            if id(weight) in found:
                weight.param, group = found[id(weight)]
                weight.group = private.shard_group(group)
                ranks = () if weight.group is None else tuple(private.ranks_of([weight.group]))
                by_group.setdefault(ranks, []).append(weight)
        for ranks in sorted(by_group):
            _exchange(by_group[ranks], self.scaling)
        for members in by_group.values():
            for weight in members:
                weight.version = weight.now()
                weight.scale = codes.scales(weight.amax, self.scaling, self._earlier(weight))
        self.changed = False

    def _earlier(self, weight: Weight) -> float:
        if self.scaling.history < 2:
            return 0.0
        return next((found for ask in earlier if (found := ask(weight)) is not None), 0.0)


def _exchange(members: Sequence[Weight], scaling: Scaling) -> None:
    own = []
    for weight in members:
        rows = weight.as_gathered(weight.part)
        own.append(codes.amaxes(rows, weight.first, weight.size, scaling))
    flat = torch.cat([one.view(-1) for one in own])
    group = members[0].group
    if group is not None and group.size() > 1:
        torch.distributed.all_reduce(flat, torch.distributed.ReduceOp.MAX, group=group)
    flat = flat.view(torch.float32)
    for weight, like, amax in zip(members, own, flat.split([one.numel() for one in own])):
        weight.amax = amax.view(like.shape)
    small = [w for w in members if w.dtype == torch.bfloat16]
    tiny = torch.cat([w.amax.view(-1) for w in small]) if small else flat[:0]
    if bool(((tiny > 0) & (tiny < codes.TINY)).any()):
        names = [w.name for w in small if bool(((w.amax > 0) & (w.amax < codes.TINY)).any())]
        raise Fp8GatherError(f"fp8c: {', '.join(names)} can't be gathered as bf16 from FP8 codes: the "
                             f"largest magnitude of a block is below {codes.TINY:.1e}. Gather in f32")


class Weight:
    """One weight that travels as codes.

    amax, scale: f32, one for each block, of the last exchange. param: FSDP2's record of it; None before.
    size: the whole's. read: a stage reads its codes."""

    def __init__(self, name: str, weights: Weights, size: tuple[int, ...]):
        self.name, self.weights, self.size = name, weights, tuple(size)
        self.param: Any = None
        self.group: Any = None
        self.amax = self.scale = torch.zeros(0)
        self.version = -1
        self.read = False
        weights.members.append(self)

    @property
    def part(self) -> torch.Tensor:
        """This rank's rows, in high precision, where they are encoded."""
        return self.param.sharded_param._local_tensor.plain.to(self.param.device)

    @property
    def dtype(self) -> torch.dtype:
        """That of the gathered parameter."""
        return self.param.mp_policy.param_dtype or self.param.sharded_param.dtype

    @property
    def rows(self) -> int:
        """How many rows each rank has, but the last ones."""
        ranks = 1 if self.group is None else self.group.size()
        return -(-self.size[0] // ranks)

    @property
    def first(self) -> int:
        """This rank's first row."""
        return 0 if self.group is None else self.rows * self.group.rank()

    def now(self) -> int:
        """A number that rises with each change in place."""
        home = self.param.sharded_param
        return int(home._version + home._local_tensor._version)

    def error(self, text: str) -> Fp8GatherError:
        return Fp8GatherError(f"fp8c: {self.name} {text}")

    def as_gathered(self, rows: torch.Tensor) -> torch.Tensor:
        """The rows in the dtype in which they are gathered. Fp8GatherError: it is not taken."""
        if self.dtype not in (torch.float32, torch.bfloat16):
            raise self.error(f"is gathered in {self.dtype}, and codes travel for f32 and bf16 alone")
        return rows.to(self.dtype)


def _keeps(func: Any) -> bool:
    """Whether the result of an op is still a weight's part: copies and views, as FSDP2 makes them."""
    aten = torch.ops.aten
    return func in (aten.alias.default, aten.as_strided.default, aten.clone.default, aten.detach.default,
                    aten.empty_like.default, aten.new_zeros.default, aten.slice.Tensor, aten.split.Tensor,
                    aten.view.default, aten._to_copy.default, aten._pin_memory.default)


def _multiplies(func: Any) -> bool:
    """Whether an op is a product, or what a linear does first: it transposes its weight."""
    aten = torch.ops.aten
    return func in (aten.addmm.default, aten.linear.default, aten.mm.default, aten.t.default)


class Part(torch.Tensor):
    """A rank's part of a weight that travels as codes. Every op computes with `plain`, and gives plain
    tensors; copies and views stay parts. It is saved as the plain tensor."""

    plain: torch.Tensor
    weight: Weight

    @staticmethod
    def __new__(cls, plain: torch.Tensor, weight: Weight) -> Part:
        made = torch.Tensor._make_wrapper_subclass(
            cls, plain.size(), strides=plain.stride(), storage_offset=plain.storage_offset(),
            dtype=plain.dtype, layout=plain.layout, device=plain.device, requires_grad=plain.requires_grad)
        made.plain, made.weight = plain, weight
        return made

    def __repr__(self) -> str:  # type: ignore[override]
        return f"Part({self.plain!r}, {self.weight.name!r})"

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (),
                           kwargs: Mapping[str, Any] | None = None) -> Any:
        parts: dict[int, Part] = {}

        def plain(part: Part) -> torch.Tensor:
            parts[id(part.plain)] = part
            return part.plain

        args, kwargs = private.tree_map_only(Part, plain, (args, dict(kwargs or {})))
        weight = next(iter(parts.values())).weight
        if weight.param is None and _multiplies(func):
            raise weight.error("was given to shard_in_fp8, but not to fully_shard, and a product reads it")
        keeps = _keeps(func)

        def result(tensor: torch.Tensor) -> torch.Tensor:
            if id(tensor) in parts:  # an op in place
                return parts[id(tensor)]
            return Part(tensor, weight) if keeps else tensor

        return private.tree_map_only(torch.Tensor, result, func(*args, **kwargs))

    def __reduce_ex__(self, protocol: Any) -> Any:
        return self.plain.__reduce_ex__(protocol)

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        if id(self) in memo:
            return memo[id(self)]
        made: Any = Part(self.plain.detach().clone(), copy.deepcopy(self.weight, memo))
        if isinstance(self, torch.nn.Parameter):
            made = torch.nn.Parameter(made, self.requires_grad)
        memo[id(self)] = made
        return made

    # ---- what FSDP2 calls ----

    def fsdp_pre_all_gather(self, mesh: Any, outer_size: Any, outer_stride: Any, module: Any,
                            mp_policy: Any) -> tuple[tuple[torch.Tensor, ...], Any]:
        """This rank's codes, padded as FSDP2 pads rows."""
        weight, weights = self.weight, self.weight.weights
        if tuple(self.shape[1:]) != tuple(outer_size[1:]):
            raise weight.error("is sharded along axis 1, and codes travel for axis 0 alone")
        if weights.changed or weight.param is None or weight.now() != weight.version:
            weights.exchange()
        rows = weight.as_gathered(self.plain)
        made = codes.encode(rows, weight.first, weight.scale, weights.scaling)
        made = torch.nn.functional.pad(made, (0, 0, 0, weight.rows - len(made)))
        return (made,), (weight, weight.amax, weight.scale)

    def fsdp_post_all_gather(self, all_gather_outputs: tuple[torch.Tensor, ...], metadata: Any,
                             param_dtype: torch.dtype, *, out: torch.Tensor | None = None) -> Any:
        """The whole weight, a plain tensor. out: where it lies, from the second time on."""
        weight, amax, scale = metadata
        (made,) = all_gather_outputs
        whole = codes.decode(made[: weight.size[0]], amax, scale, weight.weights.scaling, param_dtype)
        if out is None:
            return whole, (whole,)
        out.data.copy_(whole)  # its version stays as it is
        return None

    def fsdp_should_release_all_gather_outputs_after_post_all_gather(self) -> bool:
        """The whole has memory of its own."""
        return True


def weight_of(home: torch.Tensor) -> Weight | None:
    """What travels for a parameter of a model; None: it travels as it is."""
    part = getattr(home, "_local_tensor", home)
    return part.weight if isinstance(part, Part) else None


def weight_of_gathered(param: torch.Tensor) -> Weight | None:
    """What has travelled for a parameter of a graph; None: it has travelled as it is."""
    shard = shard_of(param)
    return weight_of(param if shard is None else shard.home)


def shard_in_fp8(model: torch.nn.Module, recipe: str = "current", leave: Iterable[str] = ()) -> list[str]:
    """Let FSDP2 gather the weights of linears as FP8 codes. Call this before `fully_shard`, on every rank.

    recipe: that with which the model is compiled: `current`, `delayed` or `block`, with its options.
    leave: patterns of the names of linears whose weights are to travel as they are, such as a head that
    `rules` keep in bf16. Weights that several modules share are always left.
    -> The names of the linears whose weights travel as codes. All else travels as before.

    Parts of weights, which the optimizer changes, stay in high precision, and `state_dict` has them. One
    all-reduce an optimizer step exchanges amaxes. The results have the bits that they have without this:
    under every scale where FSDP2 gathers f32, and in bf16 if amaxes are at least 2^-108, or 0. Else it is
    an error.

    ValueError: the recipe has no such codes, the model is sharded, its weights travel so already, or a
    pattern matches nothing. fp8c.torch.Fp8GatherError, in the first call: a graph needs such a weight
    otherwise.
    """
    model = private.unwrap(model)
    weights = Weights(" ".join(recipe.split()))
    paths: dict[int, list[str]] = {}
    for path, param in model.named_parameters(remove_duplicate=False):
        paths.setdefault(id(param), []).append(path)
        if weight_of(param) is not None:
            raise ValueError(f"shard_in_fp8: {path} travels in FP8 already")
        if is_home(param):
            raise ValueError(f"shard_in_fp8 comes before fully_shard: {path} is sharded already")
    patterns = [leave] if isinstance(leave, str) else list(leave)
    linears = {name: module for name, module in model.named_modules() if is_linear(module)}
    for pattern in patterns:
        if not fnmatch.filter(linears, pattern):
            raise ValueError(f"shard_in_fp8: {pattern!r} matches no linear")
    found = []
    for name, module in linears.items():
        weight = module.weight
        if any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns) or len(paths[id(weight)]) > 1 \
                or weight.dtype not in (torch.float32, torch.bfloat16) or weight.dim() != 2:
            continue
        path = f"{name}.weight" if name else "weight"
        part = Part(weight.detach(), Weight(path, weights, tuple(weight.shape)))
        module.weight = torch.nn.Parameter(part, weight.requires_grad)
        module.register_state_dict_post_hook(_save_plain)
        found.append(name)
    if not found:
        raise ValueError("shard_in_fp8: the model has no linear whose weight can travel in FP8")
    _install_hook()
    return found


def _save_plain(module: torch.nn.Module, state: dict[str, Any], prefix: str, *_: Any) -> None:
    """A hook of PyTorch's: state_dict has plain tensors, which lie where the parts do."""
    key = prefix + "weight"
    value = state.get(key)
    if value is None or isinstance(value, torch.nn.Parameter):
        return
    part = getattr(value, "_local_tensor", value)
    if not isinstance(part, Part):
        return
    state[key] = part.plain if part is value else private.dtensor_like(value, part.plain)


# ---- who reads such a weight ----


def check(bound: Any) -> None:
    """Fp8GatherError: a program reads a weight otherwise than as the codes that have travelled."""
    for param, tensor in zip(bound.stage.params, bound.params):
        weight = weight_of_gathered(tensor)
        if weight is None:
            continue
        _check_recipe(bound.settings.recipe, weight)
        linears = []
        for line in bound.stage.text.splitlines():
            if not _reads(line, param.name):
                continue
            w = re.escape(param.name)
            found = re.match(rf"\s*%\S+ = linear\(%[\w.]+, {w}[,)].*\bname = \"([^\"]*)\"", line)
            if found is None:
                raise weight.error(f"travels in FP8, and more than linears reads it: {line.strip()}. "
                                   f"{_advice(weight)}")
            linears.append(found[1])
        _check_gemms(bound, weight, linears)
        weight.read = True


def _reads(line: str, name: str) -> bool:
    call = line.partition(" = ")[2].partition("{")[0]
    return re.search(rf"(?<![\w.%]){re.escape(name)}(?![\w.])", call) is not None


def _check_recipe(recipe: str, weight: Weight) -> None:
    if " ".join(recipe.split()) != weight.weights.recipe:
        raise weight.error(f"travels as codes of recipe {weight.weights.recipe!r}, and the model is compiled "
                           f"with recipe {recipe!r}: give shard_in_fp8 the same")


def _check_gemms(bound: Any, weight: Weight, linears: Sequence[str]) -> None:
    """The GEMMs that read w: those of the forward, and those of the backward that have no x."""
    name = codes.name_of(weight.weights.recipe)
    for one in bound.decisions():
        same = one.fp8 and codes.name_of(one.scaling) == name
        if one.linear not in linears or one.role == "wgrad" or same:
            continue
        what = one.scaling if one.fp8 else one.format_a
        raise weight.error(f"travels as codes of recipe {name}, and {one.role} of linear {one.linear} reads "
                           f"it in {what} ({one.reason}). {_advice(weight)}")


def _advice(weight: Weight) -> str:
    name = weight.name.removesuffix("weight").removesuffix(".")
    return f"Let it travel as it is: shard_in_fp8(model, leave=[{name!r}])"


def refuse(params: Mapping[int, torch.Tensor], reads: Mapping[int, str]) -> None:
    """Fp8GatherError: PyTorch runs an op that reads such a weight. reads: the op, by the parameter's
    position."""
    for index, op in reads.items():
        weight = weight_of_gathered(params[index]) if index in params else None
        if weight is not None:
            raise weight.error(f"travels in FP8, and PyTorch runs an op that reads it: {op}. "
                               f"{_advice(weight)}")


_hooked = False


def _install_hook() -> None:
    """One hook for all optimizers: fused ones write parameters without raising their versions."""
    global _hooked
    if not _hooked:
        register_optimizer_step_post_hook(_after_step)
        _hooked = True


def _after_step(optimizer: Any, *_: Any) -> None:
    stepped(p for group in optimizer.param_groups for p in group["params"])


def stepped(params: Iterable[torch.Tensor]) -> None:
    """An optimizer of these parameters has stepped. Fp8GatherError: a weight has a gradient, and no stage
    has read its codes."""
    for param in params:
        weight = weight_of(param)
        if weight is None:
            continue
        weight.weights.changed = True
        if weight.param is not None and param.grad is not None and not weight.read:
            raise weight.error("travels in FP8, and no linear of fp8c's reads it: PyTorch has computed with "
                               f"its rounded numbers. Compile the module. Or else: {_advice(weight)}")


def stale(params: Iterable[torch.Tensor]) -> None:
    """Scales of a model with these parameters were loaded: the next gather makes codes anew."""
    for weight in filter(None, map(weight_of, params)):
        weight.weights.changed = True


def same_scale(weight: Weight, scale: torch.Tensor) -> None:
    """Fp8GatherError: a program has another scale for a weight than its codes were made with."""
    own = weight.scale.view(())
    if bool(weight.amax.isfinite().all() & (weight.amax > 0).all()) and float(own) != float(scale):
        raise weight.error(f"has travelled as codes of the scale {float(own):g}, and the program has "
                           f"{float(scale):g} for it: its history has changed since")
