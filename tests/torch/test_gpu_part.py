"""`make check-gpu PART=torch` without a GPU: that part of tests/gpu starts, says by name what it skips,
and ends with the right code. The command and Python are stand-ins where a GPU would be needed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import unittest

import torch

TOP = os.path.abspath(os.path.join(os.path.dirname(__file__), "../.."))
# A python3 that says it sees a GPU. What it is to run is in $PLANTED: a line "NAME CODE" for each script.
PYTHON = """#!/bin/sh
[ "$1" != -c ] || { echo /usr; exit 0; }
echo "ran $*" >>"$RAN"
echo "skipped: gpt2 te-bf16: python3 has no transformer_engine"
exit "$(echo "$PLANTED" | awk -v of="$(basename "$1")" '$1 == of { code = $2 } END { print code + 0 }')"
"""


class GpuPart(unittest.TestCase):
    def setUp(self) -> None:
        self.folder = tempfile.mkdtemp(dir=os.path.join(TOP, "build"))
        self.addCleanup(shutil.rmtree, self.folder)
        self.name = os.path.relpath(self.folder, TOP)

    def script(self, name: str, text: str) -> str:
        path = os.path.join(self.folder, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w") as file:
            file.write(text)
        os.chmod(path, 0o755)
        return path

    def part(self, device: bool = True, python: str = "", **environment: str) -> tuple[int, str]:
        """What tests/gpu's part torch prints, where the command says whether there is a device."""
        self.script("fp8c", f"#!/bin/sh\necho planted\nexit {0 if device else 1}\n")
        if python:
            self.script("bin/python3", python)
        else:
            self.script("bin/python3", f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
        path = f"{self.folder}/bin{os.pathsep}{os.environ['PATH']}"
        done = subprocess.run(["tests/gpu", self.name, "torch"], cwd=TOP, text=True, timeout=300, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, env={**os.environ, "PATH": path, **environment})
        return done.returncode, done.stdout

    def test_no_device(self) -> None:
        code, text = self.part(device=False)
        self.assertEqual(code, 1, text)
        self.assertIn("no test can be run: the device can't be used", text)

    @unittest.skipIf(torch.cuda.is_available(), "this machine has a GPU")
    def test_no_gpu_for_torch(self) -> None:
        """A PyTorch that sees no GPU: the part is skipped by name."""
        code, text = self.part()
        self.assertEqual(code, 0, text)
        self.assertIn("fp8c.torch: python3 has no PyTorch that sees a GPU", text)
        self.assertIn("0 passed, 0 failed, 1 skipped", text)

    def test_runs(self) -> None:
        """With a GPU: the tests, the bits and the table; what a script skips is said by name."""
        ran = os.path.join(self.folder, "ran")
        code, text = self.part(python=PYTHON, RAN=ran, PLANTED="")
        self.assertEqual(code, 0, text)
        with open(ran) as file:
            lines = file.read().splitlines()
        self.assertEqual(lines, ["ran tests/torch/test_gpu.py -v", "ran tests/torch/test_c_program.py -v",
                                 "ran bench/gpu_torch.py --table --rounds 5 gpt2"])
        self.assertIn("torch.speed: gpt2 te-bf16: python3 has no transformer_engine", text)
        self.assertIn("3 passed, 0 failed, 3 skipped", text)

    def test_fails(self) -> None:
        """One that fails makes the part fail, and the others run."""
        for script in ("test_gpu.py", "test_c_program.py", "gpu_torch.py"):
            with self.subTest(script):
                code, text = self.part(python=PYTHON, RAN=os.devnull, PLANTED=f"{script} 3")
                self.assertEqual(code, 1, text)
                self.assertIn("2 passed, 1 failed", text)
                self.assertIn("exit 3)", text)

    def test_without_speed(self) -> None:
        code, text = self.part(python=PYTHON, RAN=os.devnull, PLANTED="gpu_torch.py 3", FP8C_SPEED="no")
        self.assertEqual(code, 0, text)
        self.assertIn("skipped  torch.speed: FP8C_SPEED=no", text)

    @unittest.skipIf(torch.cuda.is_available(), "this machine has a GPU")
    def test_table(self) -> None:
        """The table of speeds says why there is none, with the code of a test that is skipped."""
        done = subprocess.run([sys.executable, "bench/gpu_torch.py", "--table", "gpt2", "mpt"], cwd=TOP, text=True,
                              timeout=300, stdout=subprocess.PIPE)
        self.assertEqual((done.returncode, done.stdout), (77, "skipped: gpt2 mpt: PyTorch sees no GPU\n"))


if __name__ == "__main__":
    unittest.main()
