"""Compares checkpoints with the reference implementation of safetensors, from PyPI, on demand.

usage: python3 tests/peers/checkpoint.py BUILD/fp8c      needs the packages safetensors, numpy, ml_dtypes

1. What `fp8c train --save` writes, the reference reads, and writes again as the same bytes, metadata aside, whose order
   is free there.
2. What the reference writes, in F32, F16 and BF16 and under Hugging Face's names, `fp8c eval` reads: the same loss as
   of fp8c's own file, where no value was rounded.
3. What `fp8c export` writes, the reference reads; dequantized here as its ecosystem does (block: every 128 x 128 times
   its weight_scale_inv, as DeepSeek-V3's README_WEIGHTS.md says; else times weight_scale, one, one a row or one for 32,
   as compressed-tensors has them) it is near the checkpoint, and gives, as plain weights, the loss of fp8c's own file.
4. Headers changed at random: what the reference refuses, fp8c refuses.
"""
import json
import pathlib
import random
import struct
import subprocess
import sys
import tempfile

import ml_dtypes
import numpy as np
from safetensors import SafetensorError, deserialize, safe_open
from safetensors.numpy import load, load_file, save_file

SEED = 1
MUTATIONS = 400
MODEL = "frontend/models/gpt.f8"
SMALL = "-D B=2 -D T=32 -D L=1 -D C=32 -D H=2".split()
BLOCKS = "-D B=2 -D T=32 -D L=1 -D C=160 -D H=2".split()  # several blocks, the last one short


def run(fp8c, command, *args, dims=SMALL):
    data = [] if command == "export" else ["--data", "README.md"]
    done = subprocess.run([fp8c, command, MODEL, *data, "--json", "-", *dims, *map(str, args)],
                          capture_output=True, text=True, check=False)
    return done.returncode, done.stdout, done.stderr


def heldout(fp8c, weights, recipe, dims=SMALL):
    code, out, err = run(fp8c, "eval", "--weights", weights, "--recipe", recipe, dims=dims)
    assert code == 0, err
    return next(r["heldout_loss"] for r in map(json.loads, out.splitlines()) if r["event"] == "eval")


def split(data):
    length = struct.unpack("<Q", data[:8])[0]
    return json.loads(data[8:8 + length]), data[8 + length:]


def check_written(ours, folder):
    again = folder / "again.safetensors"
    with safe_open(ours, "numpy") as f:
        metadata = f.metadata()
        tensors = {name: f.get_tensor(name) for name in f.keys()}
    save_file(tensors, again, metadata)
    header, data = split(ours.read_bytes())
    header2, data2 = split(again.read_bytes())
    assert data == data2 and header == header2
    assert [k for k in header if k != "__metadata__"] == [k for k in header2 if k != "__metadata__"]
    assert ours.stat().st_size == again.stat().st_size
    print(f"written: {len(tensors)} tensors, {len(data)} bytes, as the reference writes them")


def check_read(fp8c, ours, folder):
    theirs = folder / "theirs.safetensors"
    weights = {k: v for k, v in load_file(ours).items() if not k.startswith("fp8c.")}
    for dtype in (np.float32, np.float16, ml_dtypes.bfloat16):
        narrow = {"transformer." + k: v.astype(dtype) for k, v in weights.items()}
        save_file(narrow, theirs)
        save_file({k: v.astype(np.float32) for k, v in narrow.items()}, folder / "wide.safetensors")
        for recipe in ("f32", "current"):
            a, b = heldout(fp8c, theirs, recipe), heldout(fp8c, folder / "wide.safetensors", recipe)
            assert a == b, (dtype, recipe, a, b)
            assert dtype != np.float32 or a == heldout(fp8c, ours, recipe)
    print("read: the same losses from files of the reference")


NUMPY = {"F32": np.float32, "F8_E4M3": ml_dtypes.float8_e4m3fn, "F8_E8M0": ml_dtypes.float8_e8m0fnu}


