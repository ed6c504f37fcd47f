"""Draws the pictures of the README as SVG. Needs Python's standard library alone.

usage: draw.py pipeline >pipeline.svg
       draw.py loss LOSSES.jsonl >loss.svg        what `fp8c train --seeds N --compare bf16 --json` wrote
       draw.py report DIR >report.svg             a run's folder, trained with --stats '*'
"""
from __future__ import annotations

import html
import json
import math
import os
import statistics
import sys

INK, PALE, LINE, PAPER = "#1f2430", "#6b7280", "#d4d8e0", "#ffffff"
BLUE, ORANGE, GREEN, GREY = "#2463c9", "#d9730d", "#2e8b57", "#8a8f99"
MONO = "ui-monospace,SFMono-Regular,Menlo,Consolas,monospace"
SANS = "system-ui,-apple-system,'Segoe UI',Helvetica,Arial,sans-serif"


class Picture:
    """SVG elements on a white sheet."""

    def __init__(self, width: int, height: int, title: str):
        self.width, self.height, self.parts = width, height, []
        self.title = title

    def add(self, text: str) -> None:
        self.parts.append(text)

    def text(self, x: float, y: float, words: str, size: float = 13, color: str = INK, anchor: str = "start",
             mono: bool = False, bold: bool = False) -> None:
        weight = ' font-weight="600"' if bold else ""
        self.add(f'<text x="{x:g}" y="{y:g}" font-size="{size:g}" fill="{color}" text-anchor="{anchor}" '
                 f'font-family="{MONO if mono else SANS}" xml:space="preserve"{weight}>{html.escape(words)}</text>')

    def box(self, x: float, y: float, w: float, h: float, fill: str = PAPER, stroke: str = LINE,
            radius: float = 6) -> None:
        self.add(f'<rect x="{x:g}" y="{y:g}" width="{w:g}" height="{h:g}" rx="{radius:g}" fill="{fill}" '
                 f'stroke="{stroke}"/>')

    def line(self, points: list[tuple[float, float]], color: str, width: float = 1.5, dash: str = "") -> None:
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        more = f' stroke-dasharray="{dash}"' if dash else ""
        self.add(f'<polyline points="{path}" fill="none" stroke="{color}" stroke-width="{width:g}"{more}/>')

    def area(self, upper: list[tuple[float, float]], lower: list[tuple[float, float]], color: str) -> None:
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in upper + lower[::-1])
        self.add(f'<polygon points="{path}" fill="{color}" fill-opacity="0.18"/>')

    def arrow(self, x0: float, y0: float, x1: float, y1: float) -> None:
        self.line([(x0, y0), (x1, y1)], PALE)
        a = math.atan2(y1 - y0, x1 - x0)
        wings = [(x1 - 7 * math.cos(a + d), y1 - 7 * math.sin(a + d)) for d in (-0.45, 0.45)]
        self.line([wings[0], (x1, y1), wings[1]], PALE)

    def svg(self) -> str:
        return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {self.width} {self.height}" '
                f'width="{self.width}" height="{self.height}" role="img">\n<title>{html.escape(self.title)}</title>\n'
                f'<rect width="{self.width}" height="{self.height}" rx="8" fill="{PAPER}"/>\n'
                + "\n".join(self.parts) + "\n</svg>\n")


# ---- from a text to a step ----

TEXT = ["%h = linear(%x, up)", "%g = gelu(%h)", "%y = linear(%g, down)", "loss(%y, %targets)",
        "optimizer adamw", 'recipe "head" = bf16']
PASSES = [("precision", "bf16 for activations"), ("autodiff", "the backward step"),
          ("scaling", "casts, scales, amax histories"), ("legalize", "layouts that GEMMs take"),
          ("group", "rows of ops to kernels"), ("remat", "what to recompute"), ("memory", "one arena")]
