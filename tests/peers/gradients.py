"""Gradients of a pair of forward and backward beside PyTorch's autograd, in f32, for every kind of input.

usage: python3 tests/peers/gradients.py BUILD/libfp8c.so     needs the packages torch, numpy

A case is a text and the same function in PyTorch. Parameters, inputs and cotangents are random. Compared are the
results, the gradients of all float inputs (`gradients_of`) and those of the parameters, through a handle and through
named ports. An integer input has none, a result without a cotangent counts as a constant.
"""
import ctypes as c
import math
import sys

import numpy as np
import torch
from torch.nn import functional as F

SEED = 1
NEAR = 2e-5  # float32 sums in another order, of the largest element
NARROW = {torch.bfloat16: 2**-8, torch.float16: 2**-11}  # rounded once more, from sums that may differ
INPUT, OUTPUT = 0, 1


# ---- the C API ----

class Type(c.Structure):
    _fields_ = [("dtype", c.c_int), ("rank", c.c_int32), ("dim", c.c_int64 * 8)]


class Port(c.Structure):
    _fields_ = [("name", c.c_char_p), ("type", Type), ("variable", c.c_int32)]


class View(c.Structure):
    """fp8c_tensor_view, which is DLPack's DLTensor."""
    _fields_ = [("data", c.c_void_p), ("device", c.c_int32 * 2), ("ndim", c.c_int32), ("code", c.c_uint8),
                ("bits", c.c_uint8), ("lanes", c.c_uint16), ("shape", c.POINTER(c.c_int64)),
                ("strides", c.POINTER(c.c_int64)), ("byte_offset", c.c_uint64)]


class Options(c.Structure):
    """fp8c_compile_options up to gradients_of."""
    _fields_ = [("struct_size", c.c_size_t), ("target", c.c_char_p), ("recipe", c.c_char_p)]
    _fields_ += [(name, c.c_int32) for name in ("threads", "no_fuse", "inference", "pair", "profile")]
    _fields_ += [("lr", c.c_double), ("optimizer_steps", c.c_int64), ("keep", c.c_char_p), ("print_after", c.c_char_p),
                 ("write", c.c_void_p), ("write_user", c.c_void_p)]
    _fields_ += [(name, c.c_int32) for name in ("no_device", "device", "listings", "text_only")]
    _fields_ += [(name, c.c_void_p) for name in ("stream", "device_alloc", "device_free", "device_user")]
    _fields_ += [("attention", c.c_char_p), ("calibration", c.c_void_p), ("stored", c.c_char_p),
                 ("stored_weights", c.c_void_p), ("n_stored_weights", c.c_size_t), ("memory_bytes", c.c_int64),
                 ("memory_share", c.c_double), ("checkpoint", c.c_char_p), ("recompute", c.c_char_p),
                 ("plan_only", c.c_int32), ("values", c.c_char_p), ("observe", c.c_int32), ("cotangents", c.c_char_p),
                 ("gradients_of", c.c_char_p)]


# by fp8c_dtype: NumPy's dtype for the bytes, DLPack's code and bits
DTYPES = [(np.float32, 2, 32), (np.uint16, 4, 16), (np.float16, 2, 16), (np.int32, 0, 32), (np.uint8, 6, 8),
          (np.uint8, 10, 8), (np.uint8, 12, 8), (np.uint8, 14, 8)]


