"""Calls that parse and ask for what is not theirs, does not exist or makes no sense (rows TH7, TH9, TH10): a code and a sentence each."""

import pytest

from common.contract import Ack, Code, Credential, Message, Position, Verdict
from common.credential import WINDOW_MS
from tests.e2e.running import Application
from tests.fault.stock_clients import Puller, Sender, credential, knows, now_ms, retry_until_served
from tests.waiting import until

SECOND_MS = 1_000


class Town:
    """Two applications, each with topics of its own, and clients of the first."""

    def __init__(self, penstock):
        self.penstock = penstock
        self.shop = penstock.application("shop", send=["shop.*"], pull=["shop.*", "readers"])
        self.bank = penstock.application("bank", send=["bank.*"], pull=["bank.*"])
        for name in ("shop.orders", "bank.payments"):
            penstock.run("topic", "create", name, "--queues", "1", "--durability", "memory")
        self.connect()
        knows(self.sender, "shop.orders")

    def connect(self):
        self.sender = Sender(self.penstock.producer, self.shop)
        self.puller = Puller(self.penstock.consumer, self.shop)

    def pull(self, group="readers", topic="shop.orders", **fields):
        return self.puller.pull(group, topic, **fields)

    def ack(self, *receipts, group="readers", **how):
        """The results of acknowledging these and nothing else."""
        acks = [Ack(receipt, **how) for receipt in receipts]
        response = self.puller.pull(group, "shop.orders", max_messages=0, acks=acks)
        assert response.code == Code.OK, response.error
        return response.ack_results

    def hold(self, count, group, **fields):
        """Send so many, and lease them to a group of its own."""
        for number in range(count):
            assert self.sender.one("shop.orders", b"%d" % number).code == Code.OK
        held = []
        while len(held) < count:
            held += self.pull(group, max_messages=count, wait_ms=500, **fields).deliveries
        return held


@pytest.fixture(scope="module", params=["native", "pure"])
def town(request, penstock_factory):
    return Town(penstock_factory(environment={"PENSTOCK_PURE": "1"} if request.param == "pure" else None))


def refused(answer, code, *words):
    """It has this code and a sentence with these words; of a send, nothing says that it was stored."""
    assert answer.code == code, answer
    assert answer.error and all(word in answer.error for word in words), answer.error
    assert getattr(answer, "offset", None) is None
    return True


@pytest.mark.parametrize(
    "name", ["", "..", "a/b", "%2e", "a\n", "%RETRY%x", "n" * 250, "o\u200brders", "shop.orders\0"]
)
def test_a_bad_name_is_invalid_and_the_field_is_named(town, name):
    assert refused(town.sender.one(name), Code.INVALID, "Message.topic")
    assert refused(town.pull(group=name), Code.INVALID, "PullRequest.group")
    assert refused(town.pull(topic=name), Code.INVALID, "PullRequest.topics")


def test_an_unknown_topic_is_named_and_its_neighbours_in_the_call_are_stored(town):
    good, bad = (Message(topic=topic, body=b"m") for topic in ("shop.orders", "shop.nothing"))
    first, second, third = town.sender.send(good, bad, good)
    assert (first.code, third.code) == (Code.OK, Code.OK)
    assert refused(second, Code.UNKNOWN_TOPIC, "shop.nothing")
    assert refused(town.pull(topic="shop.nothing"), Code.UNKNOWN_TOPIC, "shop.nothing")


@pytest.mark.parametrize("topic", ["bank.payments", "bank.nothing"])
def test_another_applications_topic_is_forbidden_whether_it_exists_or_not(town, topic):
    assert refused(town.sender.one(topic), Code.FORBIDDEN, "shop", topic)
    assert refused(town.pull(topic=topic), Code.FORBIDDEN, "shop", topic)
    assert refused(town.pull(positions=[Position(topic, 0, offset=0)], topic=None), Code.FORBIDDEN, "shop", topic)


def test_another_applications_group_is_forbidden(town):
    assert refused(town.pull(group="bank.readers"), Code.FORBIDDEN, "bank.readers")