STEP = [("kernel", "norm, cast to E4M3, amax", BLUE), ("GEMM", "fprop  E4M3 x E4M3", ORANGE),
        ("kernel", "gelu, cast to E4M3, amax", BLUE), ("GEMM", "fprop  E4M3 x E4M3", ORANGE),
        ("kernel", "cross-entropy, its gradient", BLUE), ("GEMM", "dgrad  E5M2 x E4M3", ORANGE),
        ("GEMM", "wgrad  E4M3 x E5M2", ORANGE), ("sum", "gradients over the ranks", GREEN),
        ("kernel", "clip, AdamW, new scales", BLUE)]
RUNS_ON = [(BLUE, "kernels: NVRTC on a GPU, LLVM on a CPU"), (ORANGE, "GEMMs: cuBLASLt, oneDNN"),
           (GREEN, "collectives: NCCL, MPI")]


def pipeline() -> str:
    p = Picture(860, 330, "A model's text becomes a graph, passes make the training step of it, and the step is kernels, "
                          "GEMMs and collectives")
    for x, w, title in ((20, 215, "model.f8: a text"), (270, 280, "passes: graph to graph"),
                        (585, 255, "the step: what runs")):
        p.box(x, 20, w, 250, "#f7f8fa")
        p.text(x + 14, 44, title, 14, bold=True)
    for i, row in enumerate(TEXT):
        p.text(34, 78 + 24 * i, row, 12.5, mono=True)
    p.text(34, 256, "or a graph from C or PyTorch", 12, PALE)
    for i, (name, what) in enumerate(PASSES):
        y = 58 + 29 * i
        p.box(282, y, 256, 23, PAPER)
        p.text(292, y + 16, name, 12, mono=True, bold=True)
        p.text(370, y + 16, what, 11.5, PALE)
    for i, (kind, what, color) in enumerate(STEP):
        y = 56 + 23 * i
        p.add(f'<rect x="599" y="{y}" width="5" height="18" rx="2" fill="{color}"/>')
        p.text(611, y + 13.5, kind, 11.5, color, bold=True)
        p.text(676, y + 13.5, what, 11.5)
    p.arrow(240, 145, 265, 145)
    p.arrow(555, 145, 580, 145)
    x = 20
    for color, words in RUNS_ON:
        p.add(f'<rect x="{x}" y="288" width="10" height="10" rx="2" fill="{color}"/>')
        p.text(x + 16, 297.5, words, 12)
        x += 300 if color == BLUE else 215
    p.text(20, 319, "Each scale and each amax history is a value of the graph: fusing, recomputing and threads change no bit.",
           12, PALE)
    return p.svg()


# ---- curves ----

class Plot:
    """Axes in a rectangle of a picture."""

    def __init__(self, p: Picture, x: float, y: float, w: float, h: float, across: tuple[float, float],
                 up: tuple[float, float]):
        self.p, self.x, self.y, self.w, self.h, self.across, self.up = p, x, y, w, h, across, up

    def at(self, a: float, b: float) -> tuple[float, float]:
        (a0, a1), (b0, b1) = self.across, self.up
        return (self.x + self.w * (a - a0) / (a1 - a0),
                self.y + self.h * (1 - (min(max(b, b0), b1) - b0) / (b1 - b0)))

    def axes(self, ticks: list[float], marks: list[float], form: str = "{:g}") -> None:
        for b in marks:
            _, y = self.at(self.across[0], b)
            self.p.line([(self.x, y), (self.x + self.w, y)], LINE, 1)
            self.p.text(self.x - 7, y + 4, form.format(b), 11, PALE, "end")
        for a in ticks:
            x, _ = self.at(a, self.up[0])
            self.p.text(x, self.y + self.h + 16, f"{a:g}", 11, PALE, "middle")


def smoothed(values: list[float], n: int) -> list[float]:
    """The mean over the n values that end at each."""
    return [statistics.fmean(values[max(0, i + 1 - n):i + 1]) for i in range(len(values))]


