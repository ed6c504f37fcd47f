"""GEMMs of PyTorch, on the problems and with the records of `fp8c tune`, to lay one beside the other.

usage: python bench/torch_gemm.py (--suite NAME | --gemm-file FILE | --gemm SPEC)... [--json FILE]
           [--processes 5] [--runs 7] [--cache cold,warm] [--inputs normal|uniform|integers|zeros]
           [--threads N] [--device cpu|cuda] [--time SECONDS] [--decoded]

    fp8c tune --suite gpt2-124m --json fp8c.jsonl
    python bench/torch_gemm.py --suite gpt2-124m --json torch.jsonl
    fp8c tune --diff fp8c.jsonl --diff torch.jsonl

What is called: torch.mm; torch.addmm with a bias or an old sum (added to in place); for FP8
torch._scaled_mm, which is PyTorch's own and may change. PyTorch's settings are its defaults, so f32
is not TF32, and bf16 on CUDA may be reduced in bf16. What PyTorch refuses, or has no call for, is
"lacking" with its reason. --decoded also times torch.mm on FP8 operands that were decoded into bf16
and f32 (bf16 ones into f32) beforehand.

Operands lie as the layout says. On CUDA those of FP8 have k contiguous whatever it says, but on
compute capability 10: fp8c lays them so, too. A tensor-scaled FP8 fprop accumulates fast on CUDA, as
in fp8c. Nothing is copied, transposed or scaled in a timed run, and results go to memory that is there.

A run is one call from Python, with what PyTorch does around its GEMM: a microsecond or two of a CPU. On
CUDA the time is between two events behind a kernel that waits, so that the call is not in it.
Cold: runs take copies of operands and result in turn, together over 64 MiB (at most 4,096 copies). Warm:
an untimed run of the same copy precedes each run. Every process makes one untimed run first. Processes
are fresh ones, one after another. The error is that of the untimed run of the first process, in units of
the bound that torch_gemm_operands.py states (error_of).
"""

from __future__ import annotations

import argparse
import gc
import json
import math
import os
import re
import subprocess
import sys
import time
from functools import partial
from typing import Any, Callable, Iterator

import torch
import torch_gemm_machine as machine
import torch_gemm_operands as operands
from torch_gemm_problems import FORMATS, Problem, Wrong, gather

COLD_BYTES, MOST_COPIES, REASON = 64 << 20, 4096, 240
CACHES = ("cold", "warm")

Call = Callable[[], Any]

# ---- a way of a problem ----


class Way:
    """A call of PyTorch on operands of one format; dtype None: those of the problem, else decoded."""

    def __init__(self, p: Problem, dtype: torch.dtype | None) -> None:
        adds = p.epilogue in ("bias", "accumulate")
        called = "torch.addmm" if adds else "torch.mm"
        self.dtype = dtype
        if dtype:
            word = {torch.bfloat16: "bf16", torch.float32: "f32"}[dtype]
            self.candidate, self.operands = f"{called} {word}", f"{word}, decoded"
        else:
            self.candidate = "torch._scaled_mm" if p.fp8 else called
            self.operands = f"{p.a} x {p.b}"


def ways_of(p: Problem, decoded: bool) -> list[Way]:
    into = [torch.bfloat16] * p.fp8 + [torch.float32] * (p.a != "f32") if decoded else []
    return [Way(p, dtype) for dtype in (None, *into)]


def call_of(
    p: Problem,
    a: torch.Tensor,
    b: torch.Tensor,
    c: torch.Tensor,
    bias: torch.Tensor | None,
    scales: tuple[torch.Tensor, ...],
) -> Call:
    """The call, c being its result and, if the epilogue accumulates, the old sum."""
    if scales:
        if p.epilogue == "accumulate":
            raise RuntimeError("torch._scaled_mm has no operand to add its product to")
        fast = a.is_cuda and p.scaling == "tensor" and p.role == "fprop"
        return partial(
            torch._scaled_mm, a, b, *scales, bias=bias, out_dtype=c.dtype, use_fast_accum=fast, out=c
        )
    wide = {} if c.dtype == a.dtype else {"out_dtype": c.dtype}
    if p.epilogue == "accumulate":
        return partial(torch.addmm, c, a, b, **wide, out=c)
    if bias is not None:
        return partial(torch.addmm, bias, a, b, **wide, out=c)
    return partial(torch.mm, a, b, **wide, out=c)