def test_a_group_without_topics_that_names_none_is_unknown(town):
    assert refused(town.pull(group="shop.nobody", topic=None), Code.UNKNOWN_GROUP, "shop.nobody")


def forgeries(shop, bank):
    good = credential(shop)
    flipped = bytes([good.signature[0] ^ 1]) + good.signature[1:]

    def changed(**fields):
        return Credential(**{**vars(good), **fields})

    return {
        "one bit of the signature": changed(signature=flipped),
        "no signature": changed(signature=b""),
        "a signature cut short": changed(signature=good.signature[:31]),
        "a signature that goes on": changed(signature=good.signature + b"\0"),
        "a later moment under the old signature": changed(issued_at_ms=good.issued_at_ms + 1),
        "an unknown key": changed(key_id="k-none"),
        "an unknown application": changed(app="nobody"),
        "another application with our key": changed(app=bank.app),
        "another application's secret": credential(Application(shop.app, shop.key_id, bank.secret)),
        "an application's name in full width": changed(app="ｓhop"),
        "an empty application": changed(app=""),
        "an application of 60 KB": changed(app="a" * 60_000),
        "301 s old": credential(shop, WINDOW_MS + SECOND_MS),
        "301 s ahead": credential(shop, -WINDOW_MS - SECOND_MS),
        "issued at 0": changed(issued_at_ms=0),
        "issued at 2^63-1": changed(issued_at_ms=2**63 - 1),
    }


FORGERIES = list(forgeries(Application("a", "k", "s"), Application("b", "k", "t")))


@pytest.mark.parametrize("what", FORGERIES)
def test_a_credential_that_does_not_hold_is_unauthenticated_at_both_proxies(town, what):
    bad = forgeries(town.shop, town.bank)[what]
    town.connect()  # one that has failed often is slowed
    before = town.sender.one("shop.orders").offset
    for _ in range(2):  # a verdict that is remembered must be the same
        (answer,) = town.sender.send(Message(topic="shop.orders", body=b"x"), credential=bad)
        assert refused(answer, Code.UNAUTHENTICATED, "credential")
        assert refused(town.pull(credential=bad), Code.UNAUTHENTICATED, "credential")
        assert town.shop.secret not in answer.error
    assert town.sender.one("shop.orders").offset == before + 1, "something was stored"


@pytest.mark.parametrize("age_ms", [WINDOW_MS - 5 * SECOND_MS, -WINDOW_MS + 5 * SECOND_MS])
def test_a_credential_at_the_edge_of_its_window_holds(town, age_ms):
    (answer,) = town.sender.send(Message(topic="shop.orders"), credential=credential(town.shop, age_ms))
    assert answer.code == Code.OK
    assert town.pull(credential=credential(town.shop, age_ms)).code == Code.OK


def test_a_revoked_key_stops_on_open_connections_and_the_other_live_key_goes_on(town):
    penstock, old = town.penstock, penstock_application(town, "mover")
    rotated = penstock.run("app", "rotate", old.app)
    new = Application(old.app, rotated["key_id"], rotated["secret"])
    with (
        Sender(penstock.producer, old) as send_old,
        Sender(penstock.producer, new) as send_new,
        Puller(penstock.consumer, old) as pull_old,
        Puller(penstock.consumer, new) as pull_new,
    ):
        for sender, puller in ((send_old, pull_old), (send_new, pull_new)):
            until(lambda one=sender: one.one("shop.orders").code == Code.OK, "both keys send")
            until(lambda one=puller: one.pull("shop.mover", "shop.orders").code == Code.OK, "both keys pull")
        penstock.run("app", "revoke", old.app, old.key_id)
        until(lambda: send_old.one("shop.orders").code == Code.UNAUTHENTICATED, "the old key's sends are refused")
        until(lambda: pull_old.pull("shop.mover").code == Code.UNAUTHENTICATED, "the old key's pulls are refused")
        assert refused(send_old.one("shop.orders"), Code.UNAUTHENTICATED, "credential")
        assert send_new.one("shop.orders").code == Code.OK
        assert pull_new.pull("shop.mover", "shop.orders").code == Code.OK


