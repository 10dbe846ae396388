"""Set-up of a native run from its settings: connections, frames, credential."""

import socket
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from bench.errors import NativeMissingError, RunError
from bench.settings import DURABILITIES, LoadSettings
from common.credential import CredentialFields, mint

native: ModuleType | None
try:
    from bench import _load, _requests  # type: ignore[attr-defined]
except ImportError:
    native = None
else:
    native = _load

CONNECT_TIMEOUT_S = 5.0
STORED = (0, 1, 2)  # contract codes of a stored message
OVERLOADED = 201  # refused at once, as on a busy machine; the caller sends again


@dataclass(frozen=True)
class LoadTarget:
    """Addresses of the proxies to load, and the application with its key."""

    producer: tuple[str, int]
    consumer: tuple[str, int]
    app: str
    key_id: str
    secret: str

    def credential(self) -> bytes:
        """A freshly minted Credential struct, encoded."""
        return encode_credential(mint(self.app, self.key_id, self.secret, time.time_ns() // 1_000_000))


@dataclass(frozen=True)
class Loaded:
    """Counts and histograms (`bench._histogram`) of one native run."""

    counts: dict[str, Any]
    latency: Any  # of sends
    lag: Any  # open loop: delay of calls for which a connection was free: the generator's share of the latency
    pull_latency: Any
    end_to_end: Any  # from a message's send to its delivery


def require_native() -> None:
    """Raises NativeMissingError where the package was installed without a C compiler."""
    if native is None:
        raise NativeMissingError


def encode_credential(fields: CredentialFields) -> bytes:
    """The contract's Credential in Thrift binary."""

    def text(field: int, value: bytes) -> bytes:
        return b"\x0b" + field.to_bytes(2, "big") + len(value).to_bytes(4, "big") + value

    issued = b"\x0a\0\3" + fields.issued_at_ms.to_bytes(8, "big")
    return text(1, fields.app.encode()) + text(2, fields.key_id.encode()) + issued + text(4, fields.signature) + b"\0"


def run_load(
    settings: LoadSettings,
    target: LoadTarget,
    on_window: Callable[[bool], None] = lambda opens: None,
    *,
    messages_max: int = 0,
    deliveries_max: int = 0,
) -> Loaded:
    """Run `settings` once against running servers; blocks until the end.

    Args:
        on_window: called as the measured window opens (True) and closes (False), outside of it.
        messages_max: end after this number of sent messages, or earlier when the time is up.
        deliveries_max: end after this number of deliveries, or earlier; pull mode also ends with an empty answer.
    Raises:
        NativeMissingError, RunError: the servers cannot be reached, or what ended the run early.
    """
    require_native()
    with ExitStack() as stack:
        producers = _connect(stack, target.producer, settings.connections if settings.sends else 0)
        consumers = _connect(stack, target.consumer, settings.consumers if settings.pulls else 0)
        load = _load.Load(
            producers=producers, consumers=consumers,
            send=_send_frames(settings) if settings.sends else None, pull=_pull_frames(settings) if settings.pulls else None,
            mint=target.credential, on_window=on_window, batch=settings.batch, rate=settings.rate,
            poisson=settings.spacing == "poisson", seconds=settings.seconds, warmup_s=settings.warmup_s, messages_max=messages_max,
            deliveries_max=deliveries_max, drain=settings.mode == "pull", acknowledge=settings.acknowledge,
            wait_ms=settings.wait_ms, timeout_s=settings.timeout_s, seed=settings.seed,
        )  # fmt: skip
        counts = load.run()
    if counts["fault"]:
        raise RunError(counts["fault"])
    return Loaded(counts, load.latency, load.lag, load.pull_latency, load.end_to_end)


def _send_frames(settings: LoadSettings) -> Any:
    topics = [name.encode() for name in settings.topic_names()]
    return _requests.SendFrames(
        topics, settings.size, key_count=settings.keys, durability=DURABILITIES[settings.durability],
        sequential=settings.sequential, seed=settings.seed,
    )  # fmt: skip


def _pull_frames(settings: LoadSettings) -> Any:
    topics = [name.encode() for name in settings.topic_names()]
    # The default of 1 MiB would cut a pull of 1,000 messages short.
    room = min(settings.max_messages * (settings.size + 256) + 65_536, 15_000_000)
    return _requests.PullFrames(
        settings.group.encode(), topics, max_messages=settings.max_messages, max_bytes=room, wait_ms=settings.wait_ms
    )


def _connect(stack: ExitStack, address: tuple[str, int], count: int) -> list[socket.socket]:
    ends = []
    for number in range(count):
        try:
            end = stack.enter_context(socket.create_connection(address, CONNECT_TIMEOUT_S))
        except OSError as fault:
            raise RunError(f"connection {number} to {address[0]}:{address[1]}: {fault.strerror or fault}") from fault
        end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        end.setblocking(False)
        ends.append(end)
    return ends
