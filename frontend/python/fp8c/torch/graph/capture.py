"""Capture: a model's graph before autograd, split from what PyTorch itself computes at each call.

    captured = capture(gm, example_inputs)               inside a torch.compile backend
    captured = capture_module(model, args, kwargs)       without one: runs dynamo, then stops

Two graphs come one after the other. Dynamo's graph has PyTorch's functions. What depends on no
parameter and on no float input of the caller is taken out there: constants are computed at once,
and the rest is the first part of the prologue, which PyTorch runs at each call. Only dynamo's graph
can run Hugging Face's masks, which are made by vmap. The rest is traced to ATen, before autograd,
so that linears, norms, attention and losses stay whole. `partition.py` takes it from there.
"""

from __future__ import annotations

import inspect
import re
from dataclasses import dataclass, field
from typing import Any, Mapping, Sequence

import torch
import torch.fx

from .. import private
from ..places import Unsupported, place_of
from ..weights.grains import is_scale
from .decompose import definitions
from .refused import check_calls, check_tensor

CONSTANT, PROLOGUE, STAGE = 0, 1, 2


@dataclass
class Input:
    """An argument of the captured function, in the order of the call.

    kind: "param", "buffer", "input" (a tensor of the caller) or "size" (an int that is dynamic). "scale":
    of a parameter that is stored as FP8 codes.
    path: the dotted name of a parameter or buffer, else the name that dynamo gave.
    tensor: the parameter or buffer itself; None for the others.
    """

    name: str
    kind: str
    path: str
    index: int
    fake: Any
    requires_grad: bool = False
    tensor: torch.Tensor | None = None


@dataclass
class Output:
    """A result of the captured function: the value `name`, or the Python object `value`.

    dtype: what the caller expects, which under autocast may differ from what is computed.
    traced: whether the ATen graph returns it. Its results are these, in order.
    """

    name: str | None
    value: Any = None
    dtype: torch.dtype | None = None
    traced: bool = False


@dataclass
class Captured:
    """A captured model.

    inputs: what a call is given. constants: tensors that no input changes, by name.
    prologue: a graph module from the values `prologue_inputs` to the tuple `prologue_results`; all
    three are names of values. prologue_ops: what it calls, in order.
    graph: ATen nodes, whose placeholders have the names of inputs, constants and prologue results.
    grad: whether the capture was made with gradients enabled.
    """

    inputs: list[Input]
    outputs: list[Output]
    graph: torch.fx.Graph
    module: torch.fx.GraphModule
    constants: dict[str, torch.Tensor] = field(default_factory=dict)
    prologue: torch.fx.GraphModule | None = None
    prologue_inputs: list[str] = field(default_factory=list)
    prologue_results: list[str] = field(default_factory=list)
    prologue_ops: list[str] = field(default_factory=list)
    grad: bool = True


def capture(
    gm: torch.fx.GraphModule, example_inputs: Sequence[Any], names: Mapping[int, str] | None = None
) -> Captured:
    """The captured form of dynamo's graph. It runs nothing but constants.

    names: the paths of parameters and buffers by the tensors' `id`, as `names_of(model)` gives it.
    Without it a path is the one by which dynamo met the tensor, from the module that was compiled.
    """
    gone = private.missing()
    if gone:
        raise Unsupported("PyTorch " + torch.__version__, "lacks " + ", ".join(gone))
    gm = torch.fx.GraphModule(gm, copy_of(gm.graph))
    _inline_checkpoints(gm)
    _detach_data(gm)
    _fix_floats(gm)
    _merge_views(gm)
    inputs = _inputs(gm, example_inputs, names or {})
    classes = _classify(gm, inputs)
    check_calls(classes, STAGE)
    return _Split(gm, inputs, classes).captured()


