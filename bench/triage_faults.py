"""What `fp8c triage` finds: random faults are put into small training runs, and its verdict is
compared with what really happened.

usage: python3 bench/triage_faults.py BUILD TEXT [--seed S] [--each N] [--only CLASS,...]
           [--without-fingerprints] [--out DIR] [--json FILE]

Each fault is a training by BUILD/tests/fp8c_faulty (tests/faults/README.md) on TEXT, and one of the
same seed without the fault, which shows whether the fault had an effect on a loss or a gradient
norm. Those that had none are counted apart. triage is asked about the step of the record's first
warning, else about the second step behind the fault, as a user would. Then 24 healthy runs are
triaged. Folders of what went wrong stay in DIR. Exits with 1 where a class was wrong.
"""
import argparse
import array
import concurrent.futures
import json
import os
import pathlib
import random
import re
import shutil
import struct
import subprocess
import sys
import threading

ROOT = pathlib.Path(__file__).resolve().parents[1]
GPT = [str(ROOT / "frontend/models/gpt.f8"), *"-D L=1 -D C=64 -D T=64 -D B=4 -D H=2".split()]
ROWS = [str(ROOT / "tests/models/outliers.f8")]
RECIPES = ["bf16", "delayed", "current", "rowwise", "block"]
STEPS, SAVE_EVERY, NEVER = 14, 5, 1000000
CODES = ("f8e4m3", "f8e5m2")
BITS = {"f32": 32, "bf16": 16, "f16": 16, "f8e4m3": 8, "f8e5m2": 8, "i32": 32, "bool": 1}


class Campaign:
    """The programs, the folder, and what every fault shares."""

    def __init__(self, given):
        build = pathlib.Path(given.build).resolve()
        self.clean, self.faulty = build / "fp8c", build / "tests/fp8c_faulty"
        self.text, self.out = pathlib.Path(given.text).resolve(), pathlib.Path(given.out).resolve()
        self.fingerprints = [] if given.without_fingerprints else ["--fingerprint-every", "1"]
        self.lock, self.listed, self.healthy = threading.Lock(), {}, {}
        shutil.rmtree(self.out, ignore_errors=True)
        self.out.mkdir(parents=True)

    def run(self, program, words, fault=None, log=None, values=False, ranks=1):
        job = ["mpirun", "-n", str(ranks)] if ranks > 1 else []
        env = dict(os.environ, FP8C_CACHE_DIR=str(self.out / "cache"))
        env.update({"FP8C_FAULT": fault} if fault else {})
        env.update({"FP8C_FAULT_LOG": str(log)} if log else {})
        env.update({"FP8C_FAULT_LIST": "1"} if values else {})
        return subprocess.run([*job, program, *map(str, words)], env=env, cwd=self.out, text=True,
                              capture_output=True, check=False)

    def model(self, name):
        return {"gpt": [*GPT, "--data", self.text], "rows": ROWS}.get(name) or [name]

    def values(self, recipe):
        """What the functions of a training write, by function."""
        with self.lock:
            if recipe not in self.listed:
                words = ["train", *self.model("gpt"), "--recipe", recipe]
                lines = self.run(self.faulty, words, values=True).stdout.splitlines()
                self.listed[recipe] = [json.loads(line) for line in lines]
            return self.listed[recipe]

    def train(self, folder, case, fault=None, log=None):
        words = ["train", *self.model(case["model"]), *case["options"], "--recipe", case["recipe"],
                 "--seed", case["seed"], "--steps", case["steps"], "--run", folder,
                 *case.get("keep", ["--save-every", SAVE_EVERY, "--keep", 100])]
        words += self.fingerprints if case.get("fingerprints", True) else []
        words += ["--threads", 1] if case["ranks"] > 1 else []
        done = self.run(self.faulty, words, fault, log, ranks=case["ranks"])
        if not (self.out / folder / "steps.jsonl").exists():
            sys.exit(f"bench/triage_faults.py: {folder}: {done.stderr.strip()}")
        return Records(self.out / folder)

    def reference(self, case):
        """The records of the same training without a fault."""
        key = json.dumps([case["model"], case["options"], case["recipe"], case["seed"],
                          case["steps"], case["ranks"], case.get("fingerprints")], default=str)
        with self.lock:
            if key not in self.healthy:
                self.healthy[key] = self.train(f"healthy-{len(self.healthy)}", case)
            return self.healthy[key]

    def triage(self, folder, step=None, fault=None, ranks=1, program=None):
        words = ["triage", folder, "--json", "-", *(["--step", step] if step else [])]
        done = self.run(program or self.faulty, words, fault, ranks=ranks)
        lines = done.stdout.splitlines()
        return (json.loads(lines[-1]) if done.returncode == 0 and lines else None), done.stderr


