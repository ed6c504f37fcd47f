"""What fp8c tells of programs, modules and machines, as tuples with names. The fields are those of
the structs of fp8c.h, which says what they mean; texts are str, and a missing text is None."""
from __future__ import annotations

import ctypes
from typing import Any, Callable, Iterator, NamedTuple

from . import _header as h
from ._figures import CStatistic, Statistic
from .tensors import DTYPES


class Type(NamedTuple):
    """dtype: "f32", "bf16", ... shape: the sizes; () is a scalar."""
    dtype: str
    shape: tuple[int, ...]

    def __str__(self) -> str:
        return f"{self.dtype}[{', '.join(map(str, self.shape))}]"


class Port(NamedTuple):
    name: str
    type: Type
    variable: int  # >= 0: the port reads or replaces this variable; -1: the caller gives a tensor


class Variable(NamedTuple):
    index: int  # type: ignore[assignment]
    name: str
    type: Type
    is_param: bool
    rows: int


class ProgramDim(NamedTuple):
    name: str
    value: int
    bound: int


class Info(NamedTuple):
    compile_seconds: float
    planned_bytes: int
    peak_bytes: int
    arena_bytes: int
    arena_lower_bound: int
    linears: int
    fp8_gemms_planned: int
    gemms_executed: int
    fp8_gemms_executed: int
    kernels_executed: int
    distinct_kernels: int
    code_bytes: int
    kernels_cached: int
    threads: int
    held_bytes: int
    tuning_table: str | None


class ModuleInfo(NamedTuple):
    name: str
    parameters: int
    elements: int
    accumulate: int
    optimizer_steps: int
    needs_steps: int


class TrainingStep(NamedTuple):
    step: int
    steps: int
    loss: float
    grad_norm: float
    lr: float
    heldout_loss: float
    seconds: float
    skipped: int
    alarms: int


class TrainingResult(NamedTuple):
    begun_at: int
    done: int
    skipped: int
    final_loss: float
    heldout_loss: float
    items_per_second: float
    fp8_gemms: int


class Decision(NamedTuple):
    linear: str
    role: str
    format_a: str
    format_b: str
    scaling: str
    reason: str
    m: int
    n: int
    k: int
    count: int  # type: ignore[assignment]
    fp8: int


class Collective(NamedTuple):
    op: str
    ranks: int
    bytes: int
    dtype: str
    wait: int
    beside: int
    goes_on: int
    queued: float
    waited: float


class Step(NamedTuple):
    name: str
    kind: str
    phases: int
    hash: int
    bytes_read: int
    bytes_written: int
    seconds: float
    algorithm: str | None
    collective: Collective | None  # None: the step is another
    work: str  # as kind, but a kernel is rows, attention or copy
    flops: float
    estimated: float  # seconds of a run; 0: not known
    gap: float


class Peak(NamedTuple):
    step: str
    position: int
    positions: int
    arena_bytes: int
    alive_bytes: int
    activation_bytes: int
    seconds: float


class Memory(NamedTuple):
    category: str
    bytes: int
    in_arena: int


class TensorUse(NamedTuple):
    name: str
    category: str
    type: Type
    bytes: int
    made: str
    read: str
    first: int
    last: int


class Remat(NamedTuple):
    arena_before: int
    arena_budget: int
    arena_after: int
    activations_before: int
    activations_after: int
    recomputed: int
    fp8_gemms: int
    seconds: float
    extra_seconds: float
    rounds: int
    planned_bytes: int


class Pass(NamedTuple):
    name: str
    seconds: float
    nodes: int


class Choice(NamedTuple):
    problem: str
    candidate: str
    gemm: int
    count: int  # type: ignore[assignment]
    tuned: int


class Stored(NamedTuple):
    variable: int
    scale_variable: int
    recipe: str
    kept: str | None


class Witnessed(NamedTuple):
    function: int
    step: int
    kind: str
    name: str
    value: str
    hash: int
    verdict: int  # fp8c.Verdict
    wrong: int
    at: int
    got: float
    want: float
    allowed: float
    nonfinite: int
    nonfinite_at: int
    nonfinite_input: str | None
    nonfinite_op: str | None


