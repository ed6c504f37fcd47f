"""Makes the wheel: the package fp8c with libfp8c.so inside. Needs Python's standard library alone.

usage: python3 frontend/python/wheel.py LIBFP8C FOLDER    (make wheel)

It is also the build backend that pyproject.toml names, so `pip wheel frontend/python` works after
`make`; FP8C_LIBRARY then names the library, else build/libfp8c.so. The same sources and library
give the same bytes.
"""
from __future__ import annotations

import base64
import glob
import hashlib
import os
import re
import subprocess
import sys
import sysconfig
import tempfile
import tomllib
import zipfile

HERE = os.path.dirname(os.path.abspath(__file__))
LICENSE = os.path.join(HERE, "../../LICENSE")


def _read(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()


def version() -> str:
    """The version that the package checks libfp8c.so for."""
    text = _read(os.path.join(HERE, "fp8c/_header.py")).decode()
    return ".".join(re.search(r"^VERSION = \((\d+), (\d+), (\d+)\)", text, re.M).groups())


def metadata(project: dict) -> str:
    lines = ["Metadata-Version: 2.1", f"Name: {project['name']}", f"Version: {version()}",
             f"Summary: {project['description']}",
             f"Requires-Python: {project['requires-python']}", "License-File: LICENSE"]
    for extra, needs in project.get("optional-dependencies", {}).items():
        lines.append(f"Provides-Extra: {extra}")
        lines += [f"Requires-Dist: {need} ; extra == '{extra}'" for need in needs]
    lines += ["Description-Content-Type: text/markdown", "",
              _read(os.path.join(HERE, project["readme"])).decode()]
    return "\n".join(lines)


def entry_points(project: dict) -> str:
    return "".join(f"[{group}]\n" + "".join(f"{n} = {v}\n" for n, v in names.items()) + "\n"
                   for group, names in project.get("entry-points", {}).items())


def stripped(library: str) -> bytes:
    """The library without debug information: a seventh of its size."""
    with tempfile.TemporaryDirectory() as folder:
        out = os.path.join(folder, "libfp8c.so")
        subprocess.run(["strip", "--strip-unneeded", "-o", out, library], check=True)
        return _read(out)


def make(library: str, folder: str) -> str:
    """Write the wheel into a folder, in place of any other of this package; -> its name."""
    project = tomllib.loads(_read(os.path.join(HERE, "pyproject.toml")).decode())["project"]
    platform = re.sub(r"[-.]", "_", sysconfig.get_platform())
    stem = f"{project['name']}-{version()}"
    info = f"{stem}.dist-info"
    files = {f"fp8c/{os.path.relpath(path, os.path.join(HERE, 'fp8c'))}": _read(path) for path in
             sorted(glob.glob(os.path.join(HERE, "fp8c/**/*.py"), recursive=True))}
    files["fp8c/py.typed"] = b""
    files["fp8c/libfp8c.so"] = stripped(library)
    files[f"{info}/METADATA"] = metadata(project).encode()
    files[f"{info}/WHEEL"] = (f"Wheel-Version: 1.0\nGenerator: fp8c\nRoot-Is-Purelib: false\n"
                              f"Tag: py3-none-{platform}\n").encode()
    files[f"{info}/LICENSE"] = _read(LICENSE)
    if points := entry_points(project):
        files[f"{info}/entry_points.txt"] = points.encode()
    record = "".join(f"{name},sha256={_digest(data)},{len(data)}\n" for name, data in
                     files.items()) + f"{info}/RECORD,,\n"
    files[f"{info}/RECORD"] = record.encode()
    for old in glob.glob(os.path.join(folder, f"{project['name']}-*.whl")):
        os.unlink(old)
    name = f"{stem}-py3-none-{platform}.whl"
    with zipfile.ZipFile(os.path.join(folder, name), "w", zipfile.ZIP_DEFLATED) as wheel:
        for path, data in files.items():
            entry = zipfile.ZipInfo(path)  # of 1980, so that equal contents are equal bytes
            entry.external_attr = (0o755 if path.endswith(".so") else 0o644) << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            wheel.writestr(entry, data)
    return name


def _digest(data: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()


def build_wheel(wheel_directory: str, config_settings: object = None,
                metadata_directory: object = None) -> str:
    """PEP 517's hook."""
    library = os.environ.get("FP8C_LIBRARY") or os.path.join(HERE, "../../build/libfp8c.so")
    return make(library, wheel_directory)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit("usage: wheel.py LIBFP8C FOLDER")
    print(f"  wheel {os.path.join(sys.argv[2], make(*sys.argv[1:]))}")
