"""Objects of Python's and C's: use after close, any order of ends, threads, memory that stays flat."""
import gc
import itertools
import logging
import subprocess
import sys
import threading
import unittest

import fp8c
import numpy as np
from fp8c import _handle
from support import ADD, LINEAR, add_program, linear_program, resident


class Ends(unittest.TestCase):
    def test_use_after_close(self):
        context = fp8c.Context()
        module = fp8c.Module.parse(LINEAR, context=context)
        program = module.compile(pair=True)
        saved = program.saved()
        for thing, use in ((saved, saved.drop), (program, program.info), (module, module.text),
                           (context, context.cache)):
            self.assertFalse(thing.closed)
            use()
            with thing:
                pass
            thing.close()
            self.assertTrue(thing.closed)
            with self.assertRaisesRegex(fp8c.Closed, "is closed"):
                use()
        for use in (lambda: program.call("eval", []), lambda: program.forward(saved, []), program.saved,
                    lambda: program.tensor("w"), lambda: fp8c.Module.parse(ADD, context=context),
                    lambda: module.compile()):
            with self.assertRaises(fp8c.Closed):
                use()

    def test_any_order(self):
        x = np.ones((6, 5), np.float32)
        targets = np.zeros(6, np.int32)
        for order in itertools.permutations(range(5)):
            context = fp8c.Context(cache_dir="")
            module = fp8c.Module.parse(LINEAR, context=context)
            program = module.compile(recipe="f32", pair=True, target="reference")
            program.initialize()
            saved = program.saved()
            program.forward(saved, [x, targets])
            things = [context, module, program, saved, program.tensor("w").numpy()]
            del context, module, program, saved
            for i in order:
                if i < 4:
                    things[i].close()
                things[i] = None
                if things[4] is not None:
                    things[4] += 1
        gc.collect()

    def test_a_closed_context_serves_its_programs(self):
        """Its callbacks are alive as long as a program may call them."""
        told, logger = [], logging.getLogger("fp8c.closed")
        logger.propagate = False
        with self.assertLogs(logger, logging.DEBUG) as logs:
            context = fp8c.Context(cache_dir="", progress=lambda p: told.append(p.phase), logger=logger)
            program = fp8c.Module.parse(ADD, context=context).compile(inference=True)
            context.close()
            program.context = context = None
            gc.collect()
            before = len(told), len(logs.records)
            program.set_dim("B", 2)
            with self.assertRaisesRegex(fp8c.InputError, "no_such"):
                program.set_dim("no_such", 2)
        self.assertGreater(len(told), before[0])
        self.assertGreater(len(logs.records), before[1])

    def test_a_cycle_is_collected(self):
        """Children and parents in one cycle of garbage: the collector ends them in any order."""
        class Holder:
            pass
        for _ in range(3):
            holder = Holder()
            holder.me = holder
            holder.context = fp8c.Context(cache_dir="", logger=logging.getLogger("fp8c.cycle"), verbose=2)
            holder.program = fp8c.Module.parse(ADD, context=holder.context).compile(inference=True, target="reference")
            del holder
            gc.collect()
        self.assertFalse(_handle._later)

    def test_within_a_callback(self):
        """What ends within a callback is destroyed after it; an object in use can't be used there."""
        ended, later, errors, busy = [linear_program()], [], [], []

        def progress(_):
            ended.clear()
            later.append(len(_handle._later))
            try:
                for program in busy:
                    program.set_dim("B", 2)
            except RuntimeError as error:
                errors.append(str(error))
        context = fp8c.Context(progress=progress, cache_dir="")
        busy.append(fp8c.Module.parse(ADD, context=context).compile(inference=True))
        self.assertFalse(errors)
        self.assertEqual(set(later), {1})
        busy[0].set_dim("B", 3)
        self.assertIn("in use", errors[0])
        _handle.drain()
        self.assertFalse(_handle._later)

    def test_tensors_stay_while_bound(self):
        program = add_program()
        program.call("eval", [np.full((2, 4), 5, np.float32)])
        for _ in range(10):
            np.zeros((2, 4), np.float32)
        program.run("eval")  # on the tensors of that call, which only the program still has
        _, outputs = program._bound[program.index("eval")]
        np.testing.assert_array_equal(outputs[0].owner.numpy(), np.full((2, 4), 6))
        with self.assertRaises(fp8c.InputError):
            program.call("eval", [np.zeros((2, 5), np.float32)], [np.zeros((2, 4), np.float32)])
        program.run("eval")
        program.release("eval")
        self.assertFalse(program._bound)

    def test_at_exit(self):
        """Objects that are alive at the interpreter's end, in a daemon thread's hands as well."""
        code = ("import threading, fp8c, numpy as np\nfrom support import add_program, linear_program\n"
                "p, q = add_program(), linear_program()\ns = q.saved()\nw = q.tensor('w').numpy()\n"
                "x = np.zeros((8, 4), np.float32)\n"
                "def loop():\n    while True: p.call('eval', [x])\n"
                "threading.Thread(target=loop, daemon=True).start()\n"
                "import time; time.sleep(0.2)\nprint('end')\n")
        for _ in range(3):
            done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
            self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "end\n", ""))


