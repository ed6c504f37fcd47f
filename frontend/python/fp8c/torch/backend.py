"""The backend of torch.compile: what the entry point `torch_dynamo_backends` names.

    torch.compile(model, backend="fp8c", options={"recipe": "current", "strict": True})

It captures dynamo's graph, partitions it, and gives back a function that runs the plan. Where
`strict` is off, a graph that can't be compiled runs in PyTorch; that is logged once, and the report
has it.
"""

from __future__ import annotations

import itertools
import operator
import threading
import weakref
import zlib
from dataclasses import dataclass, field
from typing import Any, Callable, Mapping, Sequence

import torch
import torch.fx

import fp8c

from . import private, strict
from .graph.capture import capture, copy_of
from .graph.partition import Cutting, Partitioner
from .graph.pieces import Pieces, apart
from .graph.plan import Eager as EagerStep
from .graph.plan import EagerOp, Plan, Stage
from .graph.uses import Uses, uses_in_plan, uses_of
from .log import say_once
from .places import FAILURES, Place, Unsupported, place_of, place_of_frames
from .ranks import gathered
from .ranks.agreement import Agreement, layers_of, names_of, ops_of
from .ranks.amaxes import groups_of
from .ranks.sharded import shard_of
from .run.function import Runner, new_seed
from .selftest import check_version
from .settings import Settings

_LINEARS = ("linear", "addmm", "aten.mm", "conv1d", "conv2d")  # ops that have weights


@dataclass
class Compiled:
    """A graph of dynamo's and what became of it.

    plan: None if PyTorch runs all of the graph, or if the graph is in pieces. whole: because of what
    PyTorch runs all of it. ended: why, and where,
    dynamo ended the graph before the end of the function, or broke off just before it. apart: nodes
    that PyTorch runs between pieces, which are graphs of their own. uses: what reads parameters
    outside the linears of stages. places: the positions of `params` among the arguments. others: the
    parameters of other models that the graph was called with, by their ids. alone: whether ranks have
    yet to agree on some of these, because none shared them when they were compiled. cut: whether the
    graph was to be cut into a stage a block.
    """

    settings: Settings
    plan: Plan | None = None
    runners: list[Runner] = field(default_factory=list)
    modules: set[str] = field(default_factory=set)
    params: list[torch.Tensor] = field(default_factory=list)
    ended: str = ""
    apart: list[EagerOp] = field(default_factory=list)
    uses: Uses = field(default_factory=Uses)
    places: list[int] = field(default_factory=list)
    others: dict[tuple[int, ...], list[weakref.ref]] = field(default_factory=dict)
    whole: EagerOp | None = None
    alone: bool = True
    cut: bool = False

    def note(self, args: Sequence[Any]) -> list[torch.Tensor] | None:
        """Note whose parameters a call has: dynamo may use one graph for several models, or for several
        blocks of one. -> The parameters, if this is their first call; None: it is not."""
        given = [args[i] for i in self.places]
        if all(map(operator.is_, given, self.params)):
            return None
        known = self.others.get(tuple(map(id, given)))
        if known is not None and all(one() is param for one, param in zip(known, given)):
            return None
        self.refuse(given)
        self.others = {k: one for k, one in self.others.items() if all(p() is not None for p in one)}
        self.others[tuple(map(id, given))] = [weakref.ref(param) for param in given]
        return given

    def forget(self, params: Sequence[torch.Tensor]) -> None:
        """The first call with these parameters has failed: the next one is the first."""
        self.others.pop(tuple(map(id, params)), None)

    def refuse(self, params: Sequence[torch.Tensor]) -> None:
        """Fp8GatherError: PyTorch runs an op that reads a weight which travels as FP8 codes."""
        reads = {index: str(op) for index, op in self.uses.lost.items()}
        if self.plan is not None:
            own = {one.name: one.index for one in self.plan.inputs if one.kind == "param"}
            parts = [*self.plan.prologue, *(s for s in self.plan.steps if isinstance(s, EagerStep))]
            reads |= {own[name]: "before or between stages" for part in parts for name in part.inputs
                      if name in own and own[name] not in reads}
        gathered.refuse(dict(zip(self.places, params)), reads)

    def sets(self) -> list[dict[int, torch.Tensor]]:
        """The parameters of each model that the graph was called with, by position."""
        others = [[one() for one in known] for known in self.others.values()]
        return [dict(zip(self.places, self.params))] + [
            dict(zip(self.places, known)) for known in others if all(p is not None for p in known)
        ]


Made = Callable[..., Any]


