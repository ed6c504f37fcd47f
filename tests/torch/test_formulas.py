"""Activations, losses and other formulas beside eager PyTorch: at random values, and at their kinks,
bounds and zeros, where PyTorch's backward kernels say what the gradient is."""

from __future__ import annotations

import inspect
import unittest
from typing import Any, Callable

import torch
import torch.nn.functional as F

import run_plan
from fp8c.torch import capture_module, partition
from test_rules import Product, floats, gives

Function = Callable[..., torch.Tensor]
EDGES = torch.tensor([-1e30, -1e4, -20.5, -6.0, -3.0, -1.0, -0.5, -1e-4, -1e-9, -1e-30, 0.0, 1e-30, 1e-9, 1e-4,
                      0.1, 0.5, 1.0, 2.5, 3.0, 6.0, 20.0, 20.5])
POSITIVE = torch.tensor([1e-30, 1e-9, 1e-4, 0.01, 0.1, 0.5, 1.0, 1.5, 3.0, 20.5, 1e4, 1e30])
UNIT = torch.tensor([0.0, 1e-9, 1e-4, 0.3, 0.5, 0.999, 1.0])

ANYWHERE: dict[str, Function] = {
    "softplus": F.softplus,
    "softplus, beta": lambda x: F.softplus(x, 2.0, 1.0),
    "logsigmoid": F.logsigmoid,
    "mish": F.mish,
    "elu": F.elu,
    "elu, alpha": lambda x: F.elu(x, 0.5),
    "celu": lambda x: F.celu(x, 0.7),
    "selu": F.selu,
    "leaky_relu": lambda x: F.leaky_relu(x, 0.1),
    "relu6": F.relu6,
    "hardtanh": lambda x: F.hardtanh(x, -0.5, 1.0),
    "hardsigmoid": F.hardsigmoid,
    "hardswish": F.hardswish,
    "threshold": lambda x: F.threshold(x, 0.5, -2.0),
    "softshrink": F.softshrink,
    "hardshrink": F.hardshrink,
    "tanhshrink": F.tanhshrink,
    "clamp": lambda x: x.clamp(-0.5, 1.0),
    "clamp_min": lambda x: x.clamp_min(0.5),
    "clamp_max": lambda x: x.clamp_max(-0.5),
    "ceil": lambda x: torch.ceil(x) + x,
    "trunc": lambda x: torch.trunc(x) + x,
    "round": lambda x: torch.round(x) + x,
    "frac": lambda x: torch.frac(x * (x.abs() < 1e6)),
    "sign": lambda x: torch.sign(x) + x,
    "pow 2": lambda x: x.clamp(-50, 50) ** 2,
    "pow 5": lambda x: x.clamp(-50, 50) ** 5,
    "pow 0": lambda x: x**0 + x,
    "lerp": lambda x: torch.lerp(x, x * 0.5, 0.7),
    "isnan": lambda x: torch.where(x.isnan() | ~x.isfinite(), 0.0, x),
    "bool, number": lambda x: torch.where((x > 0) < 0.5, x, x * 2),
    "bools": lambda x: torch.where((x > 0) == (x > 1), x, x * 2),
}
ABOVE_0: dict[str, Function] = {
    "log1p": torch.log1p,
    "sqrt": torch.sqrt,
    "pow 1.5": lambda x: x.clamp_max(1e4) ** 1.5,
    "pow 0.3": lambda x: x**0.3,
    "pow -0.7": lambda x: x.clamp_min(1e-9) ** -0.7,
    "pow -3": lambda x: x.clamp_min(1e-4) ** -3,
    "expm1": lambda x: torch.expm1(x.clamp_max(80.0)),
    "2 ** x": lambda x: 2 ** x.clamp_max(100.0),
    "3 ** x": lambda x: 3 ** x.clamp_max(10.0),
    "log2": torch.log2,
    "log10": torch.log10,
}


