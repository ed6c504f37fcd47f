"""PyTorch's own database of ops beside eager: a fixed tenth of it. `op_db.py` runs all of it."""

import importlib.util
import unittest
from unittest import mock

import torch

from fp8c.torch.graph import rules
from fp8c.torch.run.bound import Bound
from support import BackendTest

MISSING = importlib.util.find_spec("expecttest") is None  # a package that PyTorch itself does not need
if not MISSING:
    import op_db

EVERY = 10
# Samples that a stage has a part in, by PyTorch's version: whole and part of `python op_db.py --every 10`.
# The database of another version is another one, and so is its tenth.
LEAST = {"2.11": 64}


@unittest.skipIf(MISSING, "the database of ops needs the package expecttest")
class OpDatabase(BackendTest):
    def test_a_tenth(self):
        records = []
        with op_db.quiet():
            for op in op_db.ops(every=EVERY):
                own = op_db.check_op(op)
                records += own
                for one in own:
                    with self.subTest(op=one.op, sample=one.number):
                        self.assertNotIn(one.outcome, op_db.BAD, one.note)
        counts = op_db.counts(records)
        least = LEAST.get(".".join(torch.__version__.split(".")[:2]), 1)
        self.assertGreaterEqual(counts["whole"] + counts["part"], least, counts)

    def outcomes(self, rule):
        """Of samples of tanh, under another rule for it."""
        with op_db.quiet(), mock.patch.dict(rules.RULES, {"aten.tanh.default": rule}):
            (op,) = op_db.ops("tanh")
            return {one.outcome for one in op_db.check_op(op, 2)}

    def test_what_is_wrong_is_found(self):
        """A rule that is a little off, one that fails, and a gradient that is off or fails."""
        tanh = rules.RULES["aten.tanh.default"]

        def off(c):
            y = tanh(c)
            return c.b.op("mul", [y, 1.0001], y.shape)

        def fails(c):
            raise ZeroDivisionError("the rule")

        self.assertEqual(self.outcomes(tanh), {"whole"})
        self.assertEqual(self.outcomes(off), {"wrong"})
        self.assertEqual(self.outcomes(fails), {"eager"})
        backward = Bound.backward

        def backward_off(*args):
            return {name: gradient * 1.0001 for name, gradient in backward(*args).items()}

        with mock.patch.object(Bound, "backward", backward_off):
            self.assertEqual(self.outcomes(tanh), {"wrong"})
        with mock.patch.object(Bound, "backward", side_effect=RuntimeError("no backward")):
            self.assertEqual(self.outcomes(tanh), {"error"})


if __name__ == "__main__":
    unittest.main()