class Function:
    """What dynamo calls. It has the record of the graph, so both live as long.

    again: makes the function anew for these arguments. A capture decides what has a gradient, but
    dynamo of PyTorch 2.11 does not compile again when a parameter's `requires_grad` changes. No dynamo
    does when DDP wraps a model that has run without it, and then the graph may have to be cut.
    """

    def __init__(self, compiled: Compiled, plan: Plan, again: Callable[[Sequence[Any]], Made]):
        self.compiled, self.plan, self._again = compiled, plan, again
        params = [one for one in plan.inputs if one.kind == "param"]
        self._params = [one.index for one in params]
        self._trained = [one.requires_grad for one in params]
        self._settings, self._cut = compiled.settings, compiled.cut
        self._others: dict[tuple[bool, ...], Made] = {}
        self._runners = {id(stage): r for stage, r in zip(plan.stages, compiled.runners, strict=True)}
        self._seeds = any(stage.seed for stage in plan.stages)
        self._calls = itertools.count()

    def __call__(self, *args: Any) -> list[Any]:
        compiled = self.compiled
        new = compiled.note(args)
        if new is None:
            if not compiled.alone or not private.groups_of_ddp():
                return self._run(args)
            new = [args[i] for i in compiled.places]  # compiled before DDP wrapped the model
        try:
            with Agreement(new, compiled.settings.timeout) as agreement:
                results = self._run(args)  # it compiles the programs of these parameters
                # Or the graph is made anew within it, as cut under DDP, and has said so.
                if not agreement.told:
                    _tell(agreement, self, new)
        except Exception:
            compiled.forget(new)
            raise
        compiled.alone = not agreement.known
        return results

    def _run(self, args: Sequence[Any]) -> list[Any]:
        trained = [args[i].requires_grad for i in self._params]
        cut = self._cut or (torch.is_grad_enabled() and _cuts(self._settings))
        if trained != self._trained or cut != self._cut:
            return self._other((cut, *trained), args)(*args)
        seed = new_seed() if self._seeds else None
        watch: int | None = None
        if self.compiled.settings.statistics and torch.is_grad_enabled():
            call = next(self._calls)
            watch = call if self.compiled.settings.watches(call) else None

        def run_stage(stage: Stage, tensors: Sequence[torch.Tensor]) -> Sequence[torch.Tensor]:
            return self._runners[id(stage)](tensors, args, seed, watch)

        return self.plan.run(args, run_stage)

    def _other(self, key: tuple[bool, ...], args: Sequence[Any]) -> Made:
        """The function that is cut as `key` says first, and where other parameters are trained."""
        if key not in self._others:
            self._others[key] = self._again(args)
        return self._others[key]


class Eager:
    """A graph that PyTorch runs as it is."""

    def __init__(self, compiled: Compiled, gm: torch.fx.GraphModule):
        self.compiled, self.gm = compiled, gm

    def __call__(self, *args: Any) -> Any:
        self.compiled.note(args)
        return self.gm.forward(*args)


class InPieces:
    """A graph of which PyTorch runs some nodes as they are: the pieces between these are graphs of
    their own."""

    def __init__(self, compiled: Compiled, pieces: Pieces):
        self.compiled, self._pieces = compiled, pieces

    def __call__(self, *args: Any) -> Any:
        self.compiled.note(args)
        return self._pieces(*args)


_known: "weakref.WeakSet[Function | Eager | InPieces]" = weakref.WeakSet()
_broken: dict[tuple[str, int], str] = {}  # by file and line: why dynamo ended a graph there
_lock = threading.Lock()


def fp8c_backend(gm: torch.fx.GraphModule, example_inputs: Sequence[Any], *,
                 options: Mapping[str, Any] | None = None, mode: str | None = None) -> Made:
    """Compile a graph. ValueError: an option is wrong. Unsupported, fp8c.Error: `strict` is on, and
    something can't be compiled. mode: Inductor's, which changes nothing here."""
    if mode is not None:
        say_once(f"mode={mode!r} is ignored: backend fp8c has no modes, it has options")
    try:
        settings = Settings.of(options)
    except ValueError:
        with Agreement(_params(example_inputs), Settings.timeout):
            raise  # the other ranks hear it, too
    if settings.strict:
        strict.watch_caller(fp8c_backend)
    return _make(gm, example_inputs, settings)


def _make(gm: torch.fx.GraphModule, example_inputs: Sequence[Any], settings: Settings) -> Made:
    """What runs a graph, once all ranks that share its parameters have made the same of theirs."""
    params = _params(example_inputs)
    with Agreement(params, settings.timeout) as agreement:
        groups_of(params, [shard_of(param) for param in params])  # a wrong group is an error, strict or not
        made = _made(gm, example_inputs, settings)
        _tell(agreement, made, params)
    made.compiled.alone = not agreement.known
    return made


