"""report(model) tells the truth, strict raises, and messages name module and line."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import tempfile
import unittest

import torch

import fp8c.torch
from fp8c.torch import backend, log, private
from fp8c.torch.report import graphs_of
from support import BackendTest, compiled, regression, twin


class Parts(torch.nn.Module):
    """Linears that are compiled, disabled, behind an op that fp8c lacks, and never called."""

    def __init__(self) -> None:
        super().__init__()
        self.seen = torch.nn.Linear(8, 8)
        self.hidden = torch.nn.Linear(8, 8)
        self.unused = torch.nn.Linear(8, 8)

    @torch.compiler.disable
    def aside(self, x: torch.Tensor) -> torch.Tensor:
        return self.hidden(x)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.aside(self.seen(x)).sum()


class Together(Parts):
    """The same, with nothing disabled, so that `hidden` is not called."""

    def aside(self, x: torch.Tensor) -> torch.Tensor:
        return x


class Fft(torch.nn.Module):
    """An op that fp8c lacks, between two linears."""

    def __init__(self) -> None:
        super().__init__()
        self.before = torch.nn.Linear(8, 8)
        self.after = torch.nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.after(torch.cumsum(self.before(x), 0)).square().sum()


class Bilinear(torch.nn.Module):
    """A linear whose input fp8c refuses."""

    def __init__(self) -> None:
        super().__init__()
        self.up = torch.nn.Linear(8, 8)
        self.complex = torch.nn.Linear(8, 8, dtype=torch.complex64)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.complex(self.up(x).to(torch.complex64)).abs().sum()


class Summed(torch.nn.Linear):
    """A linear whose weight goes through an op that fp8c lacks."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x @ torch.cumsum(self.weight, 0).t() + self.bias


