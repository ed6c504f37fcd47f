"""Writes what follows from tables of frontend/ but must be text of its own. From options.def: fp8c/_options.py,
the struct of a compile's options for ctypes and `compile_options` with a keyword for each. From figures.def:
fp8c/_figures.py, their fields in fp8c_diagnose.h, and the table of records in cli/records.md.

usage: python3 frontend/python/generate.py          (tests/frontend/python/test_header.py compares)"""
from __future__ import annotations

import pathlib
import re
import textwrap

FRONTEND = pathlib.Path(__file__).resolve().parents[1]

# By kind: the type for ctypes, and the keyword with its default; None: no keyword, another's row fills it.
KINDS = {"FLAG": ("h.i32", "bool = False"), "COUNT": ("h.i32", "int = 0"), "LONG": ("h.i64", "int = 0"),
         "NUMBER": ("h.f64", "float = 0.0"), "TEXT": ("h.text", "str | None = None"),
         "WRITE": ("h.WriteFn", "Callable[[str], object] | None = None"), "USER": ("h.ptr", None),
         "STREAM": ("h.ptr", "int = 0"), "SIZE": ("h.size", None),
         "DEVICE_ALLOC": ("h.DeviceAllocFn", "Callable[[int], int] | None = None"),
         "DEVICE_FREE": ("h.FreeFn", "Callable[[int, int], object] | None = None"),
         "CALIBRATION": ("h.ptr", "Any = None"), "STORED": ("h.ptr", "Mapping[str, str] | None = None"),
         "COMM": ("h.ptr", "h.Comm | None = None"), "ARENA": ("h.ptr", "Any = None")}

HEAD = '''"""The options of a compile. frontend/python/generate.py writes this file from frontend/options.def: change those."""
from __future__ import annotations

from typing import Any, Callable, Mapping

from . import _header as h
from .options import Options, fill


class CompileOptions(h.Structure):
'''

DOC = '''fp8c_compile_options by keyword: fp8c.h says more of each.

%s

Python's own: write gets text (str). device_alloc(bytes) -> address or 0, device_free(address, bytes).
stored_weights: {parameter: recipe}. stream: the address of a CUstream. comm: a struct whose
callbacks the caller keeps alive, as fp8c_mpi_open fills it.'''


OPTION = ("field", "kind", "usual", "needs", "excludes", "bits", "ranks", "kept", "with", "help")
FIGURE = ("name", "unit", "has", "better", "kept", "worst", "beside", "alarm", "formula", "label", "sentence")


def split(text: str) -> list[str]:
    """The arguments of a macro; the parts of a text in quotes as one text."""
    parts, depth, quoted = [""], 0, False
    for c in text:
        quoted ^= c == '"'
        depth += 0 if quoted else (c == "(") - (c == ")")
        if c == "," and not quoted and not depth:
            parts.append("")
        else:
            parts[-1] += c
    parts = [p.strip() for p in parts]
    return ["".join(re.findall(r'"([^"]*)"', p)) if p.startswith('"') else p for p in parts]


def rows(text: str, macro: str, names: tuple[str, ...]) -> list[dict[str, str]]:
    """The rows of a table by column."""
    found = re.findall(rf"^{macro}\((.*?)\)$", text, re.M | re.S)
    made = [split(columns) for columns in found]
    if len(made) != len(re.findall(rf"^{macro}\(", text, re.M)) or any(len(r) != len(names) for r in made):
        raise SystemExit(f"a row is not {macro}({', '.join(names)})")
    return [dict(zip(names, r)) for r in made]


def described(row: dict[str, str]) -> str:
    usual = f" ({row['usual']})" if row["usual"] != "NULL" else ""
    any_of = re.findall(r"ONE\((\w+)\)", row["needs"])
    needs = [f"needs {' or '.join(any_of)}"] if any_of else []
    needs += [f"not with {n}" for n in re.findall(r"ONE\((\w+)\)", row["excludes"])]
    return f"{row['field']}{usual}: {row['help']}{'; ' + ', '.join(needs) if needs else ''}"


def listed(first: str, items: list[str], end: str, indent: int) -> str:
    """The items with commas between, no line of more than 99 characters, none broken."""
    lines = [first]
    for n, item in enumerate(items):
        item += "," if n + 1 < len(items) else end
        fits = len(lines[-1]) + 1 + len(item) <= 99
        space = "" if lines[-1].endswith(("(", "[")) else " "
        lines[-1:] = [lines[-1] + space + item] if fits else [lines[-1], " " * indent + item]
    return "\n".join(lines) + "\n"


