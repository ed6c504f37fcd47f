"""A table of the classes of zoo.py under the backend: what is compiled, and how exact gradients are.

    python tests/torch/zoo_table.py [--only PATTERN] [--jobs N] [--json FILE] [--update]

PYTHONPATH has frontend/python and tests/torch, and FP8C_LIBRARY is build/libfp8c.so, as in `run`.
Each class runs in a process of its own, so a crash costs one class. --only: the rows whose name has
the pattern, which may have wildcards. --json: writes the figures, too. --update: writes ZOO.md.

The figures of a row:

    stages, graphs   programs of fp8c, and graphs that dynamo made of the model
    linears          by kind, under recipe `current`: `fp8c.torch.report(model).counts()`
    between          ops that PyTorch runs between stages, and pieces it runs as they are
    error            ||g - g64|| / ||g64|| of all gradients under recipe `f32`, eager's, their ratio
    cosine           of the gradients under `current` with float64's, and of those of torchao's
                     tensorwise float8 (emulated, in eager mode)
"""

from __future__ import annotations

import argparse
import contextlib
import fnmatch
import functools
import json
import math
import os
import re
import signal
import subprocess
import sys
import textwrap
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from importlib import metadata
from statistics import median
from typing import Any, Callable, Iterable, Iterator

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.overrides import TorchFunctionMode

import fp8c.torch
import zoo
from fp8c.torch.linears import is_linear
from fp8c.torch.report import FP8, MIXED, OUT, graphs_of
from numerics import loss_of

Gradients = dict[str, torch.Tensor]
SECONDS = 900  # that a class may take
HERE = os.path.dirname(os.path.abspath(__file__))


# ---- gradients ----


class _Double(TorchFunctionMode):
    """Within it f32 is float64: models ask for f32 in their norms, softmaxes and rotations."""

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        def wide(one: Any) -> Any:
            return torch.float64 if one is torch.float32 else one

        if function is torch.Tensor.float:
            function = torch.Tensor.double
        return function(*map(wide, args), **{k: wide(v) for k, v in (kwargs or {}).items()})


@contextlib.contextmanager
def _in_float64() -> Iterator[None]:
    torch.set_default_dtype(torch.float64)
    try:
        with _Double():
            yield
    finally:
        torch.set_default_dtype(torch.float32)


def _backward(model: torch.nn.Module, call: Any, inputs: dict[str, Any]) -> Gradients:
    """The gradients of all trained parameters; zeros where there is none."""
    loss_of(call(**inputs)).backward()
    trained = {n: p for n, p in model.named_parameters() if p.requires_grad}
    return {n: torch.zeros_like(p) if p.grad is None else p.grad.detach().clone() for n, p in trained.items()}


@functools.cache
def exact(name: str) -> Gradients:
    """Gradients in float64, also where the model's code asks for f32."""
    model, inputs = zoo.make(name)
    model.double()
    inputs = {
        k: v.double() if isinstance(v, torch.Tensor) and v.is_floating_point() else v
        for k, v in inputs.items()
    }
    with _in_float64(), sdpa_kernel(SDPBackend.MATH):
        found = _backward(model, model, inputs)
    if any(g.dtype != torch.float64 for g in found.values()):
        raise AssertionError(f"{name}: gradients in float64 are not")
    return found


def eager(name: str) -> Gradients:
    model, inputs = zoo.make(name)
    with sdpa_kernel(SDPBackend.MATH):
        return _backward(model, model, inputs)


def compiled(name: str, recipe: str) -> tuple[Gradients, torch.nn.Module]:
    """Gradients under a recipe, and the model, for its report. The caller holds it: the graphs live as
    long as dynamo has them, until the next call of this."""
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()  # of graph breaks
    model, inputs = zoo.make(name)
    call = torch.compile(model, backend=fp8c.torch.fp8c_backend, options={"recipe": recipe})
    return _backward(model, call, inputs), model


