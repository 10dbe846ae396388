"""A redis-py client for an address, without retries: a repeated RPUSH would store a second copy.

And the master that Sentinels name: one that they have replaced stays a master for seconds, until they reach it and turn
it into a replica. Whatever it confirms meanwhile is lost.
"""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gevent
import redis
from redis.backoff import NoBackoff
from redis.cluster import ClusterNode, RedisCluster
from redis.credentials import CredentialProvider
from redis.exceptions import RedisClusterException, RedisError, ResponseError
from redis.retry import Retry
from redis.sentinel import MasterNotFoundError, Sentinel, SentinelConnectionPool
from redis.utils import str_if_bytes

from producer_proxy.buffer.redis.address import RedisAddress

AWAY = (RedisError, RedisClusterException, OSError)
"""Errors of a Redis that is away or refuses. A Cluster's own error is no RedisError."""
CONNECT_S, ANSWER_S = 0.5, 1.0
CONNECTIONS_MAX = 8
RUN_ID = re.compile(rb"^run_id:(\w+)", re.MULTILINE)
WATCH_S = 0.5
"""Pause between two questions to the Sentinels. Messages that a replaced master confirms meanwhile are lost."""


class MasterReplaced(RedisError):
    """The connections lead to a master that the Sentinels have replaced."""


class NewestMaster(Sentinel):
    """Finds the master by all Sentinels: one that was cut off does not know of a fail-over, and names the old one."""

    def discover_master(self, service_name: str) -> tuple[str, int]:
        """As Sentinel's. Blocks for a second at most."""
        asked = [gevent.spawn(self._ask, each, service_name) for each in self.sentinels]
        gevent.joinall(asked, timeout=2 * CONNECT_S)
        found = [each.value for each in asked if each.value is not None]
        gevent.killall(asked)
        if not found:
            raise MasterNotFoundError(f"no Sentinel knows a working master {service_name!r}")
        return max(found)[1]

    def _ask(self, sentinel: Any, service_name: str) -> tuple[int, tuple[str, int]] | None:
        """The epoch of the last fail-over and the master since then; None: this Sentinel knows none that works."""
        try:
            state = sentinel.sentinel_master(service_name)
            host, port = sentinel.sentinel_get_master_addr_by_name(service_name)
        except (RedisError, OSError, TypeError):  # TypeError: no address
            return None
        address = str_if_bytes(host), int(port)
        # While it fails over, a Sentinel tells the state of the old master and the address of the new one.
        is_new = address != (state["ip"], state["port"])
        works = is_new or self.check_master_state(state, service_name)
        return (state["config-epoch"], address) if works else None


class MasterWatch:
    """Asks the Sentinels of a client whether its connections still lead to the master.

    Args:
        client: returns the client now in use; None: there is none.
        on_replaced: called with the error once the Sentinels have another master; once per client.
    """

    def __init__(self, client: Callable[[], Any], on_replaced: Callable[[MasterReplaced], None]) -> None:
        self._client, self._on_replaced = client, on_replaced
        self._left: Any = None
        self._watching = gevent.spawn(self._watch)

    def confirmed(self, answers: list) -> list:
        """These answers of the client's master. Raises MasterReplaced when it was replaced before they came."""
        if self._left is not None and self._left is self._client():
            raise MasterReplaced("another master has taken over")
        return answers

    def close(self) -> None:
        """Ask no more."""
        self._watching.kill()

    def _watch(self) -> None:
        while True:
            gevent.sleep(WATCH_S)
            client = self._client()
            pool = getattr(client, "connection_pool", None)
            if client is self._left or not isinstance(pool, SentinelConnectionPool) or pool.master_address is None:
                continue
            used = pool.master_address
            try:
                newest = pool.sentinel_manager.discover_master(pool.service_name)
            except AWAY:
                continue  # the master may serve on without its Sentinels
            if newest != used == pool.master_address:
                self._left = client
                self._on_replaced(MasterReplaced("the Sentinels have another master now: {}:{}".format(*newest)))


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
        asking = {"socket_timeout": CONNECT_S, "protocol": 2, "retry": once}
        sentinels = NewestMaster(address.hosts, sentinel_kwargs=asking)
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