def penstock_application(town, name):
    return town.penstock.application(name, send=["shop.*"], pull=["shop.*"])


def altered(receipt):
    """Every byte of a receipt wrong once, and other things that are no receipts."""
    for at in range(len(receipt)):
        yield receipt[:at] + bytes([receipt[at] ^ 0x10]) + receipt[at + 1 :]
    yield from (
        b"",
        receipt[:-1],
        receipt + b"\0",
        bytes(52),
        b"\xff" * 52,
        receipt[:48] + b"\xff\xff\xff\x7f",
        b"x" * 60_000,
    )


def test_forged_and_altered_receipts_are_stale_and_acknowledge_nothing(town):
    group = "shop.forged"
    (held,) = town.hold(1, group, invisible_ms=1_000)[-1:]
    others = list(altered(held.receipt))
    for result in town.ack(*others, group=group):
        assert refused(result, Code.STALE_RECEIPT)
    again = until(lambda: [d for d in town.pull(group, wait_ms=500).deliveries if d.id == held.id], "it comes again")
    assert again[0].attempt == 2


def test_a_receipt_counts_only_for_its_own_group_and_only_while_nobody_else_has_the_message(town):
    group = "shop.own"
    held = town.hold(1, group, invisible_ms=1_000)[-1]
    town.pull("shop.foreign", max_messages=1)
    assert refused(town.ack(held.receipt, group="shop.foreign")[0], Code.STALE_RECEIPT)
    again = until(
        lambda: [d for d in town.pull(group, wait_ms=500).deliveries if d.id == held.id], "its lease ran out"
    )[0]
    assert refused(town.ack(held.receipt, group=group)[0], Code.STALE_RECEIPT)
    assert [result.code for result in town.ack(again.receipt, again.receipt, group=group)] == [Code.OK, Code.OK]
    assert town.ack(again.receipt, group=group)[0].code == Code.OK, "twice is harmless"
    assert refused(town.ack(again.receipt, group=group, verdict=Verdict.RETRY)[0], Code.STALE_RECEIPT)


def test_an_acknowledgement_that_breaks_a_rule_is_refused_alone(town):
    group = "shop.rules"
    first, second, third, fourth = town.hold(4, group)[-4:]
    acks = [
        Ack(first.receipt, verdict=77),
        Ack(second.receipt, verdict=Verdict.RETRY, delay_ms=-1),
        Ack(third.receipt, verdict=Verdict.EXTEND, delay_ms=2**31 - 1),
        Ack(fourth.receipt),
    ]
    response = town.puller.pull(group, "shop.orders", max_messages=0, acks=acks)
    assert refused(response.ack_results[0], Code.INVALID, "verdict")
    assert refused(response.ack_results[1], Code.INVALID, "delay_ms")
    assert refused(response.ack_results[2], Code.INVALID, "delay_ms")
    assert response.ack_results[3].code == Code.OK


def test_acknowledgements_may_be_none_or_ten_thousand(town):
    empty = town.puller.pull("shop.many", "shop.orders", max_messages=0, acks=[])
    assert (empty.code, empty.ack_results) == (Code.OK, [])
    held = town.hold(1, "shop.many")[-1]
    results = town.ack(*[held.receipt] * 9_999, b"junk", group="shop.many")
    assert [result.code for result in results] == [Code.OK] * 9_999 + [Code.STALE_RECEIPT]
    assert results[-1].error


@pytest.mark.parametrize("count", [-1, 10**9])
def test_a_number_of_messages_out_of_range_is_invalid_and_zero_only_acknowledges(town, count):
    assert refused(town.pull(max_messages=count), Code.INVALID, "PullRequest.max_messages")
    nothing = town.pull(max_messages=0)
    assert (nothing.code, nothing.deliveries) == (Code.OK, [])


@pytest.mark.parametrize(
    ("field", "value"), [("max_bytes", -1), ("wait_ms", -1), ("invisible_ms", -1), ("invisible_ms", 1)]
)
def test_a_limit_out_of_range_is_invalid_and_named(town, field, value):
    assert refused(town.pull(**{field: value}), Code.INVALID, f"PullRequest.{field}")


