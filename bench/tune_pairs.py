"""Whether the marks of `fp8c tune --diff` can be believed: pairs of measurements of one build, of
which as good as none may have a mark, or, with --planted, pairs of a build and one that computes a
tenth of k of one GEMM twice, of which each must have a mark at this GEMM and at no other.

usage: python3 bench/tune_pairs.py BUILD [--planted] [--alternate] [--pairs 20] [--processes 20]
           [--runs 21] [--threads N] [--cache cold] [--gemms FILE] [--out DIR]

A pair is two calls of `fp8c tune`, one after the other, which have nothing in common. The slower
build, BUILD/tests/fp8c_slow_gemm (tests/faults/slow_gemm.c), is B; in every second pair it runs
first. With --alternate the processes of A and B take turns, so that both see the same machine.
Records stay in DIR, and what is there is not measured again: the same call goes on, and another
BUILD compares the records of this one. Exits with 1 where a bar does not hold: without --planted a
mark in more than one pair of 20, with it anything but the planted mark in any pair.
"""
import argparse
import json
import math
import os
import pathlib
import statistics
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
PLANTED = "64x1024x1024"


def run(words, **more):
    done = subprocess.run([str(w) for w in words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True, env={**os.environ, **more}, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, words))}: exit status {done.returncode}\n{done.stdout}")


def records(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def tune(given, path, slow, database, *more):
    """Measures into a file of records, which is whole or not there."""
    part = path.with_suffix(".part")
    program = given.build / ("tests/fp8c_slow_gemm" if slow else "fp8c")
    run([program, "tune", "--gemm-file", given.gemms, "--model-only", "--processes",
         given.processes, "--runs", given.runs, "--cache", given.cache, "--database", database,
         *(["--threads", given.threads] if given.threads else []), "--json", part, *more],
        **({"FP8C_TEST_SLOW_GEMM": PLANTED} if slow else {}))
    part.rename(path)


def measure(given, side, kind, i):
    """The two files of a pair, as far as they are not there."""
    order = [1, 0] if given.planted and i % 2 else [0, 1]
    slow = [False, given.planted]
    if not given.alternate:
        for b in order:
            if not side[b].exists():
                tune(given, side[b], slow[b], given.out / "tuning.db", "--again")
        return
    if all(path.exists() for path in side):
        return
    database = [given.out / f"{kind}-{i:02}-{x}.db" for x in "ab"]
    for path in database:
        path.unlink(missing_ok=True)
    last = [path.with_suffix(".last") for path in side]
    for process in range(given.processes):  # each writes what came before it, too
        for b in order if process % 2 else order[::-1]:
            tune(given, last[b], slow[b], database[b], "--process", process + 1, "--since", 1)
    for b in (0, 1):
        last[b].rename(side[b])
        database[b].unlink()


def compare(given, a, b):
    """The records of a diff, but for those of progress."""
    path = given.out / "diff.jsonl"
    path.unlink(missing_ok=True)
    run([given.build / "fp8c", "tune", "--diff", a, "--diff", b, "--json", path])
    found = records(path)
    return [r for r in found if r["event"] == "change"], [r for r in found if r["event"] == "diff"][0]


def load_of(path):
    return max(r["load"] for r in records(path) if r["event"] == "process")


def judge(changes, planted):
    """What is wrong with a pair; an empty list: nothing."""
    wrong = []
    for c in changes:
        wanted = planted and c["problem"].startswith(PLANTED + ":")
        if c["p"] is None:
            wrong.append(f"{c['problem']}: no interval")
        elif wanted and not (c["marked"] and c["ratio"] > 1):
            wrong.append(f"{c['problem']}: the planted {c['ratio']:.3f} ({c['low']:.3f} to "
                         f"{c['high']:.3f}) has no mark")
        elif c["marked"] and not wanted:
            wrong.append(f"{c['problem']}: {c['ratio']:.3f} ({c['low']:.3f} to {c['high']:.3f}) has "
                         "a mark")
    return wrong


def pair(given, i):
    """Measures and compares pair i, and says so. Returns its changes and what is wrong."""
    kind = ("planted" if given.planted else "same") + ("-alternate" if given.alternate else "")
    side = [given.out / f"{kind}-{i:02}-{x}.jsonl" for x in "ab"]
    begin = time.monotonic()
    measure(given, side, kind, i)
    seconds = time.monotonic() - begin
    changes, whole = compare(given, *side)
    wrong = judge(changes, given.planted)
    found = [c for c in changes if c["problem"].startswith(PLANTED + ":")]
    drift = (f"; the machine's {whole['drift_of']} differs by {100 * whole['drift']:.0f}%"
             if whole["drift_of"] else "")
    planted = "".join(f"; planted {c['ratio']:.3f} ({c['low']:.3f} to {c['high']:.3f})"
                      for c in found if given.planted)
    print(f"pair {i}: {whole['marked']} of {whole['changes']} marked, geometric mean "
          f"{whole['mean']:.3f}, load at most {max(map(load_of, side)):.1f}, {seconds:.0f} s"
          f"{drift}{planted}", flush=True)
    for line in wrong:
        print(f"    {line}", flush=True)
    return changes, wrong


def summary(pairs, planted):
    """How far ratios are from 1, and how often intervals do not hold it."""
    all_changes = [c for changes in pairs for c in changes
                   if c["p"] is not None and not (planted and c["problem"].startswith(PLANTED))]
    if not all_changes:
        return
    outside = sum(not c["low"] <= 1 <= c["high"] for c in all_changes)
    far = [abs(math.log(c["ratio"])) for c in all_changes]
    half = [math.log(c["high"] / c["low"]) / 2 for c in all_changes]
    print(f"{len(all_changes)} ratios that should be 1: {outside} outside of their interval of 95% "
          f"({100 * outside / len(all_changes):.1f}%), off by {100 * statistics.median(far):.1f}% in "
          f"the median and {100 * max(far):.1f}% at most; intervals are +-"
          f"{100 * statistics.median(half):.1f}% wide in the median")


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    p.add_argument("build", type=pathlib.Path)
    p.add_argument("--planted", action="store_true")
    p.add_argument("--alternate", action="store_true")
    p.add_argument("--pairs", type=int)
    p.add_argument("--runs", type=int, default=21)
    p.add_argument("--processes", type=int, default=20)
    p.add_argument("--threads", type=int)
    p.add_argument("--cache", default="cold")
    p.add_argument("--gemms", type=pathlib.Path, default=ROOT / "bench/pairs.csv")
    p.add_argument("--out", type=pathlib.Path)
    given = p.parse_args()
    given.out = given.out or given.build / "tune-pairs"
    given.out.mkdir(parents=True, exist_ok=True)
    n = given.pairs or (10 if given.planted else 20)
    pairs, bad = [], 0
    for i in range(n):
        changes, wrong = pair(given, i)
        pairs.append(changes)
        bad += bool(wrong)
    summary(pairs, given.planted)
    most = 0 if given.planted else n // 20
    print(f"{n - bad} of {n} pairs as they should be; at most {most} may not be: "
          f"{'holds' if bad <= most else 'DOES NOT HOLD'}")
    return bad > most


if __name__ == "__main__":
    sys.exit(main())
