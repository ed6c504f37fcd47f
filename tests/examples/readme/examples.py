"""Runs the examples of the READMEs as they are written, and compares what they print with what is quoted.

usage: examples.py README...            in the world that `run` makes: the current directory
       examples.py --update README...   puts what is printed in the place of the quoted figures

An example is a block of a README. A block of Python is a program. Lines that begin with "$ " are commands,
with what they print below them; so are lines that begin with a command. `blocks`, next to this file, says
of every other block what it is: its README, what is to be done, and the words that the block begins with.

  file NAME        a file that later examples read under this name
  prints COMMAND   what this command prints; -: what the program before it prints
  big COMMAND      what this command, or those of the block (-), print of models at their full size: what is
                   quoted is compared by --update alone
  slow WHY         commands that take long: only --update runs them
  not WHY          commands that can't run here
  text             no example: a grammar, a layout, a fragment of a text

What is quoted stands line by line in the output, in this order; lines may be left out, and "..." may stand
for words. Figures move with each commit and each machine, so any number may stand for a number. Of
commands that are not run the check looks whether the command and its options exist.
"""
import os
import pathlib
import re
import shlex
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
TOP = HERE.parents[2]
COMMANDS = ("fp8c", "make", "gcc", "cat", "mpirun", "torchrun", "python3", "env/bin/pip")
NUMBER = re.compile(r"\b[0-9a-f]{32}\b|[+-]?\d[\d.]*(e[+-]?\d+)?")
WORD = re.compile(r"(\* )?\S+( \*(?!\S))?")  # with the star that marks a row or a figure, which moves, too
STARRED = re.compile(r"\S \*(\s|$)")
# What a message says that a machine lacks, and where it is had.
LACKS = {"can't load NVRTC": "PyPI: nvidia-cuda-nvrtc", "can't load the CUDA driver": "an NVIDIA driver"}


class Block:
    """Lines of a README that are an example. `first` is the index of the first, `indent` what all begin with."""

    def __init__(self, readme: str, first: int, lines: list[str], language: str | None):
        self.readme, self.first, self.language = readme, first, language
        self.indent = min((len(line) - len(line.lstrip()) for line in lines if line.strip()), default=0)
        self.lines = [line[self.indent:] for line in lines]
        self.text = "\n".join(self.lines) + "\n"
        self.words = " ".join(self.text.split())
        self.place = f"{readme}:{first + 1}"

    def is_commands(self) -> bool:
        return self.language is None and (self.lines[0].startswith("$ ") or self.lines[0].split()[0] in COMMANDS)

    def commands(self) -> list[tuple[str, list[int]]]:
        """Each command, with the indexes of the lines that are quoted below it."""
        session, made, at = self.lines[0].startswith("$ "), [], 0
        while at < len(self.lines):
            line = self.lines[at]
            if session and not line.startswith("$ "):
                made[-1][1].append(at)
                at += 1
                continue
            command = line[2:] if session else line
            while command.endswith("\\"):
                at += 1
                command = command[:-1] + self.lines[at].strip()
            made.append((command, []))
            at += 1
        return made


def blocks_of(readme: str, lines: list[str]) -> list[Block]:
    made, at = [], 0
    while at < len(lines):
        if lines[at].startswith("```"):
            end = next(i for i in range(at + 1, len(lines)) if lines[i].startswith("```"))
            made.append(Block(readme, at + 1, lines[at + 1:end], lines[at][3:].strip() or "text"))
            at = end + 1
        elif re.match(r" {4}", lines[at]) and not lines[at - 1].strip():
            end = at
            while end < len(lines) and (not lines[end].strip() or re.match(r" {4}", lines[end])):
                end += 1
            while not lines[end - 1].strip():
                end -= 1
            for i in range(at, end):  # a session behind something else is an example of its own
                if lines[i].startswith("    $ ") and not lines[i - 1].strip() and not lines[at].startswith("    $ "):
                    end = i - 1
                    break
            made.append(Block(readme, at, lines[at:end], None))
            at = end
        else:
            at += 1
    return made


