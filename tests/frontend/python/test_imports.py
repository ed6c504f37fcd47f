"""No cycle between the modules of the package, also by an import inside a function or for a type; and a planted one
is found."""
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


class Imports(unittest.TestCase):
    def test_no_cycle(self):
        self.assertEqual(cycle(PACKAGE), [])

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
