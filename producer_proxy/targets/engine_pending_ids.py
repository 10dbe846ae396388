"""Ids of delayed messages over several broker groups: every group is asked whether it holds one.

A delayed message waits at the group of its later queue, and no table records that group. The claim of its id, if it has
one, ends long before the message is due. docs/design/0028-ids-over-broker-groups.md.
"""

import time
from collections.abc import Sequence

import gevent

from common.contract import Code
from common.names import stored_name
from engine.client.brokers import Broker, Brokers
from engine.link import layout
from engine.link.claim import CLAIMS_MAX, Claim, Claimed, decode_claimed, encode_claims
from engine.link.errors import PayloadError
from engine.link.operations import CLAIM
from producer_proxy.targets.base import MessageSlice, Outcome

NONE: Outcome = (int(Code.OK), 0, -1)
UNKNOWN: Outcome = (int(Code.TIMEOUT), 0, -1)


class PendingIds:
    """Looks for ids in the tables of delayed messages, and in the windows of ids, of all groups.

    Args:
        brokers: with their links for rare operations.
    """

    def __init__(self, brokers: Brokers) -> None:
        self._brokers = brokers

    def find(self, messages: Sequence[MessageSlice], shown_ids: Sequence[str], deadline_s: float) -> list[Outcome]:
        """The outcome of each message: DUPLICATE where a group holds its id, with the place if it has one already; OK
        where none does; TIMEOUT where none does and a group did not tell. Blocks the greenlet.
        """
        claims = [_question(each, shown) for each, shown in zip(messages, shown_ids, strict=True)]
        asking = [gevent.spawn(_ask, broker, claims, deadline_s) for broker in self._brokers.listed]
        gevent.joinall(asking, raise_error=True)
        answers = [each.value for each in asking]
        return [joined([_outcome(answer[index]) for answer in answers]) for index in range(len(claims))]


def joined(outcomes: list[Outcome]) -> Outcome:
    """A copy at one broker decides; without any, each broker has to say that it has none."""
    found = next((each for each in outcomes if each[0] == Code.DUPLICATE), None)
    return found or next((each for each in outcomes if each[0] != Code.OK), NONE if outcomes else UNKNOWN)


def _question(message: MessageSlice, shown: str) -> Claim:
    destination = message.destination
    name = stored_name(destination.name.decode(), destination.made_ms)
    return Claim(name, destination.queues, shown, None, max(1, destination.id_window_ms))


def _ask(broker: Broker, claims: list[Claim], deadline_s: float) -> list[Claimed]:
    """What the broker remembers of the ids. Its answer waits until that is durable, as a DUPLICATE has to."""
    unknown: Claimed = (int(Code.TIMEOUT), None, None)
    answers: list[Claimed] = []
    for first in range(0, len(claims), CLAIMS_MAX):
        some = claims[first : first + CLAIMS_MAX]
        left_s = max(0.0, deadline_s - time.monotonic())
        code, answer = (
            (int(Code.UNAVAILABLE), b"") if broker.breaker.refusing or broker.is_silent
            else broker.rpc.call(CLAIM, encode_claims(layout.FSYNC, some), left_s)
        )  # fmt: skip
        try:
            answers += decode_claimed(answer, len(some)) if code == Code.OK else [unknown] * len(some)
        except PayloadError:
            answers += [unknown] * len(some)
    return answers


def _outcome(claimed: Claimed) -> Outcome:
    code = claimed[0]
    if code == Code.DUPLICATE:
        return claimed
    return NONE if code in (Code.OK, layout.CLAIMED) else UNKNOWN
