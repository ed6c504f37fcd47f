"""The options of a compile. frontend/python/generate.py writes this file from frontend/options.def: change those."""
from __future__ import annotations

from typing import Any, Callable, Mapping

from . import _header as h
from .options import Options, fill


class CompileOptions(h.Structure):
    _fields_ = [("struct_size", h.size), ("target", h.text), ("recipe", h.text),
                ("threads", h.i32), ("no_fuse", h.i32), ("inference", h.i32), ("pair", h.i32),
                ("profile", h.i32), ("lr", h.f64), ("optimizer_steps", h.i64), ("keep", h.text),
                ("print_after", h.text), ("write", h.WriteFn), ("write_user", h.ptr),
                ("no_device", h.i32), ("device", h.i32), ("listings", h.i32), ("text_only", h.i32),
                ("stream", h.ptr), ("device_alloc", h.DeviceAllocFn), ("device_free", h.FreeFn),
                ("device_user", h.ptr), ("attention", h.text), ("calibration", h.ptr),
                ("stored", h.text), ("stored_weights", h.ptr), ("n_stored_weights", h.size),
                ("memory_bytes", h.i64), ("memory_share", h.f64), ("checkpoint", h.text),
                ("recompute", h.text), ("plan_only", h.i32), ("values", h.text),
                ("observe", h.i32), ("cotangents", h.text), ("gradients_of", h.text),
                ("add_gradients", h.i32), ("train_step", h.i32), ("external", h.text),
                ("stats", h.text), ("stats_recipe", h.text), ("dump", h.text), ("comm", h.ptr),
                ("ranks", h.i32), ("zero", h.i32), ("reduce_dtype", h.text), ("reduce_at", h.text),
                ("reduce_order", h.text), ("witness", h.i32), ("frozen", h.text), ("arena", h.ptr),
                ("requantize", h.i32), ("dependent_launch", h.i32), ("wgrad_branch", h.i32)]


def compile_options(*, target: str | None = None, recipe: str | None = None, threads: int = 0,
        no_fuse: bool = False, inference: bool = False, pair: bool = False, profile: bool = False,
        lr: float = 0.0, optimizer_steps: int = 0, keep: str | None = None,
        print_after: str | None = None, write: Callable[[str], object] | None = None,
        no_device: bool = False, device: int = 0, listings: bool = False, text_only: bool = False,
        stream: int = 0, device_alloc: Callable[[int], int] | None = None,
        device_free: Callable[[int, int], object] | None = None, attention: str | None = None,
        calibration: Any = None, stored: str | None = None,
        stored_weights: Mapping[str, str] | None = None, memory_bytes: int = 0,
        memory_share: float = 0.0, checkpoint: str | None = None, recompute: str | None = None,
        plan_only: bool = False, values: str | None = None, observe: bool = False,
        cotangents: str | None = None, gradients_of: str | None = None,
        add_gradients: bool = False, train_step: bool = False, external: str | None = None,
        stats: str | None = None, stats_recipe: str | None = None, dump: str | None = None,
        comm: h.Comm | None = None, ranks: int = 0, zero: int = 0, reduce_dtype: str | None = None,
        reduce_at: str | None = None, reduce_order: str | None = None, witness: bool = False,
        frozen: str | None = None, arena: Any = None, requantize: bool = False,
        dependent_launch: bool = False, wgrad_branch: bool = False) -> Options:
    """fp8c_compile_options by keyword: fp8c.h says more of each.

    target (cpu): cpu, reference, cuda, an architecture as sm_90a, or cpu:x86-64-v3, cpu:x86-64-v4
    recipe (bf16): f32, bf16, delayed, current, block, ... with options, as block {pow2 = true}
    threads: CPU threads; 0: the CPUs this process may run on
    no_fuse: one kernel per node: slower, the same bits
    inference: only eval: no backward
    pair: forward and backward, for a loop and an optimizer of the caller's; not with inference
    profile: measure the time of every step
    lr: above 0: replaces the optimizer's learning rate
    optimizer_steps: above 0: the length of the schedule in steps, instead of the module's
    keep: name pattern: FP8 operands that micro_step also gives out; for tests
    print_after: a pass: print the module after it through write
    write: what print_after calls with text
    no_device: only compile: no such GPU or CPU need be there, and nothing runs
    device: CUDA: the GPU's ordinal
    listings: keep the texts of kernels, and CUDA's images
    text_only: stop at CUDA C, which needs no NVRTC, or at LLVM IR
    stream: CUDA: the CUstream on which runs are enqueued; none: the program has its own
    device_alloc: CUDA: gives device memory, aligned to 256 bytes; with device_free
    device_free: CUDA: takes it back
    attention (table): CUDA: table, own or cudnn
    calibration: for recipe auto
    stored: a recipe: keep weights in memory as FP8 codes; needs inference or frozen, not with
        stored_weights
    stored_weights: exactly these weights, each with its recipe; needs inference or frozen
    memory_bytes: a budget in bytes for everything, kept by recomputing; not with memory_share
    memory_share: or the share, 0 to 1, of the activation bytes that are kept
    checkpoint: name pattern: of the activations keep only these for the backward
    recompute: name pattern: recompute these values in the backward
    plan_only: stop before code is made: decisions, memory and estimates, and nothing to run
    values: a file's values of dims with a bound: B=1,2,4,8
    observe: a program that calibrates scales of delayed; needs inference
    cotangents: name patterns: the results of forward that have a cotangent; none given: every
        float; needs pair
    gradients_of: name patterns: the inputs whose gradients backward gives; needs pair
    add_gradients: backward adds gradients to variables grad.NAME instead of returning them; needs
        pair
    train_step: also micro_step and update; needs pair
    external: name patterns: variables and ports that get no memory from fp8c
    stats: name patterns: add micro_step.stats with figures of these values
    stats_recipe: also the figures of operands as this recipe would scale them; needs stats
    dump: name patterns: add micro_step.dump, which gives these values out
    comm: how ranks exchange bytes; none: the rank is alone
    ranks: with no_device or plan_only: compile for so many, without comm
    zero: stage of ZeRO, 1 to 3; 0: the module's; -1: none
    reduce_dtype (f32): how gradients travel between ranks: f32 or bf16
    reduce_at (micro_step): when ranks sum gradients: in each micro_step, or once in update
    reduce_order (ranks): who adds gradients: ranks, in their order, or library
    witness: keep the module for fp8c_program_run_witnessed
    frozen: name patterns: parameters that are not trained; not with inference
    arena: an fp8c_arena: memory in which several programs run, one at a time; not with comm
    requantize: steps quantize weights each time: their codes are not kept, which saves memory
    dependent_launch: CUDA, sm_90a and later: launch kernels before the one ahead has ended; each
        waits for it
    wgrad_branch: CUDA: the GEMMs of weights' gradients are a branch of the graph, beside the next
        steps

    Python's own: write gets text (str). device_alloc(bytes) -> address or 0, device_free(address, bytes).
    stored_weights: {parameter: recipe}. stream: the address of a CUstream. comm: a struct whose
    callbacks the caller keeps alive, as fp8c_mpi_open fills it."""
    return fill(CompileOptions, locals())
