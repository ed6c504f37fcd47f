"""report(model): what became of each linear, with reason and place."""

from __future__ import annotations

import inspect
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Iterator

import torch

from . import backend, private
from .backend import Compiled
from .bound import Bound
from .places import Place, Unsupported
from .plan import EagerOp, Linear
from .state import unwrap

FP8, MIXED, BF16, F32, OUT = "FP8", "FP8 in part", "bf16", "f32", "not compiled"


@dataclass(frozen=True)
class LinearReport:
    """A linear of the model. kind: FP8, "FP8 in part", bf16, f32 or "not compiled". roles: what its
    GEMMs read, by role ("fprop": "f8e4m3 x f8e4m3, delayed")."""

    name: str
    kind: str
    reason: str
    place: Place
    roles: dict[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        roles = "; ".join(f"{role} {what}" for role, what in self.roles.items())
        return f"{self.name}: {self.kind} ({self.reason or roles}), {self.place}"


@dataclass(frozen=True)
class Report:
    """What torch.compile(backend="fp8c") has made of a model so far.

    linears: every linear of named_modules(), and every parameter that a stage uses as a linear's
    weight. eager_ops: what PyTorch runs between stages. prologue_ops: what it runs first, without
    gradients. unused_rules: rules that match no linear. breaks: reasons why dynamo ended graphs,
    with the places where they are known.
    """

    linears: list[LinearReport]
    eager_ops: list[EagerOp]
    prologue_ops: list[str]
    unused_rules: list[str]
    breaks: list[str]
    fp8_gemms_planned: int
    fp8_gemms_executed: int

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
                             ("graph breaks", self.breaks)):
            if items:
                lines += [title + ":", *(f"  {item}" for item in items)]
        return "\n".join(lines)


def report(model: torch.nn.Module) -> Report:
    """What became of the linears of a model, in all graphs compiled so far.

    Unsupported: the model was compiled with `strict`, and a linear is not compiled.
    """
    model = unwrap(model)
    graphs = graphs_of(model)
    found = _compiled_linears(model, graphs)
    linears, seen = [], set()
    for name, module in model.named_modules():
        if is_linear(module):
            seen.add(name)
            linears.append(found.get(name) or _left_out(model, name, module, graphs))
    linears += [one for name, one in found.items() if name not in seen]
    programs = [b.program.info() for c in graphs for r in c.runners for b in r.programs]
    plans = [c.plan for c in graphs if c.plan is not None]
    made = Report(linears, list(dict.fromkeys([op for p in plans for op in p.eager_ops] +
                                              [op for c in graphs for op in c.apart])),
                  list(dict.fromkeys(op for p in plans for op in p.prologue_ops)),
                  _unused_rules(graphs), _all_breaks(graphs),
                  sum(i.fp8_gemms_planned for i in programs),
                  sum(i.fp8_gemms_executed for i in programs))
    if made.left_out and any(c.settings.strict for c in graphs):
        first = made.left_out[0]
        raise Unsupported(f"linear {first.name}", f"{first.reason} (strict)", first.place)
    return made


def graphs_of(model: torch.nn.Module) -> list[Compiled]:
    """The graphs that were compiled of a model so far."""
    own = {id(p) for p in model.parameters()}
    return [c for c in backend.known() if any(id(p) in own for p in c.params)]


def is_linear(module: torch.nn.Module) -> bool:
    """nn.Linear, its subclasses, and Hugging Face's Conv1D, which is a linear."""
    if isinstance(module, torch.nn.Linear):
        return True
    weight = getattr(module, "weight", None)
    return type(module).__name__ == "Conv1D" and isinstance(weight, torch.Tensor) and weight.dim() == 2


def _compiled_linears(model: torch.nn.Module, graphs: list[Compiled]) -> dict[str, LinearReport]:
    """By module. Training graphs say more than those of eval, so they come last."""
    found: dict[str, LinearReport] = {}
    for owner, bound, linear in sorted(linears_of(model, graphs), key=lambda t: len(t[1].cotangents)):
        roles, kind, reason = _decided(bound, linear.name)
        if kind:
            found[owner] = LinearReport(owner, kind, reason, linear.place, roles)
    return found


def linears_of(model: torch.nn.Module, graphs: list[Compiled]) -> Iterator[tuple[str, Bound, Linear]]:
    """The linears of all programs: the path of the module that each belongs to, its program, itself."""
    names: dict[int, list[str]] = {}
    for path, param in model.named_parameters(remove_duplicate=False):
        names.setdefault(id(param), []).append(path)
    for bound in (b for one in graphs for runner in one.runners for b in runner.programs):
        for linear in bound.stage.linears:
            param = bound.scales.params.get(linear.name)
            paths = names.get(id(param), []) if param is not None else [linear.weight or linear.name]
            owner = _owner(model, linear, param, [path.rpartition(".")[0] for path in paths])
            if owner is not None:
                yield owner, bound, linear


def _owner(model: torch.nn.Module, linear: Linear, param: Any, owners: list[str]) -> str | None:
    """The module that a linear belongs to, of those that have its weight."""
    if linear.place.module in owners:  # a tied weight: this use of it
        owners = [linear.place.module]
    for owner in owners:
        if param is None or is_linear(model.get_submodule(owner)):
            return owner
    if owners and param is not None and linear.place.module:
        return linear.place.module
    return owners[0] if owners else None


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


def _left_out(model: torch.nn.Module, name: str, module: torch.nn.Module,
              graphs: list[Compiled]) -> LinearReport:
    """A linear that no stage has, and why, as far as it can be seen."""
    place = _place(name, module)
    for one in graphs:
        for op in one.plan.eager_ops if one.plan is not None else ():
            if op.place.module == name:
                return LinearReport(name, OUT, f"{op.op}: {op.reason}", op.place)
        if one.plan is None and any(p is module.weight for p in one.params):
            return LinearReport(name, OUT, one.reason, one.place)
    parts = name.split(".")
    for n in range(len(parts), -1, -1):
        outer = model.get_submodule(".".join(parts[:n]))
        where = ".".join(parts[:n]) or "the model"
        if _disabled(outer):
            return LinearReport(name, OUT, f"torch.compiler.disable keeps {where} out", place)
        if private.is_fsdp_module(outer):
            return LinearReport(name, OUT, f"FSDP has split the parameters of {where} over ranks, "
                                "which is not supported", place)
    if not graphs:
        return LinearReport(name, OUT, "no call of the model was compiled by fp8c yet, or dynamo "
                            "left out all of it", place)
    breaks = _all_breaks(graphs)
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


def _breaks() -> list[str]:
    return [private.first_line(reason) for reason in private.graph_breaks()]


def _all_breaks(graphs: list[Compiled]) -> list[str]:
    """Those of the model's graphs, which have places, and others that dynamo counts."""
    own = list(dict.fromkeys(one.ended for one in graphs if one.ended))
    return own + [other for other in _breaks() if not any(one.startswith(other) for one in own)]


def _unused_rules(graphs: list[Compiled]) -> list[str]:
    linears = [x.name for g in graphs if g.plan is not None for x in g.plan.linears]
    rules = dict.fromkeys(rule for g in graphs for rule in g.settings.rules)
    from .settings import matches
    return [rule for rule in rules if not any(matches(rule, name) for name in linears)]
