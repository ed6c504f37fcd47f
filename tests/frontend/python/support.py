"""What several of these tests use: modules, and the files of the build."""
import os
import pathlib
import subprocess

import fp8c

BUILD = pathlib.Path(os.environ["FP8C_BUILD"])
ROOT = pathlib.Path(__file__).resolve().parents[3]
MODELS = ROOT / "frontend/models"

# y = x w, the mean cross-entropy of its rows.
LINEAR = """module linear
dim T = 6, C = 5, V = 7
param w: f32[C, V] normal(0.5)
func forward(%x: f32[T, C], %targets: i32[T]) -> (%loss: f32[]) {
  return cross_entropy(linear(%x, w) {name = "fc"}, %targets)
}
"""

# Without variables: the values are the caller's alone.
ADD = """module plus
dim B <= 8
func forward(%x: f32[B, 4]) -> (%y: f32[B, 4]) { return add(%x, 1.0) }
"""

SMALL_GPT = {"B": 2, "T": 16, "C": 32, "H": 2, "L": 2}


def gpt(context=None):
    return fp8c.Module.load(MODELS / "gpt.f8", dims=SMALL_GPT, context=context)


def linear_program(**options):
    program = fp8c.Module.parse(LINEAR).compile(**{"recipe": "f32", "pair": True, **options})
    program.initialize(3)
    return program


def add_program(**options):
    program = fp8c.Module.parse(ADD).compile(recipe="f32", inference=True, **options)
    program.initialize()
    return program


def command(*arguments):
    """Runs build/fp8c."""
    return subprocess.run([BUILD / "fp8c", *arguments], check=True, capture_output=True, text=True)


def resident():
    """Bytes of resident memory."""
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
