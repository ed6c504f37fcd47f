"""Modules built by calls: the same graph as from text, node for node."""
from __future__ import annotations

import ctypes
from functools import lru_cache
from typing import Any, NamedTuple, Sequence

from . import _header as h
from ._handle import Handle, Owner
from ._native import lib
from .context import encode
from .errors import InternalError
from .records import plain
from .tensors import DTYPES

_DTYPE = {d.name: i for i, d in enumerate(DTYPES)}


class Attribute(NamedTuple):
    """An attribute of an op. default: the value that it has if it is not given."""
    name: str
    kind: h.AttrKind
    default: Any
    text: str


class Op(NamedTuple):
    """An op that functions may call. types: of operands and results, as OPS.md spells them."""
    name: str
    group: str
    operands: str
    min_operands: int
    max_operands: int
    results: int
    gradient: str
    text: str
    types: str
    attributes: tuple[Attribute, ...]


@lru_cache(maxsize=None)
def op(name: str) -> Op:
    """What an op takes and gives. KeyError: there is no such op."""
    info = h.OpInfo()
    if lib.op(encode(name), ctypes.byref(info)):
        raise KeyError(name)
    attributes = []
    for index in range(info.attributes):
        a = h.OpAttr()
        if lib.op_attribute(encode(name), index, ctypes.byref(a)):
            break
        kind = h.AttrKind(a.attr.kind)
        default = {h.AttrKind.FLOAT: a.attr.f, h.AttrKind.BOOL: bool(a.attr.i),
                   h.AttrKind.STRING: plain(a.attr.s), h.AttrKind.INTS: None,
                   h.AttrKind.DTYPE: DTYPES[a.attr.i].name if 0 <= a.attr.i < len(DTYPES) else None
                   }.get(kind, a.attr.i)
        attributes.append(Attribute(plain(a.attr.name), kind, default, plain(a.text)))
    fields = {n: plain(getattr(info, n)) for n in Op._fields if n != "attributes"}
    return Op(attributes=tuple(attributes), **fields)


def ops() -> list[Op]:
    """All ops, in the order of the manual."""
    found: list[Op] = []
    while name := lib.name(h.NameKind.OP, len(found)):
        found.append(op(name.decode()))
    return found


def type_of(dtype: str, shape: Sequence[int]) -> h.Type:
    if dtype not in _DTYPE or len(shape) > h.MAX_RANK:
        raise ValueError(f"fp8c has no type {dtype}{list(shape)}")
    struct = h.Type(dtype=_DTYPE[dtype], rank=len(shape))
    struct.dim[:len(shape)] = shape
    return struct


def attribute(name: str, value: Any, kind: h.AttrKind | None = None) -> tuple[h.Attr, Any]:
    """-> (an attribute for C, what it points to). kind None: what the value's type says."""
    if kind is None:
        kind = {bool: h.AttrKind.BOOL, int: h.AttrKind.INT, float: h.AttrKind.FLOAT,
                str: h.AttrKind.STRING}.get(type(value), h.AttrKind.INTS)
    attr, kept = h.Attr(name=encode(name), kind=kind), None
    if kind == h.AttrKind.FLOAT:
        attr.f = value
    elif kind == h.AttrKind.STRING:
        attr.s = encode(value)
    elif kind == h.AttrKind.DTYPE:
        attr.i = _DTYPE[value]
    elif kind == h.AttrKind.INTS:
        kept = (h.i64 * max(len(value), 1))(*value)
        attr.ints, attr.n_ints = ctypes.addressof(kept), len(value)
    else:
        attr.i = value
    return attr, kept


class Function:
    """A function while it is built: `with module.function("forward") as f:`. Values are numbers.
    After a failure, or an exception within the `with`, the module has no such function."""

    def __init__(self, handle: Handle, name: str):
        self._handle = handle
        self._name = name

    def __enter__(self) -> "Function":
        self._handle.call(lib.func_begin, encode(self._name))
        self._ended = False
        return self

    def __exit__(self, kind: Any, *_: Any) -> None:
        if self._ended:
            return
        if kind is None:
            self._handle.call(lib.func_end)
            return
        self._handle.ask(lib.func_param, b"")  # fails, so that the module drops the function
        self._handle.ask(lib.func_end)

    def _value(self, value: int) -> int:
        """A value that was made; 0: raise why it was not."""
        if not value:
            self._ended = True
            self._handle.call(lib.func_end)
            raise InternalError("a value was not made, and there is no message")
        return value

    def input(self, name: str, dtype: str, shape: Sequence[int] = ()) -> int:
        """An input of the function."""
        struct = type_of(dtype, shape)
        return self._value(self._handle.ask(lib.func_input, encode(name), ctypes.byref(struct)))

    def param(self, name: str) -> int:
        """The value of a parameter of the module."""
        return self._value(self._handle.ask(lib.func_param, encode(name)))

    def const(self, value: float) -> int:
        """A number, f32[]."""
        return self._value(self._handle.ask(lib.func_const, value))

    def op(self, name: str, *operands: int, attributes: dict[str, Any] | None = None) -> int:
        """The result of an op."""
        try:
            kinds = {a.name: a.kind for a in op(name).attributes}
        except KeyError:
            kinds = {}  # the call says that there is no such op
        made = [attribute(n, v, kinds.get(n)) for n, v in (attributes or {}).items()]
        attrs = (h.Attr * max(len(made), 1))(*[a for a, _ in made])
        values = (h.u32 * max(len(operands), 1))(*operands)
        return self._value(self._handle.ask(lib.func_op, encode(name), values, len(operands), attrs,
                                            len(made)))

    def result(self, name: str, value: int) -> None:
        """Give a value out."""
        self._handle.call(lib.func_result, encode(name), value)


class Builder(Owner):
    """The part of Module that builds: `Module.create`, then these."""

    def param(self, name: str, dtype: str, shape: Sequence[int], init: str = "zeros",
              value: float = 0.0) -> None:
        """Declare a parameter. init: "zeros", "ones", "const", "normal" or "uniform"; value: the
        number of the last three."""
        struct = type_of(dtype, shape)
        self._open().call(lib.module_param, encode(name), ctypes.byref(struct),
                          h.Init[init.upper()], value)

    def optimizer(self, **fields: Any) -> None:
        """Set fields of the optimizer, as the text's `optimizer adamw {...}`."""
        made = [attribute(n, v) for n, v in fields.items()]
        attrs = (h.Attr * max(len(made), 1))(*[a for a, _ in made])
        self._open().call(lib.module_optimizer, attrs, len(made))

    def recipe(self, pattern: str, recipe: str) -> None:
        """Add the rule `recipe "PATTERN" = RECIPE`."""
        self._open().call(lib.module_rule, encode(f'"{pattern}" = {recipe}'), None)

    def function(self, name: str) -> Function:
        """A function to be built, one at a time."""
        return Function(self._open(), name)
