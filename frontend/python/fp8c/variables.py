"""A program's variables - parameters, gradients, states: where they lie, their values, files."""
from __future__ import annotations

import ctypes
import os
from typing import Any, Callable, Sequence

from . import _header as h
from . import dlpack
from ._handle import Handle, Owner
from ._native import lib
from .context import array_of
from .errors import guarded
from .records import Carried, LoadItem, Position, Variable, plain, record
from .tensors import Tensor, View, Views


class Variables(Owner):
    """The part of Program that has to do with variables. A variable is named by its name or its
    index; KeyError: there is none of that name."""
    _bound_variables: dict[int, Any]  # index -> the tensor of the caller that it lies in
    _variables: dict[str, Variable] | None = None

    @property
    def variables(self) -> dict[str, Variable]:
        """All variables by name, in their order."""
        if self._variables is None:
            found: dict[str, Variable] = {}
            handle, struct = self._open(), h.Variable()
            while not handle.ask(lib.program_variable, len(found), ctypes.byref(struct)):
                name = plain(struct.name)
                found[name] = Variable(len(found), name, plain(struct.type),
                                       bool(struct.is_param), struct.rows)
            self._variables = found
        return self._variables

    def variable(self, name: str | int) -> Variable:
        """A variable's index, type, and whether it is a parameter."""
        if isinstance(name, str):
            return self.variables[name]
        return list(self.variables.values())[name]

    def tensor(self, name: str | int) -> Tensor:
        """A variable where it lies: a tensor over its memory, which stays alive with the tensor.
        It shows the memory that the variable has now: after `bind_variable` ask again. InputError:
        it has none."""
        index = self.variable(name).index
        handle, struct = self._open(), h.TensorView()
        handle.call(lib.program_variable_view, index, ctypes.byref(struct))
        return memory_of(handle, struct, self._bound_variables.get(index))

    def read(self, name: str | int, out: Any = None) -> Any:
        """Copy a variable out of the program: into `out`, a tensor in host memory of its dtype and
        shape, or into a new Tensor. Gives `out`. Works on every target."""
        variable = self.variable(name)
        if out is None:
            out = Tensor.empty(*variable.type)
        view = _plain_memory(variable, out, "read into", True)
        self._open().call(lib.program_read, variable.index, view.c.data + view.c.byte_offset)
        return out

    def write(self, name: str | int, value: Any) -> None:
        """Copy a tensor in host memory into a variable. ValueError: another dtype or shape, or not
        contiguous."""
        variable = self.variable(name)
        view = _plain_memory(variable, value, "written from", False)
        self._open().call(lib.program_write, variable.index, view.c.data + view.c.byte_offset)

    def bind_variable(self, name: str | int, tensor: Any) -> None:
        """Put a variable into a tensor of the caller's, whose contents are then its value; or back
        into memory of fp8c's: None. The program keeps the tensor. InputError: it does not fit."""
        index = self.variable(name).index
        if tensor is None:
            self._open().call(lib.program_bind_variable, index, None)
            self._bound_variables.pop(index, None)
            return
        view = View.of(tensor)
        if view.read_only:
            raise ValueError(f"variable {name!r} can't be in a tensor that is read-only")
        self._open().call(lib.program_bind_variable, index, ctypes.byref(view.c))
        self._bound_variables[index] = view

    def move_variables(self, variables: Sequence[int], tensors: Views | None) -> None:
        """The values of external variables, given by their indices, lie in these tensors now. They are
        the values that the variables had, so forwards may wait for their backwards. None: the values
        lie nowhere until the next move. InputError: a tensor does not fit; then all lie nowhere."""
        n = len(variables)
        if tensors is not None and len(tensors) != n:
            raise ValueError(f"{n} variables can't move into {len(tensors)} tensors")
        indices = (ctypes.c_int * max(n, 1))(*variables)
        for index in variables:
            self._bound_variables.pop(index, None)
        self._open().call(lib.program_move_variables, indices, tensors and tensors.c, n)

    def initialize(self, seed: int = 0) -> None:
        """Give every variable its initial value, which depends on the seed and its name alone;
        then run `prepare`, if the program has it."""
        self._open().call(lib.program_initialize, seed)

    def save(self, path: str | os.PathLike, at: Position | None = None) -> None:
        """Write all variables as a safetensors file, whole or not at all. at: where in a training
        they were, for `load_at`."""
        position = ctypes.byref(h.Position(**at._asdict())) if at else None
        self._open().call(lib.program_save, os.fsencode(path), position)

    def load(self, path: str | os.PathLike, params_only: bool = False) -> None:
        """Read all variables back from a file of `save`; with params_only not the states."""
        self._open().call(lib.program_load, os.fsencode(path), params_only, None)

    def load_at(self, path: str | os.PathLike) -> Position:
        """`load` of a file that has a position, and that position."""
        at = h.Position()
        self._open().call(lib.program_load, os.fsencode(path), 0, ctypes.byref(at))
        return record(Position, at)

    def load_weights(self, files: Sequence[str | os.PathLike], *, ignore: Sequence[str] = (),
                     map: Sequence[str] = (), allow_missing: Sequence[str] = (),
                     scales: "Variables | None" = None,
                     report: Callable[[LoadItem], object] | None = None) -> None:
        """Give the parameters the values of safetensors files that others wrote. ignore, map
        ("FROM=TO"), allow_missing: name patterns. scales: a program compiled with `observe`.
        report: called with each tensor and what becomes of it."""
        lists = [[os.fsencode(f) for f in files], ignore, map, allow_missing]
        arrays, n = [array_of(x) for x in lists], [len(x) for x in lists]
        f, i, m, a = (ctypes.addressof(x) for x in arrays)
        told = h.ReportFn(guarded(lambda _, item: report(record(
            LoadItem, h.LoadItem.from_address(item))), None)) if report else h.ReportFn()
        other = scales._open() if scales is not None else None
        options = h.LoadOptions(files=f, n_files=n[0], ignore=i, n_ignore=n[1], map=m, n_map=n[2],
                                allow_missing=a, n_allow_missing=n[3],
                                scales=other.ptr if other else None, report=told)
        self._open().call(lib.program_load_weights, ctypes.byref(options))

    def elements(self, name: str | int) -> list[str]:
        """What the elements of a state stand for: of FP8 scales, operands ("fc.x"). []: nothing."""
        handle, index = self._open(), self.variable(name).index
        found: list[str] = []
        while text := handle.ask(lib.program_element, index, len(found), 0):
            found.append(text.decode())
        return found

    def aliases(self, name: str | int, element: int) -> list[str]:
        """The other names of an element, which several linears share."""
        handle, index = self._open(), self.variable(name).index
        found: list[str] = []
        while text := handle.ask(lib.program_element, index, element, len(found) + 1):
            found.append(text.decode())
        return found

    def carry_from(self, other: "Variables") -> Carried:
        """Take the amax histories that another program has observed; then run `prepare`. No other
        thread may use the other program meanwhile."""
        out, source = h.Carried(), other._open()
        self._open().call(lib.program_carry, source.ptr, ctypes.byref(out))
        return record(Carried, out)

    def quantize(self, name: str | int, values: Any, scale: float | None = None) -> None:
        """Quantize f32 values into a weight that is stored as FP8, and its scales."""
        variable = self.variable(name)
        like = variable._replace(type=variable.type._replace(dtype="f32"))
        view = _plain_memory(like, values, "quantized from", False)
        factor = ctypes.byref(ctypes.c_float(scale)) if scale is not None else None
        self._open().call(lib.program_quantize, variable.index, view.c.data + view.c.byte_offset,
                          factor)

    def check_ranks(self) -> None:
        """Whether the ranks' copies of what all have whole are equal. All ranks call it."""
        self._open().call(lib.program_check_ranks)


