"""Use of a connection of the consumer proxy, by its last pull: made when an operator asks, never by a pull."""

from typing import Any

from common.names import split_stored_name
from common.net.connection_list import ConnectionUse
from consumer_proxy.pull.open_pull import OpenPull


def use_of(connection: Any) -> ConnectionUse:
    """The use of a connection. A pull that was refused tells nothing: its credential may not have been verified."""
    pull: OpenPull | None = connection.context
    if pull is None:
        return ConnectionUse()
    group, is_waiting = pull.call.group.decode(errors="replace"), pull.connection is not None
    if pull.position_read is not None:
        topics = dict.fromkeys(report.topic for report in pull.position_read.reports)
        return ConnectionUse(pull.position_read.application, group, tuple(topics), is_waiting)
    if pull.scope is None:
        return ConnectionUse()
    names = tuple(split_stored_name(name.decode())[0] for name, _ in pull.scope.queues())
    return ConnectionUse(pull.scope.application, group, names, is_waiting)
