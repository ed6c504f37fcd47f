"""Compares the codec (ir/num/fp8.c, not saturating) with ml_dtypes, over the inputs of
tests/shared/num/codec_inputs.h: 2^24 structured f32, or all 2^32 with FP8C_CODECS=all; and every code
decoded. ml_dtypes does not saturate. Where its rule is another one, the difference is checked,
input by input:

                           fp8c                ml_dtypes 0.6.0
    E4M3 of a NaN          7f                  7f or ff: the sign is kept
    E5M2 of a NaN          7f                  7e or fe
    E8M0 of 0, -0, x < 0   of |x|; of 0: 00    ff
    E8M0 between powers    upward              to nearest, ties upward; below 2^-126 always upward
    E8M0 beyond 2^127      ff                  fe below 1.5 * 2^127, then ff

All else (rounding, ties, subnormals on both sides, -0, Inf, overflow) is the same rule and must be
the same code.

usage: codecs.py LIBRARY      the shared object of codecs.c (make build/tests/codecs.so)
"""

import ctypes
import multiprocessing
import os
import sys

import ml_dtypes
import numpy as np

FORMATS = (
    ("e4m3", ml_dtypes.float8_e4m3fn),
    ("e5m2", ml_dtypes.float8_e5m2),
    ("e8m0", ml_dtypes.float8_e8m0fnu),
)
INF = np.uint32(0x7F800000)


def load(path):
    """The library, with the types of its functions."""
    lib = ctypes.CDLL(os.path.abspath(path))
    u32, u8 = (np.ctypeslib.ndpointer(t, flags="C_CONTIGUOUS") for t in (np.uint32, np.uint8))
    for name in ("peer_seed", "peer_chunk_size", "peer_chunks"):
        getattr(lib, name).restype = ctypes.c_uint32
    lib.peer_inputs.argtypes = (ctypes.c_uint32, u32)
    lib.peer_encode.argtypes = (ctypes.c_int, u32, ctypes.c_uint32, u8)
    lib.peer_decode.argtypes = (ctypes.c_int, np.ctypeslib.ndpointer(np.float32))
    for name in ("peer_inputs", "peer_encode", "peer_decode"):
        getattr(lib, name).restype = None
    return lib


def expected(name, bits, code):
    """What ml_dtypes gives where the codec gives `code`, by the table above; how many differ."""
    magnitude = bits & 0x7FFFFFFF
    negative = bits >> 31 != 0
    nan = magnitude > INF
    want = code.copy()
    if name == "e8m0":
        # The lower half of a binade of normal numbers, its powers of two and its middle left out.
        fraction = bits & 0x7FFFFF
        below = (magnitude < INF) & (magnitude > 0x800000) & (fraction > 0) & (fraction < 0x400000)
        want[below] -= 1
        want[negative | (magnitude == 0)] = 0xFF
    else:
        want[nan] = (0x7F if name == "e4m3" else 0x7E) | negative[nan].astype(np.uint8) << 7
    return want, int((want != code).sum())


def chunk(job):
    """(format, inputs, those where the rules differ, wrong, the first wrong one) of one chunk."""
    path, k, format = job
    lib = load(path)
    name, dtype = FORMATS[format]
    bits = np.empty(lib.peer_chunk_size(), np.uint32)
    code = np.empty(bits.size, np.uint8)
    lib.peer_inputs(k, bits)
    lib.peer_encode(format, bits, bits.size, code)
    with np.errstate(all="ignore"):
        theirs = bits.view(np.float32).astype(dtype).view(np.uint8)
    want, differ = expected(name, bits, code)
    bad = np.flatnonzero(theirs != want)
    first = ""
    if bad.size:
        i = bad[0]
        first = f"{bits[i]:08x}: ours {code[i]:02x}, ml_dtypes {theirs[i]:02x}, not {want[i]:02x}"
    return format, bits.size, differ, bad.size, first


def decode(lib):
    """Every code, by value; NaNs by class. The number of wrong ones."""
    wrong = 0
    for format, (name, dtype) in enumerate(FORMATS):
        ours = np.empty(256, np.float32)
        lib.peer_decode(format, ours)
        theirs = np.arange(256, dtype=np.uint8).view(dtype).astype(np.float32)
        same = ours.view(np.uint32) == theirs.view(np.uint32)
        same |= np.isnan(ours) & np.isnan(theirs)
        bad = int((~same).sum())
        print(f"{name} decoded: 256 codes, {bad} wrong")
        wrong += bad
    return wrong


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    lib = load(sys.argv[1])
    print(f"ml_dtypes {ml_dtypes.__version__}, numpy {np.__version__}, seed {lib.peer_seed()}")
    wrong = decode(lib)
    jobs = [(sys.argv[1], k, f) for f in range(len(FORMATS)) for k in range(lib.peer_chunks())]
    total = [[0, 0, 0, ""] for _ in FORMATS]
    with multiprocessing.Pool(len(os.sched_getaffinity(0))) as pool:
        for format, inputs, differ, bad, first in pool.imap(chunk, jobs, 4):
            t = total[format]
            t[:] = t[0] + inputs, t[1] + differ, t[2] + bad, t[3] or first
    for (name, _), (inputs, differ, bad, first) in zip(FORMATS, total):
        print(f"{name}: {inputs} inputs, {differ} where the rules differ, {bad} wrong", first)
        wrong += bad
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
