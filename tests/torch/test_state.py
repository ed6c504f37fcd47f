"""Scales over steps: when histories are pushed, who shares them, and the same bits again."""

from __future__ import annotations

import copy
import gc
import io
import unittest
from typing import Any

import torch

import fp8c.torch
import models
from fp8c.torch.run import state
from fp8c.torch.run.scales import AMAX, HISTORY, SCALE
from support import (BackendTest, batch_of, compiled, gradients, loss_of, programs, regression,
                     train, twin)


def pushes(model: torch.nn.Module) -> int:
    for one in programs(model):
        if one.stepped:
            one.refresh()
    return sum(one.pushes for one in programs(model))


def nonzero(history: torch.Tensor) -> int:
    """How many entries of the fullest history are there."""
    return int((history != 0).sum(1).max())


class Steps(BackendTest):
    def test_accumulation_pushes_once_a_step(self) -> None:
        for count in (1, 3, 8):
            with self.subTest(count):
                torch._dynamo.reset()
                model, inputs = regression()
                call = compiled(model, "delayed")
                optimizer = torch.optim.AdamW(model.parameters())
                for _ in range(4):
                    for _ in range(count):
                        (call(**inputs) / count).backward()
                    optimizer.step()
                    optimizer.zero_grad()
                self.assertEqual(pushes(model), 4)
                self.assertEqual(nonzero(programs(model)[0].read(HISTORY)), 4)

    def test_amaxes_of_a_step_are_joined(self) -> None:
        """The history gets the largest amax of the step, whatever the order of micro-batches."""
        big, small = batch_of(seed=1), batch_of(seed=2)
        big["x"] = big["x"] * 50
        found = []
        for batches in ((big, small), (small, big)):
            torch._dynamo.reset()
            model, _ = regression()
            call = compiled(model, "delayed")
            for batch in batches:
                call(**batch).backward()
            fp8c.torch.update_scales(model)
            pushes(model)
            one = programs(model)[0]
            index = one.elements.index("up.x")
            found.append(float(one.read(HISTORY)[index].max()))
        self.assertEqual(found, [float(big["x"].abs().max())] * 2)

    def test_eval_changes_nothing(self) -> None:
        """eval, no_grad and a forward without backward leave histories and scales as they are."""
        model, inputs = regression()
        call = compiled(model, "delayed")
        train(call, model, inputs, 2)
        pushes(model)
        one = programs(model)[0]
        before = {s: one.read(s) for s in (HISTORY, SCALE, AMAX)}
        model.eval()
        other = {"x": inputs["x"] * 100, "y": inputs["y"]}
        with torch.no_grad():
            call(**other)
        model.train()
        call(**other)
        self.equal(before, {s: one.read(s) for s in before})

    def test_train_eval_train(self) -> None:
        """Evaluations between steps change no bit of a training."""
        found = []
        for evaluate in (False, True):
            torch._dynamo.reset()
            model, inputs = regression()
            call, losses = compiled(model, "delayed"), []
            optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
            for _ in range(4):
                losses += train(call, model, inputs, 1, optimizer=optimizer)
                if evaluate:
                    model.eval()
                    with torch.no_grad():
                        call(**inputs)
                    model.train()
            found.append(losses)
        self.assertEqual(*found)

    def test_eval_has_the_scales_of_training(self) -> None:
        """eval's loss is that of the training's own forward, bit for bit."""
        model, inputs = regression()
        call = compiled(model, "delayed")
        train(call, model, inputs, 3)
        own = float(call(**inputs).detach())
        with torch.no_grad():
            self.assertEqual(float(call(**inputs)), own)

    def test_first_calls_have_scales_that_mean_something(self) -> None:
        """Before a first step operands are scaled by their own amaxes, with and without gradients.
        A scale of 1 would make zeros of these inputs."""
        model, inputs = regression()
        model.norm = torch.nn.Identity()
        inputs["x"] = inputs["x"] * 1e-6
        with torch.no_grad():
            model.up.weight *= 5e6
        eager = twin(model)
        exact, zeros = (float(eager(x, inputs["y"]).detach()) for x in (inputs["x"], inputs["x"] * 0))
        call = compiled(model, "delayed")
        with torch.no_grad():
            self.assertLess(abs(float(call(**inputs)) - exact), 0.1 * abs(zeros - exact))
        self.assertEqual(pushes(model), 0)
        call(**inputs).backward()
        eager(**inputs).backward()
        for (name, p), q in zip(model.named_parameters(), eager.parameters()):
            self.assertLess(float((p.grad - q.grad).norm()), 0.2 * float(q.grad.norm()), name)

    def test_new_shapes_carry_histories(self) -> None:
        model, inputs = regression()
        call = compiled(model, "delayed")
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
        for step, batch in enumerate((6, 6, 9, 11, 4, 30, 6), 1):
            train(call, model, batch_of(batch), 1, optimizer=optimizer)
            pushes(model)
            newest = max(programs(model), key=lambda s: s.pushed)
            self.assertEqual(nonzero(newest.read(HISTORY)), step)

    def test_shapes_within_one_step_are_joined(self) -> None:
        """Two programs that ran in one step push one joined history each."""
        model, _ = regression()
        call = compiled(model, "delayed")
        big = batch_of(9)
        big["x"] = big["x"] * 50
        for batch in (batch_of(6), big):
            call(**batch).backward()
        fp8c.torch.update_scales(model)
        call(**batch_of(6)).backward()
        tops = {float(s.read(HISTORY)[s.elements.index("up.x")].max()) for s in programs(model)}
        self.assertEqual(tops, {float(big["x"].abs().max())})

    def test_writes_that_no_optimizer_announces(self) -> None:
        """A parameter's version says that a step was; weights' amaxes follow."""
        for recipe in ("delayed", "current"):
            with self.subTest(recipe):
                torch._dynamo.reset()
                model, inputs = regression()
                call = compiled(model, recipe)
                call(**inputs).backward()
                with torch.no_grad():
                    model.up.weight *= 1000
                loss = call(**inputs)
                self.assertEqual(pushes(model), 1)
                eager = twin(model)(**inputs)
                self.assertAlmostEqual(float(loss.detach()), float(eager.detach()), delta=0.1)

    def test_moved_parameters(self) -> None:
        """`.data =` puts a parameter elsewhere: the program follows."""
        model, inputs = regression()
        call = compiled(model)
        first = float(call(**inputs).detach())
        for p in model.parameters():
            p.data = p.data.clone()
        self.assertEqual(float(call(**inputs).detach()), first)
        model.up.weight.data = model.up.weight.data * 2
        self.assertAlmostEqual(float(call(**inputs).detach()), float(twin(model)(**inputs).detach()),
                               places=5)

    def test_backward_after_a_step_is_refused(self) -> None:
        model, inputs = regression()
        call = compiled(model, "delayed")
        waiting = call(**inputs)
        train(call, model, inputs, 1)
        with self.assertRaisesRegex(RuntimeError, "was modified between a forward and its backward"):
            waiting.backward()

    def test_backward_after_a_fused_step_is_refused(self) -> None:
        """At once, though the step raises no version and no forward has followed. A step of parameters
        without gradients changes nothing."""
        model, inputs = regression()
        call = compiled(model, "delayed")
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, fused=True)
        waiting, first, last = call(**inputs), call(**inputs), call(**inputs)
        optimizer.step()
        first.backward()
        before = [p._version for p in model.parameters()]
        optimizer.step()
        self.assertEqual([p._version for p in model.parameters()], before)
        optimizer.zero_grad()
        for loss in (waiting, last):
            with self.assertRaisesRegex(RuntimeError, "was modified between a forward and its backward"):
                loss.backward()

    def test_forwards_may_wait(self) -> None:
        """Three forwards, then their backwards in another order: the sum of the gradients."""
        model, _ = regression()
        call, eager = compiled(model), twin(model)
        batches = [batch_of(seed=s) for s in (1, 2, 3)]
        losses = [call(**b) for b in batches]
        for i in (1, 2, 0):
            losses[i].backward()
        sum(eager(**b) for b in batches).backward()
        for (name, p), q in zip(model.named_parameters(), eager.parameters()):
            torch.testing.assert_close(p.grad, q.grad, msg=name)
        self.assertEqual(len(programs(model)[0].bound.free), 3)

    def test_dropped_graphs_give_their_memory_back(self) -> None:
        model, inputs = regression()
        call = compiled(model)
        for _ in range(5):
            call(**inputs)
        bound = programs(model)[0].bound
        bound.reclaim()
        self.assertLessEqual(len(bound.free), 2)


