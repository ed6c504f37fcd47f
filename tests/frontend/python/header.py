"""What the public headers, frontend/fp8c*.h, declare, as gcc sees it: structs from debug information, functions from -aux-info.

A type is a text: "i32", "u8", "f64", "ptr" for any pointer, "i64[5]", "char[33]", or "{...}" for a nested struct.
An enum is "i32".
"""
import glob
import os
import re
import subprocess
import tempfile

FOLDER = os.path.join(os.path.dirname(__file__), "../../../frontend")
BASE = {"signed": "i", "unsigned": "u", "float": "f", "signed char": "char", "unsigned char": "u"}


def headers(folder=FOLDER):
    """The paths of the public headers in a folder."""
    return sorted(glob.glob(os.path.join(folder, "fp8c*.h")))


def read(folder=FOLDER, prefix="fp8c_"):
    """-> (structs, enums, functions) of the public headers in a folder.

    structs: name -> (size, [(field, offset, type)]); enums: name -> {constant: value}; functions: name -> (type of
    the result or "void", [types of the arguments])."""
    with tempfile.TemporaryDirectory() as place:
        source, aux, obj = (os.path.join(place, name) for name in ("h.c", "aux.txt", "h.o"))
        with open(source, "w", encoding="utf-8") as file:
            file.writelines(f'#include "{os.path.abspath(path)}"\n' for path in headers(folder))
        subprocess.run(["gcc", "-std=c17", "-g", "-fno-eliminate-unused-debug-types", "-aux-info", aux, "-c", source,
                        "-o", obj], check=True)
        dump = subprocess.run(["readelf", "--debug-dump=info", obj], check=True, capture_output=True, text=True).stdout
        with open(aux, encoding="utf-8") as file:
            prototypes = file.read()
    entries = _entries(dump)
    typedefs = {e["name"]: e for e in entries.values() if e["tag"] == "typedef" and "name" in e}
    structs, enums = {}, {}
    for e in entries.values():
        name = e.get("name")
        if e["tag"] == "structure_type" and name and name.startswith(prefix) and "byte_size" in e:
            structs[name] = (int(e["byte_size"]), _members(entries, e))
        elif e["tag"] == "enumeration_type":
            values = {c["name"]: int(c["const_value"]) for c in e["children"]}
            if any(c.startswith(prefix.upper()) for c in values):
                enums[name or ",".join(values)] = values
    functions = {}
    for line in prototypes.splitlines():
        m = re.match(r"/\*.*\*/ extern (.*?)(\w+) \((.*)\);$", line)
        if m and m[2].startswith(prefix):
            arguments = [] if m[3] == "void" else [_named(entries, typedefs, a) for a in m[3].split(", ")]
            functions[m[2]] = (_named(entries, typedefs, m[1]), arguments)
    return structs, enums, functions


def _entries(dump):
    """Offset -> entry: its tag, its attributes, its children."""
    entries, stack = {}, []
    entry = None
    for line in dump.splitlines():
        m = re.match(r" <(\w+)><(\w+)>: Abbrev Number: \d+(?: \(DW_TAG_(\w+)\))?", line)
        if m:
            depth = int(m[1], 16)
            if not m[3]:
                continue
            entry = {"tag": m[3], "children": []}
            entries[int(m[2], 16)] = entry
            del stack[depth:]
            if stack:
                stack[-1]["children"].append(entry)
            stack.append(entry)
            continue
        m = re.match(r" +<\w+> +DW_AT_(\w+) *: (.*)$", line)
        if m and entry:
            value = re.sub(r"^\(indirect (line )?string, offset: \w+\): ", "", m[2]).strip()
            entry[m[1]] = value
    return entries


def _members(entries, struct):
    return [(m["name"], int(m["data_member_location"]), _type(entries, m)) for m in struct["children"]
            if m["tag"] == "member"]


def _type(entries, holder):
    if "type" not in holder:
        return "void"
    return _spell(entries, entries[int(holder["type"].strip("<>"), 16)])


def _spell(entries, t):
    tag = t["tag"]
    if tag in ("typedef", "const_type", "volatile_type"):
        return _type(entries, t)
    if tag == "pointer_type":
        return "ptr"
    if tag == "enumeration_type":
        return "i32"
    if tag == "array_type":
        return _type(entries, t) + "".join(f"[{int(c['upper_bound']) + 1}]" for c in t["children"])
    if tag == "structure_type":
        return "{" + ", ".join(f"{n}@{o}:{s}" for n, o, s in _members(entries, t)) + "}"
    kind = BASE[re.search(r"\((.*)\)", t["encoding"])[1]]
    return kind if kind == "char" else f"{kind}{8 * int(t['byte_size'])}"


def _named(entries, typedefs, text):
    text = text.strip()
    if text.endswith("*"):
        return "ptr"
    simple = {"void": "void", "int": "i32", "double": "f64", "float": "f32"}
    return simple[text] if text in simple else _spell(entries, typedefs[text])
