"""Backlog of a consumer group per queue of a topic at one engine: blocking, over one link. Needs no gevent."""

import json
from typing import NamedTuple

from engine.client.admin import AdminError
from engine.client.copied import CopyLink
from engine.link.codes import OK
from engine.link.operations import BACKLOG


class QueueBacklog(NamedTuple):
    """Attributes: messages: leased ones included; size_bytes: estimated from the newest message."""

    messages: int
    size_bytes: int


def backlogs(link: CopyLink, topic: str, group: str) -> list[QueueBacklog]:
    """One per queue, those of other broker groups included, which are empty here.

    Empty while the engine does not have the topic. Raises AdminError, OSError, LinkError.
    """
    code, answer = link.call(BACKLOG, json.dumps({"topics": [], "lags": {"topic": topic, "group": group}}).encode())
    if code != OK:
        raise AdminError(code, answer.decode("utf-8", "replace"))
    found = json.loads(answer).get("lags")
    if found is None:
        raise AdminError(code, "the engine is of an earlier version, which does not tell backlogs: update it first")
    return [QueueBacklog(*each) for each in found]
