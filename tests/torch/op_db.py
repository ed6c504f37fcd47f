"""PyTorch's own database of ops through the backend, op by op, beside eager.

    python op_db.py [--every N] [--ops PATTERN] [--samples N] [--json FILE] [-v]

The database is what PyTorch tests its own ops with; it needs the packages expecttest and numpy. Each sample
is a call of an op in float32 on the CPU, under `torch.compile` with recipe f32, and a backward with a random
cotangent where a result has a gradient. It gets one outcome:

    whole     one stage or more, and PyTorch runs no op
    part      one stage or more, but PyTorch runs an op
    prologue  no stage: no float input and no gradient is involved, so PyTorch computes it first
    none      dynamo gave no graph
    eager     no stage: PyTorch runs the ops
    wrong     a value, a gradient, a shape or a dtype is not eager's
    error     it raises an error, and eager does not
    left out  eager raises an error, or dynamo goes wrong with PyTorch's backend "eager", too

A float is right within the tolerance that torch.testing has for its dtype. Else eager itself may be off:
then the value is right where its distance from float64's is within that tolerance, or within twice the
largest distance of eager's tensor. NaN equals NaN; an infinity equals itself.

An op that draws random numbers, by PyTorch's tag of it, and one whose result is memory that nobody wrote,
have other values at each call: of these, marked `random`, shapes and dtypes alone are compared.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import dataclasses
import faulthandler
import fnmatch
import gc
import json
import logging
import random
import sys
import time
import warnings
from typing import Any, Callable, Iterator, Sequence
from unittest import mock

import numpy
import torch
from torch.testing._internal import common_methods_invocations as database
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

import fp8c.torch
from fp8c.torch import backend

OUTCOMES = ("whole", "part", "prologue", "none", "eager", "wrong", "error", "left out")
BAD = ("wrong", "error")
SEED, MOST, SLOW = 0, 10, 20.0  # SLOW: seconds of an op that the summary names
TOLERANCES = {  # torch.testing's, relative and absolute
    torch.float32: (1.3e-6, 1e-5),
    torch.float64: (1e-7, 1e-7),
    torch.float16: (1e-3, 1e-5),
    torch.bfloat16: (1.6e-2, 1e-5),
}
DOUBLE = {torch.float32: torch.float64, torch.complex64: torch.complex128}
UNWRITTEN = {"empty", "empty_like", "empty_permuted", "empty_strided", "new_empty", "new_empty_strided"}


@dataclasses.dataclass
class Record:
    """What became of a sample. number: its place in the op's list. note: what is wrong, or why it is left
    out. ops: what PyTorch runs, with the reasons."""

    op: str
    number: int
    outcome: str = "error"
    note: str = ""
    ops: list[str] = dataclasses.field(default_factory=list)
    random: bool = False


@dataclasses.dataclass
class Ran:
    """What a call gave. inputs: the tensors that it was given, after it. wants: which results have a
    gradient. gradients: of the inputs that want one; None: autograd found no way to it."""

    results: list[Any]
    wants: list[bool]
    gradients: list[torch.Tensor | None]
    inputs: list[torch.Tensor]


# ---- ops and samples ----


def name_of(op: Any) -> str:
    return op.name + (f".{op.variant_test_name}" if op.variant_test_name else "")


def ops(pattern: str = "*", every: int = 1) -> list[Any]:
    """Every N-th op of those that have float32 on the CPU and match, in the order of names."""
    found = [op for op in database.op_db if torch.float32 in op.supported_dtypes("cpu")]
    return sorted((op for op in found if fnmatch.fnmatch(name_of(op), pattern)), key=name_of)[::every]


def samples(op: Any, most: int = MOST) -> list[tuple[int, Any]]:
    """At most so many samples of an op with their numbers, drawn from its list, which has the combinations
    of its options in turn. They are the same each time, whatever ran before."""
    seed()
    grad = op.supports_autograd and torch.float32 in op.supported_backward_dtypes("cpu")
    found = list(op.sample_inputs("cpu", torch.float32, requires_grad=grad))
    numbers = random.Random(SEED).sample(range(len(found)), min(most, len(found)))
    return [(number, found[number]) for number in sorted(numbers)]


def seed() -> None:
    torch.manual_seed(SEED)
    numpy.random.seed(SEED)
    random.seed(SEED)


def values_of(sample: Any, double: bool = False) -> Any:
    """A copy of a sample's arguments. Tensors keep their strides, and share memory where they did.

    double: in float64, also what is asked for by dtype.
    """
    storages: dict[int, torch.UntypedStorage] = {}
    made: dict[int, torch.Tensor] = {}

    def copied(value: Any) -> Any:
        if isinstance(value, torch.dtype):
            return DOUBLE.get(value, value) if double else value
        if not isinstance(value, torch.Tensor):
            return value
        if id(value) not in made:
            made[id(value)] = _copied(value.detach(), storages, double).requires_grad_(value.requires_grad)
        return made[id(value)]

    return pytree.tree_map(copied, (sample.input, sample.args, sample.kwargs))


def _copied(value: torch.Tensor, storages: dict[int, torch.UntypedStorage], double: bool) -> torch.Tensor:
    if double and value.dtype in DOUBLE:
        return value.to(DOUBLE[value.dtype])
    plain = value.layout is torch.strided and type(value) is torch.Tensor
    if not plain or value.is_conj() or value.is_neg():
        return value.clone()
    storage = value.untyped_storage()
    own = storages.setdefault(storage.data_ptr(), storage.clone())
    return torch.empty(0, dtype=value.dtype).set_(own, value.storage_offset(), value.shape, value.stride())


# ---- a call, and what it ran ----


def run(function: Callable[..., Any], sample: Any, double: bool = False) -> Ran:
    """A call and its backward."""
    given = values_of(sample, double)
    tensors = list({id(t): t for t in pytree.tree_leaves(given) if isinstance(t, torch.Tensor)}.values())
    seed()
    value, args, kwargs = given
    results = pytree.tree_leaves(sample.output_process_fn_grad(function(value, *args, **kwargs)))
    results = [dense(r) if isinstance(r, torch.Tensor) else r for r in results]
    wants = [isinstance(r, torch.Tensor) and r.requires_grad for r in results]
    leaves = [t for t in tensors if t.requires_grad]
    gradients: list[torch.Tensor | None] = []
    if leaves and any(wants):
        pairs = [(r, cotangent(r, i)) for i, (r, want) in enumerate(zip(results, wants)) if want]
        gradients = list(
            torch.autograd.grad([r for r, _ in pairs], leaves, [c for _, c in pairs], allow_unused=True)
        )
    results = [r.detach() if isinstance(r, torch.Tensor) else r for r in results]
    gradients = [None if g is None else dense(g) for g in gradients]
    return Ran(results, wants, gradients, [dense(t.detach()) for t in tensors])


def dense(tensor: torch.Tensor) -> torch.Tensor:
    return tensor if tensor.layout is torch.strided else tensor.to_dense()


def cotangent(result: torch.Tensor, number: int) -> torch.Tensor:
    """A random cotangent, the same for a result of float64."""
    generator = torch.Generator().manual_seed(number)
    dtype = torch.complex64 if result.is_complex() else torch.float32
    return torch.randn(result.shape, dtype=dtype, generator=generator).to(result.dtype)


def unseeded(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """In place of the database's `wrapper_set_seed`, at which dynamo would break off."""
    return function(*args, **kwargs)


