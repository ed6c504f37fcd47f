"""Frozen linears whose weights are FP8 codes: the bits, the files, training over them, and misuse."""

from __future__ import annotations

import copy
import io
import json
import os
import subprocess
import tempfile
import unittest
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch.nn import functional

import fp8c
import fp8c.torch
from fp8c.torch import StoredLinear, store_frozen
from support import BackendTest

COMMAND = os.path.join(os.path.dirname(os.environ["FP8C_LIBRARY"]), "fp8c")
RECIPES = ("block", "rowwise", "current", "mxfp8", "block {pow2 = true}")
SIZES = ((300, 200), (128, 256), (1, 70), (257, 1), (3, 5))  # [out, in]


def command(*args: str, ok: bool = True) -> str:
    made = subprocess.run([COMMAND, *args], capture_output=True, text=True, check=False)
    if ok and made.returncode:
        raise AssertionError(made.stdout + made.stderr)
    return made.stdout + made.stderr


def frozen_linear(size: tuple[int, int], seed: int = 0, bias: bool = True) -> torch.nn.Linear:
    torch.manual_seed(seed)
    linear = torch.nn.Linear(size[1], size[0], bias=bias)
    with torch.no_grad():
        linear.weight *= torch.exp(torch.randn(size[0], 1))  # rows of several magnitudes
    return linear.requires_grad_(False)


def chain(widths: tuple[int, ...] = (200, 300, 130), seed: int = 0) -> torch.nn.Module:
    """Frozen linears one after the other."""
    return torch.nn.Sequential(*[frozen_linear((b, a), seed + i)
                                 for i, (a, b) in enumerate(zip(widths, widths[1:]))])


def bits(tensor: torch.Tensor) -> list[int]:
    flat = tensor.detach().contiguous().reshape(-1)
    return flat.view(torch.int32 if tensor.dtype is torch.float32 else torch.uint8).tolist()


def exported(weight: torch.Tensor, recipe: str) -> dict[str, torch.Tensor]:
    """What `fp8c export` writes of a weight."""
    out, across = weight.shape
    text = (f"module one\nparam fc.weight: f32[{out}, {across}] zeros\n"
            f"func forward(%x: f32[2, {across}]) -> (%y: f32[2, {out}]) {{\n"
            "  %r = linear(%x, fc.weight) {transpose_b = true}\n  return %r\n}\n")
    with tempfile.TemporaryDirectory() as folder:
        model, weights, made = (os.path.join(folder, name) for name in ("m.f8", "w.safetensors", "o.safetensors"))
        with open(model, "w", encoding="utf-8") as file:
            file.write(text)
        save_file({"fc.weight": weight.detach().clone()}, weights)
        command("export", model, "--weights", weights, "--recipe", recipe, "-o", made)
        return load_file(made)