def _by_name(
    model: Any, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> tuple[Sequence[Any], Mapping[str, Any]]:
    """Positional arguments as named ones where the model names them, so that inputs have names."""
    try:
        signature = inspect.signature(
            model.forward if isinstance(model, torch.nn.Module) else model
        )
        bound = signature.bind(*args, **kwargs).arguments
    except (TypeError, ValueError):
        return args, kwargs
    plain = inspect.Parameter.POSITIONAL_OR_KEYWORD
    named = [n for n, p in signature.parameters.items() if p.kind is plain and n in bound]
    if len(named) < len(args):
        return args, kwargs
    return (), {**{n: bound[n] for n in named}, **kwargs}


def names_of(model: torch.nn.Module) -> dict[int, str]:
    """The names of a model's parameters and buffers, by `id`. A tied one has its first name."""
    named = {id(t): name for name, t in model.named_buffers()}
    named.update({id(t): name for name, t in model.named_parameters()})
    return named


def name_results(graph: torch.fx.Graph, outputs: Sequence[Output]) -> None:
    """Take the names of traced outputs from what the graph returns."""
    result = next(n for n in graph.nodes if n.op == "output")
    for out, value in zip([o for o in outputs if o.traced], result.args[0], strict=True):
        out.name = value.name if isinstance(value, torch.fx.Node) else None
        out.value = None if isinstance(value, torch.fx.Node) else value


def capture_module(
    model: Any,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    dynamic: bool = False,
) -> Captured:
    """The captured form of a module or function at these arguments. A graph break is an error.

    dynamic: every axis of the tensors given may change, except where the model decides by its size.

    The model runs once, in eager mode, for dynamo gives the graph only to what runs it.
    """
    found: list[Captured] = []
    names = names_of(model) if isinstance(model, torch.nn.Module) else {}

    def backend(gm: torch.fx.GraphModule, example_inputs: Sequence[Any]) -> Any:
        found.append(capture(gm, example_inputs, names))
        return gm.forward

    if dynamic:
        args, kwargs = private.with_dynamic_axes((tuple(args), dict(kwargs or {})))
    args, kwargs = _by_name(model, args, kwargs or {})
    private.compile_with(model, backend, None if dynamic else False)(*args, **kwargs)
    if len(found) != 1:
        raise Unsupported("capture", f"the model has {len(found)} graphs, not one")
    return found[0]


def copy_of(graph: torch.fx.Graph) -> torch.fx.Graph:
    """A copy that shares no node with the original, which dynamo may still use."""
    new = torch.fx.Graph()
    env: dict[torch.fx.Node, torch.fx.Node] = {}
    for node in graph.nodes:
        env[node] = new.node_copy(node, lambda n: env[n])
    return new


def _inline_checkpoints(gm: torch.fx.GraphModule) -> None:
    """Replace torch.utils.checkpoint's op by its body: fp8c decides itself what it recomputes."""
    for node in list(gm.graph.nodes):
        if not private.is_checkpoint(node):
            continue
        body = getattr(gm, str(node.args[0].target))
        _inline_checkpoints(body)
        places = [n for n in body.graph.nodes if n.op == "placeholder"]
        env: dict[torch.fx.Node, Any] = dict(zip(places, node.args[1:], strict=True))
        with gm.graph.inserting_before(node):
            for inner in body.graph.nodes:
                if inner.op == "output":
                    result = torch.fx.map_arg(inner.args[0], lambda n: env[n])
                elif inner.op == "get_attr":
                    name = f"{node.name}_{inner.target}".replace(".", "_")
                    setattr(gm, name, _attribute(body, str(inner.target)))
                    env[inner] = gm.graph.get_attr(name)
                elif inner.op != "placeholder":
                    env[inner] = gm.graph.node_copy(inner, lambda n: env[n])
        if isinstance(result, torch.fx.Node):
            node.replace_all_uses_with(result)
        else:
            for user in list(node.users):
                if private.target_name(user) != "_operator.getitem":
                    raise Unsupported(
                        "torch.utils.checkpoint", "its results are used as one", place_of(user)
                    )
                user.replace_all_uses_with(result[user.args[1]])
                gm.graph.erase_node(user)
        gm.graph.erase_node(node)
    gm.graph.lint()


def _detach_data(gm: torch.fx.GraphModule) -> None:
    """x.data becomes x.detach()."""
    for node in gm.graph.nodes:
        if private.reads_data(node):
            node.target = torch.detach


def _fix_floats(gm: torch.fx.GraphModule) -> None:
    """Make a float that dynamo holds dynamic a number, with a guard on it: a stage has numbers in its
    text. Under `dynamic=True` so is each float of a model, as an embedding's norm_type."""
    for node in list(gm.graph.nodes):
        number = private.guarded_float(private.fake_value(node))
        if node.op == "output" or number is None:
            continue
        for user in list(node.users):
            user.args, user.kwargs = torch.fx.node.map_aggregate(
                (user.args, user.kwargs), lambda a: number if a is node else a
            )
        if node.op != "placeholder":
            gm.graph.erase_node(node)


_VIEWS = frozenset({"_operator.getitem", "unsqueeze", "view", "reshape", "expand", "transpose"})


def _merge_views(gm: torch.fx.GraphModule) -> None:
    """Make equal views of one tensor one node: each layer takes its own slice of one mask.

    Views see what is written in place, so equal ones stay equal. A view made under no_grad is
    another than one that has a gradient; an index that is a tensor makes no view.
    """

    def shown(node: torch.fx.Node) -> Any:
        fake = private.fake_value(node)
        return _Same(fake) if isinstance(fake, (int, torch.SymInt)) else node

    def tensors(node: torch.fx.Node) -> int:
        found = [private.fake_value(n) for n in (node, *node.all_input_nodes)]
        return sum(not isinstance(fake, (int, torch.SymInt)) for fake in found)

    seen: dict[Any, torch.fx.Node] = {}
    grad: bool | None = None
    for node in list(gm.graph.nodes):
        grad = grad if private.sets_grad(node) is None else private.sets_grad(node)
        if private.target_name(node) not in _VIEWS or tensors(node) != 2:
            continue
        args, kwargs = torch.fx.map_arg((node.args, node.kwargs), shown)
        key = (grad, private.target_name(node), repr(args), repr(kwargs))
        first = seen.setdefault(key, node)
        if first is not node:
            node.replace_all_uses_with(first)
            gm.graph.erase_node(node)


class _Same:
    """A size in a key: two nodes of one size look alike."""

    def __init__(self, size: Any) -> None:
        self.size = size

    def __repr__(self) -> str:
        return f"<{self.size}>"


def _attribute(module: Any, path: str) -> Any:
    for part in path.split("."):
        module = getattr(module, part)
    return module


def _inputs(
    gm: torch.fx.GraphModule, examples: Sequence[Any], names: Mapping[int, str]
) -> list[Input]:
    """One entry an argument. Tensors that fp8c can't take are refused here, by name."""
    found: list[Input] = []
    rooted = private.tell_roots_apart(gm)
    nodes = [n for n in gm.graph.nodes if n.op == "placeholder"]
    for index, (node, example) in enumerate(zip(nodes, examples, strict=True)):
        source = private.graph_source(node) or node.name
        parsed = private.parse_source(source)
        fake = private.fake_value(node)
        if not isinstance(fake, torch.Tensor):
            found.append(Input(node.name, "size", source, index, fake))
            continue
        kind, path = "input", source
        if isinstance(example, torch.nn.Parameter) or (parsed and parsed[1] == "parameters"):
            kind = "param"
        elif parsed:
            kind = "buffer"
        if is_scale(node):
            kind = "scale"
        if kind != "input":
            own_path = private.rooted_path(parsed) if parsed and rooted else parsed and parsed[2]
            path = names.get(id(example)) or own_path or source
        check_tensor(path, kind, node, fake, example)
        own = example if kind != "input" else None
        found.append(Input(node.name, kind, path, index, fake, bool(example.requires_grad), own))
    return found


def _classify(gm: torch.fx.GraphModule, inputs: Sequence[Input]) -> dict[torch.fx.Node, int]:
    """The class of each node of dynamo's graph.

    A node is in the highest class of its operands. A region of vmap is one unit. A value that a
    higher class overwrites in place belongs to that class from then on.
    """
    classes: dict[torch.fx.Node, int] = {}
    kinds = {i.name: i for i in inputs}
    regions = vmap_regions(gm)
    for node in gm.graph.nodes:
        if node.op == "placeholder":
            one = kinds[node.name]
            moving = one.kind in ("param", "scale") or (one.kind == "input" and one.fake.is_floating_point())
            classes[node] = STAGE if moving else PROLOGUE
            continue
        members = regions.get(node, [node])
        inside = set(members)
        feeding = [
            classes[a]
            for m in members
            for a in m.all_input_nodes
            if a not in inside and a in classes
        ]
        least = PROLOGUE if any(private.is_random(m) for m in members) else CONSTANT
        classes[node] = max([*feeding, least])
        if len(members) > 1 and classes[node] == STAGE:
            raise Unsupported("vmap", "it maps over activations", place_of(node))
        if private.is_in_place(node) and node.args and isinstance(node.args[0], torch.fx.Node):
            _raise_class(node.args[0], classes[node], classes)
    # A write raises the class of what it overwrites. What was made of that before is raised, too: a
    # constant that the prologue overwrites is made anew at each call, and a view of what a stage
    # overwrites is the stage's.
    for node in gm.graph.nodes:
        if node.op not in ("placeholder", "output"):
            above = max((classes[a] for a in node.all_input_nodes), default=CONSTANT)
            classes[node] = max(classes[node], above)
    return classes


def _raise_class(node: torch.fx.Node, to: int, classes: dict[torch.fx.Node, int]) -> None:
    if node.op == "placeholder" and to != STAGE and classes[node] < to:
        raise Unsupported(node.name, "an input is overwritten", place_of(node))
    if classes[node] >= to or to == STAGE:
        if to == STAGE:
            classes[node] = STAGE
        return
    classes[node] = to
    for arg in node.all_input_nodes:
        if arg.op != "placeholder":
            _raise_class(arg, to, classes)


def vmap_regions(gm: torch.fx.GraphModule) -> dict[torch.fx.Node, list[torch.fx.Node]]:
    """For each node between the outermost entry into vmap and its end: all of these nodes."""
    regions: dict[torch.fx.Node, list[torch.fx.Node]] = {}
    depth, members = 0, []
    for node in gm.graph.nodes:
        depth += max(private.vmap_step(node), 0)
        if depth:
            members.append(node)
            regions[node] = members
        depth += min(private.vmap_step(node), 0)
        if not depth:
            members = []
    return regions


class _Split:
    """Cuts dynamo's graph in constants, prologue and rest, and traces the rest."""

    def __init__(
        self, gm: torch.fx.GraphModule, inputs: list[Input], classes: dict[torch.fx.Node, int]
    ) -> None:
        self.gm, self.inputs, self.classes = gm, inputs, classes
        self.autocast = {n for n in gm.graph.nodes if private.is_state_call(n)}
        for node in gm.graph.nodes:
            if private.target_name(node) in private.IGNORED:
                self.autocast.add(node)

    def captured(self) -> Captured:
        """The three parts together."""
        constants = self._constants()
        output = next(n for n in self.gm.graph.nodes if n.op == "output")
        flat = list(output.args[0])
        rest = self._rest()
        prologue, p_in, p_out, ops = self._prologue(rest, flat)
        outputs = [self._output(item) for item in flat]
        for out, item in zip(outputs, flat):
            out.traced = self._is_stage(item)
        gm, names = self._trace(rest, [f for f in flat if self._is_stage(f)])
        name_results(gm.graph, outputs)
        kept = set(names) | {o.name for o in outputs}
        return Captured(
            self.inputs,
            outputs,
            gm.graph,
            gm,
            {k: v for k, v in constants.items() if k in kept or k in p_in},
            prologue,
            p_in,
            p_out,
            ops,
            torch.is_grad_enabled(),
        )

    def _is_stage(self, item: Any) -> bool:
        return (
            isinstance(item, torch.fx.Node)
            and item.op != "placeholder"
            and self.classes[item] == STAGE
        )

    def _in_rest(self, node: torch.fx.Node) -> bool:
        if node.op in ("placeholder", "output"):
            return False
        grad_mode = private.sets_grad(node) is not None
        return grad_mode or (self.classes[node] == STAGE and node not in self.autocast)

    def _rest(self) -> list[torch.fx.Node]:
        """The nodes to trace. Sizes that they read as tuples come along: a trace takes none."""
        rest = {n for n in self.gm.graph.nodes if self._in_rest(n)}
        queue = list(rest)
        while queue:
            for source in queue.pop().all_input_nodes:
                if (
                    source not in rest
                    and source.op != "placeholder"
                    and isinstance(private.fake_value(source), (tuple, list))
                ):
                    rest.add(source)
                    queue.append(source)
        return [n for n in self.gm.graph.nodes if n in rest]

    def _output(self, item: Any) -> Output:
        if not isinstance(item, torch.fx.Node):
            return Output(None, item)
        fake = private.fake_value(item)
        return Output(item.name, None, fake.dtype if isinstance(fake, torch.Tensor) else None)

    def _constants(self) -> dict[str, torch.Tensor]:
        """The values of all constant nodes: computed once, now."""
        env: dict[torch.fx.Node, Any] = {}
        interpreter = torch.fx.Interpreter(self.gm)
        with torch.no_grad(), private.no_autocast():
            for node in self.gm.graph.nodes:
                if (
                    self.classes.get(node) != CONSTANT
                    or node.op == "output"
                    or node in self.autocast
                ):
                    continue
                args, kwargs = torch.fx.map_arg((node.args, node.kwargs), lambda n: env[n])
                env[node] = getattr(interpreter, node.op)(node.target, args, kwargs)
        return {n.name: v for n, v in env.items() if isinstance(v, (torch.Tensor, int, float))}

    def _prologue(
        self, rest: list[torch.fx.Node], flat: list[Any]
    ) -> tuple[torch.fx.GraphModule | None, list[str], list[str], list[str]]:
        """The graph module of the prologue's nodes, with only what the rest needs."""
        wanted = [a for n in rest for a in n.all_input_nodes]
        wanted += [f for f in flat if isinstance(f, torch.fx.Node)]
        results = [
            n
            for n in dict.fromkeys(wanted)
            if n.op != "placeholder" and self.classes[n] == PROLOGUE
        ]
        nodes = [
            n
            for n in self.gm.graph.nodes
            if n.op not in ("placeholder", "output")
            and self.classes[n] == PROLOGUE
            and n not in self.autocast
        ]
        live = set(results) | {n for n in nodes if private.vmap_step(n) or private.is_in_place(n)}
        for node in reversed(nodes):
            if node in live:
                live.update(node.all_input_nodes)
        nodes = [n for n in nodes if n in live]
        if not nodes:
            return None, [], [], []
        graph = torch.fx.Graph()
        env: dict[torch.fx.Node, torch.fx.Node] = {}
        outside = dict.fromkeys(
            a
            for n in nodes
            for a in n.all_input_nodes
            if self.classes[a] != PROLOGUE or a.op == "placeholder"
        )
        for node in outside:
            env[node] = graph.placeholder(node.name)
        for node in nodes:
            env[node] = graph.node_copy(node, lambda n: env[n])
        graph.output(tuple(env[n] for n in results))
        ops = [private.target_name(n) for n in nodes if private.is_tensor_call(n)]
        return (
            torch.fx.GraphModule(self.gm, graph),
            [n.name for n in outside],
            [n.name for n in results],
            ops,
        )

    def _trace(
        self, rest: list[torch.fx.Node], results: list[torch.fx.Node]
    ) -> tuple[torch.fx.GraphModule, list[str]]:
        """The rest as ATen nodes. Placeholders keep the names of the values that they stand for."""
        graph = torch.fx.Graph()
        env: dict[torch.fx.Node, torch.fx.Node] = {}
        inside = set(rest)
        outside = list(dict.fromkeys(a for n in rest for a in n.all_input_nodes if a not in inside))
        for node in outside:
            env[node] = graph.placeholder(node.name)
        for node in rest:
            env[node] = graph.node_copy(node, lambda n: env[n])
        graph.output(tuple(env[n] for n in results))
        part = torch.fx.GraphModule(self.gm, graph)
        fakes = [private.fake_value(n) for n in outside]
        grad = torch.is_grad_enabled()
        try:
            traced = private.trace(
                lambda *a: torch.fx.Interpreter(part).run(*a), fakes, definitions()
            )
        except Unsupported:
            raise
        except Exception as error:
            raise self._untraceable(part, error) from error
        finally:
            torch.set_grad_enabled(grad)
        places = [n for n in traced.graph.nodes if n.op == "placeholder"]
        taken = {n.name for n in outside}
        for node in traced.graph.nodes:
            if node.name in taken:
                node._rename(node.name + "_v")
        for place, node in zip(places, outside, strict=True):
            private.take_name(place, node.name)
            place.target = place.name
        return traced, [n.name for n in outside]

    @staticmethod
    def _untraceable(part: torch.fx.GraphModule, error: Exception) -> Unsupported:
        """What PyTorch's trace says, with the place: it names the node at which it stopped."""
        first = str(error).strip().split("\n")[0]
        found = re.search(r"While executing %(\w+) ", str(error))
        node = next((n for n in part.graph.nodes if found and n.name == found.group(1)), None)
        op = private.target_name(node) if node is not None else "the model"
        return Unsupported(
            op,
            f"it can't be traced: {type(error).__name__}: {first}",
            place_of(node) if node is not None else None,
        )
