"""Modules and programs from Python: messages, values, bits, functions, figures, files."""
import logging
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
import weakref

import fp8c
import numpy as np
from support import ADD, BUILD, LINEAR, MODELS, ROOT, SMALL_GPT, add_program, command, gpt, linear_program


def cross_entropy(x, w, targets):
    """The loss of LINEAR, and its gradients of x and w, in double."""
    x, w = x.astype(np.float64), w.astype(np.float64)
    z = x @ w
    p = np.exp(z - z.max(1, keepdims=True))
    p /= p.sum(1, keepdims=True)
    rows = np.arange(len(targets))
    loss = -np.log(p[rows, targets]).mean()
    p[rows, targets] -= 1
    p /= len(targets)
    return loss, p @ w.T, x.T @ p


class Modules(unittest.TestCase):
    def test_parse_error_has_its_place(self):
        with self.assertRaises(fp8c.InputError) as caught:
            fp8c.Module.parse("module m\ndim T = 4\nfunc forward(%x: f32[T]) -> f32[] {\n  return gelo(%x)\n}\n",
                              file="wrong.f8")
        error = caught.exception
        self.assertEqual(error.place, ("wrong.f8", 4, 10))
        self.assertEqual(error.status, fp8c.Status.ERR_INPUT)
        self.assertIn("gelo", error.message)
        self.assertIn("    4 |   return gelo(%x)", error.message)
        self.assertIsInstance(error, ValueError)

    def test_what_a_module_tells(self):
        module = gpt()
        self.assertEqual((module.name, module.dim("C"), module.accumulate), ("gpt", 32, 1))
        self.assertEqual(module.parameters()[0], 2 + 2 * 12 + 2)
        self.assertEqual((module.optimizer_steps, module.needs_steps), (300, False))
        text = module.text()
        self.assertEqual(fp8c.Module.parse(text).text(), text)
        with self.assertRaises(KeyError):
            module.dim("NO")

    def test_texts(self):
        with self.assertRaises(fp8c.InputError):
            fp8c.Module.parse("module m\0x\n")
        with self.assertRaises(fp8c.InputError):
            fp8c.Module.parse("module m\n# \udcff\nno")
        with self.assertRaises(ValueError):
            fp8c.Module.parse(LINEAR).rule('"fc"\0 = bf16')

    def test_rules(self):
        module = fp8c.Module.parse(LINEAR)
        module.rule('"fc" wgrad = bf16', "here")
        module.check()
        formats = {d.role: d.format_a for d in module.compile(recipe="delayed").decisions()}
        self.assertEqual((formats["fprop"], formats["wgrad"]), ("f8e4m3", "bf16"))
        module.rule('"nothing" = bf16')
        with self.assertRaises(fp8c.InputError):
            module.check()


    def test_built_by_calls(self):
        module = fp8c.Module.create("linear")
        module.param("w", "f32", (5, 7), "normal", 0.5)
        with module.function("forward") as f:
            x, targets = f.input("x", "f32", (6, 5)), f.input("targets", "i32", (6,))
            y = f.op("linear", x, f.param("w"), attributes={"name": "fc"})
            f.result("loss", f.op("cross_entropy", y, targets))
        module.optimizer(lr=0.01, schedule="cosine", warmup=2, steps=10)
        module.recipe("fc", "delayed")
        text = LINEAR + 'optimizer adamw {lr = 0.01, schedule = "cosine", warmup = 2, steps = 10}\nrecipe "fc" = delayed'
        dims = re.compile(r"^dim .*\n", re.M)
        self.assertEqual(module.text(), dims.sub("", fp8c.Module.parse(text).text()))
        with self.assertRaisesRegex(fp8c.InputError, "nothing"):
            with module.function("other") as f:
                f.result("y", f.op("nothing", f.const(1.0)))
        with self.assertRaises(ZeroDivisionError):
            with module.function("other") as f:
                f.result("y", f.const(1.0))
                print(1 // 0)
        self.assertNotIn("other", module.text())
        slice_ = fp8c.op("slice")
        self.assertEqual([(a.name, a.default) for a in slice_.attributes][:1], [("axis", -1)])
        self.assertIn(slice_, fp8c.ops())
        with self.assertRaises(KeyError):
            fp8c.op("nothing")


class Values(unittest.TestCase):
    def setUp(self):
        rng = np.random.default_rng(1)
        self.x = rng.standard_normal((6, 5)).astype(np.float32)
        self.targets = rng.integers(0, 7, 6).astype(np.int32)

    def test_pair_against_numpy(self):
        program = linear_program(gradients_of="x")
        w = program.tensor("w").numpy()
        loss, dx, dw = np.zeros((), np.float32), np.zeros_like(self.x), np.zeros_like(w)
        with program.saved() as saved:
            program.forward(saved, [self.x, self.targets], [loss])
            program.backward(saved, [np.float32(1).reshape(()), self.x, self.targets], [dx, dw])
        expected = cross_entropy(self.x, w, self.targets)
        for got, want in zip((loss, dx, dw), expected):  # 5 and 7 terms in f32
            np.testing.assert_allclose(got, want, rtol=0, atol=16 * 2**-24 * max(1, np.abs(want).max()))

    def test_eight_axes(self):
        text = ("module m\nfunc forward(%x: f32[2, 1, 2, 3, 2, 1, 2, 3]) -> (%y: f32[3, 2, 1, 2, 3, 2, 1, 2]) "
                "{ return transpose(%x) {perm = [7, 6, 5, 4, 3, 2, 1, 0]} }\n")
        program = fp8c.Module.parse(text).compile(inference=True, recipe="f32")
        x = np.arange(144, dtype=np.float32).reshape(2, 1, 2, 3, 2, 1, 2, 3)
        y = np.zeros(x.shape[::-1], np.float32)
        program.call("eval", [x], [y])
        np.testing.assert_array_equal(y, x.transpose())

    def test_outputs_made_here(self):
        program = linear_program()
        saved = program.saved()
        (loss,) = program.forward(saved, [self.x, self.targets])
        (dw,) = program.backward(saved, [np.ones((), np.float32), self.x, self.targets])
        expected = cross_entropy(self.x, program.tensor("w").numpy(), self.targets)
        self.assertAlmostEqual(float(loss.numpy()), expected[0], 5)
        np.testing.assert_allclose(dw.numpy(), expected[2], rtol=0, atol=1e-6)

    def test_prepared_views(self):
        program = linear_program()
        loss = [np.zeros((), np.float32) for _ in range(2)]
        inputs, outputs = fp8c.Views([self.x, self.targets]), fp8c.Views([loss[0]])
        self.assertIs(program.call("eval", inputs, outputs), outputs)
        other = np.ascontiguousarray(-self.x)
        inputs[0].c.data = other.ctypes.data
        outputs[0].c.data = loss[1].ctypes.data
        program.call("eval", inputs, outputs)
        w = program.tensor("w").numpy()
        for x, got in zip((self.x, other), loss):
            self.assertAlmostEqual(float(got), cross_entropy(x, w, self.targets)[0], 5)
        program.release("eval")

    def test_bounds(self):
        program = add_program()
        for b in (3, 8, 1):
            x = np.arange(b * 4, dtype=np.float32).reshape(b, 4)
            (y,) = program.call("eval", [x])
            np.testing.assert_array_equal(y.numpy(), x + 1)
            self.assertEqual(program.dims(), [("B", b, 8)])
        program.set_dim("B", 5)
        self.assertEqual(program.inputs("eval")[0].type, ("f32", (5, 4)))
        self.assertIn((3,), program.values())
        with self.assertRaises(TypeError):
            program.buffer("eval", fp8c.INPUT, 0)
        with self.assertRaises(fp8c.InputError):
            program.call("eval", [np.zeros((9, 4), np.float32)])

    def test_buffers_of_the_program(self):
        program = linear_program()
        program.buffer("eval", fp8c.INPUT, 0).numpy()[:] = self.x
        program.buffer("eval", fp8c.INPUT, 1).numpy()[:] = self.targets
        program.run("eval")
        got = program.buffer("eval", fp8c.OUTPUT, 0).numpy()
        self.assertAlmostEqual(float(got), cross_entropy(self.x, program.tensor("w").numpy(), self.targets)[0], 5)


class Bits(unittest.TestCase):
    def test_equal_to_the_command(self):
        """micro_step, update and eval of a GPT under delayed: the bits of `fp8c run`."""
        rng = np.random.default_rng(2)
        tokens, targets = (rng.integers(0, 256, (2, 16)).astype(np.int32) for _ in range(2))
        program = gpt().compile(recipe="delayed", threads=1)
        program.initialize(1)
        losses = [np.zeros((), np.float32) for _ in range(2)]
        program.call("micro_step", [tokens, targets], [losses[0]])
        program.run("update")
        program.call("eval", [tokens, targets], [losses[1]])
        with tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder)
            np.save(folder / "tokens.npy", tokens)
            np.save(folder / "targets.npy", targets)
            files = [f"{n}={folder / n}.npy" for n in ("tokens", "targets")]
            dims = [a for n, v in SMALL_GPT.items() for a in ("-D", f"{n}={v}")]
            command("run", MODELS / "gpt.f8", *dims, "--recipe", "delayed", "--seed", "1", "--threads", "1",
                    "--function", "micro_step", "--function", "update", "--function", "eval", "--input", files[0],
                    "--input", files[1], "--output", f"loss={folder / 'loss.npy'}")
            self.assertEqual(np.load(folder / "loss.npy").tobytes(), losses[1].tobytes())
        self.assertLess(losses[1], losses[0])

    def test_file_ahead_of_time(self):
        module = fp8c.Module.parse(ADD)
        x = np.ones((2, 4), np.float32)
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "add.f8x"
            module.compile_file(path, [{"recipe": "f32", "inference": True, "values": "B=2,8"}])
            for program in (fp8c.Program.open(path), fp8c.Program.open_bytes(path.read_bytes(), threads=1)):
                program.initialize()
                np.testing.assert_array_equal(program.call("eval", [x])[0].numpy(), x + 1)
            with self.assertRaises(fp8c.UnsupportedError):
                program.set_dim("B", 3)
            with self.assertRaises(fp8c.FileError):
                fp8c.Program.open(folder)


