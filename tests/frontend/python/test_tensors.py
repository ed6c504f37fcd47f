"""Tensors that fp8c takes and gives: what is refused, and that nothing is copied."""
import array
import ctypes
import gc
import unittest
import weakref

import fp8c
import numpy as np
from fp8c import dlpack, tensors
from support import add_program, linear_program

ECHO = "module echo\nfunc forward(%x: {0}[4]) -> (%y: {0}[2, 2]) {{ return reshape(%x) {{shape = [2, 2]}} }}\n"


def echo(dtype):
    program = fp8c.Module.parse(ECHO.format(dtype)).compile(recipe="f32", inference=True)
    program.initialize()
    return program


class Producer:
    """An object with __dlpack__ and nothing else; versions: 0 unversioned, 1 both."""

    def __init__(self, tensor, version):
        self.tensor, self.version, self.asked = tensor, version, []

    def __dlpack_device__(self):
        return self.tensor.device

    def __dlpack__(self, **keywords):
        self.asked.append(keywords)
        if self.version == 0 and keywords:
            raise TypeError("no keywords")
        return self.tensor.__dlpack__(**keywords)


class Taken(unittest.TestCase):
    def test_numpy_dtypes(self):
        for name, x in (("f32", np.array([1, -0.0, np.inf, 1e-42], np.float32)),
                        ("f16", np.array([1, 2, 3, 65504], np.float16)),
                        ("i32", np.array([-2**31, -1, 0, 2**31 - 1], np.int32)),
                        ("bool", np.array([True, False, False, True]))):
            y = np.zeros((2, 2), x.dtype)
            echo(name).call("eval", [x], [y])
            self.assertEqual(y.tobytes(), x.tobytes(), name)

    def test_codes_of_narrow_dtypes_by_dlpack(self):
        """bf16 and FP8, that NumPy lacks: through tensors of fp8c's, both kinds of capsules."""
        for name in ("bf16", "f8e4m3", "f8e5m2"):
            program = echo(name)
            codes = np.array([0x38, 1, 0x7b, 0x80], np.uint16 if name == "bf16" else np.uint8)
            x, y = fp8c.Tensor.empty(name, (4,)), fp8c.Tensor.empty(name, (2, 2))
            x.codes()[:] = codes
            for version in (0, 1):
                y.codes()[:] = 0
                given = Producer(x, version)
                program.call("eval", [given], [Producer(y, version)])
                np.testing.assert_array_equal(y.codes().ravel(), codes)
                self.assertEqual(given.asked[-1], {} if version == 0 else {"max_version": dlpack.VERSION})
            with self.assertRaises(TypeError):
                x.numpy()
            with self.assertRaises(AttributeError):
                x.__array_interface__

    def test_buffers(self):
        x, y = array.array("f", [1, 2, 3, 4]), bytearray(16)
        program = add_program()
        memory = memoryview(bytes(x)).cast("f", [1, 4])  # read-only is well for an input
        program.call("eval", [memory], [memoryview(y).cast("f", [1, 4])])
        self.assertEqual(array.array("f", bytes(y)).tolist(), [2, 3, 4, 5])
        out = (ctypes.c_float * 4)()
        echo("f32").call("eval", [x], [memoryview(out).cast("B").cast("f", [2, 2])])
        self.assertEqual(list(out), [1, 2, 3, 4])

    def test_numpy_reads_dlpack_of_ours(self):
        tensor = fp8c.Tensor.empty("f32", (2, 3))
        seen = np.from_dlpack(tensor)
        seen_too = np.asarray(tensor)
        self.assertEqual((seen.shape, seen.ctypes.data, seen_too.ctypes.data), ((2, 3), tensor.address, tensor.address))
        tensor.numpy()[1, 2] = 5
        self.assertEqual((seen[1, 2], seen_too[1, 2]), (5, 5))
        with self.assertRaises(BufferError):
            tensor.__dlpack__(copy=True)
        with self.assertRaises(BufferError):
            tensor.__dlpack__(dl_device=(2, 0))

    def test_strided(self):
        x = np.zeros((8, 8), np.float32)
        program = add_program()
        for wrong in (x[:, ::2], x[::-1, :4], x.T[:4].T):
            with self.assertRaisesRegex(fp8c.InputError, "input 'x'"):
                program.call("eval", [wrong])
        odd = np.zeros(9, [("a", "i1"), ("b", "<f4")])["b"]  # its strides are 5 bytes
        with self.assertRaisesRegex(ValueError, "strides"):
            fp8c.Views([odd])
        one = np.zeros((4, 3, 1), np.float32)[:, 1, :].T  # an axis of size 1 may have any stride
        with self.assertRaises(fp8c.InputError):
            program.call("eval", [one])
        self.assertEqual(program.call("eval", [np.zeros((2, 4), np.float32)[::2]])[0].shape, (1, 4))

    def test_refused(self):
        program = linear_program()
        x, targets, loss = np.zeros((6, 5), np.float32), np.zeros(6, np.int32), np.zeros((), np.float32)
        inputs = {"dtype": [x.astype(np.float64), targets], "input 'x'": [x[:5], targets], "targets": [x, targets[:3]],
                  "2 inputs|inputs": [x]}
        for what, wrong in inputs.items():
            with self.assertRaisesRegex(fp8c.InputError, what):
                program.call("eval", wrong, [loss])
        with self.assertRaisesRegex(fp8c.InputError, "overlap"):
            program.call("eval", [x, targets], [x[0, :1].reshape(())])
        for wrong in (x.astype(">f4"), x.astype("U3"), 1.5, None, [1.0]):
            with self.assertRaises(TypeError):
                program.call("eval", [wrong, targets], [loss])
        loss.flags.writeable = False
        with self.assertRaisesRegex(ValueError, "read-only"):
            program.call("eval", [x, targets], [loss])
        with self.assertRaises(KeyError):
            program.call("no", [])

    def test_ml_dtypes(self):
        try:
            import ml_dtypes
        except ImportError:
            print("skipped: arrays of ml_dtypes: no such package in this Python (PyPI: ml_dtypes)")
            return
        for name, dtype in (("bf16", ml_dtypes.bfloat16), ("f8e4m3", ml_dtypes.float8_e4m3fn)):
            x, y = np.arange(4).astype(dtype), np.zeros((2, 2), dtype)
            echo(name).call("eval", [x], [y])
            self.assertEqual(x.tobytes(), y.tobytes())