class Program:
    def __init__(self, library, text, cotangents, inputs):
        self.c = library
        self.context, module, self.handle = c.c_void_p(), c.c_void_p(), c.c_void_p()
        library.fp8c_context_message.restype = c.c_char_p
        self.must(library.fp8c_context_create(None, c.byref(self.context)))
        self.must(library.fp8c_module_parse(self.context, text, c.c_size_t(len(text)), b"gradients.f8", None,
                                            c.c_size_t(0), c.byref(module)))
        options = Options(struct_size=c.sizeof(Options), recipe=b"f32", threads=1, pair=1, cotangents=cotangents,
                          gradients_of=inputs)
        self.must(library.fp8c_compile(module, c.byref(options), c.byref(self.handle)))
        library.fp8c_module_destroy(module)
        self.must(library.fp8c_program_initialize(self.handle, c.c_uint64(SEED)))

    def must(self, status):
        if status:
            raise RuntimeError(self.c.fp8c_context_message(self.context).decode())

    def write(self, name, array):
        index = self.c.fp8c_program_find_variable(self.handle, name.encode())
        assert index >= 0, name
        self.must(self.c.fp8c_program_write(self.handle, c.c_int(index), c.c_void_p(array.ctypes.data)))

    def tensors(self, function, side, known):
        """Arrays for the ports that are the caller's, by name and in order: known ones, or new ones."""
        found, port, i = {}, Port(), 0
        while self.c.fp8c_program_port(self.handle, c.c_int(function), c.c_int(side), c.c_int(i), c.byref(port)) == 0:
            i += 1
            if port.variable >= 0:
                continue
            dtype, code, bits = DTYPES[port.type.dtype]
            array = known.get(port.name.decode())
            if array is None:
                array = np.zeros(tuple(port.type.dim[:port.type.rank]), dtype)
            found[port.name.decode()] = (array, code, bits)
        return found

    @staticmethod
    def views(tensors, handle):
        used = [t for name, t in tensors.items() if not (handle and name.startswith("saved."))]
        views = [View(a.ctypes.data, (c.c_int32 * 2)(1, 0), a.ndim, code, bits, 1,
                      (c.c_int64 * a.ndim)(*a.shape), None, 0)
                 for a, code, bits in used]
        return (c.POINTER(View) * len(views))(*(c.pointer(v) for v in views)), c.c_size_t(len(views))

    def run(self, name, known, saved):
        """Call a function of the pair with these arrays; its results by name."""
        function = self.c.fp8c_program_function(self.handle, name)
        assert function >= 0, name
        inputs, outputs = self.tensors(function, INPUT, known), self.tensors(function, OUTPUT, {})
        sides = (*self.views(inputs, saved), *self.views(outputs, saved))
        if not saved:
            self.must(self.c.fp8c_program_call(self.handle, c.c_int(function), *sides))
        elif name == b"forward":
            self.must(self.c.fp8c_program_forward(self.handle, c.c_int32(0), saved, *sides))
        else:
            self.must(self.c.fp8c_program_backward(self.handle, saved, *sides))
        return {name: array for name, (array, _, _) in outputs.items()}

    def pair(self, inputs, cotangents, with_handle):
        saved = c.c_void_p()
        if with_handle:
            self.must(self.c.fp8c_saved_create(self.handle, c.byref(saved)))
        results = self.run(b"forward", inputs, saved)
        known = inputs | cotangents | {k: v for k, v in results.items() if k.startswith("saved.")}
        gradients = self.run(b"backward", known, saved)
        self.c.fp8c_saved_destroy(saved)
        return results, gradients

    def close(self):
        self.c.fp8c_program_destroy(self.handle)
        self.c.fp8c_context_destroy(self.context)


# ---- the cases ----

def heads(x, n):
    return x.view(x.shape[0], x.shape[1], n, -1).transpose(1, 2)


def attention(q, k, v, mask=None):
    y = F.scaled_dot_product_attention(heads(q, 4), heads(k, 2).repeat_interleave(2, 1),
                                       heads(v, 2).repeat_interleave(2, 1), mask, is_causal=mask is None)
    return y.transpose(1, 2).reshape(q.shape)


def random_bits(a, b, c):
    """The op of that name: the third word of pcg3d, as an unsigned number."""
    v = [(x * 1664525 + 1013904223) & 0xffffffff for x in (a, b, c)]
    for turn in range(2):
        v[0] = (v[0] + v[1] * v[2]) & 0xffffffff
        v[1] = (v[1] + v[2] * v[0]) & 0xffffffff
        v[2] = (v[2] + v[0] * v[1]) & 0xffffffff
        v = [x ^ x >> 16 for x in v] if turn == 0 else v
    return v[2]


