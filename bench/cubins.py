#!/usr/bin/env python3
"""Kernels as the GPU's instructions, without a GPU: what a compile for sm_90a or sm_89 made.

usage: python3 bench/cubins.py BUILD [--all] [--target sm_89] MODEL:RECIPE ...    such as gpt2_124m:delayed

For each kernel: registers, bytes of spills and of shared memory, occupancy, calls, instructions,
and its share of the bytes that the row kernels of micro_step read and write. `i/e` is the number of
instructions an element: those of a turn of the loop around all others, each inner loop counted by its
turns where its bound is a number and once where it is not, over the elements that a thread computes in
that turn. LDG.C counts loads by the read-only path. `ring` is the share of the rows' bytes that bulk copies
or other asynchronous copies bring, and `KiB/SM` what of them is under way on a multiprocessor while its warps
wait: the chunks of all rings of a block, times its resident blocks. Without --all only kernels
with at least 1% of the bytes, or with something amiss (!), are listed: a call in a row kernel, a
spill, or an occupancy below 50% with 1% of the bytes. Exits with 1 if anything is amiss. The batch
is 8. FP8C_NVDISASM names nvdisasm, which the Python package nvidia-cuda-nvdisasm has; otherwise it
is looked for in PATH.
"""
import json
import os
import re
import subprocess
import sys
import tempfile

# A multiprocessor, by target.
THREADS = {"sm_89": 1536, "sm_90a": 2048}
BLOCKS = {"sm_89": 24, "sm_90a": 32}
SHARED = {"sm_89": 102400, "sm_90a": 233472}
REGISTERS, RESERVED = 65536, 1024


