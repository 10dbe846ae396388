"""A redis-py client for an address, without retries: a repeated RPUSH would store a second copy."""

import re
from pathlib import Path
from typing import Any

import redis
from redis.backoff import NoBackoff
from redis.cluster import ClusterNode, RedisCluster
from redis.credentials import CredentialProvider
from redis.exceptions import RedisClusterException, RedisError, ResponseError
from redis.retry import Retry
from redis.sentinel import Sentinel

from producer_proxy.buffer.redis.address import RedisAddress

AWAY = (RedisError, RedisClusterException, OSError)
"""Errors of a Redis that is away or refuses. A Cluster's own error is no RedisError."""
CONNECT_S, ANSWER_S = 0.5, 1.0
CONNECTIONS_MAX = 8
RUN_ID = re.compile(rb"^run_id:(\w+)", re.MULTILINE)


class FilePassword(CredentialProvider):
    """The password as its file has it when a connection is made: one that is changed there needs no restart."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def get_credentials(self) -> tuple[str]:
        """Raises OSError: the file cannot be read."""
        return (self._path.read_text().strip(),)


class MetServers:
    """Counts the servers that connections have led to: a name or a virtual address may lead to another one at any time,
    and redis-py connects again without a word when a connection has ended while nobody used it.

    Attributes:
        count: of changes; a server that does not tell who it is counts at each connection.
    """

    def __init__(self) -> None:
        self.count = 0
        self._last: str | None = None

    def __call__(self, connection: Any) -> None:
        """As `redis_connect_func`: prepare a new connection."""
        connection.on_connect()
        connection.send_command("INFO", "server")
        try:
            found = RUN_ID.search(connection.read_response())
        except ResponseError:
            found = None
        run_id = found[1].decode() if found else None
        if run_id is None or run_id != self._last:
            self._last, self.count = run_id, self.count + 1


def met_servers(client: Any) -> int:
    """Changes of the server so far. Of a Cluster, whose nodes tell where a slot is, always 0."""
    pool = getattr(client, "connection_pool", None)
    met = pool.connection_kwargs.get("redis_connect_func") if pool is not None else None
    return met.count if isinstance(met, MetServers) else 0


def connect(address: RedisAddress, password_file: Path | None = None) -> Any:
    """Make the client. Only a Cluster is contacted now, for its nodes. Raises errors of AWAY."""
    options: dict[str, Any] = {
        "credential_provider": None if password_file is None else FilePassword(password_file),
        "socket_timeout": ANSWER_S, "socket_connect_timeout": CONNECT_S, "protocol": 2,
        "driver_info": None,  # otherwise redis-py sends a command that old servers do not know
    }  # fmt: skip
    once = Retry(NoBackoff(), 0)
    if address.kind == "cluster":
        nodes = [ClusterNode(host, port) for host, port in address.hosts]
        return RedisCluster(startup_nodes=nodes, max_connections=CONNECTIONS_MAX, retry=once, **options)
    options["redis_connect_func"] = MetServers()
    if address.kind == "sentinel":
        sentinels = Sentinel(address.hosts, sentinel_kwargs={"socket_timeout": CONNECT_S, "protocol": 2})
        return sentinels.master_for(address.master, retry=once, max_connections=CONNECTIONS_MAX, **options)
    ((host, port),) = address.hosts
    pool = redis.BlockingConnectionPool(
        host=host, port=port, db=address.db, retry=once, max_connections=CONNECTIONS_MAX, timeout=ANSWER_S, **options
    )
    return redis.Redis(connection_pool=pool)


def masters(client: Any) -> list[Any]:
    """One client per server that takes writes."""
    if isinstance(client, RedisCluster):
        return [client.get_redis_connection(node) for node in client.get_primaries()]
    return [client]
