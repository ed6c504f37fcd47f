"""No cycle between the modules of the package, also by an import inside a function or for a type; and a planted one
is found. The folders of fp8c.torch import in one direction."""
import ast
import graphlib
import pathlib
import tempfile
import unittest

PACKAGE = pathlib.Path(__file__).resolve().parents[3] / "frontend/python/fp8c"


def imported(file: pathlib.Path, package: pathlib.Path) -> set[str]:
    """The modules of the package that a file imports."""
    place = list(file.relative_to(package.parent).with_suffix("").parts)
    top, found = package.name, set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            found |= {a.name for a in node.names if a.name.split(".")[0] == top}
        elif isinstance(node, ast.ImportFrom):
            base = place[:len(place) - node.level] if node.level else []
            base += node.module.split(".") if node.module else []
            if base and base[0] == top:
                found |= {".".join([*base, a.name]) for a in node.names}
    return {module_of(name, package) for name in found}


def module_of(name: str, package: pathlib.Path) -> str:
    """The module that a dotted name is of."""
    path = package.parent / pathlib.Path(*name.split("."))
    if path.with_suffix(".py").exists() or path.is_dir():
        return name + (".__init__" if path.is_dir() else "")
    return module_of(name.rpartition(".")[0], package)


def cycle(package: pathlib.Path) -> list[str]:
    graph = {}
    for file in sorted(package.rglob("*.py")):
        name = ".".join(file.relative_to(package.parent).with_suffix("").parts)
        graph[name] = imported(file, package) - {name}
    try:
        graphlib.TopologicalSorter(graph).prepare()
    except graphlib.CycleError as error:
        return error.args[1]
    return []


# Modules and folders of fp8c.torch: each imports what stands before it.
ORDER = [["private", "log", "linears"], ["places"], ["weights"], ["ranks"], ["graph"], ["settings"], ["run"]]


def against_order(package: pathlib.Path) -> list[str]:
    """The imports of fp8c.torch's folders, and of what they import, that ORDER does not have."""
    rank = {name: i for i, names in enumerate(ORDER) for name in names}
    found = []
    for file in sorted((package / "torch").rglob("*.py")):
        own = file.relative_to(package / "torch").with_suffix("").parts[0]
        for name in imported(file, package) if own in rank else ():
            _, is_torch, path = name.partition(f"{package.name}.torch.")
            other = path.split(".")[0]
            if is_torch and other != own and rank.get(other, len(ORDER)) >= rank[own]:
                found.append(f"{own} imports {other}")
    return found


class Imports(unittest.TestCase):
    def test_no_cycle(self):
        self.assertEqual(cycle(PACKAGE), [])

    def test_order(self):
        self.assertEqual(against_order(PACKAGE), [])

    def test_planted_order(self):
        with tempfile.TemporaryDirectory() as place:
            torch = pathlib.Path(place) / "p/torch"
            for name in ("run", "ranks"):
                (torch / name).mkdir(parents=True)
                (torch / name / "__init__.py").write_text("")
            (torch / "__init__.py").write_text("")
            (torch / "run/bound.py").write_text("from ..ranks import codes\n")
            (torch / "ranks/codes.py").write_text("")
            self.assertEqual(against_order(torch.parent), [])
            (torch / "ranks/codes.py").write_text("from ..run.bound import x\n")
            self.assertEqual(against_order(torch.parent), ["ranks imports run"])

    def test_planted(self):
        for late in "from .b import y\n", "def f():\n    from . import b\n    return b\n":
            with tempfile.TemporaryDirectory() as place:
                package = pathlib.Path(place) / "p"
                package.mkdir()
                (package / "__init__.py").write_text("from .a import x\n")
                (package / "a.py").write_text(late)
                (package / "b.py").write_text("import math\n")
                self.assertEqual(cycle(package), [])
                (package / "b.py").write_text("from .a import x\n")
                self.assertEqual(set(cycle(package)), {"p.a", "p.b"})


if __name__ == "__main__":
    unittest.main()
