"""Options of ZooKeeper: the part of a configuration URL after `zookeeper://`.

    zookeeper://h1:2181,h2:2181/penstock/prod?auth_file=/etc/penstock/zookeeper.auth&ca_file=/etc/penstock/ca.pem

Options name files that hold secrets, never the secrets: URLs are visible on command lines.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Self

from common.config.errors import InvalidEntry
from common.quoting import listed, quoted
from common.secret_file import OTHERS


@dataclass(frozen=True)
class ZooKeeperOptions:
    """
    Attributes:
        chroot: parent of all nodes of this cluster; "" for the root.
        auth_file: one line `user:password`, mode 0600 or 0640, for the digest scheme. A file of the same name among the
            credentials that systemd gives the process is taken in its place. Nodes belong to that user alone, or to the
            users that `penstock config access` has named. Without it every client of ZooKeeper can change the nodes: for
            tests and closed machines.
        ca_file: enables TLS; certificates of the authorities that sign the servers' certificates.
        cert_file, key_file: the client's certificate, where the servers require one.
        session_timeout_s: longer survives longer stalls; shorter detects an ended process sooner.
        connect_timeout_s: time that a call waits for a connection before it raises StoreUnavailable.
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
            InvalidEntry: with every option that is unknown or not a number.
        """
        faults: list[str] = []
        given: dict[str, Any] = {}
        known = {field.name: field.default for field in fields(cls)[2:]}
        for name, text in query.items():
            if name not in known:
                faults.append(f"{name}: unknown option: use {listed(list(known))}")
            elif isinstance(known[name], float):
                given[name] = _seconds(name, text, faults)
            else:
                given[name] = text
        if "@" in hosts:
            faults.append("the URL has a user or password: use auth_file")
        if faults:
            raise InvalidEntry("ZooKeeper URL: " + "; ".join(faults))
        return cls(hosts, path.rstrip("/"), **given)

    def auth(self) -> list[tuple[str, str]]:
        """Kazoo's auth_data. Other users must not be able to read the file."""
        if not self.auth_file:
            return []
        path = Path(self.auth_file)
        credential = Path(os.environ.get("CREDENTIALS_DIRECTORY", "/nowhere"), path.name)
        path = credential if credential.exists() else path
        try:
            if path.stat().st_mode & OTHERS:
                raise InvalidEntry(f"{path}: readable by other users: chmod 600 it")
            text = path.read_text().strip()
        except OSError as error:
            raise InvalidEntry(f"{path}: cannot be read: {error.strerror}") from error
        if ":" not in text or "\n" in text:
            raise InvalidEntry(f"{path}: invalid content: use one line user:password")
        return [("digest", text)]


def _seconds(name: str, text: str, faults: list[str]) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0.1 <= value <= 600:
        faults.append(f"{name}: {quoted(text)} is out of range: use 0.1 to 600 seconds")
    return value
