"""The one file that names what PyTorch does not document.

Everything here was read in PyTorch 2.15. When a new version moves a name, this file changes and no
other. `missing()` says which names are gone, before a capture fails in the middle.
"""

from __future__ import annotations

import datetime
import functools
import re
import threading
import types
from typing import Any, Callable, Iterator, Mapping, Sequence

import torch
import torch.fx

TESTED = ("2.11", "2.15")
try:
    import torch.fx.traceback
    import torch.utils._pytree
    import torch.utils._python_dispatch
    from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
    from torch.fx.experimental.proxy_tensor import make_fx
except ImportError as error:
    raise ImportError(
        f"fp8c.torch is tested with PyTorch {' and '.join(TESTED)}, and this is "
        f"{torch.__version__}, too old or too new: {error}"
    ) from error

# Calls that change the state of PyTorch and give no value that the text needs.
SET_GRAD = "torch._C._set_grad_enabled"
ENTER_AUTOCAST = "torch.amp.autocast_mode._enter_autocast"
EXIT_AUTOCAST = "torch.amp.autocast_mode._exit_autocast"
IGNORED = frozenset({"torch._C._log_api_usage_once", "torch._C.PyCapsule._log_api_usage_once"})
VMAP_MODULE = "torch._functorch.predispatch"
VMAP_ENTER, VMAP_LEAVE = "_vmap_increment_nesting", "_vmap_decrement_nesting"
CHECKPOINT = "tag_activation_checkpoint"

aten = torch.ops.aten
_sharding = torch.distributed.is_available()  # else there is no FSDP
if _sharding:
    import torch.distributed._composable_state
    import torch.distributed.fsdp


def missing() -> list[str]:
    """The private names that this PyTorch lacks; empty for a version that can be captured."""
    names = {
        "torch._C._set_grad_enabled": hasattr(torch._C, "_set_grad_enabled"),
        "torch._dynamo.optimize": hasattr(torch._dynamo, "optimize"),
        "torch._dynamo.register_backend": hasattr(torch._dynamo, "register_backend"),
        "torch.ops.higher_order." + CHECKPOINT: hasattr(torch.ops.higher_order, CHECKPOINT),
        "aten.scaled_dot_product_attention": hasattr(aten, "scaled_dot_product_attention"),
        "aten.cross_entropy_loss": hasattr(aten, "cross_entropy_loss"),
        "aten.rms_norm": hasattr(aten, "rms_norm"),
    }
    return [name for name, there in names.items() if not there]


def keep_fake_guard() -> None:
    """Let threads that have compiled end without a crash of the next compile.

    Where there is no GPU, fake tensors need a stand-in for CUDA's device guard. The first thread that
    makes some registers it for the process. In PyTorch 2.11 the stand-in is a `thread_local` object:
    once that thread ends, the registry points to freed memory, and the next fake tensor reads it. (In
    2.15 it is one object for ever.) So it is registered here, by a thread that lives as long as the
    process. The count of devices is NVML's: it does not initialize CUDA, and processes can fork."""
    register = getattr(torch._C, "_ensureCUDADeviceGuardSet", None)
    if register is None or torch.cuda.device_count():
        return
    if threading.current_thread() is threading.main_thread():
        register()
        return
    done = threading.Event()

    def stay() -> None:
        register()
        done.set()
        threading.Event().wait()

    threading.Thread(target=stay, name="fp8c.torch fake guard", daemon=True).start()
    done.wait()


def target_name(node: torch.fx.Node) -> str:
    """The full name of what a node calls: "torch.nn.functional.gelu", "view", "aten.add.Tensor"."""
    target = node.target
    if isinstance(target, str):
        return target
    if isinstance(target, (torch._ops.OpOverload, torch._ops.HigherOrderOperator)):
        return str(target)
    module = getattr(target, "__module__", None) or "torch"
    return f"{module}.{getattr(target, '__name__', target)}"


