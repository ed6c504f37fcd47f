"""What fp8c can't take: the message has the tensor or the op, the module and the line; `strict`
makes it an error, and else PyTorch runs the graph, which is said once. And hooks: they change what
they change in PyTorch, or are refused."""

from __future__ import annotations

import contextlib
import logging
import subprocess
import sys
import tempfile
import unittest
import unittest.mock
from typing import Any, Callable

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import CPUOffloadPolicy, FullyShardedDataParallel, fully_shard
from torch.distributed.tensor import DTensor, Replicate, distribute_tensor

import fp8c
import fp8c.torch
from fp8c.torch import Unsupported, backend, log, private, selftest
from fp8c.torch.graph.refused import check_tensor
from fp8c.torch.run import bound, device
from support import BackendTest, Regression, compiled, gradients, regression, twin

SUPPORT = r"support\.py:\d+ \(module {}\)"  # where Regression's forward is


class Halves(torch.nn.Module):
    """Two linears, and between them what a test puts there."""

    def __init__(self, between: Callable[..., torch.Tensor]) -> None:
        super().__init__()
        self.a, self.b = torch.nn.Linear(8, 8), torch.nn.Linear(8, 8)
        self.between = between

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.b(self.between(self.a(x))).square().sum()


class Triple(torch.autograd.Function):
    """The identity, whose backward is another's."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, d: torch.Tensor) -> torch.Tensor:
        return d * 3


def hooked(x: torch.Tensor) -> torch.Tensor:
    x.register_hook(lambda d: d * 3)
    return x


def decides(x: torch.Tensor) -> torch.Tensor:
    if x.sum() > 0:
        return x * 2
    return x * 3


class RefusedTest(BackendTest):
    def refused(self, model: torch.nn.Module, inputs: dict[str, Any], message: str) -> None:
        """Under strict an error with this message. Else it is logged, once for two graphs, and
        PyTorch runs them."""
        with self.assertRaisesRegex(Exception, message):
            compiled(model)(**inputs)
        log._said.clear()
        with self.assertLogs("fp8c.torch", logging.WARNING) as logs:
            for _ in range(2):
                torch._dynamo.reset()
                compiled(model, strict=False)(**inputs)
        self.assertEqual(len(logs.output), 1, logs.output)
        self.assertRegex(logs.output[0], "runs in PyTorch, not in fp8c: .*" + message)

    def alone(
        self,
        model: torch.nn.Module,
        inputs: dict[str, Any],
        messages: list[str],
        strict: bool = True,
    ) -> None:
        """PyTorch runs these ops and no others, which is logged once for two graphs."""
        log._said.clear()
        with self.assertLogs("fp8c.torch", logging.WARNING) as logs:
            for _ in range(2):
                torch._dynamo.reset()
                compiled(model, strict=strict)(**inputs)
        self.assertEqual(len(logs.output), len(messages), logs.output)
        for said, message in zip(logs.output, messages):
            self.assertRegex(said, "PyTorch runs " + message)


class Tensors(RefusedTest):
    def test_complex(self) -> None:
        model, x = Halves(torch.real), torch.randn(2, 8)
        model.a = torch.nn.Linear(8, 8, dtype=torch.complex64)
        inputs, place = {"x": x + 0j}, r"at .*test_refused\.py:\d+"
        with self.assertRaisesRegex(
            Exception,
            r"(param a.weight|input .*x.*): it is complex; keep it as two real tensors \(torch.view_as_real\), "
            + place
            + r" \(module a\)",
        ):
            compiled(model)(**inputs)
        real = "torch.real: it has complex numbers, " + place
        self.alone(
            model, inputs, [r".*linear: it has complex numbers, " + place, real], strict=False
        )
        model = Halves(torch.real)
        model.a = torch.nn.Identity()
        self.alone(model, inputs, [real])

    def test_complex_activations(self) -> None:
        """PyTorch runs them between two stages, and gradients go through."""
        model = Halves(
            lambda x: torch.view_as_real(torch.view_as_complex(x.view(-1, 4, 2)) * 2j).flatten(1)
        )
        x, eager = torch.randn(3, 8), twin(model)
        log._said.clear()
        with self.assertLogs("fp8c.torch", logging.WARNING) as logs:
            compiled(model)(x).backward()
        self.assertRegex(logs.output[0], r"aten\.view_as_complex.*test_refused\.py:\d+")
        eager(x).backward()
        for p, q in zip(model.parameters(), eager.parameters()):
            torch.testing.assert_close(p.grad, q.grad)

    def test_sparse(self) -> None:
        """Dynamo itself leaves a sparse input to PyTorch. One that came through would be refused."""

        class Sparse(torch.nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.w = torch.nn.Parameter(torch.randn(8, 4))

            def forward(self, x: torch.Tensor) -> torch.Tensor:
                return torch.sparse.mm(x, self.w).sum()

        model, x = Sparse(), torch.eye(8).to_sparse()
        torch._dynamo.utils.counters.clear()
        self.assertEqual(float(compiled(model)(x)), float(model.w.sum()))
        self.assertIn("Attempted to wrap sparse Tensor", fp8c.torch.report(model).breaks)
        with self.assertRaisesRegex(
            Unsupported, r"input x: it is sparse \(torch.sparse_coo\); give it as .to_dense\(\)"
        ):
            check_tensor("x", "input", torch.fx.Graph().placeholder("x"), x, x)

    def test_views(self) -> None:
        """A view that poses as a parameter, as some wrappers make them, and one that is not
        contiguous, or overlaps another."""
        model, inputs = regression()
        view = torch.randn(48, 13)[:24]
        view._is_param = True  # nn.Parameter's own mark
        model.up.weight = view.requires_grad_()
        self.refused(
            model,
            inputs,
            r"param up.weight: it is a view of another tensor; make it a tensor of its own: "
            r"torch.nn.Parameter\(view.detach\(\).clone\(\)\), at .*" + SUPPORT.format("up"),
        )
        model, inputs = regression()
        model.up.weight.data = torch.randn(13, 24).t()
        self.refused(
            model,
            inputs,
            r"parameter up.weight: it is not contiguous; write p.data = p.data.contiguous\(\)",
        )
        model, inputs = regression()
        flat = torch.randn(40)
        model.up.bias.data, model.norm.bias.data = flat[:24], flat[10:34]
        self.refused(
            model, inputs, "parameter norm.bias: .*overlaps that of variable 'up.bias'; clone"
        )

    def test_dtypes(self) -> None:
        """Parameters of other dtypes, with what to do instead; that works."""
        floats = r"; call .float\(\) or .bfloat16\(\) on the model, at "
        for dtype in (torch.float16, torch.float64):
            with self.subTest(dtype):
                torch._dynamo.reset()
                model, x = Halves(torch.relu).to(dtype), torch.randn(2, 8, dtype=dtype)
                self.refused(model, {"x": x}, rf"param a.weight: its dtype is {dtype}: .*{floats}")
                for change in (torch.nn.Module.float, torch.nn.Module.bfloat16):
                    torch._dynamo.reset()
                    change(model)
                    compiled(model)(x.to(model.a.weight.dtype)).backward()
                    self.assertIsNotNone(model.a.weight.grad)
                    model.zero_grad()
        fp8 = torch.nn.Parameter(torch.zeros(8, 8).to(torch.float8_e4m3fn), requires_grad=False)
        placeholder = torch.fx.Graph().placeholder("w")
        with self.assertRaisesRegex(Unsupported, "; make it a buffer, or a float32 parameter"):
            check_tensor("w", "param", placeholder, fp8.detach(), fp8)
        whole = torch.quantize_per_tensor(torch.ones(2), 1.0, 0, torch.qint8)
        with self.assertRaisesRegex(Unsupported, r"it is quantized; give it as .dequantize\(\)"):
            check_tensor("w", "input", placeholder, whole, whole)

    def test_parts_of_one_memory(self) -> None:
        """Parameters that lie side by side in one tensor are taken as they are."""
        model, inputs = regression()
        eager, flat = twin(model), torch.cat([model.up.bias, model.norm.bias]).detach()
        model.up.bias.data, model.norm.bias.data = flat[:24], flat[24:]
        compiled(model)(**inputs).backward()
        eager(**inputs).backward()
        for p, q in zip(model.parameters(), eager.parameters()):
            torch.testing.assert_close(p.grad, q.grad)

    def test_devices(self) -> None:
        model, inputs = regression()
        with self.assertRaisesRegex(
            Exception,
            r"(param|input) .*it is on the device meta: .*; move the model there with .to\(\), at .*"
            + SUPPORT.format("up"),
        ):
            compiled(model.to("meta"))(**{k: v.to("meta") for k, v in inputs.items()})

    @unittest.skipIf(torch.cuda.is_available(), "this machine has the device")
    def test_no_gpu(self) -> None:
        """A device that libfp8c can't open is an error, with or without strict."""
        for strict in (True, False):
            torch._dynamo.reset()
            model, inputs = regression()
            with (
                unittest.mock.patch.object(bound, "device_of", lambda _: device.Gpu(torch.device("cuda", 0))),
                unittest.mock.patch.object(device.Gpu, "current", lambda _: contextlib.nullcontext()),
                self.assertRaisesRegex(Exception, "CUDA"),
            ):
                compiled(model, strict=strict)(**inputs)