class Variables(unittest.TestCase):
    def test_bound_variable_shares_its_memory(self):
        program = linear_program(add_gradients=True)
        w = program.read("w").numpy().copy()
        program.bind_variable("w", w)
        self.assertEqual(program.tensor("w").address, w.ctypes.data)
        x, targets = np.eye(6, 5, dtype=np.float32), np.arange(6, dtype=np.int32)
        for _ in range(2):
            (loss,) = program.call("eval", [x, targets])
            self.assertAlmostEqual(float(loss.numpy()), cross_entropy(x, w, targets)[0], 5)
            w *= 2
        gradient = program.tensor("grad.w").numpy()
        saved = program.saved()
        program.forward(saved, [x, targets])
        program.backward(saved, [np.ones((), np.float32), x, targets])
        np.testing.assert_allclose(gradient, cross_entropy(x, w, targets)[2], rtol=0, atol=1e-6)
        address, alive = w.ctypes.data, weakref.ref(w)
        del w
        self.assertIsNotNone(alive())  # the program keeps it
        program.bind_variable("w", None)
        self.assertIsNone(alive())
        self.assertNotEqual(program.tensor("w").address, address)

    def test_external(self):
        program = linear_program(external="w")
        x, targets = np.eye(6, 5, dtype=np.float32), np.zeros(6, np.int32)
        with self.assertRaisesRegex(fp8c.InputError, "w"):
            program.call("eval", [x, targets])
        with self.assertRaises(fp8c.InputError):
            program.tensor("w")
        program.bind_variable("w", np.zeros((5, 7), np.float32))
        self.assertAlmostEqual(float(program.call("eval", [x, targets])[0].numpy()), np.log(7), 5)

    def test_read_and_write(self):
        program = linear_program()
        w = np.arange(35, dtype=np.float32).reshape(5, 7)
        program.write("w", w)
        out = np.zeros_like(w)
        self.assertIs(program.read("w", out), out)
        np.testing.assert_array_equal(out, w)
        np.testing.assert_array_equal(program.read(0).numpy(), w)
        np.testing.assert_array_equal(program.tensor("w").numpy(), w)
        for wrong in (w.astype(np.float64), w[:4], w.T.copy().T, w.reshape(7, 5)):
            with self.assertRaisesRegex(ValueError, "f32\\[5, 7\\]|contiguous"):
                program.write("w", wrong)
        w.flags.writeable = False
        program.write("w", w)
        with self.assertRaisesRegex(ValueError, "read-only"):
            program.read("w", w)
        with self.assertRaises(KeyError):
            program.read("no")

    def test_files_and_elements(self):
        module = gpt()
        program, other = (module.compile(recipe="delayed") for _ in range(2))
        program.initialize(1)
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "state.safetensors"
            program.save(path)
            other.load(path)
            for name in program.variables:
                get = fp8c.Tensor.codes if name.startswith("fp8.codes.") else fp8c.Tensor.numpy
                np.testing.assert_array_equal(get(program.read(name)), get(other.read(name)), name)
            at = fp8c.Position(step=7, seed=2**64 - 1, batch=3)
            program.save(path, at)
            self.assertEqual(other.load_at(path), at)
            items = []
            other.load_weights([path], report=items.append)
            self.assertEqual({i.fate for i in items if i.variable in module.text()}, {0})
            with self.assertRaises(ZeroDivisionError):
                other.load_weights([path], report=lambda item: 1 / 0)
            with self.assertRaisesRegex(fp8c.FileError, "missing"):
                program.load(pathlib.Path(folder) / "missing")
        elements = program.elements("fp8.scale")
        self.assertIn("h.0.attn.c_attn.w", elements)
        self.assertEqual(other.carry_from(program).missing, 0)

    def test_variables(self):
        variables = linear_program(add_gradients=True).variables
        self.assertEqual(variables["w"].type, ("f32", (5, 7)))
        self.assertEqual(str(variables["w"].type), "f32[5, 7]")
        self.assertTrue(variables["w"].is_param and not variables["grad.w"].is_param)


