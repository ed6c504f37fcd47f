"""What fp8c can't take costs that op, not the model: the linears around it are compiled, values and gradients are
PyTorch's, and the report names the op."""
import contextlib
import unittest
import weakref

import torch
import torch.nn.functional as F

import fp8c
import fp8c.torch

from fp8c.torch.graph.pieces import Pieces
from support import BackendTest, compiled


class Double(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, g):
        return g * 3  # not the derivative: fp8c must not derive it itself


class Net(torch.nn.Module):
    def __init__(self, middle):
        super().__init__()
        self.a, self.b, self.middle = torch.nn.Linear(8, 8), torch.nn.Linear(8, 8), middle
        self.register_buffer("turn", torch.polar(torch.ones(4, 4), torch.randn(4, 4)))

    def forward(self, x):
        return self.b(self.middle(self, self.a(x)))


def rotary(net, y):
    return torch.view_as_real(torch.view_as_complex(y.reshape(4, 4, 2)) * net.turn).reshape(4, 8)


def write_copy(net, y):
    y = y.clone()
    y[:, 0] = 0
    return y


def write_result(net, y):
    y[:, 0] = 0
    return y


def write_view(net, y):
    y[:, 1:3].mul_(2.0)
    return y + 1


def write_below_views(net, y):
    left = y[:, :4]
    y[:, 0] = 0
    return torch.cat([left, y[:, 4:]], -1)


def write_below_other_views(net, y):
    left = y.narrow(1, 0, 4)
    y[:, 0] = 0
    return torch.cat([left * 2, y[:, 4:]], -1)


def write_through_a_reshape(net, y):
    y.reshape(2, 16)[0] = 1
    return y


def write_across(net, y):
    y.permute(1, 0)[0] = 5
    y.unflatten(-1, (2, 4)).select(1, 1).fill_(3.0)
    return y


def view_between_writes(net, y):
    z = y * 2
    z[0] = 1
    row = z.select(0, 3)
    z[3] = 7
    return z + row


def written_twice(net, y):
    z = y * 2
    z[0] = 1
    w = F.relu(z)
    z[1] = w[2]
    return z + w


# What stands between two linears, and a word of the report.
BETWEEN = {
    "complex buffer": (rotary, "complex"),
    "autograd.Function": (lambda net, y: Double.apply(y), "autograd.Function"),
    "vmap": (lambda net, y: torch.vmap(lambda row: row * 2)(y), "vmap"),
    "write into a copy": (write_copy, "memory is written"),
    "write into a result": (write_result, "memory is written"),
    "write through a view": (write_view, "memory is written"),
    "write below a view": (write_below_views, "memory is written"),
    "write below another view": (write_below_other_views, "memory is written"),
    "write through a reshape": (write_through_a_reshape, "memory is written"),
    "write across": (write_across, "memory is written"),
    "view between writes": (view_between_writes, "memory is written"),
    "written twice": (written_twice, "memory is written"),
    "bernoulli_": (lambda net, y: y * torch.empty_like(y).bernoulli_(1.0), "memory is written"),
    "softmax in float64": (lambda net, y: y.softmax(-1, dtype=torch.float64).float(), ""),
    "floor": (lambda net, y: y + y.floor(), ""),
    "topk": (lambda net, y: y * y.topk(2)[0].sum(-1, keepdim=True), "topk"),
    "cumsum": (lambda net, y: y.cumsum(-1), "cumsum"),
    "gather": (lambda net, y: y.gather(-1, torch.zeros(4, 8, dtype=torch.long)), ""),
    "every other element": (lambda net, y: torch.cat([y[..., ::2], y[..., 1::2]], -1), ""),
    "negative scale of attention": (lambda net, y: F.scaled_dot_product_attention(
        y[None, None], y[None, None], y[None, None], scale=-0.5)[0, 0], ""),
    "data": (lambda net, y: y + y.data * 2, ""),
    "softmax of a number": (lambda net, y: y * y.sum().softmax(0), ""),
    "index of a number": (lambda net, y: y * y.sum().index_select(0, torch.tensor([0])), ""),
    "no elements": (lambda net, y: torch.cat([y, y[:0]], 0), ""),
}

# PyTorch runs the linear, too, whose result both the view and the write have.
LOSES = {"write below a view", "write below another view"}


