"""What `fp8c triage` finds: faults of nine causes, and healthy runs over all recipes.

usage: python3 bench/triage_mixed.py BUILD TEXT --faults N|--healthy N [--seed S] [--out DIR]
           [--json FILE] [--beside BUILD]

--faults N draws N faults over weights, moments, scales, histories, checkpoints, data, labels, rate
and epsilon. Every second one has no fingerprints. triage is asked about the step of the alarm, else
about the second step behind the fault. Only faults count that raise an alarm or change a recorded
number: others are drawn again. A verdict is right if its class is, and of data also the input and
the row. Without a fingerprint `transient` is right for damaged memory, too; and where no checkpoint
from before the fault is left, `state` with the variable's name. --beside names another build, which
triages the same folders. --healthy N triages N runs without a fault. Exits with 1 where a verdict
was wrong.
"""
import argparse
import array
import concurrent.futures
import pathlib
import random
import shutil
import struct
import sys

from triage_faults import (NEVER, RECIPES, ROWS, Campaign, Records, basic, batches, healthy, raised,
                           rows, save, write_npy)


def variable(draw, campaign, recipe, wanted):
    """One that update writes, with its number of elements."""
    fit = [v for v in campaign.values(recipe) if v["function"] == "update" and v["variable"]
           and wanted(v["variable"])]
    return draw.choice(sorted({(v["variable"], v["elements"]) for v in fit}))


def bit(campaign, draw, wanted, recipes=RECIPES):
    """A bit of an exponent, most often the highest: it makes a small number huge."""
    case = basic(draw, recipes)
    case |= {"steps": 32, "step": draw.randint(3, 30)}
    name, elements = variable(draw, campaign, case["recipe"], wanted)
    which = 30 if draw.random() < 0.6 else draw.randint(23, 29)
    once = draw.random() < 0.4 # by update, and not in memory before the step
    keys = ["kind=flip,function=update" if once else "kind=bit", f"value={name}",
            f"step={case['step']}", f"element={draw.randrange(elements)}", f"bit={which}"]
    return dict(case, fault=",".join(keys), right="transient" if once else "memory")


def is_weight(name):
    return name.endswith(".weight") and not name.startswith(("opt.", "grad."))


def columns(campaign, draw, zero, column):
    """Rows of floats; some columns of x are `zero`, but for one row, where they are `column`."""
    options = batches(campaign, draw, 1, "")
    path = campaign.out / options[1].split("=")[1]
    data = path.read_bytes()
    head = 10 + struct.unpack("<H", data[8:10])[0]
    x = array.array("f", data[head:])
    for row in range(1280):
        for k in range(0, 512, 37):
            x[row * 512 + k] = column if row % 100 == 7 else zero
    write_npy(path, (1280, 512), x)
    return options


def spoiled(campaign, draw, name):
    """Rows of floats; one row or four of x or of y are spoiled. Returns the options and the
    rows."""
    options = batches(campaign, draw, 1, "")
    path = campaign.out / options[1 if name == "x" else 3].split("=")[1]
    width = 512 if name == "x" else 64
    data = path.read_bytes()
    head = 10 + struct.unpack("<H", data[8:10])[0]
    x = array.array("f", data[head:])
    places = draw.sample(range(1152), draw.choice([1, 1, 1, 4]))
    value = draw.choice([1e3, 1e5, 1e5, 1e8, 1e30, 1e30, float("nan"), float("inf")])
    whole = draw.random() < 0.5 and value < 1e38
    for at in places:
        if whole:
            for k in range(width):
                x[at * width + k] *= value
        else:
            x[at * width + draw.randrange(width)] = value
    write_npy(path, (1280, width), x)
    return options, places, "data" if value < 1e38 else "input"


def spoiled_rows(campaign, draw, name):
    options, places, right = spoiled(campaign, draw, name)
    case = basic(draw, RECIPES)
    size = draw.choice([4, 8, 32])
    return dict(case, model="rows", steps=36, right=right, places=places, input=name,
                options=["-D", f"B={size}", "-D", f"onset={NEVER}", *options])


def mixed_rate(campaign, draw):
    case = basic(draw)
    return dict(case, step=None, steps=30, right="learning_rate",
                options=["--lr", str(draw.choice([1, 3, 10, 30, 100, 1000]))])


