"""CPU of dispatch and acknowledgement inside the engine, without the link, the proxies and the appends.

Question: how many µs of CPU does a message take from the wake-up by its append to its acknowledgement?
Settings: a real log in page cache, 16 topics of 8 queues, messages of 128 bytes, one group. Pulls go through the
engine's service as bytes, and each acknowledges what the one before brought.
Workloads: `one_message_runs`: 16 queues get one new message each, and one waiting pull takes them all, as when single
messages are consumed as they come; `batch32`: pulls of 32 from stored batches of 50; `pull1000`: pulls of 1,000 from
the same; `keys32`: pulls of 32 in order by key from one topic, 10,000 keys at random, 16 pulls in flight, so that about
5 % of the messages have to wait for another.
Excluded: appends, making requests and reading answers, all outside of the clock; progress records are inside it, every
200 ms.
Run: `python -m bench.delivery [--seconds 2] [--profile] [--twin] [workload …]`; one line per workload.
"""

import argparse
import cProfile
import os
import pstats
import random
import shutil
import struct
import sys
import tempfile
import time
from collections import deque

if "--twin" in sys.argv:
    os.environ["PENSTOCK_PURE"] = "1"

from engine.config import LogConfig
from engine.delivery.policy import DEFAULTS, KEY, Defaults, GroupPolicy, Policies
from engine.env.real import RealEnv
from engine.link.acknowledgement import AckRange, AckRanges
from engine.link.codes import OK
from engine.link.operations import PULL
from engine.link.pull import EARLIEST, PullAnswer, PullQuestion, PullScope
from engine.log import Log, open_log
from engine.log.format import KIND_MESSAGES, pack_batch, pack_record
from engine.log.write.native import NATIVE
from engine.node import Node, NodeConfig, NodeHost
from engine.ops.roles import CLIENT, LinkKeys

TOPICS, QUEUES, BODY = 16, 8, 128
PLACES = TOPICS * QUEUES
PROGRESS_S = 0.2
STORED_MAX = 64 << 20
GROUP = b"bench"
ALL_TOPICS = PullScope(GROUP, {f"t-{i}": QUEUES for i in range(TOPICS)})
ONE_TOPIC = PullScope(GROUP, {"t-0": QUEUES})
KEYS, IN_FLIGHT = 10_000, 16


class ByKey(Defaults):
    """Policy under which every group is in order by key."""

    generation = 0

    def of(self, group: str) -> GroupPolicy:
        return GroupPolicy(order=KEY)


class BenchConsumer:
    """An engine node on its own log, and one consumer that gets its answers' bytes without a socket."""

    def __init__(self, directory: str, most: int, policies: Policies = DEFAULTS) -> None:
        env = RealEnv()
        self.log: Log = open_log(env, directory, LogConfig())
        self.log.create_topics((f"t-{i}", QUEUES) for i in range(TOPICS))
        host = NodeHost(
            env.clock, env.random_bytes, env.random_fraction, in_loop=lambda call: call(), wake_at=lambda due_ms: None,
            die=env.die, stop=lambda: None, facts=dict,
        )  # fmt: skip
        self.node = Node(self.log, NodeConfig(LinkKeys(b"k" * 32)), host, policies=policies)
        self.delivery, self.clock = self.node.delivery, env.clock
        self.queued = self.backlog = 0
        self.peer_state = self.node.on_connected(self)
        self.peer_state.authenticated, self.peer_state.operations = True, CLIENT.operations
        self.most, self.answer = most, b""
        self.delivered = self.pieces = self.refused = 0
        self.profile: cProfile.Profile | None = None
        self._progress_at = time.perf_counter()

    def send_frame(self, op: int, request_id: int, code: int, parts: list) -> None:
        """Keep the answer's bytes. The join stands for the copy into the output buffer."""
        self.refused += code != OK
        self.answer = b"".join(parts)

    def trust(self) -> None:
        """Part of a peer."""

    def close(self, reason: str) -> None:
        """Part of a peer."""

    def close_when_sent(self) -> None:
        """Part of a peer."""

    def ask(self, payload: bytes) -> None:
        self.answer = b""
        self.node.on_request(self, PULL, 1, payload)

    def clocked(self, *works) -> float:
        """CPU seconds of these steps, and of a progress record when one is due."""
        started = time.process_time()
        if self.profile is not None:
            self.profile.enable()
        for work in works:
            work()
        if time.perf_counter() - self._progress_at >= PROGRESS_S:
            self._progress_at = time.perf_counter()
            self.delivery.write_progress()
            self.delivery.on_time(self.clock.monotonic_ms())
        if self.profile is not None:
            self.profile.disable()
        return time.process_time() - started

    def next_request(self) -> bytes:
        """Encode a pull that acknowledges all of the last answer and waits for messages."""
        return self.request(self.acks() if self.answer else [], ALL_TOPICS)

    def request(self, acks: list[AckRange], scope: PullScope) -> bytes:
        return PullQuestion(scope, self.most, 1 << 20, 10_000, 30_000, EARLIEST, AckRanges.of(acks)).encode()

    def acks(self) -> list[AckRange]:
        answer = PullAnswer(self.answer)
        self.refused += sum(code != OK for code in answer.codes())
        acks: dict[bytes, list[int]] = {}
        for piece in answer.pieces():
            lease = acks.setdefault(piece.token, [piece.first_delta, 0])
            lease[1] += piece.count
            self.delivered += piece.count
            self.pieces += 1
        return [AckRange(token, first, records) for token, (first, records) in acks.items()]


