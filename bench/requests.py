"""Latency of a request through two producer proxies, from its planned time to its reply.

Question: p50, p99, p99.9 and maximum of requests of 128 bytes at a fixed rate (open loop: latency counts from the due
time), and how many of them got no reply. The asker is at one producer proxy, three replying processes at a second one,
all consumers at one consumer proxy, all of them linked by the engine's socket file as `penstock up` does it; engine,
proxies, askers and repliers share this machine. One topic of 8 queues, the durability given; a replier takes one
request at a time. Asker and repliers patch bytes that were encoded before the clock starts and find fields in the
answers without decoding, so that they take little CPU.
Excluded: the first second. Printed with the latencies: CPU of each process per request. Run:
`python -m bench.requests [--rate 1000] [--seconds 10] [--durability memory]`; one line.
"""

import argparse
import multiprocessing
import os
import re
import select
import signal
import socket
import sys
import time

from bench.call import Line, credential
from bench.errors import BenchError
from bench.generator import LoadTarget
from bench.histogram import Histogram
from bench.instance import BenchInstance, own
from bench.outcome import commit
from bench.own_proxy import own_proxy
from bench.servers import Sampler
from bench.settings import LoadSettings
from common.contract import Ack, Message, PullRequest, SendRequest, encode_call

BODY = b"q" * 128
REPLIERS = 3
CONNECTIONS = 16
WARM_UP_S = 1.0
WAIT_MS = 5_000
A_RECEIPT, A_TOKEN = bytes(range(100, 152)), bytes(range(160, 200))
"""Stand in frames where each call has its own."""

RECEIPT = re.compile(rb"\x0b\x00\x01\x00\x00\x00\x34(.{52})", re.DOTALL)
REPLY_TOKEN = re.compile(rb"\x0b\x00\x08\x00\x00\x00\x28(.{40})", re.DOTALL)
"""Fields of a delivery: their type, id and size in front."""

SHARES = (("p50", 0.5), ("p99", 0.99), ("p99.9", 0.999))


def reply_for_ever(target: LoadTarget, producer: tuple[str, int], group: str, topic: str) -> None:
    """Pull requests and answer each, until this process is ended."""
    consumer, sender, proof = Line(target.consumer), Line(producer), credential(target)
    asked = {"credential": proof, "group": group, "topics": [topic], "wait_ms": 5_000, "max_messages": 1}
    first = encode_call("pull", 1, PullRequest(**asked))
    acknowledging = encode_call("pull", 1, PullRequest(**asked, acks=[Ack(receipt=A_RECEIPT)]))
    replying = SendRequest(credential=proof, messages=[Message(topic="", body=BODY, reply_to=A_TOKEN)])
    reply = encode_call("send", 1, replying)
    frame = first
    while True:
        consumer.post(frame)
        answer = consumer.take()
        receipt, token = RECEIPT.search(answer), REPLY_TOKEN.search(answer)
        if receipt and token:
            sender.post(reply.replace(A_TOKEN, token[1]))
            sender.take()
        frame = acknowledging.replace(A_RECEIPT, receipt[1]) if receipt else first


def ask(target: LoadTarget, topic: str, rate: float, seconds: float) -> tuple[Histogram, int]:
    """Return the latencies of `seconds` after the warm-up, and the number of requests without a reply."""
    request = SendRequest(
        credential=credential(target), messages=[Message(topic=topic, body=BODY)], reply_wait_ms=WAIT_MS
    )
    frame = encode_call("send", 1, request)
    free = [Line(target.producer) for _ in range(CONNECTIONS)]
    busy: dict[socket.socket, Line] = {}
    latencies, failed, step_ns = Histogram(), 0, int(1e9 / rate)
    start_ns = time.monotonic_ns()
    counted_ns, end_ns = start_ns + int(WARM_UP_S * 1e9), start_ns + int((WARM_UP_S + seconds) * 1e9)
    due_ns = start_ns
    while due_ns < end_ns or busy:
        now_ns = time.monotonic_ns()
        while free and due_ns <= now_ns and due_ns < end_ns:
            line = free.pop()
            line.due_ns = due_ns
            line.post(frame)
            busy[line.sock] = line
            due_ns += step_ns
        pause_s = max(0.0, (due_ns - time.monotonic_ns()) / 1e9) if due_ns < end_ns and free else 1.0
        for sock in select.select(list(busy), [], [], pause_s)[0]:
            line = busy.pop(sock)
            answer = line.take()
            if line.due_ns >= counted_ns:
                latencies.record(time.monotonic_ns() - line.due_ns)
                failed += BODY not in answer
            free.append(line)
    return latencies, failed


def _socket_file(instance: BenchInstance) -> tuple[str, str]:
    return "unix", f"{instance.facts['data']}/engine.sock"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rate", type=float, default=1000.0)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--durability", choices=["memory", "fsync"], default="memory")
    options = parser.parse_args()
    settings = LoadSettings(topics=1, queues=8, durability=options.durability)
    topic = settings.topic_names()[0]
    with (
        own() as instance,
        instance.prepared(settings) as target,
        own_proxy(instance, _socket_file(instance)) as second,
    ):
        context = multiprocessing.get_context("fork")
        repliers = [
            context.Process(target=reply_for_ever, args=(target, second.address, settings.group, topic), daemon=True)
            for _ in range(REPLIERS)
        ]
        for replier in repliers:
            replier.start()
        sampler = Sampler({**instance.pids, "second_proxy": second.pid, "replier": repliers[0].pid or 0})
        sampler.on_window(opens=True)
        latencies, failed = ask(target, topic, options.rate, options.seconds)
        sampler.on_window(opens=False)
        for replier in repliers:
            os.kill(replier.pid or 0, signal.SIGTERM)
            replier.join()
    requests = options.rate * (WARM_UP_S + options.seconds)
    spent = " ".join(f"{use.name}={use.cpu_s / requests * 1e6:.0f}" for use in sampler.uses)
    shown = " ".join(f"{name}={latencies.percentile(share) / 1e6:.3f}" for name, share in SHARES)
    print(
        f"requests commit={commit()} durability={options.durability} loop=open:{options.rate:g}/s answered={len(latencies) - failed:,} "
        f"failed={failed} ms: {shown} max={latencies.max_ns / 1e6:.3f} us_of_cpu: {spent}"
    )


if __name__ == "__main__":
    try:
        main()
    except BenchError as fault:
        sys.exit(f"bench: {fault}")