def mixed_epsilon(campaign, draw):
    """Features that are zero in nearly all rows, and an epsilon that is next to nothing."""
    eps, zero = draw.choice([("1e-46", 0.0), ("1e-30", 1e-26), ("1e-28", 1e-25)])
    text = pathlib.Path(ROWS[0]).read_text().replace("lr = 1e-2,", f"lr = 1e-2, eps = {eps},")
    path = campaign.out / f"epsilon-{eps}-{draw.randrange(1 << 30)}.f8"
    path.write_text(text)
    return dict(basic(draw), model=str(path), step=None, steps=36, right="epsilon", options=[
        "-D", "B=32", "-D", f"onset={NEVER}", *columns(campaign, draw, zero, 1.0)])


def edited(campaign, draw):
    """The checkpoint that a run goes on from is of another run: a bit of a weight was flipped in
    the step before it was written, so that the file's own checksum is right."""
    case = bit(campaign, draw, is_weight)
    keys = dict(pair.split("=") for pair in case["fault"].split(","))
    fault = (f"kind=flip,function=update,value={keys['value']},step=20,"
             f"element={keys['element']},bit=30")
    return dict(case, edit=fault, step=21, fault=None, right="memory")


def train_edited(campaign, folder, case, log):
    """Trains to step 20, takes the checkpoint of a run with a fault, and goes on."""
    part = dict(case, keep=[*case["keep"], "--stop-at", 20])
    campaign.train(folder, part)
    campaign.train(f"{folder}-other", part, case["edit"], log)
    name = "checkpoint-20.safetensors"
    shutil.copy(campaign.out / f"{folder}-other" / name, campaign.out / folder / name)
    shutil.rmtree(campaign.out / f"{folder}-other")
    campaign.run(campaign.clean, ["train", "--resume", folder, "--guard", case["keep"][-1]])
    return Records(campaign.out / folder)


MIXED = {
    "checkpoint": edited,
    "weight": lambda c, d: bit(c, d, is_weight),
    "moment": lambda c, d: bit(c, d, lambda n: n.startswith(("opt.m.", "opt.v."))),
    "scale": lambda c, d: bit(c, d, lambda n: n == "fp8.scale", ["delayed"]),
    "history": lambda c, d: bit(c, d, lambda n: n == "fp8.amax_history", ["delayed"]),
    "data": lambda c, d: spoiled_rows(c, d, "x"),
    "labels": lambda c, d: spoiled_rows(c, d, "y"),
    "rate": mixed_rate,
    "epsilon": mixed_epsilon,
}


def is_right(case, verdict):
    """Class, and what it must name."""
    if not verdict:
        return False
    if verdict["class"] == "state" and case.get("fault") and case["model"] == "gpt":
        # the checkpoints from before the fault are gone: what is left names the variable
        return verdict["checkpoint"] >= case["step"] and f"value={verdict['value']['value']}," \
            in case["fault"]
    if case["right"] == "memory": # it takes a fingerprint to tell it from another transient fault
        return verdict["class"] == "memory" or (
            verdict["class"] == "transient" and not case["fingerprints"])
    if verdict["class"] != case["right"]:
        return False
    row = verdict.get("row") or {}
    return "places" not in case or (row.get("place") in case["places"]
                                    and row.get("input") == case["input"])


def mixed_one(campaign, number, name, seed, beside):
    """Draws until a fault has an effect, asks triage, and compares."""
    draw = random.Random(seed)
    for attempt in range(20):
        case = dict(MIXED[name](campaign, draw), fingerprints=number % 2 == 0)
        every, keep = draw.choice([5, 10]), draw.choice([2, 3, 100])
        case["keep"] = ["--save-every", every, "--keep", keep,
                        *(draw.choice([[], [], ["--stats", "*", "--every", 2]])
                          if case["model"] == "gpt" else []), # weights that grow from 0 saturate
                        "--guard", draw.choice(["warn", "stop"])]
        folder = f"mixed-{number}-{attempt}"
        log = campaign.out / f"{folder}.log"
        if "edit" in case:
            records = train_edited(campaign, folder, case, log)
            if not records.warning: # no guard has kept the checkpoints from before
                case["keep"][3] = 100
                shutil.rmtree(campaign.out / folder)
                records = train_edited(campaign, folder, case, log)
            asked = records.warning or 21
            break
        records = campaign.train(folder, case, case.get("fault"), log)
        asked = records.warning
        if not asked and keep < 100: # no guard has kept the checkpoints from before
            case["keep"][3] = 100
            shutil.rmtree(campaign.out / folder)
            records = campaign.train(folder, case, case.get("fault"), log)
        if not asked and case.get("fault"):
            end = min(case["step"] + 2, case["steps"])
            asked = end if records.differ(campaign.reference(case), end) else None
        if asked:
            break
        shutil.rmtree(campaign.out / folder)
    else:
        sys.exit(f"bench/triage_mixed.py: {name}: no fault had an effect in 20")
    step = None if records.warning else asked
    verdict, said = campaign.triage(folder, step)
    result = {"name": name, "folder": folder, "case": case, "asked": asked, "drawn": attempt + 1,
              "alarm": records.warning is not None, "verdict": verdict, "said": said,
              "right": is_right(case, verdict), "step": None}
    if (case.get("fault") or "edit" in case) and verdict:
        result["step"] = verdict["step"] == case["step"]
    if beside:
        result["beside"], _ = campaign.triage(folder, step, program=beside)
        if result["beside"] and result["beside"]["class"] == "batch": # the former name
            result["beside"]["class"] = "data"
    return result


