"""Statistics of `fp8c train` against NumPy: every figure of every tensor is computed anew, in double,
from the values, codes and scales that --dump writes for the same step.

usage: statistics.py FP8C     the packages ml_dtypes and numpy"""
import json
import os
import subprocess
import sys
import tempfile

import ml_dtypes
import numpy as np

FORMATS = {"F32": np.float32, "F8_E4M3": ml_dtypes.float8_e4m3fn, "F8_E5M2": ml_dtypes.float8_e5m2,
           "F8_E8M0": ml_dtypes.float8_e8m0fnu}
# A figure is a sum of at most 2^20 f32 numbers in a tree of at most 30 levels. Each level rounds by
# 2^-24, and each term has two roundings more.
NEAR = 32 * 2.0 ** -24


def load(path):
    with open(path, "rb") as f:
        data = f.read()
    size = int.from_bytes(data[:8], "little")
    header = json.loads(data[8:8 + size])
    tensors = {}
    for name, t in header.items():
        if name == "__metadata__":
            continue
        begin, end = (8 + size + o for o in t["data_offsets"])
        tensors[name] = np.frombuffer(data[begin:end], FORMATS[t["dtype"]]).reshape(t["shape"])
    return tensors


def spread(scale, granularity, shape):
    """The scale of each element of a [rows, columns] matrix."""
    rows, columns = shape
    scale = scale.astype(np.float64)
    if not granularity.startswith("block"):
        if granularity == "row":
            scale = scale.reshape(rows, 1)
        elif granularity == "column":
            scale = scale.reshape(1, columns)
        return np.broadcast_to(scale, shape)
    by_rows, by_columns = map(int, granularity[6:-1].split(","))
    grid = scale.reshape(-(-rows // by_rows), -(-columns // by_columns))
    return np.repeat(np.repeat(grid, by_rows, 0), by_columns, 1)[:rows, :columns]


def figures(record, tensors):
    x = tensors[record["tensor"]].astype(np.float64)
    x = x.reshape(-1, x.shape[-1])
    size = np.abs(x)
    want = {"elements": x.size, "amax": size.max(), "nonfinite": int((~np.isfinite(x)).sum())}
    if (size > 0).any():
        want["amin"] = size[size > 0].min()
        want["range"] = np.log2(want["amax"] / want["amin"])
    if record["quantized"] is None:
        assert all(record[k] is None for k in ("underflow", "overflow", "mse", "scale", "used"))
        return want
    code = tensors[record["tensor"] + ".q"]
    largest = float(ml_dtypes.finfo(code.dtype).max)
    code = code.astype(np.float64).reshape(x.shape)
    scale_inv = tensors[record["tensor"] + ".scale_inv"]
    d = code * spread(scale_inv, record["granularity"], x.shape)
    want["used"] = np.abs(code).max() / largest
    want["underflow"] = ((x != 0) & (code == 0)).mean()
    want["mse"] = ((d - x) ** 2).mean()
    if (x != 0).any() and (d != 0).any():
        want["cosine"] = (x * d).sum() / np.sqrt((x * x).sum() * (d * d).sum())
    if ((d - x) ** 2).sum() > 0 and (x != 0).any():
        want["sqnr"] = 10 * np.log10((x * x).sum() / ((d - x) ** 2).sum())
    half = 464 / 448 if largest == 448 else 61440 / 57344
    want["overflow"] = ((np.abs(code) == largest) & (size > np.abs(d) * half)).mean()
    if record["granularity"] == "tensor":
        want["scale"] = 1 / float(scale_inv.reshape(()))
        want["scale_wanted"] = largest / want["amax"] if want["amax"] > 0 else record["scale_wanted"]
    return want


def check(fp8c, recipe, folder):
    text = os.path.join(folder, "text")
    with open(text, "wb") as f:
        f.write(np.random.default_rng(1).integers(97, 123, 20000, np.uint8).tobytes())
    run = os.path.join(folder, "run")
    subprocess.run([fp8c, "train", "frontend/models/gpt.f8", "-D", "B=2", "-D", "T=32", "-D", "L=1",
                    "-D", "C=32", "-D", "H=2", "--data", text, "--steps", "2", "--recipe", recipe,
                    "--run", run, "--stats", "*", "--every", "2", "--dump", "*", "--dump-steps",
                    "1:2"], check=True, stdout=subprocess.DEVNULL)
    n = 0
    with open(os.path.join(run, "steps.jsonl")) as f:
        records = [r for r in map(json.loads, f) if r["event"] == "stats"]
    dumps = {s: load(os.path.join(run, f"dump-{s}.safetensors")) for s in (1, 2)}
    for r in records:
        for key, want in figures(r, dumps[r["step"]]).items():
            got = r[key]
            assert got is not None and abs(got - want) <= NEAR * abs(want) + (
                1e-3 if key == "sqnr" else 1e-300), f"{recipe}: {r['tensor']}: {key} {got}, NumPy {want}"
            n += 1
    return n


def main():
    n = 0
    recipes = ("bf16", "delayed", "current", "rowwise", "block", "mxfp8", "fake")
    for recipe in recipes:
        with tempfile.TemporaryDirectory() as folder:
            n += check(sys.argv[1], recipe, folder)
    print(f"statistics: {n} figures of {len(recipes)} recipes as NumPy computes them")


main()