def take_name(node: torch.fx.Node, name: str) -> None:
    """Give a node a name that no other node has, but one may have had: a graph keeps names that it
    once gave."""
    node._rename(name)
    if node.name != name:
        node.name = name


def is_state_call(node: torch.fx.Node) -> bool:
    """Whether a node only sets the gradient mode or autocast."""
    return target_name(node) in (SET_GRAD, ENTER_AUTOCAST, EXIT_AUTOCAST)


def sets_grad(node: torch.fx.Node) -> bool | None:
    """The gradient mode that a node sets; None: it sets none."""
    if target_name(node).endswith("_set_grad_enabled"):
        return bool(node.args[0])
    return None


def autocast_entered(node: torch.fx.Node) -> tuple[Any, ...] | None:
    """The arguments of torch.autocast that a node enters; None: it enters none."""
    return tuple(node.args) if target_name(node) == ENTER_AUTOCAST else None


def autocast_left(node: torch.fx.Node) -> torch.fx.Node | None:
    """The node that has entered the autocast that a node leaves; None: it leaves none."""
    return node.args[0] if target_name(node) == EXIT_AUTOCAST else None


def is_checkpoint(node: torch.fx.Node) -> bool:
    """Whether a node is the higher-order op of torch.utils.checkpoint."""
    return node.op == "call_function" and target_name(node) == CHECKPOINT


def is_higher_order(node: torch.fx.Node) -> bool:
    return isinstance(node.target, torch._ops.HigherOrderOperator)


def vmap_step(node: torch.fx.Node) -> int:
    """1 where a node enters a level of vmap, -1 where it leaves one, else 0."""
    name = target_name(node)
    if name == f"{VMAP_MODULE}.{VMAP_ENTER}":
        return 1
    return -1 if name == f"{VMAP_MODULE}.{VMAP_LEAVE}" else 0


def is_overload(target: Any) -> bool:
    """Whether a node's target is one overload of an op, as `aten.add.Tensor`."""
    return isinstance(target, torch._ops.OpOverload)


_UNTAGGED = (
    "aten.rsub.Tensor",
    "aten.where.ScalarOther",
    "aten.where.ScalarSelf",
    "aten.masked_fill.Tensor",
)


def is_pointwise(node: torch.fx.Node) -> bool:
    """Whether a node computes element by element."""
    return is_overload(node.target) and (
        torch.Tag.pointwise in node.target.tags or target_name(node) in _UNTAGGED
    )


def is_composite(op: Any) -> bool:
    """Whether PyTorch defines an op by others, which have derivatives."""
    key, name = "CompositeImplicitAutograd", op.name()
    there = torch._C._dispatch_has_kernel(name)
    return there and torch._C._dispatch_has_kernel_for_dispatch_key(name, key)


def no_autocast() -> Any:
    """A context in which autocast casts nothing."""
    return torch._C._DisableAutocast()


def no_modes() -> Any:
    """A context in which PyTorch computes with real tensors, whatever traces around it."""
    return torch.utils._python_dispatch._disable_current_modes()


def register_backend(name: str, backend: Callable[..., Any]) -> None:
    """Give dynamo a backend by name. Nothing is done where it knows the name, as from the entry point of
    a wheel that it is loading now. An entry point that it finds later names the same backend."""
    registry = torch._dynamo.backends.registry
    if name not in registry._BACKENDS and name not in registry._COMPILER_FNS:
        torch._dynamo.register_backend(backend, name)


def keep_whole_under_ddp(backend: Callable[..., Any]) -> None:
    """Give a backend whole graphs under DDP. Dynamo's DDPOptimizer cuts them where DDP's buckets end, in
    the middle of blocks, and gives the parts with fake parameters. PyTorch can turn that off only for all
    backends, so its `compile_fn` is wrapped."""
    if not _sharding:
        return
    from torch._dynamo.backends.distributed import DDPOptimizer

    cut = DDPOptimizer.compile_fn

    @functools.wraps(cut)
    def compile_fn(self: Any, gm: Any, example_inputs: Any, **given: Any) -> Any:
        inner, names = self.backend_compile_fn, ("_torchdynamo_orig_backend", "compiler_fn", "func")
        while inner is not None and inner is not backend:
            inner = next((getattr(inner, name) for name in names if hasattr(inner, name)), None)
        if inner is backend:
            return self.backend_compile_fn(gm, example_inputs, **given)
        return cut(self, gm, example_inputs, **given)

    DDPOptimizer.compile_fn = compile_fn


