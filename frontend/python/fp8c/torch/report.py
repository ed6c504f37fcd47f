"""report(model): what became of each linear, with reason and place."""

from __future__ import annotations

import inspect
import os
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import Any, Iterator

import torch

from . import backend, private, strict
from .backend import Compiled
from .graph.plan import EagerOp, Linear
from .linears import is_linear
from .places import Place, Unsupported
from .private import unwrap
from .ranks import gathered
from .ranks.sharded import named_parameters, parameters
from .run.bound import Bound
from .settings import matches
from .weights.linear import StoredLinear

_TORCH = os.path.dirname(torch.__file__) + os.sep
FP8, MIXED, BF16, F32, OUT = "FP8", "FP8 in part", "bf16", "f32", "not compiled"


@dataclass(frozen=True)
class LinearReport:
    """A linear of the model. kind: FP8, "FP8 in part", bf16, f32 or "not compiled". roles: what its
    GEMMs read, by role ("fprop": "f8e4m3 x f8e4m3, delayed"). fp8_gather: whether FSDP2 gathers its weight
    as FP8 codes (`shard_in_fp8`). stored: the recipe under which its weight is stored as FP8 codes
    (`store_frozen`)."""

    name: str
    kind: str
    reason: str
    place: Place
    roles: dict[str, str] = field(default_factory=dict)
    fp8_gather: bool = False
    stored: str = ""

    def __str__(self) -> str:
        roles = "; ".join(f"{role} {what}" for role, what in self.roles.items())
        gather = "; gathered as FP8 codes" if self.fp8_gather else ""
        stored = f"; stored as FP8 codes by {self.stored}" if self.stored else ""
        return f"{self.name}: {self.kind} ({self.reason or roles}{gather}{stored}), {self.place}"


@dataclass(frozen=True)
class Report:
    """What torch.compile(backend="fp8c") has made of a model so far.

    linears: a row for every linear of named_modules(), and for every other parameter that a product
    reads; its name is the path without ".weight". eager_ops: what PyTorch runs between stages.
    prologue_ops: what it runs first, without gradients. unused_rules: rules that match no linear.
    breaks: reasons why dynamo ended graphs of this model, with the places where they are known.
    attention: why fp8c's own kernels compute attention in programs for which cuDNN was chosen.
    """

    linears: list[LinearReport]
    eager_ops: list[EagerOp]
    prologue_ops: list[str]
    unused_rules: list[str]
    breaks: list[str]
    fp8_gemms_planned: int
    fp8_gemms_executed: int
    attention: list[str] = field(default_factory=list)

    def __getitem__(self, name: str) -> LinearReport:
        return next(one for one in self.linears if one.name == name)

    @property
    def left_out(self) -> list[LinearReport]:
        return [one for one in self.linears if one.kind == OUT]

    def counts(self) -> dict[str, int]:
        return dict(Counter(one.kind for one in self.linears))

    def __str__(self) -> str:
        counts = ", ".join(f"{n} {kind}" for kind, n in self.counts().items()) or "none"
        lines = [f"linears: {counts}", *("  " + str(one) for one in self.linears)]
        for title, items in (("PyTorch runs between stages", self.eager_ops),
                             ("rules that match no linear", self.unused_rules),
                             ("graph breaks", self.breaks),
                             ("attention by fp8c's own kernels, not by cuDNN", self.attention)):
            if items:
                lines += [title + ":", *(f"  {item}" for item in items)]
        return "\n".join(lines)


def report(model: torch.nn.Module) -> Report:
    """What became of the linears of a model, in all graphs compiled so far.

    Unsupported: the model was compiled with `strict`, and a linear is not compiled.
    """
    model = unwrap(model)
    graphs, names = graphs_of(model), _Names(model)
    found = _compiled_linears(model, graphs)
    for name, one in _products(names, graphs):
        found.setdefault(name, one)
    linears, seen = [], set()
    for name, module in model.named_modules():
        if is_linear(module):
            seen.add(name)
            linears.append(found.get(name) or _left_out(model, name, module, graphs, names))
    linears += [one for name, one in found.items() if name not in seen]
    travel = {name for name, module in model.named_modules()
              if is_linear(module) and gathered.weight_of_gathered(module.weight) is not None}
    linears = [replace(one, fp8_gather=True) if one.name in travel else one for one in linears]
    stored = {name: module.grain.value for name, module in model.named_modules() if isinstance(module, StoredLinear)}
    linears = [replace(one, stored=stored.get(one.name, "")) for one in linears]
    bounds = list(_programs(model, graphs))
    programs = [b.program.info() for b in bounds]
    plans = [c.plan for c in graphs if c.plan is not None]
    ops = [op for p in plans for op in p.eager_ops] + [op for c in graphs for op in c.apart]
    made = Report(linears, list(dict.fromkeys(replace(op, place=names.place(op.place)) for op in ops)),
                  list(dict.fromkeys(op for p in plans for op in p.prologue_ops)),
                  _unused_rules(graphs), _all_breaks(model, graphs),
                  sum(i.fp8_gemms_planned for i in programs),
                  sum(i.fp8_gemms_executed for i in programs),
                  list(dict.fromkeys(b.own_attention for b in bounds if b.own_attention)))
    if made.left_out and any(c.settings.strict for c in graphs):
        first = made.left_out[0]
        raise Unsupported(f"linear {first.name}", f"{first.reason} (strict)", first.place)
    return made