class Device(NamedTuple):
    name: str
    compute_capability: int
    driver: int
    multiprocessors: int
    memory: int
    memory_free: int


class Position(NamedTuple):
    step: int
    seed: int
    batch: int


class Carried(NamedTuple):
    carried: int
    missing: int
    left: int


class LoadItem(NamedTuple):
    fate: h.LoadFate
    error: int
    variable: str | None
    tensor: str | None
    file: str | None
    detail: str | None


class Converted(NamedTuple):
    """fate: "kept", "spread", "requantized", "merged" or "dequantized". sqnr, added: dB; NaN: there is none."""
    weight: str
    fate: str
    granularity: str
    why: str | None
    sqnr: float
    added: float


class CacheInfo(NamedTuple):
    folder: str | None
    why_not: str | None
    read_only: int
    hits: int
    misses: int
    stored: int
    bytes: int
    entries: int
    tuning: str | None


class Progress(NamedTuple):
    phase: str
    item: str
    done: int
    total: int
    seconds_left: float


class Trial(NamedTuple):
    linear: str
    role: str
    m: int
    n: int
    k: int
    winner: int
    reason: str
    fixed: int


class Candidate(NamedTuple):
    recipe: str
    excluded: str | None
    error: float
    sqnr: tuple[float, float]
    underflow: tuple[float, float]
    overflow: tuple[float, float]
    seconds: float
    gemm_seconds: float
    bytes: float


class Component(NamedTuple):
    name: str
    kind: str
    state: h.ComponentState
    version: str | None
    major: int
    path: str | None
    problem: str | None
    note: str | None
    enables: str
    places: str
    get: str


class Fact(NamedTuple):
    group: str
    name: str
    value: str
    advice: str | None


class TargetReport(NamedTuple):
    name: str
    # what "cuda" stands for; `is` is a word of Python's
    is_: str | None
    can_compile: int
    can_run: int
    compile_missing: str | None
    run_missing: str | None


# The struct of each of them whose fields all have its fields' names and order.
STRUCTS: dict[type, type] = {
    ProgramDim: h.ProgramDim, TrainingStep: h.TrainingStep, TrainingResult: h.TrainingResult,
    Info: h.Info, Decision: h.Decision, Step: h.Step, Collective: h.Collective, Peak: h.Peak,
    Memory: h.Memory, TensorUse: h.Tensor, Remat: h.Remat, Pass: h.Pass, Choice: h.Choice,
    Stored: h.Stored, Statistic: CStatistic, Device: h.Device, Position: h.Position,
    Carried: h.Carried, LoadItem: h.LoadItem, CacheInfo: h.CacheInfo, Progress: h.Progress,
    Trial: h.Trial, Candidate: h.Candidate, Component: h.Component, Fact: h.Fact,
    TargetReport: h.TargetReport, Port: h.Port, ModuleInfo: h.ModuleInfo}


def plain(value: Any) -> Any:
    """A field of a struct as Python has it."""
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if isinstance(value, h.Type):
        return Type(DTYPES[value.dtype].name, tuple(value.dim[:value.rank]))
    if isinstance(value, h.texts):
        return tuple(text.decode() for text in iter(iter(value).__next__, None))
    if isinstance(value, h.Collective):
        if not value.op:
            return None
        return record(Collective, value)._replace(dtype=DTYPES[value.dtype].name)
    if isinstance(value, ctypes.Array):
        return tuple(value)
    return value


def record(cls: Any, struct: ctypes.Structure) -> Any:
    """The tuple of a struct."""
    names = (n for n, *_ in struct._fields_ if n != "struct_size")
    return cls(*(plain(getattr(struct, n)) for n in names))


def each(cls: Any, ask: Callable[..., int], *before: Any) -> Iterator[Any]:
    """What a call that "ends a loop" gives: ask(*before, index, struct) from index 0 on."""
    index = 0
    while True:
        struct = STRUCTS[cls]()
        if ask(*before, index, ctypes.byref(struct)):
            return
        yield record(cls, struct)
        index += 1
