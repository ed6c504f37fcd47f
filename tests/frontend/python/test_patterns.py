"""What fp8c.torch takes for a composite is what the language's composite computes.

`torch/graph/composites.py` needs PyTorch, so its patterns are read from its text. Each is evaluated in double and
compared with the op on target reference, which expands it by passes/unit/formulas.c."""
import ast
import math
import pathlib
import unittest

import fp8c
import numpy as np
from support import ROOT

SOURCE = pathlib.Path(ROOT, "frontend/python/fp8c/torch/graph/composites.py")
ERF = np.vectorize(math.erf)
OPS = {
    "add": lambda a, b: a + b, "mul": lambda a, b: a * b, "div": lambda a, b: a / b, "pow": lambda a, b: a ** b,
    "tanh": np.tanh, "erf": ERF, "sigmoid": lambda a: 1 / (1 + np.exp(-a)), "sqrt": np.sqrt,
    "rsqrt": lambda a: 1 / np.sqrt(a), "mean": lambda a: a.mean(-1, keepdims=True),
}
COLUMNS, EPS = 64, 0.125
# The name of its list there: the op, and its parameters.
COMPOSITES = {"GELU_TANH": ("gelu(%x)", ""), "GELU_ERF": ('gelu(%x) {approximate = "none"}', ""),
              "SILU": ("silu(%x)", ""), "RMS_NORM": ("rmsnorm(%x, %w) {eps = 0.125}", f", %w: f32[{COLUMNS}]")}


def patterns():
    """The lists of patterns, without what needs PyTorch."""
    found = {"math": math}
    for statement in ast.parse(SOURCE.read_text(encoding="utf-8")).body:
        if isinstance(statement, ast.Assign) and statement.targets[0].id.lstrip("_").isupper():
            if not any(isinstance(n, ast.Name) and n.id not in found and isinstance(n.ctx, ast.Load)
                       for n in ast.walk(statement.value)):
                exec(compile(ast.Module([statement], []), str(SOURCE), "exec"), found)  # pylint: disable=exec-used
    return found


def value(pattern, values):
    if isinstance(pattern, tuple):
        return OPS[pattern[0]](*[value(p, values) for p in pattern[1:]])
    return values[pattern] if isinstance(pattern, str) else pattern


def differs(pattern, want, values):
    """Whether it is another function: 2^-20 of the largest is 16 roundings of f32."""
    with np.errstate(invalid="ignore"):  # a changed power of a negative number
        return not np.abs(value(pattern, values) - want).max() <= 2.0**-20 * np.abs(want).max()


def planted(pattern):
    """Patterns with one number changed by 1%."""
    if isinstance(pattern, (int, float)):
        yield pattern * 1.01
    elif isinstance(pattern, tuple):
        for i, part in enumerate(pattern):
            yield from (pattern[:i] + (changed,) + pattern[i + 1:] for changed in planted(part))


class Patterns(unittest.TestCase):
    def test_they_are_the_ops(self):
        listed = patterns()
        rng = np.random.default_rng(7)
        x = rng.uniform(-4, 4, (16, COLUMNS)).astype(np.float32)
        w = rng.uniform(-1, 1, COLUMNS).astype(np.float32)
        values = {"X": x.astype(np.float64), "W": w.astype(np.float64), "EPS": EPS}
        for name, (op, more) in COMPOSITES.items():
            shape = f"f32[16, {COLUMNS}]"
            text = f"module m\nfunc forward(%x: {shape}{more}) -> (%y: {shape}) {{\n  return {op}\n}}\n"
            program = fp8c.Module.parse(text).compile(target="reference", recipe="f32", inference=True)
            program.initialize()
            want = program.call("eval", [x, w] if more else [x])[0].numpy().astype(np.float64)
            for pattern in listed[name]:
                with self.subTest(op=op, pattern=pattern):
                    self.assertFalse(differs(pattern, want, values))
                    for changed in planted(pattern):
                        self.assertTrue(differs(changed, want, values), changed)


if __name__ == "__main__":
    unittest.main()