class Chain(torch.nn.Sequential):
    """A Sequential with a forward that is not PyTorch's own, which dynamo compiles as a region."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for part in self:
            x = part(x)
        return x


class Experts(torch.nn.Module):
    """Weights that belong to no linear: a router's, experts', one that a batch reads, one that is
    computed, and one that PyTorch multiplies."""

    def __init__(self) -> None:
        super().__init__()
        self.router = torch.nn.Module()
        self.router.weight = torch.nn.Parameter(torch.randn(4, 32))
        self.up, self.down = (torch.nn.Parameter(torch.randn(4, 32, 32)) for _ in range(2))
        self.out, self.lost = (torch.nn.Parameter(torch.randn(32, 32)) for _ in range(2))
        self.scale = torch.nn.Parameter(torch.ones(32))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        gates = torch.nn.functional.linear(x, self.router.weight).softmax(-1)
        y = torch.bmm(x.expand(4, -1, -1), self.up.transpose(1, 2)).relu() @ self.down
        y = (y * gates.t().unsqueeze(-1)).sum(0) * self.scale
        return y @ self.out.t() + y @ self.lost.cumsum(0)


class Wrapped(torch.nn.Module):
    """A linear beside a module that dynamo finds in a list, which is no module of the model."""

    def __init__(self, inner: torch.nn.Module) -> None:
        super().__init__()
        self.stem = torch.nn.ModuleList([torch.nn.Linear(8, 8)])
        self.towers = [inner]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.towers[0](self.stem[0](x))


def loose(model: torch.nn.Module, **options: object) -> torch.nn.Module:
    return torch.compile(model, backend=fp8c.torch.fp8c_backend, options=options)


class Truth(BackendTest):
    def test_all_compiled(self) -> None:
        model, inputs = regression()
        compiled(model, "current")(**inputs).backward()
        report = fp8c.torch.report(model)
        self.assertEqual([(x.name, x.kind) for x in report.linears], [("up", "FP8"), ("down", "FP8")])
        self.assertEqual(set(report["up"].roles), {"fprop", "wgrad"})
        self.assertEqual(set(report["down"].roles), {"fprop", "dgrad", "wgrad"})
        self.assertIn("f8e4m3", report["up"].roles["fprop"])
        self.assertEqual(report.eager_ops, [])
        self.assertIn("linears: 2 FP8", str(report))

    def test_before_a_call(self) -> None:
        model, _ = regression()
        report = fp8c.torch.report(compiled(model))
        self.assertEqual({x.kind for x in report.linears}, {"not compiled"})
        self.assertIn("no call", report["up"].reason)

    def test_disabled_and_unused(self) -> None:
        model = Parts()
        loose(model)(torch.randn(4, 8)).backward()
        report = fp8c.torch.report(model)
        self.assertEqual(report["seen"].kind, "FP8")
        for name in ("hidden", "unused"):
            self.assertEqual(report[name].kind, "not compiled")
            self.assertIn("never traced", report[name].reason)
        self.assertTrue(report.breaks)

    def test_disabled_module(self) -> None:
        model = Fft()
        model.after.forward = torch.compiler.disable(model.after.forward)
        loose(model)(torch.randn(4, 8)).backward()
        report = fp8c.torch.report(model)
        self.assertEqual(report["before"].kind, "FP8")
        self.assertIn("torch.compiler.disable keeps after out", report["after"].reason)

    def test_a_break_in_a_loop(self) -> None:
        """Dynamo gives up the whole loop of a Sequential: then none of its linears is compiled."""
        model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Linear(8, 8))
        model[1].forward = torch.compiler.disable(model[1].forward)
        loose(model)(torch.randn(4, 8)).sum().backward()
        self.assertEqual(len(fp8c.torch.report(model).left_out), 2)

    def test_an_op_between_stages(self) -> None:
        """PyTorch runs it, with gradients, and says so once; the linears are compiled."""
        model, x = Fft(), torch.randn(4, 8)
        log._said.clear()
        with self.assertLogs("fp8c.torch", logging.WARNING) as logs:
            loss = loose(model, recipe="f32")(x)
        loss.backward()
        self.assertIn("cumsum", logs.output[0])
        self.assertIn("test_report.py:", logs.output[0])
        own = model.before.weight.grad.clone()
        model.zero_grad()
        model(x).backward()
        torch.testing.assert_close(own, model.before.weight.grad, rtol=1e-4, atol=1e-6)
        report = fp8c.torch.report(model)
        self.assertEqual([x.kind for x in report.linears], ["f32", "f32"])
        self.assertIn("cumsum", str(report.eager_ops[0]))

    def test_complex(self) -> None:
        """What is complex runs in PyTorch, or is an error under strict where it has parameters."""
        model = Bilinear()
        with self.assertLogs("fp8c.torch", logging.WARNING):
            loose(model)(torch.randn(4, 8)).backward()
        report = fp8c.torch.report(model)
        self.assertEqual(report["up"].kind, "FP8")
        lost = [one for one in report.linears if one.kind == "not compiled"]
        self.assertTrue(all("complex" in one.reason for one in lost), report)
        self.assertTrue(any("complex" in str(op) for op in report.eager_ops), report)
        torch._dynamo.reset()
        with self.assertRaisesRegex(Exception, "complex.weight.*complex"):
            loose(model, strict=True)(torch.randn(4, 8))

    def test_said_once(self) -> None:
        log._said.discard("a word")
        with self.assertLogs("fp8c.torch", logging.WARNING) as logs:
            log.say_once("a word")
            log.say_once("a word")
        self.assertEqual(len(logs.output), 1)


class Strict(BackendTest):
    """Under strict a lost linear is an error as soon as it is known."""

    def test_at_the_compile(self) -> None:
        """The compile sees that PyTorch would run an op on a weight, or on an expert's."""
        x = torch.randn(16, 32)
        for model in (torch.nn.Sequential(Summed(32, 32)), Experts()):
            with self.subTest(type(model).__name__), self.assertRaisesRegex(
                    Exception, r"aten\.cumsum\.default: .*test_report\.py:\d+"):
                loose(model, strict=True)(x)
            torch._dynamo.reset()

    def test_at_the_backward(self) -> None:
        """A gradient shows that a linear which no graph has was run: disabled, or behind a break."""
        def disabled() -> torch.nn.Module:
            model = Fft()
            model.after.forward = torch.compiler.disable(model.after.forward)
            return model

        for make, name, why in ((Parts, "hidden", "never traced; dynamo ended a graph: "),
                                (disabled, "after", "torch.compiler.disable keeps after out")):
            for how in ("torch.compile", "model.compile", "compile_for_trainer"):
                with self.subTest(name, how=how):
                    torch._dynamo.reset()
                    call = model = make()
                    if how == "torch.compile":
                        call = loose(model, strict=True)
                    elif how == "model.compile":
                        model.compile(backend="fp8c", options={"strict": True})
                    else:
                        fp8c.torch.compile_for_trainer(model, strict=True)
                    for _ in range(2):
                        loss = call(torch.randn(4, 8))
                        with self.assertRaisesRegex(fp8c.torch.Unsupported, f"linear {name}: .*{why}"):
                            loss.backward()
                    with torch.no_grad():
                        call(torch.randn(4, 8))

    def test_at_the_report(self) -> None:
        """Without a gradient the report is the first to know; also where a function was compiled."""
        for prepare in (lambda m: m.hidden.requires_grad_(False), lambda m: None):
            torch._dynamo.reset()
            model = Parts()
            prepare(model)
            call = loose(model, strict=True)
            if model.hidden.weight.requires_grad:
                call = torch.compile(lambda x, m=model: m(x), backend="fp8c", options={"strict": True})
            call(torch.randn(4, 8)).backward()
            with self.assertRaisesRegex(fp8c.torch.Unsupported, "linear hidden"):
                fp8c.torch.report(model)

    def test_no_false_alarm(self) -> None:
        """Regions of a model, whose other linears are not compiled; a linear that is not called; frozen
        weights that are trained later; a model that is compiled without strict."""
        for strict in (True, False):
            torch._dynamo.reset()
            model = torch.nn.Sequential(Chain(torch.nn.Linear(8, 8)), torch.nn.Linear(8, 8), Together())
            model[0].compile(backend="fp8c", options={"strict": strict})
            model[2].compile(backend="fp8c", options={"strict": strict})
            model[2].seen.requires_grad_(False)
            x = torch.randn(16, 8)
            model(x).backward()
            model[2].seen.requires_grad_(True)
            torch.optim.SGD(model.parameters(), lr=0.1).step()
            model(x).backward()
            self.assertIsNotNone(model[2].seen.weight.grad)
            self.assertIsNotNone(model[1].weight.grad)
        model = Parts()
        loose(model)(torch.randn(4, 8)).backward()