class Failures(RefusedTest):
    """An error of Python's in fp8c.torch costs the graph. What a library, memory or fp8c itself lacks
    is an error."""

    def failing(self, error: Exception) -> Any:
        def fails(*args: Any) -> Any:
            raise error

        return unittest.mock.patch.object(backend, "capture", fails)

    def test_of_python(self) -> None:
        model, inputs = regression()
        with self.failing(KeyError("causal_mask")):
            self.refused(model, inputs, "fp8c.torch failed: KeyError: 'causal_mask'|KeyError")

    def test_of_fp8c(self) -> None:
        for kind in (fp8c.LibraryError, fp8c.OutOfMemoryError, fp8c.InternalError, fp8c.CancelledError):
            torch._dynamo.reset()
            model, inputs = regression()
            with self.subTest(kind.__name__), self.failing(kind("it is lost")):
                with self.assertRaisesRegex(Exception, "it is lost"):
                    compiled(model, strict=False)(**inputs)


class Modes(RefusedTest):
    def test_mode_is_ignored(self) -> None:
        """Inductor's modes change nothing, which is said once."""
        model, inputs = regression()
        want = twin(model)(**inputs)
        log._said.clear()
        with self.assertLogs("fp8c.torch", logging.WARNING) as logs:
            for _ in range(2):
                torch._dynamo.reset()
                call = torch.compile(model, backend=fp8c.torch.fp8c_backend, mode="reduce-overhead")
                loss = call(**inputs)
        self.assertEqual(len(logs.output), 1, logs.output)
        self.assertIn("mode='reduce-overhead' is ignored", logs.output[0])
        self.assertAlmostEqual(float(loss.detach()), float(want.detach()), delta=0.1)
        self.assertEqual(fp8c.torch.report(model).counts(), {"FP8": 2})