def test_a_longer_wait_than_the_longest_counts_as_the_longest(town):
    town.sender.one("shop.orders")
    response = town.pull("shop.patient", wait_ms=2**31 - 1)
    assert (response.code, bool(response.deliveries)) == (Code.OK, True)


def test_positions_out_of_range_are_reported_one_by_one_with_the_bounds_that_hold(town):
    end = town.sender.one("shop.orders").offset + 1
    places = [
        Position("shop.orders", 0, offset=-1),
        Position("shop.orders", 0, offset=end + 1),
        Position("shop.orders", 0, offset=2**63 - 1),
        Position("shop.orders", 1, offset=0),
        Position("shop.orders", -1, offset=0),
        Position("shop.orders", 0, at_time_ms=-3),
        Position("shop.orders", 0, offset=0, end_offset=-1),
        Position("shop.nothing", 0, offset=0),
        Position("shop.orders", 0, offset=end),
        Position("shop.orders", 0, offset=end - 1),
    ]
    response = town.pull(positions=places, topic=None)
    reports = response.positions
    assert refused(reports[0], Code.INVALID, "Position.offset")
    for past in reports[1:3]:
        assert refused(past, Code.OFFSET_OUT_OF_RANGE)
        assert (past.min_offset, past.end_offset) == (0, end)
    assert refused(reports[3], Code.INVALID, "Position.queue") and refused(reports[4], Code.INVALID, "Position.queue")
    assert refused(reports[5], Code.INVALID, "at_time_ms") and refused(reports[6], Code.INVALID, "end_offset")
    assert refused(reports[7], Code.UNKNOWN_TOPIC, "shop.nothing")
    assert [report.code for report in reports[8:]] == [Code.OK, Code.OK]
    assert [delivery.offset for delivery in response.deliveries] == [end - 1]
    assert refused(town.pull(positions=[*places, Position("a/b", 0)], topic=None), Code.INVALID, "positions.topic")


def test_times_cancellations_and_replies_that_cannot_be_say_so(town):
    send, soon = town.sender.one, now_ms() + 60_000
    assert refused(send("shop.orders", delay_ms=1, deliver_at_ms=soon), Code.INVALID, "deliver_at_ms and delay_ms")
    assert refused(send("shop.orders", delay_ms=2**63 - 1), Code.INVALID, "Message.delay_ms")
    assert refused(send("shop.orders", deliver_at_ms=2**63 - 1), Code.INVALID, "Message.deliver_at_ms")
    assert refused(send("shop.orders", operation=1, id="nobody"), Code.NOT_CANCELLABLE, "Message.id")
    assert refused(send("shop.orders", reply_to=b"x"), Code.INVALID, "Message.reply_to")
    (answer,) = town.sender.send(Message(topic="shop.orders"), reply_wait_ms=10)
    assert answer.code == Code.NO_CONSUMER, answer


def test_a_receipt_from_before_a_restart_counts_when_nobody_else_got_the_message(town):
    group = "shop.restart"
    first, second = town.hold(2, group)[-2:]
    town.penstock.restart()
    town.connect()
    retry_until_served(lambda: town.pull(group, max_messages=0).code == Code.OK, "the consumer proxy serves")
    assert town.ack(first.receipt, group=group)[0].code == Code.OK
    others = {delivery.id for delivery in town.pull(group, max_messages=1_000, wait_ms=200).deliveries}
    assert second.id not in others, "leases go on over a restart"
    assert town.ack(second.receipt, group=group, verdict=Verdict.RETRY, delay_ms=0)[0].code == Code.OK
    again = until(lambda: town.pull(group, max_messages=1_000, wait_ms=200).deliveries, "the failed one comes again")
    ids = {delivery.id: delivery.attempt for delivery in again}
    assert first.id not in ids and ids[second.id] == 2
    assert refused(town.ack(second.receipt, group=group)[0], Code.STALE_RECEIPT)
