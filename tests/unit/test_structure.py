"""The tree keeps its shape: imports run one way and in no circle, gevent stays where it belongs, files and functions stay small.

Rules: docs/design/0001-seams.md and the architecture's table of folders. A rule that gets in the way is changed here, with its reason.
"""

import ast
import configparser
import re
import subprocess
import sys
from collections import Counter, defaultdict

import pytest

from tests.unit.tree import (
    PACKAGES,
    ROOT,
    class_homes,
    graph,
    imported,
    modules,
    native_functions,
    ours,
    python_functions,
    relative,
    sibling_imports,
    sources,
    tree_of,
    untyped_parameters,
    within,
)

# Who may import what of ours, beside itself. `engine.client` is the only door of the engine; `engine.link` is the vocabulary
# of that door: numbers of operations and codes, and the errors that it raises.
MAY_IMPORT = {
    "common": (),
    "engine": ("common",),
    "producer_proxy": ("common", "engine.client", "engine.link"),
    "consumer_proxy": ("common", "engine.client", "engine.link"),
    "controller": ("common", "engine.client", "engine.link"),
    "kafka_bridge": ("common", "engine.client", "engine.link"),
    # The comparison makes of a record what the copier makes of it, by the copier's own rules; repairs are written by them.
    # `copy_in.core` says why a copy stops, which is a gate.
    # How far a copy to Kafka is, a plan reads by the copier's rules as well.
    "migration": (
        "common",
        "engine.client",
        "engine.link",
        "kafka_bridge.copy_in.core",
        "kafka_bridge.copy_in.foreign_headers",
        "kafka_bridge.copy_in.last_copied",
        "kafka_bridge.copy_in.messages",
        "kafka_bridge.copy_out.cut_places",
        "kafka_bridge.copy_out.lacked",
        "kafka_bridge.copy_out.page",
        "kafka_bridge.copy_out.positions",
        "kafka_bridge.copy_out.tails",
        "kafka_bridge.mapping",
        "kafka_bridge.source_identity",
    ),
    # `controller.operator_switch` is a switch that an operator asks for; plans of moves are shown and checked by `migration`'s rules.
    "console": ("common", "engine.client", "engine.link", "controller.operator_switch", "migration"),
    # A client of both proxies. A comparison with Kafka makes of a record what the copier makes of it.
    "pipeline": ("common", "kafka_bridge.copy_in.messages"),
    # `engine.log.offline` is the other door: for tools, on a directory whose engine is stopped.
    # So are `producer_proxy.buffer` and `producer_proxy.journal`: on files of a proxy that is stopped, or to read those of one that runs.
    # `controller.operator_switch` is a switch that an operator asks for, `reached_group` what it is decided on.
    # `kafka_bridge.connecting` says how a Kafka cluster of the configuration is reached, `copy_in.status` and `core` how far
    # a copy is and why it stops: nobody asks a bridge for that. A rehearsal judges by how far a shared read reads ahead.
    "penstock": (
        "common",
        "engine.client",
        "engine.link",
        "engine.log.offline",
        "engine.errors",
        "producer_proxy.buffer",
        "producer_proxy.journal",
        "controller.operator_switch",
        "controller.reached_group",
        "kafka_bridge.connecting",
        "kafka_bridge.copy_in.core",
        "kafka_bridge.copy_in.last_copied",
        "kafka_bridge.copy_in.status",
        "kafka_bridge.shared_read.read_ahead",
        "kafka_bridge.source_identity",
        "migration",
        "pipeline",
        "bench",
    ),
    # It measures their parts one by one, draws plots as reports of moves have them, and fills a console's database.
    "bench": (
        "common",
        "engine",
        "producer_proxy",
        "consumer_proxy",
        "pipeline",
        "migration.drawing",
        "console.database",
    ),
}
# The engine from the inside out: env, log, replies' requests, delivery and timers, ops, node, server. `engine.link` is below all of them,
# because the layout of a stored batch belongs to the link, too. No layer imports one above it, so none of those up to the node needs a
# socket or gevent: a simulation runs nodes without either.
_ABOVE_OPS = ("engine.node", "engine.schedule", "engine.server", "engine.client")
_ABOVE_DELIVERY = ("engine.ops", *_ABOVE_OPS)
ENGINE_MAY_NOT_IMPORT = {
    "engine.env": ("engine.log", "engine.replies", "engine.delivery", "engine.timers", *_ABOVE_DELIVERY),
    "engine.log": ("engine.replies", "engine.delivery", "engine.timers", *_ABOVE_DELIVERY),
    "engine.replies": ("engine.log", "engine.delivery", "engine.timers", *_ABOVE_DELIVERY),
    "engine.timers": ("engine.delivery", *_ABOVE_DELIVERY),
    "engine.delivery": ("engine.timers", *_ABOVE_DELIVERY),
    "engine.ops": _ABOVE_OPS,
    "engine.schedule": (
        "engine.log",
        "engine.delivery",
        "engine.timers",
        "engine.ops",
        "engine.server",
        "engine.client",
    ),
    "engine.node": ("engine.server", "engine.client"),
    "engine.client": ("engine.log", "engine.delivery", "engine.timers", *_ABOVE_DELIVERY[:-1], "engine.env.store"),
    "engine.link": ("engine.log", "engine.delivery", "engine.timers", *_ABOVE_DELIVERY, "engine.env.store"),
}
# Servers, their clients and what bridges them to threads. Everything else takes callbacks and clocks, and runs in any process.
MAY_USE_GEVENT = (
    "common.net",
    "common.ops.listener",
    "common.ops.stop",
    "common.config.blocking",
    "common.resting_timer",
    "common.tracing.exporting",
    "engine.__main__",
    "engine.broker.master_link",
    "engine.broker.metrics",
    "engine.broker.process",
    "engine.composition",
    "engine.env.background",
    "engine.env.sync_worker",
    "engine.server",
    "engine.client.append",
    "engine.client.lane",
    "engine.client.master_append",
    "engine.client.master_client",
    "engine.client.brokers",
    "engine.client.router",
    "engine.client.rpc",
    "engine.client.transport",
    "engine.client._lane",
    "engine.client._transport",
    "bench.cold_reader",  # the log's syncs come back through the loop
    "bench.dual_parts",  # the repair journal's greenlets
    "producer_proxy",
    "consumer_proxy",
)
MAY_PATCH = ("engine.__main__", "producer_proxy.__main__", "consumer_proxy.__main__")

