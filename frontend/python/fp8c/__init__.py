"""fp8c: an FP8 tensor-op compiler and JIT. Modules are texts, programs run on your tensors.

    import fp8c, numpy
    module = fp8c.Module.parse(text)
    program = module.compile(recipe="delayed")
    program.initialize(seed=1)
    loss = numpy.zeros((), numpy.float32)
    program.call("micro_step", [tokens, targets], [loss])   # arrays of NumPy, DLPack, buffers
    program.run("update")
    program.tensor("wte").numpy()                           # the parameter where it lies

Every failure is an `fp8c.Error` with fp8c's message. The logger is logging.getLogger("fp8c").
"""
from __future__ import annotations

from ._handle import Closed
from ._header import VERSION, Comm, Side, Status, Verdict
from .arena import Arena
from .builder import op, ops
from .calibration import Calibration
from .context import Context, default_context
from .doctor import Doctor, warn_of_missing
from .errors import (CancelledError, Error, FileError, InputError, InternalError, LibraryError,
                     OutOfMemoryError, UnsupportedError)
from .lender import Lender
from .module import Module
from ._options import compile_options
from .options import open_options
from .program import INPUT, OUTPUT, Program, Saved
from .records import Position
from .tensors import Tensor, View, Views
from .training import Training
from .weights import convert_weights

__version__ = ".".join(map(str, VERSION))
__all__ = ["INPUT", "OUTPUT", "Arena", "Calibration", "CancelledError", "Closed", "Comm", "Context",
           "Doctor", "Error", "FileError", "InputError", "InternalError", "Lender", "LibraryError",
           "Module", "OutOfMemoryError", "Position", "Program", "Saved", "Side", "Status", "Tensor",
           "Training", "UnsupportedError", "Verdict", "View", "Views", "compile_options",
           "convert_weights", "default_context", "op", "open_options", "ops"]

warn_of_missing()
