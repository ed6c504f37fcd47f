"""Tensors: what fp8c takes from Python, and what it gives. Nothing is copied.

A call takes, for each port, an object with __dlpack__ (PyTorch, JAX, CuPy, a Tensor of this
module), an array of NumPy (also with the dtypes of ml_dtypes), anything with Python's buffer
protocol, or a `View`. It must be contiguous and have the dtype and the shape of its port.
"""
from __future__ import annotations

import ctypes
import sys
from math import prod
from typing import Any, Iterable, NamedTuple, Sequence

from . import _header as h
from . import dlpack


class DType(NamedTuple):
    """A dtype: its name in texts, DLPack's code and bits, and NumPy's name for it (for its codes,
    if NumPy has no such dtype)."""
    name: str
    code: int
    bits: int
    numpy: str
    codes: bool = False


# In the order of fp8c_dtype.
DTYPES = (DType("f32", 2, 32, "float32"), DType("bf16", 4, 16, "uint16", True),
          DType("f16", 2, 16, "float16"), DType("i32", 0, 32, "int32"), DType("bool", 6, 8, "bool"),
          DType("f8e4m3", 10, 8, "uint8", True), DType("f8e5m2", 12, 8, "uint8", True),
          DType("f8e8m0", 14, 8, "uint8", True), DType("i64", 0, 64, "int64"))
BY_NAME = {d.name: d for d in DTYPES}
_BY_CODE = {(d.code, d.bits): d for d in DTYPES}
_ML_DTYPES = {"bfloat16": (4, 16), "float8_e4m3fn": (10, 8), "float8_e5m2": (12, 8),
              "float8_e8m0fnu": (14, 8)}
_KINDS = {"i": 0, "u": 1, "f": 2, "c": 5, "b": 6}  # of NumPy's dtypes -> DLPack's code
_FORMATS = {"f": (2, 32), "e": (2, 16), "d": (2, 64), "i": (0, 32), "?": (6, 8), "B": (1, 8),
            "b": (0, 8), "q": (0, 64), "h": (0, 16), "H": (1, 16), "I": (1, 32), "Q": (1, 64)}


class View:
    """One tensor as C takes it (fp8c_tensor_view), made once and used in many calls.

    address: of its first element. dtype: "f32", "bf16", ... shape: its sizes; it is contiguous.
    device: DLPack's (type, id); (1, 0) is the CPU. owner: kept alive with the view. `c` is the
    struct: `view.c.data = address` moves the view to other memory of that dtype and shape."""
    __slots__ = ("c", "owner", "read_only")

    def __init__(self, address: int, dtype: str, shape: Sequence[int],
                 device: tuple[int, int] = (dlpack.CPU, 0), owner: Any = None,
                 strides: Sequence[int] | None = None, read_only: bool = False):
        d = BY_NAME[dtype]
        self.c = _struct(address, (d.code, d.bits), shape, strides or _row_major(shape), device)
        self.owner = owner
        self.read_only = read_only

    @classmethod
    def of(cls, tensor: Any) -> "View":
        """A view of a tensor of any kind (see above). It keeps the tensor alive."""
        if isinstance(tensor, View):
            return tensor
        view = cls.__new__(cls)
        if isinstance(tensor, Tensor):
            view.c, view.read_only, view.owner = tensor.view.c, False, tensor
        elif _is_array(tensor):
            view.c, view.read_only = _of_array(tensor)
            view.owner = tensor
        elif hasattr(tensor, "__dlpack__"):
            view.c, view.read_only, view.owner = dlpack.take(tensor)
        else:
            view.c, view.read_only, view.owner = _of_buffer(tensor)
        return view

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.c.shape[:self.c.ndim])

    @property
    def dtype(self) -> str:
        d = _BY_CODE.get((self.c.dtype.code, self.c.dtype.bits))
        return d.name if d else f"DLPack's {self.c.dtype.code},{self.c.dtype.bits}"

    @property
    def device(self) -> tuple[int, int]:
        return self.c.device.type, self.c.device.id

    @property
    def contiguous(self) -> bool:
        if not self.c.strides:
            return True
        expected = 1
        for size, stride in zip(reversed(self.shape), reversed(self.c.strides[:self.c.ndim])):
            if size != 1 and stride != expected:
                return False
            expected *= size
        return True


