"""Needs of the Kafka bridge for many quiet topics: threads, descriptors, memory and CPU, at 1, 20, 200 and 1,000 topics.

from: topics whose home is Kafka, which are copied into the engine. to: copies of topics of the engine to Kafka. dual: topics
of the engine that one group reads on both sides. Two partitions per topic, no message. The CPU is that of the bridge over the
window, in percent of one core, once it has settled. Excluded: creating the topics, and their first copy. The broker, the engine and the
proxies share the machine.
"""

import json
import os
import re
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

from bench.figures import Figure
from bench.kafka.desk import CLUSTER, WAIT_S, KafkaDesk, create_on, kafka_desk, wait_for
from bench.pages import metrics_page
from common.config.opening import open_store
from common.config.store import ConfigStore
from common.kafka.drivers import open_driver
from common.shared_reads import hidden_topic
from engine.client.blocking import RoleLink
from engine.link.operations import TOPIC
from engine.link.proof import KAFKA_BRIDGE_ROLE
from engine.link.topic import encode_topics

COUNTS = (1, 20, 200, 1_000)
PARTITIONS, CREATED_AT_ONCE = 2, 250
GROUP = "readers"
SETTLED_S, SETTLED_SHARE = 600.0, 0.1
QUIET_S = 65.0
"""A copy to Kafka keeps its producer for 60 s; readers of Kafka look at new topics a few times."""
COUNTED = {
    "_from_kafka": r"^penstock_kafka_copy_in_claimed{.*} 1\.0$",
    "_to_kafka": r"^penstock_kafka_copy_out_standing{.*} 0\.0$",
    "_dual_read": rf"^penstock_kafka_shared_read_partitions{{.*}} {PARTITIONS}\.0$",
}
"""Lines of the bridge's page of metrics: one for each topic that is copied."""
THREADS_MAX, IDLE_MAX = 40, 2.0


def run_many(scale: float, seconds: float, say: Callable[[str], None]) -> list[Figure]:
    figures: list[Figure] = []
    counts = sorted({max(1, int(each * scale)) for each in COUNTS})
    for way in (_from_kafka, _to_kafka, _dual_read):
        with kafka_desk() as desk:
            made = 0
            for count in counts:
                names = [f"many.{number:04d}" for number in range(made, count)]
                _create_in_kafka(desk, names)
                with closing(open_store(desk.instance.facts["config"])) as store:
                    way(store, names)
                if way is not _from_kafka:
                    _create_in_engine(desk, names)
                made = count
                figures += _measured(desk, way.__name__, count, seconds, say)
    return figures


def _create_in_kafka(desk: KafkaDesk, names: list[str]) -> None:
    with closing(open_driver().admin(desk.connection)) as admin:
        for at in range(0, len(names), CREATED_AT_ONCE):
            create_on(admin, dict.fromkeys(names[at : at + CREATED_AT_ONCE], PARTITIONS))


def _create_in_engine(desk: KafkaDesk, names: list[str]) -> None:
    """As the first message of each would."""
    facts = desk.instance.facts
    key = Path(facts["cluster_key"]).read_bytes()
    with closing(RoleLink((facts["engine"]["host"], facts["engine"]["port"]), key, KAFKA_BRIDGE_ROLE, WAIT_S)) as link:
        link.call(TOPIC, encode_topics([(name, PARTITIONS) for name in names]))


def _from_kafka(store: ConfigStore, names: list[str]) -> None:
    for each in names:
        store.put(
            "topic",
            each,
            {"queues": PARTITIONS, "durability": "memory", "id_window_ms": 0, "home": f"kafka:{CLUSTER}"},
            0,
        )


def _to_kafka(store: ConfigStore, names: list[str]) -> None:
    for each in names:
        store.put("topic", each, {"queues": PARTITIONS, "durability": "memory"}, 0)
        store.put("copy_out", each, {"cluster": CLUSTER}, 0)


def _dual_read(store: ConfigStore, names: list[str]) -> None:
    for each in names:
        entry = {"group": GROUP, "topic": each, "cluster": CLUSTER, "queues": PARTITIONS}
        store.put("topic", each, {"queues": PARTITIONS, "durability": "memory"}, 0)
        store.put("shared_read", hidden_topic(GROUP, each), entry, 0)


def _measured(desk: KafkaDesk, what: str, count: int, seconds: float, say: Callable[[str], None]) -> Iterator[Figure]:
    began_s = time.monotonic()
    wait_for(lambda: _is_settled(desk, COUNTED[what], count), f"{count} topics", SETTLED_S)
    time.sleep(QUIET_S)
    wait_for(lambda: _is_settled(desk, COUNTED[what], count), f"{count} topics", SETTLED_S)
    say(f"many:{what.replace('_', ' ')}: {count} topics after {time.monotonic() - began_s:.1f} s")
    process = Path(f"/proc/{desk.pids['kafka_bridge']}")
    before, began_s = desk.cpu_s("kafka_bridge"), time.monotonic()
    time.sleep(seconds)
    cpu = 100 * (desk.cpu_s("kafka_bridge") - before) / (time.monotonic() - began_s)
    status = dict(line.split(":", 1) for line in (process / "status").read_text().splitlines())
    name = f"{what.replace('_', ' ').strip()}, {count} topics"
    yield Figure(f"{name}: threads", int(status["Threads"]), "", most=THREADS_MAX)
    yield Figure(f"{name}: descriptors", len(os.listdir(process / "fd")), "")
    yield Figure(f"{name}: memory", int(status["VmRSS"].split()[0]) / 1024, "MiB")
    yield Figure(f"{name}: CPU, idle", cpu, "%", most=IDLE_MAX)


def _is_settled(desk: KafkaDesk, line: str, count: int) -> bool:
    ports = json.loads((desk.data / "up.json").read_text())["ops"]
    page = metrics_page("127.0.0.1", ports["kafka_bridge"])
    if len(re.findall(line, page, re.MULTILINE)) != count:
        return False
    before = desk.cpu_s("kafka_bridge")
    time.sleep(1.0)
    return desk.cpu_s("kafka_bridge") - before < SETTLED_SHARE
