"""Whether this PyTorch is one that fp8c.torch can capture.

Versions in `private.TESTED` are. Any other one captures a small model at first use: if its linears,
norm, attention and loss come out whole, a warning is given once, and else it is refused.
"""

from __future__ import annotations

import functools
import subprocess
import sys
import warnings

import torch

from . import private
from .graph.capture import capture_module
from .graph.partition import partition
from .places import Unsupported


class _Small(torch.nn.Module):
    """One of everything that must stay whole."""

    def __init__(self) -> None:
        super().__init__()
        self.table = torch.nn.Embedding(5, 8)
        self.norm = torch.nn.LayerNorm(8)
        self.inner = torch.nn.Linear(8, 24)
        self.drop = torch.nn.Dropout(0.1)
        self.head = torch.nn.Linear(8, 5, bias=False)

    def forward(self, ids: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        x = self.norm(self.table(ids))
        q, k, v = (t.unflatten(-1, (2, 4)).transpose(1, 2) for t in self.inner(x).chunk(3, -1))
        a = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.drop(torch.nn.functional.gelu(a.transpose(1, 2).flatten(2)))
        return torch.nn.functional.cross_entropy(self.head(x).flatten(0, 1), targets.flatten())


WHOLE = {"embedding": 1, "layernorm": 1, "linear": 2, "attention": 1, "gelu": 1, "dropout": 1,
         "cross_entropy": 1}


def problems() -> list[str]:
    """What a capture of the small model lacks, in words; empty where all is well."""
    gone = private.missing()
    if gone:
        return [f"{name} is missing" for name in gone]
    ids = torch.zeros(2, 3, dtype=torch.long)
    try:
        plan = partition(capture_module(_Small().train(), (ids, ids)))
    except Exception as error:  # whatever PyTorch raises: it is the answer
        return [f"{type(error).__name__}: {error}"]
    found = [f"{op.op} is not translated" for op in plan.eager_ops]
    text = "".join(stage.text for stage in plan.stages)
    for op, count in WHOLE.items():
        if text.count(f" {op}(") != count:
            found.append(f"{op} is captured {text.count(f' {op}(')} times, not {count}")
    return found


def problems_elsewhere() -> list[str]:
    """`problems()` in a process of its own: a compile that is under way allows no second one."""
    code = (f"import sys; sys.path[:] = {sys.path!r}\nfrom fp8c.torch.selftest import problems\n"
            "print('problem:', *problems(), sep='\\nproblem:')")
    made = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    lines = [line.removeprefix("problem:") for line in made.stdout.splitlines()
             if line.startswith("problem:")]
    if made.returncode or not lines:
        return [(made.stderr.strip().splitlines() or ["the self-test ended without a word"])[-1]]
    return lines[1:]


@functools.cache
def _verdict(version: str) -> list[str]:
    """The problems of a version that was not tested, found once. It warns where there are none."""
    found = problems_elsewhere()
    if not found:
        warnings.warn(f"fp8c.torch was not tested with PyTorch {version}, only with "
                      + " and ".join(private.TESTED) + "; a small model was captured well",
                      stacklevel=4)
    return found


def check_version() -> None:
    """Refuse a PyTorch that can't be captured; warn once of one that was not tested."""
    version = torch.__version__
    if ".".join(version.split(".")[:2]) in private.TESTED:
        return
    found = _verdict(version)
    if found:
        raise Unsupported(f"PyTorch {version}", "it can't be captured (" + "; ".join(found)
                          + "): fp8c is tested with " + " and ".join(private.TESTED))
