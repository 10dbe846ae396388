"""Commands whose engine does not answer: exit code 5, and one line that names its address."""

import socket
import threading
from collections.abc import Iterator

import click
import pytest

from common.clock import SystemClock
from common.config import open_store
from migration.entries import PlanStore
from migration.plan import parse_plan
from penstock.__main__ import cli
from tests.unit.penstock.test_admin_commands import run  # noqa: F401

PLAN = "name: shop\nrecipe: mirror\ncluster: main\ntopics: [orders]\n"
NEEDING = [
    "topic stats orders", "topic purge orders --yes", "topic unused", "topic list --auto-created",
    "group list --all", "group lag g", "group describe g", "group unused", "group delete g --progress --yes",
    "group reset g --topic orders --to earliest --yes",
    "group dead-letters list g", "group dead-letters purge g --yes", "group dead-letters redrive g",
    "timer list", "timer cancel --topic orders x",
    "message show x -t orders", "message find -t orders --key k", "message browse -t orders -q 0 --offset 0",
    "message tail orders", "retention show", "retention accept-clock", "broker-group accept main", "kafka accept orders --reason x",
    "migrate status shop", "migrate verify shop", "migrate positions shop --group g",
    "migrate report shop --out {dir}/report",
    *(f"migrate {each} shop" for each in ("abort", "cut", "fence", "resume", "retire", "rollback", "soak", "start")),
]  # fmt: skip
NOT_NEEDING = {
    "app show", "apply", "broker-group add", "broker-group list", "broker-group remove", "buffer drain",
    "buffer redrive", "context add", "migrate rehearse", "status", "top", "topic delete", "topic set", "topic show",
}  # fmt: skip
"""An engine that is away is a value that they show, or they use it in some cases only, or have a test of their own."""


@pytest.fixture
def prepared(tmp_path, run):  # noqa: F811
    (tmp_path / "admin.key").write_bytes(b"k" * 32)
    run("kafka", "add", "main", "--bootstrap", "127.0.0.1:1")
    run("topic", "create", "orders")
    run("group", "create", "g")
    store = open_store((tmp_path / "config").as_uri())
    PlanStore(store, SystemClock(), "cli:ann@desk").add(parse_plan(PLAN, "plan"))
    store.put("copy_in", "orders", {"cluster": "main", "topic": "orders"}, 0)
    store.close()
    return tmp_path


def commands(command: click.Command, path: tuple[str, ...] = ()) -> Iterator[tuple[str, click.Command]]:
    if not isinstance(command, click.Group):
        yield " ".join(path), command
        return
    context = click.Context(command)
    for name in command.list_commands(context):
        found = command.get_command(context, name)
        assert found is not None
        yield from commands(found, (*path, name))


def test_each_command_that_takes_an_engine_is_in_one_of_the_lists():
    taking = {name for name, each in commands(cli) if any("--engine" in option.opts for option in each.params)}
    assert {
        name for name in taking if any(f"{line} ".startswith(f"{name} ") for line in NEEDING)
    } == taking - NOT_NEEDING


@pytest.mark.parametrize("line", NEEDING)
def test_an_engine_that_does_not_listen_is_unavailable_at_its_address(run, prepared, line):  # noqa: F811
    address = "127.0.0.1:1"
    told = run(*line.format(dir=prepared).split(), "--engine", address, code=5).stderr
    assert f"engine at {address}: no answer: Connection refused: try again once `penstock status` shows" in told


def test_a_link_that_breaks_is_unavailable_at_its_address(run, prepared):  # noqa: F811
    with socket.create_server(("127.0.0.1", 0)) as listener:
        closing = threading.Thread(target=lambda: listener.accept()[0].close())
        closing.start()
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        told = run("migrate", "verify", "shop", "--engine", address, code=5).stderr
        closing.join()
    assert f"engine at {address}: " in told
