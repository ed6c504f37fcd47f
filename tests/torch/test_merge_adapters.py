"""peft's LoRA adapters merged into linears stored as FP8 codes: the codes, the report, what stays as it was after
an error, and what a merged model computes."""

from __future__ import annotations

import copy
import hashlib
import math
import os
import tempfile
import unittest
import warnings
from typing import Any, Callable

import torch
from safetensors.torch import load_file
from torch.nn import functional

import fp8c.torch
from fp8c.torch import StoredLinear, export_fp8, merge_adapters, store_frozen
from support import BackendTest, compiled

try:
    import peft
    import transformers
except ImportError:
    peft = None

RECIPES = ("block", "rowwise", "current", "delayed", "mxfp8", "block {pow2 = true}", "rowwise {margin = 1}")
WIDTHS = (192, 130, 192, 64)
LAYERS = ("layers.0", "layers.1", "layers.2")


class Chain(torch.nn.Module):
    """Linears one after the other, of odd sizes."""

    def __init__(self, widths: tuple[int, ...] = WIDTHS, seed: int = 0) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.layers = torch.nn.ModuleList(torch.nn.Linear(a, b) for a, b in zip(widths, widths[1:]))
        with torch.no_grad():
            for one in self.layers:
                one.weight *= torch.exp(torch.randn(one.out_features, 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = functional.gelu(layer(x))
        return x.square().mean()


def base(recipe: str = "block", rules: tuple[str, ...] = (), **options: Any) -> torch.nn.Module:
    model = Chain(**options).requires_grad_(False)
    store_frozen(model, recipe, rules)
    return model


def config(seed: int = 0, **options: Any) -> Any:
    options = {"r": 4, "lora_alpha": 6, "target_modules": r"layers\.\d+", "init_lora_weights": False} | options
    torch.manual_seed(100 + seed)
    return peft.LoraConfig(**options)


def adapted(recipe: str = "block", rules: tuple[str, ...] = (), **options: Any) -> Any:
    return peft.get_peft_model(base(recipe, rules), config(**options))


def bits(tensor: torch.Tensor) -> str:
    """A digest, for unittest takes minutes to say how long lists differ."""
    flat = tensor.detach().contiguous().reshape(-1)
    return hashlib.sha256(flat.view(torch.uint8).numpy().tobytes()).hexdigest()


def state(model: torch.nn.Module) -> dict[str, Any]:
    """Every module and tensor of a model, with its bits."""
    tensors = {name: (id(one), bits(one))
               for name, one in model.state_dict(keep_vars=True).items() if not one.is_meta}
    return tensors | {f"{name}: module": id(one) for name, one in model.named_modules()}


def lora_of(model: torch.nn.Module) -> dict[str, Any]:
    return {name.removeprefix("base_model.model."): one for name, one in model.named_modules()
            if hasattr(one, "lora_A")}


def weight_of(layer: Any, adapters: tuple[str, ...] = ("default",),
              scale: Callable[[torch.Tensor], torch.Tensor] = lambda s: s) -> torch.Tensor:
    """A merged weight in f32 by the definition of LoRA and of the formats. scale: a change of the scales."""
    own = layer.base_layer
    factors = scale(own.scale.float())
    if own.grain.name == "BLOCKS":
        factors = factors.repeat_interleave(128, 0).repeat_interleave(128, 1)
    elif own.grain.name == "MX":
        factors = factors.repeat_interleave(32, 1)
    rows, columns = own.weight.shape
    factors = factors[:rows, :columns] if factors.dim() == 2 and factors.shape[1] > 1 else factors
    weight = own.weight.float() * factors
    for one in adapters:
        a, b = layer.lora_A[one].weight.float(), layer.lora_B[one].weight.float()
        root = math.sqrt(layer.r[one]) if layer.use_rslora[one] else layer.r[one]
        weight = weight + layer.lora_alpha[one] / root * (b @ a)
    return weight.detach()


def stored_like(weight: torch.Tensor, recipe: str) -> StoredLinear:
    """What store_frozen makes of a weight."""
    linear = torch.nn.Linear(*reversed(weight.shape)).requires_grad_(False)
    linear.weight.copy_(weight.detach())
    store_frozen(linear, recipe)
    return linear


def sqnr(wanted: torch.Tensor, found: torch.Tensor) -> float:
    return 20 * math.log10(float(wanted.double().norm() / (found.double() - wanted.double()).norm()))


def inputs(width: int = WIDTHS[0], rows: int = 40) -> torch.Tensor:
    return torch.randn(rows, width, generator=torch.Generator().manual_seed(3))


@unittest.skipIf(peft is None, "peft is not installed")
class Merging(BackendTest):
    def test_codes(self) -> None:
        """Merged codes and scales have the bits that store_frozen gives the merged weight under the recipe, and stay
        where they were. Each scale of the old codes counts: with one way to get them wrong the weight is another."""
        for recipe in RECIPES:
            with self.subTest(recipe):
                model = adapted(recipe)
                layers = lora_of(model)
                self.assertEqual(tuple(layers), LAYERS)
                wanted = {name: weight_of(one) for name, one in layers.items()}
                wrong = {name: weight_of(one, scale=lambda s: 1 / s) for name, one in layers.items()}
                old = {name: one.base_layer.values() for name, one in layers.items()}
                places = {name: (one.base_layer, one.base_layer.weight, one.base_layer.scale.data_ptr())
                          for name, one in layers.items()}
                made = merge_adapters(model)
                self.assertEqual(len(made), 3)
                self.assertEqual((made.by_peft, made.left), ([], {}))
                for name in LAYERS:
                    one = made.model.get_submodule(name)
                    self.assertIs(one, places[name][0])
                    self.assertIs(one.weight, places[name][1])
                    self.assertEqual(one.scale.data_ptr(), places[name][2])
                    fresh = stored_like(wanted[name], recipe)
                    # The definition above rounds a product in another order: all but a few codes are equal.
                    share = (fresh.weight.view(torch.uint8) == one.weight.view(torch.uint8)).float().mean()
                    self.assertGreater(float(share), 0.999)
                    self.assertTrue(torch.allclose(fresh.scale.float(), one.scale.float(), rtol=1e-5))
                    self.assertGreater(sqnr(wanted[name], one.values()), 28)
                    self.assertLess(sqnr(wrong[name], one.values()), 3)
                    row = made[name]
                    self.assertEqual((row.stored, row.adapters), (recipe, ("default",)))
                    self.assertAlmostEqual(row.sqnr, sqnr(wanted[name], one.values()), delta=0.01)
                    change = wanted[name] - old[name]
                    self.assertAlmostEqual(row.delta_sqnr, sqnr(change, one.values() - old[name]), delta=0.01)
                    self.assertAlmostEqual(row.delta, float(change.norm() / wanted[name].norm()), delta=1e-5)

    def test_bits(self) -> None:
        """With peft's own delta the bits are exactly those of store_frozen."""
        for recipe in RECIPES:
            for options in ({}, {"use_rslora": True}, {"lora_dropout": 0.5}, {"dtype": torch.bfloat16}):
                with self.subTest(recipe, **options):
                    dtype = options.pop("dtype", torch.float32)
                    model = adapted(recipe, **options).to(dtype)
                    wanted: dict[str, Any] = {}
                    for name, one in lora_of(model).items():
                        like = stored_like(one.base_layer.values() + one.get_delta_weight("default"), recipe)
                        wanted[name] = bits(like.weight), bits(like.scale)
                    merged = merge_adapters(model).model
                    self.assertEqual({name: (bits(merged.get_submodule(name).weight),
                                             bits(merged.get_submodule(name).scale)) for name in LAYERS}, wanted)

    def test_several(self) -> None:
        """Active adapters are summed; adapter_names chooses others, in its order."""
        for names in (None, ["second"], ["second", "default"], ["second", "second"]):
            with self.subTest(names=names):
                model = adapted()
                model.add_adapter("second", config(1, r=3, use_rslora=True))
                if names is None:
                    model.base_model.set_adapter(["default", "second"])
                own = tuple(names or ("default", "second"))
                wanted = {name: weight_of(one, own) for name, one in lora_of(model).items()}
                other = {name: weight_of(one) for name, one in lora_of(model).items()}
                made = merge_adapters(model, names)
                for name in LAYERS:
                    self.assertEqual(made[name].adapters, own)
                    values = made.model.get_submodule(name).values()
                    self.assertGreater(sqnr(wanted[name], values), 28)
                    self.assertLess(sqnr(other[name], values), 20)

    def test_not_active(self) -> None:
        """A linear without an active adapter keeps its bits, loses its adapters, and is listed."""
        model = peft.get_peft_model(base(), config(target_modules=["layers.0"]))
        model.add_adapter("second", config(1, target_modules=["layers.1"]))
        before = bits(lora_of(model)["layers.1"].base_layer.weight)
        made = merge_adapters(model)
        self.assertEqual([one.name for one in made], ["layers.0"])
        self.assertEqual(set(made.left), {"layers.1"})
        self.assertIn("layers.1: not merged (it has adapters second", str(made))
        self.assertEqual(bits(made.model.layers[1].weight), before)
        self.assertFalse(lora_of(made.model))

    def test_wrapped(self) -> None:
        """The model may be compiled, or under DDP. A forward before the merge has no backward after it."""
        model = adapted()
        loss = compiled(model, "block")(inputs())
        made = merge_adapters(torch.compile(model))
        self.assertIs(type(made.model), Chain)
        with self.assertRaisesRegex(RuntimeError, "modified between a forward and its backward"):
            loss.backward()

    def test_zero(self) -> None:
        """Adapters that add nothing change no bit, also where the scales are not those that fp8c would make."""
        model = adapted(init_lora_weights=True)
        one = lora_of(model)["layers.0"].base_layer
        one.scale.mul_(2)
        before = [bits(one.weight), bits(one.scale)]
        made = merge_adapters(model)
        self.assertEqual([bits(one.weight), bits(one.scale)], before)
        self.assertEqual((made["layers.0"].sqnr, made["layers.0"].delta), (math.inf, 0))
        self.assertTrue(math.isnan(made["layers.0"].delta_sqnr))
        self.assertIn("no change", str(made))

    def test_order(self) -> None:
        """The linear whose adapter suffers most is first. A small delta drowns in rounding; a large one does not."""
        model = adapted()
        layers = lora_of(model)
        with torch.no_grad():
            for name, factor in zip(LAYERS, (1.0, 1e-4, 0.1)):
                layers[name].lora_B["default"].weight *= factor
        made = merge_adapters(model)
        self.assertEqual([one.name for one in made], ["layers.1", "layers.2", "layers.0"])
        self.assertLess(made["layers.1"].delta_sqnr, 0)
        self.assertGreater(made["layers.0"].delta_sqnr, 15)
        lines = str(made).splitlines()
        self.assertEqual([line.split()[0] for line in lines], ["module", "layers.1", "layers.2", "layers.0"])
        self.assertRegex(lines[1], r"layers.1 +block +default +\S+% +\d+\.\d dB +-\d+\.\d dB")

    def test_mixed(self) -> None:
        """Linears in values are merged by peft, with the bits that peft gives them without stored ones."""
        for dtype in (torch.float32, torch.bfloat16):
            with self.subTest(dtype):
                model = peft.get_peft_model(base(rules=('"layers.1" = bf16',)).to(dtype), config())
                plain = copy.deepcopy(lora_of(model)["layers.1"])
                plain.merge()
                made = merge_adapters(model)
                self.assertEqual(made.by_peft, ["layers.1"])
                self.assertEqual({one.name for one in made}, {"layers.0", "layers.2"})
                self.assertIs(type(made.model.layers[1]), torch.nn.Linear)
                self.assertTrue(torch.equal(made.model.layers[1].weight, plain.base_layer.weight))
                self.assertIn("layers.1: merged by peft", str(made))

    def test_unloaded(self) -> None:
        """The result has no adapters, with or without a PeftModel; a second merge is an error; the base may be
        adapted and merged again."""
        for wrapped in (True, False):
            with self.subTest(wrapped=wrapped):
                below = base(rules=('"layers.1" = bf16',))
                model = peft.get_peft_model(below, config()) if wrapped else \
                    peft.inject_adapter_in_model(config(), below)
                with warnings.catch_warnings():
                    warnings.simplefilter("error")
                    made = merge_adapters(model)
                self.assertIs(made.model, below)
                self.assertFalse(lora_of(below))
                self.assertFalse(hasattr(below, "peft_config"))
                self.assertEqual([type(one).__name__ for one in below.layers],
                                 ["StoredLinear", "Linear", "StoredLinear"])
                with self.assertRaisesRegex(ValueError, "no adapter to merge"):
                    merge_adapters(model)
                again = peft.get_peft_model(below, config(1))
                wanted = weight_of(lora_of(again)["layers.0"])
                self.assertGreater(sqnr(wanted, merge_adapters(again).model.layers[0].values()), 28)

    def test_peft_alone(self) -> None:
        """peft's own merge is an error of PyTorch's, before codes change."""
        for call in (lambda m: m.merge_and_unload(), lambda m: m.merge_and_unload(safe_merge=True),
                     lambda m: m.merge_adapter()):
            model = adapted()
            before = state(model)
            with self.assertRaises(RuntimeError):
                call(model)
            self.assertEqual(state(model), before)

    def test_autocast(self) -> None:
        """Autocast around a merge does not round deltas."""
        model = adapted()
        other = copy.deepcopy(model)
        wanted = merge_adapters(model).model.layers[0]
        with torch.autocast("cpu", torch.bfloat16):
            found = merge_adapters(other).model.layers[0]
        self.assertEqual((bits(found.weight), bits(found.scale)), (bits(wanted.weight), bits(wanted.scale)))

    def test_inference_mode(self) -> None:
        model = adapted()
        other = copy.deepcopy(model)
        wanted = merge_adapters(model).model.layers[0]
        with torch.inference_mode():
            found = merge_adapters(other).model.layers[0]
        self.assertEqual(bits(found.weight), bits(wanted.weight))

    def test_recipe_kept(self) -> None:
        """A copy, and a linear of a folder, are merged under the recipe of their codes."""
        with tempfile.TemporaryDirectory() as folder:
            for recipe in ("block", "block {pow2 = true}"):
                model = base(recipe, widths=(128, 256))
                path = os.path.join(folder, recipe.split()[-1])
                export_fp8(model, path, "native")
                again = Chain((128, 256)).requires_grad_(False)
                store_frozen(again, folder=path)
                for one in (model, copy.deepcopy(model), again):
                    made = merge_adapters(peft.get_peft_model(one, config()))
                    self.assertEqual(made.linears[0].stored, recipe)
                    exponents = torch.frexp(made.model.layers[0].scale).mantissa == 0.5
                    self.assertEqual(bool(exponents.all()), "pow2" in recipe)


@unittest.skipIf(peft is None, "peft is not installed")
class Refused(BackendTest):
    """Each error names the module, and nothing was changed."""

    def check(self, model: torch.nn.Module, *words: str, names: list[str] | None = None) -> None:
        before = state(model)
        with self.assertRaises(ValueError) as caught:
            merge_adapters(model, names)
        for word in words:
            self.assertIn(word, str(caught.exception))
        self.assertEqual(state(model), before)

    def test_not_finite(self) -> None:
        for value in (math.nan, math.inf, -math.inf):
            for rules in ((), ('"layers.2" = bf16',)):
                model = adapted(rules=rules)
                with torch.no_grad():
                    lora_of(model)["layers.2"].lora_B["default"].weight[7, 2] = value
                self.check(model, "layers.2", "Inf or a NaN")

    def test_overflow(self) -> None:
        """A sum that is beyond f32, or beyond the dtype of a linear in values."""
        model = adapted()
        model.add_adapter("second", config(1))
        model.base_model.set_adapter(["default", "second"])
        with torch.no_grad():
            for adapter in ("default", "second"):
                one = lora_of(model)["layers.1"]
                one.lora_A[adapter].weight.fill_(1)
                one.lora_B[adapter].weight.fill_(3e38 / 4 / one.scaling[adapter])
        self.check(model, "layers.1", "would have an Inf or a NaN")
        model = peft.get_peft_model(base(rules=('"layers.1" = bf16',)).half(), config())
        with torch.no_grad():
            lora_of(model)["layers.1"].lora_B["default"].weight.fill_(6e4)
            lora_of(model)["layers.1"].lora_A["default"].weight.fill_(1)
        self.check(model, "layers.1", "would have an Inf or a NaN")

    def test_kinds(self) -> None:
        """DoRA, a bias, other adapters than LoRA, and embeddings."""
        self.check(adapted(lora_bias=True), "layers.0", "lora_bias")
        loha = peft.get_peft_model(base(), peft.LoHaConfig(target_modules=["layers.1"]))
        self.check(loha, "layers.1", "LoRA of linears")
        self.check(peft.get_peft_model(base(rules=('"layers.1" = bf16',)),
                                       config(use_dora=True, target_modules=["layers.1"])), "layers.1", "Dora")
        table = torch.nn.ModuleDict({"table": torch.nn.Embedding(20, 192), "chain": base()})
        self.check(peft.get_peft_model(table, config(target_modules=["table", "layers.0"])), "table", "Embedding")
        mixed = peft.get_peft_model(base(), config(target_modules=["layers.0"]), mixed=True)
        mixed.add_adapter("second", peft.LoHaConfig(target_modules=["layers.2"]))
        self.check(mixed, "layers.2", "loha")

    def test_nested(self) -> None:
        """Models of peft's inside each other, and layers that peft has replicated."""
        self.check(peft.get_peft_model(adapted(), config(1, target_modules=["layers.0"])), "inside each other")
        model = llama()
        store_frozen(model, rules=['"lm_head" = bf16'])
        twice = config(target_modules=["q_proj"], layer_replication=[[0, 2], [1, 2]])
        self.check(peft.get_peft_model(model, twice), "layers.1.self_attn.q_proj", "is shared")

    def test_dora_over_codes(self) -> None:
        """peft makes DoRA over codes of nothing that it could compute with: set by hand, it is refused."""
        model = adapted()
        lora_of(model)["layers.1"].use_dora["default"] = True
        self.check(model, "layers.1", "no plain LoRA")

    def test_state(self) -> None:
        """Merged before, disabled, on the device "meta", no such adapter."""
        model = adapted(rules=('"layers.1" = bf16',))
        lora_of(model)["layers.1"].merge()
        self.check(model, "layers.1", "merged already")
        model = adapted()
        model.base_model.disable_adapter_layers()
        self.check(model, "layers.0", "disabled")
        model = adapted()
        lora_of(model)["layers.2"].lora_A["default"].to("meta")
        self.check(model, "layers.2", "meta")
        model = adapted()
        lora_of(model)["layers.2"].base_layer.to("meta")
        self.check(model, "layers.2", "meta")
        self.check(adapted(), "no linear has an adapter 'third'", "default", names=["third"])
        self.check(adapted(), "none of which was asked for", names=[])
        self.check(base(), "no adapter to merge")
        plain = peft.get_peft_model(Chain(), config())
        self.check(plain, "merge_and_unload")
        self.check(torch.nn.ModuleDict({"inner": adapted()}), "inner", "call merge_adapters on it")
        with self.assertRaises(TypeError):
            merge_adapters(adapted(), "default")

    def test_shared(self) -> None:
        """A weight, a view of one, scales, or a module that the model has in two places."""
        def parameter(model: Any) -> None:
            model.layers[2].weight = model.layers[0].weight

        def view(model: Any) -> None:
            model.other = torch.nn.Parameter(model.layers[0].weight.data.view(torch.uint8), requires_grad=False)

        def part(model: Any) -> None:
            flat = model.layers[0].weight.data.view(torch.uint8).flatten()
            model.other = torch.nn.Parameter(flat[500:], requires_grad=False)

        def scale(model: Any) -> None:
            model.layers[2].weight_scale_inv = model.layers[0].weight_scale_inv

        def module(model: Any) -> None:
            model.other = model.layers[0]

        for share in (parameter, view, part, scale, module):
            with self.subTest(share.__name__):
                below = base(widths=(192, 192, 64, 192))
                below.layers[2] = copy.deepcopy(below.layers[0])
                share(below)
                self.check(peft.get_peft_model(below, config(target_modules=r"layers\.0")), "layers.0", "two places"
                           if share is module else "is shared")
        # Parts of one storage that do not overlap are not shared.
        below = base(widths=(192, 192, 64, 192))
        both = torch.stack([below.layers[0].weight.view(torch.uint8)] * 2).view(torch.float8_e4m3fn)
        below.layers[0].weight.data = both[0]
        below.other = torch.nn.Parameter(both[1], requires_grad=False)
        kept = bits(below.other)
        self.assertEqual(len(merge_adapters(peft.get_peft_model(below, config(target_modules=r"layers\.0")))), 1)
        self.assertEqual(bits(below.other), kept)
        tied = torch.nn.ModuleDict({"table": torch.nn.Embedding(61, 192), "head": torch.nn.Linear(192, 61),
                                    "chain": base()})
        tied["table"].weight = tied["head"].weight
        self.check(peft.get_peft_model(tied, config(target_modules=["head", "layers.0"])), "head", "is shared")

    def test_adapters_as_codes(self) -> None:
        model = adapted()
        lora_of(model)["layers.0"].lora_B["default"].to(torch.float8_e4m3fn)
        self.check(model, "layers.0", "in which peft computes nothing")

    def test_shapes(self) -> None:
        model = adapted()
        lora_of(model)["layers.1"].fan_in_fan_out = True
        self.check(model, "layers.1", "adds a matrix of (130, 192)")
        model = adapted()
        lora_of(model)["layers.1"].lora_A["default"] = torch.nn.Linear(192, 3, bias=False)
        self.check(model, "layers.1", "adapter 'default'")

    def test_late(self) -> None:
        """If peft's part of the merge fails after all, stored linears and their layers are as they were."""
        model = adapted(rules=('"layers.1" = bf16',))

        def failing(*_: Any, **__: Any) -> None:
            raise RuntimeError("planted")

        before = state(model)
        model.base_model.merge_and_unload = failing
        with self.assertRaisesRegex(RuntimeError, "planted"):
            merge_adapters(model)
        self.assertEqual(state(model), before)

    def test_copies(self) -> None:
        """A module trained as a copy takes the place of its original, and must be that of the merged adapter."""
        def made() -> Any:
            below = torch.nn.ModuleDict({"chain": base(), "head": torch.nn.Linear(64, 3)})
            model = peft.get_peft_model(below, config(target_modules=["layers.0"], modules_to_save=["head"]))
            model.add_adapter("second", config(1, target_modules=["layers.0"]))
            return model

        self.check(made(), "head", "set_adapter", names=["second"])
        model = made()
        copied = model.base_model.model["head"].modules_to_save["default"]
        self.assertIs(merge_adapters(model).model["head"], copied)


def llama(**options: Any) -> torch.nn.Module:
    torch.manual_seed(0)
    shape = transformers.LlamaConfig(num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
                                     hidden_size=128, intermediate_size=256, vocab_size=61,
                                     max_position_embeddings=32, **options)
    return transformers.LlamaForCausalLM(shape).requires_grad_(False)


def tokens() -> dict[str, Any]:
    ids = torch.randint(61, (2, 9), generator=torch.Generator().manual_seed(2))
    return {"input_ids": ids, "labels": ids, "use_cache": False}


TARGETS = ["q_proj", "v_proj", "down_proj"]


@unittest.skipIf(peft is None, "peft and transformers are not installed")
class Models(BackendTest):
    def test_round_trip(self) -> None:
        """Adapters that are trained under the backend, saved, loaded over another stored base and merged: the
        exported folder has the merged codes, bit for bit."""
        model = llama()
        store_frozen(model, rules=['"lm_head" = bf16'])
        model = peft.get_peft_model(model, config(target_modules=TARGETS))
        call = compiled(model, "block", rules=['"*lm_head" = bf16'])
        optimizer = torch.optim.SGD((p for p in model.parameters() if p.requires_grad), lr=0.5)
        for _ in range(2):
            optimizer.zero_grad()
            call(**tokens()).loss.backward()
            optimizer.step()
        with tempfile.TemporaryDirectory() as place:
            model.save_pretrained(os.path.join(place, "adapter"))
            below = llama()
            store_frozen(below, rules=['"lm_head" = bf16'])
            again = peft.PeftModel.from_pretrained(below, os.path.join(place, "adapter"))
            made, other = merge_adapters(again), merge_adapters(model)
            self.assertEqual(len(made), 6)
            out = os.path.join(place, "out")
            export_fp8(made.model, out, rules=['"lm_head" = bf16'])
            found = load_file(os.path.join(out, "model.safetensors"))
            loaded = llama()
            store_frozen(loaded, folder=out)
        for name, one in made.model.named_modules():
            if isinstance(one, StoredLinear):
                for twin in (other.model.get_submodule(name), loaded.get_submodule(name)):
                    self.assertEqual((bits(one.weight), bits(one.scale)), (bits(twin.weight), bits(twin.scale)))
                self.assertEqual(bits(found[f"{name}.weight"]), bits(one.weight))
                self.assertEqual(bits(found[f"{name}.weight_scale_inv"]), bits(one.scale))

    def test_backend(self) -> None:
        """A merged model computes what the model with its adapters does, within rounding, compiled or not; codes
        with a scale inverted do not. A call that was compiled before the merge has the merged codes, too."""
        for stored, recipe in (("block", "block"), ("rowwise", "rowwise"), ("current", "current"),
                               ("delayed", "delayed"), ("mxfp8", "f32")):
            with self.subTest(stored=stored, recipe=recipe):
                torch._dynamo.reset()
                model, x = adapted(stored), inputs()
                call = compiled(model, recipe)
                with torch.no_grad():
                    before, eager = float(call(x)), float(model(x))
                made = merge_adapters(model)
                merged = compiled(made.model, recipe)
                with torch.no_grad():
                    found = {"compiled": float(merged(x)), "compiled before": float(call(x)),
                             "f32": float(made.model(x))}
                plain = Chain()
                for one, like in zip(plain.layers, made.model.layers):
                    one.weight.data.copy_(like.values())
                    one.bias.data.copy_(like.bias)
                with torch.no_grad():
                    self.assertAlmostEqual(float(plain(x)), found["f32"], delta=1e-5 * abs(eager))
                # Three layers, each with an error of 2^-4 at most in each product, most of which cancels.
                for name, one in found.items():
                    self.assertLess(abs(one - eager) / eager, 0.06, name)
                self.assertLess(abs(before - eager) / eager, 0.06)
                scale = made.model.layers[1].scale
                scale.copy_((1 / scale.float()).to(scale.dtype))
                with torch.no_grad():
                    self.assertGreater(abs(float(merged(x)) - eager) / eager, 0.5)

    def test_merged_statistics(self) -> None:
        """The report of the backend has merged linears as stored ones, and they take new adapters that train."""
        made = merge_adapters(adapted())
        model = peft.get_peft_model(made.model, config(1))
        call = compiled(model, "block")
        optimizer = torch.optim.SGD((p for p in model.parameters() if p.requires_grad), lr=1e-2)
        losses = []
        for _ in range(4):
            optimizer.zero_grad()
            loss = call(inputs())
            loss.backward()
            optimizer.step()
            losses.append(float(loss.detach()))
        self.assertLess(losses[-1], losses[0])
        stored = {one.name for one in fp8c.torch.report(model).linears if one.stored}
        self.assertEqual(stored, {f"base_model.model.{name}.base_layer" for name in LAYERS})

    def test_transformers_adapter(self) -> None:
        """Adapters of transformers' add_adapter, which has no PeftModel."""
        model = llama()
        store_frozen(model, rules=['"lm_head" = bf16'])
        model.add_adapter(config(target_modules=TARGETS))
        made = merge_adapters(model)
        self.assertIs(made.model, model)
        self.assertEqual(len(made), 6)
        with tempfile.TemporaryDirectory() as place:
            export_fp8(model, os.path.join(place, "out"), rules=['"lm_head" = bf16'])

    def test_tied_head(self) -> None:
        """A tied head is not stored; the adapters of other linears are merged all the same."""
        model = llama(tie_word_embeddings=True)
        store_frozen(model)
        made = merge_adapters(peft.get_peft_model(model, config(target_modules=TARGETS)))
        self.assertEqual(len(made), 6)
        self.assertIs(made.model.lm_head.weight, made.model.model.embed_tokens.weight)


if __name__ == "__main__":
    unittest.main()
