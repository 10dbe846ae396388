"""`penstock topic set --broker-group` on three real engines: a heavy topic is put on its own group, and moved while it waits."""

from collections import Counter

import pytest

from common.contract import Ack, Code, Message, Verdict
from penstock.terminal import engines
from penstock.terminal.instance import Instance
from tests.e2e.test_broker_groups import drain
from tests.fault.stock_clients import Puller, Sender, knows
from tests.waiting import until

QUEUES, MESSAGES = 6, 60


@pytest.fixture(scope="module")
def penstock(penstock_factory):
    return penstock_factory("--groups", "3")


@pytest.fixture(scope="module")
def shop(penstock):
    return penstock.application("shop", send=["*"], pull=["*"], dead_letters=["*"])


def stored(penstock, topic: str) -> dict[str, dict[int, int]]:
    """What each engine's log has of a topic: messages by queue."""
    answers = engines.ask_all(Instance(penstock.data, None, {}), "purge_topic", topic=topic)  # without ends it lists
    found = {name: {row["queue"]: row["end"] for row in answer["purged"]} for name, answer in answers.items()}
    return {name: queues for name, queues in found.items() if queues}


def messages_of(round_name: str) -> list[Message]:
    """A third with a key, a third with an own id, a third with neither."""
    made = [Message(topic="heavy", body=f"{round_name}-{number}".encode()) for number in range(MESSAGES)]
    for number, each in enumerate(made):
        if number % 3 == 0:
            each.key = f"key-{number}"
        elif number % 3 == 1:
            each.id = f"{round_name}-{number}"
    return made


def send(sender, messages: list[Message]) -> list:
    results = sender.send(*messages)
    assert {each.code for each in results} == {Code.OK}
    return results


def reject_all(penstock, shop, count: int) -> None:
    """Reject that many messages of the group `rejecting`."""
    rejected = 0
    with Puller(penstock.consumer, shop) as puller:
        while rejected < count:
            deliveries = puller.pull("rejecting", "heavy", max_messages=100, wait_ms=200).deliveries
            acks = [Ack(each.receipt, verdict=Verdict.REJECT, reason="no") for each in deliveries]
            puller.pull("rejecting", max_messages=0, acks=acks)
            rejected += len(acks)