def _params(example_inputs: Sequence[Any]) -> list[torch.Tensor]:
    return [one for one in example_inputs if isinstance(one, torch.nn.Parameter)]


def _tell(agreement: Agreement, made: Function | Eager | InPieces, params: Sequence[torch.Tensor]) -> None:
    """Tell what was made of a graph for these parameters, in words that are equal on all ranks if it is
    the same."""
    compiled = made.compiled
    if compiled.whole is not None:
        agreement.tell([f"PyTorch runs the graph ({compiled.whole.op}: {compiled.whole.reason})"], [], False)
        return
    if compiled.plan is None:
        agreement.tell([f"PyTorch runs {op.op}" for op in compiled.apart], [], False)
        return
    settings, linears, stages = compiled.settings, compiled.plan.linears, compiled.plan.stages
    texts = [stage.text for stage in stages]
    told = [f"recipe {settings.recipe}", *(f"linear {one.name}" for one in linears), *layers_of(texts),
            *(f"rule {rule}" for rule in settings.rules_of(linears))]
    frozen = {index for index, param in zip(compiled.places, params) if not param.requires_grad}
    told += [f"frozen {one.path}" for one in compiled.plan.inputs if one.index in frozen]
    if any("delayed" in rule for rule in (settings.recipe, *settings.rules)):
        groups = groups_of(params, [shard_of(param) for param in params])
        told.append(f"amaxes of {names_of(private.ranks_of(groups)) if groups else 'its own rank'}")
    ops = f"{len(stages)} stages with ops of checksum {zlib.crc32(ops_of(texts).encode()):08x}"
    agreement.tell(told, [ops], any(stage.bounds for stage in stages))


def _made(gm: torch.fx.GraphModule, example_inputs: Sequence[Any],
          settings: Settings) -> Function | Eager | InPieces:
    places = [i for i, one in enumerate(example_inputs) if isinstance(one, torch.nn.Parameter)]
    compiled = Compiled(settings, modules=_modules(gm), params=[example_inputs[i] for i in places],
                        ended=_ended(gm), places=places)
    if compiled.ended:
        say_once(f"dynamo ended a graph: {compiled.ended}")
    try:
        check_version()
        if private.is_part_under_ddp(gm):
            raise Unsupported("DDP", "dynamo's DDPOptimizer cuts the graph in the middle of blocks, because a "
                              "function stands around the backend; give torch.compile the backend itself, "
                              "or set torch._dynamo.config.optimize_ddp = False")
        private.keep_sources(gm)  # dynamo forgets them, and the graph may be made anew
        captured = capture(gm, example_inputs)
        compiled.cut = _cuts(settings)
        cutting = Cutting(settings.rounds, tied=settings.stages == "blocks")
        work = Partitioner(captured, cutting=cutting if compiled.cut else None)
        plan = _compile(compiled, work, captured.graph, example_inputs)
        made: Function | Eager | InPieces | None = Function(
            compiled, plan, lambda args: _make(gm, args, settings))
    except (Unsupported, fp8c.InputError, fp8c.UnsupportedError, *FAILURES) as error:
        if isinstance(error, fp8c.InputError) and error.place is None:
            raise  # an option is wrong
        compiled.plan, compiled.runners = None, []
        whole = _whole(error)
        made = None if private.is_part_under_ddp(gm) else _in_pieces(compiled, gm, example_inputs)
        if made is None:
            if settings.strict:
                raise
            say_once(f"a graph runs in PyTorch, not in fp8c: {whole}")
            compiled.whole = whole
            compiled.uses = uses_of(list(gm.graph.nodes), _positions(gm, example_inputs), lambda _: whole)
            made = Eager(compiled, gm)
    compiled.refuse(compiled.params)
    for op in compiled.plan.eager_ops if compiled.plan is not None else ():
        say_once(f"PyTorch runs {op}")
    if compiled.cut and compiled.plan is not None:
        _say_whole(compiled.plan, settings)
    with _lock:
        _known.add(made)
    return made


def _say_whole(plan: Plan, settings: Settings) -> None:
    """Say where blocks were not cut apart, so that their gradients come together."""
    if plan.kept:
        advice = "" if settings.stages == "blocks" else "; see the option `stages`"
        say_once(f"{len(plan.stages)} stages, because blocks could not be cut apart: {plan.kept[0]}{advice}")


def _cuts(settings: Settings) -> bool:
    """Whether a graph that is compiled or called now is cut into a stage a block."""
    return settings.cuts(ddp=bool(private.groups_of_ddp()))


def known() -> list[Compiled]:
    """All graphs that were compiled and still live."""
    with _lock:
        return [one.compiled for one in _known]