def error(own: Gradients, real: Gradients) -> float:
    """||own - real|| / ||real||, over all of them."""
    a, b = _whole(own), _whole(real)
    return float((a - b).norm() / b.norm())


def cosine(own: Gradients, real: Gradients) -> float:
    return float(torch.nn.functional.cosine_similarity(_whole(own), _whole(real), dim=0))


def _whole(gradients: Gradients) -> torch.Tensor:
    return torch.cat([gradients[name].double().flatten() for name in sorted(gradients)])


# ---- torchao ----


def torchao_gradients(name: str) -> tuple[Gradients, int]:
    """Gradients with torchao's tensorwise float8, and how many linears it converts."""
    from torchao.float8 import Float8LinearConfig, convert_to_float8_training

    model, inputs = zoo.make(name)
    turned = _plain_linears(model)
    convert_to_float8_training(model, config=Float8LinearConfig(emulate=True))
    count = sum(type(module).__name__ == "Float8Linear" for module in model.modules())
    with sdpa_kernel(SDPBackend.MATH):
        found = _backward(model, model, inputs)
    return {n: g.t() if n in turned else g for n, g in found.items()}, count


def _plain_linears(model: torch.nn.Module) -> set[str]:
    """Make Hugging Face's Conv1D, which torchao does not know, nn.Linear. -> the weights, which are
    transposed by that."""
    turned = set()
    for path, module in list(model.named_modules()):
        if is_linear(module) and not isinstance(module, torch.nn.Linear):
            plain = torch.nn.Linear(*module.weight.shape)
            plain.weight = torch.nn.Parameter(module.weight.detach().t().contiguous())
            plain.bias = module.bias
            model.set_submodule(path, plain)
            turned.add(f"{path}.weight")
    return turned


# ---- a row ----


def measure(name: str) -> dict[str, Any]:
    """The figures of a row. What fails is said in `outcome`, and the figures before it stay."""
    row: dict[str, Any] = {"name": name, "class": zoo.class_of(name)}
    start = time.monotonic()
    for figures in (_exactness, _fp8, _torchao):
        try:
            figures(name, row)
        except Exception as failure:  # of any kind: it is the row's outcome
            row["outcome"] = f"{figures.__name__[1:]}: {_first_line(failure)}"
            break
    row.setdefault("outcome", "ok")
    row["seconds"] = round(time.monotonic() - start, 1)
    return row


def _exactness(name: str, row: dict[str, Any]) -> None:
    """Under recipe f32."""
    real = exact(name)
    row["eager32"] = error(eager(name), real)
    own, model = compiled(name, "f32")
    row["error32"] = error(own, real)
    row["ratio"] = row["error32"] / row["eager32"]
    report = fp8c.torch.report(model)
    graphs = graphs_of(model)
    row["graphs"] = sum(not one.apart for one in graphs)
    row["stages"] = sum(len(one.plan.stages) for one in graphs if one.plan is not None)
    row["between"] = [_op(op) for op in report.eager_ops]
    row["refused"] = [
        f"{one.whole.op}: {one.whole.reason}, at {_shorter(one.whole.place)}" for one in graphs if one.whole is not None
    ]
    row["breaks"] = [_shorter(one) for one in report.breaks]
    row["left_out"] = {one.name: one.reason for one in report.left_out}


def _fp8(name: str, row: dict[str, Any]) -> None:
    """Under recipe current, and whether its bits are those of bf16."""
    real = exact(name)
    own, model = compiled(name, "current")
    row["linears"] = fp8c.torch.report(model).counts()
    row["cosine"] = cosine(own, real)
    other, _ = compiled(name, "bf16")
    row["cosine_bf16"] = cosine(other, real)
    row["differs"] = any(not torch.equal(own[n], other[n]) for n in own)
    if not all(math.isfinite(row[key]) for key in ("error32", "cosine", "cosine_bf16")):
        raise ArithmeticError("a gradient is not finite")
    if not row["differs"] and row["linears"].get(FP8, 0) + row["linears"].get(MIXED, 0):
        raise ArithmeticError("linears are said to be FP8, and the gradients have bf16's bits")


