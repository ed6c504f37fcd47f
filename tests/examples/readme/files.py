"""Writes the files that examples name, into the current directory: the
tokens [B, T] that FILE begins with, and a small classifier.

usage: files.py B T
"""
import pathlib
import struct
import sys


def npy(name: str, dtype: str, code: str, shape: tuple[int, ...], values: list[float]) -> None:
    head = f"{{'descr': '{dtype}', 'fortran_order': False, 'shape': {shape}, }}"
    head += " " * (-(len(head) + 11) % 64) + "\n"
    pathlib.Path(name).write_bytes(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head.encode() +
                                   struct.pack(f"<{len(values)}{code}", *values))


batch = int(sys.argv[1]), int(sys.argv[2])
size = batch[0] * batch[1]
text = pathlib.Path("FILE").read_bytes()
npy("tokens.npy", "<i4", "i", batch, list(text[:size]))
npy("targets.npy", "<i4", "i", batch, list(text[1:size + 1]))
npy("x.npy", "<f4", "f", (48, 6), [float("nan") if i == 26 else i % 5 - 2.0 for i in range(288)])
npy("label.npy", "<i4", "i", (48,), [i % 3 for i in range(48)])
pathlib.Path("classifier.f8").write_text("""module classifier
dim B = 4
param w: f32[6, 3] normal(0.02)
func forward(%x: f32[B, 6], %label: i32[B]) -> f32[] {
  return cross_entropy(linear(%x, w) {name = "head"}, %label)
}
optimizer adamw {lr = 1e-3}
""")
