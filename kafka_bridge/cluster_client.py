"""One Kafka cluster at the bridge: its producer, the requests that wait for it, and the threads that serve both.

The keeper opens the producer, and opens it again after a fault or a change of the definition. The sender hands requests
to the producer. So a cluster that does not answer stalls its own two threads and nothing else.
"""

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from queue import Empty, SimpleQueue
from typing import NamedTuple

from common.clock import SystemClock
from common.config.definitions import KafkaClusterDefinition
from common.contract import Code
from common.kafka.base import KafkaDriver, KafkaProducer, ProducerOptions
from common.kafka.errors import KafkaFault, KafkaRefusal, LoginRefused
from common.kafka.records import ProduceResults
from common.limited_log import LimitedLog
from kafka_bridge.connecting import Connections, FollowedConnection, connection_of, driver_of
from kafka_bridge.native import OutgoingBatch

log = logging.getLogger("penstock.kafka_bridge")
limited = LimitedLog(log)
BACKOFF_S, LOGIN_BACKOFF_S = 1.0, 5.0
"""Pauses between two tries to open the producer; the second one after a refused login."""
LOOK_S = 1.0
"""Interval between two looks whether the producer still works: one that does not may keep what it holds for ever."""
WAITING_BYTES_MAX = 64 << 20
PRODUCER_CLOSE_S = 3.0
DOUBT_S, PROBE_S_MAX = 3.0, 3.0
"""Time without a result after which a login is tried apart, and how long that may take. The libraries try a refused login
again and again, and tell nobody: to the callers, a cluster that has revoked it would be one that does not answer."""
MISSING_S, MISSING_MAX = 1.0, 10_000
"""A question about a topic blocks the sender, and so all topics of the cluster: a missing one is asked for rarely."""
OPTIONS = ProducerOptions(linger_ms=1)

Answer = Callable[[bytes], None]
Drivers = Callable[[KafkaClusterDefinition], KafkaDriver]


class WaitingRequest(NamedTuple):
    """A PRODUCE that the producer does not have yet. `until`: monotonic."""

    batch: OutgoingBatch
    until: float
    answer: Answer

    def refuse(self, code: int, sentence: str) -> None:
        """Answer every message with this code."""
        self.answer(self.batch.refused(int(code), sentence))