def is_part_under_ddp(gm: torch.fx.GraphModule) -> bool:
    """Whether a graph is a part that DDPOptimizer has cut out of dynamo's."""
    why = getattr(gm, "compile_subgraph_reason", None)
    return why is not None and str(why.reason).startswith("DDPOptimizer")


def on_deepcopy(heard: Callable[[torch.Tensor, torch.Tensor], None]) -> None:
    """Call a function with each parameter that is deep-copied, and its copy. PyTorch has no hook for
    this and does not copy attributes of parameters, so their `__deepcopy__` is wrapped."""
    copied = torch.nn.Parameter.__deepcopy__

    @functools.wraps(copied)
    def __deepcopy__(self: torch.Tensor, memo: dict[int, Any]) -> torch.Tensor:
        again = id(self) in memo
        copy = copied(self, memo)
        if not again and not isinstance(copy, FakeTensor):
            heard(self, copy)
        return copy

    torch.nn.Parameter.__deepcopy__ = __deepcopy__


def unwrap(model: torch.nn.Module) -> torch.nn.Module:
    """The model itself, without what torch.compile and DDP put around it."""
    while True:
        inner = getattr(model, "_orig_mod", None)
        if inner is None and isinstance(model, torch.nn.parallel.DistributedDataParallel):
            inner = model.module
        if inner is None:
            return model
        model = inner


def is_compiled_module(module: torch.nn.Module) -> bool:
    """Whether torch.compile has made a module, or its own `compile` was called."""
    made = isinstance(module, torch._dynamo.eval_frame.OptimizedModule)
    return made or getattr(module, "_compiled_call_impl", None) is not None


def without_wrappers(path: str) -> str:
    """A path without the modules that PyTorch's activation checkpointing has put into it."""
    return ".".join(one for one in path.split(".") if one != "_checkpoint_wrapped_module")


def compiled_with(module: torch.nn.Module, backend: Callable[..., Any]) -> Mapping[str, Any] | None:
    """The options with which a module's own `compile` was called for this backend; None: it was not."""
    call = getattr(module, "_compiled_call_impl", None)
    names = getattr(getattr(call, "__code__", None), "co_freevars", ())
    inner = next((cell.cell_contents for name, cell in zip(names, getattr(call, "__closure__", None) or ())
                  if name == "callback"), None)
    while hasattr(inner, "_torchdynamo_orig_backend"):
        inner = inner._torchdynamo_orig_backend
    if getattr(inner, "compiler_fn", None) is not backend:
        return None
    return inner.kwargs.get("options", {})


def before_first_call(model: torch.nn.Module, prepare: Callable[[], bool]) -> None:
    """Call `prepare` before a call of a module whose own `compile` was called, until it says True."""
    compiled = model._compiled_call_impl

    def call(*args: Any, **kwargs: Any) -> Any:
        if prepare():
            model._compiled_call_impl = compiled
        return compiled(*args, **kwargs)

    model._compiled_call_impl = call


def is_fsdp2_module(module: torch.nn.Module) -> bool:
    """Whether `fully_shard` was called on a module."""
    return _sharding and isinstance(module, torch.distributed.fsdp.FSDPModule)


def world_size() -> int:
    """The number of ranks; 1 without torch.distributed."""
    return torch.distributed.get_world_size() if _sharding and torch.distributed.is_initialized() else 1


def is_fsdp1_module(module: torch.nn.Module) -> bool:
    """Whether the first FSDP keeps a module's parameters, in flat tensors."""
    return "FullyShardedDataParallel" in {kind.__name__ for kind in type(module).__mro__}