def graphs_of(model: torch.nn.Module) -> list[Compiled]:
    """The graphs that were compiled for a model so far, or for another one and then used for it."""
    own = {id(p) for p in parameters(model)}
    return [c for c in backend.known() if any(id(p) in own for one in c.sets() for p in one.values())]


def _programs(model: torch.nn.Module, graphs: list[Compiled]) -> Iterator[Bound]:
    """The programs of a model's graphs, without those of other models."""
    own = {id(p) for p in parameters(model)}
    for one in (b for graph in graphs for runner in graph.runners for b in runner.programs):
        if not one.params or any(id(p) in own for p in one.params):
            yield one


class _Names:
    """The paths of a model's modules and parameters. Those of a graph may begin further down, at the
    module or the list of modules that was compiled."""

    def __init__(self, model: torch.nn.Module) -> None:
        self.model = model
        self.modules = dict(model.named_modules(remove_duplicate=False))
        self.params: dict[int, list[str]] = {}
        for path, param in named_parameters(model, remove_duplicate=False):
            self.params.setdefault(id(param), []).append(path)

    def row(self, param: torch.Tensor) -> str | None:
        """The row of a parameter: the linear that has it, else its own path; None: it is another
        model's."""
        paths = self.params.get(id(param), [])
        for path in paths:
            if is_linear(self.modules[path.rpartition(".")[0]]):
                return path.rpartition(".")[0]
        return paths[0].removesuffix(".weight") if paths else None

    def place(self, place: Place, row: str | None = None) -> Place:
        """A place with the module's path in the model. row: the row that the place belongs to, if known."""
        return replace(place, module=self._module(place.module, row) or place.module)

    def _module(self, path: str, row: str | None) -> str:
        if row is not None:
            parts = row.split(".")
            around = [m for n in range(len(parts), 0, -1) if (m := ".".join(parts[:n])) in self.modules]
            if not path:
                return around[0] if around else ""
            for module in around:
                if module == path or module.endswith("." + path):
                    return module
            for module in around:
                if f"{module}.{path}" in self.modules:
                    return f"{module}.{path}"
        while path and path not in self.modules:
            path = path.partition(".")[2]
        return path


def _compiled_linears(model: torch.nn.Module, graphs: list[Compiled]) -> dict[str, LinearReport]:
    """By module. Training graphs say more than those of eval, so they come last."""
    found: dict[str, LinearReport] = {}
    names = _Names(model)
    for owner, bound, linear in sorted(linears_of(model, graphs), key=lambda t: len(t[1].cotangents)):
        roles, kind, reason = _decided(bound, linear.name)
        if linear in bound.settings.routers_of(bound.stage.linears):
            reason = "a router: a top-k chooses by its result"
        if kind:
            found[owner] = LinearReport(owner, kind, reason, names.place(linear.place, owner), roles)
    return found


def linears_of(model: torch.nn.Module, graphs: list[Compiled]) -> Iterator[tuple[str, Bound, Linear]]:
    """The linears of all programs: the row that each belongs to, its program, itself."""
    names = _Names(model)
    for bound in _programs(model, graphs):
        for linear in bound.stage.linears:
            owner = _owner(names, linear, bound.scales.params.get(linear.name))
            if owner is not None:
                yield owner, bound, linear


def _owner(names: _Names, linear: Linear, param: Any) -> str | None:
    """The row of a linear: the module that has its weight, and if several have it the one that calls
    it; else the parameter. If the weight is computed, it is the module that calls the linear."""
    if param is None:
        module = names.place(linear.place).module
        return module if module in names.modules and module else linear.name
    owners = [path.rpartition(".")[0] for path in names.params.get(id(param), [])]
    caller = linear.place.module
    if caller in owners and is_linear(names.modules[caller]):  # a tied weight: this use of it
        return caller
    return names.row(param)


def _products(names: _Names, graphs: list[Compiled]) -> Iterator[tuple[str, LinearReport]]:
    """Rows of parameters that are read by a product which is no linear, or which PyTorch runs."""
    lost = []
    for graph in graphs:
        for params in graph.sets():
            for index, product in graph.uses.products.items():
                name = names.row(params[index])
                if name is None:
                    continue
                op = graph.uses.lost.get(index)
                if op is not None:
                    place = names.place(op.place, name)
                    lost.append((name, LinearReport(name, OUT, f"{op.op}: {op.reason}", place)))
                    continue
                kind = F32 if graph.settings.recipe.split()[0] == "f32" else BF16
                why = "a batch of matrices" if product.batch else "a product that is no linear"
                yield name, LinearReport(name, kind, why, names.place(product.place, name))
    yield from lost


