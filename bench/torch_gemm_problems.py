"""GEMMs as `fp8c tune` has them: from --gemm, --gemm-file and --suite; as text; what they move.

The texts equal fp8c's, since they find a problem again in a file of the other program.
frontend/tune/README.md says what the words mean; frontend/tune/gemms.h has them.
"""

from __future__ import annotations

import csv
import itertools
import json
import pathlib
import re
from dataclasses import dataclass
from typing import Any, Iterable, Iterator

FORMATS = {"f32": 4, "bf16": 2, "f8e4m3": 1, "f8e5m2": 1}  # and the bytes of an element
HOWS = {  # the first word of a kind is its default, and is not written
    "scaling": ("tensor", "row", "block", "mx"),
    "role": ("", "fprop", "dgrad", "wgrad"),
    "epilogue": ("f32", "bf16", "bias", "accumulate"),
    "layout": ("", "nn", "nt", "tn", "tt"),
}
LAYOUTS = {"": "nt", "fprop": "nt", "dgrad": "nn", "wgrad": "tn"}  # of roles
MOST, MOST_SIZE, MOST_NAME = 10000, 2**31 - 1, 255
SUITES = pathlib.Path(__file__).resolve().parent / "suites"


class Wrong(Exception):
    """What is wrong with what was given: a message for people."""


@dataclass(frozen=True)
class Problem:
    m: int
    n: int
    k: int
    a: str
    b: str
    scaling: str = "tensor"
    role: str = ""
    epilogue: str = "f32"
    given_layout: str = ""
    count: int = 1
    name: str = ""

    @property
    def fp8(self) -> bool:
        return self.a.startswith("f8")

    @property
    def layout(self) -> str:
        return self.given_layout or LAYOUTS[self.role]

    @property
    def text(self) -> str:
        formats = self.a if self.a == self.b else f"{self.a}x{self.b}"
        given = zip(HOWS, (self.scaling, self.role, self.epilogue, self.given_layout))
        words = [word for kind, word in given if word != HOWS[kind][0]]
        return ":".join([f"{self.m}x{self.n}x{self.k}", formats, *words])

    @property
    def flops(self) -> float:
        return 2.0 * self.m * self.n * self.k

    @property
    def bytes(self) -> float:
        """Of operands, their scales where there are many, and the result, as f8_tune_gemm_bytes."""
        more = {"block": 4 / 128, "mx": 1 / 32}.get(self.scaling, 0.0)
        result = {"f32": 4, "accumulate": 8}.get(self.epilogue, 2)
        return (
            self.m * self.k * (FORMATS[self.a] + more)
            + self.n * self.k * (FORMATS[self.b] + more)
            + float(self.m) * self.n * result
        )

    def check(self) -> Problem:
        if self.fp8 != self.b.startswith("f8") or (not self.fp8 and self.a != self.b):
            raise Wrong("the formats of two operands are the same, or FP8 both")
        if not self.fp8 and self.scaling != "tensor":
            raise Wrong("only FP8 formats have scales")
        return self


def formats_of(text: str) -> tuple[str, str]:
    a, _, b = text.partition("x")
    if a not in FORMATS or (b or a) not in FORMATS or text.endswith("x"):
        raise Wrong(f"'{text}' is not {', '.join(FORMATS)}, or two of them, as f8e5m2xf8e4m3")
    return a, b or a


def size_of(text: str) -> int:
    if not re.fullmatch("[0-9]+", text) or not 1 <= int(text) <= MOST_SIZE:
        raise Wrong(f"'{text}' is not a whole number from 1 to {MOST_SIZE}")
    return int(text)


# ---- --gemm ----


def sizes_of(text: str) -> Iterator[int]:
    """The sizes of a list with ranges: "64,128", "1..4096*2", "128..1024+128"."""
    for part in text.split(","):
        found = re.fullmatch(r"([0-9]+)\.\.([0-9]+)([*+])([0-9]+)", part)
        if not found:
            yield size_of(part)
            continue
        size, last, by = (size_of(found[i]) for i in (1, 2, 4))
        if last < size or (found[3] == "*" and by == 1):
            raise Wrong(f"the range '{part}' begins above its end, or never ends")
        while size <= last:
            yield size
            size = size * by if found[3] == "*" else size + by


def hows_of(parts: list[str]) -> dict[str, list[str]]:
    """Kinds and their words; a kind that is not named has its default."""
    hows: dict[str, list[str]] = {}
    for part in parts:
        words = part.split(",")
        kinds = [kind for kind, known in HOWS.items() if words[0] and words[0] in known]
        if not kinds or not all(word and word in HOWS[kinds[0]] for word in words):
            raise Wrong(f"'{part}' is no scaling, role, epilogue or layout, or a list of one of them")
        if kinds[0] in hows or len(set(words)) < len(words):
            raise Wrong(f"'{part}': the {kinds[0]} is given twice")
        hows[kinds[0]] = words
    return {kind: hows.get(kind, [known[0]]) for kind, known in HOWS.items()}