def _torchao(name: str, row: dict[str, Any]) -> None:
    real = exact(name)
    try:
        own, row["torchao_linears"] = torchao_gradients(name)
    except Exception as failure:  # torchao's, which is no failure of the row
        row["torchao_reason"] = _first_line(failure)
        return
    row["torchao"] = cosine(own, real)
    if not math.isfinite(row["torchao"]):
        row["torchao"], row["torchao_reason"] = None, "its gradients are not finite"


def _op(op: Any) -> dict[str, str]:
    return {"op": op.op, "reason": op.reason, "place": _shorter(op.place)}


def _shorter(place: Any) -> str:
    """A place without the folder of the packages."""
    return re.sub(r"/\S*/(site-packages|dist-packages)/", "", str(place))


def _first_line(failure: Exception) -> str:
    text = _shorter(failure).strip().split("\n")[0]
    return textwrap.shorten(f"{type(failure).__name__}: {text}", 250)


# ---- all rows ----


def run_class(names: list[str]) -> list[dict[str, Any]]:
    """The rows of a class, by a process of its own."""
    command = [sys.executable, os.path.abspath(__file__), "--rows", json.dumps(names)]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        out, err = child.communicate(timeout=SECONDS)
        ended = f"exit code {child.returncode}"
        if child.returncode < 0:
            ended = signal.Signals(-child.returncode).name
    except subprocess.TimeoutExpired:
        child.kill()
        out, err = child.communicate()
        ended = f"not done in {SECONDS} s"
    rows = [json.loads(line[len(MARK) :]) for line in out.splitlines() if line.startswith(MARK)]
    done = {row["name"] for row in rows}
    last = err.strip().split("\n")[-1][:200]
    for name in names:
        if name not in done:
            rows.append(
                {"name": name, "class": zoo.class_of(name), "outcome": f"the process ended, {ended}: {last}"}
            )
    return rows


MARK = "row: "


def run_all(names: list[str], jobs: int) -> Iterator[list[dict[str, Any]]]:
    """The rows of each class, as they are done."""
    classes: dict[str, list[str]] = {}
    for name in names:
        classes.setdefault(zoo.class_of(name), []).append(name)
    with ThreadPoolExecutor(jobs) as pool:
        for one in as_completed([pool.submit(run_class, rows) for rows in classes.values()]):
            yield one.result()


def brief(row: dict[str, Any]) -> str:
    """A row in one line."""
    counts = ", ".join(f"{n} {kind}" for kind, n in row.get("linears", {}).items())
    figures = [f"{row['stages']} stages, {row['graphs']} graphs" if "stages" in row else "", counts]
    figures += [
        f"{title} {_figure(row.get(key), form)}"
        for title, key, form in (
            ("ratio", "ratio", ".2f"),
            ("cosine", "cosine", ".5f"),
            ("torchao", "torchao", ".5f"),
        )
    ]
    return f"{row['name']}: {row['outcome']}; " + "; ".join(f for f in figures if f)


def _figure(value: float | None, form: str) -> str:
    return "" if value is None else format(value, form)


# ---- ZOO.md ----


