"""The connection of a Kafka cluster from its definition in the configuration and the files that this names."""

import hashlib
import time
from collections.abc import Callable, Collection
from pathlib import Path

from common.config.definitions import KafkaClusterDefinition
from common.kafka.base import KafkaDriver
from common.kafka.connection import KafkaConnection, connection_faults
from common.kafka.drivers import open_driver
from common.kafka.errors import ClusterUnreachable, KafkaFault

FILES_LOOK_S = 1.0
"""Interval at which the files of an open connection are read again."""
PASSWORD_BYTES_MAX = 4_096

Connections = Callable[[KafkaClusterDefinition], KafkaConnection]
"""Reads a cluster's files, as `connection_of` does."""


def connection_of(cluster: KafkaClusterDefinition, rooms: Collection[Path] = ()) -> KafkaConnection:
    """Reads the files of the definition.

    Args:
        rooms: directories of which one must have each file, after symbolic links are resolved; empty: any file may be
            read. Who can write the configuration must not make this process send its other files to a broker.
    Raises:
        ClusterUnreachable: a file cannot be read or lies elsewhere, or the options do not fit.
    """
    has_login, has_tls = cluster.security.startswith("sasl"), cluster.security.endswith("ssl")
    authority = _content(cluster, "ca_file", cluster.ca_file, rooms) if cluster.ca_file and has_tls else None
    connection = KafkaConnection(
        name=cluster.name,
        bootstrap=tuple(cluster.bootstrap.split(",")),
        protocol=cluster.security.upper(),
        mechanism=cluster.sasl_mechanism if has_login else "",
        user=cluster.user if has_login else "",
        password=_password(cluster, rooms) if has_login else "",
        authority_file=None if authority is None else Path(cluster.ca_file),
        authority_digest="" if authority is None else hashlib.sha256(authority).hexdigest(),
    )
    if faults := connection_faults(connection):
        raise ClusterUnreachable(f'kafka "{cluster.name}": {"; ".join(faults)}')
    return connection


def _password(cluster: KafkaClusterDefinition, rooms: Collection[Path]) -> str:
    where = f'kafka "{cluster.name}": password_file {cluster.password_file}'
    try:
        password = _content(cluster, "password_file", cluster.password_file, rooms).decode().rstrip("\r\n")
    except UnicodeDecodeError as error:
        raise ClusterUnreachable(f"{where}: it cannot be read: {error}") from error
    if len(password) > PASSWORD_BYTES_MAX or "\n" in password:
        raise ClusterUnreachable(
            f"{where}: it is not a password: use a file with one line of at most {PASSWORD_BYTES_MAX:,} bytes"
        )
    return password


def _content(cluster: KafkaClusterDefinition, setting: str, name: str, rooms: Collection[Path]) -> bytes:
    where = f'kafka "{cluster.name}": {setting} {name}'
    try:
        path = Path(name).resolve(strict=True)
        if rooms and not any(path.is_relative_to(each.resolve()) for each in rooms):
            raise ClusterUnreachable(
                f"{where}: the Kafka bridge reads files below {' and '.join(map(str, rooms))} only: move it there, or "
                "name its directory by the bridge's --kafka-files"
            )
        return path.read_bytes()
    except (OSError, RuntimeError) as error:  # RuntimeError: a loop of symbolic links
        raise ClusterUnreachable(f"{where}: it cannot be read: {error}") from error


class FollowedConnection:
    """A cluster's connection as it was read, and whether its files have other contents now. For one thread.

    Files that cannot be read or used for a moment, as while they are replaced, count as not changed.

    Args:
        connections: reads the files.
    Attributes:
        opened: as it was read.
    Raises:
        ClusterUnreachable
    """

    def __init__(
        self, cluster: KafkaClusterDefinition, connections: Connections = connection_of,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:  # fmt: skip
        self._cluster, self._connections, self._now_s = cluster, connections, now_s
        self.opened = connections(cluster)
        self._looked_s = now_s()

    def is_outdated(self) -> bool:
        """Whether a client that was opened by it has another password or other certificates than the files."""
        if self._now_s() < self._looked_s + FILES_LOOK_S:
            return False
        self._looked_s = self._now_s()
        try:
            return self._connections(self._cluster) != self.opened
        except KafkaFault:
            return False


def driver_of(cluster: KafkaClusterDefinition) -> KafkaDriver:
    """Raises DriverMissing."""
    return open_driver("" if cluster.driver == "auto" else cluster.driver)
