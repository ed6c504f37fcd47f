"""Compares arrays of `fp8c run` with NumPy's.

usage: python3 tests/peers/npy.py BUILD/fp8c      needs the package numpy

1. What NumPy writes, of every dtype that is read, every version of the format and ranks 0 to 4, `fp8c run` reads; what
   it writes, NumPy reads: the same bits.
2. What is not taken is refused: other dtypes, big-endian, Fortran order, the pickled, archives.
3. Headers changed at random: what NumPy refuses, fp8c refuses.
"""
import io
import pathlib
import random
import subprocess
import sys
import tempfile

import numpy as np

SEED = 1
MUTATIONS = 150

# What a port's dtype is, to NumPy: as it is written here and read back there.
PORTS = {"f32": ["<f4"], "f16": ["<f2"], "i32": ["<i4", "<i8", "|u1"], "bool": ["|b1", "|u1"], "bf16": ["|V2", "<u2"],
         "f8e4m3": ["|V1", "|u1"], "f8e5m2": ["|V1", "|u1"]}
BACK = {"f32": "<f4", "f16": "<f2", "i32": "<i4", "bool": "|b1", "bf16": "|V2", "f8e4m3": "|V1", "f8e5m2": "|V1"}


def run(fp8c, folder, port, shape):
    """The array, through a function that gives it back in another shape."""
    n = int(np.prod(shape))
    text = (f"module t\nfunc forward(%x: {port}[{', '.join(map(str, shape))}]) -> (%y: {port}[{n}, 1]) {{\n"
            f"  return reshape(%x) {{shape = [{n}, 1]}}\n}}\n")
    (folder / "t.f8").write_text(text)
    done = subprocess.run([fp8c, "run", folder / "t.f8", "--target", "reference", "--input", f"x={folder / 'x.npy'}",
                           "--output", f"y={folder / 'y.npy'}"], capture_output=True, text=True, check=False)
    return done.returncode, done.stderr


def values(rng, dtype, shape):
    n = int(np.prod(shape))
    if dtype == "|b1":
        return rng.integers(0, 2, n).astype(bool).reshape(shape)
    if dtype == "<i8":
        return rng.integers(-2**31, 2**31, n).reshape(shape)
    item = np.dtype(dtype).itemsize
    raw = rng.integers(0, 256, n * item).astype(np.uint8)
    return np.frombuffer(raw.tobytes(), dtype).reshape(shape)


def both_ways(fp8c, folder, rng):
    done = 0
    for port, dtypes in PORTS.items():
        for dtype in dtypes:
            for rank, version in ((0, (1, 0)), (1, (2, 0)), (3, (3, 0)), (4, (1, 0))):
                shape = tuple(int(d) for d in rng.integers(1, 5, rank))
                x = values(rng, dtype, shape)
                if port == "bool" and dtype == "|u1":
                    x = np.bitwise_and(x, 1).astype(np.uint8).reshape(shape)
                with open(folder / "x.npy", "wb") as f:
                    np.lib.format.write_array(f, x, version=version)
                code, err = run(fp8c, folder, port, shape)
                assert code == 0, (port, dtype, shape, err)
                y = np.load(folder / "y.npy")
                assert y.dtype.str == BACK[port] and y.shape == (x.size, 1), (port, y.dtype, y.shape)
                want = x.astype(np.int32) if port == "i32" else x
                assert want.tobytes() == y.tobytes(), (port, dtype, shape)
                done += 1
    return done


def refusals(fp8c, folder):
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    structured = np.zeros(6, [("a", "<f4")]).reshape(2, 3)
    wrong = [x.astype(np.float64), x.astype(">f4"), np.asfortranarray(x), structured, x.astype(np.int32), x.ravel(),
             x.astype(np.complex64), x.astype(object), x.astype("U3"), x.astype("datetime64[s]")]
    for array in wrong:
        np.save(folder / "x.npy", array, allow_pickle=True)
        code, err = run(fp8c, folder, "f32", (2, 3))
        assert code == 1 and "x.npy: error: " in err, (array.dtype, err)
    with open(folder / "x.npy", "wb") as f:
        np.savez(f, x=x)
    code, err = run(fp8c, folder, "f32", (2, 3))
    assert code == 1 and "does not begin like a .npy file" in err, err
    return len(wrong) + 1


def changed(fp8c, folder):
    random.seed(SEED)
    f = io.BytesIO()
    np.save(f, np.arange(6, dtype=np.float32).reshape(2, 3))
    good, refused = f.getvalue(), 0
    for _ in range(MUTATIONS):
        bad = bytearray(good)
        for _ in range(random.randint(1, 2)):
            bad[random.randrange(len(good))] = random.choice(b"\0 '(),:<>{}[]0123456789FTfiuV\n\xff")
        (folder / "x.npy").write_bytes(bad)
        try:
            there = np.load(folder / "x.npy", allow_pickle=False)
            fits = there.shape == (2, 3) and there.dtype == np.float32
        except Exception:  # NumPy's parser raises many kinds
            fits = False
        code, err = run(fp8c, folder, "f32", (2, 3))
        assert code in (0, 1), err
        assert code == 1 or fits, bytes(bad[:80])
        refused += code
    return refused


def main():
    rng = np.random.default_rng(SEED)
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        taken = both_ways(sys.argv[1], folder, rng)
        print(f"npy against NumPy {np.__version__}, seed {SEED}: {taken} arrays both ways, "
              f"{refusals(sys.argv[1], folder)} refused, of {MUTATIONS} changed headers {changed(sys.argv[1], folder)}")


main()