class SameBits(BackendTest):
    def run_once(self, recipe: str = "delayed", steps: int = 4, prepare: Any = None,
                 **options: Any) -> dict[str, torch.Tensor]:
        torch._dynamo.reset()
        model, inputs = models.make("gpt2")
        if prepare is not None:
            prepare(model)
        train(compiled(model, recipe, **options), model, inputs, steps, lr=1e-3)
        return {n: p.detach().clone() for n, p in model.named_parameters()}

    def test_memory_and_checkpointing(self) -> None:
        plain = self.run_once()
        self.equal(plain, self.run_once(memory=0.5), "memory 0.5")
        self.equal(plain, self.run_once(prepare=lambda m: m.gradient_checkpointing_enable()),
                   "gradient_checkpointing_enable")

    def test_save_and_resume(self) -> None:
        """Six steps at once, and three, saved and loaded into a new model, then three: the same."""
        for recipe in ("delayed", "current"):
            with self.subTest(recipe):
                file, found = io.BytesIO(), []
                for part in ("whole", "first", "second"):
                    torch._dynamo.reset()
                    model, inputs = regression(seed=0 if part != "second" else 5)
                    call = compiled(model, recipe)
                    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
                    if part == "second":
                        file.seek(0)
                        saved = torch.load(file)
                        model.load_state_dict(saved["model"])
                        optimizer.load_state_dict(saved["optimizer"])
                        fp8c.torch.load_state_dict(model, saved["fp8"])
                    losses = train(call, model, inputs, 6 if part == "whole" else 3,
                                   optimizer=optimizer)
                    if part == "first":
                        state = fp8c.torch.state_dict(call)
                        self.assertEqual(bool(state), recipe == "delayed")
                        torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(),
                                    "fp8": state}, file)
                        self.assertFalse([k for k in model.state_dict() if "fp8" in k])
                    found.append((losses, gradients(model)))
                self.assertEqual(found[0][0], found[1][0] + found[2][0])
                self.equal(found[0][1], found[2][1])

    def test_load_and_evaluate_and_resume(self) -> None:
        """An evaluation between a load and the first step takes no history away from the step."""
        found, saved = [], {}
        for evaluate in (False, True):
            torch._dynamo.reset()
            model, inputs = regression()
            call = compiled(model, "delayed")
            if not saved:
                train(call, model, inputs, 3)
                saved = {"model": model.state_dict(), "fp8": fp8c.torch.state_dict(model)}
                saved = copy.deepcopy(saved)
                torch._dynamo.reset()
                model, inputs = regression()
                call = compiled(model, "delayed")
            model.load_state_dict(saved["model"])
            fp8c.torch.load_state_dict(model, saved["fp8"])
            if evaluate:
                with torch.no_grad():
                    call(**inputs)
            train(call, model, inputs, 2)
            found.append(fp8c.torch.state_dict(model))
        self.equal(*found)

    def test_wrong_states(self) -> None:
        model, _ = regression()
        with self.assertRaisesRegex(ValueError, "no such parameter"):
            fp8c.torch.load_state_dict(model, {"nobody.weight:x": torch.zeros(18)})
        with self.assertRaisesRegex(ValueError, "no state of a scale"):
            fp8c.torch.load_state_dict(model, {"up.weight:x": torch.zeros(2)})