class Ready:
    """A way with all copies of its operands on the device."""

    def __init__(self, p: Problem, way: Way, inputs: str, device: str) -> None:
        check_memory(p, way, device)
        turned = [p.layout[0] == "t", p.layout[1] == "n"]
        if p.fp8 and device == "cuda" and torch.cuda.get_device_capability()[0] != 10:
            turned = [False, False]
        self.a, self.b = (operands.make(p, inputs, i == 1, turned[i]) for i in range(2))
        scales: list[torch.Tensor] = []
        if way.dtype:
            self.a, self.b = (operands.decoded(x, way.dtype) for x in (self.a, self.b))
        elif p.fp8:
            scales = [operands.scale_for_torch(x, p) for x in (self.a, self.b)]
        dtype = torch.bfloat16 if p.epilogue in ("bf16", "bias") else torch.float32
        self.bias = operands.draw(inputs, "bias", p.n).bfloat16() if p.epilogue == "bias" else None
        self.old = operands.draw(inputs, "old", p.m, p.n) if p.epilogue == "accumulate" else None
        c = self.old if self.old is not None else torch.zeros(p.m, p.n, dtype=dtype)
        self.calls: list[Call] = []
        for i in range(copies_of(p, way)):
            x, y, z, bias, *s = (
                t if t is None else t.to(device, copy=True)
                for t in (self.a.data, self.b.data, c, self.bias, *scales)
            )
            if s and p.scaling != "mx":
                s[1] = s[1].t() if s[1].dim() else s[1]
            self.calls.append(call_of(p, x, y.t(), z, bias, tuple(s)))
            self.result = z if i == 0 else self.result

    def error(self) -> float:
        return operands.error_of(self.a, self.b, self.result.cpu(), self.bias, self.old)


def bytes_of(p: Problem, way: Way) -> float:
    more = way.dtype.itemsize - FORMATS[p.a] if way.dtype else 0
    return p.bytes + more * p.k * (p.m + p.n)


def copies_of(p: Problem, way: Way) -> int:
    return min(MOST_COPIES, int(COLD_BYTES / (bytes_of(p, way) + 1)) + 1)


def check_memory(p: Problem, way: Way, device: str) -> None:
    """Refuse what this machine has no memory for. While operands are drawn, one lies in f32 as well, up
    to three times."""
    need = bytes_of(p, way) * (1 + (copies_of(p, way) if device == "cpu" else 0))
    need += 12.0 * p.k * max(p.m, p.n)
    have = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    if need > have:
        gib = 1 << 30
        raise RuntimeError(
            f"{need / gib:.1f} GiB are needed for operands and result; this machine has {have / gib:.1f} GiB "
            "of memory"
        )


# ---- timing, in a process of its own ----


def clock_of(device: str) -> Callable[[Call], float]:
    def on_cpu(call: Call) -> float:
        start = time.perf_counter()
        call()
        return time.perf_counter() - start

    def on_cuda(call: Call) -> float:
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda._sleep(500_000)  # some 300 us, in which the CPU gets ahead
        begin.record()
        call()
        end.record()
        end.synchronize()
        return 1e-3 * begin.elapsed_time(end)

    return on_cuda if device == "cuda" else on_cpu


def time_way(ready: Ready, caches: list[str], runs: int, device: str, deadline: float) -> dict[str, Any]:
    """Seconds by the state of the cache, in turns; no run begins after the deadline."""
    clock, seconds, at = clock_of(device), {cache: [] for cache in caches}, 0
    for _ in range(runs):
        for cache in caches:
            if time.monotonic() >= deadline:
                return seconds
            at += 1
            call = ready.calls[at % len(ready.calls)]
            if cache == "warm":
                call()
            seconds[cache].append(clock(call))
    return seconds


def measure(p: Problem, way: Way, args: argparse.Namespace) -> dict[str, Any]:
    """What came of a way: seconds by cache, or the reason why there are none."""
    if time.monotonic() >= args.deadline:
        return {"seconds": {cache: [] for cache in args.cache}}
    try:
        ready = Ready(p, way, args.inputs, args.device)
        ready.calls[0]()
        error = ready.error() if args.error else None
    except (RuntimeError, TypeError, ValueError, MemoryError) as e:
        return {"reason": reason_of(e), "seconds": {cache: [] for cache in args.cache}}
    if error is not None and not math.isfinite(error):
        error = sys.float_info.max
    return {"error": error, "seconds": time_way(ready, args.cache, args.runs, args.device, args.deadline)}


def reason_of(e: BaseException) -> str:
    """PyTorch's reason in one line, without the assertion before it and what is in C++ behind it."""
    text = " ".join((str(e).strip() or type(e).__name__).split())
    text = re.sub(r" Exception raised from .*", "", text)
    text = re.sub(r"^.*please report a bug to PyTorch\. ", "", text)
    text = re.sub(r" This could be because .*", "", text)
    if "dtype_out'" in text:  # the name of a call's form says little
        text = f"a result of another dtype than the operands: {text}"
    return text if len(text) <= REASON else text[: REASON - 3] + "..."