def page(rows: list[dict[str, Any]], made_with: dict[str, str]) -> str:
    """The table as Markdown, with a summary before it and what is cut after it."""
    made = ", ".join(f"{name} {version}" for name, version in made_with.items())
    lines = [
        "# Classes under the backend",
        "",
        f"Made by `python tests/torch/zoo_table.py --update`, on a CPU, with {made}. The models are "
        "those of `zoo.py`; the head of `zoo_table.py` says what the columns are.",
        "",
        *([] if len(rows) == len(zoo.MODELS) else [f"Only {len(rows)} of {len(zoo.MODELS)} rows ran.", ""]),
        *summary(rows),
        "",
        "# Rows",
        "",
        *_table(rows),
    ]
    for title, found in (
        ("What PyTorch runs between stages", _between(rows)),
        ("Why graphs end, or run in PyTorch", _ended(rows)),
        ("Linears that are not compiled", _left_out(rows)),
        ("What failed", _failed(rows)),
        ("Where torchao has no cosine", _without_torchao(rows)),
    ):
        lines += ["", f"# {title}", "", *([f"- {line}" for line in found] or ["Nothing."])]
    return "\n".join(lines) + "\n"


def summary(rows: list[dict[str, Any]]) -> list[str]:
    """How many classes, those of which hold in all of a class's rows, and the worst figures."""

    def classes(good: Callable[[dict[str, Any]], bool]) -> str:
        every = {row["class"] for row in rows}
        bad = {row["class"] for row in rows if not good(row)}
        return f"{len(every - bad)} of {len(every)}, {sum(map(good, rows))} rows of {len(rows)}"

    lines = [
        f"- classes without a failure: {classes(lambda row: row['outcome'] == 'ok')}",
        f"- every linear is compiled: {classes(all_compiled)}",
        f"- every linear is FP8: {classes(all_fp8)}",
        f"- in one stage, and nothing else: {classes(in_one_stage)}",
    ]
    ratios = [row for row in rows if _is_finite(row.get("ratio"))]
    if ratios:
        worst = max(ratios, key=lambda row: row["ratio"])
        lines.append(
            f"- error in f32 over eager's: median {median(row['ratio'] for row in ratios):.2f}, worst "
            f"{worst['ratio']:.2f} ({worst['name']})"
        )
    cosines = [row for row in rows if _is_finite(row.get("cosine"))]
    if cosines:
        worst = min(cosines, key=lambda row: row["cosine"])
        lines.append(
            f"- cosine under `current`: median {median(row['cosine'] for row in cosines):.4f}, worst "
            f"{worst['cosine']:.4f} ({worst['name']})"
        )
    both = [row for row in rows if as_many(row)]
    if both:
        worst = min(both, key=ahead)
        lines.append(
            f"- the same, less torchao's, in the {len(both)} rows where torchao converts as many linears: "
            f"median {median(map(ahead, both)):+.4f}, worst {ahead(worst):+.4f} ({worst['name']})"
        )
    return lines


def in_fp8(row: dict[str, Any]) -> int:
    return row["linears"].get(FP8, 0) + row["linears"].get(MIXED, 0)


def all_compiled(row: dict[str, Any]) -> bool:
    return bool(row.get("linears")) and OUT not in row["linears"]


def all_fp8(row: dict[str, Any]) -> bool:
    return set(row.get("linears", ())) == {FP8}


def in_one_stage(row: dict[str, Any]) -> bool:
    return (row.get("stages"), row.get("graphs")) == (1, 1) and not row["between"] and not row["refused"]


def as_many(row: dict[str, Any]) -> bool:
    """Whether torchao's cosine is of as many linears in FP8."""
    both = _is_finite(row.get("torchao")) and _is_finite(row.get("cosine"))
    return both and row["torchao_linears"] == in_fp8(row)


def _is_finite(value: float | None) -> bool:
    return value is not None and math.isfinite(value)


def ahead(row: dict[str, Any]) -> float:
    return row["cosine"] - row["torchao"]


