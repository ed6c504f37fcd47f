"""Hugging Face's Trainer and Accelerate, whose `torch_compile_backend` takes no foreign names."""

from __future__ import annotations

import os
from typing import Any, Mapping

import torch

from . import private
from .backend import fp8c_backend
from .linears import is_linear
from .places import Unsupported
from .settings import Settings, matches


def compile_for_trainer(model: torch.nn.Module, **options: Any) -> torch.nn.Module:
    """Compile a model in place, before a Trainer or Accelerator is made with it; -> the model.

    The model keeps its class, which Trainer looks at, and the names of its parameters. Leave
    `torch_compile` of TrainingArguments alone. The options are those of the backend. Under Accelerate's
    FSDP2 plugin the modules that it shards are compiled each by itself, at the first call. Rules match
    the names in the model all the same. Unsupported, at the first call that trains: Accelerate was asked
    for FSDP, but has not sharded the model by FSDP2.
    """
    Settings.of(options)
    rest = dict(options)
    model.compile(backend=fp8c_backend, options=rest)
    private.before_first_call(model, lambda: _prepare(model, options, rest))
    return model


def _prepare(model: torch.nn.Module, options: Mapping[str, Any], rest: dict[str, Any]) -> bool:
    """Compile what FSDP2 shards; -> whether that is all that ever has to be done. Dynamo ends a graph at
    the hooks of a sharded module, and leaves one of PyTorch's own classes, such as a head, to PyTorch. So
    its `forward` is compiled, which the hooks are not part of. rest: the options for what is left of the
    model; its rules become those that are not for sharded modules alone."""
    parts = {name: part for name, part in model.named_modules()
             if part is not model and private.is_fsdp2_module(part)
             and any(map(is_linear, part.modules())) and not private.is_compiled_module(part)}
    for name, part in parts.items():
        if "forward" not in vars(part):
            options_of = _options_of(part, name, options)
            part.forward = torch.compile(part.forward, backend=fp8c_backend, options=options_of)
    if parts and "rules" in options:
        inside = {module for part in parts.values() for module in part.modules()}
        rest["rules"] = [rule for rule in options["rules"] if not _only_of(inside, model, rule)]
    if not (model.training and torch.is_grad_enabled()):
        return False
    _check_accelerate(model, options.get("recipe", Settings.recipe))
    return True


def _options_of(part: torch.nn.Module, name: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """The options for a module of the model. Its linears are named from there on, so it gets a rule for
    each that a rule of the model matches."""
    own = dict(options)
    if "rules" in own:
        own["rules"] = [f'"{path or "linear"}" {_without_pattern(rule)}' for rule in own["rules"]
                        for path, module in part.named_modules()
                        if is_linear(module) and _matches(rule, f"{name}.{path}".rstrip("."))]
    return own


def _matches(rule: str, name: str) -> bool:
    """Whether a rule is for a linear, by its name in the model as it was before Accelerate put modules for
    activation checkpointing into it, or by the present one."""
    return matches(rule, private.without_wrappers(name)) or matches(rule, name)


def _only_of(inside: set[torch.nn.Module], model: torch.nn.Module, rule: str) -> bool:
    """Whether a rule is for linears of these modules alone."""
    found = [module in inside for name, module in model.named_modules()
             if is_linear(module) and _matches(rule, name)]
    return bool(found) and all(found)


def _without_pattern(rule: str) -> str:
    """A rule without the names that it is for."""
    rule = rule.strip()
    return rule[rule.index('"', 1) + 1:].strip() if rule.startswith('"') else rule.split(None, 1)[-1]


def _check_accelerate(model: torch.nn.Module, recipe: str) -> None:
    """Unsupported: this rank trains without the sharding that Accelerate was asked for."""
    asked = os.environ.get("ACCELERATE_USE_FSDP", "").lower() in ("1", "true", "yes", "on")
    if asked and private.world_size() > 1 and not any(map(private.is_fsdp2_module, model.modules())):
        raise Unsupported("Accelerate's FSDP plugin", f"FSDP was asked for (ACCELERATE_USE_FSDP) with "
                          f"recipe {recipe}, but FSDP2 shards no parameter of the model: set fsdp_version: "
                          "2, and give the model to accelerator.prepare. On CPUs Accelerate drops FSDP")
