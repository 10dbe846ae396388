"""Today's `penstock up` continues data and configuration that an older version has written: older/README.md."""

import json
import shutil
import subprocess
import tarfile
from pathlib import Path

import pytest
from penstock_client import Consumer

from common.contract import Code
from tests.e2e.running import PENSTOCK, Application, RunningPenstock
from tests.fault.stock_clients import Sender, retry_until_served
from tests.waiting import until

OLDER = sorted((Path(__file__).parent / "older").glob("*.tar.xz"))


class Upgraded:
    """An older version's directory, and the `up` that serves it now.

    Args:
        options: of `up`.
        copies: directories of brokers that begin with a copy of the engine's.
    """

    def __init__(self, archive: Path, folder: Path, *options: str, copies: tuple[str, ...] = ()) -> None:
        with tarfile.open(archive) as packed:
            # Debian 12's Python does not know the filter yet, and Python 3.14 wants one.
            packed.extractall(folder, **({"filter": "data"} if hasattr(tarfile, "data_filter") else {}))
        self.expected = json.loads((folder / "expected.json").read_text())
        self.shop = Application(**self.expected["application"])
        for name in copies:
            shutil.copytree(folder / "data" / "engine", folder / "data" / name)
        self.penstock = RunningPenstock(folder / "data", "--no-console", *options).start()

    @property
    def left(self) -> list[str]:
        """Messages that the group had not finished, in the order in which they were sent."""
        finished = {*self.expected["done"], *self.expected["rejected"]}
        return [each["body"] for each in self.expected["sent"] if each["body"] not in finished]

    def take(self, group: str, count: int) -> list[str]:
        """Pull and acknowledge messages of a group that has so many left and no more."""
        bodies: list[str] = []
        endpoint = "{}:{}".format(*self.penstock.consumer)
        with Consumer(endpoint, *self.shop, group, ["orders"]) as consumer:

            def pull(wait_ms: int) -> int:
                deliveries = consumer.pull(100, wait_ms=wait_ms)
                bodies.extend(each.message.body.decode() for each in deliveries)
                for each in deliveries:
                    consumer.done(each)
                return len(deliveries)

            until(lambda: pull(500) and len(bodies) >= count, f"group {group} has {count} messages", 20.0)
            assert not pull(0)
        return bodies


@pytest.fixture(params=OLDER, ids=lambda path: path.name.partition(".")[0])
def upgraded(request, tmp_path):
    made = Upgraded(request.param, tmp_path)
    yield made
    made.penstock.end()


def test_it_continues_where_the_older_version_stopped(upgraded):
    penstock, expected = upgraded.penstock, upgraded.expected
    assert penstock.run("topic", "show", "orders")["queues"] == 4
    assert penstock.run("group", "show", "readers")["attempts_max"] == 5
    assert penstock.run("config", "verify") is not None

    # Progress: exactly what was not finished comes; the other group's filter and order are in force.
    assert sorted(upgraded.take("readers", len(upgraded.left))) == sorted(upgraded.left)
    numbered = [each["body"] for number, each in enumerate(expected["sent"]) if number > 40]
    assert sorted(upgraded.take("italy", len(numbered))) == sorted(numbered)

    # Messages are at their offsets, dead letters and delayed messages are there and can be worked on.
    sent = expected["sent"][-1]
    place = ("--queue", str(sent["queue"]), "--offset", str(sent["offset"]))
    (found,) = penstock.run("message", "browse", "--topic", "orders", *place, "--limit", "1")
    assert found["offset"] == sent["offset"] and sent["body"] in json.dumps(found)
    assert len(penstock.run("group", "dead-letters", "list", "readers")) == 1
    penstock.run("group", "dead-letters", "redrive", "readers")
    assert upgraded.take("readers", 1) == expected["rejected"]
    penstock.run("timer", "cancel", "--topic", "orders", expected["delayed_id"])

    # It writes on, and the next start continues from there.
    with Sender(penstock.producer, upgraded.shop) as sender:
        retry_until_served(lambda: sender.one("orders", b"new").code == Code.OK, "it is stored")
    penstock.restart()
    assert upgraded.take("readers", 1) == ["new"]
    assert penstock.stop() == 0
    checked = subprocess.run([*PENSTOCK, "log", "verify", str(penstock.data)], capture_output=True, text=True)
    assert checked.returncode == 0, checked.stdout


def test_a_slave_with_a_copy_of_the_older_directory_follows_and_leads_with_all_of_it(tmp_path):
    upgraded = Upgraded(OLDER[-1], tmp_path, "--replicas", "2", copies=("engine-r2",))
    penstock = upgraded.penstock
    try:
        until(lambda: sorted(roles(penstock).values()) == ["in sync", "master"], "the slave is in sync", 30.0)
        slave = next(name for name, role in roles(penstock).items() if role != "master")
        assert not (penstock.data / slave / "diverged").exists(), "its bytes are the master's"
        penstock.run("broker", "switch", "main", "--to", slave)
        assert roles(penstock)[slave] == "master"
        assert sorted(upgraded.take("readers", len(upgraded.left))) == sorted(upgraded.left)
    finally:
        penstock.end()


def roles(penstock: RunningPenstock) -> dict[str, str]:
    return {each["broker"]: each["role"] for each in penstock.run("broker", "list")}