class OneOp(BackendTest):
    def test_between_linears(self):
        for name, (middle, word) in BETWEEN.items():
            with self.subTest(name):
                torch._dynamo.reset()
                torch.manual_seed(1)
                model = Net(middle)
                x = torch.randn(4, 8, requires_grad=True)
                params = [x, *model.parameters()]
                want = model(x)
                got = compiled(model, recipe="f32", strict=False)(x)
                torch.testing.assert_close(got, want, atol=2e-5, rtol=1e-5)
                for mine, other in zip(torch.autograd.grad(got.square().sum(), params),
                                       torch.autograd.grad(want.square().sum(), params)):
                    torch.testing.assert_close(mine, other, atol=2e-4, rtol=1e-4)
                found = fp8c.torch.report(model)
                lost = {"f32": 1, "not compiled": 1} if name in LOSES else {"f32": 2}
                self.assertEqual(found.counts(), lost, found)
                if word:
                    self.assertTrue(any(word in str(op) for op in found.eager_ops), found)

    def test_without_gradients(self):
        for name, (middle, _) in BETWEEN.items():
            with self.subTest(name), torch.no_grad():
                torch._dynamo.reset()
                model, x = Net(middle).eval(), torch.randn(4, 8)
                torch.testing.assert_close(compiled(model, recipe="f32", strict=False)(x), model(x), atol=2e-5, rtol=1e-5)

    def test_whole_functions(self):
        """Graphs of which nothing, or no gradient, is left for a stage."""
        lin = torch.nn.Linear(8, 8)
        cases = {"floor": lambda x: torch.floor(lin(x)), "zeros_like": lambda x: torch.zeros_like(lin(x)),
                 "float64": lambda x: lin(x).softmax(-1, dtype=torch.float64), "no rows": lambda x: lin(x[:0]),
                 "an i64 that is reshaped": lambda x: (lin(x) * lin(x).topk(2)[0].sum(-1, keepdim=True),
                                                       lin(x).topk(2)[1].reshape(-1))}
        for name, function in cases.items():
            with self.subTest(name):
                torch._dynamo.reset()
                x = torch.randn(4, 8, requires_grad=True)
                want, got = function(x), compiled(function, recipe="f32", strict=False)(x)
                torch.testing.assert_close(got, want, atol=2e-5, rtol=1e-5)
                first = got[0] if isinstance(got, tuple) else got
                if first.requires_grad:
                    first.sum().backward()

    def test_round_where_recipes_round(self):
        """As quantizers written by hand round; under recipes that keep activations in bf16, too."""
        x, w = torch.arange(-31.0, 33.0).reshape(8, 8) / 8, torch.eye(8).requires_grad_()
        for recipe in ("f32", "bf16", "current"):
            with self.subTest(recipe):
                torch._dynamo.reset()
                got = compiled(lambda x: torch.round(x) @ w, recipe=recipe)(x)
                torch.testing.assert_close(got, torch.round(x))

    def test_a_dynamic_size_is_a_number(self):
        model = Net(lambda net, y: y / y.shape[0] + torch.where(y < y.shape[0], y, 0.5))
        call = compiled(model, recipe="f32")
        for rows in (4, 6):
            x = torch.randn(rows, 8)
            torch._dynamo.mark_dynamic(x, 0)
            torch.testing.assert_close(call(x), model(x), atol=2e-5, rtol=1e-5)
        self.assertEqual(fp8c.torch.report(model).eager_ops, [])

    def test_large_integers_of_activations(self):
        """A stage has 32 bits: they are PyTorch's."""
        x = torch.randn(6, requires_grad=True)
        for function in (lambda x: torch.where(x > 0, torch.tensor(3_000_000_000), torch.tensor(2)) * x,
                         lambda x: ((x > 0).long() * 3_000_000_000) * x):
            torch._dynamo.reset()
            torch.testing.assert_close(compiled(function, strict=False)(x), function(x))

    def test_a_mask_is_overwritten(self):
        """What a call does not change is overwritten by what it does, and a view was made before: as OPT
        does with a float mask."""
        lin = torch.nn.Linear(4, 4)

        def function(x, given):
            mask = torch.triu(torch.ones(4, 4), 1)[None].expand(2, -1, -1).clone()
            part = mask[:, :, :3]
            mask[:, :, :3] = part.masked_fill(part + given[:, None, :3] == 0, -5.0)
            return lin(x) * mask

        x, given = torch.randn(2, 4, 4), torch.tensor([[0.0, 1, 0, 1], [1, 0, 0, 0]])
        torch.testing.assert_close(compiled(function, recipe="f32", strict=False)(x, given), function(x, given))

    def test_strict(self):
        """An op that holds no linear is no error; one that has a parameter is."""
        x = torch.randn(4, 8)
        for name in ("complex buffer", "autograd.Function", "topk"):
            torch._dynamo.reset()
            compiled(Net(BETWEEN[name][0]), recipe="f32", strict=True)(x)
        torch._dynamo.reset()
        model = Net(lambda net, y: torch.vmap(net.b)(y))
        with self.assertRaisesRegex(Exception, "vmap"):
            compiled(model, recipe="f32", strict=True)(x)

    def test_options_are_told(self):
        with self.assertRaisesRegex(Exception, "recipe 'f31' is none of"):
            compiled(Net(lambda net, y: y), recipe="f31")(torch.randn(4, 8))
        with self.assertRaisesRegex(Exception, "memory 'half' is a share"):
            compiled(Net(lambda net, y: y), memory="half")(torch.randn(4, 8))