def losses(path: str) -> dict[str, list[list[float]]]:
    """By recipe, a list for each seed: the losses of all steps."""
    runs: dict[str, dict[int, list[float]]] = {}
    with open(path, encoding="utf-8") as file:
        for record in map(json.loads, file):
            if record["event"] == "step":
                runs.setdefault(record["recipe"], {}).setdefault(record["seed"], []).append(record["loss"])
    return {recipe: list(seeds.values()) for recipe, seeds in runs.items()}


def band(plot: Plot, curves: list[list[float]], color: str, skip: int, dash: str = "") -> None:
    steps = range(skip, len(curves[0]), 4)
    by_step = [[c[i] for c in curves] for i in steps]
    plot.p.area([plot.at(i + 1, max(v)) for i, v in zip(steps, by_step)],
                [plot.at(i + 1, min(v)) for i, v in zip(steps, by_step)], color)
    plot.p.line([plot.at(i + 1, statistics.fmean(v)) for i, v in zip(steps, by_step)], color, 1.8, dash)


def loss(path: str) -> str:
    window = 20
    runs = {recipe: [smoothed(c, window) for c in curves] for recipe, curves in losses(path).items()}
    fp8, bf16 = runs[next(r for r in runs if r != "bf16")], runs["bf16"]
    name = next(r for r in runs if r != "bf16")
    steps, seeds = len(bf16[0]), len(bf16)
    p = Picture(860, 330, f"Loss of gpt.f8 under {name} and bf16, and their difference")
    p.text(20, 30, f"loss, nats a byte: mean of {seeds} seeds, band from the least to the most", 13, bold=True)
    left = Plot(p, 50, 46, 420, 236, (0, steps), (1.6, 3.2))
    left.axes([steps * k / 4 for k in range(5)], [1.6, 2.0, 2.4, 2.8, 3.2], "{:.1f}")
    band(left, bf16, GREY, 1)
    band(left, fp8, BLUE, 1, "5 3")
    for k, (color, words) in enumerate(((GREY, "bf16"), (BLUE, f"FP8, {name}"))):
        p.line([(330, 66 + 18 * k), (356, 66 + 18 * k)], color, 2.5, "5 3" if k else "")
        p.text(362, 70 + 18 * k, words, 12)
    p.text(530, 30, f"{name} less bf16, seed by seed", 13, bold=True)
    pairs = [[a - b for a, b in zip(x, y)] for x, y in zip(fp8, bf16)]
    mean = [statistics.fmean(c[i] for c in bf16) for i in range(steps)]
    spread = [[c[i] - mean[i] for i in range(steps)] for c in bf16]
    most = 0.04
    right = Plot(p, 560, 46, 280, 236, (0, steps), (-most, most))
    right.axes([steps * k / 4 for k in range(5)], [-most, -most / 2, 0, most / 2, most], "{:+.2f}")
    band(right, spread, GREY, 60)
    band(right, pairs, BLUE, 60, "5 3")
    p.text(570, 274, "grey: bf16's seeds around their mean", 11, PALE)
    p.text(20, 318, f"gpt.f8, 0.84 M parameters, on fp8c's own sources; each point is the mean of {window} steps. "
                    "On a CPU, which emulates FP8.", 12, PALE)
    return p.svg()


# ---- a report, as the page shows it ----

def records(folder: str) -> tuple[dict, list[dict], list[dict]]:
    with open(os.path.join(folder, "run.json"), encoding="utf-8") as file:
        run = json.load(file)
    with open(os.path.join(folder, "steps.jsonl"), encoding="utf-8") as file:
        lines = [json.loads(line) for line in file]
    return run, [r for r in lines if r["event"] == "step"], [r for r in lines if r["event"] == "stats"]


LEAST, MOST = 20, 34  # dB: the ends of the colours