def is_flat(tensor: torch.Tensor | None) -> bool:
    """Whether a tensor has the values of several parameters of FSDP1."""
    return bool(getattr(tensor, "_is_flat_param", False))


def fsdp2_params() -> Iterator[tuple[Any, Any]]:
    """What FSDP2 knows of each parameter that it shards in this process, with the group of parameters
    that are gathered together."""
    states = torch.distributed._composable_state._module_state_mapping if _sharding else {}
    for reference in list(states.values()):
        state = reference()
        groups = getattr(state, "_fsdp_param_groups", None)  # PyTorch 2.11 has at most one
        if groups is None:
            groups = [one for one in [getattr(state, "_fsdp_param_group", None)] if one is not None]
        for group in groups:
            for param in group.fsdp_params:
                yield param, group


def data_parallel_groups(group: Any) -> list[Any]:
    """The process groups over which FSDP2 shards a group of parameters, then replicates it."""
    info = group.mesh_info
    names = ("shard_process_group", "replicate_process_group")
    return [one for one in (getattr(info, name, None) for name in names) if one is not None]


def tree_map_only(kind: type, function: Callable[[Any], Any], tree: Any) -> Any:
    """A tree of tuples, lists and dicts, with the function applied to its leaves of one kind."""
    return torch.utils._pytree.tree_map_only(kind, function, tree)


def shard_group(group: Any) -> Any:
    """The process group over which FSDP2 shards a group of parameters; None: it only replicates them."""
    return getattr(group.mesh_info, "shard_process_group", None)


def dtensor_like(like: Any, local: torch.Tensor) -> Any:
    """A DTensor that is distributed as another, with another local tensor."""
    made = torch.distributed.tensor.DTensor
    return made.from_local(local, like.device_mesh, like.placements, run_check=False,
                           shape=like.shape, stride=like.stride())


def groups_of_ddp() -> list[Any]:
    """The process group of the DDP module whose forward runs now; none: there is none."""
    module = torch.nn.parallel.DistributedDataParallel._get_active_ddp_module() if _sharding else None
    return [] if module is None else [module.process_group]


def ranks_of(groups: Sequence[Any]) -> list[int]:
    """The ranks of one process group, or of a mesh whose axes are these groups. In a mesh of several
    axes the ranks are those that this rank reaches by way of its groups."""
    if not groups:
        return []
    own = [torch.distributed.get_process_group_ranks(group) for group in groups]
    if len(own) == 1:
        return sorted(own[0])
    me = torch.distributed.get_rank()
    found = {0}
    for ranks in own:  # a mesh is a lattice: ranks differ along each axis by the same numbers
        found = {base + rank - me for base in found for rank in ranks}
    return sorted(me + one for one in found)


def store(prefix: str) -> Any:
    """A part of the store by which torch.distributed was set up."""
    whole = torch.distributed.distributed_c10d._get_default_store()
    return torch.distributed.PrefixStore(prefix, whole)


def wait_for(store: Any, keys: Sequence[str], seconds: float) -> bool:
    """Wait until ranks have written all of these keys into a store; -> whether they have, in time.
    RuntimeError: the store does not answer."""
    try:
        store.wait(list(keys), datetime.timedelta(seconds=seconds))
    except RuntimeError:  # DistStoreError, which older versions lack
        return store.check(list(keys))
    return True


def graph_breaks() -> Mapping[str, int]:
    """Dynamo's graph breaks so far: how often each reason came."""
    return torch._dynamo.utils.counters.get("graph_break", {})


def broken_frames() -> list[tuple[str, int, set[str]]]:
    """The functions that dynamo has compiled lately, each with its file, its line and the first lines of
    its graph breaks. A break in what it calls counts, too. Empty where dynamo keeps no such list."""
    read = getattr(torch._dynamo.utils, "get_compilation_metrics", list)
    return [
        (
            one.co_filename or "",
            one.co_firstlineno or 0,
            {
                first_line(reason)
                for reason in (one.fail_reason, *(one.restart_reasons or ()))
                if reason
            },
        )
        for one in read()
    ]


