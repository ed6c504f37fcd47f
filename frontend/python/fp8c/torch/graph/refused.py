"""What a capture refuses: tensors that fp8c can't take, and calls with a backward of their own.

Each message has the tensor's name or the op, the reason, the module and the line. For a tensor it
also says what to do instead.
"""

from __future__ import annotations

from typing import Any, Mapping

import torch
import torch.fx

from .. import private
from ..places import Place, Unsupported, place_of
from ..ranks import sharded
from ..weights.grains import is_codes

_SPLIT = "split over ranks: of such parameters those of FSDP2 (fully_shard) are supported; use that, or DDP"
_TENSOR_PARALLEL = ("which tensor parallelism (parallelize_module, distribute_tensor) splits over ranks: leave "
                    "it out, and shard by FSDP2 (fully_shard) alone")
_DTENSOR = "a DTensor"
_ZERO = ("ds_id", "ds_status", "ds_tensor", "ds_numel")  # what DeepSpeed adds to a parameter
_DTYPES = (torch.float32, torch.bfloat16)
_DEVICES = ("cpu", "cuda")

# Calls that hold graphs of their own, with the reason. Any other one has none.
_HIGHER_ORDER: dict[str, str] = {
    "register_hook": "a hook on an activation changes its gradient, which fp8c derives itself",
    "autograd_function_apply": "a torch.autograd.Function has a backward of its own (before PyTorch "
    "2.15 a hook on an activation is one, too), and fp8c derives the backward itself",
    "cond": "its branch depends on data",
    "while_loop": "its end depends on data",
}


def check_tensor(
    path: str, kind: str, node: torch.fx.Node, fake: torch.Tensor, example: Any
) -> None:
    """Unsupported: fp8c can't take this argument of a graph, whose placeholder is `node`."""
    reason = _reason(kind, node, fake, example)
    if reason:
        raise Unsupported(f"{kind} {path}", reason, _first_use(node))


def _reason(kind: str, node: torch.fx.Node, fake: torch.Tensor, example: Any) -> str:
    split = _split(kind, node, example)
    if split:
        return f"it is {split}, {_TENSOR_PARALLEL if split == _DTENSOR else _SPLIT}"
    shard = sharded.shard_of(example) if kind == "param" else None
    if shard is not None and shard.offload:
        return "FSDP2 keeps it in the memory of the host (CPUOffloadPolicy): leave out offload_policy"
    if fake.layout is not torch.strided:
        return f"it is sparse ({fake.layout}); give it as .to_dense()"
    if fake.is_complex():
        return "it is complex; keep it as two real tensors (torch.view_as_real)"
    if fake.is_quantized:
        return "it is quantized; give it as .dequantize()"
    if kind == "param" and fake.dtype not in _DTYPES and not is_codes(node):
        return f"its dtype is {fake.dtype}: float32 and bfloat16 are taken; {_instead(fake.dtype)}"
    if fake.device.type not in _DEVICES:
        return (
            f"it is on the device {fake.device}: fp8c runs on the CPU and on CUDA devices; move the "
            "model there with .to()"
        )
    if kind == "param" and getattr(example, "_base", None) is not None:
        return (
            "it is a view of another tensor; make it a tensor of its own: "
            "torch.nn.Parameter(view.detach().clone())"
        )
    return ""


def _instead(dtype: torch.dtype) -> str:
    """What to do with a parameter of a dtype that is not taken."""
    if dtype.is_floating_point and dtype.itemsize > 1:
        return "call .float() or .bfloat16() on the model"
    return "make it a buffer, or a float32 parameter of its values"


def _split(kind: str, node: torch.fx.Node, example: Any) -> str:
    """What splits a tensor over ranks, in words; empty where it is whole."""
    for name in (one.__name__ for one in type(example).__mro__):
        if name in ("DTensor", "FlatParameter"):
            return f"a {name}"
    shard = sharded.shard_of(example) if kind == "param" else None
    if shard is not None and sharded.is_home(shard.gathered):
        return _DTENSOR
    if getattr(example, "_fsdp_flattened", False):
        return "a parameter of FSDP1"
    if shard is None and private.is_fsdp(node) and _is_part(example):
        return "a parameter of FSDP1"
    if any(hasattr(example, name) for name in _ZERO):
        return "a parameter of DeepSpeed's ZeRO-3"
    return ""


def _is_part(example: Any) -> bool:
    """Whether a tensor of a module that FSDP wraps is a part of another, as FSDP1's are. Buffers, and
    parameters that FSDP ignores, are none."""
    if not isinstance(example, torch.Tensor):
        return True
    if private.is_flat(getattr(example, "_base", None)) or not example.is_leaf:
        return True
    size = example.numel() * example.element_size()
    return isinstance(example, torch.nn.Parameter) and example.untyped_storage().nbytes() != size


def _first_use(node: torch.fx.Node) -> Place:
    """The place of the first call that reads a placeholder."""
    return place_of(next(iter(node.users), node))


def why_higher_order(node: torch.fx.Node) -> str:
    """Why a call that holds graphs of its own is refused; empty: it holds none. A trace would look
    into the forward alone, and drop what it does to gradients."""
    if node.op != "call_function" or not private.is_higher_order(node):
        return ""
    return _HIGHER_ORDER.get(private.target_name(node), "it holds a graph of its own")


def check_call(node: torch.fx.Node) -> None:
    """Unsupported: a call on activations that holds graphs of its own."""
    reason = why_higher_order(node)
    if reason:
        raise Unsupported(private.target_name(node), reason, place_of(node))


def check_calls(classes: Mapping[torch.fx.Node, int], stage: int) -> None:
    """`check_call` for the nodes that a stage would have."""
    for node, kind in classes.items():
        if kind == stage:
            check_call(node)