class Formulas(unittest.TestCase):
    def setUp(self) -> None:
        torch.manual_seed(4)

    def test_edges(self) -> None:
        for name, function in ANYWHERE.items():
            with self.subTest(name):
                gives(self, lambda x: function(x), EDGES.clone().requires_grad_())

    def test_above_0(self) -> None:
        for name, function in ABOVE_0.items():
            with self.subTest(name):
                gives(self, lambda x: function(x), POSITIVE.clone().requires_grad_())

    def test_small_values_keep_their_digits(self) -> None:
        """Beside float64, relative: where 1 + x and e^x - 1 would lose x."""
        for name, function in {"log1p": torch.log1p, "expm1": torch.expm1,
                               "softplus": lambda x: F.softplus(torch.log(x)), "elu": lambda x: F.elu(-x)}.items():
            with self.subTest(name):
                x = torch.logspace(-8, -1, 29).requires_grad_()
                got = one_stage(function, x)
                exact = function(x.detach().double())
                self.assertLess(float(((got.detach().double() - exact) / exact).abs().max()), 4e-6)

    def test_far_angles(self) -> None:
        """Sines and cosines of any f32: PyTorch's own reduction is exact."""
        x = torch.cat((torch.logspace(-3, 38, 200), torch.tensor([2.0**20, 2.0**21, 3.4e38, 1e10, 0.0])))
        x = torch.cat((x, -x))
        for function in (torch.sin, torch.cos):
            gives(self, lambda x: function(x), x.clone().requires_grad_())

    def test_not_finite(self) -> None:
        """An infinity, and NaN, which no formula may hide."""
        x = torch.tensor([torch.inf, -torch.inf, torch.nan, 1.0], requires_grad=True)
        for name, function in {
            "exp2": torch.exp2,
            "2 ** x": lambda x: 2**x,
            "round": lambda x: torch.round(x) * x,
            "threshold": lambda x: F.threshold(x, 0.5, -2.0),
            "kl_div": lambda x: F.kl_div(x, x, reduction="none"),
        }.items():
            with self.subTest(name):
                torch.testing.assert_close(one_stage(function, x), function(x), equal_nan=True)

    def test_powers_at_0(self) -> None:
        x = torch.tensor([0.0, 0.25, 4.0])
        for p in (1.5, 2.5, 1.3, 3):
            gives(self, lambda x: x**p, x.clone().requires_grad_())

    def test_two(self) -> None:
        a, b = floats(5, 4), floats(5, 4)
        for name, function in {
            "addcmul": lambda a, b: torch.addcmul(a, a, b, value=0.5),
            "addcdiv": lambda a, b: torch.addcdiv(a, a, b.abs() + 1.0),
            "logaddexp": torch.logaddexp,
            "logaddexp, equal": lambda a, b: torch.logaddexp(a, a * 1.0) + b,
            "lerp": lambda a, b: torch.lerp(a, b, b.sigmoid()),
            "xlogy": lambda a, b: torch.xlogy(torch.relu(a), b.abs() + 0.1),
            "clamp_min, tensor": lambda a, b: torch.clamp(a, min=b),
            "nan_to_num": lambda a, b: torch.nan_to_num(torch.where(a > 1, torch.nan, a), 0.5) * b,
            "nansum": lambda a, b: torch.where(a > 1, torch.nan, a).nansum(0) * b,
            "clamp, tensors": lambda a, b: torch.clamp(a, -b.abs(), b.abs()),
            "prelu": lambda a, b: F.prelu(a, b[0]),
        }.items():
            with self.subTest(name):
                gives(self, lambda a, b: function(a, b), a, b)

    def test_deviation_of_a_constant(self) -> None:
        """Its gradient is 0, not NaN."""
        for function in (lambda x: x.std(-1), lambda x: torch.std_mean(x, -1)[0]):
            gives(self, function, torch.full((2, 3), 0.7).requires_grad_())

    def test_reductions(self) -> None:
        for name, function in {
            "logsumexp": lambda x: torch.logsumexp(x, (0, 2)),
            "logsumexp, infinite": lambda x: torch.logsumexp(torch.where(x > -9, -torch.inf, x), 1),
            "amin": lambda x: x.amin((0, 1)),
            "max": lambda x: x.max(),
            "min": lambda x: x.min() * 2,
            "var_mean": lambda x: sum(torch.var_mean(x, 1, correction=0)),
            "norm 1": lambda x: torch.linalg.vector_norm(x, 1, -1),
            "norm inf": lambda x: torch.linalg.vector_norm(x, float("inf"), 1),
            "adaptive_avg_pool": lambda x: F.adaptive_avg_pool1d(x, 2),
            "avg_pool": lambda x: F.avg_pool1d(x, 4),
        }.items():
            with self.subTest(name):
                gives(self, function, floats(2, 3, 8))

    def test_losses(self) -> None:
        x, t = floats(6, 4), torch.rand(6, 4)
        for name, function in {
            "smooth_l1": F.smooth_l1_loss,
            "smooth_l1, beta": lambda x, t: F.smooth_l1_loss(x, t, beta=0.3, reduction="sum"),
            "huber": lambda x, t: F.huber_loss(x, t, delta=0.5),
            "bce": lambda x, t: F.binary_cross_entropy(x.sigmoid(), t),
            "bce, weight": lambda x, t: F.binary_cross_entropy(x.sigmoid(), t, weight=t + 1, reduction="none"),
            "bce_with_logits": F.binary_cross_entropy_with_logits,
            "bce_with_logits, pos_weight": lambda x, t: F.binary_cross_entropy_with_logits(
                x, t, pos_weight=torch.tensor([1.0, 2.0, 0.5, 3.0]), reduction="sum"),
            "kl_div": lambda x, t: F.kl_div(x.log_softmax(-1), t * (t > 0.3), reduction="batchmean"),
            "kl_div, logs": lambda x, t: F.kl_div(x, t, reduction="none", log_target=True),
            "soft targets": lambda x, t: F.cross_entropy(x, t, label_smoothing=0.1),
            "soft targets, weight": lambda x, t: F.cross_entropy(x, t, weight=torch.tensor([1.0, 0.5, 2, 3])),
            "soft_margin": lambda x, t: F.soft_margin_loss(x, t.round() * 2 - 1),
        }.items():
            with self.subTest(name):
                gives(self, lambda x, t: function(x, t), x, t)

    def test_bce_at_bounds(self) -> None:
        """A logarithm of 0 counts as -100."""
        gives(self, lambda x, t: F.binary_cross_entropy(x, t, reduction="none"), UNIT.clone().requires_grad_(),
              torch.tensor([0.0, 1.0, 0.5, 0.2, 1.0, 0.0, 1.0]))

    def test_cross_entropy_with_weights(self) -> None:
        y, w = torch.tensor([0, 3, -100, 6, 2]), torch.rand(7) + 0.1
        for reduction in ("mean", "sum", "none"):
            with self.subTest(reduction):
                gives(self, lambda x, y, w: F.cross_entropy(x, y, w, reduction=reduction), floats(5, 7), y, w)
                gives(self, lambda x, y, w: F.nll_loss(x, y, w, reduction=reduction), floats(5, 7), y, w)
                gives(self, lambda x, y: F.nll_loss(x.log_softmax(1), y, reduction=reduction),
                      floats(1, 7, 5), y[None])

    def test_norms(self) -> None:
        for name, module in (
            ("group_norm", Product(lambda x, w, b: F.group_norm(x, 2, w, b), floats(6), floats(6))),
            ("group_norm, bare", Product(lambda x, w: F.group_norm(x * w, 3), floats(1, 6, 1))),
            ("instance_norm", Product(lambda x, w, b: F.instance_norm(x, weight=w, bias=b), floats(6), floats(6))),
            ("batch_norm without statistics",
             Product(lambda x, w, b: F.batch_norm(x, None, None, w, b, training=True), floats(6), floats(6))),
        ):
            with self.subTest(name):
                gives(self, module, floats(2, 6, 5), ops=["layernorm"])

    def test_one_element(self) -> None:
        """A norm over one element gives the bias, and no gradient."""
        gives(self, Product(lambda x, w, b: F.layer_norm(x, (1,), w, b), floats(1), floats(1)), floats(3, 1))

    def test_stopped(self) -> None:
        """detach and no_grad stay in the stage and give no gradient."""
        def under_no_grad(x: torch.Tensor) -> torch.Tensor:
            with torch.no_grad():
                y = torch.exp(x) * 2
            return (x * y).sum() + y.mean()

        gives(self, lambda x: (x * x.detach()).sum(), floats(4, 3), ops=["stop_gradient"])
        gives(self, under_no_grad, floats(4, 3), ops=["stop_gradient"])
        gives(self, Product(lambda x, w: x @ w + (x @ w.detach()).relu(), floats(3, 3)), floats(4, 3))