class Rows(BackendTest):
    """Each weight has its row, with the op that keeps it from being a linear."""

    def test_a_weight_that_an_op_reads(self) -> None:
        """The op is named wherever the graph begins: at the model, a region, a list, a function."""
        make = {
            "model": lambda m: loose(m),
            "regions": lambda m: [part.compile(backend="fp8c") for part in m] and m,
            "list": lambda m: torch.compile(lambda x, parts=list(m): parts[1](parts[0](x)), backend="fp8c"),
            "function": lambda m: torch.compile(lambda x: m(x), backend="fp8c"),
        }
        for name, compile_it in make.items():
            with self.subTest(name):
                torch._dynamo.reset()
                model = torch.nn.Sequential(Chain(torch.nn.Linear(8, 8), Summed(8, 8)), Chain(Summed(8, 8)))
                compile_it(model)(torch.randn(16, 8)).sum().backward()
                report = fp8c.torch.report(model)
                self.assertEqual([(x.name, x.kind, x.place.module) for x in report.linears],
                                 [("0.0", "FP8", "0.0"), ("0.1", "not compiled", "0.1"),
                                  ("1.0", "not compiled", "1.0")])
                for one in report.left_out:
                    self.assertRegex(one.reason, r"^aten\.cumsum\.default: cumulative sums")

    def test_falcon(self) -> None:
        """Its linears compute `x @ w.T`. Each is compiled, or an op is named."""
        import transformers
        config = transformers.FalconConfig(vocab_size=61, hidden_size=32, num_hidden_layers=2,
                                           num_attention_heads=4, ffn_hidden_size=48)
        for wrap in (lambda m: m, lambda m: lambda **inputs: m(**inputs)):
            torch._dynamo.reset()
            model, ids = transformers.FalconForCausalLM(config), torch.arange(18).reshape(2, 9)
            torch.compile(wrap(model), backend="fp8c")(input_ids=ids, labels=ids).loss.backward()
            report = fp8c.torch.report(model)
            self.assertEqual(len(report.linears), 9, report)
            for one in report.linears:
                self.assertEqual(one.place.module, one.name)
                self.assertTrue(one.kind == "FP8" or one.reason.startswith("aten."), one)

    def test_a_computed_weight(self) -> None:
        """Of a linear with weight_norm the op that computes the weight is named; where fp8c itself
        computes it, the row is the linear's."""
        norm = torch.nn.utils.parametrizations.weight_norm(torch.nn.Linear(8, 8))
        model = torch.nn.Sequential(torch.nn.Linear(8, 8), norm)
        loose(model)(torch.randn(16, 8)).sum().backward()
        report = fp8c.torch.report(model)
        self.assertEqual(report["0"].kind, "FP8")
        self.assertTrue(report["1"].kind != "not compiled" or report["1"].reason.startswith("aten."), report)

        class Doubled(torch.nn.Linear):
            def forward(self, x: torch.Tensor) -> torch.Tensor:
                return torch.nn.functional.linear(x, self.weight * self.bias[:, None])

        model = torch.nn.Sequential(torch.nn.Linear(8, 8), Doubled(8, 8))
        loose(model)(torch.randn(16, 8)).sum().backward()
        self.assertEqual(fp8c.torch.report(model).counts(), {"FP8": 2})

    def test_parameters_of_no_linear(self) -> None:
        for recipe, product in (("current", "bf16"), ("f32", "f32")):
            with self.subTest(recipe):
                torch._dynamo.reset()
                model = torch.nn.Sequential(torch.nn.Linear(32, 32), Experts())
                loose(model, recipe=recipe)(torch.randn(64, 32)).sum().backward()
                report = fp8c.torch.report(model)
                linear = "FP8" if recipe == "current" else "f32"
                self.assertEqual({x.name: x.kind for x in report.linears},
                                 {"0": linear, "1.out": linear, "1.router": report["1.router"].kind,
                                  "1.up": product, "1.down": product, "1.lost": "not compiled"})
                self.assertNotEqual(report["1.router"].kind, "not compiled")  # rows are no multiple of 16
                for name in ("1.up", "1.down"):
                    self.assertEqual((report[name].reason, report[name].place.module),
                                     ("a batch of matrices", "1"))
                self.assertIn("aten.cumsum.default", report["1.lost"].reason)

    def test_paths(self) -> None:
        """An index is a name of named_modules(), also of a module in a list."""
        inner = torch.nn.Sequential(torch.nn.Linear(8, 8), Fft())
        outer = Wrapped(inner)
        loose(outer)(torch.randn(16, 8)).backward()
        self.assertEqual([str(op.place).partition(" ")[2] for op in fp8c.torch.report(inner).eager_ops],
                         ["(module 1)"])
        self.assertEqual([x.place.module for x in fp8c.torch.report(inner).linears], ["0", "1.before", "1.after"])
        self.assertEqual(fp8c.torch.report(outer)["stem.0"].kind, "FP8")
        for source, path in (("L['self']._modules['a-b']._parameters['w']", "a-b.w"),
                             ("G['models'][1]._modules['0']._buffers['mean']", "1.0.mean"),
                             ("L['self'].__dict__['towers'][0]._parameters['w']", "towers.0.w"),
                             ("___f(L['x'])._modules['h']._parameters['w']", "h.w"),
                             ("L['x']._parameters['w'].grad", None)):
            parsed = private.parse_source(source)
            self.assertEqual(parsed and parsed[2], path)

    def test_several_modules(self) -> None:
        """A function of several modules, whose parameters have equal paths."""
        first, second = torch.nn.Linear(8, 8), torch.nn.Sequential(torch.nn.Linear(8, 8))
        third = [torch.nn.Linear(8, 8)]
        eager = torch.nn.Sequential(*map(twin, (first, second, third[0])))
        x = torch.randn(16, 8)
        torch.compile(lambda x: third[0](second(first(x))), backend="fp8c",
                      options={"recipe": "f32", "strict": True})(x).square().sum().backward()
        eager(x).square().sum().backward()
        for mine, other in zip((first, second[0], third[0]), (eager[0], eager[1][0], eager[2])):
            torch.testing.assert_close(mine.weight.grad, other.weight.grad)
        for model, name in ((first, ""), (second, "0"), (third[0], "")):
            self.assertEqual([(x.name, x.kind) for x in fp8c.torch.report(model).linears], [(name, "f32")])


