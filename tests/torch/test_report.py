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
from fp8c.torch import backend
from support import BackendTest, compiled, regression


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

    def test_strict_raises_at_report(self) -> None:
        model = Parts()
        loose(model, strict=True)(torch.randn(4, 8)).backward()
        with self.assertRaisesRegex(fp8c.torch.Unsupported, "linear hidden"):
            fp8c.torch.report(model)

    def test_an_op_between_stages(self) -> None:
        """PyTorch runs it, with gradients, and says so once; the linears are compiled."""
        model, x = Fft(), torch.randn(4, 8)
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
        backend._said.discard("a word")
        with self.assertLogs("fp8c.torch", logging.WARNING) as logs:
            backend.say_once("a word")
            backend.say_once("a word")
        self.assertEqual(len(logs.output), 1)


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


if __name__ == "__main__":
    unittest.main()