class Threads(unittest.TestCase):
    def test_programs_of_several_threads(self):
        """Each thread compiles and runs its own; one program that all call in turn; the bits of one thread."""
        module = fp8c.Module.parse(LINEAR)
        x = np.random.default_rng(1).standard_normal((6, 5)).astype(np.float32)
        targets = np.arange(6, dtype=np.int32)
        shared = linear_program()
        expected = shared.call("eval", [x, targets])[0].numpy().tobytes()
        wrong, n = [], 4

        def work():
            try:
                own = module.compile(recipe="f32", pair=True, threads=1)
                own.initialize(3)
                for _ in range(50):
                    loss = np.zeros((), np.float32)
                    for program in (own, shared):
                        program.call("eval", [x, targets], [loss])
                        if loss.tobytes() != expected:
                            wrong.append(loss)
                with own.saved() as saved:
                    own.forward(saved, [x, targets])
            except BaseException as error:
                wrong.append(error)
        threads = [threading.Thread(target=work) for _ in range(n)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        self.assertEqual(wrong, [])

    def test_messages_are_the_threads_own(self):
        messages = {}

        def fail(name):
            for _ in range(50):
                try:
                    fp8c.Module.parse(f"module m\n{name}")
                except fp8c.Error as error:
                    messages.setdefault(name, set()).add(error.message)
        threads = [threading.Thread(target=fail, args=(f"word{i}",)) for i in range(4)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        for name, seen in messages.items():
            self.assertEqual(len(seen), 1)
            self.assertIn(name, seen.pop())


class Memory(unittest.TestCase):
    def flat(self, work, n=1000, allowed=1 << 20):
        for _ in range(n // 5):
            work()
        gc.collect()
        before = resident()
        for _ in range(n):
            work()
        gc.collect()
        self.assertLess(resident() - before, allowed)

    def test_calls(self):
        program = linear_program(gradients_of="x")
        x, targets, d = np.zeros((6, 5), np.float32), np.zeros(6, np.int32), np.ones((), np.float32)
        loss, dx, dw = np.zeros((), np.float32), np.zeros_like(x), np.zeros((5, 7), np.float32)
        w = np.zeros((5, 7), np.float32)

        def work():
            saved = program.saved()
            program.forward(saved, [x, targets], [loss])
            program.backward(saved, [d, x, targets], [dx, dw])
            program.call("eval", [x, targets])
            program.bind_variable("w", w)
            np.from_dlpack(program.tensor("w"))
            program.read("w")
        self.flat(work)

    def test_failures(self):
        program = linear_program()
        large = np.zeros((1000, 1000), np.float32)

        def work():
            for wrong in (lambda: program.call("eval", [large.copy()]), lambda: fp8c.Module.parse("module m\nno")):
                try:
                    wrong()
                except fp8c.InputError:
                    pass
        self.flat(work, 200, 8 << 20)  # two copies are 8 MB: one is kept as perhaps bound

    def test_objects(self):
        def work():
            program = fp8c.Module.parse(ADD).compile(target="reference", inference=True)
            program.initialize()
            program.call("eval", [np.zeros((1, 4), np.float32)])
        self.flat(work, 200)


if __name__ == "__main__":
    unittest.main()
