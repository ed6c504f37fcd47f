"""Trains a small GPT-2 of Hugging Face's classes on a text: FP8 by fp8c beside bf16, with the report.

usage: python tests/examples/torch_gpt2.py [--text FILE] [--steps 300] [--recipe current] [--layers 2]
                                           [--width 128] [--seed 0] [--statistics 0] [--trainer]

It needs PyTorch, transformers and the package fp8c (`make wheel`). A token is a byte of the text.
--statistics 100: every 100th step is watched; it prints what FP8 did to each operand in the last one.
--trainer: Hugging Face's Trainer runs the FP8 training (it needs the package accelerate too).
"""

from __future__ import annotations

import argparse
import os
import time

import torch
import transformers

HERE = os.path.dirname(os.path.abspath(__file__))
MANUALS = [os.path.join(HERE, place)  # in the source tree; where it is installed
           for place in ("../../frontend/text/README.md", "../language.md")]


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--text", default=next(filter(os.path.exists, MANUALS), None),
                        help="default: the manual of fp8c's language")
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--recipe", default="current")
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--length", type=int, default=64)
    parser.add_argument("--seed", type=int, default=0, help="of the weights")
    parser.add_argument("--statistics", type=int, default=0, help="watch every so many steps")
    parser.add_argument("--trainer", action="store_true")
    return parser.parse_args()


def model_of(args: argparse.Namespace) -> torch.nn.Module:
    """The same weights at each call."""
    torch.manual_seed(args.seed)
    config = transformers.GPT2Config(
        vocab_size=256, n_positions=args.length, n_embd=args.width, n_layer=args.layers,
        n_head=4, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, bos_token_id=0, eos_token_id=0)
    model = transformers.GPT2LMHeadModel(config)
    model.loss_type = "ForCausalLM"
    return model.train()


def batches(text: bytes, args: argparse.Namespace) -> list[torch.Tensor]:
    """Places of the text, the same for every training."""
    data = torch.tensor(list(text), dtype=torch.long)
    generator = torch.Generator().manual_seed(1)
    starts = torch.randint(len(data) - args.length, (args.steps, args.batch), generator=generator)
    return [torch.stack([data[s:s + args.length] for s in row]) for row in starts]


def train(model: torch.nn.Module, data: list[torch.Tensor], recipe: str, statistics: int = 0) -> list[float]:
    """The losses of all steps. The backend needs no import of fp8c."""
    options = {"recipe": recipe, "strict": True, "statistics": statistics}
    call = torch.compile(model, backend="fp8c", options=options)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.95))
    # Without warm-up, clipping and decay two trainings part by 1%, whatever rounds in them.
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: min(1.0, (step + 1) / 50) * (1 - step / (1.1 * len(data))))
    losses, start = [], time.perf_counter()
    for step, ids in enumerate(data, 1):
        optimizer.zero_grad()
        loss = call(input_ids=ids, labels=ids, use_cache=False).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        losses.append(float(loss.detach()))
        if step == 1:
            print(f"{recipe}: the first step, with its compile, took {time.perf_counter() - start:.1f} s")
            start = time.perf_counter()
        if step % 50 == 0 or step == len(data):
            print(f"{recipe}: step {step} loss {losses[-1]:.4f}")
    seconds = (time.perf_counter() - start) / max(len(data) - 1, 1)
    print(f"{recipe}: {seconds * 1e3:.1f} ms a step")
    return losses


def train_with_trainer(model: torch.nn.Module, data: list[torch.Tensor], recipe: str) -> None:
    """The same by Hugging Face's Trainer: compile first, then make the Trainer."""
    import fp8c.torch

    fp8c.torch.compile_for_trainer(model, recipe=recipe, strict=True)
    rows = [{"input_ids": row, "labels": row} for ids in data for row in ids]
    arguments = transformers.TrainingArguments(
        output_dir="trainer", max_steps=len(data), per_device_train_batch_size=len(data[0]),
        learning_rate=1e-3, report_to=[], save_strategy="no", logging_steps=50, use_cpu=True)
    transformers.Trainer(model=model, args=arguments, train_dataset=rows).train()


def main() -> None:
    args = arguments()
    with open(args.text, "rb") as file:
        data = batches(file.read(), args)
    model = model_of(args)
    if args.trainer:
        train_with_trainer(model, data, args.recipe)
        losses = []
    else:
        losses = train(model, data, args.recipe, args.statistics)
    import fp8c.torch

    print(fp8c.torch.report(model))
    if args.statistics:
        print(fp8c.torch.statistics(model))
    torch._dynamo.reset()
    bf16 = train(model_of(args), data, "bf16")
    if losses:
        last = max(len(data) // 10, 1)
        own, other = sum(losses[-last:]) / last, sum(bf16[-last:]) / last
        print(f"the last {last} steps: {args.recipe} {own:.4f}, bf16 {other:.4f}, "
              f"gap {100 * (own / other - 1):+.3f}%")


if __name__ == "__main__":
    main()
