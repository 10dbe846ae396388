"""`penstock pull`: what it tells on stderr about topics that give nothing, and how it ends."""

import os
import signal
from contextlib import suppress
from types import SimpleNamespace

from common.contract import Code, Delivery, Message, PullResponse
from penstock.commands.pull import Puller
from penstock.terminal.interrupts import noted_interrupts
from penstock.terminal.message_lines import line_of

MISSING = 'topic "refunds": not defined'


class Identity:
    def credential(self):
        return None


class Link:
    """A proxy whose pulls each report the next of these topics, as {topic: reason}, and give one message."""

    def __init__(self, *reports: dict[str, str]) -> None:
        self.reports = list(reports)

    def call(self, request, timeout_s, empty):
        if not request.max_messages:  # the last acknowledgements
            return PullResponse(code=Code.OK, deliveries=[], ack_results=[])
        told = [
            SimpleNamespace(code=Code.UNKNOWN_TOPIC, topic=topic, error=why)
            for topic, why in self.reports.pop(0).items()
        ]
        message = Message(topic="orders", body=b"body")
        delivery = Delivery(
            receipt=b"r", queue=0, offset=1, attempt=1, stored_at_ms=0, id="i", message=message, reply_token=None
        )
        return PullResponse(code=Code.OK, deliveries=[delivery], ack_results=[], topics=told or None)


def told(capfd, *reports: dict[str, str]) -> list[str]:
    Puller(Link(*reports), Identity(), "readers", ["orders", "refunds"], True).run(
        len(reports), 0, False, line_of("body", None)
    )
    shown = capfd.readouterr()
    assert shown.out == "body\n" * len(reports), "what the other topics give is printed"
    return shown.err.splitlines()


def test_a_topic_that_gives_nothing_is_named_once_with_its_reason(capfd):
    assert told(capfd, *[{"refunds": MISSING}] * 3) == [f"warning: topic refunds gives nothing: {MISSING}"]


def test_each_change_is_told_another_reason_another_topic_and_the_end(capfd):
    found = told(capfd, {}, {"refunds": "a"}, {"refunds": "b"}, {"refunds": "b", "bills": "a"}, {"bills": "a"})
    assert found == [
        "warning: topic refunds gives nothing: a",
        "warning: topic refunds gives nothing: b",
        "warning: topic bills gives nothing: a",
        "topic refunds is served again",
    ]


def test_nothing_is_told_while_all_topics_are_served(capfd):
    assert told(capfd, {}, {}) == []


class LinkThatLosesExceptions(Link):
    """SIGINT comes while Python ignores exceptions; the acknowledgements that the proxy got are counted."""

    acks = 0

    def call(self, request, timeout_s, empty):
        self.acks += len(request.acks or ())
        if request.max_messages:
            with suppress(KeyboardInterrupt):
                os.kill(os.getpid(), signal.SIGINT)
        return super().call(request, timeout_s, empty)


def test_an_interrupt_whose_exception_is_lost_ends_the_command_all_the_same(capfd):
    link = LinkThatLosesExceptions({}, {}, {})
    with noted_interrupts() as is_interrupted:
        Puller(link, Identity(), "readers", ["orders"], True).run(None, 0, True, line_of("body", None), is_interrupted)
    assert (capfd.readouterr().out, link.acks) == ("body\n", 1)