def heat(sqnr: float | None) -> str:
    """Dark where the error is large."""
    if sqnr is None:
        return "#eef0f3"
    t = min(max((MOST - sqnr) / (MOST - LEAST), 0), 1)
    return "#%02x%02x%02x" % tuple(round(a + t * (b - a)) for a, b in zip((236, 243, 252), (160, 40, 10)))


def ends(rows: list[str]) -> list[str]:
    """The tensors of the first and of the last layer: there is no room for more."""
    layers = [row.split(".")[1] for row in rows]
    return [row for row, layer in zip(rows, layers) if layer in (layers[0], layers[-1])]


def report(folder: str) -> str:
    run, steps, stats = records(folder)
    stats = [r for r in stats if r["quantized"] and r["tensor"].count(".") > 2]
    rows = ends(sorted({r["tensor"] for r in stats}, key=lambda t: (t.rsplit(".", 1)[0], -ord(t[-1]))))
    columns = sorted({r["step"] for r in stats})
    cell = {(r["tensor"], r["step"]): r["sqnr"] for r in stats}
    high, bottom = 11, 76 + 11 * len(rows) + 14
    p = Picture(860, bottom + 62, "What fp8c report shows of a run")
    p.text(20, 32, "fp8c report", 16, bold=True)
    p.text(125, 32, f"{os.path.basename(os.path.normpath(folder))} · recipe {run['recipe']} · {len(steps)} steps · "
                    f"loss {statistics.fmean(s['loss'] for s in steps[-20:]):.4f} · "
                    f"{sum(s['skipped'] for s in steps)} steps skipped", 12.5, PALE)
    p.text(20, 62, "Loss", 13, bold=True)
    values = smoothed([s["loss"] for s in steps], 5)
    floor, ceiling = math.floor(min(values)), math.ceil(max(values))
    left = Plot(p, 50, 76, 290, bottom - 90, (0, len(steps)), (floor, ceiling))
    left.axes([0, len(steps) / 2, len(steps)], [float(k) for k in range(floor, ceiling + 1)])
    left.p.line([left.at(i + 1, v) for i, v in enumerate(values)], BLUE, 1.8)
    p.text(400, 62, "Tensors by steps: SQNR of operands, first and last layer", 13, bold=True)
    width = 300 / len(columns)
    for i, row in enumerate(rows):
        y = 76 + high * i
        p.text(526, y + 9, row, 9.5, INK, "end", mono=True)
        for k, step in enumerate(columns):
            p.add(f'<rect x="{534 + k * width:.1f}" y="{y}" width="{width - 0.6:.1f}" height="{high - 1}" '
                  f'fill="{heat(cell.get((row, step)))}"/>')
    p.text(534, bottom, f"step {columns[0]}", 11, PALE)
    p.text(834, bottom, f"step {columns[-1]}", 11, PALE, "end")
    for k in range(8):
        shade = heat(LEAST + k * (MOST - LEAST) / 7)
        p.add(f'<rect x="{620 + 14 * k}" y="{bottom + 8}" width="14" height="10" fill="{shade}"/>')
    p.text(614, bottom + 17, f"{LEAST} dB", 11, PALE, "end")
    p.text(738, bottom + 17, f"{MOST} dB", 11, PALE)
    p.text(20, bottom + 48, "The page also has amax, scale, underflow and more, memory by tensor, time by kernel, "
                            "and where two runs part.", 12, PALE)
    return p.svg()


def main(words: list[str]) -> int:
    pictures = {"pipeline": (pipeline, 0), "loss": (loss, 1), "report": (report, 1)}
    draw, n = pictures.get(words[0] if words else "", (None, -1))
    if draw is None or len(words) - 1 != n:
        print(__doc__.strip(), file=sys.stderr)
        return 2
    try:
        sys.stdout.write(draw(*words[1:]))
    except (OSError, KeyError, ValueError, StopIteration) as error:
        print(f"draw.py: error: {' '.join(words)}: {error!r}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
