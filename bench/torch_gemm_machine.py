"""What a process of torch_gemm.py says of its machine, as records of `fp8c tune` say it."""

from __future__ import annotations

import datetime
import os
import pathlib
import platform
import re
import shlex
import subprocess
import sys
from typing import Any

import torch

SCHEMA = 1


def nvidia_smi(what: str) -> list[str]:
    command = ["nvidia-smi", f"--query-gpu={what}", "--format=csv,noheader,nounits", "-i", "0"]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, check=True, timeout=20).stdout
    except (OSError, subprocess.SubprocessError):
        return []
    return [cell.strip() for cell in answer.split(",")]


def clocks(device: str) -> dict[str, float]:
    """A GPU now; zeros where there is none, or nobody says."""
    names = ("sm_mhz", "memory_mhz", "watts", "celsius")
    found = nvidia_smi("clocks.sm,clocks.mem,power.draw,temperature.gpu") if device == "cuda" else []
    numbers = [float(x) if re.fullmatch(r"[0-9.]+", x) else 0.0 for x in found]
    return dict(zip(names, numbers if len(numbers) == len(names) else [0.0] * len(names)))


def begin(device: str) -> dict[str, Any]:
    now = datetime.datetime.now(datetime.timezone.utc)
    stamp = now.strftime("%Y%m%dT%H%M%S.") + f"{now.microsecond // 1000:03d}Z"
    unknown = {"flops_f32": 0.0, "flops_bf16": 0.0, "flops_fp8": 0.0, "bytes": 0.0}
    return {
        "id": f"{stamp}-{os.getpid()}",
        "date": now.strftime("%Y-%m-%dT%H:%M:%SZ"),
        "load": os.getloadavg()[0],
        "cpus": os.cpu_count(),
        "before": unknown,
        "after": unknown,
        "begin": clocks(device),
    }


def first(path: str, pattern: str) -> str:
    try:
        found = re.search(pattern, pathlib.Path(path).read_text(), re.MULTILINE)
    except OSError:
        return ""
    return found[1].strip() if found else ""


def about(device: str, inputs: str) -> dict[str, Any]:
    """What is the same in all processes."""
    shown = torch.__config__.show()
    libraries = [f"PyTorch {torch.__version__}"]
    for name, pattern in (
        ("oneDNN", r"MKL-DNN v([0-9.]+)"),
        ("MKL", r"Math Kernel Library Version ([0-9.]+)"),
    ):
        found = re.search(pattern, shown)
        libraries += [f"{name} {found[1]}"] if found else []
    if device == "cuda":
        libraries.append(f"CUDA {torch.version.cuda}")
        processor = torch.cuda.get_device_name()
        target = "sm_{}{}".format(*torch.cuda.get_device_capability())
    else:
        processor = first("/proc/cpuinfo", r"^model name\s*:(.*)$") or platform.processor()
        target = "cpu"
    threads = torch.get_num_threads()
    return {
        "event": "benchmark",
        "schema": SCHEMA,
        "program": "torch",
        "command": shlex.join(["python", *sys.orig_argv[1:]]),
        "version": torch.__version__,
        "commit": torch.version.git_version or "",
        "device": f"{target} {processor}" + (f", {threads} threads" if device == "cpu" else ""),
        "processor": processor,
        "target": target,
        "libraries": ", ".join(libraries),
        "driver": next(iter(nvidia_smi("driver_version")), "") if device == "cuda" else "",
        "governor": first("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", "(.*)"),
        "system": f"{platform.system()} {platform.release()}",
        "threads": threads,
        "inputs": inputs,
    }
