"""`penstock broker-group`: guards, records and the audit journal, against engines that the test makes up."""

import json
from contextlib import nullcontext
from dataclasses import dataclass, field
from types import SimpleNamespace

import pytest
from click.testing import CliRunner

from common.cluster.coordination import Registration
from engine.client.dial import Hello
from penstock.__main__ import cli

ADDRESSES = {"g1": "10.0.0.1:9702", "g2": "10.0.0.2:9702"}


@dataclass
class Engines:
    """Greetings and topics by address; an address without a greeting does not answer."""

    hellos: dict = field(default_factory=dict)
    topics: dict = field(default_factory=dict)


@pytest.fixture
def engines(monkeypatch):
    found = Engines()
    for number, (name, address) in enumerate(ADDRESSES.items()):
        found.hellos[address] = Hello(f"{number}" * 32, name, "e1", 5000, 5000)

    class FakeAdminClient:
        def __init__(self, address, key, timeout_s):
            self.address = "{}:{}".format(*address)
            if self.address not in found.hellos:
                raise ConnectionRefusedError(111, "Connection refused")
            self.hello = found.hellos[self.address]

        def __enter__(self):
            return self

        def __exit__(self, *_):
            pass

        def ask(self, verb, limit):
            return {"topics": [{"name": name} for name in found.topics.get(self.address, [])]}

    monkeypatch.setattr("penstock.commands.broker_group.AdminClient", FakeAdminClient)
    monkeypatch.setattr("penstock.terminal.instance.AdminClient", FakeAdminClient)
    accepted = "penstock.commands.broker_group.CommandLink"
    monkeypatch.setattr(accepted, lambda name, address, key, timeout_s: FakeAdminClient(address, key, timeout_s))
    return found


@pytest.fixture
def run(tmp_path, engines):
    (tmp_path / "config").mkdir()
    (tmp_path / "admin.key").write_bytes(b"k" * 32)

    def run_it(*arguments, code=0):
        options = ["--config", f"file://{tmp_path}/config", "--data", str(tmp_path)]
        result = CliRunner().invoke(cli, [*arguments, *options])
        assert result.exit_code == code, result.output
        return result

    for name, address in ADDRESSES.items():
        run_it("broker-group", "add", name, address)
    return run_it


def rows(run) -> dict:
    return {row["name"]: row for row in json.loads(run("broker-group", "list", "-o", "json").stdout)}


def test_groups_are_added_listed_moved_and_removed_and_each_change_is_audited(run):
    assert rows(run)["g1"]["address"] == ADDRESSES["g1"]
    run("broker-group", "set", "g2", "10.0.0.7:9702")
    run("broker-group", "remove", "g2", "--force")
    assert list(rows(run)) == ["g1"]
    records = json.loads(run("audit", "--kind", "broker_group", "-o", "json").stdout)
    assert [each["action"] for each in reversed(records)] == ["create", "create", "change", "delete"]


def test_the_address_of_another_group_is_refused(run):
    for words in (("add", "g3", f"10.0.0.9:9702,{ADDRESSES['g1']}"), ("set", "g2", ADDRESSES["g1"])):
        told = run("broker-group", *words, code=2).stderr
        assert f'broker group "{words[1]}": address: {ADDRESSES["g1"]} is that of broker group "g1"' in told
    run("broker-group", "set", "g1", ADDRESSES["g1"])


def test_a_group_is_not_added_once_another_has_messages_unless_it_is_forced(run, engines):
    engines.topics[ADDRESSES["g2"]] = ["orders"]
    refused = run("broker-group", "add", "g3", "10.0.0.3:9702", code=4).stderr
    assert "broker group g2 has messages, of topic orders for example" in refused and "--force" in refused
    assert list(rows(run)) == ["g1", "g2"]
    assert "warning" in run("broker-group", "add", "g3", "10.0.0.3:9702", "--force").stderr
    assert list(rows(run)) == ["g1", "g2", "g3"]


def test_a_group_with_messages_or_without_an_answer_is_not_removed(run, engines):
    engines.topics[ADDRESSES["g2"]] = ["orders"]
    assert "has messages" in run("broker-group", "remove", "g2", code=4).stderr
    del engines.hellos[ADDRESSES["g2"]]
    assert "does not answer" in run("broker-group", "remove", "g2", code=4).stderr
    run("broker-group", "remove", "g2", "--force")
    run("broker-group", "remove", "g2", code=3)


def test_an_engine_is_accepted_shown_as_foreign_or_older_and_accepted_again(run, engines):
    run("broker-group", "accept", "g1")
    assert (rows(run)["g1"]["engine"], rows(run)["g1"]["position"]) == ("answers", 5000)
    engines.hellos[ADDRESSES["g1"]] = Hello("0" * 32, "g1", "e2", 4000, 4000)
    assert "older: its log ends at 4,000" in rows(run)["g1"]["engine"]
    engines.hellos[ADDRESSES["g1"]] = Hello("f" * 32, "g1", "e3", 10, 10)
    assert "foreign" in rows(run)["g1"]["engine"]
    accepted = json.loads(run("broker-group", "accept", "g1", "-o", "json").stdout)
    assert (accepted["log_id"], accepted["old_log_id"], accepted["old_position"]) == ("f" * 32, "0" * 32, 5000)
    assert rows(run)["g1"]["engine"] == "answers"
    assert json.loads(run("audit", "--kind", "engine", "-o", "json").stdout)[0]["old"]["log_id"] == "0" * 32


def test_the_engine_of_another_group_cannot_be_accepted(run, engines):
    engines.hellos[ADDRESSES["g1"]] = engines.hellos[ADDRESSES["g2"]]
    assert "answers the engine of broker group g2" in run("broker-group", "accept", "g1", code=4).stderr


@pytest.mark.parametrize("address", ["nowhere", "host:x", ":1"])
def test_an_address_that_is_none_is_refused(run, address):
    run("broker-group", "set", "g1", address, code=2)


def test_of_several_brokers_the_one_that_leads_is_asked(run, engines):
    engines.hellos["10.0.0.3:9702"] = Hello("c" * 32, "g3", "e1", 10, 10, leads=False, broker="a", term=2)
    engines.hellos["10.0.0.4:9702"] = Hello("c" * 32, "g3", "e2", 10, 10, broker="b", term=2)
    run("broker-group", "add", "g3", "10.0.0.9:9702,10.0.0.3:9702,10.0.0.4:9702")
    engines.topics["10.0.0.4:9702"] = ["orders"]
    shown = {row["name"]: row for row in json.loads(run("broker-group", "list", "--output", "json").output)}
    assert (shown["g3"]["address"], shown["g3"]["engine"]) == ("10.0.0.4:9702", "answers")
    assert "broker group g3 has messages" in run("broker-group", "remove", "g3", code=4).output


def test_set_refuses_addresses_without_that_of_the_master(run, monkeypatch):
    brokers = {"a": Registration(1, "127.0.0.1:9702"), "b": Registration(2, "localhost:9703")}
    group = SimpleNamespace(
        record=lambda name: SimpleNamespace(record=SimpleNamespace(master="b")), brokers=lambda name: brokers
    )
    monkeypatch.setattr("penstock.commands.broker_group.coordination_of", lambda instance: nullcontext(group))
    refused = run("broker-group", "set", "g1", "127.0.0.1:9702", code=4).stderr
    assert "its master b is at localhost:9703" in refused and "--force" in refused
    run("broker-group", "set", "g1", "127.0.0.1:9702,127.0.0.1:9703")
    run("broker-group", "set", "g1", "127.0.0.1:9702", "--force")