def _whole(error: Exception) -> EagerOp:
    """The op because of which PyTorch runs a whole graph."""
    if isinstance(error, Unsupported):
        return EagerOp(error.op, error.reason, error.place)
    if isinstance(error, fp8c.Error):
        return EagerOp("the graph", str(error), Place())
    return EagerOp("the graph", f"fp8c.torch failed: {type(error).__name__}: {error}", Place())


def _positions(gm: torch.fx.GraphModule, examples: Sequence[Any]) -> dict[str, int]:
    """The positions of parameters among the arguments, by the placeholders' names."""
    names = [n.name for n in gm.graph.nodes if n.op == "placeholder"]
    return {names[i]: i for i, one in enumerate(examples) if isinstance(one, torch.nn.Parameter)}


def _ended(gm: torch.fx.GraphModule) -> str:
    """Why and where dynamo ended this graph early, or broke off before it; empty: it did not."""
    found, before = private.graph_break(gm), private.resumed_at(gm)
    if found is not None:
        reason, frames = found
        text = f"{reason}, at {place_of_frames(frames)}"
        lines = [(frame.filename, frame.lineno) for frame in frames]
    elif before is not None:
        reason = private.first_line(next(reversed(private.graph_breaks()), "it gave no reason"))
        text, lines = f"{reason}, at {Place('', *before)}", [before]
    else:
        return ""
    for line in lines:  # a break in a call breaks the caller at its line, too
        text = _broken.setdefault(line, text)
    return text


def _refuse_eager(plan: Plan, uses: Uses) -> None:
    """Unsupported: PyTorch would run a linear, or an op that a weight goes through."""
    ops = [op for op in plan.eager_ops if any(name in op.op for name in _LINEARS)]
    for op in ops + [uses.lost[i] for i in uses.products if i in uses.lost]:
        raise Unsupported(op.op, op.reason, op.place)


def _in_pieces(compiled: Compiled, gm: torch.fx.GraphModule,
               example_inputs: Sequence[Any]) -> InPieces | None:
    """The graph in pieces, between the nodes that can't be captured. None: there are no such nodes, or
    under strict one of them reads a parameter."""
    gm = torch.fx.GraphModule(gm, copy_of(gm.graph))
    alone = apart(gm)
    if not alone:
        return None
    ops = {node: EagerOp(private.target_name(node), why, place_of(node)) for node, why in alone.items()}
    uses = uses_of(list(gm.graph.nodes), _positions(gm, example_inputs), ops.get)
    if compiled.settings.strict and uses.lost:
        return None  # a linear would be lost
    compiled.uses = Uses(uses.lost, {i: p for i, p in uses.products.items() if i in uses.lost})
    pieces = Pieces(gm, example_inputs, alone,
                    lambda part, examples: _make(part, examples, compiled.settings))
    compiled.apart = pieces.ops
    for op in pieces.ops:
        say_once(f"PyTorch runs {op}")
    return InPieces(compiled, pieces)


def _compile(compiled: Compiled, work: Partitioner, graph: torch.fx.Graph,
             example_inputs: Sequence[Any]) -> Plan:
    """The plan of a graph whose stages compile. What the compiler refuses costs the op that it
    names: PyTorch runs that, and the rest is planned anew."""
    while True:
        plan = compiled.plan = work.plan()
        compiled.uses = uses_in_plan(plan, graph)
        if compiled.settings.strict:
            _refuse_eager(plan, compiled.uses)
            if plan.kept and compiled.settings.stages == "blocks":
                raise Unsupported("option stages", f"blocks can't be cut apart: {plan.kept[0]}")
        compiled.runners = [Runner(plan, stage, compiled.settings) for stage in plan.stages]
        for runner in compiled.runners:
            try:
                _compile_now(compiled, runner, example_inputs)
            except (fp8c.InputError, fp8c.UnsupportedError) as error:
                if not work.refuse(runner.stage, error):
                    raise
                break
        else:
            return plan


def _compile_now(compiled: Compiled, runner: Runner, example_inputs: Sequence[Any]) -> None:
    """Compile the program of real parameters: errors come out of the compile, not of a call."""
    if not all(isinstance(p, torch.nn.Parameter) for p in compiled.params):
        return
    sizes, params = runner.dims.examples, runner.params_of(example_inputs)
    if runner.gradient and torch.is_grad_enabled():
        runner.bound(params, runner.cotangents, sizes)
    elif not runner.stage.seed:
        runner.bound(params, [], sizes, pair=False)


def _modules(gm: torch.fx.GraphModule) -> set[str]:
    """The dotted paths of the modules that a graph has calls of."""
    return {place_of(node).module for node in gm.graph.nodes if node.op == "call_function"}
