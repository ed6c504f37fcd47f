"""The wheel of `make wheel`: what is in it, a clean environment without network, what is refused and warned of."""
import glob
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest
import zipfile

import fp8c
from support import BUILD, ROOT

PROGRAM = """
import sys, array, warnings
warnings.simplefilter("error")
import fp8c
assert "numpy" not in sys.modules
module = fp8c.Module.parse("module m\\nfunc forward(%x: f32[4]) -> (%y: f32[4]) { return add(%x, 1.0) }")
program = module.compile(recipe="f32", inference=True)
program.initialize()
y = array.array("f", [0] * 4)
program.call("eval", [array.array("f", [1, 2, 3, 4])], [y])
print(fp8c.__version__, fp8c.__file__, y.tolist())
"""


class Wheel(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)
        make = [sys.executable, ROOT / "frontend/python/wheel.py", BUILD / "libfp8c.so", cls.folder]
        subprocess.run(make, check=True, capture_output=True)
        (cls.wheel,) = cls.folder.glob("*.whl")
        first = cls.wheel.read_bytes()
        subprocess.run(make, check=True, capture_output=True)
        assert cls.wheel.read_bytes() == first, "two runs gave different wheels"
        cls.environment = {k: v for k, v in os.environ.items() if not k.startswith(("FP8C_LIBRARY", "PYTHON"))}
        cls.environment["PYTHONDONTWRITEBYTECODE"] = "1"

    def python(self, *arguments, environment=None, folder=None):
        return subprocess.run([self.folder / "env/bin/python", *arguments], cwd=folder or self.folder,
                              env=environment or self.environment, capture_output=True, text=True, check=False)

    def test_contents(self):
        with zipfile.ZipFile(self.wheel) as wheel:
            names = wheel.namelist()
            record = wheel.read(next(n for n in names if n.endswith("RECORD"))).decode()
        self.assertEqual({line.split(",")[0] for line in record.splitlines()}, set(names))
        sources = ROOT / "frontend/python"
        self.assertLessEqual({os.path.relpath(p, sources) for p in glob.glob(f"{sources}/fp8c/**/*.py",
                                                                             recursive=True)}, set(names))
        self.assertRegex(self.wheel.name, rf"^fp8c-{fp8c.__version__}-py3-none-linux_\w+\.whl$")

    def test_a_clean_environment(self):
        made = subprocess.run([sys.executable, "-m", "venv", self.folder / "env"], capture_output=True, text=True,
                              check=False, env=self.environment)
        if made.returncode:
            print(f"skipped: the wheel in a clean environment: no venv here (Debian package python3-venv): {made.stdout.strip().splitlines()[:1]}")
            return
        offline = {**self.environment, "PIP_CONFIG_FILE": os.devnull}
        done = self.python("-m", "pip", "install", "-q", "--no-index", self.wheel, environment=offline)
        self.assertEqual(done.returncode, 0, done.stderr)
        done = self.python("-c", PROGRAM)
        self.assertEqual(done.returncode, 0, done.stderr)
        version, path, numbers = done.stdout.split(maxsplit=2)
        self.assertEqual((version, numbers.strip()), (fp8c.__version__, "[2.0, 3.0, 4.0, 5.0]"))
        self.assertIn(str(self.folder / "env"), path)
        installed = pathlib.Path(path).parent
        shutil.rmtree(installed / "__pycache__")  # what changes below is judged by its seconds and its size
        self.other_version(installed)
        self.missing_component(installed)
        self.pip_builds_it()

    def other_version(self, installed):
        """A libfp8c of another version, one that lacks a function, and a file that is none."""
        number = "found != wanted"
        native = installed / "_native.py"
        text = native.read_text()
        self.assertIn(number, text)
        native.write_text(text.replace(number, "found == wanted"))
        done = self.python("-c", "import fp8c")
        self.assertRegex(done.stderr, rf"ImportError: .*libfp8c.so is libfp8c {fp8c.__version__}, and this package")
        native.write_text(text.replace("lib = _functions", "h.FUNCTIONS['no_such'] = (None,)\nlib = _functions"))
        self.assertIn("has no fp8c_no_such", self.python("-c", "import fp8c").stderr)
        native.write_text(text)
        for path, what in (("/lib/x86_64-linux-gnu/libc.so.6", "it has no fp8c_version"), ("/none.so", "can't be loaded"),
                           (str(self.wheel), "can't be loaded")):
            done = self.python("-c", "import fp8c", environment={**self.environment, "FP8C_LIBRARY": path})
            self.assertIn(what, done.stderr)

    def missing_component(self, installed):
        """Without LLVM for the loader: a warning at import with the package; other targets work."""
        library = installed / "libfp8c.so"
        whole = library.read_bytes()
        names = (b"libLLVM.so.19.1", b"libLLVM-19.so.1", b"libLLVM-19.so\0")
        broken = whole
        for name in names:
            self.assertIn(name, whole)
            broken = broken.replace(name, name.replace(b"LLVM", b"NONE"))
        native = installed / "_native.py"
        text = native.read_text()
        library.write_bytes(broken)
        native.write_text(text.replace("libLLVM", "libNONE"))
        done = self.python("-c", "import fp8c; print(fp8c.Module.parse('module m\\nparam w: f32[2] ones\\n').name)")
        self.assertEqual((done.returncode, done.stdout), (0, "m\n"), done.stderr)
        self.assertRegex(done.stderr, r"RuntimeWarning: fp8c can't compile for the CPU: LLVM 19 .* Debian package "
                                      "libllvm19 has it")
        done = self.python("-c", "import fp8c", environment={**self.environment, "FP8C_NO_WARNING": "1"})
        self.assertEqual(done.stderr, "")
        library.write_bytes(whole)
        native.write_text(text)

    def pip_builds_it(self):
        copy = self.folder / "tree/frontend/python"
        shutil.copytree(ROOT / "frontend/python", copy)
        shutil.copy(ROOT / "LICENSE", self.folder / "tree/LICENSE")
        done = self.python("-m", "pip", "wheel", "-q", "--no-index", "-w", self.folder / "pip", copy, environment={
            **self.environment, "PIP_CONFIG_FILE": os.devnull, "FP8C_LIBRARY": str(BUILD / "libfp8c.so")})
        self.assertEqual(done.returncode, 0, done.stderr)
        (wheel,) = (self.folder / "pip").glob("*.whl")
        self.assertEqual(wheel.read_bytes(), self.wheel.read_bytes())

    def test_the_probe_agrees_with_the_doctor(self):
        with fp8c.Doctor(cpu_only=True) as doctor:
            lacking = [c.name for c in doctor.components() if c.kind == "cpu" and c.path is None]
        self.assertEqual(fp8c._native.missing(), lacking)


if __name__ == "__main__":
    unittest.main()
