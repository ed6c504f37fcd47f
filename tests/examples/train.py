"""A Python program that embeds fp8c with nothing but ctypes and NumPy.

Trains on NumPy's own arrays: fp8c_program_call takes their memory, and a view of a parameter is an array over the
program's memory; nothing is copied. The losses fall, a second run gives the same bits, and what does not fit is an
exception with fp8c's message.

usage: train.py LIBFP8C"""
import ctypes as c
import sys

try:
    import numpy as np
except ImportError:
    print("skipped: the Python program: no NumPy in this Python (Debian package python3-numpy)")
    sys.exit(0)

INPUT, OUTPUT = 0, 1
T, V, STEPS = 64, 96, 60
TEXT = b"""module mlp
dim T = 64, C = 32, V = 96
param wte: f32[V, C] normal(0.2)
param up: f32[C, 4*C] normal(0.1)
param down: f32[4*C, C] normal(0.1)
func forward(%tokens: i32[T], %targets: i32[T]) -> (%loss: f32[]) {
  %x = embedding(wte, %tokens)
  %y = add(%x, linear(gelu(linear(%x, up)), down))
  return cross_entropy(linear(%y, wte) {transpose_b = true, name = "head"}, %targets)
}
optimizer adamw {lr = 0.01}
recipe "head" = bf16
"""


class Device(c.Structure):
    _fields_ = [("type", c.c_int32), ("id", c.c_int32)]


class DType(c.Structure):
    _fields_ = [("code", c.c_uint8), ("bits", c.c_uint8), ("lanes", c.c_uint16)]


class View(c.Structure):
    """fp8c_tensor_view, which is DLPack's DLTensor."""
    _fields_ = [("data", c.c_void_p), ("device", Device), ("ndim", c.c_int32), ("dtype", DType),
                ("shape", c.POINTER(c.c_int64)), ("strides", c.POINTER(c.c_int64)), ("byte_offset", c.c_uint64)]


class Options(c.Structure):
    """The first fields of fp8c_compile_options: struct_size says how many there are."""
    _fields_ = [("struct_size", c.c_size_t), ("target", c.c_char_p), ("recipe", c.c_char_p), ("threads", c.c_int32)]


CODES = {np.dtype(np.float32): (2, 32), np.dtype(np.int32): (0, 32)}


