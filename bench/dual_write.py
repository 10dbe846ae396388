"""CPU of a producer proxy per message, and latency of sends, for topics of one running Penstock: `python -m bench.dual_write`.

Question: what does a dual write cost the proxy, and do its callers feel the secondary? Settings: `--call` messages of
128 bytes per call, keys of 64 values, one call at a time on each of `--connections`. Rounds of all topics alternate, so
that one noisy minute does not decide. The CPU is that of the proxy's process, copies to the secondary included: each
round ends when the proxy is idle again. Excluded: engine, Kafka bridge, Kafka, and the load's own process.

Topics to compare: one as it is (hot path), one that takes the rare path without a secondary (`--body-format json`), and
one with a secondary. Bodies are JSON texts for that reason.
"""

import argparse
import json
import os
import statistics
import threading
import time
from pathlib import Path
from typing import Any

from thriftpy2.protocol import TCyBinaryProtocolFactory
from thriftpy2.rpc import make_client
from thriftpy2.transport import TCyFramedTransportFactory

from common import contract
from common.contract import Code, Credential, Message, SendRequest
from common.credential import mint

BODY = json.dumps("x" * 126).encode()
TICK_S = 1 / os.sysconf("SC_CLK_TCK")
IDLE_S = 1.0


def cpu_s(pid: int) -> float:
    """CPU time of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) * TICK_S


def settled_cpu_s(pid: int) -> float:
    """CPU time once the process has been idle for a second, less what it takes when idle."""
    before = cpu_s(pid)
    while True:
        time.sleep(IDLE_S)
        now = cpu_s(pid)
        if now - before < 0.05 * IDLE_S:
            return now
        before = now


class CallingThread:
    """One client that calls until it has sent its messages."""

    def __init__(self, place: tuple[str, int], application: tuple[str, str, str], topic: str, calls: int, size: int):
        self._place, self._application, self._topic = place, application, topic
        self._calls, self._size = calls, size
        self.latencies_s: list[float] = []
        self.refused = 0

    def run(self) -> None:
        client: Any = make_client(
            contract.Producer, *self._place, proto_factory=TCyBinaryProtocolFactory(),
            trans_factory=TCyFramedTransportFactory(), timeout=30_000,
        )  # fmt: skip
        messages = [Message(topic=self._topic, key=f"k{number % 64}", body=BODY) for number in range(self._size)]
        credential = Credential(*mint(*self._application, int(time.time() * 1000)))  # the hot path knows it then
        for _ in range(self._calls):
            started = time.monotonic()
            results = client.send(SendRequest(credential=credential, messages=messages, timeout_ms=10_000)).results
            self.latencies_s.append(time.monotonic() - started)
            self.refused += sum(each.code != Code.OK for each in results)
        client.close()


def measure(options: argparse.Namespace, facts: dict[str, Any], topic: str) -> dict[str, Any]:
    """One round of one topic."""
    pid = facts["pids"]["producer_proxy"]
    place = facts["producer_proxy"]["host"], facts["producer_proxy"]["port"]
    calls = options.messages // options.call // options.connections
    connections = [
        CallingThread(place, tuple(options.key.split(":")), topic, calls, options.call)
        for _ in range(options.connections)
    ]
    before = settled_cpu_s(pid)
    threads = [threading.Thread(target=each.run) for each in connections]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    used_s = settled_cpu_s(pid) - before
    latencies = sorted(each for connection in connections for each in connection.latencies_s)
    sent = calls * options.call * options.connections
    return {
        "us": used_s / sent * 1e6,
        "p50_ms": statistics.median(latencies) * 1e3,
        "p99_ms": latencies[int(0.99 * len(latencies))] * 1e3,
        "refused": sum(each.refused for each in connections),
    }


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.dual_write", description=__doc__)
    parser.add_argument("--ready-file", type=Path, required=True, help="Of the running `penstock up`.")
    parser.add_argument("--key", required=True, help="APP:KEY_ID:SECRET of an application that may send.")
    parser.add_argument("--topics", required=True, help="Names, separated by commas; the first one is the base.")
    parser.add_argument("--messages", type=int, default=20_000)
    parser.add_argument("--call", type=int, default=50)
    parser.add_argument("--connections", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    facts = json.loads(options.ready_file.read_text())
    topics = options.topics.split(",")
    for topic in topics:  # the first calls resolve the topic
        measure(
            argparse.Namespace(**{**vars(options), "messages": 10 * options.call * options.connections}), facts, topic
        )
    found: dict[str, list[dict[str, Any]]] = {topic: [] for topic in topics}
    for _ in range(options.rounds):
        for topic in topics:
            found[topic].append(measure(options, facts, topic))
    base = statistics.median(each["us"] for each in found[topics[0]])
    for topic, rounds in found.items():
        middle = {name: statistics.median(each[name] for each in rounds) for name in ("us", "p50_ms", "p99_ms")}
        refused = sum(each["refused"] for each in rounds)
        print(
            f"{topic:12} call={options.call} {middle['us']:7.2f} us/message ({middle['us'] / base:.2f} x)  "
            f"p50 {middle['p50_ms']:.2f} ms  p99 {middle['p99_ms']:.2f} ms  refused {refused}"
        )


if __name__ == "__main__":
    main()
