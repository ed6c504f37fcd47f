"""The declarations for ctypes against the public headers, as gcc reads them; and that each planted difference is found."""
import ctypes
import inspect
import os
import re
import sys
import tempfile
import unittest

import header
from fp8c import _figures, _header, _options, options, records, tensors
from fp8c._native import lib

sys.path.append(os.path.join(header.FOLDER, "python"))
import generate  # noqa: E402

NOT_OF_THE_HEADER = {"Structure", "DLDevice", "DLDataType"}
CONSTANTS = ("MAX_RANK", "MAX_BOUNDS", "NCCL_ID")


def snake(name):
    return "fp8c_" + re.sub(r"(?<=[a-z0-9])([A-Z])", r"_\1", name).lower()


def spell(t):
    """A type of ctypes, as header.py spells it."""
    if t is None:
        return "void"
    if issubclass(t, ctypes.Structure):
        return "{" + ", ".join(f"{n}@{getattr(t, n).offset}:{spell(f)}" for n, f, *_ in t._fields_) + "}"
    if issubclass(t, ctypes.Array):
        return f"{spell(t._type_)}[{t._length_}]"
    code = t._type_ if isinstance(getattr(t, "_type_", None), str) else None
    if code is None or code in "zP":
        return "ptr"
    if code == "c":
        return "char"
    kind = "f" if code in "df" else "u" if code.isupper() or code == "B" else "i"
    return f"{kind}{8 * ctypes.sizeof(t)}"


def differences(folder=header.FOLDER):
    """Lines that say what fp8c._header and a header have unlike."""
    structs, enums, functions = header.read(folder)
    lines = []
    mine = {snake(n): c for n, c in (vars(_header) | vars(_options) |
                                               {"Statistic": _figures.CStatistic}).items() if inspect.isclass(c)
            and issubclass(c, ctypes.Structure) and n not in NOT_OF_THE_HEADER}
    lines += [f"only in the header: struct {n}" for n in structs.keys() - mine.keys()]
    lines += [f"not in the header: struct {n}" for n in mine.keys() - structs.keys()]
    for name in structs.keys() & mine.keys():
        size, fields = structs[name]
        own = [(n, getattr(mine[name], n).offset, spell(t)) for n, t, *_ in mine[name]._fields_]
        if ctypes.sizeof(mine[name]) != size:
            lines.append(f"{name}: {ctypes.sizeof(mine[name])} bytes, not {size}")
        lines += [f"{name}: {a} is not {b}" for a, b in zip(own, fields) if a != b]
        if len(own) != len(fields):
            lines.append(f"{name}: {len(own)} fields, not {len(fields)}")
    mine = {("fp8c_dtype" if n == "DType" else snake(n)): c for n, c in vars(_header).items() if inspect.isclass(c)
            and issubclass(c, _header.enum.Enum)}
    for constant in CONSTANTS:
        value = enums.pop("FP8C_" + constant, {}).get("FP8C_" + constant)
        if value != getattr(_header, constant):
            lines.append(f"{constant}: {getattr(_header, constant)}, not {value}")
    lines += [f"only one side has the enum {n}" for n in enums.keys() ^ mine.keys()]
    for name in enums.keys() & mine.keys():
        prefix = os.path.commonprefix(list(enums[name])) if len(enums[name]) > 1 else "FP8C_"
        own = {m.name: int(m) for m in mine[name]}
        theirs = {next((k[len(p):] for p in ("FP8C_", prefix) if k[len(p):] in own), k): v
                  for k, v in enums[name].items()}
        if own != theirs:
            lines.append(f"{name}: {own} is not {theirs}")
    mine = {"fp8c_" + n: (spell(r), [spell(a) for a in args]) for n, (r, *args) in _header.FUNCTIONS.items()}
    lines += [f"only one side has {n}" for n in functions.keys() ^ mine.keys()]
    lines += [f"{n}: {mine[n]} is not {functions[n]}" for n in functions.keys() & mine.keys()
              if mine[n] != functions[n]]
    return lines


class Header(unittest.TestCase):
    def test_equal(self):
        self.assertEqual(differences(), [])

    def test_planted(self):
        texts = {}
        for path in header.headers():
            with open(path, encoding="utf-8") as file:
                texts[os.path.basename(path)] = file.read()
        plants = {"fp8c_compile_options: .*fields": ("    const char *reduce_order;", "    const char *reduce_order; int x;"),
                  "fp8c_port": ("    int32_t variable; /* >= 0: the port", "    int64_t variable; /* >= 0: the port"),
                  "fp8c_status": ("FP8C_OK = 0,", "FP8C_OK = 0, FP8C_NEW,"),
                  "fp8c_side": ("FP8C_INPUT = 0, FP8C_OUTPUT = 1", "FP8C_INPUT = 1, FP8C_OUTPUT = 0"),
                  "MAX_BOUNDS": ("FP8C_MAX_BOUNDS = 8", "FP8C_MAX_BOUNDS = 9"),
                  "fp8c_program_load:": ("int32_t params_only", "int64_t params_only"),
                  "fp8c_module_print": ("fp8c_status fp8c_module_print(", "fp8c_status fp8c_module_show("),
                  "fp8c_peak": ("double seconds;              /* of a run", "float seconds; /* of a run")}
        with tempfile.TemporaryDirectory() as folder:
            for what, (old, new) in plants.items():
                self.assertEqual(sum(text.count(old) for text in texts.values()), 1, old)
                for name, text in texts.items():
                    with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
                        file.write(text.replace(old, new))
                found = differences(folder)
                self.assertTrue(any(re.search(what, line) for line in found), (what, found))

    def test_version(self):
        with open(os.path.join(header.FOLDER, "fp8c.h"), encoding="utf-8") as file:
            found = re.findall(r"define FP8C_VERSION_(?:MAJOR|MINOR|PATCH) (\d+)", file.read())
        self.assertEqual(tuple(map(int, found)), _header.VERSION)

    def test_dtypes_are_in_the_order_of_the_enum(self):
        for dtype in _header.DType:
            self.assertEqual(tensors.DTYPES[dtype].name, lib.name(_header.NameKind.DTYPE, dtype).decode())
            self.assertEqual(tensors.DTYPES[dtype].name.upper(), dtype.name)

    def test_records_have_the_fields_of_their_structs(self):
        for record, struct in records.STRUCTS.items():
            names = tuple(n for n, *_ in struct._fields_ if n != "struct_size")
            self.assertEqual(tuple(n.rstrip("_") for n in record._fields), names, record.__name__)

    def test_options_are_all_keywords(self):
        of_c = {"struct_size", "bytes", "n_bytes", "write_user", "device_user", "n_stored_weights"}
        for function, struct in ((_options.compile_options, _options.CompileOptions),
                                 (options.open_options, _header.OpenOptions)):
            names = {n for n, *_ in struct._fields_} - of_c
            self.assertEqual(set(inspect.signature(function).parameters), names)

    def test_generated(self):
        options_def, figures_def = generate.tables()
        written = generate.generated(options_def, figures_def)
        for path, text in written.items():
            self.assertEqual((generate.FRONTEND / path).read_text(encoding="utf-8"), text,
                             "run python3 frontend/python/generate.py")
        planted = generate.generated(options_def.replace("OPTION(frozen,", "OPTION(thawed,"),
                                     figures_def.replace("FIGURE(used,", "FIGURE(useful,"))
        self.assertEqual([path for path in written if planted[path] == written[path]], [])


if __name__ == "__main__":
    unittest.main()