def is_fsdp(node: torch.fx.Node) -> bool:
    """Whether dynamo found a placeholder in a module that FSDP wraps, of either kind."""
    source = getattr(node.meta.get("grapharg"), "source", None)
    guard = getattr(source, "guard_source", None)
    guard = guard() if callable(guard) else guard
    return guard is not None and bool(guard.is_fsdp_module())


# What dynamo says of a jump by a tensor's value: at the jump itself, and in an inlined call.
_JUMP, _BRANCH = "generic_jump", "Data-dependent branching"


def graph_break(gm: torch.fx.GraphModule) -> tuple[str, Any] | None:
    """Why dynamo ended a graph before its function did, and the frames there; None: it did not."""
    why = getattr(gm, "compile_subgraph_reason", None)
    if why is None or not getattr(why, "graph_break", False):
        return None
    reason = first_line(why.reason)
    if reason.startswith(_JUMP):
        reason = _BRANCH
    return reason, list(why.user_stack)


def first_line(reason: Any) -> str:
    """The first line of what dynamo says, without runs of spaces."""
    return " ".join(str(reason).split("\n")[0].split())


_RESUMED = re.compile(r"torch_dynamo_resume_in_(.*)_at_(\d+)$")


def resumed_at(gm: torch.fx.GraphModule) -> tuple[str, int] | None:
    """The file and the line where dynamo had broken off, if a graph goes on after such a line."""
    frames = list(getattr(getattr(gm, "compile_subgraph_reason", None), "user_stack", None) or ())
    for frame in frames:
        found = _RESUMED.match(frame.name)
        if found:
            return frame.filename, int(found[2])
    return None


def is_disabled(function: Any) -> bool:
    """Whether dynamo is told to leave a function alone."""
    return bool(getattr(function, "_torchdynamo_disable", False))


def reads_data(node: torch.fx.Node) -> bool:
    """Whether a node is x.data, of which a trace would see the value alone."""
    return getattr(node.target, "__name__", "") == "_get_data_attr"


def is_in_place(node: torch.fx.Node) -> bool:
    """Whether a node writes its first operand."""
    target = node.target
    if is_overload(target):
        return target._schema.is_mutable
    name = target if isinstance(target, str) else getattr(target, "__name__", "")
    if getattr(target, "__module__", "") == "_operator":
        return name in (
            "setitem",
            "iadd",
            "isub",
            "imul",
            "itruediv",
            "iand",
            "ior",
            "ixor",
            "ipow",
            "ifloordiv",
            "imod",
            "imatmul",
            "ilshift",
            "irshift",
        )
    return name.endswith("_") and not name.endswith("__")


_RANDOM = frozenset(
    "rand randn randint randperm bernoulli multinomial normal rand_like randn_like randint_like "
    "uniform random exponential geometric cauchy log_normal poisson dropout dropout1d dropout2d "
    "dropout3d alpha_dropout feature_alpha_dropout gumbel_softmax empty empty_like new_empty".split()
)


def is_random(node: torch.fx.Node) -> bool:
    """Whether a node gives another value at each call, so that it is no constant."""
    if is_overload(node.target):
        return torch.Tag.nondeterministic_seeded in node.target.tags
    return target_name(node).rpartition(".")[2].rstrip("_") in _RANDOM


def graph_source(node: torch.fx.Node) -> str | None:
    """Where dynamo found a placeholder, such as "L['self']._modules['h']._parameters['w']"."""
    arg = node.meta.get("grapharg")
    source = getattr(arg, "source", None)
    if source is None:
        return node.meta.get(_SOURCE)
    name = source.name
    return name() if callable(name) else name


_SOURCE = "fp8c_source"


