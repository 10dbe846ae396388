"""How to reach ZooKeeper: the part of a configuration URL behind `zookeeper://`.

    zookeeper://h1:2181,h2:2181/penstock/prod?auth_file=/etc/penstock/zookeeper.auth&ca_file=/etc/penstock/ca.pem

Options are never secrets, only the files that hold them: URLs stand on command lines.
"""

import stat
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Self

from common.config.errors import InvalidEntry


@dataclass(frozen=True)
class ZooKeeperOptions:
    """
    Attributes:
        chroot: everything of this cluster is below it; "" for the root.
        auth_file: one line `user:password`, mode 0600, for the digest scheme. Every node is then made for that user alone
            (CREATOR_ALL). Without it the nodes are open to whoever reaches ZooKeeper: for tests and closed machines.
        ca_file: turns TLS on and names who may have signed the servers' certificates.
        cert_file, key_file: the client's own certificate, where the servers ask for one.
        session_timeout_s: longer survives longer stalls; shorter tells sooner that a process is gone.
        connect_timeout_s: how long a call waits for a connection before it says that the store is away.
    """

    hosts: str
    chroot: str = ""
    auth_file: str = ""
    ca_file: str = ""
    cert_file: str = ""
    key_file: str = ""
    session_timeout_s: float = 10.0
    connect_timeout_s: float = 5.0

    @classmethod
    def from_parts(cls, hosts: str, path: str, query: Mapping[str, str]) -> Self:
        """
        Raises:
            InvalidEntry: with every option that is unknown or no number.
        """
        faults: list[str] = []
        given: dict[str, Any] = {}
        known = {field.name: field.default for field in fields(cls)[2:]}
        for name, text in query.items():
            if name not in known:
                faults.append(f"{name}: unknown; known are {', '.join(known)}")
            elif isinstance(known[name], float):
                given[name] = _seconds(name, text, faults)
            else:
                given[name] = text
        if "@" in hosts:
            faults.append("no user or password in the URL: use auth_file")
        if faults:
            raise InvalidEntry("zookeeper URL: " + "; ".join(faults))
        return cls(hosts, path.rstrip("/"), **given)

    def auth(self) -> list[tuple[str, str]]:
        """Kazoo's auth_data. The file must be closed to others."""
        if not self.auth_file:
            return []
        path = Path(self.auth_file)
        try:
            if stat.S_IMODE(path.stat().st_mode) & 0o077:
                raise InvalidEntry(f"{path}: others may read it; chmod 600")
            text = path.read_text().strip()
        except OSError as error:
            raise InvalidEntry(f"{path}: {error.strerror}") from error
        if ":" not in text or "\n" in text:
            raise InvalidEntry(f"{path}: must be one line user:password")
        return [("digest", text)]


def _seconds(name: str, text: str, faults: list[str]) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0.1 <= value <= 600:
        faults.append(f"{name}: must be from 0.1 to 600 seconds")
    return value