def attention_with_dropout(q, k, v, seed, stream, p):
    """Four heads; torch's dropout with the mask that fp8c's attention has."""
    s = (heads(q, 4) @ heads(k, 4).mT / math.sqrt(q.shape[-1] // 4)).softmax(-1)
    key, n = random_bits(int(seed), stream, 0), s.shape[-1]
    kept = [(random_bits(i % n, i // n, key) + 2**31) % 2**32 >= int(p * 2**32) for i in range(s.numel())]
    y = s * torch.tensor(kept, dtype=s.dtype).view(s.shape) / (1 - p) @ heads(v, 4)
    return y.transpose(1, 2).reshape(q.shape)


def rms(x, w):
    return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-5) * w


def block(v):
    r = v.x + attention(*(rms(v.x, v["ln_1"]) @ v["qkv"] + v["qkv.bias"]).split([32, 16, 16], -1))
    return r + F.gelu(rms(r, v["ln_2"]) @ v["up"], approximate="tanh") @ v["down"]


def mixed(v):
    a = v.x.float()
    y = (a @ v.p) * v.h.float()
    return {"y": (y + a).bfloat16(), "z": (y * a).half()}


class Case:
    """params, ints: shapes by name; inputs: likewise, of float inputs; cotangents: of which results, else of all;
    narrow: dtypes of inputs and results that are not f32."""

    def __init__(self, name, text, torch_function, inputs, params=None, ints=None, cotangents=None, narrow=None):
        self.name, self.text, self.torch_function, self.inputs = name, text, torch_function, inputs
        self.params, self.ints, self.cotangents, self.narrow = params or {}, ints or {}, cotangents, narrow or {}


CASES = [
    Case("matrices",
         "func forward(%a: f32[24, 40], %b: f32[40, 16]) -> (%y: f32[24, 16]) {\n  return matmul(%a, %b)\n}\n",
         lambda v: {"y": v.a @ v.b}, {"a": (24, 40), "b": (40, 16)}),
    Case("transposed matrices",
         "func forward(%a: f32[40, 24], %b: f32[16, 40]) -> (%y: f32[24, 16]) {\n"
         "  return matmul(%a, %b) {transpose_a = true, transpose_b = true}\n}\n",
         lambda v: {"y": v.a.T @ v.b.T}, {"a": (40, 24), "b": (16, 40)}),
    Case("matrices of a batch",
         "func forward(%a: f32[2, 3, 24, 40], %b: f32[2, 3, 40, 16]) -> (%y: f32[2, 3, 24, 16]) {\n"
         "  return batch_matmul(%a, %b)\n}\n",
         lambda v: {"y": v.a @ v.b}, {"a": (2, 3, 24, 40), "b": (2, 3, 40, 16)}),
    Case("transposed matrices of a batch that broadcast",
         "func forward(%a: f32[3, 1, 40, 24], %b: f32[2, 16, 40], %c: f32[24, 16]) -> (%y: f32[3, 2, 24, 24]) {\n"
         "  %s = batch_matmul(%a, %b) {transpose_a = true, transpose_b = true}\n"
         "  return batch_matmul(tanh(%s), %c) {transpose_b = true}\n}\n",
         lambda v: {"y": torch.tanh(v.a.mT @ v.b.mT) @ v.c.mT}, {"a": (3, 1, 40, 24), "b": (2, 16, 40), "c": (24, 16)}),
    Case("attention written out",
         "func forward(%q: f32[2, 4, 12, 8], %k: f32[2, 1, 7, 8], %v: f32[2, 4, 7, 8]) -> (%y: f32[2, 4, 12, 8]) {\n"
         "  return batch_matmul(softmax(batch_matmul(%q, %k) {transpose_b = true}), %v)\n}\n",
         lambda v: {"y": torch.softmax(v.q @ v.k.mT, -1) @ v["v"]},
         {"q": (2, 4, 12, 8), "k": (2, 1, 7, 8), "v": (2, 4, 7, 8)}),
    Case("a weight and a bias as inputs",
         "func forward(%x: f32[4, 8, 32], %w: f32[32, 48], %b: f32[48]) -> (%y: f32[4, 8, 48]) {\n"
         "  return linear(tanh(%x), %w, %b) {name = \"fc\"}\n}\n",
         lambda v: {"y": torch.tanh(v.x) @ v.w + v.b}, {"x": (4, 8, 32), "w": (32, 48), "b": (48,)}),
    Case("one weight for two linears",
         "func forward(%x: f32[16, 32], %w: f32[32, 32]) -> (%y: f32[16, 32]) {\n"
         "  return linear(gelu(linear(%x, %w) {name = \"up\"}), %w) {name = \"down\", transpose_b = true}\n}\n",
         lambda v: {"y": F.gelu(v.x @ v.w, approximate="tanh") @ v.w.T}, {"x": (16, 32), "w": (32, 32)}),
    Case("two results, an input twice, a scalar, a column, one that nothing reads",
         "func forward(%x: f32[6, 20], %s: f32[], %c: f32[6, 1], %idle: f32[3])\n"
         "  -> (%y: f32[6, 20], %z: f32[6, 1]) {\n"
         "  %t = mul(mul(%x, %x), %s)\n  return sub(%t, %c), reduce_sum(exp(mul(%x, %c)))\n}\n",
         lambda v: {"y": v.x * v.x * v.s - v.c, "z": torch.exp(v.x * v.c).sum(-1, keepdim=True)},
         {"x": (6, 20), "s": (), "c": (6, 1), "idle": (3,)}),
    Case("an unused result, an integer one, an input that is a result",
         "param p: f32[20] ones\nfunc forward(%x: f32[6, 20], %i: i32[6])\n"
         "  -> (%y: f32[6, 20], %unused: f32[6, 20], %j: i32[6], %same: f32[6, 20]) {\n"
         "  return silu(mul(%x, p)), exp(mul(%x, p)), add(%i, 1), %x\n}\n",
         lambda v: {"y": F.silu(v.x * v.p), "unused": torch.exp(v.x * v.p), "same": v.x}, {"x": (6, 20)}, {"p": (20,)},
         {"i": (6,)}, b"y,same"),
    Case("norms whose weights are inputs",
         "func forward(%x: f32[10, 32], %w: f32[32], %b: f32[32], %g: f32[32]) -> (%y: f32[10, 32]) {\n"
         "  return rmsnorm(layernorm(%x, %w, %b), %g)\n}\n",
         lambda v: {"y": rms(F.layer_norm(v.x, (32,), v.w, v.b, 1e-5), v.g)},
         {"x": (10, 32), "w": (32,), "b": (32,), "g": (32,)}),
    Case("queries, keys and values",
         "func forward(%q: f32[2, 12, 32], %k: f32[2, 12, 16], %v: f32[2, 12, 16]) -> (%y: f32[2, 12, 32]) {\n"
         "  return attention(%q, %k, %v) {heads = 4, kv_heads = 2}\n}\n",
         lambda v: {"y": attention(v.q, v.k, v["v"])}, {"q": (2, 12, 32), "k": (2, 12, 16), "v": (2, 12, 16)}),
    Case("causal attention with fewer keys, and with more",
         "func forward(%q: f32[2, 12, 32], %k: f32[2, 7, 16], %l: f32[2, 15, 16]) -> (%y: f32[2, 12, 32]) {\n"
         "  return add(attention(%q, %k, %k) {heads = 4, kv_heads = 2},\n"
         "             attention(%q, %l, %l) {heads = 4, kv_heads = 2})\n}\n",
         lambda v: {"y": attention(v.q, v.k, v.k) + attention(v.q, v.l, v.l)},
         {"q": (2, 12, 32), "k": (2, 7, 16), "l": (2, 15, 16)}),
    Case("masks: the last keys of a sequence hidden, and values added to scores",
         "func forward(%q: f32[2, 12, 32], %k: f32[2, 7, 16], %v: f32[2, 7, 16], %m: i32[2, 1, 1, 7])\n"
         "  -> (%y: f32[2, 12, 32]) {\n"
         "  %added = mul(cast(%m) {to = f32}, 0.125)\n"
         "  return add(attention(%q, %k, %v, lt(%m, 12)) {heads = 4, kv_heads = 2, causal = false},\n"
         "             attention(%q, %k, %v, %added) {heads = 4, kv_heads = 2, causal = false})\n}\n",
         lambda v: {"y": attention(v.q, v.k, v["v"], v.m < 12) + attention(v.q, v.k, v["v"], (v.m * 0.125).to(v.q.dtype))},
         {"q": (2, 12, 32), "k": (2, 7, 16), "v": (2, 7, 16)}, {}, {"m": (2, 1, 1, 7)}),
    Case("attention with dropout",
         "func forward(%q: f32[2, 12, 32], %k: f32[2, 7, 32], %v: f32[2, 7, 32], %s: i32[])\n"
         "  -> (%y: f32[2, 12, 32]) {\n"
         "  return attention(%q, %k, %v, %s) {heads = 4, causal = false, dropout = 0.2, stream = 9}\n}\n",
         lambda v: {"y": attention_with_dropout(v.q, v.k, v["v"], v.s, 9, 0.2)},
         {"q": (2, 12, 32), "k": (2, 7, 32), "v": (2, 7, 32)}, {}, {"s": ()}),
    Case("a table of embeddings, and a loss",
         "param head: f32[32, 16] ones\nfunc forward(%table: f32[16, 32], %i: i32[4, 9], %t: i32[4, 9])\n"
         "  -> (%loss: f32[]) {\n"
         "  return cross_entropy(linear(embedding(%table, %i), head), %t)\n}\n",
         lambda v: {"loss": F.cross_entropy((F.embedding(v.i.long(), v.table) @ v.head).view(36, 16),
                                            v.t.long().view(36))},
         {"table": (16, 32)}, {"head": (32, 16)}, {"i": (4, 9), "t": (4, 9)}),
    Case("rows that are ignored, smoothed labels, padding",
         "param head: f32[32, 16] ones\nfunc forward(%table: f32[16, 32], %i: i32[4, 9], %t: i32[4, 9])\n"
         "  -> (%loss: f32[]) {\n"
         "  return cross_entropy(linear(embedding(%table, %i) {padding = 3}, head), %t) {ignore = 5, "
         "label_smoothing = 0.1}\n}\n",
         lambda v: {"loss": F.cross_entropy((F.embedding(v.i.long(), v.table, padding_idx=3) @ v.head).view(36, 16),
                                            v.t.long().view(36), ignore_index=5, label_smoothing=0.1)},
         {"table": (16, 32)}, {"head": (32, 16)}, {"i": (4, 9), "t": (4, 9)}),
    Case("bf16 and f16 inputs and results",
         "param p: f32[32, 32] ones\n"
         "func forward(%x: bf16[8, 32], %h: f16[8, 32]) -> (%y: bf16[8, 32], %z: f16[8, 32]) {\n"
         "  %a = cast(%x) {to = f32}\n  %b = cast(%h) {to = f32}\n  %c = mul(linear(%a, p), %b)\n"
         "  return cast(add(%c, %a)) {to = bf16}, cast(mul(%c, %a)) {to = f16}\n}\n",
         mixed, {"x": (8, 32), "h": (8, 32)}, {"p": (32, 32)},
         narrow={"x": torch.bfloat16, "y": torch.bfloat16, "h": torch.float16, "z": torch.float16}),
    Case("a block of a transformer",
         "param ln_1: f32[32] ones\nparam ln_2: f32[32] ones\n"
         "param qkv: f32[32, 64] ones\nparam qkv.bias: f32[64] ones\n"
         "param up: f32[32, 96] ones\nparam down: f32[96, 32] ones\n"
         "func forward(%x: f32[2, 12, 32]) -> (%y: f32[2, 12, 32]) {\n"
         "  %n = linear(rmsnorm(%x, ln_1), qkv, qkv.bias)\n"
         "  %a = attention(slice(%n) {stop = 32}, slice(%n) {start = 32, stop = 48},\n"
         "    slice(%n) {start = 48, stop = 64})\n"
         "    {heads = 4, kv_heads = 2}\n"
         "  %r = add(%x, %a)\n"
         "  return add(%r, linear(gelu(linear(rmsnorm(%r, ln_2), up)) {approximate = \"tanh\"}, down))\n}\n",
         lambda v: {"y": block(v)}, {"x": (2, 12, 32)},
         {"ln_1": (32,), "qkv": (32, 64), "qkv.bias": (64,), "ln_2": (32,), "up": (32, 96), "down": (96, 32)}),
]


# ---- comparing ----

class Values(dict):
    """Tensors by name; v.x is v["x"]."""
    __getattr__ = dict.__getitem__


def array_of(tensor):
    """A tensor's values as the C API has them: the bits of bf16."""
    tensor = tensor.detach()
    return tensor.view(torch.int16).numpy().view(np.uint16) if tensor.dtype == torch.bfloat16 else tensor.numpy()


def near(case, what, got, want):
    """How far `got` is off, as a share of the largest element."""
    want, bound = want.detach(), NARROW.get(want.dtype, NEAR)
    assert got.shape == tuple(want.shape), (case.name, what, got.shape, want.shape)
    assert got.dtype == array_of(want).dtype, (case.name, what, got.dtype, want.dtype)
    if want.dtype == torch.bfloat16:
        got = (got.astype(np.uint32) << 16).view(np.float32)
    want = want.float().numpy()
    off = np.abs(got.astype(np.float32) - want).max() / (np.abs(want).max() or 1)
    assert off < bound, f"{case.name}: {what} is {off:.1e} off"
    return off / bound


def check(library, case):
    rng = np.random.default_rng(SEED)

    def random(name, shape):
        value = torch.tensor(0.5 * rng.standard_normal(shape), dtype=case.narrow.get(name, torch.float32))
        return value.requires_grad_()

    values = Values({name: random(name, shape) for name, shape in (case.inputs | case.params).items()})
    values |= {name: torch.tensor(rng.integers(0, 16, shape, np.int32)) for name, shape in case.ints.items()}
    want = case.torch_function(values)
    named = case.cotangents.decode().split(",") if case.cotangents else list(want)
    cotangents = {name: random(name, want[name].shape).detach() for name in named}
    leaves = [*case.inputs, *case.params]
    gradients_there = torch.autograd.grad([want[name] for name in named], [values[name] for name in leaves],
                                          list(cotangents.values()), allow_unused=True)
    expected = {(name if name in case.params else f"d{name}"): torch.zeros_like(values[name]) if d is None else d
                for name, d in zip(leaves, gradients_there)}
    program = Program(library, b"module gradients\n" + case.text.encode(), case.cotangents, b"*")
    for name in case.params:
        program.write(name, array_of(values[name]))
    inputs = {name: array_of(values[name]) for name in [*case.inputs, *case.ints]}
    most = 0
    for with_handle in (True, False):
        cotangents_here = {f"d{name}": array_of(d) for name, d in cotangents.items()}
        results, gradients = program.pair(inputs, cotangents_here, with_handle)
        assert set(gradients) == set(expected), (case.name, sorted(gradients), sorted(expected))
        most = max(most, *(near(case, f"result {name}", results[name], value) for name, value in want.items()),
                   *(near(case, f"gradient {name}", gradients[name], d) for name, d in expected.items()))
    program.close()
    print(f"{case.name}: {len(want)} results, {len(leaves)} gradients, at most {100 * most:.0f}% of the bound off")


def main():
    library = c.CDLL(sys.argv[1])
    torch.set_num_threads(1)
    for case in CASES:
        check(library, case)


if __name__ == "__main__":
    main()
