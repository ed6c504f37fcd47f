"""What fp8c.torch asks of a GPU, its streams and its allocator, on a stand-in for them (stand_in.py):
which stream, which device, what the host waits in, which memory."""

from __future__ import annotations

import contextlib
import gc
import sys
import threading
import unittest
from typing import Any
from unittest import mock

import torch

import fp8c
import fp8c.torch
from fp8c import _handle
from fp8c._options import compile_options
from fp8c.torch import log, private
from fp8c.torch.ranks import amaxes
from fp8c.torch.run import bound, device
from fp8c.torch.run.scales import AMAX, HISTORY
from fp8c.torch.run.seen import Seen
from fp8c.torch.settings import Settings
from stand_in import INDEX, RUNS, WAITS, on_gpu
from support import BackendTest, Regression, batch_of, compiled, programs, regression

STREAM, OTHER = 4096, 8192
MADE = ("empty", "zeros", "upload")


class Logits(torch.nn.Module):
    """A stage with a result that has a cotangent of its caller's, and dropout."""

    def __init__(self, p: float = 0.0) -> None:
        super().__init__()
        self.up, self.down, self.dropout = torch.nn.Linear(13, 24), torch.nn.Linear(24, 7), torch.nn.Dropout(p)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(self.dropout(torch.nn.functional.gelu(self.up(x))))


def logits(p: float = 0.0, rows: int = 5) -> tuple[Logits, dict[str, torch.Tensor]]:
    torch.manual_seed(0)
    return Logits(p), {"x": torch.randn(rows, 13)}


def at_odd_address(tensor: torch.Tensor) -> torch.Tensor:
    """A copy that lies one element behind an address for vectors."""
    odd = torch.empty(tensor.numel() + 1, dtype=tensor.dtype)[1:].view_as(tensor)
    assert odd.copy_(tensor).data_ptr() % 16
    return odd


class StandInTest(BackendTest):
    def setUp(self) -> None:
        super().setUp()
        log._said.clear()

    def on(self, gpu: Any, stream: int, where: int | None = None) -> None:
        """All that was done was done on this stream, where it was current, with the GPU as the device."""
        self.assertTrue(gpu.of(*RUNS))
        for event in gpu.events:
            if event.what in WAITS:
                continue
            wanted = stream if event.what in MADE else stream or 1
            self.assertEqual((event.stream, event.current, event.device), (wanted, stream, INDEX), event)
        self.assertEqual(gpu.device, 0, "the caller's device is not current again")


class Streams(StandInTest):
    def test_step(self) -> None:
        """Forward, backward, prepare and update_scales run on the caller's stream, whichever it is."""
        for recipe in ("delayed", "current", "bf16"):
            with self.subTest(recipe):
                model, inputs = regression()
                call, gpu = on_gpu(model, inputs, recipe)
                optimizer = torch.optim.AdamW(model.parameters())
                ran = set()
                for stream in (STREAM, STREAM, OTHER, 0, OTHER):
                    gpu.clear()
                    with gpu, gpu.stream(stream):
                        call()[0].backward()
                        optimizer.step()
                    self.on(gpu, stream)
                    ran |= {e.detail for e in gpu.of("run")}
                self.assertEqual(ran, set() if recipe == "bf16" else {"prepare", "update_scales"})

    def test_backward_of_another_stream(self) -> None:
        """A backward uses the stream that is current in it. Autograd makes that the forward's."""
        model, inputs = regression()
        call, gpu = on_gpu(model, inputs, "current")
        with gpu:
            with gpu.stream(STREAM):
                loss = call()[0]
            gpu.clear()
            with gpu.stream(OTHER):
                loss.backward()
        self.on(gpu, OTHER)
        self.assertEqual([e.what for e in gpu.events if e.what not in MADE], ["set_stream", "backward"])

    def test_evaluation(self) -> None:
        """Scales are pushed, taken over and prepared on the stream of the evaluation that needs them."""
        model, inputs = regression()
        call, gpu = on_gpu(model, inputs, "delayed")
        optimizer = torch.optim.AdamW(model.parameters())
        with gpu, gpu.stream(STREAM):
            for _ in range(2):
                call()[0].backward()
                optimizer.step()
            with torch.no_grad():
                call()
            call()[0].backward()
            optimizer.step()
        gpu.clear()
        with gpu, gpu.stream(OTHER), torch.no_grad():
            call()
        self.on(gpu, OTHER)
        self.assertEqual([e.what for e in gpu.of(*RUNS)], ["run", "carry_from", "call"])

    def test_loaded(self) -> None:
        """A state is loaded on the current stream."""
        model, inputs = regression()
        call, gpu = on_gpu(model, inputs, "delayed")
        with gpu, gpu.stream(STREAM):
            call()[0].backward()
            fp8c.torch.update_scales(model)
            state = fp8c.torch.state_dict(model)
            gpu.clear()
            with gpu.stream(OTHER):
                fp8c.torch.load_state_dict(model, state)
        self.assertEqual([(e.detail, e.stream, e.device) for e in gpu.of("run")], [("prepare", OTHER, INDEX)])

    def test_exchange(self) -> None:
        """Amaxes are exchanged on the stream that is current in the optimizer's hook, behind the work of
        the program; and the next push is behind the exchange."""
        model, inputs = regression()
        call, gpu = on_gpu(model, inputs, "delayed")
        optimizer = torch.optim.AdamW(model.parameters())
        with ranks(gpu), gpu, mock.patch.object(Seen, "changed"):
            for step in range(3):
                gpu.clear()
                with gpu.stream(STREAM):
                    call()[0].backward()
                before = len(gpu.events)
                with gpu.stream(OTHER):
                    optimizer.step()
                self.assertEqual(gpu.events[before].what, "set_stream")
                for event in gpu.events[before:]:
                    self.assertEqual((event.stream, event.device), (OTHER, INDEX), event)
                self.assertEqual(len(gpu.of("all_reduce")), 1)
                self.assertEqual(gpu.waits, [], f"step {step}")
                self.assertEqual(len(gpu.of("upload")), 0 if step else 1)  # where each amax belongs: it stays


