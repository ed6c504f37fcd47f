"""Plants changes in the code that makes kernels and in the table of op forms, and shows which tests find each.

usage: tests/planted_kernels.py BUILD [--seed N] [--draws N] [--first N] [--forms]
       (make check-kernels; CC, CFLAGS, LINK: what the Makefile gives; --draws: how many changes, 60; --first: the
       draw to begin with; --forms: of the table alone)

Changes of an operator, a constant or a bound are drawn from the lines of codegen/kernel, codegen/cpu and
codegen/cuda. A change is made in a copy of its file, which is compiled and linked before the library, so nothing in
the tree or in BUILD changes. Two groups of judges run, the quick ones first, each up to the first that finds the
change: those that compare single kernels with the interpreter (tests/shared/kernel), and all others.

Kernels and the interpreter read one table, the forms of ir/ops.def, so a wrong form shows in no comparison of the
two. Each form is therefore changed to the next of its list in FORMS, and a judge that has right results of its own
must find it. One that none finds is an error.
"""
import argparse
import os
import pathlib
import random
import re
import shlex
import shutil
import subprocess
import sys
import tempfile

FOLDERS = ["codegen/kernel", "codegen/cpu", "codegen/cuda"]
SINGLE = ["check_kernel_description", "check_kernel", "check_cuda_rows"]
OTHERS = ["check_build", "check_blob", "check_cuda_build", "check_cuda_ops", "check_codecs", "check_cuda_update",
          "check_tune_kernels", "check_cuda_aligned", "check_cuda_alias", "check_attention", "check_cuda_rows_text",
          "check_differential", "check_cuda_attention", "check_cuda_differential"]
FORM_JUDGES = ["check_forms", "check_reference", "check_scalar", "check_formulas", "check_gradients",
               "check_cuda_ops", "check_ids"]
OPERATORS = [("+", "-"), ("-", "+"), ("*", "+"), ("/", "*"), ("%", "/"), ("<", "<="), ("<=", "<"), (">", ">="),
             (">=", ">"), ("==", "!="), ("!=", "=="), ("&&", "||"), ("||", "&&")]
# Forms of as many operands; each is changed to the next.
FORMS = [["FADD", "FSUB", "FMUL", "FDIV", "FMAX", "FMIN"], ["IADD", "ISUB", "IMUL", "ISMAX", "ISMIN"],
         ["FNEG", "FABS", "FSQRT", "RSQRT", "EXP", "LOG", "TANH", "ERF", "SIN", "COS", "SIGMOID", "RELU", "FFLOOR",
          "POW2_FLOOR"],
         ["INEG", "IABS"], ["FLT", "FLE", "FEQ"], ["ILT", "ILE", "IEQ"], ["BAND", "BOR"]]


def places(path):
    """(offset, old, new) of each change that a file's code can have: no comments, strings, includes or asserts."""
    text = pathlib.Path(path).read_text()
    code = re.sub(r'/\*.*?\*/|"(?:\\.|[^"\\])*"|\'(?:\\.|[^\'\\])\'|^#.*?$', lambda m: re.sub(r"[^\n]", " ", m[0]),
                  text, flags=re.S | re.M)
    for m in re.finditer(r" (\+|-|\*|/|%|<=|>=|<|>|==|!=|&&|\|\|) ", code):
        line = code[code.rfind("\n", 0, m.start()) + 1:m.start()]
        for old, new in OPERATORS:
            if m[1] == old and not re.match(r"\s*(static )?(const )?[a-z_0-9]+ \*?$", line):
                yield m.start(1), old, new
    for m in re.finditer(r"(?<![\w.\[{])(\d+)(?![\w.\]])", code):
        yield m.start(1), m[1], str(int(m[1]) + 1)


def build(folder, name, objects):
    cc, cflags, link = (shlex.split(os.environ[x]) for x in ("CC", "CFLAGS", "LINK"))
    test = next(pathlib.Path(BUILD, "obj/tests").rglob(f"{name}.o"))
    subprocess.run([*cc, *cflags, "-o", str(folder / name), str(test), *objects, *link], check=True)


