"""Options of librdkafka's clients, and how one is opened."""

import contextlib
import time
from collections.abc import Callable
from typing import Any, TypeVar

from confluent_kafka import KafkaError, KafkaException

from common.kafka.connection import KafkaConnection
from common.kafka.errors import ClusterUnreachable, KafkaFault, LoginRefused

STEP_S = 0.5
_LOGIN = (KafkaError._AUTHENTICATION, KafkaError._SSL)
ENDS_LOG_LEVEL, _ENDED = 6, " in state UP"
"""librdkafka reports the end of one connection of several only as a log line: "… Disconnected: … (after 4006ms in state UP)"."""
_Client = TypeVar("_Client")


def common_options(connection: KafkaConnection) -> dict[str, Any]:
    """Options of every client: producer, reader and administration."""
    options: dict[str, Any] = {
        "bootstrap.servers": ",".join(connection.bootstrap),
        "client.id": "penstock",
        "security.protocol": connection.protocol,
        "allow.auto.create.topics": False,
        "reconnect.backoff.ms": 100,
        "reconnect.backoff.max.ms": 1000,
        "topic.metadata.refresh.interval.ms": 30_000,
        "log_level": 0,  # its errors come through error_cb; its lines would go to standard error
    }
    if connection.uses_login:
        options["sasl.mechanism"] = connection.mechanism
        options["sasl.username"] = connection.user
        options["sasl.password"] = connection.password
    files = {
        "ssl.ca.location": connection.authority_file,
        "ssl.certificate.location": connection.certificate_file,
        "ssl.key.location": connection.key_file,
    }
    options.update((name, str(path)) for name, path in files.items() if path)
    return options


class LastErrors:
    """The latest errors of a client's connections, as librdkafka reports them beside all calls.

    Attributes:
        interruptions: connections that have ended, or more, of a client that logs by `ENDS_LOG_LEVEL` and is polled.
    """

    def __init__(self) -> None:
        self.login = self.any = self.fatal = ""
        self.interruptions = 0

    def __call__(self, error: KafkaError) -> None:
        self.interruptions += error.code() == KafkaError._ALL_BROKERS_DOWN
        if error.code() in _LOGIN:
            self.login = error.str()
        if error.fatal():
            self.fatal = f"{error.name()}: {error.str()}"
        if error.code() != KafkaError._ALL_BROKERS_DOWN:
            self.any = error.str()

    def log(self, level: int, form: str, *parts: object) -> None:
        """A line of the library's log, as for `logging.Logger`."""
        self.interruptions += _ENDED in str(parts[-1])

    def fault(self, connection: KafkaConnection) -> KafkaFault:
        name, where = f'kafka "{connection.name}"', ", ".join(connection.bootstrap)
        if self.login:
            return LoginRefused(f"{name}: {self.login}")
        timeout_s = connection.connect_timeout_s
        why = self.any or "none of them told why"
        return ClusterUnreachable(f"{name}: no broker answered at {where} within {timeout_s:g} s: {why}")


def opened(
    connection: KafkaConnection,
    make: Callable[[dict[str, Any]], _Client],
    options: dict[str, Any],
    step: Callable[[_Client], Any],
) -> tuple[_Client, LastErrors]:
    """Make a client and wait for a broker; librdkafka itself would return at once.

    Args:
        step: serves the client's callbacks.
    """
    last = LastErrors()
    logged = {"logger": last} if options["log_level"] else {}  # a line waits until the client is polled
    client = make({**options, **logged, "error_cb": last})
    deadline = time.monotonic() + connection.connect_timeout_s
    while True:
        left = deadline - time.monotonic()
        with contextlib.suppress(KafkaException):  # its time is over
            if client.cluster_id(timeout=max(min(left, STEP_S), 0.01)):  # type: ignore[attr-defined]
                return client, last
        step(client)
        if last.login or left <= 0:
            raise last.fault(connection)
