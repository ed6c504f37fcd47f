"""A program with its parameters: bound in place, its calls, and what its forwards save.

Nothing is copied. Parameters are bound where PyTorch has them. Inputs of a call are PyTorch's
tensors, given by their addresses. (On a GPU one at an address that kernels can't load vectors from is
copied.) A result or a gradient is a new tensor that autograd takes over. On a GPU PyTorch allocates it,
and keeps the memory of deleted tensors for new ones. On the CPU PyTorch's allocator gives that memory
back to the system, which would have to map and clear hundreds of megabytes at each step. So there fp8c
lends the memory (fp8c.Lender), and lends it again once PyTorch has deleted the tensor.
"""

from __future__ import annotations

import threading
import weakref
from collections import deque
from contextlib import contextmanager
from typing import Any, Iterator, Mapping, Sequence

import torch

import fp8c
from fp8c.records import Statistic
from fp8c.tensors import View, Views

from ..graph.dims import Dims, Sizes
from ..graph.plan import Stage
from ..log import say_once
from ..places import Unsupported
from ..ranks import amaxes, gathered, sharded
from ..settings import Settings
from . import scales
from .arenas import arena_of
from .device import CPU_KIND, device_of

_TORCH = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16, "i32": torch.int32,
          "i64": torch.int64, "bool": torch.bool}
_NAMES = {dtype: name for name, dtype in _TORCH.items()}
_NAMES |= {torch.float8_e4m3fn: "f8e4m3", torch.float8_e8m0fnu: "f8e8m0"}  # of weights that are stored so
OPERANDS = "*.x,*.w,*.dy,*.x.*,*.w.*,*.dy.*"  # what is watched
VECTOR = 16  # bytes: the alignment of what kernels of a GPU read
_address = torch.Tensor.data_ptr
_NEEDS_NO_CUDNN = "; compiled with attention 'own', it needs no cuDNN"


class Lease:
    """A handle for one forward, until its backward has run or the graph is gone."""

    __slots__ = ("bound", "saved", "seed", "watch", "figures", "versions", "steps", "lost", "__weakref__")

    def __init__(self, bound: "Bound", saved: fp8c.Saved, seed: int | None,
                 watch: int | None):
        self.bound, self.saved, self.seed, self.watch = bound, saved, seed, watch
        self.figures: list[Statistic] = []  # of the forward, if it was watched
        self.versions: list[int] = []
        self.steps = 0  # of the optimizer, before the forward
        self.lost = ""

    def check(self) -> None:
        """RuntimeError: the backward can't run any more."""
        if self.saved is None:
            raise RuntimeError("fp8c: backward ran a second time through one forward. fp8c keeps what a "
                               "forward saved until its backward alone; call the model again")
        for name, now, then in zip(self.bound.names, self.bound.now(), self.versions):
            if now != then:
                self.lost = f"parameter {name}"
                break
        if self.steps != self.bound.scales.steps:
            self.lost = self.lost or "a parameter"
        self.lost = self.lost or self.bound.resized()
        if self.lost:
            raise RuntimeError(f"fp8c: {self.lost} was modified between a forward and its backward; "
                               "call the model again before backward")

    def __del__(self) -> None:
        # The collector may call this anywhere, also while the program is in use: only note it.
        if self.saved is not None:
            self.bound.returned.append(self.saved)


