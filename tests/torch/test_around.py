"""What people do around a model: autocast, bf16, DDP, regions compiled one by one, the wheel."""

from __future__ import annotations

import glob
import os
import re
import subprocess
import sys
import tempfile
import unittest

import torch

import fp8c.torch
import models
from gates import LEAST
from support import BackendTest, compiled, executed, loss_of, programs, regression, train, twin

HERE = os.path.dirname(os.path.abspath(__file__))


class Block(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a = torch.nn.Linear(8, 8)
        self.b = torch.nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.b(torch.relu(self.a(x)))


class Around(BackendTest):
    def test_autocast(self) -> None:
        """Results have the dtypes of eager autocast; the loss is as near."""
        model, inputs = models.make("gpt2")
        eager = twin(model)
        call, out = compiled(model, "bf16"), []
        for one in (call, eager):
            with torch.autocast("cpu", torch.bfloat16):
                out.append(one(**inputs))
            out[-1].loss.backward()
        self.assertEqual(out[0].logits.dtype, out[1].logits.dtype)
        self.assertEqual(out[0].loss.dtype, out[1].loss.dtype)
        self.assertAlmostEqual(float(out[0].loss.detach()), float(out[1].loss.detach()), delta=1e-2)

    def test_bf16_parameters(self) -> None:
        for name in ("gpt2", "llama, padding"):
            with self.subTest(name):
                torch._dynamo.reset()
                model, inputs = models.make(name)
                model = model.bfloat16()
                eager = twin(model)
                own = train(compiled(model, "current"), model, inputs, 3, lr=1e-3)
                other = train(eager, eager, inputs, 3, lr=1e-3)
                for a, b in zip(own, other):
                    self.assertAlmostEqual(a, b, delta=0.02)
                self.assertEqual({p.grad.dtype for p in model.parameters()}, {torch.bfloat16})
                self.assertGreater(executed(model), 0)

    def test_other_dtypes_are_refused(self) -> None:
        for dtype in (torch.float64, torch.float16):
            with self.subTest(dtype):
                torch._dynamo.reset()
                model, inputs = regression()
                inputs["x"] = inputs["x"].to(dtype)
                with self.assertRaisesRegex(Exception, f"param up.weight.*{dtype}"):
                    compiled(model.to(dtype))(**inputs)

    def test_blocks_one_by_one(self) -> None:
        """Dynamo uses one graph for equal blocks: each has scales of its own, by its own names."""
        blocks = torch.nn.ModuleList(Block() for _ in range(3))
        for block in blocks:
            block.compile(backend=fp8c.torch.fp8c_backend, options={"recipe": "delayed"})
        optimizer = torch.optim.SGD(blocks.parameters(), lr=1e-3)
        for _ in range(3):
            x = torch.randn(4, 8)
            for i, block in enumerate(blocks):
                x = block(x * 10 ** i)
            x.square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
        state = fp8c.torch.state_dict(blocks)
        self.assertEqual(len(programs(blocks)), 3)
        self.assertEqual(fp8c.torch.report(blocks).counts(), {"FP8": 6})
        amaxes = [float(state[f"{i}.a.weight:x"].max()) for i in range(3)]
        self.assertLess(amaxes[0] * 5, amaxes[1])
        self.assertLess(amaxes[1] * 5, amaxes[2])

    def test_input_gradients(self) -> None:
        model, inputs = regression()
        inputs["x"].requires_grad_()
        found = []
        for call in (compiled(model), twin(model)):
            inputs["x"].grad = None
            call(**inputs).backward()
            found.append(inputs["x"].grad)
        torch.testing.assert_close(*found)

    def test_gradient_scaler(self) -> None:
        """A step that the scaler skips pushes nothing that is not finite."""
        model, inputs = regression()
        call, scaler = compiled(model, "delayed"), torch.amp.GradScaler("cpu", init_scale=2.0**120)
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
        for _ in range(70):
            optimizer.zero_grad()
            scaler.scale(call(**inputs)).backward()
            scaler.step(optimizer)
            scaler.update()
        for row in fp8c.torch.state_dict(model).values():
            self.assertTrue(row[:-2].isfinite().all())
        self.assertTrue(all(p.isfinite().all() for p in model.parameters()))

    def test_wheel(self) -> None:
        """The wheel alone, without an import: the name is found by its entry point."""
        wheels = glob.glob(os.path.join(HERE, "../../build/fp8c-*.whl"))
        if not wheels:
            self.skipTest("make wheel has left no wheel in build/")
        script = ("import sys, torch, models\nassert 'fp8c' not in sys.modules\n"
                  "model, inputs = models.make('gpt2')\n"
                  "call = torch.compile(model, backend='fp8c', options={'strict': True})\n"
                  "call(**inputs).loss.backward()\n"
                  "import fp8c.torch\nassert sys.argv[1] in fp8c.__file__\n"
                  "print(fp8c.torch.report(model).counts())\n")
        with tempfile.TemporaryDirectory() as site:
            subprocess.run([sys.executable, "-m", "pip", "install", "-q", "--no-index", "--no-deps",
                            "--target", site, wheels[0]], check=True)
            environment = {k: v for k, v in os.environ.items() if k != "FP8C_LIBRARY"}
            environment["PYTHONPATH"] = site + os.pathsep + HERE
            made = subprocess.run([sys.executable, "-c", script, site], capture_output=True,
                                  text=True, env=environment, check=False)
        self.assertEqual(made.stdout.strip(), "{'FP8': 9}", made.stderr)

    def test_readme(self) -> None:
        """The examples of the READMEs run as they are."""
        path = os.path.join(HERE, "../../README.md")
        with open(path, encoding="utf-8") as file:
            found = re.search(r"(?m)^    import torch\n(    .*\n)+", file.read())
        assert found is not None
        blocks = [re.sub("(?m)^    ", "", found[0])]
        path = os.path.join(HERE, "../../frontend/python/fp8c/torch/README.md")
        with open(path, encoding="utf-8") as file:
            blocks += re.findall(r"```python\n(.*?)```", file.read(), re.S)
        said = ("linears: 1 FP8", "linears: 2 FP8", "2       w        fprop, dgrad  f8e4m3  tensor    88.1 dB  23.83%",
                "base: FP8 (fprop f8e4m3 x f8e4m3, block; stored as FP8 codes by block)",
                "['weight:dy', 'weight:w', 'weight:x']")
        self.assertEqual(len(blocks), len(said))
        for block, words in zip(blocks, said):
            # the examples name the backend, which without an installed wheel the import gives
            made = subprocess.run([sys.executable, "-c", "import fp8c.torch\n" + block], capture_output=True, text=True,
                                  check=False)
            self.assertIn(words, made.stdout, made.stderr)

    def test_example(self) -> None:
        """tests/examples/torch_gpt2.py: after 300 steps on a text FP8 is within 0.2% of bf16, in
        the mean of three seeds, and not equal. One seed says little: gaps of 0.25% occur. Each
        operand of the last step has the SQNR that its format gives."""
        path = os.path.join(HERE, "../examples/torch_gpt2.py")
        root = os.path.join(HERE, "../..")
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        text = os.path.join(folder.name, "text")
        with open(text, "wb") as out:  # prose: the READMEs of this tree
            for name in sorted(self.pages(root)):
                with open(name, "rb") as file:
                    out.write(file.read())
        for recipe in ("current", "delayed", "block"):
            with self.subTest(recipe):
                gaps = [self.gap(path, text, recipe, seed) for seed in range(3)]
                print(f"{recipe}: gaps to bf16 {gaps}, in %")
                self.assertLessEqual(abs(sum(gaps) / len(gaps)), 0.2)
                self.assertTrue(all(gaps))

    def pages(self, root: str) -> list[str]:
        """The pages of this tree. What was built is left out: some tests leave links there that lead
        back to it."""
        found = []
        for folder, folders, files in os.walk(root):
            folders[:] = [f for f in folders if not f.startswith(("build", "."))]
            found += [os.path.join(folder, f) for f in files if f.endswith(".md")]
        return found

    def gap(self, path: str, text: str, recipe: str, seed: int) -> float:
        """The gap of the last losses to bf16's, in %, as the example prints it."""
        start = ("import runpy, sys, torch, fp8c.torch\n"
                 f"sys.argv = [{path!r}, '--text', {text!r}, '--recipe', {recipe!r}, '--seed', '{seed}', "
                 "'--statistics', '299']\n"
                 "runpy.run_path(sys.argv[0], run_name='__main__')\n")
        made = subprocess.run([sys.executable, "-W", "ignore", "-c", start], capture_output=True,
                              text=True, check=False)
        self.assertIn("linears: 9 FP8", made.stdout, made.stderr)
        rows = re.findall(r"^\S+ +(?:x|w|dy) +.* (f8e\dm\d) .* ([\d.]+) dB", made.stdout, re.M)
        self.assertEqual(len(rows), 45 if recipe == "block" else 27, made.stdout)
        for form, sqnr in rows:
            self.assertGreaterEqual(float(sqnr), LEAST[form], made.stdout)
        gap = re.search(r"gap ([+-]\d+\.\d+)%", made.stdout)
        assert gap is not None, made.stdout
        return float(gap[1])


RANKS = """
import sys, torch, torch.distributed as dist
import fp8c.torch
from support import regression, batch_of
dist.init_process_group("gloo", init_method="file://" + sys.argv[2], rank=int(sys.argv[1]), world_size=2)
model, _ = regression()
call = fp8c.torch.compile_for_trainer(model, recipe="f32", strict=True)
call = torch.nn.parallel.DistributedDataParallel(call)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
halves = [{k: v[i * 3:i * 3 + 3] for k, v in batch_of(6).items()} for i in range(2)]
for _ in range(3):
    optimizer.zero_grad()
    call(**halves[int(sys.argv[1])]).backward()
    optimizer.step()
whole, _ = regression()
optimizer = torch.optim.SGD(whole.parameters(), lr=0.1)
for _ in range(3):
    optimizer.zero_grad()
    whole(**batch_of(6)).backward()
    optimizer.step()
for p, q in zip(model.parameters(), whole.parameters()):
    torch.testing.assert_close(p, q)
print(fp8c.torch.report(call).counts())
dist.destroy_process_group()
"""


class Ranks(unittest.TestCase):
    def test_ddp(self) -> None:
        """Two ranks with half of a batch each end where one with the whole batch does."""
        with tempfile.TemporaryDirectory() as folder:
            ranks = [subprocess.Popen([sys.executable, "-W", "ignore", "-c", RANKS, str(i), folder + "/store"],
                                      stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
                     for i in range(2)]
            for rank in ranks:
                out, error = rank.communicate(timeout=120)
                self.assertEqual(out.strip(), "{'f32': 2}", error[-2000:])


if __name__ == "__main__":
    unittest.main()