class Views:
    """The tensors of one side of a call, made once: for the hot path.

    `views[i].c.data = address` puts tensor i elsewhere. Calls keep this object, and with it the
    owners of its views."""
    __slots__ = ("views", "c", "n", "read_only")

    def __init__(self, tensors: Iterable[Any]):
        self.views = [View.of(t) for t in tensors]
        self.n = len(self.views)
        self.c = (ctypes.c_void_p * max(self.n, 1))(*[ctypes.addressof(v.c) for v in self.views])
        self.read_only = next((i for i, v in enumerate(self.views) if v.read_only), None)

    def __len__(self) -> int:
        return self.n

    def __getitem__(self, index: int) -> View:
        return self.views[index]


class Tensor:
    """Memory that a program or this package owns, as a tensor: dtype, shape, device, address.

    It gives DLPack capsules, NumPy arrays over the same memory (`numpy()`, numpy.asarray), and is
    an input or output of calls. Whatever uses the memory keeps it alive, also after close() of its
    program."""
    __slots__ = ("view", "owner", "_ready", "__weakref__")

    def __init__(self, view: View, owner: Any = None, ready: Any = None):
        self.view = view
        self.owner = owner
        self._ready = ready  # called before others may read the memory

    @classmethod
    def empty(cls, dtype: str, shape: Sequence[int]) -> "Tensor":
        """A new tensor in host memory; its elements are zeros."""
        nbytes = prod(shape) * (BY_NAME[dtype].bits // 8)
        raw = ctypes.create_string_buffer(nbytes + 64)
        address = (ctypes.addressof(raw) + 63) & ~63
        return cls(View(address, dtype, shape, owner=raw), raw)

    @property
    def shape(self) -> tuple[int, ...]:
        return self.view.shape

    @property
    def dtype(self) -> str:
        return self.view.dtype

    @property
    def device(self) -> tuple[int, int]:
        """DLPack's (type, id): (1, 0) is the CPU, (2, N) is GPU N."""
        return self.view.device

    @property
    def address(self) -> int:
        return (self.view.c.data or 0) + self.view.c.byte_offset

    @property
    def nbytes(self) -> int:
        return prod(self.shape) * (self.view.c.dtype.bits // 8)

    def __repr__(self) -> str:
        return f"fp8c.Tensor({self.dtype}[{', '.join(map(str, self.shape))}], device={self.device})"

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.device

    def __dlpack__(self, *, stream: Any = None, max_version: tuple[int, int] | None = None,
                   dl_device: tuple[int, int] | None = None, copy: bool | None = None) -> Any:
        """A capsule over the same memory. A copy or another device is a BufferError."""
        if copy or (dl_device is not None and tuple(dl_device) != self.device):
            raise BufferError("fp8c.Tensor gives its memory as it is: no copy, no other device")
        if self._ready:
            self._ready()
        return dlpack.export(self.view.c, (self, self.owner), max_version)

    @property
    def __array_interface__(self) -> dict[str, Any]:
        dtype = BY_NAME[self.dtype]
        if self.device[0] == dlpack.CUDA or dtype.codes:
            raise AttributeError(f"{self!r} is no array of NumPy's")
        return self._interface(dtype)

    def _interface(self, dtype: DType) -> dict[str, Any]:
        if self._ready:
            self._ready()
        kind = {"bool": "|b", "int32": "<i", "int64": "<i", "uint8": "|u", "uint16": "<u"}.get(
            dtype.numpy, "<f")
        return {"shape": self.shape, "typestr": f"{kind}{dtype.bits // 8}", "version": 3,
                "data": (self.address, False)}

    def numpy(self) -> Any:
        """An array of NumPy over the same memory. TypeError: NumPy has no such dtype (`codes()`
        gives its codes), or the memory is a GPU's (read it from the program)."""
        if BY_NAME[self.dtype].codes:
            raise TypeError(f"NumPy has no dtype for {self!r}: use codes(), or DLPack")
        return self.codes()

    def codes(self) -> Any:
        """As numpy(), with the codes of bf16 as uint16 and those of FP8 as uint8."""
        import numpy
        if self.device[0] == dlpack.CUDA:
            raise TypeError(f"{self!r} is in a GPU's memory")
        return numpy.asarray(_Codes(self))


class _Codes:
    """A tensor's memory for numpy.asarray; the array keeps it."""

    def __init__(self, tensor: Tensor):
        self.tensor = tensor
        self.__array_interface__ = tensor._interface(BY_NAME[tensor.dtype])


_Sizes = [h.i64 * n for n in range(h.MAX_RANK + 1)]


def _struct(address: int | None, dtype: tuple[int, int], shape: Sequence[int],
            strides: Sequence[int] | None, device: tuple[int, int]) -> h.TensorView:
    """strides None: contiguous."""
    n = len(shape)
    sizes = _Sizes[n] if n <= h.MAX_RANK else h.i64 * n
    view = h.TensorView(address, device, n, (*dtype, 1), sizes(*shape))
    if strides is not None:
        view.strides = sizes(*strides)
    return view


def _row_major(shape: Sequence[int]) -> list[int]:
    strides = [1] * len(shape)
    for i in range(len(shape) - 1, 0, -1):
        strides[i - 1] = strides[i] * shape[i]
    return strides


def _is_array(tensor: Any) -> bool:
    numpy = sys.modules.get("numpy")
    return numpy is not None and isinstance(tensor, numpy.ndarray)


def _of_array(array: Any) -> tuple[h.TensorView, bool]:
    code = _array_codes.get(array.dtype) or _array_code(array.dtype)
    flags, strides = array.flags, None
    if not flags.c_contiguous:
        if any(s % array.itemsize for s in array.strides):
            raise ValueError("the strides of an array are no multiples of its elements' size")
        strides = [s // array.itemsize for s in array.strides]
    address = array.__array_interface__["data"][0]
    return _struct(address, code, array.shape, strides, (dlpack.CPU, 0)), not flags.writeable


_array_codes: dict[Any, tuple[int, int]] = {}  # by NumPy's dtype


def _array_code(dtype: Any) -> tuple[int, int]:
    """DLPack's code and bits of a dtype of NumPy's. The call says which it takes."""
    code = _ML_DTYPES.get(dtype.name)
    if code is None:
        if dtype.kind not in _KINDS:
            raise TypeError(f"fp8c takes no array of dtype {dtype}")
        code = _KINDS[dtype.kind], 8 * dtype.itemsize
    if not dtype.isnative:
        raise TypeError(f"fp8c takes arrays in the machine's byte order, not {dtype.str}")
    _array_codes[dtype] = code
    return code


class _PyBuffer(ctypes.Structure):
    _fields_ = [("buf", h.ptr), ("obj", h.ptr), ("len", ctypes.c_ssize_t),
                ("itemsize", ctypes.c_ssize_t), ("readonly", ctypes.c_int), ("ndim", ctypes.c_int),
                ("format", h.text), ("shape", h.ptr), ("strides", h.ptr), ("suboffsets", h.ptr),
                ("internal", h.ptr)]


_get_buffer = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.POINTER(_PyBuffer),
                                ctypes.c_int)(("PyObject_GetBuffer", ctypes.pythonapi))
_RECORDS_RO = 0x1c  # strides and format, and it may be read-only
_release_buffer = ctypes.PYFUNCTYPE(None, ctypes.POINTER(_PyBuffer))(
    ("PyBuffer_Release", ctypes.pythonapi))


def _of_buffer(tensor: Any) -> tuple[h.TensorView, bool, Any]:
    try:
        memory = memoryview(tensor)
    except TypeError:
        raise TypeError(f"fp8c takes tensors with __dlpack__, arrays of NumPy and buffers, not "
                        f"{type(tensor).__name__}") from None
    dtype = _FORMATS.get(memory.format.lstrip("@=<"))
    if dtype is None or memory.itemsize * 8 != dtype[1]:
        raise TypeError(f"fp8c takes no buffer of format {memory.format!r}")
    buffer = _PyBuffer()
    _get_buffer(memory, buffer, _RECORDS_RO)
    address = buffer.buf
    _release_buffer(buffer)  # `memory` holds the buffer as well
    strides = [s // memory.itemsize for s in memory.strides or ()]
    view = _struct(address, dtype, memory.shape or (), strides, (dlpack.CPU, 0))
    return view, memory.readonly, memory