class Bound:
    """A program of one stage for one set of parameters. Without cotangents it only evaluates."""

    def __init__(self, stage: Stage, settings: Settings, params: list[torch.Tensor],
                 cotangents: list[str], pair: bool, dims: Dims, limits: Sizes):
        self.stage, self.settings, self.params, self.cotangents = stage, settings, params, cotangents
        self.limits = dict(limits)
        self.names = [p.path for p in stage.params]
        self.shards = [sharded.shard_of(p) for p in params]
        self.gathered = any(self.shards)
        self.groups = amaxes.groups_of(params, self.shards)  # that exchange amaxes
        self._placed = 0  # how many runs need the gathered parameters now
        self.place = device_of(params)
        self.device = self.place.device
        self._stream: int | None = None  # of the program
        self.own_attention = ""  # why fp8c's kernels compute attention, and not cuDNN
        self.lock = threading.RLock()
        self.free: list[fp8c.Saved] = []
        self.returned: deque[fp8c.Saved] = deque()  # of graphs that are gone
        self.waiting: weakref.WeakSet[Lease] = weakref.WeakSet()
        self._decisions: list[Any] | None = None
        self._views: dict[tuple, _Ports] = {}
        self.pair = pair  # else it has `eval` alone
        self._lenders: dict[str, fp8c.Lender] = {}
        self.figures: list[Statistic] = []  # of the last call that was watched
        self.watched: int | None = None  # the number of that call
        self.watched_at = 0  # when that was: scales.tick
        with self.place.current():
            self.program = self._compile(dims.text, dims.bounds(limits))
            gathered.check(self)
            self.follow_stream()
            self.watches = self.program.has("forward.stats")
            self.program.initialize(0)
            self.addresses = [0] * len(params)
            self._bound: dict[int, torch.Tensor] = {}  # by index: the parameters as they are bound
            self._storages: tuple[list[torch.Tensor], list[int], list[str]] = [], [], []  # see resized
            self._param_views = Views([self.view(p.detach()) for p in params] if self.gathered else [])
            self._variables = [self.program.variable(p.name).index for p in self.stage.params]
            self.bind()
            self.scales = scales.Scales(self)

    def _compile(self, text: str, bounds: Mapping[str, int]) -> fp8c.Program:
        module = fp8c.Module.parse(text, dims=bounds)
        for rule in self.settings.rules_of(self.stage.linears):
            module.rule(rule)
        options: dict[str, Any] = {"recipe": self.settings.recipe, "external": ",".join(self._external()),
                                   "arena": arena_of(self.place)}
        options |= self.place.options(self.settings.cpu_threads)
        if self.stage.stored:
            options["stored_weights"] = self.stage.stored
        if not self.pair:
            return self._compiled(module, options | {"inference": True})
        if self.stage.stored:
            options["frozen"] = ",".join(self.stage.stored)
        if self.cotangents:
            options["cotangents"] = ",".join(self.cotangents)
            if self.stage.gradients_of:
                options["gradients_of"] = ",".join(self.stage.gradients_of)
            if self.stage.frozen:
                options["frozen"] = ",".join(self.stage.frozen)
        if self.settings.statistics and self.cotangents and self.stage.linears:
            options["stats"] = OPERANDS
        if self.settings.memory:
            options["memory_share"] = self.settings.memory
        return self._compiled(module, options | {"pair": True})

    def _compiled(self, module: fp8c.Module, options: dict[str, Any]) -> fp8c.Program:
        """A program. Where the table chose cuDNN for an attention, and the one that is here can't compute
        it, fp8c's kernels do."""
        try:
            return module.compile(**options, attention=self.settings.attention)
        except (fp8c.LibraryError, fp8c.UnsupportedError) as error:
            if self.settings.attention != "table" or _NEEDS_NO_CUDNN not in str(error):
                raise
            self.own_attention = str(error).replace(_NEEDS_NO_CUDNN, "")
            say_once(f"fp8c's own kernels compute attention: {self.own_attention}")
        return module.compile(**options, attention="own")

    def _external(self) -> list[str]:
        """What has no memory of the program's own. In tensors of PyTorch's are all ports, and parameters
        with their gradients; in handles is what a forward saves."""
        saved = ["saved.*"] if self.pair and self.cotangents else []
        return [p.name for p in self.stage.params + self.stage.inputs + self.stage.results] + saved

    def decisions(self) -> list[Any]:
        """What was decided for each GEMM; it does not change."""
        if self._decisions is None:
            self._decisions = self.program.decisions()
        return self._decisions

    # ---- parameters ----

    def now(self) -> list[int]:
        """The versions of the parameters."""
        if not self.gathered:
            return [p._version for p in self.params]
        return [p._version if s is None else s.version() for p, s in zip(self.params, self.shards)]

    def bind(self) -> bool:
        """Bind each parameter where it lies now; -> whether one has moved. Those that FSDP gathers move
        from call to call: `placed` binds them, and those beside them."""
        if self.gathered:
            addresses = [p.data_ptr() if s is None else 0 for p, s in zip(self.params, self.shards)]
            moved = addresses != self.addresses
            if moved:
                self.settle("a parameter")
                self.addresses = addresses
            return moved
        addresses = list(map(_address, self.params))  # also `p.data = ...` and a resized storage move one
        if addresses == self.addresses:
            return False
        self.settle("a parameter")
        if any(self.addresses):  # a tensor of an earlier call may have been where one lies now
            for function in self.program.functions:
                self.program.release(function)
        for i, param in enumerate(self.params):
            if addresses[i] != self.addresses[i]:
                self._bind(i, param)
                self.addresses[i] = addresses[i]
        first = {kept.untyped_storage().data_ptr(): i for i, kept in self._bound.items()}.values()
        self._storages = ([self._bound[i] for i in first], [self.addresses[i] for i in first],
                          [self.names[i] for i in first])
        return True

    def _bind(self, index: int, param: torch.Tensor) -> None:
        where = f"parameter {self.names[index]}"
        if not param.is_contiguous():
            raise Unsupported(where, "it is not contiguous; write p.data = p.data.contiguous()")
        if param.device != self.device:
            raise Unsupported(where, f"it has moved to {param.device}")
        if not sharded.is_gathered(param):
            raise Unsupported(where, "its storage was freed")
        kept = param.detach()  # has the same storage, also when `p.data` is another tensor
        try:
            self.program.bind_variable(self.stage.params[index].name, self.view(kept))
        except fp8c.InputError as error:  # such as two parameters that overlap
            advice = "; clone one of them" if "overlaps" in str(error) else ""
            raise Unsupported(where, f"{error}{advice}") from error
        self._bound[index] = kept

    def resized(self) -> str:
        """The parameter whose storage has got other memory since it was bound, so that a backward would
        read freed memory; "": there is none. One tensor of each storage is looked at. After `p.data = ...`
        the program keeps the old tensor, which the forward has read."""
        tensors, addresses, names = self._storages
        now = list(map(_address, tensors))
        if now == addresses:
            return ""
        return "the storage of parameter " + next(n for n, a, b in zip(names, now, addresses) if a != b)

    @contextmanager
    def placed(self) -> Iterator[None]:
        """While a function runs: the program's device is the current one, the function is enqueued on
        the stream that PyTorch uses there now, and parameters that FSDP has gathered are where they lie
        now. Afterwards they lie nowhere, because FSDP frees their memory. For their codes there is the
        arena that programs share."""
        with self.place.current():
            self.follow_stream()
            if not self.gathered:
                yield
                return
            if not self._placed:
                for name, param, view in zip(self.names, self.params, self._param_views.views):
                    if not sharded.is_gathered(param):
                        raise RuntimeError(f"fp8c: parameter {name} is not gathered now: call the model as "
                                           "fully_shard made it, not a part of it")
                    view.c.data = param.data_ptr()
                self.program.move_variables(self._variables, self._param_views)
            self._placed += 1
            try:
                yield
            finally:
                self._placed -= 1
                if not self._placed:
                    self.program.move_variables(self._variables, None)

    def can_run(self) -> bool:
        """Whether the parameters are there now."""
        return not self.gathered or all(map(sharded.is_gathered, self.params))

    def view(self, tensor: torch.Tensor) -> View:
        kind = CPU_KIND if tensor.device.type == "cpu" else self.place.kind
        return View(tensor.data_ptr(), _NAMES[tensor.dtype], tensor.shape, kind, tensor)

    # ---- handles ----

    def lease(self, seed: int | None, watch: int | None = None) -> Lease:
        """A free handle. watch: the number of its call, if that is watched."""
        with self.lock:
            self.reclaim()
            saved = self.free.pop() if self.free else self.program.saved()
            return Lease(self, saved, seed, watch if self.watches else None)

    def reclaim(self) -> None:
        """Take back the handles of graphs that are gone."""
        while self.returned:
            saved = self.returned.popleft()
            saved.drop()
            self.free.append(saved)

    def settle(self, why: str) -> None:
        """End all forwards that wait: parameters or scales change now. Their backward says why."""
        self.reclaim()
        for lease in list(self.waiting):
            if lease.saved is not None:
                lease.saved.drop()
                lease.lost = lease.lost or why
        self.waiting.clear()

    # ---- calls ----

    def _ports(self, inputs: Sequence[torch.Tensor]) -> "_Ports":
        key = tuple(t.shape for t in inputs) if self.stage.bounds else ()
        found = self._views.get(key)
        if found is None:
            found = self._views[key] = _Ports(self, inputs)
        return found

    def reread(self, inputs: Sequence[torch.Tensor]) -> set[str]:
        """The names of the inputs that a backward reads again. They are of a forward of these inputs."""
        return set(self._ports(inputs).reread)

    def follow_stream(self) -> None:
        """Enqueue what follows on the stream that PyTorch uses now. If that is another one than before,
        it waits for what the program has enqueued there; the host does not."""
        stream = self.place.stream()
        if stream != self._stream:
            self.program.set_stream(stream)
            self._stream = stream

    def forward(self, lease: Lease, inputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """The results; what the backward needs is in the lease's handle."""
        with self.lock, self.placed():
            versions = self.scales.refresh()
            ports = self._ports(inputs)
            given = self._given(inputs, lease.seed)
            given = self._give_inputs(ports.forward_in, given, ports.forward_names)
            results = self._new("forward", ports.forward_out)
            self.program.forward(lease.saved, ports.forward_in, ports.forward_out,
                                 first=self.scales.first, stats=lease.watch is not None)
            del given  # until now a copy was needed
            lease.figures = self._figures_of(lease)
            lease.versions, lease.steps = versions, self.scales.steps
            self.waiting.add(lease)
            return results

    def backward(self, lease: Lease, inputs: Sequence[torch.Tensor],
                 cotangents: Mapping[str, torch.Tensor | None]) -> dict[str, torch.Tensor]:
        """The gradients, by the names of backward's results. The lease is over."""
        with self.lock, self.placed():
            lease.check()
            ports = self._ports(inputs)
            given = [_like(port, cotangents[port.name]) for port in ports.results
                     if port.name in self.cotangents]
            by_name = dict(zip((p.name for p in self.stage.inputs), inputs))
            if self.stage.seed:
                by_name["seed"] = _seed_tensor(lease.seed)
            given += [by_name[name] for name in ports.reread]
            given = self._give_inputs(ports.backward_in, given, ports.backward_names)
            gradients = self._new("backward", ports.backward_out)
            self.program.backward(lease.saved, ports.backward_in, ports.backward_out)
            del given
            if lease.watch is not None:
                self.figures, self.watched = lease.figures + self._figures_of(lease), lease.watch
                self.watched_at = scales.tick()
            self.free.append(lease.saved)
            lease.saved = None
            self.waiting.discard(lease)
            self.scales.backward_ran()
            return dict(zip(ports.gradients, gradients, strict=True))

    def _figures_of(self, lease: Lease) -> list[Statistic]:
        """What the function that has just run saw, if its call is watched."""
        if lease.watch is None:
            return []
        function = lease.saved.function
        self.program.wait()
        return [s for s in self.program.statistics(function) if s.operand in ("x", "w", "dy")]

    def evaluate(self, inputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """The results of `eval`, with nothing kept."""
        with self.lock, self.placed():
            self.scales.refresh()
            ports = self._ports(inputs)
            given = self._give_inputs(ports.forward_in, inputs, ports.forward_names)
            results = self._new("forward", ports.forward_out)
            self.program.call("eval", ports.forward_in, ports.forward_out)
            del given
            return results

    def forward_alone(self, inputs: Sequence[torch.Tensor], seed: int | None) -> list[torch.Tensor]:
        """A forward that no backward follows."""
        lease = self.lease(seed)
        return self.forward(lease, inputs)

    # ---- tensors of a call ----

    def _new(self, side: str, views: Views) -> list[torch.Tensor]:
        """New tensors for the results of "forward" or "backward"; `views` get their addresses."""
        whole = self.gathered and side == "backward"  # FSDP frees gradients once it has reduced them
        if self.place.on_gpu or whole:
            made = [torch.empty(v.shape, dtype=_TORCH[v.dtype], device=self.device) for v in views.views]
            _give(views, made)
            return made
        if side not in self._lenders:
            self._lenders[side] = fp8c.Lender(len(views))
        return self._lenders[side].lend(views, torch.from_dlpack)

    def release_memory(self) -> None:
        """Free memory of results and gradients that PyTorch has deleted."""
        with self.lock:
            for lender in self._lenders.values():
                lender.trim()

    def _given(self, inputs: Sequence[torch.Tensor], seed: int | None) -> list[torch.Tensor]:
        return [*inputs, _seed_tensor(seed)] if self.stage.seed else list(inputs)

    def _give_inputs(self, views: Views, tensors: Sequence[torch.Tensor],
                     names: Sequence[str]) -> Sequence[torch.Tensor]:
        """Put the addresses of a call's inputs into their views. -> The tensors, with copies of those
        that a GPU can't read where they lie, as a slice of another may: they live until the call is
        enqueued. A seed lies on the host, at any address."""
        addresses = list(map(_address, tensors))
        if self.place.on_gpu and any(at % VECTOR for at in addresses):
            tensors = list(tensors)
            for i, at in enumerate(addresses):
                if at % VECTOR and views[i].device == self.place.kind:
                    say_once(f"{names[i]} lies at an address that is no multiple of {VECTOR} bytes, as a "
                             "slice may: it is copied before each call")
                    tensors[i] = tensors[i].clone()
                    addresses[i] = tensors[i].data_ptr()
        for view, at in zip(views.views, addresses, strict=True):
            view.c.data = at
        return tensors


class _Ports:
    """The views of a program's ports for one set of shapes; a call only changes their addresses."""

    def __init__(self, bound: Bound, inputs: Sequence[torch.Tensor]):
        stage, program, device = bound.stage, bound.program, bound.device

        def views(ports: Sequence[Any]) -> Views:
            return Views([View(0, p.type.dtype, p.type.shape, CPU_KIND if is_seed(p) else bound.place.kind)
                          for p in ports])

        def is_seed(port: Any) -> bool:
            return stage.seed and port.name == "seed"

        forward = "forward" if bound.pair else "eval"
        if stage.bounds:
            seed = torch.zeros((), dtype=torch.int32, device=device) if stage.seed else None
            program.fit(forward, [bound.view(t) for t in bound._given(inputs, seed)])
        given = program.inputs(forward)
        self.forward_in, self.forward_names = views(given), [f"input {p.name!r}" for p in given]
        out = [p for p in program.outputs(forward) if not p.name.startswith("saved.")]
        self.forward_out = views(out)
        types = {p.name: p.type for p in out}
        self.results = [_Result(p.name, types[p.name].shape, p.torch_dtype, device)
                        for p in stage.results]
        if bound.cotangents:
            own = [p for p in program.inputs("backward") if not p.name.startswith("saved.")]
            self.backward_in = views(own)
            self.reread = [p.name for p in own[len(bound.cotangents):]]
            self.backward_names = [f"the gradient of result {p.name!r}" for p in self.results
                                   if p.name in bound.cotangents]
            self.backward_names += [f"input {name!r}" for name in self.reread]
            outs = program.outputs("backward")
            self.backward_out = views(outs)
            self.gradients = [p.name for p in outs]


class _Result:
    """A result of forward, which may have a cotangent."""

    def __init__(self, name: str, shape: Sequence[int], dtype: torch.dtype, device: torch.device):
        self.name, self.shape, self.dtype, self.device = name, tuple(shape), dtype, device


def _give(views: Views, tensors: Sequence[torch.Tensor]) -> None:
    """Put the addresses of tensors into their views."""
    for view, at in zip(views.views, map(_address, tensors), strict=True):
        view.c.data = at


def _like(port: _Result, cotangent: torch.Tensor | None) -> torch.Tensor:
    """A cotangent as backward takes it; one that is not there is zeros."""
    if cotangent is None:
        return torch.zeros(port.shape, dtype=port.dtype, device=port.device)
    return cotangent.to(port.dtype).contiguous()


def _seed_tensor(seed: int | None) -> torch.Tensor:
    """Of every device's program on the host: fp8c reads a number while it is called, and sends it along
    without a copy (runtime/cuda/README.md)."""
    return torch.tensor(seed, dtype=torch.int32)