class Figures(unittest.TestCase):
    def test_statistics_of_a_pair(self):
        program = fp8c.Module.parse(LINEAR).compile(recipe="current", pair=True, stats="*")
        plain = fp8c.Module.parse(LINEAR).compile(recipe="current", pair=True)
        x, targets = np.eye(6, 5, dtype=np.float32), np.arange(6, dtype=np.int32)
        found, rows = [], {}
        for one in (plain, program):
            one.initialize(3)
            saved, watches = one.saved(), one is program
            loss, = one.forward(saved, [x, targets], stats=watches, first=True)
            if watches:
                self.assertEqual(saved.function, "forward.stats")
                rows = {s.operand: s for s in one.statistics(saved.function)}
                self.assertEqual(rows["x"].aliases, ())
            given = {"dloss": np.ones((), np.float32), "x": x, "targets": targets}
            gradient, = one.backward(saved, [given[p.name] for p in one.inputs("backward")
                                             if not p.name.startswith("saved.")])
            found.append((loss.numpy().copy(), gradient.numpy().copy()))
        rows |= {s.operand: s for s in program.statistics(saved.function)}
        self.assertEqual(saved.function, "backward.stats")
        self.assertEqual(set(rows), {"x", "w", "y", "dy", "dw"})
        self.assertEqual((rows["dy"].format, rows["dy"].gemms), ("f8e5m2", "wgrad"))
        self.assertGreater(rows["w"].sqnr, 28)
        for a, b in zip(*found):
            self.assertTrue(np.array_equal(a, b))
        with self.assertRaisesRegex(fp8c.InputError, "compiled without `stats`"):
            plain.forward(plain.saved(), [x, targets], [loss], stats=True)

    def test_figures(self):
        program = gpt().compile(recipe="delayed", profile=True, memory_share=0.5, stats="h.0*")
        program.initialize()
        tokens = np.zeros((2, 16), np.int32)
        self.assertEqual(program.form("micro_step"), "micro_step.first")
        program.call("micro_step", [tokens, tokens])
        program.run("update")
        first = program.info().fp8_gemms_executed  # of a function with a plan of its own
        self.assertEqual(program.form("micro_step"), "micro_step")
        program.call("micro_step", [tokens, tokens])
        info = program.info()
        program.call("micro_step.stats", [tokens, tokens])
        self.assertEqual(program.target, "cpu")
        self.assertEqual(info.fp8_gemms_planned, 2 * 4 * 3 + program.remat().fp8_gemms)
        self.assertEqual(info.fp8_gemms_executed - first, info.fp8_gemms_planned)
        self.assertEqual(sum(m.bytes for m in program.memory("micro_step")), info.planned_bytes)
        fp8 = [d for d in program.decisions() if d.fp8]
        self.assertEqual({d.role for d in fp8}, {"fprop", "dgrad", "wgrad"})
        self.assertTrue(any(s.kind == "gemm" and s.seconds > 0 for s in program.steps("micro_step")))
        self.assertGreater(program.peak("micro_step").alive_bytes, 0)
        self.assertGreater(program.in_memory("micro_step")[0].bytes, 0)
        self.assertGreater(program.remat().recomputed, 0)
        self.assertIn("autodiff", " ".join(p.name for p in program.passes()))
        self.assertIsInstance(program.choices(), list)
        with self.assertRaises(fp8c.InputError):
            program.gpu()
        with self.assertRaises(KeyError):
            program.steps("no")

    def test_plan_only(self):
        program = gpt().compile(plan_only=True)
        remat = program.remat(memory_share=0.6)
        self.assertLess(remat.activations_after, remat.activations_before)
        self.assertGreater(remat.planned_bytes, 0)
        with self.assertRaises(fp8c.UnsupportedError):
            program.remat(memory_bytes=1)

    def test_auto(self):
        module = gpt()
        calibration = fp8c.Calibration(module)
        sampler = calibration.program
        sampler.initialize()
        for i in range(2):
            tokens = np.full((2, 16), i, np.int32)
            sampler.call("micro_step", [tokens, tokens])
            calibration.observe()
        program = module.compile(recipe="auto", calibration=calibration)
        trial, candidates = calibration.trials()[0]
        self.assertEqual(candidates[0].recipe, "bf16")
        self.assertTrue(0 <= trial.winner < len(candidates))
        self.assertRegex(calibration.rules(), 'recipe "')
        self.assertGreater(program.info().linears, 0)

    def test_doctor(self):
        with fp8c.Doctor(cpu_only=True) as doctor:
            self.assertEqual({c.name for c in doctor.components() if c.kind == "cpu"}, {"LLVM 19", "oneDNN 2"})


