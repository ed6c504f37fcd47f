"""fp8c.Lender: memory that is lent again once it was given back, consumers that fail, the end."""
import ctypes
import gc
import threading
import unittest

import fp8c
from fp8c import _header as h
from fp8c import dlpack


class Taken:
    """A consumer of DLPack: it takes the tensor of a capsule, which is deleted with this object."""

    def __init__(self, capsule):
        assert dlpack._is(capsule, dlpack._NEW)
        self.managed = h.ManagedTensor.from_address(dlpack._pointer(capsule, dlpack._NEW))
        _rename(capsule, b"used_dltensor_versioned")

    @property
    def address(self):
        return self.managed.tensor.data

    def __del__(self):
        self.managed.deleter(ctypes.addressof(self.managed))


_rename = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_char_p)(("PyCapsule_SetName", ctypes.pythonapi))


def views():
    return fp8c.Views([fp8c.View(0, "f32", (3, 5)), fp8c.View(0, "bf16", (7,)), fp8c.View(0, "i64", ())])


class Lenders(unittest.TestCase):
    def test_again(self):
        lender, at = fp8c.Lender(3), views()
        taken = lender.lend(at, Taken)
        first = [t.address for t in taken]
        self.assertEqual(first, [v.c.data for v in at.views])
        self.assertEqual(taken[0].managed.tensor.shape[:2], [3, 5])
        self.assertEqual(lender.bytes, 3 * 64)
        del taken[1]
        again = lender.lend(at, Taken)
        self.assertEqual([a == b.address for a, b in zip(first, again)], [False, True, False])
        del taken, again
        gc.collect()
        lender.trim()
        self.assertEqual(lender.bytes, 0)

    def test_other_thread(self):
        """The last reference may go in another thread, and after the lender's end."""
        lender = fp8c.Lender(3)
        taken = lender.lend(views(), Taken)
        lender.close()
        with self.assertRaises(fp8c.Closed):
            lender.lend(views(), Taken)
        ctypes.memset(taken[0].address, 1, 60)
        thread = threading.Thread(target=taken.clear)
        thread.start()
        thread.join()

    def test_consumer_that_fails(self):
        """Tensors that it did not take are given back, once. Those that it took can be deleted."""
        for at in range(3):
            for takes in (False, True):  # it fails before or after it has taken
                lender, seen = fp8c.Lender(3), []

                def consumer(capsule):
                    if len(seen) == at and not takes:
                        raise ZeroDivisionError
                    seen.append(Taken(capsule))
                    if len(seen) == at + 1 and takes:
                        raise ZeroDivisionError
                    return seen[-1]

                with self.assertRaises(ZeroDivisionError):
                    lender.lend(views(), consumer)
                self.assertEqual(lender.bytes, 3 * 64)
                seen.clear()
                gc.collect()
                lender.trim()
                self.assertEqual(lender.bytes, 0, (at, takes))

    def test_a_kept_capsule(self):
        """A consumer that failed may have kept its capsule: nobody can take the tensor any more."""
        lender, kept = fp8c.Lender(3), []

        def consumer(capsule):
            kept.append(capsule)
            raise ZeroDivisionError

        with self.assertRaises(ZeroDivisionError):
            lender.lend(views(), consumer)
        self.assertEqual(len(kept), 1)
        self.assertFalse(dlpack._is(kept[0], dlpack._NEW))

    def test_wrong_views(self):
        lender = fp8c.Lender(2)
        with self.assertRaisesRegex(ValueError, "for 2 tensors was asked for 3"):
            lender.lend(views(), Taken)
        with self.assertRaisesRegex(fp8c.InputError, "contiguous tensors of at most 8 axes in host memory"):
            lender.lend(fp8c.Views([fp8c.View(0, "f32", (2,)), fp8c.View(0, "f32", (2,), (2, 0))]), Taken)

    def test_a_program_writes_it(self):
        module = fp8c.Module.parse("module m\nfunc forward(%x: f32[4]) -> (%y: f32[4]) { return add(%x, %x) }\n")
        program = module.compile(inference=True, target="reference")
        lender, out = fp8c.Lender(1), fp8c.Views([fp8c.View(0, "f32", (4,))])
        given = fp8c.Tensor.empty("f32", (4,))
        (ctypes.c_float * 4).from_address(given.address)[:] = [1, 2, 3, 4]
        (taken,) = lender.lend(out, Taken)
        program.call("eval", [given], out)
        self.assertEqual((ctypes.c_float * 4).from_address(taken.address)[:], [2, 4, 6, 8])


if __name__ == "__main__":
    unittest.main()