def memory_of(handle: Handle, struct: h.TensorView, owner: Any) -> Tensor:
    """A Tensor over memory that fp8c shows; the handle and the owner live with it."""
    n = struct.ndim
    view = View.__new__(View)
    view.c = h.TensorView(struct.data, struct.device, n, struct.dtype)
    view.c.shape = (h.i64 * n)(*struct.shape[:n])
    view.c.strides = (h.i64 * n)(*struct.strides[:n])
    view.c.byte_offset = struct.byte_offset
    view.read_only, view.owner = False, (handle, owner)
    ready = (lambda: handle.call(lib.program_wait)) if struct.device.type == dlpack.CUDA else None
    return Tensor(view, handle, ready)


def _plain_memory(variable: Variable, tensor: Any, what: str, writes: bool) -> View:
    """A view of host memory that C reads or writes without looking at dtype and shape."""
    view = View.of(tensor)
    if (view.dtype, view.shape) != variable.type:
        raise ValueError(f"variable {variable.name!r} is {variable.type} and can't be {what} "
                         f"{view.dtype}{list(view.shape)}")
    if view.device[0] == dlpack.CUDA or not view.contiguous or (writes and view.read_only):
        why = "in a GPU's memory" if view.device[0] == dlpack.CUDA else \
            "read-only" if view.contiguous else "not contiguous"
        raise ValueError(f"variable {variable.name!r} can't be {what} a tensor that is {why}")
    return view
