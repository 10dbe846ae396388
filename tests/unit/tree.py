"""The code base as data for the tests of its structure: modules, their imports, functions, parameters and classes.

Python is parsed; Cython is read line by line, which is enough for the layout that the formatter and this house keep.
"""

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
PACKAGES = (
    "common", "engine", "kafka_bridge", "producer_proxy", "consumer_proxy", "controller", "migration", "console",
    "pipeline", "penstock", "bench",
)  # fmt: skip


class Function(NamedTuple):
    """One function; `line` is that of its `def`, `lines` how many it has."""

    path: str
    line: int
    name: str
    lines: int


def sources(pattern: str = "*.py") -> list[Path]:
    return [path for package in PACKAGES for path in sorted((ROOT / package).rglob(pattern))]


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@cache
def modules() -> dict[str, Path]:
    return {module_name(path): path for pattern in ("*.py", "*.pyx") for path in sources(pattern)}


def imported(path: Path) -> Iterator[str]:
    """Every module that a file imports, wherever in the file; what only the type checker sees does not count."""
    yield from (cimported(path) if path.suffix == ".pyx" else statements(ast.parse(path.read_text())))


def statements(tree: ast.AST) -> Iterator[str]:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            continue
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from from_names(node.module, [name.name for name in node.names])
        yield from statements(node)


def cimported(path: Path) -> Iterator[str]:
    for line in path.read_text().splitlines():
        if found := re.match(r"\s*from ([\w.]+) c?import \(?(.*)", line):
            yield from from_names(found[1], re.findall(r"\w+", found[2]))
        elif found := re.match(r"\s*c?import ([\w.]+)", line):
            yield found[1]


def from_names(module: str, names: list[str]) -> Iterator[str]:
    """`from a.b import c` imports a.b.c when that is a module, else a.b."""
    for name in names or [""]:
        inner = f"{module}.{name}"
        yield inner if inner in modules() else module


@cache
def graph() -> dict[str, frozenset[str]]:
    return {name: frozenset(imported(path)) - {name} for name, path in modules().items()}


def within(module: str, prefix: str) -> bool:
    return module == prefix or module.startswith(prefix + ".")


def ours(module: str) -> bool:
    return module.partition(".")[0] in PACKAGES


def relative(path: Path) -> str:
    return str(path.relative_to(ROOT))


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def python_functions() -> Iterator[Function]:
    for path in sources():
        for node in ast.walk(tree_of(path)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                lines = (node.end_lineno or node.lineno) - node.lineno + 1
                yield Function(relative(path), node.lineno, node.name, lines)


NATIVE_DEF = re.compile(r"( *)(?:def|cdef|cpdef)\b(?! enum| struct| packed| extern| class).*?(\w+)\(")


def native_functions() -> Iterator[Function]:
    """Functions of .pyx and .pxd files: from the line of the definition to the last line that is indented deeper."""
    for pattern in ("*.pyx", "*.pxd"):
        for path in sources(pattern):
            yield from _native_functions(relative(path), path.read_text().splitlines())


def _native_functions(path: str, lines: list[str]) -> Iterator[Function]:
    for number, line in enumerate(lines):
        found = NATIVE_DEF.match(line)
        if not found:
            continue
        head = number
        while head < len(lines) and not lines[head].split("#")[0].rstrip().endswith(":"):
            head += 1  # the parameters go on
        if head - number > 10:
            continue  # a declaration without a body
        last = head
        for at in range(head + 1, len(lines)):
            if lines[at].strip() and len(lines[at]) - len(lines[at].lstrip()) <= len(found[1]):
                break
            if lines[at].strip():
                last = at
        if last > head:
            yield Function(path, number + 1, found[2], last - number + 1)


def untyped_parameters() -> Iterator[str]:
    """`file:line function parameter` of every parameter of a Python function that says no type."""
    for path in sources():
        for node in ast.walk(tree_of(path)):
            if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                continue
            every = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
            for number, parameter in enumerate(every):
                if parameter.annotation is None and not (number == 0 and parameter.arg in ("self", "cls", "_")):
                    yield f"{relative(path)}:{node.lineno} {node.name} {parameter.arg}"


def class_homes() -> dict[str, set[str]]:
    """Class name -> the modules that define it; `x.py` and its native form `_x.pyx` count as one."""
    homes: dict[str, set[str]] = defaultdict(set)
    for path in modules().values():
        home = relative(path.with_name(path.name.removeprefix("_")).with_suffix(""))
        for name in re.findall(r"^[ \t]*(?:cdef )?class (\w+)", path.read_text(), re.M):
            homes[name].add(home)
    return homes


def sibling_imports() -> Iterator[tuple[str, str, str]]:
    """(folder, one entry of it, another entry of it that the first imports): files and folders side by side."""
    for name, others in graph().items():
        for other in others:
            mine, theirs = name.split("."), other.split(".")
            common = 0
            while common < min(len(mine), len(theirs)) and mine[common] == theirs[common]:
                common += 1
            if common and common < min(len(mine), len(theirs)):
                yield ".".join(mine[:common]), mine[common], theirs[common]