def finds(folder, name, objects):
    """Whether a judge fails. Its cache of kernels is a new one: keys know nothing of a planted change."""
    build(folder, name, objects)
    cache = folder / "cache"
    try:
        done = subprocess.run([str(folder / name)], capture_output=True, check=False, timeout=900,
                              env=os.environ | {"FP8C_CACHE_DIR": str(cache.absolute())})
        return done.returncode not in (0, 77)
    except subprocess.TimeoutExpired:
        return True
    finally:
        (folder / name).unlink()
        shutil.rmtree(cache, ignore_errors=True)


def compiled(folder, source, to, more=()):
    cc, cflags = (shlex.split(os.environ[x]) for x in ("CC", "CFLAGS"))
    done = subprocess.run([*cc, *more, *cflags, "-Wno-error", "-c", str(source), "-o", str(folder / to)],
                          capture_output=True, check=False)
    return done.returncode == 0


def first_finder(folder, judges, objects):
    return next((name for name in judges if finds(folder, name, objects)), None)


def drawn(args, folder):
    """Draws changes. What does not compile is drawn again."""
    files = [path for f in FOLDERS for path in sorted(map(str, pathlib.Path(f).glob("*.c")))]
    every = [(path, *place) for path in files for place in places(path)]
    lots = random.Random(args.seed)
    lots.shuffle(every)
    count = {"both": 0, "single kernels alone": 0, "others alone": 0, "none": 0}
    n = 0
    for path, at, old, new in every:
        if n == args.draws:
            break
        text = pathlib.Path(path).read_text()
        (folder / "changed.c").write_text(text[:at] + new + text[at + len(old):])
        if not compiled(folder, folder / "changed.c", "changed.o", ("-iquote", str(pathlib.Path(path).parent))):
            continue
        n += 1
        if n < args.first:
            continue
        objects = [str(folder / "changed.o")]
        single, other = first_finder(folder, SINGLE, objects), first_finder(folder, OTHERS, objects)
        alone = "single kernels alone" if single else "others alone" if other else "none"
        count["both" if single and other else alone] += 1
        line = text.count("\n", 0, at) + 1
        print(f"{n} {path}:{line}: {old} -> {new}: {single or '-'}, {other or '-'}", flush=True)
    print(f"{sum(count.values())} changes, seed {args.seed}; found by {count}")


def forms(folder):
    table = pathlib.Path("ir/ops.def").read_text()
    rows, missed = 0, []
    (folder / "ir").mkdir()
    for row in re.finditer(r"^OP\((\w+),.*?\bDOC\(", table, re.S | re.M):
        for m in re.finditer(r"\b([FIB])\((\w+)\)", row[0]):
            family = next((f for f in FORMS if m[2] in f), None)
            if not family:
                continue
            new = family[(family.index(m[2]) + 1) % len(family)]
            at = row.start() + m.start(2)
            (folder / "ir/ops.def").write_text(table[:at] + new + table[at + len(m[2]):])
            assert compiled(folder, "ir/ops.c", "ops.o", ("-I", str(folder))), f"{row[1]}: {new} does not compile"
            found = first_finder(folder, FORM_JUDGES, [str(folder / "ops.o")])
            rows += 1
            print(f"{row[1]}: {m[1]}({m[2]}) -> {new}: {found or 'NOT FOUND'}", flush=True)
            if not found:
                missed.append(f"{row[1]}: {m[2]}")
    print(f"{rows} forms, {len(missed)} not found: {missed}")
    return missed


def main():
    global BUILD
    parser = argparse.ArgumentParser()
    parser.add_argument("build")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--draws", type=int, default=60)
    parser.add_argument("--first", type=int, default=1)
    parser.add_argument("--forms", action="store_true")
    args = parser.parse_args()
    BUILD = args.build
    with tempfile.TemporaryDirectory(dir=BUILD, prefix="planted-") as name:  # the emulator is beside it
        folder = pathlib.Path(name)
        for judge in sorted({*FORM_JUDGES, *(() if args.forms else (*SINGLE, *OTHERS))}):
            assert not finds(folder, judge, []), f"without a change, {judge} fails"
        missed = forms(folder)
        if not args.forms:
            drawn(args, folder)
    sys.exit(bool(missed))


if __name__ == "__main__":
    main()
