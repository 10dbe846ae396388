"""The tree keeps its shape: imports run one way and in no circle, gevent stays where it belongs, files and functions stay small.

Rules: docs/design/0001-seams.md and the architecture's table of folders. A rule that gets in the way is changed here, with its reason.
"""

import ast
import configparser
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("common", "engine", "producer_proxy", "consumer_proxy", "penstock", "bench")

# Who may import what of ours, beside itself. `engine.client` is the only door of the engine; `engine.link` is the vocabulary
# of that door: numbers of operations and codes, and the errors that it raises.
MAY_IMPORT = {
    "common": (),
    "engine": ("common",),
    "producer_proxy": ("common", "engine.client", "engine.link"),
    "consumer_proxy": ("common", "engine.client", "engine.link"),
    # `engine.log.offline` is the other door: for tools, on a directory whose engine is stopped.
    # So is `producer_proxy.buffer`: on the buffer of a proxy that is stopped, or to read one that runs.
    "penstock": (
        "common",
        "engine.client",
        "engine.link",
        "engine.log.offline",
        "engine.errors",
        "producer_proxy.buffer",
        "bench",
    ),
    "bench": ("common", "engine", "producer_proxy", "consumer_proxy"),  # it measures their parts one by one
}
# The engine from the inside out: storage knows nothing of delivery, delivery nothing of the link's server. `engine.link` is below all of
# them: what a stored batch looks like is the link's vocabulary too.
ENGINE_MAY_NOT_IMPORT = {
    "engine.log": ("engine.delivery", "engine.server", "engine.client"),
    "engine.delivery": ("engine.server", "engine.client"),
    "engine.client": ("engine.log", "engine.delivery", "engine.server", "engine.env.store"),
    "engine.link": ("engine.log", "engine.delivery", "engine.server", "engine.client", "engine.env.store"),
}
# Servers, their clients and what bridges them to threads. Everything else takes callbacks and clocks, and runs in any process.
MAY_USE_GEVENT = (
    "common.net",
    "common.ops.server",
    "common.ops.stop",
    "common.config.blocking",
    "engine.__main__",
    "engine.env.background",
    "engine.log.write.syncer",
    "engine.server",
    "engine.client.append",
    "engine.client.lane",
    "engine.client.brokers",
    "engine.client.rpc",
    "engine.client.transport",
    "engine.client._lane",
    "engine.client._transport",
    "bench.cold_reader",  # the log's syncs come back through the loop
    "producer_proxy",
    "consumer_proxy",
)
MAY_PATCH = ("engine.__main__", "producer_proxy.__main__", "consumer_proxy.__main__")

LINES_MAX = 400
FUNCTION_LINES_MAX = 45
# Larger for now. The numbers may only go down.
LARGER_FILES = {
    "bench/_load.pyx": 520,
    "common/net/_reactor.pyx": 745,
    "engine/log/write/_append.pyx": 500,
    "engine/log/log.py": 470,
}


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


def test_imports_between_packages_run_one_way():
    wrong = [
        f"{name} imports {other}"
        for name, others in graph().items()
        for package in [name.partition(".")[0]]
        for other in others
        if ours(other) and not any(within(other, allowed) for allowed in (package, *MAY_IMPORT[package]))
    ]
    assert wrong == []


def test_the_engines_layers_know_only_what_lies_below():
    wrong = [
        f"{name} imports {other}"
        for layer, forbidden in ENGINE_MAY_NOT_IMPORT.items()
        for name, others in graph().items()
        if within(name, layer)
        for other in others
        if any(within(other, above) for above in forbidden)
    ]
    assert wrong == []


def test_there_is_no_circle_of_imports():
    done: set[str] = set()

    def visit(name: str, trail: tuple[str, ...]) -> list[str]:
        if name in trail:
            return [*trail[trail.index(name) :], name]
        if name in done or name not in graph():
            return []
        for other in sorted(graph()[name]):
            if circle := visit(other, (*trail, name)):
                return circle
        done.add(name)
        return []

    for name in graph():
        assert visit(name, ()) == []


def test_gevent_is_imported_only_where_servers_and_their_clients_are():
    wrong = [
        name
        for name, others in graph().items()
        if any(within(other, "gevent") for other in others)
        and not any(within(name, allowed) for allowed in MAY_USE_GEVENT)
    ]
    assert wrong == []


def test_only_the_processes_mains_patch_and_they_do_it_first():
    patching = [name for name, path in modules().items() if re.search(r"^\s*monkey\.patch", path.read_text(), re.M)]
    assert sorted(patching) == sorted(MAY_PATCH)
    for name in MAY_PATCH:
        code = [
            node for node in ast.parse(modules()[name].read_text()).body if not isinstance(node, ast.Expr | ast.Assign)
        ]
        assert ast.unparse(code[0]) == "from gevent import monkey", name
        assert "__init__.py" not in {path.name for path in [modules()[name]]}


@pytest.mark.parametrize("package", PACKAGES)
def test_a_packages_init_imports_nothing_so_that_a_main_can_patch_first(package):
    assert list(imported(ROOT / package / "__init__.py")) == []


def test_the_supervisor_runs_without_gevent():
    code = "import sys, penstock.__main__, penstock.commands.up; print('gevent' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_all_third_party_imports_are_declared():
    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg")
    wanted = [config["options"]["install_requires"], *config["options.extras_require"].values()]
    declared = re.findall(r"^[\w-]+", "\n".join(wanted), re.M)
    known = {name.replace("-", "_").lower() for name in declared} | {"cython", "cpython", "libc", "libcpp", "greenlet"}
    known |= {"penstock_client", "penstock_client_examples", "penstock_thrift"}
    foreign = {
        f"{name}: {other}"
        for name, others in graph().items()
        for other in others
        if not ours(other) and other.partition(".")[0] not in sys.stdlib_module_names | known
    }
    assert foreign == set()


def test_files_stay_small_and_large_ones_only_shrink():
    counts = {str(path.relative_to(ROOT)): len(path.read_text().splitlines()) for path in modules().values()}
    grown = {name: count for name, count in counts.items() if count > LARGER_FILES.get(name, LINES_MAX)}
    assert grown == {}


def test_functions_stay_small():
    long = [
        f"{path.relative_to(ROOT)}:{node.lineno} {node.name} {node.end_lineno - node.lineno + 1}"
        for path in sources()
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.end_lineno - node.lineno + 1 > FUNCTION_LINES_MAX
    ]
    assert long == []


def test_the_contracts_folder_is_no_package_of_its_name():
    assert not (ROOT / "thrift" / "__init__.py").exists()
