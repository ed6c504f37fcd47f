"""Cuts: a graph of repeated blocks as a stage a block, so that gradients come while the backward runs.

A stage gives all its gradients at its end. So under DDP, whose hooks send a gradient as soon as they hear
it, a model of one stage would send everything after the last product. Cut into a stage a block, each
block's gradients travel while those before it are computed.

A cut changes no bit, so it is made only where that holds. What crosses has a gradient and is read by one
stage, for autograd would add the gradients of several in another order. It crosses in f32. Under
recipes that round activations FP8 quantizes an operand, be it a value or a gradient, from what it was
before it was rounded to bf16. So the value is rounded before it crosses and its gradient after, and no
product may read the value itself. A residual stream that norms and sums read is so. One behind a norm,
as BERT's, is not, and such blocks stay one stage under these recipes.

Blocks between which something else goes stay one stage: a bias of positions that all layers read, a
tensor that no gradient reaches. Parameters may be read by several stages if the option `stages` asks for
that: then autograd adds two gradients, where one stage adds one into the other.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Iterable, Mapping, Sequence

import torch
import torch.fx

from .. import private
from ..places import place_of
from .call import Facts

_MEMBER = re.compile(r"(.*?)\d+$")  # a path that ends in a number
PLAIN, ROUNDED = "plain", "rounded"
_MOVES = frozenset(
    "view reshape unsqueeze squeeze expand transpose permute slice select t T contiguous clone split "
    "split_with_sizes chunk getitem cat stack flatten unflatten narrow _unsafe_view _to_copy to "
    "detach".split()
)
_PRODUCTS = frozenset(
    "linear addmm mm matmul bmm baddbmm einsum conv1d conv2d convolution "
    "scaled_dot_product_attention".split()
)
_LOSSES = frozenset("cross_entropy_loss nll_loss nll_loss_nd".split())


@dataclass
class Cuts:
    """Where a graph is cut.

    segments: of each node of a step: stages of one come before those of the next. ways: how a value
    crosses: ROUNDED, or PLAIN if the recipe rounds nothing. kept: why neighbouring blocks
    are in one segment.
    """

    segments: dict[torch.fx.Node, int]
    ways: dict[torch.fx.Node, str] = field(default_factory=dict)
    kept: list[str] = field(default_factory=list)


def blocks_of(nodes: Iterable[torch.fx.Node]) -> set[str]:
    """The paths of repeated blocks: modules of one class and one parent that differ by a number, as h.0
    and h.1, and that have modules in them."""
    classes: dict[str, type] = {}
    parents: set[str] = set()
    for node in nodes:
        for path, kind in private.module_stack(node):
            classes[path] = kind
            parents.add(path.rpartition(".")[0])
    rows: dict[tuple[str, type], set[str]] = {}
    for path, kind in classes.items():
        member = _MEMBER.match(path)
        if member is not None and any(one == path or one.startswith(path + ".") for one in parents):
            rows.setdefault((member[1], kind), set()).add(path)
    return {path for paths in rows.values() if len(paths) > 1 for path in paths}


def cut(nodes: Sequence[torch.fx.Node], placed: set[torch.fx.Node], facts: Facts,
        returned: set[torch.fx.Node], rounds: bool, tied: bool) -> Cuts:
    """The cuts between the blocks of a graph.

    nodes: the graph's, in order. placed: those of steps. returned: those that a caller gets, or PyTorch
    reads. rounds: whether the recipe rounds activations. tied: whether several stages may read a
    parameter.
    """
    found = _by_block([n for n in nodes if n in placed])
    made = Cuts(found)
    joined = [False] * (max(found.values(), default=0) + 1)  # whether one goes with that before it

    def join(first: int, last: int, why: str) -> None:
        if not all(joined[first + 1:last + 1]):
            made.kept.append(why)
        joined[first + 1:last + 1] = [True] * (last - first)

    for node in [n for n in nodes if n in found or (n in facts.differentiable and n not in facts.params)]:
        readers = [user for user in node.users if user in found and found[user] != found.get(node)]
        where = [found[user] for user in readers]
        if not readers:
            continue
        if node in found:
            way = _way(node, facts, node in returned, rounds)
            if way is None:
                join(found[node], max(where), f"{_named(node)} can't cross without a change of its bits")
            else:
                made.ways[node] = way
        if max(where) > min(where):
            join(min(where), max(where), f"{_named(node)} is read by several blocks")
    for param, readers in _readers_of_params(found, facts).items():
        where = [found[node] for node in readers]
        if max(where) > min(where) and not tied:
            join(min(where), max(where), f"parameter {facts.params[param]} is read by several blocks")
    numbers, number = [], 0
    for i, one in enumerate(joined):
        number += i > 0 and not one
        numbers.append(number)
    made.segments = {node: numbers[segment] for node, segment in found.items()}
    return made


def _named(node: torch.fx.Node) -> str:
    return f"{private.target_name(node) if node.op == 'call_function' else node.name}, at {place_of(node)}"


def _by_block(nodes: Sequence[torch.fx.Node]) -> dict[torch.fx.Node, int]:
    """A segment for each block and one for the head, which begins behind the last block with a module
    that has no blocks. What comes before the first block is the first one's, what comes behind a block that
    block's. A node has no lower segment than its operands."""
    paths = blocks_of(nodes)
    stacks = [[path for path, _ in private.module_stack(node)] for node in nodes]
    inside = [next((path for path in stack if path in paths), None) for stack in stacks]
    last = max((i for i, path in enumerate(inside) if path is not None), default=len(nodes))
    found: dict[torch.fx.Node, int] = {}
    numbers: dict[str, int] = {}
    now = 0
    for i, (node, path) in enumerate(zip(nodes, inside)):
        if path is not None:
            now = numbers.setdefault(path, len(numbers))
        elif i > last and stacks[i] and not _is_around(stacks[i][-1], paths):
            now = len(numbers)
        found[node] = max([now, *(found[a] for a in node.all_input_nodes if a in found)])
    return found