class Draws(TorchDispatchMode):
    """Sees whether a call draws random numbers."""

    found = False

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.found |= torch.Tag.nondeterministic_seeded in function.tags
        return function(*args, **(kwargs or {}))


def draws(op: Any, sample: Any) -> bool:
    value, args, kwargs = values_of(sample)
    seed()
    with Draws() as seen:
        op.get_op()(value, *args, **kwargs)
    return seen.found or op.name in UNWRITTEN


def compiled(op: Any, with_backend: Any) -> Callable[..., Any]:
    """The op as torch.compile makes it."""
    function = op.get_op()

    def call(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    options = {"recipe": "f32"} if callable(with_backend) else None
    return torch.compile(call, backend=with_backend, options=options, fullgraph=False, dynamic=False)


class Watch:
    """The backend, which remembers the graphs that it made and that were called."""

    def __init__(self) -> None:
        self.graphs = 0
        self.called: dict[int, list[backend.Compiled]] = {}  # its records, pieces too

    def __call__(self, gm: Any, examples: Sequence[Any], **options: Any) -> Callable[..., Any]:
        before = backend.known()
        made = fp8c.torch.fp8c_backend(gm, examples, **options)
        own = [one for one in backend.known() if all(one is not other for other in before)]
        number, self.graphs = self.graphs, self.graphs + 1

        def call(*args: Any) -> Any:
            self.called[number] = own
            return made(*args)

        return call

    def outcome(self) -> tuple[str, list[str]]:
        """-> the outcome of a call that went well, and what PyTorch ran of it."""
        if not self.called:
            return "none", breaks()
        records = [one for own in self.called.values() for one in own]
        stages = sum(len(one.plan.stages) for one in records if one.plan is not None)
        ran = [f"{op.op}: {first_line(op.reason)}" for one in records for op in eager_ops(one)]
        # a graph in pieces has a reason too, but its pieces are what ran
        ran += [
            f"the graph: {first_line(str(one.whole))}" for one in records if one.whole is not None
        ]
        ran += breaks()
        if stages:
            return ("part" if ran else "whole"), ran
        return ("eager" if ran else "prologue"), ran


def eager_ops(one: backend.Compiled) -> list[Any]:
    return one.apart + (one.plan.eager_ops if one.plan is not None else [])


def breaks() -> list[str]:
    """Why dynamo broke off: PyTorch runs what stands there."""
    return [f"a graph break: {first_line(why)}" for why in torch._dynamo.utils.counters["graph_break"]]


# ---- beside eager ----


def difference(got: Ran, want: Ran, exact: Callable[[], Ran | None], drawn: bool) -> str:
    """What is not eager's; empty: nothing. exact: gives float64's. drawn: compare no values."""
    if len(got.results) != len(want.results):
        return f"{len(got.results)} results, eager has {len(want.results)}"
    for i, (mine, other) in enumerate(zip(got.results, want.results)):
        found = _difference(mine, other, lambda: exact().results[i], drawn)
        if not found and got.wants[i] != want.wants[i]:
            found = f"requires_grad is {got.wants[i]}, eager's is {want.wants[i]}"
        if found:
            return f"result {i}: {found}"
    for i, (mine, other) in enumerate(zip(got.inputs, want.inputs)):
        if found := _difference(mine, other, lambda: exact().inputs[i], drawn):
            return f"tensor {i} of the arguments, afterwards: {found}"
    for i, (mine, other) in enumerate(zip(got.gradients, want.gradients)):
        if mine is None and other is None:
            continue
        mine = torch.zeros_like(other) if mine is None else mine  # zeros and no gradient are the same
        other = torch.zeros_like(mine) if other is None else other
        if found := _difference(mine, other, lambda: exact().gradients[i], drawn):
            return f"gradient {i}: {found}"
    return ""


def _difference(got: Any, want: Any, exact: Callable[[], Any], drawn: bool) -> str:
    if not (isinstance(got, torch.Tensor) and isinstance(want, torch.Tensor)):
        same = type(got) is type(want) and (drawn or got == want or got != got and want != want)
        return "" if same else f"{got!r}, eager has {want!r}"
    for what in ("shape", "dtype"):
        if getattr(got, what) != getattr(want, what):
            return f"its {what} is {getattr(got, what)}, eager's is {getattr(want, what)}"
    if drawn or not got.numel():
        return ""
    off = ~_close(got, want, want.dtype)
    if off.any() and (want.is_floating_point() or want.is_complex()):
        try:
            true = exact()
        except Exception:  # not all is there in float64: the tolerance alone decides
            true = None
        if isinstance(true, torch.Tensor) and true.shape == want.shape:
            distance = (_parts(want) - _parts(true)).abs()
            most = distance[distance.isfinite()].max() if distance.isfinite().any() else torch.zeros(())
            off &= ~(_close(got, true, want.dtype) | ((_parts(got) - _parts(true)).abs() <= 2 * most))
    if not off.any():
        return ""
    mine, other = _parts(got)[off], _parts(want)[off]
    worst = int((mine - other).abs().double().nan_to_num(float("inf"), float("inf")).argmax())
    a, b = mine[worst].item(), other[worst].item()
    return f"{int(off.sum())} of {off.numel()} numbers are not eager's, as {a:.7g} for {b:.7g}"


def _parts(tensor: torch.Tensor) -> torch.Tensor:
    """The numbers: in double if they are floats, those of complex ones in pairs."""
    tensor = tensor.resolve_conj().resolve_neg()
    if tensor.is_complex():
        return torch.view_as_real(tensor).double()
    return tensor.double() if tensor.is_floating_point() else tensor.long()


def _close(got: torch.Tensor, want: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    a, b = _parts(got), _parts(want)
    same = (a == b) | (a.isnan() & b.isnan())
    if not a.is_floating_point():
        return same
    real = {torch.complex64: torch.float32, torch.complex128: torch.float64}.get(dtype, dtype)
    relative, absolute = TOLERANCES.get(real, (0.0, 0.0))
    return same | (b.isfinite() & ((a - b).abs() <= absolute + relative * b.abs()))


# ---- outcomes ----


def first_line(message: Any) -> str:
    return next((line.strip() for line in str(message).splitlines() if line.strip()), "")


def told(error: BaseException) -> str:
    """An error in a line; of one that dynamo wraps, the one within."""
    inner = getattr(error, "inner_exception", None) or error.__cause__
    text = f"{type(error).__name__}: {first_line(error)}"
    within = "" if inner is None or inner is error else f" [{type(inner).__name__}: {first_line(inner)}]"
    return text + within


def check(op: Any, number: int, sample: Any) -> Record:
    """The outcome of one sample."""
    record = Record(name_of(op), number)
    try:
        want = run(op.get_op(), sample)
        record.random = draws(op, sample)
    except Exception as error:
        record.outcome, record.note = "left out", f"eager: {told(error)}"
        return record
    doubled: list[Ran] = []

    def exact() -> Ran:
        if not doubled:
            doubled.append(run(op.get_op(), sample, double=True))
        return doubled[0]

    watch = Watch()
    try:
        got = run(compiled(op, watch), sample)
        record.note = difference(got, want, exact, record.random)
        record.outcome, record.ops = watch.outcome()
        if record.note:
            record.outcome = "wrong"
    except Exception as error:
        record.outcome, record.note = "error", told(error)
    if record.outcome in BAD and (found := dynamos(op, sample, want, exact, record.random)):
        record.outcome, record.note = "left out", f"dynamo: {found}"
    return record


def dynamos(op: Any, sample: Any, want: Ran, exact: Callable[[], Ran], drawn: bool) -> str:
    """What goes wrong without fp8c, too; empty: nothing."""
    try:
        return difference(run(compiled(op, "eager"), sample), want, exact, drawn)
    except Exception as error:
        return told(error)


def check_op(op: Any, most: int = MOST) -> list[Record]:
    """The outcomes of an op's samples."""
    try:
        with mock.patch.object(database, "wrapper_set_seed", unseeded):
            try:
                chosen = samples(op, most)
            except Exception as error:  # the database's own
                return [Record(name_of(op), 0, "left out", f"its samples: {told(error)}")]
            return [check(op, number, sample) for number, sample in chosen]
    finally:
        torch._dynamo.reset()  # the programs of its graphs end with these
        gc.collect()


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """No warnings of PyTorch, and no log of the backend: the records have what it says."""
    loggers = [logging.getLogger(name) for name in ("fp8c.torch", "torch._dynamo", "torch.fx")]
    levels = [one.level for one in loggers]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for one in loggers:
            one.setLevel(logging.CRITICAL)
        try:
            yield
        finally:
            for one, level in zip(loggers, levels):
                one.setLevel(level)


def counts(records: Sequence[Record]) -> dict[str, int]:
    """How many samples have each outcome."""
    found = collections.Counter(one.outcome for one in records)
    return {outcome: found[outcome] for outcome in OUTCOMES}


# ---- the command ----


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="PyTorch's database of ops through fp8c, beside eager.")
    parser.add_argument("--every", type=int, default=1, metavar="N", help="every N-th op, by name")
    parser.add_argument("--ops", default="*", metavar="PATTERN", help="names of ops, with * and ?")
    parser.add_argument("--samples", type=int, default=MOST, metavar="N", help=f"of an op at most ({MOST})")
    parser.add_argument("--json", metavar="FILE", help="a line of JSON for each op")
    parser.add_argument("-v", action="store_true", dest="verbose", help="each op on stderr, before it runs")
    return parser.parse_args()


def main() -> int:
    """Run the ops and print the outcomes. -> 1: one is wrong, or an error."""
    faulthandler.enable()
    options = arguments()
    chosen = ops(options.ops, options.every)
    records: list[Record] = []
    slow: list[tuple[float, str]] = []
    with contextlib.ExitStack() as stack:
        stack.enter_context(quiet())
        file = stack.enter_context(open(options.json, "w")) if options.json else None
        for number, op in enumerate(chosen, 1):
            if options.verbose:
                print(name_of(op), file=sys.stderr, flush=True)
            elif sys.stderr.isatty():
                print(f"\r\033[K{number}/{len(chosen)} {name_of(op)}", end="", file=sys.stderr, flush=True)
            began = time.monotonic()
            own = check_op(op, options.samples)
            seconds = time.monotonic() - began
            if seconds > SLOW:
                slow.append((seconds, name_of(op)))
            records += own
            if file is not None:
                line = {
                    "op": name_of(op),
                    "seconds": round(seconds, 2),
                    "samples": [dataclasses.asdict(one) for one in own],
                }
                print(json.dumps(line), file=file, flush=True)
    if not options.verbose and sys.stderr.isatty():
        print("\r\033[K", end="", file=sys.stderr)
    show(len(chosen), records, slow)
    return int(any(one.outcome in BAD for one in records))


def show(count: int, records: Sequence[Record], slow: Sequence[tuple[float, str]]) -> None:
    drawn = sum(one.random for one in records)
    print(f"{len(records)} samples of {count} ops; {drawn} are random: only shapes and dtypes are compared")
    for outcome, number in counts(records).items():
        print(f"{outcome:9} {number:6}")
    for one in records:
        if one.outcome in BAD:
            print(f"{one.outcome}: {one.op} sample {one.number}: {one.note}")
    for seconds, name in sorted(slow, reverse=True):
        print(f"slow: {name}: {seconds:.0f} s")


if __name__ == "__main__":
    sys.exit(main())