class ClusterClient:
    """Begins to connect at once.

    Args:
        drivers: by definition; tests pass their own.
        connections: reads the files of the cluster.
    Attributes:
        fault: why there is no producer now; empty: there is one, or the first try goes on.
        counts: messages answered, by code.
    """

    def __init__(
        self, cluster: KafkaClusterDefinition, drivers: Drivers = driver_of, connections: Connections = connection_of
    ) -> None:
        self.name, self._drivers, self._connections = cluster.name, drivers, connections
        self.fault, self.counts = "", Counter[int]()
        self.waiting_bytes = self.in_flight = 0
        self._wanted: KafkaClusterDefinition | None = cluster
        self._producer: KafkaProducer | None = None
        self._followed: FollowedConnection | None = None
        self._handing = threading.Lock()
        self._changed = threading.Condition()
        self._missing: dict[str, tuple[float, KafkaFault]] = {}
        self._requests: SimpleQueue[WaitingRequest | None] = SimpleQueue()
        self._work: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._turn, self._is_closed = 0, False
        self._is_doubted, self._probe_after_s, self._exchange_after_s = False, 0.0, 0.0
        self._keeper = threading.Thread(target=self._keep, name=f"kafka {self.name} keeper", daemon=True)
        self._sender = threading.Thread(target=self._send, name=f"kafka {self.name} sender", daemon=True)
        self._keeper.start()
        self._sender.start()

    @property
    def is_open(self) -> bool:
        """Whether there is a producer; the cluster may be away all the same."""
        return self._producer is not None

    def use(self, cluster: KafkaClusterDefinition | None) -> None:
        """Follow the definition: another one opens a new producer; None closes it."""
        if cluster != self._wanted:
            self._wanted = cluster
            self._work.put(self._drop)

    def produce(self, batch: OutgoingBatch, answer: Answer) -> None:
        """Hand messages to Kafka's client, in order; `answer` is called once, in any thread."""
        until, size = time.monotonic() + batch.patience_ms / 1000, batch.size
        request = WaitingRequest(batch, until, self._counted(batch, answer))
        with self._changed:
            is_full = self.waiting_bytes and self.waiting_bytes + size > WAITING_BYTES_MAX
            if not is_full:
                self.waiting_bytes += size
            self.in_flight += 1
        if is_full:
            request.refuse(Code.OVERLOADED, f'kafka "{self.name}": too much waits for the cluster; nothing was stored')
        else:
            self._requests.put(request)

    def close(self, timeout_s: float) -> None:
        """Finish what was accepted, for at most this time; the rest is TIMEOUT or UNAVAILABLE."""
        ends = time.monotonic() + timeout_s
        self._requests.put(None)
        self._sender.join(timeout_s)
        self._is_closed = True
        if (producer := self._producer) is not None:
            producer.close(max(0.1, ends - time.monotonic()))
        with self._changed:
            self._changed.notify_all()
        self._work.put(lambda: None)

    def _counted(self, batch: OutgoingBatch, answer: Answer) -> Answer:
        def count(results: bytes) -> None:
            with self._changed:
                self.in_flight -= 1
                self.counts.update(batch.counts)
            answer(results)

        return count

    def _keep(self) -> None:
        while not self._is_closed:
            if (producer := self._producer) is not None:
                self._look(producer)
            pause_s = LOOK_S if self._producer is not None else self._open()
            try:
                work = self._work.get(timeout=pause_s)
            except Empty:
                continue
            try:
                work()
            except Exception:
                limited.exception("kafka=%s: internal error", self.name)

    def _look(self, producer: KafkaProducer) -> None:
        try:
            if self._follow_files(producer):
                return
        except Exception:
            limited.exception("kafka=%s: internal error while its files were followed", self.name)
        if fatal := producer.fatal_fault or self._refused_login(producer):
            self._replace(producer, fatal)

    def _refused_login(self, producer: KafkaProducer) -> str:
        """Why the cluster refuses the login of a producer that gets no results; empty: it does not, or is away."""
        wanted, now_s = self._wanted, time.monotonic()
        is_doubted = self._is_doubted or producer.stalled_s >= DOUBT_S
        if wanted is None or not wanted.security.startswith("sasl") or not is_doubted or now_s < self._probe_after_s:
            return ""
        self._is_doubted, self._probe_after_s = False, now_s + LOGIN_BACKOFF_S
        try:
            self._drivers(wanted).admin(replace(self._connections(wanted), connect_timeout_s=PROBE_S_MAX)).close()
        except LoginRefused as fault:
            return str(fault)
        except KafkaFault:
            return ""
        except Exception:
            limited.exception("kafka=%s: internal error while a login was tried", self.name)
        return ""

    def _open(self) -> float | None:
        """Try to open the producer; returns the pause before the next try or look; None: until there is work."""
        wanted = self._wanted
        if wanted is None:
            self._note(None, f'kafka "{self.name}": the configuration does not have this cluster any more')
            return None
        try:
            self._note(self._opened(wanted), "")
            return LOOK_S
        except KafkaFault as fault:
            self._note(None, str(fault))
            return LOGIN_BACKOFF_S if isinstance(fault, LoginRefused) else BACKOFF_S
        except Exception as fault:
            limited.exception("kafka=%s: internal error while connecting", self.name)
            self._note(None, f'kafka "{self.name}": internal error: {fault}')
            return LOGIN_BACKOFF_S

    def _opened(self, wanted: KafkaClusterDefinition) -> KafkaProducer:
        """Open a producer by the cluster's files as they are now. Raises KafkaFault."""
        followed = FollowedConnection(wanted, self._connections)
        producer = self._drivers(wanted).producer(followed.opened, OPTIONS)
        self._followed = followed
        return producer

    def _follow_files(self, producer: KafkaProducer) -> bool:
        """Take another producer in place of one that was opened by other contents of the cluster's files.

        While the new ones are refused, the present producer goes on: its logins may last for a while. The new one gets
        its first request after the present one has given all results, so requests keep their order. Returns whether there
        is another producer.
        """
        wanted, followed = self._wanted, self._followed
        if (
            wanted is None
            or followed is None
            or time.monotonic() < self._exchange_after_s
            or not followed.is_outdated()
        ):
            return False
        try:
            following = self._opened(wanted)
        except KafkaFault as fault:
            limited.warning("kafka=%s: its files have changed, and cannot be used yet: %s", self.name, fault)
            self._exchange_after_s = time.monotonic() + LOGIN_BACKOFF_S
            return False
        log.info("kafka=%s: its files have changed: connected anew", self.name)
        self._note(None, "")
        self._close(producer)
        self._note(following, "")
        return True

    def _close(self, producer: KafkaProducer) -> None:
        """Close a producer that is noted no more. A request that the sender is handing over comes before."""
        with self._handing:
            pass
        producer.close(PRODUCER_CLOSE_S)

    def _note(self, producer: KafkaProducer | None, fault: str) -> None:
        if fault and fault != self.fault:
            limited.warning("kafka=%s: %s", self.name, fault)
        with self._changed:
            self._producer, self.fault = producer, fault
            self._changed.notify_all()

    def _drop(self) -> None:
        producer, wanted = self._producer, self._wanted
        self._note(None, "" if wanted else f'kafka "{self.name}": it was removed from the configuration')
        if producer is not None:
            self._close(producer)

    def _replace(self, producer: KafkaProducer, fatal: str) -> None:
        """Let the keeper close a producer that works no more, and open another one."""
        self._note(None, fatal)
        self._work.put(lambda: self._close(producer))

    def _partitions(self, producer: KafkaProducer, topic: str) -> int:
        """Number of partitions. A topic that is missing is not asked for again within MISSING_S. Raises KafkaFault."""
        until, fault = self._missing.get(topic, (0.0, None))
        if fault is not None and time.monotonic() < until:
            raise fault
        try:
            return producer.partitions(topic)
        except KafkaFault as found:
            self._is_doubted = self._is_doubted or not isinstance(found, KafkaRefusal)
            if len(self._missing) >= MISSING_MAX:
                self._missing.clear()
            self._missing[topic] = time.monotonic() + MISSING_S, found
            raise

    def _send(self) -> None:
        while (request := self._requests.get()) is not None:
            try:
                while not self._hand_over(request):
                    pass  # the producer was closed meanwhile
            except Exception as fault:
                limited.exception("kafka=%s: internal error while sending", self.name)
                request.refuse(Code.TIMEOUT, f'kafka "{self.name}": internal error: {fault}; it may be stored')
            finally:
                with self._changed:
                    self.waiting_bytes -= request.batch.size

    def _hand_over(self, request: WaitingRequest) -> bool:
        """Hand a request over or refuse it; False: the producer that there was is closed."""
        with self._changed:
            patience_s = request.until - time.monotonic()
            self._changed.wait_for(lambda: self._producer is not None or bool(self.fault), max(0.0, patience_s))
            producer, fault = self._producer, self.fault
        if producer is not None and (fatal := producer.fatal_fault):
            self._replace(producer, fatal)
            producer, fault = None, fatal
        if producer is None or request.until < time.monotonic():
            reason = fault or f'kafka "{self.name}": its client did not take it in time'
            request.refuse(Code.UNAVAILABLE, f"{reason}; nothing was stored")
            return True
        with self._handing:
            if self._producer is not producer:
                return False
            self._produce(producer, request)
        return True

    def _produce(self, producer: KafkaProducer, request: WaitingRequest) -> None:
        self._turn += 1
        batch = request.batch
        records = batch.map(partial(self._partitions, producer), SystemClock().now_ms(), self._turn)
        if not records.topics:
            request.answer(batch.settle(ProduceResults((), (), {})))
        else:
            producer.produce(records, lambda found: request.answer(batch.settle(found)))