def mixed(campaign, given):
    """N faults, as many of each kind, as their order is drawn."""
    draw = random.Random(given.seed)
    names = [n for i in range(given.faults) for n in [list(MIXED)[i % len(MIXED)]]]
    draw.shuffle(names)
    beside = pathlib.Path(given.beside).resolve() / "fp8c" if given.beside else None
    jobs = [(i, n, draw.random(), beside) for i, n in enumerate(names)]
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        results = list(pool.map(lambda job: mixed_one(campaign, *job), jobs))
    print("| fault | " + ("right before | " if beside else "") + "right | step right |")
    print("| --- | " + ("--- | " if beside else "") + "--- | --- |")
    for name in [*MIXED, "all"]:
        own = [r for r in results if name in (r["name"], "all")]
        old = f"{sum(is_old_right(r) for r in own)} of {len(own)} | " if beside else ""
        steps = [r["step"] for r in own if r["step"] is not None]
        print(f"| {name} | {old}{sum(r['right'] for r in own)} of {len(own)} | "
              + (f"{sum(steps)} of {len(steps)} |" if steps else "- |"))
    for r in results:
        c, v, b = r["case"], r["verdict"] or {"class": "failed", "step": 0}, r.get("beside")
        what = c.get("edit") or c.get("fault") or f"{c['right']} " + " ".join(
            str(o).split("/")[-1] for o in c["options"] if not str(o).startswith("-D"))
        line = (f"{r['folder']} {r['name']} {c['recipe']} "
                f"{'' if c['fingerprints'] else 'no '}fingerprints [{what}] "
                f"{'alarm' if r['alarm'] else 'asked'} {r['asked']}: "
                + (f"before {b['class'] if b else 'failed'}, now " if beside else "")
                + f"{v['class']} in step {v['step']}")
        print(("right: " if r["right"] else "missed: ") + line
              + ("" if r["verdict"] else f"; {r['said'].strip()}"))
    return results


def is_old_right(result):
    """The former verdicts name no row."""
    case = {k: v for k, v in result["case"].items() if k != "places"}
    return is_right(case, result.get("beside"))


# ---- healthy runs ----

ALL = ["f32", "bf16", "delayed", "current", "rowwise", "rowwise_gw_hp", "block", "mxfp8", "fake"]


def many_healthy(draw, campaign, n):
    """Over all recipes, with and without fingerprints and statistics; some with a larger row."""
    for i in range(n):
        recipe = ALL[i % len(ALL)]
        case = rows(campaign, draw, [recipe], 3, "row") if i // len(ALL) % 2 else \
            dict(basic(draw, [recipe]), steps=40, step=draw.randint(2, 40))
        watch = ["--stats", "*"] if i % 3 == 0 else []
        yield dict(case, options=[*case["options"], *watch], seed=draw.randint(1, 1 << 30),
                   fingerprints=i % 2 == 0)


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("build")
    parser.add_argument("text", help="a text to train on")
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--faults", type=int, help="so many faults")
    what.add_argument("--healthy", type=int, help="so many healthy runs")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--beside", help="a build that triages the same folders")
    parser.add_argument("--out", default="build/triage_mixed")
    parser.add_argument("--json", help="the results go to this file")
    parser.set_defaults(without_fingerprints=False)
    return parser.parse_args()


def main():
    given = arguments()
    campaign, draw = Campaign(given), random.Random(given.seed)
    if given.faults:
        results = mixed(campaign, given)
        save(given, results, [])
        return not all(r["right"] for r in results)
    sound = list(enumerate(many_healthy(draw, campaign, given.healthy)))
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        fine = list(pool.map(lambda job: healthy(campaign, *job), sound))
    save(given, [], fine)
    return raised(fine)


if __name__ == "__main__":
    sys.exit(main())