class Witness(unittest.TestCase):
    def test_values_are_judged(self):
        program = gpt().compile(recipe="bf16", witness=True)
        program.initialize(1)
        weight = program.tensor("h.0.mlp.c_fc.weight").numpy()
        good = program.run_witnessed("micro_step")
        self.assertGreater(len(good), 100)
        self.assertEqual({v.verdict for v in good}, {fp8c.Verdict.RIGHT})
        self.assertEqual(sum(v.nonfinite for v in good), 0)
        weight[0, 0] = np.inf
        bad = program.run_witnessed("micro_step")
        self.assertEqual({v.verdict for v in bad}, {fp8c.Verdict.RIGHT})
        first = next(v for v in bad if v.nonfinite)
        self.assertEqual((first.value, first.nonfinite_input), ("h.0.mlp.c_fc.fprop", "h.0.mlp.c_fc.weight"))

    def test_without_the_option(self):
        program = gpt().compile(recipe="delayed")
        program.initialize(1)
        with self.assertRaisesRegex(fp8c.InputError, "compiled without `witness`"):
            program.run_witnessed("micro_step")


class Gpu(unittest.TestCase):
    """On the emulator's GPU, whose device memory the host can't touch."""

    def setUp(self):
        if not (BUILD / "emulator/libcuda.so.1").exists():
            print("skipped: programs on a GPU from Python: no emulator in this build (make emulator)")
            self.skipTest("no emulator")
        self.context = fp8c.Context(gpu_library_path=str(BUILD / "emulator"))

    def test_call_read_write_and_share(self):
        program = fp8c.Module.parse(LINEAR, context=self.context).compile(recipe="f32", pair=True, target="cuda")
        program.initialize(3)
        x, targets = np.eye(6, 5, dtype=np.float32), np.arange(6, dtype=np.int32)
        w = program.read("w").numpy()
        loss = np.zeros((), np.float32)
        program.call("eval", [x, targets], [loss])
        self.assertAlmostEqual(float(loss), cross_entropy(x, w, targets)[0], 5)
        self.assertRegex(program.target, r"sm_\d+")
        self.assertGreater(program.gpu().memory, 0)
        tensor = program.tensor("w")
        self.assertEqual((tensor.device, tensor.__dlpack_device__()), ((2, 0), (2, 0)))
        for ask in (tensor.numpy, tensor.codes):
            with self.assertRaisesRegex(TypeError, "GPU"):
                ask()
        with self.assertRaises(AttributeError):
            tensor.__array_interface__
        with self.assertRaisesRegex(ValueError, "GPU"):
            program.write("w", tensor)
        other = fp8c.Module.parse(LINEAR, context=self.context).compile(recipe="f32", pair=True, target="cuda",
                                                                        external="w")
        view = fp8c.View.of(OnGpu(tensor))  # by a capsule, as other packages give it
        self.assertEqual(view.c.data, tensor.address)
        other.bind_variable("w", view)
        program.write("w", 2 * w)
        other.call("eval", [x, targets], [loss])
        self.assertAlmostEqual(float(loss), cross_entropy(x, 2 * w, targets)[0], 5)