class Hooks(RefusedTest):
    """Hooks that change values give eager's gradients."""

    def same(self, prepare: Callable[[Regression], Any], strict: bool = True) -> torch.nn.Module:
        """The model after a call whose loss and gradients are those of eager PyTorch, and not those
        without the hook."""
        model, inputs = regression()
        eager, plain = twin(model), twin(model)
        found = []
        for one in (model, eager):
            prepare(one)
        call = compiled(model, strict=strict)
        for one in (call, eager, plain):
            loss = one(**inputs)
            loss.backward()
            found.append(float(loss.detach()))
        self.assertAlmostEqual(found[0], found[1], places=5)
        own, theirs, without = (gradients(m) for m in (model, eager, plain))
        for name in theirs:
            torch.testing.assert_close(own[name], theirs[name], msg=name)
        self.assertTrue(
            any(not torch.allclose(theirs[n], without[n]) for n in theirs), "the hook does nothing"
        )
        return model

    def test_forward_hooks(self) -> None:
        """They are traced into the graph."""
        for name, prepare in {
            "hook": lambda m: m.up.register_forward_hook(lambda module, args, out: out * 2),
            "pre-hook": lambda m: m.up.register_forward_pre_hook(
                lambda module, args: (args[0] * 2,)
            ),
            "hook of the model": lambda m: m.register_forward_hook(
                lambda module, args, out: out * 2
            ),
        }.items():
            with self.subTest(name):
                torch._dynamo.reset()
                self.assertEqual(fp8c.torch.report(self.same(prepare)).counts(), {"f32": 2})

    def test_parameter_hooks(self) -> None:
        """They are autograd's, which adopts the gradients."""

        def add(p: torch.Tensor) -> None:
            p.grad.mul_(2)

        for name, prepare in {
            "hook": lambda m: m.up.weight.register_hook(lambda d: d * 2),
            "after accumulation": lambda m: m.up.weight.register_post_accumulate_grad_hook(add),
        }.items():
            with self.subTest(name):
                torch._dynamo.reset()
                self.assertEqual(fp8c.torch.report(self.same(prepare)).counts(), {"f32": 2})

    def test_backward_hooks(self) -> None:
        """Dynamo leaves such a module to PyTorch. The report says so, and where; so does the first
        backward under strict."""
        for kind in ("register_full_backward_hook", "register_full_backward_pre_hook"):
            with self.subTest(kind):
                torch._dynamo.reset()
                torch._dynamo.utils.counters.clear()
                log._said.clear()
                backend._broken.clear()

                def prepare(m: torch.nn.Module, kind: str = kind) -> None:
                    def double(module: torch.nn.Module, *d: Any) -> Any:
                        return tuple(None if t is None else t * 2 for t in d[0])

                    getattr(m.down, kind)(double)

                with self.assertLogs("fp8c.torch", logging.WARNING) as logs:
                    model = self.same(prepare, strict=False)
                why = r".*backward.* hooks.*support\.py:\d+"
                self.assertRegex(logs.output[0], "dynamo ended a graph: " + why)
                self.assertRegex(str(fp8c.torch.report(model)["down"]), "down: not compiled" + why)
                torch._dynamo.reset()
                model, inputs = regression()
                prepare(model)
                with self.assertRaisesRegex(Unsupported, "linear down: " + why):
                    compiled(model)(**inputs).backward()

    def test_activation_hooks(self) -> None:
        """A gradient within a graph is fp8c's own: PyTorch runs what a hook is on."""
        message = r"(register_hook|autograd_function_apply): .*a hook on an activation.*test_refused\.py:\d+"
        self.alone(Halves(hooked), {"x": torch.randn(3, 8)}, [message])
        torch._dynamo.reset()
        model = Halves(hooked)
        eager, x = twin(model), torch.randn(3, 8)
        for one in (compiled(model), eager):
            one(x).backward()
        for p, q in zip(model.parameters(), eager.parameters()):
            torch.testing.assert_close(p.grad, q.grad)
        self.assertEqual(fp8c.torch.report(model).counts(), {"f32": 2})

    def test_functions(self) -> None:
        self.alone(
            Halves(lambda x: Triple.apply(x)),
            {"x": torch.randn(3, 8)},
            [r"autograd_function_apply: a torch.autograd.Function .*test_refused\.py:\d+"],
        )

    def test_branches(self) -> None:
        """PyTorch runs torch.cond; an `if` ends the graph, which is said with the line."""

        def chooses(x: torch.Tensor) -> torch.Tensor:
            return torch.cond(x.sum() > 0, lambda x: x * 2, lambda x: x * 3, (x,))

        self.alone(
            Halves(chooses),
            {"x": torch.randn(3, 8)},
            [r"cond: its branch depends on data, at .*test_refused"],
        )
        torch._dynamo.reset()
        model, x = Halves(decides), torch.randn(3, 8)
        eager = twin(model)
        log._said.clear()
        backend._broken.clear()
        with self.assertLogs("fp8c.torch", logging.WARNING) as logs:
            call = compiled(model)
            for one in (call, eager):
                one(x).backward()
        self.assertEqual(len(logs.output), 1, logs.output)
        line = r"Data-dependent branching, at .*test_refused\.py:\d+"
        self.assertRegex(logs.output[0], line)
        report = fp8c.torch.report(model)
        self.assertRegex(report.breaks[0], line)
        self.assertEqual(report.counts(), {"f32": 2})
        for p, q in zip(model.parameters(), eager.parameters()):
            torch.testing.assert_close(p.grad, q.grad)


