"""FP8 weights in the formats of other stacks."""
from __future__ import annotations

import ctypes
import os
from typing import Sequence

from . import _header as h
from ._native import lib
from .context import Context, array_of, default_context, encode
from .errors import guarded, interruptible
from .records import Converted, record


def convert_weights(source: str | os.PathLike, format: str, out: str | os.PathLike, *,
                    model: str | os.PathLike | None = None, adapters: str | os.PathLike | None = None,
                    most: int = 0, ignore: Sequence[str] = (), map: Sequence[str] = (),
                    context: Context | None = None) -> list[Converted]:
    """Write FP8 weights as a new folder of another format; -> what became of each weight.

    source: a folder, an index or a safetensors file. format: "hf-fp8", "compressed-tensors", "modelopt" or
    "native", a file. model: the folder of the model before FP8, whose names, config.json and tokenizer the new one
    gets. adapters: LoRA's, which are added: a folder that peft wrote, or "WEIGHT=A,B[,FACTOR]". most: bytes of tensors
    in a file; 0: 5 GB. ignore, map: of the tensors of `model`; without one and for
    "native", of those of `source`.

    InputError: `source` has no FP8, or the format no room for it, or they do not go together. FileError: a file failed.
    CancelledError: the context's `progress` said so. Then nothing is written.
    """
    handle, told = (context or default_context())._open(), []
    arrays, n = [array_of(x) for x in (ignore, map)], [len(x) for x in (ignore, map)]
    i, m = (ctypes.addressof(x) for x in arrays)
    report = h.ReportFn(guarded(lambda _, item: told.append(record(Converted, h.Converted.from_address(item))), None))
    paths = {"from": source, "out": out, "model": model, "adapters": adapters}
    if not 0 <= most < 2**63:
        raise ValueError(f"most is {most}: give a number of bytes")
    options = h.ConvertOptions(format=encode(format), most=most, ignore=i, n_ignore=n[0],
                               map=m, n_map=n[1], report=report,
                               **{name: encode(os.fsdecode(path)) for name, path in paths.items() if path is not None})
    with interruptible():
        status = lib.convert_weights(handle.ptr, ctypes.byref(options))
    handle.check(status)
    return told
