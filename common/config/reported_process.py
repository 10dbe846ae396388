"""Places of processes, from the names under which they report to the configuration store."""

import socket
from collections.abc import Mapping
from typing import NamedTuple

from common.config.process_report import OPS_PORT
from common.config.store import Applied

Address = tuple[str, int]
WILDCARDS = ("", "0.0.0.0", "::", "*")
LOCAL = "127.0.0.1"


class ReportedProcess(NamedTuple):
    """A process under the name of its report, `KIND@HOST:PORT/MACHINE`."""

    kind: str
    host: str
    port: int
    machine: str

    @property
    def address(self) -> Address:
        """Host and port for other machines: its machine's name, if the process listens on all addresses."""
        return (self.machine if self.host in WILDCARDS else self.host), self.port

    @property
    def ops_host(self) -> str:
        """Host of its operator's pages: loopback on this machine, because the pages listen there by default."""
        return LOCAL if self.machine == socket.gethostname() else self.address[0]


def parse_name(name: str) -> ReportedProcess | None:
    """The parts of a report's name; None for one of another form."""
    kind, _, rest = name.partition(";")[0].partition("@")
    place, _, machine = rest.partition("/")
    host, _, port = place.rpartition(":")
    return ReportedProcess(kind, host.strip("[]"), int(port), machine) if host and port.isdigit() else None


def ops_pages(reports: Mapping[str, Applied]) -> dict[str, Address]:
    """Host and port of the operator's pages of all processes in contact, by the process's name."""
    found = {}
    for name, report in sorted(reports.items()):
        place, port = parse_name(name), report.version.get(OPS_PORT, 0)
        if place is not None and port:
            found[name] = (place.ops_host, port)
    return found