class Versions(RefusedTest):
    def test_pytorch(self) -> None:
        """A PyTorch that can't be captured is an error under strict, else said once."""
        model, inputs = regression()
        selftest._verdict.cache_clear()
        with (
            unittest.mock.patch.object(private, "TESTED", ("1.0",)),
            unittest.mock.patch.object(
                selftest, "problems_elsewhere", lambda: ["aten.x is missing"]
            ),
        ):
            self.refused(
                model,
                inputs,
                rf"PyTorch {torch.__version__.split('+')[0]}.*can't be captured "
                r"\(aten.x is missing\): fp8c is tested with 1.0",
            )
        selftest._verdict.cache_clear()

    def test_untested_pytorch(self) -> None:
        """One that can be is warned of, once."""
        model, inputs = regression()
        selftest._verdict.cache_clear()
        with (
            unittest.mock.patch.object(private, "TESTED", ("1.0",)),
            unittest.mock.patch.object(selftest, "problems_elsewhere", lambda: []),
            self.assertWarnsRegex(Warning, "was not tested with PyTorch") as warned,
        ):
            compiled(model)(**inputs)
            torch._dynamo.reset()
            compiled(model)(**inputs)
        self.assertEqual(len([w for w in warned.warnings if "was not tested" in str(w.message)]), 1)
        selftest._verdict.cache_clear()

    def test_old_pytorch(self) -> None:
        """One that lacks a name that fp8c.torch imports: its version and the name are said."""
        made = run(
            "import torch\nimport torch.fx.experimental.proxy_tensor as f\ndel f.make_fx\nimport fp8c.torch"
        )
        self.assertRegex(
            made.stderr.strip().split("\n")[-1],
            rf"ImportError: fp8c.torch is tested with PyTorch .*, and this is "
            rf"{torch.__version__.split('+')[0]}.*make_fx",
        )

    def test_libfp8c(self) -> None:
        """A libfp8c of another version is refused, before any compile."""
        made = run(
            "import os, ctypes.util, subprocess, sys, tempfile\n"
            "folder = tempfile.mkdtemp()\n"
            "source, library = folder + '/x.c', folder + '/libfp8c.so'\n"
            "open(source, 'w').write('const char *fp8c_version(void) { return \"99.0.0\"; }\\n')\n"
            "subprocess.run(['cc', '-shared', '-fPIC', '-o', library, source], check=True)\n"
            "os.environ['FP8C_LIBRARY'] = library\nimport fp8c.torch"
        )
        self.assertRegex(made.stderr.strip().split("\n")[-1], r"ImportError: .*99\.0\.0")