class Around(unittest.TestCase):
    """What a plan does around its stages."""

    def plan(self, function: Function, *args: torch.Tensor) -> tuple[Any, list[torch.Tensor]]:
        torch._dynamo.reset()
        plan = partition(capture_module(function, args))
        names = inspect.signature(function).parameters
        return plan, [args[list(names).index(i.path.split("'")[-2])] for i in plan.inputs]

    def test_large_integers(self) -> None:
        """An i64 beyond 2^31 is PyTorch's to cast."""
        n = torch.tensor([3_000_000_000, -5_000_000_000, 7])
        gives(self, lambda x, n: x * n + torch.where(x > n, x, -x), floats(3), n)

    def test_filled_has_no_gradient(self) -> None:
        plan, given = self.plan(lambda x: (torch.zeros_like(x), x * torch.ones_like(x)), floats(3))
        self.assertEqual([r.requires_grad for r in run_plan.run(plan, given)], [False, True])

    def test_a_constant_is_a_copy(self) -> None:
        """The caller may overwrite what a call gives: the next call gives it anew."""
        plan, given = self.plan(lambda x: (x * 2, torch.zeros(3)), floats(3))
        run_plan.run(plan, given)[1].add_(1.0)
        self.assertEqual(run_plan.run(plan, given)[1].tolist(), [0.0, 0.0, 0.0])

    def test_contiguous_before_an_op_of_pytorch(self) -> None:
        """`view` needs a contiguous tensor."""
        plan, given = self.plan(
            lambda x: torch.cumsum(x.cumsum(0).t().contiguous().view(-1), 0).exp() * 1e-9, floats(3, 4))
        torch.testing.assert_close(run_plan.run(plan, given)[0],
                                   torch.cumsum(given[0].cumsum(0).t().reshape(-1), 0).exp() * 1e-9)