def dequantized(tensors, name):
    codes = tensors[name].astype(np.float32)
    scale = tensors.get(name + "_scale_inv", tensors.get(name + "_scale")).astype(np.float32)
    if scale.ndim:  # a grid: an axis of one scale is spread by broadcasting, one of blocks by repeating
        for axis, size in enumerate(codes.shape):
            if 1 < scale.shape[axis] < size:
                block = 32 if name + "_scale" in tensors else 128
                scale = np.repeat(scale, block, axis)[tuple(slice(n) for n in codes.shape)]
    return codes * scale


def check_exported(fp8c, folder):
    ours, exported, plain = (folder / (name + ".safetensors") for name in ("large", "exported", "plain"))
    code, _, err = run(fp8c, "train", "--steps", 2, "--recipe", "delayed", "--save", ours, dims=BLOCKS)
    assert code == 0, err
    weights = {k: v for k, v in load_file(ours).items() if not k.startswith("fp8c.")}
    for recipe in ("delayed", "rowwise", "block", "mxfp8"):
        code, _, err = run(fp8c, "export", "--weights", ours, "--recipe", recipe, "-o", exported, dims=BLOCKS)
        assert code == 0, err
        tensors = {name: np.frombuffer(bytes(t["data"]), NUMPY[t["dtype"]]).reshape(t["shape"])
                   for name, t in deserialize(exported.read_bytes())}
        stored = [name for name, t in tensors.items() if t.dtype == ml_dtypes.float8_e4m3fn]
        assert len(stored) == 4
        for name in stored:
            near = dequantized(tensors, name)
            assert np.abs(near - weights[name]).max() <= np.abs(weights[name]).max() / 16, (recipe, name)
            tensors[name] = near
        save_file({name: tensors[name] for name in weights}, plain)
        assert heldout(fp8c, plain, "bf16", BLOCKS) == heldout(fp8c, exported, "bf16", BLOCKS)
    print("exported: read by the reference, and the same losses of what its ecosystem's formulas make of it")


def mutate(rng, data):
    header, tail = bytearray(data[8:8 + struct.unpack("<Q", data[:8])[0]]), data[8 + struct.unpack("<Q", data[:8])[0]:]
    for _ in range(rng.randint(1, 2)):
        at = rng.randrange(len(header))
        kind = rng.randrange(3)
        if kind == 0:
            header[at] = rng.choice(b'0123456789"{}[],:-. \x00\xff') if rng.random() < 0.7 else rng.randrange(256)
        elif kind == 1:
            del header[at]
        else:
            header.insert(at, rng.choice(b'0123456789"{}[],:-. '))
    return struct.pack("<Q", len(header)) + bytes(header) + tail


def check_refused(fp8c, folder):
    rng = random.Random(SEED)
    base, bad = folder / "base.safetensors", folder / "bad.safetensors"
    save_file({"w": np.zeros((2, 3), np.float32), "v": np.zeros(4, np.float16)}, base, {"format": "pt"})
    refused = stricter = 0
    for _ in range(MUTATIONS):
        data = mutate(rng, base.read_bytes())
        bad.write_bytes(data)
        try:
            load(data)
            theirs = True
        except (SafetensorError, KeyError):
            theirs = False
        code, _, err = run(fp8c, "eval", "--weights", bad)
        assert code == 1, err
        ours = "the file does not hold the weights of" in err
        assert theirs or not ours, (data, err)
        refused += not theirs
        stricter += theirs and not ours
    print(f"refused: {refused} of {MUTATIONS} changed headers (seed {SEED}) by both, {stricter} more by fp8c alone")


def main():
    fp8c = sys.argv[1]
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        ours = folder / "ours.safetensors"
        code, _, err = run(fp8c, "train", "--steps", 5, "--recipe", "delayed", "--save", ours)
        assert code == 0, err
        check_written(ours, folder)
        check_read(fp8c, ours, folder)
        check_exported(fp8c, folder)
        check_refused(fp8c, folder)


if __name__ == "__main__":
    main()
