"""The page about Kafka, docs/kafka.md: its commands as they stand, with a single broker."""

import os
import subprocess
import sys
from contextlib import closing

import pytest

from common.kafka.base import NewKafkaTopic
from common.kafka.connection import KafkaConnection
from common.kafka.drivers import open_driver
from tests.e2e.running import RunningPenstock
from tests.pages import run_blocks
from tests.services.kafka import KafkaBrokers
from tests.waiting import until

pytestmark = pytest.mark.slow

TOPICS = ("orders", "refunds")


@pytest.fixture
def broker(tmp_path):
    with KafkaBrokers(tmp_path / "kafka") as made:
        with closing(open_driver().admin(KafkaConnection("main", (made.bootstrap,)))) as admin:
            assert admin.create_topics(dict.fromkeys(TOPICS, NewKafkaTopic(4, 1))) == {}
            until(lambda: len(admin.topics(TOPICS)) == len(TOPICS), "the topics", 30.0)
        yield made


def test_the_commands_of_the_page_work_as_pasted(broker, tmp_path):
    penstock = RunningPenstock(tmp_path / "data").start()
    try:
        add, create = run_blocks("docs/kafka.md")
        # The second block creates the first one's topic again, to show where its pulls begin.
        lines = [line for line in create.text.splitlines() if "topic create orders" not in line]
        text = "\n".join([add.text, *lines])
        places = {
            "kafka-1:9092,kafka-2:9092": broker.bootstrap,
            "--home kafka:main": "--home kafka:main --accept lone-replica",  # what a single broker needs
        }
        for old, new in places.items():
            assert old in text
            text = text.replace(old, new)
        variables = {"PATH": f"{sys.prefix}/bin:{os.environ['PATH']}", "PENSTOCK_DATA": str(penstock.data)}
        done = subprocess.run(
            ["bash", "-e", "-c", text], env=os.environ | variables, capture_output=True, text=True, timeout=240
        )
        assert done.returncode == 0, done.stdout + done.stderr
        assert penstock.run("topic", "show", "refunds")["home"] == "kafka:main"
    finally:
        penstock.end()
