"""How long does a request take through two producer proxies, from its planned moment to its reply?

Question: p50, p99, p99.9 and the longest of requests of 128 bytes at a fixed rate (open loop: a late request's clock starts when it was
due), and how many of them were no reply. The asker is at one producer proxy, three replying processes at a second one, all consumers
at one consumer proxy; engine, proxies, askers and repliers share this machine. One topic of 8 queues, the durability given. Excluded:
the first second. Run: `python -m bench.requests [--rate 1000] [--seconds 10] [--durability memory]`; one line.
"""

import argparse
import multiprocessing
import os
import select
import signal
import socket
import sys
import time

from bench._histogram import Histogram
from bench.call import Line, credential
from bench.errors import BenchError
from bench.generator import Target
from bench.instance import own
from bench.outcome import commit
from bench.own_proxy import own_proxy
from bench.settings import Settings
from common.contract import Ack, Code, Message, PullRequest, SendRequest, decode_reply, encode_call

BODY = b"q" * 128
REPLIERS = 3
CONNECTIONS = 16
WARM_UP_S = 1.0
WAIT_MS = 5_000
SHARES = (("p50", 0.5), ("p99", 0.99), ("p99.9", 0.999))


def reply_for_ever(target: Target, producer: tuple[str, int], group: str, topic: str) -> None:
    """Pull requests and answer each, until this process is ended."""
    consumer, sender, proof = Line(target.consumer), Line(producer), credential(target)
    acks: list[Ack] = []
    while True:
        asked = PullRequest(credential=proof, group=group, topics=[topic], wait_ms=5_000, acks=acks)
        consumer.post(encode_call("pull", 1, asked))
        deliveries = decode_reply(consumer.take()).deliveries  # type: ignore[attr-defined]
        acks = [Ack(receipt=each.receipt) for each in deliveries]
        replies = [Message(topic="", body=BODY, reply_to=each.reply_token) for each in deliveries]
        if replies:
            sender.post(encode_call("send", 1, SendRequest(credential=proof, messages=replies)))
            sender.take()


def ask(target: Target, topic: str, rate: float, seconds: float) -> tuple[Histogram, int]:
    """Latencies of `seconds` behind the warm-up, and how many requests got no reply."""
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
            (result,) = decode_reply(line.take()).results  # type: ignore[attr-defined]
            if line.due_ns >= counted_ns:
                latencies.record(time.monotonic_ns() - line.due_ns)
                failed += result.code != Code.OK or result.reply is None
            free.append(line)
    return latencies, failed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rate", type=float, default=1000.0)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--durability", choices=["memory", "fsync"], default="memory")
    options = parser.parse_args()
    settings = Settings(topics=1, queues=8, durability=options.durability)
    topic = settings.topic_names()[0]
    with own() as instance, instance.prepared(settings) as target, own_proxy(instance) as second:
        context = multiprocessing.get_context("fork")
        repliers = [
            context.Process(target=reply_for_ever, args=(target, second.address, settings.group, topic), daemon=True)
            for _ in range(REPLIERS)
        ]
        for replier in repliers:
            replier.start()
        latencies, failed = ask(target, topic, options.rate, options.seconds)
        for replier in repliers:
            os.kill(replier.pid or 0, signal.SIGTERM)
            replier.join()
    shown = " ".join(f"{name}={latencies.percentile(share) / 1e6:.3f}" for name, share in SHARES)
    print(
        f"requests commit={commit()} durability={options.durability} loop=open:{options.rate:g}/s answered={len(latencies) - failed:,} "
        f"failed={failed} ms: {shown} max={latencies.max_ns / 1e6:.3f}"
    )


if __name__ == "__main__":
    try:
        main()
    except BenchError as fault:
        sys.exit(f"bench: {fault}")