def parse(spec: str) -> Iterator[Problem]:
    """The GEMMs of SIZES:FORMATS[:HOW ...]. In a list of scalings a format without scales is one GEMM."""
    sizes, *rest = spec.split(":")
    axes = sizes.split("x")
    try:
        if len(axes) != 3 or not rest:
            raise Wrong("three sizes and a format are expected")
        hows = hows_of(rest[1:])
        formats = [formats_of(text) for text in rest[0].split(",")]
        for m, n, k in itertools.product(*(list(sizes_of(axis)) for axis in axes)):
            for a, b in formats:
                scaled = a.startswith("f8") or len(hows["scaling"]) == 1
                scalings = hows["scaling"] if scaled else ["tensor"]
                for words in itertools.product(scalings, hows["role"], hows["epilogue"], hows["layout"]):
                    yield Problem(m, n, k, a, b, *words).check()
    except Wrong as e:
        raise Wrong(f"GEMM '{spec}' is not MxNxK:FORMAT, as 2048x768x3072:f8e4m3: {e}") from None


# ---- --gemm-file, --suite ----


COLUMNS = ("m", "n", "k", "format", "a", "b", *HOWS, "count", "name")


def check_columns(names: Iterable[str]) -> None:
    for name in names:
        if name not in COLUMNS:
            raise Wrong(f"there is no column '{name}': there are {', '.join(COLUMNS)}")


def problem_of(row: dict[str, Any]) -> Problem:
    """The GEMM of a row's columns, or of an object's keys. An empty value is none."""
    check_columns(row)
    for key, value in row.items():
        if isinstance(value, bool) or not isinstance(value, (int, str)):
            raise Wrong(f"{key}: a whole number or a text is expected")
    given = {key: str(value) for key, value in row.items() if value != ""}
    for missing in (key for key in "mnk" if key not in given):
        raise Wrong(f"{missing} is missing")
    for kind, words in HOWS.items():
        if kind in given and given[kind] not in words:
            raise Wrong(f"{kind}: '{given[kind]}' is none of {', '.join(filter(None, words))}")
    formats = dict(zip("ab", formats_of(given["format"]))) if "format" in given else {}
    for operand in (o for o in "ab" if o in given):
        if given[operand] not in FORMATS:
            raise Wrong(f"{operand}: '{given[operand]}' is not {', '.join(FORMATS)}")
        formats[operand] = given[operand]
    if len(formats) < 2:
        raise Wrong("format (or a and b) is missing")
    name = given.get("name", "")
    if len(name.encode()) > MOST_NAME or not name.isprintable():
        raise Wrong(f"name: at most {MOST_NAME} bytes of UTF-8 without control characters are expected")
    sizes = (size_of(given[key]) for key in "mnk")
    hows = (given.get(kind, words[0]) for kind, words in HOWS.items())
    return Problem(*sizes, formats["a"], formats["b"], *hows, size_of(given.get("count", "1")), name).check()


def rows_of(lines: Iterator[tuple[int, str]]) -> Iterator[tuple[int, dict[str, Any]]]:
    """Numbers of lines, and what stands in them, of CSV or of JSON Lines."""
    head: list[str] | None = None
    for number, line in lines:
        if head is None and line.lstrip().startswith("{"):
            head = []
        if head == []:
            row = json.loads(line)
            if not isinstance(row, dict):
                raise Wrong("this line is no object")
            yield number, row
            continue
        cells = next(csv.reader([line], strict=True))
        if head is None:
            head = cells
            check_columns(head)
            if len(set(head)) < len(head):
                raise Wrong("a column is there twice")
        elif len(cells) > len(head):
            raise Wrong(f"this row has more cells than the first one, which has {len(head)}")
        else:
            yield number, dict(zip(head, cells))


def read(path: pathlib.Path) -> list[Problem]:
    at = 0

    def lines() -> Iterator[tuple[int, str]]:
        nonlocal at
        for at, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            if "\0" in line:
                raise Wrong("this is no text")
            if line.strip() and not line.lstrip().startswith("#"):
                yield at, line

    try:
        found = [problem_of(row) for _, row in rows_of(lines())]
    except (Wrong, ValueError, csv.Error) as e:
        raise Wrong(f"{path}:{at}: {e}") from None
    except OSError as e:
        raise Wrong(f"{path}: {e.strerror}") from None
    if not found:
        raise Wrong(f"{path}: there is no GEMM in this file")
    return found


def suite(name: str) -> list[Problem]:
    if "/" in name or "." in name:
        return read(pathlib.Path(name))
    known = sorted(path.stem for path in SUITES.glob("*.csv"))
    if name not in known:
        raise Wrong(f"no suite '{name}': there are {', '.join(known)}")
    return read(SUITES / f"{name}.csv")


def gather(specs: list[str], files: list[str], suites: list[str]) -> list[Problem]:
    """All of them, in this order. What is there twice is one problem, with the sum of the counts."""
    found: dict[str, Problem] = {}
    given = itertools.chain(
        itertools.chain.from_iterable(parse(spec) for spec in specs),
        itertools.chain.from_iterable(read(pathlib.Path(path)) for path in files),
        itertools.chain.from_iterable(suite(name) for name in suites),
    )
    for p in given:
        old = found.get(p.text)
        count = p.count + old.count if old else p.count
        found[p.text] = Problem(**{**(old or p).__dict__, "count": count})
        if len(found) > MOST:
            raise Wrong(f"more than {MOST} GEMMs")
    return list(found.values())