LINES_MAX = 400
FUNCTION_LINES_MAX = 45
NATIVE_FUNCTION_LINES_MAX = 60
BATCH_MAGIC_HOMES = ("engine/link/batch.py", "engine/link/constants.pxd")
# Larger for now. The numbers may only go down.
LARGER_FILES = {
    "bench/_load.pyx": 520,
    "engine/log/write/_append.pyx": 436,
}


LONGER_NATIVE_FUNCTIONS: dict[str, int] = {}
UNTYPED_PARAMETERS: dict[str, int] = {}
CLASS_NAMES_WITH_TWO_MEANINGS: set[str] = set()


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
        code = [node for node in tree_of(modules()[name]).body if not isinstance(node, ast.Expr | ast.Assign)]
        assert ast.unparse(code[0]) == "from gevent import monkey", name
        assert "__init__.py" not in {path.name for path in [modules()[name]]}


@pytest.mark.parametrize("package", PACKAGES)
def test_a_packages_init_imports_nothing_so_that_a_main_can_patch_first(package):
    assert list(imported(ROOT / package / "__init__.py")) == []


def test_the_supervisor_runs_without_gevent():
    code = "import sys, penstock.__main__, penstock.commands.up; print('gevent' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_the_proxies_and_the_supervisor_load_no_client_of_kafka():
    mains = "producer_proxy.__main__, consumer_proxy.__main__, engine.__main__, penstock.commands.up"
    code = f"import sys, {mains}; print([name for name in ('kafka', 'confluent_kafka', 'common.kafka') if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
    reached = {other for name in ("producer_proxy", "consumer_proxy", "engine") for other in reached_from(name)}
    assert not [each for each in reached if within(each, "common.kafka") or within(each, "kafka_bridge")]


def reached_from(package: str) -> set[str]:
    """The modules that those of a package import, directly or not."""
    found: set[str] = set()
    waiting = [name for name in graph() if within(name, package)]
    while waiting:
        for other in graph().get(waiting.pop(), ()):
            if other not in found:
                found.add(other)
                waiting.append(other)
    return found


def test_all_third_party_imports_are_declared():
    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg")
    wanted = [config["options"]["install_requires"], *config["options.extras_require"].values()]
    declared = re.findall(r"^[\w-]+", "\n".join(wanted), re.M)
    known = {name.replace("-", "_").lower() for name in declared} | {"cython", "cpython", "libc", "libcpp", "greenlet"}
    known |= {"penstock_client", "penstock_client_examples", "penstock_thrift"}
    known |= {"kafka", "yaml", "argon2"}  # the modules of kafka-python, PyYAML and argon2-cffi
    known |= {"opentelemetry"}  # the modules of opentelemetry-sdk and its exporter
    known |= {"werkzeug", "markupsafe"}  # parts of Flask
    foreign = {
        f"{name}: {other}"
        for name, others in graph().items()
        for other in others
        if not ours(other) and other.partition(".")[0] not in sys.stdlib_module_names | known
    }
    assert foreign == set()