def test_a_topic_is_placed_and_moved_while_messages_wait_and_nothing_is_lost_or_comes_twice(penstock, shop):
    penstock.run(
        "topic", "create", "heavy", "--queues", str(QUEUES), "--durability", "fsync", "--broker-group", "group-2"
    )
    with Sender(penstock.producer, shop) as sender:
        knows(sender, "heavy")
        assert set(drain(penstock, shop, "heavy")) == {b"m"}
        drain(penstock, shop, "heavy", "rejecting")
        first = messages_of("first")
        results = send(sender, first)
        delayed = [Message(topic="heavy", body=b"delayed-%d" % n, delay_ms=4_000, key=f"key-{n}") for n in range(12)]
        later = Message(topic="heavy", body=b"later", id="later", delay_ms=3_600_000)
        send(sender, [*delayed, later])
        assert set(stored(penstock, "heavy")) == {"group-2"}

        with Puller(penstock.consumer, shop) as puller:
            held = puller.pull("drain", "heavy", max_messages=20, wait_ms=1_000).deliveries
            assert held

            moved = penstock.run("topic", "set", "heavy", "--broker-group", "group-1", "--broker-group", "group-3")
            assert (moved["queues"], moved["broker_groups"]) == (2 * QUEUES, ["group-1", "group-3"])
            before = stored(penstock, "heavy")["group-2"]
            second = messages_of("second")
            assert min(each.queue for each in send(sender, second)) >= QUEUES
            after = stored(penstock, "heavy")
            assert after.pop("group-2") == before, "no message moves, and none comes"
            assert set().union(*after.values()) <= set(range(QUEUES, 2 * QUEUES)) and set(after) == {
                "group-1",
                "group-3",
            }

            done = puller.pull("drain", max_messages=0, acks=[Ack(each.receipt) for each in held])
            assert {each.code for each in done.ack_results} == {Code.OK}, "receipts from before find their group"

        copies = sender.send(*[each for each in (*first, *second) if each.id])
        assert {each.code for each in copies} == {Code.DUPLICATE}
        assert [(each.queue, each.offset) for each in copies[: MESSAGES // 3]] == [
            (each.queue, each.offset) for each, asked in zip(results, first, strict=True) if asked.id
        ]

    wanted = {each.body for each in (*first, *second, *delayed)} - {each.message.body for each in held}
    found: Counter = Counter()
    until(lambda: found.update(drain(penstock, shop, "heavy")) or found.keys() == wanted, "all are delivered")
    assert set(found.values()) == {1}
    rows = penstock.run("group", "lag", "drain", "--topic", "heavy")
    assert {row["lag"] for row in rows} == {0}
    assert {row["broker_group"] for row in rows if row["queue"] < QUEUES} == {"group-2"}
    assert {row["broker_group"] for row in rows if row["queue"] >= QUEUES} == {"group-1", "group-3"}


def test_messages_of_all_ranges_are_found_and_delayed_ones_cancelled(penstock):
    for shown in ("first-1", "second-1"):
        (found,) = penstock.run("message", "show", shown, "--topic", "heavy")
        assert found["id"] == shown and (found["queue"] >= QUEUES) == shown.startswith("second")
        where = ("--queue", str(found["queue"]), "--offset", str(found["offset"]), "--limit", "1")
        assert penstock.run("message", "browse", "--topic", "heavy", *where) == [found]
    by_key = penstock.run("message", "find", "--topic", "heavy", "--key", "key-33")
    assert sorted(each["queue"] >= QUEUES for each in by_key) == [False, True]
    assert penstock.run("topic", "stats", "heavy", "--seconds", "0")["messages"] > 2 * MESSAGES
    assert len(penstock.run("timer", "list", "--topic", "heavy")) == 1
    penstock.run("timer", "cancel", "--topic", "heavy", "later")
    assert penstock.run("timer", "list", "--topic", "heavy") == []


def test_dead_letters_of_all_ranges_go_back_to_their_queues(penstock, shop):
    count = 2 * MESSAGES + 12
    reject_all(penstock, shop, count)

    def letters():
        return penstock.run("group", "dead-letters", "list", "rejecting", "--limit", "500")

    until(lambda: len(letters()) == count, "every rejected message is a dead letter")
    assert {each["broker_group"] for each in letters()} == {"group-1", "group-2", "group-3"}
    assert penstock.run("group", "dead-letters", "redrive", "rejecting") == {"redriven": count}
    assert drain(penstock, shop, "heavy", "rejecting").total() == count
    assert set(stored(penstock, "heavy")["group-2"]) <= set(range(QUEUES))


def test_a_spared_group_gets_no_messages_without_a_key_and_one_with_a_topic_is_not_removed(penstock, shop):
    penstock.run("topic", "create", "light", "--queues", "12", "--durability", "memory")
    with Sender(penstock.producer, shop) as sender:
        knows(sender, "light")
        assert penstock.run("broker-group", "writes", "group-1", "keyed") == {"name": "group-1", "writes": "keyed"}
        before = stored(penstock, "light").get("group-1", {})
        for _ in range(30):
            send(sender, [Message(topic="light", body=b"x")])
        assert stored(penstock, "light").get("group-1", {}) == before
    assert [each["writes"] for each in penstock.run("broker-group", "list")] == ["keyed", "all", "all"]
    (row,) = penstock.run("broker-group", "topics")
    assert (row["topic"], row["broker_groups"], row["first_queue"], row["read_only"]) == (
        "heavy", ["group-1", "group-3"], QUEUES, ["group-2"],
    )  # fmt: skip
    refused = penstock.call("broker-group", "remove", "group-2")
    assert refused.returncode == 4 and b"1 topics are placed in it" in refused.stderr
    unknown = penstock.call("topic", "set", "light", "--broker-group", "group-9")
    assert (
        unknown.returncode == 2 and b'"group-9" is no broker group: use group-1, group-2 or group-3' in unknown.stderr
    )
