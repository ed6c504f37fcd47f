"""Training runs from Python: the command's losses and folders, callbacks, what ends a run."""
import gc
import json
import logging
import math
import os
import pathlib
import signal
import tempfile
import threading
import unittest

import fp8c
from support import MODELS, command

DIMS = {"B": 2, "T": 32, "L": 1, "C": 32, "H": 2}
TEXT = pathlib.Path(MODELS) / "README.md"


def gpt(**dims):
    return fp8c.Module.load(pathlib.Path(MODELS) / "gpt.f8", dims={**DIMS, **dims})


def interrupted(number, call):
    """Calls it, and sends the process a signal meanwhile."""
    threading.Timer(0.1, os.kill, (os.getpid(), number)).start()
    call()


def losses(folder):
    lines = (json.loads(line) for line in (folder / "steps.jsonl").read_text().splitlines())
    return [float.fromhex(r["loss_hex"]) for r in lines if r["event"] == "step"]


def bits(tensor):
    return (tensor.codes() if tensor.dtype == "f8e4m3" else tensor.numpy()).tobytes()


class Runs(unittest.TestCase):
    def setUp(self):
        place = tempfile.TemporaryDirectory()
        self.addCleanup(place.cleanup)
        self.folder = pathlib.Path(place.name)

    def test_the_command_goes_on_and_back(self):
        run = self.folder / "run"
        with fp8c.Training(gpt(), TEXT, recipe="delayed", steps=8, stop_at=3, run=run) as training:
            first = list(training)
        self.assertEqual([s.step for s in first], [1, 2, 3])
        self.assertEqual((training.result.done, training.result.begun_at), (3, 0))
        self.assertTrue(math.isnan(training.result.final_loss))
        command("train", "--resume", run, "--stop-at", "5")
        rest = list(fp8c.Training(resume=run))
        self.assertEqual([s.step for s in rest], [6, 7, 8])
        self.assertFalse(math.isnan(rest[-1].heldout_loss))
        whole = self.folder / "whole"
        dims = [word for item in DIMS.items() for word in ("-D", "%s=%d" % item)]
        command("train", pathlib.Path(MODELS) / "gpt.f8", *dims, "--data", TEXT, "--recipe", "delayed", "--steps", "8",
                "--run", whole)
        self.assertEqual(losses(run), losses(whole))
        self.assertEqual([s.loss for s in first], losses(whole)[:3])

    def test_weights(self):
        with fp8c.Training(gpt(), TEXT, steps=2, seed=7, run=self.folder / "other") as training:
            list(training)
        file = next((self.folder / "other").glob("checkpoint-2.safetensors"))
        records = []
        begun = fp8c.Training(gpt(), TEXT, steps=2, weights=file, ignore=["wpe.*"], allow_missing=["wpe.weight"],
                              map={"ln_f.*": "ln_f.*"}, run=self.folder / "run", record=records.append)
        first = [s.loss for s in begun]
        taken = next(r for r in records if r["event"] == "weights")
        self.assertEqual((len(taken["missing"]), taken["missing"][0]["variable"]), (1, "wpe.weight"))
        run = json.loads((self.folder / "run" / "run.json").read_text())
        self.assertEqual(run["weights"][0]["file"], str(file))
        self.assertNotEqual(first, losses(self.folder / "other"))
        with self.assertRaisesRegex(fp8c.InputError, "give one of the two"):
            fp8c.Training(resume=self.folder / "run", weights=[file], steps=3)
        with self.assertRaisesRegex(fp8c.InputError, "the file does not hold the weights"):
            fp8c.Training(gpt(C=64), TEXT, weights=file)

    def test_a_frozen_base(self):
        """Frozen weights are codes, which no step changes."""
        with fp8c.Training(gpt(), TEXT, steps=3, recipe="delayed", frozen="h.*.weight,wte.*",
                           stored="delayed") as training:
            program = training.program
            names = [program.variable(i).name for s in program.stored() for i in (s.variable, s.scale_variable)]
            before = [bits(program.read(name)) for name in names]
            list(training)
            self.assertEqual([bits(program.read(name)) for name in names], before)
            self.assertEqual(len(names), 8)
            self.assertNotIn("opt.m." + names[0], program.variables)

    def test_callbacks(self):
        records = []
        training = fp8c.Training(gpt(), TEXT, steps=4, eval_every=2, stats="*", every=2, record=records.append)
        for step in training:
            if step.step == 3:
                training.stop()
        events = [r["event"] for r in records]
        self.assertEqual((events.count("step"), events.count("eval")), (3, 1))
        self.assertIn("stats", events)
        self.assertEqual(training.result.done, 3)

    def test_a_callback_raises(self):
        def told(record):
            raise KeyError(record["event"])
        with self.assertRaises(KeyError):
            for _ in fp8c.Training(gpt(), TEXT, steps=4, record=told):
                pass

    def test_a_callback_raises_before_the_first_step(self):
        def said(text):
            raise KeyError(text)
        list(fp8c.Training(gpt(), TEXT, steps=4, stop_at=1, run=self.folder / "run"))
        with self.assertRaisesRegex(KeyError, "--steps is 5, and was 4"):
            fp8c.Training(resume=self.folder / "run", steps=5, say=said)
        fp8c.Training(resume=self.folder / "run")

    def test_an_exception_saves_nothing(self):
        run = self.folder / "run"
        with self.assertRaises(ZeroDivisionError), fp8c.Training(gpt(), TEXT, steps=4, run=run) as training:
            for _ in training:
                1 / 0
        fp8c.Training(resume=run)
        self.assertEqual(sorted(p.name for p in run.glob("checkpoint*")), ["checkpoint-0.safetensors"])

    def test_a_guard_ends_it(self):
        with self.assertLogs("fp8c", logging.WARNING), self.assertRaises(fp8c.CancelledError) as caught:
            for _ in fp8c.Training(gpt(), TEXT, lr=1e30, steps=40, guard="stop", run=self.folder / "run"):
                pass
        fp8c.Training(resume=self.folder / "run", steps=40)
        self.assertIn("the guard ended the run", str(caught.exception))

    def test_what_is_given_up_goes(self):
        for name, callback in (("plain", None), ("cycle", lambda record: training.stop())):
            training = fp8c.Training(gpt(), TEXT, steps=4, run=self.folder / name, record=callback)
            next(iter(training))
            del training
            gc.collect()
            with self.subTest(name):
                training = fp8c.Training(resume=self.folder / name)
                self.assertEqual(training.result.done, 0)

    def test_signals(self):
        def leave(*_):
            raise SystemExit(3)
        for number, handler in ((signal.SIGTERM, leave), (signal.SIGALRM, leave),
                                (signal.SIGINT, signal.default_int_handler)):  # a shell's background jobs ignore it
            self.addCleanup(signal.signal, number, signal.signal(number, handler))
        slow, text = gpt(T=128, C=128), self.folder / "text"
        text.write_bytes(TEXT.read_bytes() * 9)
        for number, kind in ((signal.SIGINT, KeyboardInterrupt), (signal.SIGTERM, SystemExit),
                             (signal.SIGALRM, SystemExit)):
            training = fp8c.Training(slow, text, steps=400)
            with self.subTest(kind), self.assertRaises(kind):
                interrupted(number, lambda: list(training))
            self.assertGreater(training.result.done, 0)
        self.assertIs(signal.getsignal(signal.SIGTERM), leave)
        with tempfile.TemporaryDirectory() as cache, self.assertRaises(KeyboardInterrupt):
            deep = fp8c.Module.load(pathlib.Path(MODELS) / "gpt.f8", dims=dict(DIMS, L=12),
                                    context=fp8c.Context(cache_dir=cache))
            interrupted(signal.SIGINT, lambda: deep.compile(recipe="delayed"))

    def test_what_is_refused(self):
        with self.assertRaisesRegex(fp8c.FileError, "nofile: error: No such file"):
            fp8c.Training(gpt(), "nofile")
        with self.assertRaisesRegex(fp8c.InputError, "data or batches"):
            fp8c.Training(gpt())
        with self.assertRaisesRegex(fp8c.InputError, "no compile option 'pair'"):
            fp8c.Training(gpt(), TEXT, pair=True)
        with self.assertRaisesRegex(TypeError, "recepi"):
            fp8c.Training(gpt(), TEXT, recepi="delayed")

    def test_rows_and_the_program(self):
        import numpy as np
        np.save(self.folder / "x.npy", np.ones((32, 4), np.float32))
        np.save(self.folder / "y.npy", np.zeros(32, np.int32))
        module = fp8c.Module.parse("module m\ndim B = 2\nparam w: f32[4, 3] normal(0.5)\n"
                                   "func forward(%x: f32[B, 4], %y: i32[B]) -> (%loss: f32[]) {\n"
                                   "  return cross_entropy(linear(%x, w), %y)\n}\noptimizer adamw {lr = 0.05}\n")
        batches = {"x": self.folder / "x.npy", "y": self.folder / "y.npy"}
        training = fp8c.Training(module, batches=batches, steps=3, seed=0)
        before = training.program.tensor("w").numpy().copy()
        found = [s.loss for s in training]
        self.assertLess(found[-1], found[0])
        self.assertFalse((training.program.tensor("w").numpy() == before).all())


if __name__ == "__main__":
    unittest.main()
