"""Addresses of a deployment's processes, from their reports in the configuration store."""

import socket
from collections.abc import Mapping
from contextlib import suppress
from typing import NamedTuple

from common.config.store import Applied

Address = tuple[str, int]
WILDCARDS = ("", "0.0.0.0", "::", "*")
TRIED_S_MAX = 1.0


class ReportedProcess(NamedTuple):
    """A process under the name of its report, `KIND@HOST:PORT/MACHINE`."""

    kind: str
    host: str
    port: int
    machine: str

    @property
    def address(self) -> Address:
        """Where other machines reach it: a process that listens on all addresses is reached by its machine's name."""
        return (self.machine if self.host in WILDCARDS else self.host), self.port


def parse_name(name: str) -> ReportedProcess | None:
    """The parts of a report's name; None for one of another form."""
    kind, _, rest = name.partition(";")[0].partition("@")
    place, _, machine = rest.partition("/")
    host, _, port = place.rpartition(":")
    return ReportedProcess(kind, host.strip("[]"), int(port), machine) if host and port.isdigit() else None


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
