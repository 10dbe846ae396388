"""Ways out that docs/runbooks.md names: they end what they are for. That the lines run is test_pages.py's."""

import pytest

from common.contract import Ack, Code, Verdict
from tests.fault.stock_clients import Puller, Sender, knows
from tests.waiting import until

HOUR_MS = 3_600_000


@pytest.fixture(scope="module")
def penstock(penstock_factory):
    return penstock_factory()


@pytest.fixture(scope="module")
def shop(penstock):
    return penstock.application("shop", send=["*"], pull=["*"])


def is_drained(puller, group, topic):
    """Whether the group is served and has nothing left."""
    answer = puller.pull(group, topic)
    puller.pull(group, topic, max_messages=0, acks=[Ack(each.receipt) for each in answer.deliveries])
    return answer.code == Code.OK and not answer.deliveries


@pytest.mark.parametrize("order", ["key", "queue"])
def test_a_group_passes_a_message_that_no_consumer_can_handle_once_its_attempts_are_lowered(penstock, shop, order):
    topic, group = f"orders-{order}", f"readers-{order}"
    penstock.run("topic", "create", topic, "--queues", "1", "--durability", "memory")
    penstock.run("group", "create", group, "--topic", topic, "--order", order, "--attempts-max", "5")
    with Sender(penstock.producer, shop) as sender, Puller(penstock.consumer, shop) as puller:
        knows(sender, topic)
        until(lambda: is_drained(puller, group, topic), "the group is served")
        bodies = [b"bad", b"next"]
        assert [sender.one(topic, key="k", body=body).code for body in bodies] == [Code.OK] * 2
        (bad,) = puller.pull(group, topic, max_messages=1, wait_ms=5_000).deliveries
        puller.pull(group, topic, max_messages=0, acks=[Ack(bad.receipt, Verdict.RETRY, HOUR_MS)])
        assert puller.pull(group, topic).deliveries == []
        penstock.run("group", "set", group, "--attempts-max", "1")
        (following,) = puller.pull(group, topic, wait_ms=20_000).deliveries
        assert (bad.message.body, following.message.body) == (b"bad", b"next")
        assert [letter["topic"] for letter in penstock.run("group", "dead-letters", "list", group)] == [topic]


def test_a_longer_invisible_time_counts_for_the_next_pull(penstock, shop):
    penstock.run("topic", "create", "slow", "--queues", "1", "--durability", "memory")
    penstock.run("group", "create", "slow", "--topic", "slow", "--invisible-ms", "1000")
    with Puller(penstock.consumer, shop) as puller:
        until(lambda: puller.pull("slow", "slow").invisible_ms == 1_000, "the group is served")
        penstock.run("group", "set", "slow", "--invisible-ms", "60000")
        until(lambda: puller.pull("slow", "slow").invisible_ms == 60_000, "its proxies follow")