class Records:
    """A run's steps.jsonl."""

    def __init__(self, folder):
        self.step, self.warning = {}, None
        for line in (folder / "steps.jsonl").read_text().splitlines():
            record = json.loads(line)
            if record["event"] == "step":
                bits = record["loss_hex"], record.get("grad_norm_hex")
                self.step[record["step"]] = bits
                if any(b and ("nan" in b or "inf" in b) for b in bits) and not self.warning:
                    self.warning = record["step"]
            elif record["event"] == "warning" and not self.warning:
                self.warning = record["step"]
                if record.get("kind") == "loss_explodes": # the first far loss may be earlier
                    self.warning = min(record["since"] + 1, record["step"])

    def differ(self, other, until):
        """The first step with other bits, up to one."""
        return next((s for s in sorted(self.step) if s <= until
                     and self.step[s] != other.step.get(s)), None)


# ---- drawing faults ----


def basic(draw, recipes=RECIPES):
    return {"model": "gpt", "options": [], "recipe": draw.choice(recipes), "when": "once",
            "ranks": 1, "seed": draw.randint(1, 3), "steps": STEPS,
            "step": draw.randint(3, STEPS - 2)}


def choose(campaign, draw, case, wanted, named=False):
    """One of the values that the training writes. named: the first of its name, which other recipes
    may have, too."""
    values = campaign.values(case["recipe"])
    first = {}
    for v in values:
        first.setdefault((v["function"], v["value"]), v["index"])
    fit = [v for v in values if wanted(v)
           and (not named or first[v["function"], v["value"]] == v["index"])]
    return draw.choice(fit)


def put(campaign, case, value, kind, *more, named=False):
    """The text of FP8C_FAULT."""
    function = value["function"]
    name = value["value"] if named else f"#{value['index']}"
    keys = [f"kind={kind}", f"function={function}", f"value={name}", f"step={case['step']}", *more]
    keys += ["when=always"] if case["when"] == "always" else []
    if case["when"] == "always" and case["recipe"] != "bf16" and not any(
            v["function"] == function and v["value"] == name for v in campaign.values("bf16")):
        keys.append(f"recipe={case['recipe']}")
    case["fault"] = ",".join(keys)
    return case


def flip(campaign, draw, wanted):
    case = basic(draw)
    if wanted is is_code and case["recipe"] == "bf16":
        case["recipe"] = draw.choice(RECIPES[1:])
    v = choose(campaign, draw, case, wanted)
    return put(campaign, case, v, "flip", f"element={draw.randrange(v['elements'])}",
               f"bit={draw.randrange(BITS.get(v['dtype'], 8))}")


def is_step(v):
    return v["function"] == "micro_step" and v["dtype"] not in CODES and v["dtype"] in BITS


def is_code(v):
    return v["function"] == "micro_step" and v["dtype"] in CODES


def is_update(v):
    return v["function"] == "update" and v["dtype"] in BITS


def corrupt(campaign, draw, when):
    case = dict(basic(draw), when=when)
    v = choose(campaign, draw, case, lambda v: is_step(v) or is_update(v) or is_code(v), True)
    most = max(v["elements"] - 64, 1)
    return put(campaign, case, v, "corrupt", f"element={draw.randrange(most)}", named=True)


def gemm(campaign, draw, when, recipes=RECIPES):
    case = dict(basic(draw, recipes), when=when)
    v = choose(campaign, draw, case, lambda v: v["function"] == "micro_step" and v["gemm"], True)
    return put(campaign, case, v, "gemm", f"factor={draw.choice(['1.5', '4', '-1', '100'])}",
               named=True)


def rank(campaign, draw):
    """A persistent fault on one of four ranks, under rowwise and in a GEMM that bf16 has, too."""
    case = gemm(campaign, draw, "always", ["rowwise"])
    case |= {"ranks": 4, "options": ["-D", "B=8"], "rank": draw.randrange(4)}
    return dict(case, fault=f"{case['fault']},rank={case['rank']}")


def stale(campaign, draw):
    """The history and the scales of delayed, or another variable that update writes."""
    case = dict(basic(draw), when=draw.choice(["once", "always"]))
    variables = {v["variable"] for v in campaign.values(case["recipe"])
                 if v["function"] == "update" and v["variable"]}
    fp8 = sorted(v for v in variables if v.startswith("fp8."))
    name = draw.choice(fp8 or sorted(variables))
    keys = ["kind=stale", "function=update", f"value={name}", f"step={case['step']}"]
    if case["when"] == "always":
        keys += ["when=always", f"recipe={case['recipe']}"]
    return dict(case, fault=",".join(keys))


