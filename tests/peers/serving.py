"""Runs frontend/checkpoint/serving.md as it stands: its programs and its commands, in order.

usage: python3 tests/peers/serving.py BUILD/fp8c TEXT [--update]     TEXT: the text to train on
       needs the packages torch, transformers (5 and later), peft, accelerate; and fp8c's package in PYTHONPATH

Each quoted line must be printed, in this order; any number may stand for a number, and "..." for lines. The losses
that follow from each other must agree: the base's and the adapters' in PyTorch are those that transformers finds.
--update writes what was printed in the place of the quoted lines.
"""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

TOP = pathlib.Path(__file__).resolve().parents[2]
PAGE = TOP / "frontend/checkpoint/serving.md"
NUMBER = re.compile(r"\d[\d.]*")
# One computation in two orders of sums, in f32: the mean of 20 batches, printed with four digits.
NEAR = 2e-4
MOST = 8  # lines that --update quotes of an output


def blocks(lines):
    """Programs, as (name, text), and commands, as (command, first line quoted, lines quoted)."""
    at = 0
    while at < len(lines):
        if lines[at] == "```python":
            end = lines.index("```", at)
            yield "program", lines[at + 1][2:], "\n".join(lines[at + 1:end]) + "\n"
            at = end
        elif lines[at].startswith("    $ "):
            command = lines[at][6:]
            while command.endswith("\\"):
                at += 1
                command = command[:-1] + lines[at].strip()
            end = at + 1
            while end < len(lines) and lines[end].startswith("    ") and not lines[end].startswith("    $ "):
                end += 1
            yield "command", command, (at + 1, end)
            at = end - 1
        at += 1


def plain(line):
    return NUMBER.sub("N", " ".join(line.split()))


def check(command, quoted, printed):
    rest = [plain(line) for line in printed]
    for line in map(plain, quoted):
        if line == "...":
            continue
        assert line in rest, f"$ {command}\ndoes not print '{line}' (or not in this order), but\n" + "\n".join(printed)
        del rest[:rest.index(line) + 1]


def shorten(printed):
    """The lines to quote: the first and the last ones."""
    if len(printed) <= MOST:
        return printed
    return printed[:MOST - 3] + ["..."] + printed[-2:]


def run(fp8c, text, update):
    lines, quotes, losses = PAGE.read_text().split("\n"), [], {}
    here = pathlib.Path(tempfile.mkdtemp())
    try:
        (here / "bin").mkdir()
        (here / "bin/fp8c").symlink_to(pathlib.Path(fp8c).resolve())
        (here / "bin/python3").symlink_to(sys.executable)
        shutil.copy(text, here / "tinyshakespeare.txt")
        shutil.copy(TOP / "frontend/models/llama_block.f8", here)
        (here / "tuning.txt").write_text("".join(p.read_text() for p in sorted(TOP.glob("*/**/README.md"))))
        env = dict(os.environ, PATH=f"{here}/bin:{os.environ['PATH']}", PYTHONWARNINGS="ignore", TQDM_DISABLE="1",
                   TRANSFORMERS_VERBOSITY="error", PYTHONPATH=os.environ.get("PYTHONPATH", ""))
        for kind, name, what in blocks(lines):
            if kind == "program":
                (here / name).write_text(what)
                continue
            done = subprocess.run(name.replace("python3 ", f"{sys.executable} "), shell=True, cwd=here, env=env,
                                  capture_output=True, text=True, check=False)
            assert done.returncode == 0, f"$ {name}\n{done.stdout}{done.stderr}"
            printed = done.stdout.rstrip("\n").split("\n")
            for line in printed:
                loss = re.fullmatch(r"(served adapters|merged|the base|with its adapters) (\d+\.\d+)", line)
                if loss:
                    losses[loss.group(1)] = float(loss.group(2))
            quotes.append((what, printed))
            if not update:
                check(name, [line[4:] for line in lines[what[0]:what[1]]], printed)
        again = subprocess.run([sys.executable, "loss.py", "served"], cwd=here, env=env, capture_output=True, text=True,
                               check=True)
        losses["served"] = float(again.stdout.split()[-1])
    finally:
        shutil.rmtree(here)
    print(losses)
    assert abs(losses["served"] - losses["the base"]) <= NEAR, losses
    assert abs(losses["served adapters"] - losses["with its adapters"]) <= NEAR, losses
    assert losses["with its adapters"] < losses["the base"] - 0.5, losses
    assert abs(losses["merged"] - losses["with its adapters"]) < 0.005 * losses["merged"], losses
    if update:
        for (begin, end), printed in reversed(quotes):
            lines[begin:end] = ["    " + line if line else "" for line in shorten(printed) if printed != [""]]
        PAGE.write_text("\n".join(lines))


if __name__ == "__main__":
    if len(sys.argv) not in (3, 4) or sys.argv[3:] not in ([], ["--update"]):
        sys.exit(__doc__)
    run(sys.argv[1], sys.argv[2], bool(sys.argv[3:]))
    print("frontend/checkpoint/serving.md: every command ran as it stands there")