def worker(args: argparse.Namespace) -> None:
    """Measure the problems that stdin names, and write a line for each way to stdout."""
    gc.disable()  # else it may run within a timed run
    print(json.dumps({"process": machine.begin(args.device)}), flush=True)
    for i, p in enumerate(Problem(**x) for x in json.load(sys.stdin)):
        for j, way in enumerate(ways_of(p, args.decoded)):
            print(json.dumps({"at": [i, j], **measure(p, way, args)}), flush=True)
    print(json.dumps({"end": machine.clocks(args.device)}), flush=True)


# ---- processes, and what they found ----


def run_process(args: argparse.Namespace, problems: list[Problem], number: int, deadline: float) -> list[Any]:
    """The lines of a fresh process."""
    command = [sys.executable, __file__, "--worker", str(deadline), "--runs", str(args.runs)]
    command += ["--cache", ",".join(args.cache), "--inputs", args.inputs, "--device", args.device]
    command += ["--threads", str(args.threads)] * bool(args.threads) + ["--decoded"] * args.decoded
    command += ["--error"] * (number == 0)
    given = json.dumps([p.__dict__ for p in problems])
    done = subprocess.run(command, input=given, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        raise Wrong(
            f"process {number + 1} of {args.processes} ended with status {done.returncode}; nothing is saved"
        )
    return [json.loads(line) for line in done.stdout.splitlines()]


def quantile(ordered: list[float], q: float) -> float:
    """Between neighbours in proportion (type 7 of Hyndman, Fan 1996), as fp8c has it."""
    at = q * (len(ordered) - 1)
    low = int(at)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (at - low) * (ordered[high] - ordered[low])


def record(p: Problem, way: Way, cache: str, command: str, results: list[Any]) -> dict[str, Any]:
    """A `timing`; results: of each process its id and its line of this way."""
    taken = [(i, line["seconds"][cache]) for i, line in results if line["seconds"][cache]]
    ordered = sorted(x for _, seconds in taken for x in seconds)
    reason = next((line["reason"] for _, line in results if "reason" in line), "")
    quartiles = [quantile(ordered, q) for q in (0.25, 0.5, 0.75)] if ordered else [None] * 3
    return {
        "event": "timing",
        "problem": p.text,
        "name": p.name,
        "m": p.m,
        "n": p.n,
        "k": p.k,
        "count": p.count,
        "a": p.a,
        "b": p.b,
        "scaling": p.scaling if p.fp8 else "none",
        "role": p.role,
        "epilogue": p.epilogue,
        "layout": p.layout,
        "flops": p.flops,
        "bytes": p.bytes,
        "intensity": p.flops / p.bytes,
        "cache": cache,
        "candidate": way.candidate,
        "operands": way.operands,
        "kind": "peer",
        "state": "timed" if ordered else "lacking" if reason else "out of time",
        "reason": "" if ordered else reason,
        "unit": "",
        "chosen": False,
        "same_bits": None,
        "error": next((line["error"] for _, line in results if line.get("error") is not None), None),
        "compile_seconds": None,
        "runs": len(ordered),
        "median": quartiles[1],
        "quartile_1": quartiles[0],
        "quartile_3": quartiles[2],
        "least": ordered[0] if ordered else None,
        "rate": p.flops / quartiles[1] if ordered else None,
        "limit": None,
        "share": None,
        "processes": [{"process": i, "seconds": seconds} for i, seconds in taken],
        "command": command,
    }


def measure_all(args: argparse.Namespace, problems: list[Problem]) -> Iterator[dict[str, Any]]:
    """All records. Each process has an equal part of the time that is left."""
    head, lines = machine.about(args.device, args.inputs), []
    end = time.monotonic() + args.time if args.time else math.inf
    for number in range(args.processes):
        now = time.monotonic()
        lines.append(run_process(args, problems, number, now + (end - now) / (args.processes - number)))
    yield head
    for own in lines:
        yield {"event": "process", **own[0]["process"], **own[-1]}
    found = [(own[0]["process"]["id"], {tuple(x["at"]): x for x in own[1:-1]}) for own in lines]
    for i, p in enumerate(problems):
        ways = ways_of(p, args.decoded)
        for cache in args.cache:
            for j, way in enumerate(ways):
                results = [(process, by_way[i, j]) for process, by_way in found]
                yield record(p, way, cache, head["command"], results)


# ---- the report ----


def show(r: dict[str, Any]) -> None:
    line = f"{r['problem']:<44} {r['cache']:<4} {r['candidate']:<18} "
    if r["state"] == "timed":
        ms = [f"{1e3 * r[key]:9.4f}" for key in ("median", "quartile_1", "quartile_3")]
        error = f"{r['error']:.2g}" if r["error"] is not None else "-"
        line += f"{' '.join(ms)} {1e-9 * r['rate']:8.1f} {r['runs']:4d} {error:>6}"
    else:
        line += r["state"] + (f": {r['reason']}" if r["reason"] else "")
    print(line + (f"  ({r['name']})" if r["name"] else ""))


def report(records: list[dict[str, Any]]) -> None:
    head = records[0]
    print(f"{head['device']}; {head['libraries']}; inputs {head['inputs']}")
    loads = [(r["load"], r["cpus"]) for r in records if r["event"] == "process"]
    over = sum(load > cpus for load, cpus in loads)
    if over:
        text = f"{over} of {len(loads)} processes began under a load above the number of CPUs"
        print(f"warning: {text}", file=sys.stderr)
    columns = ("median ms", "quartile", "quartile", "GFLOP/s", "runs", "error")
    print(f"{'GEMM':<44} {'':<4} {'':<18} " + "{:>9} {:>9} {:>9} {:>8} {:>4} {:>6}".format(*columns))
    for r in records:
        if r["event"] == "timing":
            show(r)


def check_writable(path: str | None) -> None:
    """Measuring takes long, so what can't be written is said before."""
    folder = os.path.dirname(path or "") or "."
    if path and (os.path.isdir(path) or not os.access(folder, os.W_OK)):
        raise Wrong(f"{path}: this can't be written")


def write(path: str, records: list[dict[str, Any]]) -> None:
    text = "".join(json.dumps(r, ensure_ascii=False, allow_nan=False) + "\n" for r in records)
    if path == "-":
        sys.stdout.write(text)
        return
    whole = f"{path}.{os.getpid()}.new"
    with open(whole, "w", encoding="utf-8") as f:
        f.write(text)
    os.replace(whole, path)


def at_least_one(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"'{text}' is not a whole number from 1")
    return int(text)


def positive(text: str) -> float:
    try:
        if float(text) > 0:
            return float(text)
    except ValueError:
        pass
    raise argparse.ArgumentTypeError(f"'{text}' is not a number above 0")


def caches(text: str) -> list[str]:
    words = text.split(",")
    if not set(words) <= set(CACHES) or len(set(words)) < len(words):
        raise argparse.ArgumentTypeError(f"'{text}' is not cold, warm, or both with a comma between them")
    return words


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="GEMMs of PyTorch, with the records of `fp8c tune`.")
    parser.add_argument("--gemm", action="append", default=[], metavar="MxNxK:FORMAT[:HOW ...]")
    parser.add_argument("--gemm-file", action="append", default=[], metavar="FILE")
    parser.add_argument("--suite", action="append", default=[], metavar="NAME")
    parser.add_argument("--processes", type=at_least_one, default=5)
    parser.add_argument("--runs", type=at_least_one, default=7)
    parser.add_argument("--cache", type=caches, default=["cold"])
    parser.add_argument("--inputs", choices=operands.INPUTS, default="normal")
    parser.add_argument("--threads", type=at_least_one)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--time", type=positive, metavar="SECONDS", help="start no run after these")
    parser.add_argument("--decoded", action="store_true", help="also multiply decoded operands")
    parser.add_argument("--json", metavar="FILE", help="-: stdout, instead of the table")
    parser.add_argument("--worker", type=float, dest="deadline", help=argparse.SUPPRESS)
    parser.add_argument("--error", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args()


def main() -> int:
    args = options()
    if args.threads:
        torch.set_num_threads(args.threads)
    try:
        if args.deadline is not None:
            worker(args)
            return 0
        if args.device == "cuda" and not torch.cuda.is_available():
            raise Wrong("PyTorch finds no CUDA device")
        problems = gather(args.gemm, args.gemm_file, args.suite)
        if not problems:
            raise Wrong("no GEMM: --suite NAME, --gemm-file FILE or --gemm MxNxK:FORMAT is needed")
        check_writable(args.json)
        records = list(measure_all(args, problems))
    except Wrong as e:
        print(f"error: {e}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        if args.deadline is None:
            print("interrupted; nothing is saved", file=sys.stderr)
        return 130
    if args.json != "-":
        report(records)
    if args.json:
        write(args.json, records)
    return 0 if any(r.get("state") != "lacking" for r in records if r["event"] == "timing") else 1


if __name__ == "__main__":
    sys.exit(main())
