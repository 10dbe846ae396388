"""Calls of one message by clients in Java: to a Kafka home through the proxy, and to the broker itself (`java`).

64 threads, each of which waits for the answer to its message of 128 bytes. Beside the broker: one `KafkaProducer` that all
threads share, which batches their records, as its documentation advises, and one per thread, as each thread has a connection
of its own to the proxy. Both of these ask for acks=1; on one broker the answer comes from the page cache either way. Three
runs each, alternating; medians. The first of each is not counted: the broker's virtual machine compiles what it needs.
"""

import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from statistics import median

from bench.figures import Figure
from bench.kafka.desk import CLUSTER, PARTITIONS, KafkaDesk, kafka_desk
from bench.measure import settle
from bench.peers.driver import Driven, java_driver
from bench.peers.figures import Figures
from bench.peers.workloads import PeerWorkload, Shape, Terms
from bench.settings import LoadSettings

THREADS, ROUNDS = 64, 3
WORKLOAD = PeerWorkload("single", "64 threads, each waits for its answer", topics=1, queues=PARTITIONS, prefix="alone-")
TOPIC = f"{WORKLOAD.prefix}0"
HOME_TOPIC = {"home": f"kafka:{CLUSTER}", "id_window_ms": 0}
HOME, SHARED, EACH = "a Kafka home", "the broker, one producer", "the broker, a producer per thread"
THROUGH_PROXY = ("producer_proxy", "kafka_bridge", "broker", "engine")


def run_java(scale: float, seconds: float, say: Callable[[str], None]) -> list[Figure]:
    terms = Terms(seconds, min(2.0, seconds))
    with kafka_desk() as desk, tempfile.TemporaryDirectory(prefix="penstock-bench-java-") as folder:
        desk.create({TOPIC: HOME_TOPIC})
        settings = LoadSettings(connections=4, topics=1, topic_pattern=TOPIC, durability="default", seconds=seconds)
        with desk.instance.prepared(settings) as target:
            settle(settings, target)
            secrets = {"PENSTOCK_APP": target.app, "PENSTOCK_KEY_ID": target.key_id, "PENSTOCK_SECRET": target.secret}
            place = f"{target.producer[0]}:{target.producer[1]}"
            systems = _systems(desk, java_driver(Path(folder)), place, secrets)
            found: dict[str, list[Figures]] = {each.name: [] for each in systems}
            for number in range(ROUNDS + 1):
                for system in systems:
                    figures = system.run(WORKLOAD, terms)
                    say(f"{system.name}: {figures.messages_per_s:,.0f} calls/s {'; '.join(figures.complaints)}")
                    if number:
                        found[system.name].append(figures)
    return [figure for name, runs in found.items() for figure in _shown(name, runs)]


def _systems(desk: KafkaDesk, command: list[str], proxy: str, secrets: dict[str, str]) -> list[Driven]:
    shape = {WORKLOAD.name: Shape(threads=THREADS)}
    passed = {name: desk.pids[name] for name in THROUGH_PROXY}
    home = Driven(HOME, passed, command, "penstock", proxy, shape, secrets)
    shared = Driven(SHARED, {"broker": passed["broker"]}, command, "kafka", desk.bootstrap, shape)
    each = replace(shared, name=EACH, shapes={WORKLOAD.name: Shape(threads=THREADS, clients=THREADS)})
    return [home, shared, each]


def _shown(name: str, runs: list[Figures]) -> list[Figure]:
    rate = median(each.messages_per_s for each in runs)
    p99_ms = median(each.latency["p99"] for each in runs)
    server_us = median(each.cpu_us_per_message for each in runs)
    client_us = median(each.driver_cpu_s / each.messages * 1e6 for each in runs)
    return [
        Figure(f"single calls in Java to {name}", rate, "calls/s"),
        Figure(f"their p99, {name}", p99_ms, "ms"),
        Figure(f"servers, {name}", server_us, "µs of CPU per message"),
        Figure(f"client, {name}", client_us, "µs of CPU per message"),
    ]
