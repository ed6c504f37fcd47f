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
import torch.distributed as dist
from safetensors.torch import load_file, save_file
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

import fp8c
import fp8c.torch
from fp8c.torch import StoredLinear, export_fp8, store_frozen
from fp8c.torch.weights.folder import Folder
from ranks import mesh_of
from shards import jobs
from support import BackendTest, compiled, executed

try:
    import peft
    import transformers
except ImportError:
    peft = None

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
                    height, width = {"TENSOR": size, "ROWS": (1, size[1]), "BLOCKS": (128, 128),
                                     "MX": (1, 32)}[linear.grain.name]
                    scale = linear.scale.float()
                    scale = scale.reshape(-1, scale.shape[-1] if scale.dim() else 1)
                    each = torch.stack([torch.stack([scale[i // height, j // width] for j in range(size[1])])
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


def empty(make: Any) -> torch.nn.Module:
    """A model without values, frozen."""
    with torch.device("meta"):
        return make().requires_grad_(False)


class FromFolder(unittest.TestCase):
    """Codes and scales of a folder, without a copy of the weights in a wider dtype."""

    def setUp(self) -> None:
        place = tempfile.TemporaryDirectory()
        self.addCleanup(place.cleanup)
        self.place = place.name

    def path(self, name: str) -> str:
        return os.path.join(self.place, name)

    def assertSame(self, a: torch.nn.Module, b: torch.nn.Module) -> None:
        self.assertEqual([type(one) for one in a.modules()], [type(one) for one in b.modules()])
        for (name, one), (other, two) in zip(a.state_dict().items(), b.state_dict().items(), strict=True):
            self.assertEqual((name, one.dtype, bits(one)), (other, two.dtype, bits(two)))

    def test_formats(self) -> None:
        """The bits of the folder, whichever format it has, with and without values before."""
        widths = (256, 384, 128, 100)
        for recipe in ("block", "rowwise", "current", "mxfp8"):
            model = chain(widths)
            store_frozen(model, recipe, rules=['"2" = bf16'])
            native = self.path(recipe)
            os.mkdir(native)
            with open(os.path.join(native, "config.json"), "w", encoding="utf-8") as file:
                file.write("{}")
            export_fp8(model, os.path.join(native, "w.safetensors"), "native", recipe=recipe, rules=['"2" = bf16'])
            paths = [native]
            for form in ("hf-fp8", "compressed-tensors", "modelopt"):
                if not (form == "hf-fp8" and recipe in ("rowwise", "current", "mxfp8")) and \
                        not (form == "modelopt" and recipe == "current"):
                    paths.append(self.path(f"{recipe}-{form}"))
                    command("weights", native, "--as", form, "-o", paths[-1])
            for path in paths:
                for other in (chain(widths, 5), empty(lambda: chain(widths))):
                    with self.subTest(path=os.path.basename(path), device=other[0].weight.device):
                        made = store_frozen(other, folder=path)
                        self.assertEqual(set(made.stored), {"0", "1"})
                        self.assertIn("values", made.left["2"])
                        self.assertSame(other, model)

    def test_one_at_a_time(self) -> None:
        """Of a stored weight nothing but codes is read, and each tensor once."""
        model = chain()
        path = self.path("w.safetensors")
        store_frozen(model)
        export_fp8(model, path, "native")
        read, plain = [], Folder.tensor

        def noting(folder: Folder, name: str) -> torch.Tensor:
            read.append((name, made := plain(folder, name)))
            return made

        self.addCleanup(setattr, Folder, "tensor", plain)
        Folder.tensor = noting
        store_frozen(empty(chain), folder=path)
        self.assertEqual(len(read), len({name for name, _ in read}))
        self.assertEqual({made.dtype for name, made in read if name.endswith("weight")}, {torch.float8_e4m3fn})

    def test_wrong_folders(self) -> None:
        model = chain()
        store_frozen(model)
        good = {name: one.clone() for name, one in model.state_dict().items()}
        nan = good["0.weight"].clone()
        nan.view(torch.uint8)[2, 3] = 0x7F

        def without(name: str) -> dict[str, torch.Tensor]:
            return {key: one for key, one in good.items() if key != name}

        cases = [
            (without("1.bias"), "1.bias is not there"), (without("1.weight_scale_inv"), "no scale beside it"),
            (good | {"2.weight": torch.ones(3, 3)}, "2.weight is no parameter"),
            (good | {"0.bias": torch.ones(3)}, r"0.bias is \(3,\) there and \(300,\)"),
            (good | {"0.weight_scale_inv": torch.ones(2, 2)}, "does not go with 0.weight"),
            (good | {"0.weight_scale_inv": torch.zeros(3, 2)}, "zero, negative"),
            (good | {"0.weight": nan}, "codes that are NaN"),
            ({name: one.float() for name, one in good.items() if "scale" not in name}, "no linear to store"),
        ]
        for state, word in cases:
            with self.subTest(word):
                save_file(state, self.path("w.safetensors"))
                with self.assertRaisesRegex(ValueError, word):
                    store_frozen(empty(chain), folder=self.path("w.safetensors"))
        save_file(good, self.path("w.safetensors"))
        trained = chain()
        trained[1].requires_grad_(True)
        with self.assertRaisesRegex(ValueError, "1.weight is FP8 there, but it is trained"):
            store_frozen(trained, folder=self.place)
        with self.assertRaisesRegex(ValueError, "those of a folder are already"):
            store_frozen(chain(), "rowwise", folder=self.place)
        os.mkdir(self.path("none"))
        with self.assertRaisesRegex(ValueError, "no safetensors file"):
            store_frozen(chain(), folder=self.path("none"))


class Adapted(torch.nn.Module):
    """A frozen linear and an adapter beside it."""

    def __init__(self, base: torch.nn.Linear, rank: int = 4) -> None:
        super().__init__()
        self.base = base
        self.down = torch.nn.Linear(base.in_features, rank, bias=False)
        self.up = torch.nn.Linear(rank, base.out_features, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.base(x) + self.up(self.down(x))


class Adapters(torch.nn.Module):
    def __init__(self, widths: tuple[int, ...] = (192, 256, 130), seed: int = 0) -> None:
        super().__init__()
        self.layers = torch.nn.ModuleList(Adapted(one) for one in chain(widths, seed))
        for layer in self.layers:
            torch.nn.init.normal_(layer.up.weight, std=0.2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = functional.gelu(layer(x))
        return x.square().mean()


def inputs(width: int = 192, rows: int = 40) -> torch.Tensor:
    return torch.randn(rows, width, generator=torch.Generator().manual_seed(3))


def gradients(model: torch.nn.Module, call: Any, x: torch.Tensor) -> dict[str, torch.Tensor]:
    model.zero_grad()
    call(x).backward()
    return {n: p.grad.float() for n, p in model.named_parameters() if p.grad is not None}


def least_cosine(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> float:
    return min(float(functional.cosine_similarity(a[n].flatten(), b[n].flatten(), 0)) for n in a | b)


def dequantized(model: torch.nn.Module, inverted: str = "") -> torch.nn.Module:
    """The model with plain linears that have the values of the codes. inverted: a linear whose scales are turned
    round."""
    model = copy.deepcopy(model)
    for name, module in list(model.named_modules()):
        if isinstance(module, StoredLinear):
            plain = torch.nn.Linear(module.in_features, module.out_features, module.bias is not None)
            values = module.values()
            if name == inverted:
                codes = module.weight.float()
                values = torch.where(codes == 0, codes, codes * codes / values)
            plain.weight = torch.nn.Parameter(values, requires_grad=False)
            plain.bias = module.bias
            outer, _, last = name.rpartition(".")
            setattr(model.get_submodule(outer), last, plain)
    return model


class Training(BackendTest):
    def test_gradients(self) -> None:
        """The cosine of each adapter's gradient to that over the dequantized base in f32 is 0.99 or more. With
        the scales of one base inverted some is not."""
        ways = [("block", "block"), ("block", "bf16"), ("block", "current"), ("current", "delayed"),
                ("current", "current"), ("rowwise", "rowwise"), ("mxfp8", "mxfp8"), ("rowwise", "f32")]
        for stored, recipe in ways:
            with self.subTest(stored=stored, recipe=recipe):
                torch._dynamo.reset()
                model, x = Adapters(), inputs()
                store_frozen(model, stored)
                found = gradients(model, compiled(model, recipe), x)
                self.assertEqual(len(found), 4)
                plain, wrong = dequantized(model), dequantized(model, "layers.1.base")
                self.assertGreaterEqual(least_cosine(found, gradients(plain, plain, x)), 0.99)
                self.assertLess(least_cosine(found, gradients(wrong, wrong, x)), 0.99)

    def test_bits(self) -> None:
        """Where codes are the operand of the GEMMs, results and gradients have the bits of the same model with
        the f32 weights that the codes were made of."""
        for recipe in ("block", "current"):
            with self.subTest(recipe):
                torch._dynamo.reset()
                found = []
                for stores in (False, True):
                    model = Adapters()
                    if stores:
                        store_frozen(model, recipe)
                    call = compiled(model, recipe)
                    found.append(gradients(model, call, inputs()) | {"loss": call(inputs()).detach()})
                    with torch.no_grad():
                        found[-1]["eval"] = call(inputs())
                self.assertEqual({n: bits(one) for n, one in found[0].items()},
                                 {n: bits(one) for n, one in found[1].items()})

    def test_base_stays(self) -> None:
        """Training changes neither the bytes of the base nor their place, and adapters move."""
        model, x = Adapters(), inputs()
        store_frozen(model)
        base = [t for layer in model.layers for t in (layer.base.weight, layer.base.scale)]
        before = [(t.data_ptr(), bits(t)) for t in base]
        call = compiled(model, "block")
        optimizer = torch.optim.AdamW((p for p in model.parameters() if p.requires_grad), lr=1e-2)
        losses = []
        for _ in range(8):
            optimizer.zero_grad()
            loss = call(x)
            loss.backward()
            optimizer.step()
            losses.append(float(loss.detach()))
        self.assertLess(losses[-1], losses[0])
        self.assertEqual([(t.data_ptr(), bits(t)) for t in base], before)
        self.assertGreater(executed(model), 0)

    def test_report(self) -> None:
        model = Adapters()
        store_frozen(model, rules=['"layers.0.*" = bf16', '"layers.1.*" = rowwise'])
        compiled(model, "rowwise")(inputs()).backward()
        report = fp8c.torch.report(model)
        self.assertEqual(report.eager_ops, [])
        self.assertEqual({one.name: one.stored for one in report.linears if one.stored}, {"layers.1.base": "rowwise"})
        one = report["layers.1.base"]
        self.assertEqual(set(one.roles), {"fprop", "dgrad"})
        self.assertIn("stored", one.reason)
        self.assertIn("stored as FP8 codes by rowwise", str(one))

    def test_statistics(self) -> None:
        """Stored codes are quantized in no step, so they have no row."""
        model = Adapters()
        store_frozen(model)
        gradients(model, compiled(model, "block", statistics=1), inputs())
        found = fp8c.torch.statistics(model)
        self.assertEqual([one.operand for one in found.of("layers.1.base")], ["x", "dy"])
        self.assertIn("w", [one.operand for one in found.of("layers.1.up")])

    def test_trained_codes(self) -> None:
        """A base that is to be trained after all is an error at its next call."""
        model = Adapters()
        store_frozen(model)
        call = compiled(model, "block")
        call(inputs()).backward()
        model.requires_grad_(True)
        for one in (model, torch.compile(model, backend="fp8c")):
            with self.assertRaisesRegex(RuntimeError, "can't be trained"):
                one(inputs())

    def test_odd_sizes(self) -> None:
        for widths in ((3, 5, 1), (130, 1, 257)):
            for recipe in ("block", "rowwise", "mxfp8"):
                with self.subTest(widths=widths, recipe=recipe):
                    torch._dynamo.reset()
                    model, x = Adapters(widths), inputs(widths[0], 6)
                    store_frozen(model, recipe)
                    plain = dequantized(model)
                    self.assertGreaterEqual(least_cosine(gradients(model, compiled(model, "f32"), x),
                                                         gradients(plain, plain, x)), 0.9999)
                    torch._dynamo.reset()
                    for one in gradients(model, compiled(model, recipe), x).values():
                        self.assertTrue(bool(torch.isfinite(one).all()))

    def test_bf16_and_autocast(self) -> None:
        x = inputs()
        for cast in (False, True):
            torch._dynamo.reset()
            model = Adapters()
            store_frozen(model)
            plain = dequantized(model)
            wanted = gradients(plain, plain, x)
            call = compiled(model, "block")
            if cast:
                with torch.autocast("cpu", torch.bfloat16):
                    found = gradients(model, call, x)
            else:
                model.bfloat16()
                found = gradients(model, call, x.bfloat16())
            self.assertGreaterEqual(least_cosine(found, wanted), 0.98)

    def test_moved_codes(self) -> None:
        """Codes that are loaded, or put elsewhere, after the compile are those of the next call."""
        model, other, x = Adapters(), Adapters(seed=9), inputs()
        store_frozen(model)
        store_frozen(other)
        call = compiled(model, "f32")
        first = float(call(x).detach())
        model.load_state_dict(other.state_dict())
        self.assertAlmostEqual(float(call(x).detach()), float(other(x).detach()), delta=1e-4 * first)
        model.layers[0].base.weight.data = model.layers[0].base.weight.data.clone()
        self.assertAlmostEqual(float(call(x).detach()), float(other(x).detach()), delta=1e-4 * first)

    def test_other_readers(self) -> None:
        """What is no linear reads values that PyTorch makes; under strict that is an error."""
        class Odd(Adapters):
            def forward(self, x: torch.Tensor) -> torch.Tensor:
                return (x @ self.layers[0].base.values().T).square().mean() + super().forward(x)

        model, x = Odd(), inputs()
        store_frozen(model)
        plain = dequantized(model)
        plain.layers[0].base.values = lambda: plain.layers[0].base.weight
        found = gradients(model, compiled(model, "f32", strict=False), x)
        self.assertGreaterEqual(least_cosine(found, gradients(plain, plain, x)), 0.9999)
        torch._dynamo.reset()
        with self.assertRaisesRegex(Exception, "stored in FP8|linears alone"):
            compiled(model, "f32")(x)

    def test_other_backends(self) -> None:
        model, x = Adapters(), inputs()
        store_frozen(model)
        eager = gradients(model, model, x)
        for backend in ("eager", "aot_eager"):
            torch._dynamo.reset()
            found = gradients(model, torch.compile(model, backend=backend), x)
            self.assertGreaterEqual(least_cosine(found, eager), 0.99999)


def on_ranks(how: str, recipe: str) -> dict[str, Any]:
    """The gradients of one batch that all ranks have, and what the report has of the base."""
    model = Adapters()
    store_frozen(model)
    inner: Any = model
    if how == "ddp":
        inner = DistributedDataParallel(model, init_sync=False)
    elif how != "alone":
        policy = MixedPrecisionPolicy(torch.bfloat16, torch.float32) if how == "fsdp, bf16" else MixedPrecisionPolicy()
        fully_shard(model, mesh=mesh_of(dist.get_world_size()), mp_policy=policy)
    call = compiled(inner, recipe, strict=how != "fsdp, bf16")
    call(inputs()).backward()
    grads = {n: p.grad for n, p in model.named_parameters() if p.grad is not None}
    grads = {n: g.full_tensor() if hasattr(g, "full_tensor") else g for n, g in grads.items()}
    bases = [one for one in fp8c.torch.report(model).linears if one.name.endswith("base")]
    return {"grads": {n: g.tolist() for n, g in grads.items()}, "base": [(b.kind, b.stored) for b in bases]}


class Ranks(BackendTest):
    def test_ranks(self) -> None:
        """Under DDP and FSDP2 gradients of equal batches are those of one process, bit for bit. A policy of FSDP2
        that casts parameters casts codes, too: PyTorch makes the values then."""
        alone = on_ranks("alone", "block")
        self.assertEqual(alone["base"], [("FP8", "block")] * 2)
        ways = ("ddp", "fsdp", "fsdp, bf16")
        for how, ranks in zip(ways, jobs(2, *((on_ranks, how, "block") for how in ways))):
            for rank, one in enumerate(ranks):
                with self.subTest(how, rank=rank):
                    self.assertEqual(set(one["grads"]), set(alone["grads"]))
                    if how != "fsdp, bf16":
                        self.assertEqual(one, alone)
                        continue
                    found = {n: torch.tensor(g) for n, g in one["grads"].items()}
                    wanted = {n: torch.tensor(g) for n, g in alone["grads"].items()}
                    self.assertGreaterEqual(least_cosine(found, wanted), 0.99)


def llama(seed: int = 0, **options: Any) -> torch.nn.Module:
    torch.manual_seed(seed)
    config = transformers.LlamaConfig(num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
                                      hidden_size=128, intermediate_size=256, vocab_size=61,
                                      max_position_embeddings=32, **options)
    return transformers.LlamaForCausalLM(config).requires_grad_(False)


def tokens() -> dict[str, Any]:
    ids = torch.randint(61, (2, 9), generator=torch.Generator().manual_seed(2))
    return {"input_ids": ids, "labels": ids, "use_cache": False}


@unittest.skipIf(peft is None, "peft is not installed")
class Peft(BackendTest):
    def adapted(self, seed: int = 0) -> torch.nn.Module:
        base = llama()
        store_frozen(base, rules=['"lm_head" = bf16'])
        torch.manual_seed(seed)
        config = peft.LoraConfig(r=4, target_modules=["q_proj", "v_proj", "down_proj"], lora_dropout=0.0,
                                 init_lora_weights=False)
        return peft.get_peft_model(base, config)

    def steps(self, model: torch.nn.Module, call: Any, count: int) -> list[float]:
        optimizer = torch.optim.SGD((p for p in model.parameters() if p.requires_grad), lr=0.5)
        losses = []
        for _ in range(count):
            optimizer.zero_grad()
            loss = call(**tokens()).loss
            loss.backward()
            optimizer.step()
            losses.append(float(loss.detach()))
        return losses

    def test_training(self) -> None:
        """peft takes stored linears for linears. Its adapters train, are saved and loaded, and the base keeps its
        bytes. All linears but the head are FP8."""
        model = self.adapted()
        stored = {n: m for n, m in model.named_modules() if isinstance(m, StoredLinear)}
        self.assertEqual(len(stored), 14)
        self.assertEqual({p.dtype for p in model.parameters() if p.requires_grad}, {torch.float32})
        before = {n: bits(m.weight) + bits(m.scale) for n, m in stored.items()}
        call = compiled(model, "block", rules=['"*lm_head" = bf16'])
        losses = self.steps(model, call, 6)
        self.assertLess(losses[-1], losses[0])
        self.assertEqual({n: bits(m.weight) + bits(m.scale) for n, m in stored.items()}, before)
        report = fp8c.torch.report(model)
        self.assertEqual(report.counts(), {"FP8": 14 + 12, "bf16": 1})
        self.assertEqual({one.name for one in report.linears if one.stored}, set(stored))
        with tempfile.TemporaryDirectory() as folder:
            model.save_pretrained(folder)
            base = llama()
            store_frozen(base, rules=['"lm_head" = bf16'])
            again = peft.PeftModel.from_pretrained(base, folder, is_trainable=True)
        for (name, one), (other, two) in zip(model.state_dict().items(), again.state_dict().items(), strict=True):
            self.assertEqual((name, bits(one.float())), (other, bits(two.float())))
        torch._dynamo.reset()
        call, other = compiled(model, "block"), compiled(again, "block")
        self.assertEqual(self.steps(model, call, 2), self.steps(again, other, 2))

    def test_first_values(self) -> None:
        """Adapters over codes begin with the values that they have over weights, in f32: peft does not make codes
        of them, with or without a PeftModel."""
        config = peft.LoraConfig(r=4, target_modules=["0"])
        for make in (lambda m: peft.get_peft_model(m, config), lambda m: peft.inject_adapter_in_model(config, m),
                     lambda m: peft.get_peft_model(m, config, autocast_adapter_dtype=False)):
            found = []
            for stores in (True, False):
                model = chain((4096, 8))
                if stores:
                    store_frozen(model)
                torch.manual_seed(0)
                found += [one for name, one in make(model).named_parameters() if "lora_A" in name]
            self.assertEqual(found[0].dtype, torch.float32)
            self.assertTrue(torch.equal(*found))

    def test_gradients(self) -> None:
        model = self.adapted()
        plain = dequantized(model)
        wrong = dequantized(model, "base_model.model.model.layers.1.mlp.down_proj.base_layer")

        def of(one: torch.nn.Module, call: Any) -> dict[str, torch.Tensor]:
            return gradients(one, lambda x: call(**x).loss, tokens())

        found = of(model, compiled(model, "block", rules=['"*lm_head" = bf16', '"*lora*" = bf16']))
        self.assertEqual(len(found), 12)
        self.assertGreaterEqual(least_cosine(found, of(plain, plain)), 0.99)
        self.assertLess(least_cosine(found, of(wrong, wrong)), 0.99)

    def test_merge(self) -> None:
        """An adapter can't be added to codes: peft's merge fails, and the base stays."""
        model = self.adapted()
        stored = [m for m in model.modules() if isinstance(m, StoredLinear)]
        before = [bits(m.weight) for m in stored]
        with self.assertRaises(Exception):
            model.merge_and_unload()
        self.assertEqual([bits(m.weight) for m in stored], before)


@unittest.skipIf(peft is None, "transformers is not installed")
class Exporting(BackendTest):
    def setUp(self) -> None:
        super().setUp()
        place = tempfile.TemporaryDirectory()
        self.addCleanup(place.cleanup)
        self.place = place.name

    def test_folder(self) -> None:
        """A folder of hf-fp8, in which `fp8c weights` finds nothing wrong, of stored linears and of plain ones;
        in one file and in several. What is loaded has the bits of what was stored."""
        for tied in (False, True):
            stored, plain = llama(tie_word_embeddings=tied), llama(tie_word_embeddings=tied)
            rules = [] if tied else ['"lm_head" = bf16']
            store_frozen(stored, rules=rules)
            for number, (model, most) in enumerate(((stored, 10**9), (plain, 10**9), (plain, 10**5))):
                with self.subTest(tied=tied, number=number):
                    out = os.path.join(self.place, f"{tied}{number}")
                    made = export_fp8(model, out, rules=rules, most=most)
                    self.assertEqual(len(made.stored), 14)
                    self.assertIn("nothing wrong", command("weights", out))
                    with open(os.path.join(out, "config.json"), encoding="utf-8") as file:
                        config = json.load(file)
                    self.assertEqual(config["architectures"], ["LlamaForCausalLM"])
                    self.assertEqual(config["quantization_config"]["weight_block_size"], [128, 128])
                    self.assertEqual(transformers.AutoConfig.from_pretrained(out).hidden_size, 128)
                    count = len([n for n in os.listdir(out) if n.endswith(".safetensors")])
                    self.assertEqual(count > 1, most < 10**6)
                    again = llama(7, tie_word_embeddings=tied)
                    store_frozen(again, folder=out)
                    for (name, a), (other, b) in zip(stored.state_dict().items(), again.state_dict().items(),
                                                     strict=True):
                        self.assertEqual((name, bits(a)), (other, bits(b)))
                    with torch.no_grad():
                        self.assertEqual(float(stored(**tokens()).loss), float(again(**tokens()).loss))

    def test_other_formats(self) -> None:
        """compressed-tensors and modelopt have the codes and scales that a native file has; in one file and in
        several."""
        for form, recipe in (("compressed-tensors", "block"), ("compressed-tensors", "rowwise"),
                             ("compressed-tensors", "current"), ("compressed-tensors", "mxfp8"), ("modelopt", "block"),
                             ("modelopt", "rowwise")):
            for most in (10**9, 10**5):
                with self.subTest(form=form, recipe=recipe, most=most):
                    model, out = llama(), os.path.join(self.place, f"{form}-{recipe}-{most}")
                    rules = ['"lm_head" = bf16']
                    store_frozen(model, recipe, rules=rules)
                    self.assertEqual(len(export_fp8(model, out, form, recipe=recipe, rules=rules, most=most).stored), 14)
                    self.assertIn(f": {form}, 14 weights in FP8", said := command("weights", out))
                    self.assertIn("nothing wrong", said)
                    again = llama(7)
                    store_frozen(again, folder=out)
                    for (name, a), (other, b) in zip(model.state_dict().items(), again.state_dict().items(), strict=True):
                        self.assertEqual((name, bits(a)), (other, bits(b)))
        self.assertFalse([n for n in os.listdir(self.place) if n.endswith(".tmp")])

    def test_scales_of_inputs(self) -> None:
        """Under `delayed` compressed-tensors and modelopt have the scales of inputs: the largest amax of the history over
        448, in all linears that read one input."""
        model = llama().requires_grad_(True)
        call = compiled(model, "delayed")
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        for _ in range(2):
            call(**tokens()).loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        histories = fp8c.torch.state_dict(call)
        rules = ['"lm_head" = bf16']
        for form, most in (("compressed-tensors", 10**9), ("modelopt", 10**5)):
            out = os.path.join(self.place, form)
            export_fp8(call, out, form, recipe="current", rules=rules, most=most)
            self.assertIn("nothing wrong", command("weights", out))
            found = {}
            for name in os.listdir(out):
                if name.endswith(".safetensors"):
                    found |= load_file(os.path.join(out, name))
            inputs = {name.removesuffix(".input_scale"): float(one) for name, one in found.items()
                      if name.endswith(".input_scale")}
            self.assertEqual(len(inputs), 14)
            for layer in ("model.layers.0", "model.layers.1"):
                shared = {inputs[f"{layer}.self_attn.{one}_proj"] for one in "qkv"}
                self.assertEqual(len(shared), 1)
                row = histories[f"{layer}.self_attn.o_proj.weight:x"]
                self.assertAlmostEqual(inputs[f"{layer}.self_attn.o_proj"], float(row[:-2].max()) / 448, delta=1e-6)

    def test_compiled(self) -> None:
        """A model that was trained under the backend, with its parameters as they are."""
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(128, 256), torch.nn.GELU(), torch.nn.Linear(256, 128))
        call = compiled(model, "block")
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        call(inputs(128)).square().mean().backward()
        optimizer.step()
        out = os.path.join(self.place, "w")
        export_fp8(call, out)
        found = load_file(os.path.join(out, "model.safetensors"))
        for name in ("0", "2"):
            wanted = exported(model.get_submodule(name).weight, "block")
            self.assertEqual(bits(found[f"{name}.weight"]), bits(wanted["fc.weight"]))
            self.assertEqual(bits(found[f"{name}.weight_scale_inv"]), bits(wanted["fc.weight_scale_inv"]))
            self.assertEqual(bits(found[f"{name}.bias"]), bits(model.get_submodule(name).bias))

    def test_ragged(self) -> None:
        """What transformers would read wrong is written as values, and what loaders fuse with it."""
        model = torch.nn.ModuleDict({"q_proj": frozen_linear((128, 128)), "k_proj": frozen_linear((200, 128)),
                                     "v_proj": frozen_linear((128, 128)), "o_proj": frozen_linear((128, 64))})
        for stores in (False, True):
            if stores:
                store_frozen(model)
            out = os.path.join(self.place, f"w{stores}")
            made = export_fp8(model, out)
            self.assertEqual(set(made.stored), {"o_proj"})
            self.assertEqual(set(made.left), {"q_proj", "k_proj", "v_proj"})
            self.assertIn("nothing wrong", command("weights", out))
            found = load_file(os.path.join(out, "model.safetensors"))
            self.assertEqual(found["k_proj.weight"].dtype, torch.float32)
            self.assertNotIn("k_proj.weight_scale_inv", found)

    def test_misuse(self) -> None:
        model = chain((128, 128))
        full = os.path.join(self.place, "full")
        os.mkdir(full)
        with open(os.path.join(full, "x"), "w", encoding="utf-8"):
            pass
        rows = chain((128, 128))
        store_frozen(rows, "rowwise")
        infinite = chain((128, 128))
        infinite[0].weight[0, 0] = torch.inf
        adapted = peft.get_peft_model(llama(), peft.LoraConfig(target_modules=["q_proj"]))
        out = os.path.join(self.place, "out")
        cases: list[tuple[torch.nn.Module, str, dict[str, Any], type[Exception], str]] = [
            (model, out, {"as_": "gguf"}, ValueError, "is none of hf-fp8, native"),
            (model, out, {"as_": "modelopt", "recipe": "current"}, ValueError, "has none: train or evaluate"),
            (chain((128, 128, 128)), out, {"as_": "compressed-tensors", "rules": ['"0" = rowwise']}, ValueError,
             "scales of one kind: . by "),
            (infinite, out, {"as_": "compressed-tensors"}, ValueError, "Inf or a NaN"),
            (model, full, {}, FileExistsError, "there already"),
            (rows, out, {}, ValueError, "hf-fp8 has blocks alone"),
            (infinite, out, {}, ValueError, "Inf or a NaN"),
            (infinite, out, {"as_": "native"}, ValueError, "Inf or a NaN"),
            (adapted, out, {}, ValueError, "adapters of peft"),
            (torch.nn.ReLU(), out, {}, ValueError, "no linear is in FP8"),
            (model, out, {"recipe": "bf16"}, ValueError, "no linear is in FP8"),
        ]
        for one, path, options, error, word in cases:
            with self.subTest(word, **options), self.assertRaisesRegex(error, word):
                export_fp8(one, path, **options)
        self.assertEqual(os.listdir(self.place), ["full"])


if __name__ == "__main__":
    unittest.main()