def keep_sources(gm: torch.fx.GraphModule) -> None:
    """Note in a graph what `graph_source` says of its placeholders, for when dynamo has forgotten it."""
    for node in gm.graph.nodes:
        source = graph_source(node) if node.op == "placeholder" else None
        if source is not None:
            node.meta[_SOURCE] = source


_ROOT = re.compile(r"^[LG]\['([^']*)'\](?:(?<=L\['args'\])\[0\])?")  # args[0]: of a wrapped method
_PART = re.compile(r"\['([^']*)'\]|\[(-?\d+)\]|\.?([^.\[\]]+)")
_HOLDERS = ("_modules", "_parameters", "_buffers", "__dict__")  # they hold what is named next
_HELD = re.compile(r"\._(modules|parameters|buffers)\[|\.__dict__\[")
_TENSOR = re.compile(r"\._(parameters|buffers)\['[^']*'\]$")


def _dotted(source: str) -> str:
    """A path of dynamo's, after its root, as named_modules() writes it: `[0]` becomes `.0`."""
    parts = [next(filter(None, found)) for found in _PART.findall(source) if any(found)]
    return ".".join(part for part in parts if part not in _HOLDERS)


def parse_source(source: str) -> tuple[str, str, str] | None:
    """The root, the kind ("parameters" or "buffers") and the dotted path of a source, or None. The
    root is a variable, "L['self']", or what stands before the first module."""
    tensor = _TENSOR.search(source)
    if tensor is None:
        return None
    variable = _ROOT.match(source)
    end = variable.end() if variable else _HELD.search(source).start()
    return source[:end], tensor[1], _dotted(source[end:])


def tell_roots_apart(gm: torch.fx.GraphModule) -> bool:
    """Whether paths of a graph's parameters begin with the names of variables. They do where a
    function calls several modules, and one path would stand for two tensors. Then the graph's paths of
    modules are rewritten to begin so, too."""
    placeholders = [n for n in gm.graph.nodes if n.op == "placeholder"]
    sources = {source for n in placeholders if (source := graph_source(n)) is not None}
    paths = [parsed[2] for source in sources if (parsed := parse_source(source)) is not None]
    if len(set(paths)) == len(paths):
        return False
    for node in gm.graph.nodes:
        stack = node.meta.get("nn_module_stack", {})
        node.meta["nn_module_stack"] = {
            k: (_rooted(path), kind) for k, (path, kind) in stack.items()
        }
    return True


def _rooted(path: str) -> str:
    root = _ROOT.match(path)
    return ".".join(filter(None, (root[1], _dotted(path[root.end() :])))) if root else path


def rooted_path(parsed: tuple[str, str, str]) -> str:
    """A path of `parse_source` that begins with the name of its root."""
    variable = _ROOT.match(parsed[0])
    return f"{variable[1] if variable else _dotted(parsed[0])}.{parsed[2]}"


def fake_value(node: torch.fx.Node) -> Any:
    """What dynamo (or make_fx) recorded as a node's value: fake tensors with shape and dtype."""
    meta = node.meta
    return meta["val"] if "val" in meta else meta.get("example_value")


def memory_of(node: torch.fx.Node) -> frozenset[int]:
    """Marks of the memory that a node's value lies in: views have those of what they look at. A
    tensor within vmap has none that it tells."""
    found, queue = set(), [fake_value(node)]
    while queue:
        one = queue.pop()
        if isinstance(one, (tuple, list)):
            queue.extend(one)
        elif isinstance(one, torch.Tensor):
            try:
                found.add(one.untyped_storage()._cdata)
            except NotImplementedError:
                continue
    return frozenset(found)


def is_tensor_call(node: torch.fx.Node) -> bool:
    """Whether a node computes a tensor, and not a size or the state of vmap."""
    fake = fake_value(node)
    return isinstance(fake, torch.Tensor) or (
        isinstance(fake, (tuple, list)) and any(isinstance(f, torch.Tensor) for f in fake)
    )