class DLPack(unittest.TestCase):
    def count(self):
        gc.collect()
        return len(dlpack._exported)

    def test_lives(self):
        """A capsule that is taken, one that is not, and one that is used as it is: all end."""
        before = self.count()
        tensor = fp8c.Tensor.empty("f32", (3,))
        alive = weakref.ref(tensor)
        for version in (None, (1, 0)):
            capsule = tensor.__dlpack__(max_version=version)
            self.assertEqual(self.count(), before + 1)
            del capsule
            self.assertEqual(self.count(), before)
        seen = np.from_dlpack(tensor)
        del tensor
        seen.sum()
        self.assertIsNotNone(alive())
        self.assertEqual(self.count(), before + 1)
        del seen
        self.assertEqual(self.count(), before)
        self.assertIsNone(alive())
        for version in (0, 1):
            view = fp8c.View.of(Producer(fp8c.Tensor.empty("i32", (5,)), version))
            self.assertEqual((view.dtype, view.shape, self.count()), ("i32", (5,), before + 1))
            del view
            self.assertEqual(self.count(), before)

    def test_a_capsule_twice_or_of_another_kind(self):
        class Same:
            def __init__(self, capsule):
                self.capsule = capsule

            def __dlpack__(self, **_):
                return self.capsule
        tensor = fp8c.Tensor.empty("f32", (3,))
        capsule = tensor.__dlpack__()
        np.from_dlpack(OnCpu(capsule))
        for wrong in (capsule, 5, fp8c):
            with self.assertRaises((BufferError, TypeError)):
                fp8c.View.of(Same(wrong))
        newer = tensor.__dlpack__(max_version=(1, 0))
        address = dlpack._pointer(newer, b"dltensor_versioned")
        dlpack._Versioned.from_address(address).major = 2
        with self.assertRaisesRegex(BufferError, "version 2"):
            fp8c.View.of(Same(newer))

    def test_read_only(self):
        class Constant:
            def __init__(self, tensor):
                self.tensor = tensor

            def __dlpack__(self, **keywords):
                capsule = self.tensor.__dlpack__(max_version=(1, 0))
                dlpack._Versioned.from_address(dlpack._pointer(capsule, b"dltensor_versioned")).flags = 1
                return capsule
        x, y = fp8c.Tensor.empty("f32", (4,)), fp8c.Tensor.empty("f32", (2, 2))
        program = echo("f32")
        program.call("eval", [Constant(x)], [y])
        with self.assertRaisesRegex(ValueError, "read-only"):
            program.call("eval", [x], [Constant(y)])
        with self.assertRaisesRegex(ValueError, "read-only"):
            linear_program().bind_variable("w", Constant(fp8c.Tensor.empty("f32", (5, 7))))

    def test_a_variable_outlives_its_program(self):
        program = linear_program()
        w = np.from_dlpack(program.tensor("w"))
        copy = w.copy()
        program.close()
        del program
        gc.collect()
        linear_program()  # would take the memory, were it free
        np.testing.assert_array_equal(w, copy)

    def test_every_dtype_has_a_code(self):
        for d in tensors.DTYPES:
            tensor = fp8c.Tensor.empty(d.name, (2,))
            view = fp8c.View.of(Producer(tensor, 1))
            self.assertEqual((view.dtype, view.c.dtype.lanes, tensor.nbytes), (d.name, 1, 2 * d.bits // 8))
            self.assertEqual(tensor.address % 64, 0)


class OnCpu:
    """For numpy.from_dlpack, which asks for the device first."""

    def __init__(self, capsule):
        self.capsule = capsule

    def __dlpack_device__(self):
        return (1, 0)

    def __dlpack__(self, **_):
        return self.capsule


if __name__ == "__main__":
    unittest.main()