def one_stage(function: Function, x: torch.Tensor) -> torch.Tensor:
    """The function's value as a stage on the CPU."""
    torch._dynamo.reset()
    plan = partition(capture_module(lambda x: function(x), (x,)))
    assert not plan.eager_ops, plan.eager_ops
    return run_plan.run(plan, [x])[0]


class Linears(unittest.TestCase):
    """A product with a parameter is a linear, however it is written."""

    def setUp(self) -> None:
        torch.manual_seed(5)

    def test_written_otherwise(self) -> None:
        w, v = floats(5, 3), floats(3, 5)
        for name, function, weight in (
            ("x @ w.T", lambda x, w: x @ w.T, w),
            ("x @ w.mT", lambda x, w: x @ w.mT, w),
            ("w @ x", lambda x, w: w @ x.mT, w),
            ("w @ x, one", lambda x, w: w @ x[0, 0], w),
            ("mv", lambda x, w: torch.mv(x[0], w[0]), w),
            ("einsum", lambda x, w: torch.einsum("bld,dk->blk", x, w), v),
            ("einsum, turned", lambda x, w: torch.einsum("bld,kd->bkl", x, w), w),
            ("einsum, first", lambda x, w: torch.einsum("kd,bld->blk", w, x), w),
            ("einsum, heads", lambda x, w: torch.einsum("bld,dhk->blhk", x, w.view(3, 5, 1)), v),
            ("einsum, ellipsis", lambda x, w: torch.einsum("... d, dk -> ... k", x, w), v),
            ("einsum, implicit", lambda x, w: torch.einsum("...d,kd", x, w), w),
            ("tensordot", lambda x, w: torch.tensordot(x, w, dims=([2], [1])), w),
            ("addmm, alpha", lambda x, w: torch.addmm(x[1, :, :1], x[0], w, alpha=0.5, beta=2.0), v),
        ):
            with self.subTest(name):
                gives(self, Product(function, weight), floats(2, 4, 3), ops=[" linear"])

    def test_of_activations(self) -> None:
        for name, function, ops in (
            ("einsum, attention", lambda q, k: torch.einsum("bqhd,bkhd->bhqk", q, k), ["batch_matmul"]),
            ("einsum, outer", lambda q, k: torch.einsum("bqhd,bqhd->bqh", q, k), ["batch_matmul"]),
            ("einsum, ellipsis", lambda q, k: torch.einsum("...qd,...kd->...qk", q, k), ["batch_matmul"]),
            ("outer", lambda q, k: torch.outer(q[0, 0, 0], k[0, 0, 0]), ["mul"]),
            ("dot", lambda q, k: torch.dot(q[0, 0, 0], k[0, 0, 0]), ["matmul"]),
        ):
            with self.subTest(name):
                gives(self, lambda q, k: function(q, k), floats(2, 3, 2, 4), floats(2, 3, 2, 4), ops=ops)

    def test_patches(self) -> None:
        """Convolutions whose kernel is their stride, of one axis or two, in groups, cut at the end."""
        for name, function, params, x, ops in (
            ("conv1d", lambda x, w, b: F.conv1d(x, w, b, stride=2), (floats(5, 3, 2), floats(5)), (2, 3, 7), "linear"),
            ("conv1d, 1", lambda x, w: F.conv1d(x, w), (floats(5, 3, 1),), (2, 3, 7), "linear"),
            ("conv2d, 1 x 1", lambda x, w, b: F.conv2d(x, w, b), (floats(5, 3, 1, 1), floats(5)), (2, 3, 4, 5), "linear"),
            ("conv2d, unbatched", lambda x, w: F.conv2d(x, w, stride=2), (floats(5, 3, 2, 2),), (3, 4, 5), "linear"),
            ("groups", lambda x, w, b: F.conv2d(x, w, b, stride=2, groups=2), (floats(4, 3, 2, 2), floats(4)),
             (2, 6, 5, 4), "batch_matmul"),
            ("depthwise", lambda x, w: F.conv1d(x, w, stride=3, groups=3), (floats(6, 1, 3),), (2, 3, 9), "batch_matmul"),
            ("short filters", lambda x, w, b: F.conv1d(x, w, b, padding=3, groups=5), (floats(5, 1, 4), floats(5)),
             (2, 5, 7), "mul"),
            ("short filters, dilated", lambda x, w: F.conv1d(x, w, dilation=2, groups=5), (floats(5, 1, 3),),
             (2, 5, 7), "mul"),
        ):
            with self.subTest(name):
                gives(self, Product(function, *params), floats(*x), ops=[" " + ops])


