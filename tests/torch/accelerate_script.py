"""A training as `accelerate launch` starts it: what test_accelerate_launch.py runs in fresh processes.

    accelerate launch --config_file FILE accelerate_script.py MODEL OPTIONS FOLDER DEVICES

MODEL: "two" linears, "gpt2", or "trainer", which is a GPT-2 under Hugging Face's Trainer. OPTIONS: those of
compile_for_trainer, as JSON. DEVICES: "gpus", where Accelerate takes the processes for those of GPUs, or
"cpus". Each rank leaves what it found, or its error, in FOLDER.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
import traceback
import unittest.mock
from typing import Any

os.environ["ACCELERATE_USE_CPU"] = "true"  # a launcher for FSDP does not say so

import accelerate  # noqa: E402
import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
import transformers  # noqa: E402

import fp8c.torch  # noqa: E402
import models  # noqa: E402
from support import executed  # noqa: E402
from test_accelerate_fsdp import Two, as_on_gpus, placed  # noqa: E402
from test_trainer import Losses, rows  # noqa: E402

STEPS = 3


def as_with_gpus(devices: str) -> Any:
    """A context in which Accelerate finds "gpus", or "cpus". Offload needs memory that only a GPU's driver
    can pin, and FSDP1 looks for the index of a device: both are left out."""
    context = contextlib.ExitStack()
    if devices == "gpus":
        context.enter_context(as_on_gpus())
        context.enter_context(unittest.mock.patch.object(torch.Tensor, "pin_memory", lambda self: self))
        context.enter_context(unittest.mock.patch("torch.distributed.fsdp._init_utils._get_compute_device",
                                                  lambda *_: torch.device("cpu")))
    return context


def batches(model: str, count: int) -> list[Any]:
    """Batches of all ranks: rows for two linears, or sequences."""
    if model == "two":
        return list(torch.randn(count, 8, 16, generator=torch.Generator().manual_seed(1)))
    return [torch.stack([row["input_ids"] for row in rows(16)[2 * i:2 * i + 2]]) for i in range(count)]


def loop(kind: str, options: dict[str, Any]) -> tuple[torch.nn.Module, list[float]]:
    """The loop of Accelerate's guide."""
    model = Two() if kind == "two" else models.make("gpt2")[0]
    accelerator = accelerate.Accelerator()
    fp8c.torch.compile_for_trainer(model, **options)
    loader = torch.utils.data.DataLoader(batches(kind, 2 * STEPS), batch_size=None)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    model, optimizer = accelerator.prepare(model, optimizer)
    losses, me = [], dist.get_rank() if dist.is_initialized() else 0
    for batch in list(loader)[me::2]:
        if kind == "two":
            loss = (model(batch).float() - batch).square().mean()
        else:
            loss = model(input_ids=batch, labels=batch, use_cache=False).loss
        accelerator.backward(loss)
        accelerator.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(float(loss.detach()))
    return model, losses


def trainer(options: dict[str, Any], folder: str) -> tuple[torch.nn.Module, list[float]]:
    """Hugging Face's Trainer, with FSDP2 by its own arguments."""
    model, _ = models.make("gpt2")
    model.config.use_cache = False
    fp8c.torch.compile_for_trainer(model, **options)
    losses = Losses()
    config = {"version": int(os.environ["FSDP_VERSION"]), "transformer_layer_cls_to_wrap": ["GPT2Block"],
              "sync_module_states": False, "cpu_ram_efficient_loading": False,
              "reshard_after_forward": os.environ["FSDP_RESHARD_AFTER_FORWARD"] == "true",
              "activation_checkpointing": os.environ["FSDP_ACTIVATION_CHECKPOINTING"] == "true"}
    sharding = "full_shard auto_wrap" + " offload" * (os.environ["FSDP_OFFLOAD_PARAMS"] == "true")
    arguments = transformers.TrainingArguments(
        output_dir=folder, max_steps=STEPS, per_device_train_batch_size=2, learning_rate=1e-2,
        logging_steps=1, logging_nan_inf_filter=False, save_strategy="no", report_to=[], use_cpu=True,
        disable_tqdm=True, seed=1,
        bf16=os.environ["ACCELERATE_MIXED_PRECISION"] == "bf16", ddp_backend="gloo", fsdp=sharding,
        fsdp_config=config)
    made = transformers.Trainer(model, arguments, train_dataset=rows(), callbacks=[losses])
    made.remove_callback(transformers.PrinterCallback)
    made.train()
    return made.model, losses.found


def found(kind: str, options: dict[str, Any], folder: str) -> dict[str, Any]:
    torch.manual_seed(0)
    if kind == "trainer":
        model, losses = trainer(options, os.path.join(folder, "out"))
    else:
        model, losses = loop(kind, options)
    report = fp8c.torch.report(model)
    return {"counts": report.counts(), "executed": executed(model), "placed": placed(model), "losses": losses,
            "parameters": sum(1 for _ in model.parameters()),
            "kinds": {one.name: one.kind for one in report.linears}, "unused": report.unused_rules}


def main() -> int:
    kind, options, folder, devices = sys.argv[1:]
    torch.set_num_threads(1)
    try:
        with as_with_gpus(devices):
            result = found(kind, json.loads(options), folder)
    except BaseException as error:
        inner = getattr(error, "inner_exception", None) or error
        result = {"error": type(inner).__name__, "message": str(inner), "trace": traceback.format_exc()}
    rank, ranks = os.environ["RANK"], int(os.environ["WORLD_SIZE"])
    with open(os.path.join(folder, rank + ".part"), "w", encoding="utf-8") as file:
        json.dump(result, file)
    os.rename(os.path.join(folder, rank + ".part"), os.path.join(folder, rank))
    end = time.monotonic() + 120  # the launcher kills the others as soon as one has failed
    paths = [os.path.join(folder, str(one)) for one in range(ranks)]
    while not all(map(os.path.exists, paths)) and time.monotonic() < end:
        time.sleep(0.1)
    os._exit(0 if "error" not in result else 1)


if __name__ == "__main__":
    main()