def _table(rows: list[dict[str, Any]]) -> list[str]:
    heads = [
        "row",
        "stages",
        "graphs",
        FP8,
        MIXED,
        "bf16",
        "f32",
        OUT,
        "between",
        "error in f32",
        "eager's",
        "ratio",
        "cosine, `bf16`",
        "cosine, `current`",
        "cosine, torchao",
        "outcome",
    ]
    lines = ["| " + " | ".join(heads) + " |", "| --- |" + " ---: |" * (len(heads) - 2) + " --- |"]
    for row in rows:
        linears = row.get("linears")
        kinds = [""] * 5 if linears is None else [str(linears.get(k) or "") for k in heads[3:8]]
        torchao = _figure(row.get("torchao"), ".4f")
        if torchao and not as_many(row):
            torchao += f" ({row['torchao_linears']})"
        cells = [
            row["name"],
            str(row.get("stages", "")),
            str(row.get("graphs", "")),
            *kinds,
            str(len(row["between"]) or "") if "between" in row else "",
            _figure(row.get("error32"), ".1e"),
            _figure(row.get("eager32"), ".1e"),
            _figure(row.get("ratio"), ".2f"),
            _figure(row.get("cosine_bf16"), ".4f"),
            _figure(row.get("cosine"), ".4f"),
            torchao,
            "ok" if row["outcome"] == "ok" else "failed",
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return [
        *lines,
        "",
        f"torchao's cosine has the number of its linears where that is not the number of those in {FP8}.",
    ]


def _by_reason(found: Iterable[tuple[str, str]]) -> list[str]:
    """Pairs of a reason and a class as lines, the reason of most classes first."""
    classes: dict[str, list[str]] = {}
    for reason, one in dict.fromkeys(found):
        classes.setdefault(reason, []).append(one)
    order = sorted(classes, key=lambda reason: -len(classes[reason]))
    return [f"{reason}: {', '.join(classes[reason])}" for reason in order]


def _between(rows: list[dict[str, Any]]) -> list[str]:
    return _by_reason(
        (f"`{op['op']}`, {op['reason']}", row["class"]) for row in rows for op in row.get("between", ())
    )


def _ended(rows: list[dict[str, Any]]) -> list[str]:
    return _by_reason(
        (reason, row["class"]) for row in rows for reason in [*row.get("breaks", ()), *row.get("refused", ())]
    )


def _left_out(rows: list[dict[str, Any]]) -> list[str]:
    return _by_reason((why, row["class"]) for row in rows for why in row.get("left_out", {}).values())


def _failed(rows: list[dict[str, Any]]) -> list[str]:
    return [f"{row['name']}: {row['outcome']}" for row in rows if row["outcome"] != "ok"]


def _without_torchao(rows: list[dict[str, Any]]) -> list[str]:
    return [f"{row['name']}: {row['torchao_reason']}" for row in rows if row.get("torchao_reason")]


def main() -> None:
    told = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    told.add_argument("--only", default="*", metavar="PATTERN", help="the rows whose name has it")
    told.add_argument("--jobs", type=int, default=os.cpu_count() or 1, metavar="N", help="classes at a time")
    told.add_argument("--json", metavar="FILE", help="write the figures to it")
    told.add_argument("--update", action="store_true", help="write ZOO.md")
    told.add_argument("--rows", help=argparse.SUPPRESS)  # of a child: measure these
    options = told.parse_args()
    if options.rows:
        torch.set_num_threads(1)
        for name in json.loads(options.rows):
            print(MARK + json.dumps(measure(name)), flush=True)
        return
    names = [name for name in zoo.MODELS if fnmatch.fnmatch(name, f"*{options.only}*")]
    rows: list[dict[str, Any]] = []
    for found in run_all(names, options.jobs):
        print("\n".join(map(brief, found)), flush=True)
        rows = sorted(rows + found, key=lambda row: names.index(row["name"]))
        if options.json:
            with open(options.json, "w") as file:
                json.dump({"versions": versions(), "rows": rows}, file, indent=1)
    if options.update:
        with open(os.path.join(HERE, "ZOO.md"), "w") as file:
            file.write(page(rows, versions()))
    print("\n".join(summary(rows)))


def versions() -> dict[str, str]:
    return {name: metadata.version(name) for name in ("torch", "transformers", "timm", "torchao")}


if __name__ == "__main__":
    main()