def test_a_kafka_library_is_imported_by_its_driver_alone_and_a_driver_by_nobody():
    """A process without a Kafka topic loads none of them: `common.kafka.drivers` opens drivers by name."""
    homes = {"kafka": "common.kafka.python_client", "confluent_kafka": "common.kafka.librdkafka"}
    wrong = [
        f"{name} imports {other}"
        for name, others in graph().items()
        for other in others
        for library, home in homes.items()
        if (within(other, library) or within(other, home)) and not within(name, home)
    ]
    assert wrong == []


def test_files_stay_small_and_large_ones_only_shrink():
    counts = {str(path.relative_to(ROOT)): len(path.read_text().splitlines()) for path in modules().values()}
    grown = {name: count for name, count in counts.items() if count > LARGER_FILES.get(name, LINES_MAX)}
    assert grown == {}


def test_functions_stay_small():
    long = [each for each in python_functions() if each.lines > FUNCTION_LINES_MAX]
    assert long == []


def test_native_functions_stay_small_and_long_ones_only_shrink():
    long = {
        f"{each.path}:{each.name}": each.lines
        for each in native_functions()
        if each.lines > LONGER_NATIVE_FUNCTIONS.get(f"{each.path}:{each.name}", NATIVE_FUNCTION_LINES_MAX)
    }
    assert long == {}


def test_files_and_folders_side_by_side_do_not_import_each_other_in_a_circle():
    graphs: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    for folder, one, other in sibling_imports():
        graphs[folder][one].add(other)
    circles = [f"{folder}: {' -> '.join(circle)}" for folder, found in graphs.items() if (circle := circle_in(found))]
    assert circles == []


def circle_in(edges: dict[str, set[str]]) -> list[str]:
    """One circle of a graph, or nothing."""
    done: set[str] = set()

    def visit(node: str, trail: list[str]) -> list[str]:
        if node in trail:
            return [*trail[trail.index(node) :], node]
        if node not in done:
            for other in sorted(edges.get(node, ())):
                if found := visit(other, [*trail, node]):
                    return found
            done.add(node)
        return []

    return next((found for node in sorted(edges) if (found := visit(node, []))), [])


def test_every_parameter_has_a_type():
    counts = Counter(each.partition("/")[0] for each in untyped_parameters())
    assert {name: count for name, count in counts.items() if count > UNTYPED_PARAMETERS.get(name, 0)} == {}


def test_a_class_name_has_one_meaning():
    twice = {name: sorted(homes) for name, homes in class_homes().items() if len(homes) > 1}
    assert {name: homes for name, homes in twice.items() if name not in CLASS_NAMES_WITH_TWO_MEANINGS} == {}


def test_one_module_selects_between_native_modules_and_their_references():
    wrong = [
        name
        for name, path in modules().items()
        if re.search(r"PENSTOCK_PURE.(?!. *=)", code_of(name)) and name != "common.twins"
    ]
    assert [name for name in wrong if not within(name, "penstock.doctor")] == []


def code_of(name: str) -> str:
    """A module's text without its docstring."""
    text = modules()[name].read_text()
    return re.sub(r'^(?:#[^\n]*\n)*""".*?"""', "", text, count=1, flags=re.S)


def test_the_magic_of_batches_is_written_once_for_python_and_once_for_native_code():
    texts = {relative(path): path.read_text() for pattern in ("*.py", "*.pyx", "*.pxd") for path in sources(pattern)}
    assert sorted(name for name, text in texts.items() if "0x5042" in text) == sorted(BATCH_MAGIC_HOMES)


def test_module_docstrings_name_the_thing_or_say_what_it_does():
    wrong = []
    for name, path in modules().items():
        found = re.match(r'(?:#[^\n]*\n)*"""(\w+)', path.read_text())
        if found and found[1] in ("What", "Who", "Whom", "Whose", "How", "Where", "Which", "Whoever", "Whatever"):
            wrong.append(name)
    assert wrong == []


def test_the_contracts_folder_is_no_package_of_its_name():
    assert not (ROOT / "thrift" / "__init__.py").exists()