class Quantizing(unittest.TestCase):
    def test_bits(self) -> None:
        """Codes and scales are those that `fp8c export` writes, under the same names, also of ragged blocks and
        of one row or column."""
        for recipe in RECIPES:
            for size in SIZES:
                with self.subTest(recipe=recipe, size=size):
                    linear = frozen_linear(size)
                    wanted = exported(linear.weight, recipe)
                    store_frozen(linear, recipe)
                    found = {f"fc.{name}": one for name, one in linear.state_dict().items() if name != "bias"}
                    self.assertEqual(set(found), set(wanted))
                    for name, one in found.items():
                        self.assertEqual(one.dtype, wanted[name].dtype)
                        self.assertEqual(one.shape, wanted[name].shape)
                        self.assertEqual(bits(one), bits(wanted[name]), name)

    def test_bf16(self) -> None:
        """A bf16 weight has the codes of its values in f32."""
        linear = frozen_linear((300, 200)).bfloat16()
        other = copy.deepcopy(linear).float()
        store_frozen(linear)
        store_frozen(other)
        self.assertEqual(bits(linear.weight), bits(other.weight))
        self.assertEqual(bits(linear.scale), bits(other.scale))

    def test_values(self) -> None:
        """A value is its code times its scale."""
        for recipe in RECIPES:
            for size in SIZES:
                with self.subTest(recipe=recipe, size=size):
                    linear = frozen_linear(size)
                    store_frozen(linear, recipe)
                    scale = linear.scale.float()
                    down = -(-size[0] // scale.shape[0]) if scale.dim() else size[0]
                    across = -(-size[1] // scale.shape[1]) if scale.dim() else size[1]
                    if scale.dim() == 2:
                        down, across = (128 if linear.grain.name == "BLOCKS" else 1,
                                        {"ROWS": size[1], "BLOCKS": 128, "MX": 32}[linear.grain.name])
                    whole = scale.reshape(-1, scale.shape[-1] if scale.dim() else 1)
                    each = torch.stack([torch.stack([whole[i // down, j // across] for j in range(size[1])])
                                        for i in range(min(size[0], 3))])
                    wanted = linear.weight.float()[:3] * each
                    self.assertTrue(torch.equal(linear.values()[:3], wanted))


class Module(unittest.TestCase):
    def test_eager(self) -> None:
        """Result, and gradients of input and bias, are those of an nn.Linear with the values of the codes."""
        for dtype in (torch.float32, torch.bfloat16):
            with self.subTest(dtype):
                stored = chain().to(dtype)
                store_frozen(stored)
                plain = torch.nn.Sequential(*[torch.nn.Linear(one.in_features, one.out_features) for one in stored])
                for one, like in zip(plain, stored):
                    one.weight = torch.nn.Parameter(like.values(dtype), requires_grad=False)
                    one.bias = torch.nn.Parameter(like.bias.detach().clone())
                    like.bias.requires_grad_(True)
                found = []
                for model in (stored, plain):
                    x = torch.randn(2, 3, 200, generator=torch.Generator().manual_seed(1)).to(dtype).requires_grad_()
                    y = model(x)
                    y.square().sum().backward()
                    found.append([y, x.grad, *(one.bias.grad for one in model)])
                for a, b in zip(*found):
                    self.assertTrue(torch.equal(a, b))

    def test_saved_for_backward(self) -> None:
        """Between a forward and its backward there are no values of weights."""
        model = chain()
        store_frozen(model)
        sizes: list[torch.Tensor] = []
        with torch.autograd.graph.saved_tensors_hooks(lambda t: sizes.append(t) or t, lambda t: t):
            model(torch.randn(3, 200, requires_grad=True))
        weights = [one for one in sizes if one.dim() == 2 and one.shape in {one.weight.shape for one in model}]
        self.assertEqual({one.dtype for one in weights}, {torch.float8_e4m3fn})

    def test_autocast(self) -> None:
        model = chain()
        plain = copy.deepcopy(model)
        store_frozen(model)
        for one, like in zip(plain, model):
            one.weight.data.copy_(like.values())
        x = torch.randn(3, 200, requires_grad=True)
        with torch.autocast("cpu", torch.bfloat16):
            y, z = model(x), plain(x)
        self.assertEqual(y.dtype, torch.bfloat16)
        self.assertTrue(torch.equal(y, z))
        y.sum().backward()
        self.assertTrue(bool(x.grad.any()))

    def test_moved(self) -> None:
        """Casts of the model leave codes and scales alone."""
        for recipe in RECIPES:
            model = frozen_linear((300, 200))
            store_frozen(model, recipe)
            before = bits(model.weight), bits(model.scale)
            for cast in (torch.nn.Module.bfloat16, torch.nn.Module.half, torch.nn.Module.double,
                         lambda m: m.to("cpu", torch.float32), copy.deepcopy):
                model = cast(model)
                self.assertEqual((bits(model.weight), bits(model.scale)), before)
            self.assertEqual(model.bias.dtype, torch.float32)

    def test_state_dict(self) -> None:
        """A state dict has codes and scales; loaded, it has the same bits. Scales in shapes of other formats are
        taken, too."""
        for recipe in RECIPES:
            with self.subTest(recipe):
                model, other = chain(), chain(seed=7)
                store_frozen(model, recipe)
                store_frozen(other, recipe)
                file = io.BytesIO()
                torch.save(model.state_dict(), file)
                file.seek(0)
                other.load_state_dict(torch.load(file))
                for a, b in zip(model.state_dict().items(), other.state_dict().items(), strict=True):
                    self.assertEqual((a[0], bits(a[1])), (b[0], bits(b[1])))
        shapes = {"block": ((3, 2), (3, 1, 2, 1)), "rowwise": ((300,),), "current": ((1,),)}
        for recipe, others in shapes.items():
            for shape in others:
                one, other = frozen_linear((300, 200)), frozen_linear((300, 200), 5)
                store_frozen(one, recipe)
                store_frozen(other, recipe)
                state = dict(one.state_dict())
                state["weight_scale"] = state.pop(one.grain.scale).reshape(shape)
                other.load_state_dict(state)
                self.assertEqual(bits(other.scale), bits(one.scale))

    def test_wrong_state(self) -> None:
        one, other = frozen_linear((300, 200)), frozen_linear((300, 200))
        with_values = one.state_dict()
        store_frozen(one)
        store_frozen(other, "rowwise")
        before = bits(one.weight)
        for state, word in ((with_values, "not FP8 codes"), (other.state_dict(), "is of rows"),
                            ({**one.state_dict(), "weight_scale_inv": torch.ones(2, 2)}, "does not fit")):
            with self.subTest(word), self.assertRaisesRegex(RuntimeError, word):
                one.load_state_dict(state)
            self.assertEqual(bits(one.weight), before)


class Choosing(unittest.TestCase):
    def test_what_is_left(self) -> None:
        """Trained and tied weights, subclasses, and what rules leave out, stay, with the reason."""
        model = torch.nn.ModuleDict({"a": frozen_linear((32, 16)), "b": frozen_linear((32, 16)),
                                     "trained": torch.nn.Linear(16, 32), "c": frozen_linear((32, 16)),
                                     "embed": torch.nn.Embedding(32, 16), "head": frozen_linear((32, 16)),
                                     "attention": torch.nn.MultiheadAttention(16, 2).requires_grad_(False)})
        model["embed"].weight = model["head"].weight
        made = store_frozen(model, rules=['"b" = bf16', '"c" = rowwise'])
        self.assertEqual(made.stored, {"a": "block", "c": "rowwise"})
        reasons = {"b": "rules", "trained": "requires_grad_", "head": "same weight", "attention.out_proj": "no plain"}
        self.assertEqual(set(made.left), set(reasons))
        for name, word in reasons.items():
            self.assertIn(word, made.left[name])
            self.assertIn(word, str(made))
            self.assertNotIsInstance(model.get_submodule(name), StoredLinear)

    def test_misuse(self) -> None:
        trained = torch.nn.Linear(8, 8)
        infinite = frozen_linear((8, 8))
        infinite.weight[3, 3] = torch.inf
        with torch.device("meta"):
            empty = torch.nn.Linear(8, 8).requires_grad_(False)
        model = torch.nn.Sequential(frozen_linear((8, 8)))
        cases: list[tuple[torch.nn.Module, dict[str, Any], type[Exception], str]] = [
            (trained, {}, ValueError, "requires_grad_"),
            (torch.nn.ReLU(), {}, ValueError, "no linear"),
            (model, {"recipe": "bf16"}, ValueError, "none of"),
            (model, {"recipe": "int8"}, ValueError, "none of"),
            (model, {"recipe": "block {size = 3}"}, fp8c.InputError, "size"),
            (model, {"rules": ['"nobody" = bf16']}, fp8c.InputError, "matches no linear"),
            (model, {"rules": ['"0" = bf16']}, ValueError, "recipe and rules"),
            (infinite, {}, ValueError, "Inf or a NaN"),
            (empty, {}, ValueError, "no values"),
        ]
        for one, options, error, word in cases:
            with self.subTest(word, **options), self.assertRaisesRegex(error, word):
                store_frozen(one, **options)
            self.assertFalse(any(isinstance(part, StoredLinear) for part in one.modules()))
        store_frozen(model)
        with self.assertRaisesRegex(ValueError, "stored already"):
            store_frozen(model)
        with self.assertRaisesRegex(TypeError, "store_frozen makes"):
            StoredLinear(3, 4)


if __name__ == "__main__":
    unittest.main()
