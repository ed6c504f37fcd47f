"""A call of torch.compile with fp8c, forward and backward, beside the same pair called without PyTorch.

usage: PYTHONPATH=frontend/python FP8C_LIBRARY=build/libfp8c.so python bench/torch_call.py
           [--model 4m|124m] [--recipe current] [--turns 20]

A GPT-2 of Hugging Face's classes. The calls run one program, in one process, and take turns:

    call   torch.compile's: dynamo's guards, the prologue, autograd. fp8c lends the memory of
           results and gradients, the same at each call
    pair   fp8c.Program's own: inputs, results and gradients lie in NumPy's memory, always the same
    new    as pair, but results and gradients lie in new memory, which the system has to map and
           clear. PyTorch's allocator would give such memory to a call for which fp8c lent none

The bar: the call takes at most 3% and 5 ms more than the pair.
"""

from __future__ import annotations

import argparse
import statistics
import time
from typing import Any, Callable

import numpy
import torch
import transformers

import fp8c.torch
from fp8c.torch.run.bound import Bound
from fp8c.torch.run.scales import of_params
from torch_first_call import SIZES, TOKENS

DTYPES = {"f32": numpy.float32, "bf16": numpy.uint16, "i32": numpy.int32, "i64": numpy.int64,
          "bool": numpy.bool_}


def network_and_ids(model: str) -> tuple[torch.nn.Module, torch.Tensor]:
    torch.manual_seed(0)
    network = transformers.GPT2LMHeadModel(transformers.GPT2Config(
        resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, **SIZES[model]))
    network.loss_type = "ForCausalLM"  # else transformers logs within the forward
    return network.train(), torch.randint(network.config.vocab_size, TOKENS[model])


def watched(bound: Bound, run: Callable[[], None]) -> list[torch.Tensor]:
    """What `run`'s forward is given."""
    plain, found = bound.forward, []

    def forward(lease: Any, inputs: Any) -> Any:
        found[:] = [t.detach().clone() for t in inputs]
        return plain(lease, inputs)

    bound.forward = forward
    run()
    bound.forward = plain
    return found


def pair_of(bound: Bound, inputs: list[torch.Tensor], new: bool) -> Callable[[], None]:
    """Forward and backward of the program on memory that stays the same; new: but for results and
    gradients. The cotangent is 1, as that of a loss is."""
    ports, program = next(iter(bound._views.values())), bound.program
    saved, arrays = program.saved(), []
    given = {p.name: t.numpy() for p, t in zip(bound.stage.inputs, inputs)}
    reread = [given[name] for name in ports.reread]
    sides = [(ports.forward_in, list(given.values())), (ports.forward_out, []),
             (ports.backward_in, [numpy.ones((), numpy.float32), *reread]), (ports.backward_out, [])]
    for views, values in sides:
        values += [numpy.zeros(v.shape, DTYPES[v.dtype]) for v in views.views[len(values):]]
        arrays.append((views, values))

    def pair() -> None:
        for _, values in (arrays[1], arrays[3]) if new else ():  # what forward and backward give
            values[:] = [numpy.empty(a.shape, a.dtype) for a in values]
        for views, values in arrays:  # the other call has put its own addresses there
            for view, array in zip(views.views, values, strict=True):
                view.c.data = array.ctypes.data
        program.forward(saved, ports.forward_in, ports.forward_out)
        program.backward(saved, ports.backward_in, ports.backward_out)

    return pair


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--model", choices=SIZES, default="4m")
    parser.add_argument("--recipe", default="current")
    parser.add_argument("--turns", type=int, default=20)
    args = parser.parse_args()
    network, ids = network_and_ids(args.model)
    call = torch.compile(network, backend=fp8c.torch.fp8c_backend,
                         options={"recipe": args.recipe, "strict": True})

    def whole() -> None:
        call(input_ids=ids, labels=ids, use_cache=False).loss.backward()

    whole()
    bound = max(of_params(network.parameters()), key=lambda s: len(s.bound.cotangents)).bound
    inputs = watched(bound, whole)
    runs = {"pair": pair_of(bound, inputs, False), "new": pair_of(bound, inputs, True), "call": whole}
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    of_cpus: dict[str, list[float]] = {name: [] for name in runs}  # what other processes change little
    for turn in range(args.turns + 1):  # the first turn is not counted
        for name, run in runs.items():
            network.zero_grad()  # of no call's time; it gives the memory of gradients back
            start, cpu = time.perf_counter(), time.process_time()
            run()
            if turn:
                seconds[name].append(time.perf_counter() - start)
                of_cpus[name].append(time.process_time() - cpu)
    middle = {name: statistics.median(all_) * 1e3 for name, all_ in seconds.items()}
    print(f"{args.model} {args.recipe}, {args.turns} turns; medians (and least): "
          + ", ".join(f"{name} {ms:.2f} ({min(seconds[name]) * 1e3:.2f}) ms"
                      for name, ms in middle.items()))
    for other in ("pair", "new"):
        ratios = [c / p for c, p in zip(seconds["call"], seconds[other])]
        ratio, more = statistics.median(ratios), middle["call"] - middle[other]
        held = "holds" if ratio <= 1.03 and more <= 5 else "does not hold"
        print(f"call / {other}: {ratio:.3f} ({min(ratios):.3f} to {max(ratios):.3f}), {more:+.2f} ms"
              + (f": the bar, 1.03 and 5 ms, {held}" if other == "pair" else ""))
        cpus = [statistics.median(of_cpus[name]) for name in ("call", other)]
        print(f"  in time of the CPUs: {cpus[0] / cpus[1]:.3f}, {(cpus[0] - cpus[1]) * 1e3:+.2f} ms")


if __name__ == "__main__":
    main()