class Fault(Exception):
    pass


class Lacking(Exception):
    pass


def run(command: str, place: str, fails: bool = False) -> str:
    done = subprocess.run(["bash", "-c", command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          stdin=subprocess.DEVNULL, timeout=600, check=False)
    if (done.returncode != 0) != fails:
        for words, package in LACKS.items():
            if words in done.stdout:
                raise Lacking(f"{command} ({package})")
        raise Fault(f"{place}: exit code {done.returncode}: {command}\n{some(done.stdout)}")
    return done.stdout


def some(output: str) -> str:
    return "\n".join(output.splitlines()[:30])


def figure(word: str) -> str:
    """Without the star that marks it."""
    return word.removeprefix("* ").removesuffix(" *")


def masked(word: str) -> str:
    return NUMBER.sub("#", figure(word))


def match(quoted: list[str], output: str, place: str) -> list[list[tuple[re.Match, str]]]:
    """For each quoted line its words, each with the word of the output that stands for it."""
    said = [w for line in output.splitlines() for w in (word[0] for word in WORD.finditer(line))]
    made, at = [], 0
    for line in quoted:
        # What follows "..." is said of the lines that are left out. The legend of a star stands below a table
        # only if a figure of it has one.
        if line.lstrip().startswith("...") or (line.startswith("* ") and not STARRED.search(output)):
            made.append([])
            continue
        pairs: list[tuple[re.Match, str]] = []
        pieces: list[list[re.Match]] = [[]]
        for word in WORD.finditer(line):
            if word[0] == "...":
                pieces.append([])
            else:
                pieces[-1].append(word)
        for piece in pieces:
            wanted = [masked(w[0]) for w in piece]
            starts = [start for start in range(at, len(said) - len(wanted) + 1)
                      if [masked(w) for w in said[start:start + len(wanted)]] == wanted]
            if wanted and starts:  # the row of a table that begins with the same figure, if there is one
                start = next((s for s in starts if said[s] == piece[0][0]), starts[0])
                pairs += zip(piece, said[start:start + len(wanted)])
                at = start + len(wanted)
            elif wanted:
                raise Fault(f"{place}: this is not printed: {line.strip()}\nbut this:\n{some(output)}")
        made.append(pairs)
    return made


def replaced(line: str, pairs: list[tuple[re.Match, str]]) -> str:
    """The line with the words of the output. A figure keeps its column's right edge where blanks allow it."""
    made, taken = "", 0
    for word, now in pairs:
        gap = line[taken:word.start()]
        if len(gap) > 1 and NUMBER.match(now) and made.strip():
            gap = " " * max(1, word.start() - len(made) + len(figure(word[0])) - len(figure(now)))
        elif len(gap) > 1 and made.strip():
            gap = " " * max(1, word.start() - len(made))
        made += gap + now
        taken = word.end()
    return made + line[taken:]


def options_exist(command: str, place: str) -> None:
    """Of each fp8c in a command line: the command and its options are there."""
    for part in re.split(r"\s[|;&]+\s| : ", command.split(" # ")[0]):
        words = shlex.split(part.replace("[", " ").replace("]", " ").replace("|", " "), comments=True)
        if words and words[0] == "make":
            run(f"make -n {' '.join(words[1:])} >/dev/null", place)
        names = [i for i, w in enumerate(words) if pathlib.Path(w).name in ("fp8c", "fp8c_faulty")]
        if not names:
            continue
        words = words[names[-1] + 1:]
        known = run(f"fp8c help {words[0]}", place)
        for option in words[1:]:
            if option.startswith("--") and not re.search(rf"(?m)^ +{option.split('=')[0]}\b", known):
                raise Fault(f"{place}: fp8c {words[0]} has no {option}")


class World:
    def __init__(self, update: bool):
        self.update = update
        self.listed = []
        for line in (HERE / "blocks").read_text().splitlines():
            if line.strip() and not line.startswith("#"):
                readme, verb, rest = line.split(None, 2)
                what, _, begins = rest.partition(" | ")
                self.listed.append([readme, verb, what, begins, 0])

    def entry(self, block: Block) -> tuple[str, str] | None:
        for row in self.listed:
            if row[0] == block.readme and block.words.startswith(row[3]):
                row[4] += 1
                return row[1], row[2]
        return None

    def quote(self, block: Block, indexes: list[int], output: str, lines: list[str]) -> None:
        quoted = [block.lines[i] for i in indexes]
        for i, pairs in zip(indexes, match(quoted, output, block.place)):
            lines[block.first + i] = (" " * block.indent + replaced(block.lines[i], pairs)).rstrip()

    def program(self, block: Block) -> str:
        """Runs a program in Python, where its packages are here."""
        try:
            compile(block.text, block.place, "exec")
        except SyntaxError as error:
            raise Fault(f"{block.place}: {error}") from error
        lacks = [m for m in sorted(set(re.findall(r"(?m)^import (\w+)", block.text)) - {"fp8c"})
                 if subprocess.run(["python3", "-c", f"import {m}"], capture_output=True, check=False).returncode]
        if lacks:
            package = {"numpy": "Debian package python3-numpy"}.get(lacks[0], f"PyPI: {lacks[0]}")
            print(f"skipped: the program at {block.place}: no {lacks[0]} ({package})")
            return ""
        pathlib.Path("program.py").write_text(block.text)
        if not os.path.exists("env"):  # frontend/python/README.md makes one itself
            run("make wheel && python3 -m venv --system-site-packages env && "
                "env/bin/pip install --no-index build/fp8c-*.whl", block.place)
        return run("env/bin/python program.py", block.place)

    def example(self, block: Block, before: str, lines: list[str]) -> str:
        """What it printed."""
        verb, what = self.entry(block) or ("run", "")
        if verb == "file":
            pathlib.Path(what).write_text(block.text)
        elif verb == "prints" or verb == "big" and what != "-":
            output = before if what == "-" else run(what, block.place)
            if (output or what != "-") and (verb == "prints" or self.update):
                self.quote(block, list(range(len(block.lines))), output, lines)
        elif verb in ("slow", "not") and not (verb == "slow" and self.update):
            for command, _ in block.commands():
                options_exist(command, block.place)
        elif verb == "text":
            pass
        elif block.language == "python" or block.lines[0].startswith("import "):
            return self.program(block)
        elif block.is_commands():
            for command, quoted in block.commands():
                fails = any("error:" in block.lines[i] for i in quoted)
                try:
                    output = run(command, block.place, fails)
                except Lacking as lacking:
                    print(f"skipped: the example at {block.place}: {lacking}")
                    options_exist(command, block.place)
                    continue
                if verb != "big" or self.update:
                    self.quote(block, quoted, output, lines)
        else:
            raise Fault(f"{block.place}: what is this block? tests/examples/readme/blocks does not say: "
                        f"{block.words[:60]}")
        return ""

    def readme(self, name: str) -> int:
        path = TOP / name
        lines = path.read_text().splitlines()
        blocks, faults, before = blocks_of(name, lines), 0, ""
        for block in blocks:
            try:
                before = self.example(block, before, lines)
            except Fault as fault:
                print(fault)
                faults += 1
        if self.update:
            path.write_text("\n".join(lines) + "\n")
        print(f"{name}: {len(blocks)} blocks, {faults} wrong")
        return faults


def main() -> int:
    update = sys.argv[1] == "--update"
    names = sys.argv[2 if update else 1:]
    world = World(update)
    faults = sum(world.readme(name) for name in names)
    for readme, verb, _, begins, used in world.listed:
        if readme in names and used != 1:
            print(f"blocks: {readme} {verb} | {begins}: {used} blocks begin so")
            faults += 1
    return faults != 0


sys.exit(main())