def _decided(bound: Any, linear: str) -> tuple[dict[str, str], str, str]:
    """What the program decided for a linear: by role, as one word, and why it is not FP8."""
    roles: dict[str, str] = {}
    fp8, formats, reason = [], set(), ""
    for one in bound.decisions():
        if one.linear != linear:
            continue
        formats.add(one.format_a)
        scaling = f", {one.scaling}" if one.scaling != "none" else ""
        roles[one.role] = f"{one.format_a} x {one.format_b}{scaling}"
        fp8.append(bool(one.fp8))
        if not one.fp8:
            reason = reason or f"{one.role}: {one.reason}"
    if not fp8:
        return {}, "", ""
    if all(fp8):
        return roles, FP8, ""
    if any(fp8):
        return roles, MIXED, reason
    return roles, F32 if formats == {"f32"} else BF16, reason


def why_left_out(model: torch.nn.Module, name: str) -> LinearReport:
    """The row of a linear that no stage has."""
    graphs = graphs_of(model)
    return _left_out(model, name, model.get_submodule(name), graphs, _Names(model))


def _left_out(model: torch.nn.Module, name: str, module: torch.nn.Module,
              graphs: list[Compiled], names: _Names) -> LinearReport:
    """A linear that no stage has, and why, as far as it can be seen."""
    place = _place(name, module)
    weights = {id(param) for path, param in named_parameters(module) if "weight" in path}
    reads = [(one, i) for one in graphs for params in one.sets()
             for i, param in params.items() if id(param) in weights]
    for one, index in reads:
        op = one.uses.lost.get(index)
        if op is not None:
            return LinearReport(name, OUT, f"{op.op}: {op.reason}", names.place(op.place, name))
    parts = name.split(".")
    for n in range(len(parts), -1, -1):
        outer = model.get_submodule(".".join(parts[:n]))
        where = ".".join(parts[:n]) or "the model"
        if _disabled(outer):
            what = ".".join(parts[:n]) or "all of it"
            return LinearReport(name, OUT, f"torch.compiler.disable keeps {what} out", place)
        if private.is_fsdp1_module(outer):
            return LinearReport(name, OUT, f"FSDP1 has split the parameters of {where} over ranks: use "
                                "FSDP2 (fully_shard)", place)
    if not graphs:
        return LinearReport(name, OUT, "no call of the model was compiled by fp8c yet, or dynamo "
                            "left out all of it", place)
    if reads:
        return LinearReport(name, OUT, "a graph has its weight, but no product that reads it", place)
    breaks = _all_breaks(model, graphs)
    why = f"; dynamo ended a graph: {breaks[0]}" if breaks else ""
    return LinearReport(name, OUT, "no graph has it: it was never traced" + why, place)


def _place(name: str, module: torch.nn.Module) -> Place:
    forward = inspect.unwrap(type(module).forward)
    try:
        return Place(name, inspect.getsourcefile(forward) or "", inspect.getsourcelines(forward)[1])
    except (OSError, TypeError):
        return Place(name)


def _disabled(module: torch.nn.Module) -> bool:
    return private.is_disabled(getattr(module, "forward", None))


def _all_breaks(model: torch.nn.Module, graphs: list[Compiled]) -> list[str]:
    """The graph breaks of a model. Those of its graphs have places. Dynamo counts others: they are the
    model's if they were in a function of its classes, or if they were in PyTorch's own functions and
    the model has no graphs."""
    own = list(dict.fromkeys(one.ended for one in graphs if one.ended))
    told = [one.ended for one in backend.known() if one.ended]
    codes, frames = _codes(model), private.broken_frames()
    for reason in map(private.first_line, private.graph_breaks()):
        if any(one.startswith(reason) for one in told):
            continue
        at = [(file, line) for file, line, reasons in frames if reason in reasons]
        if any(one in codes for one in at) or (
            not graphs and all(file.startswith(_TORCH) for file, _ in at)
        ):
            own.append(reason)
    return own


def _codes(model: torch.nn.Module) -> set[tuple[str, int]]:
    """The files and lines where the functions of the model's classes begin."""
    found = set()
    for kind in {kind for module in model.modules() for kind in type(module).__mro__}:
        for value in vars(kind).values():
            for function in (value, inspect.unwrap(value) if callable(value) else None):
                code = getattr(function, "__code__", None)
                if code is not None and not code.co_filename.startswith(_TORCH):
                    found.add((code.co_filename, code.co_firstlineno))
    return found


def _unused_rules(graphs: list[Compiled]) -> list[str]:
    linears = [x.name for g in graphs if g.plan is not None for x in g.plan.linears]
    rules = dict.fromkeys(rule for g in graphs for rule in g.settings.rules)
    return [rule for rule in rules if not any(matches(rule, name) for name in linears)]


strict.explain.append(why_left_out)