def options(text: str) -> str:
    """What fp8c/_options.py has, from the text of options.def."""
    all_rows = rows(text, "OPTION", OPTION)
    fields = [f'("{r["field"]}", {KINDS[r["kind"]][0]})' for r in all_rows]
    keywords = [(r, KINDS[r["kind"]][1]) for r in all_rows if KINDS[r["kind"]][1]]
    docs = [textwrap.fill(described(r), 95, subsequent_indent="    ") for r, _ in keywords]
    body = HEAD + listed("    _fields_ = [", ['("struct_size", h.size)', *fields], "]", 16) + "\n\n"
    body += listed("def compile_options(", ["*", *(f"{r['field']}: {k}" for r, k in keywords)],
                   ") -> Options:", 8)
    body += textwrap.indent('"""' + DOC % "\n".join(docs) + '"""', "    ") + "\n"
    return body + "    return fill(CompileOptions, locals())\n"


# The figures of a value, by column `has`: which values have them.
HAS = {"ALL": "all", "QUANTIZED": "quantized ones", "ONE_SCALE": "those with one scale",
       "ASKING": "those with one scale that an amax asks for"}

FIGURES_HEAD = '''"""The figures of watched values.

frontend/python/generate.py writes this file from frontend/figures.def: change those."""
from __future__ import annotations

from typing import NamedTuple

from . import _header as h

'''
STATISTIC_DOC = '''"""fp8c_statistic. x is the value, d the value quantized and dequantized. Figures of codes and of d are
NaN where it is not quantized.

'''
CLASS = {"i64": "int", "i32": "int", "f64": "float", "text": "str", "char * 48": "str",
         "texts": "tuple[str, ...]"}


def kind_of(row: dict[str, str]) -> str:
    return "i64" if row["unit"] == "COUNT" else "f64"


def figures(text: str) -> str:
    """What fp8c/_figures.py has, from the text of figures.def."""
    all_rows = rows(text, "FIGURE", FIGURE)
    kinds = {"name": "text", "linear": "text", "operand": "text", "recipe": "text", "format": "text",
             "granularity": "char * 48", "what_if": "i32", "elements": "i64", "gemms": "text", "aliases": "texts"}
    kinds |= {r["name"]: kind_of(r) for r in all_rows}
    fields = [f'("{name}", h.{kind})' for name, kind in kinds.items()]
    docs = [textwrap.fill(f"{r['name']}: {r['sentence']}", 95, subsequent_indent="    ") for r in all_rows]
    body = FIGURES_HEAD + "\nclass CStatistic(h.Structure):\n"
    body += listed("    _fields_ = [", ['("struct_size", h.size)', *fields], "]", 16)
    body += "\n\nclass Statistic(NamedTuple):\n"
    body += textwrap.indent(STATISTIC_DOC + "\n".join(docs) + '"""', "    ") + "\n"
    for name, kind in kinds.items():
        body += f"    {name}: {CLASS[kind]}{' | None' if name in ('recipe', 'format') else ''}\n"
    return body


def fields_of_c(text: str) -> str:
    """The fields of fp8c_statistic."""
    lines = []
    for r in rows(text, "FIGURE", FIGURE):
        words = textwrap.fill(f"/* {r['sentence']} */", 99, initial_indent="    ", subsequent_indent="     * ")
        lines += [words, f"    {'int64_t' if kind_of(r) == 'i64' else 'double'} {r['name']};"]
    return "\n".join(lines)


def table(text: str) -> str:
    """The table of cli/records.md."""
    lines = ["| figure | of which tensors | what it says |", "| --- | --- | --- |"]
    for r in rows(text, "FIGURE", FIGURE):
        sentence = r["sentence"].replace("|", "\\|")
        lines.append(f"| `{r['name']}` | {HAS[r['has']]} | {sentence} |")
    return "\n".join(lines)


def between(path: str, begins: str, ends: str, words: str) -> tuple[str, str]:
    """A file, and its text with other words between two lines."""
    text = (FRONTEND / path).read_text(encoding="utf-8")
    head, rest = text.split(begins + "\n")
    return path, f"{head}{begins}\n{words}\n{ends}\n{rest.split(ends + chr(10))[1]}"


def generated(options_def: str, figures_def: str) -> dict[str, str]:
    """What the files below frontend/ have, from the texts of the tables."""
    return dict([("python/fp8c/_options.py", options(options_def)), ("python/fp8c/_figures.py", figures(figures_def)),
                 between("fp8c_diagnose.h", "    /* figures.def begins */", "    /* figures.def ends */",
                         fields_of_c(figures_def)),
                 between("cli/records.md", "<!-- figures.def begins -->", "<!-- figures.def ends -->",
                         table(figures_def))])


def tables() -> list[str]:
    return [(FRONTEND / name).read_text(encoding="utf-8") for name in ("options.def", "figures.def")]


if __name__ == "__main__":
    for path, text in generated(*tables()).items():
        (FRONTEND / path).write_text(text, encoding="utf-8")
