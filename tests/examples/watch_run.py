"""Feeds TensorBoard or Weights & Biases from the folder of a run (fp8c train --run DIR), or prints the scalars.

Reads steps.jsonl with nothing but json: curves are train/NAME and held_out/loss; figures of watched tensors (--stats)
are FIGURE/TENSOR, or FIGURE/TENSOR@RECIPE under a recipe that is not in use. A folder may be in use: a last line
without an end is left for the next time.

usage: watch_run.py DIR --print | --tensorboard LOGDIR | --wandb PROJECT"""
import json
import os
import sys

CURVES = ("loss", "grad_norm", "lr", "tokens_per_second", "rows_per_second")
NO_FIGURES = ("seed", "step", "elements")  # numbers of a record of statistics that are none


def records(folder):
    """The records of the steps so far."""
    with open(os.path.join(folder, "steps.jsonl"), encoding="utf-8") as lines:
        for line in lines:
            if line.endswith("\n"):
                yield json.loads(line)


def scalars(folder):
    """(step, name, value) of all that has a value."""
    for r in records(folder):
        if r["event"] == "eval" and r["loss"] is not None:
            yield r["step"], "held_out/loss", r["loss"]
        elif r["event"] == "step":
            for name in CURVES:
                if r.get(name) is not None:
                    yield r["step"], "train/" + name, r[name]
        elif r["event"] == "stats":
            for name, value in r.items():
                if type(value) in (int, float) and name not in NO_FIGURES:
                    yield r["step"], name + "/" + r["tensor"], value


def to_tensorboard(folder, log):
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        sys.exit("watch_run.py: no torch.utils.tensorboard in this Python: pip install torch tensorboard")
    with SummaryWriter(log) as writer:
        for step, name, value in scalars(folder):
            writer.add_scalar(name, value, step)


def to_wandb(folder, project):
    try:
        import wandb
    except ImportError:
        sys.exit("watch_run.py: no wandb in this Python: pip install wandb")
    with open(os.path.join(folder, "run.json"), encoding="utf-8") as f:
        run = wandb.init(project=project, config=json.load(f))
    steps = {}  # W&B takes the values of a step together, and the steps in order
    for step, name, value in scalars(folder):
        steps.setdefault(step, {})[name] = value
    for step in sorted(steps):
        run.log(steps[step], step=step)
    run.finish()


def main(args):
    if len(args) == 2 and args[1] == "--print":
        for step, name, value in scalars(args[0]):
            print(step, name, value)
    elif len(args) == 3 and args[1] == "--tensorboard":
        to_tensorboard(args[0], args[2])
    elif len(args) == 3 and args[1] == "--wandb":
        to_wandb(args[0], args[2])
    else:
        sys.exit(__doc__.splitlines()[-1])


if __name__ == "__main__":
    main(sys.argv[1:])