class Computed(torch.nn.Module):
    """A linear whose weight is computed, and one whose weight is a parameter."""

    def __init__(self) -> None:
        super().__init__()
        self.w, self.gain = (torch.nn.Parameter(torch.randn(24, n)) for n in (13, 1))
        self.down = torch.nn.Linear(24, 7)

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        h = torch.nn.functional.linear(x, self.w * self.gain)
        return torch.nn.functional.cross_entropy(self.down(h), y)


class Copies(BackendTest):
    """copy.deepcopy takes the histories along."""

    def trained(self, model: torch.nn.Module | None = None, steps: int = 3) -> tuple[Any, Any, Any]:
        """A model, what runs it, and inputs, after some steps under `delayed`."""
        made, inputs = regression()
        model = model or made
        call = compiled(model, "delayed")
        train(call, model, inputs, steps, optimizer=torch.optim.SGD(model.parameters(), lr=1e-2))
        return model, call, inputs

    def go_on(self, model: torch.nn.Module, call: Any, factor: float = 1.0) -> dict[str, torch.Tensor]:
        """Three more steps: parameters, losses and the state of scales."""
        inputs = batch_of(seed=8)
        inputs["x"] = inputs["x"] * factor
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
        losses = train(call, model, inputs, 3, optimizer=optimizer)
        values = {n: p.detach().clone() for n, p in model.named_parameters()}
        return {"losses": torch.tensor(losses), **values, **fp8c.torch.state_dict(model)}

    def test_a_copy_goes_on_as_the_original(self) -> None:
        """A copy of the model, of what torch.compile gave, and of a copy that has run nothing."""
        for what, copied in (
            ("model", lambda model, call: (made := copy.deepcopy(model), compiled(made, "delayed"))),
            ("call", lambda model, call: ((made := copy.deepcopy(call))._orig_mod, made)),
            ("copy", lambda model, call: (made := copy.deepcopy(copy.deepcopy(model)),
                                          compiled(made, "delayed"))),
        ):
            for kind in (None, Computed()):
                with self.subTest(what, model=type(kind).__name__):
                    torch._dynamo.reset()
                    model, call, inputs = self.trained(kind)
                    before = fp8c.torch.state_dict(model)
                    self.assertTrue(any((row[:-2] != 0).sum() == 3 for row in before.values()))
                    other, other_call = copied(model, call)
                    with torch.no_grad():  # compiled, with no history of its own yet
                        self.assertEqual(float(other_call(**inputs)), float(call(**inputs)))
                    self.assertIsNot(other, model)
                    self.equal(self.go_on(model, call), self.go_on(other, other_call), what)

    def test_within_a_step(self) -> None:
        """Amaxes that wait for the step's end are copied, too."""
        model, call, inputs = self.trained()
        big = {**inputs, "x": inputs["x"] * 50}
        call(**big).backward()
        other = copy.deepcopy(model)
        for one in (model, other):
            one.zero_grad()
        self.equal(self.go_on(model, call), self.go_on(other, compiled(other, "delayed")))

    def test_each_goes_its_own_way(self) -> None:
        """What the original does later is not the copy's, nor the other way round."""
        model, call, _ = self.trained()
        other, third = copy.deepcopy(model), copy.deepcopy(model)
        far = self.go_on(model, call, factor=100.0)
        near = self.go_on(other, compiled(other, "delayed"))
        self.equal(near, self.go_on(third, compiled(third, "delayed")))
        self.assertGreater(float(far["up.weight:x"][:-2].max()), 10 * float(near["up.weight:x"][:-2].max()))

    def test_nothing_is_kept_of_copies_that_are_gone(self) -> None:
        model, _, _ = self.trained()
        gc.collect()
        before = len(state._pending)
        copies = [copy.deepcopy(model) for _ in range(3)]
        self.assertEqual(len(state._pending), before + 3 * 2)  # two weights have scales
        del copies
        gc.collect()
        self.assertEqual(len(state._pending), before)