@contextlib.contextmanager
def ranks(gpu: Any) -> Any:
    """Programs that are compiled now exchange amaxes with another rank, which has seen 3."""
    def all_reduce(largest: torch.Tensor, *_: Any, **__: Any) -> None:
        gpu.note("all_reduce")
        largest.clamp_(min=3.0)

    with mock.patch.object(amaxes, "groups_of", lambda *_: ["group"]), \
            mock.patch.object(private, "ranks_of", lambda _: [0, 1]), \
            mock.patch("torch.distributed.all_reduce", all_reduce):
        yield


class Waits(StandInTest):
    """The host waits for nothing, once each operand has an amax: what looks for that (seen.py) is left out
    here."""

    def test_steps(self) -> None:
        for recipe in ("delayed", "current", "block", "bf16"):
            with self.subTest(recipe), mock.patch.object(Seen, "changed"):
                model, inputs = logits(0.25)
                call, gpu = on_gpu(model, inputs, recipe)
                optimizer = torch.optim.AdamW(model.parameters())
                with gpu, gpu.stream(STREAM):
                    for _ in range(3):
                        call()[0].backward(torch.ones(5, 7))
                        optimizer.step()
                self.assertEqual(gpu.waits, [])
                self.assertEqual(gpu.of("upload"), [], "a seed goes from the host with its call")

    def test_seed(self) -> None:
        """torch.manual_seed governs dropout as on the CPU: the same masks, in forward and backward."""
        results = []
        for on in (False, True):
            model, inputs = logits(0.5)
            call, gpu = (compiled(model, "f32"), contextlib.nullcontext()) if not on else on_gpu(model, inputs, "f32")
            if not on:
                call(**inputs)  # it compiles, which the other has done
            torch.manual_seed(11)
            with gpu:
                y = call(**inputs)
                y = y[0] if on else y
                y.backward(torch.ones(5, 7))
            results.append({"y": y.detach(), **{n: p.grad for n, p in model.named_parameters()}})
        self.equal(*results)

    def test_two_programs_in_a_step(self) -> None:
        """Amaxes of two programs of one model are joined where they lie."""
        model, inputs = regression()
        more = batch_of(9, seed=5)
        more["x"] *= 3
        call, gpu = on_gpu(model, inputs, "delayed")
        other, _ = on_gpu(model, more, "delayed", gpu)
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.0)
        with gpu, gpu.stream(STREAM), mock.patch.object(Seen, "changed"):
            call()[0].backward()
            other()[0].backward()
            one, two = (s for s in programs(model) if s.elements)
            seen = [s.bound.program.program.read(AMAX, torch.empty(len(s.elements))) for s in (one, two)]
            optimizer.step()
            gpu.clear()
            call()
        self.assertEqual(gpu.waits, [])
        self.assertEqual([e.detail for e in gpu.of("run")], ["update_scales"] * 2)
        self.assertFalse(torch.equal(*seen))
        for scales in (one, two):
            history = scales.read(HISTORY)[:, 0]
            x = scales.elements.index("up.x")
            self.assertEqual(float(history[x]), float(torch.maximum(*seen)[x]))

    def test_idle_rank(self) -> None:
        """A rank that ran no backward of some weights in a step takes and pushes the amaxes of the others;
        for that alone it waits. Another program of these weights that ran is enough."""
        model, inputs = regression()
        call, gpu = on_gpu(model, inputs, "delayed")
        other, _ = on_gpu(model, batch_of(9), "delayed", gpu)
        optimizer = torch.optim.AdamW(model.parameters())
        with ranks(gpu), gpu, mock.patch.object(Seen, "changed"):
            call()[0].backward()
            optimizer.step()
            call()  # pushes
            (one,) = programs(model)
            self.assertFalse(one.dirty)
            gpu.clear()
            optimizer.step()
            self.assertEqual((one.dirty, gpu.waits), (True, ["__bool__"]))
            call()
            self.assertEqual([e.detail for e in gpu.of("run")], ["update_scales"])
            self.assertTrue(bool((one.read(HISTORY)[:, 0] >= 3).all()))
            other()[0].backward()
            optimizer.step()
            gpu.clear()
            other()[0].backward()
            optimizer.step()
            self.assertFalse(one.dirty)
            self.assertEqual(gpu.waits, [])