class Shapes(unittest.TestCase):
    def test_moved(self) -> None:
        torch.manual_seed(6)
        for name, function in {
            "every second": lambda x: x[..., ::2] * x[..., 1::2],
            "every third": lambda x: x[:, 1::3],
            "from the end": lambda x: x[:, -4::2],
            "T": lambda x: x[0, :, :, 0].T,
            "numpy T": lambda x: x.permute(3, 2, 1, 0),
            "movedim": lambda x: x.movedim(1, -1),
            "swapaxes": lambda x: x.swapaxes(0, 2),
            "roll": lambda x: torch.roll(x, (1, -2), (1, 2)),
            "roll, flat": lambda x: torch.roll(x, 3),
            "flip": lambda x: x.flip(1, -1),
            "repeat": lambda x: x.repeat(2, 1, 1, 2, 1),
            "tile": lambda x: torch.tile(x, (2, 1)),
            "repeat_interleave": lambda x: x.repeat_interleave(3, 1),
            "index, later axis": lambda x: x[:, :, torch.tensor([0, -1, 2])],
            "index, two axes": lambda x: x[:, torch.tensor([[1], [0]]), torch.tensor([2, 0])],
            "gather": lambda x: x.gather(2, torch.tensor([[[[0, 2, 1]], [[4, 0, 0]]]])),
            "gather, first": lambda x: x.gather(0, torch.ones(1, 3, 5, 4, dtype=torch.long)),
            "tril": lambda x: torch.tril(x) + torch.triu(x, 1) * 2,
            "rotated pairs": lambda x: torch.stack((-x[..., 1::2], x[..., ::2]), -1).flatten(-2),
            "pixel_shuffle": lambda x: F.pixel_shuffle(x.reshape(1, 8, 3, 5), 2),
            "pixel_unshuffle": lambda x: F.pixel_unshuffle(x.reshape(5, 3, 2, 4), 2),
            "hstack": lambda x: torch.hstack((x, x[:, :1])),
            "tensor_split": lambda x: torch.tensor_split(x, 2, 1)[1],
            "diff": lambda x: torch.diff(x, dim=1),
            "atleast": lambda x: torch.atleast_3d(x[0, 0, 0]) * 2,
            "windows": lambda x: x.view(2, 1, 3, 5, 2, 2).permute(0, 1, 4, 2, 5, 3).reshape(4, 3, 10),
        }.items():
            with self.subTest(name):
                torch._dynamo.reset()
                gives(self, lambda x: function(x) * 1.5, floats(2, 3, 5, 4))


if __name__ == "__main__":
    unittest.main()