class OnGpu:
    def __init__(self, tensor):
        self.__dlpack__ = tensor.__dlpack__


class Callbacks(unittest.TestCase):
    def test_log(self):
        logger = logging.getLogger("fp8c.test")
        logger.propagate = False
        with self.assertLogs(logger, logging.DEBUG) as logs:
            context = fp8c.Context(logger=logger, cache_dir="")
            fp8c.Module.parse(ADD, context=context).compile(inference=True)
        self.assertTrue(any(r.levelno == logging.DEBUG for r in logs.records))
        self.assertTrue(any(r.levelno == logging.INFO for r in logs.records))

    def test_exception_in_the_log_ends_nothing(self):
        class Broken(logging.Logger):
            def log(self, *_, **__):
                raise RuntimeError("a broken logger")
        seen = []
        hook, sys.unraisablehook = sys.unraisablehook, lambda u: seen.append(u.exc_value)
        try:
            context = fp8c.Context(logger=Broken("broken", logging.DEBUG), cache_dir="")
            fp8c.Module.parse(ADD, context=context).compile(inference=True)
        finally:
            sys.unraisablehook = hook
        self.assertIn("a broken logger", str(seen[0]))

    def test_progress(self):
        seen = []
        context = fp8c.Context(progress=lambda p: seen.append(p), cache_dir="")
        module = gpt(context)
        module.compile()
        self.assertEqual({p.phase for p in seen}, {"passes", "steps", "kernels", "report"})
        stop = fp8c.Context(progress=lambda p: p.phase == "kernels", cache_dir="")
        with self.assertRaises(fp8c.CancelledError):
            gpt(stop).compile()
        context = fp8c.Context(progress=lambda p: 1 / 0, cache_dir="")
        with self.assertRaises(ZeroDivisionError):
            gpt(context).compile()
        with self.assertRaises(fp8c.InputError):  # and the exception is gone
            fp8c.Module.parse("nothing", context=context)

    def test_print_after(self):
        texts = []
        fp8c.Module.parse(LINEAR).compile(pair=True, print_after="autodiff", write=texts.append)
        self.assertIn("module linear", "".join(texts))
        with self.assertRaises(ZeroDivisionError):
            fp8c.Module.parse(LINEAR).compile(pair=True, print_after="autodiff", write=lambda text: 1 / 0)

    def test_a_wrong_option(self):
        with self.assertRaisesRegex(fp8c.InputError, "threads"):
            fp8c.Context(threads=1000, logger=logging.getLogger("fp8c.silent"))
        with self.assertRaisesRegex(fp8c.InputError, "no_such"):
            fp8c.Module.parse(ADD).compile(target="no_such")
        with self.assertRaises(TypeError):
            fp8c.Module.parse(ADD).compile(no_such=1)


class Readme(unittest.TestCase):
    def test_examples_run(self):
        """Each block of Python in frontend/python/README.md, as a program."""
        text = (ROOT / "frontend/python/README.md").read_text()
        blocks = re.findall(r"```python\n(.*?)```", text, re.S)
        self.assertTrue(blocks)
        place = tempfile.TemporaryDirectory()
        self.addCleanup(place.cleanup)
        shutil.copytree(MODELS, place.name, dirs_exist_ok=True)
        for block in blocks:
            done = subprocess.run([sys.executable, "-c", block], cwd=place.name, capture_output=True, text=True,
                                  check=False)
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            self.assertRegex(done.stdout, r"loss")


logging.getLogger("fp8c.silent").addHandler(logging.NullHandler())
logging.getLogger("fp8c.silent").propagate = False
if __name__ == "__main__":
    unittest.main()
