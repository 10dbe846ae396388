"""Quotas on what an application creates, and a purge, with two broker groups and stock clients."""

import pytest

from common.contract import Ack, Code, Message, Position
from tests.fault.stock_clients import Puller, Sender, knows
from tests.waiting import until

QUEUES = 6


@pytest.fixture(scope="module")
def penstock(penstock_factory):
    return penstock_factory("--groups", "2")


@pytest.fixture(scope="module")
def shop(penstock):
    made = penstock.application("shop", send=["*"], pull=["*"])
    penstock.run("app", "set", "shop", "--groups-max", "2", "--family-topics-max", "2")
    penstock.run("topic", "create", "m.*", "--family", "--queues", str(QUEUES), "--durability", "memory")
    penstock.run("topic", "create", "orders", "--queues", str(QUEUES))
    return made


def test_an_application_creates_no_more_groups_and_topics_than_its_quotas_allow(penstock, shop):
    with Sender(penstock.producer, shop) as sender, Puller(penstock.consumer, shop) as puller:
        knows(sender, "orders")
        assert [sender.one(f"m.{name}").code for name in "aba"] == [Code.OK] * 3
        results = sender.send(*(Message(topic=name, body=b"m") for name in ("orders", "m.c", "m.a")))
        assert [result.code for result in results] == [Code.OK, Code.QUOTA_EXCEEDED, Code.OK]
        assert "application shop has created 2 topics of families, and may create 2" in results[1].error
        assert [puller.pull(f"g{number}", "orders").code for number in range(2)] == [Code.OK] * 2
        refused = puller.pull("g2", "orders")
        assert refused.code == Code.QUOTA_EXCEEDED
        assert "application shop has 2 groups without a definition, and may have 2" in refused.error
        shown = penstock.run("app", "show", "shop")
        assert (shown["groups_created"], shown["family_topics_created"]) == (2, 2)
        penstock.run("group", "create", "g2", "--topic", "orders")
        until(lambda: puller.pull("g2", "orders").code == Code.OK, "a defined group is served")


def test_a_purge_empties_every_queue_and_groups_go_on_behind_it(penstock, shop):
    with Sender(penstock.producer, shop) as sender, Puller(penstock.consumer, shop) as puller:
        knows(sender, "orders")
        for number in range(30):
            assert sender.one("orders", key=f"k{number}").code == Code.OK
        held = puller.pull("g0", "orders", max_messages=5, wait_ms=1_000).deliveries
        assert held
        assert penstock.run("topic", "purge", "orders", "--dry-run")["would_purge"] >= 30
        assert {"name": "g0", "defined": False} in penstock.run("group", "list", "--all")
        done = penstock.call("topic", "purge", "orders")
        assert done.returncode == 1 and b"messages of topic orders?" in done.stderr
        assert penstock.run("topic", "purge", "orders", "--yes")["purged"] >= 30
        assert penstock.run("topic", "purge", "orders", "--yes")["purged"] == 0
        for queue in range(QUEUES):
            (report,) = puller.pull("g0", positions=[Position("orders", queue, offset=0)]).positions
            assert (report.code, report.min_offset) == (Code.OFFSET_OUT_OF_RANGE, report.end_offset)
        sent = {sender.one("orders", key=f"k{number}", body=b"new").queue for number in range(30)}
        assert len(sent) > 1
        found = []

        def took():
            given = puller.pull("g0", "orders", max_messages=100, acks=[Ack(each.receipt) for each in held]).deliveries
            found.extend(given)
            return len(found) >= 30

        until(took, "the new messages come")
        assert {each.message.body for each in found} == {b"new"} and len(found) == 30
        assert all(each.offset > 0 for each in found)


def test_topics_of_families_that_are_in_use_are_not_listed_as_unused(penstock, shop):
    with Sender(penstock.producer, shop) as sender:
        knows(sender, "orders")
        assert sender.one("m.a").code == Code.OK
    assert penstock.run("topic", "unused", "--days", "0") == []
    refused = penstock.call("topic", "unused", "--days", "-1")
    assert refused.returncode == 2 and b"--days" in refused.stderr and b"Traceback" not in refused.stderr
