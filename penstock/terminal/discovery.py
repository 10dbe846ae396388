"""Addresses of a deployment's processes, from their reports in the configuration store."""

import socket
from collections.abc import Mapping
from contextlib import suppress

from common.config.reported_process import Address, ReportedProcess, parse_name
from common.config.store import Applied

TRIED_S_MAX = 1.0


def processes(reports: Mapping[str, Applied], kind: str) -> list[ReportedProcess]:
    """The processes of a kind that are in contact with the store, by name."""
    found = [parse_name(name) for name in sorted(reports)]
    return [each for each in found if each is not None and each.kind == kind]


def answering(places: list[ReportedProcess]) -> Address | None:
    """The first one that takes a connection; the first one of all when none does."""
    for each in places if len(places) > 1 else ():
        with suppress(OSError), socket.create_connection(each.address, TRIED_S_MAX):
            return each.address
    return places[0].address if places else None