class Addresses(StandInTest):
    def test_odd(self) -> None:
        """Inputs and cotangents at any address of an element are taken; the log has the name, once."""
        model, inputs = logits()
        call, gpu = on_gpu(model, inputs, "f32")
        cotangent = torch.randn(5, 7)
        results = []
        with self.assertLogs("fp8c.torch", "WARNING") as said, gpu:
            for x, dy in ((inputs["x"], cotangent), (at_odd_address(inputs["x"]), at_odd_address(cotangent)),
                          (at_odd_address(inputs["x"]), at_odd_address(cotangent.t().contiguous()).t())):
                model.zero_grad()
                gpu.clear()
                y = call(x=x)[0]
                y.backward(dy)
                results.append({"y": y.detach(), **{n: p.grad for n, p in model.named_parameters()}})
                for event in gpu.of("forward", "backward"):
                    self.assertEqual([at % 16 for at in event.detail], [0] * len(event.detail), event)
        self.equal(results[0], results[1])
        self.equal(results[0], results[2])
        lines = [record.getMessage() for record in said.records]
        self.assertEqual(len(lines), 2, lines)
        self.assertRegex(lines[0], r"^input 'x' lies at an address that is no multiple of 16 bytes")
        self.assertRegex(lines[1], r"^the gradient of result '\w+' lies at")

    def test_odd_seed(self) -> None:
        """A seed lies on the host, at any address of a number: it is not copied, and nothing is said."""
        model, inputs = logits(0.25)
        call, gpu = on_gpu(model, inputs, "f32")
        words = torch.zeros(2, dtype=torch.int32)
        self.assertTrue(words[1].data_ptr() % 16)
        with mock.patch.object(bound, "_seed_tensor", lambda seed: words[1].fill_(seed)), gpu, \
                self.assertNoLogs("fp8c.torch", "WARNING"):
            call()[0].backward(torch.ones(5, 7))
        for event in gpu.of("forward"):
            self.assertIn(words[1].data_ptr(), event.detail)

    def test_expanded(self) -> None:
        """A cotangent without memory of its own, as that of a sum."""
        model, inputs = logits()
        call, gpu = on_gpu(model, inputs, "f32")
        with gpu:
            call()[0].backward(torch.ones(1, 1).expand(5, 7))
            got = model.up.weight.grad
            model.zero_grad()
            call()[0].backward(torch.ones(5, 7))
        self.assertTrue(torch.equal(got, model.up.weight.grad))

    def test_cpu(self) -> None:
        """On the CPU nothing is copied, and nothing said."""
        model, inputs = logits()
        call = compiled(model)
        with self.assertNoLogs("fp8c.torch", "WARNING"):
            x = at_odd_address(inputs["x"])
            call(x=x)
        ports = next(iter(programs(model)[0].bound._views.values()))
        self.assertEqual(ports.forward_in[0].c.data, x.data_ptr())

    def test_asked_once(self) -> None:
        """A forward asks each tensor once for its address. A backward asks a tensor of each storage."""
        model, inputs = regression()
        flat = torch.cat([p.detach().flatten() for p in (model.down.weight, model.norm.weight, model.norm.bias)])
        for param, part in zip((model.down.weight, model.norm.weight, model.norm.bias), flat.split((168, 24, 24))):
            param.data = part.view_as(param)  # three parameters in one storage
        call, gpu = on_gpu(model, inputs, "current")
        optimizer = torch.optim.AdamW(model.parameters())
        params, storages = 6, 4
        with gpu:
            for _ in range(2):
                loss = call()[0]
                loss.backward()
                optimizer.step()
            gpu.clear()
            loss = call()[0]
            self.assertEqual(gpu.addresses, params + len(inputs) + 1)  # 1: the loss
            gpu.clear()
            loss.backward()
            read = len(gpu.of("backward")[0].detail)  # the cotangent, and inputs again
            self.assertEqual(gpu.addresses, storages + read + params)  # params: the gradients