def zero(campaign, draw):
    case = dict(basic(draw), when=draw.choice(["once", "always"]))
    names = {v["variable"] for v in campaign.values(case["recipe"])
             if v["function"] == "micro_step" and (v["variable"] or "").startswith("grad.")}
    name = draw.choice(sorted(names))[len("grad."):]
    keys = ["kind=zero", f"value={name}", f"step={case['step']}"]
    return dict(case, fault=",".join(keys + ["when=always"] * (case["when"] == "always")))


def inf(campaign, draw):
    case = basic(draw)
    v = choose(campaign, draw, case, lambda v: v["function"] == "update" and v["variable"]
               and v["variable"].endswith((".weight", ".bias"))
               and not v["variable"].startswith(("grad.", "opt.")))
    keys = ["kind=inf", f"value={v['variable']}", f"step={case['step']}",
            f"element={draw.randrange(v['elements'])}"]
    return dict(case, fault=",".join(keys))


def damaged(campaign, draw):
    """The newest checkpoint before the step has another byte; alone, or beside another fault."""
    case = gemm(campaign, draw, "once") if draw.random() < 0.6 else basic(draw)
    while case["step"] < SAVE_EVERY: # else there is only one
        case = gemm(campaign, draw, "once")
    return dict(case, byte=draw.random())


def batches(campaign, draw, value, bad):
    """Rows of floats, one of them bad."""
    name = f"rows-{value}-{bad}-{draw.randrange(1 << 30)}"
    rows = random.Random(7)
    x = [[rows.gauss(0, 1) for _ in range(512)] for _ in range(1280)]
    take = [[rows.randrange(512) for _ in range(8)] for _ in range(64)]
    y = [sum(row[k] for k in of) / 8 ** .5 for row in x for of in take]
    at = draw.randrange(1280 * 9 // 10)
    if bad == "row":
        x[at] = [value * v for v in x[at]]
    elif bad == "element":
        x[at][draw.randrange(512)] = value
    write_npy(campaign.out / f"{name}-x.npy", (1280, 512), [v for row in x for v in row])
    write_npy(campaign.out / f"{name}-y.npy", (1280, 64), y)
    return ["--batch", f"x={name}-x.npy", "--batch", f"y={name}-y.npy"]


def write_npy(path, shape, values):
    head = f"{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}, }}"
    head += " " * (-(len(head) + 11) % 64) + "\n"
    with open(path, "wb") as f:
        f.write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head.encode())
        array.array("f", values).tofile(f)


def rows(campaign, draw, recipes, value, bad, onset=NEVER, size=32, steps=36):
    return dict(basic(draw, recipes), model="rows", steps=steps, options=[
        "-D", f"B={size}", "-D", f"onset={onset}", *batches(campaign, draw, value, bad)])


def nan_in_file(campaign, draw):
    return rows(campaign, draw, RECIPES, float("nan"), "element")


def nan_in_memory(campaign, draw):
    case = rows(campaign, draw, RECIPES, 1, "")
    keys = ["kind=nan", "value=x", f"step={case['step']}", f"element={draw.randrange(32 * 512)}"]
    return dict(case, fault=",".join(keys))


def bad_batch(campaign, draw):
    return rows(campaign, draw, RECIPES, 1000, "row")


def rate(campaign, draw):
    case = basic(draw)
    return dict(case, step=None, steps=40, options=["--lr", str(draw.choice([1, 2, 3]))])


def outliers(campaign, draw):
    onset = draw.randint(56, 70)
    case = rows(campaign, draw, ["delayed", "current", "rowwise"], 1, "", onset, 128, onset + 10)
    return dict(case, step=onset)


CLASSES = {  # how one is drawn, and the verdict that is right
    "flip: activation, gradient": (lambda c, d: flip(c, d, is_step), "transient"),
    "flip: FP8 code": (lambda c, d: flip(c, d, is_code), "transient"),
    "flip: state, in update": (lambda c, d: flip(c, d, is_update), "transient"),
    "output of a kernel, once": (lambda c, d: corrupt(c, d, "once"), "transient"),
    "output of a kernel, always": (lambda c, d: corrupt(c, d, "always"), "persistent"),
    "element of a GEMM, once": (lambda c, d: gemm(c, d, "once"), "transient"),
    "element of a GEMM, always": (lambda c, d: gemm(c, d, "always"), "persistent"),
    "element of a GEMM, always, on one of 4 ranks": (rank, "persistent"),
    "stale history or state": (stale, "by when"),
    "gradient is zero": (zero, "by when"),
    "Inf in a parameter": (inf, "memory"),
    "NaN in the data's file": (nan_in_file, "input"),
    "NaN in an input, once": (nan_in_memory, "transient"),
    "a row of the data 1000 times too large": (bad_batch, "data"),
    "checkpoint damaged": (damaged, "by fault"),
    "learning rate too high": (rate, "learning_rate"),
    "outliers": (outliers, "fp8"),
}

