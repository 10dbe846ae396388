"""The backlog breaker with real processes: a required group lags, sends are refused, it catches up; also over a kill of the engine."""

import pytest

from common.contract import Ack, Code, Message
from tests.fault.stock_clients import Puller, Sender, knows
from tests.waiting import until

BOUND = 50


@pytest.fixture(scope="module")
def shop(penstock_up):
    penstock_up.run(
        "topic", "create", "bounded", "--queues", "2", "--durability", "memory",
        "--required-group", "billing", "--backlog-messages", str(BOUND),
    )  # fmt: skip
    penstock_up.run("topic", "create", "free", "--queues", "2", "--durability", "memory")
    return penstock_up.application("shop", send=["*"], pull=["*"])


@pytest.fixture
def sender(penstock_up, shop):
    with Sender(penstock_up.producer, shop) as made:
        knows(made, "free")
        yield made


@pytest.fixture
def puller(penstock_up, shop):
    with Puller(penstock_up.consumer, shop) as made:
        yield made


def lag(penstock_up):
    return sum(row["lag"] for row in penstock_up.run("group", "lag", "billing"))


def take(puller, count):
    """Deliver and acknowledge so many to the required group."""
    while count:
        given = puller.pull("billing", "bounded", max_messages=count, wait_ms=2000).deliveries
        assert given, f"{count} more were expected"
        count -= len(given)
        puller.pull("billing", "bounded", max_messages=0, acks=[Ack(each.receipt) for each in given])


def until_backlogged(sender):
    return until(lambda: (told := sender.one("bounded")).code == Code.BACKLOGGED and told, "the breaker opens", 2)


def test_senders_are_told_while_a_required_group_is_behind_and_let_in_when_it_has_caught_up(
    penstock_up, sender, puller
):
    until(lambda: sender.one("bounded").code == Code.OK, "the topic is known")
    sender.send(*[Message(topic="bounded", body=b"m")] * BOUND)
    told = until_backlogged(sender)
    assert (
        told.error
        == f"topic=bounded: group billing is too far behind, the bound is {BOUND} messages; nothing was stored"
    )
    assert told.retry_after_ms > 0 and told.offset is None
    assert sender.one("free").code == Code.OK, "others are unharmed"
    take(puller, 1)  # the group has pulled: now it can be asked for
    stored = lag(penstock_up)
    assert stored >= BOUND - 1
    take(puller, stored - int(0.8 * BOUND))
    assert until_backlogged(sender), "80 % is not caught up"
    assert lag(penstock_up) == int(0.8 * BOUND), "nobody was moved, nothing was stored"
    take(puller, int(0.2 * BOUND))
    until(lambda: sender.one("bounded").code == Code.OK, "the breaker closes", 2)


def test_the_backlog_is_known_to_an_engine_that_was_killed_before_anybody_pulls(penstock_up, sender, shop):
    sender.send(*[Message(topic="bounded", body=b"m")] * 2 * BOUND)
    until_backlogged(sender)
    penstock_up.wait_replaced("engine", penstock_up.kill("engine"))
    with Sender(penstock_up.producer, shop) as again:
        until(lambda: again.one("free").code == Code.OK, "the engine is back", 20)
        until_backlogged(again)


def test_a_higher_bound_and_none_at_all_count_within_a_second(penstock_up, sender):
    until_backlogged(sender)
    penstock_up.run("topic", "set", "bounded", "--backlog-messages", "1000")
    until(lambda: sender.one("bounded").code == Code.OK, "there is room under the new bound", 1)
    penstock_up.run("topic", "set", "bounded", "--backlog-messages", str(BOUND))
    until_backlogged(sender)
    penstock_up.run("topic", "set", "bounded", "--required-group", "", "--backlog-messages", "0")
    until(lambda: sender.one("bounded").code == Code.OK, "there is no breaker any more", 1)


def test_a_bound_without_a_group_is_refused_and_named(penstock_up):
    wrong = penstock_up.call("topic", "create", "unbound", "--backlog-messages", "5")
    assert wrong.returncode == 2
    assert b"required_groups: the list is empty: name a group" in wrong.stderr