def view_of(array):
    """A view of an array's memory, with its strides; the array must outlive it."""
    shape = (c.c_int64 * array.ndim)(*array.shape)
    strides = (c.c_int64 * array.ndim)(*(s // array.itemsize for s in array.strides))
    code, bits = CODES[array.dtype]
    return View(array.ctypes.data, Device(1, 0), array.ndim, DType(code, bits, 1), shape, strides, 0)


def array_of(view):
    """An array over a view's memory."""
    dtype = {codes: d for d, codes in CODES.items()}[view.dtype.code, view.dtype.bits]
    shape = tuple(view.shape[i] for i in range(view.ndim))
    count = int(np.prod(shape, dtype=np.int64))
    buffer = (c.c_char * (count * dtype.itemsize)).from_address(view.data + view.byte_offset)
    return np.frombuffer(buffer, dtype).reshape(shape)


class Fp8cError(Exception):
    pass


class Library:
    def __init__(self, path):
        self.c = c.CDLL(path)
        self.c.fp8c_version.restype = c.c_char_p
        self.c.fp8c_context_message.restype = c.c_char_p
        self.c.fp8c_context_message.argtypes = [c.c_void_p]
        for name in ("context", "module", "program"):
            destroy = getattr(self.c, f"fp8c_{name}_destroy")
            destroy.restype, destroy.argtypes = None, [c.c_void_p]
        self.c.fp8c_program_initialize.argtypes = [c.c_void_p, c.c_uint64]
        self.c.fp8c_program_run.argtypes = [c.c_void_p, c.c_int]
        self.context = c.c_void_p()
        self.must(self.c.fp8c_context_create(None, c.byref(self.context)))

    def must(self, status):
        if status:
            raise Fp8cError((self.c.fp8c_context_message(self.context) or b"no context").decode())

    def close(self):
        self.c.fp8c_context_destroy(self.context)


class Program:
    def __init__(self, library, text, recipe):
        self.lib, self.handle = library, c.c_void_p()
        module = c.c_void_p()
        library.must(library.c.fp8c_module_parse(library.context, text, c.c_size_t(len(text)), b"mlp.f8", None,
                                                 c.c_size_t(0), c.byref(module)))
        options = Options(c.sizeof(Options), None, recipe, 1)
        try:
            library.must(library.c.fp8c_compile(module, c.byref(options), c.byref(self.handle)))
        finally:
            library.c.fp8c_module_destroy(module)
        library.must(library.c.fp8c_program_initialize(self.handle, 1))

    def function(self, name):
        return self.lib.c.fp8c_program_function(self.handle, name)

    def call(self, function, inputs, outputs):
        """Arrays in, arrays out, none of them copied."""
        views = [view_of(a) for a in inputs + outputs]
        pointers = [c.pointer(v) for v in views]
        n = len(inputs)
        ins = (c.POINTER(View) * n)(*pointers[:n])
        outs = (c.POINTER(View) * len(outputs))(*pointers[n:])
        self.lib.must(self.lib.c.fp8c_program_call(self.handle, c.c_int(function), ins, c.c_size_t(n), outs,
                                                   c.c_size_t(len(outputs))))

    def run(self, function):
        self.lib.must(self.lib.c.fp8c_program_run(self.handle, function))

    def variable(self, name):
        """A parameter or state as an array over the program's memory."""
        view = View()
        index = self.lib.c.fp8c_program_find_variable(self.handle, name)
        self.lib.must(self.lib.c.fp8c_program_variable_view(self.handle, c.c_int(index), c.byref(view)))
        return array_of(view)

    def close(self):
        self.lib.c.fp8c_program_destroy(self.handle)


def train(library, recipe):
    program = Program(library, TEXT, recipe)
    step, update = program.function(b"micro_step"), program.function(b"update")
    tokens, targets = np.zeros(T, np.int32), np.zeros(T, np.int32)
    loss, losses = np.zeros((), np.float32), []
    wte = program.variable(b"wte")
    before = wte.copy()
    for i in range(STEPS):
        tokens[:] = (13 * i + 5 * np.arange(T)) % V
        targets[:] = (tokens + 7) % V
        program.call(step, [tokens, targets], [loss])
        program.run(update)
        losses.append(loss.copy())
    assert wte.shape == (V, 32) and not np.array_equal(wte, before), "wte is no view of the program's memory"

    # The embedder may write parameters where they lie: with a head of zeros all tokens are as likely.
    wte[:] = 0
    program.call(step, [tokens, targets], [loss])
    assert abs(float(loss) - np.log(V)) < 1e-4, float(loss)  # f32 sums of 96 equal terms: 96 ulps of 4.56 are 5e-5

    # What does not fit is refused with its name, and nothing has run.
    def refused(arrays, *words):
        try:
            program.call(step, arrays, [loss])
        except Fp8cError as e:
            assert all(w in str(e) for w in words), str(e)
        else:
            raise AssertionError(f"{words} were not refused")

    refused([tokens, targets.astype(np.float32)], "targets", "f32", "i32")
    refused([tokens[:32], targets], "tokens", "32", "64")
    refused([np.zeros(2 * T, np.int32)[::2], targets], "tokens", "contiguous")
    program.close()
    return np.array(losses)


def main():
    library = Library(sys.argv[1])
    print("fp8c", library.c.fp8c_version().decode(), "NumPy", np.__version__)
    for recipe in (b"bf16", b"delayed"):
        first, second = train(library, recipe), train(library, recipe)
        print(f"{recipe.decode()}: loss {first[0]:.4f} -> {first[-1]:.4f}")
        assert first[-1] < first[0] / 2, "the loss does not fall"
        assert first.tobytes() == second.tobytes(), "the second run differs"
    library.close()
    print("ok")


main()
