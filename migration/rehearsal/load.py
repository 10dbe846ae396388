"""Synthetic load of a rehearsal: producers and consumers of the proxies in threads, and members of groups on Kafka.

A producer sends the messages of a key one after another and sends each again, under its id, until it is answered OK: so
the order of a key is that of the numbers, whatever is killed.
"""

import logging
import threading
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

from common.clock import SystemClock
from common.contract import Ack, Credential, Message, PullRequest, SendRequest, SendResult
from common.credential import mint
from common.kafka.base import GroupListener, GroupOptions, GroupReader
from common.kafka.errors import KafkaFault
from common.proxy_link import ProxyCallError, ProxyLink
from kafka_bridge.mapping import ID_HEADER
from migration.rehearsal.ledger import NO_ANSWER, OK_CODES, LoadId, LoadLedger, load_id

KEYS = 5
BODY = b"rehearsal " * 10
TOPICS_PER_CALL = 50
SEND_MS, PULL_MS, PULL_MAX = 2_000, 500, 500
PAUSE_S = 0.1
"""Pause after a refusal without a time, and after a broken connection."""
END_S_MAX = 30.0
SESSION_S = 6.0
log = logging.getLogger("penstock.rehearsal")


class LoadAccess(NamedTuple):
    """An application of the rehearsal's Penstock."""

    app: str
    key_id: str
    secret: str

    def credential(self) -> Credential:
        return Credential(*mint(self.app, self.key_id, self.secret, SystemClock().now_ms()))


class LoadThread:
    """A thread that runs turn after turn until it is stopped; a fault of the world makes it begin again."""

    def __init__(self, name: str) -> None:
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def ask_to_stop(self) -> None:
        self._stopping.set()

    def join(self) -> None:
        """Wait for its end, after `ask_to_stop`. One that was not started has ended."""
        if self._thread.ident is not None:
            self._thread.join(END_S_MAX)

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                self.session()
            except (ProxyCallError, KafkaFault, OSError) as fault:
                log.info("%s: %s", self._thread.name, fault)
            self._stopping.wait(PAUSE_S)

    def session(self) -> None:
        """Work over one connection until the thread is stopped. Raises ProxyCallError, KafkaFault, OSError."""
        raise NotImplementedError

    @property
    def is_stopping(self) -> bool:
        return self._stopping.is_set()


class SyntheticProducer(LoadThread):
    """
    Args:
        address: asked for at each connection.
        per_second: messages over all topics.
    """

    def __init__(
        self, name: str, address: Callable[[], tuple[str, int]], access: LoadAccess, topics: Sequence[str],
        per_second: float, ledger: LoadLedger,
    ) -> None:  # fmt: skip
        super().__init__(name)
        self._prefix, self._address, self._access, self._topics = name, address, access, [*topics]
        self._per_second, self._ledger = per_second, ledger
        self._numbers = {(topic, key): 0 for topic in topics for key in range(KEYS)}
        self._turn = 0
        self._open: dict[str, LoadId] = {}
        self._not_before: dict[str, float] = {}

    def session(self) -> None:
        with ProxyLink("send", self._address()) as link:
            while not self.is_stopping:
                began = time.monotonic()
                if batch := self._next_batch(began):
                    self._send(link, batch)
                self._stopping.wait(max(0.0, began + max(1, len(batch)) / self._per_second - time.monotonic()))

    def _next_batch(self, now_s: float) -> list[LoadId]:
        """The next message of each topic whose turn it is: the open one, or a new one."""
        found = []
        for _ in range(min(TOPICS_PER_CALL, len(self._topics))):
            topic = self._topics[self._turn % len(self._topics)]
            self._turn += 1
            if topic not in self._open:
                key = self._turn // len(self._topics) % KEYS
                self._numbers[topic, key] += 1
                self._open[topic] = LoadId(topic, f"{self._prefix}.{key}", self._numbers[topic, key])
            if self._not_before.get(topic, 0.0) <= now_s:
                found.append(self._open[topic])
        return found

    def _send(self, link: ProxyLink, batch: list[LoadId]) -> None:
        messages = [Message(topic=each.topic, id=str(each), key=each.key, body=BODY) for each in batch]
        request = SendRequest(credential=self._access.credential(), messages=messages, timeout_ms=SEND_MS)
        try:
            results = link.call(request, SEND_MS / 1000 + 3.0).results
        except (ProxyCallError, OSError):
            results = [SendResult(code=NO_ANSWER)] * len(batch)
            raise
        finally:
            now_s = time.monotonic()
            for each, result in zip(batch, results, strict=True):
                self._note(each, result, now_s)

    def _note(self, each: LoadId, result: SendResult, now_s: float) -> None:
        self._ledger.answer(each, result.code, now_s)
        if result.code in OK_CODES:
            self._open.pop(each.topic, None)
            return
        pause_ms = result.retry_after_ms or PAUSE_S * 1000
        self._not_before[each.topic] = now_s + min(pause_ms, 1_000) / 1000


class SyntheticConsumer(LoadThread):
    """Pulls as a group, and acknowledges with the next pull.

    Attributes:
        found: ids of synthetic messages in the order of arrival.
        others: number of other messages, which are those of the sample.
    """

    def __init__(
        self, name: str, address: Callable[[], tuple[str, int]], access: LoadAccess, group: str
    ) -> None:  # fmt: skip
        super().__init__(name)
        self._address, self._access, self._group = address, access, group
        self.found: list[str] = []
        self.others = 0

    def session(self) -> None:
        with ProxyLink("pull", self._address()) as link:
            receipts: list[bytes] = []
            while not self.is_stopping or receipts:
                wait_ms = 0 if self.is_stopping else PULL_MS
                request = PullRequest(
                    credential=self._access.credential(), group=self._group, topics=None,
                    max_messages=0 if self.is_stopping else PULL_MAX, wait_ms=wait_ms,
                    acks=[Ack(each) for each in receipts],
                )  # fmt: skip
                receipts = []
                answer = link.call(request, wait_ms / 1000 + 5.0)
                if answer.code >= 100:
                    self._stopping.wait(PAUSE_S)
                for each in answer.deliveries or ():
                    receipts.append(each.receipt)
                    self._note(each.id or each.message.id)

    def _note(self, id_: str | None) -> None:
        if id_ and load_id(id_) is not None:
            self.found.append(id_)
        else:
            self.others += 1


class KafkaMember(LoadThread):
    """A member of a group on Kafka itself, beside the bridge. Attributes as SyntheticConsumer."""

    def __init__(
        self, name: str, open_reader: Callable[[GroupOptions, GroupListener], GroupReader], group: str,
        topics: Sequence[str],
    ) -> None:  # fmt: skip
        super().__init__(name)
        self._open_reader = open_reader
        self._options = GroupOptions(group, tuple(topics), session_s=SESSION_S)
        self.found: list[str] = []
        self.others = 0

    def session(self) -> None:
        reader = self._open_reader(self._options, GroupListener())
        try:
            while not self.is_stopping:
                for part in reader.poll(0.2):
                    for headers in part.headers:
                        self._note(dict(headers).get(ID_HEADER))
                    reader.commit({part.partition: part.next_offset})
        finally:
            reader.close()

    def _note(self, id_: bytes | None) -> None:
        text = id_.decode("utf-8", "replace") if id_ else ""
        if load_id(text) is not None:
            self.found.append(text)
        else:
            self.others += 1
