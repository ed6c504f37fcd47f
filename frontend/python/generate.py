"""Writes fp8c/_options.py from frontend/options.def: the struct of a compile's options for ctypes, and
`compile_options` with a keyword for each.

usage: python3 frontend/python/generate.py          (tests/frontend/python/test_header.py compares)"""
from __future__ import annotations

import pathlib
import re
import textwrap

HERE = pathlib.Path(__file__).resolve().parent
FILE = HERE / "fp8c/_options.py"

# By kind: the type for ctypes, and the keyword with its default; None: no keyword, another's row fills it.
KINDS = {"FLAG": ("h.i32", "bool = False"), "COUNT": ("h.i32", "int = 0"), "LONG": ("h.i64", "int = 0"),
         "NUMBER": ("h.f64", "float = 0.0"), "TEXT": ("h.text", "str | None = None"),
         "WRITE": ("h.WriteFn", "Callable[[str], object] | None = None"), "USER": ("h.ptr", None),
         "STREAM": ("h.ptr", "int = 0"), "SIZE": ("h.size", None),
         "DEVICE_ALLOC": ("h.DeviceAllocFn", "Callable[[int], int] | None = None"),
         "DEVICE_FREE": ("h.FreeFn", "Callable[[int, int], object] | None = None"),
         "CALIBRATION": ("h.ptr", "Any = None"), "STORED": ("h.ptr", "Mapping[str, str] | None = None"),
         "COMM": ("h.ptr", "h.Comm | None = None")}

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
callbacks the caller keeps alive, as fp8c_mpi_comm fills it.'''


def rows(text: str) -> list[dict[str, str]]:
    """The rows of options.def by column."""
    names = ("field", "kind", "usual", "needs", "excludes", "bits", "ranks", "kept", "with")
    found = re.findall(r'^OPTION\((.*?),\s*"([^"]*)"\)$', text, re.M | re.S)
    made = [dict(zip(names, map(str.strip, columns.split(","))), help=words) for columns, words in found]
    if len(made) != len(re.findall(r"^OPTION\(", text, re.M)) or any(len(r) != len(names) + 1 for r in made):
        raise SystemExit("options.def: a row is not OPTION(9 columns, \"help\")")
    return made


def described(row: dict[str, str]) -> str:
    usual = f" ({row['usual'].strip(chr(34))})" if row["usual"] != "NULL" else ""
    needs = [f"needs {n}" for n in re.findall(r"ONE\((\w+)\)", row["needs"])]
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


def generated(text: str) -> str:
    """What the file has, from the text of options.def."""
    all_rows = rows(text)
    fields = [f'("{r["field"]}", {KINDS[r["kind"]][0]})' for r in all_rows]
    keywords = [(r, KINDS[r["kind"]][1]) for r in all_rows if KINDS[r["kind"]][1]]
    docs = [textwrap.fill(described(r), 95, subsequent_indent="    ") for r, _ in keywords]
    body = HEAD + listed("    _fields_ = [", ['("struct_size", h.size)', *fields], "]", 16) + "\n\n"
    body += listed("def compile_options(", ["*", *(f"{r['field']}: {k}" for r, k in keywords)],
                   ") -> Options:", 8)
    body += textwrap.indent('"""' + DOC % "\n".join(docs) + '"""', "    ") + "\n"
    return body + "    return fill(CompileOptions, locals())\n"


if __name__ == "__main__":
    FILE.write_text(generated((HERE.parent / "options.def").read_text()))
