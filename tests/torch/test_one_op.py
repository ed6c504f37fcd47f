"""What fp8c can't take costs that op, not the model: the linears around it are compiled, values and gradients are
PyTorch's, and the report names the op."""
import unittest

import torch
import torch.nn.functional as F

import fp8c
import fp8c.torch

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
    "write into a copy": (write_copy, "writes in place"),
    "write into a result": (write_result, "writes in place"),
    "write through a view": (write_view, "writes in place"),
    "write below a view": (write_below_views, "writes in place"),
    "write below another view": (write_below_other_views, "writes in place"),
    "write through a reshape": (write_through_a_reshape, "writes in place"),
    "write across": (write_across, "writes in place"),
    "view between writes": (view_between_writes, "writes in place"),
    "written twice": (written_twice, "writes in place"),
    "bernoulli_": (lambda net, y: y * torch.empty_like(y).bernoulli_(1.0), "at random"),
    "softmax in float64": (lambda net, y: y.softmax(-1, dtype=torch.float64).float(), ""),
    "floor": (lambda net, y: y + y.floor(), ""),
    "topk": (lambda net, y: y * y.topk(2)[0].sum(-1, keepdim=True), "topk"),
    "cumsum": (lambda net, y: y.cumsum(-1), "cumsum"),
    "gather": (lambda net, y: y.gather(-1, torch.zeros(4, 8, dtype=torch.long)), "gather"),
    "every other element": (lambda net, y: torch.cat([y[..., ::2], y[..., 1::2]], -1), "step is 2"),
    "negative scale of attention": (lambda net, y: F.scaled_dot_product_attention(
        y[None, None], y[None, None], y[None, None], scale=-0.5)[0, 0], "scale = -0.5"),
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


if __name__ == "__main__":
    unittest.main()