class Apart(BackendTest):
    """A report is of one model."""

    def test_breaks_of_others(self) -> None:
        """Also of those of which no graph is known: dynamo gave up the whole function."""
        class Sparse(torch.nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.w = torch.nn.Parameter(torch.randn(8, 4))

            def forward(self, x: torch.Tensor) -> torch.Tensor:
                return torch.sparse.mm(x, self.w).sum()

        parts, sparse, whole = Parts(), Sparse(), Fft()
        loose(parts)(torch.randn(4, 8)).backward()
        loose(sparse)(torch.eye(8).to_sparse())
        loose(whole)(torch.randn(4, 8)).backward()
        self.assertEqual(fp8c.torch.report(whole).breaks, [])
        self.assertEqual(fp8c.torch.report(sparse).breaks, ["Attempted to wrap sparse Tensor"])
        found = fp8c.torch.report(parts).breaks
        self.assertEqual(len(found), 1)
        self.assertRegex(found[0], r"test_report\.py:\d+")

    def test_models_that_share_a_graph(self) -> None:
        """Dynamo compiles one graph for two models of one class."""
        models = [Fft() for _ in range(3)]
        for model in models:
            loose(model)(torch.randn(4, 8)).backward()
        graphs = {id(one) for model in models for one in graphs_of(model)}
        self.assertEqual(len(graphs), 1)
        for model in models:
            report = fp8c.torch.report(model)
            self.assertEqual([(x.name, x.kind) for x in report.linears], [("before", "FP8"), ("after", "FP8")])
            self.assertEqual(len(report.eager_ops), 1)
            self.assertEqual(report.fp8_gemms_planned, fp8c.torch.report(models[0]).fp8_gemms_planned)
        models = [torch.nn.Sequential(Summed(8, 8)) for _ in range(2)]
        for model in models:
            loose(model)(torch.randn(4, 8)).sum().backward()
            self.assertIn("aten.cumsum.default", fp8c.torch.report(model)["0"].reason)


class Names(BackendTest):
    def test_entry_point(self) -> None:
        """What pyproject.toml names is there. (The wheel's test calls it by its name.)"""
        import tomllib
        path = os.path.join(os.path.dirname(__file__), "../../frontend/python/pyproject.toml")
        with open(path, "rb") as file:
            points = tomllib.load(file)["project"]["entry-points"]["torch_dynamo_backends"]
        module, _, name = points["fp8c"].partition(":")
        self.assertIs(getattr(__import__(module, fromlist=[name]), name), fp8c.torch.fp8c_backend)

    def by_name(self, script: str, *folders: str) -> None:
        """Run a script with these folders before PYTHONPATH. A warning is an error there."""
        script += ("x = torch.randn(4, 8)\nmodel = torch.nn.Linear(8, 8)\n"
                   "torch.compile(model, backend='fp8c', options={'strict': True})(x).sum().backward()\n"
                   "import fp8c.torch\nprint(fp8c.torch.report(model).counts())\n"
                   "print('fp8c' in torch._dynamo.list_backends())\n")
        path = os.pathsep.join([*folders, *sys.path])
        made = subprocess.run([sys.executable, "-W", "error:::fp8c", "-c", script], capture_output=True,
                              text=True, check=False, env={**os.environ, "PYTHONPATH": path})
        self.assertEqual(made.stdout, "{'FP8': 1}\nTrue\n", made.stderr)
        self.assertNotIn("fp8c", made.stderr)

    def test_import_registers_the_name(self) -> None:
        """From a source tree, without an entry point. A second import changes nothing."""
        self.by_name("import torch, fp8c.torch, importlib\nimportlib.reload(fp8c.torch)\n")

    def test_import_beside_an_entry_point(self) -> None:
        """Where a wheel is installed, too: before the import, after it, and without one."""
        with tempfile.TemporaryDirectory() as site:
            info = os.path.join(site, "fp8c_of_a_test-1.0.dist-info")
            os.mkdir(info)
            for name, text in (("METADATA", "Metadata-Version: 2.1\nName: fp8c-of-a-test\nVersion: 1.0\n"),
                               ("entry_points.txt",
                                "[torch_dynamo_backends]\nfp8c = fp8c.torch.backend:fp8c_backend\n")):
                with open(os.path.join(info, name), "w", encoding="utf-8") as file:
                    file.write(text)
            for start in ("import torch\n", "import torch, fp8c.torch\n",
                          "import torch\ntorch._dynamo.list_backends()\nimport fp8c.torch\n",
                          "import torch, fp8c.torch\ntorch._dynamo.list_backends()\n"):
                with self.subTest(start):
                    self.by_name(start, site)

    def test_trainer(self) -> None:
        model, inputs = regression()
        made = fp8c.torch.compile_for_trainer(model, recipe="current", strict=True)
        self.assertIs(made, model)
        model(**inputs).backward()
        self.assertEqual(fp8c.torch.report(model).counts(), {"FP8": 2})
        self.assertIn("up.weight", model.state_dict())
        with self.assertRaisesRegex(ValueError, "no option 'fast'"):
            fp8c.torch.compile_for_trainer(model, fast=True)


class Routed(torch.nn.Module):
    """A router, of whose scores the two best choose, and a head."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = torch.nn.Linear(16, 4, bias=False)
        self.up = torch.nn.Linear(16, 16)
        self.head = torch.nn.Linear(16, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        weights, _ = torch.topk(torch.softmax(self.gate(x).view(-1, 4), -1), 2, dim=-1)
        return (self.head(self.up(x).view(-1, 16) * weights.sum(-1, keepdim=True))).square().mean()


class Positions(torch.nn.Module):
    """Keys of relative positions, as DeBERTa has them: parameters alone make them, and a product of
    activations reads them."""

    def __init__(self) -> None:
        super().__init__()
        self.table = torch.nn.Embedding(6, 8)
        self.norm = torch.nn.LayerNorm(8)
        self.key = torch.nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        keys = self.key(self.norm(self.table.weight))
        return (self.key(x) @ keys.expand(x.shape[0], -1, -1).mT).square().mean()


class Routers(BackendTest):
    def kinds(self, recipe: str, **options: object) -> dict[str, tuple[str, str]]:
        model = Routed()
        call = compiled(model, recipe, strict=False, **options)
        call(torch.randn(4, 16)).backward()
        return {one.name: (one.kind, one.reason) for one in fp8c.torch.report(model).linears}

    def test_a_router_stays_in_bf16(self) -> None:
        found = self.kinds("current")
        self.assertEqual(found["gate"], ("bf16", "a router: a top-k chooses by its result"))
        self.assertEqual((found["up"][0], found["head"][0]), ("FP8", "FP8"))

    def test_a_rule_is_obeyed(self) -> None:
        self.assertEqual(self.kinds("current", rules=['"gate" = current'])["gate"][0], "FP8")

    def test_what_linears_make_of_parameters(self) -> None:
        """It is a value, not a weight that wants a row."""
        model = Positions()
        compiled(model, "current")(torch.randn(2, 4, 8)).backward()
        self.assertEqual([one.name for one in fp8c.torch.report(model).linears], ["key"])

    def test_other_recipes(self) -> None:
        self.assertEqual(self.kinds("f32")["gate"][0], "f32")
        self.assertEqual(self.kinds("bf16")["gate"][0], "bf16")


if __name__ == "__main__":
    unittest.main()