def half():
    return torch.autocast("cpu", dtype=torch.bfloat16)


class Within(torch.nn.Module):
    """Linears and ops that PyTorch runs, under modes that `forward` enters and leaves."""

    def __init__(self, body):
        super().__init__()
        self.a, self.b, self.c = (torch.nn.Linear(8, 8) for _ in range(3))
        self.body = body

    def forward(self, x):
        return self.body(self, x)


def no_grad_beside(net, x):
    y = net.a(x)
    with torch.no_grad():
        z = net.b(Double.apply(y * 2))
    return net.c(y + z)


def no_grad_around(net, x):
    """The product with `b` has a gradient, that with `a` has none."""
    y = net.a(x)
    with torch.no_grad():
        y = Double.apply(net.a(y) * 2)
        with torch.enable_grad():
            z = Double.apply(net.b(y) * 2)
        z = z * 2 if z.requires_grad else z * 3
    return net.c(y + x) * z.sum() + net.b(Double.apply(y + x)).sum()


def autocast_around(net, x):
    with half():
        y = net.b(Double.apply(net.a(x)))
        kept = y.dtype == torch.bfloat16
    return net.c(y.float() * (2 if kept else 3))


def autocast_begins_within(net, x):
    y = net.a(x)
    with half():
        y = net.b(y)
        y = Double.apply(y @ y.mT) @ y
        with torch.autocast("cpu", enabled=False):
            z = net.a(y.float())
        y = Double.apply(z) + net.c(y)
    return net.c(y.float())


def autocast_of_ops(net, x):
    """PyTorch's own op gives another dtype under autocast."""
    y = net.a(x)
    with half():
        y = torch.view_as_real(torch.view_as_complex(net.b(y).float().reshape(4, 4, 2)) * 2j)
        z = torch.vmap(lambda m: m @ m)(y.reshape(2, 4, 4))
    return net.c(z.reshape(4, 8).float() * z.element_size())


def both(net, x):
    with half(), torch.no_grad():
        y = Double.apply(net.a(x))
    with torch.no_grad(), half():
        z = Double.apply(net.b(x).float()) * 2
    return net.c(y.float() + z + x)


class ModesOfPieces(BackendTest):
    """A graph in pieces keeps the gradient mode and the autocast of each piece."""

    def test_modes(self):
        for body in (no_grad_beside, no_grad_around, autocast_around, autocast_begins_within, autocast_of_ops, both):
            for outer in (contextlib.nullcontext, half, torch.no_grad):
                with self.subTest(body.__name__, outer=outer.__name__):
                    torch._dynamo.reset()
                    torch.manual_seed(1)
                    model, x = Within(body), torch.randn(4, 8, requires_grad=True)
                    call = compiled(model, recipe="f32", strict=False)
                    with outer():
                        want, got = model(x), call(x)
                        self.assertEqual((torch.is_grad_enabled(), torch.is_autocast_enabled("cpu")),
                                         (outer is not torch.no_grad, outer is half))
                    self.assertEqual((got.dtype, got.requires_grad), (want.dtype, want.requires_grad))
                    # eager itself is off by 1% of the largest under autocast, where a sum cancels
                    torch.testing.assert_close(got, want, atol=3e-2 + 0.01 * float(want.abs().max()), rtol=3e-2)
                    if want.requires_grad:
                        params = [x, *model.parameters()]
                        mine, other = (torch.autograd.grad(r.float().square().sum(), params, allow_unused=True)
                                       for r in (got, want))
                        for (name, _), one, two in zip([("x", x), *model.named_parameters()], mine, other):
                            self.assertEqual(one is None, two is None, name)
                            if two is not None:
                                torch.testing.assert_close(one, two, atol=0.02 * float(two.abs().max()), rtol=0.05)
                    found = fp8c.torch.report(model)
                    self.assertEqual(found.left_out, [], found)

    def test_values_are_freed(self):
        """A value lives until the last piece that reads it has run."""
        def chain(x):
            y = x + 1
            z = y * 2
            return z - 3

        gm, alive, made = torch.fx.symbolic_trace(chain), [], []

        def make(part, examples):
            def run(*values):
                alive.append([one() is not None for one in made])
                results = part.forward(*values)
                made.extend(weakref.ref(r) for r in results)
                return results
            return run

        product = next(n for n in gm.graph.nodes if n.name == "mul")
        pieces = Pieces(gm, [torch.ones(2)], {product: "a test"}, make)
        self.assertEqual(float(pieces(torch.ones(2)).sum()), 2.0)
        self.assertEqual(alive, [[], [False]])


if __name__ == "__main__":
    unittest.main()