# ---- one fault ----


def truth_of(case, log, right):
    """What happened: the verdict, the step, and the names that are right."""
    events = [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []
    if right == "by when":
        right = "transient" if case["when"] == "once" else "persistent"
    if right == "by fault":
        right = "transient" if events else "healthy"
    truth = {"class": right, "events": [e for e in events if e["step"] == events[0]["step"]]}
    if events:
        truth["step"] = events[0]["step"]
    return truth


def damage_file(path, where):
    data = bytearray(path.read_bytes())
    at = int(where * len(data))
    data[at] ^= 1 << (at % 8)
    path.write_bytes(data)
    return at


def newest_before(folder, step):
    found = [int(re.search(r"-(\d+)\.", p.name)[1]) for p in folder.glob("checkpoint-*")]
    return max(s for s in found if s < step)


def is_place_right(case, truth, verdict):
    """Function, op and value. None: the fault has no place in the plan."""
    value = verdict["value"] or {"function": "", "op": "", "value": ""}
    if truth["class"] == "fp8":
        return value["value"].startswith(("fc.x", "fc.w"))
    if truth["class"] == "input":
        return value["value"] == "x"
    if truth["class"] == "memory":
        return value["value"] == truth["events"][0]["variable"]
    if truth["class"] not in ("transient", "persistent"):
        return None
    if case["fault"].startswith("kind=nan"): # the first that reads it has other bits
        return value["function"] == "micro_step"
    return any(value["function"] == e["function"] and value["op"] == e["of"]
               and value["value"] == e["value"] for e in truth["events"])


def heals(campaign, case, folder, verdict):
    """Whether the run is good under the recipe of the advice, from the replay's checkpoint on."""
    recipe = re.search(r"--recipe (\w+)", verdict["advice"])
    if not recipe:
        return False
    copy = campaign.out / f"{folder}-healed"
    shutil.copytree(campaign.out / folder, copy)
    for path in copy.glob("checkpoint-*"):
        if int(re.search(r"-(\d+)\.", path.name)[1]) > verdict["checkpoint"]:
            path.unlink()
    campaign.run(campaign.clean, ["train", "--resume", copy, "--recipe", recipe[1]])
    healed = Records(copy)
    return len(healed.step) == case["steps"] and not healed.warning


def one(campaign, name, number, case, right):
    """Trains with a fault, asks triage, and compares."""
    folder = re.sub(r"[^a-z0-9]+", "-", name.lower()) + f"-{number}"
    log = campaign.out / f"{folder}.log"
    fault, result = case.get("fault"), {"name": name, "folder": folder, "case": case}
    records = campaign.train(folder, case, fault, log)
    truth = truth_of(case, log, right)
    if fault or right == "by fault":
        asked = records.warning or min(case["step"] + 2, case["steps"])
        healthy = campaign.reference(case)
        result["effect"] = records.differ(healthy, asked) is not None
    else: # what the training itself shows
        asked = records.warning
        result["effect"] = asked is not None
        truth["step"] = case["step"] if right == "fp8" else asked
        if not asked:
            return dict(result, truth=truth, verdict=None, right=None)
    if "byte" in case:
        newest = campaign.out / folder / f"checkpoint-{newest_before(campaign.out / folder, asked)}"
        damage_file(newest.with_suffix(".safetensors"), case["byte"])
    again = fault if case["when"] == "always" else None
    verdict, said = campaign.triage(folder, None if records.warning else asked, again,
                                    case["ranks"])
    result |= {"truth": truth, "asked": asked, "verdict": verdict, "said": said}
    if not verdict:
        return dict(result, right={"class": False, "step": False, "place": False})
    step = truth.get("step", asked)
    good = {"class": verdict["class"] == truth["class"], "step": verdict["step"] == step,
            "place": is_place_right(case, truth, verdict)}
    if "rank" in case:
        good["rank"] = verdict["rank"] == case["rank"]
        good["bf16"] = "Under bf16 it is wrong, too." in verdict["text"]
    if "byte" in case:
        good["said"] = "passed over" in said
    if truth["class"] == "fp8":
        good["heals"] = heals(campaign, case, folder, verdict)
    return dict(result, right=good)


# ---- healthy runs ----


def healthy_cases(campaign, draw):
    """Every recipe, in its warm-up and later; and data with rows that make the loss jump."""
    for recipe in RECIPES + ["mxfp8", "rowwise_gw_hp"]:
        for seed in (11, 12):
            yield dict(basic(draw, [recipe]), seed=seed, steps=40, step=draw.randint(2, 40))
    for recipe in RECIPES:
        for seed in (11, 12):
            yield dict(rows(campaign, draw, [recipe], 3, "row"), seed=seed)


def healthy(campaign, number, case):
    folder = f"sound-{number}"
    records = campaign.train(folder, case)
    losses = [float.fromhex(records.step[s][0]) for s in sorted(records.step)]
    jump = max(range(1, len(losses)), key=lambda i: losses[i] - losses[i - 1]) + 1
    asked = jump if case["model"] == "rows" else case["step"]
    verdict, said = campaign.triage(folder, asked)
    return {"folder": folder, "case": case, "warning": records.warning, "verdict": verdict,
            "said": said, "right": not records.warning and verdict is not None
            and verdict["class"] == "healthy"}


# ---- the outcome ----


def share(results, key):
    known = [r["right"][key] for r in results if r["right"] and r["right"].get(key) is not None]
    return f"{sum(known)} of {len(known)}" if known else "-"


def table(results):
    print("| fault | with effect | class right | step right | op and value right "
          "| without effect: class right | op and value right |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for name in [*CLASSES, "all"]:
        own = [r for r in results if name in (r["name"], "all")]
        seen, unseen = [r for r in own if r["effect"]], [r for r in own if not r["effect"]]
        if own:
            print(f"| {name} | {len(seen)} | {share(seen, 'class')} | {share(seen, 'step')} | "
                  f"{share(seen, 'place')} | {share(unseen, 'class')} | {share(unseen, 'place')} |")
    for key, what in {"rank": "the rank was right", "bf16": "its fault was found under bf16, too",
                      "said": "the damaged checkpoint was named",
                      "heals": "the run is good under the recipe of the advice"}.items():
        print(f"{what}: {share(results, key)}")


def misses(results):
    for r in results:
        if r["right"] and False in r["right"].values():
            v = r["verdict"] or {"class": "failed", "step": 0, "value": None}
            truth = [(e["function"], e["of"], e["value"]) for e in r["truth"]["events"]]
            effect = "" if r["effect"] else ", without effect"
            print(f"missed: {r['folder']} ({r['case']['recipe']}, step {r['asked']} asked{effect}):"
                  f" {v['class']} in step {v['step']} {v['value']}; true: {r['truth']['class']} in "
                  f"step {r['truth'].get('step')} {truth}"
                  + (f"; {r['said'].strip()}" if not r["verdict"] else ""))


def raised(fine):
    """Says which healthy runs were accused. Returns whether any was."""
    print(f"healthy runs: nothing raised in {sum(r['right'] for r in fine)} of {len(fine)}\n")
    for r in fine:
        if not r["right"]:
            print(f"raised: {r['folder']} {r['case']}: warning {r['warning']}, verdict "
                  f"{r['verdict'] and r['verdict']['class']} {r['said'].strip()}")
    return not all(r["right"] for r in fine)


def save(given, faults, fine):
    if given.json:
        with open(given.json, "w", encoding="utf-8") as f:
            json.dump({"seed": given.seed, "faults": faults, "healthy": fine}, f, default=str)


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("build")
    parser.add_argument("text", help="a text to train on")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--each", type=int, default=5, help="faults of each class (5)")
    parser.add_argument("--only", help="these classes: parts of their names, with commas")
    parser.add_argument("--without-fingerprints", action="store_true")
    parser.add_argument("--out", default="build/triage_faults")
    parser.add_argument("--json", help="the results go to this file")
    return parser.parse_args()


def main():
    given = arguments()
    campaign, draw = Campaign(given), random.Random(given.seed)
    jobs = []
    for name, (make, right) in CLASSES.items():
        own = random.Random(draw.random()) # so that a class alone draws the same
        if not given.only or any(part in name for part in given.only.split(",")):
            jobs += [(name, i, make(campaign, own), right) for i in range(given.each)]
    sound = [] if given.only else list(enumerate(healthy_cases(campaign, draw)))
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        results = list(pool.map(lambda job: one(campaign, *job), jobs))
        fine = list(pool.map(lambda job: healthy(campaign, *job), sound))
    table(results)
    misses(results)
    if fine:
        raised(fine)
    save(given, results, fine)
    return any(r["right"] and not r["right"]["class"] for r in results if r["effect"])


if __name__ == "__main__":
    sys.exit(main())