def _is_around(path: str, blocks: Iterable[str]) -> bool:
    return not path or any(block.startswith(path + ".") for block in blocks)


def _way(node: torch.fx.Node, facts: Facts, returned: bool, rounds: bool) -> str | None:
    """How a value crosses to its readers without a change of its bits. None: it can't."""
    fake = private.fake_value(node)
    if node not in facts.differentiable or not isinstance(fake, torch.Tensor) or not fake.is_floating_point():
        return None
    if not rounds:
        return None if returned and fake.dtype != torch.float32 else PLAIN
    shape = fake.shape  # scalars and statistics of rows are not rounded, nor is what is kept wide
    if not shape or not isinstance(shape[-1], int) or shape[-1] == 1 or returned or _is_wide(node):
        return None
    return None if any(_read_by_product(node, user) for user in node.users) else ROUNDED


def _name(node: torch.fx.Node) -> str:
    """The op's name alone: "add" of aten.add.Tensor."""
    name = private.target_name(node)
    if name.startswith("aten."):
        return name.removeprefix("aten.").partition(".")[0]
    return name.rpartition(".")[2]


def _is_wide(node: torch.fx.Node) -> bool:
    """Whether a reader, also through views, takes a value as f32: as attention's mask or as logits."""
    for user in node.users:
        if _name(user) == "scaled_dot_product_attention" and node not in user.args[:3]:
            return True
        if _name(user) in _LOSSES or (_name(user) in _MOVES and _is_wide(user)):
            return True
    return False


def _read_by_product(node: torch.fx.Node, user: torch.fx.Node) -> bool:
    if _name(user) in _MOVES:
        return any(_read_by_product(user, one) for one in user.users)
    return _name(user) in _PRODUCTS


def _readers_of_params(found: Mapping[torch.fx.Node, int], facts: Facts
                       ) -> dict[torch.fx.Node, list[torch.fx.Node]]:
    """For each parameter with a gradient, what reads it, also by way of what depends on it alone."""
    readers: dict[torch.fx.Node, list[torch.fx.Node]] = {}
    params: dict[torch.fx.Node, set[torch.fx.Node]] = {}

    def params_of(node: torch.fx.Node) -> set[torch.fx.Node]:
        if node not in params:
            params[node] = {node} if node in facts.params else set()
            for source in node.all_input_nodes if node in facts.weights else ():
                params[node] |= params_of(source)
        return params[node]

    for node in found:
        for param in {p for source in node.all_input_nodes if source in facts.weights
                      for p in params_of(source) if p in facts.differentiable}:
            readers.setdefault(param, []).append(node)
    return readers