def run(script: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-W", "ignore", "-c", script], capture_output=True, text=True, check=False
    )


class Split(RefusedTest):
    """Parameters that are split over ranks are refused by name. One rank shows it."""

    @classmethod
    def setUpClass(cls) -> None:
        cls.folder = tempfile.TemporaryDirectory()
        dist.init_process_group(
            "gloo", init_method=f"file://{cls.folder.name}/store", rank=0, world_size=1
        )
        cls.mesh = init_device_mesh("cpu", (1,))

    @classmethod
    def tearDownClass(cls) -> None:
        dist.destroy_process_group()
        cls.folder.cleanup()

    def test_fsdp1(self) -> None:
        """FullyShardedDataParallel with use_orig_params."""
        model, inputs = regression()
        wrapped = FullyShardedDataParallel(model, use_orig_params=True, device_id=torch.device("cpu"))
        self.refused(
            wrapped,
            inputs,
            r"up.*weight: it is a parameter of FSDP1, split over ranks: of such parameters those of "
            r"FSDP2 \(fully_shard\) are supported; use that, or DDP, at .*" + SUPPORT.format("up"),
        )

    def test_offload(self) -> None:
        """FSDP2's, which keeps parts in the memory of the host."""
        model, inputs = regression()
        wrapped = fully_shard(
            model, mesh=self.mesh, offload_policy=CPUOffloadPolicy(pin_memory=False)
        )
        self.refused(
            wrapped,
            inputs,
            r"up.*weight: FSDP2 keeps it in the memory of the host \(CPUOffloadPolicy\): leave out "
            r"offload_policy, at .*" + SUPPORT.format("up"),
        )

    def test_fsdp2(self) -> None:
        """It is not refused, with a buffer and a parameter that it does not shard."""

        class Scaled(torch.nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.inner = torch.nn.Linear(5, 3)
                self.plain = torch.nn.Parameter(torch.rand(3))
                self.register_buffer("factor", torch.rand(4, 3)[1])

            def forward(self, x: torch.Tensor) -> torch.Tensor:
                return self.inner(x) * self.plain * self.factor

        model, x = Scaled(), torch.randn(4, 5)
        wanted = model(x)
        fully_shard(model, mesh=self.mesh, ignored_params={model.plain})
        torch.testing.assert_close(compiled(model)(x), wanted)

    def test_whole_in_fsdp2(self) -> None:
        """Buffers of a module that FSDP2 shards are whole, and so are parameters that it ignores."""

        class Scaled(Regression):
            def __init__(self) -> None:
                super().__init__()
                self.register_buffer("scale", torch.full((24,), 2.0))

            def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
                return torch.nn.functional.cross_entropy(self.down(self.up(x) * self.scale), y)

        torch.manual_seed(0)
        model, inputs = Scaled(), regression()[1]
        same = twin(model)
        fully_shard(model, mesh=self.mesh, ignored_params={model.down.weight})
        compiled(model)(**inputs).backward()
        same(**inputs).backward()
        self.assertEqual(fp8c.torch.report(model).counts(), {"f32": 2})
        torch.testing.assert_close(model.down.weight.grad, same.down.weight.grad)
        torch.testing.assert_close(model.up.weight.grad.full_tensor(), same.up.weight.grad)

    def test_flat_fsdp(self) -> None:
        """FSDP1's own kind of parameter never reaches a backend: dynamo leaves the module to
        PyTorch. The report names FSDP."""
        model, inputs = regression()
        wrapped = FullyShardedDataParallel(
            model, use_orig_params=False, device_id=torch.device("cpu")
        )
        compiled(wrapped)(**inputs).backward()
        for one in fp8c.torch.report(wrapped).linears:
            self.assertEqual(one.kind, "not compiled")
            self.assertIn("FSDP1 has split the parameters of the model over ranks: use FSDP2", one.reason)

    def test_dtensor(self) -> None:
        class Product(torch.nn.Module):
            def __init__(self, mesh: Any) -> None:
                super().__init__()
                self.w = torch.nn.Parameter(
                    distribute_tensor(torch.randn(8, 4), mesh, [Replicate()])
                )

            def forward(self, x: DTensor) -> torch.Tensor:
                return (x @ self.w).sum()

        x = distribute_tensor(torch.randn(3, 8), self.mesh, [Replicate()])
        self.refused(
            Product(self.mesh),
            {"x": x},
            r": it is a DTensor, which tensor parallelism .* splits over ranks: leave it out, and shard by "
            r"FSDP2 \(fully_shard\) alone, at .*test_refused\.py:\d+",
        )

    def test_zero_3(self) -> None:
        """DeepSpeed is not installed here: a parameter with its attributes stands for its own."""
        model, inputs = regression()
        model.down.weight.ds_id, model.down.weight.ds_status = 3, "AVAILABLE"
        self.refused(
            model,
            inputs,
            "param down.weight: it is a parameter of DeepSpeed's ZeRO-3, split over ranks: .*"
            + SUPPORT.format("down"),
        )


if __name__ == "__main__":
    unittest.main()