def resident(target, registers, threads, shared):
    """Blocks that a multiprocessor has at once."""
    warps = (threads + 31) // 32
    of_warp = (registers * 32 + 255) // 256 * 256
    by_registers = REGISTERS // of_warp // 4 * 4 // warps
    by_shared = SHARED[target] // ((shared + RESERVED + 127) // 128 * 128)
    return min(by_registers, by_shared, BLOCKS[target], THREADS[target] // (32 * warps))


def by_ring(text):
    """Of the bytes that rows of the kernel are loaded from, the share that asynchronous copies bring."""
    size = {"f32": 4, "bf16": 2, "f16": 2, "i64": 8, "i32": 4}
    read = {b: size.get(t, 1) for b, t in re.findall(r"buffer (\d+): read (\w+) full", text)}
    copied = {b for n, b in re.findall(r"%(\d+)\.\d+ . full = load buffer (\d+)", text)
              if re.search(rf"f8_ring_copy<.*>\(.*\bg{n}\b", text)}
    return sum(n for b, n in read.items() if b in copied) / max(1, sum(read.values()))


def disassemble(cubin):
    """By symbol: the instructions, as (label or None, text)."""
    tool = os.environ.get("FP8C_NVDISASM", "nvdisasm")
    try:
        text = subprocess.run([tool, "-c", cubin], check=True, stdout=subprocess.PIPE,
                              text=True).stdout
    except FileNotFoundError:
        sys.exit(f"bench/cubins.py: there is no '{tool}'; pip install nvidia-cuda-nvdisasm, and "
                 "set FP8C_NVDISASM to its path")
    functions, code = {}, None
    for line in text.splitlines():
        start = re.match(r"\.text\.(\w+):", line)
        label = re.match(r"(\.L_\w+):", line)
        instruction = re.match(r"\s+/\*[0-9a-f]{4,}\*/\s+(.*?)\s*;", line)
        if start:
            code = functions.setdefault(start.group(1), [])
        elif label and code is not None:
            code.append((label.group(1), None))
        elif instruction and code is not None:
            code.append((None, instruction.group(1)))
    return functions


def operation(text):
    words = text.split()
    return words[1] if words[0].startswith("@") else words[0]


def is_way_out(lines, n):
    """On sm_89 a loop may end with a branch back, before which a CALL that never returns leaves it."""
    return operation(lines[n]) == "CALL.REL.NOINC" and operation((lines + ["NOP"])[n + 1]) == "BRA"


def trips(body):
    """Turns of a loop: its counter's bound over its step, which the branch at the end shows. Threads that
    share a loop of few turns make a part of one each: the counter begins below 0 then. 1: the bound is no
    number, as the rows of a block."""
    at = len(body) - (2 if len(body) > 1 and is_way_out(body, len(body) - 2) else 1)
    predicate, bound, counter = re.match(r"@!?(U?P\d)|", body[at]).group(1), None, None
    for at, text in reversed(list(enumerate(body[:at]))):
        words = re.split(r"[ ,]+", re.sub(r"\.reuse", "", text))
        if operation(text).startswith("PLOP3") and words[1] == predicate:
            predicate = next((w.lstrip("!") for w in words[2:] if w.lstrip("!").startswith("UP")), None)
        elif re.match(r"U?ISETP\.", operation(text)) and words[1] == predicate and ".EX" not in words[0]:
            counter, bound = words[3], words[4]
            break
    if not bound or not re.match(r"-?0x", bound):
        return 1
    for text in reversed(body[at:] + body[:at]):  # the last instruction that sets the counter
        step = re.search(rf"(?:IADD3|VIADD) {counter}, U?R\d+(?:\.reuse)?, (0x\w+)", text)
        number = int(bound, 16)
        if step and number + int(step.group(1), 16) > 0:  # else it is of a loop inside
            step = int(step.group(1), 16)
            return (number + step if number < 0 else number) / step
    return 1


def executed(code):
    """Instructions that a thread executes in one turn of the loop around all others, with each inner loop
    counted by its turns. Both ways of an `if` count."""
    at, lines, jumps, returns = {}, [], [], 0
    for label, text in code:
        if label:
            at[label] = len(lines)
        else:
            target = re.search(r"`\((\.L_\w+)\)", text)
            if target and operation(text).startswith("BRA"):
                jumps.append((len(lines), target.group(1)))
            if operation(text) == "EXIT":
                returns = len(lines)
            lines.append(text)
    ends = {}
    for of, to in jumps:  # what lies behind the last return are rare ways, which come back
        if to in at and at[to] < of and (of < returns or at[to] > returns):
            ends[at[to]] = max(of, ends.get(at[to], 0))
    whole = max(ends.items(), key=lambda loop: loop[1] - loop[0], default=(0, len(lines) - 1))

    def cost(begin, end):
        total, n = 0, begin
        while n <= end:
            if n in ends and ends[n] <= end and (n, ends[n]) != (begin, end):
                total += trips(lines[n:ends[n] + 1]) * cost(n, ends[n])
                n = ends[n] + 1
            else:
                total += 1
                n += 1
        return total

    return cost(*whole)


def elements(text):
    """Elements that a thread computes in that turn, by the loops of the printed kernel whose bounds are
    numbers. One that goes on where another has ended counts as whole, here and in `trips`."""
    most, depth, around = 1, 0, []
    for line in text.splitlines():
        loop = re.search(r"\bfor \(int (\w+) = (\w+); \1 < (\d+); \1(?:\+\+| \+= (\d+))\)", line)
        if loop and line.rstrip().endswith("{"):
            around.append((depth, int(loop.group(3)) / int(loop.group(4) or 1)))
        if loop and loop.group(1) == "e":
            inside = 1
            for _, turns in around:
                inside *= turns
            most = max(most, inside if line.rstrip().endswith("{") else inside * int(loop.group(3)))
        depth += line.count("{") - line.count("}")
        around = [(d, turns) for d, turns in around if d < depth]
    return most


def command(build, target, model, recipe, *arguments):
    subprocess.run([build + "/fp8c", *arguments[:1], f"frontend/models/{model}.f8", "-D", "B=8",
                    "--target", target, "--recipe", recipe, *arguments[1:]], check=True,
                   stdout=subprocess.DEVNULL)


def records(file, event):
    with open(file, encoding="utf-8") as lines:
        return [r for r in map(json.loads, lines) if r["event"] == event]


def bodies(file):
    """By symbol: the text of each kernel, from its description to the end of its body."""
    with open(file, encoding="utf-8") as f:
        parts = re.split(r"^F8_KERNEL\((\w+),.*$", f.read(), flags=re.M)
    before = [text.rpartition("\n/* ")[2] for text in parts[0::2]]
    return {symbol: head + body.split("\n}\n")[0]
            for symbol, head, body in zip(parts[1::2], before, parts[2::2])}


def look(build, target, model, recipe, folder):
    """A row for each kernel of a plan, those with most bytes first."""
    files = {n: f"{folder}/{n}" for n in ("cubin", "cuda", "report", "steps")}
    for what in ("cubin", "cuda"):
        command(build, target, model, recipe, "compile", "--emit", what, "-o", files[what])
    command(build, target, model, recipe, "compile", "--emit", "report", "--json", files["report"])
    command(build, target, model, recipe, "explain", "--kernels", "--json", files["steps"])
    moved = {}
    for s in records(files["steps"], "kernel"):
        if s["function"] == "micro_step" and s["kind"] == "kernel":
            moved[s["hash"]] = moved.get(s["hash"], 0) + s["bytes_read"] + s["bytes_written"]
    code, text, rows = disassemble(files["cubin"]), bodies(files["cuda"]), []
    for k in records(files["report"], "kernel"):
        lines = [t for _, t in code[k["symbol"]] if t]
        rows.append({
            "kernel": k["symbol"], "name": k["name"], "registers": k["registers"],
            "spills": k["spill_stores"] + k["spill_loads"],
            "shared": k["shared"] + k["shared_dynamic"],
            "blocks": resident(target, k["registers"], k["threads"], k["shared"] + k["shared_dynamic"]),
            "threads": k["threads"], "bulk": k["bulk"], "by_ring": by_ring(text[k["symbol"]]),
            "calls": sum(operation(t).startswith("CALL") and not is_way_out(lines, n)
                         for n, t in enumerate(lines)),
            "instructions": sum(operation(t) != "NOP" for t in lines),
            "constant_loads": sum("CONSTANT" in operation(t) for t in lines),
            "each": executed(code[k["symbol"]]) / elements(text[k["symbol"]]),
            "gelu": "f8_fn_gelu" in text[k["symbol"]],
            "share": moved.get(k["hash"], 0) / max(1, sum(moved.values()))})
    for r in rows:
        r["occupancy"] = r["blocks"] * ((r["threads"] + 31) // 32 * 32) / THREADS[target]
    return sorted(rows, key=lambda r: -r["share"])


def amiss(r):
    is_row = r["kernel"].startswith("rows_")
    return (is_row and r["calls"]) or r["spills"] or (r["share"] >= .01 and r["occupancy"] < .5)


def show(title, rows, everything):
    print(f"\n{title}\n{'kernel':27} regs spills shared  occ. calls instr. LDG.C   i/e bytes  "
          "ring KiB/SM  name")
    for r in rows:
        if everything or r["share"] >= .01 or amiss(r):
            print(f"{r['kernel']:27} {r['registers']:4} {r['spills']:6} {r['shared']:6} "
                  f"{r['occupancy']:4.0%} {r['calls']:5} {r['instructions']:6} "
                  f"{r['constant_loads']:5} {r['each']:5.1f} {r['share']:5.1%} {r['by_ring']:5.0%} "
                  f"{r['bulk'] * r['blocks'] // 1024:6}  {r['name']}"
                  f"{' (GELU)' if r['gelu'] else ''}{' !' if amiss(r) else ''}")
    own = [r for r in rows if r["kernel"].startswith("rows_")]
    print(f"{len(rows)} kernels, {len(own)} of rows: calls {sum(r['calls'] for r in own)}, "
          f"bytes of spills {sum(r['spills'] for r in rows)}, "
          f"instructions {sum(r['instructions'] for r in own)}, of 1% of the bytes and more: least "
          f"occupancy {min((r['occupancy'] for r in own if r['share'] >= .01), default=1):.0%}")


def main(arguments):
    everything = "--all" in arguments
    names, target = [a for a in arguments if a != "--all"], "sm_90a"
    if "--target" in names[:-1]:
        at = names.index("--target")
        target, names = names[at + 1], names[:at] + names[at + 2:]
    if len(names) < 2 or any(n.count(":") != 1 for n in names[1:]) or target not in THREADS:
        print(__doc__, file=sys.stderr)
        return 2
    bad = False
    for name in names[1:]:
        with tempfile.TemporaryDirectory() as folder:
            rows = look(names[0], target, *name.split(":"), folder)
        show(name, rows, everything)
        bad |= any(map(amiss, rows))
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