def frame(batches: int, records: int, first: int) -> bytes:
    """Batches for consecutive queues, one per queue, topics changing fastest."""
    record = pack_record(bytes(BODY))
    return b"".join(
        pack_batch(KIND_MESSAGES, 1 + (first + i) % TOPICS, (first + i) // TOPICS % QUEUES, [record] * records)
        for i in range(batches)
    )


def waiting_pull(asker: BenchConsumer, seconds: float) -> float:
    """Store one message in each of 16 queues for the waiting pull."""
    frames = [frame(TOPICS, 1, first * TOPICS) for first in range(QUEUES)]
    request, used, until, turn = asker.next_request(), 0.0, time.perf_counter() + seconds, 0
    asker.ask(request)
    while time.perf_counter() < until:
        asker.log.append(frames[turn % QUEUES], TOPICS, asker.log.epoch + turn)
        turn += 1
        used += asker.clocked(asker.node.turn_end)
        request = asker.next_request()
        used += asker.clocked(lambda request=request: asker.ask(request))
    return used


def stored_batches(asker: BenchConsumer, seconds: float) -> float:
    """Pull messages stored in batches of 50 to the end of each queue, repeatedly."""
    whole = frame(PLACES, 50, 0)
    used, until = 0.0, time.perf_counter() + seconds
    while time.perf_counter() < until:
        for turn in range(20):
            asker.log.append(whole, PLACES, 1 + turn)
        asker.log.take_woken()
        target = asker.delivered + 20 * PLACES * 50
        request = asker.next_request()
        asker.delivery.on_woken([(topic, queue) for topic in range(1, TOPICS + 1) for queue in range(QUEUES)], 0)
        while asker.delivered < target and time.perf_counter() < until:
            used += asker.clocked(lambda request=request: asker.ask(request))
            request = asker.next_request()
            for withdraw, _ in asker.peer_state.waiting.values():
                withdraw()
    return used


def keyed_batches(asker: BenchConsumer, seconds: float) -> float:
    """Pull messages with keys; each pull acknowledges the answer of the pull IN_FLIGHT before it."""
    chance = random.Random(7)
    used, until = 0.0, time.perf_counter() + seconds
    flying: deque[list[AckRange]] = deque()
    stored = 0
    while time.perf_counter() < until:
        while stored - asker.delivered < 20_000:
            asker.log.append(keyed_frame(chance), QUEUES, 1)
            stored += QUEUES * 50
        asker.node.turn_end()
        acks = flying.popleft() if len(flying) >= IN_FLIGHT else []
        request = asker.request(acks, ONE_TOPIC)
        used += asker.clocked(lambda request=request: asker.ask(request))
        for withdraw, _ in asker.peer_state.waiting.values():
            withdraw()
        flying.append(asker.acks() if asker.answer else [])
    return used


def keyed_frame(chance: random.Random) -> bytes:
    """A batch of 50 messages for each queue of the first topic."""
    batches = []
    for queue in range(QUEUES):
        keys = [b"key-%d" % (queue + QUEUES * chance.randrange(KEYS // QUEUES)) for _ in range(50)]
        records = [pack_record(field(1, b"t-0") + field(2, bytes(BODY)) + field(3, key) + b"\0") for key in keys]
        batches.append(pack_batch(KIND_MESSAGES, 1, queue, records))
    return b"".join(batch + bytes(-len(batch) % 8) for batch in batches)


def field(number: int, value: bytes) -> bytes:
    return struct.pack(">bhi", 11, number, len(value)) + value


WORKLOADS = {
    "one_message_runs": (waiting_pull, 1000),
    "batch32": (stored_batches, 32),
    "pull1000": (stored_batches, 1000),
    "keys32": (keyed_batches, 32),
}


def run(name: str, seconds: float, profile: bool) -> None:
    """Run one workload in its own directory and print its line."""
    work, most = WORKLOADS[name]
    directory = tempfile.mkdtemp(prefix="penstock-bench-")
    try:
        asker = BenchConsumer(directory, most, ByKey() if work is keyed_batches else DEFAULTS)
        asker.profile = cProfile.Profile() if profile else None
        used = work(asker, seconds)
        assert not asker.refused, f"{asker.refused} refused"
        print(
            f"{name}: {used / asker.delivered * 1e6:.2f} µs CPU/message, {used / asker.pieces * 1e6:.2f} µs/piece, "
            f"{asker.delivered / used / 1e3:,.0f} k messages per CPU second, {asker.delivered:,} messages"
        )
        asker.log.close()
        if asker.profile is not None:
            pstats.Stats(asker.profile).sort_stats("tottime").print_stats(25)
    finally:
        shutil.rmtree(directory)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("workloads", nargs="*", default=list(WORKLOADS), help=", ".join(WORKLOADS))
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--profile", action="store_true")
    parser.add_argument("--twin", action="store_true")
    asked = parser.parse_args()
    print(f"form: {'native' if NATIVE else 'twin'}")
    for name in asked.workloads:
        run(name, asked.seconds, asked.profile)


if __name__ == "__main__":
    main()
