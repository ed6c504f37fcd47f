"""Files of `fp8c tune` against others' readers: CSV by Python's csv, T4 by the schema that Kernel Tuner
ships, and both, run by run, against the JSON Lines. Medians and quartiles are computed anew.

usage: tune_files.py FP8C     the schema needs the packages kernel-tuner and jsonschema"""
import csv
import fractions
import importlib.metadata
import json
import os
import shlex
import subprocess
import sys
import tempfile

GEMMS = ("64x32x64:bf16", "32x48x128:f8e4m3:fprop:bias")
CACHES = ("warm", "cold")
PROCESSES = 2
# A figure is made of three operations, each rounded by 2^-53; one that is made of another has its error, too.
NEAR = 8 * 2.0 ** -53


def tune(fp8c, folder, arguments):
    """What the command writes: the file of each kind."""
    paths = {k: os.path.join(folder, "files." + k) for k in ("csv", "json", "t4", "markdown")}
    command = [fp8c, "tune", *arguments]
    for kind, path in paths.items():
        command += ["--" + kind, path]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          env={**os.environ, "FP8C_TUNING": os.path.join(folder, "tuning.db")})
    assert done.returncode == 0, f"{shlex.join(command)}: {done.returncode}\n{done.stdout}"
    return paths


def key(x):
    return x["problem"], x["cache"], x["candidate"]


def by_key(items):
    found = {key(x): x for x in items}
    assert len(found) == len(items), "a measurement is there twice"
    return found


def read_json(path):
    with open(path, encoding="utf-8") as f:
        return by_key([r for r in map(json.loads, f) if r["event"] == "timing"])


def read_csv(path):
    with open(path, encoding="utf-8", newline="") as f:
        rows = list(csv.DictReader(f, strict=True))
    assert all(None not in r and None not in r.values() for r in rows), "a row has more or fewer fields"
    return by_key(rows)


def quantile(seconds, quarter):
    """Between neighbours in proportion (type 7 of Hyndman, Fan 1996), and rounded once."""
    x = sorted(map(fractions.Fraction, seconds))
    at = fractions.Fraction(quarter * (len(x) - 1), 4)
    low = int(at)
    high = min(low + 1, len(x) - 1)
    return float(x[low] + (at - low) * (x[high] - x[low]))


def near(what, got, want):
    assert abs(got - want) <= NEAR * abs(want), f"{what}: {got!r}, not {want!r}"


def check_csv(row, record):
    runs = [p["seconds"] for p in record["processes"]]
    if record["state"] != "timed":
        assert not runs and row["seconds"] == row["median"] == "" and row["state"] == record["state"]
        assert row["reason"] == record["reason"]
        return 0
    assert [[float(s) for s in p.split(" ")] for p in row["seconds"].split(";")] == runs, "runs"
    assert row["process_ids"].split(";") == [p["process"] for p in record["processes"]]
    seconds = sorted(sum(runs, []))
    assert (int(row["runs"]), int(row["processes"])) == (len(seconds), len(runs))
    assert float(row["least"]) == seconds[0]
    for quarter, name in enumerate(("quartile_1", "median", "quartile_3"), 1):
        near(name, float(row[name]), quantile(seconds, quarter))
    assert row["same_bits"] == {True: "yes", False: "no", None: ""}[record["same_bits"]]
    assert (record["same_bits"] is None) == (row["kind"] == "peer"), "bits are of fp8c's ways alone"
    near("rate", float(row["rate"]), float(row["flops"]) / float(row["median"]))
    near("share", float(row["share"]), float(row["rate"]) / float(row["limit"]))
    near("intensity", float(row["intensity"]), float(row["flops"]) / float(row["bytes"]))
    assert float(row["flops"]) == 2 * int(row["m"]) * int(row["n"]) * int(row["k"])
    assert row["command"] == record["command"] and row["version"] and row["processor"]
    return len(seconds)


def check_t4(result, record):
    runs = sum((p["seconds"] for p in record["processes"]), [])
    assert result["times"]["runtimes"] == [1000 * s for s in runs], "runs"
    validity = {"timed": ("correct", "correctness"), "lacking": ("constraints",), "out of time": ("timeout",)}
    assert result["invalidity"] in validity[record["state"]]
    figures = {f["name"]: f["value"] for f in result["measurements"]}
    assert len(figures) == len(result["measurements"]), "a figure is there twice"
    if runs:
        near("median", figures["median"], quantile(runs, 2))
        assert result["objectives"] == ["median"] and "timestamp" in result
    return len(runs)


def check_schema(t4):
    """By Kernel Tuner's schema. The package is not imported: that would need all of its own."""
    import jsonschema
    name = "kernel_tuner/schema/T4/1.0.0/results-schema.json"
    path = next(f.locate() for f in importlib.metadata.files("kernel-tuner") if str(f) == name)
    with open(path, encoding="utf-8") as f:
        schema = json.load(f)
    validator = jsonschema.Draft202012Validator(schema)
    validator.validate(t4)
    wrong = json.loads(json.dumps(t4))
    del wrong["results"][0]["invalidity"]
    assert not validator.is_valid(wrong), "the schema finds nothing"


def check_markdown(path, records):
    with open(path, encoding="utf-8") as f:
        table = f.read().split("## Measurements\n\n")[1].splitlines()
    assert all(line[0] == line[-1] == "|" for line in table)
    assert len(table) == 2 + len(records), f"{len(table)} lines for {len(records)} measurements"


def check_command(fp8c, folder, record):
    """The row's command measures the same again."""
    words = shlex.split(record["command"])
    assert words[0] == "fp8c" and words[1] == "tune", words
    paths = tune(fp8c, folder, [*words[2:], "--processes", "1"])
    assert key(record) in read_json(paths["json"]), f"{record['command']} does not measure {key(record)}"


def main():
    fp8c = sys.argv[1]
    with tempfile.TemporaryDirectory() as folder:
        arguments = ["--cache", ",".join(CACHES), "--processes", str(PROCESSES), "--threads", "2", "--peers"]
        for g in GEMMS:
            arguments += ["--gemm", g]
        paths = tune(fp8c, folder, arguments)
        records, rows = read_json(paths["json"]), read_csv(paths["csv"])
        with open(paths["t4"], encoding="utf-8") as f:
            t4 = json.load(f)
        results = by_key([{**r["configuration"], **r} for r in t4["results"]])
        assert {k[:2] for k in records} == {(g, c) for g in GEMMS for c in CACHES}, records.keys()
        assert rows.keys() == records.keys() == results.keys()
        assert all(records[g, c, "model"]["state"] == "timed" for g in GEMMS for c in CACHES)
        runs = sum(check_csv(rows[k], records[k]) for k in records)
        assert runs and runs == sum(check_t4(results[k], records[k]) for k in records)
        check_markdown(paths["markdown"], records)
        check_command(fp8c, folder, records[GEMMS[0], "cold", "model"])
        by = "nobody looked at its schema"
        try:
            importlib.metadata.version("kernel-tuner")
            import jsonschema
        except ImportError:
            print("skipped: T4 against Kernel Tuner's schema: no Python here has it (PyPI: kernel-tuner, jsonschema; "
                  "make check-codecs installs them)")
        else:
            check_schema(t4)
            by = "its schema allows it"
        print(f"tune's files: {len(records)} measurements with {runs} runs, the same as CSV and as T4; {by}")


main()