class Moved(StandInTest):
    """Parameters that move, on the CPU as on a GPU."""

    def test_data_swapped(self) -> None:
        """The next forward reads `p.data`'s new tensor. A backward in between has the gradient of the
        values that its forward has read."""
        model, inputs = logits()
        call = compiled(model)
        call(**inputs).sum().backward()
        want = {n: p.grad.clone() for n, p in model.named_parameters()}
        model.zero_grad()
        y = call(**inputs).sum()
        model.down.weight.data = torch.full_like(model.down.weight, 2.0)
        gc.collect()
        y.backward()
        self.equal(want, {n: p.grad for n, p in model.named_parameters()})
        self.assertTrue(torch.allclose(call(**inputs), model(**inputs), atol=1e-5))

    def test_storage_resized(self) -> None:
        """A storage that has other memory, or none, is not read where it was."""
        for size in (0, 1 << 20):
            with self.subTest(size):
                torch._dynamo.reset()
                model, inputs = logits()
                call = compiled(model)
                y = call(**inputs).sum()
                storage, size_then = model.down.weight.untyped_storage(), model.down.weight.untyped_storage().size()
                storage.resize_(size)
                with self.assertRaisesRegex(RuntimeError, r"the storage of parameter .*down.*weight.* was modified"):
                    y.backward()
                if not size:
                    with self.assertRaisesRegex(Exception, r"down.*weight.*: its storage was freed"):
                        call(**inputs)
                storage.resize_(size_then)
                with torch.no_grad():
                    model.down.weight.fill_(0.5)
                self.assertTrue(torch.allclose(call(**inputs), model(**inputs), atol=1e-5))


class Allocator(StandInTest):
    def memory(self) -> tuple[Any, Any]:
        model, inputs = regression()
        call, gpu = on_gpu(model, inputs, "bf16")
        with gpu:
            call()
        self.options = programs(model)[0].bound.program.options
        return model, gpu

    def test_options(self) -> None:
        """A program is compiled for the parameters' GPU, with memory of PyTorch's allocator on the stream
        that is current then."""
        model, gpu = self.memory()
        self.assertEqual((self.options["target"], self.options["device"]), ("cuda", INDEX))
        with gpu:
            for stream in (STREAM, 0):
                with gpu.stream(stream):
                    at = self.options["device_alloc"](1000)
                self.assertEqual(gpu.held[at][:2], (1000, stream))
                self.options["device_free"](at, 1000)
            self.assertEqual(gpu.held, {})

    def test_through_c(self) -> None:
        """As C calls them: in another thread, after all that Python held of them is gone."""
        _, gpu = self.memory()
        with gpu:
            memory = device.Memory(torch.device("cuda", INDEX))
            made = compile_options(target="cuda", device_alloc=memory.alloc, device_free=memory.free)
            at = made.struct.device_alloc(None, 4096)
            self.assertEqual(gpu.held[at][0], 4096)
            del memory
            gc.collect()
        thread = threading.Thread(target=made.struct.device_free, args=(None, at, 4096))
        thread.start()
        thread.join(30)
        self.assertEqual(gpu.held, {})

    def test_no_memory(self) -> None:
        """Where PyTorch has none, C is told so, and says for what it was."""
        _, gpu = self.memory()
        with gpu:
            gpu.memory = 100
            memory = device.Memory(torch.device("cuda", INDEX))
            made = compile_options(device_alloc=memory.alloc, device_free=memory.free)
            self.assertIsNone(made.struct.device_alloc(None, 4096))
            self.assertIsNone(fp8c.errors.callbacks.raised)

    def test_free_raises(self) -> None:
        """An error in it goes to the hook for such errors, not to an unrelated call."""
        def free(address: int, size: int) -> None:
            raise RuntimeError("planted")

        made, told = compile_options(device_alloc=lambda size: 256, device_free=free), []
        with mock.patch.object(sys, "unraisablehook", told.append):
            made.struct.device_free(None, 256, 1)
        self.assertEqual([str(one.exc_value) for one in told], ["planted"])
        self.assertIn("device_free", told[0].err_msg)
        self.assertIsNone(fp8c.errors.callbacks.raised)

    def test_end_within_free(self) -> None:
        """If the collector ends another program while memory is freed, that waits for the end of the call:
        fp8c is not entered twice."""
        ended = []
        held = [_handle.Handle(1, ended.append)]

        def free(address: int, size: int) -> None:
            held.clear()
            during.extend(ended)

        during: list[int] = []
        made = compile_options(device_alloc=lambda size: 256, device_free=free)
        made.struct.device_free(None, 256, 1)
        self.assertEqual(during, [])
        _handle.drain()
        self.assertEqual(ended, [1])

    def test_exit(self) -> None:
        """At the interpreter's end memory goes with the process."""
        _, gpu = self.memory()
        with gpu, mock.patch.object(sys, "is_finalizing", lambda: True):
            memory = device.Memory(torch.device("cuda", INDEX))
            memory.free(memory.alloc(100), 100)
        self.assertEqual(len(gpu.held), 1)