def trace(
    function: Callable[..., Any],
    fakes: Sequence[Any],
    definitions: Mapping[Any, Callable[..., Any]],
) -> torch.fx.GraphModule:
    """The ATen graph of a function before autograd, autocast and decompositions. definitions: functions
    that are traced in place of an op, by overload.

    `fakes` are what dynamo recorded. They may belong to several fake modes, so each is made anew
    under one mode, with the same sizes: converting them would make sizes of parameters symbolic.
    """
    shapes = next(
        (
            f.fake_mode.shape_env
            for f in fakes
            if isinstance(f, FakeTensor) and f.fake_mode.shape_env is not None
        ),
        None,
    )
    with FakeTensorMode(shape_env=shapes, allow_non_fake_inputs=True) as mode:
        anew = [_same(fake) if isinstance(fake, torch.Tensor) else fake for fake in fakes]
    # The hooks of a checkpoint that recomputes now count what is saved, and end the recomputation.
    unhooked = torch.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: t)
    with torch.fx.traceback.preserve_node_meta(), mode, no_autocast(), unhooked:
        return make_fx(function, dict(definitions), pre_dispatch=True, tracing_mode="real")(*anew)


def _same(fake: torch.Tensor) -> torch.Tensor:
    made = torch.empty_strided(fake.shape, fake.stride(), dtype=fake.dtype, device=fake.device)
    return made.requires_grad_(fake.requires_grad)


def module_stack(node: torch.fx.Node) -> list[tuple[str, type]]:
    """The modules around a node, outermost first: the dotted path from the root, and the class."""
    found = []
    for path, kind in node.meta.get("nn_module_stack", {}).values():
        root = _ROOT.match(path)
        found.append((_dotted(path[root.end() :]) if root else path, kind))
    return found


def compile_with(
    function: Callable[..., Any], backend: Callable[..., Any], dynamic: bool | None
) -> Callable[..., Any]:
    """A function or module under dynamo with a backend of ours; a graph break is an error.

    It is called by a function whose code is new each time: dynamo keeps what it compiled by code,
    so this neither meets nor disturbs what the caller has compiled. Floats of the model's
    configuration stay numbers where sizes are dynamic.
    """

    def model_call(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    fresh = types.FunctionType(
        model_call.__code__.replace(),
        model_call.__globals__,
        "model_call",
        None,
        model_call.__closure__,
    )
    compiled = torch._dynamo.optimize(backend, nopython=True, dynamic=dynamic)(fresh)

    def call(*args: Any, **kwargs: Any) -> Any:
        with torch._dynamo.config.patch(specialize_float=True):
            return compiled(*args, **kwargs)

    return call


def with_dynamic_axes(arguments: Any) -> Any:
    """The arguments, with aliases of their tensors whose axes dynamo takes as dynamic.

    A tensor that is given twice stays one.
    """
    made: dict[int, torch.Tensor] = {}

    def one(item: Any) -> Any:
        if not isinstance(item, torch.Tensor):
            return item
        if id(item) in made:
            return made[id(item)]
        made[id(item)] = alias = item.detach().requires_grad_(item.requires_grad)
        for axis in range(alias.dim()):
            torch._dynamo.maybe_mark_dynamic(alias, axis)
        return alias

    return torch.utils._pytree.tree_map(one, arguments)


def expression(size: Any) -> Any:
    """A size as an int, or as the sympy expression of a symbolic size."""
    if isinstance(size, torch.SymInt):
        expr = size.node.expr
        return int(expr) if expr.is_Integer else expr
    return int(size)


def guarded_float(value: Any) -> float | None:
    """The number that a symbolic float has, after which dynamo guards it; None: it is none."""
    return value.node.guard_float("", 0) if isinstance(value, torch.SymFloat) else None


def symbols(size: Any) -> dict[str, int]:
    """The symbols of a size, with their values in the example."""
    if not isinstance(size, torch.SymInt):
        return {}
    shapes = size.node.shape_env
    values = getattr(shapes, "backed_var_to_val", None) or shapes.var_to_val
    return {str(symbol): int(values[symbol]) for symbol in size.node.expr.free_symbols}