class Weights(BackendTest):
    def test_frozen(self) -> None:
        """Frozen parameters get no gradient, and no GEMM is planned for one: of the first block's
        four linears neither the wgrads nor, with the embeddings frozen too, any dgrad."""
        for embeddings, gone in ((False, 4), (True, 8)):
            with self.subTest(embeddings=embeddings):
                torch._dynamo.reset()
                model, inputs = models.make("gpt2")
                model.lm_head.weight = torch.nn.Parameter(model.lm_head.weight.detach().clone())
                frozen = [model.transformer.h[0]]
                if embeddings:
                    frozen += [model.transformer.wte, model.transformer.wpe]
                for part in frozen:
                    part.requires_grad_(False)
                eager = twin(model)
                loss_of(compiled(model)(**inputs)).backward()
                loss_of(eager(**inputs)).backward()
                for (name, p), q in zip(model.named_parameters(), eager.parameters()):
                    self.assertEqual(p.grad is None, q.grad is None, name)
                    if p.grad is not None:
                        torch.testing.assert_close(p.grad, q.grad, rtol=1e-4, atol=1e-7, msg=name)
                bound = programs(model)[0].bound
                roles = [(one.linear, one.role) for one in bound.decisions()]
                self.assertEqual(len(roles), 27 - gone)
                for linear, role in roles:
                    if linear.startswith("transformer.h.0."):
                        self.assertIn(role, ("fprop",) if embeddings else ("fprop", "dgrad"))
                names = {p.name for p in bound.program.outputs("backward")}
                trained = {p.name for p in bound.stage.params if p.requires_grad}
                self.assertEqual(names, trained)

    def test_thaw(self) -> None:
        """A parameter that is trained again has its gradient: it is compiled once more, by dynamo
        or, where that does not look, by the backend."""
        for part in ("up", ""):
            with self.subTest(part):
                torch._dynamo.reset()
                model, inputs = regression()
                model.get_submodule(part).requires_grad_(False)
                call = compiled(model)
                loss = call(**inputs)
                self.assertEqual(loss.requires_grad, part != "")
                model.requires_grad_(True)
                eager = twin(model)
                for one in (call, eager):
                    one(**inputs).backward()
                for p, q in zip(model.parameters(), eager.parameters()):
                    torch.testing.assert_close(p.grad, q.grad)

    def test_all_frozen(self) -> None:
        """With every parameter frozen only the input has a gradient; without that, a call gives a
        loss without one. Dropout under no_grad, too."""
        for p in (0.0, 0.3):
            torch._dynamo.reset()
            model = torch.nn.Sequential(
                torch.nn.Linear(8, 8), torch.nn.Dropout(p), torch.nn.Linear(8, 4)
            ).requires_grad_(False)
            call, x = compiled(model), torch.randn(3, 8, requires_grad=True)
            call(x).sum().backward()
            if p == 0:
                product = model[2].weight @ model[0].weight
                torch.testing.assert_close(x.grad, product.sum(0).expand(3, 8))
            self.assertFalse(call(x.detach()).requires_grad)

    def test_tied(self) -> None:
        model, inputs = models.make("gpt2")
        self.assertIs(model.lm_head.weight, model.transformer.wte.weight)
        train(compiled(model, "current"), model, inputs, 2)
        self.assertIs(model.lm_head.weight, model.transformer.wte.weight)
        self.assertEqual(fp8c.torch.report(model)["lm_head"].kind, "FP8")

    def test_fused_and_foreach_optimizers(self) -> None:
        """Fused ones write parameters without raising their versions: the hook speaks."""
        found = []
        for kind in ({"foreach": True}, {"fused": True}):
            torch._dynamo.reset()
            model, inputs = regression()
            call = compiled(model, "delayed")
            train(call, model, inputs, 4, optimizer=torch.optim.AdamW(model.parameters(), **kind))
            self.assertEqual(pushes(model), 4)
            found.append(programs(model)[0].read(HISTORY))
        torch.testing.assert_close(*found, rtol=1e-3, atol=1e-6)


if __name__ == "__main__":
    unittest.main()