class Capture(StandInTest):
    def test_refused(self) -> None:
        """A call or a backward within torch.cuda.graph is an error before anything runs; afterwards the
        model works as before."""
        model, inputs = regression()
        call, gpu = on_gpu(model, inputs, "current")
        with gpu:
            want = call()[0]
            gpu.clear()
            gpu.capturing = True
            with self.assertRaisesRegex(RuntimeError, "can't be captured by torch.cuda.graph.*Leave this call out"):
                call()
            with self.assertRaisesRegex(RuntimeError, "can't be captured"):
                want.backward()
            self.assertEqual(gpu.events, [])
            self.assertEqual(gpu.device, 0)
            gpu.capturing = False
            self.assertTrue(torch.equal(call()[0], want))


class Attention(StandInTest):
    OLD = ("attention 'a.0' in forward: cuDNN 9.5.1 is too old for attention: 9.11 or later is needed; compiled "
           "with attention 'own', it needs no cuDNN")

    def test_option(self) -> None:
        model, inputs = regression()
        call, gpu = on_gpu(model, inputs, "bf16", attention="own")
        with gpu:
            call()
        self.assertEqual(programs(model)[0].bound.program.options["attention"], "own")
        for wrong in ("CUDNN", "", 1):
            with self.assertRaisesRegex(ValueError, "attention .* is none of table, own, cudnn"):
                Settings.of({"attention": wrong})
        with self.assertRaisesRegex(Exception, "attention 'cudnn' needs a CUDA target"):
            compiled(model, "bf16", attention="cudnn")(**inputs)

    def test_old_cudnn(self) -> None:
        """cuDNN is too old for the table's choice: our kernels, said in the log and in the report."""
        model, inputs = regression()
        call, gpu = on_gpu(model, inputs, "bf16")
        gpu.no_cudnn = self.OLD
        with self.assertLogs("fp8c.torch", "WARNING") as said, gpu:
            call()
        self.assertEqual(programs(model)[0].bound.program.options["attention"], "own")
        why = "attention 'a.0' in forward: cuDNN 9.5.1 is too old for attention: 9.11 or later is needed"
        self.assertEqual([r.getMessage() for r in said.records], [f"fp8c's own kernels compute attention: {why}"])
        found = fp8c.torch.report(model)
        self.assertEqual(found.attention, [why])
        self.assertIn(f"attention by fp8c's own kernels, not by cuDNN:\n  {why}", str(found))

    def test_asked_for(self) -> None:
        """Who asks for cuDNN gets it or an error; another error of a library is one, too."""
        for options, error in (({"attention": "cudnn"}, self.OLD), ({}, "libcuda.so.1 is not here")):
            model, inputs = regression()
            with mock.patch.object(Settings, "of", classmethod(lambda cls, given: cls(recipe="bf16", strict=True))):
                call, gpu = on_gpu(model, inputs, "bf16")
            gpu.no_cudnn = error
            for runner in call.function.compiled.runners:
                runner.settings = Settings(recipe="bf16", strict=True, **options)
            with gpu, self.assertRaisesRegex(fp8c.LibraryError, error[:20]):
                call()


if __name__ == "__main__":
    unittest.main()
