"""The options of `torch.compile(model, backend="fp8c", options={...})`."""

from __future__ import annotations

import fnmatch
import re
from dataclasses import dataclass, fields
from typing import Any, Mapping, Sequence

import torch

from .graph.plan import Linear

STAGES = ("auto", "whole", "blocks")
RECIPES = ("f32", "bf16", "delayed", "current", "rowwise", "block", "mxfp8")
ATTENTIONS = ("table", "own", "cudnn")
HIGH_PRECISION = ("f32", "bf16")  # a run in one of them is so everywhere


@dataclass(frozen=True)
class Settings:
    """recipe: one of RECIPES, with options as in `block {pow2 = true}`. rules: recipe rules for
    linears by name, as '"*.c_attn" wgrad = bf16'. memory: the share of the bytes that a forward
    saves to keep, in (0, 1); the backward computes the rest again. strict: what can't be compiled
    is an error. threads: of a program on the CPU; 0: as many as PyTorch has. statistics: n: the first
    call and every n-th after it are watched; 0: none, True: all. timeout: the seconds that a rank waits
    for the compiles of the others. stages: "blocks": a stage a block, where a model repeats blocks;
    "whole": as few stages as there can be; "auto": blocks under DDP, else whole. attention: who computes
    it on a GPU: "table" (a table of fp8c's decides), "own" (fp8c), "cudnn".
    """

    recipe: str = "current"
    rules: tuple[str, ...] = ()
    memory: float = 0.0
    strict: bool = False
    threads: int = 0
    statistics: int = 0
    timeout: int = 600
    stages: str = "auto"
    attention: str = "table"

    @classmethod
    def of(cls, options: Mapping[str, Any] | None) -> "Settings":
        """The settings that a caller's options give. ValueError: an option is wrong."""
        given = dict(options or {})
        known = [f.name for f in fields(cls)]
        for name in given:
            if name not in known:
                raise ValueError(f"backend fp8c has no option {name!r}; it has {', '.join(known)}")
        recipe = given.get("recipe", cls.recipe)
        if not isinstance(recipe, str) or not recipe.split() or recipe.split()[0] not in RECIPES:
            raise ValueError(f"recipe {recipe!r} is none of {', '.join(RECIPES)}")
        rules = given.get("rules", ())
        if isinstance(rules, str) or not isinstance(rules, Sequence) \
                or any(not isinstance(r, str) for r in rules):
            raise ValueError("rules are a list of texts, such as '\"*.c_attn\" wgrad = bf16'")
        if rules and recipe.split()[0] in HIGH_PRECISION:
            raise ValueError(f"recipe {recipe} overrides all rules: choose another one, or leave out "
                             "the rules")
        memory = given.get("memory", 0.0) or 0.0
        if not isinstance(memory, (int, float)) or not 0.0 <= memory < 1.0:
            raise ValueError(f"memory {memory!r} is a share of the saved bytes, between 0 and 1")
        for name in ("strict", "threads", "statistics", "timeout"):
            if not isinstance(given.get(name, 0), (bool, int)):
                raise ValueError(f"{name} {given[name]!r} is no number")
        statistics = int(given.get("statistics", 0))
        if statistics < 0:
            raise ValueError(f"statistics {statistics} is no number of calls")
        timeout = int(given.get("timeout", cls.timeout))
        if timeout < 1:
            raise ValueError(f"timeout {timeout} is no number of seconds to wait")
        stages = given.get("stages", cls.stages)
        if stages not in STAGES:
            raise ValueError(f"stages {stages!r} is none of {', '.join(STAGES)}")
        attention = given.get("attention", cls.attention)
        if attention not in ATTENTIONS:
            raise ValueError(f"attention {attention!r} is none of {', '.join(ATTENTIONS)}")
        return cls(recipe, tuple(rules), float(memory), bool(given.get("strict", False)),
                   int(given.get("threads", 0)), statistics, timeout, stages, attention)

    def cuts(self, ddp: bool) -> bool:
        """Whether graphs are cut into a stage a block. ddp: whether they run under DDP."""
        return self.stages == "blocks" or (self.stages == "auto" and ddp)

    @property
    def rounds(self) -> bool:
        """Whether activations are rounded to bf16."""
        return self.recipe_name != "f32"

    @property
    def recipe_name(self) -> str:
        """The recipe without its options."""
        return self.recipe.split()[0]

    def routers_of(self, linears: Sequence[Linear]) -> list[Linear]:
        """The routers that stay in bf16, because no rule matches them."""
        if self.recipe_name in HIGH_PRECISION:
            return []
        return [one for one in linears
                if one.router and not any(matches(rule, one.name) for rule in self.rules)]

    def rules_of(self, linears: Sequence[Linear]) -> list[str]:
        """The rules for some of a model's linears, as a stage has them: those that match one, and one
        for each router."""
        own = [rule for rule in self.rules if any(matches(rule, one.name) for one in linears)]
        routers = dict.fromkeys(one.name for one in self.routers_of(linears))
        return own + [f'"{name}" = bf16' for name in routers]

    def watches(self, call: int) -> bool:
        """Whether this call of a graph, the first is 0, is watched."""
        return bool(self.statistics) and call % self.statistics == 0

    @property
    def cpu_threads(self) -> int:
        return self.threads or torch.get_num_threads()


def matches(rule: str, linear: str) -> bool:
    """Whether a rule is for a linear of this name."""
    quoted = re.match(r'\s*"([^"]*)"', rule)
    pattern = quoted.group(1) if quoted else (rule.split() or [""])[0]
    return fnmatch.fnmatchcase(linear, pattern.replace("[", "[[]"))
